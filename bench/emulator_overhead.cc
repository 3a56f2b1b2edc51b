// SPDX-License-Identifier: Apache-2.0
//
// What it costs to run a model on the emulated device rather than on the CPU of the same host:
//
//   emulator_overhead [--timing] [--threads N] [--runs N] MODEL.tflite...
//
// Both run in this process, in turns, so that whatever else the host does meets both. The kernels
// are the same; the difference is protocol, checks and copies over the link. With --timing, what
// the timing model of the emulated device costs: devices that keep no time, that work out a
// program's when it first runs (as devices do), and that do so in each run.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "delegate/delegate.h"
#include "driver/atoll1/atoll1_chip.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/profiles/device_profile.h"
#include "runtime/base/monotonic.h"
#include "runtime/interpreter.h"

namespace atollrt {
namespace {

struct Options {
  int threads = 1;
  int runs = 0;  // 0: as many as fit into kSeconds
  bool timing = false;
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

// A model on one device.
class Runner {
 public:
  // Without timekeeping: on the CPU.
  static Result<std::unique_ptr<Runner>> Create(const std::shared_ptr<const Model>& model,
                                                const Options& options,
                                                std::optional<Timekeeping> timekeeping) {
    auto runner = std::make_unique<Runner>();
    if (timekeeping.has_value()) {
      CoreOptions core;
      core.profile = DeviceProfiles()[0];
      ATOLL_ASSIGN_OR_RETURN(core.features, DetectCpuFeatures());
      core.threads = options.threads;
      core.timekeeping = *timekeeping;
      ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<UsbTransport> transport,
                             EmulatedTransport::Create(core));
      ATOLL_ASSIGN_OR_RETURN(auto chip, Atoll1Chip::Open(std::move(transport), {.name = "emu"}));
      runner->delegate_ = std::make_unique<DeviceDelegate>(
          std::make_unique<Device>(std::move(chip), ChipKeeper::Options()));
    }
    ATOLL_ASSIGN_OR_RETURN(runner->interpreter_,
                           Interpreter::Create(model, {.threads = options.threads,
                                                       .delegate = runner->delegate_.get()}));
    return runner;
  }

  double Run() const { return Time(interpreter_.get()); }

 private:
  std::unique_ptr<DeviceDelegate> delegate_;
  std::unique_ptr<Interpreter> interpreter_;
};

// Medians of the seconds of an inference, which take turns.
Result<std::vector<double>> Measure(const std::string& path, const Options& options,
                                    const std::vector<std::optional<Timekeeping>>& devices) {
  ATOLL_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, Model::FromFile(path));
  std::vector<std::unique_ptr<Runner>> runners;
  for (const auto& timekeeping : devices) {
    ATOLL_ASSIGN_OR_RETURN(auto runner, Runner::Create(model, options, timekeeping));
    runners.push_back(std::move(runner));
  }
  double warm = 0;
  for (int i = 0; i < 3; ++i) {
    warm = 0;
    for (const auto& runner : runners) {
      const double seconds = runner->Run();
      if (seconds < 0) return InternalError("'%s' does not run", path.c_str());
      warm += seconds;
    }
  }
  const int runs = options.runs > 0
                       ? options.runs
                       : std::clamp(static_cast<int>(kSeconds / warm), kRunsMin, kRunsMax);
  std::vector<std::vector<double>> times(runners.size());
  for (int i = 0; i < runs; ++i) {
    for (size_t k = 0; k < runners.size(); ++k) times[k].push_back(runners[k]->Run());
  }
  std::vector<double> medians;
  for (std::vector<double>& of_one : times) medians.push_back(Median(std::move(of_one)));
  return medians;
}

int Run(const Options& options) {
  const std::vector<std::optional<Timekeeping>> devices =
      options.timing
          ? std::vector<std::optional<Timekeeping>>{Timekeeping::kNever, Timekeeping::kOnce,
                                                    Timekeeping::kEachRun}
          : std::vector<std::optional<Timekeeping>>{std::nullopt, Timekeeping::kOnce};
  const std::vector<const char*> names =
      options.timing ? std::vector<const char*>{"never ms", "once ms", "each ms"}
                     : std::vector<const char*>{"cpu ms", "emu ms"};
  std::printf("%-52s", "model");
  for (const char* name : names) std::printf(" %10s", name);
  for (size_t k = 1; k < names.size(); ++k) std::printf(" %7s", "ratio");
  std::printf("\n");
  std::vector<std::vector<double>> ratios(devices.size());
  for (const std::string& path : options.models) {
    const Result<std::vector<double>> seconds = Measure(path, options, devices);
    const std::string name = path.substr(path.rfind('/') + 1);
    if (!seconds.ok()) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), seconds.status().message().c_str());
      return 1;
    }
    std::printf("%-52s", name.c_str());
    for (const double value : *seconds) std::printf(" %10.4f", value * 1e3);
    for (size_t k = 1; k < seconds->size(); ++k) {
      ratios[k].push_back((*seconds)[k] / (*seconds)[0]);
      std::printf(" %7.3f", ratios[k].back());
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  std::printf("%-52s", "median");
  for (size_t k = 0; k < names.size(); ++k) std::printf(" %10s", "");
  for (size_t k = 1; k < ratios.size(); ++k) std::printf(" %7.3f", Median(ratios[k]));
  std::printf("\n");
  return 0;
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  atollrt::Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--timing") == 0) {
      options.timing = true;
    } else if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      options.threads = std::max(1, std::atoi(argv[++i]));
    } else if (std::strcmp(argv[i], "--runs") == 0 && i + 1 < argc) {
      options.runs = std::max(1, std::atoi(argv[++i]));
    } else {
      options.models.push_back(argv[i]);
    }
  }
  if (options.models.empty()) {
    std::fprintf(stderr,
                 "usage: emulator_overhead [--timing] [--threads N] [--runs N] MODEL.tflite...\n");
    return 2;
  }
  return atollrt::Run(options);
}
