// SPDX-License-Identifier: Apache-2.0
//
// What a camera, or a file in its place, may deliver: streams of JPEGs, Y4M and pictures of every
// other format. Whatever the bytes are, every frame is decoded, scaled for a model, drawn into and
// encoded, or refused with a sentence; and what was encoded decodes again.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "atoll/camera/frame_source.h"
#include "atoll/check.h"
#include "atoll/picture.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/allocation_meter.h"

namespace atollrt::frames_fuzzer {

namespace {

constexpr int kFrames = 4;
constexpr int64_t kMaxPixels = 1 << 18;

void Use(PlanarImage* picture) {
  StoredBytes stored = {};
  std::vector<uint8_t> input(7 * 5 * 3);
  InputScaler scaler;
  for (const int channels : {1, 3}) {
    ATOLL_CHECK(scaler.SetOutput(7, 5, channels).ok());
    ATOLL_CHECK(scaler.Run(*picture, {}, stored, input.data()).ok());
    const Rect part = {picture->width / 2, picture->height / 3, 1, 1};
    ATOLL_CHECK(scaler.Run(*picture, part, stored, input.data()).ok());
  }
  DrawLabel("label", {1, 1}, 2, {255, 0, 0}, picture);
  DrawLine({-3, -3}, {picture->width, picture->height}, 3, {0, 255, 0}, picture);
  std::vector<uint8_t> jpeg;
  ATOLL_CHECK(EncodePlanesAsJpeg(picture, 50, &jpeg).ok());
  PlanarImage again;
  ATOLL_CHECK(DecodePlanes(jpeg, {}, &again).ok());
  ATOLL_CHECK(again.width == picture->width && again.height == picture->height);
}

void Decode(const Frame& frame) {
  for (const DecodeOptions& options :
       {DecodeOptions{.max_pixels = kMaxPixels},
        DecodeOptions{.channels = 1, .max_pixels = kMaxPixels},
        DecodeOptions{.min_width = 5, .min_height = 3, .max_pixels = kMaxPixels}}) {
    PlanarImage picture;
    const Status status = DecodeFrame(frame, options, &picture);
    if (status.ok()) {
      Use(&picture);
    } else {
      ATOLL_CHECK(!status.message().empty());
    }
  }
}

}  // namespace

ATOLL_FUZZ_TARGET(frames) {
  // A few pictures of the size that is allowed, in three bytes or floats a pixel.
  const MemoryLimit limit(ProportionalBytes(size, 64 * kMaxPixels));
  Frame whole;
  whole.bytes.assign(data, data + size);
  Decode(whole);

  const int fd = memfd_create("frames", MFD_CLOEXEC);
  ATOLL_CHECK(fd >= 0);
  ATOLL_CHECK(write(fd, data, size) == static_cast<ssize_t>(size));
  const auto source = OpenFrameSource("/proc/self/fd/" + std::to_string(fd), {});
  if (source.ok()) {
    Frame frame;
    for (int i = 0; i < kFrames; ++i) {
      const Result<bool> got = (*source)->Next(&frame);
      if (!got.ok() || !*got) break;
      Decode(frame);
    }
  }
  close(fd);
  return 0;
}

}  // namespace atollrt::frames_fuzzer
