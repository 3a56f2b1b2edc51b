#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: stand_ins_program.py MODEL TIMES [LIBRARY]

What a program in Python takes for one inference on one thread, its input copied in and its outputs
copied out: the shortest of so many, in microseconds. With tflite_runtime, on the CPU or, if
ATOLL_EDGETPU_EMULATE is set, on the device of libedgetpu.so.1; or, with a LIBRARY, a
libtensorflowlite_c.so, which is called by ctypes. bench/stand_ins.py runs it."""
import ctypes
import os
import sys
import time


def of_tflite_runtime(model):
    import numpy as np
    import tflite_runtime.interpreter as tflite
    delegates = [tflite.load_delegate("libedgetpu.so.1")] \
        if os.environ.get("ATOLL_EDGETPU_EMULATE") else None
    interpreter = tflite.Interpreter(model, experimental_delegates=delegates,
                                     num_threads=None if delegates else 1)
    interpreter.allocate_tensors()
    values = [(entry["index"], np.ones(entry["shape"], entry["dtype"]))
              for entry in interpreter.get_input_details()]
    outputs = [entry["index"] for entry in interpreter.get_output_details()]

    def infer():
        for index, value in values:
            interpreter.set_tensor(index, value)
        interpreter.invoke()
        for index in outputs:
            interpreter.get_tensor(index)

    return infer


def of_library(model, path):
    library = ctypes.CDLL(path)

    def function(name, result, *arguments):
        found = getattr(library, f"TfLite{name}")
        found.restype, found.argtypes = result, arguments
        return found

    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    options = function("InterpreterOptionsCreate", pointer)()
    function("InterpreterOptionsSetNumThreads", None, pointer, ctypes.c_int)(options, 1)
    opened = function("ModelCreateFromFile", pointer, ctypes.c_char_p)(os.fsencode(model))
    interpreter = function("InterpreterCreate", pointer, pointer, pointer)(opened, options)
    if function("InterpreterAllocateTensors", ctypes.c_int, pointer)(interpreter) != 0:
        sys.exit(f"{path} does not take {model}")
    byte_size = function("TensorByteSize", size, pointer)

    def tensors(end):
        get = function(f"InterpreterGet{end}Tensor", pointer, pointer, ctypes.c_int32)
        count = function(f"InterpreterGet{end}TensorCount", ctypes.c_int32, pointer)(interpreter)
        found = [get(interpreter, index) for index in range(count)]
        return [(tensor, ctypes.create_string_buffer(b"\1" * byte_size(tensor), byte_size(tensor)))
                for tensor in found]

    inputs, outputs = tensors("Input"), tensors("Output")
    copy_in = function("TensorCopyFromBuffer", ctypes.c_int, pointer, pointer, size)
    copy_out = function("TensorCopyToBuffer", ctypes.c_int, pointer, pointer, size)
    invoke = function("InterpreterInvoke", ctypes.c_int, pointer)

    def infer():
        for tensor, buffer in inputs:
            copy_in(tensor, buffer, len(buffer))
        if invoke(interpreter) != 0:
            sys.exit(f"{path} does not run {model}")
        for tensor, buffer in outputs:
            copy_out(tensor, buffer, len(buffer))

    return infer


def main():
    if not 3 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    infer = of_library(sys.argv[1], sys.argv[3]) if len(sys.argv) > 3 \
        else of_tflite_runtime(sys.argv[1])
    shortest = float("inf")
    for _ in range(int(sys.argv[2])):
        before = time.perf_counter_ns()
        infer()
        shortest = min(shortest, (time.perf_counter_ns() - before) / 1000)
    print(f"shortest: {shortest:.2f} us")


if __name__ == "__main__":
    main()
