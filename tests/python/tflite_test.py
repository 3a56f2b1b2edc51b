# SPDX-License-Identifier: Apache-2.0
"""tflite_runtime and ai_edge_litert: methods, keys of dictionaries, exceptions, and texts that
programs look for."""
import gc
import os
import pathlib
import shutil
import tempfile
import unittest
from unittest import mock

import ai_edge_litert.interpreter as litert
import atoll
import numpy as np
import packages
import tflite_runtime
import tflite_runtime.interpreter as tflite
from packages import FASHION, SCENES, SOURCE, absent

BAD_MODELS = SOURCE / "tests/golden/ops/error"


def emulated(on="1"):
    return mock.patch.dict(os.environ, {"ATOLL_EDGETPU_EMULATE": on})


class Interpreters(unittest.TestCase):
    longMessage = True

    def setUp(self):
        self.interpreter = tflite.Interpreter(str(FASHION))
        (self.input,) = self.interpreter.get_input_details()
        (self.output,) = self.interpreter.get_output_details()
        self.image = packages.seeded(1, self.input["shape"], self.input["dtype"])

    def fails(self, error, text, call, *arguments, **options):
        """`error` itself is raised, not one of its subclasses, with that text in it."""
        with self.assertRaises(error) as raised:
            call(*arguments, **options)
        self.assertIs(type(raised.exception), error)
        self.assertIn(text, str(raised.exception))
        return str(raised.exception)


class Details(Interpreters):
    def test_with_custom_operators(self):
        for module in (tflite, litert):
            with self.assertLogs("atoll", "WARNING") as logs:
                interpreter = module.InterpreterWithCustomOps(
                    custom_op_registerers=["SomeRegisterer"], model_path=str(FASHION))
            self.assertIn("SomeRegisterer", logs.output[0])
            self.assertIsInstance(interpreter, module.Interpreter)
            interpreter.allocate_tensors()
            interpreter.invoke()

    def test_packages(self):
        self.assertEqual(tflite_runtime.__version__, "2.5.0.post1")
        self.assertTrue(tflite_runtime.__git_version__)
        self.assertIs(litert.Interpreter, tflite.Interpreter)
        self.assertEqual([(kind.name, kind.value) for kind in tflite.OpResolverType],
                         [("AUTO", 0), ("BUILTIN", 1), ("BUILTIN_REF", 2),
                          ("BUILTIN_WITHOUT_DEFAULT_DELEGATES", 3)])

    def test_keys_and_types(self):
        for details in (self.input, self.output, self.interpreter.get_tensor_details()[3]):
            self.assertEqual(list(details), ["name", "index", "shape", "shape_signature", "dtype",
                                             "quantization", "quantization_parameters",
                                             "sparsity_parameters"])
            self.assertIs(type(details["name"]), str)
            self.assertIs(type(details["index"]), int)
            self.assertEqual(details["shape"].dtype, np.int32)
            self.assertEqual(details["shape_signature"].dtype, np.int32)
            self.assertIs(type(details["dtype"]), type)  # a class, which programs compare and call
            self.assertEqual([type(part) for part in details["quantization"]], [float, int])
            parameters = details["quantization_parameters"]
            self.assertEqual(list(parameters), ["scales", "zero_points", "quantized_dimension"])
            self.assertEqual(parameters["scales"].dtype, np.float32)
            self.assertEqual(parameters["zero_points"].dtype, np.int32)
            self.assertEqual(details["sparsity_parameters"], {})

    def test_values(self):
        self.assertEqual((self.input["name"], self.input["index"]), ("image", 0))
        self.assertEqual(self.input["dtype"], np.int8)
        self.assertEqual(self.input["shape"].tolist(), [1, 28, 28, 1])
        self.assertEqual(self.input["quantization"], (float(np.float32(1 / 255)), -128))
        # The index is that in the file, not the position.
        self.assertEqual((self.output["index"], self.output["name"]), (25, "probabilities"))
        tensors = self.interpreter.get_tensor_details()
        self.assertEqual([tensor["index"] for tensor in tensors], list(range(26)))

    def test_per_channel(self):
        found = [tensor for tensor in self.interpreter.get_tensor_details()
                 if len(tensor["quantization_parameters"]["scales"]) > 1]
        self.assertGreater(len(found), 0)
        for tensor in found:
            self.assertEqual(tensor["quantization"], (0.0, 0))
            parameters = tensor["quantization_parameters"]
            self.assertEqual(len(parameters["scales"]), len(parameters["zero_points"]))
            self.assertEqual(len(parameters["scales"]),
                             tensor["shape"][parameters["quantized_dimension"]])

    def test_not_quantized(self):
        interpreter = tflite.Interpreter(str(SCENES))
        boxes = interpreter.get_output_details()[0]
        self.assertEqual((boxes["dtype"], boxes["quantization"]), (np.float32, (0.0, 0)))
        self.assertEqual(boxes["quantization_parameters"]["scales"].tolist(), [])
        self.assertEqual(boxes["quantization_parameters"]["zero_points"].tolist(), [])
        self.assertEqual(boxes["quantization_parameters"]["quantized_dimension"], 0)

    def test_operators(self):
        operators = self.interpreter._get_ops_details()
        self.assertEqual(operators[0]["op_name"], "CONV_2D")
        self.assertEqual(operators[0]["inputs"].tolist(), [0, 1, 2])

    def test_without_signatures(self):
        self.assertEqual(self.interpreter.get_signature_list(), {})
        self.assertEqual(self.interpreter._get_full_signature_list(), {})
        self.assertEqual(self.interpreter.num_subgraphs(), 1)
        self.fails(ValueError, "0 Signatures", self.interpreter.get_signature_runner)
        self.fails(ValueError, "Invalid signature_key provided: 'main'",
                   self.interpreter.get_signature_runner, "main")


