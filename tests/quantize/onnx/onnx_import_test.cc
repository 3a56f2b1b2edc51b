// SPDX-License-Identifier: Apache-2.0
#include "quantize/onnx/onnx_import.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "runtime/interpreter.h"
#include "runtime/model.h"
#include "tests/support/absent.h"
#include "tests/support/allocation_meter.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

// ---- A writer of protobuf, as plain as can be ----

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string Number(uint32_t field, uint64_t value) { return Varint(field << 3) + Varint(value); }
std::string Bytes(uint32_t field, const std::string& bytes) {
  return Varint((field << 3) | 2) + Varint(bytes.size()) + bytes;
}
std::string NodeProto(const std::string& op, const std::vector<std::string>& inputs,
                      const std::string& output, const std::string& attributes = "") {
  std::string node;
  for (const std::string& input : inputs) node += Bytes(1, input);
  return Bytes(1, node + Bytes(2, output) + Bytes(3, "the " + op) + Bytes(4, op) + attributes);
}
std::string IntAttribute(const std::string& name, int64_t value) {
  return Bytes(5, Bytes(1, name) + Number(3, static_cast<uint64_t>(value)));
}
std::string TypedAttribute(const std::string& name, int64_t value) {
  return Bytes(5, Bytes(1, name) + Number(3, static_cast<uint64_t>(value)) + Number(20, 2));
}
std::string FloatAttribute(const std::string& name, float value) {
  std::string bytes(sizeof(value), 0);
  std::memcpy(bytes.data(), &value, sizeof(value));
  return Bytes(5, Bytes(1, name) + Varint((2 << 3) | 5) + bytes + Number(20, 1));
}
std::string Value(uint32_t field, const std::string& name, const std::vector<int64_t>& dims) {
  std::string shape;
  for (const int64_t size : dims) {
    shape += Bytes(1, size < 0 ? Bytes(2, "N") : Number(1, static_cast<uint64_t>(size)));
  }
  return Bytes(field, Bytes(1, name) + Bytes(2, Bytes(1, Number(1, 1) + Bytes(2, shape))));
}
std::string Initializer(const std::string& name, const std::vector<int64_t>& dims,
                        const std::vector<float>& values) {
  std::string tensor;
  for (const int64_t size : dims) tensor += Number(1, static_cast<uint64_t>(size));
  const std::string raw(reinterpret_cast<const char*>(values.data()),
                        values.size() * sizeof(float));
  return Bytes(5, tensor + Number(2, 1) + Bytes(8, name) + Bytes(9, raw));
}
std::vector<uint8_t> ModelProto(const std::string& graph, int64_t opset = 13) {
  const std::string model =
      Number(1, 7) + Bytes(8, Number(2, static_cast<uint64_t>(opset))) + Bytes(7, graph);
  return {model.begin(), model.end()};
}

std::string ErrorOf(const std::vector<uint8_t>& bytes, const OnnxOptions& options = {}) {
  const auto result = ImportOnnx(bytes, options);
  return result.ok() ? "imported" : result.status().message();
}

std::vector<float> Outputs(const std::vector<uint8_t>& model, const std::vector<float>& input,
                           size_t output = 0) {
  const auto loaded = Model::FromBuffer(model);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  const auto interpreter = Interpreter::Create(*loaded, {.threads = 1});
  EXPECT_TRUE(interpreter.ok()) << interpreter.status().message();
  const Graph& graph = (*loaded)->graph();
  const std::span<uint8_t> bytes = (*interpreter)->TensorBytes(graph.inputs[0]);
  EXPECT_EQ(bytes.size(), input.size() * sizeof(float));
  std::memcpy(bytes.data(), input.data(), bytes.size());
  const Status status = (*interpreter)->Invoke();
  EXPECT_TRUE(status.ok()) << status.message();
  const std::span<const uint8_t> result = (*interpreter)->TensorBytes(graph.outputs[output]);
  std::vector<float> values(result.size() / sizeof(float));
  std::memcpy(values.data(), result.data(), result.size());
  return values;
}

