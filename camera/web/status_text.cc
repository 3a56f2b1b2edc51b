// SPDX-License-Identifier: Apache-2.0
#include "camera/web/status_text.h"

#include <cinttypes>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "atoll/status.h"

namespace atollrt {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json LatencyJson(const LatencySummary& ms) {
  return {{"count", ms.count}, {"p50", ms.p50}, {"p90", ms.p90}, {"p99", ms.p99}, {"max", ms.max}};
}

// A modelled time or share, which is 0 without a model of the device.
Json Modelled(double value) { return value > 0 ? Json(value) : Json(nullptr); }

Json ModelJson(const ModelStatus& model) {
  return {{"name", model.name},
          {"task", model.task},
          {"partition", model.partition},
          {"runs_on", model.runs_on.empty() ? Json(nullptr) : Json(model.runs_on)},
          {"priority", model.priority},
          {"inferences", model.inferences},
          {"infer_ms", LatencyJson(model.infer_ms)},
          {"modelled_device_ms", Modelled(model.modelled_device_ms)},
          {"reasons", model.reasons},
          {"results", model.results}};
}

// ---- Prometheus ---------------------------------------------------------------------------------

using Labels = std::vector<std::pair<const char*, std::string>>;

// Valid UTF-8, with what the format wants escaped in the value of a label.
std::string EscapeLabel(const std::string& value) {
  const std::string valid = Json::parse(Dump(Json(value))).get<std::string>();
  std::string escaped;
  for (const char c : valid) {
    if (c == '\\' || c == '"' || c == '\n') escaped += '\\';
    escaped += c == '\n' ? 'n' : c;
  }
  return escaped;
}

class MetricsText {
 public:
  // Starts a family; its samples follow.
  void Family(std::string name, const char* type, const char* help) {
    name_ = std::move(name);
    text_ += Format("# HELP %s %s\n# TYPE %s %s\n", name_.c_str(), help, name_.c_str(), type);
  }
  void Count(uint64_t value, const Labels& labels) { Sample("", labels, std::to_string(value)); }
  void Value(double value, const Labels& labels) { Sample("", labels, Format("%.9g", value)); }
  // Samples of a summary, in seconds, as Prometheus wants it.
  void Quantiles(const LatencySummary& ms, Labels labels) {
    labels.push_back({"quantile", ""});
    for (const auto& [quantile, value] :
         {std::pair{"0.5", ms.p50}, {"0.9", ms.p90}, {"0.99", ms.p99}}) {
      labels.back().second = quantile;
      Value(value / 1e3, labels);
    }
    labels.pop_back();
    Sample("_count", labels, std::to_string(ms.count));
  }
  // Families with one sample.
  void Counter(const char* name, const char* help, uint64_t value, const Labels& labels = {}) {
    Family(name, "counter", help);
    Count(value, labels);
  }
  void Gauge(const char* name, const char* help, double value, const Labels& labels = {}) {
    Family(name, "gauge", help);
    Value(value, labels);
  }
  std::string Take() { return std::move(text_); }

 private:
  void Sample(const char* suffix, const Labels& labels, const std::string& value) {
    std::string list;
    for (const auto& [label, text] : labels) {
      list += (list.empty() ? "" : ",") + std::string(label) + "=\"" + EscapeLabel(text) + "\"";
    }
    text_ += name_ + suffix + (list.empty() ? "" : "{" + list + "}") + " " + value + "\n";
  }

