# SPDX-License-Identifier: Apache-2.0
"""What each subcommand prints when all is well."""
import hashlib
import io
import json
import os
import pty
import random
import re
import signal
import subprocess
import unittest
import zipfile

from atoll_command import (COMMAND, FASHION_LABELS, FASHION_MODEL, SOURCE, CommandTest, need, run,
                           tensor)

SUBCOMMANDS = ("devices", "inspect", "compile", "disasm", "asm", "run", "verify", "classify", "detect",
               "segment", "pose", "camera", "benchmark", "profile", "residency", "replay", "top")


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

    def test_a_copied_model(self):
        want = self.json("run", FASHION_MODEL, "--device", "cpu")["outputs"]
        for device in ("cpu", "emu"):
            report = self.json("run", FASHION_MODEL, "--device", device, "--copy")
            self.assertEqual(report["outputs"], want)

    def test_text(self):
        self.assertRegex(self.succeed("devices").stdout, r"(?m)^\* \S+ +\S")


    def test_profile_of_ones_own(self):
        profile = self.file("mine.json", b'{"array_rows": 16, "array_columns": 8}')
        device = self.json("inspect", FASHION_MODEL, "--device", f"emu:{profile}")["device"]
        self.assertEqual(device["name"], f"emu:{profile}")
        self.assertIn("16x8 at 500 MHz", device["description"])
        want = self.json("run", FASHION_MODEL, "--device", "cpu")["outputs"]
        self.assertEqual(self.json("run", FASHION_MODEL, "--device", f"emu:{profile}")["outputs"],
                         want)
        broken = self.file("broken.json", b'{"array_rows": 0}')
        self.fail_with(2, ("inspect", FASHION_MODEL, "--device", f"emu:{broken}"), broken,
                       "array_rows is 0, must be a whole number from 1 to 1024")
        self.fail_with(3, ("inspect", FASHION_MODEL, "--device", "emu:/no/such.json"),
                       "/no/such.json")


class EmbeddedLabels(CommandTest):
    """Labels that a model brings along, as TensorFlow Lite's metadata writers pack them."""
    PICTURE = SOURCE / "models/fashion/ankle_boot.pgm"
    NAMES = FASHION_LABELS.read_text().split("\n")

    def packed(self, files, compression=zipfile.ZIP_STORED):
        """The model with these files appended, by name."""
        path = self.file("packed.tflite", FASHION_MODEL.read_bytes())
        with zipfile.ZipFile(path, "a", compression) as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        return path

    def top(self, model, *arguments):
        report = self.json("classify", model, self.PICTURE, "--device", "cpu", *arguments)
        return report, report["images"][0]["top"][0]

    def test_are_used(self):
        for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            for name in ("labels.txt", "LabelMap.TXT", "classes.txt"):
                model = self.packed({name: FASHION_LABELS.read_text()}, compression)
                report, top = self.top(model)
                self.assertEqual(top["label"], "Ankle boot")
                self.assertEqual(report["warnings"], [])
        text = self.succeed("classify", model, self.PICTURE, "--device", "cpu").stdout
        self.assertIn("9  Ankle boot", text)

    def test_are_used_by_the_camera(self):
        model = self.packed({"labels.txt": FASHION_LABELS.read_text()})
        results = self.directory / "seen.jsonl"
        arguments = ("camera", model, "--device", "cpu", "--source", "test", "--frames", "1",
                     "--results", results)
        for labels, known in ((), True), (("--labels", "-"), False):
            self.succeed(*arguments, *labels)
            seen, = json.loads(results.read_text().splitlines()[0])["models"][0]
            self.assertEqual("label" in seen["classes"][0] and
                             seen["classes"][0]["label"] in self.NAMES, known, seen)
            results.unlink()

    def test_an_archive_of_its_own_offsets(self):
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as writer:
            writer.writestr("labels.txt", FASHION_LABELS.read_text())
        model = self.file("m.tflite", FASHION_MODEL.read_bytes() + archive.getvalue())
        self.assertEqual(self.top(model)[1]["label"], "Ankle boot")

    def test_the_file_with_labels_is_chosen(self):
        model = self.packed({"vocabulary.txt": "a\nb\n", "labels.txt": FASHION_LABELS.read_text(),
                             "license.md": "x"})
        self.assertEqual(self.top(model)[1]["label"], "Ankle boot")
        self.assertNotIn("label", self.top(self.packed({"a.txt": "x", "b.txt": "y"}))[1])

    def test_a_label_file_wins(self):
        model = self.packed({"labels.txt": "\n".join(f"packed {i}" for i in range(10))})
        self.assertEqual(self.top(model)[1]["label"], "packed 9")
        self.assertEqual(self.top(model, "--labels", FASHION_LABELS)[1]["label"], "Ankle boot")
        shifted, top = self.top(model, "--label-offset", "-1")
        self.assertEqual(top["label"], "packed 8")

    def test_too_few_are_left_out(self):
        report, top = self.top(self.packed({"labels.txt": "a\nb\nc\n"}))
        self.assertNotIn("label", top)
        self.assertEqual([warning["code"] for warning in report["warnings"]], ["label_count"])
        self.assertIn("labels.txt", report["warnings"][0]["message"])

    def test_damaged_archives_are_no_labels(self):
        whole = self.packed({"labels.txt": FASHION_LABELS.read_text()},
                            zipfile.ZIP_DEFLATED).read_bytes()
        size = len(FASHION_MODEL.read_bytes())
        chance = random.Random(3)
        for round_ in range(40):
            damaged = bytearray(whole)
            place = chance.randrange(size, len(whole))
            if round_ % 2:
                damaged[place] ^= 1 << chance.randrange(8)
            else:
                damaged = damaged[:place]
            model = self.file("damaged.tflite", bytes(damaged))
            self.assertEqual(self.top(model)[1]["index"], 9, place)


