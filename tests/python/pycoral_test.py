# SPDX-License-Identifier: Apache-2.0
"""pycoral: every module, on an emulated Edge TPU."""
import ctypes
import gc
import itertools
import os
import pathlib
import sys
import tempfile
import threading
import types
import unittest
from unittest import mock

import atoll
import numpy as np
import packages
import pycoral
from packages import FASHION, SCENES
from pycoral import _model_file as tflite_file
from pycoral.adapters import classify, common, detect, segment
from pycoral.learn.backprop.softmax_regression import SoftmaxRegression
from pycoral.learn.imprinting.engine import ImprintingEngine
from pycoral.pipeline.pipelined_model_runner import PipelinedModelRunner
from pycoral.pybind import _pywrap_coral
from pycoral.utils import dataset, edgetpu


class OnEmulator(unittest.TestCase):
    longMessage = True

    def setUp(self):
        patch = mock.patch.dict(os.environ, {"ATOLL_EDGETPU_EMULATE": "1"})
        patch.start()
        self.addCleanup(patch.stop)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def ready(self, model):
        interpreter = edgetpu.make_interpreter(model)
        interpreter.allocate_tensors()
        return interpreter

    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content)
        return str(path)


class Utils(OnEmulator):
    def test_two_devices(self):
        with mock.patch.dict(os.environ, {"ATOLL_EDGETPU_EMULATE": "2"}):
            self.assertEqual([device["path"] for device in edgetpu.list_edge_tpus()[-2:]],
                             ["emu", "emu#1"])
            count = len(edgetpu.list_edge_tpus())
            for number in (count - 2, count - 1):
                interpreter = edgetpu.make_interpreter(FASHION, device=f":{number}")
                interpreter.allocate_tensors()
                interpreter.invoke()
            for device in (f":{count}", "emu#2", "emu#x"):
                with self.assertRaises(ValueError):
                    edgetpu.make_interpreter(FASHION, device=device)

    def test_version(self):
        self.assertEqual(pycoral.__version__, "2.0.0")
        self.assertRegex(edgetpu.get_runtime_version(),
                         r"\ABuildLabel\(.*\), RuntimeVersion\(\d+\)\Z")

    def test_devices(self):
        (device,) = edgetpu.list_edge_tpus()[-1:]
        self.assertEqual(list(device), ["type", "path"])
        self.assertEqual(device["type"], "usb")
        with mock.patch.dict(os.environ, {"ATOLL_EDGETPU_EMULATE": "0"}):
            self.assertNotIn(device, edgetpu.list_edge_tpus())
        self.assertEqual([edgetpu.set_verbosity(level) for level in (-1, 0, 10, 11)],
                         [False, True, True, False])

    def test_make_interpreter(self):
        for model in (str(FASHION), FASHION.read_bytes(), FASHION):
            for device in (None, "", "usb", ":0", "usb:0"):
                interpreter = edgetpu.make_interpreter(model, device)
                self.assertEqual(len(interpreter._interpreter.partitions), 1)
        interpreter = edgetpu.make_interpreter(
            str(FASHION), delegate=edgetpu.load_edgetpu_delegate({"device": "usb"}))
        for device in ("pci", ":7", "tpu"):
            with self.assertRaisesRegex(ValueError,
                                        "Failed to load delegate from libedgetpu.so.1\n"):
                edgetpu.make_interpreter(str(FASHION), device)
        with mock.patch.dict(os.environ, {"ATOLL_EDGETPU_EMULATE": ""}):
            with self.assertRaisesRegex(ValueError, "Failed to load delegate from"):
                edgetpu.make_interpreter(str(FASHION), "usb:31")
        with self.assertRaisesRegex(ValueError, "Could not open '/nowhere.tflite'."):
            edgetpu.make_interpreter("/nowhere.tflite")

    def test_labels(self):
        for text, labels in (("tench\ngreat white shark\n", {0: "tench", 1: "great white shark"}),
                             ("0  tench\n 7 great white shark\n", {0: "tench",
                                                                  7: "great white shark"}),
                             ("0: tench\n10:shark\n", {0: "tench", 10: "shark"}),
                             ("", {}), ("Æbler\n", {0: "Æbler"})):
            path = self.file("labels.txt", text.encode())
            self.assertEqual(dataset.read_label_file(path), labels)
        with self.assertRaises(FileNotFoundError):
            dataset.read_label_file("/nowhere/labels.txt")


