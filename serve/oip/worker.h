// SPDX-License-Identifier: Apache-2.0
//
// Worker: a thread that does what would keep the server's thread, or an interpreter, from others.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace atollserve {

class Worker {
 public:
  // At most `limit` tasks wait.
  explicit Worker(size_t limit) : limit_(limit), thread_([this] { Run(); }) {}
  // Finishes those that it has.
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  // False if too many wait; `task` is not called then.
  bool Add(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      if (tasks_.size() >= limit_) return false;
      tasks_.push_back(std::move(task));
    }
    wake_.notify_one();
    return true;
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  const size_t limit_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace atollserve
