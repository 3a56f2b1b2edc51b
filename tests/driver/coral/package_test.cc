// SPDX-License-Identifier: Apache-2.0
//
// Packages of docs/coral.md: what good ones mean, and that bad ones are refused by name.
#include "driver/coral/package.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "driver/coral/executable.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/coral_packages.h"
#include "tests/support/guarded_buffer.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Kind = CoralTransfer::Kind;
using Bytes = std::vector<uint8_t>;

CoralExecutable Read(const PackedModel& model) {
  Result<CoralExecutable> executable = ReadCoralPackage(WritePackage(model));
  EXPECT_TRUE(executable.ok()) << executable.status().message();
  return executable.ok() ? *std::move(executable) : CoralExecutable();
}

TEST(CoralPackage, AStandAloneExecutableEvictsWhatIsCached) {
  const CoralExecutable executable = Read(StandAloneModel());
  EXPECT_EQ(executable.family, DeviceFamily::kCoral);
  EXPECT_EQ(executable.caching_token, 0u);
  EXPECT_TRUE(executable.caching.transfers.empty());
  EXPECT_THAT(
      executable.inference.transfers,
      ElementsAre(CoralTransfer{Kind::kInstructions, 0, 0, 3},
                  CoralTransfer{Kind::kInput, 0, 0, 16}, CoralTransfer{Kind::kParameters, 0, 0, 4},
                  CoralTransfer{Kind::kOutput, 0, 0, 8}, CoralTransfer{Kind::kInterrupt, 0, 0, 0}));
  ASSERT_THAT(executable.inputs, SizeIs(1));
  EXPECT_EQ(executable.inputs[0].bytes, 12u);
  EXPECT_EQ(executable.inputs[0].type, LayerType::kUInt8);
  EXPECT_EQ(executable.input_wires[0].wire_bytes, 16u);
  EXPECT_EQ(executable.outputs[0].bytes, 5u);
  EXPECT_THAT(executable.output_wires[0].copies, ElementsAre(CoralCopy{0, 0, 5, 5, 1}));
}

TEST(CoralPackage, ALoneExecutableStandsAloneWhateverItCallsItself) {
  PackedModel model = StandAloneModel();
  model.executables[0].role = 2;
  model.executables[0].token = 7;
  EXPECT_EQ(Read(model).caching_token, 0u);
}

TEST(CoralPackage, OfThreeExecutablesTheOneThatStandsAloneIsUsed) {
  PackedModel model = CachingModel(7);
  model.executables.push_back(StandAloneModel().executables[0]);
  const CoralExecutable executable = Read(model);
  EXPECT_TRUE(executable.caching.transfers.empty());
  EXPECT_EQ(executable.inputs[0].bytes, 12u);
}

