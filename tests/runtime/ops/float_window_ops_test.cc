// SPDX-License-Identifier: Apache-2.0
//
// Windows, rows and reductions of float32 at every level that this machine can run, against double
// precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "runtime/kernels/cpu_features.h"
#include "tests/support/run_model.h"

namespace atollrt {
namespace {

std::vector<float> RandomNumbers(Rng& rng, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = static_cast<float>(rng.Real() * 4 - 2);
  return values;
}

int32_t Numbers(ModelBuilder& m, Shape shape, const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return m.Constant(DataType::kFloat32, std::move(shape), std::move(bytes));
}

// The model runs at each level of the CPU with the same bytes for one and for three threads, and
// results within `tolerance` of `exact`.
void ExpectAtEveryLevel(const ModelBuilder& m, const std::vector<float>& x,
                        const std::vector<double>& exact, double tolerance) {
  const CpuFeatures features = DetectCpuFeatures().ok() ? *DetectCpuFeatures() : kBaseline;
  const std::shared_ptr<const Model> model = m.Load();
  ASSERT_NE(model, nullptr);
  for (const CpuLevel& level : CpuLevels()) {
    if (!Supports(features, level.features)) continue;
    ASSERT_EQ(setenv("ATOLL_CPU", level.name, 1), 0);
    std::vector<float> first;
    for (const int threads : {1, 3}) {
      auto interpreter = Interpreter::Create(model, {.threads = threads});
      ASSERT_TRUE(interpreter.ok()) << interpreter.status().message();
      const std::span<uint8_t> input = (*interpreter)->TensorBytes(m.graph().inputs[0]);
      ASSERT_EQ(input.size(), x.size() * sizeof(float));
      std::memcpy(input.data(), x.data(), input.size());
      ASSERT_TRUE((*interpreter)->Invoke().ok());
      const std::vector<float> y = Values<float>(**interpreter, m.graph().outputs[0]);
      ASSERT_EQ(y.size(), exact.size());
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_NEAR(static_cast<double>(y[i]), exact[i], tolerance) << level.name << " " << i;
      }
      if (threads == 1) first = y;
      EXPECT_EQ(y, first) << level.name;
    }
    ASSERT_EQ(unsetenv("ATOLL_CPU"), 0);
  }
}

struct Axis {
  int32_t input, kernel, stride, dilation;
  bool same;

