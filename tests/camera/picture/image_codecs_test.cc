// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "atoll/picture/image.h"
#include "tests/support/allocation_meter.h"

// clang-format off: jpeglib.h needs <cstdio> before it.
#include <jpeglib.h>
// clang-format on

namespace atollrt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

using Bytes = std::vector<uint8_t>;

void Append(const std::string& text, Bytes* out) {
  out->insert(out->end(), text.begin(), text.end());
}

template <typename T>
void AppendLittle(T value, Bytes* out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out->push_back(static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

void AppendBig32(uint32_t value, Bytes* out) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<uint8_t>(value >> shift));
}

Bytes Text(const std::string& text) { return Bytes(text.begin(), text.end()); }

Image Gradient(int width, int height, int channels) {
  Image image;
  image.Reshape(width, height, channels);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        image.pixels[static_cast<size_t>((y * width + x) * channels + c)] =
            static_cast<uint8_t>(c == 0   ? 255 * x / width
                                 : c == 1 ? 255 * y / height
                                          : 128);
      }
    }
  }
  return image;
}

// --- Writers of small files ---------------------------------------------------------------------

struct BmpSpec {
  int32_t width = 3;
  int32_t height = 2;  // negative: top-down
  uint16_t bits = 24;
  uint32_t compression = 0;
  uint32_t colors_used = 0;
  Bytes palette = {};  // B, G, R, 0
  Bytes masks = {};    // after the info header
  Bytes rows = {};     // in file order, padded
};

Bytes MakeBmp(const BmpSpec& spec) {
  const size_t offset = 54 + spec.masks.size() + spec.palette.size();
  Bytes out;
  Append("BM", &out);
  AppendLittle<uint32_t>(static_cast<uint32_t>(offset + spec.rows.size()), &out);
  AppendLittle<uint32_t>(0, &out);
  AppendLittle<uint32_t>(static_cast<uint32_t>(offset), &out);
  AppendLittle<uint32_t>(40, &out);
  AppendLittle<int32_t>(spec.width, &out);
  AppendLittle<int32_t>(spec.height, &out);
  AppendLittle<uint16_t>(1, &out);
  AppendLittle<uint16_t>(spec.bits, &out);
  AppendLittle<uint32_t>(spec.compression, &out);
  AppendLittle<uint32_t>(0, &out);
  AppendLittle<uint32_t>(0, &out);
  AppendLittle<uint32_t>(0, &out);
  AppendLittle<uint32_t>(spec.colors_used, &out);
  AppendLittle<uint32_t>(0, &out);
  out.insert(out.end(), spec.masks.begin(), spec.masks.end());
  out.insert(out.end(), spec.palette.begin(), spec.palette.end());
  out.insert(out.end(), spec.rows.begin(), spec.rows.end());
  return out;
}

void AppendPngChunk(const char* type, const Bytes& data, Bytes* out) {
  AppendBig32(static_cast<uint32_t>(data.size()), out);
  const size_t begin = out->size();
  Append(type, out);
  out->insert(out->end(), data.begin(), data.end());
  AppendBig32(
      static_cast<uint32_t>(crc32(0, out->data() + begin, static_cast<uInt>(out->size() - begin))),
      out);
}

// `rows` are the scan lines, each with its filter byte 0 in front.
Bytes MakePng(uint32_t width, uint32_t height, uint8_t depth, uint8_t color_type, const Bytes& rows,
              const Bytes& palette = {}, const Bytes& transparency = {}) {
  Bytes out = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  Bytes header;
  AppendBig32(width, &header);
  AppendBig32(height, &header);
  header.insert(header.end(), {depth, color_type, 0, 0, 0});
  AppendPngChunk("IHDR", header, &out);
  if (!palette.empty()) AppendPngChunk("PLTE", palette, &out);
  if (!transparency.empty()) AppendPngChunk("tRNS", transparency, &out);
  uLongf size = compressBound(static_cast<uLong>(rows.size()));
  Bytes packed(size);
  compress(packed.data(), &size, rows.data(), static_cast<uLong>(rows.size()));
  packed.resize(size);
  AppendPngChunk("IDAT", packed, &out);
  AppendPngChunk("IEND", {}, &out);
  return out;
}

enum class JpegKind { kProgressive, kCmyk };

