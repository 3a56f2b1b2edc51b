# SPDX-License-Identifier: Apache-2.0
"""New last layers for models: by imprinting, and by gradient descent."""
import os
from typing import Any, Dict, List, Tuple, Union

import numpy as np

from atoll import InvalidArgumentError, Model
from pycoral import _model_file as tflite
from pycoral._model_file import ModelFile

# Operators behind the last layer with weights that another number of classes can go through.
_HEAD = (tflite.RESHAPE, tflite.SQUEEZE, tflite.SOFTMAX, tflite.LOGISTIC, tflite.DEQUANTIZE,
         tflite.MUL)


def _open(path: Union[str, "os.PathLike[str]"]) -> bytes:
    try:
        Model(path)  # its bytes are sound
    except OSError as error:
        raise ValueError(f"Failed to open file: {os.fspath(path)}") from error
    with open(path, "rb") as file:
        return file.read()


def _scale_of(tensor: Dict[str, Any]) -> Tuple[float, int]:
    quantization = tensor.get("quantization", {})
    if len(quantization.get("scale", [])) != 1:
        raise ValueError(f"the tensor '{_name(tensor)}' is not quantized with one scale")
    return quantization["scale"][0], quantization.get("zero_point", [0])[0]


def _name(tensor: Dict[str, Any]) -> str:
    name = tensor.get("name", b"")
    return name if isinstance(name, str) else name.decode("utf-8", "replace")


def _limits(tensor_type: int) -> np.iinfo:
    if tensor_type not in (tflite.UINT8, tflite.INT8):
        raise ValueError("the model's embedding is neither uint8 nor int8")
    return np.iinfo(np.uint8 if tensor_type == tflite.UINT8 else np.int8)


def _quantized(weights: np.ndarray, scale: float, zero_point: int, limits: np.iinfo) -> np.ndarray:
    stored = np.round(weights / scale) + zero_point
    # int8 weights are symmetric.
    return np.clip(stored, max(limits.min, -127), limits.max).astype(limits.dtype)


def _symmetric(values: np.ndarray, limits: np.iinfo) -> Tuple[float, int]:
    """A scale and zero point for weights."""
    scale = max(float(np.max(np.abs(values), initial=0.0)), 1e-6) / 127
    return scale, 0 if limits.min else 128


def _asymmetric(low: float, high: float, limits: np.iinfo) -> Tuple[float, int]:
    """A scale and zero point for the range of activations, 0 among them."""
    low, high = min(low, 0.0), max(high, 1e-6)
    scale = (high - low) / 255
    return scale, int(np.clip(round(limits.min - low / scale), limits.min, limits.max))


