// SPDX-License-Identifier: Apache-2.0
//
// Frames that are made here and delivered as a camera would: a moving pattern, the pictures of
// Fashion-MNIST, and scenes of them. In a scene pieces of clothing drift, grow and shrink in front
// of a background and hide each other, like the scenes that models/scenes is trained on.
#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "atoll/picture/image.h"
#include "atoll/picture/overlay.h"
#include "camera/sources/sources.h"

namespace atollrt {
namespace {

constexpr int kJpegQuality = 90;

// Row `y` of a part of an RGB image.
uint8_t* RowOf(Image* image, const Rect& rect, int y) {
  return image->pixels.data() + static_cast<size_t>(rect.y + y) * image->row_bytes() +
         static_cast<size_t>(rect.x) * 3;
}

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
  Fashion(std::string directory, FashionMnist pictures, bool loop)
      : directory_(std::move(directory)), pictures_(std::move(pictures)), loop_(loop) {
    canvas_.Reshape(kFrameWidth, kFrameHeight, 3);
    small_.Reshape(kFashionMnistSide, kFashionMnistSide, 1);
  }

  Result<bool> Next(Frame* frame) override {
    if (next_ == pictures_.count()) {
      if (!loop_) return false;
      next_ = 0;
    }
    std::copy_n(pictures_.picture(next_), kFashionMnistPixels, small_.pixels.begin());
    ATOLL_ASSIGN_OR_RETURN(const Image enlarged,
                           Resize(small_, kFashionCrop.width, kFashionCrop.height));
    const uint8_t* src = enlarged.pixels.data();
    for (int y = 0; y < kFashionCrop.height; ++y) {
      uint8_t* dst = RowOf(&canvas_, kFashionCrop, y);
      for (int x = 0; x < kFashionCrop.width; ++x, ++src, dst += 3) dst[0] = dst[1] = dst[2] = *src;
    }
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
  const std::string directory_;
  const FashionMnist pictures_;
  const bool loop_;
  Image small_;
  Image canvas_;  // black outside of the crop
  size_t next_ = 0;
  uint64_t sequence_ = 0;
};

// --- scenes:DIR ----------------------------------------------------------------------------------

constexpr int kPieces = 6;
constexpr int kOpaqueLevel = 48;  // from this gray level on a pixel hides what is behind it
// Sides of a piece's picture, as fractions of the frame's shorter side.
constexpr double kLeastSide = 0.20;
constexpr double kGreatestSide = 0.45;

// The same numbers everywhere: the standard says what the engine gives, but not what its
// distributions make of it.
class Random {
 public:
  double Real(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_()) / 4294967296.0;
  }
  // From 0 to `count` - 1.
  size_t Index(size_t count) {
    return std::min(count - 1, static_cast<size_t>(Real(0, static_cast<double>(count))));
  }
  uint8_t Level(double low, double high) { return static_cast<uint8_t>(Real(low, high)); }

 private:
  std::mt19937 engine_{1};
};

// A picture that is its own matte, as clothes are bright on black.
struct Sprite {
  std::array<uint8_t, kFashionMnistPixels> levels;
  std::array<uint8_t, kFashionMnistPixels> opacity;
  std::array<Color, 256> tinted;  // of each level
};

struct Piece {
  Sprite sprite;
  double x = 0, y = 0;               // of its middle, in pixels
  double x_speed = 0, y_speed = 0;   // pixels per frame
  double phase = 0, phase_step = 0;  // the least side at 0 and 1, the greatest halfway
  Rect drawn;                        // where it is in the canvas
};

// Where between two neighbouring source pixels a pixel lies: `first` and, by `fraction` / 256, the
// next one.
struct Tap {
  int first;
  int fraction;
};

// For each of `side` pixels that a row or column of a picture is enlarged or shrunk to, bilinearly
// with half-pixel centres. Shrinking leaves out pixels, which does not matter for so few.
void MakeTaps(int side, std::vector<Tap>* taps) {
  taps->resize(static_cast<size_t>(side));
  constexpr int kLast = kFashionMnistSide - 1;
  for (int i = 0; i < side; ++i) {
    const int64_t place = (int64_t{2} * i + 1) * kFashionMnistSide * 128 / side - 128;
    const int clamped = static_cast<int>(std::clamp<int64_t>(place, 0, kLast * 256));
    const int first = std::min(clamped / 256, kLast - 1);
    (*taps)[static_cast<size_t>(i)] = {first, clamped - 256 * first};
  }
}

int Mix(int a, int b, int fraction) { return a * (256 - fraction) + b * fraction; }

uint8_t Blend(int below, int above, int opacity) {
  return static_cast<uint8_t>((below * (255 - opacity) + above * opacity + 127) / 255);
}

class Scenes : public FrameSource {
 public:
  // `background` has the size of the frames.
  Scenes(std::string directory, FashionMnist pictures, Image background, Random random)
      : directory_(std::move(directory)),
        pictures_(std::move(pictures)),
        background_(std::move(background)),
        canvas_(background_),
        random_(random) {
    const double shorter = std::min(canvas_.width, canvas_.height);
    for (int i = 0; i < kPieces; ++i) {
      Piece& piece = pieces_[static_cast<size_t>(i)];
      Dress(&piece);
      piece.x = (i + random_.Real(0, 1)) / kPieces * canvas_.width;
      piece.y = random_.Real(0, canvas_.height);
      piece.x_speed = random_.Real(0.002, 0.006) * shorter * (random_.Real(-1, 1) < 0 ? -1 : 1);
      piece.y_speed = random_.Real(0.001, 0.004) * shorter * (random_.Real(-1, 1) < 0 ? -1 : 1);
      piece.phase = (i + 0.5) / kPieces;
      piece.phase_step = random_.Real(0.002, 0.004);
    }
  }

