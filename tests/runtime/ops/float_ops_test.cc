// SPDX-License-Identifier: Apache-2.0
//
// Operators of float32 in models of one node, against double precision.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>

#include "runtime/ops/apart_ops.h"
#include "tests/support/run_model.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

int32_t Floats(ModelBuilder& m, Shape shape, const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return m.Constant(DataType::kFloat32, std::move(shape), std::move(bytes));
}

std::vector<float> RandomFloats(Rng& rng, int64_t count, double range) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>((rng.Real() * 2 - 1) * range);
  return values;
}

void ExpectNear(const std::vector<float>& values, const std::vector<double>& exact,
                double tolerance) {
  ASSERT_EQ(values.size(), exact.size());
  for (size_t i = 0; i < exact.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(values[i]), exact[i], tolerance) << i;
  }
}

// ---- Functions of one and two numbers -----------------------------------------------------------

struct Function {
  OpType type;
  double (*exact)(double x);
};

TEST(FloatMaps, AreExactToAFewUnits) {
  constexpr Function kFunctions[] = {
      {OpType::kABS, [](double x) { return std::abs(x); }},
      {OpType::kCEIL, [](double x) { return std::ceil(x); }},
      {OpType::kCOS, [](double x) { return std::cos(x); }},
      {OpType::kELU, [](double x) { return x > 0 ? x : std::expm1(x); }},
      {OpType::kEXP, [](double x) { return std::exp(x); }},
      {OpType::kFLOOR, [](double x) { return std::floor(x); }},
      {OpType::kLOG, [](double x) { return std::log(x); }},
      {OpType::kLOGISTIC, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {OpType::kNEG, [](double x) { return -x; }},
      {OpType::kROUND, [](double x) { return std::nearbyint(x); }},
      {OpType::kSIN, [](double x) { return std::sin(x); }},
      {OpType::kSQUARE, [](double x) { return x * x; }},
      {OpType::kTANH, [](double x) { return std::tanh(x); }},
  };
  Rng rng(TestSeed(1));
  for (const Function& function : kFunctions) {
    std::vector<float> x = RandomFloats(rng, 5000, 8);
    x[0] = 2.5f;  // halves go to even numbers
    x[1] = -0.5f;
    if (function.type == OpType::kLOG) {
      for (float& value : x) value = std::abs(value) + 0.01f;
    }
    ModelBuilder m;
    m.Output(SetType<float>(m, m.Node(function.type, {TypedInput<float>(m, {5, 1000})}, {})));
    const std::vector<float> y = RunModel<float>(m, x);
    ASSERT_EQ(y.size(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = function.exact(static_cast<double>(x[i]));
      ASSERT_NEAR(static_cast<double>(y[i]), exact, 3e-7 * std::abs(exact) + 1e-9)
          << OpTypeName(function.type) << " of " << x[i];
    }
  }
}

std::vector<float> Pairs(OpType type, Shape a_shape, const std::vector<float>& a, Shape b_shape,
                         const std::vector<float>& b) {
  ModelBuilder m;
  const int32_t x = TypedInput<float>(m, std::move(a_shape));
  m.Output(SetType<float>(m, m.Node(type, {x, Floats(m, std::move(b_shape), b)}, {})));
  return RunModel<float>(m, a);
}

TEST(FloatPairs, Broadcast) {
  EXPECT_THAT(Pairs(OpType::kPOW, {2, 2}, {2, 3, 4, 5}, {2}, {2, 0.5f}),
              ElementsAre(4, std::sqrt(3.0f), 16, std::sqrt(5.0f)));
  EXPECT_THAT(Pairs(OpType::kFLOOR_MOD, {4}, {5, -5, 5, -5}, {4}, {3, 3, -3, -3}),
              ElementsAre(2, 1, -1, -2));
}

TEST(FloatPairs, BroadcastFiveDimensions) {
  Rng rng(TestSeed(2));
  const Shape a_shape = {2, 1, 3, 1, 4}, b_shape = {1, 2, 3, 5, 1};
  const std::vector<float> a = RandomFloats(rng, 24, 2), b = RandomFloats(rng, 30, 2);
  for (const OpType type : {OpType::kADD, OpType::kMUL}) {
    ModelBuilder m;
    const int32_t x = TypedInput<float>(m, a_shape);
    m.Output(SetType<float>(m, m.Node(type, {x, Floats(m, b_shape, b)}, {}, ElementwiseOptions{})));
    const std::vector<float> y = RunModel<float>(m, a);
    ASSERT_EQ(y.size(), 240u);
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t i4 = i % 4, i3 = i / 4 % 5, i2 = i / 20 % 3, i1 = i / 60 % 2, i0 = i / 120;
      const float left = a[(i0 * 3 + i2) * 4 + i4], right = b[(i1 * 3 + i2) * 5 + i3];
      EXPECT_EQ(y[i], type == OpType::kADD ? left + right : left * right);
    }
  }
}

// ---- Moves and selections -----------------------------------------------------------------------

TEST(BroadcastTo, RepeatsElementsOfAnyType) {
  ModelBuilder m;
  const int32_t x = TypedInput<int64_t>(m, {2, 1, 3});
  m.Output(
      SetType<int64_t>(m, m.Node(OpType::kBROADCAST_TO, {x, m.Integers({4}, {2, 2, 2, 3})}, {})));
  EXPECT_THAT(RunModel<int64_t>(m, std::vector<int64_t>{1, 2, 3, 4, 5, 6}),
              ElementsAre(1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6, 1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6));
}

TEST(BroadcastTo, RefusesShapesThatDoNotFit) {
  ModelBuilder m;
  const int32_t x = TypedInput<float>(m, {2, 3});
  m.Output(SetType<float>(m, m.Node(OpType::kBROADCAST_TO, {x, m.Integers({2}, {2, 4})}, {})));
  EXPECT_THAT(WhyRefused(m).message(), HasSubstr("[2, 3] does not broadcast to [2, 4]"));
}

TEST(Select, TakesRowsOrBroadcasts) {
  ModelBuilder rows;
  const int32_t by_row = TypedInput<bool>(rows, {2});
  const int32_t a = Floats(rows, {2, 2}, {1, 2, 3, 4}), b = Floats(rows, {2, 2}, {5, 6, 7, 8});
  rows.Output(SetType<float>(rows, rows.Node(OpType::kSELECT, {by_row, a, b}, {})));
  EXPECT_THAT(RunModel<float>(rows, std::vector<uint8_t>{0, 1}), ElementsAre(5, 6, 3, 4));

  ModelBuilder m;
  const int32_t condition = TypedInput<bool>(m, {2, 1});
  const int32_t x = Floats(m, {3}, {1, 2, 3}), y = Floats(m, {}, {9});
  m.Output(SetType<float>(m, m.Node(OpType::kSELECT_V2, {condition, x, y}, {})));
  EXPECT_THAT(RunModel<float>(m, std::vector<uint8_t>{1, 0}), ElementsAre(1, 2, 3, 9, 9, 9));
}

TEST(Reverse, TurnsAxesRound) {
  ModelBuilder m;
  const int32_t x = TypedInput<float>(m, {2, 3, 2});
  m.Output(SetType<float>(m, m.Node(OpType::kREVERSE_V2, {x, m.Integers({1}, {-2})}, {})));
  EXPECT_THAT(RunModel<float>(m, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}),
              ElementsAre(5, 6, 3, 4, 1, 2, 11, 12, 9, 10, 7, 8));
  ModelBuilder both;
  const int32_t y = TypedInput<int8_t>(both, {2, 3});
  both.Output(
      SetType<int8_t>(both, both.Node(OpType::kREVERSE_V2, {y, both.Integers({2}, {0, 1})}, {})));
  EXPECT_THAT(RunModel<int8_t>(both, std::vector<int8_t>{1, 2, 3, 4, 5, 6}),
              ElementsAre(6, 5, 4, 3, 2, 1));
}

