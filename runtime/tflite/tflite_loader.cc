// SPDX-License-Identifier: Apache-2.0
#include "runtime/tflite/tflite_loader.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "runtime/base/buffer.h"
#include "runtime/base/bytes.h"
#include "runtime/graph/compiled_op.h"
#include "runtime/graph/variables.h"
#include "runtime/shapes/shape_inference.h"
#include "runtime/tflite/custom_options.h"
#include "runtime/tflite/model_extras.h"
#include "runtime/tflite/tflite_options.h"
#include "runtime/tflite/tflite_tables.h"
#include "tflite_generated.h"

namespace atollrt {
namespace {

constexpr uint32_t kSchemaVersion = 3;
constexpr int kMaxVerifierDepth = 64;
constexpr int kMaxVerifierTables = 1'000'000;
// Whoever prepares a node keeps some tens of bytes for each of its operands.
constexpr size_t kCopiesOfOperand = 8;
// What constant folding may add.
constexpr size_t kMaxFoldedOfByte = 8;
// That a message lists.
constexpr size_t kMaxListedInputs = 16;

// Element by element: the verifier aligns the vector's length, not its 64-bit elements.
template <typename T>
std::vector<T> Vector(const flatbuffers::Vector<T>* values) {
  if (values == nullptr) return {};
  std::vector<T> copy(values->size());
  for (size_t i = 0; i < copy.size(); ++i) {
    copy[i] = LoadLittleEndian<T>(values->Data() + i * sizeof(T));
  }
  return copy;
}

// What a zero point may be: a value of the type, if that is an integer of at most 32 bits.
std::pair<int64_t, int64_t> ZeroPointRange(DataType type) {
  switch (type) {
    case DataType::kInt8:
      return {INT8_MIN, INT8_MAX};
    case DataType::kUInt8:
      return {0, UINT8_MAX};
    case DataType::kInt16:
      return {INT16_MIN, INT16_MAX};
    default:
      return {INT32_MIN, INT32_MAX};
  }
}

// The tables that all subgraphs share; kCorruptModel unless they are there.
Result<const tflite::Model*> VerifyContainer(std::span<const uint8_t> bytes) {
  if (bytes.size() < 8 || !tflite::ModelBufferHasIdentifier(bytes.data())) {
    return CorruptModel("not a .tflite file: %zu bytes without the identifier TFL3 at offset 4",
                        bytes.size());
  }
  flatbuffers::Verifier verifier(bytes.data(), bytes.size(), kMaxVerifierDepth, kMaxVerifierTables);
  if (!tflite::VerifyModelBuffer(verifier)) {
    return CorruptModel("the file is truncated or damaged: its %zu bytes are no valid flatbuffer",
                        bytes.size());
  }
  const tflite::Model* model = tflite::GetModel(bytes.data());
  if (model->version() != kSchemaVersion) {
    return CorruptModel("schema version is %u, must be %u", model->version(), kSchemaVersion);
  }
  if (model->subgraphs() == nullptr || model->subgraphs()->size() == 0) {
    return CorruptModel("the model has no subgraph");
  }
  if (model->buffers() == nullptr || model->operator_codes() == nullptr) {
    return CorruptModel("the model has no table of %s",
                        model->buffers() == nullptr ? "buffers" : "operator codes");
  }
  return model;
}

// Tensors with packed weights, by their subgraphs.
struct PackedTensor {
  uint32_t tensor = 0;
  uint32_t buffer = 0;
};
using PackedTensors = std::multimap<uint32_t, PackedTensor>;

Result<PackedTensors> ReadPackedTensors(std::span<const uint8_t> bytes,
                                        const tflite::Model& model) {
  PackedTensors packed;
  if (model.metadata() == nullptr) return packed;
  for (const tflite::Metadata* metadata : *model.metadata()) {
    if (metadata == nullptr || metadata->name() == nullptr ||
        metadata->name()->string_view() != kPackedWeightsMetadata) {
      continue;
    }
    ATOLL_ASSIGN_OR_RETURN(std::span<const uint8_t> table,
                           BufferBytes(bytes, model, metadata->buffer()));
    for (; table.size() >= kPackedTensorBytes; table = table.subspan(kPackedTensorBytes)) {
      packed.insert(
          {LoadLittleEndian<uint32_t>(&table[0]),
           {LoadLittleEndian<uint32_t>(&table[4]), LoadLittleEndian<uint32_t>(&table[8])}});
    }
    break;
  }
  return packed;
}

// One pass over a subgraph's tables, with the graph that comes out of it.
class GraphLoader {
 public:
  // Subgraph `number`, which has tensors. `packed` are those of all subgraphs, `budget` is
  // that of the file.
  GraphLoader(std::span<const uint8_t> bytes, const tflite::Model* model, uint32_t number,
              const PackedTensors& packed, CopyBudget* budget)
      : bytes_(bytes),
        model_(model),
        number_(number),
        subgraph_(model->subgraphs()->Get(number)),
        packed_(packed),
        budget_(*budget) {}

