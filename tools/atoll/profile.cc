// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/atoll/files.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/profile_data.h"
#include "tools/atoll/profile_page_template.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommand.h"

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

double CyclesToMs(const Profile& profile, int64_t cycles) {
  return RoundedMs(static_cast<double>(cycles) / static_cast<double>(profile.device_info.clock_hz) *
                   1e3);
}

Json LatencyJson(const Profile& profile) {
  AtollModelledLatency busy = {};
  for (const PartitionProfile& partition : profile.partitions) {
    const AtollModelledLatency& latency = partition.info.latency;
    busy.link_out += latency.link_out;
    busy.parameters += latency.parameters;
    busy.array += latency.array;
    busy.vector += latency.vector;
    busy.dma += latency.dma;
    busy.link_in += latency.link_in;
  }
  Json parts = Json::object();
  for (size_t part = 0; part < kPartCount; ++part) {
    parts[PartName(static_cast<Part>(part))] = RoundedMs(profile.part_seconds[part] * 1e3);
  }
  return {{"ms", RoundedMs(profile.modelled_seconds * 1e3)},
          {"cycles", profile.device_cycles},
          {"parts_ms", std::move(parts)},
          {"busy_ms",
           {{"link out", RoundedMs(busy.link_out * 1e3)},
            {"parameters", RoundedMs(busy.parameters * 1e3)},
            {"array", RoundedMs(busy.array * 1e3)},
            {"vector", RoundedMs(busy.vector * 1e3)},
            {"DMA", RoundedMs(busy.dma * 1e3)},
            {"link in", RoundedMs(busy.link_in * 1e3)}}},
          {"array_utilisation", profile.array_utilisation()},
          {"whole_utilisation", profile.whole_utilisation()},
          {"array_rows", profile.device_info.array_rows},
          {"array_columns", profile.device_info.array_columns},
          {"clock_hz", profile.device_info.clock_hz},
          {"memory_bytes", profile.device_info.memory_bytes},
          {"link_bytes_per_second", profile.device_info.link_bytes_per_second}};
}

Json MeasuredJson(const Profile& profile) {
  std::vector<double> sorted = profile.run_ms;
  std::sort(sorted.begin(), sorted.end());
  Json runs = Json::array();
  for (const double ms : profile.run_ms) runs.push_back(RoundedMs(ms));
  return {{"runs", sorted.size()},
          {"latency_ms",
           {{"min", RoundedMs(sorted.front())},
            {"median", RoundedMs(Percentile(sorted, 50))},
            {"p90", RoundedMs(Percentile(sorted, 90))},
            {"max", RoundedMs(sorted.back())}}},
          {"runs_ms", std::move(runs)}};
}

Json PartitionsJson(const Profile& profile) {
  Json partitions = Json::array();
  for (const PartitionProfile& partition : profile.partitions) {
    const AtollPartitionInfo& info = partition.info;
    Json& json = partitions.emplace_back(PartitionJson(info));
    json.update({{"modelled_ms", RoundedMs(info.latency.total * 1e3)},
                 {"measured_submit_ms", RoundedMs(partition.submit_ms)},
                 {"measured_wait_ms", RoundedMs(partition.wait_ms)},
                 {"note", info.note}});
  }
  return partitions;
}

Json LayersJson(const Profile& profile) {
  Json layers = Json::array();
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    const LayerProfile& layer = profile.layers[i];
    Json json = {{"node", i},
                 {"op", layer.op},
                 {"output", layer.output},
                 {"shape", layer.shape},
                 {"partition", layer.partition},
                 {"reason", layer.reason},
                 {"macs", layer.macs},
                 {"measured_cpu_ms", RoundedMs(layer.host_ms)}};
    if (layer.partition >= 0) {
      json["modelled"] = {
          {"added_ms", CyclesToMs(profile, layer.added_cycles)},
          {"added_cycles", layer.added_cycles},
          {"array_cycles", layer.array_cycles},
          {"vector_cycles", layer.vector_cycles},
          {"dma_cycles", layer.dma_cycles},
          {"parameter_cycles", layer.parameter_cycles},
          {"instructions", layer.instructions},
          {"computed_macs", layer.computed_macs},
          {"on_chip_bytes", layer.on_chip_bytes},
          {"parameter_bytes", layer.parameter_bytes},
          {"utilisation", profile.Utilisation(layer.computed_macs, layer.compute_cycles())}};
    } else {
      json["modelled"] = nullptr;
    }
    layers.push_back(std::move(json));
  }
  return layers;
}

