// SPDX-License-Identifier: Apache-2.0
//
// The C interface of runtime.h: interpreters, tensors, and what is known of an invocation.
#include <cstdint>
#include <cstring>

#include "runtime/base/buffer.h"
#include "runtime/c_api.h"
#include "runtime/plan/partition_report.h"
#include "runtime/substitute.h"

namespace {

using atollrt::Format;
using atollrt::Has;
using atollrt::HasIndex;
using atollrt::InvalidArgument;
using atollrt::Status;
using atollrt::ToC;

Status ReadInterpreterOptions(const AtollInterpreterOptions& given,
                              AtollInterpreterOptions* options) {
  return atollrt::ReadOptions("AtollInterpreterOptions", "ATOLL_INTERPRETER_OPTIONS_INIT", &given,
                              {ATOLL_END_OF(AtollInterpreterOptions, num_threads),
                               ATOLL_END_OF(AtollInterpreterOptions, delegate),
                               ATOLL_END_OF(AtollInterpreterOptions, priority),
                               ATOLL_END_OF(AtollInterpreterOptions, residency_set),
                               ATOLL_END_OF(AtollInterpreterOptions, fallback),
                               ATOLL_END_OF(AtollInterpreterOptions, keep_all_tensors)},
                              options, sizeof(*options));
}

// Enumerations that are the same inside, so that they need no more than a cast.
#define ATOLL_DATA_TYPE(name, number, text, bytes, c_name) \
  static_assert(static_cast<int>(atollrt::DataType::name) == (c_name));
#include "runtime/graph/data_types.inc"
static_assert(static_cast<int>(atollrt::Unit::kLinkOut) == ATOLL_UNIT_LINK_OUT &&
              static_cast<int>(atollrt::Unit::kInfeed) == ATOLL_UNIT_INFEED &&
              static_cast<int>(atollrt::Unit::kDma) == ATOLL_UNIT_DMA &&
              static_cast<int>(atollrt::Unit::kArray) == ATOLL_UNIT_ARRAY &&
              static_cast<int>(atollrt::Unit::kVector) == ATOLL_UNIT_VECTOR &&
              static_cast<int>(atollrt::Unit::kOutfeed) == ATOLL_UNIT_OUTFEED &&
              static_cast<int>(atollrt::Unit::kLinkIn) == ATOLL_UNIT_LINK_IN &&
              static_cast<int>(atollrt::Unit::kSequencer) == ATOLL_UNIT_SEQUENCER);

// What callers see of `interpreter`, in place of what they saw before.
void Adopt(std::unique_ptr<atollrt::Interpreter> interpreter, AtollInterpreter* handle) {
  handle->interpreter = std::move(interpreter);
  const atollrt::Graph& graph = handle->interpreter->graph();
  // They keep their addresses: the file has as many for any shapes.
  handle->tensors.resize(graph.tensors.size());
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    handle->tensors[i] = {handle, static_cast<int32_t>(i)};
  }
  handle->node_names.clear();
  for (const atollrt::Node& node : graph.nodes) handle->node_names.push_back(node.op_name());
  handle->memory.clear();
  for (const atollrt::Partition& partition : handle->interpreter->partitions()) {
    std::vector<AtollMemoryBlock>& blocks = handle->memory.emplace_back();
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
  handle->is_ready = true;
}

// Makes the interpreter behind `handle`, of `model` or of what runs in its place.
AtollStatus Prepare(std::shared_ptr<const atollrt::Model> model,
                    atollrt::InterpreterOptions options, AtollInterpreter* handle) {
  if (const Status status = SubstituteForCoral(&model, &options, &handle->substitute);
      !status.ok()) {
    return ToC(status);
  }
  auto created = atollrt::Interpreter::Create(std::move(model), options);
  if (!created.ok()) return ToC(created.status());
  Adopt(*std::move(created), handle);
  return ToC(Status());
}

Status CheckReady(const AtollInterpreter& interpreter) {
  if (interpreter.is_ready) return {};
  return InvalidArgument(
      "the interpreter is not ready: inputs were resized; call AtollInterpreterAllocateTensors");
}

bool IsReady(const AtollTensor& tensor) {
  if (tensor.owner != nullptr) return ToC(CheckReady(*tensor.owner)) == ATOLL_OK;
  ToC(InvalidArgument("tensor '%s' is of a model; that of an interpreter has data",
                      tensor.tensor().name.c_str()));
  return false;
}

Status SetMemory(AtollInterpreter* interpreter, const char* kind,
                 const std::vector<int32_t>& tensors, int32_t index, const AtollBuffer* buffer,
                 size_t offset) {
  ATOLL_RETURN_IF_ERROR(CheckReady(*interpreter));
  const int32_t tensor = tensors[static_cast<size_t>(index)];
  if (buffer == nullptr) return interpreter->interpreter->SetTensorMemory(tensor, {}, {});
  const atollrt::Tensor& t = interpreter->interpreter->graph().tensors[tensor];
  const auto size = static_cast<size_t>(t.byte_size());
  if (offset > buffer->bytes.size() || buffer->bytes.size() - offset < size) {
    return InvalidArgument("%s '%s' has %zu bytes; the buffer has %zu, from %zu on", kind,
                           t.name.c_str(), size, buffer->bytes.size(), offset);
  }
  return interpreter->interpreter
      ->SetTensorMemory(tensor, buffer->bytes.subspan(offset, size), buffer->owner,
                        buffer->for_device, buffer->whole)
      .WithContext(Format("%s '%s'", kind, t.name.c_str()));
}

Status CreateBuffer(const AtollBufferOptions& given, AtollBuffer** buffer) {
  AtollBufferOptions read = ATOLL_BUFFER_OPTIONS_INIT;
  ATOLL_RETURN_IF_ERROR(atollrt::ReadOptions(
      "AtollBufferOptions", "ATOLL_BUFFER_OPTIONS_INIT", &given,
      {ATOLL_END_OF(AtollBufferOptions, kind), ATOLL_END_OF(AtollBufferOptions, fd),
       ATOLL_END_OF(AtollBufferOptions, data), ATOLL_END_OF(AtollBufferOptions, size),
       ATOLL_END_OF(AtollBufferOptions, offset), ATOLL_END_OF(AtollBufferOptions, release),
       ATOLL_END_OF(AtollBufferOptions, user_data)},
      &read, sizeof(read)));
  int32_t kind = 0;  // a caller may have any number there
  static_assert(sizeof(kind) == sizeof(read.kind));
  std::memcpy(&kind, &read.kind, sizeof(kind));
  std::shared_ptr<void> owner;
  std::span<uint8_t> bytes(static_cast<uint8_t*>(read.data), read.size);
  atollrt::HostMemory whole({});
  if (kind == ATOLL_BUFFER_HEAP || kind == ATOLL_BUFFER_SHARED) {
    const bool is_callers = kind == ATOLL_BUFFER_SHARED && read.fd >= 0;
    auto memory = kind == ATOLL_BUFFER_HEAP ? atollrt::Buffer::Allocate(read.size)
                  : is_callers              ? atollrt::Buffer::MapShared(read.fd)
                                            : atollrt::Buffer::AllocateShared(read.size);
    ATOLL_RETURN_IF_ERROR(memory.status());
    whole = {(*memory).bytes(), (*memory).memfd()};
    whole.may_be_replaced = !is_callers;
    const size_t offset = is_callers ? static_cast<size_t>(read.offset) : 0;
    if (offset > whole.bytes.size() || read.size > whole.bytes.size() - offset) {
      return InvalidArgument("file %d has %zu bytes, %zu from %zu on are wanted", read.fd,
                             whole.bytes.size(), read.size, offset);
    }
    bytes = whole.bytes.subspan(offset, read.size);
    owner = std::make_shared<atollrt::Buffer>(*std::move(memory));
  } else if (kind == ATOLL_BUFFER_CALLER || kind == ATOLL_BUFFER_DMA) {
    if (read.data == nullptr && read.size > 0) {
      return InvalidArgument("argument 'AtollBufferOptions.data' is NULL");
    }
    owner = {read.data, [release = read.release, user_data = read.user_data](void*) {
               if (release != nullptr) release(user_data);
             }};
  } else {
    return atollrt::Unsupported("buffers of kind %d cannot be made yet", static_cast<int>(kind));
  }
  *buffer = new AtollBuffer{std::move(owner), bytes, kind == ATOLL_BUFFER_DMA, whole};
  return {};
}

}  // namespace

