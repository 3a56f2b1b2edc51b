// SPDX-License-Identifier: Apache-2.0
#include "quantize/check_prescriptions.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "runtime/ops/cpu_ops.h"
#include "runtime/tflite/tflite_loader.h"

namespace atollrt {
namespace {

bool IsSigned(const Tensor& tensor) {
  return tensor.type == DataType::kInt8 || tensor.type == DataType::kInt16;
}

class Checker {
 public:
  explicit Checker(const Graph& graph) : graph_(graph) {}

  std::vector<std::string> Run() {
    for (const Node& node : graph_.nodes) {
      node_ = &node;
      if (node.outputs.empty()) continue;
      for (const int32_t tensor : node.inputs) CheckActivation(tensor);
      for (const int32_t tensor : node.outputs) CheckActivation(tensor);
      CheckNode();
    }
    return std::move(problems_);
  }

 private:
  [[gnu::format(printf, 2, 3)]] void Report(const char* format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    (void)std::vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    problems_.push_back(Describe(graph_, *node_) + ": " + text);
  }

  void CheckActivation(int32_t index) {
    if (index < 0) return;
    const Tensor& tensor = graph_.tensors[index];
    const Quantization& q = tensor.quantization;
    if (tensor.type == DataType::kInt16 && !q.scales.empty()) {
      for (const int64_t zero_point : q.zero_points) {
        if (zero_point != 0) {
          Report("'%s' is int16 with zero point %lld, must be 0", tensor.name.c_str(),
                 static_cast<long long>(zero_point));
          break;
        }
      }
    }
    if (tensor.type == DataType::kInt8) {
      for (const int64_t zero_point : q.zero_points) {
        if (zero_point < -128 || zero_point > 127) {
          Report("'%s' is int8 with zero point %lld", tensor.name.c_str(),
                 static_cast<long long>(zero_point));
          break;
        }
      }
    }
    const auto is_no_scale = [](float scale) { return !(scale > 0) || !std::isfinite(scale); };
    if (IsSigned(tensor) && std::any_of(q.scales.begin(), q.scales.end(), is_no_scale)) {
      Report("'%s' has a scale that is not above 0", tensor.name.c_str());
    }
  }

  void CheckNode() {
    switch (node_->type) {
      case OpType::kCONV_2D:
      case OpType::kFULLY_CONNECTED:
        CheckFilter(0, 2, 0);
        break;
      case OpType::kDEPTHWISE_CONV_2D:
        CheckFilter(0, 2, 3);
        break;
      case OpType::kTRANSPOSE_CONV:
        CheckFilter(2, 3, 0);
        break;
      case OpType::kSOFTMAX:
      case OpType::kLOGISTIC:
        CheckPrescribed(1.0 / 256, -128, 1.0 / 32768);
        break;
      case OpType::kTANH:
        CheckPrescribed(1.0 / 128, 0, 1.0 / 32768);
        break;
      case OpType::kL2_NORMALIZATION:
        CheckPrescribed(1.0 / 128, 0, 0);
        break;
      case OpType::kLOG_SOFTMAX:
        CheckPrescribed(16.0 / 256, 127, 0);
        break;
      case OpType::kAVERAGE_POOL_2D:
      case OpType::kMAX_POOL_2D:
      case OpType::kRESHAPE:
      case OpType::kSQUEEZE:
      case OpType::kEXPAND_DIMS:
      case OpType::kTRANSPOSE:
      case OpType::kSLICE:
      case OpType::kSTRIDED_SLICE:
      case OpType::kSPLIT:
      case OpType::kSPLIT_V:
      case OpType::kUNPACK:
      case OpType::kPACK:
      case OpType::kCONCATENATION:
      case OpType::kPAD:
      case OpType::kPADV2:
      case OpType::kMIRROR_PAD:
      case OpType::kGATHER:
      case OpType::kGATHER_ND:
      case OpType::kTILE:
      case OpType::kBROADCAST_TO:
      case OpType::kRESIZE_BILINEAR:
      case OpType::kRESIZE_NEAREST_NEIGHBOR:
      case OpType::kSPACE_TO_DEPTH:
      case OpType::kDEPTH_TO_SPACE:
      case OpType::kSPACE_TO_BATCH_ND:
      case OpType::kBATCH_TO_SPACE_ND:
      case OpType::kMAXIMUM:
      case OpType::kMINIMUM:
      case OpType::kREDUCE_MAX:
      case OpType::kREDUCE_MIN:
      case OpType::kREVERSE_V2:
        CheckShared();
        break;
      case OpType::kSUM:
        if (graph_.Output(*node_).type == DataType::kInt16) CheckShared();
        break;
      case OpType::kADD:
      case OpType::kSUB:
      case OpType::kMUL:
      case OpType::kMEAN:
      case OpType::kPRELU:
      case OpType::kLEAKY_RELU:
      case OpType::kRELU:
      case OpType::kRELU6:
      case OpType::kHARD_SWISH:
      case OpType::kBATCH_MATMUL:
        CheckOneType();
        break;
      default:
        break;
    }
  }

