// SPDX-License-Identifier: Apache-2.0
//
// CoralParameterCache: whose parameters are on the chip. They stay there between runs: executables
// of one token leave each other's in place, a run of any other evicts them all. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "driver/device/chip.h"

namespace atollrt {

class CoralParameterCache {
 public:
  // A run of `prepared`, a CoralExecutable's, comes next: what it evicts is gone afterwards.
  // Whether its own parameters are on the chip.
  bool Use(const PreparedExecutable& prepared);
  // They are there now.
  void Add(const PreparedExecutable& prepared);
  void Forget(const PreparedExecutable& prepared);
  void Clear();

  bool IsResident(const PreparedExecutable& prepared) const;
  uint64_t used_bytes() const;

 private:
  mutable std::mutex mutex_;
  uint64_t token_ = 0;  // of what is there
  std::vector<const PreparedExecutable*> cached_;
};

}  // namespace atollrt
