#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast programs for TensorFlow Lite become with Atoll in the place of TensorFlow Lite 2.9 and
under it. Each model runs in processes that take turns: the original as it is; with XNNPACK for int8,
which it does not take by itself (C only; it does not run every model); with Atoll's delegate;
Atoll's library in its place. The shortest run of each counts, on one thread (the emulator: on all).

  bench/stand_ins.py --build build/release MODEL.tflite ...            as a C program
  bench/stand_ins.py --build build/release --node MODEL.tflite ...     as a program for Node
  bench/stand_ins.py --build build/release --python MODEL.tflite ...   as a program in Python

Python has no package with the original: it is called by ctypes. The interpreter that runs this runs
Atoll's tflite_runtime, too, and needs numpy. The original is what `ctest -R compat/original` has brought."""
import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys


def geometric_mean(ratios):
    there = [ratio for ratio in ratios if not math.isnan(ratio)]
    return math.exp(sum(map(math.log, there)) / len(there)) if there else math.nan


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    language = parser.add_mutually_exclusive_group()
    language.add_argument("--node", action="store_true")
    language.add_argument("--python", action="store_true")
    parser.add_argument("--turns", type=int, default=5, help="processes of each kind (5)")
    parser.add_argument("--times", type=int, default=40, help="runs in each process (40)")
    parser.add_argument("models", nargs="+")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    modules = build / "tests/compat/original/node_modules"
    original = modules / "tfjs-tflite-node/cc_deps/linux_amd64"
    ours = build / "compat/tensorflowlite_c"
    packages = build / "python"
    delegate = str(build / "compat/tflite_delegate/libatoll_tflite_delegate.so")
    source = pathlib.Path(__file__).resolve().parent.parent

    def run(libraries, model, *more):
        environment = {**os.environ, "NODE_PATH": str(modules)}
        if arguments.node:
            if libraries == ours:
                environment["LD_LIBRARY_PATH"] = str(ours)
            command = ["node", str(source / "tests/compat/run_model.js"), model, "1",
                       "--times", str(arguments.times), *more]
        elif arguments.python:
            environment["PYTHONPATH"] = f"{packages}/atoll:{packages}/tflite_runtime"
            environment["ATOLL_EDGETPU_EMULATE"] = "1" if "emulated" in more else ""
            command = [sys.executable, str(source / "bench/stand_ins_program.py"), model,
                       str(arguments.times)]
            if libraries == original:
                command.append(str(original / "libtensorflowlite_c.so"))
        else:
            environment["LD_LIBRARY_PATH"] = str(libraries)
            if libraries == original:
                environment["LD_PRELOAD"] = str(original / "libexternal_delegate_obj.so")
            command = [str(build / "tests/compat/run_model"), model, "1", "--threads", "1",
                       "--times", str(arguments.times), *more]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode != 0 and "--xnnpack" in more:
            return math.nan
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
        if arguments.node:
            return json.loads(done.stdout.splitlines()[-1])["us"]
        return float(re.search(r"shortest: ([0-9.]+) us", done.stdout + done.stderr)[1])

    kinds = {
        "TFLite 2.9": (original,),
        "with XNNPACK": (original, "--xnnpack"),
        "with Atoll's delegate, cpu": (original, "--delegate", delegate, "device=cpu",
                                       "num_threads=1"),
        "with Atoll's delegate, emu": (original, "--delegate", delegate, "device=emu"),
        "Atoll's library": (ours,),
    }
    if arguments.node:
        del kinds["with XNNPACK"]
    if arguments.python:
        kinds = {"TFLite 2.9": (original,), "tflite_runtime": (packages,),
                 "tflite_runtime, emulated": (packages, "emulated")}
    print(f"{'model':44}" + "".join(f"{kind:>28}" for kind in kinds) + "   in ms (times faster)")
    ratios = {kind: [] for kind in kinds}
    for model in arguments.models:
        shortest = dict.fromkeys(kinds, math.inf)
        for _ in range(arguments.turns):
            for kind, (libraries, *more) in kinds.items():
                shortest[kind] = min(run(libraries, model, *more), shortest[kind])
        line = f"{pathlib.Path(model).stem:44}"
        for kind, us in shortest.items():
            ratio = shortest["TFLite 2.9"] / us
            ratios[kind].append(ratio)
            line += f"{us / 1000:>18.3f} ({ratio:6.2f})"
        print(line, flush=True)
    print(f"{'geometric mean':44}" + "".join(
        f"{geometric_mean(each):>26.2f} x" for each in ratios.values()))


if __name__ == "__main__":
    main()
