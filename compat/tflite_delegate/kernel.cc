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

Kernel::Kernel(Partition partition, Setup setup)
    : setup_(std::move(setup)), partition_(std::move(partition)), dims_(partition_.dims) {
  for (const int input : partition_.written.inputs) inputs_.push_back({input});
  for (const int output : partition_.written.outputs) outputs_.push_back({output});
}

Kernel::Kernel(TfLiteContext* context, std::span<const GraphNode> nodes,
               std::span<const int> outputs, Setup setup)
    : Kernel(MakePartition(context, nodes, outputs, setup.device.get(), setup.device->handle(),
                           ThreadsOf(context, setup.num_threads)),
             setup) {}

TfLiteStatus Kernel::Fail(TfLiteContext* context, const char* format, const char* reason) {
  const std::string kept = reason;  // a runtime's function may make another call fail
  context->ReportError(context, format, kept.c_str());
  return kTfLiteError;
}

bool Kernel::MakeInterpreter(int num_threads) {
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.delegate = setup_.device->handle();
  options.num_threads = num_threads;
  AtollInterpreter* made = nullptr;
  if (AtollInterpreterCreate(partition_.model.get(), &options, &made) != ATOLL_OK) return false;
  partition_.interpreter.reset(made);
  partition_.num_threads = num_threads;
  dims_ = partition_.dims;
  return true;
}

bool Kernel::Resize(const std::vector<std::vector<int>>& dims, std::string* error) {
  AtollInterpreter* const interpreter = partition_.interpreter.get();
  dims_.clear();
  for (size_t i = 0; i < dims.size(); ++i) {
    if (AtollInterpreterResizeInput(interpreter, static_cast<int32_t>(i), dims[i].data(),
                                    static_cast<int32_t>(dims[i].size())) != ATOLL_OK) {
      *error = AtollLastError();
      return false;
    }
  }
  if (AtollInterpreterAllocateTensors(interpreter) != ATOLL_OK) {
    *error = AtollLastError();
    return false;
  }
  // Two sizes of an image are enough for Atoll, but here they are another shape.
  for (size_t i = 0; i < dims.size(); ++i) {
    const AtollTensor* const input =
        AtollInterpreterGetInputTensor(interpreter, static_cast<int32_t>(i));
    if (AtollTensorNumDims(input) == static_cast<int32_t>(dims[i].size())) continue;
    *error = std::string("input '") + AtollTensorName(input) + "' has " +
             std::to_string(AtollTensorNumDims(input)) + " dimensions, and cannot have " +
             std::to_string(dims[i].size());
    return false;
  }
  dims_ = dims;
  return true;
}

TfLiteStatus Kernel::ShapeOutputs(TfLiteContext* context) {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const AtollTensor* const made =
        AtollInterpreterGetOutputTensor(partition_.interpreter.get(), static_cast<int32_t>(i));
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
  if (!partition_.error.empty()) return Fail(context, "Atoll: %s", partition_.error.c_str());
  std::vector<std::vector<int>> dims;
  for (const Port& input : inputs_) {
    const TfLiteTensor& tensor = context->tensors[input.tensor];
    const bool is_known =
        tensor.dims != nullptr &&
        // Nodes behind a dynamic tensor are prepared when it has its bytes, and so its shape.
        (NumberOf(tensor.allocation_type) != kTfLiteDynamic || tensor.data.data != nullptr) &&
        std::all_of(tensor.dims->data, tensor.dims->data + tensor.dims->size,
                    [](int size) { return size > 0; });
    if (!is_known) {
      return Fail(context,
                  "Atoll: the shape of '%s' is known only while the model runs; give inputs their "
                  "sizes (ResizeInputTensor) before AllocateTensors",
                  tensor.name != nullptr ? tensor.name : "");
    }
    dims.push_back(DimsOf(tensor));
  }
  for (const int list : partition_.written.empty_lists) {
    const TfLiteTensor& tensor = context->tensors[list];
    if (tensor.dims == nullptr || tensor.dims->size != 1 || tensor.dims->data[0] != 0) {
      return Fail(context, "Atoll: '%s' was empty when the graph was partitioned, and is not now",
                  tensor.name != nullptr ? tensor.name : "");
    }
  }
  const int num_threads = ThreadsOf(context, setup_.num_threads);
  const bool is_other = num_threads != partition_.num_threads;
  if (is_other && !MakeInterpreter(num_threads)) {
    return Fail(context, "Atoll: %s", AtollLastError());
  }
  std::string error;
  const bool is_resized = dims != dims_;
  if (is_resized && !Resize(dims, &error)) return Fail(context, "Atoll: %s", error.c_str());
  if (is_other || is_resized) has_run_ = false;
  // Tensors may lie elsewhere now, or at the same addresses in other memory, which a device that
  // reaches memory itself has to be told of.
  for (Port& port : inputs_) port = {port.tensor};
  for (Port& port : outputs_) port = {port.tensor};
  return ShapeOutputs(context);
}

