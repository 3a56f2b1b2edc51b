// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/discovery.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "serve/dns_sd/dns_sd.h"

namespace atollserve {
namespace {

using atollrt::Clock;
using atollrt::InvalidArgument;
using atollrt::Result;

constexpr auto kBrowseTime = std::chrono::seconds(2);
constexpr auto kLookAgain = std::chrono::milliseconds(250);

bool HasNoHost(const std::string& server) { return server == "nats://" || server == "tls://"; }

bool IsTls(const ConnectionOptions& options) {
  return options.servers[0] == "tls://" || !options.tls_ca.empty();
}

}  // namespace

bool AreToBeFound(const std::vector<std::string>& servers) {
  return std::any_of(servers.begin(), servers.end(), HasNoHost);
}

Result<std::vector<std::string>> ChooseServers(const ConnectionOptions& options,
                                               const std::vector<std::string>& found) {
  if (options.servers.size() > 1) {
    return InvalidArgument("--nats nats:// and --nats tls:// look for servers; give no others");
  }
  const bool is_tls = IsTls(options);
  if (is_tls && options.tls_host.empty()) {
    return InvalidArgument(
        "anybody may announce a server; say with --tls-host which name has to be in the "
        "certificate of the one that is looked for");
  }
  std::vector<std::string> servers;
  std::string list;
  for (const std::string& where : found) {
    servers.push_back((is_tls ? "tls://" : "nats://") + where);
    list += (list.empty() ? "" : ", ") + servers.back();
  }
  if (!is_tls && servers.size() > 1) {
    return InvalidArgument("there are several servers; choose one: %s", list.c_str());
  }
  return servers;
}

Result<std::vector<std::string>> FindServers(const ConnectionOptions& options) {
  const auto until = Clock::now() + std::chrono::milliseconds(options.connect_timeout_ms);
  // What does not go together is said before anybody looks.
  ATOLL_RETURN_IF_ERROR(ChooseServers(options, {}).status());
  while (true) {
    ATOLL_ASSIGN_OR_RETURN(const std::vector<AnnouncedService> services,
                           Browse(kNatsService, Clock::now() + kBrowseTime));
    if (!services.empty()) {
      std::vector<std::string> found;
      for (const AnnouncedService& service : services) found.push_back(service.where);
      return ChooseServers(options, found);
    }
    if (Clock::now() >= until) {
      return atollrt::NotFound(
          "no server of NATS is announced in this network; name one: --nats tls://HOST:PORT");
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

}  // namespace atollserve
