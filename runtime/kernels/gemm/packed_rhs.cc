// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/packed_rhs.h"

#include <algorithm>
#include <cstring>

#include "atoll/check.h"
#include "runtime/base/bytes.h"
#include "runtime/kernels/packed_weights.h"

namespace atollrt {
namespace {

// Four neighbouring k groups, of 4 bytes each, of four neighbouring columns, which lie
// `column_bytes` apart: a 4x4 transposition. Cells of one k group are adjacent, the next begins
// `step` bytes on.
void CopyFourGroupsOfFour(const uint8_t* from, int64_t column_bytes, uint8_t* to, int64_t step) {
  using Groups = uint32_t __attribute__((vector_size(16)));
  Groups a, b, c, d;
  std::memcpy(&a, from, sizeof(a));
  std::memcpy(&b, from + column_bytes, sizeof(b));
  std::memcpy(&c, from + 2 * column_bytes, sizeof(c));
  std::memcpy(&d, from + 3 * column_bytes, sizeof(d));
  const Groups ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Groups cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Groups ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Groups cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const Groups groups[4] = {__builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5),
                            __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7),
                            __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5),
                            __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7)};
  for (const Groups& group : groups) {
    std::memcpy(to, &group, sizeof(group));
    to += step;
  }
}

int32_t PanelWidth(const GemmKernel& kernel, int32_t columns) {
  return columns > kernel.panel_columns / 2 ? kernel.panel_columns : kernel.panel_columns / 2;
}

// A k group that is multiplied again, with what is left of its weights.
struct Rest {
  int64_t segment = 0;
  int64_t k = 0;
};

// Packs the columns [first, end) of one panel.
class PanelPacker {
 public:
  PanelPacker(const GemmKernel& kernel, const RhsWeights& weights, int32_t first)
      : w_(weights),
        k_group_(kernel.k_group),
        smallest_(kernel.narrow_weights ? -127 : -128),
        first_(first),
        width_(PanelWidth(kernel, weights.columns - first)),
        end_(std::min(weights.columns, first + width_)),
        depth_(weights.segment_depth * static_cast<int64_t>(weights.segment_offsets.size())) {
    for (int32_t column = first_; column < end_; ++column) {
      if (!Fits(column)) split_columns_.push_back(column);
    }
  }

  std::vector<Rest> Rests() const {
    std::vector<Rest> rests;
    if (split_columns_.empty()) return rests;
    ForEachRest([&](int64_t segment, int64_t k, int32_t) { rests.push_back({segment, k}); });
    return rests;
  }

  // Writes the weights of all parts.
  void Write(uint8_t* to) const {
    uint8_t* rest = WriteBytes(to);
    for (const int32_t column : split_columns_) WriteFirstPart(column, to);
    if (split_columns_.empty()) return;
    ForEachRest([&](int64_t s, int64_t k, int32_t part) { rest = WriteGroup(s, k, part, rest); });
  }

 private:
  const uint8_t* Column(int32_t column) const { return w_.weights + column * depth_; }

  int32_t Value(int32_t column, int64_t segment, int64_t k) const {
    const uint8_t byte = Column(column)[segment * w_.segment_depth + k];
    return ByteValue(byte, w_.type) - w_.zero_point;
  }

  // Whether the first part is all of every weight of the column.
  bool Fits(int32_t column) const {
    const int32_t moved = w_.zero_point - ByteMin(w_.type);
    if (moved == 128 && smallest_ == -128) return true;
    const uint8_t flip = w_.type == ByteType::kInt8 ? 0x80 : 0;
    uint8_t smallest = 255, largest = 0;
    const uint8_t* const weights = Column(column);
    for (int64_t k = 0; k < depth_; ++k) {
      const uint8_t value = weights[k] ^ flip;
      smallest = std::min(smallest, value);
      largest = std::max(largest, value);
    }
    return smallest - moved >= smallest_ && largest - moved <= 127;
  }

  // function(segment, k, part) for each k group and part after the first that are not all zeros.
  template <typename Function>
  void ForEachRest(const Function& function) const {
    for (int32_t part = 1; part < kByteParts; ++part) {
      for (int64_t s = 0; s < static_cast<int64_t>(w_.segment_offsets.size()); ++s) {
        for (int64_t k = 0; k < w_.segment_depth; k += k_group_) {
          if (HasRest(s, k, part)) function(s, k, part);
        }
      }
    }
  }

