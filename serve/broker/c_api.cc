// SPDX-License-Identifier: Apache-2.0
#include "runtime/c_api.h"

#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "atoll/broker.h"
#include "delegate/c_api_handles.h"
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

using Shares = std::map<uid_t, BrokerShare>;

// "1000=3,1001=1:5"
Result<Shares> ReadShares(std::string_view text) {
  Shares shares;
  for (size_t begin = 0; begin <= text.size();) {
    const std::string_view one = text.substr(begin, text.find(',', begin) - begin);
    begin += one.size() + 1;
    uid_t user = 0;
    BrokerShare share;
    const char* const end = one.data() + one.size();
    auto parsed = std::from_chars(one.data(), end, user);
    bool fits = parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '=';
    if (fits) {
      parsed = std::from_chars(parsed.ptr + 1, end, share.weight);
      fits = parsed.ec == std::errc() && share.weight >= 1e-3 && share.weight <= 1e3;
    }
    if (fits && parsed.ptr != end) {
      fits = *parsed.ptr == ':';
      if (fits) parsed = std::from_chars(parsed.ptr + 1, end, share.priority_max);
      fits = fits && parsed.ec == std::errc() && parsed.ptr == end;
    }
    if (!fits || !shares.emplace(user, share).second) {
      return InvalidArgument(
          "'%.*s' is no share of a user of its own; write USER=WEIGHT or USER=WEIGHT:PRIORITY, as "
          "in 1000=3, with a weight of 0.001 to 1000",
          static_cast<int>(one.size()), one.data());
    }
  }
  return shares;
}

Result<AtollBroker*> CreateBroker(const AtollDelegateOptions* device,
                                  const AtollBrokerOptions* given) {
  AtollBrokerOptions options = ATOLL_BROKER_OPTIONS_INIT;
  if (given != nullptr) {
    ATOLL_RETURN_IF_ERROR(atollrt::ReadOptions(
        "AtollBrokerOptions", "ATOLL_BROKER_OPTIONS_INIT", given,
        {ATOLL_END_OF(AtollBrokerOptions, socket_path), ATOLL_END_OF(AtollBrokerOptions, shares)},
        &options, sizeof(options)));
  }
  atollrt::BrokerOptions broker;
  if (options.socket_path != nullptr) broker.path = options.socket_path;
  if (options.shares != nullptr) {
    ATOLL_ASSIGN_OR_RETURN(const Shares shares, ReadShares(options.shares));
    broker.share_of = [shares](const atollrt::Peer& peer, const std::string&) {
      const auto found = shares.find(peer.uid);
      return found == shares.end() ? BrokerShare() : found->second;
    };
  }
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

}  // extern "C"
