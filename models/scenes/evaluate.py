#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the mean average precision of the float and of the int8 detector on held-back scenes,
those of the hard exam and those of the easy one.

The float network runs in PyTorch, on frames resized by Pillow as `atoll detect` resizes them. The
int8 model is run by the command `atoll detect` itself, on the JPEG files.

Examples:
  ./evaluate.py --weights scenes.pt
  ./evaluate.py --model scenes_int8.tflite --atoll ../../build/release/tools/atoll/atoll
  ./evaluate.py --golden ../../tests/golden/scenes        writes the scenes of the integration test
"""

import argparse
import io
import os

import numpy as np
from PIL import Image

import evaluation
import fashion_mnist
from anchors import (CENTER_SCALE, CLASSES, HEIGHT, IOU_THRESHOLD, MAX_DETECTIONS, SCORE_THRESHOLD,
                     SIZE_SCALE, WIDTH, anchors)

LABELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fashion", "labels.txt")


def decoded(encodings):
    """Boxes [cells, 4] of encodings [cells, 4], as TFLite_Detection_PostProcess decodes them."""
    grid = anchors()
    center = encodings[:, :2] / CENTER_SCALE * grid[:, 2:] + grid[:, :2]
    half = np.exp(encodings[:, 2:] / SIZE_SCALE) * grid[:, 2:] / 2
    return np.concatenate([center - half, center + half], 1)


def suppressed(boxes, scores):
    """(boxes, classes, scores) of the detections: of cells that claim the same class and overlap
    only the best remains."""
    found = []
    for kind in range(CLASSES):
        kept = []
        for i in np.argsort(-scores[:, kind], kind="stable"):
            if scores[i, kind] < SCORE_THRESHOLD:
                break
            if not kept or evaluation.overlap(boxes[i], boxes[kept]).max() <= IOU_THRESHOLD:
                kept.append(i)
        found += [(scores[i, kind], i, kind) for i in kept]
    if not found:
        return np.empty((0, 4)), np.empty(0), np.empty(0)
    best, cells, classes = zip(*sorted(found, key=lambda entry: -entry[0])[:MAX_DETECTIONS])
    return boxes[list(cells)], np.array(classes), np.array(best)


def run_float(weights, scenes):
    import torch  # not needed for the int8 model
    from network import SceneNet
    torch.set_num_threads(1)
    net = SceneNet().eval()
    net.load_state_dict(torch.load(weights)["net"])
    found = []
    for data, *_ in scenes:
        image = Image.open(io.BytesIO(data)).resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR)
        x = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float() / 255
        with torch.no_grad():
            logits, encodings = net(x)
        found.append(suppressed(decoded(encodings[0].numpy()), logits[0].sigmoid().numpy()))
    return found


def write_golden(folder, scenes):
    """The scenes as files, and truth.txt: one line 'file class top left bottom right' per piece."""
    os.makedirs(folder, exist_ok=True)
    lines = []
    for i, (data, _, boxes, classes) in enumerate(scenes):
        with open(os.path.join(folder, f"{i:02}.jpg"), "wb") as file:
            file.write(data)
        for box, kind in zip(boxes, classes):
            lines.append(f"{i:02}.jpg {kind} " + " ".join(f"{edge:.5f}" for edge in box))
    with open(os.path.join(folder, "truth.txt"), "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default=fashion_mnist.DEFAULT_DIR, metavar="DIR",
                        help="folder of the IDX files (default: %(default)s)")
    parser.add_argument("--weights", metavar="FILE", help="float weights, written by train.py")
    parser.add_argument("--model", metavar="FILE", help="int8 model, written by atoll quantize")
    parser.add_argument("--atoll", default="atoll", metavar="FILE",
                        help="the command that runs the int8 model (default: %(default)s)")
    parser.add_argument("--device", default="emu", help="of the int8 model (default: %(default)s)")
    parser.add_argument("--golden", metavar="DIR",
                        help="write the first scenes of each exam to this folder")
    parser.add_argument("--golden-scenes", type=int, default=64, help="(default: %(default)s)")
    parser.add_argument("--exam", action="append", choices=evaluation.EXAMS,
                        help="(default: both)")
    parser.add_argument("--split", default="test", choices=["test", "validation"],
                        help="the pictures in the scenes (default: %(default)s)")
    parser.add_argument("--scenes", type=int, default=1000,
                        help="of each exam (default: %(default)s)")
    parser.add_argument("--at-least", action="append", default=[], metavar="EXAM=MAP",
                        help="fail if the mean average precision is less")
    args = parser.parse_args()

    if args.golden:
        for exam in evaluation.EXAMS:
            write_golden(os.path.join(args.golden, exam),
                         evaluation.scenes(args.dataset, exam, args.golden_scenes))
    if args.weights or args.model:
        least = dict(pair.split("=") for pair in args.at_least)
        for exam in args.exam or evaluation.EXAMS:
            for kind, precision in examine(exam, args).items():
                if precision < float(least.get(exam, 0)):
                    raise SystemExit(f"{exam} {kind}: less than {least[exam]}")


def examine(exam, args):
    """Prints and returns the mean average precision of what the arguments name, by its kind."""
    scenes = list(evaluation.scenes(args.dataset, exam, args.scenes, args.split))
    truths = [(boxes, classes) for _, _, boxes, classes in scenes]
    results = {}
    if args.weights:
        results["float"] = run_float(args.weights, scenes)
    if args.model:
        results["int8"] = evaluation.run_int8(args.atoll, args.model, args.device, scenes)
    print(f"{exam}: {len(scenes)} scenes, {sum(len(classes) for _, classes in truths)} pieces")
    with open(LABELS, encoding="utf-8") as file:
        names = file.read().splitlines()
    means = {}
    for kind, found in results.items():
        aps = evaluation.average_precisions(truths, found)
        for label, ap in zip(names, aps):
            print(f"{exam} {kind:5} AP@0.5 {label:12} {ap:.4f}")
        print(f"{exam} {kind:5} mAP@0.5            {aps.mean():.4f}", flush=True)
        means[kind] = aps.mean()
    return means


if __name__ == "__main__":
    main()
