# SPDX-License-Identifier: Apache-2.0
"""`--device grpc://HOST:PORT`: other commands get the same bytes by the devices of `atoll serve`, and go
on when one is killed. Classes are suites.

Environment: as atoll_command.py; ATOLL_SERVE, the program.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from atoll_command import (COMMAND, EMULATOR, FASHION_DATA, FASHION_LABELS, FASHION_MODEL, SHARED,
                           SOURCE, CommandTest, absent, need, run)
from avahi_network import in_a_network, need_a_network

SERVE = os.environ["ATOLL_SERVE"]
SCENES_MODEL = SOURCE / "models/scenes/scenes_int8.tflite"
CROPS_MODEL = SOURCE / "models/crops/crops_int8.tflite"
LIBRARY = pathlib.Path(os.environ["ATOLL_LIBRARY"])  # libatoll.so, beside which the module lies
LONG = 120


class Host:
    """A server that shares an emulated device, at a port that it keeps."""

    def __init__(self, test, *options, port=0, device="emu", shares=("--share-device",)):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [SERVE, "--device", device, "--listen", "127.0.0.1:0", "--grpc", f"127.0.0.1:{port}",
             *shares, *map(str, options)],
            stdout=subprocess.PIPE, stderr=self.errors, text=True)
        test.addCleanup(self.end)
        self.http = self.read_port(r"https?://127\.0\.0\.1:(\d+)/$")
        self.port = self.read_port(r"gRPC at 127\.0\.0\.1:(\d+)")
        self.address = f"127.0.0.1:{self.port}"
        self.device = f"grpc://{self.address}"

    def read_port(self, pattern):
        line = self.process.stdout.readline()
        match = re.search(pattern, line.strip())
        if not match:
            self.errors.seek(0)
            raise AssertionError(f"no server: {line}{self.errors.read().decode()}")
        return int(match[1])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.kill()
        self.process.stdout.close()
        self.errors.close()

    def metrics(self):
        with socket.create_connection(("127.0.0.1", self.http), timeout=LONG) as one:
            one.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := one.recv(65536):
                answer += part
        return answer.decode()

    def inferences(self):
        return sum(int(match) for match in re.findall(
            r'^nv_inference_request_success\{model="atoll\.executable\.[^}]*\} (\d+)',
            self.metrics(), re.M))


class NetworkTest(CommandTest):
    def outputs(self, model, device, seed=1, *options):
        """Of `run`, with their checksums; nothing of it must have run elsewhere."""
        report = self.json("run", model, "--device", device, "--seed", seed, *options)
        self.assertEqual(report["device"]["health"]["fallbacks"], 0)
        return report["outputs"]

    def assert_equal_bytes(self, model, device, seed=1):
        self.assertEqual(self.outputs(model, device, seed), self.outputs(model, "emu", seed), model)

    def wait_for(self, condition, what):
        deadline = time.monotonic() + LONG
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.02)


class Bytes(NetworkTest):
    def test_models_of_this_tree(self):
        host = Host(self)
        for model in (FASHION_MODEL, SCENES_MODEL, CROPS_MODEL):
            for seed in (1, 2):
                with self.subTest(model.name, seed=seed):
                    self.assert_equal_bytes(model, host.device, seed)
        # Each executable was uploaded once, whoever used it.
        names = set(re.findall(r'model="(atoll\.executable\.[0-9a-f]{64})"', host.metrics()))
        self.assertGreaterEqual(len(names), 3)

    def test_several_programs_at_once(self):
        host = Host(self)
        wanted = {model: self.outputs(model, "emu") for model in (FASHION_MODEL, CROPS_MODEL)}
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            runs = [(model, pool.submit(self.outputs, model, host.device))
                    for model in list(wanted) * 4]
            for model, outputs in runs:
                self.assertEqual(outputs.result(), wanted[model], model)

    def test_executables_that_make_room_for_others(self):
        """A server that keeps one at a time serves programs that take turns."""
        host = Host(self, "--max-executables", 1)
        models = (FASHION_MODEL, CROPS_MODEL)
        report = self.json("run", *models, "--device", host.device, "--seed", 1, "--order",
                           "0,1,0,1,1,0")
        self.assertEqual(report["device"]["health"]["failures"], 0)
        wanted = [self.outputs(model, "emu") for model in models]
        for index, invocation in zip((0, 1, 0, 1, 1, 0), report["invocations"], strict=True):
            self.assertEqual(invocation["outputs"], wanted[index])

    def test_what_is_said_of_it(self):
        host = Host(self)
        report = self.json("benchmark", FASHION_MODEL, "--device", host.device, "--runs", "20")
        self.assertEqual(report["device"]["name"], host.device)
        self.assertIn(f"by the server at {host.address}", report["device"]["description"])
        self.assertGreater(host.inferences(), 19)

    def test_beside_models(self):
        """A server's own models and its device are separate rights."""
        host = Host(self, "--model", f"fashion={FASHION_MODEL}")
        self.assert_equal_bytes(FASHION_MODEL, host.device)
        alone = Host(self, "--model", f"fashion={FASHION_MODEL}", shares=())
        self.fail_with(3, ("run", FASHION_MODEL, "--device", alone.device),
                       "does not share its device", "--share-device")
        on_cpu = Host(self, device="cpu")
        self.fail_with(3, ("run", FASHION_MODEL, "--device", on_cpu.device), "the computer's CPU")


