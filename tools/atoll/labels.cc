// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/labels.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

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
    throw CommandError(ExitCode::kFailure, fmt::format("cannot {} the label file '{}': {}; check "
                                                       "the path",
                                                       verb, path, reason));
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

}  // namespace

std::vector<std::string> ParseLabels(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<std::string_view> lines;
  while (!text.empty()) {
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

std::vector<std::string> ReadLabels(const std::string& path, size_t class_count) {
  if (path.empty()) return {};
  std::vector<std::string> labels = ParseLabels(ReadTextFile(path));
  if (labels.size() < class_count) {
    throw CommandError(
        ExitCode::kUsage,
        fmt::format("the label file '{}' has {} labels, but the model has {} classes; "
                    "use the label file that belongs to this model",
                    path, labels.size(), class_count));
  }
  if (labels.size() > class_count) {
    fmt::print(stderr,
               "atoll: warning: the label file '{}' has {} labels, but the model has only {} "
               "classes\n",
               path, labels.size(), class_count);
  }
  for (std::string& label : labels) label = Printable(label);
  return labels;
}

}  // namespace atollcmd
