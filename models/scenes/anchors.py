# SPDX-License-Identifier: Apache-2.0
"""The detector's input, its anchors, and which anchor should find what; without PyTorch."""

import numpy as np

HEIGHT, WIDTH = 128, 176
CLASSES = 10

# Of TFLite_Detection_PostProcess: y_scale and x_scale; h_scale and w_scale; what it keeps.
CENTER_SCALE, SIZE_SCALE = 10.0, 5.0
SCORE_THRESHOLD, IOU_THRESHOLD, MAX_DETECTIONS = 0.01, 0.45, 60

STRIDE, ANCHOR = 8, 36.0  # in pixels: from cell to cell, and the side of a cell's anchor
ROWS, COLUMNS = HEIGHT // STRIDE, WIDTH // STRIDE


def anchors():
    """float32 [cells, 4]: y and x of the centre, h, w as fractions of the picture."""
    y, x = np.mgrid[STRIDE / 2:HEIGHT:STRIDE, STRIDE / 2:WIDTH:STRIDE]
    return np.stack([y / HEIGHT, x / WIDTH, np.full(y.shape, ANCHOR / HEIGHT),
                     np.full(y.shape, ANCHOR / WIDTH)], 2).reshape(-1, 4).astype(np.float32)


def assign(boxes):
    """What each cell should find: (index of a box or -1 [cells], encoding float32 [cells, 4]).

    A box belongs to the cells whose centres lie near its own: within 1.25 strides in both
    directions, not outside of the inner half of the box unless within 0.5 strides. Of several boxes
    the last one, which lies in front, gets the cell.
    """
    grid = anchors()
    owner = np.full((ROWS, COLUMNS), -1, np.int64)
    target = np.zeros((len(grid), 4), np.float32)
    for i, (top, left, bottom, right) in enumerate(boxes):
        owner[_cells(top * HEIGHT, bottom * HEIGHT, ROWS),
              _cells(left * WIDTH, right * WIDTH, COLUMNS)] = i
    owner = owner.ravel()
    found = np.flatnonzero(owner >= 0)
    box, anchor = boxes[owner[found]], grid[found]
    center, size = (box[:, :2] + box[:, 2:]) / 2, box[:, 2:] - box[:, :2]
    target[found] = np.concatenate([(center - anchor[:, :2]) / anchor[:, 2:] * CENTER_SCALE,
                                    np.log(size / anchor[:, 2:]) * SIZE_SCALE], 1)
    return owner, target


def _cells(low, high, count):
    """The slice of cells along one axis that belong to a box from low to high, in pixels."""
    center = (low + high) / 2 / STRIDE - 0.5  # in cells, whose centres are whole numbers
    reach = min(max((high - low) / 4 / STRIDE, 0.5), 1.25)
    first = max(0, int(np.ceil(center - reach)))
    last = min(count - 1, int(np.floor(center + reach)))
    return slice(min(first, count - 1), last + 1)
