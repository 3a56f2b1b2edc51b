// SPDX-License-Identifier: Apache-2.0
//
// What the C interface says of models that the bundled ones have nothing of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <memory>

#include "atoll/runtime.h"
#include "runtime/tflite/tflite_writer.h"
#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

struct DeleteModel {
  void operator()(AtollModel* model) const { AtollModelDelete(model); }
};
struct DeleteInterpreter {
  void operator()(AtollInterpreter* interpreter) const { AtollInterpreterDelete(interpreter); }
};
using ModelHandle = std::unique_ptr<AtollModel, DeleteModel>;
using InterpreterHandle = std::unique_ptr<AtollInterpreter, DeleteInterpreter>;

ModelHandle Open(const Bytes& file) {
  AtollModel* model = nullptr;
  EXPECT_EQ(AtollModelCreateFromBuffer(file.data(), file.size(), &model), ATOLL_OK)
      << AtollLastError();
  return ModelHandle(model);
}

InterpreterHandle Prepare(const AtollModel* model, bool keep_all_tensors = false) {
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.num_threads = 1;
  options.keep_all_tensors = keep_all_tensors ? 1 : 0;
  AtollInterpreter* interpreter = nullptr;
  EXPECT_EQ(AtollInterpreterCreate(model, &options, &interpreter), ATOLL_OK) << AtollLastError();
  return InterpreterHandle(interpreter);
}

ModelBuilder TwoLayers() {
  ModelBuilder m;
  const int32_t x = m.Input({1, 6, 6, 2});
  m.Output(m.Relu(m.Conv2D(x, {.channels = 3, .kernel = 3})));
  return m;
}

TEST(CApi, NamesEndsBySignatures) {
  ModelBuilder m = TwoLayers();
  const int32_t input = m.graph().inputs[0], output = m.graph().outputs[0];
  const Bytes licence = {'A', '-', '2'};
  const ModelExtras extras = {.signatures = {{.key = "serving_default",
                                              .inputs = {{"image", input}},
                                              .outputs = {{"y", output}}},
                                             {.key = "empty"}},
                              .metadata = {{"licence", licence}, {"nothing", {}}}};
  const Graph* const graphs[] = {&m.graph()};
  const auto file = WriteTflite(graphs, extras);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const ModelHandle model = Open(*file);
  ASSERT_EQ(AtollModelGetSignatureCount(model.get()), 2);
  AtollSignatureInfo info = {};
  ASSERT_EQ(AtollModelGetSignature(model.get(), 0, &info), ATOLL_OK);
  EXPECT_STREQ(info.key, "serving_default");
  ASSERT_EQ(info.input_count, 1);
  ASSERT_EQ(info.output_count, 1);
  EXPECT_STREQ(info.inputs[0].name, "image");
  EXPECT_EQ(info.inputs[0].tensor, input);
  EXPECT_STREQ(info.outputs[0].name, "y");
  EXPECT_EQ(info.outputs[0].tensor, output);
  ASSERT_EQ(AtollModelGetSignature(model.get(), 1, &info), ATOLL_OK);
  EXPECT_EQ(info.input_count + info.output_count, 0);
  EXPECT_EQ(AtollModelGetSignature(model.get(), 0, nullptr), ATOLL_INVALID_ARGUMENT);

  ASSERT_EQ(AtollModelGetMetadataCount(model.get()), 2);
  const char* name = nullptr;
  const void* data = nullptr;
  size_t size = 0;
  ASSERT_EQ(AtollModelGetMetadata(model.get(), 0, &name, &data, &size), ATOLL_OK);
  EXPECT_STREQ(name, "licence");
  ASSERT_EQ(size, 3u);
  EXPECT_EQ(std::memcmp(data, "A-2", 3), 0);
  ASSERT_EQ(AtollModelGetMetadata(model.get(), 1, &name, &data, &size), ATOLL_OK);
  EXPECT_EQ(size, 0u);
  EXPECT_EQ(AtollModelGetMetadata(model.get(), 0, nullptr, &data, &size), ATOLL_INVALID_ARGUMENT);
  EXPECT_EQ(AtollModelGetMetadata(model.get(), 0, &name, nullptr, &size), ATOLL_INVALID_ARGUMENT);
  EXPECT_EQ(AtollModelGetMetadata(model.get(), 0, &name, &data, nullptr), ATOLL_INVALID_ARGUMENT);
}

