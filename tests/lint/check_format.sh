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
folders=(runtime driver delegate examples tools tests bench models)
mapfile -d '' sources < <(find "${folders[@]}" \( -name '*.h' -o -name '*.cc' -o -name '*.c' \) -print0)
bad=()
for source in "${sources[@]}"; do
  clang-format-14 --dry-run -Werror "$source" 2>/dev/null || bad+=("$source")
done
if [ ${#bad[@]} -gt 0 ]; then
  echo "Not formatted; run: clang-format-14 -i ${bad[*]}"
  exit 1
fi
echo "All ${#sources[@]} sources are formatted."
