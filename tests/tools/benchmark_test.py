# SPDX-License-Identifier: Apache-2.0
"""`atoll benchmark` of several models, devices and numbers of threads, and its `compare`."""
import json
import random
import subprocess
import sys
import unittest

from atoll_command import CommandTest, FASHION_MODEL, SOURCE, run


class Matrix(CommandTest):
    def test_every_combination_is_an_entry(self):
        copy = self.directory / "other.tflite"
        copy.write_bytes(FASHION_MODEL.read_bytes())
        report = self.json("benchmark", FASHION_MODEL, copy, "--device", "cpu", "--device", "emu",
                           "--threads", "1,2", "--runs", "25")
        found = [(entry["model"], entry["device"]["name"], entry["threads"])
                 for entry in report["entries"]]
        expected = [(str(model), device, threads) for model in (FASHION_MODEL, copy)
                    for device in ("cpu", "emu") for threads in (1, 2)]
        self.assertEqual(found, expected)
        for entry in report["entries"]:
            self.assertEqual(len(entry["samples_ms"]), 25)
            self.assertEqual(min(entry["samples_ms"]), entry["latency_ms"]["min"])
            self.assertLessEqual(entry["arena_lower_bound_bytes"], entry["arena_bytes"])
        for key in ("cpu", "kernels", "logical_cpus", "system", "peak_gmacs"):
            self.assertIn(key, report["machine"])
        self.assertGreater(report["peak_rss_bytes"], 1 << 20)

    def test_text_is_a_table(self):
        text = self.succeed("benchmark", FASHION_MODEL, "--device", "cpu", "--threads", "1",
                            "--threads", "2", "--runs", "3").stdout.splitlines()
        self.assertEqual(len(text), 4)
        self.assertTrue(text[-1].endswith(str(FASHION_MODEL)))

    def test_one_entry_has_samples_and_the_machine(self):
        report = self.json("benchmark", FASHION_MODEL, "--device", "cpu", "--runs", "7")
        self.assertEqual(len(report["samples_ms"]), 7)
        self.assertIn("cpu", report["machine"])

    def test_many_samples_are_thinned(self):
        report = self.json("benchmark", FASHION_MODEL, "--device", "cpu", "--runs", "3001")
        self.assertEqual(len(report["samples_ms"]), 1501)

    def test_a_model_is_needed(self):
        self.assertEqual(run("benchmark").code, 2)


class Compare(CommandTest):
    def report(self, name, entries):
        """`entries`: samples by model."""
        path = self.directory / name
        path.write_text(json.dumps({
            "schema": 1, "command": "benchmark", "entries": [
                {"model": f"/some/where/{model}", "device": {"name": "cpu"}, "threads": 1,
                 "samples_ms": samples} for model, samples in entries.items()]}))
        return path

    @staticmethod
    def samples(seed, median, count=200):
        random_numbers = random.Random(seed)
        return [median * random_numbers.uniform(0.95, 1.08) for _ in range(count)]

    def compare_files(self, first, second):
        report = json.loads(self.succeed("benchmark", "compare", first, second, "--json").stdout)
        self.assertEqual(report["command"], "benchmark compare")
        return report

    def compare(self, first, second):
        return self.compare_files(self.report("a.json", first), self.report("b.json", second))

    def test_the_same_report_is_noise(self):
        path = self.report("a.json", {"m": self.samples(1, 5)})
        report = self.compare_files(path, path)
        self.assertEqual(report["entries"][0]["ratio"], 1)
        self.assertEqual(report["entries"][0]["verdict"], "noise")
        self.assertEqual(report["geometric_mean"]["verdict"], "noise")

    def test_verdicts(self):
        first = {"same": self.samples(1, 5), "faster": self.samples(2, 5),
                 "slower": self.samples(3, 0.01), "gone": [1.0]}
        second = {"new": [1.0], "slower": self.samples(4, 0.012), "faster": self.samples(5, 4),
                  "same": self.samples(6, 5.02)}
        report = self.compare(first, second)
        self.assertEqual({entry["name"]: entry["verdict"] for entry in report["entries"]},
                         {"same, cpu, 1 thread": "noise", "faster, cpu, 1 thread": "better",
                          "slower, cpu, 1 thread": "worse"})
        for entry in report["entries"]:
            self.assertLessEqual(entry["low"], entry["ratio"])
            self.assertLessEqual(entry["ratio"], entry["high"])
        product = 1
        for entry in report["entries"]:
            product *= entry["ratio"]
        self.assertAlmostEqual(report["geometric_mean"]["ratio"], product ** (1 / 3), places=3)

    def test_equal_distributions_are_noise(self):
        """Nineteen of twenty intervals hold 1, and a difference must exceed 1 % besides."""
        wrong = 0
        for seed in range(40):
            report = self.compare({"m": self.samples(seed, 5)}, {"m": self.samples(seed + 999, 5)})
            wrong += report["entries"][0]["verdict"] != "noise"
        self.assertLessEqual(wrong, 2)

    def test_an_outlier_is_no_difference(self):
        second = self.samples(2, 5)
        second[17] = 5000
        report = self.compare({"m": self.samples(1, 5)}, {"m": second})
        self.assertEqual(report["entries"][0]["verdict"], "noise")

    def test_reports_of_one_model(self):
        paths = []
        for name in ("a.json", "b.json"):
            paths.append(self.file(name, self.succeed(
                "benchmark", FASHION_MODEL, "--device", "cpu", "--runs", "30", "--json")
                .stdout.encode()))
        report = self.compare_files(*paths)
        self.assertEqual(len(report["entries"]), 1)
        text = self.succeed("benchmark", "compare", *paths).stdout
        self.assertIn("geometric mean of 1", text)

    def test_what_is_no_report(self):
        good = self.report("good.json", {"m": [1.0]})
        for content in (b"", b"{", b"[]", b'{"command": "run"}', b"\xff\xfe",
                        b'{"command": "benchmark", "entries": [{}]}',
                        b'{"command": "benchmark", "entries": 3}',
                        b'{"command": "benchmark", "entries": []}'):
            bad = self.file("bad.json", content)
            for arguments in ((bad, good), (good, bad)):
                result = run("benchmark", "compare", *arguments)
                self.assertEqual(result.code, 1, content)
                self.assertEqual(result.stderr.count("\n"), 1)
                self.assertEqual(result.stdout, "")
        for samples in ([], [0.0], [-1.0]):
            bad = self.report("bad.json", {"m": samples})
            self.assertEqual(run("benchmark", "compare", good, bad).code, 1)
        self.assertEqual(run("benchmark", "compare", good, self.directory / "none").code, 1)
        both = run("benchmark", "compare", self.directory / "first", self.directory / "second")
        self.assertIn("first': No such file", both.stderr)
        self.assertEqual(
            run("benchmark", "compare", good, self.report("other.json", {"x": [1.0]})).code, 1)


class Tables(CommandTest):
    def test_a_row_per_model_and_device(self):
        path = self.file("report.json", self.succeed(
            "benchmark", FASHION_MODEL, "--device", "cpu", "--threads", "1,2", "--runs", "5",
            "--json").stdout.encode())
        done = subprocess.run([sys.executable, "-B", SOURCE / "bench/tables.py", path],
                              capture_output=True, check=True, text=True)
        rows = [line for line in done.stdout.splitlines() if line.startswith("| fashion")]
        self.assertEqual(len(rows), 1)
        self.assertEqual(rows[0].count("|"), 7)


if __name__ == "__main__":
    unittest.main()
