# SPDX-License-Identifier: Apache-2.0
"""The output of a classifier."""
import collections
from typing import Any, List

import numpy as np

Class = collections.namedtuple("Class", ["id", "score"])
Class.__doc__ = "A class and its score."


def num_classes(interpreter: Any) -> int:
    """As many as the output has elements."""
    return int(np.prod(interpreter.get_output_details()[0]["shape"]))


def get_scores(interpreter: Any) -> np.ndarray:
    """The scores of all classes, as real numbers."""
    details = interpreter.get_output_details()[0]
    stored = interpreter.get_tensor(details["index"]).flatten()
    if not np.issubdtype(details["dtype"], np.integer):
        return stored
    scale, zero_point = details["quantization"]
    return scale * (stored.astype(np.int64) - zero_point)


def get_classes_from_scores(scores: np.ndarray, top_k: float = float("inf"),
                            score_threshold: float = -float("inf")) -> List[Class]:
    """The classes of the `top_k` highest scores that reach the threshold, highest first."""
    order = np.argsort(-np.asarray(scores), kind="stable")[:int(min(top_k, len(scores)))]
    return [Class(int(index), scores[index]) for index in order if scores[index] >= score_threshold]


def get_classes(interpreter: Any, top_k: float = float("inf"),
                score_threshold: float = -float("inf")) -> List[Class]:
    """The same of what the interpreter's output holds."""
    return get_classes_from_scores(get_scores(interpreter), top_k, score_threshold)
