# SPDX-License-Identifier: Apache-2.0
"""The output of a model that gives each pixel a class."""
from typing import Any

import numpy as np


def get_output(interpreter: Any) -> np.ndarray:
    """The first output without the batch, in uint8: a class of each pixel, [height, width]; or
    scores of all classes, [height, width, classes], if the model leaves the choice open."""
    return interpreter.get_tensor(
        interpreter.get_output_details()[0]["index"])[0].astype(np.uint8)
