// SPDX-License-Identifier: Apache-2.0
//
// The external delegate under made-up runtimes of each layout (support/made_up_tflite.h), loaded as
// runtimes do: what it takes, that bytes are those of the CPU, and that nothing that a program or a
// model does to it ends the process. compat/c_program_test has it under TensorFlow Lite 2.9.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "atoll/delegate.h"
#include "compat/tflite/handshake.h"
#include "delegate/delegate.h"
#include "runtime/base/sha256.h"
#include "runtime/interpreter.h"
#include "tests/compat/plugin.h"
#include "tests/support/absent.h"
#include "tests/support/choices.h"
#include "tests/support/emulated_device.h"
#include "tests/support/made_up_tflite.h"
#include "tests/support/model_builder.h"
#include "tests/support/random_graph.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Bytes = std::vector<uint8_t>;
using Options = std::vector<std::pair<std::string, std::string>>;

const TfliteLayout& NewestLayout() { return TfliteLayouts().back(); }

// ---- What outputs must be -----------------------------------------------------------------------

// On the CPU; none if the model cannot be prepared or run.
std::vector<Bytes> OnTheCpu(const std::shared_ptr<const Model>& model, uint64_t seed) {
  auto interpreter = Interpreter::Create(model, {.threads = 1});
  if (!interpreter.ok()) return {};
  for (const int32_t input : model->graph().inputs) {
    FillFromSeed(seed, model->graph().tensors[input].type, (*interpreter)->TensorBytes(input));
  }
  if (!(*interpreter)->Invoke().ok()) return {};
  std::vector<Bytes> outputs;
  for (const int32_t output : model->graph().outputs) {
    const std::span<const uint8_t> bytes = (*interpreter)->ConstTensorBytes(output);
    outputs.emplace_back(bytes.begin(), bytes.end());
  }
  return outputs;
}

// Modifies the graph, allocates and runs, all of which must work.
void ExpectCpusBytes(MadeUpTflite* runtime, const std::shared_ptr<const Model>& model,
                     TfLiteDelegate* delegate) {
  ASSERT_EQ(runtime->ModifyGraph(delegate), kTfLiteOk) << runtime->errors();
  ASSERT_EQ(runtime->AllocateTensors(), kTfLiteOk) << runtime->errors();
  for (const uint64_t seed : {1, 2}) {
    const std::vector<Bytes> want = OnTheCpu(model, seed);
    ASSERT_FALSE(want.empty());
    runtime->ResetVariables();
    EXPECT_EQ(runtime->Run(seed), want) << runtime->errors();
  }
  EXPECT_EQ(runtime->errors(), "");
}

std::shared_ptr<const Model> Load(const std::filesystem::path& path) {
  auto model = Model::FromFile(path);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : nullptr;
}

std::shared_ptr<const Model> Fashion() {
  return Load(ATOLL_SOURCE_DIR "/models/fashion/fashion_int8.tflite");
}

// Two convolutions with another operator in between, and one at the end.
ModelBuilder Mixed() {
  ModelBuilder m;
  int32_t x = m.Input({1, 8, 8, 4});
  x = m.Conv2D(x, {.channels = 8, .kernel = 3});
  x = m.Logistic(x);
  x = m.Conv2D(x, {.channels = 4, .kernel = 3});
  m.Output(m.Add(x, x));
  return m;
}

// In the layout of a TfLiteIntArray.
std::vector<int> AsArray(const std::vector<int>& numbers) {
  std::vector<int> array = {static_cast<int>(numbers.size())};
  array.insert(array.end(), numbers.begin(), numbers.end());
  return array;
}

bool NeedsVariables(const Node& node) {
  return node.type == OpType::kCALL_ONCE || node.type == OpType::kVAR_HANDLE ||
         node.type == OpType::kREAD_VARIABLE || node.type == OpType::kASSIGN_VARIABLE;
}

// Whether reference data is there; a failure, or a note, if it is not.
bool FindShared(const std::filesystem::path& path) {
  if (std::filesystem::exists(path)) return true;
  if (ATOLL_REQUIRE_SHARED) {
    ADD_FAILURE() << path << " is absent";
  } else {
    ReportAbsent("reference data: " + path.string());
  }
  return false;
}

AtollDeviceHealth HealthOf(TfLiteDelegate* delegate) {
  atollcompat::Handshake handshake = {};
  std::memcpy(handshake.magic, atollcompat::Handshake::kMagic, sizeof(handshake.magic));
  TfLiteContext context = {};
  context.impl_ = &handshake;
  EXPECT_EQ(delegate->Prepare(&context, delegate), kTfLiteOk);
  AtollDeviceHealth health = {};
  const auto get = Plugin::Get().Function<decltype(AtollDelegateGetDeviceHealth)>(
      "AtollDelegateGetDeviceHealth");
  EXPECT_EQ(get(handshake.delegate, &health), ATOLL_OK);
  return health;
}

std::string NameOf(const testing::TestParamInfo<TfliteLayout>& given) {
  std::string name = given.param.name;
  std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
  return "V" + name;
}
class UnderEachLayout : public testing::TestWithParam<TfliteLayout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, UnderEachLayout, testing::ValuesIn(TfliteLayouts()), NameOf);

// ---- Whole models and operators -----------------------------------------------------------------

