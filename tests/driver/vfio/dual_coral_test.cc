// SPDX-License-Identifier: Apache-2.0
//
// An M.2 card with dual Edge TPU: two functions of VFIO, each with a Coral behind it
// (docs/coral.md), over a kernel in memory. What is done to one must not be felt by the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "driver/coral/executable.h"
#include "driver/coral/package.h"
#include "driver/open_device.h"
#include "driver/vfio/vfio_bus.h"
#include "tests/support/coral_packages.h"
#include "tests/support/fake_coral_function.h"
#include "tests/support/fake_vfio.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using Bytes = std::vector<uint8_t>;

constexpr size_t kChips = 2;
constexpr const char* kAddresses[kChips] = {"0000:01:00.0", "0000:02:00.0"};

// How the card's functions are reached.
struct Way {
  const char* name;
  const char* groups[kChips];
  bool by_node;
};
constexpr Way kWays[] = {{"ByTwoGroups", {"7", "8"}, false},
                         {"ByOneGroup", {"7", "7"}, false},
                         {"ByTheirNodes", {"7", "7"}, true}};

// Both chips act when their doorbells are rung.
class DualCoral final : public FakeVfio {
 public:
  DualCoral(const Way& way, const std::shared_ptr<const CoralExecutable>& executable) {
    function.id = kCoralPcieId;
    function.bar_bytes = {0, 0, 0x100000, 0, 0, 0};
    function.may_map = false;  // each access is one of a chip
    has_groups = !way.by_node;
    viable = {way.groups[0], way.groups[1]};
    for (size_t i = 0; i < kChips; ++i) {
      Chip& chip = chips_[i];
      chip.name = way.by_node ? "vfio" + std::to_string(i) : kAddresses[i];
      chip.state.executables = {executable};
      chip.state.runs = i == 0 ? 0 : 100;  // so their outputs are not the same
      chip.state.reach = [this](uint64_t iova, bool writes) -> uint8_t* {
        const std::span<uint8_t> memory = At(iova, writes ? 'w' : 'r');
        return memory.empty() ? nullptr : memory.data();
      };
      chip.function = MakeFakeCoralFunction(&chip.state, &clock_);
    }
  }

  // From now on no chip does anything before both have something to do; or each does at once.
  void ActTogether() {
    const std::lock_guard lock(mutex_);
    together_ = true;
  }
  void ActApart() {
    const std::lock_guard lock(mutex_);
    together_ = false;
  }
  // Its registers and configuration space read as ones; or it is there again, just powered up.
  void TakeOut(size_t index) {
    const std::lock_guard lock(mutex_);
    chips_[index].state.is_gone = true;
    gone_.insert(chips_[index].name);
  }
  void PutBack(size_t index) {
    const std::lock_guard lock(mutex_);
    chips_[index].state.is_gone = false;
    gone_.erase(chips_[index].name);
  }
  const std::string& NameOf(size_t index) const { return chips_[index].name; }
  int runs(size_t index) const {
    const std::lock_guard lock(mutex_);
    return chips_[index].state.runs;
  }
  // Once nobody has it open.
  std::vector<std::string> TakeComplaints(size_t index) {
    chips_[index].function = nullptr;
    return std::move(chips_[index].state.complaints);
  }

 private:
  static constexpr uint64_t kDoorbell = 0x485A8;
  static constexpr uint32_t kVectors = 13;
  struct Chip {
    std::string name;
    FakeCoralFunctionState state;
    std::unique_ptr<PcieFunction> function;
    bool is_rung = false;
  };

  Chip& Find(const std::string& device) { return device == chips_[0].name ? chips_[0] : chips_[1]; }
  bool Access(const std::string& device, uint32_t bar, uint64_t offset, std::span<uint8_t> bytes,
              bool store) override {
    Chip& chip = Find(device);
    const bool is_wide = bytes.size() == sizeof(uint64_t);
    if (bytes.size() != (is_wide ? sizeof(uint64_t) : sizeof(uint32_t))) return false;
    uint64_t word = 0;
    if (!store) {
      word = is_wide ? *chip.function->Read64(bar, offset) : *chip.function->Read32(bar, offset);
      std::copy_n(reinterpret_cast<const uint8_t*>(&word), bytes.size(), bytes.begin());
      return true;
    }
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(&word));
    const Status status = is_wide
                              ? chip.function->Write64(bar, offset, word)
                              : chip.function->Write32(bar, offset, static_cast<uint32_t>(word));
    EXPECT_TRUE(status.ok()) << status.message();
    if (offset == kDoorbell) Ring(&chip);
    return true;
  }
  void Ring(Chip* rung) {
    rung->is_rung = true;
    if (together_ && !(chips_[0].is_rung && chips_[1].is_rung)) return;
    for (Chip& chip : chips_) {
      if (!chip.is_rung) continue;
      chip.is_rung = false;
      // Which of them are connected the kernel knows.
      ASSERT_TRUE(chip.function->EnableInterrupts(kVectors).ok());
      const auto raised = chip.function->AwaitInterrupts((1 << kVectors) - 1, Deadline());
      for (uint32_t i = 0; raised.ok() && i < kVectors; ++i) {
        if ((*raised >> i & 1) != 0) Signal(chip.name, i);
      }
    }
  }
  void ResetDevice(const std::string& device) override {
    EXPECT_TRUE(Find(device).function->Reset(Deadline()).ok());
  }

  FakeClock clock_;
  std::array<Chip, kChips> chips_;
  bool together_ = false;
};

