// SPDX-License-Identifier: Apache-2.0
//
// Whole files, and errno as a Status. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

// The Status for `errno_value` after `verb` ("open", "read", ...) failed on `path`.
Status FileError(const std::string& path, const char* verb, int errno_value);

struct FileRules {
  // Others, for which one might wait for ever, are refused with kInvalidArgument.
  bool regular_only = false;
  // Given the first 64 KiB, or all if there is less: false ends reading there, successfully. Null:
  // never. Whoever would refuse the beginning need not have the rest in memory.
  bool (*wants_rest)(std::span<const uint8_t> beginning) = nullptr;
};

// Replaces `bytes`, reusing its memory, with the whole file. Errors name the path; files above
// 1 GiB are refused with kResourceExhausted.
Status ReadFile(const std::string& path, std::vector<uint8_t>* bytes, const FileRules& rules = {});

// A descriptor of a regular file for reading. kInvalidArgument for what is none, without waiting.
Result<int> OpenRegularFile(const std::string& path);

}  // namespace atollrt
