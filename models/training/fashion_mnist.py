# SPDX-License-Identifier: Apache-2.0
"""Reads Fashion-MNIST from the four gzipped IDX files of Debian's dataset-fashion-mnist."""

import gzip
import os

import numpy as np

DEFAULT_DIR = "/usr/share/datasets/fashion-mnist"


def load(directory, split):
    """Returns (images uint8 [n, 28, 28], labels uint8 [n]); split is "train" or "t10k"."""
    return (_read_idx(os.path.join(directory, f"{split}-images-idx3-ubyte.gz"), 3),
            _read_idx(os.path.join(directory, f"{split}-labels-idx1-ubyte.gz"), 1))


def _read_idx(path, rank):
    """An IDX file: the bytes 0, 0, 8 (for uint8) and rank, the sizes in big-endian, the data."""
    with gzip.open(path) as file:
        data = file.read()
    if data[:4] != bytes([0, 0, 8, rank]):
        raise SystemExit(f"{path}: not an IDX file of uint8 with {rank} dimensions")
    shape = np.frombuffer(data, ">u4", rank, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)
