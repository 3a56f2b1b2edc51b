// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/picture_run.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "tools/atoll/output_path.h"
#include "tools/atoll/stopwatch.h"
#include "tools/atoll/validators.h"

namespace atollcmd {

const char kPictureHelp[] =
    "Resizing: the whole picture is resized to the input, without keeping its aspect ratio,\n"
    "bilinearly with half-pixel centres and antialiased: output pixel i of n, made from m, is\n"
    "the mean of the source pixels weighted by a triangle of half-width max(m / n, 1) around\n"
    "(i + 0.5) * m / n.\n"
    "\n"
    "Pixels: a quantized input takes p (uint8) or p - 128 (int8): the whole range of real\n"
    "numbers that it can hold stands for black to white. A float32 input takes\n"
    "p / 127.5 - 1. With --mean or --std (else 0 and 1) a pixel stands for (p - mean) / std\n"
    "instead, quantized with the input's scale and zero point.\n";

void AddPixelScalingOptions(CLI::App* app, atollrt::PixelScaling* scaling) {
  app->add_option(
      "--mean", scaling->mean,
      "a pixel p stands for (p - mean) / std instead of the default for the model's input");
  app->add_option("--std", scaling->std, "see --mean")->check(NonzeroNumber());
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

void AddPictureOptions(CLI::App* app, PictureOptions* options) {
  AddSessionOptions(app, &options->session);
  app->add_option("IMAGE", options->images, "JPEG, PNG, BMP or PPM files")->required();
  app->add_option("--output", options->output,
                  "write the annotated picture to this .jpg file, or those of several pictures "
                  "into this directory, named after them");
  AddPixelScalingOptions(app, &options->scaling);
  app->add_flag("--json", options->json, "one line of JSON on stdout");
}

PictureRun::PictureRun(const PictureOptions& options, atollrt::Task task, Session* session)
    : options_(options), session_(session), input_(OpenPictureInput(*session, options.scaling)) {
  if (!options.output.empty()) {
    outputs_ = PlanPictures("--output", options.output, {".jpg", ".jpeg"}, options.images);
  }
  progress_.emplace("looking at pictures", static_cast<int64_t>(options.images.size()), "done");
  session->Lint({.task = task, .takes_picture = true, .scaling_given = options.scaling.given()});
}

atollrt::Image PictureRun::ReadPicture(const std::string& path, int channels) const {
  atollrt::DecodeOptions decode;
  decode.channels = channels;
  atollrt::Result<atollrt::Image> image = atollrt::ReadImageFile(path, decode);
  if (image.ok()) return *std::move(image);
  throw CommandError(ExitCode::kFailure,
                     fmt::format("cannot use the picture: {}; {}", image.status().message(),
                                 image.status().code() == atollrt::StatusCode::kPermissionDenied
                                     ? AdviseReading(EACCES)
                                     : "give a JPEG, PNG, BMP or PPM file"));
}

bool PictureRun::Next() {
  FinishCanvas();
  if (next_ > 0) progress_->Step();
  if (next_ == options_.images.size()) return false;
  const std::string& path = options_.images[next_];
  picture_ = ReadPicture(path, input_.channels());
  const auto resized = atollrt::Resize(picture_, input_.width(), input_.height());
  atollrt::Status status = resized.ok() ? input_.Write(*resized) : resized.status();
  if (!status.ok()) {
    throw CommandError(ExitCode::kFailure, fmt::format("cannot use the picture '{}': {}; give "
                                                       "another one",
                                                       path, status.message()));
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

void PictureRun::FinishCanvas() {
  if (next_ == 0 || outputs_.empty()) return;
  constexpr int kQuality = 92;
  AddFile("--output", outputs_[next_ - 1], atollrt::EncodeJpeg(canvas_, kQuality));
}

void PictureRun::AddFile(std::string_view option, const std::string& path,
                         const atollrt::Result<std::vector<uint8_t>>& bytes) {
  if (!bytes.ok()) {
    throw CommandError(ExitCode::kFailure, fmt::format("cannot make '{}': {}; leave out {}", path,
                                                       bytes.status().message(), option));
  }
  files_.Add(option, path, bytes->data(), bytes->size());
}

void PictureRun::Finish(const char* command) {
  progress_.reset();
  files_.Commit();
  session_->Announce();
  session_->AnnounceHealth();
  AnnounceOutput("the annotated pictures", options_.output);
  if (options_.json) {
    Json report = NewReport(command, *session_);
    report["images"] = std::move(entries_);
    PrintReport(report);
  } else {
    PrintText(text_);
  }
}

double PixelPlace(float fraction, int size) {
  return std::round(static_cast<double>(fraction) * size * 10) / 10;
}

}  // namespace atollcmd
