// SPDX-License-Identifier: Apache-2.0
//
// Where sockets of ZeroMQ listen: what an endpoint is, whether others than this computer reach it,
// and binding it without taking anybody's place.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>

#include "atoll/status.h"

namespace atollrt {

// Whether an endpoint is one of this computer alone: ipc://PATH, or tcp://ADDRESS:PORT on
// localhost, 127.x.x.x or [::1]. kInvalidArgument for what is neither of both.
Result<bool> IsLocalEndpoint(const std::string& endpoint);

// Keys of CURVE (RFC 26 of ZeroMQ), which encrypts and tells who is who.
using CurveKey = std::array<uint8_t, 32>;
struct CurveKeys {
  CurveKey server = {};        // the server's secret one
  std::set<CurveKey> clients;  // public ones of those that may come in
};
// Files of lines, each with a key of 40 characters as Z85 (RFC 32) writes them, alone or, as pyzmq
// and CZMQ have them, as secret-key = "..." and public-key = "..."; empty lines and those with # in
// front are none. One secret key, and public ones, one at least.
Result<CurveKeys> ReadCurveKeys(const std::string& server_file, const std::string& clients_file);

struct BoundSocket {
  void* socket = nullptr;  // a ROUTER, to be closed by whoever gets it
  std::string endpoint;    // with the port that was free for "tcp://127.0.0.1:*"
};

// Sockets of ipc:// are for this user and group. kDeviceBusy for one that is taken,
// kInvalidArgument for a path where there is something else than a socket, which libzmq would
// remove, and for what cannot be bound at all.
// `keys`: of tcp://, for its clients alone; null: for all.
Result<BoundSocket> BindRouter(void* context, const std::string& endpoint,
                               uint64_t max_message_bytes, const CurveKeys* keys = nullptr);

// The socket that libzmq asks who may come in (RFC 27), which must be there before others of its
// context are bound; to be closed by whoever gets it.
Result<void*> BindGate(void* context);
// Answers one question there, if there is one: yes to clients of `keys`. False: there was none.
bool AnswerAtGate(void* gate, const CurveKeys& keys);

}  // namespace atollrt
