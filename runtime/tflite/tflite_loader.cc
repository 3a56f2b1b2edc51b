// SPDX-License-Identifier: Apache-2.0
#include "runtime/tflite/tflite_loader.h"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/base/buffer.h"
#include "runtime/base/bytes.h"
#include "runtime/graph/compiled_op.h"
#include "runtime/graph/graph_checks.h"
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
    ATOLL_RETURN_IF_ERROR(CheckOrder(graph_));
    std::string changed_inputs;
    if (is_first) {
      ATOLL_ASSIGN_OR_RETURN(changed_inputs, SetInputShapes(input_shapes, &graph_));
    }
    ATOLL_RETURN_IF_ERROR(CheckStoredShapes(graph_));
    Status status = InferShapes(&graph_, folding);
    if (!status.ok()) {
      // The file is not to blame for what does not fit another shape.
      return changed_inputs.empty() ? status : std::move(status).WithContext(changed_inputs);
    }
    ATOLL_RETURN_IF_ERROR(CheckQuantization(graph_));
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

  const std::span<const uint8_t> bytes_;
  const tflite::Model* const model_;
  const uint32_t number_;
  const tflite::SubGraph* const subgraph_;
  const PackedTensors& packed_;
  CopyBudget& budget_;
  Graph graph_;
  std::vector<bool> inlined_;  // per subgraph
};

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
                       DescribeUse(graph_, index).c_str());
  }
  ATOLL_RETURN_IF_ERROR(ReadQuantization(stored.quantization(), index));
  const auto data = BufferBytes(bytes_, *model_, stored.buffer());
  if (!data.ok()) return Status(data.status()).WithContext(DescribeUse(graph_, index));
  tensor.data = *data;
  // Its first value is the model's business, not the file's, and operators write to it.
  if (tensor.is_variable && tensor.is_constant()) {
    return CorruptModel("%s is a variable with constant data", DescribeUse(graph_, index).c_str());
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
    return CorruptModel("%s: %zu scales but %zu zero points", DescribeUse(graph_, index).c_str(),
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
  if (subgraph_->operators() == nullptr) return Status();
  const uint32_t count = subgraph_->operators()->size();
  ATOLL_RETURN_IF_ERROR(CountCopied(count * sizeof(Node)));
  graph_.nodes.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const tflite::Operator* op = subgraph_->operators()->Get(i);
    if (op == nullptr) return CorruptModel("node %u is missing", i);
    ATOLL_RETURN_IF_ERROR(ReadNode(*op, static_cast<int32_t>(i)));
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
  if (std::none_of(graph_.nodes.begin(), graph_.nodes.end(), IsCompiledOp)) return Status();
  std::vector<Node> nodes;
  for (Node& node : graph_.nodes) {
    if (!IsCompiledOp(node)) {
      nodes.push_back(std::move(node));
      continue;
    }
    Status status = Inline(node, &nodes);
    if (!status.ok()) return std::move(status).WithContext(Describe(graph_, node));
  }
  graph_.nodes = std::move(nodes);
  return Status();
}

Status GraphLoader::Inline(const Node& stand_in, std::vector<Node>* nodes) {
  ATOLL_ASSIGN_OR_RETURN(const CompiledOp op, DecodeCompiledOp(stand_in.custom_options));
  if (op.subgraph == 0) {
    nodes->push_back(stand_in);
    nodes->back().compiled = static_cast<int32_t>(graph_.compiled.size());
    graph_.compiled.push_back(op.executable);
    return Status();
  }
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
    if (IsCompiledOp(node)) {
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
