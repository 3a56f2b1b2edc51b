// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/packed_weights.h"

#include <algorithm>

#include "runtime/base/buffer.h"
#include "runtime/base/bytes.h"
#include "runtime/kernels/quantization/kept_fits.h"

namespace atollrt {
namespace {

constexpr uint32_t kMagic = 0x57505441;  // "ATPW"
constexpr size_t kHeaderBytes = 8;

}  // namespace

PackedWeightsWriter::PackedWeightsWriter() : numbers_(kHeaderBytes) {}

void PackedWeightsWriter::Add(uint32_t number) {
  numbers_.resize(numbers_.size() + sizeof(number));
  StoreLittleEndian(&numbers_[numbers_.size() - sizeof(number)], number);
}

void PackedWeightsWriter::Add(const WeightSums& sums) {
  Add(static_cast<uint32_t>(sums.sum));
  Add(static_cast<uint32_t>(std::min<int64_t>(sums.absolute, INT32_MAX)));
}

void PackedWeightsWriter::AddFits(FitFloatColumn fit, std::span<const FixedPointColumn> columns) {
  uint8_t* bytes = AddBlock(columns.size() * kKeptFitBytes);
  FittedColumn fitted;
  for (const FixedPointColumn& column : columns) {
    fitted = {column, fit(column, fitted)};
    KeepFit(fitted, bytes);
    bytes += kKeptFitBytes;
  }
}

uint8_t* PackedWeightsWriter::AddBlock(uint64_t bytes) {
  const size_t first = AlignUp(blocks_.size(), Buffer::kAlignment);
  blocks_.resize(first + bytes);
  return blocks_.data() + first;
}

std::vector<uint8_t> PackedWeightsWriter::Finish() {
  StoreLittleEndian(&numbers_[0], kMagic);
  StoreLittleEndian(&numbers_[4],
                    static_cast<uint32_t>((numbers_.size() - kHeaderBytes) / sizeof(uint32_t)));
  numbers_.resize(AlignUp(numbers_.size(), Buffer::kAlignment));
  numbers_.insert(numbers_.end(), blocks_.begin(), blocks_.end());
  return std::move(numbers_);
}

PackedWeightsReader::PackedWeightsReader(std::span<const uint8_t> bytes) {
  ok_ = bytes.size() >= kHeaderBytes && LoadLittleEndian<uint32_t>(bytes.data()) == kMagic &&
        reinterpret_cast<uintptr_t>(bytes.data()) % Buffer::kAlignment == 0;
  if (!ok_) return;
  const uint64_t end =
      kHeaderBytes + uint64_t{LoadLittleEndian<uint32_t>(&bytes[4])} * sizeof(uint32_t);
  ok_ = end <= bytes.size();
  if (!ok_) return;
  numbers_ = bytes.subspan(kHeaderBytes, end - kHeaderBytes);
  blocks_ = bytes.subspan(std::min(AlignUp(end, Buffer::kAlignment), bytes.size()));
}

PackedWeightsReader PackedWeightsReader::Open(std::span<const uint8_t> bytes,
                                              std::span<uint32_t> wanted, bool* has_fits) {
  const uint32_t kind = wanted[0];
  for (const bool with_fits : {true, false}) {
    wanted[0] = with_fits ? kind | kWithFits : kind;
    PackedWeightsReader reader(bytes);
    *has_fits = with_fits;
    if (reader.Expect(wanted) || !with_fits) return reader;
  }
  return PackedWeightsReader({});
}

uint32_t PackedWeightsReader::Next() {
  if (numbers_.empty()) {
    ok_ = false;
    return 0;
  }
  const uint32_t number = LoadLittleEndian<uint32_t>(numbers_.data());
  numbers_ = numbers_.subspan(sizeof(number));
  return number;
}

WeightSums PackedWeightsReader::NextSums() {
  const int32_t sum = static_cast<int32_t>(Next());
  return {.sum = sum, .absolute = Next()};
}

bool PackedWeightsReader::Expect(std::span<const uint32_t> numbers) {
  for (const uint32_t number : numbers) ok_ = Next() == number && ok_;
  return ok_;
}

const uint8_t* PackedWeightsReader::NextBlock(uint64_t bytes) {
  ok_ = ok_ && bytes <= blocks_.size();
  if (!ok_) return nullptr;
  const uint8_t* const block = blocks_.data();
  blocks_ = blocks_.subspan(std::min<uint64_t>(AlignUp(bytes, Buffer::kAlignment), blocks_.size()));
  return block;
}

}  // namespace atollrt
