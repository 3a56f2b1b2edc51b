// SPDX-License-Identifier: Apache-2.0
//
// The Open Inference Protocol over gRPC (inference.proto): a layer of messages above
// InferenceServer, beside REST. Also grpc.health.v1.Health, which kubelets and KServe ask.
//
// Requests are hostile: a message has at most `message_bytes`, and everything in it is checked by
// InferenceServer or here, with the codes that serve/inference/inference_server.h lists. A call's
// deadline is the request's, a call that is cancelled cancels the request. A server that is too
// busy says in "grpc-retry-pushback-ms" when to come again, which gRPC's own retries heed.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"
#include "serve/inference/inference_server.h"
#include "serve/oip/shared_memory.h"

namespace atollserve {

// Whether only this computer reaches what listens there: "unix:...", "localhost:...", a loopback
// address.
bool IsLocalGrpcAddress(std::string_view where);

struct GrpcCall {
  std::string peer;  // "ipv4:127.0.0.1:40122", "unix:"
  bool is_unix = false;
  bool is_local = false;      // of this computer
  std::string authorization;  // of its metadata: "Bearer TOKEN"; ""
  std::string certificate;    // the common name of the client's certificate; "": there is none
};

struct GrpcServerOptions {
  std::string listen;  // "127.0.0.1:8001", "[::1]:0" (any free port), "unix:/run/atoll/grpc.sock"
  size_t message_bytes = 64 << 20;
  size_t calls_of_a_connection = 64;  // at a time
  // Of messages that have not come to their end, all together. At least two of the longest. When
  // there are more, gRPC ends calls, and has more (up to 460 MiB of 256 were seen) until it has.
  size_t buffered_bytes = 256 << 20;
  size_t requests_of_a_stream = 16;  // under way; a stream with more is not read meanwhile
  // PEM; empty: no TLS. With client_ca certificates of clients are looked at, and must be there if
  // they are required.
  std::string certificate, key, client_ca;
  bool client_certificate_required = false;
  // Whether a call may come; not ok, with a sentence, if it needs what it has not got:
  // UNAUTHENTICATED. null: all may. Whether the server is there and ready everybody may ask.
  std::function<atollrt::Status(const GrpcCall& call)> admit;
  SharedMemory* memory = nullptr;  // of clients on this computer; null: there is none for them
  std::string name = "atoll";
  std::string version;
};

class GrpcServer {
 public:
  // Answers from now on; `inference` outlives it. kUnsupported if it was built without gRPC,
  // kDeviceBusy if the address is taken,
  // kInvalidArgument if it is none.
  static atollrt::Result<std::unique_ptr<GrpcServer>> Start(GrpcServerOptions options,
                                                            InferenceServer* inference);
  // Cancels what is under way.
  virtual ~GrpcServer() = default;

  virtual int port() const = 0;  // 0 of a unix socket
  // Takes no further calls, and waits for those that are under way, not longer than `timeout`.
  virtual void Drain(std::chrono::milliseconds timeout) = 0;
};

}  // namespace atollserve
