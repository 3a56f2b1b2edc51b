// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/records.h"

#include <algorithm>
#include <ctime>
#include <set>

#include "serve/fleet/subjects.h"
#include "serve/inference/json_text.h"
#include "serve/inference/model_files.h"

namespace atollserve {
namespace {

using atollrt::InvalidArgument;
using atollrt::Result;
using atollrt::Status;
using Json = nlohmann::json;

constexpr size_t kMaxRecordBytes = 1 << 20;
constexpr size_t kMaxModels = 1000;
constexpr size_t kMaxTensors = 1000;
constexpr std::string_view kDigestPrefix = "SHA-256=";
constexpr size_t kDigestBytes = 32;
constexpr const char* kMadeFromHeader = "Atoll-Made-From";
constexpr std::string_view kModelFile = "model.tflite";
constexpr std::string_view kModelEnding = ".tflite";
constexpr size_t kMaxFormBytes = 100;

std::string DigestText(std::string_view sha256) {
  return std::string(kDigestPrefix) + Base64Url(sha256);
}
std::optional<std::string> ParseDigest(std::string_view text) {
  if (!text.starts_with(kDigestPrefix)) return std::nullopt;
  auto sha256 = DecodeBase64Url(text.substr(kDigestPrefix.size()));
  if (!sha256 || sha256->size() != kDigestBytes) return std::nullopt;
  return sha256;
}

Result<Json> ParseRecord(std::string_view json, const char* what) {
  if (json.size() > kMaxRecordBytes) {
    return InvalidArgument("%s has %zu bytes; at most %zu", what, json.size(), kMaxRecordBytes);
  }
  auto parsed = ParseJson(json);
  if (!parsed.ok()) return std::move(parsed).status().WithContext(what);
  return parsed;
}

// Members of an object that must have these types if they are there.
class Members {
 public:
  Members(const Json& json, const char* what) : json_(json), what_(what) {
    if (!json.is_object()) Fail("it is no object");
  }

  void Read(const char* name, std::string* text) {
    if (const Json* const member = Find(name)) {
      if (!member->is_string()) return Fail(std::string("'") + name + "' is no text");
      *text = member->get<std::string>();
    }
  }
  void Read(const char* name, bool* truth) {
    if (const Json* const member = Find(name)) {
      if (!member->is_boolean()) return Fail(std::string("'") + name + "' is not true or false");
      *truth = member->get<bool>();
    }
  }
  template <typename T>
  void Read(const char* name, T* count) {
    if (const Json* const member = Find(name)) {
      constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<T>::max());
      if (!member->is_number_unsigned() || member->get<uint64_t>() > kMost) {
        return Fail(std::string("'") + name + "' is no whole number from 0");
      }
      *count = static_cast<T>(member->get<uint64_t>());
    }
  }
  const Json* Find(const char* name) const { return FindMember(json_, name); }
  const Json* Array(const char* name, size_t most) {
    const Json* const member = Find(name);
    if (member == nullptr) return nullptr;
    if (!member->is_array()) {
      Fail(std::string("'") + name + "' is no array");
      return nullptr;
    }
    if (member->size() > most) {
      Fail(std::string("'") + name + "' has more than " + std::to_string(most) + " elements");
      return nullptr;
    }
    return member;
  }
  void Fail(const std::string& why) {
    if (status_.ok()) status_ = InvalidArgument("%s: %s", what_, why.c_str());
  }
  const Status& status() const { return status_; }

