// SPDX-License-Identifier: Apache-2.0
//
// Models that were compiled for a Coral, where there is none: what runs in their place, by the C
// interface and by atoll.hpp, for each way of finding it and each way in which a file does not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/atoll.hpp"
#include "runtime/substitute.h"
#include "tests/support/absent.h"
#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Bytes = std::vector<uint8_t>;

const fs::path kShared = fs::path(ATOLL_SHARED_DIR) / "models";

Bytes BytesOfFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Two inputs, two outputs of one shape and an inner tensor that other models may have as an output.
struct TwoInputModel {
  explicit TwoInputModel(uint64_t seed = 1) : m(seed) {
    a = m.Input({1, 6});
    b = m.Input({1, 6});
    sum = m.Add(a, b);
    relu = m.Relu(sum);
    dense = m.FullyConnected(relu, 6);
    last = m.Logistic(dense);
    m.Output(dense);
    m.Output(last);
    const std::pair<int32_t, const char*> names[] = {
        {a, "left"}, {b, "right"}, {sum, "sum"}, {relu, "relu"}, {dense, "dense"}, {last, "last"}};
    for (const auto& [tensor, name] : names) m.tensor(tensor).name = name;
  }

  ModelBuilder m;
  int32_t a, b, sum, relu, dense, last;
};

// One operator for a Coral, with inputs and outputs as tensors of `of`, in their order.
class CoralModel {
 public:
  CoralModel(const Graph& of, const std::vector<int32_t>& inputs,
             const std::vector<int32_t>& outputs, Bytes package = {1, 2, 3, 4})
      : package_(std::move(package)) {
    const auto add = [&](int32_t from) {
      const int32_t index = m.Activation({1});
      m.tensor(index) = of.tensors[static_cast<size_t>(from)];
      return index;
    };
    // Numbers that they do not have in the other model.
    m.Activation({3});
    Node node;
    for (const int32_t output : outputs) node.outputs.push_back(add(output));
    for (const int32_t input : inputs) node.inputs.push_back(add(input));
    m.graph().inputs = node.inputs;
    m.graph().outputs = node.outputs;
    node.type = OpType::kCUSTOM;
    node.custom_name = kEdgeTpuOperator;
    node.custom_options = package_;
    m.graph().nodes.push_back(std::move(node));
  }
  explicit CoralModel(const TwoInputModel& of, Bytes package = {1, 2, 3, 4})
      : CoralModel(of.m.graph(), of.m.graph().inputs, of.m.graph().outputs, std::move(package)) {}
  CoralModel(const CoralModel&) = delete;
  CoralModel& operator=(const CoralModel&) = delete;

  Tensor& input(size_t i) { return m.tensor(m.graph().inputs[i]); }
  Tensor& output(size_t i) { return m.tensor(m.graph().outputs[i]); }

  ModelBuilder m;

 private:
  Bytes package_;
};

// What a model gives, or why it does not run.
struct SubstituteRun {
  AtollStatus status = ATOLL_OK;
  std::string error;
  bool is_substituted = false;
  std::string path;  // of what ran
  std::vector<std::string> names;
  std::vector<int32_t> indices;  // of inputs and outputs
  std::vector<Bytes> outputs;
};

