# SPDX-License-Identifier: Apache-2.0
"""The float network: a small residual CNN for 32x32 colour pictures and 10 classes.

    [32, 32, 3]  stem 3x3, ReLU               -> [32, 32, 24]   max pool 2x2
    [16, 16, 24] conv1 3x3, ReLU              -> [16, 16, 48]
    [16, 16, 48] x + residual1(x) 3x3, ReLU   -> [16, 16, 48]   max pool 2x2
    [8, 8, 48]   conv2 3x3, ReLU              -> [8, 8, 96]
    [8, 8, 96]   x + residual2(x) 3x3, ReLU   -> [8, 8, 96]
    [8, 8, 96]   x + residual3(x) 3x3, ReLU   -> [8, 8, 96]     mean over 8x8
    [96]         classifier                   -> [10]

Every convolution has stride 1, SAME padding and a batch normalization that is folded into it
when the network is quantized. The input is pixel / 255.
"""

import torch.nn.functional as F
from torch import nn

from layers import ConvBatchNorm


class CropNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = ConvBatchNorm(3, 24)
        self.conv1 = ConvBatchNorm(24, 48)
        self.residual1 = ConvBatchNorm(48, 48)
        self.conv2 = ConvBatchNorm(48, 96)
        self.residual2 = ConvBatchNorm(96, 96)
        self.residual3 = ConvBatchNorm(96, 96)
        self.classifier = nn.Linear(96, 10)

    def forward(self, x):
        """Logits [n, 10] of pictures [n, 3, 32, 32] in 0 ... 1."""
        x = F.max_pool2d(F.relu(self.stem(x)), 2)
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(x + self.residual1(x)), 2)
        x = F.relu(self.conv2(x))
        x = F.relu(x + self.residual2(x))
        x = F.relu(x + self.residual3(x))
        return self.classifier(x.mean((2, 3)))
