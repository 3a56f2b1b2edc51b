// SPDX-License-Identifier: Apache-2.0
//
// What Frigate and clients of DeepStack send: by the first byte, a head and values of the exchange
// over ZMQ, a form, or base64. In a message a line break separates the head from the values, in a
// form the content type from the body.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "atoll/check.h"
#include "serve/frigate/exchange.h"
#include "serve/frigate/multipart.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/allocation_meter.h"

namespace atollrt::frigate_fuzzer {

namespace {

bool IsWithin(std::string_view part, std::string_view whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

void ReadMessage(std::string_view head_text, std::string_view values) {
  const Result<MessageHead> head = ParseMessageHead(head_text);
  const auto kind = KindOfModelHead(head_text);
  if (!head.ok()) {
    ATOLL_CHECK(!head.status().message().empty());
    return;
  }
  ATOLL_CHECK(head->model.has_value() != head->frame.has_value());
  ATOLL_CHECK(head->model.has_value() == kind.has_value());
  if (head->model) {
    ATOLL_CHECK(head->model->kind == *kind && IsModelName(head->model->name));
    ATOLL_CHECK(head->model->name.find('/') == std::string::npos);
    return;
  }
  // For the model that it fits, and for one that it does not.
  const auto& shape = head->frame->shape;
  const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(values.data()),
                                       values.size());
  for (const auto& [width, height] :
       {std::pair(shape[2], shape[1]), std::pair(shape[3], shape[2]), std::pair(17, 23)}) {
    Image image;
    const Status status = FrameToImage(*head->frame, bytes, width, height, &image);
    if (!CheckFrame(*head->frame, bytes.size(), width, height).ok()) ATOLL_CHECK(!status.ok());
    if (!status.ok()) continue;
    ATOLL_CHECK(bytes.size() == head->frame->byte_size());
    ATOLL_CHECK(image.pixels.size() == image.size_bytes() && image.width == width);
  }
}

void ReadForm(std::string_view type, std::string_view body) {
  const Result<std::vector<FormPart>> form = ParseForm(type, body);
  if (!form.ok()) {
    ATOLL_CHECK(!form.status().message().empty());
    return;
  }
  ATOLL_CHECK((*form).size() <= kMaxFormParts);
  const char* at = body.data();
  for (const FormPart& part : *form) {
    ATOLL_CHECK(!part.name.empty());
    for (const std::string_view view : {part.name, part.file_name, part.value}) {
      ATOLL_CHECK(IsWithin(view, body));
    }
    // In their order, and none twice.
    ATOLL_CHECK(part.value.data() >= at);
    at = part.value.data() + part.value.size();
    ATOLL_CHECK(FindPart(*form, part.name)->name == part.name);
  }
  // What is cut off behind the last part's value has no end.
  if (!(*form).empty()) {
    const size_t end = static_cast<size_t>(at - body.data());
    ATOLL_CHECK(!ParseForm(type, body.substr(0, end)).ok());
  }
}

}  // namespace

ATOLL_FUZZ_TARGET(frigate) {
  if (size == 0) return 0;
  const MemoryLimit limit(ProportionalBytes(size));
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t newline = std::min(text.find('\n'), text.size());
  const std::string_view first = text.substr(0, newline);
  const std::string_view rest = text.substr(std::min(newline + 1, text.size()));
  switch (data[0]) {
    case 'm':
      ReadMessage(first, rest);
      break;
    case 'f':
      ReadForm(first, rest);
      break;
    case 'b':
      if (const auto bytes = DecodeBase64(text); bytes.ok()) {
        ATOLL_CHECK((*bytes).size() <= text.size() * 3 / 4);
      }
      break;
    default:
      break;
  }
  return 0;
}

}  // namespace atollrt::frigate_fuzzer
