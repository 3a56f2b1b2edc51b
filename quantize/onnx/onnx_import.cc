// SPDX-License-Identifier: Apache-2.0
#include "quantize/onnx/onnx_import.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "quantize/onnx/onnx_graph.h"
#include "quantize/onnx/onnx_operators.h"
#include "quantize/onnx/onnx_proto.h"
#include "runtime/base/bytes.h"
#include "runtime/tflite/tflite_loader.h"
#include "runtime/tflite/tflite_writer.h"

namespace atollrt {
namespace {

constexpr int64_t kFirstOpset = 7;
constexpr int64_t kLastOpset = 17;

float FloatOfHalf(uint16_t half) {
  const uint32_t exponent = (half >> 10) & 31;
  const uint32_t fraction = half & 1023;
  float value = 0;
  if (exponent == 31) {
    value = fraction == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    value = std::ldexp(static_cast<float>(fraction + 1024), static_cast<int>(exponent) - 25);
  }
  return (half & 0x8000) != 0 ? -value : value;
}

template <typename T>
std::vector<int64_t> RawIntegers(std::span<const uint8_t> raw) {
  std::vector<int64_t> values(raw.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<int64_t>(LoadLittleEndian<T>(raw.data() + i * sizeof(T)));
  }
  return values;
}

// What to do about operators that are asked for often.
const char* Advice(std::string_view op) {
  if (op == "Erf") return "GELU has no kernel here; export a model with ReLU or hard swish";
  if (op == "LRN") return "there is no kernel for local response normalization";
  if (op == "NonMaxSuppression" || op == "TopK" || op == "NonZero") {
    return "export the model without its postprocessing";
  }
  if (op == "QuantizeLinear" || op == "DequantizeLinear" || op == "QLinearConv" ||
      op == "ConvInteger" || op == "DynamicQuantizeLinear") {
    return "import the float model and quantize it here";
  }
  if (op == "If" || op == "Loop" || op == "Scan") {
    return "control flow cannot be imported; export with fixed shapes, or simplify the model";
  }
  if (op == "LSTM" || op == "GRU" || op == "RNN") return "recurrent layers cannot be imported";
  return "docs/onnx.md lists the operators that can be imported";
}

std::string NodeName(const OnnxNode& node, size_t index, int64_t opset) {
  // By the name of the node, or of its output, which is what viewers show.
  std::string_view name = node.name;
  if (name.empty() && !node.outputs.empty()) name = node.outputs[0];
  constexpr size_t kLongest = 80;
  return Format(
      "node %zu '%s' (%s, opset %lld)", index, std::string(name.substr(0, kLongest)).c_str(),
      std::string(node.op_type.substr(0, kLongest)).c_str(), static_cast<long long>(opset));
}

const std::unordered_map<std::string_view, OnnxOperator>& Operators() {
  static const auto* const operators = [] {
    auto* map = new std::unordered_map<std::string_view, OnnxOperator>;
    for (const auto& entries : {OnnxLayerOperators(), OnnxPoolOperators(), OnnxMathOperators(),
                                OnnxMoveOperators(), OnnxValueOperators(), OnnxResizeOperators()}) {
      for (const OnnxOperatorEntry& entry : entries) (*map)[entry.name] = entry.import;
    }
    return map;
  }();
  return *operators;
}

class Importer {
 public:
  Importer(const OnnxModel& model, const OnnxOptions& options, size_t file_bytes)
      : model_(model), options_(options), builder_(Budget(file_bytes), MostTensors(file_bytes)) {}

