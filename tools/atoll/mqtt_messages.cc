// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/mqtt_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

constexpr std::string_view kMqttScheme = "mqtt://", kMqttsScheme = "mqtts://";

// Of topics that are published to; their levels are not empty.
bool IsTopic(std::string_view topic) {
  if (topic.empty() || topic.size() > 128 || topic.front() == '/' || topic.front() == '$' ||
      topic.back() == '/' || topic.find("//") != topic.npos) {
    return false;
  }
  return std::all_of(topic.begin(), topic.end(),
                     [](char c) { return c > 0x20 && c < 0x7f && c != '+' && c != '#'; });
}

// "T-shirt" for "t-shirt": as it is shown.
std::string Title(std::string text) {
  for (char& c : text) {
    if (c == '_') c = ' ';
  }
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  }
  return text;
}

}  // namespace

MqttAddress ParseMqttAddress(const std::string& text) {
  const auto fail = [&](const char* why) {
    Fail(ExitCode::kUsage,
         "--mqtt {}: {}; mqtt://HOST, mqtt://USER@HOST:1883/PREFIX and, with TLS, mqtts://HOST are "
         "addresses",
         text, why);
  };
  MqttAddress address;
  address.tls = text.starts_with(kMqttsScheme);
  if (address.tls) address.port = 8883;
  if (!address.tls && !text.starts_with(kMqttScheme)) fail("does not begin with mqtt://");
  std::string rest = text.substr(address.tls ? kMqttsScheme.size() : kMqttScheme.size());
  if (const size_t slash = rest.find('/'); slash != rest.npos) {
    address.prefix = rest.substr(slash + 1);
    rest.resize(slash);
    if (address.prefix.empty()) address.prefix = "atoll";
    if (!IsTopic(address.prefix)) fail("its prefix is no topic");
  }
  if (const size_t at = rest.rfind('@'); at != rest.npos) {
    address.user = rest.substr(0, at);
    rest.erase(0, at + 1);
    if (address.user.find(':') != address.user.npos) {
      // Without repeating it.
      Fail(ExitCode::kUsage,
           "--mqtt has a password in its address, which every user of this computer can see; give "
           "it in a file, --mqtt-password-file, or in the environment, ATOLL_MQTT_PASSWORD");
    }
    if (address.user.empty()) fail("has no user in front of the @");
  }
  if (rest.starts_with('[')) {
    const size_t bracket = rest.find(']');
    if (bracket == rest.npos) fail("has no ] behind the address");
    address.host = rest.substr(1, bracket - 1);
    rest.erase(0, bracket + 1);
  } else {
    const size_t colon = std::min(rest.find(':'), rest.size());
    address.host = rest.substr(0, colon);
    rest.erase(0, colon);
  }
  if (address.host.empty()) fail("has no host");
  if (!rest.empty()) {
    const auto port = ParseNumber<int>(rest.front() == ':' ? rest.substr(1) : "");
    if (!port || *port < 1 || *port > 65535) fail("has no port of 1 to 65535 behind the host");
    address.port = *port;
  }
  return address;
}

std::string ReadMqttPassword(const std::string& path) {
  if (path.empty()) {
    const char* const password = std::getenv("ATOLL_MQTT_PASSWORD");
    return password == nullptr ? "" : password;
  }
  constexpr size_t kMostBytes = 4096;
  std::string text = ReadBeginning(path, kMostBytes, [&](const char* verb, const std::string& why) {
    Fail(ExitCode::kFailure, "cannot {} the file of --mqtt-password-file '{}': {}", verb, path,
         why);
  });
  text.resize(std::min(text.find_first_of("\r\n"), text.size()));
  if (text.empty()) {
    Fail(ExitCode::kUsage, "the file of --mqtt-password-file '{}' has no first line", path);
  }
  return text;
}

std::string TopicLevel(std::string_view name) {
  std::string level;
  for (const char c : name.substr(0, 64)) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    level += upper ? static_cast<char>(c - 'A' + 'a') : kept ? c : '_';
  }
  return level.empty() ? "_" : level;
}

std::map<std::string, int> CountLabels(const atollrt::ProcessedFrame& processed,
                                       const std::vector<std::vector<std::string>>& labels) {
  std::map<std::string, int> counts;
  for (size_t model = 0; model < processed.results.size(); ++model) {
    for (const atollrt::ModelResult& result : processed.results[model]) {
      for (const atollrt::Detection& detection : result.detections) {
        const auto at = static_cast<size_t>(detection.class_index);
        const bool has_name =
            model < labels.size() && at < labels[model].size() && !labels[model][at].empty();
        const std::string level = TopicLevel(
            has_name ? labels[model][at] : fmt::format("class {}", detection.class_index));
        ++counts[level == "frame" ? "frame_" : level];
      }
      if (!result.poses.empty()) counts["person"] += static_cast<int>(result.poses.size());
    }
  }
  return counts;
}

