// SPDX-License-Identifier: Apache-2.0
//
// The functions of docs/isa.md §3 as the lanes of the vector unit compute them: one product in a
// cycle, or a shift that is as long as its operand says. Each is an object that holds the registers
// of one evaluation; Step() is one cycle and says whether it was the last, so that whoever steps it
// counts the cycles. What needs no product (sums, shifts by constants, choosing bits) is done in
// the same cycle as the product that needs it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "driver/emulator/isa_arithmetic.h"

namespace atollrt::stepped {

// SOFTMAX's exponential of one difference of bytes: EXP(MBQM(difference, multiplier, exponent)).
// 13 products. Meaningless, but defined, for differences that SOFTMAX does not look at.
class Exponential {
 public:
  void Start(int64_t difference) {
    difference_ = difference;
    step_ = 0;
  }

  bool Step(int64_t multiplier, int64_t exponent) {
    using isa::Rdpot;
    using isa::Srdhm;
    constexpr size_t kFirstFactor = 6;
    const size_t step = step_++;
    if (step == 0) Reduce(isa::Mbqm(difference_, multiplier, exponent));
    if (step == 1) x2_ = Srdhm(x_, x_);
    if (step == 2) x3_ = Srdhm(x2_, x_);
    if (step == 3) x4_ = Srdhm(x2_, x2_);
    if (step == 4) x_ += Rdpot(Srdhm(Rdpot(x4_, 2) + x3_, 715827883) + x2_, 1);
    if (step == 5) result_ = 1895147668 + Srdhm(1895147668, x_);
    if (step < kFirstFactor) return false;
    const size_t factor = step - kFirstFactor;
    if ((bits_ >> factor & 1) != 0) result_ = Srdhm(result_, kFactors[factor]);
    if (factor + 1 < kFactors.size()) return false;
    if (is_zero_) result_ = isa::kInt32Max;
    return true;
  }

  int64_t result() const { return result_; }

 private:
  void Reduce(int64_t a) {
    is_zero_ = a == 0;
    const int64_t b = (a & ((int64_t{1} << 24) - 1)) - (int64_t{1} << 24);
    bits_ = (b - a) >> 24;
    x_ = 32 * b + (int64_t{1} << 28);
  }

  static constexpr std::array<int64_t, 7> kFactors = {1672461947, 1302514674, 790015084, 290630308,
                                                      39332535,   720401,     242};
  size_t step_ = 0;
  int64_t difference_ = 0;
  int64_t bits_ = 0;  // which factors
  int64_t x_ = 0, x2_ = 0, x3_ = 0, x4_ = 0;
  int64_t result_ = 0;
  bool is_zero_ = false;
};

// SOFTMAX's h and R of a sum S: a shift that normalizes it, then RECIPROCAL in 7 products.
class Reciprocal {
 public:
  explicit Reciprocal(uint32_t sum) : sum_(sum) {}

  bool Step() {
    const size_t step = step_++;
    if (step == 0) {
      leading_zeros_ = std::countl_zero(sum_);
      const int64_t shifted = int64_t{sum_} << leading_zeros_;
      half_ = (shifted - (int64_t{1} << 31)) / 2 + (int64_t{1} << 30);
    } else if (step == 1) {
      x_ = 1515870810 + isa::Srdhm(half_, -1010580540);
    } else if (step % 2 == 0) {
      error_ = (int64_t{1} << 29) - isa::Srdhm(half_, x_);
    } else {
      x_ += isa::Shl(isa::Srdhm(x_, error_), 2);
    }
    return step == kLastStep;
  }

  int64_t leading_zeros() const { return leading_zeros_; }
  int64_t result() const { return isa::Shl(x_, 1); }

 private:
  static constexpr size_t kLastStep = 7;  // the third correction
  uint32_t sum_;
  size_t step_ = 0;
  int64_t leading_zeros_ = 0;
  int64_t half_ = 0, x_ = 0, error_ = 0;
};

// INVERSE_ROOT: a shift that normalizes n, then 21 products. Those of an n that needs none are
// made for nothing.
class InverseRoot {
 public:
  explicit InverseRoot(int64_t n) : n_(n), is_trivial_(n <= 1) {}

