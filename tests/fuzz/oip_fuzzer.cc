// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as the body of a request for an inference: a byte that says which model and which value
// of Inference-Header-Content-Length, two bytes for that value, the body. What is taken has bytes
// that lie inside the body or are its own, and an answer to it is JSON with the bytes behind it.
// Or, as the byte says, as the body of a request to load a model: what is taken is what a parser
// that keeps all of the JSON finds there.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "atoll/check.h"
#include "serve/access/access.h"
#include "serve/inference/json_text.h"
#include "serve/oip/infer_body.h"
#include "serve/oip/upload_json.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/allocation_meter.h"

namespace atollserve::oip_fuzzer {

namespace {

// As many inputs and types as a request may have to do with.
ModelInfo MakeModel(bool single) {
  ModelInfo model;
  model.name = "m";
  model.version = "1";
  model.labels = {"a", "b\xff", ""};
  const AtollQuantization scale = {.scale = 0.5F, .zero_point = -3};
  if (single) {
    model.inputs = {{"image", DataType::kInt8, {1, 4, 4, 1}, scale}};
    model.outputs = {{"scores", DataType::kInt8, {1, 3}, scale}};
    return model;
  }
  model.inputs = {{"INPUT0", DataType::kInt32, {1, 16}, {}},
                  {"INPUT1", DataType::kFp32, {2, 2}, {}},
                  {"flags", DataType::kBool, {3}, {}},
                  {"big", DataType::kInt64, {2}, {}}};
  model.outputs = {{"OUTPUT0", DataType::kFp32, {1, 2}, {}}, {"half", DataType::kFp16, {2}, {}}};
  return model;
}

void Check(const std::shared_ptr<const std::string>& body, const InferBody& request,
           const ModelInfo& model) {
  ATOLL_CHECK(request.inputs.size() <= model.inputs.size());
  ATOLL_CHECK(request.inputs.size() == request.input_regions.size());
  ATOLL_CHECK(request.outputs.size() <= model.outputs.size());
  const auto* const begin = reinterpret_cast<const uint8_t*>(body->data());
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const InputTensor& input = request.inputs[i];
    if (input.owner == body) {
      ATOLL_CHECK(input.bytes.data() >= begin &&
                  input.bytes.data() + input.bytes.size() <= begin + body->size());
    } else if (!request.input_regions[i]) {
      ATOLL_CHECK(input.bytes.size() ==
                  static_cast<size_t>(*ElementCount(input.shape)) * DataTypeBytes(input.type));
    }
    unsigned sum = 0;
    for (const uint8_t byte : input.bytes) sum += byte;  // all of it can be read
    ATOLL_CHECK(sum <= 255u * input.bytes.size());
  }
  InferOutcome outcome;
  outcome.model = model.name;
  outcome.version = model.version;
  for (const TensorInfo& info : model.outputs) {
    if (!request.outputs.empty() && outcome.outputs.size() == request.outputs.size()) break;
    outcome.outputs.push_back({.name = info.name,
                               .type = info.seen_type(request.real_values),
                               .shape = info.shape,
                               .bytes = {}});
    OutputTensor& output = outcome.outputs.back();
    output.bytes.assign(info.elements() * DataTypeBytes(output.type), '\x7f');
  }
  const auto text = FormatInferAnswer(request, model, outcome);
  if (!text.ok()) return;
  const size_t json_bytes = text->json_bytes.value_or(text->body.size());
  const auto json = ParseJson(std::string_view(text->body).substr(0, json_bytes));
  ATOLL_CHECK(json.ok() && json->is_object());
}

void CheckUpload(std::string_view body) {
  std::optional<ModelUpload> upload;
  {
    const atollrt::MemoryLimit limit(atollrt::ProportionalBytes(body.size()));
    auto read = ReadUpload(body);
    ATOLL_CHECK(read.ok() || !read.status().message().empty());
    if (!read.ok()) return;
    upload = *std::move(read);
  }
  const auto json = ParseJson(body);
  ATOLL_CHECK(json.ok() && json->is_object());
  size_t members = upload->files.size() + (upload->config ? 1 : 0);
  const auto parameters = json->find("parameters");
  if (parameters != json->end()) {
    ATOLL_CHECK(parameters->size() == members);
    for (const auto& [name, value] : parameters->items()) {
      const auto& text = value.get_ref<const std::string&>();
      if (name == "config") {
        ATOLL_CHECK(upload->config == text);
      } else {
        ATOLL_CHECK(upload->files.at(name.substr(5)) == *DecodeBase64(text));  // behind "file:"
      }
      --members;
    }
  }
  ATOLL_CHECK(members == 0);
}

}  // namespace

ATOLL_FUZZ_TARGET(oip) {
  if (size < 3) return 0;
  if ((data[0] & 8) != 0) {
    CheckUpload({reinterpret_cast<const char*>(data) + 3, size - 3});
    return 0;
  }
  static const ModelInfo models[] = {MakeModel(false), MakeModel(true)};
  const ModelInfo& model = models[data[0] & 1];
  const unsigned number = data[1] | data[2] << 8;
  const std::string header =
      (data[0] & 2) == 0   ? ""
      : (data[0] & 4) == 0 ? std::to_string(number)
                           : std::string({static_cast<char>(data[1]), static_cast<char>(data[2])});
  const auto body =
      std::make_shared<const std::string>(reinterpret_cast<const char*>(data) + 3, size - 3);
  const atollrt::MemoryLimit limit(atollrt::ProportionalBytes(size));
  const auto request = ParseInferBody(body, header, model);
  if (!request.ok()) {
    ATOLL_CHECK(!request.status().message().empty());
    return 0;
  }
  Check(body, *request, model);
  return 0;
}

}  // namespace atollserve::oip_fuzzer
