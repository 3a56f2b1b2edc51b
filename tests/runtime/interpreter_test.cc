// SPDX-License-Identifier: Apache-2.0
#include "runtime/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <map>
#include <thread>

#include "tests/support/allocation_meter.h"
#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

std::unique_ptr<Interpreter> Create(std::shared_ptr<const Model> model, int threads = 1) {
  auto interpreter = Interpreter::Create(std::move(model), {.threads = threads});
  EXPECT_TRUE(interpreter.ok()) << interpreter.status().message();
  return interpreter.ok() ? *std::move(interpreter) : nullptr;
}

void FillInputs(Interpreter* interpreter, uint64_t seed) {
  Rng rng(seed);
  for (const int32_t input : interpreter->graph().inputs) {
    rng.Fill(interpreter->TensorBytes(input));
  }
}

Bytes Copy(const Interpreter& interpreter, int32_t tensor) {
  const std::span<const uint8_t> bytes = interpreter.ConstTensorBytes(tensor);
  return {bytes.begin(), bytes.end()};
}

Bytes OutputOf(Interpreter* interpreter) {
  return Copy(*interpreter, interpreter->graph().outputs[0]);
}

// One of each kind of operator. All its activations are returned in `inner`.
ModelBuilder Classifier(std::vector<int32_t>* inner = nullptr) {
  ModelBuilder m;
  std::vector<int32_t> written;
  const auto keep = [&](int32_t tensor) {
    written.push_back(tensor);
    return tensor;
  };
  const int32_t x = keep(m.Conv2D(m.Input({1, 12, 12, 3}), {.channels = 8, .kernel = 3}));
  const int32_t y = keep(m.DepthwiseConv2D(x, {.kernel = 3}));
  const int32_t sum = keep(m.Add(keep(m.Conv2D(y, {.channels = 8})), x));
  const int32_t padded = keep(m.Pad(sum, {0, 0, 1, 1, 1, 1, 0, 0}));
  const int32_t pooled = keep(m.MaxPool(padded, {}));
  const int32_t wide = keep(m.Concatenation({pooled, keep(m.Relu(pooled))}, 3));
  const int32_t mean = keep(m.Mean(keep(m.Logistic(wide)), {1, 2}));
  const int32_t flat = keep(m.Reshape(mean, {1, 16}));
  m.Output(keep(m.Softmax(keep(m.FullyConnected(flat, 10)))));
  if (inner != nullptr) *inner = written;
  return m;
}

class InterpreterTest : public testing::Test {
 protected:
  std::unique_ptr<Interpreter> interpreter_ = Create(Classifier().Load());
};

// ---- A model that completes what a device does not ----------------------------------------------

// Has the last node, and loses its device in each invocation.
class LostDelegate final : public Delegate {
 public:
  Result<DelegatePlan> Plan(const Graph& graph, const PlanOptions&) override {
    class Lost final : public NodeExecutor {
      Status Invoke(const NodeIo&) override { return DeviceLost("gone"); }
    };
    DelegatePlan plan;
    plan.refusals.resize(graph.nodes.size());
    Partition& partition = plan.partitions.emplace_back();
    partition.nodes = {static_cast<int32_t>(graph.nodes.size()) - 1};
    partition.inputs = graph.nodes.back().inputs;
    partition.outputs = graph.nodes.back().outputs;
    partition.executor = std::make_unique<Lost>();
    return plan;
  }
};

// Its outputs are one that is computed, a constant and an input.
std::shared_ptr<const Model> ModelOfConstantOutput(const Bytes& constant) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 4});
  m.Output(m.Relu(x));
  m.Output(m.Constant(DataType::kInt8, {1, 3}, constant));
  m.Output(x);
  return m.Load();
}

TEST(Fallback, LeavesConstantOutputsAlone) {
  LostDelegate delegate;
  auto interpreter = Interpreter::Create(
      ModelOfConstantOutput({1, 2, 3}),
      {.threads = 1, .delegate = &delegate, .fallback = ModelOfConstantOutput({1, 2, 3})});
  ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
  const Graph& graph = (*interpreter)->graph();
  const std::span<uint8_t> x = (*interpreter)->TensorBytes(graph.inputs[0]);
  std::fill(x.begin(), x.end(), uint8_t{5});
  ASSERT_TRUE((*interpreter)->Invoke().ok());
  EXPECT_EQ(Copy(**interpreter, graph.outputs[0]), Bytes(4, 5));
  EXPECT_EQ(Copy(**interpreter, graph.outputs[1]), (Bytes{1, 2, 3}));
  EXPECT_EQ(Copy(**interpreter, graph.outputs[2]), Bytes(4, 5));
}

