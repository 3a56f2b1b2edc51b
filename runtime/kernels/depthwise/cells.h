// SPDX-License-Identifier: Apache-2.0
//
// Depthwise convolution on registers of 512 bits and of NEON, for inclusion by ISA files only,
// which say how cells are multiplied. A Vector of a cell has all taps of kLanes channels.
//
// `Products` is a class with
//   kPixels    output pixels at a time
//   kVectors   Vectors of channels at a time; four of them, of some pixels, make bytes
//   kSums      vectors of sums per Vector of channels
//
//   Load(from)                a Vector of a cell or of weights
//   Start(bias, sums)         the sums before the first product
//   Add(sums, cell, weight)   adds the products of a Vector
//   Total(sums)               one sum per channel
#pragma once

#include "runtime/kernels/depthwise/depthwise_kernel.h"
#include "runtime/kernels/isa_bytes.h"
#include "runtime/kernels/quantization/requantize.h"

namespace atollrt {
namespace {

// Cells of four taps of one byte, of which those of type kFlipped are moved by 128.
template <ByteType kFlipped>
void InterleaveFourTaps(const InterleaveArgs& args) {
  constexpr int kTaps = 4;
  typedef uint16_t Pairs8 __attribute__((vector_size(16)));
  const uint8_t flip = args.type == kFlipped ? 0x80 : 0;
  for (int32_t c = 0; c < args.channels; c += kDepthwiseBlock) {
    const uint8_t* source[kTaps];
    for (int t = 0; t < kTaps; ++t) source[t] = args.taps[t].pixels + c;
    uint8_t* cell = args.cells + c / kDepthwiseBlock * args.block_stride;
    for (int32_t p = 0; p < args.pixels; ++p, cell += kDepthwiseCellBytes) {
      Bytes16 tap[kTaps];
#pragma GCC unroll 4
      for (int t = 0; t < kTaps; ++t) {
        tap[t] = Load16Before(source[t], args.taps[t].end) ^ flip;
        source[t] += args.taps[t].stride;
      }
      // Pairs of taps, then pairs of pairs.
      const auto low = [](Bytes16 a, Bytes16 b) {
        return reinterpret_cast<Pairs8>(
            __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
      };
      const auto high = [](Bytes16 a, Bytes16 b) {
        return reinterpret_cast<Pairs8>(__builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27,
                                                                12, 28, 13, 29, 14, 30, 15, 31));
      };
      const auto store = [cell](Pairs8 a, Pairs8 b, int at) {
        const Pairs8 first = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
        const Pairs8 last = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
        __builtin_memcpy(cell + at, &first, sizeof(first));
        __builtin_memcpy(cell + at + 16, &last, sizeof(last));
      };
      store(low(tap[0], tap[1]), low(tap[2], tap[3]), 0);
      store(high(tap[0], tap[1]), high(tap[2], tap[3]), 32);
    }
  }
}

#if defined(__x86_64__)
// `Products` of one Vector of channels. `Sum` is a class with Add(sums, cell, weight).
template <typename Sum>
struct X86Products {
  using Cell = Vector;
  static constexpr int kPixels = 4;
  static constexpr int kVectors = 1;
  static constexpr int kSums = 1;
  static Vector Load(const uint8_t* from) { return LoadVector(from); }
  static void Start(Vector bias, Vector sums[1]) { sums[0] = bias; }
  static void Add(Vector sums[1], Vector cell, Vector weight) {
    sums[0] = Sum::Add(sums[0], cell, weight);
  }
  static Vector Total(const Vector sums[1]) { return sums[0]; }
};
#endif

// Some channels of a block over a row of output pixels.
struct BlockArgs {
  const DepthwiseArgs* all;
  const DepthwiseBlock* block;
  const uint8_t* cells;
  int64_t first_byte;  // of a cell
  int32_t channel;
  int32_t channels;
};

// The sums of Products::kPixels output pixels, whose first cells are given.
template <typename Products>
inline void Accumulate(const BlockArgs& args, const uint8_t* const cells[Products::kPixels],
                       const Vector bias[Products::kVectors],
                       Vector totals[Products::kPixels * Products::kVectors]) {
  constexpr int kVectors = Products::kVectors;
  constexpr int kVectorBytes = kDepthwiseCellBytes / kDepthwiseBlock * kLanes;
  const DepthwiseBlock& block = *args.block;
  Vector sums[Products::kPixels][kVectors][Products::kSums];
#pragma GCC unroll 4
  for (int p = 0; p < Products::kPixels; ++p) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) Products::Start(bias[i], sums[p][i]);
  }
  for (int64_t g = 0; g < block.tap_groups; ++g) {
    const int64_t offset = block.offsets[g] + args.first_byte;
    const uint8_t* const weights = block.weights + g * kDepthwiseCellBytes + args.first_byte;
    typename Products::Cell weight[kVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) weight[i] = Products::Load(weights + kVectorBytes * i);
#pragma GCC unroll 4
    for (int p = 0; p < Products::kPixels; ++p) {
      typename Products::Cell cell[kVectors];
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) {
        cell[i] = Products::Load(cells[p] + offset + kVectorBytes * i);
      }
#pragma GCC unroll 4
      for (int i = 0; i < kVectors; ++i) Products::Add(sums[p][i], cell[i], weight[i]);
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < Products::kPixels; ++p) {
#pragma GCC unroll 4
    for (int i = 0; i < kVectors; ++i) totals[kVectors * p + i] = Products::Total(sums[p][i]);
  }
}

