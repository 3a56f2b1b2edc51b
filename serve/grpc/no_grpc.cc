// SPDX-License-Identifier: Apache-2.0
//
// In the place of grpc_server.cc where gRPC is not installed.
#include "serve/grpc/grpc_server.h"

namespace atollserve {

bool IsLocalGrpcAddress(std::string_view) { return true; }

atollrt::Result<std::unique_ptr<GrpcServer>> GrpcServer::Start(GrpcServerOptions,
                                                               InferenceServer*) {
  return atollrt::Unsupported(
      "this atoll-serve was built without gRPC; build it where libgrpc++-dev and "
      "protobuf-compiler-grpc are installed");
}

}  // namespace atollserve
