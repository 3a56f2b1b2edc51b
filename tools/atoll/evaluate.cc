// SPDX-License-Identifier: Apache-2.0
//
// `atoll evaluate`: several models on several devices, on the same pictures, one after the other.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/picture.h"
#include "atoll/vision.h"
#include "tools/atoll/dataset.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/files.h"
#include "tools/atoll/labels.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/pictures.h"
#include "tools/atoll/report.h"
#include "tools/atoll/scores.h"
#include "tools/atoll/session.h"
#include "tools/atoll/subcommand.h"

namespace atollcmd {
namespace {

using atollrt::Task;

struct EvaluateOptions {
  SessionOptions session;          // of none of them
  std::vector<std::string> files;  // models, and the data behind them
  std::vector<std::string> devices = {"cpu", "emu"};
  std::string pictures;
  LabelOptions labels;
  std::optional<size_t> limit;
  atollrt::PixelScaling scaling;
  bool json = false;
};

Json ToJson(const Interval& interval) {
  return {{"value", interval.value}, {"low", interval.low}, {"high", interval.high}};
}
std::string ToText(const Interval& interval) {
  return fmt::format("{:6.2f} % [{:.2f}, {:.2f}]", 100 * interval.value, 100 * interval.low,
                     100 * interval.high);
}

// A model on a device, with what it got right.
class Candidate {
 public:
  Candidate(const SessionOptions& options, const DataSet& data,
            const atollrt::PixelScaling& scaling)
      : session_(options), task_(data.task()), input_(OpenPictureInput(session_, scaling)) {
    switch (task_) {
      case Task::kDetect:
        detections_ = OpenReader<atollrt::DetectionReader>(session_, task_);
        break;
      case Task::kSegment:
        segmentation_ = OpenReader<atollrt::SegmentationReader>(session_, task_);
        break;
      default:
        classes_ = OpenReader<atollrt::ClassificationReader>(session_, Task::kClassify);
        if (data.class_count() > classes_->class_count()) {
          Fail(
              ExitCode::kUsage,
              "the data has {} classes, '{}' tells {} apart; give the data that it was trained for",
              data.class_count(), options.model, classes_->class_count());
        }
    }
  }

  const Session& session() const { return session_; }
  int channels() const { return input_.channels(); }

  void Look(const KnownPicture& known) {
    const auto resized = atollrt::Resize(known.picture, input_.width(), input_.height());
    const atollrt::Status status = resized.ok() ? input_.Write(*resized) : resized.status();
    if (!status.ok()) {
      Fail(ExitCode::kFailure, "cannot use '{}': {}; leave it out", known.name, status.message());
    }
    Stopwatch stopwatch;
    session_.Invoke();
    times_ms_.push_back(stopwatch.LapMs());
    switch (task_) {
      case Task::kDetect:
        detections_->Read(0, &found_);
        detection_score_.Add(found_, known.boxes);
        break;
      case Task::kSegment:
        Segment(known);
        break;
      default:
        classes_->ReadTop(5, &top_);
        answer_ = top_.front().class_index;
        first_ += answer_ == known.label ? 1 : 0;
        five_ += std::any_of(top_.begin(), top_.end(),
                             [&](const auto& entry) { return entry.class_index == known.label; });
    }
  }
  // Of the latest picture.
  void CompareWith(const Candidate& first) { same_ += answer_ == first.answer_ ? 1 : 0; }

  Json Report() const {
    const auto count = static_cast<int64_t>(times_ms_.size());
    std::vector<double> times = times_ms_;
    std::sort(times.begin(), times.end());
    Json json = {{"model", session_.options().model},
                 {"device", session_.device_name()},
                 {"pictures", count},
                 {"latency_ms", times.empty() ? Json() : Json(RoundedMs(Percentile(times, 50)))}};
    for (const auto& [name, interval] : Measures()) json[name] = ToJson(interval);
    if (task_ == Task::kClassify) json["same_answer_as_first"] = ToJson(Share(same_, count));
    return json;
  }
  std::string Text() const {
    std::string text =
        fmt::format("{} on {}\n", Printable(session_.options().model), session_.device_name());
    for (const auto& [name, interval] : Measures()) {
      text += fmt::format("  {:<8} {}\n", name, ToText(interval));
    }
    if (task_ == Task::kClassify) {
      text += fmt::format("  {:<8} {}\n", "same",
                          ToText(Share(same_, static_cast<int64_t>(times_ms_.size()))));
    }
    return text;
  }

 private:
  std::vector<std::pair<std::string, Interval>> Measures() const {
    const auto count = static_cast<int64_t>(times_ms_.size());
    switch (task_) {
      case Task::kDetect:
        return {{"mAP", detection_score_.Map()}, {"mAP50", detection_score_.Map50()}};
      case Task::kSegment:
        return {{"mIoU", segmentation_score_.MeanIou()}};
      default:
        return {{"top1", Share(first_, count)}, {"top5", Share(five_, count)}};
    }
  }

