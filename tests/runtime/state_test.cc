// SPDX-License-Identifier: Apache-2.0
//
// What outlasts an invocation: variables with the graph that initializes them, and variable
// tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "atoll/runtime.h"
#include "runtime/interpreter.h"
#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

int32_t Handle(ModelBuilder* m, const std::string& name) {
  const int32_t handle =
      m->Node(OpType::kVAR_HANDLE, {}, {}, VarHandleOptions{.container = "", .shared_name = name});
  m->tensor(handle).type = DataType::kResource;
  m->tensor(handle).quantization = {};
  return handle;
}

int32_t Read(ModelBuilder* m, int32_t handle, Shape shape) {
  return m->Node(OpType::kREAD_VARIABLE, {handle}, std::move(shape));
}

// Nodes without outputs.
void Effect(ModelBuilder* m, OpType type, std::vector<int32_t> inputs, OpOptions options = {}) {
  Node node;
  node.type = type;
  node.inputs = std::move(inputs);
  node.options = std::move(options);
  m->graph().nodes.push_back(std::move(node));
}

void Assign(ModelBuilder* m, int32_t handle, int32_t value) {
  Effect(m, OpType::kASSIGN_VARIABLE, {handle, value});
}

void CallOnce(ModelBuilder* m, int32_t subgraph) {
  Effect(m, OpType::kCALL_ONCE, {}, CallOnceOptions{subgraph});
}

// Subgraph 1: 'last' = [10, 20].
ModelBuilder Initialization() {
  ModelBuilder m;
  const int32_t start = m.Constant(DataType::kInt8, {1, 2}, {10, 20});
  Assign(&m, Handle(&m, "last"), start);
  return m;
}

// y = 'last'; 'last' = x. So y is what x was one invocation ago.
ModelBuilder Delay() {
  ModelBuilder m;
  CallOnce(&m, 1);
  const int32_t x = m.Input({1, 2});
  const int32_t handle = Handle(&m, "last");
  const int32_t last = Read(&m, handle, {1, 2});
  Assign(&m, handle, x);
  m.Output(m.Reshape(last, {2}));
  return m;
}

Bytes WriteDelay(const ModelBuilder& main, const ModelBuilder& init = Initialization()) {
  return WriteGraphs(
      {&const_cast<ModelBuilder&>(main).graph(), &const_cast<ModelBuilder&>(init).graph()});
}

std::unique_ptr<Interpreter> Create(const Bytes& file, Delegate* delegate = nullptr) {
  auto model = Model::FromBuffer(file);
  EXPECT_TRUE(model.ok()) << model.status().message();
  if (!model.ok()) return nullptr;
  auto interpreter = Interpreter::Create(*std::move(model), {.threads = 1, .delegate = delegate});
  EXPECT_TRUE(interpreter.ok()) << interpreter.status().message();
  return interpreter.ok() ? *std::move(interpreter) : nullptr;
}

std::string Refusal(const Bytes& file) { return Model::FromBuffer(file).status().message(); }

// Runs with the input [a, b] and gives the output.
Bytes Invoke(Interpreter* interpreter, uint8_t a, uint8_t b) {
  const std::span<uint8_t> x = interpreter->TensorBytes(interpreter->graph().inputs[0]);
  x[0] = a;
  x[1] = b;
  EXPECT_TRUE(interpreter->Invoke().ok());
  const auto y = interpreter->ConstTensorBytes(interpreter->graph().outputs[0]);
  return {y.begin(), y.end()};
}

// ---- Variables ----------------------------------------------------------------------------------

TEST(Variables, KeepWhatTheLastInvocationAssigned) {
  const auto interpreter = Create(WriteDelay(Delay()));
  EXPECT_THAT(Invoke(interpreter.get(), 1, 2), ElementsAre(10, 20)) << "of the initialization";
  EXPECT_THAT(Invoke(interpreter.get(), 3, 4), ElementsAre(1, 2)) << "which runs only once";
  EXPECT_THAT(Invoke(interpreter.get(), 5, 6), ElementsAre(3, 4));
}

