// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as an executable, and as each structure of docs/protocol.md. What is accepted must
// survive being written and read again, as bytes and as text. The corpus began with executables of
// tests/support/test_executables.h and the example of docs/executable.md.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "atoll/check.h"
#include "driver/atoll1/protocol.h"
#include "driver/isa/assembly.h"
#include "driver/isa/executable.h"
#include "driver/isa/timing.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/allocation_meter.h"

namespace atollrt::executable_fuzzer {

namespace {

void ReadAsExecutable(std::span<const uint8_t> bytes) {
  const Result<Executable> executable = [&] {
    const MemoryLimit limit(ProportionalBytes(bytes.size()));
    return ReadExecutable(bytes);
  }();
  if (!executable.ok()) return;
  ATOLL_CHECK(ValidateExecutable(*executable).ok());
  const Result<Executable> again = ReadExecutable(WriteExecutable(*executable));
  ATOLL_CHECK(again.ok() && *again == *executable);
  const auto assembled =
      AssembleExecutables(DisassembleExecutable(*executable, {.parameters = true}));
  ATOLL_CHECK(assembled.ok() && (*assembled)[0] == *executable);
  // Whoever loads a model asks for its modelled time.
  (void)SummarizeProgram(executable->inference_program,
                         {.array = {4, 4}, .clock_hz = 1'000'000, .link_bytes_per_second = 1000});
}

void ReadAsProtocol(std::span<const uint8_t> bytes) {
  if (bytes.size() >= kInstructionBytes) {
    const auto instruction = Decode(bytes.first<kInstructionBytes>());
    if (instruction.ok()) {
      const EncodedInstruction encoded = Encode(*instruction);
      ATOLL_CHECK(std::equal(encoded.begin(), encoded.end(), bytes.begin()));
    }
  }
  if (bytes.size() >= kRecordHeaderBytes) {
    const auto header = DecodeRecordHeader(bytes.first<kRecordHeaderBytes>());
    if (header.ok()) {
      const auto encoded = EncodeRecordHeader(*header);
      ATOLL_CHECK(std::equal(encoded.begin(), encoded.end(), bytes.begin()));
    }
    ControlSetup setup;
    setup.request_type = bytes[0];
    setup.request = bytes[1];
    setup.value = static_cast<uint16_t>(bytes[2] | bytes[3] << 8);
    setup.index = static_cast<uint16_t>(bytes[4] | bytes[5] << 8);
    const auto decoded = DecodeRegisterRequest(setup);
    if (decoded.ok()) {
      const ControlSetup made = RegisterRequest(decoded->address, decoded->width, decoded->access);
      ATOLL_CHECK(made.request_type == setup.request_type && made.request == setup.request &&
                  made.value == setup.value && made.index == setup.index);
    }
  }
  const auto start = DecodeStart(bytes);
  if (start.ok()) {
    const auto encoded = EncodeStart(*start);
    ATOLL_CHECK(std::equal(encoded.begin(), encoded.end(), bytes.begin(), bytes.end()));
  }
  const auto event = DecodeEvent(bytes);
  if (event.ok()) {
    ATOLL_CHECK(FaultCodeName(event->fault) != nullptr);
    const auto encoded = EncodeEvent(*event);
    ATOLL_CHECK(std::equal(encoded.begin(), encoded.end(), bytes.begin(), bytes.end()));
  }
}

}  // namespace

ATOLL_FUZZ_TARGET(executable) {
  const MemoryLimit limit(ProportionalBytes(size));
  ReadAsExecutable({data, size});
  ReadAsProtocol({data, size});
  return 0;
}

}  // namespace atollrt::executable_fuzzer
