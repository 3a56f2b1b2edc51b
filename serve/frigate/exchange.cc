// SPDX-License-Identifier: Apache-2.0
#include "serve/frigate/exchange.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

namespace atollrt {
namespace {

using nlohmann::json;

bool IsTrue(const json& object, const char* key) {
  const auto member = object.find(key);
  return member != object.end() && member->is_boolean() && member->get<bool>();
}

std::string TextOf(const json& object, const char* key) {
  const auto member = object.find(key);
  return member != object.end() && member->is_string() ? member->get<std::string>() : std::string();
}

std::optional<json> ParseObject(std::string_view text) {
  if (text.size() > kMaxHeadBytes) return std::nullopt;
  json object = json::parse(text, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  return object;
}

std::optional<ModelHead::Kind> KindOf(const json& object) {
  if (IsTrue(object, "model_request")) return ModelHead::Kind::kRequest;
  if (IsTrue(object, "model_data")) return ModelHead::Kind::kData;
  return std::nullopt;
}

Result<FrameHead> ParseFrameHead(const json& object) {
  FrameHead head;
  const auto shape = object.find("shape");
  if (shape == object.end() || !shape->is_array() || shape->size() != head.shape.size()) {
    return InvalidArgument(
        "a frame's head has no \"shape\" of four numbers; [1,height,width,3] is one");
  }
  for (size_t i = 0; i < head.shape.size(); ++i) {
    const json& dim = (*shape)[i];
    const uint64_t value = dim.is_number_unsigned() ? dim.get<uint64_t>() : 0;
    if (value < 1 || value > 65535) {
      return InvalidArgument("dimension %zu of a frame's shape is no number of 1 to 65535", i);
    }
    head.shape[i] = static_cast<int32_t>(value);
  }
  if (head.shape[0] != 1) {
    return InvalidArgument("a message has %d frames; send each by itself", head.shape[0]);
  }
  const std::string dtype = TextOf(object, "dtype");
  if (dtype == "uint8") {
    head.values = FrameHead::Values::kBytes;
  } else if (dtype == "float32") {
    head.values = FrameHead::Values::kFloats;
  } else {
    return InvalidArgument(
        "a frame's \"dtype\" is neither uint8 nor float32; set Frigate's input_dtype to int or "
        "float");
  }
  head.model_type = TextOf(object, "model_type");
  return head;
}

// Rather than first, which is a question for inputs of 3 x 3 alone.
bool ChannelsLast(const FrameHead& head, int width, int height) {
  return head.shape[1] == height && head.shape[2] == width && head.shape[3] == 3;
}

}  // namespace

size_t FrameHead::byte_size() const {
  uint64_t size = values == Values::kFloats ? sizeof(float) : 1;
  for (const int32_t dim : shape) {
    // Four dimensions of 16 bits and a factor of 4 could reach 2^66.
    if (size > UINT64_MAX / static_cast<uint64_t>(dim)) return SIZE_MAX;
    size *= static_cast<uint64_t>(dim);
  }
  return size;
}

bool IsModelName(std::string_view name) {
  if (name.empty() || name.size() > kMaxModelNameBytes || name == "." || name == "..") return false;
  return std::none_of(name.begin(), name.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f || c == '/' || c == '\\';
  });
}

std::optional<ModelHead::Kind> KindOfModelHead(std::string_view text) {
  const std::optional<json> object = ParseObject(text);
  return object ? KindOf(*object) : std::nullopt;
}

Result<MessageHead> ParseMessageHead(std::string_view text) {
  const std::optional<json> object = ParseObject(text);
  if (!object) {
    return InvalidArgument("the head of a message, of %zu bytes, is no JSON object of at most %zu",
                           text.size(), kMaxHeadBytes);
  }
  MessageHead head;
  if (const std::optional<ModelHead::Kind> kind = KindOf(*object)) {
    const std::string name = TextOf(*object, "model_name");
    if (!IsModelName(name)) {
      return InvalidArgument(
          "a \"model_name\" of %zu bytes is no name of a file without a folder, of 1 to %zu bytes",
          name.size(), kMaxModelNameBytes);
    }
    head.model = ModelHead{*kind, name};
    return head;
  }
  ATOLL_ASSIGN_OR_RETURN(head.frame, ParseFrameHead(*object));
  return head;
}

Status CheckFrame(const FrameHead& head, size_t size_bytes, int width, int height) {
  const auto& [batch, d1, d2, d3] = head.shape;
  if (!ChannelsLast(head, width, height) && !(d1 == 3 && d2 == height && d3 == width)) {
    return InvalidArgument(
        "a frame of shape [%d,%d,%d,%d] is not for this model, which takes pictures of %d x %d: "
        "set width and height of Frigate's model to these",
        batch, d1, d2, d3, width, height);
  }
  if (size_bytes != head.byte_size()) {
    return InvalidArgument("a frame of shape [%d,%d,%d,%d] has %zu bytes rather than %zu", batch,
                           d1, d2, d3, size_bytes, head.byte_size());
  }
  return Status();
}

Status FrameToImage(const FrameHead& head, std::span<const uint8_t> bytes, int width, int height,
                    Image* image) {
  ATOLL_RETURN_IF_ERROR(CheckFrame(head, bytes.size(), width, height));
  const bool channels_last = ChannelsLast(head, width, height);
  image->Reshape(width, height, 3);
  const size_t pixels = static_cast<size_t>(width) * static_cast<size_t>(height);
  const size_t from_pixel = channels_last ? 3 : 1;
  const size_t from_channel = channels_last ? 1 : pixels;
  if (head.values == FrameHead::Values::kBytes) {
    if (channels_last) {
      std::memcpy(image->pixels.data(), bytes.data(), bytes.size());
      return Status();
    }
    for (size_t i = 0; i < pixels; ++i) {
      for (size_t c = 0; c < 3; ++c) {
        image->pixels[3 * i + c] = bytes[i * from_pixel + c * from_channel];
      }
    }
    return Status();
  }
  for (size_t i = 0; i < pixels; ++i) {
    for (size_t c = 0; c < 3; ++c) {
      float value;  // which need not be aligned
      std::memcpy(&value, bytes.data() + sizeof(float) * (i * from_pixel + c * from_channel),
                  sizeof(value));
      const float level = std::round(255 * value);
      if (!(level >= 0 && level <= 255)) {
        return InvalidArgument(
            "a frame of float32 holds %g, but its values are 0 to 1; set Frigate's input_dtype to "
            "float, or better to int",
            double{value});
      }
      image->pixels[3 * i + c] = static_cast<uint8_t>(level);
    }
  }
  return Status();
}

std::string ModelRequestAnswer(bool available, bool loaded) {
  return json({{"model_available", available}, {"model_loaded", loaded}}).dump();
}

std::string ModelDataAnswer(bool saved, bool loaded) {
  return json({{"model_saved", saved}, {"model_loaded", loaded}}).dump();
}

std::string RowsHead() { return json({{"shape", {20, 6}}, {"dtype", "float32"}}).dump(); }

}  // namespace atollrt