TEST(Fill, RepeatsItsValue) {
  ModelBuilder m;
  const int32_t value = TypedInput<float>(m, {});
  m.Output(SetType<float>(m, m.Node(OpType::kFILL, {m.Integers({2}, {2, 3}), value}, {})));
  EXPECT_EQ(OutputShape(m), (Shape{2, 3}));
  EXPECT_EQ(RunModel<float>(m, std::vector<float>{0.5f}), std::vector<float>(6, 0.5f));
}

TEST(Logic, Broadcasts) {
  const auto run = [](OpType type, std::vector<uint8_t> a) {
    ModelBuilder m;
    std::vector<int32_t> operands = {TypedInput<bool>(m, {2, 2})};
    if (type != OpType::kLOGICAL_NOT) {
      operands.push_back(m.Constant(DataType::kBool, {2}, {0, 1}));
    }
    m.Output(SetType<bool>(m, m.Node(type, operands, {})));
    return RunModel<uint8_t>(m, a);
  };
  EXPECT_THAT(run(OpType::kLOGICAL_AND, {0, 0, 1, 1}), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(run(OpType::kLOGICAL_OR, {0, 0, 1, 1}), ElementsAre(0, 1, 1, 1));
  EXPECT_THAT(run(OpType::kLOGICAL_NOT, {0, 1, 1, 0}), ElementsAre(1, 0, 0, 1));
}

TEST(TopK, SortsTheGreatest) {
  ModelBuilder m;
  const int32_t x = TypedInput<float>(m, {2, 5});
  const int32_t values = SetType<float>(m, m.Node(OpType::kTOPK_V2, {x, m.Integers({}, {3})}, {}));
  const int32_t places = SetType<int32_t>(m, m.Activation({2, 3}));
  m.graph().nodes.back().outputs.push_back(places);
  m.Output(values);
  EXPECT_THAT(RunModel<float>(m, std::vector<float>{3, 1, 4, 1, 5, 2, 2, NAN, 0, 2}),
              ElementsAre(5, 4, 3, 2, 2, 2));
  m.graph().outputs = {places};
  EXPECT_THAT(RunModel<int32_t>(m, std::vector<float>{3, 1, 4, 1, 5, 2, 2, NAN, 0, 2}),
              ElementsAre(4, 2, 0, 0, 1, 4));
}

TEST(AddN, AddsAllInputs) {
  ModelBuilder m;
  const int32_t x = TypedInput<float>(m, {3});
  const std::vector<int32_t> operands = {x, Floats(m, {3}, {1, 2, 3}), x};
  m.Output(SetType<float>(m, m.Node(OpType::kADD_N, operands, {})));
  EXPECT_THAT(RunModel<float>(m, std::vector<float>{10, 20, 30}), ElementsAre(21, 42, 63));
}

TEST(FloorMod, OfIntegersHasTheSignOfTheDivisor) {
  ModelBuilder m;
  const int32_t x = TypedInput<int32_t>(m, {5});
  const int32_t divisors = m.Integers({5}, {3, 3, -3, -3, -1});
  m.Output(SetType<int32_t>(m, m.Node(OpType::kFLOOR_MOD, {x, divisors}, {})));
  EXPECT_THAT(RunModel<int32_t>(m, std::vector<int32_t>{5, -5, 5, -5, INT32_MIN}),
              ElementsAre(2, 1, -1, -2, 0));
}

// ---- Reductions ---------------------------------------------------------------------------------

TEST(ReduceProd, MultipliesAlongAxes) {
  ModelBuilder m;
  const int32_t x = TypedInput<float>(m, {2, 3, 2});
  m.Output(SetType<float>(m, m.Node(OpType::kREDUCE_PROD, {x, m.Integers({1}, {-2})}, {},
                                    ReducerOptions{.keep_dims = true})));
  EXPECT_THAT(RunModel<float>(m, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}),
              ElementsAre(15, 48, 693, 960));
  EXPECT_EQ(OutputShape(m), (Shape{2, 1, 2}));
}

