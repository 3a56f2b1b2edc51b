// SPDX-License-Identifier: Apache-2.0
//
// The status of a pipeline for programs; docs/web.md lists every field and every metric. Strings
// that are no valid UTF-8 (file names) have U+FFFD for what is wrong in them.
#pragma once

#include <optional>
#include <string>

#include "atoll/camera/status.h"
#include "atoll/camera/web.h"

namespace atollrt {

// /api/status: one JSON object with "version": 1, in one line. `you_watch`: whether the viewer that
// asks is one of those of the stream; none if it did not say who it is.
std::string StatusJson(const PipelineStatus& status, const ViewerCounts& viewers,
                       std::optional<bool> you_watch);

// /metrics: Prometheus' text format, version 0.0.4.
std::string StatusMetrics(const PipelineStatus& status, const ViewerCounts& viewers);

}  // namespace atollrt
