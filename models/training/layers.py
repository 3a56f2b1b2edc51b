# SPDX-License-Identifier: Apache-2.0
"""What the float networks are made of, and their schedule."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class ConvBatchNorm(nn.Module):
    """A convolution without bias, then batch normalization, which quantization folds into it; the
    caller adds the ReLU. Windows have an odd size and SAME padding. With stride 2 the size must be
    3 and the input even: then TensorFlow Lite pads below and on the right only."""

    def __init__(self, in_channels, out_channels, size=3, stride=1, groups=1):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, size, stride, padding=size // 2,
                              groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x):
        return self.norm(convolve(x, self.conv.weight, None, self.conv.stride[0],
                                  self.conv.groups))


def convolve(x, weights, bias, stride, groups):
    """As TensorFlow Lite pads with SAME, within the limits that ConvBatchNorm states."""
    if stride == 2:
        return F.conv2d(F.pad(x, (0, 1, 0, 1)), weights, bias, stride, groups=groups)
    return F.conv2d(x, weights, bias, stride, padding=int(weights.shape[-1]) // 2, groups=groups)


def learning_rate(progress, peak, warm_up=0.15):
    """Linear up to the peak, then half a cosine down to zero; progress runs from 0 to 1."""
    if progress < warm_up:
        return peak * progress / warm_up
    return peak * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up))) / 2
