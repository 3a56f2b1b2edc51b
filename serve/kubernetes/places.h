// SPDX-License-Identifier: Apache-2.0
//
// What a node offers to Kubernetes, and what a container gets that was given some of it. Devices
// behind a broker (docs/broker.md) are offered in places: several containers have one each and
// share the device; nothing of /dev goes into them. Others are offered whole, each to one
// container.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/status.h"

namespace atollserve {

// The folder in containers that has the broker's socket.
inline constexpr const char* kContainerFolder = "/run/atoll";

struct DeviceNode {
  std::string path;  // a file of /dev, or a folder of such; the same in the container
};

struct OfferedDevice {
  std::string id;  // of the device among all: "broker", "usb-2-3"; at most 57 characters
  bool is_healthy = false;
  std::optional<int64_t> numa_node;
  // Behind a broker: its socket on this node, and the user that it runs as.
  std::string socket;
  uint32_t broker_uid = 0;
  // Else what --device would take, and what a container needs for it.
  std::string name;
  std::vector<DeviceNode> nodes;
};

struct Place {
  std::string id;     // "broker-3"; of a whole device its own id
  size_t device = 0;  // among those offered
};

// `shares` of each device behind a broker, one of all others, in order.
std::vector<Place> PlacesOf(const std::vector<OfferedDevice>& devices, int shares);

enum class Preference {
  kSpread,  // the device of which the fewest places are given
  kPack,    // that of which the most are
};

// `size` of the `available` places, with all of `required` among them, or as many as there are.
std::vector<std::string> PreferredPlaces(const std::vector<Place>& places,
                                         const std::vector<std::string>& available,
                                         const std::vector<std::string>& required, size_t size,
                                         Preference preference);

struct Variable {
  std::string name, value;
};
struct FolderMount {
  std::string host, container;
};

// What a container gets.
struct Grant {
  std::vector<Variable> variables;
  std::vector<FolderMount> mounts;  // to read from
  std::vector<DeviceNode> nodes;    // to read and write
};

// kNotFound for an id that is no place; kInvalidArgument for none, or for devices of two kinds.
atollrt::Result<Grant> GrantOf(const std::vector<OfferedDevice>& devices,
                               const std::vector<Place>& places,
                               const std::vector<std::string>& ids);

}  // namespace atollserve