  // Only the first graph of a model has compiled partitions, and inputs that callers know.
  Result<Graph> Load(const ConstantFolding* folding, bool is_first,
                     std::span<const InputShape> input_shapes) {
    ATOLL_RETURN_IF_ERROR(Read());
    if (is_first) ATOLL_RETURN_IF_ERROR(InlineCompiledPartitions());
    ATOLL_RETURN_IF_ERROR(CheckOrder());
    if (is_first) ATOLL_RETURN_IF_ERROR(SetInputShapes(input_shapes));
    ATOLL_RETURN_IF_ERROR(CheckStoredShapes());
    Status status = InferShapes(&graph_, folding);
    if (!status.ok()) {
      // The file is not to blame for what does not fit another shape.
      return changed_inputs_.empty() ? status : std::move(status).WithContext(changed_inputs_);
    }
    for (size_t i = 0; i < graph_.tensors.size(); ++i) {
      ATOLL_RETURN_IF_ERROR(CheckQuantization(static_cast<int32_t>(i)));
    }
    return std::move(graph_);
  }

  // The subgraphs that compiled partitions of this one were made from.
  const std::vector<bool>& inlined() const { return inlined_; }

 private:
  Status Read() {
    ATOLL_RETURN_IF_ERROR(CountCopied(sizeof(Graph) + BytesOf(subgraph_->name())));
    graph_.name = String(subgraph_->name());
    ATOLL_RETURN_IF_ERROR(ReadTensors());
    ATOLL_RETURN_IF_ERROR(ReadNodes());
    ATOLL_RETURN_IF_ERROR(ReadGraphEnds());
    // After the nodes, so that messages can say whose tensor it is.
    for (uint32_t i = 0; i < subgraph_->tensors()->size(); ++i) {
      ATOLL_RETURN_IF_ERROR(ReadContents(*subgraph_->tensors()->Get(i), static_cast<int32_t>(i)));
    }
    return ReadPackedWeights();
  }
  Status InlineCompiledPartitions();
  Status Inline(const Node& stand_in, std::vector<Node>* nodes);
  Status CountCopied(size_t bytes) { return budget_.Count(bytes); }
  // With the first node that uses it: "tensor 17 'conv1/w' of node 3 (CONV_2D) 'conv1/out'".
  std::string DescribeUse(int32_t tensor) const;
  Status ReadTensors();
  Status ReadContents(const tflite::Tensor& stored, int32_t index);
  Status ReadQuantization(const tflite::QuantizationParameters* stored, int32_t index);
  Status ReadPackedWeights();
  Status ReadNodes();
  Status ReadNode(const tflite::Operator& op, int32_t index);
  Status ReadOperator(const tflite::Operator& op, Node* node);
  Status CheckIndices(const std::vector<int32_t>& indices, const char* role,
                      bool may_be_absent) const;
  Status ReadGraphEnds();
  Status CheckOrder() const;
  Status SetInputShapes(std::span<const InputShape> input_shapes);
  Status SetInputShape(const InputShape& wanted, int32_t input);
  Result<int32_t> FindInput(const InputShape& wanted) const;
  std::string ListInputs() const;
  Status CheckStoredShapes() const;
  Status CheckQuantization(int32_t index) const;