  Result<std::vector<uint8_t>> Run() {
    ATOLL_RETURN_IF_ERROR(CheckOpset());
    ATOLL_RETURN_IF_ERROR(AddInitializers());
    ATOLL_RETURN_IF_ERROR(AddInputs());
    CountUses();
    for (size_t i = 0; i < model_.graph.nodes.size(); ++i) {
      const OnnxNode& node = model_.graph.nodes[i];
      ATOLL_RETURN_IF_ERROR(ImportNode(node).WithContext(NodeName(node, i, model_.opset)));
    }
    ATOLL_RETURN_IF_ERROR(AddOutputs());
    RemoveUnused();
    values_.clear();
    builder_.FreeUnused();
    ATOLL_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, Write());
    // What is handed out loads.
    const auto loaded = LoadTflite(bytes);
    if (!loaded.ok()) return Status(loaded.status()).WithContext("the model as a .tflite");
    return bytes;
  }

 private:
  // What constants may take that are computed or stored in another order.
  static int64_t Budget(size_t file_bytes) {
    return 24 * static_cast<int64_t>(file_bytes) + (int64_t{1} << 16);
  }
  // A tensor takes a kilobyte with its share of a node, and once more where the result is checked.
  static int64_t MostTensors(size_t file_bytes) {
    return static_cast<int64_t>(file_bytes) / 4 + 1024;
  }

  Status CheckOpset() const {
    if (model_.opset == 0) {
      return CorruptModel("the model does not say which opset of ONNX it uses");
    }
    if (model_.opset < kFirstOpset || model_.opset > kLastOpset) {
      return Unsupported("opset %lld; %lld to %lld are supported: export with opset_version=13",
                         static_cast<long long>(model_.opset), static_cast<long long>(kFirstOpset),
                         static_cast<long long>(kLastOpset));
    }
    return Status();
  }

  Status AddInitializers() {
    for (const OnnxTensor& tensor : model_.graph.initializers) {
      auto value = LoadOnnxTensor(tensor, &builder_);
      if (!value.ok()) {
        return Status(value.status())
            .WithContext("initializer '" + std::string(tensor.name.substr(0, 80)) + "'");
      }
      values_[tensor.name] = *std::move(value);
    }
    return Status();
  }

  Status AddInputs() {
    std::vector<const OnnxValueInfo*> inputs;
    for (const OnnxValueInfo& info : model_.graph.inputs) {
      // Files of IR 3 list weights among the inputs.
      if (values_.find(info.name) == values_.end()) inputs.push_back(&info);
    }
    for (const OnnxOptions::InputShape& shape : options_.input_shapes) {
      const bool known = std::any_of(inputs.begin(), inputs.end(), [&](const OnnxValueInfo* info) {
        return info->name == shape.name || (shape.name.empty() && inputs.size() == 1);
      });
      if (!known) {
        return InvalidArgument("the model has no input '%s'%s%s", shape.name.c_str(),
                               inputs.empty() ? "" : "; its first one is ",
                               inputs.empty() ? "" : std::string(inputs[0]->name).c_str());
      }
    }
    for (const OnnxValueInfo* info : inputs) {
      ATOLL_RETURN_IF_ERROR(AddInput(*info).WithContext("input '" + std::string(info->name) + "'"));
    }
    return Status();
  }

