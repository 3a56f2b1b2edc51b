// SPDX-License-Identifier: Apache-2.0
//
// Recipes of what slides windows over images, and of matrix products.
#include <algorithm>
#include <cmath>

#include "runtime/shapes/shape_inference.h"
#include "tests/support/random_graph/graph_maker.h"

namespace atollrt {
namespace {

// One dimension of a window over `size` cells.
struct Window {
  int32_t kernel = 1, stride = 1, dilation = 1;

  int32_t extent() const { return (kernel - 1) * dilation + 1; }
};

Window RandomWindow(GraphMaker& g) {
  Choices& choose = g.choose();
  return {.kernel = choose.Pick({1, 3, 3, 2, 5, choose.Int(1, 9)}),
          .stride = choose.Pick({1, 1, 1, 1, 2, choose.Int(1, 4)}),
          .dilation = choose.OneIn(5) ? choose.Int(2, 4) : 1};
}

// VALID only if the windows fit.
Padding RandomPadding(GraphMaker& g, const Shape& image, const Window& h, const Window& w) {
  const bool fits = h.extent() <= image[1] && w.extent() <= image[2];
  return fits && g.choose().OneIn(3) ? Padding::kValid : Padding::kSame;
}

Conv2DOptions FilterOptions(const Window& h, const Window& w, Padding padding) {
  return {.padding = padding,
          .stride_h = h.stride,
          .stride_w = w.stride,
          .dilation_h = h.dilation,
          .dilation_w = w.dilation};
}

// A format for sums of `terms` products of random numbers, one of them a byte, whose scales have
// the product given. Scales end somewhere, and those of several amplifying layers may have got
// there; sums of 64 bits are multiplied by less than 2^14.
NumberFormat OfSums(GraphMaker& g, DataType type, double scales, int64_t terms) {
  const double lowest = type == DataType::kInt16 ? std::ldexp(scales, -13) : 0;
  return g.Around(type, scales * std::sqrt(static_cast<double>(terms)) * 100, lowest);
}
// A filter of that many terms.
void AddFilter(GraphMaker& g, OpType type, const std::vector<int32_t>& inputs, int64_t terms,
               Conv2DOptions options) {
  const int32_t x = inputs[type == OpType::kTRANSPOSE_CONV ? 2 : 0];
  const NumberFormat output = OfSums(g, g.type(x), g.scale(x) * g.WeightScale(inputs[1]), terms);
  options.activation = g.FusedActivation(output);
  g.Node(type, inputs, output, options);
}

}  // namespace

bool MakeConv2D(GraphMaker& g, OpType type) {
  const int32_t x = g.Image();
  const Shape shape = g.shape(x);
  const Window h = RandomWindow(g);
  const Window w = g.choose().OneIn(2) ? h : RandomWindow(g);
  const int32_t groups = g.choose().OneIn(6) ? g.Divisor(shape[3], 8) : 1;
  const int32_t depth = shape[3] / groups;
  const int32_t channels = groups > 1 ? groups * g.choose().Int(1, 6) : g.Channels();
  const int32_t weights = g.Weights(g.type(x), {channels, h.kernel, w.kernel, depth}, 0);
  const int64_t terms = int64_t{h.kernel} * w.kernel * depth;
  const int32_t bias = g.Bias(g.type(x), channels);
  const Padding padding = RandomPadding(g, shape, h, w);
  AddFilter(g, type, {x, weights, bias}, terms, FilterOptions(h, w, padding));
  return true;
}

bool MakeDepthwiseConv2D(GraphMaker& g, OpType type) {
  const int32_t x = g.Image();
  const Shape shape = g.shape(x);
  const Window h = RandomWindow(g);
  const Window w = g.choose().OneIn(2) ? h : RandomWindow(g);
  const int32_t channels = shape[3] * (g.choose().OneIn(4) ? g.choose().Int(2, 4) : 1);
  const int32_t weights = g.Weights(g.type(x), {1, h.kernel, w.kernel, channels}, 3);
  const int32_t bias = g.Bias(g.type(x), channels);
  const Padding padding = RandomPadding(g, shape, h, w);
  AddFilter(g, type, {x, weights, bias}, int64_t{h.kernel} * w.kernel,
            FilterOptions(h, w, padding));
  return true;
}

bool MakeTransposeConv(GraphMaker& g, OpType type) {
  const int32_t x = g.Image();
  const Shape shape = g.shape(x);
  Window h = RandomWindow(g);
  Window w = RandomWindow(g);
  h.dilation = w.dilation = 1;
  const Padding padding = g.choose().OneIn(2) ? Padding::kValid : Padding::kSame;
  // One of the sizes that the convolution with this window maps to the input's.
  const auto output_size = [&](int32_t size, const Window& window) {
    const int32_t least = padding == Padding::kSame ? (size - 1) * window.stride + 1
                                                    : (size - 1) * window.stride + window.kernel;
    return least + (g.choose().OneIn(3)         ? g.choose().Int(0, window.stride - 1)
                    : padding == Padding::kSame ? window.stride - 1
                                                : 0);
  };
  const int32_t channels = g.Channels();
  const int32_t rows = output_size(shape[1], h);
  const int32_t columns = output_size(shape[2], w);
  // The product of the sizes may be far too large for memory.
  if (int64_t{rows} * columns * channels > (1 << 20)) return false;
  const int32_t size = g.Int32s({4}, {shape[0], rows, columns, channels});
  const int32_t weights = g.Weights(g.type(x), {channels, h.kernel, w.kernel, shape[3]}, 0);
  std::vector<int32_t> inputs{size, weights, x};
  if (const int32_t bias = g.Bias(g.type(x), channels); bias >= 0) inputs.push_back(bias);
  const int64_t terms = int64_t{h.kernel} * w.kernel * shape[3];
  AddFilter(g, type, inputs, terms, FilterOptions(h, w, padding));
  return true;
}

bool MakePool(GraphMaker& g, OpType type) {
  const int32_t x = g.Image();
  const Shape shape = g.shape(x);
  Window h = RandomWindow(g);
  Window w = g.choose().OneIn(2) ? h : RandomWindow(g);
  h.dilation = w.dilation = 1;
  if (g.choose().OneIn(6)) {
    h.kernel = shape[1];
    w.kernel = shape[2];
  }
  const NumberFormat output = g.Like(x);
  g.Node(type, {x}, output,
         Pool2DOptions{.padding = RandomPadding(g, shape, h, w),
                       .stride_h = h.stride,
                       .stride_w = w.stride,
                       .filter_h = h.kernel,
                       .filter_w = w.kernel,
                       .activation = g.FusedActivation(output)});
  return true;
}

bool MakeFullyConnected(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  const Shape shape = g.shape(x);
  FullyConnectedOptions options{.keep_num_dims = g.choose().OneIn(3)};
  // Rows of the last dimension, of all after the first, or of everything.
  int64_t depth = shape.back();
  if (!options.keep_num_dims && g.choose().OneIn(2)) {
    depth = g.elements(x) / (g.choose().OneIn(4) ? 1 : shape[0]);
  }
  constexpr int64_t kDepthMax = 8192;
  if (depth > kDepthMax) return false;
  const int32_t units = g.choose().Int(1, g.choose().OneIn(4) ? 80 : 20);
  const int32_t weights = g.Weights(g.type(x), {units, static_cast<int32_t>(depth)}, 0);
  const int32_t bias = g.Bias(g.type(x), units);
  const NumberFormat output = OfSums(g, g.type(x), g.scale(x) * g.WeightScale(weights), depth);
  options.activation = g.FusedActivation(output);
  g.Node(type, {x, weights, bias}, output, options);
  return true;
}

bool MakeBatchMatMul(GraphMaker& g, OpType type) {
  const int32_t lhs = g.OfRank(2, 5);
  const Shape shape = g.shape(lhs);
  const BatchMatMulOptions options{.transpose_lhs = g.choose().OneIn(2),
                                   .transpose_rhs = g.choose().OneIn(2)};
  const int32_t depth = shape[shape.size() - (options.transpose_lhs ? 2 : 1)];
  const int32_t columns = g.choose().Int(1, 16);
  Shape rhs_shape(shape.begin(), shape.end() - 2);
  rhs_shape.erase(rhs_shape.begin(),
                  rhs_shape.begin() + g.choose().Int(0, GraphMaker::Rank(rhs_shape)));
  for (int32_t& size : rhs_shape) {
    if (g.choose().OneIn(3)) size = size == 1 ? g.choose().Int(1, 3) : 1;
  }
  rhs_shape.push_back(options.transpose_rhs ? columns : depth);
  rhs_shape.push_back(options.transpose_rhs ? depth : columns);
  const int32_t rhs = g.Partner(lhs, rhs_shape);
  // Both operands may be wider than weights are.
  const double wider = g.type(lhs) == DataType::kInt16 ? 256 : 1;
  const double scales = g.scale(lhs) * g.scale(rhs) * wider;
  g.Node(type, {lhs, rhs}, OfSums(g, g.type(lhs), scales, depth), options);
  return true;
}

bool MakeResize(GraphMaker& g, OpType type) {
  const int32_t x = g.Image();
  const Shape shape = g.shape(x);
  const auto size = [&](int32_t from) {
    return g.choose().OneIn(3) ? 2 * from : g.choose().Int(1, std::min(2 * from + 1, 80));
  };
  ResizeOptions options;
  options.half_pixel_centers = g.choose().OneIn(2);
  options.align_corners = !options.half_pixel_centers && g.choose().OneIn(2);
  const int32_t rows = size(shape[1]);
  const int32_t columns = size(shape[2]);
  g.Node(type, {x, g.Int32s({2}, {rows, columns})}, g.Like(x), options);
  return true;
}

}  // namespace atollrt
