# SPDX-License-Identifier: Apache-2.0
"""Other shapes of inputs, other devices, several models: what would be if."""
import json
import subprocess
import unittest

from atoll_command import FASHION_MODEL, FLATC, SOURCE, CommandTest, need, tensor

USAGE, NO_DEVICE, BAD_MODEL = 2, 3, 4
RELU = {"builtin_code": 19, "deprecated_builtin_code": 19, "version": 2}
MIB = 1 << 20


class WhatIfTest(CommandTest):
    def relu(self, shape):
        """A model for pictures of any size."""
        return self.model([tensor("image", shape), tensor("result", shape)], RELU)

    def dense(self, name, inputs, outputs):
        """A matrix product with inputs * outputs bytes of weights."""
        source = self.file(f"{name}.json", json.dumps({
            "version": 3,
            "operator_codes": [{"builtin_code": 9, "deprecated_builtin_code": 9, "version": 4}],
            "subgraphs": [{
                "tensors": [tensor("x", [1, inputs]),
                            tensor("weights", [outputs, inputs], buffer=1),
                            tensor("y", [1, outputs])],
                "inputs": [0], "outputs": [2],
                "operators": [{"opcode_index": 0, "inputs": [0, 1, -1], "outputs": [2],
                               "builtin_options_type": "FullyConnectedOptions",
                               "builtin_options": {}}]}],
            "buffers": [{}, {"data": [(i * 7) % 256 for i in range(inputs * outputs)]}],
        }).encode())
        subprocess.run([FLATC, "--binary", "-o", self.directory,
                        SOURCE / "models/schema/tflite.fbs", source], check=True)
        return self.directory / f"{name}.tflite"


class InputShape(WhatIfTest):
    def hashes(self, *arguments):
        return [output["sha256"] for output in self.json("run", *arguments)["outputs"]]

    def test_dynamic_input(self):
        model = self.relu([1, -1, -1, 3])
        self.fail_with(BAD_MODEL, ("run", model), "image", "give this input a shape")
        for shape in ("1x20x30x3", "20x30", "image=20x30", "0=20x30"):
            arguments = (model, "--input-shape", shape)
            report = self.json("inspect", *arguments)
            self.assertEqual(report["input_shapes"], [shape])
            self.assertEqual(report["inputs"][0]["shape"], [1, 20, 30, 3])
            self.assertEqual(report["outputs"][0]["shape"], [1, 20, 30, 3])
            self.assertEqual(self.hashes(*arguments, "--device", "cpu"),
                             self.hashes(*arguments, "--device", "emu"))
        for arguments in (("benchmark", "--runs", "1"), ("profile", "--runs", "1"), ("verify",)):
            self.succeed(*arguments, model, "--input-shape", "9x9", "--device", "emu")

    def test_the_stored_shape_changes_nothing(self):
        for device in ("cpu", "emu"):
            want = self.hashes(FASHION_MODEL, "--device", device)
            for shape in ("28x28", "1x28x28x1"):
                self.assertEqual(
                    self.hashes(FASHION_MODEL, "--device", device, "--input-shape", shape), want)

    def test_shapes_that_do_not_fit(self):
        self.fail_with(BAD_MODEL, ("run", FASHION_MODEL, "--input-shape", "1x28x28x3"),
                       "[1, 28, 28, 3]", "node ", "another shape")
        for shape, mention in (("nonesuch=28x28", "nonesuch"), ("1=28x28", "no input 1"),
                               ("28", "must have 4 sizes"), ("28x28x1", "must have 4 sizes")):
            self.fail_with(USAGE, ("run", FASHION_MODEL, "--input-shape", shape), mention,
                           "another shape")
        for shape in ("", "28x", "0x28", "-1x28", "28,28", "=28x28", "99999999999x1"):
            self.fail_with(USAGE, ("run", FASHION_MODEL, f"--input-shape={shape}"))
        self.fail_with(USAGE, ("run", FASHION_MODEL, "--input-shape", "28x28", "--input-shape",
                               "0=28x28"), "twice")

    def test_compiled_for_a_shape(self):
        model = self.relu([1, 8, 8, 3])
        compiled = self.directory / "compiled.tflite"
        self.succeed("compile", model, "--device", "emu", "--input-shape", "16x12", "-o", compiled)
        self.assertEqual(self.json("inspect", compiled)["inputs"][0]["shape"], [1, 16, 12, 3])
        self.assertEqual(self.hashes(compiled, "--device", "emu"),
                         self.hashes(model, "--input-shape", "16x12", "--device", "cpu"))
        self.fail_with(BAD_MODEL, ("run", compiled, "--input-shape", "8x8"), "original model")


