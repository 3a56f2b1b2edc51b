// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/load_run.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <utility>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/split_mix.h"

namespace atollcmd {
namespace {

using Clock = std::chrono::steady_clock;

// More than a report could say anything new about; they take 16 bytes each.
constexpr size_t kMostTimes = 50'000'000;
// After so many failures in a row nothing is expected of a target any more.
constexpr int kFailuresInARow = 100;

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// What the threads of a team find out side by side, merged when all are done. What fails once
// `stop` is set was cut off by that, and is nobody's failure.
class Tally {
 public:
  Tally(Entry* entry, const std::atomic<bool>& stop)
      : entry_(entry), stop_(stop), parts_(entry->team->size()) {}

  // One inference on the stream of a thread. False: it failed.
  bool Run(size_t thread) {
    Part& part = parts_[thread];
    Stream& stream = entry_->target->stream(thread);
    if (stream.Run()) {
      ++part.inferences;
      part.failures_in_a_row = 0;
      return true;
    }
    if (stop_) return false;
    if (part.failure.empty()) part.failure = stream.failure();
    if (++part.failures_in_a_row == kFailuresInARow) {
      Fail(ExitCode::kDeviceLost,
           "{} requests to {} in a row failed, the last one with: {}; look "
           "whether the server still runs",
           kFailuresInARow, entry_->target->name(), stream.failure());
    }
    return false;
  }
  void AddTime(size_t thread, double start_s, double ms) {
    parts_[thread].times.push_back({start_s, ms});
  }
  void AddFailure(size_t thread) { parts_[thread].failed += stop_ ? 0 : 1; }
  size_t times(size_t thread) const { return parts_[thread].times.size(); }

  void Merge() {
    const auto old = static_cast<std::ptrdiff_t>(entry_->times.size());
    for (Part& part : parts_) {
      entry_->times.insert(entry_->times.end(), part.times.begin(), part.times.end());
      entry_->inferences += part.inferences;
      entry_->failed += part.failed;
      if (entry_->failure.empty()) entry_->failure = part.failure;
      part = Part();
    }
    std::sort(entry_->times.begin() + old, entry_->times.end(),
              [](const Timed& a, const Timed& b) { return a.start_s < b.start_s; });
  }

 private:
  struct alignas(64) Part {
    std::vector<Timed> times;
    int64_t inferences = 0;
    int64_t failed = 0;
    int failures_in_a_row = 0;
    std::string failure;
  };
  Entry* const entry_;
  const std::atomic<bool>& stop_;
  std::vector<Part> parts_;
};

void SetInputs(Entry* entry, size_t stream, size_t sample) {
  entry->target->stream(stream).SetInputs(entry->samples[sample % entry->samples.size()]);
}

// What ends the work of a stream early.
class End {
 public:
  End(const std::atomic<bool>& stop, const Team& team) : stop_(stop), team_(team) {}
  bool is_now() const { return stop_ || team_.failed(); }

 private:
  const std::atomic<bool>& stop_;
  const Team& team_;
};

// False: the end came before.
bool SleepUntil(Clock::time_point due, const End& end) {
  constexpr auto kSlice = std::chrono::milliseconds(50);
  for (;;) {
    if (end.is_now()) return false;
    const Clock::time_point now = Clock::now();
    if (now >= due) return true;
    std::this_thread::sleep_until(std::min(due, now + kSlice));
  }
}

}  // namespace

Team::Team(size_t size) {
  for (size_t i = 1; i < size; ++i) threads_.emplace_back([this, i] { Serve(i); });
}

Team::~Team() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Team::Run(const std::function<void(size_t)>& work) {
  failed_ = false;
  if (!threads_.empty()) {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    busy_ = threads_.size();
    ++round_;
    begin_.notify_all();
  }
  Do(work, 0);
  std::unique_lock lock(mutex_);
  end_.wait(lock, [&] { return busy_ == 0; });
  if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Team::Serve(size_t number) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    begin_.wait(lock, [&] { return quit_ || round_ != seen; });
    if (quit_) return;
    seen = round_;
    const auto* work = work_;
    lock.unlock();
    Do(*work, number);
    lock.lock();
    if (--busy_ == 0) end_.notify_all();
  }
}

