// SPDX-License-Identifier: Apache-2.0
#include "examples/camera/mjpeg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "atoll/picture/image.h"

namespace atollrt {
namespace {

using testing::ElementsAre;

using Bytes = std::vector<uint8_t>;

void Append(const Bytes& bytes, Bytes* out) { out->insert(out->end(), bytes.begin(), bytes.end()); }

Bytes Concatenate(const std::vector<Bytes>& parts) {
  Bytes out;
  for (const Bytes& part : parts) Append(part, &out);
  return out;
}

// The JPEGs of a whole stream.
std::vector<Bytes> Split(Bytes stream) {
  std::vector<Bytes> pictures;
  while (true) {
    const JpegExtent extent = FindJpeg(stream, StreamEnd::kNothingFollows);
    if (extent.kind == JpegExtent::Kind::kNeedMore) return pictures;
    EXPECT_LT(extent.begin, extent.end);
    EXPECT_LE(extent.end, stream.size());
    pictures.emplace_back(stream.begin() + extent.begin, stream.begin() + extent.end);
    stream.erase(stream.begin(), stream.begin() + extent.end);
  }
}

// Shaped like a JPEG: SOI, a segment, SOS, scan data with a stuffed byte and restart markers, EOI.
Bytes FakeJpeg(uint8_t id) {
  return {0xff, 0xd8, 0xff, 0xe0, 0,    3,    id, 0xff, 0xda, 0,    4,    1,   id,
          1,    2,    0xff, 0,    0xff, 0xd0, 3,  0xff, 0xd7, 0xff, 0xff, 0xd9};
}

Bytes RealJpeg(int size) {
  Image image;
  image.Reshape(size, size / 2, 3);
  std::mt19937 random(1);
  for (uint8_t& byte : image.pixels) byte = static_cast<uint8_t>(random());
  return *EncodeJpeg(image, 90);
}

TEST(FindJpeg, SplitsConcatenatedPictures) {
  EXPECT_THAT(Split(Concatenate({FakeJpeg(1), FakeJpeg(2), FakeJpeg(3)})),
              ElementsAre(FakeJpeg(1), FakeJpeg(2), FakeJpeg(3)));
  EXPECT_THAT(Split(Concatenate({RealJpeg(64), RealJpeg(32)})),
              ElementsAre(RealJpeg(64), RealJpeg(32)));
}

TEST(FindJpeg, SkipsBytesBetweenPictures) {
  const Bytes boundary = {'-', '-', 'x', 0xff, '\r', 0xff, 0xd8};
  EXPECT_THAT(Split(Concatenate({boundary, FakeJpeg(1), {0, 0, 0xff}, FakeJpeg(2), {0xff}})),
              ElementsAre(FakeJpeg(1), FakeJpeg(2)));
}

TEST(FindJpeg, PassesOverAnEmbeddedThumbnail) {
  const Bytes thumbnail = FakeJpeg(9);
  Bytes picture = {0xff, 0xd8, 0xff, 0xe1, 0, static_cast<uint8_t>(2 + thumbnail.size())};
  Append(thumbnail, &picture);
  const Bytes rest = FakeJpeg(1);
  picture.insert(picture.end(), rest.begin() + 2, rest.end());
  EXPECT_THAT(Split(Concatenate({picture, FakeJpeg(2)})), ElementsAre(picture, FakeJpeg(2)));
}

TEST(FindJpeg, EndsACutOffPictureAtTheNext) {
  Bytes cut = FakeJpeg(1);
  cut.resize(15);
  EXPECT_THAT(Split(Concatenate({cut, FakeJpeg(2)})), ElementsAre(cut, FakeJpeg(2)));
  EXPECT_THAT(Split(Concatenate({FakeJpeg(2), cut})), ElementsAre(FakeJpeg(2), cut));
}

TEST(FindJpeg, AsksForMoreUntilThePictureIsComplete) {
  const Bytes junk = {1, 2, 3};
  const Bytes stream = Concatenate({junk, FakeJpeg(1)});
  for (size_t size = 0; size < stream.size(); ++size) {
    const JpegExtent extent = FindJpeg({stream.data(), size}, StreamEnd::kMoreFollows);
    EXPECT_EQ(extent.kind, JpegExtent::Kind::kNeedMore) << size;
    EXPECT_LE(extent.begin, std::min(size, junk.size())) << size;
  }
  EXPECT_EQ(FindJpeg(stream, StreamEnd::kMoreFollows).kind, JpegExtent::Kind::kFound);
}

TEST(FindJpeg, FindsNothingInOtherBytes) {
  EXPECT_TRUE(Split({}).empty());
  EXPECT_TRUE(Split({0xff, 0xd8}).empty());
  EXPECT_TRUE(Split(Bytes(1000, 0xff)).empty());
  EXPECT_TRUE(Split(Bytes(1000, 0)).empty());
}

TEST(FindJpeg, SurvivesRandomBytes) {
  std::mt19937 random(7);
  constexpr uint8_t kAlphabet[] = {0xff, 0xd8, 0xd9, 0xda, 0xe0, 0xc0, 0, 1, 3};
  for (int round = 0; round < 2000; ++round) {
    const size_t size = random() % 60;
    const std::unique_ptr<uint8_t[]> bytes(new uint8_t[size]);
    for (size_t i = 0; i < size; ++i) bytes[i] = kAlphabet[random() % std::size(kAlphabet)];
    Split(Bytes(bytes.get(), bytes.get() + size));
    (void)ReadJpegSize({bytes.get(), size});
  }
}

TEST(ReadJpegSize, ReadsTheFrameHeader) {
  const Bytes jpeg = RealJpeg(46);
  const std::optional<JpegSize> size = ReadJpegSize(jpeg);
  ASSERT_TRUE(size.has_value());
  EXPECT_EQ(size->width, 46);
  EXPECT_EQ(size->height, 23);
  EXPECT_FALSE(ReadJpegSize({jpeg.data(), 20}).has_value());
  EXPECT_FALSE(ReadJpegSize(FakeJpeg(1)).has_value());
  EXPECT_FALSE(ReadJpegSize({}).has_value());
}

}  // namespace
}  // namespace atollrt
