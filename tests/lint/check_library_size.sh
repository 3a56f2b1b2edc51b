#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# check_library_size.sh LIBRARY BYTES: without its symbols, the library has at most so many bytes.
set -euo pipefail
stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
strip -o "$stripped" "$1"
size=$(stat -c %s "$stripped")
if [ "$size" -gt "$2" ]; then
  echo "$1: $size bytes without symbols, at most $2 are wanted. 'nm --size-sort -C' shows what is large." >&2
  exit 1
fi
echo "$1: $size of $2 bytes"
