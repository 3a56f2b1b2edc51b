# SPDX-License-Identifier: Apache-2.0
"""usage: serve_test.py ATOLL_SERVE ATOLL SOURCE

`atoll-serve --zmq --deepstack`: DeepStack's interface over HTTP by Python's own client, whose
predictions are those of `atoll detect`; who is let in; both in one program.
"""
import base64
import http.client
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "support"))
from absent import absent  # noqa: E402

SERVE, ATOLL, SOURCE = (pathlib.Path(word) for word in sys.argv[1:4])
MODEL = SOURCE / "models/scenes/scenes_int8.tflite"
LABELS = SOURCE / "models/fashion/labels.txt"
DETECTOR = f"scenes={MODEL},{LABELS}"
DEADLINE = 60
TOKEN = "a-token-of-24-characters"


def picture(seed, width=352, height=256):
    """Rectangles of all colours, as a PPM."""
    import random
    rng = random.Random(seed)
    rows = [bytearray(b"\x5a" * 3 * width) for _ in range(height)]
    for _ in range(12):
        left, top = rng.randrange(width), rng.randrange(height)
        right, bottom = left + rng.randrange(20, 120), min(height, top + rng.randrange(20, 120))
        right = min(width, right)
        color = bytes(rng.randrange(256) for _ in range(3))
        for y in range(top, bottom):
            rows[y][3 * left:3 * right] = color * (right - left)
    return b"P6 %d %d 255\n" % (width, height) + b"".join(rows)


def form(**fields):
    body = b""
    for name, value in fields.items():
        value = value.encode() if isinstance(value, str) else value
        body += (b"--XX\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"%s\"\r\n\r\n%s\r\n"
                 % (name.encode(), name.encode(), value))
    return body + b"--XX--\r\n", {"Content-Type": "multipart/form-data; boundary=XX"}


class ServeTest(unittest.TestCase):
    longMessage = True

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)

    def serve(self, *words):
        log = self.place / "log"
        with open(log, "wb") as out:
            server = subprocess.Popen([SERVE, *map(str, words)], stdout=out, stderr=out)

        def end():
            if server.poll() is None:
                server.kill()
            server.wait()

        self.addCleanup(end)
        end_of_patience = time.monotonic() + DEADLINE
        while "Ctrl-C" not in log.read_text():
            self.assertIsNone(server.poll(), log.read_text())
            self.assertLess(time.monotonic(), end_of_patience, log.read_text())
            time.sleep(0.02)
        found = re.search(r"DeepStack's interface at https?://[^:]*:(\d+)/", log.read_text())
        server.port = int(found[1]) if found else None
        server.said = log.read_text
        return server

    def refused(self, *words):
        done = subprocess.run([SERVE, *map(str, words)], capture_output=True, text=True,
                              timeout=DEADLINE, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"\Aatoll-serve: [^\n]*\.\n\Z")
        return done.stderr

    def connect(self, server):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE)
        self.addCleanup(connection.close)
        return connection

    def ask(self, connection, method, path, body=None, headers=None):
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, json.loads(response.read())


