// SPDX-License-Identifier: Apache-2.0
#include "quantize/emit.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

namespace atollrt {
namespace {

// The version from which an operator of TensorFlow Lite takes these activations.
int32_t VersionFor(const Node& node, Precision precision, bool per_tensor) {
  const bool is_16 = precision == Precision::kInt16;
  int32_t version = 2;
  switch (node.type) {
    case OpType::kCONV_2D:
      version = is_16 ? 4 : 3;
      break;
    case OpType::kDEPTHWISE_CONV_2D:
      version = is_16 ? 5 : 3;
      break;
    case OpType::kFULLY_CONNECTED:
      version = 12;  // with weights per channel
      if (per_tensor) version = is_16 ? 7 : node.inputs.size() > 2 && node.inputs[2] >= 0 ? 4 : 6;
      break;
    case OpType::kTRANSPOSE_CONV:
      version = is_16 ? 4 : 3;
      break;
    case OpType::kMUL:
      version = is_16 ? 4 : 2;
      break;
    case OpType::kADD:
      version = is_16 ? 3 : 2;
      break;
    case OpType::kSUB:
      version = is_16 ? 5 : 2;
      break;
    case OpType::kRESIZE_BILINEAR:
    case OpType::kBATCH_MATMUL:
    case OpType::kAVERAGE_POOL_2D:
    case OpType::kMAX_POOL_2D:
    case OpType::kCONCATENATION:
    case OpType::kMEAN:
    case OpType::kPAD:
    case OpType::kREDUCE_MAX:
    case OpType::kREDUCE_MIN:
    case OpType::kLOGISTIC:
    case OpType::kRELU:
    case OpType::kRELU6:
    case OpType::kSOFTMAX:
    case OpType::kTANH:
      version = is_16 ? 3 : 2;
      break;
    case OpType::kRESHAPE:
    case OpType::kSQUEEZE:
    case OpType::kEXPAND_DIMS:
    case OpType::kPRELU:
    case OpType::kHARD_SWISH:
    case OpType::kGATHER_ND:
    case OpType::kTILE:
      version = 1;
      break;
    default:
      break;
  }
  return std::max(version, node.version);
}

class Emitter {
 public:
  Emitter(const EditedGraph& source, const Scheme& scheme, const FilterChanges& changes)
      : from_(source.graph), scheme_(scheme), changes_(changes) {
    emitted_.edited.source = source.source;
    emitted_.edited.room = RoomForValues(from_);
    emitted_.tensors.assign(from_.tensors.size(), -1);
    emitted_.nodes.assign(from_.nodes.size(), -1);
    native_.resize(from_.tensors.size());
    to().name = from_.name;
  }

  Result<EmittedGraph> Run(EndType input_type, EndType output_type, Precision end_precision) {
    for (const int32_t input : from_.inputs) AddInput(input, input_type, end_precision);
    for (size_t i = 0; i < from_.nodes.size(); ++i) {
      ATOLL_RETURN_IF_ERROR(AddNode(static_cast<int32_t>(i)));
    }
    for (const int32_t output : from_.outputs) {
      ATOLL_RETURN_IF_ERROR(AddOutput(output, output_type));
    }
    return std::move(emitted_);
  }

 private:
  Graph& to() { return emitted_.edited.graph; }
  bool IsFloat(int32_t tensor) const {
    return tensor >= 0 && from_.tensors[tensor].type == DataType::kFloat32;
  }

  // A copy of a tensor of the float graph, without data, in `encoding`.
  int32_t AddTensor(int32_t tensor, const Encoding& encoding, const std::string& suffix) {
    Tensor made = from_.tensors[tensor];
    made.name += suffix;
    made.data = {};
    made.packed_weights = {};
    made.quantization = {};
    if (IsFloat(tensor)) {
      made.type = encoding.type;
      if (encoding.type != DataType::kFloat32) {
        made.quantization.scales = {encoding.scale};
        made.quantization.zero_points = {encoding.zero_point};
      }
    }
    to().tensors.push_back(std::move(made));
    return static_cast<int32_t>(to().tensors.size() - 1);
  }

  // How a tensor is stored by its node.
  int32_t AddNative(int32_t tensor, const Encoding& encoding) {
    const int32_t made = AddTensor(tensor, encoding, "");
    to().tensors[made].data = from_.tensors[tensor].data;
    emitted_.tensors[tensor] = made;
    native_[tensor] = IsFloat(tensor) ? encoding : Encoding{};
    versions_[Key(tensor, native_[tensor])] = made;
    return made;
  }

