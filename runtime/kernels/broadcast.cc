// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/broadcast.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace atollrt {
namespace {

// Runs that are worth a call each.
constexpr int64_t kLongRun = 512;
constexpr int64_t kBlockBytes = 4096;
// Repeating an element may write so many more.
constexpr int64_t kStep = 16;

// Where the outer loops are.
class Cursor {
 public:
  // At run number `run`.
  Cursor(const Broadcast& broadcast, int64_t run) : loops_(broadcast.outer) {
    for (size_t i = loops_.size(); i-- > 0;) {
      index_[i] = run % loops_[i].count;
      run /= loops_[i].count;
      offset1 += index_[i] * loops_[i].stride1;
      offset2 += index_[i] * loops_[i].stride2;
    }
  }

  // To the next run.
  void Advance() {
    for (size_t i = loops_.size(); i-- > 0;) {
      const BroadcastLoop& loop = loops_[i];
      offset1 += loop.stride1;
      offset2 += loop.stride2;
      if (++index_[i] < loop.count) return;
      index_[i] = 0;
      offset1 -= loop.count * loop.stride1;
      offset2 -= loop.count * loop.stride2;
    }
  }
  void Advance(int64_t runs) {
    while (runs > 0) {
      // Steps of the innermost loop, but for its last, are all alike.
      const int64_t steps = std::min(runs - 1, RunsLeft() - 1);
      const BroadcastLoop& loop = loops_.back();
      index_[loops_.size() - 1] += steps;
      offset1 += steps * loop.stride1;
      offset2 += steps * loop.stride2;
      Advance();
      runs -= steps + 1;
    }
  }

  // Until the innermost of the outer loops begins anew.
  int64_t RunsLeft() const { return loops_.back().count - index_[loops_.size() - 1]; }

  // Of the operands, in elements.
  int64_t offset1 = 0, offset2 = 0;

 private:
  std::span<const BroadcastLoop> loops_;
  std::array<int64_t, Broadcast::kMaxLoops> index_{};
};

// Elements of an operand in a block: those of `rows` runs.
template <typename T>
class Block {
 public:
  static constexpr int64_t kCapacity = kBlockBytes / static_cast<int64_t>(sizeof(T));

  const uint8_t* bytes() const { return reinterpret_cast<const uint8_t*>(elements_); }

  // Run number `row` of `count` elements, next to each other (stride 1) or all the same (0).
  void Fill(int64_t row, const uint8_t* from, int64_t stride, int64_t count) {
    T* const to = elements_ + row * count;
    if (stride == 0) {
      const T value = LoadLittleEndian<T>(from);
      for (int64_t i = 0; i < count; i += kStep) {
        for (int64_t j = 0; j < kStep; ++j) to[i + j] = value;
      }
    } else {
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
    }
  }

  // The same run `rows` times; the block remembers it by its place. `stride` and `count` are always
  // the same for a block.
  void Repeat(int64_t rows, const uint8_t* from, int64_t stride, int64_t count) {
    if (from == repeated_ && rows <= repetitions_) return;
    for (int64_t row = 0; row < rows; ++row) Fill(row, from, stride, count);
    repeated_ = from;
    repetitions_ = rows;
  }

 private:
  T elements_[kCapacity + kStep];
  const uint8_t* repeated_ = nullptr;
  int64_t repetitions_ = 0;
};

// RunBlocks of one element size.
template <typename T>
class BlockRunner {
 public:
  BlockRunner(const Broadcast& broadcast, const uint8_t* x1, const uint8_t* x2,
              BlockFunction function, const void* context)
      : broadcast_(broadcast),
        run_(broadcast.inner),
        x1_(x1),
        x2_(x2),
        function_(function),
        context_(context) {}

  void Run(int64_t begin, int64_t end) {
    if (broadcast_.outer.empty()) {
      RunLong(x1_ + begin * run_.stride1 * kSize, x2_ + begin * run_.stride2 * kSize, begin,
              end - begin);
      return;
    }
    Cursor cursor(broadcast_, begin / run_.count);
    if (run_.count < kLongRun) {
      RunShort(&cursor, begin, (end - begin) / run_.count);
      return;
    }
    for (int64_t offset = begin; offset < end; offset += run_.count) {
      RunLong(x1_ + cursor.offset1 * kSize, x2_ + cursor.offset2 * kSize, offset, run_.count);
      cursor.Advance();
    }
  }

 private:
  static constexpr int64_t kSize = sizeof(T);
  static constexpr int64_t kCapacity = Block<T>::kCapacity;

