// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/posenet_decoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "runtime/base/buffer.h"
#include "tests/support/rng.h"

namespace atollrt {
namespace {

using Floats = std::vector<float>;

struct Maps {
  Floats heat, short_offsets, mid_offsets, long_offsets;
};

// No scores, no offsets.
Maps EmptyMaps(const PosenetParams& p) {
  const size_t cells = static_cast<size_t>(p.h) * static_cast<size_t>(p.w);
  return {Floats(cells * 17, -5), Floats(cells * 34), Floats(cells * 64), Floats(cells * 34)};
}

Maps RandomMaps(const PosenetParams& p, Rng* rng) {
  Maps maps = EmptyMaps(p);
  const auto fill = [rng](double low, double high, Floats* map) {
    for (float& value : *map) value = static_cast<float>(low + (high - low) * rng->Real());
  };
  fill(-3, 3, &maps.heat);
  fill(-1, 1, &maps.short_offsets);
  fill(-4, 4, &maps.mid_offsets);
  fill(-8, 8, &maps.long_offsets);
  return maps;
}

struct Poses {
  Floats keypoints, keypoint_scores, pose_scores, masks;
  float count = -1;
};

Poses Decode(const PosenetParams& p, const Maps& maps) {
  const size_t d = static_cast<size_t>(p.max_detections);
  // Outputs hold garbage before.
  Poses poses{Floats(d * 34, 7), Floats(d * 17, 7), Floats(d, 7), Floats(d * 33 * 33, 7)};
  auto scratch = Buffer::Allocate(PosenetScratchBytes(p));
  DecodePoses(p,
              {.heat = maps.heat.data(),
               .short_offsets = maps.short_offsets.data(),
               .mid_offsets = maps.mid_offsets.data(),
               .long_offsets = maps.long_offsets.data()},
              {.keypoints = poses.keypoints.data(),
               .keypoint_scores = poses.keypoint_scores.data(),
               .pose_scores = poses.pose_scores.data(),
               .count = &poses.count,
               .masks = poses.masks.data()},
              scratch->data());
  return poses;
}

// The value of a map between its cells, as four weighted neighbours.
float Between(const PosenetParams& p, const Floats& map, float y, float x, int channel) {
  const int y0 = static_cast<int>(y), x0 = static_cast<int>(x);
  const int y1 = y > static_cast<float>(y0) ? y0 + 1 : y0;
  const int x1 = x > static_cast<float>(x0) ? x0 + 1 : x0;
  const float b = y - static_cast<float>(y0), r = x - static_cast<float>(x0);
  const auto at = [&](int row, int column) {
    return map[static_cast<size_t>((row * p.w + column) * 34 + channel)];
  };
  return (1 - b) * ((1 - r) * at(y0, x0) + r * at(y0, x1)) +
         b * ((1 - r) * at(y1, x0) + r * at(y1, x1));
}

// The pose that a cell belongs to, by the words of docs/quantization.md.
int Owner(const PosenetParams& p, const Maps& maps, const Poses& poses, int row, int column) {
  std::vector<float> sums(static_cast<size_t>(poses.count), 0.0f);
  for (int k = 0; k < 17; ++k) {
    float y = static_cast<float>(row), x = static_cast<float>(column);
    for (int step = 0; step < 3; ++step) {
      const float dy = Between(p, maps.long_offsets, y, x, k);
      const float dx = Between(p, maps.long_offsets, y, x, k + 17);
      y = std::fmin(std::fmax(y + dy, 0.0f), static_cast<float>(p.h - 1));
      x = std::fmin(std::fmax(x + dx, 0.0f), static_cast<float>(p.w - 1));
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      const float* keypoint = &poses.keypoints[i * 34 + static_cast<size_t>(k) * 2];
      const float dy = y * static_cast<float>(p.stride) - keypoint[0];
      const float dx = x * static_cast<float>(p.stride) - keypoint[1];
      sums[i] += dy * dy + dx * dx;
    }
  }
  size_t best = 0;
  for (size_t i = 1; i < sums.size(); ++i) best = sums[i] < sums[best] ? i : best;
  return static_cast<int>(best);
}

PosenetParams Params(int32_t h, int32_t w, int32_t detections) {
  return {.h = h,
          .w = w,
          .max_detections = detections,
          .stride = 16,
          .score_threshold = 0.5f,
          .nms_radius = 20};
}

TEST(PosenetMasks, GiveEachCellToTheNearestPose) {
  const PosenetParams p = Params(33, 33, 3);
  Maps maps = EmptyMaps(p);
  for (size_t k = 0; k < 17; ++k) {
    maps.heat[k] = 5;                       // all keypoints of one pose at (0, 0),
    maps.heat[(33 * 33 - 1) * 17 + k] = 4;  // of another at (32, 32)
  }
  const Poses poses = Decode(p, maps);
  ASSERT_EQ(poses.count, 2);
  for (size_t y = 0; y < 33; ++y) {
    for (size_t x = 0; x < 33; ++x) {
      const bool first = y + x <= 32;  // halfway, the first one wins
      EXPECT_EQ(poses.masks[y * 33 + x], first ? 1 : 0) << y << " " << x;
      EXPECT_EQ(poses.masks[(33 + y) * 33 + x], first ? 0 : 1) << y << " " << x;
      EXPECT_EQ(poses.masks[(66 + y) * 33 + x], 0) << "no third pose";
    }
  }
}

TEST(PosenetMasks, BelongToTheFirstPoseIfThereIsNone) {
  const PosenetParams p = Params(33, 33, 2);
  const Poses poses = Decode(p, EmptyMaps(p));
  EXPECT_EQ(poses.count, 0);
  Floats want(2 * 33 * 33);
  std::fill(want.begin(), want.begin() + 33 * 33, 1.0f);
  EXPECT_EQ(poses.masks, want);
}

TEST(PosenetMasks, EqualTheirFormulaForRandomMaps) {
  Rng rng(TestSeed(1));
  int several = 0;
  for (int i = 0; i < 40; ++i) {
    PosenetParams p = Params(rng.Int32(1, 33), rng.Int32(1, 33), rng.Int32(1, 6));
    if (rng.OneIn(2)) p.h = p.w = 33;
    ASSERT_TRUE(PosenetMasksFit(p));
    const Maps maps = RandomMaps(p, &rng);
    const Poses poses = Decode(p, maps);
    several += poses.count > 1;
    Floats want(poses.masks.size());
    for (int y = 0; y < p.h; ++y) {
      for (int x = 0; x < p.w; ++x) {
        want[static_cast<size_t>((Owner(p, maps, poses, y, x) * p.w + y) * p.h + x)] = 1;
      }
    }
    ASSERT_EQ(poses.masks, want) << p.h << "x" << p.w << ", " << poses.count << " poses";
  }
  EXPECT_GT(several, 10) << "or nothing was decided";
}

TEST(PosenetMasks, FitUnlessACellCouldLeaveTheOutput) {
  EXPECT_TRUE(PosenetMasksFit(Params(33, 33, 5)));
  EXPECT_TRUE(PosenetMasksFit(Params(23, 31, 5)));
  EXPECT_TRUE(PosenetMasksFit(Params(10, 100, 5))) << "steps of 10 stay below 33 * 33";
  EXPECT_FALSE(PosenetMasksFit(Params(100, 10, 1))) << "99 * 100 + 9 is beyond 33 * 33";
  EXPECT_FALSE(PosenetMasksFit(Params(33, 34, 5)));
  EXPECT_FALSE(PosenetMasksFit(Params(34, 33, 5)));
  EXPECT_FALSE(PosenetMasksFit(Params(120000000, 1, 32768))) << "without overflow";
}

TEST(Poses, AreTheSameWithAndWithoutMasks) {
  Rng rng(TestSeed(2));
  const PosenetParams p = Params(17, 13, 5);
  Maps maps = RandomMaps(p, &rng);
  const Poses with = Decode(p, maps);
  Poses without = with;
  std::fill(without.masks.begin(), without.masks.end(), 7.0f);
  auto scratch = Buffer::Allocate(PosenetScratchBytes(p));
  DecodePoses(p,
              {.heat = maps.heat.data(),
               .short_offsets = maps.short_offsets.data(),
               .mid_offsets = maps.mid_offsets.data()},
              {.keypoints = without.keypoints.data(),
               .keypoint_scores = without.keypoint_scores.data(),
               .pose_scores = without.pose_scores.data(),
               .count = &without.count},
              scratch->data());
  EXPECT_EQ(without.keypoints, with.keypoints);
  EXPECT_EQ(without.pose_scores, with.pose_scores);
  EXPECT_EQ(without.masks, Floats(without.masks.size(), 7)) << "not touched";
}

}  // namespace
}  // namespace atollrt