class Http(ServeTest):
    def test_predictions_are_those_of_atoll_detect(self):
        server = self.serve("--deepstack", "127.0.0.1:0", "--detector", DETECTOR, "--device", "emu")
        connection = self.connect(server)  # one for all
        for seed in range(3):
            file = self.place / f"{seed}.ppm"
            file.write_bytes(picture(seed))
            done = subprocess.run([ATOLL, "detect", MODEL, file, "--labels", LABELS, "--threshold",
                                   "0.05", "--json"], capture_output=True, check=True, timeout=300)
            report = json.loads(done.stdout)
            expected = report.get("detections") or report["images"][0]["detections"]
            status, answer = self.ask(connection, "POST", "/v1/vision/detection",
                                      *form(image=picture(seed), min_confidence="0.05", api_key=""))
            self.assertEqual(status, 200, answer)
            got = answer["predictions"]
            self.assertGreater(len(got), 0)
            self.assertEqual([one["label"] for one in got],
                             [one["label"].lower() for one in expected][:20])
            self.assertEqual([one["confidence"] for one in got],
                             [one["score"] for one in expected][:20])
            _, custom = self.ask(connection, "POST", "/v1/vision/custom/scenes",
                                 *form(image=picture(seed), min_confidence="0.05"))
            self.assertEqual(custom["predictions"], got)
            status, doods = self.ask(connection, "POST", "/detect", json.dumps(
                {"id": "x", "detector_name": "default", "detect": {"*": 5},
                 "data": base64.b64encode(picture(seed)).decode()}))
            self.assertEqual(status, 200, doods)
            self.assertEqual([one["label"] for one in doods["detections"]][:20],
                             [one["label"] for one in got])
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(DEADLINE), 0, server.said())

    def test_many_at_once_and_bad_ones(self):
        server = self.serve("--deepstack", "127.0.0.1:0", "--detector", DETECTOR, "--device", "cpu")
        body, headers = form(image=picture(1), min_confidence="0.05")
        _, good = self.ask(self.connect(server), "POST", "/v1/vision/detection", body, headers)
        wrong = []

        def work(number):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE)
            for _ in range(10):
                if number % 2:
                    status, answer = self.ask(connection, "POST", "/v1/vision/detection",
                                              body[:number * 5000], headers)
                    fine = status == 400 and answer["success"] is False
                else:
                    status, answer = self.ask(connection, "POST", "/v1/vision/detection", body, headers)
                    fine = status == 200 and answer["predictions"] == good["predictions"]
                if not fine:
                    wrong.append((number, status, answer))
            connection.close()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        # Who goes while the picture is looked at, and who says more than may be said.
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", server.port)) as gone:
                gone.sendall(b"POST /v1/vision/detection HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                             b"multipart/form-data; boundary=XX\r\nContent-Length: %d\r\n\r\n%s"
                             % (len(body), body))
        with socket.create_connection(("127.0.0.1", server.port), DEADLINE) as long:
            long.sendall(b"POST /v1/vision/detection HTTP/1.1\r\nHost: localhost\r\n"
                         b"Content-Length: 999999999\r\n\r\n")
            answer = long.recv(10_000)
            self.assertTrue(answer.startswith(b"HTTP/1.1 413"), answer)
            self.assertIn(b'"success":false', answer)
        status, answer = self.ask(self.connect(server), "GET", "/v1/status/ping")
        self.assertEqual((status, answer), (200, {"success": True}))


