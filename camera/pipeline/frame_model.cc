// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera/frame_model.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "atoll/vision/draw.h"
#include "atoll/vision/segmentation.h"

namespace atollrt {
namespace {

int64_t SteadyNowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The failure of the library on this thread; both lists of codes are the same.
Status LastError(AtollStatus status) {
  static_assert(static_cast<int>(StatusCode::kDeviceLost) == ATOLL_DEVICE_LOST);
  static_assert(static_cast<int>(StatusCode::kInternal) == ATOLL_INTERNAL);
  return {static_cast<StatusCode>(status), AtollLastError()};
}

// What depends on the task: from outputs to results, and into pictures.
class TaskView {
 public:
  virtual ~TaskView() = default;
  virtual Status Read(ModelResult* result) = 0;
  virtual void Draw(const ModelResult& result, const Canvas& canvas, LabelPlace* labels) const = 0;
};

class Names {
 public:
  explicit Names(std::vector<std::string> labels) : labels_(std::move(labels)) {}
  std::string operator[](int index) const {
    const size_t at = static_cast<size_t>(index);
    return index >= 0 && at < labels_.size() && !labels_[at].empty() ? labels_[at]
                                                                     : Format("class %d", index);
  }
  std::string WithScore(int index, float score) const {
    return (*this)[index] + Format(" %.2f", static_cast<double>(score));
  }

 private:
  std::vector<std::string> labels_;
};

// Labels below each other.
void DrawCaptions(const std::vector<std::string>& captions, const Canvas& canvas,
                  LabelPlace* labels) {
  for (const std::string& caption : captions) {
    const Rect drawn = DrawLabel(caption, labels->at, labels->scale, {}, canvas);
    labels->at.y = drawn.y + drawn.height + 2 * labels->scale;
  }
}

class ClassifierView : public TaskView {
 public:
  ClassifierView(ClassificationReader reader, Names names, int top)
      : reader_(reader), names_(std::move(names)), top_(top) {}

  Status Read(ModelResult* result) override {
    if (top_ == 1) {
      result->classes.assign(1, reader_.ReadBest());
    } else {
      reader_.ReadTop(top_, &result->classes);
    }
    result->captions.clear();
    for (const ClassScore& best : result->classes) {
      result->captions.push_back(names_.WithScore(best.class_index, best.score));
    }
    return Status();
  }
  void Draw(const ModelResult& result, const Canvas& canvas, LabelPlace* labels) const override {
    DrawCaptions(result.captions, canvas, labels);
  }

 private:
  ClassificationReader reader_;
  Names names_;
  int top_;
};

class DetectorView : public TaskView {
 public:
  DetectorView(DetectionReader reader, Names names, float threshold, int max_detections)
      : reader_(reader),
        names_(std::move(names)),
        threshold_(threshold),
        max_detections_(static_cast<size_t>(max_detections)) {}

  Status Read(ModelResult* result) override {
    reader_.Read(threshold_, &result->detections);
    if (result->detections.size() > max_detections_) result->detections.resize(max_detections_);
    result->captions.clear();
    for (const Detection& detection : result->detections) {
      result->captions.push_back(names_.WithScore(detection.class_index, detection.score));
    }
    return Status();
  }
  void Draw(const ModelResult& result, const Canvas& canvas, LabelPlace*) const override {
    DrawDetections(result.detections, result.captions, result.seen, canvas);
  }

 private:
  DetectionReader reader_;
  Names names_;
  float threshold_;
  size_t max_detections_;
};

class PoseView : public TaskView {
 public:
  PoseView(PoseReader reader, float threshold) : reader_(reader), threshold_(threshold) {}

  Status Read(ModelResult* result) override {
    reader_.Read(threshold_, &result->poses);
    result->captions.clear();
    for (const Pose& pose : result->poses) {
      result->captions.push_back(Format("pose %.2f", static_cast<double>(pose.score)));
    }
    return Status();
  }
  void Draw(const ModelResult& result, const Canvas& canvas, LabelPlace*) const override {
    DrawPoses(result.poses, threshold_, result.seen, canvas);
  }

 private:
  PoseReader reader_;
  float threshold_;
};

class SegmenterView : public TaskView {
 public:
  SegmenterView(SegmentationReader reader, Names names)
      : reader_(reader), names_(std::move(names)), palette_(SegmentationPalette()) {}

  Status Read(ModelResult* result) override {
    ATOLL_RETURN_IF_ERROR(reader_.Read(&result->map));
    const std::array<int64_t, 256> counts = CountPixels(result->map);
    std::array<int, kShown> largest;
    std::array<int, 256> order;
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort_copy(
        order.begin(), order.end(), largest.begin(), largest.end(), [&](int a, int b) {
          const auto count = [&](int i) { return counts[static_cast<size_t>(i)]; };
          return std::pair(-count(a), a) < std::pair(-count(b), b);
        });
    const double pixels = static_cast<double>(result->map.pixels.size());
    result->captions.clear();
    for (const int index : largest) {
      const double share = static_cast<double>(counts[static_cast<size_t>(index)]) / pixels;
      if (share > 0) result->captions.push_back(names_[index] + Format(" %.0f%%", 100 * share));
    }
    return Status();
  }
  void Draw(const ModelResult& result, const Canvas& canvas, LabelPlace* labels) const override {
    DrawSegmentation(result.map, palette_, result.seen, canvas);
    DrawCaptions(result.captions, canvas, labels);
  }

