// SPDX-License-Identifier: Apache-2.0
#include "tests/support/faulty_transport.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace atollrt {

FaultyTransport::FaultyTransport(std::unique_ptr<UsbTransport> inner, uint64_t seed, int one_in,
                                 FakeClock* clock)
    : inner_(std::move(inner)), rng_(seed), one_in_(one_in), clock_(clock) {}

bool FaultyTransport::FaultNow() {
  if (!rng_.OneIn(one_in_)) return false;
  ++faults_;
  return true;
}

Status FaultyTransport::Unplug() {
  unplugged_ = true;
  return DeviceLost("unplugged");
}

Status FaultyTransport::Late(Deadline deadline) {
  clock_->AdvanceTo(deadline);
  return Timeout("lost on the way");
}

// The driver's deadlines are of the fake clock, the inner transport's of the real one.
Deadline FaultyTransport::InnerDeadline(Deadline deadline) const {
  const auto remaining = std::max(deadline - clock_->Now(), Clock::duration::zero());
  return Clock::now() + std::min<Clock::duration>(remaining, kPatience);
}

Status FaultyTransport::Control(const ControlSetup& setup, std::span<uint8_t> data,
                                Deadline deadline) {
  if (unplugged_) return DeviceLost("unplugged");
  if (FaultNow()) {
    switch (rng_.Int(0, 2)) {
      case 0:
        return InvalidArgument("request stalled");
      case 1:
        return Late(deadline);
      default:
        return Unplug();
    }
  }
  Status status = inner_->Control(setup, data, InnerDeadline(deadline));
  if (status.code() == StatusCode::kTimeout) clock_->AdvanceTo(deadline);
  return status;
}

Status FaultyTransport::BulkOut(uint8_t endpoint, std::span<const uint8_t> data,
                                Deadline deadline) {
  if (unplugged_) return DeviceLost("unplugged");
  if (FaultNow()) {
    switch (rng_.Int(0, 3)) {
      case 0:  // nothing arrives
        return Late(deadline);
      case 1: {  // a part arrives
        const size_t part = static_cast<size_t>(rng_.Int(0, static_cast<int64_t>(data.size())));
        const Status sent = inner_->BulkOut(endpoint, data.first(part), InnerDeadline(deadline));
        return sent.ok() ? Late(deadline) : sent;
      }
      case 2:
        return InvalidArgument("endpoint %02X stalled", endpoint);
      default:
        return Unplug();
    }
  }
  Status status = inner_->BulkOut(endpoint, data, InnerDeadline(deadline));
  if (status.code() == StatusCode::kTimeout) clock_->AdvanceTo(deadline);
  return status;
}

// What is left of a read that was cut short, or else what the inner transport receives.
Result<size_t> FaultyTransport::Read(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) {
  std::vector<uint8_t>& rest = rest_[endpoint & 0x0F];
  if (!rest.empty()) {
    const size_t count = std::min(rest.size(), data.size());
    std::copy_n(rest.begin(), count, data.begin());
    rest.erase(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(count));
    return count;
  }
  Result<size_t> received = inner_->BulkIn(endpoint, data, InnerDeadline(deadline));
  if (received.code() == StatusCode::kTimeout) clock_->AdvanceTo(deadline);
  return received;
}

Result<size_t> FaultyTransport::BulkIn(uint8_t endpoint, std::span<uint8_t> data,
                                       Deadline deadline) {
  if (unplugged_) return DeviceLost("unplugged");
  if (!FaultNow()) return Read(endpoint, data, deadline);
  switch (rng_.Int(0, 4)) {
    case 0:  // comes late
      return Late(deadline);
    case 1: {  // cut short; the rest comes with the next read
      Result<size_t> received = Read(endpoint, data, deadline);
      if (!received.ok() || *received < 2) return received;
      const auto part = static_cast<size_t>(rng_.Int(1, static_cast<int64_t>(*received) - 1));
      std::vector<uint8_t>& rest = rest_[endpoint & 0x0F];
      rest.insert(rest.begin(), data.begin() + static_cast<ptrdiff_t>(part),
                  data.begin() + static_cast<ptrdiff_t>(*received));
      return part;
    }
    case 2: {  // received by no one
      std::vector<uint8_t> lost(data.size());
      const Result<size_t> received = Read(endpoint, lost, deadline);
      return received.ok() ? Late(deadline) : received.status();
    }
    case 3:
      return InvalidArgument("endpoint %02X stalled", endpoint);
    default:
      return Unplug();
  }
}

Result<size_t> FaultyTransport::InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                                            Deadline deadline) {
  if (unplugged_) return DeviceLost("unplugged");
  if (FaultNow()) return Late(deadline);
  return inner_->InterruptIn(endpoint, data, InnerDeadline(deadline));
}

Status FaultyTransport::Reset(Deadline deadline) {
  if (unplugged_ && rng_.OneIn(4)) return DeviceLost("still unplugged");
  unplugged_ = false;
  for (std::vector<uint8_t>& rest : rest_) rest.clear();
  return inner_->Reset(InnerDeadline(deadline));
}

}  // namespace atollrt
