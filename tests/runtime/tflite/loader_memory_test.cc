// SPDX-License-Identifier: Apache-2.0
//
// Loading a model takes memory in proportion to its bytes, whatever they say: tables, names and
// lists of a file may stand at many places of it, shapes multiply, constants are computed.
#include <flatbuffers/flexbuffers.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "runtime/tflite/flexbuffer.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/harmless.h"
#include "tests/support/model_builder.h"
#include "tflite_generated.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;
template <typename T>
using Offset = flatbuffers::Offset<T>;

// Loads `file`; the test fails if that takes more than is in proportion to it.
Result<std::shared_ptr<const Model>> LoadMetered(const Bytes& file) {
  const AllocationMeter meter;
  auto model = Model::FromBuffer(file);
  EXPECT_LE(meter.peak_bytes(), ProportionalBytes(file.size())) << "for " << file.size();
  return model;
}

// ---- Tables that stand at many places -----------------------------------------------------------

// One subgraph, or a list of them that are the same, out of whatever a test shares.
class SharingModel {
 public:
  flatbuffers::FlatBufferBuilder fbb;
  std::vector<Offset<tflite::Tensor>> tensors;
  std::vector<Offset<tflite::Operator>> operators;
  std::vector<Offset<tflite::OperatorCode>> codes;
  std::vector<Offset<tflite::Buffer>> buffers{tflite::CreateBuffer(fbb)};
  std::vector<int32_t> inputs, outputs;
  int subgraph_count = 1;

  Offset<tflite::Tensor> Int8(const std::vector<int32_t>& shape,
                              Offset<flatbuffers::String> name = {}) {
    const auto stored_shape = fbb.CreateVector(shape);
    return tflite::CreateTensor(fbb, stored_shape, static_cast<int8_t>(DataType::kInt8), 0, name);
  }
  uint32_t Code(OpType type, const char* custom_name = nullptr) {
    const auto name =
        custom_name == nullptr ? Offset<flatbuffers::String>() : fbb.CreateString(custom_name);
    codes.push_back(
        tflite::CreateOperatorCode(fbb, static_cast<int8_t>(type), name, 1, int32_t(type)));
    return static_cast<uint32_t>(codes.size() - 1);
  }

  Bytes Finish() {
    const auto stored_tensors = fbb.CreateVector(tensors);
    const auto stored_operators = fbb.CreateVector(operators);
    const auto stored_inputs = fbb.CreateVector(inputs);
    const auto stored_outputs = fbb.CreateVector(outputs);
    const std::vector subgraphs(static_cast<size_t>(subgraph_count),
                                tflite::CreateSubGraph(fbb, stored_tensors, stored_inputs,
                                                       stored_outputs, stored_operators));
    const auto stored_codes = fbb.CreateVector(codes);
    const auto stored_subgraphs = fbb.CreateVector(subgraphs);
    const auto stored_buffers = fbb.CreateVector(buffers);
    tflite::FinishModelBuffer(
        fbb, tflite::CreateModel(fbb, 3, stored_codes, stored_subgraphs, 0, stored_buffers));
    return {fbb.GetBufferPointer(), fbb.GetBufferPointer() + fbb.GetSize()};
  }
};

void ExpectExhausted(const Bytes& file) {
  const auto model = LoadMetered(file);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::kResourceExhausted) << model.status().message();
  EXPECT_THAT(model.status().message(), HasSubstr("many must be the same"));
}

