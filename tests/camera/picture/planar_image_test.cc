// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "atoll/picture/image.h"
#include "atoll/picture/overlay.h"

namespace atollrt {
namespace {

using testing::HasSubstr;

// A picture without sharp edges, so that JPEG changes little.
Image SmoothImage(int width, int height, int channels) {
  Image image;
  image.Reshape(width, height, channels);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        image.pixels[static_cast<size_t>((y * width + x) * channels + c)] = static_cast<uint8_t>(
            std::lround(128 + 100 * std::sin(x / 40.0 + c) * std::cos(y / 30.0 - c)));
      }
    }
  }
  return image;
}

int LargestDifference(const Image& a, const Image& b) {
  EXPECT_EQ(a.width, b.width);
  EXPECT_EQ(a.height, b.height);
  EXPECT_EQ(a.channels, b.channels);
  if (a.pixels.size() != b.pixels.size()) return 256;
  int largest = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    largest = std::max(largest, std::abs(a.pixels[i] - b.pixels[i]));
  }
  return largest;
}

Image InPixels(const PlanarImage& planes) {
  Image image;
  ToImage(planes, &image);
  return image;
}

TEST(PlanarImage, ConvertsColors) {
  EXPECT_EQ(ToYCbCr({0, 0, 0}), (YCbCr{0, 128, 128}));
  EXPECT_EQ(ToYCbCr({255, 255, 255}), (YCbCr{255, 128, 128}));
  EXPECT_EQ(ToYCbCr({255, 0, 0}), (YCbCr{76, 85, 255}));
  EXPECT_EQ(ToYCbCr({0, 0, 255}), (YCbCr{29, 255, 107}));
  EXPECT_EQ(ToColor({0, 0, 0}), (Color{0, 135, 0}));
  int largest = 0;
  for (int r = 0; r < 256; r += 5) {
    for (int g = 0; g < 256; g += 5) {
      for (int b = 0; b < 256; b += 5) {
        const Color color = {static_cast<uint8_t>(r), static_cast<uint8_t>(g),
                             static_cast<uint8_t>(b)};
        EXPECT_EQ(ToYCbCr(color).y, Luma(color));
        const Color back = ToColor(ToYCbCr(color));
        largest =
            std::max({largest, std::abs(back.r - r), std::abs(back.g - g), std::abs(back.b - b)});
      }
    }
  }
  EXPECT_LE(largest, 2);
}

TEST(PlanarImage, PlanesOfAJpegHoldItsPicture) {
  // Sizes that are no multiples of blocks, too.
  for (const auto& [width, height] : {std::pair(64, 48), std::pair(50, 37), std::pair(1, 1)}) {
    const Image image = SmoothImage(width, height, 3);
    const std::vector<uint8_t> jpeg = *EncodeJpeg(image, 95);  // 4:2:0
    PlanarImage planes;
    ASSERT_TRUE(DecodePlanes(jpeg, {}, &planes).ok());
    EXPECT_EQ(planes.width, width);
    EXPECT_EQ(planes.height, height);
    ASSERT_TRUE(planes.has_color);
    EXPECT_EQ(planes.shift_x, width > 1 ? 1 : 0);
    EXPECT_EQ(planes.cb.width, (width + 1) / 2);
    EXPECT_LE(LargestDifference(InPixels(planes), image), 14);

    PlanarImage gray;
    ASSERT_TRUE(DecodePlanes(jpeg, {.channels = 1}, &gray).ok());
    EXPECT_FALSE(gray.has_color);
    for (int y = 0; y < height; ++y) {
      EXPECT_TRUE(std::equal(gray.y.row(y), gray.y.row(y) + width, planes.y.row(y)));
    }
  }
}

TEST(PlanarImage, ShrinksWhileDecoding) {
  const std::vector<uint8_t> jpeg = *EncodeJpeg(SmoothImage(322, 240, 3), 95);
  for (const int divisor : {2, 4, 8}) {
    const DecodeOptions options = {.min_width = 322 / divisor, .min_height = 240 / divisor};
    PlanarImage planes;
    ASSERT_TRUE(DecodePlanes(jpeg, options, &planes).ok());
    EXPECT_EQ(planes.width, (322 + divisor - 1) / divisor);
    EXPECT_EQ(planes.height, 240 / divisor);
    EXPECT_LE(LargestDifference(InPixels(planes), *DecodeImage(jpeg, options)), 8);
  }
}

