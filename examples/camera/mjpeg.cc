// SPDX-License-Identifier: Apache-2.0
#include "examples/camera/mjpeg.h"

#include <algorithm>

namespace atollrt {
namespace {

constexpr uint8_t kSoi = 0xd8;
constexpr uint8_t kEoi = 0xd9;
constexpr uint8_t kSos = 0xda;

// RSTn and TEM stand alone; 0 is a stuffed 0xff of a scan.
bool HasNoLength(uint8_t marker) {
  return marker == 0x00 || marker == 0x01 || (marker >= 0xd0 && marker <= 0xd7);
}

// SOF0..SOF15 without DHT, JPG and DAC, which share their range.
bool IsFrameHeader(uint8_t marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

struct Marker {
  uint8_t code;
  size_t position;  // of its 0xff
  size_t next;      // behind it and its segment; beyond the bytes if those end early
};

// The first marker at or after `position`; nullopt if it is not complete. Whatever is not a marker
// is passed over: the data of a scan, and rubbish.
std::optional<Marker> NextMarker(std::span<const uint8_t> bytes, size_t position) {
  while (true) {
    const auto found =
        std::find(bytes.begin() + static_cast<ptrdiff_t>(position), bytes.end(), 0xff);
    position = static_cast<size_t>(found - bytes.begin());
    if (position + 2 > bytes.size()) return std::nullopt;
    const uint8_t code = bytes[position + 1];
    if (code == 0xff) {  // fill byte
      ++position;
    } else if (HasNoLength(code)) {
      position += 2;
    } else if (code == kSoi || code == kEoi) {
      return Marker{code, position, position + 2};
    } else {
      if (position + 4 > bytes.size()) return std::nullopt;
      const size_t length = static_cast<size_t>(bytes[position + 2] << 8 | bytes[position + 3]);
      return Marker{code, position, position + 2 + std::max<size_t>(length, 2)};
    }
  }
}

}  // namespace

JpegExtent FindJpeg(std::span<const uint8_t> bytes, StreamEnd stream_end) {
  constexpr uint8_t kStart[] = {0xff, kSoi, 0xff};
  const auto found = std::search(bytes.begin(), bytes.end(), std::begin(kStart), std::end(kStart));
  if (found == bytes.end()) {
    // The last two bytes may be the beginning of a start.
    return {JpegExtent::Kind::kNeedMore, bytes.size() - std::min<size_t>(bytes.size(), 2), 0};
  }
  auto begin = static_cast<size_t>(found - bytes.begin());
  size_t position = begin + 2;
  while (position <= bytes.size()) {
    const std::optional<Marker> marker = NextMarker(bytes, position);
    if (!marker) break;
    if (marker->code == kEoi) return {JpegExtent::Kind::kFound, begin, marker->next};
    if (marker->code == kSoi) {
      if (marker->position != begin + 2) {
        return {JpegExtent::Kind::kFound, begin, marker->position};
      }
      begin = marker->position;  // a start and nothing else is not worth delivering
    }
    position = marker->next;
  }
  if (stream_end == StreamEnd::kNothingFollows) {
    return {JpegExtent::Kind::kFound, begin, bytes.size()};
  }
  return {JpegExtent::Kind::kNeedMore, begin, 0};
}

std::optional<JpegSize> ReadJpegSize(std::span<const uint8_t> bytes) {
  if (bytes.size() < 2 || bytes[0] != 0xff || bytes[1] != kSoi) return std::nullopt;
  size_t position = 2;
  while (position <= bytes.size()) {
    const std::optional<Marker> marker = NextMarker(bytes, position);
    if (!marker || marker->code == kSos || marker->code == kEoi) return std::nullopt;
    if (IsFrameHeader(marker->code)) {
      // Length (2), precision (1), height (2), width (2).
      if (marker->position + 9 > bytes.size()) return std::nullopt;
      const uint8_t* p = bytes.data() + marker->position;
      return JpegSize{.width = p[7] << 8 | p[8], .height = p[5] << 8 | p[6]};
    }
    position = marker->next;
  }
  return std::nullopt;
}

}  // namespace atollrt
