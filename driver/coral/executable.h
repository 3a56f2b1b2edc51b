// SPDX-License-Identifier: Apache-2.0
//
// CoralExecutable: what edgetpu_compiler made of a part of a model (package.h reads it): programs
// that nobody but the chip understands, and for each the complete list of what has to cross the
// cable, in order (docs/coral.md). Plain data; immutable once shared.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "driver/isa/executable.h"

namespace atollrt {

// One thing that crosses the cable, or that the device says. Windows are inside of what they name.
struct CoralTransfer {
  enum class Kind : uint8_t {
    kInstructions,  // chunk `index`, all of it
    kInput,         // a window of input `index`, as the device wants it
    kParameters,    // a window of the parameters
    kScratchIn,     // a window of the scratch buffer, to the device
    kOutput,        // a window of output `index`, as the device gives it
    kScratchOut,    // a window of the scratch buffer, from the device
    kInterrupt,     // the device raises interrupt `index`, 0 to 3
  };
  Kind kind = Kind::kInstructions;
  uint32_t index = 0;
  uint32_t offset = 0;
  uint32_t bytes = 0;  // at least 1, but for kInterrupt
  bool operator==(const CoralTransfer&) const = default;
};

// 32 bits of the instructions that say where in memory something begins: one half of an address.
// They mean something on PCIe, where the device reaches memory by itself.
struct CoralAddressField {
  enum class Base : uint8_t { kInput, kOutput, kParameters, kScratch };
  Base base = Base::kInput;
  bool is_upper_half = false;
  uint16_t index = 0;  // of the input or output
  uint32_t chunk = 0;
  uint32_t bit = 0;  // of the chunk, from the lowest bit of its first byte on; all 32 are inside
  bool operator==(const CoralAddressField&) const = default;
};

// Each chunk is sent; the last transfer is interrupt 0 and no other is.
struct CoralProgram {
  std::vector<std::vector<uint8_t>> chunks;
  std::vector<CoralAddressField> fields;  // in the order of chunks
  std::vector<uint8_t> parameters;
  std::vector<CoralTransfer> transfers;
};

// `count` pieces of `bytes`, `stride` apart in what the device sends, to one place without gaps.
struct CoralCopy {
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t bytes = 0;
  uint32_t stride = 0;
  uint32_t count = 0;
  bool operator==(const CoralCopy&) const = default;
};

// How a layer travels.
struct CoralLayer {
  uint32_t wire_bytes = 0;  // at least those of the layer; padding is zero on the way out
  uint32_t element_bytes = 1;
  bool flips_sign = false;        // the device has the highest bit of each element inverted
  std::vector<CoralCopy> copies;  // of outputs: together they give every byte of the layer, once
};

struct CoralExecutable : AnyExecutable {
  CoralExecutable() { family = DeviceFamily::kCoral; }

  CoralProgram caching;  // puts parameters on the chip, where `inference` finds them; may be empty
  CoralProgram inference;
  // Executables of one token leave each other's parameters in place. 0: none is left by this one.
  uint64_t caching_token = 0;
  uint32_t scratch_bytes = 0;
  std::vector<CoralLayer> input_wires;   // of inputs, in order
  std::vector<CoralLayer> output_wires;  // of outputs, in order
  uint64_t estimated_cycles = 0;         // of an inference, by the compiler; 0: it does not say
  // What it was read from, if somebody wants to hand it on; else empty.
  std::vector<uint8_t> package;
};

// Host memory that the layers of an executable and its scratch buffer may take together.
inline constexpr uint64_t kCoralBuffersMax = 64 << 20;

// Writes its half of `address` into the field's chunk.
void WriteCoralAddress(const CoralAddressField& field, uint64_t address, std::span<uint8_t> chunk);

// Whether the device takes an input, or gives an output, as the bytes of the layer are.
bool IsPlainCoralInput(const CoralLayer& wire, const Layer& layer);
bool IsPlainCoralOutput(const CoralLayer& wire, const Layer& layer);
// Gives what the device sends for an output, wire_bytes of it, the form that the layer has.
void UnpackCoralOutput(const CoralLayer& layer, std::span<const uint8_t> wire,
                       std::span<uint8_t> output);
// Gives an input the form that the device wants, wire_bytes of it.
void PackCoralInput(const CoralLayer& layer, std::span<const uint8_t> input,
                    std::span<uint8_t> wire);

}  // namespace atollrt