class ImprintingEnginePythonWrapper:
    """Weights of a class are the mean of its normalized embeddings, of length 1: products with an
    embedding are greatest for the class whose direction is nearest.

    The last layer with weights is that of the classifier, its input the embedding. Where an
    L2_NORMALIZATION makes that, products are comparable with those of the model's own classes, which
    can be kept.
    """

    def __init__(self, model_path: str, keep_classes: bool = False) -> None:
        self._content = _open(model_path)
        file = ModelFile(self._content)
        self._layer = max((number for number, operator in enumerate(file.operators)
                           if file.code(operator) in (tflite.CONV_2D, tflite.FULLY_CONNECTED)),
                          default=-1)
        weights = self._find_layer(file)
        self._limits = _limits(file.tensors[self._embedding].get("type", 0))
        made_by = [operator for operator in file.operators
                   if self._embedding in operator["outputs"]]
        self._is_normalized = bool(made_by) and file.code(made_by[0]) == tflite.L2_NORMALIZATION
        if keep_classes and not self._is_normalized:
            raise ValueError("the model's classes cannot be kept: its embedding is not made by an "
                             "L2_NORMALIZATION, and its weights are no directions")
        if not self._is_normalized and any(
                file.code(operator) == tflite.MUL for operator in file.operators[self._layer:]):
            raise ValueError("a MUL follows the last layer, but no L2_NORMALIZATION precedes it")
        self._dim = weights.size // len(weights)
        self._model_classes = len(weights)
        self._kept = len(weights) if keep_classes else 0
        self._sums: List[np.ndarray] = []
        self._longest = 1e-6

    def _find_layer(self, file: ModelFile) -> np.ndarray:
        """The weights of the last layer, [classes, ...]."""
        if self._layer < 0:
            raise ValueError("the model has no layer with weights")
        operator = file.operators[self._layer]
        self._embedding, weights_tensor = operator["inputs"][:2]
        weights = file.constant(weights_tensor)
        if weights is None or weights.size != len(weights) * weights.shape[-1]:
            raise ValueError("the last layer of the model is no classifier: it needs constant "
                             "weights for each class, and a convolution a filter of 1 by 1")
        for following in file.operators[self._layer + 1:]:
            if file.code(following) not in _HEAD:
                raise ValueError("the last layer with weights is followed by operators that "
                                 "another number of classes cannot go through")
        return weights

    def EmbeddingDim(self) -> int:
        return self._dim

    def NumClasses(self) -> int:
        return self._kept + len(self._sums)

    def SerializeExtractorModel(self) -> bytes:
        file = ModelFile(self._content)
        file.cut(self._layer, [self._embedding])
        return file.to_bytes()

    def Train(self, embedding: np.ndarray, class_id: int) -> None:
        embedding = np.asarray(embedding, np.float64).reshape(-1)
        if embedding.size != self._dim:
            raise ValueError(f"an embedding has {self._dim} elements, not {embedding.size}")
        if not 0 <= class_id <= self.NumClasses():
            raise ValueError(f"class {class_id} is too large: there are {self.NumClasses()}, and "
                             "the next one may be learned")
        if class_id < self._kept:
            raise ValueError(f"class {class_id} is the model's own, which are kept")
        length = float(np.linalg.norm(embedding))
        self._longest = max(self._longest, length)
        if class_id == self.NumClasses():
            self._sums.append(np.zeros(self._dim))
        self._sums[class_id - self._kept] += embedding / max(length, 1e-12)

    def SerializeModel(self) -> bytes:
        if not self._sums:
            raise RuntimeError("Model is not trained.")
        file = ModelFile(self._content)
        operator = file.operators[self._layer]
        weights_tensor = operator["inputs"][1]
        old = file.constant(weights_tensor)
        learned = np.array([total / max(float(np.linalg.norm(total)), 1e-12)
                            for total in self._sums])
        learned = learned.reshape(len(learned), *old.shape[1:])
        tensor = file.tensors[weights_tensor]
        quantization = tensor["quantization"]
        scales = list(quantization["scale"])
        scale, zero_point = _symmetric(learned, self._limits)
        if not self._kept:
            scales, zero_points = [scale], [zero_point]
            weights = _quantized(learned, scale, zero_point, self._limits)
        elif len(scales) > 1:  # one for each class
            scales += [scale] * len(learned)
            zero_points = [0] * len(scales)
            weights = np.concatenate([old, _quantized(learned, scale, 0, self._limits)])
        else:
            zero_points = list(quantization.get("zero_point", [0]))
            weights = np.concatenate(
                [old, _quantized(learned, scales[0], zero_points[0], self._limits)])
        file.set_constant(weights_tensor, np.ascontiguousarray(weights))
        tensor["quantization"] = {"scale": scales, "zero_point": zero_points,
                                  "dimension": quantization.get("dimension", 0)}
        self._set_bias(file, operator, scales)
        self._set_outputs(file, operator, len(weights))
        return file.to_bytes()

    def _set_bias(self, file: ModelFile, operator: Dict[str, Any], scales: List[float]) -> None:
        inputs = operator["inputs"]
        if len(inputs) < 3 or inputs[2] < 0:
            return
        kept = file.constant(inputs[2])
        kept = np.zeros(0, np.int32) if kept is None or not self._kept else kept
        file.set_constant(inputs[2], np.concatenate([kept, np.zeros(len(self._sums), np.int32)]))
        input_scale, _ = _scale_of(file.tensors[self._embedding])
        file.tensors[inputs[2]]["quantization"] = {
            "scale": [input_scale * scale for scale in scales], "zero_point": [0] * len(scales)}

    def _set_outputs(self, file: ModelFile, layer: Dict[str, Any], classes: int) -> None:
        """What follows the layer has other shapes, and where it is not as the model's was, another
        range."""
        renewed = set()
        if not self._is_normalized:
            renewed.add(layer["outputs"][0])
        scale, zero_point = _asymmetric(-self._longest, self._longest, self._limits)
        for operator in file.operators[self._layer:]:
            code = file.code(operator)
            if code in (tflite.RESHAPE, tflite.SQUEEZE):
                if operator["inputs"][0] in renewed:
                    renewed.add(operator["outputs"][0])
                self._set_shape(file, operator, classes)
            elif code == tflite.MUL and operator is not layer:
                if not any(file.constant(side) is not None and file.constant(side).size == 1
                           for side in operator["inputs"]):
                    raise ValueError("the MUL behind the last layer is not by one constant")
            for output in operator["outputs"]:
                tensor = file.tensors[output]
                tensor.pop("shape_signature", None)
                shape = tensor["shape"]
                if shape[-1] != self._model_classes:
                    raise ValueError(f"the tensor '{_name(tensor)}' behind the last layer does not "
                                     "end with the classes")
                tensor["shape"] = [*shape[:-1], classes]
                if output in renewed:
                    tensor["quantization"] = {"scale": [scale], "zero_point": [zero_point]}

    def _set_shape(self, file: ModelFile, operator: Dict[str, Any], classes: int) -> None:
        if file.code(operator) != tflite.RESHAPE:
            return
        options = operator.get("options", {})
        if options.get("new_shape") and options["new_shape"][-1] == self._model_classes:
            options["new_shape"][-1] = classes
        if len(operator["inputs"]) > 1:
            shape = file.constant(operator["inputs"][1])
            if shape is not None and shape[-1] == self._model_classes:
                file.set_constant(operator["inputs"][1], np.int32([*shape[:-1], classes]))


