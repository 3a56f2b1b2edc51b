// SPDX-License-Identifier: Apache-2.0
//
// Protobuf's wire format as far as ONNX needs it: the messages ModelProto, GraphProto, NodeProto,
// AttributeProto, TensorProto, ValueInfoProto, TypeProto and OperatorSetIdProto as structs, whose
// names and weights point into the file. The file is a stranger's: every length is checked against
// what is left, messages nest no deeper than these eight, and what is held is in proportion to the
// bytes that were read. Fields that nobody asks for are skipped. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

// TensorProto.DataType.
enum class OnnxType : int32_t {
  kUndefined = 0,
  kFloat = 1,
  kUInt8 = 2,
  kInt8 = 3,
  kUInt16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUInt32 = 12,
  kUInt64 = 13,
};
const char* OnnxTypeName(OnnxType type);  // "float16", or "unknown"

struct OnnxTensor {
  std::string_view name;
  std::vector<int64_t> dims;
  OnnxType type = OnnxType::kUndefined;
  bool external = false;            // its values lie in another file
  std::span<const uint8_t> raw{};   // little-endian; empty: the values are in one of these
  std::vector<float> floats{};      // kFloat
  std::vector<double> doubles{};    // kDouble
  std::vector<int64_t> integers{};  // every integer type, bits of kFloat16
};

struct OnnxAttribute {
  std::string_view name;
  int32_t type = 0;  // AttributeProto.AttributeType; 0 in files of old exporters
  float f = 0;
  int64_t i = 0;
  std::string_view s;
  std::vector<float> floats;
  std::vector<int64_t> ints;
  // The bytes of a tensor, which ReadOnnxTensor reads; no data: it has none.
  std::span<const uint8_t> tensor;
};

struct OnnxNode {
  std::string_view name, op_type, domain;
  std::vector<std::string_view> inputs, outputs;  // "": absent
  std::vector<OnnxAttribute> attributes;
};

struct OnnxValueInfo {
  std::string_view name;
  bool is_tensor = false;
  bool has_shape = false;
  OnnxType type = OnnxType::kUndefined;
  std::vector<int64_t> dims;  // -1: a symbol, or nothing
};

struct OnnxGraph {
  std::string_view name;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> initializers;
  std::vector<OnnxValueInfo> inputs, outputs;
};

struct OnnxModel {
  int64_t ir_version = 0;
  int64_t opset = 0;  // of the domain "" or "ai.onnx"; 0: none is imported
  OnnxGraph graph;
};

// `bytes` outlives what is read. kCorruptModel names the message and the place.
Result<OnnxModel> ReadOnnxModel(std::span<const uint8_t> bytes);
Result<OnnxTensor> ReadOnnxTensor(std::span<const uint8_t> bytes);

}  // namespace atollrt
