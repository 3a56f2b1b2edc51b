// SPDX-License-Identifier: Apache-2.0
//
// InferenceServer: models, whose turn it is, and what has been done, for any protocol. REST
// (serve/oip) and whatever else speaks to clients are thin layers above this header: they make an
// InferRequest of bytes and bytes of an InferOutcome.
//
//   InferenceServerOptions options;
//   options.device = "auto";
//   options.model_folder = "models";                        // M/V/model.tflite
//   auto server = InferenceServer::Create(std::move(options));
//   if (!server.ok()) return server.status();
//   InferRequest request = {.model = "fashion"};
//   request.inputs.push_back({.name = "", .type = DataType::kInt8, .shape = {1, 28, 28, 1},
//                             .bytes = pixels, .owner = keeps_the_pixels});
//   auto cancel = (*server)->Infer(std::move(request), [](InferOutcome outcome) { ... });
//
// A model has a version or several (the numbers of its folders); each has a queue and as many
// interpreters, with a thread each, as it shall run requests at a time. All share one device.
//
// Requests wait by priority, then in the order in which they came, never longer than their
// deadline: one that would have to is refused when it comes, with the time after which it is worth
// to try again, and so is one that finds the queue full. A model that is loaded again takes the old
// one's place when it is ready; the old one ends with the requests that it has, so that none fails.
//
// Files, uploaded models and requests are hostile: everything is checked, with an error that names
// the thing and the numbers. Nothing of a request outlasts it, also not the state of recurrent
// models. All functions may be called from any thread; those that load block for as long as that
// takes, all others do not block.
//
// Codes of Status, with what they are in HTTP and gRPC:
//   kNotFound            no such model or version            404  NOT_FOUND
//   kInvalidArgument     names, shapes, types, sizes         400  INVALID_ARGUMENT
//   kCorruptModel        an uploaded model is none           400  INVALID_ARGUMENT
//   kUnsupported         what nobody implements here         501  UNIMPLEMENTED
//   kPermissionDenied    models cannot be loaded here        403  PERMISSION_DENIED
//   kResourceExhausted   queue full or too slow; memory      503  UNAVAILABLE
//   kDeviceBusy, kDeviceLost                                 503  UNAVAILABLE
//   kTimeout             the deadline passed                 504  DEADLINE_EXCEEDED
//   kCancelled                                               400  CANCELLED
//   kInternal                                                500  INTERNAL
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/status.h"
#include "serve/inference/tensor_data.h"

