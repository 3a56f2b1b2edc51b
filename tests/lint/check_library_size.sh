#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# check_library_size.sh STRIP LIBRARY BYTES: without its symbols, which that program takes away, the
# library has at most so many bytes.
set -euo pipefail
stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
"$1" -o "$stripped" "$2"
size=$(stat -c %s "$stripped")
if [ "$size" -gt "$3" ]; then
  echo "$2: $size bytes without symbols, at most $3 are wanted. 'nm --size-sort -C' shows what is large." >&2
  exit 1
fi
echo "$2: $size of $3 bytes"
