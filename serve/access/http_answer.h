// SPDX-License-Identifier: Apache-2.0
//
// How answers of HTTP/1.1 begin, whichever server gives them.
#pragma once

#include <string>

namespace atollserve {

// The status line, with the reason that RFC 9110 has for it, and the Date header of now.
std::string BeginHttpAnswer(int status);

}  // namespace atollserve
