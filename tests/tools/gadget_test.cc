// SPDX-License-Identifier: Apache-2.0
//
// atoll-gadget without a kernel: sockets stand for the files of FunctionFS, and the driver talks to
// their other ends as a host does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <linux/usb/functionfs.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "driver/emulator/emulated_transport.h"
#include "driver/faults/fault_plan.h"
#include "driver/faults/faulty_bus.h"
#include "runtime/base/bytes.h"
#include "tests/driver/emulator/emulated_program.h"
#include "tests/support/long_pool.h"
#include "tests/support/open_atoll1.h"
#include "tests/support/rng.h"
#include "tests/support/test_executables.h"
#include "tools/gadget/atoll_function.h"
#include "tools/gadget/coral_function.h"
#include "tools/gadget/function.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;

// The host's ends of the files. Bulk OUT is a stream of bytes; the others keep transfers apart.
class HostEnd final : public UsbTransport {
 public:
  HostEnd() {
    Connect(SOCK_SEQPACKET, &control_, &device_control_);
    for (size_t i = 0; i < endpoints_.size(); ++i) {
      FileDescriptor device;
      Connect(i == 0 ? SOCK_STREAM : SOCK_SEQPACKET, &endpoints_[i], &device);
      device_endpoints_.emplace_back(std::move(device));
    }
  }
  // The device's ends; once.
  FunctionFs TakeFunctionFs() {
    return FunctionFs(std::move(device_control_), std::move(device_endpoints_));
  }

  void Send(usb_functionfs_event_type type, const usb_ctrlrequest& setup = {}) {
    usb_functionfs_event event = {};
    event.u.setup = setup;
    event.type = static_cast<uint8_t>(type);
    ASSERT_EQ(write(control_.get(), &event, sizeof(event)), ssize_t{sizeof(event)});
  }
  void SendSetup(const ControlSetup& setup, size_t length) {
    uint8_t bytes[8] = {setup.request_type, setup.request};
    StoreLittleEndian(bytes + 2, setup.value);
    StoreLittleEndian(bytes + 4, setup.index);
    StoreLittleEndian(bytes + 6, static_cast<uint16_t>(length));
    usb_ctrlrequest request;
    std::memcpy(&request, bytes, sizeof(bytes));
    Send(FUNCTIONFS_SETUP, request);
  }

  Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline deadline) override {
    SendSetup(setup, data.size());
    if ((setup.request_type & 0x80) == 0) {
      EXPECT_EQ(write(control_.get(), data.data(), data.size()), ssize_t(data.size()));
      WaitUntilTaken(control_);  // as a host waits for the end of the request
      return {};
    }
    std::vector<uint8_t> answer(data.size() + 1);
    const Result<size_t> count = Receive(control_.get(), answer, deadline);
    if (!count.ok()) return count.status();
    EXPECT_EQ(*count, data.size());
    std::copy_n(answer.begin(), data.size(), data.begin());
    return {};
  }
  Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline) override {
    EXPECT_EQ(endpoint, kRecordEndpoint);
    while (!data.empty()) {
      const ssize_t count = write(endpoints_[0].get(), data.data(), data.size());
      if (count <= 0) return DeviceLost("the device's end is closed");
      data = data.subspan(static_cast<size_t>(count));
    }
    return {};
  }
  Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline deadline) override {
    const size_t index = endpoint & 0x0F;
    std::vector<uint8_t>& rest = rests_[index];
    if (rest.empty()) {
      rest.resize(1 << 20);
      const Result<size_t> count = Receive(endpoints_[index].get(), rest, deadline);
      rest.resize(count.ok() ? *count : 0);
      if (!count.ok()) return count.status();
      if (*count == 0) ++empty_transfers_;
    }
    const size_t count = std::min(rest.size(), data.size());
    std::copy_n(rest.begin(), count, data.begin());
    rest.erase(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data,
                             Deadline deadline) override {
    return BulkIn(endpoint, data, deadline);
  }
  void Cancel() override {}
  Status Reset(Deadline) override {
    Send(FUNCTIONFS_DISABLE);
    Send(FUNCTIONFS_ENABLE);
    return {};
  }

  void WaitUntilRecordsAreTaken() { WaitUntilTaken(endpoints_[0]); }

  int empty_transfers() const { return empty_transfers_; }

 private:
  static void Connect(int type, FileDescriptor* host, FileDescriptor* device) {
    int ends[2] = {-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, type, 0, ends), 0);
    *host = FileDescriptor(ends[0]);
    *device = FileDescriptor(ends[1]);
  }
  // Until the device has read everything.
  static void WaitUntilTaken(const FileDescriptor& file) {
    int waiting = 1;
    while (waiting > 0) {
      ASSERT_EQ(ioctl(file.get(), SIOCOUTQ, &waiting), 0);
      std::this_thread::yield();
    }
  }
  static Result<size_t> Receive(int fd, std::span<uint8_t> data, Deadline deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd file = {fd, POLLIN, 0};
    if (poll(&file, 1, static_cast<int>(std::max<int64_t>(left.count(), 0))) <= 0) {
      return Timeout("the device has sent nothing");
    }
    const ssize_t count = recv(fd, data.data(), data.size(), 0);
    if (count < 0) return DeviceLost("the device's end is closed");
    return static_cast<size_t>(count);
  }

  FileDescriptor control_, device_control_;
  std::array<FileDescriptor, 4> endpoints_;
  std::vector<EndpointFile> device_endpoints_;
  std::array<std::vector<uint8_t>, 4> rests_;
  std::atomic<int> empty_transfers_{0};
};

