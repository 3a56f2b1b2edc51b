// SPDX-License-Identifier: Apache-2.0
#include "tools/atoll/scores.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace atollcmd {
namespace {

constexpr size_t kDetectionsMax = 100;
constexpr int kResamplings = 200;

double AreaOf(double left, double top, double right, double bottom) {
  return std::max(right - left, 0.0) * std::max(bottom - top, 0.0);
}

// Intersection over union; with a crowd, over the detection alone.
double Overlap(const atollrt::Detection& a, const TrueBox& b) {
  const double both =
      AreaOf(std::max<double>(a.left, b.left), std::max<double>(a.top, b.top),
             std::min<double>(a.right, b.right), std::min<double>(a.bottom, b.bottom));
  const double found = AreaOf(a.left, a.top, a.right, a.bottom);
  const double whole = b.crowd ? found : found + AreaOf(b.left, b.top, b.right, b.bottom) - both;
  return whole > 0 ? both / whole : 0;
}

template <typename Mean>
Interval Resampled(size_t count, const Mean& mean) {
  std::vector<size_t> indices(count);
  std::iota(indices.begin(), indices.end(), size_t{0});
  Interval interval;
  interval.value = mean(indices);
  std::mt19937_64 random(1);
  std::vector<double> values;
  for (int i = 0; i < kResamplings && count > 0; ++i) {
    for (size_t& index : indices) index = random() % count;
    values.push_back(mean(indices));
  }
  if (values.empty()) return {0, 0, 1};
  std::sort(values.begin(), values.end());
  interval.low = std::min(interval.value, values[kResamplings / 40]);
  interval.high = std::max(interval.value, values[values.size() - 1 - kResamplings / 40]);
  return interval;
}

}  // namespace

Interval Share(int64_t hits, int64_t count) {
  if (count == 0) return {0, 0, 1};
  constexpr double kZ = 1.959963984540054;
  const auto n = static_cast<double>(count);
  const double share = static_cast<double>(hits) / n;
  const double middle = (share + kZ * kZ / (2 * n)) / (1 + kZ * kZ / n);
  const double reach =
      kZ / (1 + kZ * kZ / n) * std::sqrt(share * (1 - share) / n + kZ * kZ / (4 * n * n));
  return {share, std::max(middle - reach, 0.0), std::min(middle + reach, 1.0)};
}

void DetectionScore::Add(const std::vector<atollrt::Detection>& found,
                         const std::vector<TrueBox>& truth) {
  Picture& picture = pictures_.emplace_back();
  for (const TrueBox& box : truth) {
    OfClass& of_class = picture[box.class_index];
    if (!box.crowd) ++of_class.truths;
  }
  std::vector<atollrt::Detection> best = found;
  std::stable_sort(best.begin(), best.end(),
                   [](const auto& a, const auto& b) { return a.score > b.score; });
  if (best.size() > kDetectionsMax) best.resize(kDetectionsMax);
  std::vector<uint16_t> taken(truth.size());  // one bit for each overlap
  for (const atollrt::Detection& detection : best) {
    Answer answer = {detection.score, 0, 0};
    for (size_t k = 0; k < kOverlaps; ++k) {
      const auto bit = static_cast<uint16_t>(1u << k);
      // The truth of most overlap that nothing better has taken; crowds after all others.
      double most = 0.5 + 0.05 * static_cast<double>(k) - 1e-9;
      const TrueBox* match = nullptr;
      for (const TrueBox& box : truth) {
        const auto index = static_cast<size_t>(&box - truth.data());
        if (box.class_index != detection.class_index) continue;
        if (!box.crowd && (taken[index] & bit) != 0) continue;
        if (match != nullptr && !match->crowd && box.crowd) continue;
        const double overlap = Overlap(detection, box);
        const bool after_crowd = match != nullptr && match->crowd && !box.crowd;
        if (overlap < (after_crowd ? 0.5 + 0.05 * static_cast<double>(k) - 1e-9 : most)) continue;
        most = overlap;
        match = &box;
      }
      if (match == nullptr) continue;
      (match->crowd ? answer.ignored : answer.right) |= bit;
      if (!match->crowd) taken[static_cast<size_t>(match - truth.data())] |= bit;
    }
    picture[detection.class_index].answers.push_back(answer);
  }
}