class CoralSubstitute : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "atoll-substitute-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    unsetenv("ATOLL_MODEL_PATH");
    AtollSetLogCallback(
        [](AtollLogSeverity severity, const char* message, void* user_data) {
          if (severity >= ATOLL_LOG_WARNING)
            static_cast<CoralSubstitute*>(user_data)->notes_.emplace_back(message);
        },
        this);
  }
  void TearDown() override {
    AtollSetLogCallback(nullptr, nullptr);
    unsetenv("ATOLL_MODEL_PATH");
    fs::remove_all(folder_);
  }

  std::string Write(const std::string& name, const Bytes& bytes) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path.string();
  }
  void SetModelPath(const std::string& value) { setenv("ATOLL_MODEL_PATH", value.c_str(), 1); }

  static AtollModel* FromFile(const std::string& path) {
    AtollModel* model = nullptr;
    EXPECT_EQ(AtollModelCreateFromFile(path.c_str(), &model), ATOLL_OK) << AtollLastError();
    return model;
  }
  static AtollModel* FromBytes(const Bytes& bytes) {
    AtollModel* model = nullptr;
    EXPECT_EQ(AtollModelCreateFromBuffer(bytes.data(), bytes.size(), &model), ATOLL_OK)
        << AtollLastError();
    return model;
  }

  // Runs on `device` what fills input i from a rule that depends on i. Takes the models.
  static SubstituteRun Run(AtollModel* model, const char* device = "cpu",
                           AtollModel* fallback = nullptr) {
    AtollDelegateOptions delegate_options = ATOLL_DELEGATE_OPTIONS_INIT;
    delegate_options.device = device;
    AtollDelegate* delegate = nullptr;
    EXPECT_EQ(AtollDelegateCreate(&delegate_options, &delegate), ATOLL_OK) << AtollLastError();
    AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
    options.num_threads = 1;
    options.delegate = delegate;
    options.fallback = fallback;
    AtollInterpreter* interpreter = nullptr;
    SubstituteRun ran;
    ran.status = AtollInterpreterCreate(model, &options, &interpreter);
    if (ran.status != ATOLL_OK) ran.error = AtollLastError();
    AtollModelDelete(fallback);
    AtollModelDelete(model);
    AtollDelegateDelete(delegate);
    if (interpreter == nullptr) return ran;
    const char* path = nullptr;
    EXPECT_EQ(AtollInterpreterGetSubstitute(interpreter, &path), ATOLL_OK);
    ran.is_substituted = path != nullptr;
    ran.path = path == nullptr ? "" : path;
    for (int32_t i = 0; i < AtollInterpreterGetInputTensorCount(interpreter); ++i) {
      AtollTensor* const tensor = AtollInterpreterGetInputTensor(interpreter, i);
      ran.names.emplace_back(AtollTensorName(tensor));
      ran.indices.push_back(AtollTensorIndex(tensor));
      EXPECT_EQ(AtollInterpreterGetTensor(interpreter, AtollTensorIndex(tensor)), tensor);
      auto* const data = static_cast<uint8_t*>(AtollTensorData(tensor));
      for (size_t k = 0; k < AtollTensorByteSize(tensor); ++k) {
        data[k] = static_cast<uint8_t>(k * 37 + 11 + static_cast<size_t>(i) * 101);
      }
    }
    EXPECT_EQ(AtollInterpreterInvoke(interpreter), ATOLL_OK) << AtollLastError();
    for (int32_t i = 0; i < AtollInterpreterGetOutputTensorCount(interpreter); ++i) {
      const AtollTensor* const tensor = AtollInterpreterGetOutputTensor(interpreter, i);
      ran.names.emplace_back(AtollTensorName(tensor));
      ran.indices.push_back(AtollTensorIndex(tensor));
      const auto* const data = static_cast<const uint8_t*>(AtollTensorConstData(tensor));
      ran.outputs.emplace_back(data, data + AtollTensorByteSize(tensor));
    }
    AtollInterpreterDelete(interpreter);
    return ran;
  }
  SubstituteRun RunFile(const std::string& path, const char* device = "cpu") {
    return Run(FromFile(path), device);
  }

  // Why `compiled` does not take `other` that lies beside it.
  std::string RefusalOf(const CoralModel& compiled, const ModelBuilder& other) {
    const std::string path = Write("net_edgetpu.tflite", compiled.m.Build());
    Write("net.tflite", other.Build());
    const SubstituteRun ran = RunFile(path);
    EXPECT_EQ(ran.status, ATOLL_UNSUPPORTED);
    EXPECT_THAT(ran.error, HasSubstr("'" + (folder_ / "net.tflite").string() + "' does not fit: "));
    return ran.error;
  }

  fs::path folder_;
  std::vector<std::string> notes_;
};

