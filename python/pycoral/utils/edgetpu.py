# SPDX-License-Identifier: Apache-2.0
"""Interpreters on Edge TPUs (docs/python.md: what stands for one), and which there are."""
import ctypes
import os
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

import numpy as np

from atoll.tflite import Delegate, Interpreter, load_delegate
from pycoral.pybind import _pywrap_coral

_EDGETPU_SHARED_LIB = "libedgetpu.so.1"

get_runtime_version = _pywrap_coral.GetRuntimeVersion
set_verbosity = _pywrap_coral.SetVerbosity
supports_dmabuf = _pywrap_coral.SupportsDmabuf
invoke_with_bytes = _pywrap_coral.InvokeWithBytes
invoke_with_membuffer = _pywrap_coral.InvokeWithMemBuffer
invoke_with_dmabuffer = _pywrap_coral.InvokeWithDmaBuffer


def list_edge_tpus() -> List[Dict[str, str]]:
    """{'type': 'usb' or 'pci', 'path': ...} of each Edge TPU."""
    return _pywrap_coral.ListEdgeTpus()


def load_edgetpu_delegate(options: Optional[Mapping[str, Any]] = None) -> Delegate:
    """Opens an Edge TPU: `options` are those of Google's library. ValueError if it is not there."""
    return load_delegate(_EDGETPU_SHARED_LIB, options or {})


def make_interpreter(model_path_or_content: Union[str, os.PathLike, bytes],
                     device: Optional[str] = None,
                     delegate: Optional[Delegate] = None) -> Interpreter:
    """An interpreter on an Edge TPU: `delegate`, or the one that `device` names: "", ":N", "usb",
    "usb:N", "pci", "pci:N". ValueError if it is not there."""
    if delegate is None:
        delegate = load_edgetpu_delegate({"device": device} if device else {})
    if isinstance(model_path_or_content, bytes):
        return Interpreter(model_content=model_path_or_content, experimental_delegates=[delegate])
    return Interpreter(model_path=model_path_or_content, experimental_delegates=[delegate])


def run_inference(interpreter: Interpreter,
                  input_data: Union[np.ndarray, bytes, Tuple[ctypes.c_void_p, int], Any]) -> None:
    """Invokes on `input_data`, which is read where it lies: an array, bytes, a pointer and a number
    of bytes, or a Gst.Buffer. There may be more than the input takes, not fewer."""
    handle = interpreter._native_handle()
    if isinstance(input_data, bytes):
        invoke_with_bytes(handle, input_data)
    elif isinstance(input_data, np.ndarray):
        input_data = np.ascontiguousarray(input_data)
        invoke_with_membuffer(handle, input_data.ctypes.data, input_data.nbytes)
    elif (isinstance(input_data, tuple) and len(input_data) == 2
          and isinstance(input_data[0], ctypes.c_void_p) and isinstance(input_data[1], int)):
        invoke_with_membuffer(handle, input_data[0].value, input_data[1])
    elif type(input_data).__module__.startswith("gi.repository.Gst"):
        _run_on_gst_buffer(handle, input_data)
    else:
        raise TypeError(f"input data is a {type(input_data).__name__}; it may be an array of numpy, "
                        "bytes, a (ctypes.c_void_p, size), or a Gst.Buffer")


def _run_on_gst_buffer(handle: int, buffer: Any) -> None:
    from gi.repository import Gst  # it is there: the buffer is of it
    is_mapped, info = buffer.map(Gst.MapFlags.READ)
    if not is_mapped:
        raise RuntimeError("the Gst.Buffer cannot be read")
    try:
        invoke_with_bytes(handle, bytes(info.data))
    finally:
        buffer.unmap(info)
