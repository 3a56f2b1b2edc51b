# SPDX-License-Identifier: Apache-2.0
"""New classes from a few pictures of each: weights are the means of their embeddings."""
import numpy as np

from pycoral.pybind import _pywrap_coral


class ImprintingEngine:
    """Learns classes for the model at `model_path`, whose last layer with weights,
    CONV_2D or FULLY_CONNECTED, stands behind an L2_NORMALIZATION. With `keep_classes` its own
    classes stay, and new ones come after them."""

    def __init__(self, model_path: str, keep_classes: bool = False) -> None:
        self._engine = _pywrap_coral.ImprintingEnginePythonWrapper(model_path, keep_classes)

    @property
    def embedding_dim(self) -> int:
        """Elements of an embedding."""
        return self._engine.EmbeddingDim()

    @property
    def num_classes(self) -> int:
        """Classes so far."""
        return self._engine.NumClasses()

    def serialize_extractor_model(self) -> bytes:
        """A .tflite file whose output is the embedding of a picture."""
        return self._engine.SerializeExtractorModel()

    def serialize_model(self) -> bytes:
        """A .tflite file that classifies pictures."""
        return self._engine.SerializeModel()

    def train(self, embedding: np.ndarray, class_id: int) -> None:
        """Learns from one embedding, of a class so far or of the next one."""
        self._engine.Train(embedding, class_id)