CoreOptions Options(Face face = Face::kDirect) {
  CoreOptions options;
  options.profile = DeviceProfiles()[0];
  options.face = face;
  return options;
}

// A gadget that serves on a thread of its own, and the host's end.
class GadgetTest : public testing::Test {
 protected:
  explicit GadgetTest(std::string_view faults = "", const CoreOptions& core = Options())
      : stop_(eventfd(0, 0)) {
    std::shared_ptr<UsbBus> bus = std::make_shared<EmulatedBus>(std::vector<CoreOptions>{core});
    if (!faults.empty()) {
      auto plan = ParseFaultScript(faults);
      EXPECT_TRUE(plan.ok());
      bus = std::make_shared<FaultyBus>(bus, *std::move(plan), FaultyBus::Options());
    }
    function_ = *AtollFunction::Create(std::move(bus));
    auto host = std::make_unique<HostEnd>();
    function_fs_ = std::make_unique<FunctionFs>(host->TakeFunctionFs());
    host_ = std::move(host);
    StartToServe();
    host_->Send(FUNCTIONFS_BIND);
    host_->Send(FUNCTIONFS_ENABLE);
  }
  ~GadgetTest() override { EXPECT_EQ(Stop(), ServeEnd::kStopped); }

  void StartToServe() {
    server_ = std::thread([this] {
      const Result<ServeEnd> end = ServeFunction(function_fs_.get(), function_.get(), stop_.get());
      EXPECT_TRUE(end.ok()) << end.status().message();
      end_ = end.ok() ? *end : ServeEnd::kEnd;
    });
  }
  ServeEnd Stop() {
    if (server_.joinable()) {
      const uint64_t one = 1;
      EXPECT_EQ(write(stop_.get(), &one, sizeof(one)), ssize_t{sizeof(one)});
      server_.join();
    }
    return end_;
  }
  ServeEnd WaitForEnd() {
    server_.join();
    return end_;
  }

  uint32_t ReadRegister(Register address) {
    uint8_t bytes[4] = {};
    EXPECT_TRUE(host_
                    ->Control(RegisterRequest(static_cast<uint32_t>(address), RegisterWidth::k32,
                                              RegisterAccess::kRead),
                              bytes, Clock::now() + std::chrono::seconds(10))
                    .ok());
    return LoadLittleEndian<uint32_t>(bytes);
  }

  // Runs a table executable on a device that the driver opens through `transport`.
  static void RunTable(Device* device, uint32_t count) {
    auto executable = std::make_shared<Executable>(MakeTableExecutable({.count = count}));
    const auto id = device->Load(executable);
    ASSERT_TRUE(id.ok()) << id.status().message();
    for (int round = 0; round < 3; ++round) {
      std::vector<uint8_t> input(count), output(count), expected(count);
      for (size_t i = 0; i < count; ++i) {
        input[i] = static_cast<uint8_t>(i * 7 + static_cast<size_t>(round));
        expected[i] = static_cast<uint8_t>(input[i] + 0x10);
      }
      Request request;
      request.executable = *id;
      request.inputs = {input};
      request.outputs = {output};
      const auto submitted = device->Submit(request);
      ASSERT_TRUE(submitted.ok()) << submitted.status().message();
      const Status done = device->Wait(*submitted, nullptr);
      ASSERT_TRUE(done.ok()) << done.message();
      ASSERT_EQ(output, expected);
    }
    ASSERT_TRUE(device->Unload(*id).ok());
  }

