// SPDX-License-Identifier: Apache-2.0
#include "camera/pipeline/pipeline_statistics.h"

#include <algorithm>
#include <utility>

namespace atollrt {
namespace {

constexpr size_t kLatest = 1024;  // frames that a status is about

// In the order of TakeSamples.
void Summarize(std::vector<LatencyRecorder::Sample> samples, PipelineStatus* status) {
  auto sample = samples.begin();
  status->stages.clear();
  for (int i = 0; i < kStageCount; ++i) {
    status->stages.push_back({static_cast<Stage>(i), std::move(*sample++).Summarize()});
  }
  for (ModelStatus& model : status->models) {
    model.infer_ms = std::move(*sample++).Summarize();
  }
}

}  // namespace

const char* StageName(Stage stage) {
  constexpr std::array<const char*, kStageCount> kNames = {
      "capture", "decode",  "queue", "resize", "infer",  "link_out",
      "compute", "link_in", "post",  "draw",   "encode", "total"};
  return kNames[static_cast<size_t>(stage)];
}

void LatencyRecorder::Add(double milliseconds) {
  values_[count_ % kCapacity] = static_cast<float>(milliseconds);
  max_ = count_ == 0 ? milliseconds : std::max(max_, milliseconds);
  ++count_;
}

LatencyRecorder::Sample LatencyRecorder::Take(size_t latest) const {
  Sample sample = {{}, count_, max_};
  const uint64_t size = std::min<uint64_t>({count_, latest, kCapacity});
  sample.latest.reserve(size);
  for (uint64_t i = count_ - size; i < count_; ++i) {
    sample.latest.push_back(values_[i % kCapacity]);
  }
  return sample;
}

LatencySummary LatencyRecorder::Sample::Summarize() && {
  LatencySummary summary;
  summary.count = count;
  if (count == 0) return summary;
  std::sort(latest.begin(), latest.end());
  // The smallest value that at least `percent` of all values do not exceed.
  const auto nearest_rank = [&](size_t percent) {
    const size_t rank = (latest.size() * percent + 99) / 100;
    return static_cast<double>(latest[rank - 1]);
  };
  summary.p50 = nearest_rank(50);
  summary.p90 = nearest_rank(90);
  summary.p99 = nearest_rank(99);
  summary.max = max;
  return summary;
}

void SlidingRate::Add(int64_t now_ns, double amount) {
  const int64_t number = now_ns / kPartNs;
  Part& part = parts_[static_cast<size_t>(number) % parts_.size()];
  if (part.number != number) part = {number, 0};
  part.sum += amount;
}

double SlidingRate::PerSecond(int64_t now_ns) const {
  const int64_t now = now_ns / kPartNs;
  double sum = 0;
  for (const Part& part : parts_) {
    if (part.number >= now - kParts && part.number < now) sum += part.sum;
  }
  return sum;
}

void PipelineStatistics::Capture(const Frame& frame, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  captured_.Add(frame.capture_time_ns);
  captured_now_.Add(now_ns, 1);
  if (frame.width < 1 || frame.height < 1) return;
  width_ = frame.width;
  height_ = frame.height;
}

void PipelineStatistics::Resize(int width, int height) {
  const std::lock_guard lock(mutex_);
  width_ = width;
  height_ = height;
}

void PipelineStatistics::Drop() {
  const std::lock_guard lock(mutex_);
  ++dropped_;
}

void PipelineStatistics::Fail(Status failure) {
  const std::lock_guard lock(mutex_);
  ++failed_;
  last_failure_ = failure.message();
  if (first_failure_.ok()) first_failure_ = std::move(failure);
}

void PipelineStatistics::Process(const ProcessedFrame& processed, bool drawn) {
  const auto happened = [&](Stage stage) {
    const bool is_link = stage == Stage::kLinkOut || stage == Stage::kLinkIn;
    if (is_link) return processed.times[static_cast<size_t>(stage)] > 0;
    return stage == Stage::kDraw ? drawn : stage != Stage::kEncode || !processed.jpeg.empty();
  };
  const std::lock_guard lock(mutex_);
  processed_.Add(processed.frame.capture_time_ns);
  const double total_ms = processed.times[static_cast<size_t>(Stage::kTotal)];
  processed_now_.Add(processed.frame.capture_time_ns + static_cast<int64_t>(total_ms * 1e6), 1);
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    if (happened(static_cast<Stage>(stage))) stages_[stage].Add(processed.times[stage]);
  }
  for (size_t i = 0; i < models_.size(); ++i) {
    std::vector<std::string>& captions = models_[i].captions;
    size_t count = 0;
    for (const ModelResult& result : processed.results[i]) {
      for (const std::string& caption : result.captions) {
        if (count == captions.size()) captions.emplace_back();
        captions[count++] = caption;
      }
    }
    captions.resize(count);
  }
}

void PipelineStatistics::Infer(size_t model, const InferenceTimes& times, int64_t now_ns) {
  const int64_t device_ns = times.link_out_ns + times.compute_ns + times.link_in_ns;
  const std::lock_guard lock(mutex_);
  Model& entry = models_[model];
  ++entry.inferences;
  entry.infer.Add(static_cast<double>(times.total_ns) * 1e-6);
  entry.modelled_seconds = times.modelled_seconds;
  device_seconds_now_.Add(now_ns, static_cast<double>(device_ns) * 1e-9);
  modelled_seconds_now_.Add(now_ns, times.modelled_seconds);
}

std::vector<LatencyRecorder::Sample> PipelineStatistics::TakeSamples(size_t latest) const {
  std::vector<LatencyRecorder::Sample> samples;
  for (const LatencyRecorder& stage : stages_) samples.push_back(stage.Take(latest));
  for (const Model& model : models_) samples.push_back(model.infer.Take(latest));
  return samples;
}

void PipelineStatistics::Describe(int64_t now_ns, PipelineStatus* status) const {
  std::unique_lock lock(mutex_);
  status->width = width_;
  status->height = height_;
  status->captured = captured_.count();
  status->processed = processed_.count();
  status->dropped = dropped_;
  status->failed = failed_;
  status->in_flight = status->captured - status->processed - dropped_ - failed_;
  if (status->captured > 0) {
    status->seconds = std::max(0.0, static_cast<double>(now_ns - captured_.first_ns()) * 1e-9);
  }
  status->captured_fps = captured_now_.PerSecond(now_ns);
  status->processed_fps = processed_now_.PerSecond(now_ns);
  status->last_failure = last_failure_;
  status->device.utilization = std::min(1.0, device_seconds_now_.PerSecond(now_ns));
  status->device.modelled_utilization = std::min(1.0, modelled_seconds_now_.PerSecond(now_ns));
  for (size_t i = 0; i < models_.size(); ++i) {
    ModelStatus& model = status->models[i];
    model.inferences = models_[i].inferences;
    model.modelled_device_ms = models_[i].modelled_seconds * 1e3;
    model.results = models_[i].captions;
  }
  std::vector<LatencyRecorder::Sample> samples = TakeSamples(kLatest);
  lock.unlock();
  Summarize(std::move(samples), status);
}

void PipelineStatistics::Conclude(PipelineReport* report) const {
  const std::lock_guard lock(mutex_);
  report->status.captured_fps = captured_.fps();
  report->status.processed_fps = processed_.fps();
  report->first_failure = first_failure_;
  Summarize(TakeSamples(LatencyRecorder::kCapacity), &report->status);
}

}  // namespace atollrt
