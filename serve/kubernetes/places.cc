// SPDX-License-Identifier: Apache-2.0
#include "serve/kubernetes/places.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace atollserve {

using atollrt::InvalidArgument;
using atollrt::NotFound;
using atollrt::Result;

std::vector<Place> PlacesOf(const std::vector<OfferedDevice>& devices, int shares) {
  std::vector<Place> places;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].socket.empty()) {
      places.push_back({devices[i].id, i});
      continue;
    }
    for (int share = 0; share < shares; ++share) {
      places.push_back({devices[i].id + "-" + std::to_string(share), i});
    }
  }
  return places;
}

std::vector<std::string> PreferredPlaces(const std::vector<Place>& places,
                                         const std::vector<std::string>& available,
                                         const std::vector<std::string>& required, size_t size,
                                         Preference preference) {
  std::vector<std::string> chosen;
  std::set<std::string> left(available.begin(), available.end());
  for (const std::string& id : required) {
    if (chosen.size() < size && left.erase(id) > 0) chosen.push_back(id);
  }
  while (chosen.size() < size) {
    std::map<size_t, std::vector<const Place*>> free;  // by device
    for (const Place& place : places) {
      if (left.contains(place.id)) free[place.device].push_back(&place);
    }
    if (free.empty()) break;
    const auto fewer = [](const auto& a, const auto& b) {
      return a.second.size() < b.second.size();
    };
    const auto next = preference == Preference::kSpread
                          ? std::max_element(free.begin(), free.end(), fewer)
                          : std::min_element(free.begin(), free.end(), fewer);
    const std::string& id = next->second.front()->id;
    left.erase(id);
    chosen.push_back(id);
  }
  return chosen;
}

Result<Grant> GrantOf(const std::vector<OfferedDevice>& devices, const std::vector<Place>& places,
                      const std::vector<std::string>& ids) {
  if (ids.empty()) return InvalidArgument("a container asks for no place");
  std::set<size_t> given;  // devices, each once: two places of one are two shares of it
  for (const std::string& id : ids) {
    const auto place = std::find_if(places.begin(), places.end(),
                                    [&](const Place& other) { return other.id == id; });
    if (place == places.end()) return NotFound("there is no place '%.100s'", id.c_str());
    given.insert(place->device);
  }
  Grant grant;
  std::string names;
  for (const size_t index : given) {
    const OfferedDevice& device = devices[index];
    std::string name = device.name;
    if (!device.socket.empty()) {
      const size_t slash = device.socket.rfind('/');
      const std::string folder =
          given.size() == 1 ? kContainerFolder : kContainerFolder + ("/" + device.id);
      grant.mounts.push_back({device.socket.substr(0, slash), folder});
      name = "broker:" + folder + device.socket.substr(slash);
      // Programs that take "auto" or "broker" find it, too, and know whom to trust.
      if (given.size() == 1) {
        grant.variables.push_back({"ATOLL_BROKER", folder + device.socket.substr(slash)});
      }
      if (device.broker_uid != 0) {
        const std::string uid = std::to_string(device.broker_uid);
        for (const Variable& variable : grant.variables) {
          if (variable.name == "ATOLL_BROKER_UID" && variable.value != uid) {
            return InvalidArgument("brokers of users %s and %s cannot serve one container",
                                   variable.value.c_str(), uid.c_str());
          }
        }
        std::erase_if(grant.variables,
                      [](const Variable& variable) { return variable.name == "ATOLL_BROKER_UID"; });
        grant.variables.push_back({"ATOLL_BROKER_UID", uid});
      }
    }
    names += (names.empty() ? "" : ",") + name;
    for (const DeviceNode& node : device.nodes) {
      const bool is_there =
          std::any_of(grant.nodes.begin(), grant.nodes.end(),
                      [&](const DeviceNode& other) { return other.path == node.path; });
      if (!is_there) grant.nodes.push_back(node);
    }
  }
  grant.variables.push_back({"ATOLL_DEVICE", std::move(names)});
  return grant;
}

}  // namespace atollserve