TEST_F(CoralSubstitute, BesideTheFileRunsTheSameBytes) {
  const TwoInputModel original;
  const CoralModel compiled(original);
  const std::string path = Write("net_edgetpu.tflite", compiled.m.Build());
  const std::string other = Write("net.tflite", original.m.Build());
  const SubstituteRun wanted = RunFile(other);
  EXPECT_FALSE(wanted.is_substituted);
  for (const char* device : {"cpu", "emu", "auto"}) {
    const SubstituteRun ran = RunFile(path, device);
    EXPECT_EQ(ran.error, "");
    EXPECT_EQ(ran.path, other);
    EXPECT_EQ(ran.outputs, wanted.outputs) << device;
    EXPECT_THAT(ran.names, ElementsAre("left", "right", "dense", "last"));
    EXPECT_THAT(ran.indices, ElementsAre(3, 4, 1, 2)) << "those of the compiled model";
  }
}

TEST_F(CoralSubstitute, UsualNames) {
  const TwoInputModel original;
  const CoralModel compiled(original);
  const std::pair<const char*, const char*> names[] = {
      {"a_edgetpu.tflite", "a.tflite"},
      {"b-edgetpu.tflite", "b.tflite"},
      {"c_cocompiled_with_d_edgetpu.tflite", "c.tflite"},
      {"e_cocompiled_with_f_edgetpu.tflite", "e_cocompiled_with_f.tflite"},
      {"edgetpu_model.tflite", "cpu_model.tflite"},
      {"g_edgetpu.tflite", "cpu_model.tflite"},
      {"h.tflite", "cpu_model.tflite"}};
  size_t number = 0;
  for (const auto& [compiled_name, name] : names) {
    const std::string folder = std::to_string(number++) + "/";
    const std::string path = Write(folder + compiled_name, compiled.m.Build());
    const std::string other = Write(folder + name, original.m.Build());
    EXPECT_EQ(RunFile(path).path, other);
  }
  // By a name without a folder.
  const fs::path before = fs::current_path();
  fs::current_path(folder_ / "0");
  EXPECT_EQ(RunFile("a_edgetpu.tflite").path, "a.tflite");
  fs::current_path(before);
}

TEST_F(CoralSubstitute, TheFallbackRunsFromTheStart) {
  const TwoInputModel original, another(2);
  const CoralModel compiled(original);
  const std::string path = Write("net_edgetpu.tflite", compiled.m.Build());
  const std::string fallback = Write("elsewhere/any.tflite", original.m.Build());
  Write("net.tflite", another.m.Build());  // comes second
  const SubstituteRun wanted = RunFile(fallback);
  for (const char* device : {"cpu", "emu"}) {
    SubstituteRun ran = Run(FromFile(path), device, FromFile(fallback));
    EXPECT_EQ(ran.error, "");
    EXPECT_EQ(ran.path, fallback);
    EXPECT_EQ(ran.outputs, wanted.outputs);
    ran = Run(FromBytes(compiled.m.Build()), device, FromBytes(original.m.Build()));
    EXPECT_TRUE(ran.is_substituted);
    EXPECT_EQ(ran.path, "") << "from memory";
    EXPECT_EQ(ran.outputs, wanted.outputs);
  }
  EXPECT_NE(RunFile(path).outputs, wanted.outputs);
}

TEST_F(CoralSubstitute, AFallbackThatDoesNotFitIsAnError) {
  const TwoInputModel original;
  const CoralModel compiled(original);
  ModelBuilder other;
  other.Output(other.Relu(other.Input({1, 6})));
  const std::string path = Write("net_edgetpu.tflite", compiled.m.Build());
  Write("net.tflite", original.m.Build());
  SubstituteRun ran = Run(FromFile(path), "emu", FromBytes(other.Build()));
  EXPECT_EQ(ran.status, ATOLL_INVALID_ARGUMENT);
  EXPECT_EQ(ran.error, "the fallback model: it has 1 input, the compiled model 2");
  ran = Run(FromFile(path), "emu", FromBytes(compiled.m.Build()));
  EXPECT_EQ(ran.status, ATOLL_UNSUPPORTED);
  EXPECT_EQ(ran.error, "the fallback model: it was compiled for a Coral, too");
}

