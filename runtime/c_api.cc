// SPDX-License-Identifier: Apache-2.0
//
// The C interface of runtime.h over the C++ classes; nothing else happens here.
#include "runtime/c_api.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/base/log.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/self_test.h"
#include "runtime/plan/partition_report.h"

using atollrt::Status;
using atollrt::StatusCode;

namespace {

std::string& LastError() {
  thread_local std::string message;
  return message;
}

}  // namespace

namespace atollrt {

AtollStatus ToC(const Status& status) {
  LastError() = status.message();
  switch (status.code()) {
    case StatusCode::kOk:
      return ATOLL_OK;
    case StatusCode::kInvalidArgument:
      return ATOLL_INVALID_ARGUMENT;
    case StatusCode::kCorruptModel:
      return ATOLL_CORRUPT_MODEL;
    case StatusCode::kUnsupported:
      return ATOLL_UNSUPPORTED;
    case StatusCode::kNotFound:
      return ATOLL_NOT_FOUND;
    case StatusCode::kPermissionDenied:
      return ATOLL_PERMISSION_DENIED;
    case StatusCode::kDeviceBusy:
      return ATOLL_DEVICE_BUSY;
    case StatusCode::kDeviceLost:
      return ATOLL_DEVICE_LOST;
    case StatusCode::kTimeout:
      return ATOLL_TIMEOUT;
    case StatusCode::kResourceExhausted:
      return ATOLL_RESOURCE_EXHAUSTED;
    case StatusCode::kCancelled:
      return ATOLL_CANCELLED;
    case StatusCode::kInternal:
      return ATOLL_INTERNAL;
  }
  return ATOLL_INTERNAL;
}

}  // namespace atollrt

namespace {

using atollrt::InvalidArgument;
using atollrt::ToC;

AtollStatus NullArgument(const char* name) {
  return ToC(InvalidArgument("argument '%s' is NULL", name));
}

// Whether a handle is there, for functions that return no status: AtollLastError says if it is not.
template <typename T>
bool Has(const T* handle, const char* name) {
  if (handle != nullptr) return true;
  NullArgument(name);
  return false;
}

// Whether there is an element `index` of `count`; AtollLastError says if there is none.
bool HasIndex(const char* what, int32_t index, size_t count) {
  if (index >= 0 && static_cast<size_t>(index) < count) return true;
  ToC(InvalidArgument("%s %d; there are %zu, counted from 0", what, index, count));
  return false;
}

// Before AtollModelOptions had `copy_file`.
constexpr size_t kFirstModelOptionsSize = offsetof(AtollModelOptions, copy_file);

// A program that was built with an older header hands over less; what it does not know is 0.
atollrt::Result<AtollModelOptions> ReadModelOptions(const AtollModelOptions* options) {
  AtollModelOptions read = ATOLL_MODEL_OPTIONS_INIT;
  if (options == nullptr) return read;
  if (options->struct_size != sizeof(AtollModelOptions) &&
      options->struct_size != kFirstModelOptionsSize) {
    return InvalidArgument(
        "AtollModelOptions.struct_size is %zu, must be %zu; use ATOLL_MODEL_OPTIONS_INIT",
        options->struct_size, sizeof(AtollModelOptions));
  }
  std::memcpy(&read, options, options->struct_size);
  return read;
}

atollrt::Result<std::vector<atollrt::InputShape>> InputShapesOf(const AtollModelOptions& options) {
  std::vector<atollrt::InputShape> shapes;
  const int32_t count = options.input_shape_count;
  if (count < 0 || (count > 0 && options.input_shapes == nullptr)) {
    return InvalidArgument("AtollModelOptions has %d input shapes at %p", count,
                           static_cast<const void*>(options.input_shapes));
  }
  for (int32_t i = 0; i < count; ++i) {
    const AtollInputShape& shape = options.input_shapes[i];
    if (shape.num_dims < 0 || (shape.num_dims > 0 && shape.dims == nullptr)) {
      return InvalidArgument("input shape %d of AtollModelOptions has %d sizes at %p", i,
                             shape.num_dims, static_cast<const void*>(shape.dims));
    }
    shapes.push_back({.name = shape.name == nullptr ? "" : shape.name,
                      .index = shape.index,
                      .shape = {shape.dims, shape.dims + shape.num_dims}});
  }
  return shapes;
}

}  // namespace

