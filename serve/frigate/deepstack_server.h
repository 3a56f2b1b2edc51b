// SPDX-License-Identifier: Apache-2.0
//
// DeepstackService behind an HttpServer, by the rule of serve/access: who is not let in gets an
// answer that its protocol knows. Cameras' programs cannot send headers, so the token may also come
// as the form's `api_key`.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "atoll/status.h"
#include "serve/access/access.h"
#include "serve/frigate/deepstack.h"
#include "serve/http/http_server.h"

namespace atollrt {

struct DeepstackServerOptions {
  DeepstackOptions service;                     // without a key: it is the token of `access`
  std::vector<atollserve::Listener> listeners;  // that CheckListener has let pass
  std::vector<atollserve::ServedHosts> hosts;   // of each listener
  atollserve::Access access;
  atollserve::HttpLimits limits;
  int threads = 2;      // requests that are looked at at a time
  size_t waiting = 16;  // requests beyond these; further ones are refused with 503
};

class DeepstackServer {
 public:
  // Answers from now on. Errors of DeepstackService and HttpServer.
  static Result<std::unique_ptr<DeepstackServer>> Start(DeepstackServerOptions options);
  // Closes all connections; waits for the inferences that are under way.
  virtual ~DeepstackServer() = default;

  virtual const std::vector<atollserve::Listener>& listeners() const = 0;
  // Takes nothing new and answers what has come, not longer than `timeout`.
  virtual void Drain(std::chrono::milliseconds timeout) = 0;
};

}  // namespace atollrt