  bool Step() {
    using isa::Srdhm;
    const size_t step = step_++;
    if (step == 0) {
      Normalize();
    } else if (step == kLastStep) {
      y_ = Srdhm(y_, 1518500250);
    } else if (step % 4 == 1) {
      power_ = Srdhm(y_, y_);
    } else if (step % 4 == 2) {
      power_ = isa::Shl(Srdhm(power_, y_), 6);
    } else if (step % 4 == 3) {
      power_ = Srdhm(half_, power_);
    } else {
      y_ = isa::Shl(Srdhm((int64_t{1} << 28) + (int64_t{1} << 27), y_) - power_, 3);
    }
    return step == kLastStep;
  }

  int64_t multiplier() const {
    if (is_trivial_) return isa::kInt32Max;
    return shift_ < 0 ? isa::Shl(y_, -shift_) : y_;
  }
  int64_t exponent() const { return is_trivial_ || shift_ < 0 ? 0 : -shift_; }

 private:
  void Normalize() {
    if (is_trivial_) return;
    shift_ = 11;
    for (; n_ >= int64_t{1} << 29; n_ /= 4) ++shift_;
    const int64_t pairs = (std::countl_zero(static_cast<uint32_t>(n_)) - 1) / 2 - 1;
    shift_ -= pairs;
    n_ <<= 2 * pairs;
    half_ = isa::Rdpot(n_ / 2, 1);
    y_ = int64_t{1} << 28;
  }

  static constexpr size_t kLastStep = 21;  // after five corrections of four products
  int64_t n_;
  bool is_trivial_;
  size_t step_ = 0;
  int64_t shift_ = 0, half_ = 0, y_ = 0, power_ = 0;
};

// logistic or tanh of LSTM on its way through the stages of a lane's function unit, one product
// each.
class GateFunction {
 public:
  enum class Kind { kLogistic, kTanh };
  static constexpr int64_t kStages = 19;

  // tanh(a, integer_bits); of logistic the number of integer bits is 3.
  GateFunction(Kind kind, int64_t a, int64_t integer_bits)
      : kind_(kind), a_(a), k_(kind == Kind::kTanh ? integer_bits + 1 : 3) {
    const int64_t argument = -std::abs(a);
    const int64_t quarter = int64_t{1} << (13 - k_);
    const int64_t m = (argument & (quarter - 1)) - quarter;
    is_one_ = argument == 0;
    is_tiny_ = k_ > 5 && argument < -32 * (int64_t{1} << (15 - k_));
    bits_ = m - argument;
    x_ = m * (int64_t{1} << k_) + 4096;
  }

  bool Step() {
    using isa::Product16;
    constexpr int64_t kFirstFactor = 5, kHalve = 12;
    const int64_t stage = stage_++;
    if (stage == 0) x2_ = Product16(x_, x_);
    if (stage == 1) x3_ = Product16(x2_, x_);
    if (stage == 2) x4_ = Product16(x2_, x2_);
    if (stage == 3) z_ = isa::Rdpot(Product16(isa::Rdpot(x4_, 2) + x3_, 10923) + x2_, 1);
    if (stage == 4) power_ = isa::Sat16(28918 + Product16(28918, x_ + z_));
    if (kFirstFactor <= stage && stage < kHalve) {
      const int64_t j = stage - kFirstFactor - 2;
      if (j < k_ && (bits_ >> (15 - k_ + j) & 1) != 0) {
        power_ = Product16(power_, kFactors[stage - kFirstFactor]);
      }
    }
    if (stage == kHalve) {
      if (is_tiny_) power_ = 0;
      if (is_one_) power_ = 32767;
      v_ = (power_ + 32768) >> 1;
      x_ = 23130 + Product16(v_, -15420);
    }
    // Three corrections of two products.
    if (stage > kHalve && stage % 2 == 1) error_ = 8192 - Product16(v_, x_);
    if (stage > kHalve && stage % 2 == 0) x_ += isa::Sat16(4 * Product16(x_, error_));
    return stage + 1 == kStages;
  }

