# SPDX-License-Identifier: Apache-2.0
"""`atoll profile`: the numbers add up, the trace is well formed, the page needs nothing else."""
import collections
import json
import math
import re
import unittest

from atoll_command import FASHION_MODEL, SHARED, CommandTest, absent, tensor

DEVICE_TRACKS = ["requests", "link out", "infeed", "DMA", "array", "vector", "outfeed", "link in"]
MOBILENET = SHARED / "models/mobilenet_v1_0.5_160_quant.tflite"


class Profile(CommandTest):
    def check_report(self, report):
        modelled, layers = report["modelled"], report["layers"]
        self.assertAlmostEqual(sum(modelled["parts_ms"].values()), modelled["ms"], places=4)
        self.assertAlmostEqual(sum(part["modelled_ms"] for part in report["partitions"]),
                               modelled["ms"], places=4)
        self.assertEqual(sum(part["modelled_cycles"] for part in report["partitions"]),
                         modelled["cycles"])
        added = [layer["modelled"]["added_cycles"] for layer in layers if layer["modelled"]]
        self.assertTrue(all(cycles >= 0 for cycles in added))
        self.assertLessEqual(sum(added), modelled["cycles"])
        clock = modelled["clock_hz"] / 1e3
        for part, field in (("array", "array_cycles"), ("vector", "vector_cycles"),
                            ("DMA", "dma_cycles"), ("parameters", "parameter_cycles")):
            self.assertAlmostEqual(
                sum(layer["modelled"][field] for layer in layers if layer["modelled"]) / clock,
                modelled["busy_ms"][part], places=4)
            self.assertLessEqual(modelled["parts_ms"][part], modelled["busy_ms"][part] + 1e-5)
        self.assertTrue(0 < modelled["whole_utilisation"] <= modelled["array_utilisation"] <= 1)
        for layer in layers:
            self.assertEqual(layer["modelled"] is None, layer["partition"] < 0)
            if layer["modelled"] is None:
                self.assertGreater(layer["measured_cpu_ms"], 0)
                self.assertNotEqual(layer["reason"], "")
            else:
                self.assertEqual(layer["measured_cpu_ms"], 0)
                self.assertTrue(0 <= layer["modelled"]["utilisation"] <= 1)
                self.assertGreaterEqual(layer["modelled"]["computed_macs"], layer["macs"])
        measured = report["measured"]
        self.assertEqual(len(measured["runs_ms"]), measured["runs"])
        latency = measured["latency_ms"]
        self.assertTrue(0 < latency["min"] <= latency["median"] <= latency["p90"] <= latency["max"])

    def test_json(self):
        for device in ("emu", "emu:usb2", "emu:32x32"):
            report = self.json("profile", FASHION_MODEL, "--device", device, "--runs", "3")
            self.check_report(report)
            self.assertEqual(report["measured"]["runs"], 3)
            inspected = self.json("inspect", FASHION_MODEL, "--device", device)
            self.assertAlmostEqual(report["modelled"]["ms"],
                                   inspected["modelled_device_seconds"] * 1e3, places=4)
            self.assertEqual([layer["macs"] for layer in report["layers"]],
                             [node["macs"] for node in inspected["nodes"]])

    def test_streaming(self):
        if not MOBILENET.exists():
            absent(MOBILENET.name, is_reference=True)
        report = self.json("profile", MOBILENET, "--device", "emu:1mib", "--runs", "2")
        self.check_report(report)
        self.assertGreater(report["modelled"]["parts_ms"]["parameters"], 0)
        self.assertEqual(sum(layer["modelled"]["parameter_bytes"] for layer in report["layers"]
                             if layer["modelled"]),
                         sum(part["streamed_parameter_bytes"] for part in report["partitions"]))

    def test_without_a_device(self):
        report = self.json("profile", FASHION_MODEL, "--device", "cpu", "--runs", "2")
        self.assertIsNone(report["modelled"])
        self.assertEqual(report["partitions"], [])
        for layer in report["layers"]:
            self.assertIsNone(layer["modelled"])
            self.assertGreater(layer["measured_cpu_ms"], 0)
        text = self.succeed("profile", FASHION_MODEL, "--device", "cpu").stdout
        self.assertNotIn("modelled", text)
        self.assertIn("measured on this host", text)
        self.assertIn("ms on the CPU", text)

    def test_text(self):
        text = self.succeed("profile", FASHION_MODEL, "--device", "emu", "--top", "2").stdout
        modelled, measured = text.split("\nmeasured")
        self.assertIn("modelled", modelled)
        shares = [float(share) for share in
                  re.findall(r"(?m)^  (?:host|link \w+|array|vector|DMA|\w+) +[\d.]+ ms +([\d.]+)%",
                             modelled)]
        self.assertAlmostEqual(sum(shares), 100, delta=0.5)
        self.assertEqual(len(re.findall(r"(?m)^ +\d+ [A-Z_0-9]+ +[\d.]+ +[\d.]+%", modelled)), 2)
        self.assertIn("partition 0", measured)


