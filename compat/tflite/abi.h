/* SPDX-License-Identifier: Apache-2.0
 *
 * TensorFlow Lite's C structs as programs and plug-ins were compiled with them, on 64-bit systems:
 * the one place where their layout is stated. Names and numbers are TensorFlow Lite's, so a file
 * that includes this must not include its headers, too.
 *
 * Layouts come from the headers of 2.9, 2.16 and LiteRT 2026; of these only 2.9 was ever run.
 * Fields were only ever appended, so each struct is declared in its longest form. Whoever is handed
 * one by an older runtime reads no further than that runtime wrote: TfLiteContext up to
 * PreviewDelegatePartitioning, TfLiteRegistration up to `version`, TfLiteDelegate up to `flags`.
 */
#ifndef ATOLL_COMPAT_TFLITE_ABI_H_
#define ATOLL_COMPAT_TFLITE_ABI_H_

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum TfLiteStatus {
  kTfLiteOk = 0,
  kTfLiteError = 1,
  kTfLiteDelegateError = 2,
  kTfLiteApplicationError = 3,
  kTfLiteDelegateDataNotFound = 4,
  kTfLiteDelegateDataWriteError = 5,
  kTfLiteDelegateDataReadError = 6,
  kTfLiteUnresolvedOps = 7,
  kTfLiteCancelled = 8
} TfLiteStatus;

/* Not the numbers of the file format, which are AtollType's. */
typedef enum TfLiteType {
  kTfLiteNoType = 0,
  kTfLiteFloat32 = 1,
  kTfLiteInt32 = 2,
  kTfLiteUInt8 = 3,
  kTfLiteInt64 = 4,
  kTfLiteString = 5,
  kTfLiteBool = 6,
  kTfLiteInt16 = 7,
  kTfLiteComplex64 = 8,
  kTfLiteInt8 = 9,
  kTfLiteFloat16 = 10,
  kTfLiteFloat64 = 11,
  kTfLiteComplex128 = 12,
  kTfLiteUInt64 = 13,
  kTfLiteResource = 14,
  kTfLiteVariant = 15,
  kTfLiteUInt32 = 16,
  kTfLiteUInt16 = 17,
  kTfLiteInt4 = 18
} TfLiteType;

typedef struct TfLiteIntArray {
  int size;
  int data[];
} TfLiteIntArray;

typedef struct TfLiteFloatArray {
  int size;
  float data[];
} TfLiteFloatArray;

typedef struct TfLiteQuantizationParams {
  float scale;
  int32_t zero_point;
} TfLiteQuantizationParams;

typedef enum TfLiteQuantizationType {
  kTfLiteNoQuantization = 0,
  kTfLiteAffineQuantization = 1
} TfLiteQuantizationType;

typedef struct TfLiteQuantization {
  TfLiteQuantizationType type;
  void* params; /* a TfLiteAffineQuantization, from malloc */
} TfLiteQuantization;

typedef struct TfLiteAffineQuantization {
  TfLiteFloatArray* scale;
  TfLiteIntArray* zero_point;
  int32_t quantized_dimension;
} TfLiteAffineQuantization;

typedef union TfLitePtrUnion {
  void* data;
  char* raw;
  const char* raw_const;
  uint8_t* uint8;
  int8_t* int8;
  int16_t* i16;
  int32_t* i32;
  int64_t* i64;
  float* f;
  bool* b;
} TfLitePtrUnion;

typedef enum TfLiteAllocationType {
  kTfLiteMemNone = 0,
  kTfLiteMmapRo = 1,
  kTfLiteArenaRw = 2,
  kTfLiteArenaRwPersistent = 3,
  kTfLiteDynamic = 4,
  kTfLitePersistentRo = 5,
  kTfLiteCustom = 6
} TfLiteAllocationType;

struct TfLiteDelegate;

typedef struct TfLiteTensor {
  TfLiteType type;
  TfLitePtrUnion data;
  TfLiteIntArray* dims;
  TfLiteQuantizationParams params;
  TfLiteAllocationType allocation_type;
  size_t bytes;
  const void* allocation;
  const char* name;
  struct TfLiteDelegate* delegate;
  int buffer_handle; /* -1: none */
  bool data_is_stale;
  bool is_variable;
  TfLiteQuantization quantization;
  void* sparsity;
  const TfLiteIntArray* dims_signature;
} TfLiteTensor;

