// SPDX-License-Identifier: Apache-2.0
//
// LSTM, SVDF and the 16-bit functions below them. Bytes of whole models are compared with
// TensorFlow Lite's in tests/tools/golden_test.py.
#include "runtime/kernels/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runtime/base/buffer.h"
#include "runtime/kernels/quantization/fixed_point.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using Int8s = std::vector<int8_t>;
using Int16s = std::vector<int16_t>;

// ---- Functions ----------------------------------------------------------------------------------

TEST(FixedPoint16, LogisticIsNearTheRealOne) {
  for (int32_t a = INT16_MIN; a <= INT16_MAX; ++a) {
    const double want = 1 / (1 + std::exp(-a / 4096.0));
    ASSERT_NEAR(FixedPointLogistic16(static_cast<int16_t>(a)) / 32768.0, want, 6e-4) << a;
  }
}

TEST(FixedPoint16, TanhIsNearTheRealOne) {
  for (const int32_t bits : {0, 3, 4, 6}) {
    for (int32_t a = INT16_MIN; a <= INT16_MAX; ++a) {
      const double want = std::tanh(std::ldexp(a, bits - 15));
      ASSERT_NEAR(FixedPointTanh16(static_cast<int16_t>(a), bits) / 32768.0, want, 2e-3)
          << a << ", " << bits << " integer bits";
    }
  }
}

TEST(FixedPoint16, ZeroIsExact) {
  EXPECT_EQ(FixedPointLogistic16(0), 1 << 14);
  EXPECT_EQ(FixedPointTanh16(0, 3), 0);
}

// ---- LSTM ---------------------------------------------------------------------------------------

class LstmTest : public testing::Test {
 protected:
  LstmTest() {
    params_.batch = 2;
    params_.steps = 6;
    params_.inputs = 5;
    params_.units = 3;
    params_.cell_integer_bits = 4;
    params_.hidden_multiplier = QuantizeMultiplier(1.0 / (1 << 22));
    params_.hidden_zero_point = -4;
    weights_.reserve(2 * kLstmGates);
    for (size_t gate = 0; gate < kLstmGates; ++gate) {
      params_.input.weights[gate] = Weights(params_.units * params_.inputs);
      params_.recurrent.weights[gate] = Weights(params_.units * params_.units);
      for (int32_t u = 0; u < params_.units; ++u) {
        params_.input.channels.push_back(Channel(0.4));
        params_.recurrent.channels.push_back(Channel(0.3));
      }
    }
    x_ = Random(params_.batch * params_.steps * params_.inputs);
    Reset();
  }

  Int8s Random(int32_t count) {
    Int8s values(static_cast<size_t>(count));
    for (int8_t& value : values) value = static_cast<int8_t>(rng_.Int32(-128, 127));
    return values;
  }
  OutputChannel Channel(double multiplier) {
    OutputChannel channel;
    channel.bias = rng_.Int32(-3000, 3000);
    channel.multiplier = QuantizeMultiplier(multiplier);
    return channel;
  }
  const int8_t* Weights(int32_t count) {
    weights_.push_back(Random(count));
    return weights_.back().data();
  }
  void Reset() {
    hidden_.assign(static_cast<size_t>(params_.batch * params_.units), -4);
    cell_.assign(hidden_.size(), 0);
  }
  Int8s Run(const LstmParams& params, const Int8s& x) {
    Int8s y(x.size() / static_cast<size_t>(params.inputs) * static_cast<size_t>(params.units));
    auto scratch = Buffer::Allocate(LstmScratchBytes(params));
    Lstm(params, x.data(), hidden_.data(), reinterpret_cast<uint8_t*>(cell_.data()), y.data(),
         scratch->data());
    return y;
  }

  Rng rng_{5};
  LstmParams params_;
  std::vector<Int8s> weights_;
  Int8s x_, hidden_;
  Int16s cell_;
};

TEST_F(LstmTest, StateCarriesASequenceOverInvocations) {
  params_.batch = 1;
  x_.resize(static_cast<size_t>(params_.steps * params_.inputs));
  Reset();
  const Int8s whole = Run(params_, x_);
  const Int16s cell = cell_;

  Reset();
  LstmParams half = params_;
  half.steps = params_.steps / 2;
  const std::ptrdiff_t middle = half.steps * half.inputs;
  Int8s parts = Run(half, {x_.begin(), x_.begin() + middle});
  const Int8s second = Run(half, {x_.begin() + middle, x_.end()});
  parts.insert(parts.end(), second.begin(), second.end());
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(cell_, cell);

  EXPECT_NE(Run(params_, x_), whole) << "the state of the end is not that of the beginning";
  Reset();
  EXPECT_EQ(Run(params_, x_), whole);
}

TEST_F(LstmTest, LayoutOnlyMovesRows) {
  const Int8s want = Run(params_, x_);
  LstmParams time_major = params_;
  time_major.layout = LstmLayout::kTimeMajor;
  // Row (b, s) to (s, b) and back.
  const auto transposed = [&](const Int8s& rows, int32_t width, bool back) {
    Int8s moved(rows.size());
    for (int32_t b = 0; b < params_.batch; ++b) {
      for (int32_t s = 0; s < params_.steps; ++s) {
        const int32_t from = (b * params_.steps + s) * width;
        const int32_t to = (s * params_.batch + b) * width;
        std::copy_n(rows.begin() + (back ? to : from), width, moved.begin() + (back ? from : to));
      }
    }
    return moved;
  };
  Reset();
  const Int8s got = Run(time_major, transposed(x_, params_.inputs, false));
  EXPECT_EQ(transposed(got, params_.units, true), want);
}

