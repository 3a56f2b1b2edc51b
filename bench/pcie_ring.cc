// SPDX-License-Identifier: Apache-2.0
//
// What several requests under way bring on PCIe, and what a request costs this computer there and
// on USB:
//
//   pcie_ring [--runs N] MODEL.tflite...
//
// Each model's largest partition runs on devices with the profile "pcie", at a USB cable and in a
// PCIe slot, which take turns. Both cables carry the same bytes.
//
// "modelled" is what the emulated device's clock says, and nothing but that is about hardware.
// "measured" is of a device that takes the modelled times by the clock on the wall (PacedFunction):
// it computes nothing, so the host has its processor to itself, as beside hardware. The CPU's time
// is that of this process with the emulated device in it, which is the same for all; of it the
// driver's is what was not spent below UsbTransport or PcieFunction: in the device, or where the
// system's calls would be. The cost of reading the clock at each call is taken off.
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/check.h"
#include "delegate/delegate.h"
#include "driver/atoll1/atoll1_chip.h"
#include "driver/atoll1/ring.h"
#include "driver/atoll1/ring_session.h"
#include "driver/emulator/emulated_pcie.h"
#include "driver/emulator/emulated_transport.h"
#include "driver/emulator/ring_clock.h"
#include "driver/isa/timing.h"
#include "driver/open_device.h"
#include "driver/open_emulator.h"
#include "runtime/base/buffer.h"
#include "runtime/base/monotonic.h"
#include "runtime/model.h"
#include "tests/support/forwarding_function.h"

namespace atollrt {
namespace {

constexpr size_t kRounds = 5;  // medians are of these

// Of this process, in which one thread works.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// What reading that clock takes.
double ClockCost() {
  double least = 1;
  for (int i = 0; i < 1000; ++i) {
    const double before = CpuSeconds();
    least = std::min(least, CpuSeconds() - before);
  }
  return least;
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

// Time that was spent below a seam of the driver's.
struct Below {
  double seconds = 0;
  size_t calls = 0;

  template <typename Call>
  auto Spend(const Call& call) {
    const double before = CpuSeconds();
    auto result = call();
    seconds += CpuSeconds() - before;
    ++calls;
    return result;
  }
};

class TimedTransport final : public UsbTransport {
 public:
  TimedTransport(std::unique_ptr<UsbTransport> inner, Below* below)
      : inner_(std::move(inner)), below_(*below) {}

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override {
    return below_.Spend([&] { return inner_->Control(setup, data, deadline); });
  }
  Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline deadline) override {
    return below_.Spend([&] { return inner_->BulkOut(endpoint, data, deadline); });
  }
  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override {
    return below_.Spend([&] { return inner_->BulkIn(endpoint, data, deadline); });
  }
  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                             Deadline deadline) override {
    return below_.Spend([&] { return inner_->InterruptIn(endpoint, data, deadline); });
  }
  void Cancel() override { inner_->Cancel(); }
  Status Reset(Deadline deadline) override { return inner_->Reset(deadline); }

 private:
  const std::unique_ptr<UsbTransport> inner_;
  Below& below_;
};

class TimedFunction final : public ForwardingFunction {
 public:
  TimedFunction(std::unique_ptr<PcieFunction> inner, Below* below)
      : ForwardingFunction(std::move(inner)), below_(*below) {}

  Result<uint32_t> Read32(uint32_t bar, uint64_t offset) override {
    return below_.Spend([&] { return inner().Read32(bar, offset); });
  }
  Status Write32(uint32_t bar, uint64_t offset, uint32_t value) override {
    return below_.Spend([&] { return inner().Write32(bar, offset, value); });
  }
  Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline) override {
    return below_.Spend([&] { return inner().AwaitInterrupts(vectors, deadline); });
  }

 private:
  Below& below_;
};

