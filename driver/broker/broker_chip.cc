// SPDX-License-Identifier: Apache-2.0
#include "driver/broker/broker_chip.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "driver/coral/executable.h"
#include "driver/device/activity.h"
#include "driver/isa/executable.h"
#include "driver/isa/timing.h"
#include "runtime/base/bytes.h"
#include "runtime/base/log.h"

namespace atollrt {
namespace {

constexpr size_t kAligned = 64;
// For what the broker answers at once.
constexpr std::chrono::seconds kAnswerTimeout{5};
// The broker gives up a request in time; this is for its answer to come.
constexpr std::chrono::seconds kGrace{2};

bool IsTrusted(uid_t uid) {
  if (uid == 0 || uid == geteuid()) return true;
  const char* const text = getenv("ATOLL_BROKER_UID");
  if (text == nullptr) return false;
  uid_t trusted = 0;
  const char* const end = text + std::strlen(text);
  const auto parsed = std::from_chars(text, end, trusted);
  return parsed.ec == std::errc() && parsed.ptr == end && uid == trusted;
}

std::string ProgramName() {
  std::array<char, sizeof(BrokerClientRow::name)> command = {};
  ReadOwnCommand(command);
  return command.data();
}

size_t Aligned(size_t bytes) { return AlignUp(bytes, kAligned); }

bool IsSame(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return a.data() == b.data() && a.size() == b.size();
}

bool IsWithin(std::span<const uint8_t> bytes, std::span<const uint8_t> whole) {
  return bytes.data() >= whole.data() && bytes.size() <= whole.size() &&
         static_cast<size_t>(bytes.data() - whole.data()) <= whole.size() - bytes.size();
}

// Puts other memory with the same bytes in its place, which nobody else has. What was there belongs
// to those who still map it.
bool Replace(const HostMemory& memory) {
  Result<SharedMemory> other = SharedMemory::Create(memory.bytes.size());
  if (!other.ok()) return false;
  std::memcpy(other->bytes().data(), memory.bytes.data(), memory.bytes.size());
  return mmap(memory.bytes.data(), memory.bytes.size(), PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_FIXED, other->fd(), 0) == memory.bytes.data() &&
         dup3(other->fd(), memory.memfd, O_CLOEXEC) == memory.memfd;
}

}  // namespace

// ---- BrokerLink ---------------------------------------------------------------------------------

BrokerLink::BrokerLink(FileDescriptor socket, DeviceInfo info)
    : socket_(std::move(socket)),
      info_(std::move(info)),
      state_(StateOf(DeviceState::kReady, {})) {}

Result<std::unique_ptr<BrokerLink>> BrokerLink::Connect(const std::string& path,
                                                        const std::string& program,
                                                        Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(FileDescriptor socket, ConnectTo(path, deadline));
  ATOLL_ASSIGN_OR_RETURN(const Peer peer, PeerOf(socket.get()));
  if (!IsTrusted(peer.uid)) {
    return Status(StatusCode::kPermissionDenied,
                  Format("the broker at '%s' belongs to user %u, neither to root nor to this user; "
                         "if that is right, set ATOLL_BROKER_UID=%u",
                         path.c_str(), peer.uid, peer.uid));
  }
  ATOLL_RETURN_IF_ERROR(
      SendMessage(socket.get(), WriteBrokerMessage(BrokerHello(), TailOf(program))));
  ReceivedMessage message;
  ATOLL_RETURN_IF_ERROR(ReceiveMessage(socket.get(), deadline, &message));
  const auto welcome = ReadBrokerMessage<BrokerWelcome>(message.bytes);
  if (!welcome.has_value()) {
    return DeviceLost("what listens at '%s' does not answer as a broker", path.c_str());
  }
  const std::string text = TextOf(welcome->tail);
  if (welcome->message.protocol < kBrokerProtocolMin ||
      welcome->message.protocol > kBrokerProtocolMax) {
    return RefusalOf(welcome->message, text)
        .WithContext(Format("the broker at '%s' refuses", path.c_str()));
  }
  ATOLL_ASSIGN_OR_RETURN(DeviceInfo info, DeviceInfoOf(welcome->message));
  info.description = text;
  return std::unique_ptr<BrokerLink>(new BrokerLink(std::move(socket), std::move(info)));
}

Status BrokerLink::Send(std::span<const uint8_t> message, int fd) {
  {
    const std::lock_guard lock(mutex_);
    if (!lost_.ok()) return lost_;
  }
  return SendMessage(socket_.get(), message, fd);
}

uint32_t BrokerLink::NewRequest() {
  const std::lock_guard lock(mutex_);
  awaited_.insert(++last_request_);
  return last_request_;
}

Result<BrokerLink::Answer> BrokerLink::Await(uint32_t request, Deadline deadline) {
  std::unique_lock lock(mutex_);
  Result<Answer> answer = AwaitLocked(request, deadline, &lock);
  awaited_.erase(request);
  answers_.erase(request);
  return answer;
}

Result<BrokerLink::Answer> BrokerLink::AwaitLocked(uint32_t request, Deadline deadline,
                                                   std::unique_lock<std::mutex>* lock) {
  ReceivedMessage message;
  for (;;) {
    if (const auto found = answers_.find(request); found != answers_.end()) {
      return std::move(found->second);
    }
    if (!lost_.ok()) return lost_;
    if (is_reading_) {
      if (changed_.wait_until(*lock, deadline) == std::cv_status::timeout && is_reading_ &&
          !answers_.contains(request)) {
        return Timeout("the broker did not answer in time");
      }
      continue;
    }
    is_reading_ = true;
    lock->unlock();
    const Status status = ReceiveMessage(socket_.get(), deadline, &message);
    lock->lock();
    is_reading_ = false;
    if (status.ok()) {
      Take(message);
    } else if (status.code() != StatusCode::kTimeout) {
      lost_ = DeviceLost("the broker is gone: %s", status.message().c_str());
    }
    changed_.notify_all();
    // Who is told all kinds of other things waits no longer, either.
    if (status.code() == StatusCode::kTimeout ||
        (Clock::now() > deadline && !answers_.contains(request) && lost_.ok())) {
      return Timeout("the broker did not answer in time");
    }
  }
}

// With the mutex held.
void BrokerLink::Take(const ReceivedMessage& message) {
  if (const auto done = ReadBrokerMessage<BrokerDone>(message.bytes); done.has_value()) {
    // An answer that comes too late is of no use to anybody.
    if (!awaited_.contains(done->message.request)) return;
    answers_[done->message.request] = {done->message, {done->tail.begin(), done->tail.end()}};
  } else if (const auto state = ReadBrokerMessage<BrokerState>(message.bytes); state.has_value()) {
    state_ = state->message;
  } else {
    lost_ = DeviceLost("the broker does not keep to the protocol");
  }
}

Result<BrokerLink::Answer> BrokerLink::Ask(std::span<const uint8_t> message, uint32_t request,
                                           Deadline deadline, int fd) {
  ATOLL_RETURN_IF_ERROR(Send(message, fd));
  ATOLL_ASSIGN_OR_RETURN(Answer answer, Await(request, deadline));
  ATOLL_RETURN_IF_ERROR(StatusOf(answer.done, TextOf(answer.tail)));
  return answer;
}

Result<std::vector<BrokerClientRow>> BrokerLink::Clients(Deadline deadline) {
  std::vector<BrokerClientRow> rows;
  for (;;) {
    BrokerList list;
    list.request = NewRequest();
    list.behind = rows.empty() ? 0 : rows.back().number;
    ATOLL_ASSIGN_OR_RETURN(const Answer answer,
                           Ask(WriteBrokerMessage(list), list.request, deadline));
    const size_t count = answer.done.value;
    if (count > kBrokerRowsMax || answer.tail.size() != count * sizeof(BrokerClientRow)) {
      return DeviceLost("the broker tells of %zu clients in %zu bytes", count, answer.tail.size());
    }
    const size_t before = rows.size();
    rows.resize(before + count);
    if (count > 0) std::memcpy(&rows[before], answer.tail.data(), answer.tail.size());
    constexpr size_t kMost = 1 << 16;
    if (count < kBrokerRowsMax || rows.back().number <= list.behind || rows.size() >= kMost) {
      return rows;
    }
  }
}

Status BrokerLink::ResetDevice(Deadline deadline) {
  BrokerReset reset;
  reset.request = NewRequest();
  return Ask(WriteBrokerMessage(reset), reset.request, deadline).status();
}

BrokerState BrokerLink::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void BrokerLink::Close() {
  shutdown(socket_.get(), SHUT_RDWR);  // whoever reads returns
  const std::lock_guard lock(mutex_);
  if (lost_.ok()) lost_ = DeviceLost("the connection to the broker was closed");
  changed_.notify_all();
}

// ---- BrokerChip ---------------------------------------------------------------------------------

struct BrokerChip::Prepared final : PreparedExecutable {
  std::vector<uint8_t> written;
  std::span<const uint8_t> stored;  // that, or what is in the executable
  // Guarded by the chip's mutex.
  std::weak_ptr<BrokerLink> link;  // where it is loaded
  uint32_t number = 0;             // there
};

Result<std::unique_ptr<Chip>> BrokerChip::Open(const std::string& path, const DeviceOrigin& origin,
                                               Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(std::shared_ptr<BrokerLink> link,
                         BrokerLink::Connect(path, ProgramName(), deadline));
  DeviceInfo info = link->info();
  info.name = origin.name;
  info.note = origin.note;
  info.is_elsewhere = true;
  info.description += ", by the broker at " + path;
  return std::unique_ptr<Chip>(new BrokerChip(path, std::move(info), std::move(link)));
}

BrokerChip::BrokerChip(std::string path, DeviceInfo info, std::shared_ptr<BrokerLink> link)
    : path_(std::move(path)), info_(std::move(info)), link_(std::move(link)) {}

BrokerChip::~BrokerChip() { Drop(); }

std::shared_ptr<BrokerLink> BrokerChip::link() const {
  const std::lock_guard lock(mutex_);
  return link_;
}

Status BrokerChip::Lost() const {
  return DeviceLost("device %s: there is no connection to the broker at '%s'", info_.name.c_str(),
                    path_.c_str());
}

Result<std::unique_ptr<PreparedExecutable>> BrokerChip::Prepare(
    std::shared_ptr<const AnyExecutable> executable) const {
  ATOLL_RETURN_IF_ERROR(CheckFamily(*executable, info_));
  auto prepared = std::make_unique<Prepared>();
  if (executable->family == DeviceFamily::kAtoll1) {
    const auto& own = static_cast<const Executable&>(*executable);
    ATOLL_RETURN_IF_ERROR(ValidateExecutable(own));
    for (const Instruction& instruction : own.inference_program) {
      prepared->macs += MultiplyAccumulates(instruction);
    }
    prepared->written = WriteExecutable(own);
    prepared->stored = prepared->written;
  } else {
    prepared->stored = static_cast<const CoralExecutable&>(*executable).package;
    if (prepared->stored.empty()) {
      return InvalidArgument("'%s' came without its package, which the broker needs",
                             executable->name.c_str());
    }
  }
  prepared->executable = std::move(executable);
  const std::shared_ptr<BrokerLink> link = this->link();
  if (link == nullptr) return Lost();
  ATOLL_RETURN_IF_ERROR(LoadOn(link.get(), prepared.get(), Clock::now() + kAnswerTimeout));
  const std::lock_guard lock(mutex_);
  prepared->link = link;
  return std::unique_ptr<PreparedExecutable>(std::move(prepared));
}

// Sets `number`, which nobody else reads before `link` is set.
Status BrokerChip::LoadOn(BrokerLink* link, Prepared* prepared, Deadline deadline) const {
  ATOLL_ASSIGN_OR_RETURN(const SharedMemory memory, SharedMemory::Create(prepared->stored.size()));
  std::memcpy(memory.bytes().data(), prepared->stored.data(), prepared->stored.size());
  const std::string& name = prepared->executable->name;
  BrokerLoad load;
  load.request = link->NewRequest();
  load.bytes = prepared->stored.size();
  load.residency_set = prepared->residency_set;
  ATOLL_ASSIGN_OR_RETURN(
      const BrokerLink::Answer answer,
      link->Ask(WriteBrokerMessage(load, TailOf(name)), load.request, deadline, memory.fd()));
  prepared->number = answer.done.value;
  return {};
}

void BrokerChip::Forget(const PreparedExecutable& prepared) {
  const auto& own = static_cast<const Prepared&>(prepared);
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<BrokerLink> link = own.link.lock();
  if (link == nullptr || link != link_) return;
  BrokerUnload unload;
  unload.executable = own.number;
  // One that is gone has forgotten it.
  if (!link->Send(WriteBrokerMessage(unload)).ok()) link->Close();
}

bool BrokerChip::IsResident(const PreparedExecutable& prepared) const {
  const std::lock_guard lock(mutex_);
  return link_ != nullptr && static_cast<const Prepared&>(prepared).link.lock() == link_;
}

// ---- Memory that is lent ------------------------------------------------------------------------

Status BrokerChip::SendArena(BrokerLink* link, uint32_t id, int fd, size_t bytes) const {
  BrokerArena arena;
  arena.request = link->NewRequest();
  arena.bytes = bytes;
  arena.id = id;
  return link->Ask(WriteBrokerMessage(arena), arena.request, Clock::now() + kAnswerTimeout, fd)
      .status();
}

Status BrokerChip::RegisterMemory(const HostMemory& memory) {
  if (memory.memfd < 0 || memory.bytes.empty()) return {};
  const std::lock_guard lock(mutex_);
  for (const auto& one : lent_) {
    if (IsSame(one->memory.bytes, memory.bytes)) {
      ++one->registrations;
      return {};
    }
  }
  lent_.push_back(std::make_unique<Lent>(Lent{.memory = memory, .link = {}}));
  return {};
}

void BrokerChip::UnregisterMemory(std::span<uint8_t> memory) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(
      lent_, [&](const auto& one) { return IsSame(one->memory.bytes, memory); });
  if (found == lent_.end() || --(*found)->registrations > 0) return;
  const std::shared_ptr<BrokerLink> link = (*found)->link.lock();
  if (link != nullptr && link == link_ && !(*found)->is_refused) {
    BrokerDrop drop;
    drop.arena = (*found)->arena;
    // One that is gone has forgotten it.
    if (!link->Send(WriteBrokerMessage(drop)).ok()) link->Close();
  }
  lent_.erase(found);
}

