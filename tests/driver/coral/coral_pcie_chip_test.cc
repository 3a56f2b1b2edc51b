// SPDX-License-Identifier: Apache-2.0
//
// A Coral on PCIe (docs/coral.md) over a function with one behind it: addresses, the ring, memory
// of callers, heat, and what becomes of everything that can go wrong.
#include "driver/coral/coral_pcie_chip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "driver/coral/function_link.h"
#include "driver/device/device.h"
#include "tests/support/coral_packages.h"
#include "tests/support/fake_coral_function.h"

namespace atollrt {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using Bytes = std::vector<uint8_t>;

constexpr uint32_t kPower = 0x1A318;

// What a run reads and writes.
struct Buffers {
  explicit Buffers(const AnyExecutable& executable, uint8_t mark = 0) {
    for (const Layer& layer : executable.inputs) {
      inputs.emplace_back(layer.bytes);
      for (size_t i = 0; i < layer.bytes; ++i) {
        inputs.back()[i] = static_cast<uint8_t>(mark + 3 * i);
      }
    }
    for (const Layer& layer : executable.outputs) outputs.emplace_back(layer.bytes);
    from.assign(inputs.begin(), inputs.end());
    to.assign(outputs.begin(), outputs.end());
  }
  std::vector<Bytes> inputs, outputs;
  std::vector<std::span<const uint8_t>> from;
  std::vector<std::span<uint8_t>> to;
};

class CoralPcieChipTest : public ::testing::Test {
 protected:
  void TearDown() override {
    prepared_.clear();
    device_ = nullptr;
    chip_ = nullptr;
    EXPECT_THAT(state_.complaints, IsEmpty());
    EXPECT_EQ(state_.mappings, 0);
  }

  Result<std::unique_ptr<Chip>> OpenChip(CoralPerformance performance = CoralPerformance::kMax) {
    CoralOptions options;
    options.name = "test";
    options.performance = performance;
    options.now = clock_.Function();
    return CoralPcieChip::Open(
        std::make_unique<CoralFunctionLink>(MakeFakeCoralFunction(&state_, &clock_), performance,
                                            options.now, options.name),
        options, "0000:01:00.0", 400'000'000);
  }
  Status Open(CoralPerformance performance = CoralPerformance::kMax) {
    auto chip = OpenChip(performance);
    if (!chip.ok()) return chip.status();
    chip_ = *std::move(chip);
    return {};
  }

  std::shared_ptr<const CoralExecutable> Know(const PackedModel& model) {
    auto executable = ReadCoralPackage(WritePackage(model));
    EXPECT_TRUE(executable.ok()) << executable.status().message();
    state_.executables.push_back(std::make_shared<CoralExecutable>(*std::move(executable)));
    return state_.executables.back();
  }
  const PreparedExecutable* Prepare(std::shared_ptr<const CoralExecutable> executable) {
    auto prepared = chip_->Prepare(std::move(executable));
    EXPECT_TRUE(prepared.ok()) << prepared.status().message();
    if (!prepared.ok()) return nullptr;
    prepared_.push_back(*std::move(prepared));
    return prepared_.back().get();
  }
  const PreparedExecutable* Load(const PackedModel& model) { return Prepare(Know(model)); }

