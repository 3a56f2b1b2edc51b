// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of all instruction sets have in common, for inclusion by their ISA files only: a
// block of bytes is combined as four Vectors of int32.
//
// `Lanes` is a class with
//   Add, Subtract, Multiply(a, b)       of Vectors
//   WhereNegative(x, y, z)              y where x < 0, else z
//   Operand(type, zero_point)           what Widen needs
//   Widen(from, j, operand)             the j-th Vector of a block of an operand, less its zero
//   point Term(multiplier, left_shift)(x)     Multiply(x << left_shift, multiplier)
//   Factor(multiplier)(x)               Multiply(x, multiplier) of products
//   Sum(multiplier)(x)                  Multiply(x, multiplier) of sums of terms
//   Output(params)(v0, v1, v2, v3)      results to bytes
#pragma once

#include "runtime/kernels/pairs/pairs.h"
#include "runtime/kernels/quantization/requantize.h"

namespace atollrt {
namespace {

// ---- Multipliers on x86 -------------------------------------------------------------------------
//
// Lanes there are derived from this, and have Set(x), SetWide(x) and
// ShiftLeft(x, count), too.
#if defined(__x86_64__)
template <typename Lanes>
struct X86Multipliers {
  static Scale Uniform(Multiplier m) {
    return FixedPointScale(Lanes::Set(m.value), Lanes::Set(-m.exponent));
  }

  // Of a multiplier below a half.
  struct Sum {
    explicit Sum(Multiplier m) : scale(Uniform(m)) {}
    Vector operator()(Vector x) const { return Rescale<Epilogue::kFixedPoint>(x, scale); }
    Scale scale;
  };

  struct Term {
    Term(Multiplier m, int32_t left_shift)
        : is_half(IsHalf(m)),
          rescale(is_half ? Multiplier{0, -1} : m),
          shift(_mm_cvtsi32_si128(is_half ? left_shift - 1 : left_shift)) {}
    Vector operator()(Vector x) const {
      const Vector shifted = Lanes::ShiftLeft(x, shift);
      return is_half ? shifted : rescale(shifted);
    }
    bool is_half;
    Sum rescale;
    __m128i shift;  // one less if halved
  };

  // Of any multiplier. Those of a half and more have no second rounding: they are the high half of
  // 2 (x << exponent) value + 2^31.
  struct Factor {
    explicit Factor(Multiplier m)
        : is_below_half(m.exponent < 0),
          below(is_below_half ? m : Multiplier{m.value, -1}),
          shift(_mm_cvtsi32_si128(m.exponent + 1)) {
      if (!is_below_half)
        below.scale.rounding_even = below.scale.rounding_odd = Lanes::SetWide(int64_t{1} << 31);
    }
    Vector operator()(Vector x) const {
      return is_below_half ? below(x) : MultiplyHigh(Lanes::ShiftLeft(x, shift), below.scale);
    }
    bool is_below_half;
    Sum below;  // else the value and the rounding
    __m128i shift;
  };

