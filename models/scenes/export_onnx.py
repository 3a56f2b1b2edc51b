#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the trained detector as an ONNX file, and the scenes to quantize it with as an .npz file.

`atoll quantize` makes the int8 model of these two (README.md). Pixels are divided by 255. Behind
the network stand a logistic function and TFLite_Detection_PostProcess, as a node of the domain
"tflite", which `atoll import` knows.

Example:
  ./export_onnx.py --weights scenes.pt --output scenes.onnx --samples scenes.npz
"""

import os
import sys

import numpy as np
import torch
from torch import nn

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))

import fashion_mnist
import onnx_export
from anchors import (CENTER_SCALE, CLASSES, HEIGHT, IOU_THRESHOLD, MAX_DETECTIONS, SCORE_THRESHOLD,
                     SIZE_SCALE, WIDTH, anchors)
from composer import Composer
from network import SceneNet
from train import TRAINING_SCENES

SEED = 10_000  # of scenes that are not those of training


class Detections(torch.autograd.Function):
    """Boxes, classes, scores and their count; of the right shapes here, computed elsewhere."""

    @staticmethod
    def forward(_ctx, encodings, _scores, _anchors):
        return (encodings.new_zeros(1, MAX_DETECTIONS, 4), encodings.new_zeros(1, MAX_DETECTIONS),
                encodings.new_zeros(1, MAX_DETECTIONS), encodings.new_zeros(1))

    @staticmethod
    def symbolic(g, encodings, scores, grid):
        return g.op("tflite::TFLite_Detection_PostProcess", encodings, scores, grid, outputs=4,
                    max_detections_i=MAX_DETECTIONS, max_classes_per_detection_i=1,
                    detections_per_class_i=MAX_DETECTIONS, num_classes_i=CLASSES,
                    use_regular_nms_i=1, nms_score_threshold_f=SCORE_THRESHOLD,
                    nms_iou_threshold_f=IOU_THRESHOLD, y_scale_f=CENTER_SCALE,
                    x_scale_f=CENTER_SCALE, h_scale_f=SIZE_SCALE, w_scale_f=SIZE_SCALE)


class Detector(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.register_buffer("grid", torch.from_numpy(anchors()))

    def forward(self, x):
        logits, encodings = self.net(x)
        return Detections.apply(encodings, logits.sigmoid(), self.grid)


def main():
    args = onnx_export.arguments(__doc__, pictures=300)
    net = onnx_export.load(SceneNet(), args.weights)
    composer = Composer(*fashion_mnist.load(args.dataset, "train"), TRAINING_SCENES, SEED)
    scenes = [composer.compose(i).image[:HEIGHT, :WIDTH] for i in range(args.pictures)]
    onnx_export.write(args, Detector(net), np.stack(scenes).transpose(0, 3, 1, 2),
                      ["boxes", "classes", "box scores", "count"], custom_opsets={"tflite": 1})


if __name__ == "__main__":
    main()
