// SPDX-License-Identifier: Apache-2.0
//
// What `atoll camera --mqtt` tells a broker of MQTT, as messages (docs/frigate.md): results of each
// frame, how many there are of each label, and what Home Assistant needs to find them. And what is
// still to be sent of them: of each topic the latest, however long the broker is away.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/camera.h"
#include "tools/atoll/report.h"

namespace atollcmd {

// mqtt://[USER@]HOST[:PORT][/PREFIX]
struct MqttAddress {
  bool tls = false;
  std::string host;              // without brackets
  int port = 1883;               // 8883 with TLS
  std::string user;              // "": none
  std::string prefix = "atoll";  // of all topics but those for Home Assistant
};
// Throws CommandError: also for one with a password, which everybody could see.
MqttAddress ParseMqttAddress(const std::string& text);

// The password from a file, of which the first line counts, or the environment; "": there is none.
// Throws CommandError if the file cannot be read.
std::string ReadMqttPassword(const std::string& path);

// A name as a level of topics and as an id for Home Assistant: small letters, digits, '_' and '-';
// everything else becomes '_'.
std::string TopicLevel(std::string_view name);

struct MqttMessage {
  std::string topic;
  std::string payload;
  bool retained = false;
};

// How many detections there are of each label, as a TopicLevel ("frame_" for "frame", which is a
// topic already); people of poses are "person".
// `labels`: of each model, by class.
std::map<std::string, int> CountLabels(const atollrt::ProcessedFrame& processed,
                                       const std::vector<std::vector<std::string>>& labels);

// From frames to messages, in order.
class CameraMessages {
 public:
  // `device`: what Home Assistant is told about it.
  CameraMessages(const MqttAddress& address, const std::string& camera, std::string device);

  // Retained; "offline" is the last will, too.
  MqttMessage Availability(bool online) const;
  // What a frame changes: its results, counts that are other than before, and, of a label that is
  // there for the first time, its entities.
  std::vector<MqttMessage> Of(const std::map<std::string, int>& counts, const Json& frame);
  MqttMessage Stats(const atollrt::PipelineStatus& status) const;

 private:
  static constexpr size_t kMaxLabels = 1000;

  MqttMessage Entity(const char* component, const std::string& label, const Json& more) const;

  const std::string prefix_;
  const std::string camera_;
  const std::string availability_topic_;
  const std::string id_;
  const std::string device_;
  std::map<std::string, int> counts_;  // latest, of every label that was ever there
};

// The latest message of each topic that has not been sent yet, first come first served. Others are
// overtaken, and counted unless they are retained: nobody needs an older state.
class MqttOutbox {
 public:
  void Put(MqttMessage message);
  std::optional<MqttMessage> Take();
  // The broker may have forgotten everything: retained messages are to be sent again.
  void TakeAllAgain();

  bool empty() const { return waiting_.empty(); }
  uint64_t overtaken() const { return overtaken_; }

 private:
  std::map<std::string, MqttMessage> waiting_by_topic_;
  std::vector<std::string> waiting_;  // topics, in their order
  std::map<std::string, MqttMessage> retained_;
  uint64_t overtaken_ = 0;
};

}  // namespace atollcmd