TEST(CoralPackage, CachedParametersAreAProgramOfTheirOwn) {
  const CoralExecutable executable = Read(CachingModel(7));
  EXPECT_EQ(executable.caching_token, 7u);
  EXPECT_THAT(executable.caching.transfers, SizeIs(3));
  EXPECT_THAT(executable.caching.parameters, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(executable.inference.parameters, ElementsAre(9, 9, 8, 8));
  EXPECT_THAT(executable.inference.transfers, SizeIs(7)) << "a fence is no transfer";
}

TEST(CoralPackage, OutputsAreGatheredFromTheirTilesAndSignsFlipped) {
  const CoralExecutable executable = Read(CachingModel(7));
  std::vector<uint8_t> wire(24);
  for (size_t i = 0; i < wire.size(); ++i) wire[i] = static_cast<uint8_t>(i);
  std::vector<uint8_t> output(12);
  UnpackCoralOutput(executable.output_wires[0], wire, output);
  for (uint8_t& byte : output) byte ^= 0x80;
  EXPECT_THAT(output, ElementsAre(0, 1, 4, 5, 16, 17, 8, 9, 12, 13, 20, 21));
}

TEST(CoralPackage, InputsArePaddedWithZerosAndSignsFlippedElsewhere) {
  const CoralExecutable executable = Read(CachingModel(7));
  const std::vector<uint8_t> input = {0, 1, 0x7F, 0x80, 0xFF, 5};
  std::vector<uint8_t> wire(8, 0xEE);
  PackCoralInput(executable.input_wires[0], input, wire);
  EXPECT_THAT(wire, ElementsAre(0x80, 0x81, 0xFF, 0x00, 0x7F, 0x85, 0, 0));
}

TEST(CoralPackage, SignsOfWideElementsAreInTheirLastByte) {
  const CoralLayer layer{.wire_bytes = 4, .element_bytes = 2, .flips_sign = true, .copies = {}};
  std::vector<uint8_t> wire(4);
  PackCoralInput(layer, std::vector<uint8_t>{1, 2, 3, 0x84}, wire);
  EXPECT_THAT(wire, ElementsAre(1, 0x82, 3, 4));
}

TEST(CoralPackage, ScratchGoesBothWays) {
  PackedModel model = StandAloneModel();
  PackedExecutable& e = model.executables[0];
  e.scratch_bytes = 32;
  e.transfers.insert(e.transfers.begin() + 1, {MovesScratch(1, 0, 32), MovesScratch(0, 8, 24)});
  const CoralExecutable executable = Read(model);
  EXPECT_EQ(executable.scratch_bytes, 32u);
  EXPECT_EQ(executable.inference.transfers[1], (CoralTransfer{Kind::kScratchOut, 0, 0, 32}));
  EXPECT_EQ(executable.inference.transfers[2], (CoralTransfer{Kind::kScratchIn, 0, 8, 24}));
}

TEST(CoralPackage, AddressFieldsAreKeptInTheOrderOfTheChunks) {
  PackedModel model = CachingModel(7);
  model.executables[0].chunks = {Bytes(32), Bytes(16)};
  model.executables[0].fields = AddressAt(1, 8, 0, "out");
  for (const PackedField& field : AddressAt(0, 70, 1, "in")) {
    model.executables[0].fields.push_back(field);
  }
  model.executables[1].chunks = {Bytes(16)};
  model.executables[1].fields = AddressAt(0, 0, 2);
  using Base = CoralAddressField::Base;
  const CoralExecutable executable = Read(model);
  EXPECT_THAT(executable.inference.fields,
              ElementsAre(CoralAddressField{Base::kInput, false, 0, 0, 70},
                          CoralAddressField{Base::kInput, true, 0, 0, 134},
                          CoralAddressField{Base::kOutput, false, 0, 1, 8},
                          CoralAddressField{Base::kOutput, true, 0, 1, 72}));
  EXPECT_THAT(executable.caching.fields,
              ElementsAre(CoralAddressField{Base::kParameters, false, 0, 0, 0},
                          CoralAddressField{Base::kParameters, true, 0, 0, 64}));
}

TEST(CoralPackage, AnAddressIsWrittenWhereItBelongsAndNowhereElse) {
  constexpr uint64_t kAddress = 0x8000'1234'9ABC'DEF8;
  for (const int fill : {0x00, 0xFF, 0xA5}) {
    const auto background = static_cast<uint8_t>(fill);
    for (uint32_t bit = 0; bit + 32 <= 80; ++bit) {
      for (const bool is_upper : {false, true}) {
        Bytes chunk(10, background);
        WriteCoralAddress({.is_upper_half = is_upper, .bit = bit}, kAddress, chunk);
        const uint64_t half = is_upper ? kAddress >> 32 : kAddress & 0xFFFFFFFF;
        for (uint32_t i = 0; i < 80; ++i) {
          const bool is_inside = i >= bit && i < bit + 32;
          const uint64_t wanted = is_inside ? half >> (i - bit) & 1 : background >> i % 8 & 1;
          ASSERT_EQ(chunk[i / 8] >> i % 8 & 1u, wanted) << bit << " " << i;
        }
      }
    }
  }
}

struct BadPackage {
  const char* name;
  std::function<void(PackedModel&)> spoil;  // of CachingModel
  StatusCode code;
  const char* message;
};

class BadPackages : public ::testing::TestWithParam<BadPackage> {};

TEST_P(BadPackages, AreRefusedWithTheReason) {
  PackedModel model = CachingModel(7);
  GetParam().spoil(model);
  const Result<CoralExecutable> executable = ReadCoralPackage(WritePackage(model));
  ASSERT_FALSE(executable.ok());
  EXPECT_EQ(executable.code(), GetParam().code) << executable.status().message();
  EXPECT_THAT(executable.status().message(), HasSubstr(GetParam().message));
}

PackedExecutable& Inference(PackedModel& m) { return m.executables[0]; }
PackedExecutable& Caching(PackedModel& m) { return m.executables[1]; }
PackedLayer& Output(PackedModel& m) { return Inference(m).outputs[0]; }
// Into a chunk of 4 bytes.
void AddField(PackedModel& m, PackedField field) {
  Inference(m).chunks[0].resize(4);
  Inference(m).fields = {std::move(field)};
}
constexpr StatusCode kBad = StatusCode::kCorruptModel;
constexpr StatusCode kNo = StatusCode::kUnsupported;

INSTANTIATE_TEST_SUITE_P(
    All, BadPackages,
    ::testing::Values(
        BadPackage{"field", [](auto& m) { AddField(m, {.of = 2, .bit = 1}); }, kBad,
                   "address field 0 of instruction chunk 0: it has 32 bits from bit 1 on, its "
                   "chunk has 32"},
        BadPackage{"negative_field", [](auto& m) { AddField(m, {.of = 2, .bit = -1}); }, kBad,
                   "from bit -1 on"},
        BadPackage{"far_field", [](auto& m) { AddField(m, {.of = 2, .bit = INT32_MAX}); }, kBad,
                   "from bit 2147483647 on"},
        BadPackage{"field_of_nothing",
                   [](auto& m) { AddField(m, {.of = 2, .has_address = false}); }, kBad,
                   "of what it is the address"},
        BadPackage{"field_of_batch", [](auto& m) { AddField(m, {.of = 2, .batch = 1}); }, kNo,
                   "batch element 1"},
        BadPackage{"third_half", [](auto& m) { AddField(m, {.of = 2, .half = 2}); }, kBad,
                   "half 2 of an address"},
        BadPackage{"field_kind", [](auto& m) { AddField(m, {.of = 4}); }, kBad, "unknown kind 4"},
        BadPackage{"field_layer", [](auto& m) { AddField(m, {.of = 1, .layer = "x"}); }, kBad,
                   "names the input 'x', which does not exist"},
        BadPackage{"caching_field",
                   [](auto& m) {
                     Caching(m).chunks[0].resize(16);
                     Caching(m).fields = AddressAt(0, 0, 1, "in");
                   },
                   kBad, "names the input 'in', which does not exist"},
        BadPackage{"newer", [](auto& m) { m.runtime_version = 15; }, kNo, "version 15"},
        BadPackage{"chips", [](auto& m) { m.for_several_chips = true; }, kNo, "several chips"},
        BadPackage{"chip", [](auto& m) { m.chip = -1; }, kNo, "several chips"},
        BadPackage{"empty", [](auto& m) { m.executables.clear(); }, kBad, "0 executables"},
        BadPackage{"four", [](auto& m) { m.executables.resize(4); }, kBad, "4 executables"},
        BadPackage{"twice", [](auto& m) { Caching(m).role = 2; }, kBad, "more than one inference"},
        BadPackage{"role", [](auto& m) { Caching(m).role = 5; }, kBad, "unknown role 5"},
        BadPackage{"lonely",
                   [](auto& m) {
                     m.executables[0].role = 1;
                     m.executables.push_back(m.executables[1]);
                     m.executables.erase(m.executables.begin() + 1);
                   },
                   kBad, "more than one parameter-caching"},
        BadPackage{"token", [](auto& m) { Caching(m).token = 8; }, kBad, "token is 0000000000000008"},
        BadPackage{"no_token",
                   [](auto& m) { Caching(m).token = Inference(m).token = 0; }, kBad,
                   "no caching token"},
        BadPackage{"batch", [](auto& m) { Inference(m).batch = 4; }, kNo, "batches of 4"},
        BadPackage{"incomplete", [](auto& m) { Inference(m).complete = false; }, kNo, "LSTM"},
        BadPackage{"no_list", [](auto& m) { Inference(m).has_transfers = false; }, kNo,
                   "incomplete"},
        BadPackage{"state",
                   [](auto& m) {
                     Output(m).name = "in_variable_output";
                   },
                   kNo, "next state"},
        BadPackage{"huge",
                   [](auto& m) {
                     Inference(m).inputs[0].bytes = 1 << 30;
                   },
                   kNo, "at most 67108864"},
        BadPackage{"scratch", [](auto& m) { Inference(m).scratch_bytes = -1; }, kBad,
                   "scratch buffer has -1"},
        BadPackage{"scratch_alone",
                   [](auto& m) {
                     Inference(m).inputs.clear();
                     Inference(m).outputs.clear();
                     Inference(m).transfers = {SendsChunk(0), SendsChunk(1), Interrupts()};
                     Inference(m).scratch_bytes = 1 << 30;
                   },
                   kNo, "scratch buffer has 1073741824 bytes; at most 67108864"},
        BadPackage{"input_window", [](auto& m) { Inference(m).transfers[1].bytes = 9; }, kBad,
                   "9 bytes from 0 on of the input, which has 8"},
        BadPackage{"negative", [](auto& m) { Inference(m).transfers[1].offset = -1; }, kBad,
                   "from -1 on"},
        BadPackage{"nothing", [](auto& m) { Inference(m).transfers[1].bytes = 0; }, kBad,
                   "transfer 1: it moves 0 bytes"},
        BadPackage{"overflow",
                   [](auto& m) {
                     Inference(m).transfers[1].offset = INT32_MAX;
                     Inference(m).transfers[1].bytes = INT32_MAX;
                   },
                   kBad, "2147483647 bytes from 2147483647 on"},
        BadPackage{"no_input", [](auto& m) { Inference(m).transfers[1].layer = "i\nn"; }, kBad,
                   "the input 'i?n', which does not exist"},
        BadPackage{"no_output", [](auto& m) { Inference(m).transfers[2].layer = "o"; }, kBad,
                   "the output 'o'"},
        BadPackage{"backwards", [](auto& m) { Inference(m).transfers[2].direction = 0; }, kBad,
                   "wrong direction"},
        BadPackage{"element", [](auto& m) { Inference(m).transfers[1].batch = 1; }, kNo,
                   "batch element 1"},
        BadPackage{"no_address", [](auto& m) { Inference(m).transfers[1].has_address = false; },
                   kBad, "does not say what it moves"},
        BadPackage{"kind", [](auto& m) { Inference(m).transfers[1].of = 9; }, kBad,
                   "unknown kind 9"},
        BadPackage{"chunk", [](auto& m) { Inference(m).transfers[0].number = 2; }, kBad,
                   "instruction chunk 2 of 2"},
        BadPackage{"unsent", [](auto& m) { Inference(m).transfers[5].number = 0; }, kBad,
                   "chunk 1 of 2 is never sent"},
        BadPackage{"empty_chunk", [](auto& m) { Inference(m).chunks[1].clear(); }, kBad,
                   "chunk 1 is empty"},
        BadPackage{"interrupt", [](auto& m) { Inference(m).transfers[7].number = 4; }, kBad,
                   "interrupt 4 of 4"},
        BadPackage{"endless", [](auto& m) { Inference(m).transfers.pop_back(); }, kBad,
                   "does not end with"},
        BadPackage{"ends_early",
                   [](auto& m) {
                     auto& transfers = Inference(m).transfers;
                     transfers.insert(transfers.begin() + 1, Interrupts());
                   },
                   kBad, "the first interrupt 0"},
        BadPackage{"begins", [](auto& m) { std::swap(Inference(m).transfers[0], Inference(m).transfers[1]); },
                   kBad, "does not begin with instructions"},
        BadPackage{"partly", [](auto& m) { Inference(m).transfers[6].bytes = 4; }, kBad,
                   "has 24 bytes, of which its transfers give 20"},
        BadPackage{"overlapping", [](auto& m) { Inference(m).transfers[6].offset = 8; }, kBad,
                   "give 16 in one piece and 24 in all"},
        BadPackage{"caching_window", [](auto& m) { Caching(m).transfers[1].bytes = 9; }, kBad,
                   "parameter-caching executable: transfer 1"},
        BadPackage{"caching_output",
                   [](auto& m) { Caching(m).transfers.insert(Caching(m).transfers.begin() + 1,
                                                            GivesOutput("out", 0, 8)); },
                   kBad, "the output 'out', which does not exist"},
        BadPackage{"executions", [](auto& m) { Output(m).executions = 2; }, kNo, "2 times"},
        BadPackage{"type", [](auto& m) { Output(m).type = 3; }, kNo, "type 3"},
        BadPackage{"shape", [](auto& m) { Output(m).x = 0; }, kBad, "2x0x2"},
        BadPackage{"large_shape",
                   [](auto& m) { Output(m).y = Output(m).x = Output(m).z = INT32_MAX; }, kBad,
                   "output 0 'out': its shape"},
        BadPackage{"small", [](auto& m) { Output(m).bytes = 11; }, kBad, "has 12 bytes, on the cable it has 11"},
        BadPackage{"slices", [](auto& m) { Output(m).has_slices = true; }, kNo, "slices"},
        BadPackage{"untiled", [](auto& m) { Output(m).has_tiling = false; }, kBad, "arranged"},
        BadPackage{"map", [](auto& m) { Output(m).tiling[3].pop_back(); }, kBad,
                   "columns to places has 2 entries"},
        BadPackage{"negative_map", [](auto& m) { Output(m).tiling[4][1] = -1; }, kBad,
                   "rows to places has the entry -1"},
        BadPackage{"tile", [](auto& m) { Output(m).tiling[1][2] = 2; }, kBad,
                   "element (0, 2) is in tile 2 of 2"},
        BadPackage{"outside", [](auto& m) { Output(m).tiling[2][1] = 23; }, kBad,
                   "element (0, 2) is at 23 of 24"},
        BadPackage{"far", [](auto& m) { Output(m).tiling[2][1] = INT32_MAX; }, kBad,
                   "is at 2147483647 of 24"},
        BadPackage{"shared", [](auto& m) { Output(m).tiling[2][1] = 0; }, kBad,
                   "where another one is"}),
    [](const auto& test) { return test.param.name; });

TEST(CoralPackage, SurvivesEveryPrefixAtEveryAlignment) {
  const std::vector<uint8_t> bytes = WritePackage(CachingModel(7));
  for (size_t size = 0; size < bytes.size(); ++size) {
    GuardedBuffer buffer(size, GuardedBuffer::kEnd, size % 16);
    std::copy_n(bytes.begin(), size, buffer.data());
    EXPECT_FALSE(ReadCoralPackage({buffer.data(), size}).ok()) << size;
  }
}

TEST(CoralPackage, SurvivesEveryChangedByte) {
  std::vector<uint8_t> bytes = WritePackage(CachingModel(7));
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (const int change : {0x01, 0x80, 0xFF}) {
      bytes[i] ^= static_cast<uint8_t>(change);
      const Result<CoralExecutable> executable = ReadCoralPackage(bytes);
      EXPECT_NE(executable.ok(), !executable.status().message().empty());
      bytes[i] ^= static_cast<uint8_t>(change);
    }
  }
}

