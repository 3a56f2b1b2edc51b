// SPDX-License-Identifier: Apache-2.0
//
// TensorFlow Lite's C interface. What the suite TfLiteC asserts holds of TensorFlow Lite 2.9, too:
// where npm has brought it, the same program runs with it. The other suites are of ours alone.
#include "compat/tensorflowlite_c/c_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/model_builder.h"
#include "tests/support/rng.h"

namespace {

using atollrt::DataType;
using atollrt::ModelBuilder;
using atollrt::OpType;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kFashion[] = ATOLL_SOURCE_DIR "/models/fashion/fashion_int8.tflite";

struct ModelFree {
  void operator()(TfLiteModel* model) const { TfLiteModelDelete(model); }
};
struct OptionsFree {
  void operator()(TfLiteInterpreterOptions* options) const {
    TfLiteInterpreterOptionsDelete(options);
  }
};
struct InterpreterFree {
  void operator()(TfLiteInterpreter* interpreter) const { TfLiteInterpreterDelete(interpreter); }
};
struct RunnerFree {
  void operator()(TfLiteSignatureRunner* runner) const { TfLiteSignatureRunnerDelete(runner); }
};
using ModelPtr = std::unique_ptr<TfLiteModel, ModelFree>;
using OptionsPtr = std::unique_ptr<TfLiteInterpreterOptions, OptionsFree>;
using InterpreterPtr = std::unique_ptr<TfLiteInterpreter, InterpreterFree>;
using RunnerPtr = std::unique_ptr<TfLiteSignatureRunner, RunnerFree>;

// Appends each message as a line to the std::string that is its user data.
void Collect(void* user_data, const char* format, va_list args) {
  char text[1024];
  std::vsnprintf(text, sizeof(text), format, args);
  static_cast<std::string*>(user_data)->append(text).append("\n");
}

// An interpreter and what it reported. The model and the options are gone, as after most programs'
// set-up; the bytes stay.
struct Session {
  explicit Session(std::vector<uint8_t> file) : bytes(std::move(file)) {
    const ModelPtr model(TfLiteModelCreate(bytes.data(), bytes.size()));
    EXPECT_NE(model, nullptr);
    Start(model.get());
  }
  explicit Session(const char* path) {
    const ModelPtr model(TfLiteModelCreateFromFile(path));
    EXPECT_NE(model, nullptr);
    Start(model.get());
  }
  // `delegate` may be null.
  Session(const TfLiteModel* model, TfLiteDelegate* delegate) { Start(model, delegate); }
  void Start(const TfLiteModel* model, TfLiteDelegate* delegate = nullptr) {
    const OptionsPtr options(TfLiteInterpreterOptionsCreate());
    TfLiteInterpreterOptionsSetNumThreads(options.get(), 1);
    if (delegate != nullptr) TfLiteInterpreterOptionsAddDelegate(options.get(), delegate);
    TfLiteInterpreterOptionsSetErrorReporter(options.get(), Collect, &said);
    interpreter.reset(TfLiteInterpreterCreate(model, options.get()));
    EXPECT_NE(interpreter, nullptr) << said;
  }

  TfLiteInterpreter* get() { return interpreter.get(); }
  TfLiteTensor* input(int32_t index = 0) {
    return TfLiteInterpreterGetInputTensor(interpreter.get(), index);
  }
  const TfLiteTensor* output(int32_t index = 0) {
    return TfLiteInterpreterGetOutputTensor(interpreter.get(), index);
  }
  // Writes `values`, runs, and gives output 0.
  std::vector<int8_t> Run(const std::vector<int8_t>& values) {
    EXPECT_EQ(TfLiteTensorCopyFromBuffer(input(), values.data(), values.size()), kTfLiteOk);
    EXPECT_EQ(TfLiteInterpreterInvoke(get()), kTfLiteOk) << said;
    std::vector<int8_t> results(TfLiteTensorByteSize(output()));
    EXPECT_EQ(TfLiteTensorCopyToBuffer(output(), results.data(), results.size()), kTfLiteOk);
    return results;
  }