  Result<bool> Next(Frame* frame) override {
    for (const Piece& piece : pieces_) Erase(piece.drawn);
    for (Piece& piece : pieces_) {
      Move(&piece);
      Draw(piece);
    }
    ATOLL_RETURN_IF_ERROR(EncodeJpegInto(canvas_, kJpegQuality, &frame->bytes));
    DescribeEncodedFrame(frame);
    frame->name = Format("scenes:%s, frame %llu", directory_.c_str(),
                         static_cast<unsigned long long>(sequence_));
    frame->sequence = sequence_++;
    return true;
  }

  std::string description() const override {
    return Format("scenes:%s: pieces of %zu pictures in frames of %d x %d", directory_.c_str(),
                  pictures_.count(), canvas_.width, canvas_.height);
  }

 private:
  // Another picture in another colour.
  void Dress(Piece* piece) {
    const uint8_t* picture = pictures_.picture(random_.Index(pictures_.count()));
    Sprite& sprite = piece->sprite;
    std::copy_n(picture, kFashionMnistPixels, sprite.levels.begin());
    std::transform(picture, picture + kFashionMnistPixels, sprite.opacity.begin(),
                   [](uint8_t level) {
                     return static_cast<uint8_t>(std::min(255, level * 255 / kOpaqueLevel));
                   });
    const double gray = random_.Real(0.75, 1);
    const bool is_gray = random_.Real(0, 1) < 0.35;
    double tint[3];
    for (double& factor : tint) factor = is_gray ? gray : random_.Real(0.35, 1);
    for (int level = 0; level < 256; ++level) {
      const double shade = 40 + level * (215.0 / 255);
      sprite.tinted[static_cast<size_t>(level)] = {static_cast<uint8_t>(shade * tint[0]),
                                                   static_cast<uint8_t>(shade * tint[1]),
                                                   static_cast<uint8_t>(shade * tint[2])};
    }
  }

  // One step of one coordinate, which turns where `half` a side reaches an end of 0 ... size.
  static void Drift(double half, double size, double* place, double* speed) {
    *place += *speed;
    if (*place < half) {
      *place = half;
      *speed = std::abs(*speed);
    } else if (*place > size - half) {
      *place = size - half;
      *speed = -std::abs(*speed);
    }
  }

  void Move(Piece* piece) {
    piece->phase += piece->phase_step;
    if (piece->phase >= 1) {
      piece->phase -= 1;
      Dress(piece);
    }
    const double growth = 1 - std::abs(2 * piece->phase - 1);
    const double side = std::min(canvas_.width, canvas_.height) *
                        (kLeastSide + (kGreatestSide - kLeastSide) * growth);
    Drift(side / 2, canvas_.width, &piece->x, &piece->x_speed);
    Drift(side / 2, canvas_.height, &piece->y, &piece->y_speed);
    // Within the canvas: the side is less than half of it, unless that is a single pixel.
    const int pixels = std::max(1, static_cast<int>(side));
    piece->drawn = {std::clamp(static_cast<int>(piece->x - side / 2), 0, canvas_.width - pixels),
                    std::clamp(static_cast<int>(piece->y - side / 2), 0, canvas_.height - pixels),
                    pixels, pixels};
  }

