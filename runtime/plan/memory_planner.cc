// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/memory_planner.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "runtime/base/bytes.h"
#include "runtime/base/range_max.h"

namespace atollrt {
namespace {

// Pairs of blocks that one search may look at, a nanosecond or two each. The first order is always
// tried to its end.
constexpr int64_t kSearchBudget = 250'000;
// The same while the arena is larger than need be by more than one part in kMuch.
constexpr int64_t kLongSearchBudget = 10'000'000;
constexpr int64_t kMuch = 20;
// For more blocks than this, one order is all that the long budget allows.
constexpr size_t kManyBlocks = 4500;

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

// Which blocks of a growing set live at the same time as another one, without a look at the others.
class Lives {
 public:
  // Of blocks that begin and end at any of `steps`, ascending.
  explicit Lives(std::vector<int32_t> steps) : steps_(std::move(steps)), covering_(2 * size()) {}

  size_t size() const { return steps_.size(); }
  size_t PositionOf(int32_t step) const {
    return static_cast<size_t>(std::lower_bound(steps_.begin(), steps_.end(), step) -
                               steps_.begin());
  }

  void Add(uint32_t index, const MemoryBlock& block) {
    beginning_.emplace(block.first_use, index);
    // The nodes of a binary tree that together cover the life, a leaf for each step.
    size_t begin = PositionOf(block.first_use) + size();
    size_t end = PositionOf(block.last_use) + size() + 1;
    for (; begin < end; begin /= 2, end /= 2) {
      if (begin % 2 == 1) covering_[begin++].push_back(index);
      if (end % 2 == 1) covering_[--end].push_back(index);
    }
  }

  // Those that are there when it begins, and those that begin while it is there.
  template <typename Function>
  void ForEachBeside(const MemoryBlock& block, const Function& function) const {
    for (size_t node = PositionOf(block.first_use) + size(); node > 0; node /= 2) {
      for (const uint32_t index : covering_[node]) function(index);
    }
    const auto end = beginning_.upper_bound(block.last_use);
    for (auto i = beginning_.upper_bound(block.first_use); i != end; ++i) function(i->second);
  }

 private:
  std::vector<int32_t> steps_;
  std::vector<std::vector<uint32_t>> covering_;
  std::multimap<int32_t, uint32_t> beginning_;
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
    if (blocks_.size() > kManyBlocks) {
      PlaceMany(Orders()[0]);
      return;
    }
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
  void PlaceMany(const Order& order);
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

// As Place in the lowest gaps, in a time that grows with the number of blocks and not with its
// square. When the budget is spent, what is left goes on top of what lives at the same time.
void Search::PlaceMany(const Order& order) {
  std::vector<int32_t> steps;
  for (const MemoryBlock& block : blocks_) {
    steps.push_back(block.first_use);
    steps.push_back(block.last_use);
  }
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  Lives lives(std::move(steps));
  RangeMax<RaiseTo> tops(lives.size());
  RangeMax<> alive(lives.size());                   // bytes of all that live at a step
  std::vector<std::pair<int64_t, int64_t>> beside;  // from, to
  for (const uint32_t index : order) {
    const MemoryBlock& block = blocks_[index];
    const size_t first = lives.PositionOf(block.first_use);
    const size_t last = lives.PositionOf(block.last_use);
    int64_t offset = tops.Max(first, last);
    // As many bytes as the top is high: at the step of these there is no gap below it.
    const bool is_full = alive.Max(first, last) == offset;
    if (!is_full && visits_ < kLongSearchBudget) {
      offset = 0;
      beside.clear();
      lives.ForEachBeside(block, [&](uint32_t other) {
        beside.emplace_back(offsets_[other], offsets_[other] + blocks_[other].size);
      });
      visits_ += static_cast<int64_t>(beside.size());
      std::sort(beside.begin(), beside.end());
      for (const auto& [from, to] : beside) {
        if (from - offset >= block.size) break;
        offset = std::max(offset, to);
      }
    }
    if (visits_ < kLongSearchBudget) lives.Add(index, block);
    offsets_[index] = offset;
    tops.Change(first, last, offset + block.size);
    alive.Change(first, last, block.size);
  }
  best_offsets_ = offsets_;
  best_total_ = tops.Max();
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
