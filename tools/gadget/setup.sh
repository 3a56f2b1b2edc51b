#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Makes, or removes, the USB gadget that atoll-gadget serves: a directory in configfs with one
# configuration and one function, and that function's FunctionFS mounted on /dev/atoll-gadget
# (docs/gadget.md). Needs root. It is safe to run twice.
#   setup.sh up [full-speed|high-speed|super-speed]    at most so fast
#   setup.sh down
set -eu

configfs=/sys/kernel/config
gadget=$configfs/usb_gadget/atoll
function_fs=/dev/atoll-gadget

usage() {
  echo "Usage: setup.sh up [full-speed|high-speed|super-speed] | down" >&2
  exit 2
}

mounted() { grep -q " $1 $2 " /proc/mounts; }

up() {
  modprobe libcomposite
  modprobe usb_f_fs
  mounted "$configfs" configfs || mount -t configfs none "$configfs"
  mkdir -p "$gadget/strings/0x409" "$gadget/configs/c.1/strings/0x409"
  echo "" > "$gadget/UDC" 2>/dev/null || true  # attributes cannot change while it is bound
  echo 0x0100 > "$gadget/bcdDevice"
  echo "Atoll" > "$gadget/strings/0x409/manufacturer"
  echo "Atoll-1 (emulated)" > "$gadget/strings/0x409/product"
  cat /proc/sys/kernel/hostname > "$gadget/strings/0x409/serialnumber"
  echo "Atoll-1" > "$gadget/configs/c.1/strings/0x409/configuration"
  echo 500 > "$gadget/configs/c.1/MaxPower"
  [ -z "$1" ] || echo "$1" > "$gadget/max_speed"
  mkdir -p "$gadget/functions/ffs.atoll"
  [ -e "$gadget/configs/c.1/ffs.atoll" ] ||
    ln -s "$gadget/functions/ffs.atoll" "$gadget/configs/c.1/ffs.atoll"
  mkdir -p "$function_fs"
  mounted "$function_fs" functionfs || mount -t functionfs atoll "$function_fs"
}

down() {
  if mounted "$function_fs" functionfs; then umount "$function_fs"; fi
  [ ! -d "$function_fs" ] || rmdir "$function_fs"
  [ -d "$gadget" ] || return 0
  echo "" > "$gadget/UDC" 2>/dev/null || true
  rm -f "$gadget/configs/c.1/ffs.atoll"
  for directory in configs/c.1/strings/0x409 configs/c.1 functions/ffs.atoll strings/0x409; do
    [ ! -d "$gadget/$directory" ] || rmdir "$gadget/$directory"
  done
  rmdir "$gadget"
}

case "${1:-} ${2:-}" in
  "up " | "up full-speed" | "up high-speed" | "up super-speed") up "${2:-}" ;;
  "down ") down ;;
  *) usage ;;
esac
