// SPDX-License-Identifier: Apache-2.0
#include "serve/grpc/grpc_messages.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace atollserve {
namespace {

using atollrt::InvalidArgument;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;

constexpr const char* kPlatform = "tflite";

using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;

// ---- Parameters ---------------------------------------------------------------------------------

Result<std::optional<int64_t>> WholeNumber(const Parameters& parameters, const char* name) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) return std::optional<int64_t>();
  const inference::InferParameter& value = found->second;
  if (value.has_int64_param()) return std::optional<int64_t>(value.int64_param());
  if (value.has_uint64_param() && value.uint64_param() <= std::numeric_limits<int64_t>::max()) {
    return std::optional<int64_t>(static_cast<int64_t>(value.uint64_param()));
  }
  return InvalidArgument("parameter '%s' must be a whole number", name);
}

Status NoSharedMemory() {
  return {StatusCode::kPermissionDenied,
          "shared memory is for clients on this computer, of a server that was started with "
          "--allow-shared-memory"};
}

// Where in shared memory a tensor is; nullopt if it is not there.
Result<std::optional<RegionRange>> RegionOf(const Parameters& parameters,
                                            const std::string& tensor) {
  const auto found = parameters.find("shared_memory_region");
  if (found == parameters.end()) return std::optional<RegionRange>();
  ATOLL_ASSIGN_OR_RETURN(const auto offset, WholeNumber(parameters, "shared_memory_offset"));
  ATOLL_ASSIGN_OR_RETURN(const auto bytes, WholeNumber(parameters, "shared_memory_byte_size"));
  if (!found->second.has_string_param() || !bytes.has_value() || *bytes < 0 ||
      offset.value_or(0) < 0) {
    return InvalidArgument(
        "tensor '%.100s' needs the text shared_memory_region and the number "
        "shared_memory_byte_size",
        tensor.c_str());
  }
  return std::optional<RegionRange>({.region = found->second.string_param(),
                                     .offset = static_cast<uint64_t>(offset.value_or(0)),
                                     .bytes = static_cast<uint64_t>(*bytes)});
}

Result<bool> Flag(const Parameters& parameters, const char* name, bool otherwise) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) return otherwise;
  if (!found->second.has_bool_param()) {
    return InvalidArgument("parameter '%s' must be true or false", name);
  }
  return found->second.bool_param();
}

// ---- Tensors ------------------------------------------------------------------------------------

template <typename Stored, typename Field>
Status Append(const Field& field, const std::string& name, std::vector<uint8_t>* bytes) {
  bytes->resize(static_cast<size_t>(field.size()) * sizeof(Stored));
  uint8_t* to = bytes->data();
  for (const auto value : field) {
    const auto stored = static_cast<Stored>(value);
    if (static_cast<decltype(value)>(stored) != value && value == value) {
      return InvalidArgument("input '%s' has a value that its datatype cannot hold", name.c_str());
    }
    std::memcpy(to, &stored, sizeof(stored));
    to += sizeof(stored);
  }
  return {};
}

int FieldsOf(const inference::InferTensorContents& contents) {
  return (contents.bool_contents_size() > 0) + (contents.int_contents_size() > 0) +
         (contents.int64_contents_size() > 0) + (contents.uint_contents_size() > 0) +
         (contents.uint64_contents_size() > 0) + (contents.fp32_contents_size() > 0) +
         (contents.fp64_contents_size() > 0) + (contents.bytes_contents_size() > 0);
}

