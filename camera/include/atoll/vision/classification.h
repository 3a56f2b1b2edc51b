// SPDX-License-Identifier: Apache-2.0
//
// Classifiers: one output of shape [1,...,n], n >= 2, that holds a score per class.
#pragma once

#include <cstddef>
#include <vector>

#include "atoll/runtime.h"
#include "atoll/status.h"

namespace atollrt {

struct ClassScore {
  int class_index = 0;
  float score = 0;  // the output's real value: a probability only if the model ends in a softmax
};

class ClassificationReader {
 public:
  // kUnsupported, with a sentence that names the outputs, for any other model. The output is
  // float32, or uint8 or int8 with any scale (with none, the stored numbers are the scores).
  static Result<ClassificationReader> Create(AtollInterpreter* interpreter);

  int class_count() const { return class_count_; }

  // The `k` best classes (or all, if they are fewer), best first, equal scores in ascending order
  // of the class. A score that is not a number counts as minus infinity.
  void ReadTop(int k, std::vector<ClassScore>* top) const;
  // The first class of the highest score.
  ClassScore ReadBest() const;

 private:
  ClassificationReader(const AtollTensor* scores, int class_count)
      : scores_(scores), class_count_(class_count) {}

  const AtollTensor* scores_;
  int class_count_;
};

}  // namespace atollrt
