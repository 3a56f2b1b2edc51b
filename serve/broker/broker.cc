// SPDX-License-Identifier: Apache-2.0
#include "serve/broker/broker.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "driver/broker/messages.h"
#include "driver/device/chip.h"
#include "driver/isa/executable.h"
#include "runtime/base/bytes.h"
#include "runtime/base/clock.h"

namespace atollrt {
namespace {

// A client says hello within.
constexpr std::chrono::seconds kHelloTimeout{5};
constexpr uint64_t kTimeoutMostMs = uint64_t{24} * 3600 * 1000;
constexpr int kSystemdSocket = 3;

// The socket that systemd listens at for this process, or none.
FileDescriptor SystemdSocket() {
  const auto number = [](const char* name) {
    const char* const text = getenv(name);
    long value = -1;
    if (text != nullptr) std::from_chars(text, text + std::strlen(text), value);
    return value;
  };
  if (number("LISTEN_PID") != getpid() || number("LISTEN_FDS") != 1) return FileDescriptor();
  fcntl(kSystemdSocket, F_SETFD, FD_CLOEXEC);
  return FileDescriptor(kSystemdSocket);
}

// kDeviceBusy if another process has it.
Result<FileDescriptor> LockAt(const std::string& path) {
  if (const size_t slash = path.rfind('/'); slash != path.npos && slash > 0) {
    mkdir(path.substr(0, slash).c_str(), 0750);  // if it is not there; what fails, open says
  }
  FileDescriptor lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (lock.get() < 0) {
    return Status(errno == EACCES ? StatusCode::kPermissionDenied : StatusCode::kNotFound,
                  Format("broker's lock '%s': %s", path.c_str(), strerror(errno)));
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    std::array<char, 16> owner = {};
    (void)!pread(lock.get(), owner.data(), owner.size() - 1, 0);
    return Status(StatusCode::kDeviceBusy,
                  Format("process %s is the broker at '%s' already; stop it, or choose another "
                         "--socket",
                         owner.data(), path.substr(0, path.rfind('.')).c_str()));
  }
  const std::string process = Format("%d", getpid());
  (void)!ftruncate(lock.get(), 0);
  (void)!pwrite(lock.get(), process.data(), process.size(), 0);
  return lock;
}

// An executable on the device, for all clients that loaded the same bytes.
struct Loaded {
  Device* device = nullptr;
  ExecutableId id = 0;
  std::shared_ptr<const Executable> executable;

  Loaded(Device* on, ExecutableId its_id, std::shared_ptr<const Executable> what)
      : device(on), id(its_id), executable(std::move(what)) {}
  ~Loaded() { (void)device->Unload(id); }  // no request is under way: it would own this
  Loaded(const Loaded&) = delete;
  Loaded& operator=(const Loaded&) = delete;
};

struct Client;

struct Pending {
  std::shared_ptr<Client> client;
  uint32_t request = 0;
  std::shared_ptr<const Loaded> loaded;
  std::shared_ptr<const SharedMemory> arena;
  std::vector<uint64_t> offsets;
  int32_t priority = 0;
  Deadline came, deadline;
};

// Guarded by the broker's mutex, but for what is constant.
struct Client {
  FileDescriptor socket;
  Peer peer;
  Deadline connected;
  bool has_said_hello = false;
  bool is_gone = false;
  std::string name;
  BrokerShare share;

  struct Own {
    std::shared_ptr<const Loaded> loaded;
    uint64_t bytes = 0;  // that it was charged with
  };
  std::map<uint32_t, std::shared_ptr<const SharedMemory>> arenas;
  std::map<uint32_t, Own> executables;
  uint32_t last_executable = 0;
  uint64_t bytes = 0;

  std::deque<Pending> queue;
  std::map<uint32_t, RequestId> running;  // 0: not submitted yet
  std::vector<uint32_t> cancelled;        // of those
  double used = 0;                        // time of the device over the weight
  double device_seconds = 0;
  uint64_t requests = 0;
};

}  // namespace

class Broker::Impl {
 public:
  Impl(std::unique_ptr<Device> device, BrokerOptions options, FileDescriptor lock,
       FileDescriptor listener, FileDescriptor stop, FileDescriptor events)
      : device_(std::move(device)),
        options_(std::move(options)),
        lock_(std::move(lock)),
        listener_(std::move(listener)),
        stop_(std::move(stop)),
        events_(std::move(events)) {}

