// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <type_traits>

#include "atoll/atoll.hpp"
#include "tests/support/fashion_interpreter.h"

namespace atollpp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

static_assert(!std::is_copy_constructible_v<Interpreter>);
static_assert(std::is_copy_constructible_v<Model> && std::is_copy_constructible_v<Delegate>);

// A picture that any model of its size could get.
void FillInput(Interpreter& interpreter) {
  const std::span<int8_t> pixels = interpreter.input(0).values<int8_t>();
  ASSERT_EQ(pixels.size(), 28u * 28);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<int8_t>(i * 37 % 256 - 128);
}

TEST(AtollHpp, RunsAModel) {
  Interpreter cpu = MakeInterpreter("cpu");
  Interpreter emu = MakeInterpreter("emu");
  EXPECT_EQ(AtollInterpreterGetPartitionCount(cpu.get()), 0);
  EXPECT_EQ(AtollInterpreterGetPartitionCount(emu.get()), 1);
  FillInput(cpu);
  FillInput(emu);
  Status status = cpu.Invoke();
  EXPECT_TRUE(status) << status.message();
  status = emu.InvokeAsync();
  EXPECT_TRUE(status) << status.message();
  status = emu.Wait();
  EXPECT_TRUE(status) << status.message();
  status = emu.ResetVariableTensors();
  EXPECT_TRUE(status) << status.message();

  const std::span<const int8_t> scores = cpu.output(0).values<int8_t>();
  ASSERT_EQ(scores.size(), 10u);
  EXPECT_TRUE(std::ranges::equal(scores, emu.output(0).values<int8_t>()));
  const std::vector<float> real = cpu.output(0).RealValues();
  const AtollQuantization q = cpu.output(0).quantization();
  ASSERT_EQ(real.size(), 10u);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(real[i], q.scale * static_cast<float>(scores[i] - q.zero_point));
  }
}

TEST(AtollHpp, ResizesInputs) {
  Interpreter interpreter = MakeInterpreter("emu");
  const int32_t wide[] = {1, 40, 44, 1};
  EXPECT_TRUE(interpreter.ResizeInput(0, wide));
  EXPECT_EQ(interpreter.Invoke().code(), ATOLL_INVALID_ARGUMENT);
  EXPECT_FALSE(interpreter.input(0).values<int8_t>());
  const Status status = interpreter.AllocateTensors();
  EXPECT_TRUE(status) << status.message();
  EXPECT_EQ(interpreter.input(0).shape(), (std::vector<int32_t>{1, 40, 44, 1}));
  EXPECT_TRUE(interpreter.Invoke());
  EXPECT_FALSE(interpreter.ResizeInput(1, wide));
}

TEST(AtollHpp, DescribesTensors) {
  Interpreter interpreter = MakeInterpreter("cpu");
  EXPECT_EQ(interpreter.input_count(), 1);
  EXPECT_EQ(interpreter.output_count(), 1);
  const Tensor input = interpreter.input(0);
  ASSERT_TRUE(input);
  EXPECT_EQ(input.name(), "image");
  EXPECT_EQ(input.type(), ATOLL_INT8);
  EXPECT_THAT(input.shape(), ElementsAre(1, 28, 28, 1));
  EXPECT_EQ(input.bytes().size(), 784u);
  EXPECT_EQ(input.get(), AtollInterpreterGetInputTensor(interpreter.get(), 0));
  EXPECT_FALSE(interpreter.input(1));
  EXPECT_FALSE(interpreter.output(-1));
}

