// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/calibration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "atoll/camera.h"
#include "tools/atoll/array_file.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/measure.h"

namespace atollcmd {

// ---- Pictures -----------------------------------------------------------------------------------

// Writes pictures into the interpreter's input, from where their values are taken.
class PictureScaler {
 public:
  // Throws if pictures are not what the model wants.
  PictureScaler(InputsOfModel* model, const atollrt::PixelScaling& scaling)
      : model_(model), scaling_(scaling) {
    channels_ = Input().channels();
  }

  int channels() const { return channels_; }
  // The interpreter goes; what comes next opens it anew.
  void Close() { input_.reset(); }

  // To the size of the input.
  atollrt::Image Resize(const atollrt::Image& picture, const std::string& name) {
    auto resized = atollrt::Resize(picture, Input().width(), Input().height());
    if (!resized.ok()) {
      Fail(ExitCode::kUsage, "cannot use the picture '{}': {}; leave it out", name,
           resized.status().message());
    }
    return *std::move(resized);
  }
  void Write(const atollrt::Image& resized, Sample* sample) {
    if (const atollrt::Status status = Input().Write(resized); !status.ok()) {
      throw CommandError(ExitCode::kFailure, status.message());
    }
    std::memcpy(sample->front().data(), AtollTensorConstData(tensor_),
                sample->front().size() * sizeof(float));
  }

 private:
  atollrt::PictureInput& Input() {
    if (input_) return *input_;
    AtollInterpreter* const interpreter = model_->Open();
    auto input = atollrt::PictureInput::Create(interpreter, scaling_);
    if (!input.ok()) {
      throw CommandError(ExitCode::kBadModel,
                         input.status().message() +
                             "; give samples of its inputs in a .npz file that numpy.savez wrote");
    }
    tensor_ = AtollInterpreterGetInputTensor(interpreter, 0);
    return input_.emplace(*std::move(input));
  }

  InputsOfModel* const model_;
  const atollrt::PixelScaling scaling_;
  int channels_ = 0;
  const AtollTensor* tensor_ = nullptr;         // while there is
  std::optional<atollrt::PictureInput> input_;  // this
};

namespace {

namespace fs = std::filesystem;

class PictureFiles : public SampleSource {
 public:
  PictureFiles(std::vector<std::string> paths, std::shared_ptr<PictureScaler> scaler)
      : paths_(std::move(paths)), scaler_(std::move(scaler)) {}

  bool Next(Sample* sample) override {
    if (next_ == paths_.size()) return false;
    const std::string& path = paths_[next_++];
    scaler_->Write(scaler_->Resize(Read(path), path), sample);
    return true;
  }
  void Rewind() override { next_ = 0; }
  int64_t count() const override { return static_cast<int64_t>(paths_.size()); }
  std::string NameOf(int64_t sample) const override { return paths_[static_cast<size_t>(sample)]; }
  std::optional<atollrt::Image> PictureOf(int64_t sample) const override {
    return Read(NameOf(sample));
  }

 private:
  atollrt::Image Read(const std::string& path) const {
    atollrt::DecodeOptions decode;
    decode.channels = scaler_->channels();
    atollrt::Result<atollrt::Image> image = atollrt::ReadImageFile(path, decode);
    if (image.ok()) return *std::move(image);
    Fail(ExitCode::kFailure,
         "cannot use the picture: {}; give JPEG, PNG, BMP or PPM files, or leave it out",
         image.status().message());
  }

