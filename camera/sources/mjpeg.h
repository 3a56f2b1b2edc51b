// SPDX-License-Identifier: Apache-2.0
//
// Finding JPEGs in a stream of bytes by their markers, without decoding. The bytes are hostile:
// whatever they are, each is looked at once, and no more is kept than has arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "atoll/picture/image.h"
#include "atoll/status.h"

namespace atollrt {

// Takes a stream apart into JPEGs, each from its SOI to its EOI. Segments are skipped by their
// length, so the thumbnail inside of an APP segment neither starts nor ends a picture; in the
// scans, stuffed zeros and restart markers are passed over. Bytes between pictures are skipped. A
// picture that is cut off, by the SOI of another or by the end of the stream, is found up to there.
class JpegSplitter {
 public:
  static constexpr size_t kMaxPictureBytes = size_t{1} << 26;
  static constexpr size_t kMaxGapBytes = size_t{1} << 24;  // between pictures

  void Append(std::span<const uint8_t> bytes);
  // Nothing follows.
  void Finish() { finished_ = true; }
  // For another stream; memory is kept.
  void Restart();

  // Replaces `picture`, reusing its memory, with the next one: true, or false if its end is not
  // among the bytes so far. kInvalidArgument for a picture, or a gap, above the limits; then there
  // is nothing more to be had.
  Result<bool> Next(std::vector<uint8_t>* picture);

  // How many bytes were looked at and moved so far, each time counted: in proportion to the length
  // of the stream, whatever is in it and in whatever pieces it comes.
  uint64_t work_bytes() const { return work_bytes_; }

 private:
  bool FindStart();
  std::optional<size_t> FindEnd();

  std::vector<uint8_t> window_;
  size_t begin_ = 0;     // of what is still needed: of the picture, if there is one
  size_t position_ = 0;  // where looking goes on; beyond the window inside of a segment
  size_t gap_bytes_ = 0;
  bool in_picture_ = false;
  bool finished_ = false;
  uint64_t work_bytes_ = 0;
};

// From the frame header of the JPEG that `bytes` begins with.
std::optional<ImageSize> ReadJpegSize(std::span<const uint8_t> bytes);

}  // namespace atollrt
