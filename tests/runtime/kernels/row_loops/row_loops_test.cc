// SPDX-License-Identifier: Apache-2.0
//
// Every loop of every level that this machine has against the plain form of what loops.h says.
#include "runtime/kernels/row_loops/row_loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/kernels/quantization/quantization.h"
#include "tests/runtime/kernels/random_conv.h"
#include "tests/support/guarded_buffer.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

constexpr Element kElements[] = {Element::kInt8,  Element::kUInt8,  Element::kInt16,
                                 Element::kInt32, Element::kUInt32, Element::kInt64,
                                 Element::kBool,  Element::kFloat32};

// function(T()) with the C++ type; bools are bytes.
template <typename Function>
auto WithType(Element element, Function function) {
  switch (element) {
    case Element::kInt8:
      return function(int8_t());
    case Element::kUInt8:
    case Element::kBool:
      return function(uint8_t());
    case Element::kInt16:
      return function(int16_t());
    case Element::kInt32:
      return function(int32_t());
    case Element::kUInt32:
      return function(uint32_t());
    case Element::kInt64:
      return function(int64_t());
    case Element::kFloat32:
      break;
  }
  return function(float());
}

size_t SizeOf(Element element) {
  return WithType(element, [](auto value) { return sizeof(value); });
}

template <typename T>
T At(const uint8_t* elements, size_t i) {
  return LoadLittleEndian<T>(elements + i * sizeof(T));
}

// Ordinary numbers, and those at which something changes.
float RandomFloat(Rng* rng) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f,
                           -0.0f,
                           0.5f,
                           -0.5f,
                           1.5f,
                           -2.5f,
                           0.49999997f,
                           -0.49999997f,
                           127.5f,
                           -128.5f,
                           255.5f,
                           32767.5f,
                           2147483520.0f,
                           -2147483648.0f,
                           2147483648.0f,
                           4294967040.0f,
                           4294967296.0f,
                           9223371487098961920.0f,
                           -9223372036854775808.0f,
                           9223372036854775808.0f,
                           1e-40f,
                           3e38f,
                           -3e38f,
                           kInfinity,
                           -kInfinity,
                           std::numeric_limits<float>::quiet_NaN()};
  if (rng->OneIn(3)) return special[rng->Int(0, static_cast<int64_t>(std::size(special)) - 1)];
  const float scale = rng->Pick<float>({1.0f, 100.0f, 1e5f, 1e10f});
  const float x = static_cast<float>(rng->Real() - 0.5) * scale;
  return rng->OneIn(3) ? std::round(x) + 0.5f : x;
}

// Elements of a type, with its limits now and then, and a guard page on either side.
class RandomElements : public GuardedBuffer {
 public:
  RandomElements(Rng* rng, Element element, size_t count)
      : GuardedBuffer(count * SizeOf(element), rng->Pick({kEnd, kStart})) {
    WithType(element, [&](auto type) {
      using T = decltype(type);
      for (size_t i = 0; i < count; ++i) {
        T value = 0;
        if constexpr (std::is_same_v<T, float>) {
          value = RandomFloat(rng);
        } else {
          using Limits = std::numeric_limits<T>;
          value = rng->OneIn(4) ? rng->Pick<T>({Limits::min(), Limits::max(), 0, 1})
                                : static_cast<T>(rng->Next());
          if (element == Element::kBool && rng->OneIn(2)) value = 0;
        }
        StoreLittleEndian<T>(data() + i * sizeof(T), value);
      }
    });
  }
};

size_t RandomCount(Rng* rng) { return static_cast<size_t>(rng->Int(0, rng->OneIn(3) ? 700 : 70)); }