  std::vector<uint8_t> bytes;
  std::string said;
  InterpreterPtr interpreter;
};

// y = RELU(x), int8 [1, 4] with zero point -3: nothing below -3 is left.
std::vector<uint8_t> ReluModel() {
  ModelBuilder m;
  m.Output(m.Relu(m.Input({1, 4})));
  return m.Build();
}

std::vector<int> DimsOf(const TfLiteTensor& tensor) {
  return {tensor.dims->data, tensor.dims->data + tensor.dims->size};
}

TEST(TfLiteC, RunsAfterModelAndOptionsAreGone) {
  Session session(ReluModel());
  ASSERT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk);
  EXPECT_THAT(session.Run({-128, -4, 5, 127}), ElementsAre(-3, -3, 5, 127));
  EXPECT_THAT(session.Run({1, 2, 3, 4}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(session.said, IsEmpty());
}

TEST(TfLiteC, DescribesTensors) {
  Session session(ReluModel());
  EXPECT_EQ(TfLiteInterpreterGetInputTensorCount(session.get()), 1);
  EXPECT_EQ(TfLiteInterpreterGetOutputTensorCount(session.get()), 1);
  const TfLiteTensor* const input = session.input();
  ASSERT_NE(input, nullptr);
  EXPECT_EQ(TfLiteTensorType(input), kTfLiteInt8);
  EXPECT_EQ(TfLiteTensorNumDims(input), 2);
  EXPECT_EQ(TfLiteTensorDim(input, 0), 1);
  EXPECT_EQ(TfLiteTensorDim(input, 1), 4);
  EXPECT_EQ(TfLiteTensorByteSize(input), 4u);
  EXPECT_NE(TfLiteTensorName(input), nullptr);
  EXPECT_FLOAT_EQ(TfLiteTensorQuantizationParams(input).scale, 1.0f / 16);
  EXPECT_EQ(TfLiteTensorQuantizationParams(input).zero_point, -3);
}

TEST(TfLiteC, TensorsAreStructsThatProgramsRead) {
  Session session(ReluModel());
  ASSERT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk);
  const TfLiteTensor& input = *session.input();
  EXPECT_EQ(input.type, kTfLiteInt8);
  EXPECT_THAT(DimsOf(input), ElementsAre(1, 4));
  EXPECT_EQ(input.bytes, 4u);
  EXPECT_EQ(input.allocation_type, kTfLiteArenaRw);
  EXPECT_EQ(input.data.data, TfLiteTensorData(&input));
  EXPECT_EQ(input.buffer_handle, -1);
  EXPECT_FALSE(input.is_variable);
  EXPECT_EQ(input.delegate, nullptr);
  EXPECT_EQ(input.sparsity, nullptr);
  ASSERT_EQ(input.quantization.type, kTfLiteAffineQuantization);
  const auto& affine = *static_cast<const TfLiteAffineQuantization*>(input.quantization.params);
  ASSERT_EQ(affine.scale->size, 1);
  EXPECT_FLOAT_EQ(affine.scale->data[0], 1.0f / 16);
  ASSERT_EQ(affine.zero_point->size, 1);
  EXPECT_EQ(affine.zero_point->data[0], -3);
  EXPECT_EQ(affine.quantized_dimension, 0);
}

TEST(TfLiteC, NothingRunsBeforeItIsAllocated) {
  Session session(ReluModel());
  EXPECT_EQ(TfLiteTensorData(session.input()), nullptr);
  EXPECT_EQ(TfLiteInterpreterInvoke(session.get()), kTfLiteError);
  EXPECT_THAT(session.said, HasSubstr("Invoke called on model that is not ready."));
}

TEST(TfLiteC, CopiesNeedTheExactSize) {
  Session session(ReluModel());
  ASSERT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk);
  int8_t bytes[8] = {};
  for (const size_t size : {0, 3, 5, 8}) {
    EXPECT_EQ(TfLiteTensorCopyFromBuffer(session.input(), bytes, size), kTfLiteError) << size;
    EXPECT_EQ(TfLiteTensorCopyToBuffer(session.output(), bytes, size), kTfLiteError) << size;
  }
}

TEST(TfLiteC, ResizedModelsWaitForTheirMemory) {
  Session session(ReluModel());
  ASSERT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk);
  const TfLiteTensor* const input = session.input();
  const TfLiteTensor* const output = session.output();
  const int wider[] = {1, 6};
  ASSERT_EQ(TfLiteInterpreterResizeInputTensor(session.get(), 0, wider, 2), kTfLiteOk);
  EXPECT_EQ(TfLiteInterpreterInvoke(session.get()), kTfLiteError);
  ASSERT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk);
  EXPECT_EQ(session.input(), input);
  EXPECT_EQ(session.output(), output);
  EXPECT_THAT(DimsOf(*input), ElementsAre(1, 6));
  EXPECT_THAT(DimsOf(*output), ElementsAre(1, 6));
  EXPECT_EQ(input->bytes, 6u);
  EXPECT_THAT(session.Run({-9, 1, 2, 3, 4, 5}), ElementsAre(-3, 1, 2, 3, 4, 5));
  // And back.
  const int before[] = {1, 4};
  ASSERT_EQ(TfLiteInterpreterResizeInputTensor(session.get(), 0, before, 2), kTfLiteOk);
  ASSERT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk);
  EXPECT_THAT(session.Run({-9, 1, 2, 3}), ElementsAre(-3, 1, 2, 3));
}

TEST(TfLiteC, AShapeThatFitsNothingFailsWhenItIsAllocated) {
  ModelBuilder m;
  m.Output(m.Conv2D(m.Input({1, 4, 4, 2}), {.channels = 3}));
  Session session(m.Build());
  ASSERT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk);
  const int odd[] = {1, 4, 4, 3};
  EXPECT_EQ(TfLiteInterpreterResizeInputTensor(session.get(), 0, odd, 4), kTfLiteOk);
  EXPECT_NE(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk);
  EXPECT_THAT(session.said, HasSubstr("CONV_2D"));
  EXPECT_EQ(TfLiteInterpreterInvoke(session.get()), kTfLiteError);
  // It is not lost by that.
  const int right[] = {1, 4, 4, 2};
  EXPECT_EQ(TfLiteInterpreterResizeInputTensor(session.get(), 0, right, 4), kTfLiteOk);
  EXPECT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk);
  EXPECT_EQ(TfLiteInterpreterInvoke(session.get()), kTfLiteOk);
}

