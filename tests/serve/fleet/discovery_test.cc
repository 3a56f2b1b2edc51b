// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace atollserve {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ConnectionOptions To(const std::string& server) {
  ConnectionOptions options;
  options.servers = {server};
  return options;
}

TEST(Discovery, IsForAddressesWithoutAHost) {
  EXPECT_TRUE(AreToBeFound({"nats://"}));
  EXPECT_TRUE(AreToBeFound({"tls://a:1", "tls://"}));
  EXPECT_FALSE(AreToBeFound({"nats://127.0.0.1:4222", "tls://:1", "tls:", ""}));
}

TEST(Discovery, WithoutTlsTakesTheOnlyOne) {
  EXPECT_THAT(*ChooseServers(To("nats://"), {"pi.local:4222"}),
              ElementsAre("nats://pi.local:4222"));
  const auto several = ChooseServers(To("nats://"), {"a:1", "[fe80::1%eth0]:2"});
  EXPECT_EQ(several.status().code(), atollrt::StatusCode::kInvalidArgument);
  EXPECT_THAT(several.status().message(),
              HasSubstr("choose one: nats://a:1, nats://[fe80::1%eth0]:2"));
}

TEST(Discovery, WithTlsTakesAllWithTheNameThatIsLookedFor) {
  ConnectionOptions options = To("tls://");
  EXPECT_THAT(ChooseServers(options, {"a:1"}).status().message(), HasSubstr("--tls-host"));
  options.tls_ca = "ca.pem";
  EXPECT_THAT(ChooseServers(options, {"a:1"}).status().message(), HasSubstr("--tls-host"));
  options.tls_host = "hub.example";
  EXPECT_THAT(*ChooseServers(options, {"a:1", "b:2"}), ElementsAre("tls://a:1", "tls://b:2"));
  EXPECT_THAT(*ChooseServers(options, {}), IsEmpty());
  // Which is TLS, too.
  options.servers = {"nats://"};
  EXPECT_THAT(*ChooseServers(options, {"a:1", "b:2"}), ElementsAre("tls://a:1", "tls://b:2"));
  options.servers = {"tls://", "tls://a:1"};
  EXPECT_THAT(ChooseServers(options, {"a:1"}).status().message(), HasSubstr("give no others"));
}

}  // namespace
}  // namespace atollserve
