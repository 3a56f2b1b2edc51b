// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/camera_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/report.h"

namespace atollcmd {
namespace {

using atollrt::Detection;
using atollrt::LatencySummary;
using atollrt::ModelResult;
using atollrt::ProcessedFrame;
using atollrt::Stage;
using atollrt::StageSpan;

std::string Captions(const ProcessedFrame& processed) {
  constexpr size_t kMost = 60;
  std::string text;
  for (const auto& results : processed.results) {
    for (const ModelResult& result : results) {
      for (const std::string& caption : result.captions) {
        text += (text.empty() ? "" : ", ") + caption;
        if (text.size() > kMost) return text.substr(0, kMost) + "...";
      }
    }
  }
  return text;
}

// Places in the frame as it was captured, which may have been shrunk since.
class Places {
 public:
  Places(const ProcessedFrame& processed, const atollrt::Rect& seen)
      : scale_x_(Ratio(processed.frame.width, processed.picture.width)),
        scale_y_(Ratio(processed.frame.height, processed.picture.height)),
        seen_(seen) {}
  // To a tenth of a pixel.
  double X(double fraction) const { return Tenth((seen_.x + fraction * seen_.width) * scale_x_); }
  double Y(double fraction) const { return Tenth((seen_.y + fraction * seen_.height) * scale_y_); }

