// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/labels.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "tools/atoll/associated_files.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/report.h"

namespace atollcmd {
namespace {

constexpr std::string_view kBlanks = " \t";
constexpr size_t kMaxFileBytes = size_t{1} << 24;
constexpr size_t kMaxClasses = size_t{1} << 20;

struct NumberedLine {
  size_t number;
  std::string_view name;
};

std::optional<NumberedLine> ParseNumberedLine(std::string_view line) {
  NumberedLine numbered = {};
  const char* end = line.data() + line.size();
  const auto [number_end, error] = std::from_chars(line.data(), end, numbered.number);
  if (error != std::errc() || number_end == end || numbered.number >= kMaxClasses) return {};
  line.remove_prefix(static_cast<size_t>(number_end - line.data()));
  const size_t name = line.find_first_not_of(line[0] == ':' ? ": \t" : kBlanks);
  if (name == 0 || name == std::string_view::npos) return {};
  numbered.name = line.substr(name);
  return numbered;
}

// The names if all lines are numbered, in ascending order.
std::optional<std::vector<std::string>> ParseNumbered(const std::vector<std::string_view>& lines) {
  std::vector<std::string> names;
  for (const std::string_view line : lines) {
    const std::optional<NumberedLine> numbered = ParseNumberedLine(line);
    if (!numbered || numbered->number < names.size()) return {};
    names.resize(numbered->number + 1);
    names.back() = numbered->name;
  }
  return names;
}

std::string ReadTextFile(const std::string& path) {
  const auto fail = [&](const char* verb, const char* reason) {
    throw CommandError(ExitCode::kFailure, fmt::format("cannot {} the label file '{}': {}; {}",
                                                       verb, path, reason, AdviseReading(errno)));
  };
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rb"), close);
  if (!file) fail("open", std::strerror(errno));
  std::string text(kMaxFileBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get())) fail("read", std::strerror(errno));
  if (text.size() > kMaxFileBytes) fail("use", "it is larger than 16 MiB");
  return text;
}

// What label files call a class that is no thing. A number left out has an empty name.
bool NamesNothing(std::string_view name) {
  constexpr std::string_view kNothing[] = {"",     "???",       "background", "__background__",
                                           "none", "unlabeled", "bg"};
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::find(std::begin(kNothing), std::end(kNothing), lower) != std::end(kNothing);
}

}  // namespace

std::vector<std::string> ParseLabels(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<std::string_view> lines;
  // What follows would name classes that no model has, at many times its bytes.
  while (!text.empty() && lines.size() < kMaxClasses) {
    const size_t newline = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, newline);
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    lines.push_back(line);
    text.remove_prefix(std::min(newline + 1, text.size()));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (auto numbered = ParseNumbered(lines)) return *std::move(numbered);
  return std::vector<std::string>(lines.begin(), lines.end());
}

void AddLabelOptions(CLI::App* app, LabelOptions* options) {
  app->add_option(
      "--labels", options->path,
      "names of the classes, one per line or all lines as 'N name' or 'N: name'; without it those "
      "that the model brings along, or class indices alone");
  app->add_option("--label-offset", options->offset,
                  "class c is called by label c + offset, for files with a background more (1) or "
                  "less (-1) than the model")
      ->check(CLI::Range(-1000, 1000));
}

Labels::Labels(const LabelOptions& options, const LabelRule& rule, bool lenient) {
  std::string path = options.path;
  std::string text;
  bool embedded = false;
  if (!path.empty()) {
    text = ReadTextFile(path);
  } else if (std::optional<AssociatedFile> found = FindEmbeddedLabels(options.model)) {
    path = fmt::format("{}, in '{}'", Printable(found->name), options.model);
    text = std::move(found->text);
    embedded = true;
  } else {
    if (!options.offset) return;
    throw CommandError(ExitCode::kUsage,
                       "--label-offset shifts labels, and the model has none; give --labels");
  }
  names_ = ParseLabels(text);
  for (std::string& name : names_) name = Printable(name);
  offset_ = options.offset.value_or(
      rule.without_background && !names_.empty() && NamesNothing(names_[0]) ? 1 : 0);
  std::optional<Finding> finding = LintLabels(path, names_, offset_, rule.classes);
  if (!finding) return;
  const bool too_few = static_cast<int64_t>(names_.size()) - offset_ < rule.classes.least;
  if (too_few && embedded) names_.clear();
  if (too_few && !embedded && !lenient) throw CommandError(ExitCode::kUsage, finding->message);
  warnings_.push_back(*std::move(finding));
}

const std::string& Labels::operator[](int class_index) const {
  static const std::string none;
  const int64_t label = int64_t{class_index} + offset_;
  if (label < 0 || label >= static_cast<int64_t>(names_.size())) return none;
  return names_[static_cast<size_t>(label)];
}

std::string Labels::NameOf(int class_index) const {
  const std::string& name = (*this)[class_index];
  return name.empty() ? fmt::format("class {}", class_index) : name;
}

}  // namespace atollcmd
