#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what the preset aarch64 needs beyond install_packages.sh (docs/arm64.md): the cross
# compiler, QEMU and the libraries for arm64. Does nothing, quickly, when all is there.
set -euo pipefail
cd "$(dirname "$0")"

packages=(
  g++-aarch64-linux-gnu qemu-user-static
  libflatbuffers-dev:arm64
  libjpeg62-turbo-dev:arm64 libpng-dev:arm64 zlib1g-dev:arm64 libzip-dev:arm64
  libfmt-dev:arm64
  libgtest-dev:arm64 libgmock-dev:arm64 libbenchmark-dev:arm64
)

if ! dpkg --print-foreign-architectures | grep -qx arm64; then
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  echo "Adding Debian's architecture arm64"
  "${as_root[@]}" dpkg --add-architecture arm64
  "${as_root[@]}" apt-get update
fi
./install_packages.sh "${packages[@]}"
