# SPDX-License-Identifier: Apache-2.0
"""A C program for TensorFlow Lite with our library in its place, and with our delegate under the
original: the bytes of outputs are those of TensorFlow Lite's reference kernels."""
import pathlib
import re
import subprocess
import tempfile
import unittest

from tflite_programs import (COMMAND, DELEGATE, ORIGINAL_LIBRARIES, SHARED, SOURCE, STAND_IN,
                             equal_to_golden, golden_models, need_original, need_shared, run_model)

FASHION = SOURCE / "models/fashion/fashion_int8.tflite"
# Their operator PosenetDecoderOp is not in TensorFlow Lite 2.9.
LACKING = ("posenet_mobilenet_v1_075_353_481_16_quant_decoder",
           "posenet_mobilenet_v1_075_353_481_quant_decoder")


class GoldenTest(unittest.TestCase):
    longMessage = True

    def check(self, *arguments, leave_out=(), least=50, **options):
        """What each run wrote to stderr."""
        compared, told = 0, []
        for name, model, seeds in golden_models():
            for seed, wanted in seeds.items() if name not in leave_out else ():
                with self.subTest(model=name, seed=seed):
                    result = run_model(model, seed, *arguments, **options)
                    self.assertEqual(result.code, 0, result.stderr)
                    self.assertTrue(equal_to_golden(result.stdout, wanted["outputs"]), name)
                    compared += 1
                    told.append(result.stderr)
        self.assertGreaterEqual(compared, least)
        return told


class StandIn(GoldenTest):
    def test_on_the_cpu(self):
        self.check()

    def test_on_the_device_of_the_environment(self):
        self.check(ATOLL_DEVICE="emu")

    def test_on_the_device_of_a_delegate(self):
        self.check("--delegate", DELEGATE, "device=emu")

    def test_a_delegate_without_its_device(self):
        # An error, as under the original: a program that wants a device would run without one.
        for device, why in (("EMU", "did you mean 'emu'"), ("usb:99", "no device on USB")):
            result = run_model(FASHION, 1, "--delegate", DELEGATE, f"device={device}")
            self.assertEqual(result.code, 1, result.stderr)
            self.assertIn(why, result.stderr)
            self.assertNotIn("left out", result.stderr)

    def test_what_runs_instead_of_a_compiled_model_is_told_once(self):
        models = SHARED / "models"
        need_shared(models)
        result = run_model(models / "edgetpu/mobilenet_v1_0.25_128_quant_edgetpu.tflite", 1,
                           "--repeat", "3", ATOLL_MODEL_PATH=str(models))
        self.assertEqual(result.code, 0, result.stderr)
        self.assertEqual(result.stderr.count("mobilenet_v1_0.25_128_quant.tflite' runs instead"), 1)


class UnderTheOriginal(GoldenTest):
    def setUp(self):
        need_original()

    def test_delegate_on_the_emulator(self):
        self.check("--delegate", DELEGATE, "device=emu", libraries=ORIGINAL_LIBRARIES)

    def test_delegate_on_the_cpu(self):
        self.check("--delegate", DELEGATE, "device=cpu", libraries=ORIGINAL_LIBRARIES)

    def test_a_network_of_int16_that_was_quantized_here(self):
        """Of the original's kernels alone, and of ours. (FULLY_CONNECTED, which is not in it, rounds
        otherwise since April of 2025.)"""
        source = SHARED / "models/float/mobilenet_v1_0.25_224_float.tflite"
        need_shared(source)
        with tempfile.TemporaryDirectory() as folder:
            made = pathlib.Path(folder, "int16.tflite")
            subprocess.run([COMMAND, "quantize", source, "--calibrate", SHARED / "images",
                            "--samples", "4", "--16x8", "-o", made],
                           check=True, capture_output=True)
            for seed in range(1, 4):
                theirs = run_model(made, seed, libraries=ORIGINAL_LIBRARIES)
                self.assertEqual(theirs.code, 0, theirs.stderr)
                self.assertEqual(len(theirs.stdout), 2 * 1001)
                self.assertEqual(run_model(made, seed).stdout, theirs.stdout)

    def test_operators_that_stay_with_the_runtime(self):
        """Those that the device does not have, or that would be a partition of few, are TensorFlow
        Lite's, on the bytes that Atoll gives it, and the other way round."""
        taken, others = [], []
        for leave_out, options in (((), ("ops=device",)),
                                   (("libredgetpu_dense_256",), ("ops=device", "min_nodes=6"))):
            # (Which TensorFlow Lite would have for itself, and rounds another way.)
            told = self.check("--delegate", DELEGATE, "device=emu", "verbosity=1", *options,
                              leave_out=LACKING + leave_out, least=40,
                              libraries=ORIGINAL_LIBRARIES)
            counts = [re.search(r"(\d+) of (\d+) operators are run here", text).groups()
                      for text in told]
            taken.append([int(here) for here, _ in counts if int(here) > 0])
            others.append(sum(here != all_of_them for here, all_of_them in counts))
        self.assertGreater(others[0], 0)
        self.assertGreater(others[1], others[0])
        self.assertLess(min(taken[0]), 6)
        self.assertGreaterEqual(min(taken[1]), 6)

    def test_several_interpreters_on_one_delegate(self):
        for name, model, seeds in golden_models():
            with self.subTest(model=name):
                result = run_model(model, 1, "--interpreters", 2, "--delegate", DELEGATE,
                                   "device=emu", libraries=ORIGINAL_LIBRARIES)
                self.assertEqual(result.code, 0, result.stderr)
                half = len(result.stdout) // 2
                for data in (result.stdout[:half], result.stdout[half:]):
                    self.assertTrue(equal_to_golden(data, seeds["1"]["outputs"]))

    def test_inputs_of_another_size(self):
        """There, and back; the bytes are those of Atoll's own kernels for these shapes."""
        need_shared(SHARED / "models")
        for name, there, back in (("hello_world_int8", "5,1", "1,1"),
                                  ("mlperf_tiny_ad01_int8", "3,640", "1,640"),
                                  ("edsr_f32b5_full_qint8", "1,24,40,3", "1,16,16,3"),
                                  ("mobilenet_v1_0.25_128_quant", "1,160,160,3", "1,128,128,3"),
                                  ("libredgetpu_dense_256", "4,256", "1,256")):
            arguments = (SHARED / f"models/{name}.tflite", 1, "--resize", there, "--resize", back,
                         "--repeat", 2)
            wanted = run_model(*arguments)
            for options in (("device=emu",), ("device=emu", "ops=device"), ("device=cpu",)):
                with self.subTest(model=name, options=options):
                    result = run_model(*arguments, "--delegate", DELEGATE, *options,
                                       libraries=ORIGINAL_LIBRARIES)
                    self.assertEqual(result.code, 0, result.stderr)
                    self.assertEqual(result.stdout, wanted.stdout)
                    self.assertGreater(len(result.stdout), 0)

    def test_sizes_that_the_model_cannot_have(self):
        need_shared(SHARED / "models")
        result = run_model(SHARED / "models/mobilenet_v1_0.25_128_quant.tflite", 1, "--resize",
                           "2,128,128,3", "--delegate", DELEGATE, "device=emu",
                           libraries=ORIGINAL_LIBRARIES)
        self.assertEqual(result.code, 1)
        self.assertIn("TfLiteInterpreterAllocateTensors failed", result.stderr)


