// SPDX-License-Identifier: Apache-2.0
#include "serve/inference/tensor_data.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "atoll/check.h"

namespace atollserve {
namespace {

struct TypeRow {
  DataType type;
  const char* name;
  size_t bytes;
};
constexpr std::array<TypeRow, 13> kTypes = {{{DataType::kBool, "BOOL", 1},
                                             {DataType::kUint8, "UINT8", 1},
                                             {DataType::kUint16, "UINT16", 2},
                                             {DataType::kUint32, "UINT32", 4},
                                             {DataType::kUint64, "UINT64", 8},
                                             {DataType::kInt8, "INT8", 1},
                                             {DataType::kInt16, "INT16", 2},
                                             {DataType::kInt32, "INT32", 4},
                                             {DataType::kInt64, "INT64", 8},
                                             {DataType::kFp16, "FP16", 2},
                                             {DataType::kFp32, "FP32", 4},
                                             {DataType::kFp64, "FP64", 8},
                                             {DataType::kBytes, "BYTES", 0}}};

const TypeRow& RowOf(DataType type) {
  const TypeRow& row = kTypes[static_cast<size_t>(type)];
  ATOLL_CHECK(row.type == type);
  return row;
}

template <typename T>
void Quantize(const AtollQuantization& q, std::span<const uint8_t> values,
              std::span<uint8_t> stored) {
  constexpr double kMin = std::numeric_limits<T>::min(), kMax = std::numeric_limits<T>::max();
  for (size_t i = 0; i < stored.size() / sizeof(T); ++i) {
    float value;
    std::memcpy(&value, values.data() + i * sizeof(float), sizeof(float));
    double level = std::round(static_cast<double>(value / q.scale)) + q.zero_point;
    if (std::isnan(level)) level = q.zero_point;
    const T element = static_cast<T>(std::clamp(level, kMin, kMax));
    std::memcpy(stored.data() + i * sizeof(T), &element, sizeof(T));
  }
}

template <typename T>
void Dequantize(const AtollQuantization& q, std::span<const uint8_t> stored,
                std::span<uint8_t> values) {
  for (size_t i = 0; i < stored.size() / sizeof(T); ++i) {
    T element;
    std::memcpy(&element, stored.data() + i * sizeof(T), sizeof(T));
    const float value = q.scale * static_cast<float>(element - q.zero_point);
    std::memcpy(values.data() + i * sizeof(float), &value, sizeof(float));
  }
}

}  // namespace

const char* DataTypeName(DataType type) { return RowOf(type).name; }
size_t DataTypeBytes(DataType type) { return RowOf(type).bytes; }

std::optional<DataType> ParseDataType(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

std::optional<DataType> DataTypeOf(AtollType type) {
  switch (type) {
    case ATOLL_FLOAT32:
      return DataType::kFp32;
    case ATOLL_FLOAT16:
      return DataType::kFp16;
    case ATOLL_INT32:
      return DataType::kInt32;
    case ATOLL_UINT8:
      return DataType::kUint8;
    case ATOLL_INT64:
      return DataType::kInt64;
    case ATOLL_BOOL:
      return DataType::kBool;
    case ATOLL_INT16:
      return DataType::kInt16;
    case ATOLL_INT8:
      return DataType::kInt8;
    case ATOLL_UINT32:
      return DataType::kUint32;
    case ATOLL_NO_TYPE:
    case ATOLL_STRING:
    case ATOLL_RESOURCE:
      return std::nullopt;
  }
  return std::nullopt;
}

std::string ShapeText(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  }
  return text + "]";
}

std::optional<int64_t> ElementCount(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) return std::nullopt;
  }
  return count;
}

size_t TensorInfo::elements() const { return static_cast<size_t>(ElementCount(shape).value_or(0)); }

void QuantizeTensor(const TensorInfo& info, std::span<const uint8_t> values,
                    std::span<uint8_t> stored) {
  ATOLL_CHECK(values.size() == info.elements() * sizeof(float) && stored.size() == info.bytes());
  switch (info.type) {
    case DataType::kInt8:
      return Quantize<int8_t>(info.quantization, values, stored);
    case DataType::kUint8:
      return Quantize<uint8_t>(info.quantization, values, stored);
    case DataType::kInt16:
      return Quantize<int16_t>(info.quantization, values, stored);
    default:
      ATOLL_CHECK(false);
  }
}

void DequantizeTensor(const TensorInfo& info, std::span<const uint8_t> stored,
                      std::span<uint8_t> values) {
  ATOLL_CHECK(values.size() == info.elements() * sizeof(float) && stored.size() == info.bytes());
  switch (info.type) {
    case DataType::kInt8:
      return Dequantize<int8_t>(info.quantization, stored, values);
    case DataType::kUint8:
      return Dequantize<uint8_t>(info.quantization, stored, values);
    case DataType::kInt16:
      return Dequantize<int16_t>(info.quantization, stored, values);
    default:
      ATOLL_CHECK(false);
  }
}

}  // namespace atollserve
