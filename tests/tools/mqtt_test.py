# SPDX-License-Identifier: Apache-2.0
"""`atoll camera --mqtt` against mosquitto, with mosquitto_sub as whoever listens. Times are read
from what happens, with generous deadlines; nothing is asserted to be fast but that frames go on
while a broker does not.
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import atoll_command
from atoll_command import COMMAND, SOURCE, CommandTest, free_ports, run

DEADLINE = 60
SCENES = SOURCE / "models/scenes/scenes_int8.tflite"
LABELS = SOURCE / "models/fashion/labels.txt"
PATH = os.environ.get("PATH", "") + ":/usr/sbin"
MOSQUITTO = shutil.which("mosquitto", path=PATH)
CAMERA = ["camera", SCENES, "--source", "test", "--labels", LABELS, "--threshold", "0.02"]


def wait_for(what, condition):
    end = time.monotonic() + DEADLINE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come in {DEADLINE} s")
        time.sleep(0.02)


class MqttTest(CommandTest):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        self.port, = free_ports(1)
        self.url = f"mqtt://127.0.0.1:{self.port}"

    def start(self, *words, **options):
        process = subprocess.Popen([str(word) for word in words], **options)

        def end():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

        self.addCleanup(end)
        return process

    def broker(self, lines="allow_anonymous true\n"):
        config = self.place / "mosquitto.conf"
        if os.geteuid() == 0:
            lines += "user root\n"  # or it would become somebody who cannot read what is here
        config.write_text(f"listener {self.port} 127.0.0.1\n{lines}")

        def start():
            """The broker, unless somebody else has its port."""
            log = self.place / f"broker{len(list(self.place.iterdir()))}"
            with open(log, "wb") as out:
                broker = self.start(MOSQUITTO, "-c", config, stderr=out)
            wait_for("the broker", lambda: broker.poll() is not None or " running" in log.read_text())
            if broker.poll() is None:
                return broker
            self.assertIn("Address already in use", log.read_text())
            return None

        return wait_for("the broker's port", start)

    def listen(self, *more):
        """Everything that the broker has and gets, as a list of (topic, payload) that grows."""
        log = self.place / f"messages{len(list(self.place.iterdir()))}"
        # The first one is there when the subscription is.
        mark = f"mark/{log.name}"
        self.tell(mark, *more)
        with open(log, "wb") as out:
            self.start("mosquitto_sub", "-p", self.port, "-t", "#", "-v", *more, stdout=out)
        messages = lambda: [tuple(line.split(" ", 1)) for line in log.read_text().splitlines()
                            if " " in line]
        wait_for("the subscription", lambda: (mark, "x") in messages())
        return messages

    def tell(self, topic, *more):
        subprocess.run(["mosquitto_pub", "-p", str(self.port), "-t", topic, "-m", "x", "-r", *more],
                       check=True, timeout=DEADLINE)

    def camera(self, *words):
        log = self.place / f"camera{len(list(self.place.iterdir()))}"
        with open(log, "wb") as out:
            process = self.start(*COMMAND, *CAMERA, *words, stderr=out, stdout=subprocess.DEVNULL)
        process.said = log.read_text
        return process

    def hang(self):
        """A broker takes nothing more, while as many frames go by as would fill any buffer. By how
        much the camera grew meanwhile, in kB."""
        broker = self.broker()
        messages = self.listen()
        frames = self.place / "frames"
        camera = self.camera("--fps", "0", "--policy", "every", "--size", "64x64", "--results",
                             frames, "--mqtt", self.url)
        wait_for("a frame", lambda: [t for t, _ in messages() if t.endswith("/frame")])

        def resident_kb():
            status = pathlib.Path(f"/proc/{camera.pid}/status").read_text()
            return int(status.split("VmRSS:")[1].split()[0])

        def wait_for_results(size):
            end = frames.stat().st_size + size
            while (now := frames.stat().st_size) <= end:
                wait_for("more results", lambda: frames.stat().st_size > now)

        broker.send_signal(signal.SIGSTOP)
        wait_for_results(2_000_000)  # what the sockets take
        before = resident_kb()
        wait_for_results(20_000_000)
        growth = resident_kb() - before
        broker.send_signal(signal.SIGCONT)
        at = len(messages())
        wait_for("further frames",
                 lambda: [t for t, _ in messages()[at:] if t.endswith("/frame")])
        camera.send_signal(signal.SIGINT)
        self.assertEqual(camera.wait(DEADLINE), 0, camera.said())
        wait_for("the end", lambda: dict(messages())["atoll/available"] == "offline")
        return growth


class Messages(MqttTest):
    def test_counts_and_results_of_each_frame(self):
        self.broker()
        messages = self.listen()
        lines = self.place / "lines"
        done = run(*CAMERA, "--frames", 12, "--fps", 20, "--policy", "every", "--results", lines,
                   "--mqtt", self.url + "/a/house", "--mqtt-camera", "Front Door")
        self.assertEqual(done.code, 0, done.stderr)
        self.assertIn("below a/house/", done.stderr)
        wait_for("the end", lambda: ("a/house/available", "offline") in messages())
        got = messages()
        topics = [topic for topic, _ in got]
        self.assertLess(topics.index("a/house/available"), topics.index("a/house/front_door/frame"))
        self.assertEqual(got[topics.index("a/house/available")][1], "online")

        # Each frame that came is one of the lines, and they came in their order.
        reports = [json.loads(line) for line in lines.read_text().splitlines()]
        frames = [json.loads(text) for topic, text in got if topic == "a/house/front_door/frame"]
        self.assertGreater(len(frames), 0)
        numbers = [frame["frame"] for frame in frames]
        self.assertEqual(numbers, sorted(set(numbers)))
        for frame in frames:
            self.assertEqual(frame, reports[frame["frame"]])

        # In the end there are as many of each as there were in the last frame.
        last = {}
        for detection in reports[-1]["models"][0][0].get("detections", []):
            level = detection["label"].lower().replace(" ", "_").replace("/", "_")
            last[level] = last.get(level, 0) + 1
        counts = {topic.rsplit("/", 1)[1]: int(text) for topic, text in got
                  if topic.startswith("a/house/front_door/") and not topic.endswith("/frame")}
        self.assertGreater(len(counts), 0)
        self.assertEqual({label: count for label, count in counts.items() if count}, last)
        self.assertNotIn("a/house/front_door/frame_", topics)

        # Every label has its entities, before its first count.
        for label in counts:
            for component in ("sensor", "binary_sensor"):
                topic = f"homeassistant/{component}/atoll_a_house_front_door/{label}/config"
                self.assertLess(topics.index(topic), topics.index(f"a/house/front_door/{label}"))
                config = json.loads(got[topics.index(topic)][1])
                self.assertEqual(config["state_topic"], f"a/house/front_door/{label}")
                self.assertEqual(config["availability_topic"], "a/house/available")
                self.assertIn(label, config["unique_id"])
                self.assertEqual(config["device"]["identifiers"], ["atoll_a_house_front_door"])
        ids = [json.loads(text)["unique_id"] for topic, text in got if topic.endswith("/config")]
        self.assertEqual(len(ids), len(set(ids)))
        stats = json.loads(got[topics.index("a/house/stats")][1])
        self.assertIn("process_fps", stats["cameras"]["front_door"])

        # Who comes later is told the state, and no old frame.
        retained = dict(self.listen()())
        self.assertEqual(retained["a/house/available"], "offline")
        for label, count in counts.items():
            self.assertEqual(retained[f"a/house/front_door/{label}"], str(count))
        self.assertNotIn("a/house/front_door/frame", retained)

    def test_the_last_will(self):
        self.broker()
        messages = self.listen()
        camera = self.camera("--fps", "10", "--mqtt", self.url)
        wait_for("a frame", lambda: [t for t, _ in messages() if t == "atoll/camera/frame"])
        self.assertEqual(dict(messages())["atoll/available"], "online")
        camera.kill()
        wait_for("the will", lambda: dict(messages())["atoll/available"] == "offline")

    def test_with_a_password(self):
        passwords = self.place / "passwords"
        subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, "eye", "s3cret"], check=True,
                       timeout=DEADLINE)
        passwords.chmod(0o644)
        self.broker(f"allow_anonymous false\npassword_file {passwords}\n")
        login = ["-u", "eye", "-P", "s3cret"]
        messages = self.listen(*login)
        secret = self.place / "secret"
        url = f"mqtt://eye@127.0.0.1:{self.port}"
        # A wrong one is said, and frames go on.
        secret.write_text("wrong\n")
        done = run(*CAMERA, "--frames", 5, "--fps", 0, "--policy", "every", "--mqtt", url,
                   "--mqtt-password-file", secret)
        self.assertEqual(done.code, 0, done.stderr)
        self.assertIn("is not there: Connection Refused: not authorised", done.stderr)
        self.assertIn("5 captured = 5 processed", done.stdout)
        self.assertEqual([t for t, _ in messages() if t.startswith("atoll/")], [])
        secret.write_text("s3cret\n")
        done = run(*CAMERA, "--frames", 5, "--mqtt", url, "--mqtt-password-file", secret)
        self.assertEqual(done.code, 0, done.stderr)
        wait_for("the end", lambda: dict(messages()).get("atoll/available") == "offline")
        self.assertNotIn("s3cret", done.stdout + done.stderr)


class Troubles(MqttTest):
    def test_a_broker_that_comes_and_goes(self):
        camera = self.camera("--fps", "20", "--mqtt", self.url)
        wait_for("the complaint", lambda: "is not there" in camera.said())
        for _ in range(2):
            broker = self.broker()
            messages = self.listen()
            wait_for("frames", lambda: len([t for t, _ in messages() if t.endswith("/frame")]) > 2)
            self.assertEqual(dict(messages())["atoll/available"], "online")
            # What it had been told before, as it forgets everything.
            wait_for("entities", lambda: [t for t, _ in messages() if t.endswith("/config")])
            broker.kill()
            broker.wait()
        camera.send_signal(signal.SIGINT)
        self.assertEqual(camera.wait(DEADLINE), 0, camera.said())

    def test_a_broker_that_hangs_delays_no_frame(self):
        self.hang()

    def test_what_is_no_broker(self):
        """A server that takes connections, and says nothing, or nonsense."""
        for nonsense in (b"", b"HTTP/1.0 400 Bad Request\r\n\r\n", bytes(range(256))):
            with socket.create_server(("127.0.0.1", 0)) as server:
                server.settimeout(DEADLINE)
                port = server.getsockname()[1]
                camera = self.camera("--frames", "30", "--fps", "20", "--mqtt",
                                     f"mqtt://127.0.0.1:{port}")
                connection, _ = server.accept()
                with connection:
                    connection.sendall(nonsense)
                    self.assertEqual(camera.wait(DEADLINE), 0, camera.said())


class Memory(MqttTest):
    def test_a_broker_that_hangs_costs_no_memory(self):
        self.assertLess(self.hang(), 5_000)


class Tls(MqttTest):
    def certificates(self):
        def openssl(*words):
            subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=self.place)
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        (self.place / "names").write_text("subjectAltName=DNS:localhost\n")
        for ca in ("ca", "other"):
            openssl("req", "-x509", *key, "-keyout", f"{ca}.key", "-out", f"{ca}.pem", "-subj", f"/CN={ca}",
                    "-days", "2")
        for name in ("server", "client"):
            openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                    "-CAcreateserial", "-out", f"{name}.pem", "-days", "2", "-extfile", "names")
        return (f"allow_anonymous true\ncafile {self.place}/ca.pem\ncertfile {self.place}/server.pem\n"
                f"keyfile {self.place}/server.key\n")

    def camera(self, host, *more):
        """A camera under way, and a file with what it says."""
        said = self.place / f"said{len(list(self.place.glob('said*')))}"
        with open(said, "wb") as file:
            process = self.start(*COMMAND, *CAMERA, "--mqtt", f"mqtts://{host}:{self.port}", *more,
                                 stdout=subprocess.DEVNULL, stderr=file)
        return process, said

    def frames(self, *more):
        """What a subscriber gets: the topic of the next frame."""
        done = subprocess.run(["mosquitto_sub", "-h", "localhost", "-p", str(self.port), "--cafile",
                               self.place / "ca.pem", "-t", "atoll/camera/frame", "-C", "1", "-W", str(DEADLINE),
                               "-F", "%t", *more], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def test_a_broker_whose_certificate_is_known(self):
        self.broker(self.certificates())
        process, said = self.camera("localhost", "--mqtt-ca", self.place / "ca.pem")
        self.assertEqual(self.frames(), "atoll/camera/frame")
        self.assertIn("results go to the MQTT broker", said.read_text())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(DEADLINE), 0)

    def test_a_broker_whose_certificate_is_not(self):
        self.broker(self.certificates())
        for host, ca in (("localhost", "other.pem"), ("127.0.0.1", "ca.pem")):
            process, said = self.camera(host, "--mqtt-ca", self.place / ca)
            wait_for("a complaint", lambda file=said: "TLS failed" in file.read_text())
            self.assertNotIn("results go to", said.read_text())
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(DEADLINE), 0, "frames go on all the same")

    def test_a_broker_that_asks_for_a_certificate(self):
        self.broker(self.certificates() + "require_certificate true\n")
        ours = ("--mqtt-ca", self.place / "ca.pem")
        _, said = self.camera("localhost", *ours)
        wait_for("a complaint", lambda: "is not there" in said.read_text())
        self.camera("localhost", *ours, "--mqtt-cert", self.place / "client.pem", "--mqtt-key",
                    self.place / "client.key")
        self.assertEqual(self.frames("--cert", self.place / "client.pem", "--key", self.place / "client.key"),
                         "atoll/camera/frame")


class Options(MqttTest):
    def test_addresses_that_are_none(self):
        for address in ("", "localhost", "mqttss://x", "mqtts://", "mqtt://", "mqtt://:1883", "mqtt://h:0",
                        "mqtt://h:65536", "mqtt://h:x", "mqtt://h/a//b", "mqtt://h/#", "mqtt://h/a+",
                        "mqtt://h/$SYS", "mqtt://@h", "mqtt://[::1", "mqtt://h/a b"):
            done = run(*CAMERA, "--frames", 1, "--mqtt", address)
            if address:
                self.assertEqual(done.code, 2, address)
                self.assertIn("--mqtt", done.stderr)
        done = run(*CAMERA, "--mqtt", "mqtt://user:s3cret@h")
        self.assertEqual(done.code, 2)
        self.assertIn("--mqtt-password-file", done.stderr)
        self.assertNotIn("s3cret", done.stderr)
        for words in (["--mqtt-ca", "/none"], ["--mqtt", "mqtt://h", "--mqtt-ca", LABELS],
                      ["--mqtt", "mqtts://h", "--mqtt-ca", "/none"],
                      ["--mqtt", "mqtts://h", "--mqtt-cert", LABELS]):
            done = run(*CAMERA, *words)
            self.assertEqual(done.code, 2, words)
            self.assertIn("--mqtt", done.stderr)
        for words in (["--mqtt-password-file", "/none"],
                      ["--mqtt", "mqtt://h", "--mqtt-password-file", "/etc/hostname"],
                      ["--mqtt", "mqtt://u@h", "--mqtt-password-file", "/none"],
                      ["--mqtt", "mqtt://u@h", "--mqtt-password-file", "/dev/null"]):
            done = run(*CAMERA, *words)
            self.assertIn(done.code, (1, 2), words)
            self.assertIn("--mqtt-password-file", done.stderr)


if __name__ == "__main__":
    if not MOSQUITTO or not shutil.which("mosquitto_sub"):
        print("ATOLL-SKIPPED: mosquitto and mosquitto-clients are not installed")
        sys.exit(0)
    unittest.main(module=__name__)
