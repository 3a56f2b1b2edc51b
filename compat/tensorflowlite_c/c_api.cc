// SPDX-License-Identifier: Apache-2.0
//
// TensorFlow Lite's C interface over Atoll's.
#include "compat/tensorflowlite_c/c_api.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "compat/tensorflowlite_c/interpreter.h"

namespace {

using atollcompat::Reporter;
using atollcompat::Warn;

constexpr char kVersion[] = "2.16.1";

TfLiteModel* MakeModel(AtollStatus status, AtollModel* model, const Reporter& reporter) {
  if (status != ATOLL_OK) {
    reporter.SayLastError();
    return nullptr;
  }
  return new TfLiteModel{{model, AtollModelDelete}};
}

TfLiteModel* MakeModel(const void* data, size_t size, const Reporter& reporter) {
  AtollModel* model = nullptr;
  const AtollStatus status = AtollModelCreateFromBuffer(data, size, &model);
  return MakeModel(status, model, reporter);
}

TfLiteModel* MakeModel(const char* path, const Reporter& reporter) {
  AtollModel* model = nullptr;
  const AtollStatus status = AtollModelCreateFromFile(path, &model);
  if (status == ATOLL_NOT_FOUND || status == ATOLL_PERMISSION_DENIED) {
    reporter.Say("Could not open '%s'.", path);  // what programs look for
    return nullptr;
  }
  return MakeModel(status, model, reporter);
}

// Handles that C programs have as pointers to const although what they do changes the interpreter.
TfLiteInterpreter* Mutable(const TfLiteInterpreter* interpreter) {
  return const_cast<TfLiteInterpreter*>(interpreter);
}

TfLiteTensor* TensorAt(const TfLiteInterpreter* interpreter, const std::vector<int>& indices,
                       int32_t position) {
  if (position < 0 || static_cast<size_t>(position) >= indices.size()) return nullptr;
  return Mutable(interpreter)->tensor(indices[static_cast<size_t>(position)]);
}

int32_t IndexAt(const std::vector<int>& indices, int32_t position) {
  if (position < 0 || static_cast<size_t>(position) >= indices.size()) return -1;
  return indices[static_cast<size_t>(position)];
}

std::vector<TfLiteSignatureRunner::Tensor> ByName(const AtollSignatureTensor* tensors,
                                                  int32_t count) {
  std::vector<TfLiteSignatureRunner::Tensor> sorted;
  for (int32_t i = 0; i < count; ++i) sorted.push_back({tensors[i].name, tensors[i].tensor});
  std::ranges::sort(sorted, {}, &TfLiteSignatureRunner::Tensor::name);
  return sorted;
}

const char* NameAt(const std::vector<TfLiteSignatureRunner::Tensor>& tensors, int32_t index) {
  if (index < 0 || static_cast<size_t>(index) >= tensors.size()) return nullptr;
  return tensors[static_cast<size_t>(index)].name.c_str();
}

// Its index in the file; -1 if there is none of that name.
int32_t Find(const std::vector<TfLiteSignatureRunner::Tensor>& tensors, const char* name) {
  const auto found = std::ranges::find(tensors, name, &TfLiteSignatureRunner::Tensor::name);
  return found != tensors.end() ? found->index : -1;
}

}  // namespace

