// SPDX-License-Identifier: Apache-2.0
//
// Inferences on inputs that follow from a seed, for tests that compare where a model runs.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/interpreter.h"
#include "tests/support/rng.h"

namespace atollrt {

// nullptr, and a failure of the test, if the model cannot be prepared.
inline std::unique_ptr<Interpreter> MakeInterpreter(std::shared_ptr<const Model> model,
                                                    Delegate* delegate, int threads = 1) {
  auto made = Interpreter::Create(std::move(model), {.threads = threads, .delegate = delegate});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? *std::move(made) : nullptr;
}

// The bytes of the outputs.
inline std::vector<std::vector<uint8_t>> RunWithSeed(Interpreter* interpreter, uint64_t seed) {
  Rng rng(seed);
  for (const int32_t input : interpreter->graph().inputs) {
    rng.Fill(interpreter->TensorBytes(input));
  }
  const Status status = interpreter->Invoke();
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<std::vector<uint8_t>> outputs;
  for (const int32_t output : interpreter->graph().outputs) {
    const std::span<const uint8_t> bytes = interpreter->ConstTensorBytes(output);
    outputs.emplace_back(bytes.begin(), bytes.end());
  }
  return outputs;
}

}  // namespace atollrt
