// SPDX-License-Identifier: Apache-2.0
//
// An executable as a model by itself: a .tflite file of one compiled operator without the subgraph
// that it was made from (docs/executable.md, "In a model"), which runs on a device that takes the
// executable as it is. Pure function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "driver/isa/executable.h"
#include "serve/network/oip_client.h"

namespace atollserve {

struct ExecutableModel {
  std::vector<uint8_t> file;
  std::string name;                // by the file's SHA-256, as servers want it
  std::vector<OipTensor> inputs;   // of the model, in the order of the executable's
  std::vector<OipTensor> outputs;  // likewise
};

// kResourceExhausted if it is too large for a file.
atollrt::Result<ExecutableModel> MakeExecutableModel(const atollrt::Executable& executable);

}  // namespace atollserve
