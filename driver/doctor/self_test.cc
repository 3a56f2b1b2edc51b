// SPDX-License-Identifier: Apache-2.0
#include "driver/doctor/self_test.h"

#include <chrono>
#include <span>
#include <utility>
#include <variant>

#include "driver/isa/memory_access.h"
#include "runtime/base/bytes.h"
#include "runtime/base/monotonic.h"

namespace atollrt {
namespace {

constexpr std::chrono::seconds kTimeout{5};

struct Case {
  const char* name;
  Instruction instruction;  // without addresses
  uint64_t output_hash;
  enum { kAlone, kChained } add = kAlone;  // whether an ADD is chained to it
};

// What filters have in common: an image of 9x8, 3x3 taps, every second position.
template <typename T>
T Filter(uint32_t input_c, uint32_t output_c, uint32_t flags) {
  T i{};
  i.batch = 2;
  i.input_h = 9;
  i.input_w = 8;
  i.input_c = input_c;
  i.output_c = output_c;
  i.kernel_h = i.kernel_w = 3;
  i.stride_h = i.stride_w = 2;
  i.output_h = 5;
  i.output_w = 4;
  i.pad_top = i.pad_left = 1;
  i.flags = flags;
  const bool is_unsigned = (flags & kFlagInputUnsigned) != 0;
  i.input_zero_point = is_unsigned ? 125 : -3;
  i.weight_zero_point = (flags & kFlagWeightsUnsigned) != 0 ? 131 : 0;
  i.output_zero_point = is_unsigned ? 120 : 5;
  i.clamp_min = is_unsigned ? 10 : -118;
  i.clamp_max = is_unsigned ? 250 : 120;
  return i;
}

Instruction Conv(uint32_t input_c, uint32_t output_c, uint32_t groups, uint32_t flags) {
  auto i = Filter<Conv2DInstruction>(input_c, output_c, flags);
  i.groups = groups;
  i.dilation_h = i.dilation_w = 1;
  return i;
}

// A matrix product.
Instruction Product(uint32_t rows, uint32_t input_c, uint32_t output_c, uint32_t flags) {
  auto i = std::get<Conv2DInstruction>(Conv(input_c, output_c, 1, flags));
  i.batch = 1;
  i.input_h = i.output_h = rows;
  i.input_w = i.output_w = i.kernel_h = i.kernel_w = i.stride_h = i.stride_w = 1;
  i.pad_top = i.pad_left = 0;
  return i;
}

Instruction Depthwise(uint32_t input_c, uint32_t output_c, uint32_t flags) {
  auto i = Filter<DepthwiseConv2DInstruction>(input_c, output_c, flags);
  i.dilation_h = i.dilation_w = 1;
  return i;
}

Instruction Lstm() {
  return LstmInstruction{.batch = 2,
                         .steps = 3,
                         .inputs = 20,
                         .units = 40,
                         .cell_integer_bits = 4,
                         .hidden_multiplier = 1 << 30,
                         .hidden_exponent = -22,
                         .hidden_zero_point = -4};
}

// Two tensors of 2x3x5x70 elements, the second of which is repeated along two axes.
template <typename T>
T Pair(uint32_t flags) {
  T i{};
  i.flags = flags;
  i.count0 = 2;
  i.count1 = 3;
  i.count2 = 5;
  i.count3 = 70;
  i.input1_stride0 = 3 * 5 * 70;
  i.input1_stride1 = 5 * 70;
  i.input1_stride2 = 70;
  i.input1_stride3 = 1;
  i.input2_stride1 = 70;
  i.input2_stride3 = 1;
  if constexpr (requires { i.output_zero_point; }) {
    const int32_t middle = (flags & kFlagInputUnsigned) != 0 ? 128 : 0;
    i.input1_zero_point = middle + 7;
    i.input2_zero_point = middle - 9;
    i.output_zero_point = middle + 1;
    i.clamp_min = middle - 120;
    i.clamp_max = middle + 125;
  }
  return i;
}

Instruction Add(uint32_t flags) {
  auto i = Pair<AddInstruction>(flags);
  i.left_shift = (flags & kFlagSquare) != 0 ? 7 : 20;
  i.input1_multiplier = 1'500'000'000;
  i.input2_multiplier = 1'900'000'000;
  i.input2_exponent = -1;
  i.output_multiplier = 1'200'000'000;
  i.output_exponent = (flags & kFlagSquare) != 0 ? -21 : -19;
  return i;
}

// Of what a convolution makes at `made`, with as many bytes at `other`.
Instruction AddBehind(const MemoryAccess& made, uint32_t other, uint32_t output) {
  auto i = std::get<AddInstruction>(Add(kFlagChained));
  i.input1_address = other;
  i.input2_address = made.address;
  i.output_address = output;
  i.count0 = i.count1 = i.count2 = 1;
  i.count3 = static_cast<uint32_t>(made.bytes);
  i.input2_stride3 = 1;
  return i;
}

Instruction Multiply(uint32_t flags) {
  auto i = Pair<MultiplyInstruction>(flags);
  i.output_multiplier = 1'700'000'000;
  i.output_exponent = -6;
  return i;
}

Instruction Prelu(uint32_t flags) {
  auto i = Pair<PreluInstruction>(flags);
  i.positive_multiplier = 1'800'000'000;
  i.negative_multiplier = 1'300'000'000;
  i.negative_exponent = -6;
  return i;
}

Instruction Pool(uint32_t flags) {
  const bool is_unsigned = (flags & kFlagInputUnsigned) != 0;
  return Pool2DInstruction{.batch = 2,
                           .input_h = 9,
                           .input_w = 8,
                           .channels = 70,
                           .output_h = 5,
                           .output_w = 4,
                           .kernel_h = 3,
                           .kernel_w = 3,
                           .stride_h = 2,
                           .stride_w = 2,
                           .pad_top = 1,
                           .pad_left = 1,
                           .flags = flags,
                           .clamp_min = is_unsigned ? 5 : -123,
                           .clamp_max = is_unsigned ? 251 : 123};
}

template <typename T>
T Reduce(uint32_t flags, uint32_t reduced0, uint32_t kept2, uint32_t reduced2) {
  T i{};
  i.kept0 = 2;
  i.reduced0 = reduced0;
  i.kept1 = 4;
  i.reduced1 = reduced0;
  i.kept2 = kept2;
  i.reduced2 = reduced2;
  i.flags = flags;
  return i;
}

Instruction Sum(uint32_t flags, uint32_t kept2, uint32_t reduced2) {
  auto i = Reduce<ReduceSumInstruction>(flags, 4, kept2, reduced2);
  const int32_t middle = (flags & kFlagInputUnsigned) != 0 ? 128 : 0;
  i.input_zero_point = middle + 3;
  i.multiplier = 1'400'000'000;
  i.exponent = -4;
  i.output_zero_point = middle - 2;
  i.clamp_min = middle - 128;
  i.clamp_max = middle + 127;
  return i;
}

Instruction Softmax(uint32_t flags) {
  return SoftmaxInstruction{.rows = 5,
                            .depth = 150,
                            .flags = flags,
                            .multiplier = 1'600'000'000,
                            .exponent = 22,
                            .min_difference = -200};
}

Instruction L2Normalization(uint32_t flags) {
  return L2NormalizationInstruction{
      .rows = 5,
      .depth = 150,
      .flags = flags,
      .input_zero_point = (flags & kFlagInputUnsigned) != 0 ? 120 : -8};
}

// 9x8 pixels to 13x17.
template <typename T>
T Resize(uint32_t mode) {
  T i{};
  i.batch = 2;
  i.input_h = i.input_rows = 9;
  i.input_w = 8;
  i.channels = 70;
  i.output_h = i.output_rows = 13;
  i.output_w = 17;
  i.mode = mode;
  return i;
}

Instruction ResizeBilinear(uint32_t mode, uint32_t flags) {
  auto i = Resize<ResizeBilinearInstruction>(mode);
  i.flags = flags;
  return i;
}

Instruction Copy() {
  return CopyInstruction{.bytes = 30,
                         .count0 = 2,
                         .count1 = 3,
                         .count2 = 2,
                         .count3 = 4,
                         .count4 = 5,
                         .input_stride0 = 31,
                         .input_stride1 = 170,
                         .input_stride2 = 1000,
                         .input_stride3 = 0,
                         .input_stride4 = 33,
                         .output_stride0 = 4000,
                         .output_stride1 = 1300,
                         .output_stride2 = 620,
                         .output_stride3 = 150,
                         .output_stride4 = 30};
}

// The hashes are those of the cycle-by-cycle emulation; tests/driver/doctor/self_test_test.cc
// computes them anew and prints what has to stand here.
std::vector<Case> Cases() {
  const uint32_t u8 = kFlagInputUnsigned;
  const uint32_t all_u8 = kFlagInputUnsigned | kFlagWeightsUnsigned;
  return {
      {"CONV_2D int8", Conv(24, 70, 1, 0), 0xdfc7b194bacfaf62},
      {"CONV_2D int8, chained ADD", Conv(24, 70, 1, 0), 0x6eb1fbfabf40883c, Case::kChained},
      {"CONV_2D int8, few channels", Conv(3, 20, 1, 0), 0x7754a49cb8142c32},
      {"CONV_2D int8, matrix product", Product(19, 150, 70, 0), 0x337475ee34500cc7},
      {"CONV_2D uint8", Conv(24, 70, 1, all_u8), 0x344a8e233c68c23c},
      {"CONV_2D int8, double", Product(7, 70, 40, kFlagDouble), 0x07627688256dd786},
      {"CONV_2D groups", Conv(24, 36, 3, 0), 0x942e598010e16a48},
      {"DEPTHWISE_CONV_2D int8", Depthwise(70, 70, 0), 0xc56aadc73f69bf67},
      {"DEPTHWISE_CONV_2D uint8", Depthwise(70, 70, all_u8), 0x90203b618167eeab},
      {"DEPTHWISE_CONV_2D multiplier", Depthwise(20, 60, 0), 0xd6d86109faa8ebe5},
      {"TRANSPOSE_CONV_2D int8", Filter<TransposeConv2DInstruction>(24, 20, 0), 0x252bca88a3f07865},
      {"TRANSPOSE_CONV_2D uint8", Filter<TransposeConv2DInstruction>(24, 20, all_u8),
       0x41396354dcde02f3},
      {"LSTM", Lstm(), 0xc55986299d4e5dcf},
      {"ADD int8", Add(0), 0x9965a53837bf6959},
      {"ADD uint8, subtract", Add(u8 | kFlagSubtract), 0x5dad490db25d92a7},
      {"ADD int8, square", Add(kFlagSubtract | kFlagSquare), 0x15aef6ec88db5006},
      {"POOL_2D int8, maximum", Pool(0), 0x90c37f960cdf20f6},
      {"POOL_2D int8, average", Pool(kFlagAverage), 0x83c1058c50de1ded},
      {"POOL_2D uint8, average", Pool(u8 | kFlagAverage), 0x541dbed8f4a92634},
      {"REDUCE_SUM int8", Sum(0, 40, 1), 0xf470251b87e95d28},
      {"REDUCE_SUM uint8", Sum(u8, 3, 70), 0xfa52e697abca1039},
      {"TABLE", TableInstruction{.count = 1000}, 0xcc36c8121d410a1a},
      {"COPY", Copy(), 0xd6c8080a5fb8f394},
      {"FILL", FillInstruction{.bytes = 1000, .value = 0xA5}, 0x9471e4582ca9ec2d},
      {"MULTIPLY int8", Multiply(0), 0x965fa82c97f12a13},
      {"MULTIPLY uint8", Multiply(u8), 0x25dd6f9cd79fe10f},
      {"MAXIMUM int8", Pair<MaximumInstruction>(0), 0xa181386622f62d95},
      {"MAXIMUM uint8", Pair<MaximumInstruction>(u8), 0x0dcae59c7a6e55a4},
      {"MINIMUM int8", Pair<MinimumInstruction>(0), 0xb1bf48cb22350c4a},
      {"MINIMUM uint8", Pair<MinimumInstruction>(u8), 0xc66ba9674f334a33},
      {"PRELU int8", Prelu(0), 0xf96517e6ea7cbbcb},
      {"PRELU uint8", Prelu(u8), 0x97d8008193a681f7},
      {"REDUCE_MAX int8", Reduce<ReduceMaxInstruction>(0, 4, 40, 1), 0xa1b81f96fba12d99},
      {"REDUCE_MAX uint8", Reduce<ReduceMaxInstruction>(u8, 1, 30, 70), 0xc51520bdc3b9a02b},
      {"REDUCE_MIN int8", Reduce<ReduceMinInstruction>(0, 4, 40, 1), 0xc60ac27ffe0792f8},
      {"REDUCE_MIN uint8", Reduce<ReduceMinInstruction>(u8, 1, 30, 70), 0x5f5c7e0d7b75082d},
      {"SOFTMAX int8", Softmax(0), 0xad8be72d1e59e569},
      {"SOFTMAX uint8", Softmax(u8), 0xfbe499e18ccf3bbf},
      {"L2_NORMALIZATION int8", L2Normalization(0), 0xa28e7ea012fc4306},
      {"L2_NORMALIZATION uint8", L2Normalization(u8), 0x09fe93b3e0d47ece},
      {"RESIZE_BILINEAR int8", ResizeBilinear(2, 0), 0xc7a87cc5d39494b0},
      {"RESIZE_BILINEAR uint8", ResizeBilinear(0, u8), 0xf622081757315dbe},
      {"RESIZE_NEAREST_NEIGHBOR", Resize<ResizeNearestNeighborInstruction>(1), 0x6c0c2edd950f6d17},
  };
}

// splitmix64 (Steele, Lea, Flood 2014).
class Numbers {
 public:
  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::vector<uint8_t> Bytes(size_t count) {
    std::vector<uint8_t> bytes(count);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(Next());
    return bytes;
  }

