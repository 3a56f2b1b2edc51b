// SPDX-License-Identifier: Apache-2.0
#include "atoll/camera/frame_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "atoll/picture/resize.h"
#include "tests/support/fashion_files.h"

namespace atollrt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

using Bytes = std::vector<uint8_t>;

Image Flat(int width, int height, uint8_t value) {
  Image image;
  image.Reshape(width, height, 3);
  for (uint8_t& byte : image.pixels) byte = value;
  return image;
}

std::string OpenError(const std::string& spec, const FrameSourceOptions& options = {}) {
  const Result<std::unique_ptr<FrameSource>> source = OpenFrameSource(spec, options);
  return source.ok() ? "opened" : source.status().message();
}

// The first `limit` frames.
std::vector<Frame> Read(const std::string& spec, const FrameSourceOptions& options, size_t limit) {
  Result<std::unique_ptr<FrameSource>> source = OpenFrameSource(spec, options);
  std::vector<Frame> frames;
  if (!source.ok()) {
    ADD_FAILURE() << source.status().message();
    return frames;
  }
  EXPECT_FALSE((*source)->live());
  while (frames.size() < limit) {
    Frame frame;
    const Result<bool> got = (*source)->Next(&frame);
    EXPECT_TRUE(got.ok()) << got.status().message();
    if (!got.ok() || !*got) break;
    EXPECT_EQ(frame.sequence, frames.size());
    EXPECT_EQ(frame.format, FrameFormat::kJpeg);
    EXPECT_EQ(frame.capture_time_ns, 0);
    frames.push_back(frame);
  }
  return frames;
}

// --- OpenFrameSource -----------------------------------------------------------------------------

TEST(OpenFrameSource, ErrorsNameTheSpec) {
  EXPECT_THAT(OpenError("/nonexistent/video"), HasSubstr("'/nonexistent/video': no such file"));
  EXPECT_THAT(OpenError(""), HasSubstr("a camera is 'test'"));
  EXPECT_THAT(OpenError("/dev/video987654"), StartsWith("/dev/video987654: cannot open"));
  EXPECT_THAT(OpenError("test", {.width = 0}), HasSubstr("0 x 480"));
  EXPECT_THAT(OpenError("fashion:/nonexistent"),
              StartsWith("/nonexistent/t10k-images-idx3-ubyte.gz: cannot open"));
  EXPECT_EQ(OpenFrameSource("/dev/video987654", {}).code(), StatusCode::kNotFound);
}

// --- test ----------------------------------------------------------------------------------------

TEST(TestPattern, MovesAndRepeats) {
  const std::vector<Frame> frames = Read("test", {.width = 160, .height = 120}, 62);
  ASSERT_EQ(frames.size(), 62u);
  EXPECT_EQ(frames[0].width, 160);
  EXPECT_EQ(frames[0].height, 120);
  EXPECT_NE(frames[0].bytes, frames[1].bytes);
  EXPECT_EQ(frames[0].bytes, frames[60].bytes);
  Image image;
  for (const Frame& frame : frames) ASSERT_TRUE(DecodeFrame(frame, {}, &image).ok());
  EXPECT_EQ(image.width, 160);
}

TEST(TestPattern, WorksAtTinySizes) {
  EXPECT_EQ(Read("test", {.width = 1, .height = 1}, 3).size(), 3u);
}

// --- Files ---------------------------------------------------------------------------------------

TEST(JpegDirectory, DeliversTheFilesInOrderOfTheirNames) {
  TemporaryDirectory directory;
  directory.Write("b.jpg", *EncodeJpeg(Flat(8, 4, 10), 90));
  directory.Write("a.JPEG", *EncodeJpeg(Flat(16, 8, 10), 90));
  directory.Write("c.jpg", {1, 2, 3});  // left to the decoder
  directory.Write("notes.txt", {1});
  const std::vector<Frame> frames = Read(directory.path(), {}, 10);
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0].name, directory.path() + "/a.JPEG");
  EXPECT_EQ(frames[0].width, 16);
  EXPECT_EQ(frames[1].name, directory.path() + "/b.jpg");
  EXPECT_EQ(frames[1].height, 4);
  EXPECT_EQ(frames[2].width, 0);
  Image image;
  EXPECT_FALSE(DecodeFrame(frames[2], {}, &image).ok());
  EXPECT_EQ(Read(directory.path(), {.loop = true}, 7).size(), 7u);
}

