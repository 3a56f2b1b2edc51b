// SPDX-License-Identifier: Apache-2.0
//
// What an import works on: the values of the ONNX graph by name, and the .tflite's graph that grows
// out of them. A value is a constant, whose numbers are at hand, or a tensor of that graph together
// with the permutation in which it is stored: axis i of the tensor is axis perm[i] of the value.
// Operators (onnx_operators.h) read values and add others. Part of the importer.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "quantize/onnx/onnx_proto.h"
#include "runtime/graph/graph.h"

namespace atollrt {

using Dims = std::vector<int64_t>;
using Perm = std::vector<int32_t>;

// kUnsupported for more dimensions than anything here has. What is done for each element, or for
// each name of a value, is done for each of its dimensions.
Status CheckRank(size_t rank);
std::string DimsString(const Dims& dims);  // "[1, 3, 224, 224]"
int64_t DimsCount(const Dims& dims);       // saturating; 1 for a scalar
Perm IdentityPerm(size_t rank);
Perm ChannelsLast(size_t rank);  // 0, 2, 3, ..., 1
Shape ToShape(const Dims& dims);

// Floats, or whole numbers of any type: one of the vectors has an element for each of the value's.
struct OnnxNumbers {
  std::vector<float> floats;
  std::vector<int64_t> integers;
};

struct OnnxValue {
  Dims dims;  // in ONNX's order
  OnnxType type = OnnxType::kFloat;
  std::shared_ptr<const OnnxNumbers> constant;  // nullptr: computed
  int32_t tensor = -1;                          // of what is computed
  Perm perm{};
  bool shared = false;  // another name of the same tensor has readers, too

  bool is_constant() const { return constant != nullptr; }
  bool is_float() const { return type == OnnxType::kFloat; }
  size_t rank() const { return dims.size(); }
};

class OnnxGraphBuilder {
 public:
  // `budget_bytes`: what constants may take that this class makes; `most_tensors`: how many tensors
  // the graph may have, which with their nodes take memory, too, if they have no elements to speak
  // of.
  OnnxGraphBuilder(int64_t budget_bytes, int64_t most_tensors)
      : budget_bytes_(budget_bytes), most_tensors_(most_tensors) {}

  Graph& graph() { return graph_; }
  const Tensor& tensor(int32_t index) const { return graph_.tensors[static_cast<size_t>(index)]; }

  // ---- Constants ----
  // kResourceExhausted when constants take more than the size of the file accounts for.
  Status Charge(int64_t elements, int64_t element_bytes);
  // These make a value of any shape that has as many elements. Of an empty one the other sizes
  // count, too: operators visit its rows, though there is nothing in them.
  Result<OnnxValue> Floats(Dims dims, std::vector<float> values);
  Result<OnnxValue> Integers(Dims dims, std::vector<int64_t> values,
                             OnnxType type = OnnxType::kInt64);
  // Element i of the result is element indices[i] of `value`.
  Result<OnnxValue> Pick(const OnnxValue& value, Dims dims, const std::vector<int64_t>& indices);
  // A constant in another order of axes.
  Result<OnnxValue> Permute(const OnnxValue& value, const Perm& order);
  // Tensors of the .tflite.
  Result<int32_t> FloatTensor(Shape shape, const std::vector<float>& values);
  Result<int32_t> IntTensor(Shape shape, const std::vector<int32_t>& values);
  Result<int32_t> ScalarTensor(float value);
  Result<int32_t> ConstantTensor(const OnnxValue& value);

  // ---- Nodes ----
  Result<int32_t> AddInput(const std::string& name, DataType type, Shape shape);
  // Adds a node; its outputs have the shapes that its inputs ask for.
  Result<int32_t> Emit(OpType type, std::vector<int32_t> inputs, OpOptions options = {});
  Result<int32_t> EmitTyped(OpType type, std::vector<int32_t> inputs, OpOptions options,
                            DataType output_type);
  Result<std::vector<int32_t>> EmitMany(OpType type, std::vector<int32_t> inputs, size_t outputs,
                                        OpOptions options, DataType output_type);
  // `node` has no outputs yet.
  Result<std::vector<int32_t>> EmitNode(Node node, size_t outputs, DataType output_type);
  // RESHAPE, unless the shape is the same; one after another becomes one.
  Result<int32_t> EmitReshape(int32_t tensor, const Shape& shape);
  // Stored axis i of the result is axis order[i] of `tensor`; a RESHAPE if only ones move.
  Result<int32_t> EmitTranspose(int32_t tensor, const Perm& order);
  // The node that computes `tensor`, or nullptr.
  Node* Producer(int32_t tensor);
  std::vector<uint8_t>* ConstantBytes(int32_t tensor);  // nullptr: not a constant

  // Gives back the memory of constants that no tensor of graph() has. No more values after that.
  void FreeUnused();

  // ---- Values ----
  OnnxValue FromTensor(int32_t tensor, Perm perm, OnnxType type = OnnxType::kFloat) const;
  // The tensor of a value, stored as `perm` says.
  Result<int32_t> Stored(const OnnxValue& value, const Perm& perm);
  Result<int32_t> InOrder(const OnnxValue& value) {
    return Stored(value, IdentityPerm(value.rank()));
  }
  // The tensor of a value as it is stored, which `perm` tells.
  Result<int32_t> AnyOrder(const OnnxValue& value, Perm* perm) {
    *perm = value.is_constant() ? IdentityPerm(value.rank()) : value.perm;
    return Stored(value, *perm);
  }
  // The same elements, in ONNX's order, as another shape: in place where the stored order allows.
  Result<OnnxValue> Reshape(const OnnxValue& value, const Dims& dims);

 private:
  // kResourceExhausted if the graph has as many as it may have.
  Result<int32_t> AddTensor(DataType type, Shape shape);
  Status ChargeConstant(const Dims& dims, int64_t element_bytes);

  Graph graph_;
  std::deque<std::vector<uint8_t>> constants_;
  std::unordered_map<int32_t, size_t> constant_of_tensor_;
  std::unordered_map<int32_t, size_t> producer_;
  std::map<std::pair<int32_t, Perm>, int32_t> transposed_;
  std::unordered_map<const OnnxNumbers*, int32_t> tensor_of_constant_;
  std::vector<std::shared_ptr<const OnnxNumbers>> kept_;  // so that those addresses stay theirs
  int64_t budget_bytes_;
  const int64_t most_tensors_;
};

}  // namespace atollrt
