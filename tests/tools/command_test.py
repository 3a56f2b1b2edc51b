# SPDX-License-Identifier: Apache-2.0
"""What each subcommand prints when all is well."""
import hashlib
import unittest

from atoll_command import (FASHION_DATA, FASHION_LABELS, FASHION_MODEL, CommandTest, need)

SUBCOMMANDS = ("devices", "inspect", "compile", "run", "verify", "classify", "detect", "segment", "pose",
               "camera", "benchmark")


class Help(CommandTest):
    def test_help(self):
        text = self.succeed("--help").stdout
        for name in SUBCOMMANDS + ("Exit codes", "no such device"):
            self.assertIn(name, text)
        for name in SUBCOMMANDS:
            text = self.succeed(name, "--help").stdout
            self.assertRegex(text, rf"Examples:\n  atoll {name}")

    def test_version(self):
        self.assertRegex(self.succeed("--version").stdout, r"\Aatoll \d+\.\d+\.\d+\n\Z")


class Devices(CommandTest):
    def test_json(self):
        devices = self.json("devices")["devices"]
        self.assertIn("cpu", [device["name"] for device in devices])
        self.assertIn("emu", [device["name"] for device in devices])
        self.assertEqual([device["auto"] for device in devices].count(True), 1)

    def test_text(self):
        self.assertRegex(self.succeed("devices").stdout, r"(?m)^\* \S+ +\S")


class Inspect(CommandTest):
    def test_emulator(self):
        report = self.json("inspect", FASHION_MODEL, "--device", "emu")
        self.assertEqual(report["device"]["name"], "emu")
        self.assertGreaterEqual(len(report["partitions"]), 1)
        self.assertGreater(report["modelled_device_seconds"], 0)
        self.assertEqual(report["nodes_on_device"] + report["nodes_on_cpu"], len(report["nodes"]))
        for node in report["nodes"]:
            if node["partition"] < 0:
                self.assertNotEqual(node["reason"], "", node)
        self.assertEqual(report["inputs"][0]["shape"], [1, 28, 28, 1])
        text = self.succeed("inspect", FASHION_MODEL, "--device", "emu").stdout
        self.assertIn("modelled", text)
        self.assertIn("resident", text)

    def test_cpu(self):
        report = self.json("inspect", FASHION_MODEL, "--device", "cpu")
        self.assertEqual(report["partitions"], [])
        self.assertEqual(report["modelled_device_seconds"], 0)

    def test_coral(self):
        report = self.json("inspect", FASHION_MODEL, "--device", "cpu", "--coral", "usb2")
        coral = report["coral"]
        self.assertEqual(coral["host"], "usb2")
        self.assertAlmostEqual(coral["modelled_ms"], sum(coral["breakdown_ms"].values()), places=4)
        self.assertEqual(coral["nodes_on_device"] + coral["nodes_on_host"], len(report["nodes"]))
        self.assertEqual(coral["input_bytes"], 784)
        self.assertNotIn("coral", self.json("inspect", FASHION_MODEL, "--device", "cpu"))
        text = self.succeed("inspect", FASHION_MODEL, "--device", "cpu", "--coral", "pcie").stdout
        self.assertRegex(text, r"a real Coral on pcie \(modelled, not measured.*\): [0-9.]+ ms")

    def test_no_such_coral(self):
        self.fail_with(2, ("inspect", FASHION_MODEL, "--device", "cpu", "--coral", "usb9"),
                       "usb9", "usb3, usb2, pcie, usb3-pi4")


class Compile(CommandTest):
    def test_compiled_model_gives_the_same_bytes(self):
        compiled = self.directory / "compiled.tflite"
        report = self.json("compile", FASHION_MODEL, "--device", "emu", "-o", compiled)
        self.assertEqual(report["bytes"], compiled.stat().st_size)
        self.assertGreater(report["nodes_on_device"], 0)
        want = self.json("run", FASHION_MODEL, "--device", "cpu")["outputs"]
        for device in ("cpu", "emu", "emu:1mib"):
            got = self.json("run", compiled, "--device", device)["outputs"]
            self.assertEqual([output["sha256"] for output in got],
                             [output["sha256"] for output in want], device)
        reasons = {node["reason"] for node in self.json("inspect", compiled)["nodes"]}
        self.assertLessEqual(reasons, {"", "the compiled model leaves it to the CPU"})

    def test_cpu_is_no_device(self):
        self.fail_with(2, ("compile", FASHION_MODEL, "--device", "cpu", "-o", "x.tflite"))