 private:
  const Json& json_;
  const char* const what_;
  Status status_;
};

Json TensorJson(const std::vector<TensorInfo>& tensors) {
  Json array = Json::array();
  for (const TensorInfo& info : tensors) {
    array.push_back(
        {{"name", info.name}, {"datatype", DataTypeName(info.type)}, {"shape", info.shape}});
  }
  return array;
}

Status ReadTensors(const Json* array, std::vector<TensorInfo>* tensors) {
  if (array == nullptr) return {};
  for (const Json& json : *array) {
    Members members(json, "a tensor");
    TensorInfo info;
    std::string type = "FP32";
    members.Read("name", &info.name);
    members.Read("datatype", &type);
    const auto parsed = ParseDataType(type);
    if (!parsed) {
      members.Fail("there is no such datatype");
    } else {
      info.type = *parsed;
    }
    if (const Json* const shape = members.Array("shape", 32)) {
      for (const Json& size : *shape) {
        if (!size.is_number_unsigned() || size.get<uint64_t>() > INT32_MAX) {
          members.Fail("its shape has an element that is no size");
          break;
        }
        info.shape.push_back(size.get<int64_t>());
      }
    }
    ATOLL_RETURN_IF_ERROR(members.status());
    if (!ElementCount(info.shape)) return InvalidArgument("a tensor has too many elements");
    tensors->push_back(std::move(info));
  }
  return {};
}

}  // namespace

std::string WorkerJson(const WorkerRecord& record) {
  Json models = Json::array();
  for (const WorkerModel& model : record.models) {
    models.push_back({{"name", model.name},
                      {"version", model.version},
                      {"sha256", model.sha256},
                      {"inputs", TensorJson(model.inputs)},
                      {"outputs", TensorJson(model.outputs)}});
  }
  return DumpJson({{"worker", record.worker},
                   {"host", record.host},
                   {"pid", record.pid},
                   {"version", record.version},
                   {"device", record.device},
                   {"device_description", record.device_description},
                   {"device_emulated", record.device_emulated},
                   {"device_losses", record.device_losses},
                   {"device_lost", record.device_lost},
                   {"up_ms", record.up_ms},
                   {"places", record.places},
                   {"free", record.free},
                   {"draining", record.draining},
                   {"models", std::move(models)},
                   {"problems", record.problems},
                   {"frames",
                    {{"answered", record.frames.answered},
                     {"busy", record.frames.busy},
                     {"late", record.frames.late},
                     {"failed", record.frames.failed}}},
                   {"jobs",
                    {{"done", record.jobs.done},
                     {"repeated", record.jobs.repeated},
                     {"failed", record.jobs.failed},
                     {"returned", record.jobs.returned}}},
                   {"latencies",
                    {{"count", record.latencies.count},
                     {"p50_us", record.latencies.p50_us},
                     {"p99_us", record.latencies.p99_us}}}});
}

Result<WorkerRecord> ParseWorker(std::string_view text) {
  constexpr const char* kWhat = "what a worker says of itself";
  ATOLL_ASSIGN_OR_RETURN(const Json json, ParseRecord(text, kWhat));
  Members members(json, kWhat);
  WorkerRecord record;
  members.Read("worker", &record.worker);
  members.Read("host", &record.host);
  members.Read("pid", &record.pid);
  members.Read("version", &record.version);
  members.Read("device", &record.device);
  members.Read("device_description", &record.device_description);
  members.Read("device_emulated", &record.device_emulated);
  members.Read("device_losses", &record.device_losses);
  members.Read("device_lost", &record.device_lost);
  members.Read("up_ms", &record.up_ms);
  members.Read("places", &record.places);
  members.Read("free", &record.free);
  members.Read("draining", &record.draining);
  if (members.status().ok() && !IsWorkerId(record.worker)) members.Fail("it has no id");
  if (const Json* const models = members.Array("models", kMaxModels)) {
    for (const Json& one : *models) {
      Members fields(one, "a model of a worker");
      WorkerModel model;
      fields.Read("name", &model.name);
      fields.Read("version", &model.version);
      fields.Read("sha256", &model.sha256);
      if (!IsFleetModelName(model.name)) fields.Fail("it has no name that models have");
      if (!model.version.empty() && !ParseVersion(model.version)) {
        fields.Fail("its version is no number from 1");
      }
      const Json* const inputs = fields.Array("inputs", kMaxTensors);
      const Json* const outputs = fields.Array("outputs", kMaxTensors);
      ATOLL_RETURN_IF_ERROR(fields.status());
      ATOLL_RETURN_IF_ERROR(ReadTensors(inputs, &model.inputs));
      ATOLL_RETURN_IF_ERROR(ReadTensors(outputs, &model.outputs));
      record.models.push_back(std::move(model));
    }
  }
  if (const Json* const problems = members.Array("problems", kMaxModels)) {
    for (const Json& one : *problems) {
      if (one.is_string()) record.problems.push_back(one.get<std::string>());
    }
  }
  if (const Json* const frames = members.Find("frames")) {
    Members counts(*frames, "frames of a worker");
    counts.Read("answered", &record.frames.answered);
    counts.Read("busy", &record.frames.busy);
    counts.Read("late", &record.frames.late);
    counts.Read("failed", &record.frames.failed);
    ATOLL_RETURN_IF_ERROR(counts.status());
  }
  if (const Json* const jobs = members.Find("jobs")) {
    Members counts(*jobs, "jobs of a worker");
    counts.Read("done", &record.jobs.done);
    counts.Read("repeated", &record.jobs.repeated);
    counts.Read("failed", &record.jobs.failed);
    counts.Read("returned", &record.jobs.returned);
    ATOLL_RETURN_IF_ERROR(counts.status());
  }
  if (const Json* const latencies = members.Find("latencies")) {
    Members times(*latencies, "latencies of a worker");
    times.Read("count", &record.latencies.count);
    times.Read("p50_us", &record.latencies.p50_us);
    times.Read("p99_us", &record.latencies.p99_us);
    ATOLL_RETURN_IF_ERROR(times.status());
  }
  ATOLL_RETURN_IF_ERROR(members.status());
  return record;
}