extern "C" {

const char* TfLiteVersion(void) { return kVersion; }
const char* TfLiteExtensionApisVersion(void) { return kVersion; }
int TfLiteSchemaVersion(void) { return 3; }

// ---- Models ------------------------------------------------------------------------------------

TfLiteModel* TfLiteModelCreate(const void* data, size_t size) {
  return MakeModel(data, size, Reporter());
}

TfLiteModel* TfLiteModelCreateFromFile(const char* path) { return MakeModel(path, Reporter()); }

TfLiteModel* TfLiteModelCreateWithErrorReporter(const void* data, size_t size,
                                                TfLiteErrorReporter reporter, void* user_data) {
  return MakeModel(data, size, Reporter(reporter, user_data));
}

TfLiteModel* TfLiteModelCreateFromFileWithErrorReporter(const char* path,
                                                        TfLiteErrorReporter reporter,
                                                        void* user_data) {
  return MakeModel(path, Reporter(reporter, user_data));
}

void TfLiteModelDelete(TfLiteModel* model) { delete model; }

// ---- Options -----------------------------------------------------------------------------------

TfLiteInterpreterOptions* TfLiteInterpreterOptionsCreate(void) {
  return new TfLiteInterpreterOptions;
}

TfLiteInterpreterOptions* TfLiteInterpreterOptionsCopy(const TfLiteInterpreterOptions* options) {
  return new TfLiteInterpreterOptions(*options);
}

void TfLiteInterpreterOptionsDelete(TfLiteInterpreterOptions* options) { delete options; }

void TfLiteInterpreterOptionsSetNumThreads(TfLiteInterpreterOptions* options, int32_t num_threads) {
  options->num_threads = num_threads;
}

void TfLiteInterpreterOptionsAddDelegate(TfLiteInterpreterOptions* options,
                                         TfLiteDelegate* delegate) {
  if (delegate != nullptr) options->delegates.push_back(delegate);
}

void TfLiteInterpreterOptionsSetErrorReporter(TfLiteInterpreterOptions* options,
                                              TfLiteErrorReporter reporter, void* user_data) {
  options->reporter = Reporter(reporter, user_data);
}

TfLiteStatus TfLiteInterpreterOptionsEnableCancellation(TfLiteInterpreterOptions* options,
                                                        bool enable) {
  options->can_cancel = enable;
  return kTfLiteOk;
}

void TfLiteInterpreterOptionsAddBuiltinOp(TfLiteInterpreterOptions* /*options*/,
                                          int32_t /*builtin_code*/,
                                          const TfLiteRegistration* /*registration*/,
                                          int32_t /*min_version*/, int32_t /*max_version*/) {}

void TfLiteInterpreterOptionsAddCustomOp(TfLiteInterpreterOptions* /*options*/, const char* name,
                                         const TfLiteRegistration* /*registration*/,
                                         int32_t /*min_version*/, int32_t /*max_version*/) {
  Warn(
      "the program's own kernel for the custom operator '%s' is not used: Atoll has kernels of its "
      "own",
      name);
}

void TfLiteInterpreterOptionsSetOpResolver(
    TfLiteInterpreterOptions* /*options*/,
    const TfLiteRegistration* (*)(void* user_data, int32_t op, int version),
    const TfLiteRegistration* (*)(void* user_data, const char* op, int version),
    void* /*user_data*/) {}

void TfLiteInterpreterOptionsSetUseNNAPI(TfLiteInterpreterOptions* /*options*/, bool /*enable*/) {}

void TfLiteInterpreterOptionsSetEnableDelegateFallback(TfLiteInterpreterOptions* /*options*/,
                                                       bool /*enable*/) {}

// ---- Interpreters ------------------------------------------------------------------------------

TfLiteInterpreter* TfLiteInterpreterCreate(const TfLiteModel* model,
                                           const TfLiteInterpreterOptions* options) {
  if (model == nullptr) return nullptr;
  return TfLiteInterpreter::Create(model->model,
                                   options != nullptr ? *options : TfLiteInterpreterOptions())
      .release();
}

TfLiteInterpreter* TfLiteInterpreterCreateWithSelectedOps(const TfLiteModel* model,
                                                          const TfLiteInterpreterOptions* options) {
  return TfLiteInterpreterCreate(model, options);
}

void TfLiteInterpreterDelete(TfLiteInterpreter* interpreter) { delete interpreter; }

TfLiteStatus TfLiteInterpreterModifyGraphWithDelegate(const TfLiteInterpreter* interpreter,
                                                      TfLiteDelegate* delegate) {
  return Mutable(interpreter)->ModifyGraph(delegate);
}

void TfLiteSetAllowBufferHandleOutput(const TfLiteInterpreter* /*interpreter*/, bool /*allow*/) {}

TfLiteStatus TfLiteInterpreterAllocateTensors(TfLiteInterpreter* interpreter) {
  return interpreter->AllocateTensors();
}

TfLiteStatus TfLiteInterpreterInvoke(TfLiteInterpreter* interpreter) {
  return interpreter->Invoke();
}

TfLiteStatus TfLiteInterpreterCancel(const TfLiteInterpreter* interpreter) {
  return Mutable(interpreter)->Cancel();
}

TfLiteStatus TfLiteInterpreterResetVariableTensors(TfLiteInterpreter* interpreter) {
  return interpreter->ResetVariableTensors();
}

TfLiteStatus TfLiteInterpreterResizeInputTensor(TfLiteInterpreter* interpreter, int32_t input_index,
                                                const int* dims, int32_t dims_size) {
  return interpreter->ResizeInput(input_index, dims, dims_size);
}

int32_t TfLiteInterpreterGetInputTensorCount(const TfLiteInterpreter* interpreter) {
  return static_cast<int32_t>(interpreter->inputs().size());
}

int32_t TfLiteInterpreterGetOutputTensorCount(const TfLiteInterpreter* interpreter) {
  return static_cast<int32_t>(interpreter->outputs().size());
}

TfLiteTensor* TfLiteInterpreterGetInputTensor(const TfLiteInterpreter* interpreter,
                                              int32_t input_index) {
  return TensorAt(interpreter, interpreter->inputs(), input_index);
}

const TfLiteTensor* TfLiteInterpreterGetOutputTensor(const TfLiteInterpreter* interpreter,
                                                     int32_t output_index) {
  return TensorAt(interpreter, interpreter->outputs(), output_index);
}

int32_t TfLiteInterpreterGetInputTensorIndex(const TfLiteInterpreter* interpreter,
                                             int32_t input_index) {
  return IndexAt(interpreter->inputs(), input_index);
}

int32_t TfLiteInterpreterGetOutputTensorIndex(const TfLiteInterpreter* interpreter,
                                              int32_t output_index) {
  return IndexAt(interpreter->outputs(), output_index);
}

const int* TfLiteInterpreterInputTensorIndices(const TfLiteInterpreter* interpreter) {
  return interpreter->inputs().data();
}

const int* TfLiteInterpreterOutputTensorIndices(const TfLiteInterpreter* interpreter) {
  return interpreter->outputs().data();
}

TfLiteTensor* TfLiteInterpreterGetTensor(const TfLiteInterpreter* interpreter, int index) {
  return Mutable(interpreter)->tensor(index);
}

// ---- Tensors -----------------------------------------------------------------------------------

TfLiteType TfLiteTensorType(const TfLiteTensor* tensor) { return tensor->type; }

int32_t TfLiteTensorNumDims(const TfLiteTensor* tensor) {
  return tensor->dims != nullptr ? tensor->dims->size : -1;
}

int32_t TfLiteTensorDim(const TfLiteTensor* tensor, int32_t dim_index) {
  if (tensor->dims == nullptr || dim_index < 0 || dim_index >= tensor->dims->size) return -1;
  return tensor->dims->data[dim_index];
}

size_t TfLiteTensorByteSize(const TfLiteTensor* tensor) { return tensor->bytes; }

void* TfLiteTensorData(const TfLiteTensor* tensor) { return tensor->data.data; }

const char* TfLiteTensorName(const TfLiteTensor* tensor) { return tensor->name; }

TfLiteQuantizationParams TfLiteTensorQuantizationParams(const TfLiteTensor* tensor) {
  return tensor->params;
}

TfLiteStatus TfLiteTensorCopyFromBuffer(TfLiteTensor* tensor, const void* data, size_t size) {
  if (tensor->bytes != size || tensor->data.data == nullptr) return kTfLiteError;
  if (size > 0) std::memcpy(tensor->data.data, data, size);
  return kTfLiteOk;
}

TfLiteStatus TfLiteTensorCopyToBuffer(const TfLiteTensor* tensor, void* data, size_t size) {
  if (tensor->bytes != size || tensor->data.data == nullptr) return kTfLiteError;
  if (size > 0) std::memcpy(data, tensor->data.data, size);
  return kTfLiteOk;
}

// ---- Signatures --------------------------------------------------------------------------------

int32_t TfLiteInterpreterGetSignatureCount(const TfLiteInterpreter* interpreter) {
  return AtollModelGetSignatureCount(&interpreter->model());
}

const char* TfLiteInterpreterGetSignatureKey(const TfLiteInterpreter* interpreter,
                                             int32_t signature_index) {
  AtollSignatureInfo info = {};
  const AtollStatus status = AtollModelGetSignature(&interpreter->model(), signature_index, &info);
  return status == ATOLL_OK ? info.key : nullptr;
}

TfLiteSignatureRunner* TfLiteInterpreterGetSignatureRunner(const TfLiteInterpreter* interpreter,
                                                           const char* signature_key) {
  const AtollModel& model = interpreter->model();
  for (int32_t i = 0; i < AtollModelGetSignatureCount(&model); ++i) {
    AtollSignatureInfo info = {};
    if (AtollModelGetSignature(&model, i, &info) != ATOLL_OK) continue;
    if (signature_key != nullptr && std::strcmp(info.key, signature_key) != 0) continue;
    if (info.subgraph != 0) {
      interpreter->reporter().Say(
          "signature '%s' is of subgraph %d: only those of the main one run", info.key,
          info.subgraph);
      return nullptr;
    }
    return new TfLiteSignatureRunner{.interpreter = Mutable(interpreter),
                                     .inputs = ByName(info.inputs, info.input_count),
                                     .outputs = ByName(info.outputs, info.output_count)};
  }
  interpreter->reporter().Say("the model has no signature '%s'",
                              signature_key != nullptr ? signature_key : "");
  return nullptr;
}

void TfLiteSignatureRunnerDelete(TfLiteSignatureRunner* runner) { delete runner; }

size_t TfLiteSignatureRunnerGetInputCount(const TfLiteSignatureRunner* runner) {
  return runner->inputs.size();
}

const char* TfLiteSignatureRunnerGetInputName(const TfLiteSignatureRunner* runner,
                                              int32_t input_index) {
  return NameAt(runner->inputs, input_index);
}

TfLiteTensor* TfLiteSignatureRunnerGetInputTensor(TfLiteSignatureRunner* runner,
                                                  const char* input_name) {
  return runner->interpreter->tensor(Find(runner->inputs, input_name));
}

size_t TfLiteSignatureRunnerGetOutputCount(const TfLiteSignatureRunner* runner) {
  return runner->outputs.size();
}

const char* TfLiteSignatureRunnerGetOutputName(const TfLiteSignatureRunner* runner,
                                               int32_t output_index) {
  return NameAt(runner->outputs, output_index);
}

const TfLiteTensor* TfLiteSignatureRunnerGetOutputTensor(const TfLiteSignatureRunner* runner,
                                                         const char* output_name) {
  return runner->interpreter->tensor(Find(runner->outputs, output_name));
}

TfLiteStatus TfLiteSignatureRunnerResizeInputTensor(TfLiteSignatureRunner* runner,
                                                    const char* input_name, const int* dims,
                                                    int32_t dims_size) {
  const int32_t index = Find(runner->inputs, input_name);
  const std::vector<int>& inputs = runner->interpreter->inputs();
  const auto position = std::ranges::find(inputs, index);
  if (index < 0 || position == inputs.end()) {
    runner->interpreter->reporter().Say("the signature has no input '%s'", input_name);
    return kTfLiteError;
  }
  return runner->interpreter->ResizeInput(static_cast<int32_t>(position - inputs.begin()), dims,
                                          dims_size);
}

TfLiteStatus TfLiteSignatureRunnerAllocateTensors(TfLiteSignatureRunner* runner) {
  return runner->interpreter->AllocateTensors();
}

TfLiteStatus TfLiteSignatureRunnerInvoke(TfLiteSignatureRunner* runner) {
  return runner->interpreter->Invoke();
}

TfLiteStatus TfLiteSignatureRunnerCancel(TfLiteSignatureRunner* runner) {
  return runner->interpreter->Cancel();
}

}  // extern "C"
