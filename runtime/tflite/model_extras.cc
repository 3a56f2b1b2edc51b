// SPDX-License-Identifier: Apache-2.0
#include "runtime/tflite/model_extras.h"

#include <utility>

namespace atollrt {
namespace {

using StoredEnds = flatbuffers::Vector<flatbuffers::Offset<tflite::TensorMap>>;
Result<std::vector<Signature::End>> ReadEnds(const StoredEnds* stored, const Graph& graph,
                                             CopyBudget* budget) {
  std::vector<Signature::End> ends;
  if (stored == nullptr) return ends;
  for (const tflite::TensorMap* end : *stored) {
    if (end == nullptr || end->tensor_index() >= graph.tensors.size()) {
      return CorruptModel("tensor index %u, but there are %zu tensors",
                          end == nullptr ? 0 : end->tensor_index(), graph.tensors.size());
    }
    ATOLL_RETURN_IF_ERROR(budget->Count(sizeof(Signature::End) + BytesOf(end->name())));
    ends.push_back({String(end->name()), static_cast<int32_t>(end->tensor_index())});
  }
  return ends;
}

Result<Signature> ReadSignature(const tflite::SignatureDef& stored,
                                const std::vector<Graph>& graphs, CopyBudget* budget) {
  Signature signature{.key = String(stored.signature_key())};
  if (stored.subgraph_index() >= graphs.size()) {
    return CorruptModel("subgraph %u, but there are %zu", stored.subgraph_index(), graphs.size());
  }
  signature.graph = static_cast<int32_t>(stored.subgraph_index());
  const Graph& graph = graphs[stored.subgraph_index()];
  ATOLL_ASSIGN_OR_RETURN(signature.inputs, ReadEnds(stored.inputs(), graph, budget));
  ATOLL_ASSIGN_OR_RETURN(signature.outputs, ReadEnds(stored.outputs(), graph, budget));
  return signature;
}

}  // namespace

Result<ModelExtras> ReadExtras(std::span<const uint8_t> bytes, const tflite::Model& model,
                               const std::vector<Graph>& graphs, CopyBudget* budget) {
  ModelExtras extras;
  if (model.signature_defs() != nullptr) {
    for (const tflite::SignatureDef* stored : *model.signature_defs()) {
      if (stored == nullptr)
        return CorruptModel("signature %zu is missing", extras.signatures.size());
      ATOLL_RETURN_IF_ERROR(budget->Count(sizeof(Signature) + BytesOf(stored->signature_key())));
      Result<Signature> signature = ReadSignature(*stored, graphs, budget);
      if (!signature.ok()) {
        return Status(signature.status())
            .WithContext(Format("signature %zu", extras.signatures.size()));
      }
      extras.signatures.push_back(*std::move(signature));
    }
  }
  if (model.metadata() != nullptr) {
    for (const tflite::Metadata* stored : *model.metadata()) {
      if (stored == nullptr) return CorruptModel("metadata %zu is missing", extras.metadata.size());
      ATOLL_RETURN_IF_ERROR(budget->Count(sizeof(Metadata) + BytesOf(stored->name())));
      const auto data = BufferBytes(bytes, model, stored->buffer());
      if (!data.ok()) {
        return Status(data.status()).WithContext(Format("metadata %zu", extras.metadata.size()));
      }
      extras.metadata.push_back({String(stored->name()), *data});
    }
  }
  return extras;
}

}  // namespace atollrt
