# SPDX-License-Identifier: Apache-2.0
"""Float models to int8 ones, and ONNX files to .tflite: libatoll-quantize, through its C interface."""
import collections.abc
import ctypes
import dataclasses
import json
import os
import pathlib
import weakref
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from atoll import _atoll
from atoll.interpreter import Interpreter

Model = Union[str, bytes, os.PathLike]

_ERRORS = {
    1: _atoll.InvalidArgumentError, 2: _atoll.CorruptModelError, 3: _atoll.UnsupportedError,
    4: _atoll.NotFoundError, 5: _atoll.PermissionDeniedError, 6: _atoll.DeviceBusyError,
    7: _atoll.DeviceLostError, 8: _atoll.DeadlineError, 9: _atoll.ResourceExhaustedError,
    10: _atoll.CancelledError, 11: _atoll.InternalError,
}
_CANCELLED = 10
_RANGES = {"min-max": 0, "percentile": 1, "least-squares": 2}
_ENDS = {None: 0, "float": 1, "uint8": 2, "int8": 3}

# As atoll/quantize.h declares them.
_Next = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p,
                         ctypes.POINTER(ctypes.POINTER(ctypes.c_float)),
                         ctypes.POINTER(ctypes.c_size_t), ctypes.c_size_t)
_Rewind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_Accuracy = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t,
                             ctypes.POINTER(ctypes.c_double))
_Progress = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64,
                             ctypes.c_int64)


class _Samples(ctypes.Structure):
    _fields_ = [("next", _Next), ("rewind", _Rewind), ("user_data", ctypes.c_void_p)]


class _Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("ranges", ctypes.c_int32),
        ("no_bias_correction", ctypes.c_int32), ("compensate_rounding", ctypes.c_int32),
        ("activations_16", ctypes.c_int32), ("input_type", ctypes.c_int32),
        ("output_type", ctypes.c_int32), ("threads", ctypes.c_int32),
        ("per_tensor_fully_connected", ctypes.c_int32),
        ("percentile", ctypes.c_double), ("keep_float", ctypes.POINTER(ctypes.c_char_p)),
        ("keep_float_count", ctypes.c_size_t), ("keep_float_below_db", ctypes.c_double),
        ("target_sqnr_db", ctypes.c_double), ("accuracy", _Accuracy),
        ("target_accuracy", ctypes.c_double), ("progress", _Progress),
        ("user_data", ctypes.c_void_p)]


class _Shape(ctypes.Structure):
    _fields_ = [("input", ctypes.c_char_p), ("dims", ctypes.POINTER(ctypes.c_int64)),
                ("dim_count", ctypes.c_size_t)]


@dataclasses.dataclass(frozen=True)
class Quantized:
    """What `quantize` made: the bytes of the .tflite file, and what that cost."""
    model: bytes
    report: Dict[str, Any]

    @property
    def sqnr_db(self) -> Optional[float]:
        """Signal to quantization noise of the logits; None if there is no noise."""
        return self.report["logits_sqnr_db"]


_library = None


def _load():
    global _library
    if _library is None:
        name = "libatoll-quantize.so." + _atoll.version().split(".", maxsplit=1)[0]
        here = pathlib.Path(__file__).resolve().parent
        # In a wheel beside this file, else in lib, four folders above.
        paths = [path for path in (here / name, here.parents[3] / name)
                 if path.exists()]
        try:
            library = ctypes.CDLL(str(paths[0]) if paths else name)
        except OSError as error:
            raise _atoll.NotFoundError(f"{name} cannot be loaded: {error}; it is part of Atoll, "
                                       "install that as a whole") from error
        library.AtollQuantizeLastError.restype = ctypes.c_char_p
        library.AtollQuantizedModel.restype = ctypes.c_void_p
        library.AtollQuantizedModel.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
        library.AtollQuantizedReport.restype = ctypes.c_char_p
        library.AtollQuantizedReport.argtypes = [ctypes.c_void_p]
        library.AtollQuantizedDelete.restype = None
        library.AtollQuantizedDelete.argtypes = [ctypes.c_void_p]
        library.AtollQuantize.argtypes = [
            ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(_Samples), ctypes.POINTER(_Options),
            ctypes.POINTER(ctypes.c_void_p)]
        library.AtollImportOnnx.argtypes = [
            ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(_Shape), ctypes.c_size_t, ctypes.c_int,
            ctypes.POINTER(ctypes.c_void_p)]
        library.AtollQuantizeRepair.argtypes = [ctypes.c_char_p, ctypes.c_size_t,
                                                ctypes.POINTER(ctypes.c_void_p)]
        library.AtollQuantizeCheck.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        _library = library
    return _library


