// SPDX-License-Identifier: Apache-2.0
#include "runtime/c_api.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/broker.h"
#include "delegate/c_api_handles.h"
#include "driver/broker/broker_chip.h"
#include "driver/device_name.h"
#include "driver/open_device.h"
#include "serve/broker/broker.h"

using atollrt::AllGiven;
using atollrt::BrokerShare;
using atollrt::InvalidArgument;
using atollrt::Result;
using atollrt::ToC;

struct AtollBroker {
  std::unique_ptr<atollrt::Broker> broker;
  std::string description;
};

namespace {

// For connecting to a broker, and for an answer of one that has nothing to wait for.
constexpr std::chrono::seconds kAnswerTimeout{5};
// For the device to be there again.
constexpr std::chrono::seconds kResetTimeout{30};

struct OwnedShare {
  int64_t user, group;
  BrokerShare share;
};

Result<OwnedShare> ReadShare(const AtollBrokerShare& given) {
  AtollBrokerShare read = ATOLL_BROKER_SHARE_INIT;
  ATOLL_RETURN_IF_ERROR(atollrt::ReadOptions("AtollBrokerShare", "ATOLL_BROKER_SHARE_INIT", &given,
                                             {ATOLL_END_OF(AtollBrokerShare, bytes)}, &read,
                                             sizeof(read)));
  if (!(read.weight >= 1e-3 && read.weight <= 1e3) || read.priority_max < 0 || read.requests < 1 ||
      read.requests > 128 || read.executables < 0 || read.arenas < 0 || read.bytes < 0) {
    return InvalidArgument(
        "a share of weight %g, priority %d, %d requests, %d executables, %d arenas and %lld bytes; "
        "a weight is 0.001 to 1000, requests are 1 to 128, and nothing is negative",
        read.weight, read.priority_max, read.requests, read.executables, read.arenas,
        static_cast<long long>(read.bytes));
  }
  return OwnedShare{read.user,
                    read.group,
                    {.weight = read.weight,
                     .priority_max = read.priority_max,
                     .requests = static_cast<size_t>(read.requests),
                     .executables = static_cast<size_t>(read.executables),
                     .arenas = static_cast<size_t>(read.arenas),
                     .bytes = static_cast<uint64_t>(read.bytes),
                     .may_reset = read.may_reset != 0}};
}

bool IsFor(const OwnedShare& owned, const atollrt::Peer& peer) {
  const auto is_its = [&](gid_t group) { return owned.group == group; };
  return (owned.user < 0 || owned.user == peer.uid) &&
         (owned.group < 0 || is_its(peer.gid) || std::ranges::any_of(peer.groups, is_its));
}

Result<std::unique_ptr<atollrt::BrokerLink>> ConnectTo(const char* socket_path) {
  return atollrt::BrokerLink::Connect(
      socket_path != nullptr ? socket_path : atollrt::DefaultBrokerPath(), "",
      atollrt::Clock::now() + kAnswerTimeout);
}

Result<AtollBroker*> CreateBroker(const AtollDelegateOptions* device,
                                  const AtollBrokerOptions* given) {
  AtollBrokerOptions options = ATOLL_BROKER_OPTIONS_INIT;
  if (given != nullptr) {
    ATOLL_RETURN_IF_ERROR(atollrt::ReadOptions(
        "AtollBrokerOptions", "ATOLL_BROKER_OPTIONS_INIT", given,
        {ATOLL_END_OF(AtollBrokerOptions, socket_path)}, &options, sizeof(options)));
  }
  atollrt::BrokerOptions broker;
  if (options.socket_path != nullptr) broker.path = options.socket_path;
  ATOLL_ASSIGN_OR_RETURN(atollrt::OpenOptions open, atollrt::OpenOptionsOf(device));
  open.auto_takes_broker = false;
  const auto name = atollrt::ParseDeviceName(open.device);
  if (name.ok() && name->kind == atollrt::DeviceName::Kind::kBroker) {
    return InvalidArgument(
        "a broker shares a device of its own, and '%s' is another broker's; write '--device usb' "
        "or the like",
        open.device.c_str());
  }
  ATOLL_ASSIGN_OR_RETURN(auto opened, atollrt::OpenDevice(open));
  auto handle = std::make_unique<AtollBroker>();
  handle->description = atollrt::DescribeDevice(opened->info());
  ATOLL_ASSIGN_OR_RETURN(handle->broker,
                         atollrt::Broker::Create(std::move(opened), std::move(broker)));
  return handle.release();
}

}  // namespace

