// SPDX-License-Identifier: Apache-2.0
#include "serve/dns_sd/dns_sd.h"

namespace atollserve {
namespace {

atollrt::Status Absent() {
  return atollrt::Unsupported(
      "this was built without Avahi (libavahi-client-dev), which finds computers by name");
}

}  // namespace

atollrt::Result<std::vector<AnnouncedService>> Browse(const char*, atollrt::Deadline) {
  return Absent();
}

atollrt::Result<std::unique_ptr<Announcement>> Announcement::Publish(const std::string&, uint16_t,
                                                                     const std::string&) {
  return Absent();
}

}  // namespace atollserve