  Status AddInput(const OnnxValueInfo& info) {
    if (!info.is_tensor) return Unsupported("not a tensor");
    DataType type = DataType::kFloat32;
    OnnxType onnx_type = OnnxType::kFloat;
    switch (info.type) {
      case OnnxType::kFloat:
      case OnnxType::kFloat16:
        break;
      case OnnxType::kInt32:
        type = DataType::kInt32;
        onnx_type = OnnxType::kInt32;
        break;
      case OnnxType::kInt64:
        type = DataType::kInt64;
        onnx_type = OnnxType::kInt64;
        break;
      default:
        return Unsupported("type %s; float, float16, int32 and int64 are supported",
                           OnnxTypeName(info.type));
    }
    Dims dims = info.dims;
    bool given = false;
    for (const OnnxOptions::InputShape& shape : options_.input_shapes) {
      if (!shape.name.empty() && shape.name != info.name) continue;
      if (info.has_shape && shape.dims.size() != info.dims.size()) {
        return InvalidArgument(
            "the shape %s for an input of %s: give all %zu sizes in the order of the ONNX file "
            "(--input-shape %.*s=...)",
            DimsString(shape.dims).c_str(), DimsString(info.dims).c_str(), info.dims.size(),
            static_cast<int>(info.name.size()), info.name.data());
      }
      dims = shape.dims;
      given = true;
    }
    if (!info.has_shape && !given) {
      return InvalidArgument("the file does not say its shape: give it (--input-shape)");
    }
    // The batch may be 1; no other size can be guessed.
    if (!given && !dims.empty() && dims[0] < 1) dims[0] = 1;
    for (const int64_t size : dims) {
      if (size < 1 && !given) {
        std::string example;
        for (const int64_t known : dims) {
          example += (example.empty() ? "" : "x") + (known < 1 ? "?" : std::to_string(known));
        }
        return InvalidArgument(
            "the file has names in the place of its height, width or other sizes: give numbers for "
            "all ? in --input-shape %.*s=%s",
            static_cast<int>(info.name.size()), info.name.data(), example.c_str());
      }
      if (size < 1 || size > INT32_MAX) {
        return InvalidArgument("the shape is %s", DimsString(dims).c_str());
      }
    }
    if (DimsCount(dims) > kMaxTensorBytes / 8) {
      return InvalidArgument("the shape %s is too large", DimsString(dims).c_str());
    }
    ATOLL_RETURN_IF_ERROR(CheckRank(dims.size()));
    const bool nhwc = options_.layout == OnnxLayout::kNhwc && dims.size() == 4;
    const Perm perm = nhwc ? ChannelsLast(4) : IdentityPerm(dims.size());
    Shape shape;
    for (const int32_t axis : perm) shape.push_back(static_cast<int32_t>(dims[axis]));
    ATOLL_ASSIGN_OR_RETURN(const int32_t tensor,
                           builder_.AddInput(std::string(info.name), type, std::move(shape)));
    if (!values_.emplace(info.name, builder_.FromTensor(tensor, perm, onnx_type)).second) {
      return CorruptModel("two inputs have this name");
    }
    return Status();
  }

  void CountUses() {
    for (const OnnxNode& node : model_.graph.nodes) {
      for (const std::string_view input : node.inputs) ++uses_[input];
    }
    for (const OnnxValueInfo& output : model_.graph.outputs) ++uses_[output.name];
  }

  Status ImportNode(const OnnxNode& node) {
    const bool is_tflite = node.domain == "tflite";
    if (!node.domain.empty() && node.domain != "ai.onnx" && !is_tflite) {
      return Unsupported("its domain '%s' is not ONNX's own; export without custom operators",
                         std::string(node.domain.substr(0, 80)).c_str());
    }
    const auto found = Operators().find(node.op_type);
    if (found == Operators().end() && !is_tflite) {
      return Unsupported("this operator cannot be imported: %s", Advice(node.op_type));
    }
    if (node.outputs.empty() || node.outputs[0].empty()) return CorruptModel("it has no output");
    OnnxNodeImport import(node, model_.opset, &builder_, &values_, &uses_);
    if (is_tflite) return ImportTfliteOperator(import);
    return found->second(import);
  }