// An Atoll-1 that takes as long as the model says, by the clock on the wall, and does nothing else:
// outputs stay as they are. `inner` has its registers. Used by one thread.
class PacedFunction final : public ForwardingFunction {
 public:
  PacedFunction(std::unique_ptr<PcieFunction> inner, const Executable& executable,
                const DeviceProfile& profile)
      : ForwardingFunction(std::move(inner)),
        instructions_(executable.inference_program.size()),
        hertz_(static_cast<double>(profile.clock_hz)) {
    const auto summarize = [&](uint64_t bytes_ahead) {
      return SummarizeProgram(executable.inference_program,
                              {.array = {profile.array_rows, profile.array_columns},
                               .clock_hz = profile.clock_hz,
                               .link_bytes_per_second = profile.link_bytes_per_second,
                               .bytes_ahead = bytes_ahead});
    };
    times_ = MakeProgramTimes(summarize(0), summarize(kStreamMemoryBytes));
  }

  Result<uint32_t> Read32(uint32_t bar, uint64_t offset) override {
    switch (static_cast<RingRegister>(offset)) {
      case RingRegister::kRingStatus:
        return is_on_ ? static_cast<uint32_t>(RingStatus::kOn) : 0;
      case RingRegister::kRingHead:
        return under_way_.empty() ? fetched_ : under_way_.front().descriptor;
      default:
        return inner().Read32(bar, offset);
    }
  }
  Status Write32(uint32_t bar, uint64_t offset, uint32_t value) override {
    switch (static_cast<RingRegister>(offset)) {
      case RingRegister::kRingLow:
        ring_ = value;
        return {};
      case RingRegister::kRingHigh:
        ring_ |= uint64_t{value} << 32;
        return {};
      case RingRegister::kRingEntries:
        entries_ = value;
        return {};
      case RingRegister::kRingControl:
        is_on_ = value == kRingOn;
        fetched_ = sequence_ = 0;
        under_way_.clear();
        return {};
      case RingRegister::kRingTail:
        Take(value);
        return {};
      default:
        return inner().Write32(bar, offset, value);
    }
  }
  Result<std::unique_ptr<DmaMapping>> Map(std::span<uint8_t> memory,
                                          DmaDirection direction) override {
    return Keep(inner().Map(memory, direction));
  }
  Result<std::unique_ptr<DmaMapping>> Allocate(uint64_t bytes, DmaDirection direction) override {
    return Keep(inner().Allocate(bytes, direction));
  }
  Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline) override {
    constexpr uint64_t kEvents = uint64_t{1} << static_cast<uint32_t>(RingVector::kEvent);
    for (;;) {
      while (!under_way_.empty() && under_way_.front().due <= Clock::now()) Finish();
      if ((raised_ & vectors) != 0) {
        raised_ = 0;
        return kEvents;
      }
      if (Clock::now() >= deadline) return Timeout("no interrupt");
      const bool is_idle = under_way_.empty();
      std::this_thread::sleep_until(is_idle ? deadline
                                            : std::min(deadline, under_way_.front().due));
    }
  }

 private:
  struct UnderWay {
    Deadline due;
    uint64_t clock = 0;
    uint32_t request = 0;
    uint32_t descriptor = 0;  // number of its event's
    uint8_t* event = nullptr;
    bool interrupts = false;
  };

  // Addresses are not used again soon, so nothing has to be forgotten.
  Result<std::unique_ptr<DmaMapping>> Keep(Result<std::unique_ptr<DmaMapping>> mapping) {
    if (mapping.ok()) memory_[(*mapping)->iova()] = (*mapping)->bytes();
    return mapping;
  }
  uint8_t* At(uint64_t iova) {
    auto found = memory_.upper_bound(iova);
    ATOLL_CHECK(found != memory_.begin());
    --found;
    ATOLL_CHECK(iova - found->first < found->second.size());
    return found->second.data() + (iova - found->first);
  }

  uint64_t Cycles() const {
    return static_cast<uint64_t>(std::chrono::duration<double>(Clock::now() - power_on_).count() *
                                 hertz_);
  }
  // A doorbell, after which all requests are whole.
  void Take(uint32_t tail) {
    const uint64_t rung = Cycles();
    for (; fetched_ != tail; ++fetched_) {
      const auto descriptor = DecodeDescriptor(std::span<const uint8_t, kDescriptorBytes>(
          At(ring_) + size_t{fetched_ % entries_} * kDescriptorBytes, kDescriptorBytes));
      ATOLL_CHECK(descriptor.ok());
      if (descriptor->kind == DescriptorKind::kInstructions) clock_.WaitForCore();
      if (descriptor->kind == DescriptorKind::kStart) start_ = descriptor->start;
      if (descriptor->kind != DescriptorKind::kEvent) continue;
      // Programs that only fetch parameters are over at once.
      const bool is_inference = start_.instruction_count == instructions_;
      const uint64_t clock = clock_.Complete(is_inference ? times_ : ProgramTimes(), rung);
      const auto after = std::chrono::duration<double>(static_cast<double>(clock) / hertz_);
      under_way_.push_back({.due = power_on_ + std::chrono::duration_cast<Clock::duration>(after),
                            .clock = clock,
                            .request = start_.request_id,
                            .descriptor = fetched_,
                            .event = At(descriptor->address),
                            .interrupts = descriptor->interrupts});
    }
  }
  void Finish() {
    const UnderWay& first = under_way_.front();
    const auto event =
        EncodeRingEvent({.event = {.request_id = first.request, .detail = times_.total},
                         .clock = first.clock,
                         .sequence = ++sequence_});
    std::copy(event.begin(), event.end(), first.event);
    if (first.interrupts) raised_ |= 1u << static_cast<uint32_t>(RingVector::kEvent);
    under_way_.pop_front();
  }

  const size_t instructions_;
  const double hertz_;
  ProgramTimes times_;
  RingClock clock_;
  const Deadline power_on_ = Clock::now();
  std::map<uint64_t, std::span<uint8_t>> memory_;  // by address
  uint64_t ring_ = 0;
  uint32_t entries_ = 0;
  bool is_on_ = false;
  uint32_t fetched_ = 0, sequence_ = 0;
  StartMessage start_;
  std::deque<UnderWay> under_way_;
  uint64_t raised_ = 0;
};

