/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of TensorFlow Lite's C interface that this library has: those of 2.9, with what the
 * library of that version exports beyond its header, and of 2.16 what concerns signatures, indices
 * and cancellation. Programs bring TensorFlow Lite's own headers; this one is for the library
 * itself and its tests. What a function does is TensorFlow Lite's contract; where ours does
 * something else, it says so here.
 *
 * Everything runs on the CPU with Atoll's kernels, which compute what the reference kernels
 * compute; on a device if the environment variable ATOLL_DEVICE names one (docs/devices.md), or
 * with Atoll's own delegate (compat/tflite_delegate). Other delegates are left out with a warning.
 */
#ifndef ATOLL_COMPAT_TENSORFLOWLITE_C_C_API_H_
#define ATOLL_COMPAT_TENSORFLOWLITE_C_C_API_H_

#include "compat/tflite/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TFL_EXPORT __attribute__((visibility("default")))

typedef struct TfLiteModel TfLiteModel;
typedef struct TfLiteInterpreterOptions TfLiteInterpreterOptions;
typedef struct TfLiteInterpreter TfLiteInterpreter;
typedef struct TfLiteSignatureRunner TfLiteSignatureRunner;
typedef void (*TfLiteErrorReporter)(void* user_data, const char* format, va_list args);

TFL_EXPORT const char* TfLiteVersion(void);              /* "2.16.1" */
TFL_EXPORT const char* TfLiteExtensionApisVersion(void); /* the same */
TFL_EXPORT int TfLiteSchemaVersion(void);                /* 3 */

/* ---- Models. The bytes are copied, or mapped: Create keeps no pointer of the caller's. ----------
 */

TFL_EXPORT TfLiteModel* TfLiteModelCreate(const void* data, size_t size);
TFL_EXPORT TfLiteModel* TfLiteModelCreateFromFile(const char* path);
TFL_EXPORT TfLiteModel* TfLiteModelCreateWithErrorReporter(const void* data, size_t size,
                                                           TfLiteErrorReporter reporter,
                                                           void* user_data);
TFL_EXPORT TfLiteModel* TfLiteModelCreateFromFileWithErrorReporter(const char* path,
                                                                   TfLiteErrorReporter reporter,
                                                                   void* user_data);
TFL_EXPORT void TfLiteModelDelete(TfLiteModel* model);

/* ---- Options -------------------------------------------------------------------------------- */

TFL_EXPORT TfLiteInterpreterOptions* TfLiteInterpreterOptionsCreate(void);
TFL_EXPORT TfLiteInterpreterOptions* TfLiteInterpreterOptionsCopy(
    const TfLiteInterpreterOptions* options);
TFL_EXPORT void TfLiteInterpreterOptionsDelete(TfLiteInterpreterOptions* options);
TFL_EXPORT void TfLiteInterpreterOptionsSetNumThreads(TfLiteInterpreterOptions* options,
                                                      int32_t num_threads);
TFL_EXPORT void TfLiteInterpreterOptionsAddDelegate(TfLiteInterpreterOptions* options,
                                                    TfLiteDelegate* delegate);
TFL_EXPORT void TfLiteInterpreterOptionsSetErrorReporter(TfLiteInterpreterOptions* options,
                                                         TfLiteErrorReporter reporter,
                                                         void* user_data);
TFL_EXPORT TfLiteStatus
TfLiteInterpreterOptionsEnableCancellation(TfLiteInterpreterOptions* options, bool enable);
/* Kernels of the program's own are not called. */
TFL_EXPORT void TfLiteInterpreterOptionsAddBuiltinOp(TfLiteInterpreterOptions* options,
                                                     int32_t builtin_code,
                                                     const TfLiteRegistration* registration,
                                                     int32_t min_version, int32_t max_version);
TFL_EXPORT void TfLiteInterpreterOptionsAddCustomOp(TfLiteInterpreterOptions* options,
                                                    const char* name,
                                                    const TfLiteRegistration* registration,
                                                    int32_t min_version, int32_t max_version);
