// SPDX-License-Identifier: Apache-2.0
//
// Plans made of plans, without memory: which steps there are, what they read and write, and which
// others they stand for.
#include "runtime/plan/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <span>
#include <thread>

#include "tests/support/model_builder.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr CpuFeatures kFeatures = kBaseline;

StepPlan Nodes(const Model& model, Delegate* delegate = nullptr) {
  auto plan = PlanNodes(model.graph(), model.bytes().size(), delegate, {}, {.features = kFeatures});
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  return *std::move(plan);
}

// The nodes of a step and of all that it stands for.
std::vector<int32_t> NodesOf(const Step& step) {
  if (step.members.empty()) return {step.node};
  std::vector<int32_t> nodes;
  for (const Step& member : step.members) {
    const std::vector<int32_t> inner = NodesOf(member);
    nodes.insert(nodes.end(), inner.begin(), inner.end());
  }
  return nodes;
}

class NoExecutor final : public NodeExecutor {
 public:
  Status Invoke(const NodeIo&) override { return {}; }
};

// Takes the nodes that it is told to take, all as one partition.
class FakeDelegate final : public Delegate {
 public:
  explicit FakeDelegate(Partition partition) : partition_(std::move(partition)) {}
  Result<DelegatePlan> Plan(const Graph& graph, const PlanOptions&) override {
    DelegatePlan plan;
    plan.refusals.assign(graph.nodes.size(), "not asked for");
    for (const int32_t node : partition_.nodes) plan.refusals[static_cast<size_t>(node)].clear();
    plan.partitions.push_back(std::move(partition_));
    return plan;
  }

 private:
  Partition partition_;
};

TEST(PlanNodes, HasAStepForEachNode) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 8, 8, 3});
  const int32_t y = m.Conv2D(x, {.channels = 4, .kernel = 3});
  m.Output(m.Relu(y));
  const auto model = m.Load();
  const StepPlan plan = Nodes(*model);
  ASSERT_THAT(plan.steps, SizeIs(2));
  EXPECT_EQ(plan.steps[0].inputs[0], x);
  EXPECT_THAT(plan.steps[0].outputs, ElementsAre(y));
  EXPECT_EQ(plan.steps[1].node, 1);
  EXPECT_THAT(plan.placements, SizeIs(2));
  EXPECT_EQ(plan.placements[0].partition, -1);
}

TEST(PlanNodes, HasAStepForEachPartitionAtItsFirstNode) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 8, 8, 3});
  const int32_t a = m.Relu(x);
  const int32_t b = m.Logistic(a);
  const int32_t c = m.Relu(b);
  m.Output(m.Logistic(c));
  const auto model = m.Load();
  Partition partition;
  partition.nodes = {1, 2};
  partition.inputs = {a};
  partition.outputs = {c};
  partition.executor = std::make_unique<NoExecutor>();
  FakeDelegate delegate(std::move(partition));
  const StepPlan plan = Nodes(*model, &delegate);
  ASSERT_THAT(plan.steps, SizeIs(3));
  EXPECT_EQ(plan.steps[1].partition, 0);
  EXPECT_EQ(plan.steps[1].executor, plan.partitions[0].executor.get());
  EXPECT_THAT(plan.steps[1].outputs, ElementsAre(c));
  EXPECT_EQ(plan.placements[0].reason, "not asked for");
  EXPECT_EQ(plan.placements[1].partition, 0);
}

TEST(PlanNodes, RefusesWeightsOutOfProportion) {
  ModelBuilder m;
  m.Output(m.Conv2D(m.Input({1, 8, 8, 3}), {.channels = 4, .kernel = 3}));
  const auto model = m.Load();
  const auto plan = PlanNodes(model->graph(), 0, nullptr, {}, {.features = kFeatures});
  EXPECT_TRUE(plan.ok()) << "a small model may have copies";
}

TEST(PlanNodes, TellsOfLargeWeightsThatKernelsHavePacked) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 8, 8, 128}), {.channels = 128});
  const int32_t y = m.Conv2D(x, {.channels = 8});
  m.Output(m.Add(m.Conv2D(y, {.channels = 128, .kernel = 5}), m.Constant({1, 8, 8, 128})));
  const auto model = m.Load();
  std::vector<size_t> sizes;
  const auto hear = [&](std::span<const uint8_t> bytes) {
    EXPECT_GE(bytes.data(), model->bytes().data());
    EXPECT_LE(&bytes.back(), &model->bytes().back());
    sizes.push_back(bytes.size());
  };
  const auto plan = PlanNodes(model->graph(), model->bytes().size(), nullptr, {},
                              {.features = kFeatures, .weights_read = hear});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  // Not of few bytes, nor of what an operator reads where it is.
  EXPECT_THAT(sizes, ElementsAre(128 * 128, 128 * 5 * 5 * 8));
}

