// SPDX-License-Identifier: Apache-2.0
//
// Atoll and TensorFlow Lite in one run, model by model and in turns, so that whatever else the host
// does meets both:
//
//   against_tflite [--threads N] [--runs N] [--atoll LIBRARY] [--memory] [--json]
//                  LIBTENSORFLOWLITE_C MODEL.tflite...
//
// Both are libraries that are opened when the program runs: libatoll-core unless --atoll names
// libatoll, and any libtensorflowlite_c.so. If that one exports XNNPACK's delegate, it is asked to
// take int8 and uint8 operators, too; it may take none of a model, or so few of its operators that
// others do most of the work, so each line says what it took. --memory runs each side of each model
// once more in a process of its own, and reads what the kernel says of its memory. Models that one
// of them cannot run are named and left out.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "bench/peer_libraries.h"
#include "runtime/base/monotonic.h"

extern char** environ;

namespace atollrt {
namespace {

constexpr int kTurn = 10;         // inferences of one side before it is the other's turn
constexpr int kMemoryRuns = 3;    // inferences before memory is looked at
constexpr int kMaxRuns = 100000;  // inferences that are counted
constexpr int kMaxThreads = 256;

// ---- Measuring ----------------------------------------------------------------------------------

struct Options {
  int threads = 1;
  int runs = 200;
  bool memory = false;
  bool json = false;
  std::string side;  // "atoll" or "tflite": run this one and say what memory it took
  std::string atoll = ATOLL_CORE_LIBRARY;
  std::string tflite;
  std::vector<std::string> models;
};

// In KiB, which /proc/self/status calls kB. -1: it does not say.
struct Memory {
  long peak = -1;
  long resident = -1;
  long own = -1;  // of it, pages that are of no file
};

struct Times {
  double least_ms = 0;
  double median_ms = 0;
};

struct Row {
  std::string model;
  std::string peer;
  bool has_xnnpack = false;
  Times tflite, atoll;
  size_t output_bytes = 0;
  size_t different_bytes = 0;
  Memory tflite_memory, atoll_memory;
  double ratio() const { return tflite.least_ms / atoll.least_ms; }
};

// Bytes and floats at random, the same on both sides; zeros for integers that may be indices.
Status FillInputs(const TfliteSide& tflite, const Side& atoll) {
  if (tflite.inputs().size() != atoll.inputs().size()) {
    return InternalError("TensorFlow Lite has %zu inputs, Atoll %zu", tflite.inputs().size(),
                         atoll.inputs().size());
  }
  std::mt19937 random(1);
  for (size_t i = 0; i < tflite.inputs().size(); ++i) {
    const std::span<uint8_t> input = tflite.inputs()[i];
    if (input.size() != atoll.inputs()[i].size()) {
      return InternalError("input %zu has %zu bytes in TensorFlow Lite, %zu in Atoll", i,
                           input.size(), atoll.inputs()[i].size());
    }
    std::fill(input.begin(), input.end(), uint8_t{0});
    const TfLiteType type = tflite.input_type(static_cast<int>(i));
    if (type == kTfLiteUInt8 || type == kTfLiteInt8 || type == kTfLiteInt16) {
      for (uint8_t& byte : input) byte = static_cast<uint8_t>(random() >> 24);
    } else if (type == kTfLiteFloat32) {
      for (size_t at = 0; at + sizeof(float) <= input.size(); at += sizeof(float)) {
        const float value = static_cast<float>(random()) * 0x1p-31f - 1.0f;
        std::memcpy(&input[at], &value, sizeof(value));
      }
    }
    std::copy(input.begin(), input.end(), atoll.inputs()[i].begin());
  }
  return Status();
}

Status CompareOutputs(const Side& tflite, const Side& atoll, Row* row) {
  if (tflite.outputs().size() != atoll.outputs().size()) {
    return InternalError("TensorFlow Lite has %zu outputs, Atoll %zu", tflite.outputs().size(),
                         atoll.outputs().size());
  }
  for (size_t i = 0; i < tflite.outputs().size(); ++i) {
    const std::span<const uint8_t> a = tflite.outputs()[i];
    const std::span<const uint8_t> b = atoll.outputs()[i];
    if (a.size() != b.size()) {
      return InternalError("output %zu has %zu bytes in TensorFlow Lite, %zu in Atoll", i, a.size(),
                           b.size());
    }
    row->output_bytes += a.size();
    for (size_t at = 0; at < a.size(); ++at) row->different_bytes += a[at] != b[at];
  }
  return Status();
}

Status TakeTurn(Side* side, int runs, std::vector<double>* times) {
  ATOLL_RETURN_IF_ERROR(side->Invoke());  // brings its data back into the caches
  for (int i = 0; i < runs; ++i) {
    const int64_t start = MonotonicNs();
    ATOLL_RETURN_IF_ERROR(side->Invoke());
    times->push_back(static_cast<double>(MonotonicNs() - start) * 1e-6);
  }
  return Status();
}

Times TimesOf(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  return {samples[0], (samples[(n - 1) / 2] + samples[n / 2]) / 2};
}

// What this process takes.
Result<Memory> ReadMemory() {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/self/status", "re"),
                                                   std::fclose);
  if (file == nullptr) return NotFound("cannot open /proc/self/status: %s", std::strerror(errno));
  Memory memory;
  char line[256];
  while (std::fgets(line, sizeof(line), file.get()) != nullptr) {
    std::sscanf(line, "VmHWM: %ld", &memory.peak);
    std::sscanf(line, "VmRSS: %ld", &memory.resident);
    std::sscanf(line, "RssAnon: %ld", &memory.own);
  }
  return memory;
}

// What runs in a process of its own: one side of one model. Prints three numbers.
Status RunSide(const Options& options) {
  const auto run = [](Side* side) -> Status {
    for (const std::span<uint8_t> input : side->inputs()) {
      std::fill(input.begin(), input.end(), uint8_t{0});
    }
    for (int i = 0; i < kMemoryRuns; ++i) ATOLL_RETURN_IF_ERROR(side->Invoke());
    ATOLL_ASSIGN_OR_RETURN(const Memory memory, ReadMemory());
    std::printf("%ld %ld %ld\n", memory.peak, memory.resident, memory.own);
    return Status();
  };
  const std::string& model = options.models[0];
  if (options.side == "atoll") {
    ATOLL_ASSIGN_OR_RETURN(const AtollLibrary library, AtollLibrary::Open(options.atoll));
    ATOLL_ASSIGN_OR_RETURN(const auto side, library.Load(model, options.threads));
    return run(side.get());
  }
  ATOLL_ASSIGN_OR_RETURN(const TfliteLibrary library, TfliteLibrary::Open(options.tflite));
  ATOLL_ASSIGN_OR_RETURN(const auto side, library.Load(model, options.threads));
  return run(side.get());
}

Result<Memory> MemoryOf(const Options& options, const char* side, const std::string& model) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return InternalError("no pipe: %s", std::strerror(errno));
  const std::unique_ptr<FILE, int (*)(FILE*)> from(fdopen(ends[0], "r"), std::fclose);
  std::string threads = std::to_string(options.threads);
  std::vector<std::string> words = {"against_tflite", "--side",      side, "--threads",    threads,
                                    "--atoll",        options.atoll, "--", options.tflite, model};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = -1;
  const int error =
      posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) return InternalError("cannot start a process: %s", std::strerror(error));
  Memory memory;
  const int numbers = from == nullptr ? 0
                                      : std::fscanf(from.get(), "%ld %ld %ld", &memory.peak,
                                                    &memory.resident, &memory.own);
  int ended = 0;
  while (waitpid(child, &ended, 0) < 0 && errno == EINTR) {
  }
  if (numbers != 3 || !WIFEXITED(ended) || WEXITSTATUS(ended) != 0) {
    return InternalError("the process that runs side %s of model '%s' ended with status %d", side,
                         model.c_str(), ended);
  }
  return memory;
}

