#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# check_install.sh BUILD CMAKE CC: what is installed can be found by CMake and pkg-config, and a C
# program that is linked to it says its version.
set -euo pipefail
build=$1 cmake=$2 cc=$3
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$cmake" --install "$build" --prefix "$place/atoll" >"$place/log"

cat >"$place/main.c" <<'SOURCE'
#include <atoll/delegate.h>
#include <stdio.h>
int main(void) { return AtollSelfTest() == ATOLL_OK ? puts(AtollVersion()) < 0 : 1; }
SOURCE
cat >"$place/CMakeLists.txt" <<'SOURCE'
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
find_package(Atoll REQUIRED)
foreach(library atoll core)
  add_executable(with_${library} main.c)
  target_link_libraries(with_${library} PRIVATE Atoll::${library})
endforeach()
SOURCE
"$cmake" -S "$place" -B "$place/build" -DCMAKE_PREFIX_PATH="$place/atoll" -DCMAKE_C_COMPILER="$cc" >>"$place/log"
"$cmake" --build "$place/build" >>"$place/log"
"$place/build/with_atoll"
"$place/build/with_core"

if command -v pkg-config >/dev/null; then
  folder=$(dirname "$(find "$place/atoll" -name atoll-core.pc)")
  for library in atoll atoll-core; do
    # shellcheck disable=SC2046
    "$cc" "$place/main.c" -o "$place/with_$library.pc" \
      $(PKG_CONFIG_PATH=$folder pkg-config --cflags --libs "$library") -Wl,-rpath,"$(dirname "$folder")"
    "$place/with_$library.pc"
  done
fi
