// SPDX-License-Identifier: Apache-2.0
#include "camera/web/newest_frame.h"

#include "atoll/check.h"

namespace atollrt {

void NewestFrame::Put(std::span<const uint8_t> jpeg) {
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

const NewestFrame::Frame* NewestFrame::TakeIfNewerThan(uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (newest_ == nullptr || newest_->number <= number) return nullptr;
  ++newest_->holders;
  return newest_;
}

void NewestFrame::GiveBack(const Frame* frame) {
  const std::lock_guard lock(mutex_);
  for (const auto& ours : frames_) {
    if (ours.get() != frame) continue;
    if (--ours->holders == 0 && ours.get() != newest_) free_.push_back(ours.get());
    return;
  }
  ATOLL_CHECK(false);  // not one of ours
}

uint64_t NewestFrame::number() const {
  const std::lock_guard lock(mutex_);
  return newest_ == nullptr ? 0 : newest_->number;
}

}  // namespace atollrt