TEST(AtollHpp, ValuesOfAnotherTypeAreAnError) {
  AtollInterpreterOptions alone = ATOLL_INTERPRETER_OPTIONS_INIT;
  alone.num_threads = 1;  // tests of how a process dies fork it
  Interpreter interpreter = *Interpreter::Create(*Model::FromFile(kFashion), {}, alone);
  const Tensor input = interpreter.input(0);
  const ConstTensor output = interpreter.output(0);
  EXPECT_TRUE(input.values<int8_t>());
  const Values<uint8_t> wrong = input.values<uint8_t>();
  EXPECT_FALSE(wrong);
  EXPECT_TRUE(wrong.empty());
  EXPECT_EQ(wrong.status().code(), ATOLL_INVALID_ARGUMENT);
  EXPECT_EQ(wrong.status().message(), "tensor 'image' is int8, not uint8");
  EXPECT_FALSE(output.values<float>());
  const uint8_t pixels[784] = {};
  EXPECT_DEATH(std::ranges::copy(pixels, input.values<uint8_t>().begin()), "is int8, not uint8");
  EXPECT_DEATH(std::span<const float>(output.values<float>()), "is int8, not float32");
  EXPECT_DEATH((void)output.values<float>()[0], "is int8, not float32");
  EXPECT_DEATH((void)output.values<float>().size(), "is int8, not float32");

  // A tensor that is not there.
  EXPECT_FALSE(interpreter.input(1).bytes());
  EXPECT_EQ(interpreter.input(1).name(), "");
  EXPECT_EQ(interpreter.input(1).type(), ATOLL_NO_TYPE);
  EXPECT_TRUE(interpreter.input(1).shape().empty());
  EXPECT_TRUE(interpreter.output(1).RealValues().empty());
  EXPECT_EQ(interpreter.input(1).values<int8_t>().status().message(), "there is no such tensor");
  EXPECT_DEATH((void)interpreter.input(1).bytes().data(), "there is no such tensor");
}

TEST(AtollHpp, CopiesWhatFits) {
  Interpreter interpreter = MakeInterpreter("cpu");
  std::vector<int8_t> pixels(784, 7);
  Status status = interpreter.input(0).CopyFrom<int8_t>(pixels);
  EXPECT_TRUE(status) << status.message();
  EXPECT_TRUE(std::ranges::equal(interpreter.input(0).values<int8_t>(), pixels));
  pixels.pop_back();
  status = interpreter.input(0).CopyFrom<int8_t>(pixels);
  EXPECT_EQ(status.message(), "tensor 'image' has 784 bytes, not 783");
  const std::vector<uint8_t> bytes(784);
  status = interpreter.input(0).CopyFrom<uint8_t>(bytes);
  EXPECT_EQ(status.message(), "tensor 'image' is int8, not uint8");
  EXPECT_FALSE(interpreter.input(1).CopyFrom<int8_t>(pixels));
  EXPECT_FALSE(interpreter.input(0).CopyFrom<int8_t>({}));

  status = interpreter.Invoke();
  EXPECT_TRUE(status) << status.message();
  int8_t scores[10] = {};
  status = interpreter.output(0).CopyTo<int8_t>(scores);
  EXPECT_TRUE(status) << status.message();
  EXPECT_TRUE(std::ranges::equal(interpreter.output(0).values<int8_t>(), scores));
  EXPECT_FALSE(interpreter.output(0).CopyTo<int8_t>(std::span(scores).first(9)));
  float real[10] = {};
  EXPECT_FALSE(interpreter.output(0).CopyTo<float>(real));
}

TEST(AtollHpp, AFailedResultCannotBeUsed) {
  const Result<Model> absent = Model::FromFile("/no/such/file");
  ASSERT_FALSE(absent);
  EXPECT_DEATH((void)absent->get(), "/no/such/file");
  EXPECT_DEATH((void)*absent, "/no/such/file");
}

