// SPDX-License-Identifier: Apache-2.0
//
// What the clients of a broker may do, as `--share` and the file of `--config` say it
// (docs/broker.md has the members of the file).
#pragma once

#include <string>
#include <vector>

#include "atoll/broker.h"

namespace atollcmd {

// "1000=3", "1001=1:5". CommandError with what may be written.
AtollBrokerShare ParseBrokerShare(const std::string& text);

// Of the file at `path`, in its order. CommandError with the place in it: of JSON that is none, of
// unknown members, wrong types, users and groups that this system does not know.
std::vector<AtollBrokerShare> ReadBrokerShares(const std::string& path);

}  // namespace atollcmd
