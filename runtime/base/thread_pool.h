// SPDX-License-Identifier: Apache-2.0
//
// A fixed set of threads and what runs on them: ParallelFor, tasks one by one, and ParallelRanges,
// a range in parts. The calling thread is worker 0 and always takes part, so a pool of 1 has no
// threads of its own. A pool belongs to one caller at a time: calls from several threads are not
// allowed, nor are nested ones.
//
// The parts of a range shrink as it comes to its end: first every worker takes half of its equal
// share, then less and less. So a core that is slower than the others, or that something else is
// using, takes fewer parts, and nobody waits long for its last one.
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

  // `threads` >= 1. Returns when all of them have started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(notes_.size()); }

  // Calls body(task, worker) once for each task in [0, tasks), on any worker in [0, threads()),
  // and returns when all calls have returned. tasks < 2^24. Allocates nothing.
  template <typename Body>
  void ParallelFor(int tasks, const Body& body) {
    Run(
        tasks, /*least=*/0,
        [](const void* context, int begin, int end, int worker) {
          for (int task = begin; task < end; ++task) {
            (*static_cast<const Body*>(context))(task, worker);
          }
        },
        &body);
  }

  // Calls body(begin, end, worker) for parts of [0, count) that cover it, each of at least `least`
  // >= 1 elements apart from the last one, and returns when all calls have returned. count < 2^24.
  // Allocates nothing.
  template <typename Body>
  void ParallelRanges(int count, int least, const Body& body) {
    Run(
        count, least,
        [](const void* context, int begin, int end, int worker) {
          (*static_cast<const Body*>(context))(begin, end, worker);
        },
        &body);
  }

  // Between calls of ParallelFor only. Recording allocates memory for what it notes.
  void StartRecording() { recording_ = true; }
  void StopRecording();
  // What has been noted since the last call, worker by worker.
  std::vector<Span> TakeSpans();

 private:
  using TaskFunction = void (*)(const void* context, int begin, int end, int worker);
  // `least` 0: one at a time.
  void Run(int tasks, int least, TaskFunction function, const void* context);
  void WorkerLoop(int worker);
  void TakeTasks(int worker);
  void RunAndNote(int begin, int end, int worker, uint64_t run);
  void Sleep();
  bool HasWork() const;

  int spins_ = 0;  // looks before a sleep

  // The current Run: its number, its tasks, and how many of these are taken, in one word (see
  // thread_pool.cc). Taking a task is one compare-and-swap, which fails if the Run is over.
  alignas(64) std::atomic<uint64_t> work_{0};
  std::atomic<int> least_{0};  // of the current Run; a stale one does no harm
  // Written before work_ shows a new Run, read only by those who hold a task of it.
  TaskFunction function_ = nullptr;
  const void* context_ = nullptr;
  bool recording_ = false;

  alignas(64) std::atomic<int> finished_{0};  // tasks of the current Run

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
  std::atomic<int> started_{0};  // workers
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

// The least part of a range whose elements take a fraction of a nanosecond each: a few
// microseconds, ten times what it costs to hand it to a thread that is awake.
inline constexpr int64_t kParallelGrain = 1 << 13;

// body(begin, end, worker), or body(begin, end), for parts of [0, count): on `pool`, or on this
// thread, in one part, when it is nullptr or there are no two parts of `least` elements, which
// should be so many that handing them to another thread pays. Each thread gets an equal share,
// unless there is so much to do that parts which shrink cost little compared with what they save
// where threads are not equally fast.
template <typename Body>
void ParallelRanges(ThreadPool* pool, int64_t count, int64_t least, const Body& body) {
  constexpr int64_t kManyParts = 32;       // of `least` elements for each thread
  constexpr int64_t kShrinkTo = 8;         // times `least`
  constexpr int64_t kMostUnits = 1 << 20;  // what a pool can count, and more than it needs
  const auto run = [&body](int64_t begin, int64_t end, int worker) {
    if constexpr (requires { body(begin, end, worker); }) {
      body(begin, end, worker);
    } else {
      body(begin, end);
    }
  };
  if (count <= 0) return;
  const int64_t threads = pool == nullptr ? 1 : pool->threads();
  const int64_t parts = count / least;
  if (threads == 1 || parts < 2) return run(0, count, 0);
  const int64_t unit = (count - 1) / kMostUnits + 1;
  const int units = static_cast<int>((count - 1) / unit + 1);
  const auto run_units = [&](int64_t begin, int64_t end, int worker) {
    run(begin * unit, end * unit < count ? end * unit : count, worker);
  };
  if (parts < kManyParts * threads) {
    const int64_t shares = parts < threads ? parts : threads;
    pool->ParallelFor(static_cast<int>(shares), [&](int share, int worker) {
      run_units(units * share / shares, units * (share + 1) / shares, worker);
    });
  } else {
    pool->ParallelRanges(units, static_cast<int>((kShrinkTo * least - 1) / unit + 1), run_units);
  }
}

}  // namespace atollrt
