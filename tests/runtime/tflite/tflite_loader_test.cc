// SPDX-License-Identifier: Apache-2.0
//
// The loader takes hostile bytes: whatever they are, it gives a graph that keeps the promises of
// graph.h or a sentence that names what is wrong.
#include "runtime/tflite/tflite_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "runtime/base/bytes.h"
#include "runtime/interpreter.h"
#include "tests/support/harmless.h"
#include "tests/support/model_builder.h"
#include "tflite_generated.h"

namespace atollrt {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

const std::filesystem::path kFashion = ATOLL_SOURCE_DIR "/models/fashion/fashion_int8.tflite";
const std::filesystem::path kGolden = ATOLL_SOURCE_DIR "/tests/golden/ops";

// The message with which a model is refused; the test fails if it is not.
std::string Refusal(const Bytes& bytes) {
  const Loaded loaded = LoadExact(bytes);
  EXPECT_FALSE(loaded.graph.ok());
  return loaded.graph.status().message();
}

StatusCode RefusalCode(const Bytes& bytes) { return LoadExact(bytes).graph.status().code(); }

// ---- Hostile bytes ------------------------------------------------------------------------------

TEST(TfliteLoader, RefusesEveryPrefixOfAModel) {
  const Bytes good = ReadFile(kFashion);
  ASSERT_TRUE(LoadExact(good).graph.ok());
  for (size_t size = 0; size < good.size();) {
    const Loaded loaded = LoadExact(std::span(good).first(size));
    ASSERT_FALSE(loaded.graph.ok()) << size;
    ASSERT_EQ(loaded.graph.status().code(), StatusCode::kCorruptModel) << size;
    ASSERT_FALSE(loaded.graph.status().message().empty()) << size;
    size += size < 4096 || size + 100 >= good.size()
                ? 1
                : std::min<size_t>(61, good.size() - size - 100);
  }
}

TEST(TfliteLoader, SurvivesAnyChangedByteOfAClassifier) {
  ModelBuilder m;
  const int32_t pooled =
      m.MaxPool(m.Conv2D(m.Input({1, 6, 6, 2}), {.channels = 3, .kernel = 3}), {});
  m.Output(m.Softmax(m.FullyConnected(m.Relu(pooled), 4)));
  ExpectHarmlessWithAnyByteChanged(m.Build());
}

TEST(TfliteLoader, SurvivesAnyChangedByteOfABranchedModel) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 4, 4, 2});
  const int32_t sum = m.Add(x, m.DepthwiseConv2D(x, {.kernel = 3}));
  const int32_t wide = m.Concatenation({sum, x}, 3);
  const int32_t flat = m.Reshape(m.Pad(wide, {0, 0, 1, 0, 0, 1, 0, 0}), {1, 100});
  m.Output(flat);
  m.Output(m.Mean(wide, {1, 2}));
  ExpectHarmlessWithAnyByteChanged(m.Build());
}

TEST(TfliteLoader, SurvivesAnyChangedByteOfAModelWithVariables) {
  const auto handle = [](ModelBuilder* m) {
    const int32_t tensor = m->Node(OpType::kVAR_HANDLE, {}, {}, VarHandleOptions{"", "v"});
    m->tensor(tensor).type = DataType::kResource;
    return tensor;
  };
  ModelBuilder init;
  const int32_t start = init.Constant(DataType::kInt8, {1, 2}, {10, 20});
  Node node;
  node.type = OpType::kASSIGN_VARIABLE;
  node.inputs = {handle(&init), start};
  init.graph().nodes.push_back(node);
  ModelBuilder m;
  node.type = OpType::kCALL_ONCE;
  node.inputs = {};
  node.options = CallOnceOptions{1};
  m.graph().nodes.push_back(node);
  const int32_t state = m.Activation({1, 2});
  m.tensor(state).is_variable = true;
  m.Output(m.Add(m.Node(OpType::kREAD_VARIABLE, {handle(&m)}, {1, 2}), state));
  ExpectHarmlessWithAnyByteChanged(WriteGraphs({&m.graph(), &init.graph()}));
}

