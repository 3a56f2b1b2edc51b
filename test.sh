#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds Atoll and runs its tests.
set -euo pipefail
cd "$(dirname "$0")"

usage() {
  cat <<'TEXT'
Usage: ./test.sh [--all | --ci | --arm64 | --full [PORTION...]]
  (nothing)  build as users run it and run the test suite, apart from tests labelled slow, vm,
             browser, original or npm; without what serves models on networks (atoll-serve,
             workers of a fleet, libatoll-grpc), which takes as long to build as the rest
  --all      that, with what serves models on networks
  --ci       that, with the packages for Python, under TensorFlow Lite 2.9 and with gRPC for Node,
             which npm brings (original, npm); clang-tidy; the camera's page in a browser; a virtual machine with a real USB
             stack; the suite under AddressSanitizer and UndefinedBehaviorSanitizer, and what has
             threads under ThreadSanitizer, where tests look at a tenth of the random cases; a build
             with clang, but for the tests, whose warnings are errors
  --arm64    build for 64-bit ARM and run the whole test suite under QEMU, as Cortex-A53 (without
             dot product instructions) and as Cortex-A76, and the kernels as a CPU with everything
  --full     all of these portions, or those named, in any order, on one day or on several:
               release  everything, slow tests too, with ten times as many random cases
               asan     the suite with slow tests under AddressSanitizer and
                        UndefinedBehaviorSanitizer
               tsan     what has threads, slow tests too, under ThreadSanitizer
               clang    clang's build and the suite
               arm64    as --arm64
               onnx     networks of torchvision, exported by PyTorch, against onnxruntime, which npm
                        brings
             and a line for each, for the table in docs/testing.md
With --ci and --full a tool that is missing is a failure. The environment variable
ATOLL_REQUIRE_SHARED=ON makes absent reference data one.
TEXT
}

mode=release
portions=()
case "${1:-}" in
  "") ;;
  --all) mode=all ;;
  --ci) mode=ci ;;
  --arm64) mode=arm64 ;;
  --full)
    mode=full
    portions=("${@:2}")
    [ ${#portions[@]} -gt 0 ] || portions=(release asan tsan clang arm64 onnx)
    for portion in "${portions[@]}"; do
      case $portion in
        release | asan | tsan | clang | arm64 | onnx) ;;
        *) usage >&2; exit 2 ;;
      esac
    done
    ;;
  --help | -h) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac
[ "$mode" = full ] || [ $# -le 1 ] || { usage >&2; exit 2; }

logs=()
reports=()
failed=()
rows=()

# build PRESET: configures and builds it. Warnings are errors in all builds but the one that users
# run; the packages for Python are optional there.
build() {
  local preset=$1 werror=ON python=ON serving=ON
  [ "$preset" != release ] || werror=OFF
  case $mode in release | all) python=OFF ;; esac
  [ "$preset" != aarch64 ] || python=OFF  # another architecture's Python would have to be there
  [ "$mode" != release ] || serving=OFF
  echo "== $preset: build"
  cmake --preset "$preset" --log-level=WARNING -DATOLL_WERROR="$werror" \
        -DATOLL_PYTHON="$python" -DATOLL_SERVING="$serving" \
        -DATOLL_REQUIRE_SHARED="${ATOLL_REQUIRE_SHARED:-OFF}"
  cmake --build --preset "$preset"
}

# run PRESET NAME [ctest option...]: tests a preset that is built; NAME is the run's in the summary.
run() {
  local preset=$1 name=$2
  shift 2
  local log="build/$name.ctest.log"
  echo "== $name: test"
  logs+=("$log")
  ctest --preset "$preset" -j "$(nproc)" "$@" 2>&1 | tee "$log" || failed+=("$name")
  # What each test printed.
  reports+=("build/$name.report.log")
  cp "build/$preset/Testing/Temporary/LastTest.log" "build/$name.report.log"
}

# suite PRESET [ctest option...]: both.
suite() {
  build "$1"
  run "$1" "$@"
}

