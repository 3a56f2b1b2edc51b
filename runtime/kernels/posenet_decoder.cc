// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/posenet_decoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "runtime/kernels/scratch.h"

namespace atollrt {
namespace {

constexpr int32_t kRefinements = 5;      // of a neighbour's position, by short offsets
constexpr int32_t kLongRefinements = 3;  // of a cell's, by long offsets

// From the nose outwards; keypoints in the order nose, eyes, ears, shoulders, elbows, wrists,
// hips, knees, ankles, left before right.
struct Edge {
  int32_t parent, child;
};
constexpr Edge kEdges[kPosenetEdges] = {{0, 1},  {1, 3},  {0, 2},   {2, 4},   {0, 5}, {5, 7},
                                        {7, 9},  {5, 11}, {11, 13}, {13, 15}, {0, 6}, {6, 8},
                                        {8, 10}, {6, 12}, {12, 14}, {14, 16}};

struct Point {
  float y, x;
};

struct Keypoint {
  float score;
  Point at;
  int32_t kind;
};

// The order of equal scores is that of std::priority_queue, which push_heap and pop_heap make.
bool Less(const Keypoint& a, const Keypoint& b) { return a.score < b.score; }

struct Pose {
  Point at[kPosenetKeypoints];
  float scores[kPosenetKeypoints];
  float score;        // the mean
  float final_score;  // without keypoints that better poses have
};

struct Arrays {
  Keypoint* roots;  // [h * w * 17], a heap
  Pose* poses;      // [max_detections]
  int32_t* order;   // [max_detections]
};

Arrays Take(const PosenetParams& p, Scratch* scratch) {
  return {scratch->Take<Keypoint>(int64_t{p.h} * p.w * kPosenetKeypoints),
          scratch->Take<Pose>(p.max_detections), scratch->Take<int32_t>(p.max_detections)};
}

float SquaredDistance(Point a, Point b) {
  const float dy = b.y - a.y;
  const float dx = b.x - a.x;
  return dy * dy + dx * dx;
}

class Decoder {
 public:
  Decoder(const PosenetParams& params, const PosenetMaps& maps, const Arrays& arrays)
      : p_(params), maps_(maps), arrays_(arrays) {
    const float radius = p_.nms_radius / static_cast<float>(p_.stride);
    squared_radius_ = radius * radius;
  }

  // Sets arrays.poses[0 .. result).
  int32_t Decode() {
    int32_t poses = 0;
    int64_t roots = FindRoots();
    while (poses < p_.max_detections && roots > 0) {
      std::pop_heap(arrays_.roots, arrays_.roots + roots, Less);
      const Keypoint root = arrays_.roots[--roots];
      const bool known = std::any_of(arrays_.poses, arrays_.poses + poses, [&](const Pose& pose) {
        return SquaredDistance(root.at, pose.at[root.kind]) <= squared_radius_;
      });
      if (known) continue;
      Pose& pose = arrays_.poses[poses];
      Grow(root, &pose);
      if (pose.score >= p_.score_threshold) ++poses;
    }
    return poses;
  }

  // Soft suppression; sets arrays.order[0 .. poses) by decreasing final score.
  void Rank(int32_t poses) {
    int32_t* const order = arrays_.order;
    SortBy(&Pose::score, poses);
    for (int32_t n = 0; n < poses; ++n) {
      Pose& pose = arrays_.poses[order[n]];
      std::array<float, kPosenetKeypoints> counted;
      size_t count = 0;
      for (int32_t k = 0; k < kPosenetKeypoints; ++k) {
        const bool taken = std::any_of(order, order + n, [&](int32_t better) {
          return SquaredDistance(pose.at[k], arrays_.poses[better].at[k]) <= squared_radius_;
        });
        if (!taken) counted[count++] = pose.scores[k];
      }
      pose.final_score = MeanOf(counted.data(), count);
    }
    SortBy(&Pose::final_score, poses);
  }

