// SPDX-License-Identifier: Apache-2.0
//
// A broker with an emulated device, and clients of all kinds.
#include "serve/broker/broker.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "driver/broker/broker_chip.h"
#include "driver/broker/messages.h"
#include "driver/open_device.h"
#include "tests/support/emulated_device.h"
#include "tests/support/rng.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "broker_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string socket() const { return path_ + "/broker.sock"; }

 private:
  std::string path_;
};

// A broker that serves, until its end.
class Serving {
 public:
  explicit Serving(const std::string& path, BrokerOptions options = {}) {
    options.path = path;
    auto broker = Broker::Create(EmulatedDevice().Open(), std::move(options));
    EXPECT_TRUE(broker.ok()) << broker.status().message();
    broker_ = *std::move(broker);
    thread_ = std::thread([this] { EXPECT_TRUE(broker_->Run().ok()); });
  }
  ~Serving() {
    broker_->Stop();
    thread_.join();
  }
  Broker* operator->() const { return broker_.get(); }

 private:
  std::unique_ptr<Broker> broker_;
  std::thread thread_;
};

// Looks until it is so, and no more often than lets the broker go on. False after a minute.
template <typename Predicate>
bool Eventually(const Predicate& is_so) {
  const Deadline deadline = Clock::now() + std::chrono::minutes(1);
  while (!is_so()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

std::unique_ptr<Device> OpenAt(const std::string& path,
                               OnDeviceLoss on_loss = OnDeviceLoss::kFail) {
  auto device = OpenDevice({.device = "broker:" + path, .on_loss = on_loss});
  EXPECT_TRUE(device.ok()) << device.status().message();
  return device.ok() ? *std::move(device) : nullptr;
}

std::shared_ptr<const Executable> Table(uint8_t offset, uint32_t count = 8) {
  return std::make_shared<const Executable>(
      MakeTableExecutable({.count = count, .offset = offset}));
}

// One request: whether its bytes are right.
Status RunTable(Device* device, ExecutableId id, uint8_t offset, uint8_t first, size_t count = 8) {
  std::vector<uint8_t> input(count), output(count);
  for (size_t i = 0; i < count; ++i) input[i] = static_cast<uint8_t>(first + i);
  Request request;
  request.executable = id;
  request.inputs = {input};
  request.outputs = {output};
  ATOLL_ASSIGN_OR_RETURN(const RequestId submitted, device->Submit(request));
  RequestReport report;
  ATOLL_RETURN_IF_ERROR(device->Wait(submitted, &report));
  for (size_t i = 0; i < count; ++i) {
    if (output[i] != static_cast<uint8_t>(input[i] + offset)) {
      return InternalError("byte %zu is %u", i, output[i]);
    }
  }
  return {};
}

// A client that says what it wants.
class RawClient {
 public:
  explicit RawClient(const std::string& path) : socket_(*ConnectTo(path)) {}
  bool Send(std::span<const uint8_t> message, int fd = -1) {
    return SendMessage(socket_.get(), message, fd).ok();
  }
  template <typename T>
  requires requires { T::kType; }
  bool Send(const T& message, int fd = -1) { return Send(WriteBrokerMessage(message), fd); }
  // nullopt once the broker has hung up.
  std::optional<ReceivedMessage> Receive() {
    ReceivedMessage message;
    const Status status =
        ReceiveMessage(socket_.get(), Clock::now() + std::chrono::seconds(20), &message);
    EXPECT_NE(status.code(), StatusCode::kTimeout);
    if (!status.ok()) return std::nullopt;
    return message;
  }
  // Of the next answer; kOk and kInternal are no errors of this kind.
  Status Answered(uint32_t* value = nullptr) {
    const auto message = Receive();
    if (!message.has_value()) return DeviceLost("hung up");
    const auto done = ReadBrokerMessage<BrokerDone>(message->bytes);
    if (!done.has_value()) return InternalError("no answer");
    if (value != nullptr) *value = done->message.value;
    return StatusOf(done->message, TextOf(done->tail));
  }
  bool Hello(const std::string& name = "raw") {
    if (!Send(WriteBrokerMessage(BrokerHello(), TailOf(name)))) return false;
    const auto message = Receive();
    return message.has_value() && ReadBrokerMessage<BrokerWelcome>(message->bytes).has_value();
  }
  // The number of the executable.
  uint32_t Load(const Executable& executable) {
    const std::vector<uint8_t> stored = WriteExecutable(executable);
    const auto memory = SharedMemory::Create(stored.size());
    std::copy(stored.begin(), stored.end(), memory->bytes().begin());
    BrokerLoad load;
    load.request = 1;
    load.bytes = stored.size();
    uint32_t number = 0;
    EXPECT_TRUE(Send(load, memory->fd()));
    EXPECT_TRUE(Answered(&number).ok());
    return number;
  }
  Status Arena(size_t bytes) {
    ATOLL_ASSIGN_OR_RETURN(memory_, SharedMemory::Create(bytes));
    BrokerArena arena;
    arena.request = 2;
    arena.bytes = bytes;
    arena.id = 1;
    EXPECT_TRUE(Send(arena, memory_.fd()));
    return Answered();
  }
  bool Submit(uint32_t request, uint32_t executable, std::vector<uint64_t> offsets,
              uint32_t arena = 1) {
    BrokerSubmit submit;
    submit.request = request;
    submit.executable = executable;
    submit.timeout_ms = 60'000;
    submit.arena = arena;
    submit.buffers = static_cast<uint32_t>(offsets.size());
    return Send(WriteBrokerMessage(
        submit, {reinterpret_cast<const uint8_t*>(offsets.data()), offsets.size() * 8}));
  }
  int socket() const { return socket_.get(); }

 private:
  FileDescriptor socket_;
  SharedMemory memory_;
};

size_t OpenFiles() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

TEST(Broker, ServesSeveralProgramsTheSameBytes) {
  const Folder folder;
  const Serving broker(folder.socket());
  std::vector<std::thread> clients;
  for (uint8_t client = 0; client < 4; ++client) {
    clients.emplace_back([&folder, client] {
      const auto device = OpenAt(folder.socket());
      ASSERT_NE(device, nullptr);
      EXPECT_THAT(device->info().description, HasSubstr("by the broker at"));
      const auto id = device->Load(Table(client));
      ASSERT_TRUE(id.ok()) << id.status().message();
      std::vector<std::thread> threads;
      for (int thread = 0; thread < 2; ++thread) {
        threads.emplace_back([&] {
          for (int i = 0; i < TestCount(100); ++i) {
            const Status status = RunTable(device.get(), *id, client, static_cast<uint8_t>(i));
            ASSERT_TRUE(status.ok()) << status.message();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST(Broker, KeepsAnExecutableOfSeveralClientsOnce) {
  const Folder folder;
  const Serving broker(folder.socket());
  auto first = OpenAt(folder.socket());
  auto second = OpenAt(folder.socket());
  ASSERT_TRUE(first->Load(Table(1)).ok());
  const auto shared = second->Load(Table(1));
  ASSERT_TRUE(shared.ok());
  EXPECT_EQ(broker->executables(), 1u);
  ASSERT_TRUE(second->Load(Table(2)).ok());
  EXPECT_EQ(broker->executables(), 2u);
  first.reset();
  EXPECT_TRUE(RunTable(second.get(), *shared, 1, 5).ok());
  second.reset();
  EXPECT_TRUE(Eventually([&] { return broker->executables() == 0; }));
}

TEST(Broker, SaysWhoIsThereAlready) {
  const Folder folder;
  const Serving broker(folder.socket());
  BrokerOptions options;
  options.path = folder.socket();
  const auto second = Broker::Create(EmulatedDevice().Open(), options);
  EXPECT_EQ(second.status().code(), StatusCode::kDeviceBusy);
  EXPECT_THAT(second.status().message(), HasSubstr(std::to_string(getpid())));
}

TEST(Broker, TakesThePlaceOfOneThatDied) {
  const Folder folder;
  { const auto dead = ListenAt(folder.socket()); }  // its socket stays
  EXPECT_EQ(OpenDevice({.device = "broker:" + folder.socket()}).status().code(),
            StatusCode::kNotFound);
  const Serving broker(folder.socket());
  EXPECT_NE(OpenAt(folder.socket()), nullptr);
}

TEST(Broker, IsReplacedUnderRequestsOfWhichNoneIsLost) {
  const Folder folder;
  auto broker = std::make_unique<Serving>(folder.socket());
  const auto device = OpenAt(folder.socket(), OnDeviceLoss::kReplay);
  const auto id = device->Load(Table(7));
  ASSERT_TRUE(id.ok());
  std::atomic<bool> stop{false};
  std::thread client([&] {
    for (uint8_t i = 0; !stop; ++i) {
      const Status status = RunTable(device.get(), *id, 7, i);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  });
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    broker.reset();
    broker = std::make_unique<Serving>(folder.socket());
  }
  stop = true;
  client.join();
  EXPECT_GE(device->health().reopenings, 1u);
}

// Not a test, but the other process of the next one.
TEST(Broker, DISABLED_ServesAsAProcess) {
  const char* const path = getenv("BROKER_TEST_SOCKET");
  ASSERT_NE(path, nullptr);
  const Serving broker(path);
  for (;;) pause();
}

// A broker in a process of its own that dies in the middle: as above, but nothing is drained.
TEST(Broker, IsKilledUnderRequestsOfWhichNoneIsLost) {
  const Folder folder;
  const auto start = [&] {
    std::string variable = "BROKER_TEST_SOCKET=" + folder.socket();
    std::vector<std::string> words = {"broker", "--gtest_also_run_disabled_tests",
                                      "--gtest_filter=Broker.DISABLED_ServesAsAProcess"};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    std::vector<char*> variables = {variable.data(), nullptr};
    const pid_t process = fork();
    if (process == 0) {
      const int null = open("/dev/null", O_WRONLY);
      dup2(null, STDOUT_FILENO);
      execve("/proc/self/exe", arguments.data(), variables.data());
      _exit(127);
    }
    return process;
  };
  pid_t process = start();
  std::unique_ptr<Device> device;
  for (int i = 0; i < 1000 && device == nullptr; ++i) {
    auto opened =
        OpenDevice({.device = "broker:" + folder.socket(), .on_loss = OnDeviceLoss::kReplay});
    if (opened.ok()) device = *std::move(opened);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ASSERT_NE(device, nullptr);
  const auto id = device->Load(Table(9));
  ASSERT_TRUE(id.ok());
  std::atomic<int> done{0};
  std::atomic<bool> stop{false};
  std::thread client([&] {
    for (uint8_t i = 0; !stop; ++i, ++done) {
      const Status status = RunTable(device.get(), *id, 9, i);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  });
  for (int round = 0; round < 3; ++round) {
    const int before = done;
    EXPECT_TRUE(Eventually([&] { return done >= before + 20; }));
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
    process = start();
  }
  const int before = done;
  EXPECT_TRUE(Eventually([&] { return done >= before + 20; }));
  stop = true;
  client.join();
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
}

// Three to one, of requests that all wait from the beginning. How long each takes is measured, and
// what is measured is shared: at any time, what the two had by weight differs by what is under way.
TEST(Broker, SharesTheDeviceByWeight) {
  constexpr uint32_t kRequests = 200;  // whose answers all fit into a socket
  constexpr uint32_t kBytes = 1 << 20;
  const Folder folder;
  BrokerOptions options;
  options.limits.requests = kRequests;
  options.share_of = [](const Peer&, const std::string& name) {
    return BrokerShare{.weight = name == "three" ? 3.0 : 1.0};
  };
  const Serving broker(folder.socket(), options);
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<uint32_t> executables;
  for (const char* name : {"three", "one"}) {
    RawClient& client = *clients.emplace_back(std::make_unique<RawClient>(folder.socket()));
    ASSERT_TRUE(client.Hello(name));
    ASSERT_TRUE(client.Arena(2 * kBytes).ok());
    executables.push_back(client.Load(*Table(3, kBytes)));
  }
  for (uint32_t request = 0; request < kRequests; ++request) {
    for (size_t i = 0; i < clients.size(); ++i) {
      ASSERT_TRUE(Eventually([&] {  // a socket may be full
        return clients[i]->Submit(request, executables[i], {0, kBytes});
      }));
    }
  }
  const auto look = [&] {
    std::vector<BrokerClient> now = broker->clients();
    std::sort(now.begin(), now.end(), [](const auto& a, const auto& b) { return a.name > b.name; });
    return now;  // "three", "one"
  };
  std::vector<BrokerClient> begin, end;
  ASSERT_TRUE(Eventually([&] {
    begin = look();
    return begin[0].waiting + begin[0].requests == kRequests &&
           begin[1].waiting + begin[1].requests == kRequests;
  }));
  ASSERT_TRUE(Eventually([&] {
    const std::vector<BrokerClient> now = look();
    if (now[0].waiting <= 3 || now[1].waiting <= 3) return true;
    end = now;
    return false;
  }));
  int64_t longest_ns = 0;
  for (const auto& client : clients) {
    for (uint32_t i = 0; i < kRequests; ++i) {
      const auto message = client->Receive();
      ASSERT_TRUE(message.has_value());
      const auto done = ReadBrokerMessage<BrokerDone>(message->bytes);
      ASSERT_TRUE(done.has_value());
      const BrokerDone& its = done->message;
      EXPECT_EQ(its.code, 0u);
      longest_ns = std::max(longest_ns, its.link_out_ns + its.compute_ns + its.link_in_ns);
    }
  }
  ASSERT_THAT(end, SizeIs(2));
  const double three = end[0].device_seconds - begin[0].device_seconds;
  const double one = end[1].device_seconds - begin[1].device_seconds;
  EXPECT_GT(end[0].requests, begin[0].requests + 50);
  // Before both waited, what was under way was one's or the other's; likewise at the end.
  EXPECT_LE(std::abs(three / 3 - one), 4e-9 * static_cast<double>(longest_ns));
  RecordProperty("ratio", std::to_string(three / one));
}

// What a hostile client gets, and that another one goes on.
class HostileClient : public ::testing::Test {
 protected:
  HostileClient() : broker_(folder_.socket()), honest_(OpenAt(folder_.socket())) {
    id_ = *honest_->Load(Table(5));
  }
  ~HostileClient() override { EXPECT_TRUE(RunTable(honest_.get(), id_, 5, 1).ok()); }

  const Folder folder_;
  const Serving broker_;
  std::unique_ptr<Device> honest_;
  ExecutableId id_ = 0;
};

TEST_F(HostileClient, IsHungUpOnForWhatIsNoMessage) {
  const std::vector<uint8_t> nothing_known(64, 0xee);
  std::vector<uint8_t> too_long(kBrokerMessageBytes + 1);
  BrokerHello other_magic;
  other_magic.magic = 1;
  const std::vector<std::vector<uint8_t>> first = {{1},
                                                   nothing_known,
                                                   too_long,
                                                   WriteBrokerMessage(other_magic),
                                                   WriteBrokerMessage(BrokerUnload())};
  for (const auto& message : first) {
    RawClient client(folder_.socket());
    ASSERT_TRUE(client.Send(message));
    EXPECT_FALSE(client.Receive().has_value()) << message.size();
  }
  BrokerUnload unknown;
  unknown.executable = 99;
  const std::vector<std::vector<uint8_t>> later = {{1},
                                                   nothing_known,
                                                   too_long,
                                                   WriteBrokerMessage(unknown),
                                                   WriteBrokerMessage(BrokerHello()),
                                                   WriteBrokerMessage(BrokerArena()),
                                                   WriteBrokerMessage(BrokerWelcome())};
  for (const auto& message : later) {
    RawClient client(folder_.socket());
    ASSERT_TRUE(client.Hello());
    ASSERT_TRUE(client.Send(message));
    EXPECT_FALSE(client.Receive().has_value()) << message.size();
  }
}

TEST_F(HostileClient, IsToldWhichProtocolsThereAre) {
  RawClient client(folder_.socket());
  BrokerHello hello;
  hello.protocol_min = hello.protocol_max = 77;
  ASSERT_TRUE(client.Send(hello));
  const auto message = client.Receive();
  ASSERT_TRUE(message.has_value());
  const auto welcome = ReadBrokerMessage<BrokerWelcome>(message->bytes);
  ASSERT_TRUE(welcome.has_value());
  EXPECT_EQ(welcome->message.protocol, 0u);
  EXPECT_THAT(TextOf(welcome->tail), HasSubstr("protocol 1 to 1, the client 77 to 77"));
}

TEST_F(HostileClient, GetsNoMemoryThatItCouldShrink) {
  RawClient client(folder_.socket());
  ASSERT_TRUE(client.Hello());
  const auto arena = [&](int fd, uint64_t bytes) {
    BrokerArena message;
    message.bytes = bytes;
    EXPECT_TRUE(client.Send(message, fd));
    return client.Answered().message();
  };
  const FileDescriptor unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  EXPECT_THAT(arena(unsealed.get(), 4096), HasSubstr("sealed"));
  const FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_THAT(arena(null.get(), 4096), HasSubstr("sealed"));
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  const FileDescriptor in(pipes[0]), out(pipes[1]);
  EXPECT_THAT(arena(in.get(), 4096), HasSubstr("sealed"));
  const auto memory = SharedMemory::Create(4096);
  EXPECT_THAT(arena(memory->fd(), 8192), HasSubstr("of 4096 bytes, said to be of 8192"));
  EXPECT_THAT(arena(memory->fd(), uint64_t{1} << 60), HasSubstr("are more"));
  EXPECT_EQ(arena(memory->fd(), 4096), "");
}

TEST_F(HostileClient, GetsNoBuffersBeyondItsArenaOrAboveEachOther) {
  RawClient client(folder_.socket());
  ASSERT_TRUE(client.Hello());
  const uint32_t executable = client.Load(*Table(1));
  ASSERT_TRUE(client.Arena(4096).ok());
  uint32_t request = 10;
  const auto answer = [&](std::vector<uint64_t> offsets, uint32_t of, uint32_t arena) {
    EXPECT_TRUE(client.Submit(++request, of, std::move(offsets), arena));
    return client.Answered().message();
  };
  EXPECT_THAT(answer({0, 4089}, executable, 1), HasSubstr("beyond its arena"));
  EXPECT_THAT(answer({UINT64_MAX, 0}, executable, 1), HasSubstr("beyond its arena"));
  EXPECT_THAT(answer({0, 7}, executable, 1), HasSubstr("overlaps"));
  EXPECT_THAT(answer({7, 0}, executable, 1), HasSubstr("overlaps"));
  EXPECT_THAT(answer({0}, executable, 1), HasSubstr("2 inputs and outputs, the request 1"));
  EXPECT_THAT(answer({0, 64}, executable + 1, 1), HasSubstr("no executable"));
  EXPECT_THAT(answer({0, 64}, executable, 2), HasSubstr("no arena"));
  EXPECT_EQ(answer({0, 64}, executable, 1), "");
  EXPECT_EQ(answer({4088, 0}, executable, 1), "");
}

TEST_F(HostileClient, IsHeldToItsQuotas) {
  RawClient client(folder_.socket());
  ASSERT_TRUE(client.Hello());
  const size_t most = BrokerLimits().executables;
  for (size_t i = 0; i < most; ++i) client.Load(*Table(1));
  const auto memory = SharedMemory::Create(64);
  BrokerLoad load;
  load.bytes = 64;
  ASSERT_TRUE(client.Send(load, memory->fd()));
  EXPECT_THAT(client.Answered().message(), HasSubstr("16 executables for each client"));
}

TEST_F(HostileClient, IsDisconnectedIfItDoesNotReadItsAnswers) {
  RawClient client(folder_.socket());
  ASSERT_TRUE(client.Hello());
  for (;;) {
    const Status sent =
        SendMessage(client.socket(), WriteBrokerMessage(BrokerSubmit()));  // refused, each
    if (sent.code() == StatusCode::kDeviceLost) break;
    ASSERT_TRUE(RunTable(honest_.get(), id_, 5, 2).ok());
  }
}

// Clients that go at any point, among them such as never said a whole sentence.
TEST_F(HostileClient, MayGoAtAnyTime) {
  Rng rng(TestSeed(1));
  const std::vector<uint8_t> stored = WriteExecutable(*Table(1));
  const auto run = [&] {
    RawClient client(folder_.socket());
    const int64_t last = rng.Int(0, 6);
    for (int64_t step = 0; step <= last; ++step) {
      switch (step) {
        case 1:
          client.Send(BrokerHello());
          break;
        case 2: {
          const auto memory = SharedMemory::Create(stored.size());
          std::copy(stored.begin(), stored.end(), memory->bytes().begin());
          BrokerLoad load;
          load.bytes = stored.size();
          client.Send(load, memory->fd());
          break;
        }
        case 3: {
          const auto memory = SharedMemory::Create(4096);
          BrokerArena arena;
          arena.bytes = 4096;
          arena.id = 1;
          client.Send(arena, memory->fd());
          break;
        }
        case 4:
          for (uint32_t i = 0; i < 8; ++i) client.Submit(i, 1, {0, 64});
          break;
        case 5: {
          BrokerCancel cancel;
          cancel.request = static_cast<uint32_t>(rng.Int(0, 9));
          client.Send(cancel);
          break;
        }
        case 6: {
          std::vector<uint8_t> bytes(static_cast<size_t>(rng.Int(1, 200)));
          for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Int(0, 255));
          bytes[0] = static_cast<uint8_t>(rng.Int(0, 7));
          client.Send(bytes);
          break;
        }
        default:
          break;
      }
    }
  };
  run();
  ASSERT_TRUE(RunTable(honest_.get(), id_, 5, 0).ok());
  EXPECT_TRUE(Eventually([&] { return broker_->clients().size() == 1; }));
  const size_t files = OpenFiles();
  for (int i = 0; i < TestCount(300); ++i) {
    run();
    if (i % 10 == 0) {
      const Status status = RunTable(honest_.get(), id_, 5, static_cast<uint8_t>(i));
      ASSERT_TRUE(status.ok()) << status.message();
    }
  }
  for (int i = 0; i < 500 && OpenFiles() > files; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LE(OpenFiles(), files);
  EXPECT_EQ(broker_->executables(), 1u);
}

}  // namespace
}  // namespace atollrt