  // Lends the host's end to a device.
  class Borrowed final : public UsbTransport {
   public:
    explicit Borrowed(HostEnd* host) : host_(host) {}
    Status Control(const ControlSetup& setup, std::span<uint8_t> data, Deadline at) override {
      return host_->Control(setup, data, at);
    }
    Status BulkOut(uint8_t endpoint, std::span<const uint8_t> data, Deadline at) override {
      return host_->BulkOut(endpoint, data, at);
    }
    Result<size_t> BulkIn(uint8_t endpoint, std::span<uint8_t> data, Deadline at) override {
      return host_->BulkIn(endpoint, data, at);
    }
    Result<size_t> InterruptIn(uint8_t endpoint, std::span<uint8_t> data, Deadline at) override {
      return host_->InterruptIn(endpoint, data, at);
    }
    void Cancel() override {}
    Status Reset(Deadline at) override { return host_->Reset(at); }

   private:
    HostEnd* host_;
  };
  std::unique_ptr<Device> OpenDevice() {
    auto device = OpenAtoll1(std::make_unique<Borrowed>(host_.get()), {.name = "gadget"});
    EXPECT_TRUE(device.ok()) << device.status().message();
    return device.ok() ? *std::move(device) : nullptr;
  }

  std::unique_ptr<AtollFunction> function_;
  std::unique_ptr<FunctionFs> function_fs_;
  std::unique_ptr<HostEnd> host_;
  FileDescriptor stop_;
  std::thread server_;
  ServeEnd end_ = ServeEnd::kEnd;
};

TEST_F(GadgetTest, ServesTheDriver) {
  const auto device = OpenDevice();
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(device->info().memory_bytes, DeviceProfiles()[0].memory_bytes);
  for (const uint32_t count : {1u, 10u, 511u, 512u, 513u, 4096u, 100'000u, 262'144u}) {
    SCOPED_TRACE(count);
    RunTable(device.get(), count);
  }
}

TEST_F(GadgetTest, EndsATransferOfWholePacketsWithAnEmptyOne) {
  const auto device = OpenDevice();
  ASSERT_NE(device, nullptr);
  RunTable(device.get(), 511);
  EXPECT_EQ(host_->empty_transfers(), 0);
  RunTable(device.get(), 1024);
  uint8_t byte = 0;  // the last one, which nobody has asked for yet
  const Result<size_t> rest =
      host_->BulkIn(kOutputEndpoint, {&byte, 1}, Clock::now() + std::chrono::seconds(10));
  ASSERT_TRUE(rest.ok());
  EXPECT_EQ(*rest, 0u);
  // Of three outputs, each a transfer; fewer where the next one was there before the last was
  // ended.
  EXPECT_GE(host_->empty_transfers(), 1);
  EXPECT_LE(host_->empty_transfers(), 3);
}

TEST_F(GadgetTest, RefusesWhatIsNoRegister) {
  // Stalls leave no trace in a socket, apart from the empty write that stalls an OUT request.
  for (const ControlSetup& setup :
       {ControlSetup{0xC0, 1, 0x0034, 0}, ControlSetup{0xC0, 0, 0x0000, 0},
        ControlSetup{0xC0, 2, 0x0000, 0}, ControlSetup{0xA1, 1, 0x0000, 0},
        ControlSetup{0xC1, 1, 0x0000, 0}}) {
    host_->SendSetup(setup, 4);
  }
  host_->SendSetup(RegisterRequest(0, RegisterWidth::k32, RegisterAccess::kRead), 0xFFFF);
  EXPECT_EQ(ReadRegister(Register::kId), kDeviceId);
}

