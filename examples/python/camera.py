# SPDX-License-Identifier: Apache-2.0
"""usage: camera.py MODEL [SOURCE [FRAMES]]

Classifies what OpenCV sees: camera number SOURCE, or a video file. It captures in one thread and
runs the model in another, which lets Python go on meanwhile; so the newest frame is always the one
that is looked at. It ends after so many FRAMES, with the video, or with Ctrl-C.

  camera.py mobilenet_v2_1.0_224_quant.tflite 0
"""
import queue
import sys
import threading
import time

import cv2
import numpy as np

import atoll

if not 2 <= len(sys.argv) <= 4:
    sys.exit(__doc__)
source = sys.argv[2] if len(sys.argv) > 2 else "0"
limit = int(sys.argv[3]) if len(sys.argv) > 3 else sys.maxsize
interpreter = atoll.Interpreter(sys.argv[1], "auto")
_, height, width, channels = interpreter.inputs[0].shape
capture = cv2.VideoCapture(int(source) if source.isdigit() else source)
if not capture.isOpened():
    sys.exit(f"OpenCV cannot open '{source}'")
newest = queue.Queue(maxsize=1)


def classify():
    while (frame := newest.get()) is not None:
        color = cv2.COLOR_BGR2GRAY if channels == 1 else cv2.COLOR_BGR2RGB
        pixels = cv2.cvtColor(cv2.resize(frame, (width, height)), color)
        if interpreter.inputs[0].dtype == np.int8:
            pixels = (pixels ^ 0x80).view(np.int8)
        began = time.perf_counter()
        (scores,) = interpreter.run(pixels)
        took = (time.perf_counter() - began) * 1000
        scores = interpreter.outputs[0].dequantize(scores).ravel()
        print(f"class {scores.argmax():4}  score {scores.max():.2f}  {took:6.2f} ms", flush=True)


worker = threading.Thread(target=classify)
worker.start()
try:
    seen = 0
    while seen < limit and worker.is_alive() and (read := capture.read())[0]:
        seen += 1
        if newest.full():  # it is still looking at an older one
            continue
        newest.put(read[1])
except KeyboardInterrupt:
    pass
if worker.is_alive():
    newest.put(None)
worker.join()
