// SPDX-License-Identifier: Apache-2.0
//
// Frames that are made here and delivered as a camera would: a moving pattern, and Fashion-MNIST.
#include <algorithm>
#include <utility>
#include <vector>

#include "atoll/picture/overlay.h"
#include "atoll/picture/resize.h"
#include "camera/sources/fashion_mnist.h"
#include "camera/sources/sources.h"

namespace atollrt {
namespace {

constexpr int kJpegQuality = 90;

// --- test ----------------------------------------------------------------------------------------

// Colour bars, a box that walks along a diagonal, and the number of the frame. The pattern repeats
// after kPeriod frames, so that each is encoded only once.
class TestPattern : public FrameSource {
 public:
  TestPattern(int width, int height) { canvas_.Reshape(width, height, 3); }

  Result<bool> Next(Frame* frame) override {
    const size_t index = sequence_ % kPeriod;
    if (index == encoded_.size()) {
      Draw(static_cast<int>(index));
      encoded_.emplace_back();
      ATOLL_RETURN_IF_ERROR(EncodeJpegInto(canvas_, kJpegQuality, &encoded_.back()));
      encoded_.back().shrink_to_fit();
    }
    frame->bytes = encoded_[index];
    frame->name = "test pattern";
    DescribeEncodedFrame(frame);
    frame->sequence = sequence_++;
    return true;
  }

  std::string description() const override {
    return Format("test: pattern of %d x %d", canvas_.width, canvas_.height);
  }

 private:
  static constexpr size_t kPeriod = 60;

  void Draw(int index) {
    constexpr Color kBars[] = {{192, 192, 192}, {192, 192, 0}, {0, 192, 192}, {0, 192, 0},
                               {192, 0, 192},   {192, 0, 0},   {0, 0, 192},   {16, 16, 16}};
    constexpr int kCount = static_cast<int>(std::size(kBars));
    const int width = canvas_.width;
    const int height = canvas_.height;
    for (int i = 0; i < kCount; ++i) {
      const int x = width * i / kCount;
      FillRectangle({x, 0, width * (i + 1) / kCount - x, height}, kBars[i], &canvas_);
    }
    const int size = std::max(1, std::min(width, height) / 5);
    const int period = static_cast<int>(kPeriod);
    const Rect box = {(width - size) * index / period, (height - size) * index / period, size,
                      size};
    FillRectangle(box, {255, 255, 255}, &canvas_);
    DrawText(Format("%02d", index), {box.x + size / 8, box.y + size / 4}, std::max(1, size / 16),
             {0, 0, 0}, &canvas_);
  }

  Image canvas_;
  std::vector<std::vector<uint8_t>> encoded_;
  uint64_t sequence_ = 0;
};

// --- fashion:DIR ---------------------------------------------------------------------------------

constexpr int kFrameWidth = 640;
constexpr int kFrameHeight = 480;
constexpr Rect kFashionCrop = {96, 16, 448, 448};

class Fashion : public FrameSource {
 public:
  Fashion(std::string directory, FashionMnist pictures, Resizer resizer, bool loop)
      : directory_(std::move(directory)),
        pictures_(std::move(pictures)),
        resizer_(std::move(resizer)),
        loop_(loop) {
    canvas_.Reshape(kFrameWidth, kFrameHeight, 3);
    enlarged_.Reshape(kFashionCrop.width, kFashionCrop.height, 1);
  }

  Result<bool> Next(Frame* frame) override {
    if (next_ == pictures_.count()) {
      if (!loop_) return false;
      next_ = 0;
    }
    resizer_.Run(pictures_.picture(next_), kFashionMnistSide, enlarged_.pixels.data());
    PasteEnlarged();
    ATOLL_RETURN_IF_ERROR(EncodeJpegInto(canvas_, kJpegQuality, &frame->bytes));
    DescribeEncodedFrame(frame);
    frame->name = Format("fashion:%s, picture %zu", directory_.c_str(), next_);
    frame->label = pictures_.labels[next_];
    frame->crop = kFashionCrop;
    frame->sequence = sequence_++;
    ++next_;
    return true;
  }

  std::string description() const override {
    return Format("fashion:%s: %zu frames of %d x %d", directory_.c_str(), pictures_.count(),
                  kFrameWidth, kFrameHeight);
  }

 private:
  void PasteEnlarged() {
    const uint8_t* src = enlarged_.pixels.data();
    for (int y = 0; y < kFashionCrop.height; ++y) {
      uint8_t* dst = canvas_.pixels.data() +
                     static_cast<size_t>(kFashionCrop.y + y) * canvas_.row_bytes() +
                     static_cast<size_t>(kFashionCrop.x) * 3;
      for (int x = 0; x < kFashionCrop.width; ++x, ++src, dst += 3) dst[0] = dst[1] = dst[2] = *src;
    }
  }

  const std::string directory_;
  const FashionMnist pictures_;
  Resizer resizer_;
  const bool loop_;
  Image enlarged_;
  Image canvas_;  // black outside of the crop
  size_t next_ = 0;
  uint64_t sequence_ = 0;
};

}  // namespace

Result<std::unique_ptr<FrameSource>> OpenTestPattern(const FrameSourceOptions& options) {
  return std::unique_ptr<FrameSource>(new TestPattern(options.width, options.height));
}

Result<std::unique_ptr<FrameSource>> OpenFashion(const std::string& directory,
                                                 const FrameSourceOptions& options) {
  ATOLL_ASSIGN_OR_RETURN(FashionMnist pictures, ReadFashionMnistTestSet(directory));
  ATOLL_ASSIGN_OR_RETURN(Resizer resizer, Resizer::Create({.src_width = kFashionMnistSide,
                                                           .src_height = kFashionMnistSide,
                                                           .dst_width = kFashionCrop.width,
                                                           .dst_height = kFashionCrop.height,
                                                           .channels = 1}));
  return std::unique_ptr<FrameSource>(
      new Fashion(directory, std::move(pictures), std::move(resizer), options.loop));
}

}  // namespace atollrt