TEST_F(GadgetTest, ForgetsEverythingWhenItIsReset) {
  // A header that promises more than will ever come.
  const std::vector<uint8_t> half = {0xFF, 0xFF, 0xFF, 0x7F, 1, 0, 0, 0, 42};
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(host_->BulkOut(kRecordEndpoint, half, Clock::now()).ok());
    host_->WaitUntilRecordsAreTaken();
    ASSERT_TRUE(host_->Reset(Clock::now()).ok());
    const auto device = OpenDevice();
    ASSERT_NE(device, nullptr);
    RunTable(device.get(), 100);
  }
}

TEST_F(GadgetTest, SurvivesAHostileHost) {
  Rng rng(TestSeed(1));
  for (int round = 0; round < 200; ++round) {
    std::vector<uint8_t> bytes(static_cast<size_t>(rng.Int(1, 300)));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Int(0, 255));
    switch (rng.Int(0, 3)) {
      case 0:
        ASSERT_TRUE(host_->BulkOut(kRecordEndpoint, bytes, Clock::now()).ok());
        break;
      case 1:  // a read; any write would take the next event for its data
        host_->SendSetup({static_cast<uint8_t>(0x80 | bytes[0]), bytes[0], bytes[0], 0},
                         bytes.size());
        break;
      case 2:
        host_->Send(rng.Int(0, 1) == 0 ? FUNCTIONFS_SUSPEND : FUNCTIONFS_RESUME);
        break;
      default:
        host_->Send(rng.Int(0, 1) == 0 ? FUNCTIONFS_DISABLE : FUNCTIONFS_ENABLE);
        break;
    }
  }
}

class UnpluggedGadgetTest : public GadgetTest {
 protected:
  UnpluggedGadgetTest() : GadgetTest("control 500 unplug 100ms\n") {}
};

TEST_F(UnpluggedGadgetTest, LeavesTheBusAndComesBack) {
  const auto device = OpenDevice();
  ASSERT_NE(device, nullptr);
  RunTable(device.get(), 100);
  uint8_t id[4];
  while (host_
             ->Control(RegisterRequest(0, RegisterWidth::k32, RegisterAccess::kRead), id,
                       Clock::now() + std::chrono::seconds(1))
             .ok()) {
  }
  EXPECT_EQ(WaitForEnd(), ServeEnd::kReplug);
  while (!function_->Replug().ok()) std::this_thread::yield();
  StartToServe();
  ASSERT_TRUE(host_->Reset(Clock::now()).ok());
  const auto again = OpenDevice();
  ASSERT_NE(again, nullptr);
  RunTable(again.get(), 100);
}

class SteppedGadgetTest : public GadgetTest {
 protected:
  SteppedGadgetTest() : GadgetTest("", Options(Face::kStepped)) {}
};

// As systemd and people stop a service. Cycle by cycle the instruction takes hours.
TEST_F(SteppedGadgetTest, StopsInALongInstruction) {
  Bytes records = ProgramRecord({FillInstruction{.bytes = 1}, LongPool(), EndInstruction{}});
  Append(records, StartRecord({.instruction_count = 3}));
  ASSERT_TRUE(host_->BulkOut(kRecordEndpoint, records, Clock::now()).ok());
  // While it runs, a request for a register waits, and with it the thread that answers.
  uint8_t bytes[4];
  const auto status = RegisterRequest(static_cast<uint32_t>(Register::kStatus), RegisterWidth::k32,
                                      RegisterAccess::kRead);
  while (host_->Control(status, bytes, Clock::now() + std::chrono::seconds(3)).ok()) {
    ASSERT_NE(LoadLittleEndian<uint32_t>(bytes), static_cast<uint32_t>(CoreStatus::kFaulted));
  }
  ASSERT_EQ(Stop(), ServeEnd::kStopped);
  // It serves again, as if nothing had been.
  uint64_t count = 0;
  ASSERT_EQ(read(stop_.get(), &count, sizeof(count)), ssize_t{sizeof(count)});
  StartToServe();
  host_->Send(FUNCTIONFS_ENABLE);
  const auto device = OpenDevice();
  ASSERT_NE(device, nullptr);
  RunTable(device.get(), 100);
}

