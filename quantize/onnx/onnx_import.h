// SPDX-License-Identifier: Apache-2.0
//
// An ONNX model -> a float .tflite that computes the same. ONNX has pictures as [N, C, H, W], a
// .tflite as [N, H, W, C]: each tensor carries the permutation between both, and a TRANSPOSE stands
// only where the order of elements matters. Constants are folded, batch normalization goes into the
// convolution before it, a ReLU becomes its activation. What cannot be taken is refused by name:
// docs/onnx.md lists operators, opsets and limits.
//
// The bytes are a stranger's: nothing is believed, and memory is in proportion to them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

enum class OnnxLayout {
  // Inputs of four dimensions become [N, H, W, C], and so do outputs that are pictures in memory:
  // those that the graph does not order otherwise. What every program for .tflite files expects.
  kNhwc,
  kAsStored,  // inputs and outputs as in the ONNX file, with a TRANSPOSE where that is needed
};

struct OnnxOptions {
  struct InputShape {
    std::string name;           // of the input; "": the only one
    std::vector<int64_t> dims;  // in ONNX's order, every one at least 1
  };
  // Instead of those in the file. Dimensions that are symbols in the file are 1 without.
  std::vector<InputShape> input_shapes;
  OnnxLayout layout = OnnxLayout::kNhwc;
};

// The bytes of a .tflite that LoadTflite accepts. kCorruptModel if the bytes contradict
// themselves, kUnsupported with the node, its operator, the attribute and the opset for what is
// valid and cannot be taken, kInvalidArgument for options that do not fit the model.
Result<std::vector<uint8_t>> ImportOnnx(std::span<const uint8_t> model,
                                        const OnnxOptions& options = {});

}  // namespace atollrt