// The bit map of an output of 64 MiB, and the pieces of outputs.
constexpr int64_t kPackageConstant = 16 << 20;

Status ReadHeld(const std::vector<uint8_t>& bytes) {
  const MemoryLimit limit(ProportionalBytes(bytes.size(), kPackageConstant));
  return ReadCoralPackage(bytes).status();
}

// One chunk at many places of the list.
TEST(CoralPackage, ChunksThatShareTheirBytesAreCopiedOnlyOnce) {
  PackedModel model = StandAloneModel();
  PackedExecutable& executable = model.executables[0];
  executable.chunks = {std::vector<uint8_t>(1 << 20, 7)};
  executable.more_chunks = 20'000;
  const Status status = ReadHeld(WritePackage(model));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("its instruction chunks take more than"));
}

// Each of 100,000 chunks is looked for among as many transfers.
TEST(CoralPackage, ManyChunksTakeNoMoreThanTheirTime) {
  PackedModel model = StandAloneModel();
  PackedExecutable& executable = model.executables[0];
  executable.chunks.assign(100'000, {7});
  executable.transfers.clear();
  for (int i = 0; i < 100'000; ++i) executable.transfers.push_back(SendsChunk(i));
  executable.transfers.push_back(Interrupts());
  EXPECT_THAT(ReadHeld(WritePackage(model)).message(), HasSubstr("output 0 'out' has"));
}

TEST(CoralPackage, LayersThatShareTheirNameAreCopiedOnlyOnce) {
  PackedModel model = StandAloneModel();
  PackedExecutable& executable = model.executables[0];
  executable.inputs[0].name = std::string(1 << 20, 'n');
  executable.more_inputs = 200;
  const Status status = ReadHeld(WritePackage(model));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("its names take more than"));
}

// Rows and columns are in so odd an order that no two pieces are one; maps of a few kilobytes say
// so for millions.
TEST(CoralPackage, AnOutputInMillionsOfPiecesIsRefused) {
  PackedModel model = StandAloneModel();
  PackedLayer& output = model.executables[0].outputs[0];
  constexpr int32_t kSide = 2000;
  output.y = output.x = kSide;
  output.z = 1;
  output.bytes = 8 * kSide * kSide;
  output.has_tiling = true;
  for (auto& map : output.tiling) map.assign(kSide, 0);
  output.tiling[2] = {0};
  for (int32_t i = 0; i < kSide; ++i) {
    const auto at = static_cast<size_t>(i);
    output.tiling[3][at] = i / 2 * 4 + i % 2 * 3;  // 0, 3, 4, 7, 8: the steps are odd
    output.tiling[4][at] = i;
    output.tiling[5][at] = 4 * kSide;
  }
  const Status status = ReadHeld(WritePackage(model));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("more than 65536 pieces"));
}

}  // namespace
}  // namespace atollrt