void Team::Do(const std::function<void(size_t)>& work, size_t number) {
  try {
    work(number);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (failure_ == nullptr) failure_ = std::current_exception();
    failed_ = true;
  }
}

void WarmUpEntry(const WarmUp& warm_up, const std::atomic<bool>& stop, Progress* progress,
                 Entry* entry) {
  Stream& first = entry->target->stream(0);
  first.SetInputs(entry->samples.front());
  Stopwatch stopwatch;
  if (!first.Run()) {
    Fail(ExitCode::kFailure, "the first request to {} failed: {}; look what the server says",
         entry->target->name(), first.failure());
  }
  entry->first_ms = stopwatch.LapMs();
  progress->Step();
  const Clock::time_point begin = Clock::now();
  std::atomic<int64_t> inferences = 0;
  const End end(stop, *entry->team);
  Tally tally(entry, stop);
  entry->team->Run([&](size_t i) {
    SetInputs(entry, i, 0);
    for (int64_t n = 0; !end.is_now() &&
                        (n < warm_up.inferences || Seconds(Clock::now() - begin) < warm_up.seconds);
         ++n) {
      tally.Run(i);
      ++inferences;
      progress->Step();
    }
  });
  entry->warmup = inferences;
  entry->warmup_s = Seconds(Clock::now() - begin);
}

void MeasureInTurns(const PlainLoad& load, const std::atomic<bool>& stop, Progress* progress,
                    const Entries& entries) {
  const Clock::time_point origin = Clock::now();
  std::vector<int64_t> done(entries.size());  // by each stream
  const auto is_done = [&](size_t i) {
    return (done[i] >= load.runs && entries[i]->seconds >= load.seconds) ||
           entries[i]->times.size() >= kMostTimes;
  };
  for (const auto& entry : entries) entry->before = ReadMachineState();
  for (bool more = true; more && !stop;) {
    more = false;
    for (size_t i = 0; i < entries.size() && !stop; ++i) {
      if (is_done(i)) continue;
      more = true;
      Entry& entry = *entries[i];
      // Alone it goes on until it is done; side by side each stream takes part to the end.
      const bool is_alone = entries.size() == 1;
      const int64_t runs_left = std::max<int64_t>(load.runs - done[i], 0);
      const int64_t count =
          load.seconds > 0 ? kSamplesPerTurn : std::min<int64_t>(kSamplesPerTurn, runs_left);
      Tally tally(&entry, stop);
      const End early(stop, *entry.team);
      Clock::time_point begin;
      if (!is_alone) {
        // Brings its data back into the caches.
        entry.team->Run([&](size_t stream) { entry.target->stream(stream).Run(); });
      }
      begin = Clock::now();
      std::atomic<int64_t> fewest = INT64_MAX;
      entry.team->Run([&](size_t stream) {
        const auto go_on = [&](int64_t n) {
          if (!is_alone) return n < count;
          return n < load.runs || Seconds(Clock::now() - begin) < load.seconds;
        };
        const size_t most = kMostTimes / entry.team->size();
        int64_t n = 0;
        for (; !early.is_now() && tally.times(stream) < most && go_on(n); ++n) {
          if (entry.samples.size() > 1) {
            SetInputs(&entry, stream, static_cast<size_t>(done[i] + n));
          }
          const Clock::time_point start = Clock::now();
          const bool is_good = tally.Run(stream);
          const Clock::time_point end = Clock::now();
          if (is_good) {
            tally.AddTime(stream, Seconds(start - origin), Seconds(end - start) * 1e3);
          } else {
            tally.AddFailure(stream);
          }
          progress->Step();
        }
        for (int64_t least = fewest; n < least && !fewest.compare_exchange_weak(least, n);) {
        }
      });
      entry.seconds += Seconds(Clock::now() - begin);
      done[i] += fewest;
      tally.Merge();
    }
  }
  for (const auto& entry : entries) entry->after = ReadMachineState();
}

// ---- Scenarios ----------------------------------------------------------------------------------

