// SPDX-License-Identifier: Apache-2.0
//
// A worker's record in the text format that Prometheus reads (version 0.0.4).
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "serve/fleet/metrics.h"

namespace atollserve {

std::string WorkerPrometheusText(const WorkerRecord& record, bool connected) {
  // An id needs no escapes (IsWorkerId).
  const std::string worker = "worker=\"" + record.worker + "\"";
  std::string text;
  const auto head = [&](const char* name, const char* type, const char* help) {
    text += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
  };
  const auto gauge = [&](const char* name, const char* help, int64_t value) {
    head(name, "gauge", help);
    text += std::string(name) + "{" + worker + "} " + std::to_string(value) + "\n";
  };
  const auto count = [&](const char* name, const char* help,
                         std::initializer_list<std::pair<const char*, int64_t>> ends) {
    head(name, "counter", help);
    for (const auto& [end, value] : ends) {
      text += std::string(name) + "{" + worker + ",end=\"" + end + "\"} " + std::to_string(value) +
              "\n";
    }
  };
  count("atoll_fleet_frames_total", "Frames, by how they ended.",
        {{"answered", record.frames.answered},
         {"busy", record.frames.busy},
         {"late", record.frames.late},
         {"failed", record.frames.failed}});
  count("atoll_fleet_jobs_total", "Jobs, by how they ended.",
        {{"done", record.jobs.done},
         {"repeated", record.jobs.repeated},
         {"failed", record.jobs.failed},
         {"returned", record.jobs.returned}});
  gauge("atoll_fleet_places", "Frames that the worker takes at a time.", record.places);
  gauge("atoll_fleet_places_free", "Of those, which are free.", record.free);
  gauge("atoll_fleet_connected", "1: connected to a server of NATS.", connected ? 1 : 0);
  gauge("atoll_fleet_draining", "1: the worker takes nothing new.", record.draining ? 1 : 0);
  gauge("atoll_fleet_device_lost", "1: the worker takes no jobs, for want of its device.",
        record.device_lost ? 1 : 0);
  gauge("atoll_fleet_missing_models", "Models that the worker should have and has not.",
        static_cast<int64_t>(record.problems.size()));
  return text;
}

}  // namespace atollserve