// Each case of the operators' golden ones: their parameters, read from that version's struct.
void RunOperators(const std::filesystem::path& directory, const TfliteLayout& layout,
                  const Options& options, int taken_min) {
  std::ifstream stream(directory / "manifest.json");
  const nlohmann::json manifest = nlohmann::json::parse(stream);
  const Plugin::DelegatePtr delegate = Plugin::Get().Make(options);
  int taken = 0;
  for (const auto& one : manifest["cases"]) {
    SCOPED_TRACE(one["name"].get<std::string>());
    auto loaded = Model::FromFile(directory / one["file"].get<std::string>());
    if (!loaded.ok()) continue;
    const std::shared_ptr<const Model> model = *loaded;
    // The made-up runtime does not run them.
    if (std::ranges::any_of(model->graph().nodes, NeedsVariables)) continue;
    MadeUpTflite runtime(model, layout);
    ASSERT_EQ(runtime.ModifyGraph(delegate.get()), kTfLiteOk) << runtime.errors();
    taken += runtime.claimed() == model->graph().nodes.size() ? 1 : 0;
    if (one["expect"] == "error" || one["compare"] != "exact") continue;
    if (options[0].second == "cpu") {
      EXPECT_EQ(runtime.claimed(), model->graph().nodes.size());
    }
    ASSERT_EQ(runtime.AllocateTensors(), kTfLiteOk) << runtime.errors();
    for (const auto& run : one["runs"]) {
      const std::vector<Bytes> outputs = runtime.Run(run["seed"]);
      ASSERT_EQ(outputs.size(), run["outputs"].size()) << runtime.errors();
      for (const auto& output : run["outputs"]) {
        const Bytes& bytes = outputs[output["index"].get<size_t>()];
        const size_t size = output["bytes"];
        ASSERT_GE(bytes.size(), size);
        EXPECT_EQ(Sha256Hex(bytes.data(), size), output["sha256"]);
      }
    }
  }
  EXPECT_GE(taken, taken_min);
}

TEST_P(UnderEachLayout, OperatorsGiveTensorFlowLitesBytes) {
  RunOperators(ATOLL_SOURCE_DIR "/tests/golden/ops", GetParam(), {{"device", "cpu"}}, 450);
}

TEST_P(UnderEachLayout, ModelsGiveTheCpusBytes) {
  for (const char* const device : {"emu", "cpu"}) {
    const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", device}});
    const std::shared_ptr<const Model> model = Fashion();
    MadeUpTflite runtime(model, GetParam());
    ExpectCpusBytes(&runtime, model, delegate.get());
    EXPECT_EQ(runtime.partitions().size(), 1u);
    EXPECT_EQ(runtime.claimed(), model->graph().nodes.size());
  }
}

class Shared : public UnderEachLayout {};
INSTANTIATE_TEST_SUITE_P(Layouts, Shared, testing::ValuesIn(TfliteLayouts()), NameOf);

TEST_P(Shared, OperatorsGiveTensorFlowLitesBytes) {
  const std::filesystem::path directory = ATOLL_SHARED_DIR "/golden/ops";
  if (!FindShared(directory / "manifest.json")) GTEST_SKIP();
  RunOperators(directory, GetParam(), {{"device", "cpu"}}, 1200);
}

TEST_P(Shared, ModelsGiveTheCpusBytes) {
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}});
  for (const char* const name :
       {"hello_world_int8", "keras_lstm_mnist_ptq", "micro_speech_quantized",
        "mlperf_tiny_ad01_int8", "mlperf_tiny_kws_int8", "person_detect", "split_concat"}) {
    const std::filesystem::path path =
        std::filesystem::path(ATOLL_SHARED_DIR "/models") / (std::string(name) + ".tflite");
    if (!FindShared(path)) GTEST_SKIP();
    SCOPED_TRACE(name);
    const std::shared_ptr<const Model> model = Load(path);
    MadeUpTflite runtime(model, GetParam());
    runtime.moves_memory = true;
    ExpectCpusBytes(&runtime, model, delegate.get());
  }
}

TEST(TfliteDelegate, OperatorsGiveTensorFlowLitesBytesOnTheEmulator) {
  for (const char* const operators : {"all", "device"}) {
    RunOperators(ATOLL_SOURCE_DIR "/tests/golden/ops", NewestLayout(),
                 {{"device", "emu"}, {"ops", operators}}, 250);
  }
}

// ---- What is taken ------------------------------------------------------------------------------

// An operator that the delegate knows nothing of; the runtime still does.
void MakeUnknown(MadeUpTflite* runtime, int node) {
  runtime->registration(node).builtin_code = 147;
}

TEST_P(UnderEachLayout, RunsWhatTheRuntimeLeavesInPartitions) {
  const std::shared_ptr<const Model> model = Mixed().Load();
  for (const char* const device : {"emu", "cpu"}) {
    const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", device}});
    MadeUpTflite runtime(model, GetParam());
    runtime.moves_memory = true;
    MakeUnknown(&runtime, 1);
    ExpectCpusBytes(&runtime, model, delegate.get());
    EXPECT_THAT(runtime.partitions(), ElementsAre(ElementsAre(0), ElementsAre(2, 3)));
  }
}

TEST(TfliteDelegate, LeavesSmallPartitionsToTheRuntime) {
  const std::shared_ptr<const Model> model = Mixed().Load();
  const auto partitions = [&](const char* min_nodes) {
    const Plugin::DelegatePtr delegate =
        Plugin::Get().Make({{"device", "emu"}, {"min_nodes", min_nodes}});
    MadeUpTflite runtime(model, NewestLayout());
    MakeUnknown(&runtime, 1);
    ExpectCpusBytes(&runtime, model, delegate.get());
    return runtime.partitions();
  };
  EXPECT_THAT(partitions("1"), ElementsAre(ElementsAre(0), ElementsAre(2, 3)));
  EXPECT_THAT(partitions("2"), ElementsAre(ElementsAre(2, 3)));
  EXPECT_THAT(partitions("3"), IsEmpty());
}

