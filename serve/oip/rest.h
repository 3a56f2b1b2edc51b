// SPDX-License-Identifier: Apache-2.0
//
// Rest: the Open Inference Protocol, version 2, over HTTP, with Triton's extensions for binary
// tensors, classes, the model repository, statistics, configurations, schedules and system shared
// memory; Prometheus' metrics, and a page for browsers. docs/serving.md has all paths.
//
//   Rest rest(inference.get(), {});
//   auto server = HttpServer::Start(std::move(listeners), rest.ServerOptions(limits),
//   rest.Handler());
//
// It outlives the HttpServer, and the InferenceServer outlives it. Its end waits for the requests
// that it has handed on.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serve/access/access.h"
#include "serve/http/http_server.h"
#include "serve/inference/inference_server.h"
#include "serve/oip/shared_memory.h"
#include "serve/oip/worker.h"

namespace atollserve {

struct InferBody;
struct RestTarget;

struct RestOptions {
  std::string name = "atoll";  // of the server, in its metadata
  bool allow_shared_memory = false;
  AccessRule access;
  std::vector<ServedHosts> hosts;  // of each listener
  size_t body_bytes = 64 << 20;    // of a request to a model
  size_t model_bytes = 64 << 20;   // of a file that is uploaded
};

class Rest {
 public:
  Rest(InferenceServer* inference, RestOptions options);
  ~Rest();

  // For HttpServer::Start.
  HttpHandler Handler();
  HttpServerOptions ServerOptions(HttpLimits limits, std::shared_ptr<const TlsContext> tls);

  // Of clients on this computer, for other protocols, too.
  SharedMemory* memory() { return &memory_; }

  // An error in this protocol's form.
  static HttpAnswer Error(int status, const std::string& sentence);

 private:
  void Handle(HttpRequest request, const HttpResponder& responder);
  std::optional<HttpAnswer> Admit(const HttpRequest& head, size_t* body_bytes) const;
  HttpAnswer Answer(const RestTarget& target, HttpRequest* request);
  void Infer(const RestTarget& target, HttpRequest request, const HttpResponder& responder);
  void InferParsed(const RestTarget& target, const HttpRequest& request,
                   const std::shared_ptr<const std::string>& body, MonotonicTime came,
                   const HttpResponder& responder);
  // Puts what lies in shared memory into the inputs. kPermissionDenied: a tensor lies there and the
  // client may not share memory; kInvalidArgument and kNotFound: it does not lie there like that.
  atollrt::Status ReadRegions(const ModelInfo& model, InferBody* body, bool may_share) const;
  // What the client gets, outputs in shared memory written there.
  HttpAnswer Outcome(const InferBody& body, const ModelInfo& model, const InferOutcome& outcome);
  HttpAnswer Index(const HttpRequest& request) const;
  HttpAnswer Load(const RestTarget& target, const HttpRequest& request);
  HttpAnswer Memory(const RestTarget& target, const HttpRequest& request);

  InferenceServer* const inference_;
  const RestOptions options_;
  std::mutex mutex_;
  std::condition_variable ended_;
  int64_t under_way_ = 0;  // requests whose callbacks are still to be called
  SharedMemory memory_;
  Worker parser_;  // long requests and answers
  Worker loader_;  // models
};

}  // namespace atollserve
