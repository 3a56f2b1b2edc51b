// SPDX-License-Identifier: Apache-2.0
//
// Finding JPEGs in a stream of bytes by their markers, without decoding. Pure functions on hostile
// bytes: they read nothing outside of the span and always make progress.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace atollrt {

struct JpegExtent {
  enum class Kind {
    kFound,     // a JPEG occupies begin .. end
    kNeedMore,  // its end is not among these bytes; bytes before `begin` are not needed again
  };
  Kind kind;
  size_t begin;
  size_t end;
};

enum class StreamEnd { kMoreFollows, kNothingFollows };

// The first JPEG in `bytes`, from its SOI to its EOI. Segments are skipped by their length, so
// the thumbnail inside of an APP segment neither starts nor ends a picture; in the scans, stuffed
// zeros and restart markers are passed over. Bytes between pictures are skipped. A picture that is
// cut off, by the SOI of another or by the end of the stream, is found up to there.
// With kNothingFollows, kNeedMore means that there is no further JPEG.
JpegExtent FindJpeg(std::span<const uint8_t> bytes, StreamEnd stream_end);

struct JpegSize {
  int width;
  int height;
};

// From the frame header of the JPEG that `bytes` begins with.
std::optional<JpegSize> ReadJpegSize(std::span<const uint8_t> bytes);

}  // namespace atollrt
