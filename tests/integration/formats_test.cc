// SPDX-License-Identifier: Apache-2.0
//
// What other versions of Atoll wrote still runs: compiled models, a bare executable and a recorded
// session in tests/golden/formats, a folder for each version, give the outputs that they gave when
// they were made; what a version to come may write is refused by a sentence.
//
// A new version gets its folder with
//   build/release/tests/integration-formats_test --gtest_also_run_disabled_tests
//       --gtest_filter=Formats.DISABLED_Write
// Folders that are there are never written again: their bytes are what users have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/atoll.hpp"
#include "driver/isa/executable.h"
#include "runtime/base/bytes.h"
#include "tests/support/emulated_device.h"
#include "tests/support/model_builder.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<uint8_t>;
namespace fs = std::filesystem;

constexpr char kFormats[] = ATOLL_SOURCE_DIR "/tests/golden/formats";
constexpr int kInvocations = 3;  // one after the other, in the files of inputs and outputs, too
constexpr char kNote[] = "network";

// A compiled model is NETWORK_TARGET.tflite; this is the device that it was compiled for.
struct Target {
  const char* name;
  const char* device;
};
constexpr Target kTargets[] = {{"64x64", "emu"}, {"32x32", "emu:32x32"}, {"cpu", "cpu"}};

Bytes ReadFile(const fs::path& path) {
  Bytes bytes(fs::exists(path) ? fs::file_size(path) : 0);
  FILE* const file = std::fopen(path.c_str(), "rb");
  EXPECT_NE(file, nullptr) << path;
  if (file == nullptr) return {};
  EXPECT_EQ(std::fread(bytes.data(), 1, bytes.size(), file), bytes.size()) << path;
  std::fclose(file);
  return bytes;
}

void WriteFile(const fs::path& path, std::span<const uint8_t> bytes) {
  FILE* const file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr) << path;
  EXPECT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
  EXPECT_EQ(std::fclose(file), 0);
}

std::vector<fs::path> Versions() {
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(kFormats)) {
    if (entry.is_directory()) folders.push_back(entry.path());
  }
  return folders;
}

atollpp::Result<atollpp::Model> LoadModel(const Bytes& file) {
  return atollpp::Model::FromBuffer(std::as_bytes(std::span(file)));
}

atollpp::Delegate Open(const std::string& device) {
  auto delegate = atollpp::Delegate::Open(device);
  EXPECT_TRUE(delegate) << delegate.message();
  return delegate ? *std::move(delegate) : atollpp::Delegate();
}

// The outputs of kInvocations inferences on `inputs`, one behind the other.
atollpp::Result<Bytes> Infer(const Bytes& file, const atollpp::Delegate& delegate,
                             const Bytes& inputs) {
  auto model = LoadModel(file);
  if (!model) return model.status();
  auto interpreter = atollpp::Interpreter::Create(*model, delegate);
  if (!interpreter) return interpreter.status();
  const auto input = interpreter->input(0).bytes();
  EXPECT_EQ(inputs.size(), kInvocations * input.size());
  Bytes outputs;
  for (int i = 0; i < kInvocations; ++i) {
    const auto from = std::as_bytes(std::span(inputs)).subspan(i * input.size(), input.size());
    std::copy(from.begin(), from.end(), input.begin());
    if (auto status = interpreter->Invoke(); !status) return status;
    for (const std::byte value : interpreter->output(0).bytes()) {
      outputs.push_back(static_cast<uint8_t>(value));
    }
  }
  return outputs;
}

// The executable in `bytes`, or the first one of a compiled model.
std::span<uint8_t> FindExecutable(Bytes& bytes) {
  constexpr std::string_view kIdentifier = "ATX1";
  const auto found =
      std::search(bytes.begin(), bytes.end(), kIdentifier.begin(), kIdentifier.end());
  if (found == bytes.end()) return {};
  return std::span(bytes).subspan(static_cast<size_t>(found - bytes.begin()) - 4);
}

