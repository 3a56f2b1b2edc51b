# SPDX-License-Identifier: Apache-2.0
"""usage: exchange_test.py SERVER ATOLL SOURCE [SHARED]

Frigate's side of the exchange with its `zmq` detector, by pyzmq: a model that is sent, frames whose
answers are the bytes of `atoll run`, a server that is killed and comes back, and what no Frigate
sends.
"""
import array
import hashlib
import json
import os
import pathlib
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

try:
    import zmq
except ImportError:
    print("ATOLL-SKIPPED: python3-zmq is not installed")
    sys.exit(0)

SERVER, ATOLL, SOURCE = (pathlib.Path(word) for word in sys.argv[1:4])
MODEL = SOURCE / "models/scenes/scenes_int8.tflite"
HEIGHT, WIDTH = 128, 176
ZEROS = bytes(480)
DEADLINE = 60


class Detector:
    """What Frigate does: ask for the model, send it if need be, then frames; after a time-out the
    same from the beginning."""

    def __init__(self, endpoint, model=MODEL, timeout_ms=200, name=None):
        self.context = zmq.Context()
        self.endpoint, self.model, self.timeout_ms = endpoint, model, timeout_ms
        self.name = name or model.name
        self.socket = None
        self.ready = False
        self.uploads = 0

    def close(self):
        self.context.destroy(linger=0)

    def connect(self):
        if self.socket is not None:
            self.socket.close(linger=0)
        self.socket = self.context.socket(zmq.REQ)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(self.endpoint)
        self.ready = False

    def ask(self, *parts, timeout_ms):
        self.socket.setsockopt(zmq.RCVTIMEO, timeout_ms)
        self.socket.setsockopt(zmq.SNDTIMEO, timeout_ms)
        self.socket.send_multipart(parts)
        return self.socket.recv_multipart()

    def introduce(self, timeout_ms=30_000):
        head = json.dumps({"model_request": True, "model_name": self.name}).encode()
        (answer,) = self.ask(head, timeout_ms=timeout_ms)
        answer = json.loads(answer)
        if not answer["model_available"]:
            head = json.dumps({"model_data": True, "model_name": self.name}).encode()
            (sent,) = self.ask(head, self.model.read_bytes(), timeout_ms=30_000)
            assert json.loads(sent) == {"model_saved": True, "model_loaded": True}, sent
            self.uploads += 1
        else:
            assert answer["model_loaded"], answer
        self.ready = True

    def detect(self, pixels):
        """The 480 bytes; zeros after a time-out, as Frigate has them then."""
        try:
            if self.socket is None:
                self.connect()
            if not self.ready:
                self.introduce(timeout_ms=self.timeout_ms)
            head = json.dumps({"shape": [1, HEIGHT, WIDTH, 3], "dtype": "uint8",
                               "model_type": "ssd"}).encode()
            (rows,) = self.ask(head, pixels, timeout_ms=self.timeout_ms)
            return rows
        except zmq.Again:
            self.connect()
            return ZEROS


def scene(seed):
    """Rectangles of all colours."""
    rng = random.Random(seed)
    rows = [bytearray(b"\x5a" * 3 * WIDTH) for _ in range(HEIGHT)]
    for _ in range(12):
        left, top = rng.randrange(WIDTH), rng.randrange(HEIGHT)
        right, bottom = min(WIDTH, left + rng.randrange(10, 70)), min(HEIGHT, top + rng.randrange(10, 70))
        color = bytes(rng.randrange(256) for _ in range(3))
        for y in range(top, bottom):
            rows[y][3 * left:3 * right] = color * (right - left)
    return b"".join(rows)


