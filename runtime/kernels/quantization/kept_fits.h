// SPDX-License-Identifier: Apache-2.0
//
// What FitFloatColumn found, as packed weights keep it (docs/executable.md, "Packed weights"),
// beside all that it was found for: kKeptFitBytes a column, little-endian. It is used for a column
// that is the same in all of that, so two operators may share their weights, not their scales.
// Bytes of a file are not proven anew: those that lie give wrong numbers, and nothing worse.
//
//   0   multiplier, least, largest     32 bits each
//   12  scale, offset                  float
//   20  exception                      32 bits
//   24  low, high                      16 bits each
//   28  exponent                       8 bits
//   29  form; 255: nothing is kept
//   30  1 if it holds for all steps that the clamp leaves
//   31  0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/kernels/quantization/float_stage.h"

namespace atollrt {

inline constexpr size_t kKeptFitBytes = 32;

void KeepFit(const FittedColumn& fitted, uint8_t* bytes);

// Nothing if the bytes are of another column.
std::optional<FloatColumn> KeptFit(const FixedPointColumn& column, const uint8_t* bytes);

}  // namespace atollrt