class Faults(unittest.TestCase):
    """A device that fails in several runs, under the original. Each run reads outputs at least
    once, so that transfers of that kind are there to fail; and all these in one run are fewer than
    a request is tried."""
    RUNS = 8

    def setUp(self):
        need_original()

    def run_with(self, plan, model, loss):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory, "plan")
            file.write_text(plan)
            return run_model(model, 1, "--repeat", self.RUNS, "--delegate", DELEGATE, "device=emu",
                             f"faults={file}", f"on_device_loss={loss}",
                             libraries=ORIGINAL_LIBRARIES)

    def test_lose_no_request(self):
        for name, model, seeds in golden_models():
            wanted = run_model(model, 1, "--repeat", self.RUNS).stdout
            size = len(wanted) // self.RUNS
            self.assertTrue(equal_to_golden(wanted[:size], seeds["1"]["outputs"]), name)
            with self.subTest(model=name):  # only the device itself can complete them
                result = self.run_with("in 2 stall\nin 4 unplug 50ms\nin 6 unplug 50ms moved\n",
                                       model, "replay")
                self.assertEqual(result.code, 0, result.stderr)
                self.assertEqual(result.stdout, wanted)

    def test_plans_are_followed(self):
        stalls = "".join(f"in {number} stall\n" for number in range(2, 60))
        for plan, loss, why in (("in 4 unplug 50ms\n", "fail", "was unplugged"),
                                ("in 6 unplug 50ms moved\n", "fail", "was unplugged"),
                                ("out 2 unplug never\n", "fail", "was unplugged"),
                                (stalls, "fail", "stalled")):
            with self.subTest(plan=plan[:30]):
                result = self.run_with(plan, FASHION, loss)
                self.assertEqual(result.code, 1)
                self.assertIn(why, result.stderr)
        wanted = run_model(FASHION, 1, "--repeat", self.RUNS).stdout
        result = self.run_with("out 2 unplug never\n", FASHION, "fallback")
        self.assertEqual((result.code, result.stdout), (0, wanted), result.stderr)


def readelf(library, *options):
    return subprocess.run(["readelf", "-W", *options, str(library)], check=True, text=True,
                          capture_output=True).stdout


def exported(library):
    """The version of each name that others can link to."""
    names = dict(re.findall(r"(?:FUNC|OBJECT|NOTYPE|TLS) +(?:GLOBAL|WEAK|UNIQUE) +DEFAULT +"
                            r"(?:\d+|ABS) +([^@\s]+)(@@?\S+)?$",
                            readelf(library, "--dyn-syms"), re.M))
    assert names.pop("VERS_1.0") == ""
    return names


class Exports(unittest.TestCase):
    """What the library is to linkers and loaders."""
    LIBRARY = STAND_IN / "libtensorflowlite_c.so"

    def test_names_have_the_version(self):
        names = exported(self.LIBRARY)
        self.assertGreater(len(names), 80)
        self.assertEqual(set(names.values()), {"@@VERS_1.0"})
        self.assertEqual([name for name in names if not name.startswith("TfLite")], [])

    def test_it_is_called_as_its_file(self):
        self.assertIn("soname: [libtensorflowlite_c.so]", readelf(self.LIBRARY, "--dynamic"))


class ExportsOfTheOriginal(unittest.TestCase):
    def test_are_there(self):
        need_original()
        ours = exported(Exports.LIBRARY)
        for name in ("libtensorflowlite_c.so", "libexternal_delegate_obj.so"):
            with self.subTest(name):
                theirs = exported(ORIGINAL_LIBRARIES / name)
                self.assertGreater(len(theirs), 15)
                self.assertEqual({name: ours.get(name) for name in theirs}, theirs)
        soname = "soname: [libtensorflowlite_c.so]"
        self.assertIn(soname, readelf(ORIGINAL_LIBRARIES / "libtensorflowlite_c.so", "--dynamic"))


if __name__ == "__main__":
    unittest.main()
