// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "atoll/atoll.hpp"
#include "atoll/picture/image.h"
#include "serve/frigate/detector.h"
#include "tests/support/rng.h"

namespace atollrt {

// The bundled detector, and the size of its pictures.
inline std::string ScenesModel() {
  return std::string(ATOLL_SOURCE_DIR) + "/models/scenes/scenes_int8.tflite";
}
inline constexpr int kScenesWidth = 176;
inline constexpr int kScenesHeight = 128;

// Rectangles of all colours, in which a detector sees this and that.
inline Image MadeUpPicture(int width, int height, uint64_t seed) {
  Rng rng(seed);
  const auto pick = [&](int below) { return rng.Int32(0, below - 1); };
  Image image;
  image.Reshape(width, height, 3);
  std::fill(image.pixels.begin(), image.pixels.end(), uint8_t{90});
  for (int i = 0; i < 12; ++i) {
    const int left = pick(width);
    const int top = pick(height);
    const int right = std::min(width, left + 10 + pick(60));
    const int bottom = std::min(height, top + 10 + pick(60));
    const uint8_t color[3] = {static_cast<uint8_t>(pick(256)), static_cast<uint8_t>(pick(256)),
                              static_cast<uint8_t>(pick(256))};
    for (int y = top; y < bottom; ++y) {
      for (int x = left; x < right; ++x) {
        std::copy(color, color + 3, image.pixels.begin() + 3 * (y * width + x));
      }
    }
  }
  return image;
}

// What the bundled detector has in its outputs for this picture, as rows; without the code under
// test. Its input is int8 with zero point -128 and takes RGB - 128.
inline DetectionRows ExpectedRows(const Image& image) {
  auto model = atollpp::Model::FromFile(ScenesModel());
  auto interpreter = atollpp::Interpreter::Create(*model);
  EXPECT_TRUE(static_cast<bool>(interpreter));
  std::vector<int8_t> pixels;
  for (const uint8_t pixel : image.pixels) pixels.push_back(static_cast<int8_t>(pixel - 128));
  EXPECT_TRUE(static_cast<bool>(interpreter->input(0).CopyFrom<int8_t>(pixels)));
  EXPECT_TRUE(static_cast<bool>(interpreter->Invoke()));
  const auto boxes = interpreter->output(0).values<float>();
  const auto classes = interpreter->output(1).values<float>();
  const auto scores = interpreter->output(2).values<float>();
  const auto count = static_cast<size_t>(interpreter->output(3).values<float>()[0]);
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  DetectionRows rows = {};
  for (size_t row = 0; row < std::min<size_t>(count, 20); ++row) {
    const size_t i = order[row];
    if (!(scores[i] > 0)) break;
    rows[6 * row] = classes[i];
    rows[6 * row + 1] = scores[i];
    for (size_t edge = 0; edge < 4; ++edge) {
      rows[6 * row + 2 + edge] = std::clamp(boxes[4 * i + edge], 0.0f, 1.0f);
    }
  }
  return rows;
}

}  // namespace atollrt