def rows_of_atoll_run(pixels, folder):
    """The rows that the raw outputs of `atoll run` stand for."""
    given = folder / "input.raw"
    given.write_bytes(bytes((pixel - 128) & 0xff for pixel in pixels))  # int8, zero point -128
    out = folder / f"out_{hashlib.sha256(pixels).hexdigest()}"
    out.mkdir()
    subprocess.run([ATOLL, "run", MODEL, "--device", "cpu", "--input", f"0={given}", "--output-dir",
                    out], check=True, capture_output=True, timeout=300)
    boxes, classes, scores, count = (array.array("f", (out / f"out_{i}.raw").read_bytes())
                                     for i in range(4))
    order = sorted(range(int(count[0])), key=lambda i: -scores[i])
    rows = []
    for i in order[:20]:
        if scores[i] > 0:
            rows += [classes[i], scores[i],
                     *(min(max(edge, 0.0), 1.0) for edge in boxes[4 * i:4 * i + 4])]
    return struct.pack("<120f", *rows, *[0.0] * (120 - len(rows)))


class ExchangeTest(unittest.TestCase):
    longMessage = True

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        self.endpoint = f"ipc://{self.place}/detector"

    def serve(self, budget_ms=150, endpoint=None, device="cpu", model=None):
        log = self.place / "server.log"
        with open(log, "ab") as out:
            server = subprocess.Popen(
                [SERVER, endpoint or self.endpoint, self.place / "models", device, str(budget_ms),
                 *([model] if model else [])], stdout=out)

        def end():
            if server.poll() is None:
                server.send_signal(signal.SIGCONT)
                server.kill()
            server.wait()

        self.addCleanup(end)
        server.said = log.read_text
        return server

    def detector(self, **options):
        detector = Detector(options.pop("endpoint", self.endpoint), **options)
        self.addCleanup(detector.close)
        return detector

    def until(self, what, condition):
        end = time.monotonic() + DEADLINE
        while not condition():
            self.assertLess(time.monotonic(), end, f"{what} did not come in {DEADLINE} s")
            time.sleep(0.02)


class Exchange(ExchangeTest):
    def test_every_answer_has_the_bytes_of_atoll_run(self):
        for device in ("cpu", "emu"):
            server = self.serve(budget_ms=30_000, device=device)
            detector = self.detector(timeout_ms=30_000)
            for seed in range(6):
                pixels = scene(seed)
                with tempfile.TemporaryDirectory() as folder:
                    expected = rows_of_atoll_run(pixels, pathlib.Path(folder))
                self.assertNotEqual(expected, ZEROS)
                self.assertEqual(detector.detect(pixels), expected)
            # Sent once, and known after the restart.
            self.assertEqual(detector.uploads, 1 if device == "cpu" else 0)
            server.send_signal(signal.SIGTERM)
            self.assertEqual(server.wait(DEADLINE), 0)

    def test_models_of_others(self):
        """Two Frigates with models of different names; one with a file that is no model."""
        self.serve(budget_ms=30_000)
        first, second = (self.detector(timeout_ms=30_000, name=name) for name in ("a", "ä b.tflite"))
        rows = first.detect(scene(1))
        self.assertEqual(second.detect(scene(1)), rows)
        self.assertEqual((first.uploads, second.uploads), (1, 1))
        self.assertEqual(len(list((self.place / "models").glob("*.tflite"))), 1)  # one file
        bad = self.detector(model=SOURCE / "README.md", timeout_ms=30_000)
        bad.connect()
        self.assertRaises(AssertionError, bad.introduce)
        self.assertEqual(first.detect(scene(1)), rows)