TEST(Fallback, HasTheSameConstantOutputs) {
  LostDelegate delegate;
  const auto interpreter = Interpreter::Create(
      ModelOfConstantOutput({1, 2, 3}),
      {.threads = 1, .delegate = &delegate, .fallback = ModelOfConstantOutput({1, 2, 4})});
  ASSERT_FALSE(interpreter.ok());
  EXPECT_EQ(interpreter.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(
      interpreter.status().message(),
      HasSubstr("output 1 of the fallback model, 't2', is not the same constant as 't2' of"));
}

// ---- Memory that a device reaches itself --------------------------------------------------------

// Has the last node, on a device that reaches some memory.
class ReachingDelegate final : public Delegate {
 public:
  Result<DelegatePlan> Plan(const Graph& graph, const PlanOptions& options) override {
    return LostDelegate().Plan(graph, options);
  }
  Status RegisterMemory(const HostMemory& memory) override {
    if (is_full) return ResourceExhausted("raise the limit");
    registered.push_back(memory.bytes.data());
    return {};
  }
  void UnregisterMemory(std::span<uint8_t> memory) override {
    const auto found = std::find(registered.begin(), registered.end(), memory.data());
    ASSERT_NE(found, registered.end());
    registered.erase(found);
  }
  bool is_full = false;
  std::vector<const uint8_t*> registered;
};

TEST(RegisteredMemory, IsTheArenaAndWhatTensorsLieIn) {
  ReachingDelegate delegate;
  auto created =
      Interpreter::Create(ModelOfConstantOutput({1, 2, 3}), {.threads = 1, .delegate = &delegate});
  ASSERT_TRUE(created.ok()) << created.status().message();
  Interpreter& interpreter = **created;
  const int32_t input = interpreter.graph().inputs[0];
  const int32_t output = interpreter.graph().outputs[0];
  ASSERT_EQ(delegate.registered.size(), 1u);
  const uint8_t* const arena = delegate.registered[0];
  Bytes in(4), out(4), other(4);
  EXPECT_TRUE(interpreter.SetTensorMemory(input, in, nullptr).ok());
  EXPECT_TRUE(interpreter.SetTensorMemory(output, out, nullptr, /*for_device=*/true).ok());
  EXPECT_EQ(delegate.registered, (std::vector<const uint8_t*>{arena, in.data(), out.data()}));
  // Told anew: the same addresses may be other memory now.
  EXPECT_TRUE(interpreter.SetTensorMemory(input, in, nullptr).ok());
  EXPECT_EQ(delegate.registered, (std::vector<const uint8_t*>{arena, out.data(), in.data()}));
  delegate.is_full = true;
  EXPECT_TRUE(interpreter.SetTensorMemory(input, other, nullptr).ok());  // copied
  EXPECT_EQ(interpreter.TensorBytes(input).data(), other.data());
  const Status status = interpreter.SetTensorMemory(output, other, nullptr, /*for_device=*/true);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "raise the limit");
  EXPECT_EQ(delegate.registered, (std::vector<const uint8_t*>{arena}));
  delegate.is_full = false;
  EXPECT_TRUE(interpreter.SetTensorMemory(output, out, nullptr).ok());
  EXPECT_TRUE(interpreter.SetTensorMemory(output, {}, nullptr).ok());
  *created = nullptr;
  EXPECT_TRUE(delegate.registered.empty());
}

// ---- Invoke -------------------------------------------------------------------------------------

TEST_F(InterpreterTest, InvokeAllocatesNothing) {
  for (const int threads : {1, 2}) {
    const std::unique_ptr<Interpreter> interpreter = Create(Classifier().Load(), threads);
    FillInputs(interpreter.get(), 1);
    const AllocationMeter meter;
    const bool ok = interpreter->Invoke().ok();
    const int64_t allocations = meter.count();
    EXPECT_TRUE(ok);
    EXPECT_EQ(allocations, 0) << threads << " threads";
  }
}

