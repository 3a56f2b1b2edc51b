# SPDX-License-Identifier: Apache-2.0
"""What the tests of the Python packages share: where things are, inputs from a seed.

Environment, set by CMakeLists.txt: ATOLL_SOURCE_DIR, ATOLL_SHARED_DIR, ATOLL_REQUIRE_SHARED, and
PYTHONPATH with the packages of the build tree.
"""
import os
import pathlib
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.environ["ATOLL_SOURCE_DIR"], "tests/support"))
from absent import absent  # noqa: E402,F401 for whoever imports this

SOURCE = pathlib.Path(os.environ["ATOLL_SOURCE_DIR"])
SHARED = pathlib.Path(os.environ["ATOLL_SHARED_DIR"])
FASHION = SOURCE / "models/fashion/fashion_int8.tflite"
SCENES = SOURCE / "models/scenes/scenes_int8.tflite"
CROPS = SOURCE / "models/crops/crops_int8.tflite"


def need(path):
    """Ends the whole suite as skipped, or as failed where reference data must be there."""
    if path.exists():
        return
    if os.environ.get("ATOLL_REQUIRE_SHARED") == "1":
        sys.exit(f"{path} is absent, but ATOLL_REQUIRE_SHARED is on")
    print(f"ATOLL-SKIPPED: reference data: {path} is absent")
    sys.exit(0)


def seeded(seed, shape, dtype):
    """The array with which the reference data fill an input (splitmix64)."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    words = count if dtype.kind == "f" else (count * dtype.itemsize + 7) // 8
    with np.errstate(over="ignore"):
        state = np.uint64(seed) + np.arange(1, words + 1, dtype=np.uint64) * np.uint64(
            0x9E3779B97F4A7C15)
        z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    if dtype.kind == "f":
        values = (z >> np.uint64(40)).astype(np.float64) / 2.0**24 * 2 - 1
        return values.astype(np.float32).reshape(shape)
    return np.frombuffer(z.tobytes()[:count * dtype.itemsize], dtype).reshape(shape).copy()


def fill(details, seed):
    """(index, array) for each input of a TensorFlow Lite interpreter's details."""
    return [(entry["index"], seeded(seed, tuple(entry["shape"]), entry["dtype"]))
            for entry in details]
