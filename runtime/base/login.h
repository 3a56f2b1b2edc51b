// SPDX-License-Identifier: Apache-2.0
//
// Addresses as people may read and pass them on. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace atollrt {

// Any address, valid or not, without the login that it may have, and behind a scheme without its
// query, which may have one, too.
std::string WithoutLogin(std::string_view text);

}  // namespace atollrt
