// SPDX-License-Identifier: Apache-2.0
//
// Instructions that make a byte from many: reductions, SOFTMAX and L2_NORMALIZATION, against the
// formulas of docs/isa.md §3 written out here once more.
#include <array>

#include "driver/emulator/isa_arithmetic.h"
#include "tests/driver/emulator/emulated_program.h"
#include "tests/support/assembled.h"
#include "tests/support/rng.h"

namespace atollrt {

using isa::Clamped;
using isa::Mbqm;
using isa::Rdpot;
using isa::Srdhm;
using isa::Value;
using isa::Wrap;

namespace {

// ---- Reductions ---------------------------------------------------------------------------------

// Behind the input, which is at address 0.
constexpr uint32_t kOutputAddress = 0x8000;

template <typename T>
T RandomReduction(Rng& rng) {
  T i;
  i.output_address = kOutputAddress;
  for (uint32_t* size : {&i.kept0, &i.reduced0, &i.kept1, &i.reduced1, &i.kept2, &i.reduced2}) {
    *size = rng.OneIn(2) ? 1 : static_cast<uint32_t>(rng.Int(1, 4));
  }
  if (rng.OneIn(10)) i.kept2 = 300 / (i.kept0 * i.kept1);
  if (rng.OneIn(2)) i.flags |= kFlagInputUnsigned;
  return i;
}

// The values that are reduced to each output, in the order of outputs.
template <typename T>
std::vector<std::vector<int64_t>> Groups(const T& i, const Bytes& input) {
  std::vector<std::vector<int64_t>> groups(size_t{i.kept0} * i.kept1 * i.kept2);
  size_t element = 0;
  for (uint32_t k0 = 0; k0 < i.kept0; ++k0) {
    for (uint32_t r0 = 0; r0 < i.reduced0; ++r0) {
      for (uint32_t k1 = 0; k1 < i.kept1; ++k1) {
        for (uint32_t r1 = 0; r1 < i.reduced1; ++r1) {
          for (uint32_t k2 = 0; k2 < i.kept2; ++k2) {
            for (uint32_t r2 = 0; r2 < i.reduced2; ++r2) {
              groups[(k0 * i.kept1 + k1) * i.kept2 + k2].push_back(
                  Value(input[element++], (i.flags & kFlagInputUnsigned) != 0));
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(element, input.size());
  return groups;
}

// expected_of(instruction, group) against the device on random operands.
template <typename T, typename Prepare, typename Expected>
void CompareReductions(uint64_t seed, Prepare prepare, Expected expected_of) {
  Rng rng(TestSeed(seed));
  const auto core = MakeCore();
  for (int round = 0; round < 300; ++round) {
    T i = RandomReduction<T>(rng);
    prepare(rng, i);
    const size_t count = size_t{i.kept0} * i.reduced0 * i.kept1 * i.reduced1 * i.kept2 * i.reduced2;
    const Bytes input = RandomBytes(rng, count);
    Bytes expected;
    for (const auto& group : Groups(i, input)) expected.push_back(expected_of(i, group));
    ASSERT_EQ(RunOne(*core, i, input, kOutputAddress, expected.size()), expected)
        << "round " << round << ": " << Disassemble(i);
  }
}

TEST(Reductions, SumsAreRescaled) {
  CompareReductions<ReduceSumInstruction>(
      21,
      [](Rng& rng, ReduceSumInstruction& i) {
        const int32_t low = (i.flags & kFlagInputUnsigned) != 0 ? 0 : -128;
        i.input_zero_point = rng.Int32(low, low + 255);
        i.output_zero_point = rng.Int32(low, low + 255);
        i.multiplier = rng.OneIn(10) ? rng.Int32(0, INT32_MAX) : rng.Int32(1 << 30, INT32_MAX);
        i.exponent = rng.OneIn(10) ? rng.Int32(-31, 127) : rng.Int32(-6, 0);
        i.clamp_min = rng.Int32(low, low + 30);
        i.clamp_max = rng.Int32(low + 200, low + 255);
      },
      [](const ReduceSumInstruction& i, const std::vector<int64_t>& group) {
        int64_t sum = 0;
        for (const int64_t x : group) sum += x;
        sum -= i.input_zero_point * static_cast<int64_t>(group.size());
        const int64_t scaled = Mbqm(sum, i.multiplier, i.exponent);
        return Clamped(Wrap(scaled + i.output_zero_point), i.clamp_min, i.clamp_max);
      });
}

TEST(Reductions, ExtremesAreThoseOfRawValues) {
  const auto as_it_is = [](Rng&, auto&) {};
  CompareReductions<ReduceMaxInstruction>(22, as_it_is, [](auto&, const auto& group) {
    return static_cast<uint8_t>(*std::max_element(group.begin(), group.end()));
  });
  CompareReductions<ReduceMinInstruction>(23, as_it_is, [](auto&, const auto& group) {
    return static_cast<uint8_t>(*std::min_element(group.begin(), group.end()));
  });
}

TEST(Reductions, MeanOfTwoImages) {
  const auto core = MakeCore();
  // q = 2^30 and e = -1: a quarter.
  const ReduceSumInstruction i = Assembled<ReduceSumInstruction>(
      "output_address=act+50, kept0=2, reduced0=1, kept1=1, reduced1=2, kept2=2, reduced2=1, "
      "input_zero_point=1, multiplier=1073741824, exponent=-1, output_zero_point=-10, "
      "clamp_min=-128, clamp_max=127");
  // Sums less 2: 4 + 8 - 2 = 10, -2; 198, -258 (as int8: 100 + 100, -128 - 128).
  // 2.5 -> SRDHM(10, 2^30) = 5, RDPOT(5, 1) = 3; -2: -1 -> -1; 99 -> 50; -129 -> -65.
  EXPECT_EQ(RunOne(*core, i, {4, 0, 8, 0, 100, 0x80, 100, 0x80}, 50, 4),
            (Bytes{0xF9, 0xF5, 40, 0xB5}));
}

// ---- Fixed-point functions ----------------------------------------------------------------------

int64_t Shl(int64_t x, int64_t n) {
  const int64_t shifted = x * (int64_t{1} << n);
  return std::min<int64_t>(std::max<int64_t>(shifted, INT32_MIN), INT32_MAX);
}

int64_t Exp(int64_t a) {
  if (a == 0) return INT32_MAX;
  const int64_t b = (a & 0xFFFFFF) - (1 << 24);
  const int64_t x = 32 * b + (1 << 28);
  const int64_t x2 = Srdhm(x, x);
  const int64_t x3 = Srdhm(x2, x);
  const int64_t x4 = Srdhm(x2, x2);
  const int64_t p = x + Rdpot(Srdhm(Rdpot(x4, 2) + x3, 715827883) + x2, 1);
  int64_t r = 1895147668 + Srdhm(1895147668, p);
  constexpr std::array<int64_t, 7> kFactor = {1672461947, 1302514674, 790015084, 290630308,
                                              39332535,   720401,     242};
  for (size_t k = 0; k < kFactor.size(); ++k) {
    if (((b - a) >> (24 + k) & 1) != 0) r = Srdhm(r, kFactor[k]);
  }
  return r;
}

int64_t ReciprocalOf(int64_t a) {
  const int64_t h = a / 2 + (1 << 30);
  int64_t x = 1515870810 + Srdhm(h, -1010580540);
  for (int i = 0; i < 3; ++i) x += Shl(Srdhm(x, (1 << 29) - Srdhm(h, x)), 2);
  return Shl(x, 1);
}

int64_t LeadingZeros(uint64_t x) {
  int64_t zeros = 0;
  for (uint64_t bit = uint64_t{1} << 31; bit != 0 && (x & bit) == 0; bit >>= 1) ++zeros;
  return zeros;
}

struct Root {
  int64_t q, e;
};
Root InverseRoot(int64_t n) {
  if (n <= 1) return {INT32_MAX, 0};
  int64_t s = 11;
  for (; n >= 1 << 29; n /= 4) ++s;
  const int64_t z = (LeadingZeros(static_cast<uint64_t>(n)) - 1) / 2 - 1;
  s -= z;
  n <<= 2 * z;
  const int64_t h = Rdpot(n / 2, 1);
  int64_t y = 1 << 28;
  for (int i = 0; i < 5; ++i) {
    const int64_t cube = Shl(Srdhm(Srdhm(y, y), y), 6);
    y = Shl(Srdhm((1 << 28) + (1 << 27), y) - Srdhm(h, cube), 3);
  }
  y = Srdhm(y, 1518500250);
  if (s < 0) return {Shl(y, -s), 0};
  return {y, -s};
}

// ---- Rows ---------------------------------------------------------------------------------------

Bytes ExpectedSoftmax(const SoftmaxInstruction& i, const Bytes& input) {
  const bool is_unsigned = (i.flags & kFlagInputUnsigned) != 0;
  const int64_t least = is_unsigned ? 0 : -128;
  Bytes output;
  for (size_t row = 0; row < i.rows; ++row) {
    const auto value = [&](size_t k) { return Value(input[row * i.depth + k], is_unsigned); };
    int64_t greatest = least;
    for (size_t k = 0; k < i.depth; ++k) greatest = std::max(greatest, value(k));
    uint64_t sum = 0;
    for (size_t k = 0; k < i.depth; ++k) {
      const int64_t d = value(k) - greatest;
      if (d < i.min_difference) continue;
      sum += static_cast<uint64_t>(Rdpot(Exp(Mbqm(d, i.multiplier, i.exponent)), 12));
    }
    sum &= 0xFFFFFFFF;
    const int64_t h = sum == 0 ? 32 : LeadingZeros(sum);
    const bool vanishes = h < 4 || h == 32;
    const int64_t r =
        vanishes ? 0 : ReciprocalOf(static_cast<int64_t>(sum << h) - (int64_t{1} << 31));
    for (size_t k = 0; k < i.depth; ++k) {
      const int64_t d = value(k) - greatest;
      int64_t y = least;
      if (d >= i.min_difference && !vanishes) {
        const int64_t e = Exp(Mbqm(d, i.multiplier, i.exponent));
        y = std::min(Rdpot(Srdhm(e, r), 35 - h) + least, least + 255);
      }
      output.push_back(static_cast<uint8_t>(y));
    }
  }
  return output;
}

TEST(Softmax, IsTheFixedPointFormula) {
  Rng rng(TestSeed(24));
  const auto core = MakeCore();
  for (int round = 0; round < 300; ++round) {
    SoftmaxInstruction i;
    i.output_address = kOutputAddress;
    i.rows = static_cast<uint32_t>(rng.Int(1, 5));
    i.depth = static_cast<uint32_t>(rng.OneIn(10) ? rng.Int(500, 3000) : rng.Int(1, 40));
    if (rng.OneIn(2)) i.flags = kFlagInputUnsigned;
    i.multiplier = rng.OneIn(10) ? rng.Int32(0, INT32_MAX) : rng.Int32(1 << 30, INT32_MAX);
    i.exponent = rng.OneIn(10) ? rng.Int32(-31, 22) : rng.Int32(15, 25);
    // Down to where a shifted difference still fits.
    const int64_t reach = int64_t{1} << std::clamp(31 - i.exponent, 0, 31);
    i.min_difference = static_cast<int32_t>(-rng.Int(0, reach - 1));
    Bytes input = RandomBytes(rng, size_t{i.rows} * i.depth);
    if (rng.OneIn(3)) {
      for (uint8_t& byte : input) byte = static_cast<uint8_t>(byte % 8);
    }
    ASSERT_EQ(RunOne(*core, i, input, kOutputAddress, input.size()), ExpectedSoftmax(i, input))
        << "round " << round << ": " << Disassemble(i);
  }
}

// 8192 equal elements make a sum of 2^32.
TEST(Softmax, LetsSumsOfLongRowsWrap) {
  const auto core = MakeCore();
  for (const uint32_t depth : {511u, 512u, 4095u, 4096u, 8191u, 8192u, 8193u}) {
    const SoftmaxInstruction i{.output_address = kOutputAddress,
                               .rows = 1,
                               .depth = depth,
                               .multiplier = 1 << 30,
                               .exponent = 23,
                               .min_difference = -200};
    const Bytes input(depth, 5);
    EXPECT_EQ(RunOne(*core, i, input, kOutputAddress, depth), ExpectedSoftmax(i, input)) << depth;
  }
}

TEST(L2Normalization, IsTheFixedPointFormula) {
  Rng rng(TestSeed(25));
  DeviceProfile profile = SmallProfile();
  profile.memory_bytes = 128 << 10;
  const auto core = MakeCore({.profile = profile});
  for (int round = 0; round < 300; ++round) {
    L2NormalizationInstruction i;
    i.output_address = 0xA000;
    i.rows = static_cast<uint32_t>(rng.Int(1, 5));
    i.depth = static_cast<uint32_t>(rng.Int(1, 40));
    if (rng.OneIn(2)) i.flags = kFlagInputUnsigned;
    const bool is_unsigned = (i.flags & kFlagInputUnsigned) != 0;
    const int32_t low = is_unsigned ? 0 : -128;
    i.input_zero_point = rng.Int32(low, low + 255);
    if (rng.OneIn(30)) {  // a sum of squares that wraps
      i.rows = 1;
      i.depth = 0x9000;
      i.input_zero_point = low;
    }
    Bytes input = RandomBytes(rng, size_t{i.rows} * i.depth);
    if (i.depth == 0x9000) std::fill(input.begin(), input.end(), is_unsigned ? 255 : 127);
    if (rng.OneIn(5)) {  // short vectors, and no vector at all
      for (uint8_t& byte : input) {
        byte =
            static_cast<uint8_t>(std::clamp(i.input_zero_point + rng.Int32(-1, 1), low, low + 255));
      }
    }
    Bytes expected;
    for (size_t row = 0; row < i.rows; ++row) {
      int64_t sum = 0;
      const auto d = [&](size_t k) {
        return Value(input[row * i.depth + k], is_unsigned) - i.input_zero_point;
      };
      for (size_t k = 0; k < i.depth; ++k) sum += d(k) * d(k);
      const Root root = InverseRoot(static_cast<int32_t>(static_cast<uint32_t>(sum)));
      for (size_t k = 0; k < i.depth; ++k) {
        expected.push_back(is_unsigned
                               ? Clamped(Rdpot(Srdhm(128 * d(k), root.q), -root.e) + 128, 0, 255)
                               : Clamped(Mbqm(d(k), root.q, root.e + 7), -128, 127));
      }
    }
    ASSERT_EQ(RunOne(*core, i, input, i.output_address, input.size()), expected)
        << "round " << round << ": " << Disassemble(i);
  }
}

}  // namespace
}  // namespace atollrt
