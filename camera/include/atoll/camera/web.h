// SPDX-License-Identifier: Apache-2.0
//
// A running pipeline in the browser: its annotated pictures as a stream, its status as a page, as
// JSON and as metrics (docs/web.md has the routes and the schema).
//
// One thread serves everything with sockets that never block, so a viewer that is slow, silent or
// hostile costs a slot and some memory with a bound, and delays neither the pipeline nor another
// viewer. Every viewer gets the newest frame that there is when it has taken the one before.
//
// On loopback, the default, whoever is on this computer sees the pictures. Any other address needs
// TLS and a token or a client's certificate, or `insecure` that says aloud that whoever reaches the
// port shall see them: the rule of everything here that listens. It answers to its own names only,
// on loopback to "localhost" and its like, so that pages from elsewhere cannot read it through a
// name of theirs (DNS rebinding).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/camera/status.h"
#include "atoll/status.h"

namespace atollrt {

// Who may come in. A token counts on loopback, too. Clients send "Authorization: Bearer TOKEN";
// browsers ask for a name, which may be any, and a password, which is the token.
struct StreamServerAccess {
  std::string token_file = {};  // 16 to 4096 printable characters without spaces
  std::string token_variable =
      {};  // of the environment, with the token if there is no file; "": none
  std::string tls_certificate = {};  // PEM files: the server's certificate,
  std::string tls_key = {};          // its key,
  std::string client_ca = {};  // and who signs those of clients, which are as good as the token
  bool insecure = false;       // lets in everybody who reaches the address

  bool operator==(const StreamServerAccess&) const = default;
};

struct StreamServerOptions {
  std::string address = "127.0.0.1";  // numeric or a name; "0.0.0.0" or "::" for all of the host's
  int port = 8080;                    // 0 to 65535; 0: any that is free
  // What else it may be called by browsers, beside numeric addresses and the names that the host
  // has itself: without port, letters, digits, dots and hyphens.
  std::vector<std::string> names;
  StreamServerAccess access;
  int max_viewers = 16;  // of the stream at a time; 1 to 1024
  // Connections that are no viewers of the stream: requests that are read or answered; half of them
  // at most may wait for a snapshot or take one.
  int max_requests = 32;           // 1 to 1024
  int request_timeout_ms = 5000;   // from the connection until the request is complete
  int write_timeout_ms = 5000;     // for taking one answer, or one frame
  int snapshot_timeout_ms = 1000;  // that a snapshot waits for the next frame

  // Required. Called by the server's thread, at most ten times per second; may wait for a lock, but
  // while it does nobody is served. Must not throw.
  std::function<PipelineStatus()> status;
};

// Counts are since the start.
struct ViewerCounts {
  int watching = 0;             // now
  int limit = 0;                // max_viewers
  uint64_t served = 0;          // viewers that got a place, those watching now among them
  uint64_t refused = 0;         // for want of a place
  uint64_t dropped = 0;         // that did not take a frame in write_timeout_ms
  uint64_t frames_sent = 0;     // of all viewers together
  uint64_t frames_skipped = 0;  // published while a viewer was still taking an earlier one
  uint64_t bytes_sent = 0;      // to viewers of the stream
};

// All member functions are thread-safe, apart from Publish, which one thread may call at a time.
class StreamServer {
 public:
  // Listens when it returns. kInvalidArgument for options out of range; kDeviceBusy if the port is
  // taken, kPermissionDenied if it is not for this user or can be reached from elsewhere without
  // what that needs, kNotFound if the address is not of this computer, kUnsupported for TLS where
  // OpenSSL was not there. The message has the address and the port and says what to do.
  static Result<std::unique_ptr<StreamServer>> Start(StreamServerOptions options);

  // Ends every connection, at once, whatever its viewer does; `status` is not called any more.
  virtual ~StreamServer() = default;

  virtual int port() const = 0;
  // For a browser on this computer: "http://127.0.0.1:8080/", with TLS "https://...".
  virtual std::string url() const = 0;

  // Whether somebody would see a frame: watches, or waits for a snapshot. While false, there is no
  // need to encode any.
  virtual bool wants_frames() const = 0;

  // Hands a JPEG file to everybody who waits for one; copies it into a buffer that is used again,
  // and never waits for viewers. Does nothing while !wants_frames().
  virtual void Publish(std::span<const uint8_t> jpeg) = 0;

  virtual ViewerCounts viewers() const = 0;
};

}  // namespace atollrt
