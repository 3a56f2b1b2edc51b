# SPDX-License-Identifier: Apache-2.0
"""`atoll verify`: equal where nothing differs; where results on file were tampered with, the first
differing tensor, a reproducer and exit code 6."""
import base64
import hashlib
import json
import unittest

from atoll_command import FASHION_MODEL, SHARED, CommandTest, absent, run, tensor

FLIPPED = "0" * 64


class Verify(CommandTest):
    def golden(self, model, tamper=None, seeds=("1", "2")):
        """Results on file as `atoll run` gives them on the CPU, changed by `tamper`."""
        plan = self.json("inspect", model, "--device", "cpu")
        indices = {t["name"]: t["index"] for t in plan["tensors"]}
        entries = {}
        for seed in seeds:
            report = self.json("run", model, "--device", "cpu", "--seed", seed, "--checksums",
                               "--output-dir", self.directory / "out")
            data = [(self.directory / f"out/out_{k}.raw").read_bytes()
                    for k in range(len(report["outputs"]))]
            entries[seed] = {
                "inputs": [{"sha256": hashlib.sha256(self.input_bytes(plan, seed)).hexdigest()}],
                "outputs": [{"sha256": hashlib.sha256(d).hexdigest(),
                             "base64": base64.b64encode(d).decode()} for d in data],
                "tensors": {str(t["index"]): t["sha256"] for t in report["tensors"]},
            }
        golden = {"sha256": hashlib.sha256(model.read_bytes()).hexdigest(), "seeds": entries}
        if tamper:
            tamper(golden, indices)
        (self.directory / "golden").mkdir(exist_ok=True)
        self.file(f"golden/{model.stem}.json", json.dumps(golden).encode())
        return f"golden:{self.directory / 'golden'}"

    @staticmethod
    def input_bytes(plan, seed):
        """The documented fill of an integer input."""
        size, state, mask, data = plan["inputs"][0]["bytes"], int(seed), 2**64 - 1, b""
        while len(data) < size:
            state = (state + 0x9E3779B97F4A7C15) & mask
            z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
            data += (z ^ (z >> 31)).to_bytes(8, "little")
        return data[:size]

    def mismatch(self, *arguments):
        """Must find a mismatch; returns the report."""
        result = run("verify", *arguments, "--json")
        self.assertEqual(result.code, 6, result.stderr)
        self.assertRegex(result.stderr, r"\Aatoll: [^\n]+ differs from [^\n]+\.\n\Z")
        self.assertEqual(result.stdout.count("\n"), 1)
        report = json.loads(result.stdout)
        self.assertFalse(report["equal"])
        return report

    def test_emulator_equals_cpu(self):
        save = self.directory / "unneeded"
        report = self.json("verify", FASHION_MODEL, "--device", "emu", "--seed", "1", "--seed", "7",
                           "--save", save)
        self.assertTrue(report["equal"])
        self.assertEqual(report["device"]["name"], "emu")
        self.assertEqual(report["against"]["name"], "cpu")
        self.assertEqual([seed["seed"] for seed in report["seeds"]], [1, 7])
        for seed in report["seeds"]:
            self.assertGreater(seed["tensor_count"], 0)
            self.assertGreater(seed["byte_count"], 0)
            self.assertIsNone(seed["first_difference"])
        self.assertIsNone(report["saved"])
        self.assertFalse(save.exists())
        text = self.succeed("verify", FASHION_MODEL, "--device", "emu").stdout
        self.assertRegex(text, r"\Aseed 1: equal, \d+ tensors? of [\d,]+ bytes\n\Z")

    def test_own_results_on_file(self):
        against = self.golden(FASHION_MODEL)
        for device in ("cpu", "emu"):
            report = self.json("verify", FASHION_MODEL, "--device", device, "--against", against)
            self.assertTrue(report["equal"])
            self.assertEqual([seed["seed"] for seed in report["seeds"]], [1, 2])

    def test_tampered_hash(self):
        wrong = {}

        def tamper(golden, _):
            tensors = golden["seeds"]["2"]["tensors"]
            wrong["index"] = list(tensors)[2]  # as written by the third step
            tensors[wrong["index"]] = FLIPPED
            tensors[list(tensors)[4]] = FLIPPED
        against = self.golden(FASHION_MODEL, tamper)
        save = self.directory / "found"
        arguments = (FASHION_MODEL, "--device", "cpu", "--against", against, "--save", save)
        report = self.mismatch(*arguments)
        first, second = report["seeds"]
        self.assertTrue(first["equal"])
        self.assertEqual(second["differing_tensor_count"], 2)
        difference = second["first_difference"]
        self.assertEqual(str(difference["index"]), wrong["index"])
        self.assertEqual(difference["want_sha256"], FLIPPED)
        self.assertIsNone(difference["element"])
        self.assertEqual(report["saved"], str(save))
        self.assertEqual({path.name for path in save.iterdir()},
                         {"findings.txt", "seed_2_in_0.raw",
                          f"seed_2_tensor_{wrong['index']}_got.raw"})
        findings = (save / "findings.txt").read_text()
        self.assertIn(f"--against {against} --seed 2\n", findings)
        self.assertIn(difference["op"], findings)
        # The saved inputs are those of the seed.
        again = self.json("run", FASHION_MODEL, "--device", "cpu", "--input",
                          f"0={save / 'seed_2_in_0.raw'}")
        seeded = self.json("run", FASHION_MODEL, "--device", "cpu", "--seed", "2")
        self.assertEqual(again["outputs"], seeded["outputs"])
        text = run("verify", *arguments).stdout
        self.assertIn("seed 1: equal", text)
        self.assertIn(f"first differing tensor: {wrong['index']} ", text)

    def test_tampered_output_bytes(self):
        def tamper(golden, indices):
            entry = golden["seeds"]["1"]
            data = bytearray(base64.b64decode(entry["outputs"][0]["base64"]))
            data[3] ^= 1
            data[7] ^= 1
            sha256 = hashlib.sha256(data).hexdigest()
            entry["outputs"][0] = {"sha256": sha256, "base64": base64.b64encode(data).decode()}
            entry["tensors"][str(indices["probabilities"])] = sha256
        against = self.golden(FASHION_MODEL, tamper)
        save = self.directory / "found"
        for device in ("cpu", "emu"):
            report = self.mismatch(FASHION_MODEL, "--device", device, "--against", against,
                                   "--seed", "1", "--save", save)
            difference = report["seeds"][0]["first_difference"]
            self.assertEqual(difference["name"], "probabilities")
            self.assertEqual(difference["element"], [0, 3])
            self.assertEqual(difference["differing_count"], 2)
            self.assertEqual(difference["element_count"], 10)
            self.assertEqual(abs(difference["got"] - difference["want"]), 1)
            # The one on the device is at the end of a partition of many operators.
            alone = report["seeds"][0]["first_difference_alone"]
            self.assertEqual(alone and alone["name"], "probabilities" if device == "emu" else None)
        self.assertEqual(len(list(save.iterdir())), 4)

    def test_inside_a_partition(self):
        """On the device only the output is seen; each operator by itself shows the first."""
        def tamper(golden, indices):
            entry = golden["seeds"]["1"]
            for name in ("/0/Relu_1_output_0", "probabilities"):
                entry["tensors"][str(indices[name])] = FLIPPED
            entry["outputs"][0] = {"sha256": FLIPPED}
        arguments = (FASHION_MODEL, "--device", "emu", "--against",
                     self.golden(FASHION_MODEL, tamper), "--seed", "1", "--save",
                     self.directory / "found")
        seed = self.mismatch(*arguments)["seeds"][0]
        self.assertEqual(seed["first_difference"]["name"], "probabilities")
        self.assertEqual(seed["first_difference_alone"]["name"], "/0/Relu_1_output_0")
        text = run("verify", *arguments).stdout
        self.assertRegex(text, r"each operator by itself on the device:\n  first differing tensor: "
                               r"\d+ '/0/Relu_1_output_0'")

    def test_a_compiled_model_that_is_wrong(self):
        """Some weights in the executable: the operators, compiled anew, are right."""
        compiled = self.directory / "compiled.tflite"
        self.succeed("compile", FASHION_MODEL, "--device", "emu", "--output", compiled)
        executable = self.directory / "bare.bin"
        text = self.directory / "text.s"
        self.succeed("disasm", compiled, "--parameters", "--output", text)
        self.succeed("asm", text, "--output", executable)
        data, bare = bytearray(compiled.read_bytes()), executable.read_bytes()
        at = data.find(bare)
        self.assertGreaterEqual(at, 0)
        # The weights of the largest layer are most of an executable.
        part = slice(at + len(bare) // 2, at + len(bare) // 2 + 8192)
        data[part] = bytes(byte ^ 0x80 for byte in data[part])
        compiled.write_bytes(data)
        arguments = (compiled, "--device", "emu", "--save", self.directory / "found")
        seed = self.mismatch(*arguments)["seeds"][0]
        self.assertGreaterEqual(seed["first_difference"]["partition"], 0)
        self.assertIsNone(seed["first_difference_alone"])
        self.assertIn("each operator by itself on the device is equal",
                      run("verify", *arguments).stdout)

    def test_float_tolerance(self):
        """A float output that differs in its last bit counts as equal, and that is said."""
        model = self.model([tensor("x", [1, 8]), {"name": "y", "shape": [1, 8], "buffer": 0}],
                           {"builtin_code": 6, "deprecated_builtin_code": 6,
                            "version": 2})

        def change(bit):
            def tamper(golden, indices):
                entry = golden["seeds"]["1"]
                data = bytearray(base64.b64decode(entry["outputs"][0]["base64"]))
                data[4] ^= 1 << bit
                sha256 = hashlib.sha256(data).hexdigest()
                entry["outputs"][0] = {"sha256": sha256, "base64": base64.b64encode(data).decode()}
                entry["tensors"][str(indices["y"])] = sha256
            return tamper
        report = self.json("verify", model, "--against", self.golden(model, change(0), ["1"]),
                           "--device", "cpu")
        self.assertEqual(report["seeds"][0]["within_tolerance_count"], 1)
        text = self.succeed("verify", model, "--device", "cpu", "--against",
                            f"golden:{self.directory / 'golden'}").stdout
        self.assertIn("1 float32 tensor equal within 1e-05", text)

    def test_comparing_nothing_is_no_success(self):
        """A float output with another hash, and nothing else."""
        model = self.model([tensor("x", [1, 8]), {"name": "y", "shape": [1, 8], "buffer": 0}],
                           {"builtin_code": 6, "deprecated_builtin_code": 6, "version": 2})

        def tamper(golden, indices):
            golden["seeds"]["1"]["outputs"] = [{"sha256": FLIPPED}]
            golden["seeds"]["1"]["tensors"] = {str(indices["y"]): FLIPPED}
        self.fail_with(1, ("verify", model, "--device", "cpu", "--against",
                           self.golden(model, tamper, ["1"])), "could be compared")

    def test_failures(self):
        missing = self.directory / "nothing"
        self.fail_with(1, ("verify", FASHION_MODEL, "--against", f"golden:{missing}"), missing)
        self.fail_with(2, ("verify", FASHION_MODEL, "--against", "gpu"), "gpu")
        self.fail_with(2, ("verify", FASHION_MODEL, "--seed", "-1"), "-1")
        against = self.golden(FASHION_MODEL, seeds=("1",))
        self.fail_with(2, ("verify", FASHION_MODEL, "--device", "emu", "--against", against,
                           "--seed", "3"), "seed 3")
        path = self.directory / "golden" / f"{FASHION_MODEL.stem}.json"
        for content in (b"", b"[]", b"{}", b'{"seeds": {}}', b'{"seeds": {"x": {"outputs": []}}}',
                        b'{"seeds": {"1": {"outputs": [1], "inputs": [], "tensors": {}}}}'):
            path.write_bytes(content)
            self.fail_with(1, ("verify", FASHION_MODEL, "--device", "emu", "--against", against),
                           path)
        path.write_bytes(b'{"sha256": "00", "seeds": {}}')
        self.fail_with(2, ("verify", FASHION_MODEL, "--device", "emu", "--against", against), path)

    def test_whole_models(self):
        """Results that TensorFlow Lite gave."""
        golden = SHARED / "golden/models"
        if not golden.exists() or not (SHARED / "models").exists():
            absent(f"{golden} and models", is_reference=True)
        for name in ("mobilenet_v1_0.25_128_quant", "mlperf_tiny_kws_int8"):
            for device in ("cpu", "emu"):
                with self.subTest(name, device=device):
                    report = self.json("verify", SHARED / "models" / f"{name}.tflite", "--device",
                                       device, "--against", f"golden:{golden}")
                    self.assertTrue(report["equal"])
                    self.assertEqual(len(report["seeds"]), 2)


if __name__ == "__main__":
    unittest.main()
