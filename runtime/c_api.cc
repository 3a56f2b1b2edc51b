// SPDX-License-Identifier: Apache-2.0
//
// The C interface of runtime.h over the C++ classes; nothing else happens here.
#include "runtime/c_api.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/self_test.h"

using atollrt::Status;
using atollrt::StatusCode;

namespace {

// No struct of options will ever have more; a size that was never set may be anything.
constexpr size_t kMaxOptionsBytes = 4096;

std::string& LastError() {
  thread_local std::string message;
  return message;
}

}  // namespace

namespace atollrt {

AtollStatus ToC(const Status& status) {
  // The enumerations have the same values.
  static_assert(static_cast<int>(StatusCode::kOk) == ATOLL_OK &&
                static_cast<int>(StatusCode::kDeviceLost) == ATOLL_DEVICE_LOST &&
                static_cast<int>(StatusCode::kInternal) == ATOLL_INTERNAL);
  LastError() = status.message();
  return static_cast<AtollStatus>(status.code());
}

AtollStatus NullArgument(const char* name) {
  return ToC(InvalidArgument("argument '%s' is NULL", name));
}

AtollStatus CheckNotNull(const char* names, std::initializer_list<const void*> arguments) {
  for (const void* argument : arguments) {
    const size_t length = std::strcspn(names, ",");
    if (argument == nullptr) return NullArgument(std::string(names, length).c_str());
    names += length + (names[length] == ',' ? 2 : 0);
  }
  return ATOLL_OK;
}

bool HasIndex(const char* what, int32_t index, size_t count) {
  if (index >= 0 && static_cast<size_t>(index) < count) return true;
  ToC(InvalidArgument("%s %d; there are %zu, counted from 0", what, index, count));
  return false;
}

Status ReadOptions(const char* name, const char* macro, const void* given,
                   std::initializer_list<size_t> ends, void* options, size_t size) {
  size_t given_size = 0;
  std::memcpy(&given_size, given, sizeof(given_size));
  // A struct has room behind its last field so that its size is a multiple of its alignment.
  const bool is_known = given_size == size || given_size == sizeof(given_size) ||
                        std::ranges::any_of(ends, [&](size_t end) {
                          return given_size == end || given_size == AlignUp(end, alignof(void*));
                        });
  const auto* const bytes = static_cast<const uint8_t*>(given);
  const bool is_newer =
      given_size > size && given_size <= kMaxOptionsBytes &&
      std::all_of(bytes + size, bytes + given_size, [](uint8_t byte) { return byte == 0; });
  if (!is_known && !is_newer) {
    return InvalidArgument(
        "%s.struct_size is %zu, which no version of it has that this library knows (this one has "
        "%zu), or what is new in it is set; use %s",
        name, given_size, size, macro);
  }
  std::memcpy(options, given, std::min(given_size, size));
  std::memcpy(options, &size, sizeof(size));
  return {};
}

}  // namespace atollrt