TEST(PlanarImage, EncodesWhatItDecodes) {
  for (const auto& [width, height] : {std::pair(64, 48), std::pair(50, 37), std::pair(9, 3)}) {
    for (const auto& [shift_x, shift_y] :
         {std::pair(0, 0), std::pair(1, 0), std::pair(1, 1), std::pair(0, 1)}) {
      PlanarImage planes;
      planes.ReshapeColor(width, height, shift_x, shift_y);
      for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) planes.y.row(y)[x] = static_cast<uint8_t>(40 + x + y);
      }
      for (int y = 0; y < planes.cb.height; ++y) {
        for (int x = 0; x < planes.cb.width; ++x) {
          planes.cb.row(y)[x] = static_cast<uint8_t>(100 + x);
          planes.cr.row(y)[x] = static_cast<uint8_t>(150 - y);
        }
      }
      const Image before = InPixels(planes);
      std::vector<uint8_t> jpeg;
      ASSERT_TRUE(EncodePlanesAsJpeg(&planes, 98, &jpeg).ok());
      PlanarImage again;
      ASSERT_TRUE(DecodePlanes(jpeg, {}, &again).ok());
      EXPECT_EQ(again.shift_x, shift_x);
      EXPECT_EQ(again.shift_y, shift_y);
      EXPECT_LE(LargestDifference(InPixels(again), before), 6)
          << width << " x " << height << ", shifts " << shift_x << ", " << shift_y;
    }
  }
  PlanarImage gray;
  ToPlanes(SmoothImage(31, 17, 1), &gray);
  std::vector<uint8_t> jpeg;
  ASSERT_TRUE(EncodePlanesAsJpeg(&gray, 98, &jpeg).ok());
  PlanarImage again;
  ASSERT_TRUE(DecodePlanes(jpeg, {}, &again).ok());
  EXPECT_FALSE(again.has_color);
  EXPECT_LE(LargestDifference(InPixels(again), InPixels(gray)), 4);
}

TEST(PlanarImage, TakesOtherFormats) {
  const std::string header = "P6 2 1 255\n";
  std::vector<uint8_t> whole(header.begin(), header.end());
  for (const int byte : {255, 0, 0, 0, 0, 255}) whole.push_back(static_cast<uint8_t>(byte));
  PlanarImage planes;
  ASSERT_TRUE(DecodePlanes(whole, {}, &planes).ok());
  EXPECT_LE(LargestDifference(InPixels(planes), *DecodeImage(whole)), 1);
  ASSERT_TRUE(DecodePlanes(whole, {.channels = 1}, &planes).ok());
  EXPECT_FALSE(planes.has_color);
}

TEST(PlanarImage, RefusesDamagedJpegs) {
  const std::vector<uint8_t> jpeg = *EncodeJpeg(SmoothImage(64, 48, 3), 90);
  PlanarImage planes;
  for (size_t size = 0; size < jpeg.size() - 2; size += 7) {
    const Status status = DecodePlanes(std::span(jpeg).first(size), {}, &planes);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << size;
  }
  EXPECT_THAT(DecodePlanes(jpeg, {.max_pixels = 100}, &planes).message(), HasSubstr("64 x 48"));
  EXPECT_FALSE(DecodePlanes(jpeg, {.channels = 2}, &planes).ok());
  std::vector<uint8_t> out;
  planes.ReshapeGray(8, 8);
  EXPECT_FALSE(EncodePlanesAsJpeg(&planes, 0, &out).ok());
  EXPECT_FALSE(EncodePlanesAsJpeg(&planes, 101, &out).ok());
}

TEST(PlanarImage, IsDrawnOnLikeAnImage) {
  // Even places, so that every sample of colour is covered by all or none of its pixels.
  Image image;
  image.Reshape(40, 30, 3);
  std::fill(image.pixels.begin(), image.pixels.end(), static_cast<uint8_t>(60));
  for (const auto& [shift_x, shift_y] : {std::pair(0, 0), std::pair(1, 0), std::pair(1, 1)}) {
    PlanarImage planes;
    planes.ReshapeColor(40, 30, shift_x, shift_y);
    std::fill(planes.y.samples.begin(), planes.y.samples.end(), static_cast<uint8_t>(60));
    std::fill(planes.cb.samples.begin(), planes.cb.samples.end(), static_cast<uint8_t>(128));
    std::fill(planes.cr.samples.begin(), planes.cr.samples.end(), static_cast<uint8_t>(128));
    for (const Canvas& canvas : {Canvas(&image), Canvas(&planes)}) {
      FillRectangle({4, 6, 10, 8}, {200, 30, 90}, canvas);
      DrawRectangle({-4, -4, 60, 60}, 6, {0, 250, 10}, canvas);
      FillRectangle({30, 20, 100, 100}, {255, 255, 255}, canvas);
    }
    EXPECT_LE(LargestDifference(InPixels(planes), image), 2) << shift_x << ", " << shift_y;
  }
  PlanarImage gray;
  gray.ReshapeGray(3, 1);
  std::fill(gray.y.samples.begin(), gray.y.samples.end(), static_cast<uint8_t>(0));
  FillRectangle({1, 0, 1, 1}, {10, 200, 30}, &gray);
  EXPECT_EQ(gray.y.samples[1], 124);
  EXPECT_EQ(gray.y.samples[2], 0);
}

}  // namespace
}  // namespace atollrt
