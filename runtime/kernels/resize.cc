// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/resize.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/kernels/scratch.h"

namespace atollrt {
namespace {

// ---- Where an output position lies in the input -------------------------------------------------

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
constexpr int32_t kOne = 1024;  // of an integer fraction

class IntegerTaps {
 public:
  using Entry = Tap<int32_t>;

  IntegerTaps(Axis axis, ResizeMode mode) : last_(axis.input - 1) {
    step_ = (int64_t{axis.input} * kOne + axis.output / 2) / axis.output;
    if (mode == ResizeMode::kAlignCorners && axis.output > 1) {
      step_ = (int64_t{last_} * kOne + (axis.output - 1) / 2) / (axis.output - 1);
    }
    if (mode == ResizeMode::kHalfPixelCenters) offset_ = step_ / 2 - kOne / 2;
  }

  // The rounded step may lead past the end. Where both are the same cell the weights do not matter,
  // as long as their sum is one.
  Entry At(int32_t index) const {
    const int64_t position = index * step_ + offset_;
    const int64_t low = std::clamp<int64_t>(position / kOne, 0, last_);
    const int64_t high = std::clamp<int64_t>((position + kOne - 1) / kOne, 0, last_);
    return {static_cast<int32_t>(low), static_cast<int32_t>(high),
            low == high ? 0 : static_cast<int32_t>(position - low * kOne)};
  }

 private:
  int32_t last_;
  int64_t step_ = 0, offset_ = 0;
};

float FloatStep(Axis axis, ResizeMode mode) {
  if (mode == ResizeMode::kAlignCorners && axis.output > 1) {
    return static_cast<float>(axis.input - 1) / static_cast<float>(axis.output - 1);
  }
  return static_cast<float>(axis.input) / static_cast<float>(axis.output);
}

class FloatTaps {
 public:
  using Entry = Tap<float>;

  FloatTaps(Axis axis, ResizeMode mode)
      : last_(axis.input - 1), mode_(mode), step_(FloatStep(axis, mode)) {}

  Entry At(int32_t index) const {
    const float position = mode_ == ResizeMode::kHalfPixelCenters
                               ? (static_cast<float>(index) + 0.5f) * step_ - 0.5f
                               : static_cast<float>(index) * step_;
    const int64_t whole = static_cast<int64_t>(position);  // truncated
    const int32_t low = Cell(whole - (position < static_cast<float>(whole) ? 1 : 0));
    const int32_t high = Cell(whole + (position > static_cast<float>(whole) ? 1 : 0));
    return {low, high, position - static_cast<float>(low)};
  }

 private:
  int32_t Cell(int64_t index) const {
    return static_cast<int32_t>(std::clamp<int64_t>(index, 0, last_));
  }

  int32_t last_;
  ResizeMode mode_;
  float step_;
};

class NearestCells {
 public:
  NearestCells(Axis axis, ResizeMode mode)
      : last_(axis.input - 1), mode_(mode), step_(FloatStep(axis, mode)) {}

  // No position is negative, so truncation is floor; halves are rounded up.
  int32_t At(int32_t index) const {
    const float offset = mode_ == ResizeMode::kHalfPixelCenters ? 0.5f : 0.0f;
    const float position = (static_cast<float>(index) + offset) * step_;
    int64_t cell = static_cast<int64_t>(position);
    if (mode_ == ResizeMode::kAlignCorners && position - static_cast<float>(cell) >= 0.5f) ++cell;
    return static_cast<int32_t>(std::min<int64_t>(cell, last_));
  }

 private:
  int32_t last_;
  ResizeMode mode_;
  float step_;
};

// Taps move forwards with the index.
template <typename Taps>
ResizeRows RowsUnder(const Taps& taps, ResizeRows output) {
  const int32_t first = taps.At(output.first).low;
  return {first, taps.At(output.first + output.count - 1).high - first + 1};
}

// ---- The two arithmetics ------------------------------------------------------------------------
//
// An element is made from those of four cells: (low row, low column), (high, low), (low, high),
// (high, high). Of() does that. The part of it that belongs to one column of the input alone is the
// same for all output columns that use it: Vertical() computes it for a whole row, Cell() makes the
// elements of an output position from it.

// Sum: int64 for int16, whose sums reach 2^35; those of int8 reach 2^27.
template <typename T, typename Sum>
struct IntegerBlend {
  using Element = T;
  using Taps = IntegerTaps;
  using TapType = IntegerTaps::Entry;
  using Mixed = Sum;
  static constexpr int kMixedPerElement = 1;

  static Sum Mix(const TapType& tap, Sum low, Sum high) {
    return low * (kOne - tap.fraction) + high * tap.fraction;
  }
  // Halves away from zero: like a > 0 ? (a + half) / 2^20 : (a - half) / 2^20.
  static T Round(Sum sum) {
    constexpr int kShift = 20;
    const Sum half = (Sum{1} << (kShift - 1)) - (sum < 0 ? 1 : 0);
    return static_cast<T>((sum + half) >> kShift);
  }