TFL_EXPORT void TfLiteInterpreterOptionsSetOpResolver(
    TfLiteInterpreterOptions* options,
    const TfLiteRegistration* (*find_builtin)(void* user_data, int32_t op, int version),
    const TfLiteRegistration* (*find_custom)(void* user_data, const char* op, int version),
    void* user_data);
/* Accepted, without a meaning here. */
TFL_EXPORT void TfLiteInterpreterOptionsSetUseNNAPI(TfLiteInterpreterOptions* options, bool enable);
TFL_EXPORT void TfLiteInterpreterOptionsSetEnableDelegateFallback(TfLiteInterpreterOptions* options,
                                                                  bool enable);

/* ---- Interpreters --------------------------------------------------------------------------- */

/* NULL, with the reason reported, for a model that Atoll cannot run. With a custom operator that it
 * does not know, there is an interpreter without tensors, whose AllocateTensors is
 * kTfLiteUnresolvedOps. */
TFL_EXPORT TfLiteInterpreter* TfLiteInterpreterCreate(const TfLiteModel* model,
                                                      const TfLiteInterpreterOptions* options);
TFL_EXPORT TfLiteInterpreter* TfLiteInterpreterCreateWithSelectedOps(
    const TfLiteModel* model, const TfLiteInterpreterOptions* options); /* all operators */
TFL_EXPORT void TfLiteInterpreterDelete(TfLiteInterpreter* interpreter);
TFL_EXPORT TfLiteStatus TfLiteInterpreterModifyGraphWithDelegate(
    const TfLiteInterpreter* interpreter, TfLiteDelegate* delegate);
TFL_EXPORT void TfLiteSetAllowBufferHandleOutput(const TfLiteInterpreter* interpreter, bool allow);
TFL_EXPORT TfLiteStatus TfLiteInterpreterAllocateTensors(TfLiteInterpreter* interpreter);
TFL_EXPORT TfLiteStatus TfLiteInterpreterInvoke(TfLiteInterpreter* interpreter);
TFL_EXPORT TfLiteStatus TfLiteInterpreterCancel(const TfLiteInterpreter* interpreter);
TFL_EXPORT TfLiteStatus TfLiteInterpreterResetVariableTensors(TfLiteInterpreter* interpreter);
TFL_EXPORT TfLiteStatus TfLiteInterpreterResizeInputTensor(TfLiteInterpreter* interpreter,
                                                           int32_t input_index, const int* dims,
                                                           int32_t dims_size);

/* Tensors stay where they are as long as the interpreter lives. A program may point `data` at
 * memory of its own between AllocateTensors and Invoke: inputs are then copied from there, outputs
 * to it. */
TFL_EXPORT int32_t TfLiteInterpreterGetInputTensorCount(const TfLiteInterpreter* interpreter);
TFL_EXPORT int32_t TfLiteInterpreterGetOutputTensorCount(const TfLiteInterpreter* interpreter);
TFL_EXPORT TfLiteTensor* TfLiteInterpreterGetInputTensor(const TfLiteInterpreter* interpreter,
                                                         int32_t input_index);
TFL_EXPORT const TfLiteTensor* TfLiteInterpreterGetOutputTensor(
    const TfLiteInterpreter* interpreter, int32_t output_index);
TFL_EXPORT int32_t TfLiteInterpreterGetInputTensorIndex(const TfLiteInterpreter* interpreter,
                                                        int32_t input_index);
TFL_EXPORT int32_t TfLiteInterpreterGetOutputTensorIndex(const TfLiteInterpreter* interpreter,
                                                         int32_t output_index);
TFL_EXPORT const int* TfLiteInterpreterInputTensorIndices(const TfLiteInterpreter* interpreter);
TFL_EXPORT const int* TfLiteInterpreterOutputTensorIndices(const TfLiteInterpreter* interpreter);
/* Any tensor of the model. Those that are neither inputs, outputs nor constants have no data. */
TFL_EXPORT TfLiteTensor* TfLiteInterpreterGetTensor(const TfLiteInterpreter* interpreter,
                                                    int index);

