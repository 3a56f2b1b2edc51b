# SPDX-License-Identifier: Apache-2.0
"""Segments of a model, each on a thread of its own, with queues between them."""
import queue
import threading
from typing import Any, Dict, List, Optional

import numpy as np

from atoll.tflite import Interpreter, interpreter_of

Tensors = Dict[str, np.ndarray]
_WAITING = 1  # between two segments


class PipelinedModelRunnerWrapper:
    """What goes into the pipeline comes out in the same order. A segment takes its inputs from what
    was pushed and what segments before it made, by the names of tensors. After a failure nothing
    more is computed, and Pop raises it."""

    def __init__(self, handles: List[int]) -> None:
        interpreters = [interpreter_of(handle) for handle in handles]
        known = {details["name"] for details in interpreters[0].get_input_details()}
        for number, interpreter in enumerate(interpreters):
            if not known.issuperset(details["name"] for details in interpreter.get_input_details()):
                raise ValueError(f"Interpreter {number} can not get its input tensors: no segment "
                                 "before it makes all of them")
            known.update(details["name"] for details in interpreter.get_output_details())
        self._inputs: queue.Queue = queue.Queue()
        self._outputs: queue.Queue = queue.Queue()
        self._ended = False
        self._drained = False
        self._failure = ""
        source = self._inputs
        for number, interpreter in enumerate(interpreters):
            is_last = number == len(interpreters) - 1
            target = self._outputs if is_last else queue.Queue(_WAITING)
            # The threads know the queues, not this object: what nobody holds any more ends them.
            threading.Thread(target=_run_segment, daemon=True,
                             args=(number, interpreter, is_last, source, target)).start()
            source = target

    def __del__(self) -> None:
        if not getattr(self, "_ended", True):
            self.SetOutputQueueSize(0)
            self._inputs.put({})

    def SetInputQueueSize(self, size: int) -> None:
        _resize(self._inputs, size)

    def SetOutputQueueSize(self, size: int) -> None:
        _resize(self._outputs, size)

    def Push(self, tensors: Tensors) -> bool:
        if self._failure and tensors:
            raise RuntimeError(self._failure)
        if self._ended:
            raise RuntimeError("Pipeline was turned off before.")
        self._ended = not tensors
        self._inputs.put({name: np.array(tensor) for name, tensor in tensors.items()})
        return True

    def Pop(self) -> Optional[Tensors]:
        if self._failure:
            raise RuntimeError(self._failure)
        if self._drained:
            return None
        found = self._outputs.get()
        if isinstance(found, str):
            self._failure = found  # for whoever asks again
            raise RuntimeError(found)
        self._drained = not found
        return found or None


def _resize(waiting: queue.Queue, size: int) -> None:
    with waiting.mutex:
        waiting.maxsize = max(0, size)
        waiting.not_full.notify_all()


def _run_segment(number: int, interpreter: Interpreter, is_last: bool, source: queue.Queue,
                 target: queue.Queue) -> None:
    """Hands on what it makes of what comes, up to {}, the end. A failure is handed on as a text, and
    after that the end alone."""
    failed = False
    while True:
        tensors: Any = source.get()
        if tensors and failed:
            continue
        if tensors and not isinstance(tensors, str):
            try:
                tensors = _invoke(interpreter, tensors, is_last)
            except Exception as error:  # pylint: disable=broad-except
                tensors = f"Segment {number} runner error: {error}"
        failed = isinstance(tensors, str)
        target.put(tensors)
        if not tensors:
            return


def _invoke(interpreter: Interpreter, tensors: Tensors, is_last: bool) -> Tensors:
    interpreter._ensure_ready()
    for details in interpreter.get_input_details():
        interpreter.set_tensor(details["index"], tensors[details["name"]])
    interpreter.invoke()
    made = {details["name"]: interpreter.get_tensor(details["index"])
            for details in interpreter.get_output_details()}
    return made if is_last else {**tensors, **made}
