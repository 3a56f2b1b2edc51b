#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes docs/images/camera_page.png: the page of `atoll camera` with the bundled detector.

usage: take_page_picture.py [ATOLL] [PICTURE]

The figures on it are those of this machine: it should have nothing else to do.
"""
import base64
import pathlib
import re
import subprocess
import sys
import time

import devtools

ROOT = pathlib.Path(__file__).resolve().parents[2]
ATOLL = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/tools/atoll/atoll"
PICTURE = sys.argv[2] if len(sys.argv) > 2 else ROOT / "docs/images/camera_page.png"
WIDTH, HEIGHT, SCALE = 1120, 990, 0.8  # two columns, down to the table of times

camera = subprocess.Popen(
    [ATOLL, "camera", ROOT / "models/scenes/scenes_int8.tflite", "--labels",
     ROOT / "models/fashion/labels.txt", "--source", "scenes:/usr/share/datasets/fashion-mnist",
     "--size", "1280x720", "--serve", ":0", "--quiet"],
    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
browser = devtools.Browser(devtools.find_browser())
try:
    url = re.search(r"http://\S+", camera.stderr.readline())[0]
    page = browser.page(url, WIDTH, HEIGHT)
    page.wait("document.querySelector('img')?.naturalWidth == 1280", 60)
    time.sleep(10)  # until the figures are those of a steady stream
    shot = page.call("Page.captureScreenshot",
                     {"clip": {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": SCALE}})
    pathlib.Path(PICTURE).write_bytes(base64.b64decode(shot["data"]))
finally:
    browser.close()
    camera.terminate()
    camera.wait()