  using VersionKey = std::tuple<int32_t, DataType, float, int32_t>;
  static VersionKey Key(int32_t tensor, const Encoding& e) {
    return {tensor, e.type, e.scale, e.zero_point};
  }

  void AddConversion(int32_t input, int32_t output) {
    Node node;
    const DataType from = to().tensors[input].type, into = to().tensors[output].type;
    node.type = into == DataType::kFloat32 ? OpType::kDEQUANTIZE : OpType::kQUANTIZE;
    if (into == DataType::kFloat32) {
      node.version = from == DataType::kInt16 ? 3 : 2;
    } else {
      const bool wide = from == DataType::kInt16 || into == DataType::kInt16;
      node.version =
          wide ? (from == DataType::kFloat32 ? 2 : 3) : (from == DataType::kFloat32 ? 1 : 2);
    }
    node.inputs = {input};
    node.outputs = {output};
    to().nodes.push_back(std::move(node));
  }

  // A constant of floats in `encoding`.
  Result<int32_t> AddConstant(int32_t tensor, const Encoding& encoding) {
    if (encoding.type == DataType::kFloat32) return AddNative(tensor, {});
    const int32_t made = AddTensor(tensor, encoding, "");
    const std::span<const float> values = Floats(from_.tensors[tensor]);
    ATOLL_ASSIGN_OR_RETURN(
        const std::span<uint8_t> bytes,
        emitted_.edited.NewValue(static_cast<size_t>(to().tensors[made].byte_size())));
    const double low = encoding.type == DataType::kInt8 ? -128 : -32768;
    const double high = encoding.type == DataType::kInt8 ? 127 : 32767;
    for (size_t i = 0; i < values.size(); ++i) {
      const double steps = std::round(static_cast<double>(values[i]) / encoding.scale);
      const double stored = std::clamp(steps + encoding.zero_point, low, high);
      if (encoding.type == DataType::kInt8) {
        bytes[i] = static_cast<uint8_t>(static_cast<int8_t>(stored));
      } else {
        const auto word = static_cast<int16_t>(stored);
        std::memcpy(bytes.data() + 2 * i, &word, sizeof(word));
      }
    }
    to().tensors[made].data = bytes;
    return made;
  }

  // `tensor` as its reader wants it.
  Result<int32_t> Version(int32_t tensor, const Encoding& wanted) {
    if (tensor < 0) return -1;
    const Encoding encoding = IsFloat(tensor) ? wanted : Encoding{};
    const auto [entry, is_new] = versions_.insert({Key(tensor, encoding), -1});
    if (!is_new) return entry->second;
    const VersionKey key = entry->first;
    const Tensor& stored = from_.tensors[tensor];
    if (stored.is_constant() || stored.element_count() == 0 || stored.is_variable) {
      if (!IsFloat(tensor) || !stored.is_constant()) return versions_[key] = AddNative(tensor, {});
      ATOLL_ASSIGN_OR_RETURN(versions_[key], AddConstant(tensor, encoding));
      return versions_[key];
    }
    if (emitted_.tensors[tensor] < 0) return versions_[key] = AddNative(tensor, {});
    const char* suffix = encoding.type == DataType::kFloat32 ? "/dequantized" : "/quantized";
    const int32_t made = AddTensor(tensor, encoding, suffix);
    AddConversion(emitted_.tensors[tensor], made);
    return versions_[key] = made;
  }

  void AddInput(int32_t input, EndType type, Precision precision) {
    if (!IsFloat(input) || type == EndType::kFloat) {
      to().inputs.push_back(AddNative(input, {}));
      return;
    }
    Encoding encoding = scheme_.EncodingFor(input, precision);
    if (type == EndType::kUInt8) {
      encoding = scheme_.EncodingFor(input, Precision::kInt8);
      Encoding unsigned_encoding = encoding;
      unsigned_encoding.type = DataType::kUInt8;
      unsigned_encoding.zero_point += 128;
      const int32_t end = AddTensor(input, unsigned_encoding, "");
      to().inputs.push_back(end);
      const int32_t native = AddNative(input, encoding);
      to().tensors[native].name += "/quantized";
      AddConversion(end, native);
      return;
    }
    to().inputs.push_back(AddNative(input, encoding));
  }

