// SPDX-License-Identifier: Apache-2.0
//
// What `atoll camera` says: while it runs, at its end, and of each frame.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "atoll/camera.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/stopwatch.h"

namespace atollcmd {

// A line per second on stderr, in place if that is a terminal; and what only this side can count.
class CameraProgress {
 public:
  // `wanted` frames; 0: nobody knows.
  explicit CameraProgress(uint64_t wanted);

  // `quiet`: counts, and says nothing.
  void Add(const atollrt::ProcessedFrame& processed, bool quiet);
  // Ends the line in place.
  void Finish() const;

  // Frames whose class the source knew, and how many of them the first model got right.
  uint64_t labelled() const { return labelled_; }
  double accuracy() const { return static_cast<double>(correct_) / static_cast<double>(labelled_); }

 private:
  const uint64_t wanted_;
  const bool in_place_;
  Stopwatch stopwatch_;
  double since_line_ms_ = 0;
  uint64_t processed_ = 0;
  uint64_t processed_at_line_ = 0;
  bool line_open_ = false;
  uint64_t labelled_ = 0;
  uint64_t correct_ = 0;
};

// One line of JSON for each frame, in a file.
class ResultLines {
 public:
  // "": none. Throws CommandError if the file cannot be made.
  explicit ResultLines(const std::string& path);
  void Add(const atollrt::ProcessedFrame& processed);
  // Throws CommandError if something could not be written.
  void Finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

// Writes the frame's JPEG to frame-NNNNNN.jpg.
atollrt::Status SaveFrame(const std::string& directory, const atollrt::ProcessedFrame& processed);

// Everything but how busy it is.
void DescribeDevice(const Session& session, atollrt::DeviceStatus* status);

struct CameraRun {
  const std::vector<const Session*>& sessions;
  const std::vector<std::string>& models;
  const CameraProgress& progress;
  const atollrt::PipelineReport& report;
};
Json CameraJson(const CameraRun& run);
std::string CameraText(const CameraRun& run);

}  // namespace atollcmd
