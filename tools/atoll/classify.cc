// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <numeric>

#include "atoll/picture.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/labels.h"
#include "tools/atoll/picture_input.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/stopwatch.h"
#include "tools/atoll/subcommands.h"

namespace atollcmd {
namespace {

struct ClassifyOptions {
  SessionOptions session;
  std::vector<std::string> images;
  std::string labels;
  size_t top_k = 5;
  PixelScaling scaling;
  bool json = false;
};

// The whole picture, in the size that the model takes.
std::vector<uint8_t> ReadPicture(const std::string& path, const PictureInput& input) {
  atollrt::DecodeOptions decode;
  decode.channels = input.channels();
  atollrt::Result<atollrt::Image> image = atollrt::ReadImageFile(path, decode);
  if (image.ok()) image = atollrt::Resize(*image, input.width(), input.height());
  if (!image.ok()) {
    throw CommandError(ExitCode::kFailure,
                       fmt::format("cannot use the picture: {}; give a JPEG, PNG, BMP or PPM file",
                                   image.status().message()));
  }
  return std::move(image->pixels);
}

// Indices of the `k` highest scores, best first, equal ones in ascending order.
std::vector<size_t> TopK(const std::vector<float>& scores, size_t k) {
  std::vector<size_t> indices(scores.size());
  std::iota(indices.begin(), indices.end(), size_t{0});
  std::stable_sort(indices.begin(), indices.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  indices.resize(std::min(k, indices.size()));
  return indices;
}

void RunClassify(const ClassifyOptions& options) {
  Session session(options.session);
  const PictureInput input(session, options.scaling);
  const ClassScores class_scores(session);
  const std::vector<std::string> labels = ReadLabels(options.labels, class_scores.class_count());
  std::vector<std::vector<uint8_t>> pictures;
  for (const std::string& path : options.images) pictures.push_back(ReadPicture(path, input));
  session.AnnounceDevice();

  Json images = Json::array();
  std::string text;
  for (size_t i = 0; i < pictures.size(); ++i) {
    input.Write(pictures[i]);
    Stopwatch stopwatch;
    session.Invoke();
    const double latency_ms = stopwatch.LapMs();
    const std::vector<float> scores = class_scores.Read();
    Json top = Json::array();
    text += fmt::format("{}\n", Printable(options.images[i]));
    for (const size_t index : TopK(scores, options.top_k)) {
      const std::string label = labels.empty() ? "" : labels[index];
      text += fmt::format("  {:.4f}  {:>4}{}{}\n", scores[index], index, label.empty() ? "" : "  ",
                          label);
      Json entry = {{"index", index}, {"score", ShortestDouble(scores[index])}};
      if (!labels.empty()) entry["label"] = label;
      top.push_back(std::move(entry));
    }
    images.push_back({{"image", options.images[i]},
                      {"latency_ms", RoundedMs(latency_ms)},
                      {"top", std::move(top)}});
  }
  if (options.json) {
    Json report = NewReport("classify", session);
    report["images"] = std::move(images);
    PrintReport(report);
  } else {
    PrintText(text);
  }
}

}  // namespace

void AddClassifyCommand(CLI::App* app) {
  auto options = std::make_shared<ClassifyOptions>();
  CLI::App* command = app->add_subcommand("classify", "Say what pictures show.");
  AddSessionOptions(command, &options->session);
  command->add_option("IMAGE", options->images, "JPEG, PNG, BMP or PPM files")->required();
  command->add_option("--labels", options->labels,
                      "names of the classes, one per line or all lines as 'N name' or 'N: name'; "
                      "without it class indices are printed");
  command->add_option("--top-k", options->top_k, "classes to print per picture")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  AddPixelScalingOptions(command, &options->scaling);
  command->add_flag("--json", options->json, "one line of JSON on stdout");
  command->footer(
      "Prints score, class index and name per picture, best first; scores are the output's real\n"
      "values, for a softmax output between 0 and 1.\n"
      "\n"
      "Resizing: the whole picture is resized to the input, without keeping its aspect ratio,\n"
      "bilinearly with half-pixel centres and antialiased: output pixel i of n, made from m, is\n"
      "the mean of the source pixels weighted by a triangle of half-width max(m / n, 1) around\n"
      "(i + 0.5) * m / n.\n"
      "\n"
      "Pixels: a quantized input takes p (uint8) or p - 128 (int8): the whole range of real\n"
      "numbers that it can hold stands for black to white. A float32 input takes\n"
      "p / 127.5 - 1. With --mean or --std (else 0 and 1) a pixel stands for (p - mean) / std\n"
      "instead, quantized with the input's scale and zero point.\n"
      "\n"
      "Examples:\n"
      "  atoll classify mobilenet_v2.tflite parrot.jpg cat.bmp --labels imagenet_labels.txt\n"
      "  atoll classify model.tflite photo.png --top-k 1 --device cpu --json");
  command->callback([options] { RunClassify(*options); });
}

}  // namespace atollcmd
