// SPDX-License-Identifier: Apache-2.0
//
// Models that come in another format than .tflite.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/quantize.h"
#include "tools/atoll/session.h"

namespace atollcmd {

// A .tflite file in memory, made by libatoll-quantize.
using ModelFile = std::unique_ptr<AtollQuantized, Deleter<AtollQuantizedDelete>>;
std::string_view BytesOf(const ModelFile& file);

bool IsTflite(std::string_view bytes);

// An ONNX file's model as a .tflite file. `path` is what messages call it, `input_shapes` are as
// ParseInputShape takes them, with names. Throws CommandError.
ModelFile ImportOnnx(const std::string& path, std::string_view bytes,
                     const std::vector<std::string>& input_shapes, bool keep_layout);

}  // namespace atollcmd
