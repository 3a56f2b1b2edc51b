// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

// One axis of the image.
struct Axis {
  int32_t input = 1, output = 1;
};
Axis Rows(const ResizeParams& p) { return {p.input_h, p.output_h}; }
Axis Columns(const ResizeParams& p) { return {p.input_w, p.output_w}; }

// An output position between two input positions; high counts with weight `fraction`, low with
// one minus it. Beyond the border low equals high; a float fraction may then be outside [0, 1].
template <typename Weight>
struct Tap {
  int32_t low, high;
  Weight fraction;
};
using IntegerTap = Tap<int32_t>;  // 1024 is one
using FloatTap = Tap<float>;
constexpr int32_t kOne = 1024;
static_assert(sizeof(IntegerTap) == sizeof(FloatTap));

float FloatStep(Axis axis, ResizeMode mode) {
  if (mode == ResizeMode::kAlignCorners && axis.output > 1) {
    return static_cast<float>(axis.input - 1) / static_cast<float>(axis.output - 1);
  }
  return static_cast<float>(axis.input) / static_cast<float>(axis.output);
}

IntegerTap MakeIntegerTap(Axis axis, ResizeMode mode, int32_t index) {
  int64_t step = (int64_t{axis.input} * kOne + axis.output / 2) / axis.output;
  if (mode == ResizeMode::kAlignCorners && axis.output > 1) {
    step = (int64_t{axis.input - 1} * kOne + (axis.output - 1) / 2) / (axis.output - 1);
  }
  int64_t position = index * step;
  if (mode == ResizeMode::kHalfPixelCenters) position += step / 2 - kOne / 2;
  // The rounded step may lead past the end. Where both are the same cell the weights do not matter,
  // as long as their sum is one.
  const int64_t low = std::clamp<int64_t>(position / kOne, 0, axis.input - 1);
  const int64_t high = std::clamp<int64_t>((position + kOne - 1) / kOne, 0, axis.input - 1);
  return {static_cast<int32_t>(low), static_cast<int32_t>(high),
          low == high ? 0 : static_cast<int32_t>(position - low * kOne)};
}

FloatTap MakeFloatTap(Axis axis, ResizeMode mode, int32_t index) {
  const float step = FloatStep(axis, mode);
  const float position = mode == ResizeMode::kHalfPixelCenters
                             ? (static_cast<float>(index) + 0.5f) * step - 0.5f
                             : static_cast<float>(index) * step;
  const auto cell = [&](float rounded) {
    return static_cast<int32_t>(
        std::clamp<int64_t>(static_cast<int64_t>(rounded), 0, axis.input - 1));
  };
  const int32_t low = cell(std::floor(position));
  return {low, cell(std::ceil(position)), position - static_cast<float>(low)};
}

int32_t NearestIndex(Axis axis, ResizeMode mode, int32_t index) {
  const float offset = mode == ResizeMode::kHalfPixelCenters ? 0.5f : 0.0f;
  const float position = (static_cast<float>(index) + offset) * FloatStep(axis, mode);
  const float rounded =
      mode == ResizeMode::kAlignCorners ? std::round(position) : std::floor(position);
  const int64_t cell = static_cast<int64_t>(rounded);
  return static_cast<int32_t>(std::clamp<int64_t>(cell, 0, axis.input - 1));
}

// make(axis, mode, index) of every output index.
template <typename Entry, typename Make>
Result<Buffer> MakeTable(Axis axis, ResizeMode mode, Make make) {
  ATOLL_ASSIGN_OR_RETURN(Buffer buffer,
                         Buffer::Allocate(static_cast<size_t>(axis.output) * sizeof(Entry)));
  Entry* entries = reinterpret_cast<Entry*>(buffer.data());
  for (int32_t i = 0; i < axis.output; ++i) entries[i] = make(axis, mode, i);
  return buffer;
}

// ---- The two arithmetics ------------------------------------------------------------------------
//
// Vertical() combines the elements of two input rows; a whole input row of its results is in
// scratch. Cell() combines these for two columns.

// Sum: int64 for int16, whose sums reach 2^35; those of int8 reach 2^27.
template <typename Sum>
struct IntegerBlend {
  using TapType = IntegerTap;
  using Mixed = Sum;
  static constexpr int kRows = 1;  // of scratch

