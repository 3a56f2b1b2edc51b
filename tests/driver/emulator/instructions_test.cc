// SPDX-License-Identifier: Apache-2.0
//
// Each instruction, as a program through the core, against the formulas of docs/isa.md §3 written
// out here once more.
#include <algorithm>
#include <cmath>

#include "driver/emulator/isa_arithmetic.h"
#include "tests/driver/emulator/emulated_program.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/assembled.h"
#include "tests/support/rng.h"

namespace atollrt {

using isa::Clamped;
using isa::Mbqm;
using isa::Value;
using isa::Wrap;

namespace {

constexpr Segments kSegments{.parameter_base = 0x8000, .activation_base = 0};

// Convolutions by definition; depthwise ones are described by `weight_index` and `channel_of`.
template <typename T, typename WeightIndex>
Bytes ExpectedConvolution(const T& i, uint32_t groups, uint32_t group_channels,
                          const WeightIndex& weight_index, const Bytes& input, const Bytes& weights,
                          const Bytes& records) {
  const bool input_unsigned = (i.flags & kFlagInputUnsigned) != 0;
  const bool weights_unsigned = (i.flags & kFlagWeightsUnsigned) != 0;
  Bytes output;
  for (uint32_t n = 0; n < i.batch; ++n) {
    for (uint32_t y = 0; y < i.output_h; ++y) {
      for (uint32_t x = 0; x < i.output_w; ++x) {
        for (uint32_t c = 0; c < i.output_c; ++c) {
          const uint32_t first = c / (i.output_c / groups) * group_channels;
          int64_t acc = 0;
          for (uint32_t ky = 0; ky < i.kernel_h; ++ky) {
            for (uint32_t kx = 0; kx < i.kernel_w; ++kx) {
              const int64_t iy = int64_t{y} * i.stride_h - i.pad_top + ky * i.dilation_h;
              const int64_t ix = int64_t{x} * i.stride_w - i.pad_left + kx * i.dilation_w;
              if (iy < 0 || iy >= i.input_h || ix < 0 || ix >= i.input_w) continue;
              for (uint32_t k = 0; k < group_channels; ++k) {
                const uint8_t in =
                    input[((n * i.input_h + iy) * i.input_w + ix) * i.input_c + first + k];
                acc += (Value(in, input_unsigned) - i.input_zero_point) *
                       (Value(weights[weight_index(c, ky, kx, k)], weights_unsigned) -
                        i.weight_zero_point);
              }
            }
          }
          output.push_back(isa::Activate(
              i, isa::ReadChannelRecord(std::span(records).subspan(c * kChannelRecordBytes)), acc));
        }
      }
    }
  }
  return output;
}

Bytes RandomRecords(Rng& rng, uint32_t channels, uint32_t flags) {
  Bytes records(channels * kChannelRecordBytes);
  for (uint32_t c = 0; c < channels; ++c) {
    uint8_t* record = &records[c * kChannelRecordBytes];
    StoreLittleEndian<int32_t>(record, rng.Int32(-20000, 20000));
    if ((flags & kFlagDouble) != 0) {
      StoreLittleEndian<double>(record + 8, rng.Real() * 0.01);
    } else {
      StoreLittleEndian<int32_t>(record + 4, rng.OneIn(10) ? 0 : rng.Int32(1 << 30, INT32_MAX));
      StoreLittleEndian<int32_t>(record + 8,
                                 rng.OneIn(10) ? rng.Int32(-31, 127) : rng.Int32(-9, -5));
    }
  }
  return records;
}

template <typename T>
void RandomGeometry(Rng& rng, T& i) {
  i.batch = static_cast<uint32_t>(rng.Int(1, 2));
  for (uint32_t* size : {&i.input_h, &i.input_w, &i.output_h, &i.output_w}) {
    *size = static_cast<uint32_t>(rng.Int(1, 6));
  }
  for (uint32_t* size : {&i.kernel_h, &i.kernel_w, &i.stride_h, &i.stride_w}) {
    *size = static_cast<uint32_t>(rng.Int(1, 3));
  }
  if constexpr (requires { i.dilation_h; }) {
    i.dilation_h = static_cast<uint32_t>(rng.Int(1, 3));
    i.dilation_w = static_cast<uint32_t>(rng.Int(1, 3));
  }
  i.pad_top = static_cast<uint32_t>(rng.Int(0, 3));
  i.pad_left = static_cast<uint32_t>(rng.Int(0, 3));
  for (const uint32_t flag : {kFlagInputUnsigned, kFlagWeightsUnsigned, kFlagDouble}) {
    if (rng.OneIn(2)) i.flags |= flag;
  }
  const int32_t low = (i.flags & kFlagInputUnsigned) != 0 ? 0 : -128;
  const int32_t weight_low = (i.flags & kFlagWeightsUnsigned) != 0 ? 0 : -128;
  i.input_zero_point = rng.Int32(low, low + 255);
  i.weight_zero_point = rng.Int32(weight_low, weight_low + 255);
  i.output_zero_point = rng.Int32(low, low + 255);
  i.clamp_min = rng.Int32(low, low + 30);
  i.clamp_max = rng.Int32(low + 200, low + 255);
}

// Input at 0, output at 0x4000, weights and records behind each other in the parameter segment.
template <typename T>
Bytes RunConvolution(Core& core, T i, const Bytes& input, const Bytes& weights,
                     const Bytes& records, const Segments& segments = kSegments) {
  const uint32_t weight_bytes = static_cast<uint32_t>(weights.size());
  i.input_address = 0;
  i.output_address = 0x4000;
  i.weight_address = kParameterSegment;
  i.channel_address = kParameterSegment | weight_bytes;
  const uint32_t output_bytes = i.batch * i.output_h * i.output_w * i.output_c;
  Bytes parameters = weights;
  Append(parameters, records);
  const RunResult result =
      RunProgram(core,
                 {InputInstruction{.bytes = static_cast<uint32_t>(input.size())},
                  ParametersInstruction{.output_address = kParameterSegment,
                                        .bytes = static_cast<uint32_t>(parameters.size())},
                  i, OutputInstruction{.input_address = 0x4000, .bytes = output_bytes}},
                 {.inputs = input, .parameters = parameters, .segments = segments});
  EXPECT_EQ(result.event.kind, EventKind::kCompleted) << FaultCodeName(result.event.fault);
  return result.outputs;
}

TEST(Instructions, Conv2DIsTheSumOfProducts) {
  Rng rng(TestSeed(11));
  const auto core = MakeCore({.profile = SmallProfile(), .features = *DetectCpuFeatures()});
  for (int round = 0; round < 300; ++round) {
    Conv2DInstruction i;
    RandomGeometry(rng, i);
    i.groups = static_cast<uint32_t>(rng.Int(1, 3));
    const uint32_t group_channels = static_cast<uint32_t>(rng.Int(1, rng.OneIn(5) ? 70 : 9));
    i.input_c = i.groups * group_channels;
    i.output_c = i.groups * static_cast<uint32_t>(rng.Int(1, 20));
    const Bytes input = RandomBytes(rng, i.batch * i.input_h * i.input_w * i.input_c);
    const Bytes weights = RandomBytes(rng, i.output_c * i.kernel_h * i.kernel_w * group_channels);
    const Bytes records = RandomRecords(rng, i.output_c, i.flags);
    const Bytes expected = ExpectedConvolution(
        i, i.groups, group_channels,
        [&](uint32_t c, uint32_t ky, uint32_t kx, uint32_t k) {
          return ((c * i.kernel_h + ky) * i.kernel_w + kx) * group_channels + k;
        },
        input, weights, records);
    ASSERT_EQ(RunConvolution(*core, i, input, weights, records), expected)
        << "round " << round << ": " << Disassemble(i);
  }
}

TEST(Instructions, DepthwiseConv2DFiltersEachChannelByItself) {
  Rng rng(TestSeed(12));
  const auto core = MakeCore({.profile = SmallProfile(), .features = *DetectCpuFeatures()});
  for (int round = 0; round < 300; ++round) {
    DepthwiseConv2DInstruction i;
    RandomGeometry(rng, i);
    i.input_c = static_cast<uint32_t>(rng.Int(1, rng.OneIn(5) ? 70 : 9));
    i.output_c = i.input_c * static_cast<uint32_t>(rng.Int(1, 3));
    const Bytes input = RandomBytes(rng, i.batch * i.input_h * i.input_w * i.input_c);
    const Bytes weights = RandomBytes(rng, i.output_c * i.kernel_h * i.kernel_w);
    const Bytes records = RandomRecords(rng, i.output_c, i.flags);
    const Bytes expected = ExpectedConvolution(
        i, i.input_c, 1,
        [&](uint32_t c, uint32_t ky, uint32_t kx, uint32_t) {
          return (ky * i.kernel_w + kx) * i.output_c + c;
        },
        input, weights, records);
    ASSERT_EQ(RunConvolution(*core, i, input, weights, records), expected)
        << "round " << round << ": " << Disassemble(i);
  }
}

TransposeConv2DInstruction RandomTransposeConv2D(Rng& rng) {
  TransposeConv2DInstruction i;
  RandomGeometry(rng, i);
  if (rng.OneIn(20)) i.pad_left = static_cast<uint32_t>(rng.Int(0, 65535));
  i.input_c = static_cast<uint32_t>(rng.Int(1, rng.OneIn(5) ? 70 : 9));
  i.output_c = static_cast<uint32_t>(rng.Int(1, 20));
  return i;
}

Bytes ExpectedTransposeConv2D(const TransposeConv2DInstruction& i, const Bytes& input,
                              const Bytes& weights, const Bytes& records) {
  const bool input_unsigned = (i.flags & kFlagInputUnsigned) != 0;
  const bool weights_unsigned = (i.flags & kFlagWeightsUnsigned) != 0;
  std::vector<int64_t> sums(i.batch * i.output_h * i.output_w * i.output_c);
  for (uint32_t n = 0; n < i.batch; ++n) {
    for (uint32_t iy = 0; iy < i.input_h; ++iy) {
      for (uint32_t ix = 0; ix < i.input_w; ++ix) {
        for (uint32_t ky = 0; ky < i.kernel_h; ++ky) {
          for (uint32_t kx = 0; kx < i.kernel_w; ++kx) {
            const int64_t y = int64_t{iy} * i.stride_h - i.pad_top + ky;
            const int64_t x = int64_t{ix} * i.stride_w - i.pad_left + kx;
            if (y < 0 || y >= i.output_h || x < 0 || x >= i.output_w) continue;
            for (uint32_t c = 0; c < i.output_c; ++c) {
              for (uint32_t k = 0; k < i.input_c; ++k) {
                const uint8_t in = input[((n * i.input_h + iy) * i.input_w + ix) * i.input_c + k];
                const uint8_t weight =
                    weights[((c * i.kernel_h + ky) * i.kernel_w + kx) * i.input_c + k];
                sums[((n * i.output_h + y) * i.output_w + x) * i.output_c + c] +=
                    (Value(in, input_unsigned) - i.input_zero_point) *
                    (Value(weight, weights_unsigned) - i.weight_zero_point);
              }
            }
          }
        }
      }
    }
  }
  Bytes output;
  for (size_t at = 0; at < sums.size(); ++at) {
    output.push_back(isa::Activate(
        i,
        isa::ReadChannelRecord(std::span(records).subspan(at % i.output_c * kChannelRecordBytes)),
        sums[at]));
  }
  return output;
}

TEST(Instructions, TransposeConv2DScattersProducts) {
  Rng rng(TestSeed(19));
  const auto direct = MakeCore({.profile = SmallProfile(), .features = *DetectCpuFeatures()});
  DeviceProfile profile = SmallProfile();
  profile.array_rows = 8;
  profile.array_columns = 4;
  const auto small = MakeCore({.profile = profile, .features = *DetectCpuFeatures()});
  const auto stepped = MakeCore({.profile = profile, .face = Face::kStepped});
  for (int round = 0; round < 300; ++round) {
    const TransposeConv2DInstruction i = RandomTransposeConv2D(rng);
    SCOPED_TRACE("round " + std::to_string(round) + ": " + Disassemble(i));
    const Bytes input = RandomBytes(rng, i.batch * i.input_h * i.input_w * i.input_c);
    const Bytes weights = RandomBytes(rng, i.output_c * i.kernel_h * i.kernel_w * i.input_c);
    const Bytes records = RandomRecords(rng, i.output_c, i.flags);
    const Bytes expected = ExpectedTransposeConv2D(i, input, weights, records);
    ASSERT_EQ(RunConvolution(*direct, i, input, weights, records), expected);
    if (round % 4 != 0) continue;
    ASSERT_EQ(RunConvolution(*small, i, input, weights, records), expected);
    ASSERT_EQ(RunConvolution(*stepped, i, input, weights, records), expected);
    ASSERT_EQ(ReadRegister(*small, Register::kCycles, RegisterWidth::k64),
              ReadRegister(*stepped, Register::kCycles, RegisterWidth::k64));
  }
  EXPECT_EQ(stepped->direct_array().packings(), 0u);
}

// More phases than the fast kernel takes, and strides beyond any image.
TEST(Instructions, TransposeConv2DTakesStridesOfAnySize) {
  Rng rng(TestSeed(20));
  const auto core = MakeCore({.profile = SmallProfile(), .features = *DetectCpuFeatures()});
  for (const uint32_t stride : {40u, 1u << 20, 0x7FFFFFFEu}) {
    const TransposeConv2DInstruction i{.batch = 1,
                                       .input_h = 2,
                                       .input_w = 2,
                                       .input_c = 3,
                                       .output_h = 42,
                                       .output_w = 42,
                                       .output_c = 2,
                                       .kernel_h = 2,
                                       .kernel_w = 1,
                                       .stride_h = stride,
                                       .stride_w = stride,
                                       .pad_top = 1,
                                       .clamp_min = -128,
                                       .clamp_max = 127};
    const Bytes input = RandomBytes(rng, 12);
    const Bytes weights = RandomBytes(rng, 12);
    const Bytes records = RandomRecords(rng, 2, 0);
    EXPECT_EQ(RunConvolution(*core, i, input, weights, records),
              ExpectedTransposeConv2D(i, input, weights, records))
        << stride;
  }
  EXPECT_EQ(core->direct_array().packings(), 0u);
}

TEST(Instructions, GiveTheSameBytesOnEveryArray) {
  Rng rng(TestSeed(13));
  Conv2DInstruction i = Assembled<Conv2DInstruction>(
      "batch=1, input_h=5, input_w=6, input_c=40, output_h=5, output_w=6, output_c=70, "
      "kernel_h=3, kernel_w=3, stride_h=1, stride_w=1, dilation_h=1, dilation_w=1, pad_top=1, "
      "pad_left=1, groups=1, clamp_min=-128, clamp_max=127");
  const Bytes input = RandomBytes(rng, 5 * 6 * 40);
  const Bytes weights = RandomBytes(rng, 70 * 9 * 40);
  const Bytes records = RandomRecords(rng, 70, 0);
  Bytes first;
  for (const char* name : {"usb3", "32x32", "128x128", "1mib"}) {
    const auto core = MakeCore({.profile = *FindDeviceProfile(name)});
    const Bytes output = RunConvolution(*core, i, input, weights, records);
    if (first.empty()) first = output;
    EXPECT_EQ(output, first) << name;
  }
}

TEST(Instructions, TakeStridesAndDilationsOfAnySize) {
  Rng rng(TestSeed(17));
  const auto core = MakeCore({.profile = SmallProfile(), .features = *DetectCpuFeatures()});
  for (const uint32_t far : {1000u, 1u << 20, 1u << 30, 0x7FFFFFFEu}) {
    DepthwiseConv2DInstruction i{.batch = 1,
                                 .input_h = 2,
                                 .input_w = 2,
                                 .input_c = 3,
                                 .output_h = 2,
                                 .output_w = 2,
                                 .output_c = 3,
                                 .kernel_h = 1,
                                 .kernel_w = 1,
                                 .stride_h = far,
                                 .stride_w = far,
                                 .dilation_h = 1,
                                 .dilation_w = 1,
                                 .clamp_min = -128,
                                 .clamp_max = 127};
    const Bytes input = RandomBytes(rng, 12);
    const Bytes weights = RandomBytes(rng, 3);
    const Bytes records = RandomRecords(rng, 3, 0);
    const auto weight = [](uint32_t c, uint32_t, uint32_t, uint32_t) { return c; };
    EXPECT_EQ(RunConvolution(*core, i, input, weights, records),
              ExpectedConvolution(i, 3, 1, weight, input, weights, records))
        << far;
  }
}

// What filters are prepared to counts, whatever it consists of: a line of padding, here, is as wide
// as the image and as deep as the output. It has less than what a Buffer maps instead of
// allocating, which the meter would not see.
TEST(Instructions, TakeHostMemoryInProportionToTheDevices) {
  constexpr uint32_t kFilters = 400;
  DeviceProfile profile = SmallProfile();
  profile.memory_bytes = 1 << 20;
  profile.program_memory_bytes = (kFilters + 3) * kInstructionBytes;
  DepthwiseConv2DInstruction wide{.batch = 1,
                                  .input_h = 1,
                                  .input_w = 100'000,
                                  .input_c = 2,
                                  .output_h = 1,
                                  .output_w = 49'999,
                                  .output_c = 2,
                                  .kernel_h = 1,
                                  .kernel_w = 3,
                                  .stride_h = 4,  // one line at a time
                                  .stride_w = 2,
                                  .dilation_h = 1,
                                  .dilation_w = 1,
                                  .clamp_min = -128,
                                  .clamp_max = 127};
  DepthwiseConv2DInstruction deep = wide;
  deep.input_w = 1 << 16;
  deep.output_w = 1;
  deep.output_c = 3'500;
  for (DepthwiseConv2DInstruction i : {wide, deep}) {
    i.weight_address = static_cast<uint32_t>(AlignUp(i.input_w * i.input_c, 16));
    i.channel_address =
        static_cast<uint32_t>(AlignUp(i.weight_address + 3 * i.output_c + kFilters, 16));
    i.output_address = i.channel_address + i.output_c * static_cast<uint32_t>(kChannelRecordBytes);
    Bytes memory(i.output_address, 1);
    for (uint32_t c = 0; c < i.output_c; ++c) {
      uint8_t* const record = &memory[i.channel_address + c * kChannelRecordBytes];
      StoreLittleEndian<int32_t>(record, 0);
      StoreLittleEndian<int32_t>(record + 4, 1 << 30);
      StoreLittleEndian<int32_t>(record + 8, 1);
      StoreLittleEndian<int32_t>(record + 12, 0);
    }
    const uint32_t output_bytes = i.output_w * i.output_c;
    std::vector<Instruction> program = {
        InputInstruction{.bytes = static_cast<uint32_t>(memory.size())}};
    for (uint32_t k = 0; k < kFilters; ++k) {
      program.push_back(i);
      ++i.weight_address;
    }
    program.push_back(OutputInstruction{.input_address = i.output_address, .bytes = output_bytes});
    const AllocationMeter meter;
    const auto core = MakeCore({.profile = profile, .features = *DetectCpuFeatures()});
    EXPECT_EQ(RunProgram(*core, program, {.inputs = memory}).outputs, Bytes(output_bytes, 3));
    EXPECT_LT(meter.peak_bytes(), 32 << 20);
  }
}

// The direct face against the stepped one: bytes and, through the event, cycles.
TEST(Instructions, GiveTheSameBytesAndCyclesOnBothFaces) {
  Rng rng(TestSeed(18));
  DeviceProfile profile = SmallProfile();
  profile.array_rows = 8;
  profile.array_columns = 4;
  const auto direct = MakeCore({.profile = profile, .features = *DetectCpuFeatures()});
  const auto stepped = MakeCore({.profile = profile, .face = Face::kStepped});
  for (int round = 0; round < 60; ++round) {
    Conv2DInstruction i;
    RandomGeometry(rng, i);
    i.groups = static_cast<uint32_t>(rng.Int(1, 2));
    i.input_c = i.groups * static_cast<uint32_t>(rng.Int(1, 9));
    i.output_c = i.groups * static_cast<uint32_t>(rng.Int(1, 9));
    const Bytes input = RandomBytes(rng, i.batch * i.input_h * i.input_w * i.input_c);
    const Bytes weights =
        RandomBytes(rng, i.output_c * i.kernel_h * i.kernel_w * (i.input_c / i.groups));
    const Bytes records = RandomRecords(rng, i.output_c, i.flags);
    ASSERT_EQ(RunConvolution(*direct, i, input, weights, records),
              RunConvolution(*stepped, i, input, weights, records))
        << "round " << round << ": " << Disassemble(i);
    ASSERT_EQ(ReadRegister(*direct, Register::kCycles, RegisterWidth::k64),
              ReadRegister(*stepped, Register::kCycles, RegisterWidth::k64))
        << "round " << round << ": " << Disassemble(i);
  }
  EXPECT_EQ(stepped->direct_array().packings(), 0u);
}

TEST(Instructions, GiveTheSameBytesWithThreads) {
  Rng rng(TestSeed(14));
  Conv2DInstruction i = Assembled<Conv2DInstruction>(
      "batch=1, input_h=12, input_w=12, input_c=32, output_h=12, output_w=12, output_c=40, "
      "kernel_h=3, kernel_w=3, stride_h=1, stride_w=1, dilation_h=1, dilation_w=1, pad_top=1, "
      "pad_left=1, groups=1, clamp_min=-128, clamp_max=127");
  const Bytes input = RandomBytes(rng, 12 * 12 * 32);
  const Bytes weights = RandomBytes(rng, 40 * 9 * 32);
  const Bytes records = RandomRecords(rng, 40, 0);
  const auto one = MakeCore();
  const auto three =
      MakeCore({.profile = SmallProfile(), .threads = 3, .features = *DetectCpuFeatures()});
  EXPECT_EQ(RunConvolution(*one, i, input, weights, records),
            RunConvolution(*three, i, input, weights, records));
}

// ---- Two tensors --------------------------------------------------------------------------------

// Loops and addresses in a memory of which the first kPairInput bytes hold random inputs; the
// output is behind them, or on an input that has its layout.
constexpr uint32_t kPairInput = 30000;

template <PairInstruction T>
void RandomLoops(Rng& rng, T& i) {
  const auto pick = [&](int64_t low, int64_t high) {
    return static_cast<uint32_t>(rng.Int(low, high));
  };
  i.count0 = rng.OneIn(2) ? 1 : pick(1, 3);
  i.count1 = rng.OneIn(2) ? 1 : pick(1, 4);
  i.count2 = rng.OneIn(2) ? 1 : pick(1, 5);
  i.count3 = rng.OneIn(4) ? pick(1, 4) : pick(1, 200);
  if (i.count0 * i.count1 * i.count2 == 1 && rng.OneIn(2)) i.count3 = pick(1, 3000);
  // The output's layout, repeated along some loops, or anything.
  const auto strides = [&](uint32_t& stride0, uint32_t& stride1, uint32_t& stride2,
                           uint32_t& stride3) {
    stride0 = i.count1 * i.count2 * i.count3;
    stride1 = i.count2 * i.count3;
    stride2 = i.count3;
    stride3 = 1;
    if (rng.OneIn(3)) return true;
    for (uint32_t* stride : {&stride0, &stride1, &stride2}) {
      if (rng.OneIn(3)) *stride = rng.OneIn(2) ? 0 : pick(0, 700);
    }
    if (rng.OneIn(3)) stride3 = 0;
    return false;
  };
  const bool is_output1 =
      strides(i.input1_stride0, i.input1_stride1, i.input1_stride2, i.input1_stride3);
  const bool is_output2 =
      strides(i.input2_stride0, i.input2_stride1, i.input2_stride2, i.input2_stride3);
  const auto address = [&](const uint32_t(&steps)[4]) {
    const uint32_t reach = steps[0] * (i.count0 - 1) + steps[1] * (i.count1 - 1) +
                           steps[2] * (i.count2 - 1) + steps[3] * (i.count3 - 1) + 1;
    EXPECT_LE(reach, kPairInput / 2);
    return pick(0, kPairInput / 2 - reach);
  };
  // One half of the inputs each, or the same tensor.
  i.input1_address =
      address({i.input1_stride0, i.input1_stride1, i.input1_stride2, i.input1_stride3});
  i.input2_address = kPairInput / 2 + address({i.input2_stride0, i.input2_stride1, i.input2_stride2,
                                               i.input2_stride3});
  if (is_output1 && is_output2 && rng.OneIn(3)) i.input2_address = i.input1_address;
  i.output_address = kPairInput;
  if (is_output1 && rng.OneIn(2)) i.output_address = i.input1_address;
  if (is_output2 && rng.OneIn(2)) i.output_address = i.input2_address;
}

// Runs `i` on random bytes and compares with `expected`, a function of two bytes.
template <PairInstruction T, typename Function>
void ExpectPairs(Core& core, Rng& rng, const T& i, Function expected) {
  const Bytes memory = RandomBytes(rng, kPairInput);
  Bytes want;
  for (uint32_t i0 = 0; i0 < i.count0; ++i0) {
    for (uint32_t i1 = 0; i1 < i.count1; ++i1) {
      for (uint32_t i2 = 0; i2 < i.count2; ++i2) {
        for (uint32_t i3 = 0; i3 < i.count3; ++i3) {
          const uint32_t x1 = i.input1_address + i0 * i.input1_stride0 + i1 * i.input1_stride1 +
                              i2 * i.input1_stride2 + i3 * i.input1_stride3;
          const uint32_t x2 = i.input2_address + i0 * i.input2_stride0 + i1 * i.input2_stride1 +
                              i2 * i.input2_stride2 + i3 * i.input2_stride3;
          want.push_back(expected(memory[x1], memory[x2]));
        }
      }
    }
  }
  // The bytes around the output stay as they are.
  const uint32_t count = static_cast<uint32_t>(want.size());
  Bytes around = memory;
  around.resize(kPairInput + 20000, 0xEE);
  std::copy(want.begin(), want.end(), around.begin() + i.output_address);
  const RunResult result =
      RunProgram(core,
                 {InputInstruction{.bytes = kPairInput},
                  FillInstruction{.output_address = kPairInput, .bytes = 20000, .value = 0xEE}, i,
                  OutputInstruction{.bytes = kPairInput + 20000}},
                 {.inputs = memory});
  ASSERT_LE(count, 20000u);
  ASSERT_EQ(result.event.kind, EventKind::kCompleted) << Disassemble(i);
  ASSERT_TRUE(result.outputs == around) << Disassemble(i);
}

DeviceProfile PairProfile() {
  DeviceProfile profile = SmallProfile();
  profile.memory_bytes = 256 << 10;
  return profile;
}

// Flags, zero points and clamps.
template <typename T>
void RandomFormats(Rng& rng, T& i) {
  if (rng.OneIn(2)) i.flags |= kFlagInputUnsigned;
  const int32_t low = (i.flags & kFlagInputUnsigned) != 0 ? 0 : -128;
  for (int32_t* zero_point : {&i.input1_zero_point, &i.input2_zero_point, &i.output_zero_point}) {
    *zero_point = rng.Int32(low, low + 255);
  }
  i.clamp_min = rng.Int32(low, low + 30);
  i.clamp_max = rng.Int32(low + 200, low + 255);
}

TEST(Instructions, AddRescalesBothInputs) {
  Rng rng(TestSeed(15));
  const auto core = MakeCore({.profile = PairProfile(), .features = *DetectCpuFeatures()});
  for (int round = 0; round < 300 && !testing::Test::HasFatalFailure(); ++round) {
    const bool sane = round % 2 == 0;  // as TensorFlow Lite would have it
    AddInstruction i;
    RandomLoops(rng, i);
    RandomFormats(rng, i);
    i.flags |= rng.Pick<uint32_t>({0, kFlagSubtract, kFlagSubtract | kFlagSquare});
    const bool squares = (i.flags & kFlagSquare) != 0;
    const int32_t shift = squares ? 7 : 20;
    i.left_shift = static_cast<uint32_t>(sane ? shift : rng.Int32(0, 22));
    for (int32_t* multiplier : {&i.input1_multiplier, &i.input2_multiplier, &i.output_multiplier}) {
      *multiplier = sane ? rng.Int32(1 << 30, INT32_MAX) : rng.Int32(0, INT32_MAX);
    }
    i.input1_exponent = sane ? rng.Int32(-3, -1) : rng.Int32(-31, 127);
    i.input2_exponent = sane ? rng.Int32(-3, -1) : rng.Int32(-31, 127);
    i.output_exponent = sane ? rng.Int32(1 - shift, 3 - shift) : rng.Int32(-31, 127);
    const bool is_unsigned = (i.flags & kFlagInputUnsigned) != 0;
    ExpectPairs(*core, rng, i, [&](uint8_t x1, uint8_t x2) {
      const auto scaled = [&](uint8_t byte, int32_t zero_point, int32_t q, int32_t e) {
        return Mbqm((Value(byte, is_unsigned) - zero_point) * (int64_t{1} << i.left_shift), q, e);
      };
      const int64_t a = scaled(x1, i.input1_zero_point, i.input1_multiplier, i.input1_exponent);
      const int64_t b = scaled(x2, i.input2_zero_point, i.input2_multiplier, i.input2_exponent);
      int64_t sum = Wrap((i.flags & kFlagSubtract) != 0 ? a - b : a + b);
      if (squares) sum = Wrap(sum * sum);
      return Clamped(Wrap(Mbqm(sum, i.output_multiplier, i.output_exponent) + i.output_zero_point),
                     i.clamp_min, i.clamp_max);
    });
  }
}

TEST(Instructions, MultiplyRescalesTheProduct) {
  Rng rng(TestSeed(21));
  const auto core = MakeCore({.profile = PairProfile(), .features = *DetectCpuFeatures()});
  for (int round = 0; round < 200 && !testing::Test::HasFatalFailure(); ++round) {
    MultiplyInstruction i;
    RandomLoops(rng, i);
    RandomFormats(rng, i);
    i.output_multiplier = rng.Int32(0, INT32_MAX);
    i.output_exponent = round % 2 == 0 ? rng.Int32(-10, 1) : rng.Int32(-31, 127);
    const bool is_unsigned = (i.flags & kFlagInputUnsigned) != 0;
    ExpectPairs(*core, rng, i, [&](uint8_t x1, uint8_t x2) {
      const int64_t product = (Value(x1, is_unsigned) - i.input1_zero_point) *
                              (Value(x2, is_unsigned) - i.input2_zero_point);
      return Clamped(
          Wrap(Mbqm(product, i.output_multiplier, i.output_exponent) + i.output_zero_point),
          i.clamp_min, i.clamp_max);
    });
  }
}

TEST(Instructions, MaximumAndMinimumCompareBytes) {
  Rng rng(TestSeed(22));
  const auto core = MakeCore({.profile = PairProfile(), .features = *DetectCpuFeatures()});
  for (int round = 0; round < 100 && !testing::Test::HasFatalFailure(); ++round) {
    const uint32_t flags = rng.OneIn(2) ? kFlagInputUnsigned : 0;
    MaximumInstruction maximum;
    RandomLoops(rng, maximum);
    maximum.flags = flags;
    ExpectPairs(*core, rng, maximum, [&](uint8_t x1, uint8_t x2) {
      return Value(x1, flags != 0) > Value(x2, flags != 0) ? x1 : x2;
    });
    MinimumInstruction minimum;
    RandomLoops(rng, minimum);
    minimum.flags = flags;
    ExpectPairs(*core, rng, minimum, [&](uint8_t x1, uint8_t x2) {
      return Value(x1, flags != 0) < Value(x2, flags != 0) ? x1 : x2;
    });
  }
}

TEST(Instructions, PreluMultipliesNegativeValuesBySlopes) {
  Rng rng(TestSeed(23));
  const auto core = MakeCore({.profile = PairProfile(), .features = *DetectCpuFeatures()});
  for (int round = 0; round < 200 && !testing::Test::HasFatalFailure(); ++round) {
    const bool sane = round % 2 == 0;
    PreluInstruction i;
    RandomLoops(rng, i);
    RandomFormats(rng, i);
    i.positive_multiplier = rng.Int32(0, INT32_MAX);
    i.positive_exponent = sane ? rng.Int32(-2, 2) : rng.Int32(-31, 127);
    i.negative_multiplier = rng.Int32(0, INT32_MAX);
    i.negative_exponent = sane ? rng.Int32(-9, 1) : rng.Int32(-31, 127);
    const bool is_unsigned = (i.flags & kFlagInputUnsigned) != 0;
    ExpectPairs(*core, rng, i, [&](uint8_t x1, uint8_t x2) {
      const int64_t a = Value(x1, is_unsigned) - i.input1_zero_point;
      const int64_t b = Value(x2, is_unsigned) - i.input2_zero_point;
      const int64_t p = a >= 0 ? Mbqm(a, i.positive_multiplier, i.positive_exponent)
                               : Mbqm(a * b, i.negative_multiplier, i.negative_exponent);
      return Clamped(Wrap(p + i.output_zero_point), i.clamp_min, i.clamp_max);
    });
  }
}

// ---- One tensor ---------------------------------------------------------------------------------

TEST(Instructions, Pool2DCutsWindowsAtTheBorder) {
  const auto core = MakeCore();
  Pool2DInstruction i = Assembled<Pool2DInstruction>(
      "output_address=act+100, batch=1, input_h=2, input_w=2, channels=2, output_h=2, "
      "output_w=1, kernel_h=2, kernel_w=2, stride_h=1, stride_w=1, pad_top=1, clamp_min=-128, "
      "clamp_max=50");
  const Bytes input = {1, 0xFF, 2, 0xFE, 60, 0, 7, 0xF0};  // signed: 1 -1 | 2 -2 / 60 0 | 7 -16
  const auto run = [&] {
    return RunProgram(*core,
                      {InputInstruction{.bytes = 8}, i,
                       OutputInstruction{.input_address = 100, .bytes = 4}},
                      {.inputs = input})
        .outputs;
  };
  EXPECT_EQ(run(), (Bytes{2, 0xFF, 50, 0}));
  i.flags = kFlagAverage;  // (1+2)/2 = 1.5, (-1-2)/2 = -1.5; 70/4 = 17.5, -19/4 = -4.75
  EXPECT_EQ(run(), (Bytes{2, 0xFE, 18, 0xFB}));
  i.flags = kFlagAverage | kFlagInputUnsigned;
  i.clamp_min = 0;
  i.clamp_max = 255;  // (255+254)/2 = 254.5; (255+254+0+240)/4 = 187.25
  EXPECT_EQ(run(), (Bytes{2, 255, 18, 187}));
}

TEST(Instructions, TableReadsInputsAsUnsigned) {
  const auto core = MakeCore();
  Bytes table(256);
  for (size_t k = 0; k < table.size(); ++k) table[k] = static_cast<uint8_t>(255 - k);
  const RunResult result =
      RunProgram(*core,
                 {ParametersInstruction{.output_address = kParameterSegment, .bytes = 256},
                  InputInstruction{.bytes = 3},
                  TableInstruction{.count = 3, .table_address = kParameterSegment},  // in place
                  OutputInstruction{.bytes = 3}},
                 {.inputs = {0, 0x80, 0xFF}, .parameters = table, .segments = kSegments});
  EXPECT_EQ(result.outputs, (Bytes{0xFF, 0x7F, 0}));
}

TEST(Instructions, CopyWalksStridesInFiveLoops) {
  Rng rng(TestSeed(16));
  const auto core = MakeCore();
  for (int round = 0; round < 300; ++round) {
    const auto pick = [&](int64_t low, int64_t high) {
      return static_cast<uint32_t>(rng.Int(low, high));
    };
    // Strides may be 0 and runs may overlap one another; in every third round they are apart, the
    // innermost loop's or the outermost's next to each other.
    CopyInstruction i{.input_address = 0,
                      .output_address = 4000,
                      .bytes = pick(1, 9),
                      .count0 = pick(1, 3),
                      .count1 = pick(1, 4),
                      .count2 = pick(1, 3),
                      .count3 = pick(1, 3),
                      .count4 = pick(1, 3),
                      .input_stride0 = pick(0, 200),
                      .input_stride1 = pick(0, 50),
                      .input_stride2 = pick(0, 12),
                      .input_stride3 = pick(0, 12),
                      .input_stride4 = pick(0, 12),
                      .output_stride0 = pick(0, 200),
                      .output_stride1 = pick(0, 50),
                      .output_stride2 = pick(0, 12),
                      .output_stride3 = pick(0, 12),
                      .output_stride4 = pick(0, 12)};
    if (round % 3 == 0) {
      std::vector<std::pair<uint32_t, uint32_t*>> loops = {{i.count0, &i.output_stride0},
                                                           {i.count1, &i.output_stride1},
                                                           {i.count2, &i.output_stride2},
                                                           {i.count3, &i.output_stride3},
                                                           {i.count4, &i.output_stride4}};
      if (rng.OneIn(2)) std::reverse(loops.begin(), loops.end());
      uint32_t extent = i.bytes;
      for (const auto& [count, stride] : loops) {
        *stride = extent;
        extent *= count;
      }
    }
    const Bytes input = RandomBytes(rng, 1000);
    Bytes expected(4000, 0xEE);
    for (uint32_t i0 = 0; i0 < i.count0; ++i0) {
      for (uint32_t i1 = 0; i1 < i.count1; ++i1) {
        for (uint32_t i2 = 0; i2 < i.count2; ++i2) {
          for (uint32_t i3 = 0; i3 < i.count3; ++i3) {
            for (uint32_t i4 = 0; i4 < i.count4; ++i4) {
              for (uint32_t k = 0; k < i.bytes; ++k) {
                expected[i0 * i.output_stride0 + i1 * i.output_stride1 + i2 * i.output_stride2 +
                         i3 * i.output_stride3 + i4 * i.output_stride4 + k] =
                    input[i0 * i.input_stride0 + i1 * i.input_stride1 + i2 * i.input_stride2 +
                          i3 * i.input_stride3 + i4 * i.input_stride4 + k];
              }
            }
          }
        }
      }
    }
    const RunResult result =
        RunProgram(*core,
                   {InputInstruction{.bytes = 1000},
                    FillInstruction{.output_address = 4000, .bytes = 4000, .value = 0xEE}, i,
                    OutputInstruction{.input_address = 4000, .bytes = 4000}},
                   {.inputs = input});
    ASSERT_EQ(result.outputs, expected) << "round " << round << ": " << Disassemble(i);
  }
}

TEST(Instructions, FillSetsExactlyItsBytes) {
  const auto core = MakeCore();
  const RunResult result =
      RunProgram(*core, {FillInstruction{.output_address = 0, .bytes = 5, .value = 1},
                         FillInstruction{.output_address = 1, .bytes = 3, .value = 255},
                         OutputInstruction{.bytes = 5}});
  EXPECT_EQ(result.outputs, (Bytes{1, 255, 255, 255, 1}));
}

TEST(Instructions, StreamsKeepTheirOrders) {
  const auto core = MakeCore();
  const RunResult result = RunProgram(
      *core,
      {ParametersInstruction{.output_address = 10, .bytes = 2}, InputInstruction{.bytes = 2},
       InputInstruction{.output_address = 2, .bytes = 1},
       ParametersInstruction{.output_address = 12, .bytes = 1},
       OutputInstruction{.input_address = 10, .bytes = 3}, OutputInstruction{.bytes = 3}},
      {.inputs = {1, 2, 3}, .parameters = {4, 5, 6}});
  EXPECT_EQ(result.outputs, (Bytes{4, 5, 6, 1, 2, 3}));
}

TEST(Instructions, WorkAtTheVeryEndOfMemory) {
  const auto core = MakeCore();
  const uint32_t end = 64 << 10;
  const RunResult result =
      RunProgram(*core,
                 {InputInstruction{.output_address = end - 4, .bytes = 4},
                  OutputInstruction{.input_address = end - 4, .bytes = 4},
                  FillInstruction{.output_address = end - 1, .bytes = 1, .value = 9},
                  OutputInstruction{.input_address = end - 1, .bytes = 1}},
                 {.inputs = {1, 2, 3, 4}});
  EXPECT_EQ(result.outputs, (Bytes{1, 2, 3, 4, 9}));
}

}  // namespace
}  // namespace atollrt
