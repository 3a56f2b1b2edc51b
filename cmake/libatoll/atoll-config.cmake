# find_package(atoll) gives the libraries of this installation:
#   atoll::atoll  atoll::atoll_static    with devices on USB
#   atoll::core   atoll::core_static     the CPU, the compiler and the emulated device
# The static ones need a project with the language CXX, and that with USB libusb-1.0's own file.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/atoll-targets.cmake)
