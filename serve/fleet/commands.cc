// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/commands.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "atoll/runtime.h"
#include "serve/fleet/fleet_worker.h"
#include "serve/fleet/frame_client.h"
#include "serve/fleet/infer_call.h"
#include "serve/fleet/job_files.h"
#include "serve/fleet/objects.h"
#include "serve/fleet/producer.h"
#include "serve/fleet/records.h"
#include "serve/fleet/spool.h"
#include "serve/fleet/subjects.h"
#include "serve/fleet/sweeper.h"
#include "serve/inference/json_text.h"
#include "serve/inference/model_files.h"

namespace atollserve {
namespace {

namespace fs = std::filesystem;
using atollrt::InvalidArgument;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;
using Json = nlohmann::json;
using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int64_t kStreamsMs = 30'000;
constexpr int64_t kAnswerMs = 15'000;
constexpr auto kRetry = milliseconds(250);
constexpr size_t kMaxWorkers = 10'000;
constexpr size_t kMaxObjects = 10'000;

void Note(const std::string& sentence) {
  std::fprintf(stderr, "atoll-fleet: note: %s\n", sentence.c_str());
}

int Fail(const Status& status) {
  const bool is_device =
      status.code() == StatusCode::kDeviceBusy || status.code() == StatusCode::kDeviceLost;
  const bool is_usage = status.code() == StatusCode::kInvalidArgument ||
                        status.code() == StatusCode::kPermissionDenied;
  return Fail(is_device ? kNoDevice : is_usage ? kUsage : kFailure, status.message());
}

Result<std::unique_ptr<FleetConnection>> Connect(const ConnectionOptions& options,
                                                 const std::string& name, bool pooled) {
  ConnectionOptions wanted = options;
  wanted.name = name;
  wanted.pooled = pooled;
  return FleetConnection::Connect(std::move(wanted), Note);
}

std::string HostName() {
  std::array<char, HOST_NAME_MAX + 1> host = {};
  (void)gethostname(host.data(), host.size() - 1);
  return host.data();
}

const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const Result<T>& result) {
  return result.status();
}

// What `call` gives, again while the servers choose leaders.
template <typename Call>
auto Patiently(const Call& call) {
  const auto until = steady_clock::now() + milliseconds(kStreamsMs);
  while (true) {
    auto given = call();
    const Status& status = StatusOf(given);
    if (status.ok() || !IsPassing(status) || steady_clock::now() >= until) return given;
    std::this_thread::sleep_for(kRetry);
  }
}

// All workers of the list.
Result<std::vector<WorkerRecord>> ListWorkers(const FleetStreams& streams) {
  ATOLL_ASSIGN_OR_RETURN(const NatsPtr<kvStore> store, streams.OpenBucket(kWorkerBucket));
  kvKeysList keys = {};
  natsStatus status = kvStore_Keys(&keys, store.get(), nullptr);
  if (status == NATS_NOT_FOUND) return std::vector<WorkerRecord>();
  if (status != NATS_OK) return NatsStatus(status, "list of workers");
  std::vector<WorkerRecord> workers;
  for (int i = 0; i < keys.Count && workers.size() < kMaxWorkers; ++i) {
    NatsPtr<kvEntry> entry;
    // One may go meanwhile.
    if (kvStore_Get(NatsOut(&entry), store.get(), keys.Keys[i]) != NATS_OK) continue;
    auto record = ParseWorker({static_cast<const char*>(kvEntry_Value(entry.get())),
                               static_cast<size_t>(kvEntry_ValueLen(entry.get()))});
    if (record.ok() && record->worker == keys.Keys[i]) workers.push_back(*std::move(record));
  }
  kvKeysList_Destroy(&keys);
  std::sort(workers.begin(), workers.end(),
            [](const WorkerRecord& a, const WorkerRecord& b) { return a.worker < b.worker; });
  return workers;
}

// Jobs that wait, by model.
std::map<std::string, uint64_t> ListWaiting(const FleetConnection& connection) {
  jsOptions options;
  jsOptions_Init(&options);
  options.Stream.Info.SubjectsFilter = "atoll.work.>";
  NatsPtr<jsStreamInfo> info;
  std::map<std::string, uint64_t> waiting;
  const natsStatus status =
      js_GetStreamInfo(NatsOut(&info), connection.jetstream(), kWorkStream, &options, nullptr);
  if (status != NATS_OK || info->State.Subjects == nullptr) return waiting;
  for (int i = 0; i < info->State.Subjects->Count; ++i) {
    const auto& one = info->State.Subjects->List[i];
    if (const auto address = ParseWorkSubject(one.Subject)) waiting[address->model] += one.Msgs;
  }
  return waiting;
}

std::string Joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

// Without what a terminal would do.
std::string Printable(const std::string& text) {
  std::string clean = text;
  std::replace_if(
      clean.begin(), clean.end(),
      [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; }, '?');
  return clean;
}

void PrintStatus(const std::vector<WorkerRecord>& workers,
                 const std::map<std::string, uint64_t>& waiting) {
  std::printf("%-28s %-28s %-6s %-30s %9s %6s %6s %8s %6s\n", "worker", "device", "free", "models",
              "answered", "busy", "late", "jobs", "failed");
  for (const WorkerRecord& worker : workers) {
    std::vector<std::string> models;
    for (const WorkerModel& model : worker.models)
      models.push_back(model.name + "/" + model.version);
    std::printf(
        "%-28s %-28s %2d/%-3d %-30s %9lld %6lld %6lld %8lld %6lld%s%s\n", worker.worker.c_str(),
        Printable(worker.device).c_str(), worker.free, worker.places,
        Printable(models.empty() ? "-" : Joined(models, ",")).c_str(),
        static_cast<long long>(worker.frames.answered), static_cast<long long>(worker.frames.busy),
        static_cast<long long>(worker.frames.late), static_cast<long long>(worker.jobs.done),
        static_cast<long long>(worker.jobs.failed + worker.frames.failed),
        worker.draining ? "  draining" : "", worker.device_lost ? "  device lost" : "");
    for (const std::string& problem : worker.problems) {
      std::printf("  %s\n", Printable(problem).c_str());
    }
  }
  if (workers.empty()) std::printf("no workers\n");
  for (const auto& [model, count] : waiting) {
    std::printf("%llu jobs of model '%s' wait\n", static_cast<unsigned long long>(count),
                Printable(model).c_str());
  }
  std::fflush(stdout);
}

double Percentile(std::vector<double> sorted, double part) {
  if (sorted.empty()) return 0;
  std::sort(sorted.begin(), sorted.end());
  const auto last = static_cast<double>(sorted.size() - 1);
  return sorted[static_cast<size_t>(part * last + 0.5)];
}

}  // namespace

