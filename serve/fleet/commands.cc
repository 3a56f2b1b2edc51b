// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/commands.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdio>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "atoll/runtime.h"
#include "runtime/base/printable.h"
#include "serve/fleet/compiled_forms.h"
#include "serve/fleet/fleet_view.h"
#include "serve/fleet/fleet_worker.h"
#include "serve/fleet/job_files.h"
#include "serve/fleet/objects.h"
#include "serve/fleet/records.h"
#include "serve/fleet/subjects.h"
#include "serve/fleet/sweeper.h"
#include "serve/inference/json_text.h"
#include "serve/inference/model_files.h"

namespace atollserve {
namespace {

using atollrt::Printable;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;
using Json = nlohmann::json;

constexpr int64_t kAnswerMs = 15'000;
constexpr size_t kMaxObjects = 10'000;

std::string HostName() {
  std::array<char, HOST_NAME_MAX + 1> host = {};
  (void)gethostname(host.data(), host.size() - 1);
  return host.data();
}

}  // namespace

// ---- What commands share ----------------------------------------------------------------------

int Fail(ExitCode code, const std::string& sentence) {
  std::fprintf(stderr, "atoll-fleet: %s.\n", sentence.c_str());
  return code;
}

int Fail(const Status& status) {
  const bool is_device =
      status.code() == StatusCode::kDeviceBusy || status.code() == StatusCode::kDeviceLost;
  const bool is_usage = status.code() == StatusCode::kInvalidArgument ||
                        status.code() == StatusCode::kPermissionDenied;
  return Fail(is_device ? kNoDevice : is_usage ? kUsage : kFailure, status.message());
}

void Note(const std::string& sentence) {
  std::fprintf(stderr, "atoll-fleet: note: %s\n", sentence.c_str());
}

Result<std::unique_ptr<FleetConnection>> Connect(const ConnectionOptions& options,
                                                 const std::string& name, bool pooled) {
  ConnectionOptions wanted = options;
  wanted.name = name;
  wanted.pooled = pooled;
  return FleetConnection::Connect(std::move(wanted), Note);
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

// ---- The fleet -------------------------------------------------------------------------------

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
  if (const Status status = streams.EnsureWithin(kPatience.count()); !status.ok())
    return Fail(status);
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
           const std::string& file, const std::vector<std::string>& devices) {
  if (!IsFleetModelName(model)) return Fail(kUsage, "'" + model + "' is no name of a model");
  const auto input = ReadWholeFile(file, InferenceLimits().model_bytes);
  if (!input.ok()) return Fail(input.status());
  std::map<std::string, std::string> forms;
  for (const std::string& device : devices) {
    auto compiled = CompileFor(device, *input);
    if (!compiled.ok()) {
      return Fail(std::move(compiled).status().WithContext("--compile-for " + device));
    }
    forms[compiled->form] = std::move(compiled->bytes);
  }
  const auto connection = Connect(command.connection, "atoll fleet models put", false);
  if (!connection.ok()) return Fail(connection.status());
  const FleetStreams streams(connection->get(), command.streams);
  if (const Status status = streams.EnsureWithin(kPatience.count()); !status.ok())
    return Fail(status);
  const Status own = TryFor(kPatience, [&] { return streams.CheckHasOwnModels(); });
  if (!own.ok()) return Fail(own);
  const ObjectStore store(connection->get(), kModelBucket);
  const auto put = [&](const std::string& name, const std::string& bytes,
                       const std::string& made_from) {
    bool is_new = false;
    const Status status =
        TryFor(kPatience, [&] { return store.Put(name, bytes, made_from, &is_new); });
    if (status.ok()) {
      std::printf("%s: %zu bytes%s\n", name.c_str(), bytes.size(),
                  is_new ? "" : ", which were there already");
    }
    return status;
  };
  // The model comes last: who hears of it finds what belongs to it.
  for (const auto& [form, bytes] : forms) {
    const Status status = put(CompiledObjectName(model, version, form), bytes, Sha256Bytes(*input));
    if (!status.ok()) return Fail(status);
  }
  const Status status = put(ModelObjectName(model, version), *input, "");
  return status.ok() ? kOk : Fail(status);
}

int RunList(const FleetCommand& command) {
  const auto connection = Connect(command.connection, "atoll fleet models list", false);
  if (!connection.ok()) return Fail(connection.status());
  const FleetStreams streams(connection->get(), command.streams);
  if (const Status status = streams.EnsureWithin(kPatience.count()); !status.ok())
    return Fail(status);
  const ObjectStore store(connection->get(), kModelBucket);
  const auto objects = TryFor(kPatience, [&] { return store.List(kMaxObjects); });
  if (!objects.ok()) return Fail(objects.status());
  // By the model's object and what they were made from.
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> forms_of;
  for (const ObjectInfo& object : *objects) {
    if (auto compiled = ParseCompiledObjectName(object.name)) {
      forms_of[{ModelObjectName(compiled->model.name, compiled->model.version), object.made_from}]
          .push_back(std::move(compiled->form));
    }
  }
  Json list = Json::array();
  for (const ObjectInfo& object : *objects) {
    const auto model = ParseModelObjectName(object.name);
    if (!model) continue;
    // Those that were made from what is there now.
    const std::vector<std::string>& forms = forms_of[{object.name, object.sha256}];
    if (command.json) {
      list.push_back({{"name", model->name},
                      {"version", model->version},
                      {"bytes", object.size},
                      {"digest", Base64Url(object.sha256)},
                      {"forms", forms}});
    } else {
      std::printf("%-40s %4lld %12llu bytes\n", Printable(model->name).c_str(),
                  static_cast<long long>(model->version),
                  static_cast<unsigned long long>(object.size));
      for (const std::string& form : forms) std::printf("    compiled for %s\n", form.c_str());
    }
  }
  if (command.json) {
    const Json report = {
        {"schema", 1}, {"command", "fleet models list"}, {"models", std::move(list)}};
    std::printf("%s\n", DumpJson(report).c_str());
  }
  return kOk;
}

struct BothSides {
  std::unique_ptr<FleetConnection> here, there;
};

// With what a fleet needs in the domain of the command, here, which is made where it is missing.
// `there` is another domain of JetStream, through the same server.
Result<BothSides> ConnectBothSides(const FleetCommand& command, const std::string& there,
                                   const char* client) {
  BothSides sides;
  ATOLL_ASSIGN_OR_RETURN(sides.here, Connect(command.connection, client, false));
  ConnectionOptions elsewhere = command.connection;
  elsewhere.domain = there;
  ATOLL_ASSIGN_OR_RETURN(sides.there, Connect(elsewhere, client, false));
  ATOLL_RETURN_IF_ERROR(
      FleetStreams(sides.here.get(), command.streams).EnsureWithin(kPatience.count()));
  return sides;
}

int RunCopy(const FleetCommand& command, const std::string& from) {
  const auto sides = ConnectBothSides(command, from, "atoll fleet models copy");
  if (!sides.ok()) return Fail(sides.status());
  const FleetStreams streams(sides->here.get(), command.streams);
  const Status own = TryFor(kPatience, [&] { return streams.CheckHasOwnModels(); });
  if (!own.ok()) return Fail(own);
  const ObjectStore there(sides->there.get(), kModelBucket), here(sides->here.get(), kModelBucket);
  const auto objects = TryFor(kPatience, [&] { return there.List(kMaxObjects); });
  if (!objects.ok()) return Fail(objects.status());
  for (const ObjectInfo& object : *objects) {
    if (!ParseModelObjectName(object.name) && !ParseCompiledObjectName(object.name)) continue;
    const auto known = here.Info(object.name);
    if (known.ok() && known->sha256 == object.sha256 && known->made_from == object.made_from) {
      continue;
    }
    const auto bytes =
        TryFor(kPatience, [&] { return there.Get(object, InferenceLimits().model_bytes); });
    if (!bytes.ok()) return Fail(bytes.status());
    bool is_new = false;
    const Status status =
        TryFor(kPatience, [&] { return here.Put(object.name, *bytes, object.made_from, &is_new); });
    if (!status.ok()) return Fail(status);
    std::printf("%s: %zu bytes\n", Printable(object.name).c_str(), (*bytes).size());
  }
  return kOk;
}

// How many of the objects that `there` has are not whole here.
Result<size_t> CountMissing(const ObjectStore& there, const ObjectStore& here) {
  ATOLL_ASSIGN_OR_RETURN(const auto objects, there.List(kMaxObjects));
  size_t missing = 0;
  for (const ObjectInfo& object : objects) {
    const auto info = here.Info(object.name);
    const bool is_known = info.ok() && info->nuid == object.nuid;
    if (!is_known || !here.Get(*info, InferenceLimits().model_bytes).ok()) ++missing;
  }
  return missing;
}

// Waits until a mirror has everything, and makes it anew if it lacks something and nothing comes
// any more: that of NATS 2.9.10 leaves out a message now and then, or stands still. How many files
// are yet to come.
Result<size_t> AwaitMirror(const FleetStreams& streams, const ObjectStore& there,
                           const ObjectStore& here, const std::string& from) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kPause = std::chrono::milliseconds(300);
  constexpr auto kStandstill = std::chrono::seconds(3);
  const auto until = Clock::now() + kPatience;
  uint64_t last = 0;
  for (auto moved = Clock::now();;) {
    ATOLL_ASSIGN_OR_RETURN(const size_t missing,
                           TryFor(kPatience, [&] { return CountMissing(there, here); }));
    if (missing == 0 || Clock::now() > until) return missing;
    ATOLL_ASSIGN_OR_RETURN(const uint64_t now,
                           TryFor(kPatience, [&] { return streams.LastModelSequence(); }));
    if (now != last) {
      last = now;
      moved = Clock::now();
    } else if (Clock::now() - moved > kStandstill) {
      ATOLL_RETURN_IF_ERROR(
          TryFor(kPatience, [&] { return streams.MirrorModels(from, /*anew=*/true); }));
      moved = Clock::now();
    }
    std::this_thread::sleep_for(kPause);
  }
}

