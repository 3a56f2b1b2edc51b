// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a model. What the loader accepts must be prepared or refused, and what was prepared
// must run, or end with a reason. The corpus began with models of tests/golden/ops.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "atoll/check.h"
#include "runtime/interpreter.h"
#include "runtime/model.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/small_model.h"
#include "tests/support/allocation_meter.h"

namespace atollrt::loader_fuzzer {

ATOLL_FUZZ_TARGET(loader) {
  const auto model = [&] {
    const MemoryLimit limit(ProportionalBytes(size));
    return Model::FromBuffer({data, size});
  }();
  if (!model.ok() || !IsSmall((*model)->graph())) return 0;
  const auto interpreter = Interpreter::Create(*model, {.threads = 1});
  if (!interpreter.ok()) return 0;
  for (const int32_t input : (*model)->graph().inputs) {
    const std::span<uint8_t> bytes = (*interpreter)->TensorBytes(input);
    // Callers write them all.
    ATOLL_CHECK(static_cast<int64_t>(bytes.size()) == (*model)->graph().tensors[input].byte_size());
    FillWithPattern(bytes);
  }
  // An operator may still find bad values in its data.
  (void)(*interpreter)->Invoke();
  return 0;
}

}  // namespace atollrt::loader_fuzzer
