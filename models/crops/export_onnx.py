#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the trained network as an ONNX file, and the crops to quantize it with as an .npz file.

`atoll quantize` makes the int8 model of these two (README.md). Pixels are divided by 255.

Example:
  ./export_onnx.py --weights crops.pt --output crops.onnx --samples crops.npz
"""

from torch import nn

import crops  # and where the other modules are
import fashion_mnist
import onnx_export
from composer import Composer
from network import CropNet
from train import SCENES, Batches

SEED = 10_000  # of scenes that are not those of training


def main():
    args = onnx_export.arguments(__doc__, pictures=1000)
    net = onnx_export.load(CropNet(), args.weights)
    composer = Composer(*fashion_mnist.load(args.dataset, "train"), SCENES, SEED)
    images, _ = Batches(composer, args.pictures, 1)[0]
    onnx_export.write(args, nn.Sequential(net, nn.Softmax(1)), images.transpose(0, 3, 1, 2),
                      ["probabilities"])


if __name__ == "__main__":
    main()