// Kernels are prepared on all threads of a pool, and the first node that cannot be is the one that
// is named, whichever thread finds out first.
TEST(PlanNodes, PreparesOnAllThreads) {
  ModelBuilder m;
  int32_t x = m.Input({1, 8, 8, 128});
  for (int i = 0; i < 40; ++i) x = m.Conv2D(x, {.channels = 128});
  m.Output(x);
  const auto model = m.Load();
  ThreadPool pool(4);
  std::mutex mutex;
  std::condition_variable changed;
  std::set<std::thread::id> threads;
  const auto hear = [&](std::span<const uint8_t>) {
    std::unique_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    changed.notify_all();
    changed.wait_for(lock, std::chrono::minutes(1), [&] { return threads.size() > 1; });
  };
  const PlanHost host = {.features = kFeatures, .pool = &pool, .weights_read = hear};
  const auto plan = PlanNodes(model->graph(), model->bytes().size(), nullptr, {}, host);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ASSERT_EQ(plan->steps.size(), 40u);
  for (size_t i = 0; i < plan->steps.size(); ++i) {
    EXPECT_EQ(plan->steps[i].node, static_cast<int32_t>(i));
    EXPECT_NE(plan->steps[i].executor->line_runner(), nullptr);
  }
  EXPECT_GT(threads.size(), 1u);

  Graph graph = model->graph();
  for (const size_t node : {31u, 7u, 8u, 39u}) graph.nodes[node].version = 1000;
  for (int turn = 0; turn < 20; ++turn) {
    const auto none = PlanNodes(graph, model->bytes().size(), nullptr, {}, host);
    ASSERT_FALSE(none.ok());
    EXPECT_THAT(none.status().message(), HasSubstr("node 7")) << turn;
  }
}

TEST(InOrder, PutsWritersFirst) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 4});
  const int32_t y = m.Relu(x);
  m.Output(m.Logistic(y));
  const auto model = m.Load();
  StepPlan plan = Nodes(*model);
  std::swap(plan.steps[0], plan.steps[1]);
  const auto ordered = InOrder(model->graph(), std::move(plan));
  ASSERT_TRUE(ordered.ok());
  EXPECT_EQ(ordered->steps[0].node, 0);
  EXPECT_EQ(ordered->steps[1].node, 1);
}

TEST(FoldPads, GivesAConvolutionItsPadding) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 8, 8, 3});
  const int32_t padded = m.Pad(x, {0, 0, 1, 1, 1, 1, 0, 0});
  const int32_t y = m.Conv2D(padded, {.channels = 4, .kernel = 3, .padding = Padding::kValid});
  m.Output(y);
  const auto model = m.Load();
  const auto folded = FoldPads(model->graph(), Nodes(*model), kFeatures);
  ASSERT_TRUE(folded.ok());
  ASSERT_THAT(folded->steps, SizeIs(1));
  EXPECT_THAT(folded->steps[0].inputs, ElementsAre(x));
  EXPECT_THAT(folded->steps[0].outputs, ElementsAre(y));
  EXPECT_THAT(NodesOf(folded->steps[0]), ElementsAre(0, 1));
}

TEST(FoldPads, GivesFiltersOfFloatsTheirPadding) {
  for (const OpType type : {OpType::kCONV_2D, OpType::kDEPTHWISE_CONV_2D}) {
    ModelBuilder m;
    const auto floats = [&m](int32_t tensor) {
      m.tensor(tensor).type = DataType::kFloat32;
      m.tensor(tensor).quantization = {};
      return tensor;
    };
    const int32_t x = floats(m.Input({1, 8, 8, 3}));
    const int32_t padded = floats(m.Pad(x, {0, 0, 1, 1, 1, 1, 0, 0}));
    const int32_t filters = type == OpType::kCONV_2D ? 3 : 1;
    const int32_t weights = m.Constant(DataType::kFloat32, {filters, 3, 3, 3},
                                       std::vector<uint8_t>(static_cast<size_t>(4 * 27 * filters)));
    m.Output(floats(
        m.Node(type, {padded, weights}, {1, 8, 8, 3}, Conv2DOptions{.padding = Padding::kValid})));
    const auto model = m.Load();
    const auto folded = FoldPads(model->graph(), Nodes(*model), kFeatures);
    ASSERT_TRUE(folded.ok());
    ASSERT_THAT(folded->steps, SizeIs(1));
    EXPECT_THAT(folded->steps[0].inputs, ElementsAre(x));
  }
}

