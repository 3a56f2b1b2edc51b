// SPDX-License-Identifier: Apache-2.0
//
// The C interface: conversions and nothing else.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "atoll/quantize.h"
#include "quantize/check_prescriptions.h"
#include "quantize/onnx/onnx_import.h"
#include "quantize/quantizer.h"
#include "runtime/ops/cpu_ops.h"
#include "runtime/tflite/tflite_loader.h"

struct AtollQuantized {
  std::vector<uint8_t> model;
  std::string report;
};

namespace atollrt {
namespace {

std::string& LastMessage() {
  thread_local std::string message;
  return message;
}

AtollStatus Report(const Status& status) {
  LastMessage() = status.message();
  return static_cast<AtollStatus>(status.code());
}

AtollStatus NullArgumentOf(const char* function, const char* name) {
  return Report(InvalidArgument("%s: %s is NULL", function, name));
}

// The caller's samples; every input is as large as the model wants it.
class CallersSamples : public CalibrationData {
 public:
  CallersSamples(const AtollQuantizeSamples& samples, const Graph& graph) : samples_(samples) {
    for (const int32_t input : graph.inputs) {
      counts_.push_back(static_cast<size_t>(graph.tensors[input].element_count()));
    }
  }

  Result<bool> Next(std::vector<std::vector<float>>* inputs) override {
    inputs->resize(counts_.size());
    std::vector<float*> places;
    for (size_t i = 0; i < counts_.size(); ++i) {
      (*inputs)[i].resize(counts_[i]);
      places.push_back((*inputs)[i].data());
    }
    const int there =
        samples_.next(samples_.user_data, places.data(), counts_.data(), counts_.size());
    if (there < 0) return InvalidArgument("a sample could not be read (next returned %d)", there);
    return there != 0;
  }

  Status Rewind() override {
    const int failed = samples_.rewind(samples_.user_data);
    if (failed == 0) return Status();
    return InvalidArgument(
        "the samples could not be read from the first again (rewind returned %d)", failed);
  }

 private:
  const AtollQuantizeSamples samples_;
  std::vector<size_t> counts_;
};

Result<EndType> ToEndType(const char* name, int32_t type) {
  switch (type) {
    case ATOLL_END_QUANTIZED:
      return EndType::kQuantized;
    case ATOLL_END_FLOAT:
      return EndType::kFloat;
    case ATOLL_END_UINT8:
      return EndType::kUInt8;
    case ATOLL_END_ONE_SCALE:
      return EndType::kOneScale;
    default:
      return InvalidArgument(
          "%s is %d, must be 0 (quantized), 1 (float), 2 (uint8) or 3 (one scale)", name, type);
  }
}

Result<QuantizeOptions> ToOptions(const AtollQuantizeOptions* given) {
  QuantizeOptions options;
  if (given == nullptr) return options;
  if (given->struct_size != sizeof(AtollQuantizeOptions)) {
    return InvalidArgument(
        "AtollQuantizeOptions has struct_size %zu, must be %zu: initialise it with "
        "ATOLL_QUANTIZE_OPTIONS_INIT",
        given->struct_size, sizeof(AtollQuantizeOptions));
  }
  if (given->name != nullptr) options.name = given->name;
  if (given->ranges < ATOLL_RANGES_MIN_MAX || given->ranges > ATOLL_RANGES_LEAST_SQUARES) {
    return InvalidArgument("ranges is %d, must be 0 (min/max), 1 (percentile) or 2 (least squares)",
                           given->ranges);
  }
  options.ranges = static_cast<RangeMethod>(given->ranges);
  if (given->percentile != 0) options.percentile = given->percentile;
  options.bias_correction = given->no_bias_correction == 0;
  options.compensate_rounding = given->compensate_rounding != 0;
  options.activations_16 = given->activations_16 != 0;
  ATOLL_ASSIGN_OR_RETURN(options.input_type, ToEndType("input_type", given->input_type));
  ATOLL_ASSIGN_OR_RETURN(options.output_type, ToEndType("output_type", given->output_type));
  options.per_tensor_fully_connected = given->per_tensor_fully_connected != 0;
  options.threads = given->threads;
  if (given->keep_float == nullptr && given->keep_float_count > 0) {
    return InvalidArgument("keep_float is NULL, keep_float_count %zu", given->keep_float_count);
  }
  for (size_t i = 0; i < given->keep_float_count; ++i) {
    if (given->keep_float[i] == nullptr) return InvalidArgument("keep_float[%zu] is NULL", i);
    options.keep_float.emplace_back(given->keep_float[i]);
  }
  options.keep_float_below_db = given->keep_float_below_db;
  options.target_sqnr_db = given->target_sqnr_db;
  options.target_accuracy = given->target_accuracy;
  if (given->accuracy != nullptr) {
    options.accuracy = [ask = given->accuracy, user_data = given->user_data](
                           std::span<const uint8_t> model) -> Result<double> {
      double accuracy = 0;
      const AtollStatus status = ask(user_data, model.data(), model.size(), &accuracy);
      if (status == ATOLL_OK) return accuracy;
      return Status(static_cast<StatusCode>(status), "the accuracy could not be measured");
    };
  }
  if (given->progress != nullptr) {
    options.progress = [tell = given->progress,
                        user_data = given->user_data](const QuantizeProgress& progress) {
      return tell(user_data, progress.phase, progress.done, progress.total) != 0;
    };
  }
  return options;
}

Result<Quantized> QuantizeFor(std::span<const uint8_t> model, const AtollQuantizeSamples& samples,
                              const AtollQuantizeOptions* given) {
  ATOLL_ASSIGN_OR_RETURN(const QuantizeOptions options, ToOptions(given));
  ATOLL_ASSIGN_OR_RETURN(const LoadedModel loaded, LoadTflite(model, EvaluateNode));
  CallersSamples data(samples, loaded.graphs[0]);
  return Quantize(model, &data, options);
}

}  // namespace
}  // namespace atollrt

