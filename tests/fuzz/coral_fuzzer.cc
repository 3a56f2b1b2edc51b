// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a package of Google's compiler, and as everything that a Coral may answer: from the
// descriptors of its boot mode to the events of a run. The corpus began with packages of
// tests/support/coral_packages.h.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "atoll/check.h"
#include "driver/coral/coral_chip.h"
#include "driver/coral/executable.h"
#include "driver/coral/firmware.h"
#include "driver/coral/package.h"
#include "driver/device/device.h"
#include "driver/usb/usb_bus.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/coral_packages.h"
#include "tests/support/fake_clock.h"

namespace atollrt::coral_fuzzer {

namespace {

// What a device object and its executable may take, whatever it answers.
constexpr int64_t kDeviceBytes = int64_t{16} << 20;

void ReadAsPackage(std::span<const uint8_t> bytes) {
  const Result<CoralExecutable> executable = [&] {
    // The bit map of an output of 64 MiB, and what 65,536 pieces take.
    const MemoryLimit limit(ProportionalBytes(bytes.size(), int64_t{16} << 20));
    return ReadCoralPackage(bytes);
  }();
  if (!executable.ok()) {
    ATOLL_CHECK(!executable.status().message().empty());
    return;
  }
  // Whatever is accepted can be packed and unpacked within its buffers.
  for (size_t i = 0; i < executable->inputs.size(); ++i) {
    const std::vector<uint8_t> input(executable->inputs[i].bytes);
    std::vector<uint8_t> wire(executable->input_wires[i].wire_bytes);
    PackCoralInput(executable->input_wires[i], input, wire);
  }
  for (size_t i = 0; i < executable->outputs.size(); ++i) {
    const std::vector<uint8_t> wire(executable->output_wires[i].wire_bytes);
    std::vector<uint8_t> output(executable->outputs[i].bytes);
    UnpackCoralOutput(executable->output_wires[i], wire, output);
  }
}

// A device that answers with the bytes, one after the other; without any left it is gone.
class Answers {
 public:
  explicit Answers(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint8_t Next() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  // Mostly success.
  Status NextStatus(FakeClock* clock, Deadline deadline) {
    if (bytes_.empty()) return DeviceLost("no more answers");
    switch (Next()) {
      case 0xF0:
        clock->AdvanceTo(deadline);
        return Timeout("no answer");
      case 0xF1:
        return InvalidArgument("stall");
      case 0xF2:
        return DeviceLost("gone");
      default:
        return {};
    }
  }
  void Fill(std::span<uint8_t> data) {
    const size_t count = std::min(bytes_.size(), data.size());
    std::copy_n(bytes_.begin(), count, data.begin());
    bytes_ = bytes_.subspan(count);
  }

 private:
  std::span<const uint8_t> bytes_;
};

class AnsweringTransport final : public UsbTransport {
 public:
  AnsweringTransport(Answers* answers, FakeClock* clock) : answers_(answers), clock_(clock) {}
  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override {
    clock_->AdvanceTo(clock_->Now() + std::chrono::milliseconds(1));
    ATOLL_RETURN_IF_ERROR(answers_->NextStatus(clock_, deadline));
    if (setup.request_type & 0x80) answers_->Fill(data);
    return {};
  }
  Status BulkOut(uint8_t, std::span<const uint8_t>, Deadline deadline) override {
    return answers_->NextStatus(clock_, deadline);
  }
  Result<size_t> BulkIn(uint8_t, std::span<uint8_t> data, Deadline deadline) override {
    clock_->AdvanceTo(clock_->Now() + std::chrono::milliseconds(1));
    ATOLL_RETURN_IF_ERROR(answers_->NextStatus(clock_, deadline));
    const size_t size = std::min<size_t>(answers_->Next(), data.size());
    answers_->Fill(data.first(size));
    return size;
  }
  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                             Deadline deadline) override {
    return BulkIn(endpoint, data, deadline);
  }
  void Cancel() override {}
  Status Reset(Deadline deadline) override { return answers_->NextStatus(clock_, deadline); }

 private:
  Answers* answers_;
  FakeClock* clock_;
};

class AnsweringBus final : public UsbBus {
 public:
  AnsweringBus(Answers* answers, FakeClock* clock) : answers_(answers), clock_(clock) {}
  Result<std::vector<UsbDeviceInfo>> List() override {
    const bool has_firmware = answers_->Next() % 2 != 0;
    return std::vector<UsbDeviceInfo>{
        {.id = has_firmware ? kCoralUsbId : kCoralBootUsbId, .path = "2-3", .address = 7}};
  }
  Result<std::unique_ptr<UsbTransport>> Open(const UsbDeviceInfo&, uint8_t) override {
    ATOLL_RETURN_IF_ERROR(answers_->NextStatus(clock_, clock_->Now()));
    return std::unique_ptr<UsbTransport>(new AnsweringTransport(answers_, clock_));
  }
  uint64_t generation() override { return 0; }
  bool WaitForChange(uint64_t, Deadline deadline) override {
    clock_->AdvanceTo(deadline);
    return false;
  }

 private:
  Answers* answers_;
  FakeClock* clock_;
};

void AnswerDownload(std::span<const uint8_t> bytes) {
  FakeClock clock;
  Answers answers(bytes);
  AnsweringBus bus(&answers, &clock);
  const std::vector<uint8_t> image(600, 0);
  (void)DownloadCoralFirmware(&bus, {.id = kCoralBootUsbId, .path = "2-3"}, image, clock.Function())
      .ok();
}

void AnswerRuns(std::span<const uint8_t> bytes) {
  FakeClock clock;
  Answers answers(bytes);
  auto chip = CoralChip::Open(std::make_unique<AnsweringTransport>(&answers, &clock),
                              {.now = clock.Function()});
  if (!chip.ok()) return;
  Device device(*std::move(chip), ChipKeeper::Options{.now = clock.Function()});
  static const std::vector<uint8_t> package = WritePackage(CachingModel(7));
  auto executable = ReadCoralPackage(package);
  ATOLL_CHECK(executable.ok());
  const auto id = device.Load(std::make_shared<CoralExecutable>(*std::move(executable)));
  ATOLL_CHECK(id.ok());
  const std::vector<uint8_t> input(6);
  std::vector<uint8_t> output(12);
  for (int i = 0; i < 3; ++i) {
    const auto request = device.Submit({.executable = *id, .inputs = {input}, .outputs = {output}});
    if (!request.ok()) return;
    (void)device.Wait(*request, nullptr).ok();
  }
}

}  // namespace

ATOLL_FUZZ_TARGET(coral) {
  ReadAsPackage({data, size});
  const MemoryLimit limit(ProportionalBytes(size, kDeviceBytes));
  AnswerDownload({data, size});
  AnswerRuns({data, size});
  return 0;
}

}  // namespace atollrt::coral_fuzzer
