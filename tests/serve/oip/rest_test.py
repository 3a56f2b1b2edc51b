# SPDX-License-Identifier: Apache-2.0
"""atoll-serve over HTTP, as clients see it: bytes, forms, codes, limits, and what hostile ones do.

Environment: as tests/tools/atoll_command.py; ATOLL_SERVE, the program; ATOLL_SANITIZED, 1 if sanitizers keep
freed memory.
"""
import base64
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["ATOLL_SOURCE_DIR"], "tests/tools"))
from atoll_command import EMULATOR, FASHION_LABELS, FASHION_MODEL, SHARED, SOURCE, absent, run  # noqa: E402

SERVE = [EMULATOR, os.environ["ATOLL_SERVE"]] if EMULATOR else [os.environ["ATOLL_SERVE"]]
SIMPLE = SOURCE / "tests/models/simple.tflite"
SCENES = SOURCE / "models/scenes/scenes_int8.tflite"
CROPS = SOURCE / "models/crops/crops_int8.tflite"
SCHEMAS = json.loads((pathlib.Path(__file__).parent / "schemas.json").read_text())
LONG = 300 if not EMULATOR else 3000
FORMATS = {"BOOL": "?", "UINT8": "B", "INT8": "b", "INT16": "h", "INT32": "i", "UINT32": "I",
           "INT64": "q", "FP32": "f"}
LENGTH = "Inference-Header-Content-Length"
TOKEN = "correct-horse-battery-staple"
KINDS = {"object": dict, "array": list, "string": str, "integer": int}


def check_schema(value, schema, at="answer"):
    """The part of JSON Schema that schemas.json uses; "$ref" names one of it."""
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"]]
    if "enum" in schema:
        assert value in schema["enum"], f"{at}: {value!r}"
    if "type" in schema:
        kind = KINDS[schema["type"]]
        assert isinstance(value, kind) and not (kind is int and isinstance(value, bool)), f"{at}: {value!r}"
    if isinstance(value, dict):
        for name in schema.get("required", ()):
            assert name in value, f"{at}: no {name}"
        known = schema.get("properties", {})
        for name, member in value.items():
            assert name in known or schema.get("additionalProperties", True), f"{at}.{name}"
            if name in known:
                check_schema(member, known[name], f"{at}.{name}")
    if isinstance(value, list) and "items" in schema:
        for i, element in enumerate(value):
            check_schema(element, schema["items"], f"{at}[{i}]")


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self):
        return json.loads(self.body)


