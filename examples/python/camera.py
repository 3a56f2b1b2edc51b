# SPDX-License-Identifier: Apache-2.0
"""usage: camera.py MODEL [SOURCE [FRAMES]]

Classifies what OpenCV sees: camera number SOURCE, or a video file. It captures in one thread and
runs the model in another, which lets Python go on meanwhile; a frame that comes while an older one
is looked at is left out. It ends after so many FRAMES, with the video, or with Ctrl-C.

  camera.py mobilenet_v2_1.0_224_quant.tflite 0
"""
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np

import atoll

if not 2 <= len(sys.argv) <= 4:
    sys.exit(__doc__)
model, source, frames = (sys.argv[1:] + ["0", sys.maxsize][len(sys.argv) - 4:])[:3]
interpreter = atoll.Interpreter(model, "auto")
_, height, width, channels = interpreter.inputs[0].shape
capture = cv2.VideoCapture(int(source) if source.isdigit() else source)
if not capture.isOpened():
    sys.exit(f"OpenCV cannot open '{source}'")


def classify(frame):
    color = cv2.COLOR_BGR2GRAY if channels == 1 else cv2.COLOR_BGR2RGB
    pixels = cv2.cvtColor(cv2.resize(frame, (width, height)), color)
    if interpreter.inputs[0].dtype == np.int8:
        pixels = (pixels ^ 0x80).view(np.int8)
    began = time.perf_counter()
    (scores,) = interpreter.run(pixels)
    took = (time.perf_counter() - began) * 1000
    scores = interpreter.outputs[0].dequantize(scores).ravel()
    print(f"class {scores.argmax():4}  score {scores.max():.2f}  {took:6.2f} ms", flush=True)


try:
    with ThreadPoolExecutor(1) as worker:
        looking = worker.submit(int)  # at nothing
        for _ in range(int(frames)):
            is_there, frame = capture.read()
            if not is_there:
                break
            if looking.done():
                looking.result()  # raises what went wrong
                looking = worker.submit(classify, frame)
    looking.result()
except KeyboardInterrupt:
    pass
