// SPDX-License-Identifier: Apache-2.0
//
// `atoll benchmark`: what is on the command line, made into targets, load and reports.
#include "tools/atoll/benchmark.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/labels.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/pictures.h"
#include "tools/atoll/session.h"

namespace atollcmd {
namespace {

constexpr int kDefaultRuns = 50;
constexpr int kProfiledRuns = 10;
constexpr double kMaxSeconds = 7 * 24 * 3600.0;
constexpr double kMaxArrivals = 20e6;

struct BenchmarkOptions {
  std::vector<std::string> models;
  std::vector<std::string> devices;
  std::vector<std::string> targets;  // devices or servers
  std::vector<int> threads = {0};
  int streams = 1;
  std::string token_file;
  std::string ca_file;
  SessionOptions session;  // of none of them
  std::vector<std::string> inputs;
  std::string images;
  atollrt::PixelScaling scaling;

  std::optional<int> runs;
  std::optional<double> duration_s;
  int warmup = 3;
  std::optional<double> warmup_s;
  std::vector<double> percentiles = {50, 90, 99};

  std::string scenario;
  std::optional<double> qps;
  std::optional<double> latency_bound_ms;
  std::optional<int> samples_per_query;
  std::optional<double> percentile;
  std::optional<int64_t> min_queries;
  std::optional<uint64_t> seed;

  std::string accuracy;
  std::string labels;
  std::optional<size_t> limit;

