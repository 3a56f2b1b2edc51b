// SPDX-License-Identifier: Apache-2.0
//
// The zoo's networks are those that were published: multiply-accumulates, parameters and, where
// the real file is there, every layer.
#include "models/zoo/zoo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>

#include "runtime/interpreter.h"
#include "runtime/model.h"
#include "runtime/tflite/tflite_loader.h"
#include "runtime/tflite/tflite_writer.h"
#include "tests/support/absent.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

Graph Shapes(const std::string& name, ZooModel* model) {
  auto built = BuildZooModel(name, {.weights = ZooOptions::Weights::kZero});
  EXPECT_TRUE(built.ok()) << built.status().message();
  if (built.ok()) *model = *std::move(built);
  return model->graph;
}

bool IsWeights(OpType type, size_t position) {
  switch (type) {
    case OpType::kCONV_2D:
    case OpType::kDEPTHWISE_CONV_2D:
    case OpType::kFULLY_CONNECTED:
    case OpType::kTRANSPOSE_CONV:
      return position == 1;
    default:
      return false;
  }
}

struct Size {
  double million_macs = 0;
  double million_weights = 0;  // without biases
};

Size SizeOf(const Graph& graph) {
  Size size;
  for (const Node& node : graph.nodes) {
    size.million_macs += static_cast<double>(MultiplyAccumulates(graph, node)) * 1e-6;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!IsWeights(node.type, i)) continue;
      size.million_weights += static_cast<double>(graph.Input(node, i)->element_count()) * 1e-6;
    }
  }
  return size;
}

// Published figures. Tolerances cover what they leave open: 1000 or 1001 classes, whether biases
// and batch normalization count, rounding.
struct Published {
  const char* network;
  double million_macs, macs_tolerance;
  double million_parameters, parameters_tolerance;
};
constexpr Published kPublished[] = {
    // Howard et al. 2017, table 4, and TensorFlow's list of models: 569 M, 4.24 M.
    {"mobilenet_v1_1.0_224", 568.7, 0.001, 4.24, 0.01},
    {"mobilenet_v1_0.75_192", 239, 0.01, 2.59, 0.015},
    {"mobilenet_v1_0.5_160", 76, 0.01, 1.34, 0.015},
    {"mobilenet_v1_0.25_128", 14, 0.04, 0.47, 0.015},
    // Sandler et al. 2018, table 4: 300 M, 3.4 M.
    {"mobilenet_v2_1.0_224", 300.8, 0.001, 3.47, 0.02},
    // Szegedy et al. 2014: 1.5 G; TensorFlow's version has 6.6 M.
    {"inception_v1_224", 1500, 0.01, 6.6, 0.01},
    // Szegedy et al. 2015: 5.7 G, 23.8 M without the auxiliary classifier.
    {"inception_v3_299", 5713, 0.003, 23.8, 0.01},
    // Szegedy et al. 2016 as in TensorFlow: 12.3 G, 42.7 M; 13.2 G, 55.8 M.
    {"inception_v4_299", 12270, 0.003, 42.7, 0.003},
    {"inception_resnet_v2_299", 13180, 0.003, 55.8, 0.003},
    // He et al. 2015, table 1: 3.8 G, 7.6 G, 11.3 G; 25.6 M, 44.5 M, 60.2 M.
    {"resnet_v1_50_224", 3860, 0.002, 25.56, 0.004},
    {"resnet_v1_101_224", 7570, 0.005, 44.5, 0.004},
    {"resnet_v1_152_224", 11300, 0.003, 60.2, 0.004},
    // TensorFlow's v2 with strides at the end of a stage: 3.5 G.
    {"resnet_v2_50_224", 3480, 0.003, 25.6, 0.005},
    // Simonyan, Zisserman 2014: 15.5 G, 138 M; 19.6 G, 144 M.
    {"vgg16_224", 15470, 0.001, 138.4, 0.001},
    {"vgg19_224", 19630, 0.001, 143.7, 0.001},
    // Huang et al. 2016: 2.87 G with normalization, 8.0 M.
    {"densenet121_224", 2850, 0.01, 7.98, 0.02},
    // Iandola et al. 2016: 1.25 M; 0.8 G to 0.86 G, depending on the padding of the first layer.
    {"squeezenet_v1.0_224", 830, 0.03, 1.248, 0.005},
    {"squeezenet_v1.1_224", 352, 0.02, 1.235, 0.005},
    // The port to PyTorch Image Models: 1.81 G, 3.04 G, 8.00 G; 5.44 M, 6.90 M, 10.59 M.
    {"efficientnet_edgetpu_s_224", 1810, 0.015, 5.44, 0.01},
    {"efficientnet_edgetpu_m_240", 3040, 0.015, 6.90, 0.01},
    {"efficientnet_edgetpu_l_300", 8000, 0.015, 10.59, 0.01},
};