 private:
  static double Ratio(int frame, int picture) {
    return frame > 0 && picture > 0 ? static_cast<double>(frame) / picture : 1;
  }
  static double Tenth(double value) { return std::round(value * 10) / 10; }
  const double scale_x_;
  const double scale_y_;
  const atollrt::Rect& seen_;
};

// The name of a class, or null.
Json LabelJson(const std::vector<std::string>& labels, int index) {
  const auto at = static_cast<size_t>(index);
  return index >= 0 && at < labels.size() && !labels[at].empty() ? Json(labels[at]) : Json();
}

Json ResultJson(const ProcessedFrame& processed, const ModelResult& result,
                const std::vector<std::string>& labels) {
  const Places places(processed, result.seen);
  const auto box = [&](double left, double top, double right, double bottom) {
    return Json{{"left", places.X(left)},
                {"top", places.Y(top)},
                {"right", places.X(right)},
                {"bottom", places.Y(bottom)}};
  };
  Json json = {{"seen", box(0, 0, 1, 1)}, {"captions", result.captions}};
  for (const atollrt::ClassScore& score : result.classes) {
    json["classes"].push_back({{"index", score.class_index},
                               {"label", LabelJson(labels, score.class_index)},
                               {"score", ShortestDouble(score.score)}});
  }
  for (const Detection& detection : result.detections) {
    json["detections"].push_back(
        {{"index", detection.class_index},
         {"label", LabelJson(labels, detection.class_index)},
         {"score", ShortestDouble(detection.score)},
         {"box", box(detection.left, detection.top, detection.right, detection.bottom)}});
  }
  for (const atollrt::Pose& pose : result.poses) {
    Json keypoints = Json::array();
    for (size_t k = 0; k < pose.keypoints.size(); ++k) {
      const atollrt::Keypoint& keypoint = pose.keypoints[k];
      keypoints.push_back({{"name", atollrt::kKeypointNames[k]},
                           {"x", places.X(keypoint.x)},
                           {"y", places.Y(keypoint.y)},
                           {"score", ShortestDouble(keypoint.score)}});
    }
    json["poses"].push_back(
        {{"score", ShortestDouble(pose.score)}, {"keypoints", std::move(keypoints)}});
  }
  return json;
}

Json LatencyJson(const LatencySummary& latency) {
  return {{"p50", RoundedMs(latency.p50)},
          {"p90", RoundedMs(latency.p90)},
          {"p99", RoundedMs(latency.p99)},
          {"max", RoundedMs(latency.max)}};
}

std::string LatencyText(const char* name, const LatencySummary& latency) {
  return fmt::format("  {:<9} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f}\n", name, latency.p50,
                     latency.p90, latency.p99, latency.max);
}

int64_t NowNs(auto clock) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(clock.now().time_since_epoch())
      .count();
}

// "2024-02-29T12:34:56.789Z"
std::string UtcText(int64_t utc_ns) {
  const std::time_t seconds = static_cast<std::time_t>(utc_ns / 1'000'000'000);
  std::tm utc = {};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  return fmt::format("{}.{:03}Z", text, utc_ns / 1'000'000 % 1000);
}

constexpr int kProcess = 1;

// Tracks from top to bottom: stages of the frame on their threads, one for what the host does for
// models, one for each direction of the link and the device between them.
struct Track {
  int id;
  const char* name;
};
Track TrackOf(Stage stage) {
  static const std::map<Stage, Track> tracks = {
      {Stage::kTotal, {1, "frames"}},        {Stage::kCapture, {2, "capture"}},
      {Stage::kDecode, {3, "decode"}},       {Stage::kResize, {4, "resize, post"}},
      {Stage::kPost, {4, "resize, post"}},   {Stage::kInfer, {5, "inference"}},
      {Stage::kLinkOut, {6, "link out"}},    {Stage::kCompute, {7, "compute"}},
      {Stage::kLinkIn, {8, "link in"}},      {Stage::kDraw, {9, "draw, encode"}},
      {Stage::kEncode, {9, "draw, encode"}}, {Stage::kQueue, {10, "waiting"}}};
  return tracks.at(stage);
}

double Microseconds(int64_t ns) { return static_cast<double>(ns) * 1e-3; }

}  // namespace

std::string ProgressLine(const ProgressState& state) {
  std::string line =
      fmt::format("{}{} frames, {:.1f} fps", state.processed,
                  state.wanted == 0 ? "" : fmt::format(" of {}", state.wanted), state.fps);
  if (state.failed > 0) line += fmt::format(", {} failed", state.failed);
  if (state.processed > 0) line += fmt::format(", {:.1f} ms behind the camera", state.behind_ms);
  if (!state.seen.empty()) line += ", " + state.seen;
  return line;
}

CameraProgress::CameraProgress(uint64_t wanted, bool quiet)
    : wanted_(wanted), in_place_(isatty(STDERR_FILENO) != 0) {
  if (!quiet) thread_ = std::thread([this] { Run(); });
}

void CameraProgress::Follow(std::string source, bool live,
                            std::function<atollrt::PipelineStatus()> status) {
  const std::lock_guard lock(mutex_);
  source_ = std::move(source);
  live_ = live;
  status_ = std::move(status);
  waiting_ms_ = said_waiting_ms_ = 0;
}

void CameraProgress::Add(const ProcessedFrame& processed) {
  if (processed.frame.label) {
    ++labelled_;
    const bool has_class =
        !processed.results[0].empty() && !processed.results[0][0].classes.empty();
    correct_ +=
        has_class && *processed.frame.label == processed.results[0][0].classes[0].class_index;
  }
  if (!thread_.joinable()) return;
  std::string seen = Captions(processed);
  const std::lock_guard lock(mutex_);
  state_.behind_ms = processed.times[static_cast<size_t>(Stage::kTotal)];
  state_.seen = std::move(seen);
}

void CameraProgress::Finish() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  if (line_open_) fmt::print(stderr, "\r\x1b[K");
  line_open_ = false;
}

void CameraProgress::Run() {
  Stopwatch stopwatch;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::seconds(1), [&] { return finished_; })) {
    Tick(stopwatch.LapMs());
  }
}

