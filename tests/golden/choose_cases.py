#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chooses the operator conformance cases that are kept in the repository.

    tests/golden/choose_cases.py CONFORMANCE_DIRECTORY

copies the chosen models and a manifest with only their cases to tests/golden/ops. The choice is a
function of the manifest and of runtime/graph/operators.inc: every variant of every operator that Atoll
runs, once per input type, and every model that must be refused because of one of these operators
or of the file itself.
"""
import argparse
import json
import pathlib
import re
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / "tests/golden/ops"
PARTS_OF_THE_FILE = {"FILE", "GRAPH", "QUANTIZATION", "POOL"}
ANY_TYPE = {"ADD", "ARG_MAX", "ARG_MIN", "CAST", "CONV_2D", "DEQUANTIZE", "EQUAL",
            "FULLY_CONNECTED", "GATHER", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "LOGISTIC", "NOT_EQUAL", "QUANTIZE", "RESIZE_BILINEAR", "SOFTMAX",
            "TFLite_Detection_PostProcess"}
# Their variants concern what operators share (broadcasting) or others cover as well.
FEW_VARIANTS = {"EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "MAXIMUM", "MINIMUM",
                "NOT_EQUAL", "RESIZE_NEAREST_NEIGHBOR", "SQUARED_DIFFERENCE"}
FEW_FLOAT_VARIANTS = {"CONV_2D"}
CASES_WITHOUT_VARIANT = 1  # of an operator whose cases do not say what they vary


def implemented_operators():
    text = (ROOT / "runtime/graph/operators.inc").read_text()
    return set(re.findall(r'^ATOLL_(?:OP|OP_WITH|CUSTOM_OP)\("?(\w+)', text, re.MULTILINE))


def runs_here(case, operators):
    if case["expect"] == "error":
        return case["op"] in operators | PARTS_OF_THE_FILE
    if not set(case["ops"]) <= operators:
        return False
    types = {t["dtype"] for t in case["inputs"] + case["runs"][0]["outputs"]}
    return types <= {"int8", "uint8"} or bool(ANY_TYPE & set(case["ops"]))


def choose(cases, operators):
    seen = {}
    for case in cases:
        if not runs_here(case, operators):
            continue
        if case["expect"] == "error":
            yield case
            continue
        dtype = case["inputs"][0]["dtype"]
        few = FEW_FLOAT_VARIANTS if dtype == "float32" else FEW_VARIANTS
        variant = None if case["op"] in few else case["params"].get("variant")
        key = (case["op"], variant, dtype)
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= (1 if variant else CASES_WITHOUT_VARIANT):
            yield case


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=pathlib.Path, help="directory with manifest.json")
    source = parser.parse_args().source
    manifest = json.loads((source / "manifest.json").read_text())
    operators = implemented_operators()
    manifest["cases"] = list(choose(manifest["cases"], operators))

    for old in TARGET.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
    size = 0
    for case in manifest["cases"]:
        target = TARGET / case["file"]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / case["file"], target)
        size += target.stat().st_size
    # One case per line, so that a new choice reads well as a difference.
    cases = manifest.pop("cases")
    head = json.dumps(manifest)[:-1]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    text = f'{head}, "cases": [\n{lines}\n]}}\n'
    (TARGET / "manifest.json").write_text(text)
    print(f"{len(cases)} cases, {size} bytes of models, {len(text)} bytes of manifest")


if __name__ == "__main__":
    main()
