# SPDX-License-Identifier: Apache-2.0
"""Cuts pieces of clothing out of scenes, as a cascade cuts a detector's boxes out of a frame."""

import os
import sys

import numpy as np
from PIL import Image

_MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[1:1] = [os.path.join(_MODELS, "scenes"), os.path.join(_MODELS, "training")]

SIDE = 32      # of a crop, in pixels
MARGIN = 0.1   # of a box's height or width, on every side of it


def place(box, width, height):
    """(left, top, right, bottom) in pixels of a box (top, left, bottom, right, as fractions of the
    picture) with its margin, within the picture."""
    top, left, bottom, right = box
    dy, dx = MARGIN * (bottom - top), MARGIN * (right - left)
    edges = np.array([left - dx, top - dy, right + dx, bottom + dy]).clip(0, 1)
    edges = np.floor(edges * [width, height, width, height] + 0.5).astype(int)
    edges[2:] = np.maximum(edges[2:], edges[:2] + 1)
    return tuple(int(edge) for edge in edges)


def cut(picture, box):
    """uint8 [SIDE, SIDE, 3] of a PIL image, with the margin."""
    crop = picture.crop(place(box, *picture.size))
    return np.asarray(crop.resize((SIDE, SIDE), Image.Resampling.BILINEAR))