  const std::string& path() const { return options_.path; }
  const DeviceInfo& device() const { return device_->info(); }
  std::vector<BrokerClient> clients() const;
  size_t executables() const {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::count_if(loaded_.begin(), loaded_.end(),
                                             [](const auto& loaded) { return !loaded.expired(); }));
  }
  Status Watch(int fd);
  Status Run();
  void Stop() {
    const uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  using ClientPtr = std::shared_ptr<Client>;

  void Accept();
  void TakeMessages(const ClientPtr& client);
  // Whether the client keeps to the protocol. With the mutex held.
  bool Take(const ClientPtr& client, ReceivedMessage* message, Lock* lock);
  bool TakeHello(Client* client, const ReceivedMessage& message);
  Status TakeArena(Client* client, const BrokerArena& arena, ReceivedMessage* message);
  Result<uint32_t> TakeLoad(Client* client, const BrokerLoad& load, ReceivedMessage* message,
                            Lock* lock);
  Result<Pending> TakeSubmit(const ClientPtr& client, const BrokerReceived<BrokerSubmit>& submit);
  void Cancel(Client* client, uint32_t request);
  void Disconnect(const ClientPtr& client);
  void DisconnectSilent();
  void Answer(Client* client, uint32_t request, const Status& status,
              const RequestReport& report = {}, uint32_t value = 0);

  Client* Next();
  void Work();
  Status Execute(const Pending& pending, Lock* lock, RequestReport* report);

  const std::unique_ptr<Device> device_;
  const BrokerOptions options_;
  const FileDescriptor lock_;  // held while this is the broker of its path
  FileDescriptor listener_;
  const FileDescriptor stop_, events_;
  ReceivedMessage message_;  // of the thread of Run

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool is_stopping_ = false;
  std::map<int, ClientPtr> clients_;  // by socket
  std::vector<std::weak_ptr<const Loaded>> loaded_;
  size_t running_ = 0;
  double used_ = 0;  // of the client whose turn was last
};

// ---- Clients ------------------------------------------------------------------------------------

Status Broker::Impl::Watch(int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return ResourceExhausted("the broker cannot watch a socket: %s", strerror(errno));
}

void Broker::Impl::Accept() {
  FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.get() < 0) return;
  const Result<Peer> peer = PeerOf(socket.get());
  if (!peer.ok()) return;
  const std::lock_guard lock(mutex_);
  const auto of_user = std::count_if(clients_.begin(), clients_.end(), [&](const auto& entry) {
    return entry.second->peer.uid == peer->uid;
  });
  const BrokerLimits& limits = options_.limits;
  if (clients_.size() >= limits.clients || static_cast<size_t>(of_user) >= limits.clients_of_user) {
    BrokerWelcome refusal;
    (void)SendMessage(
        socket.get(),
        WriteBrokerMessage(
            refusal, TailOf(Format("it has %zu clients, %lld of user %u; at most %zu "
                                   "and %zu",
                                   clients_.size(), static_cast<long long>(of_user), peer->uid,
                                   limits.clients, limits.clients_of_user))));
    return;
  }
  auto client = std::make_shared<Client>();
  client->peer = *peer;
  client->connected = Clock::now();
  const int fd = socket.get();
  client->socket = std::move(socket);
  if (Watch(fd).ok()) clients_[fd] = std::move(client);
}

void Broker::Impl::Disconnect(const ClientPtr& client) {
  client->is_gone = true;
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, client->socket.get(), nullptr);
  shutdown(client->socket.get(), SHUT_RDWR);
  for (const auto& [request, id] : client->running) Cancel(client.get(), request);
  client->queue.clear();
  client->executables.clear();
  client->arenas.clear();
  clients_.erase(client->socket.get());
  std::erase_if(loaded_, [](const auto& loaded) { return loaded.expired(); });
  changed_.notify_all();
}

