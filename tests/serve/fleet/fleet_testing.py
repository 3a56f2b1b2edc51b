# SPDX-License-Identifier: Apache-2.0
"""What the tests of a fleet share: servers of NATS, workers, and a client of NATS that shares no code
with nats.c: the lines of its protocol over a socket.

Environment: as tests/tools/atoll_command.py; ATOLL_FLEET and ATOLL_NATS_SERVER, the programs.
"""
import base64
import hashlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.environ["ATOLL_SOURCE_DIR"], "tests/tools"))
from atoll_command import (EMULATOR, FASHION_MODEL, SHARED, SOURCE, free_ports, need,  # noqa: E402,F401
                           run)

NATS_SERVER = os.environ.get("ATOLL_NATS_SERVER", "")
FLEET = [*([EMULATOR] if EMULATOR else []), os.environ["ATOLL_FLEET"]]
SIMPLE = SOURCE / "tests/models/simple.tflite"
LONG = int(os.environ.get("ATOLL_LONG", "120"))
LENGTH = "Inference-Header-Content-Length"
BOOT = SOURCE / "models/fashion/ankle_boot.pgm"

if not NATS_SERVER or not os.path.exists(NATS_SERVER):
    print("ATOLL-SKIPPED: nats-server is not installed")
    sys.exit(0)


def eventually(what, name, seconds=LONG):
    """What `what` gives as soon as that is something."""
    until = time.monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"{name} did not happen in {seconds} s")
        time.sleep(0.05)


def memory():
    """A folder of files in memory: what servers store there takes no time, whatever the disk does.
    None if there is no room."""
    folder = "/dev/shm"
    if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 2 << 30:
        return folder
    return None


class PortTaken(Exception):
    """Somebody else had it first."""


def start_nats(config, log):
    """The process. Its words are behind what is in the log already."""
    with log.open("ab") as out:
        return subprocess.Popen([NATS_SERVER, "-c", config], stdout=out, stderr=out)


def check_nats(process, text):
    """Raises an error if it has ended, with its words."""
    if process.poll() is not None:
        raise PortTaken(text) if "address already in use" in text else AssertionError(text)


class Server:
    """nats-server with a configuration, whose ports stay the same when it starts again. Nobody has
    to answer its PINGs, unless the configuration says otherwise."""

    def __init__(self, folder, name, config="", js=True, max_file="20GB", wait=True):
        # Its own, also among those of other tests that run now.
        self.name = f"{name}-{os.urandom(4).hex()}"
        self.store = folder / f"{self.name}-store"
        self.config = folder / f"{self.name}.conf"
        self.log = folder / f"{self.name}.log"
        jetstream = (f'jetstream {{ store_dir: "{self.store}", max_mem: 256MB, '
                     f'max_file: {max_file} {config_domain(config)} }}' if js else "")
        ping = "" if "ping_interval" in config else 'ping_interval: "600s"'
        while True:
            self.port, self.http = free_ports(2)
            self.config.write_text(f"""
server_name: {self.name}
listen: "127.0.0.1:{self.port}"
http: "127.0.0.1:{self.http}"
{ping}
{jetstream}
{re.sub(r"(?m)^domain:.*$", "", config)}
""")
            self.launch()
            try:
                if wait:
                    eventually(self.healthy, f"{self.name} is ready")
                return
            except PortTaken:
                continue

    @property
    def url(self):
        return f"nats://127.0.0.1:{self.port}"

    def launch(self):
        self.said = self.log.stat().st_size if self.log.exists() else 0
        self.process = start_nats(self.config, self.log)

    def start(self):
        """Again; whoever has got one of its ports meanwhile is waited for."""
        def is_up():
            try:
                if self.process.poll() is not None:
                    self.launch()
                return self.healthy()
            except PortTaken:
                return False
        eventually(is_up, f"{self.name} is ready")

    def healthy(self):
        check_nats(self.process, self.log.read_bytes()[self.said:].decode())
        try:
            # JetStream's own health waits for a leader; this is about connections.
            if self.monitor("varz")["server_name"] != self.name:
                return False  # another one has the port
            # Which answers before clients are let in, if the disk is slow.
            with socket.create_connection(("127.0.0.1", self.port), timeout=LONG) as client:
                return f'"server_name":"{self.name}"' in client.makefile().readline()
        except OSError:
            return False

    def monitor(self, what):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}/{what}", timeout=LONG) as answer:
            return json.load(answer)

    def connections(self):
        """The names of those who are connected."""
        return [one.get("name", "") for one in self.monitor("connz")["connections"]]

    def jsz(self):
        return self.monitor("jsz?streams=true&consumers=true")

    def kill(self):
        self.process.kill()
        self.process.wait(LONG)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(LONG)


