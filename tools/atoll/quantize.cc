// SPDX-License-Identifier: Apache-2.0
//
// `atoll quantize` and `atoll import`.
#include "atoll/quantize.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/delegate.h"
#include "tools/atoll/calibration.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/pictures.h"
#include "tools/atoll/quantize_page_template.h"  // made from quantize_page.html, in the build tree
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

template <auto kDelete>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    kDelete(object);
  }
};
using ModelFile = std::unique_ptr<AtollQuantized, Deleter<AtollQuantizedDelete>>;

std::string_view BytesOf(const ModelFile& file) {
  size_t size = 0;
  const void* const data = AtollQuantizedModel(file.get(), &size);
  return {static_cast<const char*>(data), size};
}

// ---- ONNX ---------------------------------------------------------------------------------------

bool IsTflite(std::string_view bytes) { return bytes.substr(0, 8).ends_with("TFL3"); }

// As a .tflite file. Throws CommandError.
ModelFile ImportOnnx(const std::string& path, std::string_view bytes,
                     const std::vector<std::string>& input_shapes, bool keep_layout) {
  std::vector<InputShape> parsed;
  std::vector<std::vector<int64_t>> dims;
  for (const std::string& text : input_shapes) {
    parsed.push_back(*ParseInputShape(text));
    if (parsed.back().index >= 0) {
      Fail(ExitCode::kUsage,
           "--input-shape '{}' names an input by its number; inputs of ONNX files are given by "
           "name, "
           "with sizes in the order of that file, for example images=1x3x320x320",
           text);
    }
    dims.emplace_back(parsed.back().sizes.begin(), parsed.back().sizes.end());
  }
  std::vector<AtollOnnxShape> shapes;
  for (size_t i = 0; i < parsed.size(); ++i) {
    shapes.push_back({parsed[i].name.c_str(), dims[i].data(), dims[i].size()});
  }
  AtollQuantized* imported = nullptr;
  const AtollStatus status = AtollImportOnnx(bytes.data(), bytes.size(), shapes.data(),
                                             shapes.size(), keep_layout, &imported);
  // The version of its form comes first in files of all exporters.
  if (status == ATOLL_CORRUPT_MODEL && !bytes.starts_with('\x08')) {
    Fail(ExitCode::kBadModel,
         "'{}' is neither a .tflite nor an ONNX file: it does not begin as one; give a model, for "
         "example what torch.onnx.export writes",
         path);
  }
  if (status != ATOLL_OK) {
    Fail(ExitCodeOf(status, Activity::kLoadingModel), "cannot import '{}': {}", path,
         AtollQuantizeLastError());
  }
  return ModelFile(imported);
}

struct ImportOptions {
  std::string model;
  std::string output;
  std::vector<std::string> input_shapes;
  bool keep_layout = false;
  bool json = false;
};

void RunImport(const ImportOptions& options) {
  CheckNamedOnce("--output", options.output);
  CheckOutputFile("--output", options.output);
  const std::string bytes = ReadFile(options.model);
  if (IsTflite(bytes)) {
    Fail(ExitCode::kUsage, "'{}' is a .tflite file already; 'atoll quantize' takes it as it is",
         options.model);
  }
  const ModelFile imported =
      ImportOnnx(options.model, bytes, options.input_shapes, options.keep_layout);
  WriteOutput("--output", options.output, BytesOf(imported));
  Print(
      options.json,
      [&] {
        Json report = NewReport("import");
        report["model"] = options.model;
        report["output"] = options.output;
        report["bytes_before"] = bytes.size();
        report["bytes_after"] = BytesOf(imported).size();
        return report;
      },
      [&] {
        return fmt::format("{}: {} -> {}: {}\n", Printable(options.model),
                           ByteSizeText(static_cast<int64_t>(bytes.size())),
                           Printable(options.output),
                           ByteSizeText(static_cast<int64_t>(BytesOf(imported).size())));
      });
}

