// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/broadcast.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace atollrt {
namespace {

// Runs that are worth a call each.
constexpr int64_t kLongRun = 512;
constexpr int64_t kRowsBytes = 4096;
// Repeating an element may write so many bytes more.
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

// Eight bytes of an element of `size` bytes, again and again.
uint64_t Repetition(const uint8_t* element, int64_t size) {
  switch (size) {
    case 1:
      return *element * 0x0101010101010101u;
    case 2:
      return LoadLittleEndian<uint16_t>(element) * 0x0001000100010001u;
    case 4:
      return LoadLittleEndian<uint32_t>(element) * 0x0000000100000001u;
    default:
      return LoadLittleEndian<uint64_t>(element);
  }
}

// Runs of an operand side by side, all of the same size and stride.
class Block {
 public:
  // Runs of `count` elements of `size` bytes that lie next to each other (stride 1) or are all the
  // same (0).
  Block(int64_t count, int64_t size, int64_t stride)
      : size_(size), stride_(stride), run_bytes_(count * size) {}

  const uint8_t* bytes() const { return bytes_; }

  void Fill(int64_t row, const uint8_t* from) {
    uint8_t* const to = bytes_ + row * run_bytes_;
    if (stride_ == 1) {
      std::memcpy(to, from, static_cast<size_t>(run_bytes_));
      return;
    }
    const uint64_t repetition = Repetition(from, size_);
    for (int64_t i = 0; i < run_bytes_; i += kStep) {
      StoreLittleEndian(to + i, repetition);
      StoreLittleEndian(to + i + kStep / 2, repetition);
    }
  }

  // The same run `rows` times; the block remembers it by its place.
  void Repeat(int64_t rows, const uint8_t* from) {
    if (from == repeated_ && rows <= repetitions_) return;
    for (int64_t row = 0; row < rows; ++row) Fill(row, from);
    repeated_ = from;
    repetitions_ = rows;
  }

 private:
  const int64_t size_, stride_, run_bytes_;
  uint8_t bytes_[kRowsBytes + kStep];
  const uint8_t* repeated_ = nullptr;
  int64_t repetitions_ = 0;
};

class BlockRunner {
 public:
  BlockRunner(const Broadcast& broadcast, int64_t size, const uint8_t* x1, const uint8_t* x2,
              BlockFunction function, const void* context)
      : broadcast_(broadcast),
        run_(broadcast.inner),
        size_(size),
        capacity_(kRowsBytes / size),
        x1_(x1),
        x2_(x2),
        function_(function),
        context_(context),
        block1_(std::min(run_.count, capacity_), size, run_.stride1),
        block2_(std::min(run_.count, capacity_), size, run_.stride2) {}

  void Run(int64_t begin, int64_t end) {
    if (broadcast_.outer.empty()) {
      RunLong(x1_ + begin * run_.stride1 * size_, x2_ + begin * run_.stride2 * size_, begin,
              end - begin);
      return;
    }
    Cursor cursor(broadcast_, begin / run_.count);
    if (run_.count < kLongRun) {
      RunShort(&cursor, begin, (end - begin) / run_.count);
      return;
    }
    for (int64_t offset = begin; offset < end; offset += run_.count) {
      RunLong(x1_ + cursor.offset1 * size_, x2_ + cursor.offset2 * size_, offset, run_.count);
      cursor.Advance();
    }
  }

 private:
  // A part of one run.
  void RunLong(const uint8_t* x1, const uint8_t* x2, int64_t offset, int64_t count) {
    if (run_.stride1 == 1 && run_.stride2 == 1) return function_(context_, x1, x2, offset, count);
    if (run_.stride1 == 0) block1_.Repeat(1, x1);
    if (run_.stride2 == 0) block2_.Repeat(1, x2);
    for (int64_t i = 0; i < count; i += capacity_) {
      function_(context_, run_.stride1 == 0 ? block1_.bytes() : x1 + i * size_,
                run_.stride2 == 0 ? block2_.bytes() : x2 + i * size_, offset + i,
                std::min(capacity_, count - i));
    }
  }

  // Short runs, as many as fit a block at a time: if that is worth it, of one pass of the innermost
  // outer loop only, so that all of them are the same distance apart.
  void RunShort(Cursor* cursor, int64_t offset, int64_t runs) {
    const BroadcastLoop& loop = broadcast_.outer.back();
    const bool alike = loop.count * run_.count >= kLongRun;
    while (runs > 0) {
      int64_t rows = std::min(capacity_ / run_.count, runs);
      if (alike) rows = std::min(rows, cursor->RunsLeft());
      const uint8_t* block1 = block1_.bytes();
      const uint8_t* block2 = block2_.bytes();
      if (alike) {
        block1 = Rows(x1_ + cursor->offset1 * size_, loop.stride1, run_.stride1, rows, &block1_);
        block2 = Rows(x2_ + cursor->offset2 * size_, loop.stride2, run_.stride2, rows, &block2_);
        cursor->Advance(rows);
      } else {
        for (int64_t row = 0; row < rows; ++row) {
          block1_.Fill(row, x1_ + cursor->offset1 * size_);
          block2_.Fill(row, x2_ + cursor->offset2 * size_);
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
                      Block* block) const {
    if (distance == run_.count && (stride == 1 || run_.count == 1)) return from;
    if (distance == 0) {
      block->Repeat(rows, from);
    } else {
      for (int64_t row = 0; row < rows; ++row) block->Fill(row, from + row * distance * size_);
    }
    return block->bytes();
  }

  const Broadcast& broadcast_;
  const BroadcastLoop& run_;
  const int64_t size_;      // bytes of an element
  const int64_t capacity_;  // of a block, in elements
  const uint8_t* const x1_;
  const uint8_t* const x2_;
  const BlockFunction function_;
  const void* const context_;
  Block block1_, block2_;
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
  BlockRunner(broadcast, static_cast<int64_t>(element_bytes), x1, x2, function, context)
      .Run(begin, end);
}

}  // namespace atollrt
