// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace atollcmd {

// SHA-256 (FIPS 180-4) of `size` bytes, as 64 lower-case hexadecimal digits.
std::string Sha256Hex(const void* data, size_t size);

}  // namespace atollcmd