class Trace(CommandTest):
    def trace(self, *arguments):
        path = self.directory / "deep" / "trace.json"
        path.parent.mkdir()
        report = self.json("profile", *arguments, "--trace", path)
        self.assertEqual([entry.name for entry in path.parent.iterdir()], ["trace.json"])
        return report, json.loads(path.read_text())

    def check(self, report, trace):
        """Returns the slices of each track, by names of process and thread."""
        names, tracks = {}, collections.defaultdict(list)
        for event in trace["traceEvents"]:
            for field, kind in (("ph", str), ("ts", (int, float)), ("dur", (int, float)),
                                ("pid", int), ("tid", int), ("name", str), ("args", dict)):
                self.assertIsInstance(event[field], kind, event)
            self.assertTrue(math.isfinite(event["ts"]) and event["ts"] >= 0, event)
            self.assertTrue(math.isfinite(event["dur"]) and event["dur"] >= 0, event)
            self.assertIn(event["ph"], "XM")
            if event["ph"] == "X":
                tracks[event["pid"], event["tid"]].append(event)
            elif event["name"] in ("process_name", "thread_name"):
                key = (event["pid"], event["tid"]) if event["name"] == "thread_name" else event["pid"]
                self.assertNotIn(key, names)
                names[key] = event["args"]["name"]
        result = {}
        for (process, thread), slices in tracks.items():
            slices.sort(key=lambda event: (event["ts"], event["dur"]))
            for before, after in zip(slices, slices[1:]):
                self.assertLessEqual(before["ts"] + before["dur"], after["ts"] + 1e-4,
                                     f"{names[process, thread]}: {before} and {after}")
            result[names[process], names[process, thread]] = slices
        processes = {process for process, _ in result}
        if report["modelled"] is None:
            self.assertEqual(processes, {"host (measured)"})
        else:
            self.assertEqual(processes, {"host (measured)", "device (modelled cycles)"})
            threads = [names[key] for key in sorted(key for key in names if isinstance(key, tuple))
                       if names[key[0]] == "device (modelled cycles)"]
            self.assertEqual(threads, DEVICE_TRACKS)
        return result

    def check_device(self, report, tracks):
        modelled = report["modelled"]
        clock = modelled["clock_hz"] / 1e3

        def slices(track, *mnemonics):
            return [event for event in tracks.get(("device (modelled cycles)", track), [])
                    if not mnemonics or event["name"] in mnemonics]

        def cycles(track, *mnemonics):
            for event in slices(track, *mnemonics):
                length = event["args"]["end_cycle"] - event["args"]["start_cycle"]
                self.assertAlmostEqual(event["dur"] / 1e3, length / clock, places=6)
                self.assertLessEqual(event["args"]["issue_cycle"] * ("link" not in track),
                                     event["args"]["start_cycle"])
            return sum(event["args"]["end_cycle"] - event["args"]["start_cycle"]
                       for event in slices(track, *mnemonics))

        busy = modelled["busy_ms"]
        self.assertAlmostEqual(cycles("link out", "INPUT") / clock, busy["link out"], places=4)
        self.assertAlmostEqual(cycles("link out", "PARAMETERS") / clock, busy["parameters"], places=4)
        self.assertAlmostEqual(cycles("array") / clock, busy["array"], places=4)
        self.assertAlmostEqual(cycles("vector") / clock, busy["vector"], places=4)
        self.assertAlmostEqual(cycles("DMA") / clock, busy["DMA"], places=4)
        self.assertAlmostEqual(cycles("link in") / clock, busy["link in"], places=4)
        requests = slices("requests")
        self.assertEqual(sum(event["args"]["cycles"] for event in requests), modelled["cycles"])
        for track, fields in (("link out", ("input_bytes", "streamed_parameter_bytes")),
                              ("link in", ("output_bytes",))):
            self.assertEqual(sum(event["args"]["bytes"] for event in slices(track)),
                             sum(part[field] for part in report["partitions"] for field in fields))
        for track in ("array", "vector"):
            for event in slices(track):
                layer = report["layers"][event["args"]["node"]]
                self.assertEqual(layer["op"], event["args"]["op"])
                self.assertGreaterEqual(layer["partition"], 0)

    def test_trace(self):
        report, trace = self.trace(FASHION_MODEL, "--device", "emu", "--runs", "4")
        tracks = self.check(report, trace)
        self.check_device(report, tracks)
        runs = tracks["host (measured)", "runs"]
        self.assertEqual([event["name"] for event in runs], [f"run {i}" for i in range(4)])
        host = tracks["host (measured)", "thread 0 (invokes)"]
        on_cpu = [layer for layer in report["layers"] if layer["partition"] < 0]
        for i, run in enumerate(runs):
            inside = [event for event in host if event["args"]["run"] == i]
            for event in inside:
                self.assertGreaterEqual(event["ts"], run["ts"])
                self.assertLessEqual(event["ts"] + event["dur"], run["ts"] + run["dur"] + 1e-3)
            names = [event["name"] for event in inside]
            self.assertEqual(names.count("submit"), report["partition_count"])
            self.assertEqual(names.count("wait"), report["partition_count"])
            self.assertEqual(len(names) - 2 * report["partition_count"], len(on_cpu))

    def test_without_a_device(self):
        report, trace = self.trace(FASHION_MODEL, "--device", "cpu", "--runs", "2", "--threads", "1")
        tracks = self.check(report, trace)
        host = tracks["host (measured)", "thread 0 (invokes)"]
        self.assertEqual(len(host), 2 * len(report["layers"]))

    def test_streaming(self):
        if not MOBILENET.exists():
            absent(MOBILENET.name, is_reference=True)
        report, trace = self.trace(MOBILENET, "--device", "emu:1mib", "--runs", "1")
        self.check_device(report, self.check(report, trace))


