// SPDX-License-Identifier: Apache-2.0
#include "driver/memory_access.h"

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr uint64_t kTableBytes = 256;

// Operands are named by reference: their position in the struct is their position in the encoding.
class Lister {
 public:
  template <typename T>
  explicit Lister(const T& instruction)
      : first_operand_(reinterpret_cast<const uint8_t*>(&instruction)) {}

  void Read(const uint32_t& address, uint64_t bytes) {
    Add(MemoryAccess::Kind::kRead, address, bytes);
  }
  void ReadInPlace(const uint32_t& address, uint64_t bytes) {
    Add(MemoryAccess::Kind::kReadInPlace, address, bytes);
  }
  void ReadWrite(const uint32_t& address, uint64_t bytes) {
    Add(MemoryAccess::Kind::kReadWrite, address, bytes);
  }
  void Write(const uint32_t& address, uint64_t bytes) {
    Add(MemoryAccess::Kind::kWrite, address, bytes);
  }
  const MemoryAccesses& accesses() const { return accesses_; }

 private:
  void Add(MemoryAccess::Kind kind, const uint32_t& address, uint64_t bytes) {
    const auto offset = reinterpret_cast<const uint8_t*>(&address) - first_operand_;
    accesses_.Add({kind, static_cast<uint8_t>(offset / 4 + 1), address, bytes});
  }

  const uint8_t* const first_operand_;
  MemoryAccesses accesses_;
};

void List(const EndInstruction&, Lister&) {}

void List(const InputInstruction& i, Lister& list) { list.Write(i.output_address, i.bytes); }

void List(const OutputInstruction& i, Lister& list) { list.Read(i.input_address, i.bytes); }

void List(const ParametersInstruction& i, Lister& list) { list.Write(i.output_address, i.bytes); }

// What CONV_2D and DEPTHWISE_CONV_2D have in common.
template <typename T>
void ListFilter(const T& i, uint64_t weight_bytes, Lister& list) {
  list.Read(i.input_address, SaturatingProduct({i.batch, i.input_h, i.input_w, i.input_c}));
  list.Read(i.weight_address, weight_bytes);
  list.Read(i.channel_address, uint64_t{i.output_c} * kChannelRecordBytes);
  list.Write(i.output_address, SaturatingProduct({i.batch, i.output_h, i.output_w, i.output_c}));
}

void List(const Conv2DInstruction& i, Lister& list) {
  if (i.groups == 0) return;
  ListFilter(i, SaturatingProduct({i.output_c, i.kernel_h, i.kernel_w, i.input_c / i.groups}),
             list);
}

void List(const DepthwiseConv2DInstruction& i, Lister& list) {
  ListFilter(i, SaturatingProduct({i.kernel_h, i.kernel_w, i.output_c}), list);
}

void List(const TransposeConv2DInstruction& i, Lister& list) {
  ListFilter(i, SaturatingProduct({i.output_c, i.kernel_h, i.kernel_w, i.input_c}), list);
}

void List(const LstmInstruction& i, Lister& list) {
  constexpr uint64_t kGates = 4;
  list.Read(i.input_address, SaturatingProduct({i.batch, i.steps, i.inputs}));
  list.Read(i.weight_address, SaturatingProduct({kGates, i.units, uint64_t{i.inputs} + i.units}));
  list.Read(i.channel_address, SaturatingProduct({2 * kGates, i.units, kChannelRecordBytes}));
  list.ReadWrite(i.hidden_address, SaturatingProduct({i.batch, i.units}));
  list.ReadWrite(i.cell_address, SaturatingProduct({2, i.batch, i.units}));
  list.Write(i.output_address, SaturatingProduct({i.batch, i.steps, i.units}));
}

void List(const AddInstruction& i, Lister& list) {
  list.ReadInPlace(i.input1_address, i.count);
  list.ReadInPlace(i.input2_address, i.count);
  list.Write(i.output_address, i.count);
}

void List(const Pool2DInstruction& i, Lister& list) {
  list.Read(i.input_address, SaturatingProduct({i.batch, i.input_h, i.input_w, i.channels}));
  list.Write(i.output_address, SaturatingProduct({i.batch, i.output_h, i.output_w, i.channels}));
}

// What REDUCE_SUM, REDUCE_MAX and REDUCE_MIN have in common.
template <typename T>
void ListReduction(const T& i, Lister& list) {
  list.Read(i.input_address,
            SaturatingProduct({i.kept0, i.reduced0, i.kept1, i.reduced1, i.kept2, i.reduced2}));
  list.Write(i.output_address, SaturatingProduct({i.kept0, i.kept1, i.kept2}));
}

void List(const ReduceSumInstruction& i, Lister& list) { ListReduction(i, list); }

void List(const TableInstruction& i, Lister& list) {
  list.Read(i.table_address, kTableBytes);
  list.ReadInPlace(i.input_address, i.count);
  list.Write(i.output_address, i.count);
}

void List(const CopyInstruction& i, Lister& list) {
  const auto span = [&](uint64_t stride0, uint64_t stride1, uint64_t stride2) {
    return SaturatingSum(
        SaturatingSum(SaturatingProduct({i.count0 - uint64_t{1}, stride0}),
                      SaturatingProduct({i.count1 - uint64_t{1}, stride1})),
        SaturatingSum(SaturatingProduct({i.count2 - uint64_t{1}, stride2}), i.bytes));
  };
  list.Read(i.input_address, span(i.input_stride0, i.input_stride1, i.input_stride2));
  list.Write(i.output_address, span(i.output_stride0, i.output_stride1, i.output_stride2));
}

void List(const FillInstruction& i, Lister& list) { list.Write(i.output_address, i.bytes); }

void List(const ReduceMaxInstruction& i, Lister& list) { ListReduction(i, list); }

void List(const ReduceMinInstruction& i, Lister& list) { ListReduction(i, list); }

// What works on rows of elements by themselves.
template <typename T>
void ListRows(const T& i, Lister& list) {
  list.Read(i.input_address, uint64_t{i.rows} * i.depth);
  list.Write(i.output_address, uint64_t{i.rows} * i.depth);
}

void List(const SoftmaxInstruction& i, Lister& list) { ListRows(i, list); }

void List(const L2NormalizationInstruction& i, Lister& list) { ListRows(i, list); }

template <typename T>
void ListResize(const T& i, Lister& list) {
  list.Read(i.input_address, SaturatingProduct({i.batch, i.input_rows, i.input_w, i.channels}));
  list.Write(i.output_address, SaturatingProduct({i.batch, i.output_rows, i.output_w, i.channels}));
}

void List(const ResizeBilinearInstruction& i, Lister& list) { ListResize(i, list); }

void List(const ResizeNearestNeighborInstruction& i, Lister& list) { ListResize(i, list); }

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

}  // namespace atollrt