def config_domain(config):
    found = re.search(r"(?m)^domain:\s*(\S+)$", config)
    return f", domain: {found[1]}" if found else ""


class Message:
    def __init__(self, subject, reply, headers, body, status=""):
        self.subject, self.reply, self.headers, self.body = subject, reply, headers, body
        self.status = status

    @property
    def code(self):
        return int(self.headers.get("Nats-Service-Error-Code", 0))

    def json(self):
        return json.loads(self.body)

    def outputs(self):
        """Name -> bytes of an answer in the binary form."""
        head_bytes = int(self.headers[LENGTH])
        head, rest = json.loads(self.body[:head_bytes]), self.body[head_bytes:]
        found = {}
        for output in head["outputs"]:
            size = output["parameters"]["binary_data_size"]
            found[output["name"]], rest = rest[:size], rest[size:]
        assert rest == b"", "more bytes than outputs"
        return found


class Client:
    """A connection; used by one thread."""

    def __init__(self, port, timeout=LONG, context=None, inbox=None, **options):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.buffer = b""
        self.inbox = inbox or f"_INBOX.{os.urandom(8).hex()}"
        self.waiting = []
        self.last_sid = 0
        self.last_reply = 0
        self.info = json.loads(self.line().split(b" ", 1)[1])
        if context:
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        self.send(b"CONNECT " + json.dumps({
            "verbose": False, "pedantic": False, "headers": True, "no_responders": True,
            "lang": "python", "version": "0", **options}).encode() + b"\r\n")
        self.subscribe(self.inbox + ".*")
        self.flush()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def more(self):
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the server has closed the connection")
        self.buffer += data

    def line(self):
        while b"\r\n" not in self.buffer:
            self.more()
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def take(self, size):
        while len(self.buffer) < size + 2:
            self.more()
        data, self.buffer = self.buffer[:size], self.buffer[size + 2:]
        return data

    def read(self):
        """The next message, or None for anything else."""
        words = self.line().split(b" ")
        kind = words[0].upper()
        if kind == b"PING":
            self.send(b"PONG\r\n")
        if kind == b"-ERR":
            raise PermissionError(b" ".join(words).decode())
        if kind not in (b"MSG", b"HMSG"):
            return kind.decode() if kind == b"PONG" else None
        sizes = 2 if kind == b"HMSG" else 1
        subject = words[1].decode()
        reply = words[3].decode() if len(words) == 4 + sizes else ""
        total = int(words[-1])
        head = int(words[-2]) if sizes == 2 else 0
        data = self.take(total)
        headers, status = {}, ""
        if head:
            lines = data[:head].decode("latin-1").split("\r\n")
            status = lines[0][len("NATS/1.0"):].strip()
            for one in lines[1:]:
                if ":" in one:
                    name, value = one.split(":", 1)
                    headers[name] = value.strip()
        return Message(subject, reply, headers, data[head:], status)

    def subscribe(self, subject, queue=""):
        self.last_sid += 1
        self.send(f"SUB {subject} {queue} {self.last_sid}\r\n".replace("  ", " ").encode())

    def flush(self):
        self.send(b"PING\r\n")
        refused = None
        while True:
            try:
                got = self.read()
            except PermissionError as error:
                refused = error
                continue
            if got == "PONG":
                if refused:
                    raise refused
                return
            if isinstance(got, Message):
                self.waiting.append(got)

    def publish(self, subject, body=b"", headers=None, reply=""):
        if headers:
            head = b"NATS/1.0\r\n" + b"".join(
                f"{name}: {value}\r\n".encode() for name, value in headers.items()) + b"\r\n"
            self.send(f"HPUB {subject} {reply} {len(head)} {len(head) + len(body)}\r\n"
                      .replace("  ", " ").encode() + head + body + b"\r\n")
        else:
            self.send(f"PUB {subject} {reply} {len(body)}\r\n".replace("  ", " ").encode() + body +
                      b"\r\n")

    def next(self, seconds=LONG):
        """The next message; None if there is none for so long."""
        if self.waiting:
            return self.waiting.pop(0)
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            if b"\r\n" not in self.buffer:
                if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                    return None
            got = self.read()
            if isinstance(got, Message):
                return got

    def request(self, subject, body=b"", headers=None, seconds=LONG):
        """The answer; None without one, a Message of status 503 if nobody is there."""
        self.last_reply += 1
        reply = f"{self.inbox}.{self.last_reply}"
        self.publish(subject, body, headers, reply)
        until = time.monotonic() + seconds
        others = []
        try:
            while True:
                message = self.next(max(until - time.monotonic(), 0))
                if message is None or message.subject == reply:
                    return message
                others.append(message)
        finally:
            self.waiting += others

    def requests(self, subject, count, body=b"", headers=None):
        """All answers to `count` requests that are sent at once."""
        first = self.last_reply + 1
        self.last_reply += count
        for i in range(count):
            self.publish(subject, body, headers, f"{self.inbox}.{first + i}")
        return [self.next() for _ in range(count)]

    def api(self, what, request=None):
        """JetStream's answer, an object of JSON."""
        return self.request(f"$JS.API.{what}", json.dumps(request or {}).encode()).json()

    def put(self, subject, body=b"", headers=None):
        """Into a stream; its answer, again while there is no leader."""
        def try_it():
            answer = self.request(subject, body, headers)
            if answer is None or answer.status.startswith("503"):
                return None
            return answer.json()
        return eventually(try_it, f"{subject} is stored")

    def result(self, job):
        """The message at the result's subject; None if there is none."""
        answer = self.request("$JS.API.DIRECT.GET.ATOLL_RESULT",
                              json.dumps({"last_by_subj": f"atoll.result.{job}"}).encode())
        return None if answer is None or answer.status else answer


