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

constexpr size_t kMaxModelBytes = (size_t{1} << 31) - (size_t{1} << 26);  // offsets are 31 bits
constexpr int kMaxListedCount = 8;  // numbers of a list in builtin parameters
constexpr int kMaxRank = 64;

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

// Null if operators of this number have no builtin parameters.
const Options* OptionsOf(int32_t builtin_code) {
  for (const Options& options : AllOptions()) {
    if (std::ranges::find(options.operators, builtin_code) != options.operators.end()) {
      return &options;
    }
  }
  return nullptr;
}

std::string NameOf(const TfLiteTensor& tensor) {
  return "tensor '" + std::string(tensor.name != nullptr ? tensor.name : "") + "'";
}

// Null, or what is wrong with an array that shall have `least` to `most` numbers.
template <typename Array>
bool HasSize(const Array* array, int least, int most) {
  return array != nullptr && array->size >= least && array->size <= most;
}

// The quantization of a tensor as a table has it: none, or the old pair, or one for each channel.
const TfLiteAffineQuantization* AffineOf(const TfLiteTensor& tensor) {
  return NumberOf(tensor.quantization.type) == kTfLiteAffineQuantization
             ? static_cast<const TfLiteAffineQuantization*>(tensor.quantization.params)
             : nullptr;
}

bool IsConstant(const TfLiteTensor& tensor) {
  return (NumberOf(tensor.allocation_type) == kTfLiteMmapRo ||
          NumberOf(tensor.allocation_type) == kTfLitePersistentRo) &&
         tensor.data.data != nullptr;
}

// A list of axes or the like that is empty: a constant, although nothing is stored of it.
bool IsEmptyList(const TfLiteTensor& tensor) {
  const int32_t type = NumberOf(tensor.type);
  return tensor.dims != nullptr && tensor.dims->size == 1 && tensor.dims->data[0] == 0 &&
         (type == kTfLiteInt32 || type == kTfLiteInt64);
}

// `has_bytes`: it holds more than quantization.
std::string TensorProblem(const TfLiteTensor& tensor, bool has_bytes) {
  if (FileType(NumberOf(tensor.type)) < 0) {
    return NameOf(tensor) + " has type " + std::to_string(NumberOf(tensor.type)) +
           ", which Atoll does not compute with";
  }
  if (tensor.dims == nullptr || NumberOf(tensor.allocation_type) == kTfLiteDynamic) {
    return "the shape of " + NameOf(tensor) + " is known only while the model runs";
  }
  if (!HasSize(tensor.dims, 0, kMaxRank)) {
    return NameOf(tensor) + " has " + std::to_string(tensor.dims->size) + " dimensions";
  }
  for (int i = 0; has_bytes && !IsEmptyList(tensor) && i < tensor.dims->size; ++i) {
    if (tensor.dims->data[i] <= 0) {
      return NameOf(tensor) + " has the size " + std::to_string(tensor.dims->data[i]) +
             " in dimension " + std::to_string(i);
    }
  }
  if (tensor.sparsity != nullptr) {
    return NameOf(tensor) + " is stored in sparse form, which Atoll does not read";
  }
  const TfLiteAffineQuantization* const affine = AffineOf(tensor);
  if (affine == nullptr && NumberOf(tensor.quantization.type) != kTfLiteNoQuantization &&
      NumberOf(tensor.quantization.type) != kTfLiteAffineQuantization) {
    return NameOf(tensor) + " has quantization of kind " +
           std::to_string(NumberOf(tensor.quantization.type)) + ", which Atoll does not know";
  }
  if (affine != nullptr && affine->scale != nullptr && affine->zero_point != nullptr &&
      (!HasSize(affine->scale, 0, INT32_MAX) || affine->scale->size != affine->zero_point->size)) {
    return NameOf(tensor) + " has " + std::to_string(affine->scale->size) + " scales and " +
           std::to_string(affine->zero_point->size) + " zero points";
  }
  return "";
}

// What is wrong with the arrays of a node, which are all that is looked at.
std::string ArrayProblem(const TfLiteContext* context, const TfLiteNode& node) {
  const auto check = [context](const TfLiteIntArray* tensors, const char* role,
                               int least) -> std::string {
    if (tensors == nullptr && least < 0) return "";
    if (!HasSize(tensors, std::max(least, 0), INT32_MAX)) return std::string("it has no ") + role;
    for (int i = 0; i < tensors->size; ++i) {
      const int tensor = tensors->data[i];
      if (tensor < 0 && least <= 0) continue;  // absent
      if (tensor < 0 || static_cast<size_t>(tensor) >= context->tensors_size) {
        return "tensor " + std::to_string(tensor) + " does not exist";
      }
    }
    return "";
  };
  std::string problem = check(node.inputs, "inputs", 0);
  if (problem.empty()) problem = check(node.outputs, "outputs", 1);
  if (problem.empty()) problem = check(node.intermediates, "intermediates", -1);
  return problem;
}

