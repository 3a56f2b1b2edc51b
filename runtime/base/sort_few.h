// SPDX-License-Identifier: Apache-2.0
//
// SortFew: stable, in place, for a handful of elements: std::stable_sort is a few kilobytes of code
// for every type, and this a few hundred bytes.
#pragma once

#include <algorithm>

namespace atollrt {

template <typename Elements, typename Less>
void SortFew(Elements* elements, Less less) {
  const auto begin = elements->begin();
  for (auto next = begin; next != elements->end(); ++next) {
    std::rotate(std::upper_bound(begin, next, *next, less), next, next + 1);
  }
}

}  // namespace atollrt
