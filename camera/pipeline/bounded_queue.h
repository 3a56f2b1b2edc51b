// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace atollrt {

// A queue of at most `capacity` entries between threads.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // Waits for room.
  void Push(T entry) {
    std::unique_lock lock(mutex_);
    has_room_.wait(lock, [&] { return entries_.size() < capacity_; });
    entries_.push_back(std::move(entry));
    has_entry_.notify_one();
  }

  // Never waits: a full queue gives up its oldest entry.
  std::optional<T> PushNewest(T entry) {
    const std::lock_guard lock(mutex_);
    std::optional<T> oldest;
    if (entries_.size() == capacity_) {
      oldest = std::move(entries_.front());
      entries_.pop_front();
    }
    entries_.push_back(std::move(entry));
    has_entry_.notify_one();
    return oldest;
  }

  // Takes the oldest entry, waiting for one; none when the queue is closed and empty.
  std::optional<T> Pop() {
    std::unique_lock lock(mutex_);
    has_entry_.wait(lock, [&] { return !entries_.empty() || closed_; });
    if (entries_.empty()) return std::nullopt;
    T entry = std::move(entries_.front());
    entries_.pop_front();
    has_room_.notify_one();
    return entry;
  }

  // No Push follows.
  void Close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    has_entry_.notify_all();
  }

 private:
  const size_t capacity_;
  std::mutex mutex_;
  std::condition_variable has_entry_;
  std::condition_variable has_room_;
  std::deque<T> entries_;
  bool closed_ = false;
};

}  // namespace atollrt
