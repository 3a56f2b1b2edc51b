// SPDX-License-Identifier: Apache-2.0
//
// `atoll quantize`.
#include "atoll/quantize.h"

#include <fmt/format.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tools/atoll/calibration.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/import.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/pictures.h"
#include "tools/atoll/quantize_page_template.h"  // made from quantize_page.html, in the build tree
#include "tools/atoll/quantize_report.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

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
class FloatModel : public InputsOfModel {
 public:
  // `bytes` must outlive it. Throws CommandError.
  FloatModel(std::string_view bytes, const Options& options) : bytes_(bytes), options_(options) {
    try {
      (void)model();
      return;
    } catch (const CommandError& error) {
      AtollQuantized* made = nullptr;
      if (AtollQuantizeRepair(bytes.data(), bytes.size(), &made) != ATOLL_OK) throw;
      repaired_.reset(made);
      if (BytesOf(repaired_) == bytes) throw;
    }
    reason_ = "no time, as it does not run: some of its weights are bytes, which became float32";
    bytes_ = BytesOf(repaired_);
    (void)model();
  }

  const LoadedModel& model() {
    if (!model_ && bytes_.empty()) model_.emplace(options_.model, "cpu", options_.threads);
    if (!model_) model_.emplace(bytes_, "'" + options_.model + "'", "cpu", options_.threads);
    return *model_;
  }
  // From here on the model comes from its file: what was given is needed no more.
  void ForgetBytes() {
    if (repaired_ == nullptr) bytes_ = {};
  }
  AtollInterpreter* Open() override { return model().interpreter(); }
  void Close() override { model_.reset(); }
  // Why the model as it is given cannot be measured; "" if it can.
  const std::string& reason() const { return reason_; }

 private:
  std::string_view bytes_;
  const Options& options_;
  ModelFile repaired_;
  std::optional<LoadedModel> model_;
  std::string reason_;
};

// Of AtollQuantize.
void FailUnlessOk(AtollStatus status, const std::string& model) {
  if (status == ATOLL_CANCELLED) {
    Fail(ExitCode::kInterrupted, "interrupted; nothing was written");
  }
  if (status == ATOLL_OK) return;
  const bool usage = status == ATOLL_INVALID_ARGUMENT;
  Fail(usage ? ExitCode::kUsage : ExitCodeOf(status, Activity::kLoadingModel),
       "cannot quantize '{}': {}", model, AtollQuantizeLastError());
}

void RunQuantize(const Options& options) {
  CheckOptions(options);
  std::string float_bytes = ReadFile(options.model);
  const bool is_tflite = IsTflite(float_bytes);
  if (!is_tflite) {
    float_bytes = BytesOf(ImportOnnx(options.model, float_bytes, options.input_shapes, false));
  } else if (!options.input_shapes.empty()) {
    Fail(ExitCode::kUsage, "--input-shape is for ONNX files; '{}' has its shapes; leave it out",
         options.model);
  }
  FloatModel before(float_bytes, options);
  Calibration calibration(options.calibration, &before);

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
  FailUnlessOk(status, options.model);

  // What is measured from here on takes as much memory as what was done, so that goes, back to the
  // system, too.
  std::error_code no_type;
  if (is_tflite && std::filesystem::is_regular_file(options.model, no_type)) {
    before.ForgetBytes();
    float_bytes = {};
  }
  malloc_trim(0);
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
  const bool page = options.report.ends_with(".html");
  Json& worst = report["worst"];
  WorstSamples worst_samples(&calibration, before.model(), page, &worst);
  before.Close();  // one at a time: each takes several times the memory of its file
  malloc_trim(0);
  const LoadedModel after(BytesOf(quantized), "the quantized model", options.device.c_str(),
                          options.threads);
  worst_samples.Describe(after, &worst);
  report["device"] = {{"name", options.device},
                      {"before", std::move(device_before)},
                      {"after", DeviceUseJson(after)}};

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
      options.json, [&] { return report; }, [&] { return QuantizeReportText(report); });
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

}  // namespace atollcmd