extern "C" {

const char* AtollVersion(void) { return ATOLL_VERSION_STRING; }

const char* AtollStatusName(AtollStatus status) {
  return status < 0 || status > ATOLL_INTERNAL
             ? "unknown status"
             : atollrt::StatusCodeName(static_cast<StatusCode>(status));
}

const char* AtollLastError(void) { return LastError().c_str(); }

AtollStatus AtollCpuName(const char** name) {
  if (name == nullptr) return NullArgument("name");
  const auto features = atollrt::DetectCpuFeatures();
  if (!features.ok()) return ToC(features.status());
  *name = atollrt::CpuFeaturesName(*features);
  return ToC(Status());
}

void AtollSetLogCallback(AtollLogCallback callback, void* user_data) {
  // The enumerations have the same values; the cast only changes the parameter's name.
  atollrt::SetLogCallback(reinterpret_cast<atollrt::LogCallback>(callback), user_data);
}

AtollStatus AtollModelCreateFromFile(const char* path, AtollModel** model) {
  return AtollModelCreateFromFileWithOptions(path, nullptr, model);
}

AtollStatus AtollModelCreateFromBuffer(const void* data, size_t size, AtollModel** model) {
  return AtollModelCreateFromBufferWithOptions(data, size, nullptr, model);
}

AtollStatus AtollModelCreateFromFileWithOptions(const char* path, const AtollModelOptions* options,
                                                AtollModel** model) {
  if (path == nullptr) return NullArgument("path");
  if (model == nullptr) return NullArgument("model");
  const auto read = ReadModelOptions(options);
  if (!read.ok()) return ToC(read.status());
  const auto input_shapes = InputShapesOf(*read);
  if (!input_shapes.ok()) return ToC(input_shapes.status());
  auto loaded = read->copy_file != 0 ? atollrt::Model::FromCopyOfFile(path, *input_shapes)
                                     : atollrt::Model::FromFile(path, *input_shapes);
  if (!loaded.ok()) return ToC(loaded.status());
  *model = new AtollModel{*std::move(loaded)};
  return ToC(Status());
}

AtollStatus AtollModelCreateFromBufferWithOptions(const void* data, size_t size,
                                                  const AtollModelOptions* options,
                                                  AtollModel** model) {
  if (data == nullptr) return NullArgument("data");
  if (model == nullptr) return NullArgument("model");
  const auto read = ReadModelOptions(options);
  if (!read.ok()) return ToC(read.status());
  const auto input_shapes = InputShapesOf(*read);
  if (!input_shapes.ok()) return ToC(input_shapes.status());
  auto loaded =
      atollrt::Model::FromBuffer({static_cast<const uint8_t*>(data), size}, *input_shapes);
  if (!loaded.ok()) return ToC(loaded.status());
  *model = new AtollModel{*std::move(loaded)};
  return ToC(Status());
}

void AtollModelDelete(AtollModel* model) { delete model; }

int32_t AtollModelHasOperator(const AtollModel* model, const char* op) {
  if (!Has(model, "model") || !Has(op, "op")) return 0;
  for (const atollrt::Graph& graph : model->model->graphs()) {
    for (const atollrt::Node& node : graph.nodes) {
      if (node.op_name() == op) return 1;
    }
  }
  return 0;
}

AtollStatus AtollInterpreterCreate(const AtollModel* model, const AtollInterpreterOptions* options,
                                   AtollInterpreter** interpreter) {
  if (model == nullptr) return NullArgument("model");
  if (interpreter == nullptr) return NullArgument("interpreter");
  atollrt::InterpreterOptions cpp_options;
  if (options != nullptr) {
    if (options->struct_size != sizeof(AtollInterpreterOptions)) {
      return ToC(
          InvalidArgument("AtollInterpreterOptions.struct_size is %zu, must be %zu; use "
                          "ATOLL_INTERPRETER_OPTIONS_INIT",
                          options->struct_size, sizeof(AtollInterpreterOptions)));
    }
    cpp_options.threads = options->num_threads;
    cpp_options.plan = {.priority = options->priority, .residency_set = options->residency_set};
    if (options->fallback != nullptr) cpp_options.fallback = options->fallback->model;
    if (options->delegate != nullptr) cpp_options.delegate = options->delegate->delegate.get();
  }
  auto created = atollrt::Interpreter::Create(model->model, cpp_options);
  if (!created.ok()) return ToC(created.status());
  auto* result = new AtollInterpreter;
  if (options != nullptr && options->delegate != nullptr) {
    result->delegate = options->delegate->delegate;
  }
  result->interpreter = *std::move(created);
  const atollrt::Graph& graph = result->interpreter->graph();
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    result->tensors.push_back({result->interpreter.get(), static_cast<int32_t>(i)});
  }
  for (const atollrt::Node& node : graph.nodes) result->node_names.push_back(node.op_name());
  for (const atollrt::Partition& partition : result->interpreter->partitions()) {
    std::vector<AtollMemoryBlock>& blocks = result->memory.emplace_back();
    if (partition.report == nullptr) continue;
    for (const atollrt::OnChipBlock& block : partition.report->memory) {
      blocks.push_back({.kind = static_cast<AtollMemoryKind>(block.kind),
                        .tensor = block.tensor,
                        .node = block.node,
                        .offset = block.offset,
                        .bytes = block.bytes,
                        .first_instruction = block.first_instruction,
                        .last_instruction = block.last_instruction});
    }
  }
  *interpreter = result;
  return ToC(Status());
}