  const std::span<const uint8_t> bytes_;
  const tflite::Model* const model_;
  const uint32_t number_;
  const tflite::SubGraph* const subgraph_;
  const PackedTensors& packed_;
  CopyBudget& budget_;
  Graph graph_;
  std::vector<bool> is_output_;  // per tensor: of a node
  std::vector<bool> inlined_;    // per subgraph
  std::string changed_inputs_;   // "with input 'x' of shape [1, 320, 320, 3]", or empty
};

bool IsCompiledPartition(const Node& node) {
  return node.type == OpType::kCUSTOM && node.custom_name == kCompiledOpName;
}

std::string GraphLoader::DescribeUse(int32_t tensor) const {
  const auto has = [tensor](const std::vector<int32_t>& tensors) {
    return std::find(tensors.begin(), tensors.end(), tensor) != tensors.end();
  };
  for (const Node& node : graph_.nodes) {
    if (has(node.inputs) || has(node.outputs) || has(node.intermediates)) {
      return Describe(graph_, tensor) + " of " + Describe(graph_, node);
    }
  }
  return Describe(graph_, tensor);
}

Status GraphLoader::ReadTensors() {
  const uint32_t count = subgraph_->tensors()->size();
  ATOLL_RETURN_IF_ERROR(CountCopied(count * sizeof(Tensor)));
  graph_.tensors.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    const tflite::Tensor* stored = subgraph_->tensors()->Get(i);
    Tensor& tensor = graph_.tensors[i];
    if (stored == nullptr) return CorruptModel("tensor %u is missing", i);
    ATOLL_RETURN_IF_ERROR(CountCopied(BytesOf(stored->name()) + BytesOf(stored->shape()) +
                                      BytesOf(stored->shape_signature())));
    tensor.name = String(stored->name());
    if (stored->shape() != nullptr && stored->shape()->size() > kMaxRank) {
      return Unsupported("%s has %u dimensions, at most %zu are supported",
                         Describe(graph_, static_cast<int32_t>(i)).c_str(), stored->shape()->size(),
                         kMaxRank);
    }
    tensor.type = static_cast<DataType>(stored->type());
    tensor.shape = Vector(stored->shape());
    tensor.shape_signature = Vector(stored->shape_signature());
    tensor.is_variable = stored->is_variable();
  }
  return Status();
}

Status GraphLoader::ReadContents(const tflite::Tensor& stored, int32_t index) {
  Tensor& tensor = graph_.tensors[index];
  if (stored.sparsity() != nullptr) {
    return Unsupported("%s is stored in sparse form, which Atoll does not read",
                       DescribeUse(index).c_str());
  }
  ATOLL_RETURN_IF_ERROR(ReadQuantization(stored.quantization(), index));
  const auto data = BufferBytes(bytes_, *model_, stored.buffer());
  if (!data.ok()) return Status(data.status()).WithContext(DescribeUse(index));
  tensor.data = *data;
  // Its first value is the model's business, not the file's, and operators write to it.
  if (tensor.is_variable && tensor.is_constant()) {
    return CorruptModel("%s is a variable with constant data", DescribeUse(index).c_str());
  }
  return Status();
}

Status GraphLoader::ReadPackedWeights() {
  const auto [first, last] = packed_.equal_range(number_);
  for (auto entry = first; entry != last; ++entry) {
    const PackedTensor& packed = entry->second;
    if (packed.tensor >= graph_.tensors.size()) {
      return CorruptModel("packed weights of tensor %u, but there are %zu tensors", packed.tensor,
                          graph_.tensors.size());
    }
    const auto data = BufferBytes(bytes_, *model_, packed.buffer);
    if (!data.ok()) return Status(data.status()).WithContext("packed weights");
    if (data->empty()) continue;
    const size_t begin = static_cast<size_t>(-(data->data() - bytes_.data())) % Buffer::kAlignment;
    graph_.tensors[packed.tensor].packed_weights = data->subspan(std::min(begin, data->size()));
  }
  return Status();
}

Status GraphLoader::ReadQuantization(const tflite::QuantizationParameters* stored, int32_t index) {
  if (stored == nullptr || stored->scale() == nullptr || stored->scale()->size() == 0) {
    return Status();
  }
  ATOLL_RETURN_IF_ERROR(CountCopied(BytesOf(stored->scale()) + BytesOf(stored->zero_point())));
  Quantization& quantization = graph_.tensors[index].quantization;
  quantization.scales = Vector(stored->scale());
  quantization.zero_points = Vector(stored->zero_point());
  quantization.dimension = stored->quantized_dimension();
  if (quantization.zero_points.size() != quantization.scales.size()) {
    return CorruptModel("%s: %zu scales but %zu zero points", DescribeUse(index).c_str(),
                        quantization.scales.size(), quantization.zero_points.size());
  }
  return Status();
}

Status GraphLoader::CheckIndices(const std::vector<int32_t>& indices, const char* role,
                                 bool may_be_absent) const {
  for (const int32_t index : indices) {
    if (index == -1 && may_be_absent) continue;
    if (index < 0 || static_cast<size_t>(index) >= graph_.tensors.size()) {
      return CorruptModel("%s tensor index %d, but there are %zu tensors", role, index,
                          graph_.tensors.size());
    }
  }
  return Status();
}

Status GraphLoader::ReadNodes() {
  is_output_.resize(graph_.tensors.size());
  if (subgraph_->operators() == nullptr) return Status();
  const uint32_t count = subgraph_->operators()->size();
  ATOLL_RETURN_IF_ERROR(CountCopied(count * sizeof(Node)));
  graph_.nodes.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const tflite::Operator* op = subgraph_->operators()->Get(i);
    if (op == nullptr) return CorruptModel("node %u is missing", i);
    ATOLL_RETURN_IF_ERROR(ReadNode(*op, static_cast<int32_t>(i)));
    for (const int32_t output : graph_.nodes.back().outputs) is_output_[output] = true;
  }
  return Status();
}

