// SPDX-License-Identifier: Apache-2.0
//
// atoll-fleet: workers, frames and jobs of many computers (docs/fleet.md).
#include <fcntl.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "atoll/runtime.h"
#include "serve/fleet/commands.h"

namespace {

using atollserve::ConnectionOptions;
using atollserve::FleetCommand;
using atollserve::Signals;
using atollserve::StreamOptions;

// A subcommand, whose options its function has.
struct Command {
  CLI::App* app;
  std::function<int(const Signals& signals)> run;
  bool waits_for_signals = false;
};

constexpr const char* kFooter = R"(
Servers of NATS on this computer (127.0.0.1, localhost) are used as they are. Any others have to be
tls://HOST:PORT, and this has to show who it is: --credentials, --nkey, --tls-cert, or a token in a
file or the environment variable ATOLL_NATS_TOKEN; --insecure does without.

Exit codes: 0 it went well; 1 something failed, also a frame or a job; 2 the command line; 3 the
device.

Examples:
  nats-server -js -sd /var/lib/nats &
  atoll worker --model fashion=fashion_int8.tflite --device emu
  atoll fleet status
  atoll fleet top
  atoll fleet infer --model fashion ankle_boot.pgm
  atoll fleet run --model fashion --output results pictures/
  atoll fleet models put fashion fashion_int8.tflite --as 2
  atoll fleet models mirror --from hub
  atoll fleet place fashion
  atoll worker --nats tls://hub.example:4222 --tls-ca ca.pem --credentials worker.creds
docs/fleet.md has all of it.
)";

void LogToStderr(AtollLogSeverity severity, const char* message, void*) {
  if (severity >= ATOLL_LOG_WARNING) std::fprintf(stderr, "atoll-fleet: note: %s\n", message);
}

void AddConnection(CLI::App* app, ConnectionOptions* options) {
  app->add_option("--nats", options->servers,
                  "nats://HOST:PORT or tls://HOST:PORT of a server; repeatable, for those of a "
                  "cluster; nats:// and tls:// look for those that Avahi knows of")
      ->allow_extra_args(false)
      ->capture_default_str();
  app->add_option("--token-file", options->token_file, "file with the servers' token");
  app->add_option("--credentials", options->credentials, "file with a JWT and its seed");
  app->add_option("--nkey", options->nkey, "public key of a user, U...; with --nkey-seed");
  app->add_option("--nkey-seed", options->nkey_seed, "file with its seed");
  app->add_option("--tls-ca", options->tls_ca, "PEM file of who signs the servers' certificates");
  app->add_option("--tls-cert", options->tls_cert,
                  "PEM file with a certificate that says who this is");
  app->add_option("--tls-key", options->tls_key, "PEM file with its key");
  app->add_option("--tls-host", options->tls_host,
                  "the name in the servers' certificates, if they are called otherwise");
  app->add_option("--inbox-prefix", options->inbox_prefix,
                  "of the subjects of answers, if this user may not listen to _INBOX.>");
  app->add_option("--domain", options->domain, "of JetStream, as that of another site");
  app->add_option("--connect-timeout", options->connect_timeout_ms,
                  "milliseconds until the first connection")
      ->check(CLI::Range(1, 3'600'000))
      ->capture_default_str();
  app->add_flag("--insecure", options->insecure, "use servers elsewhere as they are");
}

void AddStreams(CLI::App* app, StreamOptions* options) {
  app->add_option("--replicas", options->replicas,
                  "of streams that are made: 1 to 5; 0: 3, or 1 without a cluster")
      ->check(CLI::Range(0, 5))
      ->capture_default_str();
  app->add_option("--ack-wait", options->ack_wait_ms,
                  "milliseconds until a job of which its worker says nothing is another one's")
      ->check(CLI::Range(100, 3'600'000))
      ->capture_default_str();
  app->add_option("--max-deliver", options->max_deliver, "times that a job is given to a worker")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  app->add_option("--work-bytes", options->work_bytes,
                  "of all jobs that wait; producers wait while there are more")
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 50))
      ->capture_default_str();
  app->add_option("--result-bytes", options->result_bytes, "of all results")
      ->check(CLI::Range(int64_t{1} << 20, int64_t{1} << 50))
      ->capture_default_str();
}

