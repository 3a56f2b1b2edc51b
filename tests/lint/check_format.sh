#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# All C and C++ sources are as clang-format 14 leaves them. Usage: check_format.sh SOURCE_DIR
set -euo pipefail
cd "$1"
if ! command -v clang-format-14 >/dev/null; then
  echo "ATOLL-SKIPPED: clang-format-14 is not installed"
  exit 0
fi
folders=(runtime driver delegate camera quantize serve compat examples tools python tests bench models)
mapfile -d '' sources < <(find "${folders[@]}" \( -name '*.h' -o -name '*.cc' -o -name '*.c' -o -name '*.hpp' \) -print0)
# One line per violation, "path:line:column: ...".
bad=$(clang-format-14 --dry-run "${sources[@]}" 2>&1 | sed -nE 's/^([^:]+):[0-9]+:.*/\1/p' | sort -u)
if [ -n "$bad" ]; then
  echo "Not formatted; run: clang-format-14 -i" $bad
  exit 1
fi
echo "All ${#sources[@]} sources are formatted."
