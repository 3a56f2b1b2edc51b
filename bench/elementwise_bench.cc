// SPDX-License-Identifier: Apache-2.0
//
// The kernels that are no convolutions, on shapes of real models and every level of instructions,
// one thread: elements of the output per second, and bytes read and written.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/kernels/arg_reduce.h"
#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/cpu_features.h"
#include "runtime/kernels/normalization.h"
#include "runtime/kernels/pairs/pairs.h"
#include "runtime/kernels/pool2d.h"
#include "runtime/kernels/reduce.h"
#include "runtime/kernels/resize.h"
#include "runtime/kernels/row_loops/row_loops.h"
#include "runtime/kernels/strided_copy.h"

namespace atollrt {
namespace {

// What one call reads, at most two operands, and writes.
struct Sizes {
  int64_t inputs[2] = {};  // bytes
  int64_t output = 0;
  int64_t elements = 0;  // of the output
};

using Call = std::function<void(const uint8_t* x1, const uint8_t* x2, uint8_t* y)>;

void Measure(benchmark::State& state, const Sizes& sizes, const Call& call) {
  std::vector<uint8_t> inputs[2];
  for (int k = 0; k < 2; ++k) {
    inputs[k].resize(static_cast<size_t>(sizes.inputs[k]));
    // Floats of ordinary sizes, bytes of all values.
    for (size_t i = 0; i < inputs[k].size(); ++i) {
      inputs[k][i] = i % 4 == 3 ? 0x40 : static_cast<uint8_t>(i * 37 + i / 5);
    }
  }
  std::vector<uint8_t> output(static_cast<size_t>(sizes.output));
  for (auto _ : state) {
    call(inputs[0].data(), inputs[1].data(), output.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * sizes.elements);
  state.SetBytesProcessed(state.iterations() * (sizes.inputs[0] + sizes.inputs[1] + sizes.output));
}

void Register(CpuFeatures level, const std::string& name, const Sizes& sizes, const Call& call) {
  benchmark::RegisterBenchmark((std::string(CpuFeaturesName(level)) + "/" + name).c_str(), Measure,
                               sizes, call)
      ->Unit(benchmark::kMicrosecond);
}

void RegisterConversions(CpuFeatures level) {
  const RowLoops& loops = ChooseRowLoops(level);
  constexpr int64_t kImage = 192 * 192 * 3;  // MoveNet
  Register(level, "cast_uint8_float_192x192x3", {{kImage}, 4 * kImage, kImage},
           [cast = loops.cast(Element::kUInt8, Element::kFloat32)](
               const uint8_t* x, const uint8_t*, uint8_t* y) { cast(x, y, kImage); });
  Register(
      level, "quantize_float_int8_192x192x3", {{4 * kImage}, kImage, kImage},
      [quantize = loops.quantize(Element::kInt8)](const uint8_t* x, const uint8_t*, uint8_t* y) {
        quantize({0.02f, -3}, x, y, kImage);
      });
  Register(level, "dequantize_int8_192x192x3", {{kImage}, 4 * kImage, kImage},
           [dequantize = loops.dequantize(Element::kInt8)](const uint8_t* x, const uint8_t*,
                                                           uint8_t* y) {
             dequantize({0.02f, -3}, x, y, kImage);
           });
  Register(level, "requantize_int16_int8_192x192x3", {{2 * kImage}, kImage, kImage},
           [requantize = loops.requantize(Element::kInt16, Element::kInt8)](
               const uint8_t* x, const uint8_t*, uint8_t* y) {
             requantize({0, 1500000000, -7, 3}, x, y, kImage);
           });
  for (const bool is_flip : {true, false}) {
    std::vector<uint8_t> table(256);
    for (int i = 0; i < 256; ++i) table[i] = static_cast<uint8_t>(is_flip ? i ^ 0x80 : i * i);
    constexpr int64_t kScores = 1917 * 91;  // SSD
    Register(level, is_flip ? "table_sign_1917x91" : "table_1917x91", {{kScores}, kScores, kScores},
             [table, apply = loops.apply_table](const uint8_t* x, const uint8_t*, uint8_t* y) {
               apply(table.data(), x, y, kScores);
             });
  }
}

void RegisterPairs(CpuFeatures level) {
  const RowLoops& loops = ChooseRowLoops(level);
  struct Shapes {
    const char* name;
    std::vector<int32_t> first, second;
  };
  const Shapes shapes[] = {
      {"equal_56x56x24", {56, 56, 24}, {56, 56, 24}}, {"channels_192x192x3", {192, 192, 3}, {3}},
      {"channels_56x56x64", {56, 56, 64}, {64}},      {"positions_48x48x17", {48, 48, 1}, {17}},
      {"scalar_192x192x3", {192, 192, 3}, {1}},
  };
  const auto count = [](const std::vector<int32_t>& shape) {
    int64_t elements = 1;
    for (const int32_t size : shape) elements *= size;
    return elements;
  };
  for (const Shapes& s : shapes) {
    const Broadcast broadcast = MakeBroadcast(s.first, s.second);
    const int64_t n1 = count(s.first);
    const int64_t n2 = count(s.second);
    const int64_t n = broadcast.count;
    Register(level, std::string("add_int8_") + s.name, {{n1, n2}, n, n},
             [broadcast, combine = ChoosePairs(level)](const uint8_t* x1, const uint8_t* x2,
                                                       uint8_t* y) {
               PairParams params;
               params.op = PairOp::kAdd;
               params.left_shift = 20;
               params.input1 = QuantizeMultiplier(0.5);
               params.input2 = QuantizeMultiplier(0.3);
               params.output = QuantizeMultiplier(1.3 / (1 << 20));
               params.clamp = {-128, 127};
               CombineBroadcast(combine, params, broadcast, x1, x2, y, nullptr);
             });
    Register(level, std::string("subtract_float_") + s.name, {{4 * n1, 4 * n2}, 4 * n, n},
             [broadcast, subtract = loops.number_pair(NumberOp::kSubtract, Element::kFloat32)](
                 const uint8_t* x1, const uint8_t* x2, uint8_t* y) {
               const NumberBounds bounds{.float_min = -1e30f, .float_max = 1e30f};
               ForEachBlock(broadcast, 4, x1, x2, nullptr, kParallelGrain,
                            [&](const uint8_t* a, const uint8_t* b, int64_t offset, int64_t block) {
                              subtract(bounds, a, b, y + 4 * offset, block);
                            });
             });
  }
}

void RegisterRows(CpuFeatures level) {
  const RowLoops& loops = ChooseRowLoops(level);
  constexpr int64_t kPixels = 513 * 513;  // DeepLab
  Register(
      level, "arg_max_uint8_513x513x21", {{kPixels * 21}, 8 * kPixels, kPixels},
      [&loops](const uint8_t* x, const uint8_t*, uint8_t* y) {
        ArgReduce(
            {.input = Element::kUInt8, .output = Element::kInt64, .outer = kPixels, .size = 21},
            loops, x, y, nullptr);
      });
  Register(level, "arg_max_int8_2304x17_columns", {{2304 * 17}, 4 * 17, 17},
           [&loops](const uint8_t* x, const uint8_t*, uint8_t* y) {
             ArgReduce({.size = 2304, .inner = 17}, loops, x, y, nullptr);
           });
  // Of a classifier, of segments, of the classes of SSD's anchors, of attention.
  for (const auto& [rows, depth] :
       std::vector<std::pair<int32_t, int32_t>>{{1, 1001}, {100, 21}, {1917, 91}, {1536, 384}}) {
    const SoftmaxParams params = MakeSoftmaxParams(rows, depth, ByteType::kUInt8, 1, 0.1f);
    SoftmaxTable table;
    UpdateSoftmaxTable(params, &table);
    const int64_t n = params.rows * depth;
    Register(level, "softmax_uint8_" + std::to_string(params.rows) + "x" + std::to_string(depth),
             {{n}, n, n}, [params, table, &loops](const uint8_t* x, const uint8_t*, uint8_t* y) {
               Softmax(params, table, loops, x, y, nullptr);
             });
  }
}

void RegisterImages(CpuFeatures level) {
  const RowLoops& loops = ChooseRowLoops(level);
  const struct {
    const char* name;
    ResizeParams params;
  } resizes[] = {
      {"sixteenths_33_513x21",
       {.input_h = 33,
        .input_w = 33,
        .channels = 21,
        .output_h = 513,
        .output_w = 513,
        .mode = ResizeMode::kAlignCorners}},
      {"24_48x24", {.input_h = 24, .input_w = 24, .channels = 24, .output_h = 48, .output_w = 48}},
      {"any_33_500x21",
       {.input_h = 33, .input_w = 33, .channels = 21, .output_h = 500, .output_w = 500}},
  };
  for (const auto& [name, p] : resizes) {
    for (const ResizeType type : {ResizeType::kInt8, ResizeType::kUInt8}) {
      const int64_t in = int64_t{p.input_h} * p.input_w * p.channels;
      const int64_t out = int64_t{p.output_h} * p.output_w * p.channels;
      const size_t scratch_bytes = BilinearScratchBytes(p, type, 1) + 64;
      Register(
          level, std::string("resize_") + (type == ResizeType::kInt8 ? "int8_" : "uint8_") + name,
          {{in}, out, out},
          [p = p, type, &loops, scratch = std::vector<uint8_t>(scratch_bytes)](
              const uint8_t* x, const uint8_t*, uint8_t* y) mutable {
            const size_t offset = -reinterpret_cast<uintptr_t>(scratch.data()) % 64;
            ResizeBilinear(p, type, loops, WholeImages(p), x, y, scratch.data() + offset, nullptr);
          });
    }
  }
}

void RegisterPools(CpuFeatures level) {
  const RowLoops& loops = ChooseRowLoops(level);
  const Pool2DParams pool{.input_h = 112,
                          .input_w = 112,
                          .channels = 64,
                          .output_h = 56,
                          .output_w = 56,
                          .kernel_h = 3,
                          .kernel_w = 3,
                          .stride_h = 2,
                          .stride_w = 2};
  for (const PoolKind kind : {PoolKind::kMax, PoolKind::kAverage}) {
    Register(level, kind == PoolKind::kMax ? "max_pool_112x112x64" : "average_pool_112x112x64",
             {{112 * 112 * 64}, 56 * 56 * 64, 56 * 56 * 64},
             [pool, kind, &loops](const uint8_t* x, const uint8_t*, uint8_t* y) {
               Pool2DParams params = pool;
               params.kind = kind;
               Pool2D(params, loops, x, y, nullptr);
             });
  }
}

void RegisterMeans(CpuFeatures level) {
  const RowLoops& loops = ChooseRowLoops(level);
  const struct {
    const char* name;
    std::vector<int32_t> sizes;
    std::vector<bool> reduce;
  } means[] = {
      {"7x7x1280_to_1280", {49, 1280}, {true, false}},  // MobileNet v2
      {"56x56x72_to_72", {3136, 72}, {true, false}},    // squeeze and excitation
      {"14x14x21_to_21", {196, 21}, {true, false}},     // few channels
      {"384x512_to_384", {384, 512}, {false, true}},    // layer normalization
      {"1917x21_to_1917", {1917, 21}, {false, true}},   // short rows
      {"1280x7x7_to_1280", {1280, 49}, {false, true}},  // channels first
      {"8x16x8x64_to_16x64", {8, 16, 8, 64}, {true, false, true, false}},
  };
  for (const auto& [name, sizes, reduce] : means) {
    const ReducePlan plan = MakeReducePlan(sizes, reduce);
    const int64_t in = plan.outputs * plan.reduced;
    Register(level, std::string("mean_int8_") + name, {{in}, plan.outputs, plan.outputs},
             [plan, &loops](const uint8_t* x, const uint8_t*, uint8_t* y) {
               const ByteSumParams params{
                   .input_zero_point = 3,
                   .multiplier = QuantizeMultiplier(1.0 / static_cast<double>(plan.reduced)),
                   .output_zero_point = -3};
               ByteSum(params, plan.loops, loops, x, y);
             });
  }
}

// These have one form for all levels.
void RegisterPlain() {
  // EDSR: [540, 960, 12] to [1080, 1920, 3]; and a transposition of bytes.
  const struct {
    const char* name;
    int64_t count;
    std::vector<StridedCopy::Loop> loops;
  } copies[] = {
      {"depth_to_space_1080x1920x3",
       1080 * 1920 * 3,
       {{540, 960 * 12, 1920 * 6}, {2, 6, 1920 * 3}, {960, 12, 6}, {6, 1, 1}}},
      {"transpose_1024x1024", 1024 * 1024, {{1024, 1, 1024}, {1024, 1024, 1}}},
  };
  for (const auto& [name, count, loops] : copies) {
    StridedCopy elements;
    elements.loops = loops;
    Register(kBaseline, name, {{count}, count, count},
             [copy = MakeStridedCopy(elements, 1)](const uint8_t* x, const uint8_t*, uint8_t* y) {
               RunStridedCopy(copy, x, y, nullptr);
             });
  }
}

void RegisterAll() {
  const Result<CpuFeatures> available = DetectCpuFeatures();
  if (!available.ok()) return;
#define ATOLL_ROW_LOOPS(loops, needed)                                                  \
  if (Supports(*available, needed)) {                                                   \
    const CpuFeatures level = (needed) == kAvx512Vnni ? kAvx512Vnni | kAvx2 : (needed); \
    RegisterConversions(level);                                                         \
    RegisterPairs(level);                                                               \
    RegisterRows(level);                                                                \
    RegisterImages(level);                                                              \
    RegisterPools(level);                                                               \
    RegisterMeans(level);                                                               \
  }
#include "runtime/kernels/row_loops/kernels.inc"
#undef ATOLL_ROW_LOOPS
  RegisterPlain();
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  atollrt::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
