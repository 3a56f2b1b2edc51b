// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <memory>

#include "atoll/camera/web.h"
#include "tools/atoll/camera_report.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/labels.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/pictures.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

struct CameraOptions {
  SessionOptions session;  // without a model
  std::vector<std::string> models;
  std::string source = "test";
  bool source_given = false;
  std::string size = "640x480";
  bool loop = false;
  double fps = 30;
  uint64_t frames = 0;
  std::string policy = "newest";
  int queue = 1;
  std::vector<std::string> labels;  // one for each model, "-" for none
  std::optional<int> label_offset;
  std::vector<float> thresholds;  // one for all, or one for each model
  std::vector<int> priorities;    // one for each model
  std::vector<std::string> inside;
  int max_crops = 4;
  std::string crop = "source";
  std::string save_dir;
  bool no_draw = false;
  int quality = 80;
  std::string results;
  std::string trace;
  std::string serve;
  std::vector<std::string> serve_names;
  bool quiet = false;
  int max_viewers = 16;
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

std::pair<int, int> ParseSize(const std::string& text) {
  int width = 0;
  int height = 0;
  const char* end = text.c_str() + text.size();
  const auto [x, first] = std::from_chars(text.c_str(), end, width);
  bool good = first == std::errc() && x != end && *x == 'x';
  if (good) {
    const auto [last, second] = std::from_chars(x + 1, end, height);
    good = second == std::errc() && last == end;
  }
  if (!good || width < 1 || height < 1) {
    throw CommandError(ExitCode::kUsage,
                       fmt::format("--size '{}' is no size; for example --size 1280x720", text));
  }
  return {width, height};
}

// What is left when somebody has stopped the run before its source was open: no frames.
class StoppedSource : public atollrt::FrameSource {
 public:
  explicit StoppedSource(std::string name) : name_(std::move(name)) {}
  atollrt::Result<bool> Next(atollrt::Frame*) override { return false; }
  std::string description() const override { return name_ + ": stopped before it was open"; }

 private:
  const std::string name_;
};

// Whose messages name the source without a password.
std::unique_ptr<atollrt::FrameSource> OpenSource(const CameraOptions& options, const Crop& crop,
                                                 const atollrt::FrameSourceOptions& how) {
  auto source = atollrt::OpenFrameSource(options.source, how);
  if (source.code() == atollrt::StatusCode::kCancelled) {
    return std::make_unique<StoppedSource>(atollrt::SourceName(options.source));
  }
  if (!source.ok()) {
    const bool is_device = options.source.starts_with("/dev/");
    const bool is_address = options.source.find("://") != std::string::npos;
    const std::string& message = source.status().message();
    const char* next_step = "'atoll camera --help' lists the kinds of sources";
    if (is_device) {
      next_step = "'atoll doctor' looks closer";
    } else if (is_address) {
      const bool has_one = message.find("; ") != message.npos || message.ends_with("?)");
      next_step = has_one ? "" : "look at the camera, and at its address";
    } else if (source.code() == atollrt::StatusCode::kPermissionDenied) {
      next_step = AdviseReading(EACCES);
    }
    throw CommandError(is_device || is_address ? ExitCode::kNoDevice : ExitCode::kFailure,
                       fmt::format("cannot open the source: {}{}{}", Printable(message),
                                   *next_step == '\0' ? "" : "; ", next_step));
  }
  return std::make_unique<CroppedSource>(*std::move(source), crop);
}

// What somebody who tries it for the first time might miss.
void AnnounceSource(const CameraOptions& options, const atollrt::FrameSource& source) {
  if (options.quiet) return;
  fmt::print(stderr, "atoll: frames from {}{}\n", Printable(source.description()),
             options.source_given
                 ? ""
                 : ", which is made up; --source /dev/video0, or another, is a camera");
  if (options.serve.empty() && options.save_dir.empty() && options.results.empty()) {
    fmt::print(stderr,
               "atoll: nobody sees the pictures; --serve :8080 shows them in a browser, --save DIR "
               "keeps them, --results - prints what is in them\n");
  }
}

void CreateSaveDirectory(const std::string& path) {
  if (path.empty()) return;
  CheckOutputFolder("--save", path);
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    throw CommandError(ExitCode::kFailure,
                       fmt::format("cannot create the directory '{}': {}; {}", path,
                                   error.message(), AdviseWriting("--save", error.value())));
  }
}

// ---- The page ----------------------------------------------------------------------------------

