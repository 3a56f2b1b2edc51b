// SPDX-License-Identifier: Apache-2.0
#include "serve/broker/broker.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "driver/broker/messages.h"
#include "runtime/base/clock.h"
#include "serve/broker/client.h"
#include "serve/broker/endpoint.h"
#include "serve/broker/store.h"

namespace atollrt {
namespace {

// A client says hello within.
constexpr std::chrono::seconds kHelloTimeout{5};
// Between looks at what nobody tells of: time that has passed, and how the device is.
constexpr std::chrono::milliseconds kLookPause{500};
// Nobody is told how the device is who has so many bytes unread: room that its answers need.
constexpr int kUnreadBytesMax = 32 << 10;

}  // namespace

class Broker::Impl {
 public:
  Impl(std::unique_ptr<Device> device, BrokerOptions options, BrokerEndpoint endpoint,
       FileDescriptor stop, FileDescriptor events)
      : device_(std::move(device)),
        limits_(options.limits),
        drain_timeout_(options.drain_timeout),
        endpoint_(std::move(endpoint)),
        stop_(std::move(stop)),
        events_(std::move(events)),
        store_(device_.get()),
        workers_max_(device_->jobs_in_flight_max() + 1),
        share_of_(std::move(options.share_of)),
        state_(StateOf(device_->state(), device_->health())) {}

  const std::string& path() const { return endpoint_.path; }
  const DeviceInfo& device() const { return device_->info(); }
  std::vector<BrokerClientRow> clients() const {
    const std::lock_guard lock(mutex_);
    return Rows();
  }
  void SetShares(BrokerShares share_of) {
    const std::lock_guard lock(mutex_);
    share_of_ = std::move(share_of);
    for (const auto& [fd, client] : clients_) {
      if (client->has_said_hello) client->share = share_of_(client->peer, client->name);
    }
  }
  size_t executables() const {
    const std::lock_guard lock(mutex_);
    return store_.executables();
  }
  Status WatchAll() {
    ATOLL_RETURN_IF_ERROR(Watch(endpoint_.listener.get()));
    return Watch(stop_.get());
  }
  Status Run();
  void Stop() {
    const uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));
  }

 private:
  using Lock = BrokerStore::Lock;
  using Client = BrokerConnection;
  using ClientPtr = std::shared_ptr<Client>;

  // Of the thread of Run.
  Status Watch(int fd);
  void Accept();
  void TakeMessages(const ClientPtr& client);
  void Look();

  // With the mutex held; those that take a Lock give it up in between.
  void Refuse(int socket, StatusCode code, const std::string& why) const;
  // Whether the client keeps to the protocol.
  bool Take(const ClientPtr& client, ReceivedMessage* message);
  bool TakeHello(Client* client, const ReceivedMessage& message);
  Status TakeArena(Client* client, const BrokerArena& arena, const FileDescriptor& file);
  Status TakeLoad(Client* client, const BrokerReceived<BrokerLoad>& received, FileDescriptor file);
  Status TakeReset(Client* client, const BrokerReset& reset);
  Status TakeSubmit(const ClientPtr& client, const BrokerReceived<BrokerSubmit>& submit);
  void TakeIncoming(Client* client, BrokerIncoming incoming);
  void Cancel(Client* client, uint32_t request);
  void Disconnect(const ClientPtr& client);
  void DisconnectGone();
  void Answer(Client* client, uint32_t request, const Status& status,
              const RequestReport& report = {}, uint32_t value = 0);
  void AnswerList(Client* client, const BrokerList& list);
  void Send(Client* client, const BrokerDone& done, std::span<const uint8_t> tail);
  std::vector<BrokerClientRow> Rows() const;
  void TellState();
  void Tidy();

  Client* Next();
  void Work();
  Status Execute(const BrokerPending& pending, Lock* lock, RequestReport* report);

  ClientPtr NextIncoming();
  void TakeIn();
  void TidyUp();
  Result<uint32_t> TakeInExecutable(Client* client, BrokerIncoming* incoming, Lock* lock);

  const std::unique_ptr<Device> device_;
  const BrokerLimits limits_;
  const std::chrono::milliseconds drain_timeout_;
  BrokerEndpoint endpoint_;
  const FileDescriptor stop_, events_;
  ReceivedMessage message_;  // of the thread of Run
  uint32_t last_client_ = 0;

  mutable std::mutex mutex_;  // guards what follows, and is held during no call of the device
                              // that may take long
  std::condition_variable changed_;
  std::condition_variable incoming_changed_;
  std::condition_variable to_tidy_;
  bool is_stopping_ = false, has_stopped_ = false, tidies_last_ = false;
  BrokerStore store_;                 // in front of those who have something in it
  std::map<int, ClientPtr> clients_;  // by socket
  int last_incoming_ = -1;            // the socket of the client whose turn it was
  size_t running_ = 0;
  size_t workers_max_;
  double used_ = 0;            // of the client whose turn was last
  BrokerLately used_of_late_;  // by all clients
  BrokerShares share_of_;
  BrokerState state_;
};