def job_id():
    return base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")


class Worker:
    def __init__(self, url, *options, id=None, wait=True, program=FLEET):
        self.id = id or f"w-{os.urandom(4).hex()}"
        self.errors = tempfile.TemporaryFile()
        urls = [url] if isinstance(url, str) else url
        self.process = subprocess.Popen(
            [*program, "worker", *[w for u in urls for w in ("--nats", u)], "--id", self.id,
             *map(str, options)], stdout=subprocess.PIPE, stderr=self.errors)
        if wait:
            line = self.process.stdout.readline().decode()
            if not line.startswith("worker "):
                self.process.wait(LONG)
                raise AssertionError(f"no worker: {line}{self.stderr()}")

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read().decode()

    def kill(self):
        self.process.kill()
        self.process.wait(LONG)
        self.process.stdout.close()

    def stop(self):
        """Its exit code."""
        self.process.send_signal(signal.SIGCONT)
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(LONG)
        self.process.stdout.close()
        self.errors.close()
        return code


def fleet(*arguments, timeout=600):
    return subprocess.run([*FLEET, *map(str, arguments)], capture_output=True, text=True,
                          timeout=timeout, check=False)


def pixels(number, size=784):
    """Bytes that are always the same, and others for each number."""
    data = b""
    while len(data) < size:
        data += hashlib.sha256(f"{number}/{len(data)}".encode()).digest()
    return data[:size]


def cluster_config(name, own, others):
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in others)
    return f'cluster {{ name: {name}, listen: "127.0.0.1:{own}", routes: [{routes}] }}'


