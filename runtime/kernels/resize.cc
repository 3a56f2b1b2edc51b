// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/resize.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/base/thread_pool.h"
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

// Beyond the border `low` equals `high`; a float weight may then be outside [0, 1].
constexpr int32_t kOne = 1024;  // of an integer weight

class IntegerTaps {
 public:
  using Tap = IntegerTap;

  IntegerTaps(Axis axis, ResizeMode mode) : last_(axis.input - 1) {
    step_ = (int64_t{axis.input} * kOne + axis.output / 2) / axis.output;
    if (mode == ResizeMode::kAlignCorners && axis.output > 1) {
      step_ = (int64_t{last_} * kOne + (axis.output - 1) / 2) / (axis.output - 1);
    }
    if (mode == ResizeMode::kHalfPixelCenters) offset_ = step_ / 2 - kOne / 2;
  }

  // The rounded step may lead past the end. Where both are the same cell the weights do not matter,
  // as long as their sum is one.
  Tap At(int32_t index) const {
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
  using Tap = FloatTap;

  FloatTaps(Axis axis, ResizeMode mode)
      : last_(axis.input - 1), mode_(mode), step_(FloatStep(axis, mode)) {}

  Tap At(int32_t index) const {
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
// same for all output columns that use it: BilinearLoops compute it for a whole row first.

// Sum: int64 for int16, whose sums reach 2^35; those of int8 reach 2^27.
template <typename T, typename Sum>
struct IntegerBlend {
  using Element = T;
  using Taps = IntegerTaps;
  using Mixed = Sum;
  static constexpr int kMixedRows = 1;

  static const BilinearLoops<IntegerTap, Sum>& LoopsOf(const RowLoops& loops) {
    if constexpr (sizeof(T) == 1) {
      return loops.resize_int8;
    } else {
      return loops.resize_int16;
    }
  }

  static Sum Mix(const IntegerTap& tap, Sum low, Sum high) {
    return low * (kOne - tap.weight) + high * tap.weight;
  }
  // Halves away from zero: like a > 0 ? (a + half) / 2^20 : (a - half) / 2^20.
  static T Round(Sum sum) {
    constexpr int kShift = 20;
    const Sum half = (Sum{1} << (kShift - 1)) - (sum < 0 ? 1 : 0);
    return static_cast<T>((sum + half) >> kShift);
  }
  static T Of(const IntegerTap& row, const IntegerTap& column, T low_low, T high_low, T low_high,
              T high_high) {
    return Round(Mix(column, Mix(row, low_low, high_low), Mix(row, low_high, high_high)));
  }
};

// Each product and sum is rounded to float32 in TensorFlow Lite's order: the four cells in the
// order above, rows weighted first.
template <typename T>
struct FloatBlend {
  using Element = T;
  using Taps = FloatTaps;
  using Mixed = float;
  static constexpr int kMixedRows = 2;  // of products with the low row's weight, and the high one's

  static const BilinearLoops<FloatTap, float>& LoopsOf(const RowLoops& loops) {
    return sizeof(T) == 1 ? loops.resize_uint8 : loops.resize_float;
  }

  static T Of(const FloatTap& row, const FloatTap& column, T low_low, T high_low, T low_high,
              T high_high) {
    const float row_rest = 1 - row.weight;
    const float rest = 1 - column.weight;
    const float sum = static_cast<float>(low_low) * row_rest * rest +
                      static_cast<float>(high_low) * row.weight * rest +
                      static_cast<float>(low_high) * row_rest * column.weight +
                      static_cast<float>(high_high) * row.weight * column.weight;
    if constexpr (sizeof(T) == 1) {
      return static_cast<T>(static_cast<int32_t>(sum + 0.5f));
    } else {
      return sum;
    }
  }
};

// ---- Sixteenths ---------------------------------------------------------------------------------
//
// Images are mostly enlarged by small powers of two. Then all weights are sixteenths, nothing is
// rounded before the end in either arithmetic, and 16 bits hold all sums of bytes.

constexpr int32_t kSixteen = 16;

// The same tap in sixteenths; a weight of -1 if there is none.
IntegerTap InSixteenths(const IntegerTap& tap) {
  constexpr int32_t kPart = kOne / kSixteen;
  return {tap.low, tap.high, tap.weight % kPart == 0 ? tap.weight / kPart : -1};
}
IntegerTap InSixteenths(const FloatTap& tap) {
  // Beyond the border, too, other weights would add errors to exact halves.
  const float weight = tap.weight * kSixteen;
  const int32_t whole = static_cast<int32_t>(std::clamp<float>(weight, -kSixteen, kSixteen));
  const bool is_exact = weight == static_cast<float>(whole);
  return {tap.low, tap.high, !is_exact ? -1 : tap.low == tap.high ? 0 : whole};
}

// A byte type's sums, and loops for them.
template <typename T>
struct SixteenthsOf;
template <>
struct SixteenthsOf<uint8_t> {
  using Mixed = uint16_t;
  static const auto& LoopsOf(const RowLoops& loops) { return loops.resize_uint8_sixteenths; }
};
template <>
struct SixteenthsOf<int8_t> {
  using Mixed = int16_t;
  static const auto& LoopsOf(const RowLoops& loops) { return loops.resize_int8_sixteenths; }
};

template <typename Taps>
bool AreSixteenths(const Taps& taps, ResizeRows outputs) {
  for (int32_t i = outputs.first; i < outputs.first + outputs.count; ++i) {
    if (InSixteenths(taps.At(i)).weight < 0) return false;
  }
  return true;
}

// ---- Rows ---------------------------------------------------------------------------------------

// Mixing whole input rows pays off unless most of their cells are skipped.
bool MixesWholeRows(const ResizeParams& p) { return p.input_w / 2 <= p.output_w; }

// Scratch for rows of `Tap` and `Mixed`, of which the columns' taps are common to all threads.
template <typename Tap, typename Mixed>
struct BilinearScratch {
  Tap* columns = nullptr;  // [output_w]
  Mixed* mixed = nullptr;  // [threads, mixed_rows, row_mixed]
  int64_t row_mixed = 0;

  BilinearScratch(const ResizeParams& p, int mixed_rows, int threads, Scratch* scratch)
      : columns(scratch->Take<Tap>(p.output_w)) {
    constexpr uint64_t kAlignment = 64 / sizeof(Mixed);
    row_mixed = static_cast<int64_t>(AlignUp(
        static_cast<uint64_t>(int64_t{p.input_w} * p.channels + kResizePadding), kAlignment));
    mixed = scratch->Take<Mixed>(threads * mixed_rows * row_mixed);
  }
};

// What all ways to make the rows of a band share.
template <typename T>
class BandOfRows {
 public:
  BandOfRows(const ResizeParams& resize, const ResizeBand& band, const uint8_t* input,
             uint8_t* output, ThreadPool* pool)
      : params(resize), input_(input), output_(output), band_(band), pool_(pool) {}

  int64_t row_count() const { return int64_t{params.input_w} * params.channels; }
  int64_t line_count() const { return int64_t{params.output_w} * params.channels; }

  // make(part, index of the output row, first row of its image, output) for all rows; as many parts
  // at once as the pool has threads, each with a number of its own.
  template <typename Make>
  void ForEachLine(Make make) const {
    constexpr int64_t kGrain = 1 << 13;
    const int64_t lines = int64_t{params.batch} * band_.output.count;
    const int64_t threads = pool_ == nullptr ? 1 : pool_->threads();
    const int parts = static_cast<int>(
        std::clamp<int64_t>(lines / std::max<int64_t>(kGrain / line_count(), 1), 1, threads));
    ParallelFor(pool_, parts, [&](int part, int) {
      for (int64_t line = lines * part / parts; line < lines * (part + 1) / parts; ++line) {
        const int64_t image = line / band_.output.count;
        const int64_t first = image * band_.input.count - band_.input.first;
        make(part, band_.output.first + static_cast<int32_t>(line % band_.output.count),
             input_ + first * row_bytes(), output_ + line * line_count() * kSize);
      }
    });
  }
  int64_t row_bytes() const { return row_count() * kSize; }

  const ResizeParams& params;

 private:
  static constexpr int64_t kSize = sizeof(T);

  const uint8_t* const input_;
  uint8_t* const output_;
  const ResizeBand& band_;
  ThreadPool* const pool_;
};

// By loops over whole rows.
template <typename T, typename Tap, typename Mixed, typename RowTap, typename ColumnTap>
void ResizeRowsBy(const BilinearLoops<Tap, Mixed>& loops, int mixed_rows, const BandOfRows<T>& band,
                  const RowTap& row_tap, const ColumnTap& column_tap, int threads,
                  uint8_t* scratch_block) {
  Scratch layout(scratch_block);
  const BilinearScratch<Tap, Mixed> scratch(band.params, mixed_rows, threads, &layout);
  for (int32_t x = 0; x < band.params.output_w; ++x) scratch.columns[x] = column_tap(x);
  for (int row = 0; row < threads * mixed_rows; ++row) {
    std::fill_n(scratch.mixed + row * scratch.row_mixed + band.row_count(), kResizePadding,
                Mixed{0});
  }
  band.ForEachLine([&](int part, int32_t y, const uint8_t* image, uint8_t* output) {
    const Tap row = row_tap(y);
    Mixed* const mixed = scratch.mixed + part * mixed_rows * scratch.row_mixed;
    loops.vertical(row, image + row.low * band.row_bytes(), image + row.high * band.row_bytes(),
                   band.row_count(), scratch.row_mixed, mixed);
    loops.horizontal(scratch.columns, band.params.output_w, band.params.channels, mixed,
                     scratch.row_mixed, output);
  });
}

// Element by element.
template <typename Blend>
void ResizeElements(const BandOfRows<typename Blend::Element>& band,
                    const typename Blend::Taps& rows, const typename Blend::Taps& columns) {
  using T = typename Blend::Element;
  const int64_t channels = band.params.channels;
  band.ForEachLine([&](int, int32_t y, const uint8_t* image, uint8_t* output) {
    const auto row = rows.At(y);
    const uint8_t* low = image + row.low * band.row_bytes();
    const uint8_t* high = image + row.high * band.row_bytes();
    T* out = reinterpret_cast<T*>(output);
    for (int32_t x = 0; x < band.params.output_w; ++x, out += channels) {
      const auto column = columns.At(x);
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t near = (column.low * channels + c) * static_cast<int64_t>(sizeof(T));
        const int64_t far = (column.high * channels + c) * static_cast<int64_t>(sizeof(T));
        out[c] = Blend::Of(row, column, LoadLittleEndian<T>(low + near),
                           LoadLittleEndian<T>(high + near), LoadLittleEndian<T>(low + far),
                           LoadLittleEndian<T>(high + far));
      }
    }
  });
}

template <typename Blend>
void Resize(const ResizeParams& p, const RowLoops& loops, const ResizeBand& band,
            const uint8_t* input, uint8_t* output, uint8_t* scratch, ThreadPool* pool) {
  using T = typename Blend::Element;
  const typename Blend::Taps rows(Rows(p), p.mode);
  const typename Blend::Taps columns(Columns(p), p.mode);
  const BandOfRows<T> lines(p, band, input, output, pool);
  if (scratch == nullptr || !MixesWholeRows(p)) {
    return ResizeElements<Blend>(lines, rows, columns);
  }
  const int threads = pool == nullptr ? 1 : pool->threads();
  if constexpr (sizeof(T) == 1) {
    if (AreSixteenths(rows, band.output) && AreSixteenths(columns, {0, p.output_w})) {
      const auto sixteenths = [](const auto& taps) {
        return [&taps](int32_t i) { return InSixteenths(taps.At(i)); };
      };
      return ResizeRowsBy<T>(SixteenthsOf<T>::LoopsOf(loops), 1, lines, sixteenths(rows),
                             sixteenths(columns), threads, scratch);
    }
  }
  const auto plain = [](const auto& taps) { return [&taps](int32_t i) { return taps.At(i); }; };
  ResizeRowsBy<T>(Blend::LoopsOf(loops), Blend::kMixedRows, lines, plain(rows), plain(columns),
                  threads, scratch);
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
  if (!MixesWholeRows(params)) return 0;
  return VisitBlend(type, [&](auto blend) {
    using Blend = decltype(blend);
    Scratch count(nullptr);  // sixteenths take less
    BilinearScratch<typename Blend::Taps::Tap, typename Blend::Mixed>(params, Blend::kMixedRows,
                                                                      threads, &count);
    return count.size();
  });
}

void ResizeBilinear(const ResizeParams& params, ResizeType type, const RowLoops& loops,
                    const ResizeBand& band, const uint8_t* input, uint8_t* output, uint8_t* scratch,
                    ThreadPool* pool) {
  VisitBlend(type, [&](auto blend) {
    Resize<decltype(blend)>(params, loops, band, input, output, scratch, pool);
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
  constexpr int64_t kGrain = 1 << 16;  // bytes
  ParallelRanges(
      pool, lines, std::max<int64_t>(kGrain / output_row, 1), [&](int64_t begin, int64_t end) {
        const uint8_t* previous = nullptr;
        for (int64_t line = begin; line < end; ++line) {
          const int32_t y = band.output.first + static_cast<int32_t>(line % band.output.count);
          const uint8_t* row = input + (line / band.output.count * band.input.count + rows.At(y) -
                                        band.input.first) *
                                           input_row;
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
