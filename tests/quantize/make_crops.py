#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes crops of pictures as float32 in files, for tests of the quantizer.

usage: make_crops.py IMAGES OUT SEED SIDE SCALE OFFSET CROPS_PER_PICTURE

Of each picture the centred square, then CROPS_PER_PICTURE squares at places that SEED decides, resized
to SIDE x SIDE, RGB, value / SCALE + OFFSET, one after the other.
"""
import pathlib
import sys

import numpy
from PIL import Image

NAMES = ["cat.bmp", "cat_720p.jpg", "grace_hopper.bmp", "kite_and_cold.jpg", "no_person.bmp", "owl.jpg",
         "parrot.jpg", "person.bmp", "posenet_test_image.bmp", "squat.bmp", "bird_segmentation.bmp"]


def crops(images, seed, side, count):
    random = numpy.random.RandomState(seed)
    for name in NAMES:
        picture = Image.open(images / name).convert("RGB")
        w, h = picture.size
        m = min(w, h)
        squares = [((w - m) // 2, (h - m) // 2, m)]
        for _ in range(count):
            s = int(m * random.uniform(0.35, 0.9))
            squares.append((random.randint(0, w - s + 1), random.randint(0, h - s + 1), s))
        for x, y, s in squares:
            yield picture.crop((x, y, x + s, y + s)).resize((side, side), Image.BILINEAR)


images, out, seed, side, scale, offset, count = sys.argv[1:]
with open(out, "wb") as file:
    for crop in crops(pathlib.Path(images), int(seed), int(side), int(count)):
        values = numpy.asarray(crop, numpy.float32) / numpy.float32(scale) + numpy.float32(offset)
        file.write(values.tobytes())
