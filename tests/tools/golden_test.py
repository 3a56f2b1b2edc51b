# SPDX-License-Identifier: Apache-2.0
"""Whole models through `atoll run` give the bytes that TensorFlow Lite itself gave, and pictures
through `atoll classify` the classes that they show."""
import base64
import json
import pathlib
import struct
import tempfile
import unittest

from atoll_command import SHARED, CommandTest, need

GOLDEN = SHARED / "golden"
MODELS = SHARED / "models"
IMAGES = SHARED / "images"

# TensorFlow Lite itself refuses these; they are compared with themselves.
WITHOUT_RESULTS = {"edsr_f32b5_full_qint8", "person_detect"}
NAMES = sorted({path.stem for path in (GOLDEN / "models").glob("*.json")} - WITHOUT_RESULTS)

# Of the largest value of a float32 output; exp and its like differ between C libraries.
TOLERANCE = 1e-5


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def floats(data):
    return struct.unpack(f"<{len(data) // 4}f", data)


class GoldenTest(CommandTest):
    def assert_outputs(self, wanted, got, context, directory=None):
        """float32 outputs are read from `directory` and compared within the tolerance."""
        self.assertEqual(len(wanted), len(got), context)
        for want, have in zip(wanted, got):
            for field in ("index", "name", "dtype", "shape", "zero_point"):
                self.assertEqual(want[field], have[field], f"{context}: {field}")
            self.assertEqual(float32(want["scale"]), float32(have["scale"]), context)
            if want["dtype"] != "float32":
                self.assertEqual(want["sha256"], have["sha256"], context)
                continue
            values = floats(base64.b64decode(want["base64"]))
            limit = TOLERANCE * max(map(abs, values))
            raw = pathlib.Path(directory, f"out_{have['index']}.raw").read_bytes()
            for i, (value, other) in enumerate(zip(values, floats(raw), strict=True)):
                self.assertLessEqual(abs(value - other), limit, f"{context}: element {i}")

    def check_model(self, name, device):
        """Outputs and every intermediate tensor that exists outside of the device, both seeds."""
        model = MODELS / f"{name}.tflite"
        golden = json.loads((GOLDEN / "models" / f"{name}.json").read_text())
        plan = self.json("inspect", model, "--device", device)
        written = {index for node in plan["nodes"] for index in node["outputs"]}
        for seed, wanted in golden["seeds"].items():
            context = f"{name} on {device}, seed {seed}"
            with tempfile.TemporaryDirectory() as directory:
                report = self.json("run", model, "--device", device, "--threads", "1", "--seed",
                                   seed, "--checksums", "--output-dir", directory)
                self.assert_outputs(wanted["outputs"], report["outputs"], context, directory)
            tapped = {tensor["index"]: tensor for tensor in report["tensors"]}
            for index, tensor in tapped.items():
                if tensor["dtype"] != "float32":
                    self.assertEqual(wanted["tensors"][str(index)], tensor["sha256"],
                                     f"{context}: {index}")
            if device == "cpu":
                # Apart from the inputs, which no operator writes, all of them.
                self.assertEqual(set(tapped), written & set(map(int, wanted["tensors"])), context)
                self.assertEqual(written & set(map(int, wanted["tensors"])), written, context)

    def verify_with_two_threads(self, name, device):
        report = self.json("verify", MODELS / f"{name}.tflite", "--device", device, "--threads",
                           "2", "--against", f"golden:{GOLDEN / 'models'}")
        self.assertTrue(report["equal"], name)
        self.assertEqual([result["seed"] for result in report["seeds"]], [1, 2])

    def check_models(self, device):
        self.assertGreaterEqual(len(NAMES), 25)
        for name in NAMES:
            with self.subTest(name):
                self.check_model(name, device)
                self.verify_with_two_threads(name, device)


class OnTheCpu(GoldenTest):
    def test_models(self):
        self.check_models("cpu")