class LongWork(CommandTest):
    """Says that it goes on, on stderr alone."""

    def run_with(self, progress, *arguments):
        environment = {**os.environ, "ATOLL_PROGRESS": progress}
        done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, check=False,
                              env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode(), done.stderr.decode()

    def test_a_benchmark_counts(self):
        arguments = ("benchmark", FASHION_MODEL, "--device", "cpu", "--runs", "20000", "--json")
        stdout, stderr = self.run_with("0.001", *arguments)
        self.assertEqual(json.loads(stdout)["runs"], 20000)
        self.assertRegex(stderr, r"(?m)^atoll: measuring, \d+ of 20004 inferences, \d+ s$")
        self.assertEqual(self.run_with("off", *arguments)[1], "")

    def test_others_name_the_model(self):
        for command, more, word in (("verify", ("--seed", ",".join(map(str, range(300)))), "verifying"),
                                    ("compile", ("-o", self.directory / "x.tflite"), "preparing")):
            stderr = self.run_with("0", command, FASHION_MODEL, "--device", "emu:32x32",
                                   *more)[1]
            self.assertRegex(stderr, rf"(?m)^atoll: {word} '[^\n]*fashion_int8.tflite'")

    def test_a_terminal_is_left_clean(self):
        ours, theirs = pty.openpty()
        with subprocess.Popen([*COMMAND, "benchmark", FASHION_MODEL, "--device", "cpu", "--runs",
                               "20000"], stdout=subprocess.DEVNULL, stderr=theirs,
                              env={**os.environ, "ATOLL_PROGRESS": "0.01"}) as process:
            os.close(theirs)
            shown = b""
            while True:
                try:
                    piece = os.read(ours, 4096)
                except OSError:  # the other end is closed
                    break
                if not piece:
                    break
                shown += piece
        os.close(ours)
        self.assertEqual(process.returncode, 0)
        self.assertIn(b"\ratoll: measuring, ", shown)
        self.assertTrue(shown.endswith(b"\r\x1b[K"), shown[-40:])


