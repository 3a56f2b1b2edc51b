# SPDX-License-Identifier: Apache-2.0
"""atoll.quantize and atoll.import_onnx: what they take, what they refuse, and what comes out."""
import pathlib
import tempfile
import unittest

import atoll
import numpy as np
from packages import FASHION, SHARED, absent

CHANNELS = 3


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, content):
    """Of protobuf's wire format."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def onnx_convolution():
    """An ONNX file: Conv of 1x1 from [1,3,6,5] to 4 channels, then Relu."""
    def value(name, sizes):
        dims = b"".join(field(1, field(1, size)) for size in sizes)
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))
    weights = np.random.default_rng(3).normal(size=(4, CHANNELS, 1, 1)).astype("<f4")
    tensor = b"".join(field(1, size) for size in weights.shape) + field(2, 1) + field(8, b"w") + \
        field(9, weights.tobytes())
    conv = field(1, b"x") + field(1, b"w") + field(2, b"c") + field(4, b"Conv")
    relu = field(1, b"c") + field(2, b"y") + field(4, b"Relu")
    graph = field(1, conv) + field(1, relu) + field(2, b"g") + field(5, tensor) + \
        field(11, value(b"x", [1, CHANNELS, 6, 5])) + field(12, value(b"y", [1, 4, 6, 5]))
    return field(1, 8) + field(7, graph) + field(8, field(2, 13)), weights


class Quantize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.onnx, cls.weights = onnx_convolution()
        cls.model = atoll.import_onnx(cls.onnx)
        cls.samples = np.random.default_rng(4).uniform(-1, 1, (30, 6, 5, CHANNELS)).astype("f4")

    def test_import(self):
        (tensor,) = atoll.Interpreter(self.model).inputs
        self.assertEqual(tuple(tensor.shape), (1, 6, 5, CHANNELS))
        (out,) = atoll.Interpreter(self.model).run(self.samples[:1])
        wanted = np.maximum(np.einsum("hwc,kc->hwk", self.samples[0], self.weights[:, :, 0, 0]), 0)
        np.testing.assert_allclose(out[0], wanted, rtol=1e-5, atol=1e-6)
        kept = atoll.import_onnx(self.onnx, keep_layout=True)
        self.assertEqual(tuple(atoll.Interpreter(kept).inputs[0].shape), (1, CHANNELS, 6, 5))

    def test_quantize(self):
        made = atoll.quantize(self.model, self.samples)
        self.assertGreater(made.sqnr_db, 30)
        self.assertEqual(made.report["calibration"]["samples"], 30)
        atoll.check_quantization(made.model)
        results = []
        for device in ("cpu", "emu"):
            interpreter = atoll.Interpreter(made.model, device=device)
            self.assertEqual(interpreter.inputs[0].dtype, np.int8)
            results.append(interpreter.run(interpreter.inputs[0].quantize(self.samples[:1]))[0])
        np.testing.assert_array_equal(*results)
        (wanted,) = atoll.Interpreter(self.model).run(self.samples[:1])
        real = interpreter.outputs[0].dequantize(results[0])
        self.assertLess(np.abs(real - wanted).max(), 0.02 * wanted.max())

    def test_kinds_of_samples(self):
        wanted = atoll.quantize(self.model, self.samples).model
        name = atoll.Interpreter(self.model).inputs[0].name
        for samples in (list(self.samples), ([s] for s in self.samples), iter(self.samples),
                        {name: self.samples}, [{name: s} for s in self.samples],
                        self.samples.astype("f8"), self.samples[:, None]):
            self.assertEqual(atoll.quantize(self.model, samples).model, wanted)
        self.assertEqual(atoll.quantize(self.onnx, self.samples).model, wanted)

    def test_files_and_options(self):
        phases = []
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "x.onnx")
            path.write_bytes(self.onnx)
            output = pathlib.Path(folder, "y.tflite")
            made = atoll.quantize(path, self.samples, output, activations=16, output_type="float",
                                  progress=lambda phase, *_: phases.append(phase))
            self.assertEqual(output.read_bytes(), made.model)
            self.assertEqual(sorted(p.name for p in pathlib.Path(folder).iterdir()),
                             ["x.onnx", "y.tflite"])
        self.assertEqual(made.report["layers"][0]["type"], "16x8")
        self.assertEqual(made.report["outputs"][0]["type"], "float32")
        self.assertTrue(phases)
        asked = []
        made = atoll.quantize(self.model, self.samples, target_accuracy=1,
                              accuracy=lambda model: asked.append(model) or len(asked) - 1)
        self.assertGreater(len(asked), 1)

    def test_types_of_outputs_and_weights(self):
        both = atoll.quantize(self.model, self.samples, output_type="int8")
        self.assertEqual(both.report["options"]["output_type"], "quantized, one scale")
        self.assertEqual(both.model, atoll.quantize(self.model, self.samples).model)
        self.assertEqual(both.report["outputs"][0]["parts"], [])
        old = atoll.quantize(self.model, self.samples, per_tensor_fully_connected=True)
        self.assertEqual(old.report["options"]["fully_connected"], "per tensor")

    def test_half_quantized_file(self):
        model = SHARED / "models/float/mlperf_tiny_kws_hybrid.tflite"
        if not model.exists():
            absent("models/float", is_reference=True)
        samples = np.random.default_rng(5).uniform(-20, 20, (16, 49, 10, 1))
        made = atoll.quantize(model, samples)
        self.assertEqual({layer["type"] for layer in made.report["layers"]}, {"int8"})
        atoll.check_quantization(made.model)

    def test_refusals(self):
        with self.assertRaisesRegex(atoll.InvalidArgumentError, r"shape \(7,\), must"):
            atoll.quantize(self.model, [np.zeros(7)])
        with self.assertRaises(atoll.InvalidArgumentError):
            atoll.quantize(self.model, [])
        with self.assertRaisesRegex(atoll.InvalidArgumentError, "nan"):
            atoll.quantize(self.model, self.samples * np.nan)
        with self.assertRaisesRegex(atoll.InvalidArgumentError, "ranges"):
            atoll.quantize(self.model, self.samples, ranges="best")
        with self.assertRaisesRegex(atoll.InvalidArgumentError, "activations"):
            atoll.quantize(self.model, self.samples, activations=4)
        with self.assertRaises(atoll.InvalidArgumentError):
            atoll.quantize(self.model, {"nobody": self.samples})
        with self.assertRaises(atoll.Error):
            atoll.quantize(FASHION, [np.zeros((28, 28, 1))])
        with self.assertRaises(atoll.Error):
            atoll.import_onnx(b"no model")
        with self.assertRaises(FileNotFoundError):
            atoll.import_onnx("absent.onnx")
        with self.assertRaises(atoll.CorruptModelError):
            atoll.check_quantization(b"no model")

    def test_exceptions_come_out(self):
        class Mine(Exception):
            pass

        def fail(*_):
            raise Mine

        def samples():
            yield self.samples[0]
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            atoll.quantize(self.model, samples())
        with self.assertRaises(Mine):
            atoll.quantize(self.model, self.samples, progress=fail)
        with self.assertRaises(Mine):
            atoll.quantize(self.model, self.samples, accuracy=fail, target_accuracy=1)


if __name__ == "__main__":
    unittest.main()