class OnTheEmulator(GoldenTest):
    def test_models(self):
        self.check_models("emu")

    def test_models_on_other_profiles(self):
        """Memory (1 MiB streams parameters) and link change no byte."""
        for name in ("mobilenet_v2_1.0_224_quant", "mlperf_tiny_resnet8_int8"):
            for profile in ("emu:1mib", "emu:usb2"):
                with self.subTest(name, device=profile):
                    self.check_model(name, profile)

    def test_models_without_results(self):
        """What TensorFlow Lite refuses has at least the CPU's bytes."""
        for name in sorted(WITHOUT_RESULTS):
            with self.subTest(name):
                report = self.json("verify", MODELS / f"{name}.tflite", "--device", "emu")
                self.assertTrue(report["equal"], report)

    def test_models_cycle_by_cycle(self):
        """The stepped face of the emulator, which shares no arithmetic with anything."""
        for name in ("keras_lstm_mnist_ptq", "mlperf_tiny_kws_int8", "mobilenet_v2_1.0_224_quant"):
            with self.subTest(name):
                self.check_model(name, "emu+stepped")


class OnOtherArrays(GoldenTest):
    def test_models_on_32x32(self):
        self.check_models("emu:32x32")

    def test_models_on_128x128(self):
        self.check_models("emu:128x128")


class Pictures(GoldenTest):
    def test_as_raw_inputs(self):
        for path in sorted((GOLDEN / "images").glob("*.json")):
            model = path.stem.split("__")[0]
            golden = json.loads(path.read_text())
            for device in ("cpu", "emu"):
                with self.subTest(path.stem, device=device), \
                        tempfile.TemporaryDirectory() as directory:
                    report = self.json("run", MODELS / f"{model}.tflite", "--device", device,
                                       "--input", f"0={path.with_suffix('.raw')}",
                                       "--output-dir", directory)
                    self.assert_outputs(golden["outputs"], report["outputs"], path.stem, directory)


class Classify(CommandTest):
    LABELS = MODELS / "imagenet_labels.txt"

    def top(self, model, image, *arguments):
        report = self.json("classify", MODELS / model, IMAGES / image, *arguments)
        return [entry for entry in report["images"][0]["top"]]

    def test_pictures(self):
        cats = {"Egyptian cat", "tabby, tabby cat", "tiger cat"}
        expected = {"parrot.jpg": {"macaw"}, "cat.bmp": cats, "grace_hopper.bmp":
                    {"military uniform"}}
        for device in ("cpu", "emu"):
            for image, names in expected.items():
                with self.subTest(image, device=device):
                    top = self.top("mobilenet_v2_1.0_224_quant.tflite", image, "--device", device,
                                   "--labels", self.LABELS)
                    self.assertIn(top[0]["label"], names)
                    self.assertEqual(len(top), 5)
                    self.assertGreater(top[0]["score"], 0.5)

    def test_emulator_equals_cpu(self):
        for image in ("owl.jpg", "cat_720p.jpg", "squat.bmp"):
            scores = [self.top("tf2_mobilenet_v2_1.0_224_ptq.tflite", image, "--device", device,
                               "--top-k", "1001") for device in ("cpu", "emu")]
            self.assertEqual(scores[0], scores[1])

    def test_int8_input_without_resizing(self):
        """The picture has the model's size, so the scores are TensorFlow Lite's, exactly."""
        for image in ("person.bmp", "no_person.bmp"):
            stem = pathlib.Path(image).stem
            golden = json.loads(
                (GOLDEN / "images" / f"mlperf_tiny_vww_96_int8__{stem}.json").read_text())
            top = self.top("mlperf_tiny_vww_96_int8.tflite", image, "--device", "cpu")
            stored = struct.unpack("2b", base64.b64decode(golden["outputs"][0]["base64"]))
            scores = {entry["index"]: entry["score"] for entry in top}
            self.assertEqual([scores[0], scores[1]], [(q + 128) / 256 for q in stored])

    def test_several_pictures_one_report(self):
        report = self.json("classify", MODELS / "mobilenet_v1_0.25_128_quant.tflite",
                           IMAGES / "parrot.jpg", IMAGES / "owl.jpg", "--top-k", "1")
        self.assertEqual([len(image["top"]) for image in report["images"]], [1, 1])

    def test_mean_and_std_quantize(self):
        """Scale 1/128 and zero point 128: (p - 128) / 128 is stored as p again."""
        arguments = ("mobilenet_v1_0.25_128_quant.tflite", "parrot.jpg", "--device", "cpu")
        self.assertEqual(self.top(*arguments),
                         self.top(*arguments, "--mean", "128", "--std", "128"))
        self.assertNotEqual(self.top(*arguments),
                            self.top(*arguments, "--mean", "0", "--std", "255"))


if __name__ == "__main__":
    need(GOLDEN / "models")
    need(MODELS)
    unittest.main()