class Inference(OnEmulator):
    def setUp(self):
        super().setUp()
        self.interpreter = self.ready(str(FASHION))
        self.image = packages.seeded(1, (1, 28, 28, 1), np.int8)
        self.interpreter.set_tensor(0, self.image)
        self.interpreter.invoke()
        self.expected = self.interpreter.get_tensor(25)

    def ways(self):
        data = self.image.tobytes()
        pointer = ctypes.create_string_buffer(data, len(data))
        yield "bytes", data
        yield "more bytes than needed", data + b"xyz"
        yield "array", self.image
        yield "rows", self.image.reshape(28, 28)
        yield "not contiguous", np.repeat(self.image, 2, axis=1)[:, ::2]
        yield "pointer", (ctypes.c_void_p(ctypes.addressof(pointer)), len(data))

    def test_ways(self):
        for name, data in self.ways():
            with self.subTest(name):
                self.interpreter.set_tensor(0, np.zeros_like(self.image))
                edgetpu.run_inference(self.interpreter, data)
                np.testing.assert_array_equal(self.interpreter.get_tensor(25), self.expected)
                # The input is its own again.
                self.assertFalse(self.interpreter.get_tensor(0).any())
                self.assertFalse(common.input_tensor(self.interpreter).any())

    def test_file(self):
        with open(self.file("image", self.image.tobytes()), "rb") as file:
            handle = self.interpreter._native_handle()
            self.assertFalse(edgetpu.supports_dmabuf(handle))
            edgetpu.invoke_with_dmabuffer(handle, file.fileno(), 784)
        np.testing.assert_array_equal(self.interpreter.get_tensor(25), self.expected)

    def test_gst_buffer(self):
        """By what GStreamer's buffers look like."""
        data = self.image.tobytes()
        gst = types.ModuleType("gi.repository.Gst")
        gst.MapFlags = types.SimpleNamespace(READ=1)
        unmapped = []

        class Buffer:
            def map(self, flags):
                return flags == 1, types.SimpleNamespace(data=data)

            def unmap(self, info):
                unmapped.append(info)

        Buffer.__module__ = "gi.repository.Gst"
        repository = types.ModuleType("gi.repository")
        repository.Gst = gst
        with mock.patch.dict(sys.modules, {"gi": types.ModuleType("gi"),
                                           "gi.repository": repository,
                                           "gi.repository.Gst": gst}):
            edgetpu.run_inference(self.interpreter, Buffer())
        self.assertEqual(len(unmapped), 1)
        np.testing.assert_array_equal(self.interpreter.get_tensor(25), self.expected)

    def test_too_few(self):
        data = self.image.tobytes()[1:]
        pointer = ctypes.create_string_buffer(data, len(data))
        for few in (data, np.frombuffer(data, np.uint8),
                    (ctypes.c_void_p(ctypes.addressof(pointer)), len(data))):
            with self.assertRaises(ValueError) as raised:
                edgetpu.run_inference(self.interpreter, few)
            self.assertEqual(str(raised.exception), "input size=783, expected=784.")
        for nothing in (b"", np.zeros(0, np.uint8), (ctypes.c_void_p(None), 0)):
            with self.assertRaisesRegex(ValueError, "input size=0, expected=784."):
                edgetpu.run_inference(self.interpreter, nothing)

    def test_other_types(self):
        for other in ([0] * 784, "text", None, (1, 2), (ctypes.c_void_p(1), "784"), 784):
            with self.assertRaises(TypeError):
                edgetpu.run_inference(self.interpreter, other)

    def test_before_allocation(self):
        interpreter = edgetpu.make_interpreter(str(FASHION))
        for call in (lambda: edgetpu.run_inference(interpreter, self.image),
                     lambda: edgetpu.invoke_with_dmabuffer(interpreter._native_handle(), 0, 784)):
            with self.assertRaisesRegex(RuntimeError, "Invoke called on model that is not ready."):
                call()

    def test_live_view(self):
        """These do not mind: the memory of tensors stays where it is."""
        view = self.interpreter.tensor(25)()
        edgetpu.run_inference(self.interpreter, np.zeros_like(self.image))
        self.assertFalse(np.array_equal(view, self.expected))
        edgetpu.run_inference(self.interpreter, self.image)
        np.testing.assert_array_equal(view, self.expected)

    def test_handle_of_nothing(self):
        handle = self.interpreter._native_handle()
        del self.interpreter
        gc.collect()
        for wrong in (handle, 0, None):
            with self.assertRaises(ValueError):
                edgetpu.invoke_with_bytes(wrong, bytes(784))


