// SPDX-License-Identifier: Apache-2.0
#include "serve/access/access.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace atollserve {
namespace {

using atollrt::StatusCode;

const std::string kToken = "0123456789abcdef";

TEST(CheckListener, WantsEncryptionAndACredentialForOthers) {
  const ListenerFacts local = {.where = "127.0.0.1:1", .local = true, .tls = false};
  const ListenerFacts plain = {.where = "0.0.0.0:1", .local = false, .tls = false};
  const ListenerFacts tls = {.where = "0.0.0.0:1", .local = false, .tls = true};
  AccessRule none, token, certificates, insecure;
  token.token = kToken;
  certificates.client_certificates = true;
  insecure.insecure = true;
  EXPECT_TRUE(CheckListener(local, none).ok());
  EXPECT_TRUE(CheckListener(tls, token).ok());
  EXPECT_TRUE(CheckListener(tls, certificates).ok());
  EXPECT_TRUE(CheckListener(plain, insecure).ok());
  for (const AccessRule* rule : {&none, &token, &certificates}) {
    EXPECT_EQ(CheckListener(plain, *rule).code(), StatusCode::kPermissionDenied);
  }
  EXPECT_EQ(CheckListener(tls, none).code(), StatusCode::kPermissionDenied);
}

TEST(HasToken, TakesTheTokenAndNothingElse) {
  EXPECT_TRUE(HasToken("Bearer " + kToken, kToken));
  EXPECT_TRUE(HasToken("bearer " + kToken, kToken));
  for (const std::string& text :
       {std::string(), kToken, std::string("Bearer"), std::string("Bearer "),
        "Bearer " + kToken + "0", "Bearer  " + kToken, "Bearer " + kToken.substr(1),
        "Basic " + kToken}) {
    EXPECT_FALSE(HasToken(text, kToken)) << text;
  }
  EXPECT_FALSE(HasToken("Bearer ", ""));
  EXPECT_FALSE(HasToken("Bearer x", ""));
}

TEST(HasToken, TakesItAsThePasswordOfALogin) {
  // "me:0123456789abcdef", ":0123456789abcdef", and without a user, with more, cut off, broken.
  EXPECT_TRUE(HasToken("Basic bWU6MDEyMzQ1Njc4OWFiY2RlZg==", kToken));
  EXPECT_TRUE(HasToken("basic OjAxMjM0NTY3ODlhYmNkZWY", kToken));
  for (const char* const text :
       {"Basic MDEyMzQ1Njc4OWFiY2RlZg==", "Basic bWU6MDEyMzQ1Njc4OWFiY2RlZjA=",
        "Basic bWU6MDEyMzQ1Njc4OWFiY2Rl", "Basic bWU6MDEyMzQ1Njc4OWFiY2RlZg==!", "Basic ",
        "Basic"}) {
    EXPECT_FALSE(HasToken(text, kToken)) << text;
  }
  EXPECT_FALSE(HasToken("Basic bWU6", "")) << "an empty token is none";
}

TEST(DecodeBase64, TakesWhatIsOneOnly) {
  EXPECT_EQ(DecodeBase64(""), "");
  EXPECT_EQ(DecodeBase64("AA"), std::string(1, '\0'));
  EXPECT_EQ(DecodeBase64("+/+/"), "\xfb\xff\xbf");
  for (const char* const text : {"A", "AAAAA", "A A=", "-_-_", "AA=A", "\xff\xff"}) {
    EXPECT_EQ(DecodeBase64(text), std::nullopt) << text;
  }
}

TEST(OpenAccess, WantsWhatGoesTogether) {
  const auto code = [](const TlsFiles& files) { return OpenAccess({.tls = files}).code(); };
  EXPECT_EQ(code({}), StatusCode::kOk);
  EXPECT_EQ(code({.certificate = "c"}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.key = "k"}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.client_ca = "a"}), StatusCode::kInvalidArgument);
  const auto absent = OpenAccess({.tls = {.certificate = "/absent.pem", .key = "/absent.key"}});
  ASSERT_FALSE(absent.ok());
  EXPECT_NE(absent.status().message().find("/absent.pem"), std::string::npos);
}