TEST(JpegDirectory, RefusesADirectoryWithoutJpegs) {
  TemporaryDirectory directory;
  EXPECT_EQ(OpenError(directory.path()), directory.path() + ": contains no .jpg or .jpeg file");
}

TEST(MjpegFile, DeliversEveryPicture) {
  TemporaryDirectory directory;
  Bytes stream;
  std::vector<Bytes> pictures;
  for (int i = 0; i < 5; ++i) {
    pictures.push_back(*EncodeJpeg(Flat(32 + 16 * i, 32, static_cast<uint8_t>(40 * i)), 90));
    stream.insert(stream.end(), pictures.back().begin(), pictures.back().end());
    stream.insert(stream.end(), 200'000, uint8_t{0});  // so that reads end within and between
  }
  const std::string path = directory.Write("video.mjpeg", stream);
  const std::vector<Frame> frames = Read(path, {}, 100);
  ASSERT_EQ(frames.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(frames[i].bytes, pictures[i]) << i;
    EXPECT_EQ(frames[i].width, 32 + 16 * static_cast<int>(i));
  }
  EXPECT_EQ(frames[1].name, path + ", picture 1");
  const std::vector<Frame> looped = Read(path, {.loop = true}, 12);
  ASSERT_EQ(looped.size(), 12u);
  EXPECT_EQ(looped[11].bytes, pictures[1]);
}

TEST(MjpegFile, RefusesAFileWithoutPictures) {
  TemporaryDirectory directory;
  const std::string path = directory.Write("video.mjpeg", Bytes(100, 7));
  for (const bool loop : {false, true}) {
    Result<std::unique_ptr<FrameSource>> source = OpenFrameSource(path, {.loop = loop});
    ASSERT_TRUE(source.ok());
    Frame frame;
    EXPECT_EQ((*source)->Next(&frame).status().message(), path + ": contains no JPEG picture");
  }
}

// --- fashion:DIR ---------------------------------------------------------------------------------

TEST(Fashion, CentresTheEnlargedPicture) {
  TemporaryDirectory directory;
  const Bytes images = IdxImages(3);
  directory.WriteGzip("t10k-images-idx3-ubyte.gz", images);
  directory.Write("t10k-labels-idx1-ubyte", IdxLabels({7, 0, 9}));
  const std::vector<Frame> frames = Read("fashion:" + directory.path(), {}, 10);
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0].label, 7);
  EXPECT_EQ(frames[2].label, 9);
  EXPECT_EQ(frames[1].crop, (Rect{96, 16, 448, 448}));
  EXPECT_EQ(frames[1].name, "fashion:" + directory.path() + ", picture 1");

  Image original;
  original.Reshape(28, 28, 1);
  std::copy_n(images.begin() + 16 + 784, 784, original.pixels.begin());
  const Result<Image> expected = Resize(original, 448, 448);
  Image image;
  ASSERT_TRUE(DecodeFrame(frames[1], {.channels = 1}, &image).ok());
  ASSERT_EQ(image.width, 640);
  ASSERT_EQ(image.height, 480);
  for (int y = 0; y < 480; ++y) {
    for (int x = 0; x < 640; ++x) {
      const int value = image.pixels[static_cast<size_t>(y * 640 + x)];
      const bool inside = x >= 96 && x < 96 + 448 && y >= 16 && y < 16 + 448;
      const int want = inside ? expected->pixels[static_cast<size_t>((y - 16) * 448 + x - 96)] : 0;
      ASSERT_NEAR(value, want, 12) << x << ", " << y;
    }
  }
  EXPECT_EQ(Read("fashion:" + directory.path(), {.loop = true}, 8)[7].label, 0);
}