Bytes MakeSpecialJpeg(JpegKind kind) {
  jpeg_compress_struct jpeg = {};
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_width = jpeg.image_height = 16;
  jpeg.input_components = kind == JpegKind::kCmyk ? 4 : 3;
  jpeg.in_color_space = kind == JpegKind::kCmyk ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  if (kind == JpegKind::kProgressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  Bytes row(16 * 4, 77);
  JSAMPROW pointer = row.data();
  while (jpeg.next_scanline < 16) jpeg_write_scanlines(&jpeg, &pointer, 1);
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  Bytes out(memory, memory + size);
  std::free(memory);
  return out;
}

// Copies to a heap block of exactly that size, so that sanitizers see every read past its end.
Result<Image> DecodeExact(const Bytes& bytes, size_t size, const DecodeOptions& options = {}) {
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[size]);
  std::copy_n(bytes.begin(), size, copy.get());
  return DecodeImage({copy.get(), size}, options);
}

std::string ErrorOf(const Bytes& bytes, const DecodeOptions& options = {}) {
  const Result<Image> image = DecodeExact(bytes, bytes.size(), options);
  return image.ok() ? "decoded" : image.status().message();
}

// One small valid file of each format.
std::vector<std::pair<std::string, Bytes>> SmallFiles() {
  Bytes ppm = Text("P6\n2 2\n255\n");
  Append("abcdefghijkl", &ppm);
  Bytes deep = Text("P5 # sixteen bits\n2 1\n65535\n");
  deep.insert(deep.end(), {0x12, 0x34, 0xff, 0xff});
  Bytes gray_palette;
  for (int i = 0; i < 256; ++i)
    gray_palette.insert(gray_palette.end(), 3, static_cast<uint8_t>(i)), gray_palette.push_back(0);
  return {
      {"jpeg", *EncodeJpeg(Gradient(24, 16, 3), 80)},
      {"gray jpeg", *EncodeJpeg(Gradient(9, 9, 1), 80)},
      {"progressive jpeg", MakeSpecialJpeg(JpegKind::kProgressive)},
      {"png", MakePng(2, 2, 8, 2, {0, 1, 2, 3, 4, 5, 6, 0, 7, 8, 9, 10, 11, 12})},
      {"palette png", MakePng(4, 1, 2, 3, {0, 0x1b}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9}, {0})},
      {"bmp", MakeBmp({.rows = Bytes(24, 7)})},
      {"palette bmp", MakeBmp({.bits = 8, .palette = gray_palette, .rows = Bytes(8, 9)})},
      {"ppm", ppm},
      {"deep pgm", deep},
  };
}

// --- All formats ---------------------------------------------------------------------------------

TEST(ImageDecoder, DecodesEverySmallFile) {
  for (const auto& [name, bytes] : SmallFiles()) {
    for (const int channels : {1, 3}) {
      const Result<Image> image = DecodeExact(bytes, bytes.size(), {.channels = channels});
      ASSERT_TRUE(image.ok()) << name << ": " << image.status().message();
      EXPECT_EQ(image->channels, channels) << name;
      EXPECT_EQ(image->pixels.size(), image->size_bytes()) << name;
    }
  }
}

TEST(ImageDecoder, RefusesEveryPrefix) {
  for (const auto& [name, bytes] : SmallFiles()) {
    for (size_t size = 0; size < bytes.size(); ++size) {
      const Result<Image> image = DecodeExact(bytes, size);
      EXPECT_FALSE(image.ok()) << name << ": the first " << size << " of " << bytes.size();
      if (!image.ok()) {
        EXPECT_FALSE(image.status().message().empty());
      }
    }
  }
}

TEST(ImageDecoder, SurvivesEveryCorruptedByte) {
  for (const auto& [name, bytes] : SmallFiles()) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      for (const int change : {0x01, 0x80, 0xff, 0x7f}) {
        Bytes corrupt = bytes;
        corrupt[i] = static_cast<uint8_t>(corrupt[i] ^ change);
        // The limit keeps a corrupt but believable size from costing memory.
        const Result<Image> image = DecodeExact(corrupt, corrupt.size(), {.max_pixels = 1 << 20});
        if (image.ok()) {
          EXPECT_EQ(image->pixels.size(), image->size_bytes()) << name << " at " << i;
        }
      }
    }
  }
}

