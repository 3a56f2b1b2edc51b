# SPDX-License-Identifier: Apache-2.0
"""Interpreter: a model, ready to run; and its tensors as arrays of numpy."""
import dataclasses
import os
import threading
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np

from atoll import _atoll

# By Tensor.type; types that are absent here have no arrays.
DTYPES = {
    "float32": np.float32, "int32": np.int32, "uint8": np.uint8, "int64": np.int64,
    "bool": np.bool_, "int16": np.int16, "int8": np.int8, "resource": np.int32,
    "uint32": np.uint32,
}


class Tensor(_atoll.Tensor):
    """A tensor of an interpreter.

    It is itself a buffer: `numpy.asarray(tensor)`, `memoryview(tensor)` and `Tensor.array` are views
    of its memory, without a copy. A view stays valid, whatever becomes of the interpreter.
    """

    @property
    def dtype(self) -> np.dtype:
        """The type of its elements."""
        if self.type not in DTYPES:
            raise _atoll.UnsupportedError(
                f"tensor '{self.name}' has elements of the type {self.type}")
        return np.dtype(DTYPES[self.type])

    @property
    def array(self) -> np.ndarray:
        """A view of the tensor's memory; writable, unless it is a constant of the model."""
        return np.asarray(memoryview(self))

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        # Called where there is no view: numpy drops the reason, and would make an object of it.
        return np.array(memoryview(self), dtype)

    def numpy(self) -> np.ndarray:
        """A copy of what the tensor holds."""
        copy = np.empty(self.shape, self.dtype)
        self.copy_to(copy)
        return copy

    def quantize(self, values: Any) -> np.ndarray:
        """Real values as the tensor stores them: rounded, and limited to the type's range."""
        scales, zero_points = self._per_element()
        limits = np.iinfo(self.dtype)
        stored = np.round(np.asarray(values, np.float64) / scales) + zero_points
        return np.clip(stored, limits.min, limits.max).astype(self.dtype)

    def dequantize(self, stored: Optional[np.ndarray] = None) -> np.ndarray:
        """Stored values (those that the tensor holds now) as real ones, in float32."""
        stored = self.numpy() if stored is None else np.asarray(stored)
        if not self.channel_quantization[0]:
            return stored.astype(np.float32)
        scales, zero_points = self._per_element()
        return (scales * (stored.astype(np.float64) - zero_points)).astype(np.float32)

    def _per_element(self) -> Tuple[np.ndarray, np.ndarray]:
        """Scales and zero points in shapes that broadcast to the tensor's."""
        scales, zero_points, dimension = self.channel_quantization
        if not scales:
            raise _atoll.InvalidArgumentError(f"tensor '{self.name}' is not quantized")
        shape = []
        if len(scales) > 1:
            shape = [1] * len(self.shape)
            shape[dimension] = len(scales)
        return (np.array(scales, np.float64).reshape(shape),
                np.array(zero_points, np.float64).reshape(shape))

    def __repr__(self) -> str:
        return f"<atoll.Tensor {self.index} '{self.name}' {self.type}{list(self.shape)}>"


@dataclasses.dataclass(frozen=True)
class Node:
    """An operator of the model, and where it runs."""
    index: int  # in execution order
    op: str  # "CONV_2D", or the name of a custom operator
    partition: int  # of the device; -1: it runs on the CPU
    reason: str  # why it does; "" if there is none
    macs: int  # multiply-accumulates
    inputs: List[int]  # tensor indices in the file, -1: absent
    outputs: List[int]


Content = Any  # bytes, or anything else with the buffer protocol
Which = Union[int, str]  # a position among inputs or outputs, or the tensor's name


def open_model(model: Union[str, os.PathLike, _atoll.Model, Content]) -> _atoll.Model:
    """A model from a path, from the bytes of a file, or from a Model."""
    if isinstance(model, _atoll.Model):
        return model
    if isinstance(model, (str, os.PathLike)):
        return _atoll.Model(path=model)
    return _atoll.Model(content=model)


