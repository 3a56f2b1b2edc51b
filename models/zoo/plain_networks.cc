// SPDX-License-Identifier: Apache-2.0
//
// Networks for classification that are chains of blocks: VGG (Simonyan, Zisserman 2014, arXiv
// 1409.1556), SqueezeNet (Iandola et al. 2016, arXiv 1602.07360) and EfficientNet-EdgeTPU (Gupta,
// Akin 2020, arXiv 2003.02838).
#include <cmath>

#include "models/zoo/networks.h"

namespace atollrt {
namespace {

void Vgg(NetworkBuilder* b, const ZooParameters& p, const std::vector<int32_t>& layers) {
  int32_t x = b->Input(p.height, p.columns);
  int32_t channels = 64;
  for (const int32_t count : layers) {
    for (int32_t i = 0; i < count; ++i) x = b->Conv(x, channels, Square(3));
    x = b->MaxPool(x, Square(2, 2, Padding::kValid));
    channels = channels < 512 ? 2 * channels : 512;
  }
  x = b->Reshape(x, {1, b->shape(x)[1] * b->shape(x)[2] * b->shape(x)[3]});
  x = b->FullyConnected(x, 4096, Activation::kRelu);
  x = b->FullyConnected(x, 4096, Activation::kRelu);
  DenseClassifier(b, x, 1000);
}

int32_t Fire(NetworkBuilder* b, int32_t x, int32_t squeeze) {
  x = b->Conv(x, squeeze, Square(1));
  return b->Concat({b->Conv(x, 4 * squeeze, Square(1)), b->Conv(x, 4 * squeeze, Square(3))});
}

constexpr int32_t kSqueezes[] = {16, 16, 32, 32, 48, 48, 64, 64};

// A pooling layer follows the first convolution and the modules of `pools`.
void SqueezeNet(NetworkBuilder* b, int32_t x, const std::vector<int32_t>& pools) {
  const Window pool = Square(3, 2, Padding::kValid);
  x = b->MaxPool(x, pool);
  for (int32_t i = 0; i < 8; ++i) {
    x = Fire(b, x, kSqueezes[i]);
    for (const int32_t after : pools) {
      if (i == after) x = b->MaxPool(x, pool);
    }
  }
  x = b->Conv(x, 1000, Linear(Square(1), kLogitGain));
  b->Output(b->Softmax(b->Reshape(b->GlobalAveragePool(x), {1, 1000})));
}

struct EfficientNetScale {
  double width, depth;
};

// Blocks of expansion and projection; in the early stages one full convolution does what a
// pointwise and a depthwise one do in the later.
void EfficientNetEdgeTpu(NetworkBuilder* b, const ZooParameters& p,
                         const EfficientNetScale& scale) {
  struct Stage {
    int32_t blocks, kernel, stride, expansion, channels;
    bool fused, skip;
  };
  constexpr Stage kStages[] = {{1, 3, 1, 4, 24, true, false},  {2, 3, 2, 8, 32, true, true},
                               {4, 3, 2, 8, 48, true, true},   {5, 5, 2, 8, 96, false, true},
                               {4, 5, 1, 8, 144, false, true}, {2, 5, 2, 8, 192, false, true}};
  int32_t x = b->Conv(b->Input(p.height, p.columns), ScaledChannels(32, scale.width), Square(3, 2));
  for (const Stage& stage : kStages) {
    const int32_t channels = ScaledChannels(stage.channels, scale.width);
    // The first stage expands from its own width, not from the first layer's.
    const int32_t inputs = &stage == kStages ? channels : b->channels(x);
    const int32_t blocks = static_cast<int32_t>(std::ceil(stage.blocks * scale.depth));
    for (int32_t i = 0; i < blocks; ++i) {
      const Window window = Square(stage.kernel, i == 0 ? stage.stride : 1);
      const int32_t expanded = (i == 0 ? inputs : channels) * stage.expansion;
      int32_t y = stage.fused ? b->Conv(x, expanded, window)
                              : b->Depthwise(b->Conv(x, expanded, Square(1)), window);
      y = b->Conv(y, channels, Linear(Square(1)));
      x = i > 0 && stage.skip ? b->Add(x, y, Activation::kNone) : y;
    }
  }
  x = b->Conv(x, ScaledChannels(1280, scale.width), Square(1));
  DenseClassifier(b, b->GlobalAveragePool(x), 1001);
}

}  // namespace

void Vgg16(NetworkBuilder* b, const ZooParameters& p) { Vgg(b, p, {2, 2, 3, 3, 3}); }
void Vgg19(NetworkBuilder* b, const ZooParameters& p) { Vgg(b, p, {2, 2, 4, 4, 4}); }

void SqueezeNetV1_0(NetworkBuilder* b, const ZooParameters& p) {
  SqueezeNet(b, b->Conv(b->Input(p.height, p.columns), 96, Square(7, 2)), {2, 6});
}

void SqueezeNetV1_1(NetworkBuilder* b, const ZooParameters& p) {
  SqueezeNet(b, b->Conv(b->Input(p.height, p.columns), 64, Square(3, 2)), {1, 3});
}

void EfficientNetEdgeTpuS(NetworkBuilder* b, const ZooParameters& p) {
  EfficientNetEdgeTpu(b, p, {1.0, 1.0});
}
void EfficientNetEdgeTpuM(NetworkBuilder* b, const ZooParameters& p) {
  EfficientNetEdgeTpu(b, p, {1.0, 1.1});
}
void EfficientNetEdgeTpuL(NetworkBuilder* b, const ZooParameters& p) {
  EfficientNetEdgeTpu(b, p, {1.2, 1.4});
}

}  // namespace atollrt