  Status AddOutputs() {
    if (model_.graph.outputs.empty()) return CorruptModel("the graph has no outputs");
    Graph& graph = builder_.graph();
    std::unordered_set<int32_t> taken(graph.inputs.begin(), graph.inputs.end());
    for (const OnnxValueInfo& output : model_.graph.outputs) {
      const std::string name(output.name);
      const auto found = values_.find(output.name);
      if (found == values_.end()) {
        return CorruptModel("output '%s' is computed by no node", name.c_str());
      }
      const OnnxValue& value = found->second;
      if (value.is_constant()) {
        return Unsupported("output '%s' is a constant; remove it from the model's outputs",
                           name.c_str());
      }
      const bool picture = options_.layout == OnnxLayout::kNhwc && value.rank() == 4 &&
                           value.perm == ChannelsLast(4);
      auto tensor = builder_.Stored(value, picture ? value.perm : IdentityPerm(value.rank()));
      if (!tensor.ok()) return Status(tensor.status()).WithContext("output '" + name + "'");
      int32_t index = *tensor;
      // One tensor has one name and one role.
      if (taken.contains(index)) {
        ATOLL_ASSIGN_OR_RETURN(const int32_t begin,
                               builder_.IntTensor({static_cast<int32_t>(value.rank())},
                                                  std::vector<int32_t>(value.rank(), 0)));
        const Shape shape = builder_.tensor(index).shape;
        ATOLL_ASSIGN_OR_RETURN(
            const int32_t size,
            builder_.IntTensor({static_cast<int32_t>(value.rank())}, {shape.begin(), shape.end()}));
        ATOLL_ASSIGN_OR_RETURN(index, builder_.Emit(OpType::kSLICE, {index, begin, size}));
      }
      taken.insert(index);
      graph.tensors[static_cast<size_t>(index)].name = name;
      graph.outputs.push_back(index);
    }
    return Status();
  }

  // Nodes that no output needs, and tensors that no node has.
  void RemoveUnused() {
    Graph& graph = builder_.graph();
    std::vector<bool> needed(graph.tensors.size(), false);
    for (const int32_t tensor : graph.inputs) needed[static_cast<size_t>(tensor)] = true;
    for (const int32_t tensor : graph.outputs) needed[static_cast<size_t>(tensor)] = true;
    std::vector<Node> nodes;
    for (size_t i = graph.nodes.size(); i-- > 0;) {
      Node& node = graph.nodes[i];
      const bool used = std::any_of(node.outputs.begin(), node.outputs.end(), [&](int32_t tensor) {
        return needed[static_cast<size_t>(tensor)];
      });
      if (!used) continue;
      for (const int32_t tensor : node.inputs) needed[static_cast<size_t>(tensor)] = true;
      for (const int32_t tensor : node.outputs) needed[static_cast<size_t>(tensor)] = true;
      nodes.push_back(std::move(node));
    }
    std::reverse(nodes.begin(), nodes.end());
    std::vector<int32_t> renumbered(graph.tensors.size(), -1);
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < graph.tensors.size(); ++i) {
      if (!needed[i]) continue;
      renumbered[i] = static_cast<int32_t>(tensors.size());
      if (graph.tensors[i].name.empty())
        graph.tensors[i].name = "t" + std::to_string(tensors.size());
      tensors.push_back(std::move(graph.tensors[i]));
    }
    const auto renumber = [&](std::vector<int32_t>* list) {
      for (int32_t& tensor : *list) tensor = renumbered[static_cast<size_t>(tensor)];
    };
    for (Node& node : nodes) {
      renumber(&node.inputs);
      renumber(&node.outputs);
    }
    renumber(&graph.inputs);
    renumber(&graph.outputs);
    graph.nodes = std::move(nodes);
    graph.tensors = std::move(tensors);
  }

  Result<std::vector<uint8_t>> Write() {
    Graph& graph = builder_.graph();
    graph.name = "main";  // as TensorFlow Lite has it
    return WriteTflite(graph);
  }

  const OnnxModel& model_;
  const OnnxOptions& options_;
  OnnxGraphBuilder builder_;
  OnnxNodeImport::Values values_;
  OnnxNodeImport::Uses uses_;
};

}  // namespace

// ---- What operators ask of a node ----

Result<const OnnxValue*> OnnxNodeImport::Input(size_t position) const {
  if (!has(position)) return CorruptModel("input %zu is absent", position);
  const auto found = values_.find(node.inputs[position]);
  if (found == values_.end()) {
    return CorruptModel("input '%s' is computed by no node before it",
                        std::string(node.inputs[position].substr(0, 80)).c_str());
  }
  return &found->second;
}

