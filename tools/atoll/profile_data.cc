// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/profile_data.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "tools/atoll/measure.h"
#include "tools/atoll/report.h"

namespace atollcmd {
namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double Median(std::vector<double> samples) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  return Percentile(samples, 50);
}

// What the trace callback writes to.
struct Recording {
  Profile* profile;
  int32_t run = 0;
};

void Record(const AtollTraceEvent* event, void* user_data) {
  const auto* recording = static_cast<Recording*>(user_data);
  Profile* profile = recording->profile;
  if (event->kind != ATOLL_TRACE_DEVICE) {
    profile->host.push_back({.kind = event->kind,
                             .run = recording->run,
                             .thread = event->host.thread,
                             .partition = event->partition,
                             .node = event->node,
                             .start_ns = event->host.start_ns,
                             .duration_ns = event->host.duration_ns});
  } else if (recording->run == 0) {
    profile->device.push_back({.mnemonic = event->name,
                               .partition = event->partition,
                               .node = event->node,
                               .time = event->device});
  }
}

void Run(Session* session, int runs, Profile* profile) {
  session->Invoke();
  Recording recording{profile};
  profile->run_start_ns.reserve(runs);
  profile->run_ms.reserve(runs);
  AtollInterpreterSetTrace(session->interpreter(), Record, &recording);
  for (int run = 0; run < runs; ++run) {
    recording.run = run;
    const int64_t start_ns = NowNs();
    session->Invoke();
    profile->run_start_ns.push_back(start_ns);
    profile->run_ms.push_back(static_cast<double>(NowNs() - start_ns) / 1e6);
  }
  AtollInterpreterSetTrace(session->interpreter(), nullptr, nullptr);
}

void DescribeGraph(const Session& session, Profile* profile) {
  const AtollInterpreter* interpreter = session.interpreter();
  for (const AtollNodeInfo& node : session.nodes()) {
    LayerProfile layer;
    layer.op = node.op;
    layer.reason = node.reason;
    layer.partition = node.partition;
    layer.macs = node.macs;
    if (node.output_count > 0) {
      const AtollTensor* output = AtollInterpreterGetTensor(interpreter, node.outputs[0]);
      layer.output = AtollTensorName(output);
      layer.shape = ShapeText(output);
    }
    profile->layers.push_back(std::move(layer));
  }
  for (const AtollPartitionInfo& info : session.partitions()) {
    PartitionProfile partition;
    partition.info = info;
    const auto memory = session.partition_memory(profile->partitions.size());
    partition.memory.assign(memory.begin(), memory.end());
    profile->partitions.push_back(std::move(partition));
  }
}

// Of an event on a unit or on the link.
Part PartOf(const DeviceSpan& span) {
  switch (span.time.unit) {
    case ATOLL_UNIT_LINK_OUT:
    case ATOLL_UNIT_INFEED:
      return span.mnemonic == "PARAMETERS" ? Part::kParameters : Part::kLinkOut;
    case ATOLL_UNIT_DMA:
      return Part::kDma;
    case ATOLL_UNIT_ARRAY:
      return Part::kArray;
    case ATOLL_UNIT_VECTOR:
      return Part::kVector;
    case ATOLL_UNIT_OUTFEED:
    case ATOLL_UNIT_LINK_IN:
      return Part::kLinkIn;
    case ATOLL_UNIT_SEQUENCER:
      break;
  }
  return Part::kSequencer;
}

void CountBusy(const DeviceSpan& span, LayerProfile* layer) {
  switch (span.time.unit) {
    case ATOLL_UNIT_ARRAY:
      layer->array_cycles += span.cycles();
      layer->on_chip_bytes += span.time.bytes;
      break;
    case ATOLL_UNIT_VECTOR:
      layer->vector_cycles += span.cycles();
      layer->on_chip_bytes += span.time.bytes;
      break;
    case ATOLL_UNIT_DMA:
      layer->dma_cycles += span.cycles();
      break;
    case ATOLL_UNIT_LINK_OUT:
      layer->parameter_cycles += span.cycles();
      layer->parameter_bytes += span.time.bytes;
      return;  // the second event of its instruction
    default:
      break;
  }
  layer->computed_macs += span.time.macs;
  ++layer->instructions;
}

