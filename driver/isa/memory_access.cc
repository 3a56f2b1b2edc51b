// SPDX-License-Identifier: Apache-2.0
#include "driver/isa/memory_access.h"

#include <algorithm>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr uint64_t kTableBytes = 256;

// Operands are named by reference: their position in the struct is their position in the encoding.
class Lister {
 public:
  using Kind = MemoryAccess::Kind;

  template <typename T>
  explicit Lister(const T& instruction)
      : first_operand_(reinterpret_cast<const uint8_t*>(&instruction)) {}

  void Add(Kind kind, const uint32_t& address, uint64_t bytes) {
    const auto offset = reinterpret_cast<const uint8_t*>(&address) - first_operand_;
    accesses_.Add({kind, static_cast<uint8_t>(offset / 4 + 1), address, bytes});
  }
  void Read(const uint32_t& address, uint64_t bytes) { Add(Kind::kRead, address, bytes); }
  void Write(const uint32_t& address, uint64_t bytes) { Add(Kind::kWrite, address, bytes); }
  const MemoryAccesses& accesses() const { return accesses_; }

 private:
  const uint8_t* const first_operand_;
  MemoryAccesses accesses_;
};

void List(const EndInstruction&, Lister&) {}

template <StreamInstruction T>
void List(const T& i, Lister& list) {
  if constexpr (requires { i.input_address; }) {
    list.Read(i.input_address, i.bytes);
  } else {
    list.Write(i.output_address, i.bytes);
  }
}

template <FilterInstruction T>
void List(const T& i, Lister& list) {
  if constexpr (requires { i.groups; }) {
    if (i.groups == 0) return;
  }
  list.Read(i.input_address, SaturatingProduct({i.batch, i.input_h, i.input_w, i.input_c}));
  list.Read(i.weight_address, WeightBytes(i));
  list.Read(i.channel_address, uint64_t{i.output_c} * kChannelRecordBytes);
  list.Write(i.output_address, SaturatingProduct({i.batch, i.output_h, i.output_w, i.output_c}));
}

void List(const LstmInstruction& i, Lister& list) {
  constexpr uint64_t kGates = 4;
  list.Read(i.input_address, SaturatingProduct({i.batch, i.steps, i.inputs}));
  list.Read(i.weight_address, SaturatingProduct({kGates, i.units, uint64_t{i.inputs} + i.units}));
  list.Read(i.channel_address, SaturatingProduct({2 * kGates, i.units, kChannelRecordBytes}));
  list.Add(Lister::Kind::kReadWrite, i.hidden_address, SaturatingProduct({i.batch, i.units}));
  list.Add(Lister::Kind::kReadWrite, i.cell_address, SaturatingProduct({2, i.batch, i.units}));
  list.Write(i.output_address, SaturatingProduct({i.batch, i.steps, i.units}));
}

// Instructions of two tensors. An input that has the output's layout may be written onto.
template <PairInstruction T>
void List(const T& i, Lister& list) {
  const std::array<PairLoop, kPairLoops> loops = LoopsOf(i);
  uint64_t count = 1, end1 = 1, end2 = 1;
  bool is_output1 = true, is_output2 = true;
  for (size_t k = loops.size(); k-- > 0;) {
    const uint64_t steps = loops[k].count - uint64_t{1};
    end1 = SaturatingSum(end1, SaturatingProduct({steps, loops[k].input1_stride}));
    end2 = SaturatingSum(end2, SaturatingProduct({steps, loops[k].input2_stride}));
    is_output1 = is_output1 && (steps == 0 || loops[k].input1_stride == count);
    is_output2 = is_output2 && (steps == 0 || loops[k].input2_stride == count);
    count = SaturatingProduct({count, loops[k].count});
  }
  using Kind = MemoryAccess::Kind;
  list.Add(is_output1 ? Kind::kReadInPlace : Kind::kRead, i.input1_address, end1);
  list.Add(is_output2 ? Kind::kReadInPlace : Kind::kRead, i.input2_address, end2);
  list.Write(i.output_address, count);
}

