// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/thread_pool.h"

#include "runtime/base/check.h"

namespace atollrt {

ThreadPool::ThreadPool(int threads) {
  ATOLL_CHECK(threads >= 1);
  workers_.reserve(static_cast<size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { WorkerLoop(worker); });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int tasks, TaskFunction function, const void* context) {
  if (tasks <= 0) return;
  {
    const std::lock_guard lock(mutex_);
    ATOLL_CHECK(busy_ == 0);
    function_ = function;
    context_ = context;
    tasks_ = tasks;
    __atomic_store_n(&next_task_, 0, __ATOMIC_RELAXED);
    busy_ = static_cast<int>(workers_.size());
    ++generation_;
  }
  start_.notify_all();
  TakeTasks(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return busy_ == 0; });
}

void ThreadPool::TakeTasks(int worker) {
  for (;;) {
    const int task = __atomic_fetch_add(&next_task_, 1, __ATOMIC_RELAXED);
    if (task >= tasks_) return;
    function_(context_, task, worker);
  }
}

void ThreadPool::WorkerLoop(int worker) {
  uint64_t seen = 0;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (stop_) return;
      seen = generation_;
    }
    TakeTasks(worker);
    {
      const std::lock_guard lock(mutex_);
      if (--busy_ > 0) continue;
    }
    done_.notify_one();
  }
}

}  // namespace atollrt
