// SPDX-License-Identifier: Apache-2.0
//
// Frames that are made here and delivered as a camera would: a moving pattern, and Fashion-MNIST.
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "atoll/picture/overlay.h"
#include "atoll/picture/resize.h"
#include "examples/camera/sources.h"
#include "examples/picture/file_io.h"

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
    DescribeJpegFrame(frame);
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

constexpr int kFashionSide = 28;
constexpr size_t kFashionPixels = kFashionSide * kFashionSide;
constexpr int kFrameWidth = 640;
constexpr int kFrameHeight = 480;
constexpr Rect kFashionCrop = {96, 16, 448, 448};

// The contents of `path`, or of `path`.gz; *opened is which.
Status ReadMaybeGzipped(const std::string& path, size_t max_bytes, std::string* opened,
                        std::vector<uint8_t>* bytes) {
  *opened = path;
  gzFile file = gzopen(path.c_str(), "rb");  // reads uncompressed files as they are
  if (file == nullptr && errno == ENOENT) {
    *opened = path + ".gz";
    file = gzopen(opened->c_str(), "rb");
  }
  if (file == nullptr) return FileError(*opened, "open", errno != 0 ? errno : ENOMEM);
  constexpr unsigned kChunkBytes = 1 << 20;
  Status status;
  bytes->clear();
  while (true) {
    const size_t size = bytes->size();
    bytes->resize(size + kChunkBytes);
    const int got = gzread(file, bytes->data() + size, kChunkBytes);
    bytes->resize(size + static_cast<size_t>(std::max(got, 0)));
    int error = Z_OK;
    const char* message = gzerror(file, &error);
    if (got < 0 || (error != Z_OK && error != Z_STREAM_END)) {
      status = InvalidArgument("%s: cannot read: %s", opened->c_str(), message);
      break;
    }
    if (got == 0) break;
    if (bytes->size() > max_bytes) {
      status = ResourceExhausted("%s: more than %zu bytes", opened->c_str(), max_bytes);
      break;
    }
  }
  gzclose(file);
  return status;
}

uint32_t LoadBigEndian32(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
}

// An IDX file of unsigned bytes: magic 0x0000080D for D dimensions, their sizes, then the values.
// Checks that all dimensions but the first are `inner` and returns the first; the values begin at
// byte 4 + 4 * D.
Result<size_t> CheckIdx(const std::string& path, std::span<const uint8_t> bytes,
                        std::span<const uint32_t> inner) {
  const size_t header_bytes = 4 + 4 * (1 + inner.size());
  if (bytes.size() < header_bytes) {
    return InvalidArgument("%s: %zu bytes are too few for an IDX header", path.c_str(),
                           bytes.size());
  }
  const auto magic = static_cast<uint32_t>(0x800 + 1 + inner.size());
  if (LoadBigEndian32(bytes.data()) != magic) {
    return InvalidArgument("%s: not an IDX file of %zu dimensions: magic %08x, not %08x",
                           path.c_str(), 1 + inner.size(), LoadBigEndian32(bytes.data()), magic);
  }
  const uint64_t count = LoadBigEndian32(bytes.data() + 4);
  uint64_t item_bytes = 1;
  for (size_t i = 0; i < inner.size(); ++i) {
    const uint32_t size = LoadBigEndian32(bytes.data() + 8 + 4 * i);
    if (size != inner[i]) {
      return InvalidArgument("%s: dimension %zu is %u, not %u", path.c_str(), i + 1, size,
                             inner[i]);
    }
    item_bytes *= size;
  }
  if (bytes.size() - header_bytes != count * item_bytes) {
    return InvalidArgument("%s: %llu items take %llu bytes, but %zu are present", path.c_str(),
                           static_cast<unsigned long long>(count),
                           static_cast<unsigned long long>(count * item_bytes),
                           bytes.size() - header_bytes);
  }
  return static_cast<size_t>(count);
}

class Fashion : public FrameSource {
 public:
  Fashion(std::string directory, std::vector<uint8_t> pixels, std::vector<uint8_t> labels,
          Resizer resizer, bool loop)
      : directory_(std::move(directory)),
        pixels_(std::move(pixels)),
        labels_(std::move(labels)),
        resizer_(std::move(resizer)),
        loop_(loop) {
    canvas_.Reshape(kFrameWidth, kFrameHeight, 3);
    enlarged_.Reshape(kFashionCrop.width, kFashionCrop.height, 1);
  }

  Result<bool> Next(Frame* frame) override {
    if (next_ == labels_.size()) {
      if (!loop_) return false;
      next_ = 0;
    }
    resizer_.Run(pixels_.data() + next_ * kFashionPixels, kFashionSide, enlarged_.pixels.data());
    PasteEnlarged();
    ATOLL_RETURN_IF_ERROR(EncodeJpegInto(canvas_, kJpegQuality, &frame->bytes));
    DescribeJpegFrame(frame);
    frame->name = Format("fashion:%s, picture %zu", directory_.c_str(), next_);
    frame->label = labels_[next_];
    frame->crop = kFashionCrop;
    frame->sequence = sequence_++;
    ++next_;
    return true;
  }

  std::string description() const override {
    return Format("fashion:%s: %zu frames of %d x %d", directory_.c_str(), labels_.size(),
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
  const std::vector<uint8_t> pixels_;
  const std::vector<uint8_t> labels_;
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
  constexpr size_t kMaxBytes = size_t{1} << 28;
  constexpr uint32_t kImageSize[] = {kFashionSide, kFashionSide};
  std::string path;
  std::vector<uint8_t> pixels;
  ATOLL_RETURN_IF_ERROR(
      ReadMaybeGzipped(directory + "/t10k-images-idx3-ubyte", kMaxBytes, &path, &pixels));
  ATOLL_ASSIGN_OR_RETURN(const size_t image_count, CheckIdx(path, pixels, kImageSize));
  pixels.erase(pixels.begin(), pixels.begin() + 16);
  std::vector<uint8_t> labels;
  ATOLL_RETURN_IF_ERROR(
      ReadMaybeGzipped(directory + "/t10k-labels-idx1-ubyte", kMaxBytes, &path, &labels));
  ATOLL_ASSIGN_OR_RETURN(const size_t label_count, CheckIdx(path, labels, {}));
  labels.erase(labels.begin(), labels.begin() + 8);
  if (image_count != label_count || image_count == 0) {
    return InvalidArgument("%s: %zu labels for %zu pictures", path.c_str(), label_count,
                           image_count);
  }
  ATOLL_ASSIGN_OR_RETURN(Resizer resizer, Resizer::Create({.src_width = kFashionSide,
                                                           .src_height = kFashionSide,
                                                           .dst_width = kFashionCrop.width,
                                                           .dst_height = kFashionCrop.height,
                                                           .channels = 1}));
  return std::unique_ptr<FrameSource>(new Fashion(directory, std::move(pixels), std::move(labels),
                                                  std::move(resizer), options.loop));
}

}  // namespace atollrt
