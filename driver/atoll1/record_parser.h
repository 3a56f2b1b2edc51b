// SPDX-License-Identifier: Apache-2.0
//
// RecordParser: cuts the byte stream of bulk OUT into records (docs/protocol.md §3), for a device
// that acts on them and for a board that must know how much of one is still to come. Transfers may
// end anywhere; payloads are handed on as they come, without being collected. Takes hostile bytes.
// Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "driver/atoll1/protocol.h"

namespace atollrt {

class RecordParser {
 public:
  enum class Event {
    kNeedBytes,     // all bytes are used up
    kProgramBytes,  // `payload` belongs at `program_offset`
    kInput,         // `payload` continues the input stream
    kParameters,    // `payload` continues the parameter stream
    kStart,         // `start` is complete
    kBadRecord,     // the device does not expect `tag` so; feed nothing more until Reset
  };
  struct Piece {
    Event event = Event::kNeedBytes;
    uint8_t tag = 0;
    std::span<const uint8_t> payload = {};  // inside the bytes given to Next
    uint32_t program_offset = 0;
    StartMessage start = {};
  };

  explicit RecordParser(uint64_t program_bytes) : program_bytes_(program_bytes) {}

  // Takes a prefix off `bytes` and says what it is.
  Piece Next(std::span<const uint8_t>& bytes);

  // Bytes that the record begun has still to bring; 0 before its header is complete.
  uint64_t owed() const { return state_ == State::kHeader ? 0 : remaining_ - collected_bytes_; }

  // Forgets a record begun.
  void Reset() { *this = RecordParser(program_bytes_); }

 private:
  // Collects the first `size` bytes of a header or short payload; true when there are so many.
  bool Collect(size_t size, std::span<const uint8_t>& bytes);
  Piece BeginRecord();
  bool BeginProgram();  // false if it does not fit
  Piece Payload(std::span<const uint8_t>& bytes);

  uint64_t program_bytes_;
  enum class State { kHeader, kProgramPrefix, kStart, kPayload } state_ = State::kHeader;
  RecordHeader header_;
  Event payload_ = Event::kInput;  // what it is, in kPayload
  uint32_t remaining_ = 0;         // bytes of the payload still to come, in kPayload
  uint32_t program_offset_ = 0;    // of the next program byte
  std::array<uint8_t, kStartBytes> collected_{};
  size_t collected_bytes_ = 0;
};

}  // namespace atollrt
