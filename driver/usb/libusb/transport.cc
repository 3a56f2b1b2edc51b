// SPDX-License-Identifier: Apache-2.0
#include "driver/usb/libusb/transport.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "runtime/base/log.h"

namespace atollrt {
namespace {

constexpr size_t kOutTransferBytes = 1024 * 1024;
constexpr size_t kInTransferBytes = 256 * 1024;
constexpr size_t kSmallestBuffer = 4096;
constexpr size_t kMostControlBytes = 4096;  // of Linux
constexpr int kMostInFlight = 4;            // per endpoint

// A read whose deadline has passed takes what is there. The host controller needs a moment to ask.
constexpr std::chrono::milliseconds kGlance{20};
// For the system to give back a cancelled transfer. It should take milliseconds.
constexpr std::chrono::seconds kDrainTimeout{2};

Status Cancelled() { return Status(StatusCode::kCancelled, "the transfer was cancelled"); }

}  // namespace

std::string LibusbErrorText(int code) {
  return Format("%s, %s", libusb_error_name(code), libusb_strerror(code));
}

struct LibusbTransport::Transfer {
  libusb_transfer* usb = nullptr;
  uint8_t* buffer = nullptr;
  size_t capacity = 0;
  bool device_memory = false;
  bool in_flight = false;
  size_t taken = 0;  // IN: bytes of it that a read has had
};

// An endpoint. The transfers in use are those from `first` on, `count` of them, in the order of
// submission: in flight, or over but not taken yet.
struct LibusbTransport::Pipe {
  LibusbTransport* transport = nullptr;
  uint8_t endpoint = 0;
  uint8_t type = LIBUSB_TRANSFER_TYPE_CONTROL;
  size_t packet_bytes = 0;
  std::array<Transfer, kMostInFlight> ring;
  int first = 0;
  int count = 0;
  // IN: how many to have in flight. A device that ends transfers with short packets gets one at a
  // time, since those behind it would have to be cancelled.
  int window = 1;

