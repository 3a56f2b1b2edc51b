#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: check_isa_symbols.sh library.a ...
#
# Fails if an object compiled for one instruction set (avx*.cc, neon*.cc) defines a
# weak symbol: the linker might keep that copy of a shared inline function and give it to all
# callers, which then crash on CPUs without the instruction set. Eigen, which each such file has in a
# namespace named for its instruction set (runtime/kernels/float_products), is no other file's: g++
# makes no function of it, clang a few.
set -eu
status=0
for library in "$@"; do
  # "library.a:avx2.cc.o:0000000000000000 T name"
  symbols=$(nm --print-file-name --defined-only "$library" |
    grep -E '(avx|neon)[a-z0-9_]*\.cc\.o:' || true)
  if [ -z "$symbols" ]; then
    echo "$library has no object of an instruction set"
    status=1
  fi
  weak=$(echo "$symbols" | grep -E ':[0-9a-f]+ [WwuVv] ' | awk '{
      isa = $1
      sub(/\.cc\.o:.*/, "", isa)
      sub(/.*:/, "", isa)
      if (tolower($NF) !~ "^_znk?[0-9]+atolleigen" isa "[0-9e]") print
    }' | c++filt || true)
  if [ -n "$weak" ]; then
    echo "$library: weak symbols in objects of one instruction set:"
    echo "$weak"
    status=1
  fi
  echo "$library: $(echo "$symbols" | grep -c . || true) symbols of ISA objects checked"
done
exit $status
