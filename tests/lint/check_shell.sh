#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Shell scripts parse, can be executed, and stop at the first error. Usage: check_shell.sh SOURCE_DIR
set -euo pipefail
cd "$1"
scripts=(demo.sh test.sh .ci/run)
while IFS= read -r script; do scripts+=("$script"); done \
  < <(find tools tests models examples bench -name '*.sh' 2>/dev/null | sort)
bad=0
for script in "${scripts[@]}"; do
  bash -n "$script" || bad=1
  [ -x "$script" ] || { echo "$script is not executable"; bad=1; }
  grep -q '^set -e' "$script" || { echo "$script does not say set -e"; bad=1; }
done
[ $bad -eq 0 ] && echo "${#scripts[@]} shell scripts are fine."
exit $bad
