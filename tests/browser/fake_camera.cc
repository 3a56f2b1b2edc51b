// SPDX-License-Identifier: Apache-2.0
//
// Serves the page of a camera that does not exist, for page_test.py: moving pictures and a status
// that is known. Prints its URL. A line on stdin changes what the page has to say: "trouble",
// "end"; the end of stdin ends the program.
//   fake_camera [PORT [MAX_VIEWERS]]
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "atoll/camera/web.h"
#include "atoll/picture/image.h"

namespace atollrt {
namespace {

LatencySummary Latency(double p50) {
  return {.count = 900, .p50 = p50, .p90 = 1.5 * p50, .p99 = 2 * p50, .max = 3 * p50};
}

PipelineStatus SteadyStatus() {
  PipelineStatus status;
  status.source = "/dev/video9: MJPEG of 640 x 360";
  status.policy = "newest";
  status.width = 640;
  status.height = 360;
  status.seconds = 31.5;
  status.running = true;
  status.captured = 945;
  status.processed = 900;
  status.dropped = 42;
  status.failed = 1;
  status.in_flight = 2;
  status.captured_fps = 30.04;
  status.processed_fps = 28.55;
  status.last_failure = "frame 17: the JPEG ends after 12 of its bytes";
  const double medians[kStageCount] = {2.1, 3.2, 2.5, 1.4, 8.25, 0, 7.75, 0, 0.3, 0.6, 2.2, 21.25};
  for (int i = 0; i < kStageCount; ++i) {
    StageLatency& stage = status.stages.emplace_back();
    stage.stage = static_cast<Stage>(i);
    if (medians[i] > 0) stage.ms = Latency(medians[i]);
  }
  ModelStatus detector;
  detector.name = "ssd_mobilenet_v2";
  detector.task = "detect";
  detector.partition = "1 partition with 108 of 110 operators on the device, 2 on the CPU";
  detector.inferences = 900;
  detector.infer_ms = Latency(5.5);
  detector.modelled_device_ms = 7.21;
  detector.reasons = {"DEQUANTIZE: its output is float32, must be int8, uint8 or int16"};
  detector.results = {"person 0.93", "bicycle 0.71"};
  ModelStatus hostile;
  hostile.name = "<b onclick=\"alert(1)\">tricky</b> \"&amp;\" \xff";
  hostile.task = "classify";
  hostile.partition = "all 31 operators on the device";
  hostile.runs_on = "ssd_mobilenet_v2";
  hostile.priority = 2;
  hostile.inferences = 1234567;
  hostile.infer_ms = Latency(1.25);
  hostile.results = {"<script>document.title = 'owned'</script>"};
  status.models = {detector, hostile};
  status.device.name = "emu";
  status.device.description = "emulated Atoll-1, 64 x 64 cells at 500 MHz";
  status.device.emulated = true;
  status.device.utilization = 0.425;
  status.device.modelled_utilization = 0.216;
  return status;
}

// A square that goes round on a gradient.
Image Picture(int frame) {
  Image image;
  image.Reshape(640, 360, 3);
  const int left = frame * 8 % 560, top = 140;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      const bool inside = x >= left && x < left + 80 && y >= top && y < top + 80;
      uint8_t* pixel = &image.pixels[image.row_bytes() * y + 3 * x];
      pixel[0] = static_cast<uint8_t>(inside ? 250 : x * 200 / 640);
      pixel[1] = static_cast<uint8_t>(inside ? 210 : y * 200 / 360);
      pixel[2] = static_cast<uint8_t>(inside ? 40 : 120);
    }
  }
  return image;
}

int Serve(int port, int max_viewers) {
  std::mutex mutex;
  PipelineStatus status = SteadyStatus();
  StreamServerOptions options;
  options.port = port;
  options.max_viewers = max_viewers;
  options.status = [&] {
    const std::lock_guard lock(mutex);
    return status;
  };
  auto server = StreamServer::Start(std::move(options));
  if (!server.ok()) {
    std::fprintf(stderr, "fake_camera: %s\n", server.status().message().c_str());
    return 1;
  }
  std::atomic<bool> stop = false;
  std::thread camera([&] {
    std::vector<uint8_t> jpeg;
    for (int frame = 0; !stop; ++frame) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (!(*server)->wants_frames()) continue;
      if (EncodeJpegInto(Picture(frame), 80, &jpeg).ok()) (*server)->Publish(jpeg);
    }
  });
  std::printf("%s\n", (*server)->url().c_str());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const std::lock_guard lock(mutex);
    if (line == "trouble") {
      status.device.failures = 3;
      status.device.resets = 2;
      status.device.fallbacks = 1;
    } else if (line == "end") {
      status.running = false;
      stop = true;
    }
  }
  stop = true;
  camera.join();
  return 0;
}

}  // namespace
}  // namespace atollrt

int main(int argc, char** argv) {
  return atollrt::Serve(argc > 1 ? std::atoi(argv[1]) : 0, argc > 2 ? std::atoi(argv[2]) : 16);
}