TEST(Zoo, HasThePublishedNumberOfMultiplyAccumulatesAndParameters) {
  for (const Published& published : kPublished) {
    ZooModel model;
    const Size size = SizeOf(Shapes(published.network, &model));
    EXPECT_NEAR(size.million_macs / published.million_macs, 1, published.macs_tolerance)
        << published.network << ": " << size.million_macs << " M multiply-accumulates";
    EXPECT_NEAR(size.million_weights / published.million_parameters, 1,
                published.parameters_tolerance)
        << published.network << ": " << size.million_weights << " M weights";
  }
}

// ---- The same layers as the real files ----------------------------------------------------------

// Operators with weights and what they make, as a multiset: the order may differ, and how data is
// moved around them.
std::map<std::string, int> Layers(const Graph& graph) {
  std::map<std::string, int> layers;
  for (const Node& node : graph.nodes) {
    std::string text = node.op_name();
    if (text == "QUANTIZE" || text == "DEQUANTIZE" || text == "PAD" || text == "RESHAPE" ||
        text == "CONCATENATION") {
      continue;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (IsWeights(node.type, i)) text += " " + ShapeString(graph.Input(node, i)->shape);
    }
    if (node.type != OpType::kCUSTOM) text += " -> " + ShapeString(graph.Output(node).shape);
    ++layers[text];
  }
  return layers;
}

struct RealFile {
  const char* network;
  const char* file;
};

TEST(Zoo, HasTheLayersOfTheRealFiles) {
  const std::filesystem::path folder = std::filesystem::path(ATOLL_SHARED_DIR) / "models";
  if (!std::filesystem::exists(folder)) {
    ReportAbsent("reference data: models in " + folder.string());
    return;
  }
  for (const RealFile& real :
       {RealFile{"mobilenet_v1_0.25_128", "mobilenet_v1_0.25_128_quant"},
        {"mobilenet_v1_0.5_160", "mobilenet_v1_0.5_160_quant"},
        {"mobilenet_v1_0.75_192", "mobilenet_v1_0.75_192_quant"},
        {"mobilenet_v2_1.0_224", "mobilenet_v2_1.0_224_quant"},
        {"ssd_mobilenet_v1_0.75_300", "ssd_mobilenet_v1"},
        {"deeplab_v3_mobilenet_v2_0.5_513", "deeplabv3_mnv2_dm05_pascal_quant"},
        {"posenet_mobilenet_v1_0.75_353x481",
         "posenet_mobilenet_v1_075_353_481_16_quant_decoder"}}) {
    const auto file = Model::FromFile(folder / (std::string(real.file) + ".tflite"));
    ASSERT_TRUE(file.ok()) << file.status().message();
    ZooModel model;
    EXPECT_EQ(Layers(Shapes(real.network, &model)), Layers((*file)->graph())) << real.network;
  }
}

// ---- Files and values ---------------------------------------------------------------------------

TEST(Zoo, EveryUsualNetworkIsAValidFile) {
  for (const std::string& name : ZooNetworks()) {
    ZooModel model;
    const Graph graph = Shapes(name, &model);
    const auto file = WriteTflite(graph);
    ASSERT_TRUE(file.ok()) << name << ": " << file.status().message();
    const auto loaded = LoadTflite(*file);
    ASSERT_TRUE(loaded.ok()) << name << ": " << loaded.status().message();
    EXPECT_EQ(loaded->graphs[0].nodes.size(), graph.nodes.size()) << name;
  }
}

TEST(Zoo, OneSeedGivesTheSameBytesAnotherOthers) {
  const auto bytes = [](uint64_t seed) {
    return *WriteTflite(BuildZooModel("mobilenet_v1_0.25_128", {.seed = seed})->graph);
  };
  EXPECT_EQ(bytes(7), bytes(7));
  EXPECT_NE(bytes(7), bytes(8));
}

