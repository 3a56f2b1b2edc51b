// SPDX-License-Identifier: Apache-2.0
//
// In which order a device's requests run (device.h): seen from the start messages on the wire.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "driver/atoll1/protocol.h"
#include "driver/emulator/emulated_transport.h"
#include "tests/support/open_atoll1.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;

// Writes down the request ids of the start messages that pass.
class StartWatcher final : public UsbTransport {
 public:
  StartWatcher(std::unique_ptr<UsbTransport> inner, std::vector<RequestId>* started)
      : inner_(std::move(inner)), started_(started) {}
  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override {
    return inner_->Control(setup, data, deadline);
  }
  Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline deadline) override {
    if (data.size() >= kRecordHeaderBytes + kStartBytes) {
      const auto header = DecodeRecordHeader(data.first<kRecordHeaderBytes>());
      if (header.ok() && header->tag == static_cast<uint8_t>(RecordTag::kStart)) {
        const auto start = DecodeStart(data.subspan(kRecordHeaderBytes, kStartBytes));
        if (start.ok() && start->request_id != 0) started_->push_back(start->request_id);
      }
    }
    return inner_->BulkOut(endpoint, data, deadline);
  }
  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override {
    return inner_->BulkIn(endpoint, data, deadline);
  }
  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                             Deadline deadline) override {
    return inner_->InterruptIn(endpoint, data, deadline);
  }
  void Cancel() override { inner_->Cancel(); }
  Status Reset(Deadline deadline) override { return inner_->Reset(deadline); }

 private:
  const std::unique_ptr<UsbTransport> inner_;
  std::vector<RequestId>* const started_;
};

class DeviceOrder : public ::testing::Test {
 protected:
  void Open(uint64_t memory_bytes) {
    CoreOptions core;
    core.profile = DeviceProfiles()[0];
    core.profile.memory_bytes = memory_bytes;
    auto device =
        OpenAtoll1(std::make_unique<StartWatcher>(*EmulatedTransport::Create(core), &started_), {});
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = *std::move(device);
  }
  ExecutableId Load(const char* name, uint32_t extra_parameters = 0) {
    const auto id = device_->Load(std::make_shared<Executable>(
        MakeTableExecutable({.name = name, .offset = 1, .extra_parameters = extra_parameters})));
    EXPECT_TRUE(id.ok()) << id.status().message();
    return *id;
  }
  void Submit(ExecutableId id, int32_t priority = 0) {
    const auto request = device_->Submit(
        {.executable = id, .inputs = {input_}, .outputs = {output_}, .priority = priority});
    ASSERT_TRUE(request.ok());
    requests_.push_back(*request);
  }
  // The numbers, from 0, of the requests since the last call, as they were started.
  std::vector<int> Order() {
    started_.clear();
    for (const RequestId request : requests_) EXPECT_TRUE(device_->Wait(request, nullptr).ok());
    std::vector<int> order;
    for (const RequestId id : started_) {
      order.push_back(
          static_cast<int>(std::find(requests_.begin(), requests_.end(), id) - requests_.begin()));
    }
    requests_.clear();
    return order;
  }

  std::unique_ptr<Device> device_;
  std::vector<RequestId> started_, requests_;
  const std::vector<uint8_t> input_ = {1, 2, 3, 4};
  std::vector<uint8_t> output_ = std::vector<uint8_t>(4);
};

TEST_F(DeviceOrder, ThoseOfOneExecutableAsSubmitted) {
  Open(1 << 20);
  const ExecutableId a = Load("a");
  for (int i = 0; i < 4; ++i) Submit(a);
  EXPECT_THAT(Order(), ElementsAre(0, 1, 2, 3));
}

TEST_F(DeviceOrder, ExecutablesTakeTurns) {
  Open(1 << 20);
  const ExecutableId a = Load("a"), b = Load("b"), c = Load("c");
  for (const ExecutableId id : {a, b, c}) Submit(id);
  Order();  // all are resident now
  for (const ExecutableId id : {a, a, a, a, b, b, c}) Submit(id);
  EXPECT_THAT(Order(), ElementsAre(0, 4, 6, 1, 5, 2, 3));
}

TEST_F(DeviceOrder, HigherPrioritiesFirst) {
  Open(1 << 20);
  const ExecutableId a = Load("a"), b = Load("b");
  Submit(a);
  Submit(b);
  Order();
  Submit(a);
  Submit(a, -1);
  Submit(b, 5);
  Submit(a, 5);
  Submit(b, 7);
  EXPECT_THAT(Order(), ElementsAre(4, 3, 2, 0, 1));
}

// Two that do not fit together would otherwise be uploaded for each request.
TEST_F(DeviceOrder, SomeRequestsOfAResidentExecutableGoBeforeAnUpload) {
  Open(32 << 10);
  const ExecutableId a = Load("a", 20'000), b = Load("b", 20'000);
  Submit(a);
  Order();
  for (int i = 0; i < 6; ++i) Submit(a);
  Submit(b);
  Submit(b);
  EXPECT_THAT(Order(), ElementsAre(0, 1, 2, 3, 6, 7, 4, 5));
}

}  // namespace
}  // namespace atollrt
