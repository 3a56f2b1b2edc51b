# SPDX-License-Identifier: Apache-2.0
"""A C program for TensorFlow Lite with our library in its place, and with our delegate under the
original: the bytes of outputs are those of TensorFlow Lite's reference kernels."""
import unittest

from tflite_programs import (DELEGATE, ORIGINAL_LIBRARIES, SHARED, SOURCE, equal_to_golden,
                             golden_models, need_original, need_shared, run_model)

FASHION = SOURCE / "models/fashion/fashion_int8.tflite"


class GoldenTest(unittest.TestCase):
    longMessage = True

    def check(self, *arguments, **options):
        compared = 0
        for name, model, seeds in golden_models():
            for seed, wanted in seeds.items():
                with self.subTest(model=name, seed=seed):
                    result = run_model(model, seed, *arguments, **options)
                    self.assertEqual(result.code, 0, result.stderr)
                    self.assertTrue(equal_to_golden(result.stdout, wanted["outputs"]), name)
                    compared += 1
        self.assertGreaterEqual(compared, 50)


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


if __name__ == "__main__":
    unittest.main()
