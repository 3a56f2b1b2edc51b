// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/mqtt_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tools/atoll/exit_code.h"

namespace atollcmd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> TopicsOf(const std::vector<MqttMessage>& messages) {
  std::vector<std::string> topics;
  for (const MqttMessage& message : messages) topics.push_back(message.topic);
  return topics;
}

TEST(MqttMessages, Addresses) {
  MqttAddress address = ParseMqttAddress("mqtt://broker");
  EXPECT_EQ(address.host, "broker");
  EXPECT_EQ(address.port, 1883);
  EXPECT_EQ(address.user, "");
  EXPECT_EQ(address.prefix, "atoll");
  address = ParseMqttAddress("mqtt://a@b@[::1]:18/x/y");
  EXPECT_EQ(address.host, "::1");
  EXPECT_EQ(address.port, 18);
  EXPECT_EQ(address.user, "a@b");
  EXPECT_EQ(address.prefix, "x/y");
  EXPECT_EQ(ParseMqttAddress("mqtt://h/").prefix, "atoll");
  EXPECT_THROW(ParseMqttAddress("http://h"), CommandError);
}

TEST(MqttMessages, TopicLevels) {
  EXPECT_EQ(TopicLevel("T-shirt/top"), "t-shirt_top");
  EXPECT_EQ(TopicLevel("a+b#c d\n\xc3\xa4"), "a_b_c_d___");
  EXPECT_EQ(TopicLevel(""), "_");
  EXPECT_EQ(TopicLevel(std::string(1000, 'x')).size(), 64u);
}

TEST(MqttMessages, SayWhatChanges) {
  CameraMessages messages({.host = "h", .user = "", .prefix = "house"}, "Front", "a device");
  const auto cat = [](const char* component) {
    return std::string("homeassistant/") + component + "/atoll_house_front/cat/config";
  };
  std::vector<MqttMessage> said = messages.Of({{"cat", 2}}, Json::object());
  EXPECT_THAT(TopicsOf(said), ElementsAre(cat("sensor"), cat("binary_sensor"), "house/front/cat",
                                          "house/front/frame"));
  EXPECT_EQ(said[2].payload, "2");
  EXPECT_TRUE(said[0].retained && said[1].retained && said[2].retained);
  EXPECT_FALSE(said[3].retained);
  EXPECT_THAT(said[0].payload, HasSubstr(R"("state_topic":"house/front/cat")"));
  // The same again is no news, and none of it is.
  EXPECT_THAT(TopicsOf(messages.Of({{"cat", 2}}, {})), ElementsAre("house/front/frame"));
  said = messages.Of({}, {});
  EXPECT_THAT(TopicsOf(said), ElementsAre("house/front/cat", "house/front/frame"));
  EXPECT_EQ(said[0].payload, "0");
  EXPECT_THAT(TopicsOf(messages.Of({}, {})), ElementsAre("house/front/frame"));
}

TEST(MqttMessages, LabelsHaveALimit) {
  CameraMessages messages({.host = "h", .user = ""}, "c", "");
  std::map<std::string, int> counts;
  for (int i = 0; i < 1500; ++i) counts["label_" + std::to_string(i)] = 1;
  EXPECT_EQ(messages.Of(counts, {}).size(), 3 * 1000u + 1);
  EXPECT_EQ(messages.Of(counts, {}).size(), 1u);
}

TEST(MqttOutbox, KeepsTheLatestOfEachTopic) {
  MqttOutbox outbox;
  EXPECT_TRUE(outbox.empty());
  EXPECT_FALSE(outbox.Take().has_value());
  outbox.Put({"frame", "1", false});
  outbox.Put({"count", "1", true});
  for (const char* frame : {"2", "3"}) outbox.Put({"frame", frame, false});
  outbox.Put({"count", "2", true});
  EXPECT_EQ(outbox.overtaken(), 2u);
  EXPECT_EQ(outbox.Take()->payload, "3");
  EXPECT_EQ(outbox.Take()->payload, "2");
  EXPECT_TRUE(outbox.empty());
  // What a broker that comes back has forgotten.
  outbox.Put({"frame", "4", false});
  outbox.TakeAllAgain();
  EXPECT_EQ(outbox.Take()->topic, "frame");
  EXPECT_EQ(outbox.Take()->payload, "2");
  EXPECT_FALSE(outbox.Take().has_value());
}

}  // namespace
}  // namespace atollcmd