  Transfer& at(int i) { return ring[static_cast<size_t>((first + i) % kMostInFlight)]; }
  const Transfer& front() const { return ring[static_cast<size_t>(first)]; }
  void Pop() {
    first = (first + 1) % kMostInFlight;
    --count;
  }
  void PopAll() {
    while (count > 0) Pop();
  }
  // The last first, so that a later transfer does not get what an earlier one no longer takes.
  void Cancel() {
    for (int i = count - 1; i >= 0; --i) {
      if (at(i).in_flight) libusb_cancel_transfer(at(i).usb);
    }
  }
  int in_flight() const {
    return static_cast<int>(
        std::count_if(ring.begin(), ring.end(), [](const Transfer& t) { return t.in_flight; }));
  }
};

// Counts calls in progress, and refuses those that cannot succeed.
class LibusbTransport::Call {
 public:
  explicit Call(LibusbTransport* transport) : transport_(transport), lock_(transport->mutex_) {
    ++transport_->calls_;
  }
  ~Call() {
    --transport_->calls_;
    transport_->changed_.notify_all();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Status Begin() const {
    if (!transport_->broken_.ok()) return transport_->broken_;
    return transport_->cancelled_ ? Cancelled() : Status();
  }
  Lock& lock() { return lock_; }

 private:
  LibusbTransport* transport_;
  Lock lock_;
};

LibusbTransport::LibusbTransport(std::shared_ptr<void> context, libusb_device_handle* handle,
                                 uint8_t interface_number, std::string path)
    : context_(std::move(context)),
      handle_(handle),
      interface_number_(interface_number),
      path_(std::move(path)) {}

LibusbTransport::~LibusbTransport() {
  {
    Lock lock(mutex_);
    CancelTransfers();
    const auto idle = [this] {
      return std::all_of(pipes_.begin(), pipes_.end(),
                         [](const auto& pipe) { return !pipe || pipe->in_flight() == 0; });
    };
    if (!changed_.wait_for(lock, kDrainTimeout, idle)) {
      Log(LogSeverity::kError, "USB device at %s is closed with transfers in flight",
          path_.c_str());
    }
    for (const auto& pipe : pipes_) {
      if (pipe == nullptr) continue;
      for (Transfer& transfer : pipe->ring) {
        if (!transfer.in_flight) FreeBuffer(&transfer);
      }
    }
  }
  libusb_release_interface(handle_, interface_number_);  // fails if it is gone, with no harm
  // Forgets what may be in flight, after which no callback comes.
  libusb_close(handle_);
  for (const auto& pipe : pipes_) {
    if (pipe == nullptr) continue;
    for (Transfer& transfer : pipe->ring) {
      // Memory of the device that never came back stays with the system.
      if (transfer.in_flight && !transfer.device_memory) delete[] transfer.buffer;
      libusb_free_transfer(transfer.usb);
    }
  }
}

// Buffers.

void LibusbTransport::FreeBuffer(Transfer* transfer) {
  if (transfer->buffer == nullptr) return;
  if (transfer->device_memory) {
    libusb_dev_mem_free(handle_, transfer->buffer, transfer->capacity);
  } else {
    delete[] transfer->buffer;
  }
  transfer->buffer = nullptr;
  transfer->capacity = 0;
}

// Makes room for `bytes`; false if there is no memory.
bool LibusbTransport::Grow(Transfer* transfer, size_t bytes) {
  if (transfer->usb == nullptr) transfer->usb = libusb_alloc_transfer(0);
  if (transfer->usb == nullptr) return false;
  if (transfer->capacity >= bytes) return true;
  FreeBuffer(transfer);
  size_t capacity = kSmallestBuffer;
  while (capacity < bytes) capacity *= 2;
  transfer->buffer = libusb_dev_mem_alloc(handle_, capacity);
  transfer->device_memory = transfer->buffer != nullptr;
  if (transfer->buffer == nullptr) transfer->buffer = new (std::nothrow) uint8_t[capacity];
  if (transfer->buffer == nullptr) return false;
  transfer->capacity = capacity;
  return true;
}

// Transfers.

// The address of an endpoint, whose number is its place among those of its direction in the
// interface's descriptors. They are the same, but for gadgets on controllers whose endpoints have
// fixed purposes.
uint8_t LibusbTransport::AddressOf(uint8_t endpoint) const {
  libusb_config_descriptor* config = nullptr;
  if (libusb_get_active_config_descriptor(libusb_get_device(handle_), &config) != 0) {
    return endpoint;
  }
  uint8_t address = endpoint;
  int place = endpoint & LIBUSB_ENDPOINT_ADDRESS_MASK;
  for (const libusb_interface& interface : std::span(config->interface, config->bNumInterfaces)) {
    if (interface.num_altsetting < 1) continue;
    const libusb_interface_descriptor& first = interface.altsetting[0];
    if (first.bInterfaceNumber != interface_number_) continue;
    for (const libusb_endpoint_descriptor& other : std::span(first.endpoint, first.bNumEndpoints)) {
      const bool same_direction = ((other.bEndpointAddress ^ endpoint) & LIBUSB_ENDPOINT_IN) == 0;
      if (same_direction && --place == 0) address = other.bEndpointAddress;
    }
  }
  libusb_free_config_descriptor(config);
  return address;
}

Result<LibusbTransport::Pipe*> LibusbTransport::FindPipe(uint8_t endpoint, uint8_t type) {
  const bool in = (endpoint & LIBUSB_ENDPOINT_IN) != 0;
  if ((endpoint & 0x70) != 0) return InvalidArgument("%02X is no endpoint", endpoint);
  std::unique_ptr<Pipe>& pipe = pipes_[(endpoint & 0x0Fu) + (in ? 16u : 0u)];
  if (pipe != nullptr && pipe->type == type) return pipe.get();
  int packet_bytes = 0;
  uint8_t address = endpoint;
  if (type != LIBUSB_TRANSFER_TYPE_CONTROL) {
    address = AddressOf(endpoint);
    packet_bytes = libusb_get_max_packet_size(libusb_get_device(handle_), address);
    if (packet_bytes > 0) packet_bytes &= 0x7FF;  // the rest is packets per microframe
    if (pipe != nullptr || packet_bytes <= 0) {
      return InvalidArgument("the USB device at %s has no endpoint %02X of this kind",
                             path_.c_str(), endpoint);
    }
  }
  pipe = std::make_unique<Pipe>();
  pipe->transport = this;
  pipe->endpoint = address;
  pipe->type = type;
  pipe->packet_bytes = static_cast<size_t>(packet_bytes);
  return pipe.get();
}

// Puts a transfer of `bytes` behind those of the ring, which must not be full. Its buffer is filled
// with `out`, if that is not empty.
Status LibusbTransport::Submit(Pipe* pipe, size_t bytes, std::span<const uint8_t> out, Lock& lock) {
  Transfer& transfer = pipe->at(pipe->count);
  // It is not in flight, so it belongs to this call.
  lock.unlock();
  const bool has_room = Grow(&transfer, bytes);
  if (has_room && !out.empty()) std::memcpy(transfer.buffer, out.data(), out.size());
  lock.lock();
  if (!has_room) {
    return ResourceExhausted("no memory for a USB transfer of %zu bytes", bytes);
  }
  // Without a timeout: the caller's deadline is kept by the caller.
  libusb_fill_bulk_transfer(transfer.usb, handle_, pipe->endpoint, transfer.buffer,
                            static_cast<int>(bytes), OnEnd, pipe, 0);
  transfer.usb->type = pipe->type;
  transfer.taken = 0;
  transfer.in_flight = true;
  const int error = libusb_submit_transfer(transfer.usb);
  if (error == 0) {
    ++pipe->count;
    return Status();
  }
  transfer.in_flight = false;
  switch (error) {
    case LIBUSB_ERROR_NO_DEVICE:
      broken_ = DeviceLost("the USB device at %s is gone; plug it in again", path_.c_str());
      return broken_;
    case LIBUSB_ERROR_NO_MEM:
      return ResourceExhausted(
          "the system has no memory for a USB transfer of %zu bytes; raise "
          "/sys/module/usbcore/parameters/usbfs_memory_mb",
          bytes);
    default:
      return DeviceLost("a transfer to endpoint %02X of the USB device at %s was refused: %s",
                        pipe->endpoint, path_.c_str(), LibusbErrorText(error).c_str());
  }
}

// On the context's thread, once for each Submit that succeeded.
void LibusbTransport::OnEnd(libusb_transfer* usb) {
  auto* pipe = static_cast<Pipe*>(usb->user_data);
  LibusbTransport* self = pipe->transport;
  const std::lock_guard lock(self->mutex_);
  for (Transfer& transfer : pipe->ring) {
    if (transfer.usb == usb) transfer.in_flight = false;
  }
  self->changed_.notify_all();
}

// Until the first transfer is over; kTimeout or kCancelled if something else is first.
Status LibusbTransport::WaitForFront(const Pipe& pipe, Deadline deadline, Lock& lock) {
  changed_.wait_until(lock, deadline, [&] { return cancelled_ || !pipe.front().in_flight; });
  if (cancelled_) return Cancelled();
  return pipe.front().in_flight ? Timeout("the deadline passed") : Status();
}

// Cancels what is in flight and waits until it is over.
Status LibusbTransport::Drain(Pipe* pipe, Lock& lock) {
  pipe->Cancel();
  if (changed_.wait_for(lock, kDrainTimeout, [&] { return pipe->in_flight() == 0; })) return {};
  broken_ =
      DeviceLost("the system does not give back a transfer to the USB device at %s", path_.c_str());
  return broken_;
}

void LibusbTransport::CancelTransfers() {
  for (const auto& pipe : pipes_) {
    if (pipe != nullptr) pipe->Cancel();
  }
}

// What went wrong with a transfer that is over; success if nothing did.
Status LibusbTransport::Explain(const Pipe& pipe, const Transfer& transfer) const {
  switch (transfer.usb->status) {
    case LIBUSB_TRANSFER_COMPLETED:
      return {};
    case LIBUSB_TRANSFER_STALL:
      return InvalidArgument(
          "the USB device at %s refuses %s (endpoint %02X stalled)", path_.c_str(),
          pipe.type == LIBUSB_TRANSFER_TYPE_CONTROL ? "the request" : "data", pipe.endpoint);
    case LIBUSB_TRANSFER_TIMED_OUT:
      return Timeout("endpoint %02X of the USB device at %s does not answer", pipe.endpoint,
                     path_.c_str());
    case LIBUSB_TRANSFER_CANCELLED:
      return Cancelled();
    case LIBUSB_TRANSFER_NO_DEVICE:
      return DeviceLost("the USB device at %s is gone; plug it in again", path_.c_str());
    default:
      return DeviceLost("endpoint %02X of the USB device at %s failed: %s; try another cable",
                        pipe.endpoint, path_.c_str(),
                        transfer.usb->status == LIBUSB_TRANSFER_ERROR ? "an error on the bus"
                        : transfer.usb->status == LIBUSB_TRANSFER_OVERFLOW
                            ? "the device sent more than a packet"
                            : "an unknown error");
  }
}

// Removes the first transfer, which is over, and everything behind it, and says what went wrong
// with it. Afterwards the endpoint can be used again, if the device is there at all.
Status LibusbTransport::TakeError(Pipe* pipe, Lock& lock) {
  const Transfer& transfer = pipe->front();
  Status status = Explain(*pipe, transfer);
  const bool stalled = transfer.usb->status == LIBUSB_TRANSFER_STALL;
  if (transfer.usb->status == LIBUSB_TRANSFER_NO_DEVICE) broken_ = status;
  ATOLL_RETURN_IF_ERROR(Drain(pipe, lock));
  pipe->PopAll();
  if (stalled && pipe->type != LIBUSB_TRANSFER_TYPE_CONTROL) {
    lock.unlock();
    libusb_clear_halt(handle_, pipe->endpoint);  // one that fails shows in the next transfer
    lock.lock();
  }
  return status;
}

// The calls.

Status LibusbTransport::Control(const ControlSetup& setup, std::span<uint8_t> data,
                                Deadline deadline) {
  if (data.size() > kMostControlBytes) {
    return InvalidArgument("a control request of %zu bytes, at most %zu are possible", data.size(),
                           kMostControlBytes);
  }
  Call call(this);
  ATOLL_RETURN_IF_ERROR(call.Begin());
  ATOLL_ASSIGN_OR_RETURN(Pipe* const pipe, FindPipe(0, LIBUSB_TRANSFER_TYPE_CONTROL));
  const bool in = (setup.request_type & LIBUSB_ENDPOINT_IN) != 0;
  std::array<uint8_t, LIBUSB_CONTROL_SETUP_SIZE + kMostControlBytes> message;
  libusb_fill_control_setup(message.data(), setup.request_type, setup.request, setup.value,
                            setup.index, static_cast<uint16_t>(data.size()));
  if (!in && !data.empty()) {
    std::memcpy(message.data() + LIBUSB_CONTROL_SETUP_SIZE, data.data(), data.size());
  }
  const size_t bytes = LIBUSB_CONTROL_SETUP_SIZE + data.size();
  ATOLL_RETURN_IF_ERROR(Submit(pipe, bytes, std::span(message).first(bytes), call.lock()));
  const Status waited = WaitForFront(*pipe, deadline, call.lock());
  if (!waited.ok()) ATOLL_RETURN_IF_ERROR(Drain(pipe, call.lock()));
  const Transfer& transfer = pipe->front();
  if (transfer.usb->status == LIBUSB_TRANSFER_CANCELLED && waited.code() == StatusCode::kTimeout) {
    pipe->Pop();
    return Timeout("control request %02X of the USB device at %s is not answered", setup.request,
                   path_.c_str());
  }
  if (transfer.usb->status != LIBUSB_TRANSFER_COMPLETED) return TakeError(pipe, call.lock());
  const auto actual = static_cast<size_t>(transfer.usb->actual_length);
  pipe->Pop();
  if (actual != data.size()) {
    return DeviceLost("the USB device at %s took or gave %zu of %zu bytes of control request %02X",
                      path_.c_str(), actual, data.size(), setup.request);
  }
  if (in && !data.empty()) {
    std::memcpy(data.data(), transfer.buffer + LIBUSB_CONTROL_SETUP_SIZE, data.size());
  }
  return {};
}

Status LibusbTransport::BulkOut(uint8_t endpoint, std::span<const uint8_t> data,
                                Deadline deadline) {
  Call call(this);
  ATOLL_RETURN_IF_ERROR(call.Begin());
  if ((endpoint & LIBUSB_ENDPOINT_IN) != 0 || endpoint == 0) {
    return InvalidArgument("endpoint %02X is not for bulk OUT", endpoint);
  }
  ATOLL_ASSIGN_OR_RETURN(Pipe* const pipe, FindPipe(endpoint, LIBUSB_TRANSFER_TYPE_BULK));
  size_t submitted = 0;
  size_t sent = 0;
  while (sent < data.size()) {
    Status status;
    while (submitted < data.size() && pipe->count < kMostInFlight && !cancelled_) {
      const auto chunk =
          data.subspan(submitted, std::min(kOutTransferBytes, data.size() - submitted));
      status = Submit(pipe, chunk.size(), chunk, call.lock());
      if (!status.ok()) break;
      submitted += chunk.size();
    }
    // With one in flight, memory comes back.
    if (status.code() == StatusCode::kResourceExhausted && pipe->count > 0) status = Status();
    if (status.ok()) status = WaitForFront(*pipe, deadline, call.lock());
    if (!status.ok()) {
      ATOLL_RETURN_IF_ERROR(Drain(pipe, call.lock()));
      while (pipe->count > 0) {
        sent += static_cast<size_t>(pipe->front().usb->actual_length);
        pipe->Pop();
      }
      if (status.code() != StatusCode::kTimeout) return status;
      if (sent == data.size()) return {};
      return Timeout("endpoint %02X of the USB device at %s took %zu of %zu bytes in time",
                     endpoint, path_.c_str(), sent, data.size());
    }
    const libusb_transfer& usb = *pipe->front().usb;
    if (usb.status != LIBUSB_TRANSFER_COMPLETED) return TakeError(pipe, call.lock());
    sent += static_cast<size_t>(usb.actual_length);
    if (usb.actual_length != usb.length) {
      ATOLL_RETURN_IF_ERROR(Drain(pipe, call.lock()));
      pipe->PopAll();
      return DeviceLost("endpoint %02X of the USB device at %s took %d of %d bytes", endpoint,
                        path_.c_str(), usb.actual_length, usb.length);
    }
    pipe->Pop();
  }
  return {};
}

// Gives `data`, from *filled on, what the transfers that are over have brought. True if a short
// packet was among it: the device has said all that it wants to.
bool LibusbTransport::TakeBytes(Pipe* pipe, std::span<uint8_t> data, size_t* filled) {
  while (pipe->count > 0 && !pipe->front().in_flight) {
    Transfer& transfer = pipe->at(0);
    const auto received = static_cast<size_t>(transfer.usb->actual_length);
    const size_t count = std::min(received - transfer.taken, data.size() - *filled);
    if (count > 0) std::memcpy(data.data() + *filled, transfer.buffer + transfer.taken, count);
    transfer.taken += count;
    *filled += count;
    if (transfer.taken < received) return false;
    const bool completed = transfer.usb->status == LIBUSB_TRANSFER_COMPLETED;
    if (!completed && transfer.usb->status != LIBUSB_TRANSFER_CANCELLED) return false;  // an error
    const bool is_short = received % pipe->packet_bytes != 0 ||
                          (completed && transfer.usb->actual_length < transfer.usb->length);
    pipe->Pop();
    if (completed && !is_short) pipe->window = kMostInFlight;
    if (is_short && *filled < data.size()) pipe->window = 1;
    if (is_short) return true;
    if (*filled == data.size()) return false;
  }
  return false;
}

Result<size_t> LibusbTransport::Read(uint8_t endpoint, uint8_t type, std::span<uint8_t> data,
                                     Deadline deadline) {
  Call call(this);
  ATOLL_RETURN_IF_ERROR(call.Begin());
  if ((endpoint & LIBUSB_ENDPOINT_IN) == 0) {
    return InvalidArgument("endpoint %02X is not for IN transfers", endpoint);
  }
  ATOLL_ASSIGN_OR_RETURN(Pipe* const pipe, FindPipe(endpoint, type));
  if (data.empty()) return size_t{0};

  size_t filled = 0;
  bool ended = TakeBytes(pipe, data, &filled);
  if (filled > 0 && Clock::now() >= deadline) return filled;
  deadline = std::max(deadline, Clock::now() + kGlance);
  const size_t transfer_bytes = kInTransferBytes / pipe->packet_bytes * pipe->packet_bytes;
  Status status;
  size_t posted = 0;  // bytes that the transfers in flight can take
  while (!ended && filled < data.size()) {
    if (pipe->count > 0 && !pipe->front().in_flight) {  // TakeBytes stopped at an error
      if (filled > 0) break;                            // for the next call
      return TakeError(pipe, call.lock());
    }
    // Whole packets, and no more than are wanted: a longer transfer would wait for what may never
    // come.
    while (filled + posted < data.size() && pipe->count < pipe->window && status.ok() &&
           !cancelled_) {
      const size_t wanted = data.size() - filled - posted;
      const size_t packets = (wanted + pipe->packet_bytes - 1) / pipe->packet_bytes;
      const size_t bytes = std::min(packets * pipe->packet_bytes, transfer_bytes);
      status = Submit(pipe, bytes, {}, call.lock());
      if (status.ok()) posted += bytes;
    }
    if (status.code() == StatusCode::kResourceExhausted && pipe->count > 0) status = Status();
    if (status.ok()) status = WaitForFront(*pipe, deadline, call.lock());
    if (!status.ok()) break;
    posted -= static_cast<size_t>(pipe->front().usb->length);
    ended = TakeBytes(pipe, data, &filled);
  }
  // What comes while they are cancelled is kept for the next call, but for what still fits here.
  ATOLL_RETURN_IF_ERROR(Drain(pipe, call.lock()));
  if (!ended && filled < data.size()) ended = TakeBytes(pipe, data, &filled);
  if (status.code() == StatusCode::kCancelled) return status;
  if (filled > 0 || ended) return filled;
  if (status.code() != StatusCode::kTimeout) return status;
  if (pipe->count > 0) return TakeError(pipe, call.lock());  // that is where TakeBytes stopped
  return Timeout("endpoint %02X of the USB device at %s has sent nothing", endpoint, path_.c_str());
}

Result<size_t> LibusbTransport::BulkIn(uint8_t endpoint, std::span<uint8_t> data,
                                       Deadline deadline) {
  return Read(endpoint, LIBUSB_TRANSFER_TYPE_BULK, data, deadline);
}

Result<size_t> LibusbTransport::InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                                            Deadline deadline) {
  return Read(endpoint, LIBUSB_TRANSFER_TYPE_INTERRUPT, data, deadline);
}

void LibusbTransport::Cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  CancelTransfers();
  changed_.notify_all();
}

