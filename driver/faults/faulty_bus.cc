// SPDX-License-Identifier: Apache-2.0
#include "driver/faults/faulty_bus.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "driver/atoll1/protocol.h"
#include "driver/usb/usb_bus.h"

namespace atollrt {
namespace {

// With this a host asks whether it must go on waiting; how often depends on how long that takes.
bool AsksForStatus(const ControlSetup& setup) {
  return setup == RegisterRequest(static_cast<uint32_t>(Register::kStatus), RegisterWidth::k32,
                                  RegisterAccess::kRead);
}

}  // namespace

class FaultyBus::Transport final : public UsbTransport {
 public:
  Transport(std::shared_ptr<FaultRun> run, std::unique_ptr<UsbTransport> inner,
            FaultRun::Visit visit, bool is_atoll)
      : run_(std::move(run)),
        inner_(std::move(inner)),
        visit_(std::move(visit)),
        is_atoll_(is_atoll) {}

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override {
    if (IsWaiting(setup)) {
      if (!run_->Reach(visit_)) return Unplugged();
      return ControlBelow(setup, data, deadline);
    }
    const auto fault = Begin(FaultWhere::kControl, data.size(), deadline);
    if (!fault.ok()) {
      last_read_.reset();
      return fault.status();
    }
    Status status = ControlBelow(setup, data, deadline);
    if (status.ok() && fault->has_value() && (*fault)->what == FaultWhat::kCorrupt && !data.empty())
      data[0] ^= 0x5A;
    return status;
  }

  Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline deadline) override {
    ATOLL_ASSIGN_OR_RETURN(const auto fault, Begin(FaultWhere::kOut, data.size(), deadline));
    size_t size = data.size();
    if (fault.has_value() && fault->what == FaultWhat::kShorten) {
      size = std::min<uint64_t>(size, fault->bytes);
    }
    Status status = run_->Passed(
        inner_->BulkOut(endpoint, data.first(size), run_->InnerDeadline(deadline)), deadline);
    if (!status.ok()) return status;
    Throttle(size);
    return size < data.size() ? run_->Lose(deadline) : Status();
  }

  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override {
    const bool is_event = endpoint == kEventEndpoint;
    return Receive(is_event ? FaultWhere::kEvent : FaultWhere::kIn, endpoint, data, deadline,
                   [&](Deadline time) { return inner_->BulkIn(endpoint, data, time); });
  }

  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                             Deadline deadline) override {
    return Receive(FaultWhere::kInterrupt, endpoint, data, deadline,
                   [&](Deadline time) { return inner_->InterruptIn(endpoint, data, time); });
  }

  void Cancel() override { inner_->Cancel(); }

  Status Reset(Deadline deadline) override {
    reads_.fill({});
    last_read_.reset();
    ATOLL_RETURN_IF_ERROR(Begin(FaultWhere::kReset, 0, deadline).status());
    return run_->Passed(inner_->Reset(run_->InnerDeadline(deadline)), deadline);
  }

 private:
  // Of a call that sends or asks: what goes wrong with it while it goes on, if anything does; or
  // how it ends at once.
  Result<std::optional<PlannedFault>> Begin(FaultWhere where, size_t size, Deadline deadline) {
    // Nothing can go wrong with a call to nobody.
    if (!run_->Reach(visit_)) return Unplugged();
    std::optional<PlannedFault> fault = run_->Next(visit_.place, where, size);
    if (fault.has_value()) ATOLL_RETURN_IF_ERROR(Apply(*fault, deadline));
    return fault;
  }
  // An error if the call ends with that.
  Status Apply(const PlannedFault& fault, Deadline deadline) {
    switch (fault.what) {
      case FaultWhat::kDelay:
        return run_->Delay(fault, deadline);
      case FaultWhat::kStall:
        return InvalidArgument("the device stalled");
      case FaultWhat::kUnplug:
        run_->Unplug(visit_.place, fault);
        return Unplugged();
      case FaultWhat::kDrop:
        return run_->Lose(deadline);
      case FaultWhat::kShorten:
      case FaultWhat::kCorrupt:
      case FaultWhat::kRepeat:
      case FaultWhat::kUnmap:
        break;
    }
    return {};
  }

  Status Unplugged() const {
    return DeviceLost("the device at port %s was unplugged", visit_.place.c_str());
  }

  // Whether a host that waits asks whether it must go on; a Coral's reads a register again and
  // again. Such calls do not count.
  bool IsWaiting(const ControlSetup& setup) const {
    return is_atoll_ ? AsksForStatus(setup) : last_read_ == setup;
  }
  Status ControlBelow(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) {
    Status status =
        run_->Passed(inner_->Control(setup, data, run_->InnerDeadline(deadline)), deadline);
    last_read_.reset();
    if (status.ok() && setup.is_in()) last_read_ = setup;
    return status;
  }

  // A read, by `read_below`. It is a transfer, which something can happen to, when it brings bytes
  // that do not belong to the last one: how often a host asks before that depends on time.
  template <typename ReadBelow>
  Result<size_t> Receive(FaultWhere where, uint8_t endpoint, std::span<uint8_t> data,
                         Deadline deadline, const ReadBelow& read_below) {
    if (!run_->Reach(visit_)) return Unplugged();
    Reads& reads = reads_[endpoint & 0x0F];
    size_t count = std::min(reads.rest.size(), data.size());
    bool goes_on = count > 0;
    if (goes_on) {
      std::copy_n(reads.rest.begin(), count, data.begin());
      reads.rest.erase(reads.rest.begin(), reads.rest.begin() + static_cast<ptrdiff_t>(count));
    } else {
      Result<size_t> received = run_->Passed(read_below(run_->InnerDeadline(deadline)), deadline);
      if (!received.ok() || *received == 0) return received;
      count = *received;
      goes_on = data.data() == reads.goes_on_at;
    }
    const std::optional<PlannedFault> fault =
        goes_on ? std::nullopt : run_->Next(visit_.place, where, data.size());
    if (fault.has_value()) {
      const std::span<const uint8_t> bytes = data.first(count);
      const Status end = Apply(*fault, deadline);
      if (!end.ok()) {
        // Late or stalled they come another time; else they are lost.
        const bool keeps = fault->what == FaultWhat::kDelay || fault->what == FaultWhat::kStall;
        if (keeps) reads.PutBack(bytes);
        return end;
      }
      if (fault->what == FaultWhat::kShorten) {
        count = std::min<uint64_t>(count, fault->bytes);
        // The rest comes with the next read, but of an event it is lost.
        if (where != FaultWhere::kEvent) reads.PutBack(bytes.subspan(count));
      }
      if (fault->what == FaultWhat::kCorrupt) data[0] ^= 0x5A;
    }
    reads.goes_on_at = count < data.size() ? data.data() + count : nullptr;
    Throttle(count);
    return count;
  }

  void Throttle(size_t bytes) const {
    const uint64_t rate = run_->plan().bytes_per_second;
    if (rate == 0 || bytes == 0) return;
    const std::chrono::duration<double> time(static_cast<double>(bytes) /
                                             static_cast<double>(rate));
    run_->SleepUntil(run_->now() + std::chrono::duration_cast<Clock::duration>(time));
  }

  const std::shared_ptr<FaultRun> run_;
  const std::unique_ptr<UsbTransport> inner_;
  const FaultRun::Visit visit_;  // on which it was opened
  const bool is_atoll_;
  std::optional<ControlSetup> last_read_;  // the last control transfer, if it was a good read
  // By endpoint.
  struct Reads {
    std::vector<uint8_t> rest;  // has come, but was held back; the transfer has had its fault
    const uint8_t* goes_on_at = nullptr;  // where a read begins that takes the rest of a transfer

    void PutBack(std::span<const uint8_t> bytes) {
      rest.insert(rest.begin(), bytes.begin(), bytes.end());
    }
  };
  std::array<Reads, 16> reads_;
};

