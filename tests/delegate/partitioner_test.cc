// SPDX-License-Identifier: Apache-2.0
#include "delegate/partitioner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/support/model_builder.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr PartitionLimits kRoomy{.memory_bytes = 8 << 20};

NodeSets Partitioned(const Graph& graph) { return PartitionGraph(graph, kRoomy, {}); }

// ---- Models with a known answer -----------------------------------------------------------------

TEST(Partitioner, KeepsAChainTogether) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 8, 8, 3}), {.channels = 8, .kernel = 3, .stride = 2});
  m.Output(m.FullyConnected(m.MaxPool(m.DepthwiseConv2D(x, {.kernel = 3}), {}), 10));
  const NodeSets sets = Partitioned(m.Load()->graph());
  EXPECT_THAT(sets.sets, ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(sets.reasons, Each(IsEmpty()));
}

TEST(Partitioner, MakesSetsOfLimitedSizeOfMovesToo) {
  ModelBuilder m;
  m.Output(m.Conv2D(m.Relu(m.Conv2D(m.Input({1, 8, 8, 4}), {.channels = 4})), {.channels = 4}));
  const auto model = m.Load();
  const auto sets_of = [&](int32_t max_nodes) {
    return PartitionGraph(model->graph(), {.memory_bytes = 8 << 20, .max_nodes = max_nodes}, {})
        .sets;
  };
  EXPECT_THAT(sets_of(1), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
  EXPECT_THAT(sets_of(2), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  EXPECT_THAT(sets_of(3), ElementsAre(ElementsAre(0, 1, 2)));
}

TEST(Partitioner, KeepsResidualAddWithItsConvs) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 8, 8, 4}), {.channels = 4});
  const int32_t wide = m.Conv2D(x, {.channels = 24});
  const int32_t narrow = m.Conv2D(m.DepthwiseConv2D(wide, {.kernel = 3}), {.channels = 4});
  m.Output(m.Add(x, narrow));
  EXPECT_THAT(Partitioned(m.Load()->graph()).sets, ElementsAre(ElementsAre(0, 1, 2, 3, 4)));
}

TEST(Partitioner, LeavesAnOperatorAtTheEndToTheCpu) {
  ModelBuilder m;
  m.Output(m.LogSoftmax(m.FullyConnected(m.Input({1, 16}), 4)));
  const NodeSets sets = Partitioned(m.Load()->graph());
  EXPECT_THAT(sets.sets, ElementsAre(ElementsAre(0)));
  EXPECT_THAT(sets.reasons, ElementsAre("", "the operator must have a device instruction"));
}

TEST(Partitioner, SplitsAroundAnIsland) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 8, 8, 4}), {.channels = 4});
  m.Output(m.Conv2D(m.Custom("Island", x), {.channels = 4}));
  EXPECT_THAT(Partitioned(m.Load()->graph()).sets, ElementsAre(ElementsAre(0), ElementsAre(2)));
}

// conv0 -> island -> conv2 -> add3 and conv0 -> add3: all three on the device would wait for the
// island that waits for them.
TEST(Partitioner, DoesNotCloseACycleThroughAnIsland) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 8, 8, 4}), {.channels = 4});
  const int32_t y = m.Conv2D(m.Custom("Island", x), {.channels = 4});
  m.Output(m.Add(x, y));
  EXPECT_THAT(Partitioned(m.Load()->graph()).sets, ElementsAre(ElementsAre(0), ElementsAre(2, 3)));
}

TEST(Partitioner, JoinsBranchesOnEitherSideOfAnIsland) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 8, 8, 4});
  const int32_t a = m.Conv2D(x, {.channels = 4});
  const int32_t island = m.Custom("Island", x);
  m.Output(m.Add(a, m.Conv2D(island, {.channels = 4})));
  EXPECT_THAT(Partitioned(m.Load()->graph()).sets, ElementsAre(ElementsAre(0, 2, 3)));
}