class Signatures(Interpreters):
    def setUp(self):
        super().setUp()
        # By the reference data, as the bundled models have none.
        self.path = packages.SHARED / "models/libredgetpu_dense_256.tflite"
        if not self.path.exists():
            absent(str(self.path), is_reference=True)
        self.interpreter = tflite.Interpreter(str(self.path))

    def test_names(self):
        self.assertEqual(self.interpreter.get_signature_list(), {
            "serving_default": {"inputs": ["keras_tensor"], "outputs": ["output_0"]}})
        self.assertEqual(self.interpreter._get_full_signature_list(), {
            "serving_default": {"inputs": {"keras_tensor": 0}, "outputs": {"output_0": 4}}})

    def test_runner(self):
        runner = self.interpreter.get_signature_runner()
        details = runner.get_input_details()["keras_tensor"]
        self.assertEqual(list(runner.get_output_details()), ["output_0"])
        value = packages.seeded(1, details["shape"], details["dtype"])
        once = runner(keras_tensor=value)
        self.assertEqual(list(once), ["output_0"])
        # Its batch is open.
        twice = runner(keras_tensor=np.concatenate([value, value]))["output_0"]
        self.assertEqual(twice.shape, (2, *once["output_0"].shape[1:]))
        np.testing.assert_array_equal(twice[0], once["output_0"][0])
        np.testing.assert_array_equal(twice[1], once["output_0"][0])

    def test_wrong_names(self):
        runner = self.interpreter.get_signature_runner("serving_default")
        self.fails(ValueError, "Invalid number of inputs provided for running a SignatureDef, "
                   "expected 1 vs provided 0", runner)
        self.fails(ValueError, "Invalid Input name (x) for SignatureDef", runner, x=self.image)

    def test_strict(self):
        (details,) = self.interpreter.get_input_details()
        self.assertEqual(details["shape_signature"].tolist(), [-1, 256])
        self.interpreter.resize_tensor_input(0, [3, 256], strict=True)
        self.fails(RuntimeError, "unknown dimensions", self.interpreter.resize_tensor_input, 0,
                   [3, 255], strict=True)