  bool HasRest(int64_t segment, int64_t k, int32_t part) const {
    const int64_t end = std::min(k + k_group_, w_.segment_depth);
    for (const int32_t column : split_columns_) {
      for (int64_t i = k; i < end; ++i) {
        if (BytePart(Value(column, segment, i), part, smallest_) != 0) return true;
      }
    }
    return false;
  }

  uint8_t* WriteGroup(int64_t segment, int64_t k, int32_t part, uint8_t* to) const {
    std::memset(to, 0, static_cast<size_t>(width_ * k_group_));
    const int64_t end = std::min(k + k_group_, w_.segment_depth);
    for (const int32_t column : split_columns_) {
      uint8_t* cell = to + (column - first_) * k_group_;
      for (int64_t i = k; i < end; ++i) {
        *cell++ = static_cast<uint8_t>(BytePart(Value(column, segment, i), part, smallest_));
      }
    }
    return to + width_ * k_group_;
  }

  // The first parts of a column of which WriteBytes has written what is left of them in a byte.
  void WriteFirstPart(int32_t column, uint8_t* panel) const {
    uint8_t* cell = panel + (column - first_) * k_group_;
    for (int64_t s = 0; s < static_cast<int64_t>(w_.segment_offsets.size()); ++s) {
      for (int64_t k = 0; k < w_.segment_depth; k += k_group_, cell += width_ * k_group_) {
        const int64_t end = std::min(k + k_group_, w_.segment_depth);
        for (int64_t i = k; i < end; ++i) {
          cell[i - k] = static_cast<uint8_t>(BytePart(Value(column, s, i), 0, smallest_));
        }
      }
    }
  }

  // All weights less their zero point, modulo 256: copies bytes as they are, the padding being zero
  // points, then subtracts. Returns the end.
  uint8_t* WriteBytes(uint8_t* to) const {
    switch (k_group_) {
      case 2:
        return WriteBytes<2>(to);
      case 4:
        return WriteBytes<4>(to);
      case 8:
        return WriteBytes<8>(to);
      default:
        ATOLL_CHECK(k_group_ == 16);
        return WriteBytes<16>(to);
    }
  }
  template <int64_t kGroup>
  uint8_t* WriteBytes(uint8_t* to) const {
    const uint8_t zero = static_cast<uint8_t>(w_.zero_point);
    const int64_t segments = static_cast<int64_t>(w_.segment_offsets.size());
    const int64_t step = width_ * kGroup;
    const int64_t full = w_.segment_depth / kGroup * kGroup;
    const int64_t rest = w_.segment_depth - full;
    const int64_t bytes = segments * DivideRoundingUp(w_.segment_depth, kGroup) * step;
    if (rest != 0 || end_ - first_ < width_) std::memset(to, zero, static_cast<size_t>(bytes));
    // Some groups of all columns at a time, so that what is written to stays in the caches.
    constexpr int64_t kBlock = 16 * kGroup;
    uint8_t* block = to;
    for (int64_t s = 0; s < segments; ++s) {
      for (int64_t first = 0; first < full; first += kBlock) {
        const int64_t end = std::min(first + kBlock, full);
        int32_t column = first_;
        if constexpr (kGroup == 4) {
          for (; end - first == kBlock && column + 4 <= end_; column += 4) {
            const uint8_t* const from = Column(column) + s * w_.segment_depth;
            uint8_t* cell = block + (column - first_) * kGroup;
            for (int64_t k = first; k < end; k += 4 * kGroup, cell += 4 * step) {
              CopyFourGroupsOfFour(from + k, depth_, cell, step);
            }
          }
        }
        for (; column < end_; ++column) {
          const uint8_t* const from = Column(column) + s * w_.segment_depth;
          uint8_t* cell = block + (column - first_) * kGroup;
          for (int64_t k = first; k < end; k += kGroup, cell += step) {
            std::memcpy(cell, from + k, kGroup);
          }
        }
        block += (end - first) * width_;
      }
      if (rest == 0) continue;
      for (int32_t column = first_; column < end_; ++column) {
        std::memcpy(block + (column - first_) * kGroup,
                    Column(column) + s * w_.segment_depth + full, static_cast<size_t>(rest));
      }
      block += step;
    }
    if (zero != 0) {
      for (int64_t i = 0; i < bytes; ++i) to[i] = static_cast<uint8_t>(to[i] - zero);
    }
    return to + bytes;
  }

  const RhsWeights& w_;
  const int64_t k_group_;
  const int32_t smallest_;  // that is not split
  const int32_t first_;
  const int32_t width_;
  const int32_t end_;
  const int64_t depth_;                 // of a column
  std::vector<int32_t> split_columns_;  // with weights of several parts
};

}  // namespace

