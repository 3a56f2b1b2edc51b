// SPDX-License-Identifier: Apache-2.0
//
// What the loader reads, the writer writes: files of TensorFlow Lite for every operator, read,
// written and read again, give the same graph.
#include "runtime/tflite/tflite_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "runtime/base/buffer.h"
#include "runtime/base/bytes.h"
#include "runtime/graph/compiled_op.h"
#include "runtime/tflite/tflite_loader.h"
#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

Bytes ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void ExpectSameTensor(const Tensor& got, const Tensor& want) {
  EXPECT_EQ(got.name, want.name);
  EXPECT_EQ(got.type, want.type);
  EXPECT_EQ(got.shape, want.shape);
  EXPECT_EQ(got.is_variable, want.is_variable);
  EXPECT_EQ(got.quantization.scales, want.quantization.scales);
  EXPECT_EQ(got.quantization.zero_points, want.quantization.zero_points);
  EXPECT_EQ(got.quantization.dimension, want.quantization.dimension);
  EXPECT_TRUE(std::equal(got.data.begin(), got.data.end(), want.data.begin(), want.data.end()));
}

void ExpectSameNode(const Node& got, const Node& want) {
  EXPECT_EQ(got.op_name(), want.op_name());
  EXPECT_EQ(got.version, want.version);
  EXPECT_EQ(got.inputs, want.inputs);
  EXPECT_EQ(got.outputs, want.outputs);
  EXPECT_EQ(got.intermediates, want.intermediates);
  EXPECT_EQ(got.options, want.options);
}

void ExpectSameGraph(const Graph& got, const Graph& want) {
  EXPECT_EQ(got.name, want.name);
  EXPECT_EQ(got.inputs, want.inputs);
  EXPECT_EQ(got.outputs, want.outputs);
  ASSERT_EQ(got.tensors.size(), want.tensors.size());
  for (size_t i = 0; i < want.tensors.size(); ++i) {
    ExpectSameTensor(got.tensors[i], want.tensors[i]);
  }
  ASSERT_EQ(got.nodes.size(), want.nodes.size());
  for (size_t i = 0; i < want.nodes.size(); ++i) ExpectSameNode(got.nodes[i], want.nodes[i]);
}

void ExpectSurvives(const std::vector<Graph>& graphs) {
  std::vector<const Graph*> pointers;
  for (const Graph& graph : graphs) pointers.push_back(&graph);
  const auto file = WriteTflite(pointers);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto again = LoadTflite(*file);
  ASSERT_TRUE(again.ok()) << again.status().message();
  ASSERT_EQ(again->graphs.size(), graphs.size());
  for (size_t i = 0; i < graphs.size(); ++i) ExpectSameGraph(again->graphs[i], graphs[i]);
}

TEST(TfliteWriter, WritesWhatTheLoaderReadsOfEveryOperator) {
  std::set<std::string> operators;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(ATOLL_SOURCE_DIR "/tests/golden/ops")) {
    if (entry.path().extension() != ".tflite") continue;
    SCOPED_TRACE(entry.path());
    const Bytes file = ReadFile(entry.path());
    const auto model = LoadTflite(file);
    if (!model.ok()) continue;  // files that must be refused
    ASSERT_NO_FATAL_FAILURE(ExpectSurvives(model->graphs));
    for (const Node& node : model->graphs[0].nodes) operators.insert(node.op_name());
  }
  EXPECT_GE(operators.size(), 60u);
}

TEST(TfliteWriter, KeepsPackedWeightsAligned) {
  const Bytes first(100, 1), second(200, 2);
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 4, 4, 2}), {.channels = 3});
  const int32_t y = m.FullyConnected(m.Reshape(x, {1, 48}), 10);
  m.Output(y);
  m.tensor(m.graph().nodes.front().inputs[1]).packed_weights = first;
  m.tensor(m.graph().nodes.back().inputs[1]).packed_weights = second;
  const auto file = WriteTflite(m.graph());
  ASSERT_TRUE(file.ok()) << file.status().message();
  auto aligned = Buffer::Allocate(file->size());
  ASSERT_TRUE(aligned.ok());
  std::copy(file->begin(), file->end(), aligned->data());
  const auto model = LoadTflite(aligned->bytes());
  ASSERT_TRUE(model.ok()) << model.status().message();
  int found = 0;
  for (const Tensor& tensor : model->graphs[0].tensors) {
    const std::span<const uint8_t> packed = tensor.packed_weights;
    if (packed.empty()) continue;
    ++found;
    const Bytes& want = packed[0] == 1 ? first : second;
    ASSERT_GE(packed.size(), want.size());
    EXPECT_TRUE(std::equal(want.begin(), want.end(), packed.begin()));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(packed.data()) % Buffer::kAlignment, 0u);
  }
  EXPECT_EQ(found, 2);
}

