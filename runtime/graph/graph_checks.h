// SPDX-License-Identifier: Apache-2.0
//
// What graph.h promises of a graph whose indices are in range already. Messages name the tensor,
// the node and the numbers. Part of the loader. Pure functions.
#pragma once

#include <string>

#include "atoll/status.h"
#include "runtime/graph/graph.h"

namespace atollrt {

// With the first node that uses it: "tensor 17 'conv1/w' of node 3 (CONV_2D) 'conv1/out'".
std::string DescribeUse(const Graph& graph, int32_t tensor);

// Whether there are at most kMaxRank sizes, all fixed, and their product, times the bytes of an
// element, is at most kMaxTensorBytes. Sizes of 0 count as 1, as do the elements of types without a
// size.
bool HasAllowedSize(const Tensor& tensor);

// Every tensor is written once, before it is read; kCorruptModel otherwise, or if an input of the
// graph is a constant.
Status CheckOrder(const Graph& graph);
// Types are known, and shapes that no inference replaces are right: those of inputs, constants and
// tensors that no node writes. kUnsupported for dynamic ones.
Status CheckStoredShapes(const Graph& graph);
// When all shapes are known.
Status CheckQuantization(const Graph& graph);

}  // namespace atollrt
