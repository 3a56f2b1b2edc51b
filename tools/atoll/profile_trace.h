// SPDX-License-Identifier: Apache-2.0
//
// A Profile as trace events in JSON, for ui.perfetto.dev and chrome://tracing. Two processes that
// share no clock: "host (measured)", all runs, and "device (modelled cycles)", one inference, its
// requests one after the other from time 0. docs/profiling.md has the fields.
#pragma once

#include "tools/atoll/profile_data.h"
#include "tools/atoll/report.h"

namespace atollcmd {

Json TraceJson(const Profile& profile);

}  // namespace atollcmd
