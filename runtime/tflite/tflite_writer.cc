// SPDX-License-Identifier: Apache-2.0
#include "runtime/tflite/tflite_writer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "runtime/base/buffer.h"
#include "runtime/base/bytes.h"
#include "runtime/graph/compiled_op.h"
#include "runtime/tflite/custom_options.h"
#include "runtime/tflite/tflite_options.h"
#include "tflite_generated.h"

namespace atollrt {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

constexpr uint32_t kWrittenVersion = 3;
constexpr size_t kBufferAlignment = 16;

Offset<tflite::Tensor> WriteTensor(FlatBufferBuilder* fbb, const Tensor& tensor, uint32_t buffer) {
  Offset<tflite::QuantizationParameters> quantization;
  const Quantization& q = tensor.quantization;
  if (!q.scales.empty() || !q.zero_points.empty()) {
    const auto scales = fbb->CreateVector(q.scales);
    const auto zero_points = fbb->CreateVector(q.zero_points);
    quantization =
        tflite::CreateQuantizationParameters(*fbb, 0, 0, scales, zero_points, 0, 0, q.dimension);
  }
  const auto shape = fbb->CreateVector(tensor.shape);
  Offset<flatbuffers::Vector<int32_t>> signature;
  if (!tensor.shape_signature.empty()) signature = fbb->CreateVector(tensor.shape_signature);
  const auto name = fbb->CreateString(tensor.name);
  return tflite::CreateTensor(*fbb, shape, static_cast<int8_t>(tensor.type), buffer, name,
                              quantization, tensor.is_variable, 0, signature);
}

// What all subgraphs share: buffers, and one code for all nodes of an operator and version.
class ModelWriter {
 public:
  // Memory for `bytes` is there at once: growing would copy what was written, and hold it twice.
  // Buffer 0 is the empty one by convention.
  explicit ModelWriter(size_t bytes) : fbb_(bytes), buffers_{tflite::CreateBuffer(fbb_)} {}

  Status Add(const Graph& graph) {
    std::vector<Offset<tflite::Tensor>> tensors;
    for (const Tensor& tensor : graph.tensors) {
      if (!tensor.packed_weights.empty()) {
        for (const size_t number : {subgraphs_.size(), tensors.size(), buffers_.size()}) {
          packed_weights_.push_back(static_cast<uint32_t>(number));
        }
        std::vector<uint8_t> room(tensor.packed_weights.begin(), tensor.packed_weights.end());
        room.resize(room.size() + Buffer::kAlignment - kBufferAlignment);
        AddBuffer(room);
      }
      tensors.push_back(WriteTensor(&fbb_, tensor, AddConstant(tensor.data)));
    }
    std::vector<Offset<tflite::Operator>> nodes;
    for (const Node& node : graph.nodes) {
      const Result<StoredOptions> options = WriteTfliteOptions(graph, node, &fbb_);
      if (!options.ok()) return Status(options.status()).WithContext(Describe(graph, node));
      nodes.push_back(WriteNode(node, *options));
    }
    const auto stored_tensors = fbb_.CreateVector(tensors);
    const auto inputs = fbb_.CreateVector(graph.inputs);
    const auto outputs = fbb_.CreateVector(graph.outputs);
    const auto stored_nodes = fbb_.CreateVector(nodes);
    const auto name = fbb_.CreateString(graph.name);
    subgraphs_.push_back(
        tflite::CreateSubGraph(fbb_, stored_tensors, inputs, outputs, stored_nodes, name));
    return Status();
  }

  void Add(const ModelExtras& extras) {
    const auto write_ends = [this](const std::vector<Signature::End>& ends) {
      std::vector<Offset<tflite::TensorMap>> stored;
      for (const Signature::End& end : ends) {
        const auto name = fbb_.CreateString(end.name);
        stored.push_back(tflite::CreateTensorMap(fbb_, name, static_cast<uint32_t>(end.tensor)));
      }
      return fbb_.CreateVector(stored);
    };
    for (const Signature& signature : extras.signatures) {
      const auto inputs = write_ends(signature.inputs);
      const auto outputs = write_ends(signature.outputs);
      const auto key = fbb_.CreateString(signature.key);
      signatures_.push_back(tflite::CreateSignatureDef(fbb_, inputs, outputs, key, 0,
                                                       static_cast<uint32_t>(signature.graph)));
    }
    for (const Metadata& metadata : extras.metadata) {
      if (metadata.name != kPackedWeightsMetadata) AddMetadata(metadata.name, metadata.data);
    }
  }