extern "C" {

const char* AtollQuantizeLastError(void) { return atollrt::LastMessage().c_str(); }

AtollStatus AtollQuantize(const void* model, size_t model_size, const AtollQuantizeSamples* samples,
                          const AtollQuantizeOptions* options, AtollQuantized** quantized) {
  if (model == nullptr) return atollrt::NullArgumentOf("AtollQuantize", "model");
  if (samples == nullptr || samples->next == nullptr || samples->rewind == nullptr) {
    return atollrt::NullArgumentOf("AtollQuantize", "samples, or one of its functions,");
  }
  if (quantized == nullptr) return atollrt::NullArgumentOf("AtollQuantize", "quantized");
  auto result =
      atollrt::QuantizeFor({static_cast<const uint8_t*>(model), model_size}, *samples, options);
  if (!result.ok()) return atollrt::Report(result.status());
  *quantized = new AtollQuantized{std::move(result->model), ToJson(result->report)};
  return ATOLL_OK;
}

AtollStatus AtollQuantizeRepair(const void* model, size_t model_size, AtollQuantized** repaired) {
  if (model == nullptr) return atollrt::NullArgumentOf("AtollQuantizeRepair", "model");
  if (repaired == nullptr) return atollrt::NullArgumentOf("AtollQuantizeRepair", "repaired");
  auto result = atollrt::RepairFloatModel({static_cast<const uint8_t*>(model), model_size});
  if (!result.ok()) return atollrt::Report(result.status());
  *repaired = new AtollQuantized{*std::move(result), ""};
  return ATOLL_OK;
}

const void* AtollQuantizedModel(const AtollQuantized* quantized, size_t* size) {
  if (size != nullptr) *size = quantized == nullptr ? 0 : quantized->model.size();
  return quantized == nullptr ? nullptr : quantized->model.data();
}

const char* AtollQuantizedReport(const AtollQuantized* quantized) {
  return quantized == nullptr ? "" : quantized->report.c_str();
}

void AtollQuantizedDelete(AtollQuantized* quantized) { delete quantized; }

AtollStatus AtollImportOnnx(const void* model, size_t model_size, const AtollOnnxShape* shapes,
                            size_t shape_count, int keep_layout, AtollQuantized** imported) {
  if (model == nullptr) return atollrt::NullArgumentOf("AtollImportOnnx", "model");
  if (imported == nullptr) return atollrt::NullArgumentOf("AtollImportOnnx", "imported");
  if (shapes == nullptr && shape_count > 0) {
    return atollrt::NullArgumentOf("AtollImportOnnx", "shapes");
  }
  atollrt::OnnxOptions options;
  if (keep_layout != 0) options.layout = atollrt::OnnxLayout::kAsStored;
  for (size_t i = 0; i < shape_count; ++i) {
    const AtollOnnxShape& shape = shapes[i];
    if (shape.input == nullptr || (shape.dims == nullptr && shape.dim_count > 0)) {
      return atollrt::NullArgumentOf("AtollImportOnnx", "a name or shape of an input");
    }
    options.input_shapes.push_back(
        {shape.input, std::vector<int64_t>(shape.dims, shape.dims + shape.dim_count)});
  }
  auto result = atollrt::ImportOnnx({static_cast<const uint8_t*>(model), model_size}, options);
  if (!result.ok()) return atollrt::Report(result.status());
  *imported = new AtollQuantized{*std::move(result), ""};
  return ATOLL_OK;
}

AtollStatus AtollQuantizeCheck(const void* model, size_t model_size) {
  if (model == nullptr) return atollrt::NullArgumentOf("AtollQuantizeCheck", "model");
  return atollrt::Report(
      atollrt::CheckPrescriptions({static_cast<const uint8_t*>(model), model_size}));
}

}  // extern "C"
