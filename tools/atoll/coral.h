// SPDX-License-Identifier: Apache-2.0
//
// What a real Coral would take for a model, as `inspect --coral HOST` reports it: modelled, and
// never mixed with the times of a device of ours.
#pragma once

#include <string>

#include "atoll/delegate.h"
#include "tools/atoll/report.h"

namespace atollcmd {

class CoralReport {
 public:
  // Throws CommandError if there is no such host or a Coral would run nothing of the model.
  CoralReport(const AtollModel* model, std::string host);

  Json ToJson() const;
  std::string ToText() const;  // lines

 private:
  const std::string host_;
  AtollCoralEstimate estimate_ = {};
};

}  // namespace atollcmd