Status GraphLoader::ReadNode(const tflite::Operator& op, int32_t index) {
  if (op.opcode_index() >= model_->operator_codes()->size()) {
    return CorruptModel("node %d: operator code %u, but there are %u", index, op.opcode_index(),
                        model_->operator_codes()->size());
  }
  const tflite::OperatorCode* code = model_->operator_codes()->Get(op.opcode_index());
  if (code == nullptr) return CorruptModel("operator code %u is missing", op.opcode_index());
  Node& node = graph_.nodes.emplace_back();
  // Old files have only the 8-bit field, new ones put 127 there when the number does not fit.
  node.type = static_cast<OpType>(
      std::max(code->builtin_code(), static_cast<int32_t>(code->deprecated_builtin_code())));
  node.version = code->version();
  ATOLL_RETURN_IF_ERROR(
      CountCopied(BytesOf(code->custom_code()) + kCopiesOfOperand * BytesOf(op.outputs())));
  node.custom_name = String(code->custom_code());
  if (node.type == OpType::kCUSTOM && node.custom_name.empty()) {
    return CorruptModel("node %d is a custom operator without a name", index);
  }
  std::vector<int32_t> outputs = Vector(op.outputs());
  Status status = CheckIndices(outputs, "output", /*may_be_absent=*/false);
  // Only now, since the first one names the node.
  if (status.ok()) {
    node.outputs = std::move(outputs);
    status = ReadOperator(op, &node);
  }
  return status.ok() ? std::move(status) : std::move(status).WithContext(Describe(graph_, node));
}

// What the table of a node has besides its code and outputs.
Status GraphLoader::ReadOperator(const tflite::Operator& op, Node* node) {
  ATOLL_RETURN_IF_ERROR(
      CountCopied(kCopiesOfOperand * (BytesOf(op.inputs()) + BytesOf(op.intermediates()))));
  node->inputs = Vector(op.inputs());
  node->intermediates = Vector(op.intermediates());
  ATOLL_RETURN_IF_ERROR(CheckIndices(node->inputs, "input", /*may_be_absent=*/true));
  ATOLL_RETURN_IF_ERROR(CheckIndices(node->intermediates, "intermediate", /*may_be_absent=*/true));
  if (op.custom_options() != nullptr) {
    node->custom_options = {op.custom_options()->data(), op.custom_options()->size()};
  }
  if (node->type == OpType::kCUSTOM) return ReadCustomOptions(node);
  if (const auto* handle = op.builtin_options_as_VarHandleOptions()) {
    constexpr size_t kCopies = 3;  // in the node, in the variable and in the table of variables
    ATOLL_RETURN_IF_ERROR(
        CountCopied(kCopies * (BytesOf(handle->container()) + BytesOf(handle->shared_name()))));
  }
  ATOLL_RETURN_IF_ERROR(ReadTfliteOptions(op, node));
  const auto* reshape = std::get_if<ReshapeOptions>(&node->options);
  return CountCopied(reshape == nullptr ? 0 : reshape->new_shape.size() * sizeof(int32_t));
}

