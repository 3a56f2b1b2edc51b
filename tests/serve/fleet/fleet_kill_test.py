# SPDX-License-Identifier: Apache-2.0
"""A cluster of three servers, four workers and a producer, of which one after the other is killed
while jobs are done: the leader of the queue, the one of the results, any server, workers, one that is
stopped for a while instead, and the producer. There are as many results as jobs, none twice, each
with the bytes of `atoll run`.

Environment: as fleet_testing.py; ATOLL_TEST_SEED; ATOLL_TEST_JOBS, 400 unless it says otherwise;
ATOLL_TEST_KILLS=several: two servers at once, and all of them.
"""
import base64
import json
import os
import random
import signal
import subprocess
import time
import unittest

from fleet_testing import FASHION_MODEL, FLEET, FleetTest, Worker, eventually, pixels

SEED = int(os.environ.get("ATOLL_TEST_SEED", "1"))
JOBS = int(os.environ.get("ATOLL_TEST_JOBS", "400"))
DISTINCT = 25  # inputs; the others have the same bytes again
KINDS = {"one": ["work leader", "worker", "producer", "result leader", "stopped worker", "server",
                 "worker"],
         "several": ["two servers", "all servers", "worker", "all servers", "two servers"]}[
             os.environ.get("ATOLL_TEST_KILLS", "one")]


class Kills(FleetTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.servers = self.cluster()
        self.urls = [server.url for server in self.servers]
        self.options = ["--model", f"fashion={FASHION_MODEL}", "--device", "emu", "--ack-wait", "2000"]
        self.workers = [Worker(self.urls, *self.options) for _ in range(4)]
        self.addCleanup(self.end)
        self.producer = None

    def end(self):
        for process in [one.process for one in self.workers] + [self.producer]:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            if process is not None:
                process.wait()
                if process.stdout:
                    process.stdout.close()

    def produce(self):
        words = [w for url in self.urls for w in ("--nats", url)]
        with (self.folder / "producer.log").open("ab") as log:
            self.producer = subprocess.Popen(
                [*FLEET, "run", *words, "--model", "fashion", self.folder / "in", "--output",
                 self.output, "--window", "64", "--again-after", "8", "--json"],
                stdout=subprocess.PIPE, stderr=log)

    def lines(self):
        try:
            text = self.output.read_bytes()
        except FileNotFoundError:
            return []
        return text[:text.rfind(b"\n") + 1].splitlines()

    def leader(self, stream):
        """The server that leads a stream, as any of them says; one of them if none does."""
        for server in self.servers:
            try:
                for account in server.jsz().get("account_details", []):
                    for one in account.get("stream_detail", []):
                        if one["name"] == stream:
                            name = one.get("cluster", {}).get("leader", "")
                            return next(s for s in self.servers if s.name == name)
            except (OSError, StopIteration):
                continue
        return self.random.choice(self.servers)

    def harm(self, kind):
        if kind == "worker":
            index = self.random.randrange(4)
            self.workers[index].kill()
            self.workers[index] = Worker(self.urls, *self.options)
        elif kind == "stopped worker":
            worker = self.random.choice(self.workers)
            worker.process.send_signal(signal.SIGSTOP)
            time.sleep(3)  # longer than a job is waited for
            worker.process.send_signal(signal.SIGCONT)
        elif kind == "producer":
            self.producer.kill()
            self.producer.communicate()
            self.produce()
        elif kind in ("two servers", "all servers"):
            servers = self.random.sample(self.servers, 2 if kind == "two servers" else 3)
            for server in servers:
                server.kill()
            time.sleep(self.random.uniform(0, 1))
            for server in servers:
                server.launch()
            for server in servers:
                server.start()
        else:
            server = {"work leader": lambda: self.leader("ATOLL_WORK"),
                      "result leader": lambda: self.leader("ATOLL_RESULT"),
                      "server": lambda: self.random.choice(self.servers)}[kind]()
            server.kill()
            time.sleep(self.random.uniform(0, 1))
            server.start()

    def test_each_job_has_one_result(self):
        folder = self.folder / "in"
        folder.mkdir()
        count = 0

        def add():
            nonlocal count
            for i in range(count, count + JOBS):
                (folder / f"{i}.raw").write_bytes(pixels(i % DISTINCT))
            count += JOBS
        add()
        expected = [self.expected(FASHION_MODEL, [pixels(i)])[0] for i in range(DISTINCT)]
        self.output = self.folder / "results.jsonl"
        self.produce()
        harmed = 0
        every = max(JOBS // 50, 40)
        start = time.monotonic()
        while True:
            ended = self.producer.poll() is not None
            if len(self.lines()) >= every * (harmed + 1) and not ended:
                self.harm(KINDS[harmed % len(KINDS)])
                harmed += 1
            if ended:
                if harmed >= 5 or self.producer.returncode != 0:
                    break
                # They were faster than this.
                self.producer.communicate()
                add()
                every = count // (len(KINDS) + 1)
                self.produce()
            time.sleep(0.01)
        log = (self.folder / "producer.log").read_text()
        report = json.loads(self.producer.communicate()[0])
        self.assertEqual(self.producer.returncode, 0, f"{report}{log}")
        seconds = time.monotonic() - start
        print(f"{count} jobs, {harmed} harmed, seed {SEED}: {seconds:.1f} s; {report}", flush=True)
        lines = [json.loads(line) for line in self.lines()]
        self.assertEqual(len(lines), count)
        self.assertEqual(len({line["job"] for line in lines}), count)
        self.assertEqual({line["file"] for line in lines}, {str(p) for p in folder.iterdir()})
        for line in lines:
            self.assertTrue(line["ok"], line)
            number = int(os.path.basename(line["file"]).split(".")[0])
            data = base64.urlsafe_b64decode(line["outputs"][0]["data"])
            self.assertEqual(data, expected[number % DISTINCT], line)

        # What the servers have is the same.
        def stored():
            for server in self.servers:
                client = self.client(server)
                answer = client.request("$JS.API.STREAM.INFO.ATOLL_RESULT", b"{}", seconds=5)
                if answer is not None and not answer.status and "state" in answer.json():
                    return answer.json()["state"]["messages"]
            return None
        self.assertEqual(eventually(stored, "the servers answer"), count)


if __name__ == "__main__":
    unittest.main(argv=["fleet_kill_test.py"])
