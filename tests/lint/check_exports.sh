#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: check_exports.sh libatoll.so header.h ...
#
# The shared library exports the functions that the public headers declare, and nothing else.
set -eu
library=$1
shift
exported=$(nm -D --defined-only --format=posix "$library" | cut -d ' ' -f 1 | sed 's/@.*//' | sort -u)
declared=$(cat "$@" | tr '\n' ' ' | grep -oE 'ATOLL_EXPORT [^;]*' | grep -oE 'Atoll[A-Za-z]+\(' |
  tr -d '(' | sort -u)
if [ "$exported" != "$declared" ]; then
  echo "$library: exported (left) and declared (right) functions differ:"
  exported_file=$(mktemp)
  echo "$exported" >"$exported_file"
  echo "$declared" | diff "$exported_file" - || true
  rm "$exported_file"
  exit 1
fi
echo "$library exports the $(echo "$exported" | wc -l) functions of its headers."
