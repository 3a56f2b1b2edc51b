// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/quantization/kept_fits.h"

#include <array>
#include <bit>
#include <cstring>

#include "runtime/base/bytes.h"

namespace atollrt {
namespace {

constexpr size_t kFit = 12, kClamp = 24;  // where parts begin
constexpr uint8_t kNothing = 255;

using Bytes = std::array<uint8_t, kKeptFitBytes>;

// What it was found for; false if a number does not fit.
bool WriteColumn(const FixedPointColumn& column, Bytes* bytes) {
  const auto least = static_cast<int32_t>(column.least);
  const auto largest = static_cast<int32_t>(column.largest);
  const auto low = static_cast<int16_t>(column.low), high = static_cast<int16_t>(column.high);
  const auto exponent = static_cast<int8_t>(column.exponent);
  StoreLittleEndian(&(*bytes)[0], static_cast<uint32_t>(column.multiplier));
  StoreLittleEndian(&(*bytes)[4], static_cast<uint32_t>(least));
  StoreLittleEndian(&(*bytes)[8], static_cast<uint32_t>(largest));
  StoreLittleEndian(&(*bytes)[kClamp], static_cast<uint16_t>(low));
  StoreLittleEndian(&(*bytes)[kClamp + 2], static_cast<uint16_t>(high));
  (*bytes)[kClamp + 4] = static_cast<uint8_t>(exponent);
  return least == column.least && largest == column.largest && low == column.low &&
         high == column.high && exponent == column.exponent;
}

}  // namespace

void KeepFit(const FittedColumn& fitted, uint8_t* bytes) {
  Bytes kept = {};
  const FloatColumn& fit = fitted.fit;
  const bool fits = WriteColumn(fitted.column, &kept);
  StoreLittleEndian(&kept[kFit], std::bit_cast<uint32_t>(fit.scale));
  StoreLittleEndian(&kept[kFit + 4], std::bit_cast<uint32_t>(fit.offset));
  StoreLittleEndian(&kept[kFit + 8], static_cast<uint32_t>(fit.exception));
  kept[29] = fits ? static_cast<uint8_t>(fit.form) : kNothing;
  kept[30] = fit.all_steps ? 1 : 0;
  std::memcpy(bytes, kept.data(), kept.size());
}

std::optional<FloatColumn> KeptFit(const FixedPointColumn& column, const uint8_t* bytes) {
  Bytes wanted = {};
  const uint8_t form = bytes[29];
  if (!WriteColumn(column, &wanted) || form > static_cast<uint8_t>(FloatForm::kNone) ||
      std::memcmp(bytes, wanted.data(), kFit) != 0 ||
      std::memcmp(bytes + kClamp, &wanted[kClamp], 5) != 0) {
    return std::nullopt;
  }
  return FloatColumn{
      .scale = std::bit_cast<float>(LoadLittleEndian<uint32_t>(bytes + kFit)),
      .offset = std::bit_cast<float>(LoadLittleEndian<uint32_t>(bytes + kFit + 4)),
      .exception = static_cast<int32_t>(LoadLittleEndian<uint32_t>(bytes + kFit + 8)),
      .form = static_cast<FloatForm>(form),
      .all_steps = bytes[30] == 1};
}

}  // namespace atollrt