class Opening(Interpreters):
    def test_ways(self):
        content = FASHION.read_bytes()
        for interpreter in (tflite.Interpreter(model_path=str(FASHION)),
                            tflite.Interpreter(pathlib.Path(FASHION)),
                            tflite.Interpreter(model_content=content),
                            tflite.Interpreter(None, content),
                            tflite.Interpreter(str(FASHION), None, None, 2),
                            tflite.Interpreter(
                                str(FASHION), num_threads=1,
                                experimental_op_resolver_type=tflite.OpResolverType.BUILTIN_REF,
                                experimental_preserve_all_tensors=True,
                                experimental_disable_delegate_clustering=True)):
            self.assertEqual(interpreter.get_input_details()[0]["name"], "image")

    def test_no_file(self):
        self.fails(ValueError, "Could not open '/nowhere/model.tflite'.", tflite.Interpreter,
                   "/nowhere/model.tflite")
        self.fails(ValueError, f"Could not open '{SOURCE}'.", tflite.Interpreter, str(SOURCE))

    def test_no_model(self):
        self.fails(ValueError, "not a .tflite file", tflite.Interpreter, str(SOURCE / "README.md"))
        self.fails(ValueError, "TFL3", tflite.Interpreter, model_content=b"no model at all")
        self.fails(ValueError, "empty", tflite.Interpreter, model_content=b"")

    def test_neither_nor_both(self):
        for arguments in ({}, {"model_path": str(FASHION), "model_content": b"x"}):
            text = self.fails(ValueError, "model_path", tflite.Interpreter, **arguments)
            self.assertIn("model_content", text)

    def test_threads(self):
        for threads in ("1", 1.5, True):
            self.fails(ValueError, "int", tflite.Interpreter, str(FASHION), num_threads=threads)
        for threads in (0, -1):
            self.fails(ValueError, "1", tflite.Interpreter, str(FASHION), num_threads=threads)
        self.fails(ValueError, "2147483648", tflite.Interpreter, str(FASHION), num_threads=2**31)

    def test_unknown_options(self):
        self.fails(TypeError, "modle_path", tflite.Interpreter, modle_path=str(FASHION))
        self.fails(ValueError, "resolver", tflite.Interpreter, str(FASHION),
                   experimental_op_resolver_type="fast")

    def test_faulty_models(self):
        """Each is a ValueError in opening, or a RuntimeError in allocating that names the operator."""
        in_opening = 0
        models = sorted(BAD_MODELS.glob("*.tflite"))
        self.assertGreater(len(models), 60)
        for path in models:
            with self.subTest(path.name):
                try:
                    interpreter = tflite.Interpreter(str(path))
                except ValueError:
                    in_opening += 1
                    continue
                text = self.fails(RuntimeError, " failed to prepare.", interpreter.allocate_tensors)
                self.assertRegex(text, r"\nNode number \d+ \(\w+\) failed to prepare\.\Z")
                self.fails(RuntimeError, "not ready", interpreter.invoke)
        self.assertTrue(0 < in_opening < len(models))

    def test_coral_model_without_a_coral(self):
        name = "libredgetpu_dense_256"
        original = packages.SHARED / f"models/{name}.tflite"
        compiled = packages.SHARED / f"models/edgetpu/{name}_edgetpu.tflite"
        if not compiled.exists():
            absent(str(compiled), is_reference=True)
        interpreter = tflite.Interpreter(str(compiled))
        text = self.fails(RuntimeError, "Encountered unresolved custom op: edgetpu-custom-op.",
                          interpreter.allocate_tensors)
        self.assertTrue(text.endswith("\nNode number 0 (edgetpu-custom-op) failed to prepare."), text)
        # What programs ask for first is there nevertheless.
        described, = interpreter.get_input_details()
        known, = tflite.Interpreter(str(original)).get_input_details()
        for key in ("name", "dtype", "quantization"):
            self.assertEqual(described[key], known[key])
        self.assertEqual(list(described["shape"]), list(known["shape"]))
        self.assertEqual(len(interpreter.get_output_details()), 1)
        self.assertGreaterEqual(len(interpreter.get_tensor_details()), 2)
        # It runs as what it was made from, where that is known.
        expected = None
        with mock.patch.dict(os.environ, {"ATOLL_MODEL_PATH": str(original.parent)}):
            for path, delegates in ((original, None), (compiled, None),
                                    (compiled, [tflite.load_delegate("libedgetpu.so.1")])):
                interpreter = tflite.Interpreter(str(path), experimental_delegates=delegates)
                self.assertEqual(interpreter._interpreter.substitute,
                                 None if path == original else str(original))
                interpreter.allocate_tensors()
                (details,) = interpreter.get_input_details()
                interpreter.set_tensor(details["index"],
                                       packages.seeded(1, details["shape"], details["dtype"]))
                interpreter.invoke()
                found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
                expected = found if expected is None else expected
                np.testing.assert_array_equal(found, expected)


