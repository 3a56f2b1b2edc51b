// SPDX-License-Identifier: Apache-2.0
//
// The operators of ONNX, one function for each or for a family: it reads a node's operands and
// adds to the graph what computes its outputs. Errors do not name the node; the caller does. Part
// of the importer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "atoll/status.h"
#include "quantize/onnx/onnx_graph.h"
#include "quantize/onnx/onnx_proto.h"

namespace atollrt {

// One node while it is imported.
class OnnxNodeImport {
 public:
  using Values = std::unordered_map<std::string_view, OnnxValue>;
  using Uses = std::unordered_map<std::string_view, int32_t>;

  OnnxNodeImport(const OnnxNode& imported, int64_t version, OnnxGraphBuilder* builder,
                 Values* values, const Uses* uses)
      : node(imported), opset(version), b(*builder), values_(*values), uses_(*uses) {}

  const OnnxNode& node;
  const int64_t opset;
  OnnxGraphBuilder& b;

  // ---- Operands ----
  size_t input_count() const { return node.inputs.size(); }
  bool has(size_t position) const {
    return position < node.inputs.size() && !node.inputs[position].empty();
  }
  // kCorruptModel if it is absent; stays where it is while outputs are set.
  Result<const OnnxValue*> Input(size_t position) const;
  Result<const OnnxValue*> FloatInput(size_t position) const;
  // A constant of whole numbers; kUnsupported if it is computed.
  Result<Dims> IntegersAt(size_t position, const char* what) const;
  // The numbers of an attribute before opset `since`, and of an input from it on; `fallback` if
  // there is neither.
  Result<Dims> IntegersOf(const char* attribute, size_t position, int64_t since,
                          Dims fallback) const;
  Result<std::vector<float>> FloatsAt(size_t position, const char* what) const;
  // Whether nothing else reads input `position`, which no other name has, either.
  bool OnlyReader(size_t position) const;

  // ---- Attributes ----
  const OnnxAttribute* Attribute(std::string_view name) const;
  int64_t Int(std::string_view name, int64_t fallback) const;
  float Float(std::string_view name, float fallback) const;
  std::string_view Text(std::string_view name, std::string_view fallback) const;
  Dims Ints(std::string_view name) const;

  // ---- Results ----
  Status Set(OnnxValue value) { return SetAt(0, std::move(value)); }
  Status SetAt(size_t position, OnnxValue value);
  Status SetTensor(int32_t tensor, Perm perm, OnnxType type = OnnxType::kFloat) {
    return Set(b.FromTensor(tensor, std::move(perm), type));
  }

 private:
  Values& values_;
  const Uses& uses_;
};

// A constant's elements, by a list of positions along one axis; `dims` are those of the result.
Result<OnnxValue> PickAlong(OnnxNodeImport& n, const OnnxValue& x, int32_t axis,
                            const std::vector<int64_t>& positions, Dims dims);

// `axis` in [-rank, rank) as [0, rank).
Result<int32_t> OnnxAxis(int64_t axis, size_t rank);
// Where a value's axis is stored.
int32_t StoredAxis(const OnnxValue& value, int32_t axis);

// A constant of the file: floats of any width as float, whole numbers and bool as int64.
Result<OnnxValue> LoadOnnxTensor(const OnnxTensor& tensor, OnnxGraphBuilder* builder);

using OnnxOperator = Status (*)(OnnxNodeImport& n);
struct OnnxOperatorEntry {
  std::string_view name;
  OnnxOperator import;
};
// Convolutions and matrix products; pools; arithmetic; movement of data; values made of nothing or
// of others; pictures of other sizes.
std::vector<OnnxOperatorEntry> OnnxLayerOperators();
std::vector<OnnxOperatorEntry> OnnxPoolOperators();
std::vector<OnnxOperatorEntry> OnnxMathOperators();
std::vector<OnnxOperatorEntry> OnnxMoveOperators();
std::vector<OnnxOperatorEntry> OnnxValueOperators();
std::vector<OnnxOperatorEntry> OnnxResizeOperators();

// A node of the domain "tflite".
Status ImportTfliteOperator(OnnxNodeImport& n);

// Puts an activation into the node that computes input `position`, if nothing else reads that and
// it has none yet.
bool FuseActivation(OnnxNodeImport& n, Activation activation);

}  // namespace atollrt
