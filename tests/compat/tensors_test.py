# SPDX-License-Identifier: Apache-2.0
"""What our libtensorflowlite_c says of the tensors of a model is what TensorFlow Lite 2.9 says of
them to a delegate: names, types, shapes, signatures of shapes, quantization."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from tflite_programs import (ORIGINAL_LIBRARIES, STAND_IN, golden_models, need_original, run_model)


def by_index(text):
    return {tensor["index"]: tensor for tensor in map(json.loads, text.splitlines())}


class Tensors(unittest.TestCase):
    maxDiff = None

    def test_are_described_alike(self):
        need_original()
        compared = 0
        for name, model, _ in golden_models():
            with self.subTest(model=name), tempfile.TemporaryDirectory() as directory:
                file = pathlib.Path(directory, "tensors")
                # After the operators were prepared; before it, where there are some that it lacks,
                # whose outputs it then knows no shapes of.
                for flags in (0, 1):
                    run_model(model, 1, "--delegate", os.environ["ATOLL_DESCRIBING_DELEGATE"],
                              f"output={file}", f"flags={flags}", libraries=ORIGINAL_LIBRARIES)
                    if file.exists():
                        break
                theirs = by_index(file.read_text())
                done = subprocess.run([os.environ["ATOLL_DESCRIBE_TENSORS"], str(model)],
                                      capture_output=True, text=True, check=True,
                                      env={**os.environ, "LD_LIBRARY_PATH": str(STAND_IN)})
                ours = by_index(done.stdout)
                self.assertGreaterEqual(len(theirs), len(ours))
                for index, tensor in ours.items():
                    if flags == 1 and theirs[index]["shape"] == []:
                        theirs[index].update(shape=tensor["shape"], bytes=tensor["bytes"])
                    self.assertEqual(tensor, theirs[index])
                    compared += 1
        self.assertGreater(compared, 1800)


if __name__ == "__main__":
    unittest.main()
