// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/compiled_op.h"

#include <algorithm>
#include <array>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr std::array<uint8_t, 4> kMagic = {'A', 'T', 'L', 'P'};
constexpr uint32_t kLayout = 1;
constexpr size_t kHeaderBytes = 16;  // magic, layout, subgraph, 0

}  // namespace

bool IsCompiledOp(const Node& node) {
  return node.type == OpType::kCUSTOM && node.custom_name == kCompiledOpName;
}

std::vector<uint8_t> EncodeCompiledOp(const CompiledOp& op) {
  std::vector<uint8_t> options(kHeaderBytes + op.executable.size());
  std::copy(kMagic.begin(), kMagic.end(), options.begin());
  StoreLittleEndian<uint32_t>(&options[4], kLayout);
  StoreLittleEndian<int32_t>(&options[8], op.subgraph);
  std::copy(op.executable.begin(), op.executable.end(), options.begin() + kHeaderBytes);
  return options;
}

Result<CompiledOp> DecodeCompiledOp(std::span<const uint8_t> options) {
  if (options.size() < kHeaderBytes || !std::equal(kMagic.begin(), kMagic.end(), options.begin())) {
    return CorruptModel("its %zu bytes of options do not begin with ATLP", options.size());
  }
  const uint32_t layout = LoadLittleEndian<uint32_t>(&options[4]);
  if (layout != kLayout) {
    return Unsupported(
        "its options have layout %u, this Atoll reads %u; compile the original model again", layout,
        kLayout);
  }
  return CompiledOp{LoadLittleEndian<int32_t>(&options[8]), options.subspan(kHeaderBytes)};
}

}  // namespace atollrt
