// SPDX-License-Identifier: Apache-2.0
//
// Clients that are processes, and are stopped and killed at every border of messages: others get
// each of their requests completed once, with the right bytes, and the broker keeps nothing.
#include <gtest/gtest.h>
#include <sys/types.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/buffer.h"
#include "tests/serve/broker/broker_testing.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

constexpr uint32_t kArenaBytes = 1 << 16;
constexpr int kMessages = 16;  // more than any client sends below

// A client that says `messages` messages, as a seed will have it, and stops there.
void SayAndStop(const std::string& path, uint64_t seed, int messages) {
  Rng rng(seed);
  int left = messages;
  const auto stops = [&] {
    if (left-- > 0) return false;
    raise(SIGSTOP);
    return true;
  };
  if (stops()) return;
  RawClient client(path);
  if (!client.Send(WriteBrokerMessage(BrokerHello(), TailOf("dies"))) || stops()) return;
  if (rng.Int(0, 1) == 0) (void)client.Receive();
  const std::vector<uint8_t> stored = WriteExecutable(*Table(1, 1 << 14));
  const auto program = SharedMemory::Create(stored.size());
  std::copy(stored.begin(), stored.end(), program->bytes().begin());
  BrokerLoad load;
  load.bytes = stored.size();
  if (!client.Send(load, program->fd()) || stops()) return;
  const auto memory = SharedMemory::Create(kArenaBytes);
  BrokerArena arena;
  arena.bytes = kArenaBytes;
  arena.id = 1;
  if (!client.Send(arena, memory->fd()) || stops()) return;
  // Half of them know that what they brought was taken.
  if (rng.Int(0, 1) == 0) {
    for (int answers = 0; answers < 2;) answers += client.Answered().ok() ? 1 : 0;
  }
  for (uint32_t request = 1;; ++request) {
    const int64_t what = rng.Int(0, 9);
    if (what == 0) {
      BrokerCancel cancel;
      cancel.request = request - 1;
      if (!client.Send(cancel) || stops()) return;
    } else if (!client.Submit(request, 1, {0, 1 << 14}) || stops()) {
      return;
    }
  }
}

// Not a test, but the process that dies. "PATH SEED MESSAGES".
TEST(BrokerDeath, DISABLED_SaysAndStops) {
  const char* const text = getenv("BROKER_TEST_CLIENT");
  ASSERT_NE(text, nullptr);
  char path[200] = {};
  unsigned long long seed = 0;
  int messages = 0;
  ASSERT_EQ(sscanf(text, "%199s %llu %d", path, &seed, &messages), 3);
  SayAndStop(path, seed, messages);
}

// A client whose requests are counted: each is answered once, with its own bytes.
class CountingClient {
 public:
  explicit CountingClient(const std::string& path) : client_(path) {
    EXPECT_TRUE(client_.Hello("counts"));
    memory_ = *SharedMemory::Create(kArenaBytes);
    BrokerArena arena;
    arena.bytes = kArenaBytes;
    arena.id = 1;
    EXPECT_TRUE(client_.Send(arena, memory_.fd()));
    EXPECT_TRUE(client_.Answered().ok());
    executable_ = client_.Load(*Table(kOffset));
  }

  // So many requests, several at a time.
  void Run(int requests) {
    std::map<uint32_t, size_t> under_way;  // request: its place in the arena
    for (int i = 0; i < requests; ++i) {
      if (under_way.size() == kAtATime) TakeOne(&under_way);
      size_t place = 0;
      while (std::any_of(under_way.begin(), under_way.end(),
                         [&](const auto& one) { return one.second == place; })) {
        ++place;
      }
      const uint32_t request = ++last_;
      const uint64_t offset = place * 2 * kBytes;
      for (size_t byte = 0; byte < kBytes; ++byte) {
        memory_.bytes()[offset + byte] = static_cast<uint8_t>(request + byte);
        memory_.bytes()[offset + kBytes + byte] = 0xee;
      }
      ASSERT_TRUE(client_.Submit(request, executable_, {offset, offset + kBytes}));
      under_way[request] = place;
    }
    while (!under_way.empty()) TakeOne(&under_way);
  }

 private:
  static constexpr uint8_t kOffset = 77;
  static constexpr size_t kBytes = 8;
  static constexpr size_t kAtATime = 6;

  void TakeOne(std::map<uint32_t, size_t>* under_way) {
    const auto message = client_.Receive();
    ASSERT_TRUE(message.has_value());
    const auto done = ReadBrokerMessage<BrokerDone>(message->bytes);
    ASSERT_TRUE(done.has_value());
    ASSERT_EQ(done->message.code, 0u) << TextOf(done->tail);
    const uint32_t request = done->message.request;
    ASSERT_TRUE(under_way->contains(request)) << request;  // and not twice
    const uint64_t offset = (*under_way)[request] * 2 * kBytes;
    for (size_t byte = 0; byte < kBytes; ++byte) {
      ASSERT_EQ(memory_.bytes()[offset + kBytes + byte],
                static_cast<uint8_t>(request + byte + kOffset));
    }
    under_way->erase(request);
  }