namespace {

class ScenarioRun {
 public:
  ScenarioRun(const LoadSettings& settings, const std::atomic<bool>& stop, Progress* progress,
              Entry* entry)
      : settings_(settings),
        stop_(stop),
        progress_(progress),
        entry_(entry),
        end_(stop, *entry->team),
        tally_(entry, stop),
        // Another sequence than that of the arrivals.
        random_(settings.seed ^ 0x5eed0f5a3b1e5ull) {}

  void Run() {
    const bool is_offline = settings_.scenario == Scenario::kOffline;
    begin_ = Clock::now();
    if (settings_.scenario == Scenario::kServer) {
      RunServer();
    } else if (is_offline) {
      RunOffline();
    } else {
      RunQueries();
    }
    tally_.Merge();
    entry_->seconds = Seconds(Clock::now() - begin_);
    seen_.failed = entry_->failed;
    seen_.samples = entry_->inferences;
    seen_.seconds = entry_->seconds;
    seen_.interrupted = stop_;
    for (const Timed& timed : entry_->times) seen_.latencies_ms.push_back(timed.ms);
    entry_->settings = settings_;
    entry_->verdict = Judge(settings_, seen_);
  }

 private:
  // One query after the other; each is done when the last of its samples is.
  void RunQueries() {
    const bool is_multi = settings_.scenario == Scenario::kMultiStream;
    const auto per_query = static_cast<size_t>(is_multi ? settings_.samples_per_query : 1);
    std::vector<size_t> query(per_query);
    int64_t issued = 0;
    while (!stop_ && tally_.times(0) < kMostTimes &&
           (issued < settings_.min_queries || seen_.last_issued_s < settings_.duration_s)) {
      // Samples of one query follow one another.
      const size_t first = random_.Below(entry_->samples.size());
      for (size_t i = 0; i < per_query; ++i) query[i] = first + i;
      std::atomic<size_t> next = 0;
      std::atomic<bool> is_good = true;
      const auto work = [&](size_t stream) {
        for (size_t i = next++; i < per_query && !entry_->team->failed(); i = next++) {
          if (entry_->samples.size() > 1) SetInputs(entry_, stream, query[i]);
          if (!tally_.Run(stream)) is_good = false;
        }
      };
      const Clock::time_point start = Clock::now();
      seen_.last_issued_s = Seconds(start - begin_);
      per_query == 1 ? work(0) : entry_->team->Run(work);
      if (is_good) {
        tally_.AddTime(0, seen_.last_issued_s, Seconds(Clock::now() - start) * 1e3);
      } else {
        tally_.AddFailure(0);
      }
      ++issued;
      progress_->Step();
    }
  }

  // Queries that are due by the clock, whatever became of those before: whoever is free takes the
  // next one. Its latency counts from when it was due.
  void RunServer() {
    const std::vector<double> arrivals = PoissonArrivals(settings_);
    std::vector<uint32_t> order(arrivals.size());
    for (uint32_t& sample : order) {
      sample = static_cast<uint32_t>(random_.Below(entry_->samples.size()));
    }
    const double latest_s = std::max(settings_.duration_s, 1.0);
    std::atomic<size_t> next = 0;
    std::atomic<bool> fell_behind = false;
    std::vector<double> last_due(entry_->team->size());
    begin_ = Clock::now();
    entry_->team->Run([&](size_t stream) {
      prctl(PR_SET_TIMERSLACK, 1UL);  // else the kernel wakes it up to 50 us late
      for (;;) {
        const size_t i = next++;
        if (i >= arrivals.size() || fell_behind) return;
        const Clock::time_point due = begin_ + std::chrono::duration_cast<Clock::duration>(
                                                   std::chrono::duration<double>(arrivals[i]));
        if (entry_->samples.size() > 1) SetInputs(entry_, stream, order[i]);
        if (!SleepUntil(due, end_)) return;
        if (Seconds(Clock::now() - due) > latest_s) {
          fell_behind = true;
          return;
        }
        const bool is_good = tally_.Run(stream);
        last_due[stream] = arrivals[i];
        if (is_good) {
          tally_.AddTime(stream, arrivals[i], Seconds(Clock::now() - due) * 1e3);
        } else {
          tally_.AddFailure(stream);
        }
        progress_->Step();
      }
    });
    seen_.fell_behind = fell_behind;
    seen_.last_issued_s = *std::max_element(last_due.begin(), last_due.end());
  }