TEST(ImageDecoder, NamesTheFirstBytesOfAnUnknownFile) {
  EXPECT_EQ(ErrorOf(Text("GIF89a..........")),
            "not a JPEG, PNG, BMP or PPM image: first bytes are 47 49 46 38 39 61 2e 2e");
  EXPECT_EQ(ErrorOf({0xab}), "not a JPEG, PNG, BMP or PPM image: first bytes are ab");
  EXPECT_EQ(ErrorOf({}), "not a JPEG, PNG, BMP or PPM image: it is empty");
}

TEST(ImageDecoder, RefusesMorePixelsThanAllowed) {
  for (const auto& [name, bytes] : SmallFiles()) {
    const Result<Image> image = DecodeExact(bytes, bytes.size(), {.max_pixels = 1});
    EXPECT_EQ(image.code(), StatusCode::kResourceExhausted) << name;
  }
}

TEST(ImageDecoder, RefusesOtherChannelCounts) {
  EXPECT_EQ(ErrorOf(SmallFiles()[0].second, {.channels = 4}),
            "cannot decode to 4 channels, only to 1 or 3");
}

TEST(ImageDecoder, ConvertsColourToGrayByBt601) {
  Bytes ppm = Text("P6 4 1 255\n");
  ppm.insert(ppm.end(), {255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 200, 30});
  const Result<Image> image = DecodeImage(ppm, {.channels = 1});
  ASSERT_TRUE(image.ok());
  EXPECT_THAT(image->pixels,
              ElementsAre(76, 150, 29, (19595 * 10 + 38470 * 200 + 7471 * 30 + 32768) >> 16));
}

TEST(ImageDecoder, RepeatsGrayAsRgb) {
  const Result<Image> image = DecodeImage(Text("P5 3 1 255\nabc"), {.channels = 3});
  ASSERT_TRUE(image.ok());
  EXPECT_THAT(image->pixels, ElementsAre('a', 'a', 'a', 'b', 'b', 'b', 'c', 'c', 'c'));
}

TEST(ImageDecoder, FileErrorsNameThePath) {
  const Result<Image> missing = ReadImageFile("/nonexistent/cat.jpg");
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.status().message(), StartsWith("/nonexistent/cat.jpg: cannot open"));
  const std::string path = testing::TempDir() + "image_decoder_test.bin";
  std::FILE* file = std::fopen(path.c_str(), "wb");
  ASSERT_NE(file, nullptr);
  std::fputs("hello, world", file);
  std::fclose(file);
  EXPECT_THAT(ReadImageFile(path).status().message(), StartsWith(path + ": not a JPEG"));
  std::remove(path.c_str());
  EXPECT_FALSE(ReadImageFile(testing::TempDir()).ok());
}

