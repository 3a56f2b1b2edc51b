// SPDX-License-Identifier: Apache-2.0
#include "atoll/check.h"

#include <cstdio>
#include <cstdlib>

namespace atollrt {

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "atoll: internal error at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace atollrt
