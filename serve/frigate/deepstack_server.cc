// SPDX-License-Identifier: Apache-2.0
#include "serve/frigate/deepstack_server.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "serve/frigate/work_queue.h"
#include "serve/http/admission.h"

namespace atollrt {
namespace {

using atollserve::HttpAnswer;
using atollserve::HttpRequest;
using atollserve::HttpResponder;

HttpAnswer Refusal(int status, const std::string& sentence) {
  HttpAnswer answer;
  answer.status = status;
  answer.body = nlohmann::json({{"success", false}, {"error", sentence}, {"code", status}})
                    .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return answer;
}

class Server : public DeepstackServer {
 public:
  Server(DeepstackServerOptions options, DeepstackService service)
      : access_(options.access),
        hosts_(std::move(options.hosts)),
        waiting_(options.waiting),
        service_(std::move(service)) {}
  ~Server() override {
    http_.reset();
    work_.Close();
    for (std::thread& thread : threads_) thread.join();
  }

  Status Open(std::vector<atollserve::Listener> listeners, atollserve::HttpLimits limits,
              int threads) {
    atollserve::HttpServerOptions options;
    limits.body_bytes = DeepstackService::kMaxBodyBytes;
    options.limits = limits;
    options.tls = access_.tls;
    options.admit = [this](const HttpRequest& head, size_t*) { return Admit(head); };
    options.refusal = Refusal;
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
    ATOLL_ASSIGN_OR_RETURN(
        http_, atollserve::HttpServer::Start(
                   std::move(listeners), std::move(options),
                   [this](HttpRequest request, HttpResponder responder) {
                     if (!work_.PushUnlessFull({std::move(request), responder}, waiting_)) {
                       HttpAnswer answer = Refusal(503, "too many requests wait already");
                       answer.headers.emplace_back("Retry-After", "1");
                       responder.Send(std::move(answer));
                     }
                   }));
    return Status();
  }

  const std::vector<atollserve::Listener>& listeners() const override { return http_->listeners(); }
  void Drain(std::chrono::milliseconds timeout) override { http_->Drain(timeout); }

 private:
  struct Question {
    HttpRequest request;
    HttpResponder responder;
  };

  std::optional<HttpAnswer> Admit(const HttpRequest& head) const {
    if (!DeepstackService::Serves(head.path)) return Refusal(404, "there is nothing at this path");
    if (const auto refusal = atollserve::RefuseForeign(head, hosts_, "--serve-name")) {
      return Refusal(refusal->status, refusal->sentence);
    }
    return std::nullopt;
  }

  void Work() {
    while (std::optional<Question> question = work_.Pop()) {
      if (question->responder.gone()) continue;
      const HttpRequest& request = question->request;
      VisionRequest asked;
      asked.method = request.method;
      asked.path = request.path;
      asked.content_type = request.Header("content-type");
      asked.body = request.body;
      asked.authorized =
          request.peer.uid.has_value() || !request.peer.certificate.empty() ||
          (!access_.rule.token.empty() &&
           atollserve::HasToken(request.Header("authorization"), access_.rule.token));
      VisionAnswer answer = service_.Answer(asked);
      HttpAnswer sent;
      sent.status = answer.status;
      sent.body = std::move(answer.body);
      question->responder.Send(std::move(sent));
    }
  }

  const atollserve::Access access_;
  const std::vector<atollserve::ServedHosts> hosts_;
  const size_t waiting_;
  const DeepstackService service_;
  WorkQueue<Question> work_;
  std::vector<std::thread> threads_;
  std::unique_ptr<atollserve::HttpServer> http_;
};

}  // namespace

Result<std::unique_ptr<DeepstackServer>> DeepstackServer::Start(DeepstackServerOptions options) {
  if (options.threads < 1 || options.threads > 64) {
    return InvalidArgument("%d threads are not 1 to 64", options.threads);
  }
  options.service.api_key = options.access.rule.token;
  ATOLL_ASSIGN_OR_RETURN(DeepstackService service,
                         DeepstackService::Create(std::move(options.service)));
  std::vector<atollserve::Listener> listeners = std::move(options.listeners);
  const atollserve::HttpLimits limits = options.limits;
  const int threads = options.threads;
  auto server = std::make_unique<Server>(std::move(options), std::move(service));
  ATOLL_RETURN_IF_ERROR(server->Open(std::move(listeners), limits, threads));
  return std::unique_ptr<DeepstackServer>(std::move(server));
}

}  // namespace atollrt
