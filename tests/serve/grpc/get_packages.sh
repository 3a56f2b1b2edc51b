#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: get_packages.sh FOLDER [WHERE WHAT]
#
# Brings gRPC for Node to FOLDER, as package-lock.json has it, which says what bytes these are, or
# WHAT the one in the folder WHERE has. Does nothing if it is there.
set -eu
folder=$1
here=${2:-$(cd "$(dirname "$0")" && pwd)}
what=${3:-packages for Node}
if ! command -v npm >/dev/null; then
  echo "ATOLL-SKIPPED: npm, which brings $what, is not installed"
  exit 0
fi
mkdir -p "$folder"
if cmp -s "$here/package-lock.json" "$folder/complete"; then
  echo "$what is in $folder"
  exit 0
fi
cp "$here/package.json" "$here/package-lock.json" "$folder"
cd "$folder"
if ! npm ci --ignore-scripts --no-audit --no-fund --loglevel=error; then
  echo "ATOLL-SKIPPED: npm did not bring $what"
  exit 0
fi
cp package-lock.json complete
