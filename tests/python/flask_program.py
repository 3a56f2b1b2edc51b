# SPDX-License-Identifier: Apache-2.0
"""A server as others write it over flask and tflite_runtime: it knows nothing of Atoll."""
import os
import threading

import numpy as np
import tflite_runtime.interpreter as tflite
from flask import Flask, request
from PIL import Image

app, lock = Flask(__name__), threading.Lock()
interpreter = tflite.Interpreter(model_path=os.environ["MODEL"])
interpreter.allocate_tensors()
entry, result = interpreter.get_input_details()[0], interpreter.get_output_details()[0]


@app.post("/classify")
def classify():
    image = Image.open(request.files["picture"]).convert("L").resize(entry["shape"][1:3])
    pixels = (np.asarray(image, np.int16) - 128).astype(entry["dtype"])
    with lock:
        interpreter.set_tensor(entry["index"], pixels.reshape(entry["shape"]))
        interpreter.invoke()
        scores = interpreter.get_tensor(result["index"])[0]
    scale, zero_point = result["quantization"]
    return {"class": int(scores.argmax()), "score": scale * (int(scores.max()) - zero_point)}
