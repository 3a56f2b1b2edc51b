// SPDX-License-Identifier: Apache-2.0
//
// What quantizing cost: numbers of the whole model and of every layer. SQNR is the signal to
// quantization noise ratio in decibels, 10 log10(sum f^2 / sum (f - q)^2) over all elements of all
// samples, f what the float model computes and q what the quantized one does; kNoSqnr where there
// is no noise or no signal.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace atollrt {

inline constexpr double kNoSqnr = std::numeric_limits<double>::infinity();
inline constexpr int kHistogramBins = 64;

struct QuantizeReport {
  // An input or output of the model.
  struct End {
    std::string name;
    std::string type;          // in the written file: "int8", "uint8", "int16", "float32"
    double low = 0, high = 0;  // values of the calibration data
    double scale = 0;          // 0: not quantized
    int32_t zero_point = 0;
  };
  // A node of the graph that is written, without the conversions that were put in.
  struct Layer {
    int32_t index = 0;      // among the nodes that keep_float names: of the rewritten float graph
    std::string operation;  // "CONV_2D"
    std::string name;       // of its first output
    std::string type;       // "int8", "16x8", "float"
    std::string reason;     // why it is not int8; empty for those that are
    double low = 0, high = 0;        // of its first output, on the calibration data
    std::vector<int64_t> histogram;  // kHistogramBins counts from low to high
    double scale = 0;                // of its first output; 0: not quantized
    int32_t zero_point = 0;
    double sqnr_alone_db = kNoSqnr;        // as if all layers before were float
    double sqnr_accumulated_db = kNoSqnr;  // as the model computes it
  };
  // A part of a concatenation that ends in an output.
  struct Part {
    size_t output = 0;  // among the outputs
    int32_t layer = 0;  // the concatenation
    std::string name;   // of the tensor
    double low = 0, high = 0;
    double sqnr_db = kNoSqnr;  // as the output has it
  };
  struct Sample {
    int64_t sample = 0;  // from 0, in the order of the calibration data
    double sqnr_db = kNoSqnr;
  };

  std::string model;  // its name, if whoever asked gave one
  int64_t bytes_before = 0, bytes_after = 0;
  std::vector<End> inputs, outputs;
  std::vector<Part> parts;
  int64_t samples = 0;
  std::vector<std::string> warnings;  // one sentence each
  std::vector<Layer> layers;
  std::vector<std::pair<std::string, std::string>> options;  // what was asked for, by name
  std::vector<std::string> choices;  // what a search decided, one sentence each
  double output_sqnr_db = kNoSqnr;
  // Of what enters the last SOFTMAX or LOGISTIC, of detections before suppression, else the
  // outputs.
  double logits_sqnr_db = kNoSqnr;
  std::vector<Sample> worst;  // by the logits, the worst first; at most 8
};

// As JSON, for programs: {model, bytes_before, bytes_after, inputs: [{name, range, scale,
// zero_point, type}], outputs: the same and parts [{layer, name, range, sqnr_db}] of
// concatenations that end there, calibration: {samples, warnings}, layers: [{index, operator, name,
// type, reason, range, histogram, scale, zero_point, sqnr_alone_db, sqnr_accumulated_db}], options,
// choices, logits_sqnr_db, output_sqnr_db, worst: [{sample, sqnr_db}]}. Decibels that are not
// numbers are null.
std::string ToJson(const QuantizeReport& report);

}  // namespace atollrt
