// SPDX-License-Identifier: Apache-2.0
//
// The operator conformance cases (tests/golden/ops/README.md) through the public C interface, on
// the CPU and on emulated devices: outputs must be TensorFlow Lite's, byte for byte, and models
// that make no sense must be refused with a sentence. ctest runs this program once per instruction
// set (ATOLL_CPU).
//
// */Committed.* runs the cases of this repository, */Shared.* the full set in ATOLL_SHARED_DIR.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/runtime.h"
#include "runtime/base/sha256.h"
#include "tests/support/absent.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using Json = nlohmann::json;
using Bytes = std::vector<uint8_t>;

const std::filesystem::path kCommitted = ATOLL_SOURCE_DIR "/tests/golden/ops";
const std::filesystem::path kShared = ATOLL_SHARED_DIR "/golden/ops";

constexpr char kCpu[] = "cpu";
constexpr char kCompiledForCpu[] = "cpu:compiled";  // the same for CompiledForCpu of each file

// ---- Data of the cases --------------------------------------------------------------------------

Bytes ReadBytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Bytes DecodeBase64(const std::string& text) {
  const auto digit = [](char c) -> int {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  Bytes bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = digit(c);
    if (value < 0) break;  // padding
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<uint8_t>(bits >> count));
    }
  }
  return bytes;
}

// The README's rule for inputs.
void FillInput(uint64_t seed, AtollType type, uint8_t* bytes, size_t size) {
  Rng rng(seed);
  if (type == ATOLL_FLOAT32) {
    for (size_t i = 0; i < size / 4; ++i) {
      const double unit = static_cast<double>(rng.Next() >> 40) / 16777216.0;
      const float value = static_cast<float>(unit * 2.0 - 1.0);
      std::memcpy(bytes + 4 * i, &value, 4);
    }
    return;
  }
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t number = rng.Next();
    std::memcpy(bytes + i, &number, std::min<size_t>(8, size - i));
  }
  for (size_t i = 0; type == ATOLL_BOOL && i < size; ++i) bytes[i] &= 1;
}

// ---- One case -----------------------------------------------------------------------------------

struct ModelDeleter {
  void operator()(AtollModel* model) const { AtollModelDelete(model); }
};
struct InterpreterDeleter {
  void operator()(AtollInterpreter* interpreter) const { AtollInterpreterDelete(interpreter); }
};
struct DelegateDeleter {
  void operator()(AtollDelegate* delegate) const { AtollDelegateDelete(delegate); }
};

// A model ready to run, or why there is none.
struct Prepared {
  AtollStatus status = ATOLL_OK;
  std::string message;
  std::unique_ptr<AtollModel, ModelDeleter> model;
  std::unique_ptr<AtollInterpreter, InterpreterDeleter> interpreter;

  // For calls that may fail: remembers the first failure.
  bool Succeeds(AtollStatus result) {
    if (result != ATOLL_OK) {
      status = result;
      message = AtollLastError();
    }
    return result == ATOLL_OK;
  }
};

Prepared Prepare(const Bytes& file, AtollDelegate* delegate) {
  Prepared prepared;
  AtollModel* model = nullptr;
  // An exact-size block of its own, also for the empty file.
  const auto block = std::make_unique<uint8_t[]>(file.size());
  std::copy(file.begin(), file.end(), block.get());
  if (!prepared.Succeeds(AtollModelCreateFromBuffer(block.get(), file.size(), &model))) {
    return prepared;
  }
  prepared.model.reset(model);
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.num_threads = 2;
  options.delegate = delegate;
  AtollInterpreter* interpreter = nullptr;
  if (prepared.Succeeds(AtollInterpreterCreate(model, &options, &interpreter))) {
    prepared.interpreter.reset(interpreter);
  }
  return prepared;
}

// The file as it is if nothing can be made of it.
Bytes CompiledForCpu(Bytes file) {
  AtollModel* model = nullptr;
  if (AtollModelCreateFromBuffer(file.data(), file.size(), &model) != ATOLL_OK) return file;
  const std::unique_ptr<AtollModel, ModelDeleter> owner(model);
  const auto keep = [](const void* data, size_t size, void* compiled) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    static_cast<Bytes*>(compiled)->assign(bytes, bytes + size);
  };
  EXPECT_EQ(AtollDelegateCompileModel(nullptr, model, keep, &file), ATOLL_OK) << AtollLastError();
  return file;
}

AtollStatus InvokeWithSeed(AtollInterpreter* interpreter, uint64_t seed) {
  for (int32_t i = 0; i < AtollInterpreterGetInputTensorCount(interpreter); ++i) {
    AtollTensor* input = AtollInterpreterGetInputTensor(interpreter, i);
    FillInput(seed, AtollTensorType(input), static_cast<uint8_t*>(AtollTensorData(input)),
              AtollTensorByteSize(input));
  }
  return AtollInterpreterInvoke(interpreter);
}

