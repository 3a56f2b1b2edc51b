// SPDX-License-Identifier: Apache-2.0
//
// The bundled model by way of atoll.hpp.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "atoll/atoll.hpp"

namespace atollpp {

inline constexpr char kFashion[] = ATOLL_SOURCE_DIR "/models/fashion/fashion_int8.tflite";

inline Interpreter MakeInterpreter(const std::string& device) {
  const Result<Model> model = Model::FromFile(kFashion);
  EXPECT_TRUE(model) << model.message();
  const Result<Delegate> delegate = Delegate::Open(device);
  EXPECT_TRUE(delegate) << delegate.message();
  Result<Interpreter> interpreter = Interpreter::Create(*model, *delegate);
  EXPECT_TRUE(interpreter) << interpreter.message();
  return *std::move(interpreter);  // model and delegate go here, as far as one can see
}

}  // namespace atollpp
