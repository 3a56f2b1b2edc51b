// SPDX-License-Identifier: Apache-2.0
//
// The frame sources behind OpenFrameSource, one function each; what they deliver is described
// there.
#pragma once

#include <memory>
#include <string>

#include "atoll/camera/frame_source.h"
#include "atoll/status.h"

namespace atollrt {

Result<std::unique_ptr<FrameSource>> OpenTestPattern(const FrameSourceOptions& options);
Result<std::unique_ptr<FrameSource>> OpenFashion(const std::string& directory,
                                                 const FrameSourceOptions& options);
Result<std::unique_ptr<FrameSource>> OpenPictureDirectory(const std::string& directory,
                                                          const FrameSourceOptions& options);
Result<std::unique_ptr<FrameSource>> OpenStream(const std::string& path,
                                                const FrameSourceOptions& options);
Result<std::unique_ptr<FrameSource>> OpenHttp(const std::string& url,
                                              const FrameSourceOptions& options);
Result<std::unique_ptr<FrameSource>> OpenScenes(const std::string& directory,
                                                const FrameSourceOptions& options);
Result<std::unique_ptr<FrameSource>> OpenV4l2(const std::string& path,
                                              const FrameSourceOptions& options);

// std::chrono::steady_clock.
int64_t SteadyNowNs();

// Without a frame for so long, a live source has failed.
inline constexpr int kFrameTimeoutMs = 2000;

// The bytes of a frame of one of the planar formats.
size_t PlanesSize(FrameFormat format, int width, int height);

// Sets format, width and height from frame->bytes, and clears what only some sources set.
void DescribeEncodedFrame(Frame* frame);

// Larger frames are refused before there is memory for them.
inline constexpr int64_t kMaxFramePixels = DecodeOptions().max_pixels;

}  // namespace atollrt
