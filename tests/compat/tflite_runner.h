// SPDX-License-Identifier: Apache-2.0
//
// A model behind TensorFlow Lite's C interface, whichever library that is: ours, or where npm has
// brought it TensorFlow Lite 2.9.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "compat/tensorflowlite_c/c_api.h"

namespace atollrt {

class TfLiteRunner {
 public:
  // Of the bytes of a .tflite; the test fails if they do not load.
  explicit TfLiteRunner(std::vector<uint8_t> file)
      : file_(std::move(file)), model_(TfLiteModelCreate(file_.data(), file_.size())) {
    const std::unique_ptr<TfLiteInterpreterOptions, Free> options(TfLiteInterpreterOptionsCreate());
    interpreter_.reset(TfLiteInterpreterCreate(model_.get(), options.get()));
    if (interpreter_ != nullptr && TfLiteInterpreterAllocateTensors(get()) != kTfLiteOk) {
      interpreter_.reset();
    }
    EXPECT_NE(interpreter_, nullptr);
  }
  bool ok() const { return interpreter_ != nullptr; }

  // With ok(). `bytes` are those of input `index`, of its size.
  void SetInput(size_t index, std::span<const uint8_t> bytes) {
    EXPECT_EQ(TfLiteTensorCopyFromBuffer(
                  TfLiteInterpreterGetInputTensor(get(), static_cast<int32_t>(index)), bytes.data(),
                  bytes.size()),
              kTfLiteOk);
  }
  void Invoke() { EXPECT_EQ(TfLiteInterpreterInvoke(get()), kTfLiteOk); }
  std::vector<uint8_t> Output(size_t index) {
    const TfLiteTensor* const tensor =
        TfLiteInterpreterGetOutputTensor(get(), static_cast<int32_t>(index));
    std::vector<uint8_t> bytes(TfLiteTensorByteSize(tensor));
    EXPECT_EQ(TfLiteTensorCopyToBuffer(tensor, bytes.data(), bytes.size()), kTfLiteOk);
    return bytes;
  }

 private:
  struct Free {
    void operator()(TfLiteModel* model) const { TfLiteModelDelete(model); }
    void operator()(TfLiteInterpreterOptions* options) const {
      TfLiteInterpreterOptionsDelete(options);
    }
    void operator()(TfLiteInterpreter* interpreter) const { TfLiteInterpreterDelete(interpreter); }
  };
  TfLiteInterpreter* get() { return interpreter_.get(); }

  const std::vector<uint8_t> file_;
  const std::unique_ptr<TfLiteModel, Free> model_;
  std::unique_ptr<TfLiteInterpreter, Free> interpreter_;
};

}  // namespace atollrt