void CameraProgress::Tick(double ms) {
  constexpr double kPatienceMs = 2000;
  constexpr double kAgainMs = 10'000;  // where each line stays
  const atollrt::PipelineStatus status = status_ ? status_() : atollrt::PipelineStatus();
  const bool waits = status.captured == last_captured_ && status.in_flight == 0;
  waiting_ms_ = waits && live_ ? waiting_ms_ + ms : 0;
  if (waiting_ms_ == 0) said_waiting_ms_ = 0;
  if (waiting_ms_ < kPatienceMs && status.captured > 0) {
    state_.wanted = wanted_;
    state_.processed = status.processed;
    state_.failed = status.failed;
    state_.fps = static_cast<double>(status.processed - last_processed_) * 1e3 / ms;
    Print(ProgressLine(state_));
  } else if (waiting_ms_ >= kPatienceMs &&
             (in_place_ || said_waiting_ms_ == 0 || waiting_ms_ - said_waiting_ms_ >= kAgainMs)) {
    said_waiting_ms_ = waiting_ms_;
    Print(fmt::format("no frame from {} for {:.0f} s; Ctrl-C ends the run", source_,
                      waiting_ms_ / 1e3));
  }
  last_captured_ = status.captured;
  last_processed_ = status.processed;
}

void CameraProgress::Print(const std::string& line) {
  fmt::print(stderr, "{}atoll: {}{}", in_place_ ? "\r\x1b[K" : "", Printable(line),
             in_place_ ? "" : "\n");
  line_open_ = in_place_;
}

FrameReport::FrameReport(std::vector<std::vector<std::string>> labels)
    : labels_(std::move(labels)),
      to_utc_ns_(NowNs(std::chrono::system_clock()) - NowNs(std::chrono::steady_clock())) {}

Json FrameReport::Of(const ProcessedFrame& processed) {
  const int64_t captured_ns = processed.frame.capture_time_ns;
  if (first_ns_ == 0) first_ns_ = captured_ns;
  Json json = {{"frame", processed.frame.sequence},
               {"name", processed.frame.name},
               {"time", UtcText(captured_ns + to_utc_ns_)},
               {"seconds", RoundedMs(static_cast<double>(captured_ns - first_ns_) * 1e-9)},
               {"total_ms", RoundedMs(processed.times[static_cast<size_t>(Stage::kTotal)])},
               {"models", Json::array()}};
  for (size_t i = 0; i < processed.results.size(); ++i) {
    Json model = Json::array();
    for (const ModelResult& result : processed.results[i]) {
      model.push_back(ResultJson(processed, result, labels_[i]));
    }
    json["models"].push_back(std::move(model));
  }
  return json;
}

ResultLines::ResultLines(const std::string& path) : path_(path) {
  if (!path.empty()) file_.reset(OpenOutput("--results", path));
}

void ResultLines::Add(const Json& frame) {
  if (!file_) return;
  fmt::print(file_.get(), "{}\n", JsonText(frame));
  std::fflush(file_.get());  // whoever reads along has each frame at once
}

void ResultLines::Finish() {
  if (!file_) return;
  const bool failed = std::ferror(file_.get()) != 0;
  if (std::fclose(file_.release()) != 0 || failed) {
    Fail(ExitCode::kFailure, "cannot write '{}': {}; choose another --results", path_,
         std::strerror(errno));
  }
}

atollrt::Status SaveFrame(const std::string& directory, const ProcessedFrame& processed) {
  const std::string path = fmt::format("{}/frame-{:06}.jpg", directory, processed.frame.sequence);
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  const std::span<const uint8_t> jpeg = processed.jpeg;
  bool good = file != nullptr && std::fwrite(jpeg.data(), 1, jpeg.size(), file) == jpeg.size();
  if (file != nullptr) good = std::fclose(file) == 0 && good;
  if (good) return {};
  return {atollrt::StatusCode::kInternal,
          fmt::format("cannot write '{}': {}; check --save", path, std::strerror(errno))};
}

void DescribeDevice(const Session& session, atollrt::DeviceStatus* status) {
  status->name = session.device_name();
  status->description = session.device_description();
  status->emulated = session.emulated();
  const AtollDeviceHealth health = session.device_health();
  status->failures = health.failures;
  status->resets = health.resets;
  status->reopenings = health.reopenings;
  status->losses = health.losses;
  status->replays = health.replays;
  status->fallbacks = health.fallbacks;
}