// ---- A model from memory on a device ------------------------------------------------------------

class LoadedModel {
 public:
  // `bytes` must outlive it. `what` is for messages: "the float model".
  LoadedModel(std::string_view bytes, const std::string& what, const char* device, int threads) {
    AtollModel* model = nullptr;
    ThrowIfError(AtollModelCreateFromBuffer(bytes.data(), bytes.size(), &model),
                 Activity::kLoadingModel, "cannot load " + what);
    model_.reset(model);
    AtollDelegateOptions how = ATOLL_DELEGATE_OPTIONS_INIT;
    how.device = device;
    how.num_threads = threads;
    AtollDelegate* delegate = nullptr;
    ThrowIfError(AtollDelegateCreate(&how, &delegate), Activity::kOpeningDevice,
                 fmt::format("cannot open '{}'", device));
    delegate_.reset(delegate);
    AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
    options.num_threads = threads;
    options.delegate = delegate;
    AtollInterpreter* interpreter = nullptr;
    ThrowIfError(AtollInterpreterCreate(model, &options, &interpreter), Activity::kPreparing,
                 "cannot prepare " + what);
    interpreter_.reset(interpreter);
  }

  AtollInterpreter* interpreter() const { return interpreter_.get(); }

  // The real numbers that come out of the first output.
  std::vector<double> Run(const Sample& sample) const {
    for (size_t i = 0; i < sample.size(); ++i) {
      Write(sample[i], AtollInterpreterGetInputTensor(interpreter(), static_cast<int32_t>(i)));
    }
    ThrowIfError(AtollInterpreterInvoke(interpreter()), Activity::kRunning, "cannot run the model");
    return Read(AtollInterpreterGetOutputTensor(interpreter(), 0));
  }

 private:
  template <typename T>
  static void WriteAs(const std::vector<float>& values, AtollQuantization quantization,
                      AtollTensor* tensor) {
    T* const data = static_cast<T*>(AtollTensorData(tensor));
    for (size_t i = 0; i < values.size(); ++i) {
      const double stored =
          std::round(static_cast<double>(values[i]) / quantization.scale) + quantization.zero_point;
      data[i] = static_cast<T>(std::clamp<double>(std::isnan(stored) ? 0 : stored,
                                                  std::numeric_limits<T>::min(),
                                                  std::numeric_limits<T>::max()));
    }
  }
  static void Write(const std::vector<float>& values, AtollTensor* tensor) {
    const AtollQuantization quantization = AtollTensorQuantization(tensor);
    switch (AtollTensorType(tensor)) {
      case ATOLL_INT8:
        return WriteAs<int8_t>(values, quantization, tensor);
      case ATOLL_UINT8:
        return WriteAs<uint8_t>(values, quantization, tensor);
      case ATOLL_INT16:
        return WriteAs<int16_t>(values, quantization, tensor);
      default:
        std::memcpy(AtollTensorData(tensor), values.data(),
                    std::min(values.size() * sizeof(float), AtollTensorByteSize(tensor)));
    }
  }
  template <typename T>
  static std::vector<double> ReadAs(const AtollTensor* tensor, AtollQuantization quantization) {
    const T* const data = static_cast<const T*>(AtollTensorConstData(tensor));
    std::vector<double> values(AtollTensorByteSize(tensor) / sizeof(T));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = quantization.scale == 0
                      ? static_cast<double>(data[i])
                      : static_cast<double>(quantization.scale) *
                            (static_cast<double>(data[i]) - quantization.zero_point);
    }
    return values;
  }
  static std::vector<double> Read(const AtollTensor* tensor) {
    const AtollQuantization quantization = AtollTensorQuantization(tensor);
    switch (AtollTensorType(tensor)) {
      case ATOLL_FLOAT32:
        return ReadAs<float>(tensor, quantization);
      case ATOLL_INT8:
        return ReadAs<int8_t>(tensor, quantization);
      case ATOLL_UINT8:
        return ReadAs<uint8_t>(tensor, quantization);
      case ATOLL_INT16:
        return ReadAs<int16_t>(tensor, quantization);
      default:
        return {};
    }
  }

  std::unique_ptr<AtollModel, Deleter<AtollModelDelete>> model_;
  std::unique_ptr<AtollDelegate, Deleter<AtollDelegateDelete>> delegate_;
  std::unique_ptr<AtollInterpreter, Deleter<AtollInterpreterDelete>> interpreter_;
};

