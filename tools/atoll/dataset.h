// SPDX-License-Identifier: Apache-2.0
//
// Pictures of which the truth is known.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "atoll/picture.h"
#include "atoll/vision.h"
#include "tools/atoll/labels.h"
#include "tools/atoll/scores.h"

namespace atollcmd {

struct KnownPicture {
  std::string name;
  atollrt::Image picture;
  int label = 0;               // Task::kClassify
  std::vector<TrueBox> boxes;  // Task::kDetect
  atollrt::Image mask;         // Task::kSegment: gray, of classes
};

class DataSet {
 public:
  virtual ~DataSet() = default;
  virtual atollrt::Task task() const = 0;
  virtual size_t size() const = 0;
  // How many classes the truth needs: one more than the largest.
  virtual int class_count() const = 0;
  // Throws CommandError if it cannot be read.
  virtual KnownPicture Load(size_t index, int channels) const = 0;
};

// Opens, by what `path` is; throws CommandError with what is wrong:
//   a folder with t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, either with .gz
//   (Fashion-MNIST) a folder with folders images and masks: for each picture a mask of the same
//   name, PNG or PGM,
//     whose pixels, or numbers in the palette of Pascal VOC, are classes
//   a folder with a folder for each class: by their names if `labels` has them all, by number if
//   all
//     are numbers, else in the order of their names
//   a .json file as COCO has them (instances): with pictures in `pictures`, "" for the folder of
//   the
//     file; categories by their names if `labels` has them all, else by number, the smallest first
std::unique_ptr<DataSet> OpenDataSet(const std::string& path, const std::string& pictures,
                                     const std::vector<std::string>& labels);

}  // namespace atollcmd
