#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds Atoll and runs its tests.
set -euo pipefail
cd "$(dirname "$0")"

usage() {
  cat <<'TEXT'
Usage: ./test.sh [--ci | --arm64 | --full]
  (nothing)  build as users run it and run the whole test suite, apart from tests labelled slow,
             vm or browser
  --ci       that, the unit, property and fault tests under AddressSanitizer and
             UndefinedBehaviorSanitizer, a virtual machine with a real USB stack, and the camera's
             page in a browser
  --arm64    build for 64-bit ARM and run the whole test suite under QEMU, as Cortex-A53 (without
             dot product instructions) and as Cortex-A76, and the kernels as a CPU with everything
  --full     everything: slow tests and ten times as many random cases too, the whole suite
             under the sanitizers, a build with clang, if there is one, and --arm64
The environment variable ATOLL_REQUIRE_SHARED=ON makes absent reference data a failure.
TEXT
}

mode=release
case "${1:-}" in
  "") ;;
  --ci) mode=ci ;;
  --arm64) mode=arm64 ;;
  --full) mode=full ;;
  --help | -h) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

logs=()
failed=()

# build PRESET: configures and builds it. Warnings are errors in all builds but the one that users
# run.
build() {
  local preset=$1 werror=ON
  [ "$preset" != release ] || werror=OFF
  echo "== $preset: build"
  cmake --preset "$preset" --log-level=WARNING -DATOLL_WERROR="$werror" \
        -DATOLL_REQUIRE_SHARED="${ATOLL_REQUIRE_SHARED:-OFF}"
  cmake --build --preset "$preset"
}

# run PRESET NAME [ctest option...]: tests a preset that is built; NAME is the run's in the summary.
run() {
  local preset=$1 name=$2 log="build/$2.ctest.log"
  shift 2
  echo "== $name: test"
  logs+=("$log")
  ctest --preset "$preset" -j "$(nproc)" "$@" 2>&1 | tee "$log" || failed+=("$name")
}

# suite PRESET [ctest option...]: both.
suite() {
  build "$1"
  run "$1" "$@"
}

# Without them the tests in the virtual machine say that they are skipped.
vm_packages() {
  echo "== packages for the virtual machine"
  tools/install_vm_packages.sh || echo "Not all of them can be installed here."
}

# Not among the packages that everybody needs: it is large.
browser_packages() {
  echo "== packages for the browser"
  tools/install_packages.sh chromium || echo "It cannot be installed here."
}

# Composes the scenes of the detector's exams.
exam_packages() {
  echo "== packages for the detector's exams"
  tools/install_packages.sh python3-numpy python3-pil || echo "They cannot be installed here."
}

arm64() {
  local -x ATOLL_TEST_SCALE=0.1  # of random cases a tenth, as under the sanitizers: QEMU is slow
  echo "== packages for arm64"
  tools/install_arm64_packages.sh
  build aarch64
  QEMU_CPU=cortex-a53 run aarch64 aarch64.cortex-a53 -LE slow
  QEMU_CPU=cortex-a76 run aarch64 aarch64.cortex-a76 -LE slow
  QEMU_CPU=max run aarch64 aarch64.max -R '^runtime/kernels/|^integration/golden_ops_test/'
}

echo "Atoll tests ($mode): install missing packages, build, run ctest; a first run takes minutes."
echo "== packages"
tools/install_packages.sh
case $mode in
  release) suite release -LE '^(slow|vm|browser)$' ;;
  ci)
    suite release -LE '^(slow|vm|browser)$'
    browser_packages
    run release browser -L '^browser$'
    vm_packages
    run release vm -L '^vm$' -LE slow
    suite asan -L '^(unit|property|fault)$' -LE slow
    ;;
  arm64) arm64 ;;
  full)
    export ATOLL_TEST_SCALE="${ATOLL_TEST_SCALE:-10}"  # ten times as many random cases
    vm_packages
    browser_packages
    exam_packages
    suite release
    suite asan
    if command -v clang++ >/dev/null; then suite clang -LE slow; fi
    arm64
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
