// SPDX-License-Identifier: Apache-2.0
#include "driver/recording/session_text.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>

#include "driver/recording/pcapng.h"

namespace atollrt {
namespace {

constexpr size_t kRecordingBytesMax = size_t{1} << 31;

}  // namespace

std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

std::string StatusText(const Status& status) {
  return Format("%d ", static_cast<int>(status.code())) + OneLine(status.message());
}

uint64_t UnixNs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

std::string_view Cut(std::string_view* text, char separator) {
  const std::string_view first = text->substr(0, text->find(separator));
  text->remove_prefix(std::min(first.size() + 1, text->size()));
  return first;
}

uint64_t LineReader::Number(int base, uint64_t most) {
  const std::string_view word = Word();
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  ok_ &= error == std::errc() && end == word.data() + word.size() && !word.empty() && value <= most;
  return ok_ ? value : 0;
}

void LineReader::ReadStatus(StatusCode* code, std::string_view* message) {
  const uint64_t number = Number(10, static_cast<uint64_t>(StatusCode::kInternal));
  *code = ok_ ? static_cast<StatusCode>(number) : StatusCode::kInternal;
  *message = rest_;
}

std::string SessionNotes::Find(const std::string& key) const {
  for (const auto& [name, value] : notes_) {
    if (name == key) return value;
  }
  return "";
}

Result<std::vector<uint8_t>> ReadRecording(const std::string& path) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (file == nullptr) return NotFound("cannot read the recording '%s'", path.c_str());
  std::vector<uint8_t> bytes;
  uint8_t chunk[1 << 16];
  while (const size_t count = std::fread(chunk, 1, sizeof(chunk), file.get())) {
    // What is none shall not be read to its end, if it has one.
    if (bytes.empty()) ATOLL_RETURN_IF_ERROR(CheckPcapngStart({chunk, count}));
    bytes.insert(bytes.end(), chunk, chunk + count);
    if (bytes.size() > kRecordingBytesMax) {
      return ResourceExhausted("the recording '%s' is larger than %zu bytes", path.c_str(),
                               kRecordingBytesMax);
    }
  }
  return bytes;
}

Result<std::string> ReadNote(std::span<const uint8_t> recording, const std::string& key) {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<PcapngPacket> packets, ReadPcapng(recording));
  if (packets.empty()) return InvalidArgument("nothing is recorded there");
  for (const PcapngPacket& packet : packets) {
    if (packet.link_type != kLinkTypeUser0) continue;
    LineReader line({reinterpret_cast<const char*>(packet.bytes.data()), packet.bytes.size()});
    if (line.Word() == "note" && line.Word() == key) return std::string(line.rest());
  }
  return std::string();
}

bool IsPcieRecording(std::span<const uint8_t> recording) {
  const auto packets = ReadPcapng(recording);
  if (!packets.ok() || packets->empty()) return false;
  const std::string note = SessionNotes::Text(kBusNote, kPcieBusNote);
  const std::span<const uint8_t> first = packets->front().bytes;
  return std::ranges::equal(first, TextBytes(note));
}

}  // namespace atollrt
