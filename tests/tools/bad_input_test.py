# SPDX-License-Identifier: Apache-2.0
"""Whatever a user gives the command: one sentence, the documented exit code, no partial output."""
import json
import os
import random
import socket
import struct
import subprocess
import threading
import unittest

from atoll_command import (COMMAND, FASHION_LABELS, FASHION_MODEL, FLATC, SOURCE, CommandTest, need,
                           run, tensor)

FAILURE, USAGE, NO_DEVICE, BAD_MODEL = 1, 2, 3, 4

CPU = ("--device", "cpu")
RELU = {"builtin_code": 19, "deprecated_builtin_code": 19, "version": 2}


class BadModels(CommandTest):
    def refuse(self, model, *mentions, code=BAD_MODEL):
        for device in ("cpu", "emu"):
            output = self.directory / "output"
            self.fail_with(code, ("run", model, "--device", device, "--output-dir", output),
                           *mentions)
            self.assertFalse(output.exists())
        for arguments in (("inspect", model), ("benchmark", model), ("camera", model),
                          ("classify", model, SOURCE / "README.md"),
                          ("detect", model, SOURCE / "README.md"),
                          ("segment", model, SOURCE / "README.md"),
                          ("pose", model, SOURCE / "README.md")):
            self.fail_with(code, arguments, *mentions)

    def test_absent(self):
        self.refuse(self.directory / "none.tflite", "none.tflite", code=FAILURE)

    def test_directory(self):
        self.refuse(self.directory, self.directory, code=FAILURE)

    def test_empty(self):
        self.refuse(self.file("empty.tflite", b""), "empty.tflite")

    def test_not_tflite(self):
        self.refuse(FASHION_LABELS, "labels.txt", "not a .tflite file")

    def test_dynamic_shape(self):
        image = tensor("image", [1, -1, -1, 3])
        self.refuse(self.model([image, tensor("result", [1, -1, -1, 3])], RELU), "image", "-1")

    def test_unknown_custom_operator(self):
        custom = {"builtin_code": 32, "deprecated_builtin_code": 32, "custom_code": "Frobnicate"}
        model = self.model([tensor("x", [1, 8]), tensor("y", [1, 8])], custom)
        self.refuse(model, "Frobnicate")
        self.assertIn("float32, int8 and uint8", run("run", model, "--device", "cpu").stderr)

    def test_unknown_operator(self):
        unknown = {"builtin_code": 9999, "deprecated_builtin_code": 127}
        self.refuse(self.model([tensor("x", [1, 8]), tensor("y", [1, 8])], unknown), "9999")

    def test_unsupported_type(self):
        complex64 = 8
        self.refuse(self.model([tensor("wave", [1, 8], complex64), tensor("y", [1, 8], complex64)],
                               RELU), "wave")

    def test_other_formats(self):
        """What the file is, and how to come from it to a model: it is not damaged."""
        for start, name in ((b"\x08\x07\x12\x07pytorch", "an ONNX file"),
                            (b"\x89HDF\r\n\x1a\n", "a Keras file"), (b"PK\3\4", "an archive"),
                            (b"version https://git-lfs", "Git LFS"), (b"<!doctype html>", "a page")):
            for device in ("cpu", "emu"):
                result = run("run", self.file("model.tflite", start + bytes(64)), "--device", device)
                self.assertEqual(result.code, BAD_MODEL)
                self.assertIn(name, result.stderr)
                self.assertNotIn("undamaged", result.stderr)
        self.fail_with(BAD_MODEL, ("run", self.file("m.onnx", bytes(64)), *CPU), "'atoll import'")

    def test_dynamic_range_quantized(self):
        """Weights of bytes for activations of float32."""
        relu = {"builtin_code": 9, "deprecated_builtin_code": 9, "version": 3}
        float32, float16 = 0, 1
        for dtype, words in ((9, "the model is dynamic-range quantized"), (float16, "float16")):
            model = self.weighted_model(relu, tensor("x", [1, 4], float32),
                                        tensor("w", [2, 4], dtype, buffer=1),
                                        tensor("y", [1, 2], float32))
            self.refuse(model, words, "'atoll quantize'")
            self.assertNotIn("undamaged", run("run", model).stderr)

    def weighted_model(self, operator, *tensors):
        source = self.file("weighted.json", json.dumps({
            "version": 3, "operator_codes": [operator],
            "subgraphs": [{"tensors": tensors, "inputs": [0], "outputs": [2],
                           "operators": [{"opcode_index": 0, "inputs": [0, 1, -1], "outputs": [2],
                                          "builtin_options_type": "FullyConnectedOptions",
                                          "builtin_options": {}}]}],
            "buffers": [{}, {"data": [1] * 16}]}).encode())
        subprocess.run([FLATC, "--binary", "-o", self.directory,
                        SOURCE / "models/schema/tflite.fbs", source], check=True)
        return self.directory / "weighted.tflite"

    def test_pipe(self):
        """Nobody writes into it, and nobody waits for that."""
        pipe = self.directory / "pipe"
        os.mkfifo(pipe)
        self.fail_with(FAILURE, ("run", pipe, *CPU), "pipe", "not a regular file")

    def test_truncated(self):
        whole = FASHION_MODEL.read_bytes()
        chance = random.Random(1)
        sizes = [1, 4, 7, 8, 100, len(whole) - 1] + [chance.randrange(len(whole)) for _ in range(14)]
        for size in sizes:
            arguments = ("run", self.file("cut.tflite", whole[:size]), *CPU)
            self.fail_with(BAD_MODEL, arguments, "cut.tflite")

    def test_flipped_bits(self):
        """One wrong bit makes the model invalid or another valid one, never a crash."""
        whole = FASHION_MODEL.read_bytes()
        chance = random.Random(2)
        # Where the structure is: at the front and at the end; weights fill what is between.
        places = ([chance.randrange(64) for _ in range(20)] +
                  [chance.randrange(len(whole)) for _ in range(30)] +
                  [chance.randrange(len(whole) - 8000, len(whole)) for _ in range(50)])
        for place in places:
            flipped = bytearray(whole)
            flipped[place] ^= 1 << chance.randrange(8)
            arguments = ("run", self.file("flipped.tflite", bytes(flipped)), *CPU)
            result = run(*arguments)
            self.assertIn(result.code, (0, BAD_MODEL), f"bit in byte {place}: {result.stderr}")
            if result.code:
                self.assert_sentence(arguments, result)