class Faults(CommandTest):
    def setUp(self):
        super().setUp()
        self.want = self.json("run", FASHION_MODEL, "--device", "cpu")["outputs"]

    def run_with(self, *arguments):
        report = self.json("run", FASHION_MODEL, "--device", "emu", *arguments)
        self.assertEqual(report["outputs"], self.want)
        return report["device"]["health"]

    def test_none(self):
        self.assertEqual(set(self.run_with().values()), {0})

    def test_unplugged_and_back(self):
        script = self.file("unplug.txt", b"out 3 unplug 100ms  # and back\n")
        health = self.run_with("--faults", script)
        self.assertEqual((health["failures"], health["reopenings"]), (1, 1))

    def test_at_random(self):
        """The same seed hits the same transfers, whatever the machine does meanwhile."""
        health = self.run_with("--faults", "seed:2:1/5")
        self.assertGreater(health["failures"], 0)
        self.assertEqual(self.run_with("--faults", "seed:2:1/5"), health)

    def test_gone_for_good(self):
        script = self.file("gone.txt", b"out 3 unplug never\n")
        result = run("run", FASHION_MODEL, "--device", "emu", "--faults", script,
                     "--on-device-loss", "fail")
        self.assertEqual((result.code, result.stdout), (5, ""), result.stderr)
        self.assertIn("unplugged", result.stderr)

    def test_advice_names_no_device_in_use(self):
        """Who uses the emulator gets no advice to use the emulator."""
        script = self.file("gone.txt", b"out 3 unplug never\n")
        lost = ("run", FASHION_MODEL, "--device", "emu", "--faults", script, "--on-device-loss")
        result = run(*lost, "fail")
        self.assertIn("; leave out --faults, or use --on-device-loss fallback.\n", result.stderr)
        self.assertNotIn("--device emu", result.stderr)
        result = self.succeed(*lost, "fallback")
        self.assertIn("device emu: requests go to another emulator until it is there again",
                      result.stderr)

    def test_fallback_model(self):
        script = self.file("gone.txt", b"out 3 unplug never\n")
        report = self.json("run", FASHION_MODEL, "--device", "emu", "--faults", script,
                           "--on-device-loss", "fail", "--fallback-model", FASHION_MODEL)
        self.assertEqual(report["outputs"], self.want)
        self.assertEqual(report["device"]["health"]["fallbacks"], 0)
        other = self.model([tensor("x", [1, 3]), tensor("y", [1, 3])], {"builtin_code": 19})
        self.fail_with(4, ("run", FASHION_MODEL, "--device", "emu", "--fallback-model", other),
                       "input 0 of the fallback model, 'x', has another type or shape than 'image'")

    def test_bad_plans(self):
        self.fail_with(2, ("run", FASHION_MODEL, "--device", "emu", "--faults", "seed:1"), "seed:N:P")
        script = self.file("bad.txt", b"out 3 explode\n")
        self.fail_with(2, ("run", FASHION_MODEL, "--device", "emu", "--faults", script), "line 1")


class Replay(CommandTest):
    def test_bit_for_bit(self):
        script = self.file("unplug.txt", b"out 3 unplug 50ms\n")
        for faults in ((), ("--faults", script), ("--faults", "seed:5:1/6")):
            recording = self.directory / "session.pcapng"
            first = self.succeed("run", FASHION_MODEL, "--device", "emu", "--record", recording,
                                 *faults)
            again = self.succeed("replay", recording)
            self.assertEqual(again.stdout, first.stdout)
            self.assertIn("replaying 'atoll run ", again.stderr)
        report = json.loads(self.succeed("replay", recording, "--", "--json").stdout)
        self.assertEqual(report["command"], "run")

    def test_bit_for_bit_on_pcie(self):
        for line in ("", "write 6 drop", "write 6 unplug 50ms", "vector 6 corrupt", "write 6 unmap"):
            script = self.file("faults.txt", line.encode())
            recording = self.directory / "session.pcapng"
            first = self.succeed("run", FASHION_MODEL, "--device", "emu:pcie", "--record", recording,
                                 "--faults", script)
            again = self.succeed("replay", recording)
            self.assertEqual(again.stdout, first.stdout)
        script = self.file("usb.txt", b"out 3 stall\n")
        self.fail_with(2, ("run", FASHION_MODEL, "--device", "emu:pcie", "--faults", script),
                       "does not happen on PCIe")

    def test_departs(self):
        recording = self.directory / "session.pcapng"
        self.succeed("run", FASHION_MODEL, "--device", "emu", "--record", recording)
        result = run("run", FASHION_MODEL, "--device", f"replay:{recording}", "--seed", "2")
        self.assertEqual((result.code, result.stdout), (1, ""), result.stderr)
        self.assertIn("the session departs from its recording", result.stderr)

    def test_no_recording(self):
        self.fail_with(1, ("replay", "/no/such.pcapng"), "/no/such.pcapng", "--record")
        self.fail_with(1, ("replay", FASHION_MODEL), "not a pcapng file")


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


