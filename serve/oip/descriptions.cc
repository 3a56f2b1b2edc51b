// SPDX-License-Identifier: Apache-2.0
#include "serve/oip/descriptions.h"

#include <algorithm>
#include <utility>

#include "serve/inference/json_text.h"

namespace atollserve {
namespace {

using Json = nlohmann::json;

Json TensorJson(const TensorInfo& info) {
  return {{"name", info.name}, {"datatype", DataTypeName(info.type)}, {"shape", info.shape}};
}

// All inputs and outputs have a first dimension of 1, which Triton's clients take for the batch.
bool HasBatch(const ModelInfo& model) {
  const auto has = [](const TensorInfo& info) {
    return info.shape.size() >= 2 && info.shape[0] == 1;
  };
  return std::all_of(model.inputs.begin(), model.inputs.end(), has) &&
         std::all_of(model.outputs.begin(), model.outputs.end(), has);
}

Json ConfigTensor(const TensorInfo& info, bool has_batch, bool is_input) {
  const Shape dims(info.shape.begin() + (has_batch ? 1 : 0), info.shape.end());
  const std::string type = DataTypeName(info.type);
  Json json = {{"name", info.name}, {"data_type", "TYPE_" + type}, {"dims", dims}};
  if (is_input) {
    const bool picture = info.shape.size() == 4 && (info.shape[3] == 1 || info.shape[3] == 3);
    json["format"] = picture ? "FORMAT_NHWC" : "FORMAT_NONE";
  } else {
    json["label_filename"] = "";
  }
  if (info.quantized()) {
    json["quantization"] = {{"scale", info.quantization.scale},
                            {"zero_point", info.quantization.zero_point}};
  }
  return json;
}

Json CountJson(const CountAndTime& sum) { return {{"count", sum.count}, {"ns", sum.ns}}; }

Json StatisticsJson(const ModelStatistics& one) {
  const Json none = CountJson({});
  Json batches = Json::array();
  if (one.execution_count > 0) {
    batches.push_back({{"batch_size", 1},
                       {"compute_input", CountJson(one.input)},
                       {"compute_infer", CountJson(one.infer)},
                       {"compute_output", CountJson(one.output)}});
  }
  return {{"name", one.name},
          {"version", one.version},
          {"last_inference", one.last_inference_ms},
          {"inference_count", one.inference_count},
          {"execution_count", one.execution_count},
          {"inference_stats",
           {{"success", CountJson(one.success)},
            {"fail", CountJson(one.fail)},
            {"queue", CountJson(one.queue)},
            {"compute_input", CountJson(one.input)},
            {"compute_infer", CountJson(one.infer)},
            {"compute_output", CountJson(one.output)},
            {"cache_hit", none},
            {"cache_miss", none}}},
          {"response_stats", Json::object()},
          {"batch_stats", std::move(batches)},
          {"memory_usage", Json::array()}};
}

}  // namespace

std::string DescribeModel(const ModelInfo& model) {
  Json inputs = Json::array(), outputs = Json::array();
  for (const TensorInfo& info : model.inputs) inputs.push_back(TensorJson(info));
  for (const TensorInfo& info : model.outputs) outputs.push_back(TensorJson(info));
  Json metadata = {{"name", model.name},
                   {"versions", model.versions},
                   {"platform", "tflite"},
                   {"inputs", std::move(inputs)},
                   {"outputs", std::move(outputs)}};
  for (const auto& [name, value] : model.properties) metadata["properties"][name] = value;
  return DumpJson(metadata);
}

std::string DescribeConfiguration(const ModelInfo& model) {
  Json config = Json::object();
  if (!model.config.empty()) {
    auto given = ParseJson(model.config);
    if (given.ok() && given->is_object()) config = *std::move(given);
  }
  if (!config.contains("version_policy")) {
    config["version_policy"] = {{"latest", {{"num_versions", 1}}}};
  }
  // What is so, whatever a file says.
  const bool has_batch = HasBatch(model);
  config["name"] = model.name;
  config["platform"] = "tflite";
  config["backend"] = "atoll";
  config["default_model_filename"] = "model.tflite";
  config["max_batch_size"] = has_batch ? 1 : 0;
  config["input"] = Json::array();
  config["output"] = Json::array();
  for (const TensorInfo& info : model.inputs) {
    config["input"].push_back(ConfigTensor(info, has_batch, /*is_input=*/true));
  }
  for (const TensorInfo& info : model.outputs) {
    config["output"].push_back(ConfigTensor(info, has_batch, /*is_input=*/false));
    if (!model.labels.empty()) config["output"].back()["label_filename"] = "labels.txt";
  }
  config["instance_group"] = {
      {{"name", model.name + "_0"}, {"kind", "KIND_CPU"}, {"count", model.instances}}};
  return DumpJson(config);
}

std::string DescribeStatistics(const std::vector<ModelStatistics>& all) {
  Json list = Json::array();
  for (const ModelStatistics& one : all) list.push_back(StatisticsJson(one));
  return DumpJson(Json{{"model_stats", std::move(list)}});
}

std::string DescribeIndex(const std::vector<ModelEntry>& index, bool ready_only) {
  Json list = Json::array();
  for (const ModelEntry& entry : index) {
    if (ready_only && entry.state != ModelState::kReady) continue;
    Json one = {
        {"name", entry.name}, {"state", ModelStateName(entry.state)}, {"reason", entry.reason}};
    if (!entry.version.empty()) one["version"] = entry.version;
    list.push_back(std::move(one));
  }
  return DumpJson(list);
}

std::string DescribeState(const InferenceServer& inference, const std::string& name) {
  Json models = Json::array();
  const auto statistics = inference.Statistics("", "");
  for (const ModelEntry& entry : inference.Index()) {
    Json one = {{"name", entry.name},
                {"version", entry.version},
                {"state", ModelStateName(entry.state)},
                {"reason", entry.reason}};
    const auto info = inference.Info(entry.name, entry.version);
    if (entry.state == ModelState::kReady && info.ok()) {
      one["nodes"] = (*info)->nodes;
      one["device_nodes"] = (*info)->device_nodes;
      one["instances"] = (*info)->instances;
      one["labels"] = !(*info)->labels.empty();
      one["substitute"] = (*info)->substitute;
      Json inputs = Json::array(), outputs = Json::array();
      for (const TensorInfo& tensor : (*info)->inputs) {
        Json input = TensorJson(tensor);
        input["scale"] = tensor.quantization.scale;
        input["zero_point"] = tensor.quantization.zero_point;
        inputs.push_back(std::move(input));
      }
      for (const TensorInfo& tensor : (*info)->outputs) outputs.push_back(TensorJson(tensor));
      one["inputs"] = std::move(inputs);
      one["outputs"] = std::move(outputs);
    }
    if (statistics.ok()) {
      for (const ModelStatistics& sums : *statistics) {
        if (sums.name != entry.name || sums.version != entry.version) continue;
        one["waiting"] = sums.waiting;
        one["running"] = sums.running;
        one["success"] = sums.success.count;
        one["fail"] = sums.fail.count;
        one["refused"] = sums.refused;
        one["average_us"] =
            sums.success.count == 0 ? 0 : sums.success.ns / sums.success.count / 1000;
        one["queue_us"] = sums.queue.count == 0 ? 0 : sums.queue.ns / sums.queue.count / 1000;
      }
    }
    models.push_back(std::move(one));
  }
  Json active = Json::array();
  for (const ActiveRequest& request : inference.Active()) {
    active.push_back({{"model", request.model},
                      {"version", request.version},
                      {"client", request.client},
                      {"priority", request.priority},
                      {"running", request.running},
                      {"since_us", request.since_ns / 1000}});
  }
  const AtollDeviceInfo device = inference.device();
  const AtollDeviceHealth health = inference.device_health();
  const auto text = [](const char* string) { return string == nullptr ? "" : string; };
  return DumpJson(Json{{"name", name},
                       {"version", AtollVersion()},
                       {"ready", inference.ready()},
                       {"device",
                        {{"name", text(device.name)},
                         {"description", text(device.description)},
                         {"note", text(device.note)},
                         {"emulated", inference.device_emulated()},
                         {"failures", health.failures},
                         {"fallbacks", health.fallbacks},
                         {"losses", health.losses}}},
                       {"models", std::move(models)},
                       {"active", std::move(active)}});
}

}  // namespace atollserve