double DetectionScore::MeanOver(const std::vector<size_t>& indices, size_t overlaps) const {
  std::map<int, OfClass> all;
  for (const size_t index : indices) {
    for (const auto& [class_index, of_class] : pictures_[index]) {
      OfClass& sum = all[class_index];
      sum.truths += of_class.truths;
      sum.answers.insert(sum.answers.end(), of_class.answers.begin(), of_class.answers.end());
    }
  }
  double total = 0;
  int classes = 0;
  for (auto& [class_index, of_class] : all) {
    if (of_class.truths == 0) continue;
    ++classes;
    std::stable_sort(of_class.answers.begin(), of_class.answers.end(),
                     [](const Answer& a, const Answer& b) { return a.score > b.score; });
    for (size_t k = 0; k < overlaps; ++k) {
      const auto bit = static_cast<uint16_t>(1u << k);
      std::vector<double> precision, recall;
      int64_t right = 0;
      int64_t wrong = 0;
      for (const Answer& answer : of_class.answers) {
        if ((answer.ignored & bit) != 0) continue;
        ++((answer.right & bit) != 0 ? right : wrong);
        precision.push_back(static_cast<double>(right) / static_cast<double>(right + wrong));
        recall.push_back(static_cast<double>(right) / static_cast<double>(of_class.truths));
      }
      for (size_t i = precision.size(); i-- > 1;) {
        precision[i - 1] = std::max(precision[i - 1], precision[i]);
      }
      constexpr int kPoints = 101;
      double sum = 0;
      for (int point = 0; point < kPoints; ++point) {
        const auto reached =
            std::lower_bound(recall.begin(), recall.end(), point / double{kPoints - 1} - 1e-12);
        if (reached != recall.end())
          sum += precision[static_cast<size_t>(reached - recall.begin())];
      }
      total += sum / kPoints;
    }
  }
  return classes == 0 ? 0 : total / (classes * static_cast<double>(overlaps));
}

Interval DetectionScore::WithInterval(size_t overlaps) const {
  return Resampled(pictures_.size(),
                   [&](const auto& indices) { return MeanOver(indices, overlaps); });
}
Interval DetectionScore::Map() const { return WithInterval(kOverlaps); }
Interval DetectionScore::Map50() const { return WithInterval(1); }

void SegmentationScore::Add(const atollrt::Image& found, const atollrt::Image& truth) {
  constexpr int kNothing = 255;
  std::map<int, Counts>& picture = pictures_.emplace_back();
  for (size_t i = 0; i < truth.pixels.size() && i < found.pixels.size(); ++i) {
    const int wanted = truth.pixels[i];
    const int answer = found.pixels[i];
    if (wanted == kNothing) continue;
    ++picture[wanted].either;
    if (wanted == answer) {
      ++picture[wanted].both;
    } else {
      ++picture[answer].either;
    }
  }
}

double SegmentationScore::MeanOver(const std::vector<size_t>& indices) const {
  std::map<int, Counts> all;
  for (const size_t index : indices) {
    for (const auto& [class_index, counts] : pictures_[index]) {
      all[class_index].both += counts.both;
      all[class_index].either += counts.either;
    }
  }
  double sum = 0;
  for (const auto& [class_index, counts] : all) {
    sum += static_cast<double>(counts.both) / static_cast<double>(counts.either);
  }
  return all.empty() ? 0 : sum / static_cast<double>(all.size());
}

Interval SegmentationScore::MeanIou() const {
  return Resampled(pictures_.size(), [&](const auto& indices) { return MeanOver(indices); });
}

}  // namespace atollcmd
