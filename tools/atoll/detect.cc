// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "tools/atoll/picture_run.h"
#include "tools/atoll/subcommands.h"
#include "tools/atoll/validators.h"

namespace atollcmd {
namespace {

using atollrt::Task;

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
  // The operator's scores may or may not have a column for the background.
  const Labels labels(
      WithModel(options.labels, options.pictures.session.model),
      {.classes = {reader.score_count() - 1, reader.score_count()}, .without_background = true});
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
          "  {:.4f}  {:>4}  left {:>6.1f}  top {:>6.1f}  right {:>6.1f}  bottom {:>6.1f}{}{}\n",
          detection.score, index, left, top, right, bottom, labels[index].empty() ? "" : "  ",
          labels[index]);
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

}  // namespace

void AddDetectCommand(CLI::App* app) {
  auto options = std::make_shared<DetectOptions>();
  CLI::App* command = app->add_subcommand("detect", "Find things in pictures: boxes with names.");
  AddPictureOptions(command, &options->pictures);
  AddLabelOptions(command, &options->labels);
  command->add_option("--threshold", options->threshold, "leave out what has a lower score")
      ->check(Score())
      ->capture_default_str();
  command->add_option("--max", options->max, "at most so many things per picture, the best ones")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->footer(
      std::string(
          "For models that end in TFLite_Detection_PostProcess. Prints score, class index, name\n"
          "and box of each thing, best first; boxes are in pixels of the picture.\n"
          "\n"
          "Labels: this operator does not count the background, so class 0 is the first real\n"
          "one. A label file that begins with 'background', ??? or the like is therefore\n"
          "shifted by one; --label-offset 0 prevents it, --label-offset 1 forces it.\n"
          "\n") +
      kPictureHelp +
      "\n"
      "Examples:\n"
      "  atoll detect ssd_mobilenet_v1.tflite street.jpg --labels coco_labels.txt\n"
      "  atoll detect model.tflite street.jpg --output street_boxes.jpg --threshold 0.3\n"
      "  atoll detect model.tflite photos/*.jpg --output annotated/ --json");
  command->callback([options] { RunDetect(*options); });
}

}  // namespace atollcmd
