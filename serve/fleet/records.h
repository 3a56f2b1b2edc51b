// SPDX-License-Identifier: Apache-2.0
//
// What a fleet keeps on its servers as JSON: what workers say of themselves, which models each
// shall have, what an object is. Everybody with the rights may write these, so that reading takes
// nothing for granted. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/status.h"
#include "serve/fleet/latency_window.h"
#include "serve/inference/inference_server.h"

namespace atollserve {

// ---- A worker --------------------------------------------------------------------------------

struct FrameCounts {
  int64_t answered = 0;  // with a result
  int64_t busy = 0;      // refused at once, for want of a place
  int64_t late = 0;      // their budget was spent
  int64_t failed = 0;
};
struct JobCounts {
  int64_t done = 0;      // their result was stored by this worker
  int64_t repeated = 0;  // somebody else's result was there first
  int64_t failed = 0;    // their result is an error
  int64_t returned = 0;  // given back for later, or for somebody else
};

struct WorkerModel {
  std::string name;
  std::string version;
  std::string sha256;  // of its file, in hexadecimal
  std::vector<TensorInfo> inputs;
  std::vector<TensorInfo> outputs;
};

struct WorkerRecord {
  std::string worker;
  std::string host;
  int64_t pid = 0;
  std::string version;  // of this library
  std::string device;   // its name, and what it is
  std::string device_description;
  bool device_emulated = false;
  int64_t device_losses = 0;
  bool device_lost = false;
  int64_t up_ms = 0;
  int32_t places = 0;  // for frames
  int32_t free = 0;
  bool draining = false;
  std::vector<WorkerModel> models;
  std::vector<std::string> problems;  // models that it should have and has not
  FrameCounts frames;
  JobCounts jobs;
  Latencies latencies;  // of frames that were answered, from their message to the answer's
};
std::string WorkerJson(const WorkerRecord& record);
// What is missing is as in a WorkerRecord; kInvalidArgument for what has another type, too many
// models, models without a name, or no id. Quantization is not read.
atollrt::Result<WorkerRecord> ParseWorker(std::string_view json);

// ---- Placement -------------------------------------------------------------------------------

struct PlacedModel {
  std::string name;
  int64_t version = 0;  // 0: the newest

  bool operator==(const PlacedModel&) const = default;
};
// ["fashion", "mobilenet/2"]
std::string PlacementJson(const std::vector<PlacedModel>& models);
// kInvalidArgument: no array of such texts, the same name twice, or more than 1,000.
atollrt::Result<std::vector<PlacedModel>> ParsePlacement(std::string_view json);
// "fashion" or "fashion/2".
atollrt::Result<PlacedModel> ParsePlacedModel(std::string_view text);

// ---- Objects -----------------------------------------------------------------------------------

// Of an object of the object store.
struct ObjectInfo {
  std::string name;
  std::string nuid;  // its chunks are at $O.BUCKET.C.NUID
  uint64_t size = 0;
  uint64_t chunks = 0;
  std::string sha256;          // 32 bytes
  std::string made_from = {};  // of what it was compiled from, likewise; "": of nothing
  bool deleted = false;
};
std::string ObjectJson(std::string_view bucket, const ObjectInfo& info, size_t chunk_bytes);
atollrt::Result<ObjectInfo> ParseObject(std::string_view json);

// "M/V/model.tflite"
std::string ModelObjectName(std::string_view model, int64_t version);
std::optional<PlacedModel> ParseModelObjectName(std::string_view name);
// "M/V/FORM.tflite" (compiled_forms.h)
std::string CompiledObjectName(std::string_view model, int64_t version, std::string_view form);
struct CompiledObject {
  PlacedModel model;
  std::string form;  // 1 to 100 small letters, digits and '-', but not "model"
};
std::optional<CompiledObject> ParseCompiledObjectName(std::string_view name);

}  // namespace atollserve
