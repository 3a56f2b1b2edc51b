// SPDX-License-Identifier: Apache-2.0
//
// Resizing of images. A band of output rows is made from a band of input rows; the instruction
// knows where both lie in the whole images.
#include "delegate/lowering.h"
#include "runtime/ops/quantized_params.h"
#include "runtime/ops/tensor_checks.h"

namespace atollrt {
namespace {

// `instruction` has everything but addresses and rows.
template <typename Instruction>
class ResizeLowering final : public NodeLowering {
 public:
  ResizeLowering(const Graph& graph, const Node& node, const ResizeParams& params,
                 const Instruction& instruction)
      : NodeLowering(graph, node), params_(params), instruction_(instruction) {}

  bool divides_into_rows() const override { return IsImage(output()); }

  RowRange InputRows(size_t, RowRange rows) const override {
    const ResizeRows from = RowsUnder({rows.begin, rows.count()});
    return {from.first, from.first + from.count};
  }

  void Emit(const OperandPlaces& place, RowRange rows,
            std::vector<atollrt::Instruction>* program) const override {
    ResizeBand band = WholeImages(params_);
    if (divides_into_rows()) {
      band.output = {rows.begin, rows.count()};
      band.input = RowsUnder(band.output);
    }
    Instruction i = instruction_;
    i.input_address = InputAddress(place, 0, band.input.first);
    i.output_address = OutputAddress(place, 0, band.output.first);
    i.batch = Word(params_.batch);
    i.input_h = Word(params_.input_h);
    i.input_w = Word(params_.input_w);
    i.channels = Word(params_.channels);
    i.output_h = Word(params_.output_h);
    i.output_w = Word(params_.output_w);
    i.input_first = Word(band.input.first);
    i.input_rows = Word(band.input.count);
    i.output_first = Word(band.output.first);
    i.output_rows = Word(band.output.count);
    i.mode = static_cast<uint32_t>(params_.mode);
    program->push_back(i);
  }

 private:
  ResizeRows RowsUnder(ResizeRows output) const {
    if constexpr (requires { instruction_.flags; }) {
      const bool is_unsigned = (instruction_.flags & kFlagInputUnsigned) != 0;
      return BilinearInputRows(params_, is_unsigned ? ResizeType::kUInt8 : ResizeType::kInt8,
                               output);
    } else {
      return NearestInputRows(params_, output);
    }
  }

  const ResizeParams params_;
  const Instruction instruction_;
};

template <typename Instruction>
Lowering MakeResize(const Graph& graph, const Node& node, const Instruction& instruction) {
  ATOLL_ASSIGN_OR_RETURN(const ResizeParams params, MakeResizeParams(graph, node));
  return std::unique_ptr<const NodeLowering>(
      std::make_unique<ResizeLowering<Instruction>>(graph, node, params, instruction));
}

}  // namespace

Lowering LowerResizeBilinear(const Graph& graph, const Node& node) {
  ResizeBilinearInstruction i;
  i.flags = UnsignedFlag(ToByteType(graph.Input(node, 0)->type), kFlagInputUnsigned);
  return MakeResize(graph, node, i);
}

Lowering LowerResizeNearestNeighbor(const Graph& graph, const Node& node) {
  return MakeResize(graph, node, ResizeNearestNeighborInstruction());
}

}  // namespace atollrt
