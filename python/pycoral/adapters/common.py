# SPDX-License-Identifier: Apache-2.0
"""Inputs and outputs of models for pictures: one input of the shape [1, height, width, channels]."""
from typing import Any, Callable, Tuple

import numpy as np


def output_tensor(interpreter: Any, i: int) -> np.ndarray:
    """A view of the i-th output. None may be alive when the interpreter invokes."""
    return interpreter.tensor(interpreter.get_output_details()[i]["index"])()


def input_details(interpreter: Any, key: str) -> Any:
    """What the details of the input have under that key."""
    return interpreter.get_input_details()[0][key]


def input_size(interpreter: Any) -> Tuple[int, int]:
    """(width, height) of the input."""
    _, height, width, _ = (int(size) for size in input_details(interpreter, "shape"))
    return width, height


def input_tensor(interpreter: Any) -> np.ndarray:
    """A view of the input, [height, width, channels]. None may be alive when the interpreter
    invokes."""
    return interpreter.tensor(input_details(interpreter, "index"))()[0]


def set_input(interpreter: Any, data: Any) -> None:
    """Copies `data`, as large as the input, into it."""
    input_tensor(interpreter)[:, :] = data


def set_resized_input(interpreter: Any, size: Tuple[int, int],
                      resize: Callable[[Tuple[int, int]], Any]) -> Tuple[Any, Tuple[float, float]]:
    """Copies a picture of that (width, height) into the upper left of the input, as large as it
    fits there without a change of its proportions; zeros fill the rest. `resize` makes the picture
    of a (width, height). Returns what it made, and the factors of both sizes."""
    width, height = input_size(interpreter)
    scale = min(width / size[0], height / size[1])
    resized = int(size[0] * scale), int(size[1] * scale)
    picture = resize(resized)
    tensor = input_tensor(interpreter)
    tensor.fill(0)
    tensor[:resized[1], :resized[0]] = np.reshape(picture,
                                                  (resized[1], resized[0], tensor.shape[2]))
    return picture, (scale, scale)