// Puts the nodes of its subgraph in the place of every node that stands for a compiled partition.
Status GraphLoader::InlineCompiledPartitions() {
  inlined_.resize(model_->subgraphs()->size());
  if (std::none_of(graph_.nodes.begin(), graph_.nodes.end(), IsCompiledPartition)) return Status();
  std::vector<Node> nodes;
  for (Node& node : graph_.nodes) {
    if (!IsCompiledPartition(node)) {
      nodes.push_back(std::move(node));
      continue;
    }
    Status status = Inline(node, &nodes);
    if (!status.ok()) return std::move(status).WithContext(Describe(graph_, node));
  }
  graph_.nodes = std::move(nodes);
  is_output_.assign(graph_.tensors.size(), false);
  for (const Node& node : graph_.nodes) {
    for (const int32_t output : node.outputs) is_output_[output] = true;
  }
  return Status();
}

Status GraphLoader::Inline(const Node& stand_in, std::vector<Node>* nodes) {
  ATOLL_ASSIGN_OR_RETURN(const CompiledOp op, DecodeCompiledOp(stand_in.custom_options));
  const tflite::SubGraph* subgraph = nullptr;
  if (op.subgraph > 0 && static_cast<size_t>(op.subgraph) < inlined_.size()) {
    subgraph = model_->subgraphs()->Get(static_cast<uint32_t>(op.subgraph));
  }
  if (subgraph == nullptr || subgraph == subgraph_ || subgraph->tensors() == nullptr) {
    return CorruptModel("its subgraph is %d, but there are %zu", op.subgraph, inlined_.size());
  }
  if (inlined_[op.subgraph]) {
    return CorruptModel("its subgraph %d is another partition's, too", op.subgraph);
  }
  inlined_[op.subgraph] = true;
  GraphLoader loader(bytes_, model_, static_cast<uint32_t>(op.subgraph), packed_, &budget_);
  ATOLL_RETURN_IF_ERROR(loader.Read());
  Graph& inner = loader.graph_;
  if (inner.inputs.size() != stand_in.inputs.size() ||
      inner.outputs.size() != stand_in.outputs.size()) {
    return CorruptModel("it has %zu inputs and %zu outputs, its subgraph %d has %zu and %zu",
                        stand_in.inputs.size(), stand_in.outputs.size(), op.subgraph,
                        inner.inputs.size(), inner.outputs.size());
  }
  // Tensors at the ends are this graph's; the others move over.
  std::vector<int32_t> moved(inner.tensors.size(), -1);
  for (const bool is_input : {true, false}) {
    const std::vector<int32_t>& inside = is_input ? inner.inputs : inner.outputs;
    const std::vector<int32_t>& outside = is_input ? stand_in.inputs : stand_in.outputs;
    for (size_t i = 0; i < inside.size(); ++i) {
      if (outside[i] < 0 || moved[inside[i]] >= 0) {
        return CorruptModel("%s %zu of it is absent, or twice in its subgraph %d",
                            is_input ? "input" : "output", i, op.subgraph);
      }
      moved[inside[i]] = outside[i];
    }
  }
  for (size_t i = 0; i < moved.size(); ++i) {
    if (moved[i] >= 0) continue;
    moved[i] = static_cast<int32_t>(graph_.tensors.size());
    graph_.tensors.push_back(std::move(inner.tensors[i]));
  }
  const int32_t partition = static_cast<int32_t>(graph_.compiled.size());
  graph_.compiled.push_back(op.executable);
  for (Node& node : inner.nodes) {
    if (IsCompiledPartition(node)) {
      return CorruptModel("its subgraph %d has compiled partitions of its own", op.subgraph);
    }
    for (std::vector<int32_t>* indices : {&node.inputs, &node.outputs, &node.intermediates}) {
      for (int32_t& index : *indices) index = index < 0 ? index : moved[index];
    }
    node.compiled = partition;
    nodes->push_back(std::move(node));
  }
  return Status();
}