TEST(Partitioner, TakesSetsThatOnlyMoveDataWhereNoneComputes) {
  ModelBuilder m;
  const int32_t x = m.Reshape(m.Input({1, 4, 4, 2}), {1, 2, 8, 2});
  const int32_t island = m.Custom("Island", m.Concatenation({x, x}, 3));
  m.Output(m.Relu(m.Pad(island, {0, 0, 1, 1, 1, 1, 0, 0})));
  EXPECT_THAT(Partitioned(m.Load()->graph()).sets,
              ElementsAre(ElementsAre(0, 1), ElementsAre(3, 4)));
}

TEST(Partitioner, LeavesSetsThatOnlyMoveDataToTheCpuBesideThoseThatCompute) {
  ModelBuilder m;
  const int32_t x = m.Pad(m.Input({1, 4, 4, 2}), {0, 0, 1, 1, 1, 1, 0, 0});
  m.Output(m.Conv2D(m.Custom("Island", m.Relu(x)), {.channels = 2}));
  const NodeSets sets = Partitioned(m.Load()->graph());
  EXPECT_THAT(sets.sets, ElementsAre(ElementsAre(3)));
  const std::string reason =
      "its partition must compute something, as others of the model do: moving the data would "
      "cost more than it saves";
  EXPECT_THAT(sets.reasons,
              ElementsAre(reason, reason, "the operator must have a device instruction", ""));
}

TEST(Partitioner, TakesMovesThatStandBesideArithmetic) {
  ModelBuilder m;
  const int32_t x = m.Pad(m.Input({1, 4, 4, 2}), {0, 0, 1, 1, 1, 1, 0, 0});
  m.Output(m.Reshape(m.Conv2D(x, {.channels = 2}), {1, 72}));
  EXPECT_THAT(Partitioned(m.Load()->graph()).sets, ElementsAre(ElementsAre(0, 1, 2)));
}

TEST(Partitioner, HonoursTheCallersRefusals) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 8, 8, 4}), {.channels = 4});
  m.Output(m.Conv2D(m.Conv2D(x, {.channels = 4}), {.channels = 4}));
  const NodeSets sets = PartitionGraph(m.Load()->graph(), kRoomy, {"", "not today", ""});
  EXPECT_THAT(sets.sets, ElementsAre(ElementsAre(0), ElementsAre(2)));
  EXPECT_THAT(sets.reasons, ElementsAre("", "not today", ""));
}

TEST(Partitioner, GivesNothingForAGraphWithoutNodes) {
  ModelBuilder m;
  m.Output(m.Input({1, 4}));
  const NodeSets sets = Partitioned(m.Load()->graph());
  EXPECT_THAT(sets.sets, IsEmpty());
  EXPECT_THAT(sets.reasons, IsEmpty());
}

// Without the order of the variable, all three layers would be one set, which would have to run
// both before the assignment and after the second reading.
TEST(Partitioner, KeepsTheOrderOfVariables) {
  ModelBuilder m;
  const auto handle = [&] {
    const int32_t tensor = m.Node(OpType::kVAR_HANDLE, {}, {}, VarHandleOptions{});
    m.tensor(tensor).type = DataType::kResource;
    return tensor;
  };
  const auto assign = [&](int32_t value) {
    const int32_t variable = handle();
    Node node;
    node.type = OpType::kASSIGN_VARIABLE;
    node.inputs = {variable, value};
    m.graph().nodes.push_back(node);
  };
  const int32_t x = m.FullyConnected(m.Input({1, 4}), 4);                   // 0
  assign(x);                                                                // 1, 2
  const int32_t read = m.Node(OpType::kREAD_VARIABLE, {handle()}, {1, 4});  // 3, 4
  m.Output(m.Add(m.FullyConnected(x, 4), read));                            // 5, 6
  EXPECT_THAT(Partitioned(m.Load()->graph()).sets, ElementsAre(ElementsAre(0, 5), ElementsAre(6)));
}

// ---- Each rule of constraints.inc ---------------------------------------------------------------