TEST(Zoo, RefusesWhatItDoesNotHave) {
  EXPECT_EQ(BuildZooModel("alexnet_224").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(BuildZooModel("alexnet_224").status().message(),
              HasSubstr("mobilenet_v1_<width>_<size>"));
  for (const char* name : {"mobilenet_v1_1.0_", "mobilenet_v1_224", "mobilenet_v1_1.0_224x",
                           "mobilenet_v1_1.0_224 ", "vgg16", ""}) {
    EXPECT_EQ(BuildZooModel(name).status().code(), StatusCode::kNotFound) << name;
  }
  for (const char* name : {"mobilenet_v1_0_224", "mobilenet_v1_nan_224", "mobilenet_v1_99_224",
                           "mobilenet_v1_1.0_8", "mobilenet_v1_1.0_224x99999"}) {
    EXPECT_EQ(BuildZooModel(name).status().code(), StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(BuildZooModel("inception_v4_32").status().message(),
            "inception_v4_32: layer 52 has a window of 3 x 3 on an input of 1 x 1; use a larger "
            "picture");
}

struct Spread {
  double saturated = 0;  // share of values at either end of the range
  double deviation = 0;  // of the stored values
};

Spread SpreadOf(std::span<const uint8_t> bytes) {
  double sum = 0, squares = 0, saturated = 0;
  for (const uint8_t byte : bytes) {
    const int value = static_cast<int8_t>(byte);
    sum += value;
    squares += value * value;
    saturated += value == 127 ? 1 : 0;
  }
  const double count = static_cast<double>(bytes.size());
  const double mean = sum / count;
  return {saturated / count, std::sqrt(std::max(0.0, squares / count - mean * mean))};
}

// Every activation, on random and on smooth pictures, uses a good part of its range and hardly
// ever leaves it.
class ValuesTest : public testing::TestWithParam<const char*> {};

TEST_P(ValuesTest, NeitherSaturateNorVanish) {
  auto zoo = BuildZooModel(GetParam());
  ASSERT_TRUE(zoo.ok()) << zoo.status().message();
  const auto model = Model::FromBuffer(*WriteTflite(zoo->graph));
  ASSERT_TRUE(model.ok()) << model.status().message();
  auto interpreter = Interpreter::Create(*model, {.threads = 2});
  ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
  const Graph& graph = (*model)->graph();
  std::map<int32_t, std::string> producers;
  for (const Node& node : graph.nodes) {
    for (const int32_t output : node.outputs) producers[output] = node.op_name();
  }
  int count = 0;
  double worst_saturated = 0, least_deviation = 1e9;
  (*interpreter)->SetTap([&](int32_t tensor) {
    const std::span<const uint8_t> bytes = (*interpreter)->ConstTensorBytes(tensor);
    const std::string& producer = producers[tensor];
    if (graph.tensors[tensor].type != DataType::kInt8 || producer == "SOFTMAX") return;
    const Spread spread = SpreadOf(bytes);
    // Small tensors (maps of 1 x 1) say little.
    EXPECT_LT(spread.saturated, bytes.size() < 2000 ? 0.15 : 0.05)
        << "tensor " << tensor << " of " << producer;
    EXPECT_GT(spread.deviation, 2) << "tensor " << tensor << " of " << producer;
    worst_saturated = std::max(worst_saturated, spread.saturated);
    least_deviation = std::min(least_deviation, spread.deviation);
    ++count;
  });
  const std::span<uint8_t> input = (*interpreter)->TensorBytes(graph.inputs[0]);
  Rng rng(TestSeed(1));
  rng.Fill(input);
  ASSERT_TRUE((*interpreter)->Invoke().ok());
  EXPECT_GT(count, 20);
  const int32_t width = graph.tensors[graph.inputs[0]].shape[2];
  for (size_t i = 0; i < input.size(); ++i) {
    const int32_t pixel = static_cast<int32_t>(i / 3);
    const double wave = std::sin(0.05 * (pixel % width)) * std::cos(0.03 * (pixel / width));
    input[i] = static_cast<uint8_t>(static_cast<int8_t>(100 * wave));
  }
  ASSERT_TRUE((*interpreter)->Invoke().ok());
  std::printf("%s: at most %.2f %% saturated, deviation at least %.1f\n", GetParam(),
              100 * worst_saturated, least_deviation);
}

INSTANTIATE_TEST_SUITE_P(
    Zoo, ValuesTest,
    testing::Values("mobilenet_v1_0.5_128", "mobilenet_v2_1.0_128", "inception_v1_128",
                    "inception_v3_139", "inception_resnet_v2_139", "resnet_v1_50_96",
                    "resnet_v2_152_64", "densenet121_64", "squeezenet_v1.1_128",
                    "efficientnet_edgetpu_s_128", "ssd_mobilenet_v2_1.0_128",
                    "ssdlite_mobiledet_192", "unet_mobilenet_v2_1.0_128",
                    "deeplab_v3_mobilenet_v2_0.5_129", "posenet_mobilenet_v1_0.75_129x161"));

}  // namespace
}  // namespace atollrt
