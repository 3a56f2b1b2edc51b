# SPDX-License-Identifier: Apache-2.0
"""`atoll benchmark --scenario`, `--target oip://...` and `--accuracy`: rules, servers, bad input."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from atoll_command import COMMAND, CommandTest, FASHION_DATA, FASHION_MODEL, absent, need, run
from oip_server import HEAD, Model, Server

CPU = ("--device", "cpu", "--threads", "1")
os.environ.pop("ATOLL_SERVE_TOKEN", None)  # what the user has there is no matter of tests

# What MLPerf has in its stead takes ten minutes.
SHORT = ("--duration", "0.05", "--warmup", "1")


def has_servers():
    return "without libcurl" not in run("benchmark", "--target", "oip://127.0.0.1:1").stderr


def need_servers():
    if not has_servers():
        print("ATOLL-SKIPPED: libcurl4-openssl-dev was absent when the command was built")
        sys.exit(0)


def rules(report):
    return {rule["name"]: rule["kept"] for rule in report["scenario"]["rules"]}


class Scenarios(CommandTest):
    """On a device; what each of them is."""

    def scenario(self, name, *arguments, device=CPU):
        return self.json("benchmark", FASHION_MODEL, *device, "--scenario", name, *SHORT,
                         *arguments)

    def test_single_stream(self):
        report = self.scenario("single-stream")
        scenario = report["scenario"]
        self.assertTrue(scenario["valid"])
        self.assertEqual(scenario["percentile"], 90)
        self.assertEqual(scenario["min_queries"], 100)
        self.assertGreaterEqual(report["runs"], 100)
        self.assertGreaterEqual(report["seconds"], 0.05)
        self.assertEqual(scenario["result"], scenario["percentile_ms"])
        self.assertGreaterEqual(scenario["early_stopping_ms"], scenario["percentile_ms"])
        self.assertEqual(scenario["departures"], ["0.05 s instead of 600 s"])
        for absent in ("qps", "latency_bound_ms", "samples_per_query"):
            self.assertIsNone(scenario[absent])

    def test_multi_stream(self):
        report = self.scenario("multi-stream", "--samples-per-query", "3", "--streams", "2")
        self.assertTrue(report["scenario"]["valid"])
        self.assertGreaterEqual(report["runs"], 662)
        self.assertEqual(report["inferences"], 3 * report["runs"])
        self.assertEqual(report["streams"], 2)

    def skip_if_slow(self, report):
        """A sanitized build, or one under an emulator, is given up: it cannot keep the pace."""
        if "pace" in rules(report):
            self.skipTest("the machine is too slow for this rate")

    def test_server(self):
        report = self.scenario("server", "--qps", "5000", "--latency-bound-ms", "100000",
                               "--min-queries", "600", "--streams", "2")
        self.skip_if_slow(report)
        scenario = report["scenario"]
        self.assertTrue(scenario["valid"])
        self.assertEqual(report["runs"], 600)
        self.assertEqual(set(rules(report)), {"duration", "queries", "latency", "early stopping"})

    def test_a_server_with_few_queries_has_not_shown_enough(self):
        report = self.scenario("server", "--qps", "5000", "--latency-bound-ms", "100000",
                               "--min-queries", "400")
        self.skip_if_slow(report)
        self.assertEqual(report["runs"], 400)
        self.assertFalse(report["scenario"]["valid"])
        self.assertEqual([name for name, kept in rules(report).items() if not kept],
                         ["early stopping"])
        # Of a 97th percentile they have.
        report = self.scenario("server", "--qps", "5000", "--latency-bound-ms", "100000",
                               "--min-queries", "400", "--percentile", "97")
        self.skip_if_slow(report)
        self.assertTrue(report["scenario"]["valid"])

    def test_a_bound_that_nothing_keeps(self):
        report = self.scenario("server", "--qps", "5000", "--latency-bound-ms", "1e-6",
                               "--min-queries", "600")
        self.assertFalse(rules(report)["latency"])
        self.assertFalse(rules(report)["early stopping"])
        text = self.succeed("benchmark", FASHION_MODEL, *CPU, "--scenario", "server", *SHORT,
                            "--qps", "5000", "--latency-bound-ms", "1e-6").stdout
        self.assertIn("\nresult   INVALID: ", text)
        self.assertRegex(text, r"\n  NO   latency: p99 [\d.]+ ms, at most 1e-06 ms")

    def test_offline(self):
        report = self.scenario("offline", "--min-queries", "1000", "--qps", "1", "--streams", "2")
        self.assertEqual(report["inferences"], 1000)
        self.assertEqual(report["scenario"]["unit"], "per second")
        self.assertAlmostEqual(report["scenario"]["result"], report["inferences_per_second"],
                               delta=report["scenario"]["result"] * 1e-3)
        # A rate that was much too low: it may have ended too early, and that is all that is wrong.
        self.assertTrue(rules(report)["samples"])

    def test_several_entries(self):
        report = self.json("benchmark", FASHION_MODEL, "--device", "cpu", "--device", "emu",
                           "--scenario", "single-stream", *SHORT)
        self.assertEqual([entry["target"] for entry in report["entries"]], ["cpu", "emu"])
        for entry in report["entries"]:
            self.assertTrue(entry["scenario"]["valid"])

    def test_interrupted(self):
        arguments = ("benchmark", FASHION_MODEL, *CPU, "--scenario", "server", "--qps", "200",
                     "--latency-bound-ms", "100000", "--duration", "3600", "--json")
        with subprocess.Popen([*COMMAND, *map(str, arguments)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE,
                              env={**os.environ, "ATOLL_PROGRESS": "0.05"}) as process:
            for line in process.stderr:
                found = re.search(rb"measuring, (\d+) inferences", line)
                if found and int(found[1]) > 30:
                    break
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, stderr)
        report = json.loads(stdout)
        self.assertGreater(report["runs"], 10)
        self.assertFalse(report["scenario"]["valid"])
        self.assertFalse(rules(report)["end"])


class Servers(CommandTest):
    """Over HTTP."""

    def setUp(self):
        need_servers()
        super().setUp()

    @staticmethod
    def bytes_model(answer=None):
        return Model([("in", "UINT8", [-1, 4, 4, 1])], ("out", "UINT8", [1, 10]), answer)

    def test_raw_requests(self):
        with Server({"m": self.bytes_model()}) as server:
            report = self.json("benchmark", "--target", server.address + "/m", "--runs", "20",
                               "--warmup", "2")
        self.assertEqual(len(server.requests), 23)
        self.assertEqual(report["runs"], 20)
        self.assertEqual(report["warmup"], 2)
        self.assertEqual(len(server.peers), 1, "the connection is kept")
        path, headers, body = server.requests[0]
        self.assertEqual(path, "/v2/models/m/infer")
        self.assertEqual(headers[HEAD], "0")
        self.assertNotIn("Expect", headers)
        # Seed 1 is the same everywhere.
        again = self.directory / "again.raw"
        again.write_bytes(body)
        self.assertEqual(len(body), 16)
        self.assertEqual({request[2] for request in server.requests}, {body})

    def test_the_same_fields_whatever_the_target(self):
        with Server({"m": self.bytes_model()}) as server:
            report = self.json("benchmark", "--target", server.address, "--runs", "3")
        self.assertEqual(report["model"], "m")
        device = self.json("benchmark", FASHION_MODEL, *CPU, "--runs", "3")
        self.assertEqual(set(report), set(device))
        for absent in ("device", "threads", "load_ms", "arena_bytes", "modelled_device",
                       "partition_count", "operators", "scenario"):
            self.assertIsNone(report[absent], absent)

    def test_seed_1_equals_that_of_a_device(self):
        model = Model([("in", "INT8", [1, 28, 28, 1])], ("out", "INT8", [1, 10]))
        with Server({"fashion_int8": model}) as server:
            report = self.json("benchmark", FASHION_MODEL, "--device", "cpu", "--target",
                               server.address, "--runs", "12")
        self.assertEqual([entry["target"] for entry in report["entries"]],
                         ["cpu", server.address])
        body = server.requests[0][2]
        path = self.file("input.raw", body)
        with_file = self.json("run", FASHION_MODEL, *CPU, "--input", f"0={path}")["outputs"]
        self.assertEqual(with_file, self.json("run", FASHION_MODEL, *CPU, "--seed", "1")["outputs"])

    def test_several_inputs_are_binary(self):
        model = Model([("a", "INT32", [1, 3]), ("b \"c\"", "FP32", [2])], ("sum", "INT8", [1]))
        first = self.file("a.raw", bytes(range(12)))
        with Server({"two": model}) as server:
            self.json("benchmark", "--target", server.address + "/two", "--runs", "1", "--input",
                      f"0={first}")
        _, headers, body = server.requests[0]
        head = json.loads(body[:int(headers[HEAD])])
        self.assertEqual([(tensor["name"], tensor["datatype"], tensor["shape"])
                          for tensor in head["inputs"]],
                         [("a", "INT32", [1, 3]), ("b \"c\"", "FP32", [2])])
        self.assertEqual(body[int(headers[HEAD]):][:12], bytes(range(12)))
        self.assertEqual(len(body), int(headers[HEAD]) + 20)

    def test_streams_are_connections(self):
        """Four requests are under way at once: each waits until the others are there, too."""
        barrier = threading.Barrier(4, timeout=60)

        def before(number):
            if number > 0:  # the first one comes alone
                barrier.wait()

        with Server({"m": self.bytes_model()}, before) as server:
            report = self.json("benchmark", "--target", server.address + "/m", "--streams", "4",
                               "--runs", "5", "--warmup", "1")
        self.assertEqual(report["inferences"], 20)
        self.assertEqual(len(server.peers), 4)

    def test_a_slow_server_is_late(self):
        def before(_):
            time.sleep(0.02)

        with Server({"m": self.bytes_model()}, before) as server:
            report = self.json("benchmark", "--target", server.address + "/m", "--scenario",
                               "server", "--qps", "50", "--latency-bound-ms", "15",
                               "--duration", "0.5", "--min-queries", "10", "--warmup", "0")
        # It sleeps for longer than the bound: every query was late.
        self.assertFalse(report["scenario"]["valid"])
        self.assertGreaterEqual(report["latency_ms"]["min"], 20)
        self.assertFalse(rules(report)["latency"])

    def test_a_server_that_cannot_keep_up_is_given_up(self):
        def before(number):
            if number > 5:
                time.sleep(0.2)

        with Server({"m": self.bytes_model()}, before) as server:
            report = self.json("benchmark", "--target", server.address + "/m", "--scenario",
                               "server", "--qps", "1000", "--latency-bound-ms", "100",
                               "--duration", "1", "--warmup", "0")
        self.assertFalse(rules(report)["pace"])
        self.assertLess(report["runs"], 900)

    def test_failures_are_counted(self):
        def before(number):
            if number % 5 == 4:
                return 503, b'{"error": "the queue is \\u001b full"}'
            return None

        with Server({"m": self.bytes_model()}, before) as server:
            report = self.json("benchmark", "--target", server.address + "/m", "--scenario",
                               "single-stream", "--duration", "0.01", "--min-queries", "100",
                               "--warmup", "0")
        self.assertEqual(len(server.requests), 1 + report["runs"] + report["failed"])
        self.assertEqual(report["failed"], len(server.requests) // 5)
        self.assertEqual(report["first_failure"], "HTTP status 503, 'the queue is ? full'")
        self.assertFalse(rules(report)["answers"])

    def test_connections_that_break_are_opened_again(self):
        with Server({"m": self.bytes_model()},
                    lambda number: "close" if number % 10 == 5 else None) as server:
            report = self.json("benchmark", "--target", server.address + "/m", "--runs", "50",
                               "--warmup", "0")
        self.assertEqual(report["runs"] + report["failed"], 50)
        self.assertGreater(report["runs"], 30)
        self.assertGreater(len(server.peers), 1)

    def test_ctrl_c_does_not_wait_for_a_server(self):
        """It keeps silent for good; a request gives up after 60 seconds by itself."""
        if "thread" in os.environ.get("ATOLL_SANITIZE", ""):
            self.skipTest("ThreadSanitizer delays signals while libcurl waits")
        silent, end = threading.Event(), threading.Event()

        def before(number):
            if number == 30:
                silent.set()
                end.wait(120)

        with Server({"m": self.bytes_model()}, before) as server, subprocess.Popen(
                [*COMMAND, "benchmark", "--target", server.address + "/m", "--duration", "3600",
                 "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            self.assertTrue(silent.wait(60))
            process.send_signal(signal.SIGINT)
            stdout, _ = process.communicate(timeout=50)
            end.set()
        self.assertEqual(process.returncode, 130)
        report = json.loads(stdout)
        self.assertGreaterEqual(report["runs"], 20)
        self.assertEqual(report["failed"], 0)

    def test_a_server_that_dies(self):
        with Server({"m": self.bytes_model()},
                    lambda number: (500, b"not json") if number > 20 else None) as server:
            self.fail_with(5, ("benchmark", "--target", server.address + "/m", "--duration", "60"),
                           "100 requests", "HTTP status 500")
            self.assertLess(len(server.requests), 1000)

    def test_the_first_request_fails(self):
        with Server({"m": self.bytes_model()}, lambda _: (400, b'{"error": "bad shape"}')) as server:
            self.fail_with(1, ("benchmark", "--target", server.address + "/m"), "bad shape")

    def test_names(self):
        odd = "a b/../ü"
        models = {"one": self.bytes_model(), "a b%": self.bytes_model()}
        with Server(models) as server:
            self.fail_with(2, ("benchmark", "--target", server.address), "a b%, one")
            self.fail_with(2, ("benchmark", "--target", server.address + "/" + odd), "no address")
            self.fail_with(2, ("benchmark", "--target", server.address + "/none"), "no model 'none'")
            self.json("benchmark", "--target", server.address + "/a b%", "--runs", "1")
            self.assertEqual(server.requests[0][0], "/v2/models/a%20b%25/infer")

    def test_lies(self):
        """Descriptions that are none."""
        tensor = {"name": "x", "datatype": "UINT8", "shape": [1]}
        for inputs in (None, [], {}, 3, [3], [{}], [{**tensor, "shape": [0]}],
                       [{**tensor, "shape": [-2]}], [{**tensor, "shape": [1 << 40]}],
                       [{**tensor, "shape": [1 << 20, 1 << 20]}], [{**tensor, "shape": ["1"]}],
                       [{**tensor, "shape": [1.5]}], [{**tensor, "shape": [2 ** 63]}],
                       [{**tensor, "datatype": "BYTES"}], [{**tensor, "datatype": 3}],
                       [{**tensor, "name": None}], [tensor] * 65):
            with Server({}, description=json.dumps({"inputs": inputs}).encode()) as server:
                self.fail_with(4, ("benchmark", "--target", server.address + "/m"), "model 'm'")
        deep = b"[" * 10 ** 6 + b"]" * 10 ** 6
        for text in (b"", b"{", b"[" * 100_000, b"\xff", b'{"inputs": ' + b'[' * 1000,
                     b'{"inputs": [{"name": "x", "datatype": "UINT8", "shape": [' + deep + b"]}]}"):
            with Server({}, description=text) as server:
                self.fail_with(4, ("benchmark", "--target", server.address + "/m"), "model 'm'")
        for text in (b"", b"{}", b"[3]", b'[{"name": 3}]', b"[" * 5000):
            with Server({}, index=text) as server:
                self.fail_with(2, ("benchmark", "--target", server.address), "which model")
        with Server({}, description=b" " * (5 << 20)) as server:
            self.fail_with(3, ("benchmark", "--target", server.address + "/m"), "larger than")

    def test_what_is_no_server(self):
        self.fail_with(3, ("benchmark", "--target", "oip://127.0.0.1:1/m"), "cannot reach")
        for bad in ("oip://", "oip://h", "oip://h:x", "http://h:1", "oip://h:1/a/b",
                    "oip://h:99999"):
            self.fail_with(2, ("benchmark", "--target", bad), "is no address of a server")
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def talk():
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"SSH-2.0-OpenSSH\r\n")

            thread = threading.Thread(target=talk)
            thread.start()
            self.fail_with(3, ("benchmark", "--target",
                               f"oip://127.0.0.1:{listener.getsockname()[1]}/m"), "cannot reach")
            thread.join()

    def test_tls(self):
        key, certificate = self.directory / "key.pem", self.directory / "certificate.pem"
        try:
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout",
                            key, "-out", certificate, "-days", "2", "-subj", "/CN=test", "-addext",
                            "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        except FileNotFoundError:
            absent("openssl")
        with Server({"m": self.bytes_model()}, certificate=(certificate, key)) as server:
            target = ("benchmark", "--target", server.address + "/m", "--runs", "5")
            report = self.json(*target, "--ca-file", certificate)
            self.assertEqual(report["runs"], 5)
            self.fail_with(3, target, "certificate")
            self.fail_with(3, ("benchmark", "--target", server.address.replace("oips", "oip")),
                           "cannot")
            self.fail_with(3, ("benchmark", "--target",
                               server.address.replace("127.0.0.1", "localhost") + "/m",
                               "--ca-file", certificate), "cannot reach")
        for bad in (self.directory / "none", self.file("bad.pem", b"none")):
            self.assertNotEqual(run(*target, "--ca-file", bad).code, 0)

    def test_tokens(self):
        token = self.file("token", b"s3cret-token\n")
        with Server({"m": self.bytes_model()}, token="s3cret-token") as server:
            target = ("benchmark", "--target", server.address + "/m", "--runs", "2")
            self.json(*target, "--token-file", token)
            self.fail_with(2, target, "HTTP status 401, 'who is there?'")
            os.environ["ATOLL_SERVE_TOKEN"] = "s3cret-token"
            try:
                self.json(*target)
                self.fail_with(2, (*target, "--token-file", self.file("other", b"other")), "401")
                self.fail_with(2, ("benchmark", "--target", "oip://example.invalid:1/m"),
                               "could read it")
            finally:
                del os.environ["ATOLL_SERVE_TOKEN"]
            for bad in (b"", b"\n", b"a b", b"a\r\nX: y", b"x" * 5000):
                self.fail_with(2, (*target, "--token-file", self.file("bad", bad)), "no token")
            self.fail_with(1, (*target, "--token-file", self.directory / "none"), "none")
        self.fail_with(2, ("benchmark", FASHION_MODEL, "--token-file", token), "--token-file")

    def test_pictures_need_the_model(self):
        self.file("p.pgm", b"P5 28 28 255\n" + bytes(28 * 28))
        with Server({"m": self.bytes_model()}) as server:
            self.fail_with(2, ("benchmark", "--target", server.address + "/m", "--images",
                               self.directory), "need the model's file")
            self.fail_with(2, ("benchmark", FASHION_MODEL, "--target", server.address + "/m",
                               "--images", self.directory), "takes 16 bytes", "784")

    def test_pictures_are_sent_in_turn(self):
        for value in (0, 100, 200):
            self.file(f"{value:03}.pgm", b"P5 28 28 255\n" + bytes([value]) * 784)
        model = Model([("in", "INT8", [1, 28, 28, 1])], ("out", "INT8", [1, 10]))
        with Server({"m": model}) as server:
            report = self.json("benchmark", FASHION_MODEL, "--target", server.address + "/m",
                               "--images", self.directory, "--runs", "6", "--warmup", "0")
        self.assertEqual(report["samples"], 3)
        bodies = [request[2] for request in server.requests[1:]]
        self.assertEqual(bodies[:3], bodies[3:])
        self.assertEqual(len(set(bodies)), 3)
        for body in bodies:
            self.assertEqual(len(set(body)), 1)


class Accuracies(CommandTest):
    def test_it_is_that_of_evaluate(self):
        need(FASHION_DATA)
        known = self.json("evaluate", FASHION_MODEL, FASHION_DATA, "--device", "cpu", "--limit",
                          "500")["results"][0]
        report = self.json("benchmark", FASHION_MODEL, "--device", "cpu", "--device", "emu",
                           "--accuracy", FASHION_DATA, "--limit", "500", "--streams", "2")
        for entry in report["entries"]:
            self.assertEqual(entry["accuracy"],
                             {"pictures": 500, "top1": known["top1"], "top5": known["top5"]})
            self.assertIsNone(entry["inferences_per_second"])

    def test_of_a_server(self):
        need_servers()
        for label, value in (("three", 3), ("seven", 7), ("nine", 9)):
            (self.directory / "data" / label).mkdir(parents=True)
            (self.directory / "data" / label / "p.pgm").write_bytes(
                b"P5 28 28 255\n" + bytes([value]) * 784)
        labels = self.file("labels.txt", b"zero\none\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n")

        def answer(inputs):
            # The class that the pixels name, but for 9.
            pixel = inputs[0][0] - 128 & 0xff
            right = 0 if pixel == 9 else pixel
            return bytes(127 if i == right else 256 - 128 + i if i < 9 else 128
                         for i in range(10))

        model = Model([("in", "INT8", [1, 28, 28, 1])], ("out", "INT8", [1, 10]), answer)
        with Server({"m": model}) as server:
            report = self.json("benchmark", FASHION_MODEL, "--target", server.address + "/m",
                               "--accuracy", self.directory / "data", "--labels", labels,
                               "--warmup", "0")
        self.assertEqual(report["accuracy"]["pictures"], 3)
        self.assertAlmostEqual(report["accuracy"]["top1"]["value"], 2 / 3)
        self.assertAlmostEqual(report["accuracy"]["top5"]["value"], 2 / 3)

    def test_answers_that_are_none(self):
        need_servers()
        (self.directory / "data" / "1").mkdir(parents=True)
        (self.directory / "data" / "1" / "p.pgm").write_bytes(b"P5 28 28 255\n" + bytes(784))

        def measure(server):
            return ("benchmark", FASHION_MODEL, "--target", server.address + "/m", "--accuracy",
                    self.directory / "data", "--warmup", "0")

        model = Model([("in", "INT8", [1, 28, 28, 1])], ("out", "INT8", [1, 1]), lambda _: b"\0")
        with Server({"m": model}) as server:
            self.fail_with(2, measure(server), "has 2 classes, 'm' tells 1 apart")
        for body in (b"", b"{}", b'{"outputs": []}', b'{"outputs": [{"datatype": "INT8"}]}'):
            with Server({"m": model}, lambda _, body=body: (200, body)) as server:
                self.fail_with(1, measure(server), "no first output in binary form")


class BadOptions(CommandTest):
    def test_what_is_no_value(self):
        for option, values in {
                "--scenario": ("", "Server", "none"), "--qps": ("0", "-1", "nan", "inf", "x", "1e9"),
                "--duration": ("0", "-1", "nan", "x", "1e9"), "--warmup-time": ("0", "x"),
                "--latency-bound-ms": ("0", "nan"), "--samples-per-query": ("0", "x", "99999"),
                "--percentile": ("0", "100", "nan"), "--percentiles": ("", "0", "101", "50,x", "nan"),
                "--min-queries": ("0", "-1", "x"), "--seed": ("-1", "x"), "--streams": ("0", "257"),
                "--limit": ("0",), "--performance": ("fast",), "--warmup": ("-1",)}.items():
            for value in values:
                self.fail_with(2, ("benchmark", FASHION_MODEL, f"{option}={value}"))

    def test_what_does_not_go_together(self):
        model = ("benchmark", FASHION_MODEL, *CPU)
        server = ("--scenario", "server", "--qps", "10", "--latency-bound-ms", "10")
        for arguments, mention in (
                (("--qps", "5"), "--qps"), (("--latency-bound-ms", "5"), "--latency-bound-ms"),
                (("--seed", "5"), "--seed"), (("--min-queries", "5"), "--min-queries"),
                (("--percentile", "97"), "--percentile"),
                (("--samples-per-query", "5"), "multi-stream"),
                (("--scenario", "server"), "needs --qps"),
                (("--scenario", "server", "--qps", "5"), "--latency-bound-ms"),
                (("--scenario", "single-stream", "--streams", "2"), "one stream"),
                (("--scenario", "single-stream", "--qps", "2"), "--qps"),
                (("--scenario", "offline", "--percentile", "90"), "--percentile"),
                ((*server, "--runs", "5"), "--min-queries"),
                (("--scenario", "server", "--qps", "1e6", "--latency-bound-ms", "1"), "queries"),
                (("--labels", "x"), "--accuracy"), (("--limit", "5"), "--accuracy"),
                (("--accuracy", "x", *server), "--scenario"), (("--mean", "5"), "--images"),
                (("--accuracy", "x", "--images", "y"), "--images"),
                (("--images", "x", "--input", "0=y"), "give one of them")):
            self.fail_with(2, (*model, *arguments), mention)
        self.fail_with(2, ("benchmark", FASHION_MODEL, FASHION_MODEL, "--target", "oip://h:1/m"),
                       "names one model")

    def test_files(self):
        model = ("benchmark", FASHION_MODEL, *CPU, "--runs", "1")
        nowhere = self.directory / "none/x"
        for option in ("--csv", "--report"):
            self.fail_with(1, (*model, option, nowhere), option)
            self.fail_with(2, (*model, option, self.directory), option)
        self.fail_with(1, (*model, "--images", nowhere), "--images")
        self.fail_with(2, (*model, "--images", self.directory), "has no pictures")
        self.file("bad.png", b"\x89PNG")
        self.fail_with(1, (*model, "--images", self.directory), "bad.png")
        self.fail_with(1, ("benchmark", FASHION_MODEL, *CPU, "--accuracy", nowhere), "none/x")
        self.fail_with(2, (*model, "--input", "5=x"), "input 5")
        self.fail_with(2, (*model, "--input", f"0={self.file('short', b'1')}"), "1 bytes")


if __name__ == "__main__":
    unittest.main()
