// SPDX-License-Identifier: Apache-2.0
#include "driver/doctor/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "driver/open_device.h"
#include "runtime/kernels/cpu_features.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;

// The known answers are those of the machine that shares no arithmetic with the others.
TEST(SelfTest, AnswersAreThoseOfTheSteppedMachine) {
  for (const char* profile : {"emu+stepped", "emu:32x32+stepped"}) {
    const auto device = OpenDevice({.device = profile, .threads = 1});
    ASSERT_TRUE(device.ok()) << device.status().message();
    for (const SelfTestCase& test : SelfTestCases()) {
      const auto hash = RunSelfTestCase(test, device->get());
      ASSERT_TRUE(hash.ok()) << test.executable->name << ": " << hash.status().message();
      EXPECT_EQ(*hash, test.output_hash)
          << Format("%s: %016llx in driver/doctor/self_test.txt", test.executable->name.c_str(),
                    static_cast<unsigned long long>(*hash));
    }
  }
}

TEST(SelfTest, EveryInstructionIsInIt) {
  std::set<std::string> mnemonics;
  std::set<std::string> names;
  for (const SelfTestCase& test : SelfTestCases()) {
    EXPECT_TRUE(ValidateExecutable(*test.executable).ok());
    EXPECT_TRUE(names.insert(test.executable->name).second) << test.executable->name;
    for (const auto* program :
         {&test.executable->caching_program, &test.executable->inference_program}) {
      for (const Instruction& instruction : *program) mnemonics.insert(Mnemonic(instruction));
    }
    // The name tells which one it is about.
    EXPECT_THAT(test.executable->name,
                ::testing::StartsWith(Mnemonic(test.executable->inference_program[1])));
  }
  for (const InstructionInfo& info : InstructionTable()) {
    EXPECT_TRUE(mnemonics.contains(info.mnemonic)) << info.mnemonic;
  }
}

// Outputs that are all alike would hide what is wrong.
TEST(SelfTest, OutputsUseTheRangeOfABytes) {
  const auto device = OpenDevice({.device = "emu", .threads = 1});
  ASSERT_TRUE(device.ok());
  for (const SelfTestCase& test : SelfTestCases()) {
    if (test.executable->name == "FILL") continue;
    const auto id = (*device)->Load(test.executable);
    std::vector<uint8_t> output(test.input.size());
    Request request{.executable = *id, .inputs = {test.input}, .outputs = {output}};
    ASSERT_TRUE((*device)->Wait(*(*device)->Submit(request), nullptr).ok());
    std::set<uint8_t> values;
    for (size_t i = 0; i < output.size(); ++i) {
      if (output[i] != test.input[i]) values.insert(output[i]);
    }
    EXPECT_GE(values.size(), 8u) << test.executable->name;
    ASSERT_TRUE((*device)->Unload(*id).ok());
  }
}

TEST(SelfTest, PassesWithTheKernelsOfEveryLevel) {
  const CpuFeatures available = *DetectCpuFeatures();
  for (const CpuLevel& level : CpuLevels()) {
    if (!Supports(available, level.features)) continue;
    const auto device = OpenDevice({.device = "emu", .threads = 2, .cpu_features = level.features});
    ASSERT_TRUE(device.ok());
    for (const SelfTestResult& result : SelfTestDevice(device->get(), "emu")) {
      EXPECT_TRUE(result.status.ok()) << level.name << ": " << result.status.message();
    }
  }
}

// Gives wrong bytes, or nothing more.
class BrokenChip final : public Chip {
 public:
  explicit BrokenChip(Status status) : status_(std::move(status)) { info_.name = "broken"; }
  const DeviceInfo& info() const override { return info_; }
  Result<std::unique_ptr<PreparedExecutable>> Prepare(
      std::shared_ptr<const AnyExecutable> executable) const override {
    auto prepared = std::make_unique<PreparedExecutable>();
    prepared->executable = std::move(executable);
    return prepared;
  }
  void Forget(const PreparedExecutable&) override {}
  bool IsResident(const PreparedExecutable&) const override { return false; }
  uint64_t memory_used_bytes() const override { return 0; }
  Status Run(const Job&, std::span<const Job>, RequestReport*) override { return status_; }
  Status Recover() override { return status_; }
  Status Reopen() override { return status_; }

 private:
  DeviceInfo info_;
  const Status status_;
};

TEST(SelfTest, TellsWhatIsWrong) {
  Device wrong(std::make_unique<BrokenChip>(Status()), {});
  const auto results = SelfTestDevice(&wrong, "broken");
  EXPECT_EQ(results.size(), SelfTestCases().size());
  for (const SelfTestResult& result : results) {
    EXPECT_EQ(result.status.code(), StatusCode::kInternal);
    EXPECT_THAT(result.status.message(), HasSubstr("broken computes " + result.name + " wrongly"));
  }
  Device lost(std::make_unique<BrokenChip>(DeviceLost("unplugged")), {});
  const auto cut = SelfTestDevice(&lost, "broken");
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_EQ(cut[0].status.code(), StatusCode::kDeviceLost);
}

}  // namespace
}  // namespace atollrt
