// SPDX-License-Identifier: Apache-2.0
//
// StopSignal: whether somebody waits for the device to drop what it is doing. Long instructions ask
// now and then, and end early; then memory is undefined, and a reset follows.
#pragma once

#include <atomic>

namespace atollrt {

class StopSignal {
 public:
  StopSignal() = default;  // nobody ever does
  // `waiting`, how many wait, is borrowed.
  explicit StopSignal(const std::atomic<int>* waiting) : waiting_(waiting) {}

  bool operator()() const {
    return waiting_ != nullptr && waiting_->load(std::memory_order_relaxed) != 0;
  }

 private:
  const std::atomic<int>* waiting_ = nullptr;
};

}  // namespace atollrt