TEST(Fashion, RefusesBadFiles) {
  const Bytes good_images = IdxImages(2);
  const Bytes good_labels = IdxLabels({1, 2});
  const auto error = [](const Bytes& images, const Bytes& labels) {
    TemporaryDirectory directory;
    directory.Write("t10k-images-idx3-ubyte", images);
    directory.Write("t10k-labels-idx1-ubyte", labels);
    return OpenError("fashion:" + directory.path());
  };
  EXPECT_EQ(error(good_images, good_labels), "opened");
  EXPECT_THAT(error({}, good_labels), HasSubstr("images-idx3-ubyte: 0 bytes are too few"));
  EXPECT_THAT(error(good_labels, good_labels), HasSubstr("too few for an IDX header"));
  EXPECT_THAT(error(good_images, good_images), HasSubstr("magic 00000803, not 00000801"));
  EXPECT_THAT(error(good_images, IdxLabels({1, 2, 3})), HasSubstr("3 labels for 2 pictures"));
  EXPECT_THAT(error(IdxImages(0), IdxLabels({})), HasSubstr("0 labels for 0 pictures"));
  Bytes bad = good_images;
  bad[11] = 27;
  EXPECT_THAT(error(bad, good_labels), HasSubstr("dimension 1 is 27, not 28"));
  bad = good_images;
  bad[4] = 0xff;
  EXPECT_THAT(error(bad, good_labels), HasSubstr("items take"));
  bad = good_images;
  bad.pop_back();
  EXPECT_THAT(error(bad, good_labels), HasSubstr("2 items take 1568 bytes, but 1567 are present"));
}

TEST(Fashion, RefusesACutOffGzipFile) {
  TemporaryDirectory directory;
  const std::string path = directory.WriteGzip("t10k-images-idx3-ubyte.gz", IdxImages(20));
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  ASSERT_EQ(truncate(path.c_str(), info.st_size / 2), 0);
  EXPECT_THAT(OpenError("fashion:" + directory.path()), StartsWith(path + ": cannot read"));
}

// --- YUYV ----------------------------------------------------------------------------------------

TEST(DecodeFrame, ConvertsYuyv) {
  Frame frame;
  frame.format = FrameFormat::kYuyv;
  frame.width = 2;
  frame.height = 4;
  // Black and white; gray beyond the range; BT.601 red; blue.
  frame.bytes = {16, 128, 235, 128, 0, 128, 255, 128, 81, 90, 81, 240, 41, 240, 41, 110};
  Image image;
  ASSERT_TRUE(DecodeFrame(frame, {.channels = 3}, &image).ok());
  EXPECT_THAT(image.pixels, ElementsAre(0, 0, 0, 255, 255, 255, 0, 0, 0, 255, 255, 255, 255, 0, 0,
                                        255, 0, 0, 0, 0, 255, 0, 0, 255));
  ASSERT_TRUE(DecodeFrame(frame, {.channels = 1}, &image).ok());
  EXPECT_THAT(image.pixels, ElementsAre(0, 255, 0, 255, 76, 76, 29, 29));
}

TEST(DecodeFrame, RefusesYuyvOfTheWrongSize) {
  Frame frame;
  frame.format = FrameFormat::kYuyv;
  frame.width = 4;
  frame.height = 2;
  frame.bytes.resize(15);
  Image image;
  EXPECT_EQ(DecodeFrame(frame, {}, &image).message(),
            "YUYV: 4 x 2 takes 16 bytes, but 15 are present");
  frame.width = 3;
  EXPECT_FALSE(DecodeFrame(frame, {}, &image).ok());
  frame.width = 4;
  frame.bytes.resize(16);
  EXPECT_TRUE(DecodeFrame(frame, {}, &image).ok());
  EXPECT_FALSE(DecodeFrame(frame, {.channels = 2}, &image).ok());
  EXPECT_EQ(DecodeFrame(frame, {.max_pixels = 7}, &image).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace atollrt