TEST(OnnxImport, PicturesBecomeChannelsLast) {
  // Two channels of 1x2 pixels, negated by a 1x1 convolution, then a ReLU.
  const std::string graph = NodeProto("Conv", {"x", "w"}, "y") + NodeProto("Relu", {"y"}, "z") +
                            Initializer("w", {2, 2, 1, 1}, {0, -1, -1, 0}) +
                            Value(11, "x", {1, 2, 1, 2}) + Value(12, "z", {1, 2, 1, 2});
  const auto nhwc = ImportOnnx(ModelProto(graph));
  ASSERT_TRUE(nhwc.ok()) << nhwc.status().message();
  EXPECT_THAT(Outputs(*nhwc, {-1, -2, -3, 4}), ::testing::ElementsAre(2, 1, 0, 3));
  const auto stored = ImportOnnx(ModelProto(graph), {{}, OnnxLayout::kAsStored});
  ASSERT_TRUE(stored.ok()) << stored.status().message();
  EXPECT_THAT(Outputs(*stored, {-1, -2, -3, 4}), ::testing::ElementsAre(3, 0, 1, 2));
  // The activation is the convolution's.
  const auto loaded = Model::FromBuffer(*nhwc);
  ASSERT_TRUE(loaded.ok());
  ASSERT_EQ((*loaded)->graph().nodes.size(), 1u);
}

TEST(OnnxImport, WhatCannotBeTakenIsNamed) {
  const std::string ends = Value(11, "x", {1, 2, 4, 4}) + Value(12, "y", {1, 2, 4, 4});
  EXPECT_THAT(ErrorOf(ModelProto(NodeProto("Erf", {"x"}, "y") + ends)),
              HasSubstr("node 0 'the Erf' (Erf, opset 13): this operator cannot be imported"));
  EXPECT_THAT(ErrorOf(ModelProto(NodeProto("Relu", {"x"}, "y") + ends, 18)),
              HasSubstr("opset 18; 7 to 17 are supported"));
  EXPECT_THAT(ErrorOf(ModelProto(NodeProto("Relu", {"q"}, "y") + ends)),
              HasSubstr("input 'q' is computed by no node before it"));
  EXPECT_THAT(ErrorOf(ModelProto(
                  NodeProto("ArgMax", {"x"}, "y", IntAttribute("select_last_index", 1)) + ends)),
              HasSubstr("(ArgMax, opset 13): select_last_index 1"));
  EXPECT_THAT(ErrorOf(ModelProto(NodeProto("Relu", {"x"}, "z") + ends)),
              HasSubstr("output 'y' is computed by no node"));
  EXPECT_THAT(ErrorOf({}), HasSubstr("0 bytes without a graph"));
}

// Two anchors, the second of which is far from the first; the node of TensorFlow Lite behind inputs
// of rows and columns.
std::string DetectionNode(const std::string& attributes, const std::string& outputs) {
  const std::string name = "TFLite_Detection_PostProcess";
  return Bytes(1, Bytes(1, "boxes") + Bytes(1, "scores") + Bytes(1, "anchors") + outputs +
                      Bytes(4, name) + Bytes(7, "tflite") + attributes);
}
const std::string& DetectionOutputs() {
  static const std::string outputs = Bytes(2, "b") + Bytes(2, "c") + Bytes(2, "s") + Bytes(2, "n");
  return outputs;
}
std::string DetectionAttributes(int64_t classes = 2) {
  return TypedAttribute("max_detections", 3) + TypedAttribute("max_classes_per_detection", 1) +
         TypedAttribute("num_classes", classes) + FloatAttribute("nms_score_threshold", 0.5f) +
         FloatAttribute("nms_iou_threshold", 0.5f) + FloatAttribute("y_scale", 10) +
         FloatAttribute("x_scale", 10) + FloatAttribute("h_scale", 5) +
         FloatAttribute("w_scale", 5);
}
std::string DetectionEnds() {
  return Initializer("scores", {1, 2, 2}, {0.25f, 0.75f, 0.875f, 0}) +
         Initializer("anchors", {2, 4}, {0.25f, 0.25f, 0.5f, 0.5f, 0.75f, 0.75f, 0.5f, 0.5f}) +
         Value(11, "boxes", {1, 2, 4}) + Value(12, "b", {1, 3, 4}) + Value(12, "c", {1, 3}) +
         Value(12, "s", {1, 3}) + Value(12, "n", {1});
}