// ---- Clients ------------------------------------------------------------------------------------

Status Broker::Impl::Watch(int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return ResourceExhausted("the broker cannot watch a socket: %s", strerror(errno));
}

void Broker::Impl::Refuse(int socket, StatusCode code, const std::string& why) const {
  (void)SendMessage(socket, WriteBrokerMessage(RefusalOf(code), TailOf(why)));
}

void Broker::Impl::Accept() {
  FileDescriptor socket(
      accept4(endpoint_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.get() < 0) {
    // There are no files left: whoever waits goes on waiting, and this thread does not spin.
    constexpr std::chrono::milliseconds kPause{20};
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      std::this_thread::sleep_for(kPause);
    }
    return;
  }
  const Result<Peer> peer = PeerOf(socket.get());
  if (!peer.ok()) return;
  const std::lock_guard lock(mutex_);
  int64_t of_user = 0;
  const auto is_full = [&] {
    of_user = std::count_if(clients_.begin(), clients_.end(),
                            [&](const auto& entry) { return entry.second->peer.uid == peer->uid; });
    return clients_.size() >= limits_.clients ||
           static_cast<size_t>(of_user) >= limits_.clients_of_user;
  };
  if (is_full()) DisconnectGone();
  if (is_full()) {
    return Refuse(socket.get(), StatusCode::kResourceExhausted,
                  Format("it has %zu clients, %lld of user %u; at most %zu and %zu",
                         clients_.size(), static_cast<long long>(of_user), peer->uid,
                         limits_.clients, limits_.clients_of_user));
  }
  auto client = std::make_shared<Client>();
  client->peer = *peer;
  client->number = ++last_client_;
  client->connected = Clock::now();
  const int fd = socket.get();
  client->socket = std::move(socket);
  if (Watch(fd).ok()) clients_[fd] = std::move(client);
}

// Those that are gone although their last messages were not taken yet.
void Broker::Impl::DisconnectGone() {
  std::vector<pollfd> sockets;
  for (const auto& [fd, client] : clients_)
    sockets.push_back({.fd = fd, .events = 0, .revents = 0});
  if (poll(sockets.data(), sockets.size(), 0) <= 0) return;
  for (const pollfd& socket : sockets) {
    if ((socket.revents & POLLHUP) != 0) Disconnect(ClientPtr(clients_.at(socket.fd)));
  }
}

void Broker::Impl::Disconnect(const ClientPtr& client) {
  client->is_gone = true;
  epoll_ctl(events_.get(), EPOLL_CTL_DEL, client->socket.get(), nullptr);
  shutdown(client->socket.get(), SHUT_RDWR);
  for (const auto& [request, running] : client->running) Cancel(client.get(), request);
  client->queue.clear();
  client->incoming.clear();
  client->executables.clear();
  client->arenas.clear();
  clients_.erase(client->socket.get());
  Tidy();
}

// After something may have been left, or brought.
void Broker::Impl::Tidy() {
  if (store_.HasToTidy()) to_tidy_.notify_one();
}

void Broker::Impl::Answer(Client* client, uint32_t request, const Status& status,
                          const RequestReport& report, uint32_t value) {
  BrokerDone done = DoneOf(request, status, report);
  done.value = value;
  Send(client, done, TailOf(status.message()));
}

