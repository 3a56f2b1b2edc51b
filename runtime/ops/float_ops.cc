// SPDX-License-Identifier: Apache-2.0
//
// Operators of float32 that are linked apart: functions of one, of two and of many numbers, and
// what goes from float16.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <memory>
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

template <typename T, typename Function>
Executor RunPairs(const Graph& graph, const Node& node, Function function) {
  return Run([broadcast = MakeBroadcast(graph.Input(node, 0)->shape, graph.Input(node, 1)->shape),
              function](const NodeIo& io) {
    CombineElements<T, T>(broadcast, io.inputs[0], io.inputs[1], io.outputs[0], io.pool, function);
  });
}

// The rest has the sign of the divisor.
template <typename T>
T WithSignOf(T divisor, T rest) {
  return rest != 0 && (divisor < 0) != (rest < 0) ? static_cast<T>(rest + divisor) : rest;
}

template <typename T>
Executor RunIntegerFloorMod(const Graph& graph, const Node& node) {
  const auto floor_mod = [](T a, T b) {
    // What divides everything, and what alone could overflow.
    if (b == -1 || b == 0) return T{0};
    return WithSignOf<T>(b, static_cast<T>(a % b));
  };
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<NodeExecutor> prepared,
                         RunPairs<T>(graph, node, floor_mod));
  // Shared, since executors are made of copyable functions.
  const std::shared_ptr<NodeExecutor> divide = std::move(prepared);
  return Run([divide, count = graph.Input(node, 1)->element_count()](const NodeIo& io) -> Status {
    for (int64_t i = 0; i < count; ++i) {
      if (LoadLittleEndian<T>(io.inputs[1] + i * static_cast<int64_t>(sizeof(T))) == 0) {
        return InvalidArgument("element %lld of the divisor is zero", static_cast<long long>(i));
      }
    }
    return divide->Invoke(io);
  });
}

// Wraps.
template <typename T>
Executor RunNegate(const Graph& graph, const Node& node) {
  return Run([count = graph.Output(node).element_count()](const NodeIo& io) {
    for (int64_t i = 0; i < count * static_cast<int64_t>(sizeof(T)); i += sizeof(T)) {
      StoreLittleEndian<T>(io.outputs[0] + i, T{0} - LoadLittleEndian<T>(io.inputs[0] + i));
    }
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
      if (graph.Output(node).type == DataType::kInt32) return RunNegate<uint32_t>(graph, node);
      if (graph.Output(node).type == DataType::kInt64) return RunNegate<uint64_t>(graph, node);
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
  if (node.type == OpType::kPOW) {
    return RunPairs<float>(graph, node, [](float a, float b) { return std::pow(a, b); });
  }
  switch (graph.Output(node).type) {
    case DataType::kInt32:
      return RunIntegerFloorMod<int32_t>(graph, node);
    case DataType::kInt64:
      return RunIntegerFloorMod<int64_t>(graph, node);
    default:
      return RunPairs<float>(graph, node,
                             [](float a, float b) { return WithSignOf(b, std::fmod(a, b)); });
  }
}

// ADD_N.
Executor PrepareFloatSum(const Graph& graph, const Node& node, CpuFeatures features) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    ATOLL_RETURN_IF_ERROR(CheckSameType(*graph.Input(node, i), graph.Output(node)));
  }
  return Run([add = ChooseFloatLoops(features).fold(FloatFold::kSum),
              count = graph.Output(node).element_count()](const NodeIo& io) {
    ParallelRanges(io.pool, count, kParallelGrain, [&](int64_t begin, int64_t end) {
      float* const y = reinterpret_cast<float*>(io.outputs[0]) + begin;
      std::fill_n(y, end - begin, 0.0f);
      for (const uint8_t* x : io.inputs) add(x + 4 * begin, y, end - begin);
    });
  });
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
