# SPDX-License-Identifier: Apache-2.0
"""What Prometheus's own promtool says of the metrics of atoll-serve and of the camera's page.

Environment: as tests/serve/oip/rest_test.py.
"""
import http.client
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["ATOLL_SOURCE_DIR"], "tests/serve/oip"))
from rest_test import LONG, SIMPLE, RestTest, simple_request  # noqa: E402
from atoll_command import COMMAND, FASHION_MODEL, need  # noqa: E402

PROMTOOL = shutil.which("promtool")


def check(text):
    """(exit code, complaints): 1 is what cannot be parsed, 3 what goes against customs."""
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, timeout=LONG, check=False)
    return done.returncode, done.stderr.decode().splitlines()


class Metrics(RestTest):
    def test_promtool_finds_what_is_wrong(self):
        self.assertEqual(check(b"x{ 1\n")[0], 1)
        self.assertEqual(check(b"# TYPE x counter\nx 1\n")[0], 3)

    def test_server(self):
        server = self.serve("--model", f"simple={SIMPLE}", "--model", f"fashion={FASHION_MODEL}", "--device", "emu")
        for request in (simple_request(), {"inputs": []}):
            server.infer("simple", request)
        code, complaints = check(server.get("/metrics").body)
        self.assertIn(code, (0, 3), complaints)
        # Names that are Triton's are as they are.
        for line in complaints:
            self.assertRegex(line, r"^nv_inference_")

    def test_camera(self):
        camera = subprocess.Popen([*COMMAND, "camera", FASHION_MODEL, "--device", "emu", "--serve", ":0", "--quiet"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(camera.wait, LONG)
        self.addCleanup(camera.send_signal, signal.SIGTERM)
        port = int(re.search(rb":(\d+)/", camera.stderr.readline())[1])
        reader = threading.Thread(target=camera.stderr.read, daemon=True)
        reader.start()
        counts = 0
        while counts == 0:  # until all that there is has been counted
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read()
            connection.close()
            counts = int(re.search(rb"(?m)^atoll_frames_processed_total (\d+)$", text)[1])
        self.assertEqual(check(text), (0, []))


if __name__ == "__main__":
    need(pathlib.Path(PROMTOOL or "/usr/bin/promtool"))
    unittest.main()