class BadInputs(CommandTest):
    def refuse(self, code, arguments, *mentions):
        output = self.directory / "output"
        self.fail_with(code, ("run", FASHION_MODEL, *CPU, "--output-dir", output, *arguments),
                       *mentions)
        self.assertFalse(output.exists())

    def test_size(self):
        for size in (0, 783, 785, 100_000):
            path = self.file("image.raw", bytes(size))
            self.refuse(USAGE, ("--input", f"0={path}"), "image.raw", "784")

    def test_absent_file(self):
        self.refuse(FAILURE, ("--input", "0=none.raw"), "none.raw")

    def test_directory(self):
        self.refuse(FAILURE, ("--input", f"0={self.directory}"), self.directory)

    def test_index(self):
        path = self.file("image.raw", bytes(784))
        self.refuse(USAGE, ("--input", f"1={path}"), "input 1", "has 1")
        for bad in (str(path), f"={path}", f"x={path}", f"-1={path}", "0=", f"0x={path}"):
            self.refuse(USAGE, (f"--input={bad}",), "K=FILE")

    def test_given_twice(self):
        path = self.file("image.raw", bytes(784))
        self.refuse(USAGE, ("--input", f"0={path}", "--input", f"0={path}"), "twice")

    def test_output_directory_is_a_file(self):
        path = self.file("taken", b"")
        self.fail_with(FAILURE, ("run", FASHION_MODEL, *CPU, "--output-dir", path), "taken")

    def test_output_name_is_a_directory(self):
        (self.directory / "out_0.raw").mkdir()
        self.fail_with(FAILURE, ("run", FASHION_MODEL, *CPU, "--output-dir", self.directory),
                       "out_0.raw")
        self.assertEqual([path.name for path in self.directory.iterdir()], ["out_0.raw"])

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([*COMMAND, "run", FASHION_MODEL, *CPU], stdout=full,
                                  stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, FAILURE)
        self.assertRegex(done.stderr.decode(), r"\Aatoll: cannot write to stdout[^\n]*\.\n\Z")

    def test_too_many_threads(self):
        for number in ("-1", "257"):
            self.fail_with(USAGE, ("run", FASHION_MODEL, *CPU, "--threads", number), "--threads")

    def test_closed_stdout(self):
        """Then no file that the command opens takes its place."""
        saved = self.directory / "model.tflite"
        for arguments in (("run", FASHION_MODEL, *CPU), ("inspect", FASHION_MODEL, "--json"),
                          ("compile", FASHION_MODEL, "--device", "emu", "-o", saved)):
            done = subprocess.run([*COMMAND, *arguments], stderr=subprocess.PIPE, check=False,
                                  preexec_fn=lambda: os.close(1))
            self.assertEqual(done.returncode, FAILURE, arguments)
            self.assertRegex(done.stderr.decode(), r"atoll: cannot write to stdout[^\n]*\.\n\Z")