class Access(ServeTest):
    def test_a_token_is_the_key_of_the_form(self):
        token = self.place / "token"
        token.write_text(TOKEN + "\n")
        server = self.serve("--deepstack", "127.0.0.1:0", "--detector", DETECTOR, "--device", "cpu",
                            "--token-file", token)
        connection = self.connect(server)
        status, answer = self.ask(connection, "POST", "/v1/vision/detection", *form(image=picture(1)))
        self.assertEqual((status, answer["code"]), (401, 401))
        body, headers = form(image=picture(1), api_key=TOKEN)
        self.assertEqual(self.ask(connection, "POST", "/v1/vision/detection", body, headers)[0], 200)
        body, headers = form(image=picture(1))
        headers["Authorization"] = f"Bearer {TOKEN}"
        self.assertEqual(self.ask(connection, "POST", "/v1/vision/detection", body, headers)[0], 200)
        headers["Authorization"] = "Bearer another-of-24-characters"
        self.assertEqual(self.ask(connection, "POST", "/v1/vision/detection", body, headers)[0], 401)

    def test_others_are_let_in_when_it_is_said_aloud(self):
        words = ["--deepstack", "0.0.0.0:0", "--detector", DETECTOR, "--device", "cpu"]
        self.assertIn("--insecure", self.refused(*words))
        self.assertIn("--insecure", self.refused("--zmq", "tcp://0.0.0.0:*", "--zmq-folder",
                                                 self.place / "models"))
        server = self.serve(*words, "--insecure")
        self.assertEqual(self.ask(self.connect(server), "GET", "/v1/status/ping")[0], 200)

    def test_zmq_with_keys(self):
        try:
            import zmq
            import zmq.auth
        except ImportError:
            absent("python3-zmq")
        for name in ("server", "camera", "stranger"):
            zmq.auth.create_certificates(self.place, name)
        keys = ("--zmq-key", self.place / "server.key_secret", "--zmq-clients", self.place / "camera.key")
        words = ("--zmq", "tcp://0.0.0.0:*", "--zmq-folder", self.place / "models", "--device", "cpu")
        self.assertIn("--zmq-key", self.refused(*words))
        self.assertIn("--zmq-clients", self.refused(*words, *keys[:2]))
        self.assertIn("camera.key", self.refused(*words, "--zmq-key", self.place / "camera.key", *keys[2:]))
        server = self.serve(*words, *keys)
        port = re.search(r"Frigate's zmq at tcp://0\.0\.0\.0:(\d+)", server.said())[1]
        context = zmq.Context()
        self.addCleanup(context.destroy, linger=0)

        def client(name):
            one = context.socket(zmq.REQ)
            one.curve_publickey, one.curve_secretkey = zmq.auth.load_certificate(self.place / f"{name}.key_secret")
            one.curve_serverkey, _ = zmq.auth.load_certificate(self.place / "server.key")
            one.setsockopt(zmq.RCVTIMEO, 1000 * DEADLINE)
            events = one.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH)
            events.setsockopt(zmq.RCVTIMEO, 1000 * DEADLINE)
            one.connect(f"tcp://127.0.0.1:{port}")
            event = int.from_bytes(events.recv_multipart()[0][:2], "little")
            return one, event == zmq.EVENT_HANDSHAKE_SUCCEEDED
        camera, is_in = client("camera")
        self.assertTrue(is_in)
        camera.send(b'{"model_request": true, "model_name": "m.tflite"}')
        self.assertEqual(json.loads(camera.recv()), {"model_available": False, "model_loaded": False})
        self.assertFalse(client("stranger")[1])

    def test_pages_of_others_are_not(self):
        server = self.serve("--deepstack", "127.0.0.1:0", "--detector", DETECTOR, "--device", "cpu")
        connection = self.connect(server)
        for headers, code in (({"Host": "evil.example"}, 421),
                              ({"Host": "localhost", "Origin": "http://evil.example"}, 403)):
            status, answer = self.ask(connection, "GET", "/v1/status/ping", headers=headers)
            self.assertEqual((status, answer["success"]), (code, False))

    def test_options(self):
        self.assertIn("nothing to serve", self.refused("--device", "cpu"))
        self.assertIn("--detector", self.refused("--deepstack", "127.0.0.1:0", "--device", "cpu"))
        self.assertIn("--zmq", self.refused("--deepstack", "127.0.0.1:0", "--detector", DETECTOR,
                                            "--zmq-model", MODEL, "--device", "cpu"))
        for detector in ("x", "=x", "x=", "x=/none.tflite", f"a b={MODEL}", f"x={MODEL},/none",
                         f"x={SOURCE / 'models/fashion/fashion_int8.tflite'}"):
            self.refused("--deepstack", "127.0.0.1:0", "--detector", detector, "--device", "cpu")
        self.refused("--zmq", "udp://x", "--zmq-folder", self.place, "--device", "cpu")
        self.refused("--zmq", f"ipc://{self.place}/a", "--zmq-folder", self.place / "no/m/n",
                     "--zmq-model", "/none", "--device", "cpu")


class Together(ServeTest):
    def test_models_zmq_and_deepstack_in_one_program(self):
        server = self.serve("--listen", "127.0.0.1:0", "--model", f"scenes={MODEL}", "--zmq",
                            f"ipc://{self.place}/zmq", "--zmq-folder", self.place / "models",
                            "--deepstack", "127.0.0.1:0", "--detector", DETECTOR, "--device", "emu")
        self.assertIn(f"Frigate's zmq at ipc://{self.place}/zmq", server.said())
        self.assertTrue((self.place / "zmq").is_socket())
        self.assertEqual(self.ask(self.connect(server), "GET", "/v1/status/ping")[0], 200)
        port = int(re.search(r"Atoll-1.* at http://[^:]*:(\d+)/", server.said())[1])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        self.addCleanup(connection.close)
        self.assertEqual(self.ask(connection, "GET", "/v2/models/scenes")[0], 200)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(DEADLINE), 0, server.said())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
