#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the rooms of the tree and which includes which: docs/images/rooms.svg.

usage: draw_rooms.py [--check | --list] [ROOT]
  --check  exit code 1 if the picture is not that of the tree (lint/rooms)
  --list   print the arrows instead

A room is a folder of the first or second level. It stands above all rooms that it includes something
of. Arrows that follow from others are left out, and so are the two headers that every room includes.
"""
import argparse
import html
import pathlib
import re
import sys

WINGS = ("runtime", "quantize", "models", "driver", "delegate", "serve", "camera", "compat", "examples", "python",
         "tools")
EVERYWHERE = ("atoll/status.h", "atoll/check.h")
PICTURE = "docs/images/rooms.svg"
COLORS = {"runtime": "#dbe9f6", "models": "#ececec", "quantize": "#e0f2f1", "driver": "#fde6d0", "delegate": "#e3f1dc", "serve": "#f3e5f5",
          "camera": "#f3e0ee", "compat": "#fbf3c7", "examples": "#fbf3c7", "python": "#fbf3c7",
          "tools": "#fbf3c7"}


def room_of(path):
    folders = path.split("/")[:-1]
    return "/".join(folders[:2])


def arrows(root):
    """Room -> the rooms that it includes, without what is private to a room."""
    files = [file.relative_to(root).as_posix() for wing in WINGS
             for file in sorted((root / wing).rglob("*"))
             if file.suffix in (".h", ".hpp", ".cc", ".c", ".inc")]
    public = {file.split("/include/")[1]: room_of(file) for file in files if "/include/" in file}
    known = set(files)
    graph = {}
    for file in files:
        targets = graph.setdefault(room_of(file), set())
        for header in re.findall(r'(?m)^\s*#\s*include\s*"([^"]+)"', (root / file).read_text()):
            if header in EVERYWHERE:
                continue
            room = public.get(header) or (room_of(header) if header in known else None)
            if room and room != room_of(file):
                targets.add(room)
    # What is a project of its own includes nothing here and is included by nobody.
    used = set().union(*graph.values())
    return {room: targets for room, targets in graph.items() if targets or room in used}


def unknown_wings(root):
    """Folders with code that are in no picture: neither wings nor what looks at all of them."""
    return sorted(folder.name for folder in root.iterdir()
                  if folder.is_dir() and folder.name not in (*WINGS, "tests", "bench", "build")
                  and not folder.name.startswith(".")
                  and any(next(folder.rglob(name), None) for name in ("*.h", "*.hpp", "*.cc", "*.c")))


def floors(graph):
    """Room -> how many rooms lie below it, one on the other."""
    heights, open_rooms = {}, []

    def height(room):
        if room in open_rooms:
            circle = " -> ".join(open_rooms[open_rooms.index(room):] + [room])
            raise SystemExit(f"rooms include each other in a circle: {circle}")
        if room not in heights:
            open_rooms.append(room)
            heights[room] = max((height(below) + 1 for below in sorted(graph[room])), default=0)
            open_rooms.pop()
        return heights[room]

    for room in sorted(graph):
        height(room)
    return heights


def reduced(graph):
    """Without the arrows that a longer way stands for."""
    reach = {}

    def reachable(room):
        if room not in reach:
            reach[room] = set(graph[room]).union(*(reachable(below) for below in graph[room]))
        return reach[room]

    return {room: {below for below in graph[room]
                   if not any(below in reachable(other) for other in graph[room] - {below})}
            for room in graph}


def draw(graph):
    heights = floors(graph)
    step, box, gap, margin = 74, 30, 14, 12
    by_floor = {}
    for room in sorted(graph, key=lambda name: (WINGS.index(name.split("/")[0]), name)):
        by_floor.setdefault(heights[room], []).append(room)
    widths = {room: 18 + 7.4 * len(room) for room in graph}
    total = max(sum(widths[room] + gap for room in rooms) for rooms in by_floor.values()) + 2 * margin
    places, top = {}, max(by_floor)
    # Each floor in the order of what its rooms stand on, so that arrows are short.
    for floor in range(top + 1):
        rooms = by_floor[floor]

        def over(room):
            below = [sum(places[other][:2]) for other in graph[room]]
            return sum(below) / len(below) if below else 0

        rooms.sort(key=lambda room: (over(room), room))
        x = (total - sum(widths[room] + gap for room in rooms) + gap) / 2
        for room in rooms:
            places[room] = (x, widths[room] / 2, margin + (top - floor) * step)
            x += widths[room] + gap
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:.0f} '
           f'{(top * step) + box + 2 * margin}" font-family="sans-serif" font-size="13">',
           '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
           'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#777"/></marker></defs>',
           '<rect width="100%" height="100%" fill="white"/>']
    for room, targets in sorted(reduced(graph).items()):
        x, half, y = places[room]
        for below in sorted(targets):
            bx, bhalf, by = places[below]
            out.append(f'<path d="M{x + half:.0f} {y + box}C{x + half:.0f} {y + box + 30} '
                       f'{bx + bhalf:.0f} {by - 30} {bx + bhalf:.0f} {by}" fill="none" '
                       'stroke="#777" marker-end="url(#a)"/>')
    for room, (x, half, y) in sorted(places.items()):
        out.append(f'<rect x="{x:.0f}" y="{y}" width="{2 * half:.0f}" height="{box}" rx="4" '
                   f'fill="{COLORS[room.split("/")[0]]}" stroke="#555"/><text x="{x + half:.0f}" '
                   f'y="{y + 20}" text-anchor="middle">{html.escape(room)}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    options = parser.parse_args()
    if unknown := unknown_wings(options.root):
        sys.exit(f"tools/draw_rooms.py does not know {', '.join(unknown)}: add it to WINGS")
    graph = arrows(options.root)
    if options.list:
        for room in sorted(graph):
            print(f"{room}: {' '.join(sorted(graph[room]))}")
        return
    picture = draw(graph)
    path = options.root / PICTURE
    if not options.check:
        path.write_text(picture)
    elif not path.exists() or path.read_text() != picture:
        sys.exit(f"{PICTURE} is not that of the tree: run tools/draw_rooms.py")


if __name__ == "__main__":
    main()