class BadPictures(CommandTest):
    PPM = b"P6 2 2 255\n" + bytes(range(12))

    def classify(self, *arguments):
        return ("classify", FASHION_MODEL, *CPU, *arguments)

    def test_not_a_picture(self):
        self.fail_with(FAILURE, self.classify(FASHION_LABELS), "labels.txt")

    def test_absent(self):
        self.fail_with(FAILURE, self.classify("none.jpg"), "none.jpg")

    def test_truncated(self):
        self.fail_with(FAILURE, self.classify(self.file("cut.ppm", self.PPM[:-1])), "cut.ppm")

    def test_second_is_bad(self):
        """Then nothing is printed about the first either."""
        good = self.file("good.ppm", self.PPM)
        self.fail_with(FAILURE, self.classify(good, FASHION_LABELS), "labels.txt")

    def test_labels_too_few(self):
        labels = self.file("three.txt", b"a\nb\nc\n")
        self.fail_with(USAGE, self.classify(self.file("p.ppm", self.PPM), "--labels", labels),
                       "three.txt", "3 labels", "10 classes")

    def test_labels_too_many(self):
        labels = self.file("many.txt", b"".join(b"label%d\n" % i for i in range(12)))
        result = self.succeed(*self.classify(self.file("p.ppm", self.PPM), "--labels", labels))
        self.assertRegex(result.stderr, r"\Aatoll: warning: [^\n]*12[^\n]*10[^\n]*\n\Z")

    def test_labels_absent(self):
        self.fail_with(FAILURE, self.classify(self.file("p.ppm", self.PPM), "--labels", "none.txt"),
                       "none.txt")

    def test_not_a_classifier(self):
        model = self.model([tensor("x", [1, 8]), tensor("y", [1, 8])], RELU)
        self.fail_with(BAD_MODEL, ("classify", model, self.file("p.ppm", self.PPM), *CPU), "[1,8]")


