// SPDX-License-Identifier: Apache-2.0
//
// The body of POST .../infer in its three forms, and of its answer. Pure functions on bytes; those
// of a request are hostile.
//
//   JSON    {"inputs": [{"name", "shape", "datatype", "data": [...]}], ...}
//   binary  such an object with "parameters": {"binary_data_size": n} instead of "data", then the
//           bytes of these inputs; Inference-Header-Content-Length is the size of the object
//   raw     Inference-Header-Content-Length is 0: the body is the only input
//
// Sources: kserve/open-inference-protocol specification/protocol/inference_rest.md;
// triton-inference-server/server docs/protocol/extension_binary_data.md,
// extension_schedule_policy.md, extension_classification.md, extension_shared_memory.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"
#include "serve/inference/inference_server.h"

namespace atollserve {

// Where a tensor lies in shared memory.
struct RegionRange {
  std::string region;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct WantedOutput {
  std::string name;
  std::optional<bool> binary = {};  // unset: as the request says
  uint32_t classes = 0;             // so many of the highest values, as text; 0: the values
  std::optional<RegionRange> region = {};
};

struct InferBody {
  std::optional<std::string> id;
  uint64_t priority = 0;
  uint64_t timeout_us = 0;
  bool real_values = false;  // the parameter atoll_quantized is false
  bool binary = false;       // outputs that do not say otherwise
  std::vector<InputTensor> inputs;
  std::vector<std::optional<RegionRange>> input_regions;  // of each input: has no bytes yet
  std::vector<WantedOutput> outputs;                      // empty: all

  bool IsBinary(const WantedOutput* output) const {
    return output != nullptr && output->binary ? *output->binary : binary;
  }
};

// `json_bytes` is the value of Inference-Header-Content-Length, "" without it. Inputs may point
// into `body` and keep it. kInvalidArgument, with what is wrong; kUnsupported.
atollrt::Result<InferBody> ParseInferBody(std::shared_ptr<const std::string> body,
                                          std::string_view json_bytes, const ModelInfo& model);

// An answer: JSON, and behind it the bytes of binary outputs, if there are any.
struct InferText {
  std::string body;
  std::optional<size_t> json_bytes;  // set if there are binary outputs
};
// Outputs in shared memory have been written there. kInvalidArgument for an output that JSON has no
// form for (FP16).
atollrt::Result<InferText> FormatInferAnswer(const InferBody& request, const ModelInfo& model,
                                             const InferOutcome& outcome);

}  // namespace atollserve