  int32_t reach() const { return (kernel - 1) * dilation + 1; }
  int32_t output() const {
    return same ? (input + stride - 1) / stride : (input - reach() + stride) / stride;
  }
  int32_t before() const {
    return same ? std::max(0, (output() - 1) * stride + reach() - input) / 2 : 0;
  }
};

// visit(iy, ky, ix, kx) for the cells of the window at (y, x) that are inside of the image.
template <typename Visit>
void ForEachCell(const Axis& h, const Axis& w, int32_t y, int32_t x, Visit visit) {
  for (int32_t ky = 0; ky < h.kernel; ++ky) {
    const int32_t iy = y * h.stride - h.before() + ky * h.dilation;
    if (iy < 0 || iy >= h.input) continue;
    for (int32_t kx = 0; kx < w.kernel; ++kx) {
      const int32_t ix = x * w.stride - w.before() + kx * w.dilation;
      if (ix >= 0 && ix < w.input) visit(iy, ky, ix, kx);
    }
  }
}

Axis RandomAxis(Rng& rng, bool same, int32_t dilation) {
  Axis axis{.input = static_cast<int32_t>(rng.Int(1, 20)),
            .kernel = static_cast<int32_t>(rng.Int(1, 5)),
            .stride = static_cast<int32_t>(rng.Int(1, 3)),
            .dilation = dilation,
            .same = same};
  if (!same) axis.input = std::max(axis.input, axis.reach());
  return axis;
}

TEST(FloatDepthwise, EqualsDoublePrecision) {
  Rng rng(TestSeed(1));
  for (int round = 0; round < TestCount(80); ++round) {
    const bool same = rng.Int(0, 1) == 1;
    const Axis h = RandomAxis(rng, same, static_cast<int32_t>(rng.Int(1, 3)));
    const Axis w = RandomAxis(rng, same, static_cast<int32_t>(rng.Int(1, 3)));
    const int32_t batch = static_cast<int32_t>(rng.Int(1, 2));
    const int32_t channels = static_cast<int32_t>(rng.Int(1, 50));
    const int32_t multiplier = rng.Int(0, 2) == 0 ? static_cast<int32_t>(rng.Int(2, 19)) : 1;
    const int32_t outputs = channels * multiplier;
    const bool relu6 = rng.Int(0, 1) == 1;
    const bool has_bias = rng.Int(0, 3) > 0;
    const std::vector<float> x = RandomNumbers(rng, int64_t{batch} * h.input * w.input * channels);
    const std::vector<float> weights = RandomNumbers(rng, int64_t{h.kernel} * w.kernel * outputs);
    const std::vector<float> bias = RandomNumbers(rng, outputs);
    ModelBuilder m;
    std::vector<int32_t> operands = {TypedInput<float>(m, {batch, h.input, w.input, channels}),
                                     Numbers(m, {1, h.kernel, w.kernel, outputs}, weights)};
    if (has_bias) operands.push_back(Numbers(m, {outputs}, bias));
    m.Output(SetType<float>(
        m, m.Node(OpType::kDEPTHWISE_CONV_2D, operands, {batch, h.output(), w.output(), outputs},
                  Conv2DOptions{.padding = same ? Padding::kSame : Padding::kValid,
                                .stride_h = h.stride,
                                .stride_w = w.stride,
                                .dilation_h = h.dilation,
                                .dilation_w = w.dilation,
                                .activation = relu6 ? Activation::kRelu6 : Activation::kNone})));
    std::vector<double> exact;
    for (int32_t b = 0; b < batch; ++b) {
      for (int32_t y = 0; y < h.output(); ++y) {
        for (int32_t column = 0; column < w.output(); ++column) {
          for (int32_t c = 0; c < outputs; ++c) {
            double sum = has_bias ? static_cast<double>(bias[static_cast<size_t>(c)]) : 0;
            ForEachCell(h, w, y, column, [&](int32_t iy, int32_t ky, int32_t ix, int32_t kx) {
              const int32_t cell = ((b * h.input + iy) * w.input + ix) * channels + c / multiplier;
              const int32_t tap = (ky * w.kernel + kx) * outputs + c;
              sum += static_cast<double>(x[static_cast<size_t>(cell)]) *
                     static_cast<double>(weights[static_cast<size_t>(tap)]);
            });
            exact.push_back(relu6 ? std::min(std::max(sum, 0.0), 6.0) : sum);
          }
        }
      }
    }
    ExpectAtEveryLevel(m, x, exact, 1e-5);
  }
}

// A PAD becomes the padding of its filter; not so if its output is the model's, too.
TEST(FloatDepthwise, TakesThePaddingOfAPad) {
  Rng rng(TestSeed(6));
  constexpr int32_t kChannels = 21;
  for (int round = 0; round < TestCount(40); ++round) {
    const int32_t height = static_cast<int32_t>(rng.Int(1, 12));
    const int32_t width = static_cast<int32_t>(rng.Int(1, 12));
    std::vector<int32_t> paddings(8);
    for (size_t i = 2; i < 6; ++i) paddings[i] = static_cast<int32_t>(rng.Int(1, 4));
    const Conv2DOptions options{.padding = rng.Int(0, 1) == 0 ? Padding::kSame : Padding::kValid,
                                .stride_h = static_cast<int32_t>(rng.Int(1, 2)),
                                .stride_w = static_cast<int32_t>(rng.Int(1, 2))};
    const std::vector<float> weights = RandomNumbers(rng, 9 * kChannels);
    const std::vector<float> x = RandomNumbers(rng, int64_t{height} * width * kChannels);
    std::vector<float> results[2];
    for (const bool is_folded : {false, true}) {
      ModelBuilder m;
      const int32_t input = TypedInput<float>(m, {1, height, width, kChannels});
      const int32_t padded =
          SetType<float>(m, m.Node(OpType::kPAD, {input, m.Integers({4, 2}, paddings)}, {}));
      m.Output(SetType<float>(
          m, m.Node(OpType::kDEPTHWISE_CONV_2D, {padded, Numbers(m, {1, 3, 3, kChannels}, weights)},
                    {1, 1, 1, kChannels}, options)));
      if (!is_folded) m.Output(padded);
      results[is_folded] = RunModel<float>(m, x);
    }
    ASSERT_FALSE(results[0].empty());
    EXPECT_EQ(results[0], results[1]);
  }
}

TEST(FloatPools, EqualDoublePrecision) {
  Rng rng(TestSeed(2));
  for (int round = 0; round < TestCount(60); ++round) {
    const bool same = rng.Int(0, 1) == 1;
    const Axis h = RandomAxis(rng, same, 1), w = RandomAxis(rng, same, 1);
    const int32_t channels = static_cast<int32_t>(rng.Int(1, 50));
    const bool is_max = rng.Int(0, 1) == 1;
    const bool relu = rng.Int(0, 1) == 1;
    const std::vector<float> x = RandomNumbers(rng, int64_t{2} * h.input * w.input * channels);
    ModelBuilder m;
    m.Output(SetType<float>(
        m, m.Node(is_max ? OpType::kMAX_POOL_2D : OpType::kAVERAGE_POOL_2D,
                  {TypedInput<float>(m, {2, h.input, w.input, channels})}, {},
                  Pool2DOptions{.padding = same ? Padding::kSame : Padding::kValid,
                                .stride_h = h.stride,
                                .stride_w = w.stride,
                                .filter_h = h.kernel,
                                .filter_w = w.kernel,
                                .activation = relu ? Activation::kRelu : Activation::kNone})));
    std::vector<double> exact;
    for (int32_t b = 0; b < 2; ++b) {
      for (int32_t y = 0; y < h.output(); ++y) {
        for (int32_t column = 0; column < w.output(); ++column) {
          for (int32_t c = 0; c < channels; ++c) {
            double sum = 0, greatest = -1e9;
            int32_t cells = 0;
            ForEachCell(h, w, y, column, [&](int32_t iy, int32_t, int32_t ix, int32_t) {
              const int32_t cell = ((b * h.input + iy) * w.input + ix) * channels + c;
              sum += static_cast<double>(x[static_cast<size_t>(cell)]);
              greatest = std::max(greatest, static_cast<double>(x[static_cast<size_t>(cell)]));
              ++cells;
            });
            const double result = is_max ? greatest : sum / cells;
            exact.push_back(relu ? std::max(result, 0.0) : result);
          }
        }
      }
    }
    ExpectAtEveryLevel(m, x, exact, is_max ? 0 : 1e-6);
  }
}

TEST(FloatSoftmax, EqualsDoublePrecision) {
  Rng rng(TestSeed(3));
  for (const int32_t depth : {1, 2, 4, 7, 16, 21, 100, 300, 1001}) {
    const int32_t rows = depth < 100 ? 500 : 3;
    const float beta = depth % 2 == 0 ? 1 : 0.5f;
    const std::vector<float> x = RandomNumbers(rng, int64_t{rows} * depth);
    ModelBuilder m;
    m.Output(SetType<float>(m, m.Node(OpType::kSOFTMAX, {TypedInput<float>(m, {rows, depth})}, {},
                                      SoftmaxOptions{.beta = beta})));
    std::vector<double> exact;
    for (size_t first = 0; first < x.size(); first += static_cast<size_t>(depth)) {
      double sum = 0;
      const auto e = [&](size_t i) {
        return std::exp(static_cast<double>(x[first + i]) * static_cast<double>(beta));
      };
      for (size_t i = 0; i < static_cast<size_t>(depth); ++i) sum += e(i);
      for (size_t i = 0; i < static_cast<size_t>(depth); ++i) exact.push_back(e(i) / sum);
    }
    ExpectAtEveryLevel(m, x, exact, 3e-7);
  }
}

TEST(FloatNormalization, EqualsDoublePrecision) {
  Rng rng(TestSeed(4));
  for (const int32_t depth : {1, 3, 8, 30, 128, 131}) {
    const std::vector<float> x = RandomNumbers(rng, int64_t{50} * depth);
    ModelBuilder m;
    m.Output(
        SetType<float>(m, m.Node(OpType::kL2_NORMALIZATION, {TypedInput<float>(m, {5, 10, depth})},
                                 {}, ElementwiseOptions{})));
    std::vector<double> exact;
    for (size_t first = 0; first < x.size(); first += static_cast<size_t>(depth)) {
      double sum = 0;
      for (size_t i = first; i < first + static_cast<size_t>(depth); ++i) {
        sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      }
      for (size_t i = first; i < first + static_cast<size_t>(depth); ++i) {
        exact.push_back(static_cast<double>(x[i]) / std::max(std::sqrt(sum), 1e-6));
      }
    }
    ExpectAtEveryLevel(m, x, exact, 3e-7);
  }
}

TEST(FloatReductions, EqualDoublePrecision) {
  Rng rng(TestSeed(5));
  const Shape shape = {2, 5, 7, 33};
  const std::vector<float> x = RandomNumbers(rng, ElementCount(shape));
  for (const std::vector<int32_t>& axes :
       std::vector<std::vector<int32_t>>{{1, 2}, {3}, {0}, {-1, 1}, {0, 1, 2, 3}, {2}}) {
    for (const OpType type :
         {OpType::kMEAN, OpType::kSUM, OpType::kREDUCE_MAX, OpType::kREDUCE_MIN}) {
      ModelBuilder m;
      const int32_t list = m.Integers({static_cast<int32_t>(axes.size())}, axes);
      m.Output(SetType<float>(
          m, m.Node(type, {TypedInput<float>(m, shape), list}, {}, ReducerOptions{})));
      std::vector<bool> reduced(4);
      for (const int32_t axis : axes)
        reduced[static_cast<size_t>(axis < 0 ? axis + 4 : axis)] = true;
      int32_t outputs = 1;
      for (size_t i = 0; i < 4; ++i) outputs *= reduced[i] ? 1 : shape[i];
      const bool sums = type == OpType::kMEAN || type == OpType::kSUM;
      const double start = sums ? 0 : type == OpType::kREDUCE_MAX ? -1e9 : 1e9;
      std::vector<double> exact(static_cast<size_t>(outputs), start);
      for (int32_t i = 0; i < static_cast<int32_t>(x.size()); ++i) {
        const int32_t at[] = {i / (5 * 7 * 33), i / (7 * 33) % 5, i / 33 % 7, i % 33};
        int32_t o = 0;
        for (size_t k = 0; k < 4; ++k) o = reduced[k] ? o : o * shape[k] + at[k];
        double& folded = exact[static_cast<size_t>(o)];
        const double value = static_cast<double>(x[static_cast<size_t>(i)]);
        folded = sums                          ? folded + value
                 : type == OpType::kREDUCE_MAX ? std::max(folded, value)
                                               : std::min(folded, value);
      }
      const double count = static_cast<double>(x.size()) / outputs;
      for (double& value : exact) value = type == OpType::kMEAN ? value / count : value;
      ExpectAtEveryLevel(m, x, exact, type == OpType::kSUM ? 1e-3 : 2e-6);
    }
  }
}

}  // namespace
}  // namespace atollrt
