// SPDX-License-Identifier: Apache-2.0
//
// Recipes of operators that move elements without looking at them.
#include <algorithm>
#include <numeric>

#include "tests/support/random_graph/graph_maker.h"

namespace atollrt {
namespace {

// An image whose size along `axis` is a multiple of `factor`, if the elements allow it.
int32_t ImageWithFactor(GraphMaker& g, size_t axis, int32_t factor) {
  const int32_t x = g.Image();
  const Shape shape = g.shape(x);
  if (shape[axis] % factor == 0 || g.elements(x) % factor != 0) return x;
  Shape rest = g.ShapeOf(g.elements(x) / factor, 4);
  rest[axis] *= factor;
  return g.Reshaped(x, std::move(rest));
}

int32_t PairList(GraphMaker& g, const std::vector<int32_t>& pairs) {
  return g.Integers({static_cast<int32_t>(pairs.size() / 2), 2}, pairs);
}

}  // namespace

// ---- Other shapes of the same bytes -------------------------------------------------------------

bool MakeReshape(GraphMaker& g, OpType type) {
  const int32_t x = g.Any();
  const int64_t count = g.elements(x);
  Shape target = g.ShapeOf(count, g.choose().Int(count == 1 ? 0 : 1, 5));
  if (!target.empty() && g.choose().OneIn(3)) {
    target[static_cast<size_t>(g.Axis(target))] = -1;
  }
  std::vector<int32_t> inputs{x};
  ReshapeOptions options;
  if (g.choose().OneIn(2)) {
    inputs.push_back(g.Int32s({GraphMaker::Rank(target)}, target));
  } else {
    options.new_shape = target;
  }
  g.Node(type, std::move(inputs), g.Like(x), options);
  return true;
}

bool MakeSqueeze(GraphMaker& g, OpType type) {
  const int32_t x = g.Any();
  const Shape shape = g.shape(x);
  SqueezeOptions options;
  for (int32_t axis = 0; axis < GraphMaker::Rank(shape); ++axis) {
    if (shape[static_cast<size_t>(axis)] == 1 && g.choose().OneIn(2)) {
      options.dims.push_back(g.Stored(axis, shape));
    }
  }
  g.Node(type, {x}, g.Like(x), options);
  return true;
}

bool MakeExpandDims(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(0, 5);
  const int32_t rank = GraphMaker::Rank(g.shape(x));
  g.Node(type, {x, g.Integers({}, {g.choose().Int(-rank - 1, rank)})}, g.Like(x));
  return true;
}

// ---- Parts and wholes ---------------------------------------------------------------------------

bool MakeConcatenation(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  const Shape shape = g.shape(x);
  const int32_t axis = g.Axis(shape);
  // Parts of uint8 are rescaled, others must be stored alike.
  const bool alike = g.type(x) != DataType::kUInt8 || g.choose().OneIn(3);
  const NumberFormat output = alike ? g.Like(x) : g.Around(DataType::kUInt8, g.scale(x));
  std::vector<int32_t> parts{x};
  for (int32_t more = g.choose().Int(0, 3); more > 0; --more) {
    Shape wanted = shape;
    int32_t& size = wanted[static_cast<size_t>(axis)];
    if (g.choose().OneIn(3)) size = g.choose().Int(1, size + 2);
    int32_t part = g.Partner(x, wanted);
    const Quantization& q = g.graph().tensors[part].quantization;
    if (alike && (q.scales != output.quantization.scales ||
                  q.zero_points != output.quantization.zero_points)) {
      part = g.Requantized(part, output);
    }
    parts.push_back(part);
  }
  if (g.choose().OneIn(3)) std::reverse(parts.begin(), parts.end());
  g.Node(type, std::move(parts), output, AxisOptions{.axis = g.Stored(axis, shape)});
  return true;
}

bool MakePack(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(0, 4);
  const Shape shape = g.shape(x);
  std::vector<int32_t> parts{x};
  for (int32_t more = g.choose().Int(0, 3); more > 0; --more) parts.push_back(g.Partner(x, shape));
  const int32_t rank = GraphMaker::Rank(shape);
  const AxisOptions options{.axis = g.choose().Int(-rank - 1, rank),
                            .count = static_cast<int32_t>(parts.size())};
  g.Node(type, std::move(parts), g.Like(x), options);
  return true;
}

bool MakeUnpack(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  const Shape shape = g.shape(x);
  const int32_t axis = g.Axis(shape);
  const int32_t count = shape[static_cast<size_t>(axis)];
  if (count > 8) return false;
  g.Nodes(type, {x}, g.Like(x), count, AxisOptions{.axis = g.Stored(axis, shape), .count = count});
  return true;
}

bool MakeSplit(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  const Shape shape = g.shape(x);
  const int32_t axis = g.Axis(shape);
  const int32_t count = g.Divisor(shape[static_cast<size_t>(axis)], 6);
  const int32_t stored = g.Integers({}, {g.Stored(axis, shape)});
  g.Nodes(type, {stored, x}, g.Like(x), count, SplitOptions{.num_splits = count});
  return true;
}

bool MakeSplitV(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  const Shape shape = g.shape(x);
  const int32_t axis = g.Axis(shape);
  const int32_t count = g.choose().Int(1, 4);
  std::vector<int32_t> sizes;
  int32_t rest = shape[static_cast<size_t>(axis)];
  for (int32_t i = 1; i < count; ++i) {
    // Parts of nothing are rare; all but the last one leave something.
    sizes.push_back(rest == 1 || g.choose().OneIn(12) ? 0 : g.choose().Int(1, rest - 1));
    rest -= sizes.back();
  }
  sizes.push_back(rest);
  if (g.choose().OneIn(3)) sizes[static_cast<size_t>(g.choose().Int(0, count - 1))] = -1;
  const int32_t lengths = g.Indices(sizes);
  const int32_t stored = g.Integers({}, {g.Stored(axis, shape)});
  g.Nodes(type, {x, lengths, stored}, g.Like(x), count, SplitOptions{.num_splits = count});
  return true;
}

// ---- Slices -------------------------------------------------------------------------------------

bool MakeSlice(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  const Shape shape = g.shape(x);
  std::vector<int32_t> begins, sizes;
  for (const int32_t size : shape) {
    begins.push_back(g.choose().OneIn(2) ? 0 : g.choose().Int(0, size - 1));
    const int32_t rest = size - begins.back();
    sizes.push_back(g.choose().OneIn(2) ? rest : g.choose().Int(1, rest));
    if (sizes.back() == rest && g.choose().OneIn(2)) sizes.back() = -1;
  }
  if (g.choose().OneIn(20)) sizes[static_cast<size_t>(g.Axis(shape))] = 0;
  g.Node(type, {x, g.Indices(begins), g.Indices(sizes)}, g.Like(x));
  return true;
}

namespace {

// The operands of a STRIDED_SLICE, entry by entry.
struct SliceEntries {
  std::vector<int32_t> begins, ends, strides;
  StridedSliceOptions options;