// run(loops, x, output) for all levels: it writes `expected` and nothing else, also onto x if
// elements of both are of the same size.
template <typename Run>
void ExpectBytes(Rng* rng, RandomElements& x, const std::vector<uint8_t>& expected, Run run) {
  for (const CpuFeatures level : AvailableCpuLevels()) {
    for (const bool in_place : {false, true}) {
      if (in_place && x.size() != expected.size()) continue;
      GuardedBuffer output(expected.size(), rng->Pick({GuardedBuffer::kEnd, GuardedBuffer::kStart}),
                           static_cast<size_t>(rng->Int(0, 63)));
      if (in_place) std::copy_n(x.data(), x.size(), output.data());
      run(ChooseRowLoops(level), in_place ? output.data() : x.data(), output.data());
      ASSERT_EQ(std::vector<uint8_t>(output.data(), output.data() + output.size()), expected)
          << CpuFeaturesName(level) << (in_place ? ", in place" : "");
      ASSERT_TRUE(output.Intact()) << CpuFeaturesName(level);
    }
  }
}

template <typename T>
void Append(std::vector<uint8_t>* bytes, T value) {
  bytes->resize(bytes->size() + sizeof(T));
  StoreLittleEndian<T>(bytes->data() + bytes->size() - sizeof(T), value);
}

// ---- Tables -------------------------------------------------------------------------------------

TEST(RowLoops, LookUpEveryByte) {
  Rng rng(TestSeed(1));
  for (int round = 0; round < TestCount(300); ++round) {
    uint8_t table[256];
    const uint8_t flip = rng.Pick<uint8_t>({0, 0x80, 0x7f});
    const bool is_flip = rng.OneIn(3);
    for (int i = 0; i < 256; ++i) {
      table[i] = is_flip ? static_cast<uint8_t>(i ^ flip) : static_cast<uint8_t>(rng.Next());
    }
    if (is_flip && rng.OneIn(2)) table[rng.Int(0, 255)] ^= 1;
    const size_t count = rng.OneIn(2) ? RandomCount(&rng) : static_cast<size_t>(rng.Int(500, 3000));
    RandomElements x(&rng, Element::kUInt8, count);
    std::vector<uint8_t> expected;
    for (size_t i = 0; i < count; ++i) expected.push_back(table[x.data()[i]]);
    ExpectBytes(&rng, x, expected, [&](const RowLoops& loops, const uint8_t* from_x, uint8_t* y) {
      loops.apply_table(table, from_x, y, static_cast<int64_t>(count));
    });
  }
}

// ---- Pairs --------------------------------------------------------------------------------------

template <typename T>
T PlainPair(NumberOp op, T a, T b, const ValueClamp<T>& clamp) {
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;
  const Wide x = static_cast<Wide>(a);
  const Wide y = static_cast<Wide>(b);
  switch (op) {
    case NumberOp::kAdd:
      return clamp(static_cast<T>(x + y));
    case NumberOp::kSubtract:
      return clamp(static_cast<T>(x - y));
    case NumberOp::kMultiply:
      return clamp(static_cast<T>(x * y));
    case NumberOp::kDivide:
      return clamp(static_cast<T>(x / y));
    case NumberOp::kMaximum:
      return a > b ? a : b;
    case NumberOp::kMinimum:
      return a < b ? a : b;
    case NumberOp::kSquaredDifference:
      return static_cast<T>(static_cast<T>(x - y) * static_cast<Wide>(static_cast<T>(x - y)));
    default:
      return static_cast<T>(a >= 0 ? x : x * y);
  }
}

template <typename T>
uint8_t PlainComparison(NumberOp op, T a, T b) {
  switch (op) {
    case NumberOp::kEqual:
      return a == b;
    case NumberOp::kNotEqual:
      return a != b;
    case NumberOp::kLess:
      return a < b;
    case NumberOp::kLessEqual:
      return a <= b;
    case NumberOp::kGreater:
      return a > b;
    default:
      return a >= b;
  }
}

// Not-a-number has many codes.
void MakeNansEqual(std::vector<uint8_t>* floats) {
  for (size_t i = 0; i < floats->size(); i += 4) {
    if (std::isnan(LoadLittleEndian<float>(floats->data() + i))) {
      StoreLittleEndian<float>(floats->data() + i, std::numeric_limits<float>::quiet_NaN());
    }
  }
}

