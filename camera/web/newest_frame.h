// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "atoll/check.h"

namespace atollrt {

// Hands the newest of a sequence of frames from one thread that makes them to readers of another,
// each at its own pace. Buffers circulate: there are never more than frames held by readers plus
// two, and none is allocated again once it has grown to size.
class NewestFrame {
 public:
  struct Frame {
    std::vector<uint8_t> jpeg;
    uint64_t number = 0;  // 1 for the first frame
    int holders = 0;
  };

  // Makes a copy of `jpeg` the newest frame.
  void Put(std::span<const uint8_t> jpeg) {
    Frame* frame = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (free_.empty()) {
        free_.push_back(frames_.emplace_back(std::make_unique<Frame>()).get());
      }
      frame = free_.back();
      free_.pop_back();
    }
    frame->jpeg.assign(jpeg.begin(), jpeg.end());  // nobody else has it
    const std::lock_guard lock(mutex_);
    frame->number = newest_ == nullptr ? 1 : newest_->number + 1;
    if (newest_ != nullptr && newest_->holders == 0) free_.push_back(newest_);
    newest_ = frame;
  }

  // The newest frame, if it is newer than `number`; else null. Its bytes stay as they are until it
  // is given back.
  const Frame* TakeIfNewerThan(uint64_t number) {
    const std::lock_guard lock(mutex_);
    if (newest_ == nullptr || newest_->number <= number) return nullptr;
    ++newest_->holders;
    return newest_;
  }
  void GiveBack(const Frame* frame) {
    const std::lock_guard lock(mutex_);
    for (const auto& ours : frames_) {
      if (ours.get() != frame) continue;
      if (--ours->holders == 0 && ours.get() != newest_) free_.push_back(ours.get());
      return;
    }
    ATOLL_CHECK(false);  // not one of ours
  }

  // The number of the newest frame; 0 before the first.
  uint64_t number() const {
    const std::lock_guard lock(mutex_);
    return newest_ == nullptr ? 0 : newest_->number;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Frame>> frames_;
  std::vector<Frame*> free_;  // neither held nor the newest; the one used last at the end
  Frame* newest_ = nullptr;
};

}  // namespace atollrt
