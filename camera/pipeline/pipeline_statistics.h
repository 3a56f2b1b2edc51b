// SPDX-License-Identifier: Apache-2.0
//
// What a pipeline counts: what becomes of its frames and where their time goes. All methods may be
// called from any thread; memory is taken once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "atoll/camera/pipeline.h"
#include "atoll/camera/status.h"

namespace atollrt {

// Collects latencies in memory that is taken once, for a LatencySummary. Not thread-safe.
class LatencyRecorder {
 public:
  static constexpr size_t kCapacity = 16384;

  LatencyRecorder() : values_(kCapacity) {}

  void Add(double milliseconds);

  // What a summary is made of. Quick to take, so that others can go on adding while it is made.
  struct Sample {
    std::vector<float> latest;
    uint64_t count = 0;
    double max = 0;
    LatencySummary Summarize() &&;
  };
  // The latest values, at least 1 and at most kCapacity; count and max of all.
  Sample Take(size_t latest = kCapacity) const;
  LatencySummary Summarize() const { return Take().Summarize(); }

 private:
  std::vector<float> values_;  // a ring
  uint64_t count_ = 0;
  double max_ = 0;
};

// A sum per second, over the last whole second.
class SlidingRate {
 public:
  void Add(int64_t now_ns, double amount);
  double PerSecond(int64_t now_ns) const;

 private:
  static constexpr int64_t kParts = 4;
  static constexpr int64_t kPartNs = 1'000'000'000 / kParts;
  struct Part {
    int64_t number = -1;  // time in kPartNs
    double sum = 0;
  };
  std::array<Part, kParts + 1> parts_;  // the one under way, too
};

// The rate of a sequence of capture times, over all of them.
class RateMeter {
 public:
  void Add(int64_t time_ns) {
    if (count_++ == 0) first_ns_ = time_ns;
    last_ns_ = time_ns;
  }
  double fps() const {
    if (count_ < 2 || last_ns_ <= first_ns_) return 0;
    return static_cast<double>(count_ - 1) * 1e9 / static_cast<double>(last_ns_ - first_ns_);
  }
  uint64_t count() const { return count_; }
  int64_t first_ns() const { return first_ns_; }

 private:
  uint64_t count_ = 0;
  int64_t first_ns_ = 0;
  int64_t last_ns_ = 0;
};

class PipelineStatistics {
 public:
  explicit PipelineStatistics(size_t models) : models_(models) {}

  void Capture(const Frame& frame, int64_t now_ns);
  // The size of a frame that its source did not know.
  void Resize(int width, int height);
  // One captured frame is no longer on its way. Failures come with their frame as context.
  void Drop();
  void Fail(Status failure);
  void Process(const ProcessedFrame& processed, bool drawn);

  void Infer(size_t model, const InferenceTimes& times, int64_t now_ns);

  // Everything but what does not change; percentiles of the latest frames.
  void Describe(int64_t now_ns, PipelineStatus* status) const;
  // Rates and percentiles of the whole run, and the first failure.
  void Conclude(PipelineReport* report) const;

 private:
  struct Model {
    uint64_t inferences = 0;
    LatencyRecorder infer;
    double modelled_seconds = 0;
    std::vector<std::string> captions;
  };
  // The samples of the stages, then of the models. mutex_ is held.
  std::vector<LatencyRecorder::Sample> TakeSamples(size_t latest) const;

  mutable std::mutex mutex_;
  RateMeter captured_;
  RateMeter processed_;
  SlidingRate captured_now_;
  SlidingRate processed_now_;
  SlidingRate device_seconds_now_;
  SlidingRate modelled_seconds_now_;
  uint64_t dropped_ = 0;
  uint64_t failed_ = 0;
  Status first_failure_;
  std::string last_failure_;
  int width_ = 0;
  int height_ = 0;
  std::array<LatencyRecorder, kStageCount> stages_;
  std::vector<Model> models_;
};

}  // namespace atollrt
