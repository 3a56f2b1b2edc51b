// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/profile_page.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string_view>

#include "tools/atoll/percentile.h"
#include "tools/atoll/profile_page_template.h"  // made from profile_page.html, in the build tree

namespace atollcmd {
namespace {

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
    partitions.push_back({{"node_count", info.node_count},
                          {"instruction_count", info.instruction_count},
                          {"resident_parameter_bytes", info.resident_parameter_bytes},
                          {"streamed_parameter_bytes", info.streamed_parameter_bytes},
                          {"activation_bytes", info.activation_bytes},
                          {"input_bytes", info.input_bytes},
                          {"output_bytes", info.output_bytes},
                          {"modelled_cycles", info.estimated_cycles},
                          {"modelled_ms", RoundedMs(info.latency.total * 1e3)},
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

// Text of a script element: nothing in it may end the element or begin a comment.
std::string ScriptText(const Json& json) {
  std::string text;
  for (const char c : JsonText(json)) {
    c == '<' ? text += "\\u003c" : text += c;
  }
  return text;
}

}  // namespace

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

  constexpr std::string_view kPlace = "{{data}}";
  std::string page(kProfilePageTemplate);
  page.replace(page.find(kPlace), kPlace.size(), ScriptText(data));
  return page;
}

}  // namespace atollcmd
