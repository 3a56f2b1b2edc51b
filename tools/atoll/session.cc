// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/session.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "tools/atoll/command_line.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/input_shape.h"
#include "tools/atoll/output_path.h"
#include "tools/atoll/progress.h"
#include "tools/atoll/read_file.h"
#include "tools/atoll/report.h"
#include "tools/atoll/stopwatch.h"

namespace atollcmd {
namespace {

constexpr char kCoralOperator[] = "edgetpu-custom-op";

// What to use instead of a model compiled for a Coral Edge TPU: Google's compiler makes
// NAME_edgetpu.tflite of NAME.tflite.
std::string AdviseCoral(const std::string& path) {
  constexpr std::string_view kSuffix = "_edgetpu.tflite";
  const std::filesystem::path compiled(path);
  std::string name = compiled.filename().string();
  if (!name.ends_with(kSuffix)) return "look for the file that was given to edgetpu_compiler";
  name.resize(name.size() - kSuffix.size());
  // Of models that were compiled together, A_cocompiled_with_B is A.
  name.resize(std::min(name.size(), name.find("_cocompiled_with_")));
  if (name.empty()) return "look for the file that was given to edgetpu_compiler";
  name += ".tflite";
  std::error_code error;
  if (std::filesystem::exists(compiled.parent_path() / name, error)) {
    return fmt::format("use '{}', which lies beside it", (compiled.parent_path() / name).string());
  }
  return fmt::format("look for '{}', as it is usually called", name);
}

// What a file is that is no model, by its first bytes or its name; "" if nobody knows.
std::string AdviseFormat(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string start(8, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  const auto convert = [](const char* what) {
    return fmt::format("this is {}; convert it to .tflite, with full integer quantization", what);
  };
  // A message whose first fields are the version of its form and who made it, or its graph.
  const bool is_onnx = start[0] == 8 && start[1] > 0 && start[1] < 32 &&
                       (start[2] == 0x12 || start[2] == 0x1a || start[2] == 0x3a);
  if (is_onnx || path.ends_with(".onnx")) return convert("an ONNX file");
  if (start.starts_with("\x89HDF")) return convert("a Keras file (HDF5)");
  if (start.starts_with("PK\3\4")) return convert("an archive, as PyTorch and Keras write them");
  if (path.ends_with(".pb")) return convert("a TensorFlow graph");
  if (start.starts_with("version ")) return "this is a pointer of Git LFS; 'git lfs pull' gets it";
  if (start.starts_with("<")) return "this is a page of the Web; download the file itself";
  return "";
}

AtollModel* LoadModel(const SessionOptions& options) {
  std::vector<InputShape> shapes;
  for (const std::string& text : options.input_shapes) shapes.push_back(*ParseInputShape(text));
  std::vector<AtollInputShape> c_shapes;
  for (const InputShape& shape : shapes) {
    c_shapes.push_back({.name = shape.name.empty() ? nullptr : shape.name.c_str(),
                        .index = shape.index,
                        .dims = shape.sizes.data(),
                        .num_dims = static_cast<int32_t>(shape.sizes.size())});
  }
  AtollModelOptions model_options = ATOLL_MODEL_OPTIONS_INIT;
  model_options.input_shapes = c_shapes.data();
  model_options.input_shape_count = static_cast<int32_t>(c_shapes.size());
  model_options.copy_file = options.copy ? 1 : 0;
  AtollModel* model = nullptr;
  const AtollStatus status =
      AtollModelCreateFromFileWithOptions(options.model.c_str(), &model_options, &model);
  // A file that was fine without --input-shape is not damaged.
  const bool is_shape = status == ATOLL_INVALID_ARGUMENT || status == ATOLL_CORRUPT_MODEL ||
                        status == ATOLL_UNSUPPORTED;
  // The library's sentence begins with the path.
  ThrowIfError(status, Activity::kLoadingModel, "",
               status == ATOLL_CORRUPT_MODEL && !AdviseFormat(options.model).empty()
                   ? AdviseFormat(options.model)
               : is_shape && !shapes.empty() ? "choose another shape, or keep that of the file"
                                             : "");
  return model;
}

}  // namespace

void AddSessionOptions(CLI::App* app, SessionOptions* options) {
  app->add_option("MODEL", options->model, "a .tflite file")->required();
  AddDeviceOptions(app, options);
  AddInputShapeOption(app, &options->input_shapes);
}

void AddInputShapeOption(CLI::App* app, std::vector<std::string>* input_shapes) {
  app->add_option("--input-shape", *input_shapes,
                  "[NAME=]1x320x320x3: the shape of an input, instead of the one in the file; "
                  "[NAME=]320x320: its height and width alone; NAME may be its number, from 0; "
                  "repeatable")
      ->allow_extra_args(false)
      ->check(InputShapeText());
}

void AddDeviceOptions(CLI::App* app, SessionOptions* options) {
  app->add_option(
         "--device", options->device,
         "auto | cpu | emu | emu:PROFILE | usb | usb:N | usb:BUS-PORT | pci:N | replay:FILE, or a "
         "list of devices of one kind, A,B, which share the requests; auto takes the first real "
         "device, else the emulator; PROFILE is a name of 'atoll devices' or a .json file; "
         "emu+stepped and emu:PROFILE+stepped go cycle by cycle")
      ->capture_default_str();
  app->add_flag("--copy", options->copy,
                "read model files into memory instead of mapping them: then a file may be "
                "overwritten while it is used");
  app->add_option("--threads", options->threads,
                  "host threads for operators on the CPU and for the emulator; 0: as the machine "
                  "suggests")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app->add_option("--stages", options->stages,
                  "cut the model into so many stages of about equal time, for the devices of a "
                  "list: --device emu,emu --stages 2")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app->add_option("--on-device-loss", options->on_device_loss,
                  "when a device that was lost does not come back within seconds: fallback "
                  "completes requests on the emulator, with the same bytes; replay fails them; "
                  "fail does not even wait")
      ->check(CLI::IsMember({"replay", "fallback", "fail"}))
      ->capture_default_str();
  app->add_option("--performance", options->performance,
                  "clock of a Coral: low, medium, high or max (63, 125, 250, 500 MHz)")
      ->check(CLI::IsMember({"low", "medium", "high", "max"}))
      ->capture_default_str();
  app->add_option("--firmware", options->firmware,
                  "file with the firmware of a Coral (docs/coral.md)");
  app->add_option("--fallback-model", options->fallback_model,
                  "a .tflite file with the same inputs and outputs: completes on the CPU what a "
                  "device that was lost does not, for models that run on a Coral only");
  app->add_option("--faults", options->faults,
                  "what shall go wrong between host and device: seed:N:P, as seed:7:1/400, or a "
                  "script (docs/faults.md)");
  app->add_option("--record", options->record,
                  "record what goes over the bus in this file, a .pcapng for Wireshark and 'atoll "
                  "replay'");
}

namespace {

std::shared_ptr<AtollDelegate> OpenDelegate(const SessionOptions& options) {
  if (!options.record.empty()) CheckOutputFile("--record", options.record);
  if (!options.faults.empty() && !options.faults.starts_with("seed:")) {
    CheckFile("--faults", options.faults, "a script, or seed:N:P");
  }
  if (!options.firmware.empty()) CheckFile("--firmware", options.firmware, "a Coral's firmware");
  AtollDelegateOptions delegate_options = ATOLL_DELEGATE_OPTIONS_INIT;
  delegate_options.device = options.device.c_str();
  delegate_options.num_threads = options.threads;
  delegate_options.max_partition_nodes = options.max_partition_nodes;
  delegate_options.on_device_loss = options.on_device_loss.c_str();
  if (!options.faults.empty()) delegate_options.faults = options.faults.c_str();
  const std::string command_line = JsonText(CommandLine());
  if (!options.record.empty()) {
    delegate_options.record = options.record.c_str();
    delegate_options.record_note = command_line.c_str();
  }
  delegate_options.stages = options.stages;
  delegate_options.performance = options.performance.c_str();
  if (!options.firmware.empty()) delegate_options.firmware = options.firmware.c_str();
  AtollDelegate* delegate = nullptr;
  const AtollStatus status = AtollDelegateCreate(&delegate_options, &delegate);
  // What is said of a name that is none needs nothing in front of it.
  ThrowIfError(status, Activity::kOpeningDevice,
               status == ATOLL_INVALID_ARGUMENT
                   ? ""
                   : fmt::format("cannot open the device '{}'", options.device));
  return {delegate, AtollDelegateDelete};
}

}  // namespace

Session::Session(const SessionOptions& options, const Session* device_of) : options_(options) {
  const Progress progress(fmt::format("preparing '{}' for {}", options.model, options.device));
  Stopwatch stopwatch;
  AtollModel* model = LoadModel(options);
  model_.reset(model);
  load_times_.model_ms = stopwatch.LapMs();

  AtollInterpreterOptions interpreter_options = ATOLL_INTERPRETER_OPTIONS_INIT;
  interpreter_options.num_threads = options.threads;
  interpreter_options.priority = options.priority;
  interpreter_options.residency_set = options.residency_set;
  delegate_ = device_of != nullptr ? device_of->delegate_ : OpenDelegate(options);
  const AtollDeviceInfo info = device_info();
  device_name_ = info.name;
  on_device_ = device_name_ != "cpu";
  device_description_ = info.description;
  interpreter_options.delegate = delegate_.get();
  load_times_.device_ms = stopwatch.LapMs();

  std::unique_ptr<AtollModel, Deleter<AtollModelDelete>> fallback;
  if (!options.fallback_model.empty()) {
    SessionOptions of_fallback = options;
    of_fallback.model = options.fallback_model;
    fallback.reset(LoadModel(of_fallback));
    interpreter_options.fallback = fallback.get();
  }
  AtollInterpreter* interpreter = nullptr;
  const AtollStatus status = AtollInterpreterCreate(model, &interpreter_options, &interpreter);
  const bool for_coral =
      status == ATOLL_UNSUPPORTED && AtollModelHasOperator(model, kCoralOperator);
  ThrowIfError(status, Activity::kPreparing,
               fmt::format("cannot prepare the model '{}' on {}", options.model, device_name_),
               for_coral ? AdviseCoral(options.model) : AdviseAfter(status));
  interpreter_.reset(interpreter);
  load_times_.prepare_ms = stopwatch.LapMs();
}

bool Session::on_coral() const {
  return on_device() && AtollModelHasOperator(model(), kCoralOperator) != 0;
}

AtollDeviceHealth Session::device_health() const {
  AtollDeviceHealth health = {};
  ThrowIfError(AtollDelegateGetDeviceHealth(delegate_.get(), &health), Activity::kOpeningDevice,
               "cannot ask the device");
  return health;
}

void Session::AnnounceHealth() const {
  const AtollDeviceHealth health = device_health();
  if (health.failures == 0) return;
  const std::pair<int64_t, const char*> parts[] = {
      {health.resets, "resets"},
      {health.reopenings, "reopenings"},
      {health.losses, "losses"},
      {health.replays, "replays"},
      {health.fallbacks, "completed on the stand-in"},
  };
  std::string text;
  for (const auto& [count, name] : parts) {
    if (count > 0) text += fmt::format(", {} {}", name, count);
  }
  fmt::print(stderr, "atoll: device {}: failures {}{}\n", device_name_, health.failures, text);
}

AtollDeviceInfo Session::device_info() const {
  AtollDeviceInfo info = {};
  ThrowIfError(AtollDelegateGetDeviceInfo(delegate_.get(), &info), Activity::kOpeningDevice,
               "cannot describe the device");
  return info;
}

void Session::AnnounceDevice() const {
  if (options_.device == "auto") {
    const std::string note = device_info().note;
    fmt::print(stderr, "atoll: --device auto took {} ({}){}{}\n", device_name_, device_description_,
               note.empty() ? "" : ", because ", note);
  }
}

void Session::Lint(const ModelUse& use) { AddWarnings(LintModel(interpreter(), use)); }

void Session::AddWarnings(const std::vector<Finding>& warnings) {
  warnings_.insert(warnings_.end(), warnings.begin(), warnings.end());
}

void Session::Announce() const {
  AnnounceDevice();
  AnnounceWarnings();
}

void Session::AnnounceWarnings() const {
  for (const Finding& warning : warnings_) {
    fmt::print(stderr, "atoll: warning: {}\n", Printable(warning.message));
  }
}

std::string Session::AdviseAfter(AtollStatus status) const {
  const bool is_lost = ExitCodeOf(status, Activity::kRunning) == ExitCode::kDeviceLost;
  if (is_lost && emulated()) {
    return options_.faults.empty() ? "run it again, or use --device cpu"
                                   : "leave out --faults, or use --on-device-loss fallback";
  }
  const bool is_usual = is_lost || on_device_ || status == ATOLL_INVALID_ARGUMENT ||
                        status == ATOLL_CORRUPT_MODEL || status == ATOLL_UNSUPPORTED;
  return is_usual ? "" : "close other programs, or use a smaller model";
}

void Session::Invoke() {
  const AtollStatus status = AtollInterpreterInvoke(interpreter());
  ThrowIfError(status, Activity::kRunning,
               fmt::format("the model '{}' failed on {}", options_.model, device_name_),
               AdviseAfter(status));
}

std::vector<AtollTensor*> Session::inputs() const {
  std::vector<AtollTensor*> tensors;
  for (int32_t i = 0; i < AtollInterpreterGetInputTensorCount(interpreter()); ++i) {
    tensors.push_back(AtollInterpreterGetInputTensor(interpreter(), i));
  }
  return tensors;
}

std::vector<const AtollTensor*> Session::outputs() const {
  std::vector<const AtollTensor*> tensors;
  for (int32_t i = 0; i < AtollInterpreterGetOutputTensorCount(interpreter()); ++i) {
    tensors.push_back(AtollInterpreterGetOutputTensor(interpreter(), i));
  }
  return tensors;
}

std::vector<AtollNodeInfo> Session::nodes() const {
  std::vector<AtollNodeInfo> nodes(AtollInterpreterGetNodeCount(interpreter()));
  for (size_t i = 0; i < nodes.size(); ++i) {
    ThrowIfError(AtollInterpreterGetNodeInfo(interpreter(), static_cast<int32_t>(i), &nodes[i]),
                 Activity::kRunning, "cannot describe an operator");
  }
  return nodes;
}

std::vector<AtollPartitionInfo> Session::partitions() const {
  std::vector<AtollPartitionInfo> partitions(AtollInterpreterGetPartitionCount(interpreter()));
  for (size_t i = 0; i < partitions.size(); ++i) {
    ThrowIfError(
        AtollInterpreterGetPartitionInfo(interpreter(), static_cast<int32_t>(i), &partitions[i]),
        Activity::kRunning, "cannot describe a partition");
  }
  return partitions;
}

std::string Session::PartitionSummary() const {
  size_t delegated = 0;
  const std::vector<AtollNodeInfo> all = nodes();
  if (!on_device()) return fmt::format("all {} operators on the CPU", all.size());
  for (const AtollNodeInfo& node : all) delegated += node.partition >= 0;
  const size_t count = partitions().size();
  return fmt::format("{} partition{} with {} of {} operators on the device, {} on the CPU", count,
                     count == 1 ? "" : "s", delegated, all.size(), all.size() - delegated);
}

AtollInvokeInfo Session::invoke_info() const {
  AtollInvokeInfo info = {};
  ThrowIfError(AtollInterpreterGetInvokeInfo(interpreter(), &info), Activity::kRunning,
               "cannot describe the invocation");
  return info;
}

AtollMemoryInfo Session::memory_info() const {
  AtollMemoryInfo info = {};
  ThrowIfError(AtollInterpreterGetMemoryInfo(interpreter(), &info), Activity::kRunning,
               "cannot describe the memory");
  return info;
}

int64_t Session::macs() const {
  int64_t macs = 0;
  for (const AtollNodeInfo& node : nodes()) macs += node.macs;
  return macs;
}

}  // namespace atollcmd