template <typename T>
void ExpectPairs(Rng* rng, NumberOp op, Element element) {
  const size_t count = RandomCount(rng);
  RandomElements x1(rng, element, count);
  RandomElements x2(rng, element, count);
  ValueClamp<T> clamp;
  if (rng->OneIn(2)) clamp = {0, 6};
  const NumberBounds bounds{.float_min = static_cast<float>(clamp.min),
                            .float_max = static_cast<float>(clamp.max),
                            .min = std::is_integral_v<T> ? static_cast<int64_t>(clamp.min) : 0,
                            .max = std::is_integral_v<T> ? static_cast<int64_t>(clamp.max) : 0};
  std::vector<uint8_t> expected;
  for (size_t i = 0; i < count; ++i) {
    const T a = At<T>(x1.data(), i);
    const T b = At<T>(x2.data(), i);
    if (op >= NumberOp::kEqual) {
      expected.push_back(PlainComparison(op, a, b));
    } else {
      Append<T>(&expected, PlainPair(op, a, b, clamp));
    }
  }
  const bool are_floats = element == Element::kFloat32 && op < NumberOp::kEqual;
  if (are_floats) MakeNansEqual(&expected);
  for (const CpuFeatures level : AvailableCpuLevels()) {
    for (RandomElements* place : {static_cast<RandomElements*>(nullptr), &x1, &x2}) {
      if (place != nullptr && place->size() != expected.size()) continue;
      std::vector<uint8_t> y(expected.size() + 1, 0xcc);
      if (place != nullptr) std::copy_n(place->data(), place->size(), y.data());
      const auto operand = [&](RandomElements& x) { return &x == place ? y.data() : x.data(); };
      ChooseRowLoops(level).number_pair(op, element)(bounds, operand(x1), operand(x2), y.data(),
                                                     static_cast<int64_t>(count));
      ASSERT_EQ(y.back(), 0xcc);
      y.pop_back();
      if (are_floats) MakeNansEqual(&y);
      ASSERT_EQ(y, expected) << CpuFeaturesName(level) << ", operator " << static_cast<int>(op)
                             << ", element type " << static_cast<int>(element)
                             << (place == nullptr ? "" : ", in place");
    }
  }
}

TEST(RowLoops, CombinePairsOfNumbers) {
  Rng rng(TestSeed(2));
  const RowLoops& baseline = ChooseRowLoops(kBaseline);
  int computed = 0;
  for (int round = 0; round < TestCount(20); ++round) {
    for (int op = 0; op <= static_cast<int>(NumberOp::kGreaterEqual); ++op) {
      for (const Element element : kElements) {
        if (baseline.number_pair(static_cast<NumberOp>(op), element) == nullptr) continue;
        ++computed;
        WithType(element, [&](auto type) {
          ExpectPairs<decltype(type)>(&rng, static_cast<NumberOp>(op), element);
        });
      }
    }
  }
  // 3 * 3 + 1 + 2 * 4 + 3 + 1 + 6 * 5 pairs of operator and type.
  EXPECT_EQ(computed, 52 * TestCount(20));
}

TEST(RowLoops, MapFloats) {
  Rng rng(TestSeed(3));
  for (int round = 0; round < TestCount(200); ++round) {
    const size_t count = RandomCount(&rng);
    RandomElements x(&rng, Element::kFloat32, count);
    const float a = -1.5f;
    const float b = 6;
    const auto expect = [&](FloatFunction function, auto plain) {
      std::vector<uint8_t> expected;
      for (size_t i = 0; i < count; ++i) Append<float>(&expected, plain(At<float>(x.data(), i)));
      MakeNansEqual(&expected);
      for (const CpuFeatures level : AvailableCpuLevels()) {
        std::vector<uint8_t> y(expected.size());
        ChooseRowLoops(level).float_function(function)(a, b, x.data(), y.data(),
                                                       static_cast<int64_t>(count));
        MakeNansEqual(&y);
        ASSERT_EQ(y, expected) << CpuFeaturesName(level) << ", function "
                               << static_cast<int>(function);
      }
    };
    expect(FloatFunction::kClamp, ValueClamp<float>{a, b});
    expect(FloatFunction::kLeakyRelu, [&](float v) { return v > 0 ? v : v * a; });
    expect(FloatFunction::kHardSwish,
           [](float v) { return v * std::min(6.0f, std::max(0.0f, v + 3.0f)) / 6.0f; });
    expect(FloatFunction::kSqrt, [](float v) { return std::sqrt(v); });
    expect(FloatFunction::kRsqrt, [](float v) { return 1.0f / std::sqrt(v); });
  }
}

