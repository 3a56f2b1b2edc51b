// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_coral.h"

#include <algorithm>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr uint32_t kPower = 0x1a318;
constexpr uint32_t kScalarCore = 0x44018;

Status Stall() { return InvalidArgument("the device stalls"); }

}  // namespace

Status FakeCoral::Begin() const {
  if (state_->is_gone) return DeviceLost("the device is gone");
  return cancelled_ ? Status(StatusCode::kCancelled, "cancelled") : Status();
}

Status FakeCoral::Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline) {
  ATOLL_RETURN_IF_ERROR(Begin());
  if (state_->before_control) ATOLL_RETURN_IF_ERROR(state_->before_control(setup));
  const uint32_t address = static_cast<uint32_t>(setup.index) << 16 | setup.value;
  const bool is_wide = setup.request == 0;
  if ((setup.request_type & 0x7F) != 0x40 || setup.request > 1 ||
      data.size() != (is_wide ? 8 : 4) || (address >= 0x40000) != is_wide) {
    return Stall();
  }
  uint64_t& value = state_->registers[address];
  if (setup.request_type & 0x80) {
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(value >> (8 * i));
    return {};
  }
  state_->written.push_back(address);
  value = 0;
  for (size_t i = 0; i < data.size(); ++i) value |= static_cast<uint64_t>(data[i]) << (8 * i);
  if (address == kPower) {  // the state follows what it is forced to
    const bool sleeps = (value >> 22 & 3) == 3;
    value = (value & ~uint64_t{0x35C}) | (sleeps ? 0x25C : 0x004);
    if (sleeps) state_->registers[kScalarCore] = 0;
  }
  return {};
}

Status FakeCoral::BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline) {
  ATOLL_RETURN_IF_ERROR(Begin());
  if (state_->before) ATOLL_RETURN_IF_ERROR(state_->before(endpoint));
  if (endpoint != 0x01) return Stall();
  if (missing_ == 0) {
    if (data.size() != 8) return Stall();
    missing_ = LoadLittleEndian<uint32_t>(data.data());
    receiving_ = {.tag = data[4], .payload = {}};
    return {};
  }
  if (data.size() > missing_) return Stall();
  receiving_.payload.insert(receiving_.payload.end(), data.begin(), data.end());
  missing_ -= data.size();
  if (missing_ == 0) {
    state_->sent.push_back(receiving_);
    if (state_->on_payload) state_->on_payload(*state_, state_->sent.back());
  }
  return {};
}

Result<size_t> FakeCoral::BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) {
  ATOLL_RETURN_IF_ERROR(Begin());
  if (state_->before) ATOLL_RETURN_IF_ERROR(state_->before(endpoint));
  std::vector<uint8_t> bytes;
  if (endpoint == 0x81) {
    const size_t size = std::min({data.size(), state_->output.size(), state_->packet_bytes});
    const auto end = state_->output.begin() + static_cast<std::ptrdiff_t>(size);
    bytes.assign(state_->output.begin(), end);
    state_->output.erase(state_->output.begin(), end);
  } else if (endpoint == 0x82 && !state_->events.empty()) {
    bytes = state_->events.front();
    state_->events.pop_front();
  }
  if (bytes.empty()) {
    clock_->AdvanceTo(deadline);
    return Timeout("endpoint %02X has sent nothing", endpoint);
  }
  bytes.resize(std::min(bytes.size(), data.size()));
  std::copy(bytes.begin(), bytes.end(), data.begin());
  return bytes.size();
}

Result<size_t> FakeCoral::InterruptIn(uint8_t, std::span<uint8_t> data, Deadline deadline) {
  ATOLL_RETURN_IF_ERROR(Begin());
  if (state_->interrupts.empty()) {
    clock_->AdvanceTo(deadline);
    return Timeout("no interrupt");
  }
  const std::vector<uint8_t> word = state_->interrupts.front();
  state_->interrupts.pop_front();
  const size_t size = std::min(word.size(), data.size());
  std::copy_n(word.begin(), size, data.begin());
  return size;
}

Status FakeCoral::Reset(Deadline) {
  if (state_->is_gone) return DeviceLost("the device is gone");
  ++state_->resets;
  cancelled_ = false;
  missing_ = 0;
  state_->output.clear();
  state_->events.clear();
  return {};
}