Result<Row> Measure(const Options& options, const TfliteLibrary& tflite_library,
                    const AtollLibrary& atoll_library, const std::string& model) {
  Row row;
  row.model = model.substr(model.rfind('/') + 1);
  if (row.model.ends_with(".tflite")) row.model.resize(row.model.size() - 7);
  if (options.memory) {
    ATOLL_ASSIGN_OR_RETURN(row.tflite_memory, MemoryOf(options, "tflite", model));
    ATOLL_ASSIGN_OR_RETURN(row.atoll_memory, MemoryOf(options, "atoll", model));
  }
  ATOLL_ASSIGN_OR_RETURN(const auto tflite, tflite_library.Load(model, options.threads));
  ATOLL_ASSIGN_OR_RETURN(const auto atoll, atoll_library.Load(model, options.threads));
  row.peer = tflite->Peer();
  row.has_xnnpack = tflite->has_xnnpack();
  ATOLL_RETURN_IF_ERROR(FillInputs(*tflite, *atoll));
  ATOLL_RETURN_IF_ERROR(tflite->Invoke());
  ATOLL_RETURN_IF_ERROR(atoll->Invoke());
  ATOLL_RETURN_IF_ERROR(CompareOutputs(*tflite, *atoll, &row));
  std::vector<double> tflite_ms, atoll_ms;
  for (int done = 0; done < options.runs; done += kTurn) {
    const int runs = std::min(kTurn, options.runs - done);
    ATOLL_RETURN_IF_ERROR(TakeTurn(tflite.get(), runs, &tflite_ms));
    ATOLL_RETURN_IF_ERROR(TakeTurn(atoll.get(), runs, &atoll_ms));
  }
  row.tflite = TimesOf(std::move(tflite_ms));
  row.atoll = TimesOf(std::move(atoll_ms));
  return row;
}

