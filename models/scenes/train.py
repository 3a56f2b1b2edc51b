#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the float detector on composed scenes and saves its weights for export_onnx.py.

Only training pictures are read, and what is kept is the average of the last weights; evaluate.py reads the test pictures. A second process composes the scenes. Batch i depends
on nothing but the seed and i, so a run that was interrupted and goes on with --resume sees what it
would have seen.

Examples:
  ./train.py --output scenes.pt                  the shipped model
  ./train.py --output quick.pt --batches 600 --decay 300   a first model in three minutes
  ./train.py --output scenes.pt --resume         continue an interrupted run
"""

import argparse
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))

import fashion_mnist
from anchors import CLASSES, HEIGHT, WIDTH, assign
from composer import Composer, SceneOptions
from network import SceneNet

# Frames of 4:3 to 16:9 are shrunk to 11:8, which makes pieces 0.77 to 1.03 times as wide. Scenes
# are fuller than those of the evaluation, as much is to be learned from each, and have a margin, so
# that they can be cut out.
MARGIN = 8  # pixels
TRAINING_SCENES = SceneOptions(WIDTH + MARGIN, HEIGHT + MARGIN, squeeze=(0.74, 1.06),
                               pieces=(4, 13))
NOISE = 1 << 20  # numbers
AGAIN = 50       # batches
WARM_UP = 200    # batches
POSITIVE_WEIGHT, BOX_WEIGHT = 1.0, 0.4
AVERAGE = 0.998  # of the averaged weights, this is kept with each batch


class Batches(Dataset):
    """Batch i: two portions of scenes, i and i + AGAIN, cut out, mirrored and coloured at random.
    So each scene is seen twice, as drawing it takes a third as long as learning from it."""

    def __init__(self, composer, size, count):
        self.composer, self.size, self.count = composer, size // 2, count
        self.portions = {}  # that were drawn and are needed again

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng([self.composer.seed, index, 1])
        again = self.portions.pop(index, None) or self._portion(index)
        fresh = self.portions[index + AGAIN] = self._portion(index + AGAIN)
        return tuple(map(np.stack, zip(*(self._variant(rng, scene) for scene in again + fresh))))

    def _portion(self, number):
        return [self.composer.compose(number * self.size + i) for i in range(self.size)]

    @staticmethod
    def _variant(rng, scene):
        """(image, class of each cell or -1, encoding of each cell's box)."""
        y, x = rng.integers(MARGIN + 1, size=2)
        image = scene.image[y:y + HEIGHT, x:x + WIDTH, rng.permutation(3)]
        height, width, _ = scene.image.shape
        boxes = ((scene.boxes * [height, width, height, width] - [y, x, y, x]) /
                 [HEIGHT, WIDTH, HEIGHT, WIDTH])
        if rng.random() < 0.5:
            image = image[:, ::-1]
            boxes = np.stack([boxes[:, 0], 1 - boxes[:, 3], boxes[:, 2], 1 - boxes[:, 1]], 1)
        owner, target = assign(boxes.clip(0, 1).astype(np.float32))
        return image, np.where(owner >= 0, np.append(scene.classes, -1)[owner], -1), target


def loss_of(logits, encodings, classes, targets):
    """Per cell that has a box: cross entropy of ten independent classes and the smooth L1 norm of
    its encoding; of the others cross entropy weighted by the square of what they claim, as most are
    easy (the negative half of a focal loss)."""
    positive = classes >= 0
    truth = F.one_hot(classes.clamp(min=0), CLASSES).float() * positive[..., None]
    entropy = F.binary_cross_entropy_with_logits(logits, truth, reduction="none")
    weight = torch.where(positive[..., None], torch.full((), POSITIVE_WEIGHT),
                         logits.detach().sigmoid().square())
    boxes = F.smooth_l1_loss(encodings[positive], targets[positive], reduction="sum")
    return ((entropy * weight).sum() + BOX_WEIGHT * boxes) / max(1, positive.sum())


def learning_rate(batch, batches, decay, peak):
    """Up to the peak in WARM_UP batches, there until `decay` are left, then down to zero."""
    return peak * min(1, batch / WARM_UP, (batches - batch) / decay)


@torch.no_grad()
def average(averaged, net, batch):
    """Moves the averaged weights towards those of the network; at first it is a plain mean."""
    share = max(1 - AVERAGE, 1 / batch)
    for mean, value in zip(averaged.state_dict().values(), net.state_dict().values()):
        if mean.is_floating_point():
            mean.lerp_(value, share)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default=fashion_mnist.DEFAULT_DIR, metavar="DIR",
                        help="folder of the IDX files (default: %(default)s)")
    parser.add_argument("--output", required=True, metavar="FILE",
                        help="weights to write, every 250 batches")
    parser.add_argument("--resume", action="store_true",
                        help="continue from the weights in the output file")
    parser.add_argument("--batches", type=int, default=8000)
    parser.add_argument("--decay", type=int, default=3000,
                        help="the learning rate falls during that many last batches")
    parser.add_argument("--batch", type=int, default=32, help="scenes per batch, even")
    parser.add_argument("--peak-rate", type=float, default=0.003, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="same result only with the same")
    parser.add_argument("--float32", action="store_true",
                        help="convolve in float32, for CPUs that are slow with bfloat16")
    parser.add_argument("--hold-out", type=int, default=0, metavar="N",
                        help="leave out the last N training pictures, to choose settings by")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(args.seed)
    net = SceneNet().to(memory_format=torch.channels_last)
    averaged = SceneNet().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0, weight_decay=0.02)
    first, seconds = 0, 0.0
    if args.resume:
        state = torch.load(args.output)
        net.load_state_dict(state["last"])
        averaged.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        first, seconds = state["batches"], state["seconds"]

    images, labels = fashion_mnist.load(args.dataset, "train")
    used = len(images) - args.hold_out
    noise = np.random.default_rng(args.seed).standard_normal(NOISE, np.float32)
    batches = Batches(Composer(images[:used], labels[:used], TRAINING_SCENES, args.seed, noise),
                      args.batch, args.batches)
    loader = DataLoader(batches, sampler=range(first, args.batches), batch_size=None, num_workers=1,
                        prefetch_factor=8)
    parameters = sum(p.numel() for p in net.parameters())
    print(f"{parameters} parameters, {args.batches} batches of {args.batch} scenes", flush=True)
    net.train()
    start, losses = time.monotonic(), []
    for i, (pixels, classes, targets) in enumerate(loader, first + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(i, args.batches, args.decay, args.peak_rate)
        x = pixels.permute(0, 3, 1, 2).float().mul_(1 / 255)  # stored as channels_last
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not args.float32):
            logits, encodings = net(x)
        loss = loss_of(logits.float(), encodings.float(), classes, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average(averaged, net, i)
        losses.append(loss.item())
        if i % 50 == 0 or i == args.batches:
            spent = seconds + time.monotonic() - start
            print(f"batch {i:5}: loss {np.mean(losses):.4f}, {spent:.0f} s", flush=True)
            losses = []
        if i % 250 == 0 or i == args.batches:
            torch.save({"net": averaged.state_dict(), "last": net.state_dict(),
                        "optimizer": optimizer.state_dict(), "batches": i,
                        "seconds": seconds + time.monotonic() - start}, args.output + ".part")
            os.replace(args.output + ".part", args.output)


if __name__ == "__main__":
    main()
