#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: check_links.py FOLDER

Every link of every Markdown file below FOLDER, a source tree or installed documentation, leads to a
file or folder below it that is there, and to a heading of it if it names one.
"""
import pathlib
import re
import sys

SKIPPED = ("build", ".git")


def anchors(path, known={}):
    """What the headings of a page are called in links to them."""
    if path not in known:
        known[path] = set()
        for heading in re.findall(r"(?m)^#+ +(.*?) *$", without_code(path.read_text())):
            text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
            known[path].add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
    return known[path]


def without_code(text):
    return re.sub(r"(?ms)^```.*?^```", "", text)


def problems(root):
    for page in sorted(root.rglob("*.md")):
        if any(part in SKIPPED for part in page.relative_to(root).parts):
            continue
        text = re.sub(r"`[^`\n]*`", "", without_code(page.read_text()))
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            path = (page.parent / target).resolve() if target else page
            name = f"{page.relative_to(root)}: {link}"
            if not path.is_relative_to(root) or not path.exists():
                yield f"{name} leads nowhere"
            elif anchor and path.suffix == ".md" and anchor not in anchors(path):
                yield f"{name}: there is no such heading"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1]).resolve()
    found = list(problems(root))
    print("\n".join(found) if found else f"every link below {root.name} leads somewhere.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
