// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace atollrt {

// Things to do, for threads that wait for them.
template <typename T>
class WorkQueue {
 public:
  void Push(T work) {
    {
      const std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.notify_one();
  }
  // False: `limit` wait already, and nothing was done.
  bool PushUnlessFull(T work, size_t limit) {
    {
      const std::lock_guard lock(mutex_);
      if (work_.size() >= limit) return false;
      work_.push_back(std::move(work));
    }
    changed_.notify_one();
    return true;
  }
  std::optional<T> Pop() {  // nullopt: there will be nothing
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !work_.empty(); });
    if (closed_) return std::nullopt;
    T work = std::move(work_.front());
    work_.pop_front();
    return work;
  }
  void Close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> work_;
  bool closed_ = false;
};

}  // namespace atollrt
