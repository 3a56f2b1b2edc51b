// SPDX-License-Identifier: Apache-2.0
//
// A device on PCIe with several requests under way: which go first, what becomes of them when one
// fails, is cancelled, is late, or the device goes; what is copied for them, and whose memory the
// device uses when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "runtime/base/buffer.h"
#include "tests/support/tampered_pcie.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One input and output in memory that can be registered.
struct Operands {
  explicit Operands(size_t count = 4)
      : memory(*Buffer::Allocate(2 * count)),
        bytes(memory.bytes()),
        input(bytes.first(count)),
        output(bytes.subspan(count)) {
    for (size_t i = 0; i < count; ++i) input[i] = static_cast<uint8_t>(i);
  }
  Buffer memory;
  std::span<uint8_t> bytes, input, output;
};

class DeviceRing : public ::testing::Test {
 protected:
  // The device may outlive what tests have to say of it.
  void TearDown() override {
    tampering_.drops_write = nullptr;
    tampering_.answers = nullptr;
    tampering_.on_interrupts = nullptr;
    tampering_.on_map = nullptr;
    tampering_.on_reset = nullptr;
  }

  void Open(bool recovers = false, uint64_t memory_bytes = 8 << 20) {
    device_ = RingDevice{.memory_bytes = memory_bytes}.Open(&tampering_, recovers);
  }
  ExecutableId Load(const TableExecutableOptions& options) {
    const auto id = device_->Load(std::make_shared<Executable>(MakeTableExecutable(options)));
    EXPECT_TRUE(id.ok()) << id.status().message();
    return *id;
  }
  RequestId Submit(ExecutableId id, const Operands& operands, int32_t priority = 0,
                   std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
    const auto request = device_->Submit({.executable = id,
                                          .inputs = {operands.input},
                                          .outputs = {operands.output},
                                          .timeout = timeout,
                                          .priority = priority});
    EXPECT_TRUE(request.ok()) << request.status().message();
    return *request;
  }
  void ExpectRight(const Operands& operands, uint8_t offset = 1) {
    for (size_t i = 0; i < operands.output.size(); ++i) {
      ASSERT_EQ(operands.output[i], static_cast<uint8_t>(i + offset)) << i;
    }
  }
  Status Run(ExecutableId id, const Operands& operands, RequestReport* report = nullptr) {
    return device_->Wait(Submit(id, operands), report);
  }

  Tampering tampering_;
  std::unique_ptr<Device> device_;
};

TEST_F(DeviceRing, OneRequestAfterTheOther) {
  Open();
  const ExecutableId id = Load({.count = 1000, .offset = 1});
  const Operands operands(1000);
  for (int i = 0; i < 10; ++i) {
    RequestReport report;
    const Status status = Run(id, operands, &report);
    ASSERT_TRUE(status.ok()) << status.message();
    ExpectRight(operands);
    EXPECT_EQ(report.bytes_copied, 2000u);
    EXPECT_GT(report.device_clock, 0u);
    // Start, input, output, event; instructions, and the caching program's start, parameters,
    // event.
    EXPECT_EQ(report.bytes_to_device, i > 0 ? 4 * 32 + 1000u : 8 * 32 + 1000 + 6 * 128 + 256u);
    EXPECT_EQ(report.bytes_from_device, i > 0 ? 1032u : 1064u);
  }
}

TEST_F(DeviceRing, MemoryThatIsRegisteredIsNotCopied) {
  Open();
  const ExecutableId id = Load({.count = 1000, .offset = 1});
  const Operands operands(1000);
  RequestReport report;
  EXPECT_TRUE(device_->RegisterMemory(operands.bytes).ok());
  EXPECT_TRUE(device_->RegisterMemory(operands.bytes).ok());
  const int maps = tampering_.maps;
  EXPECT_TRUE(Run(id, operands, &report).ok());  // with an upload
  ExpectRight(operands);
  EXPECT_EQ(report.bytes_copied, 0u);
  device_->UnregisterMemory(operands.bytes);
  EXPECT_TRUE(Run(id, operands, &report).ok());
  EXPECT_EQ(report.bytes_copied, 0u);  // told twice, taken back once
  EXPECT_EQ(tampering_.maps, maps);
  device_->UnregisterMemory(operands.bytes);
  EXPECT_TRUE(Run(id, operands, &report).ok());
  EXPECT_EQ(report.bytes_copied, 2000u);
  ExpectRight(operands);
}

