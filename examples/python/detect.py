# SPDX-License-Identifier: Apache-2.0
"""usage: detect.py MODEL PICTURE [LABELS [OUTPUT]]

Says what is where in a picture: a detector that ends with TFLite_Detection_PostProcess, on the
first device that there is, or the emulator. OUTPUT gets the picture with the boxes.

  detect.py ssd_mobilenet_v1.tflite street.jpg coco_labels.txt boxes.png
"""
import pathlib
import sys

import numpy as np
from PIL import Image, ImageDraw

import atoll

if not 3 <= len(sys.argv) <= 5:
    sys.exit(__doc__)
try:
    interpreter = atoll.Interpreter(sys.argv[1], "auto")
    image = Image.open(sys.argv[2]).convert("RGB")
    names = (pathlib.Path(sys.argv[3]).read_text(encoding="utf-8").splitlines()
             if len(sys.argv) > 3 else [])
except (OSError, ValueError) as error:
    sys.exit(str(error))

_, height, width, _ = interpreter.inputs[0].shape
pixels = np.asarray(image.resize((width, height), Image.BILINEAR))
if interpreter.inputs[0].dtype == np.int8:
    pixels = (pixels ^ 0x80).view(np.int8)
boxes, classes, scores, count = interpreter.run(pixels)
draw = ImageDraw.Draw(image)
for box, kind, score in zip(boxes[0], classes[0].astype(int), scores[0][:int(count[0])]):
    if score < 0.5:
        continue
    top, left, bottom, right = box * [image.height, image.width, image.height, image.width]
    name = names[kind] if kind < len(names) else str(kind)
    print(f"{score:.2f}  {name}  at {left:.0f},{top:.0f}  {right - left:.0f} x {bottom - top:.0f}")
    draw.rectangle([left, top, right, bottom], outline="red", width=3)
    draw.text((left + 4, top + 4), name, fill="red")
if len(sys.argv) > 4:
    image.save(sys.argv[4])