// ---- Options ------------------------------------------------------------------------------------

struct Options {
  std::string model;
  std::string output;
  CalibrationOptions calibration;
  std::vector<std::string> input_shapes;
  std::string report;
  std::string ranges = "min-max";
  std::optional<double> percentile;
  bool no_bias_correction = false;
  bool compensate_rounding = false;
  bool activations_16 = false;
  bool per_tensor_fully_connected = false;
  bool float_io = false;
  std::string input_type;
  std::string output_type;
  std::vector<std::string> keep_float;
  std::optional<double> target_sqnr_db;
  std::string accuracy_command;
  std::optional<double> target_accuracy;
  std::string device = "emu";
  int threads = 0;
  bool json = false;
};

int32_t EndOf(const std::string& type, bool float_io) {
  if (type == "float" || (type.empty() && float_io)) return ATOLL_END_FLOAT;
  if (type == "int8") return ATOLL_END_ONE_SCALE;
  return type == "uint8" ? ATOLL_END_UINT8 : ATOLL_END_QUANTIZED;
}

// "auto:DB" becomes a bound, everything else is a node's number or name.
void SplitKeepFloat(const std::vector<std::string>& texts, std::vector<const char*>* nodes,
                    double* below_db) {
  constexpr std::string_view kAuto = "auto:";
  for (const std::string& text : texts) {
    if (!text.starts_with(kAuto)) {
      nodes->push_back(text.c_str());
      continue;
    }
    const auto db = ParseNumber<double>(std::string_view(text).substr(kAuto.size()));
    if (!db || !(*db > 0)) {
      Fail(ExitCode::kUsage, "--keep-float '{}' has no number of decibels; for example auto:15",
           text);
    }
    *below_db = *db;
  }
}

// The accuracy that a shell command measures of a model.
class AccuracyCommand {
 public:
  explicit AccuracyCommand(std::string command) : command_(std::move(command)) {}