std::set<int> TakenByThePartitioner(const std::shared_ptr<const Model>& model) {
  const auto device = std::make_unique<DeviceDelegate>(EmulatedDevice{}.Open());
  auto interpreter = Interpreter::Create(model, {.threads = 1, .delegate = device.get()});
  EXPECT_TRUE(interpreter.ok()) << interpreter.status().message();
  std::set<int> nodes;
  for (size_t i = 0; i < model->graph().nodes.size(); ++i) {
    if ((*interpreter)->placements()[i].partition >= 0) nodes.insert(static_cast<int>(i));
  }
  return nodes;
}

void ExpectThePartitionersChoice(const std::shared_ptr<const Model>& model) {
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}, {"ops", "device"}});
  MadeUpTflite runtime(model, NewestLayout());
  ASSERT_EQ(runtime.ModifyGraph(delegate.get()), kTfLiteOk) << runtime.errors();
  std::set<int> taken;
  for (const std::vector<int>& partition : runtime.partitions()) {
    taken.insert(partition.begin(), partition.end());
  }
  EXPECT_EQ(taken, TakenByThePartitioner(model));
  EXPECT_THAT(taken, Not(IsEmpty()));
}

TEST(TfliteDelegate, TakesForTheDeviceWhatThePartitionerDoes) {
  ExpectThePartitionersChoice(Fashion());
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Choices choices(seed);
    auto model = Model::FromBuffer(RandomModel(&choices, {}));
    ASSERT_TRUE(model.ok());
    if (TakenByThePartitioner(*model).empty() ||
        std::ranges::any_of((*model)->graph().nodes, NeedsVariables)) {
      continue;
    }
    ExpectThePartitionersChoice(*model);
  }
}

TEST(TfliteDelegate, TakesForTheDeviceOfLargeModelsWhatThePartitionerDoes) {
  for (const char* const name : {"deeplabv3_mnv2_dm05_pascal_quant", "ssd_mobilenet_v1",
                                 "movenet_single_pose_lightning_ptq"}) {
    const std::filesystem::path path =
        std::filesystem::path(ATOLL_SHARED_DIR "/models") / (std::string(name) + ".tflite");
    if (!FindShared(path)) GTEST_SKIP();
    SCOPED_TRACE(name);
    ExpectThePartitionersChoice(Load(path));
  }
}

// Random graphs, of which random nodes are unknown.
TEST_P(UnderEachLayout, GivesTheCpusBytesForAnyGraphInAnyPartitions) {
  const Plugin::DelegatePtr on_cpu = Plugin::Get().Make({{"device", "cpu"}});
  const Plugin::DelegatePtr on_device = Plugin::Get().Make({{"device", "emu"}});
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Choices choices(seed);
    auto model = Model::FromBuffer(RandomModel(&choices, {}));
    ASSERT_TRUE(model.ok());
    if (std::ranges::any_of((*model)->graph().nodes, NeedsVariables)) continue;
    MadeUpTflite runtime(*model, GetParam());
    runtime.moves_memory = seed % 2 == 0;
    Rng rng(seed);
    for (size_t node = 0; node < (*model)->graph().nodes.size(); ++node) {
      if (rng.OneIn(4)) MakeUnknown(&runtime, static_cast<int>(node));
    }
    TfLiteDelegate* const delegate = (seed % 3 == 0 ? on_cpu : on_device).get();
    ASSERT_EQ(runtime.ModifyGraph(delegate), kTfLiteOk) << runtime.errors();
    ASSERT_EQ(runtime.AllocateTensors(), kTfLiteOk) << runtime.errors();
    EXPECT_EQ(runtime.Run(1), OnTheCpu(*model, 1)) << runtime.errors();
    EXPECT_EQ(runtime.errors(), "");
  }
}

// Files may say [] of every tensor between operators.
TEST(TfliteDelegate, NeedsNoShapesOfTensorsBetweenOperators) {
  const std::shared_ptr<const Model> model = Mixed().Load();
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}});
  const TfLiteIntArray none = {.size = 0};
  for (const bool is_mixed : {false, true}) {
    MadeUpTflite runtime(model, NewestLayout());
    if (is_mixed) MakeUnknown(&runtime, 1);
    for (const Node& node : model->graph().nodes) {
      runtime.tensor(node.outputs[0]).dims = const_cast<TfLiteIntArray*>(&none);
    }
    ExpectCpusBytes(&runtime, model, delegate.get());
    EXPECT_EQ(runtime.claimed(), is_mixed ? 1u : 4u);
  }
}

// ---- Shapes -------------------------------------------------------------------------------------

TEST_P(UnderEachLayout, FollowsTheShapesOfInputs) {
  ModelBuilder m = Mixed();
  m.tensor(m.graph().inputs[0]).shape_signature = {-1, 8, 8, 4};
  const std::shared_ptr<const Model> model = m.Load();
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}});
  MadeUpTflite runtime(model, GetParam());
  MakeUnknown(&runtime, 1);
  ExpectCpusBytes(&runtime, model, delegate.get());
  for (const Shape& shape : std::vector<Shape>{
           {3, 8, 8, 4}, {1, 8, 8, 4}, {1, 12, 6, 4}, {1, 12, 6, 4}, {2, 20, 8, 4}, {1, 8, 8, 4}}) {
    SCOPED_TRACE(ShapeString(shape));
    runtime.ResizeInput(0, shape);
    EXPECT_EQ(runtime.Invoke(), kTfLiteError);
    runtime.ClearErrors();
    ASSERT_EQ(runtime.AllocateTensors(), kTfLiteOk) << runtime.errors();
    const InputShape wanted = {.index = 0, .shape = shape};
    auto resized = Model::WithInputShapes(model, {&wanted, 1});
    ASSERT_TRUE(resized.ok());
    EXPECT_EQ(runtime.Run(3), OnTheCpu(*resized, 3)) << runtime.errors();
  }
}