extern "C" {

AtollStatus AtollBrokerCreate(const AtollDelegateOptions* device, const AtollBrokerOptions* options,
                              AtollBroker** broker) {
  if (broker == nullptr) return ToC(InvalidArgument("argument 'broker' is NULL"));
  const auto created = CreateBroker(device, options);
  if (!created.ok()) return ToC(created.status());
  *broker = *created;
  return ATOLL_OK;
}

void AtollBrokerDelete(AtollBroker* broker) { delete broker; }

AtollStatus AtollBrokerRun(AtollBroker* broker) {
  if (broker == nullptr) return ToC(InvalidArgument("argument 'broker' is NULL"));
  return ToC(broker->broker->Run());
}

void AtollBrokerStop(AtollBroker* broker) {
  if (broker != nullptr) broker->broker->Stop();
}

const char* AtollBrokerGetPath(const AtollBroker* broker) {
  return AllGiven({{"broker", broker}}) ? broker->broker->path().c_str() : nullptr;
}

const char* AtollBrokerGetDeviceDescription(const AtollBroker* broker) {
  return AllGiven({{"broker", broker}}) ? broker->description.c_str() : nullptr;
}

AtollStatus AtollBrokerSetShares(AtollBroker* broker, const AtollBrokerShare* const* shares,
                                 int32_t count) {
  if (!AllGiven({{"broker", broker}})) return ATOLL_INVALID_ARGUMENT;
  std::vector<OwnedShare> owned;
  for (int32_t i = 0; i < count; ++i) {
    if (shares == nullptr || shares[i] == nullptr) {
      return ToC(InvalidArgument("share %d of %d is NULL", i, count));
    }
    auto share = ReadShare(*shares[i]);
    if (!share.ok()) return ToC(share.status());
    owned.push_back(*std::move(share));
  }
  broker->broker->SetShares([owned = std::move(owned)](const atollrt::Peer& peer, const auto&) {
    const auto found =
        std::ranges::find_if(owned, [&](const OwnedShare& one) { return IsFor(one, peer); });
    return found == owned.end() ? BrokerShare() : found->share;
  });
  return ATOLL_OK;
}

AtollStatus AtollListBrokerClients(const char* socket_path, const AtollBrokerClient** clients,
                                   int32_t* count) {
  if (!AllGiven({{"clients", clients}, {"count", count}})) return ATOLL_INVALID_ARGUMENT;
  const auto link = ConnectTo(socket_path);
  if (!link.ok()) return ToC(link.status());
  const auto rows = (*link)->Clients(atollrt::Clock::now() + kAnswerTimeout);
  if (!rows.ok()) return ToC(rows.status());
  thread_local std::vector<std::string> names;
  thread_local std::vector<AtollBrokerClient> list;
  names.clear();
  list.clear();
  names.reserve(rows->size());
  for (const atollrt::BrokerClientRow& row : *rows) {
    const std::string_view name(row.name, strnlen(row.name, sizeof(row.name)));
    names.push_back(atollrt::TextOf(atollrt::TailOf(name)));
    list.push_back({.user = row.user,
                    .process = static_cast<int32_t>(row.process),
                    .name = names.back().c_str(),
                    .weight = row.weight,
                    .priority_max = row.priority_max,
                    .requests = static_cast<int64_t>(row.requests),
                    .device_seconds = row.device_seconds,
                    .share = row.share,
                    .in_flight = static_cast<int32_t>(row.running),
                    .waiting = static_cast<int32_t>(row.waiting),
                    .executables = static_cast<int32_t>(row.executables),
                    .bytes = static_cast<int64_t>(row.bytes)});
  }
  *clients = list.data();
  *count = static_cast<int32_t>(list.size());
  return ATOLL_OK;
}

AtollStatus AtollResetBrokerDevice(const char* socket_path) {
  const auto link = ConnectTo(socket_path);
  if (!link.ok()) return ToC(link.status());
  return ToC((*link)->ResetDevice(atollrt::Clock::now() + kResetTimeout));
}

}  // extern "C"
