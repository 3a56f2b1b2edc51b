#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Units of systemd have sections and keys, and systemd knows all of them; services are confined: a
# bound on their memory, and an exposure of less than 3 of 10, as systemd counts it. Usage:
# check_units.sh SOURCE_DIR
set -euo pipefail
cd "$1"
mapfile -t services < <(find tools -name '*.service' | sort)
mapfile -t sockets < <(find tools -name '*.socket' | sort)
units=("${services[@]}" "${sockets[@]}")
bad=0
for unit in "${units[@]}"; do
  if grep -nvE '^(#.*|\[(Unit|Service|Socket|Install)\]|[A-Z][A-Za-z]+=.*|)$' "$unit"; then
    echo "$unit: neither comment nor section nor Key=value"
    bad=1
  fi
  kind=Service
  [[ $unit == *.service ]] || kind=Socket
  if [ $kind = Service ] && ! grep -q '^MemoryMax=' "$unit"; then
    echo "$unit: has no MemoryMax"
    bad=1
  fi
  for section in Unit $kind Install; do
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
  done < <(sed -nE 's/^Exec[A-Za-z]*=[-+!@:]*([^ ]*).*/\1/p' "$prefix/$(basename "$unit")")
done
said=$(systemd-analyze verify "$prefix"/*.service "$prefix"/*.socket 2>&1 | grep -F "$prefix" || true)
if [ -n "$said" ]; then
  echo "$said"
  exit 1
fi
# "→ Overall exposure level for x.service: 1.1 OK"
for unit in "$prefix"/*.service; do
  name=$(basename "$unit")
  if ! report=$(LC_ALL=C systemd-analyze security --offline=true --no-pager "$unit" 2>&1); then
    echo "ATOLL-SKIPPED: this systemd-analyze rates no files (250 does): ${report%%$'\n'*}"
    exit 0
  fi
  exposure=$(sed -nE 's/.*Overall exposure level for [^:]*: ([0-9.]+).*/\1/p' <<<"$report")
  if ! awk -v e="$exposure" 'BEGIN {exit !(e != "" && e + 0 < 3)}'; then
    echo "$name: exposure '$exposure', must be below 3:"
    grep -F '✗' <<<"$report" | cut -c 1-110 || true
    bad=1
  fi
done
[ $bad -eq 0 ] || exit 1
echo "${#units[@]} units are fine."