void AddMetrics(CLI::App* app, atollserve::MetricsOptions* options) {
  atollserve::AccessOptions* const access = &options->access;
  access->prefix = "--metrics-";
  access->token_variable = "ATOLL_METRICS_TOKEN";
  app->add_option(
      "--metrics", options->listen,
      "ADDRESS:PORT, :PORT of 127.0.0.1, or unix:PATH, where Prometheus finds /metrics");
  app->add_option("--metrics-tls-cert", access->tls.certificate,
                  "PEM file with its certificate, without which it is on this computer alone");
  app->add_option("--metrics-tls-key", access->tls.key, "PEM file with its key");
  app->add_option("--metrics-token-file", access->token_file,
                  "file with the token of who may read them; else ATOLL_METRICS_TOKEN");
  app->add_option("--metrics-client-ca", access->tls.client_ca,
                  "PEM file of who signs the certificates of who may read them");
  app->add_option("--metrics-name", access->names, "what else it may be called; repeatable")
      ->allow_extra_args(false);
  app->add_flag("--metrics-insecure", access->insecure, "let everybody read them, from anywhere");
}

Command AddWorker(CLI::App* app) {
  const auto worker = std::make_shared<atollserve::WorkerCommand>();
  CLI::App* const work = app->add_subcommand("worker", "answer frames and do jobs with a device");
  AddConnection(work, &worker->connection);
  AddStreams(work, &worker->streams);
  work->add_option("--id", worker->id,
                   "letters, digits, '-' and '_'; else the computer's name and something random");
  work->add_option("--model", worker->models,
                   "NAME=FILE: a model that it has whatever its placement says; repeatable")
      ->allow_extra_args(false);
  work->add_option("--device", worker->device,
                   "as of 'atoll run --device'; a comma between several")
      ->capture_default_str();
  work->add_option("--on-device-loss", worker->on_device_loss,
                   "when a device that was lost does not come back within seconds: fallback "
                   "computes on the emulator, with the same bytes; replay gives jobs back, for "
                   "other workers; fail does so without waiting")
      ->check(CLI::IsMember({"fallback", "replay", "fail"}))
      ->capture_default_str();
  work->add_option("--threads", worker->threads,
                   "host threads of each interpreter; 0: as the machine suggests")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  work->add_option("--places", worker->places,
                   "frames, and jobs, that it has at a time; 0: two for each device")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  work->add_option("--cache", worker->cache, "folder for models that were fetched");
  work->add_option("--max-cache-bytes", worker->cache_bytes,
                   "of that folder; what was not used for longest goes first")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 50))
      ->capture_default_str();
  work->add_option("--max-models", worker->limits.models, "at a time")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  work->add_option("--max-model-bytes", worker->limits.model_bytes, "of a model's file")
      ->check(CLI::Range(size_t{1}, size_t{1} << 40))
      ->capture_default_str();
  work->add_flag("--no-jobs", worker->no_jobs, "frames alone");
  work->add_flag("--no-placement", worker->no_placement, "the models of --model alone");
  AddMetrics(work, &worker->metrics);
  return {work, [worker](const Signals& signals) { return RunWorker(*worker, signals); }, true};
}

