// SPDX-License-Identifier: Apache-2.0
#include "driver/coral/coral_chip.h"

#include <algorithm>
#include <utility>

#include "driver/coral/firmware.h"
#include "runtime/base/buffer.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

constexpr std::chrono::milliseconds kBringUpTimeout{3000};
constexpr std::chrono::milliseconds kPortResetTimeout{5000};
constexpr std::chrono::milliseconds kCloseTimeout{2000};
constexpr std::chrono::milliseconds kFaultTimeout{500};  // for registers that explain a failure

constexpr uint8_t kInterface = 0;
// For the system to let this user in, and between looks whether it does.
constexpr std::chrono::milliseconds kPermissionTimeout{2000};
constexpr std::chrono::milliseconds kPermissionPoll{100};

const char* SpeedText(UsbSpeed speed) {
  constexpr const char* kTexts[] = {
      "USB", "USB 1: far too slow", "USB 1: far too slow", "USB 2", "USB 3", "USB 3"};
  return kTexts[static_cast<size_t>(speed)];
}

DeviceInfo UsbInfo(const CoralOptions& options) {
  const bool is_slow = options.speed == UsbSpeed::kHigh;
  const std::string port = options.path.empty() ? "" : ", port " + options.path;
  return CoralDeviceInfo(options, SpeedText(options.speed) + port,
                         is_slow ? 40'000'000 : 400'000'000);
}

}  // namespace

struct CoralChip::Prepared final : PreparedExecutable {
  const CoralExecutable& coral() const { return static_cast<const CoralExecutable&>(*executable); }

  // Belong to the holder of the wire. Those of layers that go as they are stay empty.
  mutable std::vector<Buffer> inputs;
  mutable std::vector<Buffer> outputs;
  mutable Buffer scratch;
};

Result<std::unique_ptr<Chip>> OpenCoral(UsbBus* bus, const UsbDeviceInfo& device,
                                        const CoralOptions& options) {
  const NowFunction& now = options.now;
  UsbDeviceInfo ready = device;
  if (device.id == kCoralBootUsbId) {
    ATOLL_ASSIGN_OR_RETURN(const CoralFirmware firmware, FindCoralFirmware(options.firmware));
    Log(LogSeverity::kInfo, "device %s: a Coral without firmware at port %s gets '%s'",
        options.name.c_str(), device.path.c_str(), firmware.path.c_str());
    ATOLL_ASSIGN_OR_RETURN(ready, DownloadCoralFirmware(bus, device, firmware.image, now));
  }
  const Deadline deadline = now() + kPermissionTimeout;
  auto transport = bus->Open(ready, kInterface);
  while (transport.code() == StatusCode::kPermissionDenied && now() < deadline) {
    // Permissions change without a sign on the bus.
    (void)bus->WaitForChange(bus->generation(), std::min(deadline, now() + kPermissionPoll));
    transport = bus->Open(ready, kInterface);
  }
  if (!transport.ok()) return transport.status();
  CoralOptions found = options;
  found.path = ready.path;
  found.speed = ready.speed;
  return CoralChip::Open(*std::move(transport), std::move(found));
}

Result<std::unique_ptr<Chip>> CoralChip::Open(std::unique_ptr<UsbTransport> transport,
                                              CoralOptions options) {
  const std::string name = options.name;
  if (options.speed == UsbSpeed::kLow) {
    return Unsupported("a Coral cannot work at low speed; use another port or cable");
  }
  if (options.speed == UsbSpeed::kFull || options.speed == UsbSpeed::kHigh) {
    Log(LogSeverity::kWarning,
        "device %s is on %s: instructions and inputs of every inference take ten times as long as "
        "on USB 3",
        name.c_str(), SpeedText(options.speed));
  }
  std::unique_ptr<CoralChip> chip(new CoralChip(std::move(transport), std::move(options)));
  Status status = chip->session_.BringUp(chip->settings_, chip->now_() + kBringUpTimeout);
  const StatusCode code = status.code();
  if (code == StatusCode::kOk) {
    chip->is_up_ = true;
  } else if (code != StatusCode::kUnsupported && code != StatusCode::kCancelled) {
    Log(LogSeverity::kWarning, "device %s: reset after %s", name.c_str(), status.message().c_str());
    status = chip->Reopen();
  }
  if (!status.ok()) return status;
  return std::unique_ptr<Chip>(std::move(chip));
}

CoralChip::CoralChip(std::unique_ptr<UsbTransport> transport, CoralOptions options)
    : info_(UsbInfo(options)),
      now_(std::move(options.now)),
      settings_{.performance = options.performance,
                .is_high_speed = options.speed == UsbSpeed::kHigh},
      transport_(std::move(transport)),
      link_(transport_.get(), now_),
      session_(&link_, now_, info_.name) {}

CoralChip::~CoralChip() {
  if (is_up_) session_.Close(now_() + kCloseTimeout);
}