void AtollInterpreterDelete(AtollInterpreter* interpreter) { delete interpreter; }

AtollStatus AtollInterpreterInvoke(AtollInterpreter* interpreter) {
  if (interpreter == nullptr) return NullArgument("interpreter");
  return ToC(interpreter->interpreter->Invoke());
}

AtollStatus AtollInterpreterInvokeAsync(AtollInterpreter* interpreter) {
  if (interpreter == nullptr) return NullArgument("interpreter");
  return ToC(interpreter->interpreter->InvokeAsync());
}

AtollStatus AtollInterpreterWait(AtollInterpreter* interpreter) {
  if (interpreter == nullptr) return NullArgument("interpreter");
  return ToC(interpreter->interpreter->Wait());
}

AtollStatus AtollInterpreterCancel(AtollInterpreter* interpreter) {
  if (interpreter == nullptr) return NullArgument("interpreter");
  interpreter->interpreter->Cancel();
  return ToC(Status());
}

AtollStatus AtollInterpreterResetVariableTensors(AtollInterpreter* interpreter) {
  if (interpreter == nullptr) return NullArgument("interpreter");
  interpreter->interpreter->ResetVariables();
  return ToC(Status());
}

const char* AtollTypeName(AtollType type) {
  const auto number = static_cast<int64_t>(type);         // of programs in C: any
  if (number < 0 || number > INT8_MAX) return "unknown";  // would become another type
  return atollrt::DataTypeName(static_cast<atollrt::DataType>(type));
}

int32_t AtollInterpreterGetInputTensorCount(const AtollInterpreter* interpreter) {
  if (!Has(interpreter, "interpreter")) return 0;
  return static_cast<int32_t>(interpreter->interpreter->graph().inputs.size());
}

int32_t AtollInterpreterGetOutputTensorCount(const AtollInterpreter* interpreter) {
  if (!Has(interpreter, "interpreter")) return 0;
  return static_cast<int32_t>(interpreter->interpreter->graph().outputs.size());
}

