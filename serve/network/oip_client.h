// SPDX-License-Identifier: Apache-2.0
//
// OipClient: a connection to a server of the Open Inference Protocol over gRPC, as far as the
// device of another computer takes. What the server says is hostile: sizes are checked by whoever
// asks. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "runtime/base/clock.h"

namespace atollserve {

using atollrt::Deadline;

// How a server is reached that is not on this computer: over TLS, with a token or a certificate.
struct OipAccess {
  bool tls = false;
  std::string ca;                // PEM; "": those that the system trusts
  std::string certificate, key;  // PEM, the client's; "": none
  std::string token;             // "": none
};
// By $ATOLL_GRPC_TOKEN_FILE or $ATOLL_GRPC_TOKEN, $ATOLL_GRPC_CA, $ATOLL_GRPC_CERT and
// $ATOLL_GRPC_KEY. TLS is for all but loopback, and for those with $ATOLL_GRPC_CA;
// $ATOLL_GRPC_INSECURE=1 does without. kInvalidArgument for files that cannot be read.
atollrt::Result<OipAccess> AccessFromEnvironment(const std::string& address);

struct OipTensor {
  std::string name;
  std::string datatype;  // "INT8"
  std::vector<int64_t> shape;
};

struct OipModel {
  std::vector<OipTensor> inputs, outputs;
};

// An inference that is under way.
class OipCall {
 public:
  virtual ~OipCall() = default;  // cancels it, and waits for that
  struct Answer {
    std::vector<std::span<const uint8_t>> outputs;  // live as long as the call
    int64_t device_cycles = 0;
    int64_t queue_ns = 0;
  };
  // Errors as OipClient's, and kTimeout at `deadline`; it is cancelled then.
  virtual atollrt::Result<Answer> Await(Deadline deadline) = 0;
  // After kDeviceBusy, of a server that was too busy: when it is worth to ask again.
  virtual std::chrono::milliseconds retry_after() const = 0;
};

// Codes: kDeviceLost if there is no answer, or none by this protocol; kDeviceBusy if the server has
// no room now; kNotFound for a model that it has not; kPermissionDenied with what is missing;
// kTimeout; what else it says as it is.
class OipClient {
 public:
  // `address` is HOST:PORT. Connects until `deadline`; kNotFound if it cannot.
  static atollrt::Result<std::unique_ptr<OipClient>> Connect(const std::string& address,
                                                             const OipAccess& access,
                                                             Deadline deadline);
  virtual ~OipClient() = default;

  virtual atollrt::Result<std::map<std::string, std::string>> Properties(const std::string& model,
                                                                         Deadline deadline) = 0;
  // What it takes and gives, as the server says.
  virtual atollrt::Result<OipModel> Describe(const std::string& model, Deadline deadline) = 0;
  virtual atollrt::Result<bool> IsReady(const std::string& model, Deadline deadline) = 0;
  // `file` is what the repository has as 1/model.tflite.
  virtual atollrt::Status Load(const std::string& model, std::span<const uint8_t> file,
                               Deadline deadline) = 0;

  // Copies the inputs, which are as many as `tensors`. `priority` is the protocol's: 1 comes first,
  // then 2; 0 after all others.
  virtual std::unique_ptr<OipCall> Start(const std::string& model,
                                         std::span<const OipTensor> tensors,
                                         std::span<const std::span<const uint8_t>> inputs,
                                         uint32_t priority, Deadline deadline) = 0;
};

}  // namespace atollserve