struct TfLiteContext;

typedef struct TfLiteNode {
  TfLiteIntArray* inputs;
  TfLiteIntArray* outputs;
  TfLiteIntArray* intermediates;
  TfLiteIntArray* temporaries;
  void* user_data;
  void* builtin_data;
  const void* custom_initial_data;
  int custom_initial_data_size;
  struct TfLiteDelegate* delegate;
  bool might_have_side_effect;
} TfLiteNode;

typedef struct TfLiteRegistration {
  void* (*init)(struct TfLiteContext* context, const char* buffer, size_t length);
  void (*free)(struct TfLiteContext* context, void* buffer);
  TfLiteStatus (*prepare)(struct TfLiteContext* context, TfLiteNode* node);
  TfLiteStatus (*invoke)(struct TfLiteContext* context, TfLiteNode* node);
  const char* (*profiling_string)(const struct TfLiteContext* context, const TfLiteNode* node);
  int32_t builtin_code;
  const char* custom_name;
  int version;
  void* registration_external; /* from 2.10 on */
  void* async_kernel;
  uint64_t inplace_operator;
} TfLiteRegistration;

enum { kTfLiteDelegateFlagsAllowDynamicTensors = 1 };

typedef struct TfLiteDelegate {
  void* data_;
  TfLiteStatus (*Prepare)(struct TfLiteContext* context, struct TfLiteDelegate* delegate);
  TfLiteStatus (*CopyFromBufferHandle)(struct TfLiteContext* context,
                                       struct TfLiteDelegate* delegate, int handle,
                                       TfLiteTensor* tensor);
  TfLiteStatus (*CopyToBufferHandle)(struct TfLiteContext* context, struct TfLiteDelegate* delegate,
                                     int handle, TfLiteTensor* tensor);
  void (*FreeBufferHandle)(struct TfLiteContext* context, struct TfLiteDelegate* delegate,
                           int* handle);
  int64_t flags;
  void* opaque_delegate_builder; /* from 2.10 on */
} TfLiteDelegate;

typedef struct TfLiteDelegateParams {
  TfLiteDelegate* delegate;
  TfLiteIntArray* nodes_to_replace;
  TfLiteIntArray* input_tensors;
  TfLiteIntArray* output_tensors;
} TfLiteDelegateParams;

enum { kTfLiteEdgeTpuContext = 2 };

typedef struct TfLiteExternalContext {
  int type; /* kTfLiteEdgeTpuContext */
  TfLiteStatus (*Refresh)(struct TfLiteContext* context);
} TfLiteExternalContext;

typedef struct TfLiteContext {
  size_t tensors_size;
  TfLiteStatus (*GetExecutionPlan)(struct TfLiteContext* context, TfLiteIntArray** plan);
  TfLiteTensor* tensors;
  void* impl_;
  TfLiteStatus (*ResizeTensor)(struct TfLiteContext*, TfLiteTensor* tensor, TfLiteIntArray* size);
  void (*ReportError)(struct TfLiteContext*, const char* format, ...);
  TfLiteStatus (*AddTensors)(struct TfLiteContext*, int count, int* first);
  TfLiteStatus (*GetNodeAndRegistration)(struct TfLiteContext*, int index, TfLiteNode** node,
                                         TfLiteRegistration** registration);
  TfLiteStatus (*ReplaceNodeSubsetsWithDelegateKernels)(struct TfLiteContext*,
                                                        TfLiteRegistration registration,
                                                        const TfLiteIntArray* nodes,
                                                        TfLiteDelegate* delegate);
  int recommended_num_threads;
  TfLiteExternalContext* (*GetExternalContext)(struct TfLiteContext*, int type);
  void (*SetExternalContext)(struct TfLiteContext*, int type, TfLiteExternalContext*);
  bool allow_fp32_relax_to_fp16;
  void* profiler;
  void* AllocatePersistentBuffer; /* its parameters changed: never called */
  void* AllocateBufferForEval;
  void* RequestScratchBufferInArena;
  void* GetScratchBuffer;
  void* ResizeTensorExplicit;
  TfLiteStatus (*PreviewDelegatePartitioning)(struct TfLiteContext*, const TfLiteIntArray* nodes,
                                              TfLiteDelegateParams** partitions, int* count);
  void* GetTensor;
  void* GetEvalTensor;
  void* GetModelMetadata;
  void* AcquireSubgraphContext;
  void* ReleaseSubgraphContext;
} TfLiteContext;

