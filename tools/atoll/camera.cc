// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "atoll/camera/web.h"
#include "tools/atoll/camera_report.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/labels.h"
#include "tools/atoll/lint.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/mqtt.h"
#include "tools/atoll/mqtt_messages.h"
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
  std::string policy = "newest";
  atollrt::FrameSourceOptions frames;
  atollrt::PipelineOptions pipeline;
  atollrt::StreamServerOptions server;
  std::vector<std::string> labels;  // one for each model, "-" for none
  std::optional<int> label_offset;
  std::vector<float> thresholds;  // one for all, or one for each model
  std::vector<int> priorities;    // one for each model
  std::vector<std::string> inside;
  int max_crops = 4;
  std::string crop = "source";
  std::string save_dir;
  bool no_draw = false;
  std::string results;
  std::string trace;
  std::string serve;
  std::string mqtt;
  std::string mqtt_camera = "camera";
  std::string mqtt_password_file;
  std::string mqtt_ca, mqtt_cert, mqtt_key;
  bool quiet = false;
  atollrt::PixelScaling scaling;
  bool json = false;
};

// ---- Which part of a frame the model sees ------------------------------------------------------

// "640x480" at 'x'.
std::optional<std::pair<int, int>> ParsePair(std::string_view text, char separator) {
  const std::vector<std::string> parts = Split(text, separator);
  const auto first = ParseNumber<int>(parts.front());
  const auto second = ParseNumber<int>(parts.back());
  if (parts.size() != 2 || !first || !second) return std::nullopt;
  return std::pair(*first, *second);
}

using CropOf = std::function<atollrt::Rect(const atollrt::Frame& frame)>;

CropOf ParseCrop(const std::string& text) {
  if (text == "source") return [](const auto& frame) { return frame.crop; };
  if (text == "none") return [](const auto&) { return atollrt::Rect(); };
  if (text == "square") {
    return [](const auto& frame) {
      const int side = std::min(frame.width, frame.height);
      return atollrt::Rect{(frame.width - side) / 2, (frame.height - side) / 2, side, side};
    };
  }
  // WxH+X+Y
  const std::vector<std::string> places = Split(text, '+');
  const auto size = ParsePair(places[0], 'x');
  const auto x = ParseNumber<int>(places.size() == 3 ? places[1] : "");
  const auto y = ParseNumber<int>(places.back());
  if (!size || !x || !y || size->first < 1 || size->second < 1 || *x < 0 || *y < 0) {
    Fail(ExitCode::kUsage,
         "--crop '{}' is none of WxH+X+Y, square, none, source; for example --crop 480x480+80+0",
         text);
  }
  return [rect = atollrt::Rect{*x, *y, size->first, size->second}](const auto&) { return rect; };
}

class CroppedSource : public atollrt::FrameSource {
 public:
  CroppedSource(std::unique_ptr<atollrt::FrameSource> source, CropOf crop)
      : source_(std::move(source)), crop_(std::move(crop)) {}

  atollrt::Result<bool> Next(atollrt::Frame* frame) override {
    atollrt::Result<bool> more = source_->Next(frame);
    if (more.ok() && *more) frame->crop = crop_(*frame);
    return more;
  }
  bool live() const override { return source_->live(); }
  std::string description() const override { return source_->description(); }

 private:
  std::unique_ptr<atollrt::FrameSource> source_;
  const CropOf crop_;
};