void List(const Pool2DInstruction& i, Lister& list) {
  list.Read(i.input_address, SaturatingProduct({i.batch, i.input_h, i.input_w, i.channels}));
  list.Write(i.output_address, SaturatingProduct({i.batch, i.output_h, i.output_w, i.channels}));
}

template <ReductionInstruction T>
void List(const T& i, Lister& list) {
  list.Read(i.input_address,
            SaturatingProduct({i.kept0, i.reduced0, i.kept1, i.reduced1, i.kept2, i.reduced2}));
  list.Write(i.output_address, SaturatingProduct({i.kept0, i.kept1, i.kept2}));
}

void List(const TableInstruction& i, Lister& list) {
  list.Read(i.table_address, kTableBytes);
  list.Add(Lister::Kind::kReadInPlace, i.input_address, i.count);
  list.Write(i.output_address, i.count);
}

void List(const CopyInstruction& i, Lister& list) {
  uint64_t input_end = i.bytes, output_end = i.bytes;
  for (const CopyLoop& loop : LoopsOf(i)) {
    const uint64_t steps = loop.count - uint64_t{1};
    input_end = SaturatingSum(input_end, SaturatingProduct({steps, loop.input_stride}));
    output_end = SaturatingSum(output_end, SaturatingProduct({steps, loop.output_stride}));
  }
  list.Read(i.input_address, input_end);
  list.Write(i.output_address, output_end);
}

void List(const FillInstruction& i, Lister& list) { list.Write(i.output_address, i.bytes); }

// SOFTMAX and L2_NORMALIZATION.
template <typename T>
void List(const T& i, Lister& list) requires requires {
  i.depth;
}
{
  list.Read(i.input_address, uint64_t{i.rows} * i.depth);
  list.Write(i.output_address, uint64_t{i.rows} * i.depth);
}

template <ResizeInstruction T>
void List(const T& i, Lister& list) {
  list.Read(i.input_address, SaturatingProduct({i.batch, i.input_rows, i.input_w, i.channels}));
  list.Write(i.output_address, SaturatingProduct({i.batch, i.output_rows, i.output_w, i.channels}));
}

void List(std::monostate, Lister&) {}

}  // namespace

MemoryAccesses AccessesOf(const Instruction& instruction) {
  return std::visit(
      [](const auto& operands) {
        Lister list(operands);
        List(operands, list);
        return list.accesses();
      },
      instruction);
}

bool AreApart(const MemoryAccess& a, const MemoryAccess& b, const Segments& segments) {
  const uint64_t a_begin = segments.Resolve(a.address);
  const uint64_t b_begin = segments.Resolve(b.address);
  return SaturatingSum(a_begin, a.bytes) <= b_begin || SaturatingSum(b_begin, b.bytes) <= a_begin;
}

bool MayChain(const Instruction& before, const AddInstruction& add, const Segments& segments) {
  if (!std::holds_alternative<Conv2DInstruction>(before)) return false;
  const MemoryAccesses filter = AccessesOf(before);
  const MemoryAccesses pair = AccessesOf(add);
  if (filter.size() == 0 || pair.size() == 0) return false;  // operands that mean nothing
  const MemoryAccess& made = filter.back();
  const auto is_made = [&](const MemoryAccess& input) {
    return segments.Resolve(input.address) == segments.Resolve(made.address);
  };
  const auto has_layout = [&](const MemoryAccess& input) {
    return input.kind == MemoryAccess::Kind::kReadInPlace && input.bytes == made.bytes;
  };
  const MemoryAccess &input1 = pair.begin()[0], &input2 = pair.begin()[1];
  const MemoryAccess& other = is_made(input1) ? input2 : input1;
  return (is_made(input1) || is_made(input2)) && has_layout(input1) && has_layout(input2) &&
         AreApart(made, other, segments) &&
         std::all_of(filter.begin(), &made, [&](const MemoryAccess& read) {
           return AreApart(read, pair.back(), segments);
         });
}

}  // namespace atollrt
