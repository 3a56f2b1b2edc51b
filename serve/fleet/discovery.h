// SPDX-License-Identifier: Apache-2.0
//
// The servers of a fleet that announce themselves in the local network (DNS-SD, _nats._tcp), for
// who is told "nats://" or "tls://" without a host. They are only to be found: once connected, the
// servers themselves say which others there are.
//
// Anybody in the network may announce a server. Over TLS that is no matter: each one found has to
// have a certificate with the name that --tls-host says, which whoever announces does not choose.
// Without TLS, which takes --insecure, nobody shows who it is, so that of several none is chosen.
#pragma once

#include <string>
#include <vector>

#include "atoll/status.h"
#include "serve/fleet/connection.h"

namespace atollserve {

// Whether servers are to be found.
bool AreToBeFound(const std::vector<std::string>& servers);

// Their addresses, as of ConnectionOptions: all that were there when the first one was, at the
// latest after the timeout of `options`. kInvalidArgument: options that do not go with it, several
// without TLS; kNotFound: none, or Avahi's daemon does not run; kUnsupported: built without Avahi.
atollrt::Result<std::vector<std::string>> FindServers(const ConnectionOptions& options);

// Of those that were found at HOST:PORT. Pure.
atollrt::Result<std::vector<std::string>> ChooseServers(const ConnectionOptions& options,
                                                        const std::vector<std::string>& found);

}  // namespace atollserve
