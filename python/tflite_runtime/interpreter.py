# SPDX-License-Identifier: Apache-2.0
"""Atoll's interpreter with TensorFlow Lite's interface: atoll.tflite."""
from atoll.tflite import (Delegate, Interpreter, InterpreterWithCustomOps, OpResolverType,
                          SignatureRunner, load_delegate)

__all__ = ["Delegate", "Interpreter", "InterpreterWithCustomOps", "OpResolverType",
           "SignatureRunner", "load_delegate"]
