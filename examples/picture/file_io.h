// SPDX-License-Identifier: Apache-2.0
//
// Whole files, and errno as a Status. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace atollrt {

// The Status for `errno_value` after `verb` ("open", "read", ...) failed on `path`.
Status FileError(const std::string& path, const char* verb, int errno_value);

// Replaces `bytes`, reusing its memory, with the whole file. Errors name the path; files above
// 1 GiB are refused with kResourceExhausted.
Status ReadFile(const std::string& path, std::vector<uint8_t>* bytes);

// Creates or replaces the file. Errors name the path.
Status WriteFile(const std::string& path, std::span<const uint8_t> bytes);

}  // namespace atollrt