  const std::vector<std::string> paths_;
  const std::shared_ptr<PictureScaler> scaler_;
  size_t next_ = 0;
};

// Frames that were taken before the work begins: they cannot be taken again.
class CameraFrames : public SampleSource {
 public:
  CameraFrames(std::string source, int64_t frames_max, std::shared_ptr<PictureScaler> scaler)
      : source_(std::move(source)), scaler_(std::move(scaler)) {
    const std::atomic<bool>& stop = StopOnSignals();
    atollrt::FrameSourceOptions options;
    options.stop = &stop;
    auto opened = atollrt::OpenFrameSource(source_, options);
    Progress progress("looking at the camera", frames_max, "frames");
    atollrt::Frame frame;
    atollrt::PlanarImage planes;
    atollrt::Status status = opened.status();
    while (status.ok() && static_cast<int64_t>(frames_.size()) < frames_max && !stop) {
      const atollrt::Result<bool> more = (*opened)->Next(&frame);
      status = more.status();
      if (!status.ok() || !*more) break;
      // A frame that is damaged is no loss: there are others.
      if (!atollrt::DecodeFrame(frame, {}, &planes).ok()) continue;
      frames_.push_back(scaler_->Resize(ToPicture(&planes), NameOf(count())));
      progress.Step();
    }
    if (stop) Fail(ExitCode::kInterrupted, "interrupted before the camera had been looked at");
    if (!status.ok()) {
      Fail(ExitCode::kFailure, "{}; 'atoll camera --help' lists what a source may be",
           status.message());
    }
    if (frames_.empty()) {
      Fail(ExitCode::kFailure, "{} had no frame that can be decoded; give another source",
           atollrt::SourceName(source_));
    }
  }

  bool Next(Sample* sample) override {
    if (next_ == frames_.size()) return false;
    scaler_->Write(frames_[next_++], sample);
    return true;
  }
  void Rewind() override { next_ = 0; }
  int64_t count() const override { return static_cast<int64_t>(frames_.size()); }
  std::string NameOf(int64_t sample) const override {
    return fmt::format("frame {} of {}", sample, atollrt::SourceName(source_));
  }
  std::optional<atollrt::Image> PictureOf(int64_t sample) const override {
    return frames_[static_cast<size_t>(sample)];
  }

 private:
  // With the input's channels; gray becomes RGB by repetition.
  atollrt::Image ToPicture(atollrt::PlanarImage* planes) const {
    if (scaler_->channels() == 1) planes->has_color = false;
    atollrt::Image picture;
    atollrt::ToImage(*planes, &picture);
    if (picture.channels == scaler_->channels()) return picture;
    atollrt::Image colored;
    colored.Reshape(picture.width, picture.height, 3);
    for (size_t i = 0; i < colored.pixels.size(); ++i) colored.pixels[i] = picture.pixels[i / 3];
    return colored;
  }

