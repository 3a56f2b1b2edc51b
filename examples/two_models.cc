// SPDX-License-Identifier: Apache-2.0
//
// usage: two_models MODEL_A LABELS_A MODEL_B LABELS_B SOURCE [FRAMES [DEVICE]]
//
// Runs two models on every frame of a camera, on one device: classifiers, detectors, segmentations
// or poses. LABELS may be -; the other arguments are as those of classify_camera.
//
//   two_models mobilenet_v2_1.0_224_quant.tflite imagenet_labels.txt
//              ssd_mobilenet_v1.tflite coco_labels.txt /dev/video0
#include <cstdio>
#include <cstdlib>
#include <string>

#include "camera_program.h"

int main(int argc, char** argv) {
  if (argc < 6 || argc > 8) {
    std::fprintf(stderr, "usage: %s MODEL_A LABELS_A MODEL_B LABELS_B SOURCE [FRAMES [DEVICE]]\n",
                 argv[0]);
    return 2;
  }
  const auto device = atollpp::Delegate::Open(argc > 7 ? argv[7] : "auto");
  if (!device) return Fail(device.message());
  // Of one residency set, so that neither makes the other one leave the device as long as a third
  // can make room. A's requests go first wherever both wait.
  AtollInterpreterOptions use = ATOLL_INTERPRETER_OPTIONS_INIT;
  use.residency_set = 1;
  use.priority = 1;
  const auto a = OpenCameraModel(argv[1], atollrt::Task::kNone, argv[2], *device, use);
  if (!a.ok()) return Fail(a.status().message());
  use.priority = 0;
  const auto b = OpenCameraModel(argv[3], atollrt::Task::kNone, argv[4], *device, use);
  if (!b.ok()) return Fail(b.status().message());
  const auto source = OpenCamera(argv[5]);
  if (!source.ok()) return Fail(source.status().message());

  atollrt::PipelineOptions options;
  if (argc > 6) options.max_frames = FramesOf(argv[6]);
  // If both do not fit, the one that ran last on a frame is the first on the next: it is still
  // there.
  const AtollInterpreter* interpreters[] = {a->interpreter.get(), b->interpreter.get()};
  const AtollResidencyPlan* plan = nullptr;
  if (AtollPlanResidency(device->get(), interpreters, 2, &plan) == ATOLL_OK) {
    std::printf("%s\n", plan->all_fit ? "both models stay on the device"
                                      : "the models take turns on the device");
    options.alternate_order = !plan->all_fit;
  }
  options.on_frame = [](const atollrt::ProcessedFrame& processed) {
    std::printf("frame %llu\n", static_cast<unsigned long long>(processed.frame.sequence));
    for (size_t model = 0; model < 2; ++model) {
      for (const std::string& caption : processed.results[model][0].captions) {
        std::printf("  %c: %s\n", "AB"[model], caption.c_str());
      }
    }
    return atollrt::Status();
  };
  return RunCamera(source->get(),
                   {{.model = a->model.get(), .priority = 1}, {.model = b->model.get()}}, options);
}