TEST(FunctionDescriptors, DescribeTheSameInterfaceAtEachSpeed) {
  const std::vector<uint8_t> bytes =
      EncodeFunctionDescriptors({.name = "x",
                                 .endpoints = {{0x01, EndpointDescription::Type::kBulk},
                                               {0x83, EndpointDescription::Type::kInterrupt}}});
  ASSERT_GE(bytes.size(), 24u);
  std::vector<uint32_t> words;
  for (size_t i = 0; i < 24; i += 4) words.push_back(LoadLittleEndian<uint32_t>(&bytes[i]));
  EXPECT_THAT(words, ElementsAre(3, bytes.size(), 1 + 2 + 4 + 64, 3, 3, 5));
  const std::vector<uint8_t> full(bytes.begin() + 24, bytes.begin() + 24 + 9 + 7 + 7);
  EXPECT_THAT(full, ElementsAre(9, 4, 0, 0, 2, 0xFF, 0xFF, 0xFF, 1,  //
                                7, 5, 0x01, 2, 64, 0, 0,             //
                                7, 5, 0x83, 3, 64, 0, 1));
  const std::vector<uint8_t> super(bytes.end() - (9 + 7 + 6 + 7 + 6), bytes.end());
  EXPECT_THAT(super, ElementsAre(9, 4, 0, 0, 2, 0xFF, 0xFF, 0xFF, 1,          //
                                 7, 5, 0x01, 2, 0, 4, 0, 6, 48, 15, 0, 0, 0,  //
                                 7, 5, 0x83, 3, 64, 0, 4, 6, 48, 0, 0, 64, 0));
  // Every descriptor is as long as it says.
  size_t at = 24;
  int count = 0;
  while (at < bytes.size()) {
    ASSERT_GT(bytes[at], 0);
    at += bytes[at];
    ++count;
  }
  EXPECT_EQ(at, bytes.size());
  EXPECT_EQ(count, 3 + 3 + 5);
}

// A Coral's DFU, request by request: what comes back, or false for a stall.
struct DfuHost {
  CoralFunction function{CoralFunction::Mode::kRom};

  bool Out(uint8_t request, uint16_t value, std::vector<uint8_t> data = {}) {
    bool taken = false;
    const Status status =
        function.ControlOut({0x21, request, value, 0}, data.size(), [&](std::span<uint8_t> room) {
          taken = true;
          EXPECT_EQ(room.size(), data.size());
          std::copy(data.begin(), data.end(), room.begin());
          return Status();
        });
    EXPECT_EQ(taken, status.ok());
    return taken;
  }
  std::vector<uint8_t> In(uint8_t request, uint16_t value, size_t size) {
    std::vector<uint8_t> data(size);
    const Result<size_t> count = function.ControlIn({0xA1, request, value, 0}, data);
    data.resize(count.ok() ? *count : 0);
    return data;
  }
  // Status and state.
  std::pair<int, int> GetStatus() {
    const std::vector<uint8_t> status = In(3, 0, 6);
    return status.size() == 6 ? std::pair<int, int>(status[0], status[4]) : std::pair(-1, -1);
  }
};

TEST(CoralFunction, BecomesTheApplicationAfterADownloadAndAReset) {
  DfuHost host;
  std::vector<uint8_t> firmware(10783);
  std::iota(firmware.begin(), firmware.end(), uint8_t{3});
  host.function.Disable();
  host.function.Enable({});
  uint16_t block = 0;
  for (size_t at = 0; at < firmware.size(); at += 256, ++block) {
    const auto begin = firmware.begin() + static_cast<std::ptrdiff_t>(at);
    const auto size = static_cast<std::ptrdiff_t>(std::min<size_t>(256, firmware.size() - at));
    ASSERT_TRUE(host.Out(1, block, {begin, begin + size}));
    ASSERT_EQ(host.GetStatus(), std::pair(0, 5));
  }
  ASSERT_TRUE(host.Out(1, block));
  EXPECT_EQ(host.GetStatus(), std::pair(0, 2));
  std::vector<uint8_t> memory;
  for (block = 0;; ++block) {
    const std::vector<uint8_t> bytes = host.In(2, block, 256);
    memory.insert(memory.end(), bytes.begin(), bytes.end());
    if (bytes.size() < 256) break;
  }
  ASSERT_EQ(memory.size(), CoralFunction::kMemoryBytes);
  EXPECT_TRUE(std::equal(firmware.begin(), firmware.end(), memory.begin()));
  EXPECT_EQ(host.function.wish(), Function::Wish::kServe);
  host.function.Disable();
  EXPECT_EQ(host.function.wish(), Function::Wish::kEnd);
}

