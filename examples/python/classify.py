# SPDX-License-Identifier: Apache-2.0
"""usage: classify.py MODEL PICTURE [LABELS [DEVICE]]

Says what a picture shows: the five best classes of a quantized classifier.

  classify.py models/fashion/fashion_int8.tflite models/fashion/ankle_boot.pgm \\
              models/fashion/labels.txt emu
"""
import pathlib
import sys

import numpy as np
from PIL import Image

import atoll

if not 3 <= len(sys.argv) <= 5:
    sys.exit(__doc__)
model, picture, labels, device = (sys.argv[1:] + ["-", "auto"][len(sys.argv) - 5:])[:4]

try:
    interpreter = atoll.Interpreter(model, device)
    names = pathlib.Path(labels).read_text(encoding="utf-8").splitlines() if labels != "-" else []
    _, height, width, channels = interpreter.inputs[0].shape
    image = Image.open(picture).convert("L" if channels == 1 else "RGB")
except (OSError, ValueError) as error:  # what atoll raises is one of these, too
    sys.exit(str(error))

pixels = np.asarray(image.resize((width, height), Image.BILINEAR))
if interpreter.inputs[0].dtype == np.int8:  # from -128 to 127
    pixels = (pixels ^ 0x80).view(np.int8)
(scores,) = interpreter.run(pixels)
scores = interpreter.outputs[0].dequantize(scores).ravel()
for index in np.argsort(-scores, kind="stable")[:5]:
    print(f"{scores[index]:.4f}  {names[index] if index < len(names) else index}")
