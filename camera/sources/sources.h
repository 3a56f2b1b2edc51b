// SPDX-License-Identifier: Apache-2.0
//
// The frame sources behind OpenFrameSource, one function each; what they deliver is described
// there. And what they share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/camera/frame_source.h"
#include "atoll/status.h"

namespace atollrt {

using OpenedSource = Result<std::unique_ptr<FrameSource>>;
OpenedSource OpenTestPattern(const FrameSourceOptions& options);
OpenedSource OpenFashion(const std::string& directory, const FrameSourceOptions& options);
OpenedSource OpenScenes(const std::string& directory, const FrameSourceOptions& options);
OpenedSource OpenPictureDirectory(const std::string& directory, const FrameSourceOptions& options);
OpenedSource OpenStream(const std::string& path, const FrameSourceOptions& options);
OpenedSource OpenHttp(const std::string& url, const FrameSourceOptions& options);
OpenedSource OpenV4l2(const std::string& path, const FrameSourceOptions& options);

// Without a frame for so long, a live source has failed.
inline constexpr int kFrameTimeoutMs = 2000;

// What is larger is refused before there is memory for it.
inline constexpr int kMaxFrameSide = 16384;
inline constexpr int64_t kMaxFramePixels = DecodeOptions().max_pixels;

// The bytes of a frame of one of the planar formats.
size_t PlanesSize(FrameFormat format, int width, int height);

// Sets format and size, from frame->bytes if these are encoded, and clears what only some sources
// set.
void DescribeEncodedFrame(Frame* frame);
void DescribeRawFrame(FrameFormat format, int width, int height, bool full_range, Frame* frame);

// The test set of Fashion-MNIST.
inline constexpr int kFashionMnistSide = 28;  // of a picture, in pixels
inline constexpr size_t kFashionMnistPixels = size_t{kFashionMnistSide} * kFashionMnistSide;

struct FashionMnist {
  std::vector<uint8_t> pixels;  // kFashionMnistPixels gray levels per picture, clothes on black
  std::vector<uint8_t> labels;  // one per picture, at least one

  size_t count() const { return labels.size(); }
  const uint8_t* picture(size_t index) const { return pixels.data() + index * kFashionMnistPixels; }
};

// Reads t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, or either with .gz, in `directory`.
// Errors name the file: it cannot be opened or read, is no IDX file of these dimensions, is cut
// off, or there is not exactly one label per picture.
Result<FashionMnist> ReadFashionMnistTestSet(const std::string& directory);

}  // namespace atollrt
