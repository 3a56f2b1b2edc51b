// SPDX-License-Identifier: Apache-2.0
//
// What `atoll camera` says: while it runs, at its end, and of each frame.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/camera.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"

namespace atollcmd {

// What a line of progress is about.
struct ProgressState {
  uint64_t processed = 0;
  uint64_t wanted = 0;  // 0: nobody knows
  uint64_t failed = 0;
  double fps = 0;
  double behind_ms = 0;   // the camera; of the latest frame
  std::string seen = {};  // in it; "": nothing
};
std::string ProgressLine(const ProgressState& state);

// A line per second on stderr, in place if that is a terminal, from a thread of its own: also, and
// above all, while nothing comes. And what only this side can count.
class CameraProgress {
 public:
  // `wanted` frames; 0: nobody knows. `quiet`: counts, and says nothing.
  CameraProgress(uint64_t wanted, bool quiet);
  ~CameraProgress() { Finish(); }

  // From now on frames of this name are waited for. While they come in their own time, it says so
  // when none does. `status`: asked every second; null: while the source is being opened.
  void Follow(std::string source, bool live, std::function<atollrt::PipelineStatus()> status);
  void Add(const atollrt::ProcessedFrame& processed);
  // Ends the line in place and asks for no status any more.
  void Finish();

  // Frames whose class the source knew, and how many of them the first model got right.
  uint64_t labelled() const { return labelled_; }
  double accuracy() const { return static_cast<double>(correct_) / static_cast<double>(labelled_); }

 private:
  void Run();
  void Tick(double ms);
  void Print(const std::string& line);

  const uint64_t wanted_;
  const bool in_place_;
  uint64_t labelled_ = 0;
  uint64_t correct_ = 0;

  std::mutex mutex_;  // for all that follows
  std::condition_variable changed_;
  bool finished_ = false;
  std::string source_;
  bool live_ = false;
  std::function<atollrt::PipelineStatus()> status_;
  ProgressState state_;  // of the latest frame
  uint64_t last_processed_ = 0;
  uint64_t last_captured_ = 0;
  double waiting_ms_ = 0;
  double said_waiting_ms_ = 0;
  bool line_open_ = false;

  std::thread thread_;  // none if quiet
};

// What was seen in each frame, as JSON.
class FrameReport {
 public:
  // `labels`: of each model, by class.
  explicit FrameReport(std::vector<std::vector<std::string>> labels);
  Json Of(const atollrt::ProcessedFrame& processed);
  const std::vector<std::vector<std::string>>& labels() const { return labels_; }

 private:
  const std::vector<std::vector<std::string>> labels_;
  int64_t first_ns_ = 0;     // capture of the first frame; 0 before it
  const int64_t to_utc_ns_;  // from the steady clock to the calendar, fixed so that time never
                             // goes back
};

// One line of it for each frame.
class ResultLines {
 public:
  // Into "-", the standard output, or a file; "": none. Throws CommandError if the file cannot be
  // made.
  explicit ResultLines(const std::string& path);
  bool enabled() const { return file_ != nullptr; }
  void Add(const Json& frame);
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

struct CameraRun {
  const std::vector<const Session*>& sessions;
  const std::vector<std::string>& models;
  const CameraProgress& progress;
  const atollrt::PipelineReport& report;
};
Json CameraJson(const CameraRun& run);
std::string CameraText(const CameraRun& run);

}  // namespace atollcmd