// ---- What only the page shows -------------------------------------------------------------------

// [partition, unit, node, instruction, start cycle, end cycle, bytes, mnemonic], cycles from the
// start of the first request.
Json SpansJson(const Profile& profile, std::vector<std::string>* mnemonics) {
  std::map<std::string, size_t> index;
  Json spans = Json::array();
  for (const DeviceSpan& span : profile.device) {
    if (span.time.unit == ATOLL_UNIT_SEQUENCER) continue;
    const auto [found, is_new] = index.emplace(span.mnemonic, mnemonics->size());
    if (is_new) mnemonics->push_back(span.mnemonic);
    const int64_t first = profile.partitions[span.partition].first_cycle;
    spans.push_back({span.partition, static_cast<int>(span.time.unit), span.node,
                     span.time.instruction, first + span.time.start_cycle,
                     first + span.time.end_cycle, span.time.bytes, found->second});
  }
  return spans;
}

// Per partition blocks [kind, tensor name, node, offset, bytes, start cycle, end cycle].
Json MemoryJson(const Session& session, const Profile& profile) {
  Json partitions = Json::array();
  for (size_t p = 0; p < profile.partitions.size(); ++p) {
    const PartitionProfile& partition = profile.partitions[p];
    // When each instruction is on its unit.
    std::vector<int64_t> start(partition.info.instruction_count);
    std::vector<int64_t> end(partition.info.instruction_count);
    for (const DeviceSpan& span : profile.device) {
      const bool is_link =
          span.time.unit == ATOLL_UNIT_LINK_OUT || span.time.unit == ATOLL_UNIT_LINK_IN;
      if (is_link || span.partition != static_cast<int32_t>(p)) continue;
      start[span.time.instruction] = partition.first_cycle + span.time.start_cycle;
      end[span.time.instruction] = partition.first_cycle + span.time.end_cycle;
    }
    Json blocks = Json::array();
    for (const AtollMemoryBlock& block : partition.memory) {
      const char* name =
          block.tensor < 0
              ? ""
              : AtollTensorName(AtollInterpreterGetTensor(session.interpreter(), block.tensor));
      blocks.push_back({static_cast<int>(block.kind), name, block.node, block.offset, block.bytes,
                        start[block.first_instruction], end[block.last_instruction]});
    }
    partitions.push_back(std::move(blocks));
  }
  return partitions;
}

// [node, node that reads what it writes].
Json EdgesJson(const Session& session) {
  const std::vector<AtollNodeInfo> nodes = session.nodes();
  std::map<int32_t, size_t> writer;  // by tensor
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (int32_t k = 0; k < nodes[i].output_count; ++k) writer[nodes[i].outputs[k]] = i;
  }
  Json edges = Json::array();
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (int32_t k = 0; k < nodes[i].input_count; ++k) {
      const auto found = writer.find(nodes[i].inputs[k]);
      if (found != writer.end()) edges.push_back({found->second, i});
    }
  }
  return edges;
}

// The run in the middle: [kind, thread, partition, node, start ns, duration ns].
Json HostJson(const Profile& profile) {
  std::vector<size_t> order(profile.run_ms.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return profile.run_ms[a] < profile.run_ms[b]; });
  const size_t median = order[(order.size() - 1) / 2];
  Json spans = Json::array();
  for (const HostSpan& span : profile.host) {
    if (span.run != static_cast<int32_t>(median)) continue;
    spans.push_back({static_cast<int>(span.kind), span.thread, span.partition, span.node,
                     span.start_ns - profile.run_start_ns[median], span.duration_ns});
  }
  return {{"run", median}, {"spans", std::move(spans)}};
}

