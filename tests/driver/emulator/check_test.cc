// SPDX-License-Identifier: Apache-2.0
//
// The rules of docs/isa.md §4, one breach after the other.
#include "driver/emulator/check.h"

#include <limits>

#include "driver/isa/instruction.h"
#include "tests/driver/emulator/emulated_program.h"
#include "tests/support/assembled.h"

namespace atollrt {
namespace {

constexpr uint64_t kMemory = 1 << 16;

// The index of the operand's word, by its name.
uint32_t WordOf(const Instruction& instruction, const std::string& operand) {
  const InstructionInfo& info = InstructionTable()[instruction.index()];
  for (size_t i = 0; i < info.operands.size(); ++i) {
    if (operand == info.operands[i].name()) return static_cast<uint32_t>(i + 1);
  }
  ADD_FAILURE() << info.mnemonic << " has no operand " << operand;
  return 0;
}

// The instruction with one operand changed.
Instruction With(const Instruction& instruction, const std::string& operand, uint32_t value) {
  EncodedInstruction bytes = Encode(instruction);
  StoreLittleEndian<uint32_t>(&bytes[4 * WordOf(instruction, operand)], value);
  return *Decode(bytes);
}

Conv2DInstruction GoodConv() {
  return Assembled<Conv2DInstruction>(
      "weight_address=act+1000, channel_address=act+2000, output_address=act+3000, batch=1, "
      "input_h=4, input_w=5, input_c=6, output_h=4, output_w=5, output_c=4, kernel_h=3, "
      "kernel_w=3, stride_h=1, stride_w=1, dilation_h=1, dilation_w=1, pad_top=1, pad_left=1, "
      "groups=2, clamp_min=-128, clamp_max=127");
}
DepthwiseConv2DInstruction GoodDepthwise() {
  return Assembled<DepthwiseConv2DInstruction>(
      "weight_address=act+1000, channel_address=act+2000, output_address=act+3000, batch=1, "
      "input_h=4, input_w=5, input_c=6, output_h=4, output_w=5, output_c=12, kernel_h=3, "
      "kernel_w=3, stride_h=1, stride_w=1, dilation_h=1, dilation_w=1, pad_top=1, pad_left=1, "
      "clamp_min=-128, clamp_max=127");
}
TransposeConv2DInstruction GoodTranspose() {
  return Assembled<TransposeConv2DInstruction>(
      "weight_address=act+1000, channel_address=act+2000, output_address=act+3000, batch=1, "
      "input_h=4, input_w=5, input_c=6, output_h=8, output_w=10, output_c=4, kernel_h=3, "
      "kernel_w=3, stride_h=2, stride_w=2, clamp_min=-128, clamp_max=127");
}
LstmInstruction GoodLstm() {
  return Assembled<LstmInstruction>(
      "weight_address=act+1000, channel_address=act+2000, hidden_address=act+4000, "
      "cell_address=act+5000, output_address=act+6000, batch=2, steps=3, inputs=5, units=4");
}
// A hundred elements, as three loops; input 1 has the output's layout, input 2 repeats.
template <PairInstruction T>
T GoodPair() {
  return Assembled<T>(
      "input2_address=act+100, output_address=act+200, count0=2, count1=1, count2=5, "
      "count3=10, input1_stride0=50, input1_stride2=10, input1_stride3=1, input2_stride0=40, "
      "input2_stride3=1");
}
AddInstruction GoodAdd() {
  AddInstruction add = GoodPair<AddInstruction>();
  add.left_shift = 20;
  add.clamp_min = -128;
  add.clamp_max = 127;
  return add;
}
MultiplyInstruction GoodMultiply() {
  MultiplyInstruction multiply = GoodPair<MultiplyInstruction>();
  multiply.clamp_min = -128;
  multiply.clamp_max = 127;
  return multiply;
}
PreluInstruction GoodPrelu() {
  PreluInstruction prelu = GoodPair<PreluInstruction>();
  prelu.clamp_min = -128;
  prelu.clamp_max = 127;
  return prelu;
}
std::vector<Instruction> GoodPairs() {
  return {GoodAdd(), GoodMultiply(), GoodPair<MaximumInstruction>(), GoodPair<MinimumInstruction>(),
          GoodPrelu()};
}
Pool2DInstruction GoodPool() {
  return Assembled<Pool2DInstruction>(
      "output_address=act+1000, batch=1, input_h=4, input_w=4, channels=3, output_h=2, "
      "output_w=2, kernel_h=2, kernel_w=2, stride_h=2, stride_w=2, clamp_min=-128, "
      "clamp_max=127");
}
template <typename T>
T GoodReduction() {
  T i;
  i.input_address = 0;
  i.output_address = 1000;
  i.kept0 = 1;
  i.reduced0 = 2;
  i.kept1 = 3;
  i.reduced1 = 1;
  i.kept2 = 5;
  i.reduced2 = 4;
  return i;
}
ReduceSumInstruction GoodSum() {
  ReduceSumInstruction i = GoodReduction<ReduceSumInstruction>();
  i.clamp_min = -128;
  i.clamp_max = 127;
  return i;
}
SoftmaxInstruction GoodSoftmax() {
  return Assembled<SoftmaxInstruction>(
      "output_address=act+100, rows=4, depth=25, multiplier=1073741824, exponent=23, "
      "min_difference=-248");
}
L2NormalizationInstruction GoodL2() {
  return {.input_address = 0, .output_address = 100, .rows = 4, .depth = 25};
}
// Rows 2 to 3 of 8 from rows 1 to 2 of 4: each is enlarged to two.
template <typename T>
T GoodResize() {
  T i;
  i.input_address = 0;
  i.output_address = 1000;
  i.batch = 2;
  i.input_h = 4;
  i.input_w = 5;
  i.channels = 3;
  i.output_h = 8;
  i.output_w = 7;
  i.input_first = 1;
  i.input_rows = 2;
  i.output_first = 2;
  i.output_rows = 2;
  return i;
}
TableInstruction GoodTable() {
  return {.input_address = 0, .output_address = 100, .count = 100, .table_address = 200};
}
CopyInstruction GoodCopy() {
  return Assembled<CopyInstruction>(
      "output_address=act+1000, bytes=4, count0=2, count1=3, count2=4, count3=1, count4=2, "
      "input_stride0=100, input_stride1=20, input_stride2=4, input_stride4=10, "
      "output_stride0=96, output_stride1=32, output_stride2=8, output_stride4=4");
}
FillInstruction GoodFill() { return {.output_address = 0, .bytes = 10, .value = 255}; }

std::vector<Instruction> GoodInstructions() {
  return {EndInstruction{},
          InputInstruction{.bytes = 4},
          OutputInstruction{.bytes = 4},
          ParametersInstruction{.bytes = 4},
          GoodConv(),
          GoodDepthwise(),
          GoodTranspose(),
          GoodLstm(),
          GoodAdd(),
          GoodPool(),
          GoodSum(),
          GoodTable(),
          GoodCopy(),
          GoodFill(),
          GoodReduction<ReduceMaxInstruction>(),
          GoodReduction<ReduceMinInstruction>(),
          GoodSoftmax(),
          GoodL2(),
          GoodResize<ResizeBilinearInstruction>(),
          GoodResize<ResizeNearestNeighborInstruction>(),
          GoodMultiply(),
          GoodPair<MaximumInstruction>(),
          GoodPair<MinimumInstruction>(),
          GoodPrelu()};
}

Fault Check(const Instruction& instruction) { return CheckInstruction(instruction, {}, kMemory); }

struct Breach {
  Instruction good;
  const char* operand;  // set to `value`
  uint32_t value;
  FaultCode code = FaultCode::kBadOperand;
  const char* reported = nullptr;  // if it is not `operand`
};

void ExpectBreaches(const std::vector<Breach>& breaches) {
  for (const Breach& breach : breaches) {
    const char* reported = breach.reported != nullptr ? breach.reported : breach.operand;
    EXPECT_EQ(Check(With(breach.good, breach.operand, breach.value)),
              (Fault{breach.code, WordOf(breach.good, reported)}))
        << Mnemonic(breach.good) << " " << breach.operand << "=" << breach.value;
  }
}

TEST(Check, LetsGoodInstructionsPass) {
  const auto good = GoodInstructions();
  ASSERT_EQ(good.size(), InstructionTable().size());
  for (const Instruction& instruction : good) {
    EXPECT_EQ(Check(instruction), Fault{}) << Disassemble(instruction);
  }
}

// The list's meaning of a flags operand, which docs/isa.md repeats, names just those that are let
// through. Signs change other ranges, so only the flags operand is looked at.
TEST(Check, TakesExactlyTheFlagsOfTheList) {
  for (const Instruction& good : GoodInstructions()) {
    const InstructionInfo& info = InstructionTable()[good.index()];
    for (const OperandInfo& operand : info.operands) {
      if (std::string_view(operand.name()) != "flags") continue;
      const std::string allowed = std::string(" ") + MeaningOf(operand) + " ";
      for (int number = 0; number < 32; ++number) {
        const uint32_t bit = 1u << number;
        bool is_listed = false;
        for (const FlagInfo& flag : FlagTable()) {
          is_listed = is_listed || (flag.bit == bit && allowed.find(std::string(" ") + flag.name +
                                                                    " ") != std::string::npos);
        }
        // SQUARE goes with SUBTRACT only.
        const uint32_t flags = bit == kFlagSquare && is_listed ? bit | kFlagSubtract : bit;
        const Fault fault = Check(With(good, "flags", flags));
        const Fault refused{FaultCode::kBadOperand, WordOf(good, "flags")};
        EXPECT_EQ(fault != refused, is_listed) << info.mnemonic << ", bit " << number;
      }
    }
  }
}

TEST(Check, RefusesSizesOfZeroAndBeyond31Bits) {
  for (const Instruction& good : GoodInstructions()) {
    const InstructionInfo& info = InstructionTable()[good.index()];
    for (const OperandInfo& operand : info.operands) {
      const std::string name = operand.name();
      const bool is_size =
          name == "batch" || name == "bytes" || name == "depth" || name == "channels" ||
          name == "groups" || name == "steps" || name == "inputs" || name == "units" ||
          name.ends_with("rows") || name.starts_with("count") || name.starts_with("kept") ||
          name.starts_with("reduced") || name.starts_with("kernel_") ||
          name.starts_with("stride_") || name.starts_with("dilation_") || name.ends_with("put_h") ||
          name.ends_with("put_w") || name.ends_with("put_c");
      if (!is_size) continue;
      const Fault expected{FaultCode::kBadOperand, WordOf(good, name)};
      EXPECT_EQ(Check(With(good, name, 0)), expected) << info.mnemonic << " " << name;
      EXPECT_EQ(Check(With(good, name, 0x80000000)), expected) << info.mnemonic << " " << name;
    }
  }
}

TEST(Check, RefusesValuesOutsideTheirRange) {
  const auto minus = [](uint32_t n) { return 0u - n; };
  std::vector<Breach> breaches = {
      {GoodAdd(), "flags", kFlagDouble},
      {GoodAdd(), "flags", kFlagSquare},  // without SUBTRACT
      {GoodAdd(), "left_shift", 23},
      {GoodPool(), "flags", kFlagSubtract},
      {GoodSum(), "flags", kFlagAverage},
      {GoodReduction<ReduceMaxInstruction>(), "flags", kFlagDouble},
      {GoodSoftmax(), "flags", kFlagDouble},
      {GoodL2(), "flags", kFlagSubtract},
      {GoodResize<ResizeBilinearInstruction>(), "flags", kFlagAverage},
      {GoodFill(), "value", 256},
      {GoodConv(), "flags", 8},
      {GoodConv(), "flags", 0x80000000},
      {GoodDepthwise(), "flags", kFlagAverage},
      {GoodConv(), "groups", 4},  // does not divide input_c
      {GoodConv(), "output_c", 5, FaultCode::kBadOperand, "groups"},
      {GoodDepthwise(), "input_c", 5},
      {GoodDepthwise(), "output_c", 13, FaultCode::kBadOperand, "input_c"},
      {GoodConv(), "kernel_h", 7282, FaultCode::kBadOperand, "kernel_h"},  // 7282 * 3 * 3 > 65536
      {GoodConv(), "kernel_w", 0x7FFFFFFF, FaultCode::kBadOperand, "kernel_h"},
      {GoodDepthwise(), "kernel_h", 21846},
      {GoodPool(), "kernel_h", 32769},
      {GoodConv(), "stride_h", 0x7FFFFFFF, FaultCode::kBadOperand, "output_h"},
      {GoodConv(), "dilation_w", 0x7FFFFFFF, FaultCode::kBadOperand, "output_w"},
      {GoodTranspose(), "flags", kFlagSubtract},
      {GoodLstm(), "inputs", 65537},
      {GoodLstm(), "units", 65537},
      {GoodLstm(), "time_major", 2},
      {GoodLstm(), "cell_integer_bits", 7},
      {GoodLstm(), "cell_clip", 32768},
      {GoodTranspose(), "kernel_h", 3641},                             // 3641 * 3 * 6 > 65536
      {GoodPool(), "pad_top", 2, FaultCode::kBadOperand, "kernel_h"},  // nothing in window 0
      {GoodPool(), "pad_left", 2, FaultCode::kBadOperand, "kernel_w"},
      {GoodPool(), "stride_h", 4, FaultCode::kBadOperand, "kernel_h"},  // nor in window 1
      {GoodPool(), "output_w", 3, FaultCode::kBadOperand, "kernel_w"},
      {GoodCopy(), "count0", 0x7FFFFFFF / 96 + 1, FaultCode::kBadOperand, "bytes"},
      {GoodCopy(), "count4", 0x7FFFFFFF / 96 + 1, FaultCode::kBadOperand, "bytes"},
      {GoodSoftmax(), "min_difference", 1},
      {GoodSoftmax(), "exponent", 24, FaultCode::kBadOperand, "min_difference"},  // 248 * 2^24
      {GoodSoftmax(), "exponent", 127, FaultCode::kBadOperand, "min_difference"},
  };
  for (const Instruction& good : GoodPairs()) {
    breaches.push_back({good, "flags", kFlagWeightsUnsigned});
    breaches.push_back({good, "input1_stride3", 2});
    breaches.push_back({good, "input2_stride3", 0xFFFFFFFF});
  }
  for (const Instruction& good : {Instruction(GoodResize<ResizeBilinearInstruction>()),
                                  Instruction(GoodResize<ResizeNearestNeighborInstruction>())}) {
    breaches.push_back({good, "mode", 3});
    breaches.push_back({good, "input_first", 3});  // of 4 rows
    breaches.push_back({good, "input_first", 0xFFFFFFFF});
    breaches.push_back({good, "output_first", 7});
    breaches.push_back({good, "output_first", 0xFFFFFFFF});
    breaches.push_back({good, "input_first", 2});  // row 1 is needed
    breaches.push_back({good, "output_first", 0, FaultCode::kBadOperand, "input_first"});
    breaches.push_back({good, "output_rows", 5, FaultCode::kBadOperand, "input_rows"});
  }
  // Rows 2 and 3 lie at 1 and 1.5, which is between two rows or in one.
  breaches.push_back({GoodResize<ResizeBilinearInstruction>(), "input_rows", 1});
  for (const Instruction& good : {Instruction(GoodConv()), Instruction(GoodDepthwise()),
                                  Instruction(GoodTranspose()), Instruction(GoodPool())}) {
    breaches.push_back({good, "pad_top", 65536});
    breaches.push_back({good, "pad_left", 0xFFFFFFFF});
  }
  for (const Instruction& good : GoodInstructions()) {
    const InstructionInfo& info = InstructionTable()[good.index()];
    for (const OperandInfo& operand : info.operands) {
      const std::string name = operand.name();
      if (name.ends_with("zero_point")) {
        breaches.push_back({good, operand.name(), 128});
        breaches.push_back({good, operand.name(), minus(129)});
      } else if (name == "clamp_min") {
        breaches.push_back({good, operand.name(), minus(129)});
        breaches.push_back(
            {With(good, "clamp_max", 5), operand.name(), 6, FaultCode::kBadOperand, "clamp_max"});
      } else if (name == "clamp_max") {
        breaches.push_back({good, operand.name(), 128});
      } else if (name.ends_with("multiplier")) {
        breaches.push_back({good, operand.name(), minus(1)});
      } else if (name.ends_with("exponent")) {
        breaches.push_back({good, operand.name(), 128});
        breaches.push_back({good, operand.name(), minus(32)});
      }
    }
  }
  ExpectBreaches(breaches);
}

TEST(Check, TakesTheRangeOfBytesFromTheFlags) {
  for (Instruction good :
       {Instruction(GoodConv()), Instruction(GoodDepthwise()), Instruction(GoodTranspose()),
        Instruction(GoodAdd()), Instruction(GoodSum()), Instruction(GoodMultiply()),
        Instruction(GoodPrelu())}) {
    good = With(With(good, "flags", kFlagInputUnsigned), "clamp_min", 0);
    EXPECT_EQ(Check(With(good, "clamp_max", 255)), Fault{});
    EXPECT_EQ(Check(With(good, "output_zero_point", 255)), Fault{});
    EXPECT_EQ(Check(With(good, "output_zero_point", 0xFFFFFFFF)),
              (Fault{FaultCode::kBadOperand, WordOf(good, "output_zero_point")}));
  }
  const Instruction conv = With(GoodConv(), "flags", kFlagWeightsUnsigned);
  EXPECT_EQ(Check(With(conv, "weight_zero_point", 255)), Fault{});
  ExpectBreaches({{conv, "input_zero_point", 255}});
}

// Every address, moved so that its access ends one byte behind the memory, and just inside it.
TEST(Check, RefusesAccessesBeyondTheMemory) {
  const std::vector<std::pair<const char*, uint32_t>> conv_sizes = {{"input_address", 120},
                                                                    {"weight_address", 108},
                                                                    {"channel_address", 64},
                                                                    {"output_address", 80}};
  const std::vector<std::pair<const char*, uint32_t>> depthwise_sizes = {{"input_address", 120},
                                                                         {"weight_address", 108},
                                                                         {"channel_address", 192},
                                                                         {"output_address", 240}};
  struct Case {
    Instruction good;
    std::vector<std::pair<const char*, uint32_t>> sizes;
  };
  std::vector<Case> cases = {
      {InputInstruction{.bytes = 4}, {{"output_address", 4}}},
      {OutputInstruction{.bytes = 4}, {{"input_address", 4}}},
      {ParametersInstruction{.bytes = 4}, {{"output_address", 4}}},
      {GoodConv(), conv_sizes},
      {GoodDepthwise(), depthwise_sizes},
      {GoodTranspose(),
       {{"input_address", 120},
        {"weight_address", 216},
        {"channel_address", 64},
        {"output_address", 320}}},
      {GoodLstm(),
       {{"input_address", 30},
        {"weight_address", 144},
        {"channel_address", 512},
        {"hidden_address", 8},
        {"cell_address", 16},
        {"output_address", 24}}},
      {GoodPool(), {{"input_address", 48}, {"output_address", 12}}},
      {GoodSum(), {{"input_address", 120}, {"output_address", 15}}},
      {GoodTable(), {{"input_address", 100}, {"output_address", 100}, {"table_address", 256}}},
      {GoodCopy(), {{"input_address", 166}, {"output_address", 192}}},
      {GoodFill(), {{"output_address", 10}}},
      {GoodReduction<ReduceMaxInstruction>(), {{"input_address", 120}, {"output_address", 15}}},
      {GoodReduction<ReduceMinInstruction>(), {{"input_address", 120}, {"output_address", 15}}},
      {GoodSoftmax(), {{"input_address", 100}, {"output_address", 100}}},
      {GoodL2(), {{"input_address", 100}, {"output_address", 100}}},
      {GoodResize<ResizeBilinearInstruction>(), {{"input_address", 60}, {"output_address", 84}}},
      {GoodResize<ResizeNearestNeighborInstruction>(),
       {{"input_address", 60}, {"output_address", 84}}},
  };
  for (const Instruction& good : GoodPairs()) {
    cases.push_back(
        {good, {{"input1_address", 100}, {"input2_address", 50}, {"output_address", 100}}});
  }
  for (const Case& test : cases) {
    for (const auto& [operand, size] : test.sizes) {
      const uint32_t last = static_cast<uint32_t>(kMemory) - size;
      EXPECT_EQ(Check(With(test.good, operand, last)), Fault{})
          << Mnemonic(test.good) << " " << operand;
      const Fault expected{FaultCode::kBadAddress, WordOf(test.good, operand)};
      EXPECT_EQ(Check(With(test.good, operand, last + 1)), expected);
      EXPECT_EQ(Check(With(test.good, operand, 0x7FFFFFFF)), expected);
      // In a parameter segment that begins where the memory ends.
      const Segments beyond{.parameter_base = static_cast<uint32_t>(kMemory)};
      EXPECT_EQ(CheckInstruction(With(test.good, operand, kParameterSegment), beyond, kMemory),
                expected);
      const Segments high{.parameter_base = 0xFFFFFFFF};
      EXPECT_EQ(CheckInstruction(With(test.good, operand, 0xFFFFFFFF), high, kMemory), expected);
    }
  }
}

// Only elements that count must fit when they are shifted.
TEST(Check, BoundsTheDifferencesOfSoftmax) {
  EXPECT_EQ(Check(With(GoodSoftmax(), "min_difference", 0u - 0x80000000u)), Fault{});  // 255 * 2^23
  const Instruction wide = With(GoodSoftmax(), "min_difference", 0u - 128);
  EXPECT_EQ(Check(With(wide, "exponent", 24)), Fault{});
  EXPECT_EQ(Check(With(wide, "exponent", 25)).code, FaultCode::kBadOperand);
  EXPECT_EQ(Check(With(With(wide, "min_difference", 0), "exponent", 127)), Fault{});
}

TEST(Check, CountsSizesInFullWidth) {
  // Products of 2^32 and 2^64 and more would pass if they wrapped.
  ExpectBreaches({
      {GoodConv(), "batch", 0x40000000, FaultCode::kBadAddress, "input_address"},
      {GoodSum(), "reduced1", 0x7FFFFFFF, FaultCode::kBadAddress, "input_address"},
      {GoodSoftmax(), "depth", 0x7FFFFFFF, FaultCode::kBadAddress, "input_address"},
      {GoodL2(), "rows", 0x7FFFFFFF, FaultCode::kBadAddress, "input_address"},
      {GoodResize<ResizeBilinearInstruction>(), "channels", 0x7FFFFFFF, FaultCode::kBadAddress,
       "input_address"},
      {GoodTranspose(), "batch", 0x40000000, FaultCode::kBadAddress, "input_address"},
      {GoodLstm(), "steps", 0x7FFFFFFF, FaultCode::kBadAddress, "input_address"},
      {GoodLstm(), "units", 65536, FaultCode::kBadAddress, "weight_address"},
      {GoodCopy(), "input_stride0", 0xFFFFFFFF, FaultCode::kBadAddress, "input_address"},
      {GoodCopy(), "output_stride2", 0xFFFFFFFF, FaultCode::kBadAddress, "output_address"},
      {GoodCopy(), "input_stride4", 0xFFFFFFFF, FaultCode::kBadAddress, "input_address"},
      {GoodAdd(), "input1_stride0", 0xFFFFFFFF, FaultCode::kBadAddress, "input1_address"},
      {GoodPrelu(), "input2_stride2", 0xFFFFFFFF, FaultCode::kBadAddress, "input2_address"},
  });
  MaximumInstruction pair = GoodPair<MaximumInstruction>();
  pair.count0 = pair.count1 = pair.count2 = pair.count3 = 0x40000000;  // 2^120 bytes
  EXPECT_EQ(Check(pair).code, FaultCode::kBadAddress);
  pair.input1_stride0 = pair.input1_stride2 = pair.input1_stride3 = 0;
  pair.input2_stride0 = pair.input2_stride3 = 0;  // of one element each
  EXPECT_EQ(Check(pair), (Fault{FaultCode::kBadAddress, WordOf(pair, "output_address")}));
  Pool2DInstruction pool = GoodPool();
  pool.batch = pool.input_h = pool.input_w = pool.channels = 0x40000000;  // 2^120 bytes
  EXPECT_EQ(Check(pool), (Fault{FaultCode::kBadAddress, WordOf(pool, "input_address")}));
}

TEST(Check, RefusesOutputsThatOverlapInputs) {
  ExpectBreaches({
      {GoodConv(), "output_address", 119, FaultCode::kOverlap, "input_address"},
      {GoodConv(), "output_address", 921, FaultCode::kOverlap, "weight_address"},
      {GoodConv(), "output_address", 1921, FaultCode::kOverlap, "channel_address"},
      {GoodConv(), "output_address", 2063, FaultCode::kOverlap, "channel_address"},
      {GoodDepthwise(), "output_address", 0, FaultCode::kOverlap, "input_address"},
      {GoodTranspose(), "output_address", 119, FaultCode::kOverlap, "input_address"},
      {GoodTranspose(), "output_address", 1215, FaultCode::kOverlap, "weight_address"},
      {GoodTranspose(), "output_address", 2063, FaultCode::kOverlap, "channel_address"},
      {GoodLstm(), "output_address", 29, FaultCode::kOverlap, "input_address"},
      {GoodLstm(), "output_address", 1143, FaultCode::kOverlap, "weight_address"},
      {GoodLstm(), "output_address", 2511, FaultCode::kOverlap, "channel_address"},
      {GoodLstm(), "output_address", 4007, FaultCode::kOverlap, "hidden_address"},
      {GoodLstm(), "output_address", 5015, FaultCode::kOverlap, "cell_address"},
      {GoodLstm(), "hidden_address", 29, FaultCode::kOverlap, "input_address"},
      {GoodLstm(), "hidden_address", 2511, FaultCode::kOverlap, "channel_address"},
      {GoodLstm(), "cell_address", 1143, FaultCode::kOverlap, "weight_address"},
      {GoodLstm(), "cell_address", 4007, FaultCode::kOverlap, "hidden_address"},
      {GoodAdd(), "output_address", 1, FaultCode::kOverlap, "input1_address"},
      {GoodAdd(), "output_address", 149, FaultCode::kOverlap, "input2_address"},
      {GoodPrelu(), "output_address", 100, FaultCode::kOverlap, "input2_address"},  // it repeats
      {GoodPool(), "output_address", 47, FaultCode::kOverlap, "input_address"},
      {GoodSum(), "output_address", 119, FaultCode::kOverlap, "input_address"},
      {GoodSoftmax(), "output_address", 0, FaultCode::kOverlap, "input_address"},
      {GoodL2(), "output_address", 0, FaultCode::kOverlap, "input_address"},
      {GoodResize<ResizeBilinearInstruction>(), "output_address", 59, FaultCode::kOverlap,
       "input_address"},
      {GoodTable(), "output_address", 1, FaultCode::kOverlap, "input_address"},
      {GoodTable(), "output_address", 200, FaultCode::kOverlap, "table_address"},
      {GoodCopy(), "output_address", 165, FaultCode::kOverlap, "input_address"},
  });
  // Between the runs of the source is still inside its span.
  EXPECT_EQ(Check(With(With(GoodCopy(), "output_stride0", 0), "output_address", 80)),
            (Fault{FaultCode::kOverlap, 1}));
}

TEST(Check, LetsOutputsTouchInputs) {
  EXPECT_EQ(Check(With(GoodConv(), "output_address", 120)), Fault{});
  EXPECT_EQ(Check(With(GoodConv(), "output_address", 920)), Fault{});
  EXPECT_EQ(Check(With(GoodCopy(), "output_address", 166)), Fault{});
  EXPECT_EQ(Check(With(GoodAdd(), "output_address", 150)), Fault{});
}

TEST(Check, LetsTwoTensorsWriteOntoInputsOfTheOutputsLayout) {
  for (const Instruction& good : GoodPairs()) {
    EXPECT_EQ(Check(With(good, "output_address", 0)), Fault{});
    // Both inputs the same tensor.
    Instruction twice = With(With(good, "input2_address", 0), "input2_stride0", 50);
    twice = With(twice, "input2_stride2", 10);
    EXPECT_EQ(Check(With(twice, "output_address", 0)), Fault{});
    // The stride of a loop of one step does not count; any other that differs does.
    EXPECT_EQ(Check(With(With(good, "output_address", 0), "input1_stride1", 7)), Fault{});
    for (const char* stride : {"input1_stride0", "input1_stride2"}) {
      EXPECT_EQ(Check(With(With(good, "output_address", 0), stride, 9)),
                (Fault{FaultCode::kOverlap, WordOf(good, "input1_address")}));
    }
  }
}

TEST(Check, LetsTableWriteOntoItsInput) {
  EXPECT_EQ(Check(With(GoodTable(), "output_address", 0)), Fault{});
  TableInstruction onto_table = GoodTable();
  onto_table.count = 256;
  onto_table.input_address = 1000;
  onto_table.output_address = onto_table.table_address;
  EXPECT_EQ(Check(onto_table), (Fault{FaultCode::kOverlap, WordOf(onto_table, "table_address")}));
}

TEST(Check, SeesOverlapsAcrossSegments) {
  const Segments same{.parameter_base = 500, .activation_base = 500};
  EXPECT_EQ(CheckInstruction(With(GoodSum(), "output_address", kParameterSegment), same, kMemory),
            (Fault{FaultCode::kOverlap, WordOf(GoodSum(), "input_address")}));
}

TEST(Check, ReportsOperandsBeforeAddressesBeforeOverlaps) {
  const Instruction overlapping = With(GoodSum(), "output_address", 0);
  const Instruction beyond = With(overlapping, "input_address", 0x7FFFFFFF);
  EXPECT_EQ(Check(beyond).code, FaultCode::kBadAddress);
  EXPECT_EQ(Check(With(beyond, "clamp_max", 300)).code, FaultCode::kBadOperand);
}

// What may be chained is tested with MayChain (memory_access_test.cc).
TEST(CheckChain, NamesTheFlags) {
  AddInstruction add = GoodAdd();
  add.input1_address = GoodConv().output_address;
  add.count0 = add.count1 = add.count2 = 1;
  add.count3 = 4 * 5 * 4;
  add.input1_stride0 = add.input1_stride2 = add.input2_stride0 = 0;
  add.output_address = 5000;
  add.input2_address = 6000;
  const auto check = [&](const Instruction& before) { return CheckChain(&before, add, {}); };
  EXPECT_EQ(check(EndInstruction{}), Fault{}) << "it is not chained";
  EXPECT_EQ(CheckChain(nullptr, add, {}), Fault{});
  for (const uint32_t flags : {0u, kFlagSubtract, kFlagSubtract | kFlagSquare}) {
    add.flags = flags | kFlagChained;
    EXPECT_EQ(Check(add), Fault{});
    EXPECT_EQ(check(GoodConv()), Fault{});
  }
  const Fault refused{FaultCode::kBadOperand, WordOf(add, "flags")};
  EXPECT_EQ(CheckChain(nullptr, add, {}), refused);
  EXPECT_EQ(check(EndInstruction{}), refused);
  EXPECT_EQ(check(GoodDepthwise()), refused);
  add.output_address = GoodConv().input_address;
  EXPECT_EQ(check(GoodConv()), refused);
}

TEST(CheckChannelRecords, NamesTheFirstBadChannel) {
  Bytes records(5 * kChannelRecordBytes);
  const auto check = [&](uint32_t flags, size_t offset, auto value) {
    Bytes bad = records;
    StoreLittleEndian(&bad[3 * kChannelRecordBytes + offset], value);
    return CheckChannelRecords(bad, flags);
  };
  const Fault ok{}, bad{FaultCode::kBadOperand, 3};
  EXPECT_EQ(CheckChannelRecords(records, 0), ok);
  EXPECT_EQ(check(0, 0, INT32_MIN), ok);  // any bias
  EXPECT_EQ(check(0, 4, INT32_MAX), ok);
  EXPECT_EQ(check(0, 4, int32_t{-1}), bad);
  EXPECT_EQ(check(0, 8, int32_t{127}), ok);
  EXPECT_EQ(check(0, 8, int32_t{128}), bad);
  EXPECT_EQ(check(0, 8, int32_t{-31}), ok);
  EXPECT_EQ(check(0, 8, int32_t{-32}), bad);
  EXPECT_EQ(check(0, 12, uint32_t{1}), bad);
  EXPECT_EQ(check(kFlagDouble, 4, int32_t{1}), bad);
  EXPECT_EQ(check(kFlagDouble, 8, std::numeric_limits<double>::max()), ok);
  EXPECT_EQ(check(kFlagDouble, 8, std::numeric_limits<double>::infinity()), bad);
  EXPECT_EQ(check(kFlagDouble, 8, std::numeric_limits<double>::quiet_NaN()), bad);
}

}  // namespace
}  // namespace atollrt