def _raise_if_failed(status):
    if status != 0:
        raise _ERRORS[status](_library.AtollQuantizeLastError().decode(errors="replace"))


def _bytes_of(model):
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    return pathlib.Path(os.fsdecode(model)).read_bytes()


class _Made:
    """A handle of the library's with a model in it."""

    def __init__(self, handle):
        self.handle = handle
        weakref.finalize(self, _library.AtollQuantizedDelete, handle)

    @property
    def model(self):
        size = ctypes.c_size_t()
        return ctypes.string_at(_library.AtollQuantizedModel(self.handle, ctypes.byref(size)),
                                size.value)

    @property
    def report(self):
        return json.loads(_library.AtollQuantizedReport(self.handle).decode())


class _Feed:
    """Samples one after the other, into the memory of the library's."""

    def __init__(self, samples, inputs):
        self.inputs = inputs
        if isinstance(samples, Mapping):
            names = [tensor.name for tensor in inputs]
            if sorted(samples) != sorted(names):
                raise _atoll.InvalidArgumentError(
                    f"the samples are called {sorted(samples)}, the model's inputs {names}")
            samples = list(zip(*(samples[name] for name in names)))
        self.samples = samples
        if not isinstance(samples, collections.abc.Iterator):
            self.iterator = iter(samples)
        else:
            self.iterator = samples
        self.taken = False
        self.error = None

    def next(self, _, places, counts, count):
        try:
            self.taken = True
            try:
                sample = next(self.iterator)
            except StopIteration:
                return 0
            if isinstance(sample, Mapping):
                sample = [sample[tensor.name] for tensor in self.inputs]
            elif not isinstance(sample, (tuple, list)) or (count == 1 and len(sample) != 1):
                sample = [sample]
            if len(sample) != count:
                raise _atoll.InvalidArgumentError(
                    f"a sample has {len(sample)} arrays, the model {count} inputs")
            for i, values in enumerate(sample):
                values = np.ascontiguousarray(values, np.float32)
                wanted = tuple(self.inputs[i].shape)
                if _squeezed(values.shape) != _squeezed(wanted):
                    raise _atoll.InvalidArgumentError(
                        f"a sample of input '{self.inputs[i].name}' has shape {values.shape}, must "
                        f"have {wanted}")
                ctypes.memmove(places[i], values.ctypes.data, counts[i] * 4)
            return 1
        except BaseException as error:  # pylint: disable=broad-except
            self.error = error
            return -1

    def rewind(self, _):
        if not self.taken:
            return 0
        if isinstance(self.samples, collections.abc.Iterator):
            return -1
        self.iterator = iter(self.samples)
        return 0


def _squeezed(shape):
    return tuple(size for size in shape if size != 1)


def _number(choices, name, value):
    if value not in choices:
        raise _atoll.InvalidArgumentError(f"{name} is {value!r}, must be one of {list(choices)}")
    return choices[value]


def _inputs_of(content):
    """Of a float model, which may be one that does not run as it is (dynamic range)."""
    try:
        return Interpreter(content).inputs
    except (_atoll.UnsupportedError, _atoll.CorruptModelError):
        handle = ctypes.c_void_p()
        _raise_if_failed(_library.AtollQuantizeRepair(content, len(content), ctypes.byref(handle)))
        repaired = _Made(handle).model
        if repaired == content:
            raise
        return Interpreter(repaired).inputs


