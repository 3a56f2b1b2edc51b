# SPDX-License-Identifier: Apache-2.0
"""`atoll broker` as people start it: other commands get the same bytes by it, and go on when it is
killed, replaced or told to stop. Classes are suites."""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import unittest

from atoll_command import (COMMAND, EMULATOR, FASHION_MODEL, SHARED, SOURCE, CommandTest, need,
                           run)

SCENES_MODEL = SOURCE / "models/scenes/scenes_int8.tflite"
CROPS_MODEL = SOURCE / "models/crops/crops_int8.tflite"
GOLDEN_NAMES = ("mlperf_tiny_kws_int8", "mlperf_tiny_resnet8_int8", "mobilenet_v2_1.0_224_quant",
                "keras_lstm_mnist_ptq")


class BrokerTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.socket = self.directory / "broker.sock"
        os.environ["ATOLL_BROKER"] = str(self.socket)
        os.environ["ATOLL_ACTIVITY"] = str(self.directory / "activity")
        self.addCleanup(os.environ.pop, "ATOLL_BROKER")
        self.addCleanup(os.environ.pop, "ATOLL_ACTIVITY")
        self.device = f"broker:{self.socket}"

    def popen(self, *arguments, **options):
        process = subprocess.Popen([*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, **options)

        def end():
            process.kill()
            process.communicate()
        self.addCleanup(end)
        return process

    def start(self, *arguments, **options):
        """A broker that serves."""
        broker = self.popen("broker", "--device", "emu", *arguments, **options)
        line = broker.stdout.readline()
        self.assertRegex(line, rf"^emulated Atoll-1, .* at {self.socket}; Ctrl-C stops it$")
        return broker

    def outputs(self, model, device, seed=1):
        """Of `run`, with their checksums; the device must not have been lost for good."""
        report = self.json("run", model, "--device", device, "--seed", seed)
        self.assertEqual(report["device"]["health"]["fallbacks"], 0)
        return report["outputs"]

    def assert_equal_bytes(self, model, seed=1):
        self.assertEqual(self.outputs(model, self.device, seed), self.outputs(model, "emu", seed),
                         model)

    def wait_for(self, condition, what):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.02)


class Bytes(BrokerTest):
    def test_models_of_this_tree(self):
        self.start()
        for model in (FASHION_MODEL, SCENES_MODEL, CROPS_MODEL):
            for seed in (1, 2):
                with self.subTest(model.name, seed=seed):
                    self.assert_equal_bytes(model, seed)

    def test_several_programs_at_once(self):
        self.start()
        wanted = {model: self.outputs(model, "emu") for model in (FASHION_MODEL, CROPS_MODEL)}
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            runs = [(model, pool.submit(self.outputs, model, self.device))
                    for model in list(wanted) * 6]
            for model, outputs in runs:
                self.assertEqual(outputs.result(), wanted[model], model)

    def test_classify_and_benchmark(self):
        self.start()
        picture = SOURCE / "models/fashion/ankle_boot.pgm"
        shown = [self.json("classify", FASHION_MODEL, picture, "--device", device)["images"]
                 for device in (self.device, "emu")]
        self.assertEqual([image["top"] for image in shown[0]],
                         [image["top"] for image in shown[1]])
        report = self.json("benchmark", FASHION_MODEL, "--device", self.device, "--runs", "20")
        self.assertEqual(report["runs"], 20)
        self.assertIn(f"by the broker at {self.socket}", report["device"]["description"])

    def test_auto_takes_it(self):
        self.start()
        report = self.json("run", FASHION_MODEL)
        self.assertEqual(report["device"]["name"], "broker")
        devices = self.json("devices")["devices"]
        first = devices[0]
        self.assertEqual(first["name"], "broker")
        self.assertTrue(first["available"] and first["auto"], first)
        self.assertEqual([one["name"] for one in devices if one["auto"]], ["broker"])

    def test_auto_does_without(self):
        report = self.json("run", FASHION_MODEL)
        self.assertEqual(report["device"]["name"], "emu")
        self.assertNotIn("broker", [one["name"] for one in self.json("devices")["devices"]])


class Golden(BrokerTest):
    def test_models(self):
        need(SHARED / "models")
        self.start()
        for name in GOLDEN_NAMES:
            with self.subTest(name):
                model = SHARED / "models" / f"{name}.tflite"
                golden = json.loads((SHARED / "golden/models" / f"{name}.json").read_text())
                for seed, wanted in golden["seeds"].items():
                    outputs = self.outputs(model, self.device, seed)
                    self.assertEqual([one["sha256"] for one in outputs],
                                     [one["sha256"] for one in wanted["outputs"]], seed)