class BadOutputs(CommandTest):
    def test_over_what_is_read(self):
        bytes = FASHION_MODEL.read_bytes()
        model = self.file("model.tflite", bytes)
        labels = self.file("labels.txt", FASHION_LABELS.read_bytes())
        picture = SOURCE / "models/fashion/ankle_boot.pgm"
        link = self.directory / "link.tflite"
        os.link(model, link)
        for output in (model, self.directory / "." / "model.tflite", link):
            for arguments in (("run", model, "--device", "emu", "--record", output),
                              ("compile", model, "--output", output),
                              ("disasm", model, "--output", output),
                              ("profile", model, "--report", output),
                              ("profile", model, "--trace", output),
                              ("camera", model, "--frames", "1", "--results", output),
                              ("camera", model, "--frames", "1", "--trace", output)):
                with self.subTest(arguments=arguments):
                    self.fail_with(USAGE, arguments, arguments[-2], "choose another")
                    self.assertEqual(model.read_bytes(), bytes)
        self.fail_with(USAGE, ("classify", model, picture, f"--labels={labels}", "--device", "emu",
                               "--record", labels), "--record", "choose another")
        self.assertEqual(labels.read_bytes(), FASHION_LABELS.read_bytes())

    def test_folders_that_are_absent(self):
        for option in ("--save", "--trace", "--results"):
            missing = self.directory / "missing"
            self.fail_with(FAILURE, ("camera", FASHION_MODEL, "--frames", "1", option,
                                     missing / "name"), missing)
            self.assertFalse(missing.exists())

    def test_replays_that_depart(self):
        recording = self.directory / "session.pcapng"
        camera = ("camera", FASHION_MODEL, "--policy", "every", "--frames")
        self.succeed(*camera, "2", "--device", "emu", "--record", recording)
        self.succeed(*camera, "2", "--device", f"replay:{recording}")
        departed = run(*camera, "4", "--device", f"replay:{recording}")
        self.assertEqual(departed.code, FAILURE, departed.stderr)
        self.assertIn("of 4 frames failed", departed.stderr)

    """What cannot be written is said before the work, and nothing is made."""
    PICTURE = SOURCE / "models/fashion/ankle_boot.pgm"

    def refuse(self, code, arguments, *mentions):
        before = sorted(self.directory.rglob("*"))
        self.fail_with(code, arguments, *mentions)
        self.assertEqual(sorted(self.directory.rglob("*")), before)

    def commands(self, path):
        """Every subcommand that writes a file of this name."""
        self.text = self.file("program.s", b".executable")
        return (("compile", FASHION_MODEL, "--output", path),
                ("disasm", FASHION_MODEL, "--output", path),
                ("asm", self.text, "--output", path),
                ("profile", FASHION_MODEL, "--report", path),
                ("profile", FASHION_MODEL, "--trace", path),
                ("run", FASHION_MODEL, "--record", path))

    def test_missing_folder(self):
        missing = self.directory / "mising"
        for arguments in self.commands(missing / "file.jpg"):
            self.refuse(FAILURE, arguments, f"there is no folder '{missing}'", arguments[-2])
        for name in ("file.jpg", "folder", "folder/"):
            self.refuse(FAILURE, ("classify", FASHION_MODEL, self.PICTURE, "--output",
                                  f"{missing}/{name}"), f"there is no folder '{missing}'")
        self.refuse(FAILURE, ("run", FASHION_MODEL, "--output-dir", missing / "deeper"),
                    f"there is no folder '{missing}'")

    def test_folders(self):
        for arguments in self.commands(self.directory):
            self.refuse(USAGE, arguments, f"'{self.directory}' is a folder")
        for arguments in self.commands(""):
            if arguments[0] in ("compile", "asm"):
                self.refuse(USAGE, arguments, "--output")

    def test_file_as_folder(self):
        taken = self.file("taken", b"")
        for arguments in self.commands(taken / "file.jpg"):
            self.refuse(FAILURE, arguments, f"'{taken}' is no folder")
        self.refuse(FAILURE, ("classify", FASHION_MODEL, self.PICTURE, "--output", taken / "a.jpg"),
                    f"'{taken}' is no folder")

    def test_names_that_are_too_long(self):
        """No words of a library: 'filesystem error'."""
        for name in ("x" * 300, "x" * 300 + ".jpg", "y/" * 3000 + "z.jpg"):
            path = self.directory / name
            for arguments in (*self.commands(path),
                              ("classify", FASHION_MODEL, self.PICTURE, "--output", path)):
                self.refuse(FAILURE, arguments, "File name too long")
            self.refuse(FAILURE, ("run", path), "File name too long")

    def test_a_folder_is_made_for_several_files(self):
        self.succeed("classify", FASHION_MODEL, self.PICTURE, "--output", self.directory / "new/")
        self.assertTrue((self.directory / "new/ankle_boot.jpg").exists())
        self.succeed("run", FASHION_MODEL, "--output-dir", self.directory / "raw")
        self.assertTrue((self.directory / "raw/out_0.raw").exists())


    def test_replayed_command_lines(self):
        """Their outputs are held against their own inputs."""
        model = self.file("model.tflite", FASHION_MODEL.read_bytes())
        recording = self.directory / "session.pcapng"
        self.succeed("profile", model, "--runs", "1", "--device", "emu", "--record", recording)
        before = recording.read_bytes()
        for output in (model, recording):
            result = run("replay", recording, "--", "--trace", output)
            self.assertEqual(result.code, USAGE, result.stderr)
            self.assertIn("would overwrite a file that the command line names once more",
                          result.stderr)
        self.assertEqual((model.read_bytes(), recording.read_bytes()),
                         (FASHION_MODEL.read_bytes(), before))