// Lends what the job lies in, once for each connection. What the broker does not take is copied.
Status BrokerChip::LendAll(BrokerLink* link, const Job& job) {
  std::vector<Lent*> wanted;  // which stay while the job has its buffers
  {
    const std::lock_guard lock(mutex_);
    for (const auto& one : lent_) {
      if (one->link.lock() == link_) continue;
      const auto uses = [&](const auto& buffer) { return IsWithin(buffer, one->memory.bytes); };
      if (std::ranges::any_of(job.inputs, uses) || std::ranges::any_of(job.outputs, uses)) {
        wanted.push_back(one.get());
        one->arena = ++last_arena_;
      }
    }
  }
  for (Lent* const one : wanted) {
    Status status = SendArena(link, one->arena, one->memory.memfd, one->memory.bytes.size());
    const bool is_refused = status.code() == StatusCode::kResourceExhausted ||
                            status.code() == StatusCode::kInvalidArgument;
    if (!status.ok() && !is_refused) return status;
    if (is_refused) {
      Log(LogSeverity::kWarning, "device %s: memory is not lent to the broker, and is copied: %s",
          info_.name.c_str(), status.message().c_str());
    }
    const std::lock_guard lock(mutex_);
    one->link = link_;
    one->is_refused = is_refused;
  }
  return {};
}

