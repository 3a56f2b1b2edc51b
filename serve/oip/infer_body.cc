// SPDX-License-Identifier: Apache-2.0
#include "serve/oip/infer_body.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "serve/inference/json_text.h"
#include "serve/oip/infer_json.h"

namespace atollserve {
namespace {

using atollrt::Format;
using atollrt::InvalidArgument;
using atollrt::Result;
using atollrt::Status;

// ---- Values to bytes ----

Status NoValue(const JsonInput& input, size_t index, DataType type) {
  return InvalidArgument("element %zu of \"data\" of input '%s' is nothing that %s holds", index,
                         Shown(input.name).c_str(), DataTypeName(type));
}

template <typename T>
Status StoreIntegers(const JsonInput& input, DataType type, std::string* bytes) {
  const JsonValues& values = input.values;
  for (size_t i = 0; i < values.size(); ++i) {
    T element{};
    if (values.is_real) {
      const double value = values.reals[i];
      // Limits of T as doubles that are exact: its smallest value, and one more than its largest.
      const double low = static_cast<double>(std::numeric_limits<T>::min());
      const double high = std::ldexp(1.0, std::numeric_limits<T>::digits);
      if (!(value >= low && value < high) || value != std::floor(value)) {
        return NoValue(input, i, type);
      }
      element = static_cast<T>(value);
    } else {
      const int64_t value = values.integers[i];
      element = static_cast<T>(value);
      bool fits = static_cast<int64_t>(element) == value;
      if constexpr (std::is_same_v<T, uint64_t>) {
        fits = value >= 0 || values.has_large;
      } else {
        fits = fits && !(values.has_large && value < 0);
      }
      if (!fits) return NoValue(input, i, type);
    }
    std::memcpy(bytes->data() + i * sizeof(T), &element, sizeof(T));
  }
  return {};
}

template <typename T>
Status StoreReals(const JsonInput& input, DataType type, std::string* bytes) {
  const JsonValues& values = input.values;
  for (size_t i = 0; i < values.size(); ++i) {
    double value = values.is_real ? values.reals[i] : static_cast<double>(values.integers[i]);
    if (!values.is_real && values.has_large && values.integers[i] < 0) {
      value = static_cast<double>(static_cast<uint64_t>(values.integers[i]));
    }
    const T element = static_cast<T>(value);
    if (!std::isfinite(element)) return NoValue(input, i, type);
    std::memcpy(bytes->data() + i * sizeof(T), &element, sizeof(T));
  }
  return {};
}

// The bytes of "data".
Result<std::string> StoreValues(const JsonInput& input, DataType type) {
  const JsonValues& values = input.values;
  std::string bytes(values.size() * DataTypeBytes(type), '\0');
  const auto done = [&](Status status) -> Result<std::string> {
    if (!status.ok()) return status;
    return std::move(bytes);
  };
  if (values.has_bool && type != DataType::kBool) {
    return InvalidArgument("\"data\" of input '%s' has true or false, which %s does not hold",
                           Shown(input.name).c_str(), DataTypeName(type));
  }
  // No type of integers has both.
  if (values.has_large && values.has_negative && !values.is_real) return NoValue(input, 0, type);
  switch (type) {
    case DataType::kBool:
      for (size_t i = 0; i < values.size(); ++i) {
        const double value =
            values.is_real ? values.reals[i] : static_cast<double>(values.integers[i]);
        if (value != 0 && value != 1) return NoValue(input, i, type);
        bytes[i] = value == 1 ? 1 : 0;
      }
      return bytes;
    case DataType::kUint8:
      return done(StoreIntegers<uint8_t>(input, type, &bytes));
    case DataType::kUint16:
      return done(StoreIntegers<uint16_t>(input, type, &bytes));
    case DataType::kUint32:
      return done(StoreIntegers<uint32_t>(input, type, &bytes));
    case DataType::kUint64:
      return done(StoreIntegers<uint64_t>(input, type, &bytes));
    case DataType::kInt8:
      return done(StoreIntegers<int8_t>(input, type, &bytes));
    case DataType::kInt16:
      return done(StoreIntegers<int16_t>(input, type, &bytes));
    case DataType::kInt32:
      return done(StoreIntegers<int32_t>(input, type, &bytes));
    case DataType::kInt64:
      return done(StoreIntegers<int64_t>(input, type, &bytes));
    case DataType::kFp32:
      return done(StoreReals<float>(input, type, &bytes));
    case DataType::kFp64:
      return done(StoreReals<double>(input, type, &bytes));
    case DataType::kFp16:
    case DataType::kBytes:
      break;
  }
  return InvalidArgument("input '%s': %s has no form in JSON here; send it as binary data",
                         Shown(input.name).c_str(), DataTypeName(type));
}

Result<std::optional<RegionRange>> RangeOf(const JsonRegion& region, const std::string& name) {
  if (!region.name) {
    if (region.offset || region.bytes) {
      return InvalidArgument("tensor '%s' has no shared_memory_region", Shown(name).c_str());
    }
    return std::optional<RegionRange>();
  }
  if (!region.bytes) {
    return InvalidArgument("tensor '%s' has no shared_memory_byte_size", Shown(name).c_str());
  }
  return std::optional<RegionRange>(RegionRange{
      .region = *region.name, .offset = region.offset.value_or(0), .bytes = *region.bytes});
}

std::span<const uint8_t> BytesOf(const std::string& text, size_t from, size_t size) {
  return {reinterpret_cast<const uint8_t*>(text.data()) + from, size};
}

Result<InferBody> RawBody(std::shared_ptr<const std::string> body, const ModelInfo& model) {
  if (model.inputs.size() != 1) {
    return InvalidArgument("model '%s' has %zu inputs; a raw request is for models with one",
                           model.name.c_str(), model.inputs.size());
  }
  const TensorInfo& info = model.inputs[0];
  InferBody parsed;
  parsed.binary = true;
  parsed.inputs.push_back({.name = info.name,
                           .type = info.type,
                           .shape = info.shape,
                           .bytes = BytesOf(*body, 0, body->size()),
                           .owner = body});
  parsed.input_regions.emplace_back();
  return parsed;
}

// What was read as a tensor of the request; takes its binary data off `*position`.
Status AddInput(JsonInput input, const std::shared_ptr<const std::string>& body, size_t* position,
                bool has_binary, InferBody* parsed) {
  const std::string shown = Shown(input.name);
  if (!input.has_name) return InvalidArgument("an input has no \"name\"");
  if (!input.has_datatype) return InvalidArgument("input '%s' has no \"datatype\"", shown.c_str());
  const auto type = ParseDataType(input.datatype);
  if (!type) {
    return InvalidArgument("input '%s': there is no datatype '%s'", shown.c_str(),
                           Shown(input.datatype).c_str());
  }
  if (!input.has_shape) return InvalidArgument("input '%s' has no \"shape\"", shown.c_str());
  ATOLL_ASSIGN_OR_RETURN(std::optional<RegionRange> region, RangeOf(input.region, input.name));
  if ((input.has_data ? 1 : 0) + (input.binary_bytes ? 1 : 0) + (region ? 1 : 0) != 1) {
    return InvalidArgument(
        "input '%s' has to have one of \"data\", binary_data_size and shared_memory_region",
        shown.c_str());
  }
  InputTensor tensor = {.name = input.name,
                        .type = *type,
                        .shape = std::move(input.shape),
                        .bytes = {},
                        .owner = nullptr};
  if (input.has_data) {
    const auto elements = ElementCount(tensor.shape);
    if (!elements || static_cast<uint64_t>(*elements) != input.values.size()) {
      return InvalidArgument("\"data\" of input '%s' has %zu elements, its shape is %s",
                             shown.c_str(), input.values.size(), ShapeText(tensor.shape).c_str());
    }
    ATOLL_ASSIGN_OR_RETURN(std::string stored, StoreValues(input, *type));
    const auto owned = std::make_shared<const std::string>(std::move(stored));
    tensor.bytes = BytesOf(*owned, 0, owned->size());
    tensor.owner = owned;
  } else if (input.binary_bytes) {
    if (!has_binary) {
      return InvalidArgument(
          "input '%s' has binary_data_size, but there is no Inference-Header-Content-Length",
          shown.c_str());
    }
    if (*input.binary_bytes > body->size() - *position) {
      return InvalidArgument("input '%s' has %llu bytes of binary data; %zu are left in the body",
                             shown.c_str(), static_cast<unsigned long long>(*input.binary_bytes),
                             body->size() - *position);
    }
    const size_t bytes = static_cast<size_t>(*input.binary_bytes);
    tensor.bytes = BytesOf(*body, *position, bytes);
    tensor.owner = body;
    *position += bytes;
  }
  parsed->inputs.push_back(std::move(tensor));
  parsed->input_regions.push_back(std::move(region));
  return {};
}

}  // namespace

Result<InferBody> ParseInferBody(std::shared_ptr<const std::string> body,
                                 std::string_view json_bytes, const ModelInfo& model) {
  size_t json_size = body->size();
  if (!json_bytes.empty()) {
    const char* const end = json_bytes.data() + json_bytes.size();
    const auto [number_end, error] = std::from_chars(json_bytes.data(), end, json_size);
    if (error != std::errc() || number_end != end || json_size > body->size()) {
      return InvalidArgument(
          "Inference-Header-Content-Length is '%s'; the body has %zu bytes, of which it counts "
          "those of JSON",
          Shown(json_bytes).c_str(), body->size());
    }
    if (json_size == 0) return RawBody(std::move(body), model);
  }
  InferBody parsed;
  ATOLL_ASSIGN_OR_RETURN(InferJson json, ReadInferJson({body->data(), json_size}, model, &parsed));
  if (!json.has_inputs) return InvalidArgument("the request has no \"inputs\"");
  size_t position = json_size;
  for (JsonInput& input : json.inputs) {
    ATOLL_RETURN_IF_ERROR(
        AddInput(std::move(input), body, &position, !json_bytes.empty(), &parsed));
  }
  if (position != body->size()) {
    return InvalidArgument("behind the JSON and the inputs' binary data there are %zu more bytes",
                           body->size() - position);
  }
  for (JsonOutput& output : json.outputs) {
    if (!output.has_name) return InvalidArgument("an output has no \"name\"");
    ATOLL_ASSIGN_OR_RETURN(output.wanted.region, RangeOf(output.region, output.wanted.name));
    parsed.outputs.push_back(std::move(output.wanted));
  }
  return parsed;
}

// ---- The answer ----

namespace {

template <typename T>
T ElementAt(const std::string& bytes, size_t index) {
  T element;
  std::memcpy(&element, bytes.data() + index * sizeof(T), sizeof(T));
  return element;
}

template <typename T>
void AppendNumbers(const std::string& bytes, std::string* text) {
  const size_t count = bytes.size() / sizeof(T);
  char digits[40];
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) *text += ',';
    const T element = ElementAt<T>(bytes, i);
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(element)) {  // JSON has no number for it
        *text += "null";
        continue;
      }
    }
    const auto [end, error] = std::to_chars(std::begin(digits), std::end(digits), element);
    text->append(digits, end);
  }
}