  template <typename T>
  static void Vertical(const IntegerTap& tap, const uint8_t* low, const uint8_t* high,
                       int64_t count, Mixed* mixed) {
    for (int64_t i = 0; i < count; ++i) {
      const Sum a = LoadLittleEndian<T>(low + i * static_cast<int64_t>(sizeof(T)));
      const Sum b = LoadLittleEndian<T>(high + i * static_cast<int64_t>(sizeof(T)));
      mixed[i] = a * (kOne - tap.fraction) + b * tap.fraction;
    }
  }

  // Halves away from zero: like a > 0 ? (a + half) / 2^20 : (a - half) / 2^20.
  template <typename T>
  static void Cell(const IntegerTap& tap, const Mixed* mixed, int64_t /*row_count*/,
                   int64_t channels, T* output) {
    constexpr int kShift = 20;
    const Mixed* low = mixed + tap.low * channels;
    const Mixed* high = mixed + tap.high * channels;
    for (int64_t c = 0; c < channels; ++c) {
      const Sum sum = low[c] * (kOne - tap.fraction) + high[c] * tap.fraction;
      const Sum half = (Sum{1} << (kShift - 1)) - (sum < 0 ? 1 : 0);
      output[c] = static_cast<T>((sum + half) >> kShift);
    }
  }
};

// Each product and sum is rounded to float32 in TensorFlow Lite's order: the four cells
// (low, low), (high, low), (low, high), (high, high) as (row, column), rows weighted first.
struct FloatBlend {
  using TapType = FloatTap;
  using Mixed = float;
  static constexpr int kRows = 2;

  template <typename T>
  static void Vertical(const FloatTap& tap, const uint8_t* low, const uint8_t* high, int64_t count,
                       float* mixed) {
    const float rest = 1 - tap.fraction;
    for (int64_t i = 0; i < count; ++i) {
      const T a = LoadLittleEndian<T>(low + i * static_cast<int64_t>(sizeof(T)));
      const T b = LoadLittleEndian<T>(high + i * static_cast<int64_t>(sizeof(T)));
      mixed[i] = static_cast<float>(a) * rest;
      mixed[count + i] = static_cast<float>(b) * tap.fraction;
    }
  }

  template <typename T>
  static void Cell(const FloatTap& tap, const float* mixed, int64_t row_count, int64_t channels,
                   T* output) {
    const float* low = mixed + tap.low * channels;
    const float* high = mixed + tap.high * channels;
    const float rest = 1 - tap.fraction;
    for (int64_t c = 0; c < channels; ++c) {
      const float sum = low[c] * rest + low[row_count + c] * rest + high[c] * tap.fraction +
                        high[row_count + c] * tap.fraction;
      if constexpr (sizeof(T) == 1) {
        output[c] = static_cast<T>(static_cast<int32_t>(sum + 0.5f));
      } else {
        output[c] = sum;
      }
    }
  }
};

bool IsInteger(ResizeType type) { return type == ResizeType::kInt8 || type == ResizeType::kInt16; }

}  // namespace

Result<BilinearResize> BilinearResize::Prepare(const ResizeParams& params, ResizeType type) {
  BilinearResize resize;
  resize.params_ = params;
  resize.type_ = type;
  const auto make = [&](Axis axis) {
    return IsInteger(type) ? MakeTable<IntegerTap>(axis, params.mode, MakeIntegerTap)
                           : MakeTable<FloatTap>(axis, params.mode, MakeFloatTap);
  };
  ATOLL_ASSIGN_OR_RETURN(resize.rows_, make(Rows(params)));
  ATOLL_ASSIGN_OR_RETURN(resize.columns_, make(Columns(params)));
  return resize;
}

size_t BilinearResize::RowScratchBytes() const {
  const size_t mixed_bytes = type_ == ResizeType::kInt8 ? 4 : 8;  // or two rows of float32
  return AlignUp(
      static_cast<size_t>(params_.input_w) * static_cast<size_t>(params_.channels) * mixed_bytes,
      Buffer::kAlignment);
}

size_t BilinearResize::ScratchBytes(int threads) const {
  return static_cast<size_t>(threads) * RowScratchBytes();
}

