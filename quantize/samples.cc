// SPDX-License-Identifier: Apache-2.0
#include "quantize/samples.h"

#include <cmath>

namespace atollrt {

Samples::Samples(const Graph& graph, CalibrationData* data)
    : graph_(graph), data_(data), file_(std::tmpfile()) {}

Result<bool> Samples::Read() {
  if (!complete_) return data_->Next(&sample_);
  if (next_ == count_) return false;
  for (std::vector<float>& values : sample_) {
    if (std::fread(values.data(), sizeof(float), values.size(), file_.get()) != values.size()) {
      return Status(StatusCode::kInternal, "the samples cannot be read again");
    }
  }
  return true;
}

Status Samples::Check() const {
  if (sample_.size() != graph_.inputs.size()) {
    return InvalidArgument("sample %lld has values for %zu inputs, the model has %zu",
                           static_cast<long long>(next_), sample_.size(), graph_.inputs.size());
  }
  for (size_t i = 0; i < sample_.size(); ++i) {
    const Tensor& input = graph_.tensors[graph_.inputs[i]];
    if (static_cast<int64_t>(sample_[i].size()) != input.element_count()) {
      return InvalidArgument(
          "sample %lld has %zu values for input %zu '%s', whose shape %s has %lld",
          static_cast<long long>(next_), sample_[i].size(), i, input.name.c_str(),
          ShapeString(input.shape).c_str(), static_cast<long long>(input.element_count()));
    }
    for (size_t k = 0; k < sample_[i].size(); ++k) {
      if (std::isfinite(sample_[i][k])) continue;
      return InvalidArgument("sample %lld: value %zu of input %zu '%s' is %g, must be a number",
                             static_cast<long long>(next_), k, i, input.name.c_str(),
                             static_cast<double>(sample_[i][k]));
    }
  }
  return Status();
}

void Samples::Store() {
  for (const std::vector<float>& values : sample_) {
    if (file_ == nullptr) return;
    const size_t written = std::fwrite(values.data(), sizeof(float), values.size(), file_.get());
    if (written != values.size()) file_.reset();
  }
}

Result<std::span<const std::vector<float>>> Samples::Next() {
  ATOLL_ASSIGN_OR_RETURN(const bool is_there, Read());
  if (!is_there) {
    if (next_ == 0) {
      return InvalidArgument("there are no samples to calibrate with; 100 are a good number");
    }
    count_ = next_;
    if (file_ != nullptr && !complete_) complete_ = std::fflush(file_.get()) == 0;
    return std::span<const std::vector<float>>();
  }
  if (!complete_) {
    ATOLL_RETURN_IF_ERROR(Check());
    if (count_ < 0) Store();
  }
  ++next_;
  return std::span<const std::vector<float>>(sample_);
}

Status Samples::Collect(const std::function<Status()>& step) {
  while (file_ != nullptr) {
    ATOLL_ASSIGN_OR_RETURN(const auto sample, Next());
    if (sample.empty()) break;
    ATOLL_RETURN_IF_ERROR(step());
  }
  return Rewind();
}

Status Samples::Rewind() {
  next_ = 0;
  if (complete_) {
    std::rewind(file_.get());
    return Status();
  }
  if (file_ != nullptr) file_.reset();  // it holds a part of them
  return data_->Rewind();
}

}  // namespace atollrt