  static T Of(const TapType& row, const TapType& column, T low_low, T high_low, T low_high,
              T high_high) {
    return Round(Mix(column, Mix(row, low_low, high_low), Mix(row, low_high, high_high)));
  }
  static void Vertical(const TapType& row, const uint8_t* low, const uint8_t* high, int64_t count,
                       Mixed* mixed) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t offset = i * static_cast<int64_t>(sizeof(T));
      mixed[i] = Mix(row, LoadLittleEndian<T>(low + offset), LoadLittleEndian<T>(high + offset));
    }
  }
  static void Cell(const TapType& column, const Mixed* mixed, int64_t /*row_count*/,
                   int64_t channels, T* output) {
    const Mixed* low = mixed + column.low * channels;
    const Mixed* high = mixed + column.high * channels;
    for (int64_t c = 0; c < channels; ++c) output[c] = Round(Mix(column, low[c], high[c]));
  }
};

// Each product and sum is rounded to float32 in TensorFlow Lite's order: the four cells in the
// order above, rows weighted first.
template <typename T>
struct FloatBlend {
  using Element = T;
  using Taps = FloatTaps;
  using TapType = FloatTaps::Entry;
  using Mixed = float;
  static constexpr int kMixedPerElement = 2;  // a row of low ones, a row of high ones

  static T Round(float sum) {
    if constexpr (sizeof(T) == 1) {
      return static_cast<T>(static_cast<int32_t>(sum + 0.5f));
    } else {
      return sum;
    }
  }
  // From products with the rows' weights.
  static T Sum(const TapType& column, float low_low, float high_low, float low_high,
               float high_high) {
    const float rest = 1 - column.fraction;
    return Round(low_low * rest + high_low * rest + low_high * column.fraction +
                 high_high * column.fraction);
  }

  static T Of(const TapType& row, const TapType& column, T low_low, T high_low, T low_high,
              T high_high) {
    const float rest = 1 - row.fraction;
    return Sum(column, static_cast<float>(low_low) * rest,
               static_cast<float>(high_low) * row.fraction, static_cast<float>(low_high) * rest,
               static_cast<float>(high_high) * row.fraction);
  }
  static void Vertical(const TapType& row, const uint8_t* low, const uint8_t* high, int64_t count,
                       float* mixed) {
    const float rest = 1 - row.fraction;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t offset = i * static_cast<int64_t>(sizeof(T));
      mixed[i] = static_cast<float>(LoadLittleEndian<T>(low + offset)) * rest;
      mixed[count + i] = static_cast<float>(LoadLittleEndian<T>(high + offset)) * row.fraction;
    }
  }
  static void Cell(const TapType& column, const float* mixed, int64_t row_count, int64_t channels,
                   T* output) {
    const float* low = mixed + column.low * channels;
    const float* high = mixed + column.high * channels;
    for (int64_t c = 0; c < channels; ++c) {
      output[c] = Sum(column, low[c], low[row_count + c], high[c], high[row_count + c]);
    }
  }
};

// ---- Rows ---------------------------------------------------------------------------------------

// Mixing whole input rows pays off unless most of their cells are skipped.
bool MixesWholeRows(const ResizeParams& p) { return p.input_w / 2 <= p.output_w; }

template <typename Blend>
struct BilinearScratch {
  typename Blend::TapType* columns = nullptr;  // [output_w]
  typename Blend::Mixed* mixed = nullptr;      // [threads, row_mixed] if whole rows are mixed
  int64_t row_mixed = 0;

  BilinearScratch(const ResizeParams& p, int threads, Scratch* scratch)
      : columns(scratch->Take<typename Blend::TapType>(p.output_w)) {
    if (!MixesWholeRows(p)) return;
    constexpr int64_t kAlignment = 64 / sizeof(typename Blend::Mixed);
    row_mixed = int64_t{p.input_w} * p.channels * Blend::kMixedPerElement;
    row_mixed = (row_mixed + kAlignment - 1) / kAlignment * kAlignment;
    mixed = scratch->Take<typename Blend::Mixed>(threads * row_mixed);
  }
};

