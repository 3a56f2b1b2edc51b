# SPDX-License-Identifier: Apache-2.0
"""What the tests of the stand-ins share: programs for TensorFlow Lite, run with the library of either
side, and what TensorFlow Lite's reference kernels gave.

Environment, set by CMakeLists.txt: ATOLL_COMMAND, ATOLL_STAND_IN (folder of our libtensorflowlite_c.so),
ATOLL_TFLITE_DELEGATE, ATOLL_RUN_MODEL, ATOLL_AGAINST_TFLITE, ATOLL_CORE (libatoll-core.so),
ATOLL_ORIGINAL (npm's folder), ATOLL_EMULATOR (runs programs of another architecture),
ATOLL_SOURCE_DIR, ATOLL_SHARED_DIR, ATOLL_REQUIRE_SHARED.
"""
import collections
import hashlib
import json
import math
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(os.environ["ATOLL_SOURCE_DIR"])
SHARED = pathlib.Path(os.environ["ATOLL_SHARED_DIR"])
GOLDEN = SHARED / "golden/models"
STAND_IN = pathlib.Path(os.environ["ATOLL_STAND_IN"])
COMMAND = os.environ["ATOLL_COMMAND"]
DELEGATE = os.environ["ATOLL_TFLITE_DELEGATE"]
RUN_MODEL = os.environ["ATOLL_RUN_MODEL"]
EMULATOR = [os.environ["ATOLL_EMULATOR"]] if os.environ.get("ATOLL_EMULATOR") else []
ORIGINAL = pathlib.Path(os.environ["ATOLL_ORIGINAL"], "node_modules")
ORIGINAL_LIBRARIES = ORIGINAL / "tfjs-tflite-node/cc_deps/linux_amd64"

BYTES = {"uint8": 1, "int8": 1, "bool": 1, "int16": 2, "int32": 4, "float32": 4, "int64": 8}
Result = collections.namedtuple("Result", "code stdout stderr")


def skip(reason):
    print(f"ATOLL-SKIPPED: {reason}")
    sys.exit(0)


def need_shared(path):
    """Ends the whole suite as skipped, or as failed where reference data must be there."""
    if path.exists():
        return
    if os.environ.get("ATOLL_REQUIRE_SHARED") == "1":
        sys.exit(f"{path} is absent, but ATOLL_REQUIRE_SHARED is on")
    skip(f"reference data: {path} is absent")


def need_original():
    if not ORIGINAL_LIBRARIES.exists():
        skip("TensorFlow Lite 2.9 is not there (compat/original says why)")


def run_model(model, seed, *arguments, libraries=STAND_IN, timeout=3000 if EMULATOR else 300,
              **environment):
    """The program run_model with the libraries of that folder."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries), **environment}
    # The original has the functions for external delegates in a library of their own.
    external = pathlib.Path(libraries, "libexternal_delegate_obj.so")
    if external.exists():
        environment["LD_PRELOAD"] = str(external)
    done = subprocess.run([*EMULATOR, RUN_MODEL, str(model), str(seed), *map(str, arguments)],
                          capture_output=True, timeout=timeout, env=environment, check=False)
    return Result(done.returncode, done.stdout, done.stderr.decode())


def golden_models():
    """Name, file and results by seed of each model that TensorFlow Lite runs."""
    need_shared(GOLDEN)
    for path in sorted(GOLDEN.glob("*.json")):
        seeds = json.loads(path.read_text())["seeds"]
        if all("outputs" in result for result in seeds.values()):
            yield path.stem, SHARED / "models" / f"{path.stem}.tflite", seeds


def split_outputs(data, outputs):
    """The bytes of each output in the concatenation of all; None if there are too many or few."""
    parts = []
    for output in outputs:
        size = math.prod(output["shape"]) * BYTES[output["dtype"]]
        parts.append(data[:size])
        data = data[size:]
    return None if data else parts


def equal_to_golden(data, outputs):
    parts = split_outputs(data, outputs)
    return parts is not None and all(
        hashlib.sha256(part).hexdigest() == output["sha256"]
        for part, output in zip(parts, outputs, strict=True))