// --serve [ADDRESS]:PORT
std::unique_ptr<atollrt::StreamServer> StartServer(
    const CameraOptions& options, std::function<atollrt::PipelineStatus()> status) {
  if (options.serve.empty()) return nullptr;
  atollrt::StreamServerOptions server_options;
  const size_t colon = options.serve.rfind(':');
  const std::string port = colon == std::string::npos ? "" : options.serve.substr(colon + 1);
  const char* const port_end = port.c_str() + port.size();
  const auto [end, error] = std::from_chars(port.c_str(), port_end, server_options.port);
  std::string address = options.serve.substr(0, std::min(colon, options.serve.size()));
  if (address.size() > 2 && address.front() == '[' && address.back() == ']') {
    address = address.substr(1, address.size() - 2);  // IPv6
  }
  if (error != std::errc() || end != port_end) {
    throw CommandError(ExitCode::kUsage,
                       fmt::format("--serve '{}' is not [ADDRESS]:PORT; for example --serve :8080, "
                                   "or 0.0.0.0:8080 for other computers, too",
                                   options.serve));
  }
  if (!address.empty()) server_options.address = address;
  server_options.names = options.serve_names;
  server_options.max_viewers = options.max_viewers;
  server_options.status = std::move(status);
  auto server = atollrt::StreamServer::Start(std::move(server_options));
  if (!server.ok()) {
    throw CommandError(ExitCode::kFailure,
                       fmt::format("cannot serve the page: {}", server.status().message()));
  }
  fmt::print(stderr, "atoll: see {}\n", (*server)->url());
  return *std::move(server);
}

// ---- The models --------------------------------------------------------------------------------

// One of the command line's, ready to look at frames.
struct CameraModel {
  std::unique_ptr<Session> session;
  std::unique_ptr<atollrt::FrameModel> model;
  atollrt::PipelineModel use;
  std::vector<std::string> labels;  // by class; maybe none
};

// The options of one model among those for all.
template <typename T>
T Choose(const char* option, const std::vector<T>& values, size_t model, size_t models, T otherwise,
         bool one_for_all) {
  if (values.empty()) return otherwise;
  if (values.size() == 1 && one_for_all) return values[0];
  if (values.size() != models) {
    throw CommandError(
        ExitCode::kUsage,
        fmt::format("{} is given {} for {}; give it {}once for each, in their order", option,
                    values.size() == 1 ? "once" : fmt::format("{} times", values.size()),
                    models == 1 ? "one model" : fmt::format("{} models", models),
                    one_for_all ? "once for all or " : ""));
  }
  return values[model];
}

CameraModel OpenModel(const CameraOptions& options, size_t index, const Session* device_of) {
  const size_t count = options.models.size();
  CameraModel opened;
  SessionOptions session_options = options.session;
  session_options.model = options.models[index];
  session_options.priority =
      Choose("--priority", options.priorities, index, count, 0, /*one_for_all=*/false);
  session_options.residency_set = 1;  // they take turns on every frame
  opened.use.priority = session_options.priority;
  opened.session = std::make_unique<Session>(session_options, device_of);
  Session& session = *opened.session;

  OpenPictureInput(session, options.scaling);
  const atollrt::Task task = atollrt::IdentifyTask(session.interpreter());
  atollrt::FrameModelOptions model_options;
  model_options.name = std::filesystem::path(options.models[index]).stem().string();
  model_options.scaling = options.scaling;
  model_options.threshold = Choose("--threshold", options.thresholds, index, count,
                                   task == atollrt::Task::kPose ? 0.3f : 0.5f, true);
  LabelOptions label_options;
  label_options.path = Choose("--labels", options.labels, index, count, std::string(), false);
  const bool wants_none = label_options.path == "-";
  if (wants_none) label_options.path.clear();
  label_options.offset = options.label_offset;
  label_options.model = options.models[index];
  const LabelRule rule = LabelRuleOf(session, task);
  if (!label_options.path.empty() || (!wants_none && rule.classes.most > 0)) {
    const Labels labels(label_options, rule);
    for (int c = 0; c < rule.classes.most && !labels.empty(); ++c) {
      model_options.labels.push_back(labels[c]);
    }
    session.AddWarnings(labels.warnings());
    opened.labels = model_options.labels;
  }
  auto model = atollrt::OpenFrameModel(session.interpreter(), std::move(model_options));
  if (!model.ok()) {
    throw CommandError(ExitCode::kBadModel,
                       fmt::format("cannot show what '{}' sees: {}; {}", options.models[index],
                                   model.status().message(),
                                   AdviseTask(session.interpreter(), atollrt::Task::kNone)));
  }
  opened.model = *std::move(model);
  opened.use.model = opened.model.get();
  session.Lint({.task = task, .takes_picture = true, .scaling_given = options.scaling.given()});
  return opened;
}