TEST(TfliteDelegate, RefusesShapesThatTheModelCannotHave) {
  ModelBuilder m;
  m.Output(m.FullyConnected(m.Reshape(m.Input({1, 4, 4, 2}), {1, 32}), 10));
  const std::shared_ptr<const Model> model = m.Load();
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}});
  MadeUpTflite runtime(model, NewestLayout());
  ExpectCpusBytes(&runtime, model, delegate.get());
  // Told by a runtime that does not ask whether the model can have them.
  const auto prepare = [&](const std::vector<int>& dims) {
    const std::vector<int> array = AsArray(dims);
    const int input = model->graph().inputs[0];
    TfLiteIntArray* const before = runtime.tensor(input).dims;
    runtime.tensor(input).dims = reinterpret_cast<TfLiteIntArray*>(const_cast<int*>(array.data()));
    const TfLiteStatus status = runtime.AllocateTensors();  // moves tensors
    runtime.tensor(input).dims = before;
    const std::string errors = runtime.errors();
    runtime.ClearErrors();
    return status == kTfLiteOk ? "" : errors;
  };
  EXPECT_THAT(prepare({1, 5, 4, 2}), HasSubstr("RESHAPE"));
  EXPECT_THAT(prepare({4, 4}), HasSubstr("dimensions"));
  EXPECT_THAT(prepare({1, 0, 4, 2}), HasSubstr("is known only while the model runs"));
  EXPECT_THAT(prepare({1, -1, 4, 2}), HasSubstr("is known only while the model runs"));
  EXPECT_EQ(prepare({1, 4, 4, 2}), "");
  EXPECT_EQ(runtime.Run(1), OnTheCpu(model, 1));
}

TEST(TfliteDelegate, LeavesDynamicTensorsToTheRuntimeAndSaysWhy) {
  const std::shared_ptr<const Model> model = Mixed().Load();
  MadeUpTflite runtime(model, NewestLayout());
  const int input = model->graph().inputs[0];
  runtime.tensor(input).allocation_type = kTfLiteDynamic;
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}, {"verbosity", "2"}});
  testing::internal::CaptureStderr();
  const TfLiteStatus status = runtime.ModifyGraph(delegate.get());
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_EQ(status, kTfLiteOk);
  EXPECT_THAT(runtime.partitions(), ElementsAre(ElementsAre(1, 2, 3)));
  EXPECT_THAT(said, HasSubstr("node 0 (operator 3) stays with the runtime: the shape of tensor"));
  EXPECT_THAT(said, HasSubstr("is known only while the model runs"));
  EXPECT_THAT(said, HasSubstr("3 of 4 operators are run here"));
}

TEST(TfliteDelegate, SaysWhatToDoAboutDynamicTensors) {
  const std::shared_ptr<const Model> model = Fashion();
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}});
  MadeUpTflite runtime(model, NewestLayout());
  ASSERT_EQ(runtime.ModifyGraph(delegate.get()), kTfLiteOk);
  TfLiteTensor& input = runtime.tensor(model->graph().inputs[0]);
  input.allocation_type = kTfLiteDynamic;
  TfLiteRegistration& kernel = runtime.registration(static_cast<int>(model->graph().nodes.size()));
  TfLiteNode& node = runtime.node(static_cast<int>(model->graph().nodes.size()));
  EXPECT_EQ(kernel.prepare(runtime.context(), &node), kTfLiteError);
  EXPECT_THAT(runtime.errors(), HasSubstr("is known only while the model runs; give inputs their "
                                          "sizes (ResizeInputTensor) before AllocateTensors"));
}

// ---- State --------------------------------------------------------------------------------------

TEST_P(UnderEachLayout, KeepsAndForgetsState) {
  ModelBuilder m;
  m.Output(m.Lstm(m.Input({1, 3, 8}), {.units = 8}));
  const std::shared_ptr<const Model> model = m.Load();
  for (const char* const device : {"emu", "cpu"}) {
    const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", device}});
    MadeUpTflite runtime(model, GetParam());
    ASSERT_EQ(runtime.ModifyGraph(delegate.get()), kTfLiteOk) << runtime.errors();
    EXPECT_EQ(runtime.claimed(), model->graph().nodes.size());
    ASSERT_EQ(runtime.AllocateTensors(), kTfLiteOk) << runtime.errors();
    const std::vector<Bytes> first = runtime.Run(1);
    const std::vector<Bytes> second = runtime.Run(1);
    EXPECT_EQ(first, OnTheCpu(model, 1));
    EXPECT_NE(first, second);
    runtime.ResetVariables();
    EXPECT_EQ(runtime.Run(1), first);
    EXPECT_EQ(runtime.Run(1), second);
    ASSERT_EQ(runtime.AllocateTensors(), kTfLiteOk);
    EXPECT_EQ(runtime.Run(1), first);
    EXPECT_EQ(runtime.Run(1), second);
  }
}

TEST(TfliteDelegate, LeavesSharedStateToTheRuntime) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 3, 8});
  const int32_t y = m.Lstm(x, {.units = 8});
  const int32_t z = m.Lstm(m.Relu(y), {.units = 8});
  m.Output(z);
  std::vector<Node>& nodes = m.graph().nodes;
  ASSERT_EQ(nodes.size(), 3u);
  for (const size_t at : {18, 19}) nodes[2].inputs[at] = nodes[0].inputs[at];
  const std::shared_ptr<const Model> model = m.Load();
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}});
  for (const bool is_mixed : {false, true}) {
    MadeUpTflite runtime(model, NewestLayout());
    if (is_mixed) MakeUnknown(&runtime, 1);
    ASSERT_EQ(runtime.ModifyGraph(delegate.get()), kTfLiteOk) << runtime.errors();
    EXPECT_EQ(runtime.claimed(), is_mixed ? 0u : 3u);
    ASSERT_EQ(runtime.AllocateTensors(), kTfLiteOk) << runtime.errors();
    EXPECT_EQ(runtime.Run(1), OnTheCpu(model, 1)) << runtime.errors();
  }
}

