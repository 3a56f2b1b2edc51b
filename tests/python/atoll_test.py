# SPDX-License-Identifier: Apache-2.0
"""The package atoll: running models, other objects' memory, views, errors, measurements."""
import array
import ctypes
import gc
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import atoll
import numpy as np
import packages
from packages import CROPS, FASHION, SCENES, SOURCE


class Runs(unittest.TestCase):
    longMessage = True

    def setUp(self):
        self.interpreter = atoll.Interpreter(FASHION)
        self.image = packages.seeded(1, (1, 28, 28, 1), np.int8)
        (self.expected,) = self.interpreter.run(self.image)


class Running(Runs):
    def test_version(self):
        self.assertRegex(atoll.__version__, r"\A\d+\.\d+\.\d+\Z")
        self.assertIn(atoll.cpu_name(), (
            "avx512vnni", "avx512vnni256", "avxvnni", "avx2", "neon_i8mm", "neon_dotprod", "neon",
            "baseline"))

    def test_models_and_devices(self):
        content = FASHION.read_bytes()
        delegate = atoll.Delegate("emu", max_partition_nodes=3)
        model = atoll.Model(FASHION)
        for opened in (str(FASHION), pathlib.Path(FASHION), content, bytearray(content),
                       memoryview(content), np.frombuffer(content, np.uint8), model):
            for device in (None, "cpu", "emu", delegate):
                interpreter = atoll.Interpreter(opened, device, threads=1)
                (scores,) = interpreter.run(self.image)
                np.testing.assert_array_equal(scores, self.expected)

    def test_fallback(self):
        """A model for a Coral runs as what it was made from, where that is given."""
        models = packages.SHARED / "models"
        packages.need(models)
        original = models / "libredgetpu_dense_256.tflite"
        compiled = models / "edgetpu/libredgetpu_dense_256_edgetpu.tflite"
        image = packages.seeded(1, (1, 256), np.uint8)
        (expected,) = atoll.Interpreter(original).run(image)
        environment = {name: value for name, value in os.environ.items()
                       if name != "ATOLL_MODEL_PATH"}
        with mock.patch.dict(os.environ, environment, clear=True), \
                tempfile.TemporaryDirectory() as folder:
            # Where nothing is beside it.
            alone = shutil.copy(compiled, pathlib.Path(folder, "model.tflite"))
            for device in (None, "cpu", "emu"):
                with self.assertRaisesRegex(atoll.UnsupportedError, "fallback"):
                    atoll.Interpreter(alone, device)
                for fallback in (original, str(original), original.read_bytes(),
                                 atoll.Model(original)):
                    interpreter = atoll.Interpreter(alone, device, fallback=fallback)
                    np.testing.assert_array_equal(interpreter.run(image)[0], expected)
                    self.assertNotEqual(interpreter._native.substitute, None)
                with self.assertRaisesRegex(atoll.InvalidArgumentError,
                                            r"fallback model: its input 0 is int8 \[1, 1\]"):
                    atoll.Interpreter(alone, device, fallback=models / "hello_world_int8.tflite")
                with self.assertRaisesRegex(atoll.NotFoundError, "no_such_file"):
                    atoll.Interpreter(alone, device, fallback="no_such_file")

    def test_where_nodes_run(self):
        self.assertEqual({node.partition for node in self.interpreter.nodes}, {-1})
        self.assertEqual(self.interpreter.partitions, [])
        interpreter = atoll.Interpreter(SCENES, "emu")
        on_cpu = [node for node in interpreter.nodes if node.partition < 0]
        self.assertTrue(all(node.reason for node in on_cpu))
        self.assertEqual(sum(part["node_count"] for part in interpreter.partitions),
                         len(interpreter.nodes) - len(on_cpu))
        interpreter.invoke()
        self.assertGreater(interpreter.last_invocation["device_cycles"], 0)
        self.assertGreater(interpreter.memory["arena_bytes"], 0)

    def test_tensors(self):
        (image,) = self.interpreter.inputs
        self.assertEqual((image.name, image.index, image.shape, image.dtype, image.nbytes),
                         ("image", 0, (1, 28, 28, 1), np.int8, 784))
        self.assertEqual(repr(image), "<atoll.Tensor 0 'image' int8[1, 28, 28, 1]>")
        self.assertTrue(self.interpreter.tensor(2).is_constant)

    def test_real_values(self):
        image = self.interpreter.inputs[0]
        np.testing.assert_array_equal(image.quantize([0.0, 1.0, 2.0, -1.0]), [-128, 127, 127, -128])
        np.testing.assert_allclose(image.dequantize(np.int8([-128, 127])), [0.0, 1.0])
        (scores,) = self.interpreter.outputs
        np.testing.assert_allclose(scores.dequantize(), (self.expected + 128.0) / 256)
        weights = self.interpreter.tensor(2)  # per channel
        scales, _, dimension = weights.channel_quantization
        self.assertEqual(len(scales), weights.shape[dimension])
        np.testing.assert_array_equal(weights.quantize(weights.dequantize()), weights.array)
        boxes = atoll.Interpreter(SCENES).outputs[0]  # float32
        np.testing.assert_array_equal(boxes.dequantize(), boxes.array)
        with self.assertRaises(atoll.InvalidArgumentError):
            boxes.quantize([1.0])

    def test_other_shapes(self):
        both = np.concatenate([self.image, self.image])
        interpreter = atoll.Interpreter(FASHION, input_shapes={"image": (2, 28, 28, 1)})
        np.testing.assert_array_equal(interpreter.run(both)[0], np.tile(self.expected, (2, 1)))
        interpreter.resize({0: [1, 28, 28, 1]})
        self.assertEqual(interpreter.outputs[0].shape, (1, 10))
        np.testing.assert_array_equal(interpreter.run(self.image)[0], self.expected)
        view = interpreter.outputs[0].array
        with self.assertRaises(BufferError):
            interpreter.resize({0: [2, 28, 28, 1]})
        np.testing.assert_array_equal(view, self.expected)
        del view
        for shape in ((2, 28, 28, 3), (1, 28, 28), (), (0, 28, 28, 1), (1 << 40, 28, 28, 1),
                      (2**31 - 1, 28, 28, 1), range(1, 10**9)):
            with self.subTest(shape), self.assertRaises((ValueError, OverflowError)):
                interpreter.resize({0: shape})
            np.testing.assert_array_equal(interpreter.run(self.image)[0], self.expected)
        interpreter.resize({0: [2, 28, 28, 1]})
        np.testing.assert_array_equal(interpreter.run(both)[0], np.tile(self.expected, (2, 1)))

    def test_all_tensors(self):
        interpreter = atoll.Interpreter(FASHION, keep_all_tensors=True)
        interpreter.run(self.image)
        first = interpreter.tensor(interpreter.nodes[0].outputs[0])
        self.assertGreater(np.count_nonzero(first.array + 128), 0)
        on_device = atoll.Interpreter(FASHION, "emu").tensor(first.index)
        self.assertFalse(on_device.has_memory)
        with self.assertRaisesRegex(atoll.InvalidArgumentError, "partition"):
            on_device.numpy()

    def test_compiled_model(self):
        delegate = atoll.Delegate("emu")
        self.assertTrue(delegate.is_emulated)
        self.assertEqual(delegate.info["array_rows"], 64)
        content = delegate.compile(atoll.Model(FASHION))
        self.assertTrue(atoll.Model(content=content).has_operator("atoll-custom-op")
                        or len(content) > len(FASHION.read_bytes()))
        (scores,) = atoll.Interpreter(content, delegate).run(self.image)
        np.testing.assert_array_equal(scores, self.expected)
        self.assertEqual(delegate.health["failures"], 0)

    def test_model(self):
        model = atoll.Model(CROPS, copy_file=True)
        self.assertTrue(model.has_operator("CONV_2D"))
        self.assertFalse(model.has_operator("UNPACK"))
        self.assertEqual((model.signatures, type(model.metadata)), ([], dict))
        self.assertGreater(model.estimate_coral("usb3")["seconds"], 0)
        with self.assertRaises(atoll.NotFoundError):
            model.estimate_coral("toaster")