AtollTensor* AtollInterpreterGetInputTensor(AtollInterpreter* interpreter, int32_t index) {
  if (!Has(interpreter, "interpreter")) return nullptr;
  const auto& inputs = interpreter->interpreter->graph().inputs;
  if (!HasIndex("input", index, inputs.size())) return nullptr;
  return &interpreter->tensors[inputs[index]];
}

const AtollTensor* AtollInterpreterGetOutputTensor(const AtollInterpreter* interpreter,
                                                   int32_t index) {
  if (!Has(interpreter, "interpreter")) return nullptr;
  const auto& outputs = interpreter->interpreter->graph().outputs;
  if (!HasIndex("output", index, outputs.size())) return nullptr;
  return &interpreter->tensors[outputs[index]];
}

const char* AtollTensorName(const AtollTensor* tensor) {
  return Has(tensor, "tensor") ? tensor->tensor().name.c_str() : "";
}

AtollType AtollTensorType(const AtollTensor* tensor) {
  return Has(tensor, "tensor") ? static_cast<AtollType>(tensor->tensor().type) : ATOLL_NO_TYPE;
}

int32_t AtollTensorNumDims(const AtollTensor* tensor) {
  return Has(tensor, "tensor") ? static_cast<int32_t>(tensor->tensor().shape.size()) : 0;
}

int32_t AtollTensorDim(const AtollTensor* tensor, int32_t dim) {
  if (!Has(tensor, "tensor")) return -1;
  const atollrt::Shape& shape = tensor->tensor().shape;
  return HasIndex("dimension", dim, shape.size()) ? shape[static_cast<size_t>(dim)] : -1;
}

size_t AtollTensorByteSize(const AtollTensor* tensor) {
  return Has(tensor, "tensor") ? static_cast<size_t>(tensor->tensor().byte_size()) : 0;
}

void* AtollTensorData(AtollTensor* tensor) {
  if (!Has(tensor, "tensor")) return nullptr;
  return tensor->interpreter->TensorBytes(tensor->index).data();
}

const void* AtollTensorConstData(const AtollTensor* tensor) {
  if (!Has(tensor, "tensor")) return nullptr;
  return tensor->interpreter->ConstTensorBytes(tensor->index).data();
}

AtollQuantization AtollTensorQuantization(const AtollTensor* tensor) {
  if (!Has(tensor, "tensor")) return {};
  return {tensor->tensor().scale(), tensor->tensor().zero_point()};
}

int32_t AtollTensorIsConstant(const AtollTensor* tensor) {
  return Has(tensor, "tensor") && tensor->tensor().is_constant() ? 1 : 0;
}

AtollStatus AtollTensorCopyFromBuffer(AtollTensor* tensor, const void* data, size_t size) {
  if (tensor == nullptr) return NullArgument("tensor");
  if (data == nullptr) return NullArgument("data");
  const std::span<uint8_t> bytes = tensor->interpreter->TensorBytes(tensor->index);
  if (bytes.size() != size) {
    return ToC(InvalidArgument("tensor '%s' has %zu bytes, not %zu", tensor->tensor().name.c_str(),
                               bytes.size(), size));
  }
  if (size > 0) std::memcpy(bytes.data(), data, size);
  return ToC(Status());
}

AtollStatus AtollTensorCopyToBuffer(const AtollTensor* tensor, void* data, size_t size) {
  if (tensor == nullptr) return NullArgument("tensor");
  if (data == nullptr) return NullArgument("data");
  const std::span<const uint8_t> bytes = tensor->interpreter->ConstTensorBytes(tensor->index);
  if (bytes.size() != size) {
    return ToC(InvalidArgument("tensor '%s' has %zu bytes, not %zu", tensor->tensor().name.c_str(),
                               bytes.size(), size));
  }
  if (size > 0) std::memcpy(data, bytes.data(), size);
  return ToC(Status());
}

int32_t AtollInterpreterGetNodeCount(const AtollInterpreter* interpreter) {
  if (!Has(interpreter, "interpreter")) return 0;
  return static_cast<int32_t>(interpreter->interpreter->graph().nodes.size());
}

