# SPDX-License-Identifier: Apache-2.0
"""The interpreter of TensorFlow Lite's Python package over Atoll's, for programs that were written
for that: same methods, keys of dictionaries, exceptions, and texts that programs look for.

The packages tflite_runtime and ai_edge_litert are names for what is here. The interpreter needs no
allocation of its own before `allocate_tensors`; that it insists on it is for programs that rely on
the error.
"""
import ctypes
import enum
import logging
import os
import re
import types
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

import numpy as np

from atoll import _atoll, edgetpu, interpreter as _interpreter

# Atoll's own delegate for programs with another TensorFlow Lite.
_ATOLL_LIBRARY = re.compile(r"(.*/)?libatoll_tflite_delegate\.so(\.\d+)*")

# TensorFlow Lite's names for types, by those of numpy; all others are NOTYPE.
_TYPE_NAMES = {name: name.upper() for name in (
    "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "bool", "complex64", "complex128")}
# Those of numpy, as the classes that programs compare with and call, by Atoll's.
_CLASSES = {**_interpreter.DTYPES, "string": np.bytes_, "resource": np.void}

# By what _native_handle() says, for modules that get an interpreter as a number.
_handles: "weakref.WeakValueDictionary[int, Interpreter]" = weakref.WeakValueDictionary()


class OpResolverType(enum.Enum):
    """Which kernels to use. Atoll's are one set, which computes what the reference does."""
    AUTO = 0
    BUILTIN = 1
    BUILTIN_REF = 2
    BUILTIN_WITHOUT_DEFAULT_DELEGATES = 3


class Delegate:
    """A device in place of the library of that name: Google's for Edge TPUs, or Atoll's own."""

    def __init__(self, library: str, options: Optional[Mapping[Any, Any]] = None) -> None:
        texts = {str(key): str(value) for key, value in (options or {}).items()}
        self._library = library
        try:
            self._delegate_ptr = _open_library(os.fspath(library), texts)
        except (_atoll.Error, ValueError) as error:
            raise ValueError(f"Failed to load delegate from {library}\n{error}") from error

    def _get_native_delegate_pointer(self) -> _atoll.Delegate:
        return self._delegate_ptr


def load_delegate(library: str, options: Optional[Mapping[Any, Any]] = None) -> Delegate:
    """Opens a device. `library` is "libedgetpu.so.1" in any of its spellings, with the options of
    that (atoll.edgetpu), or "libatoll_tflite_delegate.so" with the options `device`,
    `num_threads`, `performance`, `on_device_loss` and `faults`; neither file needs to be there.

    OSError if it is another library that is not there, ValueError if it is one that is, or if there
    is no such device.
    """
    return Delegate(library, options)


def _open_library(library: str, options: Mapping[str, str]) -> _atoll.Delegate:
    if edgetpu.LIBRARY.fullmatch(library):
        return edgetpu.open_edge_tpu(options)
    if _ATOLL_LIBRARY.fullmatch(library):
        known = dict(options)
        taken: Dict[str, Any] = {
            "device": known.pop("device", "") or os.environ.get("ATOLL_DEVICE") or None}
        for key in ("performance", "on_device_loss", "faults"):
            taken[key] = known.pop(key, None)
        threads = known.pop("num_threads", "0")
        if not threads.isdecimal():
            raise ValueError(f"option 'num_threads' is '{threads}'; it is a number")
        taken["num_threads"] = int(threads)
        # About other runtimes' operators, of which there are none here.
        for key in ("ops", "min_nodes", "verbosity"):
            known.pop(key, None)
        if known:
            raise ValueError(f"there is no option '{min(known)}'; there are device, num_threads, "
                             "performance, on_device_loss and faults")
        return _atoll.Delegate(**taken)
    ctypes.PyDLL(library)
    raise ValueError("Atoll stands in for libedgetpu.so.1, and brings libatoll_tflite_delegate.so; "
                     "delegates of others do not run in it")


class Interpreter:
    """Runs a model, given by `model_path` or `model_content` (its bytes).

    `experimental_delegates` is a list of what `load_delegate` returned. Other keywords that begin
    with experimental_ choose among things that Atoll does not have, and are ignored.
    """

    def __init__(self, model_path: Any = None, model_content: Any = None,
                 experimental_delegates: Optional[Sequence[Delegate]] = None,
                 num_threads: Optional[int] = None,
                 experimental_op_resolver_type: OpResolverType = OpResolverType.AUTO,
                 experimental_preserve_all_tensors: bool = False, **options: Any) -> None:
        for name in options:
            if not name.startswith("experimental_"):
                raise TypeError(f"__init__() got an unexpected keyword argument '{name}'")
        if num_threads is not None:
            if not isinstance(num_threads, int) or isinstance(num_threads, bool):
                raise ValueError("type of num_threads should be int")
            if num_threads < 1:
                raise ValueError("num_threads should >= 1")
            if num_threads > 2**31 - 1:
                raise ValueError(f"num_threads should < 2147483648, not {num_threads}")
        if not isinstance(experimental_op_resolver_type, OpResolverType):
            raise ValueError(
                f"unknown experimental_op_resolver_type: {experimental_op_resolver_type}")
        self._delegates = list(experimental_delegates or [])
        for delegate in self._delegates:
            if not isinstance(delegate, Delegate):
                raise ValueError(f"{delegate!r} is no delegate that Atoll's load_delegate returned")
        self._model = _open_model(model_path, model_content)
        self._interpreter: Optional[_interpreter.Interpreter] = None
        self._error = ""  # why there is none
        try:
            self._interpreter = _interpreter.Interpreter(
                self._model, self._delegates[0]._delegate_ptr if self._delegates else None,
                threads=num_threads or 0,
                keep_all_tensors=bool(experimental_preserve_all_tensors))
        except _atoll.Error as error:
            self._error = _why_not_prepared(self._model, str(error))
        self._tensors: Dict[int, _interpreter.Tensor] = {}
        self._shapes: Dict[int, List[int]] = {}  # of inputs, by tensor, until they are allocated
        self._ready = False
        _handles[id(self)] = self

    # ---- Running --------------------------------------------------------------------------------

    def allocate_tensors(self) -> None:
        """Makes the interpreter ready for the shapes that its inputs have."""
        self._ensure_safe()
        native = self._native()
        self._ready = False
        if self._shapes:
            for index, shape in self._shapes.items():
                rank = len(self._tensor(index).shape)
                if len(shape) != rank:  # two sizes would mean something to Atoll
                    raise RuntimeError(f"input {index} has {rank} dimensions, not the {len(shape)} "
                                       f"of {shape}")
            indices = native.input_indices
            try:
                native.resize([(indices.index(index), shape)
                               for index, shape in self._shapes.items()])
            except (_atoll.Error, OverflowError) as error:
                raise RuntimeError(_with_node(str(error), "prepare")) from error
            self._shapes = {}
        self._ready = True

    def invoke(self) -> None:
        """Runs the model. Other threads of Python run meanwhile."""
        self._ensure_safe()
        self._invoke()

    def _invoke(self) -> None:
        """The same, whoever looks at tensors meanwhile."""
        self._ensure_ready()
        try:
            self._interpreter.invoke()
        except _atoll.Error as error:
            message = _with_node(str(error), "invoke")
            if "\nNode number " not in message and self._delegates:
                # Partitions are nodes behind those of the model there.
                message += (f"\nNode number {len(self._native().nodes)} "
                            "(EdgeTpuDelegateForCustomOp) failed to invoke.")
            raise RuntimeError(message) from error

    def resize_tensor_input(self, input_index: int, tensor_size: Sequence[int],
                            strict: bool = False) -> None:
        """Gives an input another shape, from the next `allocate_tensors` on; with `strict` only in
        dimensions that the file leaves open."""
        tensor = self._tensor(input_index)
        if input_index not in self._native().input_indices:
            raise ValueError(f"Tensor {input_index} is not an input of the model")
        shape = [int(size) for size in np.asarray(tensor_size).reshape(-1)]
        if strict:
            signature = tensor.shape_signature
            if len(shape) != len(signature) or any(
                    known not in (-1, size) for known, size in zip(signature, shape)):
                raise RuntimeError(
                    "strict resizing only changes unknown dimensions, identified by -1: input "
                    f"{input_index} has the shape {list(signature)}, not {shape}")
        self._shapes[input_index] = shape
        self._ready = False

    def reset_all_variables(self) -> None:
        """The next invocation is like the first."""
        self._native().reset_variables()

    # ---- Tensors --------------------------------------------------------------------------------

    def set_tensor(self, tensor_index: int, value: Any) -> None:
        """Copies `value`, an array of the tensor's type and shape, into it."""
        tensor = self._tensor(tensor_index)
        value = np.asarray(value)
        if value.dtype != _CLASSES.get(tensor.type):
            raise ValueError(
                "Cannot set tensor: Got value of type "
                f"{_TYPE_NAMES.get(value.dtype.name, 'NOTYPE')} but expected type "
                f"{tensor.type.upper()} for input {tensor_index}, name: {tensor.name} ")
        shape = self._shapes.get(tensor_index, tensor.shape)
        if value.ndim != len(shape):
            raise ValueError(f"Cannot set tensor: Dimension mismatch. Got {value.ndim} but expected "
                             f"{len(shape)} for input {tensor_index}.")
        for dimension, (got, expected) in enumerate(zip(value.shape, shape)):
            if got != expected:
                raise ValueError(f"Cannot set tensor: Dimension mismatch. Got {got} but expected "
                                 f"{expected} for dimension {dimension} of input {tensor_index}.")
        if not self._ready or not tensor.has_memory:
            raise ValueError("Cannot set tensor: Tensor is unallocated. Try calling "
                             "allocate_tensors() first")
        try:
            tensor.copy_from(np.ascontiguousarray(value))
        except _atoll.Error as error:
            raise ValueError(f"Cannot set tensor: {error}") from error

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> np.ndarray:
        """A copy of what the tensor holds."""
        return self._with_memory(tensor_index, subgraph_index).numpy()

    def tensor(self, tensor_index: int) -> Callable[[], np.ndarray]:
        """A function that gives a view of the tensor's memory each time. While one is alive, the
        interpreter neither invokes nor allocates."""
        self._tensor(tensor_index)
        return lambda: self._with_memory(tensor_index, 0).array

    # ---- What there is --------------------------------------------------------------------------

    def get_input_details(self) -> List[Dict[str, Any]]:
        """A dictionary for each input."""
        return [self._get_tensor_details(index) for index in self._described().input_indices]

    def get_output_details(self) -> List[Dict[str, Any]]:
        """A dictionary for each output."""
        return [self._get_tensor_details(index) for index in self._described().output_indices]

    def get_tensor_details(self, subgraph_index: int = 0) -> List[Dict[str, Any]]:
        """A dictionary for each tensor of the model."""
        return [self._get_tensor_details(index, subgraph_index)
                for index in range(self._described().tensor_count)]

    def num_subgraphs(self) -> int:
        """As many as signatures name."""
        return max((signature["subgraph"] for signature in self._model.signatures), default=0) + 1

    def get_signature_list(self) -> Dict[str, Dict[str, List[str]]]:
        """The names of inputs and outputs, by the keys of signatures."""
        return {key: {end: sorted(names) for end, names in ends.items()}
                for key, ends in self._get_full_signature_list().items()}

    def get_signature_runner(self, signature_key: Optional[str] = None) -> "SignatureRunner":
        """A function of a signature's inputs; the key may be left out if there is one signature."""
        keys = list(self._get_full_signature_list())
        if signature_key is None:
            if len(keys) != 1:
                raise ValueError(f"SignatureDef signature_key is None and the model has {len(keys)} "
                                 "Signatures. None is only allowed when the model has 1 SignatureDef")
            signature_key = keys[0]
        return SignatureRunner(self, signature_key)

    def _get_full_signature_list(self) -> Dict[str, Dict[str, Dict[str, int]]]:
        return {signature["key"]: {"inputs": signature["inputs"], "outputs": signature["outputs"]}
                for signature in self._model.signatures}

    def _get_tensor_details(self, tensor_index: int, subgraph_index: int = 0) -> Dict[str, Any]:
        tensor: Any
        if self._interpreter is not None:
            tensor = self._tensor(tensor_index, subgraph_index)
        else:
            tensor = types.SimpleNamespace(**self._model.describe_tensor(tensor_index))
        scales, zero_points, dimension = tensor.channel_quantization
        return {
            "name": tensor.name,
            "index": tensor_index,
            "shape": np.array(self._shapes.get(tensor_index, tensor.shape), np.int32),
            "shape_signature": np.array(tensor.shape_signature, np.int32),
            "dtype": _CLASSES.get(tensor.type, np.void),
            "quantization": tensor.quantization,
            "quantization_parameters": {
                "scales": np.array(scales, np.float32),
                "zero_points": np.array(zero_points, np.int32),
                "quantized_dimension": dimension,
            },
            "sparsity_parameters": {},
        }

    def _get_ops_details(self) -> List[Dict[str, Any]]:
        return [{"index": node["index"], "op_name": node["op"],
                 "inputs": np.array(node["inputs"], np.int32),
                 "outputs": np.array(node["outputs"], np.int32)} for node in self._native().nodes]

    def _native_handle(self) -> int:
        return id(self)

    def _ensure_ready(self) -> None:
        if not self._ready:
            raise RuntimeError("Invoke called on model that is not ready.")

    def _ensure_safe(self) -> None:
        if self._interpreter is not None and self._interpreter._native.view_count:
            raise RuntimeError(
                "There is at least 1 reference to internal data of the interpreter: an array, or a "
                "part of one, that tensor()() gave. Keep what tensor() returns, and call it anew "
                "each time.")

    def _native(self) -> _atoll.Interpreter:
        if self._interpreter is None:
            raise RuntimeError(self._error)
        return self._interpreter._native

    def _described(self) -> Union[_atoll.Interpreter, _atoll.Model]:
        """What knows the tensors, also of a model that cannot run."""
        return self._model if self._interpreter is None else self._interpreter._native

    def _tensor(self, index: int, subgraph: int = 0) -> _interpreter.Tensor:
        tensor = self._tensors.get(index) if subgraph == 0 else None
        if tensor is not None:
            return tensor
        native = self._native()
        if subgraph != 0:
            raise ValueError(f"Invalid subgraph index {subgraph}: subgraph 0 is run")
        index = int(index)
        if not 0 <= index < native.tensor_count:
            raise ValueError(f"Invalid tensor index {index} exceeds max tensor index "
                             f"{native.tensor_count - 1}")
        return self._tensors.setdefault(index, _interpreter.Tensor(native, index))

    def _with_memory(self, index: int, subgraph: int) -> _interpreter.Tensor:
        tensor = self._tensor(index, subgraph)
        if tensor.type not in _interpreter.DTYPES:
            raise ValueError(f"Tensor {index} has elements of the type {tensor.type.upper()}, which "
                             "Atoll does not compute with")
        if not (self._ready or tensor.is_constant) or not tensor.has_memory:
            raise ValueError("Tensor data is null. Run allocate_tensors() first")
        return tensor


class InterpreterWithCustomOps(Interpreter):
    """An Interpreter. Kernels of a program's own, in libraries made for TensorFlow Lite, are not
    called: Atoll has its own for the custom operators that it knows."""

    def __init__(self, custom_op_registerers: Optional[Sequence[Any]] = None,
                 **keywords: Any) -> None:
        self._custom_op_registerers = list(custom_op_registerers or [])
        if self._custom_op_registerers:
            logging.getLogger("atoll").warning(
                "kernels for custom operators that %s would register are not used: Atoll has its own",
                ", ".join(map(str, self._custom_op_registerers)))
        super().__init__(**keywords)


class SignatureRunner:
    """Runs a model by the names of one of its signatures: `runner(x=array)` returns a dictionary."""

    def __init__(self, interpreter: Interpreter, signature_key: str) -> None:
        signatures = interpreter._get_full_signature_list()
        if signature_key not in signatures:
            raise ValueError(f"Invalid signature_key provided: '{signature_key}'")
        subgraph = next(signature["subgraph"] for signature in interpreter._model.signatures
                        if signature["key"] == signature_key)
        if subgraph != 0:
            raise ValueError(f"the signature '{signature_key}' is of subgraph {subgraph}; subgraph "
                             "0 is run")
        self._interpreter = interpreter
        self._signature_key = signature_key
        self._inputs = signatures[signature_key]["inputs"]
        self._outputs = signatures[signature_key]["outputs"]

    def __call__(self, **values: Any) -> Dict[str, np.ndarray]:
        if len(values) != len(self._inputs):
            raise ValueError("Invalid number of inputs provided for running a SignatureDef, "
                             f"expected {len(self._inputs)} vs provided {len(values)}")
        for name in values:
            if name not in self._inputs:
                raise ValueError(f"Invalid Input name ({name}) for SignatureDef")
        interpreter = self._interpreter
        arrays = {name: np.asarray(value) for name, value in values.items()}
        for name, array in arrays.items():
            details = interpreter._get_tensor_details(self._inputs[name])
            if list(array.shape) != list(details["shape"]):
                interpreter.resize_tensor_input(self._inputs[name], array.shape)
        if not interpreter._ready:
            interpreter.allocate_tensors()
        for name, array in arrays.items():
            interpreter.set_tensor(self._inputs[name], array)
        interpreter.invoke()
        return {name: interpreter.get_tensor(index) for name, index in self._outputs.items()}

    def get_input_details(self) -> Dict[str, Dict[str, Any]]:
        """A dictionary for each input, by its name."""
        return {name: self._interpreter._get_tensor_details(index)
                for name, index in self._inputs.items()}

    def get_output_details(self) -> Dict[str, Dict[str, Any]]:
        """A dictionary for each output, by its name."""
        return {name: self._interpreter._get_tensor_details(index)
                for name, index in self._outputs.items()}


def interpreter_of(handle: int) -> Interpreter:
    """The interpreter whose _native_handle() that is. ValueError if there is none any more."""
    interpreter = _handles.get(handle)
    if interpreter is None:
        raise ValueError(f"{handle!r} is no handle of an interpreter that lives")
    return interpreter


def _open_model(path: Any, content: Any) -> _atoll.Model:
    if (path is None) == (content is None):
        raise ValueError("An interpreter needs one of `model_path` and `model_content`, not "
                         + ("both" if path is not None else "neither"))
    try:
        return _atoll.Model(path=path) if path is not None else _atoll.Model(content=content)
    except (_atoll.NotFoundError, _atoll.PermissionDeniedError) as error:
        raise ValueError(f"Could not open '{os.fspath(path)}'.") from error
    except _atoll.Error as error:
        raise ValueError(str(error)) from error


def _with_node(message: str, step: str) -> str:
    """The message of a failure, and the line with which TensorFlow Lite's ends."""
    operator = re.search(r"node (\d+) \(([^)]+)\)", message)
    if operator is None:
        return message
    return f"{message}\nNode number {operator[1]} ({operator[2]}) failed to {step}."


def _why_not_prepared(model: _atoll.Model, message: str) -> str:
    """The same of what happened when there was no interpreter yet."""
    custom = "edgetpu-custom-op"
    if not model.has_operator(custom):
        return _with_node(message, "prepare")
    if "\nNode number " not in _with_node(message, "prepare"):
        message += f"\nNode number 0 ({custom}) failed to prepare."
    return f"Encountered unresolved custom op: {custom}.\n{message}"
