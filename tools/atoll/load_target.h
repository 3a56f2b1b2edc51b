// SPDX-License-Identifier: Apache-2.0
//
// What a load test sends its load to: a model on a device of this computer, or on a server. A
// Target has streams, each of which has one inference under way at a time and is for one thread;
// several of them may be at work side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "atoll/runtime.h"
#include "tools/atoll/report.h"
#include "tools/atoll/session.h"

namespace atollcmd {

// The bytes of each input of a model.
using Inputs = std::vector<std::vector<uint8_t>>;

struct OutputBytes {
  AtollType type = ATOLL_NO_TYPE;
  std::span<const uint8_t> bytes;
};

class Stream {
 public:
  virtual ~Stream() = default;
  // What Run sends from now on; `inputs` fit the target, and must outlive that.
  virtual void SetInputs(const Inputs& inputs) = 0;
  // One inference. False: it failed, and others may not; failure() says why. Throws CommandError
  // where it makes no sense to go on.
  virtual bool Run() = 0;
  virtual std::string failure() const = 0;
  // The first output of the latest Run that did not fail, until the next one.
  virtual OutputBytes output() const = 0;
};

class Target {
 public:
  virtual ~Target() = default;
  virtual std::string name() const = 0;   // "emu", "oip://localhost:8000"
  virtual std::string model() const = 0;  // its file, or its name at the server
  virtual size_t stream_count() const = 0;
  virtual Stream& stream(size_t index) = 0;
  // Inputs from seed 1, apart from those that `files` names, as FillInputs takes them.
  virtual Inputs MakeInputs(const std::vector<std::string>& files) = 0;
  // Throws CommandError unless inputs of these sizes can be sent.
  virtual void CheckInputs(const Inputs& inputs) const = 0;
  // What it is in a report: the fields of NewReport(command, session) and those that loading it
  // gave, null where it has none.
  virtual Json Describe() const = 0;
  // nullptr: it is not within this process.
  virtual Session* session() = 0;
};

// A model on a device, with as many interpreters as streams.
std::unique_ptr<Target> OpenDeviceTarget(const SessionOptions& options, size_t streams);

// ---- Open Inference Protocol, version 2, over HTTP and gRPC -------------------------------------

struct OipAddress {
  std::string text;  // all of it
  bool tls = false;
  bool grpc = false;
  std::string host;  // "[::1]" with its brackets
  int port = 0;
  std::string model;  // "": not said
};

// Whether a target is an address of a server, rather than a device: grpc://HOST:PORT alone is the
// device of another computer.
bool IsOipAddress(const std::string& text);
// "oip://HOST:PORT[/MODEL]" or, over gRPC, "grpc://HOST:PORT/MODEL"; "oips://..." and "grpcs://..."
// with TLS. Throws CommandError for anything else.
OipAddress ParseOipAddress(const std::string& text);

struct OipCredentials {
  std::string token;    // sent as "Authorization: Bearer TOKEN"; empty: none
  std::string ca_file;  // PEM of who signs the certificates of servers; empty: the system's
};

// The token in a file, which throws CommandError unless it has one, or, of an empty path, in the
// environment variable ATOLL_SERVE_TOKEN; empty if there is none, either.
std::string ReadOipToken(const std::string& path);
// Throws CommandError if these credentials cannot be used there: a token is not sent over a network
// without TLS.
void CheckCredentials(const OipAddress& address, const OipCredentials& credentials);

// Connects and asks what the model takes; `model` counts if the address names none, and if it is
// empty, too, the only one that the server has. Each stream is a connection. Throws CommandError,
// also where this command was built without libcurl.
std::unique_ptr<Target> OpenOipTarget(const OipAddress& address, const std::string& model,
                                      const OipCredentials& credentials, size_t streams);
// The same over gRPC, where one of the two names the model; CommandError without libatoll-grpc.
std::unique_ptr<Target> OpenGrpcTarget(const OipAddress& address, const std::string& model,
                                       const OipCredentials& credentials, size_t streams);

}  // namespace atollcmd
