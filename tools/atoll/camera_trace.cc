// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/camera_trace.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/atoll/output_files.h"
#include "tools/atoll/report.h"

namespace atollcmd {
namespace {

using atollrt::Stage;
using atollrt::StageSpan;

constexpr int kProcess = 1;

// Tracks from top to bottom: stages of the frame on their threads, one for what the host does for
// models, one for each direction of the link and the device between them.
struct Track {
  int id;
  const char* name;
};
Track TrackOf(Stage stage) {
  switch (stage) {
    case Stage::kTotal:
      return {1, "frames"};
    case Stage::kCapture:
      return {2, "capture"};
    case Stage::kDecode:
      return {3, "decode"};
    case Stage::kResize:
    case Stage::kPost:
      return {4, "resize, post"};
    case Stage::kInfer:
      return {5, "inference"};
    case Stage::kLinkOut:
      return {6, "link out"};
    case Stage::kCompute:
      return {7, "compute"};
    case Stage::kLinkIn:
      return {8, "link in"};
    case Stage::kDraw:
    case Stage::kEncode:
      return {9, "draw, encode"};
    case Stage::kQueue:
      return {10, "waiting"};
  }
  return {0, ""};
}

double Microseconds(int64_t ns) { return static_cast<double>(ns) * 1e-3; }

}  // namespace

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
  OutputFiles files;
  files.Add("--trace", path_, text.data(), text.size());
  files.Commit();
}

}  // namespace atollcmd
