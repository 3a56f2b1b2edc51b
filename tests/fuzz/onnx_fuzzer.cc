// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as an ONNX model. What the importer accepts is a .tflite that the loader accepts, and
// must be prepared or refused like any other. The corpus began with models of one operator.
#include <cstddef>
#include <cstdint>
#include <span>

#include "atoll/check.h"
#include "quantize/onnx/onnx_import.h"
#include "runtime/interpreter.h"
#include "runtime/model.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/small_model.h"
#include "tests/support/allocation_meter.h"

namespace atollrt::onnx_fuzzer {

ATOLL_FUZZ_TARGET(onnx) {
  const auto bytes = [&] {
    // A node of a few bytes has a name, a value, tensors and a table in the result.
    const MemoryLimit limit(4 * ProportionalBytes(size, int64_t{1} << 19));
    return ImportOnnx({data, size});
  }();
  if (!bytes.ok()) {
    ATOLL_CHECK(!bytes.status().message().empty());
    return 0;
  }
  const auto model = Model::FromBuffer(*bytes);
  ATOLL_CHECK(model.ok());
  if (!IsSmall((*model)->graph())) return 0;
  const auto interpreter = Interpreter::Create(*model, {.threads = 1});
  if (!interpreter.ok()) return 0;
  for (const int32_t input : (*model)->graph().inputs) {
    FillWithPattern((*interpreter)->TensorBytes(input));
  }
  (void)(*interpreter)->Invoke();
  return 0;
}

}  // namespace atollrt::onnx_fuzzer