Command AddInfer(CLI::App* app) {
  const auto infer = std::make_shared<atollserve::InferCommand>();
  CLI::App* const frame =
      app->add_subcommand("infer", "ask about pictures, with a budget for each");
  AddConnection(frame, &infer->connection);
  frame->add_option("--model", infer->model, "its name")->required();
  frame->add_option("FILES", infer->files, "pictures, or files with the bytes of the model's input")
      ->required();
  frame->add_option("--output", infer->output, "folder for NAME.out_K.raw");
  frame
      ->add_option("--budget", infer->budget_ms,
                   "milliseconds in which an answer is worth something")
      ->check(CLI::Range(0.1, 3'600'000.0))
      ->capture_default_str();
  frame->add_option("--in-flight", infer->in_flight, "frames that are under way, at most")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  frame
      ->add_option("--fps", infer->fps,
                   "frames in a second, of which those without a place are dropped; 0: as fast as "
                   "answers come")
      ->check(CLI::Range(0.0, 100'000.0))
      ->capture_default_str();
  frame->add_option("--repeat", infer->repeat, "all files so many times")
      ->check(CLI::Range(1, 100'000'000))
      ->capture_default_str();
  frame->add_flag("--json", infer->json, "the report as JSON");
  return {frame, [infer](const Signals&) { return RunInfer(*infer); }};
}

Command AddRun(CLI::App* app) {
  const auto run = std::make_shared<atollserve::RunCommand>();
  CLI::App* const jobs = app->add_subcommand("run", "have jobs done, none of them lost or twice");
  AddConnection(jobs, &run->connection);
  AddStreams(jobs, &run->streams);
  jobs->add_option("--model", run->model, "its name")->required();
  jobs->add_option("FILES", run->files,
                   "pictures, files with the bytes of the model's input, and folders of both")
      ->required();
  jobs->add_option("--output", run->output,
                   "folder for results.jsonl and NAME.out_K.raw, or FILE.jsonl; what is there "
                   "already is not done again")
      ->required();
  jobs->add_option("--spool", run->spool,
                   "folder of jobs that have no result yet; else OUTPUT with .spool behind it");
  jobs->add_option("--priority", run->priority, "0, which comes first, to 2")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
  jobs->add_option("--window", run->window, "jobs that have no result yet, at most")
      ->check(CLI::Range(64, 100'000))
      ->capture_default_str();
  jobs->add_option("--again-after", run->publish_again_s,
                   "seconds until a job without a result is sent again")
      ->check(CLI::Range(0.1, 86'400.0))
      ->capture_default_str();
  jobs->add_option("--timeout", run->timeout_s, "seconds for all; 0: none")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  jobs->add_flag("--json", run->json, "the report as JSON");
  return {jobs, [run](const Signals& signals) { return RunJobs(*run, signals); }, true};
}

Command AddStatus(CLI::App* app) {
  const auto fleet = std::make_shared<FleetCommand>();
  const auto watches = std::make_shared<bool>(false);
  CLI::App* const status = app->add_subcommand("status", "who works, with what, and what waits");
  AddConnection(status, &fleet->connection);
  status->add_flag("--json", fleet->json, "the report as JSON");
  status->add_flag("--watch", *watches, "again every two seconds");
  return {status, [=](const Signals&) { return RunStatus(*fleet, *watches); }};
}

Command AddTop(CLI::App* app) {
  const auto command = std::make_shared<atollserve::TopCommand>();
  CLI::App* const top = app->add_subcommand("top", "what workers do now, and what waits");
  AddConnection(top, &command->fleet.connection);
  top->add_flag("--once", command->once, "print one table and end");
  top->add_option("--interval", command->interval_s, "seconds between two tables")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  top->add_flag("--json", command->fleet.json, "one line of JSON for each table");
  return {top, [command](const Signals&) { return RunTop(*command); }};
}

Command AddDrain(CLI::App* app) {
  const auto fleet = std::make_shared<FleetCommand>();
  const auto id = std::make_shared<std::string>();
  CLI::App* const drain = app->add_subcommand("drain", "have a worker end what it has, and go");
  AddConnection(drain, &fleet->connection);
  drain->add_option("WORKER", *id, "its id")->required();
  return {drain, [=](const Signals&) { return RunDrain(*fleet, *id); }};
}

Command AddSweep(CLI::App* app) {
  const auto fleet = std::make_shared<FleetCommand>();
  const auto once = std::make_shared<bool>(false);
  CLI::App* const sweep =
      app->add_subcommand("sweep", "give up jobs that nobody ends; one of a fleet, or several");
  AddConnection(sweep, &fleet->connection);
  AddStreams(sweep, &fleet->streams);
  sweep->add_flag("--once", *once, "instead of every five seconds");
  return {sweep, [=](const Signals& signals) { return RunSweep(*fleet, *once, signals); }, true};
}

Command AddPut(CLI::App* models) {
  struct Options {
    FleetCommand fleet;
    std::string name, file;
    int64_t version = 1;
    std::vector<std::string> devices;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* const put = models->add_subcommand("put", "store one, for workers to fetch");
  AddConnection(put, &options->fleet.connection);
  put->add_option("NAME", options->name, "of the model")->required();
  put->add_option("FILE", options->file, "the .tflite file")->required();
  // "--version" is the program's.
  put->add_option("--as", options->version, "the number of its version")
      ->check(CLI::Range(int64_t{1}, int64_t{999'999'999}))
      ->capture_default_str();
  put->add_option("--compile-for", options->devices,
                  "device, as of 'atoll run --device', for which it is compiled, too: workers with "
                  "such a one need not; repeatable")
      ->allow_extra_args(false);
  return {put, [options](const Signals&) {
            return RunPut(options->fleet, options->name, options->version, options->file,
                          options->devices);
          }};
}

Command AddList(CLI::App* models) {
  const auto fleet = std::make_shared<FleetCommand>();
  CLI::App* const list = models->add_subcommand("list", "which there are");
  AddConnection(list, &fleet->connection);
  list->add_flag("--json", fleet->json, "the report as JSON");
  return {list, [fleet](const Signals&) { return RunList(*fleet); }};
}

Command AddCopy(CLI::App* models) {
  const auto fleet = std::make_shared<FleetCommand>();
  const auto from = std::make_shared<std::string>();
  CLI::App* const copy = models->add_subcommand("copy", "bring those of another site");
  AddConnection(copy, &fleet->connection);
  copy->add_option("--from", *from, "its domain of JetStream")->required();
  return {copy, [=](const Signals&) { return RunCopy(*fleet, *from); }};
}

Command AddMirror(CLI::App* models) {
  const auto fleet = std::make_shared<FleetCommand>();
  const auto from = std::make_shared<std::string>();
  CLI::App* const mirror = models->add_subcommand(
      "mirror", "have those of another site, from now on and also while the link to it is cut");
  AddConnection(mirror, &fleet->connection);
  mirror->add_option("--from", *from, "its domain of JetStream")->required();
  return {mirror, [=](const Signals&) { return RunMirror(*fleet, *from); }};
}

Command AddPlace(CLI::App* app) {
  struct Options {
    FleetCommand fleet;
    std::string worker;
    std::vector<std::string> models;
    bool clears = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* const place = app->add_subcommand("place", "which models workers have");
  AddConnection(place, &options->fleet.connection);
  place->add_option("--worker", options->worker,
                    "this one alone; else all that have no placement of their own");
  place->add_option("MODELS", options->models,
                    "NAME, the newest version, or NAME/VERSION; all that they have");
  place->add_flag("--clear", options->clears, "the worker has what all others have again");
  return {place, [options](const Signals&) {
            if (options->models.empty() && !options->clears) {
              return atollserve::Fail(atollserve::kUsage,
                                      "name the models that workers shall have");
            }
            return RunPlace(options->fleet, options->worker, options->models, options->clears);
          }};
}

std::vector<Command> AddCommands(CLI::App* app) {
  std::vector<Command> commands = {AddWorker(app), AddInfer(app), AddRun(app),  AddStatus(app),
                                   AddTop(app),    AddDrain(app), AddSweep(app)};
  CLI::App* const models = app->add_subcommand("models", "the fleet's models");
  models->require_subcommand(1);
  for (const auto add : {AddPut, AddList, AddCopy, AddMirror}) commands.push_back(add(models));
  commands.push_back(AddPlace(app));
  return commands;
}

int RunParsed(const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    // For all threads, so that those who wait for them get them.
    Signals signals;
    sigemptyset(&signals);
    if (command.waits_for_signals) {
      sigaddset(&signals, SIGINT);
      sigaddset(&signals, SIGTERM);
      pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    }
    return command.run(signals);
  }
  return atollserve::Fail(atollserve::kUsage, "give a command; see 'atoll fleet --help'");
}

}  // namespace

int main(int argc, char** argv) {
  // Files and sockets do not get the numbers of streams with which the program was not started.
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
  }
  std::signal(SIGPIPE, SIG_IGN);
  AtollSetLogCallback(LogToStderr, nullptr);

  CLI::App app("Workers, frames and jobs of many computers, over NATS.", "atoll-fleet");
  app.set_version_flag("--version", std::string("atoll-fleet ") + AtollVersion());
  // What all commands have.
  app.set_help_flag();
  app.set_help_all_flag("-h,--help", "all commands and their options");
  app.footer(kFooter);
  app.require_subcommand(1);
  const std::vector<Command> commands = AddCommands(&app);
  for (CLI::App* const one : app.get_subcommands({})) {
    one->set_help_all_flag();
    one->set_help_flag("-h,--help", "this");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return atollserve::Fail(atollserve::kUsage,
                            std::string(error.what()) + "; see 'atoll fleet --help'");
  }
  return RunParsed(commands);
}
