// SPDX-License-Identifier: Apache-2.0
//
// Convolutions, fully-connected layers and pooling on the CPU. The type of the activations decides
// which kernel serves: bytes, int16, float32.

#include <algorithm>
#include <type_traits>

#include "runtime/kernels/conv2d_wide.h"
#include "runtime/kernels/transpose_conv.h"
#include "runtime/ops/apart_ops.h"
#include "runtime/ops/cpu_ops.h"
#include "runtime/ops/elementwise_params.h"
#include "runtime/ops/executors.h"
#include "runtime/ops/filter_tensors.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/ops/tensor_checks.h"
#include "runtime/shapes/shape_rules.h"

namespace atollrt {
namespace {

// A convolution kernel of any kind; its activations are input `position`.
template <typename Kernel>
class FilterExecutor : public NodeExecutor {
 public:
  FilterExecutor(Kernel kernel, size_t position)
      : kernel_(std::move(kernel)), position_(position) {}
  size_t ScratchBytes(int threads) const override { return kernel_.ScratchBytes(threads); }
  Status Invoke(const NodeIo& io) override {
    kernel_.Run(io.inputs[position_], io.outputs[0], io.scratch, io.pool);
    return Status();
  }

 protected:
  const Kernel kernel_;

 private:
  const size_t position_;
};

// One of the kernels for bytes, which can also run line by line.
template <typename Kernel>
class LineFilterExecutor final : public FilterExecutor<Kernel>, public LineRunner {
 public:
  LineFilterExecutor(Kernel kernel, int64_t weight_bytes)
      : FilterExecutor<Kernel>(std::move(kernel), 0), weight_bytes_(weight_bytes) {}

  const LineRunner* line_runner() const override { return this; }
  const ConvShape& shape() const override { return this->kernel_.shape(); }
  int64_t WeightBytes() const override { return weight_bytes_; }
  bool uses_packed_weights() const override { return this->kernel_.uses_packed_weights(); }
  const char* kernel_name() const override { return this->kernel_.kernel_name(); }
  int32_t CountFloatChannels() const override { return this->kernel_.CountFloatChannels(); }
  size_t LineScratchBytes() const override { return this->kernel_.ScratchBytes(1); }
  void RunLines(const LineWindow& input, LineRange lines, uint8_t* output,
                uint8_t* scratch) const override {
    this->kernel_.RunLines(input, lines, output, scratch);
  }
  bool takes_tail() const override { return std::is_same_v<Kernel, Conv2D>; }
  void RunWithTail(const NodeIo& io, const PairTailOperands& tail) const override {
    if constexpr (std::is_same_v<Kernel, Conv2D>) {
      this->kernel_.Run(io.inputs[0], io.outputs[0], io.scratch, io.pool, tail);
    }
  }