class Golden(NetworkTest):
    def test_models(self):
        """Every public model; of those that TensorFlow Lite does not run, what the emulator gives."""
        need(SHARED / "models")
        host = Host(self)
        done = 0
        for path in sorted((SHARED / "golden/models").glob("*.json")):
            model = SHARED / "models" / f"{path.stem}.tflite"
            if not model.exists():
                continue
            golden = json.loads(path.read_text())
            for seed, wanted in golden.get("seeds", {}).items():
                with self.subTest(path.stem, seed=seed):
                    outputs = self.outputs(model, host.device, seed)
                    if "outputs" not in wanted:
                        self.assertEqual(outputs, self.outputs(model, "emu", seed))
                        continue
                    self.assertEqual([one["sha256"] for one in outputs],
                                     [one["sha256"] for one in wanted["outputs"]])
                    done += 1
        self.assertGreater(done, 20)


class Ends(NetworkTest):
    def camera(self, device, results, frames, fps):
        process = subprocess.Popen(
            [*COMMAND, "camera", FASHION_MODEL, "--labels", FASHION_LABELS, "--source",
             f"fashion:{FASHION_DATA}", "--fps", str(fps), "--frames", str(frames), "--policy",
             "every", "--queue", "16", "--device", device, "--results", str(results), "--quiet",
             "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def end():
            process.kill()
            process.communicate()
        self.addCleanup(end)
        return process

    def test_one_of_two_is_killed_under_a_camera(self):
        """No frame is lost, and each has what it has without."""
        if not FASHION_DATA.exists():
            absent("the Debian package dataset-fashion-mnist")
        frames = 240
        hosts = [Host(self), Host(self)]
        results = self.directory / "results"
        camera = self.camera(",".join(host.device for host in hosts), results, frames, 30)
        self.wait_for(lambda: camera.poll() is not None or hosts[0].inferences() > 10,
                      "no requests")
        self.assertIsNone(camera.poll(), "it ended before the host did")
        before = hosts[1].inferences()
        hosts[0].kill()
        out, errors = camera.communicate(timeout=LONG)
        self.assertEqual(camera.returncode, 0, errors)
        report = json.loads(out)
        self.assertEqual((report["captured"], report["processed"], report["dropped"],
                          report["failed"]), (frames, frames, 0, 0))
        self.assertEqual(report["device"]["health"]["fallbacks"], 0)
        self.assertGreater(hosts[1].inferences(), before)
        wanted = self.directory / "wanted"
        alone = self.camera("emu", wanted, frames, 0)
        alone.communicate(timeout=LONG)
        def seen(path):
            return [{name: line[name] for name in ("frame", "models")}
                    for line in map(json.loads, path.read_text().splitlines())]
        self.assertEqual(seen(results), seen(wanted))

    def test_killed_and_back(self):
        host = Host(self)
        wanted = self.outputs(FASHION_MODEL, "emu")
        client = subprocess.Popen(
            [*COMMAND, "run", FASHION_MODEL, "--device", host.device, "--order",
             ",".join(["0"] * 3000), "--seed", "1", "--on-device-loss", "replay", "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        for _ in range(2):
            before = host.inferences()
            self.wait_for(lambda: client.poll() is not None or host.inferences() > before + 50,
                          "no requests")
            self.assertIsNone(client.poll(), "it ended before the host did")
            host.kill()
            host = Host(self, port=host.port)
        out, errors = client.communicate(timeout=2 * LONG)
        self.assertEqual(client.returncode, 0, errors)
        report = json.loads(out)
        self.assertEqual(report["device"]["health"]["fallbacks"], 0)
        self.assertGreater(host.inferences(), 0)  # of the last one
        self.assertEqual(len(report["invocations"]), 3000)
        for invocation in report["invocations"]:
            self.assertEqual(invocation["outputs"], wanted)

    def test_told_to_stop(self):
        """It ends what is under way and goes; the stand-in goes on."""
        host = Host(self)
        client = subprocess.Popen(
            [*COMMAND, "run", FASHION_MODEL, "--device", host.device, "--order",
             ",".join(["0"] * 3000), "--seed", "1", "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        self.wait_for(lambda: client.poll() is not None or host.inferences() > 50, "no requests")
        host.process.send_signal(signal.SIGTERM)
        self.assertEqual(host.process.wait(LONG), 0)
        out, errors = client.communicate(timeout=2 * LONG)
        self.assertEqual(client.returncode, 0, errors)
        report = json.loads(out)
        wanted = self.outputs(FASHION_MODEL, "emu")
        for invocation in report["invocations"]:
            self.assertEqual(invocation["outputs"], wanted)

    def test_hung(self):
        """One that is stopped holds nobody up for longer than a request may take."""
        host = Host(self)
        other = Host(self)
        os.kill(host.process.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, host.process.pid, signal.SIGCONT)
        result = run("run", FASHION_MODEL, "--device", host.device)
        self.assertEqual(result.code, 3, result.stderr)
        self.assert_equal_bytes(FASHION_MODEL, other.device)


class Access(NetworkTest):
    def certificates(self):
        folder = self.directory / "keys"
        folder.mkdir()

        def openssl(*words):
            subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj",
                "/CN=a CA")
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
        for name in ("server", "client"):
            openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj",
                    f"/CN={name}")
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                    "-CAcreateserial", "-days", "2", "-out", f"{name}.pem", "-extfile", "names")
        return folder

    def with_environment(self, **variables):
        os.environ.update({name: str(value) for name, value in variables.items()})
        self.addCleanup(lambda: [os.environ.pop(name, None) for name in variables])

    def without(self, *names):
        for name in names:
            os.environ.pop(name, None)

    def setUp(self):
        super().setUp()
        if not shutil.which("openssl"):
            absent("openssl")

    def test_token_and_tls(self):
        keys = self.certificates()
        token = keys / "token"
        token.write_text("correct-horse-battery\n")
        host = Host(self, "--tls-cert", keys / "server.pem", "--tls-key", keys / "server.key",
                    "--token-file", token)
        arguments = ("run", FASHION_MODEL, "--device", host.device)
        self.fail_with(3, arguments, host.address)  # no TLS
        self.with_environment(ATOLL_GRPC_CA=keys / "ca.pem")
        result = run(*arguments)
        self.assertEqual(result.code, 3, result.stderr)
        self.assertIn("ATOLL_GRPC_TOKEN_FILE", result.stderr)
        self.with_environment(ATOLL_GRPC_TOKEN="wrong")
        self.assertIn("token", run(*arguments).stderr)
        self.without("ATOLL_GRPC_TOKEN")
        self.with_environment(ATOLL_GRPC_TOKEN_FILE=token)
        self.assert_equal_bytes(FASHION_MODEL, host.device)
        # Somebody else's authority.
        other = self.directory / "other"
        other.mkdir()
        self.with_environment(ATOLL_GRPC_CA=keys / "client.pem")
        self.fail_with(3, arguments, "ATOLL_GRPC_CA")
        self.with_environment(ATOLL_GRPC_CA=keys / "absent")
        self.assertIn("ATOLL_GRPC_CA", run(*arguments).stderr)

    def test_certificate(self):
        keys = self.certificates()
        host = Host(self, "--tls-cert", keys / "server.pem", "--tls-key", keys / "server.key",
                    "--client-ca", keys / "ca.pem")
        arguments = ("run", FASHION_MODEL, "--device", host.device)
        self.with_environment(ATOLL_GRPC_CA=keys / "ca.pem")
        self.assertEqual(run(*arguments).code, 3)
        self.with_environment(ATOLL_GRPC_CERT=keys / "client.pem")
        self.assertIn("go together", run(*arguments).stderr)
        self.with_environment(ATOLL_GRPC_KEY=keys / "client.key")
        self.assert_equal_bytes(FASHION_MODEL, host.device)


class Names(NetworkTest):
    def test_forms(self):
        for name in ("grpc://:8001", "grpc://host:", "grpc://host:x", "grpc://a b", "grpc://h:1:2",
                     "grpc://[::1", "grpc://[::1]8001", "grpc://h/x", "grpc://h:123456",
                     "grpc://" + "h" * 300):
            with self.subTest(name):
                self.fail_with(2, ("run", FASHION_MODEL, "--device", name), "grpc://pi4.local:8001")
        self.fail_with(2, ("run", FASHION_MODEL, "--device", "grpc://h:1,cpu"), "the CPU")

    def test_nobody_there(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            self.fail_with(3, ("run", FASHION_MODEL, "--device", f"grpc://127.0.0.1:{port}"),
                           f"127.0.0.1:{port}")

    def test_somebody_else(self):
        """What listens there speaks no gRPC."""
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen(8)
            port = other.getsockname()[1]
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                client = pool.submit(run, "run", FASHION_MODEL, "--device",
                                     f"grpc://127.0.0.1:{port}")
                other.settimeout(LONG)
                while not client.done():
                    try:
                        other.settimeout(0.2)
                        connection, _ = other.accept()
                    except socket.timeout:
                        continue
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
                    connection.close()
                self.assertEqual(client.result().code, 3, client.result().stderr)

    def test_options(self):
        for grpc, option, says in (("none", "--share-device", "--share-device"),
                                   ("127.0.0.1:0", "--announce", "--announce")):
            done = subprocess.run([SERVE, "--device", "emu", "--listen", "127.0.0.1:0", "--grpc",
                                   grpc, "--share-device", option], capture_output=True, text=True,
                                  timeout=LONG, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, done.stderr)

    def test_without_the_module(self):
        """libatoll by itself says what to install."""
        folder = self.directory / "lib"
        folder.mkdir()
        library = folder / "libatoll.so.0"
        shutil.copy(LIBRARY, library)
        program = shutil.which(COMMAND[0])
        # The loader takes this one in the place of that of the tree.
        done = subprocess.run([program, "run", str(FASHION_MODEL), "--device", "grpc://127.0.0.1:1"],
                              env={**os.environ, "LD_LIBRARY_PATH": str(folder)}, capture_output=True,
                              text=True, timeout=LONG, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("libatoll-grpc", done.stderr)


class Found(NetworkTest):
    """By DNS-SD: `atoll serve --announce` and `--device grpc://`."""

    def setUp(self):
        super().setUp()
        need_a_network()

    def in_a_network(self, code):
        """What a program of Python says that runs where nobody else announces anything."""
        done, logs = in_a_network(self.directory, code, LONG)
        self.assertEqual(done.returncode, 0, done.stderr + logs)
        return done.stdout

    def test_announced(self):
        """Two that announce themselves, and one that does not; then those that are left."""
        said = self.in_a_network(f"""if True:
            import subprocess, time
            def run(*arguments):
                done = subprocess.run([*{COMMAND!r}, "run", {str(FASHION_MODEL)!r}, *arguments],
                                      capture_output=True, text=True)
                return done.stdout + done.stderr
            def listed(*wanted, gone=()):
                deadline = time.monotonic() + 60
                while time.monotonic() < deadline:
                    said = run("--device", "grpc://")
                    if (all("grpc://127.0.0.1:%d" % port in said for port in wanted) and
                            not any(":%d" % port in said for port in gone)): return said
                raise AssertionError(said)
            print(run("--device", "grpc://"))
            hosts = []
            for port, words in ((8101, ["--announce"]), (8102, ["--announce"]), (8103, [])):
                hosts.append(subprocess.Popen(
                    [{SERVE!r}, "--device", "emu", "--share-device", "--insecure", "--listen",
                     "127.0.0.1:0", "--grpc", "0.0.0.0:%d" % port, *words],
                    stdout=subprocess.PIPE, text=True))
                while "Ctrl-C" not in hosts[-1].stdout.readline(): pass
            print(listed(8101, 8102))
            print(run("--device", "grpc://127.0.0.1:8101,grpc://127.0.0.1:8102", "--seed", "1"))
            hosts[0].terminate()
            hosts[0].wait()
            print(listed(8102, gone=(8101,)))
            """)
        lines = said.split("\n")
        self.assertIn("no computer of this network announces a device", lines[0])
        both = next(line for line in lines if "choose one" in line)
        for port in (8101, 8102):
            self.assertIn(f"grpc://127.0.0.1:{port} (emulated Atoll-1", both)
        self.assertIn(self.outputs(FASHION_MODEL, "emu")[0]["sha256"], said)
        left = [line for line in lines if "choose one" in line][-1]
        self.assertIn(":8102", left)
        self.assertNotIn(":8101", left)

    def test_without_the_daemon(self):
        os.environ["DBUS_SYSTEM_BUS_ADDRESS"] = f"unix:path={self.directory}/none"
        self.addCleanup(os.environ.pop, "DBUS_SYSTEM_BUS_ADDRESS")
        self.fail_with(3, ("run", FASHION_MODEL, "--device", "grpc://"), "avahi-daemon")
        done = subprocess.run([SERVE, "--device", "emu", "--share-device", "--insecure",
                               "--announce", "--listen", "127.0.0.1:0", "--grpc", "0.0.0.0:0"],
                              capture_output=True, text=True, timeout=LONG, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("avahi-daemon", done.stderr)


if __name__ == "__main__":
    if EMULATOR:
        print("ATOLL-SKIPPED: processes of another architecture")
        sys.exit(0)
    unittest.main()