class FloatModels(CommandTest):
    """Nothing of them runs on a device, so no time of one is told, nor zero."""

    def test_nothing_is_modelled(self):
        floats = self.model([tensor("x", [1, 8, 8, 3], 0, quantization={}),
                             tensor("y", [1, 8, 8, 3], 0, quantization={})],
                            {"deprecated_builtin_code": 19, "builtin_code": 19})
        emulator = ("--device", "emu")
        said = "nothing runs on the device"
        self.assertIn(said, self.succeed("benchmark", floats, *emulator, "--runs", "2").stdout)
        camera = ("--source", "test", "--frames", "2", "--fps", "0", *emulator)
        self.assertIn(said, self.succeed("camera", floats, *camera).stdout)
        self.assertIn(said, self.succeed("residency", floats, *emulator).stdout)
        inspected = self.succeed("inspect", floats, *emulator).stdout
        self.assertIn("0 of 1 operators on the device", inspected)
        self.assertNotIn("atoll inspect", inspected)
        for command in (("benchmark", "--runs", "2"), ("camera", *camera[:-2]), ("residency",),
                        ("inspect",)):
            text = self.succeed(command[0], floats, *emulator, *command[1:]).stdout
            self.assertNotRegex(text, r"modelled +0\.|0\.000 ms per round|\b0 cycles", command)
        # Beside one that has something there.
        text = self.succeed("residency", floats, FASHION_MODEL, *emulator).stdout
        self.assertIn("0: nothing on the device\n", text)
        self.assertIn("per round, modelled", text)
        text = self.succeed("camera", FASHION_MODEL, floats, *camera).stdout
        self.assertIn(f"{said} (model 1)", text)
        self.assertRegex(text, r"modelled  [0-9.]+ ms of device time .* \(model 0\)")


class Stages(CommandTest):
    def test_bytes_and_shares(self):
        want = self.json("run", FASHION_MODEL, "--device", "cpu", "--seed", 3)["outputs"]
        whole = self.json("inspect", FASHION_MODEL, "--device", "emu")
        for stages in (1, 2, 3, 4):
            device = ("--device", ",".join(["emu"] * stages), "--stages", stages)
            got = self.json("run", FASHION_MODEL, *device, "--seed", 3)
            self.assertEqual(got["outputs"], want, stages)
            report = self.json("inspect", FASHION_MODEL, *device)
            self.assertEqual(report["partition_count"], stages)
            self.assertEqual(report["nodes_on_device"], whole["nodes_on_device"])
            parts = report["partitions"]
            self.assertEqual(sum(part["resident_parameter_bytes"] for part in parts),
                             whole["partitions"][0]["resident_parameter_bytes"])
            # About equal: none takes twice the time that it would if they were.
            self.assertLess(max(part["modelled_seconds"] for part in parts),
                            2 * sum(part["modelled_seconds"] for part in parts) / stages)


