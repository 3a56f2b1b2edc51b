// SPDX-License-Identifier: Apache-2.0
//
// What a running pipeline tells about itself: plain values, for pages, metrics and reports.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace atollrt {

// Nearest-rank percentiles in milliseconds over the latest 16384 values; max and count over all.
struct LatencySummary {
  uint64_t count = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};

// Where the time of a frame goes. A frame passes these stages in this order, those from kResize to
// kPost once per model; the next model's kResize may pass while the device still works. The
// parts of kInfer are those of AtollInvokeInfo; operators on the CPU are in none of them.
enum class Stage {
  kCapture,  // from the camera's time stamp until the frame is in memory; of files, reading it
  kDecode,   // into planes of brightness and colour, as small as all its uses allow
  kQueue,    // waiting between these stages
  kResize,   // and quantize, in one pass: from planes into a model's input
  kInfer,    // from the first submission until the last outputs are there; has within it:
  kLinkOut,  // inputs on their way to the device
  kCompute,  // until the device has computed them; without a device, the whole inference
  kLinkIn,   // outputs on their way back
  kPost,     // from output tensors to boxes, names and poses
  kDraw,
  kEncode,  // as JPEG
  kTotal,   // from the camera's time stamp, or the time a paced frame was due, until all is done
};
inline constexpr int kStageCount = static_cast<int>(Stage::kTotal) + 1;

// "capture", "decode", "queue", "resize", "infer", "link_out", "compute", "link_in", "post",
// "draw", "encode", "total"
const char* StageName(Stage stage);

// All measured on the host; of an emulated device, how long emulating it took.
struct StageLatency {
  Stage stage = Stage::kTotal;
  LatencySummary ms;  // per frame, all models together; count 0: the stage does not happen
};

struct ModelStatus {
  std::string name;       // of the file, without directory and ending
  std::string task;       // "classify", "detect", "segment", "pose"
  std::string partition;  // "1 partition with 64 of 66 operators on the device, 2 on the CPU"
  std::string runs_on;    // the name of another model whose boxes it looks into; "": whole frames
  int priority = 0;
  uint64_t inferences = 0;
  LatencySummary infer_ms;           // measured, from handing over until outputs are there
  double modelled_device_ms = 0;     // of one inference on the modelled device; 0 without one
  std::vector<std::string> reasons;  // why operators are not on the device, each once
  std::vector<std::string> results;  // of the latest frame, for people: "cat 0.93"
};

struct DeviceStatus {
  std::string name;  // "emu"
  std::string description;
  bool emulated = false;
  // Part of the last second that requests had the device, measured: 0 to 1.
  double utilization = 0;
  // The same if inferences took as long as modelled; 0 without a model of the device.
  double modelled_utilization = 0;
  int64_t failures = 0;
  int64_t resets = 0;
  int64_t reopenings = 0;
  int64_t losses = 0;
  int64_t replays = 0;
  int64_t fallbacks = 0;
};

struct PipelineStatus {
  std::string source;  // "/dev/video0: MJPEG of 1280 x 720"
  std::string policy;  // "newest" or "every"
  int queue_size = 0;  // captured frames that may wait to be taken
  int width = 0;       // of the latest frame
  int height = 0;
  double seconds = 0;  // since the first frame was captured
  bool running = false;

  // captured == processed + dropped + failed + in_flight
  uint64_t captured = 0;
  uint64_t processed = 0;
  uint64_t dropped = 0;
  uint64_t failed = 0;
  uint64_t in_flight = 0;
  double captured_fps = 0;  // of the last second
  double processed_fps = 0;
  std::string last_failure;  // of a frame; "" if none failed

  std::vector<StageLatency> stages;  // kStageCount, in order
  std::vector<ModelStatus> models;
  DeviceStatus device;
};

}  // namespace atollrt