AtollStatus AtollInterpreterGetNodeInfo(const AtollInterpreter* interpreter, int32_t index,
                                        AtollNodeInfo* info) {
  if (interpreter == nullptr) return NullArgument("interpreter");
  if (info == nullptr) return NullArgument("info");
  const atollrt::Graph& graph = interpreter->interpreter->graph();
  if (!HasIndex("node", index, graph.nodes.size())) return ATOLL_INVALID_ARGUMENT;
  const atollrt::Node& node = graph.nodes[index];
  const atollrt::NodePlacement& placement = interpreter->interpreter->placements()[index];
  *info = {.op = interpreter->node_names[index].c_str(),
           .reason = placement.reason.c_str(),
           .partition = placement.partition,
           .macs = atollrt::MultiplyAccumulates(graph, node),
           .inputs = node.inputs.data(),
           .input_count = static_cast<int32_t>(node.inputs.size()),
           .outputs = node.outputs.data(),
           .output_count = static_cast<int32_t>(node.outputs.size())};
  return ToC(Status());
}

int32_t AtollInterpreterGetPartitionCount(const AtollInterpreter* interpreter) {
  if (!Has(interpreter, "interpreter")) return 0;
  return static_cast<int32_t>(interpreter->interpreter->partitions().size());
}

AtollStatus AtollInterpreterGetPartitionInfo(const AtollInterpreter* interpreter, int32_t index,
                                             AtollPartitionInfo* info) {
  if (interpreter == nullptr) return NullArgument("interpreter");
  if (info == nullptr) return NullArgument("info");
  const auto& partitions = interpreter->interpreter->partitions();
  if (!HasIndex("partition", index, partitions.size())) return ATOLL_INVALID_ARGUMENT;
  static const atollrt::PartitionReport unknown;
  const auto& known = partitions[index].report;
  const atollrt::PartitionReport& report = known != nullptr ? *known : unknown;
  const atollrt::ModelledLatency& latency = report.latency;
  *info = {.node_count = static_cast<int32_t>(partitions[index].nodes.size()),
           .instruction_count = report.instruction_count,
           .resident_parameter_bytes = report.resident_parameter_bytes,
           .streamed_parameter_bytes = report.streamed_parameter_bytes,
           .activation_bytes = report.activation_bytes,
           .input_bytes = report.input_bytes,
           .output_bytes = report.output_bytes,
           .estimated_cycles = report.estimated_cycles,
           .latency = {.total = latency.total,
                       .host = latency.host,
                       .link_out = latency.link_out,
                       .parameters = latency.parameters,
                       .array = latency.array,
                       .vector = latency.vector,
                       .dma = latency.dma,
                       .link_in = latency.link_in},
           .note = report.note.c_str(),
           .program_bytes = report.program_bytes,
           .upload_bytes = report.upload_bytes,
           .upload_seconds = report.upload_seconds};
  return ToC(Status());
}

AtollStatus AtollInterpreterGetPartitionMemory(const AtollInterpreter* interpreter, int32_t index,
                                               const AtollMemoryBlock** blocks, int32_t* count) {
  if (interpreter == nullptr) return NullArgument("interpreter");
  if (blocks == nullptr) return NullArgument("blocks");
  if (count == nullptr) return NullArgument("count");
  const auto& partitions = interpreter->memory;
  if (!HasIndex("partition", index, partitions.size())) return ATOLL_INVALID_ARGUMENT;
  *blocks = partitions[index].data();
  *count = static_cast<int32_t>(partitions[index].size());
  return ToC(Status());
}

int32_t AtollInterpreterGetTensorCount(const AtollInterpreter* interpreter) {
  if (!Has(interpreter, "interpreter")) return 0;
  return static_cast<int32_t>(interpreter->tensors.size());
}

const AtollTensor* AtollInterpreterGetTensor(const AtollInterpreter* interpreter, int32_t index) {
  if (!Has(interpreter, "interpreter")) return nullptr;
  if (!HasIndex("tensor", index, interpreter->tensors.size())) return nullptr;
  return &interpreter->tensors[index];
}

