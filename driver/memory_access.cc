// SPDX-License-Identifier: Apache-2.0
#include "driver/memory_access.h"

#include <initializer_list>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr uint64_t kTableBytes = 256;

uint64_t Sum(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return CheckedAdd(a, b, &sum) ? sum : UINT64_MAX;
}

uint64_t Product(std::initializer_list<uint64_t> factors) {
  uint64_t product = 1;
  for (const uint64_t factor : factors) {
    if (!CheckedMultiply(product, factor, &product)) return UINT64_MAX;
  }
  return product;
}

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
  void Write(const uint32_t& address, uint64_t bytes) {
    Add(MemoryAccess::Kind::kWrite, address, bytes);
  }
  const MemoryAccesses& accesses() const { return accesses_; }

 private:
  void Add(MemoryAccess::Kind kind, const uint32_t& address, uint64_t bytes) {
    const auto offset = reinterpret_cast<const uint8_t*>(&address) - first_operand_;
    accesses_.Add({kind, static_cast<uint8_t>(offset / 4 + 1), address, bytes});
  }

  const uint8_t* first_operand_;
  MemoryAccesses accesses_;
};

void List(const EndInstruction&, Lister&) {}

void List(const InputInstruction& i, Lister& list) { list.Write(i.output_address, i.bytes); }

void List(const OutputInstruction& i, Lister& list) { list.Read(i.input_address, i.bytes); }

void List(const ParametersInstruction& i, Lister& list) { list.Write(i.output_address, i.bytes); }

// What CONV_2D and DEPTHWISE_CONV_2D have in common.
template <typename T>
void ListFilter(const T& i, uint64_t weight_bytes, Lister& list) {
  list.Read(i.input_address, Product({i.batch, i.input_h, i.input_w, i.input_c}));
  list.Read(i.weight_address, weight_bytes);
  list.Read(i.channel_address, uint64_t{i.output_c} * kChannelRecordBytes);
  list.Write(i.output_address, Product({i.batch, i.output_h, i.output_w, i.output_c}));
}

void List(const Conv2DInstruction& i, Lister& list) {
  if (i.groups == 0) return;
  ListFilter(i, Product({i.output_c, i.kernel_h, i.kernel_w, i.input_c / i.groups}), list);
}

void List(const DepthwiseConv2DInstruction& i, Lister& list) {
  ListFilter(i, Product({i.kernel_h, i.kernel_w, i.output_c}), list);
}

void List(const AddInstruction& i, Lister& list) {
  list.ReadInPlace(i.input1_address, i.count);
  list.ReadInPlace(i.input2_address, i.count);
  list.Write(i.output_address, i.count);
}

void List(const Pool2DInstruction& i, Lister& list) {
  list.Read(i.input_address, Product({i.batch, i.input_h, i.input_w, i.channels}));
  list.Write(i.output_address, Product({i.batch, i.output_h, i.output_w, i.channels}));
}

void List(const MeanInstruction& i, Lister& list) {
  list.Read(i.input_address, Product({i.batch, i.positions, i.channels}));
  list.Write(i.output_address, Product({i.batch, i.channels}));
}

void List(const TableInstruction& i, Lister& list) {
  list.Read(i.table_address, kTableBytes);
  list.ReadInPlace(i.input_address, i.count);
  list.Write(i.output_address, i.count);
}

void List(const CopyInstruction& i, Lister& list) {
  const auto span = [&](uint64_t stride0, uint64_t stride1, uint64_t stride2) {
    return Sum(
        Sum(Product({i.count0 - uint64_t{1}, stride0}), Product({i.count1 - uint64_t{1}, stride1})),
        Sum(Product({i.count2 - uint64_t{1}, stride2}), i.bytes));
  };
  list.Read(i.input_address, span(i.input_stride0, i.input_stride1, i.input_stride2));
  list.Write(i.output_address, span(i.output_stride0, i.output_stride1, i.output_stride2));
}

void List(const FillInstruction& i, Lister& list) { list.Write(i.output_address, i.bytes); }

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
