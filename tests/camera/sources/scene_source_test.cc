// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/camera/frame_source.h"
#include "tests/support/fashion_files.h"

namespace atollrt {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A directory with a test set of white pictures.
class WhiteClothes {
 public:
  WhiteClothes() {
    std::vector<uint8_t> images = IdxImages(3);
    std::fill(images.begin() + 16, images.end(), 255);
    directory_.Write("t10k-images-idx3-ubyte", images);
    directory_.WriteGzip("t10k-labels-idx1-ubyte.gz", IdxLabels({7, 0, 9}));
  }
  std::string spec() const { return "scenes:" + directory_.path(); }

 private:
  TemporaryDirectory directory_;
};

std::unique_ptr<FrameSource> Open(const std::string& spec, const FrameSourceOptions& options) {
  Result<std::unique_ptr<FrameSource>> source = OpenFrameSource(spec, options);
  EXPECT_TRUE(source.ok()) << source.status().message();
  return source.ok() ? *std::move(source) : nullptr;
}

Frame NextFrame(FrameSource* source) {
  Frame frame;
  const Result<bool> got = source->Next(&frame);
  EXPECT_TRUE(got.ok() && *got);
  return frame;
}

Image DecodedInColor(const Frame& frame) {
  PlanarImage planes;
  const Status status = DecodeFrame(frame, {.channels = 3}, &planes);
  EXPECT_TRUE(status.ok()) << status.message();
  Image image;
  if (status.ok()) ToImage(planes, &image);
  return image;
}

// The share of pixels that differ by more than what a JPEG loses.
double Difference(const Image& a, const Image& b) {
  size_t count = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) count += std::abs(a.pixels[i] - b.pixels[i]) > 40;
  return static_cast<double>(count) / static_cast<double>(a.pixels.size());
}

TEST(Scenes, GivesFramesOfTheSizeAskedFor) {
  const WhiteClothes clothes;
  for (const auto& [width, height] : {std::pair{320, 200}, {97, 131}, {16, 3}, {1, 1}}) {
    const auto source = Open(clothes.spec(), {.width = width, .height = height});
    ASSERT_NE(source, nullptr);
    EXPECT_FALSE(source->live());
    EXPECT_THAT(source->description(),
                HasSubstr(Format("3 pictures in frames of %d x %d", width, height)));
    for (uint64_t i = 0; i < 30; ++i) {
      const Frame frame = NextFrame(source.get());
      EXPECT_EQ(frame.sequence, i);
      EXPECT_EQ(frame.format, FrameFormat::kEncoded);
      EXPECT_EQ(frame.capture_time_ns, 0);
      EXPECT_EQ(frame.label, std::nullopt);
      EXPECT_EQ(frame.crop, Rect{});
      const Image image = DecodedInColor(frame);
      EXPECT_EQ(image.width, width);
      EXPECT_EQ(image.height, height);
    }
  }
}

TEST(Scenes, AreTheSameEveryTimeAndWithoutEnd) {
  const WhiteClothes clothes;
  const auto a = Open(clothes.spec(), {.width = 96, .height = 64});
  const auto b = Open(clothes.spec(), {.width = 96, .height = 64, .loop = true});
  // Beyond the time in which every piece has changed its picture.
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(NextFrame(a.get()).bytes, NextFrame(b.get()).bytes) << i;
}

TEST(Scenes, MoveALittleFromFrameToFrameAndLeaveNothingBehind) {
  const WhiteClothes clothes;
  const auto source = Open(clothes.spec(), {.width = 320, .height = 240});
  const Image first = DecodedInColor(NextFrame(source.get()));
  Image before = first;
  // Of each pixel the darkest and the brightest that it has been.
  Image low = first;
  Image high = first;
  for (int i = 0; i < 600; ++i) {
    const Frame frame = NextFrame(source.get());
    EXPECT_EQ(frame.name, clothes.spec() + ", frame " + std::to_string(i + 1));
    const Image image = DecodedInColor(frame);
    EXPECT_LT(Difference(before, image), 0.1) << i;
    for (size_t k = 0; k < image.pixels.size(); ++k) {
      low.pixels[k] = std::min(low.pixels[k], image.pixels[k]);
      high.pixels[k] = std::max(high.pixels[k], image.pixels[k]);
    }
    before = image;
  }
  EXPECT_GT(Difference(first, before), 0.1);
  EXPECT_GT(Difference(low, high), 0.5);
}

TEST(Scenes, NeedTheTestSet) {
  EXPECT_THAT(OpenFrameSource("scenes:/nonexistent", {}).status().message(),
              StartsWith("/nonexistent/t10k-images-idx3-ubyte.gz: cannot open"));
  EXPECT_EQ(OpenFrameSource("scenes:/nonexistent", {}).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace atollrt
