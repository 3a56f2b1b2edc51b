// SPDX-License-Identifier: Apache-2.0
//
// OipClient as the C interface of atoll/oip.h.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "atoll/oip.h"
#include "serve/network/oip_client.h"

using atollserve::OipAccess;
using atollserve::OipClient;
using atollserve::OipTensor;

struct AtollOipClient {
  std::unique_ptr<OipClient> client;
  std::unique_ptr<atollserve::OipCall> call;  // whose answer the latest output lies in
  atollserve::OipModel model;
  std::vector<AtollOipTensor> inputs, outputs;
};

namespace {

atollserve::Deadline In(int32_t ms) {
  return atollrt::Clock::now() + std::chrono::milliseconds(std::max(ms, 1));
}

AtollStatus Say(const atollrt::Status& status, char* message, size_t size) {
  static_assert(static_cast<int>(atollrt::StatusCode::kInternal) == ATOLL_INTERNAL);
  if (size > 0) {
    const size_t length = std::min(status.message().size(), size - 1);
    std::memcpy(message, status.message().data(), length);
    message[length] = '\0';
  }
  return static_cast<AtollStatus>(status.code());
}

AtollStatus Connect(const AtollOipAddress* address, int32_t timeout_ms, AtollOipClient** client,
                    char* message, size_t message_size) {
  OipAccess access;
  access.tls = address->tls != 0;
  access.ca = address->ca;
  access.token = address->token;
  auto connected = OipClient::Connect(address->host_and_port, access, In(timeout_ms));
  if (!connected.ok()) return Say(connected.status(), message, message_size);
  *client = new AtollOipClient{*std::move(connected), nullptr, {}, {}, {}};
  return ATOLL_OK;
}

void Disconnect(AtollOipClient* client) { delete client; }

std::vector<AtollOipTensor> InfoOf(const std::vector<OipTensor>& tensors) {
  std::vector<AtollOipTensor> info;
  for (const OipTensor& tensor : tensors) {
    info.push_back({tensor.name.c_str(), tensor.datatype.c_str(), tensor.shape.data(),
                    static_cast<int32_t>(tensor.shape.size())});
  }
  return info;
}

AtollStatus DescribeModel(AtollOipClient* client, const char* model, int32_t timeout_ms,
                          const AtollOipTensor** inputs, int32_t* input_count,
                          const AtollOipTensor** outputs, int32_t* output_count, char* message,
                          size_t message_size) {
  auto described = client->client->Describe(model, In(timeout_ms));
  if (!described.ok()) return Say(described.status(), message, message_size);
  client->model = *std::move(described);
  client->inputs = InfoOf(client->model.inputs);
  client->outputs = InfoOf(client->model.outputs);
  *inputs = client->inputs.data();
  *input_count = static_cast<int32_t>(client->inputs.size());
  *outputs = client->outputs.data();
  *output_count = static_cast<int32_t>(client->outputs.size());
  return ATOLL_OK;
}

AtollStatus Infer(AtollOipClient* client, const char* model, const AtollOipTensor* tensors,
                  const AtollOipBytes* bytes, int32_t count, int32_t timeout_ms,
                  AtollOipBytes* first_output, char* message, size_t message_size) {
  std::vector<OipTensor> sent;
  std::vector<std::span<const uint8_t>> inputs;
  for (int32_t i = 0; i < count; ++i) {
    sent.push_back({tensors[i].name,
                    tensors[i].datatype,
                    {tensors[i].shape, tensors[i].shape + tensors[i].rank}});
    inputs.emplace_back(static_cast<const uint8_t*>(bytes[i].data), bytes[i].size);
  }
  const atollserve::Deadline deadline = In(timeout_ms);
  client->call = client->client->Start(model, sent, inputs, 0, deadline);
  auto answer = client->call->Await(deadline);
  if (!answer.ok()) return Say(answer.status(), message, message_size);
  *first_output = {};
  if (!answer->outputs.empty()) {
    *first_output = {answer->outputs[0].data(), answer->outputs[0].size()};
  }
  return ATOLL_OK;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const AtollOipModule* AtollOipModuleOf() {
  static const AtollOipModule module = {ATOLL_OIP_INTERFACE, Connect, Disconnect, DescribeModel,
                                        Infer};
  return &module;
}
