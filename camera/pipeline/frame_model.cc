// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera/frame_model.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "atoll/vision/draw.h"
#include "runtime/base/monotonic.h"

namespace atollrt {
namespace {

// The failure of the library on this thread; both lists of codes are the same.
Status LastError(AtollStatus status) {
  static_assert(static_cast<int>(StatusCode::kDeviceLost) == ATOLL_DEVICE_LOST);
  static_assert(static_cast<int>(StatusCode::kInternal) == ATOLL_INTERNAL);
  return {static_cast<StatusCode>(status), AtollLastError()};
}

// What depends on the task: from outputs to results, and into pictures.
struct TaskView {
  std::function<Status(ModelResult* result)> read;
  std::function<void(const ModelResult& result, const Canvas& canvas, LabelPlace* labels)> draw;
};

class Names {
 public:
  explicit Names(std::vector<std::string> labels) : labels_(std::move(labels)) {}
  std::string operator[](int index) const {
    const size_t at = static_cast<size_t>(index);
    return index >= 0 && at < labels_.size() && !labels_[at].empty() ? labels_[at]
                                                                     : Format("class %d", index);
  }
  // "cat 0.93" for each ClassScore or Detection.
  template <typename T>
  void Caption(const std::vector<T>& found, std::vector<std::string>* captions) const {
    captions->clear();
    for (const T& one : found) {
      captions->push_back((*this)[one.class_index] + Format(" %.2f", double{one.score}));
    }
  }

 private:
  std::vector<std::string> labels_;
};

// Labels below each other.
void DrawCaptions(const ModelResult& result, const Canvas& canvas, LabelPlace* labels) {
  for (const std::string& caption : result.captions) {
    const Rect drawn = DrawLabel(caption, labels->at, labels->scale, {}, canvas);
    labels->at.y = drawn.y + drawn.height + 2 * labels->scale;
  }
}

// "cat 12%" for the largest classes of a map, the largest first.
void CaptionLargest(const Image& map, const Names& names, std::vector<std::string>* captions) {
  constexpr size_t kShown = 3;
  const std::array<int64_t, 256> counts = CountPixels(map);
  std::array<int, kShown> largest;
  std::array<int, 256> order;
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort_copy(order.begin(), order.end(), largest.begin(), largest.end(),
                         [&](int a, int b) {
                           const auto count = [&](int i) { return counts[static_cast<size_t>(i)]; };
                           return std::pair(-count(a), a) < std::pair(-count(b), b);
                         });
  const double pixels = static_cast<double>(map.pixels.size());
  captions->clear();
  for (const int index : largest) {
    const double share = static_cast<double>(counts[static_cast<size_t>(index)]) / pixels;
    if (share > 0) captions->push_back(names[index] + Format(" %.0f%%", 100 * share));
  }
}

class InterpreterModel : public FrameModel {
 public:
  InterpreterModel(AtollInterpreter* interpreter, PictureInput input, std::string name, Task task,
                   TaskView view)
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
    submit_ns_ = MonotonicNs();
    const AtollStatus status = AtollInterpreterInvokeAsync(interpreter_);
    return status == ATOLL_OK ? Status() : LastError(status);
  }
  Status Wait(InferenceTimes* times) override {
    const AtollStatus status = AtollInterpreterWait(interpreter_);
    if (status != ATOLL_OK) return LastError(status);
    AtollInvokeInfo info = {};
    AtollInterpreterGetInvokeInfo(interpreter_, &info);
    *times = {.total_ns = MonotonicNs() - submit_ns_,
              .link_out_ns = info.link_out_ns,
              .compute_ns = info.compute_ns,
              .link_in_ns = info.link_in_ns,
              .modelled_seconds = info.device_seconds};
    return Status();
  }
  Status Read(ModelResult* result) override { return view_.read(result); }
  void Draw(const ModelResult& result, const Canvas& canvas, LabelPlace* labels) const override {
    view_.draw(result, canvas, labels);
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
  const TaskView view_;
  int64_t submit_ns_ = 0;
};

Result<TaskView> OpenView(AtollInterpreter* interpreter, Task task, FrameModelOptions options) {
  Names names(std::move(options.labels));
  const float threshold = options.threshold;
  TaskView view;
  switch (task) {
    case Task::kClassify: {
      ATOLL_ASSIGN_OR_RETURN(const auto reader, ClassificationReader::Create(interpreter));
      view.read = [reader, names, top = options.top](ModelResult* result) {
        reader.ReadTop(top, &result->classes);
        names.Caption(result->classes, &result->captions);
        return Status();
      };
      view.draw = DrawCaptions;
      return view;
    }
    case Task::kDetect: {
      ATOLL_ASSIGN_OR_RETURN(const auto reader, DetectionReader::Create(interpreter));
      view.read = [=, most = static_cast<size_t>(options.max_detections)](ModelResult* result) {
        reader.Read(threshold, &result->detections);
        if (result->detections.size() > most) result->detections.resize(most);
        names.Caption(result->detections, &result->captions);
        return Status();
      };
      view.draw = [](const ModelResult& result, const Canvas& canvas, LabelPlace*) {
        DrawDetections(result.detections, result.captions, result.seen, canvas);
      };
      return view;
    }
    case Task::kSegment: {
      ATOLL_ASSIGN_OR_RETURN(const auto reader, SegmentationReader::Create(interpreter));
      view.read = [reader, names](ModelResult* result) {
        ATOLL_RETURN_IF_ERROR(reader.Read(&result->map));
        CaptionLargest(result->map, names, &result->captions);
        return Status();
      };
      view.draw = [palette = SegmentationPalette()](const ModelResult& result, const Canvas& canvas,
                                                    LabelPlace* labels) {
        DrawSegmentation(result.map, palette, result.seen, canvas);
        DrawCaptions(result, canvas, labels);
      };
      return view;
    }
    case Task::kPose: {
      ATOLL_ASSIGN_OR_RETURN(const auto reader, PoseReader::Create(interpreter));
      view.read = [reader, threshold](ModelResult* result) {
        reader.Read(threshold, &result->poses);
        result->captions.clear();
        for (const Pose& pose : result->poses) {
          result->captions.push_back(Format("pose %.2f", double{pose.score}));
        }
        return Status();
      };
      view.draw = [threshold](const ModelResult& result, const Canvas& canvas, LabelPlace*) {
        DrawPoses(result.poses, threshold, result.seen, canvas);
      };
      return view;
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
  std::string name = options.name.empty() ? "model" : std::move(options.name);
  ATOLL_ASSIGN_OR_RETURN(TaskView view, OpenView(interpreter, task, std::move(options)));
  return std::unique_ptr<FrameModel>(std::make_unique<InterpreterModel>(
      interpreter, std::move(input), std::move(name), task, std::move(view)));
}

}  // namespace atollrt