 private:
  static constexpr size_t kShown = 3;
  SegmentationReader reader_;
  Names names_;
  std::array<Color, 256> palette_;
};

class InterpreterModel : public FrameModel {
 public:
  InterpreterModel(AtollInterpreter* interpreter, PictureInput input, std::string name, Task task,
                   std::unique_ptr<TaskView> view)
      : interpreter_(interpreter),
        input_(std::move(input)),
        name_(std::move(name)),
        task_(task),
        view_(std::move(view)) {}

  InputSize input_size() const override {
    return {input_.width(), input_.height(), input_.channels()};
  }
  Status Write(const PlanarImage& picture, const Rect& part) override {
    return input_.Write(picture, part);
  }
  Status Submit() override {
    submit_ns_ = SteadyNowNs();
    const AtollStatus status = AtollInterpreterInvokeAsync(interpreter_);
    return status == ATOLL_OK ? Status() : LastError(status);
  }
  Status Wait(InferenceTimes* times) override {
    const AtollStatus status = AtollInterpreterWait(interpreter_);
    if (status != ATOLL_OK) return LastError(status);
    AtollInvokeInfo info = {};
    AtollInterpreterGetInvokeInfo(interpreter_, &info);
    *times = {.total_ns = SteadyNowNs() - submit_ns_,
              .link_out_ns = info.link_out_ns,
              .compute_ns = info.compute_ns,
              .link_in_ns = info.link_in_ns,
              .modelled_seconds = info.device_seconds};
    return Status();
  }
  Status Read(ModelResult* result) override { return view_->Read(result); }
  void Draw(const ModelResult& result, const Canvas& canvas, LabelPlace* labels) const override {
    view_->Draw(result, canvas, labels);
  }

  void Describe(ModelStatus* status) const override {
    status->name = name_;
    status->task = TaskName(task_);
    const int32_t count = AtollInterpreterGetNodeCount(interpreter_);
    const int32_t partitions = AtollInterpreterGetPartitionCount(interpreter_);
    int32_t on_device = 0;
    std::set<std::string> reasons;
    for (int32_t i = 0; i < count; ++i) {
      AtollNodeInfo node = {};
      if (AtollInterpreterGetNodeInfo(interpreter_, i, &node) != ATOLL_OK) continue;
      if (node.partition >= 0) {
        ++on_device;
      } else if (node.reason[0] != '\0') {
        reasons.insert(Format("%s: %s", node.op, node.reason));
      }
    }
    status->partition =
        partitions == 0
            ? Format("all %d operators on the CPU", count)
            : Format("%d partition%s with %d of %d operators on the device, %d on the CPU",
                     partitions, partitions == 1 ? "" : "s", on_device, count, count - on_device);
    status->reasons.assign(reasons.begin(), reasons.end());
  }

 private:
  AtollInterpreter* const interpreter_;
  PictureInput input_;
  const std::string name_;
  const Task task_;
  const std::unique_ptr<TaskView> view_;
  int64_t submit_ns_ = 0;
};

Result<std::unique_ptr<TaskView>> OpenView(AtollInterpreter* interpreter, Task task,
                                           FrameModelOptions& options) {
  Names names(std::move(options.labels));
  switch (task) {
    case Task::kClassify: {
      ATOLL_ASSIGN_OR_RETURN(auto reader, ClassificationReader::Create(interpreter));
      return std::unique_ptr<TaskView>(
          std::make_unique<ClassifierView>(reader, std::move(names), options.top));
    }
    case Task::kDetect: {
      ATOLL_ASSIGN_OR_RETURN(auto reader, DetectionReader::Create(interpreter));
      return std::unique_ptr<TaskView>(std::make_unique<DetectorView>(
          reader, std::move(names), options.threshold, options.max_detections));
    }
    case Task::kSegment: {
      ATOLL_ASSIGN_OR_RETURN(auto reader, SegmentationReader::Create(interpreter));
      return std::unique_ptr<TaskView>(std::make_unique<SegmenterView>(reader, std::move(names)));
    }
    case Task::kPose: {
      ATOLL_ASSIGN_OR_RETURN(auto reader, PoseReader::Create(interpreter));
      return std::unique_ptr<TaskView>(std::make_unique<PoseView>(reader, options.threshold));
    }
    case Task::kNone:
      break;
  }
  return Unsupported(
      "the model's outputs are none that a camera can show: classes, detections, poses or a map "
      "of classes");
}

}  // namespace

Result<std::unique_ptr<FrameModel>> OpenFrameModel(AtollInterpreter* interpreter,
                                                   FrameModelOptions options) {
  if (interpreter == nullptr) return InvalidArgument("there is no interpreter");
  if (options.top < 1 || options.max_detections < 1) {
    return InvalidArgument("at least one class and one detection must count, not %d and %d",
                           options.top, options.max_detections);
  }
  ATOLL_ASSIGN_OR_RETURN(PictureInput input, PictureInput::Create(interpreter, options.scaling));
  const Task task = IdentifyTask(interpreter);
  ATOLL_ASSIGN_OR_RETURN(std::unique_ptr<TaskView> view, OpenView(interpreter, task, options));
  return std::unique_ptr<FrameModel>(std::make_unique<InterpreterModel>(
      interpreter, std::move(input), options.name.empty() ? "model" : std::move(options.name), task,
      std::move(view)));
}

}  // namespace atollrt