Json ProfileJson(const Session& session, const Profile& profile) {
  Json report = NewReport("profile", session);
  report["modelled"] = profile.partitions.empty() ? Json() : LatencyJson(profile);
  report["measured"] = MeasuredJson(profile);
  report["partitions"] = PartitionsJson(profile);
  report["layers"] = LayersJson(profile);
  return report;
}

std::string ProfilePage(const Session& session, const Profile& profile) {
  Json data = {{"report", ProfileJson(session, profile)}};
  std::vector<std::string> mnemonics;
  data["spans"] = SpansJson(profile, &mnemonics);
  data["mnemonics"] = mnemonics;
  data["memory"] = MemoryJson(session, profile);
  data["edges"] = EdgesJson(session);
  data["host"] = HostJson(profile);

  return FillPage(kProfilePageTemplate, data);
}

struct ProfileOptions {
  SessionOptions session;
  int runs = 10;
  size_t top = 15;
  std::string trace;
  std::string report;
  bool json = false;
};

// Layers, those with the most of `amount` first.
std::vector<size_t> LayersBy(const Profile& profile, auto amount) {
  std::vector<size_t> order(profile.layers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return profile.layers[a].*amount > profile.layers[b].*amount;
  });
  return order;
}

// Converters join the names of everything that they fused.
std::string ShortName(const std::string& name) {
  constexpr size_t kMost = 60;
  const std::string first = name.substr(0, name.find(';'));
  return Printable(first.size() <= kMost ? first : first.substr(0, kMost) + "...");
}

std::string Bar(double share) {
  constexpr double kWidth = 40;
  const auto length = static_cast<size_t>(share * kWidth + 0.5);
  return length == 0 ? "" : "  " + std::string(length, '#');
}

void AddLatencyText(const Profile& profile, std::string* text) {
  auto out = std::back_inserter(*text);
  fmt::format_to(out,
                 "\nmodelled {:.3f} ms per inference on the device, of which the end waits for\n",
                 profile.modelled_seconds * 1e3);
  for (size_t part = 0; part < kPartCount; ++part) {
    const double seconds = profile.part_seconds[part];
    if (seconds == 0) continue;
    const double share = seconds / profile.modelled_seconds;
    fmt::format_to(out, "  {:<10} {:>9.4f} ms {:>5.1f}%{}\n", PartName(static_cast<Part>(part)),
                   seconds * 1e3, share * 100, Bar(share));
  }
  fmt::format_to(
      out,
      "array    {:.1f}% of its {} multiply-accumulates a cycle while it is busy, {:.1f}% "
      "of the whole inference\n",
      profile.array_utilisation() * 100,
      Thousands(int64_t{profile.device_info.array_rows} * profile.device_info.array_columns),
      profile.whole_utilisation() * 100);
}

void AddLayersText(const Profile& profile, size_t count, std::string* text) {
  auto out = std::back_inserter(*text);
  fmt::format_to(
      out, "\n{} slowest layers, modelled\n  {:>4} {:<24} {:>9} {:>6} {:>10} {:>10} {:>6}  {}\n",
      count, "node", "operator", "ms", "share", "MMAC", "MAC/cycle", "peak", "output");
  const double clock = static_cast<double>(profile.device_info.clock_hz);
  const std::vector<size_t> order = LayersBy(profile, &LayerProfile::added_cycles);
  for (size_t i = 0; i < count; ++i) {
    const LayerProfile& layer = profile.layers[order[i]];
    const double seconds = static_cast<double>(layer.added_cycles) / clock;
    const double cycles = static_cast<double>(std::max<int64_t>(layer.compute_cycles(), 1));
    if (layer.added_cycles == 0) break;
    fmt::format_to(out, "  {:>4} {:<24} {:>9.4f} {:>5.1f}% {:>10.3f} {:>10.1f} {:>5.1f}%  {} {}\n",
                   order[i], Printable(layer.op), seconds * 1e3,
                   seconds / profile.modelled_seconds * 100, static_cast<double>(layer.macs) / 1e6,
                   static_cast<double>(layer.computed_macs) / cycles,
                   profile.Utilisation(layer.computed_macs, layer.compute_cycles()) * 100,
                   layer.shape, ShortName(layer.output));
  }
}

