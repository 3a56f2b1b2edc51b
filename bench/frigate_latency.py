#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""usage: frigate_latency.py SERVER MODEL HEIGHT WIDTH [DEVICE [FRAMES]]

How long a frame takes by way of the ZMQ detector, as Frigate sees it: from sending its pixels to
having the rows, one at a time, over a socket of a file and over loopback. SERVER is the program
frigate-server of the tests.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import zmq

SERVER, MODEL = (pathlib.Path(word).absolute() for word in sys.argv[1:3])
HEIGHT, WIDTH = map(int, sys.argv[3:5])
DEVICE = sys.argv[5] if len(sys.argv) > 5 else "cpu"
FRAMES = int(sys.argv[6]) if len(sys.argv) > 6 else 2000

with tempfile.TemporaryDirectory() as place:
    for endpoint in (f"ipc://{place}/detector", "tcp://127.0.0.1:*"):
        server = subprocess.Popen([SERVER, endpoint, f"{place}/models", DEVICE, "10000", MODEL],
                                  stdout=subprocess.PIPE, text=True)
        line = ""
        while not line.startswith("listens at "):
            line = server.stdout.readline()
        context = zmq.Context()
        client = context.socket(zmq.REQ)
        client.connect(line.split()[-1])
        head = json.dumps({"shape": [1, HEIGHT, WIDTH, 3], "dtype": "uint8", "model_type": "ssd"})
        pixels = os.urandom(HEIGHT * WIDTH * 3)
        times = []
        for _ in range(FRAMES):
            start = time.perf_counter()
            client.send_multipart([head.encode(), pixels])
            client.recv()
            times.append(1e3 * (time.perf_counter() - start))
        times = sorted(times[FRAMES // 10:])
        print(f"{endpoint.split(':')[0]}: p50 {times[len(times) // 2]:.3f} ms, "
              f"p99 {times[len(times) * 99 // 100]:.3f} ms, {len(pixels)} bytes a frame")
        context.destroy(linger=0)
        server.terminate()
        server.wait()
