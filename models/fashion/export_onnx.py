#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the trained network as an ONNX file, and the pictures to quantize it with as an .npz file.

`atoll quantize` makes the int8 model of these two (README.md). Pixels are divided by 255.

Example:
  ./export_onnx.py --weights fashion.pt --output fashion.onnx --samples fashion.npz
"""

import argparse
import os
import sys

import numpy as np
import torch
from torch import nn

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))

import fashion_mnist
from network import FashionNet


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default=fashion_mnist.DEFAULT_DIR, metavar="DIR",
                        help="folder of the IDX files (default: %(default)s)")
    parser.add_argument("--weights", required=True, metavar="FILE", help="written by train.py")
    parser.add_argument("--output", required=True, metavar="FILE", help="the .onnx to write")
    parser.add_argument("--samples", required=True, metavar="FILE", help="the .npz to write")
    parser.add_argument("--images", type=int, default=1000,
                        help="so many training images for calibration (default: %(default)s)")
    args = parser.parse_args()

    net = FashionNet()
    net.load_state_dict(torch.load(args.weights)["net"])
    net = nn.Sequential(net, nn.Softmax(1)).eval()
    torch.onnx.export(net, torch.zeros(1, 1, 28, 28), args.output, opset_version=13,
                      input_names=["image"], output_names=["probabilities"])
    images, _ = fashion_mnist.load(args.dataset, "train")
    np.savez_compressed(args.samples, image=images[:args.images, None].astype(np.float32) / 255)


if __name__ == "__main__":
    main()
