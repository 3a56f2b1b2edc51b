// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <numeric>

#include "tools/atoll/picture_run.h"
#include "tools/atoll/subcommands.h"

namespace atollcmd {
namespace {

using atollrt::Task;

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
  // Of a model that does not say how many classes it has, any number of labels may be right.
  const int known = reader.class_count();
  const Labels labels(WithModel(options.labels, options.pictures.session.model),
                      {.classes = {known, known > 0 ? known : reader.kMaxClasses}});
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
      run.text() +=
          fmt::format("  {:>6.2f} %  {:>9} pixels  {:>4}{}{}\n", 100 * share, Thousands(pixels),
                      index, labels[index].empty() ? "" : "  ", labels[index]);
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

}  // namespace

void AddSegmentCommand(CLI::App* app) {
  auto options = std::make_shared<SegmentOptions>();
  CLI::App* command =
      app->add_subcommand("segment", "Say to which class each pixel of pictures belongs.");
  AddPictureOptions(command, &options->pictures);
  AddLabelOptions(command, &options->labels);
  command->add_option("--mask", options->mask,
                      "write the class of each pixel to this .png or .pgm file, or those of "
                      "several pictures as PNG into this directory");
  command->footer(
      std::string(
          "For models with one output of class numbers, [1,h,w], or of class scores, [1,h,w,n],\n"
          "where the highest score counts, the first of equals. Prints how many pixels of the\n"
          "model's output each class has, the largest first.\n"
          "\n"
          "Colours are those of the Pascal VOC data set. The PNG of --mask has the size of the\n"
          "model's output; its pixels are class numbers, with that palette.\n"
          "\n") +
      kPictureHelp +
      "\n"
      "Examples:\n"
      "  atoll segment deeplabv3.tflite bird.jpg --labels pascal_voc_labels.txt\n"
      "  atoll segment deeplabv3.tflite bird.jpg --output bird_classes.jpg --mask bird.png\n"
      "  atoll segment deeplabv3.tflite photos/*.jpg --mask masks/ --json");
  command->callback([options] { RunSegment(*options); });
}

}  // namespace atollcmd
