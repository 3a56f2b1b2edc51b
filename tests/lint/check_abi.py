#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that were built with an older version still run with this one: nothing of the C interface
was removed or changed since tests/lint/libatoll.abi was written.

  check_abi.py --cc GCC [--write | LIBRARY.so ...]

The interface is what the public headers declare, which is what both libraries export
(check_exports.sh). Its debug information comes from a library that is made of the headers alone,
each declared function with an empty body, so that nothing else need be compiled with any. Allowed
are new functions, new values of enums, and new fields at the end of structs that begin with their
size. --write makes the file anew: for an interface that changes on purpose, together with a line in
CHANGELOG.md.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ['runtime/include/atoll/runtime.h', 'delegate/include/atoll/delegate.h']
BASELINE = ROOT / 'tests/lint/libatoll.abi'


def describe_interface(cc, folder):
    """Path of abidw's description of what the headers declare."""
    (folder / 'atoll').mkdir()
    for header in HEADERS:
        text = (ROOT / header).read_text()
        text = re.sub(r'^(ATOLL_EXPORT [^;{]*);', r'\1 { __builtin_trap(); }', text, flags=re.M)
        (folder / 'atoll' / pathlib.Path(header).name).write_text(text)
    (folder / 'interface.c').write_text('#include "atoll/delegate.h"\n#include "atoll/runtime.h"\n')
    subprocess.run([cc, '-std=c99', '-g', '-O0', '-fPIC', '-shared', '-I.', 'interface.c',
                    '-o', 'interface.so'], cwd=folder, check=True)
    description = folder / 'interface.abi'
    # Nothing of where it was made.
    subprocess.run(['abidw', '--no-show-locs', '--no-corpus-path', '--no-comp-dir-path',
                    '--type-id-style', 'hash', '--out-file', str(description), 'interface.so'],
                   cwd=folder, check=True)
    description.write_text(re.sub(r" (path|comp-dir-path)='[^']*'", '', description.read_text()))
    return description


def compare(old, new, *options):
    """abidiff's report about everything but new functions; empty: nothing changed."""
    done = subprocess.run(['abidiff', '--harmless', '--no-added-syms', *options, str(old), str(new)],
                          capture_output=True, text=True)
    if done.returncode & 3:
        sys.exit(f'abidiff failed: {done.stderr}')
    return done.stdout if done.returncode else ''


def grown_types(report):
    """Names of the types in a report of changed leaves that only have more than before."""
    names = []
    for kind, name, text in re.findall(r"^'(enum|struct) (\w+)[^\n]*' changed:\n((?:  .*\n)*)",
                                       report, re.M):
        changes = [line.strip() for line in text.splitlines()]
        if kind == 'enum':
            rules = r"type size hasn't changed|\d+ enumerator insertions?:|'\w+::\w+' value '-?\d+'"
            is_growth = True
        else:
            rules = r"type size changed from|\d+ data member insertions?:|'.*', at offset \d+ \("
            end = re.search(r'type size changed from (\d+) ', text)
            is_growth = begins_with_size(name) and end is not None and all(
                int(offset) >= int(end[1]) for offset in re.findall(r', at offset (\d+) ', text))
        if is_growth and all(re.match(rules, change) for change in changes):
            names.append(name)
    return names


def begins_with_size(struct):
    text = '\n'.join((ROOT / header).read_text() for header in HEADERS)
    return re.search(rf'typedef struct {struct} {{\s*size_t struct_size;', text) is not None


def missing_symbols(library):
    listed = subprocess.run(['nm', '-D', '--defined-only', '--format=posix', library],
                            capture_output=True, text=True, check=True).stdout
    exported = {line.split()[0].split('@')[0] for line in listed.splitlines()}
    symbols = re.findall(r"<elf-symbol name='(\w+)'", BASELINE.read_text())
    return [symbol for symbol in symbols if symbol not in exported]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--cc', default='gcc')
    parser.add_argument('--write', action='store_true')
    parser.add_argument('libraries', nargs='*')
    arguments = parser.parse_args()
    if shutil.which('abidiff') is None:
        print('ATOLL-SKIPPED: abigail-tools is not installed')
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        description = describe_interface(arguments.cc, folder)
        if arguments.write:
            shutil.copyfile(description, BASELINE)
            print(f'wrote {BASELINE.relative_to(ROOT)}')
            return 0
        grown = grown_types(compare(BASELINE, description, '--leaf-changes-only'))
        suppressions = folder / 'grown.suppr'
        suppressions.write_text(''.join(f'[suppress_type]\n  name = {name}\n' for name in grown))
        report = compare(BASELINE, description, '--suppressions', str(suppressions))
    for library in arguments.libraries:
        for symbol in missing_symbols(library):
            report += f'{pathlib.Path(library).name} does not export {symbol}.\n'
    if report:
        print(report + 'The C interface changed in a way that programs built before would notice. If '
              'that is meant:\n  tests/lint/check_abi.py --write\nand a line in CHANGELOG.md.')
        return 1
    more = f'; with more than before: {", ".join(grown)}' if grown else ''
    print(f'The C interface has everything that {BASELINE.relative_to(ROOT)} has{more}.')
    return 0


sys.exit(main())
