// SPDX-License-Identifier: Apache-2.0
//
// The part of Diagnose that is about PCIe (docs/doctor.md).
#pragma once

#include <string>
#include <vector>

#include "driver/doctor/diagnosis.h"

namespace atollrt {

// What is to be said of each known function, in the order of addresses.
std::vector<Finding> DiagnosePcie(const DiagnosisOptions& options);

// What this user has to do to be let in to a node: the first that is missing of the file of rules
// `rules`, which `source` has, and the group plugdev; `then` if nothing is.
std::string PermissionFix(const std::string& root, const std::string& rules,
                          const std::string& source, const std::string& subsystem,
                          const std::string& then);

}  // namespace atollrt