// ---- Conversions --------------------------------------------------------------------------------

template <typename In, typename Out>
Out PlainCast(In value) {
  if constexpr (std::is_same_v<In, float> && std::is_integral_v<Out>) {
    using Limits = std::numeric_limits<Out>;
    if (std::isnan(value)) return 0;
    if (static_cast<double>(value) <= static_cast<double>(Limits::min())) return Limits::min();
    if (static_cast<double>(value) >= static_cast<double>(Limits::max())) return Limits::max();
  }
  return static_cast<Out>(value);
}

TEST(RowLoops, CastBetweenAllTypes) {
  Rng rng(TestSeed(4));
  for (int round = 0; round < TestCount(20); ++round) {
    for (const Element from : kElements) {
      for (const Element to : kElements) {
        const size_t count = RandomCount(&rng);
        RandomElements x(&rng, from, count);
        std::vector<uint8_t> expected;
        WithType(from, [&](auto in_type) {
          WithType(to, [&](auto out_type) {
            using In = decltype(in_type);
            using Out = decltype(out_type);
            for (size_t i = 0; i < count; ++i) {
              In value = At<In>(x.data(), i);
              if (from == Element::kBool) value = value != 0;
              if (to == Element::kBool) {
                expected.push_back(value != 0);
              } else {
                Append<Out>(&expected, PlainCast<In, Out>(value));
              }
            }
          });
        });
        ExpectBytes(&rng, x, expected,
                    [&](const RowLoops& loops, const uint8_t* from_x, uint8_t* y) {
                      loops.cast(from, to)(from_x, y, static_cast<int64_t>(count));
                    });
      }
    }
  }
}

constexpr Element kQuantized[] = {Element::kInt8, Element::kUInt8, Element::kInt16};

AffineFormat RandomFormat(Rng* rng, Element element) {
  return WithType(element, [&](auto type) {
    using Limits = std::numeric_limits<decltype(type)>;
    const int32_t min = sizeof(type) > 1 ? INT16_MIN : static_cast<int32_t>(Limits::lowest());
    const int32_t max = sizeof(type) > 1 ? INT16_MAX : static_cast<int32_t>(Limits::max());
    return AffineFormat{.scale = rng->Pick<float>(
                            {1.0f, 0.5f, static_cast<float>(rng->Real() + 1e-3), 1e-30f, 1e30f}),
                        .zero_point = rng->Pick<int32_t>({min, max, 0, rng->Int32(min, max)})};
  });
}

TEST(RowLoops, QuantizeFloats) {
  Rng rng(TestSeed(5));
  for (int round = 0; round < TestCount(300); ++round) {
    for (const Element to : kQuantized) {
      const size_t count = RandomCount(&rng);
      RandomElements x(&rng, Element::kFloat32, count);
      const AffineFormat format = RandomFormat(&rng, to);
      std::vector<uint8_t> expected;
      WithType(to, [&](auto type) {
        using Out = decltype(type);
        if constexpr (std::is_integral_v<Out>) {
          for (size_t i = 0; i < count; ++i) {
            const float y = std::round(At<float>(x.data(), i) / format.scale) +
                            static_cast<float>(format.zero_point);
            const float lo = static_cast<float>(std::numeric_limits<Out>::min());
            const float hi = static_cast<float>(std::numeric_limits<Out>::max());
            Append<Out>(&expected,
                        static_cast<Out>(static_cast<int32_t>(y > lo ? (y < hi ? y : hi) : lo)));
          }
        }
      });
      ExpectBytes(&rng, x, expected, [&](const RowLoops& loops, const uint8_t* from_x, uint8_t* y) {
        loops.quantize(to)(format, from_x, y, static_cast<int64_t>(count));
      });
    }
  }
}

