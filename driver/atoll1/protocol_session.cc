// SPDX-License-Identifier: Apache-2.0
#include "driver/atoll1/protocol_session.h"

#include <algorithm>
#include <utility>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

// Parts up to this size are copied together into one transfer; a copy is cheaper than a transfer.
constexpr size_t kCopyLimitBytes = 4096;
constexpr size_t kPendingBytes = 16 * 1024;

// A read that brings nothing for this long asks the device how it is: a faulted program sends no
// more outputs, and a host must not wait for them until its deadline.
constexpr std::chrono::milliseconds kPollInterval{50};
// A program that has ended has sent everything. So many answers in a row that it has, while nothing
// comes, mean that bytes got lost.
constexpr int kIdlePollsMax = 20;
// For that question, when the deadline has passed already.
constexpr std::chrono::milliseconds kGracePeriod{1000};

// What a device can have left over in an endpoint is bounded; one that sends more is broken.
constexpr size_t kDrainChunkBytes = 16 * 1024;
constexpr int kDrainChunksMax = 4096;

}  // namespace

ProtocolSession::ProtocolSession(std::unique_ptr<UsbTransport> transport, NowFunction now)
    : transport_(std::move(transport)), now_(std::move(now)) {
  pending_.reserve(kPendingBytes);
}

Result<uint32_t> ProtocolSession::Read32(Register address, Deadline deadline) {
  uint8_t bytes[4] = {};
  Status status = transport_->Control(
      RegisterRequest(static_cast<uint32_t>(address), RegisterWidth::k32, RegisterAccess::kRead),
      bytes, deadline);
  if (!status.ok()) {
    return std::move(status).WithContext(
        Format("reading register %04X", static_cast<uint32_t>(address)));
  }
  return LoadLittleEndian<uint32_t>(bytes);
}

Status ProtocolSession::ResetCore(Deadline deadline) {
  pending_.clear();
  uint8_t bytes[4];
  StoreLittleEndian<uint32_t>(bytes, kControlReset);
  ATOLL_RETURN_IF_ERROR(transport_
                            ->Control(RegisterRequest(static_cast<uint32_t>(Register::kControl),
                                                      RegisterWidth::k32, RegisterAccess::kWrite),
                                      bytes, deadline)
                            .WithContext("writing CONTROL"));
  ATOLL_RETURN_IF_ERROR(DrainEndpoint(kOutputEndpoint));
  return DrainEndpoint(kEventEndpoint);
}

// Bytes that were under way when the core was reset must not become part of the next answer.
Status ProtocolSession::DrainEndpoint(uint8_t endpoint) {
  std::vector<uint8_t> chunk(kDrainChunkBytes);
  for (int i = 0; i < kDrainChunksMax; ++i) {
    const Result<size_t> received = transport_->BulkIn(endpoint, chunk, now_());
    if (received.code() == StatusCode::kTimeout) return {};
    if (!received.ok()) return received.status();
    if (*received == 0) return {};
  }
  return DeviceLost("endpoint %02X goes on sending after a reset", endpoint);
}

Status ProtocolSession::Send(std::span<const uint8_t> bytes, Deadline deadline) {
  Status status = transport_->BulkOut(kRecordEndpoint, bytes, deadline);
  meter_.Sent(bytes.size());
  return status;
}

Status ProtocolSession::Flush(Deadline deadline) {
  if (pending_.empty()) return {};
  Status status = Send(pending_, deadline);
  pending_.clear();
  return status;
}

Status ProtocolSession::Add(std::span<const uint8_t> bytes, Deadline deadline) {
  const bool copies = bytes.size() <= kCopyLimitBytes;
  if (!copies || pending_.size() + bytes.size() > kPendingBytes) {
    ATOLL_RETURN_IF_ERROR(Flush(deadline));
  }
  if (!copies) return Send(bytes, deadline);
  pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  return {};
}

Status ProtocolSession::AddRecord(RecordTag tag, std::span<const uint8_t> payload,
                                  Deadline deadline, std::span<const uint8_t> prefix) {
  const auto bytes = static_cast<uint32_t>(prefix.size() + payload.size());
  ATOLL_RETURN_IF_ERROR(Add(
      EncodeRecordHeader({.payload_bytes = bytes, .tag = static_cast<uint8_t>(tag)}), deadline));
  ATOLL_RETURN_IF_ERROR(Add(prefix, deadline));
  return Add(payload, deadline);
}