class Interpreter:
    """Runs a model.

    `model` is the path of a .tflite file, its content in bytes or another buffer, or an
    `atoll.Model`, which interpreters may share. `device` is a name as of `atoll devices` ("cpu",
    "emu", "usb", "auto"; docs/devices.md) or an `atoll.Delegate`, which interpreters may share, too;
    None is the CPU. `input_shapes` gives inputs, by position or name, other shapes than the file
    has. `threads` is for operators on the CPU, 0 a sensible default.

    Interpreters may be used by any threads: they take turns, and different interpreters run side by
    side. `invoke` lets other threads of Python run meanwhile.
    """

    def __init__(self, model: Union[str, os.PathLike, _atoll.Model, Content],
                 device: Union[str, _atoll.Delegate, None] = None, *, threads: int = 0,
                 priority: int = 0, residency_set: int = 0,
                 fallback: Union[str, os.PathLike, _atoll.Model, Content, None] = None,
                 keep_all_tensors: bool = False,
                 input_shapes: Optional[Dict[Which, Sequence[int]]] = None) -> None:
        self.model = open_model(model)
        if device is not None and not isinstance(device, _atoll.Delegate):
            device = _atoll.Delegate(device)
        self.delegate: Optional[_atoll.Delegate] = device
        self._running = threading.RLock()
        self._native = _atoll.Interpreter(
            self.model, device, num_threads=threads, priority=priority,
            residency_set=residency_set, keep_all_tensors=keep_all_tensors,
            fallback=None if fallback is None else open_model(fallback))
        self.inputs: Tuple[Tensor, ...] = tuple(map(self.tensor, self._native.input_indices))
        self.outputs: Tuple[Tensor, ...] = tuple(map(self.tensor, self._native.output_indices))
        if input_shapes:
            self.resize(input_shapes)

    def tensor(self, index: int) -> Tensor:
        """Any tensor by its index in the file. Those between operators share memory, unless
        `keep_all_tensors` is set, and have none inside partitions."""
        return Tensor(self._native, index)

    def invoke(self) -> None:
        """Runs the model on what its inputs hold."""
        self._native.invoke()

    def run(self, *values: Any) -> List[np.ndarray]:
        """Runs the model on `values`, one for each input, and returns copies of its outputs.

        The values are read where they lie, as `set_input` does, but for this call only.
        """
        if len(values) != len(self.inputs):
            raise _atoll.InvalidArgumentError(
                f"the model has {len(self.inputs)} inputs, not {len(values)}")
        with self._running:  # another thread's values are for another time
            try:
                for position, value in enumerate(values):
                    self.set_input(position, value)
                self._native.invoke()
            finally:
                for position in range(len(self.inputs)):
                    self._native.set_input_buffer(position, None)
            return [output.numpy() for output in self.outputs]

    def set_input(self, which: Which, value: Any) -> None:
        """From now on the input is read from `value`, where it lies: what is written there later
        counts. None: from the interpreter's own memory again (`inputs[0].array`).

        `value` is an array or another buffer (bytes, memoryview, ctypes, whatever knows DLPack) of
        the tensor's type and shape, where sizes of 1 may be left out; or as many elements, or bytes,
        in one dimension. It is copied if it is not contiguous.
        """
        position = self._position(self.inputs, which)
        if value is not None:
            value = _in_place(value, _as_tensor(value, self.inputs[position]))
        self._native.set_input_buffer(position, value)

    def set_output(self, which: Which, value: Any) -> None:
        """From now on the output is written to `value`, a writable buffer as for `set_input`, which
        must be contiguous. None: to the interpreter's own memory again."""
        position = self._position(self.outputs, which)
        if value is not None:
            array = _as_tensor(value, self.outputs[position])
            if not np.may_share_memory(array, np.asarray(value)):
                raise _atoll.InvalidArgumentError("an output needs a contiguous buffer")
            value = _in_place(value, array)
        self._native.set_output_buffer(position, value)

    def resize(self, shapes: Dict[Which, Sequence[int]]) -> None:
        """Gives inputs, by position or name, other shapes; all others follow. Buffers of
        `set_input` and `set_output` are forgotten. If they do not fit, shapes stay as they are.
        BufferError while views of tensors are alive."""
        self._native.resize([(self._position(self.inputs, which), shape)
                             for which, shape in shapes.items()])

    def reset(self) -> None:
        """Forgets what earlier invocations left for later ones (recurrent layers, variables)."""
        self._native.reset_variables()

    def cancel(self) -> None:
        """Ends an `invoke` in progress on another thread early, with CancelledError, if it still
        can: before the next operator, or while it waits for a device."""
        self._native.cancel()

    @property
    def nodes(self) -> List[Node]:
        """The operators in execution order: where each runs, and why."""
        return [Node(**node) for node in self._native.nodes]

    @property
    def partitions(self) -> List[Dict[str, Any]]:
        """What the device runs: sizes in bytes, cycles and seconds (modelled)."""
        return self._native.partitions

    @property
    def substitute(self) -> Optional[str]:
        """The file that runs instead of a model that was compiled for a Coral, where there is none
        ("" if it came from memory; docs/coral.md); None: the model itself runs."""
        return self._native.substitute

    @property
    def memory(self) -> Dict[str, int]:
        """Bytes that the interpreter needs."""
        return self._native.memory

    @property
    def last_invocation(self) -> Dict[str, Any]:
        """What the device said about the last invocation."""
        return self._native.last_invocation

    def _position(self, tensors: Tuple[Tensor, ...], which: Which) -> int:
        if isinstance(which, str):
            for position, tensor in enumerate(tensors):
                if tensor.name == which:
                    return position
        elif -len(tensors) <= which < len(tensors):
            return which % len(tensors)
        names = ", ".join(f"'{tensor.name}'" for tensor in tensors)
        raise _atoll.InvalidArgumentError(f"there is no {which!r}; there are {names}, from 0 on")


