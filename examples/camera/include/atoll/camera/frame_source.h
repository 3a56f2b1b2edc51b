// SPDX-License-Identifier: Apache-2.0
//
// Where frames come from: a V4L2 camera, files that stand in for one, or a generated pattern. All
// deliver what a camera delivers, compressed JPEG or raw YUYV, so that the rest of a program cannot
// tell them apart.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/picture/image.h"
#include "runtime/base/status.h"

namespace atollrt {

enum class FrameFormat {
  kJpeg,
  kYuyv,  // 4:2:2, bytes Y U Y V per two pixels, rows without padding, BT.601, Y in 16..235
};

// One frame as captured. Give the same Frame back for the next capture: its memory is reused.
struct Frame {
  FrameFormat format = FrameFormat::kJpeg;
  int width = 0;  // in pixels; both 0 when a JPEG has no readable header
  int height = 0;
  std::vector<uint8_t> bytes;
  int64_t capture_time_ns = 0;  // std::chrono::steady_clock; 0 when the source is not live
  uint64_t sequence = 0;        // counts the frames of the source; a gap is a frame lost in it
  std::string name;             // what an error message should call it
  std::optional<int> label;     // the true class, where the source knows it
  Rect crop;                    // the part worth looking at; empty means all
};

// Not thread-safe; may move between threads.
class FrameSource {
 public:
  virtual ~FrameSource() = default;

  // Fills `frame`: true, or false at the end of the source. An error ends the source too; what is
  // wrong only with the contents of one frame is left to DecodeFrame. A camera blocks until its
  // next frame, at most two seconds (kTimeout; kDeviceLost when it is gone); others never wait.
  virtual Result<bool> Next(Frame* frame) = 0;

  // Whether frames arrive in their own time and carry a capture time. Others are to be paced.
  virtual bool live() const { return false; }

  // For people: "fashion:/data: 10000 frames of 640 x 480".
  virtual std::string description() const = 0;
};

struct FrameSourceOptions {
  int width = 640;  // asked of a camera, which may choose otherwise; the size of test and scenes
  int height = 480;
  double fps = 30;    // asked of a camera
  bool loop = false;  // files start again instead of ending
};

// Opens, by the form of `spec`:
//   test          a moving pattern with the frame number in it, without end
//   fashion:DIR   the test set of Fashion-MNIST (t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte,
//                 either with .gz): each picture enlarged from 28 to 448 pixels in the middle of a
//                 black 640 x 480 frame, as JPEG of quality 90, with label and crop
//   scenes:DIR    pieces of clothing from the same files that drift and change their size in front
//                 of a background, hiding each other, as JPEG of quality 90, without end: every
//                 time the same frames
//   /dev/videoN   a V4L2 camera: MJPEG if it has that, else YUYV
//   a directory   its .jpg and .jpeg files in the order of their names
//   another file  JPEGs one after the other (MJPEG); a single JPEG is a video of one frame
// Errors name the spec or the file.
Result<std::unique_ptr<FrameSource>> OpenFrameSource(const std::string& spec,
                                                     const FrameSourceOptions& options);

// Decodes either format into `image`, reusing its memory. YUYV ignores options.min_width and
// min_height; as gray it is Y scaled to full range. Errors as DecodeImage.
Status DecodeFrame(const Frame& frame, const DecodeOptions& options, Image* image);

}  // namespace atollrt