enum class FarEnd { kEmulated, kPaced };

// One way for one executable, with memory for each request under way.
class Runner {
 public:
  static Result<std::unique_ptr<Runner>> Create(const Way& way, FarEnd far_end,
                                                const std::shared_ptr<const Executable>& what) {
    auto runner = std::make_unique<Runner>();
    ATOLL_ASSIGN_OR_RETURN(auto chip, runner->OpenChip(way, far_end, *what));
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
    double per_second = 0, modelled_per_second = 0;
    // Of a request.
    double cpu_microseconds = 0, driver_microseconds = 0;
    double copied = 0;  // bytes
  };
  Result<Figures> Run(size_t runs) {
    std::vector<RequestId> ids(requests_.size());
    RequestReport report;
    uint64_t first_clock = 0, last_clock = 0, cycles = 0, copied = 0;
    below_ = {};
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
    const double cpu_seconds = CpuSeconds() - cpu;
    const double clocks = static_cast<double>(below_.calls) * kClockCost;
    const auto count = static_cast<double>(runs);
    const double seconds = static_cast<double>(MonotonicNs() - start) * 1e-9;
    const auto hertz = static_cast<double>(device_->info().clock_hz);
    // Without a clock one request follows the other.
    const double each = last_clock > first_clock
                            ? static_cast<double>(last_clock - first_clock) / (count - 1)
                            : static_cast<double>(cycles) / count;
    return Figures{.per_second = count / seconds,
                   .modelled_per_second = hertz / each,
                   .cpu_microseconds = (cpu_seconds - 2 * clocks) / count * 1e6,
                   // The other half of the clock's cost is below.
                   .driver_microseconds = (cpu_seconds - below_.seconds - clocks) / count * 1e6,
                   .copied = static_cast<double>(copied) / count};
  }

 private:
  static inline const double kClockCost = ClockCost();

