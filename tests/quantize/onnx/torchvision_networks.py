#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Networks of torchvision, with made-up weights, exported by PyTorch: the imported model computes
what onnxruntime computes of the ONNX file, within 1e-4 of the largest output.

Needs PyTorch and torchvision (Debian: python3-torch, python3-torchvision), the package atoll
(docs/python.md) in PYTHONPATH, and a folder in which npm installed what onnxruntime/package.json
beside this file names (`./test.sh --full onnx` does all that).

Example:
  PYTHONPATH=build/release/python/atoll tests/quantize/onnx/torchvision_networks.py ORT_FOLDER
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torchvision

import atoll

RUNNER = pathlib.Path(__file__).resolve().parent / "run_onnxruntime.js"
LIMIT = 1e-4
# Name -> (side of the input, opset).
NETWORKS = {
    "mobilenet_v2": (96, 13), "mobilenet_v3_small": (96, 14), "mobilenet_v3_large": (96, 14),
    "resnet18": (96, 11), "resnet50": (64, 13), "efficientnet_b0": (96, 13),
    "squeezenet1_1": (96, 12), "shufflenet_v2_x1_0": (96, 13), "googlenet": (96, 13),
    "densenet121": (64, 13), "mnasnet1_0": (96, 9),
}


def network(name):
    """In inference, with batch normalizations that change something, and outputs around 1."""
    options = {"init_weights": False} if name == "googlenet" else {}
    made = getattr(torchvision.models, name)(weights=None, **options)
    if name == "googlenet":
        made.aux_logits = False
    for module in made.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
            module.weight.data.uniform_(0.7, 1.3)
            module.bias.data.normal_(0, 0.1)
    return made.eval()


@torch.no_grad()
def export(name, folder):
    side, opset = NETWORKS[name]
    picture = torch.rand(1, 3, side, side) * 2 - 1
    torch.onnx.export(network(name), picture, str(folder / f"{name}.onnx"), opset_version=opset)
    (folder / f"{name}.json").write_text(json.dumps(
        [{"shape": list(picture.shape), "values": picture.flatten().tolist()}]))
    return picture.numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("onnxruntime", help="the folder with node_modules/onnxruntime-node")
    parser.add_argument("--only", nargs="*", choices=sorted(NETWORKS), default=sorted(NETWORKS))
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(2)
    worst = 0.0
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        pictures = {name: export(name, folder) for name in args.only}
        subprocess.run(["node", RUNNER, args.onnxruntime, folder], check=True)
        for name, picture in pictures.items():
            (wanted,) = json.loads((folder / f"{name}.out.json").read_text(encoding="utf-8"))
            wanted = np.array(wanted)
            model = atoll.import_onnx(folder / f"{name}.onnx")
            (found,) = atoll.Interpreter(model).run(np.ascontiguousarray(picture.transpose(0, 2, 3, 1)))
            error = np.abs(found.ravel() - wanted).max() / np.abs(wanted).max()
            worst = max(worst, error)
            print(f"{name}: {error:.1e} of {np.abs(wanted).max():.3g}", flush=True)
    print(f"{len(args.only)} networks, at most {worst:.1e}")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