TEST(OnnxImport, DetectionsAreThoseOfTensorFlowLite) {
  const auto imported = ImportOnnx(
      ModelProto(DetectionNode(DetectionAttributes(), DetectionOutputs()) + DetectionEnds()));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  const std::vector<float> encodings(8, 0);
  const std::vector<float> boxes = Outputs(*imported, encodings, 0);
  ASSERT_EQ(boxes.size(), 12u);
  EXPECT_THAT(std::vector(boxes.begin(), boxes.begin() + 8),
              ::testing::ElementsAre(0.5f, 0.5f, 1, 1, 0, 0, 0.5f, 0.5f));
  EXPECT_THAT(Outputs(*imported, encodings, 1), ::testing::ElementsAre(0, 1, ::testing::_));
  EXPECT_THAT(Outputs(*imported, encodings, 2),
              ::testing::ElementsAre(0.875f, 0.75f, ::testing::_));
  EXPECT_THAT(Outputs(*imported, encodings, 3), ::testing::ElementsAre(2));
}

TEST(OnnxImport, DetectionsThatCannotBeTakenAreNamed) {
  const auto error = [](const std::string& attributes, const std::string& outputs) {
    return ErrorOf(ModelProto(DetectionNode(attributes, outputs) + DetectionEnds()));
  };
  const std::string& outputs = DetectionOutputs();
  EXPECT_THAT(error("", outputs), HasSubstr("option max_detections is missing"));
  EXPECT_THAT(error(DetectionAttributes(0), outputs), HasSubstr("num_classes is 0, must be 1 to"));
  EXPECT_THAT(error(DetectionAttributes(5), outputs),
              HasSubstr("2 columns of scores for 5 classes"));
  EXPECT_THAT(error(DetectionAttributes() + IntAttribute("of no type", 1), outputs),
              HasSubstr("its attribute 'of no type' is no number"));
  EXPECT_THAT(error(DetectionAttributes(), Bytes(2, "b")),
              HasSubstr("it has 3 inputs and 1 outputs, must have 3 and 4"));
  const std::string other =
      Bytes(1, Bytes(1, "x") + Bytes(2, "y") + Bytes(4, "PosenetDecoderOp") + Bytes(7, "tflite"));
  EXPECT_THAT(ErrorOf(ModelProto(other + Value(11, "x", {1, 2}) + Value(12, "y", {1, 2}))),
              HasSubstr("only TFLite_Detection_PostProcess can be imported"));
  const std::string foreign =
      Bytes(1, Bytes(1, "x") + Bytes(2, "y") + Bytes(4, "Relu") + Bytes(7, "com.example"));
  EXPECT_THAT(ErrorOf(ModelProto(foreign + Value(11, "x", {1, 2}) + Value(12, "y", {1, 2}))),
              HasSubstr("its domain 'com.example' is not ONNX's own"));
}

TEST(OnnxImport, SymbolsAreOneUnlessAShapeIsGiven) {
  const std::string graph =
      NodeProto("Relu", {"x"}, "y") + Value(11, "x", {-1, 3}) + Value(12, "y", {-1, 3});
  const auto one = ImportOnnx(ModelProto(graph));
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ((*Model::FromBuffer(*one))->graph().tensors[0].shape, (Shape{1, 3}));
  OnnxOptions options;
  options.input_shapes = {{"x", {4, 3}}};
  const auto four = ImportOnnx(ModelProto(graph), options);
  ASSERT_TRUE(four.ok()) << four.status().message();
  EXPECT_EQ((*Model::FromBuffer(*four))->graph().tensors[0].shape, (Shape{4, 3}));
  options.input_shapes = {{"q", {4, 3}}};
  EXPECT_THAT(ErrorOf(ModelProto(graph), options), HasSubstr("no input 'q'; its first one is x"));
}

