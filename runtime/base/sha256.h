// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 (FIPS 180-4). Pure function. tools/ compiles it, too.
#pragma once

#include <cstddef>
#include <string>

namespace atollrt {

// The digest of `size` bytes, as 64 lower-case hexadecimal digits.
std::string Sha256Hex(const void* data, size_t size);

}  // namespace atollrt
