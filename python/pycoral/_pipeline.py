# SPDX-License-Identifier: Apache-2.0
"""Segments of a model, each on a thread of its own, with queues between them."""
import queue
import threading
from typing import Any, Dict, List, Optional

import numpy as np

from atoll.tflite import Interpreter, interpreter_of

Tensors = Dict[str, np.ndarray]
_WAITING = 64  # between two segments


class PipelinedModelRunnerWrapper:
    """What goes into the pipeline comes out in the same order. A segment takes its inputs from what
    was pushed and what segments before it made, by the names of tensors. After a failure nothing
    more is computed, and Pop raises it."""

    def __init__(self, handles: List[int]) -> None:
        interpreters = [interpreter_of(handle) for handle in handles]
        self._inputs: queue.Queue = queue.Queue()
        self._outputs: queue.Queue = queue.Queue()
        self._ended = False
        self._drained = False
        self._failure: Optional[BaseException] = None
        source = self._inputs
        for interpreter in interpreters:
            is_last = interpreter is interpreters[-1]
            target = self._outputs if is_last else queue.Queue(_WAITING)
            # The threads know the queues, not this object: what nobody holds any more ends them.
            threading.Thread(target=_run_segment, args=(interpreter, is_last, source, target),
                             daemon=True).start()
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
        if self._ended:
            raise RuntimeError("Pipeline was turned off before.")
        self._ended = not tensors
        self._inputs.put({name: np.array(tensor) for name, tensor in tensors.items()})
        return True

    def Pop(self) -> Optional[Tensors]:
        if self._drained:
            return None
        found = self._outputs.get() if self._failure is None else self._failure
        if isinstance(found, BaseException):
            self._failure = found  # for whoever asks again
            raise RuntimeError(str(found)) from found
        self._drained = not found
        return found or None


def _resize(waiting: queue.Queue, size: int) -> None:
    with waiting.mutex:
        waiting.maxsize = max(0, size)
        waiting.not_full.notify_all()


def _run_segment(interpreter: Interpreter, is_last: bool, source: queue.Queue,
                 target: queue.Queue) -> None:
    failed = False
    while True:
        tensors: Any = source.get()
        if not failed and isinstance(tensors, dict) and tensors:
            try:
                tensors = _invoke(interpreter, tensors, is_last)
            except Exception as error:  # pylint: disable=broad-except
                tensors = error
        if failed and tensors:
            continue  # of what comes after a failure only the end counts
        failed = isinstance(tensors, BaseException)
        target.put(tensors)
        if isinstance(tensors, dict) and not tensors:
            return


def _invoke(interpreter: Interpreter, tensors: Tensors, is_last: bool) -> Tensors:
    for details in interpreter.get_input_details():
        if details["name"] not in tensors:
            raise ValueError(f"no segment before makes the tensor '{details['name']}'")
        interpreter.set_tensor(details["index"], tensors[details["name"]])
    interpreter.invoke()
    made = {details["name"]: interpreter.get_tensor(details["index"])
            for details in interpreter.get_output_details()}
    return made if is_last else {**tensors, **made}
