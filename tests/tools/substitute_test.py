# SPDX-License-Identifier: Apache-2.0
"""Models that were compiled for a Coral, without one: each subcommand runs what they were made from.

The compiled model here is one operator with the inputs and outputs of a bundled model.
"""
import json
import os
import subprocess
import unittest

from atoll_command import (COMMAND, FASHION_MODEL, SHARED, SOURCE, CommandTest, Result, absent, run)

PICTURE = SOURCE / "models/fashion/ankle_boot.pgm"
NOTE = "was compiled for a Coral, and none is used: "
USAGE, NO_DEVICE, BAD_MODEL = 2, 3, 4


class Substitutes(CommandTest):
    def setUp(self):
        super().setUp()
        self.fashion = FASHION_MODEL.read_bytes()
        self.original = self.directory / "shoes.tflite"
        self.compiled = self.compile("shoes_edgetpu.tflite")

    def compile(self, name, change=lambda tensors: None, options=(1, 2, 3)):
        """A model for a Coral with inputs and outputs as those of the bundled one."""
        report = json.loads(run("inspect", FASHION_MODEL, "--device", "cpu", "--json").stdout)
        types = {"int8": 9, "uint8": 3, "float32": 0}
        tensors = [{"name": t["name"], "shape": t["shape"], "type": types[t["dtype"]], "buffer": 0,
                    "quantization": {"scale": [t["scale"]], "zero_point": [t["zero_point"]]}}
                   for t in report["inputs"] + report["outputs"]]
        change(tensors)
        self.model(tensors, {"deprecated_builtin_code": 32, "builtin_code": 32,
                             "custom_code": "edgetpu-custom-op"},
                   custom_options=list(options))
        return (self.directory / "model.tflite").rename(self.directory / name)

    def place(self):
        self.original.write_bytes(self.fashion)

    def run_with(self, environment, *arguments):
        done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, timeout=300,
                              check=False, env={**os.environ, **environment})
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


class EverySubcommand(Substitutes):
    def arguments(self):
        """What each subcommand is given beside the model."""
        return {
            "run": (), "inspect": ("--coral", "usb3", "--profile", "emu:usb2"), "verify": (),
            "benchmark": ("--runs", "2", "--warmup", "1"), "profile": ("--runs", "2"),
            "residency": (), "classify": (PICTURE,),
            "camera": ("--source", "test", "--frames", "2", "--fps", "0"),
            "compile": ("--output", self.directory / "out.tflite"),
            "disasm": ("--device", "emu"),
        }

    def test_beside_the_file(self):
        self.place()
        for command, more in self.arguments().items():
            with self.subTest(command):
                result = self.succeed(command, self.compiled, *more, "--json")
                self.assertEqual(result.stderr.count(NOTE), 1, result.stderr)
                self.assertIn(f"'{self.original}' runs instead", result.stderr)
                if command == "disasm":
                    continue
                report = json.loads(result.stdout)
                if command in ("camera", "residency"):
                    report = report["models"][0]
                self.assertEqual(report["substitute"], str(self.original))
                if command == "run":
                    self.assertEqual(report["substitutes"], [str(self.original)])
                text = self.succeed(command, self.compiled, *more)
                if command in ("inspect", "benchmark", "compile"):
                    self.assertIn(f", of '{self.original}' in its place", text.stdout)

    def test_the_fallback_model(self):
        for command, more in self.arguments().items():
            with self.subTest(command):
                result = self.succeed(command, self.compiled, *more, "--fallback-model",
                                      FASHION_MODEL)
                self.assertIn(f"'{FASHION_MODEL}' runs instead", result.stderr)

    def test_nothing_to_run(self):
        for command, more in self.arguments().items():
            with self.subTest(command):
                self.fail_with(BAD_MODEL, (command, self.compiled, *more), self.compiled,
                               "compiled for a Coral Edge TPU", "no Coral is used",
                               "--fallback-model", "ATOLL_MODEL_PATH",
                               "lay it beside this one as 'shoes.tflite'")


