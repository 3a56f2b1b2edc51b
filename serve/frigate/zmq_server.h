// SPDX-License-Identifier: Apache-2.0
//
// A detector for Frigate's `type: zmq` (docs/frigate.md): sockets of ZeroMQ to which any number of
// Frigates connect, the messages of exchange.h, models that clients send or one that is given.
//
//   one thread for all sockets --frames--> a worker for each place of a detector
//              ^      \---requests for models, files--> one thread that stores and loads
//              +----------- results, by an eventfd -------------/
//
// A client never waits behind a queue: a frame without a result after `budget` is answered with
// zeros, as is everything else that cannot be done: Frigate takes no answer for a connection that
// is lost, and asks for its model again. Each kind of reason is logged once, and counted.
//
// Frames do not say which model they are for. It is the one that the client asked for, or sent,
// last; for one that asked for none, the default model; without that the only one of the folder, as
// after a restart. If there are several, there is no answer, and Frigate asks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/atoll.hpp"
#include "atoll/status.h"
#include "serve/frigate/model_store.h"
#include "serve/frigate/zmq_endpoint.h"

namespace atollrt {

enum class ZmqExposure {
  kLocalOnly,   // ipc:// and loopback addresses
  kAnyAddress,  // others too: whoever reaches them sends models and sees what is detected
};

enum class ZmqAnswerForm {
  kBytes,     // 480 bytes
  kHeadFirst  // a head with shape and type, and 480 bytes
};

struct ZmqServerOptions {
  std::vector<std::string> endpoints;  // "ipc:///tmp/cache/zmq_detector", "tcp://127.0.0.1:5555"
  ZmqExposure exposure = ZmqExposure::kLocalOnly;
  // Of tcp://, wherever it listens: clients must have one of these keys, and others than this
  // computer's may come then.
  std::optional<CurveKeys> keys = {};
  ZmqAnswerForm answer_form = ZmqAnswerForm::kBytes;
  atollpp::Delegate device;
  std::string default_model;  // a file; "": none
  std::string folder;         // of models that clients send; "": they cannot
  ModelStoreLimits limits;
  int places = 2;  // frames of a model at a time; 1 to 64
  std::chrono::milliseconds budget{150};
  size_t frames = 256;  // that wait, also those whose answer has been zeros meanwhile
  std::chrono::milliseconds loading_time{25'000};  // Frigate gives up after 30 s
  // A line for people; called from several threads, must not throw. Null: nothing is said.
  std::function<void(const std::string& line)> log;
};

// Since the start.
struct ZmqServerCounts {
  uint64_t frames = 0;      // messages that were taken for one
  uint64_t detected = 0;    // answered with what a model saw
  uint64_t late = 0;        // with zeros, as there was no result in time
  uint64_t failed = 0;      // with zeros, for another reason
  uint64_t unanswered = 0;  // as nobody knows their model
  uint64_t uploads = 0;     // models that were stored and loaded
  uint64_t refused = 0;     // models that were not
  uint64_t dropped = 0;     // messages that no Frigate sends, without an answer
};

// All member functions are thread-safe.
class ZmqServer {
 public:
  // Listens when it returns; models are loaded meanwhile, the default one before. kInvalidArgument
  // for options out of range and endpoints that are none, kPermissionDenied for one that `exposure`
  // does not allow, kDeviceBusy for one that is taken; errors of the default model and the folder.
  static Result<std::unique_ptr<ZmqServer>> Start(ZmqServerOptions options);

  // Ends at once, but for inferences and loading that are under way.
  virtual ~ZmqServer() = default;

  // As they are bound: with the port that was free for "tcp://127.0.0.1:*".
  virtual const std::vector<std::string>& endpoints() const = 0;
  virtual ZmqServerCounts counts() const = 0;
};

}  // namespace atollrt
