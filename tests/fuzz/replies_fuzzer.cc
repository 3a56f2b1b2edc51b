// SPDX-License-Identifier: Apache-2.0
//
// Whatever an Atoll-1 may answer: registers, outputs, events, errors of every call, more or fewer
// bytes than were asked for, at any time. Each request completes exactly once, with what was
// received or a status, within its deadlines. The device is honest as long as the input says so, so
// that the driver gets anywhere. Inputs that begin with 0 are the file of a recorded session
// instead.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "atoll/check.h"
#include "driver/atoll1/atoll1_chip.h"
#include "driver/atoll1/protocol.h"
#include "driver/device/device.h"
#include "driver/recording/usb_recording.h"
#include "runtime/base/bytes.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/requests.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/fake_clock.h"
#include "tests/support/open_atoll1.h"

namespace atollrt::replies_fuzzer {

namespace {

// How a call ends; half of all bytes mean honestly.
enum class Answer { kHonest, kBytes, kStall, kTimeout, kLost, kCancelled };
Answer NextAnswer(Input& input) {
  const uint8_t byte = input.Byte();
  return byte < 128 ? Answer::kHonest : static_cast<Answer>(1 + byte % 5);
}

class HostileTransport final : public UsbTransport {
 public:
  HostileTransport(Input* input, FakeClock* clock) : input_(*input), clock_(*clock) {}

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override {
    const Answer answer = NextAnswer(input_);
    if (answer > Answer::kBytes) return Fail(answer, deadline);
    if ((setup.request_type & 0x80) == 0) return {};
    if (answer == Answer::kBytes) {
      input_.Fill(data);
      return {};
    }
    const auto request = DecodeRegisterRequest(setup);
    ATOLL_CHECK(request.ok());  // the driver makes no others
    uint32_t value = 0;
    switch (static_cast<Register>(request->address)) {
      case Register::kId:
        value = kDeviceId;
        break;
      case Register::kIsa:
        value = kIsaVersion;
        break;
      case Register::kArrayRows:
      case Register::kArrayColumns:
        value = 64;
        break;
      case Register::kMemoryBytes:
      case Register::kProgramBytes:
        value = 1 << 16;
        break;
      case Register::kClockKhz:
      case Register::kLinkKbps:
        value = 500'000;
        break;
      default:
        break;
    }
    std::fill(data.begin(), data.end(), 0);
    if (data.size() >= 4) StoreLittleEndian(data.data(), value);
    return {};
  }

  Status BulkOut(uint8_t, std::span<const uint8_t> data, Deadline deadline) override {
    const Answer answer = NextAnswer(input_);
    if (answer > Answer::kBytes) return Fail(answer, deadline);
    if (data.size() >= kRecordHeaderBytes + kStartBytes &&
        data[4] == static_cast<uint8_t>(RecordTag::kStart)) {
      const auto start = DecodeStart(data.subspan(kRecordHeaderBytes, kStartBytes));
      if (start.ok()) request_id_ = start->request_id;
      has_event_ = true;
    }
    return {};
  }

  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override {
    const Answer answer = NextAnswer(input_);
    if (answer > Answer::kBytes) return Fail(answer, deadline);
    if (answer == Answer::kBytes) {
      const size_t count = input_.Byte() % (data.size() + 1);
      input_.Fill(data.first(count));
      return count;
    }
    if (endpoint == kEventEndpoint) {
      if (!has_event_) return Fail(Answer::kTimeout, deadline);
      has_event_ = false;
      const auto event = EncodeEvent({.request_id = request_id_});
      const size_t count = std::min(data.size(), event.size());
      std::copy_n(event.begin(), count, data.begin());
      return count;
    }
    // A drain is over at once, a run gets its outputs.
    if (!has_event_) return Fail(Answer::kTimeout, deadline);
    std::fill(data.begin(), data.end(), 0x42);
    return data.size();
  }
  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                             Deadline deadline) override {
    return BulkIn(endpoint, data, deadline);
  }
  void Cancel() override {}
  Status Reset(Deadline deadline) override {
    const Answer answer = NextAnswer(input_);
    has_event_ = false;
    return answer > Answer::kBytes ? Fail(answer, deadline) : Status();
  }

 private:
  Status Fail(Answer answer, Deadline deadline) {
    switch (answer) {
      case Answer::kStall:
        return InvalidArgument("stalled");
      case Answer::kTimeout:
        clock_.AdvanceTo(deadline);
        return Timeout("nothing came");
      case Answer::kLost:
        return DeviceLost("gone");
      default:
        return Status(StatusCode::kCancelled, "cancelled");
    }
  }

  Input& input_;
  FakeClock& clock_;
  uint32_t request_id_ = 0;
  bool has_event_ = false;
};

void UseHostileDevice(Input input) {
  FakeClock clock;
  const auto open = [&] {
    return Atoll1Chip::Open(std::make_unique<HostileTransport>(&input, &clock), {},
                            clock.Function());
  };
  const bool recovers = input.Byte() % 2 != 0;
  auto chip = open();
  if (!chip.ok()) return;
  ChipKeeper::Options options;
  options.on_loss = OnDeviceLoss::kReplay;
  options.now = clock.Function();
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

void Replay(std::span<const uint8_t> recording) {
  const auto bus = [&] {
    const MemoryLimit limit(ProportionalBytes(recording.size()));
    return ReplayBus::Create(recording);
  }();
  if (!bus.ok()) {
    ATOLL_CHECK(!bus.status().message().empty());
    return;
  }
  const auto devices = (*bus)->List();
  if (!devices.ok() || devices->empty()) return;
  auto transport = (*bus)->Open(devices->front(), 0);
  if (!transport.ok()) return;
  FakeClock clock;  // goes on by itself, since nothing waits
  const auto device = OpenAtoll1(*std::move(transport), {}, [&clock] {
    clock.AdvanceTo(clock.Now() + std::chrono::milliseconds(1));
    return clock.Now();
  });
  if (device.ok()) Use(**device);
}

}  // namespace

ATOLL_FUZZ_TARGET(replies) {
  const std::span<const uint8_t> bytes(data, size);
  constexpr int64_t kDeviceBytes = int64_t{16} << 20;
  const MemoryLimit limit(ProportionalBytes(size, kDeviceBytes));
  if (!bytes.empty() && bytes[0] == 0) {
    Replay(bytes.subspan(1));
  } else {
    UseHostileDevice(Input(bytes));
  }
  return 0;
}

}  // namespace atollrt::replies_fuzzer
