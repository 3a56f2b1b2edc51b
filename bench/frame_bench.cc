// SPDX-License-Identifier: Apache-2.0
//
// What a pipeline does to a frame besides inference, in planes and, for comparison, by way of RGB:
// decode, bring to the size of a model's input, draw, encode. The frame is a made-up one of
// 1280 x 720, or the file named by ATOLL_BENCH_FRAME.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "atoll/check.h"
#include "atoll/picture.h"

namespace atollrt {
namespace {

constexpr int kWidth = 1280;
constexpr int kHeight = 720;
constexpr int kQuality = 80;
constexpr int kInputSide = 224;

const std::vector<uint8_t>& Jpeg() {
  static const std::vector<uint8_t> jpeg = [] {
    if (const char* path = std::getenv("ATOLL_BENCH_FRAME")) {
      std::ifstream file(path, std::ios::binary);
      return std::vector<uint8_t>(std::istreambuf_iterator<char>(file), {});
    }
    Image image;
    image.Reshape(kWidth, kHeight, 3);
    for (int y = 0; y < kHeight; ++y) {
      for (int x = 0; x < kWidth; ++x) {
        for (int c = 0; c < 3; ++c) {
          const double wave = std::sin(x * 0.05 + c) * std::cos(y * 0.07) + 0.2 * std::sin(x * y);
          image.pixels[static_cast<size_t>((y * kWidth + x) * 3 + c)] =
              static_cast<uint8_t>(std::lround(128 + 90 * std::clamp(wave, -1.0, 1.0)));
        }
      }
    }
    return *EncodeJpeg(image, 90);
  }();
  return jpeg;
}

PlanarImage Planes() {
  PlanarImage planes;
  ATOLL_CHECK(DecodePlanes(Jpeg(), {}, &planes).ok());
  return planes;
}

void DecodeIntoPlanes(benchmark::State& state) {
  const int divisor = static_cast<int>(state.range(0));
  PlanarImage planes;
  for (auto _ : state) {
    const DecodeOptions options = {.min_width = kWidth / divisor, .min_height = kHeight / divisor};
    ATOLL_CHECK(DecodePlanes(Jpeg(), options, &planes).ok());
  }
}
BENCHMARK(DecodeIntoPlanes)->Arg(1)->Arg(2)->Arg(4);

void DecodeIntoRgb(benchmark::State& state) {
  Image image;
  for (auto _ : state) ATOLL_CHECK(DecodeImageInto(Jpeg(), {}, &image).ok());
}
BENCHMARK(DecodeIntoRgb);

void ScalePlanes(benchmark::State& state) {
  const PlanarImage planes = Planes();
  const int channels = static_cast<int>(state.range(0));
  InputScaler scaler;
  ATOLL_CHECK(scaler.SetOutput(kInputSide, kInputSide, channels).ok());
  StoredBytes stored = {};
  std::vector<uint8_t> input(static_cast<size_t>(kInputSide * kInputSide * channels));
  for (auto _ : state) ATOLL_CHECK(scaler.Run(planes, {}, stored, input.data()).ok());
}
BENCHMARK(ScalePlanes)->Arg(3)->Arg(1);

void ResizeRgb(benchmark::State& state) {
  const Image image = *DecodeImage(Jpeg());
  for (auto _ : state) ATOLL_CHECK(Resize(image, kInputSide, kInputSide).ok());
}
BENCHMARK(ResizeRgb);

void EncodePlanes(benchmark::State& state) {
  PlanarImage planes = Planes();
  std::vector<uint8_t> jpeg;
  for (auto _ : state) ATOLL_CHECK(EncodePlanesAsJpeg(&planes, kQuality, &jpeg).ok());
}
BENCHMARK(EncodePlanes);

void EncodeRgb(benchmark::State& state) {
  const Image image = *DecodeImage(Jpeg());
  std::vector<uint8_t> jpeg;
  for (auto _ : state) ATOLL_CHECK(EncodeJpegInto(image, kQuality, &jpeg).ok());
}
BENCHMARK(EncodeRgb);

void DrawLabels(benchmark::State& state) {
  PlanarImage planes = Planes();
  for (auto _ : state) {
    for (int i = 0; i < 8; ++i) {
      DrawRectangle({100 * i, 60 * i, 300, 200}, 3, {0, 200, 0}, &planes);
      DrawLabel("sneaker 0.97", {100 * i, 60 * i}, 3, {0, 200, 0}, &planes);
    }
  }
}
BENCHMARK(DrawLabels);

}  // namespace
}  // namespace atollrt

BENCHMARK_MAIN();
