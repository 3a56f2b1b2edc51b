// SPDX-License-Identifier: Apache-2.0
//
// Load on a target, and what it took: a plain measurement, in turns with others; a scenario
// (load_rules.h); pictures of which the truth is known. All ends early, with what was measured
// until then, when `stop` is set.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tools/atoll/load_rules.h"
#include "tools/atoll/load_samples.h"
#include "tools/atoll/load_target.h"
#include "tools/atoll/machine_state.h"
#include "tools/atoll/measure.h"

namespace atollcmd {

// Threads that do the same at the same time, each with a number: 0 is the caller's.
class Team {
 public:
  explicit Team(size_t size);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  size_t size() const { return threads_.size() + 1; }
  // Returns when all have done `work`; throws what the first of them that failed threw.
  void Run(const std::function<void(size_t)>& work);
  // Whether one of them has thrown in this Run: the others should end.
  bool failed() const { return failed_; }

 private:
  void Serve(size_t number);
  void Do(const std::function<void(size_t)>& work, size_t number);

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable begin_, end_;
  const std::function<void(size_t)>* work_ = nullptr;
  uint64_t round_ = 0;
  size_t busy_ = 0;
  bool quit_ = false;
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;
};

// One thing that was waited for.
struct Timed {
  double start_s = 0;  // since the measurement began
  double ms = 0;
};

// A target, what it gets, and what was measured of it. Times are of the host.
struct Entry {
  std::unique_ptr<Target> target;
  std::vector<Inputs> samples;
  std::unique_ptr<Team> team;  // one thread for each stream

  double first_ms = 0;
  int64_t warmup = 0;  // inferences
  double warmup_s = 0;
  // In the order in which they began. Inferences; with a scenario what its rules look at.
  std::vector<Timed> times;
  int64_t inferences = 0;  // that were answered, and measured
  int64_t failed = 0;
  std::string failure;  // of the first that failed
  double seconds = 0;   // of measuring, less turns of others
  MachineState before, after;
  std::optional<LoadSettings> settings;
  std::optional<LoadVerdict> verdict;
  std::optional<Accuracy> accuracy;
};
using Entries = std::vector<std::unique_ptr<Entry>>;

// How many samples are taken of an entry before the next one has its turn, and drawn as one block
// when reports are compared.
inline constexpr int kSamplesPerTurn = 10;

// What each stream does before times are measured: both, at least.
struct WarmUp {
  int64_t inferences = 3;
  double seconds = 0;
};

void WarmUpEntry(const WarmUp& warm_up, const std::atomic<bool>& stop, Progress* progress,
                 Entry* entry);

// Until each entry has both, at least.
struct PlainLoad {
  int64_t runs = 50;  // of each stream
  double seconds = 0;
};

// In turns, so that what happens on the machine meanwhile happens to all of them.
void MeasureInTurns(const PlainLoad& load, const std::atomic<bool>& stop, Progress* progress,
                    const Entries& entries);

// Sets `verdict`, too. Of kOffline without `qps` the rate is that of the warm-up.
void RunScenario(const LoadSettings& settings, const std::atomic<bool>& stop, Progress* progress,
                 Entry* entry);

// Each picture once, `limit` of them at most, evenly spread.
void RunAccuracy(const DataSet& data, const PictureSamples& samples, size_t limit,
                 const std::atomic<bool>& stop, Progress* progress, Entry* entry);

}  // namespace atollcmd