TEST(EqualInConstantTime, Compares) {
  EXPECT_TRUE(EqualInConstantTime("", ""));
  EXPECT_TRUE(EqualInConstantTime("ab", "ab"));
  for (const char* const other : {"", "a", "aa", "abb", "abab", "ba"}) {
    EXPECT_FALSE(EqualInConstantTime("ab", other)) << other;
    EXPECT_FALSE(EqualInConstantTime(other, "ab")) << other;
  }
}

TEST(ReadToken, TakesFilesAndTheEnvironment) {
  const std::string path = testing::TempDir() + "/access_test_token";
  const auto with = [&](const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
    return ReadToken(path, "ATOLL_TEST_NO_TOKEN");
  };
  EXPECT_EQ(*with(kToken + "\r\n"), kToken);
  for (const std::string& text :
       {std::string(), std::string("short\n"), kToken + " " + kToken, kToken + "\n" + kToken,
        std::string(5000, 'x'), kToken + std::string(1, '\0')}) {
    EXPECT_EQ(with(text).code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(ReadToken("/nonexistent", "x").code(), StatusCode::kNotFound);
  EXPECT_EQ(*ReadToken("", "ATOLL_TEST_NO_TOKEN"), "");
  setenv("ATOLL_TEST_TOKEN", kToken.c_str(), 1);
  EXPECT_EQ(*ReadToken("", "ATOLL_TEST_TOKEN"), kToken);
  setenv("ATOLL_TEST_TOKEN", "", 1);
  EXPECT_EQ(ReadToken("", "ATOLL_TEST_TOKEN").code(), StatusCode::kInvalidArgument);
  std::remove(path.c_str());
}

TEST(IsServedHost, KnowsNamesAndAddresses) {
  const ServedHosts local = HostsOf("127.0.0.1", true, {"Camera.Lan"});
  for (const char* const host :
       {"localhost", "LOCALHOST.", "127.0.0.1:8000", "[::1]:8000", "camera.lan", "CAMERA.lan:80"}) {
    EXPECT_TRUE(IsServedHost(host, local)) << host;
  }
  for (const char* const host : {"", "evil.example", "192.168.0.1", "[::2]", "[::1", "::1",
                                 "localhost:x", "localhost:80:80", "camera.lan.evil.example"}) {
    EXPECT_FALSE(IsServedHost(host, local)) << host;
  }
  EXPECT_TRUE(IsServedHost("192.168.0.1:1", HostsOf("0.0.0.0", false, {})));
}

TEST(IsForeign, LetsOurOwnPageAndLinksIn) {
  EXPECT_FALSE(IsForeign({.host = "h"}, "http"));
  EXPECT_FALSE(IsForeign({.host = "h", .origin = "http://h"}, "http"));
  EXPECT_TRUE(IsForeign({.host = "h", .origin = "http://h"}, "https"));
  EXPECT_TRUE(IsForeign({.host = "h", .origin = "null"}, "http"));
  EXPECT_TRUE(IsForeign({.host = "h", .origin = "http://h.evil.example"}, "http"));
  EXPECT_FALSE(IsForeign({.host = "h", .fetch_site = "same-origin"}, "http"));
  EXPECT_TRUE(IsForeign({.host = "h", .fetch_site = "same-site"}, "http"));
  EXPECT_FALSE(IsForeign(
      {.host = "h", .fetch_site = "cross-site", .fetch_mode = "navigate", .fetch_dest = "document"},
      "http"));
  EXPECT_TRUE(IsForeign(
      {.host = "h", .fetch_site = "cross-site", .fetch_mode = "navigate", .fetch_dest = "iframe"},
      "http"));
}

}  // namespace
}  // namespace atollserve
