# SPDX-License-Identifier: Apache-2.0
"""Atoll: TensorFlow Lite models, quantized ones on an Edge-TPU-style coprocessor or its emulator.

    import atoll
    interpreter = atoll.Interpreter("model.tflite", device="emu")
    scores, = interpreter.run(image)

What can fail raises an `atoll.Error`, which is also what programs in Python catch in such a case:
a `ValueError` for wrong arguments and for files that are no models, a `FileNotFoundError` for files
and devices that are not there, and so on.
"""
import atexit
import logging

from atoll import _atoll
from atoll._atoll import (CancelledError, CorruptModelError, DeadlineError, Delegate,
                          DeviceBusyError, DeviceLostError, Error, InternalError,
                          InvalidArgumentError, Model, NotFoundError, PermissionDeniedError,
                          ResourceExhaustedError, UnsupportedError, cpu_name, version)
from atoll.devices import Device, Finding, devices, diagnose
from atoll.interpreter import Interpreter, Node, Tensor
from atoll.measure import Benchmark, NodeTime, Profile, benchmark, profile
from atoll.quantizing import Quantized, check_quantization, import_onnx, quantize

_logger = logging.getLogger("atoll")
_logger.addHandler(logging.NullHandler())  # silent unless the program wants to hear it
_LEVELS = (logging.INFO, logging.WARNING, logging.ERROR)
_atoll.set_log(lambda severity, message: _logger.log(_LEVELS[severity], "%s", message))
atexit.register(_atoll.set_log, None)

__version__ = version()
__all__ = [
    "Benchmark", "CancelledError", "CorruptModelError", "DeadlineError", "Delegate", "Device",
    "DeviceBusyError", "DeviceLostError", "Error", "Finding", "InternalError", "Interpreter",
    "InvalidArgumentError", "Model", "Node", "NodeTime", "NotFoundError", "PermissionDeniedError",
    "Profile", "Quantized", "ResourceExhaustedError", "Tensor", "UnsupportedError", "benchmark",
    "check_quantization", "cpu_name", "devices", "diagnose", "import_onnx", "profile", "quantize",
    "version",
]