int Fail(ExitCode code, const std::string& sentence) {
  std::fprintf(stderr, "atoll-fleet: %s.\n", sentence.c_str());
  return code;
}

// ---- A worker --------------------------------------------------------------------------------

int RunWorker(const WorkerCommand& command, const Signals& signals) {
  FleetWorkerOptions options;
  options.id = command.id.empty() ? MakeWorkerId(HostName()) : command.id;
  options.device = command.device;
  options.on_device_loss = command.on_device_loss;
  options.threads = command.threads;
  options.places = command.places;
  options.jobs = !command.no_jobs;
  options.placement = !command.no_placement;
  options.cache = command.cache;
  options.cache_bytes = command.cache_bytes;
  options.limits = command.limits;
  options.streams = command.streams;
  for (const std::string& model : command.models) {
    auto named = atollserve::ParseNamedFile(model);
    if (!named.has_value()) {
      return Fail(kUsage, "--model '" + model + "' is not NAME=FILE; see 'atoll worker --help'");
    }
    options.models.push_back(*std::move(named));
  }
  if (options.models.empty() && command.no_placement) {
    return Fail(kUsage,
                "with --no-placement a worker has the models of --model NAME=FILE alone; give one");
  }
  const auto connection = Connect(command.connection, "atoll worker " + options.id, false);
  if (!connection.ok()) return Fail(connection.status());
  const std::string id = options.id;
  auto worker = FleetWorker::Start(connection->get(), std::move(options));
  if (!worker.ok()) return Fail(worker.status());
  std::unique_ptr<MetricsServer> metrics;
  if (!command.metrics.listen.empty()) {
    auto started = MetricsServer::Start(command.metrics, [&] {
      return PrometheusText((*worker)->inference()) +
             WorkerPrometheusText((*worker)->Record(), (*connection)->connected());
    });
    if (!started.ok()) return Fail(started.status());
    metrics = *std::move(started);
  }
  // Ends the wait below.
  (*worker)->OnDrainRequested([] { kill(getpid(), SIGTERM); });
  const WorkerRecord record = (*worker)->Record();
  std::printf("worker %s with %s, %d places; Ctrl-C stops it\n", id.c_str(),
              record.device_description.c_str(), record.places);
  if (metrics != nullptr) std::printf("metrics at %s\n", metrics->url().c_str());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  // A second one ends it at once.
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  (*worker)->Drain();
  return kOk;
}

