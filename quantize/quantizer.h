// SPDX-License-Identifier: Apache-2.0
//
// Float models -> int8 models with the same inputs and outputs, as TensorFlow Lite's specification
// of quantization wants them (docs/quantizing.md): constants folded and activations fused
// (rewrite.h), ranges measured on samples (float_pass.h), scales shared where operators ask for it
// (scheme.h), weights per channel, biases corrected for the mean error of each layer
// (bias_correction.h). The result is the same for every number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "quantize/report.h"

namespace atollrt {

// Samples of what the model will see. They are read several times, each time in the same order.
class CalibrationData {
 public:
  CalibrationData() = default;
  CalibrationData(const CalibrationData&) = delete;
  CalibrationData& operator=(const CalibrationData&) = delete;
  virtual ~CalibrationData() = default;
  // The next sample: a vector for each of the model's inputs, in order, with as many values as it
  // has elements. False: there is none.
  virtual Result<bool> Next(std::vector<std::vector<float>>* inputs) = 0;
  // The first sample is next.
  virtual Status Rewind() = 0;
};

enum class RangeMethod {
  kMinMax,        // the smallest and the largest value
  kPercentile,    // QuantizeOptions::percentile of the values
  kLeastSquares,  // what gives the smallest squared error
};

enum class EndType {
  // As the activations, int8 or int16 with activations_16; float32 for an output that joins parts
  // whose ranges differ so much that one scale would cost the narrow ones.
  kQuantized,
  kOneScale,  // as the activations, whatever that costs
  kFloat,     // float32, with QUANTIZE and DEQUANTIZE at the ends
  kUInt8,
};

// What is under way, for people who wait.
struct QuantizeProgress {
  const char* phase = "";  // "samples" (total 0), "ranges", "rounding", "bias correction", "report"
  int64_t done = 0, total = 0;
};

struct QuantizeOptions {
  std::string name = {};  // of the model, for the report
  RangeMethod ranges = RangeMethod::kMinMax;
  double percentile = 99.99;  // of kPercentile; above 50, at most 100
  bool bias_correction = true;
  bool compensate_rounding = false;         // of weights, by the errors of those rounded before
  bool activations_16 = false;              // int16 activations, int8 weights
  bool per_tensor_fully_connected = false;  // one scale for the weights of FULLY_CONNECTED, too
  EndType input_type = EndType::kQuantized;
  EndType output_type = EndType::kQuantized;
  // Nodes that stay float: by index (of the report's layers) or by the name of an output.
  std::vector<std::string> keep_float = {};
  // Nodes whose own SQNR would be below stay float; 0: none does.
  double keep_float_below_db = 0;
  // Searches per-layer choices until the logits have this SQNR; 0: no search. Where nothing tried
  // reaches it, the best is what comes out, and a warning says so.
  double target_sqnr_db = 0;
  // The search asks this instead, if it is there, for a number that grows with quality, and goes on
  // until it is at least target_accuracy.
  std::function<Result<double>(std::span<const uint8_t> model)> accuracy = {};
  double target_accuracy = 0;
  int threads = 0;  // 0: as the interpreter chooses
  // Called now and then, on the calling thread; false ends the work with kCancelled.
  std::function<bool(const QuantizeProgress& progress)> progress = {};
};

struct Quantized {
  std::vector<uint8_t> model;  // a .tflite file
  QuantizeReport report;
};

// Quantizes the first subgraph of a .tflite file. Signatures, metadata and names are kept. Weights
// that are int8 or float16 in a float graph (dynamic range, float16 files) become float32 first.
//
// kInvalidArgument for samples of the wrong size or with values that are not numbers (the message
// has the number of the sample and input), for no samples, and for options that contradict each
// other or name no node; kUnsupported for models that are quantized already or have more than one
// subgraph; kCancelled; and what loading and running the model gives.
Result<Quantized> Quantize(std::span<const uint8_t> float_model, CalibrationData* data,
                           const QuantizeOptions& options);

// A float model whose weights are all float32; the bytes given if they are so already.
Result<std::vector<uint8_t>> RepairFloatModel(std::span<const uint8_t> float_model);

}  // namespace atollrt