Status LibusbTransport::Reset(Deadline deadline) {
  const std::lock_guard one_at_a_time(reset_mutex_);
  Lock lock(mutex_);
  if (!broken_.ok()) return broken_;
  cancelled_ = true;
  CancelTransfers();
  changed_.notify_all();
  // Calls that end because of this have a bounded time for it.
  if (!changed_.wait_until(lock, deadline, [this] { return calls_ == 0; })) {
    return Timeout("calls in progress kept the USB device at %s from its reset", path_.c_str());
  }
  if (!broken_.ok()) return broken_;
  for (const auto& pipe : pipes_) {
    if (pipe == nullptr) continue;
    pipe->PopAll();
    pipe->window = 1;
  }
  lock.unlock();
  const int error = libusb_reset_device(handle_);
  lock.lock();
  if (error == LIBUSB_ERROR_NOT_FOUND || error == LIBUSB_ERROR_NO_DEVICE) {
    broken_ = DeviceLost("the USB device at %s left the bus when it was reset; open it again",
                         path_.c_str());
    return broken_;
  }
  if (error != 0) {
    return DeviceLost("the USB device at %s cannot be reset: %s; plug it in again", path_.c_str(),
                      LibusbErrorText(error).c_str());
  }
  cancelled_ = false;
  return {};
}

}  // namespace atollrt
