// SPDX-License-Identifier: Apache-2.0
//
// An instruction that no device is done with before somebody stops it.
#pragma once

#include "driver/isa/instruction.h"

namespace atollrt {

// Averages of two million windows of 65,535 cells. Reads from address 0 of the device's memory and
// writes from its third MiB on, of which there must be two each.
inline Pool2DInstruction LongPool() {
  Pool2DInstruction pool;
  pool.output_address = 2 << 20;
  pool.batch = pool.input_h = pool.output_h = pool.channels = 1;
  pool.input_w = pool.output_w = 2 << 20;
  pool.kernel_h = pool.stride_h = pool.stride_w = 1;
  pool.kernel_w = 65535;
  pool.pad_left = 32767;
  pool.clamp_min = -128;
  pool.clamp_max = 127;
  pool.flags = kFlagAverage;
  return pool;
}

}  // namespace atollrt
