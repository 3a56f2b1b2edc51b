// SPDX-License-Identifier: Apache-2.0
//
// What libatoll finds in libatoll-grpc.so (driver/network_module.h).
#include <netdb.h>

#include <string>
#include <vector>

#include "driver/network_module.h"
#include "serve/dns_sd/dns_sd.h"
#include "serve/network/network_chip.h"

namespace {

// Whether this computer's resolver finds a name: those in .local take a plug-in of it.
bool IsKnown(const std::string& host) {
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

atollrt::Result<std::vector<atollrt::NetworkHost>> BrowseHosts(atollrt::Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(const auto services, atollserve::Browse(deadline));
  std::vector<atollrt::NetworkHost> hosts;
  for (const atollserve::AnnouncedService& service : services) {
    const std::string& where = IsKnown(service.host) ? service.host : service.address;
    hosts.push_back({.address = where + ":" + std::to_string(service.port),
                     .description = service.description});
  }
  return hosts;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const atollrt::NetworkModule*
AtollNetworkModule() {
  static const atollrt::NetworkModule module = {.interface = atollrt::kNetworkInterface,
                                                .version = ATOLL_VERSION_STRING,
                                                .open = atollserve::NetworkChip::Open,
                                                .browse = BrowseHosts};
  return &module;
}