class Recordings(CommandTest):
    """The command line in a recording may be a stranger's."""

    def setUp(self):
        super().setUp()
        self.recorded = self.directory / "session.pcapng"
        self.succeed("run", FASHION_MODEL, "--device", "emu", "--record", self.recorded)

    def with_words(self, *words):
        """The recording, with that command line in it."""
        data, at, out = self.recorded.read_bytes(), 0, b""
        while at < len(data):
            kind, length = struct.unpack_from("<II", data, at)
            block, at = data[at:at + length], at + length
            if kind == 6 and block[28:].startswith(b"note session "):
                text = b"note session " + json.dumps([str(word) for word in words]).encode()
                body = block[8:20] + struct.pack("<II", len(text), len(text)) + text
                body += bytes(-len(body) % 4)
                block = struct.pack("<II", 6, len(body) + 12) + body + struct.pack("<I", len(body) + 12)
            out += block
        return self.file("changed.pcapng", out)

    def test_replays_read_alone(self):
        victim = self.file("victim.txt", b"precious")
        for words in (("compile", FASHION_MODEL, "--output", victim), ("broker",), ("serve",),
                      ("replay", self.recorded), ("import", "x.onnx"), ("--version",),
                      ("--device",), ("--device=emu", "--record", "x"),
                      ("camera", FASHION_MODEL, "--source", "http://127.0.0.1:9/x"),
                      ("camera", FASHION_MODEL, "--mqtt=mqtt://127.0.0.1:9/x")):
            result = run("replay", self.with_words(*words))
            self.assertEqual(result.code, USAGE, (words, result.stderr))
            self.assertIn("--device replay:", result.stderr)
        self.assertEqual(victim.read_bytes(), b"precious")

    def test_outputs_are_asked_for(self):
        folder = self.directory / "outputs"
        for word in (("--output-dir", folder), (f"--output-dir={folder}",),
                     ("--output-dir", "--output-dir", "--output-dir", folder)):
            result = run("replay", self.with_words("run", FASHION_MODEL, *word))
            self.assertIn("atoll: without --output-dir: ", result.stderr)
            self.assertFalse(folder.exists(), word)
        picture = SOURCE / "models/fashion/ankle_boot.pgm"
        result = run("replay", self.with_words(
            "camera", FASHION_MODEL, "--source", picture, "--frames", "1", "--serve", "127.0.0.1:0",
            "--insecure", "--results", folder, "--trace", folder, "--save", folder))
        self.assertIn("without --save, --results, --trace, --serve, --insecure", result.stderr)
        self.assertFalse(folder.exists())
        again = self.succeed("replay", self.recorded, "--", "--output-dir", folder)
        self.assertTrue((folder / "out_0.raw").exists(), again.stderr)


