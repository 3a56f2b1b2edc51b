#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What the tests inside of VMs share (run.sh). A line per check: "PASS ..." or "FAIL ..." with its
# seconds; the script's exit code says whether all passed: exit $failed.
set -eu
failed=0

seconds() { cut -d ' ' -f 1 /proc/uptime; }

# check NAME COMMAND...: what it prints is shown only if it fails, but for the last line.
check() {
  name=$1
  shift
  start=$(seconds)
  if "$@" > /tmp/check.log 2>&1; then result=PASS; else result=FAIL; fi
  took=$(echo "$(seconds) $start" | awk '{printf "%.1f s", $1 - $2}')
  echo "$result $name ($took) $(tail -n 1 /tmp/check.log)"
  if [ $result = FAIL ]; then
    failed=1
    cat /tmp/check.log
    dmesg | tail -n 10
  fi
}

# wait_for SECONDS COMMAND...
wait_for() {
  tries=$(($1 * 10))
  shift
  until "$@"; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || { echo "waited in vain for: $*"; return 1; }
    sleep 0.1
  done
}

# equal_outputs DEVICE MODEL: what the emulator gave on the other side of the VM.
equal_outputs() {
  atoll run "/models/$2.tflite" --device "$1" > /tmp/outputs
  cmp /tmp/outputs "/models/$2.expected"
}

# number NAME FILE: that behind the name in the last line of what `inferences` wrote.
number() { sed -n "\$s/.*$1 \([0-9]*\).*/\1/p" "$2"; }