// Its version of the instruction set: field 0 of the root table (docs/executable.md).
void MakeVersionTwo(std::span<uint8_t> executable) {
  uint8_t* const table = executable.data() + LoadLittleEndian<uint32_t>(executable.data());
  const uint8_t* const vtable = table - LoadLittleEndian<int32_t>(table);
  uint8_t* const version = table + LoadLittleEndian<uint16_t>(vtable + 4);
  ASSERT_EQ(LoadLittleEndian<uint32_t>(version), 1u);
  StoreLittleEndian<uint32_t>(version, 2);
}

TEST(Formats, CompiledModelsGiveTheirOutputsOnEveryDevice) {
  int models = 0;
  for (const fs::path& folder : Versions()) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".tflite") continue;
      SCOPED_TRACE(entry.path());
      ++models;
      const std::string name = entry.path().stem();
      const std::string network = name.substr(0, name.find('_'));
      const Bytes file = ReadFile(entry.path());
      const Bytes inputs = ReadFile(folder / (network + ".in"));
      for (const Target& target : kTargets) {
        const auto outputs = Infer(file, Open(target.device), inputs);
        ASSERT_TRUE(outputs) << target.device << ": " << outputs.message();
        EXPECT_EQ(*outputs, ReadFile(folder / (network + ".out"))) << target.device;
      }
    }
  }
  EXPECT_GE(models, 5);
}

TEST(Formats, DevicesRunTheProgramsOfTheFile) {
  for (const fs::path& folder : Versions()) {
    for (const char* network : {"network", "lstm"}) {
      for (const Target& target : std::span(kTargets).first(2)) {
        const Bytes file =
            ReadFile(folder / (std::string(network) + "_" + target.name + ".tflite"));
        AtollExecutables* executables = nullptr;
        ASSERT_EQ(AtollExecutablesCreate(file.data(), file.size(), &executables), ATOLL_OK);
        AtollExecutableInfo stored = {};
        ASSERT_EQ(AtollExecutablesGetInfo(executables, 0, &stored), ATOLL_OK);
        EXPECT_EQ(std::to_string(stored.array_rows), std::string(target.name).substr(0, 2));
        const auto model = LoadModel(file);
        ASSERT_TRUE(model) << model.message();
        const auto interpreter = atollpp::Interpreter::Create(*model, Open(target.device));
        ASSERT_TRUE(interpreter) << interpreter.message();
        AtollPartitionInfo info = {};
        ASSERT_EQ(AtollInterpreterGetPartitionInfo(interpreter->get(), 0, &info), ATOLL_OK);
        EXPECT_EQ(info.instruction_count, stored.inference_instruction_count);
        // What is compiled anew has its plan of memory, too.
        const AtollMemoryBlock* blocks = nullptr;
        int32_t block_count = -1;
        EXPECT_EQ(AtollInterpreterGetPartitionMemory(interpreter->get(), 0, &blocks, &block_count),
                  ATOLL_OK);
        EXPECT_EQ(block_count, 0);
        AtollExecutablesDelete(executables);
      }
    }
  }
}

