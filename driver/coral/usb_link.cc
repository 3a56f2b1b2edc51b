// SPDX-License-Identifier: Apache-2.0
#include "driver/coral/usb_link.h"

#include <algorithm>
#include <array>

namespace atollrt {
namespace {

constexpr std::chrono::milliseconds kAnswerPatience{1000};
// Registers may be written again; a link error or two need not end a session.
constexpr int kControlAttempts = 5;
// For large payloads, on top of kCoralPatience: a third of what USB 2 manages.
constexpr uint64_t kBytesPerMillisecond = 10'000;

}  // namespace

Deadline CoralUsbLink::Sooner(Deadline deadline, std::chrono::milliseconds patience) const {
  return std::min(deadline, now_() + patience);
}

Status CoralUsbLink::Access(bool read, uint32_t address, std::span<uint8_t> data,
                            Deadline deadline) {
  constexpr uint8_t kVendorRead = 0xC0, kVendorWrite = 0x40;
  const ControlSetup setup{.request_type = read ? kVendorRead : kVendorWrite,
                           .request = static_cast<uint8_t>(data.size() == sizeof(uint32_t)),
                           .value = static_cast<uint16_t>(address),
                           .index = static_cast<uint16_t>(address >> 16)};
  Status status;
  for (int attempt = 0; attempt < kControlAttempts; ++attempt) {
    status = transport_->Control(setup, data, Sooner(deadline, kAnswerPatience));
    if (status.ok() || status.code() == StatusCode::kCancelled || now_() >= deadline) break;
  }
  return std::move(status).WithContext(
      Format("%s register %05x", read ? "reading" : "writing", address));
}

Status CoralUsbLink::Send(coral::Tag tag, std::span<const uint8_t> payload, Deadline deadline) {
  std::array<uint8_t, coral::kHeaderBytes> header{};
  StoreLittleEndian(header.data(), static_cast<uint32_t>(payload.size()));
  header[sizeof(uint32_t)] = static_cast<uint8_t>(tag);
  const std::chrono::milliseconds transfer_time(payload.size() / kBytesPerMillisecond);
  ATOLL_RETURN_IF_ERROR(
      transport_->BulkOut(coral::kOutEndpoint, header, Sooner(deadline, kCoralPatience)));
  meter_.Sent(header.size());
  ATOLL_RETURN_IF_ERROR(transport_->BulkOut(coral::kOutEndpoint, payload,
                                            Sooner(deadline, kCoralPatience + transfer_time)));
  meter_.Sent(payload.size());
  return {};
}

Status CoralUsbLink::Receive(std::span<uint8_t> output, Deadline deadline) {
  while (!output.empty()) {
    ATOLL_ASSIGN_OR_RETURN(
        const size_t received,
        transport_->BulkIn(coral::kOutputEndpoint, output, Sooner(deadline, kCoralPatience)));
    meter_.Received(received);
    output = output.subspan(received);
    if (!output.empty() && now_() >= deadline) {
      return Timeout("%zu bytes of an output are missing", output.size());
    }
  }
  return {};
}

Status CoralUsbLink::AwaitInterrupt(uint32_t number, Deadline deadline) {
  std::array<uint8_t, coral::kEventBytes> event{};
  ATOLL_ASSIGN_OR_RETURN(const size_t size, transport_->BulkIn(coral::kEventEndpoint, event,
                                                               Sooner(deadline, kCoralPatience)));
  meter_.Received(size);
  if (size != event.size()) {
    return DeviceLost("the device sent an event of %zu bytes, must be %zu", size, event.size());
  }
  const uint32_t tag = event[coral::kEventTagByte] & 0xFu;
  const uint32_t wanted = static_cast<uint32_t>(coral::Tag::kInterrupt0) + number;
  if (tag == wanted) return {};
  return DeviceLost("the device sent an event with tag %u where %u was due", tag, wanted);
}

Result<std::optional<uint32_t>> CoralUsbLink::TakeFaults() {
  std::array<uint8_t, coral::kInterruptBytes> bytes{};
  const Result<size_t> size = transport_->InterruptIn(coral::kInterruptEndpoint, bytes, now_());
  if (size.code() == StatusCode::kCancelled) return size.status();
  if (!size.ok()) return std::optional<uint32_t>();
  meter_.Received(*size);
  if (*size != bytes.size()) return std::optional<uint32_t>();
  return std::optional(LoadLittleEndian<uint32_t>(bytes.data()));
}

}  // namespace atollrt
