// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/compiled_forms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "atoll/atoll.hpp"

namespace atollserve {
namespace {

using ::testing::HasSubstr;

std::string Fashion() {
  std::ifstream file(std::string(ATOLL_SOURCE_DIR) + "/models/fashion/fashion_int8.tflite",
                     std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(CompiledForms, AreWhatAnExecutableDependsOn) {
  AtollDeviceInfo device = {};
  device.array_rows = 64;
  device.array_columns = 32;
  device.memory_bytes = 1 << 20;
  AtollDeviceDetails details = {};
  details.family = "Atoll-1";
  details.isa_version = 3;
  details.program_memory_bytes = 4096;
  EXPECT_EQ(FormOf(device, details), "atoll-1-64x32-1048576-4096-isa3");
  // What takes longer on it is no matter.
  device.clock_hz = 5;
  EXPECT_EQ(FormOf(device, details), "atoll-1-64x32-1048576-4096-isa3");
  for (const char* family : {"", "Coral"}) {
    details.family = family;
    EXPECT_EQ(FormOf(device, details), "");
  }
}

TEST(CompiledForms, AreCompiledModels) {
  const std::string model = Fashion();
  const auto compiled = CompileFor("emu", model);
  ASSERT_TRUE(compiled.ok()) << compiled.status().message();
  EXPECT_THAT(compiled->form, HasSubstr("atoll-1-64x64-"));
  EXPECT_NE(compiled->bytes, model);
  AtollExecutables* executables = nullptr;
  ASSERT_EQ(AtollExecutablesCreate(compiled->bytes.data(), compiled->bytes.size(), &executables),
            ATOLL_OK);
  EXPECT_EQ(AtollExecutablesGetCount(executables), 1);
  AtollExecutablesDelete(executables);
}

TEST(CompiledForms, SayWhyThereIsNone) {
  using atollrt::StatusCode;
  EXPECT_EQ(CompileFor("cpu", Fashion()).status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(CompileFor("nonsense", Fashion()).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CompileFor("emu", "no model").status().code(), StatusCode::kCorruptModel);
}

}  // namespace
}  // namespace atollserve
