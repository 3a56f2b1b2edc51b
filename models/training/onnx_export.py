# SPDX-License-Identifier: Apache-2.0
"""Writes a trained network as an ONNX file, and pictures to quantize it with as an .npz file."""

import argparse
import warnings

import numpy as np
import torch

import fashion_mnist


def arguments(description, pictures):
    """The command line of a network's export_onnx.py; by default `pictures` are for calibration."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default=fashion_mnist.DEFAULT_DIR, metavar="DIR",
                        help="folder of the IDX files (default: %(default)s)")
    parser.add_argument("--weights", required=True, metavar="FILE", help="written by train.py")
    parser.add_argument("--output", required=True, metavar="FILE", help="the .onnx to write")
    parser.add_argument("--samples", required=True, metavar="FILE", help="the .npz to write")
    parser.add_argument("--pictures", type=int, default=pictures,
                        help="so many for calibration, of training images (default: %(default)s)")
    return parser.parse_args()


def load(net, path):
    """The weights that train.py wrote into `net`, which is returned."""
    net.load_state_dict(torch.load(path)["net"])
    return net


def write(args, module, pictures, outputs, **options):
    """`module` computes what is named `outputs` of an 'image' like each of `pictures`, uint8
    [n, c, h, w], of which it gets 0 to 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of folding and shapes, which nothing here depends on
        torch.onnx.export(module.eval(), torch.zeros(1, *pictures.shape[1:]), args.output,
                          opset_version=13, input_names=["image"], output_names=outputs, **options)
    np.savez_compressed(args.samples, image=pictures.astype(np.float32) / 255)