namespace {

// How long a frame waits at most while as many as may wait are before it; nothing if too little was
// captured to tell.
std::optional<double> QueueDelayMs(const atollrt::PipelineStatus& status) {
  if (!(status.captured_fps > 0)) return std::nullopt;
  return status.queue_size * 1e3 / status.captured_fps;
}

}  // namespace

Json CameraJson(const CameraRun& run) {
  const Session& first = *run.sessions.front();
  Json json = NewReport("camera", first);
  const atollrt::PipelineStatus& status = run.report.status;
  json["source"] = status.source;
  json["policy"] = status.policy;
  json["queue_frames"] = status.queue_size;
  const std::optional<double> delay = QueueDelayMs(status);
  json["queue_delay_ms"] = delay ? Json(RoundedMs(*delay)) : Json();
  json["frames"] = status.captured;
  json["captured"] = status.captured;
  json["processed"] = status.processed;
  json["dropped"] = status.dropped;
  json["failed"] = status.failed;
  json["fps"] = status.processed_fps;
  json["captured_fps"] = status.captured_fps;
  json["accuracy"] = run.progress.labelled() > 0 ? Json(run.progress.accuracy()) : Json();
  json["labelled"] = run.progress.labelled();
  json["latency_ms"] = Json::object();
  for (const atollrt::StageLatency& stage : status.stages) {
    if (stage.ms.count > 0) json["latency_ms"][StageName(stage.stage)] = LatencyJson(stage.ms);
  }
  json["modelled_device_ms"] = RoundedMs(first.invoke_info().device_seconds * 1e3);
  json["models"] = Json::array();
  for (size_t i = 0; i < status.models.size(); ++i) {
    const atollrt::ModelStatus& model = status.models[i];
    json["models"].push_back({{"model", run.models[i]},
                              {"substitute", SubstituteJson(*run.sessions[i])},
                              {"task", model.task},
                              {"partition", model.partition},
                              {"inside", model.runs_on.empty() ? Json() : Json(model.runs_on)},
                              {"inferences", model.inferences},
                              {"infer_ms", LatencyJson(model.infer_ms)},
                              {"modelled_device_ms", RoundedMs(model.modelled_device_ms)}});
  }
  json["device_health"] = HealthJson(status.device);
  json["first_failure"] =
      run.report.first_failure.ok() ? Json() : Json(run.report.first_failure.message());
  json["end"] = run.report.end.ok() ? Json() : Json(run.report.end.message());
  return json;
}

std::string CameraText(const CameraRun& run) {
  const Session& first = *run.sessions.front();
  const atollrt::PipelineStatus& status = run.report.status;
  std::string text = fmt::format("source    {}\n", status.source);
  for (size_t i = 0; i < status.models.size(); ++i) {
    const atollrt::ModelStatus& model = status.models[i];
    text += fmt::format("model     {} ({}): {}{}\n", run.models[i], model.task, model.partition,
                        model.runs_on.empty() ? "" : "; looks into the boxes of " + model.runs_on);
  }
  text += fmt::format(
      "device    {}: {}\n"
      "frames    {} captured = {} processed + {} dropped + {} failed\n"
      "rate      {:.2f} fps processed, {:.2f} fps captured\n",
      first.device_name(), first.device_description(), status.captured, status.processed,
      status.dropped, status.failed, status.processed_fps, status.captured_fps);
  if (const std::optional<double> delay = QueueDelayMs(status)) {
    text += fmt::format("queue     {}: up to {} wait{} to be taken, {:.1f} ms at that rate\n",
                        status.policy == "every" ? "every frame" : "the newest frame",
                        status.queue_size, status.queue_size == 1 ? "s" : "", *delay);
  }
  if (run.progress.labelled() > 0) {
    text += fmt::format("accuracy  {:.2f} % of {} labelled frames\n", run.progress.accuracy() * 100,
                        run.progress.labelled());
  }
  if (!run.report.first_failure.ok()) {
    text += fmt::format("failure   the first: {}\n", run.report.first_failure.message());
  }
  if (status.captured > 0) {
    text += "latency          p50      p90      p99      max  ms, measured on the host\n";
  }
  for (const atollrt::StageLatency& stage : status.stages) {
    if (stage.ms.count > 0) text += LatencyText(StageName(stage.stage), stage.ms);
  }
  if (status.models.size() > 1) {
    text += "inference        p50      p90      p99      max  ms, from submission to outputs\n";
    for (size_t i = 0; i < status.models.size(); ++i) {
      text += LatencyText(fmt::format("model {}", i).c_str(), status.models[i].infer_ms);
    }
  }
  for (size_t i = 0; first.on_device() && i < run.sessions.size(); ++i) {
    const std::string which = run.sessions.size() > 1 ? fmt::format(" (model {})", i) : "";
    if (run.sessions[i]->partitions().empty()) {
      text += fmt::format("modelled  nothing, as nothing runs on the device{}\n", which);
      continue;
    }
    const AtollInvokeInfo device = run.sessions[i]->invoke_info();
    text += fmt::format("modelled  {:.3f} ms of device time per inference, {} cycles{}\n",
                        device.device_seconds * 1e3, Thousands(device.device_cycles), which);
  }
  return text;
}