TEST(CoralFunction, RefusesWhatDfuDoesNotAllow) {
  DfuHost host;
  EXPECT_FALSE(host.Out(1, 0));  // an end without a beginning
  EXPECT_EQ(host.GetStatus(), std::pair(9, 10));
  EXPECT_FALSE(host.Out(1, 0, {1}));  // nothing but CLRSTATUS leads out of an error
  EXPECT_FALSE(host.Out(6, 0));
  EXPECT_TRUE(host.Out(4, 0));
  EXPECT_EQ(host.GetStatus(), std::pair(0, 2));
  EXPECT_FALSE(host.Out(1, 128, {1}));  // beyond the memory
  EXPECT_EQ(host.GetStatus(), std::pair(8, 10));
  EXPECT_TRUE(host.Out(4, 0));
  EXPECT_FALSE(host.Out(1, 0, std::vector<uint8_t>(257)));
  EXPECT_TRUE(host.Out(4, 0));
  EXPECT_TRUE(host.Out(1, 0, {1, 2, 3}));
  EXPECT_EQ(host.In(2, 0, 256).size(), 0u);  // no upload in between
  EXPECT_TRUE(host.Out(4, 0));
  EXPECT_TRUE(host.Out(1, 0, {1, 2, 3}));
  EXPECT_TRUE(host.Out(6, 0));  // given up
  host.function.Disable();
  EXPECT_EQ(host.function.wish(), Function::Wish::kServe);
  EXPECT_EQ(host.In(7, 0, 6).size(), 0u);
  EXPECT_EQ(host.In(2, 0xFFFF, 65535).size(), 0u);
}

TEST(CoralFunction, TheApplicationGoesBackToTheRomWhenItIsDetached) {
  DfuHost host{CoralFunction(CoralFunction::Mode::kApplication)};
  EXPECT_EQ(host.In(3, 0, 6).size(), 0u);
  EXPECT_FALSE(host.Out(1, 0, {1}));
  host.function.Disable();
  EXPECT_EQ(host.function.wish(), Function::Wish::kServe);
  EXPECT_TRUE(host.Out(0, 100));
  EXPECT_EQ(host.function.wish(), Function::Wish::kServe);
  host.function.Disable();
  EXPECT_EQ(host.function.wish(), Function::Wish::kEnd);
}

// A host sends records in transfers cut anywhere; each transfer ends with a short packet or, if it
// is a multiple of a packet, with nothing. No read may be left waiting once all is sent.
TEST(RecordReads, NeverWaitForMoreThanTheHostSends) {
  Rng rng(TestSeed(1));
  constexpr size_t kPacket = 64, kLimit = 1024;
  for (int round = 0; round < 200; ++round) {
    std::vector<uint8_t> stream;
    for (int record = 0; record < 8; ++record) {
      const auto payload = static_cast<uint32_t>(rng.Int(0, rng.Int(0, 3) == 0 ? 5000 : 100));
      const auto header = EncodeRecordHeader({.payload_bytes = payload, .tag = 1});
      stream.insert(stream.end(), header.begin(), header.end());
      stream.resize(stream.size() + payload, static_cast<uint8_t>(record));
    }
    std::vector<std::span<const uint8_t>> packets;
    for (std::span<const uint8_t> rest = stream; !rest.empty();) {
      const size_t transfer = std::min(rest.size(), static_cast<size_t>(rng.Int(1, 2000)));
      for (size_t at = 0; at < transfer; at += kPacket) {
        packets.push_back(rest.subspan(at, std::min(kPacket, transfer - at)));
      }
      rest = rest.subspan(transfer);
    }
    RecordReads reads;
    size_t next = 0;
    while (next < packets.size()) {
      const size_t wanted = reads.Next(kPacket, kLimit);
      ASSERT_GE(wanted, kPacket);
      ASSERT_LE(wanted, kLimit);
      ASSERT_EQ(wanted % kPacket, 0u);
      std::vector<uint8_t> got;
      for (;;) {
        ASSERT_LT(next, packets.size()) << "waits for more, with " << got.size() << " bytes";
        got.insert(got.end(), packets[next].begin(), packets[next].end());
        const bool short_packet = packets[next++].size() < kPacket;
        if (short_packet || got.size() == wanted) break;
      }
      reads.Took(got);
    }
  }
}

}  // namespace
}  // namespace atollrt
