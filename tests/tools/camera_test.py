# SPDX-License-Identifier: Apache-2.0
"""`atoll camera`: every frame is accounted for, whatever happens to cameras, devices and viewers."""
import base64
import datetime
import fcntl
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
import unittest

from atoll_command import (COMMAND, EMULATOR, FASHION_DATA, FASHION_LABELS, FASHION_MODEL,
                           CommandTest, absent, need, run)

FASHION = (FASHION_MODEL, "--device", "emu")


class CameraTest(CommandTest):
    def assert_accounted(self, report):
        self.assertEqual(report["captured"],
                         report["processed"] + report["dropped"] + report["failed"])

    def start(self, *arguments, **options):
        """A camera under way; ends with the test at the latest."""
        process = subprocess.Popen([*COMMAND, "camera", *map(str, arguments), "--json"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        return process

    def serve(self, *arguments):
        """A camera with a page; also its port."""
        process = self.start(*arguments, "--serve", ":0")
        line = process.stderr.readline().decode()
        self.assertRegex(line, r"^atoll: see http://127\.0\.0\.1:\d+/\n$")
        # Whoever writes to a full pipe waits.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        return process, int(re.search(r":(\d+)/", line)[1])

    def get(self, port, path):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response.status, body

    def status(self, port):
        return json.loads(self.get(port, "/api/status")[1])

    def finish(self, process, code=0):
        """The report of a camera that ends by itself or was told to."""
        out, errors = process.communicate(timeout=300)
        self.assertEqual(process.returncode, code, errors.decode())
        report = json.loads(out)
        self.assert_accounted(report)
        return report

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        out = process.stdout.read()
        self.assertEqual(process.wait(60), 0)
        report = json.loads(out)
        self.assert_accounted(report)
        return report

    def finish_badly(self, *arguments):
        """What a camera says that ends with an error, and with its report all the same."""
        result = run("camera", *arguments, "--json")
        self.assertEqual(result.code, 1, result.stderr)
        self.assert_accounted(json.loads(result.stdout))
        return result.stderr

    def await_line(self, process, text):
        """The first line on stderr with this text."""
        for line in process.stderr:
            if text in line:
                return line
        raise AssertionError(f"{text} has not been said")

    def frames(self, count, *arguments):
        """A file of `count` JPEGs that the command itself has made."""
        saved = self.directory / "made"
        saved.mkdir(exist_ok=True)
        self.succeed("camera", FASHION_MODEL, "--device", "cpu", "--fps", "0", "--policy", "every",
                     "--frames", count, "--save", saved, *arguments)
        return [path.read_bytes() for path in sorted(saved.iterdir())]


class Frames(CameraTest):
    def test_fashion(self):
        if not FASHION_DATA.exists():
            absent("the Debian package dataset-fashion-mnist")
        accuracy = {}
        for device in ("cpu", "emu"):
            report = self.json("camera", FASHION_MODEL, "--labels", FASHION_LABELS, "--source",
                               f"fashion:{FASHION_DATA}", "--fps", "0", "--policy", "every",
                               "--frames", "100", "--device", device)
            self.assertEqual(report["processed"], 100)
            self.assert_accounted(report)
            accuracy[device] = report["accuracy"]
            self.assertLessEqual({"capture", "decode", "queue", "resize", "infer", "compute",
                                  "post", "total"}, set(report["latency_ms"]))
            self.assertEqual("link_out" in report["latency_ms"], device == "emu")
        self.assertEqual(accuracy["cpu"], accuracy["emu"])
        self.assertGreater(accuracy["cpu"], 0.8)

    def test_newest_drops_and_counts(self):
        """Whoever reads the results does not, until all frames are captured: the pipe is full, so
        that the first result waits, and no other frame can be processed meanwhile."""
        results = self.directory / "results"
        os.mkfifo(results)
        with open(os.open(results, os.O_RDONLY | os.O_NONBLOCK), "rb") as reader:
            fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
            writer = os.open(results, os.O_WRONLY)
            os.write(writer, b"\n" * 4096)
            os.close(writer)
            process, port = self.serve(FASHION_MODEL, "--device", "cpu", "--fps", "0", "--policy",
                                       "newest", "--frames", "200", "--results", results)
            deadline = time.monotonic() + 300
            while (frames := self.status(port)["frames"])["captured"] < 200:
                self.assertLess(time.monotonic(), deadline)
            self.assertGreater(frames["dropped"], 100)
            os.set_blocking(reader.fileno(), True)
            lines = [json.loads(line) for line in reader if line.strip()]
        report = json.loads(process.stdout.read())
        self.assertEqual(process.wait(60), 0)
        self.assert_accounted(report)
        self.assertEqual((report["captured"], report["failed"]), (200, 0))
        self.assertGreaterEqual(report["dropped"], frames["dropped"])
        self.assertEqual(report["processed"], len(lines))
        numbers = [line["frame"] for line in lines]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertEqual(numbers[-1], 199)  # the newest one is never dropped

    def test_saves_and_counts_bad_frames(self):
        frames = self.directory / "frames"
        saved = self.directory / "saved"
        frames.mkdir()
        self.succeed("camera", FASHION_MODEL, "--device", "cpu", "--fps", "0", "--policy", "every",
                     "--frames", "3", "--save", frames)
        self.assertEqual(len(list(frames.iterdir())), 3)
        (frames / "zz.jpg").write_bytes(b"no JPEG")
        report = self.json("camera", FASHION_MODEL, "--device", "cpu", "--fps", "0", "--policy",
                           "every", "--source", frames, "--save", saved, "--crop", "square")
        self.assertEqual((report["captured"], report["processed"], report["failed"]), (4, 3, 1))
        self.assertIn("zz.jpg", report["first_failure"])
        self.assertEqual(len(list(saved.iterdir())), 3)

    def test_says_what_its_queue_may_delay(self):
        report = self.json("camera", FASHION_MODEL, "--device", "cpu", "--fps", "100", "--policy",
                           "every", "--queue", "4", "--frames", "20")
        self.assertEqual(report["queue_frames"], 4)
        self.assertAlmostEqual(report["queue_delay_ms"], 4000 / report["captured_fps"], places=2)

    def test_pictures_of_other_formats_have_a_size(self):
        pixels = bytes(range(240)) * 2  # 16 x 10 in colour
        header = b"BM" + struct.pack("<IIIIiiHHIIIIII", 54 + 480, 0, 54, 40, 16, 10, 1, 24, 0, 480,
                                     0, 0, 0, 0)
        frames = self.directory / "frames"
        frames.mkdir()
        (frames / "a.bmp").write_bytes(header + pixels)
        results = self.directory / "results.jsonl"
        process, port = self.serve(FASHION_MODEL, "--device", "cpu", "--source", frames, "--loop",
                                   "--crop", "square", "--results", results)
        while (status := self.status(port))["frames"]["processed"] == 0:
            pass
        self.assertEqual((status["width"], status["height"]), (16, 10))
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        self.assertEqual(process.wait(60), 0)
        seen = json.loads(results.read_text().splitlines()[0])["models"][0][0]["seen"]
        self.assertEqual(seen, {"left": 3, "top": 0, "right": 13, "bottom": 10})

    def test_results_on_the_standard_output(self):
        arguments = ("camera", FASHION_MODEL, "--device", "cpu", "--labels", FASHION_LABELS, "--fps",
                     "0", "--policy", "every", "--frames", "3", "--results")
        before = time.time()
        for name in ("-", "/dev/stdout"):
            result = self.succeed(*arguments, name)
            lines = [json.loads(line) for line in result.stdout.splitlines()]
            self.assertEqual([line["frame"] for line in lines], [0, 1, 2])
            self.assertIn("3 captured = 3 processed", result.stderr)
            for line in lines:
                self.assertIn(line["models"][0][0]["classes"][0]["label"],
                              FASHION_LABELS.read_text().splitlines())
                moment = datetime.datetime.fromisoformat(line["time"].replace("Z", "+00:00"))
                self.assertTrue(before - 1 <= moment.timestamp() <= time.time() + 1, line["time"])
            self.assertEqual(lines[0]["seconds"], 0)
            self.assertGreater(lines[2]["seconds"], lines[1]["seconds"])
        *lines, report = self.succeed(*arguments, "-", "--json").stdout.splitlines()
        self.assertEqual((len(lines), json.loads(report)["processed"]), (3, 3))
        self.assertFalse(pathlib.Path("-").exists())

    def test_says_what_it_looks_at(self):
        """To somebody who tries it without a camera and without reading."""
        errors = self.succeed("camera", FASHION_MODEL, "--device", "cpu", "--frames", "2").stderr
        self.assertRegex(errors, r"(?m)^atoll: frames from test: pattern of 640 x 480, which is made "
                                 r"up; --source /dev/video0")
        self.assertRegex(errors, r"(?m)^atoll: nobody sees the pictures; --serve :8080 ")
        errors = self.succeed("camera", FASHION_MODEL, "--device", "cpu", "--frames", "2",
                              "--source", "test", "--save", self.directory).stderr
        self.assertNotRegex(errors, "made up|nobody")
        self.assertEqual(self.succeed("camera", FASHION_MODEL, "--device", "cpu", "--frames", "2",
                                      "--quiet").stderr, "")
        # Not even which device was taken.
        self.assertEqual(self.succeed("camera", FASHION_MODEL, "--frames", "2", "--quiet").stderr,
                         "")
        self.assertIn("scenes:DIR", self.succeed("camera", "--help").stdout)

    def test_shrinking_while_decoding(self):
        report = self.json("camera", FASHION_MODEL, "--device", "cpu", "--fps", "0", "--frames",
                           "20", "--policy", "every", "--crop", "100x100+7+9")
        self.assertEqual(report["processed"], 20)
        self.assertNotIn("draw", report["latency_ms"])

    def test_several_models(self):
        results = self.directory / "results.jsonl"
        trace = self.directory / "trace.json"
        report = self.json("camera", FASHION_MODEL, FASHION_MODEL, FASHION_MODEL, "--device", "emu",
                           "--labels", FASHION_LABELS, "--labels", "-", "--labels", FASHION_LABELS,
                           "--priority", "0,2,1", "--fps", "0", "--policy", "every", "--frames",
                           "30", "--results", results, "--trace", trace)
        self.assert_accounted(report)
        self.assertEqual(report["processed"], 30)
        self.assertEqual([model["inferences"] for model in report["models"]], [30, 30, 30])
        self.assertEqual({model["task"] for model in report["models"]}, {"classify"})
        lines = [json.loads(line) for line in results.read_text().splitlines()]
        self.assertEqual([line["frame"] for line in lines], list(range(30)))
        for line in lines:
            first, second, third = line["models"]
            self.assertEqual(first, third)
            self.assertEqual(first[0]["classes"][0] | {"label": None}, second[0]["classes"][0])
            self.assertIn(first[0]["classes"][0]["label"], FASHION_LABELS.read_text().splitlines())
            self.assertRegex(second[0]["captions"][0], r"^class \d \d\.\d\d$")
            self.assertEqual(first[0]["seen"], {"left": 0, "top": 0, "right": 640, "bottom": 480})
        events = json.loads(trace.read_text())["traceEvents"]
        spans = [event for event in events if event["ph"] == "X"]
        self.assertEqual(sum(event["name"] == "decode" for event in spans), 30)
        self.assertEqual(sum(event["name"].startswith("compute ") for event in spans), 90)
        begun = [event["id"] for event in events if event["ph"] == "b" and
                 event["cat"] == "frames"]
        self.assertEqual(begun, list(range(30)))
        self.assertTrue(all(event.get("dur", 0) >= 0 for event in events))

    def test_devices_see_the_same(self):
        seen = []
        for device in ("cpu", "emu"):
            path = self.directory / f"{device}.jsonl"
            self.json("camera", FASHION_MODEL, FASHION_MODEL, "--device", device, "--frames", "60",
                      "--fps", "0", "--policy", "every", "--results", path)
            seen.append([json.loads(line)["models"] for line in path.read_text().splitlines()])
        self.assertEqual(len(seen[0]), 60)
        self.assertEqual(seen[0], seen[1])

    def test_damaged_frames(self):
        """One in fifty is cut off, one in fifty is noise; the stream goes on."""
        good = self.frames(10)
        stream = b""
        for i in range(200):
            frame = good[i % 10]
            if i % 50 == 7:
                frame = frame[:len(frame) // 2]
            if i % 50 == 31:
                frame = frame[:700] + bytes((j * 37) % 255 for j in range(300)) + frame[1000:]
            stream += frame
        report = self.json("camera", *FASHION, "--source", self.file("f.mjpeg", stream), "--fps",
                           "0", "--policy", "every")
        self.assert_accounted(report)
        self.assertEqual(report["captured"], 200)
        self.assertTrue(4 <= report["failed"] <= 8, report["failed"])
        self.assertIn("frame 7 (", report["first_failure"])
        self.assertIsNone(report["end"])

    def test_standard_input(self):
        stream = b"".join(self.frames(5))
        for source in ("-", "/dev/stdin"):
            process = self.start(*FASHION, "--source", source, "--policy", "every",
                                 stdin=subprocess.PIPE)
            process.stdin.write(stream)
            process.stdin.close()
            process.stdin = None
            self.assertEqual(self.finish(process)["processed"], 5)

    def test_y4m(self):
        frame = b"FRAME\n" + bytes(range(48)) * 48 + bytes(2 * 24 * 24)
        path = self.file("video.y4m", b"YUV4MPEG2 W48 H48 F30:1 C420jpeg\n" + frame * 3)
        report = self.json("camera", *FASHION, "--source", path, "--policy", "every", "--fps", "0",
                           "--loop", "--frames", "10")
        self.assertEqual(report["processed"], 10)
        self.assertIn("Y4M of 48 x 48", report["source"])


class Ends(CameraTest):
    """However it ends, captured = processed + dropped + failed."""

    def test_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            for policy in ("newest", "every"):
                with self.subTest(number, policy=policy):
                    process = self.start(*FASHION, "--fps", "100", "--policy", policy)
                    self.await_line(process, b" frames, ")
                    process.send_signal(number)
                    report = self.finish(process)
                    self.assertGreater(report["processed"], 0)
                    self.assertIsNone(report["end"])

    def test_a_signal_while_nothing_comes(self):
        process = self.start(*FASHION, "--source", "-", stdin=subprocess.PIPE)
        process.stdin.write(self.frames(1)[0])
        process.stdin.flush()
        self.await_line(process, b"no frame from standard input for ")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(process)["captured"], 1)

    def test_a_signal_before_anything_came(self):
        """It says what it waits for, ends at once, and reports that there was nothing."""
        pipe = self.directory / "pipe"
        os.mkfifo(pipe)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://me:secret@127.0.0.1:{silent.getsockname()[1]}/x?pwd=secret"
            for source in ("-", pipe, url):
                with self.subTest(source):
                    process = self.start(*FASHION, "--source", source, stdin=subprocess.PIPE)
                    line = self.await_line(process, b"atoll: no frame from ")
                    self.assertNotIn(b"secret", line)
                    process.send_signal(signal.SIGTERM)
                    # Not communicate(), which would end the standard input beside the signal.
                    out, errors = process.stdout.read(), process.stderr.read()
                    self.assertEqual(process.wait(60), 0, errors)
                    self.assertNotIn(b"secret", out + errors)
                    process.stdin.close()
                    self.assertEqual(json.loads(out)["captured"], 0)

    def test_streams_without_pictures(self):
        for source, why in (("/dev/zero", "no JPEG picture"), ("/dev/null", "there is nothing in it")):
            errors = self.finish_badly(*FASHION, "--source", source)
            self.assertIn(f"{source}: ", errors)
            self.assertIn(why, errors)

    def test_device_loss(self):
        """In the middle of a frame: later the same bytes, or an end that says so."""
        faults = self.file("unplug.txt", b"out 30 unplug never\n")
        results = {}
        for loss in ("none", "fallback"):
            path = self.directory / f"{loss}.jsonl"
            arguments = () if loss == "none" else ("--faults", faults)
            report = self.json("camera", *FASHION, "--frames", "40", "--fps", "0", "--policy",
                               "every", "--results", path, *arguments)
            self.assert_accounted(report)
            self.assertEqual(report["processed"], 40)
            results[loss] = [json.loads(line)["models"] for line in path.read_text().splitlines()]
            self.assertEqual(report["device_health"]["fallbacks"] > 0, loss == "fallback")
        self.assertEqual(results["none"], results["fallback"])

        report = self.finish(self.start(*FASHION, "--frames", "40", "--fps", "0", "--policy",
                                        "every", "--faults", faults, "--on-device-loss", "fail"), 5)
        self.assertEqual(report["failed"], 1)
        self.assertIn("unplugged", report["end"])

    def test_passing_faults_cost_no_frame(self):
        report = self.json("camera", *FASHION, "--frames", "300", "--fps", "0", "--policy",
                           "every", "--faults", "seed:5:1/200")
        self.assertEqual(report["processed"], 300)
        self.assertGreater(report["device_health"]["failures"], 0)


class Page(CameraTest):
    def test_page_status_metrics_and_picture(self):
        process, port = self.serve(*FASHION, "--fps", "50", "--policy", "every")
        code, page = self.get(port, "/")
        self.assertEqual(code, 200)
        self.assertIn(b"<title>", page)
        code, snapshot = self.get(port, "/snapshot.jpg")
        self.assertEqual((code, snapshot[:3]), (200, b"\xff\xd8\xff"))
        code, status = self.get(port, "/api/status")
        frames = json.loads(status)["frames"]
        self.assertGreater(frames["captured"], 0)
        self.assertEqual(frames["captured"], frames["processed"] + frames["dropped"] +
                         frames["failed"] + frames["in_flight"])
        code, metrics = self.get(port, "/metrics")
        self.assertRegex(metrics.decode(), r"(?m)^atoll_frames_processed_total \d+$")
        self.assertEqual(self.get(port, "/../etc/passwd")[0], 404)
        report = self.stop(process)
        self.assertGreater(report["processed"], 0)

    def test_slow_and_silent_viewers(self):
        process, port = self.serve(*FASHION, "--fps", "50", "--policy", "every", "--size", "1280x720", "--max-viewers", "3")
        silent = []
        for _ in range(3):
            viewer = socket.create_connection(("127.0.0.1", port), 30)
            self.addCleanup(viewer.close)
            viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            viewer.sendall(b"GET /stream.mjpg HTTP/1.1\r\nHost: localhost\r\n\r\n")
            silent.append(viewer)
        deadline = time.monotonic() + 30
        while json.loads(self.get(port, "/api/status")[1])["viewers"]["watching"] < 3:
            self.assertLess(time.monotonic(), deadline)
        code, sentence = self.get(port, "/stream.mjpg")
        self.assertEqual(code, 503, sentence)
        def processed():
            return json.loads(self.get(port, "/api/status")[1])["frames"]["processed"]
        # More frames than the sockets of viewers who read nothing can take.
        end = processed() + 50
        deadline = time.monotonic() + 60
        while processed() < end:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        report = self.stop(process)
        self.assertLessEqual(report["dropped"], 2)  # what waited when the signal came
        self.assertEqual(report["failed"], 0)

    def test_a_port_that_is_taken(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.fail_with(1, ("camera", *FASHION, "--serve", f":{port}"), str(port))
        for bad in ("8080x", ":", "host:port"):
            self.fail_with(2, ("camera", *FASHION, "--serve", bad), bad)


class Access(CameraTest):
    TOKEN = "a token for the tests of 32 bytes".replace(" ", "_")

    def certificates(self):
        folder = self.directory
        (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")

        def openssl(*words):
            subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test CA",
                "-days", "2")
        for name in ("server", "client"):
            openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                    "-CAcreateserial", "-out", f"{name}.pem", "-days", "2", "-extfile", "names")
        (folder / "token").write_text(self.TOKEN + "\n")
        return folder

    def serve_elsewhere(self, *arguments):
        """The port of a camera on all addresses of this computer."""
        process = self.start(FASHION_MODEL, "--device", "cpu", "--fps", "50", "--size", "1280x720",
                             "--serve", "0.0.0.0:0", *arguments)
        line = process.stderr.readline().decode()
        self.assertRegex(line, r"^atoll: see https://127\.0\.0\.1:\d+/\n$")
        threading.Thread(target=process.stderr.read, daemon=True).start()
        return process, int(re.search(r":(\d+)/", line)[1])

    def ask(self, port, context, path="/api/status", headers=None):
        connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=context)
        self.addCleanup(connection.close)
        connection.request("GET", path, headers=headers or {})
        return connection.getresponse()

    def test_other_addresses_need_tls_and_a_credential(self):
        keys = self.certificates()
        page = ("camera", FASHION_MODEL, "--device", "cpu", "--serve", "0.0.0.0:0")
        tls = ("--tls-cert", keys / "server.pem", "--tls-key", keys / "server.key")
        self.fail_with(2, page, "--tls-cert")
        self.fail_with(2, (*page, "--token-file", keys / "token"), "--tls-cert")
        self.fail_with(2, (*page, *tls), "--token-file")
        self.fail_with(2, (*page, *tls[:2]), "--tls-key")
        self.fail_with(2, (*page, "--tls-cert", keys / "token", "--tls-key", keys / "token"), "token")
        self.fail_with(2, ("camera", FASHION_MODEL, "--device", "cpu", *tls), "--serve")
        insecure = self.json("camera", FASHION_MODEL, "--device", "cpu", "--frames", "3", "--serve",
                             "0.0.0.0:0", "--insecure")
        self.assertEqual(insecure["processed"], 3)

    def test_pictures_through_tls(self):
        keys = self.certificates()
        process, port = self.serve_elsewhere(
            "--tls-cert", keys / "server.pem", "--tls-key", keys / "server.key", "--token-file",
            keys / "token", "--client-ca", keys / "ca.pem")
        stranger = ssl.create_default_context(cafile=keys / "ca.pem")
        known = ssl.create_default_context(cafile=keys / "ca.pem")
        known.load_cert_chain(keys / "client.pem", keys / "client.key")
        answer = self.ask(port, stranger)
        self.assertEqual(answer.status, 401)
        self.assertIn("Basic", answer.headers["WWW-Authenticate"])
        bearer = {"Authorization": f"Bearer {self.TOKEN}"}
        login = {"Authorization": "Basic " + base64.b64encode(f"me:{self.TOKEN}".encode()).decode()}
        for context, headers in ((stranger, bearer), (stranger, login), (known, None)):
            self.assertEqual(self.ask(port, context, headers=headers).status, 200)
            self.assertEqual(self.ask(port, context, "/metrics", headers).status, 200)
            snapshot = self.ask(port, context, "/snapshot.jpg", headers)
            self.assertEqual((snapshot.status, snapshot.read()[:2]), (200, b"\xff\xd8"))
            # Ten whole pictures of a stream, of more than a record of TLS each.
            stream = self.ask(port, context, "/stream.mjpg", headers)
            for _ in range(10):
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += stream.read(1)
                size = int(re.search(rb"Content-Length: (\d+)", head)[1])
                picture = stream.read(size)
                self.assertEqual((picture[:2], picture[-2:]), (b"\xff\xd8", b"\xff\xd9"))
                self.assertGreater(size, 20_000)
                stream.read(2)
            stream.close()
        # Who speaks no TLS, or goes in the middle of it, harms nobody.
        for garbage in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x02", b""):
            with socket.create_connection(("127.0.0.1", port), 60) as client:
                client.sendall(garbage)
        self.assertEqual(self.ask(port, known).status, 200)
        self.stop(process)

    def test_certificates_alone(self):
        keys = self.certificates()
        process, port = self.serve_elsewhere("--tls-cert", keys / "server.pem", "--tls-key",
                                       keys / "server.key", "--client-ca", keys / "ca.pem")
        known = ssl.create_default_context(cafile=keys / "ca.pem")
        known.load_cert_chain(keys / "client.pem", keys / "client.key")
        self.assertEqual(self.ask(port, known).status, 200)
        with self.assertRaises(OSError):
            self.ask(port, ssl.create_default_context(cafile=keys / "ca.pem"))
        self.assertEqual(self.ask(port, known).status, 200)
        self.stop(process)


class Memory(CameraTest):
    @unittest.skipIf(EMULATOR, "an emulator's memory is not ours")
    def test_is_flat(self):
        """Unpaced frames, of which one in fifty is damaged; 100,000 with ATOLL_TEST_SCALE=10."""
        count = int(10_000 * float(os.environ.get("ATOLL_TEST_SCALE") or 1))
        good = self.frames(10, "--size", "160x120")
        stream = b"".join(good[i % 10] if i % 50 else good[0][:len(good[0]) // 2]
                          for i in range(1000))
        process = self.start(*FASHION, "--source", self.file("f.mjpeg", stream), "--loop", "--fps",
                             "0", "--policy", "every", "--serve", ":0")
        port = int(re.search(r":(\d+)/", process.stderr.readline().decode())[1])
        threading.Thread(target=process.stderr.read, daemon=True).start()
        viewer = socket.create_connection(("127.0.0.1", port), 30)
        self.addCleanup(viewer.close)
        viewer.sendall(b"GET /stream.mjpg HTTP/1.1\r\nHost: localhost\r\n\r\n")

        def watch():
            try:
                while viewer.recv(1 << 16):
                    pass
            except OSError:
                pass

        threading.Thread(target=watch, daemon=True).start()
        sizes = []  # by frames captured
        warm = []
        while len(warm) < 10 or sizes[-1][0] < count:
            captured = json.loads(self.get(port, "/api/status")[1])["frames"]["captured"]
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            sizes.append((captured, int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])))
            warm = [size for captured, size in sizes if captured >= count // 10]
            time.sleep(0.05)
        report = self.stop(process)
        damaged = (report["captured"] + 49) // 50
        self.assertLessEqual(report["failed"], damaged)
        self.assertGreaterEqual(report["failed"] + report["dropped"], damaged)
        print(f"{report['captured']} frames; RSS {warm[0]} kB, at most {max(warm)} kB, "
              f"{warm[-1]} kB in the end")
        self.assertLess(max(warm) - warm[0], 1024)


if __name__ == "__main__":
    need(FASHION_MODEL)
    unittest.main()
