// SPDX-License-Identifier: Apache-2.0
//
// usage: vm-inferences MODEL DEVICE WITNESS COUNT SEED [FILE]
//
// Runs COUNT inferences with random inputs on DEVICE and on WITNESS, in turns, and compares their
// outputs byte by byte; with FILE more of them, until there is such a file. The device may leave
// the bus and come back: inferences wait for it, and nothing stands in for it. The last line says
// what became of it, and the exit code is 0 if all inferences were right, none took longer than
// half a minute, and the process has in the end no more open files than in the first fifth of
// them, and hardly more memory.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/runtime.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kOpenAttempts = 5;  // with faults, the first may fail
constexpr double kLimitMs = 30'000;
// With a FILE that does not come, in proportion to COUNT.
constexpr int kMostTimes = 1000;
// What an allocator and a few packed buffers may keep. A leak of a transfer for each inference, or
// of a device for each time that it was opened anew, is more.
constexpr long kGrowthKb = 8 * 1024;

void Require(AtollStatus status, const char* what) {
  if (status == ATOLL_OK) return;
  std::printf("%s: %s\n", what, AtollLastError());
  std::exit(1);
}

// What the library notes, with the time.
void LogWithTime(AtollLogSeverity severity, const char* message, void*) {
  if (severity < ATOLL_LOG_WARNING) return;
  const std::chrono::duration<double> uptime = Clock::now().time_since_epoch();
  std::printf("[%.2f] %s\n", uptime.count(), message);
  std::fflush(stdout);  // the test waits for some of them
}

// What the process holds.
struct Holdings {
  int files = 0;
  long memory_kb = 0;
};

Holdings HoldingsNow() {
  Holdings holdings;
  const std::filesystem::directory_iterator files("/proc/self/fd");
  holdings.files = static_cast<int>(std::distance(begin(files), end(files)));
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) holdings.memory_kb = std::atol(line.c_str() + 6);
  }
  return holdings;
}

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// One interpreter of the model on a device.
class Runner {
 public:
  Runner(const AtollModel* model, const char* device) {
    AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
    if (std::strcmp(device, "cpu") != 0) {
      AtollDelegateOptions delegate_options = ATOLL_DELEGATE_OPTIONS_INIT;
      delegate_options.device = device;
      delegate_options.on_device_loss = "replay";
      AtollStatus status = ATOLL_OK;
      for (int attempt = 0; attempt < kOpenAttempts; ++attempt) {
        status = AtollDelegateCreate(&delegate_options, &delegate_);
        if (status == ATOLL_OK) break;
        std::printf("%s cannot be opened: %s\n", device, AtollLastError());
      }
      Require(status, device);
      options.delegate = delegate_;
    }
    Require(AtollInterpreterCreate(model, &options, &interpreter_), device);
  }
  ~Runner() {
    AtollInterpreterDelete(interpreter_);
    AtollDelegateDelete(delegate_);
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Fills the inputs from `seed`, and runs.
  AtollStatus Run(uint64_t seed) {
    for (int32_t i = 0; i < AtollInterpreterGetInputTensorCount(interpreter_); ++i) {
      AtollTensor* tensor = AtollInterpreterGetInputTensor(interpreter_, i);
      std::vector<uint8_t> bytes(AtollTensorByteSize(tensor));
      for (uint8_t& byte : bytes) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        byte = static_cast<uint8_t>(seed >> 56);
      }
      Require(AtollTensorCopyFromBuffer(tensor, bytes.data(), bytes.size()), "input");
    }
    return AtollInterpreterInvoke(interpreter_);
  }
  std::vector<uint8_t> Outputs() const {
    std::vector<uint8_t> all;
    for (int32_t i = 0; i < AtollInterpreterGetOutputTensorCount(interpreter_); ++i) {
      const AtollTensor* tensor = AtollInterpreterGetOutputTensor(interpreter_, i);
      std::vector<uint8_t> bytes(AtollTensorByteSize(tensor));
      Require(AtollTensorCopyToBuffer(tensor, bytes.data(), bytes.size()), "output");
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }
  AtollDeviceHealth Health() const {
    AtollDeviceHealth health = {};
    if (delegate_ != nullptr) Require(AtollDelegateGetDeviceHealth(delegate_, &health), "health");
    return health;
  }

 private:
  AtollDelegate* delegate_ = nullptr;
  AtollInterpreter* interpreter_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6 && argc != 7) {
    std::printf("usage: vm-inferences MODEL DEVICE WITNESS COUNT SEED [FILE]\n");
    return 2;
  }
  AtollSetLogCallback(LogWithTime, nullptr);
  const int least = std::atoi(argv[4]);
  int count = 0;
  const auto goes_on = [&] {
    if (count < least) return true;
    return argc == 7 && count < kMostTimes * least && !std::filesystem::exists(argv[6]);
  };
  const uint64_t seed = std::strtoull(argv[5], nullptr, 10);
  AtollModel* model = nullptr;
  Require(AtollModelCreateFromFile(argv[1], &model), argv[1]);
  int right = 0, wrong = 0, failed = 0;
  double total_ms = 0, longest_ms = 0;
  AtollDeviceHealth health = {};
  Holdings early, late;
  {
    Runner device(model, argv[2]);
    Runner witness(model, argv[3]);
    for (int k = 0; goes_on(); ++k, ++count) {
      // The most: a device that was given back between two inferences holds nothing.
      if (k <= std::max(least / 5, 1)) {
        const Holdings now = HoldingsNow();
        early.files = std::max(early.files, now.files);
        early.memory_kb = std::max(early.memory_kb, now.memory_kb);
      }
      const uint64_t input_seed = seed + static_cast<uint64_t>(k);
      const auto start = Clock::now();
      const AtollStatus status = device.Run(input_seed);
      const double ms = MsSince(start);
      total_ms += ms;
      longest_ms = std::max(longest_ms, ms);
      if (status != ATOLL_OK) {
        ++failed;
        std::printf("inference %d failed after %.0f ms: %s\n", k, ms, AtollLastError());
        continue;
      }
      Require(witness.Run(input_seed), argv[3]);
      if (device.Outputs() == witness.Outputs()) {
        ++right;
      } else {
        ++wrong;
        std::printf("inference %d gave other bytes than %s\n", k, argv[3]);
      }
    }
    health = device.Health();
    late = HoldingsNow();
  }
  AtollModelDelete(model);
  std::printf(
      "%d inferences: %d right, %d wrong, %d failed; %.1f ms on average, %.0f ms at most; "
      "failures %lld, resets %lld, reopenings %lld, replays %lld; files %d, then %d; memory %ld "
      "kB, "
      "then %ld\n",
      count, right, wrong, failed, total_ms / std::max(count, 1), longest_ms,
      static_cast<long long>(health.failures), static_cast<long long>(health.resets),
      static_cast<long long>(health.reopenings), static_cast<long long>(health.replays),
      early.files, late.files, early.memory_kb, late.memory_kb);
  const bool leaks = late.files > early.files || late.memory_kb > early.memory_kb + kGrowthKb;
  if (leaks) std::printf("It holds more and more.\n");
  const bool is_itself = health.fallbacks == 0;
  return right == count && longest_ms < kLimitMs && is_itself && !leaks ? 0 : 1;
}
