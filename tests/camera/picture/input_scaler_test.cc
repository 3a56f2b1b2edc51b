// SPDX-License-Identifier: Apache-2.0
#include "atoll/picture/input_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/support/rng.h"

namespace atollrt {
namespace {

using testing::Each;
using testing::Eq;
using testing::HasSubstr;

StoredBytes Identity() {
  StoredBytes stored;
  for (size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<uint8_t>(i);
  return stored;
}

void FillAtRandom(Rng* rng, Plane* plane) {
  for (uint8_t& sample : plane->samples) sample = static_cast<uint8_t>(rng->Int(0, 255));
}

PlanarImage RandomPicture(Rng* rng, int width, int height, bool has_color, int shift_x,
                          int shift_y) {
  PlanarImage picture;
  if (has_color) {
    picture.ReshapeColor(width, height, shift_x, shift_y);
    FillAtRandom(rng, &picture.cb);
    FillAtRandom(rng, &picture.cr);
  } else {
    picture.ReshapeGray(width, height);
  }
  FillAtRandom(rng, &picture.y);
  return picture;
}

// What input_scaler.h says, word by word: the weights of output pixel `i` for all samples.
std::vector<int> Weights(double begin, double end, int from, int to, int i) {
  const double ratio = (end - begin) / to;
  const double half_width = std::max(ratio, 1.0);
  const double center = begin + (i + 0.5) * ratio;
  std::vector<double> exact(static_cast<size_t>(from));
  double total = 0;
  for (int j = 0; j < from; ++j) {
    if (j + 1 <= begin || j >= end) continue;
    exact[static_cast<size_t>(j)] = std::max(0.0, 1 - std::abs(j + 0.5 - center) / half_width);
    total += exact[static_cast<size_t>(j)];
  }
  std::vector<int> weights;
  double sum = 0;
  int64_t before = 0;
  for (const double weight : exact) {
    sum += weight;
    const int64_t rounded = std::lround(sum / total * 16384);
    weights.push_back(static_cast<int>(rounded - before));
    before = rounded;
  }
  return weights;
}

uint8_t Sample(const Plane& plane, double scale_x, double scale_y, const Rect& part, int to_width,
               int to_height, int x, int y) {
  const std::vector<int> rows =
      Weights(part.y * scale_y, (part.y + part.height) * scale_y, plane.height, to_height, y);
  const std::vector<int> columns =
      Weights(part.x * scale_x, (part.x + part.width) * scale_x, plane.width, to_width, x);
  int64_t sum = int64_t{1} << 20;
  for (int i = 0; i < plane.width; ++i) {
    if (columns[static_cast<size_t>(i)] == 0) continue;
    int64_t column = 64;
    for (int j = 0; j < plane.height; ++j) {
      column += int64_t{plane.row(j)[i]} * rows[static_cast<size_t>(j)];
    }
    sum += (column >> 7) * columns[static_cast<size_t>(i)];
  }
  return static_cast<uint8_t>(sum >> 21);
}

std::vector<uint8_t> Reference(const PlanarImage& picture, const Rect& part, int width, int height,
                               int channels) {
  std::vector<uint8_t> out;
  const double scale_x = 1.0 / (1 << picture.shift_x);
  const double scale_y = 1.0 / (1 << picture.shift_y);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const uint8_t luma = Sample(picture.y, 1, 1, part, width, height, x, y);
      Color color = {luma, luma, luma};
      if (channels == 3 && picture.has_color) {
        color = ToColor({luma, Sample(picture.cb, scale_x, scale_y, part, width, height, x, y),
                         Sample(picture.cr, scale_x, scale_y, part, width, height, x, y)});
      }
      out.push_back(color.r);
      if (channels == 1) continue;
      out.push_back(color.g);
      out.push_back(color.b);
    }
  }
  return out;
}

TEST(InputScaler, DoesWhatItsCommentSays) {
  Rng rng(5);
  InputScaler scaler;  // one for all, so that nothing old is left behind
  for (int round = 0; round < 120; ++round) {
    const int width = rng.Int32(1, 70);
    const int height = rng.Int32(1, 40);
    const PlanarImage picture =
        RandomPicture(&rng, width, height, rng.Int32(0, 4) > 0, rng.Int32(0, 1), rng.Int32(0, 1));
    Rect part;
    part.x = rng.Int32(0, width - 1);
    part.y = rng.Int32(0, height - 1);
    part.width = rng.Int32(1, width - part.x);
    part.height = rng.Int32(1, height - part.y);
    const int to_width = rng.Int32(1, 24);
    const int to_height = rng.Int32(1, 24);
    const int channels = rng.Int32(0, 2) == 0 ? 1 : 3;
    std::vector<uint8_t> out(static_cast<size_t>(to_width * to_height * channels));
    ASSERT_TRUE(scaler.SetOutput(to_width, to_height, channels).ok());
    ASSERT_TRUE(scaler.Run(picture, part, Identity(), out.data()).ok());
    ASSERT_EQ(out, Reference(picture, part, to_width, to_height, channels))
        << width << " x " << height << ", part " << part.width << " x " << part.height << " at "
        << part.x << ", " << part.y << " to " << to_width << " x " << to_height;
  }
}

TEST(InputScaler, CopiesAtEqualSizesAndKeepsFlatPicturesFlat) {
  Rng rng(6);
  InputScaler scaler;
  const PlanarImage gray = RandomPicture(&rng, 33, 9, false, 0, 0);
  std::vector<uint8_t> out(33 * 9);
  ASSERT_TRUE(scaler.SetOutput(33, 9, 1).ok());
  ASSERT_TRUE(scaler.Run(gray, {}, Identity(), out.data()).ok());
  for (int y = 0; y < 9; ++y) {
    EXPECT_TRUE(std::equal(gray.y.row(y), gray.y.row(y) + 33, out.data() + y * 33));
  }

  PlanarImage flat;
  flat.ReshapeColor(4001, 2999, 1, 1);
  for (const int level : {0, 1, 127, 254, 255}) {
    for (Plane* plane : {&flat.y, &flat.cb, &flat.cr}) {
      std::fill(plane->samples.begin(), plane->samples.end(), static_cast<uint8_t>(128));
    }
    std::fill(flat.y.samples.begin(), flat.y.samples.end(), static_cast<uint8_t>(level));
    std::vector<uint8_t> small(3 * 7 * 5);
    ASSERT_TRUE(scaler.SetOutput(7, 5, 3).ok());
    ASSERT_TRUE(scaler.Run(flat, {}, Identity(), small.data()).ok());
    EXPECT_THAT(small, Each(Eq(level)));
  }
}

TEST(InputScaler, StoresWhatTheTableSays) {
  PlanarImage picture;
  picture.ReshapeGray(3, 1);
  for (int x = 0; x < 3; ++x) picture.y.row(0)[x] = static_cast<uint8_t>(100 * x);
  InputScaler scaler;
  ASSERT_TRUE(scaler.SetOutput(3, 1, 3).ok());
  StoredBytes bytes;
  StoredFloats floats;
  for (size_t i = 0; i < 256; ++i) {
    bytes[i] = static_cast<uint8_t>(i ^ 0x80);
    floats[i] = static_cast<float>(i) / 100;
  }
  std::vector<uint8_t> out(9);
  ASSERT_TRUE(scaler.Run(picture, {}, bytes, out.data()).ok());
  EXPECT_THAT(out, testing::ElementsAre(128, 128, 128, 228, 228, 228, 72, 72, 72));
  std::vector<float> real(9);
  ASSERT_TRUE(scaler.Run(picture, {}, floats, real.data()).ok());
  EXPECT_THAT(real, testing::ElementsAre(0, 0, 0, 1, 1, 1, 2, 2, 2));
}

TEST(InputScaler, RefusesWhatIsOutside) {
  PlanarImage picture;
  picture.ReshapeGray(10, 10);
  InputScaler scaler;
  uint8_t out[4];
  EXPECT_THAT(scaler.Run(picture, {}, Identity(), out).message(), HasSubstr("SetOutput"));
  EXPECT_FALSE(scaler.SetOutput(0, 2, 1).ok());
  EXPECT_FALSE(scaler.SetOutput(2, 70000, 1).ok());
  EXPECT_FALSE(scaler.SetOutput(2, 2, 2).ok());
  ASSERT_TRUE(scaler.SetOutput(2, 2, 1).ok());
  for (const Rect& part : {Rect{-1, 0, 5, 5}, Rect{0, 0, 11, 5}, Rect{6, 6, 5, 4}, Rect{0, 0, 0, 4},
                           Rect{2, 2147483647, 1, 1}}) {
    const Status status = scaler.Run(picture, part, Identity(), out);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("is not inside of a picture of 10 x 10"));
  }
}

}  // namespace
}  // namespace atollrt
