// SPDX-License-Identifier: Apache-2.0
//
// Pictures of every format but JPEG (jpeg_codec.cc); the only file that includes libpng. It reports
// errors with longjmp; so between a setjmp and the library calls below it no object with a
// destructor is created.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <initializer_list>

#include "atoll/picture/image.h"
#include "camera/picture/file_io.h"
#include "camera/picture/formats.h"

namespace atollrt {
namespace {

// --- PNG -----------------------------------------------------------------------------------------

// What must outlive a longjmp.
struct Png {
  png_structp png = nullptr;
  png_infop info = nullptr;
  bool writes = false;
  char message[160] = "";
  std::vector<png_bytep> rows;
  std::span<const uint8_t> left;  // to read
  std::vector<uint8_t> written;

  // False when memory is out.
  bool Create(bool to_write) {
    writes = to_write;
    const auto create = writes ? png_create_write_struct : png_create_read_struct;
    png = create(PNG_LIBPNG_VER_STRING, this, Fail, [](png_structp, png_const_charp) {});
    if (png != nullptr) info = png_create_info_struct(png);
    return info != nullptr;
  }
  ~Png() {
    if (writes) {
      png_destroy_write_struct(&png, &info);
    } else {
      png_destroy_read_struct(&png, &info, nullptr);
    }
  }
  [[noreturn]] static void Fail(png_structp png, png_const_charp text) {
    auto* self = static_cast<Png*>(png_get_error_ptr(png));
    std::snprintf(self->message, sizeof(self->message), "%s", text);
    png_longjmp(png, 1);
  }
};

void PngRead(png_structp png, png_bytep out, size_t size) {
  auto* reader = static_cast<Png*>(png_get_io_ptr(png));
  if (size > reader->left.size()) png_error(png, "ends too early");
  std::memcpy(out, reader->left.data(), size);
  reader->left = reader->left.subspan(size);
}

void PngAppend(png_structp png, png_bytep data, size_t size) {
  std::vector<uint8_t>& bytes = static_cast<Png*>(png_get_io_ptr(png))->written;
  bytes.insert(bytes.end(), data, data + size);
}

// Reads the header and asks for 8-bit gray or RGB without alpha. False: `message` says why not.
bool ReadPngInfo(Png* reader) {
  png_structp png = reader->png;
  if (setjmp(png_jmpbuf(png))) return false;
  png_set_read_fn(png, reader, PngRead);
  // Of chunks only those that pixels depend on: compressed texts and profiles, of which there may
  // be a thousand, become a thousand times as large.
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(png, reader->info);
  const int color_type = png_get_color_type(png, reader->info);
  png_set_scale_16(png);
  if (color_type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (color_type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png);
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, reader->info);
  return true;
}

bool ReadPngPixels(Png* reader) {
  if (setjmp(png_jmpbuf(reader->png))) return false;
  png_read_image(reader->png, reader->rows.data());
  png_read_end(reader->png, nullptr);
  return true;
}

Status DecodePng(std::span<const uint8_t> bytes, int64_t max_pixels, Image* image) {
  Png reader;
  reader.left = bytes;
  if (!reader.Create(false)) return ResourceExhausted("PNG: out of memory");
  if (!ReadPngInfo(&reader)) return InvalidArgument("PNG: %s", reader.message);
  const png_uint_32 width = png_get_image_width(reader.png, reader.info);
  const png_uint_32 height = png_get_image_height(reader.png, reader.info);
  ATOLL_RETURN_IF_ERROR(CheckImageSize("PNG", width, height, max_pixels));
  const int channels = png_get_channels(reader.png, reader.info);
  if (channels != 1 && channels != 3) return Unsupported("PNG: %d channels", channels);
  image->Reshape(static_cast<int>(width), static_cast<int>(height), channels);
  ATOLL_CHECK(png_get_rowbytes(reader.png, reader.info) == image->row_bytes());
  reader.rows.resize(height);
  for (size_t y = 0; y < height; ++y) {
    reader.rows[y] = image->pixels.data() + image->row_bytes() * y;
  }
  if (!ReadPngPixels(&reader)) return InvalidArgument("PNG: %s", reader.message);
  return Status();
}

bool WriteIndexedPng(Png* writer, int width, int height, std::span<const png_color> palette) {
  png_structp png = writer->png;
  if (setjmp(png_jmpbuf(png))) return false;
  png_set_write_fn(png, writer, PngAppend, nullptr);
  png_set_IHDR(png, writer->info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height),
               8, PNG_COLOR_TYPE_PALETTE, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  png_set_PLTE(png, writer->info, palette.data(), static_cast<int>(palette.size()));
  png_write_info(png, writer->info);
  png_write_image(png, writer->rows.data());
  png_write_end(png, nullptr);
  return true;
}

// --- All formats ---------------------------------------------------------------------------------

void ConvertChannels(int channels, Image* image) {
  if (image->channels == channels) return;
  const size_t pixels = static_cast<size_t>(image->width) * static_cast<size_t>(image->height);
  std::vector<uint8_t>& bytes = image->pixels;
  if (channels == 1) {
    for (size_t i = 0; i < pixels; ++i) {
      const uint8_t* rgb = bytes.data() + 3 * i;
      bytes[i] = Luma({rgb[0], rgb[1], rgb[2]});
    }
    bytes.resize(pixels);
  } else {
    bytes.resize(3 * pixels);
    for (size_t i = pixels; i-- > 0;) std::memset(bytes.data() + 3 * i, bytes[i], 3);
  }
  image->channels = channels;
}

Status CheckGray(const char* format, const Image& image) {
  if (image.channels == 1 && image.width >= 1 && image.height >= 1 &&
      image.pixels.size() == image.size_bytes()) {
    return Status();
  }
  return InvalidArgument(
      "cannot encode an image of %d x %d x %d with %zu bytes as %s, only gray ones", image.width,
      image.height, image.channels, image.pixels.size(), format);
}

bool StartsWith(std::span<const uint8_t> bytes, std::initializer_list<uint8_t> prefix) {
  return bytes.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), bytes.begin());
}