  Status AddOutput(int32_t output, EndType type) {
    Encoding wanted = native_[output];
    if (from_.tensors[output].is_constant() || type == EndType::kFloat) wanted = {};
    if (type == EndType::kUInt8 && IsFloat(output)) {
      wanted = native_[output].type == DataType::kInt8
                   ? native_[output]
                   : scheme_.EncodingFor(output, Precision::kInt8);
      wanted.type = DataType::kUInt8;
      wanted.zero_point += 128;
    }
    ATOLL_ASSIGN_OR_RETURN(const int32_t made, Version(output, wanted));
    // The end has the name that the model's users know.
    if (made != emitted_.tensors[output] && emitted_.tensors[output] >= 0) {
      const std::string& name = from_.tensors[output].name;
      Tensor& native = to().tensors[emitted_.tensors[output]];
      if (native.name == name) native.name += "/quantized";
      to().tensors[made].name = name;
    }
    to().outputs.push_back(made);
    return Status();
  }

  Status AddNode(int32_t index) {
    const Node& node = from_.nodes[index];
    const Precision precision = scheme_.choice(static_cast<size_t>(index)).precision;
    Node made = node;
    made.intermediates.clear();
    if (precision == Precision::kFloat) {
      for (int32_t& input : made.inputs) {
        ATOLL_ASSIGN_OR_RETURN(input, Version(input, {}));
      }
      made.intermediates = node.intermediates;
      for (int32_t& tensor : made.intermediates) {
        ATOLL_ASSIGN_OR_RETURN(tensor, Version(tensor, {}));
      }
      for (int32_t& output : made.outputs) output = AddNative(output, {});
    } else {
      const OpRule rule = RuleOf(node.type, precision);
      const Encoding shared =
          rule == OpRule::kShared ? scheme_.EncodingFor(node.outputs[0], precision) : Encoding{};
      for (size_t k = 0; k < made.inputs.size(); ++k) {
        if (rule == OpRule::kFilter && k != FilterInput(node) && IsFloat(node.inputs[k])) continue;
        const int32_t input = node.inputs[k];
        if (input < 0) continue;
        const Encoding wanted =
            rule == OpRule::kShared ? shared : scheme_.EncodingFor(input, precision);
        ATOLL_ASSIGN_OR_RETURN(made.inputs[k], Version(input, wanted));
      }
      if (rule == OpRule::kFilter) {
        ATOLL_RETURN_IF_ERROR(AddWeights(index, precision, &made));
      }
      for (int32_t& output : made.outputs) {
        output = AddNative(output, scheme_.EncodingFor(output, precision));
      }
      made.version = VersionFor(node, precision, changes_.per_tensor_fully_connected);
      if (auto* options = std::get_if<ElementwiseOptions>(&made.options)) {
        options->pot_scale_int16 = false;
      }
    }
    emitted_.nodes[index] = static_cast<int32_t>(to().nodes.size());
    to().nodes.push_back(std::move(made));
    return Status();
  }