void Broker::Impl::AnswerList(Client* client, const BrokerList& list) {
  const uid_t user = client->peer.uid;
  std::vector<BrokerClientRow> rows = Rows();
  std::erase_if(rows, [&](const BrokerClientRow& row) {
    return row.number <= list.behind || row.number == client->number ||
           (user != 0 && user != geteuid() && user != row.user);
  });
  std::ranges::sort(rows, {}, &BrokerClientRow::number);
  rows.resize(std::min(rows.size(), kBrokerRowsMax));
  BrokerDone done = DoneOf(list.request, {}, {});
  done.value = static_cast<uint32_t>(rows.size());
  Send(client, done,
       {reinterpret_cast<const uint8_t*>(rows.data()), rows.size() * sizeof(BrokerClientRow)});
}

void Broker::Impl::Send(Client* client, const BrokerDone& done, std::span<const uint8_t> tail) {
  if (client->is_gone) return;
  // It does not read, or is gone: the thread that watches it sees the end, and disconnects it.
  if (!SendMessage(client->socket.get(), WriteBrokerMessage(done, tail)).ok()) {
    shutdown(client->socket.get(), SHUT_RDWR);
  }
}

// To everybody who does not know yet how the device is, and reads what it is told.
void Broker::Impl::TellState() {
  const BrokerState now = StateOf(device_->state(), device_->health());
  const bool has_changed = std::memcmp(&now, &state_, sizeof(now)) != 0;
  state_ = now;
  for (const auto& [fd, client] : clients_) {
    if (has_changed) client->state_untold = true;
    if (!client->state_untold || !client->has_said_hello) continue;
    int unread = 0;
    if (ioctl(fd, SIOCOUTQ, &unread) != 0 || unread > kUnreadBytesMax) continue;
    client->state_untold = !SendMessage(fd, WriteBrokerMessage(state_)).ok();
  }
}

void Broker::Impl::Look() {
  const size_t workers_max = device_->jobs_in_flight_max() + 1;
  const std::lock_guard lock(mutex_);
  workers_max_ = workers_max;
  const Deadline now = Clock::now();
  std::vector<ClientPtr> silent;
  for (const auto& [fd, client] : clients_) {
    if (!client->has_said_hello && now - client->connected > kHelloTimeout) {
      silent.push_back(client);
    }
    std::erase_if(client->queue, [&, its = client.get()](const BrokerPending& pending) {
      if (now < pending.deadline) return false;
      Answer(its, pending.request, Timeout("its time passed while it waited for its turn"));
      return true;
    });
  }
  for (const ClientPtr& client : silent) Disconnect(client);
  TellState();
  Tidy();
}

// ---- Messages -----------------------------------------------------------------------------------

void Broker::Impl::TakeMessages(const ClientPtr& client) {
  // So many before others have their turn.
  constexpr int kMessages = 16;
  for (int i = 0; i < kMessages; ++i) {
    const Status status = ReceiveMessage(client->socket.get(), Clock::now(), &message_);
    if (status.code() == StatusCode::kTimeout) return;
    const std::lock_guard lock(mutex_);
    if (client->is_gone) return;
    const bool goes_on = status.ok() && Take(client, &message_);
    message_.fds.clear();
    if (goes_on) continue;
    return Disconnect(client);
  }
}