  Result<std::unique_ptr<Chip>> OpenChip(const Way& way, FarEnd far_end, const Executable& what) {
    ATOLL_ASSIGN_OR_RETURN(const DeviceName name, ParseDeviceName("emu:pcie"));
    ATOLL_ASSIGN_OR_RETURN(const EmulatorSetup setup, SetUpEmulator(name, {.threads = 1}));
    if (!way.on_pcie) {
      ATOLL_ASSIGN_OR_RETURN(auto cable, EmulatedTransport::Create(setup.core));
      return Atoll1Chip::Open(std::make_unique<TimedTransport>(std::move(cable), &below_),
                              setup.known);
    }
    ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<PcieFunction> slot, EmulatedPcie::Create(setup.core));
    if (far_end == FarEnd::kPaced) {
      slot = std::make_unique<PacedFunction>(std::move(slot), what, setup.core.profile);
    } else {
      slot = std::make_unique<TimedFunction>(std::move(slot), &below_);
    }
    return OpenAtoll1OnPcie(std::move(slot), setup.known);
  }

  Below below_;
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
  // Of each way the emulated device, and the paced one, which is none at a USB cable.
  struct Measured {
    std::unique_ptr<Runner> emulated, paced;
    std::vector<Runner::Figures> of_emulated, of_paced;
  };
  std::vector<Measured> ways;
  const auto warm_up = std::min<size_t>(runs, 8);
  for (const Way& way : kWays) {
    Measured& measured = ways.emplace_back();
    ATOLL_ASSIGN_OR_RETURN(measured.emulated, Runner::Create(way, FarEnd::kEmulated, executable));
    ATOLL_RETURN_IF_ERROR(measured.emulated->Run(warm_up).status());
    if (!way.on_pcie) continue;
    ATOLL_ASSIGN_OR_RETURN(measured.paced, Runner::Create(way, FarEnd::kPaced, executable));
    ATOLL_RETURN_IF_ERROR(measured.paced->Run(warm_up).status());
  }
  for (size_t round = 0; round < kRounds; ++round) {
    for (Measured& way : ways) {
      ATOLL_ASSIGN_OR_RETURN(const Runner::Figures one, way.emulated->Run(runs));
      way.of_emulated.push_back(one);
      if (way.paced == nullptr) continue;
      ATOLL_ASSIGN_OR_RETURN(const Runner::Figures paced, way.paced->Run(runs));
      way.of_paced.push_back(paced);
    }
  }
  std::printf("%s: %llu bytes in, %llu out\n", path.substr(path.rfind('/') + 1).c_str(),
              static_cast<unsigned long long>(TotalBytes(executable->inputs)),
              static_cast<unsigned long long>(TotalBytes(executable->outputs)));
  for (size_t i = 0; i < ways.size(); ++i) {
    const auto median = [&](const std::vector<Runner::Figures>& figures,
                            double Runner::Figures::*figure) {
      std::vector<double> values;
      for (const Runner::Figures& one : figures) values.push_back(one.*figure);
      return values.empty() ? 0 : Median(std::move(values));
    };
    const auto& emulated = ways[i].of_emulated;
    const auto& paced = ways[i].of_paced;
    const double measured = median(paced, &Runner::Figures::per_second);
    std::printf("  %-28s %10.0f %10s %10.1f %10.2f %12.0f\n", kWays[i].name,
                median(emulated, &Runner::Figures::modelled_per_second),
                paced.empty() ? "-" : Format("%.0f", measured).c_str(),
                median(emulated, &Runner::Figures::cpu_microseconds),
                median(emulated, &Runner::Figures::driver_microseconds),
                median(emulated, &Runner::Figures::copied));
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
  prctl(PR_SET_TIMERSLACK, 1);  // waits end when they should
  std::printf("%-30s %10s %10s %10s %10s %12s\n", "", "modelled/s", "measured/s", "CPU us",
              "driver us", "copied bytes");
  for (const std::string& model : models) {
    const atollrt::Status status = atollrt::Measure(model, runs);
    if (status.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", model.c_str(), status.message().c_str());
    return 1;
  }
  return 0;
}
