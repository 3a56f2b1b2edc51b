// SPDX-License-Identifier: Apache-2.0
//
// What a model would take on other devices and with other shapes of its inputs, as
// `inspect --profile ... --what-if ...` reports it. Figures are modelled.
#pragma once

#include <string>
#include <vector>

#include "atoll/runtime.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"

namespace CLI {
class App;
}

namespace atollcmd {

struct WhatIfOptions {
  std::vector<std::string> profiles;  // devices; "all": every profile of the emulator
  // Each one set of shapes, as ParseInputShape takes them, with commas between.
  std::vector<std::string> shapes;

  bool any() const { return !profiles.empty() || !shapes.empty(); }
};

// Adds --profile and --what-if.
void AddWhatIfOptions(CLI::App* app, WhatIfOptions* options);

// One row for each device and set of shapes, the present ones first.
class WhatIfTable {
 public:
  // Prepares the model of `session` in all these ways. Throws CommandError for what is wrong on the
  // command line; that a model cannot be prepared in some way is a row with the reason.
  WhatIfTable(const Session& session, const WhatIfOptions& options);

  Json ToJson() const;
  std::string ToText() const;  // lines

 private:
  struct Row {
    std::string device;
    std::vector<std::string> given;  // the shapes of --what-if or --input-shape
    std::string shapes;              // of all inputs: "1x320x320x3"
    std::string reason;              // why it cannot be; nothing of the rest is then set
    AtollModelledLatency seconds = {};
    int64_t cycles = 0;
    size_t nodes = 0;
    size_t nodes_on_device = 0;
    size_t partitions = 0;
    int64_t resident_bytes = 0;
    int64_t activation_bytes = 0;
    int64_t streamed_bytes = 0;
    int64_t macs = 0;
  };
  static Row ReadRow(const Session& session);

  std::vector<Row> rows_;
};

}  // namespace atollcmd
