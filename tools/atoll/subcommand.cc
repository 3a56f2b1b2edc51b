// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/subcommand.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "tools/atoll/help_text.h"  // made from help.txt, in the build tree

namespace atollcmd {
namespace {

// Of help.txt, from the line behind "@ NAME" to the next section.
std::string_view Section(std::string_view name) {
  const std::string title = fmt::format("\n@ {}\n", name);
  const size_t found = kHelpText.find(title);
  if (found == kHelpText.npos) throw std::logic_error("help.txt has no section " + title);
  const size_t begin = found + title.size();
  const size_t end = kHelpText.find("\n@ ", begin);
  return kHelpText.substr(begin, end == kHelpText.npos ? end : end + 1 - begin);
}

std::string_view FirstLine(std::string_view text) { return text.substr(0, text.find('\n')); }

CLI::Validator Number(const char* type, std::string (*judge)(std::optional<double> number)) {
  return {[judge](std::string& text) {
            double number = 0;
            const bool good = CLI::detail::lexical_cast(text, number) && std::isfinite(number);
            const std::string problem = judge(good ? std::optional(number) : std::nullopt);
            return problem.empty() ? "" : "'" + text + "' is not " + problem;
          },
          type};
}

}  // namespace

std::string HelpText(std::string_view section) {
  const std::string_view page = Section(section);
  const size_t blank = page.find("\n\n");
  if (blank == page.npos) return "";
  std::string text(page.substr(blank + 2, page.find_last_not_of('\n') - blank - 1));
  constexpr std::string_view kPictures = "{pictures}";
  if (const size_t place = text.find(kPictures); place != text.npos) {
    text.replace(place, kPictures.size(), HelpText("pictures"));
  }
  return text;
}

Command::Command(CLI::App* parent, const std::string& name)
    : name_(name),
      app_(parent->add_subcommand(name.substr(name.rfind(' ') + 1),
                                  std::string(FirstLine(Section(name))))) {
  app_->footer(HelpText(name));
}

std::string Command::HelpOn(const std::string& option) const {
  const std::string start = fmt::format("\n{} = ", option);
  for (const std::string_view section : {std::string_view(name_), std::string_view("*")}) {
    const std::string_view page = Section(section);
    const size_t found = page.find(start);
    if (found != page.npos) return std::string(FirstLine(page.substr(found + start.size())));
  }
  throw std::logic_error(fmt::format("help.txt says nothing of {} {}", name_, option));
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == text.npos) return parts;
    text.remove_prefix(end + 1);
  }
}

CLI::Validator WholeNumber() {
  return {[](std::string& text) {
            return ParseNumber<uint64_t>(text)
                       ? std::string()
                       : "'" + text + "' is not a whole number from 0 to 2^64 - 1";
          },
          "NUMBER"};
}

CLI::Validator Score() {
  return Number("SCORE", [](std::optional<double> number) -> std::string {
    if (number && *number >= 0 && *number <= 1) return "";
    const bool is_percentage = number && *number > 1 && *number <= 100;
    return is_percentage ? "a number from 0 to 1; scores are no percentages"
                         : "a number from 0 to 1";
  });
}

CLI::Validator NonzeroNumber() {
  return Number("NONZERO", [](std::optional<double> number) -> std::string {
    return number && *number != 0 ? "" : "a number other than 0";
  });
}

CLI::Validator FiniteNumber() {
  return Number("FINITE", [](std::optional<double> number) -> std::string {
    return number && std::isfinite(*number) ? "" : "a finite number";
  });
}

}  // namespace atollcmd
