// SPDX-License-Identifier: Apache-2.0
//
// Both models side by side on the calibration data: what the report says of layers and samples.
#pragma once

#include "atoll/status.h"
#include "quantize/emit.h"
#include "quantize/float_pass.h"
#include "quantize/report.h"
#include "quantize/scheme.h"

namespace atollrt {

// Fills in what depends on samples: SQNR, histograms, the worst samples; and of layers all the
// rest.
Status MeasureQuantized(const EditedGraph& edited, const Scheme& scheme,
                        const EmittedGraph& emitted, const FloatMeasures& measures,
                        const QuantizeOptions& options, Samples* samples,
                        ProgressReporter* progress, QuantizeReport* report);

}  // namespace atollrt