TEST(TfLiteC, ThereIsNoTensorBeyondTheLast) {
  Session session(ReluModel());
  EXPECT_EQ(TfLiteInterpreterGetInputTensor(session.get(), 1), nullptr);
  EXPECT_EQ(TfLiteInterpreterGetOutputTensor(session.get(), 1), nullptr);
}

TEST(TfLiteC, WhatIsNoModelIsNone) {
  const char text[] = "this is no model at all, only text";
  EXPECT_EQ(TfLiteModelCreate(text, sizeof(text)), nullptr);
  EXPECT_EQ(TfLiteModelCreate(text, 0), nullptr);
  EXPECT_EQ(TfLiteModelCreateFromFile("/there/is/no/such.tflite"), nullptr);
}

TEST(TfLiteC, FilesAndBytesAreTheSameModel) {
  std::ifstream file(kFashion, std::ios::binary);
  const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  Session from_file(kFashion);
  Session from_bytes(bytes);
  std::vector<std::vector<int8_t>> results;
  for (Session* const session : {&from_file, &from_bytes}) {
    ASSERT_EQ(TfLiteInterpreterAllocateTensors(session->get()), kTfLiteOk);
    std::vector<int8_t> picture(TfLiteTensorByteSize(session->input()));
    for (size_t i = 0; i < picture.size(); ++i) picture[i] = static_cast<int8_t>(i * 7);
    results.push_back(session->Run(picture));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0].size(), 10u);
}

TEST(TfLiteC, OptionsMayBeAbsent) {
  const ModelPtr model(TfLiteModelCreateFromFile(kFashion));
  const InterpreterPtr interpreter(TfLiteInterpreterCreate(model.get(), nullptr));
  ASSERT_NE(interpreter, nullptr);
  ASSERT_EQ(TfLiteInterpreterAllocateTensors(interpreter.get()), kTfLiteOk);
  EXPECT_EQ(TfLiteInterpreterInvoke(interpreter.get()), kTfLiteOk);
}

TEST(TfLiteC, OneModelHasManyInterpreters) {
  const ModelPtr model(TfLiteModelCreateFromFile(kFashion));
  std::vector<std::vector<int8_t>> results(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      const InterpreterPtr interpreter(TfLiteInterpreterCreate(model.get(), nullptr));
      TfLiteInterpreterAllocateTensors(interpreter.get());
      TfLiteTensor* const input = TfLiteInterpreterGetInputTensor(interpreter.get(), 0);
      for (int turn = 0; turn < 20; ++turn) {
        std::memset(TfLiteTensorData(input), 17, TfLiteTensorByteSize(input));
        TfLiteInterpreterInvoke(interpreter.get());
      }
      const TfLiteTensor* const output = TfLiteInterpreterGetOutputTensor(interpreter.get(), 0);
      results[i].resize(TfLiteTensorByteSize(output));
      TfLiteTensorCopyToBuffer(output, results[i].data(), results[i].size());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(TfLiteC, DeletingNothingIsAllowed) {
  TfLiteModelDelete(nullptr);
  TfLiteInterpreterOptionsDelete(nullptr);
  TfLiteInterpreterDelete(nullptr);
}

TEST(TfLiteC, PerChannelQuantizationHasNoSingleScale) {
  ModelBuilder m;
  m.Output(m.Conv2D(m.Input({1, 4, 4, 2}), {.channels = 3, .kernel = 1}));
  const int32_t weights = m.graph().nodes[0].inputs[1];
  const auto& quantization = m.graph().tensors[weights].quantization;
  ASSERT_EQ(quantization.scales.size(), 3u);
  Session session(m.Build());
  ASSERT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk);
  EXPECT_GT(TfLiteTensorQuantizationParams(session.output()).scale, 0);
}

TEST(TfLiteC, TypesHaveNames) {
  EXPECT_STREQ(TfLiteTypeGetName(kTfLiteNoType), "NOTYPE");
  EXPECT_STREQ(TfLiteTypeGetName(kTfLiteFloat32), "FLOAT32");
  EXPECT_STREQ(TfLiteTypeGetName(kTfLiteInt8), "INT8");
  EXPECT_STREQ(TfLiteTypeGetName(kTfLiteUInt8), "UINT8");
  EXPECT_STREQ(TfLiteTypeGetName(kTfLiteUInt32), "UINT32");
}

TEST(TfLiteC, ArraysAreTheProgramsOwn) {
  TfLiteIntArray* const three = TfLiteIntArrayCreate(3);
  for (int i = 0; i < 3; ++i) three->data[i] = i;
  TfLiteIntArray* const copy = TfLiteIntArrayCopy(three);
  EXPECT_EQ(TfLiteIntArrayEqual(three, copy), 1);
  const int numbers[] = {0, 1, 2};
  EXPECT_EQ(TfLiteIntArrayEqualsArray(three, 3, numbers), 1);
  EXPECT_EQ(TfLiteIntArrayEqualsArray(three, 2, numbers), 0);
  copy->data[2] = 7;
  EXPECT_EQ(TfLiteIntArrayEqual(three, copy), 0);
  TfLiteIntArrayFree(three);
  TfLiteIntArrayFree(copy);
  TfLiteFloatArray* const floats = TfLiteFloatArrayCreate(2);
  EXPECT_EQ(floats->size, 2);
  TfLiteFloatArrayFree(floats);
}

TEST(TfLiteC, VariablesAreReset) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 1, 4});
  m.Output(m.Lstm(x, {.units = 3}));
  Session session(m.Build());
  ASSERT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk);
  const std::vector<int8_t> values = {90, -70, 40, 100};
  const std::vector<int8_t> first = session.Run(values);
  const std::vector<int8_t> second = session.Run(values);
  EXPECT_NE(first, second);  // it remembers
  ASSERT_EQ(TfLiteInterpreterResetVariableTensors(session.get()), kTfLiteOk);
  EXPECT_EQ(session.Run(values), first);
}