// A device that waits for firmware.
class FakeRomTransport final : public UsbTransport {
 public:
  FakeRomTransport(FakeCoralBus* bus, uint8_t interface_number)
      : bus_(bus), rom_(bus->rom), interface_(interface_number) {}

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline) override {
    if (setup.request_type == 0x80 && setup.request == 6) return Describe(data);
    if (setup.index != rom_.interface_number || interface_ != rom_.interface_number) return Stall();
    switch (setup.request) {
      case 1:
        return Download(setup.value, data);
      case 2:
        return Upload(setup.value, data);
      case 3:
        return GetStatus(data);
      case 4:
        if (rom_.state != 10) return Stall();
        rom_.state = 2;
        rom_.status = 0;
        return {};
      case 6:
        if (rom_.state == 10) return Stall();
        rom_.state = 2;
        return {};
      default:
        return Stall();
    }
  }
  Status BulkOut(uint8_t, std::span<const uint8_t>, Deadline) override { return Stall(); }
  Result<size_t> BulkIn(uint8_t, std::span<uint8_t>, Deadline) override { return Stall(); }
  Result<size_t> InterruptIn(uint8_t, std::span<uint8_t>, Deadline) override { return Stall(); }
  void Cancel() override {}
  Status Reset(Deadline) override {
    if (!rom_.has_image) return {};
    rom_.has_image = false;
    if (rom_.failed_boots > 0) {
      --rom_.failed_boots;
      rom_.state = 2;
      return {};
    }
    bus_->Leave();
    return DeviceLost("the device left the bus when it was reset");
  }

 private:
  Status Describe(std::span<uint8_t> data) {
    const auto number = static_cast<uint8_t>(rom_.interface_number);
    const std::vector<uint8_t> bytes = {9,
                                        2,
                                        27,
                                        0,
                                        1,
                                        1,
                                        0,
                                        0xC0,
                                        12,
                                        9,
                                        4,
                                        number,
                                        0,
                                        0,
                                        0xFE,
                                        1,
                                        2,
                                        0,
                                        9,
                                        0x21,
                                        7,
                                        0xE8,
                                        3,
                                        static_cast<uint8_t>(rom_.block_bytes),
                                        static_cast<uint8_t>(rom_.block_bytes >> 8),
                                        0x10,
                                        1};
    std::copy_n(bytes.begin(), std::min(bytes.size(), data.size()), data.begin());
    return {};
  }
  Status Fail() {
    rom_.state = 10;
    rom_.status = 0x0F;
    return Stall();
  }
  Status Download(uint16_t block, std::span<const uint8_t> data) {
    if (rom_.state != 2 && rom_.state != 5) return Fail();
    if (rom_.state == 2) {
      rom_.image.clear();
      rom_.next_block = 0;
      ++rom_.downloads;
    }
    rom_.busy = rom_.busy_polls;
    if (data.empty()) {
      rom_.state = 6;
      rom_.has_image = true;
      return {};
    }
    if (block != rom_.next_block || data.size() > rom_.block_bytes) return Fail();
    ++rom_.next_block;
    rom_.image.insert(rom_.image.end(), data.begin(), data.end());
    rom_.state = 3;
    if (block == rom_.fails_at_block) {
      rom_.fails_at_block = -1;
      rom_.state = 10;
      rom_.status = 3;
    }
    return {};
  }
  Status Upload(uint16_t block, std::span<uint8_t> data) {
    if (rom_.state != 2 && rom_.state != 9) return Fail();
    rom_.state = 9;
    for (size_t i = 0; i < data.size(); ++i) {
      const size_t at = block * data.size() + i;
      data[i] = at < rom_.image.size() ? rom_.image[at] : 0;
    }
    if (block == 0 && rom_.bad_reads > 0) {
      --rom_.bad_reads;
      data[3] ^= 0xFF;
    }
    return {};
  }
  Status GetStatus(std::span<uint8_t> data) {
    const auto poll = static_cast<uint32_t>(rom_.state == 2 ? 0 : rom_.poll_ms);
    if (rom_.busy > 0) {
      --rom_.busy;
    } else if (rom_.state == 3) {
      rom_.state = 5;
    } else if (rom_.state == 6) {
      rom_.state = 2;
    }
    const uint8_t bytes[6] = {rom_.status,
                              static_cast<uint8_t>(poll),
                              static_cast<uint8_t>(poll >> 8),
                              static_cast<uint8_t>(poll >> 16),
                              rom_.state,
                              0};
    std::copy_n(bytes, std::min<size_t>(6, data.size()), data.begin());
    return {};
  }

  FakeCoralBus* const bus_;
  FakeRom& rom_;
  const uint8_t interface_;
};

Result<std::vector<UsbDeviceInfo>> FakeCoralBus::List() { return devices; }

Result<std::unique_ptr<UsbTransport>> FakeCoralBus::Open(const UsbDeviceInfo& device,
                                                         uint8_t interface_number) {
  if (std::none_of(devices.begin(), devices.end(), [&](const UsbDeviceInfo& other) {
        return other.path == device.path && other.id == device.id;
      })) {
    return DeviceLost("no such device at %s", device.path.c_str());
  }
  if (denials > 0) {
    --denials;
    return Status(StatusCode::kPermissionDenied, "this user may not");
  }
  if (device.id == kCoralBootUsbId) {
    return std::unique_ptr<UsbTransport>(new FakeRomTransport(this, interface_number));
  }
  return std::unique_ptr<UsbTransport>(new FakeCoral(coral, clock_));
}

void FakeCoralBus::Leave() {
  std::erase_if(devices, [](const UsbDeviceInfo& device) { return device.id == kCoralBootUsbId; });
  ++generation_;
  is_away_ = true;
  back_at_ = clock_->Now() + std::chrono::milliseconds(rom.away_ms);
}

bool FakeCoralBus::WaitForChange(uint64_t seen, Deadline deadline) {
  if (generation_ != seen) return true;
  waits_ms.push_back(static_cast<int>(
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - clock_->Now()).count()));
  if (!is_away_ || back_at_ > deadline) {
    clock_->AdvanceTo(deadline);
    return false;
  }
  clock_->AdvanceTo(back_at_);
  is_away_ = false;
  ++generation_;
  devices.push_back({.id = rom.comes_back_as_rom ? kCoralBootUsbId : kCoralUsbId,
                     .path = rom.comes_back_at.empty() ? "2-3" : rom.comes_back_at,
                     .address = ++address_,
                     .speed = UsbSpeed::kSuper});
  return true;
}

}  // namespace atollrt
