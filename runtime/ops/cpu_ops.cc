// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/base/bytes.h"
#include "runtime/graph/shape_inference.h"
#include "runtime/ops/quantized_params.h"

namespace atollrt {
namespace {

using Executor = Result<std::unique_ptr<NodeExecutor>>;

// An executor from a function; most operators need no more.
template <typename Function>
class FunctionExecutor final : public NodeExecutor {
 public:
  FunctionExecutor(size_t scratch_bytes, Function function)
      : scratch_bytes_(scratch_bytes), function_(std::move(function)) {}
  size_t ScratchBytes(int) const override { return scratch_bytes_; }
  Status Invoke(const NodeIo& io) override {
    function_(io);
    return Status();
  }

 private:
  const size_t scratch_bytes_;
  const Function function_;
};

template <typename Function>
Executor Run(Function function, size_t scratch_bytes = 0) {
  return std::unique_ptr<NodeExecutor>(
      std::make_unique<FunctionExecutor<Function>>(scratch_bytes, std::move(function)));
}

// Conv2D or DepthwiseConv2D.
template <typename Kernel>
class FilterExecutor final : public NodeExecutor {
 public:
  explicit FilterExecutor(Kernel kernel) : kernel_(std::move(kernel)) {}
  size_t ScratchBytes(int threads) const override { return kernel_.ScratchBytes(threads); }
  Status Invoke(const NodeIo& io) override {
    kernel_.Run(io.inputs[0], io.outputs[0], io.scratch, io.pool);
    return Status();
  }