// Where panels and their segments lie.
struct PackedRhs::Plan {
  struct Panel {
    uint64_t offset = 0;  // of its weights
    size_t first_segment = 0;
  };
  std::vector<Panel> panels;
  std::vector<RhsSegment> segments;
  uint64_t bytes = 0;

  // The next panel, of columns from `first` on.
  void Add(const GemmKernel& kernel, const RhsWeights& weights, int32_t first,
           const std::vector<Rest>& rests) {
    panels.push_back({bytes, segments.size()});
    const int64_t groups = DivideRoundingUp<int64_t>(weights.segment_depth, kernel.k_group);
    for (const int64_t offset : weights.segment_offsets) {
      segments.push_back({.lhs_offset = offset, .groups = groups});
    }
    for (const Rest& rest : rests) {
      const int64_t offset =
          weights.segment_offsets[rest.segment] + rest.k * kernel.lhs_element_bytes;
      segments.push_back({.lhs_offset = offset, .groups = 1});
    }
    const uint64_t count = groups * weights.segment_offsets.size() + rests.size();
    const int64_t cells = int64_t{PanelWidth(kernel, weights.columns - first)} * kernel.k_group;
    bytes = AlignUp(bytes + count * cells, Buffer::kAlignment);
  }
};

void PackedRhs::Follow(Plan plan, const uint8_t* packed) {
  segments_ = std::move(plan.segments);
  for (size_t i = 0; i < plan.panels.size(); ++i) {
    const auto [offset, segment] = plan.panels[i];
    const size_t end =
        i + 1 < plan.panels.size() ? plan.panels[i + 1].first_segment : segments_.size();
    panels_.push_back({.weights = packed + offset,
                       .segments = segments_.data() + segment,
                       .segment_count = static_cast<int64_t>(end - segment)});
  }
}

Result<PackedRhs> PackedRhs::Pack(const GemmKernel& kernel, const RhsWeights& weights) {
  Plan plan;
  std::vector<PanelPacker> packers;
  for (int32_t first = 0; first < weights.columns; first += kernel.panel_columns) {
    packers.emplace_back(kernel, weights, first);
    plan.Add(kernel, weights, first, packers.back().Rests());
  }
  PackedRhs rhs;
  ATOLL_ASSIGN_OR_RETURN(rhs.packed_, Buffer::Allocate(plan.bytes));
  for (size_t i = 0; i < packers.size(); ++i) {
    packers[i].Write(rhs.packed_.data() + plan.panels[i].offset);
  }
  rhs.Follow(std::move(plan), rhs.packed_.data());
  return rhs;
}

void PackedRhs::Save(const GemmKernel& kernel, const RhsWeights& weights,
                     PackedWeightsWriter* writer) {
  Plan plan;
  std::vector<PanelPacker> packers;
  for (int32_t first = 0; first < weights.columns; first += kernel.panel_columns) {
    packers.emplace_back(kernel, weights, first);
    const std::vector<Rest> rests = packers.back().Rests();
    writer->Add(static_cast<uint32_t>(rests.size()));
    for (const Rest& rest : rests) {
      writer->Add(static_cast<uint32_t>(rest.segment));
      writer->Add(static_cast<uint32_t>(rest.k));
    }
    plan.Add(kernel, weights, first, rests);
  }
  uint8_t* const block = writer->AddBlock(plan.bytes);
  for (size_t i = 0; i < packers.size(); ++i) packers[i].Write(block + plan.panels[i].offset);
}

PackedRhs PackedRhs::Use(const GemmKernel& kernel, const RhsWeights& weights,
                         PackedWeightsReader* reader) {
  const int64_t segments = static_cast<int64_t>(weights.segment_offsets.size());
  Plan plan;
  for (int32_t first = 0; first < weights.columns; first += kernel.panel_columns) {
    std::vector<Rest> rests;
    for (uint32_t count = reader->Next(); count > 0 && reader->ok(); --count) {
      const int64_t segment = reader->Next();
      const int64_t k = reader->Next();
      if (segment >= segments || k >= weights.segment_depth || k % kernel.k_group != 0) {
        reader->Fail();
      }
      rests.push_back({segment, k});
    }
    if (!reader->ok()) return PackedRhs();
    plan.Add(kernel, weights, first, rests);
  }
  PackedRhs rhs;
  const uint8_t* const packed = reader->NextBlock(plan.bytes);
  if (packed != nullptr) rhs.Follow(std::move(plan), packed);
  return rhs;
}

}  // namespace atollrt