Status GraphLoader::ReadGraphEnds() {
  ATOLL_RETURN_IF_ERROR(CountCopied(BytesOf(subgraph_->inputs()) + BytesOf(subgraph_->outputs())));
  graph_.inputs = Vector(subgraph_->inputs());
  graph_.outputs = Vector(subgraph_->outputs());
  ATOLL_RETURN_IF_ERROR(CheckIndices(graph_.inputs, "graph input:", /*may_be_absent=*/false));
  return CheckIndices(graph_.outputs, "graph output:", /*may_be_absent=*/false);
}

// Every tensor is written once, before it is read.
Status GraphLoader::CheckOrder() const {
  std::vector<bool> written(graph_.tensors.size());
  for (size_t i = 0; i < graph_.tensors.size(); ++i) {
    const Tensor& tensor = graph_.tensors[i];
    // A constant without elements (no axes, the shape of a scalar) has no bytes to tell it by.
    const bool is_empty = std::count(tensor.shape.begin(), tensor.shape.end(), 0) > 0;
    written[i] = tensor.is_constant() || tensor.is_variable || (is_empty && !is_output_[i]);
  }
  for (const int32_t input : graph_.inputs) {
    // Callers write their inputs; constants lie in the file.
    if (graph_.tensors[input].is_constant()) {
      return CorruptModel("%s is an input of the model and a constant", DescribeUse(input).c_str());
    }
    written[input] = true;
  }
  for (const Node& node : graph_.nodes) {
    for (const int32_t input : node.inputs) {
      if (input >= 0 && !written[input]) {
        return CorruptModel("%s reads %s before anything has written it",
                            Describe(graph_, node).c_str(), Describe(graph_, input).c_str());
      }
    }
    for (const int32_t output : node.outputs) {
      if (written[output]) {
        return CorruptModel(
            "%s writes %s, which is %s", Describe(graph_, node).c_str(),
            Describe(graph_, output).c_str(),
            graph_.tensors[output].is_constant() ? "a constant" : "written already");
      }
      written[output] = true;
    }
  }
  for (const int32_t output : graph_.outputs) {
    if (!written[output]) {
      return CorruptModel("graph output %s is never written", Describe(graph_, output).c_str());
    }
  }
  return Status();
}

// "0 'image' [1, 224, 224, 3], 1 'size' [2]"
std::string GraphLoader::ListInputs() const {
  std::string list;
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    if (i == kMaxListedInputs) {
      return list + Format(" and %zu more", graph_.inputs.size() - kMaxListedInputs);
    }
    const Tensor& input = graph_.tensors[graph_.inputs[i]];
    list += Format("%s%zu '%s' %s", i == 0 ? "" : ", ", i, input.name.c_str(),
                   ShapeString(input.shape).c_str());
  }
  return list.empty() ? "none" : list;
}

// As a tensor.
Result<int32_t> GraphLoader::FindInput(const InputShape& wanted) const {
  const std::vector<int32_t>& inputs = graph_.inputs;
  if (wanted.name.empty()) {
    const size_t index = wanted.index == -1 && inputs.size() == 1
                             ? 0
                             : static_cast<size_t>(static_cast<int64_t>(wanted.index));
    if (index < inputs.size()) return inputs[index];
    if (wanted.index == -1) {
      return InvalidArgument("it is not said which input shall have the shape %s; there are: %s",
                             ShapeString(wanted.shape).c_str(), ListInputs().c_str());
    }
    return InvalidArgument("there is no input %d; there are: %s", wanted.index,
                           ListInputs().c_str());
  }
  int32_t found = -1;
  for (const int32_t input : inputs) {
    if (graph_.tensors[input].name != wanted.name || input == found) continue;
    if (found >= 0) {
      return InvalidArgument("several inputs are called '%s', say which one by its number: %s",
                             wanted.name.c_str(), ListInputs().c_str());
    }
    found = input;
  }
  if (found >= 0) return found;
  return InvalidArgument("no input is called '%s'; there are: %s", wanted.name.c_str(),
                         ListInputs().c_str());
}