// The reason for which the last node is refused.
std::string Reason(ModelBuilder& m, int32_t output, const PartitionLimits& limits = kRoomy) {
  m.Output(output);
  return PartitionGraph(m.Load()->graph(), limits, {}).reasons.back();
}

TEST(Constraints, NewVersionsStayOnTheCpu) {
  ModelBuilder m;
  const int32_t y = m.Conv2D(m.Input({1, 4, 4, 2}), {.channels = 2});
  m.graph().nodes[0].version = 1000;
  EXPECT_EQ(Reason(m, y), "the operator's version must be one that Atoll knows");
}

TEST(Constraints, ActivationsMustBeBytes) {
  ModelBuilder m;
  const int32_t y = m.Add(m.Input({1, 4}), m.Input({1, 4}));
  for (int32_t i = 0; i < 3; ++i) m.tensor(i).type = DataType::kInt16;
  EXPECT_EQ(Reason(m, y), "inputs and outputs must be int8 or uint8");
}

TEST(Constraints, TypesMustNotChange) {
  ModelBuilder m;
  const int32_t y = m.Reshape(m.Input({1, 4}), {4});
  m.tensor(y).type = DataType::kUInt8;
  m.tensor(y).quantization.zero_points = {125};
  EXPECT_EQ(Reason(m, y), "inputs and outputs must have the same type");
}

TEST(Constraints, EmptyTensorsStayOnTheCpu) {
  ModelBuilder m;
  EXPECT_EQ(Reason(m, m.Relu(m.Input({0, 4}))),
            "inputs and outputs must have at least one element");
}

TEST(Constraints, WeightsMustBeConstant) {
  ModelBuilder m;
  const int32_t y = m.FullyConnected(m.Input({1, 4}), 3);
  m.graph().nodes[0].inputs[1] = m.Input({3, 4});
  EXPECT_EQ(Reason(m, y), "weights and bias must be constants of the model");
}

TEST(Constraints, OneOperandMayBeConstant) {
  ModelBuilder m;
  EXPECT_EQ(Reason(m, m.Add(m.Constant({4, 2}), m.Input({1, 4, 4, 2}))), "");
}

TEST(Constraints, StateMustBelongToOneOperator) {
  const std::string reason = "its state must belong to no other operator";
  ModelBuilder shared;
  shared.Output(shared.Lstm(shared.Input({1, 3, 4}), {.units = 2}));
  const int32_t second = shared.Lstm(shared.Input({1, 3, 4}), {.units = 2});
  std::vector<Node>& nodes = shared.graph().nodes;
  nodes[1].inputs[18] = nodes[0].inputs[18];
  EXPECT_EQ(Reason(shared, second), reason);
  ModelBuilder watched;
  const int32_t x = watched.Input({1, 3, 4});
  const int32_t y = watched.Lstm(x, {.units = 2});
  watched.Output(watched.Relu(watched.graph().nodes[0].inputs[18]));
  watched.Output(y);
  EXPECT_EQ(Partitioned(watched.Load()->graph()).reasons[0], reason);
}

TEST(Constraints, WeightsOfRecurrentLayersMustBeConstant) {
  ModelBuilder m;
  const int32_t y = m.Lstm(m.Input({1, 3, 4}), {.units = 2});
  m.graph().nodes[0].inputs[5] = m.Input({2, 2});
  EXPECT_EQ(Reason(m, y), "weights and bias must be constants of the model");
}

TEST(Constraints, ConstantsAloneStayOnTheCpu) {
  ModelBuilder m;
  m.Input({1, 4});
  EXPECT_EQ(Reason(m, m.Add(m.Constant({1, 4}), m.Constant({1, 4}))),
            "at least one activation must not be a constant of the model");
}

TEST(Constraints, ConstantOperandsMustBeBytes) {
  ModelBuilder m;
  const int32_t constant = m.Constant({1, 4});
  const int32_t y = m.Add(m.Input({1, 4}), constant);
  m.tensor(constant).type = DataType::kUInt8;
  m.tensor(constant).quantization.zero_points = {3};
  EXPECT_EQ(Reason(m, y), "inputs and outputs must have the same type");
}