namespace {

using atollrt::Has;
using atollrt::HasIndex;
using atollrt::InvalidArgument;
using atollrt::NullArgument;
using atollrt::ToC;

// The handle of a model, with what its signatures point at.
AtollModel* MakeModel(std::shared_ptr<const atollrt::Model> model) {
  auto* handle = new AtollModel{std::move(model), {}, {}};
  handle->tensors.resize(handle->model->graph().tensors.size());
  int32_t index = 0;
  for (AtollTensor& tensor : handle->tensors) {
    tensor = {.index = index++, .model = handle->model.get()};
  }
  for (const atollrt::Signature& signature : handle->model->extras().signatures) {
    auto& tensors = handle->signature_tensors.emplace_back();
    for (const auto* ends : {&signature.inputs, &signature.outputs}) {
      for (const auto& end : *ends) tensors.push_back({end.name.c_str(), end.tensor});
    }
  }
  return handle;
}

const AtollTensor* TensorAt(const AtollModel& model, const char* kind,
                            const std::vector<int32_t>& ends, int32_t index) {
  if (!HasIndex(kind, index, ends.size())) return nullptr;
  return &model.tensors[static_cast<size_t>(ends[static_cast<size_t>(index)])];
}

atollrt::Result<AtollModelOptions> ReadModelOptions(const AtollModelOptions* given) {
  AtollModelOptions options = ATOLL_MODEL_OPTIONS_INIT;
  if (given == nullptr) return options;
  ATOLL_RETURN_IF_ERROR(atollrt::ReadOptions("AtollModelOptions", "ATOLL_MODEL_OPTIONS_INIT", given,
                                             {ATOLL_END_OF(AtollModelOptions, input_shapes),
                                              ATOLL_END_OF(AtollModelOptions, input_shape_count),
                                              ATOLL_END_OF(AtollModelOptions, copy_file)},
                                             &options, sizeof(options)));
  return options;
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

// Sets `model` to what `load` makes of options and shapes.
template <typename Load>
AtollStatus CreateModel(const AtollModelOptions* options, AtollModel** model, const Load& load) {
  const auto read = ReadModelOptions(options);
  if (!read.ok()) return ToC(read.status());
  const auto input_shapes = InputShapesOf(*read);
  if (!input_shapes.ok()) return ToC(input_shapes.status());
  auto loaded = load(*read, *input_shapes);
  if (!loaded.ok()) return ToC(loaded.status());
  *model = MakeModel(*std::move(loaded));
  return ToC(Status());
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
  ATOLL_RETURN_IF_NULL(name);
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
  ATOLL_RETURN_IF_NULL(path, model);
  return CreateModel(options, model, [path](const AtollModelOptions& read, const auto& shapes) {
    return read.copy_file != 0 ? atollrt::Model::FromCopyOfFile(path, shapes)
                               : atollrt::Model::FromFile(path, shapes);
  });
}

AtollStatus AtollModelCreateFromBufferWithOptions(const void* data, size_t size,
                                                  const AtollModelOptions* options,
                                                  AtollModel** model) {
  ATOLL_RETURN_IF_NULL(data, model);
  const std::span bytes(static_cast<const uint8_t*>(data), size);
  return CreateModel(options, model, [bytes](const AtollModelOptions&, const auto& shapes) {
    return atollrt::Model::FromBuffer(bytes, shapes);
  });
}

void AtollModelDelete(AtollModel* model) { delete model; }

int32_t AtollModelHasOperator(const AtollModel* model, const char* op) {
  if (!Has(model, "model") || !Has(op, "op")) return 0;
  for (const atollrt::Graph& graph : model->model->graphs()) {
    for (const atollrt::Node& node : graph.nodes) {
      if (node.op_name() == op || atollrt::OpTypeName(node.type) == op) return 1;
    }
  }
  return 0;
}

int32_t AtollModelGetSignatureCount(const AtollModel* model) {
  if (!Has(model, "model")) return 0;
  return static_cast<int32_t>(model->model->extras().signatures.size());
}

AtollStatus AtollModelGetSignature(const AtollModel* model, int32_t index,
                                   AtollSignatureInfo* info) {
  ATOLL_RETURN_IF_NULL(model, info);
  const auto& signatures = model->model->extras().signatures;
  if (!HasIndex("signature", index, signatures.size())) return ATOLL_INVALID_ARGUMENT;
  const atollrt::Signature& signature = signatures[static_cast<size_t>(index)];
  const AtollSignatureTensor* const tensors =
      model->signature_tensors[static_cast<size_t>(index)].data();
  *info = {.key = signature.key.c_str(),
           .subgraph = signature.graph,
           .inputs = tensors,
           .input_count = static_cast<int32_t>(signature.inputs.size()),
           .outputs = tensors + signature.inputs.size(),
           .output_count = static_cast<int32_t>(signature.outputs.size())};
  return ToC(Status());
}

int32_t AtollModelGetTensorCount(const AtollModel* model) {
  return Has(model, "model") ? static_cast<int32_t>(model->tensors.size()) : 0;
}

const AtollTensor* AtollModelGetTensor(const AtollModel* model, int32_t index) {
  if (!Has(model, "model") || !HasIndex("tensor", index, model->tensors.size())) return nullptr;
  return &model->tensors[static_cast<size_t>(index)];
}

int32_t AtollModelGetInputTensorCount(const AtollModel* model) {
  return Has(model, "model") ? static_cast<int32_t>(model->model->graph().inputs.size()) : 0;
}

const AtollTensor* AtollModelGetInputTensor(const AtollModel* model, int32_t index) {
  return Has(model, "model") ? TensorAt(*model, "input", model->model->graph().inputs, index)
                             : nullptr;
}

int32_t AtollModelGetOutputTensorCount(const AtollModel* model) {
  return Has(model, "model") ? static_cast<int32_t>(model->model->graph().outputs.size()) : 0;
}

const AtollTensor* AtollModelGetOutputTensor(const AtollModel* model, int32_t index) {
  return Has(model, "model") ? TensorAt(*model, "output", model->model->graph().outputs, index)
                             : nullptr;
}

int32_t AtollModelGetMetadataCount(const AtollModel* model) {
  if (!Has(model, "model")) return 0;
  return static_cast<int32_t>(model->model->extras().metadata.size());
}

AtollStatus AtollModelGetMetadata(const AtollModel* model, int32_t index, const char** name,
                                  const void** data, size_t* size) {
  ATOLL_RETURN_IF_NULL(model, name, data, size);
  const auto& metadata = model->model->extras().metadata;
  if (!HasIndex("metadata", index, metadata.size())) return ATOLL_INVALID_ARGUMENT;
  const atollrt::Metadata& entry = metadata[static_cast<size_t>(index)];
  *name = entry.name.c_str();
  *data = entry.data.data();
  *size = entry.data.size();
  return ToC(Status());
}

AtollStatus AtollSelfTest(void) { return ToC(atollrt::RunSelfTest()); }

}  // extern "C"