// ---- Several interpreters -----------------------------------------------------------------------

TEST_P(UnderEachLayout, ServesInterpretersOnSeveralThreads) {
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}});
  const std::vector<std::shared_ptr<const Model>> models = {Fashion(), Mixed().Load()};
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const std::shared_ptr<const Model>& model = models[thread % 2];
      for (int turn = 0; turn < 3; ++turn) {
        MadeUpTflite runtime(model, GetParam());
        ExpectCpusBytes(&runtime, model, delegate.get());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// By what goes over the link: the second interpreter finds its parameters on the device.
TEST(TfliteDelegate, CompilesAPartitionOnceForAllInterpreters) {
  const std::shared_ptr<const Model> model = Fashion();
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}});
  const auto bytes_sent = [] {
    const AtollActivity* activities = nullptr;
    int32_t count = 0;
    const auto list = Plugin::Get().Function<decltype(AtollListActivity)>("AtollListActivity");
    EXPECT_EQ(list(&activities, &count), ATOLL_OK);
    int64_t sent = 0;
    for (int32_t i = 0; i < count; ++i) {
      if (activities[i].pid == getpid()) sent += activities[i].total.bytes_to_device;
    }
    return sent;
  };
  MadeUpTflite first(model, NewestLayout());
  ExpectCpusBytes(&first, model, delegate.get());
  const int64_t with_parameters = bytes_sent();
  first.Run(3);
  const int64_t without = bytes_sent() - with_parameters;
  ASSERT_GT(without, 0);
  MadeUpTflite second(model, TfliteLayouts().front());
  ASSERT_EQ(second.ModifyGraph(delegate.get()), kTfLiteOk);
  ASSERT_EQ(second.AllocateTensors(), kTfLiteOk);
  const int64_t before = bytes_sent();
  EXPECT_EQ(second.Run(3), OnTheCpu(model, 3));
  EXPECT_EQ(bytes_sent() - before, without);
}

TEST(TfliteDelegate, MayBeDestroyedBeforeItsInterpreters) {
  const std::shared_ptr<const Model> model = Fashion();
  Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}});
  MadeUpTflite runtime(model, NewestLayout());
  ExpectCpusBytes(&runtime, model, delegate.get());
  delegate = nullptr;
  EXPECT_EQ(runtime.Run(4), OnTheCpu(model, 4));
  ASSERT_EQ(runtime.AllocateTensors(), kTfLiteOk);
  EXPECT_EQ(runtime.Run(5), OnTheCpu(model, 5));
}

TEST(TfliteDelegate, ServesAnInterpreterAfterAnother) {
  const Plugin::DelegatePtr first = Plugin::Get().Make({{"device", "emu"}, {"min_nodes", "2"}});
  const Plugin::DelegatePtr second = Plugin::Get().Make({{"device", "cpu"}});
  const std::shared_ptr<const Model> model = Mixed().Load();
  MadeUpTflite runtime(model, NewestLayout());
  MakeUnknown(&runtime, 1);
  ASSERT_EQ(runtime.ModifyGraph(first.get()), kTfLiteOk) << runtime.errors();
  ASSERT_EQ(runtime.ModifyGraph(second.get()), kTfLiteOk) << runtime.errors();
  EXPECT_THAT(runtime.partitions(), ElementsAre(ElementsAre(2, 3), ElementsAre(0)));
  ASSERT_EQ(runtime.AllocateTensors(), kTfLiteOk) << runtime.errors();
  EXPECT_EQ(runtime.Run(1), OnTheCpu(model, 1));
}

// ---- Devices that fail --------------------------------------------------------------------------

class Faults : public testing::TestWithParam<const char*> {};

TEST_P(Faults, LoseNoRequest) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("atoll_faults_" + std::to_string(getpid()));
  std::ofstream(path) << GetParam();
  std::string reported;
  const Plugin::DelegatePtr delegate =
      Plugin::Get().Make({{"device", "emu"}, {"faults", path.string()}}, &reported);
  std::filesystem::remove(path);
  ASSERT_EQ(reported, "");
  const std::shared_ptr<const Model> model = Fashion();
  MadeUpTflite runtime(model, NewestLayout());
  ASSERT_EQ(runtime.ModifyGraph(delegate.get()), kTfLiteOk) << runtime.errors();
  ASSERT_EQ(runtime.AllocateTensors(), kTfLiteOk) << runtime.errors();
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    EXPECT_EQ(runtime.Run(seed), OnTheCpu(model, seed)) << runtime.errors();
  }
  EXPECT_EQ(runtime.errors(), "");
  const AtollDeviceHealth health = HealthOf(delegate.get());
  EXPECT_GT(health.failures, 0);
  EXPECT_EQ(health.fallbacks, 0);
}
INSTANTIATE_TEST_SUITE_P(Plans, Faults,
                         testing::Values("out 3 stall\nin 2 stall\nout 20 stall\n",
                                         "out 4 unplug 20ms\n", "in 3 unplug 20ms moved\n",
                                         "out 5 unplug 20ms twice\nevent 4 unplug 10ms\n",
                                         "event 2 corrupt\nin 5 shorten 3\nout 9 unplug 20ms\n"));