class WhatIf(WhatIfTest):
    def assert_row(self, row, model, shape):
        """It equals what inspect says of that device and shape."""
        arguments = ("--input-shape", shape) if shape else ()
        alone = self.json("inspect", model, "--device", row["device"], *arguments)
        self.assertEqual(row["reason"], "")
        self.assertAlmostEqual(row["modelled_ms"], alone["modelled_device_seconds"] * 1e3, places=5)
        self.assertEqual(row["modelled_cycles"],
                         sum(part["modelled_cycles"] for part in alone["partitions"]))
        self.assertEqual(row["nodes_on_device"], alone["nodes_on_device"])
        self.assertEqual(row["partition_count"], len(alone["partitions"]))
        self.assertEqual(row["macs"], alone["macs"])
        self.assertEqual(row["on_chip_bytes"],
                         row["resident_parameter_bytes"] + row["activation_bytes"])
        self.assertEqual(row["shapes"], "x".join(map(str, alone["inputs"][0]["shape"])))

    def test_rows(self):
        model = self.relu([1, 8, 8, 3])
        report = self.json("inspect", model, "--device", "emu", "--profile", "emu:usb2",
                           "--profile", "emu", "--what-if", "16x24", "--what-if", "image=1x40x8x3")
        rows = report["what_if"]
        shapes = (None, "16x24", "image=1x40x8x3")
        self.assertEqual([(row["device"], row["input_shapes"]) for row in rows],
                         [(device, [shape] if shape else [])
                          for device in ("emu", "emu:usb2") for shape in shapes])
        for row in rows:
            self.assert_row(row, model, next(iter(row["input_shapes"]), None))
        self.assertLess(rows[0]["modelled_ms"], rows[1]["modelled_ms"])
        self.assertLess(rows[0]["modelled_ms"], rows[3]["modelled_ms"])
        self.assertNotIn("what_if", self.json("inspect", model))

    def test_all_profiles(self):
        profiles = [device["name"] for device in self.json("devices")["devices"]
                    if device["name"].startswith("emu") and "+" not in device["name"]]
        rows = self.json("inspect", FASHION_MODEL, "--device", "emu:pcie", "--profile",
                         "all")["what_if"]
        self.assertEqual(rows[0]["device"], "emu:pcie")
        self.assertEqual(sorted(row["device"] for row in rows), sorted(profiles))
        for row in rows:
            self.assert_row(row, FASHION_MODEL, None)

    def test_what_cannot_be(self):
        arguments = ("inspect", FASHION_MODEL, "--device", "emu", "--what-if", "1x28x28x3")
        row = self.json(*arguments)["what_if"][1]
        self.assertIn("[1, 28, 28, 3]", row["reason"])
        self.assertIsNone(row["modelled_ms"])
        text = self.succeed(*arguments).stdout
        self.assertRegex(text, r"(?m)^\* emu +1x28x28x1 +\d")
        self.assertRegex(text, r"(?m)^  emu +1x28x28x3 .*\[1, 28, 28, 3\]")
        self.assertIn("modelled ms per inference, not measured", text)
        row = self.json("inspect", FASHION_MODEL, "--device", "cpu", "--what-if",
                        "28x28")["what_if"][0]
        self.assertIn("no modelled times", row["reason"])

    def test_usage(self):
        for code, option, value, mention in (
                (USAGE, "--profile", "cpu", "cpu"), (USAGE, "--profile", "gpu", "gpu"),
                (NO_DEVICE, "--profile", "emu:nonesuch", "nonesuch"),
                (USAGE, "--what-if", "28x", "'28x'"), (USAGE, "--what-if", "28x28,", "''"),
                (USAGE, "--what-if", "nonesuch=28x28", "'nonesuch'"),
                (USAGE, "--what-if", "28x28,0=28x28", "twice")):
            self.fail_with(code, ("inspect", FASHION_MODEL, option, value), mention)


