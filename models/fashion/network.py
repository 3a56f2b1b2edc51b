# SPDX-License-Identifier: Apache-2.0
"""The float network: a small residual CNN for 28x28 grey images and 10 classes.

    [28, 28, 1]  stem 3x3, ReLU               -> [28, 28, 16]   max pool 2x2
    [14, 14, 16] conv1 3x3, ReLU              -> [14, 14, 40]
    [14, 14, 40] x + residual1(x) 3x3, ReLU   -> [14, 14, 40]   max pool 2x2
    [7, 7, 40]   conv2 3x3, ReLU              -> [7, 7, 96]
    [7, 7, 96]   x + residual2(x) 3x3, ReLU   -> [7, 7, 96]     mean over 7x7
    [96]         classifier                   -> [10]

Every convolution has stride 1, SAME padding and a batch normalization that is folded into it
when the network is quantized. The input is pixel / 255, so padding with zeros is padding in black.
"""

import torch.nn.functional as F
from torch import nn

from layers import ConvBatchNorm


class FashionNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvBatchNorm(1, 16)
        self.conv1 = ConvBatchNorm(16, 40)
        self.residual1 = ConvBatchNorm(40, 40)
        self.conv2 = ConvBatchNorm(40, 96)
        self.residual2 = ConvBatchNorm(96, 96)
        self.classifier = nn.Linear(96, 10)

    def forward(self, x):
        """Logits [n, 10] of images [n, 1, 28, 28] in 0 ... 1."""
        x = F.max_pool2d(F.relu(self.stem(x)), 2)
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(x + self.residual1(x)), 2)
        x = F.relu(self.conv2(x))
        x = F.relu(x + self.residual2(x))
        return self.classifier(x.mean((2, 3)))