TEST(ImageDecoder, TellsTheSizeOfBitmapsFromTheirHeaders) {
  EXPECT_EQ(ReadBitmapSize(MakePng(2, 3, 8, 0, {0, 1, 2, 0, 1, 2, 0, 1, 2})), (ImageSize{2, 3}));
  EXPECT_EQ(ReadBitmapSize(MakeBmp({.width = 4, .height = -5})), (ImageSize{4, 5}));
  EXPECT_EQ(ReadBitmapSize(Text("P5 #x\n 6 7 255\n")), (ImageSize{6, 7}));
  for (const auto& [name, bytes] : SmallFiles()) {
    for (size_t size = 0; size < bytes.size(); ++size) {
      const Bytes prefix(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
      const ImageSize read = ReadBitmapSize(prefix);
      EXPECT_EQ(read.width > 0, read.height > 0) << name << ", " << size;
    }
  }
  EXPECT_EQ(ReadBitmapSize(MakeBmp({.width = -4, .height = 5})), ImageSize());
  EXPECT_EQ(ReadBitmapSize(MakeBmp({.width = 4, .height = INT32_MIN})), ImageSize());
  EXPECT_EQ(ReadBitmapSize(Text("P5 99999999999 7 255\n")), ImageSize());
  EXPECT_EQ(ReadBitmapSize(Text("hello, world, this is no picture")), ImageSize());
}

// --- Memory --------------------------------------------------------------------------------------

// Whatever is in the files beside pixels, and whatever size their headers announce.
TEST(ImageDecoder, TakesMemoryInProportion) {
  // Compressed texts: a hundred megabytes of nothing.
  const Bytes text(size_t{7} << 20, 'x');
  uLongf size = compressBound(static_cast<uLong>(text.size()));
  Bytes packed(size);
  compress(packed.data(), &size, text.data(), static_cast<uLong>(text.size()));
  Bytes chunk = {'t', 0, 0};
  chunk.insert(chunk.end(), packed.begin(), packed.begin() + static_cast<ptrdiff_t>(size));
  const Bytes plain = MakePng(1, 1, 8, 0, {0, 10});
  Bytes bomb(plain.begin(), plain.begin() + 33);  // the signature and IHDR
  for (const char* type : {"zTXt", "iCCP"}) {
    for (int i = 0; i < 15; ++i) AppendPngChunk(type, chunk, &bomb);
  }
  bomb.insert(bomb.end(), plain.begin() + 33, plain.end());
  const std::pair<Bytes, bool> files[] = {
      {bomb, true},
      {MakeBmp({.width = 8000, .height = 8000}), false},
      {Text("P6 8000 8000 255\n"), false},
  };
  for (const auto& [bytes, good] : files) {
    const MemoryLimit limit(ProportionalBytes(bytes.size(), 1 << 18));
    EXPECT_EQ(DecodeImage(bytes).ok(), good);
  }
}

// A header alone may take what its pixels would; not more, whatever kind of file it is.
TEST(ImageDecoder, TakesNoMoreThanSixteenBytesAPixel) {
  Bytes progressive = MakeSpecialJpeg(JpegKind::kProgressive);
  constexpr uint8_t kSof2[] = {0xff, 0xc2};
  const auto frame_header =
      std::search(progressive.begin(), progressive.end(), std::begin(kSof2), std::end(kSof2));
  ASSERT_NE(frame_header, progressive.end());
  for (const int side : {2000, 8192}) {
    for (const ptrdiff_t at : {5, 7}) {
      frame_header[at] = static_cast<uint8_t>(side >> 8);
      frame_header[at + 1] = static_cast<uint8_t>(side);
    }
    const MemoryLimit limit(int64_t{16} * side * side + (1 << 20));
    for (const int channels : {1, 3}) {
      EXPECT_FALSE(DecodeImage(progressive, {.channels = channels}).ok());
      PlanarImage planes;
      EXPECT_FALSE(DecodePlanes(progressive, {.channels = channels}, &planes).ok());
    }
    const Bytes png = MakePng(static_cast<uint32_t>(side), static_cast<uint32_t>(side), 16, 6, {0});
    EXPECT_FALSE(DecodeImage(png).ok());
  }
}

TEST(ImageDecoder, ReadsNoMoreOfAFileThanItNeeds) {
  const AllocationMeter meter;
  EXPECT_THAT(ReadImageFile("/dev/zero").status().message(),
              StartsWith("/dev/zero: not a JPEG, PNG, BMP or PPM image: first bytes are 00 00"));
  EXPECT_LT(meter.peak_bytes(), 1 << 20);
}

// --- JPEG ----------------------------------------------------------------------------------------

TEST(JpegDecoder, GivesBackWhatWasEncoded) {
  const Image original = Gradient(65, 33, 3);
  const Result<Bytes> jpeg = EncodeJpeg(original, 95);
  ASSERT_TRUE(jpeg.ok());
  const Result<Image> decoded = DecodeImage(*jpeg);
  ASSERT_TRUE(decoded.ok());
  ASSERT_EQ(decoded->pixels.size(), original.pixels.size());
  for (size_t i = 0; i < original.pixels.size(); ++i) {
    ASSERT_NEAR(decoded->pixels[i], original.pixels[i], 8) << i;
  }
}

TEST(JpegDecoder, ShrinksWhileStayingLargeEnough) {
  const Result<Bytes> jpeg = EncodeJpeg(Gradient(640, 480, 3), 90);
  const auto width = [&](int min_width, int min_height) {
    const Result<Image> image =
        DecodeImage(*jpeg, {.min_width = min_width, .min_height = min_height});
    return image.ok() ? image->width : -1;
  };
  EXPECT_EQ(width(0, 0), 640);
  EXPECT_EQ(width(321, 0), 640);
  EXPECT_EQ(width(320, 240), 320);
  EXPECT_EQ(width(320, 241), 640);
  EXPECT_EQ(width(224, 0), 320);
  EXPECT_EQ(width(0, 100), 160);
  EXPECT_EQ(width(1, 1), 80);
  EXPECT_EQ(width(10000, 1), 640);
}

TEST(JpegDecoder, ReadsMotionJpegWithoutHuffmanTables) {
  const Result<Bytes> jpeg = EncodeJpeg(Gradient(32, 32, 3), 90);
  Bytes stripped = {0xff, 0xd8};
  for (size_t i = 2; i + 4 <= jpeg->size();) {
    const uint8_t marker = (*jpeg)[i + 1];
    const size_t size =
        marker == 0xda ? jpeg->size() - i : 2u + ((*jpeg)[i + 2] << 8 | (*jpeg)[i + 3]);
    if (marker != 0xc4) stripped.insert(stripped.end(), &(*jpeg)[i], &(*jpeg)[i] + size);
    i += size;
  }
  ASSERT_LT(stripped.size(), jpeg->size() - 300);
  const Result<Image> expected = DecodeImage(*jpeg);
  const Result<Image> image = DecodeImage(stripped);
  ASSERT_TRUE(image.ok()) << image.status().message();
  EXPECT_EQ(image->pixels, expected->pixels);
}

TEST(JpegDecoder, RefusesCmyk) {
  const Result<Image> image = DecodeImage(MakeSpecialJpeg(JpegKind::kCmyk));
  EXPECT_EQ(image.code(), StatusCode::kUnsupported);
  EXPECT_THAT(image.status().message(), HasSubstr("CMYK"));
}

TEST(JpegDecoder, CallsMissingScanDataAnError) {
  Bytes jpeg = *EncodeJpeg(Gradient(64, 64, 3), 90);
  jpeg.resize(jpeg.size() * 3 / 4);
  jpeg.insert(jpeg.end(), {0xff, 0xd9});
  EXPECT_THAT(ErrorOf(jpeg), StartsWith("JPEG: Corrupt JPEG data: premature end of data segment"));
}

TEST(ClassMapEncoders, KeepEveryPixel) {
  Image map = Gradient(7, 5, 1);
  for (uint8_t& pixel : map.pixels) pixel %= 3;
  const std::vector<Color> palette = {{0, 0, 0}, {128, 0, 0}, {1, 2, 3}};
  const Result<Bytes> png = EncodeIndexedPng(map, palette);
  ASSERT_TRUE(png.ok()) << png.status().message();
  const Result<Image> shown = DecodeImage(*png);
  ASSERT_TRUE(shown.ok()) << shown.status().message();
  ASSERT_EQ(shown->pixels.size(), 3 * map.pixels.size());
  for (size_t i = 0; i < map.pixels.size(); ++i) {
    const uint8_t* pixel = shown->pixels.data() + 3 * i;
    EXPECT_EQ((Color{pixel[0], pixel[1], pixel[2]}), palette[map.pixels[i]]);
  }
  const Result<Image> gray = DecodeImage(*EncodePgm(map), {.channels = 1});
  ASSERT_TRUE(gray.ok()) << gray.status().message();
  EXPECT_EQ(gray->width, 7);
  EXPECT_EQ(gray->pixels, map.pixels);
}

TEST(ClassMapEncoders, RefuseBadArguments) {
  const std::vector<Color> palette(2);
  Image map = Gradient(4, 4, 1);
  std::fill(map.pixels.begin(), map.pixels.end(), uint8_t{1});
  EXPECT_TRUE(EncodeIndexedPng(map, palette).ok());
  EXPECT_EQ(EncodeIndexedPng(map, {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(EncodeIndexedPng(map, std::vector<Color>(257)).code(), StatusCode::kInvalidArgument);
  map.pixels[5] = 2;
  EXPECT_EQ(EncodeIndexedPng(map, palette).code(), StatusCode::kInvalidArgument);
  for (const Image& bad : {Image(), Gradient(4, 4, 3)}) {
    EXPECT_EQ(EncodeIndexedPng(bad, palette).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(EncodePgm(bad).code(), StatusCode::kInvalidArgument);
  }
}

TEST(JpegEncoder, RefusesBadArguments) {
  EXPECT_EQ(EncodeJpeg(Gradient(8, 8, 3), 0).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(EncodeJpeg(Gradient(8, 8, 3), 101).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(EncodeJpeg(Image(), 90).code(), StatusCode::kInvalidArgument);
  Image inconsistent = Gradient(8, 8, 3);
  inconsistent.pixels.pop_back();
  EXPECT_EQ(EncodeJpeg(inconsistent, 90).code(), StatusCode::kInvalidArgument);
}

// --- PNG -----------------------------------------------------------------------------------------

TEST(PngDecoder, ReadsEveryColourType) {
  const auto pixels = [](const Bytes& png, int channels) {
    const Result<Image> image = DecodeImage(png, {.channels = channels});
    return image.ok() ? image->pixels : Text(image.status().message());
  };
  EXPECT_THAT(pixels(MakePng(2, 1, 8, 0, {0, 10, 20}), 1), ElementsAre(10, 20));
  EXPECT_THAT(pixels(MakePng(8, 1, 1, 0, {0, 0xa5}), 1),
              ElementsAre(255, 0, 255, 0, 0, 255, 0, 255));
  EXPECT_THAT(pixels(MakePng(4, 1, 2, 0, {0, 0x1b}), 1), ElementsAre(0, 85, 170, 255));
  EXPECT_THAT(pixels(MakePng(2, 1, 4, 0, {0, 0x1f}), 1), ElementsAre(17, 255));
  EXPECT_THAT(pixels(MakePng(2, 1, 16, 0, {0, 0x80, 0x00, 0xff, 0xff}), 1), ElementsAre(128, 255));
  EXPECT_THAT(pixels(MakePng(1, 1, 8, 2, {0, 1, 2, 3}), 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(pixels(MakePng(1, 1, 16, 2, {0, 1, 0, 2, 0, 3, 0}), 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(pixels(MakePng(2, 1, 8, 3, {0, 1, 0}, {9, 8, 7, 6, 5, 4}), 3),
              ElementsAre(6, 5, 4, 9, 8, 7));
}

TEST(PngDecoder, DropsAlpha) {
  const auto pixels = [](const Bytes& png, int channels) {
    const Result<Image> image = DecodeImage(png, {.channels = channels});
    return image.ok() ? image->pixels : Text(image.status().message());
  };
  EXPECT_THAT(pixels(MakePng(1, 1, 8, 6, {0, 10, 20, 30, 0}), 3), ElementsAre(10, 20, 30));
  EXPECT_THAT(pixels(MakePng(1, 1, 8, 4, {0, 10, 0}), 1), ElementsAre(10));
  EXPECT_THAT(pixels(MakePng(1, 1, 8, 3, {0, 0}, {9, 8, 7}, {0}), 3), ElementsAre(9, 8, 7));
  EXPECT_THAT(pixels(MakePng(1, 1, 8, 0, {0, 10}, {}, {0, 10}), 1), ElementsAre(10));
}

// --- BMP -----------------------------------------------------------------------------------------

TEST(BmpDecoder, ReadsRowsFromTheBottomAndSkipsPadding) {
  // 1 x 2 pixels: each row is 3 bytes and 1 of padding.
  const Bytes rows = {1, 2, 3, 0xee, 4, 5, 6, 0xee};
  const Result<Image> bottom_up = DecodeImage(MakeBmp({.width = 1, .height = 2, .rows = rows}));
  ASSERT_TRUE(bottom_up.ok()) << bottom_up.status().message();
  EXPECT_THAT(bottom_up->pixels, ElementsAre(6, 5, 4, 3, 2, 1));
  const Result<Image> top_down = DecodeImage(MakeBmp({.width = 1, .height = -2, .rows = rows}));
  ASSERT_TRUE(top_down.ok()) << top_down.status().message();
  EXPECT_THAT(top_down->pixels, ElementsAre(3, 2, 1, 6, 5, 4));
}

TEST(BmpDecoder, Reads32BitsWithOrWithoutMasks) {
  const Bytes rows = {1, 2, 3, 4, 5, 6, 7, 8};
  const Bytes masks = {0, 0, 0xff, 0, 0, 0xff, 0, 0, 0xff, 0, 0, 0};
  BmpSpec spec = {.width = 2, .height = 1, .bits = 32, .rows = rows};
  EXPECT_THAT(DecodeImage(MakeBmp(spec))->pixels, ElementsAre(3, 2, 1, 7, 6, 5));
  spec.compression = 3;
  spec.masks = masks;
  EXPECT_THAT(DecodeImage(MakeBmp(spec))->pixels, ElementsAre(3, 2, 1, 7, 6, 5));
  std::reverse(spec.masks.begin(), spec.masks.end());
  EXPECT_THAT(ErrorOf(MakeBmp(spec)), HasSubstr("colour masks"));
}

TEST(BmpDecoder, ReadsPalettes) {
  BmpSpec spec = {.width = 2,
                  .height = 1,
                  .bits = 8,
                  .colors_used = 2,
                  .palette = {1, 2, 3, 0, 4, 5, 6, 0},
                  .rows = {1, 0, 0, 0}};
  EXPECT_THAT(DecodeImage(MakeBmp(spec))->pixels, ElementsAre(6, 5, 4, 3, 2, 1));
  spec.palette = {7, 7, 7, 0, 9, 9, 9, 0};
  EXPECT_THAT(DecodeImage(MakeBmp(spec), {.channels = 1})->pixels, ElementsAre(9, 7));
  spec.rows[1] = 2;
  EXPECT_EQ(ErrorOf(MakeBmp(spec)), "BMP: pixel (1, 0) has colour 2 of a palette of 2");
}

TEST(BmpDecoder, RefusesHostileHeaders) {
  const Bytes rows(24, 0);
  EXPECT_THAT(ErrorOf(MakeBmp({.width = 0, .rows = rows})), HasSubstr("size 0 x 2"));
  EXPECT_THAT(ErrorOf(MakeBmp({.width = -3, .rows = rows})), HasSubstr("size -3 x 2"));
  EXPECT_THAT(ErrorOf(MakeBmp({.height = INT32_MIN, .rows = rows})), HasSubstr("out of range"));
  EXPECT_THAT(ErrorOf(MakeBmp({.width = 4, .height = 3, .rows = rows})),
              HasSubstr("4 x 3 pixels end at byte 90 of a file of 78"));
  EXPECT_THAT(ErrorOf(MakeBmp({.bits = 16, .rows = rows})), HasSubstr("16 bits per pixel"));
  EXPECT_THAT(ErrorOf(MakeBmp({.bits = 8, .compression = 1, .rows = rows})),
              HasSubstr("compression 1"));
  EXPECT_THAT(ErrorOf(MakeBmp({.bits = 8, .colors_used = 257, .rows = rows})),
              HasSubstr("palette of 257"));
  EXPECT_THAT(ErrorOf(MakeBmp({.bits = 8, .rows = rows})), HasSubstr("overlap the headers"));
}

// --- PPM -----------------------------------------------------------------------------------------

TEST(PpmDecoder, ReadsCommentsAndScalesOtherMaxvals) {
  const auto pixels = [](const std::string& text) {
    const Result<Image> image = DecodeImage(Text(text), {.channels = 1});
    return image.ok() ? image->pixels : Text(image.status().message());
  };
  EXPECT_THAT(pixels("P5#c\n#another\n 2 #width\n1\n255\nab"), ElementsAre('a', 'b'));
  EXPECT_THAT(pixels(std::string("P5 3 1 3\n\0\1\3", 12)), ElementsAre(0, 85, 255));
  EXPECT_THAT(pixels(std::string("P5 2 1 65535\n\x80\x00\xff\xff", 17)), ElementsAre(128, 255));
  EXPECT_THAT(pixels(std::string("P5 1 1 100\n\xff", 12)), ElementsAre(255));  // above maxval
}

TEST(PpmDecoder, RefusesBadHeaders) {
  EXPECT_THAT(ErrorOf(Text("P6 x")), HasSubstr("no number for the width"));
  EXPECT_THAT(ErrorOf(Text("P6 1 99999999999 255\nabc")), HasSubstr("height is above"));
  EXPECT_THAT(ErrorOf(Text("P6 1 1 65536\nabc")), HasSubstr("maxval is above 65535"));
  EXPECT_THAT(ErrorOf(Text("P6 1 1 0\nabc")), HasSubstr("maxval is 0"));
  EXPECT_THAT(ErrorOf(Text("P6 0 1 255\nabc")), HasSubstr("size 0 x 1"));
  EXPECT_THAT(ErrorOf(Text("P6 1 1 255")), HasSubstr("no white space"));
  EXPECT_THAT(ErrorOf(Text("P6 2 2 255\nabc")), HasSubstr("take 12 bytes, but 3 are present"));
}

}  // namespace
}  // namespace atollrt
