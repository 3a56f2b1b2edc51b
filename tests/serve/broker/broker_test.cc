// SPDX-License-Identifier: Apache-2.0
//
// A broker with an emulated device, and clients of all kinds.
#include "serve/broker/broker.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "driver/broker/broker_chip.h"
#include "driver/broker/messages.h"
#include "driver/coral/executable.h"
#include "driver/open_device.h"
#include "runtime/base/buffer.h"
#include "serve/broker/client.h"
#include "tests/serve/broker/broker_testing.h"
#include "tests/support/coral_packages.h"
#include "tests/support/echoing_coral.h"
#include "tests/support/emulated_device.h"
#include "tests/support/forwarding_chip.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

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

// Not a test, but BrokerProcess.
TEST(Broker, DISABLED_ServesAsAProcess) {
  const char* const path = getenv("BROKER_TEST_SOCKET");
  ASSERT_NE(path, nullptr);
  // Its clients' timeouts are their own.
  const Serving broker(path, {},
                       EmulatedDevice{.request_timeout_min = std::chrono::milliseconds(0)}.Open());
  for (;;) pause();
}

TEST(Broker, IsReplacedUnderRequestsOfWhichNoneIsLost) {
  const Folder folder;
  auto broker = std::make_unique<Serving>(folder.socket());
  const auto device = OpenAt(folder.socket(), OnDeviceLoss::kReplay);
  const auto id = device->Load(Table(7));
  ASSERT_TRUE(id.ok());
  std::atomic<int> done{0};
  std::atomic<bool> stop{false};
  std::thread client([&] {
    for (uint8_t i = 0; !stop; ++i, ++done) {
      const Status status = RunTable(device.get(), *id, 7, i);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  });
  for (int round = 0; round < 5; ++round) {
    const int before = done;
    EXPECT_TRUE(Eventually([&] { return done >= before + 20; }));
    broker.reset();
    broker = std::make_unique<Serving>(folder.socket());
  }
  stop = true;
  client.join();
  EXPECT_GE(device->health().reopenings, 1u);
}

// A broker in a process of its own that dies in the middle: as above, but nothing is drained.
TEST(Broker, IsKilledUnderRequestsOfWhichNoneIsLost) {
  const Folder folder;
  auto broker = std::make_unique<BrokerProcess>(folder.socket());
  const auto device = OpenAt(folder.socket(), OnDeviceLoss::kReplay);
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
    broker.reset();
    broker = std::make_unique<BrokerProcess>(folder.socket());
  }
  const int before = done;
  EXPECT_TRUE(Eventually([&] { return done >= before + 20; }));
  stop = true;
  client.join();
}

