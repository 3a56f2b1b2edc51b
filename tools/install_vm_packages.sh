#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs the Debian packages that tests/vm/run.sh needs beside a build, if any is missing. The
# kernel of the virtual machine is not among them: run.sh downloads its package without installing it.
set -euo pipefail
exec "$(dirname "$0")/install_packages.sh" qemu-system-x86 busybox-static cpio kmod
