# SPDX-License-Identifier: Apache-2.0
"""`atoll benchmark --target grpc://HOST:PORT/MODEL` against atoll-serve.

Environment: as tests/serve/oip/rest_test.py.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["ATOLL_SOURCE_DIR"], "tests/tools"))
from atoll_command import (COMMAND, FASHION_DATA, FASHION_MODEL, SOURCE, CommandTest,
                           absent)  # noqa: E402

TOKEN = "correct-horse-battery-staple"
LONG = 300
SIMPLE = SOURCE / "tests/models/simple.tflite"


class GrpcTarget(CommandTest):
    def serve(self, *options, environment=None):
        """The place of its gRPC."""
        server = subprocess.Popen(
            [os.environ["ATOLL_SERVE"], "--listen", f"unix:{self.directory}/socket", "--grpc", "127.0.0.1:0",
             "--model", f"fashion={FASHION_MODEL}", "--model", f"simple={SIMPLE}", "--device", "cpu", *map(str, options)],
            stdout=subprocess.PIPE, env={**os.environ, **(environment or {})})
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait, LONG)
        self.addCleanup(server.kill)
        place = None
        for line in server.stdout:
            if found := re.search(rb"gRPC at (\S+)", line):
                place = found[1].decode()
            if b"Ctrl-C" in line:
                break
        self.assertIsNotNone(place)
        return server, place

    def test_scenarios(self):
        _, place = self.serve()
        report = self.json("benchmark", FASHION_MODEL, "--target", "cpu", "--target", f"grpc://{place}/fashion",
                           "--runs", "20", "--streams", "2")
        server = report["entries"][1]
        self.assertEqual((server["target"], server["model"]), (f"grpc://{place}/fashion", "fashion"))
        self.assertEqual((server["runs"], server["failed"]), (40, 0))
        for scenario in ("single-stream", "server", "offline"):
            more = ("--qps", "200", "--latency-bound-ms", "1000") if scenario == "server" else ()
            report = self.json("benchmark", "--scenario", scenario, "--target", f"grpc://{place}/simple",
                               "--duration", "0.2", "--min-queries", "20", *more)
            self.assertEqual(report["failed"], 0)
            self.assertGreaterEqual(report["inferences"], 20)

    def test_accuracy_is_that_of_the_model(self):
        if not FASHION_DATA.exists():
            absent("the Debian package dataset-fashion-mnist")
        _, place = self.serve()
        entries = self.json("benchmark", FASHION_MODEL, "--target", "cpu", "--target", f"grpc://{place}/fashion",
                            "--accuracy", FASHION_DATA, "--limit", "200")["entries"]
        self.assertEqual(entries[0]["accuracy"], entries[1]["accuracy"])
        self.assertGreater(entries[1]["accuracy"]["top1"]["value"], 0.8)

    def test_a_server_that_goes(self):
        server, place = self.serve()
        client = subprocess.Popen([*COMMAND, "benchmark", "--target", f"grpc://{place}/simple", "--duration", "60",
                                   "--warmup", "0", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        metrics = f"{self.directory}/socket"
        done = 0
        while done == 0:  # until it is at work
            if client.poll() is not None:
                self.fail(f"the client ended with {client.returncode}: {client.stderr.read().decode()}")
            text = subprocess.run(["curl", "-s", "--unix-socket", metrics, "http://localhost/v2/models/simple/stats"],
                                  capture_output=True, check=True, timeout=LONG).stdout
            done = json.loads(text)["model_stats"][0]["inference_count"]
        server.kill()
        out, errors = client.communicate(timeout=LONG)
        self.assertEqual(client.returncode, 5, errors)
        self.assertNotIn(b"\nterminate", errors)

    def test_what_is_none(self):
        _, place = self.serve()
        self.fail_with(3, ("benchmark", "--target", "grpc://127.0.0.1:1/m"), "cannot reach")
        self.fail_with(2, ("benchmark", "--target", f"grpc://{place}/nobody"), "nobody")
        for bad in ("grpc://h/m", "grpc://h:x/m", "grpcs://h", "grpc://h:1/a/b", "grpc://:1/m"):
            self.fail_with(2, ("benchmark", "--target", bad), "is no address of a server")
        self.fail_with(2, ("benchmark", "--target", f"grpc://{place}/simple", "--ca-file", FASHION_MODEL), "--ca-file")

    def test_tls_and_a_token(self):
        key, certificate = self.directory / "key.pem", self.directory / "certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=test", "-addext",
                        "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        token = pathlib.Path(self.directory / "token")
        token.write_text(TOKEN)
        _, place = self.serve("--tls-cert", certificate, "--tls-key", key, "--token-file", token)
        target = ("benchmark", "--target", f"grpcs://{place}/simple", "--runs", "3")
        trusted = ("--ca-file", certificate)
        self.assertEqual(self.json(*target, *trusted, "--token-file", token)["failed"], 0)
        self.fail_with(2, (*target, *trusted), "token")
        self.fail_with(3, (*target, "--token-file", token), "cannot reach")
        self.fail_with(3, ("benchmark", "--target", f"grpc://{place}/simple"), "cannot reach")
        self.fail_with(2, ("benchmark", "--target", "grpc://example.invalid:1/m", "--token-file", token),
                       "could read it")


if __name__ == "__main__":
    unittest.main()