TEST(Variables, AreInitializedAgainAfterAReset) {
  const auto interpreter = Create(WriteDelay(Delay()));
  Invoke(interpreter.get(), 1, 2);
  interpreter->ResetVariables();
  EXPECT_THAT(Invoke(interpreter.get(), 3, 4), ElementsAre(10, 20));
  EXPECT_THAT(Invoke(interpreter.get(), 3, 4), ElementsAre(3, 4));
}

TEST(Variables, BelongToOneInterpreter) {
  auto model = Model::FromBuffer(WriteDelay(Delay()));
  ASSERT_TRUE(model.ok());
  auto first = Interpreter::Create(*model, {.threads = 1});
  auto second = Interpreter::Create(*model, {.threads = 1});
  Invoke(first->get(), 1, 2);
  EXPECT_THAT(Invoke(second->get(), 3, 4), ElementsAre(10, 20));
}

TEST(Variables, AReadBeforeAnAssignmentSeesTheOldValue) {
  ModelBuilder m;
  CallOnce(&m, 1);
  const int32_t x = m.Input({1, 2});
  // Nothing but their order leads from one to the other, and each has its own handle.
  const int32_t before = Read(&m, Handle(&m, "last"), {1, 2});
  Assign(&m, Handle(&m, "last"), x);
  const int32_t after = Read(&m, Handle(&m, "last"), {1, 2});
  m.Output(m.Concatenation({before, after}, 1));
  const auto interpreter = Create(WriteDelay(m));
  EXPECT_THAT(Invoke(interpreter.get(), 1, 2), ElementsAre(10, 20, 1, 2));
  EXPECT_THAT(Invoke(interpreter.get(), 3, 4), ElementsAre(1, 2, 3, 4));
}

TEST(Variables, OrderIsKnownToWhoeverReordersNodes) {
  const ModelBuilder m = Delay();
  auto model = Model::FromBuffer(WriteDelay(m));
  ASSERT_TRUE(model.ok());
  // 0 CALL_ONCE, 1 VAR_HANDLE, 2 READ_VARIABLE, 3 ASSIGN_VARIABLE, 4 RESHAPE.
  EXPECT_THAT(StateOrder((*model)->graph()), ElementsAre(std::pair(0, 2), std::pair(2, 3)));
}

// ---- What the loader refuses --------------------------------------------------------------------

TEST(Variables, MustBeAssignedBeforeTheyAreRead) {
  ModelBuilder m;
  m.Output(m.Reshape(Read(&m, Handle(&m, "last"), {1, 2}), {2}));
  EXPECT_THAT(Refusal(m.Build()),
              HasSubstr("reads variable 'last' before anything has assigned it"));
}

TEST(Variables, HaveOneShape) {
  ModelBuilder init;
  const int32_t start = init.Constant(DataType::kInt8, {1, 3}, {1, 2, 3});
  Assign(&init, Handle(&init, "last"), start);
  EXPECT_THAT(Refusal(WriteDelay(Delay(), init)),
              HasSubstr("is int8 of shape [1, 3], but variable 'last' is int8 of shape [1, 2] "
                        "elsewhere"));
}

TEST(Variables, ComeFromAHandle) {
  ModelBuilder m;
  const int32_t x = m.Input({});
  m.tensor(x).type = DataType::kResource;
  Assign(&m, x, m.Input({1, 2}));
  EXPECT_THAT(Refusal(m.Build()), HasSubstr("is not the output of a VAR_HANDLE"));
}

TEST(CallOnce, NeedsAGraphThatExists) {
  ModelBuilder m;
  m.Output(m.Relu(m.Input({1, 2})));
  CallOnce(&m, 1);
  EXPECT_THAT(Refusal(m.Build()), HasSubstr("subgraph 1, but there are 1"));
  m.graph().nodes.back().options = CallOnceOptions{-1};
  EXPECT_THAT(Refusal(m.Build()), HasSubstr("subgraph -1, but there are 1"));
}

TEST(CallOnce, NeedsAGraphWithoutInputsAndOutputs) {
  ModelBuilder m;
  m.Output(m.Relu(m.Input({1, 2})));
  CallOnce(&m, 0);
  EXPECT_THAT(Refusal(m.Build()), HasSubstr("has 1 inputs and 1 outputs, must have none"));
}

