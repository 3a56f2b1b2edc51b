// SPDX-License-Identifier: Apache-2.0
//
// Checks of option values beyond those of CLI11; their messages are parts of sentences.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace atollcmd {

// 0 to 2^64 - 1 in decimal; CLI11 alone takes -1 and larger numbers, too.
inline CLI::Validator WholeNumber() {
  return {[](std::string& text) {
            uint64_t number = 0;
            const char* end = text.data() + text.size();
            const auto [number_end, error] = std::from_chars(text.data(), end, number);
            return error == std::errc() && number_end == end
                       ? std::string()
                       : "'" + text + "' is not a whole number from 0 to 2^64 - 1";
          },
          "NUMBER"};
}

inline CLI::Validator FiniteNumber() {
  return {[](std::string& text) {
            double number = 0;
            const bool good = CLI::detail::lexical_cast(text, number) && std::isfinite(number);
            return good ? std::string() : "'" + text + "' is not a number";
          },
          "NUMBER"};
}

// What a score may be held against.
inline CLI::Validator Score() {
  return {[](std::string& text) {
            double number = 0;
            const bool is_number = CLI::detail::lexical_cast(text, number);
            if (is_number && number >= 0 && number <= 1) return std::string();
            const bool is_percentage = is_number && number > 1 && number <= 100;
            return "'" + text + "' is not a number from 0 to 1" +
                   (is_percentage ? "; scores are no percentages" : "");
          },
          "SCORE"};
}

inline CLI::Validator NonzeroNumber() {
  return {[](std::string& text) {
            double number = 0;
            const bool good = CLI::detail::lexical_cast(text, number) && std::isfinite(number);
            return good && number != 0 ? std::string()
                                       : "'" + text + "' is not a number other than 0";
          },
          "NONZERO"};
}

}  // namespace atollcmd
