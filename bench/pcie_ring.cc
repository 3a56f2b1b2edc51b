// SPDX-License-Identifier: Apache-2.0
//
// What several requests under way bring on PCIe, and what a request costs this computer there and
// on USB:
//
//   pcie_ring [--runs N] MODEL.tflite...
//
// Each model's largest partition runs on emulated devices with the profile "pcie", at a USB cable
// and in a PCIe slot, which take turns. "modelled" is what the device's clock says, and nothing but
// that is about hardware; "measured" and the CPU's time are of this process, the emulation of the
// device included, which is the same for all. Both cables carry the same bytes.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "delegate/delegate.h"
#include "driver/open_device.h"
#include "driver/open_emulator.h"
#include "runtime/base/buffer.h"
#include "runtime/base/monotonic.h"
#include "runtime/model.h"

namespace atollrt {
namespace {

constexpr size_t kRounds = 5;  // medians are of these

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Way {
  const char* name;
  bool on_pcie;
  size_t in_flight;
  bool registered;
};
constexpr Way kWays[] = {{"usb, 1 under way", false, 1, false},
                         {"pcie, copies, 1 under way", true, 1, false},
                         {"pcie, 1 under way", true, 1, true},
                         {"pcie, 2 under way", true, 2, true},
                         {"pcie, 4 under way", true, 4, true}};

// One way for one executable, with memory for each request under way.
class Runner {
 public:
  static Result<std::unique_ptr<Runner>> Create(const Way& way,
                                                const std::shared_ptr<const Executable>& what) {
    auto runner = std::make_unique<Runner>();
    ATOLL_ASSIGN_OR_RETURN(const DeviceName name, ParseDeviceName("emu:pcie"));
    ATOLL_ASSIGN_OR_RETURN(const EmulatorSetup setup, SetUpEmulator(name, {.threads = 1}));
    ATOLL_ASSIGN_OR_RETURN(auto chip,
                           way.on_pcie ? OpenEmulatedOnPcie(setup) : OpenEmulatedOnUsb(setup));
    runner->device_ = std::make_unique<Device>(std::move(chip), ChipKeeper::Options());
    ATOLL_ASSIGN_OR_RETURN(const ExecutableId id, runner->device_->Load(what));
    for (size_t i = 0; i < way.in_flight; ++i) {
      Request& request = runner->requests_.emplace_back();
      request.executable = id;
      const uint64_t bytes = TotalBytes(what->inputs) + TotalBytes(what->outputs);
      ATOLL_ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(bytes));
      std::span<uint8_t> rest = memory.bytes();
      if (way.registered) ATOLL_RETURN_IF_ERROR(runner->device_->RegisterMemory(rest));
      for (const Layer& layer : what->inputs) {
        request.inputs.push_back(rest.first(layer.bytes));
        rest = rest.subspan(layer.bytes);
      }
      for (const Layer& layer : what->outputs) {
        request.outputs.push_back(rest.first(layer.bytes));
        rest = rest.subspan(layer.bytes);
      }
      runner->memory_.push_back(std::move(memory));
    }
    return runner;
  }

  struct Figures {
    double per_second = 0, modelled_per_second = 0, cpu_microseconds = 0;
    double copied = 0;  // bytes of a request
  };
  Result<Figures> Run(size_t runs) {
    std::vector<RequestId> ids(requests_.size());
    RequestReport report;
    uint64_t first_clock = 0, last_clock = 0, cycles = 0, copied = 0;
    const double cpu = CpuSeconds();
    const int64_t start = MonotonicNs();
    for (size_t i = 0; i < runs + ids.size(); ++i) {
      const size_t place = i % ids.size();
      if (i >= ids.size()) {
        ATOLL_RETURN_IF_ERROR(device_->Wait(ids[place], &report));
        if (i == ids.size()) first_clock = report.device_clock;
        last_clock = report.device_clock;
        cycles += report.device_cycles;
        copied += report.bytes_copied;
      }
      if (i >= runs) continue;
      ATOLL_ASSIGN_OR_RETURN(ids[place], device_->Submit(requests_[place]));
    }
    const auto count = static_cast<double>(runs);
    const double seconds = static_cast<double>(MonotonicNs() - start) * 1e-9;
    const auto hertz = static_cast<double>(device_->info().clock_hz);
    // Without a clock one request follows the other.
    const double each = last_clock > first_clock
                            ? static_cast<double>(last_clock - first_clock) / (count - 1)
                            : static_cast<double>(cycles) / count;
    return Figures{.per_second = count / seconds,
                   .modelled_per_second = hertz / each,
                   .cpu_microseconds = (CpuSeconds() - cpu) / count * 1e6,
                   .copied = static_cast<double>(copied) / count};
  }