// Where the options of kAtollOperator have the subgraph that it was made from
// (docs/executable.md, "In a model").
constexpr size_t kSubgraphBegin = 8;
constexpr size_t kSubgraphEnd = 12;

bool IsCustom(const TfLiteRegistration& registration, const char* name) {
  return registration.builtin_code == kCustomOperator && registration.custom_name != nullptr &&
         std::strcmp(registration.custom_name, name) == 0;
}

class Writer {
 public:
  // `bytes` is about the size of the file.
  Writer(const TfLiteContext* context, size_t bytes) : context_(context), fbb_(bytes) {}

  WrittenModel Write(std::span<const GraphNode> nodes, std::span<const int> outputs);

 private:
  bool Fail(std::string why) {
    if (model_.error.empty()) model_.error = std::move(why);
    return false;
  }
  bool AddNode(const TfLiteNode& node, const TfLiteRegistration& registration);
  // A number of an enumeration, which the file has one byte for; 0 after a failure.
  int8_t NumberInByte(int64_t number) {
    if (number >= 0 && number <= INT8_MAX) return static_cast<int8_t>(number);
    Fail("its parameters have a number " + std::to_string(number) + " where Atoll knows none");
    return 0;
  }
  Offset<void> WriteOptions(const Options& options, const void* params, int32_t version);
  uint32_t AddCode(const TfLiteRegistration& registration);
  // Indices in the file; -1 for those that are absent. False if one cannot be written.
  bool Map(const TfLiteIntArray* tensors, std::vector<int32_t>* mapped, bool has_bytes = true);
  int32_t AddTensor(int index, bool has_bytes);

