// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/profile_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace atollcmd {
namespace {

constexpr int kHostProcess = 1;
constexpr int kDeviceProcess = 2;
// Tracks of a process, in the order of display.
constexpr int kRunsTrack = 1;
constexpr int kFirstThreadTrack = 2;
constexpr int kRequestsTrack = 1;
constexpr AtollDeviceUnit kUnitsInOrder[] = {
    ATOLL_UNIT_LINK_OUT, ATOLL_UNIT_INFEED,  ATOLL_UNIT_DMA,    ATOLL_UNIT_ARRAY,
    ATOLL_UNIT_VECTOR,   ATOLL_UNIT_OUTFEED, ATOLL_UNIT_LINK_IN};

int TrackOf(AtollDeviceUnit unit) {
  const auto* found = std::find(std::begin(kUnitsInOrder), std::end(kUnitsInOrder), unit);
  return kRequestsTrack + 1 + static_cast<int>(found - std::begin(kUnitsInOrder));
}

Json Metadata(int process, int track, const char* what, Json value) {
  return {{"ph", "M"},
          {"ts", 0},
          {"dur", 0},
          {"pid", process},
          {"tid", track},
          {"name", what},
          {"args", std::move(value)}};
}

void AddTrack(int process, int track, const std::string& name, Json* events) {
  events->push_back(Metadata(process, track, "thread_name", {{"name", name}}));
  events->push_back(Metadata(process, track, "thread_sort_index", {{"sort_index", track}}));
}

// Times in microseconds, the unit of the format.
Json Slice(int process, int track, double start_us, double duration_us, std::string name,
           Json args) {
  return {{"ph", "X"},    {"ts", start_us},          {"dur", duration_us},     {"pid", process},
          {"tid", track}, {"name", std::move(name)}, {"args", std::move(args)}};
}

// Whole picoseconds, so that no digits of rounding show.
double Rounded(double us) { return std::round(us * 1e6) / 1e6; }

double Microseconds(int64_t ns) { return Rounded(static_cast<double>(ns) / 1e3); }

void AddHost(const Profile& profile, Json* events) {
  events->push_back(Metadata(kHostProcess, 0, "process_name", {{"name", "host (measured)"}}));
  events->push_back(Metadata(kHostProcess, 0, "process_sort_index", {{"sort_index", 1}}));
  AddTrack(kHostProcess, kRunsTrack, "runs", events);
  int32_t threads = 1;
  for (const HostSpan& span : profile.host) threads = std::max(threads, span.thread + 1);
  for (int32_t thread = 0; thread < threads; ++thread) {
    AddTrack(kHostProcess, kFirstThreadTrack + thread,
             thread == 0 ? "thread 0 (invokes)" : fmt::format("thread {}", thread), events);
  }
  if (profile.run_start_ns.empty()) return;
  const int64_t origin_ns = profile.run_start_ns.front();
  for (size_t run = 0; run < profile.run_ms.size(); ++run) {
    events->push_back(Slice(kHostProcess, kRunsTrack,
                            Microseconds(profile.run_start_ns[run] - origin_ns),
                            profile.run_ms[run] * 1e3, fmt::format("run {}", run), Json::object()));
  }
  for (const HostSpan& span : profile.host) {
    Json args = {{"run", span.run}};
    std::string name;
    if (span.node >= 0) {
      const LayerProfile& layer = profile.layers[span.node];
      name = layer.op;
      args["node"] = span.node;
      args["output"] = layer.output;
    } else {
      name = span.kind == ATOLL_TRACE_SUBMIT ? "submit" : "wait";
      args["partition"] = span.partition;
    }
    events->push_back(Slice(kHostProcess, kFirstThreadTrack + span.thread,
                            Microseconds(span.start_ns - origin_ns), Microseconds(span.duration_ns),
                            std::move(name), std::move(args)));
  }
}

void AddDevice(const Profile& profile, Json* events) {
  if (profile.partitions.empty()) return;
  const double us_per_cycle = 1e6 / static_cast<double>(profile.device_info.clock_hz);
  events->push_back(
      Metadata(kDeviceProcess, 0, "process_name", {{"name", "device (modelled cycles)"}}));
  events->push_back(Metadata(kDeviceProcess, 0, "process_sort_index", {{"sort_index", 2}}));
  const double mhz = static_cast<double>(profile.device_info.clock_hz) / 1e6;
  events->push_back(Metadata(kDeviceProcess, 0, "process_labels",
                             {{"labels", fmt::format("{:g} MHz, one inference", mhz)}}));
  AddTrack(kDeviceProcess, kRequestsTrack, "requests", events);
  for (const AtollDeviceUnit unit : kUnitsInOrder) {
    AddTrack(kDeviceProcess, TrackOf(unit), AtollDeviceUnitName(unit), events);
  }
  for (size_t p = 0; p < profile.partitions.size(); ++p) {
    const PartitionProfile& partition = profile.partitions[p];
    const double start = static_cast<double>(partition.first_cycle);
    const auto cycles = static_cast<double>(partition.info.estimated_cycles);
    events->push_back(Slice(kDeviceProcess, kRequestsTrack, start * us_per_cycle,
                            cycles * us_per_cycle, fmt::format("partition {}", p),
                            {{"cycles", partition.info.estimated_cycles},
                             {"instructions", partition.info.instruction_count}}));
  }
  for (const DeviceSpan& span : profile.device) {
    const AtollDeviceTime& time = span.time;
    if (time.unit == ATOLL_UNIT_SEQUENCER) continue;  // END takes no time
    const int64_t first = profile.partitions[span.partition].first_cycle;
    Json args = {{"partition", span.partition},     {"instruction", time.instruction},
                 {"issue_cycle", time.issue_cycle}, {"start_cycle", time.start_cycle},
                 {"end_cycle", time.end_cycle},     {"bytes", time.bytes}};
    if (time.macs > 0) args["macs"] = time.macs;
    if (span.node >= 0) {
      args["node"] = span.node;
      args["op"] = profile.layers[span.node].op;
      args["output"] = profile.layers[span.node].output;
    }
    events->push_back(Slice(kDeviceProcess, TrackOf(time.unit),
                            static_cast<double>(first + time.start_cycle) * us_per_cycle,
                            static_cast<double>(span.cycles()) * us_per_cycle, span.mnemonic,
                            std::move(args)));
  }
}

}  // namespace

Json TraceJson(const Profile& profile) {
  Json events = Json::array();
  AddHost(profile, &events);
  AddDevice(profile, &events);
  return {{"displayTimeUnit", "ns"},
          {"otherData",
           {{"atoll", AtollVersion()},
            {"host", "measured on this computer"},
            {"device", "modelled; its clock has nothing to do with the host's"}}},
          {"traceEvents", std::move(events)}};
}

}  // namespace atollcmd