extern "C" {

AtollStatus AtollInterpreterCreate(const AtollModel* model, const AtollInterpreterOptions* options,
                                   AtollInterpreter** interpreter) {
  ATOLL_RETURN_IF_NULL(model, interpreter);
  AtollInterpreterOptions read = ATOLL_INTERPRETER_OPTIONS_INIT;
  if (options != nullptr) {
    if (const Status status = ReadInterpreterOptions(*options, &read); !status.ok()) {
      return ToC(status);
    }
  }
  auto handle = std::make_unique<AtollInterpreter>();
  handle->model = model->model;
  handle->options.threads = read.num_threads;
  handle->options.plan = {.priority = read.priority, .residency_set = read.residency_set};
  handle->options.keep_all_tensors = read.keep_all_tensors != 0;
  if (read.fallback != nullptr) handle->options.fallback = read.fallback->model;
  if (read.delegate != nullptr) handle->delegate = read.delegate->delegate;
  handle->options.delegate = handle->delegate.get();
  const AtollStatus status = Prepare(handle->model, handle->options, handle.get());
  if (status == ATOLL_OK) *interpreter = handle.release();
  return status;
}

AtollStatus AtollInterpreterGetSubstitute(const AtollInterpreter* interpreter, const char** path) {
  ATOLL_RETURN_IF_NULL(interpreter, path);
  *path = interpreter->substitute;
  return ToC(Status());
}

AtollStatus AtollInterpreterResizeInput(AtollInterpreter* interpreter, int32_t index,
                                        const int32_t* dims, int32_t num_dims) {
  ATOLL_RETURN_IF_NULL(interpreter);
  if (num_dims < 0 || (num_dims > 0 && dims == nullptr)) {
    return ToC(InvalidArgument("input %d is to have %d sizes at %p", index, num_dims,
                               static_cast<const void*>(dims)));
  }
  const auto& inputs = interpreter->interpreter->graph().inputs;
  if (!HasIndex("input", index, inputs.size())) return ATOLL_INVALID_ARGUMENT;
  std::erase_if(interpreter->input_shapes,
                [index](const atollrt::InputShape& shape) { return shape.index == index; });
  interpreter->input_shapes.push_back({.index = index, .shape = {dims, dims + num_dims}});
  interpreter->is_ready = false;
  return ToC(Status());
}

AtollStatus AtollInterpreterAllocateTensors(AtollInterpreter* interpreter) {
  ATOLL_RETURN_IF_NULL(interpreter);
  if (interpreter->is_ready) return ToC(Status());
  const auto model = atollrt::Model::WithInputShapes(interpreter->model, interpreter->input_shapes);
  if (!model.ok()) return ToC(model.status());
  atollrt::InterpreterOptions options = interpreter->options;
  if (options.fallback != nullptr) {
    auto fallback = atollrt::Model::WithInputShapes(options.fallback, interpreter->input_shapes);
    if (!fallback.ok()) return ToC(Status(fallback.status()).WithContext("the fallback model"));
    options.fallback = *std::move(fallback);
  }
  return Prepare(*model, std::move(options), interpreter);
}

AtollStatus AtollInterpreterSetInputBuffer(AtollInterpreter* interpreter, int32_t index,
                                           const AtollBuffer* buffer, size_t offset) {
  ATOLL_RETURN_IF_NULL(interpreter);
  const std::vector<int32_t>& tensors = interpreter->interpreter->graph().inputs;
  if (!HasIndex("input", index, tensors.size())) return ATOLL_INVALID_ARGUMENT;
  return ToC(SetMemory(interpreter, "input", tensors, index, buffer, offset));
}

AtollStatus AtollInterpreterSetOutputBuffer(AtollInterpreter* interpreter, int32_t index,
                                            const AtollBuffer* buffer, size_t offset) {
  ATOLL_RETURN_IF_NULL(interpreter);
  const std::vector<int32_t>& tensors = interpreter->interpreter->graph().outputs;
  if (!HasIndex("output", index, tensors.size())) return ATOLL_INVALID_ARGUMENT;
  return ToC(SetMemory(interpreter, "output", tensors, index, buffer, offset));
}

AtollStatus AtollBufferCreate(const AtollBufferOptions* options, AtollBuffer** buffer) {
  ATOLL_RETURN_IF_NULL(options, buffer);
  return ToC(CreateBuffer(*options, buffer));
}

void AtollBufferDelete(AtollBuffer* buffer) { delete buffer; }

void* AtollBufferData(const AtollBuffer* buffer) {
  return Has(buffer, "buffer") ? buffer->bytes.data() : nullptr;
}

size_t AtollBufferSize(const AtollBuffer* buffer) {
  return Has(buffer, "buffer") ? buffer->bytes.size() : 0;
}

void AtollInterpreterDelete(AtollInterpreter* interpreter) { delete interpreter; }

AtollStatus AtollInterpreterInvoke(AtollInterpreter* interpreter) {
  ATOLL_RETURN_IF_NULL(interpreter);
  if (const Status status = CheckReady(*interpreter); !status.ok()) return ToC(status);
  return ToC(interpreter->interpreter->Invoke());
}

AtollStatus AtollInterpreterInvokeAsync(AtollInterpreter* interpreter) {
  ATOLL_RETURN_IF_NULL(interpreter);
  if (const Status status = CheckReady(*interpreter); !status.ok()) return ToC(status);
  return ToC(interpreter->interpreter->InvokeAsync());
}

AtollStatus AtollInterpreterWait(AtollInterpreter* interpreter) {
  ATOLL_RETURN_IF_NULL(interpreter);
  return ToC(interpreter->interpreter->Wait());
}

AtollStatus AtollInterpreterCancel(AtollInterpreter* interpreter) {
  ATOLL_RETURN_IF_NULL(interpreter);
  interpreter->interpreter->Cancel();
  return ToC(Status());
}

AtollStatus AtollInterpreterResetVariableTensors(AtollInterpreter* interpreter) {
  ATOLL_RETURN_IF_NULL(interpreter);
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

int32_t AtollTensorDimSignature(const AtollTensor* tensor, int32_t dim) {
  if (!Has(tensor, "tensor")) return -2;
  const atollrt::Tensor& t = tensor->tensor();
  if (!HasIndex("dimension", dim, t.shape.size())) return -2;
  const auto at = static_cast<size_t>(dim);
  return t.shape_signature.size() == t.shape.size() ? t.shape_signature[at] : t.shape[at];
}

int32_t AtollTensorIndex(const AtollTensor* tensor) {
  return Has(tensor, "tensor") ? tensor->index : -1;
}

size_t AtollTensorByteSize(const AtollTensor* tensor) {
  return Has(tensor, "tensor") ? static_cast<size_t>(tensor->tensor().byte_size()) : 0;
}

void* AtollTensorData(AtollTensor* tensor) {
  if (!Has(tensor, "tensor") || !IsReady(*tensor)) return nullptr;
  return tensor->owner->interpreter->TensorBytes(tensor->index).data();
}

const void* AtollTensorConstData(const AtollTensor* tensor) {
  if (!Has(tensor, "tensor") || !IsReady(*tensor)) return nullptr;
  return tensor->owner->interpreter->ConstTensorBytes(tensor->index).data();
}

AtollQuantization AtollTensorQuantization(const AtollTensor* tensor) {
  if (!Has(tensor, "tensor")) return {};
  return {tensor->tensor().scale(), tensor->tensor().zero_point()};
}

AtollStatus AtollTensorGetChannelQuantization(const AtollTensor* tensor,
                                              AtollChannelQuantization* info) {
  ATOLL_RETURN_IF_NULL(tensor, info);
  const atollrt::Quantization& q = tensor->tensor().quantization;
  *info = {.count = static_cast<int32_t>(q.scales.size()),
           .dimension = q.dimension,
           .scales = q.scales.data(),
           .zero_points = q.zero_points.data()};
  return ToC(Status());
}

int32_t AtollTensorIsConstant(const AtollTensor* tensor) {
  return Has(tensor, "tensor") && tensor->tensor().is_constant() ? 1 : 0;
}

int32_t AtollTensorIsVariable(const AtollTensor* tensor) {
  return Has(tensor, "tensor") && tensor->tensor().is_variable ? 1 : 0;
}

AtollStatus AtollTensorCopyFromBuffer(AtollTensor* tensor, const void* data, size_t size) {
  ATOLL_RETURN_IF_NULL(tensor, data);
  if (!IsReady(*tensor)) return ATOLL_INVALID_ARGUMENT;
  const std::span<uint8_t> bytes = tensor->owner->interpreter->TensorBytes(tensor->index);
  if (bytes.size() != size) {
    return ToC(InvalidArgument("tensor '%s' has %zu bytes, not %zu", tensor->tensor().name.c_str(),
                               bytes.size(), size));
  }
  if (size > 0) std::memcpy(bytes.data(), data, size);
  return ToC(Status());
}

AtollStatus AtollTensorCopyToBuffer(const AtollTensor* tensor, void* data, size_t size) {
  ATOLL_RETURN_IF_NULL(tensor, data);
  if (!IsReady(*tensor)) return ATOLL_INVALID_ARGUMENT;
  const std::span<const uint8_t> bytes =
      tensor->owner->interpreter->ConstTensorBytes(tensor->index);
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
  ATOLL_RETURN_IF_NULL(interpreter, info);
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

AtollStatus AtollInterpreterGetNodeKernel(const AtollInterpreter* interpreter, int32_t index,
                                          AtollNodeKernel* kernel) {
  ATOLL_RETURN_IF_NULL(interpreter, kernel);
  const auto& placements = interpreter->interpreter->placements();
  if (!HasIndex("node", index, placements.size())) return ATOLL_INVALID_ARGUMENT;
  const atollrt::NodeKernel& used = placements[index].kernel;
  *kernel = {.name = used.name,
             .channels = used.channels,
             .float_channels = used.float_channels,
             .packed_in_file = used.uses_packed_weights ? 1 : 0};
  return ToC(Status());
}

int32_t AtollInterpreterGetPartitionCount(const AtollInterpreter* interpreter) {
  if (!Has(interpreter, "interpreter")) return 0;
  return static_cast<int32_t>(interpreter->interpreter->partitions().size());
}

AtollStatus AtollInterpreterGetPartitionInfo(const AtollInterpreter* interpreter, int32_t index,
                                             AtollPartitionInfo* info) {
  ATOLL_RETURN_IF_NULL(interpreter, info);
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
  ATOLL_RETURN_IF_NULL(interpreter, blocks, count);
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
  ATOLL_RETURN_IF_NULL(interpreter, info);
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
  ATOLL_RETURN_IF_NULL(interpreter, info);
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

AtollStatus AtollInterpreterGetCopiedBytes(const AtollInterpreter* interpreter, int64_t* bytes) {
  ATOLL_RETURN_IF_NULL(interpreter, bytes);
  *bytes = static_cast<int64_t>(interpreter->interpreter->last_cost().bytes_copied);
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
  return atollrt::UnitName(static_cast<atollrt::Unit>(unit));
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

}  // extern "C"
