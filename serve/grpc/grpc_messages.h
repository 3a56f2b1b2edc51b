// SPDX-License-Identifier: Apache-2.0
//
// Between the messages of inference.proto and what InferenceServer takes and gives.
#pragma once

#include <grpcpp/support/status.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "inference.pb.h"
#include "serve/inference/inference_server.h"
#include "serve/oip/shared_memory.h"

namespace atollserve {

// The code is that of the table in serve/inference/inference_server.h.
grpc::Status ToGrpc(const atollrt::Status& status);

// By gRPC's clock, which may be set; nullopt if that is more than a day away.
std::optional<MonotonicTime> DeadlineOf(std::chrono::system_clock::time_point deadline);

// What of a request its answer needs.
struct AnswerForm {
  std::string id;
  bool raw = true;  // raw_output_contents, unless binary_data_output is false
  // Of the outputs that are asked for, those that go into shared memory.
  std::vector<std::optional<RegionRange>> regions;
  SharedMemory* memory = nullptr;
};

// `model` is the one that the message names. `message` outlives the request, whose inputs refer to
// its bytes. `deadline` is the call's; a
// parameter "timeout" may make it earlier. Inputs in shared memory are copied; `memory` is null if
// the client may not use that. kInvalidArgument, kPermissionDenied with what is wrong.
atollrt::Result<InferRequest> RequestOf(const inference::ModelInferRequest& message,
                                        const ModelInfo& model, const std::string& client,
                                        std::optional<MonotonicTime> deadline, SharedMemory* memory,
                                        AnswerForm* form);
// Also writes what goes into shared memory. kInvalidArgument if an output has no contents of its
// type, or its region no room.
atollrt::Status SetAnswer(InferOutcome outcome, const AnswerForm& form,
                          inference::ModelInferResponse* answer);

void SetMetadata(const ModelInfo& info, inference::ModelMetadataResponse* metadata);
void SetConfig(const ModelInfo& info, inference::ModelConfig* config);
void SetStatistics(const ModelStatistics& from, inference::ModelStatistics* to);

// Takes the bytes out of the parameters. kInvalidArgument for one that is not known.
atollrt::Result<ModelUpload> UploadOf(
    google::protobuf::Map<std::string, inference::ModelRepositoryParameter>* parameters);

}  // namespace atollserve
