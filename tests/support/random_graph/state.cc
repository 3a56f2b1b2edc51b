// SPDX-License-Identifier: Apache-2.0
//
// Recipes of operators that remember something from one invocation to the next.
#include <cmath>

#include "tests/support/random_graph/graph_maker.h"

namespace atollrt {
namespace {

NumberFormat PowerOfTwo(GraphMaker& g, DataType type, int32_t low, int32_t high) {
  return g.Fixed(type, std::ldexp(1.0f, g.choose().Int(low, high)), 0);
}

// Nodes without outputs, and those whose shapes no rule knows, are written as they are.
int32_t Handle(OwnedGraph* m, const std::string& name) {
  const int32_t handle = m->AddTensor({DataType::kResource, {}}, {});
  m->AddNode(OpType::kVAR_HANDLE, {}, {handle},
             VarHandleOptions{.container = "", .shared_name = name});
  return handle;
}

void Assign(OwnedGraph* m, const NamedVariable& variable, int32_t value) {
  const int32_t handle = Handle(m, variable.name);
  m->AddNode(OpType::kASSIGN_VARIABLE, {handle, value}, {});
}

void Read(OwnedGraph* m, const NamedVariable& variable) {
  const int32_t handle = Handle(m, variable.name);
  const int32_t value = m->AddTensor(variable.format, variable.shape);
  m->AddNode(OpType::kREAD_VARIABLE, {handle}, {value});
}

const NamedVariable& NewVariable(GraphMaker& g, Shape shape, NumberFormat format) {
  std::vector<NamedVariable>& variables = g.variables();
  variables.push_back(
      {"v" + std::to_string(variables.size()), std::move(shape), std::move(format)});
  return variables.back();
}

}  // namespace

// ---- Variables ----------------------------------------------------------------------------------

bool MakeAssignVariable(GraphMaker& g, OpType) {
  if (!g.variables().empty() && g.choose().OneIn(2)) {
    const NamedVariable variable = g.choose().Pick(g.variables());
    const int32_t like = g.AsType(g.Any(), variable.format.type);  // only its type matters
    Assign(&g.model(), variable, g.Partner(like, variable.shape));
    return true;
  }
  const int32_t x = g.Any();
  Assign(&g.model(), NewVariable(g, g.shape(x), g.Like(x)), x);
  return true;
}

bool MakeReadVariable(GraphMaker& g, OpType type) {
  if (g.variables().empty() || g.choose().OneIn(3)) MakeAssignVariable(g, type);
  Read(&g.model(), g.choose().Pick(g.variables()));
  return true;
}

// Another graph gives a variable its first value; this one reads it.
bool MakeCallOnce(GraphMaker& g, OpType type) {
  if (g.initialization()) return false;
  const int32_t like = g.Any();
  const NamedVariable& variable = NewVariable(g, g.shape(like), g.Like(like));
  OwnedGraph* const m = &g.initialization().emplace();
  std::vector<uint8_t> bytes(static_cast<size_t>(g.graph().tensors[like].byte_size()));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(37 * i);
  int32_t value = m->AddConstant(variable.format, variable.shape, std::move(bytes));
  if (IsByteType(variable.format.type) && g.choose().OneIn(2)) {
    const int32_t positive = m->AddTensor(variable.format, variable.shape);
    m->AddNode(OpType::kRELU, {value}, {positive});
    value = positive;
  }
  Assign(m, variable, value);
  g.model().AddNode(type, {}, {}, CallOnceOptions{.subgraph = 1});
  Read(&g.model(), variable);
  return true;
}

// ---- Variable tensors ---------------------------------------------------------------------------

bool MakeLstm(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(3, 3);
  const Shape shape = g.shape(x);
  constexpr int32_t kInputsMax = 512;
  if (shape[2] > kInputsMax) return false;
  const bool time_major = g.choose().OneIn(2);
  const int32_t units = g.choose().Int(1, 12);
  const int32_t batch = shape[time_major ? 1 : 0];
  const NumberFormat hidden = g.Around(DataType::kInt8, 1.0 / 128);
  const NumberFormat cell = PowerOfTwo(g, DataType::kInt16, -15, -9);
  // Gates add up products at a scale of 2^-12; weights bring sums of random bytes near it.
  const auto weights = [&](int32_t columns, double scale_of_inputs) {
    const double natural = 0.02 / scale_of_inputs / std::sqrt(columns);
    NumberFormat format = g.Around(DataType::kInt8, natural);
    format.quantization.zero_points = {0};
    return g.Constant(format, {units, columns});
  };
  std::vector<int32_t> inputs(24, -1);
  inputs[0] = x;
  for (size_t gate = 0; gate < 4; ++gate) {
    inputs[1 + gate] = weights(shape[2], g.scale(x));
    inputs[5 + gate] = weights(units, static_cast<double>(hidden.quantization.scales[0]));
    int32_t bias = g.Bias(DataType::kInt8, units);
    if (bias < 0) bias = g.Int32s({units}, std::vector<int32_t>(units));
    inputs[12 + gate] = bias;
  }
  inputs[18] = g.VariableTensor(hidden, {batch, units});
  inputs[19] = g.VariableTensor(cell, {batch, units});
  std::vector<int32_t> intermediates;
  for (int i = 0; i < 5; ++i) {
    // The fifth holds the format of the hidden value; the others are for layer normalization.
    intermediates.push_back(g.model().AddTensor(hidden, {}));
  }
  const float clip = g.choose().OneIn(3) ? 0.5f : 0.0f;
  g.Node(type, std::move(inputs), hidden, LstmOptions{.cell_clip = clip, .time_major = time_major});
  g.model().graph.nodes.back().intermediates = std::move(intermediates);
  return true;
}

bool MakeSvdf(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(2, 2);
  const Shape shape = g.shape(x);
  constexpr int32_t kInputsMax = 512;
  if (shape[1] > kInputsMax) return false;
  const int32_t rank = g.choose().Int(1, 3);
  const int32_t units = g.choose().Int(1, 10);
  const int32_t memory = g.choose().Int(1, 6);
  const int32_t filters = units * rank;
  const NumberFormat features = PowerOfTwo(g, DataType::kInt8, -9, -5);
  const NumberFormat time = PowerOfTwo(g, DataType::kInt16, -15, -10);
  const double feature_scale = static_cast<double>(features.quantization.scales[0]);
  const double time_scale = static_cast<double>(time.quantization.scales[0]);
  const double state_scale = g.scale(x) * feature_scale * std::sqrt(shape[1]);
  const NumberFormat state = g.Fixed(DataType::kInt16, static_cast<float>(state_scale), 0);
  const double natural = state_scale * time_scale * std::sqrt(rank * memory) * 0x1p20;
  const int32_t feature_weights = g.Constant(features, {filters, shape[1]});
  const int32_t time_weights = g.Constant(time, {filters, memory});
  const int32_t bias = g.Bias(DataType::kInt8, units);
  const int32_t memory_tensor = g.VariableTensor(state, {shape[0], filters * memory});
  g.Node(type, {x, feature_weights, time_weights, bias, memory_tensor},
         g.Around(DataType::kInt8, natural), SvdfOptions{.rank = rank});
  return true;
}

}  // namespace atollrt
