// SPDX-License-Identifier: Apache-2.0
//
// What it costs to hand work to other threads and to wait for it (fork and join), in microseconds:
// while the workers are awake, and after a pause as between the frames of a camera, in which they
// fall asleep (the caller does not wait for a sleeper, so this is at most all of the tasks). And
// how much of a range a pool loses to a worker that is four times as slow.
//
//   thread_pool_bench [THREADS]
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "runtime/base/host_cpus.h"
#include "runtime/base/monotonic.h"
#include "runtime/base/thread_pool.h"

namespace atollrt {
namespace {

void Print(const char* name, std::vector<int64_t> ns) {
  std::sort(ns.begin(), ns.end());
  std::printf("%-34s min %8.3f  median %8.3f  p99 %8.3f us\n", name,
              static_cast<double>(ns.front()) / 1e3, static_cast<double>(ns[ns.size() / 2]) / 1e3,
              static_cast<double>(ns[ns.size() * 99 / 100]) / 1e3);
}

void Spin(int64_t ns) {
  for (const int64_t end = MonotonicNs() + ns; MonotonicNs() < end;) {
  }
}

// What fork and join add to a task of 2 us for each worker, `pause` apart.
std::vector<int64_t> ForkJoin(ThreadPool* pool, int runs, std::chrono::milliseconds pause) {
  constexpr int64_t kTaskNs = 2000;
  std::vector<int64_t> ns;
  for (int i = 0; i < runs; ++i) {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    const int64_t start = MonotonicNs();
    pool->ParallelFor(pool->threads(), [](int, int) { Spin(kTaskNs); });
    ns.push_back(MonotonicNs() - start - kTaskNs);
  }
  return ns;
}

// 256 elements of 1 us each, 4 us on the last worker, as equal shares or as ranges.
template <bool kRanges>
std::vector<int64_t> Uneven(ThreadPool* pool) {
  constexpr int kElements = 256;
  const auto work = [&](int begin, int end, int worker) {
    const bool is_slow = worker == pool->threads() - 1 && worker > 0;
    Spin(int64_t{end - begin} * (is_slow ? 4000 : 1000));
  };
  std::vector<int64_t> ns;
  for (int i = 0; i < 50; ++i) {
    const int64_t start = MonotonicNs();
    if (kRanges) {
      pool->ParallelRanges(kElements, 1, work);
    } else {
      const int shares = pool->threads();
      pool->ParallelFor(shares, [&](int task, int worker) {
        work(kElements * task / shares, kElements * (task + 1) / shares, worker);
      });
    }
    ns.push_back(MonotonicNs() - start);
  }
  return ns;
}

// CPU time of the process in a second of 30 frames that are one fork and join each.
double BusyPercent(ThreadPool* pool) {
  const auto cpu_ns = [] {
    timespec time = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
  };
  const double cpu = cpu_ns();
  const int64_t start = MonotonicNs();
  ForkJoin(pool, 30, std::chrono::milliseconds(33));
  return 100 * (cpu_ns() - cpu) / static_cast<double>(MonotonicNs() - start);
}

void Main(int threads) {
  ThreadPool pool(threads);
  std::printf("%d threads; this process may use %d CPUs, %d cores\n", threads,
              GetHostCpus().logical, GetHostCpus().cores);
  Print("fork and join, awake", ForkJoin(&pool, 20'000, {}));
  Print("fork and join, asleep", ForkJoin(&pool, 200, std::chrono::milliseconds(5)));
  Print("one slow worker, equal shares", Uneven<false>(&pool));
  Print("one slow worker, ranges", Uneven<true>(&pool));
  std::printf("%-34s %.3f %% of a CPU\n", "30 frames per second", BusyPercent(&pool));
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  atollrt::Main(argc > 1 ? std::max(1, std::atoi(argv[1])) : atollrt::GetHostCpus().cores);
}
