// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "atoll/camera/web.h"
#include "tests/support/eventually.h"
#include "tests/support/rng.h"
#include "tests/support/web_client.h"

namespace atollrt {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// The sanitizers keep what is freed and have shadows of all memory; code is slow under them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

StreamServerOptions FastOptions() {
  StreamServerOptions options;
  options.port = 0;
  options.status = [] {
    PipelineStatus status;
    status.source = "a test";
    status.running = true;
    return status;
  };
  return options;
}

std::unique_ptr<StreamServer> StartServer(StreamServerOptions options = FastOptions()) {
  auto server = StreamServer::Start(std::move(options));
  if (!server.ok()) {
    ADD_FAILURE() << server.status().message();
    std::abort();
  }
  return *std::move(server);
}

// A frame of so many bytes, which say its number.
std::vector<uint8_t> FrameOf(uint32_t number, size_t size = 100) {
  std::vector<uint8_t> frame(size, static_cast<uint8_t>(number));
  for (int i = 0; i < 4; ++i) frame[i] = static_cast<uint8_t>(number >> (8 * i));
  return frame;
}
uint32_t NumberOf(const std::string& frame) {
  uint32_t number = 0;
  for (int i = 3; i >= 0; --i) number = number << 8 | static_cast<uint8_t>(frame[i]);
  return number;
}

// A viewer of the stream, past the head of its answer.
class Viewer {
 public:
  explicit Viewer(int port, int receive_buffer_bytes = 0, const std::string& query = "")
      : client_(port, receive_buffer_bytes) {
    client_.Send(GetRequest("/stream.mjpg" + query));
    head_ = ReadHead(&client_);
    if (head_.status == 200) {
      EXPECT_EQ(client_.ReadThrough("\r\n"), "--atollframe\r\n");
    }
  }
  const WebAnswer& head() const { return head_; }
  // The next frame; empty at the end.
  std::string Next() {
    const std::string head = client_.ReadThrough("\r\n\r\n");
    const std::string length = "Content-Type: image/jpeg\r\nContent-Length: ";
    if (!head.starts_with(length)) return {};
    const size_t size = std::stoul(head.substr(length.size()));
    std::string frame = client_.Read(size);
    const std::string end = "\r\n--atollframe\r\n";
    return frame.size() == size && client_.Read(end.size()) == end ? frame : std::string();
  }

