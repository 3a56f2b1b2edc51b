// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace atollrt {

// Says that something a test needs is absent here; what lies in ATOLL_SHARED_DIR begins with
// "reference data: ". If no test of the
// program fails, it ends with the line "ATOLL-SKIPPED: ..." and ctest calls the suite skipped. The
// line must not come earlier: ctest would call a suite skipped even if another test of it failed.
void ReportAbsent(const std::string& what);

}  // namespace atollrt