TEST(Formats, ABareExecutableRuns) {
  for (const fs::path& folder : Versions()) {
    auto executable = ReadExecutable(ReadFile(folder / "network.atoll"));
    ASSERT_TRUE(executable.ok()) << executable.status().message();
    EXPECT_GT(executable->caching_program.size(), 1u);
    const size_t input_bytes = executable->inputs[0].bytes;
    const size_t output_bytes = executable->outputs[0].bytes;
    const Bytes inputs = ReadFile(folder / "network.in");
    Bytes outputs(kInvocations * output_bytes);
    const std::unique_ptr<Device> device = EmulatedDevice{}.Open();
    const auto id = device->Load(std::make_shared<Executable>(*std::move(executable)));
    ASSERT_TRUE(id.ok()) << id.status().message();
    for (size_t i = 0; i < kInvocations; ++i) {
      const auto request =
          device->Submit({.executable = *id,
                          .inputs = {std::span(inputs).subspan(i * input_bytes, input_bytes)},
                          .outputs = {std::span(outputs).subspan(i * output_bytes, output_bytes)}});
      ASSERT_TRUE(request.ok()) << request.status().message();
      const Status status = device->Wait(*request, nullptr);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    EXPECT_EQ(outputs, ReadFile(folder / "network.out"));
  }
}

// As long as the driver tells a device the same as then; a driver that does not departs from the
// recording and says so, but still reads what was kept with it.
TEST(Formats, ARecordingPlaysBack) {
  for (const fs::path& folder : Versions()) {
    const std::string path = folder / "session.pcapng";
    const auto outputs = Infer(ReadFile(folder / "network_64x64.tflite"), Open("replay:" + path),
                               ReadFile(folder / "network.in"));
    ASSERT_TRUE(outputs) << outputs.message();
    EXPECT_EQ(*outputs, ReadFile(folder / "network.out"));
    std::string note;
    const auto keep = [](const void* data, size_t size, void* kept) {
      static_cast<std::string*>(kept)->assign(static_cast<const char*>(data), size);
    };
    EXPECT_EQ(AtollReadRecordingNote(path.c_str(), keep, &note), ATOLL_OK) << AtollLastError();
    EXPECT_EQ(note, kNote);
  }
}

TEST(Formats, VersionsToComeAreRefusedByASentence) {
  const fs::path folder = Versions().front();
  Bytes bare = ReadFile(folder / "network.atoll");
  bare[7] = '2';  // another file identifier
  EXPECT_THAT(ReadExecutable(bare).status().message(), HasSubstr("not an Atoll executable"));
  bare[7] = '1';
  MakeVersionTwo(bare);
  const auto executable = ReadExecutable(bare);
  EXPECT_EQ(executable.code(), StatusCode::kUnsupported);
  EXPECT_THAT(executable.status().message(),
              HasSubstr("made for ISA version 2, this library knows version 1; compile"));

  const Bytes compiled = ReadFile(folder / "network_64x64.tflite");
  const Bytes inputs = ReadFile(folder / "network.in");
  Bytes model = compiled;
  MakeVersionTwo(FindExecutable(model));
  const auto on_cpu = Infer(model, {}, inputs);
  ASSERT_TRUE(on_cpu) << on_cpu.message();
  EXPECT_EQ(*on_cpu, ReadFile(folder / "network.out"));
  const auto on_device = Infer(model, Open("emu"), inputs);
  EXPECT_EQ(on_device.code(), ATOLL_UNSUPPORTED);
  EXPECT_THAT(on_device.message(), HasSubstr("made for ISA version 2"));

  // The layout of the operator's options, 16 bytes before the executable.
  model = compiled;
  const std::span<uint8_t> within = FindExecutable(model);
  StoreLittleEndian<uint32_t>(within.data() - 12, 2);
  EXPECT_EQ(LoadModel(model).code(), ATOLL_UNSUPPORTED);
  EXPECT_THAT(LoadModel(model).message(),
              HasSubstr("its options have layout 2, this Atoll reads 1; compile"));

  // What packed weights of another kind are nobody knows; the model has others.
  model = ReadFile(folder / "network_cpu.tflite");
  constexpr std::string_view kPacked = "ATPW";
  const auto packed = std::search(model.begin(), model.end(), kPacked.begin(), kPacked.end());
  ASSERT_NE(packed, model.end());
  packed[3] = 'X';
  const auto unpacked = Infer(model, {}, inputs);
  ASSERT_TRUE(unpacked) << unpacked.message();
  EXPECT_EQ(*unpacked, ReadFile(folder / "network.out"));

  Bytes session = ReadFile(folder / "session.pcapng");
  StoreLittleEndian<uint16_t>(&session[12], 2);
  const fs::path path = fs::path(::testing::TempDir()) / "session_of_version_2.pcapng";
  WriteFile(path, session);
  const auto replay = atollpp::Delegate::Open("replay:" + path.string());
  fs::remove(path);
  EXPECT_EQ(replay.code(), ATOLL_INVALID_ARGUMENT);
  EXPECT_THAT(replay.message(), HasSubstr("a pcapng file of version 2, only 1 is known"));
}

// ---- Writing ------------------------------------------------------------------------------------

ModelBuilder Network() {
  ModelBuilder m(1);
  const int32_t x = m.Conv2D(m.Input({1, 12, 12, 4}), {.channels = 24, .kernel = 3, .stride = 2});
  const int32_t y = m.Add(x, m.DepthwiseConv2D(x, {.kernel = 3}));
  const int32_t z = m.MaxPool(m.Conv2D(y, {.channels = 40}), {});
  const int32_t scores = m.FullyConnected(m.Relu(z), 10);
  m.tensor(scores).quantization.scales = {1.0f};  // few of them at its ends
  m.Output(scores);
  return m;
}

ModelBuilder Lstm() {
  ModelBuilder m(2);
  const int32_t x = m.Lstm(m.Input({1, 4, 12}), {.units = 20});
  const int32_t scores = m.FullyConnected(m.Reshape(x, {1, 80}), 6);
  m.tensor(scores).quantization.scales = {0.5f};
  m.Output(scores);
  return m;
}

Bytes Compile(const Bytes& original, const std::string& device) {
  const auto model = LoadModel(original);
  EXPECT_TRUE(model) << model.message();
  Bytes compiled;
  const auto keep = [](const void* data, size_t size, void* kept) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    static_cast<Bytes*>(kept)->assign(bytes, bytes + size);
  };
  EXPECT_EQ(AtollDelegateCompileModel(Open(device).get(), model->get(), keep, &compiled), ATOLL_OK)
      << AtollLastError();
  return compiled;
}