// Every byte of a small file changed, and every length of it: an error or a model, never a crash.
TEST(OnnxImport, DamagedFilesAreRefused) {
  const std::vector<uint8_t> file =
      ModelProto(NodeProto("Conv", {"x", "w"}, "y") + NodeProto("Softmax", {"y"}, "z") +
                 Initializer("w", {2, 2, 1, 1}, {0, -1, -1, 0}) + Value(11, "x", {1, 2, 1, 2}) +
                 Value(12, "z", {1, 2, 1, 2}));
  const std::vector<uint8_t> detections =
      ModelProto(DetectionNode(DetectionAttributes(), DetectionOutputs()) + DetectionEnds());
  for (const std::vector<uint8_t>& whole : {file, detections}) {
    for (size_t size = 0; size < whole.size(); ++size) {
      (void)ImportOnnx(std::span(whole).first(size));
    }
    for (size_t i = 0; i < whole.size(); ++i) {
      for (const int change : {0x01, 0x08, 0x40, 0x80, 0xff}) {
        std::vector<uint8_t> damaged = whole;
        damaged[i] = static_cast<uint8_t>(damaged[i] ^ change);
        (void)ImportOnnx(damaged);
      }
    }
    EXPECT_TRUE(ImportOnnx(whole).ok());
  }
}

// ---- Small files that ask for much ----

std::string Whole(const std::string& name, const std::vector<int64_t>& dims,
                  const std::vector<int64_t>& values) {
  std::string tensor;
  for (const int64_t size : dims) tensor += Number(1, static_cast<uint64_t>(size));
  for (const int64_t value : values) tensor += Number(7, static_cast<uint64_t>(value));
  return Bytes(5, tensor + Number(2, 7) + Bytes(8, name));
}
std::string Repeated(const std::string& bytes, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += bytes;
  return all;
}
const std::string& PictureEnds() {
  static const std::string ends = Value(11, "x", {1, 3, 4, 4}) + Value(12, "y", {1});
  return ends;
}
// The error, which takes no more memory than a file of that size accounts for.
std::string MeteredErrorOf(const std::string& graph, int64_t opset = 13) {
  const std::vector<uint8_t> file = ModelProto(graph + PictureEnds(), opset);
  const AllocationMeter meter;
  std::string error = ErrorOf(file);
  EXPECT_LE(meter.peak_bytes(), 4 * ProportionalBytes(file.size())) << error;
  return error;
}

TEST(OnnxImport, NothingHasNoSoftmax) {
  for (const char* const op : {"Softmax", "LogSoftmax"}) {
    for (const int64_t opset : {11, 13}) {
      const std::string graph =
          NodeProto(op, {"e"}, "y", IntAttribute("axis", 1)) + Initializer("e", {0, 5, 3}, {});
      EXPECT_THAT(MeteredErrorOf(graph, opset), HasSubstr("an empty input of shape [0, 5, 3]"));
    }
  }
}

// What there is of nothing from its last element back to its first.
TEST(OnnxImport, NothingBackwardsIsNothing) {
  const std::string graph = NodeProto("Slice", {"e", "from", "to", "axis", "step"}, "s") +
                            NodeProto("Shape", {"s"}, "shape") +
                            NodeProto("Cast", {"shape"}, "size", IntAttribute("to", 1)) +
                            NodeProto("Add", {"x", "size"}, "y") + Initializer("e", {0}, {}) +
                            Whole("from", {1}, {-1}) + Whole("to", {1}, {-5}) +
                            Whole("axis", {1}, {0}) + Whole("step", {1}, {-1}) +
                            Value(11, "x", {1, 2}) + Value(12, "y", {1, 2});
  const auto imported = ImportOnnx(ModelProto(graph));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_THAT(Outputs(*imported, {3, 4}), ::testing::ElementsAre(3, 4));
}