  void CheckFilter(size_t input_position, size_t bias_position, int32_t dimension) {
    const Tensor* input = graph_.Input(*node_, input_position);
    const Tensor* weights = graph_.Input(*node_, 1);
    const Tensor* bias = graph_.Input(*node_, bias_position);
    if (input == nullptr || weights == nullptr || !IsSigned(*input)) return;
    if (weights->type != DataType::kInt8) {
      Report("weights '%s' are %s beside %s activations, must be int8", weights->name.c_str(),
             DataTypeName(weights->type), DataTypeName(input->type));
      return;
    }
    const Quantization& q = weights->quantization;
    const auto channels = static_cast<size_t>(weights->shape[static_cast<size_t>(dimension)]);
    if (q.scales.size() != 1 && (q.scales.size() != channels || q.dimension != dimension)) {
      Report("weights '%s' have %zu scales along dimension %d, must have 1 or %zu along %d",
             weights->name.c_str(), q.scales.size(), q.dimension, channels, dimension);
      return;
    }
    const auto is_other = [](int64_t zero_point) { return zero_point != 0; };
    if (std::any_of(q.zero_points.begin(), q.zero_points.end(), is_other)) {
      Report("weights '%s' have a zero point other than 0", weights->name.c_str());
    }
    const auto lowest = [](uint8_t byte) { return byte == 0x80; };
    if (weights->is_constant() &&
        std::any_of(weights->data.begin(),
                    weights->data.begin() + static_cast<ptrdiff_t>(weights->byte_size()), lowest)) {
      Report("weights '%s' contain -128, must be at least -127", weights->name.c_str());
    }
    if (bias != nullptr) CheckBias(*input, *weights, *bias);
  }

  void CheckBias(const Tensor& input, const Tensor& weights, const Tensor& bias) {
    const bool may_be_wide = input.type == DataType::kInt16;
    if (bias.type != DataType::kInt32 && !(may_be_wide && bias.type == DataType::kInt64)) {
      Report("bias '%s' is %s, must be %s", bias.name.c_str(), DataTypeName(bias.type),
             may_be_wide ? "int64 or int32" : "int32");
      return;
    }
    const std::vector<float>& scales = bias.quantization.scales;
    const std::vector<float>& weight_scales = weights.quantization.scales;
    if (scales.size() != weight_scales.size()) {
      Report("bias '%s' has %zu scales, its weights have %zu", bias.name.c_str(), scales.size(),
             weight_scales.size());
      return;
    }
    for (size_t c = 0; c < scales.size(); ++c) {
      const double product =
          static_cast<double>(input.scale()) * static_cast<double>(weight_scales[c]);
      if (std::abs(static_cast<double>(scales[c]) - product) <= 1e-5 * product) continue;
      Report("bias '%s' has scale[%zu] %g, must be the product %g of those of input and weights",
             bias.name.c_str(), c, static_cast<double>(scales[c]), product);
      return;
    }
    for (const int64_t zero_point : bias.quantization.zero_points) {
      if (zero_point == 0) continue;
      Report("bias '%s' has zero point %lld, must be 0", bias.name.c_str(),
             static_cast<long long>(zero_point));
      return;
    }
  }

  void CheckPrescribed(double scale_8, int32_t zero_point_8, double scale_16) {
    const Tensor& output = graph_.Output(*node_);
    if (!IsSigned(output)) return;
    const bool is_8 = output.type == DataType::kInt8;
    if (!is_8 && scale_16 == 0) {
      Report("there is no int16 form of it");
      return;
    }
    const double scale = is_8 ? scale_8 : scale_16;
    const int32_t zero_point = is_8 ? zero_point_8 : 0;
    if (static_cast<double>(output.scale()) == scale && output.zero_point() == zero_point) return;
    Report("output has scale %g and zero point %d, must have %g and %d",
           static_cast<double>(output.scale()), output.zero_point(), scale, zero_point);
  }

  void CheckShared() {
    const Tensor& output = graph_.Output(*node_);
    if (!IsSigned(output) || output.quantization.scales.empty()) return;
    const auto check = [this, &output](const Tensor& other) {
      if (!IsSigned(other) || other.quantization.scales.empty()) return;
      if (other.type == output.type && other.scale() == output.scale() &&
          other.zero_point() == output.zero_point()) {
        return;
      }
      Report("'%s' has scale %g and zero point %d, must share %g and %d of '%s'",
             other.name.c_str(), static_cast<double>(other.scale()), other.zero_point(),
             static_cast<double>(output.scale()), output.zero_point(), output.name.c_str());
    };
    for (size_t k = 0; k < node_->inputs.size(); ++k) {
      if (const Tensor* input = graph_.Input(*node_, k)) check(*input);
    }
    for (size_t k = 1; k < node_->outputs.size(); ++k) check(graph_.Output(*node_, k));
  }

  void CheckOneType() {
    const Tensor& output = graph_.Output(*node_);
    const Tensor* input = graph_.Input(*node_, 0);
    if (input == nullptr || input->type == output.type) return;
    if (!IsSigned(output) && !IsSigned(*input)) return;
    Report("input '%s' is %s, the output %s", input->name.c_str(), DataTypeName(input->type),
           DataTypeName(output.type));
  }

  const Graph& graph_;
  const Node* node_ = nullptr;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> BrokenPrescriptions(const Graph& graph) { return Checker(graph).Run(); }

Status CheckPrescriptions(std::span<const uint8_t> model) {
  ATOLL_ASSIGN_OR_RETURN(const LoadedModel loaded, LoadTflite(model, EvaluateNode));
  std::string all;
  for (const Graph& graph : loaded.graphs) {
    for (const std::string& problem : BrokenPrescriptions(graph)) {
      if (!all.empty()) all += '\n';
      all += problem;
    }
  }
  if (all.empty()) return Status();
  return Status(StatusCode::kCorruptModel, all);
}

}  // namespace atollrt
