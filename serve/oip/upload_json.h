// SPDX-License-Identifier: Apache-2.0
//
// The JSON of a request to load a model: {"parameters": {"config": "...", "file:1/model.tflite":
// "BASE64"}}. Read in one pass, as it may be long: what is no parameter takes no memory.
#pragma once

#include <string_view>

#include "atoll/status.h"
#include "serve/inference/inference_server.h"

namespace atollserve {

// kInvalidArgument, with what is wrong.
atollrt::Result<ModelUpload> ReadUpload(std::string_view json);

}  // namespace atollserve
