# SPDX-License-Identifier: Apache-2.0
"""Quantizes a trained network to int8 while it is run, op by op, on calibration images.

Post-training quantization: batch normalization is folded into the convolutions; weights get one
symmetric scale per output channel (fully connected ones: one in all), activations one scale and
zero point from the range seen on the calibration images, biases int32 in units of input scale *
weight scale.
"""

from dataclasses import dataclass
from typing import Optional

import numpy as np
import torch
import torch.nn.functional as F

from layers import convolve
from tflite_writer import ACTIVATION, PADDING, ModelWriter, Quantization

PIXELS = Quantization(1 / 255, -128)         # pixel / 255: the int8 value is pixel - 128
PROBABILITIES = Quantization(1 / 256, -128)  # as TensorFlow Lite demands of SOFTMAX and LOGISTIC


@dataclass
class Value:
    """A tensor of the graph together with its float values on the calibration images: NCHW where it
    has four dimensions, although the graph has NHWC."""
    tensor: int
    floats: torch.Tensor
    quantization: Optional[Quantization]  # None: float32


class Quantizer:
    """Each method runs one op on floats and writes it; `name` is the name of its output, whose
    quantization comes from its range unless the op or the caller says what it is."""

    def __init__(self):
        self.writer = ModelWriter()

    def input(self, name, floats, quantization):
        return self._value(name, floats, quantization)

    def conv(self, name, x, layer, activation, quantization=None):
        """`layer` is a ConvBatchNorm or a 1x1 nn.Conv2d with bias."""
        if hasattr(layer, "folded"):
            weights, bias = layer.folded()
            layer = layer.conv
        else:
            weights, bias = layer.weight, layer.bias
        stride = layer.stride[0]
        y = convolve(x.floats, weights, bias, stride, layer.groups)
        y = self._value(name, F.relu(y) if activation == "RELU" else y, quantization)
        options = dict(padding=PADDING["SAME"], stride_w=stride, stride_h=stride,
                       dilation_w_factor=1, dilation_h_factor=1,
                       fused_activation_function=ACTIVATION[activation])
        ohwi = weights.permute(0, 2, 3, 1).numpy()
        scale = symmetric_scale(ohwi, axis=(1, 2, 3))
        if layer.groups == 1:
            self._weighted("CONV_2D", name, x, y, ohwi, scale, bias, **options)
        else:
            self._weighted("DEPTHWISE_CONV_2D", name, x, y, ohwi.transpose(3, 1, 2, 0), scale,
                           bias, dimension=3, depth_multiplier=1, **options)
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
        self.writer.operator("MAX_POOL_2D", [x.tensor], [y.tensor], padding=PADDING["VALID"],
                             stride_w=2, stride_h=2, filter_width=2, filter_height=2)
        return y

    def add_relu(self, name, x1, x2):
        y = self._value(name, F.relu(x1.floats + x2.floats))
        self.writer.operator("ADD", [x1.tensor, x2.tensor], [y.tensor],
                             fused_activation_function=ACTIVATION["RELU"])
        return y

    def mean(self, name, x):
        y = self._value(name, x.floats.mean((2, 3)))
        axes = self.writer.constant(f"{name}/axes", np.array([1, 2], np.int32))
        self.writer.operator("MEAN", [x.tensor, axes], [y.tensor], keep_dims=False)
        return y

    def softmax(self, name, x):
        y = self._value(name, F.softmax(x.floats, 1), PROBABILITIES)
        self.writer.operator("SOFTMAX", [x.tensor], [y.tensor], beta=1.0)
        return y

    def logistic(self, name, x):
        y = self._value(name, x.floats.sigmoid(), PROBABILITIES)
        self.writer.operator("LOGISTIC", [x.tensor], [y.tensor])
        return y

    def rows(self, name, x, width):
        """RESHAPE of [1, h, w, c] to [1, h * w * c / width, width]."""
        floats = x.floats.permute(0, 2, 3, 1).flatten(1)
        y = self._value(name, floats.unflatten(1, (-1, width)), x.quantization)
        shape = self.writer.constant(f"{name}/shape", np.array([1, *y.floats.shape[1:]], np.int32))
        self.writer.operator("RESHAPE", [x.tensor, shape], [y.tensor])
        return y

    def enlarge(self, name, x):
        """RESIZE_NEAREST_NEIGHBOR to twice the height and width."""
        y = self._value(name, F.interpolate(x.floats, scale_factor=2), x.quantization)
        size = self.writer.constant(f"{name}/size", np.array(y.floats.shape[2:], np.int32))
        self.writer.operator("RESIZE_NEAREST_NEIGHBOR", [x.tensor, size], [y.tensor],
                             align_corners=False, half_pixel_centers=False)
        return y

    def dequantize(self, name, x):
        y = Value(self.writer.activation(name, [1, *x.floats.shape[1:]]), x.floats, None)
        self.writer.operator("DEQUANTIZE", [x.tensor], [y.tensor])
        return y

    def _value(self, name, floats, quantization=None):
        shape = [1, *floats.shape[1:]]
        if floats.dim() == 4:
            shape = [1, *floats.shape[2:], floats.shape[1]]
        quantization = quantization or activation_quantization(floats)
        print(f"{name:20} {str(shape):18} range {floats.min():8.3f} ... {floats.max():7.3f}  "
              f"scale {float(quantization.scale):.6f}  zero point {quantization.zero_point}")
        return Value(self.writer.activation(name, shape, quantization), floats, quantization)

    def _weighted(self, operator, name, x, y, weights, scale, bias, dimension=0, **options):
        """Adds an operator whose output channels are the given dimension of its weights."""
        shape = [1] * weights.ndim
        shape[dimension] = -1
        quantized = np.rint(weights / scale.reshape(shape))
        bias_scale = np.float32(x.quantization.scale) * scale
        self.writer.operator(operator, [
            x.tensor,
            self.writer.constant(f"{name}/weights", quantized.astype(np.int8),
                                 Quantization(scale, 0, dimension)),
            self.writer.constant(f"{name}/bias",
                                 np.rint(bias.numpy() / bias_scale).astype(np.int32),
                                 Quantization(bias_scale, 0))], [y.tensor], **options)


def symmetric_scale(weights, axis):
    """One scale per first index, or a single one; a floor keeps it positive in dead channels."""
    return np.maximum(np.abs(weights).max(axis=axis), np.float32(1e-4)) / np.float32(127)


def activation_quantization(floats):
    """Maps the range of the values, widened to contain 0, onto -128 ... 127."""
    low, high = min(0.0, floats.min().item()), max(0.0, floats.max().item())
    scale = np.float32((high - low) / 255)
    return Quantization(scale, int(np.rint(-128 - low / scale)))
