// SPDX-License-Identifier: Apache-2.0
//
// Loops over neighbouring elements, which compilers turn into vector code by themselves: their one
// source (row_loops.inc and what it includes) is compiled once per instruction set, and a RowLoops
// holds what came out. All levels give the same bytes, floats included: nothing is contracted,
// reassociated or approximated.
//
// Operators call them for rows, blocks or ranges of their tensors, from as many threads as they
// like: no loop keeps state or allocates. Operands may be unaligned. A result may lie where an
// operand of the same element size lies, but not overlap it otherwise. Counts may be 0. ISA files
// include this header, hence no inline functions here.
#pragma once

#include <cstdint>

namespace atollrt {

// Elements of tensors that have a fixed size. A bool is a byte that is not 0, and written as 1.
enum class Element : uint8_t { kInt8, kUInt8, kInt16, kInt32, kUInt32, kInt64, kBool, kFloat32 };

// ---- Pairs of numbers ---------------------------------------------------------------------------

// Integers wrap. The first four clamp by the bounds, of which the others read nothing.
enum class NumberOp : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,             // float32 only
  kMaximum,            // x1 > x2 ? x1 : x2
  kMinimum,            // x1 < x2 ? x1 : x2
  kSquaredDifference,  // not int16
  kPrelu,              // float32 only: x1 >= 0 ? x1 : x1 * x2
  kEqual,              // these compare; their results are bytes of 0 and 1
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
};

// ValueClamp of the type of the elements.
struct NumberBounds {
  float float_min = 0, float_max = 0;
  int64_t min = 0, max = 0;
};

using NumberPairFn = void (*)(const NumberBounds& bounds, const uint8_t* x1, const uint8_t* x2,
                              uint8_t* y, int64_t count);

// ---- Single numbers -----------------------------------------------------------------------------

// Of float32.
enum class FloatFunction : uint8_t {
  kClamp,      // ValueClamp{a, b}
  kLeakyRelu,  // x > 0 ? x : x * a
  kHardSwish,  // x * min(6, max(0, x + 3)) / 6
  kSqrt,
  kRsqrt,  // 1 / sqrt(x)
};
using FloatFn = void (*)(float a, float b, const uint8_t* x, uint8_t* y, int64_t count);

// Floats are truncated and saturated, not-a-number becomes 0; integers keep their low bits.
using CastFn = void (*)(const uint8_t* x, uint8_t* y, int64_t count);

// A scale, positive, and a zero point within int16 or the type, whichever is less.
struct AffineFormat {
  float scale = 1;
  int32_t zero_point = 0;
};
// clamp( round(x / scale) + zero point ), halves away from zero, not-a-number to the minimum.
using QuantizeFn = void (*)(const AffineFormat& format, const uint8_t* x, uint8_t* y,
                            int64_t count);
// (x - zero point) * scale, rounded once.
using DequantizeFn = void (*)(const AffineFormat& format, const uint8_t* x, uint8_t* y,
                              int64_t count);

// clamp( MultiplyByQuantizedMultiplier(x - input_zero_point, multiplier) + output_zero_point ) to
// the range of the output's type; the difference wraps, the sum does not.
struct RequantizeParams {
  int32_t input_zero_point = 0;
  int32_t multiplier = 0, exponent = 0;  // a Multiplier
  int32_t output_zero_point = 0;
};
using RequantizeFn = void (*)(const RequantizeParams& params, const uint8_t* x, uint8_t* y,
                              int64_t count);

// ---- Rows of images -----------------------------------------------------------------------------

// A position of an output axis between two cells of the input: `high` counts with this weight,
// `low` with one minus it.
struct FloatTap {
  int32_t low, high;
  float weight;
};
struct IntegerTap {
  int32_t low, high;
  int32_t weight;  // of a one that the arithmetic has
};