// The file may be cut off, overwritten and deleted.
TEST(AtollHpp, ACopyOutlivesItsFile) {
  const std::string path = ::testing::TempDir() + "/replaced.tflite";
  std::ifstream original(kFashion, std::ios::binary);
  std::ofstream(path, std::ios::binary) << original.rdbuf();
  AtollModelOptions options = ATOLL_MODEL_OPTIONS_INIT;
  options.copy_file = 1;
  const Result<Model> model = Model::FromFile(path, options);
  ASSERT_TRUE(model) << model.message();
  Result<Interpreter> before = Interpreter::Create(*model);
  ASSERT_TRUE(before) << before.message();
  std::ofstream(path, std::ios::binary | std::ios::trunc) << "something else";
  Result<Interpreter> after = Interpreter::Create(*model);
  ASSERT_TRUE(after) << after.message();
  FillInput(*before);
  FillInput(*after);
  EXPECT_TRUE(before->Invoke());
  EXPECT_TRUE(after->Invoke());
  EXPECT_TRUE(
      std::ranges::equal(before->output(0).values<int8_t>(), after->output(0).values<int8_t>()));
  EXPECT_EQ(Model::FromFile(path, options).code(), ATOLL_CORRUPT_MODEL);
  std::filesystem::remove(path);
}

TEST(AtollHpp, KeepsWhatIsNeeded) {
  Interpreter first = MakeInterpreter("emu");
  Interpreter second = MakeInterpreter("emu");
  first = std::move(second);  // what it was goes with its device, in the right order
  FillInput(first);
  const Status status = first.Invoke();
  EXPECT_TRUE(status) << status.message();

  Result<Delegate> delegate = Delegate::Open("emu");
  ASSERT_TRUE(delegate);
  const Delegate copy = *delegate;
  EXPECT_EQ(copy.get(), delegate->get());
  const Result<AtollDeviceInfo> info = copy.info();
  ASSERT_TRUE(info) << info.message();
  EXPECT_STREQ(info->name, "emu");
  EXPECT_EQ(Delegate().info().code(), ATOLL_INVALID_ARGUMENT);
}

TEST(AtollHpp, LoadsModelsInEveryWay) {
  std::ifstream file(kFashion, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  const Result<Model> copied = Model::FromBuffer(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(copied) << copied.message();
  EXPECT_TRUE(copied->HasOperator("CONV_2D"));
  EXPECT_FALSE(copied->HasOperator("edgetpu-custom-op"));

  const int32_t wide[] = {40, 44};
  const AtollInputShape shape = {nullptr, -1, wide, 2};
  AtollModelOptions options = ATOLL_MODEL_OPTIONS_INIT;
  options.input_shapes = &shape;
  options.input_shape_count = 1;
  const Result<Model> reshaped = Model::FromFile(kFashion, options);
  ASSERT_TRUE(reshaped) << reshaped.message();
  Result<Interpreter> interpreter = Interpreter::Create(*reshaped);
  ASSERT_TRUE(interpreter) << interpreter.message();
  EXPECT_THAT(interpreter->input(0).shape(), ElementsAre(1, 40, 44, 1));
}

TEST(AtollHpp, SaysWhatIsWrong) {
  const Result<Model> absent = Model::FromFile("/no/such/file");
  EXPECT_FALSE(absent);
  EXPECT_EQ(absent.code(), ATOLL_NOT_FOUND);
  EXPECT_THAT(absent.message(), HasSubstr("/no/such/file"));
  EXPECT_EQ(absent.status().message(), absent.message());
  const std::byte zeros[64] = {};
  EXPECT_EQ(Model::FromBuffer(zeros).code(), ATOLL_CORRUPT_MODEL);
  const Result<Delegate> toaster = Delegate::Open("toaster");
  EXPECT_EQ(toaster.code(), ATOLL_INVALID_ARGUMENT);
  EXPECT_THAT(toaster.message(), HasSubstr("toaster"));

  const Result<Model> model = Model::FromFile(kFashion);
  ASSERT_TRUE(model);
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.struct_size = 3;
  EXPECT_EQ(Interpreter::Create(*model, {}, options).code(), ATOLL_INVALID_ARGUMENT);
  Interpreter interpreter = MakeInterpreter("cpu");
  const Status status = interpreter.Wait();  // for nothing
  EXPECT_FALSE(status);
  EXPECT_EQ(status.code(), ATOLL_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace atollpp