bool RunsOnDevice(const AtollInterpreter* interpreter) {
  return AtollInterpreterGetPartitionCount(interpreter) > 0;
}

std::vector<int32_t> ShapeOf(const AtollTensor* tensor) {
  std::vector<int32_t> shape;
  for (int32_t d = 0; d < AtollTensorNumDims(tensor); ++d) {
    shape.push_back(AtollTensorDim(tensor, d));
  }
  return shape;
}

// The first byte that differs, where the manifest holds the bytes.
std::string FirstDifference(const Json& want, const uint8_t* got) {
  if (!want.contains("base64")) return "the manifest has only the digest";
  const Bytes bytes = DecodeBase64(want["base64"]);
  size_t differing = 0;
  std::string first;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (got[i] == bytes[i]) continue;
    if (differing++ == 0) {
      first = "byte " + std::to_string(i) + " is " + std::to_string(got[i]) + ", must be " +
              std::to_string(bytes[i]);
    }
  }
  return first + "; " + std::to_string(differing) + " of " + std::to_string(bytes.size()) +
         " differ";
}

void ExpectWithinTolerance(const Json& want, const uint8_t* got, size_t size) {
  const Bytes bytes = DecodeBase64(want["base64"]);
  ASSERT_EQ(bytes.size(), size);
  const auto element = [](const uint8_t* base, size_t i) {
    float value = 0;
    std::memcpy(&value, base + 4 * i, 4);
    return value;
  };
  float largest = 0;
  for (size_t i = 0; i < size / 4; ++i) {
    largest = std::max(largest, std::abs(element(bytes.data(), i)));
  }
  for (size_t i = 0; i < size / 4; ++i) {
    EXPECT_NEAR(element(got, i), element(bytes.data(), i), 1e-5f * largest) << "element " << i;
  }
}

void ExpectOutput(const Json& want, bool exact, const AtollTensor* tensor) {
  EXPECT_EQ(AtollTypeName(AtollTensorType(tensor)), want["dtype"].get<std::string>());
  EXPECT_EQ(ShapeOf(tensor), want["shape"].get<std::vector<int32_t>>());
  if (want.contains("scale")) {
    const AtollQuantization quantization = AtollTensorQuantization(tensor);
    EXPECT_FLOAT_EQ(quantization.scale, want["scale"].get<float>());
    EXPECT_EQ(quantization.zero_point, want["zero_point"].get<int32_t>());
  }
  const size_t size = want["bytes"];
  if (want.contains("defined_elements")) {
    ASSERT_GE(AtollTensorByteSize(tensor), size);
  } else {
    ASSERT_EQ(AtollTensorByteSize(tensor), size);
  }
  const auto* got = static_cast<const uint8_t*>(AtollTensorConstData(tensor));
  if (!exact) {
    ExpectWithinTolerance(want, got, size);
  } else if (Sha256Hex(got, size) != want["sha256"]) {
    ADD_FAILURE() << "output " << want["index"] << ": " << FirstDifference(want, got);
  }
}

// ---- All cases of a directory -------------------------------------------------------------------

// The cases of one operator; those of several in a row are CHAIN.
struct Counts {
  int cases = 0;
  int equal = 0;
  int on_device = 0;  // of those that are equal, with at least one node on the device
};

struct Summary {
  std::map<std::string, Counts> ops;
  int refused = 0;  // and had to be

  Counts total() const {
    Counts sum;
    for (const auto& [op, counts] : ops) {
      sum.cases += counts.cases;
      sum.equal += counts.equal;
      sum.on_device += counts.on_device;
    }
    return sum;
  }
};

bool IsRefused(const Json& one, const Bytes& file, AtollDelegate* delegate) {
  Prepared prepared = Prepare(file, delegate);
  if (prepared.interpreter != nullptr) {
    for (const uint64_t seed : one["seeds"]) {
      prepared.Succeeds(InvokeWithSeed(prepared.interpreter.get(), seed));
    }
  }
  EXPECT_NE(prepared.status, ATOLL_OK) << one["params"];
  EXPECT_NE(prepared.message, "");
  return prepared.status != ATOLL_OK;
}