bool Broker::Impl::Take(const ClientPtr& client, ReceivedMessage* message) {
  uint32_t type = 0;
  if (message->bytes.size() < sizeof(type)) return false;
  std::memcpy(&type, message->bytes.data(), sizeof(type));
  if (!client->has_said_hello) return TakeHello(client.get(), *message);
  const auto kind = static_cast<BrokerMessage>(type);
  const bool has_file = kind == BrokerMessage::kArena || kind == BrokerMessage::kLoad;
  if (message->fds.size() != (has_file ? 1u : 0u)) return false;
  const auto answer_error = [&](uint32_t request, const Status& status) {
    if (!status.ok()) Answer(client.get(), request, status);
    return true;
  };
  switch (kind) {
    case BrokerMessage::kArena: {
      const auto arena = ReadBrokerMessage<BrokerArena>(message->bytes);
      if (!arena.has_value()) return false;
      Answer(client.get(), arena->message.request,
             TakeArena(client.get(), arena->message, message->fds[0]));
      return true;
    }
    case BrokerMessage::kLoad: {
      const auto load = ReadBrokerMessage<BrokerLoad>(message->bytes);
      return load.has_value() &&
             answer_error(load->message.request,
                          TakeLoad(client.get(), *load, std::move(message->fds[0])));
    }
    case BrokerMessage::kReset: {
      const auto reset = ReadBrokerMessage<BrokerReset>(message->bytes);
      return reset.has_value() &&
             answer_error(reset->message.request, TakeReset(client.get(), reset->message));
    }
    case BrokerMessage::kList: {
      const auto list = ReadBrokerMessage<BrokerList>(message->bytes);
      if (list.has_value()) AnswerList(client.get(), list->message);
      return list.has_value();
    }
    case BrokerMessage::kSubmit: {
      const auto submit = ReadBrokerMessage<BrokerSubmit>(message->bytes);
      return submit.has_value() &&
             answer_error(submit->message.request, TakeSubmit(client, *submit));
    }
    case BrokerMessage::kUnload: {
      const auto unload = ReadBrokerMessage<BrokerUnload>(message->bytes);
      if (!unload.has_value() || client->executables.erase(unload->message.executable) == 0) {
        return false;
      }
      Tidy();
      return true;
    }
    case BrokerMessage::kDrop: {
      const auto drop = ReadBrokerMessage<BrokerDrop>(message->bytes);
      if (!drop.has_value() || client->arenas.erase(drop->message.arena) == 0) return false;
      Tidy();
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
  const int socket = client->socket.get();
  if (hello->message.protocol_min > kBrokerProtocolMax ||
      hello->message.protocol_max < kBrokerProtocolMin) {
    Refuse(socket, StatusCode::kUnsupported,
           Format("it speaks protocol %u to %u, the client %u to %u; bring the older of the two up "
                  "to date",
                  kBrokerProtocolMin, kBrokerProtocolMax, hello->message.protocol_min,
                  hello->message.protocol_max));
    return false;
  }
  if (is_stopping_) {
    Refuse(socket, StatusCode::kDeviceLost, "it is about to stop");
    return false;
  }
  client->has_said_hello = true;
  client->name = TextOf(hello->tail);
  if (share_of_) client->share = share_of_(client->peer, client->name);
  const DeviceInfo& info = device_->info();
  if (!SendMessage(socket, WriteBrokerMessage(
                               WelcomeOf(info),
                               TailOf(info.description.empty() ? info.name : info.description)))
           .ok()) {
    return false;
  }
  // Whoever hears nothing more takes it for a device that is ready, and that nothing happened to.
  const BrokerState fine = StateOf(DeviceState::kReady, {});
  client->state_untold = std::memcmp(&state_, &fine, sizeof(fine)) != 0;
  if (client->state_untold)
    client->state_untold = !SendMessage(socket, WriteBrokerMessage(state_)).ok();
  return true;
}

Status Broker::Impl::TakeArena(Client* client, const BrokerArena& arena,
                               const FileDescriptor& file) {
  // One of the same id goes first, so that the new one has its room, unless a request has it still.
  client->arenas.erase(arena.id);
  const BrokerShare& share = client->share;
  if (arena.bytes > share.bytes || *client->bytes + arena.bytes > share.bytes) {
    return ResourceExhausted(
        "the broker gives each client %llu bytes; %llu and these %llu are more",
        static_cast<unsigned long long>(share.bytes),
        static_cast<unsigned long long>(*client->bytes),
        static_cast<unsigned long long>(arena.bytes));
  }
  if (client->arenas.size() >= share.arenas) {
    return ResourceExhausted("a client has at most %zu arenas", share.arenas);
  }
  ATOLL_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Map(file.get(), arena.bytes));
  client->arenas[arena.id] =
      store_.Add(std::move(memory), std::make_unique<BrokerCharge>(client->bytes, arena.bytes));
  Tidy();
  return {};
}

Status Broker::Impl::TakeLoad(Client* client, const BrokerReceived<BrokerLoad>& received,
                              FileDescriptor file) {
  const BrokerLoad& load = received.message;
  const BrokerShare& share = client->share;
  if (client->executables.size() + client->executables_coming >= share.executables) {
    return ResourceExhausted("the broker keeps %zu executables for each client", share.executables);
  }
  if (load.bytes > share.bytes || *client->bytes + load.bytes > share.bytes) {
    return ResourceExhausted(
        "the broker gives each client %llu bytes; %llu and an executable of %llu are more",
        static_cast<unsigned long long>(share.bytes),
        static_cast<unsigned long long>(*client->bytes),
        static_cast<unsigned long long>(load.bytes));
  }
  ++client->executables_coming;
  TakeIncoming(client, {.request = load.request,
                        .residency_set = load.residency_set,
                        .bytes = load.bytes,
                        .file = std::move(file),
                        .name = TextOf(received.tail)});
  return {};
}

Status Broker::Impl::TakeReset(Client* client, const BrokerReset& reset) {
  if (!client->share.may_reset) {
    return {StatusCode::kPermissionDenied,
            Format("user %u may not reset the device that the broker shares", client->peer.uid)};
  }
  const bool is_coming = std::any_of(client->incoming.begin(), client->incoming.end(),
                                     [](const BrokerIncoming& other) { return other.is_reset; });
  if (is_coming) return {StatusCode::kDeviceBusy, "it is about to be reset already"};
  TakeIncoming(client, {.is_reset = true, .request = reset.request});
  return {};
}

void Broker::Impl::TakeIncoming(Client* client, BrokerIncoming incoming) {
  incoming.charge = std::make_unique<BrokerCharge>(client->bytes, incoming.bytes);
  client->incoming.push_back(std::move(incoming));
  incoming_changed_.notify_one();
}

Status Broker::Impl::TakeSubmit(const ClientPtr& client,
                                const BrokerReceived<BrokerSubmit>& submit) {
  // It goes elsewhere: to the next broker, once that is there.
  if (is_stopping_) return DeviceLost("the broker is about to stop");
  if (client->queue.size() + client->running.size() >= client->share.requests) {
    return ResourceExhausted("the broker takes %zu requests of a client at a time",
                             client->share.requests);
  }
  ATOLL_ASSIGN_OR_RETURN(BrokerPending pending, ReadBrokerSubmit(client, submit));
  // One that had nothing to do does not catch up.
  if (client->queue.empty() && client->running.empty()) {
    client->used = std::max(client->used, used_);
  }
  client->Enqueue(std::move(pending));
  changed_.notify_one();
  return {};
}

void Broker::Impl::Cancel(Client* client, uint32_t request) {
  const auto queued =
      std::find_if(client->queue.begin(), client->queue.end(),
                   [&](const BrokerPending& one) { return one.request == request; });
  if (queued != client->queue.end()) {
    client->queue.erase(queued);
    Answer(client, request, {StatusCode::kCancelled, "cancelled before it began"});
    return Tidy();
  }
  const auto running = client->running.find(request);
  if (running == client->running.end()) return;  // it has been answered
  if (std::exchange(running->second.is_cancelled, true)) return;
  if (running->second.id != 0) (void)device_->Cancel(running->second.id);
}

// ---- Work ---------------------------------------------------------------------------------------

// Whose first request is next; nullptr if there is none.
BrokerConnection* Broker::Impl::Next() {
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
    changed_.wait(lock, [&] {
      next = running_ < workers_max_ ? Next() : nullptr;
      return next != nullptr || is_stopping_;
    });
    if (next == nullptr) return;
    {
      const BrokerPending pending = std::move(next->queue.front());
      Client& client = *pending.client;
      client.queue.pop_front();
      client.running[pending.request] = {};
      used_ = std::max(used_, client.used);
      ++running_;
      RequestReport report;
      const Clock::time_point start = Clock::now();
      const Status status = Execute(pending, &lock, &report);
      // What was tried in vain took time, too, of which the report knows nothing.
      const int64_t busy_ns = report.link_out_ns + report.compute_ns + report.link_in_ns;
      const bool is_all = status.ok() && report.replays == 0 && busy_ns > 0;
      const Clock::time_point end = Clock::now();
      const double seconds = is_all ? static_cast<double>(busy_ns) * 1e-9
                                    : std::chrono::duration<double>(end - start).count();
      client.used += seconds / client.share.weight;
      client.device_seconds += seconds;
      client.used_of_late.Add(end, seconds);
      used_of_late_.Add(end, seconds);
      ++client.requests;
      client.running.erase(pending.request);
      --running_;
      report.queue_ns += std::chrono::nanoseconds(start - pending.came).count();
      Answer(&client, pending.request, status, report);
      if (!is_all) TellState();
    }
    Tidy();
  }
}

