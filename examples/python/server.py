# SPDX-License-Identifier: Apache-2.0
"""usage: server.py MODEL [PORT]

Classifies pictures for other programs, on this computer alone: answers each POST of a picture with
its five best classes as JSON. Requests share one device, and have an interpreter each.

  server.py models/fashion/fashion_int8.tflite 8000
  curl --data-binary @models/fashion/ankle_boot.pgm http://127.0.0.1:8000/
"""
import asyncio
import io
import json
import sys

import numpy as np
from PIL import Image, UnidentifiedImageError

import atoll

LARGEST = 10_000_000  # bytes of a picture


def classify(interpreter, picture):
    _, height, width, channels = interpreter.inputs[0].shape
    image = Image.open(io.BytesIO(picture)).convert("L" if channels == 1 else "RGB")
    pixels = np.asarray(image.resize((width, height), Image.BILINEAR))
    if interpreter.inputs[0].dtype == np.int8:
        pixels = (pixels ^ 0x80).view(np.int8)
    (scores,) = interpreter.run(pixels)
    scores = interpreter.outputs[0].dequantize(scores).ravel()
    return [[int(index), round(float(scores[index]), 4)] for index in np.argsort(-scores)[:5]]


async def answer(idle, reader, writer):
    status, body = "400 Bad Request", {"error": "POST a picture, with Content-Length"}
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        size = int(head.partition("\r\ncontent-length:")[2].partition("\r\n")[0] or 0)
        if head.startswith("post ") and 0 < size <= LARGEST:
            picture = await reader.readexactly(size)
            interpreter = await idle.get()
            try:  # in a thread: Python serves others meanwhile
                body = {"classes": await asyncio.to_thread(classify, interpreter, picture)}
                status = "200 OK"
            finally:
                idle.put_nowait(interpreter)
    except UnidentifiedImageError:
        body = {"error": "the bytes are no picture; POST a JPEG or PNG file"}
    except (EOFError, OSError, ValueError, asyncio.LimitOverrunError) as error:
        body = {"error": str(error)}
    text = json.dumps(body).encode()
    writer.write(f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n"
                 f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
    await writer.drain()
    writer.close()


async def serve(model, port):
    device, idle = atoll.Delegate("auto"), asyncio.Queue()
    for _ in range(4):
        idle.put_nowait(atoll.Interpreter(model, device))
    server = await asyncio.start_server(lambda *ends: answer(idle, *ends), "127.0.0.1", port)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", flush=True)
    await server.serve_forever()


if not 2 <= len(sys.argv) <= 3:
    sys.exit(__doc__)
try:
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8000))
except KeyboardInterrupt:
    pass
