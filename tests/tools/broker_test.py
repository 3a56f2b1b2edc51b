# SPDX-License-Identifier: Apache-2.0
"""`atoll broker` as people start it: other commands get the same bytes by it, and go on when it is
killed, replaced or told to stop. Classes are suites."""
import concurrent.futures
import fcntl
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
import unittest

from atoll_command import (COMMAND, EMULATOR, FASHION_MODEL, SHARED, SOURCE, CommandTest, need,
                           run)

SCENES_MODEL = SOURCE / "models/scenes/scenes_int8.tflite"
CROPS_MODEL = SOURCE / "models/crops/crops_int8.tflite"


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
        deadline = time.monotonic() + 300
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
        """What TensorFlow Lite gave; of float32, and where it gave nothing, what the device gives."""
        need(SHARED / "models")
        self.start()
        for path in sorted((SHARED / "golden/models").glob("*.json")):
            with self.subTest(path.stem):
                model = SHARED / "models" / f"{path.stem}.tflite"
                for seed, golden in json.loads(path.read_text())["seeds"].items():
                    outputs = self.outputs(model, self.device, seed)
                    wanted = golden.get("outputs")
                    if not wanted or any(one["dtype"] == "float32" for one in wanted):
                        wanted = self.outputs(model, "emu", seed)
                    self.assertEqual([one["sha256"] for one in outputs],
                                     [one["sha256"] for one in wanted], seed)


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
        health = report["device"]["health"]
        self.assertGreaterEqual(health["reopenings"] + health["resets"], 3)
        self.assertEqual(health["fallbacks"], 0)
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
        self.assertGreaterEqual(health["reopenings"] + health["resets"], 1)

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


# Takes the emulator two milliseconds or so.
WORK = """
.executable "work"
.isa 1
.array 64 64
.activations 1400000
.input "x" int8 [1, 64]
.output "y" int8 [1, 64]

.inference
  INPUT output_address=act+0x0, bytes=64
""" + 10 * """
  POOL_2D input_address=act+0x0, output_address=act+0x110000, batch=1, input_h=256, input_w=256, \
channels=16, output_h=128, output_w=128, kernel_h=2, kernel_w=2, stride_h=2, stride_w=2, \
clamp_min=-128, clamp_max=127
""" + """
  OUTPUT input_address=act+0x110000, bytes=64
  END
"""


class Client:
    """Speaks the protocol itself (driver/broker/messages.h)."""
    HELLO, ARENA, LOAD, SUBMIT, RESET = 1, 2, 3, 5, 8
    WELCOME, DONE, STATE = 101, 102, 103
    DONE_FORMAT = "<4IQd4Q4qQiI"

    def __init__(self, path, name="client", user=None):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(60)
        if user is not None:
            os.seteuid(user)  # the kernel says who connected
        try:
            self.socket.connect(str(path))
        finally:
            if user is not None:
                os.seteuid(0)
        self.socket.send(struct.pack("<4I", self.HELLO, 0x626C7461, 1, 1) + name.encode())
        assert struct.unpack_from("<I", self.receive())[0] == self.WELCOME

    def receive(self):
        while True:
            message = self.socket.recv(1 << 16)
            if not message or struct.unpack_from("<I", message)[0] != self.STATE:
                return message

    def done(self):
        """The fields of the next answer, and its sentence."""
        message = self.receive()
        fields = struct.unpack_from(self.DONE_FORMAT, message)
        assert fields[0] == self.DONE
        return fields, message[struct.calcsize(self.DONE_FORMAT):].decode()

    def ask(self, message, memory=None):
        """The status, its sentence, and the value of the answer."""
        memory = [] if memory is None else [memory]
        socket.send_fds(self.socket, [message], memory)
        fields, sentence = self.done()
        return fields[2], sentence, fields[3]

    def reset(self):
        return self.ask(struct.pack("<2I", self.RESET, 7))

    def lend(self, kind, content, last):
        """Memory, or an executable."""
        memory = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.write(memory, content)
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS,
                        fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            code, sentence, value = self.ask(struct.pack("<2IQ2I", kind, 1, len(content), *last),
                                             memory)
            assert code == 0, sentence
            return value
        finally:
            os.close(memory)

    def submit(self, request, executable, offsets, arena=1, timeout_ms=60_000):
        self.socket.send(
            struct.pack("<3IiQ2I", self.SUBMIT, request, executable, 0, timeout_ms, len(offsets), 0)
            + b"".join(struct.pack("<Q2I", offset, arena, 0) for offset in offsets))