// ---- Reports ------------------------------------------------------------------------------------

std::string CpuModel() {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/cpuinfo", "re"), std::fclose);
  char line[256];
  char name[256];
  while (file != nullptr && std::fgets(line, sizeof(line), file.get()) != nullptr) {
    if (std::sscanf(line, "model name : %255[^\n]", name) == 1) return name;
  }
  return "unknown CPU";
}

// Of the models that ran with XNNPACK, or of the others; 0 if there is none.
double GeometricMean(const std::vector<Row>& rows, bool has_xnnpack) {
  double sum = 0;
  int count = 0;
  for (const Row& row : rows) {
    if (row.has_xnnpack != has_xnnpack) continue;
    sum += std::log(row.ratio());
    ++count;
  }
  return count == 0 ? 0 : std::exp(sum / count);
}

void PrintJson(const Options& options, const std::vector<Row>& rows, const char* tflite_version,
               const char* atoll_version, const char* kernels) {
  using Json = nlohmann::ordered_json;
  const auto number_or_null = [](auto value, bool known) { return known ? Json(value) : Json(); };
  const auto side = [&](const Times& times, const Memory& memory) {
    Json json = {{"min_ms", times.least_ms}, {"median_ms", times.median_ms}};
    json["peak_rss_kib"] = number_or_null(memory.peak, memory.peak >= 0);
    json["rss_kib"] = number_or_null(memory.resident, memory.resident >= 0);
    json["rss_anon_kib"] = number_or_null(memory.own, memory.own >= 0);
    return json;
  };
  Json report = {{"cpu", CpuModel()},      {"tflite", tflite_version},   {"atoll", atoll_version},
                 {"kernels", kernels},     {"threads", options.threads}, {"runs", options.runs},
                 {"models", Json::array()}};
  for (const Row& row : rows) {
    report["models"].push_back({{"model", row.model},
                                {"peer", row.peer},
                                {"xnnpack", row.has_xnnpack},
                                {"tflite", side(row.tflite, row.tflite_memory)},
                                {"atoll", side(row.atoll, row.atoll_memory)},
                                {"ratio", row.ratio()},
                                {"ratio_of_medians", row.tflite.median_ms / row.atoll.median_ms},
                                {"output_bytes", row.output_bytes},
                                {"different_bytes", row.different_bytes}});
  }
  for (const bool xnnpack : {true, false}) {
    const double mean = GeometricMean(rows, xnnpack);
    report[xnnpack ? "geometric_mean_xnnpack" : "geometric_mean_builtin"] =
        number_or_null(mean, mean > 0);
  }
  std::printf("%s\n", report.dump(1, ' ', false, Json::error_handler_t::replace).c_str());
}

