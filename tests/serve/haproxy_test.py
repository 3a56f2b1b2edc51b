# SPDX-License-Identifier: Apache-2.0
"""serve/haproxy/haproxy.cfg: two servers behind HAProxy, one of which goes under load; REST and gRPC.

Over gRPC the clients are `atoll benchmark` and curl, to which messages are bytes. The latter knows
no deadlines, so that those it sees are the server's.

Environment: as tests/serve/oip/rest_test.py.
"""
import concurrent.futures
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["ATOLL_SOURCE_DIR"], "tests/serve/oip"))
from rest_test import LONG, SIMPLE, RestTest, simple_request  # noqa: E402
from atoll_command import COMMAND, SOURCE, absent, free_ports, need  # noqa: E402

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", ""))
MODELS = [f"model{i}" for i in range(12)]
CLIENTS = 8
SUMS = [i + 3 for i in range(16)]


class Behind(RestTest):
    """Two servers behind HAProxy."""
    has_grpc = False

    def start(self, ports=None):
        """A server and its ports, of REST and of gRPC; at these as soon as nobody else has them."""
        options = [word for name in MODELS for word in ("--model", f"{name}={SIMPLE}")]

        def one():
            rest, grpc = ports or free_ports(2)
            try:
                return self.serve(*options, "--device", "cpu", listen=f"127.0.0.1:{rest}",
                                  grpc=f"127.0.0.1:{grpc}" if self.has_grpc else "none"), (rest, grpc)
            except AssertionError as error:
                if "without gRPC" in str(error):
                    absent("gRPC, when atoll-serve was built")
                self.assertRegex(str(error), "Address already in use|another program does")
                return None
        return self.wait_for(one, "a server")

    def setUp(self):
        started = [self.start(), self.start()]
        self.servers = [server for server, _ in started]
        self.ports = [ports for _, ports in started]
        self.log = self.folder() / "log"
        # HAProxy gets sockets that listen already.
        with (socket.create_server(("127.0.0.1", 0)) as front, socket.create_server(("127.0.0.1", 0)) as grpc_front,
              open(self.log, "wb") as log):
            self.front, self.grpc_front = front.getsockname()[1], grpc_front.getsockname()[1]
            (rest_a, grpc_a), (rest_b, grpc_b) = self.ports
            self.proxy = subprocess.Popen(
                [HAPROXY, "-db", "-f", SOURCE / "serve/haproxy/haproxy.cfg"], stdout=log, stderr=log,
                pass_fds=[front.fileno(), grpc_front.fileno()],
                env={**os.environ, "ATOLL_FRONT": f"fd@{front.fileno()}",
                     "ATOLL_GRPC_FRONT": f"fd@{grpc_front.fileno()}",
                     "ATOLL_SERVER_A": f"127.0.0.1:{rest_a}", "ATOLL_GRPC_SERVER_A": f"127.0.0.1:{grpc_a}",
                     "ATOLL_SERVER_B": f"127.0.0.1:{rest_b}", "ATOLL_GRPC_SERVER_B": f"127.0.0.1:{grpc_b}"})
        self.addCleanup(self.proxy.wait, LONG)
        self.addCleanup(self.proxy.terminate)
        self.wait_for(self.answers, "HAProxy's first answer")

    def answers(self):
        self.assertIsNone(self.proxy.poll(), self.log.read_text())
        connection = http.client.HTTPConnection("127.0.0.1", self.front, timeout=LONG)
        try:
            connection.request("GET", "/v2/health/ready")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def counts(self, server):
        stats = json.loads(server.get("/v2/models/stats").body)["model_stats"]
        return {one["name"]: one["inference_count"] for one in stats}