template <typename Blend>
void Resize(const ResizeParams& p, const ResizeBand& band, const uint8_t* input, uint8_t* output,
            uint8_t* scratch_block, ThreadPool* pool) {
  using T = typename Blend::Element;
  const typename Blend::Taps rows(Rows(p), p.mode);
  const typename Blend::Taps columns(Columns(p), p.mode);
  const int64_t channels = p.channels;
  const int64_t row_count = p.input_w * channels;
  const int64_t cell_bytes = channels * static_cast<int64_t>(sizeof(T));
  const int64_t lines = int64_t{p.batch} * band.output.count;
  const int threads = pool == nullptr ? 1 : pool->threads();
  Scratch layout(scratch_block);
  const BilinearScratch<Blend> scratch(p, threads, &layout);
  for (int32_t x = 0; scratch.columns != nullptr && x < p.output_w; ++x) {
    scratch.columns[x] = columns.At(x);
  }
  ParallelFor(pool, threads, [&](int task, int worker) {
    for (int64_t line = lines * task / threads; line < lines * (task + 1) / threads; ++line) {
      const auto row = rows.At(band.output.first + static_cast<int32_t>(line % band.output.count));
      const int64_t before =
          line / band.output.count * band.input.count - band.input.first;  // of row 0
      const uint8_t* low = input + (before + row.low) * p.input_w * cell_bytes;
      const uint8_t* high = input + (before + row.high) * p.input_w * cell_bytes;
      T* out = reinterpret_cast<T*>(output) + line * p.output_w * channels;
      if (scratch.mixed != nullptr) {
        auto* mixed = scratch.mixed + worker * scratch.row_mixed;
        Blend::Vertical(row, low, high, row_count, mixed);
        for (int32_t x = 0; x < p.output_w; ++x, out += channels) {
          Blend::Cell(scratch.columns[x], mixed, row_count, channels, out);
        }
        continue;
      }
      for (int32_t x = 0; x < p.output_w; ++x, out += channels) {
        const auto column = scratch.columns != nullptr ? scratch.columns[x] : columns.At(x);
        for (int64_t c = 0; c < channels; ++c) {
          const int64_t near = column.low * cell_bytes + c * static_cast<int64_t>(sizeof(T));
          const int64_t far = column.high * cell_bytes + c * static_cast<int64_t>(sizeof(T));
          out[c] = Blend::Of(row, column, LoadLittleEndian<T>(low + near),
                             LoadLittleEndian<T>(high + near), LoadLittleEndian<T>(low + far),
                             LoadLittleEndian<T>(high + far));
        }
      }
    }
  });
}

// visit(Blend()) for the arithmetic of a type.
template <typename Visitor>
auto VisitBlend(ResizeType type, const Visitor& visit) {
  switch (type) {
    case ResizeType::kInt8:
      return visit(IntegerBlend<int8_t, int32_t>());
    case ResizeType::kUInt8:
      return visit(FloatBlend<uint8_t>());
    case ResizeType::kInt16:
      return visit(IntegerBlend<int16_t, int64_t>());
    case ResizeType::kFloat32:
      break;
  }
  return visit(FloatBlend<float>());
}

}  // namespace

ResizeRows BilinearInputRows(const ResizeParams& params, ResizeType type, ResizeRows output) {
  return VisitBlend(type, [&](auto blend) {
    return RowsUnder(typename decltype(blend)::Taps(Rows(params), params.mode), output);
  });
}

ResizeRows NearestInputRows(const ResizeParams& params, ResizeRows output) {
  const NearestCells rows(Rows(params), params.mode);
  const int32_t first = rows.At(output.first);
  return {first, rows.At(output.first + output.count - 1) - first + 1};
}

size_t BilinearScratchBytes(const ResizeParams& params, ResizeType type, int threads) {
  return VisitBlend(type, [&](auto blend) {
    Scratch count(nullptr);
    BilinearScratch<decltype(blend)>(params, threads, &count);
    return count.size();
  });
}

void ResizeBilinear(const ResizeParams& params, ResizeType type, const ResizeBand& band,
                    const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool) {
  VisitBlend(type, [&](auto blend) {
    Resize<decltype(blend)>(params, band, input, output, scratch, pool);
  });
}

void ResizeNearest(const ResizeParams& params, int64_t cell_bytes, const ResizeBand& band,
                   const uint8_t* input, uint8_t* output, ThreadPool* pool) {
  const ResizeParams& p = params;
  const NearestCells rows(Rows(p), p.mode);
  const NearestCells columns(Columns(p), p.mode);
  const int64_t input_row = p.input_w * cell_bytes;
  const int64_t output_row = p.output_w * cell_bytes;
  const int64_t lines = int64_t{p.batch} * band.output.count;
  const int threads = pool == nullptr ? 1 : pool->threads();
  ParallelFor(pool, threads, [&](int task, int) {
    const uint8_t* previous = nullptr;
    for (int64_t line = lines * task / threads; line < lines * (task + 1) / threads; ++line) {
      const int32_t y = band.output.first + static_cast<int32_t>(line % band.output.count);
      const uint8_t* row =
          input +
          (line / band.output.count * band.input.count + rows.At(y) - band.input.first) * input_row;
      uint8_t* out = output + line * output_row;
      if (row == previous) {
        std::memcpy(out, out - output_row, static_cast<size_t>(output_row));
        continue;
      }
      previous = row;
      for (int32_t x = 0; x < p.output_w; ++x, out += cell_bytes) {
        std::memcpy(out, row + columns.At(x) * cell_bytes, static_cast<size_t>(cell_bytes));
      }
    }
  });
}

}  // namespace atollrt
