// SPDX-License-Identifier: Apache-2.0
//
// A fixed set of threads and one operation on it: ParallelFor. The calling thread is worker 0 and
// always takes part, so a pool of 1 has no threads of its own. A pool belongs to one caller at a
// time: calls of ParallelFor from several threads are not allowed, nor are nested ones.
//
// Layers of small models last tens of microseconds, waking a thread about as long. So a worker that
// runs out of tasks watches for the next ones for a moment (kSpins) before it goes to sleep: within
// an inference all workers stay awake, between inferences they cost nothing. And the caller waits
// for tasks, not for threads: if it is done before a sleeper wakes, it goes on without it.
//
// While a recording is on, each worker notes when it was busy with which Run. Without one that
// costs a look at a flag for each Run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace atollrt {

class ThreadPool {
 public:
  // One worker's share of one ParallelFor, from the beginning of its first task to the end of its
  // last; on the clock of MonotonicNs.
  struct Span {
    int worker = 0;
    int64_t start_ns = 0;
    int64_t end_ns = 0;
  };

  // `threads` >= 1.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(task, worker) once for each task in [0, tasks), on any worker in [0, threads()),
  // and returns when all calls have returned. tasks < 2^24. Allocates nothing.
  template <typename Body>
  void ParallelFor(int tasks, const Body& body) {
    Run(
        tasks,
        [](const void* context, int task, int worker) {
          (*static_cast<const Body*>(context))(task, worker);
        },
        &body);
  }

  // Between calls of ParallelFor only. Recording allocates memory for what it notes.
  void StartRecording() { recording_ = true; }
  void StopRecording();
  // What has been noted since the last call, worker by worker.
  std::vector<Span> TakeSpans();

 private:
  using TaskFunction = void (*)(const void* context, int task, int worker);
  void Run(int tasks, TaskFunction function, const void* context);
  void WorkerLoop(int worker);
  void TakeTasks(int worker);
  void RunAndNote(int task, int worker, uint64_t run);
  void Sleep();
  bool HasWork() const;

  int spins_ = 0;  // looks before a sleep

  // The current Run: its number, its tasks, and how many of these are taken, in one word (see
  // thread_pool.cc). Taking a task is one compare-and-swap, which fails if the Run is over.
  std::atomic<uint64_t> work_{0};
  std::atomic<int> finished_{0};  // tasks of the current Run
  // Written before work_ shows a new Run, read only by those who hold a task of it.
  TaskFunction function_ = nullptr;
  const void* context_ = nullptr;
  bool recording_ = false;

  // Written by its worker before it reports a task as finished, read by the caller between Runs.
  struct alignas(64) Notes {
    std::vector<Span> spans;
    uint64_t run = 0;  // of the last one
  };
  std::vector<Notes> notes_;

  // For sleeping only.
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  std::atomic<int> sleepers_{0};
  std::atomic<bool> caller_sleeps_{false};
  std::atomic<bool> stop_{false};
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