class Tensors(Interpreters):
    def test_before_allocation(self):
        i = self.interpreter
        self.fails(RuntimeError, "Invoke called on model that is not ready.", i.invoke)
        self.fails(ValueError, "Tensor is unallocated", i.set_tensor, 0, self.image)
        for get in (i.get_tensor, lambda index: i.tensor(index)()):
            self.fails(ValueError, "Tensor data is null. Run allocate_tensors() first", get, 25)

    def test_run(self):
        i = self.interpreter
        i.allocate_tensors()
        i.set_tensor(0, self.image)
        i.invoke()
        once = i.get_tensor(25)
        self.assertEqual((once.shape, once.dtype), ((1, 10), np.int8))
        i.tensor(0)()[:] = 0
        i.invoke()
        other = i.get_tensor(25)
        self.assertFalse(np.array_equal(once, other))
        i.allocate_tensors()  # again
        i.tensor(0)()[0] = self.image[0]
        i.invoke()
        np.testing.assert_array_equal(i.get_tensor(25), once)
        np.testing.assert_array_equal(i.tensor(25)(), once)
        np.testing.assert_array_equal(i.get_tensor(0), self.image)

    def test_constants(self):
        self.interpreter.allocate_tensors()
        weights = self.interpreter.get_tensor(2)
        self.assertGreater(np.count_nonzero(weights), 0)
        view = self.interpreter.tensor(2)()
        with self.assertRaises(ValueError):
            view[...] = 0
        del view
        self.fails(ValueError, "Cannot set tensor: constants", self.interpreter.set_tensor, 2,
                   weights)

    def test_wrong_type(self):
        self.interpreter.allocate_tensors()
        for value, name in ((self.image.astype(np.float32), "FLOAT32"),
                            (self.image.astype(np.uint8), "UINT8"),
                            (self.image.tolist(), "INT64"), ([[0.5]], "FLOAT64"),
                            (self.image.astype(bool), "BOOL"), ("text", "NOTYPE"),
                            (None, "NOTYPE"), (self.image.astype(np.float16), "FLOAT16")):
            self.fails(ValueError, f"Cannot set tensor: Got value of type {name} but expected type "
                       "INT8 for input 0, name: image ", self.interpreter.set_tensor, 0, value)

    def test_wrong_shape(self):
        self.interpreter.allocate_tensors()
        self.fails(ValueError, "Cannot set tensor: Dimension mismatch. Got 3 but expected 4 for "
                   "input 0.", self.interpreter.set_tensor, 0, self.image[0])
        self.fails(ValueError, "Cannot set tensor: Dimension mismatch. Got 27 but expected 28 for "
                   "dimension 1 of input 0.", self.interpreter.set_tensor, 0, self.image[:, 1:])

    def test_any_order_in_memory(self):
        self.interpreter.allocate_tensors()
        self.interpreter.set_tensor(0, np.asfortranarray(self.image))
        np.testing.assert_array_equal(self.interpreter.get_tensor(0), self.image)
        self.interpreter.set_tensor(0, self.image[:, ::-1])
        np.testing.assert_array_equal(self.interpreter.get_tensor(0), self.image[:, ::-1])
        self.interpreter.set_tensor(np.int64(0), self.image)  # an index from an array

    def test_bad_index(self):
        self.interpreter.allocate_tensors()
        for index in (26, -1, 1 << 30):
            for call in (self.interpreter.get_tensor, self.interpreter.tensor,
                         self.interpreter._get_tensor_details,
                         lambda index: self.interpreter.set_tensor(index, self.image)):
                self.fails(ValueError,
                           f"Invalid tensor index {index} exceeds max tensor index 25", call, index)

    def test_live_views(self):
        i = self.interpreter
        i.allocate_tensors()
        function = i.tensor(0)
        i.invoke()  # the function alone is no view
        for view in (function(), function()[0, 3:5], i.tensor(25)().reshape(-1)):
            for call in (i.invoke, i.allocate_tensors):
                self.fails(RuntimeError, "There is at least 1 reference to internal data", call)
        del view
        i.invoke()

    def test_views_outlive_the_interpreter(self):
        self.interpreter.allocate_tensors()
        self.interpreter.set_tensor(0, self.image)
        self.interpreter.invoke()
        expected = self.interpreter.get_tensor(25)
        views = [self.interpreter.tensor(25)(), self.interpreter.tensor(0)()]
        constants = self.interpreter.tensor(2)()
        total = constants.sum()
        del self.interpreter
        gc.collect()
        np.testing.assert_array_equal(views[0], expected)
        views[1][...] = 7
        self.assertEqual(constants.sum(), total)

    def test_resize(self):
        i = self.interpreter
        i.allocate_tensors()
        i.resize_tensor_input(0, [2, 28, 28, 1])
        self.assertEqual(i.get_input_details()[0]["shape"].tolist(), [2, 28, 28, 1])
        self.assertEqual(i.get_input_details()[0]["shape_signature"].tolist(), [1, 28, 28, 1])
        self.fails(RuntimeError, "Invoke called on model that is not ready.", i.invoke)
        i.allocate_tensors()
        both = np.concatenate([self.image, self.image[:, ::-1]])
        i.set_tensor(0, both)
        i.invoke()
        found = i.get_tensor(25)
        i.resize_tensor_input(0, np.array([1, 28, 28, 1]))
        i.allocate_tensors()
        for image, expected in zip(both, found):
            i.set_tensor(0, image[np.newaxis])
            i.invoke()
            np.testing.assert_array_equal(i.get_tensor(25)[0], expected)

    def test_bad_resize(self):
        i = self.interpreter
        self.fails(ValueError, "Tensor 25 is not an input", i.resize_tensor_input, 25, [1, 10])
        for shape in ([1, 28, 28, 3], [28, 28], [1, 0, 28, 1], [], [-1, 28, 28, 1],
                      [1 << 40, 28, 28, 1]):
            with self.subTest(shape):
                i.resize_tensor_input(0, shape)
                with self.assertRaises(RuntimeError):
                    i.allocate_tensors()
                self.fails(RuntimeError, "not ready", i.invoke)
        i.resize_tensor_input(0, [1, 28, 28, 1])
        i.allocate_tensors()
        i.invoke()

    def test_variables(self):
        self.interpreter.reset_all_variables()