TEST(L2Pool, IsTheRootOfTheMeanOfSquares) {
  ModelBuilder m;
  const int32_t x = TypedInput<float>(m, {1, 2, 3, 1});
  m.Output(SetType<float>(m, m.Node(OpType::kL2_POOL_2D, {x}, {},
                                    Pool2DOptions{.padding = Padding::kSame,
                                                  .stride_h = 2,
                                                  .stride_w = 2,
                                                  .filter_h = 2,
                                                  .filter_w = 2})));
  EXPECT_THAT(RunModel<float>(m, std::vector<float>{1, 2, 3, 4, 5, 6}),
              Pointwise(::testing::FloatEq(), {std::sqrt(46.0f / 4), std::sqrt(45.0f / 2)}));
}

// ---- float16 ------------------------------------------------------------------------------------

int32_t Halves(ModelBuilder& m, Shape shape, const std::vector<uint16_t>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(uint16_t));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return m.Constant(DataType::kFloat16, std::move(shape), std::move(bytes));
}

TEST(Float16, HasEveryKindOfNumber) {
  ModelBuilder m;
  const int32_t x = m.Input({8});
  m.tensor(x).type = DataType::kFloat16;
  m.tensor(x).quantization = {};
  m.Output(SetType<float>(m, m.Node(OpType::kDEQUANTIZE, {x}, {})));
  const std::vector<float> y = RunModel<float>(
      m, std::vector<uint16_t>{0x3c00, 0xc000, 0x0001, 0x83ff, 0x7bff, 0x7c00, 0xfc00, 0x7e00});
  ASSERT_EQ(y.size(), 8u);
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], -2.0f);
  EXPECT_EQ(y[2], std::ldexp(1.0f, -24));
  EXPECT_EQ(y[3], -std::ldexp(1023.0f, -24));
  EXPECT_EQ(y[4], 65504.0f);
  EXPECT_EQ(y[5], std::numeric_limits<float>::infinity());
  EXPECT_EQ(y[6], -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(y[7]));
}

