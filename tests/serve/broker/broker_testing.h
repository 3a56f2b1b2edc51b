// SPDX-License-Identifier: Apache-2.0
//
// Brokers with an emulated device, in this process and in others, and clients that say what they
// want.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "driver/broker/messages.h"
#include "driver/broker/socket.h"
#include "driver/open_device.h"
#include "serve/broker/broker.h"
#include "tests/support/emulated_device.h"
#include "tests/support/eventually.h"
#include "tests/support/test_executables.h"

namespace atollrt {

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
  explicit Serving(const std::string& path, BrokerOptions options = {},
                   std::unique_ptr<Device> device = EmulatedDevice().Open()) {
    options.path = path;
    auto broker = Broker::Create(std::move(device), std::move(options));
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

inline std::unique_ptr<Device> OpenAt(const std::string& path,
                                      OnDeviceLoss on_loss = OnDeviceLoss::kFail) {
  auto device = OpenDevice({.device = "broker:" + path, .on_loss = on_loss});
  EXPECT_TRUE(device.ok()) << device.status().message();
  return device.ok() ? *std::move(device) : nullptr;
}

inline std::shared_ptr<const Executable> Table(uint8_t offset, uint32_t count = 8) {
  return std::make_shared<const Executable>(
      MakeTableExecutable({.count = count, .offset = offset}));
}

// One request: whether its bytes are right.
inline Status RunTable(Device* device, ExecutableId id, uint8_t offset, uint8_t first,
                       size_t count = 8) {
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
  explicit RawClient(const std::string& path)
      : socket_(*ConnectTo(path, Clock::now() + std::chrono::minutes(1))) {}
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
    std::optional<ReceivedMessage> message;
    do {
      message = Receive();
      if (!message.has_value()) return DeviceLost("hung up");
    } while (ReadBrokerMessage<BrokerState>(message->bytes).has_value());
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
              uint32_t arena = 1, int32_t priority = 0, uint64_t timeout_ms = 60'000) {
    BrokerSubmit submit;
    submit.request = request;
    submit.executable = executable;
    submit.priority = priority;
    submit.timeout_ms = timeout_ms;
    submit.buffers = static_cast<uint32_t>(offsets.size());
    std::vector<BrokerBuffer> buffers;
    for (const uint64_t offset : offsets) buffers.push_back({.offset = offset, .arena = arena});
    return Send(WriteBrokerMessage(submit, {reinterpret_cast<const uint8_t*>(buffers.data()),
                                            buffers.size() * sizeof(BrokerBuffer)}));
  }
  int socket() const { return socket_.get(); }

 private:
  FileDescriptor socket_;
  SharedMemory memory_;
};

inline size_t OpenFiles(pid_t process = getpid()) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& file :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
    ++count;
  }
  return count;
}

// Another process of this program, which runs the disabled test `name` with one variable in its
// environment. Killed at the end.
class TestProcess {
 public:
  TestProcess(const std::string& name, std::string variable) {
    std::vector<std::string> words = {"test", "--gtest_also_run_disabled_tests",
                                      "--gtest_filter=" + name};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    std::vector<char*> variables = {variable.data(), nullptr};
    process_ = fork();
    if (process_ == 0) {
      const int null = open("/dev/null", O_WRONLY);
      dup2(null, STDOUT_FILENO);
      execve("/proc/self/exe", arguments.data(), variables.data());
      _exit(127);
    }
  }
  ~TestProcess() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  TestProcess(const TestProcess&) = delete;
  TestProcess& operator=(const TestProcess&) = delete;
  pid_t id() const { return process_; }
  // Until it stops itself. False if it ends instead.
  bool HasStopped() const {
    int status = 0;
    return waitpid(process_, &status, WUNTRACED) == process_ && WIFSTOPPED(status);
  }

 private:
  pid_t process_ = -1;
};

// A broker in a process of its own, which serves when this is there.
class BrokerProcess {
 public:
  explicit BrokerProcess(const std::string& path)
      : process_("Broker.DISABLED_ServesAsAProcess", "BROKER_TEST_SOCKET=" + path) {
    EXPECT_TRUE(Eventually([&] { return ConnectTo(path, Clock::now()).ok(); }));
  }
  pid_t id() const { return process_.id(); }
  // All of its threads, until SIGCONT.
  bool Stop() const { return kill(process_.id(), SIGSTOP) == 0 && process_.HasStopped(); }

 private:
  const TestProcess process_;
};

}  // namespace atollrt