int RunMirror(const FleetCommand& command, const std::string& from) {
  if (!IsDomain(from)) return Fail(kUsage, "'" + from + "' is no domain of JetStream");
  const auto sides = ConnectBothSides(command, from, "atoll fleet models mirror");
  if (!sides.ok()) return Fail(sides.status());
  const FleetStreams streams(sides->here.get(), command.streams);
  // It has to be there.
  const ObjectStore there(sides->there.get(), kModelBucket), here(sides->here.get(), kModelBucket);
  const auto objects = TryFor(kPatience, [&] { return there.List(kMaxObjects); });
  if (!objects.ok()) return Fail(objects.status());
  const Status status =
      TryFor(kPatience, [&] { return streams.MirrorModels(from, /*anew=*/false); });
  if (!status.ok()) return Fail(status);
  const auto missing = AwaitMirror(streams, there, here, from);
  if (!missing.ok()) return Fail(missing.status());
  if (*missing > 0) {
    std::fprintf(stderr,
                 "atoll-fleet: %zu files are yet to come; ask again to see whether they did\n",
                 *missing);
  }
  std::printf("the models here are those of '%s', of which there are %zu files\n", from.c_str(),
              (*objects).size());
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
  if (const Status status = streams.EnsureWithin(kPatience.count()); !status.ok())
    return Fail(status);
  // What nobody can have is said now.
  const ObjectStore store(connection->get(), kModelBucket);
  const auto objects = TryFor(kPatience, [&] { return store.List(kMaxObjects); });
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
  const Status status = TryFor(kPatience, [&]() -> Status {
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