class Kills(ExchangeTest):
    def test_a_server_that_is_killed_in_mid_stream(self):
        server = self.serve(budget_ms=30_000)
        detector = self.detector(timeout_ms=10_000)
        scenes = [scene(seed) for seed in range(4)]
        expected = [detector.detect(pixels) for pixels in scenes]
        self.assertNotIn(ZEROS, expected)
        detector.timeout_ms = 200  # as Frigate's
        for _ in range(3):
            server.kill()
            server.wait()
            # Frigate's own time-out makes zeros of it; other than that no frame fails.
            self.assertEqual(detector.detect(scenes[0]), ZEROS)
            server = self.serve(budget_ms=30_000)
            started = time.monotonic()
            failed = 0
            while True:
                rows = detector.detect(scenes[1])
                if rows != ZEROS:
                    break
                failed += 1
                self.assertLess(time.monotonic() - started, DEADLINE)
            print(f"back after {time.monotonic() - started:.3f} s, {failed} frames of zeros")
            for pixels, rows in zip(scenes, expected):
                self.assertIn(detector.detect(pixels), (rows, ZEROS))
        self.assertEqual(detector.uploads, 1)  # the one of the beginning

    def test_clients_that_are_killed(self):
        """At any border of the exchange; what others see is as before."""
        self.serve(budget_ms=30_000)
        good = self.detector(timeout_ms=30_000)
        rows = good.detect(scene(1))
        head = json.dumps({"shape": [1, HEIGHT, WIDTH, 3], "dtype": "uint8"}).encode()
        request = json.dumps({"model_request": True, "model_name": MODEL.name}).encode()
        data = json.dumps({"model_data": True, "model_name": "other"}).encode()
        for parts in ([request], [data, MODEL.read_bytes()], [head, scene(2)], [head]):
            for _ in range(5):
                context = zmq.Context()
                client = context.socket(zmq.REQ)
                client.connect(self.endpoint)
                client.send_multipart(parts)
                context.destroy(linger=0)
            self.assertEqual(good.detect(scene(1)), rows)

    def test_a_client_that_stops_in_the_middle_of_its_bytes(self):
        """ZMTP by hand: greeting, READY, and half of a frame."""
        server = self.serve(budget_ms=30_000, endpoint="tcp://127.0.0.1:*")
        self.until("the server", lambda: "listens at" in server.said())
        endpoint = server.said().split("listens at ")[1].splitlines()[0]
        good = self.detector(endpoint=endpoint, timeout_ms=30_000)
        rows = good.detect(scene(1))
        greeting = (b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0").ljust(64, b"\0")
        ready = b"\x05READY\x0bSocket-Type\0\0\0\x03REQ"
        endings = [b"", greeting[:10], greeting, greeting + b"\x04" + bytes([len(ready)]) + ready,
                   greeting + b"\x04" + bytes([len(ready)]) + ready + b"\x01\0\x02" + (1 << 62).to_bytes(8, "big"),
                   greeting + b"\x04" + bytes([len(ready)]) + ready + b"\x01\0\x02" + (70_000).to_bytes(8, "big") + b"x",
                   b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", os.urandom(500)]
        connections = []
        address = endpoint.removeprefix("tcp://").split(":")
        for ending in endings:
            connections.append(socket.create_connection((address[0], int(address[1]))))
            connections[-1].sendall(ending)
            self.assertEqual(good.detect(scene(1)), rows)
        for connection in connections:
            connection.close()
        self.assertEqual(good.detect(scene(1)), rows)

    def test_random_messages(self):
        """Anything in any number of parts gives zeros or a sentence, to REQ, and nothing else."""
        server = self.serve(budget_ms=30_000, model=MODEL)
        good = self.detector(timeout_ms=30_000)
        rows = good.detect(scene(1))
        rng = random.Random(20)
        pieces = [b"", b"{}", b"[", b"null", b'{"shape":[1,128,176,3],"dtype":"uint8"}', scene(3)[:100],
                  b'{"model_data":true,"model_name":"x"}', b'{"model_request":true}', os.urandom(64),
                  b'{"model_request":true,"model_name":"/etc/passwd"}']
        answers = {ZEROS, b'{"model_available":false,"model_loaded":false}',
                   b'{"model_loaded":false,"model_saved":false}'}
        client = self.detector()
        client.connect()
        for _ in range(500):
            parts = [rng.choice(pieces) for _ in range(rng.randrange(1, 5))]
            self.assertIn(client.ask(*parts, timeout_ms=30_000)[0], answers, parts)
        self.assertEqual(good.detect(scene(1)), rows)
        self.assertIsNone(server.poll())

    def test_many_clients_at_once(self):
        self.serve(budget_ms=30_000, model=MODEL)
        self.detector(timeout_ms=30_000).detect(scene(0))
        expected = {}
        for seed in range(4):
            expected[seed] = self.detector(timeout_ms=30_000).detect(scene(seed))
        wrong = []

        def work(seed):
            detector = self.detector(timeout_ms=30_000)
            for _ in range(25):
                if detector.detect(scene(seed)) != expected[seed]:
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed % 4,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
