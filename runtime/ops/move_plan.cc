// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/move_plan.h"

#include <utility>

#include "runtime/shapes/shape_inference.h"
#include "runtime/shapes/slice.h"

namespace atollrt {
namespace {

using Kind = MoveOperand::Kind;
using Loop = StridedCopy::Loop;

constexpr MoveOperand kOnlyInput{Kind::kInput, 0};
constexpr MoveOperand kOnlyOutput{Kind::kOutput, 0};
constexpr MoveOperand kScratch{Kind::kScratch, 0};

// Elements between neighbours along each axis of a row-major tensor.
std::vector<int64_t> Strides(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

// Where a box of a tensor begins and how to walk it, in elements.
struct View {
  int64_t offset = 0;
  std::vector<int64_t> strides;
};

// How to walk images, whose last dimension stays together, block by block: first the places in a
// block, then the images, then the blocks.
struct Blocks {
  Shape sizes;
  View view;
};
Blocks CutIntoBlocks(const Shape& images, const std::vector<int64_t>& blocks) {
  const std::vector<int64_t> strides = Strides(images);
  Blocks cut;
  const auto add = [&cut](int64_t size, int64_t stride) {
    cut.sizes.push_back(static_cast<int32_t>(size));
    cut.view.strides.push_back(stride);
  };
  for (size_t i = 0; i < blocks.size(); ++i) add(blocks[i], strides[i + 1]);
  add(images[0], strides[0]);
  for (size_t i = 0; i < blocks.size(); ++i) {
    add(images[i + 1] / blocks[i], strides[i + 1] * blocks[i]);
  }
  add(images.back(), 1);
  return cut;
}

// Collects the copies of one node.
class Planner {
 public:
  Planner(const Graph& graph, const Node& node, size_t element_bytes)
      : graph_(graph), node_(node), element_bytes_(element_bytes) {}

  Status Plan();
  MovePlan Take() && { return std::move(plan_); }

 private:
  const Shape& InputShape(size_t position = 0) const {
    return graph_.Input(node_, position)->shape;
  }
  const Shape& OutputShape() const { return graph_.Output(node_).shape; }
  // A constant operand; shape inference has checked it.
  std::vector<int64_t> Constants(size_t position) const {
    const Tensor& tensor = *graph_.Input(node_, position);
    return tensor.element_count() == 0 ? std::vector<int64_t>() : ConstantIntegers(tensor);
  }

  // Copies a box of `sizes` from one view to another.
  void Copy(MoveOperand from, const View& in, MoveOperand to, const View& out, const Shape& sizes);
  Status PlanAll();
  Status PlanSlice();
  Status PlanSplit();
  Status PlanPack();
  Status PlanUnpack();
  Status PlanTranspose();
  Status PlanTile();
  Status PlanPad();
  Status PlanMirrorPad();
  Status PlanSpaceToBatch();
  Status PlanBatchToSpace();
  Status PlanDepthToSpace();
  void Fill(MoveOperand target, int64_t count, const Tensor& like);

  const Graph& graph_;
  const Node& node_;
  const size_t element_bytes_;
  MovePlan plan_;
};

void Planner::Copy(MoveOperand from, const View& in, MoveOperand to, const View& out,
                   const Shape& sizes) {
  StridedCopy elements;
  elements.in_offset = in.offset;
  elements.out_offset = out.offset;
  for (size_t i = 0; i < sizes.size(); ++i) {
    elements.loops.push_back({sizes[i], in.strides[i], out.strides[i]});
  }
  plan_.copies.push_back({from, to, MakeStridedCopy(elements, element_bytes_)});
}

Status Planner::PlanAll() {
  const auto count = static_cast<int32_t>(graph_.Output(node_).element_count());
  Copy(kOnlyInput, {0, {1}}, kOnlyOutput, {0, {1}}, {count});
  return Status();
}

Status Planner::PlanSlice() {
  ATOLL_ASSIGN_OR_RETURN(const ResolvedSlice slice, ResolveSlice(graph_, node_));
  // Dropped axes have one element and new ones too, so the output is walked like the input.
  View in{0, Strides(InputShape())};
  Shape sizes;
  for (size_t i = 0; i < slice.axes.size(); ++i) {
    const SliceAxis& axis = slice.axes[i];
    in.offset += axis.begin * in.strides[i];
    in.strides[i] *= axis.stride;
    sizes.push_back(axis.count);
  }
  Copy(kOnlyInput, in, kOnlyOutput, {0, Strides(sizes)}, sizes);
  return Status();
}

// Consecutive parts of the input along `axis`, as long as the outputs are.
Status Planner::PlanSplit() {
  const bool has_sizes = node_.type == OpType::kSPLIT_V;
  const size_t input = has_sizes ? 0 : 1;
  const int32_t axis = NormalizeAxis(Constants(has_sizes ? 2 : 0)[0], InputShape(input).size());
  View in{0, Strides(InputShape(input))};
  for (size_t i = 0; i < node_.outputs.size(); ++i) {
    const Shape& part = graph_.Output(node_, i).shape;
    Copy({Kind::kInput, input}, in, {Kind::kOutput, i}, {0, Strides(part)}, part);
    in.offset += part[axis] * in.strides[axis];
  }
  return Status();
}

Status Planner::PlanPack() {
  const Shape& input = InputShape();
  const int32_t axis =
      NormalizeAxis(std::get<AxisOptions>(node_.options).axis, OutputShape().size());
  View out{0, Strides(OutputShape())};
  const int64_t step = out.strides[axis];
  out.strides.erase(out.strides.begin() + axis);
  for (size_t i = 0; i < node_.inputs.size(); ++i) {
    Copy({Kind::kInput, i}, {0, Strides(input)}, kOnlyOutput, out, input);
    out.offset += step;
  }
  return Status();
}

Status Planner::PlanUnpack() {
  const int32_t axis =
      NormalizeAxis(std::get<AxisOptions>(node_.options).axis, InputShape().size());
  View in{0, Strides(InputShape())};
  const int64_t step = in.strides[axis];
  in.strides.erase(in.strides.begin() + axis);
  for (size_t i = 0; i < node_.outputs.size(); ++i) {
    const Shape& part = graph_.Output(node_, i).shape;
    Copy(kOnlyInput, in, {Kind::kOutput, i}, {0, Strides(part)}, part);
    in.offset += step;
  }
  return Status();
}

Status Planner::PlanTranspose() {
  const std::vector<int64_t> strides = Strides(InputShape());
  View in;
  for (const int64_t axis : Constants(1)) {
    in.strides.push_back(strides[NormalizeAxis(axis, strides.size())]);
  }
  Copy(kOnlyInput, in, kOnlyOutput, {0, Strides(OutputShape())}, OutputShape());
  return Status();
}

// Each axis is two loops: over its copies, which all read from the same place, and along it.
Status Planner::PlanTile() {
  const Shape& shape = InputShape();
  const std::vector<int64_t> multiples = Constants(1);
  const std::vector<int64_t> in_strides = Strides(shape);
  const std::vector<int64_t> out_strides = Strides(OutputShape());
  View in, out;
  Shape sizes;
  for (size_t i = 0; i < shape.size(); ++i) {
    sizes.insert(sizes.end(), {static_cast<int32_t>(multiples[i]), shape[i]});
    in.strides.insert(in.strides.end(), {0, in_strides[i]});
    out.strides.insert(out.strides.end(), {shape[i] * out_strides[i], out_strides[i]});
  }
  Copy(kOnlyInput, in, kOnlyOutput, out, sizes);
  return Status();
}

// Quantized tensors are padded with their zero point, all others with 0.
void Planner::Fill(MoveOperand target, int64_t count, const Tensor& like) {
  plan_.fill = {target, count, std::vector<uint8_t>(element_bytes_)};
  if (!IsByteType(like.type) && like.type != DataType::kInt16) return;
  const uint32_t value = static_cast<uint32_t>(like.zero_point());
  for (size_t i = 0; i < element_bytes_; ++i) {
    plan_.fill.element[i] = static_cast<uint8_t>(value >> (8 * i));
  }
}

Status Planner::PlanPad() {
  const Tensor& output = graph_.Output(node_);
  Fill(kOnlyOutput, output.element_count(), output);
  if (node_.type == OpType::kPADV2) {
    const Tensor& value = *graph_.Input(node_, 2);
    const std::string name = Describe(graph_, node_.inputs[2]);
    if (value.type != output.type || value.element_count() != 1) {
      return CorruptModel("%s is %s of shape %s, must be one %s", name.c_str(),
                          DataTypeName(value.type), ShapeString(value.shape).c_str(),
                          DataTypeName(output.type));
    }
    if (!value.is_constant()) return Unsupported("%s is not a constant", name.c_str());
    if (value.scale() != output.scale() || value.zero_point() != output.zero_point()) {
      return CorruptModel("%s has scale %g and zero point %d, the output %g and %d", name.c_str(),
                          static_cast<double>(value.scale()), value.zero_point(),
                          static_cast<double>(output.scale()), output.zero_point());
    }
    plan_.fill.element.assign(value.data.begin(),
                              value.data.begin() + static_cast<std::ptrdiff_t>(element_bytes_));
  }
  const std::vector<int64_t> paddings = Constants(1);
  View out{0, Strides(output.shape)};
  for (size_t i = 0; i < out.strides.size(); ++i) out.offset += paddings[2 * i] * out.strides[i];
  Copy(kOnlyInput, {0, Strides(InputShape())}, kOnlyOutput, out, InputShape());
  return Status();
}

// Every axis has a border, the input and a border, of which each combination is one copy; borders
// are read backwards.
Status Planner::PlanMirrorPad() {
  struct Box {
    View in, out;
    Shape sizes;
  };
  struct Segment {
    int64_t count, from, step, to;
  };
  const std::vector<int64_t> paddings = Constants(1);
  const std::vector<int64_t> in_strides = Strides(InputShape());
  const std::vector<int64_t> out_strides = Strides(OutputShape());
  const int64_t skip =
      std::get<MirrorPadOptions>(node_.options).mode == MirrorPadMode::kReflect ? 1 : 0;
  // Three to the power of the dimensions that are padded at both ends.
  constexpr int64_t kMaxBoxes = 6561;
  int64_t count = 1;
  for (size_t axis = 0; axis < in_strides.size() && count <= kMaxBoxes; ++axis) {
    count *= 1 + (paddings[2 * axis] > 0 ? 1 : 0) + (paddings[2 * axis + 1] > 0 ? 1 : 0);
  }
  if (count > kMaxBoxes) {
    return ResourceExhausted(
        "borders of so many of %zu dimensions that they have more than %lld "
        "parts",
        in_strides.size(), static_cast<long long>(kMaxBoxes));
  }
  std::vector<Box> boxes(1);  // of the axes so far
  for (size_t axis = 0; axis < in_strides.size(); ++axis) {
    const int64_t size = InputShape()[axis];
    const int64_t before = paddings[2 * axis];
    const int64_t after = paddings[2 * axis + 1];
    std::vector<Box> longer;
    for (const Segment& segment :
         {Segment{before, before - 1 + skip, -1, 0}, Segment{size, 0, 1, before},
          Segment{after, size - 1 - skip, -1, before + size}}) {
      if (segment.count == 0) continue;
      for (Box box : boxes) {
        box.in.offset += segment.from * in_strides[axis];
        box.in.strides.push_back(segment.step * in_strides[axis]);
        box.out.offset += segment.to * out_strides[axis];
        box.out.strides.push_back(out_strides[axis]);
        box.sizes.push_back(static_cast<int32_t>(segment.count));
        longer.push_back(std::move(box));
      }
    }
    boxes = std::move(longer);
  }
  for (const Box& box : boxes) Copy(kOnlyInput, box.in, kOnlyOutput, box.out, box.sizes);
  return Status();
}

// The padded image is cut into blocks; the place in the block goes to the batch dimension.
Status Planner::PlanSpaceToBatch() {
  const std::vector<int64_t> blocks = Constants(1);
  const std::vector<int64_t> paddings = Constants(2);
  const size_t dims = blocks.size();
  Shape padded = InputShape();
  bool has_padding = false;
  for (size_t i = 0; i < dims; ++i) {
    padded[i + 1] = static_cast<int32_t>(OutputShape()[i + 1] * blocks[i]);
    has_padding = has_padding || padded[i + 1] != InputShape()[i + 1];
  }
  const std::vector<int64_t> strides = Strides(padded);
  MoveOperand source = kOnlyInput;
  if (has_padding) {
    source = kScratch;
    plan_.scratch_bytes = static_cast<size_t>(ElementCount(padded)) * element_bytes_;
    Fill(kScratch, ElementCount(padded), graph_.Output(node_));
    View out{0, strides};
    for (size_t i = 0; i < dims; ++i) out.offset += paddings[2 * i] * strides[i + 1];
    Copy(kOnlyInput, {0, Strides(InputShape())}, kScratch, out, InputShape());
  }
  const auto [sizes, in] = CutIntoBlocks(padded, blocks);
  Copy(source, in, kOnlyOutput, {0, Strides(sizes)}, sizes);
  return Status();
}

// The inverse; what is cropped is assembled in scratch memory first.
Status Planner::PlanBatchToSpace() {
  const std::vector<int64_t> blocks = Constants(1);
  const std::vector<int64_t> crops = Constants(2);
  const size_t dims = blocks.size();
  Shape whole = OutputShape();
  bool has_crops = false;
  for (size_t i = 0; i < dims; ++i) {
    whole[i + 1] = static_cast<int32_t>(InputShape()[i + 1] * blocks[i]);
    has_crops = has_crops || whole[i + 1] != OutputShape()[i + 1];
  }
  const std::vector<int64_t> strides = Strides(whole);
  const auto [sizes, out] = CutIntoBlocks(whole, blocks);
  Copy(kOnlyInput, {0, Strides(sizes)}, has_crops ? kScratch : kOnlyOutput, out, sizes);
  if (!has_crops) return Status();
  plan_.scratch_bytes = static_cast<size_t>(ElementCount(whole)) * element_bytes_;
  View kept{0, strides};
  for (size_t i = 0; i < dims; ++i) kept.offset += crops[2 * i] * strides[i + 1];
  Copy(kScratch, kept, kOnlyOutput, {0, Strides(OutputShape())}, OutputShape());
  return Status();
}

// [n, h, block, w, block, c] and [n, h, w, block, block, c] are each other's transposition.
Status Planner::PlanDepthToSpace() {
  const bool to_space = node_.type == OpType::kDEPTH_TO_SPACE;
  const int32_t block = std::get<BlockOptions>(node_.options).block_size;
  const Shape& deep = to_space ? InputShape() : OutputShape();
  const int32_t channels = (to_space ? OutputShape() : InputShape())[3];
  const Shape wide{deep[0], deep[1], block, deep[2], block, channels};
  const Shape tall{deep[0], deep[1], deep[2], block, block, channels};
  const std::vector<int64_t> s = Strides(to_space ? tall : wide);
  const Shape& sizes = to_space ? wide : tall;
  Copy(kOnlyInput, {0, {s[0], s[1], s[3], s[2], s[4], s[5]}}, kOnlyOutput, {0, Strides(sizes)},
       sizes);
  return Status();
}

Status Planner::Plan() {
  static constexpr struct {
    OpType type;
    Status (Planner::*plan)();
  } kPlans[] = {{OpType::kEXPAND_DIMS, &Planner::PlanAll},
                {OpType::kRESHAPE, &Planner::PlanAll},
                {OpType::kSQUEEZE, &Planner::PlanAll},
                {OpType::kSLICE, &Planner::PlanSlice},
                {OpType::kSTRIDED_SLICE, &Planner::PlanSlice},
                {OpType::kSPLIT, &Planner::PlanSplit},
                {OpType::kSPLIT_V, &Planner::PlanSplit},
                {OpType::kPACK, &Planner::PlanPack},
                {OpType::kUNPACK, &Planner::PlanUnpack},
                {OpType::kTRANSPOSE, &Planner::PlanTranspose},
                {OpType::kTILE, &Planner::PlanTile},
                {OpType::kPAD, &Planner::PlanPad},
                {OpType::kPADV2, &Planner::PlanPad},
                {OpType::kMIRROR_PAD, &Planner::PlanMirrorPad},
                {OpType::kSPACE_TO_BATCH_ND, &Planner::PlanSpaceToBatch},
                {OpType::kBATCH_TO_SPACE_ND, &Planner::PlanBatchToSpace},
                {OpType::kDEPTH_TO_SPACE, &Planner::PlanDepthToSpace},
                {OpType::kSPACE_TO_DEPTH, &Planner::PlanDepthToSpace}};
  for (const auto& [type, plan] : kPlans) {
    if (type == node_.type) return (this->*plan)();
  }
  return InternalError("%s does not only move elements", node_.op_name().c_str());
}

}  // namespace

Result<MovePlan> MakeMovePlan(const Graph& graph, const Node& node) {
  const size_t data = node.type == OpType::kSPLIT ? 1 : 0;
  const Tensor& input = *graph.Input(node, data);
  const size_t element_bytes = DataTypeSize(input.type);
  if (element_bytes == 0) return Unsupported("type %s", DataTypeName(input.type));
  std::vector<const Tensor*> others;
  for (size_t i = 0; i < node.outputs.size(); ++i) others.push_back(&graph.Output(node, i));
  for (size_t i = 1; node.type == OpType::kPACK && i < node.inputs.size(); ++i) {
    others.push_back(graph.Input(node, i));
  }
  for (const Tensor* other : others) {
    if (other->type != input.type) {
      return CorruptModel("'%s' is %s but '%s' is %s; they must be the same", input.name.c_str(),
                          DataTypeName(input.type), other->name.c_str(), DataTypeName(other->type));
    }
  }
  Planner planner(graph, node, element_bytes);
  ATOLL_RETURN_IF_ERROR(planner.Plan());
  return std::move(planner).Take();
}

}  // namespace atollrt