// The bytes of a tensor whose elements came one by one.
Status BytesOf(const inference::InferTensorContents& contents, DataType type,
               const std::string& name, std::vector<uint8_t>* bytes) {
  if (FieldsOf(contents) > 1) {
    return InvalidArgument("input '%s' has contents of several types", name.c_str());
  }
  switch (type) {
    case DataType::kBool:
      return Append<uint8_t>(contents.bool_contents(), name, bytes);
    case DataType::kInt8:
      return Append<int8_t>(contents.int_contents(), name, bytes);
    case DataType::kInt16:
      return Append<int16_t>(contents.int_contents(), name, bytes);
    case DataType::kInt32:
      return Append<int32_t>(contents.int_contents(), name, bytes);
    case DataType::kInt64:
      return Append<int64_t>(contents.int64_contents(), name, bytes);
    case DataType::kUint8:
      return Append<uint8_t>(contents.uint_contents(), name, bytes);
    case DataType::kUint16:
      return Append<uint16_t>(contents.uint_contents(), name, bytes);
    case DataType::kUint32:
      return Append<uint32_t>(contents.uint_contents(), name, bytes);
    case DataType::kUint64:
      return Append<uint64_t>(contents.uint64_contents(), name, bytes);
    case DataType::kFp32:
      return Append<float>(contents.fp32_contents(), name, bytes);
    case DataType::kFp64:
      return Append<double>(contents.fp64_contents(), name, bytes);
    default:
      return InvalidArgument("input '%s' is %s, whose bytes go into raw_input_contents",
                             name.c_str(), DataTypeName(type));
  }
}

template <typename Stored, typename Field>
void Take(const std::string& bytes, Field* field) {
  const size_t count = bytes.size() / sizeof(Stored);
  field->Reserve(static_cast<int>(count));
  for (size_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, bytes.data() + i * sizeof(Stored), sizeof(value));
    field->Add(value);
  }
}

// False if elements of the type have no form of their own.
bool SetContents(const OutputTensor& output, inference::InferTensorContents* contents) {
  const std::string& bytes = output.bytes;
  switch (output.type) {
    case DataType::kBool:
      Take<uint8_t>(bytes, contents->mutable_bool_contents());
      return true;
    case DataType::kInt8:
      Take<int8_t>(bytes, contents->mutable_int_contents());
      return true;
    case DataType::kInt16:
      Take<int16_t>(bytes, contents->mutable_int_contents());
      return true;
    case DataType::kInt32:
      Take<int32_t>(bytes, contents->mutable_int_contents());
      return true;
    case DataType::kInt64:
      Take<int64_t>(bytes, contents->mutable_int64_contents());
      return true;
    case DataType::kUint8:
      Take<uint8_t>(bytes, contents->mutable_uint_contents());
      return true;
    case DataType::kUint16:
      Take<uint16_t>(bytes, contents->mutable_uint_contents());
      return true;
    case DataType::kUint32:
      Take<uint32_t>(bytes, contents->mutable_uint_contents());
      return true;
    case DataType::kUint64:
      Take<uint64_t>(bytes, contents->mutable_uint64_contents());
      return true;
    case DataType::kFp32:
      Take<float>(bytes, contents->mutable_fp32_contents());
      return true;
    case DataType::kFp64:
      Take<double>(bytes, contents->mutable_fp64_contents());
      return true;
    default:
      return false;
  }
}

void SetDuration(const CountAndTime& from, inference::StatisticDuration* to) {
  to->set_count(static_cast<uint64_t>(from.count));
  to->set_ns(static_cast<uint64_t>(from.ns));
}

inference::DataType ConfigTypeOf(DataType type) {
  switch (type) {
    case DataType::kBool:
      return inference::TYPE_BOOL;
    case DataType::kUint8:
      return inference::TYPE_UINT8;
    case DataType::kUint16:
      return inference::TYPE_UINT16;
    case DataType::kUint32:
      return inference::TYPE_UINT32;
    case DataType::kUint64:
      return inference::TYPE_UINT64;
    case DataType::kInt8:
      return inference::TYPE_INT8;
    case DataType::kInt16:
      return inference::TYPE_INT16;
    case DataType::kInt32:
      return inference::TYPE_INT32;
    case DataType::kInt64:
      return inference::TYPE_INT64;
    case DataType::kFp16:
      return inference::TYPE_FP16;
    case DataType::kFp32:
      return inference::TYPE_FP32;
    case DataType::kFp64:
      return inference::TYPE_FP64;
    case DataType::kBytes:
      return inference::TYPE_STRING;
  }
  return inference::TYPE_INVALID;
}

