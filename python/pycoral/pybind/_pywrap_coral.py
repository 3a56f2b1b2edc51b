# SPDX-License-Identifier: Apache-2.0
"""The names of the original's module in C++. Interpreters come as numbers: what _native_handle() of
atoll.tflite.Interpreter says."""
import ctypes
import mmap
from typing import Any, Dict, List

import atoll
from atoll import edgetpu
from atoll.tflite import interpreter_of
from pycoral._learning import (ImprintingEnginePythonWrapper, SoftmaxRegressionModelWrapper,
                               TrainConfigWrapper, TrainingDataWrapper)
from pycoral._pipeline import PipelinedModelRunnerWrapper

__all__ = [
    "GetRuntimeVersion", "ImprintingEnginePythonWrapper", "InvokeWithBytes", "InvokeWithDmaBuffer",
    "InvokeWithMemBuffer", "ListEdgeTpus", "PipelinedModelRunnerWrapper", "SetVerbosity",
    "SoftmaxRegressionModelWrapper", "SupportsDmabuf", "TrainConfigWrapper", "TrainingDataWrapper",
]


def GetRuntimeVersion() -> str:
    """In the form that programs know. 14 is the version of the interface of Google's runtime."""
    return f"BuildLabel(atoll {atoll.version()}), RuntimeVersion(14)"


def ListEdgeTpus() -> List[Dict[str, str]]:
    """{'type': 'usb' or 'pci', 'path': ...} of each Edge TPU."""
    return edgetpu.list_edge_tpus()


def SetVerbosity(verbosity: int) -> bool:
    """Whether that is a level, 0 to 10. Atoll prints nothing at any of them."""
    return 0 <= verbosity <= 10


def SupportsDmabuf(handle: int) -> bool:
    """False: devices do not read dma-bufs themselves. They are mapped."""
    interpreter_of(handle)
    return False


def InvokeWithBytes(handle: int, data: bytes) -> None:
    """Invokes with the input read from `data`, where it lies."""
    _invoke(handle, memoryview(data))


def InvokeWithMemBuffer(handle: int, address: int, size: int) -> None:
    """Invokes with the input read from the `size` bytes at `address`, where they lie."""
    _invoke(handle, memoryview((ctypes.c_char * size).from_address(address or 0)
                               if size and address else b""))


def InvokeWithDmaBuffer(handle: int, fd: int, size: int) -> None:
    """Invokes with the input read from the file, which is mapped."""
    interpreter_of(handle)._ensure_ready()
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as mapping:
        with memoryview(mapping) as view:
            _invoke(handle, view)


def _invoke(handle: int, data: Any) -> None:
    interpreter = interpreter_of(handle)
    interpreter._ensure_ready()
    native = interpreter._native()
    tensor = interpreter._tensor(native.input_indices[0])
    if data.nbytes < tensor.nbytes:
        raise ValueError(f"input size={data.nbytes}, expected={tensor.nbytes}.")
    with data.cast("B") as flat, flat[:tensor.nbytes] as part:
        native.set_input_buffer(0, part)
        try:
            interpreter._invoke()
        finally:
            native.set_input_buffer(0, None)
