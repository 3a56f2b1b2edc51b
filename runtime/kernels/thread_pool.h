// SPDX-License-Identifier: Apache-2.0
//
// A fixed set of threads and one operation on it: ParallelFor. The calling thread is worker 0 and
// always takes part, so a pool of 1 has no threads of its own. A pool belongs to one caller at a
// time: calls of ParallelFor from several threads are not allowed, nor are nested ones.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace atollrt {

class ThreadPool {
 public:
  // `threads` >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, worker) once for each task in [0, tasks), on any worker in [0, threads()),
  // and returns when all calls have returned. Allocates nothing.
  template <typename Body>
  void ParallelFor(int tasks, const Body& body) {
    Run(
        tasks,
        [](const void* context, int task, int worker) {
          (*static_cast<const Body*>(context))(task, worker);
        },
        &body);
  }

 private:
  using TaskFunction = void (*)(const void* context, int task, int worker);
  void Run(int tasks, TaskFunction function, const void* context);
  void WorkerLoop(int worker);
  void TakeTasks(int worker);

  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  uint64_t generation_ = 0;  // bumped for each Run
  int busy_ = 0;             // workers that have not finished the current Run
  bool stop_ = false;
  // The current Run; written under mutex_ before the workers see the new generation.
  TaskFunction function_ = nullptr;
  const void* context_ = nullptr;
  int tasks_ = 0;
  int next_task_ = 0;  // taken by __atomic fetch-add
  std::vector<std::thread> workers_;
};

// body(task, worker) for each task: on `pool`, or in order on this thread when it is nullptr.
template <typename Body>
void ParallelFor(ThreadPool* pool, int tasks, const Body& body) {
  if (pool != nullptr && pool->threads() > 1 && tasks > 1) {
    pool->ParallelFor(tasks, body);
  } else {
    for (int task = 0; task < tasks; ++task) body(task, 0);
  }
}

}  // namespace atollrt
