// SPDX-License-Identifier: Apache-2.0
//
// The object of JSON in the body of POST .../infer, as it is written: what it means is for
// infer_body.cc to say. Hostile bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"
#include "serve/inference/inference_server.h"
#include "serve/oip/infer_body.h"

namespace atollserve {

// Numbers of "data", kept until the datatype is known, which may come later.
struct JsonValues {
  std::vector<int64_t> integers;  // of those above INT64_MAX the bits
  std::vector<double> reals;      // all of them, once one is no integer
  bool is_real = false;
  bool has_large = false;  // one is above INT64_MAX
  bool has_negative = false;
  bool has_bool = false;

  size_t size() const { return is_real ? reals.size() : integers.size(); }
};

// Parameters shared_memory_...
struct JsonRegion {
  std::optional<std::string> name;
  std::optional<uint64_t> offset, bytes;
};

struct JsonInput {
  std::string name, datatype;
  bool has_name = false, has_datatype = false, has_shape = false, has_data = false;
  Shape shape;
  JsonValues values;
  std::optional<uint64_t> binary_bytes;
  JsonRegion region;
};

struct JsonOutput {
  WantedOutput wanted;
  bool has_name = false;
  JsonRegion region;
};

struct InferJson {
  bool has_inputs = false;
  std::vector<JsonInput> inputs;
  std::vector<JsonOutput> outputs;
};

// Reads `json` as it comes, so that nothing of what is not looked at takes memory; what is not of a
// tensor goes to `body`. At most as many inputs, outputs and values as the model has.
// kInvalidArgument, with what is wrong; kUnsupported.
atollrt::Result<InferJson> ReadInferJson(std::string_view json, const ModelInfo& model,
                                         InferBody* body);

// A name of the client's, for a sentence.
inline std::string Shown(std::string_view text) { return std::string(text.substr(0, 100)); }

}  // namespace atollserve
