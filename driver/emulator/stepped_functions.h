// SPDX-License-Identifier: Apache-2.0
//
// The functions of docs/isa.md §3 as the lanes of the vector unit compute them: one product in a
// cycle, or a shift that is as long as its operand says. Each is an object that holds the registers
// of one evaluation; Step() is one cycle and says whether it was the last, so that whoever steps it
// counts the cycles. What needs no product (sums, shifts
// by constants, choosing bits) is done in the same cycle as the product that needs it.
#pragma once

#include <array>
#include <bit>
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
    switch (step_++) {
      case 0: {
        const int64_t a = isa::Mbqm(difference_, multiplier, exponent);
        is_zero_ = a == 0;
        const int64_t b = (a & ((int64_t{1} << 24) - 1)) - (int64_t{1} << 24);
        bits_ = (b - a) >> 24;
        x_ = 32 * b + (int64_t{1} << 28);
        return false;
      }
      case 1:
        x2_ = Srdhm(x_, x_);
        return false;
      case 2:
        x3_ = Srdhm(x2_, x_);
        return false;
      case 3:
        x4_ = Srdhm(x2_, x2_);
        return false;
      case 4:
        polynomial_ = x_ + Rdpot(Srdhm(Rdpot(x4_, 2) + x3_, 715827883) + x2_, 1);
        return false;
      case 5:
        result_ = 1895147668 + Srdhm(1895147668, polynomial_);
        return false;
      default: {
        const size_t factor = step_ - 7;
        if ((bits_ >> factor & 1) != 0) result_ = Srdhm(result_, kFactors[factor]);
        if (factor + 1 < kFactors.size()) return false;
        if (is_zero_) result_ = isa::kInt32Max;
        return true;
      }
    }
  }

  int64_t result() const { return result_; }

 private:
  static constexpr std::array<int64_t, 7> kFactors = {1672461947, 1302514674, 790015084, 290630308,
                                                      39332535,   720401,     242};
  size_t step_ = 0;
  int64_t difference_ = 0;
  int64_t bits_ = 0;  // which factors
  int64_t x_ = 0, x2_ = 0, x3_ = 0, x4_ = 0, polynomial_ = 0;
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
      const uint64_t shifted = uint64_t{sum_} << leading_zeros_;
      const int64_t a = static_cast<int64_t>(shifted) - (int64_t{1} << 31);
      half_ = a / 2 + (int64_t{1} << 30);
      return false;
    }
    if (step == 1) {
      x_ = 1515870810 + isa::Srdhm(half_, -1010580540);
      return false;
    }
    if (step % 2 == 0) {
      error_ = (int64_t{1} << 29) - isa::Srdhm(half_, x_);
      return false;
    }
    x_ += isa::Shl(isa::Srdhm(x_, error_), 2);
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
      return false;
    }
    if (step == kLastStep) {
      y_ = Srdhm(y_, 1518500250);
      return true;
    }
    switch (step % 4) {
      case 1:
        power_ = Srdhm(y_, y_);
        break;
      case 2:
        power_ = isa::Shl(Srdhm(power_, y_), 6);
        break;
      case 3:
        power_ = Srdhm(half_, power_);
        break;
      default:
        y_ = isa::Shl(Srdhm((int64_t{1} << 28) + (int64_t{1} << 27), y_) - power_, 3);
        break;
    }
    return false;
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
    using isa::Sat16;
    switch (stage_++) {
      case 0:
        x2_ = Product16(x_, x_);
        return false;
      case 1:
        x3_ = Product16(x2_, x_);
        return false;
      case 2:
        x4_ = Product16(x2_, x2_);
        return false;
      case 3:
        z_ = isa::Rdpot(Product16(isa::Rdpot(x4_, 2) + x3_, 10923) + x2_, 1);
        return false;
      case 4:
        power_ = Sat16(28918 + Product16(28918, x_ + z_));
        return false;
      case 12:
        if (is_tiny_) power_ = 0;
        if (is_one_) power_ = 32767;
        v_ = (power_ + 32768) >> 1;
        x_ = 23130 + Product16(v_, -15420);
        return false;
      case 13:
      case 15:
      case 17:
        error_ = 8192 - Product16(v_, x_);
        return false;
      case 14:
      case 16:
        x_ += Sat16(4 * Product16(x_, error_));
        return false;
      case 18:
        x_ += Sat16(4 * Product16(x_, error_));
        return true;
      default: {  // 5 ... 11
        const size_t factor = stage_ - 6;
        const int64_t j = static_cast<int64_t>(factor) - 2;
        if (j < k_ && (bits_ >> (15 - k_ + j) & 1) != 0) {
          power_ = Product16(power_, kFactors[factor]);
        }
        return false;
      }
    }
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
  size_t stage_ = 0;
  int64_t x_ = 0, x2_ = 0, x3_ = 0, x4_ = 0, z_ = 0;
  int64_t power_ = 0;  // exp(-|a|)
  int64_t v_ = 0, error_ = 0;
};

}  // namespace atollrt::stepped