FaultyBus::FaultyBus(std::shared_ptr<UsbBus> inner, FaultPlan plan, Options options)
    : inner_(std::move(inner)),
      run_(std::make_shared<FaultRun>(
          std::move(plan), std::move(options),
          [](const std::string& port, int n) { return Format("%s.%d", port.c_str(), n); })) {}

FaultyBus::~FaultyBus() = default;

uint64_t FaultyBus::faults() const { return run_->faults(); }

Result<std::vector<UsbDeviceInfo>> FaultyBus::List() {
  ATOLL_ASSIGN_OR_RETURN(std::vector<UsbDeviceInfo> devices, inner_->List());
  std::vector<UsbDeviceInfo> present;
  for (UsbDeviceInfo& device : devices) {
    const auto path = run_->Find(device.path);
    if (!path.has_value()) continue;
    device.path = *path;
    if (run_->plan().high_speed) device.speed = std::min(device.speed, UsbSpeed::kHigh);
    present.push_back(std::move(device));
  }
  std::sort(present.begin(), present.end(),
            [](const UsbDeviceInfo& a, const UsbDeviceInfo& b) { return a.path < b.path; });
  return present;
}

Result<std::unique_ptr<UsbTransport>> FaultyBus::Open(const UsbDeviceInfo& device,
                                                      uint8_t interface_number) {
  ATOLL_ASSIGN_OR_RETURN(FaultRun::Visit visit, run_->Open(device.path));
  UsbDeviceInfo inner_device = device;
  inner_device.path = visit.place;
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<UsbTransport> transport,
                         inner_->Open(inner_device, interface_number));
  return std::unique_ptr<UsbTransport>(std::make_unique<Transport>(
      run_, std::move(transport), std::move(visit), device.id == kAtollUsbId));
}

uint64_t FaultyBus::generation() { return inner_->generation() + run_->changes(); }

bool FaultyBus::WaitForChange(uint64_t seen, Deadline deadline) {
  return run_->WaitForChange([this] { return generation(); }, seen, deadline);
}

}  // namespace atollrt
