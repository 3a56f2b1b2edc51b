// SPDX-License-Identifier: Apache-2.0
#include "serve/http/admission.h"

namespace atollserve {

std::optional<HttpRefusal> RefuseForeign(const HttpRequest& head,
                                         const std::vector<ServedHosts>& hosts,
                                         const char* name_option) {
  if (head.peer.uid || head.peer.listener >= hosts.size()) return std::nullopt;
  const std::string_view host = head.Header("host");
  if (!host.empty() && !IsServedHost(host, hosts[head.peer.listener])) {
    return HttpRefusal{.status = 421,
                       .sentence = "this server is not called '" +
                                   std::string(host.substr(0, 100)) + "'; " + name_option +
                                   " gives it a name"};
  }
  const BrowserHeaders browser = {.host = host,
                                  .origin = head.Header("origin"),
                                  .fetch_site = head.Header("sec-fetch-site"),
                                  .fetch_mode = head.Header("sec-fetch-mode"),
                                  .fetch_dest = head.Header("sec-fetch-dest")};
  if (IsForeign(browser, head.peer.tls ? "https" : "http")) {
    return HttpRefusal{.status = 403, .sentence = "pages of others may not use this server"};
  }
  return std::nullopt;
}

std::optional<HttpRefusal> RefuseStranger(const HttpRequest& head, const AccessRule& rule) {
  if (rule.token.empty() || head.peer.uid || !head.peer.certificate.empty() ||
      HasToken(head.Header("authorization"), rule.token)) {
    return std::nullopt;
  }
  return HttpRefusal{.status = 401,
                     .sentence = "this needs the server's token: Authorization: Bearer TOKEN",
                     .headers = {{"WWW-Authenticate", "Bearer"}}};
}

}  // namespace atollserve
