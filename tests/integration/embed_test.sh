#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# embed_test.sh SOURCE BUILD CMAKE CC CXX [EMULATOR]: what `cmake --install` makes is enough to build
# and run examples/embed, with CMake and with make and pkg-config, wherever it is moved; nothing of it
# points back to the source or the build tree.
set -euo pipefail
source=$1 build=$2 cmake=$3 cc=$4 cxx=$5
emulator=(${6:+"$6"})
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

fail() {
  echo "embed_test: $*" >&2
  exit 1
}

# Installed in one place, used in another: a package must not know where it is.
"$cmake" --install "$build" --prefix "$place/first" >"$place/install.log"
mv "$place/first" "$place/prefix"
prefix=$place/prefix
cp -r "$prefix"/share/doc/atoll/examples/embed "$place/embed"
lib=$(dirname "$(find "$prefix" -name libatoll.so)")

# What should be there.
version=$("${emulator[@]}" "$prefix/bin/atoll" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+')
for file in bin/atoll bin/atoll-gadget include/atoll/{runtime.h,delegate.h,atoll.hpp} \
            lib/udev/rules.d/60-atoll.rules lib/atoll/setup.sh \
            lib/systemd/system/atoll-{camera,gadget}.service share/atoll/atoll-camera.default \
            share/doc/atoll/{README.md,LICENSE,docs/embedding.md}; do
  [ -e "$prefix/$file" ] || fail "$file is not installed"
done
for library in libatoll libatoll-core; do
  soname=$(readelf -d "$lib/$library.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
  [ "$soname" = "$library.so.${version%%.*}" ] || fail "$library.so has the SONAME '$soname'"
  for file in "$library.so.$version" "$soname" "$library.a"; do
    [ -e "$lib/$file" ] || fail "$file is not installed"
  done
done

# What should not: paths of this tree in texts, and in the places where programs look for libraries.
if grep -rIlF -e "$source/" -e "$build/" "$prefix"; then
  fail "these files name the source or the build tree"
fi
for file in "$prefix"/bin/* "$lib"/*.so "$lib"/atoll/stand-ins/*.so*; do
  if readelf -d "$file" | grep -E 'R(UN)?PATH' | grep -vF '[$ORIGIN'; then
    fail "$file looks for libraries in a fixed place"
  fi
done
# Units name the prefix that was asked for, which nobody can move.
grep -qF "ExecStart=$place/first/bin/atoll camera" "$prefix/lib/systemd/system/atoll-camera.service" ||
  fail "atoll-camera.service does not start the installed command"

# A program for TensorFlow Lite finds the stand-in where it is told to look, and it libatoll.
results=$(LD_LIBRARY_PATH=$lib/atoll/stand-ins "${emulator[@]}" "$build/tests/compat/run_model" \
  "$prefix/share/atoll/fashion_int8.tflite" 1 --delegate "$lib/libatoll_tflite_delegate.so" device=emu |
  wc -c)
[ "$results" -eq 10 ] || fail "a program for TensorFlow Lite gave $results bytes, not 10"

# Each program says of the bundled picture what the command says.
model=$prefix/share/atoll/fashion_int8.tflite picture=$prefix/share/atoll/ankle_boot.pgm
expected=$("${emulator[@]}" "$prefix/bin/atoll" classify "$model" "$picture" --device emu --top-k 1 |
  sed -nE 's/^  ([0-9.]+) +([0-9]+).*/class \2, score \1/p')
[ -n "$expected" ] || fail "the installed command says nothing of the picture"
check() {
  local device said
  for device in emu cpu; do
    said=$("${emulator[@]}" "$1" "$model" "$picture" "$device") || fail "$1 failed"
    [ "$said" = "$expected" ] || fail "$1 says '$said' on $device, not '$expected'"
  done
  echo "$2: $said"
}

"$cmake" -S "$place/embed" -B "$place/cmake" -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" >"$place/log" || fail "$(cat "$place/log")"
"$cmake" --build "$place/cmake" >"$place/log" || fail "$(cat "$place/log")"
if grep -F "$source/" "$place/cmake/CMakeCache.txt"; then
  fail "the project was configured with something of the source tree"
fi
check "$place/cmake/classify" "CMake, shared, C"
check "$place/cmake/classify_cpp" "CMake, static, C++"
if readelf -d "$place/cmake/classify_cpp" | grep -q libatoll; then fail "that is not static"; fi

if ! command -v pkg-config >/dev/null || ! command -v make >/dev/null; then
  echo "pkg-config or make is not installed: the Makefile was not tried"
  exit 0
fi
export PKG_CONFIG_PATH=$lib/pkgconfig
build_with_make() {
  make -C "$place/embed" CC="$cc" CXX="$cxx" clean all "$@" >"$place/log" 2>&1 ||
    fail "make $*: $(cat "$place/log")"
}
for library in atoll atoll-core; do
  build_with_make "ATOLL=$library"
  readelf -d "$place/embed/classify" | grep -qF "[lib$library.so.${version%%.*}]" ||
    fail "make linked something other than lib$library.so"
  check "$place/embed/classify" "make, $library, C"
  check "$place/embed/classify_cpp" "make, $library, C++"
done
build_with_make ATOLL=atoll-core PKG_CONFIG="pkg-config --static" LDFLAGS=-static
if readelf -d "$place/embed/classify" | grep -q NEEDED; then fail "that is not static"; fi
check "$place/embed/classify" "make, atoll-core, static, C"
check "$place/embed/classify_cpp" "make, atoll-core, static, C++"
