// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <memory>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/labels.h"
#include "tools/atoll/picture_run.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/stop_on_signal.h"
#include "tools/atoll/stopwatch.h"
#include "tools/atoll/subcommands.h"
#include "tools/atoll/validators.h"

namespace atollcmd {
namespace {

struct CameraOptions {
  SessionOptions session;
  std::string source = "test";
  double fps = 30;
  uint64_t frames = 0;
  std::string policy = "newest";
  LabelOptions labels;
  std::string crop = "source";
  std::string save_dir;
  bool no_draw = false;
  atollrt::PixelScaling scaling;
  bool json = false;
};

// ---- Which part of a frame the model sees ------------------------------------------------------

struct Crop {
  enum class Kind { kSource, kSquare, kNone, kRect } kind = Kind::kSource;
  atollrt::Rect rect;
};

Crop ParseCrop(const std::string& text) {
  if (text == "source") return {Crop::Kind::kSource, {}};
  if (text == "square") return {Crop::Kind::kSquare, {}};
  if (text == "none") return {Crop::Kind::kNone, {}};
  Crop crop = {Crop::Kind::kRect, {}};
  struct Field {
    int* value;
    char after;  // the character that follows the number
  };
  const Field fields[] = {
      {&crop.rect.width, 'x'}, {&crop.rect.height, '+'}, {&crop.rect.x, '+'}, {&crop.rect.y, '\0'}};
  const char* next = text.c_str();
  const char* end = next + text.size();
  bool good = true;
  for (const Field& field : fields) {
    const auto [number_end, error] = std::from_chars(next, end, *field.value);
    good = good && error == std::errc() && *field.value >= 0 && *number_end == field.after;
    if (!good) break;
    next = number_end + 1;
  }
  if (!good || crop.rect.width < 1 || crop.rect.height < 1) {
    throw CommandError(ExitCode::kUsage,
                       fmt::format("--crop '{}' is none of WxH+X+Y, square, none, source; for "
                                   "example --crop 480x480+80+0",
                                   text));
  }
  return crop;
}

class CroppedSource : public atollrt::FrameSource {
 public:
  CroppedSource(std::unique_ptr<atollrt::FrameSource> source, const Crop& crop)
      : source_(std::move(source)), crop_(crop) {}

  atollrt::Result<bool> Next(atollrt::Frame* frame) override {
    atollrt::Result<bool> more = source_->Next(frame);
    if (!more.ok() || !*more) return more;
    switch (crop_.kind) {
      case Crop::Kind::kSource:
        break;
      case Crop::Kind::kNone:
        frame->crop = {};
        break;
      case Crop::Kind::kRect:
        frame->crop = crop_.rect;
        break;
      case Crop::Kind::kSquare: {
        const int side = std::min(frame->width, frame->height);
        frame->crop = {(frame->width - side) / 2, (frame->height - side) / 2, side, side};
        break;
      }
    }
    return more;
  }
  bool live() const override { return source_->live(); }
  std::string description() const override { return source_->description(); }

 private:
  std::unique_ptr<atollrt::FrameSource> source_;
  Crop crop_;
};

std::unique_ptr<atollrt::FrameSource> OpenSource(const CameraOptions& options) {
  const Crop crop = ParseCrop(options.crop);
  atollrt::FrameSourceOptions source_options;
  if (options.fps > 0) source_options.fps = options.fps;
  auto source = atollrt::OpenFrameSource(options.source, source_options);
  if (!source.ok()) {
    const bool is_device = options.source.starts_with("/dev/");
    throw CommandError(is_device ? ExitCode::kNoDevice : ExitCode::kFailure,
                       fmt::format("cannot open the source: {}; 'atoll camera --help' lists the "
                                   "kinds of sources",
                                   source.status().message()));
  }
  return std::make_unique<CroppedSource>(*std::move(source), crop);
}

void CreateSaveDirectory(const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    throw CommandError(ExitCode::kFailure,
                       fmt::format("cannot create the directory '{}': {}; choose another --save",
                                   path, error.message()));
  }
}

// ---- Inference on one frame --------------------------------------------------------------------

// The library's failure on this thread as the camera library's kind of error; both lists of codes
// are the same.
atollrt::Status LastError(AtollStatus status) {
  static_assert(static_cast<int>(atollrt::StatusCode::kDeviceLost) == ATOLL_DEVICE_LOST);
  static_assert(static_cast<int>(atollrt::StatusCode::kInternal) == ATOLL_INTERNAL);
  return {static_cast<atollrt::StatusCode>(status), AtollLastError()};
}

class Classifier {
 public:
  Classifier(Session* session, const CameraOptions& options)
      : session_(session),
        input_(OpenPictureInput(*session, options.scaling)),
        reader_(OpenReader<atollrt::ClassificationReader>(*session, atollrt::Task::kClassify)),
        labels_(options.labels, {{reader_.class_count(), reader_.class_count()}}) {
    session->Lint({.task = atollrt::Task::kClassify,
                   .takes_picture = true,
                   .scaling_given = options.scaling.given()});
    session->AddWarnings(labels_.warnings());
  }

