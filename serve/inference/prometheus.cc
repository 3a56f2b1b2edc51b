// SPDX-License-Identifier: Apache-2.0
//
// The text format that Prometheus reads (version 0.0.4).
#include <functional>

#include "serve/inference/inference_server.h"

namespace atollserve {
namespace {

// A value of a label: backslash, quote and line feed are escaped.
std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n') {
      escaped += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string LabelsOf(const ModelStatistics& one) {
  return "model=\"" + Escaped(one.name) + "\",version=\"" + Escaped(one.version) + "\"";
}

std::string Seconds(int64_t ns) { return atollrt::Format("%.9g", static_cast<double>(ns) / 1e9); }

struct Metric {
  const char* name;
  const char* type;
  const char* help;
  std::function<std::string(const ModelStatistics&)> value;
};

std::string Count(int64_t count) { return std::to_string(count); }

}  // namespace

std::string PrometheusText(const InferenceServer& server) {
  std::vector<ModelStatistics> all;
  if (auto statistics = server.Statistics("", ""); statistics.ok()) all = *std::move(statistics);
  using S = const ModelStatistics&;
  const Metric metrics[] = {
      {"nv_inference_request_success", "counter", "Requests that succeeded.",
       [](S s) { return Count(s.success.count); }},
      {"nv_inference_request_failure", "counter", "Requests that failed, refused ones included.",
       [](S s) { return Count(s.fail.count); }},
      {"nv_inference_count", "counter", "Inferences.",
       [](S s) { return Count(s.inference_count); }},
      {"nv_inference_exec_count", "counter", "Executions of a model.",
       [](S s) { return Count(s.execution_count); }},
      {"nv_inference_request_duration_us", "counter", "Time from a request's coming to its end.",
       [](S s) { return Count(s.success.ns / 1000); }},
      {"nv_inference_queue_duration_us", "counter", "Time that requests waited.",
       [](S s) { return Count(s.queue.ns / 1000); }},
      {"nv_inference_compute_input_duration_us", "counter", "Time for inputs.",
       [](S s) { return Count(s.input.ns / 1000); }},
      {"nv_inference_compute_infer_duration_us", "counter", "Time for computing.",
       [](S s) { return Count(s.infer.ns / 1000); }},
      {"nv_inference_compute_output_duration_us", "counter", "Time for outputs.",
       [](S s) { return Count(s.output.ns / 1000); }},
      {"nv_inference_pending_request_count", "gauge", "Requests that wait.",
       [](S s) { return Count(s.waiting); }},
      {"atoll_requests_refused_total", "counter", "Requests refused at once, for want of room.",
       [](S s) { return Count(s.refused); }},
      {"atoll_requests_expired_total", "counter", "Requests whose time was over.",
       [](S s) { return Count(s.expired); }},
      {"atoll_requests_cancelled_total", "counter", "Requests whose client went, or cancelled.",
       [](S s) { return Count(s.cancelled); }},
      {"atoll_requests_running", "gauge", "Requests that an interpreter has.",
       [](S s) { return Count(s.running); }},
      {"atoll_expected_wait_seconds", "gauge", "What a request that comes now would wait.",
       [](S s) { return Seconds(s.expected_wait_ns); }},
      {"atoll_device_cycles_total", "counter",
       "Cycles of the device; modelled where it is emulated.",
       [](S s) { return Count(s.device_cycles); }},
  };
  std::string text;
  const auto head = [&](const char* name, const char* type, const char* help) {
    text += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  };
  for (const Metric& metric : metrics) {
    head(metric.name, metric.type, metric.help);
    for (const ModelStatistics& one : all) {
      text += std::string(metric.name) + "{" + LabelsOf(one) + "} " + metric.value(one) + "\n";
    }
  }
  head("atoll_request_seconds", "histogram", "Time from a request's coming to its end.");
  for (const ModelStatistics& one : all) {
    int64_t sum = 0;
    for (size_t i = 0; i < kLatencyBucketCount; ++i) {
      sum += one.latency[i];
      const std::string end =
          i + 1 == kLatencyBucketCount ? "+Inf" : atollrt::Format("%g", kLatencyBuckets[i]);
      text += "atoll_request_seconds_bucket{" + LabelsOf(one) + ",le=\"" + end + "\"} " +
              Count(sum) + "\n";
    }
    text += "atoll_request_seconds_sum{" + LabelsOf(one) + "} " + Seconds(one.success.ns) + "\n";
    text += "atoll_request_seconds_count{" + LabelsOf(one) + "} " + Count(sum) + "\n";
  }
  const AtollDeviceHealth health = server.device_health();
  const std::pair<const char*, int64_t> events[] = {
      {"failure", health.failures}, {"reset", health.resets},   {"reopening", health.reopenings},
      {"loss", health.losses},      {"replay", health.replays}, {"fallback", health.fallbacks}};
  head("atoll_device_events_total", "counter", "What went wrong with the device, and its cures.");
  const AtollDeviceInfo device = server.device();
  const std::string name = Escaped(device.name == nullptr ? "" : device.name);
  for (const auto& [event, count] : events) {
    text += "atoll_device_events_total{device=\"" + name + "\",event=\"" + event + "\"} " +
            Count(count) + "\n";
  }
  head("atoll_server_ready", "gauge", "1: all models are ready.");
  text += std::string("atoll_server_ready ") + (server.ready() ? "1" : "0") + "\n";
  return text;
}

}  // namespace atollserve
