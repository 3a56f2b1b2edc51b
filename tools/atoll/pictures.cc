// SPDX-License-Identifier: Apache-2.0
//
// `atoll classify`, `detect`, `segment` and `pose`: the run of a model over pictures, one after
// another, and what each says of them.
#include "tools/atoll/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "atoll/picture.h"
#include "tools/atoll/files.h"
#include "tools/atoll/labels.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/report.h"

namespace atollcmd {

void AddPixelScalingOptions(Command* command, atollrt::PixelScaling* scaling) {
  command->Add("--mean", scaling->mean)->check(FiniteNumber());
  command->Add("--std", scaling->std)->check(NonzeroNumber());
}

atollrt::PictureInput OpenPictureInput(const Session& session,
                                       const atollrt::PixelScaling& scaling) {
  auto input = atollrt::PictureInput::Create(session.interpreter(), scaling);
  if (input.ok()) return *std::move(input);
  const std::string& reason = input.status().message();
  if (input.code() == atollrt::StatusCode::kInvalidArgument) {
    throw CommandError(ExitCode::kUsage, reason + "; leave --mean and --std out");
  }
  throw CommandError(ExitCode::kBadModel, reason + "; " + AdviseInput(session.interpreter()));
}

LabelRule LabelRuleOf(const Session& session, atollrt::Task task) {
  switch (task) {
    case atollrt::Task::kClassify: {
      const int count = OpenReader<atollrt::ClassificationReader>(session, task).class_count();
      return {.classes = {count, count}};
    }
    case atollrt::Task::kDetect: {
      // The operator's scores may or may not have a column for the background.
      const int count = OpenReader<atollrt::DetectionReader>(session, task).score_count();
      return {.classes = {count - 1, count}, .without_background = true};
    }
    case atollrt::Task::kSegment: {
      const auto reader = OpenReader<atollrt::SegmentationReader>(session, task);
      const int count = reader.class_count();
      return {.classes = {count, count > 0 ? count : reader.kMaxClasses}};
    }
    default:
      return {.classes = {0, 0}};
  }
}

namespace {

using atollrt::Task;

// PlanOutputs (files.h) of what can be written: CheckOutputFile or CheckOutputFolder of it.
std::vector<std::string> PlanPictures(std::string_view option, const std::string& output,
                                      const std::vector<std::string>& extensions,
                                      const std::vector<std::string>& pictures) {
  // A name that ends like a picture is one, unless there is a folder of that name.
  std::error_code error;
  const std::string extension = std::filesystem::path(output).extension().string();
  if (extension.empty() || std::filesystem::is_directory(output, error)) {
    CheckOutputFolder(option, output);
  } else {
    CheckParentOf(option, output);
  }
  return PlanOutputs(option, output, extensions, pictures);
}

struct PictureOptions {
  SessionOptions session;
  std::vector<std::string> images;
  atollrt::PixelScaling scaling;
  std::string output;
  bool json = false;
};

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
  PictureRun(const PictureOptions& options, atollrt::Task task, Session* session)
      : options_(options), session_(session), input_(OpenPictureInput(*session, options.scaling)) {
    if (!options.output.empty()) {
      outputs_ = PlanPictures("--output", options.output, {".jpg", ".jpeg"}, options.images);
    }
    progress_.emplace("looking at pictures", static_cast<int64_t>(options.images.size()), "done");
    session->Lint({.task = task, .takes_picture = true, .scaling_given = options.scaling.given()});
  }