TEST(TfliteLoader, SurvivesAnyChangedByteOfAFileOfTensorFlowLite) {
  for (const char* name :
       {"quantize", "dequantize", "concatenation", "squeeze", "tflite_detection_postprocess"}) {
    const std::filesystem::directory_iterator first(kGolden / name);
    ASSERT_NO_FATAL_FAILURE(ExpectHarmlessWithAnyByteChanged(ReadFile(first->path())));
  }
}

// A few bytes of table can stand for a megabyte of name, each time.
TEST(TfliteLoader, RefusesSmallFilesThatWouldBeLargeInMemory) {
  flatbuffers::FlatBufferBuilder fbb;
  const auto name = fbb.CreateString(std::string(1 << 20, 'x'));
  std::vector<flatbuffers::Offset<tflite::Tensor>> tensors;
  for (int i = 0; i < 300; ++i) {
    tensors.push_back(
        tflite::CreateTensor(fbb, 0, static_cast<int8_t>(DataType::kInt8), /*buffer=*/0, name));
  }
  const std::vector subgraphs{tflite::CreateSubGraph(fbb, fbb.CreateVector(tensors))};
  const std::vector buffers{tflite::CreateBuffer(fbb)};
  const auto codes = fbb.CreateVector(std::vector<flatbuffers::Offset<tflite::OperatorCode>>());
  const auto stored_subgraphs = fbb.CreateVector(subgraphs);
  tflite::FinishModelBuffer(
      fbb, tflite::CreateModel(fbb, 3, codes, stored_subgraphs, 0, fbb.CreateVector(buffers)));
  const Bytes file{fbb.GetBufferPointer(), fbb.GetBufferPointer() + fbb.GetSize()};
  EXPECT_EQ(RefusalCode(file), StatusCode::kResourceExhausted);
  EXPECT_THAT(Refusal(file), HasSubstr("take more than"));
}

TEST(TfliteLoader, ReadsBackWhatWasWritten) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 9, 7, 3});
  m.Output(m.AveragePool(m.Conv2D(x, {.channels = 5, .kernel = 3, .stride = 2}), {}));
  const Bytes file = m.Build();
  const Loaded loaded = LoadExact(file);
  ASSERT_TRUE(loaded.graph.ok()) << loaded.graph.status().message();
  const Graph& got = *loaded.graph;
  const Graph& want = m.graph();
  ASSERT_EQ(got.tensors.size(), want.tensors.size());
  for (size_t i = 0; i < want.tensors.size(); ++i) {
    EXPECT_EQ(got.tensors[i].name, want.tensors[i].name);
    EXPECT_EQ(got.tensors[i].shape, want.tensors[i].shape);
    EXPECT_EQ(got.tensors[i].type, want.tensors[i].type);
    EXPECT_EQ(got.tensors[i].quantization.scales, want.tensors[i].quantization.scales);
    EXPECT_TRUE(std::equal(got.tensors[i].data.begin(), got.tensors[i].data.end(),
                           want.tensors[i].data.begin(), want.tensors[i].data.end()));
  }
  ASSERT_EQ(got.nodes.size(), 2u);
  EXPECT_EQ(got.nodes[0].inputs, want.nodes[0].inputs);
  EXPECT_EQ(std::get<Conv2DOptions>(got.nodes[0].options).stride_w, 2);
  EXPECT_EQ(std::get<Pool2DOptions>(got.nodes[1].options).filter_h, 2);
  EXPECT_EQ(got.inputs, want.inputs);
  EXPECT_EQ(got.outputs, want.outputs);
}

// ---- Messages name the thing and the numbers ----------------------------------------------------

// One convolution on one input; tensors: 0 input, 1 weights, 2 bias, 3 output.
class Refused : public testing::Test {
 protected:
  Refused() { m_.Output(m_.Conv2D(m_.Input({1, 4, 4, 2}), {.channels = 3, .kernel = 3})); }

  std::string Message() { return Refusal(m_.Build()); }
  StatusCode Code() { return RefusalCode(m_.Build()); }
  Node& node() { return m_.graph().nodes[0]; }

  ModelBuilder m_;
};

TEST_F(Refused, NoTfliteFileSaysSo) {
  const std::string text = "GIF89a, or whatever else it may be";
  EXPECT_THAT(Refusal({text.begin(), text.end()}), HasSubstr("not a .tflite file: 34 bytes"));
}