TEST(RowLoops, Dequantize) {
  Rng rng(TestSeed(6));
  for (int round = 0; round < TestCount(200); ++round) {
    for (const Element from : kQuantized) {
      const size_t count = RandomCount(&rng);
      RandomElements x(&rng, from, count);
      const AffineFormat format = RandomFormat(&rng, from);
      std::vector<uint8_t> expected;
      WithType(from, [&](auto type) {
        for (size_t i = 0; i < count; ++i) {
          const double steps =
              static_cast<double>(At<decltype(type)>(x.data(), i)) - format.zero_point;
          Append<float>(&expected, static_cast<float>(steps * static_cast<double>(format.scale)));
        }
      });
      ExpectBytes(&rng, x, expected, [&](const RowLoops& loops, const uint8_t* from_x, uint8_t* y) {
        loops.dequantize(from)(format, from_x, y, static_cast<int64_t>(count));
      });
    }
  }
}

TEST(RowLoops, Requantize) {
  Rng rng(TestSeed(7));
  constexpr Element kIntegers[] = {Element::kInt8, Element::kUInt8, Element::kInt16,
                                   Element::kInt32};
  for (int round = 0; round < TestCount(100); ++round) {
    for (const Element from : kIntegers) {
      for (const Element to : kIntegers) {
        const auto is_byte = [](Element e) { return e == Element::kInt8 || e == Element::kUInt8; };
        if (is_byte(from) && is_byte(to)) continue;  // a table
        const size_t count = RandomCount(&rng);
        RandomElements x(&rng, from, count);
        const Multiplier multiplier = rng.Pick<Multiplier>({QuantizeMultiplier(rng.Real() * 4),
                                                            {INT32_MAX, rng.Int32(-31, 40)},
                                                            {1 << 30, rng.Int32(-31, 3)},
                                                            {0, 0}});
        const RequantizeParams params{
            .input_zero_point = from == Element::kInt32 && rng.OneIn(2)
                                    ? rng.Pick<int32_t>({INT32_MIN, INT32_MAX})
                                    : RandomFormat(&rng, from).zero_point,
            .multiplier = multiplier.value,
            .exponent = multiplier.exponent,
            .output_zero_point = to == Element::kInt32 && rng.OneIn(2)
                                     ? rng.Pick<int32_t>({INT32_MIN, INT32_MAX})
                                     : RandomFormat(&rng, to).zero_point};
        std::vector<uint8_t> expected;
        WithType(from, [&](auto in_type) {
          WithType(to, [&](auto out_type) {
            using Out = decltype(out_type);
            for (size_t i = 0; i < count; ++i) {
              const uint32_t value =
                  static_cast<uint32_t>(static_cast<int32_t>(At<decltype(in_type)>(x.data(), i)));
              const int32_t steps =
                  static_cast<int32_t>(value - static_cast<uint32_t>(params.input_zero_point));
              const int64_t y = int64_t{MultiplyByQuantizedMultiplier(steps, multiplier)} +
                                params.output_zero_point;
              Append<Out>(&expected,
                          static_cast<Out>(std::clamp<int64_t>(
                              y, static_cast<int64_t>(std::numeric_limits<Out>::lowest()),
                              static_cast<int64_t>(std::numeric_limits<Out>::max()))));
            }
          });
        });
        ExpectBytes(&rng, x, expected,
                    [&](const RowLoops& loops, const uint8_t* from_x, uint8_t* y) {
                      loops.requantize(from, to)(params, from_x, y, static_cast<int64_t>(count));
                    });
      }
    }
  }
}