// Those that have not said hello for long.
void Broker::Impl::DisconnectSilent() {
  const std::lock_guard lock(mutex_);
  std::vector<ClientPtr> silent;
  for (const auto& [fd, client] : clients_) {
    if (!client->has_said_hello && Clock::now() - client->connected > kHelloTimeout) {
      silent.push_back(client);
    }
  }
  for (const ClientPtr& client : silent) Disconnect(client);
}

void Broker::Impl::Answer(Client* client, uint32_t request, const Status& status,
                          const RequestReport& report, uint32_t value) {
  if (client->is_gone) return;
  BrokerDone done = DoneOf(request, status, report);
  done.value = value;
  const Status sent =
      SendMessage(client->socket.get(), WriteBrokerMessage(done, TailOf(status.message())));
  // It does not read, or is gone: the thread that watches it sees the end, and disconnects it.
  if (!sent.ok()) shutdown(client->socket.get(), SHUT_RDWR);
}

// ---- Messages -----------------------------------------------------------------------------------

void Broker::Impl::TakeMessages(const ClientPtr& client) {
  // So many before others have their turn.
  constexpr int kMessages = 16;
  for (int i = 0; i < kMessages; ++i) {
    const Status status = ReceiveMessage(client->socket.get(), Clock::now(), &message_);
    if (status.code() == StatusCode::kTimeout) return;
    Lock lock(mutex_);
    if (client->is_gone) return;
    const bool goes_on = status.ok() && Take(client, &message_, &lock);
    message_.fds.clear();
    if (goes_on) continue;
    if (!client->is_gone) Disconnect(client);
    return;
  }
}

bool Broker::Impl::Take(const ClientPtr& client, ReceivedMessage* message, Lock* lock) {
  uint32_t type = 0;
  if (message->bytes.size() < sizeof(type)) return false;
  std::memcpy(&type, message->bytes.data(), sizeof(type));
  if (!client->has_said_hello) return TakeHello(client.get(), *message);
  const auto kind = static_cast<BrokerMessage>(type);
  const bool has_file = kind == BrokerMessage::kArena || kind == BrokerMessage::kLoad;
  if (message->fds.size() != (has_file ? 1u : 0u)) return false;
  switch (kind) {
    case BrokerMessage::kArena: {
      const auto arena = ReadBrokerMessage<BrokerArena>(message->bytes);
      if (!arena.has_value()) return false;
      Answer(client.get(), arena->message.request,
             TakeArena(client.get(), arena->message, message));
      return true;
    }
    case BrokerMessage::kLoad: {
      const auto load = ReadBrokerMessage<BrokerLoad>(message->bytes);
      if (!load.has_value()) return false;
      const Result<uint32_t> number = TakeLoad(client.get(), load->message, message, lock);
      Answer(client.get(), load->message.request, number.status(), {}, number.ok() ? *number : 0);
      return true;
    }
    case BrokerMessage::kUnload: {
      const auto unload = ReadBrokerMessage<BrokerUnload>(message->bytes);
      if (!unload.has_value()) return false;
      const auto found = client->executables.find(unload->message.executable);
      if (found == client->executables.end()) return false;
      client->bytes -= found->second.bytes;
      client->executables.erase(found);
      std::erase_if(loaded_, [](const auto& loaded) { return loaded.expired(); });
      return true;
    }
    case BrokerMessage::kSubmit: {
      const auto submit = ReadBrokerMessage<BrokerSubmit>(message->bytes);
      if (!submit.has_value()) return false;
      Result<Pending> pending = TakeSubmit(client, *submit);
      if (!pending.ok()) {
        Answer(client.get(), submit->message.request, pending.status());
        return true;
      }
      // One that had nothing to do does not catch up.
      if (client->queue.empty() && client->running.empty()) {
        client->used = std::max(client->used, used_);
      }
      client->queue.push_back(*std::move(pending));
      changed_.notify_one();
      return true;
    }
    case BrokerMessage::kCancel: {
      const auto cancel = ReadBrokerMessage<BrokerCancel>(message->bytes);
      if (!cancel.has_value()) return false;
      Cancel(client.get(), cancel->message.request);
      return true;
    }
    default:
      return false;
  }
}