class Results(Substitutes):
    def test_the_same_bytes(self):
        self.place()
        for device in ("cpu", "emu", "emu:32x32", "emu+stepped"):
            for seed in ("1", "7"):
                arguments = ("--device", device, "--seed", seed)
                want = self.json("run", self.original, *arguments)
                got = self.json("run", self.compiled, *arguments)
                self.assertEqual(got["outputs"], want["outputs"], arguments)
                self.assertIsNone(want["substitute"])
                self.assertNotIn("device_outputs", got)

    def test_compiles_what_runs(self):
        self.place()
        files = [self.directory / f"{k}.tflite" for k in range(2)]
        for model, output in zip((self.original, self.compiled), files):
            self.succeed("compile", model, "--output", output)
        self.assertEqual(files[0].read_bytes(), files[1].read_bytes())
        texts = [self.succeed("disasm", model, "--device", "emu").stdout.replace(str(model), "M")
                 for model in (self.original, self.compiled)]
        self.assertEqual(*texts)

    def test_several_models(self):
        self.place()
        report = self.json("run", self.compiled, FASHION_MODEL, "--order", "0,1,0")
        outputs = [one["outputs"] for one in report["invocations"]]
        self.assertEqual(outputs[0], outputs[1])
        self.assertEqual(report["substitutes"], [str(self.original), None])
        other = self.compile("other.tflite")
        models = (self.compiled, other)
        report = self.json("run", *models, "--fallback-model", "-", "--fallback-model",
                           FASHION_MODEL)
        self.assertEqual(report["substitutes"], [str(self.original), str(FASHION_MODEL)])
        for command in ("run", "benchmark", "residency"):
            self.fail_with(USAGE, (command, *models, "--fallback-model", FASHION_MODEL),
                           "--fallback-model is given once for 2 models")
        self.fail_with(USAGE, ("run", other, *["--fallback-model", FASHION_MODEL] * 2),
                       "--fallback-model is given 2 times for one model")

    def test_a_device_that_is_not_there(self):
        """What is to run without a Coral needs none."""
        self.place()
        nowhere = ("--device", "usb:7-7")
        self.fail_with(NO_DEVICE, ("run", self.compiled, *nowhere))
        self.fail_with(NO_DEVICE, ("run", FASHION_MODEL, *nowhere, "--fallback-model",
                                   FASHION_MODEL))
        result = self.succeed("run", self.compiled, *nowhere, "--fallback-model", FASHION_MODEL)
        self.assertIn("usb:7-7", result.stderr)
        self.assertEqual(result.stdout, self.succeed("run", FASHION_MODEL).stdout)

    def test_every_name_that_may_be_a_coral(self):
        """By USB, PCIe, its kernel modules, and at a broker: nothing is there of these names."""
        self.place()
        want = self.succeed("run", FASHION_MODEL, "--device", "emu").stdout
        for name in ("usb:7777", "usb:7-7", "pci:7777", "pci:07:00.0", "pci:0007:07:00.0",
                     "/dev/apex_7777", f"broker:{self.directory}/none", "usb:7-7,usb:7-8",
                     "pci:7777,pci:7778"):
            with self.subTest(name):
                nowhere = ("--device", name)
                self.fail_with(NO_DEVICE, ("run", self.compiled, *nowhere))
                self.fail_with(NO_DEVICE, ("run", FASHION_MODEL, *nowhere, "--fallback-model",
                                           FASHION_MODEL))
                result = self.succeed("run", self.compiled, *nowhere, "--fallback-model",
                                      FASHION_MODEL)
                self.assertIn("--device auto in its place", result.stderr)
                self.assertEqual(result.stdout, want)
        # A file that is not there is no device that is not there.
        for name in (f"replay:{self.directory}/none", "emu:none", f"emu:{self.directory}/none.json"):
            self.fail_with(NO_DEVICE, ("run", self.compiled, "--device", name, "--fallback-model",
                                       FASHION_MODEL))

    def test_evaluating(self):
        self.place()
        data = self.directory / "data"
        (data / "9").mkdir(parents=True)
        (data / "9/boot.pgm").write_bytes(PICTURE.read_bytes())
        for device in ("cpu", "pci:7777", "/dev/apex_7777"):
            report = self.json("evaluate", self.compiled, data, "--device", device,
                               "--fallback-model", FASHION_MODEL)
            self.assertEqual(report["results"][0]["top1"]["value"], 1, device)
        self.fail_with(NO_DEVICE, ("evaluate", self.compiled, data, "--device", "pci:7777"))
        self.fail_with(USAGE, ("evaluate", self.compiled, self.compiled, data,
                               "--fallback-model", FASHION_MODEL),
                       "--fallback-model is given once for 2 models")

    def test_labels_come_from_what_runs(self):
        self.place()
        report = self.json("classify", self.compiled, PICTURE)
        self.assertEqual(report["images"][0]["top"],
                         self.json("classify", self.original, PICTURE)["images"][0]["top"])


