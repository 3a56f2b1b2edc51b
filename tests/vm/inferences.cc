// SPDX-License-Identifier: Apache-2.0
//
// usage: vm-inferences MODEL DEVICE WITNESS COUNT SEED
//
// Runs COUNT inferences with random inputs on DEVICE and on WITNESS, in turns, and compares their
// outputs byte by byte. When the device is lost it opens it again, for at most ten seconds, and
// repeats the inference. So each completes once; the last line says how, and the exit code is 0 if
// all were right and none took longer than half a minute.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/runtime.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kReopenTimeout{10};
constexpr std::chrono::milliseconds kReopenPause{100};
constexpr double kLimitMs = 30'000;

void Require(AtollStatus status, const char* what) {
  if (status == ATOLL_OK) return;
  std::printf("%s: %s\n", what, AtollLastError());
  std::exit(1);
}

double MsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// One interpreter of the model on a device.
class Runner {
 public:
  // The device; nullptr if it is not there.
  static std::unique_ptr<Runner> Open(const AtollModel* model, const char* device) {
    auto runner = std::make_unique<Runner>();
    AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
    if (std::strcmp(device, "cpu") != 0) {
      AtollDelegateOptions delegate_options = ATOLL_DELEGATE_OPTIONS_INIT;
      delegate_options.device = device;
      if (AtollDelegateCreate(&delegate_options, &runner->delegate_) != ATOLL_OK) return nullptr;
      options.delegate = runner->delegate_;
    }
    Require(AtollInterpreterCreate(model, &options, &runner->interpreter_), device);
    return runner;
  }
  static std::unique_ptr<Runner> MustOpen(const AtollModel* model, const char* device) {
    const auto start = Clock::now();
    for (;;) {
      if (auto runner = Open(model, device)) return runner;
      if (Clock::now() - start > kReopenTimeout) Require(ATOLL_NOT_FOUND, device);
      std::this_thread::sleep_for(kReopenPause);
    }
  }
  Runner() = default;
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

 private:
  AtollDelegate* delegate_ = nullptr;
  AtollInterpreter* interpreter_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::printf("usage: vm-inferences MODEL DEVICE WITNESS COUNT SEED\n");
    return 2;
  }
  const int count = std::atoi(argv[4]);
  const uint64_t seed = std::strtoull(argv[5], nullptr, 10);
  AtollModel* model = nullptr;
  Require(AtollModelCreateFromFile(argv[1], &model), argv[1]);
  int right = 0, wrong = 0, failed = 0, losses = 0;
  double total_ms = 0, longest_ms = 0;
  {
    auto device = Runner::MustOpen(model, argv[2]);
    const auto witness = Runner::MustOpen(model, argv[3]);
    for (int k = 0; k < count; ++k) {
      const uint64_t input_seed = seed + static_cast<uint64_t>(k);
      const auto start = Clock::now();
      AtollStatus status = device->Run(input_seed);
      while (status == ATOLL_DEVICE_LOST && MsSince(start) < kLimitMs) {
        std::printf("lost in inference %d: %s\n", k, AtollLastError());
        ++losses;
        device.reset();
        device = Runner::MustOpen(model, argv[2]);
        status = device->Run(input_seed);
      }
      const double ms = MsSince(start);
      total_ms += ms;
      longest_ms = std::max(longest_ms, ms);
      if (status != ATOLL_OK) {
        ++failed;
        std::printf("inference %d failed after %.0f ms: %s\n", k, ms, AtollLastError());
        continue;
      }
      Require(witness->Run(input_seed), argv[3]);
      if (device->Outputs() == witness->Outputs()) {
        ++right;
      } else {
        ++wrong;
        std::printf("inference %d gave other bytes than %s\n", k, argv[3]);
      }
    }
  }
  AtollModelDelete(model);
  std::printf(
      "%d inferences: %d right, %d wrong, %d failed, %d losses of the device; %.1f ms on average, "
      "%.0f ms at most\n",
      count, right, wrong, failed, losses, total_ms / std::max(count, 1), longest_ms);
  return right == count && longest_ms < kLimitMs ? 0 : 1;
}
