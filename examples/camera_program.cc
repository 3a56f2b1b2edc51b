// SPDX-License-Identifier: Apache-2.0
#include "camera_program.h"

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

using atollrt::FrameSource;
using atollrt::Pipeline;
using atollrt::PipelineReport;
using atollrt::Rect;
using atollrt::Result;
using atollrt::Stage;
using atollrt::Status;

namespace {

std::atomic<bool> g_stop = false;

Status ToStatus(const atollpp::Status& status) {
  return {static_cast<atollrt::StatusCode>(status.code()), status.message()};
}

}  // namespace

int Fail(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  return 1;
}

uint64_t FramesOf(const char* argument) {
  const std::string text(argument);
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != text.npos) {
    std::exit(Fail("FRAMES is '" + text + "'; give a number"));
  }
  return std::stoull(text);
}

Result<CameraModel> OpenCameraModel(const std::string& path, atollrt::Task task,
                                    const std::string& labels, const atollpp::Delegate& delegate,
                                    AtollInterpreterOptions options) {
  const atollpp::Result<atollpp::Model> file = atollpp::Model::FromFile(path);
  if (!file) return ToStatus(file.status());  // names the file
  atollpp::Result<atollpp::Interpreter> interpreter =
      atollpp::Interpreter::Create(*file, delegate, options);
  if (!interpreter) return ToStatus(interpreter.status()).WithContext(path);
  const atollrt::Task its_task = atollrt::IdentifyTask(interpreter->get());
  if (task != atollrt::Task::kNone && task != its_task) {
    return atollrt::Unsupported("%s is a model to %s, not to %s", path.c_str(),
                                atollrt::TaskName(its_task), atollrt::TaskName(task));
  }

  atollrt::FrameModelOptions model_options;
  model_options.name = std::filesystem::path(path).stem().string();
  if (labels != "-") {
    std::ifstream lines(labels);
    if (!lines) return atollrt::NotFound("%s cannot be read", labels.c_str());
    for (std::string line; std::getline(lines, line);) model_options.labels.push_back(line);
  }
  Result<std::unique_ptr<atollrt::FrameModel>> model =
      atollrt::OpenFrameModel(interpreter->get(), std::move(model_options));
  if (!model.ok()) return Status(model.status()).WithContext(path);
  return CameraModel{*std::move(interpreter), *std::move(model)};
}

Result<std::unique_ptr<FrameSource>> OpenCamera(const std::string& spec) {
  return atollrt::OpenFrameSource(spec, {.stop = &StopRequested()});
}

const std::atomic<bool>& StopRequested() {
  struct sigaction action = {};
  action.sa_handler = [](int) { g_stop = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second Ctrl-C ends the program at once
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return g_stop;
}

Rect PlaceInFrame(const atollrt::ProcessedFrame& processed, const atollrt::ModelResult& result,
                  const atollrt::Detection& detection) {
  // Of some pictures the source does not know the size; those are not decoded smaller.
  const auto ratio = [](int frame, int picture) {
    return frame > 0 ? static_cast<double>(frame) / picture : 1.0;
  };
  const double scale_x = ratio(processed.frame.width, processed.picture.width);
  const double scale_y = ratio(processed.frame.height, processed.picture.height);
  const auto x = [&](double fraction) {
    return static_cast<int>(std::lround((result.seen.x + fraction * result.seen.width) * scale_x));
  };
  const auto y = [&](double fraction) {
    return static_cast<int>(std::lround((result.seen.y + fraction * result.seen.height) * scale_y));
  };
  const int left = x(detection.left);
  const int top = y(detection.top);
  return {left, top, x(detection.right) - left, y(detection.bottom) - top};
}

int RunCamera(FrameSource* source, std::vector<atollrt::PipelineModel> models,
              atollrt::PipelineOptions options) {
  options.stop = &StopRequested();
  // Of a camera the newest frame counts, of a file every one.
  options.policy = source->live() ? atollrt::QueuePolicy::kNewest : atollrt::QueuePolicy::kEvery;
  Result<std::unique_ptr<Pipeline>> pipeline =
      Pipeline::Create(source, std::move(models), std::move(options));
  if (!pipeline.ok()) return Fail(pipeline.status().message());
  const PipelineReport report = (*pipeline)->Run();

  const atollrt::PipelineStatus& status = report.status;
  std::printf("%s\n%llu captured = %llu processed + %llu dropped + %llu failed\n",
              status.source.c_str(), static_cast<unsigned long long>(status.captured),
              static_cast<unsigned long long>(status.processed),
              static_cast<unsigned long long>(status.dropped),
              static_cast<unsigned long long>(status.failed));
  for (const atollrt::ModelStatus& model : status.models) {
    std::printf("%s: %s; median of %llu: %.2f ms\n", model.name.c_str(), model.partition.c_str(),
                static_cast<unsigned long long>(model.inferences), model.infer_ms.p50);
  }
  const atollrt::LatencySummary& total = status.stages[static_cast<size_t>(Stage::kTotal)].ms;
  std::printf("from capture until all is done: %.2f ms (median), %.2f ms (99 %%)\n", total.p50,
              total.p99);
  if (!report.first_failure.ok()) return Fail(report.first_failure.message());
  if (!report.end.ok()) return Fail(report.end.message());
  return 0;
}
