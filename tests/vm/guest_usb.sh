#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# The test inside the VM (run.sh) of devices on USB.
set -eu
. /guest_common.sh

udc=dummy_udc.0
gadget=/sys/kernel/config/usb_gadget/atoll
if [ "$ATOLL_FULL" = 1 ]; then
  inferences=1000 unplugs=20 faulty=100 seeded=seed:6:1/200
else
  inferences=50 unplugs=2 faulty=10 seeded=seed:6:1/30
fi
# Counted by kind of transfer, so that they happen however long it takes.
cat > /tmp/faults <<TEXT
out 4 stall
in 3 delay 50ms
event 4 corrupt
in 6 stall
TEXT

has_vendor() { cat /sys/bus/usb/devices/*/idVendor 2>/dev/null | grep -q "^$1$"; }
off_the_bus() { ! has_vendor 1209; }

# start_gadget SPEED [OPTION...]
start_gadget() {
  setup-gadget up "$1"
  shift
  atoll-gadget --verbose "$@" > /tmp/gadget.log 2>&1 &
  gadget_pid=$!
  wait_for 10 has_vendor 1209
}
stop_gadget() {
  kill "$gadget_pid"
  wait "$gadget_pid" || { echo "atoll-gadget ended with exit code $?"; cat /tmp/gadget.log; return 1; }
  wait_for 5 off_the_bus
}

# back N: whether the inferences have found the device again so many times.
back() { [ "$(grep -c 'is there again' /tmp/inferences.log)" -ge "$1" ]; }

# unplugged_at_random: the gadget leaves the bus and comes back, at moments and for times from a
# seed, while inferences run; each time they find it again before it leaves once more.
unplugged_at_random() {
  rm -f /tmp/unplugged
  inferences /models/fashion.tflite usb cpu "$inferences" 1000 /tmp/unplugged \
      > /tmp/inferences.log 2>&1 &
  pid=$!
  awk -v n="$unplugs" 'BEGIN {srand(6); for (i = 1; i <= n; ++i) print i, 0.5 + 3 * rand(), rand()}' \
      > /tmp/moments
  while read -r time present absent; do
    sleep "$present"
    kill -0 "$pid" || { echo "The inferences ended before unplug $time."; cat /tmp/inferences.log; return 1; }
    echo "" > "$gadget/UDC"
    sleep "$absent"
    echo "$udc" > "$gadget/UDC"
    wait_for 60 back "$time" || { cat /tmp/inferences.log; return 1; }
  done < /tmp/moments
  touch /tmp/unplugged
  wait "$pid" || { cat /tmp/inferences.log; return 1; }
  tail -n 1 /tmp/inferences.log
  [ "$(number reopenings /tmp/inferences.log)" -ge "$unplugs" ] &&
    [ "$(number failures /tmp/inferences.log)" -ge "$unplugs" ]
}

# holdings: open files and kilobytes of the gadget.
holdings() {
  echo "$(ls "/proc/$gadget_pid/fd" | wc -l) $(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$gadget_pid/status")"
}
# no_leak: the gadget holds what it held when `before` was written, but for some memory that its
# allocator keeps.
no_leak() {
  echo "$(cat /tmp/before) $(holdings)" | awk '{
    printf "files %d, then %d; memory %d kB, then %d\n", $1, $3, $2, $4
    exit !($3 <= $1 && $4 <= $2 + 8192)
  }'
}

camera() {
  # Webcam input only; 640x360, YUYV.
  modprobe vivid n_devs=1 node_types=0x1 num_inputs=1 input_types=0x0
  wait_for 5 test -c /dev/video0
  atoll camera /models/fashion.tflite --labels /models/labels.txt --device usb \
      --source /dev/video0 --frames 30 --policy every --crop square --save /tmp/frames --json \
      > /tmp/camera.json
  frames=$(find /tmp/frames -name '*.jpg' | wc -l)
  grep -q '"processed":30[,}]' /tmp/camera.json && [ "$frames" = 30 ] ||
    { cat /tmp/camera.json; return 1; }
  sed 's/.*\("source":"[^"]*"\).*/\1/' /tmp/camera.json
}
# The same frames as a stream of JPEGs.
mjpeg() {
  cat /tmp/frames/*.jpg > /tmp/frames.mjpeg
  atoll camera /models/fashion.tflite --device usb --source /tmp/frames.mjpeg --policy every \
      --fps 0 --json > /tmp/camera.json
  grep -q '"processed":30[,}]' /tmp/camera.json || { cat /tmp/camera.json; return 1; }
}

# accounted FILE: whether a camera's report accounts for every frame, and how.
accounted() {
  awk '
    function number(name) {
      if (!match($0, "\"" name "\":[0-9]+")) exit 1
      return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0
    }
    {
      captured = number("captured"); processed = number("processed")
      dropped = number("dropped"); failed = number("failed")
      printf "%d captured = %d processed + %d dropped + %d failed\n", captured, processed, dropped,
             failed
      exit !(processed > 0 && captured == processed + dropped + failed)
    }' "$1"
}
# The camera is pulled while it delivers.
camera_unplugged() {
  atoll camera /models/fashion.tflite --device emu --source /dev/video0 --json \
      > /tmp/camera.json 2> /tmp/camera.log &
  pid=$!
  wait_for 30 grep -q "fps" /tmp/camera.log
  for bound in /sys/bus/platform/drivers/vivid/vivid.*; do
    basename "$bound" > /sys/bus/platform/drivers/vivid/unbind
  done
  wait "$pid" && { echo "A camera that is gone gave no error."; return 1; }
  tail -n 1 /tmp/camera.log
  accounted /tmp/camera.json
}

# with_faults PLAN: inferences over them. Of a script each fault happens, and three of its four make
# a request fail; of a seed at least one happens.
with_faults() {
  inferences /models/fashion.tflite usb cpu "$faulty" 5000 > /tmp/inferences.log 2>&1 ||
    { cat /tmp/inferences.log /tmp/gadget.log; return 1; }
  count=$(grep -c "fault:" /tmp/gadget.log) || true
  grep "fault:" /tmp/gadget.log || true
  if [ -f "$1" ]; then
    least=$(wc -l < "$1") failures=3
  else
    least=1 failures=0
  fi
  cat /tmp/inferences.log
  echo "$count faults; $(tail -n 1 /tmp/inferences.log)"
  [ "$count" -ge "$least" ] && [ "$(number failures /tmp/inferences.log)" -ge "$failures" ]
}

# coral_boot: the driver finds a ROM, gives it firmware and finds the application, behind which there
# is nothing: it refuses the first register.
coral_boot() {
  setup-gadget up super-speed
  atoll-gadget --profile coral --verbose > /tmp/gadget.log 2>&1 &
  gadget_pid=$!
  wait_for 10 has_vendor 1a6e
  head -c 10783 /bin/busybox > /tmp/firmware
  if ATOLL_CORAL_FIRMWARE=/tmp/firmware timeout 120 \
      atoll run /models/coral.tflite --device usb --on-device-loss fail > /tmp/coral.log 2>&1; then
    echo "A Coral without a Coral gave outputs."
    return 1
  fi
  has_vendor 18d1 && grep -q "firmware of 10783 bytes" /tmp/gadget.log ||
    { cat /tmp/coral.log /tmp/gadget.log; return 1; }
  kill "$gadget_pid"
  wait "$gadget_pid" || return 1
  tail -n 1 /tmp/coral.log
}

modprobe dummy_hcd is_super_speed=1
for speed in full-speed high-speed; do
  check "gadget at $speed" start_gadget $speed
  check "fashion at $speed" equal_outputs usb fashion
  check "end at $speed" stop_gadget
done
check "gadget at super-speed" start_gadget super-speed
check "devices" sh -c 'atoll devices | grep "Atoll-1, USB 3"'
for model in fashion kws resnet8; do
  if [ -e "/models/$model.tflite" ]; then
    check "$model" equal_outputs usb $model
  else
    echo "SKIP $model: no reference models beside the tree"
  fi
done
holdings > /tmp/before
check "$inferences inferences" inferences /models/fashion.tflite usb cpu $inferences 1
check "$inferences inferences, $unplugs unplugs" unplugged_at_random
check "camera" camera
check "mjpeg" mjpeg
check "camera unplugged" camera_unplugged
check "no leak" no_leak
check "end" stop_gadget
for faults in /tmp/faults $seeded; do
  check "gadget with faults" start_gadget super-speed --faults $faults
  check "$faulty inferences with faults" with_faults $faults
  check "end with faults" stop_gadget
done
if [ -e /models/coral.tflite ]; then
  check "a Coral's boot" coral_boot
else
  echo "SKIP a Coral's boot: no reference models beside the tree"
fi
setup-gadget down
exit $failed
