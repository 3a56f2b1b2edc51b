// SPDX-License-Identifier: Apache-2.0
//
// Where frames come from: a V4L2 camera, files that stand in for one, or a generated pattern. All
// deliver what a camera delivers, compressed JPEG or raw YUYV, so that the rest of a program cannot
// tell them apart.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/picture/image.h"
#include "atoll/status.h"

namespace atollrt {

enum class FrameFormat {
  kEncoded,  // a JPEG, or a whole file of another format that DecodeImage takes
  // Uncompressed, rows without padding, BT.601, Y in 16..235 unless full_range:
  kYuyv,    // 4:2:2, bytes Y U Y V per two pixels
  kYuv420,  // planes Y, U, V one after the other; U and V halved in both directions,
  kYuv422,  // in width,
  kYuv444,  // not at all
  kYuv400,  // Y alone
};

// One frame as captured. Give the same Frame back for the next capture: its memory is reused.
struct Frame {
  FrameFormat format = FrameFormat::kEncoded;
  int width = 0;  // in pixels, as the header says; both 0 while only decoding can tell
  int height = 0;
  bool full_range = false;  // of uncompressed formats: Y, U and V in 0..255
  std::vector<uint8_t> bytes;
  int64_t capture_time_ns = 0;  // std::chrono::steady_clock; 0 when the source is not live
  uint64_t sequence = 0;        // counts the frames of the source; a gap is a frame lost in it
  std::string name;             // what an error message should call it
  std::optional<int> label;     // the true class, where the source knows it
  Rect crop;                    // the part worth looking at; empty means all
  Status error;                 // why there are no bytes; DecodeFrame gives it back
};

// Not thread-safe; may move between threads.
class FrameSource {
 public:
  virtual ~FrameSource() = default;

  // Fills `frame`: true, or false at the end of the source. An error ends the source too; what is
  // wrong only with the contents of one frame is left to DecodeFrame. A camera blocks until its
  // next frame, at most two seconds (kTimeout; kDeviceLost when it is gone); pipes block until
  // something comes, files never.
  virtual Result<bool> Next(Frame* frame) = 0;

  // Whether frames arrive in their own time and carry a capture time. Others are to be paced.
  virtual bool live() const { return false; }

  // For people: "fashion:/data: 10000 frames of 640 x 480". Never changes; from any thread.
  virtual std::string description() const = 0;
};

struct FrameSourceOptions {
  int width = 640;  // asked of a camera, which may choose otherwise; the size of test and scenes
  int height = 480;
  double fps = 30;    // asked of a camera
  bool loop = false;  // files start again instead of ending
  // Polled by sources that wait for something: true ends them. May be set by a signal handler.
  const std::atomic<bool>* stop = nullptr;
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
//   http://...    MJPEG as network cameras send it; http://USER:PASSWORD@HOST/PATH logs in
//   a directory   its .jpg, .jpeg, .png, .bmp, .ppm and .pgm files in the order of their names
//   another file  JPEGs one after the other (MJPEG; a single JPEG is a video of one frame), or
//                 uncompressed video (Y4M, 8 bits); a pipe is live
//   -             the same from the standard input
// Errors name the spec or the file, but no login that is part of an address; kCancelled if *stop
// became true meanwhile.
Result<std::unique_ptr<FrameSource>> OpenFrameSource(const std::string& spec,
                                                     const FrameSourceOptions& options);

// What messages call a spec: "standard input", or itself without the login and the query that an
// address may have.
std::string SourceName(const std::string& spec);

// A camera that is connected, from what the kernel shows in /sys and /dev; it is not opened.
struct CameraDevice {
  std::string path;        // "/dev/video0"
  std::string name;        // "HD Webcam", from the device: any bytes but control characters
  bool has_node = false;   // else the kernel knows it, but there is nothing in /dev
  bool permitted = false;  // to this user
  std::string group = {};  // of the node; its number if it has no name
};

// The video nodes that a camera's pictures come from, in the order of their numbers. (A camera has
// others, for what is no picture.) `root`: the folder with a copy of another computer's /sys and
// /dev; "" for this one's.
std::vector<CameraDevice> ListCameras(const std::string& root = "");

// What helps when opening `path` failed with `error`, an errno, and these cameras are there: the
// end of a sentence.
std::string CameraHint(const std::string& path, int error,
                       const std::vector<CameraDevice>& cameras);

// Decodes any format into `picture`, reusing its memory. options.min_width and min_height mean
// something to JPEG alone. Errors as DecodeImage.
Status DecodeFrame(const Frame& frame, const DecodeOptions& options, PlanarImage* picture);

}  // namespace atollrt
