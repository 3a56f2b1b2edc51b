// SPDX-License-Identifier: Apache-2.0
//
// The text records of a recorded session (docs/recording.md, "The file"): lines of words between
// single spaces, with a status at their end. Writing, and reading hostile ones. Pure functions,
// thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

// `text` without line breaks.
std::string OneLine(std::string text);
// "CODE MESSAGE"
std::string StatusText(const Status& status);
// The time of the system's clock, for packets.
uint64_t UnixNs();

inline std::span<const uint8_t> TextBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Cuts the text up to `separator`, which is dropped, off the front.
std::string_view Cut(std::string_view* text, char separator);

// Takes words and numbers off the front of a line.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) {}
  std::string_view Word() { return Cut(&rest_, ' '); }
  // At most `most`.
  uint64_t Number(int base = 10, uint64_t most = UINT32_MAX);
  // All that is left. `*message` is part of the line.
  void ReadStatus(StatusCode* code, std::string_view* message);
  std::string_view rest() const { return rest_; }
  bool ok() const { return ok_; }  // all so far could be read

 private:
  std::string_view rest_;
  bool ok_ = true;
};

// What a session says of itself: keys without spaces, values without line breaks.
class SessionNotes {
 public:
  static std::string Text(const std::string& key, const std::string& value) {
    return "note " + key + " " + OneLine(value);
  }
  // The rest of a line behind its first word.
  void Read(LineReader line) {
    const std::string key(line.Word());
    notes_.emplace_back(key, line.rest());
  }
  // Empty if there is none of that key.
  std::string Find(const std::string& key) const;

 private:
  std::vector<std::pair<std::string, std::string>> notes_;
};

// The bytes of a recording's file; kNotFound if it cannot be read.
Result<std::vector<uint8_t>> ReadRecording(const std::string& path);
// What a session of either bus says of itself, "" if it does not say so. kInvalidArgument if the
// bytes, which may be hostile, are none.
Result<std::string> ReadNote(std::span<const uint8_t> recording, const std::string& key);
// Whether they are a session on PCIe. Takes hostile bytes.
bool IsPcieRecording(std::span<const uint8_t> recording);
// The note that says so.
inline constexpr const char* kBusNote = "bus";
inline constexpr const char* kPcieBusNote = "pcie";

}  // namespace atollrt