  // A part of one run.
  void RunLong(const uint8_t* x1, const uint8_t* x2, int64_t offset, int64_t count) {
    if (run_.stride1 == 1 && run_.stride2 == 1) return function_(context_, x1, x2, offset, count);
    const int64_t block = std::min(count, kCapacity);
    if (run_.stride1 == 0) block1_.Repeat(1, x1, 0, block);
    if (run_.stride2 == 0) block2_.Repeat(1, x2, 0, block);
    for (int64_t i = 0; i < count; i += kCapacity) {
      function_(context_, run_.stride1 == 0 ? block1_.bytes() : x1 + i * kSize,
                run_.stride2 == 0 ? block2_.bytes() : x2 + i * kSize, offset + i,
                std::min(kCapacity, count - i));
    }
  }

  // Short runs, as many as fit a block at a time: if that is worth it, of one pass of the innermost
  // outer loop only, so that all of them are the same distance apart.
  void RunShort(Cursor* cursor, int64_t offset, int64_t runs) {
    const BroadcastLoop& loop = broadcast_.outer.back();
    const bool alike = loop.count * run_.count >= kLongRun;
    while (runs > 0) {
      int64_t rows = std::min(kCapacity / run_.count, runs);
      if (alike) rows = std::min(rows, cursor->RunsLeft());
      const uint8_t* block1 = block1_.bytes();
      const uint8_t* block2 = block2_.bytes();
      if (alike) {
        block1 = Rows(x1_ + cursor->offset1 * kSize, loop.stride1, run_.stride1, rows, &block1_);
        block2 = Rows(x2_ + cursor->offset2 * kSize, loop.stride2, run_.stride2, rows, &block2_);
        cursor->Advance(rows);
      } else {
        for (int64_t row = 0; row < rows; ++row) {
          block1_.Fill(row, x1_ + cursor->offset1 * kSize, run_.stride1, run_.count);
          block2_.Fill(row, x2_ + cursor->offset2 * kSize, run_.stride2, run_.count);
          cursor->Advance();
        }
      }
      function_(context_, block1, block2, offset, rows * run_.count);
      offset += rows * run_.count;
      runs -= rows;
    }
  }

  // Runs `distance` elements apart, side by side.
  const uint8_t* Rows(const uint8_t* from, int64_t distance, int64_t stride, int64_t rows,
                      Block<T>* block) const {
    const int64_t count = run_.count;
    if (distance == count && (stride == 1 || count == 1)) return from;
    if (distance == 0) {
      block->Repeat(rows, from, stride, count);
    } else {
      for (int64_t row = 0; row < rows; ++row) {
        block->Fill(row, from + row * distance * kSize, stride, count);
      }
    }
    return block->bytes();
  }

  const Broadcast& broadcast_;
  const BroadcastLoop& run_;
  const uint8_t* const x1_;
  const uint8_t* const x2_;
  const BlockFunction function_;
  const void* const context_;
  Block<T> block1_, block2_;
};

}  // namespace

Broadcast MakeBroadcast(std::span<const int32_t> shape1, std::span<const int32_t> shape2) {
  const auto size_at = [](std::span<const int32_t> shape, size_t from_right) -> int64_t {
    return from_right < shape.size() ? shape[shape.size() - 1 - from_right] : 1;
  };
  Broadcast result;
  result.count = 1;
  std::vector<BroadcastLoop> loops;  // from the innermost outwards
  int64_t elements1 = 1, elements2 = 1;
  for (size_t i = 0; i < std::max(shape1.size(), shape2.size()); ++i) {
    const int64_t size1 = size_at(shape1, i);
    const int64_t size2 = size_at(shape2, i);
    const BroadcastLoop loop{size1 == 1 ? size2 : size1, size1 == 1 ? 0 : elements1,
                             size2 == 1 ? 0 : elements2};
    result.count *= loop.count;
    elements1 *= size1;
    elements2 *= size2;
    if (loop.count == 1) continue;
    // An operand continues a loop if it takes up where that ends, or stands still in both.
    const auto continues = [&](int64_t BroadcastLoop::*stride) {
      const BroadcastLoop& last = loops.back();
      return last.*stride == 0 ? loop.*stride == 0 : loop.*stride == last.count * last.*stride;
    };
    if (!loops.empty() && continues(&BroadcastLoop::stride1) &&
        continues(&BroadcastLoop::stride2)) {
      loops.back().count *= loop.count;
    } else {
      loops.push_back(loop);
    }
  }
  if (result.count == 0) return {};
  if (loops.empty()) loops.push_back({1, 1, 1});
  result.inner = loops.front();
  result.outer.assign(loops.rbegin(), loops.rend() - 1);
  return result;
}

void RunBlocks(const Broadcast& broadcast, size_t element_bytes, const uint8_t* x1,
               const uint8_t* x2, int64_t begin, int64_t end, BlockFunction function,
               const void* context) {
  const auto run = [&](auto element) {
    BlockRunner<decltype(element)>(broadcast, x1, x2, function, context).Run(begin, end);
  };
  switch (element_bytes) {
    case 1:
      return run(uint8_t{});
    case 2:
      return run(uint16_t{});
    case 4:
      return run(uint32_t{});
    default:
      return run(uint64_t{});
  }
}

}  // namespace atollrt
