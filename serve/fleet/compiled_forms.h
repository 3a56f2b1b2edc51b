// SPDX-License-Identifier: Apache-2.0
//
// Compiled forms: beside M/V/model.tflite the bucket of models may have what `atoll compile` makes
// of it for a kind of device, as M/V/FORM.tflite. A form is what an executable depends on: family,
// array, memories, version of the instruction set. What is known of such an object says of which
// bytes it was made, so that one that is left from others is none.
#pragma once

#include <string>

#include "atoll/delegate.h"
#include "atoll/status.h"

namespace atollserve {

// "atoll-1-64x64-8388608-1048576-isa1"; "" for a device for which nothing is compiled, as the CPU.
// Pure.
std::string FormOf(const AtollDeviceInfo& device, const AtollDeviceDetails& details);

struct CompiledForm {
  std::string form;
  std::string bytes;  // of a .tflite file
};
// Opens the device, which is what --device takes. Errors of that; kCorruptModel and others of the
// model; kUnsupported if nothing of it can run there, or if the device has no form.
atollrt::Result<CompiledForm> CompileFor(const std::string& device, const std::string& model);

}  // namespace atollserve