AtollStatus AtollInterpreterGetMemoryInfo(const AtollInterpreter* interpreter,
                                          AtollMemoryInfo* info) {
  if (interpreter == nullptr) return NullArgument("interpreter");
  if (info == nullptr) return NullArgument("info");
  int64_t constants = 0;
  int64_t packed = 0;
  for (const atollrt::Tensor& tensor : interpreter->interpreter->graph().tensors) {
    constants += static_cast<int64_t>(tensor.data.size());
    packed += static_cast<int64_t>(tensor.packed_weights.size());
  }
  *info = {.arena_bytes = interpreter->interpreter->arena_bytes(),
           .constant_bytes = constants,
           .arena_lower_bound_bytes = interpreter->interpreter->arena_lower_bound_bytes(),
           .packed_weight_bytes = packed,
           .used_packed_weight_bytes = interpreter->interpreter->used_packed_weight_bytes()};
  return ToC(Status());
}

AtollStatus AtollInterpreterGetInvokeInfo(const AtollInterpreter* interpreter,
                                          AtollInvokeInfo* info) {
  if (interpreter == nullptr) return NullArgument("interpreter");
  if (info == nullptr) return NullArgument("info");
  const atollrt::RequestCost& cost = interpreter->interpreter->last_cost();
  *info = {.device_cycles = static_cast<int64_t>(cost.device_cycles),
           .bytes_to_device = static_cast<int64_t>(cost.bytes_to_device),
           .bytes_from_device = static_cast<int64_t>(cost.bytes_from_device),
           .device_seconds = cost.device_seconds,
           .queue_ns = cost.queue_ns,
           .link_out_ns = cost.link_out_ns,
           .compute_ns = cost.compute_ns,
           .link_in_ns = cost.link_in_ns};
  return ToC(Status());
}

void AtollInterpreterSetTensorTap(AtollInterpreter* interpreter, AtollTensorTap tap,
                                  void* user_data) {
  if (!Has(interpreter, "interpreter")) return;
  if (tap == nullptr) {
    interpreter->interpreter->SetTap(nullptr);
    return;
  }
  interpreter->interpreter->SetTap([interpreter, tap, user_data](int32_t tensor) {
    tap(tensor, &interpreter->tensors[tensor], user_data);
  });
}

const char* AtollDeviceUnitName(AtollDeviceUnit unit) {
  if (unit < 0 || unit > ATOLL_UNIT_SEQUENCER) return "unknown";
  return atollrt::TraceUnitName(static_cast<atollrt::TraceUnit>(unit));
}

void AtollInterpreterSetTrace(AtollInterpreter* interpreter, AtollTraceCallback callback,
                              void* user_data) {
  if (!Has(interpreter, "interpreter")) return;
  if (callback == nullptr) {
    interpreter->interpreter->SetTrace(nullptr);
    return;
  }
  interpreter->interpreter->SetTrace([callback, user_data](const atollrt::TraceEvent& event) {
    const atollrt::DeviceTime& device = event.device;
    const AtollTraceEvent c_event = {
        .kind = static_cast<AtollTraceKind>(event.kind),
        .name = event.name,
        .partition = event.partition,
        .node = event.node,
        .host = {.thread = event.host.thread,
                 .start_ns = event.host.start_ns,
                 .duration_ns = event.host.duration_ns},
        .device = {.unit = static_cast<AtollDeviceUnit>(device.unit),
                   .instruction = device.instruction,
                   .issue_cycle = static_cast<int64_t>(device.issue_cycle),
                   .start_cycle = static_cast<int64_t>(device.start_cycle),
                   .end_cycle = static_cast<int64_t>(device.end_cycle),
                   .bytes = static_cast<int64_t>(device.bytes),
                   .macs = static_cast<int64_t>(device.macs)}};
    callback(&c_event, user_data);
  });
}

AtollStatus AtollSelfTest(void) { return ToC(atollrt::RunSelfTest()); }

}  // extern "C"