Status Broker::Impl::Execute(const BrokerPending& pending, Lock* lock, RequestReport* report) {
  const BrokerLoaded& loaded = *pending.executable->loaded;
  const size_t inputs = loaded.executable->inputs.size();
  Request request;
  request.executable = loaded.id;
  request.inputs.assign(pending.buffers.begin(), pending.buffers.begin() + inputs);
  request.outputs.assign(pending.buffers.begin() + inputs, pending.buffers.end());
  const auto left = pending.deadline - Clock::now();
  if (left <= Clock::duration::zero()) {
    return Timeout("its time passed while it waited for its turn");
  }
  request.timeout = std::chrono::ceil<std::chrono::milliseconds>(left);
  request.priority = pending.priority;
  lock->unlock();
  const Result<RequestId> id = device_->Submit(request);
  lock->lock();
  if (!id.ok()) return id.status();
  Client::Running& running = pending.client->running[pending.request];
  running.id = *id;
  if (running.is_cancelled) (void)device_->Cancel(*id);
  lock->unlock();
  Status status = device_->Wait(*id, report);
  lock->lock();
  return status;
}

// ---- Executables and memory ---------------------------------------------------------------------

// Who comes behind the one whose turn it was, in a circle.
std::shared_ptr<BrokerConnection> Broker::Impl::NextIncoming() {
  ClientPtr first;
  for (const auto& [fd, client] : clients_) {
    if (client->incoming.empty()) continue;
    if (fd > last_incoming_) return client;
    if (first == nullptr) first = client;
  }
  return first;
}

