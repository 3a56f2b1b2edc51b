// SPDX-License-Identifier: Apache-2.0
#include "serve/program/frigate.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "atoll/atoll.hpp"
#include "serve/frigate/deepstack_server.h"
#include "serve/frigate/zmq_server.h"

namespace atollserve {
namespace {

using atollrt::InvalidArgument;
using atollrt::Result;
using atollrt::Status;

constexpr int kPlaces = 2;  // of each model
constexpr size_t kMaxLabelBytes = size_t{1} << 20;

// What systemd made for the service, or a folder of the user's; "": there is neither.
std::string DefaultZmqFolder() {
  const auto below = [](const char* variable, const char* folder) {
    const char* const value = std::getenv(variable);
    return value == nullptr || *value != '/' ? std::string() : std::string(value) + folder;
  };
  for (const auto& [variable, folder] :
       {std::pair("STATE_DIRECTORY", "/frigate"), std::pair("XDG_CACHE_HOME", "/atoll/frigate"),
        std::pair("HOME", "/.cache/atoll/frigate")}) {
    std::string path = below(variable, folder);
    if (!path.empty()) return path;
  }
  return {};
}

void Say(const std::string& line) { std::fprintf(stderr, "atoll-serve: note: %s\n", line.c_str()); }

Result<std::vector<std::string>> ReadLabels(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (file) {
    text.resize(kMaxLabelBytes + 1);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
  }
  if (text.empty() || text.size() > kMaxLabelBytes) {
    return InvalidArgument("--detector: '%s' is no file of labels of at most 1 MiB", path.c_str());
  }
  return atollrt::ParseClassNames(text);
}

Result<atollrt::NamedDetector> LoadDetector(const std::string& text,
                                            const atollpp::Delegate& device) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    return InvalidArgument("--detector '%s' is not NAME=FILE[,LABELS]", text.c_str());
  }
  atollrt::NamedDetector detector;
  detector.name = text.substr(0, equals);
  std::string file = text.substr(equals + 1);
  std::string labels;
  if (const size_t comma = file.rfind(','); comma != std::string::npos) {
    labels = file.substr(comma + 1);
    file.resize(comma);
  } else {
    // As those of --model: beside the file, if they are there.
    const auto beside = std::filesystem::path(file).parent_path() / (detector.name + ".txt");
    std::error_code error;
    if (std::filesystem::exists(beside, error)) labels = beside.string();
  }
  auto loaded = atollrt::ObjectDetector::Load(file, device, kPlaces);
  if (!loaded.ok()) return std::move(loaded).status().WithContext("--detector '" + file + "'");
  detector.detector = *std::move(loaded);
  if (!labels.empty()) {
    ATOLL_ASSIGN_OR_RETURN(detector.labels, ReadLabels(labels));
  }
  return detector;
}

class Front : public FrigateFront {
 public:
  Status StartZmq(const FrigateOptions& options, const atollpp::Delegate& device, bool insecure) {
    atollrt::ZmqServerOptions zmq;
    zmq.endpoints = options.zmq;
    zmq.exposure = insecure ? atollrt::ZmqExposure::kAnyAddress : atollrt::ZmqExposure::kLocalOnly;
    if (!options.zmq_key.empty()) {
      ATOLL_ASSIGN_OR_RETURN(zmq.keys,
                             atollrt::ReadCurveKeys(options.zmq_key, options.zmq_clients));
    }
    zmq.device = device;
    zmq.default_model = options.zmq_model;
    zmq.places = kPlaces;
    zmq.log = Say;
    zmq.folder = options.zmq_folder.empty() ? DefaultZmqFolder() : options.zmq_folder;
    if (!zmq.folder.empty()) {
      std::error_code error;
      std::filesystem::create_directories(std::filesystem::path(zmq.folder).parent_path(), error);
    }
    ATOLL_ASSIGN_OR_RETURN(zmq_, atollrt::ZmqServer::Start(std::move(zmq)));
    for (const std::string& endpoint : zmq_->endpoints()) {
      std::printf("Frigate's zmq at %s\n", endpoint.c_str());
    }
    return Status();
  }

  Status StartDeepstack(const FrigateOptions& options, const atollpp::Delegate& device,
                        const Access& access) {
    atollrt::DeepstackServerOptions deepstack;
    const bool has_tls = access.tls != nullptr;
    for (const std::string& where : options.deepstack) {
      ATOLL_ASSIGN_OR_RETURN(Listener listener, ListenAt(where));
      const ListenerFacts facts = {.where = listener.name, .local = listener.local, .tls = has_tls};
      ATOLL_RETURN_IF_ERROR(CheckListener(facts, access.rule));
      deepstack.hosts.push_back(HostsOf(listener.address, listener.local, access.rule.names));
      deepstack.listeners.push_back(std::move(listener));
    }
    for (const std::string& text : options.detectors) {
      ATOLL_ASSIGN_OR_RETURN(atollrt::NamedDetector detector, LoadDetector(text, device));
      deepstack.service.models.push_back(std::move(detector));
    }
    deepstack.access = access;
    deepstack.threads = kPlaces;
    ATOLL_ASSIGN_OR_RETURN(deepstack_, atollrt::DeepstackServer::Start(std::move(deepstack)));
    for (const Listener& listener : deepstack_->listeners()) {
      std::printf("DeepStack's interface at %s\n", UrlOf(listener, has_tls).c_str());
    }
    return Status();
  }

  void Drain(std::chrono::milliseconds timeout) override {
    if (deepstack_ != nullptr) deepstack_->Drain(timeout);
  }

 private:
  std::unique_ptr<atollrt::ZmqServer> zmq_;
  std::unique_ptr<atollrt::DeepstackServer> deepstack_;
};

}  // namespace

Result<std::unique_ptr<FrigateFront>> FrigateFront::Start(const FrigateOptions& options,
                                                          const std::string& device, int threads,
                                                          const Access& access) {
  if (options.deepstack.empty() != options.detectors.empty()) {
    return InvalidArgument("--deepstack and --detector NAME=FILE go together");
  }
  if (options.zmq.empty() && !(options.zmq_model.empty() && options.zmq_folder.empty())) {
    return InvalidArgument("--zmq-model and --zmq-folder are for --zmq ENDPOINT; name one");
  }
  if (options.zmq_key.empty() != options.zmq_clients.empty() ||
      (options.zmq.empty() && !options.zmq_key.empty())) {
    return InvalidArgument("--zmq-key and --zmq-clients go together, and with --zmq ENDPOINT");
  }
  atollpp::Delegate opened;  // the CPU
  if (device != "cpu") {
    AtollDelegateOptions how = ATOLL_DELEGATE_OPTIONS_INIT;
    how.device = device.c_str();
    how.num_threads = threads;
    atollpp::Result<atollpp::Delegate> delegate = atollpp::Delegate::Open(how);
    if (!delegate) {
      return Status(static_cast<atollrt::StatusCode>(delegate.code()), delegate.message());
    }
    opened = *delegate;
  }
  auto front = std::make_unique<Front>();
  if (!options.zmq.empty()) {
    ATOLL_RETURN_IF_ERROR(front->StartZmq(options, opened, access.rule.insecure));
  }
  if (!options.deepstack.empty()) {
    ATOLL_RETURN_IF_ERROR(front->StartDeepstack(options, opened, access));
  }
  return std::unique_ptr<FrigateFront>(std::move(front));
}

}  // namespace atollserve
