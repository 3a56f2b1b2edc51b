#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a frame of 150,528 bytes (224x224x3) costs on its way to a worker of a fleet and back, beside
other ways to the same model: docs/fleet.md has the table.

usage: fleet_latency.py BUILD [SECONDS]    BUILD: build/release; a row for each way takes SECONDS (10)
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

BUILD = pathlib.Path(sys.argv[1]).resolve()
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 10
SOURCE = pathlib.Path(__file__).resolve().parent.parent
ATOLL = BUILD / "tools/atoll/atoll"
FLEET = BUILD / "serve/fleet/atoll-fleet"
os.environ.update(ATOLL_SOURCE_DIR=str(SOURCE), ATOLL_SHARED_DIR=str(SOURCE / "../shared"),
                  ATOLL_COMMAND=str(ATOLL), ATOLL_FLATC="flatc", ATOLL_FLEET=str(FLEET),
                  ATOLL_NATS_SERVER=os.environ.get("ATOLL_NATS_SERVER", "/usr/sbin/nats-server"))
sys.path.insert(0, str(SOURCE / "tests/serve/fleet"))
from fleet_testing import Server, Worker, cluster_config, eventually, free_ports  # noqa: E402

SIZE = 224 * 224 * 3


def model(folder):
    """MAX_POOL_2D over the picture by 224x224: next to no work, all of the bytes."""
    text = {
        "version": 3, "operator_codes": [{"deprecated_builtin_code": 17, "builtin_code": 17}],
        "subgraphs": [{
            "tensors": [{"name": "image", "shape": [1, 224, 224, 3], "type": 3, "buffer": 0,
                         "quantization": {"scale": [1.0], "zero_point": [0]}},
                        {"name": "most", "shape": [1, 1, 1, 3], "type": 3, "buffer": 0,
                         "quantization": {"scale": [1.0], "zero_point": [0]}}],
            "inputs": [0], "outputs": [1],
            "operators": [{"opcode_index": 0, "inputs": [0], "outputs": [1],
                           "builtin_options_type": "Pool2DOptions",
                           "builtin_options": {"padding": "Valid", "stride_w": 224, "stride_h": 224,
                                               "filter_width": 224, "filter_height": 224}}]}],
        "buffers": [{}]}
    (folder / "pool.json").write_text(json.dumps(text))
    subprocess.run(["flatc", "--binary", "-o", folder, SOURCE / "models/schema/tflite.fbs",
                    folder / "pool.json"], check=True)
    return folder / "pool.tflite"


def ask(urls, file, *options):
    words = [w for url in urls for w in ("--nats", url)]
    # As many as there is time for, by what some take.
    count = 200
    for _ in range(2):
        done = subprocess.run([FLEET, "infer", *words, "--model", "pool", file, "--repeat", str(count),
                               "--in-flight", "1", "--budget", "5000", "--json", *options],
                              capture_output=True, text=True, check=True)
        report = json.loads(done.stdout)
        count = max(200, int(SECONDS / max(report["seconds"], 0.001) * count))
    return report


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        pool = model(folder)
        (folder / "frame.raw").write_bytes(bytes(SIZE))
        rows = []
        done = subprocess.run([ATOLL, "benchmark", pool, "--device", "cpu", "--json", "--runs", "2000"],
                              capture_output=True, text=True)
        if done.returncode == 0:
            latency = json.loads(done.stdout)["latency_ms"]
            rows.append(("in the same process", latency["median"], latency["p99"]))
        else:
            print(done.stderr, file=sys.stderr)
        one = Server(folder, "one", js=False)
        worker = Worker(one.url, "--model", f"pool={pool}", "--device", "cpu", "--threads", "1")
        report = ask([one.url], folder / "frame.raw")
        rows.append(("queue group, one server", report["latency_p50_ms"], report["latency_p99_ms"]))
        worker.kill()
        one.stop()
        routes = free_ports(3)
        servers = [Server(folder, f"n{i}", cluster_config("c", routes[i], routes), js=False,
                          wait=False) for i in range(3)]
        for server in servers:
            eventually(server.healthy, "a server")
        worker = Worker(servers[0].url, "--model", f"pool={pool}", "--device", "cpu", "--threads", "1")
        time.sleep(1)
        report = ask([servers[0].url], folder / "frame.raw")
        rows.append(("queue group, the same server of three", report["latency_p50_ms"],
                     report["latency_p99_ms"]))
        report = ask([servers[1].url], folder / "frame.raw")
        rows.append(("queue group, across a route", report["latency_p50_ms"],
                     report["latency_p99_ms"]))
        worker.kill()
        for server in servers:
            server.stop()
        broker = subprocess.Popen([ATOLL, "broker", "--device", "emu", "--socket", folder / "b.sock"],
                                  stdout=subprocess.PIPE, text=True)
        broker.stdout.readline()
        for title, device in (("emulator in the same process", "emu"),
                              ("emulator, by the broker", f"broker:{folder}/b.sock")):
            done = subprocess.run([ATOLL, "benchmark", pool, "--device", device, "--json", "--runs", "1000"],
                                  capture_output=True, text=True)
            if done.returncode == 0:
                latency = json.loads(done.stdout)["latency_ms"]
                rows.append((title, latency["median"], latency["p99"]))
            else:
                print(done.stderr, file=sys.stderr)
        broker.kill()
        print("| way | p50 ms | p99 ms |\n|---|---|---|")
        for title, p50, p99 in rows:
            print(f"| {title} | {p50:.2f} | {p99:.2f} |")


if __name__ == "__main__":
    main()
