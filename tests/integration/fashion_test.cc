// SPDX-License-Identifier: Apache-2.0
//
// The bundled classifier over the whole Fashion-MNIST test set, through the public interface: it is
// as accurate as promised, and the emulated device gives the CPU's bytes for every picture.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "atoll/delegate.h"
#include "atoll/runtime.h"
#include "tests/support/absent.h"

namespace {

constexpr char kDataset[] = "/usr/share/datasets/fashion-mnist";
constexpr char kModel[] = ATOLL_SOURCE_DIR "/models/fashion/fashion_int8.tflite";
constexpr size_t kImages = 10'000;
constexpr size_t kPixels = 28 * 28;
constexpr size_t kClasses = 10;

// The contents of a gzipped IDX file behind its header; empty if there is no such file.
std::vector<uint8_t> ReadIdx(const std::string& name, size_t header_bytes, size_t size) {
  gzFile file = gzopen((std::string(kDataset) + "/" + name).c_str(), "rb");
  if (file == nullptr) return {};
  std::vector<uint8_t> bytes(header_bytes + size);
  const int read = gzread(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  gzclose(file);
  EXPECT_EQ(read, static_cast<int>(bytes.size())) << name;
  return {bytes.begin() + static_cast<std::ptrdiff_t>(header_bytes), bytes.end()};
}

// The model's output bytes for every image, one after the other.
std::vector<int8_t> RunAll(const AtollModel* model, AtollDelegate* delegate,
                           const std::vector<uint8_t>& images) {
  AtollInterpreterOptions options = ATOLL_INTERPRETER_OPTIONS_INIT;
  options.delegate = delegate;
  AtollInterpreter* interpreter = nullptr;
  EXPECT_EQ(AtollInterpreterCreate(model, &options, &interpreter), ATOLL_OK) << AtollLastError();
  if (interpreter == nullptr) return {};
  AtollTensor* input = AtollInterpreterGetInputTensor(interpreter, 0);
  const AtollTensor* output = AtollInterpreterGetOutputTensor(interpreter, 0);
  EXPECT_EQ(AtollTensorByteSize(input), kPixels);
  EXPECT_EQ(AtollTensorByteSize(output), kClasses);
  std::vector<int8_t> outputs(kImages * kClasses);
  for (size_t i = 0; i < kImages; ++i) {
    auto* stored = static_cast<int8_t*>(AtollTensorData(input));
    for (size_t k = 0; k < kPixels; ++k) {
      stored[k] = static_cast<int8_t>(images[i * kPixels + k] - 128);
    }
    const AtollStatus status = AtollInterpreterInvoke(interpreter);
    EXPECT_EQ(status, ATOLL_OK) << AtollLastError();
    if (status != ATOLL_OK) break;
    std::copy_n(static_cast<const int8_t*>(AtollTensorConstData(output)), kClasses,
                outputs.data() + i * kClasses);
  }
  AtollInterpreterDelete(interpreter);
  return outputs;
}

TEST(FashionModel, IsAccurateAndTheSameOnTheEmulator) {
  const std::vector<uint8_t> images = ReadIdx("t10k-images-idx3-ubyte.gz", 16, kImages * kPixels);
  const std::vector<uint8_t> labels = ReadIdx("t10k-labels-idx1-ubyte.gz", 8, kImages);
  if (images.empty() || labels.empty()) {
    atollrt::ReportAbsent("the Debian package dataset-fashion-mnist");
    GTEST_SKIP();
  }
  AtollModel* model = nullptr;
  ASSERT_EQ(AtollModelCreateFromFile(kModel, &model), ATOLL_OK) << AtollLastError();
  AtollDelegateOptions options = ATOLL_DELEGATE_OPTIONS_INIT;
  options.device = "emu";
  AtollDelegate* emulator = nullptr;
  ASSERT_EQ(AtollDelegateCreate(&options, &emulator), ATOLL_OK) << AtollLastError();

  const std::vector<int8_t> on_cpu = RunAll(model, nullptr, images);
  const std::vector<int8_t> on_emulator = RunAll(model, emulator, images);
  AtollDelegateDelete(emulator);
  AtollModelDelete(model);

  EXPECT_EQ(on_cpu, on_emulator);
  size_t correct = 0;
  for (size_t i = 0; i < kImages; ++i) {
    const auto scores = on_emulator.begin() + static_cast<std::ptrdiff_t>(i * kClasses);
    correct += std::max_element(scores, scores + kClasses) - scores == labels[i];
  }
  std::printf("%zu of %zu test images are classified correctly\n", correct, kImages);
  EXPECT_GE(correct, kImages * 92 / 100);
}

}  // namespace
