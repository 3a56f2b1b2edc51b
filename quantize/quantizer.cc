// SPDX-License-Identifier: Apache-2.0
#include "quantize/quantizer.h"

namespace atollrt {

Result<Quantized> Quantize(std::span<const uint8_t>, CalibrationData*, const QuantizeOptions&) {
  return Unsupported("this build cannot quantize");
}

}  // namespace atollrt
