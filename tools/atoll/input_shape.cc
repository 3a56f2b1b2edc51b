// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/input_shape.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <system_error>

namespace atollcmd {
namespace {

std::optional<int32_t> ParseNumber(std::string_view text) {
  int32_t number = 0;
  const char* end = text.data() + text.size();
  const auto [number_end, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number_end != end || number < 0) return std::nullopt;
  return number;
}

}  // namespace

std::optional<InputShape> ParseInputShape(std::string_view text) {
  InputShape shape;
  // Names may contain the sign, sizes cannot.
  if (const size_t equals = text.rfind('='); equals != std::string_view::npos) {
    const std::string_view input = text.substr(0, equals);
    if (input.empty()) return std::nullopt;
    const std::optional<int32_t> index = ParseNumber(input);
    shape.index = index.value_or(-1);
    if (!index) shape.name = input;
    text.remove_prefix(equals + 1);
  }
  for (;;) {
    const size_t x = text.find('x');
    const std::optional<int32_t> size = ParseNumber(text.substr(0, x));
    if (!size || *size < 1) return std::nullopt;
    shape.sizes.push_back(*size);
    if (x == std::string_view::npos) return shape;
    text.remove_prefix(x + 1);
  }
}

CLI::Validator InputShapeText() {
  return {[](std::string& text) {
            return ParseInputShape(text)
                       ? std::string()
                       : fmt::format(
                             "'{}' is no shape of an input; write for example 1x320x320x3, "
                             "320x320 or NAME=1x64",
                             text);
          },
          "[NAME=]SHAPE"};
}

}  // namespace atollcmd
