// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and what slides a window over an image in the same way.
#include <algorithm>

#include "delegate/lowering.h"
#include "runtime/base/bytes.h"
#include "runtime/ops/quantized_params.h"

namespace atollrt {
namespace {

// The vertical part of a sliding window.
struct RowWindow {
  int32_t input_rows, kernel, stride, dilation, pad;

  // Input rows under the windows of some output rows, without padding; maybe none.
  RowRange InputRows(RowRange output) const {
    const int64_t first = int64_t{output.begin} * stride - pad;
    const int64_t last = int64_t{output.end - 1} * stride - pad + int64_t{kernel - 1} * dilation;
    const int64_t begin = std::clamp<int64_t>(first, 0, input_rows);
    const int64_t end = std::clamp<int64_t>(last + 1, begin, input_rows);
    return {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
  }
  // Padding that is left above the first of these rows.
  int32_t PadAbove(RowRange output) const {
    return InputRows(output).begin - (output.begin * stride - pad);
  }
};

std::vector<uint8_t> ChannelRecords(const OutputStage& stage) {
  std::vector<uint8_t> records(stage.channels.size() * kChannelRecordBytes);
  for (size_t c = 0; c < stage.channels.size(); ++c) {
    uint8_t* record = records.data() + c * kChannelRecordBytes;
    const OutputChannel& channel = stage.channels[c];
    StoreLittleEndian<int32_t>(record, channel.bias);
    if (stage.mode == RequantizeMode::kDouble) {
      StoreLittleEndian<double>(record + 8, channel.scale);
    } else {
      StoreLittleEndian<int32_t>(record + 4, channel.multiplier.value);
      StoreLittleEndian<int32_t>(record + 8, InstructionExponent(channel.multiplier.exponent));
    }
  }
  return records;
}

// An instruction that slides windows over images, for all rows; its bands are cut out of it.
template <typename Instruction>
class WindowLowering final : public NodeLowering {
 public:
  // `dilation` is vertical. `instruction` has everything but addresses.
  WindowLowering(const Graph& graph, const Node& node, const Instruction& instruction,
                 int32_t dilation)
      : NodeLowering(graph, node),
        instruction_(instruction),
        window_{static_cast<int32_t>(instruction.input_h),
                static_cast<int32_t>(instruction.kernel_h),
                static_cast<int32_t>(instruction.stride_h), dilation,
                static_cast<int32_t>(instruction.pad_top)} {}

  void AddFilter(const uint8_t* weights, const OutputStage& stage) {
    weight_offset_ = AddParameters({weights, static_cast<size_t>(input(1).byte_size())});
    channel_offset_ = AddParameters(ChannelRecords(stage));
  }

  // A matrix product may have images around it, but its rows are another thing.
  bool divides_into_rows() const override {
    return node_.type != OpType::kFULLY_CONNECTED && IsImage(input(0)) && IsImage(output());
  }
  RowRange InputRows(size_t, RowRange rows) const override { return window_.InputRows(rows); }

  void Emit(const OperandPlaces& place, RowRange rows,
            std::vector<atollrt::Instruction>* program) const override {
    Instruction i = instruction_;
    RowRange from = AllRows(input(0));
    if (divides_into_rows()) {
      from = window_.InputRows(rows);
      i.input_h = static_cast<uint32_t>(from.count());
      i.output_h = static_cast<uint32_t>(rows.count());
      i.pad_top = static_cast<uint32_t>(window_.PadAbove(rows));
    }
    i.input_address = InputAddress(place, 0, from.begin);
    i.output_address = OutputAddress(place, 0, rows.begin);
    if constexpr (requires { i.weight_address; }) {
      i.weight_address = place.parameters + weight_offset_;
      i.channel_address = place.parameters + channel_offset_;
    }
    program->push_back(i);
  }

 private:
  const Instruction instruction_;
  const RowWindow window_;
  uint32_t weight_offset_ = 0;
  uint32_t channel_offset_ = 0;
};

// What instructions and kernels call alike.
template <typename Instruction, typename Window>
void SetWindow(const Window& window, Instruction* i) {
  i->batch = window.batch;
  i->input_h = window.input_h;
  i->input_w = window.input_w;
  i->output_h = window.output_h;
  i->output_w = window.output_w;
  i->kernel_h = window.kernel_h;
  i->kernel_w = window.kernel_w;
  i->stride_h = window.stride_h;
  i->stride_w = window.stride_w;
  i->pad_top = window.pad_top;
  i->pad_left = window.pad_left;
}

template <typename Instruction, typename Params>
Lowering LowerFilter(const Graph& graph, const Node& node, const Params& params) {
  Instruction i;
  const ConvShape& shape = params.shape;
  SetWindow(shape, &i);
  i.input_c = shape.input_c;
  i.output_c = shape.output_c;
  i.dilation_h = shape.dilation_h;
  i.dilation_w = shape.dilation_w;
  if constexpr (requires { i.groups; }) i.groups = shape.groups;
  i.flags = UnsignedFlag(params.input_type, kFlagInputUnsigned) |
            UnsignedFlag(params.weight_type, kFlagWeightsUnsigned) |
            (params.output.mode == RequantizeMode::kDouble ? kFlagDouble : 0);
  i.input_zero_point = params.input_zero_point;
  i.weight_zero_point = params.weight_zero_point;
  i.output_zero_point = params.output.zero_point;
  i.clamp_min = params.output.clamp.min;
  i.clamp_max = params.output.clamp.max;
  auto lowering = std::make_unique<WindowLowering<Instruction>>(graph, node, i, shape.dilation_h);
  lowering->AddFilter(params.weights, params.output);
  return std::unique_ptr<const NodeLowering>(std::move(lowering));
}

}  // namespace

Lowering LowerConv2D(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const Conv2DParams params, MakeConv2DParams(graph, node));
  return LowerFilter<Conv2DInstruction>(graph, node, params);
}

Lowering LowerFullyConnected(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const Conv2DParams params, MakeFullyConnectedParams(graph, node));
  return LowerFilter<Conv2DInstruction>(graph, node, params);
}

Lowering LowerDepthwiseConv2D(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const DepthwiseConv2DParams params,
                         MakeDepthwiseConv2DParams(graph, node));
  return LowerFilter<DepthwiseConv2DInstruction>(graph, node, params);
}

Lowering LowerPool2D(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const Pool2DParams params, MakePool2DParams(graph, node));
  Pool2DInstruction i;
  SetWindow(params, &i);
  i.channels = params.channels;
  i.flags = UnsignedFlag(params.type, kFlagInputUnsigned) |
            (params.kind == PoolKind::kAverage ? kFlagAverage : 0);
  i.clamp_min = params.clamp.min;
  i.clamp_max = params.clamp.max;
  return std::unique_ptr<const NodeLowering>(
      std::make_unique<WindowLowering<Pool2DInstruction>>(graph, node, i, 1));
}

}  // namespace atollrt
