// SPDX-License-Identifier: Apache-2.0
#include "compat/tensorflowlite_c/reporter.h"

#include <cstdio>
#include <string>

#include "atoll/runtime.h"

namespace atollcompat {
namespace {

void Print(const char* prefix, const char* format, va_list args) {
  char text[2048];
  std::vsnprintf(text, sizeof(text), format, args);
  std::fprintf(stderr, "%s: %s\n", prefix, text);  // one call: other threads print, too
}

}  // namespace

void Reporter::Say(const char* format, ...) const {
  va_list args;
  va_start(args, format);
  if (function_ != nullptr) {
    function_(user_data_, format, args);
  } else {
    Print("ERROR", format, args);
  }
  va_end(args);
}

void Reporter::SayLastError() const {
  // The program's function may make another call fail while it reads the sentence.
  const std::string error = AtollLastError();
  Say("%s", error.c_str());
}

void Warn(const char* format, ...) {
  va_list args;
  va_start(args, format);
  Print("WARNING", format, args);
  va_end(args);
}

}  // namespace atollcompat
