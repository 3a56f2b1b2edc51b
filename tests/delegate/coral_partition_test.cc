// SPDX-License-Identifier: Apache-2.0
//
// Models that hold operators for a Coral, on one that is made up (tests/support/fake_coral.h): each
// such operator is a partition, everything else stays on the CPU.
#include "delegate/coral_partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "delegate/delegate.h"
#include "driver/coral/coral_chip.h"
#include "driver/device/device.h"
#include "runtime/interpreter.h"
#include "runtime/plan/partition_report.h"
#include "tests/support/coral_packages.h"
#include "tests/support/fake_coral.h"
#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Bytes = std::vector<uint8_t>;
using Sent = FakeCoralState::Sent;

class CoralPartitionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // What the programs of CachingModel do; each byte of the output is 0x80 on the cable, 0 here.
    coral_->on_payload = [](FakeCoralState& state, const Sent& sent) {
      const size_t count = state.sent.size();
      const auto before = [&](size_t n) {
        return count > n ? state.sent[count - 1 - n].payload[0] : 0;
      };
      if (sent.tag == 2 && before(1) == 0x11) state.Event(4);
      if (sent.tag == 1) state.output.assign(16, static_cast<uint8_t>(sent.payload[0] + 1));
      if (sent.tag == 0 && sent.payload[0] == 0x22) {
        state.output.assign(8, 0x85);
        state.Event(4);
      }
    };
    auto chip = CoralChip::Open(std::make_unique<FakeCoral>(coral_, &clock_),
                                {.name = "coral", .now = clock_.Function()});
    ASSERT_TRUE(chip.ok()) << chip.status().message();
    delegate_ = std::make_unique<DeviceDelegate>(
        std::make_unique<Device>(*std::move(chip), ChipKeeper::Options{.now = clock_.Function()}));
  }

  // An operator for a Coral: [1, 6] to [1, 2, 3, 2].
  int32_t ForCoral(ModelBuilder& m, int32_t input, const PackedModel& model, int more = 0) {
    options_.push_back(WriteCoralOptions(WritePackage(model), more));
    const int32_t output = m.Node(OpType::kCUSTOM, {input}, {1, 2, 3, 2});
    m.graph().nodes.back().custom_name = kEdgeTpuOperator;
    m.graph().nodes.back().custom_options = options_.back();
    return output;
  }

  Status Refusal(const ModelBuilder& m) {
    const auto interpreter = Interpreter::Create(m.Load(), {.delegate = delegate_.get()});
    return interpreter.ok() ? Status() : interpreter.status();
  }

  FakeClock clock_;
  std::shared_ptr<FakeCoralState> coral_ = std::make_shared<FakeCoralState>();
  std::unique_ptr<DeviceDelegate> delegate_;
  std::vector<Bytes> options_;
};

TEST_F(CoralPartitionTest, OperatorsForTheCoralRunThereAndOthersHere) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 6});
  const int32_t a = ForCoral(m, m.Relu(x), CachingModel(7));
  const int32_t b = ForCoral(m, x, CachingModel(7, 1));
  m.Output(m.Relu(a));
  m.Output(b);
  auto interpreter = Interpreter::Create(m.Load(), {.delegate = delegate_.get()});
  ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
  ASSERT_THAT((*interpreter)->partitions(), SizeIs(2));
  EXPECT_THAT((*interpreter)->partitions()[0].nodes, SizeIs(1));
  EXPECT_EQ((*interpreter)->partitions()[0].report->resident_parameter_bytes, 8);
  EXPECT_EQ((*interpreter)->partitions()[0].report->streamed_parameter_bytes, 4);
  EXPECT_EQ((*interpreter)->placements()[0].partition, -1);
  EXPECT_THAT((*interpreter)->placements()[0].reason, HasSubstr("not compiled for the Edge TPU"));
  for (int run = 0; run < 2; ++run) {
    coral_->sent.clear();
    const Status status = (*interpreter)->Invoke();
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_THAT(coral_->sent, SizeIs(run == 0 ? 12 : 8)) << "parameters are sent once";
  }
}

TEST_F(CoralPartitionTest, OrdinaryModelsRunOnTheCpuForAReason) {
  ModelBuilder m;
  m.Output(m.Relu(m.Input({1, 4})));
  auto interpreter = Interpreter::Create(m.Load(), {.delegate = delegate_.get()});
  ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
  EXPECT_THAT((*interpreter)->partitions(), SizeIs(0));
  EXPECT_THAT((*interpreter)->placements()[0].reason, HasSubstr("edgetpu_compiler"));
  EXPECT_TRUE((*interpreter)->Invoke().ok());
  EXPECT_THAT(coral_->sent, SizeIs(0));
}

TEST_F(CoralPartitionTest, AFailedRunFailsTheInferenceAndTheNextSucceeds) {
  ModelBuilder m;
  m.Output(ForCoral(m, m.Input({1, 6}), CachingModel(7)));
  auto interpreter = Interpreter::Create(m.Load(), {.delegate = delegate_.get()});
  ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
  coral_->before = [](uint8_t endpoint) {
    return endpoint == 0x81 ? InvalidArgument("stall") : Status();
  };
  EXPECT_EQ((*interpreter)->Invoke().code(), StatusCode::kDeviceLost);
  coral_->before = nullptr;
  EXPECT_TRUE((*interpreter)->Invoke().ok());
}

TEST_F(CoralPartitionTest, WhatDoesNotFitTheModelIsRefused) {
  {
    ModelBuilder m;
    m.Output(ForCoral(m, m.Input({1, 7}), CachingModel(7)));
    const Status status = Refusal(m);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("node 0 (edgetpu-custom-op)"),
                                        HasSubstr("input 0 of shape [1, 7] has 7 bytes, in its "
                                                  "package 6")));
  }
  {
    ModelBuilder m;
    m.Output(ForCoral(m, m.Input({1, 6}), StandAloneModel()));
    EXPECT_THAT(Refusal(m).message(), HasSubstr("input 0 is int8, in its package uint8"));
  }
  {
    ModelBuilder m;
    m.Output(ForCoral(m, m.Input({1, 6}), CachingModel(7), /*more=*/1));
    EXPECT_THAT(Refusal(m).message(), HasSubstr("2 packages"));
  }
  {
    ModelBuilder m;
    m.Output(m.Custom(kEdgeTpuOperator, m.Input({1, 6})));
    EXPECT_EQ(Refusal(m).code(), StatusCode::kCorruptModel);
  }
  {
    PackedModel model = CachingModel(7);
    model.executables[0].complete = false;
    ModelBuilder m;
    m.Output(ForCoral(m, m.Input({1, 6}), model));
    EXPECT_THAT(Refusal(m).message(), HasSubstr("LSTM"));
  }
  EXPECT_THAT(coral_->sent, SizeIs(0));
}

TEST_F(CoralPartitionTest, ACoralCompilesNothing) {
  ModelBuilder m;
  m.Output(m.Relu(m.Input({1, 4})));
  EXPECT_EQ(delegate_->Compile(*m.Load()).code(), StatusCode::kUnsupported);
  EXPECT_EQ(delegate_->CompileExecutables(m.Load()->graph()).code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace atollrt