// Three to one, of requests that all wait from the beginning. How long each takes is measured, and
// what is measured is shared: at any time, what the two had by weight differs by what is under way.
TEST(Broker, SharesTheDeviceByWeight) {
  constexpr uint32_t kRequests = 200;  // whose answers all fit into a socket
  constexpr uint32_t kBytes = 1 << 20;
  const Folder folder;
  BrokerOptions options;
  options.share_of = [](const Peer&, const std::string& name) {
    return BrokerShare{.weight = name == "three" ? 3.0 : 1.0, .requests = kRequests};
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
    std::vector<BrokerClientRow> now = broker->clients();
    std::ranges::sort(now, {}, [](const auto& row) { return -row.weight; });
    return now;  // "three", "one"
  };
  std::vector<BrokerClientRow> begin, end;
  ASSERT_TRUE(Eventually([&] {
    begin = look();
    return std::ranges::all_of(begin, [&](const auto& row) {
      return row.running + row.waiting + row.requests == kRequests;
    });
  }));
  ASSERT_TRUE(Eventually([&] {
    const std::vector<BrokerClientRow> now = look();
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

// The most urgent one first, and those that are as urgent in the order in which they came.
TEST(Broker, SortsTheRequestsOfAClient) {
  BrokerConnection client;
  const std::vector<int32_t> priorities = {0, 0, 2, -1, 2, 1, 0};
  for (uint32_t request = 0; request < priorities.size(); ++request) {
    BrokerPending pending;
    pending.request = request;
    pending.priority = priorities[request];
    client.Enqueue(std::move(pending));
  }
  std::vector<uint32_t> order;
  for (const BrokerPending& pending : client.queue) order.push_back(pending.request);
  EXPECT_THAT(order, ElementsAre(2, 4, 5, 0, 1, 6, 3));
  EXPECT_TRUE(client.IsUnderWay(6));
  EXPECT_FALSE(client.IsUnderWay(7));
}

// Runs, and executables of some name, get no further than a gate.
class GatedChip final : public ForwardingChip {
 public:
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool holds_runs = false;
    std::string holds_name;
    int waiting = 0;

    template <typename Predicate>
    void Wait(const Predicate& is_held) {
      std::unique_lock lock(mutex);
      ++waiting;
      changed.wait(lock, [&] { return !is_held(); });
      --waiting;
    }
    void Hold(bool runs, std::string name) {
      const std::lock_guard lock(mutex);
      holds_runs = runs;
      holds_name = std::move(name);
      changed.notify_all();
    }
    bool IsInFront() {
      const std::lock_guard lock(mutex);
      return waiting > 0;
    }
  };
  explicit GatedChip(Gate* gate) : ForwardingChip(EmulatedDevice().OpenChip()), gate_(gate) {}
  Result<std::unique_ptr<PreparedExecutable>> Prepare(
      std::shared_ptr<const AnyExecutable> executable) const override {
    gate_->Wait([&] { return gate_->holds_name == executable->name; });
    return ForwardingChip::Prepare(std::move(executable));
  }
  Status Run(const Job& job, std::span<const Job> ahead, RequestReport* report) override {
    gate_->Wait([&] { return gate_->holds_runs; });
    return ForwardingChip::Run(job, ahead, report);
  }

 private:
  Gate* const gate_;
};

std::unique_ptr<Device> GatedDevice(GatedChip::Gate* gate) {
  return std::make_unique<Device>(std::make_unique<GatedChip>(gate), ChipKeeper::Options());
}

TEST(Broker, AnswersWhatWaitsForTooLong) {
  const Folder folder;
  GatedChip::Gate gate;
  const Serving broker(folder.socket(), {}, GatedDevice(&gate));
  RawClient first(folder.socket());
  RawClient second(folder.socket());
  std::vector<uint32_t> executables;
  for (RawClient* client : {&first, &second}) {
    ASSERT_TRUE(client->Hello());
    ASSERT_TRUE(client->Arena(4096).ok());
    executables.push_back(client->Load(*Table(1)));
  }
  gate.Hold(true, "");
  constexpr uint32_t kRequests = 4;
  for (uint32_t request = 0; request < kRequests; ++request) {
    ASSERT_TRUE(first.Submit(request, executables[0], {0, 64}));
  }
  EXPECT_TRUE(Eventually([&] { return gate.IsInFront(); }));
  ASSERT_TRUE(second.Submit(1, executables[1], {0, 64}, 1, 0, /*timeout_ms=*/20));
  EXPECT_EQ(second.Answered().code(), StatusCode::kTimeout);
  gate.Hold(false, "");
  for (uint32_t request = 0; request < kRequests; ++request) EXPECT_TRUE(first.Answered().ok());
  ASSERT_TRUE(second.Submit(2, executables[1], {0, 64}));
  EXPECT_TRUE(second.Answered().ok());
}

TEST(Broker, LetsOthersGoOnWhileSomebodyLoads) {
  const Folder folder;
  GatedChip::Gate gate;
  const Serving broker(folder.socket(), {}, GatedDevice(&gate));
  const auto device = OpenAt(folder.socket());
  const auto id = device->Load(Table(1));
  ASSERT_TRUE(id.ok());
  Executable large = *Table(2);
  large.name = "large";
  gate.Hold(false, "large");
  std::thread loading([&] {
    const auto other = OpenAt(folder.socket());
    const auto its_id = other->Load(std::make_shared<const Executable>(large));
    ASSERT_TRUE(its_id.ok()) << its_id.status().message();
    EXPECT_TRUE(RunTable(other.get(), *its_id, 2, 1).ok());
  });
  EXPECT_TRUE(Eventually([&] { return gate.IsInFront(); }));
  for (uint8_t i = 0; i < 10; ++i) EXPECT_TRUE(RunTable(device.get(), *id, 1, i).ok());
  EXPECT_NE(OpenAt(folder.socket()), nullptr);
  EXPECT_TRUE(gate.IsInFront());
  gate.Hold(false, "");
  loading.join();
}

TEST(Broker, ResetsTheDeviceForThoseWhoMayAndTellsEverybody) {
  const Folder folder;
  BrokerOptions options;
  options.share_of = [](const Peer&, const std::string& name) {
    return BrokerShare{.may_reset = name == "operator"};
  };
  const Serving broker(folder.socket(), options);
  const auto device = OpenAt(folder.socket());
  const auto id = device->Load(Table(4));
  ASSERT_TRUE(id.ok());
  EXPECT_TRUE(RunTable(device.get(), *id, 4, 1).ok());
  EXPECT_EQ(device->health().resets, 0u);
  BrokerReset reset;
  reset.request = 7;
  RawClient anyone(folder.socket());
  ASSERT_TRUE(anyone.Hello("anyone"));
  ASSERT_TRUE(anyone.Send(reset));
  EXPECT_EQ(anyone.Answered().code(), StatusCode::kPermissionDenied);
  RawClient its_operator(folder.socket());
  ASSERT_TRUE(its_operator.Hello("operator"));
  ASSERT_TRUE(its_operator.Send(reset));
  EXPECT_TRUE(its_operator.Answered().ok());
  // It reads what it was told among its answers.
  EXPECT_TRUE(Eventually([&] {
    EXPECT_TRUE(RunTable(device.get(), *id, 4, 1).ok());
    return device->health().resets == 1;
  }));
  const auto told = anyone.Receive();
  ASSERT_TRUE(told.has_value());
  const auto state = ReadBrokerMessage<BrokerState>(told->bytes);
  ASSERT_TRUE(state.has_value());
  EXPECT_EQ(state->message.state, static_cast<uint32_t>(DeviceState::kReady));
  EXPECT_EQ(state->message.resets, 1u);
  // Who comes later hears of it, too.
  const auto later = OpenAt(folder.socket());
  const auto its_id = later->Load(Table(4));
  ASSERT_TRUE(its_id.ok());
  EXPECT_EQ(later->health().resets, 1u);
}

// A request whose input and output lie in memory that can be lent.
class LentMemory : public ::testing::Test {
 protected:
  static constexpr size_t kBytes = 8;

  void Open(const std::string& path, OnDeviceLoss on_loss) {
    device_ = OpenAt(path, on_loss);
    id_ = *device_->Load(Table(5));
    EXPECT_TRUE(device_->info().is_elsewhere);
  }
  Status Run(uint8_t first, std::span<uint8_t> input, std::span<uint8_t> output,
             RequestReport* report, int timeout_ms = 60'000) {
    for (size_t i = 0; i < kBytes; ++i) input[i] = static_cast<uint8_t>(first + i);
    std::fill(output.begin(), output.end(), 0xee);
    ATOLL_ASSIGN_OR_RETURN(const RequestId id,
                           device_->Submit({.executable = id_,
                                            .inputs = {input},
                                            .outputs = {output},
                                            .timeout = std::chrono::milliseconds(timeout_ms)}));
    ATOLL_RETURN_IF_ERROR(device_->Wait(id, report));
    for (size_t i = 0; i < kBytes; ++i) {
      if (output[i] != static_cast<uint8_t>(first + i + 5)) return InternalError("byte %zu", i);
    }
    return {};
  }
  Status RunLent(uint8_t first, RequestReport* report, int timeout_ms = 60'000) {
    return Run(first, memory_.bytes().subspan(4096, kBytes), memory_.bytes().subspan(7, kBytes),
               report, timeout_ms);
  }
  ino_t Inode() const {
    struct stat status = {};
    EXPECT_EQ(fstat(memory_.memfd(), &status), 0);
    return status.st_ino;
  }

  const Folder folder_;
  Buffer memory_ = *Buffer::AllocateShared(10'000);
  std::unique_ptr<Device> device_;
  ExecutableId id_ = 0;
};

TEST_F(LentMemory, IsNotCopied) {
  const Serving broker(folder_.socket());
  Open(folder_.socket(), OnDeviceLoss::kFail);
  RequestReport report;
  EXPECT_TRUE(RunLent(1, &report).ok());
  EXPECT_EQ(report.bytes_copied, 2 * kBytes);
  ASSERT_TRUE(device_->RegisterMemory({memory_.bytes(), memory_.memfd()}).ok());
  ASSERT_TRUE(device_->RegisterMemory({memory_.bytes(), memory_.memfd()}).ok());
  for (uint8_t i = 0; i < 20; ++i) {
    EXPECT_TRUE(RunLent(i, &report).ok());
    EXPECT_EQ(report.bytes_copied, 0u);
  }
  std::vector<uint8_t> elsewhere(kBytes);
  EXPECT_TRUE(Run(9, elsewhere, memory_.bytes().last(kBytes), &report).ok());
  EXPECT_EQ(report.bytes_copied, kBytes);
  // Above each other, they are as copied ones.
  EXPECT_TRUE(device_
                  ->Wait(*device_->Submit({.executable = id_,
                                           .inputs = {memory_.bytes().first(kBytes)},
                                           .outputs = {memory_.bytes().subspan(1, kBytes)}}),
                         &report)
                  .ok());
  EXPECT_EQ(report.bytes_copied, kBytes);
  device_->UnregisterMemory(memory_.bytes());
  EXPECT_TRUE(RunLent(3, &report).ok());
  EXPECT_EQ(report.bytes_copied, 0u);
  device_->UnregisterMemory(memory_.bytes());
  EXPECT_TRUE(RunLent(4, &report).ok());
  EXPECT_EQ(report.bytes_copied, 2 * kBytes);
}

TEST_F(LentMemory, IsCopiedWhereTheBrokerTakesNoMore) {
  BrokerOptions options;
  options.share_of = [](const Peer&, const std::string&) { return BrokerShare{.bytes = 9'000}; };
  const Serving broker(folder_.socket(), options);
  Open(folder_.socket(), OnDeviceLoss::kFail);
  ASSERT_TRUE(device_->RegisterMemory({memory_.bytes(), memory_.memfd()}).ok());
  RequestReport report;
  EXPECT_TRUE(RunLent(1, &report).ok());
  EXPECT_EQ(report.bytes_copied, 2 * kBytes);
  EXPECT_EQ(device_->health().failures, 0u);
}

TEST_F(LentMemory, IsLentToTheNextBroker) {
  auto broker = std::make_unique<BrokerProcess>(folder_.socket());
  Open(folder_.socket(), OnDeviceLoss::kReplay);
  ASSERT_TRUE(device_->RegisterMemory({memory_.bytes(), memory_.memfd()}).ok());
  RequestReport report;
  for (uint8_t round = 0; round < 3; ++round) {
    EXPECT_TRUE(RunLent(round, &report).ok());
    EXPECT_EQ(report.bytes_copied, 0u);
    broker.reset();
    broker = std::make_unique<BrokerProcess>(folder_.socket());
  }
  EXPECT_TRUE(RunLent(99, &report).ok());
  EXPECT_EQ(report.bytes_copied, 0u);
  EXPECT_GE(device_->health().resets + device_->health().reopenings, 3u);
}

// A broker that stops in the middle may go on at any time, and write what nobody wants any more.
TEST_F(LentMemory, IsTakenFromABrokerThatDoesNotAnswer) {
  const BrokerProcess broker(folder_.socket());
  Open(folder_.socket(), OnDeviceLoss::kFail);
  ASSERT_TRUE(device_->RegisterMemory({memory_.bytes(), memory_.memfd()}).ok());
  RequestReport report;
  EXPECT_TRUE(RunLent(1, &report).ok());
  const ino_t before = Inode();
  ASSERT_TRUE(broker.Stop());
  std::thread waiting([&] { EXPECT_FALSE(RunLent(50, &report, /*timeout_ms=*/100).ok()); });
  EXPECT_TRUE(Eventually([&] { return Inode() != before; }));
  kill(broker.id(), SIGCONT);
  waiting.join();
  EXPECT_EQ(memory_.data()[4096], 50);
  EXPECT_TRUE(Eventually([&] { return RunLent(2, &report).ok(); }));
  EXPECT_EQ(report.bytes_copied, 0u);
}

// Memory that somebody else has, too, and that therefore stays where it is.
TEST_F(LentMemory, OfOthersIsReadAlone) {
  const BrokerProcess broker(folder_.socket());
  Open(folder_.socket(), OnDeviceLoss::kFail);
  HostMemory others(memory_.bytes(), memory_.memfd());
  others.may_be_replaced = false;
  ASSERT_TRUE(device_->RegisterMemory(others).ok());
  RequestReport report;
  EXPECT_TRUE(RunLent(1, &report).ok());
  EXPECT_EQ(report.bytes_copied, kBytes);
  const ino_t before = Inode();
  ASSERT_TRUE(broker.Stop());
  std::thread waiting([&] { EXPECT_FALSE(RunLent(50, &report, /*timeout_ms=*/100).ok()); });
  EXPECT_TRUE(Eventually([&] { return device_->health().failures > 0; }));
  // When it goes on, it cannot write into it.
  kill(broker.id(), SIGCONT);
  waiting.join();
  EXPECT_EQ(memory_.data()[7], 0xee);
  EXPECT_TRUE(Eventually([&] { return RunLent(2, &report).ok(); }));
  EXPECT_EQ(report.bytes_copied, kBytes);
  EXPECT_EQ(Inode(), before);
}

// Executables of a Coral go there as their packages, and are there once.
class CoralBroker : public ::testing::Test {
 protected:
  static std::shared_ptr<const CoralExecutable> Sum(const PackedModel& model = StandAloneModel()) {
    CoralExecutable executable = *ReadCoralPackage(WritePackage(model));
    executable.name = "sum";
    executable.package = WritePackage(model);
    return std::make_shared<const CoralExecutable>(std::move(executable));
  }
  // That every byte is the sum of the inputs'.
  static Status Run(Device* device, ExecutableId id, const AnyExecutable& executable) {
    std::vector<uint8_t> input(executable.inputs[0].bytes, 3), output(executable.outputs[0].bytes);
    ATOLL_ASSIGN_OR_RETURN(
        const RequestId request,
        device->Submit({.executable = id, .inputs = {input}, .outputs = {output}}));
    ATOLL_RETURN_IF_ERROR(device->Wait(request, nullptr));
    const auto sum = static_cast<uint8_t>(3 * input.size());
    return std::ranges::count(output, sum) == static_cast<ptrdiff_t>(output.size())
               ? Status()
               : InternalError("wrong bytes");
  }

  const Folder folder_;
  const Serving broker_{folder_.socket(), {}, EchoingCoralDevice()};
};

TEST_F(CoralBroker, SharesItAmongPrograms) {
  const auto first = OpenAt(folder_.socket());
  const auto second = OpenAt(folder_.socket());
  EXPECT_EQ(first->info().family, DeviceFamily::kCoral);
  EXPECT_TRUE(first->info().is_elsewhere);
  const auto sum = Sum();
  const auto other = Sum(CachingModel(77));
  const ExecutableId ids[] = {*first->Load(sum), *first->Load(other), *second->Load(sum)};
  EXPECT_EQ(broker_->executables(), 2u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(Run(first.get(), ids[0], *sum).ok());
    EXPECT_TRUE(Run(second.get(), ids[2], *sum).ok());
    EXPECT_TRUE(Run(first.get(), ids[1], *other).ok());
  }
}

TEST_F(CoralBroker, RefusesWhatIsNoPackage) {
  const auto device = OpenAt(folder_.socket());
  // A program for another family, one without its package, and one whose package is damaged.
  EXPECT_EQ(device->Load(Table(1)).status().code(), StatusCode::kUnsupported);
  CoralExecutable changed = *Sum();
  changed.package.clear();
  EXPECT_EQ(device->Load(std::make_shared<const CoralExecutable>(changed)).status().code(),
            StatusCode::kInvalidArgument);
  changed.package.assign(100, 0xee);
  EXPECT_EQ(device->Load(std::make_shared<const CoralExecutable>(changed)).status().code(),
            StatusCode::kCorruptModel);
  changed.package = WriteExecutable(*Table(1));
  EXPECT_EQ(device->Load(std::make_shared<const CoralExecutable>(changed)).status().code(),
            StatusCode::kCorruptModel);
  const auto sum = Sum();
  const auto id = device->Load(sum);
  ASSERT_TRUE(id.ok()) << id.status().message();
  EXPECT_TRUE(Run(device.get(), *id, *sum).ok());
}

// `auto` takes no Coral, behind a broker neither.
TEST_F(CoralBroker, IsNotForEverybody) {
  ASSERT_EQ(setenv("ATOLL_BROKER", folder_.socket().c_str(), 1), 0);
  const auto device = OpenDevice({.device = "auto"});
  ASSERT_EQ(unsetenv("ATOLL_BROKER"), 0);
  ASSERT_TRUE(device.ok());
  EXPECT_EQ((*device)->info().family, DeviceFamily::kAtoll1);
  EXPECT_FALSE((*device)->info().is_elsewhere);
}

// Whom the broker serves: more than a message has, and no client itself.
TEST(Broker, TellsWhomItServes) {
  const Folder folder;
  BrokerOptions options;
  options.limits = {.clients = 300, .clients_of_user = 300};
  const Serving broker(folder.socket(), options);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 250; ++i) {
    clients.push_back(std::make_unique<RawClient>(folder.socket()));
    ASSERT_TRUE(clients.back()->Hello("client " + std::to_string(i)));
  }
  const auto link =
      BrokerLink::Connect(folder.socket(), "who asks", Clock::now() + std::chrono::minutes(1));
  ASSERT_TRUE(link.ok()) << link.status().message();
  const auto rows = (*link)->Clients(Clock::now() + std::chrono::minutes(1));
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  ASSERT_THAT(*rows, SizeIs(250));
  for (size_t i = 0; i < rows->size(); ++i) {
    EXPECT_STREQ((*rows)[i].name, ("client " + std::to_string(i)).c_str());
    EXPECT_EQ((*rows)[i].user, getuid());
    EXPECT_EQ((*rows)[i].process, static_cast<uint32_t>(getpid()));
  }
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
                                                   WriteBrokerMessage(BrokerDrop()),
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

// A broker that says what it wants: welcomes one client with `welcome` and gives `answer` each of
// its further messages.
class FalseBroker {
 public:
  using Answer = std::function<void(int socket, std::span<const uint8_t> message)>;
  FalseBroker(const std::string& path, const BrokerWelcome& welcome, Answer answer = {})
      : listener_(*ListenAt(path)) {
    thread_ = std::thread([this, welcome, answer = std::move(answer)] {
      pollfd ready = {.fd = listener_.get(), .events = POLLIN, .revents = 0};
      if (poll(&ready, 1, 60'000) != 1) return;
      const FileDescriptor client(accept(listener_.get(), nullptr, nullptr));
      ReceivedMessage message;
      for (bool is_first = true;
           ReceiveMessage(client.get(), Clock::now() + std::chrono::minutes(1), &message).ok();
           is_first = false) {
        if (is_first) {
          EXPECT_TRUE(SendMessage(client.get(), WriteBrokerMessage(welcome)).ok());
        } else {
          answer(client.get(), message.bytes);
        }
      }
    });
  }
  ~FalseBroker() { thread_.join(); }

 private:
  const FileDescriptor listener_;
  std::thread thread_;
};

TEST(HostileBroker, DescribesADeviceOrIsRefused) {
  const BrokerWelcome right = WelcomeOf(EmulatedDevice().Open()->info());
  const std::vector<std::function<void(BrokerWelcome*)>> changes = {
      [](BrokerWelcome*) {},
      [](BrokerWelcome* w) { w->family = 9; },
      [](BrokerWelcome* w) { w->array_rows = 0; },
      [](BrokerWelcome* w) { w->array_columns = 0; },
      [](BrokerWelcome* w) { w->array_columns = UINT32_MAX; },
      [](BrokerWelcome* w) { w->memory_bytes = 0; },
      [](BrokerWelcome* w) { w->memory_bytes = uint64_t{1} << 63; },
      [](BrokerWelcome* w) { w->program_memory_bytes = uint64_t{1} << 63; },
      [](BrokerWelcome* w) { w->clock_hz = 0; },
      [](BrokerWelcome* w) { w->link_bytes_per_second = 0; },
      [](BrokerWelcome* w) { w->host_seconds = 1e308; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    const Folder folder;
    BrokerWelcome welcome = right;
    changes[i](&welcome);
    const FalseBroker broker(folder.socket(), welcome);
    const auto link =
        BrokerLink::Connect(folder.socket(), "test", Clock::now() + std::chrono::minutes(1));
    EXPECT_EQ(link.ok(), i == 0) << "change " << i;
    EXPECT_THAT(link.status().message(), HasSubstr(i == 0 ? "" : "describes no device"));
  }
}

TEST(HostileBroker, IsHeardAboutWhatItWasAskedAlone) {
  const auto done = [](uint32_t request, StatusCode code) {
    BrokerDone message;
    message.request = request;
    message.code = static_cast<uint32_t>(code);
    return WriteBrokerMessage(message);
  };
  const Folder folder;
  const FalseBroker broker(
      folder.socket(), WelcomeOf(EmulatedDevice().Open()->info()),
      [&](int socket, std::span<const uint8_t> message) {
        const auto list = ReadBrokerMessage<BrokerList>(message);
        ASSERT_TRUE(list.has_value());
        // What nobody has asked, and the question that comes next.
        for (uint32_t ahead = 100; ahead > 0; --ahead) {
          const auto other = done(list->message.request + ahead, StatusCode::kInternal);
          ASSERT_TRUE(SendMessage(socket, other).ok());
        }
        ASSERT_TRUE(SendMessage(socket, done(list->message.request, StatusCode::kOk)).ok());
      });
  const auto link =
      BrokerLink::Connect(folder.socket(), "test", Clock::now() + std::chrono::minutes(1));
  ASSERT_TRUE(link.ok()) << link.status().message();
  for (int i = 0; i < 3; ++i) {
    const auto clients = (*link)->Clients(Clock::now() + std::chrono::minutes(1));
    EXPECT_TRUE(clients.ok()) << i << ": " << clients.status().message();
  }
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
  // Of huge pages, which may be taken away again although the size stays.
  constexpr size_t kHuge = 2 << 20;
  const FileDescriptor huge(memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (huge.get() >= 0) {  // a system may have none
    ASSERT_EQ(ftruncate(huge.get(), kHuge), 0);
    ASSERT_EQ(fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    EXPECT_THAT(arena(huge.get(), kHuge), HasSubstr("ordinary pages"));
  }
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
  const size_t most = BrokerShare().executables;
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
  // Those that went before the broker took them are still to come and go.
  EXPECT_TRUE(Eventually([&] { return OpenFiles() <= files && broker_->executables() == 1; }))
      << OpenFiles() << " files, before " << files;
}

}  // namespace
}  // namespace atollrt
