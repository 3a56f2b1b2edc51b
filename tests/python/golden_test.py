# SPDX-License-Identifier: Apache-2.0
"""Models give TensorFlow Lite's bytes through each of the packages, on the CPU and the emulator."""
import base64
import hashlib
import json
import os
import unittest

import ai_edge_litert.interpreter
import atoll
import numpy as np
import packages
import tflite_runtime.interpreter as tflite

GOLDEN = packages.SHARED / "golden/models"
MODELS = packages.SHARED / "models"
# Seconds rather than milliseconds each, and nothing that others do not have.
LEFT_OUT = ("edsr", "deeplabv3", "posenet", "movenet")


def cases():
    """(path, seed, hashes of the outputs) of what TensorFlow Lite itself could run."""
    for path in sorted(GOLDEN.glob("*.json")):
        golden = json.loads(path.read_text())
        if not path.name.startswith(LEFT_OUT):
            for seed, run in golden["seeds"].items():
                if "error" not in run:
                    yield MODELS / golden["model"], int(seed), run["outputs"]


def digest(array):
    return hashlib.sha256(array.tobytes()).hexdigest()


class Golden(unittest.TestCase):
    longMessage = True

    def test_atoll(self):
        found = list(cases())
        self.assertGreater(len(found), 30)
        for device in (None, "emu"):
            for path, seed, expected in found:
                with self.subTest(f"{path.name}, seed {seed}, {device}"):
                    interpreter = atoll.Interpreter(path, device)
                    values = [packages.seeded(seed, tensor.shape, tensor.dtype)
                              for tensor in interpreter.inputs]
                    outputs = interpreter.run(*values)
                    self.assertEqual([digest(output) for output in outputs],
                                     [entry["sha256"] for entry in expected])

    def run_tflite(self, interpreter, seed):
        interpreter.allocate_tensors()
        for index, value in packages.fill(interpreter.get_input_details(), seed):
            interpreter.set_tensor(index, value)
        interpreter.invoke()
        return [interpreter.get_tensor(entry["index"])
                for entry in interpreter.get_output_details()]

    def test_tflite_runtime(self):
        os.environ["ATOLL_EDGETPU_EMULATE"] = "1"
        self.addCleanup(os.environ.pop, "ATOLL_EDGETPU_EMULATE")
        delegate = tflite.load_delegate("libedgetpu.so.1.0", {"device": "usb:0"})
        for path, seed, expected in cases():
            for delegates in (None, [delegate]):
                with self.subTest(f"{path.name}, seed {seed}, {delegates}"):
                    outputs = self.run_tflite(
                        tflite.Interpreter(str(path), experimental_delegates=delegates), seed)
                    self.assertEqual([digest(output) for output in outputs],
                                     [entry["sha256"] for entry in expected])
                    for output, entry in zip(outputs, expected):
                        self.assertEqual((list(output.shape), output.dtype.name),
                                         (entry["shape"], entry["dtype"]))
                        if "base64" in entry:
                            self.assertEqual(output.tobytes(), base64.b64decode(entry["base64"]))

    def test_litert_keeps_tensors(self):
        """All intermediate tensors are the reference's, too."""
        name = "mobilenet_v1_0.25_128_quant"
        expected = json.loads((GOLDEN / f"{name}.json").read_text())["seeds"]["1"]["tensors"]
        interpreter = ai_edge_litert.interpreter.Interpreter(
            model_content=(MODELS / f"{name}.tflite").read_bytes(),
            experimental_preserve_all_tensors=True)
        self.run_tflite(interpreter, 1)
        self.assertGreater(len(expected), 20)
        for index, sha256 in expected.items():
            self.assertEqual(digest(interpreter.get_tensor(int(index))), sha256, index)

    def test_input_is_filled_as_the_reference_was(self):
        path, seed, _ = next(cases())
        golden = json.loads((GOLDEN / f"{path.stem}.json").read_text())["seeds"][str(seed)]
        for entry in golden["inputs"]:
            value = packages.seeded(seed, entry["shape"], np.dtype(entry["dtype"]))
            self.assertEqual(digest(value), entry["sha256"])


if __name__ == "__main__":
    packages.need(GOLDEN)
    unittest.main()
