#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the float network on pieces cut out of composed scenes and saves its weights for
export_onnx.py.

The scenes are those of ../scenes, of training pictures only; no scene is seen twice and the last
weights are kept. A second process composes them.

Example:
  ./train.py --output crops.pt
"""

import argparse
import os
import time

import crops  # before those of other folders: it says where they are
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import fashion_mnist
from composer import Composer, SceneOptions
from layers import learning_rate
from network import CropNet

SCENES = SceneOptions(192, 144, squeeze=(0.9, 1.1), pieces=(5, 13))
SHIFT = 0.07     # of a box's size: how far a detector's edges are off, at most
NOISE = 1 << 20  # numbers


class Batches(Dataset):
    """Batch i: the pieces of the scenes composed for it, until it is full; mirrored and coloured at
    random."""

    def __init__(self, composer, size, count):
        self.composer, self.size, self.count = composer, size, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng([self.composer.seed, index, 1])
        pictures, classes = [], []
        for number in range(index * self.size, (index + 1) * self.size):
            scene = self.composer.compose(number)
            whole = Image.fromarray(scene.image)
            for box, kind in zip(scene.boxes, scene.classes):
                size = np.tile(box[2:] - box[:2], 2)
                crop = crops.cut(whole, box + size * rng.uniform(-SHIFT, SHIFT, 4))
                crop = crop[:, ::rng.choice([-1, 1]), rng.permutation(3)]
                pictures.append(crop)
                classes.append(kind)
            if len(classes) >= self.size:
                break
        return np.stack(pictures[:self.size]), np.stack(classes[:self.size])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default=fashion_mnist.DEFAULT_DIR, metavar="DIR",
                        help="folder of the IDX files (default: %(default)s)")
    parser.add_argument("--output", required=True, metavar="FILE", help="weights to write at last")
    parser.add_argument("--batches", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=192, help="crops per batch")
    parser.add_argument("--peak-rate", type=float, default=0.004, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="same result only with the same")
    parser.add_argument("--float32", action="store_true",
                        help="convolve in float32, for CPUs that are slow with bfloat16")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(args.seed)
    net = CropNet().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0, weight_decay=0.02)
    noise = np.random.default_rng(args.seed).standard_normal(NOISE, np.float32)
    composer = Composer(*fashion_mnist.load(args.dataset, "train"), SCENES, args.seed, noise)
    loader = DataLoader(Batches(composer, args.batch, args.batches), batch_size=None,
                        num_workers=1, prefetch_factor=8)
    print(f"{sum(p.numel() for p in net.parameters())} parameters, {args.batches} batches of "
          f"{args.batch} crops", flush=True)
    net.train()
    start, losses, hits = time.monotonic(), [], []
    for i, (pixels, classes) in enumerate(loader, 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(i / args.batches, args.peak_rate)
        x = pixels.permute(0, 3, 1, 2).float().mul_(1 / 255)  # stored as channels_last
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not args.float32):
            logits = net(x)
        loss = F.cross_entropy(logits.float(), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        hits.append((logits.argmax(1) == classes).float().mean().item())
        if i % 50 == 0 or i == args.batches:
            print(f"batch {i:5}: loss {np.mean(losses):.4f}, {np.mean(hits):.2%} right, "
                  f"{time.monotonic() - start:.0f} s", flush=True)
            losses, hits = [], []
    torch.save({"net": net.state_dict()}, args.output + ".part")
    os.replace(args.output + ".part", args.output)


if __name__ == "__main__":
    main()