 private:
  const Kernel kernel_;
};

template <typename Kernel, typename Params>
Executor RunFilter(Result<Params> params, CpuFeatures features) {
  if (!params.ok()) return params.status();
  ATOLL_ASSIGN_OR_RETURN(Kernel kernel, Kernel::Prepare(*params, features));
  return std::unique_ptr<NodeExecutor>(std::make_unique<FilterExecutor<Kernel>>(std::move(kernel)));
}

Executor PrepareConv2D(const Graph& graph, const Node& node, CpuFeatures features) {
  return RunFilter<Conv2D>(MakeConv2DParams(graph, node), features);
}

Executor PrepareFullyConnected(const Graph& graph, const Node& node, CpuFeatures features) {
  return RunFilter<Conv2D>(MakeFullyConnectedParams(graph, node), features);
}

Executor PrepareDepthwiseConv2D(const Graph& graph, const Node& node, CpuFeatures features) {
  return RunFilter<DepthwiseConv2D>(MakeDepthwiseConv2DParams(graph, node), features);
}

Executor PreparePool2D(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(const Pool2DParams params, MakePool2DParams(graph, node));
  return Run([params](const NodeIo& io) { Pool2D(params, io.inputs[0], io.outputs[0]); });
}

Executor PrepareSoftmax(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(const SoftmaxParams params, MakeSoftmaxParams(graph, node));
  return Run([params](const NodeIo& io) { Softmax(params, io.inputs[0], io.outputs[0]); });
}

Executor PrepareTable(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(const LookupTable table, MakeNodeTable(graph, node));
  const int64_t count = graph.Output(node).element_count();
  return Run(
      [table, count](const NodeIo& io) { ApplyTable(table, io.inputs[0], io.outputs[0], count); });
}

// A tensor repeated into a larger shape, as the source byte of every output byte: sizes and
// source strides from the innermost dimension outwards.
struct BroadcastView {
  std::vector<int32_t> sizes;
  std::vector<int64_t> strides;
  bool is_identity = true;
};

BroadcastView MakeBroadcastView(const Shape& source, const Shape& target) {
  BroadcastView view;
  int64_t stride = 1;
  for (size_t i = 0; i < target.size(); ++i) {
    const int32_t size = target[target.size() - 1 - i];
    const int32_t own = i < source.size() ? source[source.size() - 1 - i] : 1;
    view.sizes.push_back(size);
    view.strides.push_back(own == 1 ? 0 : stride);
    view.is_identity = view.is_identity && own == size;
    stride *= own;
  }
  return view;
}

// Writes the broadcast tensor out, `dimension` counting from the outermost (sizes.size() - 1).
uint8_t* Expand(const BroadcastView& view, int dimension, const uint8_t* source, uint8_t* out) {
  if (dimension < 0) {
    *out = *source;
    return out + 1;
  }
  for (int32_t i = 0; i < view.sizes[dimension]; ++i) {
    out = Expand(view, dimension - 1, source, out);
    source += view.strides[dimension];
  }
  return out;
}

Executor PrepareAdd(const Graph& graph, const Node& node, CpuFeatures features) {
  ATOLL_ASSIGN_OR_RETURN(const AddParams params, MakeAddParams(graph, node));
  const Tensor& output = graph.Output(node);
  const int64_t count = output.element_count();
  const BroadcastView a = MakeBroadcastView(graph.Input(node, 0)->shape, output.shape);
  const BroadcastView b = MakeBroadcastView(graph.Input(node, 1)->shape, output.shape);
  const AddFn add = ChooseAdd(features);
  if (a.is_identity && b.is_identity) {
    return Run([params, count, add](const NodeIo& io) {
      add(params, io.inputs[0], io.inputs[1], io.outputs[0], count);
    });
  }
  // Both operands are written out in full; broadcasts are small in real models.
  const auto broadcast_add = [params, count, add, a, b](const NodeIo& io) {
    const int outermost = static_cast<int>(a.sizes.size()) - 1;
    uint8_t* wide_a = io.scratch;
    uint8_t* wide_b = Expand(a, outermost, io.inputs[0], wide_a);
    Expand(b, outermost, io.inputs[1], wide_b);
    add(params, wide_a, wide_b, io.outputs[0], count);
  };
  return Run(broadcast_add, static_cast<size_t>(2 * count));
}

// Copies `input` with the reduced axes moved in front of the others.
void GatherReduced(const Shape& shape, const std::vector<int32_t>& order, size_t depth,
                   const std::vector<int64_t>& strides, const uint8_t* input, uint8_t** out) {
  if (depth == order.size()) {
    *(*out)++ = *input;
    return;
  }
  for (int32_t i = 0; i < shape[order[depth]]; ++i) {
    GatherReduced(shape, order, depth + 1, strides, input + i * strides[order[depth]], out);
  }
}

Executor PrepareMean(const Graph& graph, const Node& node, CpuFeatures) {
  ATOLL_ASSIGN_OR_RETURN(MeanPlan plan, MakeMeanPlan(graph, node));
  const MeanParams params = plan.params;
  if (plan.contiguous) {
    return Run([params](const NodeIo& io) { Mean(params, io.inputs[0], io.outputs[0]); });
  }
  const Shape shape = graph.Input(node, 0)->shape;
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  std::vector<int32_t> order = plan.reduced;
  for (int32_t i = 0; i < static_cast<int32_t>(shape.size()); ++i) {
    if (!std::binary_search(plan.reduced.begin(), plan.reduced.end(), i)) order.push_back(i);
  }
  const auto gather_and_mean = [params, shape, strides, order](const NodeIo& io) {
    uint8_t* out = io.scratch;
    GatherReduced(shape, order, 0, strides, io.inputs[0], &out);
    Mean(params, io.scratch, io.outputs[0]);
  };
  return Run(gather_and_mean, static_cast<size_t>(graph.Input(node, 0)->element_count()));
}

// RESHAPE, SQUEEZE: the same bytes under another shape.
Executor PrepareMove(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  if (input.type != output.type || DataTypeSize(input.type) == 0) {
    return CorruptModel("input has type %s, output %s", DataTypeName(input.type),
                        DataTypeName(output.type));
  }
  const size_t bytes = static_cast<size_t>(output.byte_size());
  return Run([bytes](const NodeIo& io) {
    if (bytes > 0) std::memcpy(io.outputs[0], io.inputs[0], bytes);
  });
}

Executor PrepareConcatenation(const Graph& graph, const Node& node, CpuFeatures) {
  const ConcatenationOptions& options = std::get<ConcatenationOptions>(node.options);
  if (options.activation != Activation::kNone) {
    return Unsupported("fused activation %d", static_cast<int>(options.activation));
  }
  const Tensor& output = graph.Output(node);
  const size_t element = DataTypeSize(output.type);
  if (element == 0) return Unsupported("type %s", DataTypeName(output.type));
  const int32_t axis = NormalizeAxis(options.axis, output.shape.size());
  int64_t outer = 1;
  for (int32_t i = 0; i < axis; ++i) outer *= output.shape[i];
  struct Part {
    size_t run = 0;  // bytes per outer step
    ConcatenationPart convert;
  };
  std::vector<Part> parts;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    Part part;
    const Tensor& input = *graph.Input(node, i);
    part.run = outer == 0 ? 0 : static_cast<size_t>(input.byte_size() / outer);
    ATOLL_ASSIGN_OR_RETURN(part.convert, MakeConcatenationPart(graph, node, i));
    parts.push_back(part);
  }
  const auto concatenate = [parts, outer](const NodeIo& io) {
    uint8_t* out = io.outputs[0];
    for (int64_t step = 0; step < outer; ++step) {
      for (size_t i = 0; i < parts.size(); ++i) {
        const size_t run = parts[i].run;
        if (run == 0) continue;
        const uint8_t* in = io.inputs[i] + static_cast<size_t>(step) * run;
        if (parts[i].convert.rescale) {
          ApplyTable(parts[i].convert.table, in, out, static_cast<int64_t>(run));
        } else {
          std::memcpy(out, in, run);
        }
        out += run;
      }
    }
  };
  return Run(concatenate);
}

// Copies the rows of `shape` into a padded tensor; `bytes` is one element.
void CopyInner(const Shape& shape, const Shape& padded, const std::vector<int64_t>& before,
               size_t depth, size_t bytes, const uint8_t** in, uint8_t* out) {
  int64_t out_stride = static_cast<int64_t>(bytes);
  for (size_t i = depth + 1; i < padded.size(); ++i) out_stride *= padded[i];
  out += before[depth] * out_stride;
  if (depth + 1 == shape.size()) {
    const size_t run = static_cast<size_t>(shape[depth]) * bytes;
    std::memcpy(out, *in, run);
    *in += run;
    return;
  }
  for (int32_t i = 0; i < shape[depth]; ++i) {
    CopyInner(shape, padded, before, depth + 1, bytes, in, out + i * out_stride);
  }
}

Executor PreparePad(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  const size_t element = DataTypeSize(input.type);
  if (input.type != output.type || element == 0) {
    return CorruptModel("input has type %s, output %s", DataTypeName(input.type),
                        DataTypeName(output.type));
  }
  if (input.shape.empty()) return CorruptModel("the input is a scalar");
  const std::vector<int64_t> paddings = ConstantIntegers(*graph.Input(node, 1));
  std::vector<int64_t> before(input.shape.size());
  for (size_t i = 0; i < before.size(); ++i) before[i] = paddings[2 * i];
  // Byte tensors are padded with their zero point, all others with 0.
  const int fill = IsByteType(output.type) ? output.zero_point() & 0xFF : 0;
  const auto pad = [shape = input.shape, padded = output.shape, before, element, fill,
                    bytes = static_cast<size_t>(output.byte_size()),
                    empty = input.element_count() == 0](const NodeIo& io) {
    if (bytes > 0) std::memset(io.outputs[0], fill, bytes);
    const uint8_t* in = io.inputs[0];
    if (!empty) CopyInner(shape, padded, before, 0, element, &in, io.outputs[0]);
  };
  return Run(pad);
}

Executor PrepareQuantize(const Graph& graph, const Node& node, CpuFeatures features) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  if (input.type != DataType::kFloat32) return PrepareTable(graph, node, features);
  if (!IsByteType(output.type) || !(output.scale() > 0)) {
    return Unsupported(
        "output has type %s and scale %g, must be int8 or uint8 with a positive "
        "scale",
        DataTypeName(output.type), static_cast<double>(output.scale()));
  }
  const float scale = output.scale();
  const float zero_point = static_cast<float>(output.zero_point());
  const float lo = output.type == DataType::kUInt8 ? 0.0f : -128.0f;
  const float hi = output.type == DataType::kUInt8 ? 255.0f : 127.0f;
  const int64_t count = output.element_count();
  return Run([=](const NodeIo& io) {
    for (int64_t i = 0; i < count; ++i) {
      const float x = LoadLittleEndian<float>(io.inputs[0] + 4 * i);
      const float y = std::round(x / scale) + zero_point;
      // Not-a-number becomes the lower bound.
      const float clamped = y > lo ? (y < hi ? y : hi) : lo;
      io.outputs[0][i] = static_cast<uint8_t>(static_cast<int32_t>(clamped));
    }
  });
}

