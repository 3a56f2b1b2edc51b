// SPDX-License-Identifier: Apache-2.0
//
// atoll fleet run: files as jobs, whose results are files.
#include <chrono>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "serve/fleet/commands.h"
#include "serve/fleet/job_files.h"
#include "serve/fleet/producer.h"
#include "serve/fleet/spool.h"
#include "serve/fleet/subjects.h"
#include "serve/inference/json_text.h"

namespace atollserve {
namespace {

using atollrt::InvalidArgument;
using atollrt::Result;
using atollrt::Status;
using Json = nlohmann::json;
using std::chrono::steady_clock;

// Ctrl-C leaves the rest for the next time.
class Interrupter {
 public:
  Interrupter(const Signals& signals, Producer* producer)
      : thread_([this, signals, producer] {
          while (!HasEnded()) {
            const timespec tick = {.tv_sec = 0, .tv_nsec = 200'000'000};
            if (sigtimedwait(&signals, nullptr, &tick) > 0) producer->Stop();
          }
        }) {}
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;
  ~Interrupter() {
    {
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
    }
    thread_.join();
  }

 private:
  bool HasEnded() {
    const std::lock_guard lock(mutex_);
    return has_ended_;
  }

  std::mutex mutex_;
  bool has_ended_ = false;
  std::thread thread_;
};

Result<std::unique_ptr<Spool>> OpenSpool(const RunCommand& command) {
  ATOLL_ASSIGN_OR_RETURN(
      std::unique_ptr<Spool> spool,
      Spool::Open(command.spool.empty() ? command.output + ".spool" : command.spool));
  for (const SpoolJob& job : spool->Waiting()) {
    if (job.model != command.model) {
      return InvalidArgument(
          "the spool has jobs of model '%s'; end those first, or give another --spool",
          job.model.c_str());
    }
  }
  return spool;
}

ProducerOptions OptionsOf(const RunCommand& command) {
  ProducerOptions options;
  options.model = command.model;
  options.priority = command.priority;
  options.window = static_cast<size_t>(command.window);
  options.publish_again_ms = static_cast<int64_t>(command.publish_again_s * 1000);
  if (command.timeout_s > 0) options.timeout_ms = static_cast<int64_t>(command.timeout_s * 1000);
  return options;
}

// Has the files done that are neither in the spool nor in the output.
Status Produce(const std::vector<std::string>& files, const Spool& spool, const Signals& signals,
               Producer* producer, JobOutput* output) {
  const Interrupter interrupter(signals, producer);
  auto next = files.begin();
  return producer->Run(
      [&]() -> std::optional<Result<JobInput>> {
        while (next != files.end() && (spool.HasName(*next) || output->Has(*next))) ++next;
        if (next == files.end()) return std::nullopt;
        return ReadJobFile(*next++);
      },
      [&](const JobResult& result) { return output->Write(result); },
      [&] { return output->Sync(); });
}

void PrintJobs(const RunCommand& command, size_t files, const ProducerCounts& counts,
               const std::string& path, double seconds) {
  if (command.json) {
    const Json report = {
        {"schema", 1},         {"command", "fleet run"},    {"model", command.model},
        {"files", files},      {"submitted", counts.added}, {"resumed", counts.resumed},
        {"done", counts.done}, {"failed", counts.failed},   {"published", counts.published},
        {"seconds", seconds}};
    std::printf("%s\n", DumpJson(report).c_str());
  } else {
    const int64_t left = counts.added + counts.resumed - counts.done - counts.failed;
    std::printf("%lld submitted + %lld resumed = %lld done + %lld failed + %lld left\n",
                static_cast<long long>(counts.added), static_cast<long long>(counts.resumed),
                static_cast<long long>(counts.done), static_cast<long long>(counts.failed),
                static_cast<long long>(left));
    std::printf("%.1f jobs/s; %s\n", static_cast<double>(counts.done + counts.failed) / seconds,
                path.c_str());
  }
  std::fflush(stdout);
}

}  // namespace

int RunJobs(const RunCommand& command, const Signals& signals) {
  if (!IsFleetModelName(command.model)) {
    return Fail(kUsage, "--model '" + command.model + "' is no name of a model");
  }
  const auto files = ExpandFiles(command.files);
  if (!files.ok()) return Fail(files.status());
  const auto output = JobOutput::Open(command.output, *files);
  if (!output.ok()) return Fail(output.status());
  const auto spool = OpenSpool(command);
  if (!spool.ok()) return Fail(spool.status());
  const auto connection = Connect(command.connection, "atoll fleet run", true);
  if (!connection.ok()) return Fail(connection.status());
  const FleetStreams streams(connection->get(), command.streams);
  Producer producer(connection->get(), &streams, spool->get(), OptionsOf(command));
  const auto start = steady_clock::now();
  const Status status = Produce(*files, **spool, signals, &producer, output->get());
  const double seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
  const ProducerCounts counts = producer.counts();
  PrintJobs(command, (*files).size(), counts, (*output)->path(), seconds);
  if (!status.ok()) return Fail(status);
  if (const Status cleared = (*spool)->Clear(); !cleared.ok()) return Fail(cleared);
  return counts.failed == 0 ? kOk : kFailure;
}

}  // namespace atollserve