std::pair<int, int> ParseSize(const std::string& text) {
  const auto size = ParsePair(text, 'x');
  if (!size || size->first < 1 || size->second < 1) {
    Fail(ExitCode::kUsage, "--size '{}' is no size; for example --size 1280x720", text);
  }
  return *size;
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
std::unique_ptr<atollrt::FrameSource> OpenSource(const CameraOptions& options, const CropOf& crop,
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
    Fail(is_device || is_address ? ExitCode::kNoDevice : ExitCode::kFailure,
         "cannot open the source: {}{}{}", Printable(message), *next_step == '\0' ? "" : "; ",
         next_step);
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
  if (options.serve.empty() && options.save_dir.empty() && options.results.empty() &&
      options.mqtt.empty()) {
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
    Fail(ExitCode::kFailure, "cannot create the directory '{}': {}; {}", path, error.message(),
         AdviseWriting("--save", error.value()));
  }
}

// ---- The page ----------------------------------------------------------------------------------

// --serve [ADDRESS]:PORT
std::unique_ptr<atollrt::StreamServer> StartServer(
    const CameraOptions& options, std::function<atollrt::PipelineStatus()> status) {
  if (options.serve.empty()) {
    if (options.server.access != atollrt::StreamServerAccess()) {
      Fail(ExitCode::kUsage,
           "--token-file, --tls-cert, --tls-key, --client-ca and --insecure are for the page of "
           "--serve; name its address");
    }
    return nullptr;
  }
  atollrt::StreamServerOptions server_options = options.server;
  server_options.access.token_variable = "ATOLL_SERVE_TOKEN";
  const size_t colon = options.serve.rfind(':');
  const auto port = ParseNumber<decltype(server_options.port)>(
      colon == std::string::npos ? "" : options.serve.substr(colon + 1));
  std::string address = options.serve.substr(0, std::min(colon, options.serve.size()));
  if (address.size() > 2 && address.front() == '[' && address.back() == ']') {
    address = address.substr(1, address.size() - 2);  // IPv6
  }
  if (!port) {
    Fail(ExitCode::kUsage,
         "--serve '{}' is not [ADDRESS]:PORT; for example --serve :8080, or, with TLS and a token, "
         "0.0.0.0:8443 for other computers, too",
         options.serve);
  }
  server_options.port = *port;
  if (!address.empty()) server_options.address = address;
  server_options.status = std::move(status);
  auto server = atollrt::StreamServer::Start(std::move(server_options));
  if (!server.ok()) {
    // What it was told cannot be; or the port is taken, which may pass.
    const bool usage = server.code() == atollrt::StatusCode::kInvalidArgument ||
                       server.code() == atollrt::StatusCode::kPermissionDenied ||
                       server.code() == atollrt::StatusCode::kUnsupported;
    Fail(usage ? ExitCode::kUsage : ExitCode::kFailure, "cannot serve the page: {}",
         server.status().message());
  }
  fmt::print(stderr, "atoll: see {}\n", (*server)->url());
  return *std::move(server);
}

// ---- MQTT --------------------------------------------------------------------------------------

// What goes to the broker of --mqtt, if there is one.
class MqttReport {
 public:
  MqttReport(const CameraOptions& options, const std::string& device) {
    if (options.mqtt.empty()) {
      if (!options.mqtt_password_file.empty()) {
        Fail(ExitCode::kUsage, "--mqtt-password-file is for the broker of --mqtt; name one");
      }
      if (!options.mqtt_ca.empty() || !options.mqtt_cert.empty() || !options.mqtt_key.empty()) {
        Fail(ExitCode::kUsage, "--mqtt-ca, --mqtt-cert and --mqtt-key are for --mqtt mqtts://HOST");
      }
      return;
    }
    connection_options_.address = ParseMqttAddress(options.mqtt);
    UseTls(options);
    connection_options_.password = ReadMqttPassword(options.mqtt_password_file);
    if (connection_options_.address.user.empty() && !options.mqtt_password_file.empty()) {
      Fail(ExitCode::kUsage, "--mqtt-password-file is of no user; name one, mqtt://USER@HOST");
    }
    messages_.emplace(connection_options_.address, options.mqtt_camera, device);
    connection_options_.online = messages_->Availability(true);
    connection_options_.offline = messages_->Availability(false);
    quiet_ = options.quiet;
  }

  bool enabled() const { return messages_.has_value(); }
  void Start(std::function<atollrt::PipelineStatus()> status) {
    if (!enabled()) return;
    connection_options_.stats = [this, status = std::move(status)] {
      return messages_->Stats(status());
    };
    connection_options_.say = [quiet = quiet_](const std::string& line) {
      if (!quiet) fmt::print(stderr, "atoll: {}\n", Printable(line));
    };
    connection_ = MqttConnection::Open(connection_options_);
  }
  void Add(const atollrt::ProcessedFrame& frame,
           const std::vector<std::vector<std::string>>& labels, const Json& report) {
    if (connection_ == nullptr) return;
    for (MqttMessage& message : messages_->Of(CountLabels(frame, labels), report)) {
      connection_->Send(std::move(message));
    }
  }
  // Before what Start's function asks goes.
  void Finish() { connection_.reset(); }

 private:
  void UseTls(const CameraOptions& options) {
    const std::pair<const char*, const std::string*> files[] = {{"--mqtt-ca", &options.mqtt_ca},
                                                                {"--mqtt-cert", &options.mqtt_cert},
                                                                {"--mqtt-key", &options.mqtt_key}};
    for (const auto& file : files) {
      const char* const option = file.first;
      const std::string& path = *file.second;
      if (path.empty()) continue;
      if (!connection_options_.address.tls) {
        Fail(ExitCode::kUsage, "{} is for a broker with TLS; write mqtts://HOST", option);
      }
      ReadBeginning(path, 1, [&](const char* verb, const std::string& why) {
        Fail(ExitCode::kUsage, "cannot {} '{}' of {}: {}", verb, path, option, why);
      });
    }
    if (options.mqtt_cert.empty() != options.mqtt_key.empty()) {
      Fail(ExitCode::kUsage, "--mqtt-cert and --mqtt-key go together; give both");
    }
    connection_options_.ca = options.mqtt_ca;
    connection_options_.certificate = options.mqtt_cert;
    connection_options_.key = options.mqtt_key;
  }

  MqttOptions connection_options_;
  std::optional<CameraMessages> messages_;
  bool quiet_ = false;
  std::unique_ptr<MqttConnection> connection_;
};

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
    Fail(ExitCode::kUsage, "{} is given {} for {}; give it {}once for each, in their order", option,
         values.size() == 1 ? "once" : fmt::format("{} times", values.size()),
         models == 1 ? "one model" : fmt::format("{} models", models),
         one_for_all ? "once for all or " : "");
  }
  return values[model];
}

