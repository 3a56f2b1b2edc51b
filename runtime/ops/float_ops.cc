// SPDX-License-Identifier: Apache-2.0
//
// Operators of float32 that are linked apart: functions of one and of two numbers, selections,
// reductions, and what goes from float16.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/base/bytes.h"
#include "runtime/base/thread_pool.h"
#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/float_loops/float_loops.h"
#include "runtime/kernels/reduce.h"
#include "runtime/ops/apart_executors.h"
#include "runtime/ops/elementwise_params.h"
#include "runtime/ops/filter_tensors.h"
#include "runtime/ops/tensor_checks.h"
#include "runtime/shapes/shape_inference.h"

namespace atollrt {
namespace {

float FloatAt(const uint8_t* bytes, int64_t i) { return LoadLittleEndian<float>(bytes + 4 * i); }

Executor RunLoop(const Graph& graph, const Node& node, CpuFeatures features, FloatMap map) {
  return Run([function = ChooseFloatLoops(features).map(map),
              count = graph.Output(node).element_count()](const NodeIo& io) {
    constexpr int64_t kGrain = 1 << 12;
    ParallelRanges(io.pool, count, kGrain, [&](int64_t begin, int64_t end) {
      function(io.inputs[0] + 4 * begin, io.outputs[0] + 4 * begin, end - begin);
    });
  });
}

// Functions of the standard library, one call for each element.
template <typename Function>
Executor RunCalls(const Graph& graph, const Node& node, Function function) {
  return Run([count = graph.Output(node).element_count(), function](const NodeIo& io) {
    constexpr int64_t kGrain = 1 << 11;
    ParallelRanges(io.pool, count, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        StoreLittleEndian<float>(io.outputs[0] + 4 * i, function(FloatAt(io.inputs[0], i)));
      }
    });
  });
}

// With the sign of the divisor.
float FloorMod(float a, float b) {
  const float rest = std::fmod(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}

template <typename Function>
Executor RunPairs(const Graph& graph, const Node& node, Function function) {
  return Run([broadcast = MakeBroadcast(graph.Input(node, 0)->shape, graph.Input(node, 1)->shape),
              function](const NodeIo& io) {
    CombineElements<float, float>(broadcast, io.inputs[0], io.inputs[1], io.outputs[0], io.pool,
                                  function);
  });
}

// IEEE half precision; every value is one of single precision, too.
float FromHalf(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {  // of 2^-24
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t biased = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | biased << 23 | fraction << 13);
}

// How far an operand of `shape` moves per step of each dimension of `output`, in elements.
std::vector<int64_t> BroadcastStrides(const Shape& shape, const Shape& output) {
  std::vector<int64_t> strides(output.size());
  int64_t stride = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int32_t size = shape[shape.size() - 1 - i];
    if (size != 1) strides[output.size() - 1 - i] = stride;
    stride *= size;
  }
  return strides;
}

struct SelectStrides {
  Shape output;
  std::vector<int64_t> condition, a, b;
};

// For all elements of dimensions `axis` and on: y = condition ? a : b.
uint8_t* SelectElements(const SelectStrides& s, size_t axis, int64_t size, const uint8_t* condition,
                        const uint8_t* a, const uint8_t* b, uint8_t* y) {
  if (axis == s.output.size()) {
    std::memcpy(y, *condition != 0 ? a : b, static_cast<size_t>(size));
    return y + size;
  }
  for (int32_t i = 0; i < s.output[axis]; ++i) {
    y = SelectElements(s, axis + 1, size, condition + i * s.condition[axis],
                       a + i * s.a[axis] * size, b + i * s.b[axis] * size, y);
  }
  return y;
}

}  // namespace

Executor PrepareFloatMap(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_RETURN_IF_ERROR(CheckSameType(*graph.Input(node, 0), graph.Output(node)));
  switch (node.type) {
    case OpType::kABS:
      return RunLoop(graph, node, features, FloatMap::kAbs);
    case OpType::kCEIL:
      return RunCalls(graph, node, [](float x) { return std::ceil(x); });
    case OpType::kCOS:
      return RunCalls(graph, node, [](float x) { return std::cos(x); });
    case OpType::kELU:
      return RunLoop(graph, node, features, FloatMap::kElu);
    case OpType::kEXP:
      return RunLoop(graph, node, features, FloatMap::kExp);
    case OpType::kFLOOR:
      return RunCalls(graph, node, [](float x) { return std::floor(x); });
    case OpType::kLOG:
      return RunCalls(graph, node, [](float x) { return std::log(x); });
    case OpType::kLOGISTIC:
      return RunLoop(graph, node, features, FloatMap::kLogistic);
    case OpType::kNEG:
      return RunLoop(graph, node, features, FloatMap::kNegate);
    case OpType::kROUND:  // halves to even
      return RunCalls(graph, node, [](float x) { return std::nearbyint(x); });
    case OpType::kSIN:
      return RunCalls(graph, node, [](float x) { return std::sin(x); });
    case OpType::kSQUARE:
      return RunLoop(graph, node, features, FloatMap::kSquare);
    case OpType::kTANH:
      return RunLoop(graph, node, features, FloatMap::kTanh);
    default:
      return InternalError("%s is no function of one float", node.op_name().c_str());
  }
}