  Chip::Job MakeJob(const PreparedExecutable* prepared, const Buffers& buffers) {
    return {.prepared = prepared,
            .request_id = ++last_request_,
            .inputs = buffers.from,
            .outputs = buffers.to,
            .deadline = clock_.Now() + std::chrono::seconds(10)};
  }
  Status Run(const PreparedExecutable* prepared, Buffers* buffers) {
    report_ = {};
    return chip_->Run(MakeJob(prepared, *buffers), {}, &report_);
  }
  // That the outputs are those of run `run`.
  static void ExpectOutputs(const PreparedExecutable& prepared, const Buffers& buffers, int run) {
    const auto& coral = static_cast<const CoralExecutable&>(*prepared.executable);
    for (uint32_t i = 0; i < coral.outputs.size(); ++i) {
      Bytes wanted(coral.outputs[i].bytes);
      UnpackCoralOutput(coral.output_wires[i],
                        FakeCoralOutput(run, i, coral.output_wires[i].wire_bytes), wanted);
      EXPECT_EQ(buffers.outputs[i], wanted) << "output " << i << " of run " << run;
    }
  }
  void RunWell(const PreparedExecutable* prepared, uint8_t mark = 0) {
    Buffers buffers(*prepared->executable, mark);
    const Status status = Run(prepared, &buffers);
    ASSERT_TRUE(status.ok()) << status.message();
    ExpectOutputs(*prepared, buffers, state_.runs);
    const auto& coral = static_cast<const CoralExecutable&>(*prepared->executable);
    Bytes packed(coral.input_wires[0].wire_bytes);
    PackCoralInput(coral.input_wires[0], buffers.inputs[0], packed);
    packed.resize(state_.inputs.back().size());
    EXPECT_EQ(state_.inputs.back(), packed);
  }