TEST_F(InterpreterTest, InvokeOfDetectionsAllocatesNothing) {
  const std::filesystem::path cases =
      ATOLL_SOURCE_DIR "/tests/golden/ops/tflite_detection_postprocess";
  for (const auto& file : std::filesystem::directory_iterator(cases)) {
    auto model = Model::FromFile(file.path());
    ASSERT_TRUE(model.ok()) << model.status().message();
    const std::unique_ptr<Interpreter> interpreter = Create(*std::move(model));
    FillInputs(interpreter.get(), 1);
    const AllocationMeter meter;
    const bool ok = interpreter->Invoke().ok();
    const int64_t allocations = meter.count();
    EXPECT_TRUE(ok);
    EXPECT_EQ(allocations, 0) << file.path();
  }
}

TEST_F(InterpreterTest, SecondRunGivesTheSameBytesFromTheSameInputs) {
  FillInputs(interpreter_.get(), 1);
  ASSERT_TRUE(interpreter_->Invoke().ok());
  const Bytes first = OutputOf(interpreter_.get());
  ASSERT_TRUE(interpreter_->Invoke().ok());
  EXPECT_EQ(OutputOf(interpreter_.get()), first);
}

TEST_F(InterpreterTest, InputsSurviveInvoke) {
  FillInputs(interpreter_.get(), 1);
  const int32_t input = interpreter_->graph().inputs[0];
  const Bytes before = Copy(*interpreter_, input);
  ASSERT_TRUE(interpreter_->Invoke().ok());
  EXPECT_EQ(Copy(*interpreter_, input), before);
}

TEST_F(InterpreterTest, AnotherInputGivesAnotherOutput) {
  FillInputs(interpreter_.get(), 1);
  ASSERT_TRUE(interpreter_->Invoke().ok());
  const Bytes first = OutputOf(interpreter_.get());
  FillInputs(interpreter_.get(), 2);
  ASSERT_TRUE(interpreter_->Invoke().ok());
  EXPECT_NE(OutputOf(interpreter_.get()), first);
}

TEST_F(InterpreterTest, ThreadsDoNotChangeBytes) {
  FillInputs(interpreter_.get(), 1);
  ASSERT_TRUE(interpreter_->Invoke().ok());
  for (const int threads : {2, 3, 7}) {
    const std::unique_ptr<Interpreter> other = Create(Classifier().Load(), threads);
    FillInputs(other.get(), 1);
    ASSERT_TRUE(other->Invoke().ok());
    EXPECT_EQ(OutputOf(other.get()), OutputOf(interpreter_.get())) << threads << " threads";
  }
}

TEST(Interpreter, ReusesTheMemoryOfTensorsThatAreGone) {
  ModelBuilder m;
  int32_t x = m.Input({1, 1024});
  for (int i = 0; i < 10; ++i) x = m.Softmax(x);
  m.Output(x);
  EXPECT_EQ(Create(m.Load())->arena_bytes(), 3 * 1024) << "the input and two that take turns";
}

TEST(Interpreter, NeedsOneBlockForAChainOfElementwiseOperators) {
  ModelBuilder m;
  int32_t x = m.Input({1, 1024});
  for (int i = 0; i < 10; ++i) x = m.Relu(x);
  m.Output(x);
  EXPECT_EQ(Create(m.Load())->arena_bytes(), 2 * 1024) << "the input and all others";
}

TEST(Interpreter, RunsAGraphWithoutNodes) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 4});
  m.Output(x);
  const std::unique_ptr<Interpreter> interpreter = Create(m.Load());
  FillInputs(interpreter.get(), 1);
  const Bytes bytes = Copy(*interpreter, x);
  EXPECT_TRUE(interpreter->Invoke().ok());
  EXPECT_EQ(OutputOf(interpreter.get()), bytes);
}

TEST(Interpreter, GivesOutConstants) {
  ModelBuilder m;
  m.Output(m.Constant(DataType::kInt8, {3}, {1, 2, 3}));
  const std::unique_ptr<Interpreter> interpreter = Create(m.Load());
  EXPECT_TRUE(interpreter->Invoke().ok());
  EXPECT_THAT(OutputOf(interpreter.get()), ElementsAre(1, 2, 3));
}

TEST(Interpreter, RunsOnEmptyTensors) {
  ModelBuilder m;
  m.Output(m.Relu(m.Input({0, 4})));
  const std::unique_ptr<Interpreter> interpreter = Create(m.Load());
  EXPECT_TRUE(interpreter->Invoke().ok());
  EXPECT_TRUE(OutputOf(interpreter.get()).empty());
}

TEST(Interpreter, KeepsItsModelAlive) {
  std::unique_ptr<Interpreter> interpreter;
  {
    const std::shared_ptr<const Model> model = Classifier().Load();
    interpreter = Create(model);
  }
  EXPECT_TRUE(interpreter->Invoke().ok());
}

