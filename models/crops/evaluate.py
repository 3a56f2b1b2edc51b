#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints how often the classifier is right about pieces cut out of held-back scenes: in their true
boxes, and in those that the detector found, as in a cascade. Both models are run by the command.

The scenes are those of the exams of ../scenes. A found box counts if it overlaps a piece by half at
least (intersection over union) and is the best one that does; where the detector sees another class
in it than the piece's, the classifier can do better.

Examples:
  ./evaluate.py --atoll ../../build/release/tools/atoll/atoll
  ./evaluate.py --atoll ../../build/release/tools/atoll/atoll --exam easy --device emu
"""

import argparse
import io
import json
import os
import subprocess
import tempfile

import crops  # before those of other folders: it says where they are
import numpy as np
from PIL import Image

import evaluation
import fashion_mnist

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
LABELS = os.path.join(MODELS, "fashion", "labels.txt")
THRESHOLD = 0.3  # of a detection's score
FILES_PER_RUN = 500


def classified(args, pictures):
    """The class of each uint8 picture [SIDE, SIDE, 3]."""
    classes = []
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, len(pictures), FILES_PER_RUN):
            names = []
            for i, picture in enumerate(pictures[first:first + FILES_PER_RUN], first):
                names.append(os.path.join(folder, f"{i:06}.png"))
                Image.fromarray(picture).save(names[-1])
            report = subprocess.run(
                [args.atoll, "classify", args.model, *names, "--device", args.device, "--json",
                 "--top-k", "1"], check=True, stdout=subprocess.PIPE).stdout
            classes += [picture["top"][0]["index"] for picture in json.loads(report)["images"]]
    return np.array(classes)


def matched(truths, found):
    """Per piece that a detection stands for: (scene, box found, class found, class)."""
    pairs = []
    for scene, ((boxes, classes), (found_boxes, found_classes, scores)) in enumerate(
            zip(truths, found)):
        good = np.flatnonzero(scores >= THRESHOLD)
        for box, kind in zip(boxes, classes):
            if len(good):
                overlaps = evaluation.overlap(box, found_boxes[good])
                near = good[overlaps >= 0.5]
                if len(near):
                    best = near[scores[near].argmax()]
                    pairs.append((scene, found_boxes[best], found_classes[best], kind))
    return pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default=fashion_mnist.DEFAULT_DIR, metavar="DIR",
                        help="folder of the IDX files (default: %(default)s)")
    parser.add_argument("--model", default=os.path.join(MODELS, "crops", "crops_int8.tflite"),
                        metavar="FILE")
    parser.add_argument("--detector", default=os.path.join(MODELS, "scenes", "scenes_int8.tflite"),
                        metavar="FILE")
    parser.add_argument("--atoll", default="atoll", metavar="FILE",
                        help="the command (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="(default: %(default)s)")
    parser.add_argument("--exam", default="hard", choices=evaluation.EXAMS)
    parser.add_argument("--split", default="test", choices=["test", "validation"],
                        help="the pictures in the scenes (default: %(default)s)")
    parser.add_argument("--scenes", type=int, default=1000, help="(default: %(default)s)")
    args = parser.parse_args()

    scenes = list(evaluation.scenes(args.dataset, args.exam, args.scenes, args.split))
    pictures = [Image.open(io.BytesIO(data)).convert("RGB") for data, *_ in scenes]
    truths = [(boxes, classes) for _, _, boxes, classes in scenes]
    pieces = [(scene, box, kind) for scene, (boxes, classes) in enumerate(truths)
              for box, kind in zip(boxes, classes)]
    wanted = np.array([kind for *_, kind in pieces])
    seen = classified(args, [crops.cut(pictures[scene], box) for scene, box, _ in pieces])
    print(f"{args.exam}: {len(pieces)} pieces in their true boxes: {(seen == wanted).mean():.4f}")
    with open(LABELS, encoding="utf-8") as file:
        for kind, name in enumerate(file.read().splitlines()):
            print(f"{args.exam} {name:12} {(seen == wanted)[wanted == kind].mean():.4f}")

    found = evaluation.run_int8(args.atoll, args.detector, args.device, scenes)
    pairs = matched(truths, found)
    wanted = np.array([kind for *_, kind in pairs])
    seen = classified(args, [crops.cut(pictures[scene], box) for scene, box, *_ in pairs])
    by_detector = np.array([kind for _, _, kind, _ in pairs]) == wanted
    print(f"{args.exam}: {len(pairs)} pieces in boxes of the detector: "
          f"{(seen == wanted).mean():.4f}, the detector itself {by_detector.mean():.4f}")


if __name__ == "__main__":
    main()