  int64_t result() const {
    if (kind_ == Kind::kLogistic) {
      const int64_t s = isa::Sat16(2 * x_);
      return a_ > 0 ? s : a_ < 0 ? 32767 - s : 16384;
    }
    const int64_t t = isa::Sat16(4 * (x_ - 8192));
    return a_ > 0 ? t : a_ < 0 ? -t : 0;
  }

 private:
  static constexpr std::array<int64_t, 7> kFactors = {25520, 19875, 12055, 4435, 600, 11, 0};
  Kind kind_ = Kind::kLogistic;
  int64_t a_ = 0;
  int64_t k_ = 0;
  bool is_one_ = false, is_tiny_ = false;
  int64_t bits_ = 0;  // which factors
  int64_t stage_ = 0;
  int64_t x_ = 0, x2_ = 0, x3_ = 0, x4_ = 0, z_ = 0;
  int64_t power_ = 0;  // exp(-|a|)
  int64_t v_ = 0, error_ = 0;
};

// ---- Resizing ----
//
// Which cells RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR read, and with which weights, as the
// address unit works it out. Of an axis, `n` is the size of the whole input, `m` of the whole
// output, `index` the position in the whole output, all within the ranges of docs/isa.md §4.

// Where one axis of RESIZE_BILINEAR reads for one output index, with the weights of the two cells:
// as integers that add up to 1024, or, with INPUT_UNSIGNED, in single precision.
struct BilinearAxis {
  std::array<int64_t, 2> cells = {};  // lo, hi
  std::array<int64_t, 2> weights = {};
  std::array<float, 2> real_weights = {};
};

inline BilinearAxis IntegerAxis(int64_t n, int64_t m, int64_t index, uint32_t mode) {
  const bool aligns_ends = mode == 1 && m > 1;
  const int64_t s = aligns_ends ? ((n - 1) * 1024 + (m - 1) / 2) / (m - 1) : (n * 1024 + m / 2) / m;
  const int64_t v = index * s + (mode == 2 ? s / 2 - 512 : 0);
  const int64_t lo = isa::Between(v / 1024, 0, n - 1);
  const int64_t hi = isa::Between((v + 1023) / 1024, 0, n - 1);
  const int64_t f = lo == hi ? 0 : v - 1024 * lo;
  return {.cells = {lo, hi}, .weights = {1024 - f, f}};
}

inline float RealScale(int64_t n, int64_t m, uint32_t mode) {
  const bool aligns_ends = mode == 1 && m > 1;
  return aligns_ends ? static_cast<float>(n - 1) / static_cast<float>(m - 1)
                     : static_cast<float>(n) / static_cast<float>(m);
}

inline BilinearAxis RealAxis(int64_t n, int64_t m, int64_t index, uint32_t mode) {
  const float s = RealScale(n, m, mode);
  const float i = static_cast<float>(index);
  const float v = mode == 2 ? (i + 0.5f) * s - 0.5f : i * s;
  const int64_t lo = isa::Between(static_cast<int64_t>(std::floor(v)), 0, n - 1);
  const int64_t hi = isa::Between(static_cast<int64_t>(std::ceil(v)), 0, n - 1);
  const float f = v - static_cast<float>(lo);
  return {.cells = {lo, hi}, .real_weights = {1 - f, f}};
}

// The cell that RESIZE_NEAREST_NEIGHBOR copies.
inline int64_t NearestCell(int64_t n, int64_t m, int64_t index, uint32_t mode) {
  const float s = RealScale(n, m, mode);
  const float i = static_cast<float>(index);
  const float v = mode == 2 ? (i + 0.5f) * s : i * s;
  const float whole = std::floor(v);
  const int64_t rounded_up = mode == 1 && v - whole >= 0.5f ? 1 : 0;
  return std::min(static_cast<int64_t>(whole) + rounded_up, n - 1);
}

}  // namespace atollrt::stepped
