#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The programs of a build tree on Linux's own USB stack, without hardware: Debian's kernel in a
# virtual machine, whose dummy_hcd is a USB host and a USB device controller back to back, and
# whose vivid is a camera (docs/testing.md). Needs neither root nor KVM.
#   tests/vm/run.sh [--full] [--build DIR] [--script FILE] [--timeout SECONDS]
#     --full     the long version of the test
#     --build    the build tree (build/release); the kernel's files are kept in its vm/
#     --script   another script for the guest than tests/vm/guest.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

full=0
build=build/release
script=tests/vm/guest.sh
timeout=
while [ $# -gt 0 ]; do
  case "$1" in
    --full) full=1 ;;
    --build) build=$2; shift ;;
    --script) script=$2; shift ;;
    --timeout) timeout=$2; shift ;;
    *) sed -n '/^#   tests/,/^set/s/^# *//p' "$0" >&2; exit 2 ;;
  esac
  shift
done
[ -n "$timeout" ] || timeout=$((full ? 5400 : 900))
shared=${ATOLL_SHARED_DIR:-../shared}
mkdir -p "$build/vm"
vm=$(realpath "$build/vm")

skip() {
  echo "ATOLL-SKIPPED: $1"
  exit 0
}

# ---- The kernel -----------------------------------------------------------------------------------
for tool in qemu-system-x86_64 busybox cpio depmod modprobe apt-get dpkg; do
  PATH=$PATH:/usr/sbin command -v $tool >/dev/null ||
    skip "$tool is not installed (tools/install_packages.sh --all installs what the VM needs)"
done
PATH=$PATH:/usr/sbin
busybox=$(command -v busybox)
if ldd "$busybox" >/dev/null 2>&1; then
  skip "busybox is not static; install busybox-static (tools/install_packages.sh --all)"
fi

# Modules that the guest loads; those that they need come along.
modules=(libcomposite usb_f_fs dummy_hcd vivid)

# fetch_kernel: makes $vm/kernel with vmlinuz, version and lib/modules, from Debian's package.
fetch_kernel() {
  [ ! -e "$vm/kernel/complete" ] || return 0
  local package
  package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" {print $2; exit}')
  [ -n "$package" ] || skip "apt knows no linux-image-amd64; run apt-get update"
  echo "Fetching $package."
  rm -rf "$vm/kernel" "$vm/package"
  mkdir -p "$vm/kernel" "$vm/package"
  (cd "$vm/package" && apt-get download "$package" >apt.log 2>&1) ||
    skip "apt-get cannot download $package: $(tail -n 1 "$vm/package/apt.log")"
  dpkg -x "$vm"/package/*.deb "$vm/package/unpacked"
  local version module file
  version=$(basename "$vm"/package/unpacked/lib/modules/*)
  depmod -b "$vm/package/unpacked" "$version"
  for module in "${modules[@]}"; do
    modprobe -d "$vm/package/unpacked" -S "$version" --show-depends "$module"
  done | awk '$1 == "insmod" {print $2}' | sort -u | while read -r file; do
    install -D -m 644 "$file" "$vm/kernel/${file#"$vm/package/unpacked/"}"
  done
  cp "$vm/package/unpacked/lib/modules/$version"/modules.{builtin,builtin.modinfo,order} \
     "$vm/kernel/lib/modules/$version/"
  depmod -b "$vm/kernel" "$version"
  cp "$vm/package/unpacked/boot/vmlinuz-$version" "$vm/kernel/vmlinuz"
  rm -rf "$vm/package"
  touch "$vm/kernel/complete"
}

# ---- The guest's file system ----------------------------------------------------------------------
# add_program FILE NAME: the program as /bin/NAME, and its libraries where it looks for them.
add_program() {
  install -D "$1" "$root/bin/$2"
  local library
  ldd "$1" | grep -o '/[^ ]*' | while read -r library; do
    [ -e "$root$library" ] || install -D "$(realpath "$library")" "$root$library"
  done
}

# add_shared_model NAME AS
add_shared_model() {
  if [ -e "$shared/models/$1.tflite" ]; then
    cp "$shared/models/$1.tflite" "$root/models/$2.tflite"
  else
    case ${ATOLL_REQUIRE_SHARED:-} in ON | 1) echo "$shared/models has no $1"; exit 1 ;; esac
  fi
}

make_initramfs() {
  root=$vm/root
  rm -rf "$root"
  mkdir -p "$root"/{bin,dev,proc,sys,tmp,lib,models}
  cp "$busybox" "$root/bin/busybox"
  cp -r "$vm/kernel/lib/modules" "$root/lib/"
  install tests/vm/init "$root/init"
  install "$script" "$root/guest.sh"
  install tools/gadget/setup.sh "$root/bin/setup-gadget"
  add_program "$build/tools/gadget/atoll-gadget" atoll-gadget
  add_program "$build/tools/atoll/atoll" atoll
  add_program "$build/tests/vm/vm-inferences" inferences
  cp models/fashion/fashion_int8.tflite "$root/models/fashion.tflite"
  cp models/fashion/labels.txt "$root/models/"
  add_shared_model mlperf_tiny_kws_int8 kws
  add_shared_model mlperf_tiny_resnet8_int8 resnet8
  # The right answers, by the emulator on this side.
  local model
  for model in "$root"/models/*.tflite; do
    "$build/tools/atoll/atoll" run "$model" --device emu --seed 1 > "${model%.tflite}.expected"
  done
  add_shared_model edgetpu/testconv1_edgetpu coral
  (cd "$root" && find . | cpio --quiet -o -H newc -R 0:0 | gzip -1) > "$vm/initramfs.gz"
}

# ---- Run ------------------------------------------------------------------------------------------
# A fixed CPU, so that the same code runs everywhere. ttyS0 is the kernel's console, ttyS1 carries
# what the guest reports.
boot() {
  rm -f "$vm/console.log" "$vm/report.log"
  timeout --kill-after=10 "$timeout" qemu-system-x86_64 -machine q35,accel=tcg -cpu "$cpu" -smp 2 \
      -m 1024 -display none -monitor none -nodefaults -no-reboot -net none \
      -serial "file:$vm/console.log" -serial stdio \
      -kernel "$vm/kernel/vmlinuz" -initrd "$vm/initramfs.gz" \
      -append "console=ttyS0 quiet panic=-1 atoll_full=$full" </dev/null | tee "$vm/report.log"
}

cpu=${ATOLL_VM_CPU:-Nehalem-v1}
[ -x "$build/tools/gadget/atoll-gadget" ] || {
  echo "$build has no atoll-gadget: build first (cmake --build $build)" >&2
  exit 1
}
fetch_kernel
make_initramfs
start=$SECONDS
boot || echo "qemu: exit code $?"
echo "The VM ran $((SECONDS - start)) s on $cpu."
if ! grep -q '^RESULT pass' "$vm/report.log"; then
  echo "FAILED; the end of the kernel's console ($vm/console.log):"
  tail -n 40 "$vm/console.log"
  exit 1
fi