TFL_EXPORT TfLiteType TfLiteTensorType(const TfLiteTensor* tensor);
TFL_EXPORT int32_t TfLiteTensorNumDims(const TfLiteTensor* tensor);
TFL_EXPORT int32_t TfLiteTensorDim(const TfLiteTensor* tensor, int32_t dim_index);
TFL_EXPORT size_t TfLiteTensorByteSize(const TfLiteTensor* tensor);
TFL_EXPORT void* TfLiteTensorData(const TfLiteTensor* tensor);
TFL_EXPORT const char* TfLiteTensorName(const TfLiteTensor* tensor);
TFL_EXPORT TfLiteQuantizationParams TfLiteTensorQuantizationParams(const TfLiteTensor* tensor);
TFL_EXPORT TfLiteStatus TfLiteTensorCopyFromBuffer(TfLiteTensor* tensor, const void* data,
                                                   size_t size);
TFL_EXPORT TfLiteStatus TfLiteTensorCopyToBuffer(const TfLiteTensor* tensor, void* data,
                                                 size_t size);

/* ---- Signatures. Of the main subgraph only: others give NULL. -----------------------------------
 */

TFL_EXPORT int32_t TfLiteInterpreterGetSignatureCount(const TfLiteInterpreter* interpreter);
TFL_EXPORT const char* TfLiteInterpreterGetSignatureKey(const TfLiteInterpreter* interpreter,
                                                        int32_t signature_index);
TFL_EXPORT TfLiteSignatureRunner* TfLiteInterpreterGetSignatureRunner(
    const TfLiteInterpreter* interpreter, const char* signature_key);
TFL_EXPORT void TfLiteSignatureRunnerDelete(TfLiteSignatureRunner* runner);
TFL_EXPORT size_t TfLiteSignatureRunnerGetInputCount(const TfLiteSignatureRunner* runner);
TFL_EXPORT const char* TfLiteSignatureRunnerGetInputName(const TfLiteSignatureRunner* runner,
                                                         int32_t input_index);
TFL_EXPORT TfLiteTensor* TfLiteSignatureRunnerGetInputTensor(TfLiteSignatureRunner* runner,
                                                             const char* input_name);
TFL_EXPORT size_t TfLiteSignatureRunnerGetOutputCount(const TfLiteSignatureRunner* runner);
TFL_EXPORT const char* TfLiteSignatureRunnerGetOutputName(const TfLiteSignatureRunner* runner,
                                                          int32_t output_index);
TFL_EXPORT const TfLiteTensor* TfLiteSignatureRunnerGetOutputTensor(
    const TfLiteSignatureRunner* runner, const char* output_name);
TFL_EXPORT TfLiteStatus TfLiteSignatureRunnerResizeInputTensor(TfLiteSignatureRunner* runner,
                                                               const char* input_name,
                                                               const int* dims, int32_t dims_size);
TFL_EXPORT TfLiteStatus TfLiteSignatureRunnerAllocateTensors(TfLiteSignatureRunner* runner);
TFL_EXPORT TfLiteStatus TfLiteSignatureRunnerInvoke(TfLiteSignatureRunner* runner);
TFL_EXPORT TfLiteStatus TfLiteSignatureRunnerCancel(TfLiteSignatureRunner* runner);

/* ---- Delegates ------------------------------------------------------------------------------ */

enum { kTfLiteExternalDelegateMaxOptions = 256 };
typedef struct TfLiteExternalDelegateOptions {
  const char* lib_path;
  int count;
  const char* keys[kTfLiteExternalDelegateMaxOptions];
  const char* values[kTfLiteExternalDelegateMaxOptions];
  TfLiteStatus (*insert)(struct TfLiteExternalDelegateOptions* options, const char* key,
                         const char* value);
} TfLiteExternalDelegateOptions;