  // Gives every cell to the pose that its long offsets lead to: the one whose keypoints are
  // nearest, or the first if there is none. `keypoints` are those of `poses` poses, in pixels.
  void FillMasks(const float* keypoints, int32_t poses, float* masks) const {
    for (int32_t y = 0; y < p_.h; ++y) {
      for (int32_t x = 0; x < p_.w; ++x) {
        const CellKeypoints led_to = FollowLongOffsets(y, x);
        int32_t owner = 0;
        float nearest = 0;
        for (int32_t i = 0; i < poses; ++i) {
          const float distance = Distance(led_to, keypoints + int64_t{i} * 2 * kPosenetKeypoints);
          if (i > 0 && !(distance < nearest)) continue;
          owner = i;
          nearest = distance;
        }
        masks[(int64_t{owner} * p_.w + y) * p_.h + x] = 1;
      }
    }
  }

 private:
  using CellKeypoints = std::array<Point, kPosenetKeypoints>;  // in pixels

  CellKeypoints FollowLongOffsets(int32_t y, int32_t x) const {
    CellKeypoints result;
    for (int32_t k = 0; k < kPosenetKeypoints; ++k) {
      const Point start{static_cast<float>(y), static_cast<float>(x)};
      const Point at = Refined(start, maps_.long_offsets, k, kLongRefinements);
      const float stride = static_cast<float>(p_.stride);
      result[static_cast<size_t>(k)] = {at.y * stride, at.x * stride};
    }
    return result;
  }

  // The sum of squared distances to the keypoints of one pose.
  static float Distance(const CellKeypoints& from, const float* keypoints) {
    float sum = 0;
    for (const Point& at : from) {
      sum += SquaredDistance(at, {keypoints[0], keypoints[1]});
      keypoints += 2;
    }
    return sum;
  }

  Point Clamped(float y, float x) const {
    const auto clamp = [](float v, int32_t n) {
      return std::min(std::max(v, 0.0f), static_cast<float>(n - 1));
    };
    return {clamp(y, p_.h), clamp(x, p_.w)};
  }

  // Bilinear, of one channel of a map.
  float Sample(const float* map, int32_t channels, Point at, int32_t channel) const {
    struct Axis {
      int32_t lo, hi;
      float weight;
    };
    // Not-a-number becomes 0, which keeps the indices inside.
    const auto axis = [](float v, int32_t n) -> Axis {
      const float last = static_cast<float>(n - 1);
      const float inside = v > 0 ? (v < last ? v : last) : 0.0f;
      const float lo = std::floor(inside);
      return {static_cast<int32_t>(lo), static_cast<int32_t>(std::ceil(inside)), v - lo};
    };
    const Axis y = axis(at.y, p_.h);
    const Axis x = axis(at.x, p_.w);
    const auto value = [&](int32_t row, int32_t column) {
      return map[(int64_t{row} * p_.w + column) * channels + channel];
    };
    const float top = (1 - x.weight) * value(y.lo, x.lo) + x.weight * value(y.lo, x.hi);
    const float bottom = (1 - x.weight) * value(y.hi, x.lo) + x.weight * value(y.hi, x.hi);
    return (1 - y.weight) * top + y.weight * bottom;
  }

  bool IsLocalMaximum(int32_t y, int32_t x, int32_t kind) const {
    const auto heat = [&](int32_t row, int32_t column) {
      return maps_.heat[(int64_t{row} * p_.w + column) * kPosenetKeypoints + kind];
    };
    const float centre = heat(y, x);
    for (int32_t row = std::max(y - 1, 0); row <= std::min(y + 1, p_.h - 1); ++row) {
      for (int32_t column = std::max(x - 1, 0); column <= std::min(x + 1, p_.w - 1); ++column) {
        if (heat(row, column) > centre) return false;
      }
    }
    return true;
  }