// Counts the case in `counts`.
void RunCase(const Json& one, const Bytes& file, AtollDelegate* delegate, Counts* counts) {
  const auto failures = [] {
    return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
  };
  const int failures_before = failures();
  ++counts->cases;
  const Prepared prepared = Prepare(file, delegate);
  ASSERT_EQ(prepared.status, ATOLL_OK) << prepared.message;
  AtollInterpreter* interpreter = prepared.interpreter.get();
  const bool exact = one["compare"] == "exact";
  for (const Json& run : one["runs"]) {
    SCOPED_TRACE("seed " + run["seed"].dump());
    ASSERT_EQ(InvokeWithSeed(interpreter, run["seed"]), ATOLL_OK) << AtollLastError();
    ASSERT_EQ(AtollInterpreterGetOutputTensorCount(interpreter),
              static_cast<int32_t>(run["outputs"].size()));
    for (const Json& output : run["outputs"]) {
      ExpectOutput(output, exact, AtollInterpreterGetOutputTensor(interpreter, output["index"]));
    }
  }
  if (failures() > failures_before) return;
  ++counts->equal;
  if (RunsOnDevice(interpreter)) ++counts->on_device;
}

// The counts become properties of the test ("ADD.cases", "ADD.equal", "ADD.on_device"), which
// --gtest_output=json:FILE writes.
Summary RunDirectory(const std::filesystem::path& directory, const std::string& device) {
  Summary summary;
  AtollDelegate* delegate = nullptr;
  std::unique_ptr<AtollDelegate, DelegateDeleter> owner;
  const bool on_device = device != kCpu && device != kCompiledForCpu;
  if (on_device) {
    AtollDelegateOptions options = ATOLL_DELEGATE_OPTIONS_INIT;
    options.device = device.c_str();
    options.num_threads = 2;
    EXPECT_EQ(AtollDelegateCreate(&options, &delegate), ATOLL_OK) << AtollLastError();
    owner.reset(delegate);
    if (delegate == nullptr) return summary;
  }
  std::ifstream stream(directory / "manifest.json");
  const Json manifest = Json::parse(stream);
  for (const Json& one : manifest["cases"]) {
    SCOPED_TRACE(one["name"]);
    Bytes file = ReadBytes(directory / one["file"].get<std::string>());
    if (device == kCompiledForCpu) file = CompiledForCpu(std::move(file));
    if (one["expect"] == "error") {
      summary.refused += IsRefused(one, file, delegate);
    } else {
      RunCase(one, file, delegate, &summary.ops[one["op"].get<std::string>()]);
    }
  }
  for (const auto& [op, counts] : summary.ops) {
    testing::Test::RecordProperty(op + ".cases", counts.cases);
    testing::Test::RecordProperty(op + ".equal", counts.equal);
    testing::Test::RecordProperty(op + ".on_device", counts.on_device);
  }
  testing::Test::RecordProperty("refused", summary.refused);
  const Counts total = summary.total();
  std::printf("%d of %d cases equal, %d refused as they must be\n", total.equal, total.cases,
              summary.refused);
  if (on_device) {
    std::printf("%d of those that are equal have at least one node on the device\n",
                total.on_device);
  }
  return summary;
}

// ---- Tests --------------------------------------------------------------------------------------

// On the CPU and on devices of all sizes; "emu+stepped" shares no arithmetic with anything. An
// ATOLL_CPU that this machine does not have is no failure.
class GoldenOps : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* name = nullptr;
    if (AtollCpuName(&name) != ATOLL_OK) {
      ReportAbsent(AtollLastError());
      GTEST_SKIP();
    }
    std::printf("kernels: %s\n", name);
  }

  static void ExpectTensorFlowLitesBytes(const std::filesystem::path& directory, int equal_min,
                                         int on_device_min) {
    const Counts total = RunDirectory(directory, GetParam()).total();
    EXPECT_GT(total.equal, equal_min);
    const bool on_device = std::string(GetParam()).starts_with("emu");
    EXPECT_GE(total.on_device, on_device ? on_device_min : 0);
  }
};

using Committed = GoldenOps;

TEST_P(Committed, CasesGiveTensorFlowLitesBytes) {
  ExpectTensorFlowLitesBytes(kCommitted, 300, 380);
}

class Shared : public GoldenOps {
 protected:
  void SetUp() override {
    GoldenOps::SetUp();
    if (std::filesystem::exists(kShared / "manifest.json")) return;
    if (ATOLL_REQUIRE_SHARED) FAIL() << kShared << " has no manifest.json";
    ReportAbsent("reference data: cases in " + kShared.string());
    GTEST_SKIP();
  }
};

TEST_P(Shared, CasesGiveTensorFlowLitesBytes) { ExpectTensorFlowLitesBytes(kShared, 600, 1000); }

constexpr const char* kDevices[] = {kCpu,          kCompiledForCpu, "emu",        "emu:32x32",
                                    "emu:128x128", "emu:1mib",      "emu+stepped"};
std::string NameOf(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ':' || c == '+'; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Devices, Committed, testing::ValuesIn(kDevices), NameOf);
INSTANTIATE_TEST_SUITE_P(Devices, Shared, testing::ValuesIn(kDevices), NameOf);

}  // namespace
}  // namespace atollrt