# Not among the packages that everybody needs. Continuous integration must have them.
more_packages() {
  echo "== packages for clang, formatting, the units of systemd, a browser, the detector's exams" \
       "and a virtual machine"
  tools/install_packages.sh --all
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

onnx() {
  echo "== PyTorch and onnxruntime"
  tools/install_packages.sh python3-torch python3-torchvision
  build release
  mkdir -p build/onnxruntime
  cp tests/quantize/onnx/onnxruntime/package*.json build/onnxruntime/
  npm ci --prefix build/onnxruntime --ignore-scripts --no-audit --no-fund --loglevel=error
  PYTHONPATH=build/release/python/atoll /usr/bin/python3 -W ignore \
    tests/quantize/onnx/make_networks.py "$PWD/build/onnxruntime" --check 2 || failed+=(onnx)
}

# full PORTION: one of those of --full, and its line for the table of results.
full() {
  local portion=$1 began=$SECONDS before=${#failed[@]} result=passed
  case $portion in
    release) ATOLL_TEST_SCALE="${ATOLL_TEST_SCALE:-10}" suite release ;;
    asan) suite asan -LE '^(lint|vm)$' ;;
    tsan) suite tsan ;;
    clang) suite clang -LE '^(slow|vm|browser)$' ;;
    arm64) arm64 ;;
    onnx) onnx ;;
  esac
  [ ${#failed[@]} -eq "$before" ] || result=failed
  rows+=("| $portion | $(git rev-parse --short HEAD) | $result | $(((SECONDS - began + 30) / 60)) |")
}

echo "Atoll tests ($mode): install missing packages, build, run ctest; a first run takes minutes."
echo "== packages"
tools/install_packages.sh
case $mode in
  release | all) suite release -LE '^(slow|vm|browser|original|npm)$' ;;
  ci)
    more_packages
    suite release -LE '^(slow|vm|browser)$'
    run release tidy -R '^lint/tidy$'
    run release browser -L '^browser$'
    run release vm -L '^vm$' -LE slow
    suite asan -LE '^(slow|lint|vm|browser)$'
    suite tsan -LE slow
    build clang-warnings
    ;;
  arm64) arm64 ;;
  full)
    more_packages
    for portion in "${portions[@]}"; do
      full "$portion"
    done
    ;;
esac

echo "== summary"
for log in "${logs[@]}"; do
  grep -H -E '^[0-9]+% tests passed' "$log" | sed 's|^build/||; s|\.ctest\.log:|: |'
done
# ctest says "Skipped" of a test that printed ATOLL-SKIPPED and why: something that it needs is absent.
skipped=$(sed -n -E 's|^[0-9]+/[0-9]+ Testing: (.*)|\1|; t name
                     s|^ATOLL-SKIPPED: (.*)|\1|; t reason
                     d
                     :name; h; d
                     :reason; G; s|(.*)\n(.*)|  \2: \1|p' "${reports[@]}" | sort -u)
if [ -n "$skipped" ]; then
  echo "Skipped, because something they need is absent ($(wc -l <<<"$skipped") suites):"
  echo "$skipped"
fi
case $mode in
  ci | full)
    # What a CPU lacks nobody can install, and two things do not go together.
    missing=$(grep -v -E ': (absent: ATOLL_CPU=|umockdev and the sanitizers)' <<<"$skipped" || true)
    if [ "${ATOLL_REQUIRE_SHARED:-OFF}" != ON ]; then
      missing=$(grep -v -F ': reference data: ' <<<"$missing" || true)
    fi
    if [ -n "$missing" ]; then
      echo "Here nothing of that may be missing:"
      echo "$missing"
      failed+=("skipped tests")
    fi
    ;;
esac
[ "$mode" != release ] || echo "Without what serves models on networks, which ./test.sh --all has."
[ ${#rows[@]} -eq 0 ] || printf '%s\n' '| portion | commit | result | minutes |' "${rows[@]}"
if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]}"
  exit 1
fi
echo "PASSED"
