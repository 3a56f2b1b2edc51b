// SPDX-License-Identifier: Apache-2.0
#include "camera/web/http.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "tests/support/allocation_meter.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

struct Parsed {
  ParseState state;
  HttpRequest request = {};
  HttpRefusal refusal = {};
};

Parsed Parse(std::string_view bytes) {
  // A block of exactly this size, so that the sanitizers see reads beyond it.
  const std::unique_ptr<char[]> block(new char[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), block.get());
  Parsed parsed{};
  parsed.state = ParseRequest({block.get(), bytes.size()}, &parsed.request, &parsed.refusal);
  return parsed;
}

int RefusalOf(std::string_view bytes) {
  const Parsed parsed = Parse(bytes);
  if (parsed.state != ParseState::kRefused) return 0;
  EXPECT_TRUE(parsed.refusal.sentence.ends_with('.')) << parsed.refusal.sentence;
  return parsed.refusal.status;
}

TEST(ParseRequest, TakesRequestsApart) {
  const Parsed get =
      Parse("GET /a%2e/b?viewer=x&y=?z HTTP/1.1\r\nAccept: */*\r\nhOST: \t me:80 \r\n\r\nmore");
  ASSERT_EQ(get.state, ParseState::kComplete);
  EXPECT_FALSE(get.request.head);
  EXPECT_EQ(get.request.path, "/a%2e/b");
  EXPECT_EQ(get.request.query, "viewer=x&y=?z");
  EXPECT_EQ(get.request.host, "me:80");

  const Parsed head = Parse("HEAD / HTTP/1.1\nHost: me\n\n");
  ASSERT_EQ(head.state, ParseState::kComplete);
  EXPECT_TRUE(head.request.head);
  EXPECT_EQ(head.request.path, "/");
  EXPECT_EQ(head.request.query, "");

  EXPECT_EQ(Parse("GET / HTTP/1.0\r\n\r\n").state, ParseState::kComplete) << "1.0 needs no host";
  EXPECT_EQ(Parse("\r\nGET / HTTP/1.0\r\n\r\n").state, ParseState::kComplete);
  EXPECT_EQ(Parse("GET /? HTTP/1.0\r\n\r\n").request.path, "/");
  EXPECT_EQ(Parse("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").state,
            ParseState::kComplete);
}

TEST(ParseRequest, WaitsForTheEndOfARequest) {
  const std::string request = "GET /stream.mjpg HTTP/1.1\r\nHost: localhost\r\nAccept: a\r\n\r\n";
  for (size_t size = 0; size < request.size(); ++size) {
    EXPECT_EQ(Parse(request.substr(0, size)).state, ParseState::kIncomplete) << size;
  }
  EXPECT_EQ(Parse(request).state, ParseState::kComplete);
}