def _as_tensor(value: Any, tensor: Tensor) -> np.ndarray:
    """`value` as an array of the tensor's bytes, in place if it is contiguous."""
    if not isinstance(value, np.ndarray):
        if isinstance(value, (bytes, bytearray)):
            value = np.frombuffer(value, np.uint8)
        elif isinstance(value, (list, tuple, int, float, np.generic)):
            raise _atoll.InvalidArgumentError(
                f"tensor '{tensor.name}' is set from an array or another buffer, not from a "
                f"{type(value).__name__}")
        elif hasattr(value, "__dlpack__"):
            value = np.from_dlpack(value)
        else:
            value = np.asarray(memoryview(value))
        is_raw = value.dtype == np.uint8 and value.ndim == 1
    else:
        is_raw = False
    if value.dtype == np.uint8 and value.ndim == 1 and value.nbytes == tensor.nbytes:
        return np.ascontiguousarray(value)
    if is_raw and value.nbytes != tensor.nbytes:
        raise _atoll.InvalidArgumentError(
            f"tensor '{tensor.name}' has {tensor.nbytes} bytes, not {value.nbytes}")
    if value.dtype != tensor.dtype:
        raise _atoll.InvalidArgumentError(
            f"tensor '{tensor.name}' has elements of the type {tensor.dtype}, not {value.dtype}")
    if (value.shape != tensor.shape and _without_ones(value.shape) != _without_ones(tensor.shape)
            and (value.ndim != 1 or value.nbytes != tensor.nbytes)):
        raise _atoll.InvalidArgumentError(
            f"tensor '{tensor.name}' has the shape {tensor.shape}, not {value.shape}")
    return np.ascontiguousarray(value)


def _in_place(value: Any, array: np.ndarray) -> Any:
    """`value` itself if its bytes are those of `array`, which was made of it, so that Python's
    garbage collector sees whose they are: it does not look into arrays."""
    try:
        return value if memoryview(value).c_contiguous else array
    except (TypeError, ValueError, BufferError):  # what knows DLPack alone
        return array


def _without_ones(shape: Sequence[int]) -> List[int]:
    return [size for size in shape if size != 1]
