#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the float network on Fashion-MNIST and saves its weights for export_onnx.py.

The schedule is fixed in advance (SGD with Nesterov momentum, one warm-up and cosine cycle, label
smoothing) and the last weights are kept, so the test images choose nothing: they are read once,
after the last epoch.

Examples:
  ./train.py --output fashion.pt                 the shipped model
  ./train.py --output quick.pt --epochs 3        a first model in two minutes
  ./train.py --output fashion.pt --resume        continue an interrupted run
"""

import argparse
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "training"))

import fashion_mnist
from layers import learning_rate
from network import FashionNet

MAX_SHIFT = 2  # pixels


def augment(images, generator):
    """Random variants of uint8 images [n, 28, 28] as floats [n, 1, 28, 28] in 0 ... 1.

    Flip and shift are what clothes bear. Blur, contrast, brightness and noise are what a camera
    does. An image that is scaled up bilinearly and shrunk back with an antialiasing triangle
    passes two triangles of one pixel's width, i.e. the cubic B-spline, whose samples are
    [1/6, 4/6, 1/6]. So half of the images are blurred with [b, 1 - 2b, b], b up to 1/6.
    """
    def uniform(low, high):
        return low + (high - low) * torch.rand(n, 1, 1, generator=generator)

    n, height, width = images.shape
    padded = F.pad(images, (MAX_SHIFT,) * 4)
    shift = torch.randint(0, 2 * MAX_SHIFT + 1, (2, n, 1, 1), generator=generator)
    rows = torch.arange(height).view(1, height, 1) + shift[0]
    columns = torch.arange(width).expand(n, 1, width)
    columns = torch.where(uniform(0, 1) < 0.5, columns, width - 1 - columns) + shift[1]
    x = padded[torch.arange(n).view(n, 1, 1), rows, columns].float() / 255

    b = uniform(-1 / 6, 1 / 6).clamp(min=0)
    for axis in (1, 2):
        first, last = x.narrow(axis, 0, 1), x.narrow(axis, -1, 1)
        size = x.shape[axis]
        before = torch.cat((first, x.narrow(axis, 0, size - 1)), axis)
        after = torch.cat((x.narrow(axis, 1, size - 1), last), axis)
        x = x + b * (before + after - 2 * x)

    x = x * uniform(0.85, 1.15) + uniform(-0.02, 0.02)
    x = x + uniform(0, 0.02) * torch.randn(x.shape, generator=generator)
    return x.clamp_(0, 1).unsqueeze(1)


def train_epoch(net, optimizer, images, labels, epoch, args):
    """One pass over all images. Depends only on its arguments, so a run can be resumed exactly."""
    generator = torch.Generator().manual_seed(args.seed * 1000 + epoch)
    order = torch.randperm(len(images), generator=generator)
    batches = order[:len(images) // args.batch * args.batch].view(-1, args.batch)
    loss_sum = correct = 0
    net.train()
    for i, batch in enumerate(batches):
        progress = (epoch + (i + 1) / len(batches)) / args.epochs
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(progress, args.peak_rate)
        target = labels[batch]
        logits = net(augment(images[batch], generator))
        loss = F.cross_entropy(logits, target, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.item()
        correct += (logits.argmax(1) == target).sum().item()
    return loss_sum / len(batches), correct / batches.numel()


@torch.no_grad()
def accuracy(net, images, labels):
    net.eval()
    hits = sum((net(x.unsqueeze(1).float() / 255).argmax(1) == y).sum().item()
               for x, y in zip(images.split(500), labels.split(500)))
    return hits / len(images)


def load_tensors(directory, split):
    images, labels = fashion_mnist.load(directory, split)
    return torch.from_numpy(images.copy()), torch.from_numpy(labels.astype(np.int64))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default=fashion_mnist.DEFAULT_DIR, metavar="DIR",
                        help="folder of the IDX files (default: %(default)s)")
    parser.add_argument("--output", required=True, metavar="FILE",
                        help="weights to write, after every epoch")
    parser.add_argument("--resume", action="store_true",
                        help="continue from the last finished epoch in the output file")
    parser.add_argument("--epochs", type=int, default=64)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--peak-rate", type=float, default=0.15, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="same result only with the same")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(args.seed)
    net = FashionNet().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0, momentum=0.9, nesterov=True,
                                weight_decay=5e-4)
    first_epoch, seconds = 0, 0.0
    if args.resume:
        state = torch.load(args.output)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        first_epoch, seconds = state["epoch"], state["seconds"]

    images, labels = load_tensors(args.dataset, "train")
    parameters = sum(p.numel() for p in net.parameters())
    print(f"{parameters} parameters, {len(images)} images, {args.epochs} epochs", flush=True)
    for epoch in range(first_epoch, args.epochs):
        start = time.monotonic()
        loss, hits = train_epoch(net, optimizer, images, labels, epoch, args)
        seconds += time.monotonic() - start
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(),
                    "epoch": epoch + 1, "seconds": seconds}, args.output + ".part")
        os.replace(args.output + ".part", args.output)
        print(f"epoch {epoch + 1:2}: loss {loss:.4f}, accuracy on augmented training images "
              f"{hits:.2%}, {seconds:.0f} s", flush=True)
    print(f"test accuracy (float): {accuracy(net, *load_tensors(args.dataset, 't10k')):.2%}")


if __name__ == "__main__":
    main()