// Its rows would be visited one by one, and its positions listed.
TEST(OnnxImport, EmptyConstantsOfLargeSizesAreRefused) {
  constexpr int64_t kMany = INT32_MAX;
  const std::string large = "an empty constant of shape [2147483647, 2147483647, 1, 0], which is";
  const std::string e = Initializer("e", {kMany, kMany, 1, 0}, {});
  EXPECT_THAT(
      MeteredErrorOf(NodeProto("Expand", {"e", "s"}, "y") + e + Whole("s", {4}, {1, 1, 2, 1})),
      HasSubstr(large));
  const std::string along = IntAttribute("axis", 2);
  EXPECT_THAT(MeteredErrorOf(NodeProto("Concat", {"e", "e"}, "y", along) + e), HasSubstr(large));
  EXPECT_THAT(
      MeteredErrorOf(NodeProto("Gather", {"e", "s"}, "y", along) + e + Whole("s", {1}, {0})),
      HasSubstr(large));
  EXPECT_THAT(MeteredErrorOf(NodeProto("Split", {"e"}, "y", IntAttribute("axis", 0)) +
                             Initializer("e", {kMany, 0}, {})),
              HasSubstr("[2147483647, 0]"));
  EXPECT_THAT(MeteredErrorOf(NodeProto("ConstantOfShape", {"s"}, "y") +
                             Whole("s", {3}, {int64_t{1} << 62, int64_t{1} << 62, 0})),
              HasSubstr("[4611686018427387904, 4611686018427387904, 0]"));
  EXPECT_THAT(MeteredErrorOf(NodeProto("Reshape", {"e", "s"}, "y", IntAttribute("allowzero", 1)) +
                                 Initializer("e", {0}, {}) + Whole("s", {4}, {kMany, kMany, 1, 0}),
                             14),
              HasSubstr(large));
  // Small ones are taken.
  EXPECT_THAT(MeteredErrorOf(NodeProto("Concat", {"e", "e"}, "y", along) +
                             Initializer("e", {100, 1, 1, 0}, {})),
              HasSubstr("output 'y' is a constant"));
}

// Neither does the number of rows of one multiply with the number of those that have none, nor the
// length of a list with that of an empty axis.
TEST(OnnxImport, NothingIsNotVisited) {
  constexpr size_t kMany = 20'000;
  std::vector<std::string> values(kMany, "e");
  values.push_back("w");
  EXPECT_THAT(MeteredErrorOf(NodeProto("Concat", values, "y", IntAttribute("axis", 1)) +
                             Initializer("e", {kMany, 0}, {}) +
                             Initializer("w", {kMany, 1}, std::vector<float>(kMany))),
              HasSubstr("output 'y' is a constant"));
  EXPECT_THAT(MeteredErrorOf(NodeProto("Gather", {"e", "s"}, "y", IntAttribute("axis", 1)) +
                             Initializer("e", {2 * kMany, 1, 0}, {}) +
                             Whole("s", {2 * kMany}, std::vector<int64_t>(2 * kMany))),
              HasSubstr("an empty constant of shape [40000, 40000, 0]"));
}