TEST_F(Refused, AnotherSchemaVersionIsNamed) {
  Bytes file = m_.Build();
  // Field 0 of the root table, which is found through its vtable.
  const uint32_t root = LoadLittleEndian<uint32_t>(file.data());
  const int32_t vtable = LoadLittleEndian<int32_t>(&file[root]);
  const size_t field = root - static_cast<size_t>(vtable) + 4;
  uint8_t& version = file[root + LoadLittleEndian<uint16_t>(&file[field])];
  ASSERT_EQ(version, 3);
  version = 2;
  EXPECT_EQ(Refusal(file), "schema version is 2, must be 3");
}

TEST_F(Refused, DynamicShapeNamesTheTensor) {
  m_.tensor(0).shape = {-1, 4, 4, 2};
  EXPECT_EQ(Code(), StatusCode::kUnsupported);
  EXPECT_THAT(
      Message(),
      HasSubstr("tensor 0 't0' of node 0 (CONV_2D) 't3' has the dynamic shape [-1, 4, 4, 2]"));
}

TEST_F(Refused, UnknownTypeIsNumbered) {
  m_.tensor(0).type = static_cast<DataType>(77);
  EXPECT_EQ(Code(), StatusCode::kUnsupported);
  EXPECT_THAT(Message(), HasSubstr("tensor 0 't0' of node 0 (CONV_2D) 't3' has type 77"));
}

TEST_F(Refused, ReadBeforeWriteNamesNodeAndTensor) {
  node().inputs[0] = m_.Activation({1, 4, 4, 2});
  EXPECT_EQ(Message(), "node 0 (CONV_2D) 't3' reads tensor 4 't4' before anything has written it");
}

TEST_F(Refused, SecondWriteNamesNodeAndTensor) {
  m_.graph().nodes.push_back(node());
  EXPECT_EQ(Message(), "node 1 (CONV_2D) 't3' writes tensor 3 't3', which is written already");
}

TEST_F(Refused, WriteToAConstantNamesNodeAndTensor) {
  node().outputs[0] = 1;
  EXPECT_EQ(Message(), "node 0 (CONV_2D) 't1' writes tensor 1 't1', which is a constant");
}

TEST_F(Refused, UnwrittenOutputIsNamed) {
  m_.Output(m_.Activation({1}));
  EXPECT_EQ(Message(), "graph output tensor 4 't4' is never written");
}

TEST_F(Refused, TensorIndexOutOfRangeNamesTheNode) {
  node().inputs[1] = 99;
  EXPECT_EQ(Message(), "node 0 (CONV_2D) 't3': input tensor index 99, but there are 4 tensors");
  node().inputs[1] = -2;
  EXPECT_EQ(Message(), "node 0 (CONV_2D) 't3': input tensor index -2, but there are 4 tensors");
}

TEST_F(Refused, AbsentOutputIsAnError) {
  node().outputs[0] = -1;
  EXPECT_EQ(Message(), "node 0 (CONV_2D): output tensor index -1, but there are 4 tensors");
}

TEST_F(Refused, ShortConstantGivesBothSizes) {
  m_.tensor(1).data = m_.tensor(1).data.first(50);
  EXPECT_EQ(Message(),
            "tensor 1 't1' of node 0 (CONV_2D) 't3': shape [3, 3, 3, 2] of int8 needs 54 bytes, "
            "its buffer has 50");
}

TEST_F(Refused, BufferThatIsNotThereIsNumbered) {
  Bytes file = m_.Build();
  const tflite::Tensor* weights =
      tflite::GetModel(file.data())->subgraphs()->Get(0)->tensors()->Get(1);
  const uint8_t* field =
      reinterpret_cast<const flatbuffers::Table*>(weights)->GetAddressOf(tflite::Tensor::VT_BUFFER);
  file[static_cast<size_t>(field - file.data())] = 77;
  EXPECT_EQ(Refusal(file),
            "tensor 1 't1' of node 0 (CONV_2D) 't3': buffer index 77, but there are 3 buffers");
}

