// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/atoll/picture_run.h"
#include "tools/atoll/subcommands.h"

namespace atollcmd {
namespace {

using atollrt::Task;

struct ClassifyOptions {
  PictureOptions pictures;
  LabelOptions labels;
  int top_k = 5;
};

void RunClassify(const ClassifyOptions& options) {
  Session session(options.pictures.session);
  const auto reader = OpenReader<atollrt::ClassificationReader>(session, Task::kClassify);
  PictureRun run(options.pictures, Task::kClassify, &session);
  const Labels labels(WithModel(options.labels, options.pictures.session.model),
                      {{reader.class_count(), reader.class_count()}});
  session.AddWarnings(labels.warnings());

  std::vector<atollrt::ClassScore> top;
  while (run.Next()) {
    reader.ReadTop(options.top_k, &top);
    Json entries = Json::array();
    std::vector<atollrt::LegendEntry> legend;
    for (const auto& [index, score] : top) {
      const std::string& label = labels[index];
      run.text() +=
          fmt::format("  {:.4f}  {:>4}{}{}\n", score, index, label.empty() ? "" : "  ", label);
      Json entry = {{"index", index}, {"score", ShortestDouble(score)}};
      if (!labels.empty()) entry["label"] = label;
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

}  // namespace

void AddClassifyCommand(CLI::App* app) {
  auto options = std::make_shared<ClassifyOptions>();
  CLI::App* command = app->add_subcommand("classify", "Say what pictures show.");
  AddPictureOptions(command, &options->pictures);
  AddLabelOptions(command, &options->labels);
  command->add_option("--top-k", options->top_k, "classes to print per picture")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->footer(
      std::string("Prints score, class index and name per picture, best first; scores are the\n"
                  "output's real values, for a softmax output between 0 and 1.\n"
                  "\n") +
      kPictureHelp +
      "\n"
      "Examples:\n"
      "  atoll classify mobilenet_v2.tflite parrot.jpg cat.bmp --labels imagenet_labels.txt\n"
      "  atoll classify model.tflite photo.png --top-k 1 --device cpu --json");
  command->callback([options] { RunClassify(*options); });
}

}  // namespace atollcmd