class Rest(Behind):
    def infer(self, connection, model, padding=0):
        request = simple_request(comment="x" * padding) if padding else simple_request()
        connection.request("POST", f"/v2/models/{model}/infer", json.dumps(request), {"Host": "models.example"})
        response = connection.getresponse()
        text = response.read()
        self.assertEqual(response.status, 200, text[:300])
        self.assertEqual(json.loads(text)["outputs"][0]["data"], SUMS)

    def test_each_model_has_a_server(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.front, timeout=LONG)
        for turn in range(5):
            # Not in the same order, which taking turns would pass for.
            for model in MODELS[::-1] if turn % 2 else MODELS:
                self.infer(connection, model)
        connection.close()
        a, b = (self.counts(server) for server in self.servers)
        for model in MODELS:
            self.assertEqual(sorted((a[model], b[model])), [0, 5], model)
        self.assertGreater(sum(a.values()), 0)
        self.assertGreater(sum(b.values()), 0)

    def test_no_request_fails_when_a_server_is_killed(self):
        served, dead, stop = [0] * CLIENTS, threading.Event(), threading.Event()

        def work(number):
            connection = http.client.HTTPConnection("127.0.0.1", self.front, timeout=LONG)
            after = 0
            # All of them ask for all models, so that the dead one's are among them; long requests, too.
            while after < 200 or not stop.is_set():
                is_after = dead.is_set()
                self.infer(connection, MODELS[(number + served[number]) % len(MODELS)],
                           padding=300_000 if served[number] % 16 == 0 else 0)
                served[number] += 1
                after += is_after
            connection.close()

        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(work, number) for number in range(CLIENTS)]
            try:
                self.wait_for(lambda: min(served) > 100 or any(one.done() for one in clients), "load")
                self.servers[0].process.kill()
                self.servers[0].process.wait()
                dead.set()
            finally:
                dead.set()
                stop.set()
            for one in clients:
                one.result()
        # One that comes back gets its models again.
        again, _ = self.start(self.ports[0])
        connection = http.client.HTTPConnection("127.0.0.1", self.front, timeout=LONG)

        def is_back():
            for model in MODELS:
                self.infer(connection, model)
            return sum(self.counts(again).values()) > 0
        self.wait_for(is_back, "requests for the server that is back")
        connection.close()
        print(f"{sum(served)} requests, one server killed, none failed", flush=True)


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number, data):
    """A field of a message that has a length: text, bytes, a message, numbers that are packed."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def message(body):
    """As gRPC sends it: not compressed, its length, itself."""
    return struct.pack(">BI", 0, len(body)) + body


def infer_message(model, name=b"", padding=0):
    """What simple_request is in JSON: a ModelInferRequest with raw contents. `name` is its id, which
    comes back; padding is a field that servers do not know, which does not."""
    inputs = b"".join(field(5, field(1, one) + field(2, b"INT32") + field(3, bytes([1, 16])))
                      for one in (b"INPUT0", b"INPUT1"))
    contents = field(7, struct.pack("<16i", *range(16))) + field(7, struct.pack("<16i", *[3] * 16))
    return message(field(1, model.encode()) + field(3, name) + inputs + contents + field(1000, b"x" * padding))


class Call:
    """A call by curl, which sends these messages: what came of it."""

    def __init__(self, port, folder, messages, *options, method="ModelInfer"):
        heads = folder / f"heads{threading.get_ident()}"
        done = subprocess.run(
            ["curl", "--silent", "--show-error", "--http2-prior-knowledge", "--max-time", str(LONG), "--data-binary",
             "@-", "--header", "content-type: application/grpc", "--header", "te: trailers", "--header", "expect:",
             *options, "--dump-header", heads, f"http://127.0.0.1:{port}/inference.GRPCInferenceService/{method}"],
            input=messages, capture_output=True, check=False)
        self.body = done.stdout
        # Of the head and of what follows the body.
        self.heads = dict(line.split(": ", 1) for line in heads.read_text().splitlines() if ": " in line)
        self.status = self.heads.get("grpc-status")
        self.text = f"curl {done.returncode} {done.stderr.decode()}: {self.heads}"


class Grpc(Behind):
    has_grpc = True

    def setUp(self):
        super().setUp()
        self.place = self.folder()
        # HAProxy looks at the servers of each of its backends by itself.
        self.wait_for(lambda: self.call(message(b""), method="ServerReady").status == "0", "gRPC's first answer")

    def call(self, messages, *options, **more):
        return Call(self.grpc_front, self.place, messages, *options, **more)

    def infer(self, model, **more):
        call = self.call(infer_message(model, **more))
        self.assertEqual(call.status, "0", call.text)
        self.assertEqual(len(call.body), 5 + struct.unpack(">I", call.body[1:5])[0])
        # The answer begins with names, and ends with outputs: OUTPUT0's 16 sums, OUTPUT1.
        self.assertIn(field(1, model.encode()), call.body[:50])
        self.assertIn(more.get("name", b""), call.body)
        self.assertIn(field(6, struct.pack("<16i", *SUMS)), call.body[-200:])

    def test_each_model_has_a_server(self):
        # Not in the same order, which taking turns would pass for.
        for model in MODELS + MODELS[::-1]:
            self.infer(model)
        # One that HAProxy has not room for goes there, too, and comes back whole.
        for model in MODELS[:4]:
            self.infer(model, name=b"x" * 5_000_000)
        a, b = (self.counts(server) for server in self.servers)
        for i, model in enumerate(MODELS):
            self.assertEqual(sorted((a[model], b[model])), [0, 3 if i < 4 else 2], model)
        self.assertGreater(sum(a.values()), 0)
        self.assertGreater(sum(b.values()), 0)

    def test_errors_and_deadlines_are_the_servers(self):
        call = self.call(infer_message("nobody"))
        self.assertEqual((call.status, call.body), ("5", b""), call.text)
        self.assertIn("nobody", call.heads["grpc-message"])
        self.assertIn("atoll-code", call.heads)
        # More than --max-body.
        call = self.call(infer_message(MODELS[0], b"x" * 70_000_000))
        self.assertEqual(call.status, "8", call.text)

        def is_over():
            call = self.call(infer_message(MODELS[0]), "--header", "grpc-timeout: 1u")
            self.assertIn(call.status, ("0", "4"), call.text)
            return call.status == "4"
        self.wait_for(is_over, "a microsecond to be over")
        call = self.call(infer_message(MODELS[0]), "--header", f"grpc-timeout: {LONG}S")
        self.assertEqual(call.status, "0", call.text)

    def test_a_stream_has_answers_before_its_end(self):
        with subprocess.Popen(
                # curl waits for what it sends, for as long as all may take, or else for a second.
                ["curl", "--silent", "--no-buffer", "--http2-prior-knowledge", "--request", "POST",
                 "--upload-file", ".", "--header", "content-type: application/grpc", "--header", "te: trailers",
                 "--dump-header", self.place / "heads",
                 f"http://127.0.0.1:{self.grpc_front}/inference.GRPCInferenceService/ModelStreamInfer"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as curl:
            self.addCleanup(curl.kill)
            for model in MODELS[:2]:
                curl.stdin.write(infer_message(model))
                curl.stdin.flush()
                body = curl.stdout.read(struct.unpack(">BI", curl.stdout.read(5))[1])
                self.assertIn(field(1, model.encode()), body)
                self.assertIn(field(6, struct.pack("<16i", *SUMS)), body)
            curl.stdin.close()
            self.assertEqual(curl.stdout.read(), b"")
        self.assertIn("grpc-status: 0\n", (self.place / "heads").read_text())

    def test_without_servers_the_error_is_grpcs(self):
        for server in self.servers:
            server.process.kill()
            server.process.wait()

        def is_told():
            call = self.call(infer_message(MODELS[0]))
            self.assertEqual((call.status, call.heads["content-type"]), ("14", "application/grpc"), call.text)
            return call.heads["grpc-message"].startswith("no server is there")
        self.wait_for(is_told, "HAProxy's sentence")

    def load(self, model):
        """`atoll benchmark` that goes on until it is interrupted. Without the search for leaks, which may
        crash where threads of gRPC's end (atoll_command.py)."""
        client = subprocess.Popen(
            [*COMMAND, "benchmark", "--target", f"grpc://127.0.0.1:{self.grpc_front}/{model}", "--streams", "2",
             "--duration", str(LONG), "--warmup", "0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"})
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        return client

    def test_no_call_fails_when_a_server_is_killed(self):
        clients = {model: self.load(model) for model in MODELS[:4]}
        padded, stop = [0] * 2, threading.Event()

        def work(number):
            while not stop.is_set():
                # As much as HAProxy still has when the server goes.
                self.infer(MODELS[4 + (number + padded[number]) % 8], padding=300_000)
                padded[number] += 1

        def served(servers):
            """By these, of those that are long and of each model of the others."""
            for model, client in clients.items():
                if client.poll() is not None:
                    self.fail(f"{model}: {client.communicate()}\n{self.log.read_text()}")
            for one in longs:
                if one.done():
                    one.result()
            counts = [self.counts(server) for server in servers]
            return [sum(padded)] + [sum(one[model] for one in counts) for model in clients]

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            longs = [pool.submit(work, number) for number in range(2)]
            try:
                self.wait_for(lambda: min(served(self.servers)) >= 20, "load")
                self.assertGreater(sum(self.counts(self.servers[0])[model] for model in clients), 0)
                self.servers[0].process.kill()
                self.servers[0].process.wait()
                # What comes now comes to the other one.
                before = served(self.servers[1:])
                self.wait_for(lambda: all(now >= then + 20 for now, then in zip(served(self.servers[1:]), before)),
                              "load of the other server")
            finally:
                stop.set()
            for one in longs:
                one.result()
        total = sum(padded)
        for model, client in clients.items():
            client.send_signal(signal.SIGINT)
        for model, client in clients.items():
            out, errors = client.communicate(timeout=LONG)
            self.assertEqual(client.returncode, 130, f"{model}: {errors}")
            report = json.loads(out)
            self.assertEqual(report["failed"], 0, model)
            total += report["inferences"]
        # One that comes back gets its models again.
        again, _ = self.start(self.ports[0])

        def is_back():
            for model in MODELS:
                self.infer(model)
            return sum(self.counts(again).values()) > 0
        self.wait_for(is_back, "calls for the server that is back")
        print(f"{total} calls, one server killed, none failed", flush=True)


if __name__ == "__main__":
    need(pathlib.Path(HAPROXY or "/usr/sbin/haproxy"))
    need(pathlib.Path(shutil.which("curl") or "/usr/bin/curl"))
    unittest.main()
