// SPDX-License-Identifier: Apache-2.0
#include "runtime/memory_planner.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

// Pairs of blocks that one search may look at, a nanosecond or two each. The first order is always
// tried to its end.
constexpr int64_t kSearchBudget = 250'000;
// The same while the arena is larger than need be by more than one part in kMuch.
constexpr int64_t kLongSearchBudget = 10'000'000;
constexpr int64_t kMuch = 20;

int64_t Rounded(int64_t size, int64_t alignment) {
  return static_cast<int64_t>(
      AlignUp(static_cast<uint64_t>(size), static_cast<uint64_t>(alignment)));
}

// Positions in the list of blocks to place, which is not that of the caller: it has no empty ones.
using Order = std::vector<uint32_t>;

double Life(const MemoryBlock& block) {
  return static_cast<double>(block.last_use) - static_cast<double>(block.first_use) + 1;
}

enum class Fit { kLowest, kTightest };

// Small and the same everywhere (SplitMix64).
class Random {
 public:
  // In [0, count).
  size_t Below(size_t count) {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return static_cast<size_t>((x ^ (x >> 31)) % count);
  }

 private:
  uint64_t state_ = 0;
};

class Search {
 public:
  // `blocks` of rounded sizes, none empty.
  Search(std::vector<MemoryBlock> blocks, int64_t lower_bound)
      : blocks_(std::move(blocks)),
        lower_bound_(lower_bound),
        together_(blocks_.size() + 1),
        offsets_(blocks_.size()) {}

  void Run() {
    for (const Order& order : Orders()) {
      for (const Fit fit : {Fit::kLowest, Fit::kTightest}) {
        Try(order, fit);
        if (IsOver()) return;
      }
    }
    Climb();
  }

  const std::vector<int64_t>& offsets() const { return best_offsets_; }
  int64_t total() const { return best_total_; }

 private:
  struct Range {
    int64_t begin, end;
  };
  // A block that has its place.
  struct Placed {
    int64_t begin, end;
    int32_t first_use, last_use;
  };

  bool IsOver() const {
    if (best_total_ <= lower_bound_) return true;
    const bool is_much = best_total_ - lower_bound_ > lower_bound_ / kMuch;
    return visits_ >= (is_much ? kLongSearchBudget : kSearchBudget);
  }

  std::vector<Order> Orders() const;
  std::vector<int64_t> BytesAliveAtStart() const;
  bool Place(const Order& order, Fit fit, int64_t limit);
  bool Try(const Order& order, Fit fit);
  void Climb();

  const std::vector<MemoryBlock> blocks_;
  const int64_t lower_bound_;
  int64_t visits_ = 0;
  std::vector<Placed> placed_;    // by ascending begin
  std::vector<Range> together_;   // with the block to place, and one more to write to
  std::vector<int64_t> offsets_;  // of the last order, and its total
  int64_t total_ = 0;
  std::vector<int64_t> best_offsets_;
  int64_t best_total_ = std::numeric_limits<int64_t>::max();
  Order best_order_;
  Fit best_fit_ = Fit::kLowest;
};

// For each block: the bytes of all that are alive when it begins.
std::vector<int64_t> Search::BytesAliveAtStart() const {
  std::vector<int64_t> alive(blocks_.size());
  for (size_t i = 0; i < blocks_.size(); ++i) {
    for (const MemoryBlock& other : blocks_) {
      const int32_t step = blocks_[i].first_use;
      if (other.first_use <= step && step <= other.last_use) alive[i] += other.size;
    }
  }
  return alive;
}

std::vector<Order> Search::Orders() const {
  using Key = std::pair<double, int64_t>;
  std::vector<Key> keys(blocks_.size());
  std::vector<Order> orders;
  const auto add = [&](Key (*key)(const MemoryBlock&, int64_t alive),
                       const std::vector<int64_t>& alive) {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      keys[i] = key(blocks_[i], alive.empty() ? 0 : alive[i]);
    }
    Order& order = orders.emplace_back(blocks_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return keys[a] != keys[b] ? keys[a] > keys[b] : a < b;
    });
  };
  // Largest first is right nearly always.
  add([](const MemoryBlock& b, int64_t) { return Key(b.size, -int64_t{b.first_use}); }, {});
  if (blocks_.size() > 1000) return orders;
  add([](const MemoryBlock& b, int64_t alive) { return Key(alive, b.size); }, BytesAliveAtStart());
  add([](const MemoryBlock& b,
         int64_t) { return Key(static_cast<double>(b.size) * Life(b), -int64_t{b.first_use}); },
      {});
  add([](const MemoryBlock& b, int64_t) { return Key(Life(b), b.size); }, {});
  add([](const MemoryBlock& b, int64_t) { return Key(-b.first_use, b.size); }, {});
  return orders;
}