TEST(TfliteDelegate, CompletesOnAnotherDeviceWhatAnUnpluggedOneCannot) {
  const std::shared_ptr<const Model> model = Fashion();
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("atoll_never_" + std::to_string(getpid()));
  std::ofstream(path) << "out 4 unplug never\n";
  for (const bool falls_back : {true, false}) {
    const Plugin::DelegatePtr delegate =
        Plugin::Get().Make({{"device", "emu"},
                            {"faults", path.string()},
                            {"on_device_loss", falls_back ? "fallback" : "fail"}});
    MadeUpTflite runtime(model, NewestLayout());
    ASSERT_EQ(runtime.ModifyGraph(delegate.get()), kTfLiteOk) << runtime.errors();
    ASSERT_EQ(runtime.AllocateTensors(), kTfLiteOk) << runtime.errors();
    std::vector<std::vector<Bytes>> results;
    for (uint64_t seed = 1; seed <= 4; ++seed) results.push_back(runtime.Run(seed));
    if (falls_back) {
      for (uint64_t seed = 1; seed <= 4; ++seed) {
        EXPECT_EQ(results[seed - 1], OnTheCpu(model, seed));
      }
      EXPECT_GT(HealthOf(delegate.get()).fallbacks, 0);
    } else {
      EXPECT_THAT(results.back(), IsEmpty());
      EXPECT_THAT(runtime.errors(), HasSubstr("Atoll: "));
      EXPECT_THAT(runtime.errors(), HasSubstr("failed to invoke"));
    }
  }
  std::filesystem::remove(path);
}

TEST(TfliteDelegate, SaysWhyADeviceCannotBeOpened) {
  for (const auto& [device, why] : std::vector<std::pair<std::string, std::string>>{
           {"usb:9", "usb:9"}, {"pci:9", "pci:9"}, {"nonsense", "nonsense"}}) {
    SCOPED_TRACE(device);
    std::string reported;
    const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", device}}, &reported);
    ASSERT_NE(delegate, nullptr);
    EXPECT_THAT(reported, HasSubstr(why));
    const std::shared_ptr<const Model> model = Mixed().Load();
    MadeUpTflite runtime(model, NewestLayout());
    EXPECT_EQ(runtime.ModifyGraph(delegate.get()), kTfLiteDelegateError);
    EXPECT_THAT(runtime.errors(), HasSubstr("Atoll: " + reported));
    // The graph is what it was.
    ASSERT_EQ(runtime.AllocateTensors(), kTfLiteOk);
    EXPECT_EQ(runtime.Run(1), OnTheCpu(model, 1));
  }
}

// ---- Options ------------------------------------------------------------------------------------

TEST(TfliteDelegate, SaysWhatIsWrongWithOptions) {
  for (const auto& [key, value, why] : std::vector<std::array<std::string, 3>>{
           {"ops", "some", "option 'ops' is 'some'; it may be 'all' or 'device'"},
           {"min_nodes", "0", "option 'min_nodes' is '0'; it is a number from 1"},
           {"min_nodes", "", "option 'min_nodes' is ''"},
           {"min_nodes", "2x", "option 'min_nodes' is '2x'"},
           {"min_nodes", "99999999999999999999", "option 'min_nodes' is '9999"},
           {"num_threads", "-1", "option 'num_threads' is '-1'; it is a number from 0 to 256"},
           {"num_threads", "1025", "option 'num_threads' is '1025'"},
           {"verbosity", "loud", "option 'verbosity' is 'loud'; it is a number from 0 to 10"},
           {"performance", "fast", "performance is 'fast', must be low, medium, high or max"},
           {"on_device_loss", "cry", "on_device_loss is 'cry', must be replay, fallback or fail"},
           {"faults", "/no/such/plan", "/no/such/plan"},
           {"speed", "1", "there is no option 'speed'; there are device, ops, min_nodes"}}) {
    SCOPED_TRACE(key);
    std::string reported;
    const Plugin::DelegatePtr delegate =
        Plugin::Get().Make({{"device", "emu"}, {key, value}}, &reported);
    ASSERT_NE(delegate, nullptr);
    EXPECT_THAT(reported, HasSubstr(why));
    MadeUpTflite runtime(Fashion(), NewestLayout());
    EXPECT_EQ(runtime.ModifyGraph(delegate.get()), kTfLiteDelegateError);
    EXPECT_THAT(runtime.errors(), HasSubstr(why));
  }
}

TEST(TfliteDelegate, TakesOptionsAsRuntimesPassThem) {
  const Plugin& plugin = Plugin::Get();
  const std::shared_ptr<const Model> model = Fashion();
  const auto expect_that_it_works = [&](TfLiteDelegate* made) {
    const Plugin::DelegatePtr delegate(made, plugin.destroy);
    ASSERT_NE(made, nullptr);
    MadeUpTflite runtime(model, NewestLayout());
    ExpectCpusBytes(&runtime, model, made);
  };
  setenv("ATOLL_DEVICE", "emu", 1);
  expect_that_it_works(plugin.create(nullptr, nullptr, 0, nullptr));
  char* keys[] = {const_cast<char*>("device"), nullptr, const_cast<char*>("verbosity")};
  char* values[] = {const_cast<char*>(""), const_cast<char*>("x"), nullptr};
  expect_that_it_works(plugin.create(keys, values, 3, nullptr));
  expect_that_it_works(plugin.create(nullptr, nullptr, 7, nullptr));
  // What the environment says is no more than a default.
  setenv("ATOLL_DEVICE", "usb:9", 1);
  std::string reported;
  EXPECT_NE(plugin.Make({{"device", "emu"}}, &reported), nullptr);
  EXPECT_EQ(reported, "");
  EXPECT_NE(plugin.Make({}, &reported), nullptr);
  EXPECT_THAT(reported, HasSubstr("usb:9"));
  // Nobody to report to.
  char* wrong[] = {const_cast<char*>("wrong")};
  Plugin::DelegatePtr(plugin.create(wrong, wrong, 1, nullptr), plugin.destroy);
  unsetenv("ATOLL_DEVICE");
  plugin.destroy(nullptr);
}