// The two halves of a bilinear interpolation. `vertical` mixes two input rows of `count` elements
// into one row of `mixed`, floats into two that are `row_mixed` values apart; `horizontal` makes
// `width` cells of `channels` elements from that. Behind each row it reads, but for nothing, up to
// kResizePadding values, which must be there and be small numbers.
inline constexpr int kResizePadding = 32;
template <typename Tap, typename Mixed>
struct BilinearLoops {
  void (*vertical)(const Tap& row, const uint8_t* low, const uint8_t* high, int64_t count,
                   int64_t row_mixed, Mixed* mixed);
  void (*horizontal)(const Tap* columns, int64_t width, int64_t channels, const Mixed* mixed,
                     int64_t row_mixed, uint8_t* output);
};

// ---- Windows of images --------------------------------------------------------------------------

// Cells of an image, at least one.
struct ByteWindow {
  const uint8_t* cells = nullptr;  // the first
  int64_t rows = 1, columns = 1;
  int64_t row_bytes = 0, column_bytes = 0;  // from one to the next
};

// What bytes are: flip is 0x80 for int8, 0 for uint8, and (x ^ flip) - flip the value. Results are
// clamped to [min, max], within the type's range.
struct PoolFormat {
  uint8_t flip = 0x80;
  int32_t min = -128, max = 127;
};

inline constexpr int64_t kMaxCellsOfSum = 256;

// For each of the first `count` channels, into y, which must not overlap the window.
using WindowFn = void (*)(const ByteWindow& window, const PoolFormat& format, int64_t count,
                          uint8_t* y);

// ---- All of them --------------------------------------------------------------------------------

struct RowLoops {
  // y[i] = table[x[i]].
  void (*apply_table)(const uint8_t* table, const uint8_t* x, uint8_t* y, int64_t count);

  // These return nullptr for what is not computed.
  NumberPairFn (*number_pair)(NumberOp op, Element type);  // int16, int32, int64, float32; bools
                                                           // and uint8 for comparisons
  FloatFn (*float_function)(FloatFunction function);
  CastFn (*cast)(Element from, Element to);
  QuantizeFn (*quantize)(Element to);                    // int8, uint8, int16
  DequantizeFn (*dequantize)(Element from);              // int8, uint8, int16
  RequantizeFn (*requantize)(Element from, Element to);  // int8, uint8, int16, int32, but not
                                                         // bytes to bytes: that is a table

  // For each of `rows` rows of `size` bytes, at least 1: the index of its first byte whose
  // exclusive or with `flip` is the least. 0 finds the least uint8, 0x80 the least int8, 0xff the
  // greatest uint8, 0x7f the greatest int8.
  void (*arg_least_bytes)(const uint8_t* x, int64_t rows, int64_t size, int64_t stride,
                          uint8_t flip, int32_t* y);

  WindowFn greatest_of_window;
  // Rounded as in pool2d.h. At most kMaxCellsOfSum cells.
  WindowFn average_of_window;

  // Sums of bytes ^ flip, so 0x80 makes int8 count 128 more than they are. Of the first `count`
  // channels of at most kMaxCellsOfSum cells; sums must not overlap the window.
  void (*sums_of_window)(const ByteWindow& window, uint8_t flip, int64_t count, uint16_t* sums);
  // Of each of `rows` rows of `size` bytes, added to what is in sums, modulo 2^32.
  void (*add_rows)(const uint8_t* x, int64_t rows, int64_t size, int64_t stride, uint8_t flip,
                   uint32_t* sums);

  // uint8 as float32, int8 as 10-bit fixed point: the weights' one is 1, 1024.
  BilinearLoops<FloatTap, float> resize_uint8;
  BilinearLoops<FloatTap, float> resize_float;
  BilinearLoops<IntegerTap, int32_t> resize_int8;
  BilinearLoops<IntegerTap, int64_t> resize_int16;
  // The same where all weights are sixteenths and so nothing is ever rounded but the result; the
  // weights' one is 16.
  BilinearLoops<IntegerTap, uint16_t> resize_uint8_sixteenths;
  BilinearLoops<IntegerTap, int16_t> resize_int8_sixteenths;
};

#define ATOLL_ROW_LOOPS(name, features) extern const RowLoops name;
#include "runtime/kernels/row_loops/kernels.inc"
#undef ATOLL_ROW_LOOPS

// The fastest for a CPU with `features` (a CpuFeatures); choose once, when preparing.
const RowLoops& ChooseRowLoops(uint32_t features);

}  // namespace atollrt