  // Brings the next picture into the input and runs the model. False after the last one.
  bool Next() {
    FinishCanvas();
    if (next_ > 0) progress_->Step();
    if (next_ == options_.images.size()) return false;
    const std::string& path = options_.images[next_];
    picture_ = ReadPicture(path, input_.channels());
    const auto resized = atollrt::Resize(picture_, input_.width(), input_.height());
    atollrt::Status status = resized.ok() ? input_.Write(*resized) : resized.status();
    if (!status.ok()) {
      Fail(ExitCode::kFailure, "cannot use the picture '{}': {}; give another one", path,
           status.message());
    }
    Stopwatch stopwatch;
    session_->Invoke();
    const double latency_ms = stopwatch.LapMs();
    entries_.push_back({{"image", path},
                        {"width", picture_.width},
                        {"height", picture_.height},
                        {"latency_ms", RoundedMs(latency_ms)}});
    text_ += Printable(path) + "\n";
    if (!outputs_.empty()) {
      entry()["output"] = outputs_[next_];
      canvas_ = picture_.channels == 3 ? picture_ : ReadPicture(path, 3);
    }
    ++next_;
    return true;
  }

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
               const atollrt::Result<std::vector<uint8_t>>& bytes) {
    if (!bytes.ok()) {
      Fail(ExitCode::kFailure, "cannot make '{}': {}; leave out {}", path, bytes.status().message(),
           option);
    }
    files_.Add(option, path, bytes->data(), bytes->size());
  }

  void Finish(const char* command) {
    progress_.reset();
    files_.Commit();
    session_->Announce();
    session_->AnnounceHealth();
    AnnounceOutput("the annotated pictures", options_.output);
    Json report = NewReport(command, *session_);
    report["images"] = std::move(entries_);
    Print(
        options_.json, [&] { return report; }, [&] { return text_; });
  }

 private:
  atollrt::Image ReadPicture(const std::string& path, int channels) const {
    atollrt::DecodeOptions decode;
    decode.channels = channels;
    atollrt::Result<atollrt::Image> image = atollrt::ReadImageFile(path, decode);
    if (image.ok()) return *std::move(image);
    Fail(ExitCode::kFailure, "cannot use the picture: {}; {}", image.status().message(),
         image.status().code() == atollrt::StatusCode::kPermissionDenied
             ? AdviseReading(EACCES)
             : "give a JPEG, PNG, BMP or PPM file");
  }

