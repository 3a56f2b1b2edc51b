#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds Atoll and shows it at work; the last line on stdout is the result as one JSON object.
set -euo pipefail
cd "$(dirname "$0")"

cat <<'TEXT'
Atoll demonstration
  1. install missing Debian packages (usually none)
  2. build, the first time in 2 to 10 minutes
  3. 10 seconds of a camera: the first 300 pictures of the Fashion-MNIST test set as 640x480 JPEG
     frames, 30 per second, classified by an int8 model on the emulated accelerator

TEXT
echo "== 1. packages"
tools/install_packages.sh
echo "== 2. build"
cmake --preset release --log-level=WARNING
cmake --build --preset release --target atoll_command
echo "== 3. camera"
demo=(build/release/tools/atoll/atoll camera models/fashion/fashion_int8.tflite
      --labels models/fashion/labels.txt --source fashion:/usr/share/datasets/fashion-mnist
      --fps 30 --frames 300 --device emu --json)
echo "${demo[*]}"
# Progress and the readable summary come on stderr, the JSON object on stdout.
"${demo[@]}"
