// SPDX-License-Identifier: Apache-2.0
//
// Whatever a PCI function may do under the driver of an Atoll-1 or of a Coral: what its registers
// say, which interrupts come, which writes it heeds, what it writes to memory that it reaches,
// events with a right check among it, errors of every call, at any time. Each request completes
// exactly once, within its deadlines, and nothing stays mapped. The function is honest (an emulated
// Atoll-1, a made-up Coral) but for what the input says, so that the driver gets anywhere. Inputs
// that begin with 0 are the file of a recorded session instead, with 1 a Coral.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "atoll/check.h"
#include "driver/atoll1/ring.h"
#include "driver/atoll1/ring_session.h"
#include "driver/coral/coral_pcie_chip.h"
#include "driver/coral/executable.h"
#include "driver/coral/package.h"
#include "driver/emulator/emulated_pcie.h"
#include "driver/recording/pcie_replay.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/requests.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/coral_packages.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_coral_function.h"
#include "tests/support/forwarding_function.h"

namespace atollrt::pcie_device_fuzzer {

namespace {

// How a call ends; most bytes mean honestly.
enum class Act { kHonest, kBytes, kOnes, kLost, kNothing, kScribble, kEvent };
Act NextAct(Input* input) {
  constexpr uint8_t kHonestBytes = 160;
  const uint8_t byte = input->Byte();
  return byte < kHonestBytes ? Act::kHonest : static_cast<Act>(1 + byte % 6);
}

class HostileFunction final : public ForwardingFunction {
 public:
  HostileFunction(std::unique_ptr<PcieFunction> inner, Input* input, FakeClock* clock)
      : ForwardingFunction(std::move(inner)), input_(*input), clock_(*clock) {
    maps_ = input_.Byte() % 4 != 0;
  }
  ~HostileFunction() override { ATOLL_CHECK(mappings_.empty()); }

  Result<uint32_t> Read32(uint32_t bar, uint64_t offset) override {
    return Read<uint32_t>([&] { return inner().Read32(bar, offset); });
  }
  Result<uint64_t> Read64(uint32_t bar, uint64_t offset) override {
    return Read<uint64_t>([&] { return inner().Read64(bar, offset); });
  }
  Status Write32(uint32_t bar, uint64_t offset, uint32_t value) override {
    return Write([&] { return inner().Write32(bar, offset, value); });
  }
  Status Write64(uint32_t bar, uint64_t offset, uint64_t value) override {
    return Write([&] { return inner().Write64(bar, offset, value); });
  }
  bool maps_callers_memory() const override { return maps_ && inner().maps_callers_memory(); }
  Result<std::unique_ptr<DmaMapping>> Map(std::span<uint8_t> memory,
                                          DmaDirection direction) override {
    ATOLL_CHECK(maps_callers_memory());
    ATOLL_RETURN_IF_ERROR(MayMap());
    return Keep(inner().Map(memory, direction), direction);
  }
  Result<std::unique_ptr<DmaMapping>> Allocate(uint64_t size_bytes,
                                               DmaDirection direction) override {
    ATOLL_RETURN_IF_ERROR(MayMap());
    return Keep(inner().Allocate(size_bytes, direction), direction);
  }
  Status EnableInterrupts(uint32_t count) override {
    const Act act = NextAct(&input_);
    if (act == Act::kLost) return DeviceLost("gone");
    if (act == Act::kNothing) return Unsupported("no vectors");
    return inner().EnableInterrupts(count);
  }
  Result<uint64_t> AwaitInterrupts(uint64_t vectors, Deadline deadline) override {
    Result<uint64_t> raised = Timeout("nothing came");
    switch (Do(NextAct(&input_))) {
      case Act::kBytes:
        raised = input_.Word() & vectors;
        if (*raised != 0) return raised;
        break;
      case Act::kLost:
        return DeviceLost("gone");
      case Act::kNothing:
        break;
      default:
        // A deadline that has passed is one step of the device.
        for (int i = 0; i < 100 && !raised.ok(); ++i) {
          raised = inner().AwaitInterrupts(vectors, Deadline());
          if (raised.code() == StatusCode::kCancelled) return raised;
        }
        if (raised.ok()) return raised;
    }
    clock_.AdvanceTo(deadline);
    return Timeout("nothing came");
  }
  Status Reset(Deadline deadline) override {
    switch (NextAct(&input_)) {
      case Act::kNothing:
        clock_.AdvanceTo(deadline);
        return Timeout("no reset");
      case Act::kBytes:
        return Unsupported("knows no reset");
      case Act::kLost:
        return DeviceLost("gone");
      default:
        return inner().Reset(deadline);
    }
  }
  bool is_present() override { return NextAct(&input_) != Act::kOnes; }