// False: there is no form.
bool AppendData(const OutputTensor& output, std::string* text) {
  switch (output.type) {
    case DataType::kBool:
      for (size_t i = 0; i < output.bytes.size(); ++i) {
        if (i > 0) *text += ',';
        *text += output.bytes[i] != 0 ? "true" : "false";
      }
      return true;
    case DataType::kUint8:
      return AppendNumbers<uint8_t>(output.bytes, text), true;
    case DataType::kUint16:
      return AppendNumbers<uint16_t>(output.bytes, text), true;
    case DataType::kUint32:
      return AppendNumbers<uint32_t>(output.bytes, text), true;
    case DataType::kUint64:
      return AppendNumbers<uint64_t>(output.bytes, text), true;
    case DataType::kInt8:
      return AppendNumbers<int8_t>(output.bytes, text), true;
    case DataType::kInt16:
      return AppendNumbers<int16_t>(output.bytes, text), true;
    case DataType::kInt32:
      return AppendNumbers<int32_t>(output.bytes, text), true;
    case DataType::kInt64:
      return AppendNumbers<int64_t>(output.bytes, text), true;
    case DataType::kFp32:
      return AppendNumbers<float>(output.bytes, text), true;
    case DataType::kFp64:
      return AppendNumbers<double>(output.bytes, text), true;
    case DataType::kFp16:
    case DataType::kBytes:
      return false;
  }
  return false;
}