// As in TensorFlow Lite. Nodes that call it need no memory of their own for it.
TEST(CallOnce, RunsAGraphOnceWhoeverCallsIt) {
  ModelBuilder m;
  CallOnce(&m, 1);
  const int32_t x = m.Input({1, 2});
  const int32_t handle = Handle(&m, "last");
  Assign(&m, handle, x);
  CallOnce(&m, 1);
  m.Output(m.Reshape(Read(&m, handle, {1, 2}), {2}));
  const auto interpreter = Create(WriteDelay(m));
  EXPECT_THAT(Invoke(interpreter.get(), 1, 2), ElementsAre(1, 2));
  interpreter->ResetVariables();
  EXPECT_THAT(Invoke(interpreter.get(), 3, 4), ElementsAre(3, 4));
}

TEST(CallOnce, IsNotNested) {
  ModelBuilder init = Initialization();
  CallOnce(&init, 1);
  EXPECT_THAT(Refusal(WriteDelay(Delay(), init)), HasSubstr("subgraph 1 calls another one"));
}

TEST(Subgraphs, AreAllChecked) {
  ModelBuilder init = Initialization();
  init.tensor(0).data = init.tensor(0).data.first(1);
  EXPECT_THAT(Refusal(WriteDelay(Delay(), init)),
              HasSubstr("subgraph 1: tensor 0 't0' of node 1 (ASSIGN_VARIABLE): shape [1, 2] of "
                        "int8 needs 2 bytes"));
}

// ---- Variable tensors ---------------------------------------------------------------------------

// SVDF with one filter that adds up its last three inputs.
ModelBuilder Sum3() {
  ModelBuilder m;
  const int32_t x = m.Input({1, 1});
  const int32_t features = m.Constant(DataType::kInt8, {1, 1}, {1});
  const int32_t time = m.Constant(DataType::kInt16, {1, 3}, {1, 0, 1, 0, 1, 0});
  const int32_t state = m.Activation({1, 3});
  m.tensor(state).type = DataType::kInt16;
  m.tensor(state).is_variable = true;
  for (const int32_t tensor : {x, features, time, state}) {
    m.tensor(tensor).quantization = {.scales = {1}, .zero_points = {0}};
  }
  const int32_t y =
      m.Node(OpType::kSVDF, {x, features, time, -1, state}, {1, 1}, SvdfOptions{.rank = 1});
  m.tensor(y).quantization = {.scales = {1}, .zero_points = {0}};
  m.Output(y);
  return m;
}

uint8_t InvokeSum(Interpreter* interpreter, uint8_t x) {
  interpreter->TensorBytes(interpreter->graph().inputs[0])[0] = x;
  EXPECT_TRUE(interpreter->Invoke().ok());
  return interpreter->ConstTensorBytes(interpreter->graph().outputs[0])[0];
}

TEST(VariableTensors, StartAtZeroAndPersist) {
  const auto interpreter = Create(Sum3().Build());
  EXPECT_EQ(InvokeSum(interpreter.get(), 1), 1);
  EXPECT_EQ(InvokeSum(interpreter.get(), 2), 3);
  EXPECT_EQ(InvokeSum(interpreter.get(), 4), 7);
  EXPECT_EQ(InvokeSum(interpreter.get(), 8), 14);
  interpreter->ResetVariables();
  EXPECT_EQ(InvokeSum(interpreter.get(), 16), 16);
}

TEST(VariableTensors, OfInt8StartAtTheirZeroPoint) {
  ModelBuilder m;
  const int32_t state = m.Activation({1, 4});
  m.tensor(state).is_variable = true;
  m.Output(m.Reshape(state, {4}));
  const auto interpreter = Create(m.Build());
  ASSERT_TRUE(interpreter->Invoke().ok());
  const auto y = interpreter->ConstTensorBytes(interpreter->graph().outputs[0]);
  for (const uint8_t byte : y) EXPECT_EQ(static_cast<int8_t>(byte), -3);
}