TEST(OnnxImport, DimensionsAreFew) {
  constexpr size_t kMany = 10'000;
  const std::string refused = "a tensor of 10000 dimensions; at most 8 are supported";
  const std::vector<int64_t> ones(kMany, 1);
  const std::string scalar = Initializer("c", {1}, {2});
  const std::string list = Whole("s", {kMany}, ones);
  const std::string identities = Repeated(NodeProto("Identity", {"c"}, "y"), 1000);
  EXPECT_THAT(MeteredErrorOf(identities + Initializer("c", ones, {2})), HasSubstr(refused));
  EXPECT_THAT(MeteredErrorOf(identities + Value(11, "c", ones)), HasSubstr(refused));
  for (const char* const op : {"Reshape", "Expand"}) {
    for (const char* const from : {"x", "c"}) {
      EXPECT_THAT(MeteredErrorOf(NodeProto(op, {from, "s"}, "y") + scalar + list),
                  HasSubstr(refused))
          << op << " " << from;
    }
  }
  EXPECT_THAT(MeteredErrorOf(NodeProto("ConstantOfShape", {"s"}, "y") + list), HasSubstr(refused));
  EXPECT_THAT(MeteredErrorOf(NodeProto("Unsqueeze", {"c", "s"}, "y") + scalar + list),
              HasSubstr("a tensor of 10001 dimensions"));
  EXPECT_THAT(MeteredErrorOf(NodeProto("Gather", {"c", "s"}, "y") + Initializer("c", {1, 1}, {2}) +
                             Whole("s", {1, 1, 1, 1, 1, 1, 1, 1}, {0})),
              HasSubstr("a tensor of 9 dimensions"));
  const std::vector<int64_t> zeros(kMany, 0);
  const std::string axes = Whole("s", {kMany}, zeros);
  for (const char* const op : {"Squeeze", "ReduceSum"}) {
    EXPECT_THAT(MeteredErrorOf(NodeProto(op, {"c", "s"}, "y") + scalar + axes),
                HasSubstr("10000 axes of [1]"));
  }
  EXPECT_THAT(MeteredErrorOf(NodeProto("Slice", {"c", "s", "s", "s"}, "y") + scalar + axes),
              HasSubstr("10000 axes of [1]"));
}

// As many inputs as outputs, as many attributes as sizes, as many names of one tensor as there is
// room for: what there is to do is not the product of both.
TEST(OnnxImport, ManyNamesAreNotCompared) {
  constexpr size_t kMany = 20'000;
  EXPECT_THAT(MeteredErrorOf(NodeProto("Split", std::vector<std::string>(kMany, "x"), "y",
                                       Repeated(Bytes(2, ""), kMany))),
              HasSubstr("(Split, opset 13): 20000 inputs"));
  EXPECT_THAT(MeteredErrorOf(
                  NodeProto("Reshape", {"x", "s"}, "y",
                            Repeated(IntAttribute("a", 0), kMany) + IntAttribute("allowzero", 1)) +
                      Whole("s", {kMany}, std::vector<int64_t>(kMany, 0)),
                  14),
              HasSubstr("a tensor of 20000 dimensions"));
  std::string outputs;
  std::string ends;
  for (size_t i = 1; i < kMany; ++i) {
    outputs += Bytes(2, std::to_string(i));
    ends += Value(12, std::to_string(i), {1});
  }
  const auto split = ImportOnnx(ModelProto(NodeProto("Split", {"x"}, "0", outputs) +
                                           Value(11, "x", {kMany}) + Value(12, "0", {1}) + ends));
  ASSERT_TRUE(split.ok()) << split.status().message();
}

// What is made of many numbers may be few: reading them once for each node counts, too.
TEST(OnnxImport, ConstantsAreReadAsOftenAsTheFileAccountsFor) {
  constexpr size_t kMany = 20'000;
  std::string reductions;
  for (size_t i = 0; i < kMany; ++i) {
    reductions += NodeProto("ReduceSum", {"c"}, std::to_string(i));
  }
  EXPECT_THAT(
      MeteredErrorOf(reductions + Whole("c", {kMany}, std::vector<int64_t>(kMany, 1))),
      AllOf(HasSubstr("(ReduceSum, opset 13): a constant of 20000 elements"), HasSubstr("node ")));
}

// The first few of many normalizations behind a convolution go into its weights; all of them count.
TEST(OnnxImport, NormalizationsBehindEachOtherAreAllThere) {
  constexpr int kMany = 200;
  std::string graph = NodeProto("Conv", {"x", "w"}, "0") +
                      Initializer("w", {1, 2, 60, 60}, std::vector<float>(7200, 1.0f / 7200)) +
                      Initializer("one", {1}, {1}) + Initializer("none", {1}, {0}) +
                      Value(11, "x", {1, 2, 60, 60}) + Value(12, std::to_string(kMany), {1});
  for (int i = 0; i < kMany; ++i) {
    graph += NodeProto("BatchNormalization", {std::to_string(i), "one", "one", "none", "one"},
                       std::to_string(i + 1), Bytes(5, Bytes(1, "epsilon")));
  }
  const auto imported = ImportOnnx(ModelProto(graph));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  EXPECT_GT((*Model::FromBuffer(*imported))->graph().nodes.size(), 100u);
  const std::vector<float> outputs = Outputs(*imported, std::vector<float>(7200, 3));
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_NEAR(outputs[0], 3 + kMany, 1e-2);
}

