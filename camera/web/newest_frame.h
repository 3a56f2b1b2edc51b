// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

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
  void Put(std::span<const uint8_t> jpeg);

  // The newest frame, if it is newer than `number`; else null. Its bytes stay as they are until it
  // is given back.
  const Frame* TakeIfNewerThan(uint64_t number);
  void GiveBack(const Frame* frame);

  // The number of the newest frame; 0 before the first.
  uint64_t number() const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Frame>> frames_;
  std::vector<Frame*> free_;  // neither held nor the newest; the one used last at the end
  Frame* newest_ = nullptr;
};

}  // namespace atollrt
