// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "atoll/picture/image.h"
#include "tests/support/absent.h"

namespace atollrt {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

Image Noise(int width, int height, int channels, uint32_t seed) {
  Image image;
  image.Reshape(width, height, channels);
  std::mt19937 random(seed);
  for (uint8_t& byte : image.pixels) byte = static_cast<uint8_t>(random());
  return image;
}

Image Crop(const Image& image, const Rect& rect) {
  Image out;
  out.Reshape(rect.width, rect.height, image.channels);
  for (int y = 0; y < rect.height; ++y) {
    std::copy_n(image.pixels.begin() + ((rect.y + y) * image.width + rect.x) * image.channels,
                out.row_bytes(), out.pixels.begin() + y * static_cast<ptrdiff_t>(out.row_bytes()));
  }
  return out;
}

// One axis of the definition in resize.h, in double precision, rounded to 8 bits.
std::vector<double> ResizeLine(const std::vector<double>& src, int dst_size) {
  const double ratio = static_cast<double>(src.size()) / dst_size;
  const double half_width = std::max(1.0, ratio);
  std::vector<double> dst;
  for (int i = 0; i < dst_size; ++i) {
    double sum = 0;
    double total = 0;
    for (size_t j = 0; j < src.size(); ++j) {
      const double distance = std::abs(static_cast<double>(j) + 0.5 - (i + 0.5) * ratio);
      const double weight = std::max(0.0, 1 - distance / half_width);
      sum += weight * src[j];
      total += weight;
    }
    dst.push_back(std::floor(sum / total + 0.5));
  }
  return dst;
}

Image ResizeByDefinition(const Image& src, int dst_width, int dst_height) {
  Image wide;
  wide.Reshape(dst_width, src.height, src.channels);
  const auto at = [](Image& image, int x, int y, int c) -> uint8_t& {
    return image.pixels[static_cast<size_t>((y * image.width + x) * image.channels + c)];
  };
  Image copy = src;
  Image dst;
  dst.Reshape(dst_width, dst_height, src.channels);
  for (int c = 0; c < src.channels; ++c) {
    for (int y = 0; y < src.height; ++y) {
      std::vector<double> line;
      for (int x = 0; x < src.width; ++x) line.push_back(at(copy, x, y, c));
      line = ResizeLine(line, dst_width);
      for (int x = 0; x < dst_width; ++x) {
        at(wide, x, y, c) = static_cast<uint8_t>(line[static_cast<size_t>(x)]);
      }
    }
    for (int x = 0; x < dst_width; ++x) {
      std::vector<double> line;
      for (int y = 0; y < src.height; ++y) line.push_back(at(wide, x, y, c));
      line = ResizeLine(line, dst_height);
      for (int y = 0; y < dst_height; ++y) {
        at(dst, x, y, c) = static_cast<uint8_t>(line[static_cast<size_t>(y)]);
      }
    }
  }
  return dst;
}

TEST(Resize, FollowsTheDefinition) {
  const struct {
    int src_width, src_height, dst_width, dst_height, channels;
  } cases[] = {
      {17, 13, 5, 7, 3},   {5, 7, 17, 13, 3},   {31, 3, 8, 9, 1},    {1, 1, 4, 4, 3},
      {64, 48, 1, 1, 3},   {2, 200, 3, 3, 3},   {10, 10, 11, 9, 1},  {100, 75, 33, 50, 3},
      {28, 28, 96, 96, 1}, {97, 61, 96, 60, 3}, {40, 30, 39, 31, 3},
  };
  uint32_t seed = 1;
  for (const auto& c : cases) {
    const Image src = Noise(c.src_width, c.src_height, c.channels, seed++);
    const Result<Image> dst = Resize(src, c.dst_width, c.dst_height);
    ASSERT_TRUE(dst.ok()) << dst.status().message();
    const Image expected = ResizeByDefinition(src, c.dst_width, c.dst_height);
    ASSERT_EQ(dst->pixels.size(), expected.pixels.size());
    // The two may round an exact half differently, and the second pass sees that.
    int differing = 0;
    for (size_t i = 0; i < expected.pixels.size(); ++i) {
      ASSERT_NEAR(dst->pixels[i], expected.pixels[i], 1) << seed << " at " << i;
      differing += dst->pixels[i] != expected.pixels[i];
    }
    EXPECT_LE(differing, static_cast<int>(expected.pixels.size() / 50) + 2) << seed;
  }
}

TEST(Resize, SameSizeCopies) {
  const Image src = Noise(37, 21, 3, 7);
  EXPECT_EQ(Resize(src, 37, 21)->pixels, src.pixels);
}

TEST(Resize, ConstantStaysConstant) {
  for (const int value : {0, 1, 127, 128, 254, 255}) {
    Image src;
    src.Reshape(53, 47, 3);
    std::fill(src.pixels.begin(), src.pixels.end(), static_cast<uint8_t>(value));
    for (const int size : {1, 3, 46, 47, 48, 224}) {
      EXPECT_THAT(Resize(src, size, size)->pixels, Each(value)) << size;
    }
  }
}

TEST(Resize, HalvingSmoothsWithATriangle) {
  Image src;
  src.Reshape(4, 1, 1);
  src.pixels = {0, 0, 0, 240};
  // Centre 3, half-width 2: pixels at 1.5, 2.5, 3.5 weigh 0.25, 0.75, 0.75.
  EXPECT_THAT(Resize(src, 2, 1)->pixels, ElementsAre(0, 103));
}

TEST(Resize, MirroredInputGivesMirroredOutput) {
  const Image src = Noise(50, 1, 1, 3);
  Image mirrored = src;
  std::reverse(mirrored.pixels.begin(), mirrored.pixels.end());
  for (const int width : {7, 20, 113}) {
    const Result<Image> a = Resize(src, width, 1);
    Result<Image> b = Resize(mirrored, width, 1);
    std::reverse(b->pixels.begin(), b->pixels.end());
    for (int i = 0; i < width; ++i) {
      EXPECT_NEAR(a->pixels[static_cast<size_t>(i)], b->pixels[static_cast<size_t>(i)], 1);
    }
  }
}

TEST(Resize, CropEqualsResizingACroppedCopy) {
  const Image src = Noise(60, 40, 3, 11);
  const Rect crops[] = {{0, 0, 60, 40}, {10, 5, 30, 30}, {59, 39, 1, 1}, {0, 20, 60, 20}};
  for (const Rect& crop : crops) {
    EXPECT_EQ(Resize(src, 17, 23, crop)->pixels, Resize(Crop(src, crop), 17, 23)->pixels);
  }
}

TEST(Resize, RefusesBadGeometry) {
  const auto error = [](const Image& src, int width, int height, const Rect& crop = {}) {
    return Resize(src, width, height, crop).status().message();
  };
  EXPECT_THAT(error(Noise(0, 1, 3, 1), 1, 1), HasSubstr("source width is 0"));
  EXPECT_THAT(error(Noise(1, 1, 3, 1), 1, 65536), HasSubstr("destination height is 65536"));
  EXPECT_THAT(error(Noise(1, 1, 2, 1), 1, 1), HasSubstr("2 channels"));
  const Image nine = Noise(9, 9, 3, 1);
  EXPECT_THAT(error(nine, 1, 1, {5, 5, 5, 4}),
              HasSubstr("crop of 5 x 4 at (5, 5) is not inside of 9 x 9"));
  EXPECT_THAT(error(nine, 1, 1, {-1, 0, 5, 4}), HasSubstr("crop"));
  EXPECT_THAT(error(nine, 1, 1, {1, 0, INT32_MAX, 4}), HasSubstr("crop"));
  Image cut = Noise(5, 4, 3, 1);
  cut.pixels.pop_back();
  EXPECT_THAT(error(cut, 2, 2), HasSubstr("5 x 4 x 3 with 59 bytes"));
}

// --- Model inputs made by PIL's BILINEAR --------------------------------------------------------

std::vector<uint8_t> ReadBytes(const std::string& path) {
  std::vector<uint8_t> bytes;
  if (std::FILE* file = std::fopen(path.c_str(), "rb"); file != nullptr) {
    uint8_t chunk[4096];
    for (size_t n; (n = std::fread(chunk, 1, sizeof(chunk), file)) > 0;) {
      bytes.insert(bytes.end(), chunk, chunk + n);
    }
    std::fclose(file);
  }
  return bytes;
}

enum class InputType { kUint8, kInt8 };

TEST(Resize, ReproducesTheGoldenModelInputs) {
  const struct {
    const char* model;
    const char* image;
    int width, height;
    InputType type;
  } cases[] = {
      {"deeplabv3_mnv2_dm05_pascal_quant", "bird_segmentation.bmp", 513, 513, InputType::kUint8},
      {"mlperf_tiny_vww_96_int8", "no_person.bmp", 96, 96, InputType::kInt8},
      {"mlperf_tiny_vww_96_int8", "person.bmp", 96, 96, InputType::kInt8},
      {"mobilenet_v1_0.25_128_quant", "parrot.jpg", 128, 128, InputType::kUint8},
      {"mobilenet_v1_0.75_192_quant", "cat.bmp", 192, 192, InputType::kUint8},
      {"mobilenet_v2_1.0_224_quant", "cat.bmp", 224, 224, InputType::kUint8},
      {"mobilenet_v2_1.0_224_quant", "grace_hopper.bmp", 224, 224, InputType::kUint8},
      {"mobilenet_v2_1.0_224_quant", "owl.jpg", 224, 224, InputType::kUint8},
      {"mobilenet_v2_1.0_224_quant", "parrot.jpg", 224, 224, InputType::kUint8},
      {"movenet_single_pose_lightning_ptq", "squat.bmp", 192, 192, InputType::kUint8},
      {"posenet_mobilenet_v1_075_353_481_16_quant_decoder", "posenet_test_image.bmp", 481, 353,
       InputType::kUint8},
      {"ssd_mobilenet_v1", "cat_720p.jpg", 300, 300, InputType::kUint8},
      {"ssd_mobilenet_v1", "grace_hopper.bmp", 300, 300, InputType::kUint8},
      {"ssd_mobilenet_v1", "kite_and_cold.jpg", 300, 300, InputType::kUint8},
      {"tf2_mobilenet_v2_1.0_224_ptq", "owl.jpg", 224, 224, InputType::kUint8},
      {"tf2_mobilenet_v2_1.0_224_ptq", "parrot.jpg", 224, 224, InputType::kUint8},
  };
  const std::string shared = ATOLL_SHARED_DIR;
  int compared = 0;
  for (const auto& c : cases) {
    const std::string image_name = c.image;
    const std::vector<uint8_t> golden =
        ReadBytes(shared + "/golden/images/" + c.model + "__" +
                  image_name.substr(0, image_name.find('.')) + ".raw");
    if (golden.empty()) continue;
    const Result<Image> image = ReadImageFile(shared + "/images/" + image_name);
    ASSERT_TRUE(image.ok()) << image.status().message();
    Result<Image> resized = Resize(*image, c.width, c.height);
    ASSERT_TRUE(resized.ok()) << resized.status().message();
    if (c.type == InputType::kInt8) {
      for (uint8_t& byte : resized->pixels) byte ^= 0x80;
    }
    EXPECT_TRUE(resized->pixels == golden) << c.model << " of " << c.image;
    ++compared;
  }
  if (ATOLL_REQUIRE_SHARED) {
    EXPECT_EQ(compared, static_cast<int>(std::size(cases))) << "golden images in " << shared;
  } else if (compared == 0) {
    ReportAbsent("reference data: images in " + shared);
  }
}

}  // namespace
}  // namespace atollrt
