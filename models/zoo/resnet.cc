// SPDX-License-Identifier: Apache-2.0
//
// ResNet v1 (He et al. 2015, arXiv 1512.03385), v2 with normalization before each block (2016,
// arXiv 1603.05027), and DenseNet-121 (Huang et al. 2016, arXiv 1608.06993).
#include "models/zoo/networks.h"

namespace atollrt {
namespace {

struct Stages {
  int32_t blocks[4];
};
constexpr Stages k50 = {{3, 4, 6, 3}};
constexpr Stages k101 = {{3, 4, 23, 3}};
constexpr Stages k152 = {{3, 8, 36, 3}};

constexpr double kResidualGain = 0.5;  // of what a block adds

int32_t BlockV1(NetworkBuilder* b, int32_t x, int32_t channels, int32_t stride) {
  int32_t shortcut = x;
  if (b->channels(x) != 4 * channels) {
    shortcut = b->Conv(x, 4 * channels, Linear(Square(1, stride)));
  }
  int32_t y = b->Conv(x, channels, Square(1, stride));
  y = b->Conv(y, channels, Square(3));
  y = b->Conv(y, 4 * channels, Linear(Square(1), kResidualGain));
  return b->Add(shortcut, y, Activation::kRelu);
}

void ResNetV1(NetworkBuilder* b, const ZooParameters& p, const Stages& stages) {
  int32_t x = b->Input(p.height, p.columns);
  x = b->MaxPool(b->Conv(x, 64, Square(7, 2)), Square(3, 2));
  int32_t channels = 64;
  for (const int32_t blocks : stages.blocks) {
    for (int32_t i = 0; i < blocks; ++i) {
      x = BlockV1(b, x, channels, i == 0 && channels > 64 ? 2 : 1);
    }
    channels *= 2;
  }
  DenseClassifier(b, b->GlobalAveragePool(x), 1000);
}

int32_t BlockV2(NetworkBuilder* b, int32_t x, int32_t channels, int32_t stride) {
  const int32_t normalized = b->NormalizeRelu(x);
  int32_t shortcut = x;
  if (b->channels(x) != 4 * channels) {
    shortcut = b->Conv(normalized, 4 * channels, Linear(Square(1, stride)));
  } else if (stride > 1) {
    shortcut = b->MaxPool(x, Square(1, stride));
  }
  int32_t y = b->Conv(normalized, channels, Square(1));
  y = b->Conv(y, channels, Square(3, stride));
  y = b->Conv(y, 4 * channels, Linear(Square(1), kResidualGain));
  return b->Add(shortcut, y, Activation::kNone);
}

// Strides are in the last block of a stage.
void ResNetV2(NetworkBuilder* b, const ZooParameters& p, const Stages& stages) {
  int32_t x = b->Input(p.height, p.columns);
  x = b->MaxPool(b->Conv(x, 64, Linear(Square(7, 2))), Square(3, 2));
  int32_t channels = 64;
  for (const int32_t blocks : stages.blocks) {
    for (int32_t i = 0; i < blocks; ++i) {
      x = BlockV2(b, x, channels, i == blocks - 1 && channels < 512 ? 2 : 1);
    }
    channels *= 2;
  }
  DenseClassifier(b, b->GlobalAveragePool(b->NormalizeRelu(x)), 1001);
}

}  // namespace

void ResNetV1_50(NetworkBuilder* b, const ZooParameters& p) { ResNetV1(b, p, k50); }
void ResNetV1_101(NetworkBuilder* b, const ZooParameters& p) { ResNetV1(b, p, k101); }
void ResNetV1_152(NetworkBuilder* b, const ZooParameters& p) { ResNetV1(b, p, k152); }
void ResNetV2_50(NetworkBuilder* b, const ZooParameters& p) { ResNetV2(b, p, k50); }
void ResNetV2_101(NetworkBuilder* b, const ZooParameters& p) { ResNetV2(b, p, k101); }
void ResNetV2_152(NetworkBuilder* b, const ZooParameters& p) { ResNetV2(b, p, k152); }

void DenseNet121(NetworkBuilder* b, const ZooParameters& p) {
  constexpr int32_t kBlocks[] = {6, 12, 24, 16};
  constexpr int32_t kGrowth = 32;
  int32_t x = b->Input(p.height, p.columns);
  x = b->MaxPool(b->Conv(x, 64, Square(7, 2)), Square(3, 2));
  for (const int32_t layers : kBlocks) {
    if (layers != kBlocks[0]) {  // from one block to the next: half the channels, half the size
      x = b->Conv(b->NormalizeRelu(x), b->channels(x) / 2, Linear(Square(1)));
      x = b->AveragePool(x, Square(2, 2, Padding::kValid));
    }
    for (int32_t i = 0; i < layers; ++i) {
      int32_t y = b->Conv(b->NormalizeRelu(x), 4 * kGrowth, Square(1));
      y = b->Conv(y, kGrowth, Linear(Square(3)));
      x = b->Concat({x, y});
    }
  }
  DenseClassifier(b, b->GlobalAveragePool(b->NormalizeRelu(x)), 1000);
}

}  // namespace atollrt
