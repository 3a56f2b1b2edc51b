#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where the time of models goes on the CPU, by kinds of layers, beside what their products alone take.

    bench/layer_shares.py [--turns N] [--runs N] ATOLL [ATOLL] -- MODEL...

With two commands, of builds before and after a change, both are measured in turns. A layer's time is
the least of the turns' (`atoll profile`, one thread, so layers that would run a few lines at a time
run one by one); `products` is what its multiply-accumulates take at the peak of the instruction, as
`atoll benchmark` measures it in the same minutes: the roofline of a layer whose operands are in the
caches. ATOLL_CPU lowers the level of both. A shared library beside a command is its own.
"""
import argparse
import json
import os
import pathlib
import subprocess


def run(command, *words):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(pathlib.Path(command).parent)}
    done = subprocess.run([command, *map(str, words), "--device", "cpu", "--threads", "1", "--json"],
                          capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout)


def kind_of(layer):
    if not layer["macs"]:
        return "without products"
    outputs = 1
    for size in layer["shape"].strip("[]").split(","):
        outputs *= int(size)
    depth = layer["macs"] // outputs
    if layer["op"] == "CONV_2D":
        return f"CONV_2D, {'at most 32' if depth <= 32 else 'to 128' if depth <= 128 else 'more'} products"
    return layer["op"]


def measure(commands, model, turns, runs):
    """By kind: macs and the ms of each command. The second value: peaks seen, in MAC per ms."""
    least = [{} for _ in commands]
    layers = []
    peak = 0
    for _ in range(turns):
        for i, command in enumerate(commands):
            layers = run(command, "profile", model, "--runs", runs)["layers"]
            for layer in layers:
                ms = layer["measured_cpu_ms"] or 0
                node = layer["node"]
                least[i][node] = min(least[i].get(node, ms), ms)
            machine = run(command, "benchmark", model, "--runs", 1, "--warmup", 0)["machine"]
            peak = max(peak, machine["peak_gmacs"] * 1e6)
    kinds = {}
    for layer in layers:
        kind = kinds.setdefault(kind_of(layer), [0, 0] + [0.0] * len(commands))
        kind[0] += 1
        kind[1] += layer["macs"] or 0
        for i in range(len(commands)):
            kind[2 + i] += least[i].get(layer["node"], 0)
    return kinds, peak


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("atoll", nargs="+", help="one or two commands, then the models (.tflite)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--runs", type=int, default=30)
    args = parser.parse_args()
    models = [word for word in args.atoll if word.endswith(".tflite")]
    commands = [word for word in args.atoll if word not in models]
    if not models or len(commands) not in (1, 2):
        parser.error("one or two commands and some models, please")

    columns = ["ms, share of the peak"] if len(commands) == 1 else ["before: ms, share", "after: ms, share"]
    print("| model | layers | number | 10^6 MAC | products, ms | " + " | ".join(columns) + " |")
    print("|---|---|---:|---:|---:|" + "---:|" * len(commands))
    for model in models:
        kinds, peak = measure(commands, model, args.turns, args.runs)
        total = [sum(column) for column in zip(*kinds.values())]
        rows = sorted(kinds.items(), key=lambda item: -item[1][-1]) + [("all", total)]
        for kind, (count, macs, *times) in rows:
            products = macs / peak
            cells = [f"{ms:.3f}" + (f" {products / ms:.0%}" if macs and ms else "") for ms in times]
            name = pathlib.Path(model).stem if kind == rows[0][0] else ""
            print(f"| {name} | {kind} | {count} | {macs / 1e6:.1f} | {products:.3f} | "
                  + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
