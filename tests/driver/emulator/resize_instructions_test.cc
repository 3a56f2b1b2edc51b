// SPDX-License-Identifier: Apache-2.0
//
// RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR, whole images and bands, against the formulas of
// docs/isa.md §3 written out here once more.
#include <cmath>

#include "driver/emulator/isa_arithmetic.h"
#include "tests/driver/emulator/emulated_program.h"
#include "tests/support/rng.h"

namespace atollrt {

using isa::Value;

namespace {

constexpr uint32_t kResizedAddress = 0x8000;

// ---- One axis of the page's formulas ------------------------------------------------------------

struct IntegerTap {
  int64_t lo, hi, f;
};
IntegerTap IntegerTapOf(int64_t n, int64_t m, uint32_t mode, int64_t i) {
  int64_t s = (n * 1024 + m / 2) / m;
  if (mode == 1 && m > 1) s = ((n - 1) * 1024 + (m - 1) / 2) / (m - 1);
  int64_t v = i * s;
  if (mode == 2) v += s / 2 - 512;
  IntegerTap tap;
  tap.lo = std::min(std::max<int64_t>(v / 1024, 0), n - 1);
  tap.hi = std::min(std::max<int64_t>((v + 1023) / 1024, 0), n - 1);
  tap.f = tap.lo == tap.hi ? 0 : v - 1024 * tap.lo;
  return tap;
}

struct FloatTap {
  int64_t lo, hi;
  float f;
};
float FloatStep(int64_t n, int64_t m, uint32_t mode) {
  if (mode == 1 && m > 1) return static_cast<float>(n - 1) / static_cast<float>(m - 1);
  return static_cast<float>(n) / static_cast<float>(m);
}
FloatTap FloatTapOf(int64_t n, int64_t m, uint32_t mode, int64_t i) {
  const float s = FloatStep(n, m, mode);
  float v = static_cast<float>(i) * s;
  if (mode == 2) {
    v = static_cast<float>(i) + 0.5f;
    v = v * s;
    v = v - 0.5f;
  }
  FloatTap tap;
  tap.lo = std::min(std::max(static_cast<int64_t>(std::floor(v)), int64_t{0}), n - 1);
  tap.hi = std::min(std::max(static_cast<int64_t>(std::ceil(v)), int64_t{0}), n - 1);
  tap.f = v - static_cast<float>(tap.lo);
  return tap;
}

int64_t NearestOf(int64_t n, int64_t m, uint32_t mode, int64_t i) {
  float v = static_cast<float>(i);
  if (mode == 2) v = v + 0.5f;
  v = v * FloatStep(n, m, mode);
  int64_t c = static_cast<int64_t>(std::floor(v));
  if (mode == 1 && v - std::floor(v) >= 0.5f) ++c;
  return std::min(c, n - 1);
}

// ---- Elements -----------------------------------------------------------------------------------

// Calls element(at, y, x) for every output element, y and x in the whole image; at(row, column) is
// an input byte, the row of the whole image, too.
template <typename T, typename Element>
Bytes ForElements(const T& i, const Bytes& input, const Element& element) {
  Bytes output;
  for (size_t n = 0; n < i.batch; ++n) {
    for (int64_t y = i.output_first; y < int64_t{i.output_first} + i.output_rows; ++y) {
      for (int64_t x = 0; x < i.output_w; ++x) {
        for (size_t c = 0; c < i.channels; ++c) {
          const auto at = [&](int64_t row, int64_t column) {
            const size_t in_band = static_cast<size_t>(row - i.input_first);
            EXPECT_LT(in_band, i.input_rows);
            return input[((n * i.input_rows + in_band) * i.input_w + static_cast<size_t>(column)) *
                             i.channels +
                         c];
          };
          output.push_back(element(at, y, x));
        }
      }
    }
  }
  return output;
}

Bytes Expected(const ResizeBilinearInstruction& i, const Bytes& input) {
  if ((i.flags & kFlagInputUnsigned) != 0) {
    return ForElements(i, input, [&](const auto& at, int64_t oy, int64_t ox) {
      const FloatTap y = FloatTapOf(i.input_h, i.output_h, i.mode, oy);
      const FloatTap x = FloatTapOf(i.input_w, i.output_w, i.mode, ox);
      const auto term = [&](int64_t row, int64_t column, float weight_y, float weight_x) {
        const float weighted = static_cast<float>(at(row, column)) * weight_y;
        return weighted * weight_x;
      };
      float r = term(y.lo, x.lo, 1 - y.f, 1 - x.f);
      r = r + term(y.hi, x.lo, y.f, 1 - x.f);
      r = r + term(y.lo, x.hi, 1 - y.f, x.f);
      r = r + term(y.hi, x.hi, y.f, x.f);
      return static_cast<uint8_t>(static_cast<int64_t>(r + 0.5f) & 0xFF);
    });
  }
  return ForElements(i, input, [&](const auto& at, int64_t oy, int64_t ox) {
    const IntegerTap y = IntegerTapOf(i.input_h, i.output_h, i.mode, oy);
    const IntegerTap x = IntegerTapOf(i.input_w, i.output_w, i.mode, ox);
    const auto mix = [](int64_t a, int64_t b, int64_t f) { return a * (1024 - f) + b * f; };
    const auto value = [&](int64_t row, int64_t column) { return Value(at(row, column), false); };
    const int64_t a = mix(mix(value(y.lo, x.lo), value(y.hi, x.lo), y.f),
                          mix(value(y.lo, x.hi), value(y.hi, x.hi), y.f), x.f);
    const int64_t half = 1 << 19;
    return static_cast<uint8_t>((a > 0 ? a + half : a - half) / (1 << 20));
  });
}

Bytes Expected(const ResizeNearestNeighborInstruction& i, const Bytes& input) {
  return ForElements(i, input, [&](const auto& at, int64_t oy, int64_t ox) {
    return at(NearestOf(i.input_h, i.output_h, i.mode, oy),
              NearestOf(i.input_w, i.output_w, i.mode, ox));
  });
}

// The first and the last input row that the output rows of `i` are made from.
std::pair<int64_t, int64_t> RowsUnder(const ResizeBilinearInstruction& i) {
  const int64_t last = int64_t{i.output_first} + i.output_rows - 1;
  if ((i.flags & kFlagInputUnsigned) != 0) {
    return {FloatTapOf(i.input_h, i.output_h, i.mode, i.output_first).lo,
            FloatTapOf(i.input_h, i.output_h, i.mode, last).hi};
  }
  return {IntegerTapOf(i.input_h, i.output_h, i.mode, i.output_first).lo,
          IntegerTapOf(i.input_h, i.output_h, i.mode, last).hi};
}
std::pair<int64_t, int64_t> RowsUnder(const ResizeNearestNeighborInstruction& i) {
  const int64_t last = int64_t{i.output_first} + i.output_rows - 1;
  return {NearestOf(i.input_h, i.output_h, i.mode, i.output_first),
          NearestOf(i.input_h, i.output_h, i.mode, last)};
}

// ---- Comparisons --------------------------------------------------------------------------------

template <typename T>
void ExpectFormula(Core& core, Rng& rng, T i) {
  i.output_address = kResizedAddress;
  const Bytes input = RandomBytes(rng, size_t{i.batch} * i.input_rows * i.input_w * i.channels);
  const Bytes expected = Expected(i, input);
  ASSERT_EQ(RunOne(core, i, input, kResizedAddress, expected.size()), expected) << Disassemble(i);
}

template <typename T>
T RandomResize(Rng& rng) {
  const auto pick = [&](int64_t low, int64_t high) {
    return static_cast<uint32_t>(rng.Int(low, high));
  };
  T i;
  i.batch = pick(1, 2);
  i.input_h = pick(1, 12);
  i.input_w = pick(1, rng.OneIn(4) ? 60 : 12);
  i.channels = pick(1, 7);
  i.output_h = pick(1, 20);
  i.output_w = pick(1, 20);
  i.mode = pick(0, 2);
  if constexpr (requires { i.flags; }) i.flags = rng.OneIn(2) ? kFlagInputUnsigned : 0;
  i.input_rows = i.input_h;
  i.output_rows = i.output_h;
  return i;
}

// A band of output rows with the input rows that it needs and maybe more.
template <typename T>
T BandOf(Rng& rng, T i) {
  i.output_first = static_cast<uint32_t>(rng.Int(0, i.output_h - 1));
  i.output_rows =
      static_cast<uint32_t>(rng.Int(1, std::min<int64_t>(i.output_h - i.output_first, 20)));
  const auto [low, high] = RowsUnder(i);
  const int64_t first = std::max<int64_t>(low - rng.Int(0, 2), 0);
  const int64_t end = std::min<int64_t>(high + 1 + rng.Int(0, 2), i.input_h);
  i.input_first = static_cast<uint32_t>(first);
  i.input_rows = static_cast<uint32_t>(end - first);
  return i;
}

template <typename T>
class Resize : public testing::Test {};
using ResizeInstructions =
    testing::Types<ResizeBilinearInstruction, ResizeNearestNeighborInstruction>;
TYPED_TEST_SUITE(Resize, ResizeInstructions);

TYPED_TEST(Resize, IsTheFormula) {
  Rng rng(TestSeed(31));
  for (const int threads : {1, 3}) {
    const auto core = MakeCore({.profile = SmallProfile(), .threads = threads});
    for (int round = 0; round < 200 && !testing::Test::HasFailure(); ++round) {
      ExpectFormula(*core, rng, RandomResize<TypeParam>(rng));
    }
  }
}

TYPED_TEST(Resize, OfABandIsThatOfTheWhole) {
  Rng rng(TestSeed(32));
  const auto core = MakeCore();
  for (int round = 0; round < 300 && !testing::Test::HasFailure(); ++round) {
    ExpectFormula(*core, rng, BandOf(rng, RandomResize<TypeParam>(rng)));
  }
}

// Bands of images far larger than any memory.
TYPED_TEST(Resize, CountsRowsInFullWidth) {
  Rng rng(TestSeed(33));
  const auto core = MakeCore();
  int compared = 0;
  for (int round = 0; round < 300 && !testing::Test::HasFailure(); ++round) {
    TypeParam i = RandomResize<TypeParam>(rng);
    i.output_h = static_cast<uint32_t>(rng.Int(1, 0x7FFFFFFF) >> rng.Int(0, 30));
    i.output_h = std::max(i.output_h, 1u);
    // Not so much larger than the output that a band would need rows without end.
    const int64_t most = std::min<int64_t>(int64_t{i.output_h} * 3, 0x7FFFFFFF);
    i.input_h = static_cast<uint32_t>(rng.Int(1, most));
    TypeParam band = BandOf(rng, i);
    band.input_w = std::min(band.input_w, 4u);
    // In single precision, rows beyond 2^24 may be far apart.
    if (band.input_rows > 500) continue;
    ExpectFormula(*core, rng, band);
    ++compared;
  }
  EXPECT_GT(compared, 200);
}

}  // namespace
}  // namespace atollrt
