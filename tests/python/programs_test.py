# SPDX-License-Identifier: Apache-2.0
"""Programs of other people's kinds, which know nothing of Atoll, over our packages."""
import concurrent.futures
import importlib.util
import json
import os
import re
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

from packages import FASHION, SOURCE

BOOT = SOURCE / "models/fashion/ankle_boot.pgm"
BOUNDARY = "a boundary"


def post(url, picture):
    """The reply to a form with a file."""
    body = (f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="picture"; filename="p"\r\n\r\n'
            .encode() + picture + f"\r\n--{BOUNDARY}--\r\n".encode())
    request = urllib.request.Request(
        url, body, {"Content-Type": f'multipart/form-data; boundary="{BOUNDARY}"'})
    with urllib.request.urlopen(request, timeout=300) as reply:
        return json.load(reply)


class Flask(unittest.TestCase):
    def setUp(self):
        if importlib.util.find_spec("flask") is None:
            print("ATOLL-SKIPPED: absent: flask (python3-flask)")
            sys.exit(0)

    def test_classifies(self):
        # Two threads and more ask for one interpreter, and what is no picture spoils nothing.
        program = SOURCE / "tests/python/flask_program.py"
        with subprocess.Popen(
                [sys.executable, "-B", "-m", "flask", "--app", str(program), "run", "--port", "0"],
                env={**os.environ, "MODEL": str(FASHION)}, stderr=subprocess.PIPE, text=True,
                stdout=subprocess.DEVNULL) as server:
            try:
                told = []
                for line in server.stderr:
                    told.append(line)
                    if "Running on" in line:
                        break
                found = re.search(r"http://\S+:\d+", told[-1] if told else "")
                self.assertIsNotNone(found, "".join(told))
                url = found[0] + "/classify"
                with self.assertRaises(urllib.error.HTTPError) as caught:
                    post(url, b"no picture")
                caught.exception.close()
                self.assertEqual(caught.exception.code, 500)
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    replies = list(pool.map(post, [url] * 20, [BOOT.read_bytes()] * 20))
                self.assertEqual(replies, replies[:1] * 20)
                self.assertEqual(replies[0]["class"], 9)  # "Ankle boot"
                self.assertGreater(replies[0]["score"], 0.5)
            finally:
                server.kill()


if __name__ == "__main__":
    unittest.main()