TEST(TfLiteC, AnUnknownCustomOperatorIsNamed) {
  ModelBuilder m;
  const int32_t input = m.Input({1, 4});
  m.tensor(input).name = "image";
  m.Output(m.Custom("SomebodysOwn", input));
  const std::vector<uint8_t> bytes = m.Build();
  const ModelPtr model(TfLiteModelCreate(bytes.data(), bytes.size()));
  ASSERT_NE(model, nullptr);
  std::string said;
  const OptionsPtr options(TfLiteInterpreterOptionsCreate());
  TfLiteInterpreterOptionsSetErrorReporter(options.get(), Collect, &said);
  const InterpreterPtr interpreter(TfLiteInterpreterCreate(model.get(), options.get()));
  ASSERT_NE(interpreter, nullptr) << said;
  EXPECT_EQ(TfLiteInterpreterAllocateTensors(interpreter.get()), kTfLiteUnresolvedOps);
  EXPECT_THAT(said, HasSubstr("SomebodysOwn"));
  EXPECT_EQ(TfLiteInterpreterInvoke(interpreter.get()), kTfLiteError);
  // Its tensors are there as ever, without data.
  ASSERT_EQ(TfLiteInterpreterGetInputTensorCount(interpreter.get()), 1);
  ASSERT_EQ(TfLiteInterpreterGetOutputTensorCount(interpreter.get()), 1);
  const TfLiteTensor* const image = TfLiteInterpreterGetInputTensor(interpreter.get(), 0);
  EXPECT_STREQ(TfLiteTensorName(image), "image");
  EXPECT_EQ(TfLiteTensorType(image), kTfLiteInt8);
  EXPECT_EQ(TfLiteTensorByteSize(image), 4u);
  EXPECT_EQ(TfLiteTensorData(image), nullptr);
  EXPECT_EQ(TfLiteTensorQuantizationParams(image).zero_point, -3);
  const int wider[] = {1, 6};
  EXPECT_EQ(TfLiteInterpreterResizeInputTensor(interpreter.get(), 0, wider, 2), kTfLiteOk);
  EXPECT_EQ(TfLiteTensorDim(image, 1), 6);
  EXPECT_EQ(TfLiteInterpreterAllocateTensors(interpreter.get()), kTfLiteUnresolvedOps);
}

// ---- Ours ---------------------------------------------------------------------------------------

// y = RELU(x), with the signature "serving" that calls them "in" and "out".
std::vector<uint8_t> SignedModel() {
  ModelBuilder m;
  const int32_t x = m.Input({1, 4});
  const int32_t y = m.Relu(x);
  m.Output(y);
  atollrt::ModelExtras extras;
  extras.signatures.push_back(
      {.key = "serving", .graph = 0, .inputs = {{"in", x}}, .outputs = {{"out", y}}});
  return m.Build(extras);
}

TEST(StandInC, SaysWhatItStandsInFor) {
  EXPECT_STREQ(TfLiteVersion(), "2.16.1");
  EXPECT_STREQ(TfLiteExtensionApisVersion(), "2.16.1");
  EXPECT_EQ(TfLiteSchemaVersion(), 3);
}

// TensorFlow Lite reads what is not there.
TEST(StandInC, LooksBeforeItReads) {
  Session session(ReluModel());
  int8_t bytes[4] = {};
  EXPECT_EQ(TfLiteTensorCopyFromBuffer(session.input(), bytes, 4), kTfLiteError);
  EXPECT_EQ(TfLiteTensorCopyToBuffer(session.output(), bytes, 4), kTfLiteError);
  EXPECT_EQ(TfLiteInterpreterGetInputTensor(session.get(), -1), nullptr);
  EXPECT_EQ(TfLiteInterpreterGetOutputTensor(session.get(), -1), nullptr);
  EXPECT_EQ(TfLiteInterpreterCreate(nullptr, nullptr), nullptr);
  const int any[] = {1, 4};
  EXPECT_EQ(TfLiteInterpreterResizeInputTensor(session.get(), -1, any, 2), kTfLiteError);
  EXPECT_EQ(TfLiteInterpreterResizeInputTensor(session.get(), 1, any, 2), kTfLiteError);
  const int negative[] = {1, -4};
  EXPECT_EQ(TfLiteInterpreterResizeInputTensor(session.get(), 0, negative, 2), kTfLiteError);
  EXPECT_THAT(session.said, HasSubstr("-4"));
  EXPECT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk);  // as it was
  EXPECT_THAT(session.Run({-9, 1, 2, 3}), ElementsAre(-3, 1, 2, 3));
}

