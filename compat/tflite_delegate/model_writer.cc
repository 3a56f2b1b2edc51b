// SPDX-License-Identifier: Apache-2.0
#include "compat/tflite_delegate/model_writer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "tflite_generated.h"

namespace atollcompat {
namespace {

namespace tflite = atollrt::tflite;  // the generated tables

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

constexpr size_t kMaxModelBytes = size_t{1} << 30;  // flatbuffers end at 2 GiB
constexpr int kMaxListedCount = 8;                  // numbers of a list in builtin parameters

// How a field of the builtin parameters becomes one of the file's.
enum class Kind : uint8_t { kInt32, kFloat, kBool, kByte32, kPadding, kMirror, kType, kInt32List };

struct Field {
  Kind kind;
  uint16_t slot;
  uint8_t offset;
  int32_t since;  // version of the operator
};

struct Options {
  tflite::BuiltinOptions table;
  std::vector<int32_t> operators;
  std::vector<Field> fields;
};

const std::vector<Options>& AllOptions() {
  static const std::vector<Options>* const all = new std::vector<Options>{
#define ATOLL_OPTIONS(Table, ...) [] {                            \
    using Stored = tflite::Table; \
    return Options{tflite::BuiltinOptions::Table, {__VA_ARGS__}, {
#define ATOLL_FIELD(Kind_, NAME, offset) {Kind::k##Kind_, Stored::VT_##NAME, offset, 1},
#define ATOLL_FIELD_FROM(since, Kind_, NAME, offset) \
  {Kind::k##Kind_, Stored::VT_##NAME, offset, since},
#define ATOLL_END() \
  }                 \
  }                 \
  ;                 \
  }                 \
  (),
#include "compat/tflite_delegate/builtin_options.inc"
  };
  return *all;
}

template <typename T>
T Load(const void* params, size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(params) + offset, sizeof(value));
  return value;
}

// The file's number of a type, -1 if it has none.
int8_t FileType(int32_t type) {
  switch (type) {
    case kTfLiteFloat32:
      return 0;
    case kTfLiteFloat16:
      return 1;
    case kTfLiteInt32:
      return 2;
    case kTfLiteUInt8:
      return 3;
    case kTfLiteInt64:
      return 4;
    case kTfLiteBool:
      return 6;
    case kTfLiteInt16:
      return 7;
    case kTfLiteInt8:
      return 9;
    case kTfLiteUInt32:
      return 15;
    default:
      return -1;
  }
}

bool IsConstant(const TfLiteTensor& tensor) {
  return (tensor.allocation_type == kTfLiteMmapRo ||
          tensor.allocation_type == kTfLitePersistentRo) &&
         tensor.data.data != nullptr;
}

class Writer {
 public:
  explicit Writer(const TfLiteContext* context) : context_(context) {}

  WrittenModel Write(std::span<const GraphNode> nodes, std::span<const int> outputs);

 private:
  bool Fail(std::string why) {
    if (model_.error.empty()) model_.error = std::move(why);
    return false;
  }
  bool AddNode(const TfLiteNode& node, const TfLiteRegistration& registration);
  Offset<void> WriteOptions(const Options& options, const void* params, int32_t version);
  uint32_t AddCode(const TfLiteRegistration& registration);
  // Indices in the file; -1 for those that are absent. False if one cannot be written.
  bool Map(const TfLiteIntArray* tensors, std::vector<int32_t>* mapped);
  int32_t AddTensor(int index);