bool Kernel::Bind(TfLiteContext* context, bool is_input, int32_t index, Port* port) {
  const TfLiteTensor& tensor = context->tensors[port->tensor];
  if (is_input && tensor.buffer_handle >= 0) {
    context->ReportError(context, "Atoll: input '%s' is a dma-buf, which is not read from",
                         tensor.name != nullptr ? tensor.name : "");
    return false;
  }
  if (tensor.data.data == port->memory && tensor.bytes == port->bytes && port->memory != nullptr) {
    return true;
  }
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
    status = is_input
                 ? AtollInterpreterSetInputBuffer(partition_.interpreter.get(), index, buffer, 0)
                 : AtollInterpreterSetOutputBuffer(partition_.interpreter.get(), index, buffer, 0);
    AtollBufferDelete(buffer);
  }
  if (status != ATOLL_OK) {
    Fail(context, "Atoll: %s", AtollLastError());
    return false;
  }
  port->memory = tensor.data.data;
  port->bytes = tensor.bytes;
  return true;
}

uint8_t Kernel::MarkOf(const TfLiteTensor& variable) {
  constexpr uint8_t kMark = 0x5A;
  // Those of bytes are filled with their zero point.
  return static_cast<uint8_t>(variable.params.zero_point) == kMark ? kMark + 1 : kMark;
}

void Kernel::NoticeReset(TfLiteContext* context) {
  if (!has_run_) return;
  const auto is_marked = [&](int variable) {
    const TfLiteTensor& tensor = context->tensors[variable];
    if (tensor.data.data == nullptr) return true;
    return std::all_of(tensor.data.uint8, tensor.data.uint8 + tensor.bytes,
                       [mark = MarkOf(tensor)](uint8_t byte) { return byte == mark; });
  };
  if (!std::ranges::all_of(partition_.written.variables, is_marked)) {
    AtollInterpreterResetVariableTensors(partition_.interpreter.get());
  }
}

void Kernel::MarkVariables(TfLiteContext* context) {
  for (const int variable : partition_.written.variables) {
    const TfLiteTensor& tensor = context->tensors[variable];
    if (tensor.data.data != nullptr) std::memset(tensor.data.data, MarkOf(tensor), tensor.bytes);
  }
}

TfLiteStatus Kernel::Invoke(TfLiteContext* context) {
  if (partition_.interpreter == nullptr) {
    return Fail(context, "Atoll: %s", partition_.error.c_str());
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!Bind(context, true, static_cast<int32_t>(i), &inputs_[i])) return kTfLiteError;
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!Bind(context, false, static_cast<int32_t>(i), &outputs_[i])) return kTfLiteError;
  }
  if (!partition_.written.variables.empty()) NoticeReset(context);
  if (AtollInterpreterInvoke(partition_.interpreter.get()) != ATOLL_OK) {
    return Fail(context, "Atoll: %s", AtollLastError());
  }
  has_run_ = true;
  if (!partition_.written.variables.empty()) MarkVariables(context);
  return kTfLiteOk;
}

namespace {

void* InitKernel(TfLiteContext* context, const char* buffer, size_t /*length: 0*/) {
  const auto& params = *reinterpret_cast<const TfLiteDelegateParams*>(buffer);
  Delegate& owner = *Delegate::Of(params.delegate);
  Kernel::Setup setup = {.kept = owner.options().external_context,
                         .device = owner.device(),
                         .num_threads = owner.options().num_threads};
  Partition prepared = owner.TakePrepared(context, params);
  if (prepared.interpreter != nullptr || !prepared.error.empty()) {
    return new Kernel(std::move(prepared), std::move(setup));
  }
  std::vector<GraphNode> nodes;
  for (int i = 0; i < params.nodes_to_replace->size; ++i) {
    TfLiteNode* node = nullptr;
    TfLiteRegistration* registration = nullptr;
    if (context->GetNodeAndRegistration(context, params.nodes_to_replace->data[i], &node,
                                        &registration) != kTfLiteOk ||
        node == nullptr || registration == nullptr) {
      return nullptr;  // it would be the runtime's mistake; Prepare says that there is no kernel
    }
    nodes.push_back({node, registration});
  }
  const std::span<const int> outputs(params.output_tensors->data,
                                     static_cast<size_t>(params.output_tensors->size));
  return new Kernel(context, nodes, outputs, std::move(setup));
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
  if (node->user_data == nullptr) return kTfLiteError;
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
