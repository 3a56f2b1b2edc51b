// SPDX-License-Identifier: Apache-2.0
//
// Instructions for tests, from operands as assembly has them (docs/assembly.md): what is not named
// is 0.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "driver/isa/assembly.h"

namespace atollrt {

// Assembled<FillInstruction>("output_address=act+16, bytes=4, value=7")
template <typename T>
T Assembled(const std::string& operands) {
  const auto program = AssembleProgram(std::string(Mnemonic(T())) + " " + operands);
  EXPECT_TRUE(program.ok()) << program.status().message();
  return program.ok() ? std::get<T>(program->front()) : T();
}

}  // namespace atollrt
