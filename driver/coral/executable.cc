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
