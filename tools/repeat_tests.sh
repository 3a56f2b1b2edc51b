#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs tests many times while other programs keep the processors busy, and says which of them
# failed, and in which run: a test that depends on time or on the order of threads shows here.
set -euo pipefail

usage() {
  cat <<'TEXT'
Usage: tools/repeat_tests.sh [OPTION...] [LABEL...]
Runs the tests of each label (of ctest: unit, property, fault, ...; without one, all tests but those
labelled slow, vm or browser) again and again under load. Exit code 1 if one failed in any run.
  --build DIR     the build tree (build/release)
  --times N       runs of each test (30); it ends with its first failure
  --jobs N        tests at a time (4)
  --load N        busy loops beside them (as many as there are processors)
  --tests REGEX   only tests with such names
  --exclude LABEL not those of this label, either; may be repeated
  --help          this text
Logs are kept in DIR/repeat/LABEL.log.
TEXT
}

build=build/release
times=30
jobs=4
load=$(nproc)
regex=.
excluded='^(slow|vm|browser)$'
labels=()
while [ $# -gt 0 ]; do
  case "$1" in
    --help | -h) usage; exit 0 ;;
    --build | --times | --jobs | --load | --tests | --exclude)
      [ $# -ge 2 ] || { echo "$1 needs a value" >&2; usage >&2; exit 2; }
      case "$1" in
        --build) build=$2 ;;
        --times) times=$2 ;;
        --jobs) jobs=$2 ;;
        --load) load=$2 ;;
        --tests) regex=$2 ;;
        --exclude) excluded="$excluded|^$2\$" ;;
      esac
      shift
      ;;
    -*) echo "there is no option $1" >&2; usage >&2; exit 2 ;;
    *) labels+=("$1") ;;
  esac
  shift
done
for number in "$times" "$jobs" "$load"; do
  case "$number" in
    '' | *[!0-9]*) echo "'$number' is no number" >&2; usage >&2; exit 2 ;;
  esac
done
[ -e "$build/CTestTestfile.cmake" ] || {
  echo "$build is no build tree with tests: build it first, or say --build DIR" >&2
  exit 2
}
[ ${#labels[@]} -gt 0 ] || labels=(all)

loops=()
stop_load() {
  [ ${#loops[@]} -eq 0 ] || kill "${loops[@]}" 2>/dev/null || true
}
trap stop_load EXIT
trap 'exit 130' INT TERM
for ((i = 0; i < load; ++i)); do
  while :; do :; done &
  loops+=($!)
done

# flaked LOG: a line for each test that failed, with the number of its run.
flaked() {
  awk '
    match($0, /Test +#[0-9]+: /) {
      name = substr($0, RSTART + RLENGTH)
      sub(/ .*/, "", name)
      ++runs[name]
      # A test that finds its data absent is skipped; all else is a failure.
      if ($0 !~ /Passed|Skipped|Not Run/ && !(name in failed)) failed[name] = runs[name]
    }
    END {
      for (name in failed) printf "%s failed in run %d\n", name, failed[name]
    }' "$1" | sort
}

mkdir -p "$build/repeat"
summary=()
bad=0
for label in "${labels[@]}"; do
  log="$build/repeat/$label.log"
  which=(-R "$regex" -LE "$excluded")
  [ "$label" = all ] || which+=(-L "^$label\$")
  echo "== $label: $times times, $jobs at a time, beside $load busy loops"
  start=$SECONDS
  code=0
  ctest --test-dir "$build" "${which[@]}" --repeat "until-fail:$times" -j "$jobs" \
      --no-tests=error --output-on-failure > "$log" 2>&1 || code=$?
  tests=$(grep -o 'Test  *#[0-9]*:' "$log" | sort -u | wc -l)
  failures=$(flaked "$log")
  line="$label: $tests tests, $((SECONDS - start)) s"
  if [ $code -eq 0 ] && [ -z "$failures" ]; then
    summary+=("$line, no failure")
  else
    bad=1
    [ -n "$failures" ] || failures="ctest ended with exit code $code: $(tail -n 1 "$log")"
    summary+=("$line, see $log")
    while read -r failure; do summary+=("  $failure"); done <<< "$failures"
  fi
  printf '%s\n' "${summary[-1]}"
done
echo "== $times runs under load"
printf '%s\n' "${summary[@]}"
exit $bad
