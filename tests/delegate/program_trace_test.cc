// SPDX-License-Identifier: Apache-2.0
//
// The trace of an inference on the emulated device: what the events of a whole Invoke add up to.
#include "delegate/program_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "delegate/delegate.h"
#include "driver/open_device.h"
#include "runtime/interpreter.h"
#include "runtime/plan/partition_report.h"
#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;

// Device, CPU, device: SOFTMAX runs on the CPU only.
ModelBuilder TwoPartitions() {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 16, 16, 8}), {.channels = 32, .kernel = 3});
  const int32_t y = m.LogSoftmax(m.DepthwiseConv2D(x, {.kernel = 3}));
  m.Output(m.Mean(m.Conv2D(y, {.channels = 12}), {1, 2}));
  return m;
}

class ProgramTraceTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto device = OpenDevice({.device = GetParam(), .threads = 1});
    ASSERT_TRUE(device.ok());
    delegate_ = std::make_unique<DeviceDelegate>(*std::move(device));
    auto interpreter =
        Interpreter::Create(TwoPartitions().Load(), {.threads = 1, .delegate = delegate_.get()});
    ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
    interpreter_ = *std::move(interpreter);
    ASSERT_EQ(interpreter_->partitions().size(), 2u);
    interpreter_->SetTrace([this](const TraceEvent& event) {
      events_.push_back(event);
      names_.emplace_back(event.name);
    });
    ASSERT_TRUE(interpreter_->Invoke().ok());
  }

  std::vector<TraceEvent> DeviceEvents(int32_t partition) const {
    std::vector<TraceEvent> events;
    for (const TraceEvent& event : events_) {
      if (event.kind == TraceKind::kDevice && event.partition == partition) events.push_back(event);
    }
    return events;
  }

  std::unique_ptr<DeviceDelegate> delegate_;
  std::unique_ptr<Interpreter> interpreter_;
  std::vector<TraceEvent> events_;
  std::vector<std::string> names_;
};

TEST_P(ProgramTraceTest, TheHostSubmitsWaitsAndComputesInTurn) {
  std::vector<std::string> host;
  int64_t end_ns = 0;
  for (size_t i = 0; i < events_.size(); ++i) {
    const TraceEvent& event = events_[i];
    if (event.kind == TraceKind::kDevice) {
      EXPECT_EQ(event.host.start_ns, 0);
      EXPECT_EQ(event.host.duration_ns, 0);
      continue;
    }
    host.push_back(names_[i]);
    EXPECT_EQ(event.device.end_cycle, 0u);
    EXPECT_GE(event.host.start_ns, end_ns);
    end_ns = event.host.start_ns + event.host.duration_ns;
  }
  EXPECT_THAT(host, ElementsAre("submit", "wait", "LOG_SOFTMAX", "submit", "wait"));
}

TEST_P(ProgramTraceTest, UnitsAndLinkAddUpToTheModelledLatency) {
  const double clock = static_cast<double>(delegate_->device().info().clock_hz);
  uint64_t all_cycles = 0;
  for (int32_t p = 0; p < 2; ++p) {
    const PartitionReport& report = *interpreter_->partitions()[p].report;
    std::map<Unit, uint64_t> busy;
    uint64_t parameters = 0;
    uint64_t total = 0;
    uint64_t bytes_out = 0;
    uint64_t bytes_in = 0;
    for (const TraceEvent& event : DeviceEvents(p)) {
      const uint64_t cycles = event.device.end_cycle - event.device.start_cycle;
      busy[event.device.unit] += cycles;
      if (event.device.unit == Unit::kLinkOut) {
        bytes_out += event.device.bytes;
        if (std::string_view(event.name) == "PARAMETERS") parameters += cycles;
      }
      if (event.device.unit == Unit::kLinkIn) bytes_in += event.device.bytes;
      total = std::max(total, event.device.end_cycle);
    }
    const auto cycles_of = [&](double seconds) {
      return static_cast<uint64_t>(seconds * clock + 0.5);
    };
    EXPECT_EQ(busy[Unit::kArray], cycles_of(report.latency.array));
    EXPECT_EQ(busy[Unit::kVector], cycles_of(report.latency.vector));
    EXPECT_EQ(busy[Unit::kDma], cycles_of(report.latency.dma));
    EXPECT_EQ(busy[Unit::kLinkIn], cycles_of(report.latency.link_in));
    EXPECT_EQ(busy[Unit::kLinkOut] - parameters, cycles_of(report.latency.link_out));
    EXPECT_EQ(parameters, cycles_of(report.latency.parameters));
    EXPECT_EQ(total, static_cast<uint64_t>(report.estimated_cycles));
    EXPECT_EQ(bytes_out,
              static_cast<uint64_t>(report.input_bytes + report.streamed_parameter_bytes));
    EXPECT_EQ(bytes_in, static_cast<uint64_t>(report.output_bytes));
    all_cycles += total;
  }
  EXPECT_EQ(interpreter_->last_cost().device_cycles, all_cycles)
      << "what the emulated device counted";
}

TEST_P(ProgramTraceTest, AUnitDoesOneThingAtATime) {
  for (int32_t p = 0; p < 2; ++p) {
    std::map<Unit, uint64_t> free;
    for (const TraceEvent& event : DeviceEvents(p)) {
      EXPECT_GE(event.device.start_cycle, free[event.device.unit]);
      EXPECT_GE(event.device.end_cycle, event.device.start_cycle);
      free[event.device.unit] = event.device.end_cycle;
    }
  }
}

TEST_P(ProgramTraceTest, CountsTheWorkOfEachNode) {
  std::map<int32_t, uint64_t> macs;
  for (int32_t p = 0; p < 2; ++p) {
    for (const TraceEvent& event : DeviceEvents(p)) {
      macs[event.node] += event.device.macs;
      if (event.node < 0) continue;
      EXPECT_EQ(interpreter_->placements()[event.node].partition, p);
    }
  }
  const Graph& graph = interpreter_->graph();
  EXPECT_EQ(macs[-1], 0u);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (interpreter_->placements()[i].partition < 0) continue;
    EXPECT_EQ(macs[static_cast<int32_t>(i)],
              static_cast<uint64_t>(MultiplyAccumulates(graph, graph.nodes[i])))
        << i;
  }
}

// Resident parameters; a slow link; parameters that are streamed.
INSTANTIATE_TEST_SUITE_P(Devices, ProgramTraceTest,
                         testing::Values("emu", "emu:usb2", "emu:32x32", "emu:1mib"));

}  // namespace
}  // namespace atollrt
