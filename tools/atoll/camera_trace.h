// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "atoll/camera.h"

namespace atollcmd {

// Where the time of each frame went, for Perfetto and chrome://tracing: a track for each stage,
// and one for the frames themselves. The first million spans, which are half an hour of one model,
// are kept.
class CameraTrace {
 public:
  // "": none.
  explicit CameraTrace(std::string path) : path_(std::move(path)) {}

  bool enabled() const { return !path_.empty(); }
  // Any thread.
  void Add(const atollrt::StageSpan& span);
  // Throws CommandError.
  void Write(const atollrt::PipelineStatus& status) const;

 private:
  static constexpr size_t kMaxSpans = 1'000'000;
  const std::string path_;
  std::mutex mutex_;
  std::vector<atollrt::StageSpan> spans_;
};

}  // namespace atollcmd