TEST_F(DeviceRing, FourAreUnderWay) {
  Open();
  const ExecutableId id = Load({.offset = 1});
  Operands warm;
  ASSERT_TRUE(Run(id, warm).ok());
  std::vector<Operands> operands(6);
  std::vector<RequestId> requests;
  for (const Operands& one : operands) requests.push_back(Submit(id, one));
  tampering_.doorbells = 0;
  uint64_t clock = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    RequestReport report;
    EXPECT_TRUE(device_->Wait(requests[i], &report).ok());
    EXPECT_EQ(tampering_.doorbells, std::min<int>(static_cast<int>(i) + 4, 6));
    EXPECT_GT(report.device_clock, clock);
    clock = report.device_clock;
    ExpectRight(operands[i]);
  }
}

TEST_F(DeviceRing, WhatHasBegunGoesBeforeHigherPriorities) {
  Open();
  const ExecutableId id = Load({.offset = 1});
  Operands warm;
  ASSERT_TRUE(Run(id, warm).ok());
  std::vector<Operands> operands(6);
  std::vector<RequestId> requests;
  for (int i = 0; i < 5; ++i) requests.push_back(Submit(id, operands[i]));
  std::vector<uint64_t> clocks(6);
  const auto wait = [&](size_t i) {
    RequestReport report;
    EXPECT_TRUE(device_->Wait(requests[i], &report).ok());
    ExpectRight(operands[i]);
    clocks[i] = report.device_clock;
  };
  wait(0);  // three more have begun
  requests.push_back(Submit(id, operands[5], /*priority=*/9));
  for (const size_t i : {5, 4, 3, 2, 1}) wait(i);
  EXPECT_LT(clocks[3], clocks[5]);
  EXPECT_LT(clocks[5], clocks[4]);
}