// Larger than what is folded of other types.
TEST(Float16, WeightsBecomeFloatsWhenTheModelIsLoaded) {
  constexpr int32_t kInputs = 40, kUnits = 30;
  ModelBuilder m;
  const int32_t x = TypedInput<float>(m, {1, kInputs});
  const std::vector<uint16_t> halves(size_t{kInputs} * kUnits, 0x3800);  // 0.5
  const int32_t weights = SetType<float>(
      m, m.Node(OpType::kDEQUANTIZE, {Halves(m, {kUnits, kInputs}, halves)}, {kUnits, kInputs}));
  const int32_t bias = SetType<float>(
      m, m.Node(OpType::kDEQUANTIZE, {Halves(m, {kUnits}, std::vector<uint16_t>(kUnits, 0x3c00))},
                {kUnits}));
  m.Output(SetType<float>(m, m.Node(OpType::kFULLY_CONNECTED, {x, weights, bias}, {1, kUnits},
                                    FullyConnectedOptions{})));
  const std::shared_ptr<const Model> model = m.Load();
  ASSERT_NE(model, nullptr);
  ASSERT_EQ(model->graph().nodes.size(), 1u);
  EXPECT_EQ(model->graph().nodes[0].type, OpType::kFULLY_CONNECTED);
  EXPECT_EQ(RunModel<float>(m, std::vector<float>(kInputs, 2)),
            std::vector<float>(kUnits, kInputs + 1));
}

// ---- LSTM ---------------------------------------------------------------------------------------

struct Layer {
  int32_t batch = 1, steps = 1, inputs = 1, units = 1;
  bool time_major = false;
  Activation activation = Activation::kTanh;
  float cell_clip = 0;
};

// Gates in the order of the operator's inputs.
struct Weights {
  std::array<std::vector<float>, 4> input, recurrent, bias;
};

Weights RandomWeights(Rng& rng, const Layer& layer) {
  Weights w;
  for (size_t gate = 0; gate < 4; ++gate) {
    w.input[gate] = RandomFloats(rng, int64_t{layer.units} * layer.inputs, 0.7);
    w.recurrent[gate] = RandomFloats(rng, int64_t{layer.units} * layer.units, 0.7);
    w.bias[gate] = RandomFloats(rng, layer.units, 0.5);
  }
  return w;
}

void BuildLstm(ModelBuilder& m, const Layer& layer, const Weights& w) {
  std::vector<int32_t> operands(24, -1);
  const int32_t outer = layer.time_major ? layer.steps : layer.batch;
  const int32_t inner = layer.time_major ? layer.batch : layer.steps;
  operands[0] = TypedInput<float>(m, {outer, inner, layer.inputs});
  for (size_t gate = 0; gate < 4; ++gate) {
    operands[1 + gate] = Floats(m, {layer.units, layer.inputs}, w.input[gate]);
    operands[5 + gate] = Floats(m, {layer.units, layer.units}, w.recurrent[gate]);
    operands[12 + gate] = Floats(m, {layer.units}, w.bias[gate]);
  }
  for (const size_t state : {18, 19}) {
    operands[state] = SetType<float>(m, m.Activation({layer.batch, layer.units}));
    m.tensor(operands[state]).is_variable = true;
  }
  m.Output(SetType<float>(
      m, m.Node(OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM, operands, {outer, inner, layer.units},
                LstmOptions{.activation = layer.activation,
                            .cell_clip = layer.cell_clip,
                            .time_major = layer.time_major})));
}

// In double precision; the state goes on from call to call.
class ExactLstm {
 public:
  ExactLstm(const Layer& layer, const Weights& weights)
      : layer_(layer),
        w_(weights),
        hidden_(static_cast<size_t>(layer.batch * layer.units)),
        cell_(hidden_.size()) {}

  std::vector<double> Run(const std::vector<float>& x) {
    std::vector<double> y(static_cast<size_t>(layer_.batch * layer_.steps * layer_.units));
    for (int32_t t = 0; t < layer_.steps; ++t) {
      for (int32_t b = 0; b < layer_.batch; ++b) {
        const size_t row =
            static_cast<size_t>(layer_.time_major ? t * layer_.batch + b : b * layer_.steps + t);
        Step(&x[row * static_cast<size_t>(layer_.inputs)], static_cast<size_t>(b * layer_.units),
             &y[row * static_cast<size_t>(layer_.units)]);
      }
    }
    return y;
  }

