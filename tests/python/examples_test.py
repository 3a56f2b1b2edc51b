# SPDX-License-Identifier: Apache-2.0
"""The programs in examples/python do what their heads say."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

SOURCE = pathlib.Path(os.environ["ATOLL_SOURCE_DIR"])
MODEL = SOURCE / "models/fashion/fashion_int8.tflite"
SCENES = SOURCE / "models/scenes/scenes_int8.tflite"
BOOT = SOURCE / "models/fashion/ankle_boot.pgm"
LABELS = SOURCE / "models/fashion/labels.txt"


def command(name, *arguments):
    return [sys.executable, "-B", str(SOURCE / "examples/python" / name), *map(str, arguments)]


def run(name, *arguments):
    return subprocess.run(command(name, *arguments), capture_output=True, text=True, timeout=300,
                          check=False)


class ExamplesTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)


class Programs(ExamplesTest):
    def test_classify(self):
        for device in ("cpu", "emu"):
            done = run("classify.py", MODEL, BOOT, LABELS, device)
            self.assertEqual(done.stdout.splitlines()[0], "0.9062  Ankle boot", done.stderr)
        self.assertEqual(run("classify.py", MODEL, BOOT).stdout.split()[:2], ["0.9062", "9"])

    def test_classify_says_what_is_wrong(self):
        for arguments, word in (((MODEL, "/no/picture.pgm"), "/no/picture.pgm"),
                                (("/no/model.tflite", BOOT), "/no/model.tflite"),
                                ((MODEL, BOOT, "-", "EMU"), "emu"),
                                ((MODEL, LABELS), "identify"),
                                ((), "usage")):
            done = run("classify.py", *arguments)
            self.assertEqual(done.returncode, 1)
            self.assertIn(word, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_detect(self):
        from PIL import Image
        # Nothing is to be seen on grey; the picture is written all the same.
        picture, boxes = self.directory / "grey.png", self.directory / "boxes.png"
        Image.new("RGB", (320, 240), "grey").save(picture)
        done = run("detect.py", SCENES, picture, LABELS, boxes)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.assertEqual(Image.open(boxes).size, (320, 240))
        # A boot as large as the scenes' clothes are.
        scene = Image.new("RGB", (352, 256), (90, 120, 150))
        scene.paste(Image.open(BOOT).convert("RGB").resize((100, 100)), (40, 60))
        scene.save(picture)
        done = run("detect.py", SCENES, picture, LABELS, boxes)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Ankle boot", done.stdout)

    def test_server(self):
        with subprocess.Popen(command("server.py", MODEL, 0), stdout=subprocess.PIPE,
                              text=True) as server:
            try:
                url = server.stdout.readline().strip()
                with urllib.request.urlopen(url, BOOT.read_bytes(), timeout=60) as reply:
                    self.assertEqual(json.load(reply)["classes"][0], [9, 0.9062])
                for body in (None, b"", b"this is no picture"):
                    with self.assertRaises(urllib.error.HTTPError) as caught:
                        urllib.request.urlopen(url, body, timeout=60)
                    self.assertEqual(caught.exception.code, 400)
                    with caught.exception as answer:
                        text = answer.read().decode()
                        self.assertIn("picture" if body != b"" else "", text)
                        self.assertNotIn("BytesIO", text)
            finally:
                server.send_signal(signal.SIGINT)
            self.assertEqual(server.wait(60), 0)


class Camera(ExamplesTest):
    def test_a_video(self):
        try:
            import cv2
        except ImportError:
            print("ATOLL-SKIPPED: absent: OpenCV (python3-opencv)")
            sys.exit(0)
        import numpy as np
        video = self.directory / "video.avi"
        writer = cv2.VideoWriter(str(video), cv2.VideoWriter_fourcc(*"MJPG"), 30, (320, 240))
        for level in range(30):
            writer.write(np.full((240, 320, 3), level * 8, np.uint8))
        writer.release()
        done = run("camera.py", MODEL, video)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout.splitlines()[-1], r"class +\d+  score 0\.\d\d +\d+\.\d\d ms")
        done = run("camera.py", MODEL, self.directory / "none.avi")
        self.assertEqual(done.returncode, 1)
        self.assertIn("none.avi", done.stderr)


if __name__ == "__main__":
    unittest.main()
