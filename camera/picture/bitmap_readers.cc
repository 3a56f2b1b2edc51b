// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "camera/picture/formats.h"
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
  const auto number = [info](size_t at) { return LoadLittleEndian<uint32_t>(info + at); };
  const uint32_t info_bytes = number(0);
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
  const uint32_t compression = number(16);
  ATOLL_RETURN_IF_ERROR(CheckImageSize("BMP", header.width, header.height, max_pixels));

  if (header.bits_per_pixel != 8 && header.bits_per_pixel != 24 && header.bits_per_pixel != 32) {
    return Unsupported("BMP: %d bits per pixel; 8, 24 and 32 are read", header.bits_per_pixel);
  }
  size_t palette_offset = kBmpFileHeaderBytes + info_bytes;
  if (compression == kBmpBitFields && header.bits_per_pixel == 32) {
    if (bytes.size() < kBmpFileHeaderBytes + kInfoHeaderBytes + kBmpMaskBytes) {
      return InvalidArgument("BMP: ends before its colour masks");
    }
    if (number(40) != 0xff0000 || number(44) != 0xff00 || number(48) != 0xff) {
      return Unsupported("BMP: colour masks %08x %08x %08x; only B, G, R order is read", number(40),
                         number(44), number(48));
    }
    if (info_bytes == kInfoHeaderBytes) palette_offset += kBmpMaskBytes;
  } else if (compression != kBmpUncompressed) {
    return Unsupported("BMP: compression %u with %d bits per pixel; only uncompressed is read",
                       compression, header.bits_per_pixel);
  }
  header.palette_offset = palette_offset;
  if (header.bits_per_pixel == 8) {
    const uint32_t colors_used = number(32);
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

}  // namespace

ImageSize ReadBmpSize(std::span<const uint8_t> bytes) {
  if (bytes.size() < kBmpFileHeaderBytes + 12) return {};
  const uint8_t* info = bytes.data() + kBmpFileHeaderBytes;
  const auto height = LoadLittleEndian<int32_t>(info + 8);
  return {LoadLittleEndian<int32_t>(info + 4), height == INT32_MIN ? 0 : std::abs(height)};
}

Status DecodeBmp(std::span<const uint8_t> bytes, int64_t max_pixels, Image* image) {
  ATOLL_ASSIGN_OR_RETURN(const BmpHeader header, ReadBmpHeader(bytes, max_pixels));
  const bool indexed = header.bits_per_pixel == 8;
  const uint8_t* palette = bytes.data() + header.palette_offset;  // B, G, R, unused
  bool is_gray = indexed;
  for (size_t i = 0; i < header.palette_entries; ++i) {
    const uint8_t* bgr = palette + 4 * i;
    is_gray = is_gray && bgr[0] == bgr[1] && bgr[1] == bgr[2];
  }
  image->Reshape(static_cast<int>(header.width), static_cast<int>(header.height), is_gray ? 1 : 3);
  for (int y = 0; y < image->height; ++y) {
    const int file_row = header.top_down ? y : image->height - 1 - y;
    const uint8_t* src =
        bytes.data() + header.pixel_offset + header.row_bytes * static_cast<size_t>(file_row);
    uint8_t* dst = image->pixels.data() + image->row_bytes() * static_cast<size_t>(y);
    for (int x = 0; x < image->width; ++x, src += header.bits_per_pixel / 8) {
      if (indexed && *src >= header.palette_entries) {
        return InvalidArgument("BMP: pixel (%d, %d) has colour %d of a palette of %zu", x, y, *src,
                               header.palette_entries);
      }
      const uint8_t* bgr = indexed ? palette + 4 * *src : src;
      for (int c = image->channels; c-- > 0;) *dst++ = bgr[c];
    }
  }
  return Status();
}

namespace {

bool IsPnmSpace(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The header behind its "P6": decimal numbers, separated by white space and comments.
class PnmHeader {
 public:
  explicit PnmHeader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  // Numbers above `max` are refused, so none overflows.
  Result<int64_t> ReadNumber(const char* name, int64_t max) {
    for (bool comment = false; position_ < bytes_.size(); ++position_) {
      if (bytes_[position_] == '#') comment = true;
      if (!comment && !IsPnmSpace(bytes_[position_])) break;
      if (bytes_[position_] == '\n') comment = false;
    }
    const auto* const begin = reinterpret_cast<const char*>(bytes_.data());
    int64_t value = 0;
    const auto [end, error] = std::from_chars(begin + position_, begin + bytes_.size(), value);
    if (end == begin + position_ || value < 0) {
      return InvalidArgument("PPM: no number for the %s at byte %zu", name, position_);
    }
    if (error != std::errc() || value > max) {
      return InvalidArgument("PPM: %s is above %lld", name, static_cast<long long>(max));
    }
    position_ = static_cast<size_t>(end - begin);
    return value;
  }

  // What follows the one white space behind the last number.
  Result<std::span<const uint8_t>> Pixels() const {
    if (position_ >= bytes_.size() || !IsPnmSpace(bytes_[position_])) {
      return InvalidArgument("PPM: no white space after the maxval at byte %zu", position_);
    }
    return bytes_.subspan(position_ + 1);
  }

 private:
  std::span<const uint8_t> bytes_;
  size_t position_ = 2;
};

}  // namespace

ImageSize ReadPnmSize(std::span<const uint8_t> bytes) {
  if (bytes.size() < 2) return {};
  PnmHeader header(bytes);
  const Result<int64_t> width = header.ReadNumber("width", INT32_MAX);
  if (!width.ok()) return {};
  const Result<int64_t> height = header.ReadNumber("height", INT32_MAX);
  if (!height.ok()) return {};
  return {static_cast<int>(*width), static_cast<int>(*height)};
}

Status DecodePnm(std::span<const uint8_t> bytes, int64_t max_pixels, Image* image) {
  if (bytes.size() < 2) return InvalidArgument("PPM: %zu bytes", bytes.size());
  PnmHeader header(bytes);
  constexpr int64_t kMaxNumber = INT32_MAX;
  ATOLL_ASSIGN_OR_RETURN(const int64_t width, header.ReadNumber("width", kMaxNumber));
  ATOLL_ASSIGN_OR_RETURN(const int64_t height, header.ReadNumber("height", kMaxNumber));
  ATOLL_ASSIGN_OR_RETURN(const int64_t maxval, header.ReadNumber("maxval", 65535));
  ATOLL_ASSIGN_OR_RETURN(const std::span<const uint8_t> data, header.Pixels());
  if (maxval == 0) return InvalidArgument("PPM: maxval is 0");
  ATOLL_RETURN_IF_ERROR(CheckImageSize("PPM", width, height, max_pixels));

  const int channels = bytes[1] == '5' ? 1 : 3;
  const size_t samples = static_cast<size_t>(width * height * channels);
  const size_t sample_bytes = maxval < 256 ? 1 : 2;
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
