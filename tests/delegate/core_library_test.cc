// SPDX-License-Identifier: Apache-2.0
//
// libatoll-core: the emulated device gives the CPU's bytes there, too, and what the library leaves
// out says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "atoll/atoll.hpp"
#include "tests/support/fashion_interpreter.h"

namespace atollpp {
namespace {

using testing::HasSubstr;

TEST(CoreLibrary, RunsOnEmulatedDevices) {
  Interpreter cpu = MakeInterpreter("cpu");
  EXPECT_TRUE(cpu.Invoke());
  const std::span<const int8_t> wanted = cpu.output(0).values<int8_t>();
  for (const char* device : {"auto", "emu", "emu:32x32", "emu,emu"}) {
    SCOPED_TRACE(device);
    Interpreter emu = MakeInterpreter(device);
    EXPECT_EQ(AtollInterpreterGetPartitionCount(emu.get()), 1);
    EXPECT_TRUE(emu.Invoke());
    EXPECT_TRUE(std::ranges::equal(wanted, emu.output(0).values<int8_t>()));
  }
}

void ExpectFails(AtollStatus status, AtollStatus wanted, const char* sentence) {
  EXPECT_EQ(status, wanted);
  EXPECT_THAT(AtollLastError(), HasSubstr(sentence));
}

AtollStatus Open(AtollDelegateOptions options) {
  AtollDelegate* delegate = nullptr;
  const AtollStatus status = AtollDelegateCreate(&options, &delegate);
  EXPECT_EQ(delegate, nullptr);
  return status;
}

TEST(CoreLibrary, SaysWhatItLeavesOut) {
  AtollDelegateOptions options = ATOLL_DELEGATE_OPTIONS_INIT;
  for (const char* device : {"usb", "usb:0", "usb:2-3.1", "pci:0", "replay:session.pcapng"}) {
    options.device = device;
    ExpectFails(Open(options), ATOLL_NOT_FOUND, "libatoll has them; or use --device emu");
  }
  options.device = "emu+stepped";
  ExpectFails(Open(options), ATOLL_UNSUPPORTED, "libatoll has it");
  options.device = "ethernet";
  ExpectFails(Open(options), ATOLL_INVALID_ARGUMENT, "'ethernet' is no device");
  options.device = "emu";
  options.faults = "seed:1:1/400";
  ExpectFails(Open(options), ATOLL_UNSUPPORTED, "libatoll has them");
  options.faults = "no such script";
  ExpectFails(Open(options), ATOLL_UNSUPPORTED, "libatoll has them");

  const AtollFinding* findings = nullptr;
  const AtollSelfTestResult* results = nullptr;
  int32_t count = 0;
  ExpectFails(AtollDiagnose(nullptr, &findings, &count), ATOLL_UNSUPPORTED, "link libatoll");
  ExpectFails(AtollDeviceSelfTest("emu", &results, &count), ATOLL_UNSUPPORTED, "link libatoll");
  AtollCoralEstimate estimate;
  ExpectFails(AtollEstimateCoral(nullptr, "usb3", &estimate), ATOLL_UNSUPPORTED, "link libatoll");
  ExpectFails(AtollReadRecordingNote(
                  "session.pcapng", [](const void*, size_t, void*) {}, nullptr),
              ATOLL_UNSUPPORTED, "libatoll has them");
}

TEST(CoreLibrary, WritesNoFiles) {
  const auto ignore = [](const void*, size_t, void*) {};
  ExpectFails(AtollDelegateCompileModel(nullptr, nullptr, ignore, nullptr), ATOLL_UNSUPPORTED,
              "link libatoll");
  ExpectFails(AtollAssemble("END", 3, ignore, nullptr), ATOLL_UNSUPPORTED, "link libatoll");
  ExpectFails(AtollExecutablesDisassemble(nullptr, 0, ATOLL_OMIT_PARAMETERS, ignore, nullptr),
              ATOLL_UNSUPPORTED, "link libatoll");
}

#if defined(__x86_64__)
// Where the CPU has it, the kernels for AVX-VNNI run in the encoding of AVX-512, or as they are.
TEST(CoreLibrary, HasNoKernelsForAvx512) {
  const char* name = nullptr;
  const auto name_if_capped = [&](const char* level) {
    EXPECT_EQ(setenv("ATOLL_CPU", level, 1), 0);
    return AtollCpuName(&name);
  };
  const char* before = std::getenv("ATOLL_CPU");
  const std::string cap = before == nullptr ? "" : before;
  if (name_if_capped("avx512vnni256") == ATOLL_OK) {
    ExpectFails(name_if_capped("avx512vnni"), ATOLL_UNSUPPORTED, "link libatoll");
    ASSERT_EQ(name_if_capped(""), ATOLL_OK);
    EXPECT_THAT(name, testing::AnyOf(testing::StrEq("avxvnni"), testing::StrEq("avx512vnni256")));
  } else {
    ExpectFails(name_if_capped("avx512vnni"), ATOLL_INVALID_ARGUMENT, "this machine has only");
  }
  ASSERT_EQ(setenv("ATOLL_CPU", cap.c_str(), 1), 0);
}
#endif

TEST(CoreLibrary, ListsEmulatorsThatCanBeOpened) {
  const AtollDeviceInfo* devices = nullptr;
  int32_t count = 0;
  ASSERT_EQ(AtollListDevices(&devices, &count), ATOLL_OK);
  ASSERT_GE(count, 2);
  EXPECT_STREQ(devices[0].name, "usb");
  EXPECT_EQ(devices[0].available, 0);
  int defaults = 0;
  for (int32_t i = 1; i < count; ++i) {
    defaults += devices[i].is_default;
    const std::string name = devices[i].name;
    const Result<Delegate> delegate = Delegate::Open(name);
    EXPECT_TRUE(delegate) << name << ": " << delegate.message();
  }
  EXPECT_EQ(defaults, 1);
}

}  // namespace
}  // namespace atollpp
