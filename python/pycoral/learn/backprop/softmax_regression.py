# SPDX-License-Identifier: Apache-2.0
"""A layer of weights and a softmax behind a model that computes embeddings."""
from typing import Any, Mapping

import numpy as np

from pycoral.pybind import _pywrap_coral


class SoftmaxRegression:
    """Learns `num_classes` classes of embeddings with `feature_dim` elements. Weights begin as
    random numbers of the deviation `weight_scale`; `reg` keeps them small."""

    def __init__(self, feature_dim: int, num_classes: int, weight_scale: float = 0.01,
                 reg: float = 0.0) -> None:
        self.model = _pywrap_coral.SoftmaxRegressionModelWrapper(feature_dim, num_classes,
                                                                 weight_scale, reg)

    def train_with_sgd(self, data: Mapping[str, Any], num_iter: int, learning_rate: float,
                       batch_size: int = 100, print_every: int = 100) -> None:
        """Takes `num_iter` steps, each for `batch_size` random rows of `data`: arrays "data_train"
        and "data_val" [rows, feature_dim], "labels_train" and "labels_val" [rows]. Prints how well
        it does every `print_every` steps, if that is above 0."""
        self.model.Train(
            _pywrap_coral.TrainingDataWrapper(data["data_train"], data["data_val"],
                                              data["labels_train"], data["labels_val"]),
            _pywrap_coral.TrainConfigWrapper(num_iter, batch_size, print_every), learning_rate)

    def get_accuracy(self, mat_x: np.ndarray, labels: np.ndarray) -> float:
        """The part of the rows that it is right about."""
        return self.model.GetAccuracy(mat_x, labels)

    def serialize_model(self, in_model_path: str) -> bytes:
        """A .tflite file: the model at `in_model_path`, which computes embeddings, and this layer
        behind it."""
        return self.model.AppendLayersToEmbeddingExtractor(in_model_path)