 private:
  const int64_t weight_bytes_;
};

template <typename Kernel, typename Params>
Executor RunFilter(Result<Params> params, CpuFeatures features) {
  if (!params.ok()) return params.status();
  ATOLL_ASSIGN_OR_RETURN(Kernel kernel, Kernel::Prepare(*params, features));
  return std::unique_ptr<NodeExecutor>(
      std::make_unique<FilterExecutor<Kernel>>(std::move(kernel), 0));
}

// What the kernels for bytes take for each group, and for a line of activations that they lay out
// with its padding. Beyond that there is no model, but filters that are dilated far beyond their
// image, and plain loops need no memory.
constexpr int32_t kMostGroups = 4096;
constexpr size_t kMostScratchBytes = size_t{256} << 20;

template <typename Kernel, typename Params>
Executor RunPlainLoops(const Params& params) {
  return Run([params](const NodeIo& io) {
    if constexpr (std::is_same_v<Kernel, DepthwiseConv2D>) {
      ReferenceDepthwiseConv2D(params, io.inputs[0], io.outputs[0]);
    } else {
      ReferenceConv2D(params, io.inputs[0], io.outputs[0]);
    }
  });
}

template <typename Kernel, typename Params>
Executor RunLineFilter(Result<Params> params, int64_t weight_bytes, CpuFeatures features) {
  if (!params.ok()) return params.status();
  if (params->shape.groups > kMostGroups) return RunPlainLoops<Kernel>(*params);
  ATOLL_ASSIGN_OR_RETURN(Kernel kernel, Kernel::Prepare(*params, features));
  if (kernel.ScratchBytes(1) > kMostScratchBytes) return RunPlainLoops<Kernel>(*params);
  return std::unique_ptr<NodeExecutor>(
      std::make_unique<LineFilterExecutor<Kernel>>(std::move(kernel), weight_bytes));
}

// Each phase has a copy of its part of the weights, with zeros where the strides are far beyond the
// filter.
constexpr int64_t kMostPhaseBytes = int64_t{256} << 20;

Status CheckPhases(const ConvShape& shape, const TransposeConvFormat& format) {
  if (SplitsWell(shape)) return Status();
  const int64_t bytes = TransposeTaps(shape) * static_cast<int64_t>(format.weight_bytes) *
                        shape.output_c * shape.input_c;
  if (bytes <= kMostPhaseBytes) return Status();
  return ResourceExhausted(
      "strides of %d and %d with a filter of %d x %d need weights of %lld bytes, at most %lld",
      shape.stride_h, shape.stride_w, shape.kernel_h, shape.kernel_w, static_cast<long long>(bytes),
      static_cast<long long>(kMostPhaseBytes));
}

template <typename Kernel, typename Params>
Executor RunTransposed(Result<Params> params, const TransposeConvFormat& format,
                       CpuFeatures features) {
  if (!params.ok()) return params.status();
  ATOLL_RETURN_IF_ERROR(CheckPhases(params->shape, format));
  using Transposed = TransposeConv<Kernel, Params>;
  ATOLL_ASSIGN_OR_RETURN(Transposed kernel, Transposed::Prepare(*params, format, features));
  return std::unique_ptr<NodeExecutor>(
      std::make_unique<FilterExecutor<Transposed>>(std::move(kernel), 2));
}

// The executor of a filter node whose kernel for bytes is `Kernel`.
template <typename Kernel, typename MakeParams>
Executor PrepareFilter(const Graph& graph, const Node& node, CpuFeatures features,
                       MakeParams make_byte_params) {
  switch (graph.Input(node, 0)->type) {
    case DataType::kFloat32:
      return RunFilter<Conv2DFloat>(MakeConv2DFloatParams(graph, node), features);
    case DataType::kInt16:
      return RunFilter<Conv2DInt16>(MakeConv2DInt16Params(graph, node), features);
    default:
      return RunLineFilter<Kernel>(make_byte_params(graph, node), graph.Input(node, 1)->byte_size(),
                                   features);
  }
}

Executor PrepareFloatPool(const Graph& graph, const Node& node) {
  ATOLL_RETURN_IF_ERROR(CheckSameType(*graph.Input(node, 0), graph.Output(node)));
  ATOLL_ASSIGN_OR_RETURN(const ValueClamp<float> clamp,
                         FusedValueClamp<float>(FusedActivation(node)));
  return Run([params = PoolShape(graph, node), clamp](const NodeIo& io) {
    Pool2DFloat(params, clamp, io.inputs[0], reinterpret_cast<float*>(io.outputs[0]), io.pool);
  });
}

Executor PrepareInt16Pool(const Graph& graph, const Node& node) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  ATOLL_RETURN_IF_ERROR(CheckQuantizedInt16("input", input));
  ATOLL_RETURN_IF_ERROR(CheckSameType(input, output));
  ATOLL_RETURN_IF_ERROR(CheckSameQuantization(input, output));
  Pool2DParams params = PoolShape(graph, node);
  ATOLL_ASSIGN_OR_RETURN(params.clamp, FusedClamp(output, FusedActivation(node)));
  return Run([params](const NodeIo& io) {
    Pool2DInt16(params, io.inputs[0], reinterpret_cast<int16_t*>(io.outputs[0]), io.pool);
  });
}

}  // namespace

