// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as each text that the driver reads: a program, executables, a device profile. What is
// accepted must survive being written and read again. The corpus began with what `atoll disasm`
// writes of tests/support/test_executables.h, and a built-in profile.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/check.h"
#include "driver/isa/assembly.h"
#include "driver/profiles/device_profile.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/allocation_meter.h"

namespace atollrt::text_fuzzer {

namespace {

void ReadAsProgram(std::string_view text) {
  const auto program = AssembleProgram(text);
  if (!program.ok()) {
    ATOLL_CHECK(program.status().message().starts_with("line "));
    return;
  }
  std::string written;
  for (const Instruction& instruction : *program) written += Disassemble(instruction) + "\n";
  const auto again = AssembleProgram(written);
  ATOLL_CHECK(again.ok() && *again == *program);
}

void ReadAsExecutables(std::string_view text) {
  const auto executables = AssembleExecutables(text);
  if (!executables.ok()) return;
  std::string written;
  for (const Executable& executable : *executables) {
    ATOLL_CHECK(ValidateExecutable(executable).ok());
    written += DisassembleExecutable(executable, {.parameters = true});
  }
  const auto again = AssembleExecutables(written);
  ATOLL_CHECK(again.ok() && *again == *executables);
}

void ReadAsProfile(std::string_view text) {
  const auto profile = ParseDeviceProfile("x", text);
  if (!profile.ok()) return;
  ATOLL_CHECK(profile->array_rows >= 1 && profile->array_columns >= 1 && profile->clock_hz > 0);
  ATOLL_CHECK(profile->memory_bytes >= 1 && profile->link_bytes_per_second > 0);
  ATOLL_CHECK(profile->host_seconds >= 0);
}

}  // namespace

ATOLL_FUZZ_TARGET(text) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  {
    const MemoryLimit limit(ProportionalBytes(size));
    (void)AssembleProgram(text).ok();
    (void)AssembleExecutables(text).ok();
    (void)ParseDeviceProfile("x", text).ok();
  }
  ReadAsProgram(text);
  ReadAsExecutables(text);
  ReadAsProfile(text);
  return 0;
}

}  // namespace atollrt::text_fuzzer