class Compile(CommandTest):
    def test_compiled_model_gives_the_same_bytes(self):
        compiled = self.directory / "compiled.tflite"
        report = self.json("compile", FASHION_MODEL, "--device", "emu", "-o", compiled)
        self.assertEqual(report["bytes"], compiled.stat().st_size)
        self.assertGreater(report["nodes_on_device"], 0)
        want = self.json("run", FASHION_MODEL, "--device", "cpu")["outputs"]
        for device in ("cpu", "emu", "emu:1mib", "emu+stepped"):
            got = self.json("run", compiled, "--device", device)["outputs"]
            self.assertEqual([output["sha256"] for output in got],
                             [output["sha256"] for output in want], device)
        reasons = {node["reason"] for node in self.json("inspect", compiled)["nodes"]}
        self.assertLessEqual(reasons, {"", "the compiled model leaves it to the CPU"})

    def test_model_compiled_for_the_cpu_gives_the_same_bytes(self):
        compiled = self.directory / "compiled.tflite"
        self.succeed("compile", FASHION_MODEL, "--device", "cpu", "-o", compiled)
        self.assertGreater(compiled.stat().st_size, FASHION_MODEL.stat().st_size)
        self.assertEqual(self.json("inspect", FASHION_MODEL)["packed_weight_bytes"], 0)
        for device, is_used in (("cpu", True), ("emu", False)):
            report = self.json("inspect", compiled, "--device", device)
            self.assertGreater(report["packed_weight_bytes"], 0)
            self.assertEqual(report["used_packed_weight_bytes"],
                             report["packed_weight_bytes"] if is_used else 0)
            kernels = [node["kernel"] for node in report["nodes"] if node["kernel"]]
            self.assertEqual(kernels != [], is_used)
            for kernel in kernels:
                self.assertRegex(kernel["name"], "^(Gemm|Depthwise)")
                self.assertGreaterEqual(kernel["channels"], kernel["float_channels"])
                self.assertTrue(kernel["packed_in_file"])
        self.assertIn("used where they lie in the file",
                      self.succeed("inspect", compiled, "--device", "cpu").stdout)
        for device in ("cpu", "emu"):
            want, got = ([output["sha256"] for output in
                          self.json("run", model, "--device", device)["outputs"]]
                         for model in (FASHION_MODEL, compiled))
            self.assertEqual(got, want, device)


class Assembly(CommandTest):
    def test_text_of_a_model(self):
        text = self.succeed("disasm", FASHION_MODEL, "--device", "emu:32x32").stdout
        for part in ("compiled for emu:32x32 (", '\n.executable "', "\n.isa 1\n", "\n.array 32 32 ",
                     "\n.activations ", " bytes of parameters are resident", "\n.caching ",
                     "\n.inference ", "cycles, node 0 (CONV_2D) '/0/Relu_output_0'\n  CONV_2D ",
                     "\n  END\n"):
            self.assertIn(part, text)
        report = self.json("disasm", FASHION_MODEL, "--device", "emu:32x32")
        self.assertEqual(report["device"]["name"], "emu:32x32")
        executable, = report["executables"]
        self.assertEqual(executable["array_rows"], 32)
        for instruction in executable["caching_program"] + executable["inference_program"]:
            self.assertIn("\n  " + instruction["text"] + "\n", text)
        partition, = self.json("inspect", FASHION_MODEL, "--device", "emu:32x32")["partitions"]
        self.assertEqual(len(executable["inference_program"]), partition["instruction_count"])
        for field in ("resident_parameter_bytes", "activation_bytes", "modelled_cycles"):
            self.assertEqual(executable[field], partition[field])

    def test_round_trip(self):
        compiled = self.directory / "compiled.tflite"
        self.succeed("compile", FASHION_MODEL, "--device", "emu", "-o", compiled)
        first, again = self.directory / "first.s", self.directory / "again.s"
        executable, twice = self.directory / "first.atx", self.directory / "again.atx"
        self.succeed("disasm", compiled, "--parameters", "-o", first)
        self.assertIn("node 0 (CONV_2D) '/0/Relu_output_0'", first.read_text())
        report = self.json("asm", first, "-o", executable)
        self.assertEqual(report["bytes"], executable.stat().st_size)
        self.assertIn(executable.read_bytes(), compiled.read_bytes())
        self.succeed("disasm", executable, "--parameters", "-o", again)
        self.succeed("asm", again, "-o", twice)
        self.assertEqual(executable.read_bytes(), twice.read_bytes())
        self.assertNotIn("device", self.json("disasm", executable))

    def test_mistakes(self):
        output = self.directory / "x.atx"
        text = self.file("bad.s", b'.executable "x"\n.inference\n  NOP\n')
        self.fail_with(4, ("asm", text, "-o", output), text, "line 3, column 3: 'NOP'")
        text.write_bytes(b'.executable "x"\n.isa 2\n')
        self.fail_with(4, ("asm", text, "-o", output), "ISA version 2", "knows version 1")
        text.write_bytes(b"")
        self.fail_with(4, ("asm", text, "-o", output), "begins with .executable")
        text.write_text(self.succeed("disasm", FASHION_MODEL, "--device", "emu").stdout)
        self.fail_with(4, ("asm", text, "-o", output), "--parameters")
        self.assertFalse(output.exists())
        self.fail_with(1, ("asm", self.directory / "absent.s", "-o", output), "absent.s")
        self.fail_with(1, ("disasm", self.directory / "absent.tflite"), "absent.tflite")
        self.fail_with(4, ("disasm", text))
        self.fail_with(4, ("disasm", self.file("bad.atx", b"\x10\0\0\0ATX1")),
                       "not an Atoll executable")
        self.fail_with(4, ("disasm", self.file("old.atx", b"\x10\0\0\0ATX1" + bytes(40))),
                       "made for ISA version 0, this library knows version 1; compile "
                       "the original model again with this version of Atoll;")
        self.fail_with(2, ("disasm", FASHION_MODEL, "--device", "cpu"), "--device cpu")
        self.fail_with(2, ("disasm", FASHION_MODEL, "--device", "emu", "--partition", "1"),
                       "--partition 1")


