// SPDX-License-Identifier: Apache-2.0
//
// ATOLL_CHECK: an invariant of Atoll's own code, on in every build. A failure is our bug: it is
// printed and the process aborts. Never use it on input: bad models, devices and arguments give a
// Status (status.h). ATOLL_DCHECK is for inner loops and vanishes with NDEBUG.
#pragma once

namespace atoll {
[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);
}  // namespace atoll

#define ATOLL_CHECK(condition) \
  ((condition) ? (void)0 : ::atoll::CheckFailed(#condition, __FILE__, __LINE__))

#ifdef NDEBUG
#define ATOLL_DCHECK(condition) ((void)sizeof(condition))
#else
#define ATOLL_DCHECK(condition) ATOLL_CHECK(condition)
#endif