class DualCoralTest : public testing::TestWithParam<Way> {
 protected:
  DualCoralTest() {
    for (size_t i = 0; i < kChips; ++i) Plug(i);
  }
  void TearDown() override {
    bus_ = nullptr;
    EXPECT_EQ(kernel_.num_files(), 0u);
    EXPECT_EQ(kernel_.num_mappings(), 0u);
    for (size_t i = 0; i < kChips; ++i) EXPECT_THAT(kernel_.TakeComplaints(i), IsEmpty());
  }

  static std::shared_ptr<const CoralExecutable> Executable() {
    auto executable = ReadCoralPackage(WritePackage(WithAddresses(CachingModel(7))));
    EXPECT_TRUE(executable.ok()) << executable.status().message();
    return std::make_shared<const CoralExecutable>(*std::move(executable));
  }
  void Plug(size_t index) {
    root_.Plug(
        {.address = kAddresses[index], .id = kCoralPcieId, .group = GetParam().groups[index]});
    if (!GetParam().by_node) return;
    root_.Write(std::string("/sys/bus/pci/devices/") + kAddresses[index] + "/vfio-dev/vfio" +
                    std::to_string(index) + "/dev",
                "");
  }

  // What is done to /sys, and when the bus has seen it.
  template <typename Change>
  void Tell(const Change& change) {
    const uint64_t generation = bus_->generation();
    change();
    EXPECT_TRUE(bus_->WaitForChange(generation, In(60'000)));
  }

  Result<std::unique_ptr<Device>> TryOpen(const std::string& name) {
    return OpenDevice({.device = name, .pcie = bus_, .on_loss = OnDeviceLoss::kFail});
  }

  // A device with the executable, and memory for a request.
  struct User {
    std::unique_ptr<Device> device;
    ExecutableId id = 0;
    Bytes input, output;

    Status Run() {
      std::fill(output.begin(), output.end(), uint8_t{0});
      ATOLL_ASSIGN_OR_RETURN(
          const RequestId request,
          device->Submit({.executable = id, .inputs = {input}, .outputs = {output}}));
      return device->Wait(request, nullptr);
    }
  };
  User Use(const std::string& name) {
    User user;
    auto device = TryOpen(name);
    EXPECT_TRUE(device.ok()) << device.status().message();
    if (!device.ok()) return user;
    user.device = *std::move(device);
    const auto id = user.device->Load(executable_);
    EXPECT_TRUE(id.ok()) << id.status().message();
    user.id = id.ok() ? *id : 0;
    user.input.resize(executable_->inputs[0].bytes);
    user.output.resize(executable_->outputs[0].bytes);
    return user;
  }

  // That the chip's last run gives.
  Bytes LastOutput(size_t chip) const {
    const CoralLayer& wire = executable_->output_wires[0];
    Bytes output(executable_->outputs[0].bytes);
    UnpackCoralOutput(wire, FakeCoralOutput(kernel_.runs(chip), 0, wire.wire_bytes), output);
    return output;
  }
  void RunWell(User* user, size_t chip) {
    const Status status = user->Run();
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(user->output, LastOutput(chip)) << "chip " << chip;
  }

  const std::shared_ptr<const CoralExecutable> executable_ = Executable();
  FakeRoot root_;
  DualCoral kernel_{GetParam(), executable_};
  std::shared_ptr<VfioBus> bus_ =
      std::make_shared<VfioBus>(VfioBus::Options{.root = root_.path(), .calls = &kernel_});
};

TEST_P(DualCoralTest, BothAreListedAndOpenedByTheirNumbers) {
  std::vector<std::string> names;
  for (const DeviceListing& listing : ListDevices(nullptr, bus_)) {
    if (!listing.name.starts_with("pci:")) continue;
    EXPECT_TRUE(listing.available);
    EXPECT_THAT(listing.description, HasSubstr("Coral Accelerator (PCIe)"));
    names.push_back(listing.name);
  }
  EXPECT_THAT(names, ElementsAre("pci:0000:01:00.0", "pci:0000:02:00.0"));

  User first = Use("pci:0"), second = Use("pci:1");
  ASSERT_TRUE(first.device != nullptr && second.device != nullptr);
  EXPECT_EQ(first.device->info().name, "pci:0000:01:00.0");
  EXPECT_EQ(second.device->info().name, "pci:0000:02:00.0");
  RunWell(&first, 0);
  RunWell(&second, 1);
  // Each is somebody's now, and there is no third.
  for (const char* name : {"pci:0", "pci:1", "pci:0000:02:00.0"}) {
    EXPECT_EQ(TryOpen(name).code(), StatusCode::kDeviceBusy) << name;
  }
  const auto third = TryOpen("pci:2");
  EXPECT_EQ(third.code(), StatusCode::kNotFound);
  EXPECT_THAT(third.status().message(), HasSubstr("there is pci:0000:01:00.0, pci:0000:02:00.0"));
}

TEST_P(DualCoralTest, BothRunAtTheSameTime) {
  std::array<User, kChips> users = {Use("pci:0"), Use("pci:1")};
  for (size_t i = 0; i < kChips; ++i) {
    ASSERT_NE(users[i].device, nullptr);
    RunWell(&users[i], i);  // parameters are on the chip now
  }
  // No request completes before the other chip has one.
  kernel_.ActTogether();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kChips; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 100; ++k) RunWell(&users[i], i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  kernel_.ActApart();
  EXPECT_EQ(kernel_.runs(0), 2 + 100);
  EXPECT_EQ(kernel_.runs(1), 100 + 2 + 100);
  for (const User& user : users) EXPECT_EQ(user.device->health().failures, 0u);
}

TEST_P(DualCoralTest, OneThatIsGoneDoesNoHarmToTheOther) {
  User stays = Use("pci:0"), goes = Use("pci:1");
  ASSERT_TRUE(stays.device != nullptr && goes.device != nullptr);
  std::atomic<bool> is_over{false};
  std::thread other([&] {
    while (!is_over && !HasFailure()) RunWell(&stays, 0);
    for (int i = 0; i < 20; ++i) RunWell(&stays, 0);
  });
  for (int i = 0; i < 20; ++i) RunWell(&goes, 1);
  // Nor is the other one taken instead.
  const auto expect_lost = [&] {
    for (int i = 0; i < 3; ++i) {
      const Status status = goes.Run();
      EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
      EXPECT_THAT(status.message(), Not(HasSubstr(kAddresses[0])));
    }
  };
  // Suddenly. The system notices later.
  kernel_.TakeOut(1);
  expect_lost();
  Tell([&] { root_.Unplug(kAddresses[1]); });
  expect_lost();
  kernel_.PutBack(1);
  Tell([&] { Plug(1); });
  for (int i = 0; i < 20; ++i) RunWell(&goes, 1);
  // The system asks for it, and waits until it is closed.
  kernel_.TakeLog();
  kernel_.AskBack(kernel_.NameOf(1));
  kernel_.WaitForLog("close device");
  Tell([&] { root_.Bind(kAddresses[1], ""); });
  expect_lost();
  Tell([&] { root_.Bind(kAddresses[1], "vfio-pci"); });
  for (int i = 0; i < 20; ++i) RunWell(&goes, 1);
  is_over = true;
  other.join();
  EXPECT_EQ(stays.device->health().failures, 0u);
  EXPECT_EQ(stays.device->state(), DeviceState::kReady);
}

TEST_P(DualCoralTest, AsOneDeviceTheOtherTakesOver) {
  User both = Use("pci:0,pci:1");
  ASSERT_NE(both.device, nullptr);
  EXPECT_EQ(both.device->jobs_in_flight_max(), 2 * kJobsInFlightMax);
  RunWell(&both, 0);
  kernel_.TakeOut(0);
  for (int i = 0; i < 20; ++i) RunWell(&both, 1);
  Tell([&] { root_.Unplug(kAddresses[0]); });
  kernel_.PutBack(0);
  Tell([&] { Plug(0); });
  // Of two requests each gets one again.
  Bytes second(both.output.size());
  for (int i = 0; i < 20; ++i) {
    std::array<RequestId, 2> requests;
    for (size_t k = 0; k < requests.size(); ++k) {
      const auto request = both.device->Submit({.executable = both.id,
                                                .inputs = {both.input},
                                                .outputs = {k == 0 ? both.output : second}});
      ASSERT_TRUE(request.ok()) << request.status().message();
      requests[k] = *request;
    }
    for (const RequestId request : requests) {
      const Status status = both.device->Wait(request, nullptr);
      ASSERT_TRUE(status.ok()) << status.message();
    }
    EXPECT_THAT((std::vector<Bytes>{both.output, second}),
                UnorderedElementsAre(LastOutput(0), LastOutput(1)));
  }
  EXPECT_EQ(both.device->health().failures, 1u);
}

INSTANTIATE_TEST_SUITE_P(Each, DualCoralTest, testing::ValuesIn(kWays),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace atollrt