class Ends(BrokerTest):
    def test_killed_in_use(self):
        """Its clients go on at the next one, with the same bytes."""
        wanted = self.outputs(FASHION_MODEL, "emu")
        broker = self.start()
        order = ",".join(["0"] * 4000)
        client = self.popen("run", FASHION_MODEL, "--device", self.device, "--order", order,
                            "--seed", "1", "--on-device-loss", "replay", "--json")
        for _ in range(3):
            before = self.requests(broker)
            self.wait_for(lambda: client.poll() is not None or self.requests(broker) > before + 50,
                          "no requests")
            self.assertIsNone(client.poll(), "it ended before the broker did")
            broker.kill()
            broker.wait()
            broker = self.start()
        stdout, stderr = client.communicate(timeout=240)
        self.assertEqual(client.returncode, 0, stderr)
        report = json.loads(stdout)
        self.assertGreaterEqual(report["device"]["health"]["reopenings"], 3)
        self.assertEqual(report["device"]["health"]["fallbacks"], 0)
        self.assertEqual(len(report["invocations"]), 4000)
        for invocation in report["invocations"]:
            self.assertEqual(invocation["outputs"], wanted)

    def requests(self, broker):
        """That its device has done, by what it publishes."""
        activities = self.json("top", "--once")["activities"]
        return sum(one["total"]["requests"] for one in activities if one["pid"] == broker.pid)

    def test_told_to_stop_in_use(self):
        """It ends what is under way and goes; clients find the next one."""
        broker = self.start()
        client = self.popen("run", FASHION_MODEL, "--device", self.device, "--order",
                            ",".join(["0"] * 2000), "--on-device-loss", "replay", "--json")
        self.wait_for(lambda: client.poll() is not None or self.requests(broker) > 50,
                      "no requests")
        self.assertIsNone(client.poll(), "it ended before the broker did")
        broker.send_signal(signal.SIGTERM)
        self.assertEqual(broker.wait(60), 0)
        self.start()
        stdout, stderr = client.communicate(timeout=240)
        self.assertEqual(client.returncode, 0, stderr)
        health = json.loads(stdout)["device"]["health"]
        self.assertEqual(health["fallbacks"], 0)
        self.assertGreaterEqual(health["reopenings"], 1)

    def test_without_a_successor(self):
        """The stand-in ends what the broker began."""
        broker = self.start()
        wanted = self.outputs(FASHION_MODEL, "emu")
        client = self.popen("run", FASHION_MODEL, "--device", self.device, "--order",
                            ",".join(["0"] * 4000), "--json")
        self.wait_for(lambda: client.poll() is not None or self.requests(broker) > 50,
                      "no requests")
        broker.kill()
        stdout, stderr = client.communicate(timeout=240)
        self.assertEqual(client.returncode, 0, stderr)
        report = json.loads(stdout)
        self.assertGreaterEqual(report["device"]["health"]["fallbacks"], 1)
        self.assertEqual(report["invocations"][-1]["outputs"], wanted)

    def test_told_to_stop_when_idle(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            broker = self.start()
            broker.send_signal(number)
            self.assertEqual(broker.wait(60), 0)
            self.assertEqual(broker.stderr.read(), "")


class Places(BrokerTest):
    def test_a_second_one(self):
        broker = self.start()
        self.fail_with(3, ("broker", "--device", "emu"), f"process {broker.pid} is the broker",
                       self.socket)
        self.assert_equal_bytes(FASHION_MODEL)
        broker.kill()
        broker.wait()
        self.start()
        self.assert_equal_bytes(FASHION_MODEL)

    def test_permissions(self):
        folder = self.directory / "of its own"
        self.socket = folder / "b"
        self.device = f"broker:{self.socket}"
        self.start("--socket", self.socket)
        self.assertEqual(stat.S_IMODE(self.socket.stat().st_mode), 0o660)
        self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o750)
        self.assert_equal_bytes(FASHION_MODEL)
        if os.getuid() != 0:
            return  # somebody else is needed
        for mode, allowed in ((0o660, False), (0o666, True)):
            self.directory.chmod(0o755)
            folder.chmod(0o755)
            self.socket.chmod(mode)
            code = f"""if True:
                import os, socket
                os.setgroups([]); os.setgid(65534); os.setuid(65534)
                s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                s.connect({str(self.socket)!r})"""
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode == 0, allowed, done.stderr)

    def test_somebody_elses(self):
        """A client looks who it is before it sends anything."""
        if os.getuid() != 0:
            print("ATOLL-SKIPPED: only root can be somebody else")
            return
        self.directory.chmod(0o777)
        code = f"""if True:
            import os, socket, time
            os.setgroups([]); os.setgid(65534); os.setuid(65534)
            s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            s.bind({str(self.socket)!r}); s.listen(4)
            print(flush=True)
            c, _ = s.accept()
            print(len(c.recv(100)), flush=True)"""
        # A process of root trusts root alone.
        other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        self.addCleanup(other.communicate)
        self.addCleanup(other.kill)
        other.stdout.readline()
        self.fail_with(3, ("run", FASHION_MODEL, "--device", self.device), "user 65534",
                       "ATOLL_BROKER_UID=65534")
        self.assertEqual(other.stdout.readline(), "0\n")

    def test_socket_activation(self):
        """As by systemd: the socket is there before the broker, and stays with its next start."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(listener.close)
        listener.bind(str(self.socket))
        listener.listen(16)
        started = []

        def start():
            parent = [sys.executable, "-c", "import os, sys; os.dup2(int(sys.argv[1]), 3); "
                      "os.environ['LISTEN_PID'] = str(os.getpid()); "
                      "os.environ['LISTEN_FDS'] = '1'; os.execv(sys.argv[2], sys.argv[2:])"]
            broker = subprocess.Popen([*parent, str(listener.fileno()), shutil.which(COMMAND[0]),
                                       *COMMAND[1:], "broker", "--device", "emu"],
                                      pass_fds=[listener.fileno()], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True)
            self.addCleanup(broker.communicate)
            self.addCleanup(broker.kill)
            started.append(broker)
            return broker

        # A client that comes before the broker waits for it.
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            early = pool.submit(self.outputs, FASHION_MODEL, self.device)
            self.assertIn(str(self.socket), start().stdout.readline())
            self.assertEqual(early.result(), self.outputs(FASHION_MODEL, "emu"))
        self.assertFalse(pathlib.Path(f"{self.socket}.lock").exists())
        started[0].send_signal(signal.SIGTERM)
        self.assertEqual(started[0].wait(60), 0)
        start()
        self.assert_equal_bytes(FASHION_MODEL)

    def test_a_socket_of_another_kind(self):
        wrong = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(wrong.close)
        wrong.bind(str(self.socket))
        wrong.listen(1)
        code = ("import os, sys; os.dup2(int(sys.argv[1]), 3); "
                "os.environ['LISTEN_PID'] = str(os.getpid()); os.environ['LISTEN_FDS'] = '1'; "
                "os.execv(sys.argv[2], sys.argv[2:])")
        done = subprocess.run([sys.executable, "-c", code, str(wrong.fileno()),
                               shutil.which(COMMAND[0]), *COMMAND[1:], "broker", "--device", "emu"],
                              pass_fds=[wrong.fileno()], capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("ListenSequentialPacket", done.stderr)

    def test_wrong_options(self):
        for share in ("", "x", "1000", "1000=", "1000=x", "=1", "1000=0", "1000=1001", "1000=-1",
                      "1000=nan", "1000=1:", "1000=1:x", "1000=1:2:3", "1000=1,1000=2", "-5=1"):
            with self.subTest(share):
                result = run("broker", "--device", "emu", "--share", share, timeout=60)
                self.assertNotEqual(result.code, 0)
                self.assert_sentence(share, result)
                if share:
                    self.assertIn("USER=WEIGHT", result.stderr)
        long = self.directory / ("x" * 120)
        self.assertIn("107 bytes", run("broker", "--device", "emu", "--socket", long).stderr)
        nowhere = run("broker", "--device", "emu", "--socket", "/proc/none/none/b")
        self.assertIn("No such file", nowhere.stderr)
        self.assertIn("of its own", run("broker", "--device", "broker").stderr)
        absent = run("run", FASHION_MODEL, "--device", self.device)
        self.assertRegex(absent.stderr, rf"{re.escape(str(self.socket))}.*atoll broker")


if __name__ == "__main__":
    if EMULATOR:
        print("ATOLL-SKIPPED: processes of another architecture")
        sys.exit(0)
    unittest.main()
