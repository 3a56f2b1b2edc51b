// SPDX-License-Identifier: Apache-2.0
//
// Arrays, quantization and tensors that programs make and free themselves, with malloc.
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "compat/tensorflowlite_c/c_api.h"

namespace {

// What a tensor's `sparsity` points at. Atoll's tensors have none.
struct DimensionMetadata {
  int32_t format;
  int32_t dense_size;
  TfLiteIntArray* array_segments;
  TfLiteIntArray* array_indices;
};
struct Sparsity {
  TfLiteIntArray* traversal_order;
  TfLiteIntArray* block_map;
  DimensionMetadata* dim_metadata;
  int32_t dim_metadata_size;
};

template <typename Array>
Array* MakeArray(int size, size_t bytes) {
  if (size < 0) return nullptr;
  auto* const array = static_cast<Array*>(std::malloc(bytes));
  if (array != nullptr) array->size = size;
  return array;
}

bool IsOnHeap(const TfLiteTensor& tensor) {
  return tensor.allocation_type == kTfLiteDynamic || tensor.allocation_type == kTfLitePersistentRo;
}

}  // namespace

extern "C" {

size_t TfLiteIntArrayGetSizeInBytes(int size) {
  return size < 0 ? 0 : sizeof(TfLiteIntArray) + static_cast<size_t>(size) * sizeof(int);
}

TfLiteIntArray* TfLiteIntArrayCreate(int size) {
  return MakeArray<TfLiteIntArray>(size, TfLiteIntArrayGetSizeInBytes(size));
}

int TfLiteIntArrayEqual(const TfLiteIntArray* a, const TfLiteIntArray* b) {
  if (a == b) return 1;
  if (a == nullptr || b == nullptr) return 0;
  return TfLiteIntArrayEqualsArray(a, b->size, b->data);
}

int TfLiteIntArrayEqualsArray(const TfLiteIntArray* a, int b_size, const int* b_data) {
  if (a == nullptr) return b_size == 0;
  if (a->size != b_size) return 0;
  return b_size <= 0 ||
         std::memcmp(a->data, b_data, static_cast<size_t>(b_size) * sizeof(int)) == 0;
}

TfLiteIntArray* TfLiteIntArrayCopy(const TfLiteIntArray* source) {
  if (source == nullptr) return nullptr;
  TfLiteIntArray* const copy = TfLiteIntArrayCreate(source->size);
  if (copy != nullptr) {
    std::memcpy(copy->data, source->data, static_cast<size_t>(source->size) * sizeof(int));
  }
  return copy;
}

void TfLiteIntArrayFree(TfLiteIntArray* array) { std::free(array); }

size_t TfLiteFloatArrayGetSizeInBytes(int size) {
  return size < 0 ? 0 : sizeof(TfLiteFloatArray) + static_cast<size_t>(size) * sizeof(float);
}

TfLiteFloatArray* TfLiteFloatArrayCreate(int size) {
  return MakeArray<TfLiteFloatArray>(size, TfLiteFloatArrayGetSizeInBytes(size));
}

void TfLiteFloatArrayFree(TfLiteFloatArray* array) { std::free(array); }

const char* TfLiteTypeGetName(TfLiteType type) {
  static constexpr const char* kNames[] = {
      "NOTYPE",   "FLOAT32",   "INT32",  "UINT8",   "INT64",   "STRING",     "BOOL",
      "INT16",    "COMPLEX64", "INT8",   "FLOAT16", "FLOAT64", "COMPLEX128", "UINT64",
      "RESOURCE", "VARIANT",   "UINT32", "UINT16",  "INT4"};
  const auto number = static_cast<size_t>(type);
  return number < std::size(kNames) ? kNames[number] : "Unknown type";
}

void TfLiteQuantizationFree(TfLiteQuantization* quantization) {
  if (quantization->type == kTfLiteAffineQuantization && quantization->params != nullptr) {
    auto* const params = static_cast<TfLiteAffineQuantization*>(quantization->params);
    TfLiteFloatArrayFree(params->scale);
    TfLiteIntArrayFree(params->zero_point);
    std::free(params);
  }
  *quantization = {};
}

void TfLiteSparsityFree(void* given) {
  auto* const sparsity = static_cast<Sparsity*>(given);
  if (sparsity == nullptr) return;
  TfLiteIntArrayFree(sparsity->traversal_order);
  TfLiteIntArrayFree(sparsity->block_map);
  for (int i = 0; sparsity->dim_metadata != nullptr && i < sparsity->dim_metadata_size; ++i) {
    TfLiteIntArrayFree(sparsity->dim_metadata[i].array_segments);
    TfLiteIntArrayFree(sparsity->dim_metadata[i].array_indices);
  }
  std::free(sparsity->dim_metadata);
  std::free(sparsity);
}

void TfLiteTensorDataFree(TfLiteTensor* tensor) {
  if (IsOnHeap(*tensor)) std::free(tensor->data.raw);
  tensor->data.raw = nullptr;
}

void TfLiteTensorFree(TfLiteTensor* tensor) {
  TfLiteTensorDataFree(tensor);
  TfLiteIntArrayFree(tensor->dims);
  tensor->dims = nullptr;
  TfLiteIntArrayFree(const_cast<TfLiteIntArray*>(tensor->dims_signature));
  tensor->dims_signature = nullptr;
  TfLiteQuantizationFree(&tensor->quantization);
  TfLiteSparsityFree(tensor->sparsity);
  tensor->sparsity = nullptr;
}

void TfLiteTensorReset(TfLiteType type, const char* name, TfLiteIntArray* dims,
                       TfLiteQuantizationParams quantization, char* buffer, size_t size,
                       TfLiteAllocationType allocation_type, const void* allocation,
                       bool is_variable, TfLiteTensor* tensor) {
  TfLiteTensorFree(tensor);
  *tensor = {.type = type,
             .data = {.raw = buffer},
             .dims = dims,
             .params = quantization,
             .allocation_type = allocation_type,
             .bytes = size,
             .allocation = allocation,
             .name = name,
             .is_variable = is_variable};
}

TfLiteStatus TfLiteTensorCopy(const TfLiteTensor* source, TfLiteTensor* target) {
  if (source == nullptr || target == nullptr || source == target) return kTfLiteOk;
  if (source->bytes != target->bytes) return kTfLiteError;
  target->type = source->type;
  TfLiteIntArrayFree(target->dims);
  target->dims = TfLiteIntArrayCopy(source->dims);
  if (source->bytes > 0) std::memcpy(target->data.raw, source->data.raw, source->bytes);
  target->buffer_handle = source->buffer_handle;
  target->data_is_stale = source->data_is_stale;
  target->delegate = source->delegate;
  return kTfLiteOk;
}

void TfLiteTensorRealloc(size_t size, TfLiteTensor* tensor) {
  if (!IsOnHeap(*tensor)) return;
  tensor->data.raw = static_cast<char*>(std::realloc(tensor->data.raw, size));
  tensor->bytes = size;
}

}  // extern "C"