  std::vector<uint8_t> Finish() {
    const auto subgraphs = fbb_.CreateVector(subgraphs_);
    const auto codes = fbb_.CreateVector(codes_);
    if (!packed_weights_.empty()) {
      std::vector<uint8_t> table(packed_weights_.size() * sizeof(uint32_t));
      std::memcpy(table.data(), packed_weights_.data(), table.size());
      AddMetadata(kPackedWeightsMetadata, table);
    }
    Offset<flatbuffers::Vector<Offset<tflite::Metadata>>> metadata;
    if (!metadata_.empty()) metadata = fbb_.CreateVector(metadata_);
    Offset<flatbuffers::Vector<Offset<tflite::SignatureDef>>> signatures;
    if (!signatures_.empty()) signatures = fbb_.CreateVector(signatures_);
    const auto buffers = fbb_.CreateVector(buffers_);
    tflite::FinishModelBuffer(fbb_, tflite::CreateModel(fbb_, kWrittenVersion, codes, subgraphs, 0,
                                                        buffers, 0, metadata, signatures));
    std::vector<uint8_t> file(fbb_.GetBufferPointer(), fbb_.GetBufferPointer() + fbb_.GetSize());
    AlignPackedWeights(&file);
    return file;
  }

 private:
  // Moves packed weights within their buffers to where they belong, which is known only now.
  void AlignPackedWeights(std::vector<uint8_t>* file) const {
    const auto* buffers = tflite::GetModel(file->data())->buffers();
    for (size_t i = 2; i < packed_weights_.size(); i += 3) {
      const auto* data = buffers->Get(packed_weights_[i])->data();
      const size_t begin = static_cast<size_t>(data->data() - file->data());
      const size_t end = begin + data->size() - (Buffer::kAlignment - kBufferAlignment);
      const size_t moved = AlignUp(begin, Buffer::kAlignment) - begin;
      std::move_backward(file->begin() + static_cast<ptrdiff_t>(begin),
                         file->begin() + static_cast<ptrdiff_t>(end),
                         file->begin() + static_cast<ptrdiff_t>(end + moved));
    }
  }

  void AddMetadata(const std::string& name, std::span<const uint8_t> data) {
    const uint32_t buffer = AddBuffer(data);
    const auto stored_name = fbb_.CreateString(name);
    metadata_.push_back(tflite::CreateMetadata(fbb_, stored_name, buffer));
  }

  // Of a tensor: bytes of the caller's that many of them may have in common, here as there.
  uint32_t AddConstant(std::span<const uint8_t> data) {
    if (data.empty()) return 0;
    const auto [entry, is_new] = constants_.insert({{data.data(), data.size()}, 0});
    if (is_new) entry->second = AddBuffer(data);
    return entry->second;
  }

  uint32_t AddBuffer(std::span<const uint8_t> data) {
    if (data.empty()) return 0;
    fbb_.ForceVectorAlignment(data.size(), 1, kBufferAlignment);
    const auto stored = fbb_.CreateVector(data.data(), data.size());
    buffers_.push_back(tflite::CreateBuffer(fbb_, stored));
    return static_cast<uint32_t>(buffers_.size() - 1);
  }

  uint32_t CodeOf(const Node& node) {
    const int32_t number = static_cast<int32_t>(node.type);
    const std::string name = node.type == OpType::kCUSTOM ? node.custom_name : "";
    const auto [entry, is_new] =
        code_indices_.insert({{number, name, node.version}, static_cast<uint32_t>(codes_.size())});
    if (is_new) {
      Offset<flatbuffers::String> custom;
      if (node.type == OpType::kCUSTOM) custom = fbb_.CreateString(name);
      // Old readers have only the 8-bit field; 127 there says that the number does not fit.
      codes_.push_back(tflite::CreateOperatorCode(fbb_, static_cast<int8_t>(std::min(number, 127)),
                                                  custom, node.version, number));
    }
    return entry->second;
  }

  Offset<tflite::Operator> WriteNode(const Node& node, const StoredOptions& options) {
    const uint32_t code = CodeOf(node);
    const auto inputs = fbb_.CreateVector(node.inputs);
    const auto outputs = fbb_.CreateVector(node.outputs);
    std::vector<uint8_t> custom(node.custom_options.begin(), node.custom_options.end());
    if (custom.empty()) custom = EncodeCustomOptions(node.options);
    Offset<flatbuffers::Vector<uint8_t>> custom_options;
    if (!custom.empty()) {
      fbb_.ForceVectorAlignment(custom.size(), 1, kBufferAlignment);
      custom_options = fbb_.CreateVector(custom);
    }
    Offset<flatbuffers::Vector<int32_t>> intermediates;
    if (!node.intermediates.empty()) intermediates = fbb_.CreateVector(node.intermediates);
    return tflite::CreateOperator(fbb_, code, inputs, outputs, options.type, options.table,
                                  custom_options, 0, 0, intermediates);
  }