CameraModel OpenModel(const CameraOptions& options, size_t index, const Session* device_of) {
  const size_t count = options.models.size();
  CameraModel opened;
  SessionOptions session_options = OptionsFor(options.session, options.models, index);
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
  label_options.model = session.running_path();
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
    Fail(ExitCode::kBadModel, "cannot show what '{}' sees: {}; {}", options.models[index],
         model.status().message(), AdviseTask(session.interpreter(), atollrt::Task::kNone));
  }
  opened.model = *std::move(model);
  opened.use.model = opened.model.get();
  session.Lint({.task = task, .takes_picture = true, .scaling_given = options.scaling.given()});
  return opened;
}

// --inside 1:0: model 1 looks into the boxes of model 0.
void ApplyInside(const CameraOptions& options, std::vector<CameraModel>* models) {
  for (const std::string& text : options.inside) {
    const auto pair = ParsePair(text, ':');
    if (!pair || pair->second < 0 || pair->second >= pair->first ||
        pair->first >= static_cast<int>(models->size())) {
      Fail(ExitCode::kUsage,
           "--inside '{}' is not two models of the command line, counted from 0, the detector "
           "first there; for example --inside 1:0",
           text);
    }
    const auto inner = static_cast<size_t>(pair->first);
    const auto outer = static_cast<size_t>(pair->second);
    const Session& session = *(*models)[outer].session;
    if (atollrt::IdentifyTask(session.interpreter()) != atollrt::Task::kDetect) {
      Fail(ExitCode::kUsage, "--inside {}: model {} ('{}') makes no boxes; it must be a detector",
           text, outer, session.options().model);
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
    Fail(lost ? ExitCode::kDeviceLost : ExitCode::kFailure,
         "the run ended after {} frames: {}; check the source and the device", captured,
         report.end.message());
  }
  const std::string& first = report.first_failure.message();
  if (failed > 0 && IsDevice(device, atollrt::DeviceName::Kind::kReplay)) {
    Fail(ExitCode::kFailure,
         "{} of {} frames failed, the first one with: {}; record with --policy every, as which "
         "frames are dropped depends on the clock",
         failed, captured, first);
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
  atollrt::FrameSourceOptions source_options = options.frames;
  std::tie(source_options.width, source_options.height) = ParseSize(options.size);
  if (options.pipeline.fps > 0) source_options.fps = options.pipeline.fps;
  source_options.stop = &StopOnSignals();
  const CropOf crop = ParseCrop(options.crop);
  // The source comes last: a camera does not wait for models.
  const std::vector<CameraModel> models = OpenModels(options);
  const Session& first = *models.front().session;
  CameraProgress progress(options.pipeline.max_frames, options.quiet);
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
  FrameReport report_of(std::move(labels));
  ResultLines lines(options.results);
  MqttReport mqtt(options, first.device_description());
  CameraTrace trace(options.trace);
  if (!options.quiet) first.AnnounceDevice();
  for (const Session* session : sessions) session->AnnounceWarnings();

  atollrt::PipelineOptions pipeline_options = options.pipeline;
  pipeline_options.policy =
      options.policy == "every" ? atollrt::QueuePolicy::kEvery : atollrt::QueuePolicy::kNewest;
  pipeline_options.alternate_order = !AllStay(models);
  pipeline_options.draw = !options.no_draw;
  pipeline_options.stop = &StopOnSignals();
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
    if (lines.enabled() || mqtt.enabled()) {
      const Json json = report_of.Of(frame);
      lines.Add(json);
      mqtt.Add(frame, report_of.labels(), json);
    }
    if (server != nullptr && !frame.jpeg.empty()) server->Publish(frame.jpeg);
    return options.save_dir.empty() ? atollrt::Status() : SaveFrame(options.save_dir, frame);
  };
  auto pipeline =
      atollrt::Pipeline::Create(source.get(), std::move(uses), std::move(pipeline_options));
  if (!pipeline.ok()) {
    Fail(ExitCode::kUsage, "cannot start: {}; see 'atoll camera --help'",
         pipeline.status().message());
  }
  const atollrt::Pipeline& running = **pipeline;
  server = StartServer(options, [&] { return running.status(); });
  mqtt.Start([&] { return running.status(); });
  AnnounceSource(options, *source);
  progress.Follow(atollrt::SourceName(options.source), source->live(),
                  [&] { return running.status(); });
  const atollrt::PipelineReport report = (*pipeline)->Run();
  server.reset();  // before what it asks
  mqtt.Finish();
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
  command.Flag("--loop", command->frames.loop);
  command.Add("--size", command->size);
  command.Add("--fps", command->pipeline.fps)->check(CLI::Range(0.0, 1000.0));
  command.Add("--frames", command->pipeline.max_frames)->check(WholeNumber());
  command.Add("--policy", command->policy)->check(CLI::IsMember({"newest", "every"}));
  command.Add("--queue", command->pipeline.queue_size)->check(CLI::Range(1, 16));
  command.AddRepeatable("--labels", command->labels);
  command.Add("--label-offset", command->label_offset)->check(CLI::Range(-1000, 1000));
  command.AddRepeatable("--threshold", command->thresholds)->check(Score());
  command.AddRepeatable("--priority", command->priorities)->delimiter(',');
  command.AddRepeatable("--inside", command->inside);
  command.Add("--crops", command->max_crops)->check(CLI::Range(1, 100));
  command.Add("--crop", command->crop);
  command.Add("--save", command->save_dir);
  command.Flag("--no-draw", command->no_draw);
  command.Add("--quality", command->pipeline.jpeg_quality)->check(CLI::Range(1, 100));
  command.Add("--results", command->results);
  command.Add("--trace", command->trace);
  command.Add("--serve", command->serve);
  command.AddRepeatable("--serve-name", command->server.names);
  command.Add("--token-file", command->server.access.token_file);
  command.Add("--tls-cert", command->server.access.tls_certificate);
  command.Add("--tls-key", command->server.access.tls_key);
  command.Add("--client-ca", command->server.access.client_ca);
  command.Flag("--insecure", command->server.access.insecure);
  command.Add("--max-viewers", command->server.max_viewers)->check(CLI::Range(1, 1024));
  AddPixelScalingOptions(&command, &command->scaling);
  command.Add("--mqtt", command->mqtt);
  command.Add("--mqtt-camera", command->mqtt_camera);
  command.Add("--mqtt-password-file", command->mqtt_password_file);
  command.Add("--mqtt-ca", command->mqtt_ca);
  command.Add("--mqtt-cert", command->mqtt_cert);
  command.Add("--mqtt-key", command->mqtt_key);
  command.Flag("--quiet", command->quiet);
  command.Flag("--json", command->json);
}

}  // namespace atollcmd
