// SPDX-License-Identifier: Apache-2.0
//
// Tensors outside of an interpreter: what protocols carry in requests and answers. Bytes are
// little-endian and row-major; those of a request are hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/runtime.h"
#include "atoll/status.h"

namespace atollserve {

// The datatypes of the Open Inference Protocol. Models here have no FP64, UINT16, UINT64 and BYTES.
enum class DataType {
  kBool,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFp16,
  kFp32,
  kFp64,
  kBytes,
};
const char* DataTypeName(DataType type);  // "INT8"
std::optional<DataType> ParseDataType(std::string_view name);
size_t DataTypeBytes(DataType type);  // of an element; 0: kBytes, which have no size of their own
// nullopt: strings, resources.
std::optional<DataType> DataTypeOf(AtollType type);

using Shape = std::vector<int64_t>;
// "[1,16]"
std::string ShapeText(const Shape& shape);
// nullopt if a size is negative or the product is no int64.
std::optional<int64_t> ElementCount(const Shape& shape);

// A tensor of a model.
struct TensorInfo {
  std::string name;
  DataType type = DataType::kFp32;
  Shape shape;
  AtollQuantization quantization = {};  // scale 0: not quantized

  size_t elements() const;
  size_t bytes() const { return elements() * DataTypeBytes(type); }
  // It holds int8, uint8 or int16 that stand for real numbers.
  bool quantized() const { return quantization.scale != 0; }
  // What clients see: FP32 of a quantized one if they want real values.
  DataType seen_type(bool real_values) const {
    return real_values && quantized() ? DataType::kFp32 : type;
  }
};

// An input of a request.
struct InputTensor {
  std::string name;  // "": the model's only input
  DataType type = DataType::kFp32;
  Shape shape;
  std::span<const uint8_t> bytes;
  std::shared_ptr<const void> owner;  // of the bytes, until the request has been answered
};

// An output of an answer.
struct OutputTensor {
  std::string name;
  DataType type = DataType::kFp32;
  Shape shape;
  std::string bytes;
};

// Real values as the tensor stores them: divided by the scale, rounded (halves away from zero),
// shifted by the zero point and clamped to the type; NaN becomes the zero point. `values` are
// `info.elements()` floats, `stored` as many elements of info.type, a quantized int8, uint8 or
// int16.
void QuantizeTensor(const TensorInfo& info, std::span<const uint8_t> values,
                    std::span<uint8_t> stored);
// The other way round: scale * (value - zero point), as FP32.
void DequantizeTensor(const TensorInfo& info, std::span<const uint8_t> stored,
                      std::span<uint8_t> values);

}  // namespace atollserve