TEST(Formats, DISABLED_Write) {
  const fs::path folder = fs::path(kFormats) / AtollVersion();
  ASSERT_FALSE(fs::exists(folder)) << "what a version wrote is not written again";
  fs::create_directories(folder);
  const std::pair<std::string, Bytes> networks[] = {{"network", Network().Build()},
                                                    {"lstm", Lstm().Build()}};
  for (const auto& [name, original] : networks) {
    const auto model = LoadModel(original);
    ASSERT_TRUE(model) << model.message();
    auto interpreter = atollpp::Interpreter::Create(*model);
    Bytes inputs(kInvocations * interpreter->input(0).bytes().size());
    Rng(3).Fill(inputs);
    const auto outputs = Infer(original, {}, inputs);
    ASSERT_TRUE(outputs) << outputs.message();
    WriteFile(folder / (name + ".in"), inputs);
    WriteFile(folder / (name + ".out"), *outputs);
    for (const Target& target : kTargets) {
      WriteFile(folder / (name + "_" + target.name + ".tflite"), Compile(original, target.device));
    }
  }
  Bytes compiled = Compile(networks[0].second, "emu");
  const auto executable = ReadExecutable(FindExecutable(compiled));
  ASSERT_TRUE(executable.ok()) << executable.status().message();
  WriteFile(folder / "network.atoll", WriteExecutable(*executable));
  const std::string session = folder / "session.pcapng";
  AtollDelegateOptions options = ATOLL_DELEGATE_OPTIONS_INIT;
  options.device = "emu";
  options.record = session.c_str();
  options.record_note = kNote;
  const auto recorded = atollpp::Delegate::Open(options);
  ASSERT_TRUE(recorded) << recorded.message();
  const auto outputs =
      Infer(ReadFile(folder / "network_64x64.tflite"), *recorded, ReadFile(folder / "network.in"));
  ASSERT_TRUE(outputs) << outputs.message();
}

}  // namespace
}  // namespace atollrt
