// SPDX-License-Identifier: Apache-2.0
//
// Whether a .tflite file of int8 or int16 keeps to TensorFlow Lite's specification of quantization,
// which Atoll's kernels do not need in all points but other readers do. Knows nothing of how the
// quantizer works.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "runtime/graph/graph.h"

namespace atollrt {

// What is wrong, a sentence each: zero points and scales of weights and biases and how many there
// are, outputs with prescribed encodings, inputs and outputs that must share theirs.
std::vector<std::string> BrokenPrescriptions(const Graph& graph);
// All of them as one error, kCorruptModel, a line each; or what loading gives.
Status CheckPrescriptions(std::span<const uint8_t> model);

}  // namespace atollrt