void SetTensor(const TensorInfo& info, inference::ModelMetadataResponse::TensorMetadata* tensor) {
  tensor->set_name(info.name);
  tensor->set_datatype(DataTypeName(info.type));
  for (const int64_t size : info.shape) tensor->add_shape(size);
}

}  // namespace

grpc::StatusCode GrpcCodeOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return grpc::StatusCode::OK;
    case StatusCode::kInvalidArgument:
    case StatusCode::kCorruptModel:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case StatusCode::kUnsupported:
      return grpc::StatusCode::UNIMPLEMENTED;
    case StatusCode::kNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case StatusCode::kPermissionDenied:
      return grpc::StatusCode::PERMISSION_DENIED;
    case StatusCode::kResourceExhausted:
    case StatusCode::kDeviceBusy:
    case StatusCode::kDeviceLost:
      return grpc::StatusCode::UNAVAILABLE;
    case StatusCode::kTimeout:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case StatusCode::kCancelled:
      return grpc::StatusCode::CANCELLED;
    default:
      return grpc::StatusCode::INTERNAL;
  }
}

grpc::Status ToGrpc(const Status& status) {
  return status.ok() ? grpc::Status::OK : grpc::Status(GrpcCodeOf(status.code()), status.message());
}

std::optional<MonotonicTime> DeadlineOf(std::chrono::system_clock::time_point deadline) {
  const auto left = deadline - std::chrono::system_clock::now();
  if (left > std::chrono::hours(24)) return std::nullopt;
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<MonotonicTime::duration>(left);
}

