# SPDX-License-Identifier: Apache-2.0
"""bench/against_tflite: Atoll and a libtensorflowlite_c.so in turns. With ours as the other side, and
with the one that npm brings."""
import json
import os
import pathlib
import subprocess
import unittest

from tflite_programs import (ORIGINAL_LIBRARIES, SHARED, SOURCE, STAND_IN, need_original,
                             need_shared)

PROGRAM = os.environ["ATOLL_AGAINST_TFLITE"]
CORE = os.environ["ATOLL_CORE"]
FASHION = SOURCE / "models/fashion/fashion_int8.tflite"
OURS = STAND_IN / "libtensorflowlite_c.so"
THEIRS = ORIGINAL_LIBRARIES / "libtensorflowlite_c.so"


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True,
                          timeout=300, check=False)


class AgainstTest(unittest.TestCase):
    longMessage = True

    def report(self, *arguments):
        done = run("--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        for model in report["models"]:
            for side in ("tflite", "atoll"):
                self.assertGreater(model[side]["min_ms"], 0)
                self.assertGreaterEqual(model[side]["median_ms"], model[side]["min_ms"])
            for ratio, figure in (("ratio", "min_ms"), ("ratio_of_medians", "median_ms")):
                self.assertAlmostEqual(
                    model[ratio], model["tflite"][figure] / model["atoll"][figure], places=6)
        return report

    def check_memory(self, side):
        """The kernel's figures, which are of one process."""
        self.assertGreaterEqual(side["peak_rss_kib"], side["rss_kib"])
        self.assertGreater(side["rss_kib"], side["rss_anon_kib"])
        self.assertGreater(side["rss_anon_kib"], 0)


class StandIn(AgainstTest):
    def test_both_sides_run_and_compute_the_same(self):
        report = self.report("--runs", 23, OURS, FASHION)
        [model] = report["models"]
        self.assertEqual(model["model"], "fashion_int8")
        self.assertEqual((model["output_bytes"], model["different_bytes"]), (10, 0))
        # Ours has functions for an XNNPACK that takes nothing.
        self.assertEqual((model["peer"], model["xnnpack"]), ("builtin kernels", False))
        self.assertIsNone(report["geometric_mean_xnnpack"])
        self.assertAlmostEqual(report["geometric_mean_builtin"], model["ratio"], places=6)
        self.assertEqual((report["runs"], report["threads"]), (23, 1))
        for side in ("tflite", "atoll"):
            self.assertIsNone(model[side]["peak_rss_kib"])

    def test_memory_is_that_of_one_side_of_one_model(self):
        large = SHARED / "models/deeplabv3_mnv2_dm05_pascal_quant.tflite"
        need_shared(large)
        report = self.report("--memory", "--runs", 1, OURS, large, FASHION)
        big, small = report["models"]
        for side in ("tflite", "atoll"):
            self.check_memory(big[side])
            self.check_memory(small[side])
            # Its arena has 8 MiB; had one process run both, the second would have the first's peak.
            self.assertGreater(big[side]["peak_rss_kib"], small[side]["peak_rss_kib"] + 4096)

    def test_table(self):
        done = run("--memory", "--runs", 1, OURS, FASHION, FASHION)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        # Twice with times, twice with memory.
        self.assertEqual(sum(line.startswith("| fashion_int8 | builtin kernels |")
                             for line in lines), 4, done.stdout)
        self.assertEqual(sum(line.startswith("| geometric mean |") for line in lines), 1)

    def test_what_cannot_be_opened_is_named(self):
        absent = pathlib.Path("/nonexistent/libtensorflowlite_c.so")
        cases = (((absent, FASHION), str(absent)),
                 ((CORE, FASHION), "has no function TfLiteVersion"),
                 (("--atoll", "libc.so.6", OURS, FASHION), "has no function AtollVersion"),
                 ((OURS, "/nonexistent.tflite"), "/nonexistent.tflite"),
                 ((OURS, PROGRAM), PROGRAM),
                 (("--memory", OURS, "/nonexistent.tflite"), "/nonexistent.tflite"))
        for arguments, named in cases:
            with self.subTest(arguments=arguments):
                done = run(*arguments)
                self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
                self.assertIn(named, done.stderr)

    def test_models_that_cannot_run_leave_the_others(self):
        done = run("--json", "--runs", 1, OURS, "/nonexistent.tflite", FASHION, PROGRAM)
        self.assertEqual(done.returncode, 1)
        self.assertEqual([model["model"] for model in json.loads(done.stdout)["models"]],
                         ["fashion_int8"])
        self.assertIn("/nonexistent.tflite", done.stderr)
        self.assertIn(PROGRAM, done.stderr)

    def test_usage(self):
        for arguments in ((), (OURS,), ("--threads", "0", OURS, FASHION),
                          ("--threads", "2x", OURS, FASHION), ("--runs", "0", OURS, FASHION),
                          ("--side", "both", OURS, FASHION), ("--fast", OURS, FASHION),
                          (OURS, FASHION, "--runs")):
            with self.subTest(arguments=arguments):
                done = run(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn("usage: against_tflite", done.stderr)


class UnderTheOriginal(AgainstTest):
    def test_int8_runs_on_xnnpack_and_uint8_does_not(self):
        need_original()
        int8 = SHARED / "models/mlperf_tiny_kws_int8.tflite"
        uint8 = SHARED / "models/mobilenet_v1_0.25_128_quant.tflite"
        need_shared(int8)
        report = self.report("--memory", "--runs", 12, THEIRS, int8, uint8)
        self.assertTrue(report["tflite"].startswith("2.9"), report["tflite"])
        kws, mobilenet = report["models"]
        self.assertRegex(kws["peer"], "^XNNPACK, 1[0-3] of 13 nodes$")
        self.assertTrue(kws["xnnpack"])
        self.assertEqual(kws["output_bytes"], 12)
        # Its builtin kernels have the reference's bytes of this one.
        self.assertEqual((mobilenet["peer"], mobilenet["xnnpack"]), ("builtin kernels", False))
        self.assertEqual((mobilenet["output_bytes"], mobilenet["different_bytes"]), (1001, 0))
        self.assertAlmostEqual(report["geometric_mean_xnnpack"], kws["ratio"], places=6)
        self.assertAlmostEqual(report["geometric_mean_builtin"], mobilenet["ratio"], places=6)
        for model in (kws, mobilenet):
            self.check_memory(model["tflite"])
            self.check_memory(model["atoll"])


if __name__ == "__main__":
    unittest.main()
