// SPDX-License-Identifier: Apache-2.0
//
// A Profile: what `atoll profile` finds out, before it becomes a table, JSON, a trace or a page.
// Two kinds of time, never mixed: *measured* on this computer, and *modelled* in cycles of the
// device.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "atoll/runtime.h"
#include "tools/atoll/session.h"

namespace atollcmd {

// One event of the host's side of the trace. Measured.
struct HostSpan {
  AtollTraceKind kind = ATOLL_TRACE_NODE;
  int32_t run = 0;
  int32_t thread = 0;
  int32_t partition = -1;
  int32_t node = -1;
  int64_t start_ns = 0;  // monotonic clock
  int64_t duration_ns = 0;
};

// One event of the device's side. Modelled; cycles since the start of the partition's request.
struct DeviceSpan {
  std::string mnemonic;
  int32_t partition = 0;
  int32_t node = -1;
  AtollDeviceTime time{};
  int64_t cycles() const { return time.end_cycle - time.start_cycle; }
};

// What the end of an inference has to wait for. Units work side by side, so their busy times say
// little about the whole; these parts add up to it: each stretch of time goes to the instruction
// that pushes the end of all instructions so far further out.
enum class Part {
  kHost,        // submitting and collecting requests
  kLinkOut,     // inputs on their way to the device
  kParameters,  // streamed parameters on their way to the device
  kArray,
  kVector,
  kDma,
  kLinkIn,     // outputs on their way to the host
  kSequencer,  // every unit is idle until the next instruction is issued
};
inline constexpr size_t kPartCount = 8;
const char* PartName(Part part);  // "link out"

// One node of the graph.
struct LayerProfile {
  std::string op;
  std::string output;  // name of its first output tensor
  std::string shape;   // of that
  std::string reason;  // why it is on the CPU; empty if it is not, or without a device
  int32_t partition = -1;
  int64_t macs = 0;  // of the node
  // Modelled: cycles for which units are busy with it.
  int64_t array_cycles = 0;
  int64_t vector_cycles = 0;
  int64_t dma_cycles = 0;
  int64_t parameter_cycles = 0;  // its streamed parameters are on the link
  int64_t added_cycles = 0;      // what it adds to the whole, see Part
  int32_t instructions = 0;
  int64_t computed_macs = 0;    // more than `macs` where bands of rows overlap
  int64_t on_chip_bytes = 0;    // read and written by the array and the vector unit
  int64_t parameter_bytes = 0;  // streamed over the link
  // Measured: median over the runs of the node's time on the CPU; 0 on the device.
  double host_ms = 0;

  int64_t compute_cycles() const { return array_cycles + vector_cycles; }
};

struct PartitionProfile {
  AtollPartitionInfo info{};
  std::vector<AtollMemoryBlock> memory;
  int64_t first_cycle = 0;  // where its request begins if all requests follow one another
  std::array<int64_t, kPartCount> added_cycles{};  // kHost stays 0: it has no cycles
  // Measured, medians over the runs.
  double submit_ms = 0;
  double wait_ms = 0;
};

struct Profile {
  std::vector<LayerProfile> layers;  // by node
  std::vector<PartitionProfile> partitions;
  std::vector<DeviceSpan> device;  // of one inference; it is the same in every run
  std::vector<HostSpan> host;      // of all runs
  std::vector<int64_t> run_start_ns;
  std::vector<double> run_ms;  // measured, in the order of the runs

  // What an inference takes; modelled.
  int64_t device_cycles = 0;
  double modelled_seconds = 0;  // with the host's part
  std::array<double, kPartCount> part_seconds{};
  // Multiply-accumulates per cycle over what the array could do; 0 without cycles.
  double Utilisation(int64_t macs, int64_t cycles) const;
  // Of the whole: what the array does in the cycles in which it is busy, and everything in all
  // cycles of the inference.
  double array_utilisation() const;
  double whole_utilisation() const;

  AtollDeviceInfo device_info{};  // zeros without a device
};

// Runs the model once, to upload what stays on the device, and then `runs` times with a trace.
Profile TakeProfile(Session* session, int runs);

}  // namespace atollcmd
