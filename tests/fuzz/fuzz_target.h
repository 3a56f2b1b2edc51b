// SPDX-License-Identifier: Apache-2.0
//
// What a fuzz target is called by: libFuzzer, where it is built with that, or the program that
// replays the corpora of all targets.
//
//   ATOLL_FUZZ_TARGET(name) {
//     ...  // with `const uint8_t* data` and `size_t size`
//     return 0;
//   }
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(ATOLL_FUZZ)

#define ATOLL_FUZZ_TARGET(name) \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)

#else

namespace atollrt {

// Chains itself to the targets of a program, before `main`.
struct FuzzTarget {
  using Run = int (*)(const uint8_t* data, size_t size);
  FuzzTarget(const char* its_name, Run its_run) : name(its_name), run(its_run), next(first) {
    first = this;
  }
  const char* name;
  Run run;
  FuzzTarget* next;
  static inline FuzzTarget* first = nullptr;
};

}  // namespace atollrt

#define ATOLL_FUZZ_TARGET(name)                                            \
  static int Run_##name(const uint8_t* data, size_t size);                 \
  static const ::atollrt::FuzzTarget kTarget_##name = {#name, Run_##name}; \
  static int Run_##name(const uint8_t* data, size_t size)

#endif