// Each group is an operator, with a filter, a bias and a part of the input: a thousand times the
// bytes of a filter of one number.
TEST(OnnxImport, GroupsAreBoundedByTheFile) {
  for (const char* const op : {"Conv", "ConvTranspose"}) {
    for (const bool repeated : {false, true}) {
      for (const int64_t groups : {100, 2'000, 20'000}) {
        const std::vector<int64_t> dims = op == std::string("Conv")
                                              ? std::vector<int64_t>{groups, 2, 1, 1}
                                              : std::vector<int64_t>{2 * groups, 1, 1, 1};
        const std::string weights =
            repeated ? NodeProto("ConstantOfShape", {"s"}, "w") + Whole("s", {4}, dims)
                     : Initializer("w", dims, std::vector<float>(2 * groups));
        const std::vector<uint8_t> file =
            ModelProto(weights + NodeProto(op, {"p", "w"}, "y", IntAttribute("group", groups)) +
                       Value(11, "p", {1, 2 * groups, 1, 1}) + Value(12, "y", {1}));
        const AllocationMeter meter;
        const auto imported = ImportOnnx(file);
        EXPECT_LE(meter.peak_bytes(), 4 * ProportionalBytes(file.size(), int64_t{1} << 19))
            << op << " " << groups;
        EXPECT_EQ(imported.ok(), groups == 100) << op << " " << groups << " " << repeated;
      }
    }
  }
}

TEST(OnnxImport, ListsAreChargedBeforeTheyAreMade) {
  const std::string graph =
      NodeProto("DepthToSpace", {"w"}, "y",
                IntAttribute("blocksize", 2) + Bytes(5, Bytes(1, "mode") + Bytes(4, "CRD"))) +
      Value(11, "w", {1, (1 << 28) - 4, 1, 1});
  EXPECT_THAT(MeteredErrorOf(graph), HasSubstr("a constant of 268435452 elements"));
}

std::vector<uint8_t> ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The same network as an ONNX file and as the one that TensorFlow wrote.
TEST(OnnxImport, FaceDetectorEqualsItsTflite) {
  const std::filesystem::path folder = std::string(ATOLL_SHARED_DIR) + "/models/float";
  if (!std::filesystem::exists(folder / "rfb320.onnx")) {
    ReportAbsent("reference data: models/float/rfb320.onnx");
    return;
  }
  const auto imported = ImportOnnx(ReadFile(folder / "rfb320.onnx"));
  ASSERT_TRUE(imported.ok()) << imported.status().message();
  std::vector<float> picture(240 * 320 * 3);
  uint32_t state = 1;
  for (float& value : picture) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 8) / (1 << 23) - 1;
  }
  const std::vector<uint8_t> original = ReadFile(folder / "rfb320_float.tflite");
  // Scores and boxes; the files may list them in another order.
  const std::vector<float> got[] = {Outputs(*imported, picture, 0), Outputs(*imported, picture, 1)};
  const std::vector<float> expected[] = {Outputs(original, picture, 0),
                                         Outputs(original, picture, 1)};
  for (const std::vector<float>& values : got) {
    const std::vector<float>& same =
        values.size() == expected[0].size() ? expected[0] : expected[1];
    ASSERT_EQ(values.size(), same.size());
    double worst = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      worst = std::max(worst, std::abs(double{values[i]} - double{same[i]}));
    }
    EXPECT_LT(worst, 1e-3);
  }
}

}  // namespace
}  // namespace atollrt
