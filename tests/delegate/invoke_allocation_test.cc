// SPDX-License-Identifier: Apache-2.0
//
// Without a trace, Invoke allocates nothing, on the CPU and on the device, on any thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "delegate/delegate.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/open_device.h"
#include "driver/profiles/device_profile.h"
#include "runtime/interpreter.h"
#include "runtime/kernels/cpu_features.h"
#include "tests/support/absent.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/impatient_transport.h"
#include "tests/support/model_builder.h"
#include "tests/support/open_atoll1.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

TEST(InvokeAllocation, NothingBeforeAndAfterATrace) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 16, 16, 8}), {.channels = 32, .kernel = 3});
  m.Output(m.Conv2D(m.LogSoftmax(x), {.channels = 12}));
  auto device = OpenDevice({.device = "emu", .threads = 1});
  ASSERT_TRUE(device.ok());
  DeviceDelegate delegate(*std::move(device));
  auto created = Interpreter::Create(m.Load(), {.threads = 2, .delegate = &delegate});
  ASSERT_TRUE(created.ok()) << created.status().message();
  Interpreter& interpreter = **created;
  ASSERT_EQ(interpreter.partitions().size(), 2u);

  const auto allocations_of_invokes = [&] {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(interpreter.Invoke().ok());
    const AllocationMeter meter;
    bool all_ok = true;
    for (int i = 0; i < 100; ++i) all_ok &= interpreter.Invoke().ok();
    const int64_t allocations = meter.count();
    EXPECT_TRUE(all_ok);
    return allocations;
  };
  EXPECT_EQ(allocations_of_invokes(), 0);
  int events = 0;
  interpreter.SetTrace([&](const TraceEvent&) { ++events; });
  EXPECT_TRUE(interpreter.Invoke().ok());
  EXPECT_GT(events, 0);
  interpreter.SetTrace(nullptr);
  EXPECT_EQ(allocations_of_invokes(), 0);
}

TEST(InvokeAllocation, TheCounterCounts) {
  const AllocationMeter meter;
  const std::unique_ptr<int> number = std::make_unique<int>(1);
  EXPECT_NE(number, nullptr);
  EXPECT_GT(meter.count(), 0);
}

// Allocations of two invocations after the first two, which a host that has no patience may make.
int64_t CountAllocations(const std::shared_ptr<const Model>& model,
                         const InterpreterOptions& options,
                         std::atomic<bool>* impatient = nullptr) {
  auto created = Interpreter::Create(model, options);
  EXPECT_TRUE(created.ok()) << created.status().message();
  if (!created.ok()) return -1;
  Interpreter& interpreter = **created;
  // Of a float model nothing runs on a device; the CPU's inferences have been counted.
  if (options.delegate != nullptr && interpreter.partitions().empty()) return 0;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(interpreter.Invoke().ok());
  if (impatient != nullptr) *impatient = true;
  const AllocationMeter meter;
  const bool all_ok = interpreter.Invoke().ok() && interpreter.Invoke().ok();
  const int64_t allocations = meter.count();
  if (impatient != nullptr) *impatient = false;
  EXPECT_TRUE(all_ok);
  return allocations;
}

int64_t MacsOf(const Graph& graph) {
  int64_t macs = 0;
  for (const Node& node : graph.nodes) macs += MultiplyAccumulates(graph, node);
  return macs;
}

// Where code is slow (ATOLL_TEST_SCALE below 1: sanitizers, QEMU), a model of more than this is
// left out, for its time alone: edsr, whose sixteen inferences of 55 billion take hours in QEMU.
constexpr int64_t kMostMacsIfSlow = 10'000'000'000;

bool IsForCoral(const Graph& graph) {
  return std::ranges::any_of(graph.nodes,
                             [](const Node& node) { return node.op_name() == kEdgeTpuOperator; });
}

bool IsHybrid(const Graph& graph) {
  return std::ranges::any_of(graph.nodes, [&](const Node& node) {
    return node.type == OpType::kCONV_2D && graph.Input(node, 0)->type == DataType::kFloat32 &&
           graph.Input(node, 1)->type == DataType::kInt8;
  });
}

// Every model in the folder and those below it, at least so many: on the CPU, on the emulated
// device, and on one that takes long, which makes the driver look after it again and again.
void CheckModels(const std::filesystem::path& folder, int least) {
  auto device = OpenDevice({.device = "emu", .threads = 2});
  ASSERT_TRUE(device.ok());
  DeviceDelegate delegate(*std::move(device));
  std::atomic<bool> impatient = false;
  CoreOptions core{.profile = DeviceProfiles()[0], .features = *DetectCpuFeatures()};
  auto emulated = EmulatedTransport::Create(core);
  ASSERT_TRUE(emulated.ok());
  auto slow = OpenAtoll1(std::make_unique<ImpatientTransport>(*std::move(emulated), &impatient),
                         {.name = "slow", .request_timeout_min = std::chrono::minutes(10)});
  ASSERT_TRUE(slow.ok());
  DeviceDelegate slow_delegate(*std::move(slow));
  int checked = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    if (file.path().extension() != ".tflite") continue;
    const auto model = Model::FromFile(file.path().string());
    ASSERT_TRUE(model.ok()) << model.status().message();
    const std::string name = std::filesystem::relative(file.path(), folder).string();
    if (IsForCoral((*model)->graph())) continue;  // runs on one, or something else in its place
    // Hybrids, of int8 weights and activations of floats, run nowhere.
    if (IsHybrid((*model)->graph())) continue;
    ++checked;
    if (TestCount(10) < 10 && MacsOf((*model)->graph()) > kMostMacsIfSlow) continue;
    EXPECT_EQ(CountAllocations(*model, {.threads = 1}), 0) << name << ", 1 thread";
    EXPECT_EQ(CountAllocations(*model, {.threads = 2}), 0) << name << ", 2 threads";
    EXPECT_EQ(CountAllocations(*model, {.threads = 1, .delegate = &delegate}), 0)
        << name << ", emulator";
    EXPECT_EQ(CountAllocations(*model, {.threads = 1, .delegate = &slow_delegate}, &impatient), 0)
        << name << ", slow emulator";
  }
  EXPECT_GE(checked, least) << folder;
}

TEST(InvokeAllocation, NothingInModelsOfTheTree) {
  CheckModels(std::filesystem::path(ATOLL_SOURCE_DIR) / "models", 3);
}

TEST(InvokeAllocation, NothingInSharedModels) {
  const std::filesystem::path folder = std::filesystem::path(ATOLL_SHARED_DIR) / "models";
  if (!std::filesystem::exists(folder)) {
    ReportAbsent("reference data: models in " + folder.string());
    return;
  }
  CheckModels(folder, 33);
}

}  // namespace
}  // namespace atollrt