 private:
  uint64_t state_ = 0;
};

// Valid channel records (docs/isa.md §3) whose outputs use most of a byte's range.
void WriteRecords(std::span<uint8_t> records, bool is_double, Numbers* numbers) {
  for (; !records.empty(); records = records.subspan(kChannelRecordBytes)) {
    const auto bias = static_cast<int32_t>(numbers->Next() % 8001) - 4000;
    const auto multiplier = static_cast<int32_t>(numbers->Next() % (1u << 30)) + (1 << 30);
    StoreLittleEndian<int32_t>(records.data(), bias);
    if (is_double) {
      StoreLittleEndian<int32_t>(records.data() + 4, 0);
      StoreLittleEndian<double>(records.data() + 8, multiplier / static_cast<double>(1ll << 41));
    } else {
      StoreLittleEndian<int32_t>(records.data() + 4, multiplier);
      StoreLittleEndian<int64_t>(records.data() + 8, static_cast<uint32_t>(-10));
    }
  }
}

enum class Content { kActivations, kBytes, kRecords, kDoubleRecords };

// What lies behind the address in a word of the encoding.
Content ContentOf(const Instruction& instruction, uint8_t word) {
  return std::visit(
      [&](const auto& i) {
        const auto is = [&](const uint32_t& operand) {
          return reinterpret_cast<const uint8_t*>(&operand) -
                     reinterpret_cast<const uint8_t*>(&i) ==
                 (word - 1) * 4;
        };
        if constexpr (requires { i.weight_address; }) {
          if (is(i.weight_address)) return Content::kBytes;
          if constexpr (requires { i.flags; }) {
            if (is(i.channel_address) && (i.flags & kFlagDouble) != 0) {
              return Content::kDoubleRecords;
            }
          }
          if (is(i.channel_address)) return Content::kRecords;
        }
        if constexpr (requires { i.table_address; }) {
          if (is(i.table_address)) return Content::kBytes;
        }
        return Content::kActivations;
      },
      instruction);
}

// The whole activation segment is the input, and afterwards the output.
SelfTestCase Make(const Case& source) {
  Numbers numbers;
  auto executable = std::make_shared<Executable>();
  EncodedInstruction encoded = Encode(source.instruction);
  uint32_t activation_bytes = 0;
  std::vector<uint8_t>& parameters = executable->resident_parameters;
  for (const MemoryAccess& access : AccessesOf(source.instruction)) {
    const Content content = ContentOf(source.instruction, access.word);
    uint32_t address = activation_bytes;
    if (content == Content::kActivations) {
      activation_bytes += static_cast<uint32_t>(access.bytes);
    } else {
      const size_t begin = parameters.size();
      address = kParameterSegment | static_cast<uint32_t>(begin);
      const std::vector<uint8_t> bytes = numbers.Bytes(access.bytes);
      parameters.insert(parameters.end(), bytes.begin(), bytes.end());
      if (content != Content::kBytes) {
        WriteRecords(std::span(parameters).subspan(begin), content == Content::kDoubleRecords,
                     &numbers);
      }
    }
    StoreLittleEndian(&encoded[access.word * size_t{4}], address);
  }
  executable->name = source.name;
  if (!parameters.empty()) {
    const auto bytes = static_cast<uint32_t>(parameters.size());
    executable->caching_program = {
        ParametersInstruction{.output_address = kParameterSegment, .bytes = bytes},
        EndInstruction{}};
  }
  std::vector<Instruction>& program = executable->inference_program;
  program = {InputInstruction{}, *Decode(encoded)};
  if (source.add == Case::kChained) {
    const MemoryAccess made = AccessesOf(program.back()).back();
    const auto bytes = static_cast<uint32_t>(made.bytes);
    program.push_back(AddBehind(made, activation_bytes, activation_bytes + bytes));
    activation_bytes += 2 * bytes;
  }
  program.front() = InputInstruction{.bytes = activation_bytes};
  program.push_back(OutputInstruction{.bytes = activation_bytes});
  program.push_back(EndInstruction{});
  executable->activation_bytes = activation_bytes;
  executable->inputs = {{.name = "before",
                         .shape = {static_cast<int32_t>(activation_bytes)},
                         .bytes = activation_bytes}};
  executable->outputs = executable->inputs;
  executable->outputs[0].name = "after";
  return {.executable = std::move(executable),
          .input = numbers.Bytes(activation_bytes),
          .output_hash = source.output_hash};
}

}  // namespace

uint64_t HashOf(std::span<const uint8_t> bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

std::vector<SelfTestCase> SelfTestCases() {
  std::vector<SelfTestCase> cases;
  for (const Case& source : Cases()) cases.push_back(Make(source));
  return cases;
}

Result<uint64_t> RunSelfTestCase(const SelfTestCase& test, Device* device) {
  ATOLL_ASSIGN_OR_RETURN(const ExecutableId id, device->Load(test.executable));
  std::vector<uint8_t> output(test.executable->outputs[0].bytes);
  const Request request{
      .executable = id, .inputs = {test.input}, .outputs = {output}, .timeout = kTimeout};
  Status status;
  if (const auto submitted = device->Submit(request); submitted.ok()) {
    status = device->Wait(*submitted, nullptr);
  } else {
    status = submitted.status();
  }
  const Status unloaded = device->Unload(id);
  if (!status.ok()) return status;
  if (!unloaded.ok()) return unloaded;
  return HashOf(output);
}

std::vector<SelfTestResult> SelfTestDevice(Device* device) {
  std::vector<SelfTestResult> results;
  for (const SelfTestCase& test : SelfTestCases()) {
    const int64_t begin_ns = MonotonicNs();
    const Result<uint64_t> hash = RunSelfTestCase(test, device);
    SelfTestResult result{.name = test.executable->name, .status = hash.status()};
    result.seconds = static_cast<double>(MonotonicNs() - begin_ns) * 1e-9;
    if (hash.ok() && *hash != test.output_hash) {
      result.status = InternalError(
          "%s computes %s wrongly: the hash of the outputs is %016llx, must be %016llx",
          device->info().name.c_str(), result.name.c_str(), static_cast<unsigned long long>(*hash),
          static_cast<unsigned long long>(test.output_hash));
    }
    const bool lost = result.status.code() == StatusCode::kDeviceLost;
    results.push_back(std::move(result));
    if (lost) break;
  }
  return results;
}

}  // namespace atollrt
