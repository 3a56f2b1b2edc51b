# SPDX-License-Identifier: Apache-2.0
"""serve/haproxy/haproxy.cfg: two servers behind HAProxy, one of which is killed under load.

Environment: as tests/serve/oip/rest_test.py.
"""
import concurrent.futures
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["ATOLL_SOURCE_DIR"], "tests/serve/oip"))
from rest_test import LONG, SIMPLE, RestTest, simple_request  # noqa: E402
from atoll_command import SOURCE, free_ports, need  # noqa: E402

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", ""))
MODELS = [f"model{i}" for i in range(12)]
CLIENTS = 8
SUMS = [i + 3 for i in range(16)]


class Haproxy(RestTest):
    def start(self, port=None):
        """A server; at this port as soon as nobody else has it."""
        options = [word for name in MODELS for word in ("--model", f"{name}={SIMPLE}")]

        def one():
            try:
                return self.serve(*options, "--device", "cpu",
                                  listen=f"127.0.0.1:{port or free_ports(1)[0]}")
            except AssertionError as error:
                self.assertIn("Address already in use", str(error))
                return None
        return self.wait_for(one, "a server")

    def setUp(self):
        self.servers = [self.start(), self.start()]
        self.log = self.folder() / "log"
        # HAProxy gets a socket that listens already.
        with socket.create_server(("127.0.0.1", 0)) as front, open(self.log, "wb") as log:
            self.front = front.getsockname()[1]
            self.proxy = subprocess.Popen(
                [HAPROXY, "-db", "-f", SOURCE / "serve/haproxy/haproxy.cfg"], stdout=log, stderr=log,
                pass_fds=[front.fileno()],
                env={**os.environ, "ATOLL_FRONT": f"fd@{front.fileno()}",
                     "ATOLL_SERVER_A": f"127.0.0.1:{self.servers[0].port}",
                     "ATOLL_SERVER_B": f"127.0.0.1:{self.servers[1].port}"})
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

    def infer(self, connection, model, padding=0):
        request = simple_request(comment="x" * padding) if padding else simple_request()
        connection.request("POST", f"/v2/models/{model}/infer", json.dumps(request), {"Host": "models.example"})
        response = connection.getresponse()
        text = response.read()
        self.assertEqual(response.status, 200, text[:300])
        self.assertEqual(json.loads(text)["outputs"][0]["data"], SUMS)

    def counts(self, server):
        stats = json.loads(server.get("/v2/models/stats").body)["model_stats"]
        return {one["name"]: one["inference_count"] for one in stats}

    def test_each_model_has_a_server(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.front, timeout=LONG)
        for _ in range(5):
            for model in MODELS:
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
        again = self.start(self.servers[0].port)
        connection = http.client.HTTPConnection("127.0.0.1", self.front, timeout=LONG)

        def is_back():
            for model in MODELS:
                self.infer(connection, model)
            return sum(self.counts(again).values()) > 0
        self.wait_for(is_back, "requests for the server that is back")
        connection.close()
        print(f"{sum(served)} requests, one server killed, none failed", flush=True)


if __name__ == "__main__":
    need(pathlib.Path(HAPROXY or "/usr/sbin/haproxy"))
    unittest.main()