TEST(StandInC, RunsSignatures) {
  Session session(SignedModel());
  ASSERT_EQ(TfLiteInterpreterGetSignatureCount(session.get()), 1);
  EXPECT_STREQ(TfLiteInterpreterGetSignatureKey(session.get(), 0), "serving");
  EXPECT_EQ(TfLiteInterpreterGetSignatureKey(session.get(), 1), nullptr);
  EXPECT_EQ(TfLiteInterpreterGetSignatureRunner(session.get(), "other"), nullptr);
  EXPECT_THAT(session.said, HasSubstr("other"));
  const RunnerPtr runner(TfLiteInterpreterGetSignatureRunner(session.get(), "serving"));
  ASSERT_NE(runner, nullptr);
  EXPECT_EQ(TfLiteSignatureRunnerGetInputCount(runner.get()), 1u);
  EXPECT_STREQ(TfLiteSignatureRunnerGetInputName(runner.get(), 0), "in");
  EXPECT_EQ(TfLiteSignatureRunnerGetInputName(runner.get(), 1), nullptr);
  EXPECT_STREQ(TfLiteSignatureRunnerGetOutputName(runner.get(), 0), "out");
  EXPECT_EQ(TfLiteSignatureRunnerGetInputTensor(runner.get(), "out"), nullptr);
  const int wider[] = {1, 5};
  ASSERT_EQ(TfLiteSignatureRunnerResizeInputTensor(runner.get(), "in", wider, 2), kTfLiteOk);
  EXPECT_EQ(TfLiteSignatureRunnerResizeInputTensor(runner.get(), "no", wider, 2), kTfLiteError);
  ASSERT_EQ(TfLiteSignatureRunnerAllocateTensors(runner.get()), kTfLiteOk);
  const int8_t values[] = {-9, 1, 2, 3, 4};
  ASSERT_EQ(TfLiteTensorCopyFromBuffer(TfLiteSignatureRunnerGetInputTensor(runner.get(), "in"),
                                       values, sizeof(values)),
            kTfLiteOk);
  ASSERT_EQ(TfLiteSignatureRunnerInvoke(runner.get()), kTfLiteOk);
  int8_t results[5] = {};
  ASSERT_EQ(TfLiteTensorCopyToBuffer(TfLiteSignatureRunnerGetOutputTensor(runner.get(), "out"),
                                     results, sizeof(results)),
            kTfLiteOk);
  EXPECT_THAT(results, ElementsAre(-3, 1, 2, 3, 4));
}

TEST(StandInC, KnowsIndicesInTheFile) {
  Session session(SignedModel());
  EXPECT_EQ(TfLiteInterpreterInputTensorIndices(session.get())[0], 0);
  EXPECT_EQ(TfLiteInterpreterGetInputTensorIndex(session.get(), 0), 0);
  EXPECT_EQ(TfLiteInterpreterGetInputTensorIndex(session.get(), 1), -1);
  EXPECT_EQ(TfLiteInterpreterGetTensor(session.get(), 0), session.input());
  EXPECT_EQ(TfLiteInterpreterGetTensor(session.get(), 99), nullptr);
  EXPECT_EQ(TfLiteInterpreterGetTensor(session.get(), -1), nullptr);
}

TEST(StandInC, CancelsWhereThatWasAskedFor) {
  const ModelPtr model(TfLiteModelCreateFromFile(kFashion));
  const OptionsPtr options(TfLiteInterpreterOptionsCreate());
  const InterpreterPtr without(TfLiteInterpreterCreate(model.get(), options.get()));
  EXPECT_EQ(TfLiteInterpreterCancel(without.get()), kTfLiteError);
  EXPECT_EQ(TfLiteInterpreterOptionsEnableCancellation(options.get(), true), kTfLiteOk);
  const OptionsPtr copy(TfLiteInterpreterOptionsCopy(options.get()));
  const InterpreterPtr with(TfLiteInterpreterCreate(model.get(), copy.get()));
  ASSERT_EQ(TfLiteInterpreterAllocateTensors(with.get()), kTfLiteOk);
  EXPECT_EQ(TfLiteInterpreterCancel(with.get()), kTfLiteOk);
  // Without an invocation in progress there was nothing to cancel.
  EXPECT_EQ(TfLiteInterpreterInvoke(with.get()), kTfLiteOk);
}