  // All samples are there from the start. Times are those of inferences: from the start they would
  // only say how many there were.
  void RunOffline() {
    const size_t count = OfflineCount();
    std::atomic<size_t> next = 0;
    entry_->team->Run([&](size_t stream) {
      for (size_t i = next++; i < count && !end_.is_now(); i = next++) {
        if (entry_->samples.size() > 1) SetInputs(entry_, stream, i);
        const Clock::time_point start = Clock::now();
        const bool is_good = tally_.Run(stream);
        if (is_good) {
          tally_.AddTime(stream, Seconds(start - begin_), Seconds(Clock::now() - start) * 1e3);
        } else {
          tally_.AddFailure(stream);
        }
        progress_->Step();
      }
    });
  }

  // What keeps the target busy for the duration and a tenth more.
  size_t OfflineCount() {
    if (settings_.qps == 0) {
      const bool is_warm = entry_->warmup > 0 && entry_->warmup_s > 0;
      settings_.qps = is_warm ? static_cast<double>(entry_->warmup) / entry_->warmup_s
                              : 1e3 / std::max(entry_->first_ms, 1e-3);
    }
    const double wanted = std::ceil(1.1 * settings_.qps * settings_.duration_s);
    const auto least = static_cast<double>(settings_.min_queries);
    return static_cast<size_t>(std::clamp(wanted, least, static_cast<double>(kMostTimes)));
  }

  LoadSettings settings_;
  const std::atomic<bool>& stop_;
  Progress* const progress_;
  Entry* const entry_;
  const End end_;
  Tally tally_;
  SplitMix64 random_;
  Clock::time_point begin_;
  LoadSeen seen_;
};

}  // namespace

void RunScenario(const LoadSettings& settings, const std::atomic<bool>& stop, Progress* progress,
                 Entry* entry) {
  entry->before = ReadMachineState();
  ScenarioRun(settings, stop, progress, entry).Run();
  entry->after = ReadMachineState();
}

void RunAccuracy(const DataSet& data, const PictureSamples& samples, size_t limit,
                 const std::atomic<bool>& stop, Progress* progress, Entry* entry) {
  const size_t count = std::min(limit, data.size());
  const Clock::time_point begin = Clock::now();
  std::atomic<size_t> next = 0;
  std::mutex mutex;  // of `samples`, whose interpreter's input is written, and of the counts
  entry->accuracy = Accuracy();
  entry->before = ReadMachineState();
  const End end(stop, *entry->team);
  Tally tally(entry, stop);
  entry->team->Run([&](size_t stream) {
    for (size_t i = next++; i < count && !end.is_now(); i = next++) {
      // Evenly spread: data often has its classes one after the other.
      const KnownPicture known = data.Load(i * data.size() / count, samples.channels());
      Inputs inputs;
      {
        const std::lock_guard lock(mutex);
        inputs = samples.Make(known.picture, known.name);
      }
      entry->target->stream(stream).SetInputs(inputs);
      const Clock::time_point start = Clock::now();
      if (tally.Run(stream)) {
        tally.AddTime(stream, Seconds(start - begin), Seconds(Clock::now() - start) * 1e3);
        const OutputBytes output = entry->target->stream(stream).output();
        const std::lock_guard lock(mutex);
        const size_t scores = entry->accuracy->pictures == 0 ? CountScores(output) : SIZE_MAX;
        if (scores < static_cast<size_t>(data.class_count())) {
          Fail(
              ExitCode::kUsage,
              "the data has {} classes, '{}' tells {} apart; give the data that it was trained for",
              data.class_count(), entry->target->model(), scores);
        }
        entry->accuracy->Add(output, known.label);
      } else {
        tally.AddFailure(stream);
      }
      progress->Step();
    }
  });
  tally.Merge();
  entry->seconds = Seconds(Clock::now() - begin);
  entry->after = ReadMachineState();
}

}  // namespace atollcmd