Result<Conv2DFloatParams> MakeConv2DFloatParams(const Graph& graph, const Node& node) {
  const FilterTensors t = FilterTensorsOf(graph, node);
  ATOLL_RETURN_IF_ERROR(CheckSameType(t.input, t.output));
  ATOLL_RETURN_IF_ERROR(CheckWeights(t, DataType::kFloat32));
  ATOLL_RETURN_IF_ERROR(CheckBias(t, {DataType::kFloat32}));
  Conv2DFloatParams params;
  params.shape = FilterShape(graph, node);
  params.kind = FilterKindOf(node);
  params.weights = t.weights.data.data();
  params.bias = t.bias == nullptr ? nullptr : t.bias->data.data();
  ATOLL_ASSIGN_OR_RETURN(params.clamp, FusedValueClamp<float>(FusedActivation(node)));
  return params;
}

Executor PrepareConv2D(const Graph& graph, const Node& node, CpuFeatures features) {
  return PrepareFilter<Conv2D>(graph, node, features, MakeConv2DParams);
}

Executor PrepareFullyConnected(const Graph& graph, const Node& node, CpuFeatures features) {
  return PrepareFilter<Conv2D>(graph, node, features, MakeFullyConnectedParams);
}

Executor PrepareDepthwiseConv2D(const Graph& graph, const Node& node, CpuFeatures features) {
  return PrepareFilter<DepthwiseConv2D>(graph, node, features, MakeDepthwiseConv2DParams);
}

std::vector<uint8_t> PackWeights(const Graph& graph, const Node& node, CpuFeatures features) {
  const auto pack = [&]<typename Params>(const Result<Params>& params, auto kernel) {
    return params.ok() ? decltype(kernel)::PackWeights(*params, features) : std::vector<uint8_t>();
  };
  switch (node.type) {
    case OpType::kCONV_2D:
      return pack(MakeConv2DParams(graph, node), Conv2D());
    case OpType::kFULLY_CONNECTED:
      return pack(MakeFullyConnectedParams(graph, node), Conv2D());
    case OpType::kDEPTHWISE_CONV_2D:
      return pack(MakeDepthwiseConv2DParams(graph, node), DepthwiseConv2D());
    default:
      return {};
  }
}

Executor PreparePaddedFilter(const Graph& graph, const Node& pad, const Node& node,
                             CpuFeatures features) {
  const auto none = [] { return Executor(std::unique_ptr<NodeExecutor>()); };
  const Tensor& input = *graph.Input(pad, 0);
  const bool is_float = input.type == DataType::kFloat32;
  if (pad.type != OpType::kPAD || !(is_float || IsByteType(input.type)) ||
      input.shape.size() != 4) {
    return none();
  }
  // Zero points are what PAD adds, and what a convolution takes for cells outside of its input.
  ATOLL_ASSIGN_OR_RETURN(const std::vector<int64_t> paddings, ConstantInput(graph, pad, 1));
  const bool only_sides = paddings[0] == 0 && paddings[1] == 0 && paddings[6] == 0 &&
                          paddings[7] == 0 &&
                          *std::min_element(paddings.begin(), paddings.end()) >= 0;
  if (!only_sides) return none();
  // No filter's own padding comes near, and sums with it stay within 32 bits.
  constexpr int64_t kMostPadding = 65535;
  if (*std::max_element(paddings.begin(), paddings.end()) > kMostPadding) return none();
  const auto unpad = [&](ConvShape& s) {
    s.input_h = input.shape[1];
    s.input_w = input.shape[2];
    s.pad_top += static_cast<int32_t>(paddings[2]);
    s.pad_left += static_cast<int32_t>(paddings[4]);
  };
  if (is_float) {
    ConvShape shape = FilterShape(graph, node);
    unpad(shape);
    return PrepareUnpaddedFloatFilter(graph, node, shape, features);
  }
  const auto unpadded = [&](auto params) {
    if (params.ok()) unpad(params->shape);
    return params;
  };
  const int64_t weight_bytes = graph.Input(node, 1)->byte_size();
  switch (node.type) {
    case OpType::kCONV_2D:
      return RunLineFilter<Conv2D>(unpadded(MakeConv2DParams(graph, node)), weight_bytes, features);
    case OpType::kDEPTHWISE_CONV_2D:
      return RunLineFilter<DepthwiseConv2D>(unpadded(MakeDepthwiseConv2DParams(graph, node)),
                                            weight_bytes, features);
    default:
      return none();
  }
}

