// SPDX-License-Identifier: Apache-2.0
//
// Pictures as the inputs of a load test, and what its answers say of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/vision.h"
#include "tools/atoll/dataset.h"
#include "tools/atoll/load_target.h"
#include "tools/atoll/session.h"

namespace atollcmd {

// Makes inputs of pictures, as the model of `session`, which must outlive it, takes them.
class PictureSamples {
 public:
  // Throws CommandError unless the model takes pictures.
  PictureSamples(const Session& session, const atollrt::PixelScaling& scaling);

  int channels() const { return input_.channels(); }
  Inputs Make(const atollrt::Image& picture, const std::string& name) const;
  // Of all pictures in a folder in the order of their names, at most 1,024 of them and 1 GiB. What
  // has not the name of a picture is left out.
  std::vector<Inputs> MakeAll(const std::string& folder) const;

 private:
  const Session& session_;
  atollrt::PictureInput input_;
};

// The indices of the `k` largest values, or of all, the largest first, equal ones in ascending
// order; what is not a number comes last. Throws CommandError for types that are no scores.
std::vector<int> TopClasses(const OutputBytes& scores, size_t k);

// How many numbers they are. Throws as above.
size_t CountScores(const OutputBytes& scores);

// The answers of a classifier, counted.
struct Accuracy {
  int64_t pictures = 0;
  int64_t top1 = 0, top5 = 0;

  void Add(const OutputBytes& scores, int label);
};

}  // namespace atollcmd
