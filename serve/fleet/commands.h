// SPDX-License-Identifier: Apache-2.0
//
// What the program atoll-fleet does for each of its commands. Each returns an exit code, as those
// of the `atoll` command are, and prints to stdout and stderr.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "serve/fleet/connection.h"
#include "serve/fleet/metrics.h"
#include "serve/fleet/streams.h"
#include "serve/inference/inference_server.h"

namespace atollserve {

enum ExitCode { kOk = 0, kFailure = 1, kUsage = 2, kNoDevice = 3 };

// SIGINT and SIGTERM, blocked in all threads.
using Signals = sigset_t;

struct WorkerCommand {
  ConnectionOptions connection;
  StreamOptions streams;
  std::string id;  // "": made of the computer's name
  std::string device = "auto";
  std::string on_device_loss = "fallback";
  int threads = 0;
  std::vector<std::string> models;  // NAME=FILE
  int places = 0;
  std::string cache;
  uint64_t cache_bytes = uint64_t{4} << 30;
  MetricsOptions metrics;  // without `listen` none
  bool no_jobs = false;
  bool no_placement = false;
  InferenceLimits limits;
};
int RunWorker(const WorkerCommand& command, const Signals& signals);

struct InferCommand {
  ConnectionOptions connection;
  std::string model;
  std::vector<std::string> files;
  std::string output;  // folder; "": none
  double budget_ms = 500;
  int in_flight = 2;
  double fps = 0;  // 0: as fast as answers come
  int repeat = 1;
  bool json = false;
};
int RunInfer(const InferCommand& command);

struct RunCommand {
  ConnectionOptions connection;
  StreamOptions streams;
  std::string model;
  std::vector<std::string> files;
  std::string spool;   // folder; "": OUTPUT with .spool behind it
  std::string output;  // folder, or FILE.jsonl
  int priority = 1;
  int window = 512;
  double publish_again_s = 90;
  double timeout_s = 0;  // 0: none
  bool json = false;
};
int RunJobs(const RunCommand& command, const Signals& signals);

struct FleetCommand {
  ConnectionOptions connection;
  StreamOptions streams;
  bool json = false;
};
int RunStatus(const FleetCommand& command, bool watches);

struct TopCommand {
  FleetCommand fleet;
  double interval_s = 2;
  bool once = false;
};
int RunTop(const TopCommand& command);
int RunDrain(const FleetCommand& command, const std::string& worker);
int RunSweep(const FleetCommand& command, bool once, const Signals& signals);
// With what is compiled for each of the devices.
int RunPut(const FleetCommand& command, const std::string& model, int64_t version,
           const std::string& file, const std::vector<std::string>& devices);
int RunList(const FleetCommand& command);
// From the servers' JetStream of another domain.
int RunCopy(const FleetCommand& command, const std::string& from);
// The same by itself from now on.
int RunMirror(const FleetCommand& command, const std::string& from);
int RunPlace(const FleetCommand& command, const std::string& worker,
             const std::vector<std::string>& models, bool clears);

// ---- What commands share ----------------------------------------------------------------------

// "atoll-fleet: SENTENCE." on stderr.
int Fail(ExitCode code, const std::string& sentence);
// With the code that is that of the status.
int Fail(const atollrt::Status& status);
// "atoll-fleet: note: SENTENCE" on stderr.
void Note(const std::string& sentence);

// As somebody whom the servers know as `name`; says what happens later as notes.
atollrt::Result<std::unique_ptr<FleetConnection>> Connect(const ConnectionOptions& options,
                                                          const std::string& name, bool pooled);

// So long commands wait for servers that choose leaders.
inline constexpr std::chrono::milliseconds kPatience{30'000};

}  // namespace atollserve
