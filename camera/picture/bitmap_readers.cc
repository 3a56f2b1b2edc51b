// SPDX-License-Identifier: Apache-2.0
#include "camera/picture/bitmap_readers.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/base/bytes.h"

namespace atollrt {

Status CheckImageSize(const char* format, int64_t width, int64_t height, int64_t max_pixels) {
  constexpr int64_t kMaxSide = 1 << 24;  // keeps every product below within 64 bits
  if (width < 1 || height < 1 || width > kMaxSide || height > kMaxSide) {
    return InvalidArgument("%s: size %lld x %lld is out of range", format,
                           static_cast<long long>(width), static_cast<long long>(height));
  }
  if (width * height > max_pixels) {
    return ResourceExhausted("%s: %lld x %lld is %lld pixels, above the limit of %lld", format,
                             static_cast<long long>(width), static_cast<long long>(height),
                             static_cast<long long>(width * height),
                             static_cast<long long>(max_pixels));
  }
  return Status();
}

namespace {

constexpr size_t kBmpFileHeaderBytes = 14;
constexpr size_t kBmpMaskBytes = 12;  // follow a 40-byte header with compression 3
constexpr uint32_t kBmpUncompressed = 0;
constexpr uint32_t kBmpBitFields = 3;

struct BmpHeader {
  int64_t width;
  int64_t height;
  bool top_down;
  int bits_per_pixel;
  size_t palette_offset;
  size_t palette_entries;
  size_t pixel_offset;
  size_t row_bytes;  // with the padding to four bytes
};

Result<BmpHeader> ReadBmpHeader(std::span<const uint8_t> bytes, int64_t max_pixels) {
  constexpr size_t kInfoHeaderBytes = 40;
  if (bytes.size() < kBmpFileHeaderBytes + kInfoHeaderBytes) {
    return InvalidArgument("BMP: %zu bytes are too few for its headers", bytes.size());
  }
  const uint8_t* info = bytes.data() + kBmpFileHeaderBytes;
  const uint32_t info_bytes = LoadLittleEndian<uint32_t>(info);
  if (info_bytes < kInfoHeaderBytes) {
    return Unsupported("BMP: info header of %u bytes; at least 40 are needed", info_bytes);
  }
  if (info_bytes > bytes.size() - kBmpFileHeaderBytes) {
    return InvalidArgument("BMP: info header of %u bytes in a file of %zu", info_bytes,
                           bytes.size());
  }
  BmpHeader header = {};
  header.width = LoadLittleEndian<int32_t>(info + 4);
  const int64_t signed_height = LoadLittleEndian<int32_t>(info + 8);
  header.top_down = signed_height < 0;
  header.height = header.top_down ? -signed_height : signed_height;
  header.bits_per_pixel = LoadLittleEndian<uint16_t>(info + 14);
  const uint32_t compression = LoadLittleEndian<uint32_t>(info + 16);
  ATOLL_RETURN_IF_ERROR(CheckImageSize("BMP", header.width, header.height, max_pixels));

  if (header.bits_per_pixel != 8 && header.bits_per_pixel != 24 && header.bits_per_pixel != 32) {
    return Unsupported("BMP: %d bits per pixel; 8, 24 and 32 are read", header.bits_per_pixel);
  }
  size_t palette_offset = kBmpFileHeaderBytes + info_bytes;
  if (compression == kBmpBitFields && header.bits_per_pixel == 32) {
    if (bytes.size() < kBmpFileHeaderBytes + kInfoHeaderBytes + kBmpMaskBytes) {
      return InvalidArgument("BMP: ends before its colour masks");
    }
    const uint32_t red = LoadLittleEndian<uint32_t>(info + 40);
    const uint32_t green = LoadLittleEndian<uint32_t>(info + 44);
    const uint32_t blue = LoadLittleEndian<uint32_t>(info + 48);
    if (red != 0xff0000 || green != 0xff00 || blue != 0xff) {
      return Unsupported("BMP: colour masks %08x %08x %08x; only B, G, R order is read", red, green,
                         blue);
    }
    if (info_bytes == kInfoHeaderBytes) palette_offset += kBmpMaskBytes;
  } else if (compression != kBmpUncompressed) {
    return Unsupported("BMP: compression %u with %d bits per pixel; only uncompressed is read",
                       compression, header.bits_per_pixel);
  }
  header.palette_offset = palette_offset;
  if (header.bits_per_pixel == 8) {
    const uint32_t colors_used = LoadLittleEndian<uint32_t>(info + 32);
    if (colors_used > 256) return InvalidArgument("BMP: palette of %u colours", colors_used);
    header.palette_entries = colors_used == 0 ? 256 : colors_used;
  }
  header.pixel_offset = LoadLittleEndian<uint32_t>(bytes.data() + 10);
  if (header.pixel_offset < palette_offset + header.palette_entries * 4) {
    return InvalidArgument("BMP: pixels at byte %zu overlap the headers, which take %zu",
                           header.pixel_offset, palette_offset + header.palette_entries * 4);
  }
  header.row_bytes = AlignUp(static_cast<uint64_t>(header.width * header.bits_per_pixel / 8), 4);
  const uint64_t end =
      header.pixel_offset + header.row_bytes * static_cast<uint64_t>(header.height);
  if (end > bytes.size()) {
    return InvalidArgument("BMP: %lld x %lld pixels end at byte %llu of a file of %zu",
                           static_cast<long long>(header.width),
                           static_cast<long long>(header.height),
                           static_cast<unsigned long long>(end), bytes.size());
  }
  return header;
}

struct Palette {
  uint8_t rgb[256][3];
  size_t entries;
  bool is_gray;
};

Palette ReadBmpPalette(std::span<const uint8_t> bytes, const BmpHeader& header) {
  Palette palette = {};
  palette.entries = header.palette_entries;
  palette.is_gray = true;
  for (size_t i = 0; i < palette.entries; ++i) {
    const uint8_t* bgr = bytes.data() + header.palette_offset + i * 4;
    for (int c = 0; c < 3; ++c) palette.rgb[i][c] = bgr[2 - c];
    palette.is_gray = palette.is_gray && bgr[0] == bgr[1] && bgr[1] == bgr[2];
  }
  return palette;
}

Status ReadPaletteRow(const Palette& palette, const uint8_t* src, int width, int y, int channels,
                      uint8_t* dst) {
  for (int x = 0; x < width; ++x) {
    if (src[x] >= palette.entries) {
      return InvalidArgument("BMP: pixel (%d, %d) has colour %d of a palette of %zu", x, y, src[x],
                             palette.entries);
    }
    std::memcpy(dst + static_cast<ptrdiff_t>(x) * channels, palette.rgb[src[x]],
                static_cast<size_t>(channels));
  }
  return Status();
}

void ReadBgrRow(const uint8_t* src, int width, int pixel_bytes, uint8_t* dst) {
  for (int x = 0; x < width; ++x, src += pixel_bytes, dst += 3) {
    dst[0] = src[2];
    dst[1] = src[1];
    dst[2] = src[0];
  }
}

}  // namespace

ImageSize ReadBmpSize(std::span<const uint8_t> bytes) {
  if (bytes.size() < kBmpFileHeaderBytes + 12) return {};
  const uint8_t* info = bytes.data() + kBmpFileHeaderBytes;
  const auto height = LoadLittleEndian<int32_t>(info + 8);
  return {LoadLittleEndian<int32_t>(info + 4), height == INT32_MIN ? 0 : std::abs(height)};
}

Status DecodeBmp(std::span<const uint8_t> bytes, int64_t max_pixels, Image* image) {
  ATOLL_ASSIGN_OR_RETURN(const BmpHeader header, ReadBmpHeader(bytes, max_pixels));
  const Palette palette = ReadBmpPalette(bytes, header);
  const bool indexed = header.bits_per_pixel == 8;
  image->Reshape(static_cast<int>(header.width), static_cast<int>(header.height),
                 indexed && palette.is_gray ? 1 : 3);
  for (int y = 0; y < image->height; ++y) {
    const int file_row = header.top_down ? y : image->height - 1 - y;
    const uint8_t* src =
        bytes.data() + header.pixel_offset + header.row_bytes * static_cast<size_t>(file_row);
    uint8_t* dst = image->pixels.data() + image->row_bytes() * static_cast<size_t>(y);
    if (indexed) {
      ATOLL_RETURN_IF_ERROR(ReadPaletteRow(palette, src, image->width, y, image->channels, dst));
    } else {
      ReadBgrRow(src, image->width, header.bits_per_pixel / 8, dst);
    }
  }
  return Status();
}

namespace {

bool IsPnmSpace(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Reads the header's numbers: decimal, separated by white space and comments.
class PnmHeaderReader {
 public:
  explicit PnmHeaderReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  // Numbers above `max` are refused, so none overflows.
  Result<int64_t> ReadNumber(const char* name, int64_t max) {
    SkipSpaceAndComments();
    int64_t value = 0;
    bool any = false;
    for (; position_ < bytes_.size() && bytes_[position_] >= '0' && bytes_[position_] <= '9';
         ++position_) {
      any = true;
      value = value * 10 + (bytes_[position_] - '0');
      if (value > max) {
        return InvalidArgument("PPM: %s is above %lld", name, static_cast<long long>(max));
      }
    }
    if (!any) return InvalidArgument("PPM: no number for the %s at byte %zu", name, position_);
    return value;
  }

  // Exactly one white space separates the last number from the pixels.
  Status SkipOneSpace() {
    if (position_ >= bytes_.size() || !IsPnmSpace(bytes_[position_])) {
      return InvalidArgument("PPM: no white space after the maxval at byte %zu", position_);
    }
    ++position_;
    return Status();
  }

  size_t position() const { return position_; }

 private:
  void SkipSpaceAndComments() {
    while (position_ < bytes_.size()) {
      if (bytes_[position_] == '#') {
        while (position_ < bytes_.size() && bytes_[position_] != '\n') ++position_;
      } else if (IsPnmSpace(bytes_[position_])) {
        ++position_;
      } else {
        return;
      }
    }
  }

  std::span<const uint8_t> bytes_;
  size_t position_ = 2;  // after the "P6"
};

}  // namespace

ImageSize ReadPnmSize(std::span<const uint8_t> bytes) {
  if (bytes.size() < 2) return {};
  PnmHeaderReader header(bytes);
  const Result<int64_t> width = header.ReadNumber("width", INT32_MAX);
  if (!width.ok()) return {};
  const Result<int64_t> height = header.ReadNumber("height", INT32_MAX);
  if (!height.ok()) return {};
  return {static_cast<int>(*width), static_cast<int>(*height)};
}

Status DecodePnm(std::span<const uint8_t> bytes, int64_t max_pixels, Image* image) {
  if (bytes.size() < 2) return InvalidArgument("PPM: %zu bytes", bytes.size());
  PnmHeaderReader header(bytes);
  constexpr int64_t kMaxNumber = INT32_MAX;
  ATOLL_ASSIGN_OR_RETURN(const int64_t width, header.ReadNumber("width", kMaxNumber));
  ATOLL_ASSIGN_OR_RETURN(const int64_t height, header.ReadNumber("height", kMaxNumber));
  ATOLL_ASSIGN_OR_RETURN(const int64_t maxval, header.ReadNumber("maxval", 65535));
  ATOLL_RETURN_IF_ERROR(header.SkipOneSpace());
  if (maxval == 0) return InvalidArgument("PPM: maxval is 0");
  ATOLL_RETURN_IF_ERROR(CheckImageSize("PPM", width, height, max_pixels));

  const int channels = bytes[1] == '5' ? 1 : 3;
  const size_t samples = static_cast<size_t>(width * height * channels);
  const size_t sample_bytes = maxval < 256 ? 1 : 2;
  const std::span<const uint8_t> data = bytes.subspan(header.position());
  if (data.size() < samples * sample_bytes) {
    return InvalidArgument("PPM: %lld x %lld pixels take %zu bytes, but %zu are present",
                           static_cast<long long>(width), static_cast<long long>(height),
                           samples * sample_bytes, data.size());
  }
  image->Reshape(static_cast<int>(width), static_cast<int>(height), channels);
  if (maxval == 255) {
    std::memcpy(image->pixels.data(), data.data(), samples);
    return Status();
  }
  const uint32_t max = static_cast<uint32_t>(maxval);
  for (size_t i = 0; i < samples; ++i) {
    const uint32_t sample =
        sample_bytes == 1 ? data[i] : static_cast<uint32_t>(data[2 * i] << 8 | data[2 * i + 1]);
    image->pixels[i] = static_cast<uint8_t>((std::min(sample, max) * 255 + max / 2) / max);
  }
  return Status();
}

}  // namespace atollrt