  void FinishCanvas() {
    if (next_ == 0 || outputs_.empty()) return;
    constexpr int kQuality = 92;
    AddFile("--output", outputs_[next_ - 1], atollrt::EncodeJpeg(canvas_, kQuality));
  }

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

void AddPictureOptions(Command* command, PictureOptions* options) {
  AddSessionOptions(command, &options->session);
  command->Add("IMAGE", options->images)->required();
  command->Add("--output", options->output);
  AddPixelScalingOptions(command, &options->scaling);
  command->Flag("--json", options->json);
}

// A place in a picture, to a tenth of a pixel: `fraction` of `size`.
double PixelPlace(float fraction, int size) {
  return std::round(static_cast<double>(fraction) * size * 10) / 10;
}

struct ClassifyOptions {
  PictureOptions pictures;
  LabelOptions labels;
  int top_k = 5;
};

void RunClassify(const ClassifyOptions& options) {
  Session session(options.pictures.session);
  const auto reader = OpenReader<atollrt::ClassificationReader>(session, Task::kClassify);
  PictureRun run(options.pictures, Task::kClassify, &session);
  const Labels labels(WithModel(options.labels, session.running_path()),
                      LabelRuleOf(session, Task::kClassify));
  session.AddWarnings(labels.warnings());

  std::vector<atollrt::ClassScore> top;
  while (run.Next()) {
    reader.ReadTop(options.top_k, &top);
    Json entries = Json::array();
    std::vector<atollrt::LegendEntry> legend;
    for (const auto& [index, score] : top) {
      run.text() += fmt::format("  {:.4f}  {:>4}{}\n", score, index, labels.Behind(index));
      Json entry = {{"index", index}, {"score", ShortestDouble(score)}};
      if (!labels.empty()) entry["label"] = labels[index];
      entries.push_back(std::move(entry));
      legend.push_back({{}, fmt::format("{:.2f} {}", score, labels.NameOf(index))});
    }
    run.entry()["top"] = std::move(entries);
    if (run.canvas() != nullptr) atollrt::DrawLegend(legend, run.canvas());
  }
  run.Finish("classify");
  if (labels.empty() && !options.pictures.json) {
    fmt::print(stderr, "atoll: classes are numbers here; --labels FILE names them\n");
  }
}

struct DetectOptions {
  PictureOptions pictures;
  LabelOptions labels;
  float threshold = 0.5f;
  size_t max = 100;
};

void RunDetect(const DetectOptions& options) {
  Session session(options.pictures.session);
  const auto reader = OpenReader<atollrt::DetectionReader>(session, Task::kDetect);
  PictureRun run(options.pictures, Task::kDetect, &session);
  const Labels labels(WithModel(options.labels, session.running_path()),
                      LabelRuleOf(session, Task::kDetect));
  session.AddWarnings(labels.warnings());

  std::vector<atollrt::Detection> detections;
  while (run.Next()) {
    reader.Read(options.threshold, &detections);
    detections.resize(std::min(detections.size(), options.max));
    Json entries = Json::array();
    std::vector<std::string> captions;
    for (const atollrt::Detection& detection : detections) {
      const double left = PixelPlace(detection.left, run.width());
      const double top = PixelPlace(detection.top, run.height());
      const double right = PixelPlace(detection.right, run.width());
      const double bottom = PixelPlace(detection.bottom, run.height());
      const int index = detection.class_index;
      run.text() += fmt::format(
          "  {:.4f}  {:>4}  left {:>6.1f}  top {:>6.1f}  right {:>6.1f}  bottom {:>6.1f}{}\n",
          detection.score, index, left, top, right, bottom, labels.Behind(index));
      Json entry = {{"index", index}, {"score", ShortestDouble(detection.score)}};
      if (!labels.empty()) entry["label"] = labels[index];
      entry["box"] = {{"left", left}, {"top", top}, {"right", right}, {"bottom", bottom}};
      entries.push_back(std::move(entry));
      captions.push_back(fmt::format("{} {:.2f}", labels.NameOf(index), detection.score));
    }
    if (detections.empty()) {
      run.text() += fmt::format("  nothing with a score of {} or more\n", options.threshold);
    }
    run.entry()["detections"] = std::move(entries);
    if (run.canvas() != nullptr) {
      atollrt::DrawDetections(detections, captions, run.seen(), run.canvas());
    }
  }
  run.Finish("detect");
}

struct SegmentOptions {
  PictureOptions pictures;
  LabelOptions labels;
  std::string mask;
};

// The classes that a picture has, the largest first.
std::vector<int> ClassesBySize(const std::array<int64_t, 256>& counts) {
  std::vector<int> classes(counts.size());
  std::iota(classes.begin(), classes.end(), 0);
  const auto count = [&](int index) { return counts[static_cast<size_t>(index)]; };
  std::erase_if(classes, [&](int index) { return count(index) == 0; });
  std::stable_sort(classes.begin(), classes.end(),
                   [&](int a, int b) { return count(a) > count(b); });
  return classes;
}

void RunSegment(const SegmentOptions& options) {
  Session session(options.pictures.session);
  const auto reader = OpenReader<atollrt::SegmentationReader>(session, Task::kSegment);
  PictureRun run(options.pictures, Task::kSegment, &session);
  const Labels labels(WithModel(options.labels, session.running_path()),
                      LabelRuleOf(session, Task::kSegment));
  session.AddWarnings(labels.warnings());
  std::vector<std::string> masks;
  if (!options.mask.empty()) {
    masks = PlanPictures("--mask", options.mask, {".png", ".pgm"}, options.pictures.images);
  }

  const std::array<atollrt::Color, 256> palette = atollrt::SegmentationPalette();
  const int64_t total = int64_t{reader.width()} * reader.height();
  atollrt::Image map;
  while (run.Next()) {
    if (const atollrt::Status status = reader.Read(&map); !status.ok()) {
      throw CommandError(ExitCode::kBadModel, status.message() + "; use 'atoll run'");
    }
    const std::array<int64_t, 256> counts = atollrt::CountPixels(map);
    Json entries = Json::array();
    std::vector<atollrt::LegendEntry> legend;
    for (const int index : ClassesBySize(counts)) {
      const int64_t pixels = counts[static_cast<size_t>(index)];
      const double share = static_cast<double>(pixels) / static_cast<double>(total);
      run.text() += fmt::format("  {:>6.2f} %  {:>9} pixels  {:>4}{}\n", 100 * share,
                                Thousands(pixels), index, labels.Behind(index));
      Json entry = {{"index", index}, {"pixels", pixels}, {"share", share}};
      if (!labels.empty()) entry["label"] = labels[index];
      entries.push_back(std::move(entry));
      legend.push_back({palette[static_cast<size_t>(index)],
                        fmt::format("{} {:.0f}%", labels.NameOf(index), 100 * share)});
    }
    run.entry()["map_width"] = reader.width();
    run.entry()["map_height"] = reader.height();
    run.entry()["classes"] = std::move(entries);
    if (!masks.empty()) {
      const std::string& path = masks[run.index()];
      run.entry()["mask"] = path;
      run.AddFile("--mask", path,
                  path.ends_with(".pgm") ? atollrt::EncodePgm(map)
                                         : atollrt::EncodeIndexedPng(map, palette));
    }
    if (run.canvas() != nullptr) {
      atollrt::DrawSegmentation(map, palette, run.seen(), run.canvas());
      atollrt::DrawLegend(legend, run.canvas());
    }
  }
  run.Finish("segment");
}

struct PoseOptions {
  PictureOptions pictures;
  float threshold = 0.3f;
  size_t max = 100;
};

void RunPose(const PoseOptions& options) {
  Session session(options.pictures.session);
  const auto reader = OpenReader<atollrt::PoseReader>(session, Task::kPose);
  PictureRun run(options.pictures, Task::kPose, &session);

  std::vector<atollrt::Pose> poses;
  while (run.Next()) {
    reader.Read(options.threshold, &poses);
    if (poses.size() > options.max) poses.resize(options.max);
    Json entries = Json::array();
    for (size_t i = 0; i < poses.size(); ++i) {
      run.text() += fmt::format("  {:.4f}  person {}\n", poses[i].score, i + 1);
      Json keypoints = Json::array();
      for (size_t k = 0; k < poses[i].keypoints.size(); ++k) {
        const atollrt::Keypoint& keypoint = poses[i].keypoints[k];
        const double x = PixelPlace(keypoint.x, run.width());
        const double y = PixelPlace(keypoint.y, run.height());
        run.text() += fmt::format("    {:.4f}  {:<14}  x {:>6.1f}  y {:>6.1f}\n", keypoint.score,
                                  atollrt::kKeypointNames[k], x, y);
        keypoints.push_back({{"name", atollrt::kKeypointNames[k]},
                             {"score", ShortestDouble(keypoint.score)},
                             {"x", x},
                             {"y", y}});
      }
      entries.push_back(
          {{"score", ShortestDouble(poses[i].score)}, {"keypoints", std::move(keypoints)}});
    }
    if (poses.empty()) {
      run.text() += fmt::format("  nobody with a score of {} or more\n", options.threshold);
    }
    run.entry()["poses"] = std::move(entries);
    if (run.canvas() != nullptr) {
      atollrt::DrawPoses(poses, options.threshold, run.seen(), run.canvas());
    }
  }
  run.Finish("pose");
}

}  // namespace