  const atollrt::PictureInput& input() const { return input_; }

  atollrt::Status Infer(const atollrt::Image& image, atollrt::FrameResult* result) const {
    ATOLL_RETURN_IF_ERROR(input_.Write(image));
    const AtollStatus status = AtollInterpreterInvoke(session_->interpreter());
    if (status != ATOLL_OK) return LastError(status);
    const atollrt::ClassScore best = reader_.ReadBest();
    result->class_index = best.class_index;
    result->label = fmt::format("{} {:.2f}", labels_.NameOf(best.class_index), best.score);
    return {};
  }

 private:
  Session* session_;
  atollrt::PictureInput input_;
  atollrt::ClassificationReader reader_;
  Labels labels_;
};

// ---- While it runs -----------------------------------------------------------------------------

// A line per second on stderr, in place if that is a terminal; and what only this side can count.
class Progress {
 public:
  explicit Progress(uint64_t wanted) : wanted_(wanted), in_place_(isatty(STDERR_FILENO) != 0) {}

  void Add(const atollrt::ProcessedFrame& processed) {
    ++processed_;
    if (processed.frame.label) {
      ++labelled_;
      correct_ += *processed.frame.label == processed.result.class_index;
    }
    since_line_ms_ += stopwatch_.LapMs();
    if (since_line_ms_ < 1000) return;
    const double rate = static_cast<double>(processed_ - processed_at_line_) * 1e3 / since_line_ms_;
    fmt::print(stderr, "{}atoll: {}{} frames, {:.1f} fps, {:.1f} ms behind the camera, {}{}",
               in_place_ ? "\r\x1b[K" : "", processed_,
               wanted_ == 0 ? "" : fmt::format(" of {}", wanted_), rate, processed.times.total,
               processed.result.label, in_place_ ? "" : "\n");
    since_line_ms_ = 0;
    processed_at_line_ = processed_;
    line_open_ = in_place_;
  }
  // Ends the line in place.
  void Finish() const {
    if (line_open_) fmt::print(stderr, "\r\x1b[K");
  }

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

// ---- The report --------------------------------------------------------------------------------

struct Run {
  const Session& session;
  const CameraOptions& options;
  const std::string source;
  const Progress& progress;
  const atollrt::PipelineReport& report;