  // The last number that it prints.
  double Measure(const void* model, size_t size) const {
    std::string path = "/tmp/atoll-accuracy-XXXXXX.tflite";
    if (const char* const folder = std::getenv("TMPDIR"); folder != nullptr && *folder != '\0') {
      path = std::string(folder) + "/atoll-accuracy-XXXXXX.tflite";
    }
    const int file = mkstemps(path.data(), static_cast<int>(std::strlen(".tflite")));
    if (file < 0) {
      Fail(ExitCode::kFailure, "cannot create '{}': {}; set TMPDIR to a folder with room", path,
           std::strerror(errno));
    }
    const auto remove = [](const std::string* name) { unlink(name->c_str()); };
    const std::unique_ptr<const std::string, decltype(remove)> removed(&path, remove);
    std::FILE* const stream = fdopen(file, "wb");
    const bool written = std::fwrite(model, 1, size, stream) == size;
    if (std::fclose(stream) != 0 || !written) {
      Fail(ExitCode::kFailure, "cannot write '{}': {}; set TMPDIR to a folder with room", path,
           std::strerror(errno));
    }

    std::string line = command_;
    constexpr std::string_view kPlace = "{}";
    for (size_t at = line.find(kPlace); at != line.npos; at = line.find(kPlace, at + path.size())) {
      line.replace(at, kPlace.size(), path);
    }
    std::FILE* const pipe = popen(line.c_str(), "re");
    if (pipe == nullptr) {
      Fail(ExitCode::kFailure, "cannot run --accuracy-command '{}': {}", line,
           std::strerror(errno));
    }
    std::string printed;
    constexpr size_t kKept = 4096;  // of the end
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) {
      printed += static_cast<char>(c);
      if (printed.size() > 2 * kKept) printed.erase(0, kKept);
    }
    const int status = pclose(pipe);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      Fail(ExitCode::kFailure, "--accuracy-command '{}' ended with status {}; try it by hand", line,
           WIFEXITED(status) ? WEXITSTATUS(status) : status);
    }
    const std::optional<double> number = LastNumber(printed);
    if (!number) {
      Fail(ExitCode::kFailure,
           "--accuracy-command '{}' printed no number; its last one is the accuracy", line);
    }
    return *number;
  }

 private:
  // A word of its own, perhaps with a name and "=" or ":" in front and a sign behind it; digits of
  // a path are none.
  static std::optional<double> LastNumber(std::string_view text) {
    constexpr std::string_view kSpace = " \t\r\n";
    while (true) {
      const size_t last = text.find_last_not_of(kSpace);
      if (last == text.npos) return std::nullopt;
      text = text.substr(0, last + 1);
      const size_t space = text.find_last_of(kSpace);
      std::string_view word = text.substr(space == text.npos ? 0 : space + 1);
      text.remove_suffix(word.size());
      if (const size_t sign = word.find_last_of("=:(["); sign != word.npos) {
        word.remove_prefix(sign + 1);
      }
      if (const size_t end = word.find_last_not_of("%,;.)]}"); end != word.npos) {
        word = word.substr(0, end + 1);
      }
      if (word.starts_with('+')) word.remove_prefix(1);
      if (const auto number = ParseNumber<double>(word)) return number;
    }
  }

  const std::string command_;
};

// What the library calls while it works.
class Work {
 public:
  explicit Work(const AccuracyCommand* accuracy) : accuracy_(accuracy) {}

  static int OnProgress(void* self, const char* phase, int64_t done, int64_t total) {
    return static_cast<Work*>(self)->Step(phase, done, total);
  }
  static AtollStatus OnAccuracy(void* self, const void* model, size_t size, double* accuracy) {
    Work& work = *static_cast<Work*>(self);
    try {
      *accuracy = work.accuracy_->Measure(model, size);
      return ATOLL_OK;
    } catch (...) {
      work.error_ = std::current_exception();
      return ATOLL_CANCELLED;
    }
  }
  void RethrowError() const {
    if (error_) std::rethrow_exception(error_);
  }
  void EndProgress() { progress_.reset(); }

 private:
  int Step(const char* phase, int64_t done, int64_t total) {
    if (phase != phase_) {
      progress_.reset();
      progress_.emplace(phase, total, "done");
      phase_ = phase;
      done_ = 0;
    }
    for (; done_ < done; ++done_) progress_->Step();
    return stop_ ? 0 : 1;
  }

  const AccuracyCommand* const accuracy_;
  const std::atomic<bool>& stop_ = StopOnSignals();
  std::string phase_;
  int64_t done_ = 0;
  std::optional<Progress> progress_;
  std::exception_ptr error_;
};

// ---- The report ---------------------------------------------------------------------------------

// What runs where, and the modelled time; the operators on the CPU with why.
Json DeviceUseJson(const LoadedModel& model) {
  const AtollInterpreter* const interpreter = model.interpreter();
  Json cpu = Json::array();
  const int32_t nodes = AtollInterpreterGetNodeCount(interpreter);
  int32_t on_device = 0;
  for (int32_t i = 0; i < nodes; ++i) {
    AtollNodeInfo node = {};
    ThrowIfError(AtollInterpreterGetNodeInfo(interpreter, i, &node), Activity::kRunning, "");
    if (node.partition >= 0) {
      ++on_device;
    } else {
      cpu.push_back({{"index", i}, {"operator", node.op}, {"reason", node.reason}});
    }
  }
  double seconds = 0;
  for (int32_t i = 0; i < AtollInterpreterGetPartitionCount(interpreter); ++i) {
    AtollPartitionInfo partition = {};
    ThrowIfError(AtollInterpreterGetPartitionInfo(interpreter, i, &partition), Activity::kRunning,
                 "");
    seconds += partition.latency.total;
  }
  return {{"operators", nodes},
          {"on_device", on_device},
          {"modelled_ms", on_device == 0 ? Json() : Json(RoundedMs(seconds * 1e3))},
          {"on_cpu", std::move(cpu)}};
}