TEST(LoaderMemory, TensorsThatAreOneTable) {
  SharingModel m;
  m.tensors.assign(100'000, m.Int8({1}, m.fbb.CreateString("x")));
  ExpectExhausted(m.Finish());
}

TEST(LoaderMemory, TensorsOfOneName) {
  SharingModel m;
  const auto name = m.fbb.CreateString(std::string(100'000, 'x'));
  for (int i = 0; i < 2000; ++i) m.tensors.push_back(m.Int8({1}, name));
  ExpectExhausted(m.Finish());
}

TEST(LoaderMemory, TensorsOfOneListOfScales) {
  SharingModel m;
  const auto scales = m.fbb.CreateVector(std::vector<float>(10'000, 1.0f));
  const auto zero_points = m.fbb.CreateVector(std::vector<int64_t>(10'000, 0));
  const auto quantization = tflite::CreateQuantizationParameters(m.fbb, 0, 0, scales, zero_points);
  const auto shape = m.fbb.CreateVector(std::vector<int32_t>{10'000});
  for (int i = 0; i < 1000; ++i) {
    m.tensors.push_back(tflite::CreateTensor(m.fbb, shape, static_cast<int8_t>(DataType::kInt8), 0,
                                             0, quantization));
  }
  ExpectExhausted(m.Finish());
}

TEST(LoaderMemory, NodesThatAreOneTable) {
  SharingModel m;
  m.tensors.assign(2, m.Int8({1}));
  m.inputs = {0};
  const uint32_t code = m.Code(OpType::kRELU);
  const auto inputs = m.fbb.CreateVector(std::vector<int32_t>{0});
  const auto outputs = m.fbb.CreateVector(std::vector<int32_t>{1});
  m.operators.assign(100'000, tflite::CreateOperator(m.fbb, code, inputs, outputs));
  ExpectExhausted(m.Finish());
}

TEST(LoaderMemory, NodesOfOneListOfInputs) {
  SharingModel m;
  m.tensors.assign(2, m.Int8({1}));
  m.inputs = {0};
  const uint32_t code = m.Code(OpType::kCONCATENATION);
  const auto inputs = m.fbb.CreateVector(std::vector<int32_t>(50'000, 0));
  const auto outputs = m.fbb.CreateVector(std::vector<int32_t>{1});
  for (int i = 0; i < 1000; ++i) {
    m.operators.push_back(tflite::CreateOperator(m.fbb, code, inputs, outputs));
  }
  ExpectExhausted(m.Finish());
}

TEST(LoaderMemory, NodesOfOneCustomName) {
  SharingModel m;
  m.tensors.assign(2, m.Int8({1}));
  m.inputs = {0};
  const uint32_t code = m.Code(OpType::kCUSTOM, std::string(50'000, 'x').c_str());
  const auto inputs = m.fbb.CreateVector(std::vector<int32_t>{0});
  const auto outputs = m.fbb.CreateVector(std::vector<int32_t>{1});
  for (int i = 0; i < 2000; ++i) {
    m.operators.push_back(tflite::CreateOperator(m.fbb, code, inputs, outputs));
  }
  ExpectExhausted(m.Finish());
}

TEST(LoaderMemory, VariablesOfOneLongName) {
  SharingModel m;
  m.tensors.assign(1000, tflite::CreateTensor(m.fbb, m.fbb.CreateVector(std::vector<int32_t>{}),
                                              static_cast<int8_t>(DataType::kResource)));
  const uint32_t code = m.Code(OpType::kVAR_HANDLE);
  const auto name = m.fbb.CreateString(std::string(50'000, 'x'));
  const auto options = tflite::CreateVarHandleOptions(m.fbb, name, name);
  for (int i = 0; i < 1000; ++i) {
    const auto outputs = m.fbb.CreateVector(std::vector<int32_t>{i});
    m.operators.push_back(tflite::CreateOperator(
        m.fbb, code, 0, outputs, tflite::BuiltinOptions::VarHandleOptions, options.Union()));
  }
  ExpectExhausted(m.Finish());
}

TEST(LoaderMemory, SubgraphsThatAreOneTable) {
  SharingModel m;
  m.tensors.assign(1, m.Int8({1}));
  m.inputs.assign(10'000, 0);
  m.subgraph_count = 10'000;
  ExpectExhausted(m.Finish());
}

// ---- Shapes and constants -----------------------------------------------------------------------

TEST(LoaderMemory, ShapesOfManyDimensionsAreRefused) {
  SharingModel m;
  m.tensors.push_back(m.Int8(std::vector<int32_t>(20'000, 1)));
  m.inputs = {0};
  const auto empty = m.Int8({});
  const uint32_t code = m.Code(OpType::kRELU);
  for (int i = 0; i < 2000; ++i) {
    m.tensors.push_back(empty);
    const auto inputs = m.fbb.CreateVector(std::vector<int32_t>{i});
    const auto outputs = m.fbb.CreateVector(std::vector<int32_t>{i + 1});
    m.operators.push_back(tflite::CreateOperator(m.fbb, code, inputs, outputs));
  }
  const auto model = LoadMetered(m.Finish());
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.status().message(),
              HasSubstr("tensor 0 '' has 20000 dimensions, at most 64 are supported"));
}

// Each node keeps its input's shape, and each PACK adds one dimension.
TEST(LoaderMemory, ShapesThatGrowAreRefused) {
  ModelBuilder m;
  int32_t x = m.Input({1});
  for (int i = 0; i < 100; ++i) {
    x = m.Node(OpType::kPACK, {x}, {}, AxisOptions{.axis = 0, .count = 1});
  }
  m.Output(x);
  const auto model = LoadMetered(m.Build());
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.status().message(), HasSubstr("in at most 64 dimensions"));
}

// A kilobyte of constants for each node of about forty bytes.
TEST(LoaderMemory, ComputedConstantsAreBounded) {
  SharingModel m;
  const auto type = static_cast<int8_t>(DataType::kInt32);
  const auto shape = m.fbb.CreateVector(std::vector<int32_t>{256});
  m.buffers.push_back(tflite::CreateBuffer(m.fbb, m.fbb.CreateVector(Bytes(1024, 1))));
  m.tensors.push_back(tflite::CreateTensor(m.fbb, shape, type, 1));
  constexpr int kNodes = 20'000;
  m.tensors.insert(m.tensors.end(), kNodes, tflite::CreateTensor(m.fbb, shape, type, 0));
  m.outputs = {kNodes};
  const uint32_t code = m.Code(OpType::kADD);
  const auto inputs = m.fbb.CreateVector(std::vector<int32_t>{0, 0});
  for (int i = 0; i < kNodes; ++i) {
    const auto outputs = m.fbb.CreateVector(std::vector<int32_t>{i + 1});
    m.operators.push_back(tflite::CreateOperator(m.fbb, code, inputs, outputs));
  }
  const auto model = LoadMetered(m.Finish());
  ASSERT_TRUE(model.ok()) << model.status().message();
  // What is too much stays a node.
  EXPECT_GT((*model)->graph().nodes.size(), 0u);
  EXPECT_LT((*model)->graph().nodes.size(), size_t{kNodes});
}

// ---- Options of custom operators ----------------------------------------------------------------

// A map whose fields all have the same key.
Bytes MapOfOneKey(size_t key_bytes, uint32_t fields) {
  Bytes bytes(key_bytes, 'k');
  do {
    bytes.push_back(0);
  } while (bytes.size() % 4 != 0);
  const auto append = [&bytes](size_t value) {
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<uint8_t>(value >> shift));
    }
  };
  const size_t keys = bytes.size();
  for (uint32_t i = 0; i < fields; ++i) append(bytes.size());
  append(bytes.size() - keys);
  append(4);
  append(fields);
  const size_t values = bytes.size();
  for (uint32_t i = 0; i < fields; ++i) append(1);
  bytes.insert(bytes.end(), fields, uint8_t{1 << 2 | 2});  // int, four bytes
  while (bytes.size() % 4 != 0) bytes.push_back(0);
  append(bytes.size() - values);
  bytes.push_back(9 << 2 | 2);
  bytes.push_back(4);
  return bytes;
}

TEST(LoaderMemory, FieldsOfOneKey) {
  for (const size_t key_bytes : {1000u, 140'000u}) {
    for (const uint32_t fields : {200u, 15'000u}) {
      const Bytes map = MapOfOneKey(key_bytes, fields);
      const AllocationMeter meter;
      const auto entries = ReadFlexbufferMap(map);
      const auto lists = ReadFlexbufferBytes(map);
      EXPECT_LE(meter.peak_bytes(), ProportionalBytes(map.size())) << key_bytes << " " << fields;
      const bool is_good = key_bytes == 1000 && fields == 200;
      EXPECT_EQ(entries.ok(), is_good);
      EXPECT_EQ(lists.ok(), is_good);
      if (is_good) {
        EXPECT_EQ(entries->size(), fields);
      } else {
        EXPECT_EQ(entries.status().code(),
                  fields == 200 ? StatusCode::kCorruptModel : StatusCode::kResourceExhausted);
      }
    }
  }
}

// ---- What is prepared ---------------------------------------------------------------------------

// A list of inputs that two nodes could share becomes a list of copies in each.
TEST(LoaderMemory, PreparedOperandsAreBounded) {
  for (const int nodes : {1, 200}) {
    SharingModel m;
    constexpr int32_t kInputs = 10'000;
    m.tensors.assign(static_cast<size_t>(1 + nodes), m.Int8({1}));
    m.inputs = {0};
    const uint32_t code = m.Code(OpType::kPACK);
    const auto inputs = m.fbb.CreateVector(std::vector<int32_t>(kInputs, 0));
    const auto options = tflite::CreatePackOptions(m.fbb, kInputs, 0);
    for (int i = 0; i < nodes; ++i) {
      const auto outputs = m.fbb.CreateVector(std::vector<int32_t>{1 + i});
      m.operators.push_back(tflite::CreateOperator(
          m.fbb, code, inputs, outputs, tflite::BuiltinOptions::PackOptions, options.Union()));
    }
    const Bytes file = m.Finish();
    const auto model = LoadMetered(file);
    EXPECT_EQ(model.status().code(), nodes == 1 ? StatusCode::kOk : StatusCode::kResourceExhausted);
    if (!model.ok()) continue;
    const AllocationMeter meter;
    EXPECT_TRUE(Interpreter::Create(*model, {.threads = 1}).ok());
    EXPECT_LE(meter.peak_bytes(), 4 * ProportionalBytes(file.size()));
  }
}

// Weights of a megabyte, of which each node has a copy of its own.
TEST(LoaderMemory, CopiesOfWeightsAreBounded) {
  for (const int nodes : {8, 2000}) {
    SharingModel m;
    m.buffers.push_back(tflite::CreateBuffer(m.fbb, m.fbb.CreateVector(Bytes(1 << 20, 1))));
    const auto quantization = [&] {
      const auto scales = m.fbb.CreateVector(std::vector<float>{1});
      const auto zero_points = m.fbb.CreateVector(std::vector<int64_t>{0});
      return tflite::CreateQuantizationParameters(m.fbb, 0, 0, scales, zero_points);
    }();
    const auto tensor = [&](const std::vector<int32_t>& shape, uint32_t buffer) {
      return tflite::CreateTensor(m.fbb, m.fbb.CreateVector(shape),
                                  static_cast<int8_t>(DataType::kInt8), buffer, 0, quantization);
    };
    m.tensors = {tensor({1, 1024}, 0), tensor({1024, 1024}, 1)};
    m.tensors.insert(m.tensors.end(), static_cast<size_t>(nodes), tensor({1, 1024}, 0));
    m.inputs = {0};
    const uint32_t code = m.Code(OpType::kFULLY_CONNECTED);
    const auto inputs = m.fbb.CreateVector(std::vector<int32_t>{0, 1, -1});
    for (int i = 0; i < nodes; ++i) {
      const auto outputs = m.fbb.CreateVector(std::vector<int32_t>{2 + i});
      m.operators.push_back(tflite::CreateOperator(m.fbb, code, inputs, outputs));
    }
    const auto model = LoadMetered(m.Finish());
    ASSERT_TRUE(model.ok()) << model.status().message();
    const auto interpreter = Interpreter::Create(*model, {.threads = 1});
    EXPECT_EQ(interpreter.status().code(),
              nodes == 8 ? StatusCode::kOk : StatusCode::kResourceExhausted);
  }
}

// ---- Everything else ----------------------------------------------------------------------------

TEST(LoaderMemory, GoodModelsAndSeedsOfTheFuzzer) {
  int files = 0;
  for (const char* folder : {"tests/golden/ops", "tests/fuzz/corpus/loader", "models"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             std::filesystem::path(ATOLL_SOURCE_DIR) / folder)) {
      const bool is_seed = entry.path().parent_path().filename() == "loader";
      if (!entry.is_regular_file() || (!is_seed && entry.path().extension() != ".tflite")) continue;
      SCOPED_TRACE(entry.path().string());
      const auto model = LoadMetered(ReadFile(entry.path()));
      if (!is_seed && entry.path().parent_path().filename() != "error") {
        EXPECT_TRUE(model.ok()) << model.status().message();
      }
      ++files;
    }
  }
  EXPECT_GE(files, 400);
}

}  // namespace
}  // namespace atollrt