TEST(Constraints, OperandsThatRepeatInManyLoopsStayOnTheCpu) {
  const auto reason = [](OpType type, const Shape& a, const Shape& b) {
    ModelBuilder m;
    return Reason(m, m.Node(type, {m.Input(a), m.Input(b)}, {}));
  };
  for (const OpType type : {OpType::kMAXIMUM, OpType::kMINIMUM, OpType::kSQUARED_DIFFERENCE}) {
    EXPECT_EQ(reason(type, {2, 1, 2, 1}, {1, 2, 1, 2}), "");
    EXPECT_EQ(reason(type, {4, 2, 1, 2, 1}, {4, 1, 2, 1, 2}),
              "operands must broadcast in at most 4 nested loops");
  }
}

TEST(Constraints, RootsOfNegativeElementsStayOnTheCpu) {
  for (const bool negative : {false, true}) {
    ModelBuilder m;
    const int32_t x = m.Input({1, 4});
    const int32_t y = m.Node(OpType::kRSQRT, {x}, {1, 4});
    m.tensor(x).quantization.zero_points = {negative ? -127 : -128};
    EXPECT_EQ(
        Reason(m, y),
        negative ? "the input's zero point must be -128, so that no element is negative" : "");
  }
}

TEST(Constraints, ReductionsOfManyLoopsStayOnTheCpu) {
  ModelBuilder six;
  EXPECT_EQ(Reason(six, six.Mean(six.Input({2, 2, 2, 2, 2, 2}), {0, 2, 4})),
            "kept and reduced axes must take turns at most 4 times, axes of size 1 aside");
  ModelBuilder five;
  EXPECT_EQ(Reason(five, five.Mean(five.Input({2, 2, 2, 2, 1, 2}), {0, 2, 4})), "");
}

TEST(Constraints, TranspositionsOfSixDimensionsNeedFewCopies) {
  ModelBuilder m;
  EXPECT_EQ(Reason(m, m.Node(OpType::kTRANSPOSE,
                             {m.Input({2, 3, 4, 5, 6, 7}), m.Integers({6}, {5, 3, 1, 4, 0, 2})},
                             {7, 5, 3, 6, 2, 4})),
            "");
}

TEST(Constraints, MovesOfManyCopiesStayOnTheCpu) {
  const std::string reason = "data must move in at most 64 copies of 5 nested loops for each";
  for (const int32_t size : {64, 65}) {
    ModelBuilder backwards;
    EXPECT_EQ(Reason(backwards,
                     backwards.Node(OpType::kSTRIDED_SLICE,
                                    {backwards.Input({size + 1}), backwards.Integers({1}, {size}),
                                     backwards.Integers({1}, {0}), backwards.Integers({1}, {-1})},
                                    {}, StridedSliceOptions{})),
              size > 64 ? reason : "");
    // Each border is read backwards.
    ModelBuilder mirror;
    EXPECT_EQ(Reason(mirror, mirror.Node(OpType::kMIRROR_PAD,
                                         {mirror.Input({100}), mirror.Integers({1, 2}, {size, 64})},
                                         {}, MirrorPadOptions{})),
              size > 64 ? reason : "");
  }
}

TEST(Constraints, EachPartOfASplitMustHaveElements) {
  ModelBuilder m;
  const int32_t y =
      m.Node(OpType::kSPLIT_V, {m.Input({1, 4}), m.Integers({2}, {4, 0}), m.Integers({}, {1})}, {},
             SplitOptions{.num_splits = 2});
  m.graph().nodes.back().outputs.push_back(m.Activation({}));
  EXPECT_EQ(Reason(m, y), "inputs and outputs must have at least one element");
}