// With the mutex held. Leaves arena 0 if it does not lie in what is lent.
void BrokerChip::PlaceLent(std::span<const uint8_t> bytes, bool is_output, BrokerBuffer* buffer,
                           Flight* flight) const {
  if (bytes.empty()) return;
  for (const auto& one : lent_) {
    const bool may = !is_output || one->memory.may_be_replaced;
    if (one->is_refused || !may || !IsWithin(bytes, one->memory.bytes) ||
        one->link.lock() != link_) {
      continue;
    }
    buffer->arena = one->arena;
    buffer->offset = static_cast<uint64_t>(bytes.data() - one->memory.bytes.data());
    flight->lent.push_back(one.get());
    return;
  }
}

void BrokerChip::PlaceLent(const Job& job, std::vector<BrokerBuffer>* buffers,
                           Flight* flight) const {
  const std::lock_guard lock(mutex_);
  if (link_ == nullptr || lent_.empty()) return;
  const size_t inputs = job.inputs.size();
  for (size_t i = 0; i < inputs; ++i) PlaceLent(job.inputs[i], false, &(*buffers)[i], flight);
  for (size_t i = 0; i < job.outputs.size(); ++i) {
    // The broker does not take outputs above other buffers.
    const auto overlaps = [&](std::span<const uint8_t> other) {
      return other.data() < job.outputs[i].data() + job.outputs[i].size() &&
             job.outputs[i].data() < other.data() + other.size();
    };
    const std::span others(job.outputs);
    if (std::ranges::any_of(job.inputs, overlaps) ||
        std::ranges::any_of(others.first(i), overlaps) ||
        std::ranges::any_of(others.subspan(i + 1), overlaps)) {
      continue;
    }
    PlaceLent(job.outputs[i], true, &(*buffers)[inputs + i], flight);
  }
}