namespace {

Status SetParameters(const Parameters& parameters, InferRequest* request, AnswerForm* form) {
  ATOLL_ASSIGN_OR_RETURN(form->raw, Flag(parameters, "binary_data_output", true));
  ATOLL_ASSIGN_OR_RETURN(const bool quantized, Flag(parameters, "atoll_quantized", true));
  request->real_values = !quantized;
  ATOLL_ASSIGN_OR_RETURN(const auto priority, WholeNumber(parameters, "priority"));
  if (priority.has_value()) {
    if (*priority < 0 || *priority > std::numeric_limits<uint32_t>::max()) {
      return InvalidArgument("priority %lld is not from 0 to %u", static_cast<long long>(*priority),
                             std::numeric_limits<uint32_t>::max());
    }
    request->priority = static_cast<uint32_t>(*priority);
  }
  ATOLL_ASSIGN_OR_RETURN(const auto timeout_us, WholeNumber(parameters, "timeout"));
  if (timeout_us.has_value() && *timeout_us != 0) {
    constexpr int64_t kMostUs = int64_t{24} * 3600 * 1'000'000;
    if (*timeout_us < 0) {
      return InvalidArgument("timeout %lld is negative; it counts microseconds",
                             static_cast<long long>(*timeout_us));
    }
    const MonotonicTime by = std::chrono::steady_clock::now() +
                             std::chrono::microseconds(std::min(*timeout_us, kMostUs));
    request->deadline = std::min(by, request->deadline.value_or(by));
  }
  return {};
}

Status CheckCount(const char* what, int count, const std::string& model,
                  const std::vector<TensorInfo>& tensors) {
  if (static_cast<size_t>(count) <= tensors.size()) return {};
  return InvalidArgument("the request has %d %s, more than the %zu of model '%s'", count, what,
                         tensors.size(), model.c_str());
}

// One input. `next_raw` is the next of the raw_input_contents, which those that lie in shared
// memory have none of.
Result<InputTensor> InputOf(const inference::ModelInferRequest& message,
                            const inference::ModelInferRequest::InferInputTensor& from,
                            const ModelInfo& model, bool real_values, SharedMemory* memory,
                            int* next_raw) {
  InputTensor input;
  input.name = from.name();
  const std::optional<DataType> type = ParseDataType(from.datatype());
  if (!type.has_value()) {
    return InvalidArgument("input '%.100s' has datatype '%.20s', which is none of the protocol",
                           from.name().c_str(), from.datatype().c_str());
  }
  input.type = *type;
  input.shape.assign(from.shape().begin(), from.shape().end());
  ATOLL_ASSIGN_OR_RETURN(const auto region, RegionOf(from.parameters(), from.name()));
  if (region.has_value()) {
    if (memory == nullptr) return NoSharedMemory();
    ATOLL_RETURN_IF_ERROR(memory->ReadInput(*region, model, real_values, &input));
    return input;
  }
  if (message.raw_input_contents_size() == 0) {
    auto bytes = std::make_shared<std::vector<uint8_t>>();
    ATOLL_RETURN_IF_ERROR(BytesOf(from.contents(), *type, from.name(), bytes.get()));
    input.bytes = *bytes;
    input.owner = std::move(bytes);
    return input;
  }
  if (from.has_contents() && FieldsOf(from.contents()) > 0) {
    return InvalidArgument("input '%.100s' has contents beside raw_input_contents",
                           from.name().c_str());
  }
  if (*next_raw == message.raw_input_contents_size()) {
    return InvalidArgument("there are only %d raw_input_contents for %d inputs", *next_raw,
                           message.inputs_size());
  }
  const std::string& bytes = message.raw_input_contents((*next_raw)++);
  input.bytes = {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  return input;
}

}  // namespace

Result<InferRequest> RequestOf(const inference::ModelInferRequest& message, const ModelInfo& model,
                               const std::string& client, std::optional<MonotonicTime> deadline,
                               SharedMemory* memory, AnswerForm* form) {
  InferRequest request;
  request.model = message.model_name();
  request.version = message.model_version();
  request.client = client;
  request.deadline = deadline;
  ATOLL_RETURN_IF_ERROR(SetParameters(message.parameters(), &request, form));
  // Before any of them takes memory.
  ATOLL_RETURN_IF_ERROR(CheckCount("inputs", message.inputs_size(), model.name, model.inputs));
  ATOLL_RETURN_IF_ERROR(CheckCount("outputs", message.outputs_size(), model.name, model.outputs));
  int next_raw = 0;
  for (const auto& from : message.inputs()) {
    ATOLL_ASSIGN_OR_RETURN(InputTensor input,
                           InputOf(message, from, model, request.real_values, memory, &next_raw));
    request.inputs.push_back(std::move(input));
  }
  if (next_raw != message.raw_input_contents_size()) {
    return InvalidArgument("there are %d raw_input_contents for %d inputs",
                           message.raw_input_contents_size(), message.inputs_size());
  }
  for (const auto& output : message.outputs()) {
    request.outputs.push_back(output.name());
    ATOLL_ASSIGN_OR_RETURN(auto region, RegionOf(output.parameters(), output.name()));
    if (region.has_value() && memory == nullptr) return NoSharedMemory();
    form->regions.push_back(std::move(region));
  }
  form->memory = memory;
  return request;
}

Status SetAnswer(InferOutcome outcome, const AnswerForm& form,
                 inference::ModelInferResponse* answer) {
  answer->set_model_name(std::move(outcome.model));
  answer->set_model_version(std::move(outcome.version));
  answer->set_id(form.id);
  auto& parameters = *answer->mutable_parameters();
  parameters["atoll_queue_us"].set_int64_param(outcome.times.queue_ns / 1000);
  if (outcome.device_cycles > 0) {
    parameters["atoll_device_cycles"].set_int64_param(outcome.device_cycles);
  }
  for (size_t i = 0; i < outcome.outputs.size(); ++i) {
    OutputTensor& output = outcome.outputs[i];
    auto* const to = answer->add_outputs();
    to->set_name(output.name);
    to->set_datatype(DataTypeName(output.type));
    for (const int64_t size : output.shape) to->add_shape(size);
    if (i < form.regions.size() && form.regions[i].has_value()) {
      const RegionRange& region = *form.regions[i];
      ATOLL_RETURN_IF_ERROR(form.memory->Write(
          region, {reinterpret_cast<const uint8_t*>(output.bytes.data()), output.bytes.size()}));
      auto& where = *to->mutable_parameters();
      where["shared_memory_region"].set_string_param(region.region);
      where["shared_memory_offset"].set_int64_param(static_cast<int64_t>(region.offset));
      where["shared_memory_byte_size"].set_int64_param(static_cast<int64_t>(output.bytes.size()));
      if (form.raw) answer->add_raw_output_contents();  // clients count on one for each output
      continue;
    }
    if (form.raw) {
      answer->add_raw_output_contents(std::move(output.bytes));
    } else if (!SetContents(output, to->mutable_contents())) {
      return InvalidArgument("output '%s' is %s, which has no contents but raw ones",
                             output.name.c_str(), DataTypeName(output.type));
    }
  }
  return {};
}

void SetMetadata(const ModelInfo& info, inference::ModelMetadataResponse* metadata) {
  metadata->set_name(info.name);
  for (const std::string& version : info.versions) metadata->add_versions(version);
  metadata->set_platform(kPlatform);
  for (const TensorInfo& input : info.inputs) SetTensor(input, metadata->add_inputs());
  for (const TensorInfo& output : info.outputs) SetTensor(output, metadata->add_outputs());
  for (const auto& [name, value] : info.properties) (*metadata->mutable_properties())[name] = value;
}

void SetConfig(const ModelInfo& info, inference::ModelConfig* config) {
  config->set_name(info.name);
  config->set_platform(kPlatform);
  config->set_backend("atoll");
  const auto set = [](const TensorInfo& tensor, auto* to) {
    to->set_name(tensor.name);
    to->set_data_type(ConfigTypeOf(tensor.type));
    for (const int64_t size : tensor.shape) to->add_dims(size);
  };
  for (const TensorInfo& tensor : info.inputs) set(tensor, config->add_input());
  for (const TensorInfo& tensor : info.outputs) set(tensor, config->add_output());
}

void SetStatistics(const ModelStatistics& from, inference::ModelStatistics* to) {
  to->set_name(from.name);
  to->set_version(from.version);
  to->set_last_inference(static_cast<uint64_t>(from.last_inference_ms));
  to->set_inference_count(static_cast<uint64_t>(from.inference_count));
  to->set_execution_count(static_cast<uint64_t>(from.execution_count));
  auto* const all = to->mutable_inference_stats();
  SetDuration(from.success, all->mutable_success());
  SetDuration(from.fail, all->mutable_fail());
  SetDuration(from.queue, all->mutable_queue());
  SetDuration(from.input, all->mutable_compute_input());
  SetDuration(from.infer, all->mutable_compute_infer());
  SetDuration(from.output, all->mutable_compute_output());
  if (from.execution_count == 0) return;
  auto* const batch = to->add_batch_stats();
  batch->set_batch_size(1);
  SetDuration(from.input, batch->mutable_compute_input());
  SetDuration(from.infer, batch->mutable_compute_infer());
  SetDuration(from.output, batch->mutable_compute_output());
}

Result<ModelUpload> UploadOf(
    google::protobuf::Map<std::string, inference::ModelRepositoryParameter>* parameters) {
  constexpr std::string_view kFile = "file:";
  ModelUpload upload;
  for (auto& [name, value] : *parameters) {
    std::string bytes;
    if (value.has_string_param()) {
      bytes = std::move(*value.mutable_string_param());
    } else if (value.has_bytes_param()) {
      bytes = std::move(*value.mutable_bytes_param());
    } else {
      return InvalidArgument("parameter '%.100s' must be text or bytes", name.c_str());
    }
    if (name == "config") {
      upload.config = std::move(bytes);
    } else if (name.starts_with(kFile)) {
      upload.files[name.substr(kFile.size())] = std::move(bytes);
    } else {
      return InvalidArgument("parameter '%.100s' is neither 'config' nor 'file:...'", name.c_str());
    }
  }
  return upload;
}

}  // namespace atollserve
