// SPDX-License-Identifier: Apache-2.0
//
// Packages ("DWN1"): the files' form of what edgetpu_compiler made of a part of a model.
#pragma once

#include <cstdint>
#include <span>

#include "atoll/status.h"
#include "driver/coral/executable.h"

namespace atollrt {

// The newest version of the runtime that packages may ask for.
inline constexpr int32_t kCoralRuntimeVersion = 14;

// Takes hostile bytes, at any alignment: verifies all containers, and that every number leads
// somewhere: windows inside of their layers, address fields inside of their chunks, outputs
// complete, tiles without overlap. The name is left empty. kCorruptModel with the thing and the
// numbers; kUnsupported for what nobody here drives: a newer runtime, several chips, recurrent
// state on the chip.
Result<CoralExecutable> ReadCoralPackage(std::span<const uint8_t> bytes);

}  // namespace atollrt
