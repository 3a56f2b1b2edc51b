// SPDX-License-Identifier: Apache-2.0
//
// What `atoll classify`, `detect`, `segment` and `pose` have in common: their options, and the run
// of a model over pictures, one after another.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/picture.h"
#include "atoll/vision.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/labels.h"
#include "tools/atoll/output_files.h"
#include "tools/atoll/progress.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"

namespace CLI {
class App;
}

namespace atollcmd {

// Adds --mean and --std to a subcommand.
void AddPixelScalingOptions(CLI::App* app, atollrt::PixelScaling* scaling);

// The input that takes the pictures. Throws CommandError, with what to do instead, if there is
// none.
atollrt::PictureInput OpenPictureInput(const Session& session,
                                       const atollrt::PixelScaling& scaling);

// A reader of the outputs, for example OpenReader<atollrt::PoseReader>(session, Task::kPose).
// Throws CommandError, with the subcommand to use instead, if the model is of another kind.
template <typename Reader>
Reader OpenReader(const Session& session, atollrt::Task task) {
  atollrt::Result<Reader> reader = Reader::Create(session.interpreter());
  if (!reader.ok()) {
    throw CommandError(ExitCode::kBadModel,
                       reader.status().message() + "; " + AdviseTask(session.interpreter(), task));
  }
  return *std::move(reader);
}

struct PictureOptions {
  SessionOptions session;
  std::vector<std::string> images;
  atollrt::PixelScaling scaling;
  std::string output;
  bool json = false;
};

// PlanOutputs (output_files.h) of what can be written: CheckOutputFile or CheckOutputFolder of it.
std::vector<std::string> PlanPictures(std::string_view option, const std::string& output,
                                      const std::vector<std::string>& extensions,
                                      const std::vector<std::string>& pictures);

// Adds MODEL, --device, --threads, IMAGE..., --output, --mean, --std and --json.
void AddPictureOptions(CLI::App* app, PictureOptions* options);

// "Pixels: ..." for the end of a subcommand's help: how pictures become inputs.
extern const char kPictureHelp[];

// The pictures in turn:
//
//   PictureRun run(options, Task::kDetect, &session);
//   while (run.Next()) {
//     ... read the outputs; append to run.text() and run.entry(); draw into run.canvas() ...
//   }
//   run.Finish("detect");
//
// Nothing is printed, and no file appears, before Finish.
class PictureRun {
 public:
  // Throws CommandError unless the model takes pictures. `options` and `session` must outlive it.
  PictureRun(const PictureOptions& options, atollrt::Task task, Session* session);

  // Brings the next picture into the input and runs the model. False after the last one.
  bool Next();

  // The latest picture: its number, its size in the file, its part of the report and of the text.
  size_t index() const { return next_ - 1; }
  int width() const { return picture_.width; }
  int height() const { return picture_.height; }
  Json& entry() { return entries_.back(); }
  std::string& text() { return text_; }
  // It in colour, to draw into; nullptr without --output.
  atollrt::Image* canvas() { return outputs_.empty() ? nullptr : &canvas_; }
  // All of it became the input.
  atollrt::Rect seen() const { return {0, 0, width(), height()}; }

  // One more file that appears with Finish.
  void AddFile(std::string_view option, const std::string& path,
               const atollrt::Result<std::vector<uint8_t>>& bytes);

  void Finish(const char* command);

 private:
  atollrt::Image ReadPicture(const std::string& path, int channels) const;
  void FinishCanvas();

  const PictureOptions& options_;
  Session* session_;
  atollrt::PictureInput input_;
  std::vector<std::string> outputs_;  // the annotated pictures, or empty
  size_t next_ = 0;
  atollrt::Image picture_;
  atollrt::Image canvas_;
  Json entries_ = Json::array();
  std::string text_;
  OutputFiles files_;
  std::optional<Progress> progress_;  // until Finish
};

// A place in a picture, to a tenth of a pixel: `fraction` of `size`.
double PixelPlace(float fraction, int size);

}  // namespace atollcmd