Result<std::unique_ptr<PreparedExecutable>> CoralChip::Prepare(
    std::shared_ptr<const AnyExecutable> executable) const {
  ATOLL_RETURN_IF_ERROR(CheckFamily(*executable, info_));
  auto prepared = std::make_unique<Prepared>();
  prepared->executable = std::move(executable);
  const CoralExecutable& coral = prepared->coral();
  prepared->inputs.resize(coral.inputs.size());
  for (size_t i = 0; i < coral.inputs.size(); ++i) {
    if (IsPlainCoralInput(coral.input_wires[i], coral.inputs[i])) continue;
    ATOLL_ASSIGN_OR_RETURN(prepared->inputs[i], Buffer::Allocate(coral.input_wires[i].wire_bytes));
  }
  prepared->outputs.resize(coral.outputs.size());
  for (size_t i = 0; i < coral.outputs.size(); ++i) {
    if (IsPlainCoralOutput(coral.output_wires[i], coral.outputs[i])) continue;
    ATOLL_ASSIGN_OR_RETURN(prepared->outputs[i],
                           Buffer::Allocate(coral.output_wires[i].wire_bytes));
  }
  ATOLL_ASSIGN_OR_RETURN(prepared->scratch, Buffer::Allocate(coral.scratch_bytes));
  return std::unique_ptr<PreparedExecutable>(std::move(prepared));
}

// Runs.

Status CoralChip::Transfer(const CoralTransfer& transfer, const CoralProgram& program,
                           const Prepared& prepared, const Job& job) {
  const auto window = [&transfer](auto bytes) {
    return bytes.subspan(transfer.offset, transfer.bytes);
  };
  const size_t index = transfer.index;
  switch (transfer.kind) {
    case CoralTransfer::Kind::kInstructions:
      return link_.Send(coral::Tag::kInstructions, program.chunks[index], job.deadline);
    case CoralTransfer::Kind::kInput: {
      const Buffer& packed = prepared.inputs[index];
      const std::span<const uint8_t> input =
          packed.size() != 0 ? packed.bytes() : job.inputs[index];
      return link_.Send(coral::Tag::kInput, window(input), job.deadline);
    }
    case CoralTransfer::Kind::kParameters:
      return link_.Send(coral::Tag::kParameters,
                        window(std::span<const uint8_t>(program.parameters)), job.deadline);
    case CoralTransfer::Kind::kScratchIn:
      return link_.Send(coral::Tag::kInput, window(prepared.scratch.bytes()), job.deadline);
    case CoralTransfer::Kind::kOutput: {
      Buffer& packed = prepared.outputs[index];
      const std::span<uint8_t> output = packed.size() != 0 ? packed.bytes() : job.outputs[index];
      return link_.Receive(window(output), job.deadline);
    }
    case CoralTransfer::Kind::kScratchOut:
      return link_.Receive(window(prepared.scratch.bytes()), job.deadline);
    case CoralTransfer::Kind::kInterrupt:
      return link_.AwaitInterrupt(transfer.index, job.deadline);
  }
  return {};
}

Status CoralChip::RunProgram(const CoralProgram& program, const Prepared& prepared,
                             const Job& job) {
  for (size_t i = 0; i < program.transfers.size(); ++i) {
    Status status = Transfer(program.transfers[i], program, prepared, job);
    if (!status.ok()) {
      return std::move(status).WithContext(
          Format("transfer %zu of %zu", i + 1, program.transfers.size()));
    }
  }
  return {};
}

Status CoralChip::RunBoth(const Prepared& prepared, const Job& job, RequestReport* report) {
  const CoralExecutable& executable = prepared.coral();
  const bool is_cached = cache_.Use(prepared);
  if (!executable.caching.transfers.empty() && !is_cached) {
    Log(LogSeverity::kInfo, "device %s: uploading '%s', parameters %zu bytes", info_.name.c_str(),
        executable.name.c_str(), executable.caching.parameters.size());
    ATOLL_RETURN_IF_ERROR(
        RunProgram(executable.caching, prepared, job).WithContext("upload of the parameters"));
    cache_.Add(prepared);
    report->parameter_bytes += executable.caching.parameters.size();
  }
  report->parameter_bytes += executable.inference.parameters.size();
  for (size_t i = 0; i < executable.inputs.size(); ++i) {
    Buffer& packed = prepared.inputs[i];
    if (packed.size() != 0) {
      PackCoralInput(executable.input_wires[i], job.inputs[i], packed.bytes());
    }
  }
  ATOLL_RETURN_IF_ERROR(RunProgram(executable.inference, prepared, job));
  for (size_t i = 0; i < executable.outputs.size(); ++i) {
    const Buffer& packed = prepared.outputs[i];
    if (packed.size() != 0) {
      UnpackCoralOutput(executable.output_wires[i], packed.bytes(), job.outputs[i]);
    }
  }
  return {};
}

Status CoralChip::Run(const Job& job, std::span<const Job>, RequestReport* report) {
  const auto& prepared = static_cast<const Prepared&>(*job.prepared);
  link_.meter().Start();
  Status status = RunBoth(prepared, job, report);
  if (!status.ok()) {
    cache_.Clear();
    status = Explain(std::move(status));
  }
  link_.meter().Stop(report);
  return status;
}

// Asks the chip what may have been the reason of a failure.
Status CoralChip::Explain(Status status) {
  if (status.code() == StatusCode::kDeviceLost || status.code() == StatusCode::kCancelled) {
    return status;
  }
  const Deadline deadline = now_() + kFaultTimeout;
  const Status fault = session_.CheckFaults(deadline);
  const std::string error = fault.ok() ? session_.DescribeError(deadline) : fault.message();
  if (error.empty()) return status;
  return Status(status.code(), status.message() + "; " + error);
}

Status CoralChip::Reopen() {
  cache_.Clear();
  is_up_ = false;
  ATOLL_RETURN_IF_ERROR(transport_->Reset(now_() + kPortResetTimeout));
  ATOLL_RETURN_IF_ERROR(session_.BringUp(settings_, now_() + kBringUpTimeout));
  is_up_ = true;
  return {};
}

}  // namespace atollrt