class Delegates(Interpreters):
    def run_with(self, library, options=None):
        interpreter = tflite.Interpreter(
            str(FASHION), experimental_delegates=[tflite.load_delegate(library, options)])
        interpreter.allocate_tensors()
        interpreter.set_tensor(0, self.image)
        interpreter.invoke()
        return interpreter.get_tensor(25), interpreter

    def test_emulated_edge_tpu(self):
        self.interpreter.allocate_tensors()
        self.interpreter.set_tensor(0, self.image)
        self.interpreter.invoke()
        expected = self.interpreter.get_tensor(25)
        with emulated():
            for library in ("libedgetpu.so.1", "libedgetpu.so.1.0", "/usr/lib/libedgetpu.so",
                            "edgetpu.dll", "libedgetpu.1.dylib"):
                for options in (None, {}, {"device": ""}, {"device": "usb"}, {"device": ":0"},
                                {"device": "usb:0", "Performance": "High", "anything": 1},
                                {"device": "emu:32x32"}):
                    with self.subTest(f"{library} {options}"):
                        output, interpreter = self.run_with(library, options)
                        np.testing.assert_array_equal(output, expected)
                        # It did run there.
                        self.assertEqual(len(interpreter._interpreter.partitions), 1)

    def test_atoll_library(self):
        for options in (None, {"device": "emu"}, {"device": "cpu", "num_threads": 1},
                        {"device": "emu", "faults": "seed:1:1/100"}):
            self.run_with("libatoll_tflite_delegate.so", options)
        for options in ({"device": "EMU"}, {"devcie": "emu"}, {"num_threads": "many"},
                        {"device": "emu", "faults": "sometimes"}):
            self.fails(ValueError, "Failed to load delegate from libatoll_tflite_delegate.so\n",
                       tflite.load_delegate, "libatoll_tflite_delegate.so", options)

    def test_absent_device(self):
        with emulated("0"):
            text = self.fails(ValueError, "Failed to load delegate from libedgetpu.so.1.0\n",
                              tflite.load_delegate, "libedgetpu.so.1.0", {"device": "usb:31"})
            self.assertIn("usb:31", text)
            text = self.fails(ValueError, "Failed to load delegate from libedgetpu.so.1\n",
                              tflite.load_delegate, "libedgetpu.so.1")
            self.assertIn("no Edge TPU is there", text)
        with emulated():
            for device in (":1", "usb:1", "pci", "pci:0", "usb:-1", "gpu", ":"):
                self.fails(ValueError, "Failed to load delegate from libedgetpu.so.1\n",
                           tflite.load_delegate, "libedgetpu.so.1", {"device": device})

    def test_bad_options(self):
        with emulated():
            for key, value in (("Performance", "Fast"), ("Usb.AlwaysDfu", "maybe"),
                               ("Usb.MaxBulkInQueueLength", 257)):
                self.fails(ValueError, key, tflite.load_delegate, "libedgetpu.so.1",
                           {"device": "emu", key: value})
                self.fails(ValueError, key, tflite.load_delegate, "libedgetpu.so.1",
                           {"device": ":0", key: value})
                # They only count for a device with a number.
                tflite.load_delegate("libedgetpu.so.1", {"device": "usb", key: value})

    def test_other_libraries(self):
        self.fails(OSError, "libnowhere.so.1", tflite.load_delegate, "libnowhere.so.1")
        self.fails(ValueError, "Failed to load delegate from libm.so.6\n", tflite.load_delegate,
                   "libm.so.6")
        with tempfile.TemporaryDirectory() as folder:
            text = shutil.copy(FASHION, folder + "/libmine.so")
            self.fails(OSError, "libmine.so", tflite.load_delegate, text)

    def test_lost_device(self):
        delegate = tflite.load_delegate("libatoll_tflite_delegate.so", {"device": "emu"})
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "unplug.txt")
            script.write_text("out 9 unplug never\n", encoding="ascii")
            delegate._delegate_ptr = atoll.Delegate("emu", faults=str(script),
                                                    on_device_loss="fail")
            interpreter = tflite.Interpreter(str(FASHION), experimental_delegates=[delegate])
            interpreter.allocate_tensors()
            text = self.fails(RuntimeError, "unplugged",
                              lambda: [interpreter.invoke() for _ in range(20)])
        self.assertTrue(text.endswith(
            "\nNode number 12 (EdgeTpuDelegateForCustomOp) failed to invoke."), text)

    def test_foreign_delegate(self):
        self.fails(ValueError, "delegate", tflite.Interpreter, str(FASHION),
                   experimental_delegates=[object()])

    def test_attributes_and_sharing(self):
        with emulated():
            delegate = tflite.Delegate("libedgetpu.so.1", {"device": "usb"})
        self.assertEqual(delegate._library, "libedgetpu.so.1")
        self.assertIs(delegate._get_native_delegate_pointer(), delegate._delegate_ptr)
        for _ in range(3):
            interpreter = tflite.Interpreter(str(FASHION), experimental_delegates=[delegate])
            self.assertEqual(interpreter._delegates, [delegate])
        del delegate
        gc.collect()
        interpreter.allocate_tensors()
        interpreter.invoke()


if __name__ == "__main__":
    unittest.main()
