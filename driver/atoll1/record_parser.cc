// SPDX-License-Identifier: Apache-2.0
#include "driver/atoll1/record_parser.h"

#include <algorithm>
#include <cstring>

#include "driver/isa/instruction.h"
#include "runtime/base/bytes.h"

namespace atollrt {

RecordParser::Piece RecordParser::Next(std::span<const uint8_t>& bytes) {
  for (;;) {
    Piece piece{.tag = header_.tag};
    switch (state_) {
      case State::kHeader:
        if (!Collect(kRecordHeaderBytes, bytes)) return {};
        piece = BeginRecord();
        break;
      case State::kProgramPrefix:
        if (!Collect(kInstructionsPrefixBytes, bytes)) return {};
        if (!BeginProgram()) piece.event = Event::kBadRecord;
        break;
      case State::kStart: {
        if (!Collect(kStartBytes, bytes)) return {};
        state_ = State::kHeader;
        const Result<StartMessage> start = DecodeStart(collected_);
        piece.event = start.ok() ? Event::kStart : Event::kBadRecord;
        if (start.ok()) piece.start = *start;
        break;
      }
      case State::kPayload:
        if (remaining_ > 0) return Payload(bytes);
        state_ = State::kHeader;
        break;
    }
    if (piece.event != Event::kNeedBytes) return piece;
  }
}

bool RecordParser::Collect(size_t size, std::span<const uint8_t>& bytes) {
  const size_t count = std::min(size - collected_bytes_, bytes.size());
  std::copy_n(bytes.begin(), count, collected_.begin() + collected_bytes_);
  bytes = bytes.subspan(count);
  collected_bytes_ += count;
  if (collected_bytes_ < size) return false;
  collected_bytes_ = 0;
  return true;
}

RecordParser::Piece RecordParser::BeginRecord() {
  const Result<RecordHeader> header =
      DecodeRecordHeader(std::span(collected_).first<kRecordHeaderBytes>());
  if (!header.ok()) return {.event = Event::kBadRecord, .tag = collected_[4]};
  header_ = *header;
  remaining_ = header_.payload_bytes;
  bool fits = false;
  switch (static_cast<RecordTag>(header_.tag)) {
    case RecordTag::kInstructions:
      state_ = State::kProgramPrefix;
      payload_ = Event::kProgramBytes;
      fits = remaining_ >= kInstructionsPrefixBytes &&
             (remaining_ - kInstructionsPrefixBytes) % kInstructionBytes == 0;
      break;
    case RecordTag::kInput:
    case RecordTag::kParameters:
      state_ = State::kPayload;
      payload_ = header_.tag == static_cast<uint8_t>(RecordTag::kInput) ? Event::kInput
                                                                        : Event::kParameters;
      fits = true;
      break;
    case RecordTag::kStart:
      state_ = State::kStart;
      fits = remaining_ == kStartBytes;
      break;
  }
  return {.event = fits ? Event::kNeedBytes : Event::kBadRecord, .tag = header_.tag};
}

bool RecordParser::BeginProgram() {
  state_ = State::kPayload;
  remaining_ -= static_cast<uint32_t>(kInstructionsPrefixBytes);
  program_offset_ = LoadLittleEndian<uint32_t>(&collected_[0]);
  return LoadLittleEndian<uint32_t>(&collected_[4]) == 0 &&
         program_offset_ % kInstructionBytes == 0 &&
         uint64_t{program_offset_} + remaining_ <= program_bytes_;
}

RecordParser::Piece RecordParser::Payload(std::span<const uint8_t>& bytes) {
  if (bytes.empty()) return {};
  const Piece piece{.event = payload_,
                    .tag = header_.tag,
                    .payload = bytes.first(std::min<size_t>(bytes.size(), remaining_)),
                    .program_offset = program_offset_};
  const uint32_t count = static_cast<uint32_t>(piece.payload.size());
  bytes = bytes.subspan(count);
  remaining_ -= count;
  program_offset_ += count;
  return piece;
}

}  // namespace atollrt
