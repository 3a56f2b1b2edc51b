// SPDX-License-Identifier: Apache-2.0
//
// usage: detect_camera MODEL LABELS SOURCE [FRAMES [DEVICE]]
//
// Says what is where in every frame of a camera, for detectors that end in
// TFLite_Detection_PostProcess. Arguments as those of classify_camera.
//
//   detect_camera ssd_mobilenet_v1.tflite coco_labels.txt /dev/video0
#include <cstdio>
#include <cstdlib>

#include "camera_program.h"

int main(int argc, char** argv) {
  if (argc < 4 || argc > 6) {
    std::fprintf(stderr, "usage: %s MODEL LABELS SOURCE [FRAMES [DEVICE]]\n", argv[0]);
    return 2;
  }
  const auto device = atollpp::Delegate::Open(argc > 5 ? argv[5] : "auto");
  if (!device) return Fail(device.message());
  const auto detector = OpenCameraModel(argv[1], atollrt::Task::kDetect, argv[2], *device);
  if (!detector.ok()) return Fail(detector.status().message());
  const auto source = OpenCamera(argv[3]);
  if (!source.ok()) return Fail(source.status().message());

  atollrt::PipelineOptions options;
  if (argc > 4) options.max_frames = FramesOf(argv[4]);
  options.on_frame = [](const atollrt::ProcessedFrame& processed) {
    const atollrt::ModelResult& result = processed.results[0][0];
    std::printf("frame %llu: %zu found\n",
                static_cast<unsigned long long>(processed.frame.sequence),
                result.detections.size());
    for (size_t i = 0; i < result.detections.size(); ++i) {
      const atollrt::Rect box = PlaceInFrame(processed, result, result.detections[i]);
      std::printf("  %s at %d, %d, %d x %d\n", result.captions[i].c_str(), box.x, box.y, box.width,
                  box.height);
    }
    return atollrt::Status();
  };
  return RunCamera(source->get(), {{.model = detector->model.get()}}, options);
}