class Buffers(Runs):
    def all_kinds(self):
        """(name, object) of buffers that hold the image."""
        data = self.image.tobytes()
        yield "bytes", data
        yield "bytearray", bytearray(data)
        yield "memoryview", memoryview(data)
        yield "typed memoryview", memoryview(data).cast("b", (28, 28))
        yield "array", array.array("b", data)
        yield "ctypes", (ctypes.c_int8 * 784).from_buffer_copy(data)
        yield "rows of ctypes", ((ctypes.c_int8 * 28) * 28).from_buffer_copy(data)
        yield "numpy", self.image
        yield "without sizes of 1", self.image[0, :, :, 0]
        yield "not contiguous", np.repeat(self.image, 2, axis=2)[:, :, ::2]
        yield "read-only", np.frombuffer(data, np.int8).reshape(28, 28)
        yield "another tensor", self.interpreter_with_image().inputs[0]
        yield "dlpack", Dlpack(self.image)

    def interpreter_with_image(self):
        other = atoll.Interpreter(FASHION)
        other.inputs[0].array[...] = self.image
        return other

    def test_kinds(self):
        for device in (None, "emu"):
            interpreter = atoll.Interpreter(FASHION, device)
            for name, value in self.all_kinds():
                with self.subTest(name):
                    interpreter.inputs[0].array[...] = 0
                    np.testing.assert_array_equal(interpreter.run(value)[0], self.expected)
                    interpreter.set_input("image", value)
                    interpreter.invoke()
                    np.testing.assert_array_equal(interpreter.outputs[0].array, self.expected)
                    interpreter.set_input(0, None)
                    self.assertEqual(np.count_nonzero(interpreter.inputs[0].array), 0)

    def test_in_place(self):
        """What is written to the buffer later counts; the buffer lives as long as it is needed."""
        buffer = np.zeros((28, 28), np.int8)
        self.interpreter.set_input(0, buffer)
        self.interpreter.invoke()
        self.assertFalse(np.array_equal(self.interpreter.outputs[0].array, self.expected))
        buffer[...] = self.image[0, :, :, 0]
        references = sys.getrefcount(buffer)
        del buffer
        gc.collect()
        self.interpreter.invoke()
        np.testing.assert_array_equal(self.interpreter.outputs[0].array, self.expected)
        np.testing.assert_array_equal(self.interpreter.inputs[0].numpy(), self.image)
        self.assertGreaterEqual(references, 3)

    def test_released(self):
        buffer = bytearray(self.image.tobytes())
        self.interpreter.set_input(0, buffer)
        with self.assertRaises(BufferError):
            buffer.append(1)  # it is in use
        self.interpreter.set_input(0, self.image)
        buffer.append(1)
        buffer.pop()
        self.interpreter.set_input(0, buffer)
        self.interpreter.resize({0: (2, 28, 28, 1)})
        buffer.append(1)
        buffer.pop()
        self.interpreter.resize({0: (1, 28, 28, 1)})
        self.interpreter.set_input(0, buffer)
        del self.interpreter
        gc.collect()
        buffer.append(1)

    def test_no_view_of_what_lies_elsewhere(self):
        self.interpreter.set_input(0, self.image)
        with self.assertRaisesRegex(BufferError, "buffer of yours"):
            self.interpreter.inputs[0].array  # pylint: disable=pointless-statement
        with self.assertRaisesRegex(ValueError, "buffer of yours"):
            self.interpreter.inputs[0].copy_from(self.image)

    def test_outputs(self):
        scores = np.zeros(10, np.int8)
        self.interpreter.set_output("probabilities", scores)
        (copy,) = self.interpreter.run(self.image)
        np.testing.assert_array_equal(scores, self.expected[0])
        np.testing.assert_array_equal(copy, self.expected)
        self.interpreter.set_output(0, bytearray(10))
        self.interpreter.set_output(0, None)
        for bad in (bytes(10), np.zeros(20, np.int8)[::2], np.zeros(9, np.int8)):
            with self.assertRaises((ValueError, BufferError)):
                self.interpreter.set_output(0, bad)

    def test_bad_values(self):
        interpreter = self.interpreter
        for value in (self.image.astype(np.float32), self.image.astype(np.uint8), [0] * 784, 3,
                      self.image[:, 1:], b"x" * 783, b"", np.zeros((2, 28, 28, 1), np.int8),
                      np.array("text"), np.array(object())):
            with self.subTest(repr(value)[:40]):
                with self.assertRaises(atoll.InvalidArgumentError):
                    interpreter.set_input(0, value)
        for value in (object(), "text", {}):
            with self.assertRaises((TypeError, ValueError)):
                interpreter.set_input(0, value)
        with self.assertRaisesRegex(atoll.InvalidArgumentError, "1 inputs, not 2"):
            interpreter.run(self.image, self.image)
        for which in (1, -2, "imgae"):
            with self.assertRaisesRegex(atoll.InvalidArgumentError, "there are 'image'"):
                interpreter.set_input(which, self.image)
        np.testing.assert_array_equal(interpreter.run(self.image)[0], self.expected)

    def test_views(self):
        """Zero-copy, and valid after the interpreter is gone."""
        view = self.interpreter.inputs[0].array
        again = np.asarray(self.interpreter.inputs[0])
        self.assertTrue(np.shares_memory(view, again))
        self.assertTrue(view.flags.writeable)
        raw = memoryview(self.interpreter.outputs[0])
        self.assertEqual((raw.format, raw.shape, raw.strides), ("b", (1, 10), (10, 1)))
        constants = self.interpreter.tensor(2).array
        self.assertFalse(constants.flags.writeable)
        with self.assertRaises(ValueError):
            constants.flags.writeable = True
        total = int(constants.sum())
        del self.interpreter
        gc.collect()
        np.testing.assert_array_equal(raw, self.expected)
        view[...] = 3
        self.assertEqual((int(again.sum()), int(constants.sum())), (3 * 784, total))

    def test_dlpack_of_a_view(self):
        imported = np.from_dlpack(self.interpreter.outputs[0].array)
        np.testing.assert_array_equal(imported, self.expected)

    def test_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        np.testing.assert_array_equal(self.interpreter.run(torch.from_numpy(self.image))[0],
                                      self.expected)