  void Segment(const KnownPicture& known) {
    if (const atollrt::Status status = segmentation_->Read(&map_); !status.ok()) {
      throw CommandError(ExitCode::kBadModel, status.message());
    }
    // As large as the truth: the nearest pixel of the map.
    const atollrt::Image& truth = known.mask;
    atollrt::Image enlarged;
    enlarged.Reshape(truth.width, truth.height, 1);
    for (int y = 0; y < truth.height; ++y) {
      for (int x = 0; x < truth.width; ++x) {
        const int64_t from_y = (2 * int64_t{y} + 1) * map_.height / (2 * int64_t{truth.height});
        const int64_t from_x = (2 * int64_t{x} + 1) * map_.width / (2 * int64_t{truth.width});
        enlarged.pixels[static_cast<size_t>(y) * enlarged.row_bytes() + static_cast<size_t>(x)] =
            map_.pixels[static_cast<size_t>(from_y * map_.width + from_x)];
      }
    }
    segmentation_score_.Add(enlarged, truth);
  }

  Session session_;
  const Task task_;
  atollrt::PictureInput input_;
  std::optional<atollrt::ClassificationReader> classes_;
  std::optional<atollrt::DetectionReader> detections_;
  std::optional<atollrt::SegmentationReader> segmentation_;
  std::vector<atollrt::ClassScore> top_;
  std::vector<atollrt::Detection> found_;
  atollrt::Image map_;
  std::vector<double> times_ms_;
  int answer_ = -1;
  int64_t first_ = 0;
  int64_t five_ = 0;
  int64_t same_ = 0;
  DetectionScore detection_score_;
  SegmentationScore segmentation_score_;
};

std::vector<std::string> LabelsOf(const LabelOptions& options) {
  return options.path.empty() ? std::vector<std::string>() : ParseLabels(ReadFile(options.path));
}

void RunEvaluate(const EvaluateOptions& options) {
  if (options.files.size() < 2) {
    Fail(ExitCode::kUsage, "give one model or several, and behind them the data; see --help");
  }
  const std::vector<std::string> models(options.files.begin(), options.files.end() - 1);
  const std::unique_ptr<DataSet> data =
      OpenDataSet(options.files.back(), options.pictures, LabelsOf(options.labels));
  std::vector<std::unique_ptr<Candidate>> candidates;
  for (size_t i = 0; i < models.size(); ++i) {
    for (const std::string& device : options.devices) {
      SessionOptions session = OptionsFor(options.session, models, i);
      session.device = device;
      auto candidate = std::make_unique<Candidate>(session, *data, options.scaling);
      // A float model has nothing for a device.
      const bool again = candidate->session().partitions().empty() && !candidates.empty() &&
                         candidates.back()->session().options().model == models[i];
      if (!again) candidates.push_back(std::move(candidate));
    }
  }

  // Evenly spread: data often has its classes one after the other.
  const size_t all = data->size();
  const size_t count = std::min(options.limit.value_or(all), all);
  const std::atomic<bool>& stop = StopOnSignals();
  size_t done = 0;
  {
    Progress progress("looking at pictures", static_cast<int64_t>(count), "done");
    for (; done < count && !stop; ++done) {
      std::optional<KnownPicture> known;
      int channels = 0;
      for (const auto& candidate : candidates) {
        if (!known || channels != candidate->channels()) {
          channels = candidate->channels();
          known = data->Load(done * all / count, channels);
        }
        candidate->Look(*known);
        candidate->CompareWith(*candidates.front());
      }
      progress.Step();
    }
  }
  if (done == 0) Fail(ExitCode::kInterrupted, "interrupted before anything was measured");
  Print(
      options.json,
      [&] {
        Json report = NewReport("evaluate");
        report["data"] = options.files.back();
        report["task"] = atollrt::TaskName(data->task());
        report["pictures"] = done;
        Json entries = Json::array();
        for (const auto& candidate : candidates) entries.push_back(candidate->Report());
        report["results"] = std::move(entries);
        return report;
      },
      [&] {
        std::string text = fmt::format("{} pictures of {}, with intervals of 95 %\n", done,
                                       Printable(options.files.back()));
        for (const auto& candidate : candidates) text += candidate->Text();
        return text;
      });
  if (done < count) {
    Fail(ExitCode::kInterrupted, "interrupted after {} of {} pictures; this is how they went", done,
         count);
  }
}

}  // namespace

void AddEvaluateCommand(CLI::App* app) {
  Subcommand<EvaluateOptions> command(app, "evaluate", RunEvaluate);
  command.Add("FILES", command->files)->required();
  command.Add("--device", command->devices)->delimiter(',')->allow_extra_args(false);
  command.Add("--threads", command->session.threads)->check(CLI::Range(0, 256));
  AddFallbackOption(&command, &command->session.fallback_models);
  AddInputShapeOption(&command, &command->session.input_shapes);
  command.Add("--pictures", command->pictures);
  command.Add("--labels", command->labels.path);
  command.Add("--limit", command->limit)->check(CLI::Range(1, 100'000'000));
  AddPixelScalingOptions(&command, &command->scaling);
  command.Flag("--json", command->json);
}

}  // namespace atollcmd
