# SPDX-License-Identifier: Apache-2.0
"""`atoll quantize` and `atoll import` from files to files, with samples of every kind."""
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
import unittest
import zipfile

from atoll_command import COMMAND, FLATC, SHARED, SOURCE, CommandTest, absent, run

SIDE, CHANNELS, FILTERS = 8, 3, 4


def npy(shape, values, descr="<f4", code="f", order="<", fortran=False):
    """A .npy file, as NumPy's documentation describes it."""
    header = repr({"descr": descr, "fortran_order": fortran, "shape": tuple(shape)}).encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header +
            struct.pack(f"{order}{len(values)}{code}", *values))


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, content):
    """Of protobuf's wire format."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def onnx_relu(sizes, batch=None):
    """An ONNX file of one Relu from x to y."""
    def value(name):
        dims = b"".join(field(1, field(1 if isinstance(size, int) else 2, size)) for size in sizes)
        if batch is not None:
            dims = field(1, field(2, batch)) + dims
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))
    node = field(1, b"x") + field(2, b"y") + field(4, b"Relu")
    graph = field(1, node) + field(2, b"g") + field(11, value(b"x")) + field(12, value(b"y"))
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))


class Quantize(CommandTest):
    def setUp(self):
        super().setUp()
        self.output = self.directory / "int8.tflite"
        self.float_model = self.convolution()
        self.generator = random.Random(1)

    def convolution(self):
        """A CONV_2D of float32 with RELU: weights and biases made up."""
        generator = random.Random(7)
        floats = lambda count: list(struct.pack(
            f"<{count}f", *(generator.uniform(-1, 1) for _ in range(count))))
        tensors = [("picture", [1, SIDE, SIDE, CHANNELS], 0), ("w", [FILTERS, 3, 3, CHANNELS], 1),
                   ("b", [FILTERS], 2), ("features", [1, SIDE, SIDE, FILTERS], 0)]
        source = self.file("float.json", json.dumps({
            "version": 3, "operator_codes": [{"builtin_code": 3, "deprecated_builtin_code": 3}],
            "buffers": [{}, {"data": floats(FILTERS * 9 * CHANNELS)}, {"data": floats(FILTERS)}],
            "subgraphs": [{
                "inputs": [0], "outputs": [3],
                "tensors": [{"name": name, "shape": shape, "type": 0, "buffer": buffer}
                            for name, shape, buffer in tensors],
                "operators": [{"inputs": [0, 1, 2], "outputs": [3],
                               "builtin_options_type": "Conv2DOptions",
                               "builtin_options": {"padding": 0, "stride_w": 1, "stride_h": 1,
                                                   "fused_activation_function": 1}}]}],
        }).encode())
        subprocess.run([FLATC, "--binary", "-o", self.directory,
                        SOURCE / "models/schema/tflite.fbs", source], check=True)
        return self.directory / "float.tflite"

    def values(self, count):
        return [self.generator.uniform(-1, 1) for _ in range(count)]

    def array(self, name="samples.npy", samples=20, **options):
        shape = (samples, SIDE, SIDE, CHANNELS)
        return self.file(name, npy(shape, self.values(samples * SIDE * SIDE * CHANNELS), **options))

    def archive(self, entries, compression=zipfile.ZIP_STORED):
        path = self.directory / "samples.npz"
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, content in entries.items():
                archive.writestr(name + ".npy", content)
        return path

    def picture(self, name):
        pixels = bytes(self.generator.randrange(256) for _ in range(16 * 16 * 3))
        path = self.directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"P6 16 16 255\n" + pixels)
        return path

    def quantize(self, *calibrate, options=(), model=None):
        return self.json("quantize", model or self.float_model, "--calibrate", *calibrate, "-o",
                         self.output, *options)

    def refused(self, code, calibrate, *mentions, options=()):
        self.fail_with(code, ["quantize", self.float_model, "--calibrate", *calibrate, "-o",
                              self.output, *options], *mentions)
        self.assertFalse(self.output.exists())

    def test_report_and_file(self):
        page = self.directory / "report.html"
        report = self.quantize(self.array(), options=["--report", page])
        self.assertEqual(report["calibration"]["samples"], 20)
        self.assertEqual(report["bytes_after"], self.output.stat().st_size)
        self.assertGreater(report["logits_sqnr_db"], 30)
        self.assertLess(report["logits_sqnr_db"], 60)
        self.assertEqual([layer["type"] for layer in report["layers"]], ["int8"])
        self.assertEqual(sum(report["layers"][0]["histogram"]), 20 * SIDE * SIDE * FILTERS)
        after = report["device"]["after"]
        self.assertEqual((after["on_device"], after["on_cpu"]), (after["operators"], []))
        self.assertGreater(after["modelled_ms"], 0)
        self.assertEqual(report["device"]["before"]["on_device"], 0)
        # The page has the same numbers.
        text = page.read_text(encoding="utf-8")
        data = text[text.index('type="application/json">') + 24:]
        self.assertEqual(json.loads(data[:data.index("</script>")])["layers"], report["layers"])
        # And the file runs, the same everywhere.
        self.succeed("verify", self.output, "--device", "emu", "--against", "cpu")
        self.assertIn("int8", self.succeed("inspect", self.output).stdout)

    def test_text(self):
        text = self.succeed("quantize", self.float_model, "--calibrate", self.array(), "-o",
                            self.output).stdout
        self.assertRegex(text, r"samples   20\nlayers    1 int8\nSQNR      logits \d\d\.\d dB")

    def test_kinds_of_arrays(self):
        count = 20 * SIDE * SIDE * CHANNELS
        shape = (20, SIDE, SIDE, CHANNELS)
        values = self.values(count)
        small = [struct.unpack("<f", struct.pack("<f", value))[0] for value in values]
        wanted = None
        for content in (npy(shape, small), npy(shape, small, "<f8", "d"),
                        npy(shape, small, ">f4", "f", ">"),
                        npy((20, 1, *shape[1:]), small)):
            for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                layers = self.quantize(self.archive({"arr_0": content}, compression))["layers"]
                wanted = wanted or layers
                self.assertEqual(layers, wanted)
        # Channels first, as ONNX has them.
        first = [small[((sample * SIDE + y) * SIDE + x) * CHANNELS + c] for sample in range(20)
                 for c in range(CHANNELS) for y in range(SIDE) for x in range(SIDE)]
        self.assertEqual(self.quantize(self.archive(
            {"picture": npy((20, CHANNELS, SIDE, SIDE), first)}))["layers"], wanted)
        for descr, code in (("|u1", "B"), ("|i1", "b"), ("<i2", "h"), ("<i4", "i"), ("<i8", "q"),
                            ("<f2", "e"), ("|b1", "?")):
            content = npy(shape, [self.generator.randrange(2) for _ in range(count)], descr, code)
            low, high = self.quantize(self.file("a.npy", content))["inputs"][0]["range"]
            self.assertEqual((low, high), (0, 1), descr)

    def test_pictures_and_cameras(self):
        for index in range(3):
            self.picture(f"b/{index}.ppm")
        last = self.picture("a/z.ppm")
        report = self.quantize(self.directory)
        self.assertEqual(report["calibration"]["samples"], 4)
        self.assertIn(str(last), [entry["name"] for entry in report["worst"]])
        low, high = report["inputs"][0]["range"]
        self.assertTrue(-1 <= low < -0.5 and 0.5 < high <= 1, (low, high))
        scaled = self.quantize(self.directory, options=["--mean", "0", "--std", "255"])
        self.assertGreaterEqual(scaled["inputs"][0]["range"][0], 0)
        self.assertEqual(self.quantize(last, self.directory / "b", options=["--samples", "2"])
                         ["calibration"]["samples"], 2)
        self.assertEqual(self.quantize("camera:test", options=["--samples", "5"])
                         ["calibration"]["samples"], 5)

    def test_choices(self):
        samples = self.array()
        plain = self.quantize(samples)
        wide = self.quantize(samples, options=["--16x8"])
        self.assertEqual(wide["layers"][0]["type"], "16x8")
        self.assertGreater(wide["logits_sqnr_db"], plain["logits_sqnr_db"])
        kept = self.quantize(samples, options=["--keep-float", "features"])
        self.assertEqual(kept["layers"][0]["type"], "float")
        ends = self.quantize(samples, options=["--float-io"])
        self.assertEqual([ends[end][0]["type"] for end in ("inputs", "outputs")], ["float32"] * 2)
        ends = self.quantize(samples, options=["--input-type", "uint8"])
        self.assertEqual(ends["inputs"][0]["type"], "uint8")
        searched = self.quantize(samples, options=["--target-sqnr", "55"])
        self.assertGreater(searched["logits_sqnr_db"], plain["logits_sqnr_db"])
        self.assertTrue(searched["choices"])
        command = f"{sys.executable} -c \"import os, sys; print('size', os.path.getsize('{{}}'))\""
        measured = self.quantize(samples, options=["--accuracy-command", command,
                                                   "--target-accuracy", "1"])
        self.assertEqual(measured["layers"][0]["type"], "int8")

    def test_refusals(self):
        samples = self.array()
        self.refused(2, [self.array("wrong.npy", fortran=True)], "Fortran")
        self.refused(2, [self.file("s.npy", npy((4, 7), self.values(28)))], "[4,7]", "picture")
        self.refused(2, [self.file("s.npy", npy((0, SIDE, SIDE, CHANNELS), []))], "no samples")
        self.refused(2, [self.file("s.npy", b"\x93NUMPY\x01")], "s.npy")
        self.refused(2, [self.file("s.npy", samples.read_bytes()[:-1])], "fewer values")
        self.refused(2, [self.file("s.npy", npy((2**62, 4), []))], "too large")
        self.refused(2, [self.file("s.npz", b"PK")], "s.npz")
        self.refused(2, [self.file("s.npy", npy((1, SIDE, SIDE, CHANNELS), self.values(192), "|O"))],
                     "|O")
        damaged = bytearray(self.archive({"a": samples.read_bytes()}).read_bytes())
        damaged[3000] ^= 1
        self.refused(2, [self.file("s.npz", bytes(damaged))], "checksum")
        nan = self.values(SIDE * SIDE * CHANNELS)
        nan[5] = float("nan")
        self.refused(2, [self.file("s.npy", npy((1, SIDE, SIDE, CHANNELS), nan))], "nan")
        two = {"a": samples.read_bytes(), "b": samples.read_bytes()}
        self.refused(2, [self.archive(two)], "2 arrays")
        self.refused(1, [self.directory / "absent.jpg"], "absent.jpg")
        self.refused(1, [self.file("x.jpg", b"no picture")], "x.jpg")
        (self.directory / "empty").mkdir()
        self.refused(2, [self.directory / "empty"], "no picture")
        self.refused(2, [samples], "--target-accuracy", options=["--accuracy-command", "true"])
        self.refused(1, [samples], "printed no number",
                     options=["--accuracy-command", "true", "--target-accuracy", "1"])
        self.refused(2, [samples], "auto:", options=["--keep-float", "auto:x"])
        self.refused(2, [samples], "nowhere", options=["--keep-float", "nowhere"])
        self.refused(2, [samples], ".html", options=["--report", self.directory / "r.txt"])
        self.fail_with(4, ["quantize", self.file("m.onnx", b"\xff" * 40), "--calibrate", samples,
                           "-o", self.output], "m.onnx")

    def test_samples_that_cannot_be_opened(self):
        self.refused(1, [self.directory / "absent.npz"], "absent.npz")
        self.refused(1, [self.directory / "absent.npy"], "absent.npy")
        self.refused(2, [self.array()], "nan", "finite", options=["--mean", "nan"])

    def test_accuracy_is_a_word_of_its_own(self):
        samples = self.array()
        measure = lambda command: ["--accuracy-command", command, "--target-accuracy", "0.5"]
        self.refused(1, [samples], "printed no number", options=measure("echo {} model1.tflite"))
        for printed in ("accuracy=0.9", "0.9 of {}", "top-1: 0.9,", "(0.9)", "90 %"):
            self.quantize(samples, options=measure(f"echo '{printed}'"))

    def test_half_quantized_file(self):
        model = SHARED / "models/float/mlperf_tiny_kws_hybrid.tflite"
        if not model.exists():
            absent("models/float", is_reference=True)
        samples = self.file("s.npy", npy((16, 49, 10, 1), self.values(16 * 490)))
        report = self.quantize(samples, model=model)
        self.assertEqual({layer["type"] for layer in report["layers"]}, {"int8"})
        self.assertIsNone(report["device"]["before"]["cpu_ms"])
        self.assertIn("float32", report["device"]["before"]["reason"])
        self.assertIn("does not run", self.succeed("quantize", model, "--calibrate", samples, "-o",
                                                   self.output).stdout)
        # Whoever runs it hears what helps.
        self.fail_with(4, ["run", model, "--device", "cpu"], "atoll quantize")

    def test_old_readers(self):
        report = self.quantize(self.array(), options=["--per-tensor-fully-connected"])
        self.assertEqual(report["options"]["fully_connected"], "per tensor")

    def test_inputs_are_not_overwritten(self):
        self.fail_with(2, ["quantize", self.float_model, "--calibrate", self.array(), "-o",
                           self.float_model], "float.tflite")

    def test_interruption_leaves_no_file(self):
        slow = "sleep 60; echo 1 {}"
        process = subprocess.Popen(
            [*COMMAND, "quantize", str(self.float_model), "--calibrate", str(self.array()), "-o",
             str(self.output), "--accuracy-command", slow, "--target-accuracy", "2"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        time.sleep(1)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0, errors)
        self.assertFalse(self.output.exists())

    def test_import(self):
        model = self.file("relu.onnx", onnx_relu([1, 3, 4, 5]))
        report = self.json("import", model, "-o", self.output)
        self.assertEqual(report["bytes_after"], self.output.stat().st_size)
        self.assertIn("[1,4,5,3]", self.succeed("inspect", self.output).stdout)
        self.json("import", model, "-o", self.output, "--keep-layout")
        self.assertIn("[1,3,4,5]", self.succeed("inspect", self.output).stdout)
        batched = self.file("batch.onnx", onnx_relu([6], batch=b"n"))
        self.json("import", batched, "-o", self.output, "--input-shape", "x=2x6")
        self.assertIn("[2,6]", self.succeed("inspect", self.output).stdout)
        # And straight from ONNX, with samples in its own order.
        samples = self.file("s.npy", npy((4, 3, 4, 5), self.values(240)))
        self.assertEqual(self.quantize(samples, model=model)["layers"][0]["operator"], "RELU")

    def test_sizes_that_no_one_knows(self):
        sizes = lambda *dims: self.file("m.onnx", onnx_relu(dims))
        self.json("import", sizes(b"n", 3, 4, 5), "-o", self.output)
        self.assertIn("[1,4,5,3]", self.succeed("inspect", self.output).stdout)
        self.output.unlink()
        for command in (["import", sizes(b"n", 3, b"height", b"width"), "-o", self.output],
                        ["quantize", sizes(b"n", 3, b"height", b"width"), "-o", self.output,
                         "--calibrate", self.array()]):
            self.fail_with(2, command, "'x'", "--input-shape x=1x3x?x?")
        self.assertFalse(self.output.exists())
        self.json("import", sizes(b"n", 3, b"height", b"width"), "-o", self.output, "--input-shape",
                  "x=1x3x4x6")
        self.assertIn("[1,4,6,3]", self.succeed("inspect", self.output).stdout)
        self.fail_with(2, ["quantize", sizes(1, 3, 4, 5), "-o", self.output, "--calibrate",
                           self.array(), "--input-shape", "4x5"], "all 4 sizes",
                       "order of the ONNX file")

    def test_files_that_are_no_models(self):
        for content in (b"BM" + bytes(200), b"\x89PNG\r\n\x1a\n", b""):
            self.fail_with(4, ["import", self.file("cat.bmp", content), "-o", self.output],
                           "neither a .tflite nor an ONNX file")
        onnx = self.file("m.onnx", onnx_relu([1, 3]))
        self.fail_with(4, ["run", onnx], "'atoll import'", "'atoll quantize'")

    def test_import_refusals(self):
        self.fail_with(2, ["import", self.float_model, "-o", self.output], "float.tflite")
        for content in (b"", b"\x08", b"\xff" * 100, onnx_relu([1, 3])[:-9]):
            result = run("import", self.file("m.onnx", content), "-o", self.output)
            self.assertEqual(result.code, 4, (content, result.stderr))
            self.assert_sentence(content, result)
        self.fail_with(2, ["import", self.file("m.onnx", onnx_relu([1, 3])), "-o", self.output,
                           "--input-shape", "0=1x3"], "by name")
        self.assertFalse(self.output.exists())


if __name__ == "__main__":
    unittest.main()