Result<const OnnxValue*> OnnxNodeImport::FloatInput(size_t position) const {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* value, Input(position));
  if (!value->is_float()) {
    return Unsupported("input %zu of type %s; float is supported", position,
                       OnnxTypeName(value->type));
  }
  return value;
}

Result<Dims> OnnxNodeImport::IntegersAt(size_t position, const char* what) const {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* value, Input(position));
  if (!value->is_constant()) {
    return Unsupported(
        "%s (input %zu) is computed at run time; it must be a constant: export with "
        "fixed shapes, or simplify the model",
        what, position);
  }
  if (value->is_float()) return CorruptModel("%s (input %zu) has floats", what, position);
  return value->constant->integers;
}

Result<Dims> OnnxNodeImport::IntegersOf(const char* attribute, size_t position, int64_t since,
                                        Dims fallback) const {
  if (opset >= since) {
    if (!has(position)) return fallback;
    return IntegersAt(position, attribute);
  }
  const OnnxAttribute* found = Attribute(attribute);
  return found == nullptr ? fallback : found->ints;
}

Result<std::vector<float>> OnnxNodeImport::FloatsAt(size_t position, const char* what) const {
  ATOLL_ASSIGN_OR_RETURN(const OnnxValue* value, Input(position));
  if (!value->is_constant()) {
    return Unsupported("%s (input %zu) is computed at run time; it must be a constant", what,
                       position);
  }
  if (!value->is_float()) return CorruptModel("%s (input %zu) has no floats", what, position);
  return value->constant->floats;
}

bool OnnxNodeImport::OnlyReader(size_t position) const {
  const auto value = values_.find(node.inputs[position]);
  const auto uses = uses_.find(node.inputs[position]);
  return value != values_.end() && uses != uses_.end() && uses->second == 1 &&
         !value->second.shared;
}

const OnnxAttribute* OnnxNodeImport::Attribute(std::string_view name) const {
  for (const OnnxAttribute& attribute : node.attributes) {
    if (attribute.name == name) return &attribute;
  }
  return nullptr;
}

int64_t OnnxNodeImport::Int(std::string_view name, int64_t fallback) const {
  const OnnxAttribute* attribute = Attribute(name);
  return attribute == nullptr ? fallback : attribute->i;
}

float OnnxNodeImport::Float(std::string_view name, float fallback) const {
  const OnnxAttribute* attribute = Attribute(name);
  return attribute == nullptr ? fallback : attribute->f;
}

std::string_view OnnxNodeImport::Text(std::string_view name, std::string_view fallback) const {
  const OnnxAttribute* attribute = Attribute(name);
  return attribute == nullptr ? fallback : attribute->s;
}

Dims OnnxNodeImport::Ints(std::string_view name) const {
  const OnnxAttribute* attribute = Attribute(name);
  return attribute == nullptr ? Dims{} : attribute->ints;
}

Status OnnxNodeImport::SetAt(size_t position, OnnxValue value) {
  if (position >= node.outputs.size() || node.outputs[position].empty()) return Status();
  // Another name of an operand's tensor: what changes the tensor would change both.
  for (size_t i = 0; !value.is_constant() && i < node.inputs.size(); ++i) {
    const auto found = values_.find(node.inputs[i]);
    if (found == values_.end() || found->second.is_constant()) continue;
    if (found->second.tensor == value.tensor && !OnlyReader(i)) value.shared = true;
  }
  // What users see in reports. Inputs keep their names; of several the last one is what the tensor
  // holds in the end, as that of an activation which became part of another node.
  if (!value.is_constant() && b.Producer(value.tensor) != nullptr) {
    b.graph().tensors[static_cast<size_t>(value.tensor)].name = node.outputs[position];
  }
  if (!values_.emplace(node.outputs[position], std::move(value)).second) {
    return CorruptModel("output '%s' exists already",
                        std::string(node.outputs[position].substr(0, 80)).c_str());
  }
  return Status();
}