std::vector<float> RealValues(const OutputTensor& output, const TensorInfo& info) {
  std::vector<float> values(info.elements());
  for (size_t i = 0; i < values.size(); ++i) {
    switch (output.type) {
      case DataType::kFp32:
        values[i] = ElementAt<float>(output.bytes, i);
        continue;
      case DataType::kInt8:
        values[i] = ElementAt<int8_t>(output.bytes, i);
        break;
      case DataType::kUint8:
        values[i] = ElementAt<uint8_t>(output.bytes, i);
        break;
      case DataType::kInt16:
        values[i] = ElementAt<int16_t>(output.bytes, i);
        break;
      case DataType::kInt32:
        values[i] = static_cast<float>(ElementAt<int32_t>(output.bytes, i));
        break;
      case DataType::kInt64:
        values[i] = static_cast<float>(ElementAt<int64_t>(output.bytes, i));
        break;
      default:
        return {};
    }
    if (info.quantized()) {
      values[i] =
          info.quantization.scale * (values[i] - static_cast<float>(info.quantization.zero_point));
    }
  }
  return values;
}

// "0.9:1:label" of the highest values, the first of equal ones first.
std::vector<std::string> Classes(const OutputTensor& output, const TensorInfo& info,
                                 const std::vector<std::string>& labels, size_t count) {
  const std::vector<float> values = RealValues(output, info);
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  count = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(count), order.end(),
                    [&](size_t a, size_t b) {
                      if (values[a] != values[b]) return values[a] > values[b];
                      return a < b;
                    });
  std::vector<std::string> classes;
  for (size_t i = 0; i < count; ++i) {
    std::string text = Format("%f:%zu", static_cast<double>(values[order[i]]), order[i]);
    if (order[i] < labels.size()) text += ":" + labels[order[i]];
    classes.push_back(std::move(text));
  }
  return classes;
}