Result<PlacedModel> ParsePlacedModel(std::string_view text) {
  PlacedModel model;
  const size_t slash = text.find('/');
  model.name = text.substr(0, slash);
  const auto version = slash == std::string_view::npos ? std::optional<int64_t>(0)
                                                       : ParseVersion(text.substr(slash + 1));
  if (!IsFleetModelName(model.name) || !version) {
    return InvalidArgument("'%s' is no model: those are NAME and NAME/VERSION",
                           std::string(text.substr(0, 100)).c_str());
  }
  model.version = *version;
  return model;
}

std::string PlacementJson(const std::vector<PlacedModel>& models) {
  Json array = Json::array();
  for (const PlacedModel& model : models) {
    array.push_back(model.version == 0 ? model.name
                                       : model.name + "/" + std::to_string(model.version));
  }
  return DumpJson(array);
}

Result<std::vector<PlacedModel>> ParsePlacement(std::string_view text) {
  ATOLL_ASSIGN_OR_RETURN(const Json json, ParseRecord(text, "a placement"));
  if (!json.is_array() || json.size() > kMaxModels) {
    return InvalidArgument("a placement is an array of up to %zu names of models", kMaxModels);
  }
  std::vector<PlacedModel> models;
  std::set<std::string> names;
  for (const Json& one : json) {
    if (!one.is_string()) return InvalidArgument("a placement has an element that is no text");
    ATOLL_ASSIGN_OR_RETURN(PlacedModel model, ParsePlacedModel(one.get<std::string>()));
    if (!names.insert(model.name).second) {
      return InvalidArgument("a placement has model '%s' twice", model.name.c_str());
    }
    models.push_back(std::move(model));
  }
  return models;
}

std::string ObjectJson(std::string_view bucket, const ObjectInfo& info, size_t chunk_bytes) {
  char time[32] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  if (gmtime_r(&now, &utc) != nullptr)
    std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%SZ", &utc);
  Json json = {{"name", info.name},
               {"options", {{"max_chunk_size", chunk_bytes}}},
               {"bucket", std::string(bucket)},
               {"nuid", info.nuid},
               {"size", info.size},
               {"mtime", std::string(time)},
               {"chunks", info.chunks},
               {"digest", DigestText(info.sha256)},
               {"deleted", info.deleted}};
  if (!info.made_from.empty()) {
    json["headers"] = {{kMadeFromHeader, Json::array({DigestText(info.made_from)})}};
  }
  return DumpJson(json);
}

