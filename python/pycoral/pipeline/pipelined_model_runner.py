# SPDX-License-Identifier: Apache-2.0
"""A model that was cut into segments, each on a device and a thread of its own."""
from typing import Any, Dict, List, Optional

import numpy as np

from pycoral.pybind import _pywrap_coral


class PipelinedModelRunner:
    """Runs segments, in the order of `interpreters`, side by side: each on the next of what is
    pushed. The interpreters are allocated, and nobody else uses them meanwhile."""

    def __init__(self, interpreters: List[Any]) -> None:
        if not interpreters:
            raise ValueError("At least one interpreter expected")
        self._interpreters = list(interpreters)
        self._types = {details["name"]: details["dtype"]
                       for details in self._interpreters[0].get_input_details()}
        self._runner = _pywrap_coral.PipelinedModelRunnerWrapper(
            [interpreter._native_handle() for interpreter in self._interpreters])

    def set_input_queue_size(self, size: int) -> None:
        """How many pushed inputs may wait, from the next one on; 0: any number."""
        self._runner.SetInputQueueSize(size)

    def set_output_queue_size(self, size: int) -> None:
        """How many outputs may wait to be popped before the pipeline waits; 0: any number."""
        self._runner.SetOutputQueueSize(size)

    def push(self, input_tensors: Dict[str, np.ndarray]) -> None:
        """Hands over arrays by the names of the first segment's inputs; waits while the queue is
        full. {} ends the input, after which nothing can be pushed."""
        if input_tensors and set(input_tensors) != set(self._types):
            raise ValueError(f"Expected input of length {len(self._types)}, with the names "
                             f"{sorted(self._types)}, but got {sorted(input_tensors)}")
        for name, tensor in input_tensors.items():
            if not isinstance(tensor, np.ndarray) or tensor.dtype != self._types[name]:
                raise ValueError("Input should be a list of numpy array of type "
                                 f"{np.dtype(self._types[name])}, but '{name}' is not")
        self._runner.Push(input_tensors)

    def pop(self) -> Optional[Dict[str, np.ndarray]]:
        """The outputs of the last segment by their names, in the order of what was pushed; waits for
        them. None once everything that was pushed before {} has been popped."""
        return self._runner.Pop() or None

    def interpreters(self) -> List[Any]:
        """Those that it was made of."""
        return self._interpreters