  struct Output {
    explicit Output(const PairParams& p) : bytes(LoadBytes(p.output_zero_point, p.clamp)) {}
    ByteVector operator()(Vector v0, Vector v1, Vector v2, Vector v3) const {
      return ToBytes(v0, v1, v2, v3, bytes);
    }
    Bytes bytes;
  };
};
#endif

// ---- Operators ----------------------------------------------------------------------------------

// From Vectors of both inputs, less their zero points, to the rescaled result.
template <typename Lanes, PairOp kOp>
struct Combination {
  explicit Combination(const PairParams& p)
      : term1(p.input1, p.left_shift), term2(p.input2, p.left_shift), output(p.output) {}
  Vector operator()(Vector a, Vector b) const {
    const Vector x = term1(a);
    const Vector y = term2(b);
    Vector sum = kOp == PairOp::kAdd ? Lanes::Add(x, y) : Lanes::Subtract(x, y);
    if constexpr (kOp == PairOp::kSquaredDifference) sum = Lanes::Multiply(sum, sum);
    return output(sum);
  }
  const typename Lanes::Term term1, term2;
  const typename Lanes::Sum output;
};

template <typename Lanes>
struct Combination<Lanes, PairOp::kMultiply> {
  explicit Combination(const PairParams& p) : output(p.output) {}
  Vector operator()(Vector a, Vector b) const { return output(Lanes::Multiply(a, b)); }
  const typename Lanes::Factor output;
};

template <typename Lanes>
struct Combination<Lanes, PairOp::kPrelu> {
  explicit Combination(const PairParams& p) : positive(p.input1), negative(p.output) {}
  Vector operator()(Vector a, Vector b) const {
    return Lanes::WhereNegative(a, negative(Lanes::Multiply(a, b)), positive(a));
  }
  const typename Lanes::Factor positive, negative;
};

// y = block(x1, x2), a ByteVector at a time; the last bytes by way of copies, so that there is one
// code.
template <typename Block>
inline void ForEachBlock(const uint8_t* x1, const uint8_t* x2, uint8_t* y, int64_t count,
                         const Block& block) {
  constexpr int64_t kBytes = sizeof(ByteVector);
  alignas(ByteVector) uint8_t rest1[kBytes] = {}, rest2[kBytes] = {}, rest[kBytes];
  uint8_t* to = y;
  for (int64_t left = count; left > 0; left -= kBytes, x1 += kBytes, x2 += kBytes, to += kBytes) {
    if (left < kBytes) {
      __builtin_memcpy(rest1, x1, static_cast<size_t>(left));
      __builtin_memcpy(rest2, x2, static_cast<size_t>(left));
      x1 = rest1;
      x2 = rest2;
      to = rest;
    }
    StoreBytes(to, block(x1, x2));
  }
  const int64_t whole = count / kBytes * kBytes;
  if (whole < count) __builtin_memcpy(y + whole, rest, static_cast<size_t>(count - whole));
}

template <typename Lanes, PairOp kOp>
void Combine(const PairParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
             int64_t count) {
  const Combination<Lanes, kOp> combine(params);
  const typename Lanes::Operand operand1(params.type, params.input1_zero_point);
  const typename Lanes::Operand operand2(params.type, params.input2_zero_point);
  const typename Lanes::Output output(params);
  ForEachBlock(x1, x2, y, count, [&](const uint8_t* from1, const uint8_t* from2) {
    Vector v[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      v[j] = combine(Lanes::Widen(from1, j, operand1), Lanes::Widen(from2, j, operand2));
    }
    return output(v[0], v[1], v[2], v[3]);
  });
}

// MAXIMUM and MINIMUM of bytes of type T.
template <typename T, PairOp kOp>
void Select(const uint8_t* x1, const uint8_t* x2, uint8_t* y, int64_t count) {
  typedef T Values __attribute__((vector_size(sizeof(ByteVector))));
  ForEachBlock(x1, x2, y, count, [](const uint8_t* from1, const uint8_t* from2) {
    Values a, b;
    __builtin_memcpy(&a, from1, sizeof(a));
    __builtin_memcpy(&b, from2, sizeof(b));
    return reinterpret_cast<ByteVector>(kOp == PairOp::kMaximum ? (a > b ? a : b)
                                                                : (a < b ? a : b));
  });
}

template <typename Lanes>
void CombinePairs(const PairParams& params, const uint8_t* x1, const uint8_t* x2, uint8_t* y,
                  int64_t count) {
  const bool is_signed = params.type == ByteType::kInt8;
  switch (params.op) {
    case PairOp::kAdd:
      return Combine<Lanes, PairOp::kAdd>(params, x1, x2, y, count);
    case PairOp::kSubtract:
      return Combine<Lanes, PairOp::kSubtract>(params, x1, x2, y, count);
    case PairOp::kSquaredDifference:
      return Combine<Lanes, PairOp::kSquaredDifference>(params, x1, x2, y, count);
    case PairOp::kMultiply:
      return Combine<Lanes, PairOp::kMultiply>(params, x1, x2, y, count);
    case PairOp::kPrelu:
      return Combine<Lanes, PairOp::kPrelu>(params, x1, x2, y, count);
    case PairOp::kMaximum:
      return is_signed ? Select<int8_t, PairOp::kMaximum>(x1, x2, y, count)
                       : Select<uint8_t, PairOp::kMaximum>(x1, x2, y, count);
    case PairOp::kMinimum:
      return is_signed ? Select<int8_t, PairOp::kMinimum>(x1, x2, y, count)
                       : Select<uint8_t, PairOp::kMinimum>(x1, x2, y, count);
  }
}

}  // namespace
}  // namespace atollrt
