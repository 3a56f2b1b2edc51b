// SPDX-License-Identifier: Apache-2.0
//
// ScriptedTransport: a device story as data. The far end of the cable is a table of calls in order,
// each with its answer; docs/protocol.md is what a reader checks the table against:
//
//   ScriptedTransport::Open({ExpectRead(Register::kId, kDeviceId),
//                            ExpectBulkOut({0x20, 0, 0, 0, 8, 0, 0, 0, ...}),
//                            Fails(ExpectBulkIn(kEventEndpoint), StatusCode::kDeviceLost)});
//
// A call that is not the next of the table fails the test, with both in words, and gives
// kInternal; so does a table that is not used up when the transport is destroyed.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "driver/atoll1/protocol.h"
#include "driver/usb/usb_transport.h"
#include "tests/support/fake_clock.h"

namespace atollrt {

struct Step {
  enum class Kind { kControl, kBulkOut, kBulkIn, kReset };
  Kind kind = Kind::kControl;
  ControlSetup setup;
  uint8_t endpoint = 0;
  std::vector<uint8_t> bytes;         // what the host must send, or what it receives
  StatusCode code = StatusCode::kOk;  // otherwise the call fails with it
  std::function<void()> during;       // runs inside the call, before it returns
};

Step ExpectRead(Register address, uint32_t reply);
Step ExpectWrite(Register address, uint32_t value);
Step ExpectBulkOut(std::vector<uint8_t> bytes);
Step ExpectBulkIn(uint8_t endpoint, std::vector<uint8_t> reply = {});
Step ExpectReset();
Step Fails(Step step, StatusCode code);
Step During(Step step, std::function<void()> action);

// Tables end to end.
std::vector<Step> Story(std::vector<std::vector<Step>> parts);

// Byte strings end to end; of any containers of uint8_t.
template <typename... Parts>
std::vector<uint8_t> Bytes(const Parts&... parts) {
  std::vector<uint8_t> bytes;
  (bytes.insert(bytes.end(), std::begin(parts), std::end(parts)), ...);
  return bytes;
}

class ScriptedTransport : public UsbTransport {
 public:
  // A call that fails with kTimeout moves `clock` to its deadline.
  ScriptedTransport(std::vector<Step> steps, FakeClock* clock);
  ~ScriptedTransport() override;

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override;
  Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline deadline) override;
  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override;
  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override;
  void Cancel() override {}
  Status Reset(Deadline deadline) override;

 private:
  const Step* Next(Step::Kind kind, const std::string& call);
  Status Finish(const Step& step, Deadline deadline);

  std::vector<Step> steps_;
  size_t next_ = 0;
  bool broken_ = false;  // after the first mismatch the rest means nothing
  FakeClock* clock_;
};

}  // namespace atollrt