  const std::string source_;
  const std::shared_ptr<PictureScaler> scaler_;
  std::vector<atollrt::Image> frames_;  // of the input's size
  size_t next_ = 0;
};

// ---- Arrays -------------------------------------------------------------------------------------

std::string DimsText(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

class Arrays : public SampleSource {
 public:
  Arrays(std::string path, AtollInterpreter* interpreter) : path_(std::move(path)), file_(path_) {
    const auto& arrays = file_.arrays();
    const auto inputs = static_cast<size_t>(AtollInterpreterGetInputTensorCount(interpreter));
    if (arrays.size() != inputs) {
      Fail(ExitCode::kUsage, "'{}' has {} arrays, the model {} inputs; save one array for each",
           path_, arrays.size(), inputs);
    }
    for (size_t i = 0; i < inputs; ++i) {
      const AtollTensor* const tensor =
          AtollInterpreterGetInputTensor(interpreter, static_cast<int32_t>(i));
      AddInput(i, tensor);
    }
  }

  bool Next(Sample* sample) override {
    if (next_ == count_) return false;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Input& input = inputs_[i];
      std::vector<float>& values = (*sample)[i];
      if (!input.channels_first) {
        file_.Read(input.array, values);
        continue;
      }
      plane_.resize(values.size());
      file_.Read(input.array, plane_);
      const size_t places = values.size() / input.channels;
      for (size_t k = 0; k < values.size(); ++k) {
        values[k] = plane_[k % input.channels * places + k / input.channels];
      }
    }
    ++next_;
    return true;
  }
  void Rewind() override {
    file_.Rewind();
    next_ = 0;
  }
  int64_t count() const override { return count_; }
  std::string NameOf(int64_t sample) const override {
    return fmt::format("sample {} of {}", sample, path_);
  }
  std::optional<atollrt::Image> PictureOf(int64_t) const override { return std::nullopt; }

 private:
  struct Input {
    size_t array;
    size_t channels = 1;
    bool channels_first = false;  // the array's samples are, the input is not
  };

  void AddInput(size_t index, const AtollTensor* tensor) {
    // By name if any array has one of an input's; else in their order.
    const std::string name = AtollTensorName(tensor);
    const auto& arrays = file_.arrays();
    const auto named = std::find_if(arrays.begin(), arrays.end(),
                                    [&](const auto& array) { return array.name == name; });
    Input input{named == arrays.end() ? index : static_cast<size_t>(named - arrays.begin())};
    if (!taken_.insert(input.array).second) {
      Fail(ExitCode::kUsage,
           "'{}': the arrays {} do not name the model's inputs, which are called '{}', ...", path_,
           fmt::join(NamesOf(arrays), ", "), name);
    }

    std::vector<int64_t> dims;
    for (int32_t i = 0; i < AtollTensorNumDims(tensor); ++i) {
      dims.push_back(AtollTensorDim(tensor, i));
    }
    if (AtollTensorType(tensor) != ATOLL_FLOAT32) {
      Fail(ExitCode::kBadModel, "input '{}' is {}, must be float32; give the float model", name,
           AtollTypeName(AtollTensorType(tensor)));
    }
    const std::vector<int64_t>& shape = arrays[input.array].shape;
    // [samples, ...] with the batch, which is 1, in the place of the samples or behind them, or one
    // sample alone.
    std::vector<int64_t> rest(shape.begin() + (shape.empty() ? 0 : 1), shape.end());
    const std::vector<int64_t> inner(dims.begin() + (dims.empty() ? 0 : 1), dims.end());
    const bool batch_of_one = !dims.empty() && dims[0] == 1;
    int64_t count = shape.empty() ? 1 : shape[0];
    bool fits = rest == dims || (batch_of_one && rest == inner);
    if (!fits && shape == dims) {
      count = 1;
      fits = true;
    }
    if (!fits && batch_of_one && inner.size() == 3 &&
        rest == std::vector<int64_t>{inner[2], inner[0], inner[1]}) {
      input.channels_first = fits = true;
      input.channels = static_cast<size_t>(inner[2]);
    }
    if (!fits) {
      Fail(ExitCode::kUsage,
           "'{}': the array for input '{}' has shape {}, must be [samples] and behind that {}",
           path_, name, DimsText(shape), DimsText(batch_of_one ? inner : dims));
    }
    if (index > 0 && count != count_) {
      Fail(ExitCode::kUsage, "'{}' has {} samples of input '{}', {} of the first one", path_, count,
           name, count_);
    }
    count_ = count;
    inputs_.push_back(input);
  }

  static std::vector<std::string> NamesOf(const std::vector<ArrayFile::Array>& arrays) {
    std::vector<std::string> names;
    for (const auto& array : arrays) names.push_back("'" + array.name + "'");
    return names;
  }

  const std::string path_;
  ArrayFile file_;
  std::vector<Input> inputs_;
  std::set<size_t> taken_;
  std::vector<float> plane_;
  int64_t count_ = 0;
  int64_t next_ = 0;
};

// ---- All of them --------------------------------------------------------------------------------

bool IsPicture(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  for (const char* known : {".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm"}) {
    if (extension == known) return true;
  }
  return false;
}

// In the order of their names.
std::vector<std::string> PicturesIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_regular_file(unknown) && IsPicture(entry->path())) {
      paths.push_back(entry->path().string());
    }
  }
  if (error) {
    Fail(ExitCode::kFailure, "cannot read the folder '{}': {}; {}", folder, error.message(),
         AdviseReading(error.value()));
  }
  if (paths.empty()) {
    Fail(ExitCode::kUsage,
         "there is no picture in '{}'; --calibrate takes folders of JPEG, PNG, BMP or PPM files",
         folder);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// So many of them, evenly spread: folders have their classes one after the other.
std::vector<std::string> Thinned(const std::vector<std::string>& paths, int64_t most) {
  const auto count = static_cast<int64_t>(paths.size());
  if (count <= most) return paths;
  std::vector<std::string> some;
  for (int64_t i = 0; i < most; ++i) some.push_back(paths[static_cast<size_t>(i * count / most)]);
  return some;
}

}  // namespace

