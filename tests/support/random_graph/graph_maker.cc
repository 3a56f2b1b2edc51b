// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_graph/graph_maker.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <utility>

#include "atoll/check.h"
#include "runtime/kernels/quantization/quantization.h"
#include "runtime/ops/apart_ops.h"
#include "runtime/ops/cpu_ops.h"
#include "runtime/ops/tensor_checks.h"
#include "runtime/shapes/shape_inference.h"
#include "tests/support/model_builder.h"
#include "tests/support/work.h"

namespace atollrt {

struct GraphMaker::Recipe {
  OpType type;
  int32_t weight, weight_on_images;
  bool (*make)(GraphMaker& g, OpType type);
};

namespace {

// What the CPU lets an operator read; where that is nothing quantized, the recipe converts.
TypeSet AcceptedTypes(OpType type) {
  const auto of_type = [type](const CpuOp& op) { return op.type == type; };
  const auto op = std::find_if(CpuOps().begin(), CpuOps().end(), of_type);
  if (op == CpuOps().end() || !op->types.Contains(DataType::kInt8)) return types::kPlain;
  const auto apart = std::find_if(ApartOps().begin(), ApartOps().end(), of_type);
  const bool takes_int16 = apart != ApartOps().end() && apart->types.Contains(DataType::kInt16);
  return takes_int16 ? op->types | types::kInt16 : op->types;
}

}  // namespace

GraphMaker::GraphMaker(Choices* choices, const RandomGraphOptions& options)
    : choices_(*choices), options_(options), data_(static_cast<uint64_t>(choices->Int(0, 255))) {}

std::vector<uint8_t> RandomModel(Choices* choices, const RandomGraphOptions& options) {
  return GraphMaker(choices, options).Make();
}

// ---- The graph ----------------------------------------------------------------------------------

std::vector<uint8_t> GraphMaker::Make() {
  StartGraph();
  AddNodes();
  if (large_images_) ShrinkEnds();
  NameOutputs();
  std::vector<const Graph*> graphs{&graph()};
  if (initialization_) graphs.push_back(&initialization_->graph);
  return WriteGraphs(graphs);
}

void GraphMaker::StartGraph() {
  type_ = choose().OneIn(3) ? DataType::kUInt8 : DataType::kInt8;
  if (choose().OneIn(9)) type_ = DataType::kInt16;
  large_images_ = choose().OneIn(3);
  on_images_ = choose().OneIn(large_images_ ? 2 : 6);
  chain_percent_ = choose().Pick({50, 90, 10});
  for (int32_t inputs = choose().OneIn(3) ? 2 : 1; inputs > 0; --inputs) {
    Shape shape = InputShape();
    pool_.push_back(model_.AddInput(Anything(type_), std::move(shape)));
  }
}

Shape GraphMaker::InputShape() {
  Shape shape;
  if (large_images_) {
    shape = {choose().OneIn(8) ? 2 : 1, choose().Int(16, 80), choose().Int(16, 64),
             choose().Int(1, 6)};
  } else {
    shape.resize(static_cast<size_t>(choose().Pick({4, 4, 4, 4, 4, 3, 2, 1, 5})));
    for (int32_t& size : shape) size = choose().Int(1, 17);
    if (!choose().OneIn(4)) shape[0] = 1;
  }
  // Halved along the largest dimension until it leaves room for wider tensors.
  while (ElementCount(shape) > options_.max_elements / 4) {
    int32_t& largest = *std::max_element(shape.begin(), shape.end());
    largest = (largest + 1) / 2;
  }
  return shape;
}

void GraphMaker::AddNodes() {
  static constexpr Recipe kRecipes[] = {
#define ATOLL_RECIPE(NAME, weight, weight_on_images, Make) \
  {OpType::k##NAME, weight, weight_on_images, Make},
#include "tests/support/random_graph/recipes.inc"
#undef ATOLL_RECIPE
  };
  // Operators that are liked come so much more often that long runs of them occur.
  constexpr int32_t kLiked = 12;
  const bool likes = options_.likes != nullptr && !choose().OneIn(3);
  std::vector<int32_t> ends;  // of each recipe's share
  int32_t total = 0;
  for (const Recipe& recipe : kRecipes) {
    int32_t share = on_images_ ? recipe.weight_on_images : recipe.weight;
    if (likes && options_.likes(recipe.type)) share *= kLiked;
    // All others turn what they read into bytes.
    if (type_ == DataType::kInt16 && AcceptedTypes(recipe.type).Contains(type_)) share *= kLiked;
    total += share;
    ends.push_back(total);
  }
  // A quarter of many graphs is one operator, so that each has graphs full of it.
  const Recipe* favourite = nullptr;
  if (choose().OneIn(2)) favourite = &kRecipes[choose().Int(0, std::size(kRecipes) - 1)];
  const int32_t nodes = choose().Int(1, options_.max_nodes);
  // What cannot be made or is too large counts, too, so that this ends.
  for (int32_t i = 0; i < 2 * nodes && static_cast<int32_t>(graph().nodes.size()) < nodes; ++i) {
    if (choose().exhausted()) break;
    if (favourite != nullptr && choose().OneIn(4)) {
      Follow(*favourite);
      continue;
    }
    const int32_t choice = choose().Int(0, total - 1);
    Follow(kRecipes[std::upper_bound(ends.begin(), ends.end(), choice) - ends.begin()]);
  }
  // A graph of nothing would compute nothing.
  if (graph().nodes.empty()) ATOLL_CHECK(MakeFunction(*this, OpType::kRELU));
}

// Adds what the recipe makes, or nothing.
bool GraphMaker::Follow(const Recipe& recipe) {
  Graph& graph = model_.graph;
  const size_t tensors = graph.tensors.size();
  const size_t nodes = graph.nodes.size();
  const size_t inputs = graph.inputs.size();
  const std::vector<NamedVariable> variables = variables_;
  const bool had_initialization = initialization_.has_value();
  accepted_ = AcceptedTypes(recipe.type);
  if (!recipe.make(*this, recipe.type) || !IsAffordable(tensors, nodes)) {
    graph.tensors.resize(tensors);
    graph.nodes.resize(nodes);
    graph.inputs.resize(inputs);
    variables_ = variables;
    if (!had_initialization) initialization_.reset();
    return false;
  }
  pool_.insert(pool_.end(), graph.inputs.begin() + static_cast<std::ptrdiff_t>(inputs),
               graph.inputs.end());
  for (size_t i = nodes; i < graph.nodes.size(); ++i) {
    for (const int32_t tensor : graph.nodes[i].outputs) {
      if (IsOperand(tensor)) pool_.push_back(tensor);
    }
  }
  return true;
}

bool GraphMaker::IsOperand(int32_t tensor) const {
  const Tensor& t = graph().tensors[tensor];
  const bool is_int16 = t.type == DataType::kInt16 && t.scale() > 0 && t.zero_point() == 0;
  return (IsByteType(t.type) || is_int16) && t.element_count() > 0;
}

bool GraphMaker::IsAffordable(size_t first_tensor, size_t first_node) {
  const std::vector<Tensor>& tensors = graph().tensors;
  for (size_t i = first_tensor; i < tensors.size(); ++i) {
    if (tensors[i].element_count() > options_.max_elements) return false;
  }
  double work = work_;
  for (size_t i = first_node; i < graph().nodes.size(); ++i) {
    work += WorkOf(graph(), graph().nodes[i]);
  }
  if (work > static_cast<double>(options_.max_work)) return false;
  work_ = work;
  return true;
}

std::vector<bool> GraphMaker::ReadTensors() const {
  std::vector<bool> is_read(graph().tensors.size());
  for (const auto& node : graph().nodes) {
    for (const int32_t tensor : node.inputs) {
      if (tensor >= 0) is_read[tensor] = true;
    }
  }
  return is_read;
}

// Networks end in less than they pass around inside, which lets a device compute them in bands.
void GraphMaker::ShrinkEnds() {
  const std::vector<bool> is_read = ReadTensors();
  for (const int32_t tensor : std::vector(pool_)) {
    constexpr int32_t kStride = 8;
    if (is_read[tensor] || shape(tensor).size() != 4 || elements(tensor) < 4096) continue;
    if (choose().OneIn(5)) continue;
    Node(OpType::kMAX_POOL_2D, {tensor}, Like(tensor),
         Pool2DOptions{.stride_h = kStride,
                       .stride_w = kStride,
                       .filter_h = choose().Int(1, kStride),
                       .filter_w = kStride});
  }
}

// Outputs are most tensors that nothing reads, some that something reads, and maybe one twice.
void GraphMaker::NameOutputs() {
  Graph& graph = model_.graph;
  const std::vector<bool> is_read = ReadTensors();
  std::vector<int32_t> written = graph.inputs;
  for (const auto& node : graph.nodes) {
    for (const int32_t tensor : node.outputs) {
      if (type(tensor) == DataType::kResource) continue;
      written.push_back(tensor);
      const bool is_output = is_read[tensor] ? choose().OneIn(10) : !choose().OneIn(10);
      if (is_output) graph.outputs.push_back(tensor);
    }
  }
  if (graph.outputs.empty()) graph.outputs.push_back(written.back());
  if (choose().OneIn(20)) graph.outputs.push_back(choose().Pick(written));
}

// ---- Choices ------------------------------------------------------------------------------------

int32_t GraphMaker::Divisor(int64_t count, int32_t limit) {
  std::vector<int32_t> divisors;
  for (int32_t i = 1; i <= limit && i <= count; ++i) {
    if (count % i == 0) divisors.push_back(i);
  }
  return choose().Pick(divisors);
}

Shape GraphMaker::ShapeOf(int64_t count, int32_t rank) {
  Shape shape;
  for (int32_t i = 0; i + 1 < rank; ++i) {
    // The first dimension of images is their number.
    const bool is_number = rank == 4 && i == 0;
    shape.push_back(is_number && !choose().OneIn(6) ? 1 : Divisor(count, is_number ? 4 : 100));
    count /= shape.back();
  }
  if (rank > 0) shape.push_back(static_cast<int32_t>(count));
  return shape;
}

Activation GraphMaker::FusedActivation(const NumberFormat& output) {
  if (!choose().OneIn(2)) return Activation::kNone;
  // Much larger numbers would all be at the bounds.
  const bool is_small = output.quantization.scales[0] < 0.1f || choose().OneIn(8);
  if (!is_small) return Activation::kRelu;
  return choose().Pick({Activation::kRelu, Activation::kRelu6, Activation::kReluN1To1});
}

// ---- Operands -----------------------------------------------------------------------------------

int32_t GraphMaker::Any() {
  const bool is_last = choose().Int(0, 99) < chain_percent_;
  const int32_t tensor = is_last ? pool_.back() : choose().Pick(pool_);
  return accepted_.Contains(type(tensor)) ? tensor : AsType(tensor, DataType::kInt8);
}

int32_t GraphMaker::OfRank(int32_t low, int32_t high) {
  const int32_t tensor = Any();
  const int32_t rank = Rank(shape(tensor));
  if (low <= rank && rank <= high) return tensor;
  for (auto other = pool_.rbegin(); other != pool_.rend() && choose().OneIn(2); ++other) {
    const int32_t other_rank = Rank(shape(*other));
    const bool fits = low <= other_rank && other_rank <= high;
    if (fits && accepted_.Contains(type(*other))) return *other;
  }
  return Reshaped(tensor, ShapeOf(elements(tensor), choose().Int(std::max(low, 1), high)));
}

int32_t GraphMaker::Image() { return OfRank(4, 4); }

int32_t GraphMaker::Partner(int32_t like, const Shape& wanted) {
  const int64_t count = ElementCount(wanted);
  // Seldom the tensor itself: many functions of it and it are the same everywhere.
  const bool accepts_itself = choose().OneIn(5);
  std::vector<int32_t> alike, reshapable;
  for (const int32_t tensor : pool_) {
    if (type(tensor) != type(like) || (tensor == like && !accepts_itself)) continue;
    if (shape(tensor) == wanted) alike.push_back(tensor);
    if (elements(tensor) == count) reshapable.push_back(tensor);
  }
  if (!alike.empty() && !choose().OneIn(4)) return choose().Pick(alike);
  if (!reshapable.empty() && choose().OneIn(2)) return Reshaped(choose().Pick(reshapable), wanted);
  if (choose().OneIn(6)) {
    const int32_t shared =
        SharedConstant(type(like), wanted, [](const Tensor& tensor) { return tensor.scale() > 0; });
    if (shared >= 0) return shared;
  }
  NumberFormat format = Like(like);
  if (choose().OneIn(2)) format = Around(type(like), scale(like));
  constexpr size_t kInputsMax = 5;
  if (graph().inputs.size() < kInputsMax && choose().OneIn(4))
    return model_.AddInput(format, wanted);
  return Constant(format, wanted);
}

int32_t GraphMaker::BroadcastPartner(int32_t like) {
  Shape wanted = shape(like);
  if (choose().OneIn(2)) {
    // Fewer dimensions, and single elements in others; or more where there is a single one.
    wanted.erase(wanted.begin(), wanted.begin() + choose().Int(0, Rank(wanted)));
    for (int32_t& size : wanted) {
      if (choose().OneIn(2)) size = size == 1 ? choose().Int(1, 4) : 1;
    }
  }
  return Partner(like, wanted);
}

int32_t GraphMaker::AsType(int32_t tensor, DataType wanted) {
  return type(tensor) == wanted ? tensor : Requantized(tensor, Anything(wanted));
}

int32_t GraphMaker::Reshaped(int32_t tensor, Shape wanted) {
  return Node(OpType::kRESHAPE, {tensor}, Like(tensor), ReshapeOptions{.new_shape = wanted});
}

int32_t GraphMaker::Requantized(int32_t tensor, const NumberFormat& format) {
  return Node(OpType::kQUANTIZE, {tensor}, format);
}

// ---- Formats ------------------------------------------------------------------------------------

// Near the middle as a rule: with others, activations are often the same everywhere.
int32_t GraphMaker::ZeroPoint(DataType type) {
  if (type == DataType::kInt16) return 0;
  const int32_t low = ByteMin(ToByteType(type));
  if (!choose().OneIn(4)) return low + 128 + choose().Int(-40, 40);
  return low + choose().Pick({0, 0, 255, choose().Int(0, 255)});
}

NumberFormat GraphMaker::Anything(DataType type) {
  const int32_t exponent = choose().OneIn(24) ? choose().Int(-24, 8) : choose().Int(-8, -2);
  const int32_t finer = type == DataType::kInt16 ? 8 : 0;
  const float scale = std::ldexp(Mantissa(), exponent - finer);
  return Fixed(type, scale, ZeroPoint(type));
}

NumberFormat GraphMaker::Around(DataType type, double natural, double lowest) {
  const int32_t exponent = choose().OneIn(24) ? choose().Int(-12, 12) : choose().Int(-2, 1);
  const double wanted = std::ldexp(natural * static_cast<double>(Mantissa()), exponent);
  constexpr double kLowest = 0x1p-40;
  constexpr double kHighest = 0x1p20;
  const double scale = std::clamp(wanted, std::max(kLowest, lowest), std::max(kHighest, lowest));
  return Fixed(type, static_cast<float>(scale), ZeroPoint(type));
}

// ---- Constants ----------------------------------------------------------------------------------

void GraphMaker::FillBytes(std::vector<uint8_t>* bytes) {
  data_.Fill(*bytes);
  if (!choose().OneIn(20)) return;
  const uint8_t extreme = choose().Pick<uint8_t>({0x80, 0x7f, 0x00, 0xff});
  std::fill(bytes->begin(), bytes->end(), extreme);
}

int32_t GraphMaker::Constant(NumberFormat format, Shape shape) {
  std::vector<uint8_t> bytes(static_cast<size_t>(ElementCount(shape)) * DataTypeSize(format.type));
  FillBytes(&bytes);
  return model_.AddConstant(std::move(format), std::move(shape), std::move(bytes));
}

int32_t GraphMaker::Int32s(Shape shape, const std::vector<int32_t>& values) {
  return model_.AddNumbers(DataType::kInt32, std::move(shape), values);
}

int32_t GraphMaker::Integers(Shape shape, const std::vector<int32_t>& values) {
  if (values.empty() || !choose().OneIn(4)) return Int32s(std::move(shape), values);
  return model_.AddNumbers(DataType::kInt64, std::move(shape),
                           std::vector<int64_t>(values.begin(), values.end()));
}

template <typename Fits>
int32_t GraphMaker::SharedConstant(DataType type, const Shape& shape, Fits fits) {
  const std::vector<Tensor>& tensors = graph().tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i];
    if (tensor.is_constant() && tensor.type == type && tensor.shape == shape && fits(tensor)) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

int32_t GraphMaker::Weights(DataType type, Shape shape, int32_t dimension) {
  if (type == DataType::kInt16) type = DataType::kInt8;
  const int32_t channels = shape[static_cast<size_t>(dimension)];
  if (choose().OneIn(4)) {
    const int32_t shared = SharedConstant(type, shape, [&](const Tensor& tensor) {
      const Quantization& q = tensor.quantization;
      const bool is_centred = type == DataType::kUInt8 || q.zero_points[0] == 0;
      return is_centred && (q.scales.size() == 1 || q.dimension == dimension);
    });
    if (shared >= 0) return shared;
  }
  const int32_t exponent = choose().Int(-12, -6);
  const double base = std::ldexp(static_cast<double>(Mantissa()), exponent);
  NumberFormat format = Fixed(type, static_cast<float>(base),
                              type == DataType::kUInt8 ? ZeroPoint(DataType::kUInt8) : 0);
  if (type == DataType::kInt8 && !choose().OneIn(4)) {
    Quantization& q = format.quantization;
    q.dimension = dimension;
    // Channels of zeros have scale 0 in published models.
    const bool has_dead_channels = choose().OneIn(12);
    for (int32_t c = 1; c < channels; ++c) {
      const bool is_dead = has_dead_channels && data_.OneIn(4);
      q.scales.push_back(is_dead ? 0 : static_cast<float>(base * (0.25 + 2 * data_.Real())));
      q.zero_points.push_back(0);
    }
  }
  return Constant(std::move(format), std::move(shape));
}

int32_t GraphMaker::Bias(DataType type, int32_t channels) {
  if (choose().OneIn(5)) return -1;
  const bool is_int16 = type == DataType::kInt16;
  const int32_t limit = choose().OneIn(24) ? INT32_MAX : 1 << choose().Int(0, is_int16 ? 22 : 14);
  std::vector<int32_t> values;
  for (int32_t c = 0; c < channels; ++c) values.push_back(data_.Int32(-limit, limit));
  return is_int16 ? Integers({channels}, values) : Int32s({channels}, values);
}

int32_t GraphMaker::VariableTensor(NumberFormat format, Shape shape) {
  const int32_t index = model_.AddTensor(std::move(format), std::move(shape));
  model_.tensor(index).is_variable = true;
  return index;
}

// ---- Nodes --------------------------------------------------------------------------------------

int32_t GraphMaker::Node(OpType type, std::vector<int32_t> inputs, const NumberFormat& output,
                         OpOptions options) {
  return Nodes(type, std::move(inputs), output, 1, std::move(options))[0];
}

std::vector<int32_t> GraphMaker::Nodes(OpType type, std::vector<int32_t> inputs,
                                       const NumberFormat& output, int32_t count,
                                       OpOptions options) {
  std::vector<int32_t> outputs;
  for (int32_t i = 0; i < count; ++i) outputs.push_back(model_.AddTensor(output, {}));
  model_.AddNode(type, std::move(inputs), outputs, std::move(options));
  const Status status = InferShapes(&model_.graph);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  ATOLL_CHECK(status.ok());  // a recipe makes something invalid
  return outputs;
}

}  // namespace atollrt
