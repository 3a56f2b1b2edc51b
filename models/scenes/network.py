# SPDX-License-Identifier: Apache-2.0
"""The float network: a small single-shot detector of ten classes on 128 x 176 pictures.

Two feature maps: the coarse one, whose cells see all of a piece and what is around it, is enlarged
and added to the fine one. Each cell of the sum has one square anchor, for which it gives ten class
logits and the encoding of a box as TFLite_Detection_PostProcess decodes it: y, x, h, w relative to
the anchor. README.md has a table of the layers.
"""

import torch.nn.functional as F
from torch import nn

from anchors import CLASSES
from layers import ConvBatchNorm


class Residual(nn.Module):
    """ReLU(x + 3x3(x))."""

    def __init__(self, channels):
        super().__init__()
        self.conv = ConvBatchNorm(channels, channels)

    def forward(self, x):
        return F.relu(x + self.conv(x))


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
        self.stem = ConvBatchNorm(3, 24, stride=2)
        self.conv1 = ConvBatchNorm(24, 48, stride=2)
        self.residual1 = Residual(48)
        self.conv2 = ConvBatchNorm(48, 112, stride=2)
        self.residual2 = Residual(112)
        self.residual3 = Residual(112)
        self.conv3 = ConvBatchNorm(112, 160, stride=2)
        self.residual4 = Residual(160)
        self.residual5 = Residual(160)
        self.lateral = ConvBatchNorm(160, 112, size=1)
        self.residual6 = Residual(112)
        self.head = Head(112)

    def forward(self, x):
        """Logits [n, cells, 10] and encodings [n, cells, 4] of images [n, 3, 128, 176] in
        0 ... 1."""
        x = F.relu(self.conv1(F.relu(self.stem(x))))
        x = F.relu(self.conv2(self.residual1(x)))
        fine = self.residual3(self.residual2(x))
        coarse = self.residual5(self.residual4(F.relu(self.conv3(fine))))
        x = F.relu(fine + F.interpolate(self.lateral(coarse), scale_factor=2))
        return self.head(self.residual6(x))