Executor PrepareDequantize(const Graph& graph, const Node& node, CpuFeatures) {
  const Tensor& input = *graph.Input(node, 0);
  const Tensor& output = graph.Output(node);
  if (!IsByteType(input.type) || output.type != DataType::kFloat32) {
    return Unsupported("from %s to %s; only int8 or uint8 to float32", DataTypeName(input.type),
                       DataTypeName(output.type));
  }
  if (input.quantization.scales.size() != 1) {
    return CorruptModel("input '%s' has %zu scales, must have 1", input.name.c_str(),
                        input.quantization.scales.size());
  }
  std::vector<float> table(256);
  const ByteType type = input.type == DataType::kUInt8 ? ByteType::kUInt8 : ByteType::kInt8;
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t steps = ByteValue(static_cast<uint8_t>(byte), type) - input.zero_point();
    table[byte] =
        static_cast<float>(static_cast<double>(steps) * static_cast<double>(input.scale()));
  }
  const int64_t count = output.element_count();
  return Run([table = std::move(table), count](const NodeIo& io) {
    for (int64_t i = 0; i < count; ++i) {
      StoreLittleEndian<float>(io.outputs[0] + 4 * i, table[io.inputs[0][i]]);
    }
  });
}

struct CpuOp {
  OpType type;
  int32_t max_version;
  Executor (*prepare)(const Graph& graph, const Node& node, CpuFeatures features);
};

