// SPDX-License-Identifier: Apache-2.0
//
// ForEachSlice: a filter or pooling whose operands are a program's, and so may mean hours of work,
// as many small ones of the same kind: some lines of an image's output, or some pixels of a line.
// Between them is time to stop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "driver/emulator/host_scratch.h"
#include "driver/emulator/stop_signal.h"
#include "runtime/kernels/conv_shape.h"

namespace atollrt {

// When instructions run in slices, and how large these are: in multiply-accumulates, of poolings in
// elements. More than sane programs have, and a fraction of a second. Results do not depend on it.
struct WorkLimits {
  uint64_t long_filter = uint64_t{1} << 31;
  uint64_t long_narrow_filter = uint64_t{1} << 28;  // of few channels, which kernels are slow with
  uint64_t filter_slice = uint64_t{1} << 27;
  uint64_t plain_slice = uint64_t{1} << 26;  // of filters for which no kernel can be prepared
  uint64_t lstm_slice = uint64_t{1} << 28;
  uint64_t pool_slice = uint64_t{1} << 28;
};

// Part of the output along one axis, and the part of the input that it depends on, from which it
// has `pad` as ConvShape has it. No input: it depends on padding alone.
struct AxisSlice {
  int64_t first_input = 0, inputs = 0, pad = 0;
  bool has_input() const { return inputs > 0; }
};

inline AxisSlice SliceAxis(int64_t first, int64_t count, int64_t stride, int64_t dilation,
                           int64_t kernel, int64_t pad, int64_t inputs) {
  const int64_t begin = first * stride - pad;
  const int64_t end = (first + count - 1) * stride - pad + (kernel - 1) * dilation + 1;
  const int64_t from = std::max<int64_t>(begin, 0);
  return {from, std::min(end, inputs) - from, from - begin};
}

// Of a transposed convolution: output y takes from input (y + pad - tap) / stride.
inline AxisSlice SliceTransposedAxis(int64_t first, int64_t count, int64_t stride, int64_t kernel,
                                     int64_t pad, int64_t inputs) {
  const int64_t from = std::max<int64_t>(first + pad - kernel + 1, 0) / stride;
  const int64_t end = (first + count - 1 + pad) / stride + 1;
  return {from, std::min(end, inputs) - from, first + pad - from * stride};
}

struct SliceOptions {
  ConvShape shape;  // of a pooling: output_c is input_c
  bool is_transposed = false;
  uint64_t pixel_work = 1;    // for one pixel of the output, all channels
  uint64_t work_at_once = 1;  // about so much in a slice
};

// run(shape, input, output, is_plain) for slices, which are of one image and have no batch, until
// `stop`. A plain one has the whole input, and pads that may be negative: only the plainest loops
// take it. `cells` is for parts of lines that must be put side by side.
template <typename Run>
void ForEachSlice(const SliceOptions& options, const StopSignal& stop, const uint8_t* input,
                  uint8_t* output, HostScratch* cells, const Run& run) {
  const ConvShape& s = options.shape;
  const auto fitting = [&](uint64_t work, int32_t most) {
    const uint64_t count = options.work_at_once / std::max<uint64_t>(work, 1);
    return static_cast<int32_t>(std::clamp<uint64_t>(count, 1, static_cast<uint64_t>(most)));
  };
  const uint64_t line_work = options.pixel_work * static_cast<uint64_t>(s.output_w);
  const int32_t lines = fitting(line_work, s.output_h);
  const int32_t pixels =
      line_work > options.work_at_once ? fitting(options.pixel_work, s.output_w) : s.output_w;
  const auto slice = [&](bool is_vertical, int32_t first, int32_t count) {
    const int32_t stride = is_vertical ? s.stride_h : s.stride_w;
    const int32_t dilation = is_vertical ? s.dilation_h : s.dilation_w;
    const int32_t kernel = is_vertical ? s.kernel_h : s.kernel_w;
    const int32_t pad = is_vertical ? s.pad_top : s.pad_left;
    const int32_t inputs = is_vertical ? s.input_h : s.input_w;
    return options.is_transposed ? SliceTransposedAxis(first, count, stride, kernel, pad, inputs)
                                 : SliceAxis(first, count, stride, dilation, kernel, pad, inputs);
  };
  const int64_t line_bytes = int64_t{s.input_w} * s.input_c;
  for (int32_t n = 0; n < s.batch; ++n) {
    const uint8_t* const image = input + n * s.input_h * line_bytes;
    for (int32_t y = 0; y < s.output_h; y += std::min(lines, s.output_h - y)) {
      for (int32_t x = 0; x < s.output_w; x += std::min(pixels, s.output_w - x)) {
        if (stop()) return;
        ConvShape part = s;
        part.batch = 1;
        part.output_h = std::min(lines, s.output_h - y);
        part.output_w = std::min(pixels, s.output_w - x);
        uint8_t* const to = output + ((n * int64_t{s.output_h} + y) * s.output_w + x) * s.output_c;
        const AxisSlice rows = slice(true, y, part.output_h);
        const AxisSlice columns = slice(false, x, part.output_w);
        const bool is_whole_line = part.output_w == s.output_w;
        const auto row_bytes = static_cast<size_t>(columns.inputs * s.input_c);
        if (!rows.has_input() || !columns.has_input() ||
            (!is_whole_line && !cells->Reserve(static_cast<size_t>(rows.inputs) * row_bytes))) {
          const auto shifted = [&](int32_t pad, int64_t first, int32_t stride) {
            const int64_t by = options.is_transposed ? first : -first * stride;
            return static_cast<int32_t>(std::min<int64_t>(pad + by, INT32_MAX));
          };
          part.pad_top = shifted(s.pad_top, y, s.stride_h);
          part.pad_left = shifted(s.pad_left, x, s.stride_w);
          run(part, image, to, true);
          continue;
        }
        part.input_h = static_cast<int32_t>(rows.inputs);
        part.pad_top = static_cast<int32_t>(rows.pad);
        const uint8_t* from = image + rows.first_input * line_bytes;
        if (!is_whole_line) {
          for (int64_t row = 0; row < rows.inputs; ++row) {
            std::memcpy(cells->data() + static_cast<size_t>(row) * row_bytes,
                        from + row * line_bytes + columns.first_input * s.input_c, row_bytes);
          }
          from = cells->data();
          part.input_w = static_cast<int32_t>(columns.inputs);
          part.pad_left = static_cast<int32_t>(columns.pad);
        }
        run(part, from, to, false);
      }
    }
  }
}

}  // namespace atollrt