Status GraphLoader::SetInputShapes(std::span<const InputShape> input_shapes) {
  std::vector<bool> is_set(graph_.tensors.size());
  for (const InputShape& wanted : input_shapes) {
    ATOLL_ASSIGN_OR_RETURN(const int32_t input, FindInput(wanted));
    if (is_set[input]) {
      return InvalidArgument("a shape for input '%s' is given twice",
                             graph_.tensors[input].name.c_str());
    }
    is_set[input] = true;
    ATOLL_RETURN_IF_ERROR(SetInputShape(wanted, input));
  }
  return Status();
}

Status GraphLoader::SetInputShape(const InputShape& wanted, int32_t input) {
  Tensor& tensor = graph_.tensors[input];
  const size_t rank = tensor.shape.size();
  Shape shape = wanted.shape;
  if (shape.size() == 2 && (rank == 3 || rank == 4)) {
    shape = tensor.shape;
    std::copy(wanted.shape.begin(), wanted.shape.end(), shape.begin() + 1);
  }
  const auto refuse = [&](const std::string& reason) {
    return InvalidArgument("input '%s' %s cannot have the shape %s: %s", tensor.name.c_str(),
                           ShapeString(tensor.shape).c_str(), ShapeString(wanted.shape).c_str(),
                           reason.c_str());
  };
  if (shape.size() != rank) {
    return refuse(Format("it must have %zu sizes%s", rank,
                         rank == 3 || rank == 4 ? ", or be a height and a width" : ""));
  }
  if (std::any_of(wanted.shape.begin(), wanted.shape.end(), [](int32_t dim) { return dim < 1; })) {
    return refuse("sizes must be at least 1");
  }
  if (shape == tensor.shape) return Status();
  if (!graph_.compiled.empty()) {
    return Unsupported(
        "the model was compiled for input '%s' of shape %s and cannot have another; load the "
        "original model with the shape %s, or compile that anew",
        tensor.name.c_str(), ShapeString(tensor.shape).c_str(), ShapeString(wanted.shape).c_str());
  }
  Tensor changed{.name = {}, .type = tensor.type, .shape = shape, .quantization = {}, .data = {}};
  // Sizes that stay dynamic are refused with those of the other tensors.
  const bool is_fixed =
      std::none_of(shape.begin(), shape.end(), [](int32_t dim) { return dim < 0; });
  if (is_fixed && !HasAllowedSize(changed)) {
    return refuse(Format("of %s, that is more than %lld bytes", DataTypeName(tensor.type),
                         static_cast<long long>(kMaxTensorBytes)));
  }
  tensor.shape = std::move(shape);
  changed_inputs_ += Format("%s input '%s' of shape %s", changed_inputs_.empty() ? "with" : " and",
                            tensor.name.c_str(), ShapeString(tensor.shape).c_str());
  return Status();
}

// Shapes that no inference replaces: those of inputs, constants and tensors that no node uses.
Status GraphLoader::CheckStoredShapes() const {
  for (size_t i = 0; i < graph_.tensors.size(); ++i) {
    const Tensor& tensor = graph_.tensors[i];
    const int32_t index = static_cast<int32_t>(i);
    if (std::string(DataTypeName(tensor.type)) == "unknown") {
      return Unsupported("%s has type %d, which Atoll does not know", DescribeUse(index).c_str(),
                         static_cast<int>(tensor.type));
    }
    if (is_output_[i]) continue;
    if (std::any_of(tensor.shape.begin(), tensor.shape.end(),
                    [](int32_t dim) { return dim < 0; })) {
      const bool is_input =
          std::find(graph_.inputs.begin(), graph_.inputs.end(), index) != graph_.inputs.end();
      return Unsupported("%s has the dynamic shape %s; %s", DescribeUse(index).c_str(),
                         ShapeString(tensor.shape).c_str(),
                         is_input ? "give this input a shape when loading the model, or convert it "
                                    "with fixed sizes"
                                  : "convert the model with fixed sizes");
    }
    if (!HasAllowedSize(tensor)) {
      return CorruptModel("%s: shape %s of %s is larger than %lld bytes",
                          DescribeUse(index).c_str(), ShapeString(tensor.shape).c_str(),
                          DataTypeName(tensor.type), static_cast<long long>(kMaxTensorBytes));
    }
    if (tensor.is_constant() && static_cast<int64_t>(tensor.data.size()) < tensor.byte_size()) {
      return CorruptModel("%s: shape %s of %s needs %lld bytes, its buffer has %zu",
                          DescribeUse(index).c_str(), ShapeString(tensor.shape).c_str(),
                          DataTypeName(tensor.type), static_cast<long long>(tensor.byte_size()),
                          tensor.data.size());
    }
  }
  return Status();
}

