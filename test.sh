#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds Atoll and runs its tests.
set -euo pipefail
cd "$(dirname "$0")"

usage() {
  cat <<'TEXT'
Usage: ./test.sh [--ci | --full]
  (nothing)  build as users run it and run the whole test suite, apart from tests labelled slow
  --ci       that, and the unit, property and fault tests under AddressSanitizer and
             UndefinedBehaviorSanitizer
  --full     everything: slow tests and ten times as many random cases too, the whole suite
             under the sanitizers, and a build with clang, if there is one
The environment variable ATOLL_REQUIRE_SHARED=ON makes absent reference data a failure.
TEXT
}

mode=release
case "${1:-}" in
  "") ;;
  --ci) mode=ci ;;
  --full) mode=full ;;
  --help | -h) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

logs=()
failed=()

# suite PRESET [ctest option...]: configures, builds and tests one preset. Warnings are errors in
# all builds but the one that users run.
suite() {
  local preset=$1 log="build/$1.ctest.log" werror=ON
  [ "$preset" != release ] || werror=OFF
  shift
  echo "== $preset: build"
  cmake --preset "$preset" --log-level=WARNING -DATOLL_WERROR="$werror" \
        -DATOLL_REQUIRE_SHARED="${ATOLL_REQUIRE_SHARED:-OFF}"
  cmake --build --preset "$preset"
  echo "== $preset: test"
  logs+=("$log")
  ctest --preset "$preset" -j "$(nproc)" "$@" 2>&1 | tee "$log" || failed+=("$preset")
}

echo "Atoll tests ($mode): install missing packages, build, run ctest; a first run takes minutes."
echo "== packages"
tools/install_packages.sh
case $mode in
  release) suite release -LE slow ;;
  ci)
    suite release -LE slow
    suite asan -L '^(unit|property|fault)$' -LE slow
    ;;
  full)
    export ATOLL_TEST_SCALE="${ATOLL_TEST_SCALE:-10}"  # ten times as many random cases
    suite release
    suite asan
    if command -v clang++ >/dev/null; then suite clang -LE slow; fi
    ;;
esac

echo "== summary"
for log in "${logs[@]}"; do
  grep -H -E '^[0-9]+% tests passed' "$log" | sed 's|^build/||; s|\.ctest\.log:|: |'
done
# ctest says "Skipped" of a test that printed ATOLL-SKIPPED: something that it needs is absent.
skipped=$(grep -h -E '^[[:space:]]+[0-9]+ - .*\(Skipped\)' "${logs[@]}" |
          sed -E 's/^[[:space:]]+[0-9]+ - (.*) \(Skipped\).*/  \1/' | sort -u || true)
if [ -n "$skipped" ]; then
  echo "Skipped, because something they need is absent ($(wc -l <<<"$skipped") suites):"
  echo "$skipped"
fi
if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]}"
  exit 1
fi
echo "PASSED"
