// SPDX-License-Identifier: Apache-2.0
//
// The primitives of docs/isa.md, "Arithmetic", in 64 bits: what the oracles of instructions share.
// Written from the page alone, with nothing of runtime/kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tests/driver/emulator/emulated_program.h"
#include "tests/support/rng.h"

namespace atollrt {

inline int64_t Srdhm(int64_t a, int64_t b) {
  const int64_t minimum = -(int64_t{1} << 31);
  if (a == minimum && b == minimum) return -(minimum + 1);
  return (a * b + (int64_t{1} << 30)) >> 31;
}
inline int64_t Rdpot(int64_t x, int64_t n) {
  const int64_t mask = (int64_t{1} << n) - 1;
  return (x >> n) + ((x & mask) > (mask >> 1) + (x < 0 ? 1 : 0) ? 1 : 0);
}
inline int64_t Wrap(int64_t x) { return static_cast<int32_t>(static_cast<uint32_t>(x)); }
inline int64_t Mbqm(int64_t x, int64_t q, int64_t e) {
  if (e <= 0) return Rdpot(Srdhm(x, q), -e);
  return Srdhm(Wrap(static_cast<int64_t>(static_cast<uint64_t>(x) << (e % 32))), q);
}
inline uint8_t Clamped(int64_t y, int32_t min, int32_t max) {
  return static_cast<uint8_t>(std::min<int64_t>(std::max<int64_t>(y, min), max));
}
inline int64_t Value(uint8_t byte, bool is_unsigned) {
  return is_unsigned ? byte : static_cast<int8_t>(byte);
}

inline Bytes RandomBytes(Rng& rng, size_t count) {
  Bytes bytes(count);
  rng.Fill(bytes);
  return bytes;
}

// What an instruction makes of the bytes at address 0, if it writes `output_bytes` at
// `output_address`.
inline Bytes RunOne(Core& core, const Instruction& instruction, const Bytes& input,
                    uint32_t output_address, uint64_t output_bytes) {
  const RunResult result =
      RunProgram(core,
                 {InputInstruction{.bytes = static_cast<uint32_t>(input.size())}, instruction,
                  OutputInstruction{.input_address = output_address,
                                    .bytes = static_cast<uint32_t>(output_bytes)}},
                 {.inputs = input});
  EXPECT_EQ(result.event.kind, EventKind::kCompleted)
      << FaultCodeName(result.event.fault) << ": " << Disassemble(instruction);
  return result.outputs;
}

}  // namespace atollrt
