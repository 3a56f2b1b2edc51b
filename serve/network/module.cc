// SPDX-License-Identifier: Apache-2.0
//
// What libatoll finds in libatoll-grpc.so (driver/network_module.h).
#include <string>
#include <vector>

#include "driver/network_module.h"
#include "serve/dns_sd/dns_sd.h"
#include "serve/network/network_chip.h"

namespace {

atollrt::Result<std::vector<atollrt::NetworkHost>> BrowseHosts(atollrt::Deadline deadline) {
  ATOLL_ASSIGN_OR_RETURN(const auto services,
                         atollserve::Browse(atollserve::kDeviceService, deadline));
  std::vector<atollrt::NetworkHost> hosts;
  for (const atollserve::AnnouncedService& service : services) {
    hosts.push_back({.address = service.where, .description = service.description});
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
