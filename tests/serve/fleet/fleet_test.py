# SPDX-License-Identifier: Apache-2.0
"""usage: fleet_test.py SUITE

Workers, frames and jobs over real servers of NATS, as others see them: bytes, codes, what becomes of
what nobody can do, limits, rights. The environment is that of fleet_testing.py.
"""
import base64
import binascii
import hashlib
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../support"))
from absent import absent  # noqa: E402

from fleet_testing import (BOOT, FASHION_MODEL, FLEET, LENGTH, LONG, SHARED, SIMPLE, SOURCE, Client, FleetTest,
                           PortTaken, check_nats, eventually, fleet, free_ports, job_id, pixels, run,
                           start_nats)
from avahi_network import in_a_network, need_a_network  # noqa: E402

SCENES = SOURCE / "models/scenes/scenes_int8.tflite"
# Milliseconds, of tests in which nothing may be late whatever else the computer does.
AMPLE = ["--budget", "20000"]
CROPS = SOURCE / "models/crops/crops_int8.tflite"
RAW = {LENGTH: "0"}


def binary(tensors):
    """Body and headers of a request with (name, datatype, shape, bytes) for each input."""
    head = json.dumps({"parameters": {"binary_data_output": True}, "inputs": [
        {"name": name, "datatype": kind, "shape": shape,
         "parameters": {"binary_data_size": len(data)}} for name, kind, shape, data in tensors]})
    return head.encode() + b"".join(data for *_, data in tensors), {LENGTH: str(len(head))}