BrokerChip::Flight* BrokerChip::FlightOf(uint32_t request_id) {
  for (Flight& flight : flights_) {
    if (flight.request_id == request_id) return &flight;
  }
  return nullptr;
}

Status BrokerChip::Begin(BrokerLink* link, const Job& job) {
  // It was handed out as const, but is the chip's own.
  auto* const prepared = const_cast<Prepared*>(static_cast<const Prepared*>(job.prepared));
  if (!IsResident(*prepared)) {
    ATOLL_RETURN_IF_ERROR(LoadOn(link, prepared, std::max(job.deadline, Clock::now())));
    const std::lock_guard lock(mutex_);
    prepared->link = link_;
  }
  Flight* const flight = FlightOf(0);
  if (flight == nullptr) return InternalError("more than %zu runs have begun", flights_.size());

  ATOLL_RETURN_IF_ERROR(LendAll(link, job));
  std::vector<BrokerBuffer> buffers(job.inputs.size() + job.outputs.size());
  flight->lent.clear();
  PlaceLent(job, &buffers, flight);
  size_t bytes = 0;
  const auto place = [&](size_t i, size_t size) {
    if (buffers[i].arena != 0) return false;
    buffers[i].offset = bytes;
    bytes += Aligned(size);
    return true;
  };
  flight->outputs.clear();
  flight->bytes_copied = 0;
  std::vector<size_t> copied_inputs;
  for (size_t i = 0; i < job.inputs.size(); ++i) {
    if (place(i, job.inputs[i].size())) copied_inputs.push_back(i);
  }
  for (size_t i = 0; i < job.outputs.size(); ++i) {
    const size_t offset = bytes;
    if (!place(job.inputs.size() + i, job.outputs[i].size())) continue;
    flight->outputs.push_back({offset, job.outputs[i]});
    flight->bytes_copied += job.outputs[i].size();
  }
  if (!copied_inputs.empty() || !flight->outputs.empty()) {
    if (flight->memory.bytes().size() < std::max<size_t>(bytes, 1)) {
      ATOLL_ASSIGN_OR_RETURN(flight->memory, SharedMemory::Create(std::max<size_t>(bytes, 1)));
      flight->arena = 0;
    }
    if (flight->arena == 0) {
      const auto id = static_cast<uint32_t>(flight - flights_.data()) + 1;
      ATOLL_RETURN_IF_ERROR(
          SendArena(link, id, flight->memory.fd(), flight->memory.bytes().size()));
      flight->arena = id;
    }
    for (BrokerBuffer& buffer : buffers) {
      if (buffer.arena == 0) buffer.arena = flight->arena;
    }
    for (const size_t i : copied_inputs) {
      const auto& input = job.inputs[i];
      if (input.empty()) continue;
      std::memcpy(flight->memory.bytes().data() + buffers[i].offset, input.data(), input.size());
      flight->bytes_copied += input.size();
    }
  }
  BrokerSubmit submit;
  submit.request = link->NewRequest();
  submit.executable = prepared->number;
  submit.priority = job.priority;
  submit.timeout_ms = static_cast<uint64_t>(std::max<int64_t>(
      std::chrono::ceil<std::chrono::milliseconds>(job.deadline - Clock::now()).count(), 0));
  submit.buffers = static_cast<uint32_t>(buffers.size());
  ATOLL_RETURN_IF_ERROR(
      link->Send(WriteBrokerMessage(submit, {reinterpret_cast<const uint8_t*>(buffers.data()),
                                             buffers.size() * sizeof(BrokerBuffer)})));
  flight->request = submit.request;
  flight->request_id = job.request_id;
  return {};
}

