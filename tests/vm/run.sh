#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The programs of a build tree on Linux's own USB and PCI stacks, without hardware: Debian's kernel in
# a virtual machine (docs/testing.md). On USB its dummy_hcd is a host and a device controller back to
# back, and its vivid is a camera; on PCIe the device is a process on this side of the VM
# (pcie_function.cc), behind an emulated IOMMU. Needs neither root nor KVM.
#   tests/vm/run.sh [--pcie] [--full] [--build DIR] [--script FILE] [--kernel DIR]
#                   [--timeout SECONDS]
#     --pcie     devices on PCIe, not on USB
#     --full     the long version of the test
#     --build    the build tree (build/release); the kernel's files are kept in its vm/
#     --script   another script for the guest than tests/vm/guest_usb.sh or guest_pcie.sh
#     --kernel   another kernel than Debian's: a directory with vmlinuz and lib/modules
set -euo pipefail
cd "$(dirname "$0")/../.."

bus=usb
full=0
build=build/release
script=
kernel=
timeout=
while [ $# -gt 0 ]; do
  case "$1" in
    --pcie) bus=pcie ;;
    --full) full=1 ;;
    --build) build=$2; shift ;;
    --script) script=$2; shift ;;
    --kernel) kernel=$(realpath "$2"); shift ;;
    --timeout) timeout=$2; shift ;;
    *) sed -n '/^#   tests/,/^set/s/^# *//p' "$0" >&2; exit 2 ;;
  esac
  shift
done
[ -n "$script" ] || script=tests/vm/guest_$bus.sh
[ -n "$timeout" ] || timeout=$((full ? 5400 : 900))
shared=${ATOLL_SHARED_DIR:-../shared}
mkdir -p "$build/vm/$bus"
vm=$(realpath "$build/vm/$bus")

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
if [ $bus = pcie ]; then
  devices=$(qemu-system-x86_64 -device help)
  for device in x-pci-proxy-dev intel-iommu edu; do
    grep -q "^name \"$device\"" <<<"$devices" || skip "this QEMU has no $device"
  done
fi

# Modules that guests load; those that they need come along.
modules=(libcomposite usb_f_fs dummy_hcd vivid vfio-pci vfio_iommu_type1)

# fetch_kernel: makes $kernel with vmlinuz and lib/modules, from Debian's package.
fetch_kernel() {
  [ "$(cat "$kernel/complete" 2>/dev/null)" != "${modules[*]}" ] || return 0
  local package
  package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '$1 == "Depends:" {print $2; exit}')
  [ -n "$package" ] || skip "apt knows no linux-image-amd64; run apt-get update"
  echo "Fetching $package."
  rm -rf "$kernel" "$vm/package"
  mkdir -p "$kernel" "$vm/package"
  (cd "$vm/package" && apt-get download "$package" >apt.log 2>&1) ||
    skip "apt-get cannot download $package: $(tail -n 1 "$vm/package/apt.log")"
  dpkg -x "$vm"/package/*.deb "$vm/package/unpacked"
  local version module file
  version=$(basename "$vm"/package/unpacked/lib/modules/*)
  depmod -b "$vm/package/unpacked" "$version"
  for module in "${modules[@]}"; do
    modprobe -d "$vm/package/unpacked" -S "$version" --show-depends "$module"
  done | awk '$1 == "insmod" {print $2}' | sort -u | while read -r file; do
    install -D -m 644 "$file" "$kernel/${file#"$vm/package/unpacked/"}"
  done
  cp "$vm/package/unpacked/lib/modules/$version"/modules.{builtin,builtin.modinfo,order} \
     "$kernel/lib/modules/$version/"
  depmod -b "$kernel" "$version"
  cp "$vm/package/unpacked/boot/vmlinuz-$version" "$kernel/vmlinuz"
  rm -rf "$vm/package"
  echo "${modules[*]}" > "$kernel/complete"
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
  cp -r "$kernel/lib/modules" "$root/lib/"
  install tests/vm/init "$root/init"
  install tests/vm/guest_common.sh "$root/"
  install "$script" "$root/guest.sh"
  if [ $bus = usb ]; then
    install tools/gadget/setup.sh "$root/bin/setup-gadget"
    add_program "$build/tools/gadget/atoll-gadget" atoll-gadget
  else
    add_program "$build/tests/vm/vm-edu" edu
  fi
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
  [ $bus = pcie ] || add_shared_model edgetpu/testconv1_edgetpu coral
  (cd "$root" && find . | cpio --quiet -o -H newc -R 0:0 | gzip -1) > "$vm/initramfs.gz"
}

# ---- Run ------------------------------------------------------------------------------------------
# A fixed CPU, so that the same code runs everywhere. ttyS0 is the kernel's console, ttyS1 carries
# what the guest reports. The function on PCIe sees the guest's memory as a file, and answers one
# processor only.
boot() {
  local program=() machine=q35,accel=tcg append= memory=1024 hardware=(-smp 2)
  if [ $bus = pcie ]; then
    program=("$build/tests/vm/vm-pcie-function")
    machine+=,memory-backend=ram
    # Without looking whether its timer works through the IOMMU, which it does not on a busy host.
    append="intel_iommu=on no_timer_check"
    hardware=(-smp 1 -object "memory-backend-memfd,id=ram,size=${memory}M,share=on"
              -device intel-iommu,intremap=on,caching-mode=on -device edu)
  fi
  rm -f "$vm/console.log" "$vm/report.log"
  timeout --kill-after=10 "$timeout" "${program[@]}" qemu-system-x86_64 -machine "$machine" \
      -cpu "$cpu" -m $memory "${hardware[@]}" \
      -display none -monitor none -nodefaults -no-reboot -net none \
      -serial "file:$vm/console.log" -serial stdio \
      -kernel "$kernel/vmlinuz" -initrd "$vm/initramfs.gz" \
      -append "console=ttyS0 quiet panic=-1 atoll_full=$full $append" \
      </dev/null 2>"$vm/function.log" | tee "$vm/report.log"
}

cpu=${ATOLL_VM_CPU:-Nehalem-v1}
for program in tools/gadget/atoll-gadget tests/vm/vm-pcie-function; do
  [ -x "$build/$program" ] || {
    echo "$build has no $program: build first (cmake --build $build --target all vm-programs)" >&2
    exit 1
  }
done
if [ -z "$kernel" ]; then
  kernel=$(realpath "$build/vm")/kernel
  fetch_kernel
fi
make_initramfs
start=$SECONDS
boot || echo "qemu: exit code $?"
echo "The VM ran $((SECONDS - start)) s on $cpu."
if ! grep -q '^RESULT pass' "$vm/report.log"; then
  echo "FAILED; the end of the kernel's console ($vm/console.log) and of $vm/function.log:"
  tail -n 40 "$vm/console.log" "$vm/function.log"
  exit 1
fi
