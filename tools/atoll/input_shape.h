// SPDX-License-Identifier: Apache-2.0
//
// The shape of an input as it is written on the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class Validator;
}

namespace atollcmd {

struct InputShape {
  std::string name;    // of the input; empty: `index` says which one
  int32_t index = -1;  // among the inputs; -1: the only one
  std::vector<int32_t> sizes;
};

// "1x320x320x3", "320x320" (height and width), with "NAME=" or the number of an input and "=" in
// front where there are several; nullopt for anything else. Sizes are from 1 to 2^31 - 1.
std::optional<InputShape> ParseInputShape(std::string_view text);

// Accepts what ParseInputShape takes.
CLI::Validator InputShapeText();

}  // namespace atollcmd
