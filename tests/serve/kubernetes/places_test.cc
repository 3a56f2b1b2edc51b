// SPDX-License-Identifier: Apache-2.0
#include "serve/kubernetes/places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atollserve {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

OfferedDevice Broker(const std::string& id, const std::string& socket, uint32_t uid = 0) {
  OfferedDevice device;
  device.id = id;
  device.socket = socket;
  device.broker_uid = uid;
  device.is_healthy = true;
  return device;
}

OfferedDevice Whole(const std::string& id, const std::string& name, const std::string& node) {
  OfferedDevice device;
  device.id = id;
  device.name = name;
  device.nodes = {{node}};
  return device;
}

std::vector<std::string> Ids(const std::vector<Place>& places) {
  std::vector<std::string> ids;
  for (const Place& place : places) ids.push_back(place.id);
  return ids;
}

std::vector<std::string> Variables(const Grant& grant) {
  std::vector<std::string> all;
  for (const auto& variable : grant.variables) all.push_back(variable.name + "=" + variable.value);
  return all;
}

std::vector<std::string> Mounts(const Grant& grant) {
  std::vector<std::string> all;
  for (const auto& mount : grant.mounts) all.push_back(mount.host + ":" + mount.container);
  return all;
}

TEST(Places, AreSeveralAtABrokerAndOneOfAWholeDevice) {
  EXPECT_THAT(
      Ids(PlacesOf({Broker("broker", "/run/a.sock"), Whole("usb-1-2", "usb:1-2", "/dev/x")}, 3)),
      ElementsAre("broker-0", "broker-1", "broker-2", "usb-1-2"));
  EXPECT_THAT(PlacesOf({}, 3), IsEmpty());
}

class TwoBrokers : public testing::Test {
 protected:
  std::vector<std::string> Prefer(const std::vector<std::string>& available,
                                  const std::vector<std::string>& required, size_t size,
                                  Preference preference) const {
    return PreferredPlaces(places_, available, required, size, preference);
  }
  const std::vector<OfferedDevice> devices_ = {Broker("a", "/run/a/broker.sock"),
                                               Broker("b", "/run/b/broker.sock", 70)};
  const std::vector<Place> places_ = PlacesOf(devices_, 3);
};

TEST_F(TwoBrokers, AreUsedInTurnsOrOneAfterTheOther) {
  // One place of b is given.
  const std::vector<std::string> available = {"a-0", "a-1", "a-2", "b-0", "b-2"};
  EXPECT_THAT(Prefer(available, {}, 1, Preference::kSpread), ElementsAre("a-0"));
  EXPECT_THAT(Prefer(available, {}, 3, Preference::kSpread), ElementsAre("a-0", "a-1", "b-0"));
  EXPECT_THAT(Prefer(available, {}, 3, Preference::kPack), ElementsAre("b-0", "b-2", "a-0"));
}

TEST_F(TwoBrokers, GiveWhatIsRequiredFirst) {
  const std::vector<std::string> available = {"a-0", "a-1", "b-2"};
  EXPECT_THAT(Prefer(available, {"b-2"}, 2, Preference::kSpread), ElementsAre("b-2", "a-0"));
  EXPECT_THAT(Prefer(available, {"a-9"}, 1, Preference::kSpread), ElementsAre("a-0"));
  EXPECT_THAT(Prefer(available, {}, 9, Preference::kSpread),
              UnorderedElementsAre("a-0", "a-1", "b-2"));
  EXPECT_THAT(Prefer(available, {"a-0", "a-1"}, 1, Preference::kSpread), ElementsAre("a-0"));
  EXPECT_THAT(Prefer({"nobody-0"}, {"nobody-0"}, 0, Preference::kPack), IsEmpty());
}

TEST_F(TwoBrokers, GiveAContainerASocketAndItsName) {
  const auto one = GrantOf(devices_, places_, {"a-1"});
  ASSERT_TRUE(one.ok());
  EXPECT_THAT(Mounts(*one), ElementsAre("/run/a:/run/atoll"));
  EXPECT_THAT(Variables(*one), ElementsAre("ATOLL_BROKER=/run/atoll/broker.sock",
                                           "ATOLL_DEVICE=broker:/run/atoll/broker.sock"));
  EXPECT_THAT(one->nodes, IsEmpty());
  // Two places of one device are that device.
  const auto same = GrantOf(devices_, places_, {"b-1", "b-0"});
  ASSERT_TRUE(same.ok());
  EXPECT_THAT(Variables(*same),
              ElementsAre("ATOLL_BROKER=/run/atoll/broker.sock", "ATOLL_BROKER_UID=70",
                          "ATOLL_DEVICE=broker:/run/atoll/broker.sock"));
  const auto both = GrantOf(devices_, places_, {"b-1", "a-0"});
  ASSERT_TRUE(both.ok());
  EXPECT_THAT(Mounts(*both), ElementsAre("/run/a:/run/atoll/a", "/run/b:/run/atoll/b"));
  EXPECT_THAT(Variables(*both), ElementsAre("ATOLL_BROKER_UID=70",
                                            "ATOLL_DEVICE=broker:/run/atoll/a/broker.sock,"
                                            "broker:/run/atoll/b/broker.sock"));
}

TEST_F(TwoBrokers, GiveNothingForWhatIsNoPlace) {
  const auto unknown = GrantOf(devices_, places_, {"a-0", "a-3"});
  EXPECT_EQ(unknown.status().code(), atollrt::StatusCode::kNotFound);
  EXPECT_THAT(unknown.status().message(), HasSubstr("'a-3'"));
  EXPECT_EQ(GrantOf(devices_, places_, {}).status().code(), atollrt::StatusCode::kInvalidArgument);
}

TEST(Places, OfDifferentUsersGoNotIntoOneContainer) {
  const std::vector<OfferedDevice> devices = {Broker("a", "/run/a/x", 70),
                                              Broker("b", "/run/b/x", 71)};
  const auto grant = GrantOf(devices, PlacesOf(devices, 1), {"a-0", "b-0"});
  EXPECT_THAT(grant.status().message(), HasSubstr("users 70 and 71"));
}

TEST(Places, OfWholeDevicesAreFilesOfDev) {
  const std::vector<OfferedDevice> devices = {Whole("usb-1-2", "usb:1-2", "/dev/bus/usb"),
                                              Whole("usb-1-3", "usb:1-3", "/dev/bus/usb")};
  const auto grant = GrantOf(devices, PlacesOf(devices, 7), {"usb-1-2", "usb-1-3"});
  ASSERT_TRUE(grant.ok());
  EXPECT_THAT(Variables(*grant), ElementsAre("ATOLL_DEVICE=usb:1-2,usb:1-3"));
  ASSERT_EQ(grant->nodes.size(), 1u);
  EXPECT_EQ(grant->nodes[0].path, "/dev/bus/usb");
  EXPECT_THAT(grant->mounts, IsEmpty());
}

}  // namespace
}  // namespace atollserve