class Forbidden(CommandTest):
    """Files and folders that the user may not use: who may, and what to do."""

    def setUp(self):
        super().setUp()
        self.directory.chmod(0o755)
        self.user = {"user": 65534, "group": 65534} if os.getuid() == 0 else {}
        try:
            if self.forbidden("--version").returncode != 0:
                raise PermissionError
        except PermissionError:
            self.skipTest("another user may not run the command")

    def forbidden(self, *arguments):
        return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, check=False,
                              cwd="/", **self.user)

    def locked(self, name, content):
        path = self.file(name, content)
        path.chmod(0)
        return path

    def test_standard_output_needs_no_folder(self):
        for arguments in (("disasm", FASHION_MODEL, "--output", "-"),
                          ("profile", FASHION_MODEL, "--device", "emu", "--trace", "-")):
            with self.subTest(arguments[0]):
                done = self.forbidden(*arguments)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_reading(self):
        model = self.locked("model.tflite", FASHION_MODEL.read_bytes())
        picture = SOURCE / "models/fashion/ankle_boot.pgm"
        text = self.locked("text.txt", b"x")
        good = ("run", FASHION_MODEL, *CPU)
        for arguments in (("run", model, *CPU), ("disasm", model), (*good, "--input", f"0={text}"),
                          ("classify", FASHION_MODEL, picture, *CPU, "--labels", text),
                          ("classify", FASHION_MODEL, text, *CPU),
                          ("camera", FASHION_MODEL, "--source", text),
                          ("benchmark", "compare", text, text)):
            done = self.forbidden(*arguments)
            self.assertEqual(done.returncode, FAILURE, done.stderr)
            self.assertIn(b"Permission denied; let this user read it", done.stderr)

    def test_writing(self):
        self.directory.chmod(0o555)
        self.addCleanup(self.directory.chmod, 0o755)
        path = self.directory / "new"
        for arguments in (("run", FASHION_MODEL, "--device", "emu", "--record", path),
                          ("run", FASHION_MODEL, *CPU, "--output-dir", path),
                          ("compile", FASHION_MODEL, "--output", path),
                          ("camera", FASHION_MODEL, "--frames", "1", "--save", path),
                          ("camera", FASHION_MODEL, "--frames", "1", "--results", path)):
            done = self.forbidden(*arguments)
            self.assertEqual(done.returncode, FAILURE, done.stderr)
            self.assertIn(f"choose another {arguments[-2]}, in a folder that this user may write "
                          "to", done.stderr.decode())


class BadScripts(CommandTest):
    def test_faults_and_firmware(self):
        for option in ("--faults", "--firmware"):
            for path in (self.directory / "none", self.directory):
                self.fail_with(FAILURE, ("run", FASHION_MODEL, "--device", "emu", option, path),
                               option, path)

    def test_endless_files(self):
        for arguments in (("disasm", "/dev/zero"), ("benchmark", "compare", "/dev/zero",
                                                    "/dev/zero")):
            self.fail_with(FAILURE, arguments, "/dev/zero", "more than 64 MiB")


class BadDevices(CommandTest):
    def test_absent(self):
        for device in ("usb:99", "pci:0", "/dev/apex_9", "emu:nonesuch"):
            for command in (("run",), ("inspect",), ("benchmark",), ("camera",)):
                self.fail_with(NO_DEVICE, (*command, FASHION_MODEL, "--device", device), device)

    def test_no_such_kind(self):
        for device in ("", "gpu", "usb:", "usb:x", "emu:"):
            result = run("run", FASHION_MODEL, "--device", device)
            self.assertIn(result.code, (USAGE, NO_DEVICE), device)
            self.assert_sentence(device, result)

    def test_one_sentence_everywhere(self):
        """Every subcommand says the same of a name, and no library's list without 'cpu'."""
        for device, mention in (("coral", "a Coral USB Accelerator is 'usb'"),
                                ("/dev/apex", "did you mean '/dev/apex_0'?"),
                                ("EMU", "did you mean 'emu'?"), ("gpu", "did you mean 'cpu'?"),
                                ("cpu,emu", "the CPU cannot share requests"),
                                ("toaster", "the names are auto, cpu, emu,")):
            for command in (("run", FASHION_MODEL), ("inspect", FASHION_MODEL), ("doctor",),
                            ("verify", FASHION_MODEL, "--against", "emu"),
                            ("residency", FASHION_MODEL), ("benchmark", FASHION_MODEL)):
                self.fail_with(USAGE, (*command, "--device", device), mention)
        self.fail_with(USAGE, ("verify", FASHION_MODEL, "--against", "edgetpu"),
                       "a Coral USB Accelerator is 'usb'")

    def test_logins_stay_out_of_sentences(self):
        """Sentences are shown to others, in logs and in reports of bugs."""
        for scheme in ("http", "https", "oip", "oips", "grpc", "grpcs"):
            for place in ("me:secret@host:1/m", "me:secret@host", "me:se/cret@host:8000/m",
                          "secret@host:1/m/n", "me:secret@host:1/m.json"):
                address = f"{scheme}://{place}"
                for command in (("benchmark", "--target", address),
                                ("benchmark", FASHION_MODEL, "--target", address),
                                ("run", FASHION_MODEL, "--device", address),
                                ("run", FASHION_MODEL, "--device", f"emu,{address}"),
                                ("verify", FASHION_MODEL, "--against", address)):
                    result = run(*command)
                    self.assertNotEqual(result.code, 0, command)
                    self.assertNotIn("cret", result.stderr, command)
                    self.assertNotIn("se/", result.stderr, command)
                    if FASHION_MODEL in command and command[0] != "benchmark":
                        self.assertIn("host", result.stderr, command)

    def test_the_cpu_is_no_device(self):
        """What only devices have is refused, not ignored."""
        for option in (("--faults", "seed:1:1/9"), ("--record", self.directory / "x.pcapng"),
                       ("--stages", "2")):
            self.fail_with(USAGE, ("run", FASHION_MODEL, *CPU, *option), "the CPU is no device")

    def test_absent_camera(self):
        self.fail_with(NO_DEVICE, ("camera", FASHION_MODEL, "--source", "/dev/video99"),
                       "/dev/video99")


