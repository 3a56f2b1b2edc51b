// SPDX-License-Identifier: Apache-2.0
#include "driver/coral/executable.h"

#include <cstring>

#include "atoll/check.h"

namespace atollrt {
namespace {

constexpr uint8_t kSignBit = 0x80;

void FlipSigns(const CoralLayer& layer, std::span<uint8_t> bytes) {
  for (size_t i = layer.element_bytes - 1; i < bytes.size(); i += layer.element_bytes) {
    bytes[i] ^= kSignBit;
  }
}

}  // namespace

void WriteCoralAddress(const CoralAddressField& field, uint64_t address, std::span<uint8_t> chunk) {
  const uint64_t half = field.is_upper_half ? address >> 32 : address & 0xFFFFFFFF;
  const uint32_t shift = field.bit % 8;
  const uint64_t mask = uint64_t{0xFFFFFFFF} << shift;
  const std::span<uint8_t> bytes = chunk.subspan(field.bit / 8, shift == 0 ? 4 : 5);
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto keep = static_cast<uint8_t>(~(mask >> 8 * i));
    bytes[i] = static_cast<uint8_t>((bytes[i] & keep) | (half << shift >> 8 * i));
  }
}

bool IsPlainCoralInput(const CoralLayer& wire, const Layer& layer) {
  return !wire.flips_sign && wire.wire_bytes == layer.bytes;
}
bool IsPlainCoralOutput(const CoralLayer& wire, const Layer& layer) {
  return IsPlainCoralInput(wire, layer) && wire.copies.size() == 1 && wire.copies[0].count == 1;
}

void UnpackCoralOutput(const CoralLayer& layer, std::span<const uint8_t> wire,
                       std::span<uint8_t> output) {
  ATOLL_CHECK(wire.size() == layer.wire_bytes);
  for (const CoralCopy& copy : layer.copies) {
    const uint8_t* from = wire.data() + copy.from;
    uint8_t* to = output.data() + copy.to;
    for (uint32_t i = 0; i < copy.count; ++i, from += copy.stride, to += copy.bytes) {
      std::memcpy(to, from, copy.bytes);
    }
  }
  if (layer.flips_sign) FlipSigns(layer, output);
}

void PackCoralInput(const CoralLayer& layer, std::span<const uint8_t> input,
                    std::span<uint8_t> wire) {
  ATOLL_CHECK(wire.size() == layer.wire_bytes && input.size() <= wire.size());
  std::memcpy(wire.data(), input.data(), input.size());
  if (layer.flips_sign) FlipSigns(layer, wire.first(input.size()));
  std::memset(wire.data() + input.size(), 0, wire.size() - input.size());
}

}  // namespace atollrt
