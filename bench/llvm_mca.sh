#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: llvm_mca.sh [build/aarch64]
#
# Models the inner loops of the NEON kernels: compiles each kernel as the build does, takes the
# innermost loop with the most multiplications out of its assembly, and has LLVM's model of a core
# run it, all loads hitting L1. Prints the tables of docs/arm64.md. Needs the preset aarch64,
# configured, and llvm-mca of LLVM 17 or newer (LLVM_MCA=...), which knows Neoverse.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/aarch64}
iterations=1000

mca=${LLVM_MCA:-}
for version in 22 19; do
  [ -n "$mca" ] || mca=$(command -v "llvm-mca-$version" || true)
done
if [ -z "$mca" ]; then
  echo "llvm-mca of LLVM 17 or newer is missing; install the Debian package llvm-19" \
       "or set LLVM_MCA" >&2
  exit 1
fi

# inner_loop FUNCTION INSTRUCTION: of the assembly on stdin, the innermost loop of the functions
# that match with the most such instructions; the longest, if several have as many.
inner_loop() {
  awk -v function_pattern="$1" -v instruction="^\t$2\t" '
    /^_Z[A-Za-z0-9_]*:/ { split("", label); inside = $0 ~ function_pattern }
    { line[NR] = $0 }
    /^\.L[0-9]+:/ { sub(":.*", ""); label[$0] = NR; last_label = NR }
    /^\t(b[.a-z]+|cbn?z|tbn?z)\t.*\.L[0-9]+$/ && inside {
      target = $NF
      if (!(target in label) || label[target] != last_label) next
      count = 0
      for (i = last_label + 1; i <= NR; ++i) count += line[i] ~ instruction
      if (count > most || (count == most && NR - last_label > length_of_best)) {
        most = count; first = last_label + 1; end = NR; length_of_best = NR - last_label
      }
    }
    END { for (i = first; i <= end; ++i) print line[i] }'
}

# model KERNEL FUNCTION INSTRUCTION MACS CPU CORE PEAK: one row of the table. MACS of one
# instruction, PEAK in MAC per cycle.
model() {
  local object=runtime/kernels/CMakeFiles/atoll_kernels.dir/$1.cc.o command loop multiplications
  command=$(ninja -C "$build" -t commands "$object" | tail -n 1)
  command=${command//"-o $object -c"/"-o - -S"}
  loop=$( (cd "$build" && eval "$command") | inner_loop "$2" "$3")
  multiplications=$(grep -cE $'^\t'"$3"$'\t' <<<"$loop")
  instructions=$(grep -cE $'^\t[a-z]' <<<"$loop")
  cycles=$("$mca" -mtriple=aarch64 -mattr=+dotprod,+i8mm -mcpu="$5" -iterations=$iterations \
             <<<"$loop" 2>/dev/null | sed -n 's/^Total Cycles: *//p')
  awk -v kernel="$1" -v core="$6" -v n="$multiplications" -v macs="$4" -v cycles="$cycles" \
      -v instructions="$instructions" -v iterations=$iterations -v peak="$7" 'BEGIN {
        rate = n * macs * iterations / cycles
        printf "| `%s` | %s | %d | %.3f | %.1f | %.3f | %.1f | %d | %.0f %% |\n", kernel, core,
               n * macs, instructions / (n * macs), cycles / iterations, 1 / rate, rate, peak,
               100 * rate / peak }'
}

"$mca" --version | grep -E 'LLVM version' | sed 's/^ */With /'
echo '| kernel | core | MAC per pass | instructions per MAC | modelled cycles | cycles per MAC | MAC per cycle | peak | share |'
echo '|---|---|---|---|---|---|---|---|---|'
row='4TileILi4ELi4E'
products='s(mull|mlal)2?'
model gemm/neon "$row" "$products" 8 cortex-a53 'Cortex-A53' 8
model gemm/neon "$row" "$products" 8 cortex-a72 'Cortex-A72' 8
model gemm/neon "$row" "$products" 8 neoverse-n1 'Cortex-A76' 8
model gemm/neon "$row" "$products" 8 neoverse-n2 'Cortex-A710' 16
model gemm/neon_dotprod '4TileILi8ELi8E' sdot 16 neoverse-n1 'Cortex-A76' 32
model gemm/neon_dotprod '4TileILi8ELi8E' sdot 16 neoverse-n2 'Cortex-A710' 32
model gemm/neon_i8mm '4TileILi8ELi8E' smmla 32 neoverse-n2 'Cortex-A710' 64
row='8RunBlock.*EpilogueE0E'
model depthwise/neon "$row" "$products" 8 cortex-a53 'Cortex-A53' 8
model depthwise/neon "$row" "$products" 8 cortex-a72 'Cortex-A72' 8
model depthwise/neon "$row" "$products" 8 neoverse-n1 'Cortex-A76' 8
model depthwise/neon_dotprod "$row" sdot 16 neoverse-n1 'Cortex-A76' 32
model depthwise/neon_dotprod "$row" sdot 16 neoverse-n2 'Cortex-A710' 32