// As on USB (device_order_test.cc).
TEST_F(DeviceRing, SomeRequestsOfAResidentExecutableGoBeforeAnUpload) {
  Open(/*recovers=*/false, 32 << 10);
  const ExecutableId a = Load({.name = "a", .offset = 1, .extra_parameters = 20'000});
  const ExecutableId b = Load({.name = "b", .offset = 1, .extra_parameters = 20'000});
  Operands warm;
  ASSERT_TRUE(Run(a, warm).ok());
  std::vector<Operands> operands(8);
  std::vector<std::pair<uint64_t, int>> ended;
  std::vector<RequestId> requests;
  for (int i = 0; i < 8; ++i) requests.push_back(Submit(i < 6 ? a : b, operands[i]));
  for (int i = 0; i < 8; ++i) {
    RequestReport report;
    EXPECT_TRUE(device_->Wait(requests[i], &report).ok());
    ExpectRight(operands[i]);
    ended.push_back({report.device_clock, i});
  }
  std::sort(ended.begin(), ended.end());
  std::vector<int> order;
  for (const auto& [clock, i] : ended) order.push_back(i);
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 3, 6, 7, 4, 5));
}

TEST_F(DeviceRing, ACancelledOneThatHasBegunStaysUntilItHasEnded) {
  Open();
  const ExecutableId id = Load({.offset = 1});
  Operands warm;
  ASSERT_TRUE(Run(id, warm).ok());
  std::vector<Operands> operands(6);
  std::vector<RequestId> requests;
  for (const Operands& one : operands) requests.push_back(Submit(id, one));
  EXPECT_TRUE(device_->Wait(requests[0], nullptr).ok());
  EXPECT_TRUE(device_->Cancel(requests[2]).ok());  // has begun
  EXPECT_TRUE(device_->Cancel(requests[5]).ok());  // has not
  EXPECT_EQ(device_->Unload(id).code(), StatusCode::kDeviceBusy);
  for (size_t i = 1; i < requests.size(); ++i) {
    const Status status = device_->Wait(requests[i], nullptr);
    const bool is_cancelled = i == 2 || i == 5;
    EXPECT_EQ(status.code(), is_cancelled ? StatusCode::kCancelled : StatusCode::kOk) << i;
    if (!is_cancelled) ExpectRight(operands[i]);
  }
  EXPECT_EQ(operands[5].output[0], 0);  // never written
  EXPECT_TRUE(device_->Unload(id).ok());
}

// Before Wait gives the buffers back.
TEST_F(DeviceRing, AfterATimeoutTheRingIsOffAndTheOthersRun) {
  Open();
  const ExecutableId id = Load({.offset = 1});
  Operands warm;
  ASSERT_TRUE(Run(id, warm).ok());
  std::vector<Operands> operands(4);
  std::vector<RequestId> requests;
  requests.push_back(Submit(id, operands[0], 0, std::chrono::milliseconds(30)));
  for (int i = 1; i < 4; ++i) requests.push_back(Submit(id, operands[i]));
  bool is_deaf = true;
  tampering_.drops_write = [&](RingRegister at, uint32_t) {
    if (at == RingRegister::kRingControl) is_deaf = false;
    return at == RingRegister::kRingTail && is_deaf;
  };
  tampering_.log.clear();
  const Status status = device_->Wait(requests[0], nullptr);
  EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.message();
  EXPECT_THAT(tampering_.log, ElementsAre("ring off", "ring on"));
  for (int i = 1; i < 4; ++i) {
    EXPECT_TRUE(device_->Wait(requests[i], nullptr).ok());
    ExpectRight(operands[i]);
  }
  EXPECT_EQ(operands[0].output[0], 0);
}

TEST_F(DeviceRing, AFaultOfOneLeavesTheOthersWell) {
  Open();
  const ExecutableId good = Load({.name = "good", .offset = 1});
  Executable bad = MakeTableExecutable({.name = "bad"});
  std::get<TableInstruction>(bad.inference_program[1]).count = 1u << 30;
  const auto bad_id = device_->Load(std::make_shared<Executable>(bad));
  ASSERT_TRUE(bad_id.ok());
  Operands warm;
  ASSERT_TRUE(Run(good, warm).ok());
  for (int round = 0; round < 3; ++round) {
    std::vector<Operands> operands(5);
    std::vector<RequestId> requests;
    for (int i = 0; i < 5; ++i) requests.push_back(Submit(i == 2 ? *bad_id : good, operands[i]));
    for (int i = 0; i < 5; ++i) {
      const Status status = device_->Wait(requests[i], nullptr);
      if (i == 2) {
        EXPECT_EQ(status.code(), StatusCode::kCorruptModel);
        EXPECT_THAT(status.message(),
                    HasSubstr("device fault BAD_ADDRESS in instruction 1 (TABLE "));
      } else {
        EXPECT_TRUE(status.ok()) << status.message();
        ExpectRight(operands[i]);
      }
    }
  }
}

// All ones from the function, while four are under way.
TEST_F(DeviceRing, AfterALossAllRunOnTheDeviceThatIsThereThen) {
  Open(/*recovers=*/true);
  const ExecutableId id = Load({.offset = 1});
  std::vector<Operands> operands(5);
  for (const Operands& one : operands) {
    ASSERT_TRUE(device_->RegisterMemory(one.bytes).ok());
  }
  ASSERT_TRUE(Run(id, operands[4]).ok());
  std::vector<RequestId> requests;
  for (const Operands& one : operands) requests.push_back(Submit(id, one));
  tampering_.log.clear();
  tampering_.is_present = false;
  tampering_.on_interrupts = [&](Result<uint64_t>) -> Result<uint64_t> {
    return DeviceLost("pulled");
  };
  tampering_.answers = [&](RingRegister) -> std::optional<uint32_t> {
    if (tampering_.is_present) return std::nullopt;
    return ~0u;
  };
  tampering_.on_reset = [&]() -> Status {
    const std::lock_guard lock(tampering_.mutex);
    if (std::ranges::find(tampering_.log, "gone") == tampering_.log.end()) {
      return DeviceLost("pulled");
    }
    tampering_.is_present = true;  // it is another one
    tampering_.on_interrupts = nullptr;
    return {};
  };
  for (size_t i = 0; i < requests.size(); ++i) {
    RequestReport report;
    const Status status = device_->Wait(requests[i], &report);
    EXPECT_TRUE(status.ok()) << status.message();
    ExpectRight(operands[i]);
    EXPECT_EQ(report.bytes_copied, 0u);  // it was told of the memory
  }
  EXPECT_EQ(device_->health().failures, 1u);
  EXPECT_EQ(device_->health().reopenings, 1u);
}

// A device that goes on with its DMA is reset, before anybody gets memory back.
TEST_F(DeviceRing, ARingThatDoesNotGoOffIsReset) {
  Open();
  const ExecutableId id = Load({.offset = 1});
  Operands operands;
  ASSERT_TRUE(Run(id, operands).ok());
  bool is_stuck = true;
  tampering_.drops_write = [&](RingRegister at, uint32_t) {
    return is_stuck && at >= RingRegister::kRingControl;
  };
  tampering_.on_reset = [&] {
    is_stuck = false;
    return Status();
  };
  tampering_.log.clear();
  const Status status =
      device_->Wait(Submit(id, operands, 0, std::chrono::milliseconds(10)), nullptr);
  EXPECT_EQ(status.code(), StatusCode::kTimeout) << status.message();
  EXPECT_THAT(tampering_.log, ElementsAre("ring off", "reset", "ring on"));
  EXPECT_TRUE(Run(id, operands).ok());
  ExpectRight(operands);
}

TEST_F(DeviceRing, ADeviceThatCannotBeStoppedLosesEverything) {
  Open();
  const ExecutableId id = Load({.offset = 1});
  Operands operands;
  ASSERT_TRUE(device_->RegisterMemory(operands.bytes).ok());
  ASSERT_TRUE(Run(id, operands).ok());
  tampering_.drops_write = [&](RingRegister at, uint32_t) {
    return at >= RingRegister::kRingControl;
  };
  tampering_.on_reset = [] { return Status(StatusCode::kTimeout, "no reset"); };
  const Status status =
      device_->Wait(Submit(id, operands, 0, std::chrono::milliseconds(10)), nullptr);
  EXPECT_EQ(status.code(), StatusCode::kDeviceLost) << status.message();
  EXPECT_THAT(status.message(), HasSubstr("does not let go of this computer's memory"));
  EXPECT_EQ(tampering_.mapped, 0);
  EXPECT_EQ(tampering_.log.back(), "gone");
  EXPECT_EQ(device_->state(), DeviceState::kLost);
  device_->UnregisterMemory(operands.bytes);
  EXPECT_TRUE(device_->Unload(id).ok());
}

TEST_F(DeviceRing, RequestsThatNobodyWaitsForEndWithTheDevice) {
  Open();
  const ExecutableId id = Load({.offset = 1});
  std::vector<Operands> operands(4);
  ASSERT_TRUE(Run(id, operands[0]).ok());
  std::vector<RequestId> requests;
  for (const Operands& one : operands) requests.push_back(Submit(id, one));
  EXPECT_TRUE(device_->Wait(requests[0], nullptr).ok());
  tampering_.log.clear();
  device_ = nullptr;
  ASSERT_FALSE(tampering_.log.empty());
  EXPECT_EQ(tampering_.mapped, 0);
  EXPECT_EQ(tampering_.log.back(), "gone");
  const auto at = [&](const char* what) { return std::ranges::find(tampering_.log, what); };
  // The programs, too, stay until then.
  EXPECT_LT(at("ring off"), at("unmap"));
  EXPECT_LT(at("unmap"), at("gone"));
}

struct Disturbance {
  const char* name;
  std::function<void(Tampering*)> set_up;
};

class EachDisturbance : public ::testing::TestWithParam<Disturbance> {};

TEST_P(EachDisturbance, CostsNoRequest) {
  Tampering tampering;
  const auto device = RingDevice().Open(&tampering);
  GetParam().set_up(&tampering);
  const auto id = device->Load(std::make_shared<Executable>(MakeTableExecutable({.offset = 1})));
  ASSERT_TRUE(id.ok());
  for (int round = 0; round < 5; ++round) {
    std::vector<Operands> operands(5);
    std::vector<RequestId> requests;
    for (const Operands& one : operands) {
      requests.push_back(
          *device->Submit({.executable = *id, .inputs = {one.input}, .outputs = {one.output}}));
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      const Status status = device->Wait(requests[i], nullptr);
      EXPECT_TRUE(status.ok()) << status.message();
      EXPECT_THAT(operands[i].output, ElementsAre(1, 2, 3, 4));
    }
  }
  EXPECT_EQ(device->health().failures, 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, EachDisturbance,
    ::testing::Values(
        Disturbance{"lost interrupts",
                    [](Tampering* tampering) {
                      tampering->on_interrupts = [](Result<uint64_t>) -> Result<uint64_t> {
                        return Timeout("nothing");
                      };
                    }},
        Disturbance{"interrupts without a cause",
                    [](Tampering* tampering) {
                      tampering->on_interrupts = [n = 0](Result<uint64_t> raised) mutable {
                        return ++n % 2 == 0 ? Result<uint64_t>(uint64_t{12}) : std::move(raised);
                      };
                    }},
        Disturbance{"late interrupts",
                    [](Tampering* tampering) {
                      tampering->on_interrupts =
                          [last =
                               uint64_t{0}](Result<uint64_t> raised) mutable -> Result<uint64_t> {
                        const uint64_t now = raised.ok() ? *raised : 0;
                        const uint64_t given = std::exchange(last, now);
                        if (given == 0) return Timeout("nothing");
                        return given;
                      };
                    }},
        Disturbance{"lost doorbells",
                    [](Tampering* tampering) {
                      tampering->drops_write = [last = 0u](RingRegister at,
                                                           uint32_t value) mutable {
                        return at == RingRegister::kRingTail && std::exchange(last, value) != value;
                      };
                    }}),
    [](const auto& one) {
      std::string name = one.param.name;
      std::ranges::replace(name, ' ', '_');
      return name;
    });

TEST_F(DeviceRing, ADamagedEventIsNotBelieved) {
  for (const size_t byte : {size_t{0}, size_t{4}, size_t{8}, size_t{24}, size_t{31}}) {
    Open(/*recovers=*/true);
    const ExecutableId id = Load({.offset = 1});
    std::vector<Operands> operands(4);
    ASSERT_TRUE(Run(id, operands[0]).ok());
    std::vector<RequestId> requests;
    for (const Operands& one : operands) requests.push_back(Submit(id, one));
    int left = 1;
    tampering_.on_interrupts = [&](Result<uint64_t> raised) {
      if (raised.ok() && left > 0) {
        for (size_t at = 0; at < 512; at += 64) {
          const auto event = tampering_.events.back()->bytes().subspan(at, 32);
          if (event[0] == 0) continue;
          event[byte] = static_cast<uint8_t>(event[byte] ^ 0x40);
          left = 0;
        }
      }
      return raised;
    };
    for (size_t i = 0; i < requests.size(); ++i) {
      const Status status = device_->Wait(requests[i], nullptr);
      EXPECT_TRUE(status.ok()) << status.message();
      ExpectRight(operands[i]);
    }
    EXPECT_EQ(left, 0);
    EXPECT_EQ(device_->health().failures, 1u);
    tampering_.on_interrupts = nullptr;
    device_ = nullptr;
    tampering_.events.clear();
  }
}

TEST_F(DeviceRing, ADmaFaultSaysWhere) {
  Open();
  const ExecutableId id = Load({.offset = 1});
  Operands operands;
  ASSERT_TRUE(Run(id, operands).ok());
  tampering_.lies_by = uint64_t{1} << 40;
  ASSERT_TRUE(device_->RegisterMemory(operands.bytes).ok());
  tampering_.lies_by = 0;
  const Status status = Run(id, operands);
  EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(status.message(), HasSubstr("DMA fault at bus address 10"));
  // All memory was given to it anew.
  RequestReport report;
  EXPECT_TRUE(Run(id, operands, &report).ok());
  ExpectRight(operands);
  EXPECT_EQ(report.bytes_copied, 0u);
}

TEST_F(DeviceRing, WithoutPinnedMemoryThereAreCopies) {
  Open();
  tampering_.on_map = [] { return ResourceExhausted("raise RLIMIT_MEMLOCK"); };
  const ExecutableId id = Load({.offset = 1});
  Operands operands;
  Status status = device_->RegisterMemory(operands.bytes);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "raise RLIMIT_MEMLOCK");
  // Not even for copies.
  status = Run(id, operands);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("raise RLIMIT_MEMLOCK"));
  tampering_.on_map = nullptr;
  RequestReport report;
  status = Run(id, operands, &report);
  EXPECT_TRUE(status.ok()) << status.message();
  ExpectRight(operands);
  EXPECT_EQ(report.bytes_copied, 8u + 256 + 6 * 128);  // the programs, too
}

// As recordings are made: they must not depend on where a program has its buffers.
TEST_F(DeviceRing, AFunctionThatMapsNobodysMemoryGetsCopies) {
  tampering_.maps_callers_memory = false;
  Open();
  const ExecutableId id = Load({.offset = 1});
  Operands operands;
  EXPECT_TRUE(device_->RegisterMemory(operands.bytes).ok());
  RequestReport report;
  EXPECT_TRUE(Run(id, operands, &report).ok());
  ExpectRight(operands);
  EXPECT_EQ(report.bytes_copied, 8u);  // programs were once, when they were loaded
  EXPECT_EQ(tampering_.maps, 0);
}

TEST_F(DeviceRing, SeveralThreads) {
  Open(/*recovers=*/true);
  ExecutableId ids[3];
  for (uint8_t i = 0; i < 3; ++i) ids[i] = Load({.count = 100, .offset = i});
  std::atomic<int> cancelled = 0, right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      uint32_t state = 12345u * static_cast<uint32_t>(t + 1);
      const auto draw = [&](uint32_t below) {
        state = state * 1664525 + 1013904223;
        return (state >> 16) % below;
      };
      std::vector<Operands> operands;
      for (int i = 0; i < 4; ++i) operands.emplace_back(100);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(device_->RegisterMemory(operands[i].bytes).ok());
      }
      for (int round = 0; round < 40; ++round) {
        std::vector<std::pair<RequestId, uint8_t>> requests;
        for (const Operands& one : operands) {
          const auto which = static_cast<uint8_t>(draw(3));
          requests.push_back({Submit(ids[which], one, static_cast<int32_t>(draw(3))), which});
        }
        if (draw(3) == 0) {
          EXPECT_TRUE(device_->Cancel(requests[draw(4)].first).ok());
        }
        for (size_t i = 4; i-- > 0;) {
          const Status status = device_->Wait(requests[i].first, nullptr);
          if (status.code() == StatusCode::kCancelled) {
            ++cancelled;
          } else {
            ASSERT_TRUE(status.ok()) << status.message();
            ExpectRight(operands[i], requests[i].second);
            ++right;
          }
        }
      }
      for (size_t i = 0; i < 2; ++i) device_->UnregisterMemory(operands[i].bytes);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cancelled + right, 4 * 40 * 4);
  EXPECT_GT(right, 400);
  EXPECT_EQ(device_->health().failures, 0u);
}

}  // namespace
}  // namespace atollrt
