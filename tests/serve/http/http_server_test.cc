// SPDX-License-Identifier: Apache-2.0
#include "serve/http/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <thread>

#include "tests/support/eventually.h"

namespace atollserve {
namespace {

using namespace std::chrono_literals;
using atollrt::Eventually;
using atollrt::FileDescriptor;

constexpr auto kLong = 60s;

// One connection, as a client.
class Client {
 public:
  explicit Client(const Listener& listener) {
    sockaddr_storage address{};
    socklen_t size = 0;
    if (listener.is_unix) {
      auto& at = reinterpret_cast<sockaddr_un&>(address);
      at.sun_family = AF_UNIX;
      std::strcpy(at.sun_path, listener.address.c_str());
      size = sizeof(at);
    } else {
      auto& at = reinterpret_cast<sockaddr_in&>(address);
      at.sin_family = AF_INET;
      at.sin_port = htons(static_cast<uint16_t>(listener.port));
      inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
      size = sizeof(at);
    }
    socket_ = FileDescriptor(::socket(address.ss_family, SOCK_STREAM, 0));
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  }
  bool Send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  void HalfClose() { shutdown(socket_.get(), SHUT_WR); }
  void Close() { socket_ = FileDescriptor(); }
  // What comes until `end` is there, or the other side closes.
  std::string ReadUntil(std::string_view end) {
    while (end.empty() || text_.find(end) == std::string::npos) {
      pollfd one = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
      if (poll(&one, 1, 60'000) <= 0) return ADD_FAILURE() << "nothing comes", text_;
      char bytes[4096];
      const ssize_t got = recv(socket_.get(), bytes, sizeof(bytes), 0);
      if (got <= 0) return std::exchange(text_, "");
      text_.append(bytes, static_cast<size_t>(got));
    }
    const size_t size = text_.find(end) + end.size();
    std::string read = text_.substr(0, size);
    text_.erase(0, size);
    return read;
  }
  std::string ReadAll() { return ReadUntil(""); }

 private:
  FileDescriptor socket_;
  std::string text_;
};

void Echo(const HttpRequest& request, const HttpResponder& responder) {
  responder.Send({.status = 200,
                  .content_type = "text/plain",
                  .body = request.method + " " + request.path + "?" + request.query + " [" +
                          request.body + "]\n",
                  .headers = {}});
}

std::unique_ptr<HttpServer> Serve(HttpServerOptions options, HttpHandler handler,
                                  const std::string& where = "127.0.0.1:0") {
  auto listener = ListenAt(where);
  EXPECT_TRUE(listener.ok()) << listener.status().message();
  auto server = HttpServer::Start(std::move(*listener), std::move(options), std::move(handler));
  EXPECT_TRUE(server.ok());
  return std::move(*server);
}

TEST(HttpServer, AnswersSeveralRequestsOnOneConnection) {
  const auto server = Serve({}, Echo);
  Client client(server->listeners()[0]);
  client.Send("GET /a%2Fb?x=1 HTTP/1.1\r\nHost: h\r\n\r\n");
  const std::string first = client.ReadUntil("]\n");
  EXPECT_TRUE(first.starts_with("HTTP/1.1 200 OK\r\n")) << first;
  EXPECT_NE(first.find("\r\n\r\nGET /a%2Fb?x=1 []\n"), std::string::npos) << first;
  EXPECT_NE(first.find("Connection: keep-alive\r\n"), std::string::npos);
  client.Send("POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe");
  client.Send("llo");
  EXPECT_NE(client.ReadUntil("]\n").find("POST /p? [hello]\n"), std::string::npos);
  client.Send("HEAD /h HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  const std::string head = client.ReadAll();
  EXPECT_NE(head.find("Content-Length: 12\r\n"), std::string::npos) << head;
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
}

TEST(HttpServer, TakesChunkedBodies) {
  const auto server = Serve({}, Echo);
  Client client(server->listeners()[0]);
  client.Send(
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: t\r\n\r\n");
  EXPECT_NE(client.ReadUntil("]\n").find("[abcde]\n"), std::string::npos);
}

TEST(HttpServer, AnswersPipelinedRequestsInTheirOrder) {
  const auto server = Serve({}, Echo);
  Client client(server->listeners()[0]);
  std::string requests;
  for (int i = 0; i < 500; ++i) {
    requests +=
        "POST /" + std::to_string(i) + " HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab";
  }
  std::thread sender([&] { client.Send(requests); });
  for (int i = 0; i < 500; ++i) {
    const std::string answer = client.ReadUntil("]\n");
    ASSERT_NE(answer.find("POST /" + std::to_string(i) + "? [ab]\n"), std::string::npos) << answer;
  }
  sender.join();
}

TEST(HttpServer, TakesAnswersFromOtherThreads) {
  std::vector<std::thread> threads;
  std::mutex mutex;
  const auto server = Serve({}, [&](HttpRequest request, HttpResponder responder) {
    const std::lock_guard lock(mutex);
    threads.emplace_back([request = std::move(request), responder] { Echo(request, responder); });
  });
  Client one(server->listeners()[0]), two(server->listeners()[0]);
  one.Send("GET /1 HTTP/1.1\r\nHost: h\r\n\r\n");
  two.Send("GET /2 HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(two.ReadUntil("]\n").find("GET /2"), std::string::npos);
  EXPECT_NE(one.ReadUntil("]\n").find("GET /1"), std::string::npos);
  const std::lock_guard lock(mutex);
  for (std::thread& thread : threads) thread.join();
}

TEST(HttpServer, SendsLargeAnswers) {
  std::string large(20'000'000, 'x');
  for (size_t i = 0; i < large.size(); i += 100) large[i] = static_cast<char>('a' + i / 100 % 26);
  const auto server = Serve({}, [&](HttpRequest, HttpResponder responder) {
    responder.Send({.status = 200, .content_type = "text/plain", .body = large, .headers = {}});
  });
  Client client(server->listeners()[0]);
  client.Send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  const std::string answer = client.ReadAll();
  EXPECT_EQ(answer.substr(answer.find("\r\n\r\n") + 4), large);
}

TEST(HttpServer, SaysContinueOnlyToWhatItTakes) {
  HttpServerOptions options;
  options.limits.body_bytes = 10;
  const auto server = Serve(std::move(options), Echo);
  Client client(server->listeners()[0]);
  client.Send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("abc");
  EXPECT_NE(client.ReadUntil("]\n").find("[abc]"), std::string::npos);
  client.Send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_TRUE(client.ReadAll().starts_with("HTTP/1.1 413 Content Too Large\r\n"));
}

TEST(HttpServer, RefusesWhatIsTooLargeOrNoHttp) {
  HttpServerOptions options;
  options.limits.body_bytes = 1000;
  options.limits.head_bytes = 2000;
  const auto server = Serve(std::move(options), Echo);
  const std::string host = "Host: h\r\n";
  const std::pair<std::string, int> cases[] = {
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 18446744073709551615\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 18446744073709551614\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 99999999999\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
       400},
      {"POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n400\r\n" +
           std::string(1024, 'x') + "\r\n0\r\n\r\n",
       413},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 2\r\nContent-Encoding: gzip\r\n\r\nab", 415},
      {"POST / HTTP/1.1\r\n" + host + "Content-Length: 2\r\nExpect: tea\r\n\r\nab", 417},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + host + "\r\n", 400},
      {"GET / HTTP/2.0\r\n" + host + "\r\n", 505},
      {"GET http://x/ HTTP/1.1\r\n" + host + "\r\n", 400},
      {"CONNECT x:1 HTTP/1.1\r\n" + host + "\r\n", 400},
      {"BREW / HTTP/1.1\r\n" + host + "\r\n", 501},
      {"GET / HTTP/1.1\r\n" + host + "a b: c\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "Content-Length : 5\r\n\r\n", 400},
      {"GET /\xff HTTP/1.1\r\n" + host + "\r\n", 400},
      {"GET / HTTP/1.1\r\n" + host + "x: " + std::string(3000, 'y') + "\r\n\r\n", 431},
      {"GET /" + std::string(3000, 'y') + " HTTP/1.1\r\n", 431},
      {std::string("\x16\x03\x01\x02\x00\x01\x00", 7), 501},
      {std::string("GET /\0 HTTP/1.1\r\n", 17), 400},
  };
  for (const auto& [text, status] : cases) {
    Client client(server->listeners()[0]);
    client.Send(text);
    const std::string answer = client.ReadAll();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 " + std::to_string(status) + " "))
        << text.substr(0, 200) << "\n"
        << answer;
    EXPECT_NE(answer.find("Connection: close\r\n"), std::string::npos) << answer;
  }
  std::string many = "GET / HTTP/1.1\r\n" + host;
  for (int i = 0; i < 200; ++i) many += "a:\r\n";
  Client client(server->listeners()[0]);
  client.Send(many + "\r\n");
  EXPECT_TRUE(client.ReadAll().starts_with("HTTP/1.1 431 "));
}

TEST(HttpServer, IgnoresUpgradesAndPassesOnUnknownHeaders) {
  const auto server = Serve({}, [](HttpRequest request, HttpResponder responder) {
    responder.Send({.status = 200,
                    .content_type = "text/plain",
                    .body = std::string(request.Header("x-many")) + "]\n",
                    .headers = {}});
  });
  Client client(server->listeners()[0]);
  client.Send(
      "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
      "X-Many: 1\r\nx-many: 2\r\n\r\n");
  EXPECT_NE(client.ReadUntil("]\n").find("\r\n\r\n1, 2]\n"), std::string::npos);
}

TEST(HttpServer, AsksBeforeItReadsTheBody) {
  HttpServerOptions options;
  options.admit = [](const HttpRequest& head, size_t* body_bytes) -> std::optional<HttpAnswer> {
    *body_bytes = 4;
    if (head.Header("authorization") == "Bearer t") return std::nullopt;
    return HttpAnswer{.status = 401, .content_type = "text/plain", .body = "no", .headers = {}};
  };
  const auto server = Serve(std::move(options), Echo);
  Client stranger(server->listeners()[0]);
  stranger.Send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n");
  EXPECT_TRUE(stranger.ReadAll().starts_with("HTTP/1.1 401 Unauthorized\r\n"));
  Client known(server->listeners()[0]);
  known.Send(
      "POST / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\nContent-Length: 4\r\n\r\nabcd");
  EXPECT_NE(known.ReadUntil("]\n").find("[abcd]"), std::string::npos);
  known.Send("POST / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\nContent-Length: 5\r\n\r\n");
  EXPECT_TRUE(known.ReadAll().starts_with("HTTP/1.1 413 "));
}

TEST(HttpServer, RefusesAnEndlessBodyAndStillIsHeard) {
  HttpServerOptions options;
  options.limits.body_bytes = 1 << 20;
  const auto server = Serve(std::move(options), Echo);
  Client client(server->listeners()[0]);
  client.Send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 50000000\r\n\r\n");
  client.Send(std::string(50'000'000, 'x'));  // as clients do that look at the answer at the end
  EXPECT_TRUE(client.ReadAll().starts_with("HTTP/1.1 413 "));
}

TEST(HttpServer, DoesNotWaitForSlowClients) {
  HttpServerOptions options;
  // Long enough for a busy computer to send what comes first.
  options.limits.head_timeout = 1500ms;
  options.limits.transfer_timeout = 200ms;
  options.limits.transfer_bytes_per_second = 1 << 30;
  const auto server = Serve(std::move(options), [](HttpRequest, HttpResponder responder) {
    responder.Send({.status = 200,
                    .content_type = "text/plain",
                    .body = std::string(50'000'000, 'x'),
                    .headers = {}});
  });
  const auto connect = [&](std::string_view text) {
    auto client = std::make_unique<Client>(server->listeners()[0]);
    EXPECT_TRUE(client->Send(text));
    return client;
  };
  const auto head = connect("GET / HT");
  const auto body = connect("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nab");
  const auto taker = connect("GET / HTTP/1.1\r\nHost: h\r\n\r\n");  // and reads nothing
  const auto silent = connect("");
  EXPECT_TRUE(head->ReadAll().starts_with("HTTP/1.1 408 "));
  EXPECT_TRUE(body->ReadAll().starts_with("HTTP/1.1 408 "));
  EXPECT_EQ(silent->ReadAll(), "");
  EXPECT_TRUE(Eventually([&] { return server->counts().timeouts >= 3; }))
      << server->counts().timeouts;
  EXPECT_LT(taker->ReadAll().size(), 50'000'000u);
}

TEST(HttpServer, TellsWhenTheClientGoes) {
  std::promise<HttpResponder> asked;
  std::promise<void> gone;
  const auto server = Serve({}, [&](HttpRequest, HttpResponder responder) {
    responder.OnGone([&] { gone.set_value(); });
    asked.set_value(responder);
  });
  Client client(server->listeners()[0]);
  client.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  const HttpResponder responder = asked.get_future().get();
  EXPECT_FALSE(responder.gone());
  client.Close();
  EXPECT_EQ(gone.get_future().wait_for(kLong), std::future_status::ready);
  EXPECT_TRUE(responder.gone());
  responder.Send({});  // nobody is there
}

TEST(HttpServer, AnswersInThePlaceOfAHandlerThatDoesNot) {
  const auto server = Serve({}, [](HttpRequest, HttpResponder) {});
  Client client(server->listeners()[0]);
  client.Send("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  EXPECT_TRUE(client.ReadAll().starts_with("HTTP/1.1 500 "));
}

TEST(HttpServer, HasRoomForNewClientsAsLongAsSomeAreIdle) {
  HttpServerOptions options;
  options.limits.connections = 20;
  std::mutex mutex;
  std::vector<HttpResponder> held;
  const auto server = Serve(std::move(options), [&](HttpRequest request, HttpResponder responder) {
    if (request.path != "/hold") return Echo(request, responder);
    const std::lock_guard lock(mutex);
    held.push_back(responder);
  });
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 300; ++i) {
    clients.push_back(std::make_unique<Client>(server->listeners()[0]));
    clients.back()->Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    ASSERT_NE(clients.back()->ReadUntil("]\n").find("200 OK"), std::string::npos) << i;
  }
  EXPECT_LE(server->counts().connections, 20);
  clients.clear();
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<Client>(server->listeners()[0]));
    clients.back()->Send("GET /hold HTTP/1.1\r\nHost: h\r\n\r\n");
  }
  const auto held_count = [&] {
    const std::lock_guard lock(mutex);
    return held.size();
  };
  ASSERT_TRUE(Eventually([&] { return held_count() == 20; })) << held_count();
  Client late(server->listeners()[0]);
  EXPECT_TRUE(late.ReadAll().starts_with("HTTP/1.1 503 "));
  EXPECT_EQ(server->counts().refused_connections, 1);
}

TEST(HttpServer, LimitsTheMemoryOfAllBodies) {
  HttpServerOptions options;
  options.limits.buffered_bytes = 100'000;
  const auto server = Serve(std::move(options), Echo);
  Client first(server->listeners()[0]), second(server->listeners()[0]);
  first.Send("POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 90000\r\n\r\n");
  first.Send(std::string(80'000, 'a'));
  second.Send("POST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 90000\r\n\r\n");
  second.Send(std::string(80'000, 'b'));
  // Whose bytes come last is refused; the other one goes on, and then there is room again.
  const std::string refused = second.ReadAll();
  ASSERT_TRUE(refused.starts_with("HTTP/1.1 503 ")) << refused.substr(0, 200);
  EXPECT_NE(refused.find("Retry-After: 1\r\n"), std::string::npos);
  first.Send(std::string(10'000, 'a'));
  EXPECT_NE(first.ReadUntil("]\n").find("200 OK"), std::string::npos);
  first.Send("POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 90000\r\n\r\n" +
             std::string(90'000, 'a'));
  EXPECT_NE(first.ReadUntil("]\n").find("200 OK"), std::string::npos);
}

TEST(HttpServer, DrainsWhatIsUnderWay) {
  std::promise<HttpResponder> asked;
  const auto server = Serve(
      {}, [&](HttpRequest, HttpResponder responder) { asked.set_value(std::move(responder)); });
  Client waiting(server->listeners()[0]), idle(server->listeners()[0]);
  waiting.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  const HttpResponder responder = asked.get_future().get();
  EXPECT_FALSE(server->Drain(10ms));
  EXPECT_EQ(idle.ReadAll(), "");
  responder.Send({.status = 200, .content_type = "text/plain", .body = "late", .headers = {}});
  const std::string answer = waiting.ReadAll();
  EXPECT_TRUE(answer.ends_with("late")) << answer;
  EXPECT_NE(answer.find("Connection: close\r\n"), std::string::npos);
  waiting.Close();
  EXPECT_TRUE(server->Drain(kLong));
}

TEST(HttpServer, EndsWithRequestsUnderWay) {
  std::promise<HttpResponder> asked;
  std::promise<void> gone;
  auto server = Serve({}, [&](HttpRequest, HttpResponder responder) {
    responder.OnGone([&] { gone.set_value(); });
    asked.set_value(std::move(responder));
  });
  Client client(server->listeners()[0]);
  client.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  const HttpResponder responder = asked.get_future().get();
  server.reset();
  EXPECT_EQ(gone.get_future().wait_for(0s), std::future_status::ready);
  responder.Send({});
  EXPECT_EQ(client.ReadAll(), "");
}

TEST(HttpServer, ListensOnUnixSockets) {
  const std::string path = testing::TempDir() + "/http_server_test." + std::to_string(getpid());
  {
    const auto server = Serve(
        {},
        [](HttpRequest request, HttpResponder responder) {
          responder.Send({.status = 200,
                          .content_type = "text/plain",
                          .body = std::to_string(request.peer.uid.value_or(12345678)) +
                                  (request.peer.local ? " local]\n" : "]\n"),
                          .headers = {}});
        },
        "unix:" + path);
    Client client(server->listeners()[0]);
    client.Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_NE(client.ReadUntil("]\n").find("\r\n\r\n" + std::to_string(getuid()) + " local]\n"),
              std::string::npos);
    EXPECT_EQ(ListenAt("unix:" + path).code(), atollrt::StatusCode::kDeviceBusy);
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(Listener, SaysWhatIsNoAddress) {
  for (const char* const where : {"", "8000", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", ":8000",
                                  "127.0.0.1:65536", "127.0.0.1:-1", "::1:80", "unix:"}) {
    EXPECT_EQ(ListenAt(where).code(), atollrt::StatusCode::kInvalidArgument) << where;
  }
  const auto taken = ListenAt("127.0.0.1:0");
  ASSERT_TRUE(taken.ok());
  EXPECT_TRUE(taken->local);
  EXPECT_EQ(ListenAt(taken->name).code(), atollrt::StatusCode::kDeviceBusy);
  const auto any = ListenAt("0.0.0.0:0");
  ASSERT_TRUE(any.ok());
  EXPECT_FALSE(any->local);
}

TEST(DecodePercent, DecodesAndRefusesWhatIsBroken) {
  EXPECT_EQ(DecodePercent("a%2fb%2E"), "a/b.");
  EXPECT_EQ(DecodePercent("%"), std::nullopt);
  EXPECT_EQ(DecodePercent("a%2"), std::nullopt);
  EXPECT_EQ(DecodePercent("%zz"), std::nullopt);
  EXPECT_EQ(DecodePercent("%00"), std::string(1, '\0'));
}

}  // namespace
}  // namespace atollserve