TEST_F(Refused, HugeShapeIsNoOverflow) {
  m_.tensor(0).shape = {65536, 65536, 65536, 65536};
  EXPECT_THAT(
      Message(),
      HasSubstr(
          "tensor 0 't0' of node 0 (CONV_2D) 't3': shape [65536, 65536, 65536, 65536] of int8"));
}

TEST_F(Refused, HugeShapeOfAnUnusedTensorIsNoOverflow) {
  m_.Activation({65536, 65536, 65536, 65536});
  EXPECT_THAT(Message(), HasSubstr("tensor 4 't4': shape [65536, 65536, 65536, 65536] of int8"));
}

TEST_F(Refused, NonFiniteScaleIsNamed) {
  m_.tensor(0).quantization.scales = {std::numeric_limits<float>::infinity()};
  EXPECT_EQ(Message(), "tensor 0 't0' of node 0 (CONV_2D) 't3': scale[0] is inf");
}

TEST_F(Refused, ZeroScaleOfAnActivationIsNamed) {
  m_.tensor(3).quantization.scales = {0};
  EXPECT_EQ(Message(), "tensor 3 't3' of node 0 (CONV_2D) 't3': scale[0] is 0");
}

TEST_F(Refused, ZeroPointOutsideItsTypeIsNamed) {
  m_.tensor(0).quantization.zero_points = {128};
  EXPECT_EQ(
      Message(),
      "tensor 0 't0' of node 0 (CONV_2D) 't3': zero_point[0] is 128, outside the range of int8");
}

TEST_F(Refused, ScalesAlongAMissingDimensionAreAnError) {
  m_.tensor(1).quantization.dimension = 4;
  EXPECT_EQ(Message(),
            "tensor 1 't1' of node 0 (CONV_2D) 't3': quantized dimension 4, but the shape is [3, "
            "3, 3, 2]");
}

TEST_F(Refused, WrongNumberOfScalesGivesBothNumbers) {
  m_.tensor(1).quantization.dimension = 3;
  EXPECT_EQ(
      Message(),
      "tensor 1 't1' of node 0 (CONV_2D) 't3': 3 scales for dimension 3 of shape [3, 3, 3, 2]");
}

TEST_F(Refused, ZeroPointsMustMatchScalesInNumber) {
  m_.tensor(1).quantization.zero_points = {0, 0};
  EXPECT_EQ(Message(), "tensor 1 't1' of node 0 (CONV_2D) 't3': 3 scales but 2 zero points");
}

TEST_F(Refused, ZeroStrideNamesTheNode) {
  std::get<Conv2DOptions>(node().options).stride_w = 0;
  EXPECT_EQ(Message(), "node 0 (CONV_2D) 't3': stride_w is 0, must be 1 to 65535");
}

TEST_F(Refused, MissingOptionsNameTheNode) {
  node().options = {};
  EXPECT_EQ(Message(), "node 0 (CONV_2D) 't3': its options are missing or of another operator");
}

// Whoever looks at a node may read its first input and output.
TEST(TfliteLoader, RefusesNodesWithoutInputsOrOutputs) {
  int models = 0;
  for (const auto& folder : std::filesystem::directory_iterator(kGolden)) {
    if (!folder.is_directory() || folder.path().filename() == "error") continue;
    const std::filesystem::directory_iterator first(folder);
    Loaded loaded = LoadExact(ReadFile(first->path()));
    if (!loaded.graph.ok() || loaded.graph->nodes.empty()) continue;
    Graph good = *std::move(loaded.graph);
    good.nodes.resize(1);
    good.outputs.clear();
    const OpType type = good.nodes[0].type;
    SCOPED_TRACE(first->path().string());
    if (type != OpType::kCALL_ONCE && type != OpType::kASSIGN_VARIABLE) {
      Graph bad = good;
      bad.nodes[0].outputs.clear();
      EXPECT_THAT(Refusal(WriteGraphs({&bad})), HasSubstr("has no outputs"));
    }
    if (type != OpType::kCALL_ONCE && type != OpType::kVAR_HANDLE) {
      Graph bad = good;
      bad.nodes[0].inputs.clear();
      EXPECT_THAT(Refusal(WriteGraphs({&bad})), HasSubstr("has no inputs"));
    }
    ++models;
  }
  EXPECT_GE(models, 60);
}