TEST(Interpreter, RefusesNumbersOfThreadsThatMakeNoSense) {
  for (const int threads : {-1, 257}) {
    const auto interpreter = Interpreter::Create(Classifier().Load(), {.threads = threads});
    EXPECT_EQ(interpreter.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(interpreter.status().message(), HasSubstr("must be 0 (default) to 256"));
  }
}

// ---- Taps and traces ----------------------------------------------------------------------------

// What a tap sees must be what the same tensor holds when it is an output of the graph, and thus
// keeps its memory to the end.
TEST(Tap, SeesEachTensorAsItWasWritten) {
  std::vector<int32_t> inner;
  ModelBuilder m = Classifier(&inner);
  const std::unique_ptr<Interpreter> interpreter = Create(m.Load());
  m.graph().outputs = inner;
  const std::unique_ptr<Interpreter> open = Create(m.Load());
  for (Interpreter* each : {interpreter.get(), open.get()}) FillInputs(each, 1);

  std::vector<int32_t> order;
  std::map<int32_t, Bytes> seen;
  interpreter->SetTap([&](int32_t tensor) {
    order.push_back(tensor);
    seen[tensor] = Copy(*interpreter, tensor);
  });
  ASSERT_TRUE(interpreter->Invoke().ok());
  ASSERT_TRUE(open->Invoke().ok());
  EXPECT_EQ(order.size(), inner.size());
  for (const int32_t tensor : inner) {
    EXPECT_EQ(seen[tensor], Copy(*open, tensor)) << "tensor " << tensor;
  }
}

TEST(Tap, IsSilentOnceRemoved) {
  const std::unique_ptr<Interpreter> interpreter = Create(Classifier().Load());
  int calls = 0;
  interpreter->SetTap([&](int32_t) { ++calls; });
  interpreter->SetTap(nullptr);
  ASSERT_TRUE(interpreter->Invoke().ok());
  EXPECT_EQ(calls, 0);
}

TEST(Trace, HasOneEventForEachNodeInOrder) {
  const std::unique_ptr<Interpreter> interpreter = Create(Classifier().Load());
  std::vector<std::string> names;
  int64_t end_ns = 0;
  interpreter->SetTrace([&](const TraceEvent& event) {
    if (event.kind == TraceKind::kWorker) return;
    EXPECT_EQ(event.kind, TraceKind::kNode);
    EXPECT_EQ(event.node, static_cast<int32_t>(names.size()));
    names.push_back(event.name);
    EXPECT_EQ(event.partition, -1);
    EXPECT_EQ(event.host.thread, 0);
    EXPECT_GE(event.host.start_ns, end_ns);
    EXPECT_GE(event.host.duration_ns, 0);
    end_ns = event.host.start_ns + event.host.duration_ns;
  });
  ASSERT_TRUE(interpreter->Invoke().ok());
  std::vector<std::string> want;
  for (const Node& node : interpreter->graph().nodes) want.push_back(node.op_name());
  EXPECT_EQ(names, want);
  interpreter->SetTrace(nullptr);
  ASSERT_TRUE(interpreter->Invoke().ok());
  EXPECT_EQ(names, want) << "silent once removed";
}

TEST(Trace, SaysWhatOtherThreadsDidForANode) {
  ModelBuilder m;
  m.Output(m.Conv2D(m.Input({1, 64, 64, 32}), {.channels = 64, .kernel = 3}));
  auto interpreter = Interpreter::Create(m.Load(), {.threads = 3});
  ASSERT_TRUE(interpreter.ok());
  TraceEvent node;
  std::vector<TraceEvent> workers;
  (*interpreter)->SetTrace([&](const TraceEvent& event) {
    event.kind == TraceKind::kNode ? node = event : workers.emplace_back(event);
  });
  // Another thread gets to work if the scheduler lets it; sooner or later it does.
  for (int run = 0; run < 1000 && workers.empty(); ++run) {
    ASSERT_TRUE((*interpreter)->Invoke().ok());
  }
  ASSERT_FALSE(workers.empty());
  for (const TraceEvent& worker : workers) {
    EXPECT_EQ(worker.kind, TraceKind::kWorker);
    EXPECT_EQ(worker.node, 0);
    EXPECT_GE(worker.host.thread, 1);
    EXPECT_LE(worker.host.thread, 2);
    EXPECT_GE(worker.host.start_ns, node.host.start_ns);
    EXPECT_LE(worker.host.start_ns + worker.host.duration_ns,
              node.host.start_ns + node.host.duration_ns);
  }
}

// ---- Asynchronous invocations -------------------------------------------------------------------

TEST_F(InterpreterTest, AsyncGivesTheBytesOfInvoke) {
  FillInputs(interpreter_.get(), 1);
  ASSERT_TRUE(interpreter_->Invoke().ok());
  const Bytes want = OutputOf(interpreter_.get());
  for (int i = 0; i < 3; ++i) {
    std::span<uint8_t> output = interpreter_->TensorBytes(interpreter_->graph().outputs[0]);
    std::fill(output.begin(), output.end(), uint8_t{0});
    ASSERT_TRUE(interpreter_->InvokeAsync().ok());
    ASSERT_TRUE(interpreter_->Wait().ok());
    EXPECT_EQ(OutputOf(interpreter_.get()), want);
  }
}

TEST_F(InterpreterTest, WaitNeedsAnInvocation) {
  EXPECT_EQ(interpreter_->Wait().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(interpreter_->InvokeAsync().ok());
  ASSERT_TRUE(interpreter_->Wait().ok());
  EXPECT_EQ(interpreter_->Wait().code(), StatusCode::kInvalidArgument);
}

TEST_F(InterpreterTest, OneAsyncInvocationAtATime) {
  ASSERT_TRUE(interpreter_->InvokeAsync().ok());
  EXPECT_EQ(interpreter_->InvokeAsync().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(interpreter_->Wait().ok());
}

TEST_F(InterpreterTest, DestructionWaitsForAnInvocation) {
  ASSERT_TRUE(interpreter_->InvokeAsync().ok());
  interpreter_.reset();
}

// A tap that holds the invocation at its first tensor until the test lets it go on.
class Held : public InterpreterTest {
 protected:
  void SetUp() override {
    interpreter_->SetTap([this](int32_t) {
      if (++taps_ > 1) return;
      reached_.set_value();
      released_.get_future().wait();
    });
  }
  int taps_ = 0;
  std::promise<void> reached_;
  std::promise<void> released_;
};

TEST_F(Held, CancelEndsAnAsyncInvocation) {
  ASSERT_TRUE(interpreter_->InvokeAsync().ok());
  reached_.get_future().wait();
  interpreter_->Cancel();
  released_.set_value();
  const Status status = interpreter_->Wait();
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_EQ(status.message(), "the invocation was cancelled");
  EXPECT_EQ(taps_, 1);
}

TEST_F(Held, CancelEndsAnInvocationOfAnotherThread) {
  auto status = std::async(std::launch::async, [this] { return interpreter_->Invoke().code(); });
  reached_.get_future().wait();
  interpreter_->Cancel();
  released_.set_value();
  EXPECT_EQ(status.get(), StatusCode::kCancelled);
}

TEST_F(Held, InvocationsAfterACancelledOneRun) {
  ASSERT_TRUE(interpreter_->InvokeAsync().ok());
  reached_.get_future().wait();
  interpreter_->Cancel();
  released_.set_value();
  ASSERT_FALSE(interpreter_->Wait().ok());
  EXPECT_TRUE(interpreter_->Invoke().ok());
}

TEST_F(InterpreterTest, CancelWithoutAnInvocationDoesNothing) {
  interpreter_->Cancel();
  EXPECT_TRUE(interpreter_->Invoke().ok());
}

// Whenever Cancel comes, it means the invocation in progress or none, never the next one.
TEST(Cancel, NeverReachesTheNextInvocation) {
  ModelBuilder m;
  m.Output(m.Relu(m.Input({1, 4})));
  const std::unique_ptr<Interpreter> interpreter = Create(m.Load());
  enum Turn { kIdle, kCancel, kStop };
  std::atomic<Turn> turn{kIdle};
  std::thread canceller([&] {
    for (Turn now = turn; now != kStop; now = turn) {
      if (now != kCancel) {
        std::this_thread::yield();
        continue;
      }
      interpreter->Cancel();
      turn = kIdle;
    }
  });
  for (int i = 0; i < 300; ++i) {
    turn = kCancel;
    ASSERT_TRUE(interpreter->InvokeAsync().ok());
    (void)interpreter->Wait().ok();
    while (turn != kIdle) std::this_thread::yield();
    const Status next = interpreter->Invoke();
    if (!next.ok()) {
      ADD_FAILURE() << "round " << i << ": " << next.message();
      break;
    }
  }
  turn = kStop;
  canceller.join();
}

}  // namespace
}  // namespace atollrt
