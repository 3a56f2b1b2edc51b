// SPDX-License-Identifier: Apache-2.0
//
// Sums in memory to bytes, for inclusion by ISA files only (requantize.h).
#pragma once

#include "runtime/kernels/quantization/requantize.h"
#include "runtime/kernels/quantization/store_sums256.h"

namespace atollrt {
namespace {

// Each part of `bytes`, or its first `width` bytes, to where it belongs; the last targets may be
// the same.
template <int kParts>
inline void StoreParts(ByteVector bytes, int32_t width, uint8_t* const to[kParts]) {
  constexpr int kWidth = sizeof(ByteVector) / kParts;
  if (width == kWidth) {
    typedef uint8_t Part __attribute__((vector_size(kWidth)));
    Part parts[kParts];
    __builtin_memcpy(parts, &bytes, sizeof(parts));
#pragma GCC unroll 4
    for (int i = 0; i < kParts; ++i) __builtin_memcpy(to[i], &parts[i], kWidth);
    return;
  }
  alignas(ByteVector) uint8_t memory[sizeof(ByteVector)];
  StoreBytes(memory, bytes);
  for (int i = 0; i < kParts; ++i) {
    for (int32_t c = 0; c < width; ++c) to[i][c] = memory[kWidth * i + c];
  }
}

// Of at most kLanes * kVectors columns, four vectors at a time; the last rows may be done more than
// once.
template <Epilogue kEpilogue, int kVectors>
void StoreRows(const OutputColumns& columns, const RequantizeArgs& args) {
  constexpr int kRowsAtOnce = 4 / kVectors;
  Scale scale[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    scale[v] = LoadScale<kEpilogue>(columns, args.first + kLanes * v);
  }
  const Bytes to_bytes = LoadBytes(columns.zero_point, columns.clamp);
  for (int32_t r = 0; r < args.rows; r += kRowsAtOnce) {
    Vector value[4];
    uint8_t* to[kRowsAtOnce];
#pragma GCC unroll 4
    for (int i = 0; i < kRowsAtOnce; ++i) {
      const int32_t row = r + i < args.rows ? r + i : args.rows - 1;
      const int32_t* const sums = args.accumulators + args.accumulator_stride * row;
      to[i] = args.output + row * args.output_stride;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        value[kVectors * i + v] = Rescale<kEpilogue>(LoadVector(sums + kLanes * v), scale[v]);
      }
    }
    StoreParts<kRowsAtOnce>(ToBytes(value[0], value[1], value[2], value[3], to_bytes), args.count,
                            to);
  }
}

// RequantizePlain of at most kLanes * kVectors columns, the first of which is a multiple of kLanes.
// Whole vectors of sums are read.
template <int kVectors>
void StoreVectors(const OutputColumns& columns, const RequantizeArgs& args) {
  if (columns.wide_vectorizable[args.first / OutputColumns::kBlock] == 0) {
    return RequantizePlain(columns, args);
  }
  if constexpr (kVectors == 2) {
    if (!IsUniform<kVectors>(columns, args.first)) {
      RequantizeArgs half = args;
      half.count = args.count < kLanes ? args.count : kLanes;
      StoreVectors<1>(columns, half);
      half.count = args.count - half.count;
      half.first += kLanes;
      half.accumulators += kLanes;
      half.output += kLanes;
      if (half.count > 0) StoreVectors<1>(columns, half);
      return;
    }
  }
  WithEpilogue<kVectors>(columns, args.first, [&]<Epilogue kEpilogue>() {
    StoreRows<kEpilogue, kVectors>(columns, args);
  });
}

// The same where all levels of a register width share it.
template <int kVectors>
inline void StoreSums(const OutputColumns& columns, const RequantizeArgs& args) {
#if defined(__AVX2__)
  StoreSums256(columns, args);
#else
  StoreVectors<kVectors>(columns, args);
#endif
}

}  // namespace
}  // namespace atollrt
