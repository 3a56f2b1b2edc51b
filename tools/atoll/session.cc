// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/report.h"
#include "tools/atoll/split_mix.h"

namespace atollcmd {
namespace {

constexpr char kCoralOperator[] = "edgetpu-custom-op";

// What a file is that is no model, by its first bytes or its name; "" if nobody knows.
std::string AdviseFormat(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string start(8, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  const auto convert = [](const char* what) {
    return fmt::format(
        "this is {}; convert it to a float .tflite or to ONNX, of which 'atoll quantize' makes an "
        "int8 model",
        what);
  };
  // A message whose first fields are the version of its form and who made it, or its graph.
  const bool is_onnx = start[0] == 8 && start[1] > 0 && start[1] < 32 &&
                       (start[2] == 0x12 || start[2] == 0x1a || start[2] == 0x3a);
  if (is_onnx || path.ends_with(".onnx")) {
    return "this is an ONNX file; 'atoll import' makes a float .tflite of it, 'atoll quantize' an "
           "int8 one";
  }
  if (start.starts_with("\x89HDF")) return convert("a Keras file (HDF5)");
  if (start.starts_with("PK\3\4")) return convert("an archive, as PyTorch and Keras write them");
  if (path.ends_with(".pb")) return convert("a TensorFlow graph");
  if (start.starts_with("version ")) return "this is a pointer of Git LFS; 'git lfs pull' gets it";
  if (start.starts_with("<")) return "this is a page of the Web; download the file itself";
  return "";
}

AtollModel* LoadModel(const SessionOptions& options, const std::string& path) {
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
      AtollModelCreateFromFileWithOptions(path.c_str(), &model_options, &model);
  // A file that was fine without --input-shape is not damaged.
  const bool is_shape = status == ATOLL_INVALID_ARGUMENT || status == ATOLL_CORRUPT_MODEL ||
                        status == ATOLL_UNSUPPORTED;
  // The library's sentence begins with the path.
  std::string next_step = status == ATOLL_CORRUPT_MODEL ? AdviseFormat(path) : "";
  if (next_step.empty() && is_shape && !shapes.empty()) {
    next_step = "choose another shape, or keep that of the file";
  }
  ThrowIfError(status, Activity::kLoadingModel, "", next_step);
  return model;
}

// The path of the fallback; "" for none.
std::string FallbackOf(const SessionOptions& options) {
  const std::vector<std::string>& paths = options.fallback_models;
  if (paths.size() > 1) {
    Fail(ExitCode::kUsage, "--fallback-model is given {} times for one model; give it once",
         paths.size());
  }
  return paths.empty() || paths[0] == "-" ? "" : paths[0];
}

// Whether a Coral may be what has that name.
bool MayBeCoral(std::string_view device) {
  using Kind = atollrt::DeviceName::Kind;
  const auto name = atollrt::ParseDeviceName(device);
  if (!name.ok()) return false;
  switch (name->kind) {
    case Kind::kUsb:
    case Kind::kPcie:
    case Kind::kApex:
    case Kind::kBroker:
    case Kind::kNetwork:
      return true;
    case Kind::kGroup:
      return std::ranges::all_of(name->members, MayBeCoral);
    default:  // here in any case, or wrong if it is not
      return false;
  }
}

// `is_optional`: the model runs on whatever there is if there is no device of that name.
std::shared_ptr<AtollDelegate> OpenDelegate(const SessionOptions& options, bool is_optional) {
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
  AtollStatus status = AtollDelegateCreate(&delegate_options, &delegate);
  if (status == ATOLL_NOT_FOUND && is_optional) {
    fmt::print(stderr, "atoll: note: {}: --device auto in its place\n",
               Printable(AtollLastError()));
    delegate_options.device = "auto";
    status = AtollDelegateCreate(&delegate_options, &delegate);
  }
  // What is said of a name that is none needs nothing in front of it.
  ThrowIfError(status, Activity::kOpeningDevice,
               status == ATOLL_INVALID_ARGUMENT
                   ? ""
                   : fmt::format("cannot open the device '{}'", options.device));
  return {delegate, AtollDelegateDelete};
}

// The name of a Coral that is plugged in; "" if there is none.
std::string FindCoral() {
  const AtollDeviceInfo* devices = nullptr;
  int32_t count = 0;
  if (AtollListDevices(&devices, &count) != ATOLL_OK) return "";
  for (const AtollDeviceInfo& device : std::span(devices, static_cast<size_t>(count))) {
    const bool is_coral = std::string_view(device.description).starts_with("Coral ");
    if (device.available != 0 && is_coral) return device.name;
  }
  return "";
}

struct InputFile {
  size_t index;  // of the model input
  std::string path;
};

InputFile ParseInputFile(const std::string& argument, size_t input_count) {
  const size_t equals = std::min(argument.find('='), argument.size());
  const std::optional<size_t> index =
      ParseNumber<size_t>(std::string_view(argument).substr(0, equals));
  if (!index || equals + 1 >= argument.size()) {
    Fail(ExitCode::kUsage,
         "--input '{}' is not of the form K=FILE; for example --input 0=image.raw", argument);
  }
  if (*index >= input_count) {
    Fail(ExitCode::kUsage,
         "--input '{}' names input {}, but the model has {} (counted from 0); 'atoll inspect' "
         "lists them",
         argument, *index, input_count);
  }
  return {*index, argument.substr(equals + 1)};
}

void ReadInto(const InputFile& input, const InputSlot& slot) {
  const size_t wanted = slot.bytes.size();
  const std::string bytes =
      ReadBeginning(input.path, wanted + 1, [&](const char* verb, const std::string& why) {
        Fail(ExitCode::kFailure, "cannot {} '{}' for input {}: {}", verb, input.path, input.index,
             why);
      });
  if (bytes.size() != wanted) {
    Fail(ExitCode::kUsage,
         "'{}' has {} bytes, but input {} '{}' takes exactly {} ({} {}); give a file of that size",
         input.path, bytes.size() < wanted ? fmt::format("{}", bytes.size()) : "more", input.index,
         slot.name, wanted, AtollTypeName(slot.type), slot.shape);
  }
  std::memcpy(slot.bytes.data(), bytes.data(), wanted);
}

void FillFromSeed(uint64_t seed, const InputSlot& slot) {
  SplitMix64 stream(seed);
  uint8_t* const data = slot.bytes.data();
  const size_t size = slot.bytes.size();
  if (slot.type == ATOLL_FLOAT32) {
    for (size_t i = 0; i + sizeof(float) <= size; i += sizeof(float)) {
      const double unit = static_cast<double>(stream.Next() >> 40) / 16777216.0;
      const auto value = static_cast<float>(unit * 2.0 - 1.0);
      std::memcpy(data + i, &value, sizeof(value));
    }
    return;
  }
  for (size_t i = 0; i < size; i += 8) {
    const uint64_t number = stream.Next();
    for (size_t k = i; k < size && k < i + 8; ++k) {
      data[k] = static_cast<uint8_t>(number >> (8 * (k - i)));
      if (slot.type == ATOLL_BOOL) data[k] &= 1;
    }
  }
}

InputSlot SlotOf(AtollTensor* tensor) {
  return {.name = AtollTensorName(tensor),
          .type = AtollTensorType(tensor),
          .shape = ShapeText(tensor),
          .bytes = {static_cast<uint8_t*>(AtollTensorData(tensor)), AtollTensorByteSize(tensor)}};
}

}  // namespace

bool IsDevice(std::string_view name, atollrt::DeviceName::Kind kind) {
  const auto parsed = atollrt::ParseDeviceName(name);
  return parsed.ok() && parsed->kind == kind;
}

void AddSessionOptions(Command* command, SessionOptions* options) {
  command->Add("MODEL", options->model)->required();
  AddDeviceOptions(command, options);
  AddInputShapeOption(command, &options->input_shapes);
}

void AddInputShapeOption(Command* command, std::vector<std::string>* input_shapes) {
  command->AddRepeatable("--input-shape", *input_shapes)->check(InputShapeText());
}

void AddDeviceOptions(Command* command, SessionOptions* options) {
  command->Add("--device", options->device);
  command->Flag("--copy", options->copy);
  command->Add("--threads", options->threads)->check(CLI::Range(0, 256));
  command->Add("--stages", options->stages)->check(CLI::Range(1, 64));
  command->Add("--on-device-loss", options->on_device_loss)
      ->check(CLI::IsMember({"replay", "fallback", "fail"}));
  command->Add("--performance", options->performance)
      ->check(CLI::IsMember({"low", "medium", "high", "max"}));
  command->Add("--firmware", options->firmware);
  AddFallbackOption(command, &options->fallback_models);
  command->Add("--faults", options->faults);
  command->Add("--record", options->record);
}

void AddFallbackOption(Command* command, std::vector<std::string>* fallback_models) {
  command->AddRepeatable("--fallback-model", *fallback_models);
}

SessionOptions OptionsFor(const SessionOptions& all, const std::vector<std::string>& models,
                          size_t index) {
  SessionOptions one = all;
  one.model = models[index];
  const std::vector<std::string>& fallbacks = all.fallback_models;
  if (fallbacks.empty() || models.size() == 1) return one;
  if (fallbacks.size() != models.size()) {
    Fail(ExitCode::kUsage,
         "--fallback-model is given {} for {} models; give it once for each, in their order, - for "
         "none",
         fallbacks.size() == 1 ? "once" : fmt::format("{} times", fallbacks.size()), models.size());
  }
  one.fallback_models = {fallbacks[index]};
  return one;
}

Session::Session(const SessionOptions& options, const Session* device_of)
    : Session(options, device_of, nullptr) {}

std::unique_ptr<Session> Session::Twin() const {
  return std::unique_ptr<Session>(new Session(options_, this, model_));
}

Session::Session(const SessionOptions& options, const Session* device_of,
                 std::shared_ptr<AtollModel> shared)
    : options_(options), model_(std::move(shared)) {
  const Progress progress(fmt::format("preparing '{}' for {}", options.model, options.device));
  Stopwatch stopwatch;
  if (model_ == nullptr) model_ = {LoadModel(options, options.model), AtollModelDelete};
  AtollModel* const model = model_.get();
  load_times_.model_ms = stopwatch.LapMs();

  const std::string fallback = FallbackOf(options);
  AtollInterpreterOptions interpreter_options = ATOLL_INTERPRETER_OPTIONS_INIT;
  interpreter_options.num_threads = options.threads;
  interpreter_options.priority = options.priority;
  interpreter_options.residency_set = options.residency_set;
  const bool is_for_coral = AtollModelHasOperator(model, kCoralOperator) != 0;
  // What is to run without a Coral needs none.
  const bool is_optional = is_for_coral && !fallback.empty() && MayBeCoral(options.device);
  delegate_ = device_of != nullptr ? device_of->delegate_ : OpenDelegate(options, is_optional);
  const AtollDeviceInfo info = device_info();
  device_name_ = info.name;
  on_device_ = device_name_ != "cpu";
  device_description_ = info.description;
  interpreter_options.delegate = delegate_.get();
  load_times_.device_ms = stopwatch.LapMs();

  if (!fallback.empty()) {
    substitute_.reset(LoadModel(options, fallback));
    interpreter_options.fallback = substitute_.get();
  }
  AtollInterpreter* interpreter = nullptr;
  const AtollStatus status = AtollInterpreterCreate(model, &interpreter_options, &interpreter);
  // The library says itself what can be done about a model for a Coral.
  const bool says_all = status == ATOLL_UNSUPPORTED && is_for_coral;
  ThrowIfError(status, Activity::kPreparing,
               fmt::format("cannot prepare the model '{}' on {}", options.model, device_name_),
               says_all ? "" : AdviseAfter(status));
  interpreter_.reset(interpreter);
  const char* path = nullptr;
  ThrowIfError(AtollInterpreterGetSubstitute(interpreter, &path), Activity::kPreparing,
               "cannot ask what runs");
  if (path == nullptr) {
    substitute_.reset();
  } else {
    substitute_path_ = path;
    if (substitute_ == nullptr) substitute_.reset(LoadModel(options, path));
  }
  load_times_.prepare_ms = stopwatch.LapMs();
}

bool Session::on_coral() const {
  return on_device() && substitute_path_.empty() &&
         AtollModelHasOperator(model(), kCoralOperator) != 0;
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

void Session::AnnounceDevice() const {
  const bool is_auto = IsDevice(options_.device, atollrt::DeviceName::Kind::kAuto);
  if (is_auto && !substitute_path_.empty()) {
    if (const std::string coral = FindCoral(); !coral.empty()) {
      fmt::print(stderr, "atoll: note: a Coral is plugged in; --device {} runs '{}' itself\n",
                 coral, Printable(options_.model));
    }
  }
  if (is_auto) {
    const std::string note = device_info().note;
    fmt::print(stderr, "atoll: --device auto took {} ({}){}{}\n", device_name_, device_description_,
               note.empty() ? "" : ", because ", note);
  }
}

void Session::Lint(const ModelUse& use) { AddWarnings(LintModel(interpreter(), use)); }

void Session::AddWarnings(const std::vector<Finding>& warnings) {
  warnings_.insert(warnings_.end(), warnings.begin(), warnings.end());
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

std::span<const AtollMemoryBlock> Session::partition_memory(size_t partition) const {
  const AtollMemoryBlock* blocks = nullptr;
  int32_t count = 0;
  ThrowIfError(AtollInterpreterGetPartitionMemory(interpreter(), static_cast<int32_t>(partition),
                                                  &blocks, &count),
               Activity::kRunning, "cannot describe a partition");
  return {blocks, static_cast<size_t>(count)};
}

std::string Session::PartitionSummary() const {
  size_t delegated = 0;
  const std::vector<AtollNodeInfo> all = nodes();
  const std::string instead =
      substitute_path_.empty() ? ""
                               : fmt::format(", of '{}' in its place", Printable(substitute_path_));
  if (!on_device()) return fmt::format("all {} operators on the CPU{}", all.size(), instead);
  for (const AtollNodeInfo& node : all) delegated += node.partition >= 0;
  const size_t count = partitions().size();
  return fmt::format("{} partition{} with {} of {} operators on the device, {} on the CPU{}", count,
                     count == 1 ? "" : "s", delegated, all.size(), all.size() - delegated, instead);
}

int64_t Session::macs() const {
  int64_t macs = 0;
  for (const AtollNodeInfo& node : nodes()) macs += node.macs;
  return macs;
}

std::optional<InputShape> ParseInputShape(std::string_view text) {
  InputShape shape;
  // Names may contain the sign, sizes cannot.
  if (const size_t equals = text.rfind('='); equals != text.npos) {
    const std::string_view input = text.substr(0, equals);
    if (input.empty()) return std::nullopt;
    shape.index = ParseNumber<int32_t>(input).value_or(-1);
    if (shape.index < 0) shape.name = input;
    text.remove_prefix(equals + 1);
  }
  for (const std::string& part : Split(text, 'x')) {
    const std::optional<int32_t> size = ParseNumber<int32_t>(part);
    if (!size || *size < 1) return std::nullopt;
    shape.sizes.push_back(*size);
  }
  return shape;
}

CLI::Validator InputShapeText() {
  return {[](std::string& text) {
            return ParseInputShape(text)
                       ? std::string()
                       : fmt::format(
                             "'{}' is no shape of an input; write for example 1x320x320x3, "
                             "320x320 or NAME=1x64",
                             text);
          },
          "[NAME=]SHAPE"};
}

void FillFromSeed(uint64_t seed, AtollTensor* tensor) { FillFromSeed(seed, SlotOf(tensor)); }

void FillInputs(const std::vector<InputSlot>& slots, uint64_t seed,
                const std::vector<std::string>& files) {
  std::vector<bool> given(slots.size(), false);
  for (const std::string& argument : files) {
    const InputFile input = ParseInputFile(argument, slots.size());
    if (given[input.index]) {
      Fail(ExitCode::kUsage,
           "input {} is given twice, the second time as '{}'; give each input once", input.index,
           input.path);
    }
    given[input.index] = true;
    ReadInto(input, slots[input.index]);
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!given[i]) FillFromSeed(seed, slots[i]);
  }
}

void FillInputs(const Session& session, uint64_t seed, const std::vector<std::string>& files) {
  std::vector<InputSlot> slots;
  for (AtollTensor* tensor : session.inputs()) slots.push_back(SlotOf(tensor));
  FillInputs(slots, seed, files);
}

}  // namespace atollcmd