// In Markdown, as docs/benchmarks.md has it.
void PrintTable(const Options& options, const std::vector<Row>& rows, const char* tflite_version,
                const char* atoll_version, const char* kernels) {
  std::printf("%s, %d thread%s; Atoll %s, %s kernels; TensorFlow Lite %s.\n\n", CpuModel().c_str(),
              options.threads, options.threads == 1 ? "" : "s", atoll_version, kernels,
              tflite_version);
  std::printf(
      "| model | peer | TFLite, ms: least | median | Atoll, ms: least | median | ratio of least | "
      "of medians | output bytes that differ |\n|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const Row& row : rows) {
    std::printf("| %s | %s | %.3f | %.3f | %.3f | %.3f | %.2f | %.2f | %zu of %zu |\n",
                row.model.c_str(), row.peer.c_str(), row.tflite.least_ms, row.tflite.median_ms,
                row.atoll.least_ms, row.atoll.median_ms, row.ratio(),
                row.tflite.median_ms / row.atoll.median_ms, row.different_bytes, row.output_bytes);
  }
  for (const bool xnnpack : {true, false}) {
    const double mean = GeometricMean(rows, xnnpack);
    if (mean > 0) {
      std::printf("| geometric mean | %s | | | | | %.2f | | |\n",
                  xnnpack ? "XNNPACK" : "builtin kernels", mean);
    }
  }
  if (!options.memory) return;
  std::printf(
      "\n| model | peer | TFLite, MiB: peak | then | of it no file's | Atoll, MiB: peak | then | "
      "of "
      "it no file's |\n|---|---|---:|---:|---:|---:|---:|---:|\n");
  const auto mebibytes = [](long kib) { return static_cast<double>(kib) / 1024; };
  for (const Row& row : rows) {
    std::printf("| %s | %s |", row.model.c_str(), row.peer.c_str());
    for (const Memory& memory : {row.tflite_memory, row.atoll_memory}) {
      std::printf(" %.1f | %.1f | %.1f |", mebibytes(memory.peak), mebibytes(memory.resident),
                  mebibytes(memory.own));
    }
    std::printf("\n");
  }
}

Status Run(const Options& options) {
  if (!options.side.empty()) return RunSide(options);
  ATOLL_ASSIGN_OR_RETURN(const TfliteLibrary tflite, TfliteLibrary::Open(options.tflite));
  ATOLL_ASSIGN_OR_RETURN(const AtollLibrary atoll, AtollLibrary::Open(options.atoll));
  ATOLL_ASSIGN_OR_RETURN(const char* const kernels, atoll.Kernels());
  std::vector<Row> rows;
  Status failure;
  for (const std::string& model : options.models) {
    Result<Row> row = Measure(options, tflite, atoll, model);
    if (row.ok()) {
      rows.push_back(*std::move(row));
      continue;
    }
    // The others are worth their lines.
    if (!failure.ok()) std::fprintf(stderr, "%s\n", failure.message().c_str());
    failure = row.status();
  }
  if (rows.empty()) return failure;
  (options.json ? PrintJson : PrintTable)(options, rows, tflite.Version(), atoll.Version(),
                                          kernels);
  return failure;
}

// False if it is no number in the range.
bool ParseNumber(const char* text, int most, int* number) {
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || errno != 0 || value < 1 || value > most) return false;
  *number = static_cast<int>(value);
  return true;
}

bool Parse(int argc, char** argv, Options* options) {
  std::vector<std::string> files;
  bool only_files = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (only_files || !word.starts_with("--")) {
      files.push_back(word);
    } else if (word == "--") {
      only_files = true;
    } else if (word == "--memory") {
      options->memory = true;
    } else if (word == "--json") {
      options->json = true;
    } else if (word == "--atoll" && has_value) {
      options->atoll = argv[++i];
    } else if (word == "--side" && has_value) {
      options->side = argv[++i];
      if (options->side != "atoll" && options->side != "tflite") return false;
    } else if (word == "--threads" && has_value) {
      if (!ParseNumber(argv[++i], kMaxThreads, &options->threads)) return false;
    } else if (word == "--runs" && has_value) {
      if (!ParseNumber(argv[++i], kMaxRuns, &options->runs)) return false;
    } else {
      return false;
    }
  }
  if (files.size() < 2) return false;
  options->tflite = files[0];
  options->models.assign(files.begin() + 1, files.end());
  return true;
}

int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    std::fprintf(stderr,
                 "usage: against_tflite [--threads 1..%d] [--runs 1..%d] [--atoll LIBRARY] "
                 "[--memory] [--json]\n"
                 "                      LIBTENSORFLOWLITE_C MODEL.tflite...\n",
                 kMaxThreads, kMaxRuns);
    return 2;
  }
  const Status status = Run(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) { return atollrt::Main(argc, argv); }