// Gives every block its offset. False, with the offsets undefined, if the arena would become larger
// than `limit`.
bool Search::Place(const Order& order, Fit fit, int64_t limit) {
  placed_.clear();
  total_ = 0;
  for (const uint32_t index : order) {
    const MemoryBlock& block = blocks_[index];
    int64_t end = 0;  // of what is below
    int64_t offset = -1;
    int64_t tightest = std::numeric_limits<int64_t>::max();
    visits_ += static_cast<int64_t>(placed_.size());
    // Those that live together are gathered first, without a branch that nobody could predict.
    size_t count = 0;
    for (const Placed& other : placed_) {
      together_[count] = {other.begin, other.end};
      count += (other.first_use <= block.last_use) & (block.first_use <= other.last_use);
    }
    for (size_t i = 0; i < count; ++i) {
      const int64_t gap = together_[i].begin - end;
      if (gap >= block.size && gap < tightest) {
        offset = end;
        tightest = gap;
        if (fit == Fit::kLowest) break;
      }
      end = std::max(end, together_[i].end);
    }
    if (offset < 0) offset = end;
    total_ = std::max(total_, offset + block.size);
    if (total_ > limit) return false;
    offsets_[index] = offset;
    const auto above =
        std::upper_bound(placed_.begin(), placed_.end(), offset,
                         [](int64_t at, const Placed& other) { return at < other.begin; });
    placed_.insert(above, {offset, offset + block.size, block.first_use, block.last_use});
  }
  return true;
}

// Keeps the plan of an order that is no worse than the best one.
bool Search::Try(const Order& order, Fit fit) {
  if (!Place(order, fit, best_total_)) return false;
  best_offsets_ = offsets_;
  best_total_ = total_;
  best_order_ = order;
  best_fit_ = fit;
  return true;
}

// Some block ends where the arena does. It would lie lower if it, or something that is in its way,
// had its turn at another time.
void Search::Climb() {
  Random random;
  std::vector<size_t> in_the_way;  // positions in the order
  while (!IsOver()) {
    Order order = best_order_;
    std::vector<size_t> highest;
    for (size_t i = 0; i < order.size(); ++i) {
      if (best_offsets_[order[i]] + blocks_[order[i]].size == best_total_) highest.push_back(i);
    }
    const size_t top = highest[random.Below(highest.size())];
    const MemoryBlock& block = blocks_[order[top]];
    in_the_way.clear();
    for (size_t i = 0; i < order.size(); ++i) {
      const MemoryBlock& other = blocks_[order[i]];
      if (i != top && other.last_use >= block.first_use && block.last_use >= other.first_use) {
        in_the_way.push_back(i);
      }
    }
    visits_ += static_cast<int64_t>(order.size());
    const size_t other = in_the_way[random.Below(in_the_way.size())];
    // To the place of its neighbour, or a neighbour to some other place.
    const bool is_top = random.Below(2) == 0;
    std::swap(order[is_top ? top : random.Below(order.size())], order[other]);
    Try(order, best_fit_);
  }
}

}  // namespace

MemoryPlan PlanMemory(const std::vector<MemoryBlock>& blocks, int64_t alignment) {
  MemoryPlan plan;
  plan.offsets.assign(blocks.size(), 0);
  std::vector<MemoryBlock> to_place;
  std::vector<size_t> indices;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].size == 0) continue;
    to_place.push_back(blocks[i]);
    to_place.back().size = Rounded(blocks[i].size, alignment);
    indices.push_back(i);
  }
  if (to_place.empty()) return plan;
  Search search(std::move(to_place), MemoryLowerBound(blocks, alignment));
  search.Run();
  for (size_t i = 0; i < indices.size(); ++i) plan.offsets[indices[i]] = search.offsets()[i];
  plan.total = search.total();
  return plan;
}

int64_t MemoryLowerBound(const std::vector<MemoryBlock>& blocks, int64_t alignment) {
  // What begins and ends at a step, in the order of the steps.
  std::vector<std::pair<int64_t, int64_t>> changes;
  changes.reserve(2 * blocks.size());
  for (const MemoryBlock& block : blocks) {
    if (block.size == 0) continue;
    const int64_t size = Rounded(block.size, alignment);
    changes.emplace_back(block.first_use, size);
    changes.emplace_back(int64_t{block.last_use} + 1, -size);
  }
  std::sort(changes.begin(), changes.end());  // ends come before beginnings
  int64_t alive = 0, bound = 0;
  for (const auto& [step, size] : changes) {
    alive += size;
    bound = std::max(bound, alive);
  }
  return bound;
}

}  // namespace atollrt