TEST(StandInC, DataMayPointAtTheProgramsMemory) {
  Session session(ReluModel());
  ASSERT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk);
  int8_t in[4] = {-9, 8, 7, 6};
  int8_t out[4] = {};
  session.input()->data.int8 = in;
  const_cast<TfLiteTensor*>(session.output())->data.int8 = out;
  ASSERT_EQ(TfLiteInterpreterInvoke(session.get()), kTfLiteOk);
  EXPECT_THAT(out, ElementsAre(-3, 8, 7, 6));
}

TfLiteDelegate* MakeExternal(const std::vector<std::pair<const char*, const char*>>& pairs) {
  TfLiteExternalDelegateOptions options =
      TfLiteExternalDelegateOptionsDefault(ATOLL_TFLITE_DELEGATE);
  for (const auto& [key, value] : pairs) options.insert(&options, key, value);
  return TfLiteExternalDelegateCreate(&options);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep what is freed
constexpr ptrdiff_t kMostThatIsKept = 1 << 20;

size_t ResidentBytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm").ignore(32, ' ') >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void ExpectKept(size_t bytes_before) {
  const auto growth = static_cast<ptrdiff_t>(ResidentBytes() - bytes_before);
  std::printf("%+td bytes\n", growth);
  EXPECT_LT(growth, kMostThatIsKept);
}

// Interpreters, with the delegate if there is one, come and go; some are run.
void MakeInterpreters(int times, TfLiteDelegate* delegate) {
  for (int i = 0; i < times; ++i) {
    const ModelPtr model(TfLiteModelCreateFromFile(kFashion));
    const OptionsPtr options(TfLiteInterpreterOptionsCreate());
    TfLiteInterpreterOptionsSetNumThreads(options.get(), 1);
    if (delegate != nullptr) TfLiteInterpreterOptionsAddDelegate(options.get(), delegate);
    const InterpreterPtr interpreter(TfLiteInterpreterCreate(model.get(), options.get()));
    ASSERT_EQ(TfLiteInterpreterAllocateTensors(interpreter.get()), kTfLiteOk);
    if (i % 100 == 0) {
      ASSERT_EQ(TfLiteInterpreterInvoke(interpreter.get()), kTfLiteOk);
    }
  }
}

class StandInCMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("QEMU_CPU") != nullptr) GTEST_SKIP() << "it would be QEMU's memory";
  }
};

TEST_F(StandInCMemory, KeepsNothingOfWhatIsDeleted) {
  MakeInterpreters(200, nullptr);
  const size_t before = ResidentBytes();
  MakeInterpreters(10000, nullptr);
  ExpectKept(before);
}

TEST_F(StandInCMemory, KeepsNothingOfInterpretersOfOneDelegate) {
  TfLiteDelegate* const delegate = MakeExternal({{"device", "emu"}, {"num_threads", "1"}});
  ASSERT_NE(delegate, nullptr);
  const int times = atollrt::TestCount(500);
  MakeInterpreters(times / 10, delegate);
  const size_t before = ResidentBytes();
  MakeInterpreters(times, delegate);
  ExpectKept(before);
  TfLiteExternalDelegateDelete(delegate);
}

TEST_F(StandInCMemory, KeepsNothingOfDelegates) {
  const auto cycle = [](int times) {
    for (int i = 0; i < times; ++i) {
      TfLiteDelegate* const delegate = MakeExternal({{"device", "emu"}, {"num_threads", "1"}});
      ASSERT_NE(delegate, nullptr);
      MakeInterpreters(1, delegate);
      TfLiteExternalDelegateDelete(delegate);
    }
  };
  const int times = atollrt::TestCount(500);
  cycle(times / 10);
  const size_t before = ResidentBytes();
  cycle(times);
  ExpectKept(before);
}
#endif

TEST(StandInC, ForeignDelegatesAreLeftOut) {
  static int prepared;
  prepared = 0;
  TfLiteDelegate foreign = {};
  foreign.Prepare = [](TfLiteContext* context, TfLiteDelegate* /*delegate*/) {
    ++prepared;
    TfLiteIntArray* plan = nullptr;
    EXPECT_EQ(context->GetExecutionPlan(context, &plan), kTfLiteOk);
    EXPECT_EQ(plan->size, 0);
    return kTfLiteOk;
  };
  const ModelPtr model(TfLiteModelCreateFromFile(kFashion));
  const OptionsPtr options(TfLiteInterpreterOptionsCreate());
  TfLiteInterpreterOptionsAddDelegate(options.get(), &foreign);
  testing::internal::CaptureStderr();
  const InterpreterPtr interpreter(TfLiteInterpreterCreate(model.get(), options.get()));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("WARNING"));
  ASSERT_NE(interpreter, nullptr);
  EXPECT_EQ(prepared, 1);
  ASSERT_EQ(TfLiteInterpreterAllocateTensors(interpreter.get()), kTfLiteOk);
  EXPECT_EQ(TfLiteInterpreterInvoke(interpreter.get()), kTfLiteOk);
}

TEST(StandInC, LibrariesThatAreNoDelegatesAreNamed) {
  TfLiteExternalDelegateOptions options = TfLiteExternalDelegateOptionsDefault("libm.so.6");
  testing::internal::CaptureStderr();
  EXPECT_EQ(TfLiteExternalDelegateCreate(&options), nullptr);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("libm.so.6"));
  options = TfLiteExternalDelegateOptionsDefault("/no/such/library.so");
  testing::internal::CaptureStderr();
  EXPECT_EQ(TfLiteExternalDelegateCreate(&options), nullptr);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("/no/such/library.so"));
}

