// SPDX-License-Identifier: Apache-2.0
#include "serve/frigate/detector.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace atollrt {
namespace {

// Both lists of codes are the same.
Status Translated(const atollpp::Status& status) {
  static_assert(static_cast<int>(StatusCode::kInternal) == ATOLL_INTERNAL);
  return status ? Status() : Status(static_cast<StatusCode>(status.code()), status.message());
}

// What pixels become in float inputs; quantized ones hold black to white as they are.
PixelScaling ScalingOf(AtollInterpreter* interpreter, YoloHead head) {
  const AtollTensor* const input = AtollInterpreterGetInputTensor(interpreter, 0);
  if (input == nullptr || AtollTensorType(input) != ATOLL_FLOAT32) return {};
  // YOLOX takes 0 to 255, others of the family 0 to 1.
  return {.mean = 0, .std = head == YoloHead::kYolox ? 1 : 255};
}

}  // namespace

DetectionRows RowsOf(std::span<const Detection> detections) {
  DetectionRows rows = {};
  const size_t count = std::min<size_t>(detections.size(), kDetectionRows);
  for (size_t i = 0; i < count; ++i) {
    const Detection& one = detections[i];
    const float row[kNumbersPerRow] = {
        static_cast<float>(one.class_index), one.score, one.top, one.left, one.bottom, one.right};
    std::copy(std::begin(row), std::end(row),
              rows.begin() + static_cast<ptrdiff_t>(i) * kNumbersPerRow);
  }
  return rows;
}

Result<std::shared_ptr<ObjectDetector>> ObjectDetector::Load(const std::string& path,
                                                             const atollpp::Delegate& device,
                                                             int places) {
  if (places < 1 || places > 64) {
    return InvalidArgument("a detector has 1 to 64 places, not %d", places);
  }
  atollpp::Result<atollpp::Model> model = atollpp::Model::FromFile(path);
  if (!model) return Translated(model.status());
  std::shared_ptr<ObjectDetector> detector(new ObjectDetector);
  for (int i = 0; i < places; ++i) {
    atollpp::Result<atollpp::Interpreter> interpreter =
        atollpp::Interpreter::Create(*model, device);
    if (!interpreter) return Translated(interpreter.status());
    Result<DetectionReader> ssd = DetectionReader::Create(interpreter->get());
    Result<PictureInput> input = PictureInput::Create(interpreter->get());
    if (!input.ok()) return ssd.ok() ? std::move(input).status() : std::move(ssd).status();
    std::optional<std::variant<DetectionReader, YoloReader>> reader;
    if (ssd.ok()) {
      reader = *std::move(ssd);
    } else {
      ATOLL_ASSIGN_OR_RETURN(
          YoloReader yolo, YoloReader::Create(interpreter->get(), input->width(), input->height()));
      input =
          PictureInput::Create(interpreter->get(), ScalingOf(interpreter->get(), yolo.by_shape()));
      if (!input.ok()) return std::move(input).status();
      reader = std::move(yolo);
    }
    detector->width_ = input->width();
    detector->height_ = input->height();
    detector->channels_ = input->channels();
    detector->free_.push_back(std::unique_ptr<Place>(
        new Place{*std::move(interpreter), *std::move(input), *std::move(reader)}));
  }
  return detector;
}

Result<std::vector<Detection>> ObjectDetector::Detect(const Image& image, float threshold,
                                                      Deadline deadline, YoloHead head) {
  std::unique_ptr<Place> place;
  {
    std::unique_lock lock(mutex_);
    if (!freed_.wait_until(lock, deadline, [&] { return !free_.empty(); })) {
      return Status(StatusCode::kTimeout,
                    "all places of the detector were taken until the deadline; give it more, or "
                    "fewer pictures");
    }
    place = std::move(free_.back());
    free_.pop_back();
  }
  std::vector<Detection> found;
  Status status = place->input.Write(image);
  if (status.ok()) status = Translated(place->interpreter.Invoke());
  if (status.ok()) {
    if (auto* const ssd = std::get_if<DetectionReader>(&place->reader)) {
      ssd->Read(threshold, &found);
    } else {
      status = std::get<YoloReader>(place->reader).Read(head, threshold, &found);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(place));
  }
  freed_.notify_one();
  if (!status.ok()) return status;
  return found;
}

}  // namespace atollrt