template <typename T, typename Blend>
void BilinearResize::RunRows(const uint8_t* input, uint8_t* output, uint8_t* scratch,
                             ThreadPool* pool) const {
  using TapType = typename Blend::TapType;
  const ResizeParams& p = params_;
  const TapType* rows = reinterpret_cast<const TapType*>(rows_.data());
  const TapType* columns = reinterpret_cast<const TapType*>(columns_.data());
  const int64_t channels = p.channels;
  const int64_t row_count = p.input_w * channels;
  const int64_t row_bytes = row_count * static_cast<int64_t>(sizeof(T));
  const int64_t lines = int64_t{p.batch} * p.output_h;
  const int threads = pool == nullptr ? 1 : pool->threads();
  ParallelFor(pool, threads, [&](int task, int worker) {
    auto* mixed = reinterpret_cast<typename Blend::Mixed*>(scratch + static_cast<size_t>(worker) *
                                                                         RowScratchBytes());
    for (int64_t line = lines * task / threads; line < lines * (task + 1) / threads; ++line) {
      const TapType& row = rows[line % p.output_h];
      const uint8_t* image = input + line / p.output_h * p.input_h * row_bytes;
      Blend::template Vertical<T>(row, image + row.low * row_bytes, image + row.high * row_bytes,
                                  row_count, mixed);
      T* out = reinterpret_cast<T*>(output) + line * p.output_w * channels;
      for (int32_t x = 0; x < p.output_w; ++x, out += channels) {
        Blend::template Cell<T>(columns[x], mixed, row_count, channels, out);
      }
    }
  });
}

void BilinearResize::Run(const uint8_t* input, uint8_t* output, uint8_t* scratch,
                         ThreadPool* pool) const {
  switch (type_) {
    case ResizeType::kInt8:
      return RunRows<int8_t, IntegerBlend<int32_t>>(input, output, scratch, pool);
    case ResizeType::kUInt8:
      return RunRows<uint8_t, FloatBlend>(input, output, scratch, pool);
    case ResizeType::kInt16:
      return RunRows<int16_t, IntegerBlend<int64_t>>(input, output, scratch, pool);
    case ResizeType::kFloat32:
      return RunRows<float, FloatBlend>(input, output, scratch, pool);
  }
}

Result<NearestResize> NearestResize::Prepare(const ResizeParams& params, int64_t cell_bytes) {
  NearestResize resize;
  resize.params_ = params;
  resize.cell_bytes_ = cell_bytes;
  ATOLL_ASSIGN_OR_RETURN(resize.rows_, MakeTable<int32_t>(Rows(params), params.mode, NearestIndex));
  ATOLL_ASSIGN_OR_RETURN(resize.columns_,
                         MakeTable<int32_t>(Columns(params), params.mode, NearestIndex));
  return resize;
}

void NearestResize::Run(const uint8_t* input, uint8_t* output, ThreadPool* pool) const {
  const ResizeParams& p = params_;
  const int32_t* rows = reinterpret_cast<const int32_t*>(rows_.data());
  const int32_t* columns = reinterpret_cast<const int32_t*>(columns_.data());
  const int64_t input_row = p.input_w * cell_bytes_;
  const int64_t output_row = p.output_w * cell_bytes_;
  const int64_t lines = int64_t{p.batch} * p.output_h;
  const int threads = pool == nullptr ? 1 : pool->threads();
  ParallelFor(pool, threads, [&](int task, int) {
    const int64_t first = lines * task / threads;
    for (int64_t line = first; line < lines * (task + 1) / threads; ++line) {
      const int64_t y = line % p.output_h;
      uint8_t* out = output + line * output_row;
      if (line > first && y > 0 && rows[y] == rows[y - 1]) {
        std::memcpy(out, out - output_row, static_cast<size_t>(output_row));
        continue;
      }
      const uint8_t* row = input + (line / p.output_h * p.input_h + rows[y]) * input_row;
      for (int32_t x = 0; x < p.output_w; ++x, out += cell_bytes_) {
        std::memcpy(out, row + columns[x] * cell_bytes_, static_cast<size_t>(cell_bytes_));
      }
    }
  });
}

}  // namespace atollrt
