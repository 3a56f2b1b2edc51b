// SPDX-License-Identifier: Apache-2.0
//
// Convolutions and what slides a window over an image in the same way.
#include <algorithm>

#include "delegate/lowering.h"
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

// The vertical part of a transposed convolution: input row i reaches the output rows from
// i * stride - pad on, `kernel` of them.
struct TransposedRowWindow {
  int32_t input_rows, kernel, stride, pad;

  // Input rows that reach some output rows. Never none, because the instruction takes at least
  // one, and the first not so far below the output that its pad would be negative.
  RowRange InputRows(RowRange output) const {
    const int64_t before = int64_t{output.begin} + pad - kernel;  // the last that is out of reach
    const int64_t first = before < 0 ? 0 : before / stride + 1;
    const int64_t last = (int64_t{output.end} - 1 + pad) / stride;
    const int64_t begin =
        std::min({first, (int64_t{output.begin} + pad) / stride, int64_t{input_rows} - 1});
    const int64_t end = std::clamp<int64_t>(last + 1, begin + 1, input_rows);
    return {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
  }
  // Rows to cut off above. All that the filter has are enough if there is but one input row.
  int32_t PadAbove(RowRange output) const {
    const RowRange from = InputRows(output);
    const int64_t cut = int64_t{output.begin} + pad - int64_t{from.begin} * stride;
    return static_cast<int32_t>(from.count() == 1 ? std::min<int64_t>(cut, kernel) : cut);
  }
};

// An instruction that slides windows over images, for all rows; its bands are cut out of it.
template <typename Instruction, typename Window>
class WindowLowering final : public NodeLowering {
 public:
  // `instruction` has everything but addresses; its image is input `image`.
  WindowLowering(const Graph& graph, const Node& node, const Instruction& instruction,
                 const Window& window, size_t image)
      : NodeLowering(graph, node), instruction_(instruction), window_(window), image_(image) {}

  void AddFilter(const uint8_t* weights, OutputStage stage) {
    weights_ = {weights, static_cast<size_t>(input(1).byte_size())};
    stage_ = std::move(stage);
    AddParameters(weights_);
    channel_offset_ = AddParameters(ChannelRecords(stage_.mode, stage_.channels));
  }

  // Weights of CONV_2D lie channel by channel; groups would have to be divided as a whole.
  int32_t divisible_channels() const override {
    if constexpr (requires { instruction_.groups; }) {
      if (instruction_.groups == 1) return static_cast<int32_t>(instruction_.output_c);
    }
    return 1;
  }
  std::vector<uint8_t> PartParameters(int32_t begin, int32_t end) const override {
    const size_t count = end - begin;
    std::vector<uint8_t> part;
    AppendAligned(weights_.subspan(begin * channel_bytes(), count * channel_bytes()), &part);
    AppendAligned(ChannelRecords(stage_.mode, std::span(stage_.channels).subspan(begin, count)),
                  &part);
    return part;
  }
  int64_t PartParameterBytes(int32_t begin, int32_t end) const override {
    return part_channel_offset(end - begin) + (end - begin) * kChannelRecordBytes;
  }
  // The part as a tensor of its own, unless there is only one position.
  int64_t PartScratchBytes(int32_t begin, int32_t end) const override {
    return positions() == 1 ? 0 : positions() * (end - begin);
  }
  void EmitPart(const OperandPlaces& place, int32_t begin, int32_t end,
                std::vector<atollrt::Instruction>* program) const override {
    if constexpr (requires { instruction_.groups; }) {
      Instruction i = instruction_;
      const uint32_t output = OutputAddress(place, 0) + begin;
      i.input_address = InputAddress(place, 0);
      i.weight_address = place.parameters;
      i.channel_address = place.parameters + Word(part_channel_offset(end - begin));
      i.output_address = positions() == 1 ? output : place.scratch;
      i.output_c = end - begin;
      program->push_back(i);
      if (positions() == 1) return;
      const StridedCopy::Loop loop{positions(), i.output_c, instruction_.output_c};
      program->push_back(MakeCopy(place.scratch, output, i.output_c, {&loop, 1}));
    }
  }

  // A matrix product may have images around it, but its rows are another thing.
  bool divides_into_rows() const override {
    return node_.type != OpType::kFULLY_CONNECTED && IsImage(input(image_)) && IsImage(output());
  }
  RowRange InputRows(size_t, RowRange rows) const override { return window_.InputRows(rows); }