// Fills `data` from `endpoint`, however the device cuts it, or finds out that no more will come.
Result<ProtocolSession::Received> ProtocolSession::Receive(uint8_t endpoint,
                                                           std::span<uint8_t> data,
                                                           Deadline deadline) {
  size_t filled = 0;
  int idle_polls = 0;
  while (filled < data.size()) {
    const Deadline slice = std::min(deadline, now_() + kPollInterval);
    const Result<size_t> received = transport_->BulkIn(endpoint, data.subspan(filled), slice);
    if (!received.ok() && received.code() != StatusCode::kTimeout) return received.status();
    if (received.ok() && *received > data.size() - filled) {
      return InternalError("transport says that %zu bytes fit into %zu", *received,
                           data.size() - filled);
    }
    if (received.ok() && *received > 0) {
      filled += *received;
      meter_.Received(*received);
      idle_polls = 0;
      continue;
    }
    ATOLL_ASSIGN_OR_RETURN(const uint32_t core,
                           Read32(Register::kStatus, std::max(deadline, now_() + kGracePeriod)));
    const auto core_status = static_cast<CoreStatus>(core);
    if (core_status == CoreStatus::kFaulted) return Received::kFaulted;
    idle_polls = core_status == CoreStatus::kIdle ? idle_polls + 1 : 0;
    if (idle_polls == kIdlePollsMax) {
      return DeviceLost("the program has ended, but only %zu of %zu bytes came from endpoint %02X",
                        filled, data.size(), endpoint);
    }
    if (now_() >= deadline) {
      return Timeout("%zu of %zu bytes received from endpoint %02X; the device is %s", filled,
                     data.size(), endpoint,
                     core_status == CoreStatus::kIdle      ? "idle"
                     : core_status == CoreStatus::kRunning ? "running"
                                                           : "unknown");
    }
  }
  return Received::kAll;
}

Status ProtocolSession::ResetDevice(Deadline deadline) { return transport_->Reset(deadline); }

Status ProtocolSession::Begin(const Job& job, Deadline deadline) {
  pending_.clear();
  if (!job.instructions.empty()) {
    ATOLL_RETURN_IF_ERROR(AddRecord(RecordTag::kInstructions, job.instructions, deadline,
                                    EncodeInstructionsPrefix(job.start.program_offset)));
    ATOLL_RETURN_IF_ERROR(Flush(deadline));
  }
  ATOLL_RETURN_IF_ERROR(AddRecord(RecordTag::kStart, EncodeStart(job.start), deadline));
  for (const std::span<const uint8_t> input : job.inputs) {
    ATOLL_RETURN_IF_ERROR(AddRecord(RecordTag::kInput, input, deadline));
  }
  if (!job.parameters.empty()) {
    ATOLL_RETURN_IF_ERROR(AddRecord(RecordTag::kParameters, job.parameters, deadline));
  }
  return Flush(deadline);
}

Result<ProtocolSession::End> ProtocolSession::Finish(uint32_t request_id,
                                                     std::span<const std::span<uint8_t>> outputs,
                                                     Deadline deadline) {
  const End faulted{.event = {.kind = EventKind::kFaulted, .request_id = request_id}};
  for (const std::span<uint8_t> output : outputs) {
    ATOLL_ASSIGN_OR_RETURN(const Received received, Receive(kOutputEndpoint, output, deadline));
    if (received == Received::kFaulted) return faulted;
  }
  uint8_t bytes[kEventBytes];
  ATOLL_ASSIGN_OR_RETURN(const Received received, Receive(kEventEndpoint, bytes, deadline));
  if (received == Received::kFaulted) return faulted;
  const Result<Event> event = DecodeEvent(bytes);
  if (!event.ok()) return DeviceLost("the device sent an %s", event.status().message().c_str());
  ATOLL_RETURN_IF_ERROR(CheckEvent(*event, request_id));
  return End{.event = *event};
}

}  // namespace atollrt