// Median of a few runs on the CPU, measured.
double CpuMs(const LoadedModel& model, const Sample& sample) {
  std::vector<double> times;
  (void)model.Run(sample);
  for (int i = 0; i < 5; ++i) {
    Stopwatch stopwatch;
    (void)model.Run(sample);
    times.push_back(stopwatch.LapMs());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

Json TopJson(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const size_t count = std::min<size_t>(values.size(), 5);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](size_t a, size_t b) { return values[a] > values[b]; });
  Json top = Json::array();
  for (size_t i = 0; i < count; ++i) {
    top.push_back({{"index", order[i]}, {"value", values[order[i]]}});
  }
  return top;
}

std::string Base64(const std::vector<uint8_t>& bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(bytes.size() - i, 3);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) group = group << 8 | (k < left ? bytes[i + k] : 0u);
    for (size_t k = 0; k < 4; ++k) {
      text += k > left ? '=' : kDigits[group >> (18 - 6 * k) & 63];
    }
  }
  return text;
}

// The worst samples: what both models make of them, and a small picture for the page.
void DescribeWorst(Calibration* calibration, const LoadedModel& before, const LoadedModel& after,
                   bool with_pictures, Json* worst) {
  std::map<int64_t, Json*> wanted;
  for (Json& entry : *worst) wanted[entry["sample"].get<int64_t>()] = &entry;
  if (wanted.empty()) return;
  calibration->Rewind();
  Sample sample;
  for (int64_t i = 0; i <= wanted.rbegin()->first && calibration->Next(&sample); ++i) {
    const auto found = wanted.find(i);
    if (found == wanted.end()) continue;
    Json& entry = *found->second;
    entry["name"] = calibration->NameOf(i);
    entry["before"] = TopJson(before.Run(sample));
    entry["after"] = TopJson(after.Run(sample));
    if (!with_pictures) continue;
    const std::optional<atollrt::Image> picture = calibration->PictureOf(i);
    if (!picture) continue;
    constexpr int kSide = 160;
    const int longest = std::max({picture->width, picture->height, 1});
    const auto small = atollrt::Resize(*picture, std::max(1, picture->width * kSide / longest),
                                       std::max(1, picture->height * kSide / longest));
    if (!small.ok()) continue;
    if (const auto jpeg = atollrt::EncodeJpeg(*small, 85); jpeg.ok()) {
      entry["picture"] = "data:image/jpeg;base64," + Base64(*jpeg);
    }
  }
}

std::string Db(const Json& value) {
  return value.is_number() ? fmt::format("{:.1f} dB", value.get<double>())
                           : std::string("no noise");
}

