// SPDX-License-Identifier: Apache-2.0
//
// Everything that an interpreter writes, and where two of them differ.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/interpreter.h"

namespace atollrt {

// Per invocation: the bytes of inputs, of outputs and of every tensor that a step wrote.
using Recording = std::vector<std::map<int32_t, std::vector<uint8_t>>>;

// Invokes `invocations` times; fill(bytes) writes an input, for each of them anew. Also fails if an
// input has changed meanwhile: callers may rely on what they wrote.
template <typename Fill>
Result<Recording> Record(Interpreter* interpreter, int invocations, Fill fill) {
  Recording recording(static_cast<size_t>(invocations));
  const Graph& graph = interpreter->graph();
  const auto bytes_of = [&](int32_t tensor) {
    const std::span<const uint8_t> bytes = interpreter->ConstTensorBytes(tensor);
    return std::vector<uint8_t>(bytes.begin(), bytes.end());
  };
  for (auto& tensors : recording) {
    for (const int32_t input : graph.inputs) fill(interpreter->TensorBytes(input));
    for (const int32_t input : graph.inputs) tensors[input] = bytes_of(input);
    interpreter->SetTap([&](int32_t tensor) { tensors[tensor] = bytes_of(tensor); });
    ATOLL_RETURN_IF_ERROR(interpreter->Invoke());
    for (const int32_t input : graph.inputs) {
      if (bytes_of(input) == tensors[input]) continue;
      return InternalError("%s, an input, has changed", Describe(graph, input).c_str());
    }
    for (const int32_t output : graph.outputs) tensors[output] = bytes_of(output);
  }
  interpreter->SetTap(nullptr);
  return recording;
}

// A sentence about the first tensor of `got` that `want` does not have, or not with these bytes;
// "" if there is none. `got` may lack tensors.
inline std::string FirstDifference(const Graph& graph, const Recording& got,
                                   const Recording& want) {
  for (size_t i = 0; i < got.size(); ++i) {
    for (const auto& [tensor, bytes] : got[i]) {
      const std::string name = Describe(graph, tensor);
      const auto wanted = want[i].find(tensor);
      if (wanted == want[i].end()) return name + " is written by one of them only";
      if (bytes == wanted->second) continue;
      const auto differ =
          std::mismatch(bytes.begin(), bytes.end(), wanted->second.begin(), wanted->second.end());
      return Format("%s differs in invocation %zu from byte %lld on", name.c_str(), i,
                    static_cast<long long>(differ.first - bytes.begin()));
    }
  }
  return "";
}

}  // namespace atollrt