class Dlpack:
    """Knows DLPack and nothing else."""

    def __init__(self, value):
        self._value = value

    def __dlpack__(self, **options):
        return self._value.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._value.__dlpack_device__()


class Errors(unittest.TestCase):
    def test_classes(self):
        for name, base in (("InvalidArgumentError", ValueError), ("CorruptModelError", ValueError),
                           ("UnsupportedError", NotImplementedError),
                           ("NotFoundError", FileNotFoundError),
                           ("PermissionDeniedError", PermissionError), ("DeviceBusyError", OSError),
                           ("DeviceLostError", OSError), ("DeadlineError", TimeoutError),
                           ("ResourceExhaustedError", MemoryError), ("CancelledError", Exception),
                           ("InternalError", RuntimeError)):
            error = getattr(atoll, name)
            self.assertTrue(issubclass(error, base) and issubclass(error, atoll.Error), name)

    def test_models(self):
        with self.assertRaisesRegex(FileNotFoundError, "/nowhere") as raised:
            atoll.Interpreter("/nowhere")
        self.assertEqual(raised.exception.errno, 2)
        with self.assertRaisesRegex(atoll.CorruptModelError, "TFL3"):
            atoll.Interpreter(SOURCE / "README.md")
        with self.assertRaises(atoll.CorruptModelError):
            atoll.Interpreter(b"")
        with self.assertRaises(atoll.InvalidArgumentError):
            atoll.Model()
        with self.assertRaises(TypeError):
            atoll.Interpreter(3)
        with self.assertRaises(ValueError):
            atoll.Model("a\0b")
        if os.geteuid() != 0:
            with tempfile.NamedTemporaryFile() as file:
                os.chmod(file.name, 0)
                with self.assertRaises(PermissionError):
                    atoll.Interpreter(file.name)

    def test_devices(self):
        with self.assertRaisesRegex(atoll.InvalidArgumentError, "did you mean 'emu'"):
            atoll.Interpreter(FASHION, "EMU")
        with self.assertRaises(atoll.NotFoundError):
            atoll.Interpreter(FASHION, "usb:31")
        for threads in (-1, 257, 2**31 - 1):
            with self.assertRaisesRegex(atoll.InvalidArgumentError, str(threads)):
                atoll.Delegate("emu", num_threads=threads)
        for wrong in (3, object(), atoll.Model(FASHION)):
            with self.assertRaises(TypeError):
                atoll.Interpreter(FASHION, wrong)
        with self.assertRaises(TypeError):
            atoll.Delegate(devcie="emu")

    def test_lost_device(self):
        image = packages.seeded(1, (1, 28, 28, 1), np.int8)
        expected = atoll.Interpreter(FASHION).run(image)[0]
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "unplug.txt")
            script.write_text("out 9 unplug never\n", encoding="ascii")
            for on_device_loss in ("fail", "fallback"):
                delegate = atoll.Delegate("emu", faults=str(script), on_device_loss=on_device_loss)
                interpreter = atoll.Interpreter(FASHION, delegate)
                lost = False
                for _ in range(20):
                    try:
                        np.testing.assert_array_equal(interpreter.run(image)[0], expected)
                    except atoll.DeviceLostError as error:
                        self.assertRegex(str(error), "unplugged|away")
                        lost = True
                self.assertEqual(lost, on_device_loss == "fail")
                self.assertGreater(delegate.health["failures"], 0)

    def test_notes(self):
        """What goes wrong is said to Python's logging, and printed nowhere."""
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "unplug.txt")
            script.write_text("out 9 unplug 50ms\n", encoding="ascii")
            program = (f"import atoll, logging, sys\n"
                       f"if sys.argv[1:]: logging.basicConfig(level=logging.INFO)\n"
                       f"d = atoll.Delegate('emu', faults={str(script)!r})\n"
                       f"i = atoll.Interpreter({str(FASHION)!r}, d)\n"
                       "for _ in range(20): i.invoke()\n"
                       "assert d.health['failures'] > 0")
            for arguments, said in (([], r"\A\Z"), (["heard"], r"WARNING:atoll:.*there again")):
                done = subprocess.run([sys.executable, "-c", program, *arguments],
                                      capture_output=True, text=True, check=False, timeout=100)
                self.assertEqual((done.returncode, done.stdout), (0, ""))
                self.assertRegex(done.stderr, said)

    def test_names_that_are_no_text(self):
        """Bytes of a file that are not UTF-8 are no reason not to say what there is to say."""
        content = FASHION.read_bytes().replace(b"main", b"m\x82in")
        self.assertIn(b"m\x82in", content)
        program = ("import atoll, logging, sys\n"
                   "logging.basicConfig(level=logging.INFO)\n"
                   "atoll.Interpreter(sys.stdin.buffer.read(), 'emu').invoke()")
        done = subprocess.run([sys.executable, "-X", "utf8", "-c", program], input=content,
                              capture_output=True, check=True, timeout=100)
        self.assertIn("uploading 'm\ufffdin'", done.stderr.decode())
        self.assertNotIn(b"Traceback", done.stderr)

    def test_a_view_without_sizes(self):
        """As of 3.12 any program can ask for one: tensor.__buffer__(0)."""
        tensor = atoll.Interpreter(FASHION).inputs[0]
        view = (ctypes.c_char * 256)()  # a Py_buffer and more
        api = ctypes.pythonapi
        self.assertEqual(api.PyObject_GetBuffer(ctypes.py_object(tensor), view, 0), 0)
        api.PyMemoryView_FromBuffer.restype = ctypes.py_object
        self.assertEqual(api.PyMemoryView_FromBuffer(view).nbytes, 784)
        api.PyBuffer_Release(view)

    def test_sizes_of_bytes(self):
        """What is wrong with bytes is their number, not their type."""
        interpreter = atoll.Interpreter(FASHION)
        for value in (bytes(783), bytearray(785), memoryview(bytes(783))):
            with self.assertRaisesRegex(atoll.InvalidArgumentError, "has 784 bytes, not 78[35]"):
                interpreter.set_input(0, value)
        for make in (lambda: atoll.Interpreter(FASHION, threads=2**31),
                     lambda: atoll.Delegate("emu", num_threads=-2**40)):
            self.assertRaisesRegex(ValueError, "out of range", make)

    def test_native_objects(self):
        """What the extension itself is given wrongly is an exception, too."""
        from atoll import _atoll
        interpreter = atoll.Interpreter(FASHION)._native
        for call in (lambda: _atoll.Tensor(interpreter, 99), lambda: _atoll.Tensor(interpreter, -1),
                     lambda: _atoll.Tensor(None, 0), lambda: _atoll.Interpreter(None),
                     lambda: interpreter.set_input_buffer(0, None, 1),
                     lambda: interpreter.set_input_buffer(5, b""),
                     lambda: interpreter.set_output_buffer(-1, bytearray(10)),
                     lambda: interpreter.resize(None), lambda: interpreter.resize([0]),
                     lambda: interpreter.resize([(0, None)]),
                     lambda: interpreter.resize([(0, "ab")]),
                     lambda: interpreter.resize([(0, [1 << 70])]),
                     lambda: interpreter.resize([(7, [1])]),
                     lambda: _atoll.Tensor(interpreter, 2).copy_from(b""),
                     lambda: _atoll.Tensor(interpreter, 0).copy_to(b"x" * 784)):
            with self.assertRaises((TypeError, ValueError, BufferError, OverflowError)):
                call()
        interpreter.cancel()  # nothing is in progress
        self.assertEqual(interpreter.view_count, 0)

    def test_end_of_the_process(self):
        """Whatever is alive when Python ends."""
        program = (f"import atoll, threading\ni = atoll.Interpreter({str(FASHION)!r}, 'emu')\n"
                   "v = i.outputs[0].array\ni.set_input(0, bytes(784))\n"
                   "t = threading.Thread(target=lambda: [i.invoke() for _ in range(10**6)],"
                   " daemon=True)\nt.start()\nprint('end')")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              check=False, timeout=100)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "end\n", ""))


