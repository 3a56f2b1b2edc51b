# SPDX-License-Identifier: Apache-2.0
"""A program for Node over the addon of the npm package tfjs-tflite-node: with our libtensorflowlite_c
in front of the one that it brings, and with our delegate under the one that it brings."""
import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from tflite_programs import DELEGATE, ORIGINAL, SOURCE, STAND_IN, golden_models, need_original, skip

PROGRAM = SOURCE / "tests/compat/run_model.js"
FASHION = SOURCE / "models/fashion/fashion_int8.tflite"
EDGETPU = pathlib.Path(os.environ["ATOLL_EDGETPU"])

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

    def check_golden(self, *arguments, only_seeds=None, least=50, **options):
        compared = 0
        for name, model, seeds in golden_models():
            for seed, wanted in seeds.items():  # models with a state begin anew with each
                if only_seeds is not None and seed not in only_seeds:
                    continue
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
        self.assertGreaterEqual(compared, least)

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


class Sanitized(NodeTest):
    """Our library as it is built for AddressSanitizer, whose runtime has to come before Node. What
    Node itself keeps until the end would be leaks."""

    def test_golden_models(self):
        self.assertIn(b"__asan_init", (STAND_IN / "libtensorflowlite_c.so").read_bytes())
        runtime = os.environ["ATOLL_ASAN_RUNTIME"]
        for device in ("cpu", "emu"):
            self.check_golden(stand_in=True, only_seeds=("1",), least=25, ATOLL_DEVICE=device,
                              LD_PRELOAD=runtime, ASAN_OPTIONS="detect_leaks=0")


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


class Plugins(unittest.TestCase):
    """loadTFLiteModel with the objects that stand for delegates, as docs/switching.md has them."""
    longMessage = True
    BOTH = f"{STAND_IN}:{EDGETPU.parent}"
    # Classifies a boot. Tensors need a place to be in: a backend without kernels.
    SCRIPT = """
        const fs = require('fs');
        const tf = require('@tensorflow/tfjs-core');
        const {loadTFLiteModel} = require('tfjs-tflite-node');
        const {CoralDelegate} = require('coral-tflite-delegate');
        const arrays = new WeakMap();
        class Memory extends tf.KernelBackend {
          write(values) { const id = {}; arrays.set(id, values); return id; }
          readSync(id) { return arrays.get(id); }
          numDataIds() { return 0; }
          floatPrecision() { return 32; }
        }
        tf.registerBackend('memory', () => new Memory());
        const [file, picture] = process.argv.slice(1);
        const pixels = Int32Array.from(fs.readFileSync(picture).subarray(-784), (b) => b - 128);
        (async () => {
          const model = await loadTFLiteModel(file, {numThreads: 1, %s});
          const describe = ({name, shape, dtype}) => [name, shape, dtype];
          console.log(JSON.stringify({
            inputs: model.inputs.map(describe),
            outputs: model.outputs.map(describe),
            scores: [...model.predict(tf.tensor(pixels, [1, 28, 28, 1], 'int32')).dataSync()],
          }));
        })();
        """
    CORAL = "delegates: [new CoralDelegate()]"

    def setUp(self):
        if shutil.which("node") is None:
            skip("node is not installed")
        need_original()
        self.scores = lines(self.classify("delegates: []", LD_LIBRARY_PATH=self.BOTH))[0]["scores"]
        self.assertEqual(len(self.scores), 10)

    def classify(self, delegates, **environment):
        environment = {"ATOLL_EDGETPU_EMULATE": "", "ATOLL_DEVICE": "", **environment}
        return node("-e", self.SCRIPT % delegates, FASHION,
                    SOURCE / "models/fashion/ankle_boot.pgm", **environment)

    def check(self, delegates, **environment):
        """What was written to stderr."""
        result = self.classify(delegates, **environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        [got] = lines(result)
        self.assertEqual((got["inputs"], got["outputs"]),
                         ([["image", [1, 28, 28, 1], "int32"]],
                          [["probabilities", [1, 10], "int32"]]))
        self.assertEqual(got["scores"].index(max(got["scores"])), 9)  # "Ankle boot"
        self.assertEqual(got["scores"], self.scores)
        return result.stderr

    def test_no_delegate(self):
        self.check("delegates: []")
        self.check("delegates: []", LD_LIBRARY_PATH=self.BOTH, ATOLL_DEVICE="emu")

    def test_coral_emulated(self):
        for libraries in ({"LD_LIBRARY_PATH": self.BOTH}, {"LD_PRELOAD": str(EDGETPU)}):
            for delegates in (self.CORAL, "delegates: [new CoralDelegate({device: 'usb:0'})]"):
                told = self.check(delegates, ATOLL_EDGETPU_EMULATE="1", **libraries)
                self.assertNotIn("left out", told)

    def test_coral_without_a_device(self):
        told = self.check(self.CORAL, LD_LIBRARY_PATH=self.BOTH)
        self.assertIn("WARNING", told)
        # TensorFlow Lite 2.9 calls what it did not get.
        result = self.classify(self.CORAL, LD_PRELOAD=str(EDGETPU))
        self.assertLess(result.returncode, 0)
        self.assertEqual(result.stdout, "")

    def test_the_delegate_of_the_page(self):
        page = (SOURCE / "docs/switching.md").read_text()
        [plugin] = re.findall(r"`(delegates: \[.*?\}\])`", page)
        plugin = plugin.replace("PREFIX/lib/libatoll_tflite_delegate.so", DELEGATE)
        self.assertIn(DELEGATE, plugin)
        self.check(plugin)
        self.check(plugin, LD_LIBRARY_PATH=self.BOTH)
        told = self.check(plugin.replace("['device', 'emu']", "['verbosity', '1']"),
                          ATOLL_DEVICE="emu")
        self.assertRegex(told, r"(\d+) of \1 operators are run here")
        result = self.classify(plugin.replace("'emu'", "'usb:99'"))
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("usb:99", result.stderr)


if __name__ == "__main__":
    unittest.main()