  std::string name_, text_;
};

void WriteFrames(const PipelineStatus& status, MetricsText* text) {
  text->Gauge("atoll_pipeline_running", "1 while frames are captured, else 0.", status.running);
  text->Counter("atoll_frames_captured_total", "Frames that the source delivered.",
                status.captured);
  text->Counter("atoll_frames_processed_total", "Frames with results.", status.processed);
  text->Counter("atoll_frames_dropped_total", "Frames that gave way to newer ones.",
                status.dropped);
  text->Counter("atoll_frames_failed_total", "Frames that could not be processed.", status.failed);
  text->Gauge("atoll_frames_in_flight", "Frames that are being processed.",
              static_cast<double>(status.in_flight));
  text->Gauge("atoll_captured_fps", "Frames per second captured, of the last second.",
              status.captured_fps);
  text->Gauge("atoll_processed_fps", "Frames per second processed, of the last second.",
              status.processed_fps);
  text->Family("atoll_stage_latency_seconds", "summary",
               "Measured time of a frame in each stage, of the latest 1024 frames.");
  for (const StageLatency& stage : status.stages) {
    if (stage.ms.count > 0) text->Quantiles(stage.ms, {{"stage", StageName(stage.stage)}});
  }
}

// Models may have the same name, so their number is a label, too.
void WriteModels(const std::vector<ModelStatus>& models, MetricsText* text) {
  const auto labels = [&](size_t i) {
    return Labels{{"index", std::to_string(i)}, {"model", models[i].name}};
  };
  text->Family("atoll_model_inferences_total", "counter", "Inferences of each model.");
  for (size_t i = 0; i < models.size(); ++i) text->Count(models[i].inferences, labels(i));
  text->Family("atoll_model_latency_seconds", "summary",
               "Measured time of an inference, of the latest 1024.");
  for (size_t i = 0; i < models.size(); ++i) text->Quantiles(models[i].infer_ms, labels(i));
  text->Family("atoll_model_modelled_device_seconds", "gauge",
               "Modelled time of an inference on the device; 0 without one.");
  for (size_t i = 0; i < models.size(); ++i) {
    text->Value(models[i].modelled_device_ms / 1e3, labels(i));
  }
}

void WriteDevice(const DeviceStatus& device, MetricsText* text) {
  const Labels labels = {{"device", device.name}};
  text->Gauge("atoll_device_utilization",
              "Measured part of the last second that requests had the device, 0 to 1.",
              device.utilization, labels);
  text->Gauge("atoll_device_modelled_utilization",
              "The same if inferences took as long as modelled; 0 without a model of the device.",
              device.modelled_utilization, labels);
  const struct {
    const char* name;
    const char* help;
    int64_t value;
  } counters[] = {
      {"failures", "Requests that failed on the device.", device.failures},
      {"resets", "Resets of the device.", device.resets},
      {"reopenings", "Times that the device was opened anew.", device.reopenings},
      {"losses", "Times that the device was lost.", device.losses},
      {"replays", "Requests that were sent again.", device.replays},
      {"fallbacks", "Requests that were completed without the device.", device.fallbacks}};
  for (const auto& counter : counters) {
    text->Counter(Format("atoll_device_%s_total", counter.name).c_str(), counter.help,
                  static_cast<uint64_t>(counter.value), labels);
  }
}

void WriteViewers(const ViewerCounts& viewers, MetricsText* text) {
  text->Gauge("atoll_viewers", "Viewers of the stream.", viewers.watching);
  text->Gauge("atoll_viewers_limit", "Viewers that may watch at a time.", viewers.limit);
  text->Counter("atoll_viewers_served_total", "Viewers that got a place.", viewers.served);
  text->Counter("atoll_viewers_refused_total", "Viewers that found no place.", viewers.refused);
  text->Counter("atoll_viewers_dropped_total", "Viewers that took too long for a frame.",
                viewers.dropped);
  text->Counter("atoll_stream_frames_sent_total", "Frames sent, of all viewers.",
                viewers.frames_sent);
  text->Counter("atoll_stream_frames_skipped_total", "Frames that viewers were too slow for.",
                viewers.frames_skipped);
  text->Counter("atoll_stream_bytes_sent_total", "Bytes sent to viewers.", viewers.bytes_sent);
}

}  // namespace

std::string StatusJson(const PipelineStatus& status, const ViewerCounts& viewers,
                       std::optional<bool> you_watch) {
  Json stages = Json::array(), models = Json::array();
  for (const StageLatency& stage : status.stages) {
    Json row = LatencyJson(stage.ms);
    row["stage"] = StageName(stage.stage);
    stages.push_back(std::move(row));
  }
  for (const ModelStatus& model : status.models) models.push_back(ModelJson(model));
  const DeviceStatus& device = status.device;
  return Dump({{"version", 1},
               {"source", status.source},
               {"policy", status.policy},
               {"width", status.width},
               {"height", status.height},
               {"seconds", status.seconds},
               {"running", status.running},
               {"frames",
                {{"captured", status.captured},
                 {"processed", status.processed},
                 {"dropped", status.dropped},
                 {"failed", status.failed},
                 {"in_flight", status.in_flight},
                 {"captured_fps", status.captured_fps},
                 {"processed_fps", status.processed_fps},
                 {"last_failure", status.last_failure}}},
               {"stages_ms", std::move(stages)},
               {"models", std::move(models)},
               {"device",
                {{"name", device.name},
                 {"description", device.description},
                 {"emulated", device.emulated},
                 {"utilization", device.utilization},
                 {"modelled_utilization", Modelled(device.modelled_utilization)},
                 {"failures", device.failures},
                 {"resets", device.resets},
                 {"reopenings", device.reopenings},
                 {"losses", device.losses},
                 {"replays", device.replays},
                 {"fallbacks", device.fallbacks}}},
               {"viewers",
                {{"watching", viewers.watching},
                 {"limit", viewers.limit},
                 {"served", viewers.served},
                 {"refused", viewers.refused},
                 {"dropped", viewers.dropped},
                 {"frames_sent", viewers.frames_sent},
                 {"frames_skipped", viewers.frames_skipped},
                 {"bytes_sent", viewers.bytes_sent},
                 {"you_watch", you_watch ? Json(*you_watch) : Json(nullptr)}}}});
}

std::string StatusMetrics(const PipelineStatus& status, const ViewerCounts& viewers) {
  MetricsText text;
  WriteFrames(status, &text);
  WriteModels(status.models, &text);
  WriteDevice(status.device, &text);
  WriteViewers(viewers, &text);
  return text.Take();
}

}  // namespace atollrt
