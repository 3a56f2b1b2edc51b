// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/load_samples.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <system_error>

#include "atoll/picture.h"
#include "tools/atoll/exit_code.h"
#include "tools/atoll/measure.h"
#include "tools/atoll/pictures.h"

namespace atollcmd {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostPictures = 1024;
constexpr size_t kMostBytes = size_t{1} << 30;

bool IsPictureName(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* known : {".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".pgm"}) {
    if (extension == known) return true;
  }
  return false;
}

std::vector<fs::path> PicturesIn(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> paths;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    if (IsPictureName(entries->path())) paths.push_back(entries->path());
  }
  if (error) {
    Fail(ExitCode::kFailure, "cannot read the folder '{}' of --images: {}; give one with pictures",
         folder, error.message());
  }
  if (paths.empty()) {
    Fail(ExitCode::kUsage,
         "'{}' has no pictures; give --images a folder with JPEG, PNG, BMP or PPM files", folder);
  }
  std::sort(paths.begin(), paths.end());
  paths.resize(std::min(paths.size(), kMostPictures));
  return paths;
}

template <typename T>
std::vector<double> Values(std::span<const uint8_t> bytes) {
  std::vector<double> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
    if (std::isnan(values[i])) values[i] = -std::numeric_limits<double>::infinity();
  }
  return values;
}

std::vector<double> Scores(const OutputBytes& output) {
  switch (output.type) {
    case ATOLL_INT8:
      return Values<int8_t>(output.bytes);
    case ATOLL_UINT8:
      return Values<uint8_t>(output.bytes);
    case ATOLL_INT16:
      return Values<int16_t>(output.bytes);
    case ATOLL_INT32:
      return Values<int32_t>(output.bytes);
    case ATOLL_FLOAT32:
      return Values<float>(output.bytes);
    default:
      Fail(ExitCode::kBadModel, "the first output is {}, which is no score; give a classifier",
           AtollTypeName(output.type));
  }
}

}  // namespace

PictureSamples::PictureSamples(const Session& session, const atollrt::PixelScaling& scaling)
    : session_(session), input_(OpenPictureInput(session, scaling)) {}

Inputs PictureSamples::Make(const atollrt::Image& picture, const std::string& name) const {
  const auto resized = atollrt::Resize(picture, input_.width(), input_.height());
  const atollrt::Status status = resized.ok() ? input_.Write(*resized) : resized.status();
  if (!status.ok()) {
    Fail(ExitCode::kFailure, "cannot use '{}': {}; leave it out", name, status.message());
  }
  const AtollTensor* tensor = session_.inputs().at(0);
  const auto* bytes = static_cast<const uint8_t*>(AtollTensorConstData(tensor));
  return {{bytes, bytes + AtollTensorByteSize(tensor)}};
}

std::vector<Inputs> PictureSamples::MakeAll(const std::string& folder) const {
  std::vector<Inputs> samples;
  size_t bytes = 0;
  const std::vector<fs::path> paths = PicturesIn(folder);
  Progress progress("reading pictures", static_cast<int64_t>(paths.size()), "done");
  for (const fs::path& path : paths) {
    atollrt::DecodeOptions decode;
    decode.channels = channels();
    const atollrt::Result<atollrt::Image> image = atollrt::ReadImageFile(path.string(), decode);
    if (!image.ok()) {
      Fail(ExitCode::kFailure, "cannot use the picture: {}; leave it out",
           image.status().message());
    }
    samples.push_back(Make(*image, path.string()));
    bytes += samples.back().front().size();
    if (bytes > kMostBytes) {
      Fail(ExitCode::kUsage, "the first {} pictures of '{}' are more than {} as inputs; give fewer",
           samples.size(), folder, ByteSizeText(static_cast<int64_t>(kMostBytes)));
    }
    progress.Step();
  }
  return samples;
}

std::vector<int> TopClasses(const OutputBytes& scores, size_t k) {
  const std::vector<double> values = Scores(scores);
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  k = std::min(k, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(),
                    [&](int a, int b) {
                      const double left = values[static_cast<size_t>(a)];
                      const double right = values[static_cast<size_t>(b)];
                      return left != right ? left > right : a < b;
                    });
  order.resize(k);
  return order;
}

size_t CountScores(const OutputBytes& scores) { return Scores(scores).size(); }

void Accuracy::Add(const OutputBytes& scores, int label) {
  const std::vector<int> top = TopClasses(scores, 5);
  pictures += 1;
  top1 += !top.empty() && top.front() == label ? 1 : 0;
  top5 += std::find(top.begin(), top.end(), label) != top.end() ? 1 : 0;
}

}  // namespace atollcmd