  FlatBufferBuilder fbb_;
  std::vector<Offset<tflite::Buffer>> buffers_;
  std::map<std::pair<const uint8_t*, size_t>, uint32_t> constants_;  // and their buffers
  std::vector<Offset<tflite::OperatorCode>> codes_;
  std::map<std::tuple<int32_t, std::string, int32_t>, uint32_t> code_indices_;
  std::vector<Offset<tflite::SubGraph>> subgraphs_;
  std::vector<uint32_t> packed_weights_;  // subgraph, tensor, buffer of each
  std::vector<Offset<tflite::Metadata>> metadata_;
  std::vector<Offset<tflite::SignatureDef>> signatures_;
};

using Constants = std::set<std::pair<const uint8_t*, size_t>>;

// About what the graph takes in the file, beside constants that are in `stored`, which its own are
// added to, with `table` bytes for fields, vtables, lengths and padding of one table.
uint64_t SizeOf(const Graph& graph, uint64_t table, Constants* stored) {
  uint64_t bytes = table + graph.name.size() + 4 * (graph.inputs.size() + graph.outputs.size());
  for (const Tensor& tensor : graph.tensors) {
    const bool is_new = stored->insert({tensor.data.data(), tensor.data.size()}).second;
    if (is_new) bytes += tensor.data.size();
    bytes += table + tensor.packed_weights.size() + tensor.name.size() +
             4 * (tensor.shape.size() + tensor.shape_signature.size()) +
             4 * tensor.quantization.scales.size() + 8 * tensor.quantization.zero_points.size();
  }
  for (const Node& node : graph.nodes) {
    const size_t indices = node.inputs.size() + node.outputs.size() + node.intermediates.size();
    bytes += 2 * table + node.custom_name.size() + node.custom_options.size() + 4 * indices;
    if (const auto* reshape = std::get_if<ReshapeOptions>(&node.options)) {
      bytes += 4 * reshape->new_shape.size();
    } else if (const auto* squeeze = std::get_if<SqueezeOptions>(&node.options)) {
      bytes += 4 * squeeze->dims.size();
    } else if (const auto* handle = std::get_if<VarHandleOptions>(&node.options)) {
      bytes += handle->container.size() + handle->shared_name.size();
    }
  }
  return bytes;
}

uint64_t SizeOf(const ModelExtras& extras, uint64_t table) {
  uint64_t bytes = 0;
  for (const Signature& signature : extras.signatures) {
    bytes += table + signature.key.size();
    for (const auto* ends : {&signature.inputs, &signature.outputs}) {
      for (const Signature::End& end : *ends) bytes += table + end.name.size();
    }
  }
  for (const Metadata& metadata : extras.metadata) {
    bytes += table + metadata.name.size() + metadata.data.size();
  }
  return bytes;
}

}  // namespace

Result<std::vector<uint8_t>> WriteTflite(std::span<const Graph* const> graphs,
                                         const ModelExtras& extras) {
  const auto size = [&](uint64_t table) {
    uint64_t bytes = SizeOf(extras, table);
    Constants constants;
    for (const Graph* graph : graphs) bytes += SizeOf(*graph, table, &constants);
    return bytes;
  };
  constexpr uint64_t kTableAtMost = 512;
  const uint64_t bytes = size(kTableAtMost);
  if (bytes >= FLATBUFFERS_MAX_BUFFER_SIZE) {
    return Unsupported("a .tflite file holds less than 2 GiB, the model has up to %llu bytes",
                       static_cast<unsigned long long>(bytes));
  }
  constexpr uint64_t kTableMostly = 160;
  ModelWriter writer(size(kTableMostly));
  for (const Graph* graph : graphs) ATOLL_RETURN_IF_ERROR(writer.Add(*graph));
  writer.Add(extras);
  return writer.Finish();
}

Result<std::vector<uint8_t>> WriteTflite(const Graph& graph) {
  const Graph* const graphs[] = {&graph};
  return WriteTflite(graphs);
}

}  // namespace atollrt