TEST(FoldPads, LeavesPaddingThatOthersRead) {
  ModelBuilder m;
  const int32_t padded = m.Pad(m.Input({1, 8, 8, 3}), {0, 0, 1, 1, 1, 1, 0, 0});
  m.Output(m.Conv2D(padded, {.channels = 4, .kernel = 3, .padding = Padding::kValid}));
  m.Output(padded);
  const auto model = m.Load();
  const auto folded = FoldPads(model->graph(), Nodes(*model), kFeatures);
  ASSERT_TRUE(folded.ok());
  EXPECT_THAT(folded->steps, SizeIs(2));
}

// A step that stands for several reads where the last of them stands, and by then somebody may have
// written to a variable. (No operator that there is writes to one of four dimensions.)
int32_t Variable(ModelBuilder* m, Shape shape) {
  const int32_t variable = m->Activation(std::move(shape));
  m->tensor(variable).is_variable = true;
  return variable;
}

TEST(FoldPads, LeavesPaddingOfVariables) {
  for (const bool is_variable : {false, true}) {
    ModelBuilder m;
    const int32_t x = m.Input({1, 8, 8, 3});
    const int32_t state = is_variable ? Variable(&m, {1, 8, 8, 3}) : x;
    const int32_t padded = m.Pad(state, {0, 0, 1, 1, 1, 1, 0, 0});
    m.Output(m.Conv2D(padded, {.channels = 4, .kernel = 3, .padding = Padding::kValid}));
    m.Output(m.DepthwiseConv2D(m.Pad(state, {0, 0, 1, 1, 1, 1, 0, 0}),
                               {.kernel = 3, .padding = Padding::kValid}));
    const auto model = m.Load();
    const auto folded = FoldPads(model->graph(), Nodes(*model), kFeatures);
    ASSERT_TRUE(folded.ok());
    EXPECT_THAT(folded->steps, SizeIs(is_variable ? 4 : 2));
  }
}

TEST(AttachTails, MakesAnAddATail) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 8, 8, 4});
  const int32_t other = m.Relu(x);
  const int32_t y = m.Conv2D(x, {.channels = 4, .kernel = 3});
  const int32_t sum = m.Add(y, other);
  m.Output(sum);
  const auto model = m.Load();
  const auto attached = AttachTails(model->graph(), Nodes(*model), kFeatures);
  ASSERT_TRUE(attached.ok());
  ASSERT_THAT(attached->steps, SizeIs(2));
  EXPECT_THAT(attached->steps[1].inputs, ElementsAre(x, other));
  EXPECT_THAT(attached->steps[1].outputs, ElementsAre(sum));
  EXPECT_NE(attached->steps[1].executor->pair_tail(), nullptr);
}

TEST(ChainLines, ChainsWhatHandsOnLargeTensors) {
  ModelBuilder m;
  int32_t x = m.Input({1, 160, 160, 8});
  for (int i = 0; i < 3; ++i) x = m.Conv2D(x, {.channels = 16, .kernel = 3});
  m.Output(x);
  const auto model = m.Load();
  const StepPlan chained = ChainLines(model->graph(), Nodes(*model));
  size_t nodes = 0;
  for (const Step& step : chained.steps) nodes = std::max(nodes, NodesOf(step).size());
  EXPECT_GE(nodes, 2u);
  EXPECT_LT(chained.steps.size(), 3u);
}

TEST(ChainLines, LeavesWhatReadsVariables) {
  for (const bool is_variable : {false, true}) {
    ModelBuilder m;
    const int32_t x = m.Input({1, 160, 160, 8});
    int32_t y = is_variable ? Variable(&m, {1, 160, 160, 8}) : x;
    for (int i = 0; i < 2; ++i) y = m.Conv2D(y, {.channels = 16, .kernel = 3});
    m.Output(y);
    const auto model = m.Load();
    const StepPlan chained = ChainLines(model->graph(), Nodes(*model));
    EXPECT_THAT(chained.steps, SizeIs(is_variable ? 2 : 1));
  }
}

TEST(PlanSteps, KeepsEveryStepIfAllTensorsAreKept) {
  ModelBuilder m;
  const int32_t padded = m.Pad(m.Input({1, 8, 8, 4}), {0, 0, 1, 1, 1, 1, 0, 0});
  const int32_t y = m.Conv2D(padded, {.channels = 4, .kernel = 3, .padding = Padding::kValid});
  m.Output(m.Add(y, y));
  const auto model = m.Load();
  const auto kept =
      PlanSteps(model->graph(), model->bytes().size(), nullptr, {}, {.features = kFeatures}, true);
  ASSERT_TRUE(kept.ok());
  EXPECT_THAT(kept->steps, SizeIs(3));
  EXPECT_TRUE(kept->keeps_all_tensors);
}

}  // namespace
}  // namespace atollrt