Calibration::Calibration(const CalibrationOptions& options, InputsOfModel* model) : model_(model) {
  AtollInterpreter* const interpreter = model->Open();
  for (int32_t i = 0; i < AtollInterpreterGetInputTensorCount(interpreter); ++i) {
    const AtollTensor* const tensor = AtollInterpreterGetInputTensor(interpreter, i);
    sample_.emplace_back(AtollTensorByteSize(tensor) / sizeof(float));
  }
  const auto scaler_of_pictures = [&] {
    if (!scaler_) scaler_ = std::make_shared<PictureScaler>(model, options.scaling);
    return scaler_;
  };
  std::vector<std::string> pictures;
  constexpr std::string_view kCamera = "camera:";
  for (const std::string& source : options.sources) {
    std::error_code error;
    if (source.starts_with(kCamera)) {
      sources_.push_back(std::make_unique<CameraFrames>(source.substr(kCamera.size()),
                                                        options.samples_max.value_or(kCameraFrames),
                                                        scaler_of_pictures()));
    } else if (fs::is_directory(source, error)) {
      const std::vector<std::string> found = PicturesIn(source);
      pictures.insert(pictures.end(), found.begin(), found.end());
    } else if (IsArrayFile(source)) {
      sources_.push_back(std::make_unique<Arrays>(source, interpreter));
    } else {
      pictures.push_back(source);
    }
  }
  if (!pictures.empty()) {
    sources_.push_back(std::make_unique<PictureFiles>(
        Thinned(pictures, options.samples_max.value_or(std::numeric_limits<int64_t>::max())),
        scaler_of_pictures()));
  }
  for (const auto& source : sources_) count_ += source->count();
  if (options.samples_max) count_ = std::min(count_, *options.samples_max);
  if (count_ == 0) {
    Fail(ExitCode::kUsage, "--calibrate names no samples; give about a hundred that are typical");
  }
}

bool Calibration::Next(Sample* sample) {
  sample->resize(sample_.size());
  for (size_t i = 0; i < sample_.size(); ++i) (*sample)[i].resize(sample_[i].size());
  while (next_ < count_ && source_ < sources_.size()) {
    if (sources_[source_]->Next(sample)) {
      ++next_;
      return true;
    }
    ++source_;
  }
  if (scaler_) scaler_->Close();
  model_->Close();
  return false;
}

void Calibration::Rewind() {
  for (const auto& source : sources_) source->Rewind();
  source_ = 0;
  next_ = 0;
}

std::pair<const SampleSource*, int64_t> Calibration::Find(int64_t sample) const {
  size_t index = 0;
  while (index + 1 < sources_.size() && sample >= sources_[index]->count()) {
    sample -= sources_[index++]->count();
  }
  return {sources_[index].get(), sample};
}

std::string Calibration::NameOf(int64_t sample) const {
  const auto [source, index] = Find(sample);
  return source->NameOf(index);
}

std::optional<atollrt::Image> Calibration::PictureOf(int64_t sample) const {
  const auto [source, index] = Find(sample);
  return source->PictureOf(index);
}

AtollQuantizeSamples Calibration::Callbacks() {
  const auto next = [](void* user_data, float* const* inputs, const size_t* counts,
                       size_t input_count) {
    auto* const self = static_cast<Calibration*>(user_data);
    try {
      if (!self->Next(&self->sample_)) return 0;
      for (size_t i = 0; i < input_count; ++i) {
        std::copy_n(self->sample_[i].begin(), std::min(counts[i], self->sample_[i].size()),
                    inputs[i]);
      }
      return 1;
    } catch (...) {
      self->error_ = std::current_exception();
      return -1;
    }
  };
  const auto rewind = [](void* user_data) {
    auto* const self = static_cast<Calibration*>(user_data);
    try {
      self->Rewind();
      return 0;
    } catch (...) {
      self->error_ = std::current_exception();
      return -1;
    }
  };
  return {next, rewind, this};
}

void Calibration::RethrowError() const {
  if (error_) std::rethrow_exception(error_);
}

}  // namespace atollcmd
