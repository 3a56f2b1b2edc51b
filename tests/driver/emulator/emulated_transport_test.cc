// SPDX-License-Identifier: Apache-2.0
#include "driver/emulator/emulated_transport.h"

#include <atomic>
#include <thread>

#include "tests/driver/emulator/emulated_program.h"
#include "tests/support/assembled.h"
#include "tests/support/long_pool.h"

namespace atollrt {
namespace {

using std::chrono::milliseconds;

Deadline In(int ms) { return Clock::now() + milliseconds(ms); }
Deadline Soon() { return In(20); }  // for calls that must time out
Deadline Eventually() { return In(30'000); }

std::unique_ptr<EmulatedTransport> MakeTransport(const DeviceProfile& profile = SmallProfile()) {
  auto transport = EmulatedTransport::Create({.profile = profile});
  EXPECT_TRUE(transport.ok()) << transport.status().message();
  return *std::move(transport);
}

void Write(UsbTransport& usb, const Bytes& bytes) {
  const Status status = usb.BulkOut(kRecordEndpoint, bytes, Eventually());
  ASSERT_TRUE(status.ok()) << status.message();
}

Bytes Read(UsbTransport& usb, uint8_t endpoint, size_t size) {
  Bytes data(size);
  const Result<size_t> count = usb.BulkIn(endpoint, data, Eventually());
  EXPECT_TRUE(count.ok()) << count.status().message();
  data.resize(count.ok() ? *count : 0);
  return data;
}

StatusCode ReadCode(UsbTransport& usb, uint8_t endpoint, Deadline deadline) {
  Bytes data(16);
  return usb.BulkIn(endpoint, data, deadline).code();
}

// The bytes of docs/protocol.md, "A worked exchange", after its first sentence has been made true.
TEST(EmulatedTransport, HoldsTheWorkedExchangeOfTheDocument) {
  const auto usb = MakeTransport(*FindDeviceProfile(""));
  Bytes table(256);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<uint8_t>(i + 0x10);
  Write(*usb,
        ProgramRecord(
            {InputInstruction{.bytes = 4},
             TableInstruction{.output_address = 16, .count = 4, .table_address = kParameterSegment},
             OutputInstruction{.input_address = 16, .bytes = 4}, EndInstruction{}}));
  Write(*usb,
        ProgramRecord({ParametersInstruction{.output_address = kParameterSegment, .bytes = 256},
                       EndInstruction{}},
                      0x1000));
  Write(*usb, StartRecord(
                  {.program_offset = 0x1000, .instruction_count = 2, .parameter_base = 0x7FF000}));
  Write(*usb, Record(RecordTag::kParameters, table));
  EXPECT_EQ(Read(*usb, kEventEndpoint, 16).size(), 16u);

  Write(*usb, {0x20, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00});
  Write(*usb, {0x00, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0xF0, 0x7F,
               0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00,
               0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00});
  Write(*usb, {0x04, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00});
  Write(*usb, {0x00, 0x01, 0x02, 0x03});
  EXPECT_EQ(Read(*usb, 0x81, 64), (Bytes{0x10, 0x11, 0x12, 0x13}));
  EXPECT_EQ(Read(*usb, 0x82, 16), (Bytes{0x01, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x01,
                                         0x00, 0x00, 0x00, 0x00, 0x00, 0x00}));
}

TEST(EmulatedTransport, AnswersRegistersAndStalls) {
  const auto usb = MakeTransport();
  Bytes data(4);
  EXPECT_TRUE(
      usb->Control(RegisterRequest(0, RegisterWidth::k32, RegisterAccess::kRead), data, Soon())
          .ok());
  EXPECT_EQ(LoadLittleEndian<uint32_t>(data.data()), kDeviceId);
  EXPECT_EQ(
      usb->Control(RegisterRequest(0x44, RegisterWidth::k32, RegisterAccess::kRead), data, Soon())
          .code(),
      StatusCode::kInvalidArgument);
}

TEST(EmulatedTransport, HasFourEndpoints) {
  const auto usb = MakeTransport();
  Bytes data(16);
  EXPECT_EQ(usb->BulkOut(0x02, data, Soon()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(usb->BulkIn(0x83, data, Soon()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(usb->InterruptIn(0x81, data, Soon()).code(), StatusCode::kInvalidArgument);
}

TEST(EmulatedTransport, TimesOutWhenNothingComes) {
  const auto usb = MakeTransport();
  Write(*usb, ProgramRecord({InputInstruction{.bytes = 1}, EndInstruction{}}));
  Write(*usb, StartRecord({.instruction_count = 2}));
  const auto before = Clock::now();
  EXPECT_EQ(ReadCode(*usb, kOutputEndpoint, Soon()), StatusCode::kTimeout);
  EXPECT_EQ(ReadCode(*usb, kEventEndpoint, Soon()), StatusCode::kTimeout);
  EXPECT_GE(Clock::now() - before, milliseconds(30));
  EXPECT_EQ(ReadCode(*usb, kEventEndpoint, Clock::now()), StatusCode::kTimeout);
  Bytes word(4);
  EXPECT_EQ(usb->InterruptIn(kFaultEndpoint, word, Soon()).code(), StatusCode::kTimeout);
  Write(*usb, Record(RecordTag::kInput, Bytes{1}));
  EXPECT_EQ(Read(*usb, kEventEndpoint, 16).size(), 16u);
}

TEST(EmulatedTransport, GivesWhatIsThereAfterTheDeadline) {
  const auto usb = MakeTransport();
  Write(*usb, ProgramRecord({FillInstruction{.bytes = 2, .value = 3}, OutputInstruction{.bytes = 2},
                             EndInstruction{}}));
  Write(*usb, StartRecord({.instruction_count = 3}));
  EXPECT_EQ(Read(*usb, kEventEndpoint, 16).size(), 16u);
  Bytes data(2);
  const Result<size_t> count = usb->BulkIn(kOutputEndpoint, data, Clock::now() - milliseconds(5));
  ASSERT_TRUE(count.ok());
  EXPECT_EQ(data, (Bytes{3, 3}));
}

TEST(EmulatedTransport, KeepsWhatDoesNotFitForTheNextCall) {
  const auto usb = MakeTransport();
  Write(*usb, ProgramRecord(
                  {InputInstruction{.bytes = 5}, OutputInstruction{.bytes = 5}, EndInstruction{}}));
  Write(*usb, StartRecord({.instruction_count = 3, .request_id = 5}));
  Write(*usb, Record(RecordTag::kInput, Bytes{1, 2, 3, 4, 5}));
  EXPECT_EQ(Read(*usb, kOutputEndpoint, 2), (Bytes{1, 2}));
  EXPECT_EQ(Read(*usb, kOutputEndpoint, 0), Bytes{});
  EXPECT_EQ(Read(*usb, kOutputEndpoint, 9), (Bytes{3, 4, 5}));
  EXPECT_EQ(Read(*usb, kEventEndpoint, 4), (Bytes{1, 0, 0, 0}));
  EXPECT_EQ(Read(*usb, kEventEndpoint, 4), (Bytes{5, 0, 0, 0}));
}

TEST(EmulatedTransport, TellsOfFaultsOnTheInterruptEndpointOnce) {
  const auto usb = MakeTransport();
  Write(*usb, ProgramRecord({FillInstruction{}}));
  Write(*usb, StartRecord({.instruction_count = 1}));
  Bytes word(4);
  const Result<size_t> count = usb->InterruptIn(kFaultEndpoint, word, Eventually());
  ASSERT_TRUE(count.ok());
  EXPECT_EQ(*count, 4u);
  EXPECT_EQ(word, (Bytes{2, 0, 0, 0}));
  EXPECT_EQ(usb->InterruptIn(kFaultEndpoint, word, Soon()).code(), StatusCode::kTimeout);
}

TEST(EmulatedTransport, MakesProgressForAHostThatPollsTheStatus) {
  const auto usb = MakeTransport();
  Write(*usb, ProgramRecord({FillInstruction{.bytes = 1}, EndInstruction{}}));
  Write(*usb, StartRecord({.instruction_count = 2}));
  Bytes data(4);
  ASSERT_TRUE(usb->Control(RegisterRequest(static_cast<uint32_t>(Register::kStatus),
                                           RegisterWidth::k32, RegisterAccess::kRead),
                           data, Soon())
                  .ok());
  EXPECT_EQ(data, (Bytes{0, 0, 0, 0}));
}

TEST(EmulatedTransport, WakesAReaderWhenAnotherThreadSends) {
  const auto usb = MakeTransport();
  Write(*usb, ProgramRecord(
                  {InputInstruction{.bytes = 1}, OutputInstruction{.bytes = 1}, EndInstruction{}}));
  Write(*usb, StartRecord({.instruction_count = 3}));
  std::thread sender([&] { Write(*usb, Record(RecordTag::kInput, Bytes{42})); });
  EXPECT_EQ(Read(*usb, kOutputEndpoint, 1), Bytes{42});
  sender.join();
}

// More parameters than the device queues: it must run while they are being sent.
TEST(EmulatedTransport, StreamsMoreThanItQueues) {
  const auto usb = MakeTransport(*FindDeviceProfile(""));
  constexpr uint32_t kPiece = 8 << 20, kPieces = 12;
  std::vector<Instruction> program(kPieces, ParametersInstruction{.bytes = kPiece});
  program.push_back(OutputInstruction{.input_address = kPiece - 4, .bytes = 4});
  program.push_back(EndInstruction{});
  Write(*usb, ProgramRecord(program));
  Write(*usb, StartRecord({.instruction_count = kPieces + 2}));
  Bytes parameters(size_t{kPiece} * kPieces);
  StoreLittleEndian<uint32_t>(&parameters[parameters.size() - 4], 0x01020304);
  Write(*usb, Record(RecordTag::kParameters, parameters));
  EXPECT_EQ(Read(*usb, kOutputEndpoint, 4), (Bytes{4, 3, 2, 1}));
  // And without a program that takes them, sending times out.
  EXPECT_EQ(
      usb->BulkOut(kRecordEndpoint, Record(RecordTag::kParameters, parameters), Soon()).code(),
      StatusCode::kTimeout);
}

TEST(EmulatedTransport, CancelEndsCallsUntilReset) {
  const auto usb = MakeTransport();
  std::thread canceller([&] { usb->Cancel(); });
  EXPECT_EQ(ReadCode(*usb, kEventEndpoint, Eventually()), StatusCode::kCancelled);
  canceller.join();
  Bytes data(4);
  EXPECT_EQ(ReadCode(*usb, kOutputEndpoint, Eventually()), StatusCode::kCancelled);
  EXPECT_EQ(usb->BulkOut(kRecordEndpoint, data, Eventually()).code(), StatusCode::kCancelled);
  EXPECT_EQ(usb->InterruptIn(kFaultEndpoint, data, Eventually()).code(), StatusCode::kCancelled);
  EXPECT_EQ(usb->Control(RegisterRequest(0, RegisterWidth::k32, RegisterAccess::kRead), data,
                         Eventually())
                .code(),
            StatusCode::kCancelled);
  ASSERT_TRUE(usb->Reset(Eventually()).ok());
  EXPECT_EQ(ReadCode(*usb, kOutputEndpoint, Soon()), StatusCode::kTimeout);
}

TEST(EmulatedTransport, CancelInterruptsAProgramBetweenInstructions) {
  const auto usb = MakeTransport();
  // 60 instructions that copy 16 MiB byte by byte: seconds, if they ran to the end.
  std::vector<Instruction> program(
      60,
      Assembled<CopyInstruction>(
          "output_address=act+1, bytes=1, count0=4096, count1=4096, count2=1, count3=1, count4=1"));
  Write(*usb, ProgramRecord(program));
  Write(*usb, StartRecord({.instruction_count = 60}));
  std::thread canceller([&] { usb->Cancel(); });
  EXPECT_EQ(ReadCode(*usb, kEventEndpoint, In(600'000)), StatusCode::kCancelled);
  canceller.join();
}

// Hours of work in one instruction, each kind of which is given up in its own way. Other calls do
// not wait for it either.
struct LongInstruction {
  const char* name;
  Instruction instruction;
};

// A filter of one channel, with its weights and records where the test has some.
template <typename Filter>
Filter LongFilter(uint32_t input_h, uint32_t input_w, uint32_t output_w, uint32_t kernel_h,
                  uint32_t kernel_w, uint32_t dilation_w) {
  Filter i;
  i.weight_address = kParameterSegment;
  i.channel_address = kParameterSegment + 65536;
  i.output_address = 2 << 20;
  i.batch = i.input_c = i.output_c = i.stride_h = i.stride_w = 1;
  i.input_h = i.output_h = input_h;
  i.input_w = input_w;
  i.output_w = output_w;
  i.kernel_h = kernel_h;
  i.kernel_w = kernel_w;
  if constexpr (requires { i.dilation_h; }) {
    i.dilation_h = 1;
    i.dilation_w = dilation_w;
  }
  if constexpr (requires { i.groups; }) i.groups = 1;
  i.clamp_min = -128;
  i.clamp_max = 127;
  return i;
}

std::vector<LongInstruction> LongInstructions() {
  CopyInstruction copy{.output_address = 1 << 20, .bytes = 1};
  copy.count0 = copy.count1 = copy.count2 = copy.count3 = 1;
  copy.count4 = 2'000'000'000;
  return {
      // One line of three million pixels of 65,535 taps each.
      {"conv", LongFilter<Conv2DInstruction>(1, 2 << 20, 3 << 20, 1, 65535, 1)},
      {"depthwise", LongFilter<DepthwiseConv2DInstruction>(1024, 2048, 2048, 255, 255, 1)},
      {"transposed", LongFilter<TransposeConv2DInstruction>(1024, 2048, 2048, 255, 255, 1)},
      // Taps so far apart that no kernel is made for them.
      {"plain loops", LongFilter<Conv2DInstruction>(1, 2 << 20, 3 << 20, 1, 32768, 30000)},
      {"pool", LongPool()},
      {"copy", copy},
  };
}

TEST(EmulatedTransport, CancelAndResetGiveUpALongInstruction) {
  for (const Face face : {Face::kDirect, Face::kStepped}) {
    for (const LongInstruction& slow : LongInstructions()) {
      SCOPED_TRACE(slow.name);
      auto created = EmulatedTransport::Create({.profile = *FindDeviceProfile(""), .face = face});
      ASSERT_TRUE(created.ok());
      EmulatedTransport& usb = **created;
      for (const bool resets : {false, true}) {
        // Records that a check accepts, and weights.
        Write(usb, ProgramRecord({FillInstruction{.output_address = kParameterSegment,
                                                  .bytes = 65536 + kChannelRecordBytes},
                                  slow.instruction, EndInstruction{}}));
        Write(usb, StartRecord({.instruction_count = 3, .parameter_base = 7 << 20}));
        std::atomic<bool> ended = false;
        std::thread interrupter([&] {
          while (!ended) {
            std::this_thread::sleep_for(milliseconds(5));  // so that it has begun, mostly
            if (resets) {
              EXPECT_TRUE(usb.Reset(Eventually()).ok());
            } else {
              usb.Cancel();
            }
          }
        });
        EXPECT_EQ(ReadCode(usb, kEventEndpoint, In(600'000)), StatusCode::kCancelled);
        ended = true;
        interrupter.join();
        ASSERT_TRUE(usb.Reset(Eventually()).ok());
        // It works as if nothing had been.
        Write(usb, ProgramRecord({FillInstruction{.bytes = 1, .value = 9},
                                  OutputInstruction{.bytes = 1}, EndInstruction{}}));
        Write(usb, StartRecord({.instruction_count = 3}));
        EXPECT_EQ(Read(usb, kOutputEndpoint, 1), Bytes{9});
        ASSERT_TRUE(usb.Reset(Eventually()).ok());
      }
    }
  }
}

TEST(EmulatedTransport, ResetReturnsToThePowerOnState) {
  const auto usb = MakeTransport();
  Write(*usb, {0, 0, 0, 0, 9, 0, 0, 0});
  EXPECT_EQ(usb->core().status(), CoreStatus::kFaulted);
  ASSERT_TRUE(usb->Reset(Eventually()).ok());
  EXPECT_EQ(usb->core().status(), CoreStatus::kIdle);
  EXPECT_EQ(ReadCode(*usb, kEventEndpoint, Soon()), StatusCode::kTimeout);
}

TEST(EmulatedTransport, SurvivesThreadsOnAllEndpoints) {
  const auto usb = MakeTransport();
  Write(*usb, ProgramRecord(
                  {InputInstruction{.bytes = 1}, OutputInstruction{.bytes = 1}, EndInstruction{}}));
  constexpr int kRuns = 200;
  std::thread outputs([&] {
    for (int i = 0; i < kRuns; ++i) {
      ASSERT_EQ(Read(*usb, kOutputEndpoint, 1), Bytes{static_cast<uint8_t>(i)});
    }
  });
  std::thread registers([&] {
    Bytes data(8);
    for (int i = 0; i < kRuns; ++i) {
      ASSERT_TRUE(usb->Control(RegisterRequest(static_cast<uint32_t>(Register::kCycles),
                                               RegisterWidth::k64, RegisterAccess::kRead),
                               data, Eventually())
                      .ok());
    }
  });
  for (int i = 0; i < kRuns; ++i) {
    Write(*usb, StartRecord({.instruction_count = 3}));
    Write(*usb, Record(RecordTag::kInput, Bytes{static_cast<uint8_t>(i)}));
    Bytes event;
    while (event.size() < kEventBytes) Append(event, Read(*usb, kEventEndpoint, kEventBytes));
    ASSERT_EQ(event[0], 1);
  }
  outputs.join();
  registers.join();
}

}  // namespace
}  // namespace atollrt
