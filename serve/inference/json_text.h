// SPDX-License-Identifier: Apache-2.0
//
// JSON from others, without exceptions and with limits.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "atoll/status.h"

namespace atollserve {

inline constexpr int kMaxJsonDepth = 100;

// kInvalidArgument with what is wrong, and where. Members of the result have any type: ask before
// they are used. For small texts: each value takes a multiple of its bytes.
atollrt::Result<nlohmann::json> ParseJson(std::string_view text);

// Bytes that are no UTF-8 are replaced.
std::string DumpJson(const nlohmann::json& json);
// As a string of JSON, with its quotes.
std::string QuoteJson(std::string_view text);

// The member of an object; null if `json` is none or has no such member.
const nlohmann::json* FindMember(const nlohmann::json& json, const char* name);

}  // namespace atollserve