std::string ReportText(const Json& report) {
  std::string text =
      fmt::format("model     {} -> {}\n", Printable(report["model"].get<std::string>()),
                  Printable(report["output"].get<std::string>()));
  text += fmt::format("size      {} -> {}\n", ByteSizeText(report["bytes_before"]),
                      ByteSizeText(report["bytes_after"]));
  text += fmt::format("samples   {}\n", Thousands(report["calibration"]["samples"]));
  std::map<std::string, int> types;
  for (const Json& layer : report["layers"]) ++types[layer["type"].get<std::string>()];
  text += "layers    ";
  bool first = true;
  for (const auto& [type, count] : types) {
    text += fmt::format("{}{} {}", first ? "" : ", ", count, type);
    first = false;
  }
  text += fmt::format("\nSQNR      logits {}, outputs {}\n", Db(report["logits_sqnr_db"]),
                      Db(report["output_sqnr_db"]));
  const Json& before = report["device"]["before"];
  const Json& after = report["device"]["after"];
  text += fmt::format(
      "before    0 of {} operators on the device; {}\n", before["operators"].get<int>(),
      before["cpu_ms"].is_number()
          ? fmt::format("{:.3f} ms on this CPU (measured)", before["cpu_ms"].get<double>())
          : Printable(before["reason"].get<std::string>()));
  text += fmt::format(
      "after     {} of {} operators on the device{}\n", after["on_device"].get<int>(),
      after["operators"].get<int>(),
      after["modelled_ms"].is_null()
          ? std::string()
          : fmt::format("; {:.3f} ms there (modelled)", after["modelled_ms"].get<double>()));
  for (const Json& node : after["on_cpu"]) {
    const auto reason = node["reason"].get<std::string>();
    text += fmt::format("  on the CPU: {:>4} {}{}\n", node["index"].get<int>(),
                        Printable(node["operator"].get<std::string>()),
                        reason.empty() ? "" : ": " + Printable(reason));
  }
  for (const Json& output : report["outputs"]) {
    for (const Json& part : output["parts"]) {
      text += fmt::format(
          "part      {} of output '{}', from {:g} to {:g}: {}\n",
          Printable(part["name"].get<std::string>()), Printable(output["name"].get<std::string>()),
          part["range"][0].get<double>(), part["range"][1].get<double>(), Db(part["sqnr_db"]));
    }
  }
  for (const Json& choice : report["choices"]) {
    text += fmt::format("chosen    {}\n", Printable(choice.get<std::string>()));
  }

  std::vector<const Json*> layers;
  for (const Json& layer : report["layers"]) {
    if (layer["sqnr_alone_db"].is_number()) layers.push_back(&layer);
  }
  std::stable_sort(layers.begin(), layers.end(), [](const Json* a, const Json* b) {
    return (*a)["sqnr_alone_db"].get<double>() < (*b)["sqnr_alone_db"].get<double>();
  });
  if (layers.size() > 5) layers.resize(5);
  if (!layers.empty()) text += "The layers that lose most, alone and with all before them:\n";
  for (const Json* const layer : layers) {
    text += fmt::format("  {:>4} {:<20} {:>9} {:>9}  {}\n", (*layer)["index"].get<int>(),
                        (*layer)["operator"].get<std::string>(), Db((*layer)["sqnr_alone_db"]),
                        Db((*layer)["sqnr_accumulated_db"]),
                        Printable((*layer)["name"].get<std::string>()));
  }
  return text;
}

// ---- The work -----------------------------------------------------------------------------------

// Without keep_float.
AtollQuantizeOptions ToLibraryOptions(const Options& options, Work* work) {
  AtollQuantizeOptions how = ATOLL_QUANTIZE_OPTIONS_INIT;
  how.name = options.model.c_str();
  how.ranges = options.ranges == "percentile"      ? ATOLL_RANGES_PERCENTILE
               : options.ranges == "least-squares" ? ATOLL_RANGES_LEAST_SQUARES
                                                   : ATOLL_RANGES_MIN_MAX;
  how.percentile = options.percentile.value_or(0);
  how.no_bias_correction = options.no_bias_correction;
  how.compensate_rounding = options.compensate_rounding;
  how.activations_16 = options.activations_16;
  how.input_type = EndOf(options.input_type, options.float_io);
  how.output_type = EndOf(options.output_type, options.float_io);
  how.per_tensor_fully_connected = options.per_tensor_fully_connected;
  how.threads = options.threads;
  how.target_sqnr_db = options.target_sqnr_db.value_or(0);
  if (!options.accuracy_command.empty()) {
    how.accuracy = Work::OnAccuracy;
    how.target_accuracy = *options.target_accuracy;
  }
  how.progress = Work::OnProgress;
  how.user_data = work;
  return how;
}