bool Broker::Impl::TakeHello(Client* client, const ReceivedMessage& message) {
  const auto hello = ReadBrokerMessage<BrokerHello>(message.bytes);
  if (!hello.has_value() || hello->message.magic != kBrokerMagic || !message.fds.empty()) {
    return false;
  }
  const auto refuse = [&](const std::string& why) {
    (void)SendMessage(client->socket.get(), WriteBrokerMessage(BrokerWelcome(), TailOf(why)));
    return false;
  };
  if (hello->message.protocol_min > kBrokerProtocolMax ||
      hello->message.protocol_max < kBrokerProtocolMin) {
    return refuse(
        Format("it speaks protocol %u to %u, the client %u to %u; bring the older of the "
               "two up to date",
               kBrokerProtocolMin, kBrokerProtocolMax, hello->message.protocol_min,
               hello->message.protocol_max));
  }
  if (is_stopping_) return refuse("it is about to stop");
  client->has_said_hello = true;
  client->name = TextOf(hello->tail);
  if (options_.share_of) client->share = options_.share_of(client->peer, client->name);
  return SendMessage(client->socket.get(),
                     WriteBrokerMessage(
                         WelcomeOf(device_->info()),
                         TailOf(device_->info().description.empty() ? device_->info().name
                                                                    : device_->info().description)))
      .ok();
}

Status Broker::Impl::TakeArena(Client* client, const BrokerArena& arena, ReceivedMessage* message) {
  const auto old = client->arenas.find(arena.id);
  const uint64_t before = old == client->arenas.end() ? 0 : uint64_t{old->second->bytes().size()};
  const uint64_t kept = client->bytes - before;
  if (arena.bytes > options_.limits.bytes || kept + arena.bytes > options_.limits.bytes) {
    return ResourceExhausted(
        "the broker gives each client %llu bytes; %llu and these %llu are more",
        static_cast<unsigned long long>(options_.limits.bytes),
        static_cast<unsigned long long>(kept), static_cast<unsigned long long>(arena.bytes));
  }
  constexpr size_t kMostArenas = 64;
  if (old == client->arenas.end() && client->arenas.size() >= kMostArenas) {
    return ResourceExhausted("a client has at most %zu arenas", kMostArenas);
  }
  ATOLL_ASSIGN_OR_RETURN(SharedMemory memory,
                         SharedMemory::Map(message->fds[0].get(), arena.bytes));
  client->arenas[arena.id] = std::make_shared<const SharedMemory>(std::move(memory));
  client->bytes = kept + arena.bytes;
  return {};
}

Result<uint32_t> Broker::Impl::TakeLoad(Client* client, const BrokerLoad& load,
                                        ReceivedMessage* message, Lock* lock) {
  const BrokerLimits& limits = options_.limits;
  if (client->executables.size() >= limits.executables) {
    return ResourceExhausted("the broker keeps %zu executables for each client",
                             limits.executables);
  }
  if (load.bytes > limits.bytes || client->bytes + load.bytes > limits.bytes) {
    return ResourceExhausted(
        "the broker gives each client %llu bytes; %llu and an executable of %llu are more",
        static_cast<unsigned long long>(limits.bytes),
        static_cast<unsigned long long>(client->bytes),
        static_cast<unsigned long long>(load.bytes));
  }
  // Read without the mutex: it may be large. The client is watched by this thread alone.
  lock->unlock();
  const auto read = [&]() -> Result<std::shared_ptr<const Executable>> {
    ATOLL_ASSIGN_OR_RETURN(const SharedMemory memory,
                           SharedMemory::Map(message->fds[0].get(), load.bytes));
    // What is parsed nobody may change meanwhile.
    const std::vector<uint8_t> copy(memory.bytes().begin(), memory.bytes().end());
    ATOLL_ASSIGN_OR_RETURN(Executable executable, ReadExecutable(copy));
    return std::make_shared<const Executable>(std::move(executable));
  };
  Result<std::shared_ptr<const Executable>> executable = read();
  lock->lock();
  if (client->is_gone) return Status(StatusCode::kCancelled, "the client is gone");
  if (!executable.ok()) return executable.status();
  std::shared_ptr<const Loaded> loaded;
  for (const auto& other : loaded_) {
    loaded = other.lock();
    if (loaded != nullptr && *loaded->executable == **executable) break;
    loaded = nullptr;
  }
  if (loaded == nullptr) {
    LoadOptions how;
    ATOLL_ASSIGN_OR_RETURN(const ExecutableId id, device_->Load(*executable, how));
    loaded = std::make_shared<const Loaded>(device_.get(), id, *executable);
    loaded_.push_back(loaded);
  }
  const uint32_t number = ++client->last_executable;
  client->executables[number] = {std::move(loaded), load.bytes};
  client->bytes += load.bytes;
  return number;
}

