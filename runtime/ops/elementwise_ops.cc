// SPDX-License-Identifier: Apache-2.0
//
// Operators of two tensors with broadcasting, arithmetic and comparisons: bytes by their
// quantization, other types plainly.
#include <cmath>
#include <optional>

#include "runtime/kernels/broadcast.h"
#include "runtime/kernels/row_loops/row_loops.h"
#include "runtime/ops/cpu_ops.h"
#include "runtime/ops/elementwise_params.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

Status UnsupportedType(const Tensor& tensor) {
  return Unsupported("'%s' has type %s, which this operator is not computed in",
                     tensor.name.c_str(), DataTypeName(tensor.type));
}

// The loops of a node's first two inputs.
Broadcast BroadcastOf(const Graph& graph, const Node& node) {
  return MakeBroadcast(graph.Input(node, 0)->shape, graph.Input(node, 1)->shape);
}

// Both inputs and the output have the same type.
Status CheckPairTypes(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckSameType(*graph.Input(node, 0), *graph.Input(node, 1)));
  return CheckSameType(*graph.Input(node, 0), graph.Output(node));
}

// An executor that computes Out function(In, In) for every pair of elements.
template <typename In, typename Out, typename Function>
Executor RunPairs(const Graph& graph, const Node& node, Function function) {
  return Run([broadcast = BroadcastOf(graph, node), function](const NodeIo& io) {
    CombineElements<In, Out>(broadcast, io.inputs[0], io.inputs[1], io.outputs[0], io.pool,
                             function);
  });
}

// An executor of a loop over pairs of numbers; kUnsupported if `op` is not computed in the inputs'
// type. The results have the inputs' size, those of comparisons are bytes.
Executor RunNumbers(const Graph& graph, const Node& node, CpuFeatures features, NumberOp op,
                    const NumberBounds& bounds = {}) {
  const Tensor& input = *graph.Input(node, 0);
  const std::optional<Element> element = ElementOf(input.type);
  const NumberPairFn combine =
      element.has_value() ? ChooseRowLoops(features).number_pair(op, *element) : nullptr;
  if (combine == nullptr) return UnsupportedType(input);
  const size_t in_bytes = DataTypeSize(input.type);
  const int64_t out_bytes = op >= NumberOp::kEqual ? 1 : static_cast<int64_t>(in_bytes);
  return Run([=, broadcast = BroadcastOf(graph, node)](const NodeIo& io) {
    ForEachBlock(broadcast, in_bytes, io.inputs[0], io.inputs[1], io.pool, kParallelGrain,
                 [&](const uint8_t* x1, const uint8_t* x2, int64_t offset, int64_t count) {
                   combine(bounds, x1, x2, io.outputs[0] + offset * out_bytes, count);
                 });
  });
}

// Truncating; the divisor is not 0.
struct Quotient {
  int32_t operator()(int32_t a, int32_t b) const {
    return static_cast<int32_t>(int64_t{a} / int64_t{b});
  }
};
struct FloorOfQuotient {
  template <typename T>
  T operator()(T a, T b) const {
    const double quotient = std::floor(static_cast<double>(a) / static_cast<double>(b));
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<int64_t>(quotient));
    } else {
      return static_cast<T>(quotient);
    }
  }
};

// function(a, b), clamped by the fused activation.
template <typename T, typename Function>
Executor RunClamped(const Graph& graph, const Node& node, Function function) {
  ATOLL_ASSIGN_OR_RETURN(const ValueClamp<T> clamp,
                         FusedValueClamp<T>(std::get<ElementwiseOptions>(node.options).activation));
  return RunPairs<T, T>(graph, node, [clamp, function](T a, T b) { return clamp(function(a, b)); });
}

// Numbers of other than byte types, clamped by the fused activation.
Executor RunClampedNumbers(const Graph& graph, const Node& node, CpuFeatures features,
                           NumberOp op) {
  const Activation activation = std::get<ElementwiseOptions>(node.options).activation;
  ATOLL_ASSIGN_OR_RETURN(const ValueClamp<float> floats, FusedValueClamp<float>(activation));
  NumberBounds bounds{.float_min = floats.min, .float_max = floats.max};
  if (graph.Output(node).type == DataType::kInt32) {
    ATOLL_ASSIGN_OR_RETURN(const ValueClamp<int32_t> clamp, FusedValueClamp<int32_t>(activation));
    bounds.min = clamp.min;
    bounds.max = clamp.max;
  } else {
    ATOLL_ASSIGN_OR_RETURN(const ValueClamp<int64_t> clamp, FusedValueClamp<int64_t>(activation));
    bounds.min = clamp.min;
    bounds.max = clamp.max;
  }
  return RunNumbers(graph, node, features, op, bounds);
}