// --inside 1:0: model 1 looks into the boxes of model 0.
void ApplyInside(const CameraOptions& options, std::vector<CameraModel>* models) {
  for (const std::string& text : options.inside) {
    size_t inner = 0;
    size_t outer = 0;
    const char* end = text.c_str() + text.size();
    const auto [colon, first] = std::from_chars(text.c_str(), end, inner);
    bool good = first == std::errc() && colon != end && *colon == ':';
    if (good) {
      const auto [last, second] = std::from_chars(colon + 1, end, outer);
      good = second == std::errc() && last == end && inner < models->size() && outer < inner;
    }
    if (!good) {
      throw CommandError(
          ExitCode::kUsage,
          fmt::format("--inside '{}' is not two models of the command line, counted from 0, the "
                      "detector first there; for example --inside 1:0",
                      text));
    }
    const Session& session = *(*models)[outer].session;
    if (atollrt::IdentifyTask(session.interpreter()) != atollrt::Task::kDetect) {
      throw CommandError(ExitCode::kUsage,
                         fmt::format("--inside {}: model {} ('{}') makes no boxes; it must be a "
                                     "detector",
                                     text, outer, session.options().model));
    }
    (*models)[inner].use.inside = static_cast<int>(outer);
    (*models)[inner].use.max_crops = options.max_crops;
  }
}

// Whether all models stay on the device; if not, the order of each frame is turned around.
bool AllStay(const std::vector<CameraModel>& models) {
  const Session& first = *models.front().session;
  if (models.size() == 1 || !first.on_device()) return true;
  std::vector<const AtollInterpreter*> interpreters;
  for (const CameraModel& model : models) interpreters.push_back(model.session->interpreter());
  const AtollResidencyPlan* plan = nullptr;
  const AtollStatus status = AtollPlanResidency(first.delegate(), interpreters.data(),
                                                static_cast<int32_t>(interpreters.size()), &plan);
  return status == ATOLL_OK && plan->all_fit != 0;
}

std::vector<CameraModel> OpenModels(const CameraOptions& options) {
  std::vector<CameraModel> models;
  for (size_t i = 0; i < options.models.size(); ++i) {
    models.push_back(OpenModel(options, i, models.empty() ? nullptr : models[0].session.get()));
  }
  ApplyInside(options, &models);
  return models;
}

// ---- The run -----------------------------------------------------------------------------------

atollrt::FrameSourceOptions SourceOptionsOf(const CameraOptions& options) {
  atollrt::FrameSourceOptions how;
  std::tie(how.width, how.height) = ParseSize(options.size);
  if (options.fps > 0) how.fps = options.fps;
  how.loop = options.loop;
  how.stop = &StopOnSignals();
  return how;
}

// Without those that are called during the run.
atollrt::PipelineOptions PipelineOptionsOf(const CameraOptions& options, bool all_stay) {
  atollrt::PipelineOptions how;
  how.fps = options.fps;
  how.policy =
      options.policy == "every" ? atollrt::QueuePolicy::kEvery : atollrt::QueuePolicy::kNewest;
  how.queue_size = options.queue;
  how.max_frames = options.frames;
  how.alternate_order = !all_stay;
  how.draw = !options.no_draw;
  how.jpeg_quality = options.quality;
  how.stop = &StopOnSignals();
  return how;
}

// What was done is reported even if the run ended badly: every frame is to be accounted for.
void PrintRun(const CameraOptions& options, const CameraRun& run) {
  // Where lines for programs are, text for people is not.
  const bool has_lines = IsStandardOutput(options.results) || IsStandardOutput(options.trace);
  if (options.json || has_lines) fmt::print(stderr, "{}", CameraText(run));
  if (options.json) {
    PrintReport(CameraJson(run));
  } else if (!has_lines) {
    PrintText(CameraText(run));
  }
}

// Throws CommandError if the run ended badly, or no frame went well.
void Judge(const atollrt::PipelineReport& report, const std::string& device) {
  const uint64_t captured = report.status.captured;
  const uint64_t failed = report.status.failed;
  if (!report.end.ok()) {
    const bool lost = report.end.code() == atollrt::StatusCode::kDeviceLost;
    throw CommandError(lost ? ExitCode::kDeviceLost : ExitCode::kFailure,
                       fmt::format("the run ended after {} frames: {}; check the source and the "
                                   "device",
                                   captured, report.end.message()));
  }
  const std::string& first = report.first_failure.message();
  if (failed > 0 && device.starts_with("replay:")) {
    throw CommandError(ExitCode::kFailure,
                       fmt::format("{} of {} frames failed, the first one with: {}; record with "
                                   "--policy every, as which frames are dropped depends on the "
                                   "clock",
                                   failed, captured, first));
  }
  if (captured > 0 && failed == captured) {
    throw CommandError(ExitCode::kFailure,
                       captured == 1
                           ? fmt::format("the only frame failed: {}; check the source", first)
                           : fmt::format("all {} frames failed, the first one with: {}; check the "
                                         "source",
                                         captured, first));
  }
}

