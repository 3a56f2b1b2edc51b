#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Quantizes the trained network to int8 and writes it as a TensorFlow Lite model.

Post-training quantization: batch normalization is folded into the convolutions; weights get one
symmetric scale per output channel (the classifier: one in all), activations one scale and zero
point from the range seen on training images, biases int32 in units of input scale * weight scale.
The input is pixel / 255, so that its int8 value is pixel - 128.

Example:
  ./quantize.py --weights fashion.pt --output fashion_int8.tflite
"""

import argparse
import hashlib
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

import dataset
from network import FashionNet
from tflite_writer import ACTIVATION, PADDING, ModelWriter, Quantization

DESCRIPTION = "Fashion-MNIST classifier, int8: [1, 28, 28, 1] pixels to 10 class probabilities"


@dataclass
class Value:
    """A tensor of the graph together with its float values on the calibration images (NCHW)."""
    tensor: int
    floats: torch.Tensor
    quantization: Quantization


class Converter:
    """Runs the float network on calibration images, one op a call, and writes each op it runs."""

    def __init__(self):
        self.writer = ModelWriter()

    def input(self, name, floats):
        return self._value(name, floats, Quantization(1 / 255, -128))

    def conv(self, name, x, layer, activation):
        weights, bias = layer.folded()
        y = F.conv2d(x.floats, weights, bias, padding=1)
        y = self._value(name, F.relu(y) if activation == "RELU" else y)
        ohwi = weights.permute(0, 2, 3, 1).numpy()
        scale = symmetric_scale(ohwi, axis=(1, 2, 3))
        self._weighted("CONV_2D", name, x, y, ohwi, scale, bias, padding=PADDING["SAME"],
                       stride_w=1, stride_h=1, dilation_w_factor=1, dilation_h_factor=1,
                       fused_activation_function=ACTIVATION[activation])
        return y

    def fully_connected(self, name, x, layer):
        y = self._value(name, layer(x.floats))
        weights = layer.weight.numpy()
        scale = symmetric_scale(weights, axis=None)
        self._weighted("FULLY_CONNECTED", name, x, y, weights, scale, layer.bias,
                       fused_activation_function=ACTIVATION["NONE"])
        return y

    def max_pool(self, name, x):
        y = self._value(name, F.max_pool2d(x.floats, 2), x.quantization)
        self.writer.operator("MAX_POOL_2D", [x.tensor], y.tensor, padding=PADDING["VALID"],
                             stride_w=2, stride_h=2, filter_width=2, filter_height=2)
        return y

    def add_relu(self, name, x1, x2):
        y = self._value(name, F.relu(x1.floats + x2.floats))
        self.writer.operator("ADD", [x1.tensor, x2.tensor], y.tensor,
                             fused_activation_function=ACTIVATION["RELU"])
        return y

    def mean(self, name, x):
        y = self._value(name, x.floats.mean((2, 3)))
        axes = self.writer.constant(f"{name}/axes", np.array([1, 2], np.int32))
        self.writer.operator("MEAN", [x.tensor, axes], y.tensor, keep_dims=False)
        return y

    def softmax(self, name, x):
        y = self._value(name, F.softmax(x.floats, 1), Quantization(1 / 256, -128))
        self.writer.operator("SOFTMAX", [x.tensor], y.tensor, beta=1.0)
        return y

    def _value(self, name, floats, quantization=None):
        n, *chw = floats.shape
        shape = [1, *chw[1:], chw[0]]
        quantization = quantization or activation_quantization(floats)
        print(f"{name:20} {str(shape):16} range {floats.min():8.3f} ... {floats.max():7.3f}  "
              f"scale {float(quantization.scale):.6f}  zero point {quantization.zero_point}")
        return Value(self.writer.activation(name, shape, quantization), floats, quantization)

    def _weighted(self, operator, name, x, y, weights, scale, bias, **options):
        """Adds an operator whose output channels are the first dimension of its weights."""
        quantized = np.rint(weights / scale.reshape(-1, *[1] * (weights.ndim - 1)))
        bias_scale = np.float32(x.quantization.scale) * scale
        self.writer.operator(operator, [
            x.tensor,
            self.writer.constant(f"{name}/weights", quantized.astype(np.int8),
                                 Quantization(scale, 0)),
            self.writer.constant(f"{name}/bias",
                                 np.rint(bias.numpy() / bias_scale).astype(np.int32),
                                 Quantization(bias_scale, 0))], y.tensor, **options)


def symmetric_scale(weights, axis):
    """One scale per first index, or a single one; a floor keeps it positive in dead channels."""
    return np.maximum(np.abs(weights).max(axis=axis), np.float32(1e-4)) / np.float32(127)


def activation_quantization(floats):
    """Maps the range of the values, widened to contain 0, onto -128 ... 127."""
    low, high = min(0.0, floats.min().item()), max(0.0, floats.max().item())
    scale = np.float32((high - low) / 255)
    return Quantization(scale, int(np.rint(-128 - low / scale)))


@torch.no_grad()
def convert(net, images):
    """Returns the bytes of the model; mirrors FashionNet.forward."""
    c = Converter()
    image = c.input("image", images)
    x = c.conv("stem", image, net.stem, "RELU")
    x = c.max_pool("stem/pool", x)
    x = c.conv("conv1", x, net.conv1, "RELU")
    x = c.add_relu("block1", x, c.conv("residual1", x, net.residual1, "NONE"))
    x = c.max_pool("block1/pool", x)
    x = c.conv("conv2", x, net.conv2, "RELU")
    x = c.add_relu("block2", x, c.conv("residual2", x, net.residual2, "NONE"))
    x = c.mean("features", x)
    x = c.fully_connected("logits", x, net.classifier)
    x = c.softmax("probabilities", x)
    return c.writer.finish([image.tensor], [x.tensor], DESCRIPTION)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default=dataset.DEFAULT_DIR, metavar="DIR",
                        help="folder of the IDX files (default: %(default)s)")
    parser.add_argument("--weights", required=True, metavar="FILE", help="written by train.py")
    parser.add_argument("--output", required=True, metavar="FILE", help="the .tflite to write")
    parser.add_argument("--images", type=int, default=1000,
                        help="training images for calibration (default: %(default)s)")
    args = parser.parse_args()

    torch.set_num_threads(1)  # sums in one order, so the same bytes every time
    net = FashionNet().eval()
    net.load_state_dict(torch.load(args.weights)["net"])
    images, _ = dataset.load(args.dataset, "train")
    floats = torch.from_numpy(images[:args.images].copy()).unsqueeze(1).float() / 255
    data = convert(net, floats)
    with open(args.output, "wb") as file:
        file.write(data)
    print(f"{args.output}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
