# SPDX-License-Identifier: Apache-2.0
"""A thousand clients at once, good, slow, half-open and gone ones, and bodies of 100 MB between them.

Environment: as tests/serve/oip/rest_test.py. Prints what it measured.
"""
import itertools
import json
import os
import pathlib
import resource
import selectors
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["ATOLL_SOURCE_DIR"], "tests/serve/oip"))
from rest_test import EMULATOR, LONG, SIMPLE, RestTest, absent, simple_request  # noqa: E402

GOOD, TRICKLING, HALF_OPEN, SILENT = 600, 150, 150, 100
ROUNDS = 50
INPUT = json.dumps(simple_request()).encode()
REQUEST = (b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" %
           (len(INPUT), INPUT))
SUMS = [i + 3 for i in range(16)]


class Client:
    """Sends its request again and again, each when the answer to the one before is there."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), LONG)
        self.socket.setblocking(False)
        self.begin()

    def begin(self):
        self.left = REQUEST
        self.got = b""
        self.since = time.monotonic()

    def send(self):
        self.left = self.left[self.socket.send(self.left):]

    def receive(self):
        """The body of an answer that is complete."""
        piece = self.socket.recv(65536)
        assert piece, f"the server closed the connection of a good client: {self.got[:200]}"
        self.got += piece
        head, found, body = self.got.partition(b"\r\n\r\n")
        if not found:
            return None
        assert head.startswith(b"HTTP/1.1 200 "), self.got[:500]
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return body if len(body) == size else None


def resident_bytes(process):
    return int(pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * resource.getpagesize()


class Crowd(RestTest):
    def setUp(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 1300:
            absent(f"1,300 descriptors, where {hard} are allowed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))

    def rounds(self, clients, between):
        """All good clients' requests, ROUNDS times; seconds of each."""
        times = []
        selector = selectors.DefaultSelector()
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, client)
        for _ in range(ROUNDS):
            for client in clients:
                client.begin()
                selector.modify(client.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, client)
            between()
            open_ones = len(clients)
            end = time.monotonic() + LONG
            while open_ones:
                self.assertLess(time.monotonic(), end, f"{open_ones} clients without an answer")
                for key, events in selector.select(1):
                    client = key.data
                    if events & selectors.EVENT_WRITE:
                        client.send()
                        if not client.left:
                            selector.modify(client.socket, selectors.EVENT_READ, client)
                    if events & selectors.EVENT_READ:
                        body = client.receive()
                        if body is None:
                            continue
                        times.append(time.monotonic() - client.since)
                        output = json.loads(body)["outputs"][0]["data"]
                        self.assertEqual(output, SUMS)
                        open_ones -= 1
        selector.close()
        return sorted(times)

    def test_a_thousand_connections(self):
        server = self.serve("--model", f"simple={SIMPLE}", "--device", "cpu", "--max-connections", 1010,
                            "--max-queue", GOOD, "--max-body", 110_000_000)
        before = resident_bytes(server.process)
        others = []
        self.addCleanup(lambda: [one.close() for one in others])

        def connect(first):
            one = server.socket()
            one.sendall(first)
            others.append(one)
            return one
        trickling = [connect(b"P") for _ in range(TRICKLING)]
        half_open = [connect(REQUEST[:-1 - i]) for i in range(HALF_OPEN)]
        for i, one in enumerate(half_open):
            if i % 2:
                one.shutdown(socket.SHUT_WR)
        for _ in range(SILENT):
            connect(b"")
        good = [Client(server.port) for _ in range(GOOD)]
        self.addCleanup(lambda: [one.socket.close() for one in good])
        step = itertools.chain(b"OST /v2 HTTP/1.1\r\nX: ", itertools.cycle(b"x"))

        def trickle():
            byte = bytes([next(step)])
            for one in trickling:
                try:
                    one.send(byte)
                except OSError:
                    pass  # it was too slow for the server

        begin = time.monotonic()
        times = self.rounds(good, trickle)
        seconds = time.monotonic() - begin
        crowd = resident_bytes(server.process)
        self.assertEqual(len(times), GOOD * ROUNDS)
        print(f"{GOOD + len(others)} connections: {len(times) / seconds:.0f} requests per second of {GOOD} clients, "
              f"latency p50 {times[len(times) // 2] * 1e3:.0f} ms, p99 {times[len(times) * 99 // 100] * 1e3:.0f} ms; "
              f"the server holds {(crowd - before) / 1e6:.1f} MB more", flush=True)
        if os.environ.get("ATOLL_SANITIZED") != "1" and not EMULATOR:
            self.assertLess(crowd - before, 32e6)
        # Half of a request and the end is a client that has gone; the slow ones have their time.
        for i, one in enumerate(half_open):
            if i % 2:
                self.assertEqual(one.recv(1000), b"")
        for one in trickling:
            one.settimeout(LONG)
            self.assertTrue(one.recv(1000).startswith(b"HTTP/1.1 408 "), "a head that takes ten seconds")
        self.bodies(server)
        # Nobody is left.
        for one in [*others, *(client.socket for client in good)]:
            one.close()
        descriptors = pathlib.Path(f"/proc/{server.process.pid}/fd")
        self.wait_for(lambda: len(list(descriptors.iterdir())) < 40, "connections that are closed")
        self.assertEqual(server.infer("simple", simple_request()).status, 200)

    def bodies(self, server):
        """Bodies of 100 MB, two at a time, while the good clients go on; one that is too large."""
        text = json.dumps(simple_request(comment="x" * 99_999_000)).encode()
        answers = []

        def send():
            answers.append(server.ask("POST", "/v2/models/simple/infer", text, {}))
        begin = time.monotonic()
        threads = [threading.Thread(target=send) for _ in range(2)]
        for thread in threads:
            thread.start()
        small = 0
        while any(thread.is_alive() for thread in threads):
            self.assertEqual(server.infer("simple", simple_request()).status, 200)
            small += 1
        for thread in threads:
            thread.join()
        print(f"2 bodies of {len(text) / 1e6:.0f} MB in {time.monotonic() - begin:.1f} s, {small} small requests "
              "meanwhile", flush=True)
        self.assertGreater(small, 0)
        for answer in answers:
            self.assertEqual(answer.status, 200, answer.body[:500])
            self.assertEqual(answer.json()["outputs"][0]["data"], SUMS)
        with server.socket() as client:
            client.sendall(b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Length: 110000001\r\n\r\n")
            self.assertTrue(client.recv(1000).startswith(b"HTTP/1.1 413 "))


if __name__ == "__main__":
    unittest.main()
