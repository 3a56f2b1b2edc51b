// SPDX-License-Identifier: Apache-2.0
//
// GraphMaker: a random graph in the making, and what its recipes (recipes.inc) build with. A
// recipe appends a node of its operator, and whatever that needs, to what is there already; the
// maker takes all of it back if it has become too large. Compilers evaluate the arguments of a call
// in different orders, so no call has two that choose. Not for use outside this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/zoo/owned_graph.h"
#include "runtime/ops/type_set.h"
#include "tests/support/choices.h"
#include "tests/support/random_graph.h"
#include "tests/support/rng.h"

namespace atollrt {

// What READ_VARIABLE and ASSIGN_VARIABLE name.
struct NamedVariable {
  std::string name;
  Shape shape;
  NumberFormat format;
};

class GraphMaker {
 public:
  GraphMaker(Choices* choices, const RandomGraphOptions& options);

  std::vector<uint8_t> Make();

  // ---- Choices --------------------------------------------------------------------------------

  Choices& choose() { return choices_; }
  // A divisor of `count`, at most `limit`.
  int32_t Divisor(int64_t count, int32_t limit);
  int32_t Axis(const Shape& shape) { return choose().Int(0, Rank(shape) - 1); }
  // `axis` as a file may store it: counted from either end.
  int32_t Stored(int32_t axis, const Shape& shape) {
    return choose().OneIn(3) ? axis - Rank(shape) : axis;
  }
  // Of a filter's output: few different numbers, so that shapes meet again.
  int32_t Channels() { return choose().Pick({4, 8, choose().Int(1, 12), choose().Int(1, 40)}); }
  // Sizes whose product is `count`.
  Shape ShapeOf(int64_t count, int32_t rank);
  // For results that are stored so.
  Activation FusedActivation(const NumberFormat& output);
  static int32_t Rank(const Shape& shape) { return static_cast<int32_t>(shape.size()); }

  // ---- Operands -------------------------------------------------------------------------------

  // Quantized tensors with at least one element and of a type that the operator in the making
  // accepts: any, one whose rank is in a range, one of four dimensions. They may come out of a new
  // node that makes them so.
  int32_t Any();
  int32_t OfRank(int32_t low, int32_t high);
  int32_t Image();
  // A tensor of `like`'s type and of this shape, from anywhere.
  int32_t Partner(int32_t like, const Shape& shape);
  // The same shape, or one that broadcasts with it.
  int32_t BroadcastPartner(int32_t like);
  int32_t AsType(int32_t tensor, DataType type);
  int32_t Reshaped(int32_t tensor, Shape shape);
  int32_t Requantized(int32_t tensor, const NumberFormat& format);

  const Shape& shape(int32_t tensor) const { return graph().tensors[tensor].shape; }
  DataType type(int32_t tensor) const { return graph().tensors[tensor].type; }
  double scale(int32_t tensor) const {
    return static_cast<double>(graph().tensors[tensor].scale());
  }
  int64_t elements(int32_t tensor) const { return graph().tensors[tensor].element_count(); }

  // ---- Formats --------------------------------------------------------------------------------

  NumberFormat Like(int32_t tensor) const {
    return {type(tensor), graph().tensors[tensor].quantization};
  }
  NumberFormat Fixed(DataType type, float scale, int32_t zero_point) const {
    return {type, {.scales = {scale}, .zero_points = {zero_point}}};
  }
  NumberFormat Plain(DataType type) const { return {type, {}}; }
  // Any scale and zero point.
  NumberFormat Anything(DataType type);
  // A scale around a natural one for the values that are stored, never below `lowest`.
  NumberFormat Around(DataType type, double natural, double lowest = 0);

  // ---- Constants ------------------------------------------------------------------------------

  // Of random bytes.
  int32_t Constant(NumberFormat format, Shape shape);
  int32_t Int32s(Shape shape, const std::vector<int32_t>& values);
  // The same or, where operators accept both, maybe int64.
  int32_t Integers(Shape shape, const std::vector<int32_t>& values);
  int32_t Indices(const std::vector<int32_t>& values) {
    return Integers({static_cast<int32_t>(values.size())}, values);
  }
  // Weights for activations of `type`: one scale or one per entry of `dimension`. Another node may
  // have them, too.
  int32_t Weights(DataType type, Shape shape, int32_t dimension);
  double WeightScale(int32_t weights) const {
    return static_cast<double>(graph().tensors[weights].quantization.scales[0]);
  }
  // For activations of `type`, or -1: there may be none.
  int32_t Bias(DataType type, int32_t channels);
  int32_t VariableTensor(NumberFormat format, Shape shape);

  // ---- Nodes ----------------------------------------------------------------------------------

  int32_t Node(OpType type, std::vector<int32_t> inputs, const NumberFormat& output,
               OpOptions options = {});
  // With `count` outputs.
  std::vector<int32_t> Nodes(OpType type, std::vector<int32_t> inputs, const NumberFormat& output,
                             int32_t count, OpOptions options);

  std::vector<NamedVariable>& variables() { return variables_; }
  std::optional<OwnedGraph>& initialization() { return initialization_; }
  OwnedGraph& model() { return model_; }
  const Graph& graph() const { return model_.graph; }

 private:
  struct Recipe;

  void StartGraph();
  Shape InputShape();
  void AddNodes();
  bool Follow(const Recipe& recipe);
  bool IsAffordable(size_t first_tensor, size_t first_node);
  // Numbers with one scale that other operators can read.
  bool IsOperand(int32_t tensor) const;
  std::vector<bool> ReadTensors() const;  // whether a node reads it
  // A constant that is there already and `fits`, or -1.
  template <typename Fits>
  int32_t SharedConstant(DataType type, const Shape& shape, Fits fits);
  void ShrinkEnds();
  void NameOutputs();
  void FillBytes(std::vector<uint8_t>* bytes);
  int32_t ZeroPoint(DataType type);
  float Mantissa() { return 1.0f + static_cast<float>(choose().Int(0, 255)) / 256; }

  Choices& choices_;
  const RandomGraphOptions& options_;
  Rng data_;  // bytes of constants, which no fuzzer needs to see
  OwnedGraph model_;
  std::optional<OwnedGraph> initialization_;  // the graph that CALL_ONCE names, if any
  std::vector<NamedVariable> variables_;
  std::vector<int32_t> pool_;        // tensors that operators may read
  DataType type_ = DataType::kInt8;  // of inputs
  TypeSet accepted_ = types::kNone;  // by the operator in the making
  bool large_images_ = false;
  bool on_images_ = false;      // most operators are those of networks on images
  int32_t chain_percent_ = 50;  // how often an operator reads what the last one wrote
  double work_ = 0;
};

// The functions of recipes.inc. False if there is nothing there that the operator could read.
#define ATOLL_RECIPE(NAME, weight, weight_on_images, Make) bool Make(GraphMaker& g, OpType type);
#include "tests/support/random_graph/recipes.inc"
#undef ATOLL_RECIPE

}  // namespace atollrt
