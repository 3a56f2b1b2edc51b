// SPDX-License-Identifier: Apache-2.0
//
// usage: classify_camera MODEL LABELS SOURCE [FRAMES [DEVICE]]
//
// Says of every frame of a camera what it shows. SOURCE is /dev/video0, - for MJPEG from the
// standard input, a file, or another of atoll/camera/frame_source.h; without FRAMES it goes on
// until Ctrl-C.
//
//   classify_camera models/fashion/fashion_int8.tflite models/fashion/labels.txt
//                   fashion:/usr/share/datasets/fashion-mnist 5
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
  const auto classifier = OpenCameraModel(argv[1], atollrt::Task::kClassify, argv[2], *device);
  if (!classifier.ok()) return Fail(classifier.status().message());
  const auto source = OpenCamera(argv[3]);
  if (!source.ok()) return Fail(source.status().message());

  atollrt::PipelineOptions options;
  if (argc > 4) options.max_frames = FramesOf(argv[4]);
  options.on_frame = [](const atollrt::ProcessedFrame& processed) {
    const atollrt::ModelResult& result = processed.results[0][0];
    std::printf("frame %llu: %s\n", static_cast<unsigned long long>(processed.frame.sequence),
                result.captions[0].c_str());
    return atollrt::Status();
  };
  return RunCamera(source->get(), {{.model = classifier->model.get()}}, options);
}
