// SPDX-License-Identifier: Apache-2.0
//
// ProtocolSession: an Atoll1Session over USB (docs/protocol.md §5). Large inputs and parameters are
// sent from where they are, outputs are received in place.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "driver/atoll1/atoll1_session.h"
#include "driver/usb/usb_transport.h"

namespace atollrt {

class ProtocolSession final : public Atoll1Session {
 public:
  ProtocolSession(std::unique_ptr<UsbTransport> transport, NowFunction now);

  Status ResetCore(Deadline deadline) override;
  Status ResetDevice(Deadline deadline) override;  // of the USB port
  Status Begin(const Job& job, Deadline deadline) override;
  Result<End> Finish(uint32_t request_id, std::span<const std::span<uint8_t>> outputs,
                     Deadline deadline) override;

 private:
  Result<uint32_t> Read32(Register address, Deadline deadline) override;
  Status Send(std::span<const uint8_t> bytes, Deadline deadline);
  Status Add(std::span<const uint8_t> bytes, Deadline deadline);
  Status AddRecord(RecordTag tag, std::span<const uint8_t> payload, Deadline deadline,
                   std::span<const uint8_t> prefix = {});
  Status Flush(Deadline deadline);
  Status DrainEndpoint(uint8_t endpoint);
  enum class Received { kAll, kFaulted };
  Result<Received> Receive(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline);

  const std::unique_ptr<UsbTransport> transport_;
  const NowFunction now_;
  std::vector<uint8_t> pending_;  // small parts of records, to be sent as one transfer
};

}  // namespace atollrt
