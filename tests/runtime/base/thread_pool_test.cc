// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/thread_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "runtime/base/monotonic.h"

namespace atollrt {
namespace {

TEST(ThreadPool, CallsEachTaskOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const int tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(tasks));
      pool.ParallelFor(tasks, [&](int task, int worker) {
        ++calls[static_cast<size_t>(task)];
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, threads);
      });
      for (const std::atomic<int>& count : calls) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, NeverRunsTwoTasksOnOneWorkerAtATime) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> running(3);
  pool.ParallelFor(3000, [&](int, int worker) {
    EXPECT_EQ(running[static_cast<size_t>(worker)]++, 0);
    --running[static_cast<size_t>(worker)];
  });
}

// Many short runs in a row: workers are looking, falling asleep or waking in all combinations.
TEST(ThreadPool, SurvivesRunsInQuickSuccession) {
  for (const int threads : {2, 4}) {
    ThreadPool pool(threads);
    int64_t sum = 0;
    for (int run = 0; run < 20000; ++run) {
      int64_t part[4] = {};
      const int tasks = 1 + run % 4;
      pool.ParallelFor(tasks, [&](int task, int) { part[task] = run + task; });
      for (int task = 0; task < tasks; ++task) sum += part[task] - run - task + 1;
    }
    EXPECT_EQ(sum, 20000 / 4 * (1 + 2 + 3 + 4));
  }
}

TEST(ThreadPool, MakesResultsOfWorkersVisibleToTheCaller) {
  ThreadPool pool(2);
  for (int run = 0; run < 200; ++run) {
    std::vector<int> results(64, -1);  // plain memory
    pool.ParallelFor(64, [&](int task, int) { results[static_cast<size_t>(task)] = task; });
    for (int task = 0; task < 64; ++task) ASSERT_EQ(results[static_cast<size_t>(task)], task);
    if (run % 50 == 0) std::this_thread::yield();
  }
}

TEST(ThreadPool, PartsCoverARangeOnce) {
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (const int count : {0, 1, 2, 3, 17, 1000}) {
      for (const int least : {1, 2, 5, 2000}) {
        std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
        pool.ParallelRanges(count, least, [&](int begin, int end, int worker) {
          EXPECT_LT(begin, end);
          EXPECT_TRUE(end == count || end - begin >= least) << begin << " to " << end;
          EXPECT_LT(worker, threads);
          for (int i = begin; i < end; ++i) ++calls[static_cast<size_t>(i)];
        });
        for (const std::atomic<int>& number : calls) EXPECT_EQ(number, 1);
      }
    }
  }
}

// The worker that is held up keeps its first part, at most half of its equal share.
TEST(ThreadPool, AWorkerThatIsHeldUpHasFewElements) {
  ThreadPool pool(2);
  std::atomic<bool> others_done{false};
  std::atomic<int> taken{0};
  constexpr int kCount = 64;
  pool.ParallelRanges(kCount, 1, [&](int begin, int end, int worker) {
    if (worker == 1) {
      EXPECT_LE(end - begin, kCount / 4);
      while (!others_done && taken + (end - begin) < kCount) std::this_thread::yield();
    }
    if ((taken += end - begin) == kCount) others_done = true;
  });
  EXPECT_EQ(taken, kCount);
}

TEST(ParallelRanges, IsOnePartWithoutAPool) {
  int calls = 0;
  ParallelRanges(nullptr, 5, 1, [&](int64_t begin, int64_t end, int worker) {
    EXPECT_EQ(begin, 0);
    EXPECT_EQ(end, 5);
    EXPECT_EQ(worker, 0);
    ++calls;
  });
  ParallelRanges(nullptr, 0, 1, [&](int64_t, int64_t) { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(ParallelRanges, CoversMoreThanAPoolCanCount) {
  ThreadPool pool(2);
  constexpr int64_t kCount = (int64_t{1} << 40) + 3;
  std::atomic<int64_t> covered{0};
  ParallelRanges(&pool, kCount, 1, [&](int64_t begin, int64_t end) { covered += end - begin; });
  EXPECT_EQ(covered, kCount);
}

TEST(ParallelFor, RunsInOrderWithoutAPool) {
  std::vector<int> order;
  ParallelFor(nullptr, 4, [&](int task, int worker) {
    EXPECT_EQ(worker, 0);
    order.push_back(task);
  });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3}));
}

TEST(ThreadPool, RecordsOneSpanForEachWorkerAndRun) {
  ThreadPool pool(2);
  const auto run = [&] { pool.ParallelFor(8, [](int, int) { std::this_thread::yield(); }); };
  run();
  EXPECT_TRUE(pool.TakeSpans().empty()) << "nothing is noted unless asked for";
  pool.StartRecording();
  const int64_t start_ns = MonotonicNs();
  run();
  const int64_t between_ns = MonotonicNs();
  run();
  const int64_t end_ns = MonotonicNs();
  const std::vector<ThreadPool::Span> spans = pool.TakeSpans();
  std::array<int, 2> first = {};
  std::array<int, 2> second = {};
  for (const ThreadPool::Span& span : spans) {
    EXPECT_LE(start_ns, span.start_ns);
    EXPECT_LE(span.start_ns, span.end_ns);
    EXPECT_LE(span.end_ns, end_ns);
    EXPECT_TRUE(span.end_ns <= between_ns || span.start_ns >= between_ns);
    ++(span.end_ns <= between_ns ? first : second)[static_cast<size_t>(span.worker)];
  }
  for (const std::array<int, 2>& counts : {first, second}) {
    EXPECT_LE(counts[0], 1);
    EXPECT_LE(counts[1], 1);
    EXPECT_GE(counts[0] + counts[1], 1) << "whoever took the tasks";
  }
  EXPECT_TRUE(pool.TakeSpans().empty());
  run();
  pool.StopRecording();
  run();
  EXPECT_TRUE(pool.TakeSpans().empty());
}

}  // namespace
}  // namespace atollrt
