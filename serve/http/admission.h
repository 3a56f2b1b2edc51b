// SPDX-License-Identifier: Apache-2.0
//
// The rule of who may come in (serve/access/access.h) for a request over HTTP, when its head is
// there. Servers put the refusals into the form of their own protocol.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/access/access.h"
#include "serve/http/http_server.h"

namespace atollserve {

struct HttpRefusal {
  int status = 403;
  std::string sentence;
  HttpHeaders headers = {};
};

// Of a name that the server does not have (421), and of browsers on behalf of other pages (403).
// `hosts` is by listener; `name_option` is what gives the server a name: "--serve-name".
std::optional<HttpRefusal> RefuseForeign(const HttpRequest& head,
                                         const std::vector<ServedHosts>& hosts,
                                         const char* name_option);

// Of who shows neither the token nor a certificate, where the rule has a token (401).
std::optional<HttpRefusal> RefuseStranger(const HttpRequest& head, const AccessRule& rule);

}  // namespace atollserve