Status BrokerChip::Run(const Job& job, std::span<const Job> ahead, RequestReport* report) {
  const std::shared_ptr<BrokerLink> link = this->link();
  if (link == nullptr) return Lost();
  const auto run = [&]() -> Status {
    if (FlightOf(job.request_id) == nullptr) ATOLL_RETURN_IF_ERROR(Begin(link.get(), job));
    for (const Job& next : ahead) {
      if (FlightOf(next.request_id) == nullptr && FlightOf(0) != nullptr) {
        ATOLL_RETURN_IF_ERROR(Begin(link.get(), next));
      }
    }
    Flight* const flight = FlightOf(job.request_id);
    ATOLL_ASSIGN_OR_RETURN(const BrokerLink::Answer answer,
                           link->Await(flight->request, job.deadline + kGrace));
    flight->request_id = 0;
    *report = ReportOf(answer.done);
    ATOLL_RETURN_IF_ERROR(StatusOf(answer.done, TextOf(answer.tail)));
    for (const Flight::Copied& copied : flight->outputs) {
      if (copied.output.empty()) continue;
      std::memcpy(copied.output.data(), flight->memory.bytes().data() + copied.offset,
                  copied.output.size());
    }
    report->bytes_copied += flight->bytes_copied;
    return {};
  };
  Status status = run();
  // Then nothing may be under way; the broker forgets what is, with the connection.
  if (!status.ok()) Drop();
  return status;
}