TEST(CApi, TellsOfTensorsOfModelsThatCannotRun) {
  ModelBuilder m;
  const int32_t input = m.Input({1, 3});
  const int32_t output = m.Custom("nobody-knows-it", input);
  m.Output(output);
  m.tensor(input).name = "image";
  const ModelHandle model = Open(m.Build());
  AtollInterpreter* interpreter = nullptr;
  ASSERT_EQ(AtollInterpreterCreate(model.get(), nullptr, &interpreter), ATOLL_UNSUPPORTED);
  ASSERT_EQ(AtollModelGetInputTensorCount(model.get()), 1);
  ASSERT_EQ(AtollModelGetOutputTensorCount(model.get()), 1);
  EXPECT_EQ(AtollModelGetTensorCount(model.get()), static_cast<int32_t>(m.graph().tensors.size()));
  const AtollTensor* const tensor = AtollModelGetInputTensor(model.get(), 0);
  EXPECT_STREQ(AtollTensorName(tensor), "image");
  EXPECT_EQ(AtollTensorIndex(tensor), input);
  EXPECT_EQ(AtollTensorType(tensor), ATOLL_INT8);
  EXPECT_EQ(AtollTensorNumDims(tensor), 2);
  EXPECT_EQ(AtollTensorDim(tensor, 1), 3);
  EXPECT_EQ(AtollTensorByteSize(tensor), 3u);
  EXPECT_EQ(AtollTensorQuantization(tensor).zero_point, -3);
  EXPECT_EQ(AtollTensorIndex(AtollModelGetOutputTensor(model.get(), 0)), output);
  EXPECT_EQ(AtollModelGetTensor(model.get(), input), tensor);
  EXPECT_EQ(AtollTensorConstData(tensor), nullptr);
  uint8_t bytes[3] = {};
  EXPECT_EQ(AtollTensorCopyToBuffer(tensor, bytes, sizeof(bytes)), ATOLL_INVALID_ARGUMENT);
}

TEST(CApi, RefusesSignaturesOfNothing) {
  ModelBuilder m = TwoLayers();
  const Graph* const graphs[] = {&m.graph()};
  const auto refuse = [&](const Signature& signature) -> std::string {
    const auto file = WriteTflite(graphs, {.signatures = {signature}, .metadata = {}});
    AtollModel* model = nullptr;
    EXPECT_EQ(AtollModelCreateFromBuffer(file->data(), file->size(), &model), ATOLL_CORRUPT_MODEL);
    return AtollLastError();
  };
  EXPECT_THAT(refuse({.key = "a", .inputs = {{"x", 1000}}, .outputs = {}}),
              HasSubstr("signature 0: tensor index 1000"));
  EXPECT_THAT(refuse({.key = "a", .inputs = {}, .outputs = {{"x", -1}}}),
              HasSubstr("signature 0: tensor index 4294967295"));
  EXPECT_THAT(refuse({.key = "a", .graph = 3, .inputs = {}, .outputs = {}}),
              HasSubstr("signature 0: subgraph 3"));
}

