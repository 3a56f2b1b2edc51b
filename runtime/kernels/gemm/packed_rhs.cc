// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/packed_rhs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <iterator>
#include <type_traits>
#include <utility>

#include "atoll/check.h"
#include "runtime/base/bytes.h"
#include "runtime/kernels/packed_weights.h"

namespace atollrt {
namespace {

// Transposes 16 bytes of each of neighbouring columns, which lie `column_bytes` apart: k groups of
// 4 bytes of four columns, or of 2 bytes of eight. Cells of one k group are adjacent, the next
// begins `step` bytes on.
template <typename Group>
[[gnu::always_inline]] inline void Transpose(const uint8_t* from, int64_t column_bytes, uint8_t* to,
                                             int64_t step) {
  constexpr int kCount = 16 / sizeof(Group);
  typedef Group Groups __attribute__((vector_size(16)));
  Groups v[kCount];
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) std::memcpy(&v[i], from + i * column_bytes, sizeof(v[i]));
#pragma GCC unroll 8
  for (int turn = 1; turn < kCount; turn *= 2) {
    Groups next[kCount];
#pragma GCC unroll 8
    for (int i = 0; i < kCount / 2; ++i) {
      const Groups a = v[i], b = v[i + kCount / 2];
      if constexpr (kCount == 4) {
        next[2 * i] = __builtin_shufflevector(a, b, 0, 4, 1, 5);
        next[2 * i + 1] = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      } else {
        next[2 * i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
        next[2 * i + 1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) v[i] = next[i];
  }
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) std::memcpy(to + i * step, &v[i], sizeof(v[i]));
}

int32_t PanelWidth(const GemmKernel& kernel, int32_t columns) {
  return columns > kernel.panel_columns / 2 ? kernel.panel_columns : kernel.panel_columns / 2;
}

typedef uint8_t Bytes16 __attribute__((vector_size(16)));

void Subtract(uint8_t zero, uint8_t* from, int64_t count) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    Bytes16 bytes;
    std::memcpy(&bytes, from + i, sizeof(bytes));
    bytes -= zero;
    std::memcpy(from + i, &bytes, sizeof(bytes));
  }
  for (; i < count; ++i) from[i] = static_cast<uint8_t>(from[i] - zero);
}

// The least and the largest of bytes after an exclusive or with `flip`.
std::pair<uint8_t, uint8_t> RangeOf(const uint8_t* bytes, int64_t count, uint8_t flip) {
  uint8_t least = 255, largest = 0;
  int64_t i = 0;
  if (count >= 16) {
    Bytes16 low = {}, high = {};
    for (low = ~low; i + 16 <= count; i += 16) {
      Bytes16 v;
      std::memcpy(&v, bytes + i, sizeof(v));
      v ^= flip;
      low = v < low ? v : low;
      high = v > high ? v : high;
    }
    for (int j = 0; j < 16; ++j) {
      least = std::min<uint8_t>(least, low[j]);
      largest = std::max<uint8_t>(largest, high[j]);
    }
  }
  for (; i < count; ++i) {
    const uint8_t value = bytes[i] ^ flip;
    least = std::min(least, value);
    largest = std::max(largest, value);
  }
  return {least, largest};
}

// A k group that is multiplied again, with what is left of its weights.
struct Rest {
  int64_t segment = 0;
  int64_t k = 0;
};

// ---- Sums of 16 bits (GemmKernel::mark_wide) ----------------------------------------------------

constexpr int64_t kWordGroup = 4;          // the k group of such kernels
constexpr int64_t kPair = 2 * kWordGroup;  // of weights whose products meet in two sums
constexpr int32_t kMostOfWord = 128;       // that the weights of a sum have on either side of zero

int64_t PairsOf(const RhsWeights& w) {
  return static_cast<int64_t>(w.segment_offsets.size()) *
         DivideRoundingUp<int64_t>(w.segment_depth, kPair);
}

// Adds the bits of `mark` to `wide`, by pairs of groups of all segments, where some weights of a
// column do not fit.
void MarkWidePairs(const GemmKernel& kernel, const RhsWeights& w, const uint8_t* weights,
                   uint64_t mark, uint64_t* wide) {
  const uint8_t flip = w.type == ByteType::kInt8 ? 0x80 : 0;
  const uint8_t zero = static_cast<uint8_t>(w.zero_point - ByteMin(w.type));
  const int64_t segment_pairs = DivideRoundingUp(w.segment_depth, kPair);
  for (size_t s = 0; s < w.segment_offsets.size(); ++s) {
    kernel.mark_wide(weights, w.segment_depth, flip, zero, mark, wide);
    weights += w.segment_depth;
    wide += segment_pairs;
  }
}

// Takes from `left`, the weights of a column in `groups` neighbouring groups, what fits sums of
// them, and puts it to `taken`.
void TakeWhatFits(int32_t* left, int64_t groups, int8_t* taken) {
  for (int64_t sum = 0; sum < kWordGroup; sum += 2) {
    int32_t most = kMostOfWord, least = -kMostOfWord;
    for (int64_t group = 0; group < groups; ++group) {
      for (int64_t i = kWordGroup * group + sum; i < kWordGroup * group + sum + 2; ++i) {
        const int32_t part = std::clamp(left[i], std::max(least, -128), std::min(most, 127));
        (part > 0 ? most : least) -= part;
        left[i] -= part;
        taken[i] = static_cast<int8_t>(part);
      }
    }
  }
}

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
    if (kernel.sums_words()) {
      SplitWidePairs(kernel);
      return;
    }
    for (int32_t column = first_; column < end_; ++column) {
      if (!Fits(column)) split_columns_.push_back(column);
    }
  }

  std::vector<Rest> Rests() const {
    std::vector<Rest> rests = wide_rests_;
    if (split_columns_.empty()) return rests;
    ForEachRest([&](int64_t segment, int64_t k, int32_t) { rests.push_back({segment, k}); });
    return rests;
  }

  // Writes the weights of all parts.
  void Write(uint8_t* to) const {
    uint8_t* rest = WriteBytes(to);
    const int64_t cells = width_ * kWordGroup;
    for (const WideColumn& wide : wide_columns_) {
      uint8_t* const cell = to + wide.group * cells + (wide.column - first_) * kWordGroup;
      std::memcpy(cell, wide.weights, kWordGroup);
      if (wide.groups == 2) std::memcpy(cell + cells, wide.weights + kWordGroup, kWordGroup);
    }
    if (!wide_weights_.empty()) std::memcpy(rest, wide_weights_.data(), wide_weights_.size());
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
    const auto [smallest, largest] = RangeOf(Column(column), depth_, flip);
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

  // What fits of weights of a column that do not fit a pair of groups.
  struct WideColumn {
    int64_t group = 0;  // of the panel; the pair's first
    int64_t groups = 0;
    int32_t column = 0;
    int8_t weights[kPair] = {};
  };

  void SplitWidePairs(const GemmKernel& kernel) {
    ATOLL_CHECK(width_ <= 64);
    std::vector<uint64_t> is_wide(static_cast<size_t>(PairsOf(w_)));  // a bit for each column
    for (int32_t column = first_; column < end_; ++column) {
      MarkWidePairs(kernel, w_, Column(column), uint64_t{1} << (column - first_), is_wide.data());
    }
    const int64_t segment_groups = DivideRoundingUp(w_.segment_depth, kWordGroup);
    const int64_t segment_pairs = DivideRoundingUp(segment_groups, int64_t{2});
    std::vector<std::array<int32_t, kPair>> left;
    for (size_t i = 0; i < is_wide.size(); ++i) {
      if (is_wide[i] == 0) continue;
      const int64_t group = static_cast<int64_t>(i) % segment_pairs * 2;
      left.clear();
      SplitWidePair(static_cast<int64_t>(i) / segment_pairs, group,
                    std::min<int64_t>(segment_groups - group, 2), is_wide[i], &left);
    }
  }

  // Of the columns in `is_wide`; `left`, empty, is memory for what is left of their weights.
  void SplitWidePair(int64_t segment, int64_t group, int64_t groups, uint64_t is_wide,
                     std::vector<std::array<int32_t, kPair>>* left_weights) {
    auto& left = *left_weights;
    const int64_t k = group * kWordGroup;
    const int64_t count = std::min(w_.segment_depth - k, kPair);
    const size_t first = wide_columns_.size();
    for (; is_wide != 0; is_wide &= is_wide - 1) {
      const int32_t column = first_ + std::countr_zero(is_wide);
      auto& of_column = left.emplace_back();
      of_column.fill(0);
      for (int64_t j = 0; j < count; ++j) {
        of_column[static_cast<size_t>(j)] = Value(column, segment, k + j);
      }
      wide_columns_.push_back(
          {.group = segment * DivideRoundingUp(w_.segment_depth, kWordGroup) + group,
           .groups = groups,
           .column = column});
      TakeWhatFits(of_column.data(), groups, wide_columns_.back().weights);
    }
    // The rest, group by group, until nothing is left.
    for (int64_t g = 0; g < groups; ++g) {
      const auto is_left = [g](const std::array<int32_t, kPair>& weights) {
        const int32_t* const of_group = weights.data() + g * kWordGroup;
        return (of_group[0] | of_group[1] | of_group[2] | of_group[3]) != 0;
      };
      while (std::ranges::any_of(left, is_left)) {
        wide_rests_.push_back({segment, k + g * kWordGroup});
        const size_t cells = wide_weights_.size();
        wide_weights_.resize(cells + static_cast<size_t>(width_ * kWordGroup));
        for (size_t c = 0; c < left.size(); ++c) {
          const int32_t column = wide_columns_[first + c].column - first_;
          TakeWhatFits(left[c].data() + g * kWordGroup, 1,
                       &wide_weights_[cells + static_cast<size_t>(column * kWordGroup)]);
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
    // Those of the kernels for this architecture; 16 is the plain one's.
    switch (k_group_) {
      case 4:
        return WriteBytes<4>(to);
#if defined(__x86_64__)
      case 2:
        return WriteBytes<2>(to);
#else
      case 8:
        return WriteBytes<8>(to);
#endif
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
        if constexpr (kGroup <= 4) {
          constexpr int32_t kColumns = 16 / kGroup;
          using Group = std::conditional_t<kGroup == 4, uint32_t, uint16_t>;
          for (; column + kColumns <= end_; column += kColumns) {
            const uint8_t* const from = Column(column) + s * w_.segment_depth;
            uint8_t* cell = block + (column - first_) * kGroup;
            int64_t k = first;
            for (; k + 16 <= end; k += 16, cell += kColumns * step) {
              Transpose<Group>(from + k, depth_, cell, step);
            }
            for (; k < end; k += kGroup, cell += step) {
              for (int32_t c = 0; c < kColumns; ++c) {
                std::memcpy(cell + c * kGroup, from + c * depth_ + k, kGroup);
              }
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
    if (zero != 0) Subtract(zero, to, bytes);
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
  // Of kernels with sums of 16 bits: what differs from the weights as they are, and what is
  // multiplied again, with its weights by columns.
  std::vector<WideColumn> wide_columns_;
  std::vector<Rest> wide_rests_;
  std::vector<int8_t> wide_weights_;
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

bool PackedRhs::Pays(const GemmKernel& kernel, const RhsWeights& weights) {
  if (!kernel.sums_words()) return true;
  // Of many panels some, evenly over all, tell.
  constexpr int32_t kPanels = 8;
  const int32_t panels = DivideRoundingUp(weights.columns, kernel.panel_columns);
  const int32_t step = DivideRoundingUp(panels, kPanels) * kernel.panel_columns;
  int64_t pairs = 0, wide = 0;
  std::vector<uint64_t> is_wide(static_cast<size_t>(PairsOf(weights)));
  const int64_t depth =
      weights.segment_depth * static_cast<int64_t>(weights.segment_offsets.size());
  for (int32_t first = 0; first < weights.columns; first += step) {
    std::ranges::fill(is_wide, 0);
    const int32_t end = std::min(weights.columns, first + kernel.panel_columns);
    for (int32_t column = first; column < end; ++column) {
      MarkWidePairs(kernel, weights, weights.weights + column * depth, 1, is_wide.data());
    }
    pairs += std::ssize(is_wide);
    wide += std::ranges::count_if(is_wide, [](uint64_t one) { return one != 0; });
  }
  // A pair takes 5 instructions in place of 8, and 3 more for each group that is multiplied again,
  // of which a wide pair has mostly one.
  return 5 * pairs + 4 * wide < 7 * pairs;
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