class Residency(WhatIfTest):
    def test_all_fit(self):
        arguments = ("residency", FASHION_MODEL, FASHION_MODEL, "--device", "emu")
        report = self.json(*arguments)
        self.assertTrue(report["all_fit"])
        self.assertEqual(report["repeating_round"], 1)
        self.assertEqual(report["modelled_round_ms"], report["modelled_resident_round_ms"])
        alone = self.json("inspect", FASHION_MODEL, "--device", "emu")
        for model in report["models"]:
            self.assertAlmostEqual(model["modelled_inference_ms"],
                                   alone["modelled_device_seconds"] * 1e3, places=5)
            self.assertEqual(model["parameter_bytes"],
                             sum(part["resident_parameter_bytes"] for part in alone["partitions"]))
        self.assertEqual([turn["upload_bytes"] for turn in report["rounds"][0]],
                         [model["upload_bytes"] for model in report["models"]])
        self.assertIn("all stay on the device", self.succeed(*arguments).stdout)

    def test_not_all_fit(self):
        names = [self.dense("a", 640, 1000), self.dense("b", 320, 1000), self.dense("c", 400, 1000)]
        arguments = ("residency", *names, "--device", "emu:1mib")
        report = self.json(*arguments)
        self.assertFalse(report["all_fit"])
        self.assertEqual(report["memory_bytes"], MIB)
        self.assertGreater(report["needed_memory_bytes"], 1_360_000)
        self.assertEqual([model["in_subset"] for model in report["models"]], [True, True, False])
        self.assertEqual([turn["evicted"] for turn in report["rounds"][0]], [[], [], [0]])
        self.assertGreater(report["modelled_round_ms"], report["modelled_resident_round_ms"])
        for turns in report["rounds"][report["repeating_round"]:]:
            for turn in turns:
                model = report["models"][turn["model"]]
                self.assertIn(turn["upload_bytes"], (0, model["upload_bytes"]))
                self.assertAlmostEqual(turn["modelled_ms"],
                                       model["modelled_inference_ms"] + turn["modelled_upload_ms"],
                                       places=5)
        largest = report["largest_parameters"][0]
        self.assertEqual((largest["model"], largest["op"]), (0, "FULLY_CONNECTED"))
        self.assertGreaterEqual(largest["bytes"], 640_000)
        text = self.succeed(*arguments).stdout
        for words in ("not all stay on the device", "modelled", "evicts 0",
                      "these alone: 0, 1 (they fit together", "FULLY_CONNECTED 'y'",
                      f"{report['needed_memory_bytes']:,} bytes"):
            self.assertIn(words, text)

    def test_usage(self):
        self.fail_with(USAGE, ("residency",))
        self.fail_with(USAGE, ("residency", FASHION_MODEL, "--device", "cpu"), "cpu")
        self.fail_with(USAGE, ("residency", *[FASHION_MODEL] * 13))
        self.fail_with(1, ("residency", FASHION_MODEL, "none.tflite"), "none.tflite")
        self.fail_with(NO_DEVICE, ("residency", FASHION_MODEL, "--device", "usb"), "usb")


if __name__ == "__main__":
    need(FASHION_MODEL)
    unittest.main()
