// SPDX-License-Identifier: Apache-2.0
//
// RangeMax: numbers at positions 0 ... size - 1, all 0 at first, of which whole ranges are changed
// and asked for their largest, each in logarithmic time. What a change does is Operation:
// std::plus<> adds to every number, RaiseTo makes every number at least as large (as 0, too).
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace atollrt {

struct RaiseTo {
  int64_t operator()(int64_t number, int64_t least) const { return std::max(number, least); }
};

template <typename Operation = std::plus<>>
class RangeMax {
 public:
  explicit RangeMax(size_t size)
      : most_(4 * std::max<size_t>(size, 1)), all_(most_), last_(size - (size > 0)) {}

  // Changes the numbers at positions [first, last]; Max is the largest of those.
  void Change(size_t first, size_t last, int64_t by) { Change(1, 0, last_, first, last, by); }
  int64_t Max(size_t first, size_t last) const { return Max(1, 0, last_, first, last); }
  int64_t Max() const { return most_[1]; }

 private:
  void Change(size_t node, size_t begin, size_t end, size_t first, size_t last, int64_t by) {
    if (first <= begin && end <= last) {
      most_[node] = Operation()(most_[node], by);
      all_[node] = Operation()(all_[node], by);
      return;
    }
    const size_t middle = begin + (end - begin) / 2;
    if (first <= middle) Change(2 * node, begin, middle, first, last, by);
    if (last > middle) Change(2 * node + 1, middle + 1, end, first, last, by);
    most_[node] = Operation()(std::max(most_[2 * node], most_[2 * node + 1]), all_[node]);
  }

  int64_t Max(size_t node, size_t begin, size_t end, size_t first, size_t last) const {
    if (first <= begin && end <= last) return most_[node];
    const size_t middle = begin + (end - begin) / 2;
    int64_t most = INT64_MIN;
    if (first <= middle) most = Max(2 * node, begin, middle, first, last);
    if (last > middle) most = std::max(most, Max(2 * node + 1, middle + 1, end, first, last));
    return Operation()(most, all_[node]);
  }

  // A binary tree; the children of node i are 2 i and 2 i + 1. most_: the largest number below a
  // node, without what was changed at nodes above it. all_: what was changed for all below a node.
  std::vector<int64_t> most_, all_;
  size_t last_;
};

}  // namespace atollrt
