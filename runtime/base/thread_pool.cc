// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/thread_pool.h"

#include <algorithm>

#include "atoll/check.h"
#include "runtime/base/host_cpus.h"
#include "runtime/base/monotonic.h"

namespace atollrt {
namespace {

// About 50 us of looking, on current CPUs.
constexpr int kSpins = 2000;

// work_ = run number (16 bits) | tasks (24) | taken (24). The run number makes a compare-and-swap
// fail that began in an earlier Run; should it wrap around meanwhile, the swap takes a task of the
// current Run, which is as good.
constexpr int kTaskBits = 24;
constexpr uint64_t kTaskMask = (uint64_t{1} << kTaskBits) - 1;

int Taken(uint64_t work) { return static_cast<int>(work & kTaskMask); }
int Tasks(uint64_t work) { return static_cast<int>((work >> kTaskBits) & kTaskMask); }

uint64_t NextRun(uint64_t work, int tasks) {
  const uint64_t number = (work >> (2 * kTaskBits)) + 1;
  return (number << (2 * kTaskBits)) | (static_cast<uint64_t>(tasks) << kTaskBits);
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // "yield" returns at once on most cores
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  ATOLL_CHECK(threads >= 1);
  // For a pool of one nobody needs to count.
  if (threads == 1) {
    notes_.resize(1);
    return;
  }
  // With more threads than CPUs, one that spins only keeps another from its work.
  if (threads <= GetHostCpus().logical) spins_ = kSpins;
  notes_.resize(static_cast<size_t>(threads));
  workers_.reserve(static_cast<size_t>(threads - 1));
  for (int worker = 1; worker < threads; ++worker) {
    workers_.emplace_back([this, worker] { WorkerLoop(worker); });
  }
  // On a busy machine they start late, and a thread that starts takes memory.
  for (int started = 0; started < threads - 1; started = started_.load()) started_.wait(started);
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

bool ThreadPool::HasWork() const {
  const uint64_t work = work_.load();
  return Taken(work) < Tasks(work);
}

void ThreadPool::Run(int tasks, int least, TaskFunction function, const void* context) {
  if (tasks <= 0) return;
  ATOLL_CHECK(static_cast<uint64_t>(tasks) <= kTaskMask);
  function_ = function;
  context_ = context;
  finished_.store(0, std::memory_order_relaxed);
  least_.store(least, std::memory_order_relaxed);
  work_.exchange(NextRun(work_.load(std::memory_order_relaxed), tasks));
  // Sequential consistency orders this write and load against a sleeper's increment and look at
  // work_: either it is seen here, or it sees the work. The lock waits for it to be asleep. (A
  // plain store would do, were it not for QEMU, which lets loads overtake the stores of an AArch64
  // guest.)
  if (sleepers_.load() > 0) {
    { const std::lock_guard lock(mutex_); }
    start_.notify_all();
  }
  TakeTasks(0);

  const auto finished = [&] { return finished_.load() == tasks; };
  for (int spin = 0; spin < spins_ && !finished(); ++spin) Pause();
  if (finished()) return;
  std::unique_lock lock(mutex_);
  caller_sleeps_.exchange(true);  // as with sleepers_
  done_.wait(lock, finished);
  caller_sleeps_ = false;
}

void ThreadPool::TakeTasks(int worker) {
  uint64_t work = work_.load();
  while (Taken(work) < Tasks(work)) {
    const int begin = Taken(work);
    const int left = Tasks(work) - begin;
    const int least = least_.load(std::memory_order_relaxed);
    const int part = least == 0 ? 1 : std::min(left, std::max(least, left / (2 * threads())));
    if (!work_.compare_exchange_weak(work, work + static_cast<uint64_t>(part))) continue;
    if (recording_) {
      RunAndNote(begin, begin + part, worker, work >> (2 * kTaskBits));
    } else {
      function_(context_, begin, begin + part, worker);
    }
    const int tasks = Tasks(work);
    if (finished_.fetch_add(part) + part == tasks && caller_sleeps_.load()) {
      { const std::lock_guard lock(mutex_); }
      done_.notify_one();
    }
    work = work_.load();
  }
}

void ThreadPool::RunAndNote(int begin, int end, int worker, uint64_t run) {
  Notes& notes = notes_[static_cast<size_t>(worker)];
  const int64_t start_ns = MonotonicNs();
  function_(context_, begin, end, worker);
  const int64_t end_ns = MonotonicNs();
  if (notes.spans.empty() || notes.run != run) {
    notes.spans.push_back({.worker = worker, .start_ns = start_ns, .end_ns = end_ns});
    notes.run = run;
  } else {
    notes.spans.back().end_ns = end_ns;
  }
}

void ThreadPool::StopRecording() {
  recording_ = false;
  TakeSpans();
}

std::vector<ThreadPool::Span> ThreadPool::TakeSpans() {
  std::vector<Span> spans;
  for (Notes& notes : notes_) {
    spans.insert(spans.end(), notes.spans.begin(), notes.spans.end());
    notes.spans.clear();
  }
  return spans;
}

void ThreadPool::WorkerLoop(int worker) {
  ++started_;
  started_.notify_one();
  while (!stop_) {
    TakeTasks(worker);
    for (int spin = 0; spin < spins_ && !HasWork() && !stop_; ++spin) Pause();
    if (!HasWork()) Sleep();
  }
}

void ThreadPool::Sleep() {
  std::unique_lock lock(mutex_);
  ++sleepers_;
  start_.wait(lock, [this] { return stop_ || HasWork(); });
  --sleepers_;
}

}  // namespace atollrt
