# SPDX-License-Identifier: Apache-2.0
"""What our libtensorflowlite_c and our tflite_runtime say of the tensors of a model is what TensorFlow
Lite 2.9 says of them to a delegate: names, types, shapes, signatures of shapes, quantization."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from tflite_programs import (ORIGINAL_LIBRARIES, STAND_IN, golden_models, need_original, run_model)

# numpy's names for the types of TensorFlow Lite's C interface.
CLASSES = {1: "float32", 2: "int32", 3: "uint8", 4: "int64", 6: "bool_", 7: "int16", 9: "int8",
           14: "void"}


def by_index(text):
    return {tensor["index"]: tensor for tensor in map(json.loads, text.splitlines())}


def described_by_the_original(model):
    """Tensors by their index, and whether it knows the shapes of all."""
    with tempfile.TemporaryDirectory() as directory:
        file = pathlib.Path(directory, "tensors")
        # After the operators were prepared; before it, where there are some that it lacks, whose
        # outputs it then knows no shapes of.
        for flags in (0, 1):
            run_model(model, 1, "--delegate", os.environ["ATOLL_DESCRIBING_DELEGATE"],
                      f"output={file}", f"flags={flags}", libraries=ORIGINAL_LIBRARIES)
            if file.exists():
                break
        return by_index(file.read_text()), flags == 0


class Tensors(unittest.TestCase):
    maxDiff = None

    def test_are_described_alike(self):
        need_original()
        compared = 0
        for name, model, _ in golden_models():
            with self.subTest(model=name):
                theirs, has_shapes = described_by_the_original(model)
                done = subprocess.run([os.environ["ATOLL_DESCRIBE_TENSORS"], str(model)],
                                      capture_output=True, text=True, check=True,
                                      env={**os.environ, "LD_LIBRARY_PATH": str(STAND_IN)})
                ours = by_index(done.stdout)
                self.assertGreaterEqual(len(theirs), len(ours))
                for index, tensor in ours.items():
                    if not has_shapes and theirs[index]["shape"] == []:
                        theirs[index].update(shape=tensor["shape"], bytes=tensor["bytes"])
                    self.assertEqual(tensor, theirs[index])
                    compared += 1
        self.assertGreater(compared, 1800)


class Python(unittest.TestCase):
    """The dictionaries that programs in Python get."""
    maxDiff = None

    def details(self, tensor):
        """What tflite_runtime makes of a tensor of TensorFlow Lite's; lists for arrays."""
        import numpy as np
        return {
            "name": tensor["name"],
            "index": tensor["index"],
            "shape": tensor["shape"],
            "shape_signature": tensor["shape_signature"] or tensor["shape"],
            "dtype": getattr(np, CLASSES[tensor["type"]]),
            "quantization": (float(np.float32(tensor["scale"])), tensor["zero_point"]),
            "quantization_parameters": {
                "scales": [float(np.float32(scale)) for scale in tensor["scales"]],
                "zero_points": tensor["zero_points"],
                "quantized_dimension": tensor["quantized_dimension"],
            },
            "sparsity_parameters": {},
        }

    def without_arrays(self, value, types):
        """The same with lists, and the types of the arrays that there were."""
        if isinstance(value, dict):
            return {key: self.without_arrays(each, types) for key, each in value.items()}
        if hasattr(value, "tolist") and not isinstance(value, type):
            types.add(value.dtype.name)
            return value.tolist()
        return value

    def test_details(self):
        import tflite_runtime.interpreter as tflite
        need_original()
        compared, types = 0, set()
        for name, model, _ in golden_models():
            with self.subTest(model=name):
                theirs, has_shapes = described_by_the_original(model)
                interpreter = tflite.Interpreter(str(model))
                ours = interpreter.get_tensor_details()
                self.assertGreater(len(ours), 0)
                self.assertEqual([tensor["index"] for tensor in ours], list(range(len(ours))))
                for tensor in ours:
                    wanted = self.details(theirs[tensor["index"]])
                    if not has_shapes and wanted["shape"] == []:
                        wanted.update(shape=tensor["shape"].tolist(),
                                      shape_signature=tensor["shape_signature"].tolist())
                    self.assertEqual(self.without_arrays(tensor, types), wanted)
                    compared += 1
                for end in interpreter.get_input_details() + interpreter.get_output_details():
                    self.assertEqual(self.without_arrays(end, types),
                                     self.without_arrays(ours[end["index"]], types))
        self.assertGreater(compared, 1800)
        self.assertEqual(types, {"int32", "float32"})


if __name__ == "__main__":
    unittest.main()
