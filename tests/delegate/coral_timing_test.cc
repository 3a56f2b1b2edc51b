// SPDX-License-Identifier: Apache-2.0
//
// The prediction of a real Coral: what it counts equals published compiled programs where those
// say it, and its terms behave as the hardware must.
#include "delegate/coral_timing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/zoo/zoo.h"
#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

TimedCoralProgram Describe(const Graph& graph) {
  auto program = DescribeForCoral(graph);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return program.ok() ? *std::move(program) : TimedCoralProgram();
}

TimedCoralProgram OfZoo(const std::string& name) {
  const auto model = BuildZooModel(name, {.weights = ZooOptions::Weights::kZero});
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? Describe(model->graph) : TimedCoralProgram();
}

CoralSetup On(const char* host) {
  return {.rates = FittedCoralRates(), .host = *FindCoralHost(host)};
}

// ---- What published programs hold ---------------------------------------------------------------

// The bytes of the PARAMETER_CACHING executables in google-coral/edgetpu's test_data; for
// Inception v4, with what its other executable streams.
TEST(CoralTiming, ParametersTakeTheBytesOfPublishedPrograms) {
  EXPECT_EQ(OfZoo("mobilenet_v1_0.25_128").parameter_bytes, 518656u);
  EXPECT_EQ(OfZoo("mobilenet_v1_0.5_160").parameter_bytes, 1425024u);
  EXPECT_EQ(OfZoo("mobilenet_v1_0.75_192").parameter_bytes, 2729344u);
  EXPECT_EQ(OfZoo("mobilenet_v2_1.0_224").parameter_bytes, 3900864u);
  EXPECT_EQ(OfZoo("posenet_mobilenet_v1_0.75_353x481").parameter_bytes, 1386432u);
  EXPECT_EQ(OfZoo("deeplab_v3_mobilenet_v2_0.5_513").parameter_bytes, 766720u);
  EXPECT_EQ(OfZoo("deeplab_v3_mobilenet_v2_1.0_513").parameter_bytes, 2337216u);
  EXPECT_EQ(OfZoo("inception_v4_299").parameter_bytes, 6321408u + 37887872u);
}

TEST(CoralTiming, InstructionsAreWithinAThirdOfPublishedPrograms) {
  const struct {
    const char* network;
    double bytes;
  } kPublished[] = {{"mobilenet_v1_0.25_128", 45712},
                    {"mobilenet_v1_0.5_160", 75776},
                    {"mobilenet_v1_0.75_192", 52464},
                    {"mobilenet_v2_1.0_224", 129632},
                    {"inception_v4_299", 605584},
                    {"ssd_mobilenet_v1_1.0_300", 214544},
                    {"ssd_mobilenet_v2_1.0_300", 287456},
                    {"posenet_mobilenet_v1_0.75_353x481", 120176},
                    {"deeplab_v3_mobilenet_v2_0.5_513", 160784}};
  for (const auto& published : kPublished) {
    EXPECT_NEAR(static_cast<double>(OfZoo(published.network).instruction_bytes) / published.bytes,
                1, 0.34)
        << published.network;
  }
}

// Compiled together with MobileNet v1, v2 streams its classifier and nothing else.
TEST(CoralTiming, CachesWhatPublishedProgramsCache) {
  const TimedCoralProgram programs[] = {OfZoo("mobilenet_v1_1.0_224"),
                                        OfZoo("mobilenet_v2_1.0_224")};
  const std::vector<CoralEstimate> pair = EstimateCoCompiled(programs, On("usb3"));
  EXPECT_EQ(pair[0].streamed_bytes, 0u);
  EXPECT_EQ(pair[1].streamed_bytes, 1314816u);
  // Which layers it caches is not known, how much is.
  const CoralEstimate v4 = EstimateCoral(OfZoo("inception_v4_299"), On("usb3"));
  EXPECT_NEAR(static_cast<double>(v4.cached_bytes) / 6321408, 1, 0.03);
}

TEST(CoralTiming, LargePicturesLeaveRoomForParameters) {
  const CoralEstimate e = EstimateCoral(OfZoo("posenet_mobilenet_v1_0.75_721x1281"), On("usb3"));
  EXPECT_EQ(e.streamed_bytes, 0u);
}

// ---- What runs where ----------------------------------------------------------------------------

TEST(CoralTiming, TheFirstOperatorThatACoralLacksEndsTheProgram) {
  ModelBuilder m;
  int32_t x = m.Conv2D(m.Input({1, 8, 8, 4}), {.channels = 8, .kernel = 3});
  x = m.Custom("Mystery", x);
  m.Output(m.Conv2D(x, {.channels = 4}));
  const TimedCoralProgram program = Describe(m.graph());
  EXPECT_EQ(program.device_nodes, 1);
  EXPECT_EQ(program.host_nodes, 2);
  EXPECT_EQ(program.input_bytes, 8u * 8 * 4);
  EXPECT_EQ(program.output_bytes, 8u * 8 * 8);
}