// bytes[pixel][channel] of kPixels pixels to `to`, `channels` of each. They may be the same pixel.
template <int kPixels, int kWidth>
inline void StorePixels(const ByteVector (&bytes)[kPixels * kWidth / sizeof(ByteVector)],
                        int32_t channels, uint8_t* const to[kPixels]) {
#if defined(__AVX512BW__)
  StoreQuarters(bytes[0], LowBytes16(channels), to);
#else
  alignas(ByteVector) uint8_t memory[kPixels * kWidth];
  constexpr int kBytes = sizeof(ByteVector);
#pragma GCC unroll 4
  for (int i = 0; i < kPixels * kWidth / kBytes; ++i) StoreBytes(memory + kBytes * i, bytes[i]);
#pragma GCC unroll 4
  for (int p = 0; p < kPixels; ++p) {
    if (channels == kWidth) {
      __builtin_memcpy(to[p], memory + kWidth * p, kWidth);
    } else {
      for (int32_t c = 0; c < channels; ++c) to[p][c] = memory[kWidth * p + c];
    }
  }
#endif
}

template <typename Products, Epilogue kEpilogue>
void RunBlock(const BlockArgs& block) {
  constexpr int kPixels = Products::kPixels;
  constexpr int kVectors = Products::kVectors;
  constexpr int kWidth = kVectors * kLanes;  // channels, and bytes of a pixel
  const DepthwiseArgs& args = *block.all;
  const OutputColumns& columns = *args.columns;
  const bool vectorizable = columns.wide_vectorizable[block.channel / OutputColumns::kBlock] != 0;
  const Bytes to_bytes = LoadBytes(columns.zero_point, columns.clamp);
  Scale scale[kVectors];
  Vector bias[kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kVectors; ++i) {
    scale[i] = LoadScale<kEpilogue>(columns, block.channel + kLanes * i);
    bias[i] = LoadVector(columns.bias + block.channel + kLanes * i);
  }
  for (int32_t first = 0; first < args.pixels; first += kPixels) {
    // Past the end, the last pixel is computed again.
    int32_t pixel[kPixels];
    const uint8_t* cells[kPixels];
#pragma GCC unroll 4
    for (int p = 0; p < kPixels; ++p) {
      pixel[p] = first + p < args.pixels ? first + p : args.pixels - 1;
      cells[p] = block.cells + pixel[p] * args.pixel_step;
    }
    Vector v[kPixels * kVectors];
    Accumulate<Products>(block, cells, bias, v);
    uint8_t* const output = args.output + block.channel;
    if (!vectorizable) {
      alignas(Vector) int32_t plain[kPixels * kWidth];
      for (int i = 0; i < kPixels * kVectors; ++i) StoreVector(plain + kLanes * i, v[i]);
      const int32_t rows = args.pixels - first < kPixels ? args.pixels - first : kPixels;
      RequantizePlain(columns, {plain, kWidth, rows, block.channel, block.channels,
                                output + first * args.output_stride, args.output_stride});
      continue;
    }
    uint8_t* to[kPixels];
#pragma GCC unroll 4
    for (int p = 0; p < kPixels; ++p) to[p] = output + pixel[p] * args.output_stride;
    ByteVector bytes[kPixels * kVectors / 4];
#pragma GCC unroll 4
    for (int i = 0; i < kPixels * kVectors; i += 4) {
      bytes[i / 4] = ToBytes(Rescale<kEpilogue>(v[i], scale[i % kVectors]),
                             Rescale<kEpilogue>(v[i + 1], scale[(i + 1) % kVectors]),
                             Rescale<kEpilogue>(v[i + 2], scale[(i + 2) % kVectors]),
                             Rescale<kEpilogue>(v[i + 3], scale[(i + 3) % kVectors]), to_bytes);
    }
    StorePixels<kPixels, kWidth>(bytes, block.channels, to);
  }
}

template <typename Products>
void Run(const DepthwiseArgs& args) {
  constexpr int32_t kWidth = Products::kVectors * kLanes;
  for (int32_t c = 0; c < args.channels; c += kWidth) {
    const int32_t b = c / kDepthwiseBlock;
    const int32_t left = args.channels - c;
    const BlockArgs block = {&args,
                             args.blocks + b,
                             args.cells + b * args.block_stride,
                             c % kDepthwiseBlock * (kDepthwiseCellBytes / kDepthwiseBlock),
                             args.first_channel + c,
                             left < kWidth ? left : kWidth};
    WithEpilogue<Products::kVectors>(*args.columns, block.channel, [&]<Epilogue kEpilogue>() {
      RunBlock<Products, kEpilogue>(block);
    });
  }
}

}  // namespace
}  // namespace atollrt