class TrainingDataWrapper:
    """Rows for learning, and others for looking how well that went."""

    def __init__(self, training_data: np.ndarray, validation_data: np.ndarray,
                 training_labels: np.ndarray, validation_labels: np.ndarray) -> None:
        self.training_data = np.asarray(training_data, np.float64)
        self.validation_data = np.asarray(validation_data, np.float64)
        self.training_labels = np.asarray(training_labels, np.int64)
        self.validation_labels = np.asarray(validation_labels, np.int64)


class TrainConfigWrapper:
    """How long to learn, from how many rows at a time, and how often to say how it goes."""

    def __init__(self, num_iter: int, batch_size: int, print_every: int) -> None:
        self.num_iter = num_iter
        self.batch_size = batch_size
        self.print_every = print_every


class SoftmaxRegressionModelWrapper:
    """Weights and biases whose softmax is most likely right about what it has learned from. Random
    numbers are the same each time."""

    def __init__(self, feature_dim: int, num_classes: int, weight_scale: float = 0.01,
                 reg: float = 0.0) -> None:
        if feature_dim < 1 or num_classes < 2:
            raise ValueError("there must be a feature and two classes at least")
        self._random = np.random.default_rng(1)
        self._weights = self._random.standard_normal((feature_dim, num_classes)) * weight_scale
        self._biases = np.zeros(num_classes)
        self._reg = reg
        self._range = (0.0, 0.0)  # of what goes into the softmax

    def _scores(self, features: np.ndarray) -> np.ndarray:
        features = np.asarray(features, np.float64)
        if features.ndim != 2 or features.shape[1] != len(self._weights):
            raise ValueError(f"features have the shape {features.shape}, not [rows, "
                             f"{len(self._weights)}]")
        return features @ self._weights + self._biases

    def Train(self, data: TrainingDataWrapper, config: TrainConfigWrapper,
              learning_rate: float) -> None:
        labels = data.training_labels
        self._scores(data.training_data[:0])
        if len(labels) != len(data.training_data) or not len(labels):
            raise ValueError(f"{len(data.training_data)} rows have {len(labels)} labels")
        if labels.min() < 0 or labels.max() >= len(self._biases):
            raise ValueError(f"labels are from 0 to {len(self._biases) - 1}")
        for step in range(config.num_iter):
            rows = self._random.integers(len(labels), size=config.batch_size)
            batch = data.training_data[rows]
            scores = self._scores(batch)
            likely = np.exp(scores - scores.max(axis=1, keepdims=True))
            likely /= likely.sum(axis=1, keepdims=True)
            likely[np.arange(len(rows)), labels[rows]] -= 1
            likely /= len(rows)
            self._weights -= learning_rate * (batch.T @ likely + self._reg * self._weights)
            self._biases -= learning_rate * likely.sum(axis=0)
            if config.print_every > 0 and step % config.print_every == 0:
                print(f"step {step} of {config.num_iter}: right about "
                      f"{self.GetAccuracy(data.training_data, labels):.3f} of the training data, "
                      f"{self.GetAccuracy(data.validation_data, data.validation_labels):.3f} of "
                      "the validation data")
        scores = self._scores(data.training_data)
        self._range = (float(scores.min()), float(scores.max()))

    def GetAccuracy(self, features: np.ndarray, labels: np.ndarray) -> float:
        if not len(labels):
            return 0.0
        return float(np.mean(self._scores(features).argmax(axis=1) == np.asarray(labels)))

    def AppendLayersToEmbeddingExtractor(self, model_path: str) -> bytes:
        file = ModelFile(_open(model_path))
        if len(file.graph["outputs"]) != 1:
            raise ValueError("an embedding extractor has one output")
        (embedding,) = file.graph["outputs"]
        tensor = file.tensors[embedding]
        tensor_type = tensor.get("type", 0)
        limits = _limits(tensor_type)
        input_scale, _ = _scale_of(tensor)
        dim, classes = self._weights.shape
        if int(np.prod(tensor["shape"])) != dim:
            raise InvalidArgumentError(f"the model's embedding has the shape {tensor['shape']}, "
                                       f"which are not {dim} features")
        scale, zero_point = _symmetric(self._weights, limits)
        weights = file.add_tensor("classifier/weights", [classes, dim], tensor_type, [scale],
                                  [zero_point])
        file.set_constant(weights, _quantized(self._weights.T, scale, zero_point, limits))
        bias_scale = input_scale * scale
        bias = file.add_tensor("classifier/bias", [classes], tflite.INT32, [bias_scale], [0])
        file.set_constant(bias, np.round(self._biases / bias_scale).astype(np.int32))
        scale, zero_point = _asymmetric(*self._range, limits)
        scores = file.add_tensor("classifier/scores", [1, classes], tensor_type, [scale],
                                 [zero_point])
        likely = file.add_tensor("classifier/softmax", [1, classes], tensor_type, [1 / 256],
                                 [limits.min])
        is_int8 = tensor_type == tflite.INT8
        file.add_operator(tflite.FULLY_CONNECTED, 4 if is_int8 else 1, [embedding, weights, bias],
                          [scores])
        file.add_operator(tflite.SOFTMAX, 2 if is_int8 else 1, [scores], [likely])
        file.graph["outputs"] = [likely]
        return file.to_bytes()