  RawClient client_;
  SharedMemory memory_;
  uint32_t executable_ = 0;
  uint32_t last_ = 0;
};

// Each is first stopped, and hurts nobody either.
TEST(BrokerDeath, OfAClientAtAnyBorderOfMessages) {
  const Folder folder;
  const Serving broker(folder.socket());
  CountingClient honest(folder.socket());
  honest.Run(10);
  const size_t files = OpenFiles();
  const uint64_t seed = TestSeed(1);
  const int rounds = TestCount(2);
  for (int round = 0; round < rounds; ++round) {
    for (int messages = 0; messages < kMessages; ++messages) {
      SCOPED_TRACE(messages);
      {
        const TestProcess dying("BrokerDeath.DISABLED_SaysAndStops",
                                Format("BROKER_TEST_CLIENT=%s %llu %d", folder.socket().c_str(),
                                       static_cast<unsigned long long>(seed + round), messages));
        ASSERT_TRUE(dying.HasStopped());
        honest.Run(20);
        if (HasFailure()) return;
      }
      honest.Run(10);
      if (HasFailure()) return;
      ASSERT_TRUE(Eventually([&] { return broker->clients().size() == 1; }));
    }
  }
  EXPECT_TRUE(Eventually([&] { return broker->executables() == 1 && OpenFiles() <= files; }));
}

// Kilobytes, of a line of /proc/PID/status.
size_t StatusKilobytes(pid_t process, const std::string& name) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(name + ":")) return std::stoul(line.substr(name.size() + 1));
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

// Clients that come, work and go, several at a time, one in three without a word of farewell: what
// the broker has open and mapped is what it was.
TEST(BrokerDeath, ThousandsOfClientsLeaveNothing) {
  const Folder folder;
  const BrokerProcess broker(folder.socket());
  const auto come_and_go = [&](int count) {
    constexpr int kAtATime = 4;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kAtATime; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = thread; i < count; i += kAtATime) {
          const auto offset = static_cast<uint8_t>(i % 5);
          if (i % 3 == 0) {
            RawClient client(folder.socket());
            ASSERT_TRUE(client.Hello());
            ASSERT_TRUE(client.Arena(kArenaBytes).ok());
            const uint32_t executable = client.Load(*Table(offset));
            for (uint32_t request = 0; request < 4; ++request) {
              ASSERT_TRUE(client.Submit(request, executable, {request * 64, 4096}));
            }
          } else {
            const auto device = OpenAt(folder.socket());
            ASSERT_NE(device, nullptr);
            const auto id = device->Load(Table(offset));
            ASSERT_TRUE(id.ok()) << id.status().message();
            const Status status = RunTable(device.get(), *id, offset, static_cast<uint8_t>(i));
            ASSERT_TRUE(status.ok()) << status.message();
            // Half of them lend it memory, as interpreters do, and do not always take it back.
            if (i % 2 == 0) continue;
            Buffer memory = *Buffer::AllocateShared(kArenaBytes);
            ASSERT_TRUE(device->RegisterMemory({memory.bytes(), memory.memfd()}).ok());
            RequestReport report;
            const auto request = device->Submit({.executable = *id,
                                                 .inputs = {memory.bytes().first(8)},
                                                 .outputs = {memory.bytes().last(8)}});
            ASSERT_TRUE(request.ok() && device->Wait(*request, &report).ok());
            ASSERT_EQ(report.bytes_copied, 0u);
            ASSERT_EQ(memory.bytes().back(), offset);
            if (i % 4 == 1) device->UnregisterMemory(memory.bytes());
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  come_and_go(200);
  if (HasFailure()) return;
  // What was left is taken away a moment later.
  const auto settle = [&] {
    size_t before = 0, now = OpenFiles(broker.id());
    EXPECT_TRUE(Eventually([&] {
      before = std::exchange(now, OpenFiles(broker.id()));
      return before == now;
    }));
    return now;
  };
  const size_t files = settle();
  const size_t resident = StatusKilobytes(broker.id(), "VmRSS");
  const int clients = TestCount(500);
  come_and_go(clients);
  EXPECT_TRUE(Eventually([&] { return OpenFiles(broker.id()) <= files; })) << files;
  const size_t grown = StatusKilobytes(broker.id(), "VmRSS");
  RecordProperty("resident_kb", std::to_string(resident) + " " + std::to_string(grown));
  printf("%d clients: %zu and %zu files, %zu and %zu KiB\n", clients, files, OpenFiles(broker.id()),
         resident, grown);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which keep what was freed
  constexpr size_t kNoiseKilobytes = 1024;
  EXPECT_LE(grown, resident + kNoiseKilobytes);
#endif
}

}  // namespace
}  // namespace atollrt
