// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "delegate/compilation.h"
#include "delegate/compiler.h"
#include "delegate/partitioner.h"
#include "driver/isa/memory_access.h"
#include "tests/support/model_builder.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kind = OnChipBlock::Kind;

// ---- Ranges -------------------------------------------------------------------------------------

// INPUT; steps 0 and 1 in two bands; step 2 with fetched parameters; OUTPUT, END.
const std::vector<InstructionOrigin> kOrigins = {
    {.step = -1},
    {.step = 2, .fetches_parameters = true},
    {.step = 0, .band = 0},
    {.step = 1, .band = 0},
    {.step = 0, .band = 1},
    {.step = 1, .band = 1},
    {.step = 2},
    {.step = 3},
    {.step = 3},
};

constexpr InstructionRange kAll{0, 8};

TEST(InstructionsOf, IsFromTheFirstToTheLastStep) {
  EXPECT_THAT(InstructionsOf({.first_use = -1, .last_use = 0}, 1, kOrigins, kAll),
              ElementsAre(InstructionRange{0, 4}));
  EXPECT_THAT(InstructionsOf({.first_use = 1, .last_use = 3}, 1, kOrigins, kAll),
              ElementsAre(InstructionRange{3, 8}));
  EXPECT_THAT(InstructionsOf({.first_use = 2, .last_use = 2}, 1, kOrigins, kAll),
              ElementsAre(InstructionRange{6, 6}));
  EXPECT_THAT(InstructionsOf({.first_use = 4, .last_use = 9}, 1, kOrigins, kAll), IsEmpty());
}

TEST(InstructionsOf, IsOneRangeForEachBand) {
  EXPECT_THAT(InstructionsOf({.first_use = 0, .last_use = 1}, 2, kOrigins, kAll),
              ElementsAre(InstructionRange{2, 3}, InstructionRange{4, 5}));
}

TEST(InstructionsOf, LooksAroundOnly) {
  EXPECT_THAT(InstructionsOf({.first_use = 1, .last_use = 3}, 1, kOrigins, {2, 6}),
              ElementsAre(InstructionRange{3, 6}));
  EXPECT_THAT(InstructionsOf({.first_use = 0, .last_use = 1}, 2, kOrigins, {2, 3}),
              ElementsAre(InstructionRange{2, 3}));
  EXPECT_THAT(InstructionsOf({.first_use = 2, .last_use = 2}, 1, kOrigins, {3, 5}), IsEmpty());
}

TEST(InstructionsOf, ParametersAreThereFromTheirFetch) {
  EXPECT_THAT(InstructionsOfParameters({.first_use = 0, .last_use = 2}, 2, kOrigins, kAll),
              ElementsAre(InstructionRange{1, 6}));
  EXPECT_THAT(InstructionsOfParameters({.first_use = 0, .last_use = 2}, 1, kOrigins, kAll),
              IsEmpty());
}

// ---- Programs -----------------------------------------------------------------------------------

struct CompiledProgram {
  std::shared_ptr<const Model> model;  // keeps the graph
  Result<CompiledSet> result;
};

CompiledProgram CompileProgram(const ModelBuilder& m, uint64_t memory_bytes) {
  std::shared_ptr<const Model> model = m.Load();
  std::vector<int32_t> set(model->graph().nodes.size());
  std::iota(set.begin(), set.end(), 0);
  const SetBoundary boundary = BoundaryFinder(model->graph()).Find(set);
  DeviceInfo device;
  device.array_rows = device.array_columns = 64;
  device.clock_hz = 500'000'000;
  device.memory_bytes = memory_bytes;
  device.program_memory_bytes = 1 << 20;
  device.link_bytes_per_second = 455'000'000;
  CompileFailure failure;
  auto result =
      CompileSet(model->graph(), set, boundary.inputs, boundary.outputs, device, &failure);
  return {std::move(model), std::move(result)};
}

bool Alive(const OnChipBlock& block, size_t instruction) {
  const auto at = static_cast<int32_t>(instruction);
  return block.first_instruction <= at && at <= block.last_instruction;
}

