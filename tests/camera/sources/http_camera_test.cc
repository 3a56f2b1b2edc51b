// SPDX-License-Identifier: Apache-2.0
#include "camera/sources/http_camera.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/login.h"
#include "tests/support/allocation_meter.h"

namespace atollrt {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(CameraUrl, HasItsParts) {
  const Result<CameraUrl> url = ParseCameraUrl("HTTP://me:p%40ss:w@[::1]:8080?a=1#part");
  ASSERT_TRUE(url.ok()) << url.status().message();
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->port, 8080);
  EXPECT_EQ(url->path, "/?a=1");
  EXPECT_EQ(url->login, "me:p@ss:w");
  EXPECT_EQ(url->Name(), "http://[::1]:8080/?...");
  EXPECT_EQ(ParseCameraUrl("http://cam/x")->Name(), "http://cam/x");
  EXPECT_EQ(ParseCameraUrl("http://me@cam")->login, "me:");
  for (const char* bad : {"http://", "http:///x", "http://@/x", "http://cam:0", "http://cam:65536",
                          "http://cam:", "http://cam/a b", "http://cam/\r\nX: y", "http://[]/"}) {
    EXPECT_FALSE(ParseCameraUrl(bad).ok()) << bad;
  }
}

TEST(CameraUrl, ForgetsLogins) {
  EXPECT_EQ(WithoutLogin("rtsp://a:b@cam/x?pwd=1"), "rtsp://cam/x?...");
  EXPECT_EQ(WithoutLogin("http://a:b/c@d@cam/x"), "http://cam/x");
  EXPECT_EQ(WithoutLogin("a:b@cam/x"), "cam/x");
  EXPECT_EQ(WithoutLogin("folder/a@b.mjpeg"), "folder/a@b.mjpeg");
}

// Up to the slash it would be a host and a port.
TEST(CameraUrl, KnowsPasswordsThatLookLikePorts) {
  for (const char* bad : {"http://me:80/secret@cam/x", "http://me:80#secret@cam/x"}) {
    const Result<CameraUrl> url = ParseCameraUrl(bad);
    ASSERT_FALSE(url.ok()) << bad;
    EXPECT_THAT(url.status().message(), AllOf(HasSubstr("'http://cam/x': in a login, write / as"),
                                              Not(HasSubstr("secret"))));
  }
  EXPECT_EQ(ParseCameraUrl("http://me:80%2Fw@cam/x@y")->login, "me:80/w");
  EXPECT_EQ(ParseCameraUrl("http://cam/x@y")->path, "/x@y");
  EXPECT_EQ(ParseCameraUrl("http://cam:80/x?a@b")->path, "/x?a@b");
}

TEST(CameraRequest, NamesTheHostAndTheLogin) {
  EXPECT_THAT(FormatCameraRequest(*ParseCameraUrl("http://a:b@cam:81/x?y")),
              AllOf(StartsWith("GET /x?y HTTP/1.1\r\nHost: cam:81\r\n"),
                    HasSubstr("\r\nAuthorization: Basic YTpi\r\n\r\n")));
  EXPECT_THAT(FormatCameraRequest(*ParseCameraUrl("http://cam/")),
              AllOf(HasSubstr("\r\nHost: cam\r\n"), Not(HasSubstr("Authorization"))));
}

TEST(FollowRedirect, StaysWithTheServer) {
  const CameraUrl from = *ParseCameraUrl("http://a:b@Cam:81/one/two?three");
  const auto path = [&](std::string_view location) {
    const Result<CameraUrl> to = FollowRedirect(from, location);
    if (!to.ok()) return to.status().message();
    EXPECT_EQ(to->login, "a:b");
    return to->path;
  };
  EXPECT_EQ(path("/x"), "/x");
  EXPECT_EQ(path("x?y=:"), "/one/x?y=:");
  EXPECT_EQ(path("?z"), "/one/two?z");
  EXPECT_EQ(path("http://cAM:81/x#y"), "/x");
  EXPECT_EQ(path("http://c:d@cam:81/x"), "/x");
  for (const char* elsewhere :
       {"http://cam/x", "http://cam:82/x", "http://other:81/x", "http://cam:81@other/x"}) {
    EXPECT_THAT(path(elsewhere), HasSubstr("to another server, http://")) << elsewhere;
  }
  for (const char* other : {"https://cam:81/x", "//other/x", "ftp:x", "", "/x y", "/\xff"}) {
    EXPECT_THAT(path(other), HasSubstr("which is not followed")) << other;
  }
  EXPECT_THAT(path("https://u:secret@cam/x?pwd=secret"), Not(HasSubstr("secret")));
}