class Run(CommandTest):
    def test_output_files(self):
        for device in ("cpu", "emu"):
            directory = self.directory / device
            report = self.json("run", FASHION_MODEL, "--device", device, "--output-dir", directory)
            self.assertEqual([path.name for path in directory.iterdir()], ["out_0.raw"])
            data = (directory / "out_0.raw").read_bytes()
            self.assertEqual(len(data), 10)
            self.assertEqual(report["outputs"][0]["sha256"], hashlib.sha256(data).hexdigest())

    def test_says_where_outputs_are(self):
        directory = self.directory / "out"
        picture = SOURCE / "models/fashion/ankle_boot.pgm"
        for arguments, what in ((("run", FASHION_MODEL, "--output-dir"), "the outputs"),
                                (("classify", FASHION_MODEL, picture, "--output"),
                                 "the annotated pictures")):
            result = self.succeed(*arguments, directory, "--device", "cpu")
            self.assertIn(f"atoll: {what} are in '{directory}'\n", result.stderr)

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


class Interrupted(CommandTest):
    """Ctrl-C ends a benchmark with what was measured until then."""

    def interrupt(self, *arguments):
        with subprocess.Popen([*COMMAND, "benchmark", *map(str, arguments), "--device", "cpu",
                               "--runs", "10000000", "--warmup", "1"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE,
                              env={**os.environ, "ATOLL_PROGRESS": "0.05"}) as process:
            for line in process.stderr:  # until samples are taken
                if int(re.search(rb"measuring, (\d+) of", line)[1]) > 30:
                    break
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, stderr)
        self.assertRegex(stderr.decode(), r"atoll: interrupted after \d+ of 10000000 runs; [^\n]*\n\Z")
        return stdout.decode()

    def test_one_model(self):
        self.assertRegex(self.interrupt(FASHION_MODEL), r"\ninvoke +min .* on the host, \d+ runs\n")
        report = json.loads(self.interrupt(FASHION_MODEL, "--json"))
        self.assertGreaterEqual(report["runs"], 1)
        self.assertGreaterEqual(report["runs"], len(report["samples_ms"]))
        self.assertGreater(report["latency_ms"]["median"], 0)

    def test_several(self):
        table = self.interrupt(FASHION_MODEL, "--threads", "1,2")
        self.assertGreaterEqual(table.count("fashion_int8.tflite"), 1)


class Classify(CommandTest):
    def test_how_to_name_classes(self):
        arguments = ("classify", FASHION_MODEL, SOURCE / "models/fashion/ankle_boot.pgm",
                     "--device", "cpu")
        self.assertEqual(self.succeed(*arguments).stderr,
                         "atoll: classes are numbers here; --labels FILE names them\n")
        self.assertEqual(self.succeed(*arguments, "--json").stderr, "")
        self.assertEqual(self.succeed(*arguments, "--labels", FASHION_LABELS).stderr, "")

    PPM = b"P6 300 200 255\n" + bytes(range(256)) * 703 + bytes(32)

    def test_annotated_picture(self):
        """In colour and at full size, although the model takes small gray pictures."""
        picture = self.file("picture.ppm", self.PPM)
        output = self.directory / "new/named.jpg"
        output.parent.mkdir()
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


if __name__ == "__main__":
    need(FASHION_MODEL)
    unittest.main()