void BrokerChip::Abandon() { Drop(); }

DeviceHealth BrokerChip::health() const {
  const std::shared_ptr<BrokerLink> link = this->link();
  return link == nullptr ? DeviceHealth() : HealthOf(link->state());
}

void BrokerChip::Drop() {
  std::vector<Lent*> replaced;
  for (Flight& flight : flights_) {
    // The broker may still write into what was under way.
    if (flight.request_id != 0) {
      flight.memory = SharedMemory();
      for (Lent* const one : flight.lent) {
        if (std::ranges::find(replaced, one) == replaced.end()) replaced.push_back(one);
      }
    }
    flight.request_id = flight.arena = 0;
    flight.lent.clear();
  }
  for (const Lent* const one : replaced) {
    if (!one->memory.may_be_replaced || Replace(one->memory)) continue;
    Log(LogSeverity::kError, "device %s: what a broker has had cannot be taken from it",
        info_.name.c_str());
  }
  const std::lock_guard lock(mutex_);
  if (link_ != nullptr) link_->Close();
  link_ = nullptr;
}

Status BrokerChip::Connect(Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(std::shared_ptr<BrokerLink> link,
                         BrokerLink::Connect(path_, ProgramName(), deadline));
  ATOLL_RETURN_IF_ERROR(CheckSameShape(info_, link->info()));
  const std::lock_guard lock(mutex_);
  link_ = std::move(link);
  return {};
}

Status BrokerChip::Recover() {
  return link() != nullptr ? Status() : Connect(Clock::now() + kAnswerTimeout);
}

Status BrokerChip::Reopen() {
  Drop();
  return Connect(Clock::now() + kAnswerTimeout);
}

}  // namespace atollrt