Result<int32_t> OnnxAxis(int64_t axis, size_t rank) {
  const int64_t count = static_cast<int64_t>(rank);
  if (axis < -count || axis >= count) {
    return CorruptModel("axis %lld of %zu dimensions", static_cast<long long>(axis), rank);
  }
  return static_cast<int32_t>(axis < 0 ? axis + count : axis);
}

int32_t StoredAxis(const OnnxValue& value, int32_t axis) {
  return static_cast<int32_t>(std::find(value.perm.begin(), value.perm.end(), axis) -
                              value.perm.begin());
}

Result<OnnxValue> LoadOnnxTensor(const OnnxTensor& tensor, OnnxGraphBuilder* builder) {
  if (tensor.external) {
    return Unsupported("its values lie in another file; export as one file");
  }
  for (const int64_t size : tensor.dims) {
    if (size < 0) return CorruptModel("the shape is %s", DimsString(tensor.dims).c_str());
  }
  std::vector<float> floats;
  std::vector<int64_t> integers;
  const std::span<const uint8_t> raw = tensor.raw;
  floats.reserve(tensor.type == OnnxType::kFloat ? raw.size() / 4 : 0);
  size_t width = 0;
  switch (tensor.type) {
    case OnnxType::kFloat:
      width = 4;
      floats = tensor.floats;
      for (size_t i = 0; i < raw.size() / 4; ++i) {
        floats.push_back(LoadLittleEndian<float>(raw.data() + 4 * i));
      }
      break;
    case OnnxType::kDouble:
      width = 8;
      floats.assign(tensor.doubles.begin(), tensor.doubles.end());
      for (size_t i = 0; i < raw.size() / 8; ++i) {
        floats.push_back(static_cast<float>(LoadLittleEndian<double>(raw.data() + 8 * i)));
      }
      break;
    case OnnxType::kFloat16:
      width = 2;
      for (const int64_t bits : tensor.integers) {
        floats.push_back(FloatOfHalf(static_cast<uint16_t>(bits)));
      }
      for (size_t i = 0; i < raw.size() / 2; ++i) {
        floats.push_back(FloatOfHalf(LoadLittleEndian<uint16_t>(raw.data() + 2 * i)));
      }
      break;
    case OnnxType::kInt64:
      width = 8;
      integers = raw.empty() ? tensor.integers : RawIntegers<int64_t>(raw);
      break;
    case OnnxType::kInt32:
      width = 4;
      integers = raw.empty() ? tensor.integers : RawIntegers<int32_t>(raw);
      break;
    case OnnxType::kUInt8:
    case OnnxType::kBool:
      width = 1;
      integers = raw.empty() ? tensor.integers : RawIntegers<uint8_t>(raw);
      break;
    case OnnxType::kInt8:
      width = 1;
      integers = raw.empty() ? tensor.integers : RawIntegers<int8_t>(raw);
      break;
    default:
      return Unsupported("its type %s", OnnxTypeName(tensor.type));
  }
  const bool is_float = tensor.type == OnnxType::kFloat || tensor.type == OnnxType::kDouble ||
                        tensor.type == OnnxType::kFloat16;
  const size_t count = is_float ? floats.size() : integers.size();
  // A value alone may have no shape.
  const int64_t wanted = DimsCount(tensor.dims);
  if (raw.size() % width != 0 || wanted != static_cast<int64_t>(count)) {
    return CorruptModel("%zu values for the shape %s", count, DimsString(tensor.dims).c_str());
  }
  if (is_float) return builder->Floats(tensor.dims, std::move(floats));
  return builder->Integers(tensor.dims, std::move(integers), tensor.type);
}

Result<std::vector<uint8_t>> ImportOnnx(std::span<const uint8_t> model,
                                        const OnnxOptions& options) {
  ATOLL_ASSIGN_OR_RETURN(const OnnxModel onnx, ReadOnnxModel(model));
  return Importer(onnx, options, model.size()).Run();
}

}  // namespace atollrt