// The table that says which tensors have packed weights is hostile bytes like all others.
TEST(TfliteWriter, WritesATableOfPackedWeightsThatIsChecked) {
  const Bytes packed(100, 1);
  ModelBuilder m;
  m.Output(m.Conv2D(m.Input({1, 4, 4, 2}), {.channels = 3}));
  const int32_t weights = m.graph().nodes[0].inputs[1];
  m.tensor(weights).packed_weights = packed;
  const Bytes good = *WriteTflite(m.graph());
  // Subgraph, tensor, buffer.
  const auto entry = [](uint32_t subgraph, uint32_t tensor, uint32_t buffer) {
    Bytes bytes(kPackedTensorBytes);
    StoreLittleEndian(&bytes[0], subgraph);
    StoreLittleEndian(&bytes[4], tensor);
    StoreLittleEndian(&bytes[8], buffer);
    return bytes;
  };
  const uint32_t tensor = static_cast<uint32_t>(weights);
  const Bytes first = entry(0, tensor, 1);
  const auto place = std::search(good.begin(), good.end(), first.begin(), first.end());
  ASSERT_NE(place, good.end());
  const auto load = [&](const Bytes& instead) {
    Bytes file = good;
    std::copy(instead.begin(), instead.end(), file.begin() + (place - good.begin()));
    return LoadTflite(file).status();
  };
  EXPECT_TRUE(load(first).ok());
  EXPECT_TRUE(load(entry(7, tensor, 1)).ok()) << "of no subgraph";
  EXPECT_TRUE(load(entry(0, tensor, 0)).ok()) << "none";
  const Status no_tensor = load(entry(0, 99, 1));
  EXPECT_EQ(no_tensor.code(), StatusCode::kCorruptModel);
  EXPECT_THAT(no_tensor.message(), HasSubstr("packed weights of tensor 99, but there are 4"));
  const Status no_buffer = load(entry(0, tensor, 1'000));
  EXPECT_EQ(no_buffer.code(), StatusCode::kCorruptModel);
  EXPECT_THAT(no_buffer.message(), HasSubstr("packed weights: buffer index 1000, but there are"));
}

TEST(TfliteWriter, EncodesTheOptionsOfDetectionsThatHaveNoBytes) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           ATOLL_SOURCE_DIR "/tests/golden/ops/tflite_detection_postprocess")) {
    const Bytes file = ReadFile(entry.path());
    auto model = LoadTflite(file);
    if (!model.ok()) continue;
    for (Node& node : model->graphs[0].nodes) node.custom_options = {};
    ASSERT_NO_FATAL_FAILURE(ExpectSurvives(model->graphs)) << entry.path();
    ++count;
  }
  EXPECT_GT(count, 0);
}

TEST(TfliteWriter, EncodesTheOptionsOfPosesThatHaveNoBytes) {
  ModelBuilder m;
  Node node;
  node.custom_name = "PosenetDecoderOp";
  node.options = PosenetOptions{
      .max_detections = 7, .stride = 16, .score_threshold = 0.25f, .nms_radius = 19.5f};
  for (const int32_t channels : {17, 34, 64}) {
    node.inputs.push_back(m.Input({1, 5, 6, channels}));
  }
  for (const Shape& shape : {Shape{1, 7, 17, 2}, Shape{1, 7, 17}, Shape{1, 7}, Shape{1}}) {
    node.outputs.push_back(m.Activation(shape));
    m.tensor(node.outputs.back()).type = DataType::kFloat32;
    m.tensor(node.outputs.back()).quantization = {};
    m.Output(node.outputs.back());
  }
  m.graph().nodes.push_back(node);
  ExpectSurvives({m.graph()});
}

TEST(TfliteWriter, NodesOfOneOperatorAndVersionShareACode) {
  ModelBuilder m;
  int32_t x = m.Input({1, 4});
  for (int i = 0; i < 100; ++i) x = m.Relu(x);
  m.Output(x);
  const size_t one_version = m.Build().size();
  for (size_t i = 0; i < 50; ++i) m.graph().nodes[i].version = 2;
  const size_t two_versions = m.Build().size();
  EXPECT_GT(two_versions, one_version);
  // One more code, and 4 bytes per node that names it; 50 more codes would take over 1000.
  EXPECT_LT(two_versions, one_version + 50 * 4 + 64);
}

TEST(TfliteWriter, StoresOnceWhatTensorsShare) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 4096});
  const int32_t constant = m.Constant({1, 4096});
  m.Output(m.Add(x, constant));
  const size_t once = m.Build().size();
  m.graph().tensors.push_back(m.tensor(constant));
  m.Output(m.Add(x, static_cast<int32_t>(m.graph().tensors.size()) - 1));
  EXPECT_LT(m.Build().size(), once + 1024);
  const std::shared_ptr<const Model> model = m.Load();
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->graph().tensors[static_cast<size_t>(constant)].data.data(),
            model->graph().Input(model->graph().nodes[1], 1)->data.data());
}

TEST(TfliteWriter, RefusesOptionsOfAnotherOperator) {
  ModelBuilder m;
  m.Output(m.Node(OpType::kCONV_2D, {m.Input({1, 4, 4, 1})}, {1, 4, 4, 1}, SoftmaxOptions{}));
  const auto file = WriteTflite(m.graph());
  EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(file.status().message(),
            "node 0 (CONV_2D) 't1': its options are those of another operator");
}

TEST(TfliteWriter, RefusesWhatNoFileCanHold) {
  // The bytes are never touched: 2 GiB of them exist in the span only.
  const uint8_t byte = 0;
  Graph graph;
  graph.tensors.resize(1);
  graph.tensors[0].data = {&byte, size_t{1} << 31};
  const auto file = WriteTflite(graph);
  EXPECT_EQ(file.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(file.status().message(), HasSubstr("less than 2 GiB"));
}

}  // namespace
}  // namespace atollrt