Result<Pending> Broker::Impl::TakeSubmit(const ClientPtr& client,
                                         const BrokerReceived<BrokerSubmit>& submit) {
  const BrokerSubmit& message = submit.message;
  // It goes elsewhere: to the next broker, once that is there.
  if (is_stopping_) return DeviceLost("the broker is about to stop");
  const size_t under_way = client->queue.size() + client->running.size();
  if (under_way >= options_.limits.requests) {
    return ResourceExhausted("the broker takes %zu requests of a client at a time",
                             options_.limits.requests);
  }
  const bool is_there =
      client->running.contains(message.request) ||
      std::any_of(client->queue.begin(), client->queue.end(),
                  [&](const Pending& other) { return other.request == message.request; });
  if (is_there) return InvalidArgument("request %u is under way already", message.request);
  const auto executable = client->executables.find(message.executable);
  if (executable == client->executables.end()) {
    return InvalidArgument("there is no executable %u", message.executable);
  }
  const auto arena = client->arenas.find(message.arena);
  if (arena == client->arenas.end()) return InvalidArgument("there is no arena %u", message.arena);
  const Executable& layers = *executable->second.loaded->executable;
  const size_t count = layers.inputs.size() + layers.outputs.size();
  if (message.buffers != count || submit.tail.size() != count * sizeof(uint64_t)) {
    return InvalidArgument("executable %u has %zu inputs and outputs, the request %u",
                           message.executable, count, message.buffers);
  }
  Pending pending;
  pending.offsets.resize(count);
  if (count > 0) std::memcpy(pending.offsets.data(), submit.tail.data(), submit.tail.size());
  struct Range {
    uint64_t begin, end;
    bool is_output;
  };
  std::vector<Range> ranges;
  const uint64_t arena_bytes = arena->second->bytes().size();
  for (size_t i = 0; i < count; ++i) {
    const bool is_output = i >= layers.inputs.size();
    const uint64_t bytes =
        is_output ? layers.outputs[i - layers.inputs.size()].bytes : layers.inputs[i].bytes;
    const uint64_t begin = pending.offsets[i];
    if (begin > arena_bytes || bytes > arena_bytes - begin) {
      return InvalidArgument("buffer %zu of %llu bytes at %llu is beyond its arena of %llu", i,
                             static_cast<unsigned long long>(bytes),
                             static_cast<unsigned long long>(begin),
                             static_cast<unsigned long long>(arena_bytes));
    }
    if (bytes > 0) ranges.push_back({begin, begin + bytes, is_output});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  uint64_t end = 0;
  uint64_t outputs_end = 0;
  for (const Range& range : ranges) {
    if (range.begin < outputs_end || (range.is_output && range.begin < end)) {
      return InvalidArgument("an output at %llu overlaps another buffer",
                             static_cast<unsigned long long>(range.begin));
    }
    end = std::max(end, range.end);
    if (range.is_output) outputs_end = std::max(outputs_end, range.end);
  }
  pending.client = client;
  pending.request = message.request;
  pending.loaded = executable->second.loaded;
  pending.arena = arena->second;
  pending.priority = std::min(message.priority, client->share.priority_max);
  pending.came = Clock::now();
  pending.deadline =
      pending.came + std::chrono::milliseconds(std::min(message.timeout_ms, kTimeoutMostMs));
  return pending;
}

void Broker::Impl::Cancel(Client* client, uint32_t request) {
  const auto queued = std::find_if(client->queue.begin(), client->queue.end(),
                                   [&](const Pending& one) { return one.request == request; });
  if (queued != client->queue.end()) {
    client->queue.erase(queued);
    Answer(client, request, {StatusCode::kCancelled, "cancelled before it began"});
    return;
  }
  const auto running = client->running.find(request);
  if (running == client->running.end()) return;  // it has been answered
  client->cancelled.push_back(request);
  if (running->second != 0) (void)device_->Cancel(running->second);
}

// ---- Work ---------------------------------------------------------------------------------------

// Whose first request is next; nullptr if there is none.
Client* Broker::Impl::Next() {
  Client* next = nullptr;
  for (const auto& [fd, client] : clients_) {
    if (client->queue.empty()) continue;
    if (next != nullptr) {
      const int32_t priority = client->queue.front().priority;
      const int32_t best = next->queue.front().priority;
      if (priority < best || (priority == best && client->used >= next->used)) continue;
    }
    next = client.get();
  }
  return next;
}

void Broker::Impl::Work() {
  Lock lock(mutex_);
  for (;;) {
    Client* next = nullptr;
    changed_.wait(lock, [&] { return (next = Next()) != nullptr || is_stopping_; });
    if (next == nullptr) return;
    const Pending pending = std::move(next->queue.front());
    Client& client = *pending.client;
    client.queue.pop_front();
    client.running[pending.request] = 0;
    used_ = std::max(used_, client.used);
    ++running_;
    RequestReport report;
    const Clock::time_point start = Clock::now();
    const Status status = Execute(pending, &lock, &report);
    const int64_t busy_ns = report.link_out_ns + report.compute_ns + report.link_in_ns;
    const double seconds = busy_ns > 0
                               ? static_cast<double>(busy_ns) * 1e-9
                               : std::chrono::duration<double>(Clock::now() - start).count();
    client.used += seconds / client.share.weight;
    client.device_seconds += seconds;
    ++client.requests;
    client.running.erase(pending.request);
    std::erase(client.cancelled, pending.request);
    --running_;
    report.queue_ns += std::chrono::nanoseconds(start - pending.came).count();
    Answer(&client, pending.request, status, report);
    changed_.notify_all();
  }
}

Status Broker::Impl::Execute(const Pending& pending, Lock* lock, RequestReport* report) {
  const Executable& layers = *pending.loaded->executable;
  uint8_t* const memory = pending.arena->bytes().data();
  Request request;
  request.executable = pending.loaded->id;
  size_t i = 0;
  for (const Layer& layer : layers.inputs) {
    request.inputs.emplace_back(memory + pending.offsets[i++], layer.bytes);
  }
  for (const Layer& layer : layers.outputs) {
    request.outputs.emplace_back(memory + pending.offsets[i++], layer.bytes);
  }
  const auto left = pending.deadline - Clock::now();
  if (left <= Clock::duration::zero()) return Timeout("its time passed while it waited");
  request.timeout = std::chrono::ceil<std::chrono::milliseconds>(left);
  request.priority = pending.priority;
  ATOLL_ASSIGN_OR_RETURN(const RequestId id, device_->Submit(request));
  pending.client->running[pending.request] = id;
  if (std::find(pending.client->cancelled.begin(), pending.client->cancelled.end(),
                pending.request) != pending.client->cancelled.end()) {
    (void)device_->Cancel(id);
  }
  lock->unlock();
  Status status = device_->Wait(id, report);
  lock->lock();
  return status;
}

std::vector<BrokerClient> Broker::Impl::clients() const {
  std::vector<BrokerClient> list;
  const std::lock_guard lock(mutex_);
  for (const auto& [fd, client] : clients_) {
    if (!client->has_said_hello) continue;
    list.push_back({.peer = client->peer,
                    .name = client->name,
                    .requests = client->requests,
                    .device_seconds = client->device_seconds,
                    .waiting = client->queue.size() + client->running.size(),
                    .executables = client->executables.size()});
  }
  return list;
}

Status Broker::Impl::Run() {
  std::vector<std::thread> workers;
  for (size_t i = 0; i < device_->jobs_in_flight_max() + 1; ++i)
    workers.emplace_back([this] { Work(); });
  Status status;
  std::optional<Deadline> drained;
  const auto is_idle = [&] {
    const std::lock_guard lock(mutex_);
    return running_ == 0 && Next() == nullptr;
  };
  while (!drained.has_value() || (Clock::now() < *drained && !is_idle())) {
    std::array<epoll_event, 64> events;
    constexpr int kLookMs = 1000;
    constexpr int kDrainMs = 5;
    const int count = epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()),
                                 drained.has_value() ? kDrainMs : kLookMs);
    if (count < 0 && errno != EINTR) {
      status = InternalError("the broker cannot wait for its clients: %s", strerror(errno));
      break;
    }
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == stop_.get()) {
        const std::lock_guard lock(mutex_);
        is_stopping_ = true;
        epoll_ctl(events_.get(), EPOLL_CTL_DEL, stop_.get(), nullptr);
        epoll_ctl(events_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
        drained = Clock::now() + options_.drain_timeout;
        changed_.notify_all();
      } else if (fd == listener_.get()) {
        Accept();
      } else {
        ClientPtr client;
        {
          const std::lock_guard lock(mutex_);
          const auto found = clients_.find(fd);
          if (found != clients_.end()) client = found->second;
        }
        if (client != nullptr) TakeMessages(client);
      }
    }
    DisconnectSilent();
  }
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    while (!clients_.empty()) Disconnect(ClientPtr(clients_.begin()->second));
  }
  changed_.notify_all();
  for (std::thread& worker : workers) worker.join();
  return status;
}