void CameraTrace::Add(const StageSpan& span) {
  const std::lock_guard lock(mutex_);
  if (spans_.size() < kMaxSpans) spans_.push_back(span);
}

void CameraTrace::Write(const atollrt::PipelineStatus& status) const {
  if (!enabled()) return;
  int64_t origin_ns = INT64_MAX;
  for (const StageSpan& span : spans_) origin_ns = std::min(origin_ns, span.start_ns);
  Json events = Json::array();
  events.push_back({{"ph", "M"},
                    {"pid", kProcess},
                    {"name", "process_name"},
                    {"args", {{"name", "atoll camera (measured)"}}}});
  for (int stage = 0; stage < atollrt::kStageCount; ++stage) {
    const Track track = TrackOf(static_cast<Stage>(stage));
    const auto metadata = [&](const char* what, Json args) {
      events.push_back({{"ph", "M"},
                        {"pid", kProcess},
                        {"tid", track.id},
                        {"name", what},
                        {"args", std::move(args)}});
    };
    metadata("thread_name", {{"name", track.name}});
    metadata("thread_sort_index", {{"sort_index", track.id}});
  }
  for (const StageSpan& span : spans_) {
    const double start_us = Microseconds(span.start_ns - origin_ns);
    const double end_us = Microseconds(span.end_ns - origin_ns);
    const bool has_model = span.model >= 0;
    const std::string name = span.stage == Stage::kTotal ? fmt::format("frame {}", span.sequence)
                             : has_model
                                 ? fmt::format("{} {}", atollrt::StageName(span.stage),
                                               status.models[static_cast<size_t>(span.model)].name)
                                 : atollrt::StageName(span.stage);
    // Frames, and what waits, overlap each other: their beginnings and ends are events of their
    // own.
    const bool overlaps = span.stage == Stage::kTotal || span.stage == Stage::kQueue;
    Json event = {{"ph", overlaps ? "b" : "X"},
                  {"ts", start_us},
                  {"pid", kProcess},
                  {"tid", TrackOf(span.stage).id},
                  {"name", name},
                  {"cat", overlaps ? TrackOf(span.stage).name : "stage"},
                  {"args", {{"frame", span.sequence}}}};
    if (!overlaps) {
      event["dur"] = end_us - start_us;
      events.push_back(std::move(event));
      continue;
    }
    event["id"] = span.sequence;
    events.push_back(event);
    event["ph"] = "e";
    event["ts"] = end_us;
    events.push_back(std::move(event));
  }
  const std::string text = JsonText({{"displayTimeUnit", "ms"},
                                     {"otherData",
                                      {{"atoll", AtollVersion()},
                                       {"source", status.source},
                                       {"device", status.device.description}}},
                                     {"traceEvents", std::move(events)}});
  WriteOutput("--trace", path_, text);
}

}  // namespace atollcmd