  const TfLiteContext* context_;
  FlatBufferBuilder fbb_;
  WrittenModel model_;
  std::map<int, int32_t> tensors_;  // of the runtime: index in the file
  std::set<int> written_;
  std::set<int> quantization_only_;  // intermediates, which have no bytes
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

int32_t Writer::AddTensor(int index, bool has_bytes) {
  if (const auto found = tensors_.find(index); found != tensors_.end()) return found->second;
  const TfLiteTensor& tensor = context_->tensors[index];
  if (std::string problem = TensorProblem(tensor, has_bytes); !problem.empty()) {
    Fail(std::move(problem));
    return -1;
  }
  uint32_t buffer = 0;
  if (IsConstant(tensor)) {
    if (fbb_.GetSize() + tensor.bytes > kMaxModelBytes) {
      Fail("constants of 2 GiB or more");
      return -1;
    }
    fbb_.ForceVectorAlignment(tensor.bytes, 1, 16);
    const auto data = fbb_.CreateVector(tensor.data.uint8, tensor.bytes);
    buffer = static_cast<uint32_t>(buffers_.size());
    buffers_.push_back(tflite::CreateBuffer(fbb_, data));
  }
  Offset<tflite::QuantizationParameters> quantization;
  const TfLiteAffineQuantization* const affine = AffineOf(tensor);
  if (affine != nullptr && affine->scale != nullptr && affine->zero_point != nullptr) {
    const std::vector<int64_t> zero_points(affine->zero_point->data,
                                           affine->zero_point->data + affine->zero_point->size);
    const auto scales =
        fbb_.CreateVector(affine->scale->data, static_cast<size_t>(affine->scale->size));
    const auto zeros = fbb_.CreateVector(zero_points);
    quantization = tflite::CreateQuantizationParameters(fbb_, 0, 0, scales, zeros, 0, 0,
                                                        affine->quantized_dimension);
  } else if (affine == nullptr && tensor.params.scale != 0) {
    const auto scales = fbb_.CreateVector(&tensor.params.scale, 1);
    const int64_t zero_point = tensor.params.zero_point;
    const auto zeros = fbb_.CreateVector(&zero_point, 1);
    quantization = tflite::CreateQuantizationParameters(fbb_, 0, 0, scales, zeros);
  }
  const auto shape = fbb_.CreateVector(tensor.dims->data, static_cast<size_t>(tensor.dims->size));
  const auto stored_name = fbb_.CreateString(tensor.name != nullptr ? tensor.name : "");
  const auto number = static_cast<int32_t>(file_tensors_.size());
  file_tensors_.push_back(tflite::CreateTensor(fbb_, shape, FileType(NumberOf(tensor.type)), buffer,
                                               stored_name, quantization, tensor.is_variable));
  tensors_.emplace(index, number);
  model_.tensors.push_back(index);
  return number;
}

bool Writer::Map(const TfLiteIntArray* tensors, std::vector<int32_t>* mapped, bool has_bytes) {
  for (int i = 0; tensors != nullptr && i < tensors->size; ++i) {
    const int index = tensors->data[i];
    mapped->push_back(index < 0 ? -1 : AddTensor(index, has_bytes));
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
        fbb_.AddElement<int8_t>(field.slot, NumberInByte(int32()));
        break;
      case Kind::kPadding:  // from 1 there, from 0 in the file
      case Kind::kMirror:
        fbb_.AddElement<int8_t>(field.slot, NumberInByte(static_cast<int64_t>(int32()) - 1));
        break;
      case Kind::kType:
        fbb_.AddElement<int8_t>(field.slot, NumberInByte(FileType(int32())));
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
      !Map(node.intermediates, &intermediates, /*has_bytes=*/false)) {
    return false;
  }
  for (int i = 0; i < node.outputs->size; ++i) written_.insert(node.outputs->data[i]);
  for (int i = 0; node.intermediates != nullptr && i < node.intermediates->size; ++i) {
    quantization_only_.insert(node.intermediates->data[i]);
  }
  const uint32_t code = AddCode(registration);
  auto table = tflite::BuiltinOptions::NONE;
  Offset<void> options;
  Offset<flatbuffers::Vector<uint8_t>> custom;
  if (registration.builtin_code == kCustomOperator) {
    if (node.custom_initial_data != nullptr && node.custom_initial_data_size > 0) {
      const auto size = static_cast<size_t>(node.custom_initial_data_size);
      if (fbb_.GetSize() + size > kMaxModelBytes) return Fail("constants of 2 GiB or more");
      // Atoll's executables are read where they lie.
      fbb_.ForceVectorAlignment(size, 1, 16);
      uint8_t* stored = nullptr;
      custom = fbb_.CreateUninitializedVector<uint8_t>(size, &stored);
      std::memcpy(stored, node.custom_initial_data, size);
      if (IsCustom(registration, kAtollOperator) && size >= kSubgraphEnd) {
        std::fill(stored + kSubgraphBegin, stored + kSubgraphEnd, uint8_t{0});  // none
      }
    }
  } else if (const Options* const known = OptionsOf(registration.builtin_code); known != nullptr) {
    if (node.builtin_data == nullptr) return Fail("it has no parameters");
    table = known->table;
    options = WriteOptions(*known, node.builtin_data, registration.version);
    if (!model_.error.empty()) return false;
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
  for (const int index : model_.tensors) {
    const TfLiteTensor& tensor = context_->tensors[index];
    if (tensor.is_variable) {
      model_.variables.push_back(index);
    } else if (IsEmptyList(tensor) && !written_.contains(index)) {
      model_.empty_lists.push_back(index);
    } else if (!IsConstant(tensor) && !written_.contains(index)) {
      model_.inputs.push_back(index);
    }
  }
  std::erase_if(model_.inputs, [&](int index) { return quantization_only_.contains(index); });
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
  const auto file = std::make_shared<flatbuffers::DetachedBuffer>(fbb_.Release());
  model_.bytes = {.data = {file, file->data()}, .size = file->size()};
  return std::move(model_);
}

}  // namespace

WrittenModel WriteModel(const TfLiteContext* context, std::span<const GraphNode> nodes,
                        std::span<const int> outputs) {
  // Room for all of it at once: to grow would take twice as much.
  constexpr size_t kBytesOfTable = 256;
  size_t bytes = kBytesOfTable;
  std::set<int> constants;
  for (const auto& [node, registration] : nodes) {
    if (std::string problem = ArrayProblem(context, *node); !problem.empty()) {
      return {.error = std::move(problem)};
    }
    bytes += kBytesOfTable + static_cast<size_t>(std::max(node->custom_initial_data_size, 0));
    for (int i = 0; i < node->inputs->size; ++i) {
      const int tensor = node->inputs->data[i];
      bytes += kBytesOfTable;
      if (tensor < 0 || !IsConstant(context->tensors[tensor])) continue;
      if (constants.insert(tensor).second) bytes += context->tensors[tensor].bytes;
    }
    if (bytes > kMaxModelBytes) return {.error = "constants of 2 GiB or more"};
  }
  return Writer(context, bytes).Write(nodes, outputs);
}

std::string NodeProblem(const TfLiteContext* context, const GraphNode& graph_node) {
  const auto& [node, registration] = graph_node;
  std::string problem = ArrayProblem(context, *node);
  if (!problem.empty()) return problem;
  for (const TfLiteIntArray* tensors : {node->inputs, node->outputs, node->intermediates}) {
    for (int i = 0; tensors != nullptr && i < tensors->size; ++i) {
      if (tensors->data[i] < 0) continue;
      problem = TensorProblem(context->tensors[tensors->data[i]], tensors != node->intermediates);
      if (!problem.empty()) return problem;
    }
  }
  if (node->builtin_data == nullptr && registration->builtin_code != kCustomOperator &&
      OptionsOf(registration->builtin_code) != nullptr) {
    return "it has no parameters";
  }
  return "";
}

bool IsCompiledOperator(const TfLiteRegistration& registration) {
  return IsCustom(registration, kEdgeTpuOperator) || IsCustom(registration, kAtollOperator);
}

std::string OperatorName(const TfLiteRegistration& registration) {
  if (registration.custom_name != nullptr) return registration.custom_name;
  return "operator " + std::to_string(registration.builtin_code);
}

}  // namespace atollcompat