// As many parts as the dimension has elements: none.
TEST(TfliteLoader, RefusesUnpackWithoutOutputs) {
  ModelBuilder m;
  m.Output(m.Node(OpType::kUNPACK, {m.Input({0, 2})}, {2}, AxisOptions{.axis = 0, .count = 0}));
  m.graph().nodes[0].outputs.clear();
  m.graph().outputs = m.graph().inputs;
  EXPECT_EQ(Refusal(m.Build()), "node 0 (UNPACK): has no outputs");
}

TEST_F(Refused, OutputTooLargeNamesNodeAndTensor) {
  const int32_t list = m_.Integers({4, 2}, {0, 0, 0, 1 << 20, 0, 1 << 20, 0, 0});
  m_.Output(m_.Node(OpType::kPAD, {3, list}, {}));
  EXPECT_EQ(Code(), StatusCode::kUnsupported);
  EXPECT_THAT(Message(), HasSubstr("node 1 (PAD) 't5' writes tensor 5 't5' of shape"));
}

// ---- What only the CPU can judge ----------------------------------------------------------------

std::string PrepareRefusal(const ModelBuilder& m) {
  auto interpreter = Interpreter::Create(m.Load(), {.threads = 1});
  EXPECT_FALSE(interpreter.ok());
  EXPECT_EQ(interpreter.status().code(), StatusCode::kUnsupported);
  return interpreter.status().message();
}

TEST(Prepare, UnknownCustomOperatorIsNamed) {
  ModelBuilder m;
  m.Output(m.Custom("FlyToTheMoon", m.Input({1, 4})));
  EXPECT_EQ(PrepareRefusal(m),
            "node 0 (FlyToTheMoon) 't1': Atoll has no custom operator of this name");
}

TEST(Prepare, ModelsCompiledForACoralAreRecognized) {
  ModelBuilder m;
  m.Output(m.Custom("edgetpu-custom-op", m.Relu(m.Input({1, 4}))));
  EXPECT_THAT(PrepareRefusal(m),
              AllOf(HasSubstr("node 1 (edgetpu-custom-op)"), HasSubstr("compiled for a Coral")));
}

TEST(Prepare, UnknownOperatorIsNamed) {
  ModelBuilder m;
  m.Output(m.Node(OpType::kLSTM, {m.Input({1, 4})}, {1, 4}));
  EXPECT_EQ(PrepareRefusal(m), "node 0 (LSTM) 't1': Atoll has no operator of this name");
}

TEST(Prepare, OperatorWithoutANameIsNumbered) {
  ModelBuilder m;
  m.Output(m.Node(static_cast<OpType>(207), {m.Input({1, 4})}, {1, 4}));
  EXPECT_THAT(PrepareRefusal(m), HasSubstr("node 0 (operator 207)"));
}

TEST(Prepare, UnknownVersionIsNamed) {
  ModelBuilder m;
  m.Output(m.Relu(m.Input({1, 4})));
  m.graph().nodes[0].version = 1000;
  EXPECT_EQ(PrepareRefusal(m), "node 0 (RELU) 't1': version 1000; the newest known one is 3");
}

TEST(Prepare, OtherTypesAreNamed) {
  ModelBuilder m;
  m.Output(m.Relu(m.Input({1, 4})));
  m.tensor(0).type = DataType::kInt32;
  EXPECT_THAT(PrepareRefusal(m),
              HasSubstr("'t0' has type int32, must be float32, uint8, int16 or int8"));
}

TEST(Prepare, ShapesBehindAnUnknownOperatorAreNotBlamed) {
  ModelBuilder m;
  const int32_t x = m.Node(OpType::kWHERE, {m.Input({1, 4, 4, 2})}, {});
  m.Output(m.Node(OpType::kMAX_POOL_2D, {x}, {}, Pool2DOptions{}));
  EXPECT_EQ(RefusalCode(m.Build()), StatusCode::kUnsupported);
  EXPECT_THAT(Refusal(m.Build()),
              HasSubstr("node 0 (WHERE) 't1': Atoll has no operator of this name"));
}

}  // namespace
}  // namespace atollrt
