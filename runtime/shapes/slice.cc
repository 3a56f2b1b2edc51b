// SPDX-License-Identifier: Apache-2.0
#include "runtime/shapes/slice.h"

#include <algorithm>
#include <utility>

#include "runtime/shapes/shape_rules.h"

namespace atollrt {
namespace {

// A constant vector operand.
Result<std::vector<int64_t>> ConstantVector(const Graph& graph, const Node& node, size_t position) {
  const Shape& shape = graph.Input(node, position)->shape;
  if (shape.size() != 1) {
    return CorruptModel("%s has shape %s, must be a vector",
                        Describe(graph, node.inputs[position]).c_str(), ShapeString(shape).c_str());
  }
  return ConstantInput(graph, node, position);
}

Result<ResolvedSlice> ResolvePlainSlice(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {3, 3}));
  const Shape& input = graph.Input(node, 0)->shape;
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> begins, ConstantVector(graph, node, 1));
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ConstantVector(graph, node, 2));
  if (begins.size() != input.size() || sizes.size() != input.size()) {
    return CorruptModel("%zu begins and %zu sizes for an input of shape %s", begins.size(),
                        sizes.size(), ShapeString(input).c_str());
  }
  ResolvedSlice slice;
  for (size_t i = 0; i < input.size(); ++i) {
    const int64_t begin = begins[i];
    const bool fits =
        begin >= 0 && begin <= input[i] && sizes[i] >= -1 && sizes[i] <= input[i] - begin;
    if (!fits) {
      return CorruptModel("begin %lld and size %lld do not fit dimension %zu of shape %s",
                          static_cast<long long>(begin), static_cast<long long>(sizes[i]), i,
                          ShapeString(input).c_str());
    }
    const int64_t count = sizes[i] == -1 ? input[i] - begin : sizes[i];
    slice.axes.push_back({static_cast<int32_t>(begin), 1, static_cast<int32_t>(count)});
    slice.output.push_back(slice.axes.back().count);
  }
  return slice;
}

// One entry of begin, end and strides, with its bits of the masks.
struct StridedEntry {
  int64_t begin = 0, end = 0, stride = 1;
  bool from_start = false, to_end = false;  // begin and end masks
  bool shrink = false;                      // take one element and drop the axis
  bool offset = false;                      // end is relative to begin
};

Result<SliceAxis> ResolveEntry(const StridedEntry& entry, int32_t size) {
  const int64_t n = size;
  const int64_t stride = entry.stride;
  if (stride == 0 || stride < INT32_MIN || stride > INT32_MAX) {
    return CorruptModel("stride %lld", static_cast<long long>(stride));
  }
  const int64_t lo = stride > 0 ? 0 : -1;
  const int64_t hi = stride > 0 ? n : n - 1;
  int64_t begin = std::clamp(entry.begin < 0 ? entry.begin + n : entry.begin, lo, hi);
  if (entry.from_start) begin = stride > 0 ? 0 : n - 1;
  if (entry.shrink) {
    if (stride < 0) {
      return CorruptModel("stride %lld of an axis that is dropped", static_cast<long long>(stride));
    }
    if (begin >= n) {
      return CorruptModel("index %lld of an axis of size %d", static_cast<long long>(entry.begin),
                          size);
    }
    return SliceAxis{static_cast<int32_t>(begin), 1, 1};
  }
  int64_t end = entry.end;
  if (entry.offset && __builtin_add_overflow(end, begin, &end)) {
    return CorruptModel("end %lld", static_cast<long long>(entry.end));
  }
  end = std::clamp(end < 0 ? end + n : end, lo, hi);
  if (entry.to_end) end = stride > 0 ? n : -1;
  const int64_t distance = stride > 0 ? end - begin : begin - end;
  const int64_t step = stride > 0 ? stride : -stride;
  const int64_t count = std::max<int64_t>(0, (distance + step - 1) / step);
  return SliceAxis{static_cast<int32_t>(begin), static_cast<int32_t>(stride),
                   static_cast<int32_t>(count)};
}

Result<ResolvedSlice> ResolveStridedSlice(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckCounts(node, {4, 4}));
  const Shape& input = graph.Input(node, 0)->shape;
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> begins, ConstantVector(graph, node, 1));
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> ends, ConstantVector(graph, node, 2));
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> strides, ConstantVector(graph, node, 3));
  const size_t count = begins.size();
  if (ends.size() != count || strides.size() != count || count > 31) {
    return CorruptModel("%zu begins, %zu ends and %zu strides; must be equally many, at most 31",
                        count, ends.size(), strides.size());
  }
  const StridedSliceOptions& options = std::get<StridedSliceOptions>(node.options);
  const auto bit = [](int32_t mask, size_t i) { return (mask >> i & 1) != 0; };
  // An ellipsis stands for the axes that no other entry takes; a new axis takes none.
  size_t taken = 0;
  size_t ellipses = 0;
  for (size_t i = 0; i < count; ++i) {
    if (bit(options.ellipsis_mask, i)) {
      ++ellipses;
    } else if (!bit(options.new_axis_mask, i)) {
      ++taken;
    }
  }
  if (ellipses > 1) return CorruptModel("%zu ellipses, must be at most one", ellipses);
  if (taken > input.size()) {
    return CorruptModel("slices of %zu axes of an input of shape %s", taken,
                        ShapeString(input).c_str());
  }
  ResolvedSlice slice;
  const auto take_whole_axes = [&](size_t axes) {
    for (; axes > 0; --axes) {
      const int32_t size = input[slice.axes.size()];
      slice.axes.push_back({0, 1, size});
      slice.output.push_back(size);
    }
  };
  for (size_t i = 0; i < count; ++i) {
    if (bit(options.ellipsis_mask, i)) {
      take_whole_axes(input.size() - taken);
      continue;
    }
    if (bit(options.new_axis_mask, i)) {
      slice.output.push_back(1);
      continue;
    }
    const StridedEntry entry{.begin = begins[i],
                             .end = ends[i],
                             .stride = strides[i],
                             .from_start = bit(options.begin_mask, i),
                             .to_end = bit(options.end_mask, i),
                             .shrink = bit(options.shrink_axis_mask, i),
                             .offset = options.offset};
    Result<SliceAxis> axis = ResolveEntry(entry, input[slice.axes.size()]);
    if (!axis.ok()) {
      return Status(axis.status()).WithContext(Format("dimension %zu", slice.axes.size()));
    }
    slice.axes.push_back(*axis);
    if (!entry.shrink) slice.output.push_back(axis->count);
  }
  take_whole_axes(input.size() - slice.axes.size());
  return slice;
}

}  // namespace

Result<ResolvedSlice> ResolveSlice(const Graph& graph, const Node& node) {
  return node.type == OpType::kSLICE ? ResolvePlainSlice(graph, node)
                                     : ResolveStridedSlice(graph, node);
}

}  // namespace atollrt