 private:
  PcieFunction& inner() const {
    return const_cast<HostileFunction*>(this)->ForwardingFunction::inner();
  }

  class Mapping final : public DmaMapping {
   public:
    Mapping(HostileFunction* function, std::unique_ptr<DmaMapping> inner)
        : DmaMapping(inner->bytes(), inner->iova()),
          function_(*function),
          inner_(std::move(inner)) {
      function_.mappings_.push_back(this);
    }
    ~Mapping() override {
      std::erase(function_.mappings_, this);
      std::erase(function_.writable_, this);
    }

   private:
    HostileFunction& function_;
    const std::unique_ptr<DmaMapping> inner_;
  };

  Status MayMap() {
    const Act act = NextAct(&input_);
    if (act == Act::kLost) return DeviceLost("gone");
    if (act == Act::kNothing) return ResourceExhausted("no more memory may be pinned");
    return {};
  }
  Result<std::unique_ptr<DmaMapping>> Keep(Result<std::unique_ptr<DmaMapping>> mapping,
                                           DmaDirection direction) {
    if (!mapping.ok()) return mapping;
    auto kept = std::make_unique<Mapping>(this, *std::move(mapping));
    if (direction != DmaDirection::kToDevice) writable_.push_back(kept.get());
    return std::unique_ptr<DmaMapping>(std::move(kept));
  }

  template <typename T, typename ReadBelow>
  Result<T> Read(const ReadBelow& read_below) {
    clock_.AdvanceTo(clock_.Now() + std::chrono::milliseconds(1));
    switch (Do(NextAct(&input_))) {
      case Act::kBytes:
        return static_cast<T>(input_.Word());
      case Act::kOnes:
        return ~T{0};
      case Act::kLost:
        return DeviceLost("gone");
      default:
        return read_below();
    }
  }
  template <typename WriteBelow>
  Status Write(const WriteBelow& write_below) {
    switch (Do(NextAct(&input_))) {
      case Act::kLost:
        return DeviceLost("gone");
      case Act::kNothing:
        return {};
      default:
        return write_below();
    }
  }
  // Writes to memory, if that is it.
  Act Do(Act act) {
    if ((act != Act::kScribble && act != Act::kEvent) || writable_.empty()) return act;
    const std::span<uint8_t> bytes = writable_[input_.Byte() % writable_.size()]->bytes();
    if (act == Act::kScribble) {
      const size_t offset = input_.Word() % bytes.size();
      input_.Fill(bytes.subspan(offset, std::min<size_t>(bytes.size() - offset, input_.Byte())));
      return act;
    }
    RingEvent event;
    event.event.kind = input_.Byte() % 4 == 0 ? EventKind::kFaulted : EventKind::kCompleted;
    event.event.fault = static_cast<FaultCode>(input_.Byte() % 8);
    event.event.request_id = input_.Byte();
    event.event.detail = input_.Word();
    event.sequence = input_.Byte();
    event.clock = input_.Word();
    const auto encoded = EncodeRingEvent(event);
    const size_t offset = size_t{64} * input_.Byte();
    if (offset + encoded.size() <= bytes.size()) {
      std::copy(encoded.begin(), encoded.end(), bytes.begin() + static_cast<ptrdiff_t>(offset));
    }
    return act;
  }

