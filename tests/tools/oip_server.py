# SPDX-License-Identifier: Apache-2.0
"""A server of the Open Inference Protocol, version 2, for tests of its clients: it answers what it
is told to, and keeps what it was sent. Facts: kserve/open-inference-protocol, inference_rest.md;
binary tensors: triton-inference-server/server, extension_binary_data.md."""
import http.server
import json
import ssl
import threading
import urllib.parse

HEAD = "Inference-Header-Content-Length"


class Model:
    """One model; `answer(inputs)` gets the bytes of each and returns those of the output."""

    def __init__(self, inputs, output, answer=None):
        self.inputs = inputs  # (name, datatype, shape) each
        self.output = output
        size = {"INT8": 1, "UINT8": 1, "FP32": 4}.get(output[1], 1)
        for dim in output[2]:
            size *= dim
        self.answer = answer or (lambda inputs: bytes(size))


class Server:
    """With `with`: serves on a port of its own until the end.

    requests: (path, headers, body) of each inference; peers: the addresses that they came from;
    before: called with the number of a request before it is answered, and may return a status and
    a body to be sent instead, or "close"; description: sent instead of a model's description;
    certificate: the files of a certificate and its key, for TLS; token: what a client must have.
    """

    def __init__(self, models, before=None, description=None, index=None, certificate=None,
                 token=None):
        self.models = models
        self.before = before or (lambda number: None)
        self.description = description
        self.index = index
        self.scheme = "oips" if certificate else "oip"
        self.requests = []
        self.peers = set()
        self.lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1  # an answer is one packet

            def log_message(self, *_):
                pass

            def reply(self, status, body, headers=()):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                self.wfile.flush()

            def is_stranger(self):
                if token and self.headers.get("Authorization") != f"Bearer {token}":
                    self.reply(401, b'{"error": "who is there?"}')
                    return True
                return False

            def do_GET(self):
                if self.is_stranger():
                    return
                name = urllib.parse.unquote(self.path.removeprefix("/v2/models/"))
                if outer.description is not None:
                    self.reply(200, outer.description)
                elif name not in outer.models:
                    self.reply(404, json.dumps({"error": f"no model '{name}'"}).encode())
                else:
                    self.reply(200, json.dumps({"name": name, "platform": "test", "inputs": [
                        {"name": input_name, "datatype": datatype, "shape": shape}
                        for input_name, datatype, shape in outer.models[name].inputs],
                        "outputs": []}).encode())

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.is_stranger():
                    return
                if self.path == "/v2/repository/index":
                    self.reply(200, outer.index if outer.index is not None else json.dumps(
                        [{"name": name, "state": "READY"} for name in outer.models]).encode())
                    return
                with outer.lock:
                    number = len(outer.requests)
                    outer.requests.append((self.path, dict(self.headers), body))
                    outer.peers.add(self.client_address)
                instead = outer.before(number)
                if instead == "close":
                    self.close_connection = True
                    return
                if instead is not None:
                    self.reply(*instead)
                    return
                self.infer(body)

            def infer(self, body):
                name = urllib.parse.unquote(self.path.split("/")[3])
                model = outer.models[name]
                head = int(self.headers[HEAD])
                if head == 0:
                    inputs = [body]
                else:
                    inputs, at = [], head
                    for tensor in json.loads(body[:head])["inputs"]:
                        size = tensor["parameters"]["binary_data_size"]
                        inputs.append(body[at:at + size])
                        at += size
                output = model.answer(inputs)
                answer = json.dumps({"model_name": name, "outputs": [
                    {"name": model.output[0], "datatype": model.output[1],
                     "shape": model.output[2],
                     "parameters": {"binary_data_size": len(output)}}]}).encode()
                self.reply(200, answer + output, [(HEAD, str(len(answer)))])

        class Threads(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_):
                pass  # clients that end before their answer are part of the tests

        self.server = Threads(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True,
                                                     do_handshake_on_connect=False)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={
            "poll_interval": 0.05})

    @property
    def address(self):
        return f"{self.scheme}://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