void Broker::Impl::TakeIn() {
  Lock lock(mutex_);
  for (;;) {
    ClientPtr client;
    incoming_changed_.wait(lock, [&] {
      client = NextIncoming();
      return client != nullptr || has_stopped_;
    });
    if (client == nullptr) return;
    last_incoming_ = client->socket.get();
    BrokerIncoming incoming = std::move(client->incoming.front());
    client->incoming.pop_front();
    if (incoming.is_reset) {
      lock.unlock();
      const Status status = device_->Reset();
      lock.lock();
      Answer(client.get(), incoming.request, status);
      TellState();
      continue;
    }
    const Result<uint32_t> number = TakeInExecutable(client.get(), &incoming, &lock);
    --client->executables_coming;
    Answer(client.get(), incoming.request, number.status(), {}, number.ok() ? *number : 0);
    Tidy();
  }
}

void Broker::Impl::TidyUp() {
  Lock lock(mutex_);
  for (;;) {
    to_tidy_.wait(lock, [&] { return store_.HasToTidy() || tidies_last_; });
    if (!store_.HasToTidy()) return;
    store_.Tidy(&lock);
  }
}

Result<uint32_t> Broker::Impl::TakeInExecutable(Client* client, BrokerIncoming* incoming,
                                                Lock* lock) {
  // Sets are a client's own. Two that have the same number by chance are kept together, which
  // only decides who makes room for whom.
  constexpr uint32_t kSets = 64;
  uint32_t set = 0;
  if (incoming->residency_set != 0) {
    set = std::max(client->number * kSets + incoming->residency_set % kSets, 1u);
  }
  // Only this thread loads.
  ATOLL_ASSIGN_OR_RETURN(auto loaded, store_.Load(incoming->file.get(), incoming->bytes,
                                                  std::move(incoming->name), set, lock));
  if (client->is_gone) return Status(StatusCode::kCancelled, "the client is gone");
  const uint32_t number = ++client->last_executable;
  client->executables[number] = std::make_shared<const BrokerClientExecutable>(
      BrokerClientExecutable{std::move(loaded), std::move(incoming->charge)});
  return number;
}

// ---- The broker ---------------------------------------------------------------------------------