// ---- Sums of bytes ------------------------------------------------------------------------------

template <typename T>
std::vector<uint8_t> BytesOf(const std::vector<T>& values) {
  std::vector<uint8_t> bytes;
  for (const T value : values) Append<T>(&bytes, value);
  return bytes;
}

TEST(RowLoops, SumWindows) {
  Rng rng(TestSeed(8));
  for (int round = 0; round < TestCount(300); ++round) {
    const int64_t count = static_cast<int64_t>(RandomCount(&rng));
    const int64_t rows = rng.Pick<int64_t>({1, 1, 2, 16, 7});
    ByteWindow window{.rows = rows, .columns = rng.Int(1, kMaxCellsOfSum / rows)};
    if (rng.OneIn(4)) window.columns = kMaxCellsOfSum / rows;
    window.column_bytes = count + rng.Pick<int64_t>({0, 0, 3, 40});
    window.row_bytes = window.columns * window.column_bytes + rng.Pick<int64_t>({0, 1, 64});
    const int64_t bytes =
        (rows - 1) * window.row_bytes + (window.columns - 1) * window.column_bytes + count;
    RandomElements x(&rng, Element::kUInt8, static_cast<size_t>(bytes));
    const uint8_t flip = rng.Pick<uint8_t>({0, 0x80});
    if (rng.OneIn(4)) std::fill_n(x.data(), x.size(), static_cast<uint8_t>(flip ^ 0xff));
    std::vector<uint16_t> sums(static_cast<size_t>(count));
    for (int64_t i = 0; i < rows * window.columns; ++i) {
      const int64_t cell =
          i / window.columns * window.row_bytes + i % window.columns * window.column_bytes;
      for (size_t c = 0; c < sums.size(); ++c) {
        sums[c] = static_cast<uint16_t>(sums[c] + (x.data()[static_cast<size_t>(cell) + c] ^ flip));
      }
    }
    for (const CpuFeatures level : AvailableCpuLevels()) {
      GuardedBuffer output(2 * sums.size(), rng.Pick({GuardedBuffer::kEnd, GuardedBuffer::kStart}));
      window.cells = x.data();
      ChooseRowLoops(level).sums_of_window(window, flip, count,
                                           reinterpret_cast<uint16_t*>(output.data()));
      ASSERT_EQ(std::vector<uint8_t>(output.data(), output.data() + output.size()), BytesOf(sums))
          << CpuFeaturesName(level) << ", " << rows << " x " << window.columns << " cells";
      ASSERT_TRUE(output.Intact());
    }
  }
}

TEST(RowLoops, AddRows) {
  Rng rng(TestSeed(9));
  for (int round = 0; round < TestCount(300); ++round) {
    const int64_t rows = rng.Int(0, 9);
    const int64_t size = static_cast<int64_t>(RandomCount(&rng));
    const int64_t stride = size + rng.Pick<int64_t>({0, 0, 5});
    const int64_t bytes = rows == 0 ? 0 : (rows - 1) * stride + size;
    RandomElements x(&rng, Element::kUInt8, static_cast<size_t>(bytes));
    const uint8_t flip = rng.Pick<uint8_t>({0, 0x80});
    std::vector<uint32_t> before(static_cast<size_t>(rows));
    for (uint32_t& sum : before) sum = rng.OneIn(2) ? UINT32_MAX - 100 : 0;
    std::vector<uint32_t> sums = before;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < size; ++i) {
        sums[static_cast<size_t>(row)] += x.data()[row * stride + i] ^ flip;
      }
    }
    for (const CpuFeatures level : AvailableCpuLevels()) {
      std::vector<uint32_t> output = before;
      output.push_back(7);
      ChooseRowLoops(level).add_rows(x.data(), rows, size, stride, flip, output.data());
      ASSERT_EQ(output.back(), 7u);
      output.pop_back();
      ASSERT_EQ(output, sums) << CpuFeaturesName(level) << ", rows of " << size;
    }
  }
}

}  // namespace
}  // namespace atollrt
