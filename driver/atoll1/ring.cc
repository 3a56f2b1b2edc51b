// SPDX-License-Identifier: Apache-2.0
#include "driver/atoll1/ring.h"

#include <algorithm>
#include <cstring>

#include "driver/pcie/device_memory.h"
#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr uint8_t kInterruptFlag = 1;
constexpr size_t kCheckedBytes = kRingEventBytes - 4;

// CRC-32 of IEEE 802.3. Of so few bytes, so no table.
uint32_t Crc32(std::span<const uint8_t> bytes) {
  constexpr uint32_t kPolynomial = 0xEDB88320;
  uint32_t crc = ~0u;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
  }
  return ~crc;
}

bool IsKnown(uint8_t kind) {
  return kind <= static_cast<uint8_t>(DescriptorKind::kOutput) ||
         kind == static_cast<uint8_t>(DescriptorKind::kStart) ||
         kind == static_cast<uint8_t>(DescriptorKind::kEvent);
}

}  // namespace

std::array<uint8_t, kDescriptorBytes> EncodeDescriptor(const Descriptor& descriptor) {
  std::array<uint8_t, kDescriptorBytes> bytes{};
  bytes[0] = static_cast<uint8_t>(descriptor.kind);
  bytes[1] = descriptor.interrupts ? kInterruptFlag : 0;
  if (descriptor.kind == DescriptorKind::kStart) {
    const StartMessage& start = descriptor.start;
    StoreLittleEndian<uint32_t>(&bytes[4], start.instruction_count);
    StoreLittleEndian<uint32_t>(&bytes[8], start.parameter_base);
    StoreLittleEndian<uint32_t>(&bytes[12], start.activation_base);
    StoreLittleEndian<uint32_t>(&bytes[16], start.program_offset);
    StoreLittleEndian<uint32_t>(&bytes[20], start.request_id);
  } else {
    StoreLittleEndian<uint32_t>(&bytes[4], descriptor.bytes);
    StoreLittleEndian<uint64_t>(&bytes[8], descriptor.address);
    StoreLittleEndian<uint32_t>(&bytes[16], descriptor.program_offset);
  }
  return bytes;
}

Result<Descriptor> DecodeDescriptor(std::span<const uint8_t, kDescriptorBytes> bytes) {
  if (!IsKnown(bytes[0])) return InvalidArgument("descriptor of unknown kind %d", bytes[0]);
  const bool bad_flags = (bytes[1] & ~kInterruptFlag) != 0;
  const auto is_zero = [](uint8_t byte) { return byte == 0; };
  if (bad_flags || bytes[2] != 0 || bytes[3] != 0 ||
      !std::all_of(&bytes[24], &bytes[31] + 1, is_zero)) {
    return InvalidArgument("descriptor with nonzero reserved bits");
  }
  Descriptor descriptor{.kind = static_cast<DescriptorKind>(bytes[0]),
                        .interrupts = (bytes[1] & kInterruptFlag) != 0};
  const auto program_offset = LoadLittleEndian<uint32_t>(&bytes[16]);
  const auto request_id = LoadLittleEndian<uint32_t>(&bytes[20]);
  if (descriptor.kind == DescriptorKind::kStart) {
    descriptor.start = {.program_offset = program_offset,
                        .instruction_count = LoadLittleEndian<uint32_t>(&bytes[4]),
                        .parameter_base = LoadLittleEndian<uint32_t>(&bytes[8]),
                        .activation_base = LoadLittleEndian<uint32_t>(&bytes[12]),
                        .request_id = request_id};
    return descriptor;
  }
  const bool has_offset = descriptor.kind == DescriptorKind::kInstructions;
  if (request_id != 0 || (program_offset != 0 && !has_offset)) {
    return InvalidArgument("descriptor of kind %d with nonzero reserved bytes", bytes[0]);
  }
  descriptor.bytes = LoadLittleEndian<uint32_t>(&bytes[4]);
  descriptor.address = LoadLittleEndian<uint64_t>(&bytes[8]);
  descriptor.program_offset = program_offset;
  if (descriptor.kind == DescriptorKind::kEvent && descriptor.bytes != kRingEventBytes) {
    return InvalidArgument("descriptor of an event has %u bytes, must have %zu", descriptor.bytes,
                           kRingEventBytes);
  }
  return descriptor;
}

std::array<uint8_t, kRingEventBytes> EncodeRingEvent(const RingEvent& event) {
  std::array<uint8_t, kRingEventBytes> bytes{};
  const auto common = EncodeEvent(event.event);
  std::copy(common.begin(), common.end(), bytes.begin());
  StoreLittleEndian<uint64_t>(&bytes[16], event.clock);
  StoreLittleEndian<uint32_t>(&bytes[kRingEventSequence], event.sequence);
  StoreLittleEndian<uint32_t>(&bytes[kCheckedBytes],
                              Crc32(std::span(bytes).first<kCheckedBytes>()));
  return bytes;
}

std::array<uint8_t, kRingEventBytes> LoadRingEvent(
    std::span<const uint8_t, kRingEventBytes> place) {
  std::array<uint8_t, kRingEventBytes> bytes;
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t word = LoadFromDevice(&place[at]);
    std::memcpy(&bytes[at], &word, sizeof(word));
  }
  return bytes;
}

Result<RingEvent> DecodeRingEvent(std::span<const uint8_t, kRingEventBytes> bytes) {
  const uint32_t check = Crc32(bytes.first<kCheckedBytes>());
  if (LoadLittleEndian<uint32_t>(&bytes[kCheckedBytes]) != check) {
    return InvalidArgument("event whose check is %08X, must be %08X",
                           LoadLittleEndian<uint32_t>(&bytes[kCheckedBytes]), check);
  }
  ATOLL_ASSIGN_OR_RETURN(const Event event, DecodeEvent(bytes.first<kEventBytes>()));
  return RingEvent{.event = event,
                   .clock = LoadLittleEndian<uint64_t>(&bytes[16]),
                   .sequence = LoadLittleEndian<uint32_t>(&bytes[kRingEventSequence])};
}

}  // namespace atollrt
