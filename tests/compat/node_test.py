# SPDX-License-Identifier: Apache-2.0
"""A program for Node over the addon of the npm package tfjs-tflite-node: with our libtensorflowlite_c
in front of the one that it brings, and with our delegate under the one that it brings."""
import base64
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from tflite_programs import DELEGATE, ORIGINAL, SOURCE, STAND_IN, golden_models, need_original, skip

PROGRAM = SOURCE / "tests/compat/run_model.js"
FASHION = SOURCE / "models/fashion/fashion_int8.tflite"

ADDON_TYPES = {"int64": "kTfLiteInt64"}  # the addon's other name for a type


def node(*arguments, stand_in=False, **environment):
    environment = {**os.environ, "NODE_PATH": str(ORIGINAL), **environment}
    if stand_in:
        environment["LD_LIBRARY_PATH"] = str(STAND_IN)
    return subprocess.run(["node", *map(str, arguments)], capture_output=True, timeout=300,
                          env=environment, check=False, text=True)


def lines(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


class NodeTest(unittest.TestCase):
    longMessage = True

    def setUp(self):
        if shutil.which("node") is None:
            skip("node is not installed")
        need_original()

    def check_golden(self, *arguments, **options):
        compared = 0
        for name, model, seeds in golden_models():
            for seed, wanted in seeds.items():  # models with a state begin anew with each
                result = node(PROGRAM, model, seed, *arguments, **options)
                with self.subTest(model=name, seed=seed):
                    self.assertEqual(result.returncode, 0, result.stderr)
                    [got] = lines(result)
                    self.assertEqual(
                        [hashlib.sha256(base64.b64decode(output["base64"])).hexdigest()
                         for output in got["outputs"]],
                        [output["sha256"] for output in wanted["outputs"]])
                    for side in ("inputs", "outputs"):
                        self.assertEqual([(end["name"], ADDON_TYPES.get(end["dtype"], end["dtype"]),
                                           ",".join(map(str, end["shape"])))
                                          for end in wanted[side]],
                                         [(end["name"], end["dataType"], end["shape"])
                                          for end in got[side]])
                    compared += 1
        self.assertGreaterEqual(compared, 50)

    def assert_error(self, result, *words):
        """An exception of JavaScript's, which the program did not catch; no signal."""
        self.assertEqual(result.returncode, 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)


class StandIn(NodeTest):
    def test_on_the_cpu(self):
        self.check_golden(stand_in=True)

    def test_on_the_emulator(self):
        self.check_golden(stand_in=True, ATOLL_DEVICE="emu")

    def test_what_is_no_model(self):
        with tempfile.NamedTemporaryFile(suffix=".tflite") as file:
            file.write(b"this is text, and no model")
            file.flush()
            self.assert_error(node(PROGRAM, file.name, "1", stand_in=True), "Error")

    def test_a_device_that_is_not_there(self):
        self.assert_error(node(PROGRAM, FASHION, "1", stand_in=True, ATOLL_DEVICE="usb:99"),
                          "usb:99")

    def test_inputs_of_another_size(self):
        script = """
            const {TFLiteNodeModelRunner} = require('tfjs-tflite-node');
            const file = require('fs').readFileSync(process.argv[1]);
            const runner = new TFLiteNodeModelRunner(
                file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength), {threads: 2});
            for (const times of [1, 2, 3]) runner.infer();
            const [input] = runner.getInputs();
            console.log(JSON.stringify([input.id, input.name, input.dataType, input.shape]));
            try { new TFLiteNodeModelRunner(new ArrayBuffer(8), {threads: 1}); }
            catch (error) { console.log(JSON.stringify(String(error))); }
            """
        result = node("-e", script, FASHION, stand_in=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        described, error = lines(result)
        self.assertEqual(described, [0, "image", "int8", "1,28,28,1"])
        self.assertIn("Error", error)

    def test_many_models_after_each_other(self):
        script = """
            const {TFLiteNodeModelRunner} = require('tfjs-tflite-node');
            const file = require('fs').readFileSync(process.argv[1]);
            const bytes = file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength);
            // What is not needed any more is freed between turns of the loop of events.
            const pause = () => new Promise((done) => setImmediate(done));
            const cycle = async (count) => {
              for (let i = 0; i < count; ++i) {
                new TFLiteNodeModelRunner(bytes, {threads: 1}).infer();
                if (i % 50 === 0) { gc(); await pause(); }
              }
              gc();
              await pause();
              return process.memoryUsage().rss;
            };
            (async () => {
              await cycle(400);
              console.log(JSON.stringify([await cycle(100), await cycle(600)]));
            })();
            """
        result = node("--expose-gc", "-e", script, FASHION, stand_in=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        [[before, after]] = lines(result)
        self.assertLess(after - before, 4 << 20)  # one that stays in each cycle would be 300 MB


class UnderTheOriginal(NodeTest):
    def test_delegate_on_the_emulator(self):
        self.check_golden("--delegate", DELEGATE, "device=emu")

    def test_delegate_on_the_cpu(self):
        self.check_golden("--delegate", DELEGATE, "device=cpu")

    def test_a_delegate_without_its_device(self):
        # TensorFlow Lite 2.9 calls a delegate that was not made: ours is always made.
        self.assert_error(node(PROGRAM, FASHION, "1", "--delegate", DELEGATE, "device=usb:99"),
                          "usb:99")

    def test_options_that_there_are_not(self):
        self.assert_error(node(PROGRAM, FASHION, "1", "--delegate", DELEGATE, "devise=emu"),
                          "devise")


if __name__ == "__main__":
    unittest.main()