// ---- Broker -------------------------------------------------------------------------------------

Broker::Broker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Broker::~Broker() = default;

Result<std::unique_ptr<Broker>> Broker::Create(std::unique_ptr<Device> device,
                                               BrokerOptions options) {
  if (device->info().family != DeviceFamily::kAtoll1) {
    return Unsupported("a broker does not share %s devices yet",
                       DeviceFamilyName(device->info().family));
  }
  if (options.path.empty()) options.path = DefaultBrokerPath();
  FileDescriptor lock;
  FileDescriptor listener = SystemdSocket();
  if (listener.get() < 0) {
    // Who has the lock is the broker; a socket that is there without is a dead one's.
    const std::string lock_path = options.path + ".lock";
    ATOLL_ASSIGN_OR_RETURN(lock, LockAt(lock_path));
    ATOLL_ASSIGN_OR_RETURN(listener, ListenAt(options.path));
  }
  FileDescriptor stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  FileDescriptor events(epoll_create1(EPOLL_CLOEXEC));
  fcntl(listener.get(), F_SETFL, fcntl(listener.get(), F_GETFL) | O_NONBLOCK);
  const int listening = listener.get();
  const int stopping = stop.get();
  auto impl = std::make_unique<Impl>(std::move(device), std::move(options), std::move(lock),
                                     std::move(listener), std::move(stop), std::move(events));
  ATOLL_RETURN_IF_ERROR(impl->Watch(listening));
  ATOLL_RETURN_IF_ERROR(impl->Watch(stopping));
  return std::unique_ptr<Broker>(new Broker(std::move(impl)));
}

const std::string& Broker::path() const { return impl_->path(); }
const DeviceInfo& Broker::device() const { return impl_->device(); }
std::vector<BrokerClient> Broker::clients() const { return impl_->clients(); }
size_t Broker::executables() const { return impl_->executables(); }
Status Broker::Run() { return impl_->Run(); }
void Broker::Stop() { impl_->Stop(); }

}  // namespace atollrt