void CheckOptions(const Options& options) {
  CheckNamedOnce("--output", options.output);
  CheckOutputFile("--output", options.output);
  if (!options.report.empty()) {
    if (!options.report.ends_with(".html") && !options.report.ends_with(".json")) {
      Fail(ExitCode::kUsage, "--report '{}' must end in .html or .json", options.report);
    }
    CheckNamedOnce("--report", options.report);
    CheckOutputFile("--report", options.report);
  }
  if (options.accuracy_command.empty() != !options.target_accuracy.has_value()) {
    Fail(ExitCode::kUsage, "--accuracy-command and --target-accuracy go together; give both");
  }
  if (options.percentile && options.ranges != "percentile") {
    Fail(ExitCode::kUsage, "--percentile is for --ranges percentile; give that, too");
  }
}

// The model as it is given, or with float32 for the weights that keep it from running.
class FloatModel {
 public:
  // `bytes` must outlive it. Throws CommandError.
  FloatModel(std::string_view bytes, const Options& options) {
    const std::string what = "'" + options.model + "'";
    try {
      model_.emplace(bytes, what, "cpu", options.threads);
      return;
    } catch (const CommandError& error) {
      AtollQuantized* made = nullptr;
      if (AtollQuantizeRepair(bytes.data(), bytes.size(), &made) != ATOLL_OK) throw;
      repaired_.reset(made);
      if (BytesOf(repaired_) == bytes) throw;
    }
    reason_ = "no time, as it does not run: some of its weights are bytes, which became float32";
    model_.emplace(BytesOf(repaired_), what, "cpu", options.threads);
  }

  const LoadedModel& model() const { return *model_; }
  AtollInterpreter* interpreter() const { return model_->interpreter(); }
  // Why the model as it is given cannot be measured; "" if it can.
  const std::string& reason() const { return reason_; }

 private:
  ModelFile repaired_;
  std::optional<LoadedModel> model_;
  std::string reason_;
};

void RunQuantize(const Options& options) {
  CheckOptions(options);
  std::string float_bytes = ReadFile(options.model);
  if (!IsTflite(float_bytes)) {
    float_bytes = BytesOf(ImportOnnx(options.model, float_bytes, options.input_shapes, false));
  } else if (!options.input_shapes.empty()) {
    Fail(ExitCode::kUsage, "--input-shape is for ONNX files; '{}' has its shapes; leave it out",
         options.model);
  }
  const FloatModel before(float_bytes, options);
  Calibration calibration(options.calibration, before.interpreter());

  const AccuracyCommand accuracy(options.accuracy_command);
  Work work(&accuracy);
  AtollQuantizeOptions how = ToLibraryOptions(options, &work);
  std::vector<const char*> keep_float;
  SplitKeepFloat(options.keep_float, &keep_float, &how.keep_float_below_db);
  how.keep_float = keep_float.data();
  how.keep_float_count = keep_float.size();

  const AtollQuantizeSamples samples = calibration.Callbacks();
  AtollQuantized* made = nullptr;
  const AtollStatus status =
      AtollQuantize(float_bytes.data(), float_bytes.size(), &samples, &how, &made);
  const ModelFile quantized(made);
  work.EndProgress();
  calibration.RethrowError();
  work.RethrowError();
  if (status == ATOLL_CANCELLED) {
    Fail(ExitCode::kInterrupted, "interrupted; nothing was written");
  }
  if (status != ATOLL_OK) {
    const bool usage = status == ATOLL_INVALID_ARGUMENT;
    Fail(usage ? ExitCode::kUsage : ExitCodeOf(status, Activity::kLoadingModel),
         "cannot quantize '{}': {}", options.model, AtollQuantizeLastError());
  }

  const LoadedModel after(BytesOf(quantized), "the quantized model", options.device.c_str(),
                          options.threads);
  Json report = NewReport("quantize");
  report.update(Json::parse(AtollQuantizedReport(quantized.get())));
  report["output"] = options.output;
  Json device_before = DeviceUseJson(before.model());
  device_before["cpu_ms"] = nullptr;
  device_before["reason"] = before.reason();
  calibration.Rewind();
  Sample sample;
  if (before.reason().empty() && calibration.Next(&sample)) {
    device_before["cpu_ms"] = RoundedMs(CpuMs(before.model(), sample));
  }
  report["device"] = {{"name", options.device},
                      {"before", std::move(device_before)},
                      {"after", DeviceUseJson(after)}};
  const bool page = options.report.ends_with(".html");
  DescribeWorst(&calibration, before.model(), after, page, &report["worst"]);

  OutputFiles files;
  const std::string_view bytes = BytesOf(quantized);
  files.Add("--output", options.output, bytes.data(), bytes.size());
  if (!options.report.empty()) {
    const std::string text =
        page ? FillPage(kQuantizePageTemplate, report) : JsonText(report) + "\n";
    files.Add("--report", options.report, text.data(), text.size());
  }
  if (StopOnSignals()) Fail(ExitCode::kInterrupted, "interrupted; nothing was written");
  files.Commit();

  for (const Json& warning : report["calibration"]["warnings"]) {
    fmt::print(stderr, "atoll: warning: {}\n", Printable(warning.get<std::string>()));
  }
  AnnounceOutput("the details", options.report);
  for (Json& entry : report["worst"]) entry.erase("picture");
  Print(
      options.json, [&] { return report; }, [&] { return ReportText(report); });
}

}  // namespace