 private:
  double Gate(size_t gate, size_t u, const float* x, size_t state) const {
    double sum = static_cast<double>(w_.bias[gate][u]);
    const size_t inputs = static_cast<size_t>(layer_.inputs);
    const size_t units = static_cast<size_t>(layer_.units);
    for (size_t i = 0; i < inputs; ++i) {
      sum += static_cast<double>(w_.input[gate][u * inputs + i]) * static_cast<double>(x[i]);
    }
    for (size_t i = 0; i < units; ++i) {
      sum += static_cast<double>(w_.recurrent[gate][u * units + i]) * hidden_[state + i];
    }
    return sum;
  }
  double Activate(double x) const {
    switch (layer_.activation) {
      case Activation::kRelu:
        return std::max(x, 0.0);
      case Activation::kRelu6:
        return std::min(std::max(x, 0.0), 6.0);
      case Activation::kNone:
        return x;
      default:
        return std::tanh(x);
    }
  }
  void Step(const float* x, size_t state, double* y) {
    const auto logistic = [](double value) { return 1 / (1 + std::exp(-value)); };
    const size_t units = static_cast<size_t>(layer_.units);
    for (size_t u = 0; u < units; ++u) {
      double& cell = cell_[state + u];
      cell = logistic(Gate(1, u, x, state)) * cell +
             logistic(Gate(0, u, x, state)) * Activate(Gate(2, u, x, state));
      const double clip = static_cast<double>(layer_.cell_clip);
      if (clip > 0) cell = std::min(std::max(cell, -clip), clip);
      y[u] = logistic(Gate(3, u, x, state)) * Activate(cell);
    }
    std::copy_n(y, units, hidden_.begin() + static_cast<std::ptrdiff_t>(state));
  }

  const Layer layer_;
  const Weights& w_;
  std::vector<double> hidden_, cell_;
};

TEST(FloatLstm, EqualsDoublePrecisionAndKeepsItsState) {
  Rng rng(TestSeed(3));
  const Layer kLayers[] = {
      {.batch = 1, .steps = 5, .inputs = 3, .units = 4},
      {.batch = 2, .steps = 7, .inputs = 17, .units = 20, .time_major = true},
      {.batch = 3, .steps = 40, .inputs = 5, .units = 33, .cell_clip = 0.3f},
      {.batch = 1, .steps = 3, .inputs = 8, .units = 8, .activation = Activation::kRelu},
      {.batch = 1, .steps = 3, .inputs = 8, .units = 9, .activation = Activation::kRelu6},
      {.batch = 1, .steps = 2, .inputs = 4, .units = 4, .activation = Activation::kNone},
  };
  for (const Layer& layer : kLayers) {
    const Weights weights = RandomWeights(rng, layer);
    ModelBuilder m;
    BuildLstm(m, layer, weights);
    const std::shared_ptr<const Model> model = m.Load();
    ASSERT_NE(model, nullptr);
    ExactLstm exact(layer, weights);
    auto one = Interpreter::Create(model, {.threads = 1});
    auto three = Interpreter::Create(model, {.threads = 3});
    ASSERT_TRUE(one.ok()) << one.status().message();
    ASSERT_TRUE(three.ok());
    for (int run = 0; run < 2; ++run) {
      const std::vector<float> x =
          RandomFloats(rng, int64_t{layer.batch} * layer.steps * layer.inputs, 1);
      for (Interpreter* interpreter : {one->get(), three->get()}) {
        const std::span<uint8_t> input = interpreter->TensorBytes(m.graph().inputs[0]);
        std::memcpy(input.data(), x.data(), input.size());
        ASSERT_TRUE(interpreter->Invoke().ok());
      }
      const std::vector<float> y = Values<float>(**one, m.graph().outputs[0]);
      ExpectNear(y, exact.Run(x), 2e-6);
      EXPECT_EQ(Values<float>(**three, m.graph().outputs[0]), y);
    }
  }
}

TEST(FloatLstm, RefusesWeightsOfAnotherType) {
  Rng rng(TestSeed(4));
  const Layer layer{.batch = 1, .steps = 2, .inputs = 4, .units = 4};
  ModelBuilder m;
  BuildLstm(m, layer, RandomWeights(rng, layer));
  m.tensor(m.graph().nodes[0].inputs[2]).type = DataType::kInt8;
  EXPECT_THAT(WhyRefused(m).message(), HasSubstr("input 2 has type int8"));
}

TEST(ApartOps, HaveAVersionOrAreMoreOfAnother) {
  for (const CpuOp& op : ApartOps()) EXPECT_GT(NewestKnownVersion(op.type), 0);
}

}  // namespace
}  // namespace atollrt
