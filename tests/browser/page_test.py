#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The camera's page in a headless Chromium, served by fake_camera.cc.

Environment, set by CMakeLists.txt: ATOLL_FAKE_CAMERA, the program; ATOLL_SCREENSHOT_DIR, where
pictures of the page are left.
"""
import collections
import os
import pathlib
import socket
import struct
import subprocess
import sys
import threading
import unittest
import zlib

import devtools

SCREENSHOTS = pathlib.Path(os.environ["ATOLL_SCREENSHOT_DIR"])
browser = None  # of all tests


def setUpModule():
    global browser
    browser = devtools.Browser(devtools.find_browser())
    unittest.addModuleCleanup(browser.close)


class Camera:
    """fake_camera, running."""

    def __init__(self, port=0, max_viewers=16):
        self._process = subprocess.Popen(
            [os.environ["ATOLL_FAKE_CAMERA"], str(port), str(max_viewers)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = self._process.stdout.readline().strip()
        self.port = int(self.url.rstrip("/").rpartition(":")[2])

    def tell(self, line):
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def stop(self):
        if self._process.poll() is None:
            self._process.stdin.close()
            self._process.wait(10)
        self._process.stdout.close()


# The picture as it is now, in a few bytes.
PIXELS = """(() => {
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [64, 36];
  canvas.getContext('2d').drawImage(picture, 0, 0, 64, 36);
  return canvas.toDataURL();
})()"""

# Texts whose colour differs too little from what is behind them, by WCAG 2.1's formula for AA.
FAINT_TEXTS = """(() => {
  const parse = text => text.match(/[\\d.]+/g).map(Number);
  const luminance = rgb => {
    const [r, g, b] = rgb.slice(0, 3).map(v => v / 255)
                         .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = element => {
    for (; element; element = element.parentElement) {
      const color = parse(getComputedStyle(element).backgroundColor);
      if (color.length < 4 || color[3] > 0.7) return color;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.data.trim());
    if (!own || !element.checkVisibility()) continue;
    const [a, b] = [parse(getComputedStyle(element).color), behind(element)].map(luminance);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faint.push(`${element.textContent.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return faint;
})()"""


class RealCamera:
    """`atoll camera --serve` with a model on a moving pattern, running."""

    def __init__(self, *arguments):
        self._process = subprocess.Popen(
            [os.environ["ATOLL_COMMAND"], "camera", *arguments, "--serve", ":0", "--quiet"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.url = self._process.stderr.readline().split()[-1]

    def stop(self):
        self._process.terminate()
        self._process.stderr.close()
        self._process.wait(30)


def text_of(name):
    return f"document.getElementById('{name}').textContent"


def shown_message(*parts):
    """True when the message over the picture is visible and has these parts."""
    tests = "".join(f" && m.textContent.includes({part!r})" for part in parts)
    return f"(() => {{ const m = document.getElementById('message'); return !m.hidden{tests}; }})()"


PICTURE_THERE = "!picture.hidden && picture.naturalWidth === 640 && message.hidden"


class PageTest(unittest.TestCase):
    longMessage = True

    def camera(self, **options):
        camera = Camera(**options)
        self.addCleanup(camera.stop)
        return camera

    def open(self, camera, width=1280, height=900, dark=False):
        page = browser.page(camera.url, width, height, dark)
        self.addCleanup(page.close)
        return page

    def open_running(self, camera, **options):
        page = self.open(camera, **options)
        page.wait(f"document.readyState === 'complete' && {PICTURE_THERE}")
        return page

    def check_moves(self, page):
        first = page.evaluate(PIXELS)
        page.wait(f"{PIXELS} !== {first!r}")

    def check_screenshot(self, page, name):
        png = page.screenshot()
        (SCREENSHOTS / f"{name}.png").write_bytes(png)
        self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
        data, at = b"", 8
        while at < len(png):
            size, kind = struct.unpack_from(">I4s", png, at)
            data += png[at + 8:at + 8 + size] if kind == b"IDAT" else b""
            at += size + 12
        self.assertGreater(len(set(zlib.decompress(data))), 100, "the page is almost uniform")

    def test_shows_what_the_status_says(self):
        camera = self.camera()
        page = self.open_running(camera)
        self.check_moves(page)
        for name, text in {
                "source": "/dev/video9: MJPEG of 640 x 360", "state": "running", "fps": "28.6",
                "captured-fps": "30.0 captured", "delay": "21.3", "delay-p99": "99 % within 42.5 ms",
                "utilization": "42.5", "modelled-utilization": "21.6", "captured": "945",
                "processed": "900", "dropped": "42", "failed": "1", "in_flight": "2",
                "picture": "640 × 360, always the newest frame.",
                "device": "emu: emulated Atoll-1, 64 x 64 cells at 500 MHz (emulated on this host)",
        }.items():
            self.assertEqual(page.evaluate(text_of(name)), text, name)
        self.assertIn("frame 17: the JPEG ends", page.evaluate(text_of("last-failure")))
        self.assertTrue(page.evaluate("document.getElementById('health').hidden"))
        self.assertIn("1 of 16 viewers", page.evaluate(text_of("viewers")))
        self.assertEqual(page.evaluate("document.title"), "28.6 fps · atoll camera")
        self.assertEqual(page.complaints(), [])

    def test_has_a_bar_for_each_stage_that_happens(self):
        page = self.open_running(self.camera())
        rows = page.evaluate(
            "[...document.querySelectorAll('#latency .row')].filter(row => !row.hidden)"
            ".map(row => row.innerText.split('\\n')[0])")
        self.assertEqual(rows, ["capture", "decode", "waiting", "resize", "inference", "compute",
                                "results", "draw", "encode", "total"])
        # p99 is twice and p90 one and a half times the median; the end of the scale is 1.06 * 42.5 ms.
        places = page.evaluate("""(() => {
          const total = document.querySelector('.row.total');
          const width = total.querySelector('.track').getBoundingClientRect();
          const at = (name, side) =>
              (total.querySelector(name).getBoundingClientRect()[side] - width.left) / width.width;
          return [at('.p50', 'right'), at('.p90', 'left'), at('.p99', 'left'), at('.budget', 'left')];
        })()""")
        for place, share in zip(places, (21.25, 31.875, 42.5, 33.333)):
            self.assertAlmostEqual(place, share / (42.5 * 1.06), delta=0.02)

    def test_shows_models_and_keeps_their_names_text(self):
        page = self.open_running(self.camera())
        cards = page.evaluate("[...document.querySelectorAll('.model')].map(card => card.textContent)")
        self.assertEqual(len(cards), 2)
        for text in ("ssd_mobilenet_v2", "detect", "108 of 110 operators", "7.21 ms", "person 0.93",
                     "DEQUANTIZE: its output is float32", "5.50 ms, 90 % within 8.25"):
            self.assertIn(text, cards[0])
        for text in ('<b onclick="alert(1)">tricky</b> "&amp;" \ufffd', "what ssd_mobilenet_v2 finds",
                     "1,234,567", "<script>document.title"):
            self.assertIn(text, cards[1])
        self.assertEqual(page.evaluate("document.querySelectorAll('.model b, .model script').length"), 0)
        # Details stay open while the status goes on.
        page.evaluate("document.querySelector('.model details').open = true")
        polls = "performance.getEntriesByType('resource').filter(e => e.name.includes('status')).length"
        before = page.evaluate(polls)
        page.wait(f"{polls} > {before} + 1")
        self.assertTrue(page.evaluate("document.querySelector('.model details').open"))

    def test_fits_every_screen_in_light_and_dark(self):
        camera = self.camera()
        pages = set()
        for name, width, height, dark in (("desktop-light", 1920, 1080, False),
                                          ("desktop-dark", 1366, 768, True),
                                          ("phone-light", 360, 740, False),
                                          ("phone-dark", 390, 844, True)):
            with self.subTest(name):
                page = self.open_running(camera, width=width, height=height, dark=dark)
                self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width)
                self.assertEqual(page.evaluate(FAINT_TEXTS), [])
                pages.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
                self.check_screenshot(page, name)
        self.assertEqual(len(pages), 2)

    def test_tells_of_trouble_and_of_the_end(self):
        camera = self.camera()
        page = self.open_running(camera)
        camera.tell("trouble")
        page.wait("!document.getElementById('health').hidden")
        self.assertEqual(page.evaluate(text_of("health")),
                         "Trouble so far: 3 requests failed, 2 resets, "
                         "1 request computed without it.")
        camera.tell("end")
        page.wait(shown_message("The pipeline has ended after 945 frames."))
        self.assertEqual(page.evaluate(text_of("state")), "ended")
        self.assertEqual(page.evaluate("picture.naturalWidth"), 640, "the last picture stays")
        self.check_screenshot(page, "ended")

    def test_comes_back_when_the_server_does(self):
        camera = self.camera()
        page = self.open_running(camera)
        camera.stop()
        page.wait(shown_message("No answer for "))
        self.assertEqual(page.evaluate(text_of("state")), "not connected")
        self.assertEqual(page.evaluate(FAINT_TEXTS), [])
        self.check_screenshot(page, "no-answer")
        camera = self.camera(port=camera.port)
        page.wait(PICTURE_THERE)
        self.check_moves(page)
        self.assertEqual(page.evaluate(text_of("state")), "running")

    def test_asks_again_when_only_the_stream_ends(self):
        page = self.open_running(self.camera())
        page.evaluate("picture.removeAttribute('src')")
        page.wait(f"picture.src !== '' && {PICTURE_THERE}")
        self.check_moves(page)

    def test_says_that_too_many_watch(self):
        camera = self.camera(max_viewers=1)
        with socket.create_connection(("127.0.0.1", camera.port)) as first:
            first.sendall(b"GET /stream.mjpg HTTP/1.1\r\nHost: localhost\r\n\r\n")
            self.assertIn(b"200 OK", first.recv(100))
            # Takes what comes, as else it would be dropped.
            reader = threading.Thread(target=lambda: collections.deque(
                iter(lambda: first.recv(65536), b""), maxlen=1))
            reader.start()
            page = self.open(camera)
            page.wait("document.readyState === 'complete' && " +
                      shown_message("1 viewer watches already"))
            self.assertEqual(page.evaluate("picture.hidden"), True)
            self.assertEqual(page.evaluate(text_of("fps")), "28.6", "the numbers are for all")
            self.assertEqual(page.evaluate(FAINT_TEXTS), [])
            self.check_screenshot(page, "viewer-limit")
            first.shutdown(socket.SHUT_RDWR)
            reader.join()
        page.wait(PICTURE_THERE)
        self.check_moves(page)

    def test_asks_for_nothing_while_nobody_sees_it(self):
        camera = self.camera()
        page = self.open_running(camera)
        page.evaluate("""(() => {
          Object.defineProperty(document, 'hidden', {get: () => window.away, configurable: true});
          window.away = true;
          document.dispatchEvent(new Event('visibilitychange'));
        })()""")
        other = self.open(camera)
        other.wait("document.readyState === 'complete' && "
                   "document.getElementById('viewers').textContent.startsWith('1 of 16 viewers; "
                   "since the start 2 served')")
        page.call("Page.bringToFront")
        page.evaluate("window.away = false")
        page.wait(f"picture.src !== '' && {PICTURE_THERE}")
        self.check_moves(page)

    def test_shows_a_real_pipeline(self):
        """Two models on HD frames, the second in the boxes of the first, on the emulated device."""
        models = pathlib.Path(os.environ["ATOLL_SOURCE_DIR"]) / "models"
        source = ("scenes:/usr/share/datasets/fashion-mnist"
                  if pathlib.Path("/usr/share/datasets/fashion-mnist").is_dir() else
                  str(pathlib.Path(os.environ["ATOLL_SOURCE_DIR"]) / "tests/golden/scenes/easy"))
        camera = RealCamera(
            models / "scenes/scenes_int8.tflite", models / "crops/crops_int8.tflite",
            "--inside", "1:0", "--labels", models / "fashion/labels.txt", "--labels",
            models / "fashion/labels.txt", "--device", "emu", "--source", source, "--loop",
            "--size", "1280x720")
        self.addCleanup(camera.stop)
        page = self.open(camera, width=1280, height=1300)
        page.wait("document.readyState === 'complete' && !picture.hidden && "
                  "picture.naturalWidth >= 256 && message.hidden")
        self.check_moves(page)
        page.wait(f"parseFloat({text_of('fps')}) > 1")
        cards = page.evaluate("[...document.querySelectorAll('.model')].map(card => card.textContent)")
        self.assertEqual(len(cards), 2)
        for text in ("scenes_int8", "detect", "24 of 27 operators on the device"):
            self.assertIn(text, cards[0])
        for text in ("crops_int8", "classify", "what scenes_int8 finds"):
            self.assertIn(text, cards[1])
        self.assertIn("emulated Atoll-1", page.evaluate(text_of("device")))
        page.wait("[...document.querySelectorAll('#latency .row')].every(row => !row.hidden)")
        self.assertEqual(page.evaluate("[...document.querySelectorAll('#latency .row')].at(-1).className"),
                         "row total")
        counts = page.evaluate("['captured', 'processed', 'dropped', 'failed', 'in_flight']"
                               ".map(name => Number(document.getElementById(name).textContent"
                               ".replaceAll(',', '')))")
        self.assertEqual(counts[0], sum(counts[1:]))
        self.assertGreater(counts[1], 0)
        self.check_screenshot(page, "real-pipeline")
        self.assertEqual(page.complaints(), [])


if __name__ == "__main__":
    if devtools.find_browser() is None:
        print("ATOLL-SKIPPED: chromium is not installed")
        sys.exit(0)
    unittest.main()