  struct Stage {
    const char* name;
    const atollrt::LatencySummary* latency;
  };
  std::vector<Stage> stages() const {
    return {{"decode", &report.decode},
            {"resize", &report.resize},
            {"infer", &report.infer},
            {"draw", &report.draw},
            {"total", &report.total}};
  }
};

Json ReportJson(const Run& run) {
  Json json = NewReport("camera", run.session);
  const atollrt::PipelineReport& report = run.report;
  json["source"] = run.source;
  json["policy"] = run.options.policy;
  json["frames"] = report.captured;
  json["captured"] = report.captured;
  json["processed"] = report.processed;
  json["dropped"] = report.dropped;
  json["failed"] = report.failed;
  json["fps"] = report.processed_fps;
  json["captured_fps"] = report.captured_fps;
  json["accuracy"] = run.progress.labelled() > 0 ? Json(run.progress.accuracy()) : Json();
  json["labelled"] = run.progress.labelled();
  json["latency_ms"] = Json::object();
  for (const Run::Stage& stage : run.stages()) {
    if (stage.latency->count == 0) continue;
    json["latency_ms"][stage.name] = {{"p50", RoundedMs(stage.latency->p50)},
                                      {"p90", RoundedMs(stage.latency->p90)},
                                      {"p99", RoundedMs(stage.latency->p99)},
                                      {"max", RoundedMs(stage.latency->max)}};
  }
  json["modelled_device_ms"] = RoundedMs(run.session.invoke_info().device_seconds * 1e3);
  json["first_failure"] = report.first_failure.ok() ? Json() : Json(report.first_failure.message());
  json["end"] = report.end.ok() ? Json() : Json(report.end.message());
  return json;
}

std::string ReportText(const Run& run) {
  const atollrt::PipelineReport& report = run.report;
  std::string text = fmt::format(
      "source    {}\n"
      "model     {}\n"
      "device    {}: {}\n"
      "plan      {}\n"
      "frames    {} captured = {} processed + {} dropped + {} failed\n"
      "rate      {:.2f} fps processed, {:.2f} fps captured\n",
      run.source, run.session.options().model, run.session.device_name(),
      run.session.device_description(), run.session.PartitionSummary(), report.captured,
      report.processed, report.dropped, report.failed, report.processed_fps, report.captured_fps);
  if (run.progress.labelled() > 0) {
    text += fmt::format("accuracy  {:.2f} % of {} labelled frames\n", run.progress.accuracy() * 100,
                        run.progress.labelled());
  }
  if (!report.first_failure.ok()) {
    text += fmt::format("failure   the first: {}\n", report.first_failure.message());
  }
  text += "latency        p50      p90      p99      max  ms, measured on the host\n";
  for (const Run::Stage& stage : run.stages()) {
    if (stage.latency->count == 0) continue;
    text +=
        fmt::format("  {:<7} {:>8.3f} {:>8.3f} {:>8.3f} {:>8.3f}\n", stage.name, stage.latency->p50,
                    stage.latency->p90, stage.latency->p99, stage.latency->max);
  }
  if (run.session.on_device()) {
    const AtollInvokeInfo device = run.session.invoke_info();
    text += fmt::format("modelled  {:.3f} ms of device time per inference, {} cycles\n",
                        device.device_seconds * 1e3, Thousands(device.device_cycles));
  }
  return text;
}

// ------------------------------------------------------------------------------------------------

atollrt::PipelineOptions MakePipelineOptions(const CameraOptions& options,
                                             const atollrt::PictureInput& input) {
  atollrt::PipelineOptions pipeline;
  pipeline.input_width = input.width();
  pipeline.input_height = input.height();
  pipeline.input_channels = input.channels();
  pipeline.fps = options.fps;
  pipeline.policy =
      options.policy == "every" ? atollrt::QueuePolicy::kEvery : atollrt::QueuePolicy::kNewest;
  pipeline.max_frames = options.frames;
  pipeline.draw = !options.no_draw;
  pipeline.shrink_while_decoding = options.save_dir.empty();
  pipeline.annotated_dir = options.save_dir;
  pipeline.stop = &StopOnSignals();
  return pipeline;
}

void RunCamera(const CameraOptions& options) {
  const std::unique_ptr<atollrt::FrameSource> source = OpenSource(options);
  Session session(options.session);
  const Classifier classifier(&session, options);
  CreateSaveDirectory(options.save_dir);
  session.Announce();

  Progress progress(options.frames);
  atollrt::PipelineCallbacks callbacks;
  callbacks.infer = [&](const atollrt::Image& image, atollrt::FrameResult* result) {
    return classifier.Infer(image, result);
  };
  callbacks.on_result = [&](const atollrt::ProcessedFrame& frame) { progress.Add(frame); };
  const auto report = atollrt::RunPipeline(
      source.get(), MakePipelineOptions(options, classifier.input()), callbacks);
  progress.Finish();
  session.AnnounceHealth();
  if (!report.ok()) {
    throw CommandError(ExitCode::kUsage, fmt::format("cannot start: {}; see 'atoll camera --help'",
                                                     report.status().message()));
  }

  // What was done is reported even if the run ended badly: every frame is to be accounted for.
  const Run run = {session, options, source->description(), progress, *report};
  if (report->captured > 0) {
    if (options.json) fmt::print(stderr, "{}", ReportText(run));
    options.json ? PrintReport(ReportJson(run)) : PrintText(ReportText(run));
  }
  if (!report->end.ok()) {
    const bool lost = report->end.code() == atollrt::StatusCode::kDeviceLost;
    throw CommandError(lost ? ExitCode::kDeviceLost : ExitCode::kFailure,
                       fmt::format("the run ended after {} frames: {}; check the source and the "
                                   "device",
                                   report->captured, report->end.message()));
  }
  if (report->captured > 0 && report->failed == report->captured) {
    throw CommandError(ExitCode::kFailure,
                       fmt::format("all {} frames failed, the first one with: {}; check the source",
                                   report->captured, report->first_failure.message()));
  }
}

}  // namespace

void AddCameraCommand(CLI::App* app) {
  auto options = std::make_shared<CameraOptions>();
  CLI::App* command =
      app->add_subcommand("camera", "Classify a stream of frames and account for each of them.");
  AddSessionOptions(command, &options->session);
  command
      ->add_option("--source", options->source,
                   "test | fashion:DIR | a directory of JPEGs | FILE.mjpeg | /dev/videoN")
      ->capture_default_str();
  command
      ->add_option("--fps", options->fps,
                   "frames per second; 0: as fast as the source can; a camera may choose "
                   "otherwise")
      ->check(CLI::Range(0.0, 1000.0))
      ->capture_default_str();
  command
      ->add_option("--frames", options->frames,
                   "stop after so many captured frames; 0: at the end of the source or Ctrl-C")
      ->check(WholeNumber())
      ->capture_default_str();
  command
      ->add_option("--policy", options->policy,
                   "newest: a frame nobody has taken yet gives way to a newer one; every: "
                   "capturing waits")
      ->check(CLI::IsMember({"newest", "every"}))
      ->capture_default_str();
  AddLabelOptions(command, &options->labels);
  command
      ->add_option("--crop", options->crop,
                   "the part of each frame that the model sees: WxH+X+Y | square (the largest "
                   "in the middle) | none (all of it) | source (as the source says)")
      ->capture_default_str();
  command->add_option("--save", options->save_dir,
                      "write the annotated frames there as JPEG, at full size");
  CLI::Option* no_draw =
      command->add_flag("--no-draw", options->no_draw,
                        "do not draw results into the frames; lets the JPEG decoder shrink them "
                        "below 320x240 while decoding");
  no_draw->excludes("--save");
  AddPixelScalingOptions(command, &options->scaling);
  command->add_flag("--json", options->json,
                    "one line of JSON on stdout at the end, the summary on stderr");
  command->footer(
      "Each frame is captured, decoded, resized, inferred, drawn and counted; progress goes to\n"
      "stderr once a second. At the end captured = processed + dropped + failed, exactly. Times\n"
      "are measured on the host, apart from what is called 'modelled'; 'total' runs from capture\n"
      "to the drawn result. fps is (n - 1) / (capture time of the last - of the first) of the n\n"
      "frames that were processed. Sources that know the true class give the accuracy, too.\n"
      "Ctrl-C ends the run with its report. Pixels become inputs as in 'atoll classify --help'.\n"
      "\n"
      "Examples:\n"
      "  atoll camera model.tflite --source /dev/video0 --labels labels.txt --crop square\n"
      "  atoll camera model.tflite --source photos/ --fps 0 --policy every --save annotated/\n"
      "  atoll camera models/fashion/fashion_int8.tflite --labels models/fashion/labels.txt \\\n"
      "      --source fashion:/usr/share/datasets/fashion-mnist --frames 300 --json");
  command->callback([options] { RunCamera(*options); });
}

}  // namespace atollcmd