// Bytes by the operators of pairs.h.
Executor RunBytePairs(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_ASSIGN_OR_RETURN(const PairParams params, MakePairParams(graph, node));
  return Run([params, combine = ChoosePairs(features),
              broadcast = BroadcastOf(graph, node)](const NodeIo& io) {
    CombineBroadcast(combine, params, broadcast, io.inputs[0], io.inputs[1], io.outputs[0],
                     io.pool);
  });
}

// A convolution whose bytes go through such an operator as soon as they are there.
class TailedFilterExecutor final : public NodeExecutor {
 public:
  TailedFilterExecutor(const NodeExecutor& filter, const PairTail& tail)
      : filter_(filter), tail_(tail) {}
  size_t ScratchBytes(int threads) const override { return filter_.ScratchBytes(threads); }
  const LineRunner* line_runner() const override { return filter_.line_runner(); }
  const PairTail* pair_tail() const override { return &tail_; }
  Status Invoke(const NodeIo& io) override {
    line_runner()->RunWithTail(io, {.tail = &tail_, .other = io.inputs[1], .y = io.outputs[0]});
    return Status();
  }

 private:
  const NodeExecutor& filter_;
  const PairTail tail_;
};

Executor RunByteDivision(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const PairParams params, MakePairParams(graph, node));
  return Run([params, broadcast = BroadcastOf(graph, node)](const NodeIo& io) {
    Divide(params, broadcast, io.inputs[0], io.inputs[1], io.outputs[0], io.pool);
  });
}

// Runs `inner` after a look at every divisor.
template <typename T>
Executor CheckDivisors(const Graph& graph, const Node& node, Executor inner) {
  if (!inner.ok()) return inner;
  const Tensor& divisor = *graph.Input(node, 1);
  // Shared, since executors are made of copyable functions.
  const std::shared_ptr<NodeExecutor> divide = std::move(*inner);
  return Run([divide, count = divisor.element_count(),
              zero = static_cast<T>(divisor.zero_point())](const NodeIo& io) -> Status {
    for (int64_t i = 0; i < count; ++i) {
      if (LoadLittleEndian<T>(io.inputs[1] + i * static_cast<int64_t>(sizeof(T))) == zero) {
        return InvalidArgument("element %lld of the divisor is zero", static_cast<long long>(i));
      }
    }
    return divide->Invoke(io);
  });
}

Executor PrepareAdd16(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const Add16Params params, MakeAdd16Params(graph, node));
  return Run([params, broadcast = BroadcastOf(graph, node)](const NodeIo& io) {
    Add16(params, broadcast, io.inputs[0], io.inputs[1], io.outputs[0], io.pool);
  });
}

NumberOp NumberOpOf(OpType type) {
  switch (type) {
    case OpType::kEQUAL:
      return NumberOp::kEqual;
    case OpType::kNOT_EQUAL:
      return NumberOp::kNotEqual;
    case OpType::kLESS:
      return NumberOp::kLess;
    case OpType::kLESS_EQUAL:
      return NumberOp::kLessEqual;
    case OpType::kGREATER:
      return NumberOp::kGreater;
    default:
      return NumberOp::kGreaterEqual;
  }
}

}  // namespace

// ADD, SUB, MUL.
Executor PrepareAddOrMul(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_RETURN_IF_ERROR(CheckPairTypes(graph, node));
  const DataType type = graph.Output(node).type;
  if (IsByteType(type)) return RunBytePairs(graph, node, features);
  if (type == DataType::kInt16) return PrepareAdd16(graph, node);
  NumberOp op = NumberOp::kAdd;
  if (node.type == OpType::kSUB) op = NumberOp::kSubtract;
  if (node.type == OpType::kMUL) op = NumberOp::kMultiply;
  return RunClampedNumbers(graph, node, features, op);
}

