// SPDX-License-Identifier: Apache-2.0
#include "serve/http/request_parser.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atollserve {
namespace {

using Progress = HttpRequestParser::Progress;

struct TestClient : HttpRequestParser::Client {
  std::optional<HttpAnswer> OnHead(HttpRequest* head, size_t* body_bytes) override {
    ++heads;
    head->peer.address = "somebody";
    *body_bytes = most_body_bytes;
    if (head->path != "/secret") return std::nullopt;
    return HttpAnswer{.status = 403};
  }
  void OnBody(bool waits) override {
    ++bodies;
    has_to_continue = waits;
  }
  HttpAnswer Refusal(int status, const std::string& sentence) const override {
    return {.status = status, .body = sentence};
  }

  size_t most_body_bytes = 1000;
  int heads = 0, bodies = 0;
  bool has_to_continue = false;
};

constexpr HttpRequestParser::Limits kLimits = {.head_bytes = 150, .body_bytes = 100};
constexpr std::string_view kPost =
    "POST /a/b?c=d HTTP/1.1\r\nHost: x\r\nAccept: one\r\nExpect: 100-continue\r\nACCEPT: two\r\n"
    "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\nTrailer: t\r\n\r\n";
constexpr std::string_view kGet = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

// The status of the answer to `bytes`, which are refused; 0 if they are not.
int StatusOf(std::string_view bytes, TestClient* client, HttpBodyMemory* memory) {
  HttpRequestParser parser(kLimits, memory, client);
  size_t parsed = 0;
  if (parser.Parse(bytes, &parsed) != Progress::kRefused) return 0;
  return parser.TakeRefusal().status;
}

TEST(HttpRequestParser, FindsTheSameRequestsHoweverTheirBytesCome) {
  const std::string both = std::string(kPost) + std::string(kGet);
  for (size_t piece = 1; piece <= both.size(); ++piece) {
    SCOPED_TRACE(piece);
    TestClient client;
    HttpBodyMemory memory = {.most_bytes = 100};
    HttpRequestParser parser(kLimits, &memory, &client);
    std::vector<HttpRequest> requests;
    for (size_t at = 0; at < both.size();) {
      size_t parsed = 0;
      const Progress progress = parser.Parse(std::string_view(both).substr(at, piece), &parsed);
      ASSERT_NE(progress, Progress::kRefused) << parser.TakeRefusal().body;
      at += parsed;
      if (progress == Progress::kIncomplete) continue;
      EXPECT_EQ(parser.keep_alive(), requests.empty());
      EXPECT_EQ(at, requests.empty() ? kPost.size() : both.size());
      requests.push_back(parser.Take());
      parser.Begin();
    }
    ASSERT_EQ(requests.size(), 2u);
    const HttpRequest& post = requests[0];
    EXPECT_EQ(post.method, "POST");
    EXPECT_EQ(post.path, "/a/b");
    EXPECT_EQ(post.query, "c=d");
    EXPECT_EQ(post.Header("accept"), "one, two");
    EXPECT_EQ(post.Header("trailer"), "");
    EXPECT_EQ(post.body, "abcdefg");
    EXPECT_EQ(post.peer.address, "somebody");
    EXPECT_EQ(requests[1].method, "GET");
    EXPECT_EQ(requests[1].body, "");
    EXPECT_EQ(client.heads, 2);
    EXPECT_EQ(client.bodies, 1);
    EXPECT_TRUE(client.has_to_continue);
  }
}

TEST(HttpRequestParser, CountsABodyUntilTheNextRequestOrItsEnd) {
  const std::string_view ten = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789";
  TestClient client;
  HttpBodyMemory memory = {.most_bytes = 19};
  {
    HttpRequestParser parser(kLimits, &memory, &client);
    size_t parsed = 0;
    ASSERT_EQ(parser.Parse(ten, &parsed), Progress::kComplete);
    EXPECT_EQ(parser.Take().body, "0123456789");
    EXPECT_EQ(memory.bytes, 10u);
    EXPECT_EQ(StatusOf(ten, &client, &memory), 503);
    parser.Begin();
    EXPECT_EQ(memory.bytes, 0u);
    ASSERT_EQ(parser.Parse(ten.substr(0, ten.size() - 1), &parsed), Progress::kIncomplete);
    EXPECT_EQ(parser.body_bytes(), 9u);
    EXPECT_EQ(memory.bytes, 9u);
    EXPECT_EQ(StatusOf(ten, &client, &memory), 0);
    EXPECT_EQ(memory.bytes, 9u);
  }
  EXPECT_EQ(memory.bytes, 0u);
}

TEST(HttpRequestParser, RefusesWithWhatItsClientSays) {
  TestClient client;
  HttpBodyMemory memory = {.most_bytes = 1000};
  EXPECT_EQ(StatusOf("GET /secret HTTP/1.1\r\nHost: x\r\n\r\n", &client, &memory), 403);
  EXPECT_EQ(StatusOf("nonsense\r\n\r\n", &client, &memory), 501);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\n\r\n", &client, &memory), 400);
  const auto post = [](int bytes) {
    return "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(bytes) + "\r\n\r\n";
  };
  EXPECT_EQ(StatusOf(post(100), &client, &memory), 0);
  EXPECT_EQ(StatusOf(post(101), &client, &memory), 413);  // the parser's limit stays
  client.most_body_bytes = 20;
  EXPECT_EQ(StatusOf(post(20), &client, &memory), 0);
  EXPECT_EQ(StatusOf(post(21), &client, &memory), 413);
}

}  // namespace
}  // namespace atollserve