// What an instruction touches lies within one of the blocks that are reserved while it runs, and
// these do not overlap.
void ExpectSoundMap(const CompiledSet& compiled) {
  const std::vector<Instruction>& program = compiled.executable.inference_program;
  for (size_t i = 0; i < program.size(); ++i) {
    SCOPED_TRACE(Disassemble(program[i]));
    std::vector<OnChipBlock> alive;
    for (const OnChipBlock& block : compiled.memory) {
      if (Alive(block, i)) alive.push_back(block);
    }
    const auto lies_in = [](const MemoryAccess& access, const OnChipBlock& block) {
      const bool in_parameters = (access.address & kParameterSegment) != 0;
      const int64_t begin = access.address & ~kParameterSegment;
      return in_parameters == (block.kind == Kind::kResidentParameters) && block.offset <= begin &&
             begin + static_cast<int64_t>(access.bytes) <= block.offset + block.bytes;
    };
    for (const MemoryAccess& access : AccessesOf(program[i])) {
      EXPECT_TRUE(std::any_of(alive.begin(), alive.end(),
                              [&](const OnChipBlock& block) { return lies_in(access, block); }))
          << "address " << access.address << ", " << access.bytes << " bytes";
    }
    std::erase_if(alive, [](const auto& block) { return block.kind == Kind::kResidentParameters; });
    std::sort(alive.begin(), alive.end(),
              [](const auto& a, const auto& b) { return a.offset < b.offset; });
    for (size_t k = 1; k < alive.size(); ++k) {
      EXPECT_LE(alive[k - 1].offset + alive[k - 1].bytes, alive[k].offset) << "block " << k;
    }
  }
}

// Every instruction that computes names a node whose output or scratch it writes; PARAMETERS names
// the one whose block it fills.
void ExpectSoundNodes(const CompiledSet& compiled, const Graph& graph) {
  const Executable& executable = compiled.executable;
  const std::vector<int32_t>& nodes = executable.inference_nodes;
  ASSERT_EQ(nodes.size(), executable.inference_program.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Instruction& instruction = executable.inference_program[i];
    SCOPED_TRACE(Disassemble(instruction));
    const Unit unit = UnitOf(instruction);
    const bool is_parameters = std::holds_alternative<ParametersInstruction>(instruction);
    if (unit == Unit::kSequencer || unit == Unit::kOutfeed ||
        (unit == Unit::kInfeed && !is_parameters)) {
      EXPECT_EQ(nodes[i], -1);
      continue;
    }
    // Rows of an input move within its block, which no node writes.
    ASSERT_TRUE(nodes[i] >= 0 || unit == Unit::kDma);
    ASSERT_LT(nodes[i], static_cast<int32_t>(graph.nodes.size()));
    const MemoryAccesses accesses = AccessesOf(instruction);
    const MemoryAccess& write = *(accesses.end() - 1);
    EXPECT_TRUE(
        std::any_of(compiled.memory.begin(), compiled.memory.end(), [&](const OnChipBlock& block) {
          return Alive(block, i) && block.node == nodes[i] && block.offset <= write.address &&
                 write.address < block.offset + block.bytes &&
                 is_parameters == (block.kind == Kind::kStreamedParameters);
        }));
  }
}

void ExpectSound(const ModelBuilder& m, uint64_t memory_bytes, bool* fits = nullptr) {
  SCOPED_TRACE(std::to_string(memory_bytes) + " bytes of memory");
  const CompiledProgram compiled = CompileProgram(m, memory_bytes);
  if (fits != nullptr) *fits = compiled.result.ok();
  if (!compiled.result.ok()) {
    EXPECT_EQ(compiled.result.status().code(), StatusCode::kResourceExhausted);
    return;
  }
  ExpectSoundMap(*compiled.result);
  ExpectSoundNodes(*compiled.result, compiled.model->graph());
}

size_t Count(const CompiledSet& compiled, Kind kind) {
  return static_cast<size_t>(std::count_if(compiled.memory.begin(), compiled.memory.end(),
                                           [&](const auto& block) { return block.kind == kind; }));
}

