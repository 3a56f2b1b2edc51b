# SPDX-License-Identifier: Apache-2.0
"""`atoll benchmark` of several models, devices and numbers of threads, and its `compare`."""
import csv
import json
import random
import re
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


class Measuring(CommandTest):
    CPU = ("--device", "cpu", "--threads", "1")

    def test_both_duration_and_runs(self):
        report = self.json("benchmark", FASHION_MODEL, *self.CPU, "--duration", "0.2")
        self.assertGreaterEqual(report["seconds"], 0.2)
        self.assertGreaterEqual(report["runs"], 1)
        report = self.json("benchmark", FASHION_MODEL, *self.CPU, "--duration", "0.01", "--runs",
                           "5000")
        self.assertGreaterEqual(report["runs"], 5000)

    def test_several_entries_have_their_duration_each(self):
        report = self.json("benchmark", FASHION_MODEL, "--device", "cpu", "--device", "emu",
                           "--duration", "0.1")
        for entry in report["entries"]:
            self.assertGreaterEqual(entry["seconds"], 0.1)
            self.assertEqual(entry["runs"] % 10, 0)

    def test_warm_up_by_time(self):
        report = self.json("benchmark", FASHION_MODEL, *self.CPU, "--runs", "2", "--warmup", "0",
                           "--warmup-time", "0.1")
        self.assertGreaterEqual(report["warmup"], 1)
        self.assertEqual(report["runs"], 2)

    def test_streams(self):
        for device in ("cpu", "emu", "emu,emu"):
            report = self.json("benchmark", FASHION_MODEL, "--device", device, "--streams", "3",
                               "--runs", "20", "--warmup", "2")
            self.assertEqual((report["runs"], report["inferences"], report["warmup"]), (60, 60, 6))
            self.assertEqual(report["streams"], 3)
            self.assertAlmostEqual(report["inferences_per_second"], 60 / report["seconds"],
                                   delta=report["inferences_per_second"] * 1e-2)

    def test_percentiles(self):
        report = self.json("benchmark", FASHION_MODEL, *self.CPU, "--runs", "40", "--percentiles",
                           "99.9,50,2.5,50,100")
        self.assertEqual(list(report["percentiles_ms"]), ["2.5", "50", "99.9", "100"])
        ordered = sorted(report["samples_ms"])
        self.assertEqual(list(report["percentiles_ms"].values()),
                         [ordered[0], ordered[19], ordered[39], ordered[39]])
        self.assertEqual(report["latency_ms"]["max"], ordered[39])
        text = self.succeed("benchmark", FASHION_MODEL, *self.CPU, "--runs", "4", "--percentiles",
                            "50,99.9").stdout
        self.assertRegex(text, r"\ninvoke +min [\d.]+  median [\d.]+  mean [\d.]+  p99.9 [\d.]+ ms")

    def test_nothing_is_modelled_of_the_cpu(self):
        report = self.json("benchmark", FASHION_MODEL, *self.CPU, "--runs", "1")
        for absent in ("modelled_device", "scenario", "accuracy", "operators", "first_failure"):
            self.assertIsNone(report[absent], absent)
        self.assertEqual(set(report["machine_state"]["before"]), {"temperature_c", "clock_mhz"})

    def test_inputs(self):
        path = self.file("input.raw", bytes(784))
        self.json("benchmark", FASHION_MODEL, *self.CPU, "--runs", "1", "--input", f"0={path}")
        for name in ("a.pgm", "B.PGM", "c.txt"):
            self.file(name, b"P5 28 28 255\n" + bytes(784))
        report = self.json("benchmark", FASHION_MODEL, *self.CPU, "--runs", "5", "--images",
                           self.directory)
        self.assertEqual(report["samples"], 2)

    def test_operators(self):
        report = self.json("benchmark", FASHION_MODEL, *self.CPU, "--runs", "1", "--operators")
        counts = {}
        for node in self.json("inspect", FASHION_MODEL, "--device", "cpu")["nodes"]:
            counts[node["op"]] = counts.get(node["op"], 0) + 1
        self.assertEqual({op["op"]: op["count"] for op in report["operators"]}, counts)
        for op in report["operators"]:
            self.assertEqual(op["on_device"], 0)
            self.assertIsNone(op["modelled_ms"])
            self.assertGreaterEqual(op["measured_cpu_ms"], 0)
        report = self.json("benchmark", FASHION_MODEL, "--device", "emu", "--runs", "1",
                           "--operators")
        for op in report["operators"]:
            self.assertEqual(op["on_device"], op["count"])
            self.assertIsNone(op["measured_cpu_ms"])

    def test_csv(self):
        odd = self.directory / 'a "model", odd.tflite'
        odd.write_bytes(FASHION_MODEL.read_bytes())
        path = self.directory / "table.csv"
        report = self.json("benchmark", odd, FASHION_MODEL, *self.CPU, "--runs", "3", "--csv", path,
                           "--percentiles", "50,99.9")
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["model"] for row in rows], [str(odd), str(FASHION_MODEL)])
        for row, entry in zip(rows, report["entries"]):
            self.assertEqual(float(row["p99.9_ms"]), entry["percentiles_ms"]["99.9"])
            self.assertEqual(int(row["runs"]), 3)
            self.assertEqual((row["scenario"], row["top1"], row["valid"]), ("", "", ""))

    def test_the_page_needs_nothing_else(self):
        name = self.directory / "a<b>&'.tflite"
        name.write_bytes(FASHION_MODEL.read_bytes())
        path = self.directory / "page.html"
        for more in ((), ("--device", "emu"), ("--scenario", "single-stream", "--duration", "0.01")):
            report = self.json("benchmark", name, "--device", "cpu", *more, "--report", path)
            page = path.read_text()
            self.assertNotRegex(page, r"(src|href)=|@import|url\(")
            self.assertEqual(set(re.findall(r"https?://[^\"]*", page)),
                             {"http://www.w3.org/2000/svg"})
            data = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)
            self.assertNotIn("<", data[1])
            data = json.loads(data[1])
            entries = report.get("entries", [report])
            self.assertEqual(len(data["more"]), len(entries))
            for entry, more_of_it in zip(entries, data["more"]):
                histogram = more_of_it["histogram"]
                self.assertEqual(sum(histogram["counts"]) + histogram["above"], entry["runs"])
                self.assertEqual(len(more_of_it["layers"]),
                                 entry["nodes_on_cpu"] + entry["nodes_on_device"])
                self.assertLessEqual(len(more_of_it["timeline"]), 2000)


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

    def test_fail_if_worse(self):
        a = self.report("a.json", {"m": self.samples(1, 5), "same": self.samples(3, 1)})
        b = self.report("b.json", {"m": self.samples(2, 6), "same": self.samples(4, 1)})
        result = run("benchmark", "compare", a, b, "--fail-if-worse", "2%", "--json")
        self.assertEqual(result.code, 7)
        report = json.loads(result.stdout)
        self.assertEqual((report["fail_if_worse"], report["failed"]), (0.02, True))
        self.assertRegex(result.stderr, r"\Aatoll: m, cpu, 1 thread takes [\d.]+ % longer")
        self.assertEqual(result.stderr.count("\n"), 1)
        # What is as bad as allowed, better or the same does not fail.
        for limit, first, second in (("50%", a, b), ("2", b, a), ("0", a, a)):
            report = json.loads(self.succeed("benchmark", "compare", first, second, "--json",
                                             "--fail-if-worse", limit).stdout)
            self.assertFalse(report["failed"])
        for wrong in ("", "x", "-1%", "2%%", "nan", "2 %", "1001"):
            result = run("benchmark", "compare", a, b, f"--fail-if-worse={wrong}")
            self.assertEqual(result.code, 2, wrong)
            self.assertEqual(result.stdout, "")

    def test_noise_does_not_fail(self):
        """A median that lies 1.5 % higher among samples that vary by 13 %."""
        a = self.report("a.json", {"m": self.samples(1, 5, 30)})
        b = self.report("b.json", {"m": self.samples(2, 5.075, 30)})
        self.succeed("benchmark", "compare", a, b, "--fail-if-worse", "0.1%")

    def test_only_like_is_compared(self):
        def entry(**more):
            return {"model": "m", "device": {"name": "cpu"}, "threads": 1, "samples_ms": [1.0] * 20,
                    **more}

        def report(name, *entries):
            return self.file(name, json.dumps({"schema": 1, "command": "benchmark",
                                               "entries": entries}).encode())
        server = {"device": None, "threads": None, "target": "oip://h:1"}
        a = report("a.json", entry(), entry(streams=2), entry(scenario={"name": "server"}),
                   entry(**server))
        b = report("b.json", entry(streams=1, scenario=None), entry(streams=3), entry(**server))
        found = self.compare_files(a, b)
        self.assertEqual([one["name"] for one in found["entries"]],
                         ["m, cpu, 1 thread", "m, oip://h:1"])
        self.assertEqual(found["only_in_first"],
                         ["m, cpu, 1 thread, 2 streams", "m, cpu, 1 thread, server"])
        self.assertEqual(found["only_in_second"], ["m, cpu, 1 thread, 3 streams"])

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
        many = run("benchmark", "compare", good, self.report("many.json", {
            f"m{i}": [1.0] for i in range(1001)}))
        self.assertEqual(many.code, 1)
        self.assertIn("it has 1001 entries, at most 1000", many.stderr)
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

    def test_servers_are_left_out(self):
        report = self.json("benchmark", FASHION_MODEL, "--device", "cpu", "--device", "emu",
                           "--runs", "5")
        report["entries"][1].update({"device": None, "threads": None, "load_ms": None})
        path = self.file("report.json", json.dumps(report).encode())
        done = subprocess.run([sys.executable, "-B", SOURCE / "bench/tables.py", path],
                              capture_output=True, check=True, text=True)
        self.assertEqual(done.stdout.count("| fashion"), 1)


if __name__ == "__main__":
    unittest.main()
