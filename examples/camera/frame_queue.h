// SPDX-License-Identifier: Apache-2.0
//
// The bounded queue between capture and processing. Frames are swapped in and out, so their buffers
// circulate instead of being allocated. One producer and one consumer.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "atoll/camera/frame_source.h"
#include "atoll/camera/pipeline.h"

namespace atollrt {

class FrameQueue {
 public:
  FrameQueue(int capacity, QueuePolicy policy)
      : slots_(static_cast<size_t>(capacity)), policy_(policy) {}

  // Puts *frame in and leaves there a used one. Returns how many frames that dropped: with kNewest
  // 1 if the queue was full, then of the oldest. With kEvery it waits for room instead.
  int Push(Frame* frame) {
    std::unique_lock lock(mutex_);
    int dropped = 0;
    if (count_ == slots_.size()) {
      if (policy_ == QueuePolicy::kEvery) {
        has_room_.wait(lock, [&] { return count_ < slots_.size(); });
      } else {
        first_ = (first_ + 1) % slots_.size();
        --count_;
        dropped = 1;
      }
    }
    std::swap(slots_[(first_ + count_) % slots_.size()], *frame);
    ++count_;
    has_frame_.notify_one();
    return dropped;
  }

  // Takes the oldest frame, waiting for one; false when the queue is closed and empty.
  bool Pop(Frame* frame) {
    std::unique_lock lock(mutex_);
    has_frame_.wait(lock, [&] { return count_ > 0 || closed_; });
    if (count_ == 0) return false;
    std::swap(slots_[first_], *frame);
    first_ = (first_ + 1) % slots_.size();
    --count_;
    has_room_.notify_one();
    return true;
  }

  // No Push follows.
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    has_frame_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable has_frame_;
  std::condition_variable has_room_;
  std::vector<Frame> slots_;  // a ring of count_ frames from first_
  size_t first_ = 0;
  size_t count_ = 0;
  bool closed_ = false;
  const QueuePolicy policy_;
};

}  // namespace atollrt
