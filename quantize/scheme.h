// SPDX-License-Identifier: Apache-2.0
//
// Which number stands for which value: the precision of every node of a float graph, and scale and
// zero point of every tensor. Operators that hand on values as they are have inputs and outputs of
// one scale; tensors that have to agree form a class (union-find) with the joint range of its
// members. Where operators prescribe a scale, or ranges differ so much that sharing would cost
// accuracy, classes stay apart, and a QUANTIZE stands between them (emit.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/graph/graph.h"

namespace atollrt {

enum class Precision : int8_t { kInt8, kInt16, kFloat };

// Smallest and largest value of a tensor. low > high: it has been seen nowhere.
struct Range {
  float low = 1, high = -1;
  bool is_known() const { return low <= high; }
  void Include(const Range& other);
};

// How values are stored.
struct Encoding {
  DataType type = DataType::kFloat32;
  float scale = 0;
  int32_t zero_point = 0;
  bool operator==(const Encoding&) const = default;
};
// The encoding of [low, high], widened to contain 0 (kInt8, kInt16). A range of 0 has a scale, too.
Encoding EncodingOf(const Range& range, Precision precision);
inline DataType TypeOf(Precision precision) {
  if (precision == Precision::kFloat) return DataType::kFloat32;
  return precision == Precision::kInt8 ? DataType::kInt8 : DataType::kInt16;
}

struct NodeChoice {
  Precision precision = Precision::kInt8;
  std::string reason;  // why it is not kInt8
};

// The operators that can compute bytes.
enum class OpRule : int8_t {
  kFilter,      // constant weights
  kShared,      // inputs and output have one scale
  kFree,        // each tensor has its own
  kPrescribed,  // the output's is prescribed
  kUnscaled,    // the output is no number with a scale: ARG_MAX, comparisons
  kNone,        // none of them: it stays float
};
OpRule RuleOf(OpType type, Precision precision);
// The encoding of an operator whose rule is kPrescribed.
Encoding PrescribedEncoding(OpType type, Precision precision);

// Nodes that do nothing but move values, from their inputs to `outputs`.
std::vector<bool> NodesThatMoveTo(const Graph& graph, const std::vector<int32_t>& outputs);

// Whether any tensor of a node is float32, so that there is something to quantize.
bool ComputesFloats(const Graph& graph, const Node& node);

class Scheme {
 public:
  // What the operators allow at most: `wanted` for all that can have it, int8 or float for others,
  // with reasons.
  static std::vector<NodeChoice> Choose(const Graph& graph, Precision wanted);

  // Concatenations that end in an output, and whose parts' ranges differ so much that one scale
  // would cost the narrow ones their accuracy (boxes and scores), become float, and so does what
  // lies behind them. A sentence for each of them.
  static std::vector<std::string> KeepPartsApart(const Graph& graph,
                                                 const std::vector<Range>& ranges,
                                                 std::vector<NodeChoice>* choices);

  // `ranges` are those of all tensors, constants included.
  Scheme(const Graph& graph, std::vector<NodeChoice> choices, std::vector<Range> ranges);

  const std::vector<NodeChoice>& choices() const { return choices_; }
  const NodeChoice& choice(size_t node) const { return choices_[node]; }
  const Range& range(int32_t tensor) const { return ranges_[tensor]; }
  // How a tensor is stored wherever it is so with `precision`.
  Encoding EncodingFor(int32_t tensor, Precision precision) const;

 private:
  struct Class {
    Range range;
    OpType prescribed = OpType::kCUSTOM;  // by this operator; kCUSTOM: by none
    bool has_other_use = false;           // read or written by something that does not share
  };
  int32_t Find(int32_t tensor) const;
  void JoinInputs(const Graph& graph, const Node& node);
  bool MayJoin(const Class& a, const Class& b) const;
  void Join(int32_t a, int32_t b);

  const std::vector<NodeChoice> choices_;
  const std::vector<Range> ranges_;
  mutable std::vector<int32_t> parents_;
  std::vector<Class> classes_;  // of those that are their own parents
  std::vector<int32_t> readers_;
};

}  // namespace atollrt