  int32_t bit() const { return 1 << begins.size(); }
  void Add(int32_t begin, int32_t end, int32_t stride) {
    begins.push_back(begin);
    ends.push_back(end);
    strides.push_back(stride);
  }
};

// At least one element of an axis.
void AddSliceEntry(GraphMaker& g, int32_t size, SliceEntries* entries) {
  Choices& choose = g.choose();
  StridedSliceOptions& options = entries->options;
  const int32_t begin = choose.OneIn(2) ? 0 : choose.Int(0, size - 1);
  // From either end, as files store it.
  const auto stored = [&](int32_t index) { return choose.OneIn(4) ? index - size : index; };
  if (choose.OneIn(8)) {
    options.shrink_axis_mask |= entries->bit();
    entries->Add(stored(begin), begin + 1, 1);
    return;
  }
  if (choose.OneIn(4)) options.begin_mask |= entries->bit();
  if (choose.OneIn(4)) options.end_mask |= entries->bit();
  if (!options.offset && choose.OneIn(5)) {
    // Backwards; the place before the first element is one size below it.
    const int32_t last = stored(choose.Int(begin, size - 1));
    entries->Add(last, begin == 0 ? -size - 1 : begin - 1, -choose.Int(1, 3));
    return;
  }
  const int32_t end = choose.OneIn(2) ? size : choose.Int(begin + 1, size);
  const int32_t stride = choose.Pick({1, 1, 2, 3});
  if (options.offset) {
    const bool from_start = (options.begin_mask & entries->bit()) != 0;
    entries->Add(begin, from_start ? end : end - begin, stride);
  } else {
    const int32_t stored_end = end == size ? size + choose.Int(0, 2) : stored(end);
    entries->Add(stored(begin), stored_end, stride);
  }
}

}  // namespace

bool MakeStridedSlice(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  const Shape shape = g.shape(x);
  const int32_t rank = GraphMaker::Rank(shape);
  SliceEntries entries;
  entries.options.offset = g.choose().OneIn(8);
  // Axes that no entry names: behind an ellipsis or at the end.
  const int32_t first_unnamed = g.choose().Int(0, rank);
  const int32_t next_named = g.choose().OneIn(3) ? g.choose().Int(first_unnamed, rank) : rank;
  const bool has_ellipsis = next_named < rank || g.choose().OneIn(4);
  for (int32_t axis = 0; axis <= rank; ++axis) {
    if (axis == first_unnamed) {
      if (has_ellipsis) {
        entries.options.ellipsis_mask = entries.bit();
        entries.Add(0, 0, 1);
      }
      axis = next_named;
    }
    if (g.choose().OneIn(10)) {
      entries.options.new_axis_mask |= entries.bit();
      entries.Add(0, 0, 1);
    }
    if (axis < rank) AddSliceEntry(g, shape[static_cast<size_t>(axis)], &entries);
  }
  g.Node(type, {x, g.Indices(entries.begins), g.Indices(entries.ends), g.Indices(entries.strides)},
         g.Like(x), entries.options);
  return true;
}

// ---- Rearrangements -----------------------------------------------------------------------------

bool MakeTranspose(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  const Shape shape = g.shape(x);
  std::vector<int32_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  for (int32_t i = GraphMaker::Rank(shape) - 1; i > 0; --i) {
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(g.choose().Int(0, i))]);
  }
  for (int32_t& axis : order) axis = g.Stored(axis, shape);
  g.Node(type, {x, g.Indices(order)}, g.Like(x));
  return true;
}

