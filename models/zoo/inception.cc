// SPDX-License-Identifier: Apache-2.0
//
// Inception v1 (Szegedy et al. 2014, arXiv 1409.4842; with 3x3 for 5x5 as in TensorFlow's
// version), v3 (2015, arXiv 1512.00567), v4 and Inception-ResNet v2 (2016, arXiv 1602.07261).
#include "models/zoo/networks.h"

namespace atollrt {
namespace {

constexpr Padding kValid = Padding::kValid;

// A chain of convolutions.
struct Layer {
  int32_t channels;
  Window window;
};
int32_t Chain(NetworkBuilder* b, int32_t x, const std::vector<Layer>& layers) {
  for (const Layer& layer : layers) x = b->Conv(x, layer.channels, layer.window);
  return x;
}

// ---- v1 -----------------------------------------------------------------------------------------

struct Mixed {
  int32_t one, reduce_three, three, reduce_five, five, pool;
};

int32_t MixedV1(NetworkBuilder* b, int32_t x, const Mixed& m) {
  return b->Concat({b->Conv(x, m.one, Square(1)),
                    Chain(b, x, {{m.reduce_three, Square(1)}, {m.three, Square(3)}}),
                    Chain(b, x, {{m.reduce_five, Square(1)}, {m.five, Square(3)}}),
                    b->Conv(b->MaxPool(x, Square(3)), m.pool, Square(1))});
}

// ---- v3 -----------------------------------------------------------------------------------------

int32_t MixedV3A(NetworkBuilder* b, int32_t x, int32_t pool) {
  return b->Concat({b->Conv(x, 64, Square(1)), Chain(b, x, {{48, Square(1)}, {64, Square(5)}}),
                    Chain(b, x, {{64, Square(1)}, {96, Square(3)}, {96, Square(3)}}),
                    b->Conv(b->AveragePool(x, Square(3)), pool, Square(1))});
}

int32_t MixedV3B(NetworkBuilder* b, int32_t x, int32_t n) {
  return b->Concat(
      {b->Conv(x, 192, Square(1)),
       Chain(b, x, {{n, Square(1)}, {n, Line(1, 7)}, {192, Line(7, 1)}}),
       Chain(
           b, x,
           {{n, Square(1)}, {n, Line(7, 1)}, {n, Line(1, 7)}, {n, Line(7, 1)}, {192, Line(1, 7)}}),
       b->Conv(b->AveragePool(x, Square(3)), 192, Square(1))});
}

int32_t MixedV3C(NetworkBuilder* b, int32_t x) {
  const int32_t one = b->Conv(x, 320, Square(1));
  const int32_t two = b->Conv(x, 384, Square(1));
  const int32_t three = Chain(b, x, {{448, Square(1)}, {384, Square(3)}});
  return b->Concat({one, b->Concat({b->Conv(two, 384, Line(1, 3)), b->Conv(two, 384, Line(3, 1))}),
                    b->Concat({b->Conv(three, 384, Line(1, 3)), b->Conv(three, 384, Line(3, 1))}),
                    b->Conv(b->AveragePool(x, Square(3)), 192, Square(1))});
}

// ---- v4 -----------------------------------------------------------------------------------------

int32_t StemV4(NetworkBuilder* b, int32_t x) {
  x = Chain(b, x, {{32, Square(3, 2, kValid)}, {32, Square(3, 1, kValid)}, {64, Square(3)}});
  x = b->Concat({b->MaxPool(x, Square(3, 2, kValid)), b->Conv(x, 96, Square(3, 2, kValid))});
  x = b->Concat(
      {Chain(b, x, {{64, Square(1)}, {96, Square(3, 1, kValid)}}),
       Chain(b, x,
             {{64, Square(1)}, {64, Line(1, 7)}, {64, Line(7, 1)}, {96, Square(3, 1, kValid)}})});
  return b->Concat({b->Conv(x, 192, Square(3, 2, kValid)), b->MaxPool(x, Square(3, 2, kValid))});
}

int32_t MixedV4A(NetworkBuilder* b, int32_t x) {
  return b->Concat({b->Conv(x, 96, Square(1)), Chain(b, x, {{64, Square(1)}, {96, Square(3)}}),
                    Chain(b, x, {{64, Square(1)}, {96, Square(3)}, {96, Square(3)}}),
                    b->Conv(b->AveragePool(x, Square(3)), 96, Square(1))});
}

int32_t MixedV4B(NetworkBuilder* b, int32_t x) {
  return b->Concat({b->Conv(x, 384, Square(1)),
                    Chain(b, x, {{192, Square(1)}, {224, Line(1, 7)}, {256, Line(7, 1)}}),
                    Chain(b, x,
                          {{192, Square(1)},
                           {192, Line(7, 1)},
                           {224, Line(1, 7)},
                           {224, Line(7, 1)},
                           {256, Line(1, 7)}}),
                    b->Conv(b->AveragePool(x, Square(3)), 128, Square(1))});
}

int32_t MixedV4C(NetworkBuilder* b, int32_t x) {
  const int32_t one = b->Conv(x, 256, Square(1));
  const int32_t two = b->Conv(x, 384, Square(1));
  const int32_t three = Chain(b, x, {{384, Square(1)}, {448, Line(3, 1)}, {512, Line(1, 3)}});
  return b->Concat({one, b->Concat({b->Conv(two, 256, Line(1, 3)), b->Conv(two, 256, Line(3, 1))}),
                    b->Concat({b->Conv(three, 256, Line(1, 3)), b->Conv(three, 256, Line(3, 1))}),
                    b->Conv(b->AveragePool(x, Square(3)), 256, Square(1))});
}

// ---- Inception-ResNet ---------------------------------------------------------------------------

// The paper scales what a block adds, so that deep ones train.
constexpr double kSmallResidualGain = 0.2;

int32_t Residual(NetworkBuilder* b, int32_t x, const std::vector<int32_t>& branches,
                 Activation activation) {
  const int32_t mixed =
      b->Conv(b->Concat(branches), b->channels(x), Linear(Square(1), kSmallResidualGain));
  return b->Add(x, mixed, activation);
}

int32_t Block35(NetworkBuilder* b, int32_t x) {
  return Residual(b, x,
                  {b->Conv(x, 32, Square(1)), Chain(b, x, {{32, Square(1)}, {32, Square(3)}}),
                   Chain(b, x, {{32, Square(1)}, {48, Square(3)}, {64, Square(3)}})},
                  Activation::kRelu);
}

int32_t Block17(NetworkBuilder* b, int32_t x) {
  return Residual(b, x,
                  {b->Conv(x, 192, Square(1)),
                   Chain(b, x, {{128, Square(1)}, {160, Line(1, 7)}, {192, Line(7, 1)}})},
                  Activation::kRelu);
}

int32_t Block8(NetworkBuilder* b, int32_t x, Activation activation) {
  return Residual(b, x,
                  {b->Conv(x, 192, Square(1)),
                   Chain(b, x, {{192, Square(1)}, {224, Line(1, 3)}, {256, Line(3, 1)}})},
                  activation);
}

}  // namespace

void InceptionV1(NetworkBuilder* b, const ZooParameters& p) {
  int32_t x = b->Input(p.height, p.columns);
  x = b->MaxPool(b->Conv(x, 64, Square(7, 2)), Square(3, 2));
  x = b->MaxPool(Chain(b, x, {{64, Square(1)}, {192, Square(3)}}), Square(3, 2));
  x = MixedV1(b, x, {64, 96, 128, 16, 32, 32});
  x = MixedV1(b, x, {128, 128, 192, 32, 96, 64});
  x = b->MaxPool(x, Square(3, 2));
  x = MixedV1(b, x, {192, 96, 208, 16, 48, 64});
  x = MixedV1(b, x, {160, 112, 224, 24, 64, 64});
  x = MixedV1(b, x, {128, 128, 256, 24, 64, 64});
  x = MixedV1(b, x, {112, 144, 288, 32, 64, 64});
  x = MixedV1(b, x, {256, 160, 320, 32, 128, 128});
  x = b->MaxPool(x, Square(2, 2));
  x = MixedV1(b, x, {256, 160, 320, 32, 128, 128});
  x = MixedV1(b, x, {384, 192, 384, 48, 128, 128});
  ConvolutionalClassifier(b, b->GlobalAveragePool(x), 1001);
}

void InceptionV3(NetworkBuilder* b, const ZooParameters& p) {
  int32_t x = b->Input(p.height, p.columns);
  x = Chain(b, x, {{32, Square(3, 2, kValid)}, {32, Square(3, 1, kValid)}, {64, Square(3)}});
  x = b->MaxPool(x, Square(3, 2, kValid));
  x = Chain(b, x, {{80, Square(1)}, {192, Square(3, 1, kValid)}});
  x = b->MaxPool(x, Square(3, 2, kValid));
  for (const int32_t pool : {32, 64, 64}) x = MixedV3A(b, x, pool);
  x = b->Concat({b->Conv(x, 384, Square(3, 2, kValid)),
                 Chain(b, x, {{64, Square(1)}, {96, Square(3)}, {96, Square(3, 2, kValid)}}),
                 b->MaxPool(x, Square(3, 2, kValid))});
  for (const int32_t n : {128, 160, 160, 192}) x = MixedV3B(b, x, n);
  x = b->Concat(
      {Chain(b, x, {{192, Square(1)}, {320, Square(3, 2, kValid)}}),
       Chain(b, x,
             {{192, Square(1)}, {192, Line(1, 7)}, {192, Line(7, 1)}, {192, Square(3, 2, kValid)}}),
       b->MaxPool(x, Square(3, 2, kValid))});
  for (int i = 0; i < 2; ++i) x = MixedV3C(b, x);
  ConvolutionalClassifier(b, b->GlobalAveragePool(x), 1001);
}

void InceptionV4(NetworkBuilder* b, const ZooParameters& p) {
  int32_t x = StemV4(b, b->Input(p.height, p.columns));
  for (int i = 0; i < 4; ++i) x = MixedV4A(b, x);
  x = b->Concat({b->Conv(x, 384, Square(3, 2, kValid)),
                 Chain(b, x, {{192, Square(1)}, {224, Square(3)}, {256, Square(3, 2, kValid)}}),
                 b->MaxPool(x, Square(3, 2, kValid))});
  for (int i = 0; i < 7; ++i) x = MixedV4B(b, x);
  x = b->Concat(
      {Chain(b, x, {{192, Square(1)}, {192, Square(3, 2, kValid)}}),
       Chain(b, x,
             {{256, Square(1)}, {256, Line(1, 7)}, {320, Line(7, 1)}, {320, Square(3, 2, kValid)}}),
       b->MaxPool(x, Square(3, 2, kValid))});
  for (int i = 0; i < 3; ++i) x = MixedV4C(b, x);
  DenseClassifier(b, b->GlobalAveragePool(x), 1001);
}

void InceptionResNetV2(NetworkBuilder* b, const ZooParameters& p) {
  int32_t x = b->Input(p.height, p.columns);
  x = Chain(b, x, {{32, Square(3, 2, kValid)}, {32, Square(3, 1, kValid)}, {64, Square(3)}});
  x = b->MaxPool(x, Square(3, 2, kValid));
  x = Chain(b, x, {{80, Square(1)}, {192, Square(3, 1, kValid)}});
  x = b->MaxPool(x, Square(3, 2, kValid));
  x = b->Concat({b->Conv(x, 96, Square(1)), Chain(b, x, {{48, Square(1)}, {64, Square(5)}}),
                 Chain(b, x, {{64, Square(1)}, {96, Square(3)}, {96, Square(3)}}),
                 b->Conv(b->AveragePool(x, Square(3)), 64, Square(1))});
  for (int i = 0; i < 10; ++i) x = Block35(b, x);
  x = b->Concat({b->Conv(x, 384, Square(3, 2, kValid)),
                 Chain(b, x, {{256, Square(1)}, {256, Square(3)}, {384, Square(3, 2, kValid)}}),
                 b->MaxPool(x, Square(3, 2, kValid))});
  for (int i = 0; i < 20; ++i) x = Block17(b, x);
  x = b->Concat({Chain(b, x, {{256, Square(1)}, {384, Square(3, 2, kValid)}}),
                 Chain(b, x, {{256, Square(1)}, {288, Square(3, 2, kValid)}}),
                 Chain(b, x, {{256, Square(1)}, {288, Square(3)}, {320, Square(3, 2, kValid)}}),
                 b->MaxPool(x, Square(3, 2, kValid))});
  for (int i = 0; i < 9; ++i) x = Block8(b, x, Activation::kRelu);
  x = Block8(b, x, Activation::kNone);
  x = b->Conv(x, 1536, Square(1));
  DenseClassifier(b, b->GlobalAveragePool(x), 1001);
}

}  // namespace atollrt
