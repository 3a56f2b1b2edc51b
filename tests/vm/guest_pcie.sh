#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The test inside the VM (run.sh) of devices on PCIe: the host's pcie_function.cc in a slot, and
# QEMU's edu.
set -eu
. /guest_common.sh

# What is in the slot: the only function of the first bus behind a bridge.
address=0000:01:00.0
device=/sys/bus/pci/devices/$address
if [ "$ATOLL_FULL" = 1 ]; then
  inferences=1000 flaps=40 removals=20 unplugs=20
else
  inferences=50 flaps=20 removals=8 unplugs=8
fi

# host WORD...: asks the host for something (pcie_function.cc has the list), and waits for it.
host() {
  echo "HOST $*" > /dev/ttyS1
  read -r answer < /dev/ttyS1
  case $answer in
    done*) ;;
    *) echo "host $*: $answer"; return 1 ;;
  esac
}

is_away() { [ ! -e "$device" ]; }
is_bound() { [ "$(basename "$(readlink -f "$device/driver")")" = vfio-pci ]; }

# drivers: vfio-pci takes what is in the slot, now and whenever another one comes.
drivers() {
  modprobe vfio_iommu_type1
  modprobe iommufd 2>/dev/null || true  # Debian's kernels have none
  modprobe vfio-pci
  echo 1209 a701 > /sys/bus/pci/drivers/vfio-pci/new_id
  wait_for 10 is_bound
  # Single functions have nodes in a kernel with iommufd, which the driver then prefers.
  if [ -e /dev/iommu ]; then echo "by iommufd, /dev/vfio/devices"; else echo "by groups"; fi
}

# edu_works: QEMU's device, by its address; and what the kernel says of its last write.
edu_works() {
  for edu in /sys/bus/pci/devices/*; do
    [ "$(cat "$edu/vendor") $(cat "$edu/device")" != "0x1234 0x11e8" ] || break
  done
  edu_address=$(basename "$edu")
  echo vfio-pci > "$edu/driver_override"
  echo "$edu_address" > /sys/bus/pci/drivers_probe
  edu "$edu_address" > /tmp/edu.log || { cat /tmp/edu.log; return 1; }
  fault=$(dmesg | grep "DMAR:.*DMA Write.*${edu_address#*:}.*fault addr" | tail -n 1)
  [ -n "$fault" ] || { cat /tmp/edu.log; echo "The kernel reports no fault."; return 1; }
  cat /tmp/edu.log
  echo "$(cat /tmp/edu.log); $fault"
}

# start_inferences / end_inferences: as many as were asked for, and more until the end, with the device
# open and in use.
start_inferences() {
  rm -f /tmp/enough
  inferences /models/fashion.tflite pci cpu "$1" 1000 /tmp/enough > /tmp/inferences.log 2>&1 &
  pid=$!
  host used
}
end_inferences() {
  touch /tmp/enough
  wait "$pid" || { tail -n 50 /tmp/inferences.log; return 1; }
  tail -n 1 /tmp/inferences.log
}

# at_moments N FUNCTION: calls it N times while inferences run, with the seconds that it shall be
# away; each time they have found the device again before the next. Moments and seconds are those
# of a seed.
at_moments() {
  start_inferences 20 || return 1
  awk -v n="$1" 'BEGIN {srand(19); for (i = 1; i <= n; ++i) print i, rand() / 2, rand()}' \
      > /tmp/moments
  while read -r time present absent; do
    kill -0 "$pid" || { echo "The inferences ended before time $time."; cat /tmp/inferences.log; return 1; }
    sleep "$present"
    "$2" "$absent" && wait_for 20 is_bound && host used ||
      { echo "time $time"; tail -n 20 /tmp/inferences.log; return 1; }
  done < /tmp/moments
  end_inferences || return 1
  [ "$(number failures /tmp/inferences.log)" -ge "$1" ] &&
    [ "$(number reopenings /tmp/inferences.log)" -ge "$1" ]
}

# flapped N: the function is away for a while, of which the system hears nothing. What happens while
# the driver still brings it back is part of the same failure.
flapped() {
  start_inferences 20 && host flaps "$1" && end_inferences || { tail -n 20 /tmp/inferences.log; return 1; }
  [ "$(number failures /tmp/inferences.log)" -ge $(($1 / 2)) ]
}

# remove SECONDS: the function leaves in the middle of work, and without power; the system takes it
# for removed, as it does when it hears that the link is down, and waits until programs have let go.
remove() {
  host leave 2 120 && host left || return 1
  echo 1 > "$device/remove"
  is_away || return 1
  sleep "$1"
  host return
  echo 1 > /sys/bus/pci/rescan
}

# unplug SECONDS: the host asks for the function, which works on until the system has given it up.
unplug() {
  host unplug || return 1
  is_away || return 1
  sleep "$1"
  host plug
}
# unplug_from_stopped SECONDS: the same, while the program that has the device open is stopped. All
# wait until it goes on. One thread takes the signal and stops the others: until it has had its turn,
# they still hear that the system wants the device back.
is_stopped() { awk '/^State:/ && $2 != "T" {runs = 1} END {exit runs}' /proc/"$pid"/task/*/status; }
unplug_from_stopped() {
  kill -STOP "$pid"
  wait_for 20 is_stopped || return 1
  (sleep 3; touch /tmp/goes_on; kill -CONT "$pid") &
  unplug "$1" || return 1
  [ -e /tmp/goes_on ] || { echo "It was taken out of the hands of a program."; return 1; }
  rm /tmp/goes_on
}

# stray: a write by DMA to where nothing is mapped does not happen, and is reported, and the request
# is none the worse for it.
stray() {
  start_inferences 10 && host astray && host strayed || return 1
  stray=${answer#done }
  end_inferences || return 1
  grep -i "$stray" /tmp/inferences.log | head -n 1 > /tmp/stray
  [ -s /tmp/stray ] || { cat /tmp/inferences.log; echo "Nobody mentions $stray."; return 1; }
  cat /tmp/stray
}

check "drivers" drivers
check "edu" edu_works
check "devices" sh -c "atoll devices | grep 'pci:$address *Atoll-1, gen 2 x1'"
check "doctor" sh -c "atoll doctor | grep 'passed *pci'"
for model in fashion kws resnet8; do
  if [ -e "/models/$model.tflite" ]; then
    check "$model" equal_outputs pci $model
  else
    echo "SKIP $model: no reference models beside the tree"
  fi
done
check "$inferences inferences" inferences /models/fashion.tflite pci cpu $inferences 1
check "$flaps flaps" flapped $flaps
check "$removals removals" at_moments $removals remove
check "$unplugs unplugs" at_moments $unplugs unplug
check "unplug from a stopped program" at_moments 1 unplug_from_stopped
check "stray DMA" stray
exit $failed