class FleetTest(unittest.TestCase):
    longMessage = True

    def setUp(self):
        place = tempfile.TemporaryDirectory(dir=memory())
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)

    def server(self, config="", name="one", **options):
        server = Server(self.folder, name, config, **options)
        self.addCleanup(server.stop)
        return server

    def cluster(self, count=3, prefix="n", extra="", **options):
        """Servers that are a cluster, whose JetStream has a leader."""
        while True:
            routes = free_ports(count)
            servers = [Server(self.folder, f"{prefix}{i}",
                              cluster_config(f"{prefix}cluster", routes[i], routes) + "\n" + extra,
                              wait=False, **options) for i in range(count)]
            for server in servers:
                self.addCleanup(server.stop)
            try:
                for server in servers:
                    eventually(server.healthy, f"{server.name} is ready")
                break
            except PortTaken:
                for server in servers:
                    server.stop()
        client = self.client(servers[0])

        def has_leader():
            answer = client.request("$JS.API.INFO", b"", seconds=5)
            return answer is not None and not answer.status and "error" not in answer.json()
        eventually(has_leader, "the cluster has a leader")
        client.close()
        return servers

    def client(self, server, **options):
        client = Client(server.port, **options)
        self.addCleanup(client.close)
        return client

    def heard(self, server, worker):
        """What the worker says of itself the next time."""
        client = self.client(server)
        client.subscribe(f"$KV.atoll_workers.{worker}")
        client.flush()
        return eventually(lambda: client.next(5), f"{worker} says something").json()

    def worker(self, server, *options, **more):
        url = server if isinstance(server, (str, list)) else server.url
        worker = Worker(url, *options, **more)

        def end():
            if worker.process.poll() is None:
                worker.process.send_signal(signal.SIGCONT)
                worker.kill()
            worker.process.stdout.close()
        self.addCleanup(end)
        return worker

    def succeed(self, *arguments, **options):
        done = fleet(*arguments, **options)
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stdout}{done.stderr}")
        return done

    def files(self, count):
        folder = self.folder / "in"
        folder.mkdir()
        for i in range(count):
            (folder / f"{i}.raw").write_bytes(pixels(i))
        return folder

    def certificates(self, names):
        """NAME.pem and NAME.key of each name, with its alternative names if these are not "", and
        ca.pem of who signs them."""
        def openssl(*words):
            done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
        at = self.folder
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", at / "ca.key", "-out", at / "ca.pem", "-days", "2", "-subj", "/CN=ca")
        for name, alternative in names.items():
            openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                    at / f"{name}.key", "-out", at / "csr", "-subj", f"/CN={name}")
            (at / "names").write_text(f"subjectAltName={alternative}\n" if alternative else "")
            openssl("x509", "-req", "-in", at / "csr", "-CA", at / "ca.pem", "-CAkey", at / "ca.key",
                    "-CAcreateserial", "-out", at / f"{name}.pem", "-days", "2",
                    *(["-extfile", at / "names"] if alternative else []))

    def check(self, folder, output, count):
        lines = [json.loads(line) for line in (output / "results.jsonl").read_text().splitlines()]
        self.assertEqual(len(lines), count)
        self.assertEqual(len({line["job"] for line in lines}), count)
        self.assertEqual({line["file"] for line in lines}, {str(p) for p in folder.iterdir()})
        self.assertTrue(all(line["ok"] for line in lines))
        return lines

    def expected(self, file, inputs, device="emu"):
        """What `atoll run` gives for the bytes of each input: the outputs, in their order."""
        place = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        options = []
        for i, data in enumerate(inputs):
            (place / f"in_{i}").write_bytes(data)
            options += ["--input", f"{i}={place / f'in_{i}'}"]
        result = run("run", file, "--device", device, *options, "--output-dir", place)
        self.assertEqual(result.code, 0, result.stderr)
        count = len(list(place.glob("out_*.raw")))
        outputs = [(place / f"out_{i}.raw").read_bytes() for i in range(count)]
        shutil.rmtree(place)
        return outputs