bool LooksLikePng(std::span<const uint8_t> bytes) {
  return StartsWith(bytes, {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'});
}
bool LooksLikeBmp(std::span<const uint8_t> bytes) { return StartsWith(bytes, {'B', 'M'}); }

bool LooksLikePnm(std::span<const uint8_t> bytes) {
  return bytes.size() >= 3 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6') &&
         (bytes[2] == '#' || bytes[2] == ' ' || (bytes[2] >= '\t' && bytes[2] <= '\r'));
}

bool LooksLikeImage(std::span<const uint8_t> bytes) {
  return LooksLikeJpeg(bytes) || LooksLikePng(bytes) || LooksLikeBmp(bytes) || LooksLikePnm(bytes);
}

// IHDR comes first: its length, its name, width and height.
ImageSize ReadPngSize(std::span<const uint8_t> bytes) {
  if (bytes.size() < 24) return {};
  const auto number = [&](size_t at) {
    const uint32_t value = png_get_uint_32(bytes.data() + at);
    return value <= PNG_UINT_31_MAX ? static_cast<int>(value) : 0;
  };
  return {number(16), number(20)};
}

Status UnknownFormat(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return InvalidArgument("not a JPEG, PNG, BMP or PPM image: it is empty");
  std::string first;
  for (size_t i = 0; i < std::min<size_t>(bytes.size(), 8); ++i) {
    first += Format("%s%02x", i == 0 ? "" : " ", bytes[i]);
  }
  return InvalidArgument("not a JPEG, PNG, BMP or PPM image: first bytes are %s", first.c_str());
}

}  // namespace

void Image::Reshape(int new_width, int new_height, int new_channels) {
  width = new_width;
  height = new_height;
  channels = new_channels;
  pixels.resize(size_bytes());
}

Status DecodeImageInto(std::span<const uint8_t> bytes, const DecodeOptions& options, Image* image) {
  if (options.channels != 1 && options.channels != 3) {
    return InvalidArgument("cannot decode to %d channels, only to 1 or 3", options.channels);
  }
  if (LooksLikeJpeg(bytes)) return DecodeJpeg(bytes, options, image);
  if (LooksLikePng(bytes)) {
    ATOLL_RETURN_IF_ERROR(DecodePng(bytes, options.max_pixels, image));
  } else if (LooksLikeBmp(bytes)) {
    ATOLL_RETURN_IF_ERROR(DecodeBmp(bytes, options.max_pixels, image));
  } else if (LooksLikePnm(bytes)) {
    ATOLL_RETURN_IF_ERROR(DecodePnm(bytes, options.max_pixels, image));
  } else {
    return UnknownFormat(bytes);
  }
  ConvertChannels(options.channels, image);
  return Status();
}

Result<Image> DecodeImage(std::span<const uint8_t> bytes, const DecodeOptions& options) {
  Image image;
  ATOLL_RETURN_IF_ERROR(DecodeImageInto(bytes, options, &image));
  return image;
}

ImageSize ReadBitmapSize(std::span<const uint8_t> bytes) {
  ImageSize size;
  if (LooksLikePng(bytes)) size = ReadPngSize(bytes);
  if (LooksLikeBmp(bytes)) size = ReadBmpSize(bytes);
  if (LooksLikePnm(bytes)) size = ReadPnmSize(bytes);
  return size.width >= 1 && size.height >= 1 ? size : ImageSize();
}

Result<Image> ReadImageFile(const std::string& path, const DecodeOptions& options) {
  std::vector<uint8_t> bytes;
  ATOLL_RETURN_IF_ERROR(ReadFile(path, &bytes, {.wants_rest = LooksLikeImage}));
  Image image;
  ATOLL_RETURN_IF_ERROR(DecodeImageInto(bytes, options, &image).WithContext(path));
  return image;
}

Result<std::vector<uint8_t>> EncodeIndexedPng(const Image& indices,
                                              std::span<const Color> palette) {
  ATOLL_RETURN_IF_ERROR(CheckGray("PNG", indices));
  if (palette.empty() || palette.size() > 256) {
    return InvalidArgument("a PNG palette of %zu colours; it has 1 to 256", palette.size());
  }
  const uint8_t largest = *std::max_element(indices.pixels.begin(), indices.pixels.end());
  if (largest >= palette.size()) {
    return InvalidArgument("a pixel of colour %d in a palette of %zu colours", largest,
                           palette.size());
  }
  std::vector<png_color> colors;
  for (const Color& color : palette) colors.push_back({color.r, color.g, color.b});
  Png writer;
  for (size_t y = 0; y < static_cast<size_t>(indices.height); ++y) {
    writer.rows.push_back(const_cast<uint8_t*>(indices.pixels.data() + indices.row_bytes() * y));
  }
  if (!writer.Create(true)) return ResourceExhausted("PNG: out of memory");
  if (!WriteIndexedPng(&writer, indices.width, indices.height, colors)) {
    return InternalError("PNG encoder: %s", writer.message);
  }
  return std::move(writer.written);
}

Result<std::vector<uint8_t>> EncodePgm(const Image& gray) {
  ATOLL_RETURN_IF_ERROR(CheckGray("PGM", gray));
  const std::string header = Format("P5\n%d %d\n255\n", gray.width, gray.height);
  std::vector<uint8_t> bytes(header.begin(), header.end());
  bytes.insert(bytes.end(), gray.pixels.begin(), gray.pixels.end());
  return bytes;
}

}  // namespace atollrt