class BadCommandLines(CommandTest):
    def test_usage(self):
        for arguments in ((), ("frobnicate",), ("run",), ("run", FASHION_MODEL, "--nonsense"),
                          ("run", FASHION_MODEL, "--threads", "many"),
                          ("run", FASHION_MODEL, "--seed", "-1"),
                          ("run", FASHION_MODEL, "--seed", "18446744073709551616"),
                          ("camera", FASHION_MODEL, "--frames", "-1"),
                          ("benchmark", FASHION_MODEL, "--runs", "0"),
                          ("run", FASHION_MODEL, "--order", "x"),
                          ("classify", FASHION_MODEL, "p.ppm", "--label-offset", "1"),
                          ("classify", FASHION_MODEL),
                          ("classify", FASHION_MODEL, "p.ppm", "--std", "0"),
                          ("camera", FASHION_MODEL, "--policy", "some"),
                          ("camera", FASHION_MODEL, "--crop", "5x"),
                          ("camera", FASHION_MODEL, "--size", "640"),
                          ("camera", FASHION_MODEL, "--labels", "a", "--labels", "b"),
                          ("camera", FASHION_MODEL, FASHION_MODEL, "--priority", "1"),
                          ("camera", FASHION_MODEL, FASHION_MODEL, "--inside", "1"),
                          ("camera", FASHION_MODEL, FASHION_MODEL, "--inside", "0:1"),
                          ("camera", FASHION_MODEL, FASHION_MODEL, "--inside", "1:0")):
            self.fail_with(USAGE, arguments)

    def test_thresholds(self):
        for command in ("detect", "pose"):
            for wrong in ("50", "-0.1", "1.01", "nan", "inf", "x", ""):
                self.fail_with(USAGE, (command, FASHION_MODEL, "p.ppm", "--threshold", wrong),
                               "--threshold", "not a number from 0 to 1")
        self.fail_with(USAGE, ("detect", FASHION_MODEL, "p.ppm", "--threshold", "50"),
                       "scores are no percentages")

    def test_camera_source(self):
        self.fail_with(FAILURE, ("camera", FASHION_MODEL, "--source", "nowhere"), "nowhere")
        self.fail_with(NO_DEVICE, ("camera", FASHION_MODEL, "--source", "http://no.invalid/x"),
                       "there is no host 'no.invalid'", "; check the name, or give")

    def test_network_cameras_that_refuse(self):
        """Each answer has its next step."""
        for status, step in ((404, "; look up the path"), (403, "; give another login"),
                             (503, "; ")):
            with socket.create_server(("127.0.0.1", 0)) as server:
                def answer(server=server, status=status):
                    connection = server.accept()[0]
                    with connection:
                        connection.recv(4096)
                        connection.sendall(b"HTTP/1.1 %d No\r\n\r\n" % status)
                thread = threading.Thread(target=answer)
                thread.start()
                url = f"http://127.0.0.1:{server.getsockname()[1]}/video"
                self.fail_with(NO_DEVICE, ("camera", FASHION_MODEL, "--source", url),
                               f"HTTP status {status}", step)
                thread.join()

    def test_numbers_in_words(self):
        self.fail_with(USAGE, ("camera", FASHION_MODEL, FASHION_MODEL, "--labels", "a"),
                       "--labels is given once for 2 models;")


if __name__ == "__main__":
    need(FASHION_MODEL)
    unittest.main()
