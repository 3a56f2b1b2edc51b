#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Python adds to an invocation: the package atoll and tflite_runtime beside `atoll benchmark`.

Each way of running a model is measured in turns with the command, on one thread of the CPU; of all
turns the smallest median counts, so that what else the computer does counts little. Needs the Python
packages of the build tree in PYTHONPATH.

Example, in the folder of the build:
  PYTHONPATH=python/atoll:python/tflite_runtime python3 ../../bench/python_overhead.py \\
      tools/atoll/atoll ../../models/fashion/fashion_int8.tflite
"""
import argparse
import json
import statistics
import subprocess
import time

import atoll
import numpy as np
import tflite_runtime.interpreter as tflite

LIMIT_US = 15.0


def median_us(call, runs):
    samples = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        call()
        samples.append(time.perf_counter_ns() - start)
    return statistics.median(samples) / 1000


def command_us(command, model, runs):
    done = subprocess.run([command, "benchmark", model, "--device", "cpu", "--threads", "1",
                           "--runs", str(runs), "--json"], capture_output=True, check=True)
    return json.loads(done.stdout)["latency_ms"]["median"] * 1000


def ways(model):
    """(name, function that invokes once) of each way."""
    interpreter = atoll.Interpreter(model, threads=1)
    values = [np.zeros(tensor.shape, tensor.dtype) for tensor in interpreter.inputs]
    yield "atoll: invoke()", interpreter.invoke
    yield "atoll: run(inputs)", lambda: interpreter.run(*values)
    stand_in = tflite.Interpreter(model, num_threads=1)
    stand_in.allocate_tensors()
    inputs = [details["index"] for details in stand_in.get_input_details()]
    outputs = [details["index"] for details in stand_in.get_output_details()]

    def set_invoke_get():
        for index, value in zip(inputs, values):
            stand_in.set_tensor(index, value)
        stand_in.invoke()
        for index in outputs:
            stand_in.get_tensor(index)

    yield "tflite_runtime: invoke()", stand_in.invoke
    yield "tflite_runtime: set_tensor, invoke, get_tensor", set_invoke_get


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", help="the atoll command")
    parser.add_argument("model", help="a .tflite file; the smaller, the better it shows")
    parser.add_argument("--runs", type=int, default=2000, help="of each way in a turn (%(default)s)")
    parser.add_argument("--turns", type=int, default=7, help="(%(default)s)")
    arguments = parser.parse_args()
    names, calls = zip(*ways(arguments.model))
    in_c = float("inf")
    best = dict.fromkeys(names, float("inf"))
    for _ in range(arguments.turns):
        in_c = min(in_c, command_us(arguments.command, arguments.model, arguments.runs))
        for name, call in zip(names, calls):
            best[name] = min(best[name], median_us(call, arguments.runs))
    print(f"{'in C++':48} {in_c:9.2f} us")
    for name, microseconds in best.items():
        print(f"{name:48} {microseconds:9.2f} us, {microseconds - in_c:6.2f} us more, "
              f"{microseconds / in_c:6.3f} times")
    worst = max(best.values()) - in_c
    print(f"at most {worst:.2f} us more; {'below' if worst <= LIMIT_US else 'ABOVE'} "
          f"{LIMIT_US:.0f} us")


if __name__ == "__main__":
    main()
