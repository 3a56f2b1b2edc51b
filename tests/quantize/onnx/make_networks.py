#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes networks.pack: networks of torchvision as PyTorch exports them, of full size, with holes in
the place of their weights, and what onnxruntime computes of them. With --check SEED makes others
and compares what the imported model computes with what onnxruntime does.

usage: make_networks.py ONNXRUNTIME [--output FILE] [--only NETWORK ...]
       PYTHONPATH=build/release/python/atoll make_networks.py ONNXRUNTIME --check SEED

Needs PyTorch and torchvision (Debian: python3-torch, python3-torchvision), and in the folder
ONNXRUNTIME a copy of onnxruntime/ after 'npm ci --ignore-scripts' there; --check needs the package
atoll (docs/python.md), too. `./test.sh --full onnx` does all that.

The pack is zlib's, of records (numbers little-endian): uint32 length and name; uint32 length and
the ONNX file without what its holes hold; uint32 number of holes, and for each uint32 bytes of the
file before it that no hole holds, uint32 floats, float32 low, float32 high; uint32 channels, height
and width of the picture; uint32 elements and float32 values of the output. The holes and, as one
hole more, from -1 to 1, the picture ([channels, height, width]) hold what `generated` below says.
"""
import argparse
import collections
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy as np
import torch
import torchvision

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 1e-4  # of the largest output
SMALLEST_HOLE = 16  # floats
# Name -> (side of the input, opset).
NETWORKS = {
    "mobilenet_v2": (96, 13), "mobilenet_v3_small": (96, 14), "mobilenet_v3_large": (96, 14),
    "resnet18": (96, 11), "resnet50": (64, 13), "efficientnet_b0": (96, 13),
    "squeezenet1_1": (96, 12), "shufflenet_v2_x1_0": (96, 13), "googlenet": (96, 13),
    "densenet121": (64, 13), "mnasnet1_0": (96, 9),
}
# Where in the rest of the file, how many floats, from where to where.
Hole = collections.namedtuple("Hole", "position floats low high")


def generated(seed, hole):
    """SplitMix64 from `seed` on: low + (high - low) * (the upper 24 bits / 2^24), in double."""
    state = np.uint64(seed) + (np.arange(1, hole.floats + 1, dtype=np.uint64)
                               * np.uint64(0x9E3779B97F4A7C15))
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    share = (state >> np.uint64(40)).astype(np.float64) / 2.0**24
    return (hole.low + (hole.high - hole.low) * share).astype("<f4")


def filled(rest, holes):
    """The ONNX file: what hole i holds is generated from i + 1."""
    parts, done = [], 0
    for i, hole in enumerate(holes):
        parts += [rest[done:hole.position], generated(i + 1, hole).tobytes()]
        done = hole.position
    return b"".join(parts + [rest[done:]])


def picture(side, holes):
    return generated(len(holes) + 1, Hole(0, 3 * side * side, -1.0, 1.0)).reshape(1, 3, side, side)


# ---- What protobuf has ----

def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def fields(data, begin, end):
    """(number, begin of its value, end) of each field."""
    while begin < end:
        tag, begin = varint(data, begin)
        kind = tag & 7
        if kind == 2:
            length, begin = varint(data, begin)
            after = begin + length
        else:
            after = {0: varint(data, begin)[1], 1: begin + 8, 5: begin + 4}[kind]
        yield tag >> 3, begin, after
        begin = after


def float_tensors(onnx):
    """(begin, end) of raw_data in each initializer of float32."""
    for model_field, *graph in fields(onnx, 0, len(onnx)):
        if model_field != 7:  # ModelProto.graph
            continue
        for graph_field, *tensor in fields(onnx, *graph):
            if graph_field != 5:  # GraphProto.initializer
                continue
            values = {number: place for number, *place in fields(onnx, *tensor)}
            data_type, raw_data = values[2], values.get(9)
            if raw_data and varint(onnx, data_type[0])[0] == 1:
                yield raw_data


def with_holes(onnx):
    """(the rest of the file, holes), each of which has its tensor's mean and deviation, but nothing
    beyond its extremes."""
    parts, holes, done, position = [], [], 0, 0
    for begin, end in float_tensors(onnx):
        values = np.frombuffer(onnx, "<f4", (end - begin) // 4, begin).astype(np.float64)
        if len(values) < SMALLEST_HOLE:
            continue
        reach = 3**0.5 * values.std()
        low = np.float32(max(values.min(), values.mean() - reach))
        high = np.float32(min(values.max(), values.mean() + reach))
        parts.append(onnx[done:begin])
        position += begin - done
        holes.append(Hole(position, len(values), float(low), float(high)))
        done = end
    return b"".join(parts + [onnx[done:]]), holes


# ---- Networks ----

def normalize(module, inputs):
    """Batch normalization by what comes, which weights of the same deviation would give as well: all
    channels together, none by its own mean; then each changes something."""
    root = inputs[0].square().mean().sqrt()
    module.running_mean.normal_(0, 0.1).mul_(root)
    module.running_var.uniform_(0.5, 1.5).mul_(root.square())
    module.weight.data.uniform_(0.7, 1.3)
    module.bias.data.normal_(0, 0.1)


@torch.no_grad()
def exported(name, folder):
    """The bytes of the ONNX file."""
    side, opset = NETWORKS[name]
    options = {"init_weights": False} if name == "googlenet" else {}
    network = getattr(torchvision.models, name)(weights=None, **options)
    if name == "googlenet":
        network.aux_logits = False
    network.eval()
    for module in network.modules():
        bias = getattr(module, "bias", None)
        if bias is not None and not bias.any():  # which nobody would miss
            bias.normal_(0, module.weight.std().item())
    hooks = [module.register_forward_pre_hook(normalize) for module in network.modules()
             if isinstance(module, torch.nn.BatchNorm2d)]
    network(torch.rand(4, 3, side, side) * 2 - 1)
    for hook in hooks:
        hook.remove()
    path = folder / "exported"
    torch.onnx.export(network, torch.zeros(1, 3, side, side), str(path), opset_version=opset)
    return path.read_bytes()


def write_input(path, values):
    path.write_text(json.dumps([{"shape": values.shape, "values": values.ravel().tolist()}]))


def read_output(path):
    (values,) = json.loads(path.read_text(encoding="utf-8"))
    return np.array(values, "<f4")


def difference(found, wanted):
    """In largest outputs."""
    return float(np.abs(found.ravel() - wanted).max() / np.abs(wanted).max())


def record(name, rest, holes, output):
    side = NETWORKS[name][0]
    parts = [struct.pack("<I", len(name)), name.encode(), struct.pack("<I", len(rest)), rest,
             struct.pack("<I", len(holes))]
    parts += [struct.pack("<IIff", *hole) for hole in holes]
    parts += [struct.pack("<IIII", 3, side, side, len(output)), output.tobytes()]
    return b"".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("onnxruntime", type=pathlib.Path,
                        help="the folder with node_modules/onnxruntime-node")
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "networks.pack")
    parser.add_argument("--check", type=int, metavar="SEED",
                        help="write nothing, compare networks of this seed with the package atoll")
    parser.add_argument("--only", nargs="*", choices=sorted(NETWORKS), default=sorted(NETWORKS))
    args = parser.parse_args()
    torch.manual_seed(1 if args.check is None else args.check)
    torch.set_num_threads(2)
    records, worst = [], 0.0
    for name in args.only:
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            rest, holes = with_holes(exported(name, folder))
            shown = picture(NETWORKS[name][0], holes)
            model = folder / "network.onnx"
            model.write_bytes(filled(rest, holes))
            write_input(folder / "network.json", shown)
            (folder / "other.onnx").symlink_to(model)
            write_input(folder / "other.json", shown[:, ::-1, ::-1, ::-1])
            subprocess.run(["node", HERE / "run_onnxruntime.js", args.onnxruntime.resolve(), folder],
                           check=True)
            wanted = read_output(folder / "network.out.json")
            seen = difference(read_output(folder / "other.out.json"), wanted)
            print(f"{name}: {len(rest)} bytes and {len(holes)} holes of "
                  f"{sum(hole.floats for hole in holes)} floats, outputs up to "
                  f"{np.abs(wanted).max():.3g}, for another picture {seen:.1e} away", flush=True)
            if not seen > 100 * LIMIT:
                sys.exit(f"{name}: of the picture its output says nothing, nor of its first layers")
            if args.check is None:
                records.append(record(name, rest, holes, wanted))
                continue
            import atoll  # what makes the pack needs no package
            (found,) = atoll.Interpreter(atoll.import_onnx(model)).run(
                np.ascontiguousarray(shown.transpose(0, 2, 3, 1)))
            error = difference(found, wanted)
            worst = max(worst, error)
            print(f"{name}: imported {error:.1e} away", flush=True)
    if args.check is None:
        args.output.write_bytes(zlib.compress(b"".join(records), 9))
        print(f"{len(records)} networks, {args.output.stat().st_size} bytes")
        return 0
    print(f"{len(args.only)} networks, at most {worst:.1e}")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