TEST(StandInC, OptionsOfExternalDelegatesEnd) {
  TfLiteExternalDelegateOptions options = TfLiteExternalDelegateOptionsDefault("x");
  for (int i = 0; i < kTfLiteExternalDelegateMaxOptions; ++i) {
    ASSERT_EQ(options.insert(&options, "key", "value"), kTfLiteOk) << i;
  }
  EXPECT_EQ(options.insert(&options, "key", "value"), kTfLiteError);
}

TEST(StandInC, OptionsOfExternalDelegatesAreAsManyAsThereCanBe) {
  TfLiteExternalDelegateOptions options =
      TfLiteExternalDelegateOptionsDefault(ATOLL_TFLITE_DELEGATE);
  for (const int count : {-1, INT32_MIN, INT32_MAX}) {
    options.count = count;
    TfLiteDelegate* const delegate = TfLiteExternalDelegateCreate(&options);
    EXPECT_NE(delegate, nullptr);
    TfLiteExternalDelegateDelete(delegate);
  }
}

// A device that is lost takes no graph; the one that was there goes on.
TEST(StandInC, AGraphThatNobodyTookIsAsItWas) {
  const std::string plan = testing::TempDir() + "atoll_lost_" + std::to_string(getpid());
  std::ofstream(plan) << "out 1 unplug never\n";
  TfLiteDelegate* const lost =
      MakeExternal({{"device", "emu"}, {"faults", plan.c_str()}, {"on_device_loss", "fail"}});
  std::remove(plan.c_str());
  ASSERT_NE(lost, nullptr);
  {
    Session first(kFashion);
    ASSERT_EQ(TfLiteInterpreterModifyGraphWithDelegate(first.get(), lost), kTfLiteOk) << first.said;
    ASSERT_EQ(TfLiteInterpreterAllocateTensors(first.get()), kTfLiteOk);
    ASSERT_NE(TfLiteInterpreterInvoke(first.get()), kTfLiteOk);
  }
  Session session(kFashion);
  ASSERT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk);
  const std::vector<int8_t> image(28 * 28, 3);
  const std::vector<int8_t> expected = session.Run(image);
  EXPECT_EQ(TfLiteInterpreterModifyGraphWithDelegate(session.get(), lost), kTfLiteDelegateError);
  EXPECT_THAT(session.said, HasSubstr("away"));
  EXPECT_EQ(session.Run(image), expected);
  TfLiteExternalDelegateDelete(lost);
  EXPECT_EQ(session.Run(image), expected);
}

TEST(StandInC, ForgetsDelegatesThatTookNothing) {
  static int prepared;
  prepared = 0;
  TfLiteDelegate foreign = {};
  foreign.Prepare = [](TfLiteContext*, TfLiteDelegate*) {
    ++prepared;
    return kTfLiteOk;
  };
  TfLiteDelegate other = {};
  Session session(kFashion);
  setenv("ATOLL_DEVICE", "usb:/no/such", 1);
  EXPECT_EQ(TfLiteInterpreterModifyGraphWithDelegate(session.get(), &foreign),
            kTfLiteDelegateError);
  unsetenv("ATOLL_DEVICE");
  EXPECT_EQ(prepared, 1);
  EXPECT_EQ(TfLiteInterpreterModifyGraphWithDelegate(session.get(), &other), kTfLiteOk);
  EXPECT_EQ(prepared, 1);
}

// What could not run before has data in its tensors when it can; they stay where they are.
TEST(StandInC, ADelegateBringsDataOfAModelThatCouldNotRun) {
  const std::string folder = testing::TempDir() + "atoll_beside_" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  const auto write = [](const std::string& path, const std::vector<uint8_t>& bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  };
  ModelBuilder m;
  m.Output(m.Custom("edgetpu-custom-op", m.Input({1, 4})));
  write(folder + "/relu_edgetpu.tflite", m.Build());
  Session session((folder + "/relu_edgetpu.tflite").c_str());
  EXPECT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteUnresolvedOps);
  ASSERT_EQ(TfLiteInterpreterGetInputTensorCount(session.get()), 1);
  const TfLiteTensor* const before = TfLiteInterpreterGetInputTensor(session.get(), 0);
  write(folder + "/relu.tflite", ReluModel());
  TfLiteDelegate* const delegate = MakeExternal({{"device", "emu"}});
  EXPECT_EQ(TfLiteInterpreterModifyGraphWithDelegate(session.get(), delegate), kTfLiteOk);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(TfLiteInterpreterGetInputTensor(session.get(), 0), before);
  ASSERT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk) << session.said;
  EXPECT_THAT(session.Run({-128, -4, 5, 127}), ElementsAre(-3, -3, 5, 127));
  TfLiteExternalDelegateDelete(delegate);
}

