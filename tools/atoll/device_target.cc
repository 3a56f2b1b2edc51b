// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <utility>

#include "tools/atoll/exit_code.h"
#include "tools/atoll/load_target.h"

namespace atollcmd {
namespace {

class DeviceStream : public Stream {
 public:
  explicit DeviceStream(std::unique_ptr<Session> session) : session_(std::move(session)) {}

  Session* session() const { return session_.get(); }

  void SetInputs(const Inputs& inputs) override {
    const std::vector<AtollTensor*> tensors = session_->inputs();
    for (size_t i = 0; i < tensors.size(); ++i) {
      std::memcpy(AtollTensorData(tensors[i]), inputs[i].data(), inputs[i].size());
    }
  }
  bool Run() override {
    session_->Invoke();
    return true;
  }
  std::string failure() const override { return ""; }
  OutputBytes output() const override {
    const AtollTensor* tensor = session_->outputs().at(0);
    return {
        AtollTensorType(tensor),
        {static_cast<const uint8_t*>(AtollTensorConstData(tensor)), AtollTensorByteSize(tensor)}};
  }

 private:
  const std::unique_ptr<Session> session_;
};

class DeviceTarget : public Target {
 public:
  DeviceTarget(const SessionOptions& options, size_t streams) {
    streams_.push_back(std::make_unique<DeviceStream>(std::make_unique<Session>(options)));
    while (streams_.size() < streams) {
      streams_.push_back(std::make_unique<DeviceStream>(first().Twin()));
    }
  }

  std::string name() const override { return first().device_name(); }
  std::string model() const override { return first().options().model; }
  size_t stream_count() const override { return streams_.size(); }
  Stream& stream(size_t index) override { return *streams_[index]; }
  Session* session() override { return &first(); }

  Inputs MakeInputs(const std::vector<std::string>& files) override {
    FillInputs(first(), 1, files);
    Inputs inputs;
    for (const AtollTensor* tensor : first().inputs()) {
      const auto* bytes = static_cast<const uint8_t*>(AtollTensorConstData(tensor));
      inputs.emplace_back(bytes, bytes + AtollTensorByteSize(tensor));
    }
    return inputs;
  }
  void CheckInputs(const Inputs&) const override {}  // they come from an interpreter of the model

  Json Describe() const override {
    const Session& session = first();
    Json json = NewReport("benchmark", session);
    for (const char* key : {"schema", "command", "atoll"}) json.erase(key);
    json["threads"] = session.options().threads;
    const Session::LoadTimes& load = session.load_times();
    json["load_ms"] = {{"total", RoundedMs(load.model_ms + load.device_ms + load.prepare_ms)},
                       {"model", RoundedMs(load.model_ms)},
                       {"open_device", RoundedMs(load.device_ms)},
                       {"prepare", RoundedMs(load.prepare_ms)}};
    const AtollMemoryInfo memory = session.memory_info();
    json["arena_bytes"] = memory.arena_bytes;
    json["arena_lower_bound_bytes"] = memory.arena_lower_bound_bytes;
    json["modelled_device"] = ModelledJson(session);
    return json;
  }

 private:
  Session& first() const { return *streams_.front()->session(); }

  // Nothing is modelled of the CPU, and of a Coral only the bytes are known.
  static Json ModelledJson(const Session& session) {
    if (!session.on_device()) return nullptr;
    const AtollInvokeInfo device = session.invoke_info();
    const bool has_model = !session.on_coral();
    return {{"ms", has_model ? Json(RoundedMs(device.device_seconds * 1e3)) : Json()},
            {"cycles", has_model ? Json(device.device_cycles) : Json()},
            {"bytes_to_device", device.bytes_to_device},
            {"bytes_from_device", device.bytes_from_device}};
  }

  std::vector<std::unique_ptr<DeviceStream>> streams_;
};

}  // namespace

std::unique_ptr<Target> OpenDeviceTarget(const SessionOptions& options, size_t streams) {
  return std::make_unique<DeviceTarget>(options, streams);
}

}  // namespace atollcmd