// ---- Frames ----------------------------------------------------------------------------------

int RunInfer(const InferCommand& command) {
  const auto files = ExpandFiles(command.files);
  if (!files.ok()) return Fail(files.status());
  std::vector<JobInput> inputs;
  for (const std::string& file : *files) {
    auto input = ReadJobFile(file);
    if (!input.ok()) return Fail(input.status());
    inputs.push_back(*std::move(input));
  }
  std::optional<OutputFolder> folder;
  if (!command.output.empty()) {
    folder.emplace(command.output);
    if (const Status status = folder->Check(*files); !status.ok()) return Fail(status);
  }
  const auto connection = Connect(command.connection, "atoll fleet infer", false);
  if (!connection.ok()) return Fail(connection.status());
  const auto client = FrameClient::Create(connection->get());
  if (!client.ok()) return Fail(client.status());

  // Of frames: captured = processed + dropped + failed.
  int64_t captured = 0, processed = 0, late = 0, skipped = 0, failed = 0;
  std::vector<double> latencies_ms;
  std::map<std::string, int64_t> by_worker;
  std::string first_error;
  std::mutex mutex;
  std::condition_variable changed;
  int running = 0;
  std::vector<size_t> queue;  // at most one for each thread that waits
  bool is_over = false;
  const auto ask = [&] {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return is_over || !queue.empty(); });
      if (queue.empty()) return;
      const size_t frame = queue.back();
      queue.pop_back();
      lock.unlock();
      const JobInput& input = inputs[frame % inputs.size()];
      FrameRequest request;
      request.model = command.model;
      for (const auto& [name, value] : input.headers) {
        request.headers.emplace_back(name.c_str(), value);
      }
      request.body = input.body;
      request.budget = microseconds(static_cast<int64_t>(command.budget_ms * 1000));
      request.number = std::to_string(frame);
      const auto start = steady_clock::now();
      FrameAnswer answer = (*client)->Infer(request);
      const double ms =
          std::chrono::duration<double, std::milli>(steady_clock::now() - start).count();
      Status written;
      if (answer.end == FrameEnd::kAnswered && folder && frame < inputs.size()) {
        written = folder->Write(input.name, answer.body, answer.json_bytes);
      }
      lock.lock();
      --running;
      if (answer.end == FrameEnd::kAnswered && !written.ok()) {
        answer.end = FrameEnd::kFailed;
        answer.error = written.message();
      }
      ++(answer.end == FrameEnd::kAnswered ? processed
         : answer.end == FrameEnd::kLate   ? late
                                           : failed);
      if (answer.end == FrameEnd::kAnswered) {
        latencies_ms.push_back(ms);
        ++by_worker[answer.worker];
      } else if (first_error.empty()) {
        first_error = answer.error;
      }
      changed.notify_all();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < command.in_flight; ++i) threads.emplace_back(ask);
  const size_t count = inputs.size() * static_cast<size_t>(command.repeat);
  const auto start = steady_clock::now();
  for (size_t frame = 0; frame < count; ++frame) {
    if (command.fps > 0) {
      std::this_thread::sleep_until(
          start + duration_cast<steady_clock::duration>(
                      std::chrono::duration<double>(static_cast<double>(frame) / command.fps)));
    }
    std::unique_lock lock(mutex);
    ++captured;
    if (command.fps > 0 && running >= command.in_flight) {
      ++skipped;
      continue;
    }
    changed.wait(lock, [&] { return running < command.in_flight; });
    ++running;
    queue.push_back(frame);
    changed.notify_all();
  }
  {
    std::unique_lock lock(mutex);
    is_over = true;
    changed.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
  const double p50 = Percentile(latencies_ms, 0.5), p99 = Percentile(latencies_ms, 0.99);
  if (command.json) {
    const Json report = {{"schema", 1},
                         {"command", "fleet infer"},
                         {"model", command.model},
                         {"captured", captured},
                         {"processed", processed},
                         {"dropped", late + skipped},
                         {"failed", failed},
                         {"late", late},
                         {"skipped", skipped},
                         {"seconds", seconds},
                         {"latency_p50_ms", p50},
                         {"latency_p99_ms", p99},
                         {"workers", by_worker},
                         {"error", first_error}};
    std::printf("%s\n", DumpJson(report).c_str());
  } else {
    std::printf("%lld captured = %lld processed + %lld dropped + %lld failed\n",
                static_cast<long long>(captured), static_cast<long long>(processed),
                static_cast<long long>(late + skipped), static_cast<long long>(failed));
    if (!latencies_ms.empty()) {
      std::printf("latency  p50 %.2f ms, p99 %.2f ms, %.1f frames/s\n", p50, p99,
                  static_cast<double>(processed) / seconds);
    }
    for (const auto& [worker, frames] : by_worker) {
      std::printf("%8lld by %s\n", static_cast<long long>(frames), Printable(worker).c_str());
    }
    if (!first_error.empty()) std::printf("first error: %s\n", Printable(first_error).c_str());
  }
  return processed > 0 && failed == 0 ? kOk : kFailure;
}