// A program's function that makes other calls fail before it reads what it was told.
TEST(StandInC, ReportersMayCallBack) {
  std::string said;
  const auto report = [](void* user_data, const char* format, va_list args) {
    if (getenv("ATOLL_DEVICE") != nullptr) {
      setenv("ATOLL_DEVICE", "cpu", 1);  // this time it is there
      const ModelPtr model(TfLiteModelCreateFromFile(kFashion));
      EXPECT_NE(InterpreterPtr(TfLiteInterpreterCreate(model.get(), nullptr)), nullptr);
    }
    testing::internal::CaptureStderr();
    EXPECT_EQ(TfLiteModelCreate(std::string(100, 'x').c_str(), 100), nullptr);
    testing::internal::GetCapturedStderr();
    Collect(user_data, format, args);
  };
  EXPECT_EQ(TfLiteModelCreateWithErrorReporter("no model", 8, report, &said), nullptr);
  EXPECT_THAT(said, HasSubstr("8 bytes"));
  said.clear();
  const ModelPtr model(TfLiteModelCreateFromFile(kFashion));
  const OptionsPtr options(TfLiteInterpreterOptionsCreate());
  TfLiteInterpreterOptionsSetErrorReporter(options.get(), report, &said);
  setenv("ATOLL_DEVICE", "usb:/no/such", 1);
  EXPECT_EQ(TfLiteInterpreterCreate(model.get(), options.get()), nullptr);
  unsetenv("ATOLL_DEVICE");
  EXPECT_THAT(said, HasSubstr("ATOLL_DEVICE: "));
}

TEST(StandInC, TakesAsManyThreadsAsThereMayBe) {
  const ModelPtr model(TfLiteModelCreateFromFile(kFashion));
  const OptionsPtr options(TfLiteInterpreterOptionsCreate());
  TfLiteInterpreterOptionsSetNumThreads(options.get(), INT32_MAX);
  EXPECT_NE(InterpreterPtr(TfLiteInterpreterCreate(model.get(), options.get())), nullptr);
}

// One model, and one delegate, for two threads: each makes interpreters, with and without the
// delegate, runs them with other shapes between, and deletes them.
TEST(StandInC, InterpretersOfThreadsShareModelAndDelegate) {
  const ModelPtr model(TfLiteModelCreateFromFile(kFashion));
  TfLiteDelegate* const delegate = MakeExternal({{"device", "emu"}, {"num_threads", "1"}});
  ASSERT_NE(delegate, nullptr);
  const auto run = [&](bool with_delegate, int8_t fill) {
    Session session(model.get(), with_delegate ? delegate : nullptr);
    std::vector<std::vector<int8_t>> outputs;
    for (const int batch : {1, 2, 1}) {
      const int dims[] = {batch, 28, 28, 1};
      EXPECT_EQ(TfLiteInterpreterResizeInputTensor(session.get(), 0, dims, 4), kTfLiteOk);
      EXPECT_EQ(TfLiteInterpreterAllocateTensors(session.get()), kTfLiteOk) << session.said;
      std::vector<int8_t> images(batch * 28 * 28);
      for (size_t i = 0; i < images.size(); ++i) images[i] = static_cast<int8_t>(i * fill);
      outputs.push_back(session.Run(images));
    }
    return outputs;
  };
  const std::vector<std::vector<int8_t>> wanted[] = {run(false, 3), run(false, 5)};
  std::vector<std::thread> threads;
  for (const int own : {0, 1}) {
    threads.emplace_back([&, own] {
      for (int turn = 0; turn < 20; ++turn) {
        EXPECT_EQ(run(turn % 2 == own, static_cast<int8_t>(3 + 2 * own)), wanted[own]) << turn;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  TfLiteExternalDelegateDelete(delegate);
}

TEST(StandInC, XnnpackIsNotNeeded) {
  TfLiteXNNPackDelegateOptions xnnpack = TfLiteXNNPackDelegateOptionsDefault();
  TfLiteDelegate* const delegate = TfLiteXNNPackDelegateCreate(&xnnpack);
  ASSERT_NE(delegate, nullptr);
  const ModelPtr model(TfLiteModelCreateFromFile(kFashion));
  const OptionsPtr options(TfLiteInterpreterOptionsCreate());
  TfLiteInterpreterOptionsAddDelegate(options.get(), delegate);
  testing::internal::CaptureStderr();
  const InterpreterPtr interpreter(TfLiteInterpreterCreate(model.get(), options.get()));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
  ASSERT_NE(interpreter, nullptr);
  TfLiteXNNPackDelegateDelete(delegate);
}

TEST(StandInC, ADeviceThatIsNoneIsAReason) {
  setenv("ATOLL_DEVICE", "usb:/no/such", 1);
  const ModelPtr model(TfLiteModelCreateFromFile(kFashion));
  std::string said;
  const OptionsPtr options(TfLiteInterpreterOptionsCreate());
  TfLiteInterpreterOptionsSetErrorReporter(options.get(), Collect, &said);
  EXPECT_EQ(TfLiteInterpreterCreate(model.get(), options.get()), nullptr);
  unsetenv("ATOLL_DEVICE");
  EXPECT_THAT(said, HasSubstr("usb"));
}

}  // namespace
