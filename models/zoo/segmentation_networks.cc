// SPDX-License-Identifier: Apache-2.0
//
// Segmentation on MobileNet v2: DeepLab v3 (Chen et al. 2017, arXiv 1706.05587; with 21 classes,
// output stride 16 and image pooling, as in TensorFlow's mobile version) and U-Net (Ronneberger et
// al. 2015, arXiv 1505.04597; as in TensorFlow's tutorial, with 3 classes).
#include "models/zoo/networks.h"

namespace atollrt {

void DeepLabV3MobileNetV2(NetworkBuilder* b, const ZooParameters& p) {
  constexpr int32_t kClasses = 21;
  constexpr int32_t kFeatures = 256;
  // This version rounds its channels to 8 only at full width.
  const int32_t x =
      MobileNetV2Body(
          b, b->Input(p.height, p.columns),
          {.width = p.width, .divisor = p.width < 1 ? 1 : 8, .dilated_last_stage = true})
          .outputs.back();
  const int32_t h = b->shape(x)[1], w = b->shape(x)[2];
  const int32_t pooled = b->GlobalAveragePool(x);
  const int32_t local = b->Conv(x, kFeatures, Square(1));
  const int32_t image = b->ResizeBilinear(b->Conv(pooled, kFeatures, Square(1)), h, w);
  int32_t y = b->Conv(b->Concat({image, local}), kFeatures, Square(1));
  y = b->Conv(y, kClasses, Linear(Square(1)));
  b->Output(b->ArgMax(b->ResizeBilinear(b->ResizeBilinear(y, h, w), p.height, p.columns)));
}

void UNetMobileNetV2(NetworkBuilder* b, const ZooParameters& p) {
  constexpr int32_t kClasses = 3;
  const MobileNetV2Features body =
      MobileNetV2Body(b, b->Input(p.height, p.columns), {.width = p.width});
  int32_t x = body.outputs[16];
  const struct {
    int32_t channels, skip;
  } kSteps[] = {{512, body.expansions[13]},
                {256, body.expansions[6]},
                {128, body.expansions[3]},
                {64, body.expansions[1]}};
  for (const auto& step : kSteps) {
    x = b->Concat({b->UpConv(x, step.channels, Activation::kRelu), step.skip});
  }
  b->Output(b->UpConv(x, kClasses, Activation::kNone));
}

}  // namespace atollrt