// ---- Jobs ------------------------------------------------------------------------------------

int RunJobs(const RunCommand& command, const Signals& signals) {
  if (!IsFleetModelName(command.model)) {
    return Fail(kUsage, "--model '" + command.model + "' is no name of a model");
  }
  const auto files = ExpandFiles(command.files);
  if (!files.ok()) return Fail(files.status());
  auto output = JobOutput::Open(command.output, *files);
  if (!output.ok()) return Fail(output.status());
  const auto spool = Spool::Open(command.spool.empty() ? command.output + ".spool" : command.spool);
  if (!spool.ok()) return Fail(spool.status());
  // Jobs of others, in the same spool.
  for (const SpoolJob& job : (*spool)->Waiting()) {
    if (job.model != command.model) {
      return Fail(kUsage, "the spool has jobs of model '" + job.model +
                              "'; end those first, or give another --spool");
    }
  }
  const auto connection = Connect(command.connection, "atoll fleet run", true);
  if (!connection.ok()) return Fail(connection.status());
  const FleetStreams streams(connection->get(), command.streams);
  ProducerOptions options;
  options.model = command.model;
  options.priority = command.priority;
  options.window = static_cast<size_t>(command.window);
  options.publish_again_ms = static_cast<int64_t>(command.publish_again_s * 1000);
  if (command.timeout_s > 0) options.timeout_ms = static_cast<int64_t>(command.timeout_s * 1000);
  Producer producer(connection->get(), &streams, spool->get(), std::move(options));

  // Ctrl-C leaves the rest for the next time.
  bool has_ended = false;
  std::mutex mutex;
  std::thread interrupter([&] {
    while (true) {
      const timespec tick = {.tv_sec = 0, .tv_nsec = 200'000'000};
      if (sigtimedwait(&signals, nullptr, &tick) > 0) producer.Stop();
      const std::lock_guard lock(mutex);
      if (has_ended) return;
    }
  });
  size_t next = 0;
  const auto start = steady_clock::now();
  const Status status = producer.Run(
      [&]() -> std::optional<Result<JobInput>> {
        while (next < (*files).size() &&
               ((*spool)->HasName((*files)[next]) || (*output)->Has((*files)[next]))) {
          ++next;
        }
        if (next == (*files).size()) return std::nullopt;
        return ReadJobFile((*files)[next++]);
      },
      [&](const JobResult& result) { return (*output)->Write(result); },
      [&] { return (*output)->Sync(); });
  {
    const std::lock_guard lock(mutex);
    has_ended = true;
  }
  interrupter.join();
  const ProducerCounts counts = producer.counts();
  const double seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
  if (command.json) {
    const Json report = {{"schema", 1},
                         {"command", "fleet run"},
                         {"model", command.model},
                         {"files", (*files).size()},
                         {"submitted", counts.added},
                         {"resumed", counts.resumed},
                         {"done", counts.done},
                         {"failed", counts.failed},
                         {"published", counts.published},
                         {"seconds", seconds}};
    std::printf("%s\n", DumpJson(report).c_str());
  } else {
    std::printf(
        "%lld submitted + %lld resumed = %lld done + %lld failed + %lld left\n",
        static_cast<long long>(counts.added), static_cast<long long>(counts.resumed),
        static_cast<long long>(counts.done), static_cast<long long>(counts.failed),
        static_cast<long long>(counts.added + counts.resumed - counts.done - counts.failed));
    std::printf("%.1f jobs/s; %s\n", static_cast<double>(counts.done + counts.failed) / seconds,
                (*output)->path().c_str());
  }
  std::fflush(stdout);
  if (!status.ok()) return Fail(status);
  if (const Status cleared = (*spool)->Clear(); !cleared.ok()) return Fail(cleared);
  return counts.failed == 0 ? kOk : kFailure;
}