class Measurements(unittest.TestCase):
    def test_devices(self):
        devices = atoll.devices()
        self.assertEqual(devices[-1].name, "cpu")
        self.assertIn("emu", [device.name for device in devices])
        self.assertEqual(sum(device.is_default for device in devices), 1)
        for finding in atoll.diagnose():
            self.assertIn(finding.level, ("fine", "note", "warning", "error"))

    def test_benchmark(self):
        result = atoll.benchmark(FASHION, device="emu", runs=5, warmup=1)
        self.assertEqual(result.runs, 5)
        self.assertTrue(0 < result.min <= result.p50 <= result.p95 <= result.max)
        self.assertGreater(result.modelled_device_seconds, 0)
        self.assertEqual(atoll.benchmark(atoll.Interpreter(FASHION), runs=1).runs, 1)
        for measure in (atoll.benchmark, atoll.profile):
            with self.assertRaises(atoll.InvalidArgumentError):
                measure(FASHION, runs=0)

    def test_profile(self):
        on_cpu = atoll.profile(FASHION, runs=2)
        self.assertEqual({timed.node.op for timed in on_cpu.nodes} & {"CONV_2D", "SOFTMAX"},
                         {"CONV_2D", "SOFTMAX"})
        self.assertEqual((on_cpu.device_wait_seconds, on_cpu.modelled_device_seconds), (0, 0))
        self.assertIn("CONV_2D", str(on_cpu))
        on_device = atoll.profile(atoll.Interpreter(FASHION, "emu"), runs=2)
        self.assertEqual(on_device.nodes, [])
        self.assertGreater(on_device.device_wait_seconds, 0)
        self.assertIn("partitions", str(on_device))


if __name__ == "__main__":
    unittest.main()