bool MakeTile(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  std::vector<int32_t> multiples;
  for (size_t i = 0; i < g.shape(x).size(); ++i) {
    multiples.push_back(g.choose().Pick({1, 1, 1, 2, 3}));
  }
  g.Node(type, {x, g.Indices(multiples)}, g.Like(x));
  return true;
}

// PAD, PADV2.
bool MakePad(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  const Shape shape = g.shape(x);
  std::vector<int32_t> paddings;
  for (size_t i = 0; i < 2 * shape.size(); ++i) {
    // Seldom of images and channels.
    const bool is_inner = shape.size() == 4 && (i / 2 == 1 || i / 2 == 2);
    paddings.push_back(g.choose().OneIn(is_inner ? 2 : 6) ? g.choose().Int(1, 4) : 0);
  }
  std::vector<int32_t> inputs{x, PairList(g, paddings)};
  if (type == OpType::kPADV2) inputs.push_back(g.Constant(g.Like(x), {}));
  g.Node(type, std::move(inputs), g.Like(x));
  return true;
}

bool MakeMirrorPad(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 5);
  const MirrorPadMode mode = g.choose().Pick({MirrorPadMode::kReflect, MirrorPadMode::kSymmetric});
  std::vector<int32_t> paddings;
  for (const int32_t size : g.shape(x)) {
    const int32_t most = std::min(size - (mode == MirrorPadMode::kReflect ? 1 : 0), 5);
    for (int i = 0; i < 2; ++i) {
      paddings.push_back(g.choose().OneIn(3) ? g.choose().Int(0, most) : 0);
    }
  }
  g.Node(type, {x, PairList(g, paddings)}, g.Like(x), MirrorPadOptions{.mode = mode});
  return true;
}

bool MakeSpaceToBatch(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(3, 4);
  const Shape shape = g.shape(x);
  std::vector<int32_t> blocks, paddings;
  for (size_t axis = 1; axis + 1 < shape.size(); ++axis) {
    const int32_t block = g.choose().Int(1, 3);
    const int32_t missing =
        (block - shape[axis] % block) % block + (g.choose().OneIn(4) ? block : 0);
    const int32_t before = g.choose().Int(0, missing);
    blocks.push_back(block);
    paddings.insert(paddings.end(), {before, missing - before});
  }
  g.Node(type, {x, g.Indices(blocks), PairList(g, paddings)}, g.Like(x));
  return true;
}

