// SPDX-License-Identifier: Apache-2.0
//
// What is said to a network camera and what it answers: the part of HTTP/1.1 (RFC 9112) that a GET
// without end needs. Pure functions on bytes; those of an answer are hostile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"

namespace atollrt {

struct CameraUrl {
  std::string host;  // IPv6 addresses without brackets
  int port = 80;
  std::string path = "/";  // with the query, if there is one
  std::string login;       // "user:password", decoded; "" for none

  // For people, who may pass it on: without the login and without the query, which often has one.
  std::string Name() const;
};

// "http://user:password@host:port/path?query", all but the host optional. Errors, too, name the
// text without its login.
Result<CameraUrl> ParseCameraUrl(std::string_view text);

// Where a camera that was asked at `from` sends us on to, which must be the same host and port: a
// login is for the server that it was given for, and nobody else is to choose whom we talk to.
Result<CameraUrl> FollowRedirect(const CameraUrl& from, std::string_view location);

// The whole request.
std::string FormatCameraRequest(const CameraUrl& url);

// Reads an answer as it arrives. The memory that it needs is bounded, whatever arrives.
class CameraAnswer {
 public:
  static constexpr size_t kMaxHeadBytes = 16384;  // of everything that is not the body

  // Takes all of `bytes`, and appends what of them is the body of an answer with status 200,
  // without transfer coding. Other answers have no body here. Errors say what is wrong with the
  // answer, and then it has ended.
  Status Receive(std::span<const uint8_t> bytes, std::vector<uint8_t>* body);

  bool has_head() const { return state_ > State::kHead; }
  bool ended() const { return state_ == State::kEnded; }

  // After the head.
  int status() const { return status_; }
  bool redirects() const { return status_ >= 300 && status_ < 400 && !location_.empty(); }
  const std::string& location() const { return location_; }
  // Ok for 200 with what may be pictures; otherwise why there are none, and what to do about it.
  Status Check(bool with_login = false) const;  // whether the request had one

 private:
  enum class State { kStatusLine, kHead, kBody, kChunkSize, kChunk, kChunkEnd, kTrailer, kEnded };

  Status TakeLine();
  Status TakeHeader();

  State state_ = State::kStatusLine;
  std::string line_;       // what has arrived of it
  size_t head_bytes_ = 0;  // of all lines since bytes of the body came last
  int status_ = 0;
  bool chunked_ = false;
  static constexpr uint64_t kUntilClose = UINT64_MAX;
  uint64_t left_ = kUntilClose;  // bytes of the body, or of the chunk
  std::string type_;
  std::string encoding_;
  std::string challenge_;
  std::string location_;
};

}  // namespace atollrt