TFL_EXPORT TfLiteExternalDelegateOptions TfLiteExternalDelegateOptionsDefault(const char* lib_path);
TFL_EXPORT TfLiteStatus TfLiteExternalDelegateOptionsInsert(TfLiteExternalDelegateOptions* options,
                                                            const char* key, const char* value);
/* NULL if the library, or a delegate of it, is not to be had; stderr says why. */
TFL_EXPORT TfLiteDelegate* TfLiteExternalDelegateCreate(
    const TfLiteExternalDelegateOptions* options);
TFL_EXPORT void TfLiteExternalDelegateDelete(TfLiteDelegate* delegate);

/* A delegate that does nothing: Atoll's own kernels are what XNNPACK's would be for. */
typedef struct TfLiteXNNPackDelegateOptions {
  int32_t num_threads;
  uint32_t flags;
} TfLiteXNNPackDelegateOptions;
TFL_EXPORT TfLiteXNNPackDelegateOptions TfLiteXNNPackDelegateOptionsDefault(void);
TFL_EXPORT TfLiteDelegate* TfLiteXNNPackDelegateCreate(const TfLiteXNNPackDelegateOptions* options);
TFL_EXPORT void* TfLiteXNNPackDelegateGetThreadPool(TfLiteDelegate* delegate); /* NULL */
TFL_EXPORT void TfLiteXNNPackDelegateDelete(TfLiteDelegate* delegate);

/* As long as in 2.9: a program of that time has no room for more. */
typedef struct TfLiteDelegateOf29 {
  void* fields[5];
  int64_t flags;
} TfLiteDelegateOf29;
TFL_EXPORT TfLiteDelegateOf29 TfLiteDelegateCreate(void);

/* ---- Structs that programs make themselves --------------------------------------------------- */

TFL_EXPORT size_t TfLiteIntArrayGetSizeInBytes(int size);
TFL_EXPORT TfLiteIntArray* TfLiteIntArrayCreate(int size);
TFL_EXPORT int TfLiteIntArrayEqual(const TfLiteIntArray* a, const TfLiteIntArray* b);
TFL_EXPORT int TfLiteIntArrayEqualsArray(const TfLiteIntArray* a, int b_size, const int* b_data);
TFL_EXPORT TfLiteIntArray* TfLiteIntArrayCopy(const TfLiteIntArray* source);
TFL_EXPORT void TfLiteIntArrayFree(TfLiteIntArray* array);
TFL_EXPORT size_t TfLiteFloatArrayGetSizeInBytes(int size);
TFL_EXPORT TfLiteFloatArray* TfLiteFloatArrayCreate(int size);
TFL_EXPORT void TfLiteFloatArrayFree(TfLiteFloatArray* array);
TFL_EXPORT const char* TfLiteTypeGetName(TfLiteType type); /* "FLOAT32" */
TFL_EXPORT void TfLiteQuantizationFree(TfLiteQuantization* quantization);
TFL_EXPORT void TfLiteSparsityFree(void* sparsity);
TFL_EXPORT void TfLiteTensorDataFree(TfLiteTensor* tensor);
TFL_EXPORT void TfLiteTensorFree(TfLiteTensor* tensor);
TFL_EXPORT void TfLiteTensorReset(TfLiteType type, const char* name, TfLiteIntArray* dims,
                                  TfLiteQuantizationParams quantization, char* buffer, size_t size,
                                  TfLiteAllocationType allocation_type, const void* allocation,
                                  bool is_variable, TfLiteTensor* tensor);
TFL_EXPORT TfLiteStatus TfLiteTensorCopy(const TfLiteTensor* source, TfLiteTensor* target);
TFL_EXPORT void TfLiteTensorRealloc(size_t size, TfLiteTensor* tensor);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ATOLL_COMPAT_TENSORFLOWLITE_C_C_API_H_ */
