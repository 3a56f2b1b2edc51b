// SPDX-License-Identifier: Apache-2.0
//
// usage: cascade DETECTOR LABELS CLASSIFIER LABELS SOURCE [FRAMES [DEVICE]]
//
// Finds things in every frame of a camera and takes a closer look at the best four of them: a
// classifier sees the detector's boxes, cut out of the frame at its own resolution. LABELS may be
// -; the other arguments are as those of classify_camera.
//
//   cascade models/scenes/scenes_int8.tflite models/fashion/labels.txt
//           models/crops/crops_int8.tflite models/fashion/labels.txt
//           scenes:/usr/share/datasets/fashion-mnist 3
//   cascade ssd_mobilenet_v1.tflite coco_labels.txt
//           mobilenet_v2_1.0_224_quant.tflite imagenet_labels.txt /dev/video0
#include <cstdio>
#include <cstdlib>
#include <span>

#include "camera_program.h"

int main(int argc, char** argv) {
  if (argc < 6 || argc > 8) {
    std::fprintf(stderr, "usage: %s DETECTOR LABELS CLASSIFIER LABELS SOURCE [FRAMES [DEVICE]]\n",
                 argv[0]);
    return 2;
  }
  const auto device = atollpp::Delegate::Open(argc > 7 ? argv[7] : "auto");
  if (!device) return Fail(device.message());
  const auto detector = OpenCameraModel(argv[1], atollrt::Task::kDetect, argv[2], *device);
  if (!detector.ok()) return Fail(detector.status().message());
  const auto classifier = OpenCameraModel(argv[3], atollrt::Task::kClassify, argv[4], *device);
  if (!classifier.ok()) return Fail(classifier.status().message());
  const auto source = OpenCamera(argv[5]);
  if (!source.ok()) return Fail(source.status().message());

  atollrt::PipelineOptions options;
  if (argc > 6) options.max_frames = FramesOf(argv[6]);
  options.on_frame = [](const atollrt::ProcessedFrame& processed) {
    const atollrt::ModelResult& found = processed.results[0][0];
    const std::span<const atollrt::ModelResult> closer = processed.results[1];
    std::printf("frame %llu: %zu found\n",
                static_cast<unsigned long long>(processed.frame.sequence), found.detections.size());
    for (size_t i = 0; i < closer.size(); ++i) {
      const atollrt::Rect box = PlaceInFrame(processed, found, found.detections[i]);
      std::printf("  %s at %d, %d, %d x %d: %s\n", found.captions[i].c_str(), box.x, box.y,
                  box.width, box.height, closer[i].captions[0].c_str());
    }
    return atollrt::Status();
  };
  return RunCamera(source->get(),
                   {{.model = detector->model.get()},
                    {.model = classifier->model.get(), .inside = 0, .max_crops = 4}},
                   options);
}