TEST(CoralTiming, OutputsAreWhatTheHostNeeds) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 4, 4, 4});
  const int32_t y = m.Relu(x);
  m.Output(m.Relu(y));  // y stays on the chip
  m.Output(m.Logistic(y));
  EXPECT_EQ(Describe(m.graph()).output_bytes, 2u * 64);
}

TEST(CoralTiming, QuantizingAFloatInputIsLeftToTheHost) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 4, 4, 4});
  m.tensor(x).type = DataType::kFloat32;
  m.tensor(x).quantization = {};
  m.Output(m.Relu(m.Node(OpType::kQUANTIZE, {x}, {1, 4, 4, 4})));
  const TimedCoralProgram program = Describe(m.graph());
  EXPECT_EQ(program.device_nodes, 1);
  EXPECT_EQ(program.input_bytes, 64u);
}

TEST(CoralTiming, NothingToRunIsAnError) {
  ModelBuilder m;
  m.Output(m.Custom("Mystery", m.Input({1, 4})));
  const auto program = DescribeForCoral(m.graph());
  EXPECT_EQ(program.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(program.status().message(), HasSubstr("would run on a Coral"));
}

// ---- Time ---------------------------------------------------------------------------------------

// A layer of 1000 dense operations, and one of 500 parameter bytes.
TimedCoralProgram Small() {
  TimedCoralProgram program;
  program.layers = {{.dense_macs = 1000, .parameter_bytes = 0},
                    {.vector_operations = 600, .parameter_bytes = 500},
                    {.is_issued = false}};
  program.instruction_bytes = 300;
  program.input_bytes = 100;
  program.output_bytes = 50;
  program.parameter_bytes = 500;
  return program;
}

// 10 dense or 2 other operations per cycle, 7 cycles per layer, 100 bytes per second.
CoralSetup Round() {
  return {.rates = {.dense_macs_per_cycle = 10,
                    .vector_operations_per_cycle = 2,
                    .cycles_per_layer = 7},
          .host = {"test", "", 100, 3},
          .clock_hz = 10};
}

TEST(CoralTiming, TimeIsTheSumOfItsParts) {
  const CoralEstimate e = EstimateCoral(Small(), Round());
  EXPECT_DOUBLE_EQ(e.host_seconds, 3);
  EXPECT_DOUBLE_EQ(e.link_out_seconds, 4);
  EXPECT_DOUBLE_EQ(e.dense_seconds, 10);
  EXPECT_DOUBLE_EQ(e.vector_seconds, 30);
  EXPECT_DOUBLE_EQ(e.layer_seconds, 1.4);
  EXPECT_DOUBLE_EQ(e.parameter_seconds, 0);
  EXPECT_DOUBLE_EQ(e.link_in_seconds, 0.5);
  EXPECT_DOUBLE_EQ(e.seconds(), 48.9);
  EXPECT_EQ(e.cached_bytes, 500u);
  EXPECT_DOUBLE_EQ(e.upload_seconds, 5);
}

TEST(CoralTiming, StreamingRunsUnderTheComputationThatFollowsAndHalfOfWhatPrecedes) {
  TimedCoralProgram program = Small();
  program.layers[1].parameter_bytes = 10'000'000;  // does not fit: 100,000 s
  const CoralEstimate e = EstimateCoral(program, Round());
  EXPECT_EQ(e.streamed_bytes, 10'000'000u);
  EXPECT_EQ(e.cached_bytes, 0u);
  // The first layer takes 10.7 s, the second 30.7 s.
  EXPECT_NEAR(e.parameter_seconds, 100'000 - 10.7 / 2 - 30.7, 1e-9);
}

TEST(CoralTiming, ModelsThatFitTogetherCostWhatTheyCostAlone) {
  const TimedCoralProgram programs[] = {OfZoo("mobilenet_v1_0.25_128"),
                                        OfZoo("mobilenet_v1_0.5_160")};
  const std::vector<CoralEstimate> pair = EstimateCoCompiled(programs, On("pcie"));
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_DOUBLE_EQ(pair[i].seconds(), EstimateCoral(programs[i], On("pcie")).seconds());
  }
}

TEST(CoralTiming, HostsAreNamed) {
  EXPECT_GT(FindCoralHost("usb3")->link_bytes_per_second,
            10 * FindCoralHost("usb2")->link_bytes_per_second);
  EXPECT_EQ(FindCoralHost("usb4").status().message(),
            "no Coral host 'usb4'; there are: usb3, usb2, pcie, usb3-pi4");
}

}  // namespace
}  // namespace atollrt