  FakeClock clock_;
  FakeCoralFunctionState state_;
  std::unique_ptr<Chip> chip_;
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<PreparedExecutable>> prepared_;
  RequestReport report_;
  uint32_t last_request_ = 0;
};

// A plain input and output of 64 bytes: nothing has to be packed.
PackedModel PlainModel() {
  return WithAddresses(
      {.executables = {{.chunks = {{0x61}},
                        .parameters = {1, 2, 3, 4, 5, 6, 7, 8},
                        .transfers = {SendsChunk(), SendsInput("in", 0, 64), SendsParameters(0, 8),
                                      GivesOutput("out", 0, 64), Interrupts()},
                        .inputs = {{.name = "in", .bytes = 64, .z = 64}},
                        .outputs = {{.name = "out", .bytes = 64, .z = 64}}}}});
}

TEST_F(CoralPcieChipTest, IsBroughtUpRunsAndIsLeftInReset) {
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(chip_->info().description, "Coral Edge TPU, 500 MHz, PCIe, 0000:01:00.0");
  EXPECT_EQ(state_.Last(0x46008), 6144u);
  EXPECT_EQ(state_.Last(0x46038), 0x00E18284u);
  EXPECT_EQ(state_.Last(0x46040), 0x01628488u);
  EXPECT_EQ(state_.Last(0x46048), 12u);
  EXPECT_EQ(state_.Last(0x48568), 5u);
  const auto* const lone = Load(WithAddresses(StandAloneModel()));
  const auto* const caching = Load(WithAddresses(CachingModel(7)));
  for (int i = 0; i < 3; ++i) {
    RunWell(lone, static_cast<uint8_t>(i));
    EXPECT_EQ(report_.parameter_bytes, 4u);
    RunWell(caching, static_cast<uint8_t>(i));
    EXPECT_EQ(report_.parameter_bytes, 12u) << "the other one has evicted it";
  }
  RunWell(caching);
  EXPECT_EQ(report_.parameter_bytes, 4u);
  EXPECT_EQ(report_.bytes_from_device, 24u);
  prepared_.clear();
  chip_ = nullptr;
  EXPECT_EQ(state_.Last(0x48568), 0u);
  EXPECT_EQ(state_.Last(kPower) >> 14 & 3, 3u) << "its memory is off";
}

TEST_F(CoralPcieChipTest, ModelsOfOneTokenLeaveEachOtherInPlace) {
  ASSERT_TRUE(Open().ok());
  const auto* const a = Load(WithAddresses(CachingModel(7, 1)));
  const auto* const b = Load(WithAddresses(CachingModel(7, 2)));
  const auto* const c = Load(WithAddresses(CachingModel(8, 3)));
  for (const auto* model : {a, b, a, b}) RunWell(model);
  EXPECT_EQ(state_.runs, 6) << "two uploads";
  EXPECT_EQ(chip_->memory_used_bytes(), 16u);
  RunWell(c);
  EXPECT_FALSE(chip_->IsResident(*a));
  RunWell(a);
  EXPECT_EQ(state_.runs, 10);
}

TEST_F(CoralPcieChipTest, TheUploadAndTheRunAreInTheRingTogether) {
  ASSERT_TRUE(Open().ok());
  RunWell(Load(WithAddresses(CachingModel(7))));
  EXPECT_EQ(state_.waiting.front(), 3u) << "one chunk of the upload, two of the inference";
}

TEST_F(CoralPcieChipTest, RunsThatComeNextAreBegun) {
  ASSERT_TRUE(Open().ok());
  const auto* const a = Load(WithAddresses(CachingModel(7)));
  const auto* const b = Load(PlainModel());
  std::vector<Buffers> buffers;
  std::vector<Chip::Job> jobs;
  for (int i = 0; i < 7; ++i) {
    buffers.emplace_back(*(i % 3 == 2 ? b : a)->executable, static_cast<uint8_t>(i));
  }
  for (int i = 0; i < 7; ++i) jobs.push_back(MakeJob(i % 3 == 2 ? b : a, buffers[i]));
  for (size_t i = 0; i < jobs.size(); ++i) {
    const Status status = chip_->Run(jobs[i], std::span(jobs).subspan(i + 1), &report_);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  // a with its upload, a, b, which evicts it, and a with its upload again; likewise after that.
  EXPECT_EQ(state_.waiting.front(), 1u + 2 + 2 + 1 + 1 + 2);
  const int runs[] = {2, 3, 4, 6, 7, 8, 10};
  for (size_t i = 0; i < 7; ++i) {
    ExpectOutputs(*jobs[i].prepared, buffers[i], runs[i]);
  }
}

TEST_F(CoralPcieChipTest, ProgramsMayBeLongerThanTheRing) {
  ASSERT_TRUE(Open().ok());
  PackedModel model = StandAloneModel();
  PackedExecutable& e = model.executables[0];
  for (int i = 1; i < 700; ++i) {
    e.chunks.push_back({static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8)});
    e.transfers.insert(e.transfers.end() - 1, SendsChunk(i));
  }
  const auto* const prepared = Load(WithAddresses(model));
  for (const bool late : {false, true}) {
    state_.retires_late = late;
    for (int i = 0; i < 3; ++i) RunWell(prepared);
  }
  EXPECT_EQ(*std::max_element(state_.waiting.begin(), state_.waiting.end()), 255u);
}

TEST_F(CoralPcieChipTest, MemoryLiesFarBeyondTheSimpleAddresses) {
  ASSERT_TRUE(Open().ok());
  PackedModel model = StandAloneModel();
  PackedExecutable& e = model.executables[0];
  e.scratch_bytes = 50 << 20;
  e.transfers.insert(e.transfers.begin() + 1, {MovesScratch(1, (50 << 20) - 5000, 5000),
                                               MovesScratch(0, (30 << 20) - 5000, 10000)});
  const auto* const far = Load(WithAddresses(model));
  const auto* const behind = Load(WithAddresses(CachingModel(7)));
  RunWell(far);
  RunWell(behind);
  prepared_.erase(prepared_.begin());  // leaves a gap
  RunWell(Load(PlainModel()));
  RunWell(behind);
}

TEST_F(CoralPcieChipTest, RegisteredMemoryIsUsedWhereItIs) {
  ASSERT_TRUE(Open().ok());
  const auto* const plain = Load(PlainModel());
  std::vector<uint64_t> memory(3000);  // multiples of 8
  const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(memory.data()), 8 * memory.size());
  const auto run_at = [&](size_t in, size_t out) {
    const std::span<const uint8_t> from = bytes.subspan(in, 64);
    const std::span<uint8_t> to = bytes.subspan(out, 64);
    Chip::Job job = MakeJob(plain, Buffers(*plain->executable));
    job.inputs = {&from, 1};
    job.outputs = {&to, 1};
    report_ = {};
    const Status status = chip_->Run(job, {}, &report_);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_THAT(Bytes(to.begin(), to.end()), Eq(FakeCoralOutput(state_.runs, 0, 64)));
    return state_.input_hosts.back() == reinterpret_cast<uintptr_t>(from.data());
  };
  EXPECT_FALSE(run_at(800, 1600)) << "not registered";
  EXPECT_EQ(report_.bytes_copied, 128u);
  ASSERT_TRUE(chip_->RegisterMemory(bytes.subspan(800, 20000)).ok());
  EXPECT_TRUE(run_at(800, 1600));
  EXPECT_EQ(report_.bytes_copied, 0u);
  EXPECT_TRUE(run_at(20736, 8000));
  EXPECT_FALSE(run_at(804, 1600)) << "no multiple of 8";
  EXPECT_FALSE(run_at(20744, 1600)) << "reaches out of it";
  EXPECT_FALSE(run_at(792, 1600)) << "begins before it";
  EXPECT_TRUE(run_at(800, 1604));
  EXPECT_EQ(report_.bytes_copied, 64u);
  ASSERT_TRUE(chip_->Recover().ok());
  EXPECT_TRUE(run_at(800, 1600)) << "still there after a reset";
  chip_->UnregisterMemory(bytes.subspan(800, 20000));
  EXPECT_FALSE(run_at(800, 1600));
  EXPECT_FALSE(chip_->RegisterMemory(std::span<uint8_t>()).ok());
}

