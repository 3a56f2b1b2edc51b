// SPDX-License-Identifier: Apache-2.0
//
// The weights of a matrix product in the layout that its kernel reads (gemm.h). Weights less their
// zero point must fit a signed byte for that; of those that do not (uint8 weights far from their
// zero point: a handful in real models), a panel holds the part that fits, and again, in segments
// after the regular ones, the rest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/buffer.h"
#include "runtime/kernels/gemm/gemm.h"
#include "runtime/kernels/packed_weights.h"

namespace atollrt {

struct RhsWeights {
  const uint8_t* weights = nullptr;  // [columns][segment_offsets.size()][segment_depth]
  ByteType type = ByteType::kInt8;
  int32_t zero_point = 0;  // within the type's range
  int32_t columns = 0;
  int64_t segment_depth = 0;  // elements
  // Where in a row of lhs each segment begins, in bytes.
  std::span<const int64_t> segment_offsets;
};

// Immutable once made; movable, the kernels' pointers stay valid.
class PackedRhs {
 public:
  // kResourceExhausted if the packed weights do not fit memory.
  static Result<PackedRhs> Pack(const GemmKernel& kernel, const RhsWeights& weights);
  // Whether so many of the weights fit sums of 16 bits that a kernel with such sums is faster with
  // them than one that widens its operands.
  static bool Pays(const GemmKernel& kernel, const RhsWeights& weights);
  // Writes what Use reads.
  static void Save(const GemmKernel& kernel, const RhsWeights& weights,
                   PackedWeightsWriter* writer);
  // What was saved for the same kernel layout and weights, of which only the measures are looked
  // at. The bytes that are read must outlive the result. If they are not such, `reader` has failed
  // and the result is good for nothing.
  static PackedRhs Use(const GemmKernel& kernel, const RhsWeights& weights,
                       PackedWeightsReader* reader);

  const RhsPanel* panels() const { return panels_.data(); }

 private:
  struct Plan;
  void Follow(Plan plan, const uint8_t* packed);

  Buffer packed_;
  std::vector<RhsSegment> segments_;
  std::vector<RhsPanel> panels_;
};

}  // namespace atollrt
