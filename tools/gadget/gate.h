// SPDX-License-Identifier: Apache-2.0
//
// Gate: stops a fixed number of threads that work in steps. Between steps each passes the gate;
// while it is shut, none of them is inside of a step. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace atollrt {

class Gate {
 public:
  // Shut, for so many threads.
  explicit Gate(int threads) : threads_(threads) {}

  // By each of the threads, between steps: waits while the gate is shut or held. False: end.
  bool Pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock,
                  [&] { return state_ == State::kEnded || (state_ == State::kOpen && !held_); });
    --waiting_;
    return state_ != State::kEnded;
  }
  // By the threads, inside of a step: whether to cut it short.
  bool open() const {
    const std::lock_guard lock(mutex_);
    return state_ == State::kOpen;
  }

  void Open() {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kShut) state_ = State::kOpen;
    changed_.notify_all();
  }
  // Lets nobody begin a step, without waiting for the steps in progress.
  void BeginToShut() {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kOpen) state_ = State::kShut;
  }
  // Returns when all threads wait. Until then it calls `interrupt` again and again: a thread may
  // have been about to block when it was called first.
  template <typename Interrupt>
  void Shut(const Interrupt& interrupt) {
    std::unique_lock lock(mutex_);
    if (state_ == State::kOpen) state_ = State::kShut;
    while (waiting_ < threads_) {
      interrupt();
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
  }
  // Makes Pass false for all who wait, or come later.
  void End() {
    const std::lock_guard lock(mutex_);
    state_ = State::kEnded;
    changed_.notify_all();
  }

  // While somebody holds the gate, no new steps begin.
  void Hold(bool hold) {
    const std::lock_guard lock(mutex_);
    held_ = hold;
    changed_.notify_all();
  }

 private:
  enum class State { kShut, kOpen, kEnded };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  const int threads_;
  int waiting_ = 0;
  State state_ = State::kShut;
  bool held_ = false;
};

}  // namespace atollrt
