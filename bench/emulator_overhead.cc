// SPDX-License-Identifier: Apache-2.0
//
// What it costs to run a model on the emulated device rather than on the CPU of the same host:
//
//   emulator_overhead [--threads N] [--runs N] MODEL.tflite...
//
// Both run in this process, in turns, so that whatever else the host does meets both. The kernels
// are the same; the difference is protocol, checks and copies over the link.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "delegate/delegate.h"
#include "driver/open_device.h"
#include "runtime/base/monotonic.h"
#include "runtime/interpreter.h"

namespace atollrt {
namespace {

struct Options {
  int threads = 1;
  int runs = 0;  // 0: as many as fit into kSeconds
  std::vector<std::string> models;
};
constexpr double kSeconds = 3;  // for each model
constexpr int kRunsMin = 5, kRunsMax = 2000;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Seconds of one inference; negative if it failed.
double Time(Interpreter* interpreter) {
  const int64_t start = MonotonicNs();
  const Status status = interpreter->Invoke();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? static_cast<double>(MonotonicNs() - start) * 1e-9 : -1;
}

struct Overhead {
  double cpu_seconds = 0, device_seconds = 0;
  double ratio() const { return device_seconds / cpu_seconds; }
};

Result<Overhead> Measure(const std::string& path, const Options& options) {
  ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, Model::FromFile(path));
  ATOLL_ASSIGN_OR_RETURN(auto device, OpenDevice({.device = "emu", .threads = options.threads}));
  DeviceDelegate delegate(std::move(device));
  ATOLL_ASSIGN_OR_RETURN(const auto cpu, Interpreter::Create(model, {.threads = options.threads}));
  ATOLL_ASSIGN_OR_RETURN(
      const auto emulated,
      Interpreter::Create(model, {.threads = options.threads, .delegate = &delegate}));
  double warm = 0;
  for (int i = 0; i < 3; ++i) warm = Time(cpu.get()) + Time(emulated.get());
  if (warm <= 0) return InternalError("'%s' does not run", path.c_str());
  const int runs = options.runs > 0
                       ? options.runs
                       : std::clamp(static_cast<int>(kSeconds / warm), kRunsMin, kRunsMax);
  std::vector<double> cpu_times, device_times;
  for (int i = 0; i < runs; ++i) {
    cpu_times.push_back(Time(cpu.get()));
    device_times.push_back(Time(emulated.get()));
  }
  return Overhead{.cpu_seconds = Median(cpu_times), .device_seconds = Median(device_times)};
}

int Run(const Options& options) {
  std::printf("%-52s %10s %10s %7s\n", "model", "cpu ms", "emu ms", "ratio");
  std::vector<double> ratios;
  for (const std::string& path : options.models) {
    const Result<Overhead> overhead = Measure(path, options);
    const std::string name = path.substr(path.rfind('/') + 1);
    if (!overhead.ok()) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), overhead.status().message().c_str());
      return 1;
    }
    ratios.push_back(overhead->ratio());
    std::printf("%-52s %10.4f %10.4f %7.3f\n", name.c_str(), overhead->cpu_seconds * 1e3,
                overhead->device_seconds * 1e3, ratios.back());
    std::fflush(stdout);
  }
  std::printf("%-52s %10s %10s %7.3f\n", "median", "", "", Median(ratios));
  return 0;
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  atollrt::Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      options.threads = std::max(1, std::atoi(argv[++i]));
    } else if (std::strcmp(argv[i], "--runs") == 0 && i + 1 < argc) {
      options.runs = std::max(1, std::atoi(argv[++i]));
    } else {
      options.models.push_back(argv[i]);
    }
  }
  if (options.models.empty()) {
    std::fprintf(stderr, "usage: emulator_overhead [--threads N] [--runs N] MODEL.tflite...\n");
    return 2;
  }
  return atollrt::Run(options);
}