class Run(CommandTest):
    def test_output_files(self):
        for device in ("cpu", "emu"):
            directory = self.directory / device / "deep"
            report = self.json("run", FASHION_MODEL, "--device", device, "--output-dir", directory)
            self.assertEqual([path.name for path in directory.iterdir()], ["out_0.raw"])
            data = (directory / "out_0.raw").read_bytes()
            self.assertEqual(len(data), 10)
            self.assertEqual(report["outputs"][0]["sha256"], hashlib.sha256(data).hexdigest())

    def test_auto_says_what_it_took(self):
        result = self.succeed("run", FASHION_MODEL)
        self.assertRegex(result.stderr, r"\Aatoll: --device auto took \S+ \([^\n]+\)\n\Z")
        self.assertEqual(self.succeed("run", FASHION_MODEL, "--device", "emu").stderr, "")

    def test_seed_and_threads(self):
        def outputs(*arguments):
            return self.succeed("run", FASHION_MODEL, "--device", "cpu", *arguments).stdout
        self.assertEqual(outputs(), outputs("--seed", "1", "--threads", "2"))
        self.assertNotEqual(outputs(), outputs("--seed", "2"))

    def test_text_and_json_agree(self):
        arguments = ("run", FASHION_MODEL, "--device", "cpu", "--checksums")
        text = self.succeed(*arguments).stdout.splitlines()
        report = self.json(*arguments)
        self.assertEqual([line.split()[-1] for line in text],
                         [tensor["sha256"] for tensor in report["tensors"] + report["outputs"]])
        self.assertEqual(text[-1].split()[:3], ["output", "0", "'probabilities'"])


class Benchmark(CommandTest):
    def test_json(self):
        report = self.json("benchmark", FASHION_MODEL, "--device", "emu", "--runs", "5")
        latency = report["latency_ms"]
        self.assertLessEqual(0, latency["min"])
        for low, high in (("min", "median"), ("median", "p90"), ("p90", "p99")):
            self.assertLessEqual(latency[low], latency[high])
        self.assertGreater(report["peak_rss_bytes"], 1 << 20)
        self.assertGreater(report["modelled_device"]["ms"], 0)
        text = self.succeed("benchmark", FASHION_MODEL, "--device", "emu", "--runs", "1").stdout
        self.assertIn("modelled", text)
        self.assertIn("measured on the host", text)


class Classify(CommandTest):
    PPM = b"P6 300 200 255\n" + bytes(range(256)) * 703 + bytes(32)

    def test_annotated_picture(self):
        """In colour and at full size, although the model takes small gray pictures."""
        picture = self.file("picture.ppm", self.PPM)
        output = self.directory / "new/named.jpg"
        arguments = ("classify", FASHION_MODEL, picture, "--device", "cpu", "--labels",
                     FASHION_LABELS, "--top-k", "1")
        report = self.json(*arguments, "--output", output)
        self.assertEqual(report["warnings"], [])
        image, = report["images"]
        self.assertEqual((image["output"], image["width"], image["height"]),
                         (str(output), 300, 200))
        again, = self.json(*arguments[:2], output, *arguments[3:])["images"]
        self.assertEqual((again["width"], again["height"]), (300, 200))
        self.assertNotIn("output", again)


class Camera(CommandTest):
    def assert_accounted(self, report):
        self.assertEqual(report["captured"],
                         report["processed"] + report["dropped"] + report["failed"])

    def test_fashion(self):
        if not FASHION_DATA.exists():
            self.skipTest("the Debian package dataset-fashion-mnist is absent")
        accuracy = {}
        for device in ("cpu", "emu"):
            report = self.json("camera", FASHION_MODEL, "--labels", FASHION_LABELS, "--source",
                               f"fashion:{FASHION_DATA}", "--fps", "0", "--policy", "every",
                               "--frames", "100", "--device", device)
            self.assertEqual(report["processed"], 100)
            self.assert_accounted(report)
            accuracy[device] = report["accuracy"]
            self.assertEqual(set(report["latency_ms"]),
                             {"decode", "resize", "infer", "draw", "total"})
        self.assertEqual(accuracy["cpu"], accuracy["emu"])
        self.assertGreater(accuracy["cpu"], 0.8)

    def test_newest_drops_and_counts(self):
        report = self.json("camera", FASHION_MODEL, "--fps", "0", "--policy", "newest", "--frames",
                           "200", "--device", "cpu")
        self.assertEqual(report["captured"], 200)
        self.assert_accounted(report)

    def test_saves_and_counts_bad_frames(self):
        frames = self.directory / "frames"
        saved = self.directory / "saved"
        frames.mkdir()
        self.succeed("camera", FASHION_MODEL, "--device", "cpu", "--fps", "0", "--policy", "every",
                     "--frames", "3", "--save", frames)
        self.assertEqual(len(list(frames.iterdir())), 3)
        (frames / "zz.jpg").write_bytes(b"no JPEG")
        report = self.json("camera", FASHION_MODEL, "--device", "cpu", "--fps", "0", "--policy",
                           "every", "--source", frames, "--save", saved, "--crop", "square")
        self.assertEqual((report["captured"], report["processed"], report["failed"]), (4, 3, 1))
        self.assertIn("zz.jpg", report["first_failure"])
        self.assertEqual(len(list(saved.iterdir())), 3)

    def test_shrinking_while_decoding(self):
        report = self.json("camera", FASHION_MODEL, "--device", "cpu", "--fps", "0", "--frames",
                           "20", "--policy", "every", "--no-draw", "--crop", "100x100+7+9")
        self.assertEqual(report["processed"], 20)
        self.assertNotIn("draw", report["latency_ms"])


if __name__ == "__main__":
    need(FASHION_MODEL)
    unittest.main()
