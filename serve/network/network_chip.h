// SPDX-License-Identifier: Apache-2.0
//
// NetworkChip: the device of another computer, by its `atoll serve --share-device`, as a Chip. It
// is given executables as models (executable_model.h), once for all programs that use them, and
// runs them as inferences. What the server runs for others it does not see; recovery above it
// connects again, uploads what is missing and repeats what was under way, there or elsewhere:
// executables keep no state between runs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "atoll/status.h"
#include "driver/device/chip.h"
#include "serve/network/oip_client.h"

namespace atollserve {

class NetworkChip final : public atollrt::Chip {
 public:
  // As NetworkModule::open.
  static atollrt::Result<std::unique_ptr<atollrt::Chip>> Open(const std::string& address,
                                                              const atollrt::DeviceOrigin& origin,
                                                              Deadline deadline);
  ~NetworkChip() override { Abandon(); }

  const atollrt::DeviceInfo& info() const override { return info_; }
  atollrt::Result<std::unique_ptr<atollrt::PreparedExecutable>> Prepare(
      std::shared_ptr<const atollrt::AnyExecutable> executable) const override;
  // The server keeps it for others, as long as there is room.
  void Forget(const atollrt::PreparedExecutable&) override {}
  // Whether it was there when that was asked last: what is on its device, the server decides.
  bool IsResident(const atollrt::PreparedExecutable& prepared) const override;
  uint64_t memory_used_bytes() const override { return 0; }
  atollrt::Status Run(const Job& job, std::span<const Job> ahead,
                      atollrt::RequestReport* report) override;
  size_t jobs_in_flight_max() const override { return atollrt::kJobsInFlightMax; }
  void Abandon() override;
  atollrt::Status Recover() override;
  atollrt::Status Reopen() override;

 private:
  struct Prepared;
  struct Flight {
    uint32_t request_id = 0;  // the queue's; 0: none
    std::unique_ptr<OipCall> call;
  };

  NetworkChip(std::string address, OipAccess access, atollrt::DeviceInfo info,
              std::shared_ptr<OipClient> client)
      : address_(std::move(address)),
        access_(std::move(access)),
        info_(std::move(info)),
        client_(std::move(client)) {}
  std::shared_ptr<OipClient> client() const;
  atollrt::Status Upload(OipClient* client, const Prepared& prepared, Deadline deadline) const;
  atollrt::Status RunOn(OipClient* client, const Job& job, std::span<const Job> ahead,
                        atollrt::RequestReport* report);
  void Begin(OipClient* client, const Job& job, Flight* flight) const;
  Flight* FlightOf(uint32_t request_id);
  atollrt::Status Connect(Deadline deadline);

  const std::string address_;
  const OipAccess access_;
  const atollrt::DeviceInfo info_;
  mutable std::mutex mutex_;                               // guards client_
  std::shared_ptr<OipClient> client_;                      // nullptr: none
  std::atomic<uint32_t> connection_ = 1;                   // counts them
  std::array<Flight, atollrt::kJobsInFlightMax> flights_;  // of the holder of the wire
};

}  // namespace atollserve