TEST(CApi, SaysWhatTensorsAreInTheFile) {
  ModelBuilder m = TwoLayers();
  const int32_t input = m.graph().inputs[0];
  const int32_t weights = m.graph().nodes[0].inputs[1];
  m.tensor(input).shape_signature = {-1, 6, -1, 2};
  const ModelHandle model = Open(m.Build());
  const InterpreterHandle interpreter = Prepare(model.get());
  const AtollTensor* tensor = AtollInterpreterGetInputTensor(interpreter.get(), 0);
  EXPECT_EQ(AtollTensorIndex(tensor), input);
  EXPECT_EQ(AtollTensorDimSignature(tensor, 0), -1);
  EXPECT_EQ(AtollTensorDimSignature(tensor, 1), 6);
  EXPECT_EQ(AtollTensorDimSignature(tensor, 2), -1);
  const AtollTensor* filter = AtollInterpreterGetTensor(interpreter.get(), weights);
  EXPECT_EQ(AtollTensorDimSignature(filter, 0), 3) << "without one, the shape";
  AtollChannelQuantization q = {};
  ASSERT_EQ(AtollTensorGetChannelQuantization(filter, &q), ATOLL_OK);
  const Quantization& want = m.tensor(weights).quantization;
  ASSERT_EQ(q.count, 3);
  EXPECT_EQ(q.dimension, want.dimension);
  for (int i = 0; i < q.count; ++i) {
    EXPECT_EQ(q.scales[i], want.scales[static_cast<size_t>(i)]);
    EXPECT_EQ(q.zero_points[i], want.zero_points[static_cast<size_t>(i)]);
  }
  ASSERT_EQ(AtollTensorGetChannelQuantization(tensor, &q), ATOLL_OK);
  EXPECT_EQ(q.count, 1);
}

TEST(CApi, KeepsAllTensors) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 12, 12, 3});
  std::vector<int32_t> inner;
  inner.push_back(m.Pad(x, {0, 0, 1, 1, 1, 1, 0, 0}));
  inner.push_back(m.Conv2D(inner.back(), {.channels = 8, .kernel = 3, .padding = Padding::kValid}));
  inner.push_back(m.Conv2D(inner.back(), {.channels = 8, .kernel = 3, .padding = Padding::kSame}));
  inner.push_back(m.Add(inner[1], inner[1]));
  inner.push_back(m.Relu(inner.back()));
  inner.push_back(m.Reshape(inner.back(), {1, 12 * 12 * 8}));
  m.Output(inner.back());
  const ModelHandle model = Open(m.Build());
  const InterpreterHandle kept = Prepare(model.get(), true), listened = Prepare(model.get());
  std::vector<Bytes> want(m.graph().tensors.size());
  AtollInterpreterSetTensorTap(
      listened.get(),
      [](int32_t index, AtollTensor* tensor, void* user_data) {
        const auto* data = static_cast<const uint8_t*>(AtollTensorConstData(tensor));
        (*static_cast<std::vector<Bytes>*>(user_data))[static_cast<size_t>(index)].assign(
            data, data + AtollTensorByteSize(tensor));
      },
      &want);
  for (AtollInterpreter* interpreter : {kept.get(), listened.get()}) {
    AtollTensor* input = AtollInterpreterGetInputTensor(interpreter, 0);
    auto* pixels = static_cast<uint8_t*>(AtollTensorData(input));
    for (size_t i = 0; i < AtollTensorByteSize(input); ++i) pixels[i] = static_cast<uint8_t>(i * 7);
    ASSERT_EQ(AtollInterpreterInvoke(interpreter), ATOLL_OK);
  }
  for (const int32_t index : inner) {
    const AtollTensor* tensor = AtollInterpreterGetTensor(kept.get(), index);
    const auto* data = static_cast<const uint8_t*>(AtollTensorConstData(tensor));
    ASSERT_NE(data, nullptr) << index;
    const Bytes got(data, data + AtollTensorByteSize(tensor));
    EXPECT_EQ(got, want[static_cast<size_t>(index)]) << index;
  }
}