class Busy(Client):
    """Has always requests that wait."""
    QUEUED = 128

    def __init__(self, path, user, executable):
        super().__init__(path, user=user)
        self.lend(self.ARENA, bytes(4096), (1, 0))
        self.executable = self.lend(self.LOAD, executable, (0, 0))
        for request in range(self.QUEUED):
            self.submit(request, self.executable, (0, 64))
        self.socket.setblocking(False)

    def go_on(self):
        """How many answers there were, and their time of the device."""
        count, busy_ns = 0, 0
        while True:
            try:
                fields, sentence = self.done()
            except BlockingIOError:
                return count, busy_ns
            assert fields[2] == 0, sentence
            count += 1
            busy_ns += sum(fields[11:14])
            self.submit(fields[1], self.executable, (0, 64))


class Config(BrokerTest):
    def setUp(self):
        super().setUp()
        self.config = self.directory / "broker.json"

    def write(self, *shares):
        self.config.write_text(json.dumps({"shares": shares}))

    def clients(self):
        return self.json("top", "--once")["broker"]["clients"]

    def test_who_may_reset(self):
        me = os.getuid()
        self.write({"user": me + 1, "may_reset": True}, {"user": me, "may_reset": False})
        broker = self.start("--config", self.config)
        client = Client(self.socket)
        code, sentence, _ = client.reset()
        self.assertNotEqual(code, 0)
        self.assertIn(f"user {me} may not reset", sentence)
        self.fail_with(3, ("broker", "--reset"), f"user {me} may not reset")
        # For clients that are there, too.
        self.write({"user": me, "may_reset": True})
        broker.send_signal(signal.SIGHUP)
        self.assertIn("read again", broker.stderr.readline())
        self.assertEqual(client.reset()[0], 0)
        client.socket.close()
        self.succeed("broker", "--reset", "--socket", self.socket)
        self.assert_equal_bytes(FASHION_MODEL)
        report = self.json("run", FASHION_MODEL, "--device", self.device)
        self.assertEqual(report["device"]["health"]["resets"], 2)

    def test_groups_and_what_is_first(self):
        self.write({"group": os.getgid() + 1, "weight": 7},
                   {"group": os.getgid(), "weight": 5, "priority_max": 2}, {"weight": 3})
        self.start("--config", self.config)
        client = Client(self.socket, "first\n' \x1b[31m")
        self.assertEqual([(one["weight"], one["priority_max"]) for one in self.clients()],
                         [(5, 2)])
        client.socket.close()

    def test_the_command_line_comes_first(self):
        self.write({"user": os.getuid(), "weight": 3})
        self.start("--config", self.config, "--share", f"{os.getuid()}=9:4")
        client = Client(self.socket)
        self.assertEqual([(one["weight"], one["priority_max"]) for one in self.clients()],
                         [(9, 4)])
        client.socket.close()

    def test_names_of_users_and_groups(self):
        self.write({"user": "root", "weight": 2}, {"group": "root", "weight": 4})
        self.start("--config", self.config)
        client = Client(self.socket)
        if os.getuid() == 0:
            self.assertEqual(self.clients()[0]["weight"], 2)
        client.socket.close()

    def test_quotas(self):
        """Of executables none, of memory next to nothing: a sentence, and the broker goes on."""
        self.write({"executables": 0})
        broker = self.start("--config", self.config)
        self.fail_with(4, ("run", FASHION_MODEL, "--device", self.device),
                       "keeps 0 executables for each client")
        self.write({"bytes": 1000})
        broker.send_signal(signal.SIGHUP)
        self.assertIn("read again", broker.stderr.readline())
        self.fail_with(4, ("run", FASHION_MODEL, "--device", self.device), "1000 bytes")
        self.write()
        broker.send_signal(signal.SIGHUP)
        self.assertIn("read again", broker.stderr.readline())
        self.assert_equal_bytes(FASHION_MODEL)

    def test_weights(self):
        """3:1 for the programs of two users, as long as both have requests that wait."""
        if os.getuid() != 0:
            print("ATOLL-SKIPPED: only root can be somebody else")
            return
        text = self.file("work.s", WORK.encode())
        self.succeed("asm", text, "-o", self.directory / "work.atx")
        executable = (self.directory / "work.atx").read_bytes()
        self.write({"user": 0, "weight": 3, "requests": Busy.QUEUED},
                   {"user": 65534, "weight": 1, "requests": Busy.QUEUED})
        self.start("--config", self.config)
        self.directory.chmod(0o755)
        self.socket.chmod(0o666)
        clients = [Busy(self.socket, user, executable) for user in (0, 65534)]
        counts, busy_ns = [0, 0], [0, 0]
        is_dry = True  # where nobody knows whether both have waiting ones
        deadline = time.monotonic() + 240
        while is_dry or min(counts) < 200:
            self.assertLess(time.monotonic(), deadline, "never had both requests that waited")
            select.select([client.socket for client in clients], [], [], 60)
            answers = [client.go_on() for client in clients]
            if is_dry:
                counts, busy_ns = [0, 0], [0, 0]
            else:
                counts = [counts[i] + answers[i][0] for i in range(2)]
                busy_ns = [busy_ns[i] + answers[i][1] for i in range(2)]
            # This process was away, and a queue may have been empty.
            is_dry = max(count for count, _ in answers) > Busy.QUEUED - 8
        ratio = busy_ns[0] / busy_ns[1]
        print(f"weights 3:1 gave {ratio:.3f}:1 in {counts} requests")
        self.assertTrue(2.85 < ratio < 3.15, f"{ratio}: {counts} requests, {busy_ns} ns")
        for client in clients:
            client.socket.close()

    def test_reading_again_goes_wrong(self):
        self.write({"weight": 2})
        broker = self.start("--config", self.config)
        client = Client(self.socket)
        self.config.write_text("{")
        broker.send_signal(signal.SIGHUP)
        line = broker.stderr.readline()
        self.assertIn("shares stay as they were", line)
        self.assertIn("line 1", line)
        self.assertEqual(self.clients()[0]["weight"], 2)
        client.socket.close()

    def test_wrong_files(self):
        for text, *parts in (
                ("", "is no JSON", "line 1"), ("{\n\n  'x'", "is no JSON", "line 3"),
                ("[]", "'/' is []", "'shares'"), ('{"share": []}', "'/share'", "'shares'"),
                ('{"shares": {}}', "'/shares'", "array"),
                ('{"shares": [3]}', "'/shares/0'", "object"),
                ('{"shares": [{}, {"wieght": 3}]}', "'/shares/1/wieght'", "priority_max"),
                ('{"shares": [{"weight": 3, "weight": 4}]}', "'weight' twice"),
                ('{"shares": [{"weight": 0}]}', "'/shares/0/weight' is 0", "0.001"),
                ('{"shares": [{"weight": "3"}]}', "'/shares/0/weight'"),
                ('{"shares": [{"weight": 1e400}]}', "a number that is none"),
                ('{"shares": [{"requests": 0}]}', "'/shares/0/requests' is 0", "from 1 to 128"),
                ('{"shares": [{"requests": 1.5}]}', "'/shares/0/requests'"),
                ('{"shares": [{"bytes": -1}]}', "'/shares/0/bytes' is -1"),
                ('{"shares": [{"priority_max": 4294967296}]}', "'/shares/0/priority_max'"),
                ('{"shares": [{"priority_max": 18446744073709551615}]}', "'/shares/0/priority_max'"),
                ('{"shares": [{"may_reset": 1}]}', "'/shares/0/may_reset'", "true or false"),
                ('{"shares": [{"user": "nobody here"}]}', "'/shares/0/user'", "no user"),
                ('{"shares": [{"group": -2}]}', "'/shares/0/group' is -2"),
                ('{"shares": [{"group": []}]}', "'/shares/0/group'")):
            with self.subTest(text):
                self.config.write_text(text)
                self.fail_with(2, ("broker", "--device", "emu", "--config", self.config), *parts)
        self.fail_with(1, ("broker", "--device", "emu", "--config", self.directory / "none"),
                       "none")


