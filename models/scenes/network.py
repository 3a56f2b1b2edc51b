# SPDX-License-Identifier: Apache-2.0
"""The float network: a small single-shot detector of ten classes on 128 x 176 pictures.

One square anchor per cell of two feature maps, small pieces on the fine one and large pieces on
the coarse one. Every cell gives ten class logits and the encoding of a box as
TFLite_Detection_PostProcess decodes it: y, x, h, w relative to the anchor. README.md has a table
of the layers.
"""

import torch
import torch.nn.functional as F
from torch import nn

from anchors import CLASSES
from layers import ConvBatchNorm


class Separable(nn.Module):
    """ReLU(x + pointwise(ReLU(depthwise 3x3(x))))."""

    def __init__(self, channels):
        super().__init__()
        self.depthwise = ConvBatchNorm(channels, channels, groups=channels)
        self.pointwise = ConvBatchNorm(channels, channels, size=1)

    def forward(self, x):
        return F.relu(x + self.pointwise(F.relu(self.depthwise(x))))


class Head(nn.Module):
    """Class logits and box encodings of every cell: [n, cells, 10], [n, cells, 4]."""

    def __init__(self, channels):
        super().__init__()
        self.classes = nn.Conv2d(channels, CLASSES, 1)
        self.boxes = nn.Conv2d(channels, 4, 1)
        nn.init.normal_(self.classes.weight, std=0.01)
        nn.init.constant_(self.classes.bias, -4.0)  # hardly any cell holds something
        nn.init.normal_(self.boxes.weight, std=0.01)

    def forward(self, x):
        return [layer(x).permute(0, 2, 3, 1).flatten(1, 2) for layer in (self.classes, self.boxes)]


class SceneNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvBatchNorm(3, 16, stride=2)
        self.conv1 = ConvBatchNorm(16, 32, stride=2)
        self.residual1 = Separable(32)
        self.conv2 = ConvBatchNorm(32, 64, stride=2)
        self.residual2 = ConvBatchNorm(64, 64)
        self.residual3 = ConvBatchNorm(64, 64)
        self.fine = Separable(64)
        self.fine_head = Head(64)
        self.conv3 = ConvBatchNorm(64, 104, stride=2)
        self.residual4 = ConvBatchNorm(104, 104)
        self.coarse = Separable(104)
        self.coarse_head = Head(104)

    def forward(self, x):
        """Logits [n, anchors, 10] and encodings [n, anchors, 4] of images [n, 3, 128, 176] in
        0 ... 1."""
        x = F.relu(self.conv1(F.relu(self.stem(x))))
        x = self.residual1(x)
        x = F.relu(self.conv2(x))
        x = F.relu(x + self.residual2(x))
        x = F.relu(x + self.residual3(x))
        x = self.fine(x)
        fine = self.fine_head(x)
        x = F.relu(self.conv3(x))
        x = F.relu(x + self.residual4(x))
        x = self.coarse(x)
        coarse = self.coarse_head(x)
        return torch.cat([fine[0], coarse[0]], 1), torch.cat([fine[1], coarse[1]], 1)