 private:
  std::vector<Buffer> memory_;  // outlives the device
  std::vector<Request> requests_;
  std::unique_ptr<Device> device_;
};

Status Measure(const std::string& path, size_t runs) {
  ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, Model::FromFile(path));
  ATOLL_ASSIGN_OR_RETURN(auto compiler, OpenDevice({.device = "emu:pcie", .threads = 1}));
  ATOLL_ASSIGN_OR_RETURN(auto executables,
                         DeviceDelegate(std::move(compiler)).CompileExecutables(model->graph()));
  if (executables.empty()) return Unsupported("nothing of it runs on the device");
  const auto largest = std::ranges::max_element(
      executables, {}, [](const auto& one) { return one.executable.estimated_cycles; });
  const auto executable = std::make_shared<const Executable>(std::move(largest->executable));
  std::vector<std::unique_ptr<Runner>> runners;
  std::vector<std::vector<Runner::Figures>> figures(std::size(kWays));
  for (const Way& way : kWays) {
    ATOLL_ASSIGN_OR_RETURN(auto runner, Runner::Create(way, executable));
    ATOLL_RETURN_IF_ERROR(runner->Run(std::min<size_t>(runs, 8)).status());
    runners.push_back(std::move(runner));
  }
  for (size_t round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < runners.size(); ++i) {
      ATOLL_ASSIGN_OR_RETURN(const Runner::Figures one, runners[i]->Run(runs));
      figures[i].push_back(one);
    }
  }
  std::printf("%s: %llu bytes in, %llu out\n", path.substr(path.rfind('/') + 1).c_str(),
              static_cast<unsigned long long>(TotalBytes(executable->inputs)),
              static_cast<unsigned long long>(TotalBytes(executable->outputs)));
  for (size_t i = 0; i < runners.size(); ++i) {
    const auto median = [&](double Runner::Figures::*figure) {
      std::vector<double> values;
      for (const Runner::Figures& one : figures[i]) values.push_back(one.*figure);
      return Median(std::move(values));
    };
    std::printf("  %-28s %10.0f %10.0f %12.2f %12.0f\n", kWays[i].name,
                median(&Runner::Figures::modelled_per_second), median(&Runner::Figures::per_second),
                median(&Runner::Figures::cpu_microseconds), median(&Runner::Figures::copied));
  }
  std::fflush(stdout);
  return {};
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  size_t runs = 400;
  std::vector<std::string> models;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--runs") == 0 && i + 1 < argc) {
      runs = static_cast<size_t>(std::max(8, std::atoi(argv[++i])));
    } else {
      models.push_back(argv[i]);
    }
  }
  if (models.empty()) {
    std::fprintf(stderr, "usage: pcie_ring [--runs N] MODEL.tflite...\n");
    return 2;
  }
  std::printf("%-30s %10s %10s %12s %12s\n", "", "modelled/s", "measured/s", "CPU us each",
              "copied bytes");
  for (const std::string& model : models) {
    const atollrt::Status status = atollrt::Measure(model, runs);
    if (status.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", model.c_str(), status.message().c_str());
    return 1;
  }
  return 0;
}