// The body and, behind a |, how it ended. Whatever pieces it arrives in, that is the same.
std::string Received(const std::string& bytes) {
  std::string all;
  for (const size_t piece : {bytes.size(), size_t{1}, size_t{7}}) {
    CameraAnswer answer;
    std::vector<uint8_t> body;
    Status status;
    for (size_t at = 0; at < bytes.size() && status.ok(); at += piece) {
      const size_t size = std::min(piece, bytes.size() - at);
      status = answer.Receive({reinterpret_cast<const uint8_t*>(bytes.data()) + at, size}, &body);
    }
    if (status.ok() && answer.has_head()) status = answer.Check();
    std::string text(body.begin(), body.end());
    text += "|" + (status.ok() ? answer.ended() ? "ended" : "open" : status.message());
    EXPECT_TRUE(all.empty() || all == text) << all << " is not " << text;
    all = text;
  }
  return all;
}

TEST(CameraAnswer, HasABody) {
  EXPECT_EQ(Received("HTTP/1.0 200\r\n\r\nabc"), "abc|open");
  EXPECT_EQ(Received("HTTP/1.1 200 OK\nContent-Length: 3\n\nabcdef"), "abc|ended");
  EXPECT_EQ(Received("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nabc"), "|ended");
  EXPECT_EQ(Received("HTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 200 OK\r\n\r\nabc"), "abc|open");
  EXPECT_EQ(Received("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
                     "2;x=y\r\nab\r\n0A\r\ncdefghijkl\r\n0\r\nmore: headers\r\n\r\nrest"),
            "abcdefghijkl|ended");
}

TEST(CameraAnswer, SaysWhatIsWrong) {
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(Received(chunked + "x\r\n"),
            "|the camera's answer has a chunk whose size is no number");
  EXPECT_EQ(Received(chunked + "fffffffffffffffff\r\n"),
            "|the camera's answer has a chunk whose size is no number");
  EXPECT_EQ(Received(chunked + "1\r\nab\r\n"), "a|the camera's answer has a chunk without an end");
  EXPECT_EQ(Received("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
            "|the camera's answer has a length that is no number");
  EXPECT_EQ(Received("HTTP/2 200 OK\r\n\r\n"), "|the camera does not answer in HTTP");
  EXPECT_EQ(Received("HTTP/1.1 2000\r\n\r\n"), "|the camera does not answer in HTTP");
  EXPECT_EQ(Received("HTTP/1.1 503 No\r\n\r\n"),
            "|the camera answers with HTTP status 503; start it again, or try later");
  EXPECT_EQ(Received("HTTP/1.1 410 Gone\r\n\r\n"),
            "|the camera answers with HTTP status 410; look up the address of its MJPEG stream");
  EXPECT_THAT(Received("HTTP/1.1 401 No\r\nWWW-Authenticate: Digest realm=x\r\n\r\n"),
              HasSubstr("a login of a kind that is not spoken here"));
  EXPECT_THAT(Received("HTTP/1.1 200 OK\r\nContent-Type: Text/HTML; x\r\n\r\n"),
              HasSubstr("there is a page or a text"));
  EXPECT_THAT(Received("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"),
              HasSubstr("is compressed"));
}

TEST(CameraAnswer, TakesNoMemoryWithoutBound) {
  const std::string begin = "HTTP/1.1 200 OK\r\n";
  const std::string chunked = begin + "Transfer-Encoding: chunked\r\n\r\n";
  const std::pair<std::string, std::string> endless[] = {
      {begin, "a: b\r\n"}, {begin, "x"},
      {"", "x"},           {"", "HTTP/1.1 100 Continue\r\n\r\n"},
      {chunked, "0"},      {chunked + "0\r\n", "a: b\r\n"},
      {chunked, "1;x"},    {begin, "www-authenticate: x\r\n"},
  };
  for (const auto& [first, repeated] : endless) {
    std::string piece;
    while (piece.size() < 4096) piece += repeated;
    std::vector<uint8_t> body;
    const MemoryLimit limit(1 << 18);
    CameraAnswer answer;
    const auto receive = [&](const std::string& text) {
      return answer.Receive({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, &body);
    };
    Status status = receive(first);
    for (int i = 0; i < 1000 && status.ok(); ++i) status = receive(piece);
    EXPECT_FALSE(status.ok()) << repeated;
    EXPECT_TRUE(answer.ended());
    EXPECT_TRUE(body.empty());
  }
}

}  // namespace
}  // namespace atollrt
