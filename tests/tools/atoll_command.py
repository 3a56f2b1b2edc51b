# SPDX-License-Identifier: Apache-2.0
"""What the tests of the `atoll` command share: running it, judging its failures, making models.

Environment, set by CMakeLists.txt: ATOLL_COMMAND, ATOLL_FLATC, ATOLL_SOURCE_DIR, ATOLL_SHARED_DIR,
ATOLL_REQUIRE_SHARED; and ATOLL_EMULATOR, the program that runs a command of another architecture.
Only Python's standard library is needed.
"""
import collections
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["ATOLL_SOURCE_DIR"], "tests/support"))
from absent import absent  # noqa: E402,F401 for whoever imports this

EMULATOR = os.environ.get("ATOLL_EMULATOR", "")
COMMAND = [EMULATOR, os.environ["ATOLL_COMMAND"]] if EMULATOR else [os.environ["ATOLL_COMMAND"]]
FLATC = os.environ["ATOLL_FLATC"]
SOURCE = pathlib.Path(os.environ["ATOLL_SOURCE_DIR"])
SHARED = pathlib.Path(os.environ["ATOLL_SHARED_DIR"])
FASHION_MODEL = SOURCE / "models/fashion/fashion_int8.tflite"
FASHION_LABELS = SOURCE / "models/fashion/labels.txt"
FASHION_DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")

os.environ.pop("ATOLL_MODEL_PATH", None)  # what the user has there is no matter of tests

Result = collections.namedtuple("Result", "code stdout stderr")


def free_ports(count):
    """Ports that nobody has now, below those that connections come from, which come and go. Another
    one may be faster: whoever starts a server there sees whether it is."""
    found = []
    while len(found) < count:
        port = random.SystemRandom().randrange(10_000, 30_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        if port not in found:
            found.append(port)
    return found


def need(path):
    """Ends the whole suite as skipped, or as failed where reference data must be there."""
    if path.exists():
        return
    if path.is_relative_to(SHARED) and os.environ.get("ATOLL_REQUIRE_SHARED") == "1":
        sys.exit(f"{path} is absent, but ATOLL_REQUIRE_SHARED is on")
    what = "reference data: " if path.is_relative_to(SHARED) else ""
    print(f"ATOLL-SKIPPED: {what}{path} is absent")
    sys.exit(0)


def run(*arguments, timeout=3000 if EMULATOR else 300):
    while True:
        done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, timeout=timeout,
                              check=False)
        # The process that looks for leaks at the end reads memory of threads, and dies of it where
        # one of them (of gRPC's) ends in that moment. It has then said nothing of leaks.
        if (b"Tracer caught signal" not in done.stderr or
                b"LeakSanitizer has encountered a fatal error" not in done.stderr):
            break
        print("once more, since the sanitizer's tracer crashed:", *arguments, flush=True)
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


class CommandTest(unittest.TestCase):
    longMessage = True

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def succeed(self, *arguments, **options):
        result = run(*arguments, **options)
        self.assertEqual(result.code, 0, f"{arguments}: {result.stderr}")
        return result

    def json(self, *arguments, **options):
        """Runs with --json; returns the report, which must be all of stdout, in one line."""
        result = self.succeed(*arguments, "--json", **options)
        self.assertEqual(result.stdout.count("\n"), 1)
        report = json.loads(result.stdout)
        self.assertEqual(report["schema"], 1)
        self.assertEqual(report["command"], arguments[0])
        return report

    def assert_sentence(self, arguments, result):
        """Nothing on stdout and exactly one sentence on stderr."""
        self.assertEqual(result.stdout, "", arguments)
        self.assertRegex(result.stderr, r"\Aatoll: [^\n]{8,}[^.\n]\.\n\Z", arguments)

    def fail_with(self, code, arguments, *mentions):
        """Runs a command that must fail with this exit code and mention these words."""
        result = run(*arguments)
        self.assertEqual(result.code, code, f"{arguments}: {result.stderr}")
        self.assert_sentence(arguments, result)
        for mention in mentions:
            self.assertIn(str(mention), result.stderr)

    def file(self, name, content):
        path = self.directory / name
        path.write_bytes(content)
        return path

    def model(self, tensors, operator, **more):
        """Writes a model of one operator from tensor 0 to tensor 1; fields as in tflite.fbs."""
        source = self.file("model.json", json.dumps({
            "version": 3,
            "operator_codes": [operator],
            "subgraphs": [{"tensors": tensors, "inputs": [0], "outputs": [1],
                           "operators": [{"opcode_index": 0, "inputs": [0], "outputs": [1],
                                          **more}]}],
            "buffers": [{}],
        }).encode())
        subprocess.run([FLATC, "--binary", "-o", self.directory,
                        SOURCE / "models/schema/tflite.fbs", source], check=True)
        return self.directory / "model.tflite"


def tensor(name, shape, dtype=9, **more):
    """A tensor for CommandTest.model; dtype 9 is int8."""
    return {"name": name, "shape": shape, "type": dtype, "buffer": 0,
            "quantization": {"scale": [0.5], "zero_point": [0]}, **more}
