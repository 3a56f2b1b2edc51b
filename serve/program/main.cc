// SPDX-License-Identifier: Apache-2.0
//
// atoll-serve: models for clients on the network (docs/serving.md).
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/runtime.h"
#include "serve/access/access.h"
#include "serve/dns_sd/dns_sd.h"
#include "serve/grpc/grpc_server.h"
#include "serve/http/http_server.h"
#include "serve/inference/inference_server.h"
#include "serve/inference/model_files.h"
#include "serve/oip/rest.h"
#include "serve/program/frigate.h"

namespace {

using atollserve::AccessRule;
using atollserve::FrigateFront;
using atollserve::GrpcServer;
using atollserve::HttpLimits;
using atollserve::HttpServer;
using atollserve::InferenceServer;
using atollserve::InferenceServerOptions;
using atollserve::Listener;
using atollserve::RestOptions;
using atollserve::TlsFiles;
using std::chrono::milliseconds;

constexpr const char* kGrpcAddress = "127.0.0.1:8001";
constexpr const char* kTokenVariable = "ATOLL_SERVE_TOKEN";

// As those of the `atoll` command.
enum ExitCode { kOk = 0, kFailure = 1, kUsage = 2, kNoDevice = 3 };

constexpr const char* kFooter =
    R"(Clients speak the Open Inference Protocol, version 2, over HTTP, as those of Triton and KServe do;
http://127.0.0.1:8000/ in a browser shows what is served and tries it. docs/serving.md has all paths.

What only this computer reaches is open to whoever is on it. Any other address needs --tls-cert and
--tls-key, and a token (--token-file, or the environment variable ATOLL_SERVE_TOKEN) or --client-ca;
--insecure does without.

Frigate's detectors, --zmq and --deepstack, have the device by themselves (docs/frigate.md); beside
--models a real one needs 'atoll broker', which shares it.

Examples:
  atoll-serve --models models
  atoll-serve --zmq ipc:///tmp/cache/zmq_detector
  atoll-serve --deepstack 127.0.0.1:32168 --detector coco=model.tflite,labels.txt
  atoll-serve --model fashion=fashion_int8.tflite --device emu
  atoll-serve --share-device --device usb
  curl --data-binary @picture.raw -H 'Inference-Header-Content-Length: 0' \
       http://127.0.0.1:8000/v2/models/fashion/infer --output answer
  atoll-serve --models models --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem \
              --token-file token
)";

struct Options {
  std::vector<std::string> listen = {"127.0.0.1:8000"};
  std::string grpc = kGrpcAddress;
  std::string models;
  std::vector<std::string> model;
  std::string device = "auto";
  int threads = 0;
  int instances = 1;
  std::string control = "none";
  bool share_device = false;
  bool announce = false;
  bool allow_shared_memory = false;
  size_t max_body = 64 << 20;
  size_t max_model_bytes = 64 << 20;
  size_t max_models = 64;
  size_t max_executables = 64;
  size_t max_queue = 64;
  size_t max_connections = 1000;
  int idle_timeout_s = 60;
  int drain_timeout_s = 30;
  std::string name = "atoll";
  std::string token_file;
  TlsFiles tls;
  bool insecure = false;
  std::vector<std::string> serve_name;
  atollserve::FrigateOptions frigate;
};

ExitCode Fail(ExitCode code, const std::string& sentence) {
  std::fprintf(stderr, "atoll-serve: %s.\n", sentence.c_str());
  return code;
}

void LogToStderr(AtollLogSeverity severity, const char* message, void*) {
  if (severity >= ATOLL_LOG_WARNING) std::fprintf(stderr, "atoll-serve: note: %s\n", message);
}

// What is served.
void AddModelOptions(CLI::App* app, Options* options) {
  app->add_option("--models", options->models,
                  "folder of models: NAME/VERSION/model.tflite, with labels.txt and config.json "
                  "beside the versions");
  app->add_option("--model", options->model, "NAME=FILE: one model of a file; repeatable")
      ->allow_extra_args(false);
  app->add_option("--device", options->device, "as of 'atoll run --device'")->capture_default_str();
  app->add_option("--threads", options->threads,
                  "host threads of each interpreter; 0: as the machine suggests")
      ->check(CLI::Range(0, 256))
      ->capture_default_str();
  app->add_option("--instances", options->instances,
                  "interpreters of each model, which run requests side by side")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
}