TEST(ParseRequest, RefusesWhatItDoesNotSpeak) {
  const std::string host = "Host: a\r\n";
  const struct {
    std::string bytes;
    int status;
  } cases[] = {
      {"\n", 400},
      {"hello\r\n", 400},
      {"GET /\r\n", 400},
      {"GET  HTTP/1.1\r\n", 400},
      {"GET / HTTP/2.0\r\n", 505},
      {"PRI * HTTP/2.0\r\n", 505},
      {"GET / http/1.1\r\n", 505},
      {"POST / HTTP/1.1\r\n", 405},
      {"get / HTTP/1.1\r\n", 405},
      {"OPTIONS * HTTP/1.1\r\n", 405},
      {"GE T / HTTP/1.1\r\n", 400},
      {"\x16\x03\x01\x02 \x01 \x03\n", 400},
      {"GET http://example.org/ HTTP/1.1\r\n", 400},
      {"GET etc/passwd HTTP/1.1\r\n", 400},
      {std::string("GET /\0x HTTP/1.1\r\n", 19), 400},
      {"GET /a b HTTP/1.1\r\n", 400},
      {"GET /\xc3\xa4 HTTP/1.1\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: \r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + host + "\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n: empty\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nContent-Length: 1000000000000000000000\r\n", 413},
      {"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", 413},
  };
  for (const auto& one : cases) EXPECT_EQ(RefusalOf(one.bytes), one.status) << one.bytes;
}

TEST(ParseRequest, BoundsEveryPart) {
  EXPECT_EQ(RefusalOf("GET /" + std::string(kMaxRequestLineBytes, 'a')), 414);
  EXPECT_EQ(RefusalOf("GET /" + std::string(3000, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n"), 414);
  const std::string fits = "GET /" + std::string(kMaxRequestLineBytes - 14, 'a') + " HTTP/1.1\r\n";
  EXPECT_EQ(Parse(fits + "Host: a\r\n\r\n").state, ParseState::kComplete);

  const std::string start = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
  const std::string largest = start + std::string(kMaxRequestBytes - start.size() - 4, 'x');
  EXPECT_EQ(Parse(largest + "\r\n\r\n").state, ParseState::kComplete);
  EXPECT_EQ(RefusalOf(largest + "x\r\n\r\n"), 431);
  std::string many = "GET / HTTP/1.1\r\n";
  while (many.size() < 100'000) many += "a:\r\n";
  EXPECT_EQ(RefusalOf(many), 431);
}

TEST(ParseRequest, DecidesOnAnyBytes) {
  Rng rng(TestSeed(1));
  constexpr char kAlphabet[] = "GET /HTP1.\r\n:hos \t?&=\0\xff";
  for (int round = 0; round < TestCount(2000); ++round) {
    std::string bytes = round % 2 == 0 ? "GET / HTTP/1.1\r\n" : "";
    const int64_t size = rng.Int(0, round % 100 == 0 ? 9000 : 60);
    for (int64_t i = 0; i < size; ++i) {
      bytes += kAlphabet[rng.Int(0, sizeof(kAlphabet) - 1)];
    }
    const Parsed parsed = Parse(bytes);
    if (bytes.size() >= kMaxRequestBytes) {
      EXPECT_NE(parsed.state, ParseState::kIncomplete);
    }
    if (parsed.state == ParseState::kRefused) {
      EXPECT_GE(parsed.refusal.status, 400);
    }
  }
}

TEST(QueryValue, FindsWholeNames) {
  EXPECT_EQ(QueryValue("n=3&viewer=a1", "viewer"), "a1");
  EXPECT_EQ(QueryValue("n=3&viewer=a1", "n"), "3");
  EXPECT_EQ(QueryValue("n=3&viewer=a1", "view"), "");
  EXPECT_EQ(QueryValue("myviewer=1&viewer", "viewer"), "");
  EXPECT_EQ(QueryValue("&&=&viewer=a=b&", "viewer"), "a=b");
  EXPECT_EQ(QueryValue("", "viewer"), "");
}

TEST(IsServedHost, KnowsTheNamesOfLoopback) {
  const ServedHosts hosts = {"127.0.0.9", true, {"cam.example"}};
  for (const char* host :
       {"localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:8080",
        "localhost:", "127.0.0.9:80", "localhost.:80", "Cam.Example:80"}) {
    EXPECT_TRUE(IsServedHost(host, hosts)) << host;
  }
  for (const char* host :
       {"", "example.org", "localhost.example.org", "127.0.0.1.example.org", "example.org:80",
        "127.0.0.1:80.example.org", "127.0.0.2", "::1", "localhost:80:80", "[::1", "[", "]", "[]",
        ":80", "[::1]x", "[::2]", "localhost..", "x.cam.example", "0.0.0.0"}) {
    EXPECT_FALSE(IsServedHost(host, hosts)) << host;
  }
  EXPECT_FALSE(IsServedHost("", {.address = "", .loopback = true, .names = {}}));
  EXPECT_FALSE(IsServedHost("[]", {.address = "", .loopback = true, .names = {}}));
}

TEST(IsServedHost, TakesAddressesButNoNamesOfOthers) {
  const ServedHosts hosts = {"0.0.0.0", false, {"pi", "pi.local"}};
  for (const char* host : {"localhost", "192.168.1.5:8080", "[fe80::1]:80", "[::ffff:1.2.3.4]",
                           "PI:8080", "pi.local", "10.0.0.1"}) {
    EXPECT_TRUE(IsServedHost(host, hosts)) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8080", "192.168.1.5.evil.example", "", ":",
                           "192.168.1", "192.168.1.5.", "0x7f.1", "[evil.example]", "[1.2.3.4]",
                           "fe80::1", "pi.evil", "pi.local.evil", "[::1%lo]", "1.2.3.4:80x"}) {
    EXPECT_FALSE(IsServedHost(host, hosts)) << host;
  }
}

TEST(IsForeign, TellsLinksFromWhatPagesLoad) {
  const auto foreign = [](const std::string& headers) {
    HttpRequest request;
    HttpRefusal refusal;
    EXPECT_EQ(
        ParseRequest("GET / HTTP/1.1\r\nHost: cam:80\r\n" + headers + "\r\n", &request, &refusal),
        ParseState::kComplete);
    return IsForeign(request, "http");
  };
  EXPECT_FALSE(foreign(""));
  EXPECT_FALSE(foreign("Origin: http://cam:80\r\nSec-Fetch-Site: same-origin\r\n"));
  EXPECT_FALSE(foreign("Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n"));
  EXPECT_FALSE(
      foreign("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"
              "Sec-Fetch-Dest: document\r\n"));
  EXPECT_TRUE(foreign("Origin: http://cam\r\n"));
  EXPECT_TRUE(foreign("Origin: https://evil.example\r\n"));
  EXPECT_TRUE(foreign("origin: null\r\n"));
  EXPECT_TRUE(foreign("Origin: http://cam:80\r\nOrigin: http://cam:80\r\n"));
  EXPECT_TRUE(
      foreign("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"
              "Sec-Fetch-Dest: image\r\n"));
  EXPECT_TRUE(foreign("Sec-Fetch-Site: same-site\r\n"));
  EXPECT_TRUE(foreign("Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site\r\n"));
  EXPECT_TRUE(
      foreign("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"
              "Sec-Fetch-Dest: iframe\r\n"));
}

// Of whatever a stranger sends, in one piece.
TEST(ParseRequest, TakesMemoryInProportion) {
  for (const char* part : {"a", "\r\n", "a: b\r\n", "Host: a\r\n", "&", "%41", ":", " "}) {
    for (const char* begin : {"", "GET /", "GET / HTTP/1.1\r\n", "GET /?"}) {
      std::string bytes = begin;
      while (bytes.size() < 1 << 20) bytes += part;
      const AllocationMeter meter;
      HttpRequest request;
      HttpRefusal refusal;
      (void)ParseRequest(bytes, &request, &refusal);
      EXPECT_LE(meter.peak_bytes(), ProportionalBytes(kMaxRequestBytes)) << begin << part;
    }
  }
}

}  // namespace
}  // namespace atollrt
