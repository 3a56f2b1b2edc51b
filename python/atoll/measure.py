# SPDX-License-Identifier: Apache-2.0
"""How long models take, and where. Times are measured on this computer, but for what is called
modelled: that is what a device's timing model says, and the two are never added up."""
import collections
import dataclasses
import time
from typing import Any, List, Union

from atoll import _atoll
from atoll.interpreter import Interpreter, Node


_WAITS = ("queue_ns", "link_out_ns", "compute_ns", "link_in_ns")


@dataclasses.dataclass(frozen=True)
class Benchmark:
    """Times of invocations, in seconds."""
    runs: int
    mean: float
    min: float
    p50: float
    p95: float
    max: float
    # Of the device, per invocation; 0.0 without one.
    modelled_device_seconds: float


@dataclasses.dataclass(frozen=True)
class NodeTime:
    """What an operator on the CPU took in one invocation, on average."""
    node: Node
    seconds: float


@dataclasses.dataclass(frozen=True)
class Profile:
    """Where the time of an invocation goes, on average."""
    seconds: float  # the whole
    nodes: List[NodeTime]  # on the CPU, in execution order; a fused one counts for its first
    device_wait_seconds: float  # for partitions; an emulated device computes in here
    modelled_device_seconds: float

    def __str__(self) -> str:
        slowest = sorted(self.nodes, key=lambda timed: -timed.seconds)[:20]
        lines = [f"{self.seconds * 1e3:9.3f} ms  an invocation"]
        lines += [f"{timed.seconds * 1e3:9.3f} ms  node {timed.node.index} ({timed.node.op})"
                  for timed in slowest]
        if self.device_wait_seconds:
            lines.append(f"{self.device_wait_seconds * 1e3:9.3f} ms  partitions")
        return "\n".join(lines)


def _open(model: Any, options: dict) -> Interpreter:
    return model if isinstance(model, Interpreter) else Interpreter(model, **options)


def benchmark(model: Union[Interpreter, Any], *, runs: int = 50, warmup: int = 5,
              **options: Any) -> Benchmark:
    """Measures `runs` invocations after `warmup` others. `model` is an `Interpreter`, or what one is
    made from, with its options."""
    if runs < 1:
        raise _atoll.InvalidArgumentError(f"runs is {runs}, but must be at least 1")
    interpreter = _open(model, options)
    for _ in range(warmup):
        interpreter.invoke()
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        interpreter.invoke()
        seconds.append(time.perf_counter() - start)
    seconds.sort()
    return Benchmark(runs=runs, mean=sum(seconds) / runs, min=seconds[0],
                     p50=seconds[runs // 2], p95=seconds[min(runs - 1, runs * 95 // 100)],
                     max=seconds[-1],
                     modelled_device_seconds=interpreter.last_invocation["device_seconds"])


def profile(model: Union[Interpreter, Any], *, runs: int = 10, **options: Any) -> Profile:
    """Measures each operator on the CPU and each wait for the device over `runs` invocations.
    `model` and `options` as for `benchmark`."""
    if runs < 1:
        raise _atoll.InvalidArgumentError(f"runs is {runs}, but must be at least 1")
    interpreter = _open(model, options)
    interpreter.invoke()
    node_ns: collections.Counter = collections.Counter()
    wait_ns = 0
    seconds = 0.0
    # An invocation that is traced takes longer, above all on an emulated device: each is done twice.
    for _ in range(runs):
        start = time.perf_counter()
        interpreter.invoke()
        seconds += (time.perf_counter() - start) / runs
        said = interpreter.last_invocation
        wait_ns += sum(said[part] for part in _WAITS)
        for event in interpreter._native.invoke_traced():
            if event["kind"] == "node":
                node_ns[event["node"]] += event["duration_ns"]
    return Profile(seconds=seconds,
                   nodes=[NodeTime(node, node_ns[node.index] * 1e-9 / runs)
                          for node in interpreter.nodes if node.index in node_ns],
                   device_wait_seconds=wait_ns * 1e-9 / runs,
                   modelled_device_seconds=interpreter.last_invocation["device_seconds"])