class Frames(FleetTest):
    def test_every_form_has_the_bytes_of_atoll_run(self):
        server = self.server(js=False)
        self.worker(server, "--model", f"fashion={FASHION_MODEL}", "--model", f"two words={SIMPLE}",
                    "--device", "emu", id="w1")
        client = self.client(server)
        data = pixels(1)
        wanted, = self.expected(FASHION_MODEL, [data])
        raw = client.request("atoll.infer.fashion", data, RAW)
        self.assertEqual(raw.outputs(), {"probabilities": wanted})
        self.assertEqual(raw.headers["Atoll-Worker"], "w1")
        body, headers = binary([("image", "INT8", [1, 28, 28, 1], data)])
        self.assertEqual(client.request("atoll.infer.fashion.w1", body, headers).outputs(),
                         {"probabilities": wanted})
        values = [b - 256 if b > 127 else b for b in data]
        answer = client.request("atoll.infer.fashion", json.dumps({"id": "x", "inputs": [
            {"name": "image", "datatype": "INT8", "shape": [1, 28, 28, 1], "data": values}]}).encode())
        self.assertEqual(answer.json()["id"], "x")
        self.assertEqual([b & 255 for b in answer.json()["outputs"][0]["data"]], list(wanted))
        # A model whose name is no token, with two inputs.
        numbers = [int(i * 7).to_bytes(4, "little") for i in range(16)]
        body, headers = binary([("INPUT0", "INT32", [1, 16], b"".join(numbers)),
                                ("INPUT1", "INT32", [1, 16], b"".join(numbers))])
        answer = client.request("atoll.infer.two%20words", body, headers).outputs()
        self.assertEqual(answer["OUTPUT1"], bytes(64))
        self.assertEqual(answer["OUTPUT0"][4:8], (14).to_bytes(4, "little"))

    def test_pictures_are_what_classify_makes_of_them(self):
        server = self.server(js=False)
        self.worker(server, "--model", f"fashion={FASHION_MODEL}", "--model", f"crops={CROPS}")
        client = self.client(server)
        result = run("classify", FASHION_MODEL, BOOT, "--json")
        self.assertEqual(result.code, 0, result.stderr)
        answer = client.request("atoll.infer.fashion", BOOT.read_bytes(),
                                {"Content-Type": "image/x-portable-anymap"})
        got, = answer.outputs().values()
        for entry in json.loads(result.stdout)["images"][0]["top"]:
            level = got[entry["index"]]
            level -= 256 if level > 127 else 0
            self.assertAlmostEqual((level + 128) / 256, entry["score"], places=6)
        # Of another size, in colour, as JPEG.
        pictures = sorted((SHARED / "images").glob("*.jpg"))
        for picture in pictures[:2]:
            answer = client.request("atoll.infer.crops", picture.read_bytes(),
                                    {"Content-Type": "image/jpeg"})
            self.assertEqual(answer.code, 0, answer.body[:300])
            self.assertTrue(answer.outputs())
        broken = client.request("atoll.infer.fashion", b"\xff\xd8\xff" + bytes(100),
                                {"Content-Type": "image/jpeg"})
        self.assertEqual(broken.code, 400)

    def test_nobody_is_there(self):
        server = self.server(js=False)
        client = self.client(server)
        self.assertTrue(client.request("atoll.infer.fashion", b"").status.startswith("503"))
        done = fleet("infer", "--nats", server.url, "--model", "fashion", BOOT, "--json")
        self.assertEqual(done.returncode, 1)
        report = json.loads(done.stdout)
        self.assertEqual((report["captured"], report["failed"]), (1, 1))
        self.assertIn("no worker has model 'fashion'", report["error"])

    def test_busy_and_late(self):
        """More than it has places for is refused at once; a spent budget is not computed."""
        server = self.server(js=False)
        worker = self.worker(server, "--model", f"scenes={SCENES}", "--device", "cpu", "--threads",
                             "1", "--places", "2", id="w1")
        client = self.client(server)
        info = self.heard(server, "w1")
        shape = info["models"][0]["inputs"][0]["shape"]
        size = 1
        for n in shape:
            size *= n
        data = pixels(2, size)
        # Stopped, it finds all of them at once.
        worker.process.send_signal(signal.SIGSTOP)
        first = client.last_reply + 1
        for i in range(40):
            client.publish("atoll.infer.scenes", data, RAW, f"{client.inbox}.{first + i}")
        client.last_reply += 40
        client.flush()
        worker.process.send_signal(signal.SIGCONT)
        answers = [client.next() for _ in range(40)]
        codes = [answer.code for answer in answers]
        self.assertEqual(set(codes), {0, 503}, codes)
        self.assertGreaterEqual(codes.count(0), 2)
        self.assertGreater(codes.count(503), 10)
        busy = next(answer for answer in answers if answer.code == 503)
        self.assertIn("as many as it takes", busy.headers["Nats-Service-Error"])
        self.assertIn("error", busy.json())
        late = client.request("atoll.infer.scenes", data, {**RAW, "Atoll-Budget-Us": "0"})
        self.assertEqual(late.code, 504)
        for budget in ("-1", "x", "1e3", "99999999999999999999"):
            answer = client.request("atoll.infer.scenes", data, {**RAW, "Atoll-Budget-Us": budget})
            self.assertEqual(answer.code, 400, budget)
        # What it says next may be what it knew before.
        eventually(lambda: self.heard(server, "w1")["frames"]["late"] == 1, "it says that one was late")
        self.assertEqual(self.heard(server, "w1")["frames"]["busy"], codes.count(503))

    def test_hung_worker(self):
        """One of three that hangs costs the frames that were sent to it, and then, for as long as
        it is left alone, none."""
        server = self.server(js=False)  # it does not find out for itself
        workers = [self.worker(server, "--model", f"fashion={FASHION_MODEL}") for _ in range(3)]
        workers[0].process.send_signal(signal.SIGSTOP)
        done = fleet("infer", "--nats", server.url, "--model", "fashion", BOOT, "--repeat", "150",
                     "--in-flight", "2", "--budget", "2000", "--json")
        workers[0].process.send_signal(signal.SIGCONT)
        report = json.loads(done.stdout)
        self.assertEqual((report["captured"], report["failed"]), (150, 0), report)
        self.assertEqual(report["processed"] + report["late"], 150, report)
        # Each of two under way is late once, and once more if the others had not said by then that
        # they are there, and after each five seconds again; and when the others stand still. Without
        # being left alone it would cost fifty, and take fifty seconds.
        self.assertLess(report["late"], 25, report)
        self.assertNotIn(workers[0].id, report["workers"])

    def under_way(self, server, worker):
        """A client for which frames are answered, some by `worker` already."""
        watcher = self.client(server)
        watcher.subscribe("_INBOX.>")  # everybody's answers
        watcher.flush()
        client = subprocess.Popen(
            [*FLEET, "infer", "--nats", server.url, "--model", "fashion", BOOT, "--repeat", "5000",
             "--in-flight", "2", "--budget", "10000", "--json"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(client.stdout.close)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        while watcher.next().headers.get("Atoll-Worker") != worker.id:
            pass
        watcher.close()
        return client

    def test_killed_worker(self):
        server = self.server(js=False)
        workers = [self.worker(server, "--model", f"fashion={FASHION_MODEL}") for _ in range(2)]
        client = self.under_way(server, workers[0])
        workers[0].kill()
        report = json.loads(client.communicate(timeout=LONG)[0])
        self.assertEqual(report["captured"],
                         report["processed"] + report["dropped"] + report["failed"])
        # What it had at that moment, at most.
        self.assertLessEqual(report["dropped"] + report["failed"], 2, report)
        self.assertGreater(report["workers"][workers[1].id], 0, report)

    def test_drain_loses_nothing(self):
        server = self.server(js=False)
        workers = [self.worker(server, "--model", f"fashion={FASHION_MODEL}") for _ in range(2)]
        client = self.under_way(server, workers[0])
        self.succeed("drain", "--nats", server.url, workers[0].id)
        self.assertEqual(workers[0].process.wait(LONG), 0)
        report = json.loads(client.communicate(timeout=LONG)[0])
        self.assertEqual((report["processed"], report["failed"], report["dropped"]), (5000, 0, 0))
        done = fleet("drain", "--nats", server.url, workers[0].id)
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no worker", done.stderr)

    def test_answers_larger_than_a_message(self):
        server = self.server("max_payload: 8192", js=False)
        self.worker(server, "--model", f"fashion={FASHION_MODEL}")
        client = self.client(server)
        text = json.dumps({"inputs": [{"name": "image", "datatype": "INT8", "shape": [1, 28, 28, 1],
                                       "data": [0] * 784}], "id": "x" * 4000})
        answer = client.request("atoll.infer.fashion", text.encode())
        self.assertEqual(answer.code, 400)
        self.assertIn("max_payload", answer.headers["Nats-Service-Error"])


class Hostile(FleetTest):
    """Nothing that arrives ends a worker, and everything gets an answer."""

    def test_requests(self):
        server = self.server()
        worker = self.worker(server, "--model", f"fashion={FASHION_MODEL}")
        client = self.client(server)
        data = pixels(3)
        wanted, = self.expected(FASHION_MODEL, [data])
        cases = [
            (b"", {}), (b"", RAW), (data[:-1], RAW), (data + b"x", RAW), (b"{", {}), (b"null", {}),
            (b"[" * 100_000, {}), (b'{"inputs": []}', {}), (data, {LENGTH: "-1"}),
            (data, {LENGTH: "99999999999999999999999"}), (data, {LENGTH: "785"}), (data, {LENGTH: "x"}),
            (b'{"inputs":[{"name":"image","datatype":"INT8","shape":[1,28,28,1],'
             b'"parameters":{"shared_memory_region":"r","shared_memory_byte_size":784}}]}', {}),
            (b'{"inputs":[{"name":"image","datatype":"INT8","shape":[1,28,28,1],'
             b'"parameters":{"binary_data_size":18446744073709551615}}]}', {LENGTH: "106"}),
            (b"\xff" * 1000, {"Content-Type": "image/png"}), (b"", {"Content-Type": "image/"}),
            (data, {**RAW, "Atoll-Priority": "4294967296"}), (data, {**RAW, "Atoll-Priority": "-2"}),
        ]
        for body, headers in cases:
            answer = client.request("atoll.infer.fashion", body, headers)
            self.assertIn(answer.code, (400, 501), (body[:60], headers, answer.body[:200]))
            self.assertTrue(answer.headers["Nats-Service-Error"])
            self.assertTrue(answer.json()["error"])
        # What has nobody to answer to, and what nobody may ask for.
        client.publish("atoll.infer.fashion", data, RAW)
        client.publish(f"atoll.worker.{worker.id}.other", b"")
        for subject in ("$SRV.PING", "$SRV.STATS.atoll", f"$SRV.INFO.atoll.{worker.id}"):
            client.publish(subject, b"\x00" * 100)
        # What others say of workers.
        for text in (b"", b"{}", b"[" * 5000, b'{"worker": "../x"}', b'{"worker": 5}',
                     json.dumps({"worker": "liar", "free": 10**30}).encode(),
                     json.dumps({"worker": "liar", "free": 5, "places": 5,
                                 "models": [{"name": "fashion"}]}).encode()):
            client.put("$KV.atoll_workers.liar", text)
        done = fleet("status", "--nats", server.url, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = fleet("infer", "--nats", server.url, "--model", "fashion", BOOT, "--repeat", "50")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(client.request("atoll.infer.fashion", data, RAW).outputs(),
                         {"probabilities": wanted})
        self.assertIsNone(worker.process.poll())

    def test_jobs(self):
        server = self.server()
        worker = self.worker(server, "--model", f"fashion={FASHION_MODEL}")
        client = self.client(server)
        data = pixels(4)
        eventually(lambda: "error" not in client.api("STREAM.INFO.ATOLL_RESULT"), "streams are there")
        jobs = {}
        for body, headers in ((b"", RAW), (b"{", {}), (data[:5], RAW), (b"\xff", {"Content-Type": "image/jpeg"}),
                              (data, {LENGTH: "7777777"})):
            job = job_id()
            jobs[job] = client.put("atoll.work.fashion.1", body, {**headers, "Nats-Msg-Id": job})
        # Without an id nobody can be told.
        for bad in ({}, {"Nats-Msg-Id": "short"}, {"Nats-Msg-Id": "*" * 22}, {"Nats-Msg-Id": "a.b" + "c" * 19}):
            client.put("atoll.work.fashion.0", data, {**RAW, **bad})
        good = job_id()
        client.put("atoll.work.fashion.2", data, {**RAW, "Nats-Msg-Id": good})
        for job in jobs:
            result = eventually(lambda: client.result(job), "a result")
            self.assertIn(result.code, (400, 501), result.headers)
            self.assertTrue(result.json()["error"])
        wanted, = self.expected(FASHION_MODEL, [data])
        self.assertEqual(eventually(lambda: client.result(good), "a result").outputs(),
                         {"probabilities": wanted})
        eventually(lambda: client.api("STREAM.INFO.ATOLL_WORK")["state"]["messages"] == 0,
                   "the queue is empty")
        self.assertEqual(client.api("STREAM.INFO.ATOLL_RESULT")["state"]["messages"], len(jobs) + 1)
        self.assertIsNone(worker.process.poll())
        # A result cannot be replaced, by nobody.
        answer = client.put(f"atoll.result.{good}", b"mine")
        self.assertIn("error", answer)

    def test_models_and_placements(self):
        server = self.server()
        worker = self.worker(server, "--max-model-bytes", "100000", "--metrics", ":0", id="w1")
        metrics = worker.process.stdout.readline().decode().split()[-1]
        client = self.client(server)
        eventually(lambda: "error" not in client.api("STREAM.INFO.OBJ_atoll_models"), "streams are there")

        def missing(count):
            with urllib.request.urlopen(metrics, timeout=LONG) as answer:
                return f'atoll_fleet_missing_models{{worker="w1"}} {count}\n' in answer.read().decode()

        def meta(name, **fields):
            token = base64.urlsafe_b64encode(name.encode()).decode()
            client.put(f"$O.atoll_models.M.{token}", json.dumps(
                {"name": name, "nuid": "N", "size": 4, "chunks": 1, "digest": "SHA-256=" + "A" * 43 + "=",
                 **fields}).encode(), {"Nats-Rollup": "sub"})
        client.put("$O.atoll_models.C.N", b"abcd")
        meta("wrong/1/model.tflite")
        meta("large/1/model.tflite", size=10**12)
        meta("nodigest/1/model.tflite", digest="MD5=x")
        meta("absent/1/model.tflite", nuid="Q")
        meta("evil/1/model.tflite", nuid="../../*.>")
        digest = base64.urlsafe_b64encode(hashlib.sha256(b"abcd").digest()).decode()
        meta("none/1/model.tflite", digest="SHA-256=" + digest)
        for text in (b"{", b'{"a": 1}', b"[1]", b'["../x"]', b'["a", "a"]', b'["a/0"]', b"[" * 1000):
            client.put("$KV.atoll_placement.w1", text)
            eventually(lambda: missing(1), f"{text[:10]} is seen")
            client.put("$KV.atoll_placement.w1", b"[]")
            eventually(lambda: missing(0), "none is seen")
        client.put("$KV.atoll_placement.w1", json.dumps(
            ["wrong/1", "large/1", "nodigest/1", "absent/1", "evil/1", "none/1", "unknown"]).encode())

        def problems():
            report = json.loads(self.succeed("status", "--nats", server.url, "--json").stdout)
            found = report["workers"][0]["problems"] if report["workers"] else []
            return found if len(found) == 7 else None
        text = "\n".join(eventually(problems, "all problems are said"))
        for words in ("SHA-256 is another one", "at most 100000", "its digest is none",
                      "its nuid is no part of a subject", "there is no model 'unknown'", "none: "):
            self.assertIn(words, text)
        self.assertIsNone(worker.process.poll())


class Jobs(FleetTest):
    def ends(self, words, seconds, *sentences):
        """After so many seconds, as soon as these are enough for it to get so far."""
        def said():
            done = fleet(*words, "--timeout", seconds)
            self.assertEqual(done.returncode, 1)
            return all(sentence in done.stderr for sentence in sentences)
        eventually(said, f"{sentences}")

    def test_files_become_results(self):
        server = self.server()
        folder = self.files(60)
        self.worker(server, "--model", f"fashion={FASHION_MODEL}")
        self.succeed("run", "--nats", server.url, "--model", "fashion", folder, "--output",
                     self.folder / "out")
        self.check(folder, self.folder / "out", 60)
        for i in (0, 17, 59):
            wanted, = self.expected(FASHION_MODEL, [pixels(i)])
            self.assertEqual((self.folder / "out" / f"{i}.raw.out_0.raw").read_bytes(), wanted)
        # The same again has nothing to do; as one file it has the values inside.
        report = json.loads(self.succeed("run", "--nats", server.url, "--model", "fashion", folder,
                                         "--output", self.folder / "out", "--json").stdout)
        self.assertEqual((report["submitted"], report["done"]), (0, 0))
        self.succeed("run", "--nats", server.url, "--model", "fashion", folder, BOOT, "--output",
                     self.folder / "all.jsonl")
        lines = [json.loads(line) for line in (self.folder / "all.jsonl").read_text().splitlines()]
        self.assertEqual(len(lines), 61)
        wanted, = self.expected(FASHION_MODEL, [pixels(5)])
        data = {line["file"]: line["outputs"][0]["data"] for line in lines}[str(folder / "5.raw")]
        self.assertEqual(base64.urlsafe_b64decode(data), wanted)

    def test_model_with_any_name(self):
        server = self.server()
        self.worker(server, "--model", f"a.b c%*>é={FASHION_MODEL}")
        self.succeed("run", "--nats", server.url, "--model", "a.b c%*>é", BOOT, "--output",
                     self.folder / "out")
        self.succeed("infer", "--nats", server.url, "--model", "a.b c%*>é", BOOT, *AMPLE)

    def test_what_waits_for_a_worker(self):
        """Jobs wait; a producer that ends meanwhile goes on; each has one result."""
        server = self.server()
        folder = self.files(100)
        words = ["run", "--nats", server.url, "--model", "fashion", folder, "--output",
                 self.folder / "out", "--again-after", "3"]
        self.ends(words, 2, "100 jobs have no result after 2 s; they stay in the spool")
        self.worker(server, "--model", f"fashion={FASHION_MODEL}")
        report = json.loads(self.succeed(*words, "--json").stdout)
        self.assertEqual((report["resumed"], report["submitted"], report["done"]), (100, 0, 100))
        self.check(folder, self.folder / "out", 100)
        client = self.client(server)
        self.assertEqual(client.api("STREAM.INFO.ATOLL_RESULT")["state"]["messages"], 100)

    def test_urgent_ones_come_first(self):
        server = self.server()
        client = self.client(server)
        self.worker(server, "--model", f"fashion={FASHION_MODEL}", "--places", "1", id="maker").stop()
        eventually(lambda: "error" not in client.api("STREAM.INFO.ATOLL_WORK"), "streams are there")
        for priority in (2, 0):
            for _ in range(60):
                client.put(f"atoll.work.fashion.{priority}", pixels(1),
                           {**RAW, "Nats-Msg-Id": job_id()})
        other = self.client(server)
        other.subscribe("atoll.result.*")
        other.flush()
        urgent = {}
        stream = [client.api("STREAM.MSG.GET.ATOLL_WORK", {"seq": i + 1})["message"]
                  for i in range(120)]
        for message in stream:
            head = base64.b64decode(message["hdrs"]).decode()
            job = next(line.split(": ")[1] for line in head.split("\r\n") if line.startswith("Nats-Msg-Id"))
            urgent[job] = message["subject"].endswith(".0")
        self.worker(server, "--model", f"fashion={FASHION_MODEL}", "--places", "1")
        order = [urgent[other.next().subject.rsplit(".", 1)[1]] for _ in range(120)]
        # But for some that were taken while the server said nothing of the urgent ones.
        self.assertLess(max(i for i, is_urgent in enumerate(order) if is_urgent), 100, order)

    def test_killed_hung_and_returned(self):
        """A job whose worker dies, or stops, is another one's; it has one result."""
        server = self.server()
        folder = self.files(300)
        options = ["--model", f"fashion={FASHION_MODEL}", "--ack-wait", "1000", "--max-deliver", "100"]
        workers = [self.worker(server, *options) for _ in range(3)]
        producer = subprocess.Popen(
            [*FLEET, "run", "--nats", server.url, "--model", "fashion",
             folder, "--output", self.folder / "out", "--again-after", "5", "--json"],
            stdout=subprocess.PIPE, text=True)
        client = self.client(server)
        eventually(lambda: client.api("STREAM.INFO.ATOLL_RESULT").get("state", {}).get("messages", 0) > 20,
                   "some are done")
        workers[0].process.send_signal(signal.SIGSTOP)
        workers[1].kill()
        report = json.loads(producer.communicate(timeout=300)[0])
        self.assertEqual((report["done"], report["failed"]), (300, 0))
        self.check(folder, self.folder / "out", 300)
        workers[0].process.send_signal(signal.SIGCONT)
        # It finds that what it had is done.
        eventually(lambda: client.api("STREAM.INFO.ATOLL_WORK")["state"]["messages"] == 0,
                   "the queue is empty")
        self.assertEqual(client.api("STREAM.INFO.ATOLL_RESULT")["state"]["messages"], 300)

    def test_lost_device(self):
        """Its jobs go back, the worker takes no more and says so; it does when the device is back."""
        server = self.server()
        folder = self.files(40)
        socket = self.folder / "broker.sock"

        def broker():
            process = subprocess.Popen([os.environ["ATOLL_COMMAND"], "broker", "--device", "emu",
                                        "--socket", socket], stdout=subprocess.PIPE)
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            process.stdout.readline()
            return process
        first = broker()
        worker = self.worker(server, "--model", f"fashion={FASHION_MODEL}", "--device",
                             f"broker:{socket}", "--on-device-loss", "fail", id="w1")
        first.kill()
        first.wait()
        start = time.monotonic()
        producer = subprocess.Popen(
            [*FLEET, "run", "--nats", server.url, "--model", "fashion", folder, "--output",
             self.folder / "out", "--again-after", "5", "--json"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(producer.stdout.close)
        self.addCleanup(producer.kill)
        record = eventually(lambda: next((r for r in [self.heard(server, "w1")] if r["device_lost"]),
                                         None), "the worker says that its device is lost")
        self.assertEqual(record["jobs"]["done"], 0)
        self.assertGreater(record["jobs"]["returned"], 0)
        # Of forty it has taken those alone for which it had places, and one each five seconds since.
        self.assertLess(record["jobs"]["returned"], 8 + (time.monotonic() - start) / 5)
        broker()
        report = json.loads(producer.communicate(timeout=300)[0])
        self.assertEqual((report["done"], report["failed"]), (40, 0))
        self.check(folder, self.folder / "out", 40)
        eventually(lambda: not self.heard(server, "w1")["device_lost"], "it says that its device is there")
        self.assertEqual(worker.stop(), 0)

    def test_nobody_can_do_it(self):
        """A job that was given out too often has an error as its result."""
        server = self.server()
        client = self.client(server)
        worker = self.worker(server, "--model", f"fashion={FASHION_MODEL}", "--ack-wait", "300",
                             "--max-deliver", "2")
        eventually(lambda: "error" not in client.api("CONSUMER.INFO.ATOLL_WORK.fashion_1"),
                   "its consumer is there")
        worker.stop()
        job = job_id()
        client.put("atoll.work.fashion.1", pixels(1), {**RAW, "Nats-Msg-Id": job})

        def take():
            """What comes, if it is a job."""
            client.publish("$JS.API.CONSUMER.MSG.NEXT.ATOLL_WORK.fashion_1",
                           b'{"batch": 1, "expires": 1000000000}', None, client.inbox + ".job")
            message = client.next()
            return message if "Nats-Msg-Id" in message.headers else None
        for _ in range(2):
            # Again, when nobody has said a word of it for 0.3 s.
            self.assertEqual(eventually(take, "the job is given out").headers["Nats-Msg-Id"], job)

        def is_dead():
            # The server says so when somebody asks for more.
            self.assertIsNone(take())
            return client.api("STREAM.INFO.ATOLL_DEAD")["state"]["messages"] >= 1
        eventually(is_dead, "the server gives it up")
        done = self.succeed("sweep", "--nats", server.url, "--once", "--max-deliver", "2")
        self.assertIn("1 jobs given up", done.stdout)
        result = client.result(job)
        self.assertEqual(result.code, 500)
        self.assertIn("none of which ended it", result.headers["Nats-Service-Error"])
        self.assertEqual(client.api("STREAM.INFO.ATOLL_WORK")["state"]["messages"], 0)

    def test_leftovers_are_taken_out(self):
        server = self.server()
        client = self.client(server)
        worker = self.worker(server, "--model", f"fashion={FASHION_MODEL}")
        eventually(lambda: "error" not in client.api("STREAM.INFO.ATOLL_RESULT"), "streams are there")
        worker.stop()
        # The one that stays is the older one, and so old enough as soon as the other one is.
        for has_result in (False, True):
            job = job_id()
            client.put("atoll.work.fashion.1", pixels(1), {**RAW, "Nats-Msg-Id": job})
            if has_result:
                client.put(f"atoll.result.{job}", b"done")
        eventually(lambda: ", 1 taken out" in self.succeed("sweep", "--nats", server.url, "--once",
                                                           "--ack-wait", "100").stdout,
                   "what has a result is taken out")
        self.assertEqual(client.api("STREAM.INFO.ATOLL_WORK")["state"]["messages"], 1)

    def test_full(self):
        """A full queue makes the producer wait, and a full disk does; nothing gets lost."""
        server = self.server()
        folder = self.files(200)
        for i in range(200):
            (folder / f"{i}.raw").write_bytes(pixels(i))
        # A queue of 1 MiB and jobs of 100 KB: most of them do not fit.
        large = self.folder / "large"
        large.mkdir()
        for i in range(30):
            (large / f"{i}.json").write_text(json.dumps({
                "id": "x" * 100_000, "outputs": [{"name": "probabilities", "parameters": {"binary_data": True}}],
                "inputs": [{"name": "image", "datatype": "INT8", "shape": [1, 28, 28, 1],
                            "data": [i] * 784}]}))
        words = ["run", "--nats", server.url, "--model", "fashion", large, "--output",
                 self.folder / "out", "--work-bytes", str(1 << 20), "--again-after", "3"]
        self.ends(words, 3, "maximum bytes exceeded; trying again", "30 jobs have no result")
        self.worker(server, "--model", f"fashion={FASHION_MODEL}")
        fleet(*words)  # the files are no raw inputs: their results are errors, and each has one
        lines = [json.loads(line) for line in (self.folder / "out/results.jsonl").read_text().splitlines()]
        self.assertEqual(len({line["job"] for line in lines}), 30)
        self.assertTrue(all(line["code"] == 400 for line in lines), lines[:1])

    def test_disk_is_full(self):
        """The servers have no room for streams, and then they have."""
        server = self.server(max_file="1MB")
        self.ends(["run", "--nats", server.url, "--model", "fashion", BOOT, "--output",
                   self.folder / "out"], 5, "insufficient storage resources")
        # The producer's own disk.
        done = fleet("run", "--nats", server.url, "--model", "fashion", BOOT, "--output",
                     self.folder / "out", "--spool", "/dev/null/x")
        self.assertEqual(done.returncode, 1)
        self.assertIn("spool '/dev/null/x/jobs.spool' cannot be opened", done.stderr)

    def test_spool_has_no_room(self):
        """A spool that cannot be written ends the producer with a sentence; what it has is whole."""
        server = self.server()
        folder = self.files(60)
        words = [*FLEET, "run", "--nats", server.url, "--model", "fashion", str(folder), "--output",
                 str(self.folder / "out"), "--again-after", "3"]

        def no_room():
            # As a full disk: the write says how much of it went in, and then that nothing does.
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        done = subprocess.run([*words, "--timeout", "60"], capture_output=True, text=True, timeout=600, check=False,
                              preexec_fn=no_room)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("spool", done.stderr)
        self.assertIn("File too large", done.stderr)
        self.worker(server, "--model", f"fashion={FASHION_MODEL}")
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.check(folder, self.folder / "out", 60)

    def test_spool(self):
        """What was being written when the power went is cut off; one producer has it."""
        server = self.server()
        folder = self.files(20)
        words = ["run", "--nats", server.url, "--model", "fashion", folder, "--output",
                 self.folder / "out", "--spool", self.folder / "spool", "--again-after", "3"]
        self.ends(words, 1, "20 jobs have no result")
        spool = self.folder / "spool/jobs.spool"
        whole = spool.read_bytes()
        waiting = subprocess.Popen([*FLEET, *map(str, words)],
                                   stdout=subprocess.DEVNULL)
        # It connects when it has its spool.
        eventually(lambda: "atoll fleet run" in server.connections(), "it is there")
        done = fleet(*words, "--timeout", "1")
        self.assertEqual(done.returncode, 3)
        self.assertIn("another process's", done.stderr)
        waiting.send_signal(signal.SIGINT)
        self.assertEqual(waiting.wait(LONG), 1)
        self.assertEqual(spool.read_bytes(), whole)
        for cut in (len(whole) - 1, len(whole) - 500, len(whole) - 900):
            def goes_on():
                spool.write_bytes(whole[:cut])
                done = fleet(*words, "--timeout", "1", "--json")
                report = json.loads(done.stdout)
                return report if report["resumed"] > 0 else None  # it had time enough
            report = eventually(goes_on, "it goes on")
            # Those that were cut off are made again.
            self.assertEqual(report["resumed"] + report["submitted"], 20)
            self.assertLess(report["resumed"], 20)
        self.worker(server, "--model", f"fashion={FASHION_MODEL}")
        self.succeed(*words)
        self.check(folder, self.folder / "out", 20)
        self.assertEqual(spool.read_bytes(), b"")


class SlowConsumers(FleetTest):
    """Whoever does not read is cut off by the server; it costs others nothing, and comes back."""
    CONFIG = "max_payload: 65536\nmax_pending: 262144"

    def flood(self, server, subject):
        """Sends until the server has cut off one more."""
        def cut():
            return server.log.read_text().count("Slow Consumer Detected")
        before = cut()
        client = self.client(server)

        def is_cut():
            for _ in range(100):
                client.publish(subject, bytes(60_000))
            client.flush()
            return cut() > before
        eventually(is_cut, f"who listens to {subject} is cut off")

    def producer(self, server, folder):
        producer = subprocess.Popen(
            [*FLEET, "run", "--nats", server.url, "--model", "fashion", folder, "--output",
             self.folder / "out", "--again-after", "5", "--json"], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(producer.stdout.close)
        self.addCleanup(producer.wait)
        self.addCleanup(producer.kill)
        return producer

    def ends_well(self, server, producer, folder, count):
        report = json.loads(producer.communicate(timeout=600)[0])
        self.assertEqual((report["done"], report["failed"]), (count, 0), report)
        self.check(folder, self.folder / "out", count)
        self.assertEqual(self.client(server).api("STREAM.INFO.ATOLL_RESULT")["state"]["messages"], count)

    def test_worker(self):
        server = self.server(self.CONFIG)
        slow, other = [self.worker(server, "--model", f"fashion={FASHION_MODEL}", "--ack-wait", "1000",
                                   "--max-deliver", "100", id=name) for name in ("slow", "other")]
        folder = self.files(60)
        slow.process.send_signal(signal.SIGSTOP)
        # Frames of nobody, which it would have left alone.
        self.flood(server, "atoll.infer.fashion.slow")
        self.ends_well(server, self.producer(server, folder), folder, 60)
        slow.process.send_signal(signal.SIGCONT)
        data = pixels(1)
        wanted, = self.expected(FASHION_MODEL, [data])
        client = self.client(server)

        def answers():
            answer = client.request("atoll.infer.fashion.slow", data, RAW)
            return None if answer.status else answer
        self.assertEqual(eventually(answers, "it answers again").outputs(), {"probabilities": wanted})
        eventually(lambda: re.search("connected to .* again", slow.stderr()), "it says so")
        self.assertEqual((slow.stop(), other.stop()), (0, 0))

    def test_listener(self):
        server = self.server(self.CONFIG)
        self.worker(server, "--model", f"fashion={FASHION_MODEL}")
        listener = self.client(server)
        listener.subscribe(">")
        listener.flush()
        folder = self.files(300)
        producer = self.producer(server, folder)
        self.flood(server, "noise")
        self.ends_well(server, producer, folder, 300)
        with self.assertRaises(OSError):
            while listener.next():
                pass

    def test_producer(self):
        server = self.server(self.CONFIG)
        folder = self.files(300)
        producer = self.producer(server, folder)
        client = self.client(server)

        def waiting():
            return client.api("STREAM.INFO.ATOLL_WORK").get("state", {}).get("messages")
        eventually(lambda: waiting() == 300, "all jobs wait")
        producer.send_signal(signal.SIGSTOP)
        # It listens for jobs that are done.
        self.flood(server, "atoll.done.x")
        self.worker(server, "--model", f"fashion={FASHION_MODEL}")
        eventually(lambda: waiting() == 0, "all jobs are done")
        producer.send_signal(signal.SIGCONT)
        self.ends_well(server, producer, folder, 300)


class Fleet(FleetTest):
    """Models by content, placement, what is said of workers."""

    def status(self, server):
        return json.loads(self.succeed("status", "--nats", server.url, "--json").stdout)["workers"]

    def models(self, server, worker):
        """What the worker says that it has, as name -> version."""
        found = eventually(lambda: [one for one in self.status(server) if one["worker"] == worker],
                           f"{worker} says something")
        return {m["name"]: m["version"] for m in found[0]["models"]}

    def test_models_are_fetched_and_replaced(self):
        server = self.server()
        words = ["--nats", server.url]
        # Of two models it keeps one.
        a = self.worker(server, "--cache", self.folder / "cache", "--max-cache-bytes",
                        FASHION_MODEL.stat().st_size + CROPS.stat().st_size - 1, id="a")
        b = self.worker(server, "--model", f"own={SIMPLE}", id="b")
        self.succeed("models", "put", *words, "fashion", FASHION_MODEL)
        done = self.succeed("models", "put", *words, "fashion", FASHION_MODEL)
        self.assertIn("there already", done.stdout)
        done = fleet("place", *words, "other")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no model 'other' in the fleet", done.stderr)
        self.succeed("place", *words, "fashion")
        for worker in ("a", "b"):
            eventually(lambda: "fashion" in self.models(server, worker), f"{worker} has it")
        self.assertIn("own", self.models(server, "b"))
        client = self.client(server)
        data = pixels(1)
        wanted, = self.expected(FASHION_MODEL, [data])
        for worker in ("a", "b"):
            self.assertEqual(client.request(f"atoll.infer.fashion.{worker}", data, RAW).outputs(),
                             {"probabilities": wanted})
        digest = hashlib.sha256(FASHION_MODEL.read_bytes()).hexdigest()
        self.assertEqual([p.name for p in (self.folder / "cache").iterdir()], [f"{digest}.tflite"])
        shown = [m["sha256"] for m in self.heard(server, "a")["models"] if m["name"] == "fashion"]
        self.assertEqual(shown, [digest])
        # A version of its own for one of them; jobs for the other go on.
        self.succeed("models", "put", *words, "crops", CROPS, "--as", "3")
        self.succeed("place", *words, "--worker", "a", "crops/3")
        eventually(lambda: self.models(server, "a") == {"crops": "3"}, "a has another model")
        other = hashlib.sha256(CROPS.read_bytes()).hexdigest()
        self.assertEqual([p.name for p in (self.folder / "cache").iterdir()], [f"{other}.tflite"])
        self.assertEqual(self.models(server, "b"), {"fashion": "1", "own": "1"})
        self.assertTrue(client.request("atoll.infer.fashion.a", data, RAW).status.startswith("503"))
        # Its version is replaced while requests come: none fails.
        stop, failures, count = threading.Event(), [], [0]

        def ask():
            other = Client(server.port)
            while not stop.is_set():
                answer = other.request("atoll.infer.fashion.b", data, RAW)
                count[0] += 1
                if answer.status or answer.outputs() != {"probabilities": wanted}:
                    failures.append(answer.headers)
            other.close()
        thread = threading.Thread(target=ask)
        thread.start()
        try:
            eventually(lambda: count[0] > 10, "answers before")
            self.succeed("models", "put", *words, "fashion", FASHION_MODEL, "--as", "2")
            eventually(lambda: self.models(server, "b")["fashion"] == "2", "the newest version is there")
            enough = count[0] + 10
            eventually(lambda: count[0] > enough, "answers after")
        finally:
            stop.set()
            thread.join()
        self.assertEqual(failures, [])
        self.succeed("place", *words, "--worker", "a", "--clear")
        eventually(lambda: self.models(server, "a") == {"fashion": "2"}, "a has what all have")
        listed = json.loads(self.succeed("models", "list", *words, "--json").stdout)["models"]
        self.assertEqual([(m["name"], m["version"]) for m in listed],
                         [("crops", 3), ("fashion", 1), ("fashion", 2)])
        self.assertEqual((a.stop(), b.stop()), (0, 0))
        self.assertEqual(self.status(server), [])

    def test_compiled_forms(self):
        """A worker has what is compiled for its device, if it was made from the model and is what was
        stored; any other one the model. The bytes are the same."""
        server = self.server()
        words = ["--nats", server.url]
        emu = self.worker(server, "--device", "emu", id="emu")
        cpu = self.worker(server, "--device", "cpu", id="cpu")
        done = self.succeed("models", "put", *words, "fashion", FASHION_MODEL, "--compile-for", "emu")
        found = re.match(r"fashion/1/(atoll-1-64x64-\d+-\d+-isa\d+)\.tflite: \d+ bytes\n"
                         r"fashion/1/model\.tflite: \d+ bytes\n$", done.stdout)
        self.assertTrue(found, done.stdout)
        form = found[1]
        done = self.succeed("models", "put", *words, "fashion", FASHION_MODEL, "--compile-for", "emu")
        self.assertEqual(done.stdout.count("there already"), 2)
        self.succeed("place", *words, "fashion")
        client = self.client(server)
        data = pixels(1)
        wanted = {"probabilities": self.expected(FASHION_MODEL, [data])[0]}
        digest = hashlib.sha256(FASHION_MODEL.read_bytes()).hexdigest()

        def check(version):
            # It is the same model, however it is loaded.
            has = [(version, digest)] * 2
            eventually(lambda: [(m["version"], m["sha256"]) for one in self.status(server)
                                for m in one["models"]] == has, "both have it")
            for worker in ("emu", "cpu"):
                self.assertEqual(client.request(f"atoll.infer.fashion.{worker}", data, RAW).outputs(), wanted)
        check("1")
        self.assertIn(f"version 1, is loaded, compiled for {form}\n", emu.stderr())
        self.assertIn("version 1, is loaded\n", cpu.stderr())
        listed, = json.loads(self.succeed("models", "list", *words, "--json").stdout)["models"]
        self.assertEqual(listed["forms"], [form])
        self.assertIn(f"compiled for {form}", self.succeed("models", "list", *words).stdout)
        # What somebody else has stored under that name.
        def text(raw):
            return "SHA-256=" + base64.urlsafe_b64encode(raw).decode()
        right = text(hashlib.sha256(FASHION_MODEL.read_bytes()).digest())
        path = self.folder / "compiled.tflite"
        self.assertEqual(run("compile", FASHION_MODEL, "-o", path, "--device", "emu").code, 0)
        good = path.read_bytes()
        for version, (made_from, body, says) in enumerate((
                (text(hashlib.sha256(b"other").digest()), good, "made from another file"),
                (None, good, "made from another file"),
                (5, good, "'Atoll-Made-From' is no digest"),
                (right, good[:len(good) // 2], "is not used: "),
                (right, good.replace(b"ATLP", b"ATLQ"), "is not used: "),
                (right, FASHION_MODEL.read_bytes()[:100], "is not used: ")), 2):
            name, nuid = f"fashion/{version}/{form}.tflite", f"N{version}"
            for at in range(0, len(body), 1 << 17):
                client.put(f"$O.atoll_models.C.{nuid}", body[at:at + (1 << 17)])
            client.put(f"$O.atoll_models.M.{base64.urlsafe_b64encode(name.encode()).decode()}", json.dumps(
                {"name": name, "nuid": nuid, "size": len(body), "chunks": 1,
                 "digest": text(hashlib.sha256(body).digest()),
                 **({"headers": {"Atoll-Made-From": [made_from]}} if made_from else {})}).encode(),
                {"Nats-Rollup": "sub"})
            self.succeed("models", "put", *words, "fashion", FASHION_MODEL, "--as", version)
            check(str(version))
            line, = [one for one in emu.stderr().splitlines() if f"version {version}, is loaded" in one]
            self.assertIn(says, line)
        # What cannot be compiled is not stored.
        for device, code, says in (("cpu", 1, "nothing is compiled for device 'cpu'"), ("x", 2, "--compile-for x")):
            done = fleet("models", "put", *words, "other", FASHION_MODEL, "--compile-for", device)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(says, done.stderr)
        self.assertNotIn("other", self.succeed("models", "list", *words).stdout)
        self.assertEqual((emu.stop(), cpu.stop()), (0, 0))

    def test_service(self):
        server = self.server(js=False)
        worker = self.worker(server, "--model", f"fashion={FASHION_MODEL}", id="w1")
        client = self.client(server)
        for _ in range(3):
            client.request("atoll.infer.fashion", pixels(1), RAW)
        client.request("atoll.infer.fashion", b"", RAW)
        for subject in ("$SRV.PING", "$SRV.PING.atoll", "$SRV.PING.atoll.w1"):
            answer = client.request(subject).json()
            self.assertEqual((answer["type"], answer["name"], answer["id"]),
                             ("io.nats.micro.v1.ping_response", "atoll", "w1"))
            self.assertRegex(answer["version"], r"^\d+\.\d+\.\d+$")
        info = client.request("$SRV.INFO.atoll").json()
        self.assertEqual(info["endpoints"][0]["subject"], "atoll.infer.fashion")
        stats = client.request("$SRV.STATS").json()["endpoints"][0]
        self.assertEqual((stats["num_requests"], stats["num_errors"]), (4, 1))
        self.assertGreater(stats["processing_time"], 0)
        self.assertIn("400", stats["last_error"])
        self.assertEqual(worker.stop(), 0)

    def test_top(self):
        server = self.server()
        self.worker(server, "--model", f"fashion={FASHION_MODEL}", "--no-jobs", id="w1")
        client = self.client(server)
        for i in range(20):
            client.request("atoll.infer.fashion", pixels(i), RAW)
        # Jobs that nobody does.
        for _ in range(3):
            client.put("atoll.work.fashion.1", pixels(1), {**RAW, "Nats-Msg-Id": job_id()})
        words = ["top", "--nats", server.url, "--once"]

        def seen():
            for i in range(5):
                client.request("atoll.infer.fashion", pixels(i), RAW)
            report = json.loads(self.succeed(*words, "--json").stdout)
            self.assertEqual((report["command"], report["waiting"]), ("fleet top", {"fashion": 3}))
            found = [one for one in report["workers"] if one["per_second"] and one["latency_frames"]]
            # Those above may have been said before its first look.
            return found[0] if found and found[0]["per_second"]["answered"] > 0 else None
        worker = eventually(seen, "its frames are seen")
        self.assertEqual((worker["worker"], worker["places"], worker["models"]), ("w1", 2, ["fashion/1"]))
        self.assertGreater(worker["latency_p50_us"], 0)
        self.assertGreaterEqual(worker["latency_p99_us"], worker["latency_p50_us"])
        self.assertEqual(worker["per_second"]["jobs"], 0)
        table = self.succeed(*words, "--interval", "0.1").stdout
        self.assertRegex(table, r"(?m)^w1 +emu +2/2 ")
        self.assertIn("1 workers, 2 of 2 places free, ", table)
        self.assertIn("3 jobs of model 'fashion' wait", table)
        self.assertNotIn("\x1b", table)
        # Until somebody ends it.
        watching = subprocess.Popen([*FLEET, "top", "--nats", server.url, "--interval", "0.1", "--json"],
                                    stdout=subprocess.PIPE, text=True)
        self.addCleanup(watching.stdout.close)
        self.addCleanup(watching.wait)
        self.addCleanup(watching.kill)
        for _ in range(3):
            self.assertEqual(json.loads(watching.stdout.readline())["workers"][0]["worker"], "w1")

    def test_a_silent_worker_is_no_longer_listed(self):
        server = self.server()
        worker = self.worker(server, "--model", f"fashion={FASHION_MODEL}", id="w1")
        eventually(lambda: self.status(server), "it is listed")
        worker.kill()
        eventually(lambda: not self.status(server), "it is no longer", seconds=60)

    def test_servers_that_come_and_go(self):
        server = self.server()
        worker = self.worker(server, "--model", f"fashion={FASHION_MODEL}")
        client = self.client(server)
        self.assertEqual(client.request("atoll.infer.fashion", pixels(1), RAW).code, 0)
        server.kill()
        server.start()
        client = self.client(server)
        eventually(lambda: not client.request("atoll.infer.fashion", pixels(1), RAW).status,
                   "the worker is back")
        self.succeed("run", "--nats", server.url, "--model", "fashion", BOOT, "--output",
                     self.folder / "out")
        self.assertEqual(worker.stop(), 0)

    def test_mistakes(self):
        for words, code, mention in (
                (["worker", "--nats", "nats://10.0.0.1:4222"], 2, "has to be encrypted"),
                (["worker", "--nats", "tls://10.0.0.1:4222"], 2, "wants to know who this is"),
                (["worker", "--nats", "nats://a:secret@127.0.0.1:4222"], 2, "name or password"),
                (["status", "--nats", "http://127.0.0.1:1"], 2, "is no server"),
                (["status", "--nats", "nats://127.0.0.1:1", "--connect-timeout", "100"], 1, "no connection"),
                (["worker", "--model", "x"], 2, "NAME=FILE"),
                (["worker", "--id", "a.b"], 2, "id"),
                (["run", "--model", "m", "--output", "o"], 2, "FILES"),
                (["infer", "--model", "m", "/none"], 1, "there is no file"),
                (["drain", "a b"], 2, "no id"),
                (["nothing"], 2, "--help"), ([], 2, "--help"),
                (["worker", "--nkey", "U"], 2, "go together"),
                (["worker", "--nats", "nats://127.0.0.1:1", "--credentials", "/none",
                  "--connect-timeout", "100"], 1, "connection")):
            if words[:1] == ["worker"] and "--nats" not in words and "--nkey" not in words:
                server = self.server(js=False, name=f"s{len(words)}{words[-1][:1]}")
                words = [*words, "--nats", server.url]
            done = fleet(*words)
            self.assertEqual(done.returncode, code, (words, done.stderr))
            self.assertIn(mention, done.stderr, words)
            self.assertNotIn("secret", done.stderr)


class Sites(FleetTest):
    """The configurations of docs/fleet.md: rights of users, and a site whose link is cut."""

    def page(self, name):
        text = (SOURCE / "docs/fleet.md").read_text()
        block, = [b for b in re.findall(r"(?ms)^```\n(.*?)^```", text) if b.startswith(f"# {name}\n")]
        return block

    def certificates_of_all(self):
        self.certificates({"server": "IP:127.0.0.1,DNS:localhost", "admin": "", "worker": "", "producer": "",
                           "camera": ""})

    def write(self, name, text, listens, **replaced):
        """The server of a configuration, and the ports that it has instead of `listens`."""
        text = text.replace("/etc/nats", str(self.folder))
        for before, after in replaced.items():
            self.assertIn(before, text)
            text = text.replace(before, after)
        while True:
            ports = free_ports(len(listens))
            mine = text.replace("/var/lib/nats", f"{self.folder}/{name}-{ports[0]}-store")
            for before, port in zip(listens, ports):
                self.assertIn(before, mine)
                mine = mine.replace(before, f"127.0.0.1:{port}")
            path, log = self.folder / f"{name}-{ports[0]}.conf", self.folder / f"{name}-{ports[0]}.log"
            path.write_text(mine)
            process = start_nats(path, log)

            def end(process=process):
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
            self.addCleanup(end)

            def is_ready(process=process, log=log):
                check_nats(process, log.read_text())
                return "Server is ready" in log.read_text()
            try:
                eventually(is_ready, f"{name} is ready")
                return process, log, ports
            except PortTaken:
                continue

    def user(self, port, name):
        at = self.folder
        prefix = [] if name == "admin" else ["--inbox-prefix", f"_INBOX_{name}"]
        return ["--nats", f"tls://127.0.0.1:{port}", "--tls-ca", at / "ca.pem", "--tls-cert",
                at / f"{name}.pem", "--tls-key", at / f"{name}.key", *prefix]

    def test_users_and_their_rights(self):
        self.certificates_of_all()
        text = re.sub(r"(?m)^cluster .*$", "", self.page("hub.conf"))
        # Nobody hangs here.
        _, _, (port, *_) = self.write("hub", text, ["0.0.0.0:4222", "127.0.0.1:8222", "0.0.0.0:7422"],
                                      **{'ping_interval: "2s"': 'ping_interval: "600s"'})
        self.succeed("models", "put", *self.user(port, "admin"), "fashion", FASHION_MODEL)
        self.succeed("place", *self.user(port, "admin"), "fashion")
        worker = self.worker([], *self.user(port, "worker"), id="w1")

        def models():
            done = self.succeed("status", *self.user(port, "admin"), "--json")
            workers = json.loads(done.stdout)["workers"]
            return workers and workers[0]["models"]
        eventually(models, "the worker has fetched the model")
        self.succeed("infer", *self.user(port, "camera"), "--model", "fashion", BOOT, "--repeat", "20",
                     *AMPLE)
        self.succeed("run", *self.user(port, "producer"), "--model", "fashion", BOOT, "--output",
                     self.folder / "out")
        self.assertNotIn("ermission", worker.stderr())
        # What they may not do.

        def is_refused():
            done = fleet("run", *self.user(port, "camera"), "--model", "fashion", BOOT, "--output",
                         self.folder / "other", "--timeout", "2")
            self.assertEqual(done.returncode, 1)
            return "ermission" in done.stderr
        eventually(is_refused, "it says so")
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        context.load_cert_chain(self.folder / "camera.pem", self.folder / "camera.key")
        camera = Client(port, context=context, inbox="_INBOX_camera.x")
        for subject in ("atoll.result.AAAAAAAAAAAAAAAAAAAAAA", "atoll.work.fashion.1",
                        "$KV.atoll_placement.default", "atoll.worker.w1.drain"):
            camera.publish(subject, b"x")
            with self.assertRaisesRegex(PermissionError, "Permissions Violation"):
                camera.flush()
        camera.subscribe("atoll.result.*")
        with self.assertRaisesRegex(PermissionError, "Permissions Violation"):
            camera.flush()
        camera.close()
        # Nobody without a certificate, and no other server.
        done = fleet("status", "--nats", f"tls://127.0.0.1:{port}", "--tls-ca", self.folder / "ca.pem",
                     "--connect-timeout", "100")
        self.assertNotEqual(done.returncode, 0)
        done = fleet("status", *self.user(port, "admin")[:2], "--tls-cert", self.folder / "admin.pem",
                     "--tls-key", self.folder / "admin.key", "--connect-timeout", "100")
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(worker.stop(), 0)

    def hub_and_site(self):
        """The hub's process, the site's log and the addresses of both, with a link between them."""
        hub_text = re.sub(r"(?ms)^(cluster|tls) .*?$|^authorization.*", "", self.page("hub.conf"))
        # Ten seconds, so that nobody is cut off who is slow.
        patient = {"ping_max: 2": "ping_max: 4"}
        hub, _, (hub_port, _, leaf) = self.write(
            "hub", hub_text, ["0.0.0.0:4222", "127.0.0.1:8222", "0.0.0.0:7422"], **patient)
        site_text = re.sub(r"(?m)^  tls .*$", "", self.page("site.conf"))
        _, site_log, (site_port,) = self.write(
            "site", site_text, ["127.0.0.1:4222"],
            **{"tls://10.0.0.1:7422": f"nats://127.0.0.1:{leaf}"}, **patient)
        at_hub, at_site = f"nats://127.0.0.1:{hub_port}", f"nats://127.0.0.1:{site_port}"
        self.succeed("models", "put", "--nats", at_hub, "fashion", FASHION_MODEL)
        self.link_is_there(at_site)
        return hub, site_log, at_hub, at_site

    def link_is_there(self, at_site):
        eventually(lambda: fleet("status", "--nats", at_site, "--domain", "hub").returncode == 0,
                   "the link is there")

    def test_a_site_mirrors_models(self):
        """What is stored at the hub is at the site, also for a worker that asks for it when the link is
        cut; and what is stored meanwhile, when it is back."""
        hub, _, at_hub, at_site = self.hub_and_site()
        worker = self.worker(at_site, "--device", "emu", id="site")

        def files():
            return {(m["name"], m["version"], m["digest"], *m["forms"]) for m in
                    json.loads(self.succeed("models", "list", "--nats", at_site, "--json").stdout)["models"]}

        def key(path):
            return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()
        def mend():
            def is_whole():
                done = self.succeed("models", "mirror", "--nats", at_site, "--from", "hub")
                return "yet to come" not in done.stderr
            eventually(is_whole, "everything is there")

        def arrives(model, name):
            """By itself, or else, for what the server has left out, once it is asked for again."""
            try:
                eventually(lambda: model in files(), name, 20)
            except AssertionError:
                mend()
                eventually(lambda: model in files(), name)
        # In the place of the bucket that the worker has made.
        eventually(lambda: fleet("models", "list", "--nats", at_site).returncode == 0, "there is one")
        for _ in range(2):
            mend()
        eventually(lambda: files() == {("fashion", 1, key(FASHION_MODEL))}, "it is there")
        done = self.succeed("models", "put", "--nats", at_hub, "crops", CROPS, "--as", "3", "--compile-for", "emu")
        form = re.match(r"crops/3/(.*)\.tflite", done.stdout)[1]
        arrives(("crops", 3, key(CROPS), form), "the next one is there")
        # Another file under the same version.
        self.succeed("models", "put", "--nats", at_hub, "fashion", SIMPLE)
        arrives(("fashion", 1, key(SIMPLE)), "it was replaced")
        self.succeed("models", "put", "--nats", at_hub, "fashion", FASHION_MODEL)
        arrives(("fashion", 1, key(FASHION_MODEL)), "it was replaced again")
        for words in (("put", "x", FASHION_MODEL), ("copy", "--from", "hub")):
            done = fleet("models", words[0], "--nats", at_site, *words[1:])
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("a mirror of those of $JS.hub.API", done.stderr)
        # A chunk is lost, as the server of NATS 2.9.10 leaves one out now and then.
        site = Client(int(at_site.rsplit(":", 1)[1]))
        subjects = site.api("STREAM.INFO.OBJ_atoll_models",
                            {"subjects_filter": "$O.atoll_models.C.>"})["state"]["subjects"]
        lost = [site.api("STREAM.MSG.GET.OBJ_atoll_models", {"last_by_subj": subject})["message"]["seq"]
                for subject in subjects]
        for sequence in lost:
            self.assertTrue(site.api("STREAM.MSG.DELETE.OBJ_atoll_models", {"seq": sequence})["success"])
        site.close()
        mend()
        # The site alone: models that it has never loaded.
        hub.send_signal(signal.SIGSTOP)
        self.succeed("place", "--nats", at_site, "fashion", "crops")
        eventually(lambda: worker.stderr().count("is loaded") == 2, "both are loaded")
        self.assertIn(f"model 'crops', version 3, is loaded, compiled for {form}", worker.stderr())
        client = Client(int(at_site.rsplit(":", 1)[1]))
        wanted, = self.expected(FASHION_MODEL, [pixels(1)])
        self.assertEqual(client.request("atoll.infer.fashion", pixels(1), RAW).outputs(),
                         {"probabilities": wanted})
        client.close()
        hub.send_signal(signal.SIGCONT)
        self.link_is_there(at_site)
        self.succeed("models", "put", "--nats", at_hub, "fashion", FASHION_MODEL, "--as", "9")
        arrives(("fashion", 9, key(FASHION_MODEL)), "what was stored later is there")
        self.assertEqual(worker.stop(), 0)
        # The other way round there are models already.
        for words, code, says in ((("--from", "site1"), 2, "there are models here already"),
                                  (("--from", "a.b"), 2, "no domain")):
            done = fleet("models", "mirror", "--nats", at_hub, *words)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(says, done.stderr)

    def test_a_site_is_cut_off_and_back(self):
        hub, site_log, at_hub, at_site = self.hub_and_site()
        done = self.succeed("models", "copy", "--nats", at_site, "--from", "hub")
        self.assertIn("fashion/1/model.tflite", done.stdout)
        self.assertEqual(self.succeed("models", "copy", "--nats", at_site, "--from", "hub").stdout, "")
        self.succeed("place", "--nats", at_site, "fashion")
        self.worker(at_site, id="site")
        self.worker(at_hub, "--model", f"fashion={FASHION_MODEL}", id="hub")

        def infer(where, *options):
            done = fleet("infer", "--nats", where, "--model", "fashion", BOOT, "--json", *AMPLE,
                         *options)
            return json.loads(done.stdout) if done.stdout else {"processed": 0}
        # From the hub to the site, and back: each by its own worker.
        eventually(lambda: infer(at_site)["workers"] == {"site": 1}, "the site's worker answers")
        self.assertEqual(infer(at_site, "--repeat", "30")["workers"], {"site": 30})
        self.assertEqual(infer(at_hub, "--repeat", "30")["workers"], {"hub": 30})
        hub.send_signal(signal.SIGSTOP)

        def is_seen():
            report = infer(at_site, "--repeat", "20")
            self.assertEqual((report["processed"], report["workers"]), (20, {"site": 20}))
            return "Stale Connection" in site_log.read_text()
        eventually(is_seen, "the site sees that the hub has gone")
        report = infer(at_site, "--repeat", "20")
        self.assertEqual((report["processed"], report["workers"]), (20, {"site": 20}))
        self.succeed("run", "--nats", at_site, "--model", "fashion", BOOT, "--output",
                     self.folder / "out")
        hub.send_signal(signal.SIGCONT)
        eventually(lambda: infer(at_hub)["processed"] == 1, "the hub is back")
        eventually(lambda: fleet("status", "--nats", at_site, "--domain", "hub").returncode == 0,
                   "the link is back")
        # Who has lost its own worker is answered through the link.
        # Also the worker, which had lost it.
        eventually(lambda: fleet("drain", "--nats", at_hub, "hub").returncode == 0,
                   "the hub's worker goes")
        eventually(lambda: infer(at_hub).get("workers") == {"site": 1}, "the site answers the hub")
        # No job and no result of one is the other's.
        client = Client(int(at_hub.rsplit(":", 1)[1]))
        self.assertEqual(client.api("STREAM.INFO.ATOLL_RESULT")["state"]["messages"], 0)
        client.close()


# How a server announces itself (docs/fleet.md).
ANNOUNCED = """<service-group><name replace-wildcards="yes">NATS {port} on %h</name>
<service><type>_nats._tcp</type><port>{port}</port></service></service-group>"""
DISCOVERY = """
import os, pathlib, sys
sys.path.insert(0, {here!r})
from fleet_testing import FASHION_MODEL, BOOT, Server, Worker, eventually, fleet
folder, services = pathlib.Path({folder!r}), pathlib.Path("/etc/avahi/services")
NATS = ["--insecure", "--nats", "nats://"]
TLS = ["--nats", "tls://", *{client!r}]


def announce(*servers):
    "These and no others."
    for file in services.iterdir():
        file.unlink()
    for server in servers:
        half = folder / "half"
        half.write_text({announced!r}.format(port=server.port))
        (services / (server.name + ".service")).write_text(half.read_text())


def said(wanted, *words):
    "What a command says, at last."
    def look():
        done = fleet(*words)
        text = "exit code " + str(done.returncode) + " " + done.stderr + done.stdout
        return text if all(one in text for one in wanted) else print(text, file=sys.stderr)
    return eventually(look, " ".join(wanted))


def refused(mention, *words):
    done = fleet("status", *words)
    assert done.returncode == 2 and mention in done.stderr, (done.returncode, done.stderr)


said(["exit code 1 ", "no server of NATS is announced"], "status", *NATS, "--connect-timeout", "1")
one, two = (Server(folder, name) for name in ("one", "two"))
announce(one)
said(["exit code 0 ", "found nats://atoll-test.local:%d" % one.port], "status", *NATS)
refused("has to be encrypted", "--nats", "nats://")
refused("look for servers", *NATS, "--nats", one.url)
worker = Worker("nats://", "--insecure", "--model", "fashion=" + str(FASHION_MODEL), "--device", "emu")
said(["1 captured = 1 processed"], "infer", *NATS, "--model", "fashion", BOOT, "--budget", "20000")
assert worker.stop() == 0
announce(one, two)
text = said(["exit code 2 ", "choose one: nats://"], "status", *NATS)
assert all(":%d" % server.port in text for server in (one, two)), text
# Of the same authority, but with the name of somebody else.
right, wrong = (Server(folder, name, "tls {{ cert_file: %s.pem, key_file: %s.key }}" % (at, at), wait=False)
                for name in ("right", "wrong") for at in [folder / name])
said(["fashion/1/model.tflite: "], "models", "put", "--nats", "tls://localhost:%d" % right.port, *{client!r},
     "fashion", FASHION_MODEL)
announce(wrong, right)
said(["found tls://atoll-test.local:%d" % server.port for server in (right, wrong)], "models", "list", *TLS)
for _ in range(6):
    done = fleet("models", "list", *TLS)
    assert done.returncode == 0 and done.stdout.startswith("fashion"), (done.stdout, done.stderr)
refused("--tls-host", *[word for word in TLS if word not in ("--tls-host", "hub.example")])
announce(wrong)
said(["exit code 2 ", "no connection to tls://atoll-test.local:%d" % wrong.port], "status", *TLS, "--connect-timeout", "1")
for server in (one, two, right, wrong):
    server.stop()
"""


class Discovery(FleetTest):
    """Servers that are found by Avahi, in a network of their own."""

    def setUp(self):
        super().setUp()
        need_a_network()

    def test_found(self):
        self.certificates({"right": "DNS:hub.example", "wrong": "DNS:atoll-test.local,DNS:right", "client": ""})
        at = self.folder
        client = ["--tls-ca", f"{at}/ca.pem", "--tls-host", "hub.example", "--tls-cert", f"{at}/client.pem",
                  "--tls-key", f"{at}/client.key"]
        code = DISCOVERY.format(here=os.path.dirname(os.path.abspath(__file__)), folder=str(at), client=client,
                                announced=ANNOUNCED)
        done, logs = in_a_network(at, code, 4 * LONG, "127.0.0.1 localhost atoll-test.local\n")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + logs)

    def test_without_the_daemon(self):
        done = subprocess.run([*FLEET, "status", "--nats", "nats://", "--insecure"], capture_output=True,
                              text=True, timeout=600, check=False,
                              env={**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={self.folder}/none"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("install and start avahi-daemon", done.stderr)


class Nkey:
    """An Ed25519 key in the form of NATS: base32 of a prefix, 32 bytes and their CRC-16."""
    PREFIXES = {"O": 14 << 3, "A": 0, "U": 20 << 3}
    SEED = 18 << 3

    def __init__(self, folder, kind):
        self.kind = kind
        self.file = folder / f"{kind}.pem"
        self.run("genpkey", "-algorithm", "ed25519", "-out", self.file)
        # The key is the last 32 bytes of either form.
        secret = self.run("pkey", "-in", self.file, "-outform", "DER")[-32:]
        prefix = self.PREFIXES[kind]
        self.seed = self.text(bytes([self.SEED | prefix >> 5, (prefix & 31) << 3]) + secret)
        self.public = self.text(bytes([prefix]) + self.run(
            "pkey", "-in", self.file, "-pubout", "-outform", "DER")[-32:])

    @staticmethod
    def run(*words):
        done = subprocess.run(["openssl", *map(str, words)], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @staticmethod
    def text(data):
        return base64.b32encode(data + binascii.crc_hqx(data, 0).to_bytes(2, "little")).decode().rstrip("=")

    def jwt(self, subject, claims, **more):
        """What this key says of another one."""
        def part(data):
            return base64.urlsafe_b64encode(data).decode().rstrip("=")
        text = part(b'{"typ":"JWT","alg":"ed25519-nkey"}') + "." + part(json.dumps({
            "jti": "x", "iat": 1_700_000_000, "iss": self.public, "name": "test", "sub": subject,
            "nats": {"version": 2, **claims}, **more}).encode())
        message = self.file.with_suffix(".msg")
        message.write_bytes(text.encode())
        return text + "." + part(self.run("pkeyutl", "-sign", "-inkey", self.file, "-rawin", "-in", message))


class Logins(FleetTest):
    """The ways to show who this is, each refused with another one's."""

    def check(self, server, right, *wrong, env=None):
        worker = self.worker(server, "--model", f"fashion={FASHION_MODEL}", "--no-placement",
                             "--no-jobs", *right, id="w1")
        self.succeed("infer", "--nats", server.url, *right, "--model", "fashion", BOOT, *AMPLE)
        for words in ((), *wrong):
            done = fleet("infer", "--nats", server.url, *words, "--model", "fashion", BOOT,
                         "--connect-timeout", str(LONG * 1000))
            self.assertNotEqual(done.returncode, 0, words)
            self.assertRegex(done.stderr, "(?i)authoriz|permission|authentic", words)
        self.assertEqual(worker.stop(), 0)

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def test_token(self):
        server = self.server('authorization { token: "0123456789abcdef" }', js=False)
        self.check(server, ["--token-file", self.file("right", "0123456789abcdef\n")],
                   ["--token-file", self.file("wrong", "0123456789abcdeg\n")])
        done = subprocess.run([*FLEET, "infer", "--nats", server.url, "--model", "fashion", BOOT],
                              capture_output=True, text=True, timeout=600, check=False,
                              env={**os.environ, "ATOLL_NATS_TOKEN": "0123456789abcdef"})
        # Let in, where nobody has that model any more.
        self.assertIn("no worker has model 'fashion'", done.stdout + done.stderr)

    def test_nkey(self):
        folder, other = self.folder / "a", self.folder / "b"
        folder.mkdir()
        other.mkdir()
        key, wrong = Nkey(folder, "U"), Nkey(other, "U")
        server = self.server(f"authorization {{ users: [ {{ nkey: {key.public} }} ] }}", js=False)
        right = self.file("right", key.seed + "\n")
        bad = self.file("wrong", wrong.seed + "\n")
        self.check(server, ["--nkey", key.public, "--nkey-seed", right],
                   ["--nkey", wrong.public, "--nkey-seed", bad],
                   # A key of which it has not the seed.
                   ["--nkey", key.public, "--nkey-seed", bad])

    def test_signature_refused(self):
        """What is signed wrongly, as the client's library does now and then, is signed again."""
        key = Nkey(self.folder, "U")
        seed = self.file("seed", key.seed + "\n")
        for options, refusals, signatures in ((["--nkey", key.public, "--nkey-seed", seed], 2, 3),
                                              (["--nkey", key.public, "--nkey-seed", seed], 9, 3),
                                              (["--token-file", self.file("token", "x" * 16)], 9, 1)):
            seen = []

            def serve(connection, refusals=refusals, seen=seen):
                with connection, connection.makefile("rb") as lines:
                    info = {"server_id": "x", "version": "2.9.10", "max_payload": 1 << 20, "headers": True,
                            "auth_required": True, "nonce": f"nonce-{len(seen)}"}
                    connection.sendall(f"INFO {json.dumps(info)}\r\n".encode())
                    connect = json.loads(lines.readline().removeprefix(b"CONNECT "))
                    seen.append(connect.get("sig"))
                    if len(seen) <= refusals:
                        connection.sendall(b"-ERR 'Authorization Violation'\r\n")
                        return
                    for line in lines:
                        if line.startswith(b"PING"):
                            connection.sendall(b"PONG\r\n")

            with socket.create_server(("127.0.0.1", 0)) as listener:
                def accept(listener=listener, serve=serve):
                    while True:
                        try:
                            connection, _ = listener.accept()
                        except OSError:
                            return
                        threading.Thread(target=serve, args=(connection,), daemon=True).start()
                threading.Thread(target=accept, daemon=True).start()
                done = fleet("infer", "--nats", f"nats://127.0.0.1:{listener.getsockname()[1]}", *options,
                             "--model", "fashion", BOOT, "--budget", "300", "--connect-timeout", str(LONG * 1000))
                listener.shutdown(socket.SHUT_RDWR)
            self.assertNotEqual(done.returncode, 0)
            (self.assertRegex if refusals > 2 else self.assertNotRegex)(done.stderr, "(?i)authoriz")
            self.assertEqual(len(seen), signatures)
            self.assertEqual(len(set(seen)), signatures, "each has another nonce")

    def test_credentials(self):
        operator, account, user = (Nkey(self.folder, kind) for kind in "OAU")
        limits = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1,
                  "wildcards": True, "conn": -1, "leaf": -1}
        of_account = operator.jwt(account.public, {"type": "account", "limits": limits})
        of_operator = self.file("operator.jwt", operator.jwt(operator.public, {"type": "operator"}))
        server = self.server(f"operator: {of_operator}\nresolver: MEMORY\n"
                             f"resolver_preload: {{ {account.public}: {of_account} }}", js=False)

        def credentials(name, signer, **more):
            jwt = signer.jwt(user.public, {"type": "user", "subs": -1, "data": -1, "payload": -1}, **more)
            return self.file(name, f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n"
                                   f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n"
                                   "------END USER NKEY SEED------\n")
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        self.check(server, ["--credentials", credentials("right", account)],
                   # Of an account that the operator does not know, and of a time that is over.
                   ["--credentials", credentials("stranger", Nkey(elsewhere, "A"))],
                   ["--credentials", credentials("old", account, exp=1_700_000_001)])


class Metrics(FleetTest):
    """What Prometheus finds at a worker."""

    def start(self, server, *options, where=":0"):
        worker = self.worker(server, "--model", f"fashion={FASHION_MODEL}", "--metrics", where,
                             *options, id="w1")
        line = worker.process.stdout.readline().decode()
        found = re.match(r"metrics at (https?)://127\.0\.0\.1:(\d+)/metrics$", line)
        self.assertTrue(found, line + worker.stderr())
        return worker, found[1], int(found[2])

    def get(self, port, path="/metrics", method="GET", headers=None, context=None):
        connection = (http.client.HTTPSConnection("127.0.0.1", port, timeout=LONG, context=context) if context
                      else http.client.HTTPConnection("127.0.0.1", port, timeout=LONG))
        try:
            connection.request(method, path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def test_counts(self):
        server = self.server()
        worker, _, port = self.start(server)
        client = self.client(server)
        for body in (pixels(1), pixels(2), b""):
            client.request("atoll.infer.fashion", body, RAW)
        self.succeed("run", "--nats", server.url, "--model", "fashion", BOOT, "--output",
                     self.folder / "out")
        # Who has the answer has it before it is counted.
        for line in ('atoll_fleet_frames_total{worker="w1",end="answered"} 2',
                     'atoll_fleet_frames_total{worker="w1",end="failed"} 1',
                     'atoll_fleet_frames_total{worker="w1",end="busy"} 0',
                     'atoll_fleet_jobs_total{worker="w1",end="done"} 1',
                     'atoll_fleet_places{worker="w1"} 2',
                     'atoll_fleet_places_free{worker="w1"} 2',
                     'atoll_fleet_connected{worker="w1"} 1',
                     'atoll_fleet_draining{worker="w1"} 0',
                     'atoll_fleet_device_lost{worker="w1"} 0',
                     'atoll_fleet_missing_models{worker="w1"} 0',
                     'nv_inference_request_success{model="fashion",version="1"} 3'):
            eventually(lambda: line in self.get(port)[1].splitlines(), line)
        status, text = self.get(port)
        self.assertEqual(status, 200)
        promtool = shutil.which("promtool")
        if promtool:
            done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True,
                                  timeout=LONG, check=False)
            self.assertIn(done.returncode, (0, 3), done.stderr)
            for line in done.stderr.splitlines():
                self.assertRegex(line, "^nv_inference_")  # Triton's names are as they are
        self.assertEqual(self.get(port, method="HEAD"), (200, ""))
        self.assertEqual(self.get(port, "/")[0], 404)
        self.assertEqual(self.get(port, method="POST")[0], 405)
        # Pages of others, and names that others let point here.
        self.assertEqual(self.get(port, headers={"Host": "evil.example"})[0], 421)
        self.assertEqual(self.get(port, headers={"Origin": "http://evil.example"})[0], 403)
        # What it should have and nobody has.
        client.put("$KV.atoll_placement.w1", b'["unknown"]')
        eventually(lambda: 'atoll_fleet_missing_models{worker="w1"} 1' in self.get(port)[1],
                   "a model is missing")
        # It says so when its server has gone.
        server.kill()
        eventually(lambda: 'atoll_fleet_connected{worker="w1"} 0' in self.get(port)[1], "it is cut off")
        self.assertEqual(worker.stop(), 0)

    def test_mistakes(self):
        server = self.server(js=False)
        for words, code, mention in (
                (["0.0.0.0:0"], 2, "--metrics-tls-cert"),
                (["127.0.0.1:0", "--metrics-tls-cert", "x"], 2, "--metrics-tls-cert and --metrics-tls-key"),
                (["127.0.0.1:0", "--metrics-token-file", "/none"], 1, "/none"),
                (["nowhere"], 2, "nowhere")):
            done = fleet("worker", "--nats", server.url, "--model", f"fashion={FASHION_MODEL}", "--metrics",
                         *words)
            self.assertEqual(done.returncode, code, (words, done.stderr))
            self.assertIn(mention, done.stderr)

    def test_who_may_read_them(self):
        server = self.server(js=False)
        token, right = self.folder / "token", {"Authorization": "Bearer 0123456789abcdef"}
        token.write_text("0123456789abcdef")
        worker, scheme, port = self.start(server, "--metrics-token-file", token)
        self.assertEqual(scheme, "http")
        self.assertEqual(self.get(port)[0], 401)
        self.assertEqual(self.get(port, headers={"Authorization": "Bearer 0123456789abcdeX"})[0], 401)
        self.assertEqual(self.get(port, headers=right)[0], 200)
        self.assertEqual(worker.stop(), 0)
        # Where others can reach it.
        certificate, key = self.folder / "cert.pem", self.folder / "key.pem"
        done = subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
             key, "-out", certificate, "-days", "2", "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"],
            capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        worker, scheme, port = self.start(server, "--metrics-tls-cert", certificate, "--metrics-tls-key", key,
                                          "--metrics-token-file", token, where="0.0.0.0:0")
        self.assertEqual(scheme, "https")
        context = ssl.create_default_context(cafile=str(certificate))
        self.assertEqual(self.get(port, context=context)[0], 401)
        self.assertEqual(self.get(port, headers=right, context=context)[0], 200)
        self.assertEqual(worker.stop(), 0)


class Golden(FleetTest):
    """All reference models have the bytes of `atoll run`, as frames and as jobs."""

    def test_models(self):
        folder = SHARED / "models"
        if not folder.exists():
            absent("models", is_reference=True)
        files = [FASHION_MODEL, CROPS, SCENES, SIMPLE, *sorted(folder.glob("*.tflite"))]
        server = self.server("max_payload: 8MB")
        count = 0
        for file in files:
            with self.subTest(file.name):
                name = file.stem
                worker = self.worker(server, "--model", f"{name}={file}", "--no-placement", wait=False)
                line = worker.process.stdout.readline().decode()
                if not line:  # of a kind that is not served at all
                    worker.process.wait(120)
                    self.assertNotEqual(run("run", file).code, 0, worker.stderr())
                    continue
                model = self.heard(server, worker.id)["models"][0]
                tensors = [(info["name"], info["datatype"], info["shape"], self.made_up(info, i))
                           for i, info in enumerate(model["inputs"])]
                wanted = dict(zip([info["name"] for info in model["outputs"]],
                                  self.expected(file, [data for *_, data in tensors])))
                body, headers = binary(tensors)
                client = self.client(server)
                token = "".join(c if c.isalnum() or c in "-_" else f"%{ord(c):02X}" for c in name)
                answer = client.request(f"atoll.infer.{token}", body, headers)
                room = 8 * 1024 * 1024 - 4096
                if sum(map(len, wanted.values())) > room - 2000:
                    self.assertEqual(answer.code, 400)
                else:
                    self.assertEqual(answer.code, 0, answer.headers)
                    self.assertEqual(answer.outputs(), wanted)
                    job = job_id()
                    client.put(f"atoll.work.{token}.1", body, {**headers, "Nats-Msg-Id": job})
                    self.assertEqual(eventually(lambda: client.result(job), "a result").outputs(), wanted)
                    count += 1
                client.close()
                worker.stop()
        self.assertGreater(count, 20)

    @staticmethod
    def made_up(info, seed):
        size = {"INT8": 1, "UINT8": 1, "BOOL": 1, "INT16": 2, "INT32": 4, "UINT32": 4, "FP32": 4,
                "INT64": 8}[info["datatype"]]
        elements = 1
        for n in info["shape"]:
            elements *= n
        if info["datatype"] == "FP32":
            return struct.pack(f"<{elements}f", *((b - 128) / 128 for b in pixels(seed, elements)))
        if size > 1:
            return b"".join((b % 2).to_bytes(size, "little") for b in pixels(seed, elements))
        return pixels(seed, elements)


if __name__ == "__main__":
    suite = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *(sys.argv[1:] if suite else [])])
