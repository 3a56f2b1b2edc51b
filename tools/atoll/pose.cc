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

void AddPoseCommand(CLI::App* app) {
  auto options = std::make_shared<PoseOptions>();
  CLI::App* command =
      app->add_subcommand("pose", "Find people in pictures and how they stand: keypoints.");
  AddPictureOptions(command, &options->pictures);
  command
      ->add_option("--threshold", options->threshold,
                   "leave out people with a lower score, and keypoints with a lower score from "
                   "the drawing")
      ->check(Score())
      ->capture_default_str();
  command->add_option("--max", options->max, "at most so many people per picture, the best ones")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->footer(
      std::string(
          "For models that end in PosenetDecoderOp, and for MoveNet models of one person, whose\n"
          "output has shape [1,1,17,3]. Prints the 17 keypoints of each person, the best person\n"
          "first: score, name, and place in pixels of the picture; left and right are the\n"
          "person's own. The score of a person is the model's or, from MoveNet, the mean of the\n"
          "keypoints' scores.\n"
          "\n") +
      kPictureHelp +
      "\n"
      "Examples:\n"
      "  atoll pose posenet_decoder.tflite people.jpg --output skeletons.jpg\n"
      "  atoll pose movenet_lightning.tflite squat.bmp --device cpu --json");
  command->callback([options] { RunPose(*options); });
}

}  // namespace atollcmd