TEST(OnChipMap, SaysWhatIsWhereWhenEverythingFits) {
  ModelBuilder m;
  const int32_t x = m.Conv2D(m.Input({1, 8, 8, 4}), {.channels = 8});
  m.Output(m.Reshape(m.Add(x, m.Relu(x)), {1, 512}));
  const CompiledProgram compiled = CompileProgram(m, 8 << 20);
  ASSERT_TRUE(compiled.result.ok()) << compiled.result.status().message();
  ExpectSoundMap(*compiled.result);
  ExpectSoundNodes(*compiled.result, compiled.model->graph());
  EXPECT_EQ(Count(*compiled.result, Kind::kTensor), 4u) << "RESHAPE has no bytes of its own";
  EXPECT_EQ(Count(*compiled.result, Kind::kResidentParameters), 2u);
  EXPECT_EQ(Count(*compiled.result, Kind::kStreamedParameters), 0u);
}

TEST(OnChipMap, FollowsStreamedParametersAndParts) {
  ModelBuilder m;
  int32_t x = m.Input({1, 256});
  for (int i = 0; i < 5; ++i) x = m.FullyConnected(x, 256);
  m.Output(x);
  for (const uint64_t memory : {30'000u, 60'000u, 100'000u, 160'000u, 300'000u}) {
    bool fits = false;
    ExpectSound(m, memory, &fits);
    EXPECT_TRUE(fits) << memory;
  }
  EXPECT_GT(Count(*CompileProgram(m, 100'000).result, Kind::kStreamedParameters), 0u);
}

TEST(OnChipMap, FollowsBandsOfRows) {
  ModelBuilder m;
  int32_t x = m.Input({1, 64, 32, 4});
  for (int i = 0; i < 4; ++i) x = m.Conv2D(x, {.channels = 16, .kernel = 3});
  m.Output(m.Conv2D(x, {.channels = 2}));
  size_t bands = 0;
  for (const uint64_t memory : {40'000u, 48'000u, 56'000u, 64'000u}) {
    bool fits = false;
    ExpectSound(m, memory, &fits);
    if (!fits) continue;
    bands = std::max(bands, Count(*CompileProgram(m, memory).result, Kind::kTensor));
  }
  EXPECT_GT(bands, 8u) << "tensors that pass between bands have a block for each";
}

TEST(OnChipMap, IsSoundForRandomModels) {
  Rng seeds(TestSeed(21));
  for (int i = 0; i < 200 && !testing::Test::HasFailure(); ++i) {
    const uint64_t seed = seeds.Next();
    SCOPED_TRACE("model of seed " + std::to_string(seed));
    Rng rng(seed);
    ModelBuilder m(rng.Next());
    std::vector<int32_t> tensors{m.Input({1, 24, 6, 4})};
    const auto pick = [&] {
      return tensors[static_cast<size_t>(rng.Int(0, static_cast<int64_t>(tensors.size()) - 1))];
    };
    for (int64_t nodes = rng.Int(1, 12); nodes > 0; --nodes) {
      switch (rng.Int(0, 4)) {
        case 0:
          tensors.push_back(m.Add(pick(), pick()));
          break;
        case 1:
          tensors.push_back(m.DepthwiseConv2D(pick(), {.kernel = 3}));
          break;
        case 2:
          tensors.push_back(m.Conv2D(m.Concatenation({pick(), pick()}, 3), {.channels = 4}));
          break;
        case 3:
          tensors.push_back(m.Conv2D(m.Pad(pick(), {0, 0, 1, 1, 1, 1, 0, 0}),
                                     {.channels = 4, .kernel = 3, .padding = Padding::kValid}));
          break;
        default:
          tensors.push_back(m.Conv2D(pick(), {.channels = 4, .kernel = 3}));
          break;
      }
    }
    m.Output(tensors.back());
    for (const uint64_t memory : {8u << 20, 12u << 10, 9u << 10, 7u << 10}) {
      ExpectSound(m, memory);
    }
  }
}

}  // namespace
}  // namespace atollrt