// ---- The fleet -------------------------------------------------------------------------------

int RunStatus(const FleetCommand& command, bool watches) {
  const auto connection = Connect(command.connection, "atoll fleet status", false);
  if (!connection.ok()) return Fail(connection.status());
  const FleetStreams streams(connection->get(), command.streams);
  if (const Status status = streams.EnsureWithin(kStreamsMs); !status.ok()) return Fail(status);
  while (true) {
    const auto workers = Patiently([&] { return ListWorkers(streams); });
    if (!workers.ok()) return Fail(workers.status());
    const auto waiting = ListWaiting(**connection);
    if (command.json) {
      Json list = Json::array();
      for (const WorkerRecord& worker : *workers) {
        auto json = ParseJson(WorkerJson(worker));
        if (json.ok()) list.push_back(*std::move(json));
      }
      const Json report = {{"schema", 1},
                           {"command", "fleet status"},
                           {"workers", std::move(list)},
                           {"waiting", waiting}};
      std::printf("%s\n", DumpJson(report).c_str());
      std::fflush(stdout);
    } else {
      PrintStatus(*workers, waiting);
    }
    if (!watches) return kOk;
    std::this_thread::sleep_for(std::chrono::seconds(2));
  }
}

int RunDrain(const FleetCommand& command, const std::string& worker) {
  if (!IsWorkerId(worker)) return Fail(kUsage, "'" + worker + "' is no id of a worker");
  const auto connection = Connect(command.connection, "atoll fleet drain", false);
  if (!connection.ok()) return Fail(connection.status());
  const auto answer = (*connection)->Request(DrainSubject(worker), {}, "", kAnswerMs);
  if (!answer.ok()) {
    if (answer.status().code() == StatusCode::kNotFound) {
      return Fail(kFailure, "there is no worker '" + worker + "'; 'atoll fleet status' lists them");
    }
    return Fail(answer.status());
  }
  std::printf("worker %s takes nothing new, and goes when it has ended what it has\n",
              worker.c_str());
  return kOk;
}

