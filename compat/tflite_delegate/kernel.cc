// SPDX-License-Identifier: Apache-2.0
#include "compat/tflite_delegate/kernel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "compat/tflite_delegate/delegate.h"

namespace atollcompat {
namespace {

std::vector<int> DimsOf(const TfLiteTensor& tensor) {
  return {tensor.dims->data, tensor.dims->data + tensor.dims->size};
}

TfLiteIntArray* MakeIntArray(std::span<const int> numbers) {
  auto* const array = static_cast<TfLiteIntArray*>(
      std::malloc(sizeof(TfLiteIntArray) + numbers.size() * sizeof(int)));
  array->size = static_cast<int>(numbers.size());
  std::ranges::copy(numbers, array->data);
  return array;
}

}  // namespace

Kernel::Kernel(TfLiteContext* context, std::span<const GraphNode> nodes,
               std::span<const int> outputs, Setup setup)
    : setup_(std::move(setup)), written_(WriteModel(context, nodes, outputs)) {
  for (const int input : written_.inputs) {
    inputs_.push_back({input});
    written_dims_.push_back(DimsOf(context->tensors[input]));
  }
  for (const int output : written_.outputs) outputs_.push_back({output});
  if (written_.error.empty()) model_ = setup_.device->ModelOf(written_.bytes, &written_.error);
  written_.bytes = {};
}

TfLiteStatus Kernel::Fail(TfLiteContext* context, const char* format, const char* reason) {
  context->ReportError(context, format, reason);
  return kTfLiteError;
}

bool Kernel::MakeInterpreter(TfLiteContext* context, const std::vector<std::vector<int>>& dims) {
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.delegate = setup_.device->handle();
  options.num_threads = setup_.num_threads;
  if (options.num_threads == 0) options.num_threads = std::max(context->recommended_num_threads, 0);
  AtollInterpreter* made = nullptr;
  if (AtollInterpreterCreate(model_.get(), &options, &made) != ATOLL_OK) return false;
  interpreter_.reset(made);
  bool is_resized = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == written_dims_[i]) continue;
    is_resized = true;
    if (AtollInterpreterResizeInput(made, static_cast<int32_t>(i), dims[i].data(),
                                    static_cast<int32_t>(dims[i].size())) != ATOLL_OK) {
      return false;
    }
  }
  return !is_resized || AtollInterpreterAllocateTensors(made) == ATOLL_OK;
}

TfLiteStatus Kernel::ShapeOutputs(TfLiteContext* context) {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const AtollTensor* const made =
        AtollInterpreterGetOutputTensor(interpreter_.get(), static_cast<int32_t>(i));
    std::vector<int> dims;
    for (int32_t d = 0; d < AtollTensorNumDims(made); ++d) dims.push_back(AtollTensorDim(made, d));
    TfLiteTensor& tensor = context->tensors[outputs_[i].tensor];
    if (tensor.dims != nullptr && DimsOf(tensor) == dims) continue;
    if (context->ResizeTensor(context, &tensor, MakeIntArray(dims)) != kTfLiteOk) {
      return kTfLiteError;
    }
  }
  return kTfLiteOk;
}

TfLiteStatus Kernel::Prepare(TfLiteContext* context) {
  if (!written_.error.empty()) return Fail(context, "Atoll: %s", written_.error.c_str());
  std::vector<std::vector<int>> dims;
  for (const Port& input : inputs_) {
    const TfLiteTensor& tensor = context->tensors[input.tensor];
    if (tensor.allocation_type == kTfLiteDynamic || tensor.dims == nullptr) {
      return Fail(context,
                  "Atoll: the shape of '%s' is known only while the model runs; give inputs their "
                  "sizes (ResizeInputTensor) before AllocateTensors",
                  tensor.name != nullptr ? tensor.name : "");
    }
    dims.push_back(DimsOf(tensor));
  }
  if (interpreter_ == nullptr || dims != dims_) {
    interpreter_.reset();
    if (!MakeInterpreter(context, dims)) {
      interpreter_.reset();
      return Fail(context, "Atoll: %s", AtollLastError());
    }
    dims_ = std::move(dims);
    has_run_ = false;
    for (Port& port : inputs_) port.memory = nullptr;
    for (Port& port : outputs_) port.memory = nullptr;
  }
  return ShapeOutputs(context);
}