void AddClassifyCommand(CLI::App* app) {
  Subcommand<ClassifyOptions> command(app, "classify", RunClassify);
  AddPictureOptions(&command, &command->pictures);
  AddLabelOptions(&command, &command->labels);
  command.Add("--top-k", command->top_k)->check(CLI::Range(1, 1'000'000));
}

void AddDetectCommand(CLI::App* app) {
  Subcommand<DetectOptions> command(app, "detect", RunDetect);
  AddPictureOptions(&command, &command->pictures);
  AddLabelOptions(&command, &command->labels);
  command.Add("--threshold", command->threshold)->check(Score());
  command.Add("--max", command->max)->check(CLI::Range(1, 1'000'000));
}

void AddSegmentCommand(CLI::App* app) {
  Subcommand<SegmentOptions> command(app, "segment", RunSegment);
  AddPictureOptions(&command, &command->pictures);
  AddLabelOptions(&command, &command->labels);
  command.Add("--mask", command->mask);
}

void AddPoseCommand(CLI::App* app) {
  Subcommand<PoseOptions> command(app, "pose", RunPose);
  AddPictureOptions(&command, &command->pictures);
  command.Add("--threshold", command->threshold)->check(Score());
  command.Add("--max", command->max)->check(CLI::Range(1, 1'000'000));
}

}  // namespace atollcmd
