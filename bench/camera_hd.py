#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Several models on every HD frame, 30 frames a second, drawn into and streamed to one viewer.

Runs `atoll camera --policy every --serve` on a picture, repeated as MJPEG, and reads the stream as
a browser would. Prints what became of the frames and where their time went; exits with 1 if any was
lost or the 99 % quantile of the delay is above --p99.

Examples:
  ./camera_hd.py cat_720p.jpg mobilenet_v2_1.0_224_quant.tflite ssd_mobilenet_v1.tflite \\
      movenet_single_pose_lightning_ptq.tflite
  ./camera_hd.py cat_1080p.jpg ssd_mobilenet_v1.tflite --seconds 60
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent


def watch(url, counts):
    """Reads the stream until it ends."""
    try:
        with urllib.request.urlopen(url + "stream.mjpg", timeout=30) as stream:
            while block := stream.read(1 << 16):
                counts["bytes"] += len(block)
                counts["frames"] += block.count(b"\xff\xd8\xff")
    except OSError:
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=pathlib.Path, help="a JPEG: the frame")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--atoll", default=ROOT / "build/release/tools/atoll/atoll")
    parser.add_argument("--device", default="emu")
    parser.add_argument("--threads", default="0")
    parser.add_argument("--fps", type=float, default=30)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--p99", type=float, default=66, help="ms, at most")
    parser.add_argument("--json", action="store_true", help="the command's own report")
    args = parser.parse_args()

    with tempfile.NamedTemporaryFile(suffix=".mjpeg") as video:
        video.write(args.picture.read_bytes() * 3)
        video.flush()
        frames = round(args.fps * args.seconds)
        camera = subprocess.Popen(
            [args.atoll, "camera", *args.models, "--device", args.device, "--threads", args.threads,
             "--source", video.name, "--loop", "--fps", str(args.fps), "--frames", str(frames),
             "--policy", "every", "--serve", ":0", "--quiet", "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = camera.stderr.readline()
        if "http://" not in line:
            sys.exit(line + camera.stderr.read())
        counts = {"frames": 0, "bytes": 0}
        threading.Thread(target=watch, args=(line.split()[-1], counts), daemon=True).start()
        threading.Thread(target=camera.stderr.read, daemon=True).start()
        report = json.loads(camera.stdout.read())
        camera.wait()

    if args.json:
        print(json.dumps(report))
    else:
        print(f"{report['captured']} captured = {report['processed']} processed + "
              f"{report['dropped']} dropped + {report['failed']} failed, {report['fps']:.2f} fps; "
              f"the viewer got {counts['frames']} pictures, {counts['bytes'] / 1e6:.0f} MB")
        print("| ms | p50 | p90 | p99 | max |\n|---|---|---|---|---|")
        rows = list(report["latency_ms"].items())
        if len(report["models"]) > 1:
            rows += [(f"{pathlib.Path(model['model']).stem}, submission to outputs",
                      model["infer_ms"]) for model in report["models"]]
        for name, ms in rows:
            print(f"| {name} | " + " | ".join(f"{ms[q]:.2f}" for q in ("p50", "p90", "p99", "max"))
                  + " |")
    p99 = report["latency_ms"]["total"]["p99"]
    return 0 if report["processed"] == frames and p99 <= args.p99 else 1


if __name__ == "__main__":
    sys.exit(main())