  Input& input_;
  FakeClock& clock_;
  bool maps_ = true;
  std::vector<Mapping*> mappings_, writable_;
};

ChipKeeper::Options OptionsFor(FakeClock* clock) {
  ChipKeeper::Options options;
  options.on_loss = OnDeviceLoss::kReplay;
  options.now = clock->Function();
  return options;
}

void UseHostileAtoll(Input input) {
  FakeClock clock;
  const bool recovers = input.Byte() % 2 != 0;
  CoreOptions core;
  core.profile.memory_bytes = core.profile.program_memory_bytes = 1 << 16;
  const auto open = [&]() -> Result<std::unique_ptr<Chip>> {
    auto emulated = EmulatedPcie::Create(core);
    ATOLL_CHECK(emulated.ok());
    return OpenAtoll1OnPcie(std::make_unique<HostileFunction>(*std::move(emulated), &input, &clock),
                            {}, clock.Function());
  };
  auto chip = open();
  if (!chip.ok()) return;
  ChipKeeper::Options options = OptionsFor(&clock);
  if (recovers) {
    options.reopen = [&](Deadline deadline) {
      auto again = open();
      if (!again.ok()) clock.AdvanceTo(deadline);
      return again;
    };
  }
  Device device(*std::move(chip), std::move(options));
  Use(device);
}

std::shared_ptr<const CoralExecutable> CachingExecutable() {
  static const auto executable = [] {
    auto read = ReadCoralPackage(WritePackage(CachingModel(7)));
    ATOLL_CHECK(read.ok());
    return std::make_shared<const CoralExecutable>(*std::move(read));
  }();
  return executable;
}

void RunCoral(Device* device) {
  const auto id = device->Load(std::make_shared<CoralExecutable>(*CachingExecutable()));
  if (!id.ok()) return;
  const std::vector<uint8_t> input(6);
  std::vector<uint8_t> output(12);
  for (int i = 0; i < 3; ++i) {
    const auto request =
        device->Submit({.executable = *id, .inputs = {input}, .outputs = {output}});
    if (!request.ok()) return;
    (void)device->Wait(*request, nullptr).ok();
    ATOLL_CHECK(device->Wait(*request, nullptr).code() == StatusCode::kInvalidArgument);
  }
}

// The bus of one function, which `make` makes.
class OneFunctionBus final : public PcieBus {
 public:
  explicit OneFunctionBus(std::function<std::unique_ptr<PcieFunction>()> make)
      : make_(std::move(make)) {}
  Result<std::vector<PcieDeviceInfo>> List() override {
    PcieDeviceInfo info;
    info.id = kCoralPcieId;
    info.address = "0000:01:00.0";
    return std::vector<PcieDeviceInfo>{info};
  }
  Result<std::unique_ptr<PcieFunction>> Open(const PcieDeviceInfo&) override { return make_(); }
  uint64_t generation() override { return 0; }
  bool WaitForChange(uint64_t, Deadline) override { return false; }

 private:
  const std::function<std::unique_ptr<PcieFunction>()> make_;
};

void UseHostileCoral(Input input) {
  FakeClock clock;
  FakeCoralFunctionState state;
  state.executables = {CachingExecutable()};
  OneFunctionBus bus([&] {
    return std::make_unique<HostileFunction>(MakeFakeCoralFunction(&state, &clock), &input, &clock);
  });
  auto chip = OpenCoralPcie(&bus, bus.List()->front(), {.now = clock.Function()});
  if (!chip.ok()) return;
  Device device(*std::move(chip), OptionsFor(&clock));
  RunCoral(&device);
}

void Replay(std::span<const uint8_t> recording) {
  const auto bus = [&] {
    const MemoryLimit limit(ProportionalBytes(recording.size()));
    return ReplayPcieBus::Create(recording);
  }();
  if (!bus.ok()) {
    ATOLL_CHECK(!bus.status().message().empty());
    return;
  }
  const auto devices = (*bus)->List();
  if (!devices.ok() || devices->empty()) return;
  FakeClock clock;  // goes on by itself, since nothing waits
  const auto now = [&clock] {
    clock.AdvanceTo(clock.Now() + std::chrono::milliseconds(10));
    return clock.Now();
  };
  ChipKeeper::Options options;
  options.now = now;
  if (IsCoral(devices->front().id)) {
    auto chip = OpenCoralPcie(bus->get(), devices->front(), {.now = now});
    if (!chip.ok()) return;
    Device device(*std::move(chip), std::move(options));
    RunCoral(&device);
    return;
  }
  auto function = (*bus)->Open(devices->front());
  if (!function.ok()) return;
  auto chip = OpenAtoll1OnPcie(*std::move(function), {}, now);
  if (!chip.ok()) return;
  Device device(*std::move(chip), std::move(options));
  Use(device);
}

}  // namespace

ATOLL_FUZZ_TARGET(pcie_device) {
  const std::span<const uint8_t> bytes(data, size);
  constexpr int64_t kDeviceBytes = int64_t{32} << 20;
  CachingExecutable();
  const MemoryLimit limit(ProportionalBytes(size, kDeviceBytes));
  if (!bytes.empty() && bytes[0] == 0) {
    Replay(bytes.subspan(1));
  } else if (!bytes.empty() && bytes[0] == 1) {
    UseHostileCoral(Input(bytes.subspan(1)));
  } else {
    UseHostileAtoll(Input(bytes));
  }
  return 0;
}

}  // namespace atollrt::pcie_device_fuzzer
