// SPDX-License-Identifier: Apache-2.0
//
// Waiting for what another thread or process does.
#pragma once

#include <chrono>
#include <thread>

namespace atollrt {

// Looks until it is so, and no more often than lets others go on. False after a minute.
template <typename Predicate>
bool Eventually(const Predicate& is_so) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace atollrt
