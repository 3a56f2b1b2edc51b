// SPDX-License-Identifier: Apache-2.0
//
// Random and damaged models on the CPU and on two emulated devices, a roomy one and one that can
// hold only parts of most models: whatever loads gives the same bytes in every tensor that exists
// on both sides, and over two invocations. The input is
//
//   the number of a model of this repository, changes; or
//   any other byte, a count (two bytes), a mask (two bytes), as many choices as the count says,
//   changes.
//
// Choices are what the generator of tests/support/random_graph.h makes a model of. No device gets
// node i if bit i modulo 16 of the mask is set. A change is an offset in the file of the model
// (three bytes, modulo its size) and the byte to put there. All numbers are little-endian.
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

#include "atoll/check.h"
#include "runtime/interpreter.h"
#include "runtime/model.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/small_model.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/emulated_device.h"
#include "tests/support/partial_delegate.h"
#include "tests/support/random_graph.h"
#include "tests/support/recording.h"

namespace atollrt::differential_fuzzer {

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

// The rest of an input.
class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  std::span<const uint8_t> Take(size_t count) {
    const std::span<const uint8_t> taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }
  // 0 for what is not there.
  size_t Number(int bytes) {
    size_t value = 0;
    int shift = 0;
    for (const uint8_t byte : Take(static_cast<size_t>(bytes))) {
      value |= size_t{byte} << shift;
      shift += 8;
    }
    return value;
  }
  bool empty() const { return bytes_.empty(); }

 private:
  std::span<const uint8_t> bytes_;
};

size_t withheld = 0;  // bits of nodes that no device gets, of the input in progress

Bytes ModelOf(Input input) {
  static const std::vector<Bytes>* const files = [] {
    auto* read = new std::vector<Bytes>;
    for (const char* path : kSeedModels) read->push_back(ReadSeedModel(path));
    return read;
  }();
  Bytes model;
  withheld = 0;
  if (const size_t kind = input.Number(1); kind < files->size()) {
    model = (*files)[kind];
  } else {
    const size_t count = input.Number(2);
    withheld = input.Number(2);
    Choices choices(input.Take(count));
    model = RandomModel(&choices, {.max_nodes = 12, .max_elements = 1 << 15, .max_work = 1 << 20});
    // What is generated is valid.
    ATOLL_CHECK(Model::FromBuffer(model).ok());
  }
  while (!input.empty()) {
    const size_t offset = input.Number(3);
    model[offset % model.size()] = static_cast<uint8_t>(input.Number(1));
  }
  return model;
}

// One of each kind for all inputs: a damaged model must not leave them in a bad state either.
const std::vector<std::unique_ptr<Delegate>>& Delegates() {
  static const auto* const delegates = [] {
    auto* made = new std::vector<std::unique_ptr<Delegate>>;
    for (const EmulatedDevice& device :
         {EmulatedDevice{},
          EmulatedDevice{
              .rows = 16, .columns = 8, .memory_bytes = 20 << 10, .program_bytes = 8 << 10}}) {
      made->push_back(std::make_unique<PartialDelegate>(
          device.Open(), [](int32_t node) { return (withheld >> (node % 16) & 1) != 0; }));
    }
    return made;
  }();
  return *delegates;
}

Result<Recording> Run(std::shared_ptr<const Model> model, Delegate* delegate) {
  ATOLL_ASSIGN_OR_RETURN(
      const std::unique_ptr<Interpreter> interpreter,
      Interpreter::Create(std::move(model), {.threads = 1, .delegate = delegate}));
  return Record(interpreter.get(), /*invocations=*/2, FillWithPattern);
}

}  // namespace

ATOLL_FUZZ_TARGET(differential) {
  const Bytes bytes = ModelOf(Input({data, size}));
  const auto model = [&] {
    const MemoryLimit limit(ProportionalBytes(bytes.size()));
    return Model::FromBuffer(bytes);
  }();
  if (!model.ok() || !IsSmall((*model)->graph())) return 0;
  const Result<Recording> want = Run(*model, nullptr);
  for (const std::unique_ptr<Delegate>& delegate : Delegates()) {
    const Result<Recording> got = Run(*model, delegate.get());
    if (want.ok() != got.ok()) {
      std::fprintf(stderr, "CPU: %s\nemulator: %s\n", want.status().message().c_str(),
                   got.status().message().c_str());
      ATOLL_CHECK(want.ok() == got.ok());
    }
    if (!want.ok()) continue;
    const std::string difference = FirstDifference((*model)->graph(), *got, *want);
    if (!difference.empty()) std::fprintf(stderr, "%s\n", difference.c_str());
    ATOLL_CHECK(difference.empty());
  }
  return 0;
}

}  // namespace atollrt::differential_fuzzer
