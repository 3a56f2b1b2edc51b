#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/exactness.md: what equals TensorFlow Lite's reference kernels, byte for byte.

Runs `atoll inspect` and `atoll verify` on every model with golden results, and the operator
conformance cases. Everything on the page follows from the code and the reference data; no times.

  tools/generate_exactness.py            write the page (about a minute)
  tools/generate_exactness.py --check    run all the same, and only say whether the page is stale
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/exactness.md"

HEAD = """# Exactness

<!-- Made by tools/generate_exactness.py. Do not edit. -->

Compared with TensorFlow Lite itself: the reference kernels of LiteRT at commit f67457790c9c, double rounding. Integers are equal in every byte, float32 within 1e-5 of the largest value of its tensor.

## Whole models

Inputs come from the seeds ([command.md](command.md)). Compared are all tensors that operators write and that exist outside of the device: on the CPU every one, on the emulator those at the ends of partitions. The share is that of multiply-accumulates in convolutions, depthwise convolutions and fully-connected layers.

| model | operators | million MACs | on the device | MACs on the device | partitions | seeds | CPU: tensors, bytes | emulator: tensors, bytes |
|---|---|---|---|---|---|---|---|---|
"""
OPS_HEAD = """
TensorFlow Lite refuses {refused}, so there the emulator is compared with the CPU.

## Operators

Conformance cases of single operators and short chains, with two seeds each; those with a node on the device run partly or wholly there.

| operator | cases | equal on the CPU | equal on the emulator | with a node on the device |
|---|---|---|---|---|
"""


class Sources:
    def __init__(self, build, shared):
        self.command = [build / "tools/atoll/atoll"]
        self.ops_test = [build / "tests/integration-golden_ops_test"]
        self.models = shared / "models"
        self.golden = shared / "golden"
        self.names = sorted(path.stem for path in (self.golden / "models").glob("*.json"))

    def json(self, *arguments):
        done = subprocess.run([*self.command, *map(str, arguments), "--json"], capture_output=True,
                              text=True, check=False)
        if done.returncode not in (0, 6):  # 6: a mismatch, which is a result
            sys.exit(f"{' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def model(self, name):
        return self.models / f"{name}.tflite"

    def has_results(self, name):
        golden = json.loads((self.golden / "models" / f"{name}.json").read_text())
        return all("outputs" in result for result in golden["seeds"].values())

    def cases(self):
        """Operator -> number of cases that must be equal; and how many must be refused."""
        counts = {}
        manifest = json.loads((self.golden / "ops/manifest.json").read_text())
        for case in manifest["cases"]:
            key = "" if case["expect"] == "error" else case["op"]
            counts[key] = counts.get(key, 0) + 1
        return counts, counts.pop("")


def plan_cells(source, name):
    plan = source.json("inspect", source.model(name), "--device", "emu")
    macs = plan["macs"]
    on_device = sum(node["macs"] for node in plan["nodes"] if node["partition"] >= 0)
    share = f"{100 * on_device / macs:.1f} %" if macs else "–"
    return [name, str(len(plan["nodes"])), f"{macs / 1e6:.3f}", str(plan["nodes_on_device"]), share,
            str(plan["partition_count"])]


def comparison(source, name, device, against):
    report = source.json("verify", source.model(name), "--device", device, "--against", against,
                         "--seed", "1", "--seed", "2")
    seeds = report["seeds"]
    differing = sum(seed["differing_tensor_count"] for seed in seeds)
    if differing:
        return f"**{differing} tensors differ**"
    text = f"{seeds[0]['tensor_count']}, {seeds[0]['byte_count']:,} equal"
    tolerated = max(seed["within_tolerance_count"] for seed in seeds)
    return text + (f" ({tolerated} float32 within tolerance)" if tolerated else "")


def result_cells(source, name):
    if source.has_results(name):
        against = f"golden:{source.golden / 'models'}"
        return ["1, 2", comparison(source, name, "cpu", against),
                comparison(source, name, "emu", against)]
    return ["1, 2", "no results", comparison(source, name, "emu", "cpu")]


def op_results(source):
    """Operator -> the last three cells of its row."""
    with tempfile.TemporaryDirectory() as directory:
        report = pathlib.Path(directory, "report.json")
        subprocess.run([*source.ops_test, "--gtest_filter=*/Shared.*",
                        f"--gtest_output=json:{report}"], check=True, stdout=subprocess.DEVNULL)
        (suite,) = json.loads(report.read_text())["testsuites"]
    cpu, emulator = (next(test for test in suite["testsuite"] if test["name"].endswith(where))
                     for where in ("/cpu", "/emu"))
    return {key.removesuffix(".cases"): [cpu[key.replace(".cases", ".equal")],
                                         emulator[key.replace(".cases", ".equal")],
                                         emulator[key.replace(".cases", ".on_device")]]
            for key in cpu if key.endswith(".cases")}


def row(cells):
    return f"| {' | '.join(cells)} |\n"


def render(source):
    results_of_op = op_results(source)
    refused = [f"`{name}`" for name in source.names if not source.has_results(name)]
    page = HEAD
    for name in source.names:
        page += row(plan_cells(source, name) + result_cells(source, name))
    page += OPS_HEAD.format(refused=" and ".join(refused))
    counts, refused_cases = source.cases()
    totals = [0, 0, 0, 0]
    for op in sorted(counts):
        cells = [str(counts[op]), *results_of_op[op]]
        totals = [total + int(cell) for total, cell in zip(totals, cells)]
        page += row([op, *cells])
    page += row(["all", *map(str, totals)])
    return page + f"\n{refused_cases} more cases are damaged models, all of which are refused.\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release",
                        help="a build with the command and the tests (build/release)")
    parser.add_argument("--shared", type=pathlib.Path, default=ROOT.parent / "shared",
                        help="reference models and results (../shared)")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if not (options.shared / "golden").exists():
        if options.check and os.environ.get("ATOLL_REQUIRE_SHARED") != "1":
            print(f"ATOLL-SKIPPED: reference data: {options.shared / 'golden'} is absent")
            return
        sys.exit(f"{options.shared / 'golden'} is absent; give --shared")
    source = Sources(options.build, options.shared)
    page = render(source)
    if not options.check:
        PAGE.write_text(page)
    elif page != PAGE.read_text():
        sys.exit(f"{PAGE.relative_to(ROOT)} is stale; write it anew with: "
                 f"tools/generate_exactness.py --build {options.build} --shared {options.shared}")


if __name__ == "__main__":
    main()