// POW, FLOOR_MOD.
Executor PrepareFloatPairs(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_RETURN_IF_ERROR(CheckSameType(*graph.Input(node, 0), *graph.Input(node, 1)));
  ATOLL_RETURN_IF_ERROR(CheckSameType(*graph.Input(node, 0), graph.Output(node)));
  if (node.type == OpType::kFLOOR_MOD) return RunPairs(graph, node, FloorMod);
  return RunPairs(graph, node, [](float a, float b) { return std::pow(a, b); });
}

Executor PrepareFloatProduct(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, graph.Output(node)));
  ATOLL_RETURN_IF_ERROR(CheckElements(input));
  std::vector<bool> reduced(input.shape.size());
  for (const int64_t axis : ConstantIntegers(*graph.Input(node, 1))) {
    reduced[NormalizeAxis(axis, reduced.size())] = true;
  }
  return Run([plan = MakeReducePlan(input.shape, reduced)](const NodeIo& io) {
    Reduce<float>(plan, io.inputs[0], 1.0f, reinterpret_cast<float*>(io.outputs[0]),
                  std::multiplies<float>());
  });
}

Executor PrepareL2Pool(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_RETURN_IF_ERROR(CheckSameType(*graph.Input(node, 0), graph.Output(node)));
  ATOLL_ASSIGN_OR_RETURN(const ValueClamp<float> clamp,
                         FusedValueClamp<float>(FusedActivation(node)));
  // The root of the mean of squares, of the cells of the window that are inside.
  return Run([p = PoolShape(graph, node), clamp](const NodeIo& io) {
    const int64_t rows = int64_t{p.batch} * p.output_h;
    ParallelRanges(io.pool, rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t top = row % p.output_h * p.stride_h - p.pad_top;
        for (int64_t x = 0; x < p.output_w; ++x) {
          const int64_t left = x * p.stride_w - p.pad_left;
          const int64_t first_y = std::max<int64_t>(top, 0);
          const int64_t end_y = std::min<int64_t>(top + p.kernel_h, p.input_h);
          const int64_t first_x = std::max<int64_t>(left, 0);
          const int64_t end_x = std::min<int64_t>(left + p.kernel_w, p.input_w);
          const float cells = static_cast<float>((end_y - first_y) * (end_x - first_x));
          for (int64_t c = 0; c < p.channels; ++c) {
            float sum = 0;
            for (int64_t iy = first_y; iy < end_y; ++iy) {
              for (int64_t ix = first_x; ix < end_x; ++ix) {
                const int64_t image_row = row / p.output_h * p.input_h + iy;
                const float value =
                    FloatAt(io.inputs[0], (image_row * p.input_w + ix) * p.channels + c);
                sum += value * value;
              }
            }
            StoreLittleEndian<float>(io.outputs[0] + 4 * ((row * p.output_w + x) * p.channels + c),
                                     clamp(std::sqrt(sum / cells)));
          }
        }
      }
    });
  });
}

Executor PrepareBroadcastTo(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  const size_t size = DataTypeSize(input.type);
  return Run([size, broadcast = MakeBroadcast(input.shape, output.shape)](const NodeIo& io) {
    // The other operand stands for the shape; nobody reads it.
    ForEachBlock(broadcast, size, io.inputs[0], io.outputs[0], io.pool, kParallelGrain,
                 [&](const uint8_t* x, const uint8_t*, int64_t offset, int64_t count) {
                   std::memcpy(io.outputs[0] + offset * static_cast<int64_t>(size), x,
                               static_cast<size_t>(count) * size);
                 });
  });
}

Executor PrepareSelect(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& a = *graph.Input(node, 1);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckSameType(a, *graph.Input(node, 2)));
  ATOLL_RETURN_IF_ERROR(CheckSameType(a, output));
  const int64_t size = static_cast<int64_t>(DataTypeSize(a.type));
  if (size == 0) return Unsupported("'%s' has type %s", a.name.c_str(), DataTypeName(a.type));
  if (output.element_count() == 0) return Run([](const NodeIo&) {});
  SelectStrides strides;
  strides.output = output.shape;
  strides.a = BroadcastStrides(a.shape, output.shape);
  strides.b = BroadcastStrides(graph.Input(node, 2)->shape, output.shape);
  const Shape& condition = graph.Input(node, 0)->shape;
  if (node.type == OpType::kSELECT && condition.size() == 1 && output.shape.size() > 1) {
    strides.condition.resize(output.shape.size());
    strides.condition[0] = condition[0] == 1 ? 0 : 1;
  } else if (ElementCount(condition) == 1) {
    strides.condition.resize(output.shape.size());
  } else {
    strides.condition = BroadcastStrides(condition, output.shape);
  }
  return Run([size, strides = std::move(strides)](const NodeIo& io) {
    SelectElements(strides, 0, size, io.inputs[0], io.inputs[1], io.inputs[2], io.outputs[0]);
  });
}

// From float16.
Executor PrepareHalfDequantize(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& output = graph.Output(node);
  if (output.type != DataType::kFloat32) {
    return Unsupported("from float16 to %s; only to float32", DataTypeName(output.type));
  }
  return Run([count = output.element_count()](const NodeIo& io) {
    ParallelRanges(io.pool, count, kParallelGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const uint16_t half = LoadLittleEndian<uint16_t>(io.inputs[0] + 2 * i);
        StoreLittleEndian<float>(io.outputs[0] + 4 * i, FromHalf(half));
      }
    });
  });
}

}  // namespace atollrt