class Server:
    """The program with these options, on a port of its own."""

    def __init__(self, *options, environment=None, listen="127.0.0.1:0", grpc="none"):
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*SERVE, "--listen", listen, "--grpc", grpc, *map(str, options)], stdout=subprocess.PIPE, stderr=self.errors,
            env={**os.environ, **(environment or {})})
        line = self.process.stdout.readline().decode()
        match = re.search(r" at (https?)://127\.0\.0\.1:(\d+)/$", line.strip())
        if not match:
            self.process.wait(60)
            raise AssertionError(f"no server: {line}{self.stderr()}")
        self.port = int(match[2])
        if grpc != "none" and "gRPC at " not in self.process.stdout.readline().decode():
            self.process.wait(60)
            raise AssertionError(f"no gRPC: {self.stderr()}")

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read().decode()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)

    def ask(self, method, path, body=None, headers=None, connection=None):
        one = connection or self.connect()
        try:
            one.request(method, path, body, headers or {})
            return Answer(one.getresponse())
        finally:
            if connection is None:
                one.close()

    def get(self, path, **options):
        return self.ask("GET", path, **options)

    def infer(self, model, request, data=b"", **options):
        """A dictionary as JSON, then binary data; a request that is bytes is sent as it is."""
        text = request if isinstance(request, bytes) else json.dumps(request).encode()
        headers = {LENGTH: str(len(text))} if data else {}
        return self.ask("POST", f"/v2/models/{model}/infer", text + data, headers, **options)

    def socket(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=LONG)

    def stop(self):
        """Its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(LONG)
        self.process.stdout.close()
        self.errors.close()
        return code


class RestTest(unittest.TestCase):
    longMessage = True

    def serve(self, *options, **more):
        server = Server(*options, **more)

        def end():
            if server.process.poll() is None:
                self.assertEqual(server.stop(), 0)
        self.addCleanup(end)
        return server

    def folder(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        return pathlib.Path(place.name)

    def repository(self, **models):
        folder = self.folder()
        for name, file in models.items():
            (folder / name / "1").mkdir(parents=True)
            shutil.copy(file, folder / name / "1/model.tflite")
        return folder

    def check(self, answer, status, schema, says=""):
        self.assertEqual(answer.status, status, answer.body[:500])
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        value = answer.json()
        check_schema(value, SCHEMAS[schema])
        if says:
            self.assertIn(says, value["error"])
        return value

    def wait_for(self, condition, what):
        """What `condition` gives as soon as that is something."""
        end = time.monotonic() + LONG
        while not (value := condition()):
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.01)
        return value


def simple_request(**more):
    a, b = list(range(16)), [3] * 16
    return {"inputs": [{"name": "INPUT0", "shape": [1, 16], "datatype": "INT32", "data": a},
                       {"name": "INPUT1", "shape": [1, 16], "datatype": "INT32", "data": [b]}], **more}


def made_up(info, seed):
    """Bytes for a tensor of the metadata: of floats numbers from -1 to 1."""
    rng = random.Random(seed)
    count = 1
    for size in info["shape"]:
        count *= size
    if info["datatype"] == "FP32":
        return struct.pack(f"<{count}f", *(rng.uniform(-1, 1) for _ in range(count)))
    if info["datatype"] == "BOOL":
        return bytes(rng.randrange(2) for _ in range(count))
    return rng.randbytes(count * struct.calcsize(FORMATS[info["datatype"]]))


def values(datatype, data):
    form = FORMATS[datatype]
    return list(struct.unpack(f"<{len(data) // struct.calcsize(form)}{form}", data))


def from_values(datatype, numbers):
    return struct.pack(f"<{len(numbers)}{FORMATS[datatype]}", *numbers)


def binary_outputs(answer):
    size = int(answer.headers[LENGTH])
    head, rest = json.loads(answer.body[:size]), answer.body[size:]
    outputs = {}
    for output in head["outputs"]:
        count = output["parameters"]["binary_data_size"]
        outputs[output["name"]], rest = rest[:count], rest[count:]
    assert rest == b""
    return head, outputs


class Bytes(RestTest):
    """Every form gives the bytes that `atoll run` gives for the same input."""

    def compare(self, file, device):
        server = self.serve("--model", f"m={file}", "--device", device, "--allow-shared-memory")
        metadata = self.check(server.get("/v2/models/m"), 200, "model")
        place = self.folder()
        inputs = [made_up(info, i) for i, info in enumerate(metadata["inputs"])]
        options = []
        for i, data in enumerate(inputs):
            (place / f"in_{i}").write_bytes(data)
            options += ["--input", f"{i}={place / f'in_{i}'}"]
        result = run("run", file, "--device", device, *options, "--output-dir", place)
        self.assertEqual(result.code, 0, result.stderr)
        wanted = {info["name"]: (place / f"out_{i}.raw").read_bytes()
                  for i, info in enumerate(metadata["outputs"])}

        # JSON, flat and nested.
        for nest in (False, True):
            request = {"id": "x", "inputs": [
                {**info, "data": [values(info["datatype"], data)] if nest else values(info["datatype"], data)}
                for info, data in zip(metadata["inputs"], inputs)]}
            answer = self.check(server.infer("m", request), 200, "answer")
            self.assertEqual(answer["id"], "x")
            got = {o["name"]: from_values(o["datatype"], o["data"]) for o in answer["outputs"]}
            self.assertEqual(got, wanted, f"{file} JSON on {device}")
        # Binary.
        request = {"parameters": {"binary_data_output": True}, "inputs": [
            {**info, "parameters": {"binary_data_size": len(data)}}
            for info, data in zip(metadata["inputs"], inputs)]}
        answer = server.infer("m", request, b"".join(inputs))
        self.assertEqual(answer.status, 200, answer.body[:500])
        head, got = binary_outputs(answer)
        check_schema(head, SCHEMAS["answer"])
        self.assertEqual(got, wanted, f"{file} binary on {device}")
        # Raw.
        answer = server.ask("POST", "/v2/models/m/infer", b"".join(inputs), {LENGTH: "0"})
        if len(inputs) == 1:
            self.assertEqual(answer.status, 200, answer.body[:500])
            self.assertEqual(binary_outputs(answer)[1], wanted, f"{file} raw on {device}")
        else:
            self.check(answer, 400, "error", "raw")
        self.shared_memory(server, metadata, inputs, wanted)

    def shared_memory(self, server, metadata, inputs, wanted):
        name = f"atoll_rest_test_{os.getpid()}"
        path = pathlib.Path("/dev/shm") / name
        self.addCleanup(path.unlink, missing_ok=True)
        room = sum(map(len, inputs)) + sum(map(len, wanted.values()))
        path.write_bytes(bytes(room) + b"end")
        registered = server.ask("POST", "/v2/systemsharedmemory/region/r/register",
                                json.dumps({"key": "/" + name, "offset": 0, "byte_size": room}))
        self.assertEqual((registered.status, registered.body), (200, b""))
        status = self.check(server.get("/v2/systemsharedmemory/region/r/status"), 200, "regions")
        self.assertEqual(status, [{"name": "r", "key": "/" + name, "offset": 0, "byte_size": room}])
        position, request = 0, {"inputs": [], "outputs": []}
        with path.open("r+b") as file:
            file.write(b"".join(inputs))
        for info, data in zip(metadata["inputs"], inputs):
            request["inputs"].append({**info, "parameters": {
                "shared_memory_region": "r", "shared_memory_offset": position,
                "shared_memory_byte_size": len(data)}})
            position += len(data)
        where = {}
        for output, data in wanted.items():
            request["outputs"].append({"name": output, "parameters": {
                "shared_memory_region": "r", "shared_memory_offset": position,
                "shared_memory_byte_size": len(data)}})
            where[output] = position
            position += len(data)
        self.check(server.infer("m", request), 200, "answer")
        memory = path.read_bytes()
        for output, data in wanted.items():
            self.assertEqual(memory[where[output]:where[output] + len(data)], data, output)
        self.assertTrue(memory.endswith(b"end"))
        # A client that takes its memory away gets an error, and harms nobody.
        os.truncate(path, 1)
        self.check(server.infer("m", request), 400, "error", "truncated")
        self.assertEqual(server.ask("POST", "/v2/systemsharedmemory/unregister").status, 200)
        self.check(server.infer("m", request), 404, "error", "region 'r'")

    def test_simple(self):
        self.compare(SIMPLE, "cpu")

    def test_bundled_models(self):
        for file in (FASHION_MODEL, CROPS, SCENES):
            for device in ("cpu", "emu"):
                self.compare(file, device)

    def test_golden_models(self):
        names = ["hello_world_int8", "keras_lstm_mnist_ptq", "mlperf_tiny_kws_int8", "split_concat",
                 "mobilenet_v1_0.25_128_quant", "micro_speech_quantized"]
        files = [SHARED / "models" / f"{name}.tflite" for name in names]
        if not all(file.exists() for file in files):
            self.assertNotEqual(os.environ.get("ATOLL_REQUIRE_SHARED"), "1")
            absent("models", is_reference=True)
        for file in files:
            self.compare(file, "emu")

    def test_real_values(self):
        server = self.serve("--model", f"fashion={FASHION_MODEL}", "--device", "cpu")
        levels = [i % 256 - 128 for i in range(784)]
        stored = self.check(server.infer("fashion", {"inputs": [
            {"name": "image", "shape": [1, 28, 28, 1], "datatype": "INT8", "data": levels}]}), 200, "answer")
        scale = 0.003921568859368563
        real = self.check(server.infer("fashion", {
            "parameters": {"atoll_quantized": False},
            "inputs": [{"name": "image", "shape": [1, 28, 28, 1], "datatype": "FP32",
                        "data": [(level + 128) * scale for level in levels]}]}), 200, "answer")
        self.assertEqual(real["outputs"][0]["datatype"], "FP32")
        self.assertEqual(real["outputs"][0]["data"],
                         [(level + 128) * 0.00390625 for level in stored["outputs"][0]["data"]])

    def test_classes(self):
        folder = self.repository(fashion=FASHION_MODEL)
        shutil.copy(FASHION_LABELS, folder / "fashion/labels.txt")
        server = self.serve("--models", folder, "--device", "cpu")
        labels = FASHION_LABELS.read_text().splitlines()
        request = {"inputs": [{"name": "image", "shape": [1, 28, 28, 1], "datatype": "INT8", "data": [0] * 784}]}
        plain = server.infer("fashion", request).json()["outputs"][0]["data"]
        request["outputs"] = [{"name": "probabilities", "parameters": {"classification": 3}}]
        output = self.check(server.infer("fashion", request), 200, "answer")["outputs"][0]
        order = sorted(range(10), key=lambda i: (-plain[i], i))[:3]
        self.assertEqual(output["datatype"], "BYTES")
        self.assertEqual(output["data"], [f"{(plain[i] + 128) / 256:f}:{i}:{labels[i]}" for i in order])
        request["outputs"][0]["parameters"]["binary_data"] = True
        _, outputs = binary_outputs(server.infer("fashion", request))
        self.assertEqual(outputs["probabilities"], b"".join(
            struct.pack("<I", len(text)) + text.encode() for text in output["data"]))


class Protocol(RestTest):
    def setUp(self):
        self.models = self.repository(simple=SIMPLE, fashion=FASHION_MODEL)
        self.server = self.serve("--models", self.models, "--device", "cpu", "--model-control", "explicit")

    def test_metadata(self):
        server = self.server
        self.assertIn("binary_tensor_data", self.check(server.get("/v2"), 200, "server")["extensions"])
        self.check(server.get("/v2/"), 200, "server")
        self.assertEqual(server.get("/v2/health/live").json(), {"live": True})
        self.assertEqual(server.get("/v2/health/ready").json(), {"ready": True, "live": True})
        model = self.check(server.get("/v2/models/simple"), 200, "model")
        self.assertEqual(model["versions"], ["1"])
        self.assertEqual(model["inputs"][0], {"name": "INPUT0", "datatype": "INT32", "shape": [1, 16]})
        self.check(server.get("/v2/models/simple/versions/1"), 200, "model")
        self.check(server.get("/v2/models/s%69mple"), 200, "model")
        self.assertEqual(server.get("/v2/models/simple/ready").json(), {"name": "simple", "ready": True})
        self.assertEqual(server.get("/v2/models/nope/ready").status, 400)
        config = self.check(server.get("/v2/models/fashion/config"), 200, "config")
        self.assertEqual((config["max_batch_size"], config["input"][0]["dims"], config["input"][0]["format"]),
                         (1, [28, 28, 1], "FORMAT_NHWC"))
        head = server.ask("HEAD", "/v2")
        self.assertEqual((head.status, head.body), (200, b""))

    def test_statistics_and_metrics(self):
        server = self.server
        for _ in range(3):
            self.check(server.infer("simple", simple_request()), 200, "answer")
        self.check(server.infer("simple", {"inputs": []}), 400, "error")
        for path in ("/v2/models/simple/stats", "/v2/models/simple/versions/1/stats"):
            [one] = self.check(server.get(path), 200, "statistics")["model_stats"]
            self.assertEqual(one["inference_count"], 3)
            self.assertEqual(one["inference_stats"]["success"]["count"], 3)
            self.assertEqual(one["inference_stats"]["fail"]["count"], 1)
        self.assertEqual(len(self.check(server.get("/v2/models/stats"), 200, "statistics")["model_stats"]), 2)
        text = server.get("/metrics").body.decode()
        self.assertIn('nv_inference_request_success{model="simple",version="1"} 3\n', text)
        for line in text.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) [a-z_0-9]+ .+|[a-z_0-9]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? \S+)$')

    def test_answers_say_what_was_asked(self):
        answer = self.check(self.server.infer("simple", simple_request(
            id="42", outputs=[{"name": "OUTPUT1"}], model_name="ignored", other={"x": [[{}]]})), 200, "answer")
        self.assertEqual((answer["id"], answer["model_name"], answer["model_version"]), ("42", "simple", "1"))
        [output] = answer["outputs"]
        self.assertEqual((output["name"], output["data"]), ("OUTPUT1", [i - 3 for i in range(16)]))
        self.assertNotIn("id", self.server.infer("simple", simple_request()).json())

    def test_one_input_binary_and_one_json(self):
        request = simple_request(outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": True}},
                                          {"name": "OUTPUT1", "parameters": {"binary_data": False}}])
        del request["inputs"][1]["data"]
        request["inputs"][1]["parameters"] = {"binary_data_size": 64}
        answer = self.server.infer("simple", request, from_values("INT32", [5] * 16))
        size = int(answer.headers[LENGTH])
        head = json.loads(answer.body[:size])
        self.assertEqual(values("INT32", answer.body[size:]), [i + 5 for i in range(16)])
        self.assertEqual(head["outputs"][1]["data"], [i - 5 for i in range(16)])

    def test_codes(self):
        ask = self.server.ask
        cases = [("GET", "/nope", 404), ("GET", "/v2/nope", 404), ("GET", "/v2/models/nope", 404),
                 ("GET", "/v2/models/nope/stats", 404), ("POST", "/v2/models/nope/infer", 404),
                 ("GET", "/v2/models/simple/versions/2", 404), ("GET", "/v2/models/simple/versions/x", 400),
                 ("GET", "/v2/models/simple/versions/01", 400), ("GET", "/v2/models/simple/nope", 404),
                 ("GET", "/v2/models/..", 400), ("GET", "/v2/models/%2e%2e/config", 400),
                 ("GET", "/v2/models/a%2fb", 400), ("GET", "/v2/models/%00", 400),
                 ("GET", "/v2/models/%zz", 400), ("GET", "/v2/models/x%", 400),
                 ("GET", "/v2/models/simple/infer", 405), ("POST", "/v2/models/simple", 405),
                 ("DELETE", "/v2/models/simple", 405), ("GET", "/v2/repository/index", 405),
                 ("POST", "/v2/repository/models/..%2fx/load", 400),
                 ("POST", "/v2/repository/models/nope/load", 404),
                 ("POST", "/v2/repository/models/nope/unload", 404),
                 ("POST", "/v2/cudasharedmemory/region/r/register", 501),
                 ("POST", "/v2/systemsharedmemory/region/r/register", 403)]
        self.assertEqual(ask("GET", "/v2/cudasharedmemory/status").json(), [])
        self.assertEqual(ask("POST", "/v2/cudasharedmemory/unregister").status, 200)
        for method, path, status in cases:
            answer = ask(method, path, b"{}" if method == "POST" else None)
            self.check(answer, status, "error")
            self.assertEqual("Allow" in answer.headers, status == 405, path)

    def test_bad_requests(self):
        def with_input(**changes):
            request = simple_request()
            request["inputs"][0].update(changes)
            return {**request, "inputs": [{k: v for k, v in one.items() if v is not None}
                                          for one in request["inputs"]]}
        data = list(range(16))
        cases = [
            (b"", "JSON"), (b"{", "JSON"), (b"[]", "no object"), (b"1", "no object"), (b"nan", "JSON"),
            (b'{"inputs": [{"name": "\xff"}]}', "JSON"), (b"{} x", "JSON"), (b"{}", "no \"inputs\""),
            (b'{"id": 1, "inputs": []}', "\"id\""), (b'{"inputs": {}}', "no array"),
            (b'{"inputs": [1]}', "no object"), (b'{"inputs": []}', "missing"),
            (b'{"inputs": ' + b"[" * 100_000, "no object"),
            (b'{"x": ' + b"[" * 200 + b"]" * 200 + b"}", "100 deep"),
            (b'{"inputs": [{"data": ' + b"[" * 200 + b"]" * 200 + b"}]}", "100 deep"),
            (with_input(name="x"), "no input 'x'"), (with_input(name=None), "no \"name\""),
            (with_input(name="INPUT1"), "twice"), (with_input(datatype="INT31"), "INT31"),
            (with_input(datatype=None), "no \"datatype\""), (with_input(datatype="FP32"), "INT32, not FP32"),
            (with_input(datatype="FP16"), "FP16"), (with_input(datatype="BYTES"), "BYTES"),
            (with_input(shape=None), "no \"shape\""), (with_input(shape=[16]), "[1,16]"),
            (with_input(shape=[-1, -16]), "\"shape\""), (with_input(shape=[1, 1.5]), "\"shape\""),
            (with_input(shape=[2**62, 2**62]), "16 elements"), (with_input(shape=[2**70]), "\"shape\""),
            (with_input(shape=[1] * 40), "\"shape\""), (with_input(data=None), "one of \"data\""),
            (with_input(data=data[:15]), "15 elements"), (with_input(data=data + [1]), "more than 16"),
            (with_input(data=["a"] * 16), "no number"), (with_input(data=[None] * 16), "no number"),
            (with_input(data=[2**31] * 16), "INT32"), (with_input(data=[-2**31 - 1] * 16), "INT32"),
            (with_input(data=[2**64] * 16), "INT32"), (with_input(data=[0.5] * 16), "INT32"),
            (with_input(data=[True] * 16), "true or false"), (with_input(data={"a": 1}), "no array"),
            (with_input(data=None, parameters={"binary_data_size": 64}), LENGTH),
            (with_input(parameters={"binary_data_size": 64}), "one of \"data\""),
            (with_input(data=None, parameters={"binary_data_size": -1}), "whole number"),
            (with_input(data=None, parameters={"shared_memory_region": "r"}), "byte_size"),
            (simple_request(outputs=[{"name": "x"}]), "no output 'x'"), (simple_request(outputs=[{}]), "no \"name\""),
            (simple_request(outputs=[{"name": "OUTPUT0"}] * 3), "2 outputs"),
            (simple_request(outputs=[{"name": "OUTPUT0"}] * 2), "second output"),
            (simple_request(parameters={"priority": -1}), "priority"),
            (simple_request(parameters={"timeout": "1"}), "timeout"),
            (simple_request(parameters={"atoll_quantized": 1}), "atoll_quantized"),
            (simple_request(parameters=[]), "no object"),
            ({**simple_request(), "inputs": simple_request()["inputs"] * 2}, "2 inputs"),
        ]
        with_connection = self.server.connect()
        for request, says in cases:
            answer = self.server.infer("simple", request, connection=with_connection)
            self.assertEqual(answer.status, 400, (request if isinstance(request, dict) else request[:80], answer.body))
            self.check(answer, 400, "error", says)
        with_connection.close()
        self.check(self.server.infer("simple", simple_request(parameters={"sequence_id": 7})), 501, "error")
        shared = with_input(data=None, parameters={"shared_memory_region": "r", "shared_memory_byte_size": 64})
        self.check(self.server.infer("simple", shared), 403, "error", "--allow-shared-memory")
        self.check(self.server.infer("simple", simple_request()), 200, "answer")

    def test_bad_binary_sizes(self):
        request = {"inputs": [{"name": "image", "shape": [1, 28, 28, 1], "datatype": "INT8",
                               "parameters": {"binary_data_size": 784}}]}
        text = json.dumps(request).encode()
        for size in ("-1", "x", "99999999999999999999999", str(len(text) + 785), "1.5", "0x10", " "):
            answer = self.server.ask("POST", "/v2/models/fashion/infer", text + bytes(784), {LENGTH: size})
            # Without a number the JSON is all of the body.
            self.check(answer, 400, "error")
        for count in (0, 783, 785, 10_000):
            answer = self.server.ask("POST", "/v2/models/fashion/infer", text + bytes(count), {LENGTH: str(len(text))})
            self.check(answer, 400, "error")
        for count in (0, 783, 785):
            answer = self.server.ask("POST", "/v2/models/fashion/infer", bytes(count), {LENGTH: "0"})
            self.check(answer, 400, "error", f"784 bytes, not {count}")

    def test_repository(self):
        server = self.server

        def index(**request):
            return {(one["name"], one.get("version", "")): one["state"] for one in self.check(
                server.ask("POST", "/v2/repository/index", json.dumps(request)), 200, "index")}
        self.assertEqual(index(), {("simple", "1"): "READY", ("fashion", "1"): "READY"})
        (self.models / "simple/2").mkdir()
        shutil.copy(SIMPLE, self.models / "simple/2/model.tflite")
        loaded = server.ask("POST", "/v2/repository/models/simple/load")
        self.assertEqual((loaded.status, loaded.body), (200, b""))
        self.assertEqual(index(ready=True), {("simple", "2"): "READY", ("fashion", "1"): "READY"})
        self.assertEqual(server.ask("POST", "/v2/repository/models/fashion/unload").status, 200)
        self.assertEqual(index(), {("simple", "2"): "READY", ("fashion", ""): "UNAVAILABLE"})
        self.assertEqual(index(ready=True), {("simple", "2"): "READY"})
        # Triton's clients look for how these begin.
        self.assertRegex(self.check(server.get("/v2/models/fashion"), 404, "error")["error"],
                         r"\ARequest for unknown model")
        self.assertRegex(self.check(server.ask("POST", "/v2/repository/models/nope/load"), 404, "error")["error"],
                         r"\Afailed to load 'nope'")
        upload = {"parameters": {"config": json.dumps({"max_batch_size": 7, "comment": "mine"}),
                                 "file:5/model.tflite": base64.b64encode(SIMPLE.read_bytes()).decode()}}
        self.assertEqual(server.ask("POST", "/v2/repository/models/up/load", json.dumps(upload)).status, 200)
        self.assertEqual(self.check(server.get("/v2/models/up"), 200, "model")["versions"], ["5"])
        config = self.check(server.get("/v2/models/up/config"), 200, "config")
        self.assertEqual((config["comment"], config["max_batch_size"]), ("mine", 1))
        self.check(server.infer("up", simple_request()), 200, "answer")
        for name, parameters in (
                ("bad", {"file:1/model.tflite": "****"}), ("bad", {"file:../x": ""}), ("bad", {"nope": ""}),
                ("simple", {"config": "["}), ("simple", {"config": "[]"}), ("simple", {"config": 1}),
                ("bad", {"file:1/model.tflite": base64.b64encode(b"no model" * 100).decode()})):
            answer = server.ask("POST", f"/v2/repository/models/{name}/load", json.dumps({"parameters": parameters}))
            self.check(answer, 400, "error")
        self.check(server.infer("simple", simple_request()), 200, "answer")
        self.check(server.ask("POST", "/v2/repository/models/bad/load", b"["), 400, "error")
        self.check(server.get("/v2/models/bad"), 404, "error")

    def test_page(self):
        page = self.server.get("/")
        self.assertEqual(page.status, 200)
        self.assertIn("frame-ancestors 'none'", page.headers["Content-Security-Policy"])
        for path in re.findall(rb'(?:href|src)="([^"]+)"', page.body):
            self.assertEqual(self.server.get("/" + path.decode()).status, 200, path)
        state = self.server.get("/state").json()
        self.assertEqual([model["name"] for model in state["models"]], ["fashion", "simple"])

    def test_curl_with_expect(self):
        body = self.folder() / "body"
        text = json.dumps(simple_request(comment="x" * 2_000_000))
        body.write_text(text)
        done = subprocess.run(["curl", "-s", "-v", f"http://127.0.0.1:{self.server.port}/v2/models/simple/infer",
                               "--data-binary", f"@{body}"], capture_output=True, timeout=LONG, check=True)
        self.assertIn(b"100 Continue", done.stderr)
        check_schema(json.loads(done.stdout), SCHEMAS["answer"])


class Hostile(RestTest):
    def test_large_bodies_are_refused_before_they_come(self):
        server = self.serve("--model", f"simple={SIMPLE}", "--device", "cpu", "--max-body", 100_000)
        with server.socket() as client:
            client.sendall(b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: localhost\r\n"
                           b"Content-Length: 104857600\r\n\r\n")
            self.assertTrue(client.recv(4096).startswith(b"HTTP/1.1 413 "))
        # One who sends all of it nevertheless hears the same.
        self.check(server.infer("simple", b"x" * 104_857_600), 413, "error", "100000")
        self.check(server.infer("simple", b"x" * 100_000), 400, "error")
        self.check(server.infer("simple", simple_request()), 200, "answer")

    def test_a_body_of_100_megabytes_within_limits(self):
        server = self.serve("--model", f"simple={SIMPLE}", "--device", "cpu", "--max-body", 200_000_000)
        request = simple_request(comment="x" * 100_000_000)
        self.check(server.infer("simple", request), 200, "answer")
        # Numbers without end take no memory of their own: the first too many ends it.
        many = b'{"inputs":[{"name":"INPUT0","data":[' + b"0," * 50_000_000 + b"0]}]}"
        self.check(server.infer("simple", many), 400, "error", "more than 16")
        self.assert_peak(server, 600_000)

    def assert_peak(self, server, most_kb):
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        peak_kb = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])
        if not EMULATOR and os.environ.get("ATOLL_SANITIZED") != "1":
            self.assertLess(peak_kb, most_kb)

    def test_uploads_of_many_small_values(self):
        # As values of JSON each would take twenty times its bytes.
        many = b"[" + b"{}," * 10_000_000 + b"0]"
        load = "/v2/repository/models/m/load"
        server = self.serve("--model", f"simple={SIMPLE}", "--device", "cpu")
        with server.socket() as client:  # hears of it before it sends them
            client.sendall(b"POST " + load.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                           + str(len(many)).encode() + b"\r\n\r\n")
            self.assertTrue(client.recv(4096).startswith(b"HTTP/1.1 403 "))
        self.check(server.ask("POST", load, many), 403, "error", "--model-control explicit")
        self.assert_peak(server, 100_000)
        server = self.serve("--model", f"simple={SIMPLE}", "--device", "cpu", "--model-control", "explicit")
        self.check(server.ask("POST", load, many), 400, "error", "no object")
        self.check(server.ask("POST", load, b'{"parameters":{"config":' + many + b"}}"), 400, "error", "no text")
        self.check(server.ask("POST", load, b'{"x":' + many + b"}"), 404, "error", "'m'")
        names = {f"file:{i}": "" for i in range(1001)}
        self.check(server.ask("POST", load, json.dumps({"parameters": names})), 400, "error", "more than 1000")
        self.assert_peak(server, 200_000)

    def test_hundreds_of_connections(self):
        server = self.serve("--model", f"simple={SIMPLE}", "--device", "cpu", "--max-connections", 300)
        idle = [server.socket() for _ in range(250)]
        half = []
        for _ in range(40):  # have sent a part of a request
            one = server.socket()
            one.sendall(b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
            half.append(one)
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda _: server.infer("simple", simple_request()).status, range(200)))
        self.assertEqual(set(answers), {200})
        for one in idle + half:
            one.close()
        self.check(server.infer("simple", simple_request()), 200, "answer")

    def test_clients_that_go_in_the_middle(self):
        server = self.serve("--model", f"simple={SIMPLE}", "--device", "cpu")
        text = json.dumps(simple_request()).encode()
        whole = (b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                 + str(len(text)).encode() + b"\r\n\r\n" + text)
        for size in range(0, len(whole) + 1, 7):
            with server.socket() as client:
                client.sendall(whole[:size])
                if size % 2:  # gone without a word
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.check(server.infer("simple", simple_request()), 200, "answer")
        self.assertEqual(server.process.poll(), None)

    def test_random_damage(self):
        seed = int(os.environ.get("ATOLL_TEST_SEED", "1"))
        rng = random.Random(seed)
        server = self.serve("--model", f"simple={SIMPLE}", "--model", f"fashion={FASHION_MODEL}", "--device", "cpu")
        texts = [json.dumps(simple_request(id="x", parameters={"priority": 1})).encode(), json.dumps({"inputs": [
            {"name": "image", "shape": [1, 28, 28, 1], "datatype": "INT8",
             "parameters": {"binary_data_size": 784}}]}).encode() + bytes(784)]
        connection = server.connect()
        for i in range(int(2000 * float(os.environ.get("ATOLL_TEST_SCALE", "1")))):
            text = bytearray(texts[i % 2])
            for _ in range(rng.randrange(1, 4)):
                at = rng.randrange(len(text))
                what = rng.randrange(3)
                if what == 0:
                    text[at] = rng.choice(b'{}[]",:0-9.eE\\\x00\xff')
                elif what == 1:
                    del text[at:at + rng.randrange(1, 20)]
                else:
                    text[at:at] = text[:rng.randrange(20)]
                if not text:
                    break
            headers = {LENGTH: str(rng.choice([len(text) - 784, 0, 10, len(text)]))} if i % 2 else {}
            path = f"/v2/models/{'fashion' if i % 2 else 'simple'}/infer"
            answer = server.ask("POST", path, bytes(text), headers, connection=connection)
            self.assertIn(answer.status, (200, 400, 501), f"seed {seed}, request {i}")
        connection.close()
        self.assertEqual(server.process.poll(), None)


class Load(RestTest):
    def test_reload_without_a_failed_request(self):
        models = self.repository(simple=SIMPLE)
        server = self.serve("--models", models, "--device", "cpu", "--model-control", "explicit")
        stop = threading.Event()
        done, bad = [0] * 4, []

        def client(number):
            connection = server.connect()
            while not stop.is_set():
                answer = server.infer("simple", simple_request(), connection=connection)
                if answer.status != 200 or answer.json()["outputs"][0]["data"] != [i + 3 for i in range(16)]:
                    bad.append(answer.body)
                done[number] += 1
            connection.close()
        threads = [threading.Thread(target=client, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for version in range(2, 22):
            (models / f"simple/{version}").mkdir()
            shutil.copy(SIMPLE, models / f"simple/{version}/model.tflite")
            self.assertEqual(server.ask("POST", "/v2/repository/models/simple/load").status, 200)
            before = sum(done)
            self.wait_for(lambda b=before: sum(done) >= b + 20 or bad, "requests while it is loaded")
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(bad, [])

    def slow(self, *options):
        """A server whose model takes about half a second, and a request to it."""
        server = self.serve("--model", f"slow={SCENES}", "--device", "emu+stepped", *options)
        [info] = self.check(server.get("/v2/models/slow"), 200, "model")["inputs"]
        return server, made_up(info, 1), info

    def statistics(self, server):
        return server.get("/v2/models/slow/stats").json()["model_stats"][0]

    def active(self, server):
        return [one["running"] for one in server.get("/state").json()["active"]]

    def at_once(self, server, pool, count, ask):
        """Futures of `count` requests that the server has at the same time. It may have answered the first before it
        reads the last: then all are sent again."""
        asked = []

        def are_there():
            if all(one.done() for one in asked):
                asked[:] = [pool.submit(ask) for _ in range(count)]
            return len(self.active(server)) == count
        self.wait_for(are_there, f"{count} requests at once")
        return asked

    def test_deadlines(self):
        server, raw, info = self.slow("--max-queue", 8)
        text = {"inputs": [{**info, "parameters": {"binary_data_size": len(raw)}}]}

        def ask(timeout_us=0):
            return server.infer("slow", {**text, "parameters": {"timeout": timeout_us}}, raw)
        begun = time.monotonic()
        self.assertEqual(ask().status, 200)  # now it knows how long it takes
        once_us = int((time.monotonic() - begun) * 1e6)

        def is_refused():
            """As long as one takes is far too short behind six, unless they are done when the server reads it."""
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                waiting = self.at_once(server, pool, 6, ask)
                behind = ask(once_us)
                self.assertEqual({one.result().status for one in waiting}, {200})
            if behind.status != 503:
                return False
            self.check(behind, 503, "error", "busy")
            self.assertGreaterEqual(int(behind.headers["Retry-After"]), 1)
            return True
        self.wait_for(is_refused, "a refusal of what cannot be in time")
        # Alone, but too short for the model: it is refused at once, or its time is over in the middle.
        late = ask(1)
        self.assertIn(late.status, (503, 504), late.body)
        self.assertEqual(ask(10**9).status, 200)

    def test_a_full_queue(self):
        server, raw, _ = self.slow("--max-queue", 2)

        def ask(*_):
            return server.ask("POST", "/v2/models/slow/infer", raw, {LENGTH: "0"})

        def is_full():
            """Twelve at once are too many, unless some are done before the others come."""
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                first = self.at_once(server, pool, 1, ask)
                answers = [*pool.map(ask, range(11)), first[0].result()]
            codes = [answer.status for answer in answers]
            self.assertLessEqual(set(codes), {200, 503})
            self.assertGreaterEqual(codes.count(200), 3)
            for answer in answers:
                self.assertEqual("Retry-After" in answer.headers, answer.status == 503)
            return 503 in codes
        self.wait_for(is_full, "a refusal by a full queue")

    def test_who_goes_is_not_computed_for(self):
        server, raw, _ = self.slow()
        request = (b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: localhost\r\n" + LENGTH.encode() +
                   b": 0\r\nContent-Length: " + str(len(raw)).encode() + b"\r\n\r\n" + raw)

        def counts():
            stats = self.statistics(server)["inference_stats"]
            return stats["success"]["count"], stats["fail"]["count"]

        def are_cancelled():
            """Of four, three go; whether none of them had been computed by then."""
            good, bad = counts()
            clients = [server.socket() for _ in range(4)]
            for client in clients:
                client.sendall(request)
            self.wait_for(lambda: len(self.active(server)) == 4 or counts() != (good, bad), "four requests")
            for client in clients[1:]:
                client.close()
            self.assertTrue(clients[0].recv(100).startswith(b"HTTP/1.1 200 "))
            clients[0].close()
            self.wait_for(lambda: sum(counts()) >= good + bad + 4, "the end of all four")
            return counts() == (good + 1, bad + 3)
        self.wait_for(are_cancelled, "three requests that are not computed")

    def test_sigterm_finishes_what_is_under_way(self):
        server, raw, _ = self.slow()
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            waiting = self.at_once(server, pool, 3, lambda: server.ask(
                "POST", "/v2/models/slow/infer", raw, {LENGTH: "0"}))
            self.assertEqual(server.stop(), 0)
            self.assertEqual([one.result().status for one in waiting], [200] * 3)


class Access(RestTest):
    def certificates(self):
        folder = self.folder()

        def openssl(*words):
            subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test CA", "-days", "2")
        for name in ("server", "client"):
            openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
            (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                    "-CAcreateserial", "-out", f"{name}.pem", "-days", "2", "-extfile", "names")
        return folder

    def refused(self, *options, says, **environment):
        done = subprocess.run([*SERVE, "--model", f"simple={SIMPLE}", "--device", "cpu", *map(str, options)],
                              capture_output=True, text=True, timeout=LONG, check=False,
                              env={**os.environ, **environment})
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertRegex(done.stderr, r"\Aatoll-serve: [^\n]+\.\n\Z")
        self.assertIn(says, done.stderr)

    def test_other_addresses_need_tls_and_a_credential(self):
        keys = self.certificates()
        tls = ["--tls-cert", keys / "server.pem", "--tls-key", keys / "server.key"]
        outside = ["--listen", "0.0.0.0:0"]
        token = keys / "token"
        token.write_text(TOKEN + "\n")
        self.refused(*outside, says="--tls-cert")
        self.refused(*outside, "--token-file", token, says="--tls-cert")
        self.refused(*outside, *tls, says="--token-file")
        self.refused(*outside, *tls, "--token-file", keys / "nope", says="nope")
        self.refused(*outside, "--tls-cert", keys / "server.pem", says="--tls-key")
        self.refused("--client-ca", keys / "ca.pem", says="--client-ca")
        self.refused("--tls-cert", token, "--tls-key", token, says="token")
        self.refused(*outside, *tls, says="16 to 4096", ATOLL_SERVE_TOKEN="short")
        for options in ([*tls, "--token-file", token], [*tls, "--client-ca", keys / "ca.pem"], ["--insecure"]):
            server = self.serve("--model", f"simple={SIMPLE}", "--device", "cpu", *options, listen="0.0.0.0:0")
            self.assertEqual(server.stop(), 0)

    def test_a_token(self):
        server = self.serve("--model", f"simple={SIMPLE}", "--device", "cpu", environment={"ATOLL_SERVE_TOKEN": TOKEN})

        def ask(headers):
            return server.get("/v2/models/simple", headers=headers)
        for headers in ({}, {"Authorization": TOKEN}, {"Authorization": "Bearer "},
                        {"Authorization": "Bearer " + TOKEN[:-1]}, {"Authorization": "Bearer " + TOKEN + "x"},
                        {"Authorization": "Basic " + TOKEN}):
            answer = ask(headers)
            self.check(answer, 401, "error", "token")
            self.assertEqual(answer.headers["WWW-Authenticate"], "Bearer")
        self.check(ask({"Authorization": "Bearer " + TOKEN}), 200, "model")
        self.assertEqual(server.get("/v2/health/ready").status, 200)
        self.assertEqual(server.get("/").status, 200)
        self.check(server.get("/state"), 401, "error")
        self.check(server.get("/metrics"), 401, "error")
        command = pathlib.Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
        self.assertNotIn(TOKEN.encode(), command)

    def test_tls_and_client_certificates(self):
        keys = self.certificates()
        token = keys / "token"
        token.write_text(TOKEN)
        server = self.serve("--model", f"simple={SIMPLE}", "--device", "cpu", "--tls-cert", keys / "server.pem",
                            "--tls-key", keys / "server.key", "--client-ca", keys / "ca.pem", "--token-file", token)
        plain = ssl.create_default_context(cafile=keys / "ca.pem")
        known = ssl.create_default_context(cafile=keys / "ca.pem")
        known.load_cert_chain(keys / "client.pem", keys / "client.key")

        def ask(context, headers=None, body=None):
            connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=LONG)
            self.addCleanup(connection.close)
            path = "/v2/models/simple" + ("/infer" if body else "")
            return server.ask("POST" if body else "GET", path, body, headers, connection=connection)
        self.check(ask(plain), 401, "error")
        self.check(ask(plain, {"Authorization": "Bearer " + TOKEN}), 200, "model")
        self.check(ask(known), 200, "model")
        long = json.dumps(simple_request(comment="x" * 3_000_000)).encode()
        self.check(ask(known, body=long), 200, "answer")
        # Without TLS there is no answer.
        with server.socket() as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            try:
                self.assertFalse(client.recv(100).startswith(b"HTTP"))
            except ConnectionResetError:
                pass
        self.check(ask(known), 200, "model")

    def test_pages_of_others(self):
        server = self.serve("--model", f"simple={SIMPLE}", "--device", "cpu", "--serve-name", "camera.lan")
        here = f"127.0.0.1:{server.port}"
        cases = [({"Host": here}, 200), ({"Host": "localhost"}, 200), ({"Host": "camera.lan:1"}, 200),
                 ({"Host": "evil.example"}, 421), ({"Host": "192.168.0.1"}, 421),
                 ({"Host": here, "Origin": f"http://{here}"}, 200),
                 ({"Host": here, "Origin": "http://evil.example"}, 403),
                 ({"Host": here, "Origin": "null"}, 403),
                 ({"Host": here, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
                 ({"Host": here, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate",
                   "Sec-Fetch-Dest": "document"}, 200),
                 ({"Host": here, "Sec-Fetch-Site": "same-origin"}, 200)]
        for headers, status in cases:
            self.assertEqual(server.get("/v2", headers=headers).status, status, headers)

    def test_unix_sockets(self):
        path = self.folder() / "serve.sock"
        self.serve("--model", f"simple={SIMPLE}", "--device", "cpu", "--listen", f"unix:{path}")
        done = subprocess.run(["curl", "-s", "--unix-socket", path, "http://any/v2/models/simple"],
                              capture_output=True, timeout=LONG, check=True)
        check_schema(json.loads(done.stdout), SCHEMAS["model"])

    def test_models_stay_as_they_are_without_control(self):
        server = self.serve("--model", f"simple={SIMPLE}", "--device", "cpu")
        self.check(server.ask("POST", "/v2/repository/models/simple/unload"), 403, "error", "--model-control")
        self.check(server.ask("POST", "/v2/repository/models/simple/load"), 403, "error", "--model-control")

    def test_the_command_starts_it_or_says_what_is_missing(self):
        done = run("serve", "--help")
        self.assertEqual(done.code, 0, done.stderr)
        self.assertIn("--model-control", done.stdout)
        self.assertEqual(run("serve", "--nope").code, 2)
        if EMULATOR:
            return
        alone = self.folder() / "atoll"
        shutil.copy(os.environ["ATOLL_COMMAND"], alone)
        done = subprocess.run([alone, "serve"], capture_output=True, text=True, timeout=LONG, check=False,
                              env={**os.environ, "PATH": "/nonexistent"})
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"\Aatoll: there is no atoll-serve [^\n]*libevent-dev[^\n]*\.\n\Z")

    def test_command_line(self):
        self.refused("--listen", "nonsense", says="ADDRESS:PORT")
        self.refused("--model", "nonsense", says="NAME=FILE")
        self.refused("--nope", says="--help")
        done = subprocess.run([*SERVE, "--device", "cpu"], capture_output=True, text=True, timeout=LONG, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        done = subprocess.run([*SERVE, "--model", f"simple={SIMPLE}", "--device", "nonsense"], capture_output=True,
                              text=True, timeout=LONG, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"\Aatoll-serve: [^\n]+\.\n\Z")


if __name__ == "__main__":
    unittest.main()