CameraMessages::CameraMessages(const MqttAddress& address, const std::string& camera,
                               std::string device)
    : prefix_(address.prefix),
      camera_(TopicLevel(camera)),
      availability_topic_(address.prefix + "/available"),
      // "atoll" comes first in any case.
      id_(TopicLevel(address.prefix == "atoll" ? "atoll_" + camera
                                               : "atoll_" + address.prefix + "_" + camera)),
      device_(std::move(device)) {}

MqttMessage CameraMessages::Availability(bool online) const {
  return {availability_topic_, online ? "online" : "offline", /*retained=*/true};
}

MqttMessage CameraMessages::Entity(const char* component, const std::string& label,
                                   const Json& more) const {
  Json config = {{"unique_id", fmt::format("{}_{}_{}", id_, label, component)},
                 {"availability_topic", availability_topic_},
                 {"device",
                  {{"identifiers", {id_}},
                   {"name", "Atoll " + camera_},
                   {"manufacturer", "Atoll"},
                   {"model", device_},
                   {"sw_version", AtollVersion()}}}};
  config.update(more);
  return {fmt::format("homeassistant/{}/{}/{}/config", component, id_, label), JsonText(config),
          /*retained=*/true};
}

std::vector<MqttMessage> CameraMessages::Of(const std::map<std::string, int>& counts,
                                            const Json& frame) {
  std::vector<MqttMessage> messages;
  const std::string topic = prefix_ + "/" + camera_ + "/";
  const auto set = [&](const std::string& label, int count) {
    auto known = counts_.find(label);
    if (known == counts_.end()) {
      if (counts_.size() >= kMaxLabels) return;
      known = counts_.emplace(label, -1).first;
      messages.push_back(Entity("sensor", label,
                                {{"name", Title(label) + " count"},
                                 {"state_topic", topic + label},
                                 {"state_class", "measurement"}}));
      messages.push_back(Entity("binary_sensor", label,
                                {{"name", Title(label)},
                                 {"device_class", "occupancy"},
                                 {"state_topic", topic + label},
                                 {"value_template", "{{ 'ON' if value|int > 0 else 'OFF' }}"}}));
    }
    if (known->second == count) return;
    known->second = count;
    messages.push_back({topic + label, std::to_string(count), /*retained=*/true});
  };
  for (const auto& [label, count] : counts) set(label, count);
  for (const auto& [label, count] : counts_) {
    if (count != 0 && !counts.contains(label)) set(label, 0);
  }
  messages.push_back({topic + "frame", JsonText(frame), /*retained=*/false});
  return messages;
}

MqttMessage CameraMessages::Stats(const atollrt::PipelineStatus& status) const {
  Json models = Json::array();
  for (const atollrt::ModelStatus& model : status.models) {
    models.push_back({{"name", model.name},
                      {"inferences", model.inferences},
                      {"infer_ms", RoundedMs(model.infer_ms.p50)}});
  }
  const Json stats = {
      {"cameras",
       {{camera_,
         {{"camera_fps", RoundedMs(status.captured_fps)},
          {"process_fps", RoundedMs(status.processed_fps)},
          {"captured", status.captured},
          {"processed", status.processed},
          {"dropped", status.dropped},
          {"failed", status.failed}}}}},
      {"models", std::move(models)},
      {"device",
       {{"name", status.device.name},
        {"description", status.device.description},
        {"utilization", RoundedMs(status.device.utilization)},
        {"failures", status.device.failures},
        {"losses", status.device.losses}}},
      {"service", {{"uptime", RoundedMs(status.seconds)}, {"version", AtollVersion()}}}};
  return {prefix_ + "/stats", JsonText(stats), /*retained=*/false};
}

void MqttOutbox::Put(MqttMessage message) {
  if (message.retained) retained_[message.topic] = message;
  const std::string topic = message.topic;
  const bool overtakes = waiting_by_topic_.contains(topic);
  if (overtakes && !message.retained) ++overtaken_;
  if (!overtakes) waiting_.push_back(topic);
  waiting_by_topic_[topic] = std::move(message);
}

std::optional<MqttMessage> MqttOutbox::Take() {
  if (waiting_.empty()) return std::nullopt;
  const auto found = waiting_by_topic_.find(waiting_.front());
  MqttMessage message = std::move(found->second);
  waiting_by_topic_.erase(found);
  waiting_.erase(waiting_.begin());
  return message;
}

void MqttOutbox::TakeAllAgain() {
  const std::map<std::string, MqttMessage> retained = retained_;
  for (const auto& [topic, message] : retained) Put(message);
}

}  // namespace atollcmd
