#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Quantizes the trained detector to int8 and writes it as a TensorFlow Lite model.

The input is pixel / 255, so that its int8 value is pixel - 128; ../training/quantizer.py says how
the rest is quantized. The ranges of class logits and box encodings leave out what makes no
difference: logits of less than one step of the score, and encodings of cells that no one will see.

Example:
  ./quantize.py --weights scenes.pt --output scenes_int8.tflite
"""

import argparse
import hashlib
import os
import sys

import numpy as np
import torch
from flatbuffers import flexbuffers

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))

import fashion_mnist
from anchors import (CENTER_SCALE, CLASSES, HEIGHT, IOU_THRESHOLD, MAX_DETECTIONS, SCORE_THRESHOLD,
                     SIZE_SCALE, WIDTH, anchors)
from composer import Composer
from network import SceneNet
from quantizer import PIXELS, Quantizer, activation_quantization
from train import TRAINING_SCENES

DESCRIPTION = ("Detector of ten kinds of clothes, int8: [1, 128, 176, 3] pixels to boxes, classes, "
               "scores, count")
SEED = 10_000                                     # of scenes that are not those of training
LOWEST_LOGIT = -float(np.log(2 / SCORE_THRESHOLD))  # well below what is ever reported


def head_quantizations(net, images):
    """(of class logits, of box encodings)."""
    logits, encodings = net(images)
    seen = logits.amax(2) > np.log(SCORE_THRESHOLD)
    return (activation_quantization(logits.clamp(min=LOWEST_LOGIT)),
            activation_quantization(encodings[seen]))


@torch.no_grad()
def convert(net, images):
    """Returns the bytes of the model; mirrors SceneNet.forward."""
    of_logits, of_encodings = head_quantizations(net, images)
    c = Quantizer()

    def residual(name, x, layer):
        return c.add_relu(name, x, c.conv(f"{name}/conv", x, layer.conv, "NONE"))

    image = c.input("image", images, PIXELS)
    x = c.conv("stem", image, net.stem, "RELU")
    x = residual("residual1", c.conv("conv1", x, net.conv1, "RELU"), net.residual1)
    x = residual("residual2", c.conv("conv2", x, net.conv2, "RELU"), net.residual2)
    fine = residual("residual3", x, net.residual3)
    x = residual("residual4", c.conv("conv3", fine, net.conv3, "RELU"), net.residual4)
    coarse = residual("residual5", x, net.residual5)
    lateral = c.conv("lateral", coarse, net.lateral, "NONE")
    x = c.add_relu("sum", fine, c.enlarge("lateral/enlarged", lateral))
    x = residual("residual6", x, net.residual6)
    logits = c.conv("logits", x, net.head.classes, "NONE", of_logits)
    encodings = c.conv("encodings", x, net.head.boxes, "NONE", of_encodings)

    scores = c.logistic("scores", c.rows("logits/rows", logits, CLASSES))
    scores = c.dequantize("scores/float", scores)
    boxes = c.dequantize("encodings/float", c.rows("encodings/rows", encodings, 4))
    outputs = [c.writer.activation("boxes", [1, MAX_DETECTIONS, 4]),
               c.writer.activation("classes", [1, MAX_DETECTIONS]),
               c.writer.activation("box scores", [1, MAX_DETECTIONS]),
               c.writer.activation("count", [1])]
    c.writer.custom_operator(
        "TFLite_Detection_PostProcess",
        [boxes.tensor, scores.tensor, c.writer.constant("anchors", anchors())], outputs,
        flexbuffers.Dumps({
            "max_detections": MAX_DETECTIONS, "max_classes_per_detection": 1,
            "detections_per_class": MAX_DETECTIONS, "num_classes": CLASSES, "use_regular_nms": True,
            "nms_score_threshold": SCORE_THRESHOLD, "nms_iou_threshold": IOU_THRESHOLD,
            "y_scale": CENTER_SCALE, "x_scale": CENTER_SCALE,
            "h_scale": SIZE_SCALE, "w_scale": SIZE_SCALE}))
    return c.writer.finish([image.tensor], outputs, DESCRIPTION)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default=fashion_mnist.DEFAULT_DIR, metavar="DIR",
                        help="folder of the IDX files (default: %(default)s)")
    parser.add_argument("--weights", required=True, metavar="FILE", help="written by train.py")
    parser.add_argument("--output", required=True, metavar="FILE", help="the .tflite to write")
    parser.add_argument("--scenes", type=int, default=300,
                        help="of training pictures, for calibration (default: %(default)s)")
    args = parser.parse_args()

    torch.set_num_threads(1)  # sums in one order, so the same bytes every time
    net = SceneNet().eval()
    net.load_state_dict(torch.load(args.weights)["net"])
    composer = Composer(*fashion_mnist.load(args.dataset, "train"), TRAINING_SCENES, SEED)
    images = np.stack([composer.compose(i).image[:HEIGHT, :WIDTH] for i in range(args.scenes)])
    data = convert(net, torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255)
    with open(args.output, "wb") as file:
        file.write(data)
    print(f"{args.output}: {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
