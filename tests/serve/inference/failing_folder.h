// SPDX-License-Identifier: Apache-2.0
//
// FailingFolders: while it is there, folders open as ever, but reading one ends with an error after
// so many entries, as on a disk that fails. For one file of a program.
#pragma once

#include <dirent.h>
#include <dlfcn.h>

#include <atomic>
#include <cerrno>

namespace atollserve {

inline std::atomic<int> entries_until_failure = -1;  // -1: there is none

class FailingFolders {
 public:
  explicit FailingFolders(int entries) { entries_until_failure = entries; }
  ~FailingFolders() { entries_until_failure = -1; }
  FailingFolders(const FailingFolders&) = delete;
  FailingFolders& operator=(const FailingFolders&) = delete;
};

}  // namespace atollserve

// In the place of the C library's, also for the standard library.
extern "C" __attribute__((visibility("default"))) dirent* readdir(DIR* folder) {
  static const auto original = reinterpret_cast<dirent* (*)(DIR*)>(dlsym(RTLD_NEXT, "readdir"));
  const int left = atollserve::entries_until_failure;
  if (left == 0) {
    errno = EIO;
    return nullptr;
  }
  if (left > 0) atollserve::entries_until_failure = left - 1;
  return original(folder);
}
