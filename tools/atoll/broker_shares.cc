// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/broker_shares.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string_view>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/report.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

constexpr double kWeightLeast = 1e-3, kWeightMost = 1e3;

// A value of the file, and where it is: "'/shares/1/weight'".
struct Place {
  const std::string& file;
  const Json& value;
  std::string pointer;

  template <typename... T>
  [[noreturn]] void Refuse(fmt::format_string<T...> sentence, T&&... values) const {
    atollcmd::Fail(ExitCode::kUsage, "'{}': '{}' {}", file, pointer,
                   fmt::format(sentence, std::forward<T>(values)...));
  }
  int64_t Whole(int64_t least, int64_t most) const {
    if (!value.is_number_integer() || value < least || value > most) {
      Refuse("is {}, must be a whole number from {} to {}", JsonText(value), least, most);
    }
    return value.get<int64_t>();
  }
};

// By number, or by name in the system's list.
template <typename Entry>
int64_t ReadId(const Place& place, const char* kind, Entry* (*find)(const char*),
               int64_t (*id)(const Entry&)) {
  if (!place.value.is_string()) {
    return place.Whole(0, std::numeric_limits<uint32_t>::max() - int64_t{1});
  }
  const Entry* const entry = find(place.value.get_ref<const std::string&>().c_str());
  if (entry == nullptr) place.Refuse("is {}, which is no {} here", JsonText(place.value), kind);
  return id(*entry);
}

void ReadMember(const std::string& name, const Place& place, AtollBrokerShare* share) {
  constexpr int32_t kMany = 1 << 16;
  if (name == "user") {
    share->user = ReadId<passwd>(place, "user", getpwnam,
                                 [](const passwd& entry) { return int64_t{entry.pw_uid}; });
  } else if (name == "group") {
    share->group = ReadId<group>(place, "group", getgrnam,
                                 [](const group& entry) { return int64_t{entry.gr_gid}; });
  } else if (name == "weight") {
    if (!place.value.is_number() || place.value < kWeightLeast || place.value > kWeightMost) {
      place.Refuse("is {}, must be a number from {} to {}", JsonText(place.value), kWeightLeast,
                   kWeightMost);
    }
    share->weight = place.value.get<double>();
  } else if (name == "priority_max") {
    share->priority_max = static_cast<int32_t>(place.Whole(0, INT32_MAX));
  } else if (name == "requests") {
    share->requests = static_cast<int32_t>(place.Whole(1, 128));
  } else if (name == "executables") {
    share->executables = static_cast<int32_t>(place.Whole(0, kMany));
  } else if (name == "arenas") {
    share->arenas = static_cast<int32_t>(place.Whole(0, kMany));
  } else if (name == "bytes") {
    share->bytes = place.Whole(0, int64_t{1} << 40);
  } else if (name == "may_reset") {
    if (!place.value.is_boolean()) {
      place.Refuse("is {}, must be true or false", JsonText(place.value));
    }
    share->may_reset = place.value.get<bool>() ? 1 : 0;
  } else {
    place.Refuse(
        "is no member of a share; those are user, group, weight, priority_max, requests, "
        "executables, arenas, bytes and may_reset");
  }
}

// Notes what stands in a file twice, which a parser lets pass.
class Duplicates {
 public:
  bool operator()(int, Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key && !keys_.back().insert(parsed).second && name_.empty()) {
      name_ = parsed;
    }
    return true;
  }
  const std::string& name() const { return name_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::string name_;
};

Json ReadJson(const std::string& path) {
  const std::string text = ReadFile(path);
  Duplicates duplicates;
  Json json;
  try {
    json = Json::parse(text, std::ref(duplicates));
  } catch (const Json::out_of_range& error) {
    Fail(ExitCode::kUsage, "'{}' has a number that is none: {}", path, Printable(error.what()));
  } catch (const Json::parse_error& error) {
    const std::string_view before = std::string_view(text).substr(0, error.byte);
    Fail(ExitCode::kUsage, "'{}' is no JSON from line {} on: {}", path,
         1 + std::count(before.begin(), before.end(), '\n'), Printable(error.what()));
  }
  if (!duplicates.name().empty()) {
    Fail(ExitCode::kUsage, "'{}' has '{}' twice in one object", path, Printable(duplicates.name()));
  }
  return json;
}

}  // namespace

AtollBrokerShare ParseBrokerShare(const std::string& text) {
  AtollBrokerShare share = ATOLL_BROKER_SHARE_INIT;
  const size_t equals = text.find('=');
  const size_t colon = text.find(':');
  const auto user = ParseNumber<uint32_t>(std::string_view(text).substr(0, equals));
  bool fits = user.has_value() && equals != text.npos && (colon == text.npos || colon > equals);
  if (fits) {
    const auto weight =
        ParseNumber<double>(std::string_view(text).substr(equals + 1, colon - equals - 1));
    fits = weight.has_value() && *weight >= kWeightLeast && *weight <= kWeightMost;
    share.weight = weight.value_or(0);
  }
  if (fits && colon != text.npos) {
    const auto priority = ParseNumber<int32_t>(std::string_view(text).substr(colon + 1));
    fits = priority.has_value() && *priority >= 0;
    share.priority_max = priority.value_or(0);
  }
  if (!fits) {
    Fail(ExitCode::kUsage,
         "--share '{}' is no share of a user; write USER=WEIGHT or USER=WEIGHT:PRIORITY, as in "
         "1000=3, with a weight of 0.001 to 1000",
         text);
  }
  share.user = *user;
  return share;
}

std::vector<AtollBrokerShare> ReadBrokerShares(const std::string& path) {
  const Json json = ReadJson(path);
  const auto require = [&](const Place& place, bool fits, const char* wanted) {
    if (!fits) place.Refuse("is {}, must be {}", JsonText(place.value), wanted);
  };
  require({path, json, "/"}, json.is_object(), "an object with the member 'shares'");
  std::vector<AtollBrokerShare> shares;
  for (const auto& [name, list] : json.items()) {
    const Place at_list{path, list, "/" + Printable(name)};
    if (name != "shares") at_list.Refuse("is no member of the file; that is 'shares'");
    require(at_list, list.is_array(), "an array of shares");
    for (size_t i = 0; i < list.size(); ++i) {
      const Place at_share{path, list[i], fmt::format("/shares/{}", i)};
      require(at_share, list[i].is_object(), "an object, as {\"user\": 1000, \"weight\": 3}");
      AtollBrokerShare share = ATOLL_BROKER_SHARE_INIT;
      for (const auto& [member, value] : list[i].items()) {
        ReadMember(member, {path, value, at_share.pointer + "/" + Printable(member)}, &share);
      }
      shares.push_back(share);
    }
  }
  return shares;
}

}  // namespace atollcmd