std::string AsBinary(const std::vector<std::string>& texts) {
  std::string bytes;
  for (const std::string& text : texts) {
    const uint32_t size = static_cast<uint32_t>(text.size());
    char prefix[sizeof(size)];
    std::memcpy(prefix, &size, sizeof(size));
    bytes.append(prefix, sizeof(size));
    bytes += text;
  }
  return bytes;
}

const TensorInfo* FindOutput(const ModelInfo& model, const std::string& name) {
  for (const TensorInfo& info : model.outputs) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

}  // namespace

Result<InferText> FormatInferAnswer(const InferBody& request, const ModelInfo& model,
                                    const InferOutcome& outcome) {
  std::string json = "{\"model_name\":" + QuoteJson(outcome.model) +
                     ",\"model_version\":" + QuoteJson(outcome.version);
  if (request.id) json += ",\"id\":" + QuoteJson(*request.id);
  json += Format(",\"parameters\":{\"atoll_queue_us\":%lld,\"atoll_device_cycles\":%lld}",
                 static_cast<long long>(outcome.times.queue_ns / 1000),
                 static_cast<long long>(outcome.device_cycles));
  json += ",\"outputs\":[";
  std::vector<std::string> classes_bytes(outcome.outputs.size());
  std::vector<const std::string*> binary;
  size_t binary_bytes = 0;
  for (size_t i = 0; i < outcome.outputs.size(); ++i) {
    const OutputTensor& output = outcome.outputs[i];
    const WantedOutput* const wanted = i < request.outputs.size() ? &request.outputs[i] : nullptr;
    std::vector<std::string> classes;
    const bool as_classes = wanted != nullptr && wanted->classes > 0;
    if (as_classes) {
      const TensorInfo* const info = FindOutput(model, output.name);
      if (info != nullptr) classes = Classes(output, *info, model.labels, wanted->classes);
    }
    json +=
        std::string(i == 0 ? "" : ",") + "{\"name\":" + QuoteJson(output.name) +
        ",\"datatype\":\"" + (as_classes ? "BYTES" : DataTypeName(output.type)) +
        "\",\"shape\":" + (as_classes ? Format("[%zu]", classes.size()) : ShapeText(output.shape));
    if (wanted != nullptr && wanted->region) {
      json += Format(
          ",\"parameters\":{\"shared_memory_region\":%s,\"shared_memory_offset\":%llu,"
          "\"shared_memory_byte_size\":%zu}}",
          QuoteJson(wanted->region->region).c_str(),
          static_cast<unsigned long long>(wanted->region->offset), output.bytes.size());
      continue;
    }
    if (request.IsBinary(wanted)) {
      if (as_classes) classes_bytes[i] = AsBinary(classes);
      binary.push_back(as_classes ? &classes_bytes[i] : &output.bytes);
      binary_bytes += binary.back()->size();
      json += Format(",\"parameters\":{\"binary_data_size\":%zu}}", binary.back()->size());
      continue;
    }
    json += ",\"data\":[";
    if (as_classes) {
      for (size_t k = 0; k < classes.size(); ++k)
        json += (k == 0 ? "" : ",") + QuoteJson(classes[k]);
    } else if (!AppendData(output, &json)) {
      return InvalidArgument("output '%s': %s has no form in JSON here; ask for it as binary data",
                             output.name.c_str(), DataTypeName(output.type));
    }
    json += "]}";
  }
  json += "]}";
  InferText text = {.body = std::move(json), .json_bytes = {}};
  if (!binary.empty()) {
    text.json_bytes = text.body.size();
    text.body.reserve(text.body.size() + binary_bytes);
    for (const std::string* const bytes : binary) text.body += *bytes;
  }
  return text;
}

}  // namespace atollserve
