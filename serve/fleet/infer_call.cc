// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/infer_call.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "atoll/picture/image.h"
#include "serve/inference/json_text.h"

namespace atollserve {
namespace {

using atollrt::InvalidArgument;
using atollrt::Result;
using atollrt::Status;
using atollrt::Unsupported;

// A picture takes 16 bytes of memory for each of its pixels, at most.
constexpr int64_t kMaxPixels = int64_t{1} << 24;
constexpr size_t kLongJson = 64 << 10;
constexpr uint64_t kDayUs = uint64_t{86'400} * 1'000'000;

Result<uint64_t> ParseCount(const char* name, std::string_view text, uint64_t most) {
  uint64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [number_end, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc() || number_end != end || count > most) {
    return InvalidArgument("%s is '%s'; it is a whole number up to %llu", name,
                           std::string(text.substr(0, 40)).c_str(),
                           static_cast<unsigned long long>(most));
  }
  return count;
}

bool IsPicture(std::string_view content_type) { return content_type.starts_with("image/"); }

}  // namespace

Result<std::optional<uint64_t>> ParseBudget(std::string_view text) {
  if (text.empty()) return std::optional<uint64_t>();
  ATOLL_ASSIGN_OR_RETURN(const uint64_t budget, ParseCount(kBudgetHeader, text, kDayUs));
  return std::optional<uint64_t>(budget);
}

bool IsShortCall(const CallHeaders& headers, size_t body_bytes) {
  if (IsPicture(headers.content_type)) return false;
  return headers.json_bytes.empty() ? body_bytes <= kLongJson : headers.json_bytes.size() <= 4;
}

Result<std::string> PictureTensor(std::string_view picture, const ModelInfo& model) {
  if (model.inputs.size() != 1) {
    return Unsupported("model '%s' has %zu inputs; a picture fills one", model.name.c_str(),
                       model.inputs.size());
  }
  const TensorInfo& info = model.inputs[0];
  const Shape& shape = info.shape;
  const int64_t channels = shape.size() == 4 ? shape[3] : 1;
  const bool has_size = (shape.size() == 3 || shape.size() == 4) && shape[0] == 1 &&
                        shape[1] >= 1 && shape[2] >= 1 && shape[1] <= 65535 && shape[2] <= 65535;
  if (!has_size || (channels != 1 && channels != 3) ||
      (info.type != DataType::kUint8 && info.type != DataType::kInt8 &&
       info.type != DataType::kFp32)) {
    return Unsupported("input '%s' of model '%s', %s %s, takes no picture", info.name.c_str(),
                       model.name.c_str(), DataTypeName(info.type), ShapeText(shape).c_str());
  }
  atollrt::DecodeOptions decode;
  decode.channels = static_cast<int>(channels);
  decode.max_pixels = kMaxPixels;
  ATOLL_ASSIGN_OR_RETURN(
      const atollrt::Image image,
      atollrt::DecodeImage({reinterpret_cast<const uint8_t*>(picture.data()), picture.size()},
                           decode));
  ATOLL_ASSIGN_OR_RETURN(
      const atollrt::Image fitted,
      atollrt::Resize(image, static_cast<int>(shape[2]), static_cast<int>(shape[1])));
  // What pixels become without a mean and a scale of their own (atoll/vision/picture_input.h).
  std::string bytes(fitted.pixels.size() * DataTypeBytes(info.type), '\0');
  for (size_t i = 0; i < fitted.pixels.size(); ++i) {
    const uint8_t pixel = fitted.pixels[i];
    if (info.type == DataType::kFp32) {
      const float value = static_cast<float>((pixel - 127.5) / 127.5);
      std::memcpy(bytes.data() + i * sizeof(value), &value, sizeof(value));
    } else {
      bytes[i] = static_cast<char>(info.type == DataType::kInt8 ? pixel ^ 0x80 : pixel);
    }
  }
  return bytes;
}

Result<InferCall> ReadCall(const CallHeaders& headers, std::shared_ptr<const std::string> body,
                           const ModelInfo& model, MonotonicTime came) {
  InferCall call;
  if (IsPicture(headers.content_type)) {
    ATOLL_ASSIGN_OR_RETURN(std::string tensor, PictureTensor(*body, model));
    const auto owned = std::make_shared<const std::string>(std::move(tensor));
    call.body.binary = true;
    call.body.inputs.push_back(
        {.name = model.inputs[0].name,
         .type = model.inputs[0].type,
         .shape = model.inputs[0].shape,
         .bytes = {reinterpret_cast<const uint8_t*>(owned->data()), owned->size()},
         .owner = owned});
  } else {
    ATOLL_ASSIGN_OR_RETURN(call.body, ParseInferBody(std::move(body), headers.json_bytes, model));
  }
  bool has_regions = false;
  for (const auto& region : call.body.input_regions) has_regions = has_regions || region;
  for (const WantedOutput& output : call.body.outputs) has_regions = has_regions || output.region;
  if (has_regions) return Unsupported("there is no shared memory in a fleet");

  InferRequest& request = call.request;
  request.model = model.name;
  request.version = model.version;
  request.inputs = std::move(call.body.inputs);
  call.body.inputs.clear();
  for (const WantedOutput& output : call.body.outputs) request.outputs.push_back(output.name);
  request.real_values = call.body.real_values;
  uint64_t priority = call.body.priority;
  if (!headers.priority.empty()) {
    ATOLL_ASSIGN_OR_RETURN(priority, ParseCount(kPriorityHeader, headers.priority, UINT32_MAX));
  }
  request.priority = static_cast<uint32_t>(std::min<uint64_t>(priority, UINT32_MAX - 1));
  ATOLL_ASSIGN_OR_RETURN(std::optional<uint64_t> budget_us, ParseBudget(headers.budget_us));
  if (!budget_us && call.body.timeout_us > 0) budget_us = std::min(call.body.timeout_us, kDayUs);
  if (budget_us) request.deadline = came + std::chrono::microseconds(*budget_us);
  return call;
}

InferReply ErrorReply(const Status& status, std::optional<std::chrono::milliseconds> retry_after) {
  InferReply reply;
  reply.code = HttpStatusOf(status.code());
  reply.error = status.message();
  reply.body = DumpJson({{"error", status.message()}});
  reply.headers.emplace_back(kTypeHeader, "application/json");
  reply.headers.emplace_back(kErrorHeader, status.message());
  reply.headers.emplace_back(kErrorCodeHeader, std::to_string(reply.code));
  if (retry_after) reply.headers.emplace_back(kRetryHeader, std::to_string(retry_after->count()));
  return reply;
}

InferReply ReplyOf(const InferBody& body, const ModelInfo& model, const InferOutcome& outcome) {
  if (!outcome.status.ok()) return ErrorReply(outcome.status, outcome.retry_after);
  auto text = FormatInferAnswer(body, model, outcome);
  if (!text.ok()) return ErrorReply(text.status());
  InferReply reply;
  reply.body = std::move(text->body);
  reply.headers.emplace_back(kModelHeader, outcome.version);
  if (text->json_bytes) {
    reply.headers.emplace_back(kTypeHeader, "application/octet-stream");
    reply.headers.emplace_back(kLengthHeader, std::to_string(*text->json_bytes));
  } else {
    reply.headers.emplace_back(kTypeHeader, "application/json");
  }
  return reply;
}

Result<std::vector<OutputTensor>> ParseAnswer(std::string_view body, std::string_view json_bytes) {
  uint64_t head = body.size();
  if (!json_bytes.empty()) {
    ATOLL_ASSIGN_OR_RETURN(head, ParseCount(kLengthHeader, json_bytes, body.size()));
  }
  ATOLL_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson(body.substr(0, head)));
  std::string_view rest = body.substr(head);
  const auto* const outputs = FindMember(json, "outputs");
  if (outputs == nullptr || !outputs->is_array()) {
    return InvalidArgument("the answer has no \"outputs\"");
  }
  std::vector<OutputTensor> parsed;
  for (const auto& one : *outputs) {
    const auto* const name = FindMember(one, "name");
    const auto* const type = FindMember(one, "datatype");
    const auto* const shape = FindMember(one, "shape");
    const auto known = type != nullptr && type->is_string()
                           ? ParseDataType(type->get<std::string>())
                           : std::optional<DataType>();
    if (name == nullptr || !name->is_string() || !known || shape == nullptr || !shape->is_array()) {
      return InvalidArgument("the answer has an output without a name, a datatype or a shape");
    }
    OutputTensor output = {
        .name = name->get<std::string>(), .type = *known, .shape = {}, .bytes = {}};
    for (const auto& size : *shape) {
      if (!size.is_number_unsigned() || size.get<uint64_t>() > INT32_MAX) {
        return InvalidArgument("the answer has a shape with an element that is no size");
      }
      output.shape.push_back(size.get<int64_t>());
    }
    const auto* const parameters = FindMember(one, "parameters");
    const auto* const bytes =
        parameters == nullptr ? nullptr : FindMember(*parameters, "binary_data_size");
    if (bytes != nullptr) {
      if (!bytes->is_number_unsigned() || bytes->get<uint64_t>() > rest.size()) {
        return InvalidArgument("the answer has fewer bytes than its outputs");
      }
      output.bytes = rest.substr(0, bytes->get<size_t>());
      rest.remove_prefix(output.bytes.size());
    } else if (const auto* const data = FindMember(one, "data")) {
      output.bytes = DumpJson(*data);
    }
    parsed.push_back(std::move(output));
  }
  if (!rest.empty()) {
    return InvalidArgument("behind the outputs of the answer there are %zu more bytes",
                           rest.size());
  }
  return parsed;
}

}  // namespace atollserve
