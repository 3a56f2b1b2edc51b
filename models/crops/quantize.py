#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Quantizes the trained network to int8 and writes it as a TensorFlow Lite model.

The input is pixel / 255, so that its int8 value is pixel - 128; ../training/quantizer.py says how
the rest is quantized.

Example:
  ./quantize.py --weights crops.pt --output crops_int8.tflite
"""

import argparse
import hashlib

import crops  # before those of other folders: it says where they are
import numpy as np
import torch

import fashion_mnist
from composer import Composer
from network import CropNet
from quantizer import PIXELS, Quantizer
from train import SCENES, Batches

DESCRIPTION = (f"Classifier of clothes in a detector's boxes, int8: [1, {crops.SIDE}, {crops.SIDE}, "
               "3] pixels to 10 class probabilities")
SEED = 10_000  # of scenes that are not those of training


@torch.no_grad()
def convert(net, images):
    """Returns the bytes of the model; mirrors CropNet.forward."""
    c = Quantizer()

    def residual(name, x, layer):
        return c.add_relu(f"{name}/sum", x, c.conv(name, x, layer, "NONE"))

    image = c.input("image", images, PIXELS)
    x = c.conv("stem", image, net.stem, "RELU")
    x = c.max_pool("stem/pool", x)
    x = c.conv("conv1", x, net.conv1, "RELU")
    x = c.max_pool("residual1/pool", residual("residual1", x, net.residual1))
    x = c.conv("conv2", x, net.conv2, "RELU")
    x = residual("residual2", x, net.residual2)
    x = residual("residual3", x, net.residual3)
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
    parser.add_argument("--crops", type=int, default=1000,
                        help="of training pictures, for calibration (default: %(default)s)")
    args = parser.parse_args()

    torch.set_num_threads(1)  # sums in one order, so the same bytes every time
    net = CropNet().eval()
    net.load_state_dict(torch.load(args.weights)["net"])
    composer = Composer(*fashion_mnist.load(args.dataset, "train"), SCENES, SEED)
    images, _ = Batches(composer, args.crops, 1)[0]
    data = convert(net, torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float()
                   / 255)
    with open(args.output, "wb") as file:
        file.write(data)
    print(f"{args.output}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
