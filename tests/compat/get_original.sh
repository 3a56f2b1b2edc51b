#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: get_original.sh FOLDER
#
# Brings TensorFlow Lite 2.9 as npm packages have it to FOLDER, with the addon for Node that uses it
# compiled: what the stand-ins are compared with. Which bytes these are is in
# original/package-lock.json. Does nothing if they are there.
set -eu
folder=$1
original=$(dirname "$0")/original
if ! command -v npm >/dev/null; then
  echo "ATOLL-SKIPPED: npm, which brings TensorFlow Lite 2.9, is not installed"
  exit 0
fi
mkdir -p "$folder"
if cmp -s "$original/package-lock.json" "$folder/complete"; then
  echo "TensorFlow Lite 2.9 is in $folder"
  exit 0
fi
cp "$original/package.json" "$original/package-lock.json" "$folder"
cd "$folder"
if ! npm ci --ignore-scripts --no-audit --no-fund --loglevel=error; then
  echo "ATOLL-SKIPPED: npm did not bring TensorFlow Lite 2.9"
  exit 0
fi
# The headers of the system's Node, so that nothing else is fetched.
if ! npm_config_nodedir="${npm_config_nodedir:-/usr}" npm rebuild tfjs-tflite-node --loglevel=error
then
  echo "ATOLL-SKIPPED: the addon for Node does not compile here (it needs Node's headers)"
  exit 0
fi
cp package-lock.json complete