bool Kernel::Bind(TfLiteContext* context, bool is_input, int32_t index, Port* port) {
  const TfLiteTensor& tensor = context->tensors[port->tensor];
  if (is_input && tensor.buffer_handle >= 0) {
    context->ReportError(context, "Atoll: input '%s' is a dma-buf, which is not read from",
                         tensor.name != nullptr ? tensor.name : "");
    return false;
  }
  if (tensor.data.data == port->memory && port->memory != nullptr) return true;
  if (tensor.data.data == nullptr) {
    context->ReportError(context, "Atoll: tensor '%s' has no memory",
                         tensor.name != nullptr ? tensor.name : "");
    return false;
  }
  AtollBufferOptions options = ATOLL_BUFFER_OPTIONS_INIT;
  options.kind = ATOLL_BUFFER_CALLER;
  options.data = tensor.data.data;
  options.size = tensor.bytes;
  AtollBuffer* buffer = nullptr;
  AtollStatus status = AtollBufferCreate(&options, &buffer);
  if (status == ATOLL_OK) {
    status = is_input ? AtollInterpreterSetInputBuffer(interpreter_.get(), index, buffer, 0)
                      : AtollInterpreterSetOutputBuffer(interpreter_.get(), index, buffer, 0);
    AtollBufferDelete(buffer);
  }
  if (status != ATOLL_OK) {
    context->ReportError(context, "Atoll: %s", AtollLastError());
    return false;
  }
  port->memory = tensor.data.data;
  return true;
}

void Kernel::NoticeReset(TfLiteContext* context) {
  if (!has_run_) return;
  const auto is_marked = [&](int variable) {
    const TfLiteTensor& tensor = context->tensors[variable];
    if (tensor.data.data == nullptr) return true;
    return std::all_of(tensor.data.uint8, tensor.data.uint8 + tensor.bytes,
                       [](uint8_t byte) { return byte == kMark; });
  };
  if (!std::ranges::all_of(written_.variables, is_marked)) {
    AtollInterpreterResetVariableTensors(interpreter_.get());
  }
}

void Kernel::MarkVariables(TfLiteContext* context) {
  for (const int variable : written_.variables) {
    const TfLiteTensor& tensor = context->tensors[variable];
    if (tensor.data.data != nullptr) std::memset(tensor.data.data, kMark, tensor.bytes);
  }
}

TfLiteStatus Kernel::Invoke(TfLiteContext* context) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!Bind(context, true, static_cast<int32_t>(i), &inputs_[i])) return kTfLiteError;
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!Bind(context, false, static_cast<int32_t>(i), &outputs_[i])) return kTfLiteError;
  }
  if (!written_.variables.empty()) NoticeReset(context);
  if (AtollInterpreterInvoke(interpreter_.get()) != ATOLL_OK) {
    return Fail(context, "Atoll: %s", AtollLastError());
  }
  has_run_ = true;
  if (!written_.variables.empty()) MarkVariables(context);
  return kTfLiteOk;
}

namespace {

void* InitKernel(TfLiteContext* context, const char* buffer, size_t /*length: 0*/) {
  const auto& params = *reinterpret_cast<const TfLiteDelegateParams*>(buffer);
  const Delegate& owner = *Delegate::Of(params.delegate);
  std::vector<GraphNode> nodes;
  for (int i = 0; i < params.nodes_to_replace->size; ++i) {
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    if (context->GetNodeAndRegistration(context, params.nodes_to_replace->data[i], &node,
                                        &registration) != kTfLiteOk) {
      return nullptr;  // it would be the runtime's mistake; Prepare says that there is no kernel
    }
    nodes.push_back({node, registration});
  }
  const std::span<const int> outputs(params.output_tensors->data,
                                     static_cast<size_t>(params.output_tensors->size));
  return new Kernel(context, nodes, outputs,
                    {.kept = owner.options().external_context,
                     .device = owner.device(),
                     .num_threads = owner.options().num_threads});
}

void FreeKernel(TfLiteContext* /*context*/, void* kernel) { delete static_cast<Kernel*>(kernel); }

TfLiteStatus PrepareKernel(TfLiteContext* context, TfLiteNode* node) {
  if (node->user_data == nullptr) {
    context->ReportError(context, "Atoll: the runtime does not know the nodes of its partition");
    return kTfLiteError;
  }
  return static_cast<Kernel*>(node->user_data)->Prepare(context);
}

TfLiteStatus InvokeKernel(TfLiteContext* context, TfLiteNode* node) {
  return static_cast<Kernel*>(node->user_data)->Invoke(context);
}

const char* ProfilingString(const TfLiteContext* /*context*/, const TfLiteNode* /*node*/) {
  return "Atoll";
}

}  // namespace

TfLiteRegistration KernelRegistration(const char* name) {
  constexpr int32_t kDelegateOperator = 51;
  TfLiteRegistration registration = {};
  registration.init = InitKernel;
  registration.free = FreeKernel;
  registration.prepare = PrepareKernel;
  registration.invoke = InvokeKernel;
  registration.profiling_string = ProfilingString;
  registration.builtin_code = kDelegateOperator;
  registration.custom_name = name;
  registration.version = 1;
  return registration;
}

}  // namespace atollcompat