  void Erase(const Rect& rect) {
    for (int y = 0; y < rect.height; ++y) {
      std::copy_n(RowOf(&background_, rect, y), size_t{3} * static_cast<size_t>(rect.width),
                  RowOf(&canvas_, rect, y));
    }
  }

  void Draw(const Piece& piece) {
    const Sprite& sprite = piece.sprite;
    MakeTaps(piece.drawn.width, &taps_);
    for (int y = 0; y < piece.drawn.height; ++y) {
      // The row of the picture, in 1/256; then its pixels, in 1/65536.
      const Tap row = taps_[static_cast<size_t>(y)];
      int levels[kFashionMnistSide];
      int opacity[kFashionMnistSide];
      for (int i = 0; i < kFashionMnistSide; ++i) {
        const size_t above = static_cast<size_t>(row.first * kFashionMnistSide + i);
        const size_t below = above + kFashionMnistSide;
        levels[i] = Mix(sprite.levels[above], sprite.levels[below], row.fraction);
        opacity[i] = Mix(sprite.opacity[above], sprite.opacity[below], row.fraction);
      }
      uint8_t* dst = RowOf(&canvas_, piece.drawn, y);
      for (const Tap& tap : taps_) {
        const int seen = Mix(opacity[tap.first], opacity[tap.first + 1], tap.fraction) >> 16;
        if (seen > 0) {
          const int level = Mix(levels[tap.first], levels[tap.first + 1], tap.fraction) >> 16;
          const Color color = sprite.tinted[static_cast<size_t>(level)];
          dst[0] = Blend(dst[0], color.r, seen);
          dst[1] = Blend(dst[1], color.g, seen);
          dst[2] = Blend(dst[2], color.b, seen);
        }
        dst += 3;
      }
    }
  }

  const std::string directory_;
  const FashionMnist pictures_;
  Image background_;
  Image canvas_;
  Random random_;
  std::array<Piece, kPieces> pieces_;  // those behind first
  std::vector<Tap> taps_;
  uint64_t sequence_ = 0;
};

// Soft clouds between two colours, and shapes that are no clothes.
Result<Image> MakeBackground(int width, int height, Random* random) {
  Image cells;
  cells.Reshape(8, 5, 3);
  double low[3];
  double high[3];
  for (double& level : low) level = random->Real(30, 110);
  for (double& level : high) level = random->Real(110, 200);
  for (size_t i = 0; i < cells.pixels.size(); i += 3) {
    const double share = random->Real(0, 1);
    for (size_t c = 0; c < 3; ++c) {
      cells.pixels[i + c] = static_cast<uint8_t>(low[c] + (high[c] - low[c]) * share);
    }
  }
  ATOLL_ASSIGN_OR_RETURN(Image background, Resize(cells, width, height));
  const int shorter = std::min(width, height);
  const auto place = [&](int size) { return static_cast<int>(random->Real(0, size)); };
  const auto length = [&] { return static_cast<int>(random->Real(0.05, 0.3) * shorter); };
  const auto color = [&] {
    return Color{random->Level(30, 220), random->Level(30, 220), random->Level(30, 220)};
  };
  for (int i = 0; i < 3; ++i) {
    const Rect rect = {place(width), place(height), length(), length()};
    FillRectangle(rect, color(), &background);
    const Point at = {place(width), place(height)};
    DrawLine(at, at, std::max(1, length()), color(), &background);
  }
  return background;
}

}  // namespace

OpenedSource OpenTestPattern(const FrameSourceOptions& options) {
  return std::unique_ptr<FrameSource>(new TestPattern(options.width, options.height));
}

OpenedSource OpenFashion(const std::string& directory, const FrameSourceOptions& options) {
  ATOLL_ASSIGN_OR_RETURN(FashionMnist pictures, ReadFashionMnistTestSet(directory));
  return std::unique_ptr<FrameSource>(new Fashion(directory, std::move(pictures), options.loop));
}

OpenedSource OpenScenes(const std::string& directory, const FrameSourceOptions& options) {
  ATOLL_ASSIGN_OR_RETURN(FashionMnist pictures, ReadFashionMnistTestSet(directory));
  Random random;
  ATOLL_ASSIGN_OR_RETURN(Image background, MakeBackground(options.width, options.height, &random));
  return std::unique_ptr<FrameSource>(
      new Scenes(directory, std::move(pictures), std::move(background), random));
}

}  // namespace atollrt