def quantize(model: Model, samples: Iterable[Any], output: Union[str, os.PathLike, None] = None, *,
             ranges: str = "min-max", percentile: Optional[float] = None,
             bias_correction: bool = True, compensate_rounding: bool = False,
             activations: int = 8, input_type: Optional[str] = None,
             output_type: Optional[str] = None, per_tensor_fully_connected: bool = False,
             keep_float: Sequence[Union[str, int]] = (), keep_float_below_db: float = 0,
             target_sqnr_db: float = 0, accuracy: Optional[Callable[[bytes], float]] = None,
             target_accuracy: float = 0,
             progress: Optional[Callable[[str, int, int], Any]] = None,
             threads: int = 0) -> Quantized:
    """An int8 model of a float one.

    `model`: path or bytes of a .tflite or ONNX file. `samples`: about a hundred that are typical,
    each an array for a model of one input, else a list of arrays or a dict by names; or a dict of
    arrays with one sample after the other. Values are what the float model takes; pictures of ONNX
    models are [H, W, C] here. `output`: also written there.

    `ranges` of activations: "min-max", "percentile" (`percentile` says how many) or
    "least-squares". `activations=16`: int16 activations with int8 weights. `input_type` and
    `output_type`: "int8", "uint8" or "float"; unless given, int8 (int16), and float32 for an output
    that joins parts of very different ranges, as boxes and scores. `per_tensor_fully_connected`:
    one scale for the weights of fully connected layers, for older readers. `keep_float`: numbers or names of nodes that stay
    float. With `target_sqnr_db`, or `accuracy(model_bytes)` and `target_accuracy`, choices are
    tried, layer by layer. `progress(phase, done, total)` hears how far it is; a total of 0 is unknown. Ctrl-C ends it.
    """
    library = _load()
    content = _bytes_of(model)
    if content[4:8] != b"TFL3":
        content = import_onnx(content)
    feed = _Feed(samples, _inputs_of(content))
    failures: List[BaseException] = []

    def on_accuracy(_, data, size, value):
        try:
            value[0] = float(accuracy(ctypes.string_at(data, size)))
            return 0
        except BaseException as error:  # pylint: disable=broad-except
            failures.append(error)
            return _CANCELLED

    def on_progress(_, phase, done, total):
        try:
            if progress is not None:
                progress(phase.decode(), done, total)
            return 1
        except BaseException as error:  # pylint: disable=broad-except
            failures.append(error)
            return 0

    if activations not in (8, 16):
        raise _atoll.InvalidArgumentError(f"activations is {activations}, must be 8 or 16")
    names = [str(node).encode() for node in keep_float]
    options = _Options(
        struct_size=ctypes.sizeof(_Options), ranges=_number(_RANGES, "ranges", ranges),
        name=None if isinstance(model, (bytes, bytearray, memoryview)) else os.fsencode(model),
        per_tensor_fully_connected=per_tensor_fully_connected,
        no_bias_correction=not bias_correction, compensate_rounding=compensate_rounding,
        activations_16=activations == 16, input_type=_number(_ENDS, "input_type", input_type),
        output_type=_number(_ENDS, "output_type", output_type), threads=threads,
        percentile=percentile or 0, keep_float=(ctypes.c_char_p * len(names))(*names),
        keep_float_count=len(names), keep_float_below_db=keep_float_below_db,
        target_sqnr_db=target_sqnr_db, target_accuracy=target_accuracy,
        progress=_Progress(on_progress))
    if accuracy is not None:
        options.accuracy = _Accuracy(on_accuracy)
    callbacks = _Samples(_Next(feed.next), _Rewind(feed.rewind), None)
    handle = ctypes.c_void_p()
    status = library.AtollQuantize(content, len(content), ctypes.byref(callbacks),
                                   ctypes.byref(options), ctypes.byref(handle))
    for error in (feed.error, *failures):
        if error is not None:
            raise error
    _raise_if_failed(status)
    made = _Made(handle)
    result = Quantized(made.model, made.report)
    if output is not None:
        _write(output, result.model)
    return result


def import_onnx(model: Model, output: Union[str, os.PathLike, None] = None, *,
                shapes: Optional[Mapping[str, Sequence[int]]] = None,
                keep_layout: bool = False) -> bytes:
    """The float .tflite file of an ONNX file (path or bytes), also written to `output`.

    `shapes`: of inputs, by their names, in the order of the ONNX file, where it has sizes without a
    number. Inputs of four dimensions become [N, H, W, C] unless `keep_layout` is set.
    """
    library = _load()
    content = _bytes_of(model)
    given: List[Tuple[bytes, Any, int]] = []
    for name, shape in (shapes or {}).items():
        given.append((name.encode(), (ctypes.c_int64 * len(shape))(*shape), len(shape)))
    array = (_Shape * len(given))(*[_Shape(name, dims, count) for name, dims, count in given])
    handle = ctypes.c_void_p()
    _raise_if_failed(library.AtollImportOnnx(content, len(content), array, len(given), keep_layout,
                                             ctypes.byref(handle)))
    result = _Made(handle).model
    if output is not None:
        _write(output, result)
    return result


def check_quantization(model: Model) -> None:
    """Raises CorruptModelError, with all that is wrong, unless a .tflite file keeps to TensorFlow
    Lite's specification of quantization."""
    library = _load()
    content = _bytes_of(model)
    _raise_if_failed(library.AtollQuantizeCheck(content, len(content)))


def _write(path, content):
    """All of it or nothing."""
    path = pathlib.Path(os.fsdecode(path))
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