#ifdef __cplusplus
} /* extern "C" */

#include <cstring>

namespace atollcompat {

// The number of an enumeration in a struct of a runtime, which may have more of them than are known
// here.
template <typename Enum>
int32_t NumberOf(const Enum& field) {
  int32_t number;
  static_assert(sizeof(field) == sizeof(number));
  std::memcpy(&number, &field, sizeof(number));
  return number;
}

}  // namespace atollcompat

#if UINTPTR_MAX == UINT64_MAX
#define ATOLL_TFLITE_AT(type, field, offset) \
  static_assert(offsetof(type, field) == (offset), #type "." #field)
ATOLL_TFLITE_AT(TfLiteTensor, data, 8);
ATOLL_TFLITE_AT(TfLiteTensor, dims, 16);
ATOLL_TFLITE_AT(TfLiteTensor, params, 24);
ATOLL_TFLITE_AT(TfLiteTensor, allocation_type, 32);
ATOLL_TFLITE_AT(TfLiteTensor, bytes, 40);
ATOLL_TFLITE_AT(TfLiteTensor, allocation, 48);
ATOLL_TFLITE_AT(TfLiteTensor, name, 56);
ATOLL_TFLITE_AT(TfLiteTensor, delegate, 64);
ATOLL_TFLITE_AT(TfLiteTensor, buffer_handle, 72);
ATOLL_TFLITE_AT(TfLiteTensor, data_is_stale, 76);
ATOLL_TFLITE_AT(TfLiteTensor, is_variable, 77);
ATOLL_TFLITE_AT(TfLiteTensor, quantization, 80);
ATOLL_TFLITE_AT(TfLiteTensor, sparsity, 96);
ATOLL_TFLITE_AT(TfLiteTensor, dims_signature, 104);
static_assert(sizeof(TfLiteTensor) == 112);
ATOLL_TFLITE_AT(TfLiteNode, user_data, 32);
ATOLL_TFLITE_AT(TfLiteNode, builtin_data, 40);
ATOLL_TFLITE_AT(TfLiteNode, custom_initial_data, 48);
ATOLL_TFLITE_AT(TfLiteNode, custom_initial_data_size, 56);
ATOLL_TFLITE_AT(TfLiteNode, delegate, 64);
static_assert(sizeof(TfLiteNode) == 80);
ATOLL_TFLITE_AT(TfLiteRegistration, builtin_code, 40);
ATOLL_TFLITE_AT(TfLiteRegistration, custom_name, 48);
ATOLL_TFLITE_AT(TfLiteRegistration, version, 56);
ATOLL_TFLITE_AT(TfLiteRegistration, registration_external, 64);
static_assert(sizeof(TfLiteRegistration) == 88);
ATOLL_TFLITE_AT(TfLiteDelegate, flags, 40);
ATOLL_TFLITE_AT(TfLiteDelegate, opaque_delegate_builder, 48);
static_assert(sizeof(TfLiteDelegate) == 56);
static_assert(sizeof(TfLiteDelegateParams) == 32);
static_assert(sizeof(TfLiteAffineQuantization) == 24);
ATOLL_TFLITE_AT(TfLiteContext, GetExecutionPlan, 8);
ATOLL_TFLITE_AT(TfLiteContext, tensors, 16);
ATOLL_TFLITE_AT(TfLiteContext, impl_, 24);
ATOLL_TFLITE_AT(TfLiteContext, ReportError, 40);
ATOLL_TFLITE_AT(TfLiteContext, GetNodeAndRegistration, 56);
ATOLL_TFLITE_AT(TfLiteContext, ReplaceNodeSubsetsWithDelegateKernels, 64);
ATOLL_TFLITE_AT(TfLiteContext, recommended_num_threads, 72);
ATOLL_TFLITE_AT(TfLiteContext, SetExternalContext, 88);
ATOLL_TFLITE_AT(TfLiteContext, PreviewDelegatePartitioning, 152);
ATOLL_TFLITE_AT(TfLiteContext, GetTensor, 160);
static_assert(sizeof(TfLiteContext) == 200);
#undef ATOLL_TFLITE_AT
#endif
#endif

#endif /* ATOLL_COMPAT_TFLITE_ABI_H_ */