  // Fills the heap with local maxima and returns their number.
  int64_t FindRoots() {
    const double threshold = static_cast<double>(p_.score_threshold) + 1e-6;
    const float logit = static_cast<float>(-std::log(1.0 / threshold - 1.0));
    int64_t count = 0;
    for (int32_t y = 0; y < p_.h; ++y) {
      for (int32_t x = 0; x < p_.w; ++x) {
        const int64_t cell = int64_t{y} * p_.w + x;
        for (int32_t k = 0; k < kPosenetKeypoints; ++k) {
          const float score = maps_.heat[cell * kPosenetKeypoints + k];
          if (!(score >= logit) || !IsLocalMaximum(y, x, k)) continue;
          const float* offsets = maps_.short_offsets + cell * 2 * kPosenetKeypoints;
          const Point at = Clamped(static_cast<float>(y) + offsets[k],
                                   static_cast<float>(x) + offsets[k + kPosenetKeypoints]);
          arrays_.roots[count++] = {score, at, k};
          std::push_heap(arrays_.roots, arrays_.roots + count, Less);
        }
      }
    }
    return count;
  }

  // `at` plus the offset sampled there, `steps` times.
  Point Refined(Point at, const float* offsets, int32_t kind, int32_t steps) const {
    constexpr int32_t kChannels = 2 * kPosenetKeypoints;
    for (int32_t i = 0; i < steps; ++i) {
      const float y = Sample(offsets, kChannels, at, kind);
      const float x = Sample(offsets, kChannels, at, kind + kPosenetKeypoints);
      at = Clamped(at.y + y, at.x + x);
    }
    return at;
  }

  Keypoint Neighbour(Point from, int32_t kind, int32_t channel) const {
    const auto offset = [&](Point at) {
      constexpr int32_t kChannels = 4 * kPosenetEdges;
      return Point{Sample(maps_.mid_offsets, kChannels, at, channel),
                   Sample(maps_.mid_offsets, kChannels, at, channel + kPosenetEdges)};
    };
    const Point first = offset(from);
    const Point at = Refined(Clamped(from.y + first.y, from.x + first.x), maps_.short_offsets, kind,
                             kRefinements);
    return {Sample(maps_.heat, kPosenetKeypoints, at, kind), at, kind};
  }

  void Grow(const Keypoint& root, Pose* pose) const {
    // Each keypoint pushes its undecoded neighbours, so each edge pushes at most once per end.
    std::array<Keypoint, 2 * kPosenetEdges + 1> heap;
    size_t size = 0;
    const auto push = [&](const Keypoint& keypoint) {
      heap[size++] = keypoint;
      std::push_heap(heap.begin(), heap.begin() + static_cast<std::ptrdiff_t>(size), Less);
    };
    std::array<bool, kPosenetKeypoints> decoded = {};
    push({Sample(maps_.heat, kPosenetKeypoints, root.at, root.kind), root.at, root.kind});
    while (size > 0) {
      std::pop_heap(heap.begin(), heap.begin() + static_cast<std::ptrdiff_t>(size), Less);
      const Keypoint keypoint = heap[--size];
      if (decoded[static_cast<size_t>(keypoint.kind)]) continue;
      decoded[static_cast<size_t>(keypoint.kind)] = true;
      pose->at[keypoint.kind] = keypoint.at;
      pose->scores[keypoint.kind] = keypoint.score;
      const auto push_neighbour = [&](int32_t near, int32_t far, int32_t channel) {
        if (near == keypoint.kind && !decoded[static_cast<size_t>(far)]) {
          push(Neighbour(keypoint.at, far, channel));
        }
      };
      for (int32_t e = 0; e < kPosenetEdges; ++e) {
        push_neighbour(kEdges[e].parent, kEdges[e].child, e);
      }
      for (int32_t e = 0; e < kPosenetEdges; ++e) {
        push_neighbour(kEdges[e].child, kEdges[e].parent, 2 * kPosenetEdges + e);
      }
    }
    // The skeleton is connected, so all keypoints are there.
    std::array<float, kPosenetKeypoints> scores;
    for (size_t k = 0; k < scores.size(); ++k) {
      scores[k] = pose->scores[k] = 1.0f / (1.0f + std::exp(-pose->scores[k]));
    }
    pose->score = MeanOf(scores.data(), scores.size());
  }

