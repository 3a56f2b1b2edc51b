# SPDX-License-Identifier: Apache-2.0
"""What is made and deleted 10,000 times leaves less than a megabyte behind. (An emulated device takes
ten milliseconds: all suites but the slow one open it some hundred times.)"""
import gc
import os
import unittest
import weakref
from unittest import mock

import atoll
import numpy as np
import packages
import tflite_runtime.interpreter as tflite
from packages import FASHION
from pycoral.adapters import classify
from pycoral.utils import edgetpu

CYCLES = 10_000
LIMIT_BYTES = 1_000_000


def resident_bytes():
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class MemoryTest(unittest.TestCase):
    def grows_little(self, cycle, cycles=CYCLES):
        for _ in range(cycles // 10):
            cycle()
        before = resident_bytes()
        for _ in range(cycles):
            cycle()
        growth = resident_bytes() - before
        print(f"{self.id()}: {cycles} times: {growth:+} bytes", flush=True)
        self.assertLess(growth, LIMIT_BYTES)


class Memory(MemoryTest):
    def test_interpreters(self):
        model = str(FASHION)

        def cycle():
            interpreter = tflite.Interpreter(model, num_threads=1)
            interpreter.allocate_tensors()
            interpreter.tensor(0)()[0, 0, 0, 0] = 1

        self.grows_little(cycle)

    def test_interpreters_on_one_device(self):
        model = atoll.Model(FASHION)
        delegate = atoll.Delegate("emu", num_threads=1)

        def cycle():
            interpreter = atoll.Interpreter(model, delegate, threads=1)
            interpreter.inputs[0].array[0] = 1

        self.grows_little(cycle)

    def test_calls(self):
        interpreter = atoll.Interpreter(FASHION, threads=1)
        image = np.zeros((1, 28, 28, 1), np.int8)

        def cycle():
            interpreter.run(image)
            interpreter.set_input(0, bytes(784))
            interpreter.set_input(0, None)
            view = interpreter.outputs[0].array[0]
            interpreter.outputs[0].dequantize(view)
            for failing in (lambda: interpreter.set_input(0, b""), lambda: interpreter.tensor(99)):
                try:
                    failing()
                except atoll.Error:
                    pass

        self.grows_little(cycle, 2_000)

    def test_circles(self):
        """Memory that is bound to an interpreter may belong to somebody who refers to it."""
        class Owner(bytearray):
            interpreter = None

        class Array(np.ndarray):
            interpreter = None

        for make in (lambda: Owner(784), lambda: np.zeros((1, 28, 28, 1), np.int8).view(Array)):
            memory = make()
            interpreter = atoll.Interpreter(FASHION, threads=1)
            memory.interpreter = interpreter
            interpreter.set_input(0, memory)
            interpreter.invoke()
            seen = weakref.ref(interpreter)
            del memory, interpreter
            gc.collect()
            self.assertIsNone(seen())

    def test_answers(self):
        interpreter = atoll.Interpreter(FASHION, "emu", threads=1)

        def cycle():
            interpreter.nodes, interpreter.partitions, interpreter.memory  # noqa: B018
            interpreter._native.invoke_traced()
            interpreter.model.signatures, interpreter.model.metadata  # noqa: B018
            atoll.devices()

        self.grows_little(cycle, 1_000)


class Delegates(MemoryTest):
    """Each interpreter has a delegate, and so a device, of its own."""
    CYCLES = 300

    def setUp(self):
        patch = mock.patch.dict(os.environ, {"ATOLL_EDGETPU_EMULATE": "1"})
        patch.start()
        self.addCleanup(patch.stop)

    def test_tflite_runtime(self):
        def cycle():
            delegate = tflite.load_delegate("libedgetpu.so.1", {"device": "usb"})
            tflite.Interpreter(str(FASHION), experimental_delegates=[delegate],
                               num_threads=1).allocate_tensors()

        self.grows_little(cycle, self.CYCLES)

    def test_pycoral(self):
        image = bytes(784)

        def cycle():
            interpreter = edgetpu.make_interpreter(str(FASHION), device=":0")
            interpreter.allocate_tensors()
            edgetpu.run_inference(interpreter, image)
            classify.get_classes(interpreter, top_k=1)

        self.grows_little(cycle, self.CYCLES)


class AllDelegates(Delegates):
    CYCLES = CYCLES


if __name__ == "__main__":
    packages.need(FASHION)
    unittest.main()