class Adapters(OnEmulator):
    def test_common(self):
        interpreter = self.ready(str(SCENES))
        self.assertEqual(common.input_size(interpreter), (176, 128))
        self.assertEqual(common.input_details(interpreter, "name"),
                         interpreter.get_input_details()[0]["name"])
        self.assertEqual(common.input_tensor(interpreter).shape, (128, 176, 3))
        self.assertEqual(common.output_tensor(interpreter, 3).size, 1)
        common.set_input(interpreter, np.full((128, 176, 3), 5, np.int8))
        self.assertTrue((common.input_tensor(interpreter) == 5).all())
        asked = []

        def resize(size):
            asked.append(size)
            return np.full((size[1], size[0], 3), 7, np.int8)

        picture, scale = common.set_resized_input(interpreter, (100, 200), resize)
        self.assertEqual((asked, scale), ([(64, 128)], (0.64, 0.64)))
        self.assertEqual(picture.shape, (128, 64, 3))
        self.assertTrue((common.input_tensor(interpreter)[:, :64] == 7).all())
        self.assertFalse(common.input_tensor(interpreter)[:, 64:].any())
        interpreter.invoke()

    def test_classify(self):
        interpreter = self.ready(str(FASHION))
        self.assertEqual(classify.num_classes(interpreter), 10)
        edgetpu.run_inference(interpreter, packages.seeded(1, (1, 28, 28, 1), np.int8))
        scores = classify.get_scores(interpreter)
        np.testing.assert_array_equal(
            scores, (interpreter.get_tensor(25)[0].astype(np.int64) + 128) / 256)
        classes = classify.get_classes(interpreter, top_k=3)
        self.assertEqual([entry.score for entry in classes], sorted(scores)[:-4:-1])
        self.assertEqual(classes[0], classify.Class(id=int(scores.argmax()), score=scores.max()))
        self.assertEqual(len(classify.get_classes(interpreter)), 10)
        self.assertEqual(classify.get_classes(interpreter, score_threshold=2), [])
        self.assertEqual(classify.get_classes_from_scores(np.array([0.1, 0.7, 0.2]), 2, 0.15),
                         [(1, 0.7), (2, 0.2)])

    def test_detect(self):
        interpreter = self.ready(str(SCENES))
        edgetpu.run_inference(interpreter, packages.seeded(1, (1, 128, 176, 3), np.int8))
        boxes, ids, scores, count = (interpreter.get_tensor(details["index"])[0]
                                     for details in interpreter.get_output_details())
        objects = detect.get_objects(interpreter, image_scale=(0.5, 0.25))
        self.assertEqual(len(objects), int(count))
        for found, box, number, score in zip(objects, boxes, ids, scores):
            self.assertEqual((found.id, found.score), (int(number), float(score)))
            self.assertEqual(found.bbox, tuple(int(side * size) for side, size in zip(
                box[[1, 0, 3, 2]], (352, 512, 352, 512))))

    def test_order_of_detections(self):
        """Models have the same four outputs in three orders."""
        boxes = np.array([[[0.1, 0.2, 0.5, 0.6], [0, 0, 1, 1]]], np.float32)
        ids, scores = np.array([[4, 2]], np.float32), np.array([[0.9, 0.3]], np.float32)
        count = np.array([2], np.float32)

        def stub(outputs, signatures):
            return types.SimpleNamespace(
                get_input_details=lambda: [{"shape": np.array([1, 100, 200, 3])}],
                get_output_details=lambda: [{"index": i} for i in range(len(outputs))],
                get_tensor=lambda index: outputs[index],
                _get_full_signature_list=lambda: signatures)

        expected = [detect.Object(4, float(np.float32(0.9)), detect.BBox(40, 10, 120, 50))]
        names = {"outputs": {"output_0": 3, "output_1": 0, "output_2": 1, "output_3": 2},
                 "inputs": {}}
        for outputs, signatures in (([boxes, ids, scores, count], {}),
                                    ([scores, boxes, count, ids], {}),
                                    ([scores, ids, boxes, count], {"serving_default": names})):
            self.assertEqual(detect.get_objects(stub(outputs, signatures), 0.5), expected)
        with self.assertRaises(ValueError):
            detect.get_objects(stub([], {"a": names, "b": names}))

    def test_boxes(self):
        box = detect.BBox(10, 20, 40, 100)
        self.assertEqual((box.width, box.height, box.area, box.valid), (30, 80, 2400, True))
        self.assertFalse(detect.BBox(1, 0, 0, 1).valid)
        self.assertEqual(box.scale(2, 0.5), (20, 10, 80, 50))
        self.assertEqual(box.translate(1, -1), (11, 19, 41, 99))
        self.assertEqual(detect.BBox(0.9, 1.9, 2.9, 3.9).map(int), (0, 1, 2, 3))
        other = detect.BBox(25, 20, 55, 100)
        self.assertEqual(detect.BBox.intersect(box, other), (25, 20, 40, 100))
        self.assertEqual(detect.BBox.union(box, other), (10, 20, 55, 100))
        self.assertAlmostEqual(detect.BBox.iou(box, other), 1 / 3)
        self.assertEqual(detect.BBox.iou(box, detect.BBox(50, 20, 60, 100)), 0.0)
        self.assertEqual(detect.BBox.iou(box, box), 1.0)

    def test_segment(self):
        interpreter = self.ready(str(FASHION))
        interpreter.invoke()
        output = segment.get_output(interpreter)
        self.assertEqual((output.shape, output.dtype), ((10,), np.uint8))


