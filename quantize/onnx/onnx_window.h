// SPDX-License-Identifier: Apache-2.0
//
// What convolutions and pools of ONNX have in common: a window that moves over a picture. Part of
// the importer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "atoll/status.h"
#include "quantize/onnx/onnx_graph.h"
#include "quantize/onnx/onnx_operators.h"

namespace atollrt {

// A window over h and w (a single axis counts as w, with h of 1).
struct OnnxWindow {
  int64_t input[2] = {1, 1}, filter[2] = {1, 1}, stride[2] = {1, 1}, dilation[2] = {1, 1};
  int64_t before[2] = {0, 0}, after[2] = {0, 0};
  int64_t extent(int axis) const { return (filter[axis] - 1) * dilation[axis] + 1; }
  bool padded() const { return before[0] + before[1] + after[0] + after[1] != 0; }
};

// Of a value [N, C, W] or [N, C, H, W], a filter and the node's attributes. kCorruptModel,
// kUnsupported.
Result<OnnxWindow> ReadWindow(const OnnxNodeImport& n, const OnnxValue& x, const Dims& filter);

// The numbers of an attribute, one for each of the last `spatial` axes, into the last of the two
// `axes`, which stay as they are if it is not there. kCorruptModel beyond `low` and 65535.
Status ReadWindowAxes(const OnnxNodeImport& n, const char* name, size_t spatial, int64_t low,
                      int64_t* axes);

// Whether TensorFlow's padding SAME gives the same windows.
bool IsSamePadding(const OnnxWindow& window);

// The tensor [N, H, W, C] of a value [N, C, H, W] or [N, C, W].
Result<int32_t> AsPicture(OnnxNodeImport& n, const OnnxValue& x);

// Sets the node's output to a tensor [N, H, W, C], as a value of `rank` dimensions.
Status SetPicture(OnnxNodeImport& n, int32_t tensor, size_t rank);

// `tensor` with the window's padding of `value` around it: by PAD, or PADV2 where that is not 0.
Result<int32_t> EmitPad(OnnxNodeImport& n, int32_t tensor, const OnnxWindow& window, float value);

}  // namespace atollrt
