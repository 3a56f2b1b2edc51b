// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/metrics.h"

#include <optional>
#include <utility>
#include <vector>

#include "serve/access/listener.h"
#include "serve/http/admission.h"
#include "serve/http/http_server.h"

namespace atollserve {
namespace {

using atollrt::Result;

constexpr const char* kNameOption = "--metrics-name";
constexpr const char* kTextType = "text/plain; version=0.0.4; charset=utf-8";
constexpr size_t kConnections = 32;  // of those who look

HttpAnswer Refusal(int status, const std::string& sentence) {
  return {.status = status, .content_type = "text/plain", .body = sentence + "\n"};
}

class HttpMetricsServer : public MetricsServer {
 public:
  HttpMetricsServer(AccessRule rule, ServedHosts hosts, std::function<std::string()> text)
      : rule_(std::move(rule)), hosts_{std::move(hosts)}, text_(std::move(text)) {}

  atollrt::Status Open(Listener listener, std::shared_ptr<const TlsContext> tls) {
    url_ = listener.is_unix ? listener.name : UrlOf(listener, tls != nullptr) + "metrics";
    HttpServerOptions options;
    options.limits.body_bytes = 0;
    options.limits.connections = kConnections;
    options.tls = std::move(tls);
    options.refusal = Refusal;
    options.admit = [this](const HttpRequest& head, size_t*) -> std::optional<HttpAnswer> {
      auto refusal = RefuseForeign(head, hosts_, kNameOption);
      if (!refusal) refusal = RefuseStranger(head, rule_);
      if (!refusal) return std::nullopt;
      HttpAnswer answer = Refusal(refusal->status, refusal->sentence);
      answer.headers = std::move(refusal->headers);
      return answer;
    };
    ATOLL_ASSIGN_OR_RETURN(http_, HttpServer::Start(std::move(listener), std::move(options),
                                                    [this](const HttpRequest& request,
                                                           const HttpResponder& responder) {
                                                      responder.Send(Answer(request));
                                                    }));
    return {};
  }

  std::string url() const override { return url_; }

 private:
  HttpAnswer Answer(const HttpRequest& request) const {
    if (request.path != "/metrics") return Refusal(404, "metrics are at /metrics");
    if (request.method != "GET" && request.method != "HEAD") {
      HttpAnswer answer = Refusal(405, "metrics can be read alone");
      answer.headers.emplace_back("Allow", "GET, HEAD");
      return answer;
    }
    return {.status = 200, .content_type = kTextType, .body = text_()};
  }

  const AccessRule rule_;
  const std::vector<ServedHosts> hosts_;
  const std::function<std::string()> text_;
  std::string url_;
  std::unique_ptr<HttpServer> http_;  // goes first
};

}  // namespace

Result<std::unique_ptr<MetricsServer>> MetricsServer::Start(MetricsOptions options,
                                                            std::function<std::string()> text) {
  ATOLL_ASSIGN_OR_RETURN(Access access, OpenAccess(options.access));
  const std::string where =
      options.listen.starts_with(':') ? "127.0.0.1" + options.listen : options.listen;
  ATOLL_ASSIGN_OR_RETURN(Listener listener, ListenAt(where));
  ATOLL_RETURN_IF_ERROR(
      CheckListener({.where = listener.name, .local = listener.local, .tls = access.tls != nullptr},
                    access.rule));
  ServedHosts hosts = HostsOf(listener.address, listener.local, access.rule.names);
  auto server = std::make_unique<HttpMetricsServer>(std::move(access.rule), std::move(hosts),
                                                    std::move(text));
  ATOLL_RETURN_IF_ERROR(server->Open(std::move(listener), std::move(access.tls)));
  return std::unique_ptr<MetricsServer>(std::move(server));
}

}  // namespace atollserve
