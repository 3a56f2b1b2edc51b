#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown from reports of `atoll benchmark --json`.

    bench/tables.py REPORT.json ...

A row for each model and device, with the median and the 90th percentile for each number of threads
(in ms, measured on the host), the arena and the time to load. One report, one machine, one table.
Servers, of which no threads, arena and load are known, are left out.
"""
import json
import pathlib
import sys


def entries_of(report):
    return report.get("entries", [report])


def machine_text(report):
    machine = report["machine"]
    return (f"{machine['cpu']}, {machine['kernels']} kernels, {machine['logical_cpus']} CPUs, "
            f"{machine['peak_gmacs']} 10^9 MAC/s at most per core, {machine['system']}; "
            f"Atoll {report['atoll']}.")


def table(report):
    entries = [entry for entry in entries_of(report) if entry["device"] is not None]
    threads = sorted({entry["threads"] for entry in entries})
    rows = {}
    for entry in entries:
        key = (pathlib.Path(entry["model"]).stem, entry["device"]["name"])
        rows.setdefault(key, {})[entry["threads"]] = entry
    names = ["default" if n == 0 else "1 thread" if n == 1 else f"{n} threads" for n in threads]
    yield "| model | device | " + " | ".join(names) + " | load | arena |"
    yield "|---|---|" + "---:|" * (len(threads) + 2)
    for (model, device), by_threads in rows.items():
        cells = []
        for n in threads:
            latency = by_threads[n]["latency_ms"] if n in by_threads else None
            cells.append(f"{latency['median']:.3f} ({latency['p90']:.3f})" if latency else "")
        first = next(iter(by_threads.values()))
        cells.append(f"{first['load_ms']['total']:.2f}")
        cells.append(f"{first['arena_bytes'] / 1e3:,.0f} kB")
        yield f"| {model} | {device} | " + " | ".join(cells) + " |"


def main(paths):
    for path in paths:
        report = json.loads(pathlib.Path(path).read_text())
        print(machine_text(report))
        print("Median (90th percentile) in ms per inference, measured on the host; load in ms.\n")
        print("\n".join(table(report)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