void AddQuantizeCommand(CLI::App* app) {
  Subcommand<Options> command(app, "quantize", RunQuantize);
  command.Add("MODEL", command->model)->required();
  command.Add("-o,--output", command->output)->required();
  command.Add("--calibrate", command->calibration.sources)->required();
  command.Add("--samples", command->calibration.samples_max)->check(CLI::Range(1, 1'000'000));
  AddPixelScalingOptions(&command, &command->calibration.scaling);
  AddInputShapeOption(&command, &command->input_shapes);
  command.Add("--report", command->report);
  command.Add("--ranges", command->ranges)
      ->check(CLI::IsMember({"min-max", "percentile", "least-squares"}));
  command.Add("--percentile", command->percentile)->check(CLI::Range(50.0, 100.0));
  command.Flag("--no-bias-correction", command->no_bias_correction);
  command.Flag("--compensate-rounding", command->compensate_rounding);
  command.Flag("--16x8", command->activations_16);
  command.Flag("--per-tensor-fully-connected", command->per_tensor_fully_connected);
  command.Flag("--float-io", command->float_io);
  command.Add("--input-type", command->input_type)
      ->check(CLI::IsMember({"int8", "uint8", "float"}));
  command.Add("--output-type", command->output_type)
      ->check(CLI::IsMember({"int8", "uint8", "float"}));
  command.AddRepeatable("--keep-float", command->keep_float);
  command.Add("--target-sqnr", command->target_sqnr_db)->check(CLI::Range(1.0, 200.0));
  command.Add("--accuracy-command", command->accuracy_command);
  command.Add("--target-accuracy", command->target_accuracy);
  command.Add("--device", command->device);
  command.Add("--threads", command->threads)->check(CLI::Range(0, 256));
  command.Flag("--json", command->json);
}

void AddImportCommand(CLI::App* app) {
  Subcommand<ImportOptions> command(app, "import", RunImport);
  command.Add("MODEL", command->model)->required();
  command.Add("-o,--output", command->output)->required();
  AddInputShapeOption(&command, &command->input_shapes);
  command.Flag("--keep-layout", command->keep_layout);
  command.Flag("--json", command->json);
}

}  // namespace atollcmd