void AddHostText(const Profile& profile, size_t count, std::string* text) {
  auto out = std::back_inserter(*text);
  std::vector<double> sorted = profile.run_ms;
  std::sort(sorted.begin(), sorted.end());
  fmt::format_to(out,
                 "\nmeasured on this host, {} runs with a trace: min {:.3f}  median {:.3f}  max "
                 "{:.3f} ms\n",
                 sorted.size(), sorted.front(), Percentile(sorted, 50), sorted.back());
  for (size_t i = 0; i < profile.partitions.size(); ++i) {
    fmt::format_to(out, "  partition {:<14} {:>9.4f} ms to submit and to wait\n", i,
                   profile.partitions[i].submit_ms + profile.partitions[i].wait_ms);
  }
  const std::vector<size_t> order = LayersBy(profile, &LayerProfile::host_ms);
  for (size_t i = 0; i < std::min(count, order.size()); ++i) {
    const LayerProfile& layer = profile.layers[order[i]];
    if (layer.host_ms == 0) break;
    fmt::format_to(out, "  {:>4} {:<19} {:>9.4f} ms on the CPU  {} {}\n", order[i],
                   Printable(layer.op), layer.host_ms, layer.shape, ShortName(layer.output));
  }
}

std::string ReportText(const Session& session, const ProfileOptions& options,
                       const Profile& profile) {
  std::string text =
      fmt::format("model    {}\ndevice   {}: {}\nplan     {}\n", session.options().model,
                  session.device_name(), session.device_description(), session.PartitionSummary());
  const size_t count = std::min(options.top, profile.layers.size());
  if (!profile.device.empty()) {
    AddLatencyText(profile, &text);
    AddLayersText(profile, count, &text);
  }
  AddHostText(profile, count, &text);
  return text;
}

void RunProfile(const ProfileOptions& options) {
  if (!options.trace.empty()) CheckOutputFile("--trace", options.trace);
  if (!options.report.empty()) CheckOutputFile("--report", options.report);
  Session session(options.session);
  FillInputs(session, /*seed=*/1, {});
  session.Announce();
  std::optional<Progress> progress;
  progress.emplace(fmt::format("profiling '{}'", options.session.model));
  const Profile profile = TakeProfile(&session, options.runs);
  progress.reset();

  OutputFiles files;
  const auto write = [&](const char* option, const std::string& path, const std::string& content) {
    files.Add(option, path, content.data(), content.size());
  };
  if (!options.trace.empty()) write("--trace", options.trace, JsonText(TraceJson(profile)) + "\n");
  if (!options.report.empty()) write("--report", options.report, ProfilePage(session, profile));
  files.Commit();
  Print(
      options.json, [&] { return ProfileJson(session, profile); },
      [&] { return ReportText(session, options, profile); });
}

}  // namespace

void AddProfileCommand(CLI::App* app) {
  Subcommand<ProfileOptions> command(app, "profile", RunProfile);
  AddSessionOptions(&command, &command->session);
  command.Add("--runs", command->runs)->check(CLI::Range(1, 100'000));
  command.Add("--top", command->top)->check(CLI::Range(1, 1'000'000));
  command.Add("--trace", command->trace);
  command.Add("--report", command->report);
  command.Flag("--json", command->json);
}

}  // namespace atollcmd
