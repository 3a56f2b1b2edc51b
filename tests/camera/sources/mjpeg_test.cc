// SPDX-License-Identifier: Apache-2.0
#include "camera/sources/mjpeg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "atoll/picture/image.h"

namespace atollrt {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

using Bytes = std::vector<uint8_t>;

void Append(const Bytes& bytes, Bytes* out) { out->insert(out->end(), bytes.begin(), bytes.end()); }

Bytes Concatenate(const std::vector<Bytes>& parts) {
  Bytes out;
  for (const Bytes& part : parts) Append(part, &out);
  return out;
}

// The JPEGs of a stream that arrives in pieces of `piece` bytes.
std::vector<Bytes> Split(const Bytes& stream, size_t piece = SIZE_MAX) {
  JpegSplitter splitter;
  std::vector<Bytes> pictures;
  Bytes picture;
  const auto take = [&] {
    while (true) {
      const Result<bool> found = splitter.Next(&picture);
      EXPECT_TRUE(found.ok()) << found.status().message();
      if (!found.ok() || !*found) return;
      EXPECT_FALSE(picture.empty());
      pictures.push_back(picture);
    }
  };
  for (size_t at = 0; at < stream.size(); at += std::min(piece, stream.size() - at)) {
    splitter.Append({stream.data() + at, std::min(piece, stream.size() - at)});
    take();
  }
  splitter.Finish();
  take();
  return pictures;
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

TEST(JpegSplitter, SplitsConcatenatedPictures) {
  EXPECT_THAT(Split(Concatenate({FakeJpeg(1), FakeJpeg(2), FakeJpeg(3)})),
              ElementsAre(FakeJpeg(1), FakeJpeg(2), FakeJpeg(3)));
  EXPECT_THAT(Split(Concatenate({RealJpeg(64), RealJpeg(32)})),
              ElementsAre(RealJpeg(64), RealJpeg(32)));
}

TEST(JpegSplitter, SkipsBytesBetweenPictures) {
  const Bytes boundary = {'-', '-', 'x', 0xff, '\r', 0xff, 0xd8};
  EXPECT_THAT(Split(Concatenate({boundary, FakeJpeg(1), {0, 0, 0xff}, FakeJpeg(2), {0xff}})),
              ElementsAre(FakeJpeg(1), FakeJpeg(2)));
}

TEST(JpegSplitter, PassesOverAnEmbeddedThumbnail) {
  const Bytes thumbnail = FakeJpeg(9);
  Bytes picture = {0xff, 0xd8, 0xff, 0xe1, 0, static_cast<uint8_t>(2 + thumbnail.size())};
  Append(thumbnail, &picture);
  const Bytes rest = FakeJpeg(1);
  picture.insert(picture.end(), rest.begin() + 2, rest.end());
  EXPECT_THAT(Split(Concatenate({picture, FakeJpeg(2)})), ElementsAre(picture, FakeJpeg(2)));
}

TEST(JpegSplitter, EndsACutOffPictureAtTheNext) {
  Bytes cut = FakeJpeg(1);
  cut.resize(15);
  EXPECT_THAT(Split(Concatenate({cut, FakeJpeg(2)})), ElementsAre(cut, FakeJpeg(2)));
  EXPECT_THAT(Split(Concatenate({FakeJpeg(2), cut})), ElementsAre(FakeJpeg(2), cut));
}

TEST(JpegSplitter, AsksForMoreUntilThePictureIsComplete) {
  const Bytes junk = {1, 2, 3};
  const Bytes stream = Concatenate({junk, FakeJpeg(1)});
  Bytes picture;
  for (size_t size = 0; size <= stream.size(); ++size) {
    JpegSplitter splitter;
    splitter.Append({stream.data(), size});
    EXPECT_EQ(*splitter.Next(&picture), size == stream.size()) << size;
  }
  EXPECT_EQ(picture, FakeJpeg(1));
}

TEST(JpegSplitter, FindsNothingInOtherBytes) {
  EXPECT_TRUE(Split({}).empty());
  EXPECT_TRUE(Split({0xff, 0xd8}).empty());
  EXPECT_TRUE(Split(Bytes(1000, 0xff)).empty());
  EXPECT_TRUE(Split(Bytes(1000, 0)).empty());
}

TEST(JpegSplitter, SurvivesRandomBytes) {
  std::mt19937 random(7);
  constexpr uint8_t kAlphabet[] = {0xff, 0xd8, 0xd9, 0xda, 0xe0, 0xc0, 0, 1, 3};
  for (int round = 0; round < 2000; ++round) {
    const size_t size = random() % 60;
    const std::unique_ptr<uint8_t[]> bytes(new uint8_t[size]);
    for (size_t i = 0; i < size; ++i) bytes[i] = kAlphabet[random() % std::size(kAlphabet)];
    const Bytes stream(bytes.get(), bytes.get() + size);
    EXPECT_EQ(Split(stream, 1), Split(stream));
    EXPECT_EQ(Split(stream, 7), Split(stream));
    (void)ReadJpegSize({bytes.get(), size});
  }
}

// What a hostile sender repeats without end, in pieces as a socket gives them: an end comes, and
// the bytes before it have been looked at a few times at most, however many pieces follow.
std::string EndOf(const Bytes& begin, const Bytes& repeated,
                  size_t most = 2 * JpegSplitter::kMaxPictureBytes) {
  JpegSplitter splitter;
  splitter.Append(begin);
  Bytes piece;
  while (piece.size() < 16384) Append(repeated, &piece);
  Bytes picture;
  std::string end = "none";
  size_t sent = begin.size();
  // Taken, looked at, perhaps moved; a marker's bytes up to three times each. A pass over the
  // picture for each piece would be thousands.
  const auto is_proportional = [&] { return splitter.work_bytes() <= 6 * sent; };
  while (sent < most && end == "none" && is_proportional()) {
    splitter.Append(piece);
    sent += piece.size();
    while (true) {
      const Result<bool> found = splitter.Next(&picture);
      if (!found.ok()) end = found.status().message();
      if (!found.ok() || !*found) break;
    }
  }
  EXPECT_GE(splitter.work_bytes(), sent);
  EXPECT_TRUE(is_proportional()) << splitter.work_bytes() << " bytes of work for " << sent;
  return end;
}

TEST(JpegSplitter, EndsWhatHasNoEnd) {
  EXPECT_THAT(EndOf({0xff, 0xd8}, {0xff, 0x00}), StartsWith("a picture has no end within 6710"));
  EXPECT_THAT(EndOf({0xff, 0xd8}, {0xff, 0xff}), StartsWith("a picture has no end within 6710"));
  EXPECT_THAT(EndOf({0xff, 0xd8}, {0xff, 0xe0, 0, 2}), StartsWith("a picture has no end within"));
  EXPECT_THAT(EndOf({}, {0}), StartsWith("no JPEG picture within 1679"));
  EXPECT_THAT(EndOf({}, {0xff, 0xd8}), StartsWith("no JPEG picture within 1679"));
  EXPECT_EQ(EndOf({}, {0xff, 0xd8, 0xff, 0xd9}, 1 << 24),
            "none");  // small pictures, if they are any
}

TEST(ReadJpegSize, ReadsTheFrameHeader) {
  const Bytes jpeg = RealJpeg(46);
  const std::optional<ImageSize> size = ReadJpegSize(jpeg);
  ASSERT_TRUE(size.has_value());
  EXPECT_EQ(size->width, 46);
  EXPECT_EQ(size->height, 23);
  EXPECT_FALSE(ReadJpegSize({jpeg.data(), 20}).has_value());
  EXPECT_FALSE(ReadJpegSize(FakeJpeg(1)).has_value());
  EXPECT_FALSE(ReadJpegSize({}).has_value());
}

}  // namespace
}  // namespace atollrt