// What was read before a layer wrote its state stays, whoever looks at it afterwards.
TEST(VariableTensors, AreReadWhereTheNodeStands) {
  constexpr int32_t kUnits = 4;
  for (const OpType type : {OpType::kRESHAPE, OpType::kEXPAND_DIMS, OpType::kSLICE}) {
    ModelBuilder m;
    const int32_t y = m.Lstm(m.Input({1, 2, 3}), {.units = kUnits});
    const int32_t state = m.graph().nodes[0].inputs[18];
    int32_t before = -1;
    if (type == OpType::kRESHAPE) {
      before = m.Reshape(state, {1, 1, 1, kUnits});
    } else if (type == OpType::kEXPAND_DIMS) {
      before = m.Node(type, {state, m.Integers({}, {0})}, {1, 1, kUnits});
    } else {
      const int32_t begin = m.Integers({2}, {0, 1});
      before = m.Node(type, {state, begin, m.Integers({2}, {1, 2})}, {1, 2});
    }
    const Quantization hidden = m.tensor(state).quantization;
    m.tensor(before).quantization = hidden;
    std::swap(m.graph().nodes[0], m.graph().nodes[1]);
    const int32_t read = m.Relu(before);
    m.tensor(read).quantization = hidden;
    m.Output(read);
    m.Output(y);
    const auto interpreter = Create(m.Build());
    ASSERT_NE(interpreter, nullptr);
    Bytes state_before(kUnits, static_cast<uint8_t>(-3));
    for (int i = 0; i < 3; ++i) {
      Bytes want;
      for (const uint8_t byte : state_before) {
        want.push_back(static_cast<uint8_t>(std::max<int8_t>(static_cast<int8_t>(byte), -3)));
      }
      if (type == OpType::kSLICE) want = {want[1], want[2]};
      for (uint8_t& byte : interpreter->TensorBytes(0)) byte = static_cast<uint8_t>(90 * (i + 1));
      ASSERT_TRUE(interpreter->Invoke().ok());
      const auto got = interpreter->ConstTensorBytes(read);
      EXPECT_THAT(Bytes(got.begin(), got.end()), ElementsAreArray(want)) << i;
      const auto now = interpreter->ConstTensorBytes(state);
      EXPECT_NE(Bytes(now.begin(), now.end()), state_before);
      state_before.assign(now.begin(), now.end());
    }
  }
}

TEST(VariableTensors, AreNoConstants) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 2});
  const int32_t constant = m.Constant(DataType::kInt8, {1, 2}, {1, 2});
  m.tensor(constant).is_variable = true;
  m.Output(m.Add(x, constant));
  EXPECT_THAT(Refusal(m.Build()),
              HasSubstr("tensor 1 't1' of node 0 (ADD) 't2' is a variable with constant data"));
}

TEST(VariableTensors, AreResetThroughTheCInterface) {
  const Bytes file = Sum3().Build();
  AtollModel* model = nullptr;
  AtollInterpreter* interpreter = nullptr;
  ASSERT_EQ(AtollModelCreateFromBuffer(file.data(), file.size(), &model), ATOLL_OK);
  ASSERT_EQ(AtollInterpreterCreate(model, nullptr, &interpreter), ATOLL_OK);
  const auto invoke = [&] {
    const int8_t x = 5;
    int8_t y = 0;
    EXPECT_EQ(AtollTensorCopyFromBuffer(AtollInterpreterGetInputTensor(interpreter, 0), &x, 1),
              ATOLL_OK);
    EXPECT_EQ(AtollInterpreterInvoke(interpreter), ATOLL_OK);
    EXPECT_EQ(AtollTensorCopyToBuffer(AtollInterpreterGetOutputTensor(interpreter, 0), &y, 1),
              ATOLL_OK);
    return static_cast<int>(y);
  };
  EXPECT_EQ(invoke(), 5);
  EXPECT_EQ(invoke(), 10);
  EXPECT_EQ(AtollInterpreterResetVariableTensors(interpreter), ATOLL_OK);
  EXPECT_EQ(invoke(), 5);
  EXPECT_EQ(AtollInterpreterResetVariableTensors(nullptr), ATOLL_INVALID_ARGUMENT);
  AtollInterpreterDelete(interpreter);
  AtollModelDelete(model);
}

}  // namespace
}  // namespace atollrt