namespace atollserve {

// The number that HTTP, and what speaks like it, has for a code: the table above.
int HttpStatusOf(atollrt::StatusCode code);

// ---- What it serves -------------------------------------------------------------------------

enum class ModelControl {
  kNone,      // all models of the folder, from the start to the end
  kExplicit,  // clients may load and unload them, and upload others
};

struct InferenceLimits {
  size_t models = 64;                              // names, those of executables not among them
  size_t executables = 64;                         // of programs that share the device
  size_t model_bytes = 64 << 20;                   // of an uploaded file
  size_t versions = 8;                             // of a model at a time
  size_t queue = 64;                               // requests that wait for one version of a model
  std::chrono::milliseconds longest_wait{30'000};  // of requests without a deadline
};

// What a trailing metadata of gRPC is called that has the StatusCode of an error, as a number.
inline constexpr char kCodeMetadata[] = "atoll-code";

struct InferenceServerOptions {
  std::string device = "auto";              // as everywhere: docs/devices.md
  std::string on_device_loss = "fallback";  // as AtollDelegateOptions has it
  int32_t threads = 0;       // of each interpreter on the CPU, and of an emulator; 0: a default
  int32_t instances = 1;     // interpreters of each version of a model
  std::string model_folder;  // M/V/model.tflite, M/labels.txt, M/config.json; "": none
  // Single files by name: version 1 of a model each; labels beside the file as NAME.txt.
  std::vector<std::pair<std::string, std::string>> models;
  ModelControl control = ModelControl::kNone;
  // Programs of other computers may use the device: what it is is the metadata of kDeviceModel, and
  // they upload what they compiled for it under names that begin with kExecutablePrefix.
  bool share_device = false;
  InferenceLimits limits;
};

// A name that only has metadata: properties.
inline constexpr std::string_view kDeviceModel = "atoll.device";
// Behind it: the SHA-256 of the model's file, so that a name is one executable for everybody, and
// nobody can load another one in its place. Those that have not been used for longest make room.
inline constexpr std::string_view kExecutablePrefix = "atoll.executable.";

enum class ModelState { kUnavailable, kLoading, kReady, kUnloading };
const char* ModelStateName(ModelState state);  // "READY"

// A line of the repository's index.
struct ModelEntry {
  std::string name;
  std::string version;  // "": none has been loaded
  ModelState state = ModelState::kUnavailable;
  std::string reason;  // why it is not ready; ""
};

struct ModelInfo {
  std::string name;
  std::string version;
  std::vector<std::string> versions;  // all that are loaded, ascending
  std::vector<TensorInfo> inputs;     // as they are stored
  std::vector<TensorInfo> outputs;
  std::vector<std::string> labels;  // of classes; may be empty
  std::string config;               // JSON of its config.json, or of the request that loaded it; ""
  int32_t instances = 0;
  int32_t nodes = 0;
  int32_t device_nodes = 0;  // run on the device; the others on the CPU
  std::string substitute;    // of a Coral's model, what runs in its place; ""
  std::vector<std::pair<std::string, std::string>> properties;  // of kDeviceModel
};

// What a request to load a model brings along, instead of what is in the folder.
struct ModelUpload {
  std::optional<std::string> config;         // JSON
  std::map<std::string, std::string> files;  // "1/model.tflite" -> bytes; also "labels.txt"
};

// ---- Requests ---------------------------------------------------------------------------------

using MonotonicTime = std::chrono::steady_clock::time_point;

struct InferRequest {
  std::string model;
  std::string version;               // "": the newest
  std::vector<InputTensor> inputs;   // each of the model's once
  std::vector<std::string> outputs;  // names of those that are wanted; empty: all
  // Quantized inputs come, and outputs go, as the FP32 that they stand for; else as stored.
  bool real_values = false;
  uint32_t priority = 0;  // 1 comes first, then 2; 0, the default, after all others
  std::optional<MonotonicTime> deadline = {};
  std::string client = {};  // for people: who asks
};

struct InferTimes {
  int64_t queue_ns = 0;   // until an interpreter, and its device, was free
  int64_t input_ns = 0;   // inputs are converted, copied and sent to the device
  int64_t infer_ns = 0;   // device and CPU compute
  int64_t output_ns = 0;  // outputs come back and are converted
};

// The end of a request. Without a status of ok nothing but that and retry_after means anything.
struct InferOutcome {
  atollrt::Status status;
  std::string model;
  std::string version;
  std::vector<OutputTensor> outputs;  // in the order in which they were asked for
  InferTimes times;
  int64_t device_cycles = 0;  // 0: it ran on the CPU
  // If it was refused: when there will be room, as far as that can be told.
  std::optional<std::chrono::milliseconds> retry_after = {};
};
// Called once, on a thread of the server's or, when the request is refused at once or cancelled, on
// the caller's. It must not block for long: the interpreter waits.
using InferCallback = std::function<void(InferOutcome outcome)>;
// Ends a request early, if it still can; its callback is called with kCancelled then. May be called
// at any time from any thread, also when the request has ended.
using CancelFunction = std::function<void()>;

// ---- What has been done -----------------------------------------------------------------------

struct CountAndTime {
  int64_t count = 0;
  int64_t ns = 0;
};
// Upper ends of the buckets of `latency`, in seconds; one more bucket has the rest.
inline constexpr double kLatencyBuckets[] = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02,
                                             0.05,   0.1,   0.2,   0.5,   1,    5};
inline constexpr size_t kLatencyBucketCount = std::size(kLatencyBuckets) + 1;

// Cumulative, of one version of a model; a reload begins anew.
struct ModelStatistics {
  std::string name;
  std::string version;
  int64_t last_inference_ms = 0;  // since 1970; 0: none yet
  int64_t inference_count = 0;
  int64_t execution_count = 0;
  CountAndTime success, fail, queue, input, infer, output;
  int64_t refused = 0;    // of those that failed: at once, for want of room
  int64_t expired = 0;    // of those that failed: deadlines that passed
  int64_t cancelled = 0;  // of those that failed
  int64_t device_cycles = 0;
  int64_t latency[kLatencyBucketCount] = {};  // successful requests, from their coming to their end
  // Now:
  int32_t waiting = 0;
  int32_t running = 0;
  int64_t expected_wait_ns = 0;  // of one that comes now
};

// A request that waits or runs, for people.
struct ActiveRequest {
  std::string model;
  std::string version;
  std::string client;
  uint32_t priority = 0;
  bool running = false;
  int64_t since_ns = 0;  // it came so long ago
};

class InferenceServer {
 public:
  // Opens the device and loads all models (with ModelControl::kExplicit those of the folder, too).
  // One that cannot be loaded is in the index with its reason; without any model that can there is
  // still a server. kNotFound and others of AtollDelegateCreate, or if the folder cannot be read.
  static atollrt::Result<std::unique_ptr<InferenceServer>> Create(InferenceServerOptions options);
  // Ends all requests, those that wait with kCancelled.
  virtual ~InferenceServer() = default;

  // Starts a request, or refuses it; the callback says which.
  virtual CancelFunction Infer(InferRequest request, InferCallback done) = 0;

  // No model is being loaded for the first time, none failed, and it is not draining.
  virtual bool ready() const = 0;
  virtual bool ModelReady(std::string_view model, std::string_view version) const = 0;
  // kNotFound. The newest version if `version` is "".
  virtual atollrt::Result<std::shared_ptr<const ModelInfo>> Info(
      std::string_view model, std::string_view version) const = 0;
  // What was counted; of all models and versions that are loaded if both are "". kNotFound.
  virtual atollrt::Result<std::vector<ModelStatistics>> Statistics(
      std::string_view model, std::string_view version) const = 0;
  virtual std::vector<ModelEntry> Index() const = 0;
  virtual std::vector<ActiveRequest> Active() const = 0;

  // What Load refuses, too, to be asked before an upload is read: kPermissionDenied without
  // ModelControl::kExplicit, or without share_device for an executable.
  virtual atollrt::Status MayLoad(std::string_view model) const = 0;
  // Blocks. An executable comes alone, as 1/model.tflite. After a failure of a model that was
  // loaded before, that goes on.
  virtual atollrt::Status Load(const std::string& model, ModelUpload upload) = 0;
  // Returns at once; requests that it has are finished.
  virtual atollrt::Status Unload(const std::string& model) = 0;
  virtual ModelControl control() const = 0;

  // The device that all models run on. Strings live as long as the server.
  virtual AtollDeviceInfo device() const = 0;
  virtual AtollDeviceDetails device_details() const = 0;
  virtual AtollDeviceHealth device_health() const = 0;
  virtual bool device_emulated() const = 0;

  // Refuses requests from now on and waits for those that it has, not longer than `timeout`. True
  // if all have ended.
  virtual bool Drain(std::chrono::milliseconds timeout) = 0;
};

// All that is counted, as Prometheus reads it: our own names and those of Triton's dashboards.
std::string PrometheusText(const InferenceServer& server);

}  // namespace atollserve
