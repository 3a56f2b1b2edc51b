// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/atoll/lint.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {

// Names of classes by index. Either one name per line, the first line being class 0, or every line
// numbered in ascending order, "17 cat" or "17: cat"; numbers left out have no name. Blank lines at
// the end, carriage returns and a byte order mark do not count.
std::vector<std::string> ParseLabels(std::string_view text);

struct LabelOptions {
  std::string path;
  std::optional<int> offset;  // class c is called by label c + offset
  std::string model = {};     // whose own labels are taken if there is no path
};

// The same for a model that may bring its own.
inline LabelOptions WithModel(LabelOptions options, const std::string& model) {
  options.model = model;
  return options;
}

// Adds --labels and --label-offset to a subcommand.
void AddLabelOptions(Command* command, LabelOptions* options);

// What a model knows about its classes.
struct LabelRule {
  ClassCount classes;
  // Its classes begin after the background: a first label that is one ("background", "???", ...)
  // is left out, unless --label-offset says otherwise.
  bool without_background = false;
};

class Labels {
 public:
  // Reads the file, or what the model brings along, if there is either. Without enough labels for
  // the classes a file is a usage error, CommandError, or, `lenient`, a warning as with too many;
  // those of a model are left out then, with a warning.
  Labels(const LabelOptions& options, const LabelRule& rule, bool lenient = false);

  bool empty() const { return names_.empty(); }
  // Fit for one line of a terminal; "" where there is none.
  const std::string& operator[](int class_index) const;
  // With two blanks in front, for the end of a line; "" where there is none.
  std::string Behind(int class_index) const {
    const std::string& name = (*this)[class_index];
    return name.empty() ? "" : "  " + name;
  }
  // The name of a class, or a stand-in, "class 17".
  std::string NameOf(int class_index) const;

  const std::vector<Finding>& warnings() const { return warnings_; }

 private:
  std::vector<std::string> names_;
  int offset_ = 0;
  std::vector<Finding> warnings_;
};

}  // namespace atollcmd
