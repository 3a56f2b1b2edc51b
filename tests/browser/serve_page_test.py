#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page of atoll-serve in a headless Chromium: models, device, who waits, a model tried on a picture.

Environment: as tests/serve/oip/rest_test.py; ATOLL_SCREENSHOT_DIR, where pictures of the page are left.
"""
import concurrent.futures
import os
import pathlib
import struct
import subprocess
import sys
import threading
import unittest
import zlib

import devtools

sys.path.insert(0, os.path.join(os.environ["ATOLL_SOURCE_DIR"], "tests/serve/oip"))
from rest_test import SCENES, SIMPLE, TOKEN, RestTest, made_up  # noqa: E402
from atoll_command import COMMAND, FASHION_LABELS, FASHION_MODEL, SOURCE  # noqa: E402

SCREENSHOTS = pathlib.Path(os.environ["ATOLL_SCREENSHOT_DIR"])
BOOT = SOURCE / "models/fashion/ankle_boot.pgm"
browser = None  # of all tests


def setUpModule():
    global browser
    browser = devtools.Browser(devtools.find_browser())
    unittest.addModuleCleanup(browser.close)


def png_of(pgm):
    """A grey picture as browsers know it."""
    _, size, _, pixels = pgm.split(b"\n", 3)
    width, height = map(int, size.split())

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[y * width:(y + 1) * width] for y in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def table(name):
    return (f"[...document.querySelectorAll('#{name} tr')].map(row => [...row.cells].map(cell => cell.textContent)"
            ".join('|')).join('\\n')")


class ServePage(RestTest):
    def open(self, server):
        page = browser.page(f"http://127.0.0.1:{server.port}/", 1000, 900)
        self.addCleanup(page.close)
        return page

    def start(self, **more):
        models = self.repository(fashion=FASHION_MODEL, scenes=SCENES, simple=SIMPLE)
        (models / "fashion/labels.txt").write_bytes(pathlib.Path(FASHION_LABELS).read_bytes())
        return self.serve("--models", models, "--device", "emu", **more)

    def run_model(self, page, model):
        page.evaluate(f"document.getElementById('model').value = {model!r}")
        page.evaluate("document.querySelector('#try button').click()")

    def test_models_and_a_picture(self):
        server = self.start()
        page = self.open(server)
        page.wait(f"document.readyState === 'complete' && {table('models')}.includes('fashion|1|ready|')")
        shown = page.evaluate(table("models")).splitlines()
        self.assertEqual([line.split("|")[:3] for line in shown],
                         [[name, "1", "ready"] for name in ("fashion", "scenes", "simple")])
        self.assertRegex(shown[0].split("|")[3], r"^\d+ of \d+ operators$")
        self.assertFalse(page.evaluate("document.getElementById('login').checkVisibility()"))
        self.assertIn("emulated", page.evaluate("document.getElementById('device').textContent"))
        picture = self.folder() / "boot.png"
        picture.write_bytes(png_of(BOOT.read_bytes()))
        page.choose_files("#picture", picture)
        self.run_model(page, "fashion")
        page.wait("document.querySelectorAll('#classes li').length === 5")
        classes = page.evaluate("[...document.querySelectorAll('#classes li')].map(one => one.textContent)")
        # What `atoll classify` says of the same picture.
        said = subprocess.run([*COMMAND, "classify", FASHION_MODEL, BOOT, "--labels", FASHION_LABELS, "--device",
                               "cpu"], capture_output=True, text=True, check=True).stdout
        best, score = classes[0].split(": ")
        self.assertIn(best, said)
        self.assertEqual(best, "Ankle boot")
        self.assertGreater(float(score), 0.5)
        page.wait(f"{table('models')}.split('\\n')[0].split('|')[4] === '1'")
        (SCREENSHOTS / "serve_page.png").write_bytes(page.screenshot())
        # A detector has no classes: its outputs are there as numbers; a model of two vectors takes no picture.
        self.run_model(page, "scenes")
        page.wait("document.getElementById('values').textContent.includes('[1,')")
        self.run_model(page, "simple")
        page.wait("document.getElementById('problem').textContent.includes('does not take a picture')")
        self.assertEqual(page.complaints(), [])

    def test_who_waits(self):
        server = self.serve("--model", f"slow={SCENES}", "--device", "emu+stepped")
        [info] = server.get("/v2/models/slow").json()["inputs"]
        raw = made_up(info, 1)
        text = {"inputs": [{**info, "parameters": {"binary_data_size": len(raw)}}]}
        page = self.open(server)
        page.wait("document.readyState === 'complete' && !document.getElementById('nobody').hidden")
        seen = threading.Event()

        def ask():
            while not seen.is_set():
                self.assertEqual(server.infer("slow", text, raw).status, 200)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(ask) for _ in range(8)]
            try:
                page.wait(f"/slow\\|127\\.0\\.0\\.1\\|\\|runs\\|/.test({table('active')}) && "
                          f"/slow\\|127\\.0\\.0\\.1\\|\\|waits\\|/.test({table('active')})", seconds=60)
            finally:
                seen.set()
            for one in asked:
                one.result()
        page.wait("!document.getElementById('nobody').hidden", seconds=60)

    def test_a_token(self):
        server = self.start(environment={"ATOLL_SERVE_TOKEN": TOKEN})
        page = self.open(server)
        page.wait("document.readyState === 'complete' && document.getElementById('login').checkVisibility()")
        self.assertEqual(page.evaluate(table("models")), "")
        page.evaluate(f"document.getElementById('token').value = {TOKEN!r}")
        page.evaluate("document.querySelector('#login button').click()")
        page.wait(f"!document.getElementById('login').checkVisibility() && {table('models')}.includes('simple|1|ready')")


if __name__ == "__main__":
    if devtools.find_browser() is None:
        print("ATOLL-SKIPPED: chromium is not installed")
        sys.exit(0)
    unittest.main()