TEST_F(LstmTest, ClipBoundsTheCell) {
  params_.cell_clip = 100;
  Run(params_, x_);
  for (const int16_t c : cell_) EXPECT_LE(std::abs(c), 100);
}

// The same network in floating point, as far as 8 bits allow.
TEST_F(LstmTest, IsNearTheRealOne) {
  const Int8s got = Run(params_, x_);
  const auto dot = [](const int8_t* a, const auto& b, size_t at, int32_t count) {
    double sum = 0;
    for (int32_t i = 0; i < count; ++i)
      sum += a[i] * static_cast<double>(b[at + static_cast<size_t>(i)]);
    return sum;
  };
  for (int32_t b = 0; b < params_.batch; ++b) {
    std::vector<double> h(static_cast<size_t>(params_.units), -4);
    std::vector<double> c(h.size(), 0);
    for (int32_t s = 0; s < params_.steps; ++s) {
      const size_t row = static_cast<size_t>(b * params_.steps + s);
      std::vector<double> next(h.size());
      for (size_t u = 0; u < h.size(); ++u) {
        const auto gate = [&](LstmGate which) {
          const size_t g = static_cast<size_t>(which);
          const double from_input = dot(params_.input.weights[g] + u * 5, x_, row * 5, 5) +
                                    params_.input.channels[g * 3 + u].bias;
          const double from_hidden = dot(params_.recurrent.weights[g] + u * 3, h, 0, 3) +
                                     params_.recurrent.channels[g * 3 + u].bias;
          return std::clamp((0.4 * from_input + 0.3 * from_hidden) / 4096, -8.0, 8.0);
        };
        const auto logistic = [](double a) { return 1 / (1 + std::exp(-a)); };
        c[u] = logistic(gate(LstmGate::kForget)) * c[u] +
               logistic(gate(LstmGate::kInput)) * std::tanh(gate(LstmGate::kCell));
        next[u] = logistic(gate(LstmGate::kOutput)) * std::tanh(c[u]) * 256 - 4;
        EXPECT_NEAR(got[row * 3 + u], std::clamp(next[u], -128.0, 127.0), 2.0);
      }
      for (size_t u = 0; u < h.size(); ++u) h[u] = got[row * 3 + u];
    }
  }
}

// ---- SVDF ---------------------------------------------------------------------------------------

TEST(Svdf, IsAConvolutionOverTimeOfEachFiltersFeature) {
  constexpr int32_t kInputs = 4, kUnits = 3, kRank = 2, kMemory = 5, kSteps = 9;
  constexpr int32_t kFilters = kUnits * kRank;
  Rng rng(3);
  std::vector<int8_t> features(kFilters * kInputs);
  for (int8_t& value : features) value = static_cast<int8_t>(rng.Int32(-128, 127));
  std::vector<int16_t> time(kFilters * kMemory);
  for (int16_t& value : time) value = static_cast<int16_t>(rng.Int32(-300, 300));
  std::vector<int32_t> bias(kUnits);
  for (int32_t& value : bias) value = rng.Int32(-1000, 1000);
  SvdfParams params;
  params.inputs = kInputs;
  params.units = kUnits;
  params.rank = kRank;
  params.memory = kMemory;
  params.features = features.data();
  params.time = reinterpret_cast<const uint8_t*>(time.data());
  params.bias = reinterpret_cast<const uint8_t*>(bias.data());
  params.input_zero_point = 7;
  params.feature_multiplier = {1 << 30, -3};  // 2^-4
  params.output_multiplier = {1 << 30, -13};  // 2^-14
  params.output_zero_point = 9;

  std::vector<std::vector<int32_t>> history;  // of each step: the filters' features
  std::vector<int16_t> state(kFilters * kMemory, 0);
  for (int32_t step = 0; step < kSteps; ++step) {
    std::vector<int8_t> x(kInputs);
    for (int8_t& value : x) value = static_cast<int8_t>(rng.Int32(-128, 127));
    std::vector<int8_t> y(kUnits);
    Svdf(params, x.data(), state.data(), y.data());

    history.emplace_back();
    for (int32_t f = 0; f < kFilters; ++f) {
      int32_t sum = 0;
      for (int32_t i = 0; i < kInputs; ++i) {
        sum += features[static_cast<size_t>(f * kInputs + i)] * (x[static_cast<size_t>(i)] - 7);
      }
      history.back().push_back(
          SaturateToInt16(MultiplyByQuantizedMultiplier(sum, params.feature_multiplier)));
    }
    for (int32_t u = 0; u < kUnits; ++u) {
      int32_t sum = bias[static_cast<size_t>(u)];
      for (int32_t f = u * kRank; f < (u + 1) * kRank; ++f) {
        for (int32_t age = 0; age < kMemory && age <= step; ++age) {
          sum += time[static_cast<size_t>((f + 1) * kMemory - 1 - age)] *
                 history[static_cast<size_t>(step - age)][static_cast<size_t>(f)];
        }
      }
      EXPECT_EQ(y[static_cast<size_t>(u)],
                Clamp(MultiplyByQuantizedMultiplier(sum, params.output_multiplier) + 9, -128, 127))
          << "step " << step << ", unit " << u;
    }
  }
}

}  // namespace
}  // namespace atollrt