class Pipeline(OnEmulator):
    def segments(self):
        """The bundled classifier cut in the middle."""
        first, second = (tflite_file.ModelFile(FASHION.read_bytes()) for _ in range(2))
        (between,) = first.operators[5]["outputs"]
        first.cut(6, [between])
        outputs = list(second.graph["outputs"])
        del second.operators[:6]
        second.graph["inputs"] = [between]
        second.cut(len(second.operators), outputs)
        self.contents = [first.to_bytes(), second.to_bytes()]
        return [self.ready(content) for content in self.contents]

    def test_segments(self):
        whole = self.ready(str(FASHION))
        images = [packages.seeded(seed, (1, 28, 28, 1), np.int8) for seed in range(20)]
        expected = []
        for image in images:
            edgetpu.run_inference(whole, image)
            expected.append(whole.get_tensor(25))
        interpreters = self.segments()
        runner = PipelinedModelRunner(interpreters)
        self.assertEqual(runner.interpreters(), interpreters)
        runner.set_input_queue_size(2)
        runner.set_output_queue_size(1)

        def push():
            for image in images:
                runner.push({"image": image})
            runner.push({})

        pusher = threading.Thread(target=push)
        pusher.start()
        for scores in expected:
            found = runner.pop()
            self.assertEqual(list(found), ["probabilities"])
            np.testing.assert_array_equal(found["probabilities"], scores)
        self.assertIsNone(runner.pop())
        self.assertIsNone(runner.pop())
        pusher.join()
        with self.assertRaisesRegex(RuntimeError, "Pipeline was turned off before."):
            runner.push({"image": images[0]})

    def test_wrong_inputs(self):
        with self.assertRaisesRegex(ValueError, "At least one interpreter expected"):
            PipelinedModelRunner([])
        runner = PipelinedModelRunner([self.ready(str(FASHION))])
        for tensors in ({"picture": np.zeros((1, 28, 28, 1), np.int8)},
                        {"image": np.zeros((1, 28, 28, 1), np.float32)}, {"image": b"x"},
                        {"image": np.zeros((1, 28, 28, 1), np.int8), "more": np.zeros(1)}):
            with self.assertRaises(ValueError):
                runner.push(tensors)
        runner.push({})
        self.assertIsNone(runner.pop())

    def test_order_of_segments(self):
        with self.assertRaisesRegex(ValueError, "Interpreter 1 can not get its input tensors"):
            PipelinedModelRunner(self.segments()[::-1])

    def test_failure(self):
        """It is seen by the segment; whoever pops is told, then whoever pushes; nobody hangs."""
        not_ready = self.segments()
        not_ready[1] = edgetpu.make_interpreter(self.contents[1])
        for interpreters, image, text in (
                (self.segments(), np.zeros((1, 28, 28, 2), np.int8),
                 "Segment 0 runner error: Cannot set tensor: Dimension mismatch"),
                (not_ready, np.zeros((1, 28, 28, 1), np.int8),
                 "Segment 1 runner error: Invoke called on model that is not ready.")):
            runner = PipelinedModelRunner(interpreters)
            runner.set_input_queue_size(1)
            for _ in range(9):
                runner.push({"image": image})
            for _ in range(2):
                with self.assertRaisesRegex(RuntimeError, text):
                    runner.pop()
            with self.assertRaisesRegex(RuntimeError, text):
                runner.push({"image": image})
            runner.push({})

    def test_full_queues(self):
        """Three queues of one and two segments hold five requests."""
        runner = PipelinedModelRunner(self.segments())
        runner.set_input_queue_size(1)
        runner.set_output_queue_size(1)
        image = np.zeros((1, 28, 28, 1), np.int8)
        pushed = []

        def push():
            for number in range(6):
                runner.push({"image": image})
                pushed.append(number)
            runner.push({})

        pusher = threading.Thread(target=push)
        pusher.start()
        while len(pushed) < 5:
            pusher.join(0.01)
        pusher.join(0.2)
        self.assertTrue(pusher.is_alive())
        self.assertEqual(len(pushed), 5)
        self.assertEqual(sum(1 for _ in iter(runner.pop, None)), 6)
        pusher.join()

    def test_forgotten(self):
        before = threading.active_count()
        runner = PipelinedModelRunner(self.segments())
        runner.push({"image": np.zeros((1, 28, 28, 1), np.int8)})
        del runner
        gc.collect()
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(60)
        self.assertLessEqual(threading.active_count(), before)