void RunCamera(const CameraOptions& options) {
  const atollrt::FrameSourceOptions source_options = SourceOptionsOf(options);
  const Crop crop = ParseCrop(options.crop);
  // The source comes last: a camera does not wait for models.
  const std::vector<CameraModel> models = OpenModels(options);
  const Session& first = *models.front().session;
  CameraProgress progress(options.frames, options.quiet);
  progress.Follow(atollrt::SourceName(options.source), /*live=*/true, nullptr);
  const std::unique_ptr<atollrt::FrameSource> source = OpenSource(options, crop, source_options);
  CreateSaveDirectory(options.save_dir);
  if (!options.trace.empty() && !IsStandardOutput(options.trace)) {
    CheckOutputFile("--trace", options.trace);
  }

  std::vector<atollrt::PipelineModel> uses;
  std::vector<const Session*> sessions;
  std::vector<std::vector<std::string>> labels;
  for (const CameraModel& model : models) {
    uses.push_back(model.use);
    sessions.push_back(model.session.get());
    labels.push_back(model.labels);
  }
  ResultLines lines(options.results, std::move(labels));
  CameraTrace trace(options.trace);
  if (!options.quiet) first.AnnounceDevice();
  for (const Session* session : sessions) session->AnnounceWarnings();

  atollrt::PipelineOptions pipeline_options = PipelineOptionsOf(options, AllStay(models));
  std::unique_ptr<atollrt::StreamServer> server;
  pipeline_options.wants_jpeg = [&] {
    return !options.save_dir.empty() || (server != nullptr && server->wants_frames());
  };
  if (trace.enabled()) {
    pipeline_options.on_span = [&](const atollrt::StageSpan& span) { trace.Add(span); };
  }
  pipeline_options.describe_device = [&](atollrt::DeviceStatus* status) {
    DescribeDevice(first, status);
  };
  pipeline_options.on_frame = [&](const atollrt::ProcessedFrame& frame) {
    progress.Add(frame);
    lines.Add(frame);
    if (server != nullptr && !frame.jpeg.empty()) server->Publish(frame.jpeg);
    return options.save_dir.empty() ? atollrt::Status() : SaveFrame(options.save_dir, frame);
  };
  auto pipeline =
      atollrt::Pipeline::Create(source.get(), std::move(uses), std::move(pipeline_options));
  if (!pipeline.ok()) {
    throw CommandError(ExitCode::kUsage, fmt::format("cannot start: {}; see 'atoll camera --help'",
                                                     pipeline.status().message()));
  }
  const atollrt::Pipeline& running = **pipeline;
  server = StartServer(options, [&] { return running.status(); });
  AnnounceSource(options, *source);
  progress.Follow(atollrt::SourceName(options.source), source->live(),
                  [&] { return running.status(); });
  const atollrt::PipelineReport report = (*pipeline)->Run();
  server.reset();  // before what it asks
  progress.Finish();
  first.AnnounceHealth();
  trace.Write(report.status);
  lines.Finish();
  PrintRun(options, {sessions, options.models, progress, report});
  Judge(report, first.options().device);
}

}  // namespace

void AddCameraCommand(CLI::App* app) {
  Subcommand<CameraOptions> command(app, "camera", RunCamera);
  command.Add("MODEL", command->models)->required();
  AddDeviceOptions(&command, &command->session);
  command.Add("--source", command->source)->each([options = command.options()](const std::string&) {
    options->source_given = true;
  });
  command.Flag("--loop", command->loop);
  command.Add("--size", command->size);
  command.Add("--fps", command->fps)->check(CLI::Range(0.0, 1000.0));
  command.Add("--frames", command->frames)->check(WholeNumber());
  command.Add("--policy", command->policy)->check(CLI::IsMember({"newest", "every"}));
  command.Add("--queue", command->queue)->check(CLI::Range(1, 16));
  command.AddRepeatable("--labels", command->labels);
  command.Add("--label-offset", command->label_offset)->check(CLI::Range(-1000, 1000));
  command.AddRepeatable("--threshold", command->thresholds)->check(Score());
  command.AddRepeatable("--priority", command->priorities)->delimiter(',');
  command.AddRepeatable("--inside", command->inside);
  command.Add("--crops", command->max_crops)->check(CLI::Range(1, 100));
  command.Add("--crop", command->crop);
  command.Add("--save", command->save_dir);
  command.Flag("--no-draw", command->no_draw);
  command.Add("--quality", command->quality)->check(CLI::Range(1, 100));
  command.Add("--results", command->results);
  command.Add("--trace", command->trace);
  command.Add("--serve", command->serve);
  command.AddRepeatable("--serve-name", command->serve_names);
  command.Add("--max-viewers", command->max_viewers)->check(CLI::Range(1, 1024));
  AddPixelScalingOptions(&command, &command->scaling);
  command.Flag("--quiet", command->quiet);
  command.Flag("--json", command->json);
}

}  // namespace atollcmd