TEST(Constraints, PartsMayBeConstant) {
  ModelBuilder pack;
  EXPECT_EQ(Reason(pack, pack.Node(OpType::kPACK, {pack.Input({1, 4}), pack.Constant({1, 4})}, {},
                                   AxisOptions{.count = 2})),
            "");
  ModelBuilder m;
  EXPECT_EQ(Reason(m, m.Concatenation({m.Constant({1, 4}), m.Input({1, 4})}, 1)), "");
}

TEST(Constraints, ConcatenationsWithActivationStayOnTheCpu) {
  ModelBuilder m;
  const int32_t y = m.Concatenation({m.Input({1, 4}), m.Input({1, 4})}, 1);
  std::get<AxisOptions>(m.graph().nodes[0].options).activation = Activation::kRelu;
  EXPECT_EQ(Reason(m, y), "parts must be concatenated without fused activation");
}

TEST(Constraints, LongSumsStayOnTheCpu) {
  ModelBuilder m;
  EXPECT_EQ(Reason(m, m.FullyConnected(m.Input({1, 65537}), 1)),
            "a filter or window must have at most 65536 elements per output");
}

TEST(Constraints, NodesLargerThanTheMemoryStayOnTheCpu) {
  ModelBuilder m;
  EXPECT_EQ(
      Reason(m, m.FullyConnected(m.Input({8, 16384}), 2), {.memory_bytes = 64 * 1024}),
      "its inputs and outputs, unless they are images, and depthwise weights must fit into on-chip "
      "memory: 135184 bytes at once (131072 for its input [8, 16384], 4096 for tables and "
      "alignment, 16 for its output [8, 2]); the device has 65536. A smaller input, or a device "
      "with that much memory, would put it there");
}

// ---- Boundaries ---------------------------------------------------------------------------------

// Of nodes 0 and 1.
SetBoundary BoundaryOfBoth(ModelBuilder& m) {
  const std::shared_ptr<const Model> model = m.Load();
  return BoundaryFinder(model->graph()).Find({0, 1});
}

TEST(Boundary, LeavesOutConstantsAndInnerTensors) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 8, 8, 4});
  const int32_t y = m.Conv2D(m.Conv2D(x, {.channels = 4}), {.channels = 4});
  m.Output(y);
  const SetBoundary boundary = BoundaryOfBoth(m);
  EXPECT_THAT(boundary.inputs, ElementsAre(x));
  EXPECT_THAT(boundary.outputs, ElementsAre(y));
}

TEST(Boundary, NamesEachInputOnceInOrderOfUse) {
  ModelBuilder m;
  const int32_t a = m.Input({1, 4});
  const int32_t b = m.Input({1, 4});
  const int32_t sum = m.Add(b, a);
  m.Output(m.Add(sum, b));
  EXPECT_THAT(BoundaryOfBoth(m).inputs, ElementsAre(b, a));
}

TEST(Boundary, IncludesInnerTensorsThatTheGraphGivesOut) {
  ModelBuilder m;
  const int32_t inner = m.Conv2D(m.Input({1, 8, 8, 4}), {.channels = 4});
  const int32_t last = m.Conv2D(inner, {.channels = 4});
  m.Output(last);
  m.Output(inner);
  EXPECT_THAT(BoundaryOfBoth(m).outputs, ElementsAre(inner, last));
}

TEST(Boundary, IncludesInnerTensorsThatTheCpuReads) {
  ModelBuilder m;
  const int32_t inner = m.Conv2D(m.Input({1, 8, 8, 4}), {.channels = 4});
  const int32_t last = m.Conv2D(inner, {.channels = 4});
  m.Output(last);
  m.Output(m.LogSoftmax(inner));
  EXPECT_THAT(BoundaryOfBoth(m).outputs, ElementsAre(inner, last));
}

TEST(Boundary, LeavesOutResultsThatNobodyReads) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 8, 8, 4});
  const int32_t y = m.Conv2D(x, {.channels = 4});
  m.Conv2D(y, {.channels = 4});
  m.Output(y);
  EXPECT_THAT(BoundaryOfBoth(m).outputs, ElementsAre(y));
}