  bool operators = false;
  std::string csv;
  std::string report;
  bool json = false;
};

// A decimal number above 0, and at most `most`.
CLI::Validator Positive(double most) {
  return {[most](std::string& text) {
            const std::optional<double> number = ParseNumber<double>(text);
            return number && *number > 0 && *number <= most
                       ? std::string()
                       : fmt::format("'{}' is not a number above 0 and up to {:g}", text, most);
          },
          "NUMBER"};
}

// ---- What goes together -------------------------------------------------------------------------

// The settings of the scenario, if there is one. Throws for what does not go together.
std::optional<LoadSettings> SettingsOf(const BenchmarkOptions& options) {
  const auto need = [](bool given, bool fits, const char* option, const char* where) {
    if (given && !fits) Fail(ExitCode::kUsage, "{} is for {} alone; leave it out", option, where);
  };
  const std::optional<Scenario> scenario = ParseScenario(options.scenario);
  const bool is_server = scenario == Scenario::kServer;
  need(options.qps.has_value(), is_server || scenario == Scenario::kOffline, "--qps",
       "--scenario server and offline");
  need(options.latency_bound_ms.has_value(), is_server, "--latency-bound-ms", "--scenario server");
  need(options.samples_per_query.has_value(), scenario == Scenario::kMultiStream,
       "--samples-per-query", "--scenario multi-stream");
  need(options.percentile.has_value(), scenario && scenario != Scenario::kOffline, "--percentile",
       "--scenario single-stream, multi-stream and server");
  need(options.min_queries.has_value(), scenario.has_value(), "--min-queries", "--scenario");
  need(options.seed.has_value(), scenario.has_value(), "--seed", "--scenario");
  if (!scenario) return std::nullopt;
  if (options.runs) {
    Fail(ExitCode::kUsage, "--runs does not go with --scenario; --min-queries says how many");
  }
  if (scenario == Scenario::kSingleStream && options.streams != 1) {
    Fail(ExitCode::kUsage, "--scenario single-stream has one stream, not {}; leave --streams out",
         options.streams);
  }
  if (is_server && (!options.qps || !options.latency_bound_ms)) {
    Fail(ExitCode::kUsage,
         "--scenario server needs --qps, the arrivals in a second, and --latency-bound-ms");
  }
  LoadSettings settings = DefaultsOf(*scenario);
  settings.duration_s = options.duration_s.value_or(settings.duration_s);
  settings.min_queries = options.min_queries.value_or(settings.min_queries);
  settings.percentile = options.percentile.value_or(settings.percentile);
  settings.qps = options.qps.value_or(0);
  settings.latency_bound_ms = options.latency_bound_ms.value_or(0);
  settings.samples_per_query = options.samples_per_query.value_or(settings.samples_per_query);
  settings.seed = options.seed.value_or(settings.seed);
  if (is_server && settings.qps * settings.duration_s > kMaxArrivals) {
    Fail(ExitCode::kUsage, "--qps {:g} for {:g} s are more than {:g} queries; choose fewer",
         settings.qps, settings.duration_s, kMaxArrivals);
  }
  return settings;
}

void CheckOptions(const BenchmarkOptions& options) {
  if (!options.accuracy.empty()) {
    if (!options.scenario.empty() || options.runs || options.duration_s) {
      Fail(ExitCode::kUsage,
           "--accuracy looks at each picture once; leave out --scenario, --runs and --duration");
    }
    if (!options.images.empty() || !options.inputs.empty()) {
      Fail(ExitCode::kUsage, "--accuracy brings its pictures; leave out --images and --input");
    }
  } else if (!options.labels.empty() || options.limit) {
    Fail(ExitCode::kUsage, "{} is for --accuracy alone; leave it out",
         options.limit ? "--limit" : "--labels");
  }
  if (!options.images.empty() && !options.inputs.empty()) {
    Fail(ExitCode::kUsage, "--images and --input both say what goes in; give one of them");
  }
  if (options.scaling.given() && options.images.empty() && options.accuracy.empty()) {
    Fail(ExitCode::kUsage, "--mean and --std are for --images and --accuracy; leave them out");
  }
  if (!options.ca_file.empty()) {
    CheckFile("--ca-file", options.ca_file, "a PEM file of who signs the server's certificate");
  }
  if (!options.csv.empty()) CheckOutputFile("--csv", options.csv);
  if (!options.report.empty()) CheckOutputFile("--report", options.report);
}

// ---- Entries ------------------------------------------------------------------------------------

// An entry, with the interpreter that makes inputs of pictures, where one is needed beside its own.
struct Prepared {
  std::unique_ptr<Entry> entry;
  std::unique_ptr<Session> helper;
};

void AddEntry(const BenchmarkOptions& options, std::unique_ptr<Target> target,
              const SessionOptions& local, std::vector<Prepared>* all) {
  Prepared prepared;
  prepared.entry = std::make_unique<Entry>();
  Entry& entry = *prepared.entry;
  Session* session = target->session();
  const bool has_pictures = !options.images.empty() || !options.accuracy.empty();
  if (has_pictures) {
    if (session != nullptr) {
      prepared.helper = session->Twin();
    } else if (local.model.empty()) {
      Fail(ExitCode::kUsage,
           "--images and --accuracy need the model's file also where a server runs it: it says how "
           "pictures become inputs; name it first");
    } else {
      SessionOptions on_cpu = local;
      on_cpu.device = "cpu";
      prepared.helper = std::make_unique<Session>(on_cpu);
    }
  }
  if (options.images.empty()) {
    entry.samples = {target->MakeInputs(options.inputs)};
  } else {
    entry.samples = PictureSamples(*prepared.helper, options.scaling).MakeAll(options.images);
    target->CheckInputs(entry.samples.front());
  }
  if (session != nullptr) session->Lint({});
  entry.team = std::make_unique<Team>(target->stream_count());
  entry.target = std::move(target);
  all->push_back(std::move(prepared));
}

void AddServer(const BenchmarkOptions& options, const std::string& text,
               std::vector<Prepared>* all) {
  const OipAddress address = ParseOipAddress(text);
  if (!address.model.empty() && options.models.size() > 1) {
    Fail(ExitCode::kUsage, "'{}' names one model, but there are {} files; leave its name out", text,
         options.models.size());
  }
  const OipCredentials credentials = {.token = ReadOipToken(options.token_file),
                                      .ca_file = options.ca_file};
  const auto streams = static_cast<size_t>(options.streams);
  const auto open = address.grpc ? OpenGrpcTarget : OpenOipTarget;
  if (options.models.empty()) {
    AddEntry(options, open(address, "", credentials, streams), {}, all);
    return;
  }
  for (size_t i = 0; i < options.models.size(); ++i) {
    const std::string name = std::filesystem::path(options.models[i]).stem().string();
    AddEntry(options, open(address, name, credentials, streams),
             OptionsFor(options.session, options.models, i), all);
  }
}

std::vector<Prepared> Prepare(const BenchmarkOptions& options) {
  std::vector<std::string> devices = options.devices;
  std::vector<std::string> servers;
  for (const std::string& target : options.targets) {
    (IsOipAddress(target) ? servers : devices).push_back(target);
  }
  for (const std::string& server : servers) ParseOipAddress(server);
  if (servers.empty() && !(options.token_file.empty() && options.ca_file.empty())) {
    Fail(ExitCode::kUsage, "{} is for --target oips://HOST:PORT or grpcs://; leave it out",
         options.token_file.empty() ? "--ca-file" : "--token-file");
  }
  if (devices.empty() && servers.empty()) devices = {"auto"};
  if (options.models.empty() && !devices.empty()) {
    Fail(ExitCode::kUsage, "MODEL is required; see 'atoll benchmark --help'");
  }
  std::vector<Prepared> all;
  for (size_t model = 0; model < options.models.size(); ++model) {
    for (const std::string& device : devices) {
      for (const int threads : options.threads) {
        SessionOptions one = OptionsFor(options.session, options.models, model);
        one.device = device;
        one.threads = threads;
        AddEntry(options, OpenDeviceTarget(one, static_cast<size_t>(options.streams)), one, &all);
      }
    }
  }
  for (const std::string& server : servers) AddServer(options, server, &all);
  return all;
}

// ---- The run ------------------------------------------------------------------------------------

PlainLoad PlainLoadOf(const BenchmarkOptions& options) {
  return {.runs = options.runs.value_or(options.duration_s ? 1 : kDefaultRuns),
          .seconds = options.duration_s.value_or(0)};
}

// How many inferences there will be; 0: nobody knows.
int64_t TotalOf(const BenchmarkOptions& options, size_t entries, bool has_scenario,
                const DataSet* data) {
  if (has_scenario || options.duration_s || options.warmup_s) return 0;
  const auto count = static_cast<int64_t>(entries);
  const int64_t warm = 1 + int64_t{options.warmup} * options.streams;
  const int64_t runs =
      data != nullptr
          ? static_cast<int64_t>(std::min(options.limit.value_or(data->size()), data->size()))
          : PlainLoadOf(options).runs * options.streams;
  return count * (warm + runs);
}

std::unique_ptr<DataSet> OpenLabelled(const BenchmarkOptions& options) {
  if (options.accuracy.empty()) return nullptr;
  const std::vector<std::string> labels =
      options.labels.empty() ? std::vector<std::string>() : ParseLabels(ReadFile(options.labels));
  std::unique_ptr<DataSet> data = OpenDataSet(options.accuracy, "", labels);
  if (data->task() != atollrt::Task::kClassify) {
    Fail(ExitCode::kUsage, "'{}' is not for classifiers; 'atoll evaluate' knows such data",
         options.accuracy);
  }
  return data;
}

void Measure(const BenchmarkOptions& options, const std::optional<LoadSettings>& settings,
             const DataSet* data, const std::vector<Prepared>& prepared, const Entries& entries,
             const std::atomic<bool>& stop) {
  Progress progress("measuring", TotalOf(options, entries.size(), settings.has_value(), data),
                    "inferences");
  const WarmUp warm_up = {.inferences = options.warmup, .seconds = options.warmup_s.value_or(0)};
  for (const auto& entry : entries) {
    if (!stop) WarmUpEntry(warm_up, stop, &progress, entry.get());
  }
  if (!settings && data == nullptr) {
    MeasureInTurns(PlainLoadOf(options), stop, &progress, entries);
    return;
  }
  for (size_t i = 0; i < entries.size() && !stop; ++i) {
    if (settings) {
      RunScenario(*settings, stop, &progress, entries[i].get());
      continue;
    }
    const PictureSamples samples(*prepared[i].helper, options.scaling);
    entries[i]->target->CheckInputs(
        {std::vector<uint8_t>(AtollTensorByteSize(prepared[i].helper->inputs().at(0)))});
    RunAccuracy(*data, samples, options.limit.value_or(data->size()), stop, &progress,
                entries[i].get());
  }
}

std::vector<EntryReport> ReportsOf(const BenchmarkOptions& options, const Entries& entries,
                                   const std::atomic<bool>& stop) {
  std::vector<EntryReport> reports;
  const bool is_profiled = options.operators || !options.report.empty();
  for (const auto& entry : entries) {
    EntryReport report{entry.get(), entry->target->Describe(), std::nullopt};
    Session* const session = entry->target->session();
    if (is_profiled && session != nullptr && !stop) {
      report.profile = TakeProfile(session, kProfiledRuns);
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

void RunBenchmark(const BenchmarkOptions& given) {
  BenchmarkOptions options = given;
  std::sort(options.percentiles.begin(), options.percentiles.end());
  options.percentiles.erase(std::unique(options.percentiles.begin(), options.percentiles.end()),
                            options.percentiles.end());
  CheckOptions(options);
  const std::optional<LoadSettings> settings = SettingsOf(options);
  const std::unique_ptr<DataSet> data = OpenLabelled(options);
  std::vector<Prepared> prepared = Prepare(options);
  Entries entries;
  for (Prepared& one : prepared) {
    if (Session* session = one.entry->target->session()) session->Announce();
    entries.push_back(std::move(one.entry));
  }
  const bool is_table = entries.size() > 1;
  const std::atomic<bool>& stop = StopOnSignals();
  Measure(options, settings, data.get(), prepared, entries, stop);
  std::erase_if(entries,
                [](const auto& entry) { return entry->times.empty() && entry->failed == 0; });
  for (const auto& entry : entries) {
    if (Session* session = entry->target->session()) session->AnnounceHealth();
  }
  if (entries.empty()) {
    Fail(ExitCode::kInterrupted, "interrupted before anything was measured");
  }
  const bool is_interrupted = stop;
  const std::vector<EntryReport> reports = ReportsOf(options, entries, stop);
  OutputFiles files;
  const auto write = [&](const char* option, const std::string& path, const std::string& text) {
    files.Add(option, path, text.data(), text.size());
  };
  if (!options.csv.empty()) {
    write("--csv", options.csv, BenchmarkCsv(reports, options.percentiles));
  }
  if (!options.report.empty()) {
    write("--report", options.report, BenchmarkPage(reports, options.percentiles, is_table));
  }
  files.Commit();
  Print(
      options.json, [&] { return BenchmarkJson(reports, options.percentiles, is_table); },
      [&] { return BenchmarkText(reports, options.percentiles, is_table); });
  if (!is_interrupted) return;
  const size_t runs = entries.back()->times.size();
  if (settings || data != nullptr || options.duration_s) {
    Fail(ExitCode::kInterrupted, "interrupted after {} runs; this is what they took", runs);
  }
  Fail(ExitCode::kInterrupted, "interrupted after {} of {} runs; this is what they took", runs,
       PlainLoadOf(options).runs * options.streams);
}

}  // namespace

void AddBenchmarkCommand(CLI::App* app) {
  Subcommand<BenchmarkOptions> command(app, "benchmark", RunBenchmark);
  command.Add("MODEL", command->models);
  command.AddRepeatable("--device", command->devices);
  command.AddRepeatable("--target", command->targets);
  command.AddRepeatable("--threads", command->threads)->delimiter(',')->check(CLI::Range(0, 256));
  command.Add("--streams", command->streams)->check(CLI::Range(1, 256));
  command.Add("--token-file", command->token_file);
  command.Add("--ca-file", command->ca_file);
  AddInputShapeOption(&command, &command->session.input_shapes);
  AddFallbackOption(&command, &command->session.fallback_models);
  command.Add("--performance", command->session.performance)
      ->check(CLI::IsMember({"low", "medium", "high", "max"}));
  command.Add("--firmware", command->session.firmware);
  command.Flag("--copy", command->session.copy);
  command.AddRepeatable("--input", command->inputs);
  command.Add("--images", command->images);
  AddPixelScalingOptions(&command, &command->scaling);

  command.Add("--runs", command->runs)->check(CLI::Range(1, 10'000'000));
  command.Add("--duration", command->duration_s)->check(Positive(kMaxSeconds));
  command.Add("--warmup", command->warmup)->check(CLI::Range(0, 10'000'000));
  command.Add("--warmup-time", command->warmup_s)->check(Positive(kMaxSeconds));
  command.Add("--percentiles", command->percentiles)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(Positive(100));

  command.Add("--scenario", command->scenario)
      ->check(CLI::IsMember({"single-stream", "multi-stream", "server", "offline"}));
  command.Add("--qps", command->qps)->check(Positive(1e6));
  command.Add("--latency-bound-ms", command->latency_bound_ms)->check(Positive(1e7));
  command.Add("--samples-per-query", command->samples_per_query)->check(CLI::Range(1, 10'000));
  command.Add("--percentile", command->percentile)->check(Positive(99.99));
  command.Add("--min-queries", command->min_queries)->check(CLI::Range(1, 10'000'000));
  command.Add("--seed", command->seed)->check(WholeNumber());

  command.Add("--accuracy", command->accuracy);
  command.Add("--labels", command->labels);
  command.Add("--limit", command->limit)->check(CLI::Range(1, 100'000'000));

  command.Flag("--operators", command->operators);
  command.Add("--csv", command->csv);
  command.Add("--report", command->report);
  command.Flag("--json", command->json);
  AddCompareCommand(command.app());
}

}  // namespace atollcmd
