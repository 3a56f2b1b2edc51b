// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace atollrt {

// A connection to a server on this computer that sends and receives bytes as they are, so that a
// test can be any kind of client. Waits ten seconds at most for anything.
class WebClient {
 public:
  // receive_buffer_bytes: what the kernel takes for a client that does not read; 0: its default.
  explicit WebClient(int port, int receive_buffer_bytes = 0)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (receive_buffer_bytes > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(receive_buffer_bytes));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  WebClient(WebClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), unread_(std::move(other.unread_)) {}
  ~WebClient() {
    if (fd_ >= 0) close(fd_);
  }

  // False once the other side has closed or does not take any more.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
      if (poll(&ready, 1, kPatienceMs) <= 0) return false;
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // Everything up to and including `end`, or up to the end of the connection.
  std::string ReadThrough(std::string_view end) {
    size_t found = 0;
    while ((found = unread_.find(end)) == std::string::npos) {
      if (!Receive()) return std::exchange(unread_, {});
    }
    return Take(found + end.size());
  }
  // So many bytes, or fewer at the end of the connection.
  std::string Read(size_t size) {
    while (unread_.size() < size && Receive()) {
    }
    return Take(std::min(size, unread_.size()));
  }
  std::string ReadAll() {
    while (Receive()) {
    }
    return std::exchange(unread_, {});
  }

 private:
  static constexpr int kPatienceMs = 10'000;

  bool Receive() {
    pollfd ready{.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kPatienceMs) <= 0) {
      ADD_FAILURE() << "nothing came within " << kPatienceMs << " ms";
      return false;
    }
    std::array<char, 65536> bytes;
    const ssize_t got = recv(fd_, bytes.data(), bytes.size(), 0);
    if (got > 0) unread_.append(bytes.data(), static_cast<size_t>(got));
    return got > 0;
  }
  std::string Take(size_t size) {
    std::string taken = unread_.substr(0, size);
    unread_.erase(0, size);
    return taken;
  }

  int fd_;
  std::string unread_;
};

struct WebAnswer {
  int status = 0;                                   // 0: the connection ended without an answer
  std::map<std::string, std::string> headers = {};  // names in small letters
  std::string body = {};
};

// Reads the head of an answer, without the body.
inline WebAnswer ReadHead(WebClient* client) {
  WebAnswer answer;
  std::string_view head;
  const std::string text = client->ReadThrough("\r\n\r\n");
  head = text;
  if (!head.starts_with("HTTP/1.1 ")) return answer;
  answer.status = std::stoi(text.substr(9, 3));
  head.remove_prefix(head.find("\r\n") + 2);
  while (head.find("\r\n") > 0 && !head.empty()) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    const size_t colon = line.find(": ");
    if (colon == std::string_view::npos) {
      ADD_FAILURE() << "no header: " << line;
      break;
    }
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    EXPECT_TRUE(answer.headers.emplace(name, line.substr(colon + 2)).second) << name << " twice";
    head.remove_prefix(line.size() + 2);
  }
  return answer;
}

// Sends a request, as its bytes are, and reads the answer to the end of the connection.
inline WebAnswer Exchange(int port, std::string_view request) {
  WebClient client(port);
  client.Send(request);
  WebAnswer answer = ReadHead(&client);
  answer.body = client.ReadAll();
  return answer;
}

inline std::string GetRequest(std::string_view path, std::string_view host = "localhost") {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n";
}
inline WebAnswer Get(int port, std::string_view path) { return Exchange(port, GetRequest(path)); }

}  // namespace atollrt