int RunSweep(const FleetCommand& command, bool once, const Signals& signals) {
  const auto connection = Connect(command.connection, "atoll fleet sweep", false);
  if (!connection.ok()) return Fail(connection.status());
  const FleetStreams streams(connection->get(), command.streams);
  if (const Status status = streams.EnsureWithin(kStreamsMs); !status.ok()) return Fail(status);
  Sweeper sweeper(connection->get(), &streams);
  std::string problem;
  while (true) {
    SweepCounts counts;
    const Status status = sweeper.Sweep(&counts);
    if (once && !status.ok()) return Fail(status);
    if (!status.ok() && status.message() != problem) {
      problem = status.message();
      Note(problem);
    }
    if (once || counts.given_up + counts.left_over > 0) {
      std::printf("%lld jobs given up, %lld taken out of the queue that had a result\n",
                  static_cast<long long>(counts.given_up),
                  static_cast<long long>(counts.left_over));
      std::fflush(stdout);
    }
    if (once) return kOk;
    const timespec pause = {.tv_sec = 5, .tv_nsec = 0};
    if (sigtimedwait(&signals, nullptr, &pause) > 0) return kOk;
  }
}

int RunPut(const FleetCommand& command, const std::string& model, int64_t version,
           const std::string& file) {
  if (!IsFleetModelName(model)) return Fail(kUsage, "'" + model + "' is no name of a model");
  const auto input = ReadWholeFile(file, InferenceLimits().model_bytes);
  if (!input.ok()) return Fail(input.status());
  const auto connection = Connect(command.connection, "atoll fleet models put", false);
  if (!connection.ok()) return Fail(connection.status());
  const FleetStreams streams(connection->get(), command.streams);
  if (const Status status = streams.EnsureWithin(kStreamsMs); !status.ok()) return Fail(status);
  const ObjectStore store(connection->get(), kModelBucket);
  bool is_new = false;
  const std::string name = ModelObjectName(model, version);
  const Status status = Patiently([&] { return store.Put(name, *input, &is_new); });
  if (!status.ok()) return Fail(status);
  std::printf("%s: %zu bytes%s\n", name.c_str(), (*input).size(),
              is_new ? "" : ", which were there already");
  return kOk;
}

int RunList(const FleetCommand& command) {
  const auto connection = Connect(command.connection, "atoll fleet models list", false);
  if (!connection.ok()) return Fail(connection.status());
  const FleetStreams streams(connection->get(), command.streams);
  if (const Status status = streams.EnsureWithin(kStreamsMs); !status.ok()) return Fail(status);
  const ObjectStore store(connection->get(), kModelBucket);
  const auto objects = Patiently([&] { return store.List(kMaxObjects); });
  if (!objects.ok()) return Fail(objects.status());
  Json list = Json::array();
  for (const ObjectInfo& object : *objects) {
    const auto model = ParseModelObjectName(object.name);
    if (!model) continue;
    if (command.json) {
      list.push_back({{"name", model->name},
                      {"version", model->version},
                      {"bytes", object.size},
                      {"digest", Base64Url(object.sha256)}});
    } else {
      std::printf("%-40s %4lld %12llu bytes\n", Printable(model->name).c_str(),
                  static_cast<long long>(model->version),
                  static_cast<unsigned long long>(object.size));
    }
  }
  if (command.json) {
    const Json report = {
        {"schema", 1}, {"command", "fleet models list"}, {"models", std::move(list)}};
    std::printf("%s\n", DumpJson(report).c_str());
  }
  return kOk;
}