// A list without elements has no bytes in the file, but it is no activation either.
TEST(Boundary, LeavesOutAnEmptyListOfAxes) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 2, 2, 2});
  m.Output(m.Mean(m.Relu(x), {}));
  EXPECT_THAT(BoundaryOfBoth(m).inputs, ElementsAre(x));
}

TEST(Boundary, NamesTheStateOfRecurrentLayers) {
  ModelBuilder m;
  const int32_t x = m.Input({1, 3, 4});
  const int32_t first = m.Lstm(x, {.units = 2});
  const int32_t y = m.Lstm(first, {.units = 5});
  m.Output(y);
  const std::shared_ptr<const Model> model = m.Load();
  const Graph& graph = model->graph();
  const std::vector<int32_t>& a = graph.nodes[0].inputs;
  const std::vector<int32_t>& b = graph.nodes[1].inputs;
  const SetBoundary boundary = BoundaryFinder(graph).Find({0, 1});
  EXPECT_THAT(boundary.inputs, ElementsAre(x, a[18], a[19], b[18], b[19]));
  EXPECT_THAT(boundary.outputs, ElementsAre(y));
  EXPECT_THAT(boundary.state, ElementsAre(a[18], a[19], b[18], b[19]));
}

// ---- Properties of random graphs ----------------------------------------------------------------

// Convolutions, sums, moves and islands, each reading tensors picked among all before it, mostly
// among the latest, so that there are long branches and skips.
std::shared_ptr<const Model> RandomBranches(Rng& rng) {
  ModelBuilder m(rng.Next());
  std::vector<int32_t> tensors{m.Input({1, 2, 2, 2}), m.Input({1, 2, 2, 2})};
  const auto pick = [&] {
    const int64_t count = static_cast<int64_t>(tensors.size());
    const int64_t span = rng.OneIn(3) ? count : std::min<int64_t>(count, 4);
    return tensors[static_cast<size_t>(count - rng.Int(1, span))];
  };
  const int64_t nodes = rng.Int(1, 40);
  const int64_t island_once_in = rng.Int(2, 8);
  for (int64_t i = 0; i < nodes; ++i) {
    const int32_t x = pick();
    if (rng.OneIn(island_once_in)) {
      tensors.push_back(m.Node(OpType::kCUSTOM, {x, pick()}, {1, 2, 2, 2}));
      m.graph().nodes.back().custom_name = "Island";
    } else if (rng.OneIn(2)) {
      tensors.push_back(m.Add(x, pick()));
    } else if (rng.OneIn(4)) {
      tensors.push_back(m.Relu(x));
    } else {
      tensors.push_back(m.Conv2D(x, {.channels = 2}));
    }
  }
  m.Output(tensors.back());
  return m.Load();
}

// The graph as edges between nodes, and sets as a colour per node: nodes outside all sets have
// one each.
struct Coloured {
  std::vector<std::set<int32_t>> successors;
  std::vector<int32_t> colour;

  Coloured(const Graph& graph, const std::vector<std::vector<int32_t>>& sets)
      : successors(graph.nodes.size()), colour(graph.nodes.size()) {
    std::iota(colour.begin(), colour.end(), 0);
    for (const std::vector<int32_t>& set : sets) {
      for (const int32_t node : set) colour[static_cast<size_t>(node)] = set.front();
    }
    std::vector<int32_t> writer(graph.tensors.size(), -1);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const int32_t tensor : graph.nodes[i].inputs) {
        const int32_t from = writer[static_cast<size_t>(tensor)];
        if (from >= 0) successors[static_cast<size_t>(from)].insert(static_cast<int32_t>(i));
      }
      for (const int32_t tensor : graph.nodes[i].outputs) {
        writer[static_cast<size_t>(tensor)] = static_cast<int32_t>(i);
      }
    }
  }

  std::set<std::pair<int32_t, int32_t>> EdgesBetweenColours() const {
    std::set<std::pair<int32_t, int32_t>> edges;
    for (size_t i = 0; i < successors.size(); ++i) {
      for (const int32_t next : successors[i]) {
        const int32_t to = colour[static_cast<size_t>(next)];
        if (colour[i] != to) edges.insert({colour[i], to});
      }
    }
    return edges;
  }

  // Removes colours that nothing points at, again and again; what is left lies on cycles.
  bool IsAcyclic() const {
    auto edges = EdgesBetweenColours();
    for (bool removed = true; removed;) {
      std::set<int32_t> targets;
      for (const auto& [from, to] : edges) targets.insert(to);
      removed = std::erase_if(edges,
                              [&](const auto& edge) { return targets.count(edge.first) == 0; }) > 0;
    }
    return edges.empty();
  }

  Coloured Joined(int32_t a, int32_t b) const {
    Coloured joined = *this;
    std::replace(joined.colour.begin(), joined.colour.end(), b, a);
    return joined;
  }
};

