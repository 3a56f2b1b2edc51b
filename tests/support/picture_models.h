// SPDX-License-Identifier: Apache-2.0
//
// Small models of the kinds that look at pictures, and interpreters of them made through the C
// interface, whose outputs tests may write as they like.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "atoll/runtime.h"
#include "tests/support/model_builder.h"

namespace atollrt {

// TFLite_Detection_PostProcess behind RELUs: an input of 4 numbers and one of `score_count` scores
// for each of 4 anchors. Its outputs have room for `entries` detections.
ModelBuilder DetectorModel(int entries, int score_count = 3);

// A detector of gray pictures of 4 x 4 pixels that sees two things in any of them: one of class 1,
// with a score of 0.9375, and one of class 0, with 0.75. Where depends on the picture.
ModelBuilder PictureDetectorModel();

// PosenetDecoderOp on inputs that are maps of 3 x 4 cells, behind an unused picture of 33 x 49;
// room for `entries` poses.
ModelBuilder PosenetModel(int entries);

// An input that is also the output; without a scale it is not quantized.
ModelBuilder ModelWithInput(const Shape& shape, DataType type, float scale, int32_t zero_point);

// A picture of `shape` and one output of another shape and type, which the test writes.
ModelBuilder ModelWithOutput(Shape picture, DataType type, Shape output);

// An interpreter of `builder`'s model on the CPU, or, with a failure, none.
class PreparedModel {
 public:
  explicit PreparedModel(const ModelBuilder& builder);

  AtollInterpreter* get() const { return interpreter_.get(); }
  // Replaces what output `index` holds, as an inference would.
  template <typename T>
  void SetOutput(int32_t index, const std::vector<T>& values) const {
    const AtollTensor* output = AtollInterpreterGetOutputTensor(get(), index);
    ASSERT_EQ(AtollTensorByteSize(output), values.size() * sizeof(T));
    std::memcpy(const_cast<void*>(AtollTensorConstData(output)), values.data(),
                values.size() * sizeof(T));
  }

 private:
  struct Delete {
    void operator()(AtollInterpreter* interpreter) const { AtollInterpreterDelete(interpreter); }
  };
  std::unique_ptr<AtollInterpreter, Delete> interpreter_;
};

}  // namespace atollrt
