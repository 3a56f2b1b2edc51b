// SPDX-License-Identifier: Apache-2.0
//
// One session with a Coral on PCIe, below the queue of requests: what the command has no options
// for. Prints the SHA-256 of each output, a line for each run. tests/tools/coral_pcie_test.py runs
// it over a stand-in.
//
//   coral_pcie_session apex|vfio [--registered] [--unseen-caches] [--ahead N] [--offset BYTES]
//                      [--seeds S,...] [--order M,...] MODEL ...
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "delegate/coral_partition.h"
#include "driver/coral/apex_link.h"
#include "driver/coral/coral_pcie_chip.h"
#include "runtime/base/sha256.h"
#include "runtime/tflite/tflite_loader.h"

namespace atollrt {
namespace {

constexpr uint64_t kPageBytes = 4096;

struct Options {
  bool over_vfio = false;
  bool registered = false;
  bool unseen_caches = false;
  size_t ahead = 0;
  size_t offset = 0;
  std::vector<uint64_t> seeds = {1};
  std::vector<size_t> order;
  std::vector<std::string> models;
};

void Fail(const Status& status) {
  std::fprintf(stderr, "coral_pcie_session: %s\n", status.message().c_str());
  std::exit(1);
}

template <typename T>
T OrFail(Result<T> result) {
  if (!result.ok()) Fail(result.status());
  return *std::move(result);
}

template <typename Number>
std::vector<Number> Numbers(std::string_view text) {
  std::vector<Number> numbers;
  for (const char* at = text.data(); at < text.data() + text.size();) {
    Number number = 0;
    const auto [end, error] = std::from_chars(at, text.data() + text.size(), number);
    if (error != std::errc()) Fail(InvalidArgument("not a number: %s", at));
    numbers.push_back(number);
    at = end + 1;
  }
  return numbers;
}

Options ReadOptions(int count, char** words) {
  Options options;
  if (count < 2) Fail(InvalidArgument("apex or vfio?"));
  options.over_vfio = std::strcmp(words[1], "vfio") == 0;
  for (int i = 2; i < count; ++i) {
    const std::string_view word = words[i];
    const auto value = [&] { return std::string_view(++i < count ? words[i] : ""); };
    if (word == "--registered") {
      options.registered = true;
    } else if (word == "--unseen-caches") {
      options.unseen_caches = true;
    } else if (word == "--ahead") {
      options.ahead = Numbers<size_t>(value()).at(0);
    } else if (word == "--offset") {
      options.offset = Numbers<size_t>(value()).at(0);
    } else if (word == "--seeds") {
      options.seeds = Numbers<uint64_t>(value());
    } else if (word == "--order") {
      options.order = Numbers<size_t>(value());
    } else {
      options.models.emplace_back(word);
    }
  }
  return options;
}

void FillWithSplitMix64(uint64_t state, std::span<uint8_t> bytes) {
  uint64_t word = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % 8 == 0) {
      state += 0x9E3779B97F4A7C15;
      word = (state ^ state >> 30) * 0xBF58476D1CE4E5B9;
      word = (word ^ word >> 27) * 0x94D049BB133111EB;
      word ^= word >> 31;
    }
    bytes[i] = static_cast<uint8_t>(word >> 8 * (i % 8));
  }
}

// Begins `offset` bytes behind a page.
class Placed {
 public:
  Placed(size_t bytes, size_t offset) : memory_(bytes + offset + 2 * kPageBytes) {
    const auto begin = reinterpret_cast<uintptr_t>(memory_.data());
    const size_t page = (kPageBytes - begin % kPageBytes) % kPageBytes;
    bytes_ = std::span(memory_).subspan(page + offset, bytes);
  }
  std::span<uint8_t> bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> memory_;
  std::span<uint8_t> bytes_;
};

struct OneRun {
  std::vector<Placed> inputs, outputs;
  std::vector<std::span<const uint8_t>> from;
  std::vector<std::span<uint8_t>> to;
  Chip::Job job;
};