constexpr CpuOp kCpuOps[] = {
#define ATOLL_CPU_OP(name, max_version, prepare) {OpType::k##name, max_version, prepare},
#include "runtime/ops/cpu_ops.inc"
#undef ATOLL_CPU_OP
};

}  // namespace

int32_t NewestKnownVersion(OpType type) {
  for (const CpuOp& op : kCpuOps) {
    if (op.type == type) return op.max_version;
  }
  return 0;
}

Result<std::unique_ptr<NodeExecutor>> PrepareCpuNode(const Graph& graph, const Node& node,
                                                     CpuFeatures features) {
  const CpuOp* op = nullptr;
  for (const CpuOp& candidate : kCpuOps) {
    if (candidate.type == node.type) op = &candidate;
  }
  if (op == nullptr) {
    return Unsupported("%s: Atoll has no %soperator of this name", Describe(graph, node).c_str(),
                       node.type == OpType::kCUSTOM ? "custom " : "");
  }
  if (node.version > op->max_version) {
    return Unsupported("%s: version %d; the newest known one is %d", Describe(graph, node).c_str(),
                       node.version, op->max_version);
  }
  Executor executor = op->prepare(graph, node, features);
  if (!executor.ok()) {
    return Status(executor.status()).WithContext(Describe(graph, node));
  }
  return executor;
}

}  // namespace atollrt