  Status AddWeights(int32_t index, Precision precision, Node* made) {
    const Node& node = from_.nodes[index];
    const int32_t input = made->inputs[FilterInput(node)];
    const float input_scale = to().tensors[input].scale();
    const Tensor& weights = *from_.Input(node, kFilterWeights);
    const Tensor* bias = from_.Input(node, FilterBias(node));
    std::vector<float> scales = WeightScales(from_, node, input_scale);
    const size_t channels = scales.size();
    const bool per_tensor =
        changes_.per_tensor_fully_connected && node.type == OpType::kFULLY_CONNECTED;
    if (per_tensor) {
      std::fill(scales.begin(), scales.end(), *std::max_element(scales.begin(), scales.end()));
    }

    // Weights.
    Tensor stored;
    stored.name = weights.name;
    stored.type = DataType::kInt8;
    stored.shape = weights.shape;
    stored.quantization.scales = scales;
    if (per_tensor) stored.quantization.scales.resize(1);
    stored.quantization.zero_points.assign(stored.quantization.scales.size(), 0);
    stored.quantization.dimension = ChannelDimension(node);
    ATOLL_ASSIGN_OR_RETURN(const std::span<uint8_t> bytes,
                           emitted_.edited.NewValue(static_cast<size_t>(stored.byte_size())));
    const auto rounded = changes_.rounded_weights.find(index);
    const std::span<const float> values = Floats(weights);
    if (rounded != changes_.rounded_weights.end()) {
      std::memcpy(bytes.data(), rounded->second.data(), bytes.size());
    } else {
      const size_t inner = ChannelDimension(node) == 3 ? 1 : values.size() / channels;
      for (size_t i = 0; i < values.size(); ++i) {
        bytes[i] = static_cast<uint8_t>(
            RoundWeight(static_cast<double>(values[i]), scales[i / inner % channels]));
      }
    }
    stored.data = bytes;
    made->inputs[kFilterWeights] = Append(std::move(stored));

    // The bias, where there is one or a correction.
    const auto correction = changes_.bias.find(index);
    if (bias == nullptr && correction == changes_.bias.end()) return Status();
    const bool wide = precision == Precision::kInt16;
    Tensor sums;
    sums.name = bias != nullptr ? bias->name : from_.Output(node).name + "/bias";
    sums.type = wide ? DataType::kInt64 : DataType::kInt32;
    sums.shape = {static_cast<int32_t>(channels)};
    for (const float scale : to().tensors[made->inputs[kFilterWeights]].quantization.scales) {
      sums.quantization.scales.push_back(input_scale * scale);
    }
    sums.quantization.zero_points.assign(sums.quantization.scales.size(), 0);
    ATOLL_ASSIGN_OR_RETURN(const std::span<uint8_t> sum_bytes,
                           emitted_.edited.NewValue(static_cast<size_t>(sums.byte_size())));
    for (size_t c = 0; c < channels; ++c) {
      double value = bias != nullptr ? static_cast<double>(Floats(*bias)[c]) : 0.0;
      if (correction != changes_.bias.end()) value += correction->second[c];
      const double step = static_cast<double>(input_scale) * static_cast<double>(scales[c]);
      const double limit = wide ? 0x1p39 : 0x1p31 - 1;
      const double steps = std::clamp(std::round(value / step), -limit, limit);
      if (wide) {
        const auto sum = static_cast<int64_t>(steps);
        std::memcpy(sum_bytes.data() + 8 * c, &sum, sizeof(sum));
      } else {
        const auto sum = static_cast<int32_t>(steps);
        std::memcpy(sum_bytes.data() + 4 * c, &sum, sizeof(sum));
      }
    }
    sums.data = sum_bytes;
    made->inputs.resize(std::max(made->inputs.size(), FilterBias(node) + 1), -1);
    made->inputs[FilterBias(node)] = Append(std::move(sums));
    return Status();
  }

  int32_t Append(Tensor tensor) {
    to().tensors.push_back(std::move(tensor));
    return static_cast<int32_t>(to().tensors.size() - 1);
  }

  const Graph& from_;
  const Scheme& scheme_;
  const FilterChanges& changes_;
  EmittedGraph emitted_;
  std::vector<Encoding> native_;  // of each float tensor that is there
  std::map<VersionKey, int32_t> versions_;
};

}  // namespace

std::vector<float> WeightScales(const Graph& graph, const Node& node, float input_scale) {
  const Tensor& weights = *graph.Input(node, kFilterWeights);
  const Tensor* bias = graph.Input(node, FilterBias(node));
  const auto channels =
      static_cast<size_t>(weights.shape[static_cast<size_t>(ChannelDimension(node))]);
  const std::span<const float> values = Floats(weights);
  const size_t inner = ChannelDimension(node) == 3 ? 1 : values.size() / channels;
  std::vector<float> largest(channels, 0.0f);
  for (size_t i = 0; i < values.size(); ++i) {
    float& found = largest[i / inner % channels];
    found = std::max(found, std::abs(values[i]));
  }
  for (size_t c = 0; c < channels; ++c) {
    float& scale = largest[c];
    scale = scale < 1e-30f ? 1.0f / 127.0f : scale / 127.0f;
    // A channel of tiny weights beside a large bias, which 32 bits have to hold, with room for
    // sums.
    const double value = bias == nullptr ? 0.0 : std::abs(static_cast<double>(Floats(*bias)[c]));
    const double needed = value / (0x1p29 * static_cast<double>(input_scale));
    scale = std::max(scale, static_cast<float>(needed));
  }
  return largest;
}

int8_t RoundWeight(double value, float scale) {
  return static_cast<int8_t>(
      std::clamp(std::round(value / static_cast<double>(scale)), -127.0, 127.0));
}

Result<EmittedGraph> EmitQuantized(const EditedGraph& source, const Scheme& scheme,
                                   const FilterChanges& changes, EndType input_type,
                                   EndType output_type, Precision end_precision) {
  return Emitter(source, scheme, changes).Run(input_type, output_type, end_precision);
}

Graph GraphUpTo(const Graph& graph, const std::vector<int32_t>& outputs) {
  Graph part = graph;
  part.outputs = outputs;
  RemoveNodes(std::vector<bool>(part.nodes.size(), false), &part);
  return part;
}

}  // namespace atollrt