TEST(TfliteDelegate, HasTheNewestStructWithZerosBehindIt) {
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}});
  const auto* const words = reinterpret_cast<void* const*>(delegate.get());
  EXPECT_NE(delegate->data_, nullptr);
  EXPECT_NE(delegate->Prepare, nullptr);
  for (size_t i = sizeof(TfLiteDelegate) / sizeof(void*) - 1; i < 16; ++i) {
    EXPECT_EQ(words[i], nullptr) << i;
  }
}

TEST(TfliteDelegate, RunsNothingOnTheCpuAsADevice) {
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "cpu"}, {"ops", "device"}});
  const std::shared_ptr<const Model> model = Fashion();
  MadeUpTflite runtime(model, NewestLayout());
  ExpectCpusBytes(&runtime, model, delegate.get());
  EXPECT_EQ(runtime.claimed(), 0u);
}

// ---- Hostile graphs -----------------------------------------------------------------------------

// An enumeration's, also one that is unknown here.
template <typename Enum>
void SetNumber(Enum* to, int32_t number) {
  std::memcpy(to, &number, sizeof(number));
}

// Node 0 or a tensor of it is spoilt; nothing is worse than that the runtime runs it.
void ExpectLeft(const char* what, const std::function<void(MadeUpTflite&)>& spoil,
                const std::string& why) {
  SCOPED_TRACE(what);
  const std::shared_ptr<const Model> model = Mixed().Load();
  for (const char* const operators : {"all", "device"}) {
    const Plugin::DelegatePtr delegate =
        Plugin::Get().Make({{"device", "emu"}, {"ops", operators}, {"verbosity", "2"}});
    MadeUpTflite runtime(model, NewestLayout());
    spoil(runtime);
    testing::internal::CaptureStderr();
    EXPECT_EQ(runtime.ModifyGraph(delegate.get()), kTfLiteOk) << runtime.errors();
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(why));
    for (const std::vector<int>& partition : runtime.partitions()) {
      EXPECT_THAT(partition, Not(testing::Contains(0)));
    }
  }
}

TEST(TfliteDelegate, LeavesMalformedNodesToTheRuntime) {
  const auto array = [](const std::vector<int>& numbers) {
    static std::vector<std::unique_ptr<std::vector<int>>> kept;
    kept.push_back(std::make_unique<std::vector<int>>(AsArray(numbers)));
    return reinterpret_cast<TfLiteIntArray*>(kept.back()->data());
  };
  static TfLiteIntArray negative = {.size = -3};
  static TfLiteIntArray huge = {.size = INT32_MAX};
  using Runtime = MadeUpTflite&;
  const auto weights = [](Runtime r) -> TfLiteTensor& {
    return r.tensor(r.node(0).inputs->data[1]);
  };
  const auto affine = [&](Runtime r) {
    return static_cast<TfLiteAffineQuantization*>(weights(r).quantization.params);
  };
  ExpectLeft(
      "no inputs", [](Runtime r) { r.node(0).inputs = nullptr; }, "it has no inputs");
  ExpectLeft(
      "no outputs", [](Runtime r) { r.node(0).outputs = nullptr; }, "it has no outputs");
  ExpectLeft(
      "outputs of none", [&](Runtime r) { r.node(0).outputs = array({}); }, "no outputs");
  ExpectLeft(
      "inputs < 0", [](Runtime r) { r.node(0).inputs = &negative; }, "it has no inputs");
  ExpectLeft(
      "a tensor too far",
      [&](Runtime r) {
        r.node(0).inputs = array({0, 1, 4711});
      },
      "tensor 4711 does not exist");
  ExpectLeft(
      "an absent output", [&](Runtime r) { r.node(0).outputs = array({-1}); },
      "tensor -1 does not exist");
  ExpectLeft(
      "an absent input",
      [&](Runtime r) {
        r.node(0).inputs = array({-1, -1, -1});
      },
      "");
  ExpectLeft(
      "too few inputs", [&](Runtime r) { r.node(0).inputs = array({0}); }, "");
  ExpectLeft(
      "no parameters", [](Runtime r) { r.node(0).builtin_data = nullptr; }, "it has no parameters");
  ExpectLeft(
      "an activation that there is not",
      [](Runtime r) { static_cast<int*>(r.node(0).builtin_data)[3] = 256 + 1; },
      "a number 257 where Atoll knows none");
  ExpectLeft(
      "no padding", [](Runtime r) { static_cast<int*>(r.node(0).builtin_data)[0] = 0; },
      "a number -1 where Atoll knows none");
  ExpectLeft(
      "strides", [](Runtime r) { static_cast<int*>(r.node(0).builtin_data)[1] = INT32_MIN; }, "");
  ExpectLeft(
      "a version to come", [](Runtime r) { r.registration(0).version = 1000; }, "version");
  ExpectLeft(
      "a custom operator",
      [](Runtime r) {
        r.registration(0).builtin_code = 32;
        r.registration(0).custom_name = "something";
        r.node(0).custom_initial_data_size = 100;
      },
      "something");
  ExpectLeft(
      "a custom operator without a name", [](Runtime r) { r.registration(0).builtin_code = 32; },
      "operator 32");
  ExpectLeft(
      "an operator below 0", [](Runtime r) { r.registration(0).builtin_code = -7; }, "");
  ExpectLeft(
      "no shape", [&](Runtime r) { weights(r).dims = nullptr; }, "the shape of tensor");
  ExpectLeft(
      "many dimensions", [&](Runtime r) { weights(r).dims = &huge; }, "dimensions");
  ExpectLeft(
      "sizes of 0",
      [&](Runtime r) {
        weights(r).dims = array({8, 0, 3, 4});
      },
      "has the size 0 in dimension 1");
  ExpectLeft(
      "sizes that overflow",
      [&](Runtime r) {
        weights(r).dims = array({65536, 65536, 65536, 65536});
      },
      "");
  ExpectLeft(
      "fewer bytes than the shape needs", [&](Runtime r) { weights(r).bytes = 5; }, "");
  ExpectLeft(
      "no bytes of a constant", [&](Runtime r) { weights(r).data.data = nullptr; }, "");
  ExpectLeft(
      "a type that there is not", [&](Runtime r) { SetNumber(&weights(r).type, 77); },
      "has type 77");
  ExpectLeft(
      "strings", [&](Runtime r) { weights(r).type = kTfLiteString; }, "has type 5");
  ExpectLeft(
      "sparse weights", [&](Runtime r) { weights(r).sparsity = &negative; }, "sparse");
  ExpectLeft(
      "quantization of another kind",
      [&](Runtime r) { SetNumber(&weights(r).quantization.type, 2); }, "quantization of kind 2");
  ExpectLeft(
      "no quantization", [&](Runtime r) { weights(r).quantization = {}; }, "");
  ExpectLeft(
      "fewer zero points than scales", [&](Runtime r) { affine(r)->zero_point = array({0}); },
      "scales and 1 zero points");
  ExpectLeft(
      "scales < 0",
      [&](Runtime r) { affine(r)->scale = reinterpret_cast<TfLiteFloatArray*>(&negative); },
      "has -3 scales");
  ExpectLeft(
      "a dimension that there is not", [&](Runtime r) { affine(r)->quantized_dimension = 9; }, "");
  ExpectLeft(
      "two writers", [&](Runtime r) { r.node(0).outputs = array({r.node(1).outputs->data[0]}); },
      "");
}

