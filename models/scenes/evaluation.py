# SPDX-License-Identifier: Apache-2.0
"""The scenes that the detector is judged by, and the judgement: mean average precision.

The scenes are of the 10,000 test pictures, which no training scene has, and never change: a fixed
seed, frames of 4:3 and 16:9 in turn, compressed as JPEG.
"""

import os
import sys

import numpy as np

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))

import fashion_mnist
from composer import Composer, SceneOptions, jpeg
from network import CLASSES

SEED = 20_000
FRAMES = [SceneOptions(256, 192), SceneOptions(320, 180)]
JPEG_QUALITY = 80


def scenes(directory, count):
    """Yields (JPEG bytes, (width, height), boxes as fractions [n, 4], classes [n])."""
    images, labels = fashion_mnist.load(directory, "t10k")
    composers = [Composer(images, labels, frame, SEED) for frame in FRAMES]
    for i in range(count):
        frame = FRAMES[i % len(FRAMES)]
        scene = composers[i % len(FRAMES)].compose(i)
        yield (jpeg(scene.image, JPEG_QUALITY), (frame.width, frame.height), scene.boxes,
               scene.classes)


def overlap(box, boxes):
    """Intersection over union of one box and boxes [n, 4]: top, left, bottom, right."""
    sides = np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2])
    both = np.prod(np.maximum(sides, 0), 1)
    return both / (np.prod(box[2:] - box[:2]) + np.prod(boxes[:, 2:] - boxes[:, :2], 1) - both)


def average_precisions(truths, detections, iou=0.5):
    """The average precision of every class [10].

    truths: per scene (boxes [n, 4], classes [n]); detections: per scene (boxes, classes, scores).
    Detections of one class in all scenes take their turn by descending score. Each is right if the
    box of its class in its scene that it overlaps most, among those not taken yet, overlaps at
    least by `iou`, and takes that box. The average is the area below precision over recall, each
    precision being replaced by the highest at the same or a greater recall (all points).
    """
    return np.array([_average_precision(c, truths, detections, iou) for c in range(CLASSES)])


def _average_precision(which, truths, detections, iou):
    free = [boxes[classes == which] for boxes, classes in truths]
    total = sum(map(len, free))
    found = [(score, scene, box) for scene, (boxes, classes, scores) in enumerate(detections)
             for box, kind, score in zip(boxes, classes, scores) if kind == which]
    found.sort(key=lambda entry: -entry[0])
    right = np.zeros(len(found))
    for i, (_, scene, box) in enumerate(found):
        if not len(free[scene]):
            continue
        overlaps = overlap(box, free[scene])
        best = overlaps.argmax()
        if overlaps[best] >= iou:
            right[i] = 1
            free[scene] = np.delete(free[scene], best, 0)
    hits = right.cumsum()
    precision = hits / np.arange(1, len(hits) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    return float((precision * right).sum() / total)
