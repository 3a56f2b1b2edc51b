// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/oip_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/measure.h"

namespace atollcmd {
namespace {

constexpr int64_t kMaxInput = int64_t{1} << 30;
constexpr int kMaxTensors = 64;
constexpr OipDatatype kDatatypes[] = {
    {"BOOL", ATOLL_BOOL, 1},   {"UINT8", ATOLL_UINT8, 1},  {"INT8", ATOLL_INT8, 1},
    {"INT16", ATOLL_INT16, 2}, {"INT32", ATOLL_INT32, 4},  {"UINT32", ATOLL_UINT32, 4},
    {"INT64", ATOLL_INT64, 8}, {"FP16", ATOLL_FLOAT16, 2}, {"FP32", ATOLL_FLOAT32, 4},
};

// Of the description of a model; sizes that may be any are 1.
OipTensor ReadTensor(const Json& json, const std::string& where) {
  OipTensor tensor;
  const auto fail = [&](const std::string& what) {
    Fail(ExitCode::kBadModel, "{}: {}; check the server with 'curl'", where, Printable(what));
  };
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string() ||
      !json.contains("datatype") || !json["datatype"].is_string() || !json.contains("shape") ||
      !json["shape"].is_array()) {
    fail("an input is described without name, datatype and shape");
  }
  tensor.name = json["name"].get<std::string>();
  const auto datatype = json["datatype"].get<std::string>();
  tensor.datatype = FindOipDatatype(datatype);
  if (tensor.datatype == nullptr) {
    fail(fmt::format("input '{}' has datatype '{}', which cannot be made up", tensor.name,
                     datatype));
  }
  int64_t bytes = tensor.datatype->bytes;
  for (const Json& size : json["shape"]) {
    const int64_t number = size.is_number_integer() ? size.get<int64_t>() : 0;
    const int64_t dim = number == -1 ? 1 : number;
    if (dim < 1 || dim > kMaxInput / bytes) {
      fail(fmt::format(
          "input '{}' has a size of {} in its shape, which is more than {} bytes or none",
          tensor.name, size.is_number_integer() ? std::to_string(number) : size.type_name(),
          kMaxInput));
    }
    bytes *= dim;
    tensor.shape.push_back(dim);
  }
  tensor.bytes = static_cast<size_t>(bytes);
  return tensor;
}

std::string OipShapeText(const OipTensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ","));
}

}  // namespace

const OipDatatype* FindOipDatatype(std::string_view name) {
  const auto* found = std::find_if(std::begin(kDatatypes), std::end(kDatatypes),
                                   [&](const OipDatatype& type) { return name == type.name; });
  return found == std::end(kDatatypes) ? nullptr : found;
}

std::vector<OipTensor> ReadOipInputs(const Json& model, const std::string& where) {
  std::vector<OipTensor> tensors;
  const bool is_good = model.is_object() && model.contains("inputs") &&
                       model["inputs"].is_array() && !model["inputs"].empty() &&
                       model["inputs"].size() <= kMaxTensors;
  if (!is_good) {
    Fail(ExitCode::kBadModel,
         "{}: the description lists no inputs, or more than {}; check the "
         "server with 'curl'",
         where, kMaxTensors);
  }
  for (const Json& input : model["inputs"]) tensors.push_back(ReadTensor(input, where));
  return tensors;
}

OipTarget::OipTarget(std::string address, std::string model, std::vector<OipTensor> inputs,
                     std::vector<std::unique_ptr<Stream>> streams)
    : address_(std::move(address)),
      model_(std::move(model)),
      inputs_(std::move(inputs)),
      streams_(std::move(streams)) {}

Inputs OipTarget::MakeInputs(const std::vector<std::string>& files) {
  Inputs inputs;
  for (const OipTensor& tensor : inputs_) inputs.emplace_back(tensor.bytes);
  std::vector<InputSlot> slots;
  for (size_t i = 0; i < inputs.size(); ++i) {
    slots.push_back({.name = inputs_[i].name,
                     .type = inputs_[i].datatype->type,
                     .shape = OipShapeText(inputs_[i]),
                     .bytes = inputs[i]});
  }
  FillInputs(slots, 1, files);
  return inputs;
}

void OipTarget::CheckInputs(const Inputs& inputs) const {
  if (inputs.size() != inputs_.size()) {
    Fail(ExitCode::kUsage,
         "'{}' at {} takes {} inputs, the model file {}; give the file that is served",
         Printable(model_), address_, inputs_.size(), inputs.size());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].size() == inputs_[i].bytes) continue;
    Fail(ExitCode::kUsage,
         "input '{}' of '{}' at {} takes {} bytes ({} {}), of the model file {}; give the file "
         "that is served",
         Printable(inputs_[i].name), Printable(model_), address_, inputs_[i].bytes,
         inputs_[i].datatype->name, OipShapeText(inputs_[i]), inputs[i].size());
  }
}

Json OipTarget::Describe() const {
  Json json = {{"model", model_}};
  for (const char* key : {"substitute", "input_shapes", "device", "partition_count",
                          "nodes_on_device", "nodes_on_cpu"}) {
    json[key] = nullptr;
  }
  json["warnings"] = Json::array();
  for (const char* key :
       {"threads", "load_ms", "arena_bytes", "arena_lower_bound_bytes", "modelled_device"}) {
    json[key] = nullptr;
  }
  return json;
}

}  // namespace atollcmd