// Runtimes that answer nothing.
TEST(TfliteDelegate, FailsWhereTheRuntimeDoes) {
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}});
  MadeUpTflite runtime(Fashion(), NewestLayout());
  // Without ModifyGraph all that a delegate may ask is forbidden.
  EXPECT_EQ(delegate->Prepare(runtime.context(), delegate.get()), kTfLiteDelegateError);
  EXPECT_THAT(runtime.errors(), HasSubstr("Atoll: the runtime does not tell its execution plan"));
}

// Runtimes whose answers make no sense.
TEST(TfliteDelegate, TakesNoPartitionThatIsNone) {
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}, {"ops", "all"}});
  using Preview = TfLiteStatus(TfLiteContext*, const TfLiteIntArray*, TfLiteDelegateParams**, int*);
  const auto expect_refused = [&](Preview* preview) {
    static Preview* instead;
    instead = preview;
    TfLiteDelegate shown = *delegate;
    shown.data_ = delegate.get();
    shown.Prepare = [](TfLiteContext* context, TfLiteDelegate* self) {
      Preview* const before = std::exchange(context->PreviewDelegatePartitioning, instead);
      auto* const real = static_cast<TfLiteDelegate*>(self->data_);
      const TfLiteStatus status = real->Prepare(context, real);
      context->PreviewDelegatePartitioning = before;
      return status;
    };
    MadeUpTflite runtime(Fashion(), NewestLayout());
    EXPECT_EQ(runtime.ModifyGraph(&shown), kTfLiteDelegateError);
    EXPECT_THAT(runtime.errors(), HasSubstr("does not tell how it would partition"));
  };
  expect_refused([](TfLiteContext*, const TfLiteIntArray*, TfLiteDelegateParams** all, int* count) {
    static std::vector<int> nodes = {2, 0, 4711};  // of which the last does not exist
    static TfLiteDelegateParams params;
    params.nodes_to_replace = reinterpret_cast<TfLiteIntArray*>(nodes.data());
    *all = &params;
    *count = 1;
    return kTfLiteOk;
  });
  expect_refused([](TfLiteContext*, const TfLiteIntArray*, TfLiteDelegateParams** all, int* count) {
    *all = nullptr;
    *count = 3;
    return kTfLiteOk;
  });
}

TEST(TfliteDelegate, TakesAsManyThreadsAsThereMayBe) {
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}, {"ops", "all"}});
  MadeUpTflite runtime(Fashion(), NewestLayout(), /*threads=*/4096);
  ASSERT_EQ(runtime.ModifyGraph(delegate.get()), kTfLiteOk) << runtime.errors();
  EXPECT_GT(runtime.claimed(), 0u);
}

// Invocations of what was never prepared, or has no memory.
TEST(TfliteDelegate, SaysWhatATensorLacks) {
  const std::shared_ptr<const Model> model = Fashion();
  const Plugin::DelegatePtr delegate = Plugin::Get().Make({{"device", "emu"}});
  MadeUpTflite runtime(model, NewestLayout());
  ASSERT_EQ(runtime.ModifyGraph(delegate.get()), kTfLiteOk);
  const auto number = static_cast<int>(model->graph().nodes.size());
  const auto invoke = [&] {
    runtime.ClearErrors();
    return runtime.registration(number).invoke(runtime.context(), &runtime.node(number));
  };
  EXPECT_EQ(invoke(), kTfLiteError);
  EXPECT_THAT(runtime.errors(), HasSubstr("has no memory"));
  ASSERT_EQ(runtime.AllocateTensors(), kTfLiteOk);
  TfLiteTensor& output = runtime.tensor(model->graph().outputs[0]);
  output.bytes -= 1;
  EXPECT_EQ(invoke(), kTfLiteError);
  EXPECT_THAT(runtime.errors(), HasSubstr("the buffer has 9"));
  output.bytes += 1;
  EXPECT_EQ(invoke(), kTfLiteOk);
}

}  // namespace
}  // namespace atollrt