  // The sum in decreasing order over 17. Sorts `scores`.
  static float MeanOf(float* scores, size_t count) {
    // Not-a-numbers, which a float model can produce, go last: std::sort needs an order.
    std::sort(scores, scores + count,
              [](float a, float b) { return a > b || (std::isnan(b) && !std::isnan(a)); });
    return std::accumulate(scores, scores + count, 0.0f) / static_cast<float>(kPosenetKeypoints);
  }

  void SortBy(float Pose::*score, int32_t poses) {
    std::iota(arrays_.order, arrays_.order + poses, 0);
    std::sort(arrays_.order, arrays_.order + poses, [&](int32_t a, int32_t b) {
      const float first = arrays_.poses[a].*score;
      const float second = arrays_.poses[b].*score;
      return first != second ? first > second : a < b;
    });
  }

  const PosenetParams& p_;
  const PosenetMaps& maps_;
  const Arrays& arrays_;
  float squared_radius_ = 0;
};

}  // namespace

bool PosenetMasksFit(const PosenetParams& p) {
  // TensorFlow Lite first clears h * w elements per pose, then writes the one of each cell.
  const int64_t room = int64_t{p.max_detections} * kPosenetMaskSize * kPosenetMaskSize;
  const int64_t last = (int64_t{p.max_detections - 1} * p.w + p.h - 1) * p.h + p.w - 1;
  return last < room && int64_t{p.h} * p.w <= kPosenetMaskSize * kPosenetMaskSize;
}

size_t PosenetScratchBytes(const PosenetParams& params) {
  Scratch scratch(nullptr);
  Take(params, &scratch);
  return scratch.size();
}

void DecodePoses(const PosenetParams& p, const PosenetMaps& maps, const PosenetOutputs& outputs,
                 uint8_t* scratch) {
  Scratch block(scratch);
  const Arrays arrays = Take(p, &block);
  Decoder decoder(p, maps, arrays);
  const int32_t poses = decoder.Decode();
  decoder.Rank(poses);
  const int64_t entries = p.max_detections;
  std::fill(outputs.keypoints, outputs.keypoints + entries * kPosenetKeypoints * 2, 0.0f);
  std::fill(outputs.keypoint_scores, outputs.keypoint_scores + entries * kPosenetKeypoints, 0.0f);
  std::fill(outputs.pose_scores, outputs.pose_scores + entries, 0.0f);
  int32_t count = 0;
  for (; count < poses; ++count) {
    const Pose& pose = arrays.poses[arrays.order[count]];
    if (pose.final_score < p.score_threshold) break;
    for (int32_t k = 0; k < kPosenetKeypoints; ++k) {
      const int64_t entry = int64_t{count} * kPosenetKeypoints + k;
      outputs.keypoints[2 * entry] = pose.at[k].y * static_cast<float>(p.stride);
      outputs.keypoints[2 * entry + 1] = pose.at[k].x * static_cast<float>(p.stride);
      outputs.keypoint_scores[entry] = pose.scores[k];
    }
    outputs.pose_scores[count] = pose.final_score;
  }
  *outputs.count = static_cast<float>(count);
  if (maps.long_offsets == nullptr) return;
  const int64_t mask_elements = entries * kPosenetMaskSize * kPosenetMaskSize;
  std::fill(outputs.masks, outputs.masks + mask_elements, 0.0f);
  decoder.FillMasks(outputs.keypoints, count, outputs.masks);
}

}  // namespace atollrt
