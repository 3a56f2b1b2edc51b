# SPDX-License-Identifier: Apache-2.0
"""The detector's input, its anchors, and which anchor should find what; without PyTorch."""

from collections import namedtuple

import numpy as np

HEIGHT, WIDTH = 128, 176
CLASSES = 10

# Of TFLite_Detection_PostProcess: y_scale and x_scale; h_scale and w_scale; what it keeps.
CENTER_SCALE, SIZE_SCALE = 10.0, 5.0
SCORE_THRESHOLD, IOU_THRESHOLD, MAX_DETECTIONS = 0.01, 0.45, 60

# Pieces whose longer side is within `sides` (in pixels) are found on this map; in the overlap on
# both.
FeatureMap = namedtuple("FeatureMap", "stride anchor sides")
MAPS = [FeatureMap(8, 26.0, (0, 40)), FeatureMap(16, 48.0, (34, 1000))]


def anchors():
    """float32 [cells, 4]: y and x of the centre, h, w as fractions of the picture."""
    rows = []
    for m in MAPS:
        y, x = np.mgrid[m.stride / 2:HEIGHT:m.stride, m.stride / 2:WIDTH:m.stride]
        rows.append(np.stack([y / HEIGHT, x / WIDTH, np.full(y.shape, m.anchor / HEIGHT),
                              np.full(y.shape, m.anchor / WIDTH)], 2).reshape(-1, 4))
    return np.concatenate(rows).astype(np.float32)


def assign(boxes):
    """What each anchor should find: (index of a box or -1 [anchors], encoding float32 [anchors, 4]).

    A box belongs to the cells whose centres lie near its own: within 1.25 strides in both
    directions, not outside of the inner half of the box unless within 0.5 strides. Of several boxes
    the last one, which lies in front, gets the cell.
    """
    grid = anchors()
    owner = np.full(len(grid), -1, np.int64)
    target = np.zeros((len(grid), 4), np.float32)
    pixels = boxes * np.array([HEIGHT, WIDTH, HEIGHT, WIDTH], np.float32)
    first = 0
    for m in MAPS:
        rows, columns = HEIGHT // m.stride, WIDTH // m.stride
        view = owner[first:first + rows * columns].reshape(rows, columns)
        for i, (top, left, bottom, right) in enumerate(pixels):
            if not m.sides[0] <= max(bottom - top, right - left) < m.sides[1]:
                continue
            view[_cells(top, bottom, m.stride, rows), _cells(left, right, m.stride, columns)] = i
        first += rows * columns
    found = np.flatnonzero(owner >= 0)
    box, anchor = boxes[owner[found]], grid[found]
    center, size = (box[:, :2] + box[:, 2:]) / 2, box[:, 2:] - box[:, :2]
    target[found] = np.concatenate([(center - anchor[:, :2]) / anchor[:, 2:] * CENTER_SCALE,
                                    np.log(size / anchor[:, 2:]) * SIZE_SCALE], 1)
    return owner, target


def _cells(low, high, stride, count):
    """The slice of cells along one axis that belong to a box from low to high."""
    center = (low + high) / 2 / stride - 0.5  # in cells, whose centres are whole numbers
    reach = min(max((high - low) / 4 / stride, 0.5), 1.25)
    first = max(0, int(np.ceil(center - reach)))
    last = min(count - 1, int(np.floor(center + reach)))
    return slice(min(first, count - 1), last + 1)