namespace {

// Of an object's headers, each of which has a list of values.
Result<std::string> MadeFrom(const Json& object, const char* what) {
  const auto headers = object.find("headers");
  if (headers == object.end() || !headers->is_object()) return std::string();
  const auto found = headers->find(kMadeFromHeader);
  if (found == headers->end()) return std::string();
  std::optional<std::string> sha256;
  if (found->is_array() && found->size() == 1 && found->front().is_string()) {
    sha256 = ParseDigest(found->front().get<std::string>());
  }
  if (!sha256) return InvalidArgument("%s: '%s' is no digest", what, kMadeFromHeader);
  return *std::move(sha256);
}

}  // namespace

Result<ObjectInfo> ParseObject(std::string_view text) {
  constexpr const char* kWhat = "what is known of an object";
  ATOLL_ASSIGN_OR_RETURN(const Json json, ParseRecord(text, kWhat));
  Members members(json, kWhat);
  ObjectInfo info;
  std::string digest;
  members.Read("name", &info.name);
  members.Read("nuid", &info.nuid);
  members.Read("size", &info.size);
  members.Read("chunks", &info.chunks);
  members.Read("digest", &digest);
  members.Read("deleted", &info.deleted);
  ATOLL_RETURN_IF_ERROR(members.status());
  if (info.name.empty()) return InvalidArgument("%s: it has no name", kWhat);
  // The end of the subject of its chunks: a wildcard would stand for those of others, also when
  // they are purged.
  const bool is_token =
      info.nuid.size() <= 64 && std::all_of(info.nuid.begin(), info.nuid.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               c == '-' || c == '_';
      });
  if (!is_token) return InvalidArgument("%s: its nuid is no part of a subject", kWhat);
  if (info.deleted) return info;
  if (info.nuid.empty() && info.size > 0) return InvalidArgument("%s: it has no chunks", kWhat);
  auto sha256 = ParseDigest(digest);
  if (!sha256) return InvalidArgument("%s: its digest is none of SHA-256", kWhat);
  info.sha256 = *std::move(sha256);
  ATOLL_ASSIGN_OR_RETURN(info.made_from, MadeFrom(json, kWhat));
  return info;
}

namespace {

// "M/V/FILE"
struct FileOfModel {
  PlacedModel model;
  std::string_view file;
};
std::optional<FileOfModel> ParseFileOfModel(std::string_view name) {
  const size_t slash = name.find('/');
  const size_t second = slash == std::string_view::npos ? slash : name.find('/', slash + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const auto version = ParseVersion(name.substr(slash + 1, second - slash - 1));
  if (!version || !IsFleetModelName(name.substr(0, slash))) return std::nullopt;
  return FileOfModel{.model = {.name = std::string(name.substr(0, slash)), .version = *version},
                     .file = name.substr(second + 1)};
}

std::string FileName(std::string_view model, int64_t version, std::string_view file) {
  return std::string(model) + "/" + std::to_string(version) + "/" + std::string(file);
}

}  // namespace

std::string ModelObjectName(std::string_view model, int64_t version) {
  return FileName(model, version, kModelFile);
}

std::optional<PlacedModel> ParseModelObjectName(std::string_view name) {
  const auto parsed = ParseFileOfModel(name);
  if (!parsed || parsed->file != kModelFile) return std::nullopt;
  return parsed->model;
}

std::string CompiledObjectName(std::string_view model, int64_t version, std::string_view form) {
  return FileName(model, version, std::string(form) + std::string(kModelEnding));
}

std::optional<CompiledObject> ParseCompiledObjectName(std::string_view name) {
  const auto parsed = ParseFileOfModel(name);
  if (!parsed || parsed->file == kModelFile || !parsed->file.ends_with(kModelEnding)) {
    return std::nullopt;
  }
  const std::string_view form = parsed->file.substr(0, parsed->file.size() - kModelEnding.size());
  const bool is_form = !form.empty() && form.size() <= kMaxFormBytes &&
                       std::all_of(form.begin(), form.end(), [](char c) {
                         return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
                       });
  if (!is_form) return std::nullopt;
  return CompiledObject{.model = parsed->model, .form = std::string(form)};
}

}  // namespace atollserve