  const TfLiteContext* context_;
  FlatBufferBuilder fbb_;
  WrittenModel model_;
  std::map<int, int32_t> tensors_;  // of the runtime: index in the file
  std::vector<int> order_;          // the other way
  std::set<int> written_;
  std::vector<Offset<tflite::Tensor>> file_tensors_;
  std::vector<Offset<tflite::Buffer>> buffers_;
  std::vector<Offset<tflite::Operator>> operators_;
  std::map<std::pair<std::string, int>, uint32_t> code_indices_;
  std::vector<Offset<tflite::OperatorCode>> codes_;
};

uint32_t Writer::AddCode(const TfLiteRegistration& registration) {
  const bool is_custom = registration.builtin_code == kCustomOperator;
  const std::string name = is_custom && registration.custom_name != nullptr
                               ? registration.custom_name
                               : std::to_string(registration.builtin_code);
  const auto [found, is_new] = code_indices_.emplace(std::make_pair(name, registration.version),
                                                     static_cast<uint32_t>(codes_.size()));
  if (is_new) {
    const auto custom = is_custom ? fbb_.CreateString(name) : Offset<flatbuffers::String>();
    codes_.push_back(tflite::CreateOperatorCode(
        fbb_, static_cast<int8_t>(std::min(registration.builtin_code, 127)), custom,
        registration.version, registration.builtin_code));
  }
  return found->second;
}

int32_t Writer::AddTensor(int index) {
  if (const auto found = tensors_.find(index); found != tensors_.end()) return found->second;
  const TfLiteTensor& tensor = context_->tensors[index];
  const int8_t type = FileType(tensor.type);
  const std::string name = tensor.name != nullptr ? tensor.name : "";
  if (type < 0) {
    Fail("tensor '" + name + "' has type " + std::to_string(tensor.type) +
         ", which Atoll does not compute with");
    return -1;
  }
  if (tensor.dims == nullptr || tensor.allocation_type == kTfLiteDynamic) {
    Fail("the shape of tensor '" + name + "' is known only while the model runs");
    return -1;
  }
  uint32_t buffer = 0;
  if (IsConstant(tensor)) {
    if (fbb_.GetSize() + tensor.bytes > kMaxModelBytes) {
      Fail("constants of more than 1 GiB");
      return -1;
    }
    fbb_.ForceVectorAlignment(tensor.bytes, 1, 16);
    const auto data = fbb_.CreateVector(tensor.data.uint8, tensor.bytes);
    buffer = static_cast<uint32_t>(buffers_.size());
    buffers_.push_back(tflite::CreateBuffer(fbb_, data));
  }
  Offset<tflite::QuantizationParameters> quantization;
  if (tensor.quantization.type == kTfLiteAffineQuantization &&
      tensor.quantization.params != nullptr) {
    const auto& affine = *static_cast<const TfLiteAffineQuantization*>(tensor.quantization.params);
    if (affine.scale != nullptr && affine.zero_point != nullptr) {
      const std::vector<int64_t> zero_points(affine.zero_point->data,
                                             affine.zero_point->data + affine.zero_point->size);
      const auto scales =
          fbb_.CreateVector(affine.scale->data, static_cast<size_t>(affine.scale->size));
      const auto zeros = fbb_.CreateVector(zero_points);
      quantization = tflite::CreateQuantizationParameters(fbb_, 0, 0, scales, zeros, 0, 0,
                                                          affine.quantized_dimension);
    }
  }
  const auto shape = fbb_.CreateVector(tensor.dims->data, static_cast<size_t>(tensor.dims->size));
  const auto stored_name = fbb_.CreateString(name);
  const auto number = static_cast<int32_t>(file_tensors_.size());
  file_tensors_.push_back(tflite::CreateTensor(fbb_, shape, type, buffer, stored_name, quantization,
                                               tensor.is_variable));
  tensors_.emplace(index, number);
  order_.push_back(index);
  return number;
}

bool Writer::Map(const TfLiteIntArray* tensors, std::vector<int32_t>* mapped) {
  for (int i = 0; tensors != nullptr && i < tensors->size; ++i) {
    const int index = tensors->data[i];
    if (index >= 0 && static_cast<size_t>(index) >= context_->tensors_size) {
      return Fail("tensor " + std::to_string(index) + " does not exist");
    }
    mapped->push_back(index < 0 ? -1 : AddTensor(index));
    if (index >= 0 && mapped->back() < 0) return false;
  }
  return true;
}

Offset<void> Writer::WriteOptions(const Options& options, const void* params, int32_t version) {
  std::map<uint16_t, Offset<flatbuffers::Vector<int32_t>>> lists;
  for (const Field& field : options.fields) {
    if (field.kind != Kind::kInt32List) continue;
    const int count =
        std::clamp(Load<int32_t>(params, kMaxListedCount * sizeof(int32_t)), 0, kMaxListedCount);
    std::array<int32_t, kMaxListedCount> numbers = {};
    std::memcpy(numbers.data(), params, sizeof(numbers));
    lists[field.slot] = fbb_.CreateVector(numbers.data(), static_cast<size_t>(count));
  }
  const auto start = fbb_.StartTable();
  for (const Field& field : options.fields) {
    if (version < field.since) continue;  // an older runtime's struct ends before it
    const auto int32 = [&] { return Load<int32_t>(params, field.offset); };
    switch (field.kind) {
      case Kind::kInt32:
        fbb_.AddElement<int32_t>(field.slot, int32());
        break;
      case Kind::kFloat:
        fbb_.AddElement<float>(field.slot, Load<float>(params, field.offset));
        break;
      case Kind::kBool:
        fbb_.AddElement<uint8_t>(field.slot, Load<uint8_t>(params, field.offset) != 0);
        break;
      case Kind::kByte32:
        fbb_.AddElement<int8_t>(field.slot, static_cast<int8_t>(int32()));
        break;
      case Kind::kPadding:  // from 1 there, from 0 in the file
      case Kind::kMirror:
        fbb_.AddElement<int8_t>(field.slot, static_cast<int8_t>(int32() - 1));
        break;
      case Kind::kType:
        fbb_.AddElement<int8_t>(field.slot, FileType(int32()));
        break;
      case Kind::kInt32List:
        fbb_.AddOffset(field.slot, lists[field.slot]);
        break;
    }
  }
  return Offset<void>(fbb_.EndTable(start));
}

bool Writer::AddNode(const TfLiteNode& node, const TfLiteRegistration& registration) {
  std::vector<int32_t> inputs;
  std::vector<int32_t> outputs;
  std::vector<int32_t> intermediates;
  if (!Map(node.inputs, &inputs) || !Map(node.outputs, &outputs) ||
      !Map(node.intermediates, &intermediates)) {
    return false;
  }
  for (int i = 0; i < node.outputs->size; ++i) written_.insert(node.outputs->data[i]);
  const uint32_t code = AddCode(registration);
  auto table = tflite::BuiltinOptions::NONE;
  Offset<void> options;
  Offset<flatbuffers::Vector<uint8_t>> custom;
  if (registration.builtin_code == kCustomOperator) {
    if (node.custom_initial_data != nullptr && node.custom_initial_data_size > 0) {
      const auto size = static_cast<size_t>(node.custom_initial_data_size);
      if (fbb_.GetSize() + size > kMaxModelBytes) return Fail("options of more than 1 GiB");
      // Atoll's executables are read where they lie.
      fbb_.ForceVectorAlignment(size, 1, 16);
      custom = fbb_.CreateVector(static_cast<const uint8_t*>(node.custom_initial_data), size);
    }
  } else if (node.builtin_data != nullptr) {
    for (const Options& candidate : AllOptions()) {
      if (std::ranges::find(candidate.operators, registration.builtin_code) ==
          candidate.operators.end()) {
        continue;
      }
      table = candidate.table;
      options = WriteOptions(candidate, node.builtin_data, registration.version);
      break;
    }
  }
  const auto stored_inputs = fbb_.CreateVector(inputs);
  const auto stored_outputs = fbb_.CreateVector(outputs);
  const auto stored_intermediates = fbb_.CreateVector(intermediates);
  operators_.push_back(tflite::CreateOperator(fbb_, code, stored_inputs, stored_outputs, table,
                                              options, custom, 0, 0, stored_intermediates));
  return true;
}

WrittenModel Writer::Write(std::span<const GraphNode> nodes, std::span<const int> outputs) {
  buffers_.push_back(tflite::CreateBuffer(fbb_));  // 0: no data
  for (const auto& [node, registration] : nodes) {
    if (!AddNode(*node, *registration)) return std::move(model_);
  }
  std::vector<int32_t> file_inputs;
  std::vector<int32_t> file_outputs;
  for (const int index : order_) {
    const TfLiteTensor& tensor = context_->tensors[index];
    if (tensor.is_variable) {
      model_.variables.push_back(index);
    } else if (!IsConstant(tensor) && !written_.contains(index)) {
      // Quantization of what is between the gates of an LSTM: a tensor that nobody reads or writes.
      model_.inputs.push_back(index);
    }
  }
  // Intermediates have no bytes, only quantization.
  std::set<int> quantization_only;
  for (const auto& [node, registration] : nodes) {
    for (int i = 0; node->intermediates != nullptr && i < node->intermediates->size; ++i) {
      quantization_only.insert(node->intermediates->data[i]);
    }
  }
  std::erase_if(model_.inputs, [&](int index) { return quantization_only.contains(index); });
  for (const int index : model_.inputs) file_inputs.push_back(tensors_.at(index));
  for (const int index : outputs) {
    const auto found = tensors_.find(index);
    if (found == tensors_.end()) continue;
    model_.outputs.push_back(index);
    file_outputs.push_back(found->second);
  }
  const auto tensors = fbb_.CreateVector(file_tensors_);
  const auto inputs = fbb_.CreateVector(file_inputs);
  const auto stored_outputs = fbb_.CreateVector(file_outputs);
  const auto operators = fbb_.CreateVector(operators_);
  const auto subgraph = tflite::CreateSubGraph(fbb_, tensors, inputs, stored_outputs, operators);
  const auto subgraphs = fbb_.CreateVector(&subgraph, 1);
  const auto codes = fbb_.CreateVector(codes_);
  const auto buffers = fbb_.CreateVector(buffers_);
  fbb_.Finish(tflite::CreateModel(fbb_, 3, codes, subgraphs, 0, buffers), "TFL3");
  model_.bytes.assign(reinterpret_cast<const char*>(fbb_.GetBufferPointer()), fbb_.GetSize());
  return std::move(model_);
}

}  // namespace

WrittenModel WriteModel(const TfLiteContext* context, std::span<const GraphNode> nodes,
                        std::span<const int> outputs) {
  return Writer(context).Write(nodes, outputs);
}

bool IsEdgeTpuOperator(const TfLiteRegistration& registration) {
  return registration.builtin_code == kCustomOperator && registration.custom_name != nullptr &&
         std::strcmp(registration.custom_name, kEdgeTpuOperator) == 0;
}

std::string OperatorName(const TfLiteRegistration& registration) {
  if (registration.custom_name != nullptr) return registration.custom_name;
  return "operator " + std::to_string(registration.builtin_code);
}

}  // namespace atollcompat
