# Cross-building for 64-bit ARM on Debian. Libraries are those of the architecture arm64
# (tools/install_arm64_packages.sh), programs such as flatc those of the machine that builds, and
# tests run under QEMU, whose CPU the environment variable QEMU_CPU names (docs/arm64.md).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# pkg-config would otherwise find the libraries of the machine that builds.
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
find_program(ATOLL_QEMU NAMES qemu-aarch64 qemu-aarch64-static REQUIRED)
set(CMAKE_CROSSCOMPILING_EMULATOR ${ATOLL_QEMU})