class Page(CommandTest):
    def page(self, *arguments):
        path = self.directory / "profile.html"
        self.succeed("profile", *arguments, "--runs", "2", "--report", path)
        page = path.read_text()
        data = re.search(r'(?s)<script type="application/json" id="data">(.*?)</script>', page)
        return page, json.loads(data[1])

    def test_needs_nothing_else(self):
        for device in ("emu", "cpu"):
            page, data = self.page(FASHION_MODEL, "--device", device)
            rest = page.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
            for word in ("http:", "https:", "src=", "href=", "url(//", "@import", "fetch("):
                self.assertNotIn(word, rest)
            self.assertEqual(data["report"]["command"], "profile")
            layers = range(len(data["report"]["layers"]))
            self.assertEqual({to for _, to in data["edges"]}, set(layers[1:]), "all but the first")
            self.assertTrue(all(0 <= start < to for start, to in data["edges"]))
            self.assertEqual(len(data["memory"]), data["report"]["partition_count"])
            self.assertGreater(len(data["host"]["spans"]), 0)
            for blocks in data["memory"]:
                for _, _, _, offset, size, start, end in blocks:
                    self.assertTrue(offset >= 0 and size > 0 and 0 <= start <= end)
                    self.assertLessEqual(end, data["report"]["modelled"]["cycles"])

    def test_names_from_a_model_stay_text(self):
        hostile = "</script><script>alert(1)</script><!-- \u2028 \"'&"
        relu = {"builtin_code": 19}
        model = self.model([tensor("x", [1, 4]), tensor(hostile, [1, 4])], relu)
        page, data = self.page(model, "--device", "cpu")
        self.assertEqual(data["report"]["layers"][0]["output"], hostile)
        self.assertEqual(page.count("</script>"), 2, "the data and the program")
        self.assertNotIn("<script>alert", page)


class Refusals(CommandTest):
    def test_one_sentence_and_no_files(self):
        self.fail_with(2, ("profile", FASHION_MODEL, "--runs", "0"), "--runs")
        self.fail_with(2, ("profile", FASHION_MODEL, "--trace", f"{self.directory}/"), "--trace")
        blocker = self.file("blocker", b"")
        self.fail_with(1, ("profile", FASHION_MODEL, "--device", "cpu", "--runs", "1",
                           "--trace", self.directory / "trace.json",
                           "--report", blocker / "profile.html"), "--report")
        self.assertEqual([path.name for path in self.directory.iterdir()], ["blocker"])


if __name__ == "__main__":
    unittest.main()