 private:
  WebClient client_;
  WebAnswer head_;
};

size_t ResidentBytes() {
  size_t all = 0, resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  EXPECT_EQ(std::fscanf(file, "%zu %zu", &all, &resident), 2);
  std::fclose(file);
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// ---- Routes -------------------------------------------------------------------------------------

void ExpectSafeHeaders(const WebAnswer& answer) {
  const auto& headers = answer.headers;
  const auto value = [&](const char* name) {
    return headers.contains(name) ? headers.at(name) : "(none)";
  };
  EXPECT_EQ(value("x-content-type-options"), "nosniff");
  EXPECT_EQ(value("cache-control"), "no-store");
  EXPECT_EQ(value("referrer-policy"), "no-referrer");
  EXPECT_EQ(value("cross-origin-resource-policy"), "same-origin");
  EXPECT_THAT(value("content-security-policy"), HasSubstr("default-src 'self';"));
  EXPECT_EQ(value("connection"), "close");
  for (const auto& [name, text] : headers) EXPECT_FALSE(name.starts_with("access-control")) << name;
}

TEST(StreamServer, ServesThePageAndItsFiles) {
  const auto server = StartServer();
  const struct {
    const char *path, *type, *text;
  } cases[] = {{"/", "text/html; charset=utf-8", "<title>atoll camera</title>"},
               {"/?x=1", "text/html; charset=utf-8", "<title>atoll camera</title>"},
               {"/page.js", "text/javascript; charset=utf-8", "api/status"},
               {"/style.css", "text/css; charset=utf-8", "prefers-color-scheme"},
               {"/icon.svg", "image/svg+xml", "<svg"},
               {"/metrics", "text/plain; version=0.0.4; charset=utf-8", "atoll_viewers 0\n"},
               {"/api/status", "application/json", "\"source\":\"a test\""}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.path);
    const WebAnswer get = Get(server->port(), one.path);
    EXPECT_EQ(get.status, 200);
    EXPECT_EQ(get.headers.at("content-type"), one.type);
    EXPECT_EQ(get.headers.at("content-length"), std::to_string(get.body.size()));
    EXPECT_THAT(get.body, HasSubstr(one.text));
    ExpectSafeHeaders(get);

    const WebAnswer head = Exchange(
        server->port(), "HEAD " + std::string(one.path) + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.body, "");
    EXPECT_EQ(head.headers.at("content-length"), get.headers.at("content-length"));
  }
}

TEST(StreamServer, LoadsNothingFromElsewhere) {
  const auto server = StartServer();
  for (const char* path : {"/", "/page.js", "/style.css"}) {
    const std::string text = Get(server->port(), path).body;
    EXPECT_EQ(text.find("//", text.find("http")), std::string::npos) << path;
    for (const char* inline_code : {"<script>", "style=\"", "onclick", "<style", "@import"}) {
      EXPECT_EQ(text.find(inline_code), std::string::npos) << path << " has " << inline_code;
    }
  }
}

TEST(StreamServer, RefusesEverythingElse) {
  const auto server = StartServer();
  for (const char* path :
       {"/index.html", "/favicon.ico", "//", "/../etc/passwd", "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd", "/page.js/", "/page/../page.js", "/./page.js", "/page.js%00",
        "/api/status/../../page.js", "/%70age.js", "/PAGE.JS", "/\\..\\page.js", "/stream.mjpg/"}) {
    const WebAnswer answer = Get(server->port(), path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_EQ(answer.headers.at("content-type"), "text/plain; charset=utf-8");
    EXPECT_THAT(answer.body, HasSubstr("There is nothing here")) << path;
    ExpectSafeHeaders(answer);
  }
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"}) {
    const WebAnswer answer = Exchange(
        server->port(), std::string(method) + " /api/status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_EQ(answer.headers.at("allow"), "GET, HEAD");
    ExpectSafeHeaders(answer);
  }
}

TEST(StreamServer, AnswersOnLoopbackForItsNamesOnly) {
  const auto server = StartServer();
  for (const char* host : {"localhost", "127.0.0.1:8080", "[::1]:80"}) {
    EXPECT_EQ(Exchange(server->port(), GetRequest("/api/status", host)).status, 200) << host;
  }
  for (const char* host : {"evil.example", "localhost.evil.example:8080", "10.0.0.1"}) {
    for (const char* path : {"/", "/api/status", "/stream.mjpg", "/nothing"}) {
      const WebAnswer answer = Exchange(server->port(), GetRequest(path, host));
      EXPECT_EQ(answer.status, 421) << host;
      EXPECT_THAT(answer.body, HasSubstr(server->url()));
    }
  }
}

TEST(StreamServer, AnswersEverywhereToItsNamesAndAddressesOnly) {
  StreamServerOptions options = FastOptions();
  options.address = "0.0.0.0";
  options.access.insecure = true;
  options.names = {"Camera.example"};
  const auto server = StartServer(std::move(options));
  EXPECT_EQ(server->url(), "http://127.0.0.1:" + std::to_string(server->port()) + "/");
  char own[256] = "";
  ASSERT_EQ(gethostname(own, sizeof(own) - 1), 0);
  const std::string first = std::string(own).substr(0, std::string(own).find('.'));
  for (const std::string& host :
       {std::string("camera.example:8080"), std::string("192.168.1.5"), std::string("localhost"),
        std::string("[fe80::1]:80"), std::string(own) + ":1", first + ".local"}) {
    EXPECT_EQ(Exchange(server->port(), GetRequest("/api/status", host)).status, 200) << host;
  }
  for (const char* host : {"evil.example", "evil.example:8080", "x.camera.example"}) {
    for (const char* path : {"/", "/api/status", "/stream.mjpg", "/snapshot.jpg", "/metrics"}) {
      const WebAnswer answer = Exchange(server->port(), GetRequest(path, host));
      EXPECT_EQ(answer.status, 421) << host;
      EXPECT_THAT(answer.body, HasSubstr("--serve-name"));
    }
  }
  for (const char* bad : {"", "a b", "http://x", "x:80", "[::1]", "x\r\ny"}) {
    StreamServerOptions named = FastOptions();
    named.names = {bad};
    EXPECT_EQ(StreamServer::Start(std::move(named)).code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST(StreamServer, HasNothingForPagesFromElsewhere) {
  const auto server = StartServer();
  const auto ask = [&](const std::string& path, const std::string& headers) {
    return Exchange(server->port(),
                    "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n")
        .status;
  };
  for (const char* path : {"/", "/stream.mjpg", "/snapshot.jpg", "/api/status"}) {
    EXPECT_EQ(ask(path, "Origin: https://evil.example\r\n"), 403) << path;
    EXPECT_EQ(ask(path, "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"), 403) << path;
  }
  EXPECT_EQ(server->viewers().served, 0u) << "nor do they take places";
  const std::string link =
      "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
  EXPECT_EQ(ask("/", link), 200);
  EXPECT_EQ(ask("/api/status", "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\n"), 200);
}

TEST(StreamServer, AsksForTheStatusTenTimesPerSecondAtMost) {
  std::atomic<int> asked = 0;
  StreamServerOptions options = FastOptions();
  options.status = [&] {
    ++asked;
    return PipelineStatus();
  };
  const auto server = StartServer(std::move(options));
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) EXPECT_EQ(Get(server->port(), "/api/status").status, 200);
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(asked, 1);
  EXPECT_LE(asked, took / 100ms + 1);
}

// ---- The stream ---------------------------------------------------------------------------------

TEST(StreamServer, StreamsEveryFrameToAViewerThatKeepsUp) {
  const auto server = StartServer();
  Viewer viewer(server->port());
  EXPECT_EQ(viewer.head().headers.at("content-type"),
            "multipart/x-mixed-replace; boundary=atollframe");
  ExpectSafeHeaders(viewer.head());
  for (uint32_t i = 0; i < 100; ++i) {
    server->Publish(FrameOf(i, 4 + i * 997));
    const std::string frame = viewer.Next();
    ASSERT_EQ(frame.size(), 4 + i * 997);
    EXPECT_EQ(NumberOf(frame), i);
  }
  EXPECT_TRUE(Eventually([&] { return server->viewers().frames_sent == 100; }));
  const ViewerCounts counts = server->viewers();
  EXPECT_EQ(counts.watching, 1);
  EXPECT_EQ(counts.limit, 16);
  EXPECT_EQ(counts.served, 1u);
  EXPECT_EQ(counts.refused, 0u);
  EXPECT_EQ(counts.frames_skipped, 0u);
  EXPECT_GT(counts.bytes_sent, 997u * 4950);
}

TEST(StreamServer, WantsFramesWhileSomebodyLooks) {
  const auto server = StartServer();
  EXPECT_FALSE(server->wants_frames());
  server->Publish(FrameOf(1));  // seen by nobody, now or later
  {
    Viewer first(server->port());
    EXPECT_TRUE(server->wants_frames());
    {
      Viewer second(server->port());
      server->Publish(FrameOf(2));
      EXPECT_EQ(NumberOf(first.Next()), 2u);
      EXPECT_EQ(NumberOf(second.Next()), 2u);
    }
    EXPECT_TRUE(Eventually([&] { return server->viewers().watching == 1; }));
    EXPECT_TRUE(server->wants_frames());
  }
  EXPECT_TRUE(Eventually([&] { return !server->wants_frames(); }));
  EXPECT_EQ(server->viewers().watching, 0);
  EXPECT_EQ(server->viewers().served, 2u);
  // Nor does one that comes later see what is old by then.
  Viewer late(server->port());
  server->Publish(FrameOf(3));
  EXPECT_EQ(NumberOf(late.Next()), 3u);
  // HEAD is no viewer.
  EXPECT_EQ(
      Exchange(server->port(), "HEAD /stream.mjpg HTTP/1.1\r\nHost: localhost\r\n\r\n").status,
      200);
  EXPECT_EQ(server->viewers().served, 3u);
}

TEST(StreamServer, GivesTheNextFrameAsASnapshot) {
  StreamServerOptions options = FastOptions();
  options.snapshot_timeout_ms = 20'000;
  const auto server = StartServer(std::move(options));
  WebClient client(server->port());
  client.Send(GetRequest("/snapshot.jpg"));
  EXPECT_TRUE(Eventually([&] { return server->wants_frames(); }));
  server->Publish(FrameOf(7, 300'000));
  EXPECT_EQ(server->viewers().watching, 0);
  const WebAnswer head = ReadHead(&client);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-type"), "image/jpeg");
  EXPECT_EQ(head.headers.at("content-length"), "300000");
  const std::string frame = client.ReadAll();
  EXPECT_EQ(frame.size(), 300'000u);
  EXPECT_EQ(NumberOf(frame), 7u);
  EXPECT_TRUE(Eventually([&] { return !server->wants_frames(); }));
}

TEST(StreamServer, SaysWhenThereIsNoFrameForASnapshot) {
  StreamServerOptions options = FastOptions();
  options.snapshot_timeout_ms = 50;
  const auto server = StartServer(std::move(options));
  const WebAnswer answer = Get(server->port(), "/snapshot.jpg");
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.headers.at("retry-after"), "5");
  EXPECT_THAT(answer.body, HasSubstr("No frame came within 50 ms"));
  EXPECT_FALSE(server->wants_frames());
}

TEST(StreamServer, TellsAViewerWhetherItWatches) {
  const auto server = StartServer();
  const auto watches = [&](const char* query) {
    const WebAnswer answer = Get(server->port(), std::string("/api/status") + query);
    return nlohmann::json::parse(answer.body)["viewers"]["you_watch"];
  };
  EXPECT_TRUE(watches("").is_null());
  EXPECT_EQ(watches("?viewer=a"), false);
  {
    Viewer viewer(server->port(), 0, "?n=1&viewer=a");
    EXPECT_EQ(watches("?viewer=a"), true);
    EXPECT_EQ(watches("?viewer=b"), false);
  }
  EXPECT_TRUE(Eventually([&] { return watches("?viewer=a") == false; }));
}

TEST(StreamServer, ServesFiftyViewersAndRefusesOneMore) {
  StreamServerOptions options = FastOptions();
  options.max_viewers = 50;
  const auto server = StartServer(std::move(options));
  std::vector<Viewer> viewers;
  for (int i = 0; i < 50; ++i) viewers.emplace_back(server->port());
  const WebAnswer refused = Get(server->port(), "/stream.mjpg");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "5");
  EXPECT_THAT(refused.body, HasSubstr("50 viewers watch already"));
  for (uint32_t i = 0; i < 20; ++i) {
    server->Publish(FrameOf(i, 20'000));
    for (Viewer& viewer : viewers) EXPECT_EQ(NumberOf(viewer.Next()), i);
    // Page, status and snapshots are there for others meanwhile.
    for (const char* path : {"/", "/api/status", "/metrics"}) {
      EXPECT_EQ(Get(server->port(), path).status, 200);
    }
  }
  const ViewerCounts counts = server->viewers();
  EXPECT_EQ(counts.watching, 50);
  EXPECT_EQ(counts.refused, 1u);
  viewers.pop_back();
  EXPECT_TRUE(Eventually([&] { return server->viewers().watching == 49; }));
  Viewer next(server->port());
  EXPECT_EQ(next.head().status, 200) << "the place is free again";
}

TEST(StreamServer, GivesASlowViewerTheNewestFrame) {
  StreamServerOptions options = FastOptions();
  options.write_timeout_ms = 60'000;
  const auto server = StartServer(std::move(options));
  Viewer slow(server->port(), 4096), fast(server->port());
  for (uint32_t i = 0; i < 50; ++i) {
    server->Publish(FrameOf(i, 300'000));
    EXPECT_EQ(NumberOf(fast.Next()), i) << "undisturbed by the slow one";
  }
  // What was on its way is still coming; then the newest.
  int taken = 1;
  while (NumberOf(slow.Next()) != 49) ++taken;
  EXPECT_LT(taken, 10);
  EXPECT_GT(server->viewers().frames_skipped, 30u);
  EXPECT_EQ(server->viewers().dropped, 0u);
}

TEST(StreamServer, DropsAViewerThatNeverReads) {
  StreamServerOptions options = FastOptions();
  options.write_timeout_ms = 200;
  const auto server = StartServer(std::move(options));
  Viewer silent(server->port(), 4096), fast(server->port());
  uint32_t i = 0;
  EXPECT_TRUE(Eventually([&] {
    server->Publish(FrameOf(i, 300'000));
    EXPECT_EQ(NumberOf(fast.Next()), i++);
    return server->viewers().dropped == 1;
  }));
  EXPECT_EQ(server->viewers().watching, 1);
}

TEST(StreamServer, DropsAViewerThatTalks) {
  const auto server = StartServer();
  WebClient client(server->port());
  client.Send(GetRequest("/stream.mjpg"));
  EXPECT_EQ(ReadHead(&client).status, 200);
  client.Send(std::string(1 << 20, 'x'));
  EXPECT_TRUE(Eventually([&] { return server->viewers().watching == 0; }));
}

TEST(StreamServer, KeepsItsMemory) {
  constexpr int kFrames = kSanitized ? 1000 : 20'000;
  const auto server = StartServer();
  Viewer viewer(server->port());
  uint32_t number = 0;
  const auto publish = [&](int count) {
    for (int i = 0; i < count; i += 4) {
      for (int j = 0; j < 4; ++j) server->Publish(FrameOf(++number, 100'000));
      std::string frame;
      do {
        frame = viewer.Next();
        ASSERT_EQ(frame.size(), 100'000u);
      } while (NumberOf(frame) != number);
    }
  };
  publish(kFrames / 20);
  const size_t before = ResidentBytes();
  publish(kFrames);
  const size_t after = ResidentBytes();
  if (!kSanitized) {
    EXPECT_LT(after, before + 1'000'000);
  }
  EXPECT_GE(server->viewers().frames_sent, kFrames / 4u);
  std::printf("%d frames of 100 kB, %llu of them sent: %+.1f kB\n", kFrames,
              static_cast<unsigned long long>(server->viewers().frames_sent),
              (static_cast<double>(after) - static_cast<double>(before)) / 1e3);
}

// ---- Clients that are up to no good -------------------------------------------------------------

TEST(StreamServer, SurvivesOversizedRequests) {
  const auto server = StartServer();
  const int port = server->port();
  const size_t before = ResidentBytes();
  EXPECT_EQ(Exchange(port, "GET /" + std::string(1 << 20, 'a')).status, 414);
  EXPECT_EQ(Exchange(port, "GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(1 << 20, 'a')).status,
            431);
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 50'000; ++i) many += "a: b\r\n";
  EXPECT_EQ(Exchange(port, many).status, 431);
  const std::string body(64 << 20, 'x');
  const std::string length = "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n";
  for (const char* method : {"GET", "POST"}) {
    WebClient client(port);
    client.Send(std::string(method) + " / HTTP/1.1\r\nHost: localhost\r\n" + length);
    const WebAnswer answer = ReadHead(&client);
    EXPECT_EQ(answer.status, *method == 'G' ? 413 : 405);
    client.Send(body);  // what is not read by then is cut off
  }
  EXPECT_EQ(Get(port, "/").status, 200);
  if (!kSanitized) {
    EXPECT_LT(ResidentBytes(), before + body.size() + (8 << 20));
  }
}

TEST(StreamServer, SurvivesGarbage) {
  const auto server = StartServer();
  Rng rng(TestSeed(1));
  for (int i = 0; i < TestCount(300); ++i) {
    std::string bytes = i % 3 == 0 ? "GET / HTTP/1.1\r\n" : "";
    for (int64_t j = rng.Int(1, 400); j > 0; --j) bytes += static_cast<char>(rng.Int(0, 255));
    WebClient client(server->port());
    client.Send(bytes + "\n\n");
    if (i % 2 == 0) {
      EXPECT_GE(ReadHead(&client).status, 400);
    }
  }
  EXPECT_EQ(Exchange(server->port(), "\n").status, 400);
  EXPECT_EQ(Exchange(server->port(), std::string("GET /\0 HTTP/1.1\r\n\r\n", 20)).status, 400);
  EXPECT_EQ(Get(server->port(), "/").status, 200);
}

TEST(StreamServer, EndsRequestsThatTakeTooLong) {
  StreamServerOptions options = FastOptions();
  options.request_timeout_ms = 200;
  const auto server = StartServer(std::move(options));
  WebClient silent(server->port()), slow(server->port());
  // A byte at a time, none of which starts the time anew.
  std::thread trickle([&] {
    for (const char c :
         std::string("GET / HTTP/1.1\r\nHost: localhost\r\nX: ") + std::string(1000, 'x')) {
      if (!slow.Send(std::string(1, c))) return;
      std::this_thread::sleep_for(10ms);
    }
    ADD_FAILURE() << "was never stopped";
  });
  EXPECT_EQ(Get(server->port(), "/").status, 200) << "others are not kept waiting";
  const WebAnswer answer = ReadHead(&silent);
  EXPECT_EQ(answer.status, 408);
  EXPECT_THAT(silent.ReadAll(), HasSubstr("200 ms"));
  trickle.join();
}

TEST(StreamServer, AnswersThoughIdleConnectionsTakeAllPlaces) {
  StreamServerOptions options = FastOptions();
  options.max_viewers = 1;
  options.max_requests = 2;
  options.request_timeout_ms = 60'000;
  const auto server = StartServer(std::move(options));
  Viewer viewer(server->port());
  std::vector<WebClient> idle;
  for (int i = 0; i < 40; ++i) {
    idle.emplace_back(server->port()).Send("GET / HTTP/1.1\r\n");
  }
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Get(server->port(), "/api/status").status, 200);
  server->Publish(FrameOf(1));
  EXPECT_EQ(NumberOf(viewer.Next()), 1u) << "viewers do not give way";
}

TEST(StreamServer, AnswersThoughSnapshotsAreWaitedFor) {
  StreamServerOptions options = FastOptions();
  options.snapshot_timeout_ms = 3'600'000;
  options.write_timeout_ms = 3'600'000;
  const auto server = StartServer(std::move(options));
  // As many as there are places in all, none of which has what it waits for until the end.
  std::vector<WebClient> snapshots;
  for (int i = 0; i < 48; ++i) {
    snapshots.emplace_back(server->port(), 4096).Send(GetRequest("/snapshot.jpg"));
  }
  EXPECT_EQ(Get(server->port(), "/").status, 200);
  EXPECT_EQ(Get(server->port(), "/metrics").status, 200);
  EXPECT_EQ(Get(server->port(), "/snapshot.jpg").status, 503);
  // Nor when they have it and do not take it.
  server->Publish(FrameOf(1, 4'000'000));
  EXPECT_EQ(Get(server->port(), "/").status, 200);
  EXPECT_EQ(Get(server->port(), "/snapshot.jpg").status, 503);
  int answered = 0;
  for (WebClient& snapshot : snapshots) {
    const WebAnswer answer = ReadHead(&snapshot);
    if (answer.status != 200) continue;
    EXPECT_EQ(snapshot.ReadAll().size(), 4'000'000u);
    ++answered;
  }
  EXPECT_EQ(answered, 16);
  EXPECT_EQ(Get(server->port(), "/").status, 200);
}

TEST(StreamServer, WaitsForDescriptorsThatAreUsedUp) {
  const auto server = StartServer();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);
  close(next);
  // Both ends of the first connection and our end of the second.
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(next) + 3;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &tight), 0);
  auto first = std::make_unique<WebClient>(server->port());
  first->Send(GetRequest("/stream.mjpg"));
  EXPECT_EQ(ReadHead(first.get()).status, 200);
  WebClient second(server->port());
  second.Send(GetRequest("/"));
  timespec cpu{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
  std::this_thread::sleep_for(300ms);
  timespec later{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &later);
  const auto ms = [](const timespec& time) { return time.tv_sec * 1000 + time.tv_nsec / 1000000; };
  EXPECT_LT(ms(later) - ms(cpu), 150) << "it does not spin meanwhile";
  first.reset();
  EXPECT_EQ(ReadHead(&second).status, 200);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(StreamServer, EndsAtOnceWhateverItsViewersDo) {
  StreamServerOptions options = FastOptions();
  options.snapshot_timeout_ms = 60'000;
  options.request_timeout_ms = 60'000;
  options.write_timeout_ms = 60'000;
  auto server = StartServer(std::move(options));
  std::vector<Viewer> silent;
  for (int i = 0; i < 8; ++i) silent.emplace_back(server->port(), 4096);
  for (uint32_t i = 0; i < 20; ++i) server->Publish(FrameOf(i, 2'000'000));
  WebClient idle(server->port()), snapshot(server->port());
  snapshot.Send(GetRequest("/snapshot.jpg"));
  const int port = server->port();
  const auto start = std::chrono::steady_clock::now();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  EXPECT_EQ(idle.ReadAll(), "");

  StreamServerOptions same = FastOptions();
  same.port = port;
  EXPECT_EQ(Get(StartServer(std::move(same))->port(), "/").status, 200) << "the port is free";
}

TEST(StreamServer, TakesFramesFromAnotherThread) {
  for (int i = 0; i < 5; ++i) {
    const auto server = StartServer();
    Viewer viewer(server->port());
    std::atomic<bool> stop = false;
    std::thread camera([&, raw = server.get()] {
      while (!stop) raw->Publish(FrameOf(1, 50'000));
    });
    EXPECT_EQ(viewer.Next().size(), 50'000u);
    stop = true;
    camera.join();
  }
}

// ---- Start --------------------------------------------------------------------------------------

TEST(StreamServer, SaysWhyItCannotStart) {
  const auto error = [](const std::function<void(StreamServerOptions*)>& change) {
    StreamServerOptions options = FastOptions();
    change(&options);
    auto server = StreamServer::Start(std::move(options));
    return server.ok() ? Status() : server.status();
  };
  const auto server = StartServer();
  const Status taken = error([&](auto* options) { options->port = server->port(); });
  EXPECT_EQ(taken.code(), StatusCode::kDeviceBusy);
  EXPECT_EQ(taken.message(), "cannot listen on 127.0.0.1:" + std::to_string(server->port()) +
                                 ": Address already in use; choose another one; port 0 is any that "
                                 "is free");
  EXPECT_EQ(error([](auto* options) { options->port = 65536; }).message(),
            "port 65536: ports are 0, for any that is free, to 65535");
  EXPECT_EQ(error([](auto* options) { options->port = -1; }).code(), StatusCode::kInvalidArgument);
  const Status elsewhere = error([](auto* options) { options->address = "192.0.2.1"; });
  EXPECT_EQ(elsewhere.code(), StatusCode::kNotFound);
  EXPECT_THAT(elsewhere.message(), HasSubstr("192.0.2.1:0: Cannot assign requested address"));
  EXPECT_EQ(error([](auto* options) { options->address = "256.1.1.1."; }).code(),
            StatusCode::kNotFound);
  EXPECT_EQ(error([](auto* options) { options->address = ""; }).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(error([](auto* options) { options->max_viewers = 0; }).message(),
            "max_viewers is 0, must be 1 to 1024");
  EXPECT_EQ(error([](auto* options) { options->write_timeout_ms = 0; }).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(error([](auto* options) { options->status = nullptr; }).code(),
            StatusCode::kInvalidArgument);
}

TEST(StreamServer, ListensElsewhereWithWhatThatNeedsOnly) {
  const auto error = [](const StreamServerAccess& access) {
    StreamServerOptions options = FastOptions();
    options.address = "0.0.0.0";
    options.access = access;
    auto server = StreamServer::Start(std::move(options));
    return server.ok() ? Status() : server.status();
  };
  EXPECT_EQ(error({}).code(), StatusCode::kPermissionDenied);
  EXPECT_THAT(error({}).message(), HasSubstr("--tls-cert"));
  EXPECT_TRUE(error({.insecure = true}).ok());
  const std::string file = testing::TempDir() + "stream_server_test_token";
  std::ofstream(file) << "0123456789abcdef\n";
  EXPECT_EQ(error({.token_file = file}).code(), StatusCode::kPermissionDenied) << "without TLS";
  EXPECT_EQ(error({.token_file = file + ".absent"}).code(), StatusCode::kNotFound);
  EXPECT_EQ(error({.tls_certificate = file}).code(), StatusCode::kInvalidArgument);
  const Status no_certificate = error({.tls_certificate = file, .tls_key = file});
  EXPECT_THAT(no_certificate.message(), HasSubstr(file)) << "or what says that there is no TLS";
}

TEST(StreamServer, AsksForTheTokenOnLoopbackToo) {
  const std::string file = testing::TempDir() + "stream_server_test_token";
  std::ofstream(file) << "0123456789abcdef\n";
  StreamServerOptions options = FastOptions();
  options.access.token_file = file;
  const auto server = StartServer(std::move(options));
  const auto ask = [&](const std::string& path, const std::string& authorization) {
    return Exchange(server->port(),
                    "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + authorization + "\r\n");
  };
  for (const char* path :
       {"/", "/page.js", "/stream.mjpg", "/snapshot.jpg", "/api/status", "/metrics", "/nothing"}) {
    const WebAnswer answer = ask(path, "");
    EXPECT_EQ(answer.status, 401) << path;
    EXPECT_EQ(answer.headers.at("www-authenticate"), "Basic realm=\"Atoll\"");
    ExpectSafeHeaders(answer);
  }
  EXPECT_EQ(server->viewers().served, 0u);
  EXPECT_EQ(ask("/metrics", "Authorization: Bearer 0123456789abcdeg\r\n").status, 401);
  EXPECT_EQ(ask("/metrics", "Authorization: Bearer 0123456789abcdef\r\n").status, 200);
  // "me:0123456789abcdef", and with another last letter.
  EXPECT_EQ(ask("/", "Authorization: Basic bWU6MDEyMzQ1Njc4OWFiY2RlZg==\r\n").status, 200);
  EXPECT_EQ(ask("/", "Authorization: Basic bWU6MDEyMzQ1Njc4OWFiY2Rlaw==\r\n").status, 401);
}

TEST(StreamServer, ListensOnNamesAndOnIpv6) {
  StreamServerOptions options = FastOptions();
  options.address = "localhost";
  EXPECT_THAT(StartServer(std::move(options))->url(), HasSubstr(":"));
  for (const char* address : {"::1", "[::1]"}) {
    StreamServerOptions v6 = FastOptions();
    v6.address = address;
    auto server = StreamServer::Start(std::move(v6));
    if (!server.ok()) {
      EXPECT_THAT(server.status().message(), HasSubstr("cannot listen on [::1]:0")) << "no IPv6";
      continue;
    }
    EXPECT_EQ((*server)->url(), "http://[::1]:" + std::to_string((*server)->port()) + "/");
  }
}

}  // namespace
}  // namespace atollrt
