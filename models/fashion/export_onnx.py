#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the trained network as an ONNX file, and the pictures to quantize it with as an .npz file.

`atoll quantize` makes the int8 model of these two (README.md). Pixels are divided by 255.

Example:
  ./export_onnx.py --weights fashion.pt --output fashion.onnx --samples fashion.npz
"""

import os
import sys

from torch import nn

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))

import fashion_mnist
import onnx_export
from network import FashionNet


def main():
    args = onnx_export.arguments(__doc__, pictures=1000)
    net = onnx_export.load(FashionNet(), args.weights)
    images, _ = fashion_mnist.load(args.dataset, "train")
    onnx_export.write(args, nn.Sequential(net, nn.Softmax(1)), images[:args.pictures, None],
                      ["probabilities"])


if __name__ == "__main__":
    main()