TEST_F(CoralSubstitute, WhatDoesNotFitIsNotTaken) {
  const TwoInputModel original;
  {
    CoralModel compiled(original);
    compiled.input(1).type = DataType::kUInt8;
    compiled.input(1).quantization.zero_points[0] = 3;
    EXPECT_THAT(RefusalOf(compiled, original.m),
                HasSubstr("its input 1 is int8 [1, 6], scale 0.0625 and zero point -3, that of the "
                          "compiled model uint8 [1, 6], scale 0.0625 and zero point 3"));
  }
  {
    CoralModel compiled(original);
    compiled.output(0).shape = {6};
    EXPECT_THAT(RefusalOf(compiled, original.m), HasSubstr("its output 0 is int8 [1, 6], scale"));
  }
  {
    CoralModel compiled(original);
    compiled.output(1).quantization.scales[0] *= 2;
    EXPECT_THAT(RefusalOf(compiled, original.m), HasSubstr("its output 1 is int8 [1, 6], scale"));
  }
  {
    CoralModel compiled(original);
    compiled.input(0).quantization.zero_points[0] = 4;
    EXPECT_THAT(RefusalOf(compiled, original.m), HasSubstr("zero point 4"));
  }
  {
    CoralModel compiled(original);
    compiled.input(0).quantization = {};
    EXPECT_THAT(RefusalOf(compiled, original.m), HasSubstr("compiled model int8 [1, 6]; "));
  }
  {
    const CoralModel compiled(original.m.graph(), {original.a}, {original.dense, original.last});
    EXPECT_THAT(RefusalOf(compiled, original.m),
                HasSubstr("it has 2 inputs, the compiled model 1"));
  }
  {
    // Files are whole models: inner tensors do not count.
    const CoralModel compiled(original.m.graph(), {original.a, original.b}, {original.relu});
    EXPECT_THAT(RefusalOf(compiled, original.m),
                HasSubstr("it has 2 outputs, the compiled model 1"));
  }
  {
    const CoralModel compiled(original);
    EXPECT_THAT(RefusalOf(compiled, compiled.m), HasSubstr("it was compiled for a Coral, too"));
  }
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(CoralSubstitute, HostileNeighbours) {
  const TwoInputModel original;
  const CoralModel compiled(original);
  const std::string path = Write("net_edgetpu.tflite", compiled.m.Build());
  const Bytes good = original.m.Build();
  for (size_t size : {size_t{0}, size_t{3}, size_t{8}, good.size() / 2, good.size() - 40}) {
    Write("net.tflite", {good.begin(), good.begin() + static_cast<ptrdiff_t>(size)});
    const SubstituteRun ran = RunFile(path);
    EXPECT_EQ(ran.status, ATOLL_UNSUPPORTED) << size;
    EXPECT_THAT(ran.error, HasSubstr((folder_ / "net.tflite").string()));
  }
  for (size_t at = 0; at < good.size(); at += 7) {
    Bytes bad = good;
    bad[at] ^= 0xff;
    Write("net.tflite", bad);
    RunFile(path);  // runs or not
  }
  fs::remove(folder_ / "net.tflite");
  fs::create_directory(folder_ / "net.tflite");
  EXPECT_THAT(RunFile(path).error, HasSubstr("is not a regular file"));
  // The operator's options are any bytes.
  for (const Bytes& package : {Bytes{}, Bytes(1), Bytes(100'000, 0xff)}) {
    fs::remove_all(folder_ / "net.tflite");
    const CoralModel odd(original, package);
    const std::string odd_path = Write("net_edgetpu.tflite", odd.m.Build());
    SetModelPath(folder_);
    EXPECT_EQ(RunFile(odd_path).status, ATOLL_UNSUPPORTED);
    Write("net.tflite", good);
    EXPECT_EQ(RunFile(odd_path).error, "");
  }
}

TEST_F(CoralSubstitute, TheErrorSaysTheWays) {
  const TwoInputModel original;
  const CoralModel compiled(original);
  const auto error_of = [&](const std::string& name) {
    return RunFile(Write(name, compiled.m.Build())).error;
  };
  EXPECT_THAT(
      error_of("net_edgetpu.tflite"),
      AllOf(HasSubstr("compiled for a Coral Edge TPU"), HasSubstr("--fallback-model"),
            HasSubstr("ATOLL_MODEL_PATH"), HasSubstr("lay it beside this one as 'net.tflite'")));
  EXPECT_THAT(error_of("edgetpu_model.tflite"), HasSubstr("as 'cpu_model.tflite'"));
  EXPECT_THAT(error_of("a_cocompiled_with_b_edgetpu.tflite"), HasSubstr("as 'a.tflite'"));
  // Nothing is called so.
  for (const char* name : {"other.tflite", "_edgetpu.tflite", "_cocompiled_with_b_edgetpu.tflite",
                           "net_segment_0_of_2_edgetpu.tflite"}) {
    EXPECT_THAT(error_of(name), HasSubstr("under its name without '_edgetpu'")) << name;
  }
  EXPECT_THAT(Run(FromBytes(compiled.m.Build())).error,
              HasSubstr("beside the compiled file, under its name without '_edgetpu'"));
}

TEST_F(CoralSubstitute, ModelPathThatLeadsNowhere) {
  const TwoInputModel original;
  const CoralModel compiled(original);
  const std::string path = Write("in/net_edgetpu.tflite", compiled.m.Build());
  Write("other/noise.tflite", Bytes(64, 0x5a));
  for (const char* value : {"", ":", ":::"}) {
    SetModelPath(value);
    EXPECT_THAT(RunFile(path).error, Not(HasSubstr("of ATOLL_MODEL_PATH: ")));
  }
  SetModelPath("/no/such/folder");
  EXPECT_THAT(RunFile(path).error,
              HasSubstr("'/no/such/folder' of ATOLL_MODEL_PATH: No such file or directory"));
  SetModelPath((folder_ / "other").string() + ":/no/such:" + path + ":/dev/null:/dev/stdin");
  EXPECT_EQ(RunFile(path).status, ATOLL_UNSUPPORTED);
  if (geteuid() != 0) {  // whom nothing is forbidden
    fs::permissions(folder_ / "other", fs::perms::none);
    SetModelPath((folder_ / "other").string());
    EXPECT_THAT(RunFile(path).error, HasSubstr("of ATOLL_MODEL_PATH: Permission denied"));
    fs::permissions(folder_ / "other", fs::perms::owner_all);
  }
  Write("in/net.tflite", original.m.Build());
  EXPECT_EQ(RunFile(path).error, "") << "what is found elsewhere counts all the same";
}

// As delegates of other runtimes have it: one operator in memory.
TEST_F(CoralSubstitute, APackageIsFoundBesideItsCompiledFile) {
  const TwoInputModel original;
  const CoralModel compiled(original, {7, 7, 7}), another(original, {7, 7, 8});
  Write("models/net_edgetpu.tflite", compiled.m.Build());
  const std::string other = Write("models/net.tflite", original.m.Build());
  Write("models/another_edgetpu.tflite", another.m.Build());
  const std::string nowhere = "/nowhere:";
  SetModelPath(nowhere + (folder_ / "models").string());
  const SubstituteRun ran = Run(FromBytes(compiled.m.Build()), "emu");
  EXPECT_EQ(ran.error, "");
  EXPECT_EQ(ran.path, other);
  EXPECT_EQ(ran.outputs, RunFile(other).outputs);
  EXPECT_EQ(Run(FromBytes(another.m.Build())).status, ATOLL_UNSUPPORTED);
  // Frigate's names; a file by itself.
  const std::string edgetpu = Write("frigate/edgetpu_model.tflite", another.m.Build());
  const std::string cpu = Write("frigate/cpu_model.tflite", original.m.Build());
  SetModelPath(edgetpu);
  EXPECT_EQ(Run(FromBytes(another.m.Build())).path, cpu);
}

TEST_F(CoralSubstitute, OnlyWhatLiesBetweenTheEndsRuns) {
  const TwoInputModel original;
  const Bytes whole = original.m.Build();
  const auto run = [&](const std::vector<int32_t>& inputs, const std::vector<int32_t>& outputs) {
    const CoralModel part(original.m.graph(), inputs, outputs);
    return Run(FromBytes(part.m.Build()), "emu", FromBytes(whole));
  };
  // The same ends of a model that has no more than these.
  const auto reference = [&](const std::vector<int32_t>& outputs) {
    TwoInputModel of;
    of.m.graph().outputs = outputs;
    return Run(FromBytes(of.m.Build())).outputs;
  };
  const TwoInputModel& o = original;
  EXPECT_EQ(run({o.a, o.b}, {o.last}).outputs, reference({o.last}));
  EXPECT_EQ(run({o.a, o.b}, {o.relu}).outputs, reference({o.relu}));
  EXPECT_EQ(run({o.a, o.b}, {o.last, o.sum, o.dense}).outputs, reference({o.last, o.sum, o.dense}));
  // Of equal types and shapes, so that names alone tell them apart.
  EXPECT_EQ(run({o.a, o.b}, {o.last, o.dense}).outputs, reference({o.last, o.dense}));
  const SubstituteRun swapped = run({o.b, o.a}, {o.dense, o.last});
  EXPECT_THAT(swapped.names, ElementsAre("right", "left", "dense", "last"));
  EXPECT_EQ(run({o.relu}, {o.dense}).error, "") << "an inner tensor as an input";
  EXPECT_THAT(run({o.a}, {o.relu}).error,
              HasSubstr("what it computes depends on its input 'right', too"));
  // Names that two tensors have, or none, leave the positions.
  TwoInputModel twice;
  for (const int32_t tensor : {twice.dense, twice.last}) twice.m.tensor(tensor).name = "";
  const CoralModel nameless(twice);
  EXPECT_EQ(Run(FromBytes(nameless.m.Build()), "cpu", FromBytes(twice.m.Build())).outputs,
            reference({o.dense, o.last}));
}

TEST_F(CoralSubstitute, IsNotedOnceForEachPair) {
  const TwoInputModel original;
  const CoralModel compiled(original);
  const std::string path = Write("net_edgetpu.tflite", compiled.m.Build());
  const std::string other = Write("net.tflite", original.m.Build());
  for (int i = 0; i < 3; ++i) RunFile(path, i == 0 ? "emu" : "cpu");
  ASSERT_THAT(notes_, SizeIs(1));
  EXPECT_EQ(notes_[0], "'" + path + "' was compiled for a Coral, and none is used: '" + other +
                           "' runs instead; it may be another conversion, whose bytes differ from "
                           "the Coral's");
  const std::string second = Write("b_edgetpu.tflite", compiled.m.Build());
  Write("b.tflite", original.m.Build());
  RunFile(second);
  RunFile(second);
  EXPECT_THAT(notes_, SizeIs(2));
}

TEST_F(CoralSubstitute, OtherShapesAreThoseOfAnotherModel) {
  const TwoInputModel original;
  const CoralModel compiled(original);
  const std::string path = Write("net_edgetpu.tflite", compiled.m.Build());
  Write("net.tflite", original.m.Build());
  auto interpreter = atollpp::Interpreter::Create(*atollpp::Model::FromFile(path));
  ASSERT_TRUE(interpreter) << interpreter.message();
  for (const int32_t batch : {2, 1}) {
    for (int32_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(interpreter->ResizeInput(i, std::vector<int32_t>{batch, 6}));
    }
    const atollpp::Status status = interpreter->AllocateTensors();
    EXPECT_EQ(static_cast<bool>(status), batch == 1) << status.message();
  }
  EXPECT_TRUE(interpreter->Invoke());
  const char* substitute = nullptr;
  EXPECT_EQ(AtollInterpreterGetSubstitute(interpreter->get(), &substitute), ATOLL_OK);
  EXPECT_STREQ(substitute, (folder_ / "net.tflite").c_str());
}

TEST_F(CoralSubstitute, InCpp) {
  const TwoInputModel original;
  const CoralModel compiled(original);
  const std::string path = Write("net_edgetpu.tflite", compiled.m.Build());
  const std::string other = Write("net.tflite", original.m.Build());
  const auto model = atollpp::Model::FromFile(path);
  auto interpreter = atollpp::Interpreter::Create(*model, *atollpp::Delegate::Open("emu"));
  ASSERT_TRUE(interpreter) << interpreter.message();
  EXPECT_EQ(interpreter->substitute(), other);
  EXPECT_TRUE(interpreter->Invoke());
  auto itself = atollpp::Interpreter::Create(*atollpp::Model::FromFile(other));
  ASSERT_TRUE(itself) << itself.message();
  EXPECT_EQ(itself->substitute(), std::nullopt);
}

TEST_F(CoralSubstitute, NullArguments) {
  const char* path = nullptr;
  EXPECT_EQ(AtollInterpreterGetSubstitute(nullptr, &path), ATOLL_INVALID_ARGUMENT);
  auto interpreter = atollpp::Interpreter::Create(
      *atollpp::Model::FromFile(ATOLL_SOURCE_DIR "/models/fashion/fashion_int8.tflite"));
  ASSERT_TRUE(interpreter);
  EXPECT_EQ(AtollInterpreterGetSubstitute(interpreter->get(), nullptr), ATOLL_INVALID_ARGUMENT);
}

// On one, the model itself runs, whatever lies beside it.
TEST_F(CoralSubstitute, NothingIsReplacedOnACoral) {
  class Coral final : public Delegate {
    bool is_coral() const override { return true; }
    Result<DelegatePlan> Plan(const Graph&, const PlanOptions&) override { return DelegatePlan(); }
  } coral;
  const TwoInputModel original;
  const CoralModel compiled(original);
  const std::string path = Write("net_edgetpu.tflite", compiled.m.Build());
  Write("net.tflite", original.m.Build());
  std::shared_ptr<const Model> model = *Model::FromFile(path);
  const std::shared_ptr<const Model> fallback = original.m.Load();
  const std::shared_ptr<const Model> before = model;
  InterpreterOptions options{.delegate = &coral, .fallback = fallback};
  const char* substitute = "something";
  EXPECT_TRUE(SubstituteForCoral(&model, &options, &substitute).ok());
  EXPECT_EQ(model, before);
  EXPECT_EQ(options.fallback, fallback);
  EXPECT_EQ(substitute, nullptr);
}

// So that devices compile and hold it once.
TEST_F(CoralSubstitute, InterpretersOfAModelShareWhatRuns) {
  const TwoInputModel original;
  const CoralModel compiled(original);
  const std::shared_ptr<const Model> model =
      *Model::FromFile(Write("net_edgetpu.tflite", compiled.m.Build()));
  Write("net.tflite", original.m.Build());
  const std::shared_ptr<const Model> fallback = original.m.Load();
  const auto substitute = [&](const std::shared_ptr<const Model>& with) {
    std::shared_ptr<const Model> runs = model;
    InterpreterOptions options{.fallback = with};
    const char* path = nullptr;
    EXPECT_TRUE(SubstituteForCoral(&runs, &options, &path).ok());
    EXPECT_NE(runs, model);
    return runs;
  };
  const std::shared_ptr<const Model> first = substitute(nullptr), given = substitute(fallback);
  EXPECT_EQ(substitute(nullptr), first);
  EXPECT_EQ(substitute(fallback), given);
  EXPECT_NE(given, first);
  EXPECT_NE(substitute(original.m.Load()), given);
}

// The public models, which the library knows by their hashes: whole files under any name, and as
// delegates see them, the operator alone.
TEST_F(CoralSubstitute, PublicModelsByHash) {
  if (!fs::exists(kShared)) return ReportAbsent("reference data: " + kShared.string());
  const char* const names[] = {"split_concat",
                               "libredgetpu_bright_16x16",
                               "libredgetpu_dense_256",
                               "libredgetpu_gabor_64x64_7k_4o_2s",
                               "libredgetpu_looming_64x64_3x3",
                               "keras_lstm_mnist_ptq",
                               "mobilenet_v1_0.25_128_quant",
                               "mobilenet_v1_0.5_160_quant",
                               "mobilenet_v2_1.0_224_quant",
                               "movenet_single_pose_lightning_ptq",
                               "posenet_mobilenet_v1_075_353_481_16_quant_decoder",
                               "deeplabv3_mnv2_dm05_pascal_quant"};
  for (const std::string name : names) {
    SCOPED_TRACE(name);
    unsetenv("ATOLL_MODEL_PATH");
    const std::string original = (kShared / (name + ".tflite")).string();
    const Bytes compiled = BytesOfFile(kShared / "edgetpu" / (name + "_edgetpu.tflite"));
    const std::string renamed = Write("renamed.tflite", compiled);
    EXPECT_EQ(RunFile(renamed).status, ATOLL_UNSUPPORTED);
    SetModelPath((folder_ / "none").string() + ":" + kShared.string());
    const SubstituteRun wanted = RunFile(original);
    for (const SubstituteRun& ran : {RunFile(renamed), Run(FromBytes(compiled))}) {
      EXPECT_EQ(ran.error, "");
      EXPECT_EQ(ran.path, original);
      EXPECT_EQ(ran.outputs, wanted.outputs);
    }
    // The operator, whose outputs need not be those of the model, nor in that order.
    const std::shared_ptr<const Model> model = *Model::FromBuffer(compiled);
    for (const Node& node : model->graph().nodes) {
      if (node.custom_name != kEdgeTpuOperator || name == "keras_lstm_mnist_ptq") continue;
      const CoralModel alone(model->graph(), node.inputs, node.outputs,
                             {node.custom_options.begin(), node.custom_options.end()});
      const SubstituteRun ran = Run(FromBytes(alone.m.Build()));
      EXPECT_EQ(ran.error, "");
      EXPECT_EQ(ran.path, original);
      // The original, with outputs of these names.
      const std::shared_ptr<const Model> whole = *Model::FromFile(original);
      Graph graph = whole->graph();
      graph.outputs.clear();
      bool has_inner_input = false;
      for (const int32_t output : node.outputs) {
        for (size_t i = 0; i < graph.tensors.size(); ++i) {
          if (graph.tensors[i].name != model->graph().tensors[static_cast<size_t>(output)].name) {
            continue;
          }
          graph.outputs.push_back(static_cast<int32_t>(i));
          break;
        }
      }
      for (const int32_t input : node.inputs) {
        has_inner_input |=
            std::ranges::find(model->graph().inputs, input) == model->graph().inputs.end();
      }
      if (has_inner_input) continue;  // of another inner tensor the bytes here are not
      auto interpreter = *Interpreter::Create(*Model::WithGraph(whole, graph), {.threads = 1});
      for (size_t i = 0; i < graph.inputs.size(); ++i) {
        const std::span<uint8_t> bytes = interpreter->TensorBytes(graph.inputs[i]);
        for (size_t k = 0; k < bytes.size(); ++k) {
          bytes[k] = static_cast<uint8_t>(k * 37 + 11 + i * 101);
        }
      }
      ASSERT_TRUE(interpreter->Invoke().ok());
      ASSERT_EQ(ran.outputs.size(), graph.outputs.size());
      for (size_t i = 0; i < graph.outputs.size(); ++i) {
        const auto bytes = interpreter->ConstTensorBytes(graph.outputs[i]);
        EXPECT_EQ(ran.outputs[i], Bytes(bytes.begin(), bytes.end())) << "output " << i;
      }
    }
  }
}

}  // namespace
}  // namespace atollrt