// Where, and what clients may do.
void AddDoorOptions(CLI::App* app, Options* options) {
  app->add_option("--listen", options->listen,
                  "ADDRESS:PORT or unix:PATH; port 0 is any that is free; repeatable")
      ->allow_extra_args(false)
      ->capture_default_str();
  app->add_option("--grpc", options->grpc,
                  "where gRPC is served, ADDRESS:PORT or unix:PATH; none: nowhere")
      ->capture_default_str();
  app->add_option("--model-control", options->control,
                  "explicit: clients may load, unload and upload models; none: they may not")
      ->check(CLI::IsMember({"none", "explicit"}))
      ->capture_default_str();
  app->add_flag("--share-device", options->share_device,
                "programs on other computers may use the device, over gRPC: --device grpc://HOST "
                "there");
  app->add_flag("--announce", options->announce,
                "tell the local network where gRPC is, by Avahi; --device grpc:// finds it");
  app->add_flag("--allow-shared-memory", options->allow_shared_memory,
                "clients on this computer may pass tensors in POSIX shared memory");
}

// How much of it, and for how long.
void AddLimitOptions(CLI::App* app, Options* options) {
  app->add_option("--max-body", options->max_body, "bytes of a request to a model, at most")
      ->check(CLI::Range(size_t{1} << 10, size_t{1} << 30))
      ->capture_default_str();
  app->add_option("--max-model-bytes", options->max_model_bytes, "of an uploaded file, at most")
      ->check(CLI::Range(size_t{1} << 10, size_t{1} << 30))
      ->capture_default_str();
  app->add_option("--max-models", options->max_models, "loaded at a time")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app->add_option("--max-executables", options->max_executables,
                  "of programs that share the device, kept at a time; the least used makes room")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app->add_option("--max-queue", options->max_queue, "requests that wait for a model, at most")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app->add_option("--max-connections", options->max_connections, "open at a time")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  app->add_option("--idle-timeout", options->idle_timeout_s,
                  "seconds for which a connection may do nothing")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  app->add_option("--drain-timeout", options->drain_timeout_s,
                  "seconds for the requests that are under way when it is stopped")
      ->check(CLI::Range(0, 86'400))
      ->capture_default_str();
}

// Who the server is, and who may come in.
void AddAccessOptions(CLI::App* app, Options* options) {
  app->add_option("--name", options->name, "what the server says that it is")
      ->capture_default_str();
  app->add_option("--token-file", options->token_file,
                  "file with the token that clients must have");
  app->add_option("--tls-cert", options->tls.certificate, "PEM file with the server's certificate");
  app->add_option("--tls-key", options->tls.key, "PEM file with its key");
  app->add_option("--client-ca", options->tls.client_ca,
                  "PEM file of who signs clients' certificates, which are as good as a token");
  app->add_flag("--insecure", options->insecure, "let everybody in who reaches the address");
  app->add_option("--serve-name", options->serve_name,
                  "a name by which browsers may call the server; repeatable")
      ->allow_extra_args(false);
}

void AddFrigateOptions(CLI::App* app, atollserve::FrigateOptions* options) {
  app->add_option("--zmq", options->zmq,
                  "ipc://PATH or tcp://ADDRESS:PORT: a detector for Frigate's type zmq; repeatable")
      ->allow_extra_args(false);
  app->add_option("--zmq-model", options->zmq_model,
                  "file of the model for clients that neither ask for one nor send it");
  app->add_option("--zmq-folder", options->zmq_folder,
                  "of models that clients send; else below $STATE_DIRECTORY, $XDG_CACHE_HOME or "
                  "~/.cache");
  app->add_option("--zmq-key", options->zmq_key,
                  "file with the server's secret key for CURVE: clients of tcp:// need a key then");
  app->add_option("--zmq-clients", options->zmq_clients, "file with their public keys, one a line");
  app->add_option(
         "--deepstack", options->deepstack,
         "ADDRESS:PORT or unix:PATH: the interface of DeepStack, CodeProject.AI and DOODS; "
         "repeatable")
      ->allow_extra_args(false);
  app->add_option("--detector", options->detectors,
                  "NAME=FILE[,LABELS]: a model for --deepstack; the first is for clients that name "
                  "none; repeatable")
      ->allow_extra_args(false);
}

// As many descriptors as connections may need.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

ExitCode ExitCodeOf(const atollrt::Status& status) {
  switch (status.code()) {
    case atollrt::StatusCode::kNotFound:
    case atollrt::StatusCode::kDeviceBusy:
    case atollrt::StatusCode::kDeviceLost:
      return kNoDevice;
    default:
      return kFailure;
  }
}

// The contents of a file; "" for no file.
std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

atollrt::Result<std::unique_ptr<GrpcServer>> StartGrpc(const Options& options,
                                                       const AccessRule& access,
                                                       atollserve::SharedMemory* memory,
                                                       InferenceServer* inference) {
  atollserve::GrpcServerOptions grpc;
  grpc.listen = options.grpc;
  grpc.message_bytes = std::max(options.max_body, options.max_model_bytes) + (size_t{1} << 20);
  if (options.allow_shared_memory) grpc.memory = memory;
  grpc.name = options.name;
  grpc.version = AtollVersion();
  if (!options.tls.certificate.empty() && !options.grpc.starts_with("unix:")) {
    grpc.certificate = TextOf(options.tls.certificate);
    grpc.key = TextOf(options.tls.key);
    grpc.client_ca = TextOf(options.tls.client_ca);
    grpc.client_certificate_required = access.client_certificates && access.token.empty();
  }
  grpc.admit = [access](const atollserve::GrpcCall& call) -> atollrt::Status {
    if (access.token.empty() || call.is_unix || !call.certificate.empty()) return {};
    if (atollserve::HasToken(call.authorization, access.token)) return {};
    return {atollrt::StatusCode::kPermissionDenied,
            "this needs the server's token: authorization: Bearer TOKEN"};
  };
  return GrpcServer::Start(std::move(grpc), inference);
}

// Tells the local network where gRPC is.
atollrt::Result<std::unique_ptr<atollserve::Announcement>> Publish(const Options& options,
                                                                   const GrpcServer* grpc,
                                                                   const std::string& description) {
  if (grpc == nullptr || grpc->port() == 0 || atollserve::IsLocalGrpcAddress(options.grpc)) {
    return atollrt::InvalidArgument(
        "--announce is of a --grpc address that other computers reach, as --grpc 0.0.0.0:8001");
  }
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  return atollserve::Announcement::Publish(std::string("Atoll on ") + host,
                                           static_cast<uint16_t>(grpc->port()), description);
}

bool ServesModels(const Options& options) {
  return !options.models.empty() || !options.model.empty() || options.control != "none" ||
         options.share_device;
}

// kInvalidArgument: --model is not NAME=FILE.
atollrt::Result<InferenceServerOptions> InferenceOptionsOf(const Options& options) {
  InferenceServerOptions inference;
  inference.device = options.device;
  inference.threads = options.threads;
  inference.instances = options.instances;
  inference.model_folder = options.models;
  for (const std::string& model : options.model) {
    auto named = atollserve::ParseNamedFile(model);
    if (!named.has_value()) {
      return atollrt::InvalidArgument("--model '%s' is not NAME=FILE; see 'atoll-serve --help'",
                                      model.c_str());
    }
    inference.models.push_back(*std::move(named));
  }
  inference.control = options.control == "explicit" ? atollserve::ModelControl::kExplicit
                                                    : atollserve::ModelControl::kNone;
  inference.share_device = options.share_device;
  inference.limits.models = options.max_models;
  inference.limits.model_bytes = options.max_model_bytes;
  inference.limits.executables = options.max_executables;
  inference.limits.queue = options.max_queue;
  return inference;
}

// Returns when it is asked to stop.
void AwaitSignal(const sigset_t& signals) {
  std::printf("Ctrl-C stops it\n");
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  // A second one ends it at once.
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

// All that serves. What begins something returns kOk, or has said why it cannot.
class Service {
 public:
  explicit Service(const Options& options) : options_(options) {}

  ExitCode Run(const sigset_t& signals) {
    auto inference = InferenceOptionsOf(options_);
    if (!inference.ok()) return Fail(kUsage, inference.status().message());
    const bool serves_models = ServesModels(options_);
    if (!serves_models && !options_.frigate.wanted()) {
      return Fail(
          kUsage,
          "there is nothing to serve; give --models FOLDER, --model NAME=FILE, --share-device, "
          "--zmq ENDPOINT or --deepstack ADDRESS:PORT");
    }
    auto opened = atollserve::OpenAccess({.token_file = options_.token_file,
                                          .token_variable = kTokenVariable,
                                          .tls = options_.tls,
                                          .insecure = options_.insecure,
                                          .names = options_.serve_name});
    if (!opened.ok()) return Fail(kUsage, opened.status().message());
    access_ = *std::move(opened);
    if (const ExitCode code = BeginFrigate(); code != kOk) return code;
    if (serves_models) {
      if (const ExitCode code = BeginModels(*std::move(inference)); code != kOk) return code;
    }
    AwaitSignal(signals);
    Drain();
    return kOk;
  }

 private:
  ExitCode BeginFrigate() {
    if (!options_.frigate.wanted()) return kOk;
    auto started =
        FrigateFront::Start(options_.frigate, options_.device, options_.threads, access_);
    if (!started.ok()) {
      const bool usage = started.code() == atollrt::StatusCode::kInvalidArgument ||
                         started.code() == atollrt::StatusCode::kPermissionDenied;
      return Fail(usage ? kUsage : ExitCodeOf(started.status()), started.status().message());
    }
    frigate_ = *std::move(started);
    return kOk;
  }

  // Takes the addresses before the models are loaded, which may take a while.
  ExitCode BeginModels(InferenceServerOptions inference_options) {
    std::vector<Listener> listeners;
    RestOptions rest_options;
    if (const ExitCode code = Listen(&listeners, &rest_options); code != kOk) return code;
    auto inference = InferenceServer::Create(std::move(inference_options));
    if (!inference.ok()) {
      return Fail(ExitCodeOf(inference.status()), inference.status().message());
    }
    inference_ = *std::move(inference);
    for (const auto& entry : inference_->Index()) {
      if (entry.state == atollserve::ModelState::kReady) continue;
      std::fprintf(stderr, "atoll-serve: note: model '%s' is not served: %s\n", entry.name.c_str(),
                   entry.reason.c_str());
    }
    rest_ = std::make_unique<atollserve::Rest>(inference_.get(), std::move(rest_options));
    HttpLimits limits;
    limits.connections = options_.max_connections;
    limits.idle_timeout = std::chrono::seconds(options_.idle_timeout_s);
    auto http = HttpServer::Start(std::move(listeners), rest_->ServerOptions(limits, access_.tls),
                                  rest_->Handler());
    if (!http.ok()) return Fail(kFailure, http.status().message());
    http_ = *std::move(http);
    if (const ExitCode code = BeginGrpc(); code != kOk) return code;
    return Announce();
  }

  ExitCode Listen(std::vector<Listener>* listeners, RestOptions* rest) const {
    const bool has_tls = access_.tls != nullptr;
    for (const std::string& where : options_.listen) {
      auto listener = atollserve::ListenAt(where);
      if (!listener.ok()) return Fail(kUsage, listener.status().message());
      const atollserve::ListenerFacts facts = {
          .where = listener->name, .local = listener->local, .tls = has_tls};
      if (const auto status = CheckListener(facts, access_.rule); !status.ok()) {
        return Fail(kUsage, status.message());
      }
      rest->hosts.push_back(
          atollserve::HostsOf(listener->address, listener->local, options_.serve_name));
      listeners->push_back(*std::move(listener));
    }
    if (options_.share_device && options_.grpc == "none") {
      return Fail(kUsage, "--share-device is by gRPC, which --grpc none turns off");
    }
    if (options_.grpc != "none") {
      const atollserve::ListenerFacts facts = {
          .where = options_.grpc,
          .local = atollserve::IsLocalGrpcAddress(options_.grpc),
          .tls = has_tls};
      if (const auto status = CheckListener(facts, access_.rule); !status.ok()) {
        return Fail(kUsage, status.message());
      }
    }
    rest->access = access_.rule;
    rest->name = options_.name;
    rest->allow_shared_memory = options_.allow_shared_memory;
    rest->body_bytes = options_.max_body;
    rest->model_bytes = options_.max_model_bytes;
    return kOk;
  }

  ExitCode BeginGrpc() {
    if (options_.grpc == "none") return kOk;
    auto started = StartGrpc(options_, access_.rule, rest_->memory(), inference_.get());
    if (started.ok()) {
      grpc_ = *std::move(started);
      return kOk;
    }
    // What nobody asked for may be missing, and another server may have its place.
    if (options_.grpc != kGrpcAddress || options_.share_device) {
      return Fail(kFailure, started.status().message());
    }
    if (started.code() != atollrt::StatusCode::kUnsupported) {
      std::fprintf(stderr,
                   "atoll-serve: note: without gRPC: %s; --grpc ADDRESS:PORT chooses another\n",
                   started.status().message().c_str());
    }
    return kOk;
  }

  // Says on stdout where models are served, and tells the local network if it is wanted.
  ExitCode Announce() {
    const AtollDeviceInfo device = inference_->device();
    for (const Listener& listener : http_->listeners()) {
      std::printf("%s at %s\n", device.description,
                  UrlOf(listener, access_.tls != nullptr).c_str());
    }
    if (grpc_ != nullptr) {
      const std::string where = grpc_->port() == 0
                                    ? options_.grpc
                                    : options_.grpc.substr(0, options_.grpc.rfind(':') + 1) +
                                          std::to_string(grpc_->port());
      std::printf("gRPC at %s%s\n", where.c_str(),
                  options_.share_device ? ", which shares the device" : "");
    }
    if (!options_.announce) return kOk;
    auto published = Publish(options_, grpc_.get(), device.description);
    if (!published.ok()) return Fail(kFailure, published.status().message());
    announcement_ = *std::move(published);
    return kOk;
  }

  // All together have as long as the options say.
  void Drain() {
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::seconds(options_.drain_timeout_s);
    const auto left = [&] {
      return std::max(
          std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now()),
          milliseconds(0));
    };
    if (http_ != nullptr) http_->Drain(left());
    if (grpc_ != nullptr) grpc_->Drain(left());
    if (inference_ != nullptr) inference_->Drain(left());
    if (frigate_ != nullptr) frigate_->Drain(left());
  }

  const Options& options_;
  atollserve::Access access_;
  std::unique_ptr<FrigateFront> frigate_;
  std::unique_ptr<InferenceServer> inference_;
  std::unique_ptr<atollserve::Rest> rest_;
  std::unique_ptr<atollserve::Announcement> announcement_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<GrpcServer> grpc_;
};

}  // namespace

int main(int argc, char** argv) {
  // Files and sockets do not get the numbers of streams with which the program was not started.
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
  }
  // For all threads, so that sigwait gets them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  AtollSetLogCallback(LogToStderr, nullptr);
  RaiseDescriptorLimit();

  Options options;
  CLI::App app("Serves models to clients over HTTP, on an accelerator that they share.",
               "atoll-serve");
  app.set_version_flag("--version", std::string("atoll-serve ") + AtollVersion());
  app.footer(kFooter);
  AddModelOptions(&app, &options);
  AddDoorOptions(&app, &options);
  AddLimitOptions(&app, &options);
  AddAccessOptions(&app, &options);
  AddFrigateOptions(&app, &options.frigate);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return Fail(kUsage, std::string(error.what()) + "; see 'atoll-serve --help'");
  }
  return Service(options).Run(signals);
}