class Learning(OnEmulator):
    def images(self, count, seed):
        """Pictures of three kinds, and which they are: something upright, flat, or square."""
        shapes = (np.s_[:, 2:26, 10:18], np.s_[:, 18:25, 2:26], np.s_[:, 4:24, 4:24])
        random = np.random.default_rng(seed)
        for number in range(count):
            kind = number % 3
            image = np.full((1, 28, 28, 1), -128)
            image[shapes[kind]] = random.integers(0, 128, image[shapes[kind]].shape)
            yield image.astype(np.int8), kind

    def embeddings(self, extractor, count, seed):
        features, kinds = [], []
        for image, kind in self.images(count, seed):
            edgetpu.run_inference(extractor, image)
            features.append(classify.get_scores(extractor))
            kinds.append(kind)
        return np.array(features), np.array(kinds)

    def right(self, model, classes, first=0):
        interpreter = self.ready(model)
        self.assertEqual(classify.num_classes(interpreter), classes)
        right = 0
        for image, kind in self.images(30, 7):
            edgetpu.run_inference(interpreter, image)
            right += classify.get_classes(interpreter, 1)[0].id == first + kind
        return right

    def normalized(self):
        """The bundled classifier with an L2_NORMALIZATION, and weights of length 1."""
        file = tflite_file.ModelFile(FASHION.read_bytes())
        layer = next(operator for operator in file.operators
                     if file.code(operator) == tflite_file.FULLY_CONNECTED)
        place = file.operators.index(layer)
        embedding, weights = layer["inputs"][:2]
        normal = file.add_tensor("normal", file.tensors[embedding]["shape"], tflite_file.INT8,
                                 [1 / 128], [0])
        file.model["operator_codes"].append({"deprecated_code": 11, "code": 11, "version": 2})
        file.operators.insert(place, {"code": len(file.model["operator_codes"]) - 1,
                                      "inputs": [embedding], "outputs": [normal]})
        values = file.constant(weights).astype(np.float64)
        lengths = np.linalg.norm(values, axis=1, keepdims=True)
        file.set_constant(weights, np.round(values / lengths * 127).astype(np.int8))
        file.tensors[weights]["quantization"] = {"scale": [1 / 127], "zero_point": [0]}
        bias = file.tensors[layer["inputs"][2]]
        file.set_constant(layer["inputs"][2], np.zeros(10, np.int32))
        bias["quantization"] = {"scale": [1 / 128 / 127], "zero_point": [0]}
        layer["inputs"][0] = normal
        file.tensors[layer["outputs"][0]]["quantization"] = {"scale": [1 / 127], "zero_point": [0]}
        return file.to_bytes()

    def test_model_file(self):
        """Read and written, a model is what it was."""
        for path in (FASHION, SCENES, packages.CROPS):
            original = atoll.Interpreter(path)
            again = atoll.Interpreter(tflite_file.ModelFile(path.read_bytes()).to_bytes())
            value = packages.seeded(3, original.inputs[0].shape, np.int8)
            for left, right in itertools.zip_longest(original.run(value), again.run(value)):
                np.testing.assert_array_equal(left, right)
            self.assertEqual([tensor.shape for tensor in original.outputs],
                             [tensor.shape for tensor in again.outputs])

    def test_imprinting(self):
        engine = ImprintingEngine(str(FASHION))
        self.assertEqual((engine.embedding_dim, engine.num_classes), (96, 0))
        extractor = self.ready(engine.serialize_extractor_model())
        for feature, kind in zip(*self.embeddings(extractor, 30, 1)):
            engine.train(feature, kind)
        self.assertEqual(engine.num_classes, 3)
        self.assertGreaterEqual(self.right(engine.serialize_model(), 3), 27)

    def test_kept_classes(self):
        path = self.file("normal.tflite", self.normalized())
        engine = ImprintingEngine(path, keep_classes=True)
        self.assertEqual((engine.embedding_dim, engine.num_classes), (96, 10))
        extractor = self.ready(engine.serialize_extractor_model())
        for feature, kind in zip(*self.embeddings(extractor, 30, 1)):
            engine.train(feature, 10 + kind)
        self.assertEqual(engine.num_classes, 13)
        model = engine.serialize_model()
        self.assertGreaterEqual(self.right(model, 13, first=10), 20)
        # The weights of the model's own classes are what they were.
        old, new = (atoll.Interpreter(content) for content in (pathlib.Path(path), model))
        layer = next(node for node in new.nodes if node.op == "FULLY_CONNECTED")
        weights = layer.inputs[1]
        np.testing.assert_array_equal(new.tensor(weights).array[:10], old.tensor(weights).array)
        with self.assertRaisesRegex(ValueError, "class 3 is the model's own"):
            engine.train(np.zeros(96), 3)

    def test_imprinting_refuses(self):
        with self.assertRaisesRegex(ValueError, "cannot be kept"):
            ImprintingEngine(str(FASHION), keep_classes=True)
        for open_file in (ImprintingEngine, SoftmaxRegression(96, 3).serialize_model):
            with self.assertRaisesRegex(ValueError, "Failed to open file: /nowhere.tflite"):
                open_file("/nowhere.tflite")
        with self.assertRaises(ValueError):
            ImprintingEngine(str(SCENES))  # a detector
        with self.assertRaises(ValueError):
            ImprintingEngine(self.file("bad.tflite", b"no model"))
        engine = ImprintingEngine(str(FASHION))
        for embedding, number in ((np.zeros(95), 0), (np.zeros(96), 1), (np.zeros(96), -1)):
            with self.assertRaises(ValueError):
                engine.train(embedding, number)
        with self.assertRaisesRegex(RuntimeError, "Model is not trained."):
            engine.serialize_model()

    def test_softmax_regression(self):
        content = ImprintingEngine(str(FASHION)).serialize_extractor_model()
        extractor = self.ready(content)
        features, kinds = self.embeddings(extractor, 60, 1)
        others, other_kinds = self.embeddings(extractor, 30, 2)
        regression = SoftmaxRegression(96, 3, reg=1e-4)
        data = {"data_train": features, "labels_train": kinds, "data_val": others,
                "labels_val": other_kinds}
        regression.train_with_sgd(data, 300, 0.5, batch_size=20, print_every=0)
        self.assertGreaterEqual(regression.get_accuracy(others, other_kinds), 0.9)
        path = self.file("extractor.tflite", content)
        self.assertGreaterEqual(self.right(regression.serialize_model(path), 3), 27)
        # Learning is repeatable.
        again = SoftmaxRegression(96, 3, reg=1e-4)
        again.train_with_sgd(data, 300, 0.5, batch_size=20, print_every=0)
        self.assertEqual(again.serialize_model(path), regression.serialize_model(path))
        for bad in (lambda: SoftmaxRegression(95, 3).serialize_model(path),
                    lambda: regression.serialize_model(str(SCENES)),
                    lambda: regression.get_accuracy(features[:, 1:], kinds),
                    lambda: regression.train_with_sgd({**data, "labels_train": kinds + 9}, 1, 0.1),
                    lambda: SoftmaxRegression(0, 1)):
            with self.assertRaises(ValueError):
                bad()

    def test_names_of_the_module_in_cpp(self):
        wrapper = _pywrap_coral.SoftmaxRegressionModelWrapper(2, 2, 0.01, 0.0)
        data = _pywrap_coral.TrainingDataWrapper(np.eye(2), np.eye(2), np.arange(2), np.arange(2))
        wrapper.Train(data, _pywrap_coral.TrainConfigWrapper(200, 4, 0), 0.5)
        self.assertEqual(wrapper.GetAccuracy(np.eye(2), np.arange(2)), 1.0)
        self.assertTrue(_pywrap_coral.SetVerbosity(0))


if __name__ == "__main__":
    unittest.main()