Executor PrepareTailedFilter(const Graph& graph, const NodeExecutor& filter, const Node& node,
                             size_t position, CpuFeatures features) {
  const auto none = [] { return Executor(std::unique_ptr<NodeExecutor>()); };
  const LineRunner* runner = filter.line_runner();
  const bool is_pair =
      node.type == OpType::kADD || node.type == OpType::kSUB || node.type == OpType::kMUL;
  const bool takes_tail =
      runner != nullptr && runner->takes_tail() && filter.pair_tail() == nullptr;
  if (!is_pair || !takes_tail) return none();
  if (!IsByteType(graph.Output(node).type) || !BroadcastOf(graph, node).is_elementwise()) {
    return none();
  }
  ATOLL_ASSIGN_OR_RETURN(const PairParams params, MakePairParams(graph, node));
  return Executor(std::make_unique<TailedFilterExecutor>(
      filter,
      PairTail{.combine = ChoosePairs(features), .params = params, .is_second = position == 1}));
}

Executor PrepareDiv(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_RETURN_IF_ERROR(CheckPairTypes(graph, node));
  switch (graph.Output(node).type) {
    case DataType::kUInt8:
      return CheckDivisors<uint8_t>(graph, node, RunByteDivision(graph, node));
    case DataType::kInt8:
      return CheckDivisors<int8_t>(graph, node, RunByteDivision(graph, node));
    case DataType::kInt32:
      return CheckDivisors<int32_t>(graph, node, RunClamped<int32_t>(graph, node, Quotient()));
    case DataType::kFloat32:
      return RunClampedNumbers(graph, node, features, NumberOp::kDivide);
    default:
      return UnsupportedType(graph.Output(node));
  }
}

Executor PrepareFloorDiv(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_RETURN_IF_ERROR(CheckPairTypes(graph, node));
  switch (graph.Output(node).type) {
    case DataType::kInt32:
      return CheckDivisors<int32_t>(graph, node,
                                    RunPairs<int32_t, int32_t>(graph, node, FloorOfQuotient()));
    case DataType::kFloat32:
      return CheckDivisors<float>(graph, node,
                                  RunPairs<float, float>(graph, node, FloorOfQuotient()));
    default:
      return UnsupportedType(graph.Output(node));
  }
}

// MAXIMUM and MINIMUM compare raw values, whatever they mean.
Executor PrepareSelection(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_RETURN_IF_ERROR(CheckPairTypes(graph, node));
  if (IsByteType(graph.Output(node).type)) return RunBytePairs(graph, node, features);
  return RunNumbers(graph, node, features,
                    node.type == OpType::kMAXIMUM ? NumberOp::kMaximum : NumberOp::kMinimum);
}

Executor PrepareSquaredDifference(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_RETURN_IF_ERROR(CheckPairTypes(graph, node));
  switch (graph.Output(node).type) {
    case DataType::kUInt8:
    case DataType::kInt8:
      return RunBytePairs(graph, node, features);
    case DataType::kInt32:
    case DataType::kFloat32:
      return RunNumbers(graph, node, features, NumberOp::kSquaredDifference);
    default:
      return UnsupportedType(graph.Output(node));
  }
}

Executor PreparePrelu(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_RETURN_IF_ERROR(CheckPairTypes(graph, node));
  const Tensor& output = graph.Output(node);
  if (IsByteType(output.type)) return RunBytePairs(graph, node, features);
  if (output.type != DataType::kFloat32) return UnsupportedType(output);
  return RunNumbers(graph, node, features, NumberOp::kPrelu);
}

// Bytes by the real values that they stand for, other types plainly.
Executor PrepareComparison(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, *graph.Input(node, 1)));
  if (output.type != DataType::kBool) {
    return CorruptModel("output '%s' has type %s, must be bool", output.name.c_str(),
                        DataTypeName(output.type));
  }
  const NumberOp op = NumberOpOf(node.type);
  if (!IsByteType(input.type)) return RunNumbers(graph, node, features, op);
  ATOLL_ASSIGN_OR_RETURN(const PairParams params, MakePairParams(graph, node));
  // Comparison has the same six in the same order.
  static_assert(static_cast<int>(NumberOp::kGreaterEqual) - static_cast<int>(NumberOp::kEqual) ==
                static_cast<int>(Comparison::kGreaterEqual));
  const auto comparison =
      static_cast<Comparison>(static_cast<int>(op) - static_cast<int>(NumberOp::kEqual));
  return Run([params, comparison, broadcast = BroadcastOf(graph, node)](const NodeIo& io) {
    Compare(comparison, params, broadcast, io.inputs[0], io.inputs[1], io.outputs[0], io.pool);
  });
}

}  // namespace atollrt