NOBODY = {"user": 65534, "group": 65534, "extra_groups": []}


def can_be_nobody(*before):
    """Whether somebody else can run the command, behind other words."""
    try:
        if os.getuid() == 0:
            subprocess.run([*before, *COMMAND, "--version"], capture_output=True, check=True,
                           **NOBODY)
            return True
    except (OSError, subprocess.CalledProcessError):
        pass
    print("ATOLL-SKIPPED: only root can be somebody else, if those can read what was built")
    return False


# A program that sees nothing of this machine but files that nobody can change, and the folder of the
# socket; a user of its own, processes of its own, no /dev, no /sys, no /run.
CONTAINER = """
set -e
mount --bind "$1" /mnt
for folder in /dev /sys /run /tmp; do mount -t tmpfs none $folder; done
touch /dev/null /dev/urandom
# A tree that is built below /tmp is there again; the folder that this runs in is it.
[ -d "$2" ] || { mkdir -p "$2"; mount --no-canonicalize --bind . "$2"; cd "$2"; }
shift 2
exec "$@"
"""


class Containers(BrokerTest):
    def setUp(self):
        super().setUp()
        self.folder = self.directory / "shared"
        self.folder.mkdir()
        self.socket = self.folder / "broker.sock"
        self.directory.chmod(0o755)

    def contained(self, *command, **environment):
        return {"args": ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork",
                         "--mount-proc", "--kill-child", "sh", "-c", CONTAINER, "sh", self.folder, SOURCE, *COMMAND,
                         *command],
                "cwd": SOURCE,
                "env": {**os.environ, "ATOLL_BROKER": "/mnt/broker.sock", "ATOLL_ACTIVITY": "off",
                        **environment}}

    # The model is open already, as the folder that it is in need not be there.
    def run_contained(self, as_user, *command, **environment):
        with FASHION_MODEL.open("rb") as model:
            return subprocess.run(**self.contained(*command, **environment), stdin=model,
                                  capture_output=True, text=True, timeout=120, check=False,
                                  **as_user)

    def need_namespaces(self, **as_user):
        probe = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork",
                                "--mount-proc", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True,
                               check=False, **as_user)
        if probe.returncode == 0:
            return True
        print("ATOLL-SKIPPED: no namespaces of users here:", probe.stderr.decode())
        return False

    def test_a_program_that_has_the_socket_alone(self):
        if not self.need_namespaces():
            return
        self.start("--socket", self.socket)
        wanted = self.outputs(FASHION_MODEL, "emu")
        done = self.run_contained({}, "run", "/proc/self/fd/0", "--device", "broker", "--seed", "1",
                                  "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["outputs"], wanted)
        self.assertEqual(report["device"]["name"], "broker")
        # Without the mount there is nothing.
        done = self.run_contained({}, "run", "/proc/self/fd/0", "--device", "broker",
                                  ATOLL_BROKER=str(self.socket))
        self.assertEqual(done.returncode, 3, done.stderr)

    def test_a_user_who_is_numbered_anew(self):
        """The broker's owner is nobody in there: a client asks for permission to trust it."""
        if not can_be_nobody() or not self.need_namespaces(**NOBODY):
            return
        self.start("--socket", self.socket, "--share", "65534=2")
        self.socket.chmod(0o666)
        arguments = ("run", "/proc/self/fd/0", "--device", "broker", "--seed", "1", "--json")
        done = self.run_contained(NOBODY, *arguments)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("ATOLL_BROKER_UID=65534", done.stderr)
        done = self.run_contained(NOBODY, *arguments, ATOLL_BROKER_UID="65534")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["outputs"], self.outputs(FASHION_MODEL, "emu"))
        # Outside it is who it is, whatever it is in there, and has the share of that user.
        camera = subprocess.Popen(
            **self.contained("camera", "/proc/self/fd/0", "--device", "broker", "--source", "test",
                             "--fps", "50", "--quiet", ATOLL_BROKER_UID="65534"),
            stdin=FASHION_MODEL.open("rb"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **NOBODY)
        self.addCleanup(camera.communicate)
        self.addCleanup(camera.kill)
        os.environ["ATOLL_BROKER"] = str(self.socket)
        seen = []

        def is_seen():
            self.assertIsNone(camera.poll(), "the client ended")
            seen[:] = self.json("top", "--once")["broker"]["clients"]
            return seen
        self.wait_for(is_seen, "no client")
        self.assertEqual([(one["uid"], one["weight"]) for one in seen], [(65534, 2)])


class Systemd(BrokerTest):
    def test_socket_activation(self):
        """By systemd's own program for it."""
        activate = shutil.which("systemd-socket-activate")
        if activate is None:
            print("ATOLL-SKIPPED: systemd-socket-activate is not installed")
            return
        listener = subprocess.Popen([activate, "--seqpacket", f"--listen={self.socket}", "-E",
                                     "ATOLL_ACTIVITY", shutil.which(COMMAND[0]), *COMMAND[1:],
                                     "broker", "--device", "emu"], stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True)
        self.addCleanup(listener.communicate)
        self.addCleanup(listener.kill)
        self.wait_for(self.socket.exists, "nobody listens")
        # The first client starts it, in the place of whoever listened.
        self.assert_equal_bytes(FASHION_MODEL)
        self.assertIn(f"at {self.socket}", listener.stdout.readline())
        self.assert_equal_bytes(CROPS_MODEL)
        listener.send_signal(signal.SIGTERM)
        self.assertEqual(listener.wait(60), 0)


class Top(BrokerTest):
    def camera(self, **options):
        """Uses it until the end."""
        return self.popen("camera", FASHION_MODEL, "--device", self.device, "--source", "test",
                          "--fps", "200", "--quiet", **options)

    def test_clients(self):
        self.assertIsNone(self.json("top", "--once")["broker"])
        broker = self.start()
        self.assertEqual(self.json("top", "--once")["broker"], {"failure": "", "clients": []})
        self.assertIn("the broker has no clients", self.succeed("top", "--once").stdout)
        load = self.camera()
        idle = Client(self.socket, "says what it likes\x1b[2J" + "x" * 2000)
        seen = []

        def is_busy():
            seen[:] = self.json("top", "--once")["broker"]["clients"]
            return len(seen) == 2 and any(one["requests"] > 10 and one["device_seconds"] > 0.01 and
                                          one["share"] == 1 for one in seen)
        self.wait_for(is_busy, "no client is busy")
        by_pid = {one["pid"]: one for one in seen}
        self.assertEqual(set(by_pid), {load.pid, os.getpid()})
        busy = by_pid[load.pid]
        self.assertEqual(busy["uid"], os.getuid())
        self.assertIn(f"camera {FASHION_MODEL}"[:60], busy["says"])
        self.assertEqual(busy["executables"], 1)
        self.assertGreater(busy["bytes"], 1000)
        self.assertLessEqual(busy["in_flight"] + busy["waiting"], 4)
        self.assertEqual((busy["weight"], busy["priority_max"]), (1, 0))
        quiet = by_pid[os.getpid()]
        self.assertRegex(quiet["says"], r"^says what it likes\?\[2Jx+$")
        self.assertLessEqual(len(quiet["says"]), 128)
        self.assertEqual((quiet["requests"], quiet["device_seconds"], quiet["share"],
                          quiet["in_flight"], quiet["waiting"]), (0, 0, 0, 0, 0))
        text = self.succeed("top", "--once").stdout
        self.assertRegex(text, rf"(?m)^ *{load.pid} +{os.getuid()} +\d+ .*'.*camera ")
        self.assertRegex(text, rf"(?m)^ *{os.getpid()} .* 'says what it likes\?")
        self.assertRegex(text, rf"(?m)^ *{broker.pid} emu")
        idle.socket.close()

    def test_other_users(self):
        """Whoever is neither root nor the broker's user sees its own."""
        if not can_be_nobody():
            return
        self.start()
        self.directory.chmod(0o755)
        self.socket.chmod(0o666)
        mine = Client(self.socket, "of root")
        other = self.camera(**NOBODY)
        self.wait_for(lambda: len(self.json("top", "--once")["broker"]["clients"]) == 2, "no other")
        # top of that user reads nothing of root's.
        environment = {**os.environ, "ATOLL_ACTIVITY": "/tmp/atoll-nobody"}
        top = subprocess.run([*COMMAND, "top", "--once", "--json"], capture_output=True, text=True,
                             env=environment, check=True, **NOBODY)
        clients = json.loads(top.stdout)["broker"]["clients"]
        self.assertEqual([one["pid"] for one in clients], [other.pid])
        mine.socket.close()


if __name__ == "__main__":
    if EMULATOR:
        print("ATOLL-SKIPPED: processes of another architecture")
        sys.exit(0)
    unittest.main()
