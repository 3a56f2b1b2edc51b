#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Units of systemd have sections and keys, and systemd knows all of them. Usage: check_units.sh
# SOURCE_DIR
set -euo pipefail
cd "$1"
mapfile -t units < <(find tools -name '*.service' | sort)
bad=0
for unit in "${units[@]}"; do
  if grep -nvE '^(#.*|\[(Unit|Service|Install)\]|[A-Z][A-Za-z]+=.*|)$' "$unit"; then
    echo "$unit: neither comment nor section nor Key=value"
    bad=1
  fi
  for section in Unit Service Install; do
    [ "$(grep -cF "[$section]" "$unit")" -eq 1 ] || { echo "$unit: needs one [$section]"; bad=1; }
  done
done
[ $bad -eq 0 ] || exit 1

if ! command -v systemd-analyze >/dev/null; then
  echo "ATOLL-SKIPPED: systemd-analyze is not installed; ${#units[@]} units have sections and keys"
  exit 0
fi
# As they are installed, beside programs of the names that they start.
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
for unit in "${units[@]}"; do
  sed "s|/usr/local/|$prefix/|g" "$unit" >"$prefix/$(basename "$unit")"
  while read -r program; do
    install -D /bin/true "$program"
  done < <(sed -nE 's/^Exec[A-Za-z]*=([^ ]*).*/\1/p' "$prefix/$(basename "$unit")")
done
said=$(systemd-analyze verify "$prefix"/*.service 2>&1 | grep -F "$prefix" || true)
if [ -n "$said" ]; then
  echo "$said"
  exit 1
fi
echo "${#units[@]} units are fine."