std::vector<BrokerClientRow> Broker::Impl::Rows() const {
  const Clock::time_point now = Clock::now();
  const double all = used_of_late_.Sum(now);
  std::vector<BrokerClientRow> rows;
  for (const auto& [fd, client] : clients_) {
    if (!client->has_said_hello) continue;
    BrokerClientRow& row = rows.emplace_back();
    row.number = client->number;
    row.user = client->peer.uid;
    row.process = static_cast<uint32_t>(client->peer.pid);
    row.priority_max = client->share.priority_max;
    row.weight = client->share.weight;
    row.device_seconds = client->device_seconds;
    if (all > 0) row.share = client->used_of_late.Sum(now) / all;
    row.requests = client->requests;
    row.bytes = *client->bytes;
    row.running = static_cast<uint32_t>(client->running.size());
    row.waiting = static_cast<uint32_t>(client->queue.size());
    row.executables = static_cast<uint32_t>(client->executables.size());
    std::copy_n(client->name.begin(), std::min(client->name.size(), sizeof(row.name)), row.name);
  }
  return rows;
}

Status Broker::Impl::Run() {
  std::thread taking_in([this] { TakeIn(); });
  std::thread tidying([this] { TidyUp(); });
  std::vector<std::thread> workers;
  Status status;
  std::optional<Deadline> drained;
  const auto is_idle = [&] {
    const std::lock_guard lock(mutex_);
    return running_ == 0 && Next() == nullptr;
  };
  Deadline next_look = Clock::now();
  while (!drained.has_value() || (Clock::now() < *drained && !is_idle())) {
    if (Clock::now() >= next_look) {
      Look();
      next_look = Clock::now() + kLookPause;
      // A device that is away has fewer requests under way than when it is there.
      while (workers.size() < workers_max_) workers.emplace_back([this] { Work(); });
    }
    std::array<epoll_event, 64> events;
    constexpr int kDrainMs = 5;
    const int count = epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()),
                                 drained.has_value() ? kDrainMs : int{kLookPause.count()});
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
        epoll_ctl(events_.get(), EPOLL_CTL_DEL, endpoint_.listener.get(), nullptr);
        drained = Clock::now() + drain_timeout_;
        changed_.notify_all();
      } else if (fd == endpoint_.listener.get()) {
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
  }
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    for (const auto& [fd, client] : clients_) {
      client->queue.clear();
      for (const auto& [request, running] : client->running) Cancel(client.get(), request);
    }
  }
  changed_.notify_all();
  for (std::thread& worker : workers) worker.join();
  {
    // Whoever sees the end of its connection may use its memory again.
    const std::lock_guard lock(mutex_);
    while (!clients_.empty()) Disconnect(ClientPtr(clients_.begin()->second));
    has_stopped_ = true;
  }
  incoming_changed_.notify_one();
  taking_in.join();
  {
    const std::lock_guard lock(mutex_);
    tidies_last_ = true;
  }
  to_tidy_.notify_one();
  tidying.join();
  return status;
}

Broker::Broker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Broker::~Broker() = default;

Result<std::unique_ptr<Broker>> Broker::Create(std::unique_ptr<Device> device,
                                               BrokerOptions options) {
  ATOLL_ASSIGN_OR_RETURN(BrokerEndpoint endpoint, BrokerEndpoint::Open(options.path));
  FileDescriptor stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  FileDescriptor events(epoll_create1(EPOLL_CLOEXEC));
  auto impl = std::make_unique<Impl>(std::move(device), std::move(options), std::move(endpoint),
                                     std::move(stop), std::move(events));
  ATOLL_RETURN_IF_ERROR(impl->WatchAll());
  return std::unique_ptr<Broker>(new Broker(std::move(impl)));
}

const std::string& Broker::path() const { return impl_->path(); }
const DeviceInfo& Broker::device() const { return impl_->device(); }
std::vector<BrokerClientRow> Broker::clients() const { return impl_->clients(); }
void Broker::SetShares(BrokerShares share_of) { impl_->SetShares(std::move(share_of)); }
size_t Broker::executables() const { return impl_->executables(); }
Status Broker::Run() { return impl_->Run(); }
void Broker::Stop() { impl_->Stop(); }

}  // namespace atollrt