bool MakeBatchToSpace(GraphMaker& g, OpType type) {
  const int32_t x = ImageWithFactor(g, 0, g.choose().Pick({4, 2, 6}));
  const Shape shape = g.shape(x);
  const int32_t block_h = g.Divisor(shape[0], 3);
  const int32_t block_w = g.Divisor(shape[0] / block_h, 3);
  const std::vector<int32_t> blocks{block_h, block_w};
  std::vector<int32_t> crops;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const int32_t spare = shape[i + 1] * blocks[i] - 1;
    const int32_t before = g.choose().OneIn(3) ? g.choose().Int(0, std::min(spare, 3)) : 0;
    const int32_t after = g.choose().OneIn(3) ? g.choose().Int(0, std::min(spare - before, 3)) : 0;
    crops.insert(crops.end(), {before, after});
  }
  g.Node(type, {x, g.Indices(blocks), PairList(g, crops)}, g.Like(x));
  return true;
}

bool MakeSpaceToDepth(GraphMaker& g, OpType type) {
  const int32_t x = ImageWithFactor(g, 1, 2);
  const Shape shape = g.shape(x);
  const int32_t block = g.Divisor(std::gcd(shape[1], shape[2]), 4);
  g.Node(type, {x}, g.Like(x), BlockOptions{.block_size = block});
  return true;
}

bool MakeDepthToSpace(GraphMaker& g, OpType type) {
  const int32_t x = ImageWithFactor(g, 3, g.choose().Pick({4, 9}));
  const int32_t channels = g.shape(x)[3];
  const int32_t block = channels % 4 == 0 ? 2 : channels % 9 == 0 ? 3 : 1;
  g.Node(type, {x}, g.Like(x), BlockOptions{.block_size = block});
  return true;
}

// ---- Elements at places that other tensors name -------------------------------------------------

namespace {

// `count` constant numbers below `limit`, or rows of them below each of several limits.
int32_t RandomPlaces(GraphMaker& g, Shape shape, const std::vector<int32_t>& limits) {
  const int64_t count = ElementCount(shape);
  std::vector<int32_t> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(g.choose().Int(0, limits[static_cast<size_t>(i) % limits.size()] - 1));
  }
  return g.Integers(std::move(shape), values);
}

}  // namespace

bool MakeGather(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 4);
  const Shape shape = g.shape(x);
  const int32_t axis = g.Axis(shape);
  const int32_t size = shape[static_cast<size_t>(axis)];
  if (g.choose().OneIn(4)) {
    // Places that are computed.
    const DataType wide = g.choose().Pick({DataType::kInt32, DataType::kInt64});
    const int32_t places = g.Node(OpType::kARG_MAX, {x, g.Integers({}, {axis})}, g.Plain(wide));
    g.Node(type, {x, places}, g.Like(x), AxisOptions{.axis = g.Stored(axis, shape)});
    return true;
  }
  const int32_t batch_dims = g.choose().OneIn(3) ? g.choose().Int(0, axis) : 0;
  Shape places(shape.begin(), shape.begin() + batch_dims);
  for (int32_t more = g.choose().Pick({1, 1, 0, 2}); more > 0; --more) {
    places.push_back(g.choose().Int(1, 5));
  }
  if (ElementCount(places) > 4096) return false;
  const int32_t indices = RandomPlaces(g, places, {size});
  g.Node(type, {x, indices}, g.Like(x),
         AxisOptions{.axis = g.Stored(axis, shape), .count = batch_dims});
  return true;
}

bool MakeGatherNd(GraphMaker& g, OpType type) {
  const int32_t x = g.OfRank(1, 4);
  const Shape shape = g.shape(x);
  const int32_t width = g.choose().Int(1, GraphMaker::Rank(shape));
  Shape places;
  for (int32_t more = g.choose().Pick({1, 1, 0, 2}); more > 0; --more) {
    places.push_back(g.choose().Int(1, 5));
  }
  places.push_back(width);
  const int32_t indices = RandomPlaces(g, places, {shape.begin(), shape.begin() + width});
  g.Node(type, {x, indices}, g.Like(x));
  return true;
}

}  // namespace atollrt
