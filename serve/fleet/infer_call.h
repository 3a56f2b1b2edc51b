// SPDX-License-Identifier: Apache-2.0
//
// A message that asks for an inference, as a request, and what became of it as the message that
// answers: frames and jobs are the same here. Pure functions on bytes; those of a message are
// hostile.
//
// The body is that of the Open Inference Protocol over HTTP, in its three forms
// (serve/oip/infer_body.h), or a picture (Content-Type: image/jpeg, or any other that
// atoll/picture/image.h reads), which is brought to the size of the model's input as `atoll
// classify` does. Tensors in shared memory are refused.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "atoll/status.h"
#include "serve/inference/inference_server.h"
#include "serve/oip/infer_body.h"

namespace atollserve {

inline constexpr const char* kLengthHeader = "Inference-Header-Content-Length";
inline constexpr const char* kTypeHeader = "Content-Type";
inline constexpr const char* kBudgetHeader = "Atoll-Budget-Us";
inline constexpr const char* kPriorityHeader = "Atoll-Priority";
inline constexpr const char* kFrameHeader = "Atoll-Frame";
inline constexpr const char* kWorkerHeader = "Atoll-Worker";
inline constexpr const char* kModelHeader = "Atoll-Model-Version";
inline constexpr const char* kRetryHeader = "Atoll-Retry-After-Ms";
inline constexpr const char* kErrorHeader = "Nats-Service-Error";
inline constexpr const char* kErrorCodeHeader = "Nats-Service-Error-Code";

// As they came; "": without.
struct CallHeaders {
  std::string_view content_type = {}, json_bytes = {}, budget_us = {}, priority = {}, frame = {};
};

// How long the one who asks still waits; nullopt: it does not say. kInvalidArgument.
atollrt::Result<std::optional<uint64_t>> ParseBudget(std::string_view text);

struct InferCall {
  InferBody body;        // without its inputs
  InferRequest request;  // without a client
};
// `came` is when the message did, from which budgets and time-outs count. Reads pictures, which
// takes milliseconds. kInvalidArgument, kUnsupported.
atollrt::Result<InferCall> ReadCall(const CallHeaders& headers,
                                    std::shared_ptr<const std::string> body, const ModelInfo& model,
                                    MonotonicTime came);
// Whether ReadCall is done in microseconds.
bool IsShortCall(const CallHeaders& headers, size_t body_bytes);

struct InferReply {
  int code = 200;     // as HTTP has them
  std::string error;  // "": it went well
  std::string body;
  std::vector<std::pair<const char*, std::string>> headers;
};
InferReply ReplyOf(const InferBody& body, const ModelInfo& model, const InferOutcome& outcome);
InferReply ErrorReply(const atollrt::Status& status,
                      std::optional<std::chrono::milliseconds> retry_after = {});

// The outputs of an answer, whose body begins with `json_bytes` ("": all) of JSON and goes on with
// the bytes of those that are binary. Outputs whose values are in the JSON, as text is, have their
// JSON as bytes. kInvalidArgument.
atollrt::Result<std::vector<OutputTensor>> ParseAnswer(std::string_view body,
                                                       std::string_view json_bytes);

// A picture as the bytes of a model's only input. kUnsupported for inputs that take none.
atollrt::Result<std::string> PictureTensor(std::string_view picture, const ModelInfo& model);

}  // namespace atollserve
