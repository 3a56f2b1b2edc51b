#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian packages that building, testing and the demonstration need, if any is missing.
# The one place where they are listed. Does nothing, quickly, when all are there.
#   install_packages.sh [--all | PACKAGE...]    --all: what optional parts and their tests need, too;
#                                               or those named, instead
set -euo pipefail

packages=(
  cmake ninja-build make g++ pkg-config python3
  libusb-1.0-0-dev libflatbuffers-dev flatbuffers-compiler libeigen3-dev
  libjpeg62-turbo-dev libpng-dev zlib1g-dev libzip-dev
  libcli11-dev nlohmann-json3-dev libfmt-dev
  libgtest-dev libgmock-dev libbenchmark-dev libumockdev-dev umockdev
  dataset-fashion-mnist
)
# clang's build and its checks, formatting, the comparison of the C interface with its older self, the
# units of systemd, the browser, the packages for Python, what programs use beside them, and the exams of the detector, the virtual
# machine; the server on the network, the detector for Frigate and its client, MQTT and a broker, load
# for servers; what judges metrics and what stands in front of servers; a fleet on NATS. (Node and npm,
# which bring TensorFlow Lite 2.9, gRPC, ajv and NATS, come from various places: not
# from here.)
optional=(
  clang clang-format-14 clang-tidy-14 abigail-tools systemd chromium python3-dev python3-venv python3-numpy python3-pil
  python3-opencv python3-flask
  qemu-system-x86 busybox-static cpio kmod
  libevent-dev libhttp-parser-dev libssl-dev libgrpc++-dev libprotobuf-dev protobuf-compiler-grpc libavahi-client-dev avahi-daemon dbus iproute2 python3-yaml
  libzmq3-dev python3-zmq libmosquitto-dev mosquitto mosquitto-clients libcurl4-openssl-dev
  prometheus haproxy python3-jsonschema
  libnats-dev nats-server
)
case "${1:-}" in
  "") ;;
  --all) packages+=("${optional[@]}") ;;
  *) packages=("$@") ;;
esac

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  # Once for each architecture that it is there for.
  [[ $state == installed* ]] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "These Debian packages are missing and there is no sudo; install them as root:" \
         "apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive
         apt-get install --yes --no-install-recommends "${missing[@]}")
echo "Installing missing Debian packages: ${missing[*]}"
[ ${#as_root[@]} -eq 0 ] || echo "(with sudo, which may ask for your password)"
if ! "${install[@]}"; then
  # Package lists that are absent or out of date.
  echo "That failed; updating the package lists and trying once more."
  "${as_root[@]}" apt-get update
  "${install[@]}"
fi