// Walks the instructions in order, see Part.
void Attribute(Profile* profile) {
  int32_t partition = -1;
  int64_t first_cycle = 0;  // of the partition
  int64_t reached = 0;      // the end of all instructions so far
  for (const DeviceSpan& span : profile->device) {
    if (span.partition != partition) {
      partition = span.partition;
      first_cycle += reached;
      reached = 0;
      profile->partitions[partition].first_cycle = first_cycle;
    }
    LayerProfile* layer = span.node >= 0 ? &profile->layers[span.node] : nullptr;
    if (layer != nullptr) CountBusy(span, layer);
    if (span.time.end_cycle <= reached) continue;
    auto& parts = profile->partitions[partition].added_cycles;
    const Part part = PartOf(span);
    const bool is_link = part == Part::kLinkOut || part == Part::kParameters;
    // On the way in, the link has been busy since the request began.
    const int64_t begin = is_link ? reached : std::max(reached, span.time.start_cycle);
    parts[static_cast<size_t>(Part::kSequencer)] += begin - reached;
    parts[static_cast<size_t>(part)] += span.time.end_cycle - begin;
    if (layer != nullptr) layer->added_cycles += span.time.end_cycle - reached;
    reached = span.time.end_cycle;
  }
  profile->device_cycles = first_cycle + reached;
}

void SumUp(Profile* profile) {
  const double clock = static_cast<double>(profile->device_info.clock_hz);
  for (const PartitionProfile& partition : profile->partitions) {
    profile->part_seconds[static_cast<size_t>(Part::kHost)] += partition.info.latency.host;
    for (size_t part = 0; part < kPartCount; ++part) {
      profile->part_seconds[part] += static_cast<double>(partition.added_cycles[part]) / clock;
    }
  }
  profile->modelled_seconds =
      std::accumulate(profile->part_seconds.begin(), profile->part_seconds.end(), 0.0);
}

void TakeMedians(Profile* profile) {
  std::vector<std::vector<double>> node_ms(profile->layers.size());
  std::vector<std::vector<double>> submit_ms(profile->partitions.size());
  std::vector<std::vector<double>> wait_ms(profile->partitions.size());
  for (const HostSpan& span : profile->host) {
    const double ms = static_cast<double>(span.duration_ns) / 1e6;
    if (span.kind == ATOLL_TRACE_NODE) node_ms[span.node].push_back(ms);
    if (span.kind == ATOLL_TRACE_SUBMIT) submit_ms[span.partition].push_back(ms);
    if (span.kind == ATOLL_TRACE_WAIT) wait_ms[span.partition].push_back(ms);
  }
  for (size_t i = 0; i < node_ms.size(); ++i) {
    profile->layers[i].host_ms = Median(std::move(node_ms[i]));
  }
  for (size_t i = 0; i < submit_ms.size(); ++i) {
    profile->partitions[i].submit_ms = Median(std::move(submit_ms[i]));
    profile->partitions[i].wait_ms = Median(std::move(wait_ms[i]));
  }
}

}  // namespace

const char* PartName(Part part) {
  constexpr const char* kNames[] = {"host",   "link out", "parameters", "array",
                                    "vector", "DMA",      "link in",    "sequencer"};
  static_assert(std::size(kNames) == kPartCount);
  return kNames[static_cast<size_t>(part)];
}

double Profile::Utilisation(int64_t macs, int64_t cycles) const {
  const double peak = static_cast<double>(device_info.array_rows) * device_info.array_columns;
  if (cycles == 0 || peak == 0) return 0;
  return static_cast<double>(macs) / (static_cast<double>(cycles) * peak);
}

double Profile::array_utilisation() const {
  int64_t macs = 0;
  int64_t cycles = 0;
  for (const DeviceSpan& span : device) {
    if (span.time.unit != ATOLL_UNIT_ARRAY) continue;
    macs += span.time.macs;
    cycles += span.cycles();
  }
  return Utilisation(macs, cycles);
}

double Profile::whole_utilisation() const {
  int64_t macs = 0;
  for (const LayerProfile& layer : layers) macs += layer.computed_macs;
  return Utilisation(macs, device_cycles);
}

Profile TakeProfile(Session* session, int runs) {
  Profile profile;
  profile.device_info = session->device_info();
  DescribeGraph(*session, &profile);
  Run(session, runs, &profile);
  Attribute(&profile);
  SumUp(&profile);
  TakeMedians(&profile);
  return profile;
}

}  // namespace atollcmd
