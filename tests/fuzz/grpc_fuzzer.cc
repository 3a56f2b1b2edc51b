// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a request of gRPC's: what is made of it refers to bytes that are there, and an
// answer of the same tensors is made of it, with contents and raw.
#include <cstddef>
#include <cstdint>
#include <string>

#include "atoll/check.h"
#include "serve/grpc/grpc_messages.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/allocation_meter.h"

namespace atollserve::grpc_fuzzer {

ATOLL_FUZZ_TARGET(grpc) {
  inference::ModelInferRequest message;
  {
    // For a string whose length is said, protobuf reserves that, up to so many bytes, before it
    // finds that they are not there.
    constexpr size_t kStringReserve = 50'000'000;
    const atollrt::MemoryLimit limit(atollrt::ProportionalBytes(size) + kStringReserve);
    if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  }
  ModelInfo model;  // that has tensors for all of it
  model.inputs.resize(static_cast<size_t>(message.inputs_size()));
  model.outputs.resize(static_cast<size_t>(message.outputs_size()));
  const atollrt::MemoryLimit limit(atollrt::ProportionalBytes(size));
  SharedMemory memory;
  for (SharedMemory* const allowed : {static_cast<SharedMemory*>(nullptr), &memory}) {
    AnswerForm form;
    auto request = RequestOf(message, model, "client", std::nullopt, allowed, &form);
    if (!request.ok()) {
      ATOLL_CHECK(!request.status().message().empty());
      continue;
    }
    ATOLL_CHECK(request->inputs.size() == static_cast<size_t>(message.inputs_size()));
    InferOutcome outcome;
    size_t sum = 0;
    for (const InputTensor& input : request->inputs) {
      for (const uint8_t byte : input.bytes) sum += byte;
      OutputTensor output;
      output.name = input.name;
      output.type = input.type;
      output.shape = input.shape;
      output.bytes.assign(input.bytes.begin(), input.bytes.end());
      outcome.outputs.push_back(std::move(output));
    }
    ATOLL_CHECK(sum <= 255 * size * 8);
    inference::ModelInferResponse answer;
    const atollrt::Status status = SetAnswer(std::move(outcome), form, &answer);
    ATOLL_CHECK(!status.ok() || answer.outputs_size() == message.inputs_size());
  }
  return 0;
}

}  // namespace atollserve::grpc_fuzzer