std::unique_ptr<Chip> OpenChip(const Options& options, const std::shared_ptr<PcieBus>& bus) {
  CoralOptions coral;
  coral.name = "session";
  if (options.over_vfio) {
    if (bus == nullptr) Fail(NotFound("no PCIe"));
    const auto devices = OrFail(bus->List());
    if (devices.empty()) Fail(NotFound("nothing on PCIe"));
    return OrFail(OpenCoralPcie(bus.get(), devices[0], coral));
  }
  const std::vector<ApexDevice> devices = ListApex();
  if (devices.empty()) Fail(NotFound("no device of the kernel modules"));
  if (!options.unseen_caches) return OrFail(OpenApex(devices[0].node, coral));
  return OrFail(CoralPcieChip::Open(
      std::make_unique<CoralApexLink>(devices[0].node, coral.performance, coral.now, coral.name,
                                      /*sees_caches=*/false),
      coral, devices[0].node, 400'000'000));
}

void Run(const Options& options) {
  const std::shared_ptr<PcieBus> bus = options.over_vfio ? SystemPcieBus() : nullptr;
  const std::unique_ptr<Chip> chip = OpenChip(options, bus);
  std::vector<std::unique_ptr<PreparedExecutable>> prepared;
  for (const std::string& path : options.models) {
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
    const auto* const bytes = reinterpret_cast<const uint8_t*>(text.data());
    const LoadedModel model = OrFail(LoadTflite({bytes, text.size()}));
    std::vector<std::string> refusals;
    auto partitions = OrFail(ReadCoralPartitions(model.graphs[0], DeviceInfo(), &refusals));
    if (partitions.empty()) Fail(NotFound("%s: nothing for a Coral", path.c_str()));
    prepared.push_back(OrFail(chip->Prepare(partitions[0].executable)));
  }
  std::vector<OneRun> runs(options.order.size());
  for (size_t i = 0; i < runs.size(); ++i) {
    OneRun& run = runs[i];
    const PreparedExecutable& model = *prepared.at(options.order[i]);
    for (const Layer& input : model.executable->inputs) {
      run.inputs.emplace_back(input.bytes, options.offset);
      FillWithSplitMix64(options.seeds[i % options.seeds.size()], run.inputs.back().bytes());
    }
    for (const Layer& output : model.executable->outputs) {
      run.outputs.emplace_back(output.bytes, options.offset);
    }
    for (const Placed& input : run.inputs) run.from.emplace_back(input.bytes());
    for (const Placed& output : run.outputs) run.to.push_back(output.bytes());
    run.job = {.prepared = &model,
               .request_id = static_cast<uint32_t>(i + 1),
               .inputs = run.from,
               .outputs = run.to,
               .deadline = Clock::now() + std::chrono::seconds(20)};
  }
  const auto all_memory = [&](const auto& use) {
    for (const OneRun& run : runs) {
      for (const Placed& input : run.inputs) use(input.bytes());
      for (const Placed& output : run.outputs) use(output.bytes());
    }
  };
  if (options.registered) {
    all_memory([&](std::span<uint8_t> memory) {
      if (Status status = chip->RegisterMemory(memory); !status.ok()) Fail(status);
    });
  }
  std::vector<Chip::Job> jobs;
  for (const OneRun& run : runs) jobs.push_back(run.job);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const size_t ahead = std::min(options.ahead, jobs.size() - i - 1);
    RequestReport report;
    const Status status = chip->Run(jobs[i], std::span(jobs).subspan(i + 1, ahead), &report);
    if (!status.ok()) Fail(status);
    for (const std::span<uint8_t> output : jobs[i].outputs) {
      std::printf("%s ", Sha256Hex(output.data(), output.size()).c_str());
    }
    std::printf("\n");
  }
  if (options.registered) {
    all_memory([&](std::span<uint8_t> memory) { chip->UnregisterMemory(memory); });
  }
  for (const auto& one : prepared) chip->Forget(*one);
  prepared.clear();
}

}  // namespace
}  // namespace atollrt

int main(int count, char** words) {
  atollrt::Run(atollrt::ReadOptions(count, words));
  return 0;
}