  void Emit(const OperandPlaces& place, RowRange rows,
            std::vector<atollrt::Instruction>* program) const override {
    Instruction i = instruction_;
    RowRange from = AllRows(input(image_));
    if (divides_into_rows()) {
      from = window_.InputRows(rows);
      i.input_h = from.count();
      i.output_h = rows.count();
      i.pad_top = window_.PadAbove(rows);
    }
    i.input_address = InputAddress(place, image_, from.begin);
    i.output_address = OutputAddress(place, 0, rows.begin);
    if constexpr (requires { i.weight_address; }) {
      i.weight_address = place.parameters;
      i.channel_address = place.parameters + channel_offset_;
    }
    program->push_back(i);
  }

 private:
  size_t channel_bytes() const { return weights_.size() / stage_.channels.size(); }
  int64_t part_channel_offset(int32_t channels) const {
    return AlignUp(channel_bytes() * channels, kOnChipAlignment);
  }
  int64_t positions() const {
    return int64_t{instruction_.batch} * instruction_.output_h * instruction_.output_w;
  }

  const Instruction instruction_;
  const Window window_;
  const size_t image_;
  std::span<const uint8_t> weights_;  // the model's
  OutputStage stage_;
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
Instruction MakeFilter(const Params& params) {
  Instruction i;
  const ConvShape& shape = params.shape;
  SetWindow(shape, &i);
  i.input_c = shape.input_c;
  i.output_c = shape.output_c;
  if constexpr (requires { i.dilation_h; }) {
    i.dilation_h = shape.dilation_h;
    i.dilation_w = shape.dilation_w;
  }
  if constexpr (requires { i.groups; }) i.groups = shape.groups;
  i.flags = UnsignedFlag(params.input_type, kFlagInputUnsigned) |
            UnsignedFlag(params.weight_type, kFlagWeightsUnsigned) |
            (params.output.mode == RequantizeMode::kDouble ? kFlagDouble : 0);
  i.input_zero_point = params.input_zero_point;
  i.weight_zero_point = params.weight_zero_point;
  i.output_zero_point = params.output.zero_point;
  i.clamp_min = params.output.clamp.min;
  i.clamp_max = params.output.clamp.max;
  return i;
}

template <typename Instruction, typename Window, typename Params>
Lowering LowerFilter(const Graph& graph, const Node& node, const Params& params,
                     const Window& window, size_t image = 0) {
  auto lowering = std::make_unique<WindowLowering<Instruction, Window>>(
      graph, node, MakeFilter<Instruction>(params), window, image);
  lowering->AddFilter(params.weights, params.output);
  return std::unique_ptr<const NodeLowering>(std::move(lowering));
}

RowWindow RowsOf(const ConvShape& s) {
  return {s.input_h, s.kernel_h, s.stride_h, s.dilation_h, s.pad_top};
}

}  // namespace

Lowering LowerConv2D(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const Conv2DParams params, MakeConv2DParams(graph, node));
  return LowerFilter<Conv2DInstruction>(graph, node, params, RowsOf(params.shape));
}

Lowering LowerFullyConnected(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const Conv2DParams params, MakeFullyConnectedParams(graph, node));
  return LowerFilter<Conv2DInstruction>(graph, node, params, RowsOf(params.shape));
}

Lowering LowerDepthwiseConv2D(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const DepthwiseConv2DParams params,
                         MakeDepthwiseConv2DParams(graph, node));
  return LowerFilter<DepthwiseConv2DInstruction>(graph, node, params, RowsOf(params.shape));
}

Lowering LowerTransposeConv(const Graph& graph, const Node& node) {
  ATOLL_ASSIGN_OR_RETURN(const Conv2DParams params, MakeConv2DParams(graph, node));
  const ConvShape& s = params.shape;
  const TransposedRowWindow window{s.input_h, s.kernel_h, s.stride_h, s.pad_top};
  return LowerFilter<TransposeConv2DInstruction>(graph, node, params, window, 2);
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
  const RowWindow window{params.input_h, params.kernel_h, params.stride_h, 1, params.pad_top};
  return MakeLowering<WindowLowering<Pool2DInstruction, RowWindow>>(graph, node, i, window, 0);
}

}  // namespace atollrt