bool IsConnected(const Coloured& graph, const std::vector<int32_t>& set) {
  std::set<int32_t> reached{set.front()};
  for (size_t before = 0; before != reached.size();) {
    before = reached.size();
    for (const int32_t from : set) {
      for (const int32_t to : graph.successors[static_cast<size_t>(from)]) {
        if (!std::binary_search(set.begin(), set.end(), to)) continue;
        if (reached.count(from) != 0 || reached.count(to) != 0) reached.insert({from, to});
      }
    }
  }
  return reached.size() == set.size();
}

class RandomGraphs : public testing::Test {
 protected:
  // Calls `check` for many graphs and their sets.
  template <typename Check>
  void ForEach(Check check) {
    Rng seeds(TestSeed(7));
    for (int i = 0; i < 1000 && !HasFailure(); ++i) {
      const uint64_t seed = seeds.Next();
      SCOPED_TRACE("graph of seed " + std::to_string(seed));
      Rng rng(seed);
      const std::shared_ptr<const Model> model = RandomBranches(rng);
      const NodeSets sets = Partitioned(model->graph());
      check(model->graph(), sets);
    }
  }
};

TEST_F(RandomGraphs, GiveReasonsExactlyForNodesOutsideSets) {
  ForEach([](const Graph& graph, const NodeSets& sets) {
    std::vector<int> memberships(graph.nodes.size());
    for (const std::vector<int32_t>& set : sets.sets) {
      EXPECT_TRUE(std::is_sorted(set.begin(), set.end()));
      for (const int32_t node : set) ++memberships[static_cast<size_t>(node)];
    }
    ASSERT_EQ(sets.reasons.size(), graph.nodes.size());
    for (size_t i = 0; i < memberships.size(); ++i) {
      EXPECT_EQ(memberships[i], sets.reasons[i].empty() ? 1 : 0) << "node " << i;
    }
  });
}

TEST_F(RandomGraphs, GiveConnectedSets) {
  ForEach([](const Graph& graph, const NodeSets& sets) {
    const Coloured coloured(graph, sets.sets);
    for (const std::vector<int32_t>& set : sets.sets) EXPECT_TRUE(IsConnected(coloured, set));
  });
}

TEST_F(RandomGraphs, StayAcyclicWhenEachSetIsOneStep) {
  ForEach([](const Graph& graph, const NodeSets& sets) {
    EXPECT_TRUE(Coloured(graph, sets.sets).IsAcyclic());
  });
}

TEST_F(RandomGraphs, GiveSetsOfWhichNoTwoNeighboursCouldBeOne) {
  ForEach([](const Graph& graph, const NodeSets& sets) {
    const Coloured coloured(graph, sets.sets);
    std::set<int32_t> in_sets;
    for (const std::vector<int32_t>& set : sets.sets) in_sets.insert(set.front());
    for (const auto& [from, to] : coloured.EdgesBetweenColours()) {
      if (in_sets.count(from) == 0 || in_sets.count(to) == 0) continue;
      EXPECT_FALSE(coloured.Joined(from, to).IsAcyclic()) << from << " and " << to;
    }
  });
}

}  // namespace
}  // namespace atollrt