class Finding(Substitutes):
    def test_the_usual_names(self):
        for compiled, original in (("edgetpu_model", "cpu_model"),
                                   ("a_cocompiled_with_b_edgetpu", "a")):
            path = self.compile(f"{compiled}.tflite")
            self.fail_with(BAD_MODEL, ("run", path), f"as '{original}.tflite'")
            (self.directory / f"{original}.tflite").write_bytes(self.fashion)
            self.assertEqual(self.json("run", path)["substitute"],
                             str(self.directory / f"{original}.tflite"))
            (self.directory / f"{original}.tflite").unlink()
        for name in ("other", "net_segment_0_of_2_edgetpu"):
            result = run("run", self.compile(f"{name}.tflite"))
            self.assertEqual(result.code, BAD_MODEL)
            self.assertIn("under its name without '_edgetpu'", result.stderr)

    def test_what_does_not_fit(self):
        self.place()
        changes = {
            "its input 0 is int8 [1, 28, 28, 1]": lambda t: t[0].update(
                type=3, quantization={"scale": [1], "zero_point": [0]}),
            "that of the compiled model int8 [1, 28, 28, 2]":
                lambda t: t[0].update(shape=[1, 28, 28, 2]),
            "zero point 5": lambda t: t[0]["quantization"].update(zero_point=[5]),
            "scale 0.25": lambda t: t[1]["quantization"].update(scale=[0.25]),
            "its output 0 is int8 [1, 10]": lambda t: t[1].update(shape=[10]),
        }
        for words, change in changes.items():
            with self.subTest(words):
                self.fail_with(BAD_MODEL, ("run", self.compile("shoes_edgetpu.tflite", change)),
                               f"'{self.original}' does not fit: ", words)

    def test_a_damaged_file(self):
        self.original.write_bytes(self.fashion[:1000])
        self.fail_with(BAD_MODEL, ("run", self.compiled), f"model '{self.original}'")

    def test_the_model_path(self):
        """The pair lies there; the model that is run is elsewhere, under another name."""
        folder = self.directory / "models"
        folder.mkdir()
        self.compiled.rename(folder / "shoes_edgetpu.tflite")
        (folder / "shoes.tflite").write_bytes(self.fashion)
        elsewhere = self.directory / "anything"
        elsewhere.write_bytes((folder / "shoes_edgetpu.tflite").read_bytes())
        for value in ("", ":", "/nowhere", str(self.directory)):
            result = self.run_with({"ATOLL_MODEL_PATH": value}, "run", elsewhere)
            self.assertEqual(result.code, BAD_MODEL, value)
            self.assert_sentence(value, result)
        self.assertIn("'/nowhere' of ATOLL_MODEL_PATH: No such file",
                      self.run_with({"ATOLL_MODEL_PATH": "/nowhere"}, "run", elsewhere).stderr)
        for value in (folder, f"/nowhere::{folder}:", folder / "shoes_edgetpu.tflite"):
            result = self.run_with({"ATOLL_MODEL_PATH": str(value)}, "run", elsewhere, "--json")
            self.assertEqual(result.code, 0, result.stderr)
            self.assertEqual(json.loads(result.stdout)["substitute"], str(folder / "shoes.tflite"))

    def test_public_models(self):
        """They are known by their hashes."""
        models = SHARED / "models"
        if not models.exists():
            absent("models", is_reference=True)
        name = "libredgetpu_bright_16x16"
        renamed = self.file("any.tflite", (models / f"edgetpu/{name}_edgetpu.tflite").read_bytes())
        self.fail_with(BAD_MODEL, ("run", renamed), "enough for Coral's public models")
        result = self.run_with({"ATOLL_MODEL_PATH": str(models)}, "run", renamed, "--json")
        report = json.loads(result.stdout)
        self.assertEqual(report["substitute"], str(models / f"{name}.tflite"))
        self.assertEqual(report["outputs"],
                         self.json("run", models / f"{name}.tflite")["outputs"])


if __name__ == "__main__":
    unittest.main()
