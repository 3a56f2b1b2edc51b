// SPDX-License-Identifier: Apache-2.0
//
// What every Device of an Atoll-1 holds to (driver/device/device.h), whatever is below it, as
// clauses that each open one of 1 MiB:
//
//   class EmulatedDeviceContract : public testing::TestWithParam<DeviceClause> {};
//   TEST_P(EmulatedDeviceContract, Holds) { GetParam().check([] { return ...; }); }
//   INSTANTIATE_TEST_SUITE_P(All, EmulatedDeviceContract, testing::ValuesIn(kDeviceContract),
//                            NameOfDeviceClause);
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "driver/device/device.h"
#include "runtime/base/buffer.h"
#include "tests/support/rng.h"
#include "tests/support/test_executables.h"

namespace atollrt {

inline constexpr uint64_t kDeviceContractMemory = 1 << 20;

using OpenDeviceUnderTest = std::function<std::unique_ptr<Device>()>;

struct DeviceClause {
  const char* name;
  void (*check)(const OpenDeviceUnderTest& open);
};
inline std::string NameOfDeviceClause(const testing::TestParamInfo<DeviceClause>& info) {
  return info.param.name;
}

namespace device_contract {

// A table of its own for each offset.
inline ExecutableId Load(Device* device, const TableExecutableOptions& options,
                         const LoadOptions& how = {}) {
  const auto id =
      device->Load(std::make_shared<const Executable>(MakeTableExecutable(options)), how);
  EXPECT_TRUE(id.ok()) << id.status().message();
  return id.ok() ? *id : 0;
}

// A request, and whether what came is right.
struct Exchange {
  Exchange(size_t count, uint8_t first) : input(count), output(count, 0xee) {
    for (size_t i = 0; i < count; ++i) input[i] = static_cast<uint8_t>(first + 7 * i);
  }
  Request Of(ExecutableId id) {
    Request request;
    request.executable = id;
    request.inputs = {input};
    request.outputs = {output};
    return request;
  }
  bool IsRight(uint8_t offset) const {
    return std::ranges::equal(output, input,
                              [&](uint8_t a, uint8_t b) { return a == uint8_t(b + offset); });
  }
  std::vector<uint8_t> input, output;
};

inline Status Run(Device* device, ExecutableId id, uint8_t offset, uint8_t first, size_t count = 4,
                  RequestReport* report = nullptr) {
  Exchange exchange(count, first);
  ATOLL_ASSIGN_OR_RETURN(const RequestId request, device->Submit(exchange.Of(id)));
  ATOLL_RETURN_IF_ERROR(device->Wait(request, report));
  return exchange.IsRight(offset) ? Status() : InternalError("wrong bytes");
}

inline void SaysWhatItIs(const OpenDeviceUnderTest& open) {
  const auto device = open();
  const DeviceInfo& info = device->info();
  EXPECT_EQ(info.family, DeviceFamily::kAtoll1);
  EXPECT_EQ(info.isa_version, kIsaVersion);
  EXPECT_EQ(info.array_rows, 64u);
  EXPECT_EQ(info.array_columns, 64u);
  EXPECT_EQ(info.memory_bytes, kDeviceContractMemory);
  EXPECT_GT(info.program_memory_bytes, 0u);
  EXPECT_GT(info.clock_hz, 0u);
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(device->state(), DeviceState::kReady);
  EXPECT_GE(device->jobs_in_flight_max(), 1u);
}

inline void GivesTheBytesAndWhatTheyCost(const OpenDeviceUnderTest& open) {
  const auto device = open();
  const ExecutableId id = Load(device.get(), {.count = 1000, .offset = 5});
  for (int i = 0; i < 20; ++i) {
    RequestReport report;
    const Status status = Run(device.get(), id, 5, static_cast<uint8_t>(i), 1000, &report);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_GT(report.device_cycles, 0u);
    EXPECT_GE(report.bytes_to_device, 1000u);
    EXPECT_GE(report.bytes_from_device, 1000u);
    EXPECT_GE(report.queue_ns, 0);
    EXPECT_GE(report.link_out_ns + report.compute_ns + report.link_in_ns, 0);
    EXPECT_EQ(report.replays, 0);
    EXPECT_FALSE(report.on_fallback);
  }
  const DeviceHealth health = device->health();
  EXPECT_EQ(health.failures + health.resets + health.losses + health.fallbacks, 0u);
}

inline void KeepsExecutablesApart(const OpenDeviceUnderTest& open) {
  const auto device = open();
  std::vector<ExecutableId> ids;
  for (uint8_t offset = 0; offset < 6; ++offset) {
    ids.push_back(Load(device.get(),
                       {.offset = offset,
                        .table = offset % 2 == 0 ? TableExecutableOptions::kResident
                                                 : TableExecutableOptions::kStreamed},
                       {.residency_set = offset % 3u}));
  }
  for (int i = 0; i < 60; ++i) {
    const auto offset = static_cast<uint8_t>(i * 5 % 6);
    const Status status = Run(device.get(), ids[offset], offset, static_cast<uint8_t>(i));
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

// Together they do not fit.
inline void MakesRoomForExecutables(const OpenDeviceUnderTest& open) {
  const auto device = open();
  std::vector<ExecutableId> ids;
  for (uint8_t offset = 0; offset < 4; ++offset) {
    ids.push_back(Load(device.get(), {.offset = offset, .extra_parameters = 400'000}));
  }
  for (int i = 0; i < 12; ++i) {
    const auto offset = static_cast<uint8_t>(i % 4);
    const Status status = Run(device.get(), ids[offset], offset, static_cast<uint8_t>(i));
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

inline void TakesLargeBuffers(const OpenDeviceUnderTest& open) {
  const auto device = open();
  constexpr uint32_t kCount = 500'000;
  const ExecutableId id = Load(device.get(), {.count = kCount, .offset = 9});
  for (uint8_t i = 0; i < 3; ++i) {
    const Status status = Run(device.get(), id, 9, i, kCount);
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

inline void RefusesExecutablesThatCannotRun(const OpenDeviceUnderTest& open) {
  const auto device = open();
  const auto load = [&](const AnyExecutable& executable) {
    return device
        ->Load(std::make_shared<const Executable>(static_cast<const Executable&>(executable)))
        .status()
        .code();
  };
  EXPECT_EQ(load(MakeTableExecutable({.extra_activations = 2 * kDeviceContractMemory})),
            StatusCode::kResourceExhausted);
  Executable broken = MakeTableExecutable({});
  broken.inference_program.pop_back();
  EXPECT_EQ(load(broken), StatusCode::kCorruptModel);
  broken = MakeTableExecutable({});
  broken.isa_version = kIsaVersion + 1;
  EXPECT_EQ(load(broken), StatusCode::kUnsupported);
  AnyExecutable of_a_coral;
  of_a_coral.family = DeviceFamily::kCoral;
  EXPECT_EQ(device->Load(std::make_shared<const AnyExecutable>(of_a_coral)).status().code(),
            StatusCode::kUnsupported);
  EXPECT_EQ(device->Load(nullptr).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Run(device.get(), Load(device.get(), {.offset = 3}), 3, 1).ok());
}

inline void RefusesRequestsThatDoNotFit(const OpenDeviceUnderTest& open) {
  const auto device = open();
  const ExecutableId id = Load(device.get(), {.offset = 1});
  Exchange exchange(4, 0);
  const auto submit = [&](const Request& request) {
    return device->Submit(request).status().code();
  };
  Request request = exchange.Of(id);
  request.inputs.push_back(exchange.input);
  EXPECT_EQ(submit(request), StatusCode::kInvalidArgument);
  request = exchange.Of(id);
  request.inputs.clear();
  EXPECT_EQ(submit(request), StatusCode::kInvalidArgument);
  request = exchange.Of(id);
  request.outputs[0] = request.outputs[0].first(3);
  EXPECT_EQ(submit(request), StatusCode::kInvalidArgument);
  EXPECT_EQ(submit(exchange.Of(id + 100)), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Run(device.get(), id, 1, 1).ok());
}

inline void AnswersOnce(const OpenDeviceUnderTest& open) {
  const auto device = open();
  const ExecutableId id = Load(device.get(), {.offset = 1});
  Exchange exchange(4, 0);
  const auto request = device->Submit(exchange.Of(id));
  ASSERT_TRUE(request.ok());
  EXPECT_TRUE(device->Wait(*request, nullptr).ok());
  EXPECT_EQ(device->Wait(*request, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(device->Wait(*request + 100, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(device->Cancel(*request).code(), StatusCode::kInvalidArgument);
}

inline void ForgetsWhatIsUnloaded(const OpenDeviceUnderTest& open) {
  const auto device = open();
  const ExecutableId id = Load(device.get(), {.offset = 1});
  const ExecutableId other = Load(device.get(), {.offset = 2});
  Exchange exchange(4, 0);
  const auto request = device->Submit(exchange.Of(id));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(device->Unload(id).code(), StatusCode::kDeviceBusy);
  EXPECT_TRUE(device->Wait(*request, nullptr).ok());
  EXPECT_TRUE(device->Unload(id).ok());
  EXPECT_EQ(device->Unload(id).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(device->Submit(exchange.Of(id)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Run(device.get(), other, 2, 1).ok());
  // Many more than it keeps at a time.
  for (uint8_t i = 0; i < 100; ++i) {
    const ExecutableId next = Load(device.get(), {.offset = i});
    const Status status = Run(device.get(), next, i, i);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_TRUE(device->Unload(next).ok());
  }
}

inline void CancelsWhatHasNotBegun(const OpenDeviceUnderTest& open) {
  const auto device = open();
  const ExecutableId id = Load(device.get(), {.offset = 1});
  Exchange first(4, 0), second(4, 50);
  const auto cancelled = device->Submit(first.Of(id));
  const auto kept = device->Submit(second.Of(id));
  ASSERT_TRUE(cancelled.ok() && kept.ok());
  EXPECT_TRUE(device->Cancel(*cancelled).ok());
  EXPECT_EQ(device->Wait(*cancelled, nullptr).code(), StatusCode::kCancelled);
  EXPECT_TRUE(device->Wait(*kept, nullptr).ok());
  EXPECT_TRUE(second.IsRight(1));
}

inline void DoesNotStartWhatIsLate(const OpenDeviceUnderTest& open) {
  const auto device = open();
  const ExecutableId id = Load(device.get(), {.offset = 1});
  Exchange exchange(4, 0);
  Request request = exchange.Of(id);
  request.timeout = std::chrono::milliseconds(0);
  const auto late = device->Submit(request);
  ASSERT_TRUE(late.ok());
  // Some devices give each request some time.
  const StatusCode code = device->Wait(*late, nullptr).code();
  EXPECT_TRUE(code == StatusCode::kTimeout || (code == StatusCode::kOk && exchange.IsRight(1)));
  EXPECT_TRUE(Run(device.get(), id, 1, 1).ok());
}

inline void NamesMalformedProgramsAndGoesOn(const OpenDeviceUnderTest& open) {
  const auto device = open();
  Executable bad = MakeTableExecutable({.name = "bad"});
  std::get<TableInstruction>(bad.inference_program[1]).count = 1u << 30;
  const auto bad_id = device->Load(std::make_shared<const Executable>(bad));
  ASSERT_TRUE(bad_id.ok());
  const ExecutableId good = Load(device.get(), {.name = "good", .offset = 2});
  for (uint8_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(Run(device.get(), good, 2, i).ok());
    const Status status = Run(device.get(), *bad_id, 0, i);
    EXPECT_EQ(status.code(), StatusCode::kCorruptModel) << status.message();
    EXPECT_THAT(status.message(), testing::HasSubstr("BAD_ADDRESS in instruction 1 (TABLE "));
    EXPECT_THAT(status.message(), testing::HasSubstr("of 'bad'"));
  }
  EXPECT_EQ(device->state(), DeviceState::kReady);
  EXPECT_TRUE(Run(device.get(), good, 2, 9).ok());
}

// Some wait in another order than they submit, and some cancel.
inline void ServesThreads(const OpenDeviceUnderTest& open) {
  const auto device = open();
  std::vector<std::thread> threads;
  for (uint8_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&device, thread] {
      const ExecutableId id = Load(device.get(), {.offset = thread});
      for (int i = 0; i < TestCount(25); ++i) {
        std::vector<Exchange> exchanges;
        for (uint8_t k = 0; k < 4; ++k) exchanges.emplace_back(4, static_cast<uint8_t>(i + k));
        std::vector<std::pair<RequestId, const Exchange*>> requests;
        for (Exchange& exchange : exchanges) {
          const auto request = device->Submit(exchange.Of(id));
          ASSERT_TRUE(request.ok()) << request.status().message();
          requests.emplace_back(*request, &exchange);
        }
        const bool cancels = i % 5 == 0;
        if (cancels) {
          EXPECT_TRUE(device->Cancel(requests[1].first).ok());
        }
        if (i % 2 == 0) std::ranges::reverse(requests);
        for (const auto& [request, exchange] : requests) {
          const Status status = device->Wait(request, nullptr);
          if (cancels && status.code() == StatusCode::kCancelled) continue;
          ASSERT_TRUE(status.ok()) << status.message();
          ASSERT_TRUE(exchange->IsRight(thread));
        }
      }
      EXPECT_TRUE(device->Unload(id).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

inline void UsesRegisteredMemoryInPlaceOrCopies(const OpenDeviceUnderTest& open) {
  const auto device = open();
  const ExecutableId id = Load(device.get(), {.count = 1000, .offset = 4});
  for (const bool is_shared : {true, false}) {
    Buffer memory = is_shared ? *Buffer::AllocateShared(1 << 16) : *Buffer::Allocate(1 << 16);
    const std::span<uint8_t> input = memory.bytes().subspan(4096, 1000);
    const std::span<uint8_t> output = memory.bytes().subspan(9000, 1000);
    const HostMemory told(memory.bytes(), memory.memfd());
    // Twice, and for a while once.
    const bool registered = device->RegisterMemory(told).ok();
    const bool again = device->RegisterMemory(told).ok();
    for (int i = 0; i < 9; ++i) {
      if (i == 3 && registered) device->UnregisterMemory(memory.bytes());
      if (i == 6 && again) device->UnregisterMemory(memory.bytes());
      std::ranges::fill(output, 0xee);
      for (size_t k = 0; k < input.size(); ++k) input[k] = static_cast<uint8_t>(k * 3 + i);
      const auto request =
          device->Submit({.executable = id, .inputs = {input}, .outputs = {output}});
      ASSERT_TRUE(request.ok());
      const Status status = device->Wait(*request, nullptr);
      ASSERT_TRUE(status.ok()) << status.message();
      for (size_t k = 0; k < input.size(); ++k) {
        ASSERT_EQ(output[k], static_cast<uint8_t>(k * 3 + i + 4)) << k;
      }
    }
  }
}

inline void GoesOnAfterAReset(const OpenDeviceUnderTest& open) {
  const auto device = open();
  const ExecutableId id = Load(device.get(), {.offset = 8});
  EXPECT_TRUE(Run(device.get(), id, 8, 1).ok());
  Exchange exchange(4, 30);
  const auto waits = device->Submit(exchange.Of(id));
  ASSERT_TRUE(waits.ok());
  const Status reset = device->Reset();
  EXPECT_TRUE(reset.ok()) << reset.message();
  EXPECT_TRUE(device->Wait(*waits, nullptr).ok());
  EXPECT_TRUE(exchange.IsRight(8));
  EXPECT_TRUE(Run(device.get(), id, 8, 2).ok());
}

inline void EndsWithRequestsThatNobodyWaitsFor(const OpenDeviceUnderTest& open) {
  Exchange first(4, 0), second(4, 0);
  const auto device = open();
  const ExecutableId id = Load(device.get(), {.offset = 1});
  EXPECT_TRUE(device->Submit(first.Of(id)).ok());
  EXPECT_TRUE(device->Submit(second.Of(id)).ok());
}

}  // namespace device_contract

#define ATOLL_DEVICE_CLAUSE(name) \
  { #name, device_contract::name }
inline constexpr DeviceClause kDeviceContract[] = {
    ATOLL_DEVICE_CLAUSE(SaysWhatItIs),
    ATOLL_DEVICE_CLAUSE(GivesTheBytesAndWhatTheyCost),
    ATOLL_DEVICE_CLAUSE(KeepsExecutablesApart),
    ATOLL_DEVICE_CLAUSE(MakesRoomForExecutables),
    ATOLL_DEVICE_CLAUSE(TakesLargeBuffers),
    ATOLL_DEVICE_CLAUSE(RefusesExecutablesThatCannotRun),
    ATOLL_DEVICE_CLAUSE(RefusesRequestsThatDoNotFit),
    ATOLL_DEVICE_CLAUSE(AnswersOnce),
    ATOLL_DEVICE_CLAUSE(ForgetsWhatIsUnloaded),
    ATOLL_DEVICE_CLAUSE(CancelsWhatHasNotBegun),
    ATOLL_DEVICE_CLAUSE(DoesNotStartWhatIsLate),
    ATOLL_DEVICE_CLAUSE(NamesMalformedProgramsAndGoesOn),
    ATOLL_DEVICE_CLAUSE(ServesThreads),
    ATOLL_DEVICE_CLAUSE(UsesRegisteredMemoryInPlaceOrCopies),
    ATOLL_DEVICE_CLAUSE(GoesOnAfterAReset),
    ATOLL_DEVICE_CLAUSE(EndsWithRequestsThatNobodyWaitsFor),
};
#undef ATOLL_DEVICE_CLAUSE

}  // namespace atollrt
