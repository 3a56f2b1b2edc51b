// SPDX-License-Identifier: Apache-2.0
//
// Damaged models on the CPU and on the emulated device: whatever still loads gives the same bytes
// on both. The input is the number of a seed model, then any count of changes to it: an offset
// (three bytes, least significant first, modulo the file's size) and the byte to put there.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "delegate/delegate.h"
#include "driver/open_device.h"
#include "runtime/base/check.h"
#include "runtime/interpreter.h"
#include "runtime/model.h"
#include "tests/fuzz/small_model.h"

using namespace atollrt;

namespace {

using Bytes = std::vector<uint8_t>;

constexpr std::array kSeedModels = {
    "tests/golden/ops/chain/chain_002_uint8.tflite",
    "tests/golden/ops/chain/chain_003_int8.tflite",
    "tests/golden/ops/chain/chain_020_int8.tflite",
    "models/fashion/fashion_int8.tflite",
    "tests/golden/ops/chain/chain_000_int8.tflite",
    "tests/golden/ops/chain/chain_008_uint8.tflite",
    "tests/golden/ops/chain/chain_029_int8.tflite",
    "tests/golden/ops/chain/chain_012_int8.tflite",
};

Bytes ReadSeedModel(const char* path) {
  std::ifstream stream(std::string(ATOLL_SOURCE_DIR "/") + path, std::ios::binary);
  Bytes bytes((std::istreambuf_iterator<char>(stream)), {});
  ATOLL_CHECK(!bytes.empty());
  return bytes;
}

Bytes MutatedModel(std::span<const uint8_t> input) {
  static const std::vector<Bytes>* const models = [] {
    auto* read = new std::vector<Bytes>;
    for (const char* path : kSeedModels) read->push_back(ReadSeedModel(path));
    return read;
  }();
  Bytes model = (*models)[input[0] % models->size()];
  for (input = input.subspan(1); input.size() >= 4; input = input.subspan(4)) {
    const size_t offset = input[0] | size_t{input[1]} << 8 | size_t{input[2]} << 16;
    model[offset % model.size()] = input[3];
  }
  return model;
}

// One device for all inputs: a damaged model must not leave it in a bad state either.
Delegate* Emulator() {
  static DeviceDelegate* const delegate = [] {
    auto device = OpenDevice({.device = "emu", .threads = 1});
    ATOLL_CHECK(device.ok());
    return new DeviceDelegate(std::move(*device));
  }();
  return delegate;
}

// Prepares and runs on what FillWithPattern gives.
Result<std::unique_ptr<Interpreter>> Run(std::shared_ptr<const Model> model, Delegate* delegate) {
  ATOLL_ASSIGN_OR_RETURN(
      std::unique_ptr<Interpreter> interpreter,
      Interpreter::Create(std::move(model), {.threads = 1, .delegate = delegate}));
  for (const int32_t input : interpreter->graph().inputs) {
    FillWithPattern(interpreter->TensorBytes(input));
  }
  ATOLL_RETURN_IF_ERROR(interpreter->Invoke());
  return interpreter;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto model = Model::FromBuffer(MutatedModel({data, size}));
  if (!model.ok() || !IsSmall((*model)->graph())) return 0;
  const auto cpu = Run(*model, nullptr);
  const auto device = Run(*model, Emulator());
  if (cpu.ok() != device.ok()) {
    std::fprintf(stderr, "CPU: %s\nemulator: %s\n", cpu.status().message().c_str(),
                 device.status().message().c_str());
    ATOLL_CHECK(cpu.ok() == device.ok());
  }
  if (!cpu.ok()) return 0;
  for (const int32_t output : (*model)->graph().outputs) {
    const auto want = (*cpu)->ConstTensorBytes(output);
    const auto got = (*device)->ConstTensorBytes(output);
    ATOLL_CHECK(std::equal(want.begin(), want.end(), got.begin(), got.end()));
  }
  return 0;
}
