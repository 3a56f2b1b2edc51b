// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace atollcmd {

// Names of classes by index. Either one name per line, the first line being class 0, or every line
// numbered in ascending order, "17 cat" or "17: cat"; numbers left out have no name. Blank lines at
// the end, carriage returns and a byte order mark do not count.
std::vector<std::string> ParseLabels(std::string_view text);

// Reads a label file for a model of `class_count` classes. Fewer labels than classes is a usage
// error that names both numbers; more is a warning on stderr. An empty path gives no labels.
std::vector<std::string> ReadLabels(const std::string& path, size_t class_count);

}  // namespace atollcmd