TEST_F(CoralPcieChipTest, WhereNothingOfCallersCanBeMappedEverythingIsCopied) {
  state_.can_map = false;
  ASSERT_TRUE(Open().ok());
  Bytes memory(100);
  EXPECT_EQ(chip_->RegisterMemory(std::span(memory)).code(), StatusCode::kUnsupported);
  RunWell(Load(WithAddresses(CachingModel(7))));
  RunWell(Load(PlainModel()));
}

TEST_F(CoralPcieChipTest, WithoutMemoryNothingIsPreparedAndNothingIsLeft) {
  ASSERT_TRUE(Open().ok());
  const auto executable = Know(WithAddresses(CachingModel(7)));
  const int before = state_.mappings;
  for (int more = 0;; ++more) {
    state_.mappings_max = before + more;
    const auto prepared = chip_->Prepare(executable);
    if (prepared.ok()) break;
    EXPECT_EQ(prepared.code(), StatusCode::kResourceExhausted);
    // The chip's tables stay.
    EXPECT_LE(state_.mappings, before + 1);
    ASSERT_LT(more, 20);
  }
}

TEST_F(CoralPcieChipTest, ExecutablesOfTooManyPagesAreRefused) {
  ASSERT_TRUE(Open().ok());
  auto executable = std::make_shared<CoralExecutable>();
  executable->inference.chunks.assign(70'000, Bytes(1));
  EXPECT_EQ(chip_->Prepare(executable).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(chip_->Prepare(std::make_shared<Executable>()).code(), StatusCode::kUnsupported);
}

// What goes wrong.

struct Fault {
  const char* name;
  std::function<void(FakeCoralFunctionState&)> happen;
  StatusCode code;  // of the run
  const char* message;
};

class CoralPcieFaults : public CoralPcieChipTest, public ::testing::WithParamInterface<Fault> {};

TEST_P(CoralPcieFaults, EndInAClearErrorAndInRightBytesAfterAReset) {
  ASSERT_TRUE(Open().ok());
  const auto* const caching = Load(WithAddresses(CachingModel(7)));
  const auto* const plain = Load(PlainModel());
  RunWell(caching);  // runs 1 and 2
  std::vector<uint64_t> memory(100);
  const std::span<uint8_t> bytes(reinterpret_cast<uint8_t*>(memory.data()), 800);
  ASSERT_TRUE(chip_->RegisterMemory(bytes).ok());
  GetParam().happen(state_);  // in run 3
  Buffers buffers(*plain->executable), next(*caching->executable);
  const Chip::Job ahead = MakeJob(caching, next);
  const Deadline before = clock_.Now();
  const Status status = chip_->Run(MakeJob(plain, buffers), {&ahead, 1}, &report_);
  EXPECT_LT(clock_.Now() - before, std::chrono::seconds(12));
  EXPECT_EQ(status.code(), GetParam().code) << status.message();
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
  EXPECT_FALSE(chip_->IsResident(*caching));
  chip_->UnregisterMemory(bytes);  // nothing may run there
  EXPECT_THAT(state_.complaints, IsEmpty());
  EXPECT_EQ(Run(plain, &buffers).code(), StatusCode::kDeviceLost) << "not before it is brought up";
  if (state_.is_gone) return;
  const Status recovered = chip_->Recover();
  ASSERT_TRUE(recovered.ok()) << recovered.message();
  RunWell(caching);
  RunWell(plain);
}

constexpr auto kLost = StatusCode::kDeviceLost;
INSTANTIATE_TEST_SUITE_P(
    All, CoralPcieFaults,
    ::testing::Values(
        Fault{"hang", [](auto& s) { s.hang_at = 3; }, StatusCode::kTimeout, "finished 2 of 5 runs"},
        Fault{"hang_without_pause",
              [](auto& s) {
                s.hang_at = 3;
                s.stuck.insert(0x486E0);
              },
              StatusCode::kTimeout, "finished 2 of 5 runs"},
        Fault{"page_fault",
              [](auto& s) {
                s.fatal_at = 3;
                s.fatal_bits = 1;
              },
              StatusCode::kCorruptModel, "page fault (error register 1"},
        Fault{"bus_error",
              [](auto& s) {
                s.fatal_at = 3;
                s.fatal_bits = 0x18;
              },
              kLost, "error answer to a write on the bus, error answer to a read"},
        Fault{"fatal_without_interrupt",
              [](auto& s) {
                s.fatal_at = 3;
                s.fatal_bits = 0x4000;
                s.lost_vectors = 1 << 12;
              },
              kLost, "uncorrectable error in the page table"},
        Fault{"queue_error", [](auto& s) { s.queue_error_at = 3; }, kLost, "queue reports error 3"},
        Fault{"queue_error_without_interrupt",
              [](auto& s) {
                s.queue_error_at = 3;
                s.lost_vectors = 1;
              },
              kLost, "queue reports error 3"},
        Fault{"lie", [](auto& s) { s.lie_at = 3; }, kLost, "retired descriptors up to"},
        Fault{"gone", [](auto& s) { s.is_gone = true; }, kLost, "read as ones"}),
    [](const auto& one) { return std::string(one.param.name); });

TEST_F(CoralPcieChipTest, LostInterruptsCostTimeAndNothingElse) {
  state_.lost_vectors = 0x1FFF;
  ASSERT_TRUE(Open().ok());
  RunWell(Load(WithAddresses(CachingModel(7))));
  RunWell(Load(PlainModel()));
}

TEST_F(CoralPcieChipTest, AProgramThatLeadsNowhereIsAtFault) {
  ASSERT_TRUE(Open().ok());
  PackedModel model = WithAddresses(StandAloneModel());
  std::erase_if(model.executables[0].fields, [](const PackedField& f) { return f.of == 1; });
  const auto* const lost = Load(model);
  Buffers buffers(*lost->executable);
  const Status status = Run(lost, &buffers);
  EXPECT_EQ(status.code(), StatusCode::kCorruptModel);
  EXPECT_THAT(status.message(), HasSubstr("nothing is mapped at 0"));
  ASSERT_TRUE(chip_->Recover().ok());
  RunWell(Load(PlainModel()));
}

TEST_F(CoralPcieChipTest, AChipThatDoesNotPauseIsResetWithItsFunction) {
  ASSERT_TRUE(Open().ok());
  const auto* const plain = Load(PlainModel());
  state_.hang_at = 1;
  state_.stuck.insert(0x486E0);
  Buffers buffers(*plain->executable);
  EXPECT_EQ(Run(plain, &buffers).code(), StatusCode::kTimeout);
  EXPECT_EQ(state_.function_resets, 1);
}

TEST_F(CoralPcieChipTest, OfAChipThatCannotBeStoppedCallersMemoryIsTakenAway) {
  ASSERT_TRUE(Open().ok());
  const auto* const plain = Load(PlainModel());
  Bytes memory(100);
  const int before = state_.mappings;
  ASSERT_TRUE(chip_->RegisterMemory(std::span(memory)).ok());
  state_.hang_at = 1;
  state_.stuck.insert(0x486E0);
  state_.resets = false;
  Buffers buffers(*plain->executable);
  EXPECT_EQ(Run(plain, &buffers).code(), StatusCode::kTimeout);
  EXPECT_EQ(state_.mappings, before);
  // The IOMMU keeps it out.
  EXPECT_THAT(state_.complaints, Each(HasSubstr("taken away")));
  state_.complaints.clear();
  EXPECT_FALSE(chip_->Recover().ok());
  prepared_.clear();
  chip_ = nullptr;
  state_.complaints.clear();
}

TEST_F(CoralPcieChipTest, AResetThatDidNotHelpIsNotTriedAgain) {
  ASSERT_TRUE(Open().ok());
  const auto executable = Know(PlainModel());
  ASSERT_TRUE(chip_->Recover().ok());
  EXPECT_THAT(chip_->Recover().message(), HasSubstr("opened anew"));
  chip_ = nullptr;
  ASSERT_TRUE(Open().ok());
  const auto* const again = Prepare(executable);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(chip_->Recover().ok());
    RunWell(again);
  }
}

TEST_F(CoralPcieChipTest, WhatTheSystemNoLongerMapsIsMappedAnew) {
  auto chip = OpenChip();
  ASSERT_TRUE(chip.ok());
  ChipKeeper::Options options;
  options.now = clock_.Function();
  options.on_loss = OnDeviceLoss::kReplay;
  options.reopen = [this](Deadline) { return OpenChip(); };
  device_ = std::make_unique<Device>(*std::move(chip), std::move(options));
  const auto executable = Know(PlainModel());
  const auto id = device_->Load(executable);
  ASSERT_TRUE(id.ok());
  state_.unmap_at = 1;
  Buffers buffers(*executable);
  const auto request =
      device_->Submit({.executable = *id, .inputs = buffers.from, .outputs = buffers.to});
  ASSERT_TRUE(request.ok());
  const Status status = device_->Wait(*request, &report_);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(buffers.outputs[0], FakeCoralOutput(state_.runs, 0, 64));
  EXPECT_EQ(device_->health().reopenings, 1u);
}

TEST_F(CoralPcieChipTest, RequestsAreRepeated) {
  auto chip = OpenChip();
  ASSERT_TRUE(chip.ok());
  ChipKeeper::Options options;
  options.now = clock_.Function();
  options.on_loss = OnDeviceLoss::kReplay;
  options.reopen = [this](Deadline) { return OpenChip(); };
  device_ = std::make_unique<Device>(*std::move(chip), std::move(options));
  const auto executable = Know(WithAddresses(CachingModel(7)));
  const auto id = device_->Load(executable);
  ASSERT_TRUE(id.ok());
  state_.hang_at = 2;
  state_.queue_error_at = 4;
  Buffers buffers(*executable);
  const auto request =
      device_->Submit({.executable = *id, .inputs = buffers.from, .outputs = buffers.to});
  ASSERT_TRUE(request.ok());
  const Status status = device_->Wait(*request, &report_);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(report_.replays, 2);
  Bytes wanted(12);
  UnpackCoralOutput(executable->output_wires[0], FakeCoralOutput(6, 0, 24), wanted);
  EXPECT_EQ(buffers.outputs[0], wanted);
}

TEST_F(CoralPcieChipTest, RequestsThatNobodyWaitsForEndBeforeTheirMemoryGoes) {
  auto chip = OpenChip();
  ASSERT_TRUE(chip.ok());
  device_ =
      std::make_unique<Device>(*std::move(chip), ChipKeeper::Options{.now = clock_.Function()});
  const auto executable = Know(WithAddresses(CachingModel(7)));
  const auto id = device_->Load(executable);
  ASSERT_TRUE(id.ok());
  state_.hang_at = 4;  // of the upload, and one for each request
  std::vector<Buffers> buffers(4, Buffers(*executable));
  std::vector<RequestId> requests;
  for (Buffers& one : buffers) {
    one.from.assign(one.inputs.begin(), one.inputs.end());
    one.to.assign(one.outputs.begin(), one.outputs.end());
    const auto request =
        device_->Submit({.executable = *id, .inputs = one.from, .outputs = one.to});
    ASSERT_TRUE(request.ok());
    requests.push_back(*request);
  }
  for (int i = 0; i < 2; ++i) {  // only behind the first is known that the parameters are there
    const Status status = device_->Wait(requests[i], nullptr);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  device_ = nullptr;  // TearDown looks for complaints
  EXPECT_EQ(state_.runs, 4);
}

TEST_F(CoralPcieChipTest, WhateverAChipAnswersThereIsAnEnd) {
  const auto executable = Know(WithAddresses(CachingModel(7)));
  int opened = 0;
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    state_.noise = 0;
    const bool from_the_beginning = seed % 2 == 0;
    if (from_the_beginning) state_.noise = seed;
    auto chip = OpenChip();
    if (!chip.ok()) continue;
    ++opened;
    const auto prepared = (*chip)->Prepare(executable);
    ASSERT_TRUE(prepared.ok()) << prepared.status().message();
    state_.noise = seed;
    for (int i = 0; i < 5; ++i) {
      Buffers buffers(*executable), next(*executable);
      const Chip::Job ahead = MakeJob(prepared->get(), next);
      const Deadline before = clock_.Now();
      const Status status = (*chip)->Run(MakeJob(prepared->get(), buffers), {&ahead, 1}, &report_);
      EXPECT_LT(clock_.Now() - before, std::chrono::seconds(20));
      if (!status.ok()) (void)(*chip)->Recover().ok();
    }
  }
  EXPECT_GE(opened, 50);
  state_.noise = 0;
  state_.complaints.clear();
}

// Every poll of the way up has an end.
class CoralPcieStuck : public CoralPcieChipTest, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(CoralPcieStuck, OpeningEndsInTimeAndAFunctionResetMayHelp) {
  for (const bool resets : {true, false}) {
    state_.resets = resets;
    state_.stuck = {GetParam()};
    state_.function_resets = 0;
    const Deadline before = clock_.Now();
    const auto chip = OpenChip();
    EXPECT_LT(clock_.Now() - before, std::chrono::seconds(10));
    if (chip.ok()) continue;
    EXPECT_EQ(chip.code(), StatusCode::kTimeout) << chip.status().message();
    EXPECT_THAT(chip.status().message(), HasSubstr("the chip does not"));
  }
  state_.complaints.clear();  // a chip that does not follow is let go of as it is
}

INSTANTIATE_TEST_SUITE_P(All, CoralPcieStuck,
                         ::testing::Values(0x1A314, kPower, 0x486E0, 0x48570, 0x48590, 0x48598,
                                           0x48788, 0x46078));

TEST_F(CoralPcieChipTest, OtherChipsAreRefused) {
  auto function = MakeFakeCoralFunction(&state_, &clock_);
  ASSERT_TRUE(function->Write32(2, 0x1A000, 0x1234).ok());
  CoralOptions options;
  options.now = clock_.Function();
  const auto chip =
      CoralPcieChip::Open(std::make_unique<CoralFunctionLink>(
                              std::move(function), CoralPerformance::kMax, options.now, "test"),
                          options, "", 1);
  EXPECT_EQ(chip.code(), StatusCode::kUnsupported);
  EXPECT_THAT(chip.status().message(), HasSubstr("1234"));
}

TEST_F(CoralPcieChipTest, AFunctionThatIsGoneIsSaidToBe) {
  state_.is_gone = true;
  const Status status = Open();
  EXPECT_EQ(status.code(), StatusCode::kDeviceLost);
  EXPECT_THAT(status.message(), HasSubstr("read as ones"));
}

// Heat.

TEST_F(CoralPcieChipTest, TheSensorIsOnAndItsThresholdsAreSet) {
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(state_.Last(0x1A0D0), 0x80u);
  EXPECT_EQ(state_.Last(0x1A0D4), 265u << 16);
  EXPECT_EQ(state_.Last(0x1A0D8), 0x80000007u | 265u << 16);
  EXPECT_EQ(state_.Last(0x1A0DC) & 1, 1u);
  EXPECT_EQ(CoralTemperatureMc(484), 45'050);
  EXPECT_EQ(CoralTemperatureMc(325) / 1000, 84);
}

TEST_F(CoralPcieChipTest, AHotChipIsSlowedDownAndACoolOneIsAsFastAsWasAskedFor) {
  for (const auto performance : {CoralPerformance::kMax, CoralPerformance::kHigh}) {
    ASSERT_TRUE(Open(performance).ok());
    const auto* const plain = Load(PlainModel());
    const uint32_t asked = performance == CoralPerformance::kMax ? 0 : 1;
    EXPECT_EQ(state_.Last(kPower) >> 28, 8 | asked);
    const struct {
      uint32_t reading, clock;
    } steps[] = {{326, 0}, {325, 1}, {306, 1}, {305, 2}, {285, 3}, {200, 3}, {400, 0}};
    for (const auto& [reading, clock] : steps) {
      state_.reading = reading;
      const uint64_t before = state_.Last(kPower);
      RunWell(plain);
      EXPECT_EQ(state_.Last(kPower), before) << "looked at only every 5 s";
      clock_.AdvanceTo(clock_.Now() + std::chrono::seconds(5));
      RunWell(plain);
      EXPECT_EQ(state_.Last(kPower) >> 28, 8 | std::max(asked, clock)) << reading;
    }
    prepared_.clear();
    chip_ = nullptr;
  }
}

TEST_F(CoralPcieChipTest, ALongRunIsWatched) {
  ASSERT_TRUE(Open().ok());
  const auto* const plain = Load(PlainModel());
  state_.reading = 285;
  clock_.AdvanceTo(clock_.Now() + std::chrono::seconds(2));
  state_.hang_at = 1;
  Buffers buffers(*plain->executable);
  EXPECT_FALSE(Run(plain, &buffers).ok());
  EXPECT_THAT(state_.writes, Contains(Pair(kPower, ::testing::Truly([](uint64_t value) {
                                             return value >> 28 == (8 | 3);
                                           }))));
}

// Devices of the kernel's modules.

TEST(ApexDevices, AreListedByNumberWithWhatTheModulesSay) {
  const std::filesystem::path root =
      std::filesystem::path(::testing::TempDir()) / "apex_devices_test";
  std::filesystem::remove_all(root);
  EXPECT_THAT(ListApex(root), IsEmpty());
  for (const char* name : {"apex_10", "apex_9", "else"}) {
    std::filesystem::create_directories(root / "class/apex" / name);
  }
  std::ofstream(root / "class/apex/apex_9/pci_address") << "0000:01:00.0\n";
  std::ofstream(root / "class/apex/apex_9/status") << "ALIVE\n";
  std::ofstream(root / "class/apex/apex_9/temp") << "45050\n";
  EXPECT_THAT(ListApex(root), ElementsAre(ApexDevice{"/dev/apex_9", "0000:01:00.0", "ALIVE", 45050},
                                          ApexDevice{"/dev/apex_10", "", "", 0}));
  std::filesystem::remove_all(root);
}

TEST(ApexDevices, ThatAreNotThereAreNotFound) {
  const auto chip = OpenApex(std::string(::testing::TempDir()) + "/no_apex_0", {});
  EXPECT_EQ(chip.code(), StatusCode::kNotFound);
  EXPECT_THAT(chip.status().message(), HasSubstr("gasket"));
}

}  // namespace
}  // namespace atollrt