int RunCopy(const FleetCommand& command, const std::string& from) {
  const auto connection = Connect(command.connection, "atoll fleet models copy", false);
  if (!connection.ok()) return Fail(connection.status());
  FleetCommand elsewhere = command;
  elsewhere.connection.domain = from;
  const auto source = Connect(elsewhere.connection, "atoll fleet models copy", false);
  if (!source.ok()) return Fail(source.status());
  const FleetStreams streams(connection->get(), command.streams);
  if (const Status status = streams.EnsureWithin(kStreamsMs); !status.ok()) return Fail(status);
  const ObjectStore there(source->get(), kModelBucket), here(connection->get(), kModelBucket);
  const auto objects = Patiently([&] { return there.List(kMaxObjects); });
  if (!objects.ok()) return Fail(objects.status());
  for (const ObjectInfo& object : *objects) {
    if (!ParseModelObjectName(object.name)) continue;
    const auto known = here.Info(object.name);
    if (known.ok() && known->sha256 == object.sha256) continue;
    const auto bytes = Patiently([&] { return there.Get(object, InferenceLimits().model_bytes); });
    if (!bytes.ok()) return Fail(bytes.status());
    bool is_new = false;
    const Status status = Patiently([&] { return here.Put(object.name, *bytes, &is_new); });
    if (!status.ok()) return Fail(status);
    std::printf("%s: %zu bytes\n", Printable(object.name).c_str(), (*bytes).size());
  }
  return kOk;
}

int RunPlace(const FleetCommand& command, const std::string& worker,
             const std::vector<std::string>& models, bool clears) {
  const std::string key = worker.empty() ? kDefaultPlacement : worker;
  if (key != kDefaultPlacement && !IsWorkerId(key)) {
    return Fail(kUsage, "'" + worker + "' is no id of a worker");
  }
  std::vector<PlacedModel> placed;
  for (const std::string& model : models) {
    auto parsed = ParsePlacedModel(model);
    if (!parsed.ok()) return Fail(parsed.status());
    placed.push_back(*std::move(parsed));
  }
  const std::string json = PlacementJson(placed);
  if (const auto checked = ParsePlacement(json); !checked.ok()) return Fail(checked.status());
  const auto connection = Connect(command.connection, "atoll fleet place", false);
  if (!connection.ok()) return Fail(connection.status());
  const FleetStreams streams(connection->get(), command.streams);
  if (const Status status = streams.EnsureWithin(kStreamsMs); !status.ok()) return Fail(status);
  // What nobody can have is said now.
  const ObjectStore store(connection->get(), kModelBucket);
  const auto objects = Patiently([&] { return store.List(kMaxObjects); });
  if (!objects.ok()) return Fail(objects.status());
  for (const PlacedModel& model : placed) {
    const bool is_there =
        std::any_of((*objects).begin(), (*objects).end(), [&](const ObjectInfo& object) {
          const auto found = ParseModelObjectName(object.name);
          return found && found->name == model.name &&
                 (model.version == 0 || found->version == model.version);
        });
    if (!is_there) {
      return Fail(kFailure, "there is no model '" + model.name +
                                (model.version == 0 ? "" : "/" + std::to_string(model.version)) +
                                "' in the fleet; 'atoll fleet models put' stores one");
    }
  }
  const Status status = Patiently([&]() -> Status {
    ATOLL_ASSIGN_OR_RETURN(const NatsPtr<kvStore> bucket, streams.OpenBucket(kPlacementBucket));
    return NatsStatus(clears ? kvStore_Delete(bucket.get(), key.c_str())
                             : kvStore_PutString(nullptr, bucket.get(), key.c_str(), json.c_str()),
                      "placement");
  });
  if (!status.ok()) return Fail(status);
  std::printf("%s: %s\n", key == kDefaultPlacement ? "all other workers" : key.c_str(),
              clears ? "what all others have" : json.c_str());
  return kOk;
}

}  // namespace atollserve
