// SPDX-License-Identifier: Apache-2.0
#include "camera/sources/mjpeg.h"

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

// The first marker at or after *position; nullopt if it is not complete, and then *position is
// where to go on when there are more bytes. Whatever is not a marker is passed over: the data of a
// scan, and rubbish.
std::optional<Marker> NextMarker(std::span<const uint8_t> bytes, size_t* position) {
  while (*position < bytes.size()) {
    const auto found =
        std::find(bytes.begin() + static_cast<ptrdiff_t>(*position), bytes.end(), 0xff);
    *position = static_cast<size_t>(found - bytes.begin());
    if (*position + 2 > bytes.size()) return std::nullopt;
    const uint8_t code = bytes[*position + 1];
    if (code == 0xff) {  // fill byte
      ++*position;
    } else if (HasNoLength(code)) {
      *position += 2;
    } else if (code == kSoi || code == kEoi) {
      return Marker{code, *position, *position + 2};
    } else {
      if (*position + 4 > bytes.size()) return std::nullopt;
      const size_t length = static_cast<size_t>(bytes[*position + 2] << 8 | bytes[*position + 3]);
      return Marker{code, *position, *position + 2 + std::max<size_t>(length, 2)};
    }
  }
  return std::nullopt;
}

}  // namespace

void JpegSplitter::Append(std::span<const uint8_t> bytes) {
  // What is not needed any more goes when it is more than what stays, so that moving the rest costs
  // no more than having read it.
  if (begin_ >= window_.size() - begin_) {
    work_bytes_ += window_.size() - begin_;
    window_.erase(window_.begin(), window_.begin() + static_cast<ptrdiff_t>(begin_));
    position_ -= begin_;
    begin_ = 0;
  }
  work_bytes_ += bytes.size();
  window_.insert(window_.end(), bytes.begin(), bytes.end());
}

void JpegSplitter::Restart() {
  window_.clear();
  begin_ = position_ = gap_bytes_ = 0;
  in_picture_ = finished_ = false;
}

Result<bool> JpegSplitter::Next(std::vector<uint8_t>* picture) {
  std::optional<size_t> end;
  if (in_picture_ || FindStart()) {
    end = FindEnd();
    if (!end && finished_) end = window_.size();
  }
  if (end) {
    picture->assign(window_.begin() + static_cast<ptrdiff_t>(begin_),
                    window_.begin() + static_cast<ptrdiff_t>(*end));
    begin_ = position_ = *end;
    gap_bytes_ = 0;
    in_picture_ = false;
    return true;
  }
  if (gap_bytes_ > kMaxGapBytes) {
    return InvalidArgument("no JPEG picture within %zu bytes", gap_bytes_);
  }
  const size_t size = window_.size() - begin_;
  if (size > kMaxPictureBytes) {
    return InvalidArgument("a picture has no end within %zu bytes", size);
  }
  return false;
}

// Moves begin_ to the next start; false if there is none yet.
bool JpegSplitter::FindStart() {
  constexpr uint8_t kStart[] = {0xff, kSoi, 0xff};
  const auto found = std::search(window_.begin() + static_cast<ptrdiff_t>(position_), window_.end(),
                                 std::begin(kStart), std::end(kStart));
  in_picture_ = found != window_.end();
  // The last two bytes may be the beginning of a start.
  const size_t left = window_.size() - position_;
  const size_t start = in_picture_ ? static_cast<size_t>(found - window_.begin())
                                   : window_.size() - std::min<size_t>(left, 2);
  gap_bytes_ += start - begin_;
  begin_ = start;
  work_bytes_ += std::min(start + 3, window_.size()) - position_;
  position_ = in_picture_ ? start + 2 : start;
  return in_picture_;
}

// Where the picture at begin_ ends; nullopt if that is not known yet.
std::optional<size_t> JpegSplitter::FindEnd() {
  const auto next_marker = [&] {
    const size_t from = position_;
    const std::optional<Marker> marker = NextMarker(window_, &position_);
    work_bytes_ += std::min(position_ + 4, window_.size()) - std::min(from, window_.size());
    return marker;
  };
  while (const std::optional<Marker> marker = next_marker()) {
    position_ = marker->next;
    if (marker->code == kEoi) return marker->next;
    if (marker->code != kSoi) continue;
    if (marker->position != begin_ + 2) return marker->position;
    gap_bytes_ += marker->position - begin_;  // a start and nothing else is not worth delivering
    begin_ = marker->position;
  }
  return std::nullopt;
}

std::optional<ImageSize> ReadJpegSize(std::span<const uint8_t> bytes) {
  if (bytes.size() < 2 || bytes[0] != 0xff || bytes[1] != kSoi) return std::nullopt;
  size_t position = 2;
  while (const std::optional<Marker> marker = NextMarker(bytes, &position)) {
    if (marker->code == kSos || marker->code == kEoi) return std::nullopt;
    if (IsFrameHeader(marker->code)) {
      // Length (2), precision (1), height (2), width (2).
      if (marker->position + 9 > bytes.size()) return std::nullopt;
      const uint8_t* p = bytes.data() + marker->position;
      return ImageSize{.width = p[7] << 8 | p[8], .height = p[5] << 8 | p[6]};
    }
    position = marker->next;
  }
  return std::nullopt;
}

}  // namespace atollrt
