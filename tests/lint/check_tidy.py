#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy finds none of what .clang-tidy lists in the product's C++.

  check_tidy.py SOURCE BUILD [PART...]

BUILD has been built, with g++ and unity builds: a dozen files at once take the time of one, most of
which goes into headers. Without tests and benchmarks, and without kernels, which differ by the
instruction set alone, for each of these. PART: only what is compiled for such folders or files.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TIDY = 'clang-tidy-14'
# What links what others compile, and stand-ins for other sources; tests; one level of many.
LEFT_OUT = re.compile(r'/tests/|/bench/|/cmake/libatoll/|/atoll_camera_static\.dir/|'
                      r'/atoll_kernels_no_avx512\.dir/|/atoll_kernels_avx512\.dir/|/atoll_no_apart\.dir/|'
                      r'/runtime/kernels/\w+/(avx|neon)\w*\.cc$')
# Warnings are the compilers' own affair, and g++'s optimizations nothing that clang knows.
NOT_FOR_TIDY = re.compile(r' -W[\w=+-]+| -f(no-)?(align|ipa|tree|vect)-[\w=-]+')


def main():
    source, build = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
    parts = [f'{source}/{part}' for part in sys.argv[3:]]
    if shutil.which(TIDY) is None:
        print(f'ATOLL-SKIPPED: {TIDY} is not installed')
        return 0
    commands = [command
                for command in json.loads(pathlib.Path(build, 'compile_commands.json').read_text())
                if not LEFT_OUT.search(command['file'])]
    for command in commands:
        command['command'] = NOT_FOR_TIDY.sub('', command['command'])
    files = [command['file'] for command in commands]
    if parts:
        files = [file for file in files if concerns(file, parts)]
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, 'compile_commands.json').write_text(json.dumps(commands))
        ours = f'^{re.escape(source)}/(camera|delegate|driver|examples|models|python|runtime|tools)/'

        def check(file):
            done = subprocess.run([TIDY, '--quiet', f'--config-file={source}/.clang-tidy',
                                   f'--header-filter={ours}', '-p', folder, file],
                                  capture_output=True, text=True)
            return done.returncode, done.stdout + (done.stderr if done.returncode else '')

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(check, files))
    found = [output for code, output in results if code != 0]
    print('\n'.join(found).replace(source + '/', ''))
    print(f'{len(files)} groups of sources, {len(found)} with findings')
    return 1 if found else 0


def concerns(file, parts):
    """Whether a file, or one that it includes as its part of a unity build, is one of the parts."""
    sources = [file]
    if '/Unity/' in file:
        sources += re.findall(r'#include "([^"]+)"', pathlib.Path(file).read_text())
    return any(part == one or one.startswith(part.rstrip('/') + '/')
               for part in parts for one in sources)


sys.exit(main())
