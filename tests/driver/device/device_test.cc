// SPDX-License-Identifier: Apache-2.0
//
// Device stories: what the host must send and what it gets, in order, by docs/protocol.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/bytes.h"
#include "tests/support/open_atoll1.h"
#include "tests/support/scripted_transport.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Table = std::vector<Step>;

constexpr uint32_t kMemory = 8 << 20;
constexpr uint32_t kTableBase = kMemory - 4096;  // where the first 4 KiB of parameters go

// §5.1, after identification.
Table ResetCoreSteps() {
  return {ExpectWrite(Register::kControl, 1),
          Fails(ExpectBulkIn(kOutputEndpoint), StatusCode::kTimeout),
          Fails(ExpectBulkIn(kEventEndpoint), StatusCode::kTimeout)};
}

Table IdentifySteps(uint32_t memory_bytes = kMemory) {
  return {ExpectRead(Register::kId, kDeviceId),
          ExpectRead(Register::kIsa, 1),
          ExpectRead(Register::kArrayRows, 64),
          ExpectRead(Register::kArrayColumns, 32),
          ExpectRead(Register::kClockKhz, 500'000),
          ExpectRead(Register::kMemoryBytes, memory_bytes),
          ExpectRead(Register::kProgramBytes, 1 << 20),
          ExpectRead(Register::kLinkKbps, 455'000)};
}

Table OpenSteps(uint32_t memory_bytes = kMemory) {
  return Story({IdentifySteps(memory_bytes), ResetCoreSteps()});
}

std::vector<uint8_t> Words(std::initializer_list<uint32_t> words) {
  std::vector<uint8_t> bytes(4 * words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    StoreLittleEndian(&bytes[4 * i], words.begin()[i]);
  }
  return bytes;
}

std::vector<uint8_t> StartRecord(uint32_t offset, uint32_t count, uint32_t parameter_base,
                                 uint32_t request) {
  return Words({32, 8, offset, count, parameter_base, 0, request, 0, 0, 0});
}

std::vector<uint8_t> Completed(uint32_t request, uint32_t cycles) {
  return Words({1, request, cycles, 0});
}

// §5.2: the programs as one transfer of records; start and parameters as one more.
Table UploadSteps(const Executable& executable, uint32_t program_offset, uint32_t parameter_base) {
  std::vector<uint8_t> encoded;
  for (const auto* program : {&executable.caching_program, &executable.inference_program}) {
    for (const Instruction& instruction : *program) encoded = Bytes(encoded, Encode(instruction));
  }
  const auto size = static_cast<uint32_t>(encoded.size());
  const auto parameters = static_cast<uint32_t>(executable.resident_parameters.size());
  return {ExpectBulkOut(Bytes(Words({8 + size, 0, program_offset, 0}), encoded)),
          ExpectBulkOut(Bytes(StartRecord(program_offset, 2, parameter_base, 0),
                              Words({parameters, 2}), executable.resident_parameters)),
          ExpectBulkIn(kEventEndpoint, Completed(0, 132))};
}

// §5.3, for 4 bytes of input.
std::vector<uint8_t> Inference(uint32_t program_offset, uint32_t parameter_base, uint32_t request,
                               std::vector<uint8_t> input = {0, 1, 2, 3}) {
  return Bytes(StartRecord(program_offset + 256, 4, parameter_base, request), Words({4, 1}), input);
}

class DeviceTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Device>> TryOpen(Table steps) {
    return OpenAtoll1(std::make_unique<ScriptedTransport>(std::move(steps), &clock_),
                      {.name = "test"}, clock_.Function());
  }

  // Opens, and plays `steps` after that.
  void Play(std::vector<Table> steps, uint32_t memory_bytes = kMemory) {
    steps.insert(steps.begin(), OpenSteps(memory_bytes));
    Result<std::unique_ptr<Device>> opened = TryOpen(Story(std::move(steps)));
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    device_ = *std::move(opened);
  }

  ExecutableId Load(const Executable& executable) {
    const auto id = device_->Load(std::make_shared<Executable>(executable));
    EXPECT_TRUE(id.ok()) << id.status().message();
    return id.ok() ? *id : 0;
  }

  Request MakeRequest(ExecutableId id) {
    Request request;
    request.executable = id;
    request.inputs = {input_};
    request.outputs = {output_};
    return request;
  }

  RequestId Submit(ExecutableId id) {
    const Result<RequestId> request = device_->Submit(MakeRequest(id));
    EXPECT_TRUE(request.ok()) << request.status().message();
    return request.ok() ? *request : 0;
  }

  Status Run(ExecutableId id, RequestReport* report = nullptr) {
    return device_->Wait(Submit(id), report);
  }

  FakeClock clock_;
  std::unique_ptr<Device> device_;
  std::vector<uint8_t> input_ = {0, 1, 2, 3};
  std::vector<uint8_t> output_ = std::vector<uint8_t>(4);
};

const Executable kTable = MakeTableExecutable({});

TEST_F(DeviceTest, OpenReadsWhatTheDeviceIs) {
  Play({});
  EXPECT_EQ(device_->state(), DeviceState::kReady);
  const DeviceInfo& info = device_->info();
  EXPECT_EQ(info.name, "test");
  EXPECT_EQ(info.isa_version, 1u);
  EXPECT_EQ(info.array_rows, 64u);
  EXPECT_EQ(info.array_columns, 32u);
  EXPECT_EQ(info.clock_hz, 500'000'000u);
  EXPECT_EQ(info.memory_bytes, kMemory);
  EXPECT_EQ(info.program_memory_bytes, 1u << 20);
  EXPECT_EQ(info.link_bytes_per_second, 455'000'000u);
}

TEST_F(DeviceTest, OpenThrowsAwayWhatAnEarlierHostLeftBehind) {
  const auto opened = TryOpen(
      Story({IdentifySteps(),
             {ExpectWrite(Register::kControl, 1), ExpectBulkIn(kOutputEndpoint, {1, 2, 3}),
              ExpectBulkIn(kOutputEndpoint, {}), ExpectBulkIn(kEventEndpoint, Completed(9, 9)),
              Fails(ExpectBulkIn(kEventEndpoint), StatusCode::kTimeout)}}));
  EXPECT_TRUE(opened.ok());
}

TEST_F(DeviceTest, OpenRefusesAnotherId) {
  const auto opened = TryOpen({ExpectRead(Register::kId, 0x12345678)});
  EXPECT_EQ(opened.code(), StatusCode::kUnsupported);
  EXPECT_EQ(opened.status().message(),
            "device test: the device gives ID 12345678, an Atoll-1 gives 4C4F5441");
}

TEST_F(DeviceTest, OpenRefusesAnotherIsaVersion) {
  const auto opened =
      TryOpen({ExpectRead(Register::kId, kDeviceId), ExpectRead(Register::kIsa, 0)});
  EXPECT_EQ(opened.code(), StatusCode::kUnsupported);
  EXPECT_THAT(opened.status().message(),
              HasSubstr("has ISA version 0, this library needs version 1"));
}

// Everything that plans for a device divides by these numbers, and sizes memory by them.
TEST_F(DeviceTest, OpenRefusesRegistersThatNoDeviceHas) {
  struct Case {
    size_t step;  // of IdentifySteps
    Register address;
    uint32_t value;
    const char* says;
  };
  const Case kCases[] = {
      {2, Register::kArrayRows, 0,
       "register 0008: ARRAY_ROWS is 0, must be a whole number from 1 to 1024"},
      {2, Register::kArrayRows, 1025, "ARRAY_ROWS is 1025"},
      {3, Register::kArrayColumns, 0, "register 000C: ARRAY_COLUMNS is 0"},
      {3, Register::kArrayColumns, UINT32_MAX, "ARRAY_COLUMNS is 4294967295"},
      {4, Register::kClockKhz, 0, "register 0010: the clock in Hz is 0"},
      {4, Register::kClockKhz, UINT32_MAX, "the clock in Hz is 4294967295000"},
      {5, Register::kMemoryBytes, 0, "register 0014: MEMORY_BYTES is 0"},
      {5, Register::kMemoryBytes, UINT32_MAX,
       "MEMORY_BYTES is 4294967295, must be a whole number from 4096 to 2147483648"},
      {6, Register::kProgramBytes, 0, "register 0018: PROGRAM_BYTES is 0"},
      {6, Register::kProgramBytes, 200, "PROGRAM_BYTES is 200, must be a multiple of 128 from"},
      {6, Register::kProgramBytes, UINT32_MAX, "PROGRAM_BYTES is 4294967295"},
      {7, Register::kLinkKbps, 0, "register 001C: the link in bytes per second is 0"},
      {7, Register::kLinkKbps, UINT32_MAX, "the link in bytes per second is 4294967295000"},
  };
  for (const Case& broken : kCases) {
    Table steps = IdentifySteps();
    steps.resize(broken.step);
    steps.push_back(ExpectRead(broken.address, broken.value));
    const auto opened = TryOpen(std::move(steps));
    EXPECT_EQ(opened.code(), StatusCode::kDeviceLost);
    EXPECT_THAT(opened.status().message(), HasSubstr(broken.says));
    EXPECT_THAT(opened.status().message(), HasSubstr("this is no working Atoll-1"));
  }
}

TEST_F(DeviceTest, OpenPassesOnWhatTheTransportSays) {
  const auto opened = TryOpen({Fails(ExpectRead(Register::kId, 0), StatusCode::kDeviceLost)});
  EXPECT_EQ(opened.code(), StatusCode::kDeviceLost);
}

// docs/protocol.md §5, "A worked exchange", with its upload.
TEST_F(DeviceTest, UploadsOnceAndThenSendsTheBytesOfTheWorkedExchange) {
  Play({UploadSteps(kTable, 0, kTableBase),
        {ExpectBulkOut(Inference(0, kTableBase, 1)),
         ExpectBulkIn(kOutputEndpoint, {0x10, 0x11, 0x12, 0x13}),
         ExpectBulkIn(kEventEndpoint, Completed(1, 256)),
         ExpectBulkOut({0x20, 0,    0,    0, 8, 0, 0, 0,  // header: 32 bytes, start
                        0,    1,    0,    0, 4, 0, 0, 0,  // program 256, 4 instructions
                        0,    0xF0, 0x7F, 0, 0, 0, 0, 0,  // bases
                        2,    0,    0,    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  // request 2
                        4,    0,    0,    0, 1, 0, 0, 0,  // header: 4 bytes, input
                        0,    1,    2,    3}),
         ExpectBulkIn(kOutputEndpoint, {0x20, 0x21, 0x22, 0x23}),
         ExpectBulkIn(kEventEndpoint, {1, 0, 0, 0, 2, 0, 0, 0, 3, 2, 0, 0, 0, 0, 0, 0})}});
  const ExecutableId id = Load(kTable);
  RequestReport report;
  EXPECT_TRUE(Run(id, &report).ok());
  EXPECT_THAT(output_, ElementsAre(0x10, 0x11, 0x12, 0x13));
  EXPECT_EQ(report.device_cycles, 256u);
  EXPECT_EQ(report.bytes_to_device, 16u + 6 * 128 + 40 + 8 + 256 + 52);
  EXPECT_EQ(report.bytes_from_device, 16u + 4 + 16);
  EXPECT_EQ(report.parameter_bytes, 256u);

  EXPECT_TRUE(Run(id, &report).ok());
  EXPECT_THAT(output_, ElementsAre(0x20, 0x21, 0x22, 0x23));
  EXPECT_EQ(report.bytes_to_device, 52u);
  EXPECT_EQ(report.bytes_from_device, 20u);
  EXPECT_EQ(report.parameter_bytes, 0u);
}

TEST_F(DeviceTest, OutputsAndEventsMayComeInAnyCut) {
  Play({UploadSteps(kTable, 0, kTableBase),
        {ExpectBulkOut(Inference(0, kTableBase, 1)), ExpectBulkIn(kOutputEndpoint, {1}),
         ExpectBulkIn(kOutputEndpoint, {}), ExpectRead(Register::kStatus, 1),
         ExpectBulkIn(kOutputEndpoint, {2, 3}),
         Fails(ExpectBulkIn(kOutputEndpoint), StatusCode::kTimeout),
         ExpectRead(Register::kStatus, 1), ExpectBulkIn(kOutputEndpoint, {4}),
         ExpectBulkIn(kEventEndpoint, {1, 0, 0, 0, 1}),
         ExpectBulkIn(kEventEndpoint, {0, 0, 0, 7, 0, 0, 0, 0, 0, 0}),
         ExpectBulkIn(kEventEndpoint, {0})}});
  RequestReport report;
  EXPECT_TRUE(Run(Load(kTable), &report).ok());
  EXPECT_THAT(output_, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(report.device_cycles, 7u);
}

// They are added up and converted elsewhere.
TEST_F(DeviceTest, AnEventOfMoreThanADaysCyclesIsNone) {
  Play({UploadSteps(kTable, 0, kTableBase),
        {ExpectBulkOut(Inference(0, kTableBase, 1)), ExpectBulkIn(kOutputEndpoint, {1, 2, 3, 4}),
         ExpectBulkIn(kEventEndpoint, Words({1, 1, UINT32_MAX, UINT32_MAX}))}});
  const Status status = Run(Load(kTable));
  EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(status.message(), HasSubstr("request 1 took 18446744073709551615 cycles"));
}

TEST_F(DeviceTest, LargeInputsAreSentFromWhereTheyAre) {
  const Executable large = MakeTableExecutable({.count = 5000});
  input_.assign(5000, 7);
  output_.assign(5000, 0);
  Play({UploadSteps(large, 0, kTableBase),
        {ExpectBulkOut(Bytes(StartRecord(256, 4, kTableBase, 1), Words({5000, 1}))),
         ExpectBulkOut(input_), ExpectBulkIn(kOutputEndpoint, std::vector<uint8_t>(5000, 9)),
         ExpectBulkIn(kEventEndpoint, Completed(1, 9))}});
  EXPECT_TRUE(Run(Load(large)).ok());
  EXPECT_EQ(output_, std::vector<uint8_t>(5000, 9));
}

TEST_F(DeviceTest, StreamedParametersGoWithEveryRequest) {
  const Executable streamed = MakeTableExecutable({.table = TableExecutableOptions::kStreamed});
  std::vector<uint8_t> encoded;
  for (const Instruction& instruction : streamed.inference_program) {
    encoded = Bytes(encoded, Encode(instruction));
  }
  const auto request = [&](uint32_t id) {
    return Table{ExpectBulkOut(Bytes(StartRecord(0, 5, kMemory, id), Words({4, 1}), input_,
                                     Words({256, 2}), streamed.streamed_parameters)),
                 ExpectBulkIn(kOutputEndpoint, {1, 2, 3, 4}),
                 ExpectBulkIn(kEventEndpoint, Completed(id, 1))};
  };
  Play({{ExpectBulkOut(Bytes(Words({8 + 5 * 128, 0, 0, 0}), encoded))}, request(1), request(2)});
  const ExecutableId id = Load(streamed);
  RequestReport report;
  EXPECT_TRUE(Run(id, &report).ok());
  EXPECT_TRUE(Run(id, &report).ok());
  EXPECT_EQ(report.parameter_bytes, 256u);
}

TEST_F(DeviceTest, RequestsRunInTheOrderOfSubmit) {
  Play({UploadSteps(kTable, 0, kTableBase),
        {ExpectBulkOut(Inference(0, kTableBase, 1)), ExpectBulkIn(kOutputEndpoint, {1, 1, 1, 1}),
         ExpectBulkIn(kEventEndpoint, Completed(1, 1)), ExpectBulkOut(Inference(0, kTableBase, 2)),
         ExpectBulkIn(kOutputEndpoint, {2, 2, 2, 2}),
         ExpectBulkIn(kEventEndpoint, Completed(2, 2))}});
  const ExecutableId id = Load(kTable);
  const RequestId first = Submit(id);
  const RequestId second = Submit(id);
  RequestReport report;
  EXPECT_TRUE(device_->Wait(second, &report).ok());
  EXPECT_EQ(report.device_cycles, 2u);
  EXPECT_TRUE(device_->Wait(first, &report).ok());
  EXPECT_EQ(report.device_cycles, 1u);
}

TEST_F(DeviceTest, WaitAnswersOncePerRequest) {
  Play({UploadSteps(kTable, 0, kTableBase),
        {ExpectBulkOut(Inference(0, kTableBase, 1)), ExpectBulkIn(kOutputEndpoint, {1, 1, 1, 1}),
         ExpectBulkIn(kEventEndpoint, Completed(1, 1))}});
  const RequestId id = Submit(Load(kTable));
  EXPECT_TRUE(device_->Wait(id, nullptr).ok());
  EXPECT_EQ(device_->Wait(id, nullptr).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->Cancel(id).code(), StatusCode::kInvalidArgument);
}

// Residency.

TEST_F(DeviceTest, SeveralExecutablesLiveSideBySide) {
  const Executable second = MakeTableExecutable({.name = "second", .extra_parameters = 5000});
  Table upload_second = UploadSteps(second, 768, kTableBase - 8192);
  // The second one's parameters are too many to be copied together with the start.
  upload_second.erase(upload_second.begin() + 1);
  upload_second.insert(
      upload_second.begin() + 1,
      {ExpectBulkOut(Bytes(StartRecord(768, 2, kTableBase - 8192, 0), Words({5256, 2}))),
       ExpectBulkOut(second.resident_parameters)});
  Play({UploadSteps(kTable, 0, kTableBase),
        {ExpectBulkOut(Inference(0, kTableBase, 1)), ExpectBulkIn(kOutputEndpoint, {1, 1, 1, 1}),
         ExpectBulkIn(kEventEndpoint, Completed(1, 1))},
        upload_second,
        {ExpectBulkOut(Inference(768, kTableBase - 8192, 2)),
         ExpectBulkIn(kOutputEndpoint, {2, 2, 2, 2}), ExpectBulkIn(kEventEndpoint, Completed(2, 1)),
         ExpectBulkOut(Inference(0, kTableBase, 3)), ExpectBulkIn(kOutputEndpoint, {3, 3, 3, 3}),
         ExpectBulkIn(kEventEndpoint, Completed(3, 1))}});
  const ExecutableId a = Load(kTable);
  const ExecutableId b = Load(second);
  EXPECT_TRUE(Run(a).ok());
  EXPECT_TRUE(Run(b).ok());
  EXPECT_TRUE(Run(a).ok());
}

TEST_F(DeviceTest, TwoThatDoNotFitTogetherEvictEachOther) {
  const Executable other = MakeTableExecutable({.name = "other", .offset = 3});
  const auto use = [](const Executable& executable, uint32_t request) {
    return Story(
        {UploadSteps(executable, 0, 4096),
         {ExpectBulkOut(Inference(0, 4096, request)), ExpectBulkIn(kOutputEndpoint, {1, 1, 1, 1}),
          ExpectBulkIn(kEventEndpoint, Completed(request, 1))}});
  };
  Play({use(kTable, 1), use(other, 2), use(kTable, 3)}, 8192);
  const ExecutableId a = Load(kTable);
  const ExecutableId b = Load(other);
  EXPECT_TRUE(Run(a).ok());
  EXPECT_TRUE(Run(b).ok());
  EXPECT_TRUE(Run(a).ok());
}

TEST_F(DeviceTest, LoadRefusesWhatCanNeverFitOrMeansNothing) {
  Play({}, 8192);
  const auto load = [&](const Executable& executable) {
    return device_->Load(std::make_shared<Executable>(executable)).status();
  };
  const Status too_large = load(MakeTableExecutable({.extra_activations = 4096}));
  EXPECT_EQ(too_large.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(too_large.message(), HasSubstr("'table' can never fit on device test: 4104 bytes of "
                                             "activations and 256 of resident parameters"));
  Executable broken = kTable;
  broken.inference_program.pop_back();
  EXPECT_EQ(load(broken).code(), StatusCode::kCorruptModel);
  broken.isa_version = 3;
  EXPECT_EQ(load(broken).code(), StatusCode::kUnsupported);
  EXPECT_EQ(device_->Load(nullptr).code(), StatusCode::kInvalidArgument);
}

TEST_F(DeviceTest, UnloadWaitsForRequestsAndForgetsTheExecutable) {
  Play({});
  const ExecutableId id = Load(kTable);
  const RequestId request = Submit(id);
  EXPECT_EQ(device_->Unload(id).code(), StatusCode::kDeviceBusy);
  EXPECT_TRUE(device_->Cancel(request).ok());
  EXPECT_TRUE(device_->Unload(id).ok());
  EXPECT_EQ(device_->Unload(id).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->Submit(MakeRequest(id)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->Wait(request, nullptr).code(), StatusCode::kCancelled);
}

TEST_F(DeviceTest, SubmitChecksTheNumberAndSizesOfBuffers) {
  Play({});
  const ExecutableId id = Load(kTable);
  Request request = MakeRequest(id);
  request.inputs.push_back(input_);
  EXPECT_EQ(device_->Submit(request).status().message(),
            "'table' has 1 inputs, the request brings 2");
  request = MakeRequest(id);
  request.outputs[0] = request.outputs[0].first(3);
  EXPECT_EQ(device_->Submit(request).status().message(),
            "output 0 'y' of 'table' has 4 bytes, the request brings 3");
}

// When something goes wrong.

Table FaultedSteps(uint32_t code, uint32_t instruction, uint32_t detail) {
  return Story({{ExpectRead(Register::kFaultCode, code),
                 ExpectRead(Register::kFaultInstruction, instruction),
                 ExpectRead(Register::kFaultDetail, detail)},
                ResetCoreSteps()});
}

TEST_F(DeviceTest, AFaultIsToldWithItsInstructionAndTheDeviceGoesOn) {
  Play({UploadSteps(kTable, 0, kTableBase),
        {ExpectBulkOut(Inference(0, kTableBase, 1)),
         Fails(ExpectBulkIn(kOutputEndpoint), StatusCode::kTimeout),
         ExpectRead(Register::kStatus, 2)},
        FaultedSteps(3, 1, 2),
        // Nothing is resident any more.
        UploadSteps(kTable, 0, kTableBase),
        {ExpectBulkOut(Inference(0, kTableBase, 2)), ExpectBulkIn(kOutputEndpoint, {1, 1, 1, 1}),
         ExpectBulkIn(kEventEndpoint, Completed(2, 1))}});
  const ExecutableId id = Load(kTable);
  const Status status = Run(id);
  EXPECT_EQ(status.code(), StatusCode::kCorruptModel);
  EXPECT_EQ(status.message(), "request 1 for 'table': device fault BAD_ADDRESS in instruction 1 (" +
                                  Disassemble(kTable.inference_program[1]) +
                                  ") of 'table', detail 2");
  EXPECT_EQ(device_->state(), DeviceState::kReady);
  EXPECT_TRUE(Run(id).ok());
}

TEST_F(DeviceTest, AFaultEventInTheCachingProgramSaysSo) {
  Table upload = UploadSteps(kTable, 0, kTableBase);
  upload.back() = ExpectBulkIn(kEventEndpoint, Words({2 | 5 << 8, 0, 77, 0}));
  Play({upload, FaultedSteps(5, 77, 0)});
  const Status status = Run(Load(kTable));
  EXPECT_EQ(status.code(), StatusCode::kCorruptModel);
  EXPECT_THAT(status.message(), HasSubstr("BAD_PROGRAM in instruction 77 (outside the program) of "
                                          "the caching program of 'table'"));
}

TEST_F(DeviceTest, ALostDeviceFailsEverything) {
  Play({UploadSteps(kTable, 0, kTableBase),
        {ExpectBulkOut(Inference(0, kTableBase, 1)),
         Fails(ExpectBulkIn(kOutputEndpoint), StatusCode::kDeviceLost)}});
  const ExecutableId id = Load(kTable);
  const RequestId first = Submit(id);
  const RequestId second = Submit(id);
  EXPECT_EQ(device_->Wait(first, nullptr).code(), StatusCode::kDeviceLost);
  EXPECT_EQ(device_->state(), DeviceState::kLost);
  EXPECT_EQ(device_->Wait(second, nullptr).code(), StatusCode::kDeviceLost);
  const Status submit = device_->Submit(MakeRequest(id)).status();
  EXPECT_EQ(submit.code(), StatusCode::kDeviceLost);
  EXPECT_EQ(submit.message(),
            "Submit in state Lost of device test, needs state Ready: open it again");
  EXPECT_EQ(device_->Load(std::make_shared<Executable>(kTable)).code(), StatusCode::kDeviceLost);
  EXPECT_EQ(device_->state(), DeviceState::kLost);
}

TEST_F(DeviceTest, ADeadlineThatPassesResetsTheCore) {
  Play({UploadSteps(kTable, 0, kTableBase),
        {ExpectBulkOut(Inference(0, kTableBase, 1)),
         Fails(ExpectBulkIn(kOutputEndpoint), StatusCode::kTimeout),
         ExpectRead(Register::kStatus, 1)},
        ResetCoreSteps()});
  Request request = MakeRequest(Load(kTable));
  request.timeout = std::chrono::milliseconds(50);
  const Status status = device_->Wait(*device_->Submit(request), nullptr);
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_THAT(status.message(),
              HasSubstr("0 of 4 bytes received from endpoint 81; the device is running"));
  EXPECT_EQ(device_->state(), DeviceState::kReady);
}

TEST_F(DeviceTest, ACoreThatDoesNotAnswerGetsItsPortReset) {
  Play({{Fails(ExpectBulkOut(UploadSteps(kTable, 0, kTableBase)[0].bytes), StatusCode::kTimeout),
         Fails(ExpectWrite(Register::kControl, 1), StatusCode::kTimeout), ExpectReset()},
        OpenSteps()});
  EXPECT_EQ(Run(Load(kTable)).code(), StatusCode::kTimeout);
  EXPECT_EQ(device_->state(), DeviceState::kReady);
}

TEST_F(DeviceTest, AnotherDeviceBehindTheSamePortIsNotTakenForTheOldOne) {
  Play({{Fails(ExpectBulkOut(UploadSteps(kTable, 0, kTableBase)[0].bytes), StatusCode::kTimeout),
         Fails(ExpectWrite(Register::kControl, 1), StatusCode::kTimeout), ExpectReset()},
        IdentifySteps(1 << 20)});
  EXPECT_EQ(Run(Load(kTable)).code(), StatusCode::kTimeout);
  EXPECT_EQ(device_->state(), DeviceState::kLost);

  const auto chip =
      Atoll1Chip::Open(std::make_unique<ScriptedTransport>(
                           Story({OpenSteps(), {ExpectReset()}, IdentifySteps(1 << 20)}), &clock_),
                       {.name = "test"}, clock_.Function());
  ASSERT_TRUE(chip.ok());
  const Status status = (*chip)->Reopen();
  EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(status.message(), HasSubstr("another device than before"));
}

TEST_F(DeviceTest, ARequestThatIsLateAlreadyDoesNotStart) {
  Play({});
  Request request = MakeRequest(Load(kTable));
  request.timeout = std::chrono::milliseconds(0);
  EXPECT_EQ(device_->Wait(*device_->Submit(request), nullptr).code(), StatusCode::kTimeout);
}

TEST_F(DeviceTest, CancelBeforeTheStartSendsNothing) {
  Play({});
  const RequestId id = Submit(Load(kTable));
  EXPECT_TRUE(device_->Cancel(id).ok());
  EXPECT_EQ(device_->Wait(id, nullptr).code(), StatusCode::kCancelled);
}

TEST_F(DeviceTest, CancelOfARunningRequestLetsItsProgramEnd) {
  Play({UploadSteps(kTable, 0, kTableBase),
        {ExpectBulkOut(Inference(0, kTableBase, 1)),
         During(ExpectBulkIn(kOutputEndpoint, {1, 1, 1, 1}),
                [&] { EXPECT_TRUE(device_->Cancel(1).ok()); }),
         ExpectBulkIn(kEventEndpoint, Completed(1, 1))}});
  EXPECT_EQ(Run(Load(kTable)).code(), StatusCode::kCancelled);
  EXPECT_EQ(device_->state(), DeviceState::kReady);
}

TEST_F(DeviceTest, ADeviceThatBreaksTheProtocolIsLost) {
  for (const std::vector<uint8_t>& event : {Completed(42, 1), Words({7, 1, 1, 0})}) {
    Play({UploadSteps(kTable, 0, kTableBase),
          {ExpectBulkOut(Inference(0, kTableBase, 1)), ExpectBulkIn(kOutputEndpoint, {1, 1, 1, 1}),
           ExpectBulkIn(kEventEndpoint, event)}});
    EXPECT_EQ(Run(Load(kTable)).code(), StatusCode::kDeviceLost);
    EXPECT_EQ(device_->state(), DeviceState::kLost);
  }
}

}  // namespace
}  // namespace atollrt
