#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Quantizes the trained network to int8 and writes it as a TensorFlow Lite model.

The input is pixel / 255, so that its int8 value is pixel - 128; ../training/quantizer.py says how
the rest is quantized.

Example:
  ./quantize.py --weights fashion.pt --output fashion_int8.tflite
"""

import argparse
import hashlib
import os
import sys

import torch

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))

import fashion_mnist
from network import FashionNet
from quantizer import PIXELS, Quantizer

DESCRIPTION = "Fashion-MNIST classifier, int8: [1, 28, 28, 1] pixels to 10 class probabilities"


@torch.no_grad()
def convert(net, images):
    """Returns the bytes of the model; mirrors FashionNet.forward."""
    c = Quantizer()
    image = c.input("image", images, PIXELS)
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
    parser.add_argument("--dataset", default=fashion_mnist.DEFAULT_DIR, metavar="DIR",
                        help="folder of the IDX files (default: %(default)s)")
    parser.add_argument("--weights", required=True, metavar="FILE", help="written by train.py")
    parser.add_argument("--output", required=True, metavar="FILE", help="the .tflite to write")
    parser.add_argument("--images", type=int, default=1000,
                        help="training images for calibration (default: %(default)s)")
    args = parser.parse_args()

    torch.set_num_threads(1)  # sums in one order, so the same bytes every time
    net = FashionNet().eval()
    net.load_state_dict(torch.load(args.weights)["net"])
    images, _ = fashion_mnist.load(args.dataset, "train")
    floats = torch.from_numpy(images[:args.images].copy()).unsqueeze(1).float() / 255
    data = convert(net, floats)
    with open(args.output, "wb") as file:
        file.write(data)
    print(f"{args.output}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
