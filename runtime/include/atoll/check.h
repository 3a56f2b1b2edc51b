// SPDX-License-Identifier: Apache-2.0
//
// ATOLL_CHECK: an invariant of Atoll's own code, on in every build. A failure is our bug: it is
// printed and the process aborts. Never use it on input: bad models, devices and arguments give a
// Status (status.h). ATOLL_DCHECK is for inner loops and vanishes with NDEBUG.
//
// The namespace of all C++ code is `atollrt`, not `atoll`: ISO C has a function atoll() in
// <stdlib.h>, and C++ allows no namespace of that name beside it.
#pragma once

namespace atollrt {
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);
}  // namespace atollrt

#define ATOLL_CHECK(condition) \
  ((condition) ? (void)0 : ::atollrt::CheckFailed(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define ATOLL_DCHECK(condition) ((void)sizeof(condition))
#else
#define ATOLL_DCHECK(condition) ATOLL_CHECK(condition)
#endif