// Wherever inputs and outputs lie, and whatever shares their memory, the bytes are the same.
TEST(CApi, ReadsAndWritesBuffers) {
  for (const int variant : {0, 1, 2, 3}) {
    SCOPED_TRACE(variant);
    ModelBuilder m;
    const int32_t x = m.Input({1, 4, 4, 4}), y = m.Input({1, 4, 4, 4});
    if (variant == 0) m.Output(m.Reshape(m.Conv2D(x, {.channels = 5}), {1, 80}));
    if (variant == 1) m.Output(m.Reshape(x, {1, 64}));
    if (variant == 2) m.Output(m.Concatenation({x, y}, 0));
    if (variant == 3) {
      const int32_t both = m.Concatenation({m.Relu(x), m.Relu(y)}, 0);
      m.Output(both);
      m.Output(m.Add(x, y));
    }
    const ModelHandle model = Open(m.Build());
    const InterpreterHandle own = Prepare(model.get()), other = Prepare(model.get());
    const int32_t inputs = AtollInterpreterGetInputTensorCount(own.get());
    const int32_t outputs = AtollInterpreterGetOutputTensorCount(own.get());
    std::list<Bytes> memory;  // all that there ever was, so that no place comes twice
    std::vector<uint8_t*> places(static_cast<size_t>(inputs + outputs));
    // Steps use memory where it lies if it begins at such a place, else a copy.
    const auto place = [&](int32_t i, bool aligned) {
      const AtollTensor* tensor = i < inputs
                                      ? AtollInterpreterGetInputTensor(other.get(), i)
                                      : AtollInterpreterGetOutputTensor(other.get(), i - inputs);
      constexpr size_t kAlignment = 64;
      const size_t size = AtollTensorByteSize(tensor);
      Bytes& bytes = memory.emplace_back(size + 2 * kAlignment, uint8_t{0xEE});
      const size_t past = reinterpret_cast<uintptr_t>(bytes.data()) % kAlignment;
      const size_t offset = kAlignment - past + (aligned ? 0 : 1);
      AtollBufferOptions options = ATOLL_BUFFER_OPTIONS_INIT;
      options.kind = ATOLL_BUFFER_CALLER;
      options.data = bytes.data();
      options.size = bytes.size();
      AtollBuffer* buffer = nullptr;
      ASSERT_EQ(AtollBufferCreate(&options, &buffer), ATOLL_OK);
      const auto set =
          i < inputs ? AtollInterpreterSetInputBuffer : AtollInterpreterSetOutputBuffer;
      ASSERT_EQ(set(other.get(), i < inputs ? i : i - inputs, buffer, offset), ATOLL_OK);
      AtollBufferDelete(buffer);
      places[static_cast<size_t>(i)] = bytes.data() + offset;
    };
    for (int round = 0; round < 12; ++round) {
      for (int32_t i = 0; i < inputs + outputs; ++i) {
        if (round == 0 || (round + i) % 3 == 0) place(i, round % 4 < 2);
      }
      for (int32_t i = 0; i < inputs; ++i) {
        AtollTensor* tensor = AtollInterpreterGetInputTensor(own.get(), i);
        auto* pixels = static_cast<uint8_t*>(AtollTensorData(tensor));
        for (size_t k = 0; k < AtollTensorByteSize(tensor); ++k) {
          places[static_cast<size_t>(i)][k] = pixels[k] =
              static_cast<uint8_t>(k * 11 + static_cast<size_t>(i * 5 + round * 3));
        }
      }
      ASSERT_EQ(AtollInterpreterInvoke(own.get()), ATOLL_OK);
      ASSERT_EQ(AtollInterpreterInvoke(other.get()), ATOLL_OK) << AtollLastError();
      for (int32_t i = 0; i < outputs; ++i) {
        const AtollTensor* tensor = AtollInterpreterGetOutputTensor(own.get(), i);
        EXPECT_EQ(std::memcmp(AtollTensorConstData(tensor), places[static_cast<size_t>(inputs + i)],
                              AtollTensorByteSize(tensor)),
                  0)
            << "output " << i << ", round " << round;
      }
    }
  }
}

}  // namespace
}  // namespace atollrt
