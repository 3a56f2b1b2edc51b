// SPDX-License-Identifier: Apache-2.0
//
// A frame must not wait for the allocator: once an executable is resident, Submit and Wait take
// their memory from what earlier requests used.
#include <gtest/gtest.h>

#include "driver/open_device.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

// Runs `executable`, so many requests at a time, until it needs nothing more, and then counts.
void ExpectNoAllocations(Device& device, Executable executable, size_t at_a_time = 1) {
  const std::vector<uint8_t> input(executable.inputs[0].bytes);
  std::vector<uint8_t> output(executable.outputs[0].bytes);
  const auto id = device.Load(std::make_shared<Executable>(std::move(executable)));
  ASSERT_TRUE(id.ok()) << id.status().message();
  const Request request{.executable = *id, .inputs = {input}, .outputs = {output}};
  std::vector<RequestId> ids(at_a_time);
  const auto run = [&] {
    for (RequestId& one : ids) one = *device.Submit(request);
    bool all_ok = true;
    for (const RequestId one : ids) all_ok &= device.Wait(one, nullptr).ok();
    return all_ok;
  };
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(run());
  const AllocationMeter meter;
  bool all_ok = true;
  for (int i = 0; i < 100; ++i) all_ok &= run();
  EXPECT_EQ(meter.count(), 0);
  EXPECT_TRUE(all_ok);
}

TEST(DeviceAllocation, TheSteadyStateAllocatesNothing) {
  for (const char* name : {"emu", "emu:pcie"}) {
    const auto device = OpenDevice({.device = name, .threads = 1});
    ASSERT_TRUE(device.ok());
    for (const uint32_t count : {4u, 10'000u}) {
      SCOPED_TRACE(name);
      ExpectNoAllocations(**device, MakeTableExecutable({.count = count}));
    }
  }
}

TEST(DeviceAllocation, NorDoesItWithSeveralRequestsUnderWay) {
  const auto device = OpenDevice({.device = "emu:pcie", .threads = 1});
  ASSERT_TRUE(device.ok());
  ExpectNoAllocations(**device, MakeTableExecutable({.count = 10'000}), 4);
}

// An image of [1, 8, 8, 4] becomes [1, 16, 16, 4], whose rows are normalised and summed up.
TEST(DeviceAllocation, InstructionsThatNeedScratchAllocateOnce) {
  constexpr uint32_t kIn = 256, kLarge = 1024, kOut = 4;
  constexpr uint32_t kLargeAddress = kIn, kNextAddress = kIn + kLarge;
  Executable executable;
  executable.inference_program = {InputInstruction{.bytes = kIn},
                                  ResizeBilinearInstruction{.output_address = kLargeAddress,
                                                            .batch = 1,
                                                            .input_h = 8,
                                                            .input_w = 8,
                                                            .channels = 4,
                                                            .output_h = 16,
                                                            .output_w = 16,
                                                            .input_rows = 8,
                                                            .output_rows = 16},
                                  SoftmaxInstruction{.input_address = kLargeAddress,
                                                     .output_address = kNextAddress,
                                                     .rows = 256,
                                                     .depth = 4,
                                                     .multiplier = 1 << 30,
                                                     .exponent = 23,
                                                     .min_difference = -200},
                                  ReduceSumInstruction{.input_address = kNextAddress,
                                                       .output_address = kLargeAddress,
                                                       .kept0 = 1,
                                                       .reduced0 = 1,
                                                       .kept1 = 1,
                                                       .reduced1 = 256,
                                                       .kept2 = 4,
                                                       .reduced2 = 1,
                                                       .multiplier = 1 << 30,
                                                       .exponent = -8,
                                                       .clamp_min = -128,
                                                       .clamp_max = 127},
                                  OutputInstruction{.input_address = kLargeAddress, .bytes = kOut},
                                  EndInstruction{}};
  executable.activation_bytes = kIn + 2 * kLarge;
  executable.inputs = {{.name = "x", .shape = {1, 8, 8, 4}, .bytes = kIn}};
  executable.outputs = {{.name = "y", .shape = {1, 4}, .bytes = kOut}};
  const auto device = OpenDevice({.device = "emu", .threads = 2});
  ASSERT_TRUE(device.ok());
  ExpectNoAllocations(**device, std::move(executable));
}

}  // namespace
}  // namespace atollrt
