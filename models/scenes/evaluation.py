# SPDX-License-Identifier: Apache-2.0
"""The scenes that the detector is judged by, and the judgement: mean average precision.

Two exams, each of the 10,000 test pictures, which no training scene has, from a fixed seed: frames
of 4:3 and 16:9 in turn, compressed as JPEG. The first is the one that counts. Figures of different
versions of an exam cannot be compared: what is changed here makes earlier ones meaningless.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))

import fashion_mnist
from anchors import CLASSES, SCORE_THRESHOLD
from composer import Composer, SceneOptions, jpeg

SEED = 20_000
EXAMS = {
    "hard": dict(size=(0.22, 0.45), pieces=(1, 8), visible=0.60),
    "easy": dict(size=(0.25, 0.50), pieces=(1, 6), visible=0.75),
}
FRAMES = [(256, 192), (320, 180)]
JPEG_QUALITY = 80
FILES_PER_RUN = 250
VALIDATION = 5_000  # of the training pictures, the last ones


def pictures(directory, split):
    """(images, labels) of "test", or of "validation": the last training pictures, which settings
    are chosen by (train.py --hold-out)."""
    if split == "test":
        return fashion_mnist.load(directory, "t10k")
    images, labels = fashion_mnist.load(directory, "train")
    return images[-VALIDATION:], labels[-VALIDATION:]


def scenes(directory, exam, count, split="test"):
    """Yields (JPEG bytes, (width, height), boxes as fractions [n, 4], classes [n])."""
    images, labels = pictures(directory, split)
    composers = [Composer(images, labels, SceneOptions(*frame, **EXAMS[exam]), SEED)
                 for frame in FRAMES]
    for i in range(count):
        scene = composers[i % len(FRAMES)].compose(i)
        yield (jpeg(scene.image, JPEG_QUALITY), FRAMES[i % len(FRAMES)], scene.boxes,
               scene.classes)


def run_int8(command, model, device, scenes):
    """Per scene (boxes, classes, scores): what `atoll detect` finds in its JPEG file."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, len(scenes), FILES_PER_RUN):
            names = []
            for i, (data, *_) in enumerate(scenes[first:first + FILES_PER_RUN], first):
                names.append(os.path.join(folder, f"{i:06}.jpg"))
                with open(names[-1], "wb") as file:
                    file.write(data)
            report = subprocess.run(
                [command, "detect", model, *names, "--device", device, "--json", "--threshold",
                 str(SCORE_THRESHOLD)], check=True, stdout=subprocess.PIPE).stdout
            pictures = json.loads(report)["images"]
            for picture, (_, (width, height), *_) in zip(pictures, scenes[first:]):
                found.append(_arrays(picture["detections"], width, height))
    return found


def _arrays(detections, width, height):
    boxes = np.array([[d["box"][side] for side in ("top", "left", "bottom", "right")]
                      for d in detections]).reshape(-1, 4)
    return (boxes / [height, width, height, width], np.array([d["index"] for d in detections]),
            np.array([d["score"] for d in detections]))


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
