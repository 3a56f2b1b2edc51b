// SPDX-License-Identifier: Apache-2.0
//
// Empirical bias correction: each layer's bias gets what its sums lack on average, compared with
// the float model, on the calibration data; layer after layer, those before being quantized and
// corrected already. Layers that do not depend on each other are corrected in one pass over the
// samples.
#pragma once

#include "atoll/status.h"
#include "quantize/emit.h"
#include "quantize/float_pass.h"
#include "quantize/scheme.h"

namespace atollrt {

// What is to be added to the biases of the quantized filters, into changes->bias.
Status CorrectBiases(const EditedGraph& edited, const Scheme& scheme, const FloatMeasures& measures,
                     const QuantizeOptions& options, Samples* samples, ProgressReporter* progress,
                     FilterChanges* changes);

// The mean of a filter's sums over what `patches` were taken of, without biases, per channel.
std::vector<double> MeanSums(const Graph& graph, const Node& node, const PatchSums& patches);

}  // namespace atollrt
