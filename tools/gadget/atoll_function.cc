// SPDX-License-Identifier: Apache-2.0
#include "tools/gadget/atoll_function.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "runtime/base/log.h"

namespace atollrt {
namespace {

constexpr EndpointDescription kEndpoints[] = {
    {kRecordEndpoint, EndpointDescription::Type::kBulk},
    {kOutputEndpoint, EndpointDescription::Type::kBulk},
    {kEventEndpoint, EndpointDescription::Type::kBulk},
    {kFaultEndpoint, EndpointDescription::Type::kInterrupt},
};
constexpr size_t kRecordIndex = 0;

// The kernel copies each transfer through memory that it wants in one piece.
constexpr size_t kTransferBytes = 16 * 1024;
// The longest that the device computes before it looks whether the host wants something else.
constexpr std::chrono::milliseconds kSlice{50};
// Of a register request, in which a running program makes progress, too.
constexpr std::chrono::milliseconds kRegisterSlice{5};
constexpr std::chrono::seconds kResetTimeout{5};
// For records that wait until the device has room: flow control is the host's matter.
constexpr std::chrono::hours kForever{24 * 365};
// After an error of the kernel that may come again at once.
constexpr std::chrono::milliseconds kErrorPause{10};

// Ends a blocking call of the thread that gets it.
constexpr int kInterruptSignal = SIGUSR2;

}  // namespace

size_t RecordReads::Next(size_t packet_bytes, size_t limit) const {
  const uint64_t owed = lost_ ? 0 : parser_.owed();
  return std::clamp<uint64_t>(owed / packet_bytes * packet_bytes, packet_bytes, limit);
}

void RecordReads::Took(std::span<const uint8_t> bytes) {
  while (!lost_) {
    const RecordParser::Event event = parser_.Next(bytes).event;
    if (event == RecordParser::Event::kNeedBytes) return;
    lost_ = event == RecordParser::Event::kBadRecord;
  }
}

Result<std::unique_ptr<AtollFunction>> AtollFunction::Create(std::shared_ptr<UsbBus> bus) {
  FileDescriptor attention(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (attention.get() < 0) return InternalError("eventfd: %s", std::strerror(errno));
  struct sigaction action = {};
  action.sa_handler = [](int) {};  // without SA_RESTART: it only interrupts
  sigaction(kInterruptSignal, &action, nullptr);
  std::unique_ptr<AtollFunction> function(new AtollFunction(std::move(bus), std::move(attention)));
  ATOLL_RETURN_IF_ERROR(function->Open());
  return function;
}

AtollFunction::AtollFunction(std::shared_ptr<UsbBus> bus, FileDescriptor attention)
    : bus_(std::move(bus)),
      attention_(std::move(attention)),
      gate_(static_cast<int>(std::size(kEndpoints))) {
  static_assert(std::size(kEndpoints) == std::tuple_size_v<decltype(threads_)>);
  threads_[kRecordIndex] = std::thread([this] { ServeRecords(); });
  for (size_t i = 1; i < threads_.size(); ++i) {
    threads_[i] = std::thread([this, i] { ServeInput(i); });
  }
}

Status AtollFunction::Open() {
  ATOLL_ASSIGN_OR_RETURN(const std::vector<UsbDeviceInfo> devices, bus_->List());
  if (devices.empty()) return NotFound("there is no device to serve");
  transport_ = nullptr;  // only one can have it
  ATOLL_ASSIGN_OR_RETURN(transport_, bus_->Open(devices.front(), 0));
  return {};
}

AtollFunction::~AtollFunction() {
  Quiesce();
  gate_.End();
  for (std::thread& thread : threads_) thread.join();
}

InterfaceDescription AtollFunction::Describe() const {
  return {.name = "Atoll-1", .endpoints = {std::begin(kEndpoints), std::end(kEndpoints)}};
}

void AtollFunction::Enable(std::span<EndpointFile> endpoints) {
  Quiesce();
  endpoints_ = endpoints;
  Begin();
}

void AtollFunction::Disable() {
  Quiesce();
  endpoints_ = {};
}

void AtollFunction::Begin() {
  used_ = true;
  gate_.Open();
}

void AtollFunction::Quiesce() {
  if (!std::exchange(used_, false)) return;
  // Cancel ends what waits in the transport, the signal what waits for the host.
  gate_.BeginToShut();
  transport_->Cancel();
  gate_.Shut([this] {
    for (std::thread& thread : threads_) pthread_kill(thread.native_handle(), kInterruptSignal);
  });
  record_reads_ = {};
  const Status status = transport_->Reset(Clock::now() + kResetTimeout);
  if (!status.ok()) Lose(status);
}

void AtollFunction::Lose(const Status& reason) {
  if (lost_.exchange(true)) return;
  Log(LogSeverity::kInfo, "unplugged: %s", reason.message().c_str());
  gate_.BeginToShut();
  const uint64_t one = 1;
  (void)!write(attention_.get(), &one, sizeof(one));
}

Function::Wish AtollFunction::wish() {
  uint64_t count = 0;
  (void)!read(attention_.get(), &count, sizeof(count));
  return lost_.load() ? Wish::kReplug : Wish::kServe;
}

Status AtollFunction::Replug() {
  Disable();
  ATOLL_RETURN_IF_ERROR(Open());
  lost_.store(false);
  return {};
}

// Registers.

Result<size_t> AtollFunction::ControlIn(const ControlSetup& setup, std::span<uint8_t> data) {
  gate_.Hold(true);  // otherwise those who read could go on and on before it is our turn
  Status status = transport_->Control(setup, data, Clock::now() + kRegisterSlice);
  gate_.Hold(false);
  if (status.ok()) return data.size();
  if (status.code() == StatusCode::kDeviceLost) Lose(status);
  return status;
}

Status AtollFunction::ControlOut(const ControlSetup& setup, size_t length,
                                 const ReceiveData& receive) {
  ATOLL_ASSIGN_OR_RETURN(const DecodedRegisterRequest request, DecodeRegisterRequest(setup));
  uint8_t data[4];
  if (request.access != RegisterAccess::kWrite || request.width != RegisterWidth::k32 ||
      request.address != static_cast<uint32_t>(Register::kControl) || length != sizeof(data)) {
    return InvalidArgument("register %04X cannot be written with %zu bytes", request.address,
                           length);
  }
  // The host takes the request for done once its data are taken, so the endpoints stop before and
  // begin again afterwards. (For the same reason a value that CONTROL does not have comes too late
  // to be refused. It resets, too.)
  Quiesce();
  Status status = receive(data);
  if (status.ok()) {
    status = transport_->Control(setup, data, Clock::now() + kResetTimeout);
    if (status.code() == StatusCode::kDeviceLost) Lose(status);
  }
  if (!endpoints_.empty() && !lost_.load()) Begin();
  return status;
}

// Endpoints.

void AtollFunction::ServeRecords() {
  std::vector<uint8_t> buffer(kTransferBytes);
  while (gate_.Pass()) {
    EndpointFile& file = endpoints_[kRecordIndex];
    const size_t wanted = record_reads_.Next(file.packet_bytes(), buffer.size());
    const Result<size_t> count = file.Read(std::span(buffer).first(wanted));
    if (!count.ok()) {
      HostFailed(kRecordIndex, count.status());
      continue;
    }
    const std::span<const uint8_t> data = std::span(buffer).first(*count);
    record_reads_.Took(data);
    const Status status = transport_->BulkOut(kRecordEndpoint, data, Clock::now() + kForever);
    if (!status.ok()) DeviceFailed(kRecordIndex, &file, status);
  }
}

void AtollFunction::ServeInput(size_t index) {
  std::vector<uint8_t> buffer(kTransferBytes);
  while (gate_.Pass()) SendTransfer(index, &endpoints_[index], buffer);
}

Result<size_t> AtollFunction::Take(uint8_t endpoint, std::span<uint8_t> buffer, Deadline deadline) {
  if (endpoint == kFaultEndpoint) return transport_->InterruptIn(endpoint, buffer, deadline);
  return transport_->BulkIn(endpoint, buffer, deadline);
}

void AtollFunction::SendTransfer(size_t index, EndpointFile* file, std::span<uint8_t> buffer) {
  Deadline deadline = Clock::now() + kSlice;
  bool unfinished = false;  // whole packets went out, and nothing that ends the transfer
  while (gate_.open()) {
    const Result<size_t> count = Take(kEndpoints[index].address, buffer, deadline);
    if (!count.ok() && count.code() != StatusCode::kTimeout) {
      return DeviceFailed(index, file, count.status());
    }
    if (!count.ok() && !unfinished) return;
    const std::span<const uint8_t> data = buffer.first(count.ok() ? *count : 0);
    if (const Status status = file->Write(data); !status.ok()) return HostFailed(index, status);
    if (data.size() % file->packet_bytes() != 0 || data.empty()) return;
    unfinished = true;
    deadline = Clock::now();  // only what is there already
  }
}

void AtollFunction::HostFailed(size_t index, const Status& status) {
  // Interrupted, or disabled: ep0's thread knows why, and shuts the gate.
  if (status.code() == StatusCode::kCancelled || status.code() == StatusCode::kDeviceLost) return;
  Log(LogSeverity::kWarning, "endpoint %02X: %s", kEndpoints[index].address,
      status.message().c_str());
  std::this_thread::sleep_for(kErrorPause);
}

void AtollFunction::DeviceFailed(size_t index, EndpointFile* file, const Status& status) {
  if (status.code() == StatusCode::kDeviceLost) return Lose(status);
  if (status.code() == StatusCode::kInvalidArgument) return file->Halt(kEndpoints[index].address);
  // Cancelled: the gate is being shut. Late: the bytes are lost on the way, as bytes can be.
  if (status.code() != StatusCode::kTimeout) HostFailed(index, status);
}

}  // namespace atollrt