Executor PrepareTransposeConv(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 2);
  switch (input.type) {
    case DataType::kFloat32:
      return RunTransposed<Conv2DFloat>(MakeConv2DFloatParams(graph, node), {4, 4, 0}, features);
    case DataType::kInt16:
      return RunTransposed<Conv2DInt16>(MakeConv2DInt16Params(graph, node), {2, 1, 0}, features);
    default: {
      Result<Conv2DParams> params = MakeConv2DParams(graph, node);
      if (params.ok() && !SplitsWell(params->shape)) {
        return Run([params = *std::move(params)](const NodeIo& io) {
          ReferenceTransposeConv(params, io.inputs[2], io.outputs[0]);
        });
      }
      const uint8_t zero = static_cast<uint8_t>(graph.Input(node, 1)->zero_point());
      if (params.ok()) params->packed_weights = {};  // its phases have parts of the weights
      return RunTransposed<Conv2D>(std::move(params), {1, 1, zero}, features);
    }
  }
}

int64_t KeptWeightBytes(const Graph& graph, const Node& node) {
  constexpr int64_t kPanelColumns = 16;  // output channels are packed by so many
  constexpr int64_t kGroupBytes = 2048;  // constants of a group's columns
  int64_t bytes = 0;
  switch (node.type) {
    case OpType::kUNIDIRECTIONAL_SEQUENCE_LSTM:
      for (size_t i = 1; i <= 8; ++i) {  // of inputs and of the recurrence, four gates each
        const Tensor* const weights = graph.Input(node, i);
        if (weights != nullptr && weights->type == DataType::kFloat32)
          bytes += weights->byte_size();
      }
      return bytes;
    case OpType::kTRANSPOSE_CONV: {
      const ConvShape shape = FilterShape(graph, node);
      const bool is_byte = IsByteType(graph.Input(node, 2)->type);
      const int64_t phases = int64_t{std::min(shape.stride_h, shape.output_h)} *
                             std::min(shape.stride_w, shape.output_w);
      if (phases > int64_t{kMaxTransposePhases}) return 0;  // plain loops, or refused
      if (is_byte && !SplitsWell(shape)) return 0;
      const int64_t taps = int64_t{shape.kernel_h} * shape.kernel_w;
      const int64_t of_tap = graph.Input(node, 1)->byte_size() / std::max<int64_t>(taps, 1);
      return std::min(TransposeTaps(shape), kMostPhaseBytes / std::max<int64_t>(of_tap, 1)) *
             of_tap;
    }
    case OpType::kCONV_2D:
    case OpType::kFULLY_CONNECTED: {
      bytes = graph.Input(node, 1)->byte_size();
      const ConvShape shape = FilterShape(graph, node);
      if (!IsByteType(graph.Input(node, 0)->type)) return bytes;
      if (shape.output_c < 1 || shape.groups < 1) return bytes;  // of nothing
      if (shape.groups > kMostGroups) return 0;
      const int64_t of_group = shape.output_c / shape.groups;
      const int64_t padded = (of_group + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
      return shape.groups * (bytes / shape.output_c * padded + kGroupBytes);
    }
    case OpType::kDEPTHWISE_CONV_2D:
      return graph.Input(node, 1)->byte_size();
    default:
      return 0;
  }
}

Executor PreparePool2D(const Graph& graph, const Node& node, CpuFeatures features) {
  const DataType type = graph.Input(node, 0)->type;
  if (type == DataType::kFloat32) return PrepareFloatPool(graph, node);
  if (type == DataType::kInt16) return PrepareInt16Pool(graph, node);
  ATOLL_ASSIGN_OR_RETURN(const Pool2DParams params, MakePool2DParams(graph, node));
  return Run([params, &loops = ChooseRowLoops(features)](const NodeIo& io) {
    Pool2D(params, loops, io.inputs[0], io.outputs[0], io.pool);
  });
}

}  // namespace atollrt