Status GraphLoader::CheckQuantization(int32_t index) const {
  const Tensor& tensor = graph_.tensors[index];
  const Quantization& q = tensor.quantization;
  for (size_t i = 0; i < q.scales.size(); ++i) {
    // Constants may have scale 0 (a channel of zeros); nothing divides by it.
    if (!std::isfinite(q.scales[i]) || q.scales[i] < 0 ||
        (q.scales[i] == 0 && !tensor.is_constant())) {
      return CorruptModel("%s: scale[%zu] is %g", DescribeUse(index).c_str(), i,
                          static_cast<double>(q.scales[i]));
    }
    const auto [lo, hi] = ZeroPointRange(tensor.type);
    if (q.zero_points[i] < lo || q.zero_points[i] > hi) {
      return CorruptModel("%s: zero_point[%zu] is %lld, outside the range of %s",
                          DescribeUse(index).c_str(), i, static_cast<long long>(q.zero_points[i]),
                          DataTypeName(tensor.type));
    }
  }
  // Biases take their scale from input and weights, so what is stored with them may be anything
  // (published models have quantized_dimension 3 on vectors).
  if ((tensor.type == DataType::kInt32 || tensor.type == DataType::kInt64) &&
      tensor.is_constant()) {
    return Status();
  }
  if (q.scales.size() > 1) {
    const bool exists = q.dimension >= 0 && static_cast<size_t>(q.dimension) < tensor.shape.size();
    if (!exists) {
      return CorruptModel("%s: quantized dimension %d, but the shape is %s",
                          DescribeUse(index).c_str(), q.dimension,
                          ShapeString(tensor.shape).c_str());
    }
    if (tensor.shape[q.dimension] != static_cast<int64_t>(q.scales.size())) {
      return CorruptModel("%s: %zu scales for dimension %d of shape %s", DescribeUse(index).c_str(),
                          q.scales.size(), q.dimension, ShapeString(tensor.shape).c_str());
    }
  }
  return Status();
}

}  // namespace

Result<LoadedModel> LoadTflite(std::span<const uint8_t> bytes, ConstantFolding::Evaluate evaluate,
                               std::span<const InputShape> input_shapes) {
  ATOLL_ASSIGN_OR_RETURN(const tflite::Model* const model, VerifyContainer(bytes));
  LoadedModel loaded;
  ATOLL_ASSIGN_OR_RETURN(const PackedTensors packed, ReadPackedTensors(bytes, *model));
  CopyBudget budget(bytes.size());
  auto folded_bytes = static_cast<int64_t>(kMaxFoldedOfByte * bytes.size() + kCopiesOfSmallFile);
  const ConstantFolding folding{evaluate, &loaded.folded, &folded_bytes};
  std::vector<bool> inlined(model->subgraphs()->size());
  for (uint32_t i = 0; i < model->subgraphs()->size(); ++i) {
    // Keeps its number, but is a part of the first graph.
    if (inlined[i]) {
      loaded.graphs.emplace_back();
      continue;
    }
    const tflite::SubGraph* subgraph = model->subgraphs()->Get(i);
    if (subgraph == nullptr || subgraph->tensors() == nullptr) {
      return CorruptModel("subgraph %u has no tensors", i);
    }
    GraphLoader loader(bytes, model, i, packed, &budget);
    Result<Graph> graph =
        loader.Load(evaluate == nullptr ? nullptr : &folding, i == 0, input_shapes);
    if (!graph.ok()) {
      // Most models have only one, which needs no name.
      return i == 0 ? graph.status() : Status(graph.status()).WithContext(Format("subgraph %u", i));
    }
    if (i == 0) inlined = loader.inlined();
    loaded.graphs.push_back(*std::move(graph));
  }
  ATOLL_ASSIGN_OR_RETURN(loaded.variables, ResolveVariables(&loaded.graphs));
  ATOLL_ASSIGN_OR_RETURN(loaded.extras, ReadExtras(bytes, *model, loaded.graphs, &budget));
  return loaded;
}

}  // namespace atollrt
