# SPDX-License-Identifier: Apache-2.0
"""The extension is one binary for each CPython from 3.9 on: all that are found load it, run a model
on the CPU and on the emulator, and raise its exceptions. numpy, which the package around it needs,
is another matter. Found are those in PATH, and pyenv's."""
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

OLDEST, NEWEST = 9, 30
EXTENSION = pathlib.Path(os.environ["ATOLL_BINARY_DIR"], "python/atoll/atoll/_atoll.abi3.so")
FASHION = pathlib.Path(os.environ["ATOLL_SOURCE_DIR"], "models/fashion/fashion_int8.tflite")
BOOT = FASHION.with_name("ankle_boot.pgm")

PROGRAM = """
import gc, importlib.util, sys
spec = importlib.util.spec_from_file_location("_atoll", sys.argv[1])
atoll = importlib.util.module_from_spec(spec)
spec.loader.exec_module(atoll)
with open(sys.argv[3], "rb") as file:
    pixels = bytes(byte ^ 0x80 for byte in file.read()[-784:])
model = atoll.Model(sys.argv[2])
for device in (None, "emu"):
    delegate = atoll.Delegate(device) if device else None
    interpreter = atoll.Interpreter(model, delegate, num_threads=1)
    image = atoll.Tensor(interpreter, interpreter.input_indices[0])
    scores = atoll.Tensor(interpreter, interpreter.output_indices[0])
    image.copy_from(pixels)
    interpreter.invoke()
    view = memoryview(scores)
    [row] = view.tolist()
    print(image.name, image.shape, image.type, view.format, row.index(max(row)), row)
    interpreter.set_input_buffer(0, bytearray(pixels))
    interpreter.invoke()
    copy = bytearray(scores.nbytes)
    scores.copy_to(copy)
    assert bytes(copy) == view.tobytes()
    try:
        image.copy_from(b"")
    except ValueError as error:
        assert isinstance(error, atoll.InvalidArgumentError), error
    else:
        raise SystemExit("nothing was raised")
    del view, scores, image, interpreter, delegate
    gc.collect()
"""


def version_of(python):
    """(major, minor) of a CPython that starts; else None. pyenv's shims may not."""
    done = subprocess.run([python, "-c", "import sys; assert sys.implementation.name == 'cpython'\n"
                           "print(*sys.version_info[:2])"],
                          capture_output=True, text=True, check=False)
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else None


def find_pythons():
    """By version."""
    paths = [sys.executable] + [shutil.which(f"python3.{minor}")
                                for minor in range(OLDEST, NEWEST)]
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
    paths += sorted(map(str, pyenv.glob("versions/3.*/bin/python3")))
    found = {}
    for path in filter(None, paths):
        version = version_of(path)
        if version is not None and version >= (3, OLDEST):
            found.setdefault(version, path)
    return found


class Versions(unittest.TestCase):
    def test_run_a_model(self):
        found, printed = find_pythons(), set()
        self.assertIn(sys.version_info[:2], found)
        for (major, minor), python in sorted(found.items()):
            with self.subTest(version=f"{major}.{minor}"):
                done = subprocess.run(
                    [python, "-E", "-s", "-B", "-X", "dev", "-W", "error", "-c", PROGRAM,
                     str(EXTENSION), str(FASHION), str(BOOT)],
                    capture_output=True, text=True, check=False, timeout=300)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, r"\Aimage \(1, 28, 28, 1\) int8 b 9 \[.*\]\n")
                printed.update(done.stdout.splitlines())  # of two devices
        self.assertEqual(len(printed), 1, printed)
        print("run by CPython", *(f"{major}.{minor}" for major, minor in sorted(found)))


if __name__ == "__main__":
    unittest.main()
